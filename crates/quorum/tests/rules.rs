//! Single members against messages made by hand: loyalty, new leaders, silent members.

use std::time::Duration;

use bytes::Bytes;
use quorum::{
    Append, AppendReply, Body, Entry, HardState, Input, InstallSnapshot, MemberId, Membership, Message,
    Output, PartReply, Payload, Raft, Snapshot, SnapshotPart, Start, Tuning,
};
use types::{Fsid, Now, SeededEntropy, Utime};

const CLUSTER: Fsid = Fsid([7; 16]);
const ME: MemberId = MemberId(1);
const B: MemberId = MemberId(2);
const C: MemberId = MemberId(3);
const WALL: Utime = Utime { sec: 1_700_000_000, nsec: 0 };

struct Alone {
    raft: Raft,
    now: u64,
    /// What its store says of itself.
    hard: HardState,
}

impl Alone {
    /// Member `a` of three, which have a snapshot at 1.
    fn new() -> Self {
        let names = [(ME, "a"), (B, "b"), (C, "c")];
        let members = Membership::of(names.map(|(id, name)| (id, name.to_owned())));
        let start = Start {
            hard: HardState { id: ME, term: 1, ..HardState::default() },
            snapshot: Snapshot { index: 1, term: 1, members, state: Bytes::from_static(b"one") },
            entries: Vec::new(),
        };
        let start_hard = start.hard;
        let entropy = Box::new(SeededEntropy(1));
        let mut raft =
            Raft::new(CLUSTER, "a".to_owned(), Tuning::default(), entropy, start, Self::at(10_000));
        raft.set_names(names.map(|(_, name)| name.to_owned()).into());
        Self { raft, now: 10_000, hard: start_hard }
    }

    fn at(millis: u64) -> Now {
        Now { mono: Duration::from_millis(millis), wall: WALL }
    }

    /// Messages that the member sends; its writes are durable at once.
    fn input(&mut self, input: Input) -> Vec<Message> {
        let (mut out, mut sent) = (Vec::new(), Vec::new());
        self.raft.handle(Self::at(self.now), input, &mut out);
        for output in out {
            match output {
                Output::Send(m) => sent.push(m),
                Output::Write(w) => {
                    self.hard = w.hard.unwrap_or(self.hard);
                    sent.extend(self.input(Input::Written { seq: w.seq }));
                }
                _ => {}
            }
        }
        sent
    }

    fn message(&mut self, from: MemberId, term: u64, body: Body) -> Vec<Message> {
        self.input(Input::Message(Message { cluster: CLUSTER, from, to: ME, term, body }))
    }

    /// Time passes; what is sent meanwhile.
    fn wait(&mut self, millis: u64) -> Vec<Message> {
        let end = self.now + millis;
        let mut sent = Vec::new();
        while self.now < end {
            self.now += 10;
            sent.extend(self.input(Input::Tick));
        }
        sent
    }

    /// Makes it the leader with the vote of `b`. Nobody has answered it as a leader yet.
    fn lead(&mut self) {
        self.wait(1_400);
        let term = self.raft.term() + 1;
        self.message(B, term, Body::PreVoteReply { granted: true });
        self.message(B, term, Body::VoteReply { granted: true });
        assert!(self.raft.is_leader());
    }

    /// `from` holds everything up to `index`.
    fn holds(&mut self, from: MemberId, index: u64) -> Vec<Message> {
        let sent = Duration::from_millis(self.now);
        let reply = AppendReply { ok: true, index, sent, wall: WALL, last_index: index, refused: 0 };
        self.message(from, self.raft.term(), Body::AppendReply(reply))
    }
}

fn granted(sent: &[Message]) -> bool {
    sent.iter().any(|m| m.body == Body::VoteReply { granted: true })
}

#[test]
fn whoever_hears_a_leader_votes_for_nobody_even_in_its_own_term() {
    let vote = Body::Vote { last_index: 9, last_term: 1 };
    let mut a = Alone::new();
    a.wait(1_000);
    let beat = Append {
        prev_index: 1,
        prev_term: 1,
        entries: Vec::new(),
        commit: 1,
        sent: Duration::from_millis(1),
        active: Vec::new(),
    };
    a.message(B, 1, Body::Append(beat));
    // It learns of the next term in another way than by a vote.
    a.message(C, 2, Body::VoteReply { granted: false });
    assert_eq!(a.raft.term(), 2);
    a.wait(100);
    assert!(!granted(&a.message(C, 2, vote.clone())), "the leader of term 1 may still hold its lease");
    a.now += Tuning::default().election_min.as_millis() as u64;
    assert!(granted(&a.message(C, 2, vote)), "nobody was heard for long enough");
}

