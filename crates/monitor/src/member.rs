//! A monitor together with its share of the quorum: what goes between the two, and between this monitor and the others.
//!
//! Invariants:
//! 1. The core hears of every entry once, in order, and proposes only while it leads and has applied all that came before.
//! 2. A client of another member has an id of its own here (`ADOPTED` and up) while we lead, and none when we do not.
//! 3. Only connections that proved the monitors' own key may speak for a monitor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, DecodeError, Reader};
use messages::Message;
use quorum::{MemberId, Raft, Start, Tuning, View};
use types::{AddrVec, ConnId, EntityAddr, Entropy, Now};

use crate::io::{Input, Output};
use crate::monitor::Monitor;
use crate::peer::{PeerMessage, PeerWhat, Who};
use crate::settings::{ClockSkew, QuorumView, Settings};

/// Ids of other members' clients begin here; no messenger counts so far.
const ADOPTED: u64 = 1 << 62;
/// Between two ticks of the core.
const CORE_TICK: Duration = Duration::from_millis(500);
/// Between two messages of a blank store, and for how long one counts.
const BLANK_AGAIN: Duration = Duration::from_millis(500);
const BLANK_KNOWN: Duration = Duration::from_secs(3);
/// How long others have to disown a monitor before it believes it: one that was cut off may say so wrongly,
/// for a moment.
const DISOWNED_LIMIT: Duration = Duration::from_secs(4);
/// From the removal of a monitor to its end: the others may need its acknowledgement of that change.
const FAREWELL: Duration = Duration::from_secs(1);

/// One of the monitors, without IO. Takes and gives the same as [`Monitor`], but for the parts that concern the log.
pub struct Member {
    core: Monitor,
    raft: Raft,
    view: View,
    /// Monitors to ask while we know no others.
    seeds: Vec<EntityAddr>,
    /// Where the senders of the quorum's messages listen.
    routes: BTreeMap<MemberId, EntityAddr>,
    peers: BTreeMap<ConnId, EntityAddr>,
    adopted: BTreeMap<(EntityAddr, u64), ConnId>,
    owners: BTreeMap<ConnId, (EntityAddr, u64)>,
    last_adopted: u64,
    core_ticked: Option<Duration>,
    names_of: Option<types::Epoch>,
    founding: Option<Founding>,
    blank_told: Option<Duration>,
    membership: OwnMembership,
    /// It was in a quorum in this life.
    served: bool,
    /// Since when others say that they do not know us, and none leads us.
    disowned: Option<Duration>,
}

/// A new cluster that comes into being when all its monitors are there, and none of them knows of an older one.
struct Founding {
    names: BTreeSet<String>,
    state: Bytes,
    /// Monitors that said that their stores are blank, and when.
    blank: BTreeMap<String, Duration>,
}

/// What became of our place among the monitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnMembership {
    /// The monitor map, as far as we know it, does not name us (yet): a recovered snapshot may be older than our addition.
    Unlisted,
    Listed,
    /// The newest map does not name us, or others say so; known since then.
    Removed(Duration),
}

/// Why a monitor has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dismissal {
    /// `ceph mon rm` while it ran.
    Removed,
    /// It was removed before it started: its store is that of a former member.
    Former,
    /// Its store is an older copy of what it was.
    OutdatedStore,
    /// What the others sent is not to be understood by this program.
    Unreadable,
}

/// What one half wants of the other, or of the world.
enum Work {
    Core(Output),
    Quorum(quorum::Output),
}

