//! The OSD's object store on one block device or file: log, extents, checksums, omap. FORMAT.md has the layout, the
//! commit protocol, the invariants and what is assumed of the medium.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod store;

mod open;
mod pool_totals;
mod read_plan;
mod reads;

mod device;
mod error;
mod key;
mod options;
mod txn;
mod txn_wire;

mod apply;
mod apply_data;
mod apply_move;
mod data;
mod onode;
mod onode_wire;
mod refs;
mod stage;
mod written;

mod jobs;
mod log;
mod record;
mod replay;

mod checkpoint;
mod discard;
mod index;
mod map;
mod memtable;
mod merge;
mod page;
mod superblock;
mod tree;

mod fsck;

mod alloc;
mod cache;
mod checksum;

#[cfg(feature = "hostile")]
pub mod hostile;

pub use checkpoint::{Checkpoint, CheckpointDone};
pub use checksum::blocks_digest;
pub use device::{Device, DeviceError, DeviceOp};
pub use error::{Corruption, Foreign, Misuse, StoreError};
pub use fsck::{Finding, FsckReport, fsck};
pub use jobs::{Commit, CommitDone};
pub use key::{ObjectKey, Space};
#[doc(hidden)]
#[cfg(feature = "planted")]
pub use options::Planted;
pub use options::{Counters, FormatOptions, Identity, ObjectStat, Options, PoolTotals, Priority, Statfs};
pub use read_plan::{Found, PlanRead, ReadPlan};
pub use reads::KeyPage;
pub use store::Store;
pub use txn::{Laid, ObjectIndex, Op, Txn, TxnSeq};
