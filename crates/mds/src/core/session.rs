//! Sessions of clients: opened and closed in the journal, renewed, asked to give back, ended.
//!
//! ```text
//!            REQUEST_OPEN          event is safe
//! Closed ────────────────> Opening ────────────> Open <──RENEWCAPS── Stale
//!    ^                                            │ │ ──session_timeout──> ^
//!    │ event is safe      REQUEST_CLOSE           │ └── evict, autoclose ──> Killing
//!    └──────────── Closing <──────────────────────┘                              │
//!    └───────────────────────── blocklisted, event is safe <─────────────────────┘
//! ```
//!
//! Source: Server::handle_client_session, Server::find_idle_sessions, src/mds/SessionMap.cc.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use cephx::caps::MdsCap;
use messages::fs::{Caps, MClientReclaim, MClientReclaimReply, MClientSession, SessionOp, features as f};
use types::{ConnId, Epoch, Errno, FeatureBits, GlobalId, Ino};

use super::io::{Effect, Peer};
use super::request::Wait;
use super::server::{Dirty, Server, Then};
use crate::format::{ClientMetadata, LogEvent, SessionEvent, SessionInfo};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// A connection without a session.
    Closed,
    Opening,
    Open,
    /// It did not renew: what it has may be taken from it.
    Stale,
    Closing,
    /// It is being shut out of the cluster.
    Killing,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub conn: Option<ConnId>,
    pub state: State,
    pub info: SessionInfo,
    pub peer_caps: MdsCap,
    /// When the client last renewed.
    pub renewed: Duration,
    /// Messages that the client has to have seen when it closes.
    pub pushes: u64,
    /// Requests that wait or run.
    pub requests: BTreeSet<u64>,
    /// Those that were answered before they were safe.
    pub unsafe_requests: BTreeSet<u64>,
    /// Inodes of which it has a capability.
    pub caps: BTreeSet<Ino>,
    /// The event since which its entry of the table is old.
    pub dirty_since: Option<u64>,
    /// The end of a session that is killed is in the journal.
    pub is_ending: bool,
    /// It was asked to give back at this time, when it had so many.
    pub recalled: Option<(Duration, usize)>,
}

impl Session {
    pub fn new(info: SessionInfo, state: State) -> Self {
        Self {
            conn: None,
            state,
            info,
            peer_caps: MdsCap::default(),
            renewed: Duration::ZERO,
            pushes: 0,
            requests: BTreeSet::new(),
            unsafe_requests: BTreeSet::new(),
            caps: BTreeSet::new(),
            dirty_since: None,
            is_ending: false,
            recalled: None,
        }
    }

    /// Whether requests and words about capabilities are taken from it.
    pub fn is_usable(&self) -> bool {
        matches!(self.state, State::Opening | State::Open | State::Stale)
    }

    pub fn is_stale(&self) -> bool {
        matches!(self.state, State::Stale | State::Killing | State::Closing | State::Closed)
    }

    pub fn has(&self, feature: usize) -> bool {
        self.info.metadata.features.contains(feature)
    }

    /// The client knows the answers of all requests before `oldest`.
    pub fn trim_completed(&mut self, oldest: u64) {
        if self.info.completed_requests.keys().next().is_some_and(|tid| *tid < oldest) {
            self.info.completed_requests = self.info.completed_requests.split_off(&oldest);
        }
    }
}

/// What this server can do. Asynchronous creation is understood, but no numbers are set aside for it.
fn our_features() -> FeatureBits {
    let mut bits = FeatureBits::from([0, 1, 2, 3, 4, f::JEWEL, f::KRAKEN, f::LUMINOUS, f::MIMIC]);
    let later = [
        f::REPLY_ENCODING,
        f::LAZY_CAP_WANTED,
        f::MULTI_RECONNECT,
        f::DELEG_INO,
        f::METRIC_COLLECT,
        f::ALTERNATE_NAME,
        f::OP_GETVXATTR,
        f::RETRY_FWD_32BITS,
    ];
    later.into_iter().for_each(|bit| bits.insert(bit));
    bits
}

