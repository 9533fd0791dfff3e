//! The daemons: around each core a shell with its sockets, its store, and its clock.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

pub mod admin;
pub mod admin_socket;
pub mod client;
pub mod metadata;
pub mod mon;

mod device_threads;
mod devices;
mod disks;
mod ear;
mod failure;
mod inbox;
pub mod listen;
pub mod mds;
pub mod mgr;
mod mon_mgr;
pub mod mon_store;
pub mod nonce;
mod numa;
pub mod osd;
mod osd_start;
mod peers;
#[cfg(feature = "test-medium")]
mod plant;
mod seen;
mod turn;
mod twin;

pub use devices::Medium;
pub use failure::{Failure, Lasting};
pub use osd_start::StartPlace;

/// Towards the cluster every daemon is a client too.
pub use runtime::session::auth;
