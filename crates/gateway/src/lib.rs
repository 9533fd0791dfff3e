//! What a gateway of object storage does on RADOS: users, buckets and objects as radosgw 16.2 keeps them, so
//! that each reads, lists and deletes what the other wrote.
//!
//! The core does no IO. Each operation is a `Plan`: requests to RADOS as data, and what goes on with their
//! replies. A gateway performs the requests; a test stops between any two of them.
//!
//! What is known and not mended yet is in `crates/gateway/GATEWAY.md`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

// Requests to RADOS, and operations made of them.
mod ask;
mod error;
mod plan;

// The zone, and what is given to operations from outside.
mod boot;
mod site;
mod system;

// Users and buckets.
mod bucket_logs;
mod buckets;
mod leftovers;
mod owners;
mod usage;
mod users;

// What buckets hold.
mod garbage;
pub mod lifecycle;
mod objects;
mod turn;

pub use ask::{Op, Output, Reply, Request};
pub use boot::Start;
pub use bucket_logs::{Appended, LogUnderWay};
pub use buckets::{BucketState, BucketStats, NewBucket, ShardState};
pub use error::Error;
pub use garbage::{SHARDS as GARBAGE_SHARDS, Swept};
pub use objects::{
    AttrChange, Complete, Condition, CopyTo, Finish, FinishPart, Head, Listed, ListedVersion, Listing, Lock,
    MAX_PARTS, MIN_PART, OfParts, Opened, Part, Removed, Remover, Seal, SharedBucket, Upload, UploadId,
    Wanted, Written,
};
pub use plan::{Plan, Rados};
pub use site::{Moment, Site};
pub use system::Stored;
pub use users::Subusers;

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod recorded;