#[test]
fn a_new_leader_does_not_replace_a_member_that_had_no_time_to_answer() {
    let mut a = Alone::new();
    a.lead();
    a.holds(B, 2);
    assert_eq!(a.raft.commit_index(), 2, "it may change the members");
    let join = Body::Join { name: "c".to_owned() };
    a.message(MemberId(33), 0, join.clone());
    assert!(a.raft.members().peers.contains_key(&C), "the old c has not been asked yet");
    for _ in 0..16 {
        a.wait(100);
        a.holds(B, a.raft.last_index());
    }
    a.message(MemberId(33), 0, join);
    assert!(a.raft.members().peers.contains_key(&MemberId(33)), "the old c is silent");
    assert!(!a.raft.members().peers.contains_key(&C));
}

#[test]
fn a_silent_member_is_only_probed_and_gets_everything_when_it_answers() {
    let mut a = Alone::new();
    a.lead();
    a.holds(B, 2);
    for _ in 0..10 {
        a.wait(100);
        a.holds(B, 2);
    }
    a.input(Input::Propose { data: Bytes::from_static(b"three") });
    a.holds(B, 3);
    a.input(Input::Compact { index: 3, state: Bytes::from_static(b"three") });
    a.input(Input::Propose { data: Bytes::from_static(b"four") });
    let mut to_c = Vec::new();
    for _ in 0..50 {
        to_c.extend(a.wait(100).into_iter().filter(|m| m.to == C));
        a.holds(B, 4);
    }
    assert!(to_c.len() > 20, "it is probed all the time");
    for m in to_c {
        assert!(matches!(&m.body, Body::Append(append) if append.entries.is_empty()), "{m:?}");
    }
    // It answers that it lacks what the probe follows.
    let sent = Duration::from_millis(a.now);
    let reply = AppendReply { ok: false, index: 2, sent, wall: WALL, last_index: 1, refused: 3 };
    let mut sent = a.message(C, a.raft.term(), Body::AppendReply(reply));
    sent.extend(a.wait(200));
    assert!(sent.iter().any(|m| m.to == C && matches!(m.body, Body::Snapshot(_))), "{sent:?}");
    let sent = a.holds(C, 3);
    let entries = |m: &Message| matches!(&m.body, Body::Append(append) if append.entries.len() == 1);
    assert!(sent.iter().any(|m| m.to == C && entries(m)), "{sent:?}");
}

fn resigned(sent: &[Message]) -> Option<MemberId> {
    sent.iter().find_map(|m| match m.body {
        Body::Resign { next } => Some(next),
        _ => None,
    })
}

#[test]
fn a_leader_hands_over_when_its_successor_holds_what_was_proposed() {
    let mut a = Alone::new();
    a.lead();
    a.wait(10);
    a.holds(B, 2);
    a.wait(10);
    a.input(Input::Propose { data: Bytes::from_static(b"three") });
    assert_eq!(resigned(&a.input(Input::Resign)), None, "nobody else holds the proposal");
    a.input(Input::Propose { data: Bytes::from_static(b"four") });
    assert_eq!(a.raft.last_index(), 3, "nothing more is taken");
    a.wait(10);
    let sent = a.holds(B, 3);
    assert_eq!(resigned(&sent), Some(B));
    assert!(!a.raft.is_leader());
    assert_eq!(a.raft.commit_index(), 3);
    // One that nobody follows up goes in the end.
    let mut a = Alone::new();
    a.lead();
    a.wait(10);
    a.holds(B, 2);
    a.input(Input::Propose { data: Bytes::from_static(b"three") });
    a.input(Input::Resign);
    assert_eq!(resigned(&a.wait(Raft::HANDOVER.as_millis() as u64 - 20)), None);
    assert_eq!(resigned(&a.wait(100)), Some(B));
}

