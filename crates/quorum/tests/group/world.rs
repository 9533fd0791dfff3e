//! A simulated group: members with disks, clocks and a network between them, all from one seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode, crc32c};
use quorum::{
    Body, HardState, Input, MemberId, Membership, Message, Output, Planted, Raft, Snapshot, Tuning, View,
    Write, stored,
};
use types::{Entropy, Fsid, Now, SeededEntropy, Utime};

pub const CLUSTER: Fsid = Fsid([7; 16]);
const MS: u64 = 1_000;

/// What goes wrong, and how often.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub drop_percent: u64,
    pub duplicate_percent: u64,
    pub crashes: bool,
    pub partitions: bool,
    pub wipes: bool,
    pub drift_percent: u64,
    /// Harness bugs.
    pub keep_identity_on_wipe: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick { node: usize, life: u32 },
    Deliver { to: usize, wire: Bytes },
    Written { node: usize, life: u32 },
    Client,
    Fault,
    Heal,
    Restart { node: usize },
}

#[derive(Default)]
struct Disk {
    hard: Bytes,
    snapshot: Bytes,
    rows: BTreeMap<u64, Bytes>,
    queue: VecDeque<Write>,
}

impl Disk {
    fn new(hard: HardState, snapshot: &Snapshot) -> Self {
        let (hard, snapshot) = (stored::pack_hard_state(&hard), stored::pack_snapshot(snapshot));
        Self { hard, snapshot, ..Self::default() }
    }

    /// Applies a write; with a limit only so many of its entries, the last of them torn.
    fn apply(&mut self, write: &Write, entries: Option<usize>) {
        if let Some(hard) = &write.hard {
            self.hard = stored::pack_hard_state(hard);
        }
        if let Some(snapshot) = &write.snapshot {
            self.snapshot = stored::pack_snapshot(snapshot);
            self.rows.retain(|index, _| *index > snapshot.index);
        }
        if let Some(from) = write.truncate {
            self.rows.retain(|index, _| *index < from);
        }
        let keep = entries.unwrap_or(write.entries.len());
        for (i, e) in write.entries.iter().take(keep).enumerate() {
            let mut row = stored::pack_entry(e, write.durable).to_vec();
            if entries.is_some() && i + 1 == keep {
                row.truncate(row.len() / 2);
            }
            self.rows.insert(e.index, row.into());
        }
    }
}

/// What a member has applied: the index, and a checksum over everything up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Applied(u64, u64);

impl Applied {
    fn next(self, index: u64, data: &Bytes) -> Self {
        assert_eq!(index, self.0 + 1, "entries are applied in order");
        let mixed = self.1.rotate_left(17) ^ u64::from(crc32c(index as u32, data));
        Self(index, mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index))
    }
}

pub struct Node {
    pub raft: Option<Raft>,
    disk: Disk,
    life: u32,
    /// Clock rate in parts per thousand.
    rate: u64,
    /// What each of its writes takes longer than usual, in microseconds.
    disk_lag: u64,
    applied: Applied,
    pub view: View,
    pub name: String,
}

pub struct World {
    rng: SeededEntropy,
    now: u64,
    seq: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pub nodes: Vec<Node>,
    faults: Faults,
    calm: bool,
    cut: BTreeSet<(usize, usize)>,
    tuning: Tuning,
    /// By index: the checksum that everybody must have there, and the data.
    committed: BTreeMap<u64, (u64, Bytes)>,
    leaders: BTreeMap<u64, usize>,
    acked: u64,
    next_value: u64,
    next_ctx: u64,
    reads: BTreeMap<(usize, u32, u64), u64>,
    proposed: BTreeMap<Bytes, (usize, u32)>,
    pub acks: u64,
    pub reads_done: u64,
    pub trace: u64,
}

