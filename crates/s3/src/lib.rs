//! S3 over HTTP, on buckets and objects as radosgw 16.2 keeps them.
//!
//! 1. A body is never held whole: what a request reads and writes goes by in windows, and all windows
//!    together have a bound.
//! 2. A request is carried out as who signed it, or as nobody. A signature is checked before anything is read
//!    or written.
//! 3. What is not served is answered with NotImplemented, never with success.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

// Who asks.
mod checksum;
mod sign;
mod users;

// What they may do.
mod environment;
mod grants;
mod rights;

// What they ask for.
mod attrs;
mod config;
pub mod encryption;
mod errors;
mod form;
mod logging;
mod ops;
mod state;
mod tags;
mod turns;
mod xml;

// What administrators ask for.
mod admin;

// How it comes in and goes out.
mod answered;
mod asked;
mod body;
mod front;
mod serve;
mod shares;
pub mod website;

pub use front::Front;
pub use serve::{Bounds, serve};
pub use state::{Gateway, Settings};
