//! Where an inode is linked, up to the root: found with its data when only its number is known.
//!
//! Source: src/mds/inode_backtrace.h and inode_backtrace.cc.

use std::collections::BTreeSet;

use messages::fs::FileName;
use types::{Ino, PoolId};

use super::wire::stored;

/// A step towards the root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backpointer {
    pub dir: Ino,
    pub name: FileName,
    /// The version of the inode that is linked there, at the time of writing.
    pub version: u64,
}
stored!(Backpointer(2, 2, 2) { dir, name, version });

/// The attribute `parent` of an inode's first object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backtrace {
    pub ino: Ino,
    /// From the inode up; the root and the servers' own folders have none.
    pub ancestors: Vec<Backpointer>,
    /// The pool that this was written to.
    pub pool: PoolId,
    /// Earlier pools, where a newer copy of it may be missing.
    pub old_pools: BTreeSet<PoolId>,
}
stored!(Backtrace(5, 4, 5) { ino, ancestors, pool, old_pools });
