//! The member: its state, what goes in and out, and what every role shares.
//!
//! Invariants:
//! 1. A vote and a term are durable before anybody is told of them (`after_write`).
//! 2. A follower acknowledges only what is durable here and known to be equal to its leader's log: `min(verified, durable)`.
//! 3. A leader commits by counting only entries of its own term (`lead::advance_commit`); its own copy counts
//!    when it is durable.
//! 4. Committed entries never change: a truncation at or below `commit` ends the process.
//! 5. Whoever heard from a leader within `election_min`, or may have before it was restarted, helps nobody to replace it; a
//!    leader's lease, counted from when it sent what a majority answered, ends before that.
//! 6. A store that was found to be an older copy of itself takes part in nothing any more (`find_outdated`).
//!
//! ```text
//! follower  --election::campaign-->     pre-candidate --election::count--> candidate --election::count--> leader
//! any role  --step_down (newer term, lost majority, removed)--> follower
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use types::{Entropy, Fsid, Now};

use crate::election::Votes;
use crate::lead::Leading;
use crate::log::{Entry, Log, Payload, Snapshot};
use crate::member::{MemberId, Membership};
use crate::message::{Body, Message, PeerStatus};
use crate::parts::Receiving;
use crate::tuning::Tuning;

/// What must survive a crash besides the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HardState {
    /// Who this store is.
    pub id: MemberId,
    pub term: u64,
    /// Who got our vote in that term.
    pub vote: MemberId,
    /// A leader found that this store lacks what it had acknowledged. It stays so.
    pub outdated: bool,
}
codec::wire_struct!(HardState(2, 1) { id, term, vote } since 2 { outdated });

/// What a member starts from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    pub hard: HardState,
    pub snapshot: Snapshot,
    pub entries: Vec<Entry>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    Message(Message),
    /// All writes up to this one are durable.
    Written {
        seq: u64,
    },
    /// Appends data, when we lead and do not resign; dropped otherwise.
    Propose {
        data: Bytes,
    },
    /// The state after `index` was applied: the log before it may go.
    Compact {
        index: u64,
        state: Bytes,
    },
    /// Asks when a read may be answered from the applied state.
    Read {
        ctx: u64,
    },
    /// We are about to stop: another member shall lead, once it holds all that was proposed here, or after
    /// [`Raft::HANDOVER`].
    Resign,
    /// Comes at least every [`Raft::TICK`] when there are several members.
    Tick,
}

/// What is to be done, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    Send(Message),
    /// To be made durable after all earlier ones, as a whole or not at all but for a tail of entries.
    Write(Write),
    /// To be applied now; every index comes once, in order. Entries of the group itself have no data.
    Committed {
        index: u64,
        data: Bytes,
    },
    /// The state is replaced by a snapshot's.
    Install {
        index: u64,
        state: Bytes,
    },
    /// Everything acknowledged before the read was asked for is applied.
    ReadReady {
        ctx: u64,
    },
    View(View),
}

/// A change of the store. Applied in the order of the fields.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Write {
    pub seq: u64,
    /// The last log index known to be durable now.
    pub durable: u64,
    pub hard: Option<HardState>,
    /// Replaces the snapshot; entries up to its index go.
    pub snapshot: Option<Snapshot>,
    /// Entries from here on go.
    pub truncate: Option<u64>,
    pub entries: Vec<Entry>,
}

/// The group as this member sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    pub term: u64,
    pub leader: Option<String>,
    /// We lead, and have applied everything that earlier leaders committed.
    pub is_leader: bool,
    /// Voters that take part, by name.
    pub active: Vec<(String, PeerStatus)>,
    /// Whether we are a member at all.
    pub member: bool,
    /// How often this process has called for an election.
    pub calls: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Role {
    Follower { leader: Option<MemberId>, verified: u64, active: Vec<PeerStatus> },
    PreCandidate(Votes),
    Candidate(Votes),
    Leader(Leading),
}

