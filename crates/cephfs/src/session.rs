//! Sessions with the holders of ranks: opened for the first request, renewed, asked to give back, closed.
//!
//! Source: Client::handle_client_session, _open_mds_session, _closed_mds_session, renew_caps.

use std::collections::BTreeSet;
use std::time::Duration;

use maps::{MdsGid, Rank};
use messages::fs::{CapItem, MClientCapRelease, MClientSession, SessionOp, features as f};
use types::{AddrVec, Errno, FeatureBits};

use crate::core::Client;
use crate::io::{Effect, Node, SessionId};

/// How long a map may take that names another holder of the rank.
const CUT_GRACE: Duration = Duration::from_secs(20);
/// Capabilities in one message of releases.
const MAX_RELEASES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Opening,
    Open,
    Closing,
    /// The server does not want us, for this reason; nothing is asked of it any more.
    Rejected(Errno),
}

#[derive(Debug)]
pub(crate) struct Session {
    pub conn: SessionId,
    pub gid: MdsGid,
    pub addrs: AddrVec,
    pub state: State,
    pub features: FeatureBits,
    /// Messages of capabilities, leases, snapshots and quotas that the server sent; a close states how many
    /// were seen.
    pub pushes: u64,
    renew_seq: u64,
    renew_sent: Duration,
    /// Without a renewal, capabilities and leases are not used any longer than this.
    pub good_until: Duration,
    /// Counts how often the session went stale; what was given before is void.
    pub generation: u64,
    pub releases: Vec<CapItem>,
    pub flushes: BTreeSet<u64>,
    pub is_read_only: bool,
    /// When the server forgot the connection. Perhaps it is another process at the same address: the map will
    /// tell.
    cut_at: Option<Duration>,
}

/// What we can do. Source: CEPHFS_FEATURES_CLIENT_SUPPORTED.
fn our_features() -> FeatureBits {
    let mut bits = FeatureBits::from([0, 1, 2, 3, 4, f::JEWEL, f::KRAKEN, f::LUMINOUS, f::MIMIC]);
    let later = [
        f::REPLY_ENCODING,
        f::LAZY_CAP_WANTED,
        f::MULTI_RECONNECT,
        f::DELEG_INO,
        f::OP_GETVXATTR,
        f::RETRY_FWD_32BITS,
    ];
    later.into_iter().for_each(|bit| bits.insert(bit));
    bits
}

impl Client {
    fn new_conn(&mut self, rank: Rank, addrs: AddrVec) -> SessionId {
        self.last_session += 1;
        let session = SessionId(self.last_session);
        self.by_conn.insert(session, rank);
        self.out.push(Effect::Open { session, rank, addrs });
        session
    }

    /// The session with a rank, being opened if there was none. `None` while nobody holds the rank.
    pub(crate) fn open_session(&mut self, rank: Rank) -> Option<State> {
        if let Some(session) = self.sessions.get(&rank) {
            return Some(session.state);
        }
        let holder = self.map.holder(rank)?;
        let (gid, addrs) = (holder.gid, holder.addrs.clone());
        let conn = self.new_conn(rank, addrs.clone());
        let session = Session {
            conn,
            gid,
            addrs,
            state: State::Opening,
            features: FeatureBits::default(),
            pushes: 0,
            renew_seq: 0,
            renew_sent: self.now.mono,
            good_until: Duration::ZERO,
            generation: 0,
            releases: Vec::new(),
            flushes: BTreeSet::new(),
            is_read_only: false,
            cut_at: None,
        };
        self.sessions.insert(rank, session);
        self.ask_open(rank);
        Some(State::Opening)
    }

    /// Asks to be let in, over a new connection where there is none.
    pub(crate) fn ask_open(&mut self, rank: Rank) {
        self.connect(rank);
        let m = MClientSession {
            op: SessionOp::REQUEST_OPEN,
            metadata: self.settings.metadata.clone(),
            features: our_features(),
            ..MClientSession::default()
        };
        self.send(rank, 0, m.into());
    }

    pub(crate) fn connect(&mut self, rank: Rank) {
        let Some(session) = self.sessions.get(&rank) else { return };
        if self.by_conn.contains_key(&session.conn) {
            return;
        }
        let conn = self.new_conn(rank, session.addrs.clone());
        if let Some(session) = self.sessions.get_mut(&rank) {
            (session.conn, session.cut_at) = (conn, None);
        }
    }

    /// Ends the connection; the session stays for whoever holds the rank next.
    pub(crate) fn drop_conn(&mut self, rank: Rank) {
        let Some(session) = self.sessions.get(&rank) else { return };
        if self.by_conn.remove(&session.conn).is_some() {
            self.out.push(Effect::Close(session.conn));
        }
    }

