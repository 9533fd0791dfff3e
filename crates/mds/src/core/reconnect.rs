//! After a failover: clients tell what they have, and what was answered but not safe is done again.
//!
//! A capability that a client claims is taken if it had a session, if the inode exists, and as far as no
//! other client claims what contradicts it.
//!
//! Source: Server::handle_client_reconnect, Server::reconnect_tick, MDCache::rejoin_gather_finish,
//! MDCache::try_reconnect_cap.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codec::Decode;
use maps::MdsState;
use messages::fs::{
    CapDrop, CapReconnect, Caps, FileLocks, MClientCapRelease, MClientCaps, MClientReconnect, MClientSession,
    SessionOp,
};
use types::{GlobalId, Ino};

use super::cap::Cap;
use super::flush::writable;
use super::hold::conflicting;
use super::realm::View;
use super::request::Stop;
use super::server::Server;
use super::session::State;

/// Words that wait until the rank serves, of all clients.
pub(crate) const MAX_LATER: usize = 65_536;
/// Capabilities that one client may claim.
const MAX_CLAIMS: usize = 1 << 21;

/// Messages of one client that has the map before the rank has it.
const MAX_EARLY: usize = 64;

/// What a client said before the rank could listen.
#[derive(Debug)]
pub(crate) enum Later {
    Caps(u64, Box<MClientCaps>),
    Release(MClientCapRelease),
    Session(Box<MClientSession>),
}

#[derive(Debug, Default)]
pub(crate) struct Reconnect {
    pub is_open: bool,
    /// What clients said that heard of the rank's state before the rank did.
    early: Vec<(GlobalId, MClientReconnect)>,
    /// Clients that have not come yet.
    awaited: BTreeSet<GlobalId>,
    deadline: Duration,
    /// Clients that have come.
    pub came: BTreeSet<GlobalId>,
    /// Claims by inode and client.
    claims: BTreeMap<Ino, BTreeMap<GlobalId, CapReconnect>>,
    /// Claims of inodes that do not exist: a request that is done again may make them.
    missing: BTreeMap<Ino, BTreeMap<GlobalId, CapReconnect>>,
    counts: BTreeMap<GlobalId, usize>,
    /// What clients changed and flush while they reconnect.
    pub dirty: BTreeMap<(GlobalId, Ino), Caps>,
    pub later: Vec<(GlobalId, Later)>,
    pub drops: Vec<(GlobalId, Vec<CapDrop>)>,
    /// The realms that clients know, and how new.
    known_realms: BTreeMap<(GlobalId, Ino), u64>,
    /// Realms that a client is to hear of, with what is in them and was elsewhere.
    pub realms_due: BTreeMap<GlobalId, BTreeMap<Ino, Vec<u64>>>,
    /// Requests that are done again.
    pub replays: BTreeSet<u64>,
    /// Clients that were shut out before the journal could take it.
    pub killed: BTreeSet<GlobalId>,
}

impl Reconnect {
    /// A session is over.
    pub fn gone(&mut self, client: GlobalId) {
        self.awaited.remove(&client);
        self.came.remove(&client);
        self.claims.values_mut().for_each(|by| drop(by.remove(&client)));
        self.missing.values_mut().for_each(|by| drop(by.remove(&client)));
        self.later.retain(|(c, _)| *c != client);
        self.early.retain(|(c, _)| *c != client);
        self.drops.retain(|(c, _)| *c != client);
        self.known_realms.retain(|(c, _), _| *c != client);
        self.realms_due.remove(&client);
    }
}

impl Server {
    pub(crate) fn begin_reconnect(&mut self) {
        let now = self.now.mono;
        self.recon.is_open = true;
        self.recon.deadline = now + self.settings.reconnect_timeout;
        for (client, session) in &mut self.sessions {
            if session.state == State::Open {
                session.renewed = now;
                self.recon.awaited.insert(*client);
            }
        }
        for (client, m) in std::mem::take(&mut self.recon.early) {
            self.on_reconnect(client, m);
        }
        self.reconnect_step();
    }