impl World {
    pub fn new(members: usize, seed: u64, faults: Faults, planted: Option<Planted>) -> Self {
        let mut rng = SeededEntropy(seed);
        let ids: Vec<MemberId> = (0..members).map(|_| MemberId::draw(&mut rng)).collect();
        let names: Vec<String> = (0..members).map(|i| format!("m{i}")).collect();
        let group = Membership::of(ids.iter().copied().zip(names.clone()));
        let genesis = Snapshot { index: 1, term: 1, members: group, state: encode(Applied(1, 0)) };
        let mut world = Self {
            now: 0,
            seq: 0,
            events: BinaryHeap::new(),
            nodes: Vec::new(),
            faults,
            calm: false,
            cut: BTreeSet::new(),
            // States of 16 bytes go in three parts.
            tuning: Tuning { planted, part_bytes: 7, ..Tuning::default() },
            committed: BTreeMap::new(),
            leaders: BTreeMap::new(),
            acked: 0,
            next_value: 0,
            next_ctx: 0,
            reads: BTreeMap::new(),
            proposed: BTreeMap::new(),
            acks: 0,
            reads_done: 0,
            trace: seed,
            rng,
        };
        for (id, name) in ids.into_iter().zip(names) {
            let hard = HardState { id, term: 1, ..HardState::default() };
            let drift = world.faults.drift_percent * 10;
            let rate = 1_000 - drift + world.below(2 * drift + 1);
            let disk = Disk::new(hard, &genesis);
            let node = Node {
                raft: None,
                disk,
                life: 0,
                rate,
                disk_lag: 0,
                applied: Applied::default(),
                view: View::default(),
                name,
            };
            world.nodes.push(node);
        }
        for node in 0..members {
            world.start(node);
        }
        world.plan(20 * MS, Event::Client);
        world.plan(500 * MS, Event::Fault);
        world
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        !self.calm && self.below(100) < percent
    }

    fn plan(&mut self, delay: u64, event: Event) {
        self.seq += 1;
        self.events.push(Reverse((self.now + delay, self.seq, event)));
    }

    fn clock(&self, node: usize) -> Now {
        let micros = self.now / 1_000 * self.nodes[node].rate + self.now % 1_000;
        Now { mono: Duration::from_micros(micros), wall: Utime { sec: (micros / 1_000_000) as u32, nsec: 0 } }
    }

    pub fn start(&mut self, at: usize) {
        let now = self.clock(at);
        let seed = self.rng.next_u64();
        let tuning = self.tuning.clone();
        let names = self.nodes.iter().map(|n| n.name.clone()).collect();
        let node = &mut self.nodes[at];
        let rows = node.disk.rows.iter().map(|(i, b)| (*i, b.clone()));
        let start =
            stored::recover(&node.disk.hard, &node.disk.snapshot, rows).expect("the disk is readable");
        // What a crash left of a torn tail is gone for good.
        let last = start.snapshot.index + start.entries.len() as u64;
        node.disk.rows.retain(|index, _| *index <= last);
        node.life += 1;
        node.applied = decode(&start.snapshot);
        let mut raft =
            Raft::new(CLUSTER, node.name.clone(), tuning, Box::new(SeededEntropy(seed)), start, now);
        raft.set_names(names);
        node.raft = Some(raft);
        let life = node.life;
        self.plan(MS, Event::Tick { node: at, life });
    }

    /// Ends a member; a part of what was on its way to the disk gets there.
    pub fn crash(&mut self, at: usize) {
        if self.nodes[at].raft.take().is_none() {
            return;
        }
        let queue = std::mem::take(&mut self.nodes[at].disk.queue);
        for write in queue {
            let torn = self.below(write.entries.len() as u64 + 2) as usize;
            match self.below(3) {
                0 => self.nodes[at].disk.apply(&write, None),
                1 if write.hard.is_none() && write.snapshot.is_none() && !write.entries.is_empty() => {
                    self.nodes[at].disk.apply(&write, Some(torn.min(write.entries.len())));
                    return;
                }
                _ => return,
            }
        }
    }

    /// A new disk under the old name.
    pub fn wipe(&mut self, at: usize) {
        self.crash(at);
        let old = HardState::decode(&mut codec::Reader::new(self.nodes[at].disk.hard.clone())).expect("vote");
        let mut id = MemberId::draw(&mut self.rng);
        let mut snapshot = Snapshot::default();
        if self.faults.keep_identity_on_wipe {
            id = old.id;
            snapshot = Snapshot::decode(&mut codec::Reader::new(self.nodes[at].disk.snapshot.clone()))
                .expect("ours");
            snapshot = Snapshot { index: 1, term: 1, state: encode(Applied(1, 0)), ..snapshot };
        }
        self.nodes[at].disk = Disk::new(HardState { id, ..HardState::default() }, &snapshot);
        self.start(at);
    }

