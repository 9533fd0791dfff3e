//! Why a connection ended, by blame.

use codec::DecodeError;
use types::EntityAddr;

use crate::Tag;

/// The reason a connection closed. Only the connection is lost; a lossless session goes on with the next one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    // The peer misbehaved (or the network damaged its bytes).
    #[error("the peer's banner is not msgr2's")]
    BadBanner,
    #[error("bad preamble checksum")]
    BadPreambleCrc,
    #[error("a frame with {0} segments")]
    BadSegmentCount(u8),
    #[error("the last segment of a frame is empty")]
    EmptyLastSegment,
    #[error("unknown frame tag {0}")]
    UnknownTag(u8),
    /// A length above what this tag may have. `claimed` and `bound` are bytes.
    #[error("{tag:?} frame: segment {segment} claims {claimed} bytes, at most {bound} are accepted")]
    FrameTooLarge { tag: Tag, segment: usize, claimed: u64, bound: u64 },
    #[error("bad checksum of segment {0}")]
    BadSegmentCrc(usize),
    #[error("bad late status {0:#x}")]
    BadLateStatus(u8),
    #[error("a sealed block does not authenticate")]
    BadAuthTag,
    #[error("{tag:?} frame with {segments} segments, or with a header of the wrong size")]
    BadFrameShape { tag: Tag, segments: u8 },
    #[error("{tag:?} frame while {state}")]
    UnexpectedFrame { tag: Tag, state: &'static str },
    #[error("a frame's fields: {0}")]
    Decode(#[from] DecodeError),
    #[error("the signature over the handshake does not match")]
    BadSignature,
    #[error("the handshake takes too many rounds")]
    TooManyRounds,
    #[error("more bytes before authentication than the handshake may take")]
    HandshakeTooLarge,
    #[error("unknown connection mode {0}")]
    BadConMode(u32),
    // The peer is of another make.
    #[error("the peer speaks msgr1")]
    LegacyPeer,
    #[error("the peer lacks msgr2 features {missing:#x}")]
    NoRevision1 { missing: u64 },
    #[error("the peer requires msgr2 features {unknown:#x}")]
    UnknownRequired { unknown: u64 },
    #[error("features {0:#x} are required and missing")]
    MissingFeatures(u64),
    #[error("the peer is of entity type {got}, not {wanted}")]
    WrongPeerType { wanted: u8, got: u8 },
    #[error("the peer does not answer for {wanted}")]
    WrongPeer { wanted: EntityAddr },
    #[error("the peer wants {wanted}, which is not us")]
    WrongTarget { wanted: EntityAddr },
    #[error("the peer states no address")]
    NoPeerAddress,
    // Operating conditions.
    #[error("the handshake took too long")]
    HandshakeTimeout,
    #[error("nothing was heard for too long")]
    IdleTimeout,
    /// Both ends connected at once, and the other direction goes on.
    #[error("the peer's own connection to us wins")]
    Wait,
    #[error("a frame took too long to come whole")]
    FrameTimeout,
    #[error("a newer connection of the same peer exists")]
    Stale,
    #[error("another connection took the session over")]
    Replaced,
    #[error("the owner refused: errno {0}")]
    Refused(i32),
    // The owner misused the machine.
    #[error("{call} called while {state}")]
    Misuse { call: &'static str, state: &'static str },
    #[error("the connection secret is unfit for secure mode")]
    BadSecret,
    #[error("all nonces of this connection are used")]
    NoncesExhausted,
}
