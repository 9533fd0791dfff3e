//! What the monitors' shells do in the simulation: logins, connections among monitors, the log on a device that takes its
//! time; and what must hold in each of them and among all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use cephx::METHOD_NONE;
use messages::{Header, Message};
use monitor::{Input, Member, Monitor, Output};
use quorum::{MemberId, Write};
use types::{AuthName, ConnId, EntityAddr, EntityType, Epoch, GlobalId};

use crate::faults::Trigger;
use crate::history::Hash;
use crate::mon::MonHost;
use crate::mutant::Mutant;
use crate::net::{End, Node, Packet};
use crate::queue::{MICROSECOND, MILLISECOND, SECOND, Time};
use crate::world::{Event, World, addr_of};

/// So many OSD maps within so long mean that somebody runs in circles.
const CHURN_EPOCHS: usize = 500;
const CHURN_TIME: Time = 10 * SECOND;
/// Between two attempts of a monitor to reach another, as in the real shell.
const LINK_RETRY: Time = 100 * MILLISECOND;
/// Invariants of the quorum are checked after every so many inputs.
const CHECK_EVERY: u64 = 61;

/// What was seen of all monitors together.
#[derive(Default)]
pub struct Agreed {
    /// By index of the log: the term and the content that a member took for committed.
    log: BTreeMap<u64, (u64, u64)>,
    /// Who led in each term.
    leaders: BTreeMap<u64, MemberId>,
    /// Each epoch's map as it was first committed.
    epochs: BTreeMap<Epoch, u64>,
    /// Which OSDs the newest of them has up.
    up: BTreeSet<i32>,
    /// And how many PGs of the first pool.
    pgs: u32,
    /// When the last epochs were committed.
    recent: VecDeque<Time>,
    /// Global ids that were given to somebody new.
    given: BTreeSet<u64>,
    inputs: u64,
}

impl Agreed {
    /// How often the leader changed.
    pub fn leaders(&self) -> usize {
        self.leaders.len()
    }

    pub fn commits(&self) -> usize {
        self.log.len()
    }

    /// The newest OSD map that any monitor has committed. No OSD has a newer one, and no disk.
    pub fn newest_map(&self) -> Epoch {
        self.epochs.keys().next_back().copied().unwrap_or_default()
    }
}

impl World {
    /// The monitor that leads, else the one that knows most.
    pub fn monitor(&self) -> Option<&Monitor> {
        let all = || self.mons.iter().filter_map(|m| m.core.as_ref());
        let leader = all().filter(|m| leads(m)).max_by_key(|m| m.raft().term());
        leader.or_else(|| all().max_by_key(|m| m.core().index())).map(Member::core)
    }

    /// Which monitor leads.
    pub fn mon_leader(&self) -> Option<usize> {
        let leading = |m: &usize| self.mons[*m].core.as_ref().is_some_and(leads);
        let term = |m: &usize| self.mons[*m].core.as_ref().map(|c| c.raft().term());
        (0..self.mons.len()).filter(leading).max_by_key(term)
    }

    /// Every monitor runs, votes, is known by its present identity, and follows the same leader; those that
    /// were removed have ended.
    pub fn mons_whole(&self) -> bool {
        let Some(members) =
            self.mon_leader().and_then(|l| self.mons[l].core.as_ref()).map(|m| m.raft().members().clone())
        else {
            return false;
        };
        let count = self.listed_mons().len();
        let votes = |m: &Member| {
            let view = m.core().quorum();
            members.is_voter(m.raft().id()) && view.leader.is_some() && view.members.len() == count
        };
        let is_whole = |host: &MonHost| match host.listed {
            true => host.core.as_ref().is_some_and(votes),
            false => host.core.is_none(),
        };
        members.peers.len() == count && self.mons.iter().all(is_whole)
    }

    pub fn mon_input(&mut self, at: usize, input: Input) {
        let now = self.clock_of(Node::Mon(at));
        let Some(core) = &mut self.mons[at].core else { return };
        let mut out = std::mem::take(&mut self.spare.mon);
        core.handle(now, input, &mut out);
        self.agreed.inputs += 1;
        if self.agreed.inputs % CHECK_EVERY == 0 {
            core.raft().assert_invariants();
        }
        self.check_mon(at);
        for o in out.drain(..) {
            self.mon_output(at, o);
        }
        self.spare.mon = out;
    }

    fn mon_output(&mut self, at: usize, output: Output) {
        match output {
            Output::AuthDone { conn, global_id, .. } => self.let_in(at, conn, global_id),
            Output::AuthMore { conn, .. } | Output::AuthBad { conn, .. } => {
                self.violation(format!("mon.{at} refused a login on {conn}"));
            }
            Output::Send { conn, tid, msg } => self.net.send(self.now, conn, End::Target, tid, msg),
            Output::Close { conn } => self.net.close(self.now, conn, End::Target),
            Output::Write(write) => self.mon_write(at, write),
            Output::Peer { addr, data } => self.send_to_mon(at, addr, data),
            // These stay between the core and its share of the quorum.
            Output::Propose { .. }
            | Output::TakeSnapshot { .. }
            | Output::Read { .. }
            | Output::Forward { .. }
            | Output::WantIds { .. }
            // Of the manager's sessions only those of OSDs are simulated.
            | Output::SendManager { .. } => {}
        }
    }

