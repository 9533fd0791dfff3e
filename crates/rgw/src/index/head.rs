//! Heads of versioned objects: which version is the newest, and the log of changes that a gateway has still
//! to make to the object's head, its "object logical head".

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::wire_struct;

use super::entry::Key;

/// What the gateway is to do. Source: OLHLogOp in src/cls/rgw/cls_rgw_types.h.
pub const LINK: u8 = 1;
pub const UNLINK: u8 = 2;
pub const REMOVE_INSTANCE: u8 = 3;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeadChange {
    pub epoch: u64,
    pub op: u8,
    pub op_tag: Bytes,
    pub key: Key,
    pub delete_marker: bool,
}
wire_struct!(HeadChange(1, 1) { epoch, op, op_tag, key, delete_marker });

/// Source: rgw_bucket_olh_entry in src/cls/rgw/cls_rgw_types.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// The newest version.
    pub key: Key,
    pub delete_marker: bool,
    pub epoch: u64,
    /// By the epoch in which they came.
    pub log: BTreeMap<u64, Vec<HeadChange>>,
    pub tag: Bytes,
    pub exists: bool,
    pub removal_pending: bool,
}
wire_struct!(Head(1, 1) { key, delete_marker, epoch, log, tag, exists, removal_pending });

impl Head {
    /// Moves to an epoch, or to the next one for 0; not when it is past that one.
    pub fn advance(&mut self, epoch: u64) -> bool {
        if epoch != 0 {
            let newer = epoch >= self.epoch;
            if newer {
                self.epoch = epoch;
            }
            return newer;
        }
        // 1 is for plain entries that became versions.
        self.epoch = if self.epoch == 0 { 2 } else { self.epoch.wrapping_add(1) };
        true
    }

    /// Logs a change under the head's epoch.
    pub fn log(&mut self, change: HeadChange) {
        self.log.entry(self.epoch).or_default().push(change);
    }
}