/// One member of the group.
pub struct Raft {
    pub(crate) cluster: Fsid,
    pub(crate) name: String,
    pub(crate) tuning: Tuning,
    pub(crate) entropy: Box<dyn Entropy>,
    pub(crate) hard: HardState,
    pub(crate) log: Log,
    pub(crate) role: Role,
    pub(crate) commit: u64,
    /// What the newest append of a leader said to be committed.
    pub(crate) leader_commit: u64,
    applied: u64,
    /// The last log index that is durable and unchanged since.
    pub(crate) durable: u64,
    pending: Write,
    writes: VecDeque<(u64, u64)>,
    write_seq: u64,
    written_seq: u64,
    held: VecDeque<(u64, Message)>,
    /// When we last heard from a leader, or started.
    pub(crate) heard_at: Duration,
    /// When to campaign, or to ask to be let in.
    pub(crate) deadline: Duration,
    /// Reads of our own that wait.
    pub(crate) reads: BTreeMap<u64, crate::read::Waiting>,
    pub(crate) names: BTreeSet<String>,
    view: View,
    /// The number of the write that makes the newest term durable.
    term_seq: u64,
    /// A snapshot's state that this member is putting together from parts.
    pub(crate) receiving: Option<Receiving>,
    /// How often this process has called for an election.
    pub(crate) calls: u64,
}

impl Raft {
    /// The longest between two ticks.
    pub const TICK: Duration = Duration::from_millis(50);
    /// How long a leader that resigns waits for its successor to hold its whole log.
    pub const HANDOVER: Duration = Duration::from_millis(300);

    /// A member called `name`, from its store.
    pub fn new(
        cluster: Fsid,
        name: String,
        tuning: Tuning,
        mut entropy: Box<dyn Entropy>,
        start: Start,
        now: Now,
    ) -> Self {
        let Start { hard, snapshot, entries } = start;
        let commit = snapshot.index;
        let log = Log::new(snapshot, entries);
        let durable = log.last_index();
        let mut raft = Self {
            cluster,
            name,
            hard,
            log,
            role: Role::Follower { leader: None, verified: commit, active: Vec::new() },
            commit,
            leader_commit: u64::MAX,
            applied: commit,
            durable,
            pending: Write::default(),
            writes: VecDeque::new(),
            // Numbers of an earlier life's writes and reads mean nothing to this one.
            write_seq: entropy.next_u64() >> 2,
            written_seq: 0,
            held: VecDeque::new(),
            heard_at: now.mono,
            deadline: now.mono,
            reads: BTreeMap::new(),
            names: BTreeSet::new(),
            view: View::default(),
            term_seq: 0,
            calls: 0,
            receiving: None,
            tuning,
            entropy,
        };
        raft.written_seq = raft.write_seq;
        // Alone, there is nobody to wait for.
        if !raft.alone() {
            raft.reset_deadline(now.mono);
        }
        raft
    }

    pub fn id(&self) -> MemberId {
        self.hard.id
    }

    pub fn term(&self) -> u64 {
        self.hard.term
    }

    pub fn commit_index(&self) -> u64 {
        self.commit
    }

    pub fn last_index(&self) -> u64 {
        self.log.last_index()
    }

    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// The members as the newest entry says.
    pub fn members(&self) -> &Membership {
        self.log.members()
    }

    /// The log above the snapshot, for checks.
    pub fn entries(&self) -> Vec<Entry> {
        self.log.range(self.log.snapshot.index + 1, usize::MAX, usize::MAX)
    }

    /// One entry above the snapshot.
    pub fn entry(&self, index: u64) -> Option<&Entry> {
        self.log.get(index)
    }

    pub fn snapshot_index(&self) -> u64 {
        self.log.snapshot.index
    }

    /// Whether it is the only voter.
    pub fn alone(&self) -> bool {
        let members = self.log.members();
        members.is_voter(self.hard.id) && members.voters().count() == 1
    }

    /// Whether it belongs to no group yet.
    pub fn is_blank(&self) -> bool {
        self.log.members().peers.is_empty()
    }

    /// Whether a leader found that our store lacks what it once acknowledged: nothing that it says can be relied on. True
    /// when the store itself says so, so that no later life of it is trusted either.
    pub fn is_outdated(&self) -> bool {
        self.hard.outdated && self.all_written()
    }

    /// Whether our committed state was the newest one when a leader in view last spoke: everything that earlier leaders
    /// committed, and all that this one had.
    pub fn is_current(&self) -> bool {
        match &self.role {
            Role::Leader(leading) => self.commit >= leading.start,
            Role::Follower { leader: Some(_), .. } => {
                // Until an entry of its own term is committed, a leader does not know itself what was.
                self.commit >= self.leader_commit && self.log.term(self.commit) == Some(self.hard.term)
            }
            _ => false,
        }
    }

