//! The heads of versioned objects in a bucket index: what gateways read and trim of their logs.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::wire_struct;
use types::Errno;

pub(super) use ::rgw::index::head::{LINK, REMOVE_INSTANCE, UNLINK};
pub(super) use ::rgw::index::{Head, HeadChange};

use super::names;
use crate::registry::Done;
use crate::{ObjectView, keys};
use ::rgw::index::entry::{Entry, Key, VERSION_MARKER};

/// Epochs whose changes one answer holds. Source: MAX_OLH_LOG_ENTRIES in src/cls/rgw/cls_rgw.cc.
const MAX_EPOCHS: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogArgs {
    pub key: Key,
    /// Changes behind this epoch when reading, up to it when trimming.
    pub epoch: u64,
    pub tag: Bytes,
}
wire_struct!(LogArgs(1, 1) { key, epoch, tag });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadLogReply {
    pub log: BTreeMap<u64, Vec<HeadChange>>,
    pub truncated: bool,
}
wire_struct!(ReadLogReply(1, 1) { log, truncated });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearArgs {
    pub key: Key,
    pub tag: Bytes,
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
