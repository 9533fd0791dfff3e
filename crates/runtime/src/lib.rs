//! What surrounds the cores in a daemon: sockets, timers, block files, the real clock. No core knows tokio.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod contain;
mod device;
mod disks;
mod lanes;
mod local;
pub mod net;
mod numa;
mod outside;
mod owner;
mod seal;
pub mod session;
#[cfg(feature = "test-medium")]
mod twin;

pub use contain::{contained, contained_async, end_on_other_panics};
pub use device::{FileDevice, drop_cache, keep_name};
pub use disks::{Disk, disk_metadata};
pub use local::{Asked, LocalHandler, LocalSocket};
pub use numa::{HostFiles, NumaPlace, NumaWish};
pub use outside::{Clock, OsEntropy};
pub use owner::{Machine, Owner};
pub use seal::{Seal, Sealed};
#[cfg(feature = "test-medium")]
pub use twin::{Twin, TwinDevice, TwinFile};