    /// Makes a store that belongs to no group the only member of a new one, which starts from `state`. Whoever calls this
    /// knows that there is no such group yet.
    pub fn found(&mut self, now: Now, state: Bytes, out: &mut Vec<Output>) {
        if !self.is_blank() {
            return;
        }
        let members = Membership::of([(self.hard.id, self.name.clone())]);
        self.replace(Snapshot { members, state, ..Snapshot::default() }, out);
        self.deadline = now.mono;
        self.settle(now, out);
    }

    /// Who may be a member: the leader lets in stores that ask under these names, and removes the others.
    pub fn set_names(&mut self, names: BTreeSet<String>) {
        self.names = names;
    }

    /// Takes one event; what is to be done is appended to `out`.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        if self.hard.outdated && !matches!(input, Input::Written { .. }) {
            // Invariant 6.
            return;
        }
        match input {
            Input::Message(m) => self.message(now, m, out),
            Input::Written { seq } => self.written(now, seq, out),
            Input::Propose { data } => {
                if self.takes_proposals() {
                    self.append_own(Payload::Data(data));
                    self.broadcast(now, out);
                }
            }
            Input::Compact { index, state } => self.compact(index, state),
            Input::Read { ctx } => self.read(now, ctx, out),
            Input::Resign => self.resign(now),
            Input::Tick => self.tick(now, out),
        }
        self.settle(now, out);
    }

    /// What follows from any event: what can be committed is, reads are answered, the write goes out, the view is told.
    fn settle(&mut self, now: Now, out: &mut Vec<Output>) {
        self.flush(out);
        self.advance_commit(now, out);
        self.apply(out);
        self.hand_over(now, out);
        self.answer_reads(now, out);
        self.flush(out);
        self.update_active(now);
        if !self.view_holds() {
            self.view = self.view_now();
            out.push(Output::View(self.view.clone()));
        }
    }

    fn apply(&mut self, out: &mut Vec<Output>) {
        while self.applied < self.commit {
            let Some(entry) = self.log.get(self.applied + 1) else { return };
            out.push(Output::Committed { index: entry.index, data: entry.payload.data() });
            self.applied += 1;
        }
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.is_leader() {
            self.lead_tick(now, out);
        } else if now.mono >= self.deadline {
            self.campaign(now, out);
        }
        self.retry_reads(now, out);
    }

    fn message(&mut self, now: Now, m: Message, out: &mut Vec<Output>) {
        let ours = m.to == self.hard.id || m.to == MemberId::NONE;
        if m.cluster != self.cluster || !ours || m.from == self.hard.id || m.from == MemberId::NONE {
            return;
        }
        match m.body {
            Body::PreVote { last_index, last_term } => {
                return self.pre_vote(now, m.from, m.term, (last_term, last_index), out);
            }
            Body::PreVoteReply { granted: true } => return self.pre_vote_granted(now, m.from, m.term, out),
            Body::Join { name } => return self.join(now, m.from, name, out),
            // Of our own term too: we may have learned of it from others while we still heard its predecessor's leader,
            // whose lease relies on us.
            Body::Vote { .. } if m.term >= self.hard.term && self.is_loyal(now) => return,
            _ => {}
        }
        if m.term > self.hard.term {
            self.step_down(now, m.term);
        }
        if m.term < self.hard.term {
            return self.answer_outdated(now, &m, out);
        }
        match m.body {
            Body::Vote { last_index, last_term } => self.vote(now, m.from, (last_term, last_index), out),
            Body::VoteReply { granted } => self.vote_counted(now, m.from, granted, out),
            Body::Append(append) => self.append(now, m.from, append, out),
            Body::Snapshot(install) => self.install(now, m.from, install, out),
            Body::SnapshotPart(part) => self.install_part(now, m.from, part, out),
            Body::PartReply(reply) => self.part_reply(now, m.from, &reply, out),
            Body::AppendReply(reply) => self.append_reply(now, m.from, &reply, out),
            Body::ReadIndex { ctx } => self.read_index(now, m.from, ctx, out),
            Body::ReadIndexReply { ctx, index } => self.read_index_reply(ctx, index),
            Body::Resign { next } => self.leader_resigned(now, m.from, next, out),
            Body::Outdated => self.find_outdated(now),
            Body::PreVote { .. } | Body::PreVoteReply { .. } | Body::Join { .. } => {}
        }
    }

    /// A leader of an earlier term must hear that it is over.
    fn answer_outdated(&mut self, now: Now, m: &Message, out: &mut Vec<Output>) {
        match &m.body {
            Body::Append(_) | Body::Snapshot(_) | Body::SnapshotPart(_) => {
                let reply = crate::AppendReply { ok: false, wall: now.wall, ..Default::default() };
                let reply = self.to(m.from, Body::AppendReply(reply));
                self.after_write(reply, out);
            }
            Body::Vote { .. } => {
                let reply = self.to(m.from, Body::VoteReply { granted: false });
                self.after_write(reply, out);
            }
            _ => {}
        }
    }

    /// A leader's verdict on our store.
    fn find_outdated(&mut self, now: Now) {
        self.step_down(now, self.hard.term);
        self.held.clear();
        self.hard.outdated = true;
        self.persist_hard();
    }

    /// Becomes a follower, of nobody yet.
    pub(crate) fn step_down(&mut self, now: Now, term: u64) {
        if term > self.hard.term {
            self.hard.term = term;
            self.hard.vote = MemberId::NONE;
            self.pending.hard = Some(self.hard);
            self.receiving = None;
        }
        if !matches!(self.role, Role::Follower { .. }) {
            self.reset_deadline(now.mono);
        }
        self.role = Role::Follower { leader: None, verified: self.commit, active: Vec::new() };
        self.ask_again();
    }

    pub(crate) fn persist_hard(&mut self) {
        self.pending.hard = Some(self.hard);
    }

    pub(crate) fn reset_deadline(&mut self, now: Duration) {
        let span = self.tuning.election_max.saturating_sub(self.tuning.election_min);
        let span = u64::try_from(span.as_micros()).unwrap_or(0).max(1);
        let extra = Duration::from_micros(self.entropy.next_u64() % span);
        self.deadline = now + self.tuning.election_min + extra;
    }

    /// Appends an entry of our own term.
    pub(crate) fn append_own(&mut self, payload: Payload) {
        let entry = Entry { index: self.log.last_index() + 1, term: self.hard.term, payload };
        self.push(entry);
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.pending.entries.push(entry.clone());
        self.log.push(entry);
    }

    /// Drops entries that another leader replaces.
    pub(crate) fn truncate(&mut self, from: u64) {
        assert!(from > self.commit, "invariant 4: entry {from} is committed up to {}", self.commit);
        self.log.truncate(from);
        self.pending.entries.retain(|e| e.index < from);
        self.pending.truncate = Some(self.pending.truncate.map_or(from, |t| t.min(from)));
        self.durable = self.durable.min(from - 1);
        for (_, last) in &mut self.writes {
            *last = (*last).min(from - 1);
        }
    }

    /// Replaces everything by a leader's snapshot.
    pub(crate) fn replace(&mut self, snapshot: Snapshot, out: &mut Vec<Output>) {
        let index = snapshot.index;
        out.push(Output::Install { index, state: snapshot.state.clone() });
        self.pending.entries.clear();
        self.pending.truncate = Some(0);
        self.pending.snapshot = Some(snapshot.clone());
        self.log = Log::new(snapshot, Vec::new());
        self.commit = index;
        self.applied = index;
        self.durable = 0;
        for (_, last) in &mut self.writes {
            *last = 0;
        }
    }

    fn compact(&mut self, index: u64, state: Bytes) {
        let Some(term) = self.log.term(index).filter(|_| index > self.log.snapshot.index) else { return };
        if index > self.applied {
            return;
        }
        let members = self.log.members_at(index).clone();
        let snapshot = Snapshot { index, term, members, state };
        self.log.compact(snapshot.clone());
        self.pending.entries.retain(|e| e.index > index);
        self.pending.snapshot = Some(snapshot);
    }

    /// Sends a message once everything that it speaks of is durable.
    pub(crate) fn after_write(&mut self, m: Message, out: &mut Vec<Output>) {
        let dirty = self.is_dirty();
        let after = self.write_seq + u64::from(dirty);
        let hasty = types::is_planted!(self.tuning.planted, VoteInMemory);
        if after <= self.written_seq || hasty {
            out.push(Output::Send(m));
        } else {
            self.held.push_back((after, m));
        }
    }

    /// Sends a message that states our term and otherwise only what is durable: at once if the term is
    /// durable too, else when it is.
    pub(crate) fn say(&mut self, m: Message, out: &mut Vec<Output>) {
        // Invariant 1.
        let hasty = types::is_planted!(self.tuning.planted, TermInMemory);
        match hasty || self.pending.hard.is_none() && self.term_seq <= self.written_seq {
            true => out.push(Output::Send(m)),
            false => self.after_write(m, out),
        }
    }

    fn is_dirty(&self) -> bool {
        let p = &self.pending;
        p.hard.is_some() || p.snapshot.is_some() || p.truncate.is_some() || !p.entries.is_empty()
    }

    /// Sends what has changed to the store.
    fn flush(&mut self, out: &mut Vec<Output>) {
        if !self.is_dirty() {
            return;
        }
        self.write_seq += 1;
        let write = std::mem::take(&mut self.pending);
        if write.hard.is_some() {
            self.term_seq = self.write_seq;
        }
        self.writes.push_back((self.write_seq, self.log.last_index()));
        if types::is_planted!(self.tuning.planted, AckBeforeDurable) {
            self.durable = self.log.last_index();
        }
        out.push(Output::Write(Write { seq: self.write_seq, durable: self.durable, ..write }));
    }

    fn written(&mut self, now: Now, seq: u64, out: &mut Vec<Output>) {
        while let Some((_, last)) = self.writes.front().copied().filter(|(s, _)| *s <= seq) {
            self.writes.pop_front();
            self.durable = self.durable.max(last);
        }
        self.written_seq = self.written_seq.max(seq.min(self.write_seq));
        while self.held.front().is_some_and(|(s, _)| *s <= seq) {
            let Some((_, m)) = self.held.pop_front() else { break };
            // What was promised in a term that is over is nobody's business any more.
            if m.term == self.hard.term {
                out.push(Output::Send(m));
            }
        }
        self.own_vote_durable(now, out);
        self.acknowledge(now, out);
    }

    /// Whether everything so far is durable.
    pub(crate) fn all_written(&self) -> bool {
        !self.is_dirty() && self.written_seq == self.write_seq
    }

    pub(crate) fn to(&self, to: MemberId, body: Body) -> Message {
        Message { cluster: self.cluster, from: self.hard.id, to, term: self.hard.term, body }
    }

    /// Who takes part, as the leader says.
    fn active(&self) -> &[PeerStatus] {
        match &self.role {
            Role::Leader(leading) => &leading.active,
            Role::Follower { leader: Some(_), active, .. } => active,
            _ => &[],
        }
    }

    /// A new leader serves when it knows what earlier ones committed.
    fn serves(&self) -> bool {
        matches!(&self.role, Role::Leader(leading) if self.commit >= leading.start)
    }

    /// Who leads and serves.
    fn leader_name(&self) -> Option<&str> {
        let leader = match &self.role {
            Role::Leader(_) => self.serves().then_some(self.hard.id),
            Role::Follower { leader, .. } => *leader,
            _ => None,
        };
        leader.and_then(|id| self.log.members().name(id))
    }

    /// Those who take part and have names.
    fn named_active(&self) -> impl Iterator<Item = (&str, PeerStatus)> {
        self.active().iter().filter_map(|s| Some((self.log.members().name(s.id)?, *s)))
    }

    fn is_member(&self) -> bool {
        self.log.members().peers.contains_key(&self.hard.id)
    }

    /// Whether the last view given out still holds. Asked after every event, so it allocates nothing.
    fn view_holds(&self) -> bool {
        let told = &self.view;
        told.term == self.hard.term
            && told.is_leader == self.serves()
            && told.member == self.is_member()
            && told.calls == self.calls
            && told.leader.as_deref() == self.leader_name()
            && told.active.iter().map(|(name, s)| (name.as_str(), *s)).eq(self.named_active())
    }

    fn view_now(&self) -> View {
        View {
            term: self.hard.term,
            leader: self.leader_name().map(str::to_owned),
            is_leader: self.serves(),
            active: self.named_active().map(|(name, s)| (name.to_owned(), s)).collect(),
            member: self.is_member(),
            calls: self.calls,
        }
    }

    /// Checks what must always hold.
    pub fn assert_invariants(&self) {
        assert!(self.applied <= self.commit, "applied no more than is committed");
        assert!(self.commit <= self.log.last_index(), "what is committed is there");
        assert!(self.log.snapshot.index <= self.applied, "a snapshot holds what was applied");
        assert!(self.durable <= self.log.last_index(), "durable entries exist");
    }
}
