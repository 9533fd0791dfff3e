//! The whole OSD without IO: placement groups, their logs, peering, replication and recovery as a state machine.
//!
//! One owner feeds `OsdCore::handle` with inputs and carries out the outputs; the only thing it touches besides is the
//! object store it owns, through synchronous calls that never wait for a flush.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

pub mod io;

mod config;

mod osd;
mod pg;
mod watch;

pub mod coded;
pub mod exec;
pub mod object;

mod dirty;
mod entry;
mod hash;
mod info;
mod interval;
mod log;
mod merge;
#[cfg(test)]
mod merge_tests;
mod missing;
mod peer;
mod push;
mod range;

#[cfg(feature = "planted")]
pub use config::Planted;
pub use config::{OsdConfig, Portions};
pub use dirty::Dirty;
pub use entry::{DupEntry, EntryKind, LogEntry, OpReturn};
pub use info::{PgHistory, PgInfo, PgSums};
pub use interval::{Interval, IntervalKey, Members, PastIntervals};
pub use io::{BootAddrs, DiskQuestion, FatalReason, HeartbeatNet, Input, LogLevel, Output, PeerInfo};
pub use log::{PgLog, Recorded, Trimmed};
pub use merge::{LogPart, MergeError, Merged, MergedShards};
pub use missing::{Missing, MissingItem};
pub use osd::{Logged, MetaError, OsdCore, Purpose, Superblock, has_share};
pub use pg::state::pg_state;
pub use watch::{NewNotify, WatchKey, Watches};

/// What this daemon says when it is asked for its version, in the form that Ceph's tools parse.
pub(crate) const VERSION_TEXT: &str =
    concat!("ceph version 16.2.15 (loligo ", env!("CARGO_PKG_VERSION"), ") pacific (stable)");
pub(crate) const VERSION_SHORT: &str = "16.2.15";