/// What a client says of itself, in bytes.
const MAX_METADATA: usize = 65_536;

impl Server {
    pub(crate) fn on_connected(&mut self, conn: ConnId, peer: Peer) {
        let client = peer.client;
        let inst = peer.inst();
        let info = SessionInfo { client: inst.clone(), auth_name: peer.name, ..SessionInfo::default() };
        let session = self.sessions.entry(client).or_insert_with(|| Session::new(info, State::Closed));
        if let Some(old) = session.conn.replace(conn) {
            self.conns.remove(&old);
            self.out.push(Effect::Close(old));
        }
        session.info.client = inst;
        session.peer_caps = peer.caps;
        self.conns.insert(conn, client);
    }

    /// The client may come back with a connection of its own until its session is closed for silence.
    pub(crate) fn on_gone(&mut self, conn: ConnId) {
        let Some(client) = self.conns.remove(&conn) else { return };
        let Some(session) = self.sessions.get_mut(&client).filter(|s| s.conn == Some(conn)) else { return };
        session.conn = None;
        if session.state == State::Closed {
            self.sessions.remove(&client);
        }
    }

    fn is_fs_capable(&self, client: GlobalId) -> bool {
        let Some(session) = self.sessions.get(&client) else { return false };
        let fs = &self.map.fs_name;
        session.peer_caps.grants.iter().any(|g| {
            g.fs_name.as_ref().is_none_or(|name| name == fs)
                && g.perms.read
                && g.is_for(&session.info.client.addr)
        })
    }

    pub(crate) fn on_session(&mut self, client: GlobalId, m: MClientSession) {
        if !self.is_fs_capable(client) {
            let why = format!("client doesn't have caps for FS \"{}\"", self.map.fs_name);
            return self.reject(client, &why);
        }
        let later = match m.op {
            SessionOp::REQUEST_RENEWCAPS => false,
            SessionOp::REQUEST_CLOSE => !self.is_serving(),
            _ => !self.takes_caps(),
        };
        if later {
            if self.recon.later.len() < super::reconnect::MAX_LATER {
                self.recon.later.push((client, super::reconnect::Later::Session(Box::new(m))));
            }
            return;
        }
        match m.op {
            SessionOp::REQUEST_OPEN => self.open_session(client, m),
            SessionOp::REQUEST_RENEWCAPS => self.renew_session(client, m.seq),
            SessionOp::REQUEST_CLOSE => self.close_session(client, m.seq),
            SessionOp::REQUEST_FLUSH_MDLOG => self.hurry(self.last_seq),
            _ => {}
        }
    }

    fn reject(&mut self, client: GlobalId, why: &str) {
        let metadata = BTreeMap::from([("error_string".to_owned(), why.to_owned())]);
        let m = MClientSession { op: SessionOp::REJECT, metadata, ..MClientSession::default() };
        self.tell(client, 0, m.into());
    }

