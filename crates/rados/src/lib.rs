//! The async client library of RADOS: [`Cluster`], its pools as [`IoCtx`], operations on their objects.
//!
//! ```no_run
//! # async fn example() -> rados::Result<()> {
//! let cluster = rados::Cluster::connect(rados::Config::from_file("ceph.conf")?).await?;
//! let pool = cluster.pool("mail").await?;
//! pool.write_full("greeting", "hello").await?;
//! assert_eq!(pool.read("greeting", 0, 5).await?, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! Operations are submitted when the method is called or, for methods that return a [`Pending`], before it returns; those of
//! one object are carried out in that order. It speaks to Loligo and to Ceph 16.2 alike.
//!
//! Source: src/librados (what the calls mean), src/osdc/Objecter.cc (in the crate `objecter`).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod error;

mod conf;
mod config;

mod cluster;
mod ioctx;
mod ops;

mod list;
mod lock;
mod lock_wire;
mod pool;
mod snaps;
mod watch;

mod companion;
mod shell;

pub use cluster::{Cluster, ClusterStat, CommandOutput, Pending, Reply};
pub use companion::Companion;
pub use conf::{Conf, ConfError};
pub use config::{Config, Find, GatewayOptions, parse_mon_host};
pub use error::{Error, Result};
pub use ioctx::{IoCtx, ObjectStat, OmapPage, SparseRead};
pub use list::{Cursor, ListFilter, ListedObject, Objects};
pub use lock::{LockHolder, LockInfo, LockKind, LockRequest};
pub use objecter::Settings;
pub use ops::{CopyFrom, ReadOp, WriteOp};
pub use pool::PoolStat;
pub use runtime::session::Method;
pub use snaps::ObjectSnaps;
pub use watch::{Notified, NotifyReply, Watch, WatchEvent};

/// Types of the protocol that appear in signatures.
pub use messages::osd::{CloneInfo, CmpOp, OpResult, WatchItem, checksum_type, op_flags};
pub use types::{AuthName, EntityType, Epoch, Errno, PgId, PoolId, SnapContext, SnapId, Utime};