    // The log.

    fn mon_write(&mut self, at: usize, write: Write) {
        let (seq, life) = (write.seq, self.mons[at].life);
        self.mons[at].writing.push_back(write);
        if self.mon_leader() == Some(at) {
            self.pull(Trigger::MonWrite, Node::Mon(at));
        }
        self.step_of_device(Node::Mon(at));
        let delay = 500 * MICROSECOND + self.rng.below(5 * MILLISECOND);
        if self.scenario.mutant == Some(Mutant::MonForgets) {
            self.plan_in(delay * 40, Event::MonAppended { mon: at, life });
            return self.mon_input(at, Input::Written { seq });
        }
        self.plan_in(delay, Event::MonAppended { mon: at, life });
    }

    pub fn mon_appended(&mut self, at: usize, life: u32) {
        if self.mons[at].life != life || self.mons[at].core.is_none() {
            return;
        }
        if let Some(write) = self.mons[at].writing.pop_front() {
            self.mons[at].disk.write(&write);
            if self.mon_leader() == Some(at) {
                self.pull(Trigger::MonDurable, Node::Mon(at));
            }
            if self.scenario.mutant != Some(Mutant::MonForgets) {
                self.mon_input(at, Input::Written { seq: write.seq });
            }
        }
    }

    // Logins and messages.

    pub fn mon_login(&mut self, at: usize, conn: ConnId, opener: Node) {
        self.net.set_target_life(conn, self.mons[at].life);
        let (kind, name) = match opener {
            Node::Osd(osd) => (EntityType::Osd, osd.to_string()),
            Node::Mgr => (EntityType::Mgr, "x".to_owned()),
            Node::Client(c) => (EntityType::Client, format!("c{c}")),
            Node::Mon(_) => (EntityType::Mon, String::new()),
            Node::Admin => (EntityType::Client, "admin".to_owned()),
            Node::Guest(g) => (EntityType::Client, format!("g{g}")),
        };
        let global_id = self.mon_link(opener).map_or(0, |l| l.global_id);
        let payload = cephx::none_login_request(&AuthName::new(kind, name), GlobalId(global_id));
        let peer_addr = addr_of(opener, self.life(opener)).0[0];
        let request = Input::AuthRequest {
            conn,
            peer_type: kind,
            method: METHOD_NONE,
            preferred_modes: vec![2, 1],
            payload,
            peer_addr,
        };
        self.mon_input(at, request);
    }

    fn let_in(&mut self, at: usize, conn: ConnId, global_id: GlobalId) {
        let Some(opener) = self.net.conn(conn).map(|c| c.nodes[0]) else { return };
        let asked = self.mon_link(opener).map(|l| l.global_id);
        if asked == Some(0) && !self.agreed.given.insert(global_id.0) {
            return self.violation(format!("O7: mon.{at} gave the global id {global_id} twice"));
        }
        self.net.accept(self.now, conn, global_id.0);
        if !self.net.is_wired() {
            self.mon_connected(at, conn, opener, global_id);
        }
    }

    /// The session of somebody who has logged in stands.
    pub fn mon_connected(&mut self, at: usize, conn: ConnId, opener: Node, global_id: GlobalId) {
        let (peer, _, _) = self.name_of(opener);
        let peer = match opener {
            Node::Osd(_) | Node::Mon(_) => peer,
            _ => types::EntityName { num: global_id.0 as i64, ..peer },
        };
        let addrs = addr_of(opener, self.life(opener));
        let features = types::features::PACIFIC;
        self.mon_input(at, Input::Connected { conn, peer, addrs, features });
    }

    pub fn mon_message(&mut self, at: usize, conn: ConnId, tid: u64, msg: Message) {
        let header = Header { tid, ..Header::default() };
        // Messages are not encoded here; no plan brings as many bytes as a share has.
        let bytes = std::mem::size_of::<Message>();
        self.mon_input(at, Input::Message { conn, header, msg, bytes });
    }

    // Other monitors.

    /// Sends to another monitor, connecting first when there is no connection. What cannot be sent is lost, and the core hears
    /// of that.
    fn send_to_mon(&mut self, at: usize, addr: EntityAddr, data: Bytes) {
        let Some(to) = (0..self.mons.len()).find(|m| addr_of(Node::Mon(*m), 0).0.contains(&addr)) else {
            return;
        };
        let conn = match self.mons[at].links.get(&to) {
            Some(conn) => *conn,
            None => {
                if self.mons[at].tried.get(&to).is_some_and(|t| t + LINK_RETRY > self.now) {
                    return self.mon_input(at, Input::PeerLost { addr });
                }
                self.mons[at].tried.insert(to, self.now);
                let conn = self.connect(Node::Mon(at), Node::Mon(to), 0, true);
                self.mons[at].links.insert(to, conn);
                conn
            }
        };
        self.net.send_packet(self.now, conn, End::Opener, Packet::Peer(data));
    }