/// `from` refuses what follows `refused`.
fn refuses(a: &mut Alone, from: MemberId, index: u64, last_index: u64, refused: u64) -> Vec<Message> {
    a.wait(10);
    let sent = Duration::from_millis(a.now);
    let reply = AppendReply { ok: false, index, sent, wall: WALL, last_index, refused };
    a.message(from, a.raft.term(), Body::AppendReply(reply))
}

#[test]
fn only_who_lacks_what_it_acknowledged_has_an_older_store() {
    let outdated = |sent: &[Message]| sent.iter().any(|m| m.to == C && m.body == Body::Outdated);
    let leader = || {
        let mut a = Alone::new();
        a.lead();
        a.wait(10);
        a.holds(C, 2);
        a.wait(10);
        a.holds(B, 2);
        for data in [&b"three"[..], b"four", b"five"] {
            a.input(Input::Propose { data: Bytes::from_static(data) });
        }
        a.wait(10);
        a.holds(C, 3);
        a
    };
    // Entries 4 and 5 of another term stand there: the whole run of that term goes, which begins before entry 3.
    let mut a = leader();
    let sent = refuses(&mut a, C, 2, 5, 5);
    assert!(!outdated(&sent), "{sent:?}");
    let next = |m: &Message| matches!(&m.body, Body::Append(append) if append.prev_index == 3);
    assert!(
        sent.iter().any(|m| m.to == C && next(m)),
        "it goes on behind what is known to be equal: {sent:?}"
    );
    assert!(outdated(&refuses(&mut a, C, 2, 5, 3)), "it does not hold entry 3, which it had acknowledged");
    let mut a = leader();
    assert!(outdated(&refuses(&mut a, C, 3, 2, 5)), "its log ends before entry 3");
}

#[test]
fn an_outdated_store_says_so_in_every_later_life() {
    let mut a = Alone::new();
    a.wait(100);
    a.message(B, 2, Body::Outdated);
    assert!(a.raft.is_outdated());
    assert!(a.hard.outdated, "it is written down");
    assert_eq!(a.hard.term, 2);
    assert_eq!(a.wait(5_000), Vec::new(), "it stands for nothing");
    let vote = Body::Vote { last_index: 9, last_term: 2 };
    assert_eq!(a.message(C, 3, vote.clone()), Vec::new(), "and votes for nobody");
    let members = a.raft.members().clone();
    let snapshot = Snapshot { index: 1, term: 1, members, state: Bytes::from_static(b"one") };
    let start = Start { hard: a.hard, snapshot, entries: Vec::new() };
    let entropy = Box::new(SeededEntropy(2));
    a.raft = Raft::new(CLUSTER, "a".to_owned(), Tuning::default(), entropy, start, Alone::at(a.now));
    assert!(a.raft.is_outdated());
    assert_eq!(a.wait(5_000), Vec::new());
    assert_eq!(a.message(C, 3, vote), Vec::new());
}

#[test]
fn a_snapshot_takes_nothing_from_who_holds_its_last_entry() {
    let mut a = Alone::new();
    a.wait(10);
    let entries: Vec<Entry> = (2..=5)
        .map(|index| Entry { index, term: 2, payload: Payload::Data(Bytes::from_static(b"data")) })
        .collect();
    let sent = Duration::from_millis(a.now);
    let append = Append { prev_index: 1, prev_term: 1, entries, commit: 2, sent, active: Vec::new() };
    a.message(B, 2, Body::Append(append));
    assert_eq!((a.raft.commit_index(), a.raft.last_index()), (2, 5));
    let members = a.raft.members().clone();
    let snapshot = |index, term| {
        Body::Snapshot(InstallSnapshot {
            snapshot: Snapshot { index, term, members: members.clone(), state: Bytes::from_static(b"state") },
            sent,
            active: Vec::new(),
        })
    };
    let answer = a.message(B, 2, snapshot(4, 2));
    assert_eq!((a.raft.commit_index(), a.raft.last_index()), (4, 5), "what it acknowledged stays");
    let held =
        |m: &Message| matches!(&m.body, Body::AppendReply(r) if r.ok && r.last_index == 5 && r.index >= 4);
    assert!(answer.iter().any(held), "{answer:?}");
    // An entry of another term stands there: everything is replaced.
    a.message(C, 3, snapshot(5, 3));
    assert_eq!((a.raft.commit_index(), a.raft.last_index(), a.raft.snapshot_index()), (5, 5, 5));
    a.raft.assert_invariants();
}

