//! Single members against messages made by hand: loyalty, new leaders, silent members.

use std::time::Duration;

use bytes::Bytes;
use quorum::{
    Append, AppendReply, Body, HardState, Input, MemberId, Membership, Message, Output, Raft, Snapshot,
    Start, Tuning,
};
use types::{Fsid, Now, SeededEntropy, Utime};

const CLUSTER: Fsid = Fsid([7; 16]);
const ME: MemberId = MemberId(1);
const B: MemberId = MemberId(2);
const C: MemberId = MemberId(3);

struct Alone {
    raft: Raft,
    now: u64,
}

impl Alone {
    /// Member `a` of three, which have a snapshot at 1.
    fn new() -> Self {
        let names = [(ME, "a"), (B, "b"), (C, "c")];
        let members = Membership::of(names.map(|(id, name)| (id, name.to_owned())));
        let start = Start {
            hard: HardState { id: ME, term: 1, vote: MemberId::NONE },
            snapshot: Snapshot { index: 1, term: 1, members, state: Bytes::from_static(b"one") },
            entries: Vec::new(),
        };
        let entropy = Box::new(SeededEntropy(1));
        let mut raft =
            Raft::new(CLUSTER, "a".to_owned(), Tuning::default(), entropy, start, Self::at(10_000));
        raft.set_names(names.map(|(_, name)| name.to_owned()).into());
        Self { raft, now: 10_000 }
    }

    fn at(millis: u64) -> Now {
        Now { mono: Duration::from_millis(millis), wall: Utime { sec: 1_700_000_000, nsec: 0 } }
    }

    /// Messages that the member sends; its writes are durable at once.
    fn input(&mut self, input: Input) -> Vec<Message> {
        let (mut out, mut sent) = (Vec::new(), Vec::new());
        self.raft.handle(Self::at(self.now), input, &mut out);
        for output in out {
            match output {
                Output::Send(m) => sent.push(m),
                Output::Write(w) => sent.extend(self.input(Input::Written { seq: w.seq })),
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
        let reply = AppendReply { ok: true, index, sent, wall: Utime { sec: 1_700_000_000, nsec: 0 } };
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
    let reply = AppendReply { ok: false, index: 2, sent, wall: Utime { sec: 1_700_000_000, nsec: 0 } };
    let mut sent = a.message(C, a.raft.term(), Body::AppendReply(reply));
    sent.extend(a.wait(200));
    assert!(sent.iter().any(|m| m.to == C && matches!(m.body, Body::Snapshot(_))), "{sent:?}");
    let sent = a.holds(C, 3);
    let entries = |m: &Message| matches!(&m.body, Body::Append(append) if append.entries.len() == 1);
    assert!(sent.iter().any(|m| m.to == C && entries(m)), "{sent:?}");
}
