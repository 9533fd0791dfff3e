//! Every message and OSD operation that goes over the wire, as plain structs with encode and decode.
//!
//! `wire` is a message before decoding; `Message` is the closed set of decoded ones; each service's structs are in its
//! own module. Cluster maps travel as encoded bytes: this crate does not know them.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

pub mod wire;

mod message;
pub mod payload;
pub mod type_numbers;

pub mod auth;
pub mod common;
pub mod fs;
pub mod log;
pub mod mds;
pub mod metrics;
pub mod mgr;
pub mod mon;
pub mod osd;
pub mod pg_map_digest;
pub mod pg_state;
pub mod pool_stats;
pub mod stats;

pub use message::Message;
pub use payload::{PaxosVersion, Payload};
pub use wire::{Header, WireMessage};
