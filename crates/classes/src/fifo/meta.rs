//! The header of a queue.

use std::collections::BTreeSet;

use bytes::Bytes;
use codec::Encode;
use types::Errno;

use super::types::{
    CreateArgs, ENTRY_OVERHEAD, GetArgs, GetReply, Info, Journal, OldTag, OldTags, PART_HEADER_SIZE, Params,
    UpdateArgs, Version,
};
use crate::registry::{Done, stored};
use crate::{ObjectView, names};

/// Letters of an instance, of one in the place of a caller's empty one, and of the end of a prefix. Two of
/// them are one less than Ceph names them, as `cls_gen_rand_base64` ends what it returns with a zero.
const INSTANCE: usize = 16;
const GIVEN_INSTANCE: usize = 15;
const PREFIX_END: std::ops::Range<usize> = 13..24;

/// EEXIST for another queue than the one that is there, or when `exclusive` is set.
pub(super) fn create(v: &mut dyn ObjectView, args: CreateArgs) -> Result<Done, Errno> {
    let sizes = 1..=args.max_part_size;
    if args.id.is_empty() || !sizes.contains(&args.max_entry_size) {
        return Err(Errno::EINVAL);
    }
    match v.stat() {
        Err(Errno::ENOENT) => {}
        Err(e) => return Err(e),
        Ok(_) if args.exclusive => return Err(Errno::EEXIST),
        Ok(stat) => return same(&load(v, stat.size)?, &args),
    }
    let made_up = names::made_up(v);
    let instance = made_up.slice(..INSTANCE);
    let version = args.version.unwrap_or(Version { instance, number: 1 });
    let prefix =
        args.prefix.unwrap_or_else(|| [&args.id[..], b".", &made_up.slice(PREFIX_END)].concat().into());
    let spared = args.max_entry_size.wrapping_add(ENTRY_OVERHEAD.into());
    let params = Params {
        max_part_size: args.max_part_size,
        max_entry_size: args.max_entry_size,
        full_size_threshold: args.max_part_size.wrapping_sub(spared),
    };
    let info = Info {
        id: args.id,
        version,
        prefix,
        params,
        tail: 0,
        head: -1,
        min_push: 0,
        max_push: -1,
        old_tags: OldTags,
        old_head_tag: OldTag,
        journal: Journal(BTreeSet::new()),
    };
    save(v, info)
}

fn same(there: &Info, args: &CreateArgs) -> Result<Done, Errno> {
    let same = there.id == args.id
        && args.prefix.as_ref().is_none_or(|prefix| *prefix == there.prefix)
        && args.version.as_ref().is_none_or(|version| *version == there.version);
    if same { Ok(Done) } else { Err(Errno::EEXIST) }
}

pub(super) fn get(v: &mut dyn ObjectView, args: GetArgs) -> Result<GetReply, Errno> {
    let info = checked(v, args.version.as_ref())?;
    Ok(GetReply { info, part_header_size: PART_HEADER_SIZE as u32, entry_overhead: ENTRY_OVERHEAD })
}

/// ECANCELED when the caller knows another version than what is there.
pub(super) fn update(v: &mut dyn ObjectView, args: UpdateArgs) -> Result<Done, Errno> {
    if args.version.instance.is_empty() {
        return Err(Errno::EINVAL);
    }
    let before = checked(v, Some(&args.version))?;
    let mut info = before.clone();
    info.tail = args.tail.unwrap_or(info.tail);
    info.min_push = args.min_push.unwrap_or(info.min_push);
    info.max_push = args.max_push.unwrap_or(info.max_push);
    info.head = args.head.unwrap_or(info.head);
    let mut changed = info != before;
    for task in args.add {
        // An OSD of Ceph aborts on a task that is none.
        if !task.is_valid() {
            return Err(Errno::EINVAL);
        }
        changed |= info.journal.0.insert(task);
    }
    for task in &args.remove {
        changed |= info.journal.0.remove(task);
    }
    if !changed {
        return Ok(Done);
    }
    info.version.number = info.version.number.wrapping_add(1);
    save(v, info)
}

/// The header, of the version that the caller knows.
fn checked(v: &mut dyn ObjectView, version: Option<&Version>) -> Result<Info, Errno> {
    let size = v.stat()?.size;
    if size == 0 {
        return Err(Errno::ENODATA);
    }
    let info = load(v, size)?;
    if version.is_some_and(|version| *version != info.version) {
        return Err(Errno::ECANCELED);
    }
    Ok(info)
}

fn load(v: &mut dyn ObjectView, size: u64) -> Result<Info, Errno> {
    let raw = if size == 0 { Bytes::new() } else { v.read(0, size)? };
    let info: Info = stored(raw)?;
    if info.journal.0.iter().all(|task| task.is_valid()) { Ok(info) } else { Err(Errno::EIO) }
}

fn save(v: &mut dyn ObjectView, mut info: Info) -> Result<Done, Errno> {
    if info.version.instance.is_empty() {
        info.version.instance = names::made_up(v).slice(..GIVEN_INSTANCE);
    }
    v.write_full(info.to_bytes())?;
    Ok(Done)
}
