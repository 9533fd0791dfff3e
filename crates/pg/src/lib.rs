//! The whole OSD without IO: placement groups, their logs, peering, replication and recovery as a state machine.
//!
//! One owner feeds `OsdCore::handle` with inputs and carries out the outputs; the only thing it touches besides is the
//! object store it owns, through synchronous calls that never wait for a flush.
#![forbid(unsafe_code)]

pub mod io;

mod config;

pub mod exec;
pub mod object;

mod info;
mod interval;
mod entry;
mod log;
mod missing;
mod merge;
mod hash;

pub use config::OsdConfig;
pub use entry::{DupEntry, EntryKind, LogEntry, OpReturn};
pub use info::{PgHistory, PgInfo, PgSums};
pub use interval::{Interval, IntervalKey, Members, PastIntervals};
pub use io::{BootAddrs, FatalReason, Input, LogLevel, Output, PeerInfo};
pub use log::{PgLog, Recorded, Trimmed};
pub use merge::{LogPart, MergeError, Merged};
pub use missing::{Missing, MissingItem};
