//! What a connection tells its owner.

use bytes::Bytes;
use messages::wire::WireMessage;
use types::{EntityAddr, Utime};

use crate::{ClientIdent, ConMode, Error, Peer, Reconnect};

/// One thing that happened, in order. "Pauses" means that the connection parses nothing more until the named
/// call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer's kind, and our address as the peer sees it. A connector pauses: answer with `auth_request`.
    Hello { entity_type: u8, our_addr: EntityAddr },
    /// Acceptor, pauses: answer with `auth_reply_more`, `auth_done` or `auth_bad_method`.
    AuthRequest { method: u32, preferred_modes: Vec<u32>, payload: Bytes },
    /// Acceptor, pauses: answer as to `AuthRequest`.
    AuthRequestMore { payload: Bytes },
    /// Connector, pauses: answer with `auth_request_more`.
    AuthReplyMore { payload: Bytes },
    /// Connector, pauses: answer with `auth_request` (another method) or `refuse`.
    AuthBadMethod { method: u32, result: i32, allowed_methods: Vec<u32>, allowed_modes: Vec<u32> },
    /// Connector, pauses: answer with `auth_established`.
    AuthDone { global_id: u64, mode: ConMode, payload: Bytes },
    /// Acceptor, pauses: decide with `decide`, answer with `accept_session` or `answer_session`.
    SessionRequest(SessionRequest),
    /// Connector, pauses: the peer has seen this `global_seq` of ours already; answer with `set_global_seq`.
    RetryGlobal { peer_knows: u64 },
    /// The peer has forgotten the session: everything queued and unacknowledged was dropped.
    RemoteReset,
    /// The session is usable; messages that waited are on their way.
    Ready(Ready),
    /// A message, once and in order.
    Message(WireMessage),
    /// The peer answered the keepalive that carried this stamp.
    KeepaliveAck(Utime),
    /// The last event: close the socket after writing what is outgoing, and take the session back with
    /// `take_session`.
    Closed(Error),
}

/// The peer of a usable session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    pub peer: Peer,
    /// Features that both ends have: what message encodings may use.
    pub features: u64,
    pub lossy: bool,
    /// Whether an older session goes on.
    pub resumed: bool,
}

/// What an authenticated peer that connected to us asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRequest {
    /// A new session, or the continuation of one whose opening was cut off.
    Open(ClientIdent),
    /// The resumption of an established session.
    Resume(Reconnect),
}

/// An answer to a session request other than taking it. The peer may ask again on the same connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionAnswer {
    /// The peer lacks these features.
    MissingFeatures(u64),
    /// There is no such session; `full` says that the peer must drop its queue too.
    Reset { full: bool },
    /// The peer's `connect_seq` is older than ours, which is this.
    Retry { connect_seq: u64 },
    /// The peer's `global_seq` is older than one we have seen, which is this.
    RetryGlobal { global_seq: u64 },
    /// We are connecting to the peer ourselves and that connection wins.
    Wait,
}
