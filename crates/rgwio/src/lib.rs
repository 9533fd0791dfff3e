//! Performs what the gateway's core plans over the client library of RADOS: against Loligo and Ceph 16.2
//! alike.
//!
//! 1. No request takes a thread: those of one step are submitted together, and their replies awaited.
//! 2. What a plan has begun it ends, whatever becomes of the client that asked for it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod perform;
mod request;
mod turns;
mod work;

pub use perform::{Limits, Performer};
pub use work::Worker;
