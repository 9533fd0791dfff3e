//! The metadata server of a file system. So far its formats: what it keeps in its pool, in the form of Ceph
//! 16.2, so that either server goes on with what the other wrote.
//!
//! Source: src/mds as of 16.2; where 16.2.15 writes more than its first release, its bytes are the source
//! (`tests/data`).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

pub mod format;
