//! What goes into a monitor and what comes out of it.

use bytes::Bytes;
use cephx::Secret;
use messages::{Header, Message};
use types::{AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, Errno, GlobalId};

use crate::QuorumView;
use crate::peer::Who;

/// An event for the monitor.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// msgr2's AUTH_REQUEST on a new connection.
    AuthRequest {
        conn: ConnId,
        /// What the peer's HELLO said it is; unproven.
        peer_type: EntityType,
        /// `cephx::METHOD_*`, or another number, which is refused.
        method: u32,
        /// `CON_MODE_*`, in the peer's order of preference.
        preferred_modes: Vec<u32>,
        payload: Bytes,
        peer_addr: EntityAddr,
    },
    /// msgr2's AUTH_REQUEST_MORE.
    AuthMore { conn: ConnId, payload: Bytes },
    /// The handshake is complete; messages may follow. Comes after `AuthDone`, and again when a lost connection is
    /// resumed under a new id, in which case the shell has replayed AuthRequest for that id first.
    Connected { conn: ConnId, peer: EntityName, addrs: AddrVec, features: u64 },
    /// The session is gone for good (reset, or never completed).
    Disconnected { conn: ConnId },
    Message {
        conn: ConnId,
        header: Header,
        msg: Message,
        /// Bytes of its payload, which are counted while it waits.
        bytes: usize,
    },
    /// An entry of the replicated log, in order and without gaps: `index` is one more than the last.
    Committed { index: u64, change: Bytes },
    /// Who is in the quorum now; also tells whether this member leads.
    Quorum(QuorumView),
    /// The answer to [`Output::Read`]: everything acknowledged before it was asked is applied.
    Fresh { ctx: u64 },
    /// The state is that of a snapshot, made by another member.
    Install { state: Bytes },
    /// A client of another member, whose requests follow under this id.
    Adopt { conn: ConnId, who: Box<Who> },
    /// Another member's process needs global ids.
    WantIds { origin: String },
    /// From another monitor's connection. For a [`crate::Member`].
    Peer { conn: ConnId, data: Bytes },
    /// Messages to the monitor at this address, or from it, may have been lost. For a [`crate::Member`].
    PeerLost { addr: EntityAddr },
    /// The store's writes up to this one are durable. For a [`crate::Member`].
    Written { seq: u64 },
    /// A (new) session with the manager in charge stands.
    ManagerConnected,
    /// That session is over.
    ManagerLost,
    /// A message on it. `tid` is that of the command which it answers.
    FromManager { tid: u64, msg: Message },
    /// The process is about to stop: another monitor shall lead. For a [`crate::Member`].
    Resign,
    /// Comes about once a second.
    Tick,
}

/// What the monitor wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// msgr2's AUTH_REPLY_MORE.
    AuthMore {
        conn: ConnId,
        payload: Bytes,
    },
    /// msgr2's AUTH_DONE.
    AuthDone {
        conn: ConnId,
        /// Who has logged in.
        name: AuthName,
        global_id: GlobalId,
        /// `CON_MODE_*`.
        con_mode: u32,
        payload: Bytes,
        /// Signs the handshake; empty with method none.
        session_key: Secret,
        /// Keys of secure mode; empty in crc mode.
        connection_secret: Secret,
    },
    /// msgr2's AUTH_BAD_METHOD: the peer may try again, with what is allowed.
    AuthBad {
        conn: ConnId,
        refusal: AuthRefusal,
    },
    /// `tid` goes into the header: that of the request being answered, or 0.
    Send {
        conn: ConnId,
        tid: u64,
        msg: Message,
    },
    Close {
        conn: ConnId,
    },
    /// To the manager in charge, on the session that the shell keeps up; dropped when there is none
    /// (`ManagerConnected` makes up for it).
    SendManager {
        tid: u64,
        msg: Message,
    },
    /// To be appended to the replicated log; comes back as [`Input::Committed`] on every member, also on this one. At most
    /// one is under way. When it cannot be appended (leadership lost), say so with [`Input::Quorum`].
    Propose {
        data: Bytes,
    },
    /// Asks when a read may be answered; comes back as [`Input::Fresh`].
    Read {
        ctx: u64,
    },
    /// A request of one of our clients that the leader has to see.
    Forward {
        conn: ConnId,
        tid: u64,
        msg: Message,
    },
    /// We need global ids from the leader, for this process.
    WantIds {
        origin: String,
    },
    /// Of a [`crate::Member`]: for the monitor at this address.
    Peer {
        addr: EntityAddr,
        data: Bytes,
    },
    /// Of a [`crate::Member`]: for the store, after all earlier writes.
    Write(quorum::Write),
    /// The log may be cut up to `index` once [`crate::Monitor::snapshot`], taken now, is durable.
    TakeSnapshot {
        index: u64,
    },
}

/// Why an authentication was refused, and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthRefusal {
    pub method: u32,
    pub errno: Errno,
    pub allowed_methods: Vec<u32>,
    pub allowed_modes: Vec<u32>,
    /// For the log; not each refusal is worth a line.
    pub why: Option<String>,
}

/// Checksummed frames. Source: CEPH_CON_MODE_* in src/include/msgr.h.
pub const CON_MODE_CRC: u32 = 1;
/// Encrypted frames.
pub const CON_MODE_SECURE: u32 = 2;