    fn open_session(&mut self, client: GlobalId, m: MClientSession) {
        let Some(session) = self.sessions.get(&client) else { return };
        if session.state != State::Closed || self.state == maps::MdsState::STOPPING {
            return;
        }
        if self.osd.blocklisted.contains(&session.info.client.addr) {
            // The kernel's client looks for this word.
            return self.reject(client, "blocklisted (blacklisted)");
        }
        let missing =
            |bit: &usize| self.map.required_client_features.contains(*bit) && !m.features.contains(*bit);
        if (0..64).any(|bit| missing(&bit)) || !m.features.contains(f::REPLY_ENCODING) {
            return self.reject(client, "missing required features");
        }
        if let Some(root) = m.metadata.get("root") {
            let path = root.strip_prefix('/');
            let is_good = path.is_some_and(|p| session.peer_caps.grants.iter().any(|g| g.covers(p)));
            if !is_good {
                return self.reject(client, &format!("non-allowable root '{root}'"));
            }
        }
        let same = |s: &Session| {
            m.metadata.get("uuid").is_some_and(|uuid| {
                s.info.metadata.values.get(&b"uuid"[..]).is_some_and(|u| u.as_ref() == uuid.as_bytes())
            })
        };
        if self.sessions.iter().any(|(c, s)| *c != client && s.state != State::Closed && same(s)) {
            return self.reject(client, "duplicated session uuid");
        }
        let bytes: usize = m.metadata.iter().map(|(k, v)| k.len() + v.len()).sum();
        if bytes > MAX_METADATA {
            return self.reject(client, "too much metadata");
        }
        let values = m
            .metadata
            .into_iter()
            .map(|(k, v)| (Bytes::from(k.into_bytes()), Bytes::from(v.into_bytes())))
            .collect();
        let metadata = ClientMetadata { values, features: m.features, metrics: m.metrics };
        let now = self.now.mono;
        if let Some(session) = self.sessions.get_mut(&client) {
            session.info.metadata = metadata;
            session.state = State::Opening;
            session.renewed = now;
            session.pushes = 0;
        }
        let seq = self.journal_session(client, true);
        self.when_safe(seq, Then::SessionOpened(client));
    }

    /// A session begins or ends, in the journal.
    fn journal_session(&mut self, client: GlobalId, open: bool) -> u64 {
        let seq = self.next_seq();
        self.session_version += 1;
        let Some(session) = self.sessions.get_mut(&client) else { return seq };
        session.dirty_since.get_or_insert(seq);
        let event = SessionEvent {
            stamp: self.now.wall,
            client: session.info.client.clone(),
            open,
            session_map_version: self.session_version,
            metadata: if open { session.info.metadata.clone() } else { ClientMetadata::default() },
            ..SessionEvent::default()
        };
        let inos = std::mem::take(&mut session.info.prealloc_inos);
        let event = if open || inos.is_empty() {
            if open {
                session.info.prealloc_inos = inos;
            }
            event
        } else {
            // Another server set them aside for it.
            let ino_table_version = self.disk.release_inos(&inos);
            self.mark_dirty(Dirty::InoTable, seq);
            SessionEvent { inos, ino_table_version, ..event }
        };
        self.mark_dirty(Dirty::Sessions, seq);
        self.append(LogEvent::Session(event));
        seq
    }

    pub(crate) fn session_opened(&mut self, client: GlobalId) {
        let Some(session) = self.sessions.get_mut(&client).filter(|s| s.state == State::Opening) else {
            return;
        };
        session.state = State::Open;
        self.tell_open(client);
    }

    pub(crate) fn tell_open(&mut self, client: GlobalId) {
        let Some(session) = self.sessions.get(&client) else { return };
        let features = if session.has(f::MIMIC) { our_features() } else { FeatureBits::default() };
        let m = MClientSession { op: SessionOp::OPEN, features, ..MClientSession::default() };
        self.tell(client, 0, m.into());
    }

    fn renew_session(&mut self, client: GlobalId, seq: u64) {
        let now = self.now.mono;
        let Some(session) = self.sessions.get_mut(&client) else { return };
        if !matches!(session.state, State::Open | State::Stale) {
            return;
        }
        session.renewed = now;
        let was_stale = session.state == State::Stale;
        session.state = State::Open;
        if was_stale {
            self.resume(client);
        }
        let m = MClientSession { op: SessionOp::RENEWCAPS, seq, ..MClientSession::default() };
        self.tell(client, 0, m.into());
    }

    /// A client that was in doubt is told again what it has. Source: Locker::resume_stale_caps.
    fn resume(&mut self, client: GlobalId) {
        let inos: Vec<Ino> =
            self.sessions.get(&client).map(|s| s.caps.iter().copied().collect()).unwrap_or_default();
        for ino in inos {
            if let Some(cap) = self.cache.get_mut(ino).and_then(|i| i.caps.get_mut(&client)) {
                let pending = cap.pending();
                cap.issue(pending, self.now.mono);
                self.tell_cap(client, ino, messages::fs::CapOp::GRANT);
            }
            self.stirred.insert(ino);
        }
    }