impl Member {
    /// A member from what its store holds.
    pub fn new(
        mut settings: Settings,
        tuning: Tuning,
        seeds: Vec<EntityAddr>,
        mut entropy: Box<dyn Entropy>,
        start: Start,
        now: Now,
    ) -> Result<Self, DecodeError> {
        settings.quorum = QuorumView::electing(u32::MAX, 0);
        settings.quorum_since = now.mono;
        let name = settings.name.clone();
        let state = start.snapshot.state.clone();
        let mut seed = [0; 8];
        entropy.fill(&mut seed);
        let own = Box::new(OwnEntropy(u64::from_le_bytes(seed)));
        let core = Monitor::new(settings, entropy, &state)?;
        let cluster = core.state().fsid;
        let raft = Raft::new(cluster, name, tuning, own, start, now);
        let mut member = Self {
            core,
            raft,
            view: View::default(),
            seeds,
            routes: BTreeMap::new(),
            peers: BTreeMap::new(),
            adopted: BTreeMap::new(),
            owners: BTreeMap::new(),
            last_adopted: ADOPTED,
            core_ticked: None,
            names_of: None,
            founding: None,
            blank_told: None,
            membership: OwnMembership::Unlisted,
            served: false,
            disowned: None,
        };
        member.follow_monmap();
        member.core.settings.quorum = member.quorum_view();
        Ok(member)
    }

    pub fn core(&self) -> &Monitor {
        &self.core
    }

    pub fn core_mut(&mut self) -> &mut Monitor {
        &mut self.core
    }

    pub fn raft(&self) -> &Raft {
        &self.raft
    }

    /// While our store is blank: founds a cluster with this state as soon as all the monitors of these names are there with
    /// blank stores. Exactly one of a new cluster's monitors is told so. A monitor whose store was lost founds nothing: the
    /// others, whose stores are not blank, let it in, or it waits for them.
    pub fn found_when_complete(&mut self, names: impl IntoIterator<Item = String>, state: Bytes) {
        let names = names.into_iter().filter(|n| *n != self.core.settings.name).collect();
        self.founding = Some(Founding { names, state, blank: BTreeMap::new() });
    }

    /// Whether one that resigned so long ago, to stop, has to stay for another one to lead. It leads itself until its
    /// proposals are committed; after that an election follows.
    pub fn waits_for_successor(&self, resigned_for: Duration) -> bool {
        if self.raft.is_leader() {
            // Later than that there is nobody to hand over to.
            return resigned_for < Raft::HANDOVER + 2 * Raft::TICK;
        }
        self.view.leader.is_none() && resigned_for < Raft::HANDOVER + Tuning::default().election_max
    }

    /// Whether, and why, the process has to end.
    pub fn dismissed(&self, now: Now) -> Option<Dismissal> {
        if self.raft.is_outdated() {
            return Some(Dismissal::OutdatedStore);
        }
        if self.core.broken {
            return Some(Dismissal::Unreadable);
        }
        match self.membership {
            // Others are still to hear of it, and a leader has to hand over.
            OwnMembership::Removed(since) if now.mono >= since + FAREWELL && !self.raft.is_leader() => {
                Some(if self.served { Dismissal::Removed } else { Dismissal::Former })
            }
            _ => None,
        }
    }

    /// How often [`Input::Tick`] has to come.
    pub fn tick_every(&self) -> Duration {
        if self.raft.alone() { CORE_TICK } else { Raft::TICK }
    }

