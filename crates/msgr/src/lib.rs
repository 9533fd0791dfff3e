//! Ceph's msgr2.1 protocol as state machines without IO: frames, handshake, session resume, crc and secure
//! modes.
//!
//! A [`Connection`] is the protocol's side of one TCP connection. A shell that owns the socket drives it:
//!
//! ```text
//! let mut conn = Connection::accept(now, local, peer_socket_addr, limits);  // or Connection::connect(..)
//! let mut buf = BytesMut::with_capacity(64 << 10);
//! loop {
//!     socket.read_buf(&mut buf)               // room for the next read is always there; after the head of a
//!                                             // large frame there is room for all of the frame
//!     conn.handle_bytes(now, &mut buf);       // takes whole frames, leaves the rest, makes room
//!     while let Some(event) = conn.poll_event() {
//!         match event {
//!             // or conn.auth_reply_more(..), or conn.auth_bad_method(..)
//!             Event::AuthRequest { .. } => conn.auth_done(..),
//!             Event::SessionRequest(request) => ..,       // see `decide`
//!             Event::Message(msg) => conn.send(reply),
//!             Event::Closed(reason) => { conn.take_session(); .. }
//!             ..
//!         }
//!     }
//!     conn.take_outgoing(&mut out);           // once per batch: one vectored write, one acknowledgement
//!     socket.write_vectored(out)
//!     conn.tick(now)                          // at conn.next_deadline(), or once a second
//! }
//! ```
//!
//! The owner may answer a pausing event at once or later; bytes that come in meanwhile are held. When the TCP
//! connection is lost, the shell takes the [`Session`] with `take_session` and gives it to the next
//! `Connection`. Events that were not polled yet when the session was taken are still valid, and are to be
//! handled before those of the next connection: the session counts their messages as received. Payloads are
//! slices of receive buffers of `Limits::read_bytes` or more: a small one that is kept for long should be
//! copied, as it keeps the whole buffer.
//!
//! On the accepting side [`decide`] says, from the session that exists with the peer (if any), what to
//! answer.
//!
//! Source: doc/dev/msgr2.rst, src/msg/async/ProtocolV2.cc.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod accept;
mod connection;
mod control;
mod error;
mod event;
mod frame;
#[cfg(test)]
mod frame_tests;
mod grant;
mod limits;
mod resumable;
mod secure;
mod session;

pub use accept::{Existing, Phase, Verdict, decide};
pub use connection::{Connection, Local};
pub use control::{ClientIdent, ConMode, Hello, Reconnect, ServerIdent, Tag};
pub use error::Error;
pub use event::{Event, Ready, SessionAnswer, SessionRequest};
pub use grant::Grant;
pub use limits::Limits;
pub use resumable::{Parked, Resumable, surplus};
pub use session::{MSG_ADDR2, Peer, Policy, Session};
