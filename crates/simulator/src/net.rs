//! The network: connections as ordered pipes of messages, which delay, stall, break, and resume.
//!
//! A lossy connection ends with its first break. A lossless session survives breaks: what was under way arrives later, once
//! and in order. It does not survive the end of either process.
//!
//! Packets are messages as they are, or the bytes of `msgr`'s connections: see `wire`.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use messages::Message;
use testkit::Rng;
use types::ConnId;

use crate::conns::Conns;
use crate::mutant::Mutant;
use crate::queue::Time;
use crate::wire::{Wire, Wired};

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    Mon(usize),
    Mgr,
    Admin,
    Osd(i32),
    Client(usize),
    Guest(usize),
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Opener = 0,
    Target = 1,
}

impl End {
    pub fn other(self) -> Self {
        match self {
            Self::Opener => Self::Target,
            Self::Target => Self::Opener,
        }
    }
}

/// What travels.
#[derive(Debug, Clone, PartialEq)]
pub enum Packet {
    /// The opener asks for a session.
    Open,
    /// The target agrees; a monitor gives the opener's global id with it.
    Accepted {
        global_id: u64,
    },
    /// Nobody listens there.
    Refused,
    Message {
        tid: u64,
        msg: Message,
    },
    /// From one monitor to another.
    Peer(Bytes),
    /// A sign of life is asked for, and given.
    Ping,
    Pong,
    /// The other end is gone.
    Fin,
    /// Where links carry bytes: a TCP connection stands, carries something, is broken.
    Up {
        tcp: u32,
    },
    Bytes {
        tcp: u32,
        data: Bytes,
    },
    Cut {
        tcp: u32,
    },
}

#[derive(Debug, Default)]
pub struct Pipe {
    pub queue: VecDeque<Packet>,
    /// When its last packet arrives.
    last: Time,
    /// Nothing arrives before: a broken session has not been resumed yet.
    held_until: Time,
    /// Deliveries that a partition holds back.
    stalled: usize,
}

/// A connection; see the module.
#[derive(Debug)]
pub struct Conn {
    pub nodes: [Node; 2],
    /// Which life of each process.
    pub lives: [u32; 2],
    pub lossy: bool,
    pub ready: bool,
    /// Whether each end still holds it.
    pub held: [bool; 2],
    /// Messages of the opener from before it was ready.
    backlog: Vec<Packet>,
    /// The target has forgotten the session: what its opener says before it hears of that is lost as well.
    forgotten: bool,
    /// Indexed by the end that receives.
    pub pipes: [Pipe; 2],
    /// Where links carry bytes.
    pub wired: Option<Box<Wired>>,
}

impl Conn {
    /// One that the opener has asked for.
    pub fn new(nodes: [Node; 2], lives: [u32; 2], lossy: bool, wired: Option<Box<Wired>>) -> Self {
        Self {
            nodes,
            lives,
            lossy,
            ready: false,
            held: [true, false],
            backlog: Vec::new(),
            forgotten: false,
            pipes: [Pipe::default(), Pipe::default()],
            wired,
        }
    }

    pub fn end_of(&self, node: Node) -> End {
        if self.nodes[0] == node { End::Opener } else { End::Target }
    }
}

/// What a planted bug does to a session that is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mangling {
    Repeat,
    Reverse,
}

impl Mangling {
    pub fn of(mutant: Option<Mutant>) -> Option<Self> {
        match mutant {
            Some(Mutant::RepeatingSessions) => Some(Self::Repeat),
            Some(Mutant::ReorderingSessions) => Some(Self::Reverse),
            _ => None,
        }
    }
}

/// A packet arrives at one end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    pub conn: ConnId,
    pub to: End,
}

/// What became of a delivery.
pub enum Arrival {
    Packet(Packet),
    /// Try again then.
    Later(Time),
    Nothing,
}

pub struct Net {
    pub conns: Conns,
    /// From, to.
    blocked: BTreeSet<(Node, Node)>,
    /// Opener and target between whom somebody refuses connections.
    refused: BTreeSet<(Node, Node)>,
    rng: Rng,
    latency: Time,
    /// What was planned and is to be put into the queue of events.
    pub planned: Vec<(Time, Delivery)>,
    /// Links carry bytes.
    pub wire: Option<Wire>,
}

impl Net {
    pub fn new(seed: u64, latency: Time, wire: Option<Wire>) -> Self {
        Self {
            conns: Conns::default(),
            blocked: BTreeSet::new(),
            refused: BTreeSet::new(),
            rng: Rng::new(seed),
            latency,
            planned: Vec::new(),
            wire,
        }
    }

    pub fn conn(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(&id)
    }

    /// Connections of which a process holds an end.
    pub fn of_node(&self, node: Node) -> Vec<ConnId> {
        let mine = self.conns.iter().filter(|(_, c)| {
            c.nodes.iter().zip(c.held).any(|(n, held)| *n == node && held) || c.nodes.contains(&node)
        });
        mine.map(|(id, _)| id).collect()
    }