    /// The server has forgotten the connection, and with it our session. Source:
    /// Client::ms_handle_remote_reset.
    pub(crate) fn conn_gone(&mut self, conn: SessionId) {
        let Some(rank) = self.by_conn.remove(&conn) else { return };
        let Some(session) = self.sessions.get(&rank).filter(|s| s.conn == conn) else { return };
        match session.state {
            // The next tick tries again.
            State::Opening | State::Rejected(_) => {}
            State::Open => {
                if let Some(session) = self.sessions.get_mut(&rank) {
                    session.cut_at = Some(self.now.mono);
                }
            }
            State::Closing => {
                self.close_session(rank, Errno::EIO);
                self.send_waiting();
            }
        }
    }

    /// The map still names the server that has forgotten us: it has ended our session.
    fn close_cut(&mut self) {
        let is_over = |s: &Session| s.cut_at.is_some_and(|at| self.now.mono >= at + CUT_GRACE);
        let over: Vec<Rank> =
            self.sessions.iter().filter(|(_, s)| is_over(s)).map(|(rank, _)| *rank).collect();
        let over: Vec<Rank> = over.into_iter().filter(|rank| self.is_serving(*rank)).collect();
        if !over.is_empty() {
            over.into_iter().for_each(|rank| self.close_session(rank, Errno::EIO));
            self.send_waiting();
        }
    }

    pub(crate) fn on_session_word(&mut self, rank: Rank, m: MClientSession) {
        match m.op {
            SessionOp::OPEN => self.session_opened(rank, m.features),
            SessionOp::CLOSE => {
                self.close_session(rank, Errno::EIO);
                self.send_waiting();
            }
            SessionOp::RENEWCAPS => self.renewed(rank, m.seq),
            SessionOp::STALE => {
                if let Some(session) = self.sessions.get_mut(&rank) {
                    session.generation += 1;
                    session.good_until = Duration::ZERO;
                }
                self.renew(rank);
            }
            SessionOp::RECALL_STATE => self.recall(rank, m.max_caps as usize),
            SessionOp::FLUSHMSG => {
                self.flush_releases();
                let ack = MClientSession { op: SessionOp::FLUSHMSG_ACK, seq: m.seq, ..Default::default() };
                self.send(rank, 0, ack.into());
            }
            SessionOp::FORCE_RO => {
                if let Some(session) = self.sessions.get_mut(&rank) {
                    session.is_read_only = true;
                }
                self.wake_session(rank);
            }
            SessionOp::REJECT => {
                let why = m.metadata.get("error_string").map_or("", String::as_str);
                // Source: Server::handle_client_session.
                let errno = if why.contains("blocklisted") { Errno::ESHUTDOWN } else { Errno::EPERM };
                self.close_session(rank, errno);
                self.reject(rank, errno);
            }
            _ => {}
        }
    }

    fn session_opened(&mut self, rank: Rank, features: FeatureBits) {
        let timeout = Duration::from_secs(self.map.session_timeout.into());
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        if session.state != State::Opening {
            return;
        }
        session.features = features;
        session.state = State::Open;
        session.good_until = self.now.mono + timeout;
        if !session.features.contains(f::REPLY_ENCODING) {
            // Its replies have a form that is not spoken here.
            self.close_session(rank, Errno::EOPNOTSUPP);
            return self.reject(rank, Errno::EOPNOTSUPP);
        }
        self.renew(rank);
        self.send_waiting();
    }

    /// Whoever asks for something of this rank is refused.
    fn reject(&mut self, rank: Rank, errno: Errno) {
        let Some(holder) = self.map.holder(rank) else { return };
        let (gid, addrs) = (holder.gid, holder.addrs.clone());
        let session = Session {
            conn: SessionId(0),
            gid,
            addrs,
            state: State::Rejected(errno),
            features: FeatureBits::default(),
            pushes: 0,
            renew_seq: 0,
            renew_sent: self.now.mono,
            good_until: Duration::ZERO,
            generation: 0,
            releases: Vec::new(),
            flushes: BTreeSet::new(),
            is_read_only: false,
            cut_at: None,
        };
        self.sessions.insert(rank, session);
        self.send_waiting();
    }