#[test]
fn no_answer_tells_a_term_before_it_is_on_the_disk() {
    let mut a = Alone::new();
    a.wait(10);
    let sent = Duration::from_millis(a.now);
    let beat =
        Append { prev_index: 1, prev_term: 1, entries: Vec::new(), commit: 1, sent, active: Vec::new() };
    let message = Message { cluster: CLUSTER, from: B, to: ME, term: 5, body: Body::Append(beat) };
    let mut out = Vec::new();
    a.raft.handle(Alone::at(a.now), Input::Message(message), &mut out);
    assert!(!out.iter().any(|o| matches!(o, Output::Send(_))), "{out:?}");
    let seq = out.iter().find_map(|o| match o {
        Output::Write(w) => Some(w.seq),
        _ => None,
    });
    let answers = a.input(Input::Written { seq: seq.expect("the term is written") });
    let answer =
        |m: &Message| m.term == 5 && matches!(&m.body, Body::AppendReply(r) if r.ok && r.sent == sent);
    assert!(answers.iter().any(answer), "{answers:?}");
}

#[test]
fn what_no_leader_can_say_ends_no_member() {
    let mut a = Alone::new();
    a.wait(10);
    let sent = Duration::from_millis(a.now);
    let append = |term: u64, commit: u64| {
        let payload = Payload::Data(Bytes::from_static(b"data"));
        let entries = vec![Entry { index: 2, term, payload }];
        Body::Append(Append { prev_index: 1, prev_term: 1, entries, commit, sent, active: Vec::new() })
    };
    a.message(B, 2, append(2, 2));
    assert_eq!(a.raft.commit_index(), 2);
    // Another entry where one is committed.
    a.message(C, 3, append(3, 2));
    assert_eq!(a.raft.entry(2).map(|e| e.term), Some(2));
    let members = a.raft.members().clone();
    let snapshot = Snapshot { index: u64::MAX, term: 3, members, state: Bytes::from_static(b"state") };
    let install = InstallSnapshot { snapshot: snapshot.clone(), sent, active: Vec::new() };
    a.message(C, 3, Body::Snapshot(install));
    let part = SnapshotPart { snapshot, offset: 0, total: 5, sent, active: Vec::new() };
    a.message(C, 3, Body::SnapshotPart(part));
    assert_eq!(a.raft.commit_index(), 2);
    a.raft.assert_invariants();
    // Another leader in the term that we lead.
    let mut a = Alone::new();
    a.lead();
    let term = a.raft.term();
    a.message(C, term, append(term, 1));
    assert!(a.raft.is_leader());
    a.raft.assert_invariants();
}

/// A member that has nothing, and one that leads with a state of `state`.
fn blank(part_bytes: usize) -> Raft {
    let hard = HardState { id: C, ..HardState::default() };
    let start = Start { hard, ..Start::default() };
    let tuning = Tuning { part_bytes, ..Tuning::default() };
    Raft::new(CLUSTER, "c".to_owned(), tuning, Box::new(SeededEntropy(3)), start, Alone::at(10_000))
}

fn part(snapshot: &Snapshot, offset: usize, len: usize) -> Body {
    let state = snapshot.state.slice(offset..offset + len);
    let total = snapshot.state.len() as u64;
    let snapshot = Snapshot { state, ..snapshot.clone() };
    let sent = Duration::from_millis(10_000);
    Body::SnapshotPart(SnapshotPart { snapshot, offset: offset as u64, total, sent, active: Vec::new() })
}

