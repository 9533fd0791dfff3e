//! Block devices on the client's side: the trait, the persistent write-back cache over one, the NBD server of one.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod cache;
mod connection;
mod device;
mod media;
mod memory;
mod server;
mod socket;
#[cfg(test)]
mod stub;
mod tls;

pub use cache::{Cache, Timing};
pub use device::{BlockDevice, BlockError, BoxFuture, CachedImage, Piece, Range, SHUT_OUT};
pub use media::{CacheFile, MediaError};
pub use server::{Exported, Server};
pub use socket::bind_unix;
pub use tls::{Tls, TlsError, TlsFiles};