    fn close_session(&mut self, client: GlobalId, seq: u64) {
        let Some(session) = self.sessions.get(&client).filter(|s| s.is_usable()) else { return };
        // What was sent to it meanwhile it has to see first, and asks again.
        if seq != session.pushes {
            return;
        }
        self.end_session(client, State::Closing);
    }

    fn end_session(&mut self, client: GlobalId, state: State) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        session.state = state;
        let ids: Vec<u64> = self.requests.values().filter(|r| r.client == client).map(|r| r.id).collect();
        ids.into_iter().for_each(|id| self.drop_request(id));
        let seq = self.journal_session(client, false);
        self.when_safe(seq, Then::SessionClosed(client));
    }

    /// The session's end is safe: nothing is left of it.
    pub(crate) fn session_closed(&mut self, client: GlobalId) {
        let Some(session) = self.sessions.get(&client) else { return };
        let was_killed = session.state == State::Killing;
        let inos: Vec<Ino> = session.caps.iter().copied().collect();
        let may_have_written = was_killed;
        for ino in inos {
            self.drop_cap(client, ino, may_have_written);
        }
        self.drop_leases_of(client);
        let m = MClientSession { op: SessionOp::CLOSE, ..MClientSession::default() };
        self.tell(client, 0, m.into());
        let Some(session) = self.sessions.remove(&client) else { return };
        let name = session.info.client.name;
        self.disk.closed_sessions.insert(name);
        if let Some(conn) = session.conn {
            let info = SessionInfo {
                client: session.info.client.clone(),
                auth_name: session.info.auth_name,
                ..SessionInfo::default()
            };
            let mut fresh = Session::new(info, State::Closed);
            (fresh.conn, fresh.peer_caps) = (Some(conn), session.peer_caps);
            if was_killed {
                self.conns.remove(&conn);
                self.out.push(Effect::Close(conn));
            } else {
                self.sessions.insert(client, fresh);
            }
        }
        self.recon.gone(client);
        self.boot_step();
    }

    /// What a client that is gone had is void. If it may have written, nobody knows the file's size but the
    /// objects.
    fn drop_cap(&mut self, client: GlobalId, ino: Ino, may_have_written: bool) {
        if let Some(inode) = self.cache.get_mut(ino) {
            let wrote = inode.caps.get(&client).is_some_and(|c| c.issued().intersects(Caps::ANY_FILE_WR));
            let has_room = inode.store.inode.client_ranges.contains_key(&client);
            if may_have_written && wrote && has_room && inode.is_file() {
                inode.needs_recover = true;
            }
            if let Some(locks) = inode.locks.as_mut() {
                locks.remove_client(client);
                if locks.is_empty() {
                    inode.locks = None;
                }
                self.wake(&Wait::FileLock(ino));
            }
        }
        self.remove_cap(client, ino);
        self.recover_file(ino);
    }

    fn drop_leases_of(&mut self, client: GlobalId) {
        let mut freed = Vec::new();
        for (frag, dir) in &mut self.cache.dirs {
            for (key, dentry) in &mut dir.entries {
                if dentry.leases.remove(&client).is_some() {
                    freed.push(Wait::Lease(*frag, key.clone()));
                }
            }
        }
        freed.iter().for_each(|w| self.wake(w));
    }

    /// Ends a session whether its client wants it or not: first the client is shut out, so that it writes no
    /// object any more. Source: MDSRank::evict_client.
    pub(crate) fn evict(&mut self, client: GlobalId, why: &str) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        if matches!(session.state, State::Closed | State::Killing | State::Closing) {
            return;
        }
        session.state = State::Killing;
        let addr = session.info.client.addr;
        let inos: Vec<Ino> = session.caps.iter().copied().collect();
        self.stirred.extend(inos);
        self.out.push(Effect::Warn(format!("Evicting client session {client} ({addr}): {why}")));
        self.out.push(Effect::Blocklist(client, addr));
    }

    pub(crate) fn on_blocklisted(&mut self, client: GlobalId, epoch: Epoch) {
        self.raise_barrier(epoch);
        self.kill_session(client);
    }

    /// The client is shut out: its session ends.
    pub(crate) fn kill_session(&mut self, client: GlobalId) {
        let Some(session) = self.sessions.get(&client) else { return };
        if matches!(session.state, State::Closed | State::Closing) || session.is_ending {
            return;
        }
        if !self.disk.is_writeable() {
            // The journal takes nothing yet; a session that is being killed is ended when it does.
            if let Some(session) = self.sessions.get_mut(&client) {
                session.state = State::Killing;
            }
            self.recon.killed.insert(client);
            return;
        }
        self.end_session(client, State::Killing);
        if let Some(session) = self.sessions.get_mut(&client) {
            session.is_ending = true;
        }
    }

    pub(crate) fn tick_sessions(&mut self) {
        if !self.is_serving() {
            return;
        }
        let now = self.now.mono;
        let timeout = Duration::from_secs(self.map.session_timeout.into());
        let autoclose = Duration::from_secs(self.map.session_autoclose.into());
        let silent = |s: &Session, by: Duration| now >= s.renewed + by;
        let stale: Vec<GlobalId> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.state == State::Open && silent(s, timeout))
            .map(|(c, _)| *c)
            .collect();
        stale.into_iter().for_each(|client| self.go_stale(client));
        let is_over = |s: &Session| s.state == State::Stale && silent(s, autoclose);
        let over: Vec<GlobalId> = self.sessions.iter().filter(|(_, s)| is_over(s)).map(|(c, _)| *c).collect();
        over.into_iter().for_each(|client| self.evict(client, "it has been silent for too long"));
        let awaited: Vec<GlobalId> = self
            .sessions
            .iter()
            .filter(|(c, s)| s.state == State::Stale && self.is_in_the_way(**c, s))
            .map(|(c, _)| *c)
            .collect();
        awaited.into_iter().for_each(|client| self.evict(client, "it is stale, and others wait for it"));
    }

    /// What the client can have changed nothing under is taken from it at once.
    fn go_stale(&mut self, client: GlobalId) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        session.state = State::Stale;
        let inos: Vec<Ino> = session.caps.iter().copied().collect();
        let m = MClientSession { op: SessionOp::STALE, ..MClientSession::default() };
        self.tell(client, 0, m.into());
        for ino in inos {
            if let Some(cap) = self.cache.get_mut(ino).and_then(|i| i.caps.get_mut(&client)) {
                if !cap.issued().intersects(Caps::ANY_WR) {
                    cap.void(Caps::PIN);
                }
            }
            self.cap_changed(ino);
        }
    }

    fn is_in_the_way(&self, client: GlobalId, session: &Session) -> bool {
        session.caps.iter().filter(|ino| self.waits.contains_key(&Wait::Inode(**ino))).any(|ino| {
            let Some(inode) = self.cache.get(*ino) else { return false };
            let issued = inode.caps.get(&client).map_or(Caps::NONE, super::cap::Cap::issued);
            inode.holds.iter().any(|h| issued.intersects(h.forbids(client)))
        })
    }

    pub(crate) fn on_reclaim(&mut self, client: GlobalId, m: &MClientReclaim) {
        if m.flags & MClientReclaim::FINISH != 0 {
            return;
        }
        let reply = MClientReclaimReply { result: Errno::EOPNOTSUPP.neg(), ..MClientReclaimReply::default() };
        self.tell(client, 0, reply.into());
    }
}

impl Server {
    /// The rank ends: so does every session, without a client's word. Source: Server::terminate_sessions.
    pub(crate) fn close_by_server(&mut self, client: GlobalId) {
        self.end_session(client, State::Closing);
    }
}
