//! Block devices on the client's side: the trait, the persistent write-back cache over one, the NBD server of one.
#![forbid(unsafe_code)]

mod cache;
mod connection;
mod device;
mod media;
mod server;

pub use cache::{Cache, CacheConfig, CacheError};
pub use device::{BlockDevice, BlockError, BoxFuture, Piece, Range};
pub use media::MediaError;
pub use server::{Exported, Server};
