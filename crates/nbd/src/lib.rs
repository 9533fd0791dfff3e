//! The server's side of the NBD protocol, without IO: received bytes in, requests out, replies to bytes.
//!
//! Source: the NBD project's doc/proto.md (fixed newstyle handshake, structured replies, `base:allocation`).
//!
//! Invariants
//! 1. Nothing is allocated for a length the peer claims before that length is within its cap (`limits`).
//! 2. A [`Request`] lies wholly inside its export, and writes to a read-only export never become one.
//! 3. After [`Event::Close`] the session reports nothing more.
//! 4. A session that needs TLS tells of no export before it is on, and takes no byte that came before it for
//!    one after it.
//! 5. Structured chunks, errors included, are sent only to a client that asked for them.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod export;
mod limits;
mod options;
mod reply;
mod request;
mod session;
mod take;
mod wire;

pub use export::Export;
pub use limits::{MAX_EXTENTS, MAX_NAME, MAX_OPTION, MAX_PAYLOAD};
pub use reply::{Piece, Range, Replies};
pub use request::{Command, NbdError, Request};
pub use session::{CloseReason, Event, Session};
