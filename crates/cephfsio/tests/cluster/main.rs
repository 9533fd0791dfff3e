//! A mounted file system beside libcephfs, on Ceph's metadata servers and on ours.
//!
//! On two clusters of Loligo that each run starts and stops, one with three `ceph-mds` and one with three
//! servers of ours (what the gate does; `LOLIGO_BIN` names the program):
//!
//! ```text
//! LOLIGO_BIN=target/release/loligo cargo test -p cephfsio --test mounted
//! ```
//!
//! On a cluster that runs already, Ceph 16.2 for instance, with a file system `cephfs` and three metadata
//! servers; its client.admin must be allowed everything:
//!
//! ```text
//! CEPHFS_TEST_CONF=/etc/ceph/ceph.conf cargo test -p cephfsio --test mounted
//! ```
//!
//! Both need python3-cephfs.

mod server;
mod setup;

mod data;
mod failover;
mod locks;
mod namespace;
mod random;
mod ranks;
mod snapshots;
