//! Objects themselves: they are removed but for some attributes, and operations on them are held to conditions.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Encode, wire_struct};
use types::{Errno, Utime};

use crate::ObjectView;
use crate::registry::Done;
use crate::wire::RealTime;

pub(super) struct RemoveArgs {
    /// Attributes that begin with one of these stay, on an object that is empty otherwise.
    keep: Vec<Bytes>,
}
wire_struct!(RemoveArgs(1, 1) { keep });

pub(super) struct StoreVersionArgs {
    attr: Bytes,
}
wire_struct!(StoreVersionArgs(1, 1) { attr });

pub(super) struct CheckPrefixArgs {
    prefix: Bytes,
    /// The check fails if there is an attribute, otherwise if there is none.
    fail_if_exists: bool,
}
wire_struct!(CheckPrefixArgs(1, 1) { prefix, fail_if_exists });

pub(super) struct CheckMtimeArgs {
    mtime: RealTime,
    /// Source: RGWCheckMTimeType in src/cls/rgw/cls_rgw_types.h.
    condition: u8,
    /// Times are compared with their nanoseconds.
    precise: bool,
}
wire_struct!(CheckMtimeArgs(2, 1) { mtime, condition } since 2 { precise });

/// None for an object that does not exist.
fn attributes(v: &mut dyn ObjectView) -> Result<BTreeMap<Bytes, Bytes>, Errno> {
    match v.xattrs() {
        Err(Errno::ENOENT) => Ok(BTreeMap::new()),
        other => other,
    }
}

pub(super) fn remove(v: &mut dyn ObjectView, args: RemoveArgs) -> Result<Done, Errno> {
    if args.keep.is_empty() {
        return v.remove().map(|()| Done);
    }
    let mut kept = attributes(v)?;
    kept.retain(|name, _| args.keep.iter().any(|prefix| name.starts_with(prefix)));
    v.remove()?;
    if !kept.is_empty() {
        v.create(false)?;
    }
    for (name, value) in kept {
        v.set_xattr(&name, value)?;
    }
    Ok(Done)
}

/// Keeps the version that the placement group has come to, so that a write can be told from an earlier one.
pub(super) fn store_pg_version(v: &mut dyn ObjectView, args: StoreVersionArgs) -> Result<Done, Errno> {
    // C's strings end there.
    let name = args.attr.split(|b| *b == 0).next().unwrap_or_default();
    let version = v.current_version().to_bytes();
    v.set_xattr(name, version)?;
    Ok(Done)
}

pub(super) fn check_attrs_prefix(v: &mut dyn ObjectView, args: CheckPrefixArgs) -> Result<Done, Errno> {
    if args.prefix.is_empty() {
        return Err(Errno::EINVAL);
    }
    let exists = attributes(v)?.keys().any(|name| name.starts_with(&args.prefix));
    if exists == args.fail_if_exists { Err(Errno::ECANCELED) } else { Ok(Done) }
}

pub(super) fn check_mtime(v: &mut dyn ObjectView, args: CheckMtimeArgs) -> Result<Done, Errno> {
    let mtime = match v.stat() {
        Err(Errno::ENOENT) => Utime::ZERO,
        stat => stat?.mtime,
    };
    let whole = |t: Utime| if args.precise { t } else { Utime::new(t.sec, 0) };
    let (known, given) = (whole(mtime), whole(args.mtime.0));
    let holds = match args.condition {
        0 => known == given,
        1 => known < given,
        2 => known <= given,
        3 => known > given,
        4 => known >= given,
        _ => return Err(Errno::EINVAL),
    };
    if holds { Ok(Done) } else { Err(Errno::ECANCELED) }
}