    pub fn input(&mut self, at: usize, input: Input) {
        let now = self.clock(at);
        let Some(raft) = &mut self.nodes[at].raft else { return };
        let mut out = Vec::new();
        let before = raft.commit_index();
        raft.handle(now, input, &mut out);
        raft.assert_invariants();
        if raft.is_leader() && raft.commit_index() > before {
            let newest = raft.entries().into_iter().find(|e| e.index == raft.commit_index());
            assert!(
                newest.is_none_or(|e| e.term == raft.term()),
                "a leader counts copies only of its own term"
            );
        }
        self.check_leader(at);
        for output in out {
            self.output(at, output);
        }
    }

    fn check_leader(&mut self, at: usize) {
        let Some(raft) = self.nodes[at].raft.as_ref().filter(|r| r.is_leader()) else { return };
        let term = raft.term();
        if self.leaders.contains_key(&term) {
            return assert_eq!(self.leaders[&term], at, "term {term} has two leaders");
        }
        self.leaders.insert(term, at);
        let last = self.committed.keys().next_back().copied().unwrap_or(0);
        assert!(raft.last_index() >= last, "the leader of term {term} lacks committed entries");
        for e in raft.entries() {
            if let Some((_, data)) = self.committed.get(&e.index) {
                assert_eq!(
                    e.payload.data(),
                    *data,
                    "the leader of term {term} has another entry {}",
                    e.index
                );
            }
        }
    }

    fn output(&mut self, at: usize, output: Output) {
        let life = self.nodes[at].life;
        match output {
            Output::Send(m) => self.send(at, &m),
            Output::Write(write) => {
                self.nodes[at].disk.queue.push_back(write);
                let slow = if self.chance(2) { self.below(300 * MS) } else { 0 };
                let delay = 300 + self.below(4 * MS) + slow + self.nodes[at].disk_lag;
                self.plan(delay, Event::Written { node: at, life });
            }
            Output::Committed { index, data } => {
                let applied = self.nodes[at].applied.next(index, &data);
                self.nodes[at].applied = applied;
                self.agree(applied, &data);
                if self.proposed.get(&data) == Some(&(at, life)) {
                    self.acks += 1;
                    self.acked = self.acked.max(index);
                }
                if index % 40 == 0 {
                    self.input(at, Input::Compact { index, state: encode(applied) });
                }
            }
            Output::Install { index, state } => {
                let applied = decode(&Snapshot { state, ..Snapshot::default() });
                assert_eq!(applied.0, index);
                assert_eq!(
                    self.committed.get(&index).map(|(sum, _)| *sum),
                    Some(applied.1),
                    "a snapshot differs"
                );
                self.nodes[at].applied = applied;
            }
            Output::ReadReady { ctx } => {
                let floor = self.reads.remove(&(at, life, ctx)).expect("a read that was asked for");
                let have = self.nodes[at].applied.0;
                assert!(have >= floor, "a read at m{at} sees {have}, acknowledged before was {floor}");
                self.reads_done += 1;
            }
            Output::View(view) => self.nodes[at].view = view,
        }
    }

    fn agree(&mut self, applied: Applied, data: &Bytes) {
        let known = self.committed.entry(applied.0).or_insert((applied.1, data.clone()));
        assert_eq!(known.0, applied.1, "entry {} was committed twice with different content", applied.0);
    }

    /// Nothing is promised that is not on the disk.
    fn check_promise(&self, from: usize, m: &Message) {
        let disk = &self.nodes[from].disk;
        let hard = HardState::decode(&mut codec::Reader::new(disk.hard.clone())).expect("vote");
        let wish = matches!(m.body, Body::PreVote { .. } | Body::PreVoteReply { .. });
        assert!(wish || hard.term >= m.term, "term {} is told that is not on the disk: {m:?}", m.term);
        match &m.body {
            Body::VoteReply { granted: true } => {
                assert!(hard.term == m.term && hard.vote == m.to, "a vote is told that is not on the disk");
            }
            Body::AppendReply(reply) if reply.ok && reply.index > 0 => {
                let snapshot =
                    Snapshot::decode(&mut codec::Reader::new(disk.snapshot.clone())).expect("ours");
                let there = reply.index <= snapshot.index || disk.rows.contains_key(&reply.index);
                assert!(there, "entry {} is acknowledged and not on the disk", reply.index);
            }
            _ => {}
        }
    }

