//! A bucket's index, in the omaps of its shards: an entry for each object of the bucket, heads of versioned
//! objects, a log of changes, and sums in the header.

pub mod entry;
pub mod head;
mod header;
pub mod log;
mod zones;

pub use entry::{Entry, Key, Meta, Pending, PendingMap, Written};
pub use head::{Head, HeadChange};
pub use header::{Header, Resharding, Stats};
pub use log::LogEntry;
pub use zones::Zones;