#[test]
fn a_large_state_goes_in_parts_and_goes_on_after_losses() {
    let names = [(ME, "a"), (B, "b"), (C, "c")];
    let members = Membership::of(names.map(|(id, name)| (id, name.to_owned())));
    let state: Vec<u8> = (0..100).collect();
    let snapshot = Snapshot { index: 7, term: 1, members, state: state.clone().into() };
    let hard = HardState { id: ME, term: 1, ..HardState::default() };
    let tuning = Tuning { part_bytes: 40, ..Tuning::default() };
    let start = Start { hard, snapshot, entries: Vec::new() };
    let mut a = Alone::new();
    a.raft = Raft::new(CLUSTER, "a".to_owned(), tuning, Box::new(SeededEntropy(1)), start, Alone::at(10_000));
    a.lead();
    a.holds(B, 8);
    let refuse = AppendReply { sent: Duration::from_millis(a.now), wall: WALL, ..AppendReply::default() };
    let mut sent = a.message(C, a.raft.term(), Body::AppendReply(refuse));
    let mut c = blank(40);
    let (mut installed, mut offsets, mut lost) = (None, Vec::new(), 0);
    for round in 0..2_000 {
        let mut answers = Vec::new();
        for m in sent.into_iter().filter(|m| m.to == C) {
            if let Body::SnapshotPart(p) = &m.body {
                assert!(p.snapshot.state.len() <= 40);
                offsets.push(p.offset);
                if round % 3 == 1 && lost < 2 {
                    lost += 1;
                    continue;
                }
            }
            let mut out = Vec::new();
            c.handle(Alone::at(a.now), Input::Message(m), &mut out);
            let mut i = 0;
            while i < out.len() {
                match out[i].clone() {
                    Output::Write(w) => {
                        c.handle(Alone::at(a.now), Input::Written { seq: w.seq }, &mut out);
                    }
                    Output::Install { index, state } => installed = Some((index, state)),
                    Output::Send(m) => answers.push(m),
                    _ => {}
                }
                i += 1;
            }
        }
        if installed.is_some() {
            break;
        }
        sent = a.wait(10);
        a.holds(B, a.raft.last_index());
        for m in answers {
            sent.extend(a.input(Input::Message(m)));
        }
    }
    assert_eq!(installed, Some((7, Bytes::from(state))));
    assert!(offsets.starts_with(&[0]) && offsets.ends_with(&[80]), "{offsets:?}");
    c.assert_invariants();
}

#[test]
fn parts_that_do_not_follow_are_answered_with_what_is_held() {
    let members = Membership::of([(B, "b".to_owned()), (C, "c".to_owned())]);
    let state: Vec<u8> = (0..100).collect();
    let snapshot = Snapshot { index: 7, term: 1, members, state: state.into() };
    let mut c = blank(40);
    let mut say = |from: MemberId, term: u64, body: Body| {
        let mut out = Vec::new();
        let m = Message { cluster: CLUSTER, from, to: C, term, body };
        c.handle(Alone::at(10_000), Input::Message(m), &mut out);
        let writes: Vec<u64> = out
            .iter()
            .filter_map(|o| match o {
                Output::Write(w) => Some(w.seq),
                _ => None,
            })
            .collect();
        writes.into_iter().for_each(|seq| c.handle(Alone::at(10_000), Input::Written { seq }, &mut out));
        out.into_iter().find_map(|o| match o {
            Output::Send(Message { body: Body::PartReply(PartReply { held, .. }), .. }) => Some(held),
            _ => None,
        })
    };
    assert_eq!(say(B, 2, part(&snapshot, 40, 40)), Some(0), "the first one is missing");
    assert_eq!(say(B, 2, part(&snapshot, 0, 40)), Some(40));
    assert_eq!(say(B, 2, part(&snapshot, 0, 40)), Some(40), "it came twice");
    let other = Snapshot { index: 9, ..snapshot.clone() };
    assert_eq!(say(B, 2, part(&other, 40, 40)), Some(0), "a part of another state");
    assert_eq!(say(B, 2, part(&snapshot, 0, 40)), Some(40));
    assert_eq!(say(ME, 3, part(&snapshot, 40, 40)), Some(0), "another leader's state may differ");
    let mut huge = part(&snapshot, 0, 40);
    if let Body::SnapshotPart(p) = &mut huge {
        p.total = u64::MAX;
    }
    assert_eq!(say(ME, 3, huge), None, "nobody puts that together");
    assert_eq!(say(ME, 3, part(&snapshot, 0, 90)), Some(90));
    assert_eq!(say(ME, 3, part(&snapshot, 90, 10)), None);
    assert_eq!(c.commit_index(), 7);
}
