//! A mounted file system beside libcephfs: on Ceph's metadata servers, or others that speak as they do.
//!
//! Needs a cluster with a file system, Ceph 16.2 for instance, two metadata servers (a standby takes over
//! when one is failed), and python3-cephfs; its client.admin must be allowed everything:
//!
//! ```text
//! CEPHFS_TEST_CONF=/etc/ceph/ceph.conf cargo test -p cephfsio --test mounted
//! ```

mod setup;

mod data;
mod failover;
mod locks;
mod namespace;
mod ranks;
mod snapshots;