    /// Of an open session.
    pub(crate) fn renew(&mut self, rank: Rank) {
        let Some(session) = self.sessions.get_mut(&rank).filter(|s| s.state == State::Open) else { return };
        session.renew_seq += 1;
        session.renew_sent = self.now.mono;
        let m = MClientSession {
            op: SessionOp::REQUEST_RENEWCAPS,
            seq: session.renew_seq,
            ..MClientSession::default()
        };
        self.send(rank, 0, m.into());
    }

    fn renewed(&mut self, rank: Rank, seq: u64) {
        let timeout = Duration::from_secs(self.map.session_timeout.into());
        let now = self.now.mono;
        let Some(session) = self.sessions.get_mut(&rank).filter(|s| s.renew_seq == seq) else { return };
        let was_stale = now >= session.good_until;
        session.good_until = session.renew_sent + timeout;
        if was_stale {
            self.wake_session(rank);
        }
    }

    /// A third of the time after which the server would call the session stale. Source: Client::tick.
    pub(crate) fn renew_sessions(&mut self) {
        let every = Duration::from_secs(self.map.session_timeout.into()) / 3;
        let is_due = |s: &Session| s.state == State::Open && self.now.mono >= s.renew_sent + every;
        let due: Vec<Rank> = self.sessions.iter().filter(|(_, s)| is_due(s)).map(|(rank, _)| *rank).collect();
        due.into_iter().for_each(|rank| self.renew(rank));
        self.close_cut();
        let is_cut = |s: &Session| s.state == State::Opening && !self.by_conn.contains_key(&s.conn);
        let cut: Vec<Rank> = self.sessions.iter().filter(|(_, s)| is_cut(s)).map(|(rank, _)| *rank).collect();
        let cut: Vec<Rank> = cut.into_iter().filter(|rank| self.is_serving(*rank)).collect();
        cut.into_iter().for_each(|rank| self.ask_open(rank));
    }

    pub(crate) fn flush_releases(&mut self) {
        let ranks: Vec<Rank> = self.sessions.keys().copied().collect();
        for rank in ranks {
            let Some(session) = self.sessions.get_mut(&rank).filter(|s| !s.releases.is_empty()) else {
                continue;
            };
            let releases = std::mem::take(&mut session.releases);
            for part in releases.chunks(MAX_RELEASES) {
                let m = MClientCapRelease { caps: part.to_vec(), osd_epoch_barrier: self.osd_barrier };
                self.send(rank, 0, m.into());
            }
        }
    }

    /// The server sent something on its own.
    pub(crate) fn got_push(&mut self, rank: Rank) {
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        session.pushes += 1;
        if session.state == State::Closing {
            self.ask_close(rank);
        }
    }

    /// The server lets us go when we have seen all that it sent.
    pub(crate) fn ask_close(&mut self, rank: Rank) {
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        session.state = State::Closing;
        let m =
            MClientSession { op: SessionOp::REQUEST_CLOSE, seq: session.pushes, ..MClientSession::default() };
        self.send(rank, 0, m.into());
    }

    /// Makes the server write its journal, for somebody waits for it.
    pub(crate) fn ask_flush_log(&mut self, rank: Rank) {
        let m = MClientSession { op: SessionOp::REQUEST_FLUSH_MDLOG, ..MClientSession::default() };
        self.send(rank, 0, m.into());
    }

    /// The session is over: its capabilities are void, and what was to be written back is lost.
    pub(crate) fn close_session(&mut self, rank: Rank, errno: Errno) {
        self.drop_conn(rank);
        if self.sessions.remove(&rank).is_none() {
            return;
        }
        let with_caps =
            |(node, i): (&Node, &crate::inode::Inode)| i.caps.contains_key(&rank).then_some(*node);
        let nodes: Vec<Node> = self.inodes.iter().filter_map(with_caps).collect();
        for node in nodes {
            let Some(inode) = self.inodes.get_mut(&node) else { continue };
            inode.caps.remove(&rank);
            if inode.caps.is_empty() {
                inode.is_complete = false;
                inode.release_count += 1;
                inode.locks = Default::default();
            }
            if inode.auth == Some(rank) {
                inode.auth = None;
                self.lose_dirty(node, errno);
            }
            self.wake(node);
        }
        self.requests_of_closed(rank, errno);
        self.wake_settling();
    }

    /// Those who wait for capabilities of this rank look again.
    pub(crate) fn wake_session(&mut self, rank: Rank) {
        let waits = |(node, i): (&Node, &crate::inode::Inode)| {
            (i.caps.contains_key(&rank) && !i.waiters.is_empty()).then_some(*node)
        };
        let nodes: Vec<Node> = self.inodes.iter().filter_map(waits).collect();
        nodes.into_iter().for_each(|node| self.wake(node));
    }
}
