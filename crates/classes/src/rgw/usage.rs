//! The usage log: what users did in an hour, under a key by time and one by user. Source:
//! src/cls/rgw/cls_rgw.cc.

use std::collections::BTreeMap;

use ::rgw::UsageEntry;
use bytes::Bytes;
use codec::{Decode, wire_struct};
use types::Errno;

use crate::ObjectView;
use crate::registry::{Done, Nothing, wire_grown};
use crate::wire::c_text;
use crate::{keys, keys::optional};

const MAX_ENTRIES: u32 = 1000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info {
    pub entries: Vec<UsageEntry>,
}
wire_struct!(Info(1, 1) { entries });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddArgs {
    pub info: Info,
    /// Of no account.
    pub user: Bytes,
}
wire_grown!(AddArgs(2, 1) { info; 2: user });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadArgs {
    /// Seconds since 1970.
    pub start: u64,
    /// Not included.
    pub end: u64,
    /// Any, when empty.
    pub user: Bytes,
    /// Where an earlier call ended; takes precedence over `start`.
    pub marker: Bytes,
    pub max: u32,
    /// Any, when empty.
    pub bucket: Bytes,
}
wire_grown!(ReadArgs(2, 1) { start, end, user, marker, max; 2: bucket });

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserBucket {
    pub user: Bytes,
    pub bucket: Bytes,
}
wire_struct!(UserBucket(1, 1) { user, bucket });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadReply {
    pub usage: BTreeMap<UserBucket, UsageEntry>,
    pub truncated: bool,
    pub next_marker: Bytes,
}
wire_struct!(ReadReply(1, 1) { usage, truncated, next_marker });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrimArgs {
    pub start: u64,
    pub end: u64,
    pub user: Bytes,
    pub bucket: Bytes,
}
wire_grown!(TrimArgs(3, 2) { start, end, user; 3: bucket });

fn time_key(epoch: u64, user: &[u8], bucket: &[u8]) -> Bytes {
    [format!("{epoch:011}_").as_bytes(), c_text(user), b"_", c_text(bucket)].concat().into()
}

fn user_key(user: &[u8], epoch: u64, bucket: &[u8]) -> Bytes {
    [c_text(user), format!("_{epoch:011}_").as_bytes(), c_text(bucket)].concat().into()
}

/// An entry that does not decode is the caller's fault to Ceph.
fn decoded(value: Bytes) -> Result<UsageEntry, Errno> {
    UsageEntry::from_bytes(value).map_err(|_| Errno::EINVAL)
}

pub(super) fn add(v: &mut dyn ObjectView, args: AddArgs) -> Result<Done, Errno> {
    for mut entry in args.info.entries {
        let user = entry.user().to_text();
        let key = time_key(entry.epoch, &user, &entry.bucket);
        if let Some(earlier) = optional(v.omap_value(&key)).map_err(|_| Errno::EINVAL)? {
            entry.aggregate(&decoded(earlier)?);
        }
        keys::write(v, key, &entry)?;
        keys::write(v, user_key(&user, entry.epoch, &entry.bucket), &entry)?;
    }
    Ok(Done)
}

/// What a walk along the log found.
struct Found {
    entries: Vec<UsageEntry>,
    truncated: bool,
    /// The last key that was looked at.
    marker: Bytes,
}

fn walk(v: &mut dyn ObjectView, args: ReadArgs) -> Result<Found, Errno> {
    let by_user = !args.user.is_empty();
    let begin = match &args.marker {
        marker if !marker.is_empty() => marker.clone(),
        _ if by_user => user_key(&args.user, args.start, b""),
        _ => format!("{:011}", args.start).into(),
    };
    let (prefix, end) = ([&args.user[..], b"_"].concat(), format!("{:011}", args.end));
    let (page, truncated) = v.omap_list(&begin, b"", u64::from(args.max))?;
    let mut found = Found { entries: Vec::new(), truncated, marker: args.marker };
    for (key, value) in page {
        found.marker = key.clone();
        let in_range = if by_user { key.starts_with(&prefix) } else { key < end.as_bytes() };
        if !in_range {
            found.truncated = false;
            break;
        }
        let entry = decoded(value)?;
        if !args.bucket.is_empty() && args.bucket != entry.bucket || entry.epoch < args.start {
            continue;
        }
        if entry.epoch >= args.end {
            found.truncated = false;
            break;
        }
        found.entries.push(entry);
    }
    Ok(found)
}

pub(super) fn read(v: &mut dyn ObjectView, mut args: ReadArgs) -> Result<ReadReply, Errno> {
    if args.max == 0 {
        args.max = MAX_ENTRIES;
    }
    let found = walk(v, args)?;
    let mut usage = BTreeMap::<UserBucket, UsageEntry>::new();
    for entry in found.entries {
        let key = UserBucket { user: entry.user().to_text(), bucket: entry.bucket.clone() };
        usage.entry(key).or_default().aggregate(&entry);
    }
    let next_marker = if found.truncated { found.marker } else { Bytes::new() };
    Ok(ReadReply { usage, truncated: found.truncated, next_marker })
}

/// Removes what the owner's keys lead to, as Ceph does also where another one pays. ENODATA when nothing is
/// left to remove.
pub(super) fn trim(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    v.stat()?;
    let TrimArgs { start, end, user, bucket } = crate::registry::input(bytes)?;
    let found = walk(v, ReadArgs { start, end, user, bucket, max: MAX_ENTRIES, ..ReadArgs::default() })?;
    if found.entries.is_empty() && !found.truncated {
        return Err(Errno::ENODATA);
    }
    for entry in found.entries {
        let owner = entry.owner.to_text();
        v.omap_remove(time_key(entry.epoch, &owner, &entry.bucket))?;
        v.omap_remove(user_key(&owner, entry.epoch, &entry.bucket))?;
    }
    Ok(0)
}

pub(super) fn clear(v: &mut dyn ObjectView, _: Nothing) -> Result<Done, Errno> {
    optional(v.omap_clear())?;
    Ok(Done)
}