    fn delay(&mut self) -> Time {
        let base = self.latency;
        match self.rng.below(100) {
            // A retransmission, a busy host.
            0 => base * 50 + self.rng.below(base * 400),
            1..=9 => base + self.rng.below(base * 20),
            _ => base + self.rng.below(base * 3),
        }
    }

    pub fn push(&mut self, now: Time, id: ConnId, to: End, packet: Packet) {
        let delay = self.delay();
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let pipe = &mut conn.pipes[to as usize];
        pipe.queue.push_back(packet);
        pipe.last = (now + delay).max(pipe.last + 1);
        self.planned.push((pipe.last, Delivery { conn: id, to }));
    }

    /// Opens a connection; `lives` are those of the opener and, as the opener believes, of the target.
    pub fn open(&mut self, now: Time, nodes: [Node; 2], lives: [u32; 2], lossy: bool) -> ConnId {
        let wired = self.new_wired(nodes, lives, lossy);
        let id = self.conns.add(Conn::new(nodes, lives, lossy, wired));
        self.push(now, id, End::Target, Packet::Open);
        id
    }

    /// The process that was reached, where the address does not name it.
    pub fn set_target_life(&mut self, id: ConnId, life: u32) {
        if let Some(c) = self.conns.get_mut(&id) {
            c.lives[1] = life;
        }
    }

    /// The target forgets a session, and lives on.
    pub fn forget_session(&mut self, id: ConnId) {
        if let Some(c) = self.conns.get_mut(&id) {
            c.forgotten = true;
        }
    }

    /// The opener asks once more.
    pub fn reopen(&mut self, now: Time, id: ConnId) {
        if let Some(c) = self.conns.get_mut(&id).filter(|c| c.forgotten) {
            c.backlog.clear();
            c.forgotten = false;
        }
        if self.conns.get(&id).is_some_and(|c| !c.ready && c.held[0]) {
            self.push(now, id, End::Target, Packet::Open);
        }
    }

    /// The target takes the connection; the opener will hear of it.
    pub fn accept(&mut self, now: Time, id: ConnId, global_id: u64) {
        if let Some(c) = self.conns.get_mut(&id) {
            c.held[1] = true;
            if self.wire_accept(now, id, global_id).is_none() {
                self.push(now, id, End::Opener, Packet::Accepted { global_id });
            }
        }
    }

    pub fn refuse(&mut self, now: Time, id: ConnId) {
        self.push(now, id, End::Opener, Packet::Refused);
    }

    /// The opener heard that it is accepted: what waited goes out.
    pub fn now_ready(&mut self, now: Time, id: ConnId) {
        let Some(c) = self.conns.get_mut(&id) else { return };
        c.ready = true;
        for packet in std::mem::take(&mut c.backlog) {
            self.push(now, id, End::Target, packet);
        }
    }

    /// Sends from one end; dropped when that end does not hold the connection.
    pub fn send(&mut self, now: Time, id: ConnId, from: End, tid: u64, msg: Message) {
        self.send_packet(now, id, from, Packet::Message { tid, msg });
    }

    pub fn send_packet(&mut self, now: Time, id: ConnId, from: End, packet: Packet) {
        let Some(c) = self.conns.get_mut(&id) else { return };
        if !c.held[from as usize] {
            return;
        }
        if c.wired.is_some() {
            return self.wire_send(now, id, from, packet);
        }
        if from == End::Opener && !c.ready {
            c.backlog.push(packet);
            return;
        }
        self.push(now, id, from.other(), packet);
    }

    /// One end lets go; the other hears of it after what is under way to it.
    pub fn close(&mut self, now: Time, id: ConnId, end: End) {
        self.wire_drop(id, end);
        let Some(c) = self.conns.get_mut(&id) else { return };
        c.held[end as usize] = false;
        c.pipes[end as usize].queue.clear();
        if c.held[end.other() as usize] {
            self.push(now, id, end.other(), Packet::Fin);
        } else {
            self.conns.remove(&id);
        }
    }

    /// An end is gone and told nobody.
    pub fn forget_end(&mut self, id: ConnId, end: End) {
        self.wire_drop(id, end);
        let Some(c) = self.conns.get_mut(&id) else { return };
        c.held[end as usize] = false;
        c.pipes[end as usize].queue.clear();
        if !c.held[end.other() as usize] {
            self.conns.remove(&id);
        }
    }

    /// Loses a random part of what is under way to an end, the newest first.
    pub fn lose_tail(&mut self, id: ConnId, to: End) {
        let Some(c) = self.conns.get_mut(&id) else { return };
        let queue = &mut c.pipes[to as usize].queue;
        let kept = self.rng.below(queue.len() as u64 + 1) as usize;
        queue.truncate(kept);
        self.wire_tear(id, to);
    }

