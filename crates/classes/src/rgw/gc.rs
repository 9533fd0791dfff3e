//! Garbage: objects to be removed, each list of them under its tag and again under its time. Source:
//! src/cls/rgw/cls_rgw.cc.

use ::rgw::Garbage;
use bytes::Bytes;
use codec::wire_struct;
use types::{Errno, RealTime, Utime};

use crate::registry::{Done, stored, wire_grown};
use crate::{ObjectView, keys};

const BY_TAG: &str = "0_";
const BY_TIME: &str = "1_";
/// Entries of a listing that asks for none.
const MAX_ENTRIES: u32 = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetArgs {
    pub expires_in_s: u32,
    pub info: Garbage,
}
wire_struct!(SetArgs(1, 1) { expires_in_s, info });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeferArgs {
    pub expires_in_s: u32,
    pub tag: Bytes,
}
wire_struct!(DeferArgs(1, 1) { expires_in_s, tag });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListArgs {
    pub marker: Bytes,
    /// 0 for as many as the class likes.
    pub max: u32,
    pub expired_only: bool,
}
wire_grown!(ListArgs(2, 1) { marker, max; 2: expired_only });

impl Default for ListArgs {
    fn default() -> Self {
        Self { marker: Bytes::new(), max: 0, expired_only: true }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReply {
    pub entries: Vec<Garbage>,
    pub next_marker: Bytes,
    pub truncated: bool,
}
wire_struct!(ListReply(2, 1) { entries, next_marker, truncated });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveArgs {
    pub tags: Vec<Bytes>,
}
wire_struct!(RemoveArgs(1, 1) { tags });

impl ListArgs {
    /// How many entries are asked for.
    pub(crate) fn max(&self) -> u32 {
        if self.max == 0 { MAX_ENTRIES } else { self.max }
    }
}

/// So many seconds from now.
pub(crate) fn time_in(v: &dyn ObjectView, seconds: u32) -> RealTime {
    let now = v.now();
    RealTime(Utime::new(now.sec.wrapping_add(seconds), now.nsec))
}

/// The key of a time; the same for all tags of that time.
fn time_key(RealTime(t): RealTime) -> Bytes {
    format!("{BY_TIME}{:011}.{:09}", t.sec, t.nsec).into()
}

fn find(v: &mut dyn ObjectView, tag: &Bytes) -> Result<Garbage, Errno> {
    keys::read(v, keys::join(BY_TAG, tag))
}

pub(super) fn set_entry(v: &mut dyn ObjectView, args: SetArgs) -> Result<Done, Errno> {
    let SetArgs { expires_in_s, mut info } = args;
    // An earlier one that does not decode is left where it is.
    if let Ok(earlier) = find(v, &info.tag) {
        keys::remove(v, time_key(earlier.time))?;
    }
    info.time = time_in(v, expires_in_s);
    keys::write(v, keys::join(BY_TAG, &info.tag), &info)?;
    keys::write(v, time_key(info.time), &info)?;
    Ok(Done)
}

pub(super) fn defer_entry(v: &mut dyn ObjectView, args: DeferArgs) -> Result<Done, Errno> {
    let info = find(v, &args.tag)?;
    set_entry(v, SetArgs { expires_in_s: args.expires_in_s, info })
}

/// Entries in the order of their times.
pub(super) fn list(v: &mut dyn ObjectView, args: ListArgs) -> Result<ListReply, Errno> {
    let max = u64::from(args.max());
    let start = if args.marker.is_empty() { BY_TIME.into() } else { args.marker };
    let end = args.expired_only.then(|| time_key(RealTime(v.now())));
    let (found, mut truncated) = v.omap_list(&start, b"", max)?;
    let (mut entries, mut next_marker) = (Vec::new(), Bytes::new());
    for (key, value) in found {
        if end.as_ref().is_some_and(|end| key >= *end) || !key.starts_with(BY_TIME.as_bytes()) {
            truncated = false;
            break;
        }
        entries.push(stored(value)?);
        next_marker = key;
    }
    if !truncated {
        next_marker = Bytes::new();
    }
    Ok(ListReply { entries, next_marker, truncated })
}

/// Tags that are not there are removed already.
pub(super) fn remove(v: &mut dyn ObjectView, args: RemoveArgs) -> Result<Done, Errno> {
    for tag in args.tags {
        let Some(info) = keys::optional(find(v, &tag))? else { continue };
        keys::remove(v, time_key(info.time))?;
        keys::remove(v, keys::join(BY_TAG, &tag))?;
    }
    Ok(Done)
}
