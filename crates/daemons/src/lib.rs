//! The daemons: around each core a shell with its sockets, its store, and its clock.
#![forbid(unsafe_code)]

pub mod admin;
pub mod admin_socket;
pub mod auth;
pub mod metadata;
pub mod mon;

pub mod mgr;
mod mon_session;
pub mod mon_store;
pub mod nonce;
pub mod osd;
mod peers;
