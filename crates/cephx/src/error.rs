//! Why an authentication step failed, and the errno a peer gets for it.

use codec::DecodeError;
use types::{AuthName, EntityType, Errno, GlobalId};

/// A refused or impossible authentication step.
///
/// A peer only ever sees `errno()`: an unknown name, a wrong key and a bad ticket all look alike from
/// outside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The peer's bytes are not what the protocol asks for here.
    #[error("malformed authentication data: {0}")]
    Malformed(#[from] DecodeError),
    /// Something does not decrypt under the key that should fit: wrong key or tampered bytes.
    #[error("{0} does not decrypt")]
    Undecryptable(&'static str),
    /// A ticket in Ceph's form that no monitor makes so: its holder changed it.
    #[error("no monitor makes such a ticket: {0}")]
    Implausible(&'static str),
    /// A ticket in Ceph's form, of this entity, where only sealed ones are taken: somebody may have changed
    /// it.
    #[error("a ticket of {0} has the form of Ceph's, which is not taken here")]
    OldForm(AuthName),
    /// No such entity in the auth database.
    #[error("unknown entity {0}")]
    UnknownEntity(AuthName),
    /// The answer to the challenge was made with another key.
    #[error("wrong key for {0}")]
    WrongKey(AuthName),
    /// The entity exists but may not use the monitor at all.
    #[error("{0} has no mon caps")]
    NoMonCaps(AuthName),
    /// A step out of order: no challenge was sent, or the session is over.
    #[error("authentication step out of order: {0}")]
    OutOfOrder(&'static str),
    /// A global id may only be taken up again with the ticket that proves it. Source: CVE-2021-20288.
    #[error("global_id {0} was claimed without a valid ticket")]
    GlobalIdNotProven(GlobalId),
    /// A ticket was presented where a new global id was asked for.
    #[error("a ticket was presented with a new global_id")]
    SuperfluousTicket,
    /// The ticket is sealed with a secret that is not, or no longer, known.
    #[error("unknown {service} secret {id}")]
    UnknownSecret { service: EntityType, id: u64 },
    /// The ticket is for another service.
    #[error("ticket for {got}, this is {want}")]
    WrongService { want: EntityType, got: u32 },
    /// The ticket was valid once.
    #[error("expired ticket")]
    TicketExpired,
    /// The authorizer answers no challenge of this connection: a replay.
    #[error("authorizer does not answer our challenge")]
    BadChallenge,
    /// A request of the protocol that does not exist.
    #[error("unknown cephx request {0:#x}")]
    UnknownRequest(u16),
    /// The first byte of an authentication request names no mode that this side serves.
    #[error("unsupported authentication mode {0}")]
    UnsupportedMode(u8),
    /// The server has no secret for the service yet.
    #[error("no rotating secret for {0}")]
    NoServiceSecret(EntityType),
    /// An empty key was asked to encrypt or decrypt.
    #[error("empty key")]
    EmptyKey,
    /// The server answered with an error.
    #[error("refused by the server: {0}")]
    Refused(Errno),
    /// No ticket for the service is held.
    #[error("no ticket for {0}")]
    NoTicket(EntityType),
    /// The server could not prove that it knows the session key.
    #[error("the server's reply does not prove the session key")]
    BadReply,
}

impl AuthError {
    /// The errno that the peer is told. Source: src/auth/cephx/CephxServiceHandler.cc (handle_request).
    pub fn errno(&self) -> Errno {
        match self {
            Self::Malformed(_) => Errno::EPERM,
            Self::UnknownRequest(_) | Self::SuperfluousTicket => Errno::EINVAL,
            Self::NoServiceSecret(_) => Errno::EIO,
            Self::Refused(errno) => *errno,
            Self::Undecryptable(_)
            | Self::Implausible(_)
            | Self::OldForm(_)
            | Self::UnknownEntity(_)
            | Self::WrongKey(_)
            | Self::NoMonCaps(_)
            | Self::OutOfOrder(_)
            | Self::GlobalIdNotProven(_)
            | Self::UnknownSecret { .. }
            | Self::WrongService { .. }
            | Self::TicketExpired
            | Self::BadChallenge
            | Self::UnsupportedMode(_)
            | Self::EmptyKey
            | Self::NoTicket(_)
            | Self::BadReply => Errno::EACCES,
        }
    }
}
