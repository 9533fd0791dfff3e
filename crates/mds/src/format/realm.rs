//! Snapshots of a directory: what a realm keeps of them in its inode, and a table of the whole file system.
//!
//! Source: SnapInfo, snaplink_t, sr_t in src/mds/snap.h and snap.cc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::{Ino, SnapId, Utime};

use super::wire::stored;

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapInfo {
    pub snap: SnapId,
    /// The directory that it is of.
    pub ino: Ino,
    pub stamp: Utime,
    pub name: Bytes,
    pub metadata: BTreeMap<Bytes, Bytes>,
}
stored!(SnapInfo(3, 2, 2) { snap, ino, stamp, name } since 3 { metadata });

/// A realm that was above another one, from snapshot `first` on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapLink {
    pub ino: Ino,
    pub first: SnapId,
}
stored!(SnapLink(2, 2, 2) { ino, first });

/// A realm: the snapshots of a directory, and those that it brought along from where it was before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapRealm {
    /// Grows with each change of the realm.
    pub seq: SnapId,
    pub created: SnapId,
    pub last_created: SnapId,
    pub last_destroyed: SnapId,
    pub current_parent_since: SnapId,
    pub snaps: BTreeMap<SnapId, SnapInfo>,
    /// By their last snapshot; only file systems from before 14.0 have any.
    pub past_parents: BTreeMap<SnapId, SnapLink>,
    pub past_parent_snaps: BTreeSet<SnapId>,
    /// `PARENT_GLOBAL`, `SUBVOLUME`.
    pub flags: u32,
}
stored!(SnapRealm(6, 4, 4) {
    seq, created, last_created, last_destroyed, current_parent_since, snaps, past_parents
} since 5 { past_parent_snaps } since 6 { flags });

impl SnapRealm {
    /// Its parent is the realm above all others: an inode without a name that is in snapshots.
    pub const PARENT_GLOBAL: u32 = 1;
    /// No snapshot may be taken of a directory below it, and no hard link crosses it.
    pub const SUBVOLUME: u32 = 1 << 1;
}

impl Default for SnapRealm {
    fn default() -> Self {
        Self {
            seq: SnapId(0),
            created: SnapId(0),
            last_created: SnapId(0),
            last_destroyed: SnapId(0),
            current_parent_since: SnapId(1),
            snaps: BTreeMap::new(),
            past_parents: BTreeMap::new(),
            past_parent_snaps: BTreeSet::new(),
            flags: 0,
        }
    }
}
