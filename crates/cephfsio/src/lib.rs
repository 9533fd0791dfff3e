//! A mounted file system: [`Mount`] runs calls through the core `cephfs` over a cluster's connections.
//!
//! ```no_run
//! # async fn example() -> cephfsio::Result<()> {
//! let cluster = rados::Cluster::connect(rados::Config::from_file("ceph.conf")?).await?;
//! let (mount, root) = cephfsio::Mount::new(cluster, cephfs::Settings::default(), "/").await?;
//! let (dir, name) = (root.node, "letters".into());
//! mount.call(cephfs::Call::Mkdir { dir, name, mode: 0o755 }).await?;
//! mount.unmount().await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod error;
mod mount;
mod shell;

pub use error::{Error, Result};
pub use mount::Mount;
