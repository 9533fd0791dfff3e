//! The client library against a real cluster: Loligo's, or Ceph's.
//!
//! Against a Loligo that each run starts and stops (what the gate does; `LOLIGO_BIN` names the program):
//!
//! ```text
//! LOLIGO_BIN=target/release/loligo cargo test -p rados --test client_library
//! ```
//!
//! Against a cluster that runs already, Ceph 16.2 for instance; its client.admin must be allowed to make pools:
//!
//! ```text
//! RADOS_TEST_CONF=/etc/ceph/ceph.conf cargo test -p rados --test client_library
//! ```

mod setup;

mod load;
mod objects;
mod pools;
mod watches;
