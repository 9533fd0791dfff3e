//! The OSD's object store on one block device or file: log, extents, checksums, omap. FORMAT.md has the layout, the
//! commit protocol, the invariants and what is assumed of the medium.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod device;
mod error;
mod jobs;
mod key;
mod options;
mod store;
mod txn;
mod txn_wire;

pub use device::{Device, DeviceError, DeviceOp};
pub use error::{Corruption, Foreign, Misuse, StoreError};
pub use jobs::{Checkpoint, CheckpointDone, Commit, CommitDone};
pub use key::{ObjectKey, Space};
pub use options::{Counters, FormatOptions, Identity, ObjectStat, Options, Statfs};
pub use store::{KeyPage, Store};
pub use txn::{ObjectIndex, Op, Txn, TxnSeq};
