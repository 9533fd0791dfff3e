//! The client side of RADOS without IO: which OSD an operation goes to, when it is sent again, what a watch needs to live.
//!
//! [`Objecter::handle`] takes one [`Input`] and appends [`Effect`]s; the shell carries messages, keeps the session with a
//! monitor, and calls again at [`Objecter::deadline`].
//!
//! ```text
//! Submit ──> waiting ──room──> homeless ──target──> assigned ──send──> sent ──reply──> Done
//!            (budget)             ^                  (session)           │
//!                                 └── new interval, reset, pool full ────┘
//! ```
//!
//! Invariants ([`Objecter::assert_invariants`]):
//! 1. An operation that was sent is assigned to a session that exists.
//! 2. What counts as in flight is what the operations in flight sum up to, and never more than the budget unless a single
//!    operation is larger than it.
//! 3. The operations of one object are sent in the order in which they were submitted, also when they are sent again.
//! 4. Every ticket ends in exactly one `Done`.
//!
//! Source: src/osdc/Objecter.cc, src/mon/MonSub.cc.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod io;

mod backoff;
mod subs;
mod target;

mod command;
mod core;
mod linger;
mod map;
mod mon;
mod op;
mod session;

pub use core::{Objecter, Settings};
pub use io::{
    CommandReply, Effect, Input, OpReply, OpRequest, Outcome, Request, ServicePeer, SessionId, Ticket,
    WatchEvent,
};