    fn send(&mut self, from: usize, m: &Message) {
        self.check_promise(from, m);
        let wire = m.to_wire();
        let everybody: Vec<usize> = (0..self.nodes.len()).filter(|i| *i != from).collect();
        for to in everybody {
            let is = self.nodes[to].raft.as_ref().is_some_and(|r| r.id() == m.to || m.to == MemberId::NONE);
            let lost = self.cut.contains(&(from, to)) || self.chance(self.faults.drop_percent);
            if !is || lost {
                continue;
            }
            let copies = 1 + u64::from(self.chance(self.faults.duplicate_percent));
            for _ in 0..copies {
                let slow = if self.chance(3) { self.below(400 * MS) } else { 0 };
                let delay = 100 + self.below(2 * MS) + slow;
                self.plan(delay, Event::Deliver { to, wire: wire.clone() });
            }
        }
    }

    fn client(&mut self) {
        self.plan(20 * MS, Event::Client);
        let at = self.below(self.nodes.len() as u64) as usize;
        let life = self.nodes[at].life;
        if self.nodes[at].raft.is_none() {
            return;
        }
        self.next_ctx += 1;
        self.reads.insert((at, life, self.next_ctx), self.acked);
        self.input(at, Input::Read { ctx: self.next_ctx });
        // Everybody is asked, so that a leader that is cut off is, too.
        for at in 0..self.nodes.len() {
            if self.nodes[at].view.is_leader && self.nodes[at].raft.is_some() {
                self.next_value += 1;
                let data = Bytes::from(format!("value {}", self.next_value));
                self.proposed.insert(data.clone(), (at, self.nodes[at].life));
                self.input(at, Input::Propose { data });
            }
        }
    }

    fn fault(&mut self) {
        let next = 100 * MS + self.below(1_000 * MS);
        self.plan(next, Event::Fault);
        if self.calm {
            return;
        }
        let n = self.nodes.len() as u64;
        match self.below(4) {
            0 | 1 if self.faults.crashes => {
                let at = self.below(n) as usize;
                self.crash(at);
                let delay = 50 * MS + self.below(3_000 * MS);
                self.plan(delay, Event::Restart { node: at });
            }
            2 if self.faults.partitions => {
                if self.below(2) == 0 {
                    let alone = self.below(n) as usize;
                    self.cut_off(alone);
                }
                for from in 0..n as usize {
                    for to in 0..n as usize {
                        if self.below(4) == 0 {
                            self.cut.insert((from, to));
                        }
                    }
                }
                let delay = 200 * MS + self.below(4_000 * MS);
                self.plan(delay, Event::Heal);
            }
            3 if self.faults.wipes && self.all_voters() => {
                let at = self.below(n) as usize;
                self.wipe(at);
            }
            _ => {}
        }
    }

    /// Whether every member is up, votes, and is known under its present identity.
    pub fn all_voters(&self) -> bool {
        let Some(leader) = self.nodes.iter().filter_map(|n| n.raft.as_ref()).find(|r| r.is_leader()) else {
            return false;
        };
        let committed = leader
            .entries()
            .iter()
            .all(|e| !matches!(e.payload, quorum::Payload::Members(_)) || e.index <= leader.commit_index());
        committed
            && self.nodes.iter().all(|n| n.raft.as_ref().is_some_and(|r| leader.members().is_voter(r.id())))
    }

