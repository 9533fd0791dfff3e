//! What surrounds the cores in a daemon: sockets, timers, block files, the real clock. The only crate that knows tokio.
#![forbid(unsafe_code)]

mod device;
pub mod net;
mod outside;
mod owner;

pub use device::FileDevice;
pub use outside::{Clock, OsEntropy};
pub use owner::{Machine, Owner};
