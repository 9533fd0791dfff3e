//! Heads of versioned objects: which version is the newest, and the log of changes that a gateway has still
//! to make to the object's head, its "object logical head".

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::wire_struct;
use types::Errno;

use super::entry::{Entry, Key, VERSION_MARKER};
use super::names;
use crate::registry::Done;
use crate::{ObjectView, keys};

/// Epochs whose changes one answer holds. Source: MAX_OLH_LOG_ENTRIES in src/cls/rgw/cls_rgw.cc.
const MAX_EPOCHS: usize = 1000;

/// What the gateway is to do. Source: OLHLogOp in src/cls/rgw/cls_rgw_types.h.
pub(super) const LINK: u8 = 1;
pub(super) const UNLINK: u8 = 2;
pub(super) const REMOVE_INSTANCE: u8 = 3;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HeadChange {
    pub epoch: u64,
    pub op: u8,
    pub op_tag: Bytes,
    pub key: Key,
    pub delete_marker: bool,
}
wire_struct!(HeadChange(1, 1) { epoch, op, op_tag, key, delete_marker });

/// Source: rgw_bucket_olh_entry in src/cls/rgw/cls_rgw_types.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Head {
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
    pub(super) fn advance(&mut self, epoch: u64) -> bool {
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
    pub(super) fn log(&mut self, change: HeadChange) {
        self.log.entry(self.epoch).or_default().push(change);
    }
}

pub(super) struct LogArgs {
    key: Key,
    /// Changes behind this epoch when reading, up to it when trimming.
    epoch: u64,
    tag: Bytes,
}
wire_struct!(LogArgs(1, 1) { key, epoch, tag });

pub(super) struct ReadLogReply {
    log: BTreeMap<u64, Vec<HeadChange>>,
    truncated: bool,
}
wire_struct!(ReadLogReply(1, 1) { log, truncated });

pub(super) struct ClearArgs {
    key: Key,
    tag: Bytes,
}
wire_struct!(ClearArgs(1, 1) { key, tag });

/// An object's head and its key; ECANCELED when it is another one than the caller knows. One that is not
/// there has no tag.
fn head_with_tag(v: &mut dyn ObjectView, key: &Key, tag: &Bytes) -> Result<(Bytes, Head), Errno> {
    if !key.instance.is_empty() {
        return Err(Errno::EINVAL);
    }
    let at = names::head(&key.name);
    let head: Head = keys::find(v, &at)?.unwrap_or_default();
    if head.tag == *tag { Ok((at, head)) } else { Err(Errno::ECANCELED) }
}

pub(super) fn read_log(v: &mut dyn ObjectView, args: LogArgs) -> Result<ReadLogReply, Errno> {
    let (_, mut head) = head_with_tag(v, &args.key, &args.tag)?;
    let mut log = args.epoch.checked_add(1).map_or_else(BTreeMap::new, |next| head.log.split_off(&next));
    let behind = log.keys().nth(MAX_EPOCHS).copied();
    let truncated = behind.is_some();
    if let Some(epoch) = behind {
        log.split_off(&epoch);
    }
    Ok(ReadLogReply { log, truncated })
}

pub(super) fn trim_log(v: &mut dyn ObjectView, args: LogArgs) -> Result<Done, Errno> {
    let (at, mut head) = head_with_tag(v, &args.key, &args.tag)?;
    head.log.retain(|epoch, _| *epoch > args.epoch);
    keys::write(v, at, &head)?;
    Ok(Done)
}

/// Removes the head, and the plain entry that stands for its versions.
pub(super) fn clear(v: &mut dyn ObjectView, args: ClearArgs) -> Result<Done, Errno> {
    let (at, _) = head_with_tag(v, &args.key, &args.tag)?;
    v.omap_remove(at)?;
    let plain: Option<Entry> = keys::find(v, &args.key.name)?;
    if plain.is_some_and(|entry| entry.has(VERSION_MARKER)) {
        v.omap_remove(args.key.name)?;
    }
    Ok(Done)
}