    /// Loses everything under way, and the session with it; the opener has to begin anew.
    ///
    /// Where links carry bytes it is the ends that find out what is lost: this one keeps its session.
    pub fn reset_session(&mut self, now: Time, id: ConnId) {
        let Some(c) = self.conns.get_mut(&id) else { return };
        c.ready = false;
        if c.wired.is_some() {
            return self.wire_park_opener(now, id);
        }
        c.backlog.clear();
        c.pipes.iter_mut().for_each(|p| p.queue.clear());
    }

    /// A lossless session is cut and resumes by itself at `until`.
    pub fn hold(&mut self, id: ConnId, until: Time) {
        if let Some(c) = self.conns.get_mut(&id) {
            c.pipes.iter_mut().for_each(|p| p.held_until = p.held_until.max(until));
        }
    }

    /// Mutants: what is under way to an end arrives twice, or in another order.
    pub fn mangle(&mut self, now: Time, id: ConnId, to: End, how: Mangling) {
        let Some(c) = self.conns.get_mut(&id) else { return };
        let queue = &mut c.pipes[to as usize].queue;
        match how {
            Mangling::Reverse => return queue.make_contiguous().reverse(),
            Mangling::Repeat => {}
        }
        let again: Vec<Packet> = queue.iter().cloned().collect();
        again.into_iter().for_each(|p| self.push(now, id, to, p));
    }

    /// A delivery is due.
    pub fn arrive(&mut self, now: Time, d: Delivery) -> Arrival {
        let Some(c) = self.conns.get_mut(&d.conn) else { return Arrival::Nothing };
        let (from, to) = (c.nodes[d.to.other() as usize], c.nodes[d.to as usize]);
        let pipe = &mut c.pipes[d.to as usize];
        if self.blocked.contains(&(from, to)) {
            pipe.stalled += 1;
            return Arrival::Nothing;
        }
        if pipe.held_until > now {
            return Arrival::Later(pipe.held_until);
        }
        match pipe.queue.pop_front() {
            Some(packet) => Arrival::Packet(packet),
            None => Arrival::Nothing,
        }
    }

    pub fn block(&mut self, from: Node, to: Node) {
        self.blocked.insert((from, to));
    }

    /// The number of messages that it held back.
    pub fn unblock(&mut self, now: Time, from: Node, to: Node) -> usize {
        if !self.blocked.remove(&(from, to)) {
            return 0;
        }
        let mut due = Vec::new();
        for (id, c) in self.conns.iter_mut() {
            for end in [End::Opener, End::Target] {
                if c.nodes[end.other() as usize] == from && c.nodes[end as usize] == to {
                    let n = std::mem::take(&mut c.pipes[end as usize].stalled);
                    due.extend((0..n).map(|_| Delivery { conn: id, to: end }));
                }
            }
        }
        let held = due.len();
        for d in due {
            let delay = self.delay();
            self.planned.push((now + delay, d));
        }
        held
    }

    pub fn unblock_all(&mut self, now: Time) {
        for (from, to) in self.blocked.clone() {
            self.unblock(now, from, to);
        }
    }

    /// Somebody between the two refuses connections, or stops doing so.
    pub fn set_refused(&mut self, opener: Node, target: Node, on: bool) {
        match on {
            true => self.refused.insert((opener, target)),
            false => self.refused.remove(&(opener, target)),
        };
    }

    pub fn refuse_nobody(&mut self) {
        self.refused.clear();
    }

    pub fn is_refused(&self, opener: Node, target: Node) -> bool {
        self.refused.contains(&(opener, target))
    }

    /// Connections that one of the two opened to the other.
    pub fn between(&self, opener: Node, target: Node) -> Vec<ConnId> {
        let meant = self.conns.iter().filter(|(_, c)| c.nodes == [opener, target] && c.held == [true, true]);
        meant.map(|(id, _)| id).collect()
    }

    pub fn any_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    pub fn is_blocked(&self, from: Node, to: Node) -> bool {
        self.blocked.contains(&(from, to))
    }

    /// The most packets that are under way on one connection to somebody who is there.
    pub fn longest_queue(&self) -> usize {
        let held = |c: &Conn| (0..2).filter(|end| c.held[*end]).map(|end| c.pipes[end].queue.len()).max();
        self.conns.iter().filter_map(|(_, c)| held(c)).max().unwrap_or(0)
    }

    /// Connections with somebody at both ends; if there are any, only those with messages under way when `busy`.
    pub fn live(&self, busy: bool) -> Vec<ConnId> {
        let live = || self.conns.iter().filter(|(_, c)| c.held == [true, true]);
        let working = live().filter(|(_, c)| busy && c.pipes.iter().any(|p| !p.queue.is_empty()));
        let working: Vec<ConnId> = working.map(|(id, _)| id).collect();
        if working.is_empty() { live().map(|(id, _)| id).collect() } else { working }
    }
}