    /// Takes one event; what is to be done about it is appended to `out`.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let mut work = VecDeque::new();
        match input {
            Input::Peer { conn, data } => self.peer(now, conn, data, &mut work),
            Input::PeerLost { addr } => self.peer_lost(now, addr, &mut work),
            Input::Written { seq } => self.feed_raft(now, quorum::Input::Written { seq }, &mut work),
            Input::Resign => self.feed_raft(now, quorum::Input::Resign, &mut work),
            Input::Tick => {
                self.tell_blank(now, &mut work);
                self.feed_raft(now, quorum::Input::Tick, &mut work);
                if self.core_ticked.is_none_or(|at| at + CORE_TICK <= now.mono) {
                    self.core_ticked = Some(now.mono);
                    self.feed_core(now, Input::Tick, &mut work);
                }
            }
            Input::Disconnected { conn } => self.connection_is_over(now, conn, &mut work),
            other => self.feed_core(now, other, &mut work),
        }
        while let Some(next) = work.pop_front() {
            match next {
                Work::Core(output) => self.core_output(now, output, &mut work, out),
                Work::Quorum(output) => self.quorum_output(now, output, &mut work, out),
            }
        }
        self.conclude_removal(now);
        self.forget_moved();
    }

    /// Nobody needs to be told where a monitor has moved to once the newest map says it, or does not name that
    /// monitor any more. Older states prove nothing: a recovered one may be from before the monitor's addition.
    fn forget_moved(&mut self) {
        if self.core.settings.moved.is_empty() || !self.raft.is_current() {
            return;
        }
        let monmap = std::sync::Arc::clone(&self.core.state().monmap);
        self.core.settings.moved.retain(|name, addr| {
            monmap.mons.get(name).is_some_and(|known| known.addrs != AddrVec::single(*addr))
        });
    }

    /// Whoever is missing from the newest monitor map was removed. Comes when all that is committed is applied; older states
    /// prove nothing. One with a blank store waits to be added.
    fn conclude_removal(&mut self, now: Now) {
        let unlisted = self.membership == OwnMembership::Unlisted && !self.raft.is_blank();
        if unlisted && self.raft.is_current() {
            self.membership = OwnMembership::Removed(now.mono);
        }
    }

    fn connection_is_over(&mut self, now: Now, conn: ConnId, work: &mut VecDeque<Work>) {
        if let Some(addr) = self.peers.remove(&conn) {
            self.peer_lost(now, addr, work);
        }
        self.client_gone(conn, work);
        self.feed_core(now, Input::Disconnected { conn }, work);
    }

    fn feed_core(&mut self, now: Now, input: Input, work: &mut VecDeque<Work>) {
        let mut made = Vec::new();
        self.core.handle(now, input, &mut made);
        work.extend(made.into_iter().map(Work::Core));
    }

    fn feed_raft(&mut self, now: Now, input: quorum::Input, work: &mut VecDeque<Work>) {
        let mut made = Vec::new();
        self.raft.handle(now, input, &mut made);
        work.extend(made.into_iter().map(Work::Quorum));
    }

    fn core_output(&mut self, now: Now, output: Output, work: &mut VecDeque<Work>, out: &mut Vec<Output>) {
        match output {
            Output::Send { conn, tid, msg } if conn.0 >= ADOPTED => {
                if let Some((addr, theirs)) = self.owners.get(&conn).copied() {
                    out.push(
                        self.peer_output(addr, PeerWhat::Reply { conn: theirs, msg: msg.into_wire(tid) }),
                    );
                }
            }
            Output::Close { conn } if conn.0 >= ADOPTED => {
                if let Some((addr, theirs)) = self.owners.remove(&conn) {
                    self.adopted.remove(&(addr, theirs));
                    out.push(self.peer_output(addr, PeerWhat::Close { conn: theirs }));
                }
                self.feed_core(now, Input::Disconnected { conn }, work);
            }
            Output::Close { conn } => {
                // Nobody says that a connection is over that was closed here. What it asked for must not be
                // done later: whoever asked asks again, of another monitor perhaps.
                self.connection_is_over(now, conn, work);
                out.push(Output::Close { conn });
            }
            Output::Propose { data } => self.feed_raft(now, quorum::Input::Propose { data }, work),
            Output::TakeSnapshot { .. } => {
                let (index, state) = (self.core.index(), self.core.snapshot());
                self.feed_raft(now, quorum::Input::Compact { index, state }, work);
            }
            Output::Read { ctx } => self.feed_raft(now, quorum::Input::Read { ctx }, work),
            Output::Forward { conn, tid, msg } => {
                if let (Some(addr), Some(who)) = (self.leader_addr(), self.core.who(conn)) {
                    let msg = msg.into_wire(tid);
                    let what = PeerWhat::Forward { conn: conn.0, who: Box::new(who), msg };
                    out.push(self.peer_output(addr, what));
                }
            }
            Output::WantIds { origin } => {
                if let Some(addr) = self.leader_addr() {
                    out.push(self.peer_output(addr, PeerWhat::WantIds { origin }));
                }
            }
            other => out.push(other),
        }
    }

    fn quorum_output(
        &mut self,
        now: Now,
        output: quorum::Output,
        work: &mut VecDeque<Work>,
        out: &mut Vec<Output>,
    ) {
        match output {
            quorum::Output::Send(m) => self.send(m, out),
            quorum::Output::Write(write) => out.push(Output::Write(write)),
            quorum::Output::Committed { index, data } => {
                self.feed_core(now, Input::Committed { index, change: data }, work);
                self.monmap_changed(now, work);
            }
            quorum::Output::Install { state, .. } => {
                self.feed_core(now, Input::Install { state }, work);
                self.monmap_changed(now, work);
            }
            quorum::Output::ReadReady { ctx } => self.feed_core(now, Input::Fresh { ctx }, work),
            quorum::Output::View(view) => {
                self.served |= view.leader.is_some() && view.member;
                self.disowned = self.disowned.filter(|_| view.leader.is_none());
                self.view = view;
                self.quorum_changed(now, work);
            }
        }
    }

    /// Blank stores make themselves known, for the one that is to found the cluster.
    fn tell_blank(&mut self, now: Now, work: &mut VecDeque<Work>) {
        if !self.raft.is_blank() || self.blank_told.is_some_and(|at| at + BLANK_AGAIN > now.mono) {
            return;
        }
        self.blank_told = Some(now.mono);
        let own = self.own_addr().socket;
        let what = PeerWhat::Blank { name: self.core.settings.name.clone() };
        let others = self.seeds.iter().filter(|addr| addr.socket != own);
        work.extend(others.map(|addr| Work::Core(self.peer_output(*addr, what.clone()))));
        self.found_if_complete(now, work);
    }

    fn found_if_complete(&mut self, now: Now, work: &mut VecDeque<Work>) {
        let Some(founding) = self.founding.as_ref().filter(|_| self.raft.is_blank()) else { return };
        let fresh = |name: &String| founding.blank.get(name).is_some_and(|at| *at + BLANK_KNOWN > now.mono);
        if founding.names.iter().all(fresh) {
            let state = founding.state.clone();
            self.founding = None;
            let mut made = Vec::new();
            self.raft.found(now, state, &mut made);
            work.extend(made.into_iter().map(Work::Quorum));
        }
    }

    fn monmap_changed(&mut self, now: Now, work: &mut VecDeque<Work>) {
        if self.follow_monmap() {
            self.quorum_changed(now, work);
        }
    }

    /// The quorum's members are those that the monitor map names.
    fn follow_monmap(&mut self) -> bool {
        let monmap = std::sync::Arc::clone(&self.core.state().monmap);
        if self.names_of == Some(monmap.epoch) {
            return false;
        }
        let listed = monmap.mons.contains_key(&self.core.settings.name);
        self.membership = match (listed, self.membership) {
            (true, _) => OwnMembership::Listed,
            (false, removed @ OwnMembership::Removed(_)) => removed,
            (false, _) => OwnMembership::Unlisted,
        };
        self.names_of = Some(monmap.epoch);
        self.raft.set_names(monmap.mons.keys().cloned().collect::<BTreeSet<String>>());
        true
    }

    fn quorum_changed(&mut self, now: Now, work: &mut VecDeque<Work>) {
        let view = self.quorum_view();
        if view == self.core.settings.quorum {
            return;
        }
        if !view.same_leadership(&self.core.settings.quorum) {
            self.adopted.clear();
            self.owners.clear();
        }
        self.feed_core(now, Input::Quorum(view), work);
    }

    fn quorum_view(&self) -> QuorumView {
        let monmap = &self.core.state().monmap;
        let rank = |name: &str| monmap.rank(name).and_then(|r| u32::try_from(r).ok());
        let mut members: Vec<u32> = self.view.active.iter().filter_map(|(name, _)| rank(name)).collect();
        members.sort_unstable();
        let differs = self.view.active.iter().filter(|(_, s)| s.skew_ms != 0);
        QuorumView {
            rank: rank(&self.core.settings.name).unwrap_or(u32::MAX),
            leader: self.view.leader.as_deref().and_then(rank),
            monitors: u32::try_from(monmap.mons.len()).unwrap_or(u32::MAX),
            members,
            term: self.view.term,
            calls: self.view.calls,
            skews: differs
                .map(|(name, s)| ClockSkew {
                    name: name.clone(),
                    skew_ms: s.skew_ms,
                    latency_ms: s.latency_ms,
                })
                .collect(),
        }
    }

    fn own_addr(&self) -> EntityAddr {
        self.core.settings.addrs.0.first().copied().unwrap_or_default()
    }

    fn addr_of_name(&self, name: &str) -> Option<EntityAddr> {
        if let Some(moved) = self.core.settings.moved.get(name) {
            return Some(*moved);
        }
        let info = self.core.state().monmap.mons.get(name)?;
        info.addrs.0.iter().find(|a| a.kind == types::AddrKind::Msgr2).or(info.addrs.0.first()).copied()
    }

    fn leader_addr(&self) -> Option<EntityAddr> {
        self.addr_of_name(self.view.leader.as_deref()?)
    }

    fn peer_output(&self, addr: EntityAddr, what: PeerWhat) -> Output {
        let message = PeerMessage { from: self.core.settings.addrs.clone(), what };
        Output::Peer { addr, data: message.to_wire() }
    }

    fn send(&self, m: quorum::Message, out: &mut Vec<Output>) {
        let own = self.own_addr();
        if m.to != MemberId::NONE {
            let named = self.raft.members().name(m.to).and_then(|name| self.addr_of_name(name));
            if let Some(addr) = named.or_else(|| self.routes.get(&m.to).copied()) {
                out.push(self.peer_output(addr, PeerWhat::Quorum(m)));
            }
            return;
        }
        let mapped = self.core.state().monmap.mons.keys().filter_map(|name| self.addr_of_name(name));
        let everybody: BTreeSet<EntityAddr> = mapped.chain(self.seeds.iter().copied()).collect();
        let others = everybody.into_iter().filter(|addr| addr.socket != own.socket);
        out.extend(others.map(|addr| self.peer_output(addr, PeerWhat::Quorum(m.clone()))));
    }

    fn peer(&mut self, now: Now, conn: ConnId, data: Bytes, work: &mut VecDeque<Work>) {
        let is_mon = self.core.sessions.get(&conn).is_some_and(|s| self.core.is_monitors(&s.name));
        let message = PeerMessage::decode(&mut Reader::new(data));
        // Invariant 3.
        let (true, Ok(PeerMessage { from, what })) = (is_mon, message) else {
            self.feed_core(now, Input::Disconnected { conn }, work);
            return work.push_back(Work::Core(Output::Close { conn }));
        };
        let Some(addr) = from.0.first().copied() else { return };
        self.peers.insert(conn, addr);
        match what {
            PeerWhat::Quorum(m) => {
                // A former member may know no address of the leader's, if that was added after its last
                // snapshot.
                let knows = self.core.settings.quorum.is_leader() || self.raft.is_current();
                if knows && self.is_stranger(&m) {
                    work.push_back(Work::Core(self.peer_output(addr, PeerWhat::NotListed)));
                }
                self.routes.insert(m.from, addr);
                self.feed_raft(now, quorum::Input::Message(m), work);
            }
            PeerWhat::Forward { conn: theirs, who, msg } => {
                self.forwarded(now, (addr, theirs), who, &msg, work);
            }
            PeerWhat::Gone { conn: theirs } => {
                if let Some(conn) = self.adopted.remove(&(addr, theirs)) {
                    self.owners.remove(&conn);
                    self.feed_core(now, Input::Disconnected { conn }, work);
                }
            }
            PeerWhat::Reply { conn, msg } => {
                let conn = ConnId(conn);
                if let (true, Ok(decoded)) = (self.core.sessions.contains_key(&conn), Message::decode(&msg)) {
                    work.push_back(Work::Core(Output::Send { conn, tid: msg.header.tid, msg: decoded }));
                }
            }
            PeerWhat::Close { conn } => {
                let conn = ConnId(conn);
                if self.core.sessions.contains_key(&conn) {
                    work.push_back(Work::Core(Output::Close { conn }));
                }
            }
            PeerWhat::WantIds { origin } => self.feed_core(now, Input::WantIds { origin }, work),
            PeerWhat::Blank { name } => {
                if let Some(founding) = &mut self.founding {
                    founding.blank.insert(name, now.mono);
                }
                self.found_if_complete(now, work);
            }
            // One with a blank store waits to be added.
            PeerWhat::NotListed => {
                let removed = matches!(self.membership, OwnMembership::Removed(_));
                if !removed && !self.raft.is_blank() && self.view.leader.is_none() {
                    let since = *self.disowned.get_or_insert(now.mono);
                    if now.mono >= since + DISOWNED_LIMIT {
                        self.membership = OwnMembership::Removed(now.mono);
                    }
                }
            }
        }
    }

    /// Whether somebody takes itself for a member, or wants to be one, whom the others do not know.
    fn is_stranger(&self, m: &quorum::Message) -> bool {
        match &m.body {
            quorum::Body::Join { name } => !self.core.state().monmap.mons.contains_key(name),
            quorum::Body::PreVote { .. } => !self.raft.members().peers.contains_key(&m.from),
            _ => false,
        }
    }

    /// A request of a follower's client.
    fn forwarded(
        &mut self,
        now: Now,
        key: (EntityAddr, u64),
        who: Box<Who>,
        msg: &messages::wire::WireMessage,
        work: &mut VecDeque<Work>,
    ) {
        let message = Message::decode(msg);
        let (true, Ok(message)) = (self.core.settings.quorum.is_leader(), message) else {
            let close = self.peer_output(key.0, PeerWhat::Close { conn: key.1 });
            return work.push_back(Work::Core(close));
        };
        let conn = match self.adopted.get(&key) {
            Some(conn) => *conn,
            None => {
                self.last_adopted += 1;
                let conn = ConnId(self.last_adopted);
                self.adopted.insert(key, conn);
                self.owners.insert(conn, key);
                conn
            }
        };
        // Its capabilities or addresses may have changed since.
        self.feed_core(now, Input::Adopt { conn, who }, work);
        let bytes = msg.payload_len();
        self.feed_core(now, Input::Message { conn, header: msg.header, msg: message, bytes }, work);
    }

    /// The leader forgets what it knows of one of our clients.
    fn client_gone(&mut self, conn: ConnId, work: &mut VecDeque<Work>) {
        let forwarded = self.core.sessions.get(&conn).is_some_and(|s| s.forwarded);
        if let Some(addr) = self.leader_addr().filter(|_| forwarded) {
            work.push_back(Work::Core(self.peer_output(addr, PeerWhat::Gone { conn: conn.0 })));
        }
    }

    fn peer_lost(&mut self, now: Now, addr: EntityAddr, work: &mut VecDeque<Work>) {
        if self.leader_addr() == Some(addr) {
            let mut made = Vec::new();
            self.core.forget_forwarded(&mut made);
            work.extend(made.into_iter().map(Work::Core));
        }
        let lost: Vec<(u64, ConnId)> = self
            .adopted
            .range((addr, 0)..=(addr, u64::MAX))
            .map(|((_, theirs), conn)| (*theirs, *conn))
            .collect();
        for (theirs, conn) in lost {
            self.adopted.remove(&(addr, theirs));
            self.owners.remove(&conn);
            self.feed_core(now, Input::Disconnected { conn }, work);
        }
    }
}

/// Election timeouts need no secrets: a generator from one random number.
struct OwnEntropy(u64);

impl Entropy for OwnEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        let mut seeded = types::SeededEntropy(self.0);
        seeded.fill(out);
        self.0 = seeded.0;
    }
}
