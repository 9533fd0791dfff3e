//! The messenger: every connection of a daemon, carried by msgr's state machines.
//!
//! ```text
//! Messenger ── Channel (ConnId; outlives TCP connections when its session is lossless)
//!                └─ Link (one TCP connection: socket, msgr::Connection, bytes to write)
//! ```
//!
//! A link's task reads, lets the machine parse, and gives whole batches of messages to the daemon's `Handler`
//! on the same thread. `Messenger::send` may be called from any thread; `flush` writes at once from there, so
//! that a reply needs no wake-up of another task unless the socket is full.
//!
//! OSD to OSD, each side opens a session of its own for what it sends (lossless client towards stateful
//! server): there are no connect races to resolve, and a lost TCP connection is resumed from both ends alike.

mod bounds;
mod budget;
mod channel;
mod connect;
#[cfg(test)]
mod frames_tests;
mod gate;
mod half_open;
#[cfg(test)]
mod half_open_tests;
#[cfg(test)]
mod held_tests;
mod link;
mod messenger;
#[cfg(test)]
mod peers_tests;
mod places;
mod refusals;
#[cfg(test)]
mod testing;
mod unread;
#[cfg(test)]
mod unread_tests;

pub use bounds::Bounds;
pub use connect::{ClientAuth, ConnectTo, Established};
pub use gate::Gate;
pub use messenger::Messenger;

use bytes::Bytes;
use cephx::{CapsInfo, Secret};
use messages::wire::WireMessage;
use msgr::{ConMode, Policy};
use types::{AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, GlobalId};

/// Who a peer has proven to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub name: AuthName,
    pub global_id: GlobalId,
    pub caps: CapsInfo,
}

impl Identity {
    /// Whether this is a daemon of the cluster.
    pub fn is_daemon(&self) -> bool {
        matches!(self.name.kind, EntityType::Mon | EntityType::Osd | EntityType::Mgr | EntityType::Mds)
    }

    /// Whether it has a share of what all clients may take. Monitors and OSDs have none: clients wait for
    /// them, so they never wait for clients. Metadata servers and managers are clients of OSDs and monitors,
    /// of which none waits for them.
    pub fn has_share(&self) -> bool {
        !matches!(self.name.kind, EntityType::Mon | EntityType::Osd)
    }

    /// What a peer is called that says it is `said`. The library logs in with a manager's key as well, and is
    /// a client all the same: its locks and watches have a client's name.
    ///
    /// Source: Messenger::create_client_messenger in src/msg/Messenger.cc.
    pub fn entity(&self, said: EntityName) -> EntityName {
        let kind = match said.entity_type() {
            Some(EntityType::Client) if self.has_share() => EntityType::Client,
            _ => self.name.kind,
        };
        match kind {
            EntityType::Osd => EntityName::new(kind, self.name.id.parse().unwrap_or(-1)),
            kind => EntityName::new(kind, self.global_id.0 as i64),
        }
    }
}

/// What the peer of a new connection sends to authenticate itself.
#[derive(Debug, Clone)]
pub enum AuthInput {
    Request { method: u32, preferred_modes: Vec<u32>, payload: Bytes },
    More { payload: Bytes },
}

/// The daemon's answer to an `AuthInput`.
#[derive(Debug, Clone)]
pub enum AuthStep {
    /// Another round.
    More(Bytes),
    Done {
        identity: Identity,
        mode: ConMode,
        payload: Bytes,
        session_key: Secret,
        connection_secret: Secret,
    },
    /// Refused; the peer may try another method.
    Bad {
        errno: i32,
        methods: Vec<u32>,
        modes: Vec<ConMode>,
    },
    /// `Messenger::answer_auth` brings the answer.
    Pending,
}

/// Addresses of a peer that are handed on: a daemon has one for each protocol and address family.
pub(super) const ADDRS_KEPT: usize = 8;

/// A session became usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerReady {
    pub name: EntityName,
    /// The first of `addrs`.
    pub addr: EntityAddr,
    /// Where it says that it listens, at most `ADDRS_KEPT`; where it comes from if it says nothing.
    pub addrs: AddrVec,
    pub features: u64,
    /// Who the peer has proven to be, on accepted connections; `None` on those that this process opened.
    pub identity: Option<Identity>,
}

/// Why a channel is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gone {
    /// Nobody listens at the address.
    Refused,
    /// Anything else, in words for the log.
    Lost(String),
}

/// What a daemon does with its connections. Called on the tasks of the connections, concurrently.
pub trait Handler: Send + Sync + 'static {
    /// Judges a connecting peer of the stated type, at its socket address.
    fn authenticate(&self, conn: ConnId, peer_type: u8, addr: EntityAddr, input: AuthInput) -> AuthStep;

    /// How sessions behave with connecting peers that have proven to be of this kind.
    fn accept_policy(&self, kind: EntityType) -> Policy;

    /// The session of `conn` is usable (again, after a reset by the peer).
    fn ready(&self, conn: ConnId, peer: PeerReady);

    /// Whether a peer that has proven to be of this kind waits when the messenger's gate is closed.
    fn is_gated(&self, _kind: EntityType) -> bool {
        false
    }

    /// Messages in order; takes them out of `batch`.
    fn messages(&self, conn: ConnId, batch: &mut Vec<WireMessage>);

    /// The peer runs, but has forgotten the lossless session that this process opened: messages under way in
    /// it are lost.
    fn reset(&self, _conn: ConnId) {}

    /// Accepted or lossy: `conn` is over. Lossless and opened here: this attempt failed, another follows.
    /// Not called for a connection that `Messenger::close` was called for.
    fn gone(&self, conn: ConnId, why: Gone);
}