    pub(crate) fn on_reconnect(&mut self, client: GlobalId, m: MClientReconnect) {
        let is_awaited = self.recon.is_open && self.recon.awaited.contains(&client);
        let has_session = self.sessions.get(&client).is_some_and(|s| s.state == State::Open);
        if has_session && self.comes_early(client, &m) {
            return self.recon.early.push((client, m));
        }
        if self.state != MdsState::RECONNECT || !is_awaited || !has_session {
            // It comes too late, or never had a session: what it has is void.
            let m = MClientSession { op: SessionOp::CLOSE, ..MClientSession::default() };
            return self.tell(client, 0, m.into());
        }
        let count = self.recon.counts.entry(client).or_default();
        *count += m.caps.len();
        *count += m.realms.len();
        if *count > MAX_CLAIMS {
            return self.evict(client, "it claims too many capabilities");
        }
        let known = m.realms.iter().map(|r| ((client, r.ino), r.seq));
        self.recon.known_realms.extend(known);
        for (ino, claim) in m.caps {
            self.recon.claims.entry(ino).or_default().insert(client, claim);
        }
        if let Some(session) = self.sessions.get_mut(&client) {
            session.renewed = self.now.mono;
        }
        if m.more {
            return;
        }
        self.recon.awaited.remove(&client);
        self.recon.came.insert(client);
        self.old_leases_until = self.now.mono + self.settings.lease;
        self.tell_open(client);
        self.reconnect_step();
    }

    /// The rank has asked for the state in which it listens, and the client heard first that it has it.
    fn comes_early(&self, client: GlobalId, m: &MClientReconnect) -> bool {
        let asked = self.wanted == MdsState::RECONNECT && self.state != MdsState::RECONNECT;
        let of_client = self.recon.early.iter().filter(|(c, _)| *c == client);
        let (messages, claims) = of_client.fold((0, 0), |(n, claims), (_, m)| (n + 1, claims + m.caps.len()));
        asked && messages < MAX_EARLY && claims + m.caps.len() <= MAX_CLAIMS
    }

    pub(crate) fn reconnect_step(&mut self) {
        if self.state == MdsState::RECONNECT && self.recon.awaited.is_empty() {
            self.want_state(MdsState::REJOIN);
        }
    }

    /// Clients that are late lose their sessions. Source: mds_reconnect_timeout.
    pub(crate) fn reconnect_tick(&mut self) {
        if self.state != MdsState::RECONNECT || self.now.mono < self.recon.deadline {
            return;
        }
        let late: Vec<GlobalId> = self.recon.awaited.iter().copied().collect();
        for client in late {
            self.recon.awaited.remove(&client);
            self.evict(client, "it did not reconnect in time");
        }
        self.reconnect_step();
    }

    /// Reads the inodes that clients claim, then gives them what they claim.
    pub(crate) fn rejoin_step(&mut self) {
        if self.wanted != MdsState::REJOIN {
            return;
        }
        let claimed: Vec<Ino> = self.recon.claims.keys().copied().collect();
        let mut waits = 0;
        for ino in claimed {
            if waits >= MAX_READS {
                break;
            }
            match self.claim_ready(ino) {
                Err(Stop::Wait(_)) => waits += 1,
                Ok(()) => self.take_claims(ino),
                Err(Stop::Fail(_) | Stop::NoEntry(..)) => {
                    if let Some(claims) = self.recon.claims.remove(&ino) {
                        self.recon.missing.insert(ino, claims);
                    }
                }
            }
        }
        if waits == 0 && self.recon.claims.is_empty() {
            let replays = !self.recon.replays.is_empty();
            self.want_state(if replays { MdsState::CLIENT_REPLAY } else { MdsState::ACTIVE });
        }
    }

    /// By the name that a client tells, or by the inode's backtrace.
    fn claim_ready(&mut self, ino: Ino) -> Result<(), Stop> {
        if self.cache.get(ino).is_some() {
            return Ok(());
        }
        let claim = self.recon.claims.get(&ino).and_then(|by| by.values().next()).cloned();
        if let Some(claim) = claim.filter(|c| !c.path.is_empty() && !c.path.contains(&b'/')) {
            if self.cache.get(claim.path_base).is_some_and(|i| i.is_dir()) {
                self.look_up(claim.path_base, &claim.path, None)?;
                if self.cache.get(ino).is_some() {
                    return Ok(());
                }
            }
        }
        self.ensure_inode(ino)
    }

    fn take_claims(&mut self, ino: Ino) {
        for (client, claim) in self.recon.claims.remove(&ino).unwrap_or_default() {
            self.take_claim(client, ino, &claim);
        }
    }

    /// A request that is done again made an inode: its client has what it claims. False: it claims nothing.
    pub(crate) fn take_missing(&mut self, client: GlobalId, ino: Ino) -> bool {
        let claim = self.recon.missing.get_mut(&ino).and_then(|by| by.remove(&client));
        if let Some(claim) = &claim {
            self.take_claim(client, ino, claim);
        }
        claim.is_some()
    }

    /// All that could make a missing inode is done.
    pub(crate) fn end_claims(&mut self) {
        for (ino, claims) in std::mem::take(&mut self.recon.missing) {
            if self.cache.get(ino).is_some() {
                claims.iter().for_each(|(client, claim)| self.take_claim(*client, ino, claim));
            }
        }
    }