    /// A connection to another monitor is over.
    pub fn mon_link_gone(&mut self, at: usize, conn: ConnId) {
        let host = &mut self.mons[at];
        let Some(to) = host.links.iter().find(|(_, c)| **c == conn).map(|(to, _)| *to) else { return };
        host.links.remove(&to);
        if let Some(addr) = addr_of(Node::Mon(to), 0).0.first().copied() {
            self.mon_input(at, Input::PeerLost { addr });
        }
    }

    // What must hold.

    fn check_mon(&mut self, at: usize) {
        let host = &mut self.mons[at];
        let Some(core) = &host.core else { return };
        let (raft, from) = (core.raft(), host.seen);
        if raft.is_leader() {
            let (term, id) = (raft.term(), raft.id());
            if *self.agreed.leaders.entry(term).or_insert(id) != id {
                return self.violation(format!("O7: the monitors' term {term} has two leaders"));
            }
        }
        let commit = raft.commit_index();
        if commit == from {
            return;
        }
        host.seen = commit;
        for index in from + 1..=commit {
            // What a snapshot brought is judged by its maps.
            let Some(entry) = raft.entry(index) else { continue };
            let mut hash = Hash::default();
            hash.bytes(&entry.payload.data());
            let now = (entry.term, hash.0);
            if *self.agreed.log.entry(index).or_insert(now) != now {
                return self.violation(format!("O7: entry {index} of the monitors' log was committed twice"));
            }
        }
        self.check_epochs(at);
    }

    /// O7: an epoch that was committed never changes.
    fn check_epochs(&mut self, at: usize) {
        let Some(core) = self.mons[at].core.as_ref().map(Member::core) else { return };
        let newest = core.state().osds.newest();
        if newest == Epoch(0) || self.mons[at].epoch == newest {
            return;
        }
        let Some(full) = core.state().osds.full(newest) else { return };
        // One that has just begun anew applies its log step by step.
        let caught_up = self.mons.len() == 1
            && self.mons[at].core.as_ref().is_some_and(|m| m.raft().commit_index() == m.raft().last_index());
        self.mons[at].epoch = newest;
        let last = self.agreed.epochs.keys().next_back().copied();
        let mut hash = Hash::default();
        hash.bytes(&full);
        let fresh = !self.agreed.epochs.contains_key(&newest);
        let known = *self.agreed.epochs.entry(newest).or_insert(hash.0);
        if known != hash.0 {
            self.violation(format!("O7: OSD map {newest} was committed twice with different content"));
        } else if caught_up && last.is_some_and(|l| l > newest) {
            self.violation(format!("O7: the newest OSD map is {newest} after {last:?}"));
        } else if fresh && last.is_none_or(|l| l < newest) {
            self.check_churn();
            self.see_changes(at);
            self.pull(Trigger::NewMap, Node::Mon(at));
        }
    }

    /// What the newest map has otherwise than the one before: OSDs up, and the number of PGs.
    fn see_changes(&mut self, at: usize) {
        let Some(core) = self.mons[at].core.as_ref().map(Member::core) else { return };
        let map = core.state().osdmap();
        let up: BTreeSet<i32> = (0..self.scenario.options.osds).filter(|osd| map.is_up(*osd)).collect();
        let gone: Vec<i32> = self.agreed.up.difference(&up).copied().collect();
        self.agreed.up = up;
        let pgs = map.pools.values().next().map_or(0, |p| p.pg_num);
        let was = std::mem::replace(&mut self.agreed.pgs, pgs);
        let merged = was.saturating_sub(pgs);
        let split = if was > 0 { pgs.saturating_sub(was) } else { 0 };
        *self.happened.entry("PGs split").or_default() += u64::from(split);
        *self.happened.entry("PGs merged").or_default() += u64::from(merged);
        for osd in gone {
            let alive = self.is_alive(Node::Osd(osd));
            self.happened(if alive { "marked down alive" } else { "marked down dead" });
        }
    }

    /// O5: daemons that ask for one change after the other, without end, bring nothing to rest.
    fn check_churn(&mut self) {
        let recent = &mut self.agreed.recent;
        recent.push_back(self.now);
        if recent.len() <= CHURN_EPOCHS {
            return;
        }
        if recent.pop_front().is_some_and(|first| self.now - first < CHURN_TIME) {
            let faults = self.faults;
            self.violation(format!("O5: {CHURN_EPOCHS} OSD maps within 10 s (after {faults} faults)"));
        }
    }
}

fn leads(m: &Member) -> bool {
    m.core().quorum().is_leader()
}
