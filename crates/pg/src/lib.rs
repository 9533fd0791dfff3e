//! The whole OSD without IO: placement groups, their logs, peering, replication and recovery as a state machine.
//!
//! One owner feeds `OsdCore::handle` with inputs and carries out the outputs; the only thing it touches besides is the
//! object store it owns, through synchronous calls that never wait for a flush.
#![forbid(unsafe_code)]

pub mod io;

mod config;

mod entry;
mod hash;
mod log;

pub use config::OsdConfig;
pub use entry::{DupEntry, EntryKind, LogEntry, OpReturn};
pub use io::{BootAddrs, FatalReason, Input, LogLevel, Output, PeerInfo};
pub use log::{PgLog, Recorded, Trimmed};