    fn take_claim(&mut self, client: GlobalId, ino: Ino, claim: &CapReconnect) {
        let is_open = self.sessions.get(&client).is_some_and(|s| s.state == State::Open);
        if !is_open || !self.may_reach(client, ino) {
            return;
        }
        let dirty = self.recon.dirty.get(&(client, ino)).copied().unwrap_or(Caps::NONE);
        let Some(inode) = self.cache.get_mut(ino) else { return };
        let held = inode.caps.iter().filter(|(c, _)| **c != client);
        let held = held.fold(Caps::NONE, |all, (_, cap)| all | cap.issued());
        let possible = possible(inode.is_dir());
        let issued = (claim.issued | dirty) & possible;
        let issued = issued.without(conflicting(held)) | Caps::PIN;
        let cap = inode.caps.entry(client).or_insert_with(|| Cap::new(claim.cap_id));
        cap.id = claim.cap_id;
        cap.reconnected(issued, claim.wanted & possible);
        self.last_cap = self.last_cap.max(claim.cap_id.min(u64::MAX >> 1));
        self.claim_realm(client, ino, claim, issued);
        let has_invented = !(claim.issued & possible).without(issued).is_empty();
        if let Some(session) = self.sessions.get_mut(&client) {
            session.caps.insert(ino);
        }
        if has_invented {
            // It believes to have more than it can have: it hears what it has.
            self.told_less.insert((client, ino));
        }
        if let Ok(locks) = FileLocks::from_bytes(claim.flock.clone()) {
            self.claim_locks(client, ino, &locks);
        }
    }

    /// What a client may have changed before snapshots it tells yet, also before those that it hears of now.
    /// Source: MDCache::open_snaprealms, rebuild_need_snapflush.
    fn claim_realm(&mut self, client: GlobalId, ino: Ino, claim: &CapReconnect, issued: Caps) {
        let realm = self.realm_of(ino);
        let seq = self.snaps_of(ino, View::Told).seq.0;
        let known = self.recon.known_realms.get(&(client, claim.realm)).copied().unwrap_or(0);
        let is_moved = claim.realm != realm;
        if is_moved || known < seq {
            let due = self.recon.realms_due.entry(client).or_default().entry(realm).or_default();
            due.extend(is_moved.then_some(ino.0));
        }
        let follows = match claim.snap_follows {
            0 if known < seq => known,
            0 => return,
            follows => follows,
        };
        if let Some(cap) = self.cache.get_mut(ino).and_then(|i| i.caps.get_mut(&client)) {
            (cap.owed, cap.follows) = (writable(issued), follows);
        }
    }

    /// What clients said meanwhile is heard now.
    pub(crate) fn take_later(&mut self) {
        for (client, ino) in std::mem::take(&mut self.told_less) {
            if let Some(cap) = self.cache.get_mut(ino).and_then(|i| i.caps.get_mut(&client)) {
                let pending = cap.pending();
                cap.issue(pending, self.now.mono);
                self.tell_cap(client, ino, messages::fs::CapOp::REVOKE);
            }
        }
        for (client, later) in std::mem::take(&mut self.recon.later) {
            match later {
                Later::Caps(tid, m) => self.on_caps(client, tid, *m),
                Later::Release(m) => self.on_cap_release(client, &m),
                Later::Session(m) => self.on_session(client, *m),
            }
        }
    }

    /// Requests that were answered before the failover are done again, in the order of their numbers, before
    /// anything else. Source: MDSRank::clientreplay_start.
    pub(crate) fn begin_replays(&mut self) {
        self.recon.is_open = false;
        self.tell_realms_anew();
        self.take_later();
        self.take_held_drops();
        self.next_replay();
    }

    /// One after the other, for each may need what the one before it made.
    pub(crate) fn next_replay(&mut self) {
        if self.state != MdsState::CLIENT_REPLAY {
            return;
        }
        let Some(id) = self.recon.replays.first().copied() else { return self.replays_done() };
        let Some(request) = self.requests.get_mut(&id) else { return };
        if let Some(wait) = request.wait.take() {
            if let Some(waiting) = self.waits.get_mut(&wait) {
                waiting.remove(&id);
                if waiting.is_empty() {
                    self.waits.remove(&wait);
                }
            }
        }
        self.ready.push_back(id);
    }

    fn replays_done(&mut self) {
        if self.state == MdsState::CLIENT_REPLAY && self.recon.replays.is_empty() {
            self.want_state(MdsState::ACTIVE);
        }
    }
}

/// Inodes that are looked for at once.
const MAX_READS: usize = 256;

/// What a client can have of a folder or of anything else.
fn possible(is_dir: bool) -> Caps {
    match is_dir {
        true => Caps::ALL_SHARED | Caps::ANY_EXCL,
        false => Caps(0xbfff).without(Caps(1 << 1)),
    }
}