    /// Runs for so long.
    pub fn run(&mut self, millis: u64) {
        let end = self.now + millis * MS;
        while let Some(Reverse((at, _, _))) = self.events.peek() {
            if *at > end {
                break;
            }
            let Some(Reverse((at, seq, event))) = self.events.pop() else { break };
            self.now = at;
            self.trace = self.trace.rotate_left(5) ^ (at.wrapping_mul(31) ^ seq);
            self.event(event);
        }
        self.now = end;
        self.check_logs();
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Tick { node, life } => {
                if self.nodes[node].life == life && self.nodes[node].raft.is_some() {
                    self.input(node, Input::Tick);
                    self.plan(40 * MS, Event::Tick { node, life });
                }
            }
            Event::Deliver { to, wire } => {
                let m = Message::decode(&mut codec::Reader::new(wire)).expect("messages decode");
                self.trace = self.trace.wrapping_add(m.term.wrapping_mul(7));
                self.input(to, Input::Message(m));
            }
            Event::Written { node, life } => {
                if self.nodes[node].life == life && self.nodes[node].raft.is_some() {
                    let Some(write) = self.nodes[node].disk.queue.pop_front() else { return };
                    self.nodes[node].disk.apply(&write, None);
                    self.input(node, Input::Written { seq: write.seq });
                }
            }
            Event::Client => self.client(),
            Event::Fault => self.fault(),
            Event::Heal => self.cut.clear(),
            Event::Restart { node } => {
                if self.nodes[node].raft.is_none() {
                    self.start(node);
                }
            }
        }
    }

    /// Equal index and term mean equal logs up to there.
    fn check_logs(&self) {
        let logs: Vec<_> = self.nodes.iter().filter_map(|n| n.raft.as_ref()).map(Raft::entries).collect();
        for a in &logs {
            for b in &logs {
                let b: BTreeMap<u64, _> = b.iter().map(|e| (e.index, e)).collect();
                let common = a.iter().rev().find(|e| b.get(&e.index).is_some_and(|o| o.term == e.term));
                let Some(common) = common else { continue };
                for e in a.iter().filter(|e| e.index <= common.index) {
                    assert!(b.get(&e.index).is_none_or(|o| *o == e), "logs differ at {}", e.index);
                }
            }
        }
    }

    /// Stops all faults.
    pub fn calm(&mut self) {
        self.calm = true;
        self.cut.clear();
        for at in 0..self.nodes.len() {
            if self.nodes[at].raft.is_none() {
                self.start(at);
            }
        }
    }

    pub fn cut_off(&mut self, node: usize) {
        for other in 0..self.nodes.len() {
            self.cut.insert((node, other));
            self.cut.insert((other, node));
        }
    }

    pub fn cut_between(&mut self, a: usize, b: usize) {
        self.cut.extend([(a, b), (b, a)]);
    }

    pub fn heal(&mut self) {
        self.cut.clear();
    }

    /// Every further write of a member takes so much longer.
    pub fn slow_disk(&mut self, at: usize, millis: u64) {
        self.nodes[at].disk_lag = millis * MS;
    }

    /// A second process, with an empty disk, under a member's name; reached by nobody yet.
    pub fn add_twin(&mut self, of: usize) -> usize {
        let hard = HardState { id: MemberId::draw(&mut self.rng), ..HardState::default() };
        let node = Node {
            raft: None,
            disk: Disk::new(hard, &Snapshot::default()),
            life: 0,
            rate: 1_000,
            disk_lag: 0,
            applied: Applied::default(),
            view: View::default(),
            name: self.nodes[of].name.clone(),
        };
        self.nodes.push(node);
        let at = self.nodes.len() - 1;
        self.cut_off(at);
        self.start(at);
        at
    }

    pub fn leader(&self) -> Option<usize> {
        self.nodes.iter().position(|n| n.raft.is_some() && n.view.is_leader)
    }

    pub fn raft(&self, at: usize) -> &Raft {
        self.nodes[at].raft.as_ref().expect("it runs")
    }

    pub fn acked(&self) -> u64 {
        self.acked
    }
}

fn encode(applied: Applied) -> Bytes {
    (applied.0, applied.1).to_bytes()
}

fn decode(snapshot: &Snapshot) -> Applied {
    if snapshot.state.is_empty() {
        return Applied::default();
    }
    let (index, sum) = <(u64, u64)>::from_bytes(snapshot.state.clone()).expect("our own state");
    Applied(index, sum)
}
