//! The metadata server of a file system: what it keeps in its pool, in the form of Ceph 16.2 so that either
//! server goes on with what the other wrote ([`mod@format`]), how that is read and written ([`storage`]), and
//! one active rank ([`core`]). None of it does IO; the shell is in `daemons::mds`.
//!
//! Not done, beside what `core` lists:
//! - Storage: a journal of the format before 0.80 is read and not rewritten, so that its rank is not served;
//!   a rewrite of Ceph's that was cut off is left where it is (the journal in front counts). Tables of
//!   sessions and base inodes in the forms of before 0.80 are damage. How much is purged at once does not
//!   depend on the PGs of the data pools. The table of open files is neither read nor written.
//! - A standby that is told to follow a rank waits for it and reads the whole journal when it has the rank;
//!   storage can follow ([`storage::Storage::follow`]), the core cannot.
//! - Options of Ceph's but `mds_join_fs` have no effect: `storage::Settings` and `core::Settings` have their
//!   defaults.
//! - The shell has no session with the manager, so `ceph fs status` shows no rates; beacons bring no health;
//!   no connections between ranks; on Ceph's own monitors clients' tickets are refused. Of Ceph's commands
//!   there are `status`, `session ls|evict`, `client ls|evict`, `cache status`, `flush journal` and what
//!   every daemon has; none for operations under way, damage and scrubs.
//!
//! Source: src/mds as of 16.2; where 16.2.15 writes more than its first release, its bytes are the source
//! (`tests/data`).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

pub mod core;
pub mod format;
pub mod storage;

pub use core::{CacheView, Effect, Input, OsdMapView, Peer, Server, SessionView, Settings};
