//! The queue of buckets whose index is to be resharded. Source: src/cls/rgw/cls_rgw.cc.

use ::rgw::ReshardEntry;
use bytes::Bytes;
use codec::wire_struct;
use types::Errno;

use crate::registry::{Done, stored};
use crate::{ObjectView, keys};

const MAX_ENTRIES: u32 = 1000;

/// Input of `add` and `get`, and output of `get`, where a caller's entry only names the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryArgs {
    pub entry: ReshardEntry,
}
wire_struct!(EntryArgs(1, 1) { entry });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListArgs {
    pub max: u32,
    pub marker: Bytes,
}
wire_struct!(ListArgs(1, 1) { max, marker });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReply {
    pub entries: Vec<ReshardEntry>,
    pub truncated: bool,
}
wire_struct!(ListReply(1, 1) { entries, truncated });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveArgs {
    pub tenant: Bytes,
    pub bucket: Bytes,
    /// Any, when empty.
    pub bucket_id: Bytes,
}
wire_struct!(RemoveArgs(1, 1) { tenant, bucket, bucket_id });

fn key(tenant: &[u8], bucket: &[u8]) -> Bytes {
    [tenant, b":", bucket].concat().into()
}

pub(super) fn add(v: &mut dyn ObjectView, args: EntryArgs) -> Result<Done, Errno> {
    keys::write(v, key(&args.entry.tenant, &args.entry.bucket), &args.entry)?;
    Ok(Done)
}

pub(super) fn list(v: &mut dyn ObjectView, args: ListArgs) -> Result<ListReply, Errno> {
    let max = if (1..MAX_ENTRIES).contains(&args.max) { args.max } else { MAX_ENTRIES };
    let (found, truncated) = v.omap_list(&args.marker, b"", u64::from(max))?;
    // Ceph looks at a whole page for who asks for none, and takes what does not fit into 31 bits for less
    // than none.
    let wanted = i32::try_from(args.max).unwrap_or(0) as usize;
    let entries = found.into_iter().take(wanted).map(|(_, value)| stored(value)).collect::<Result<_, _>>()?;
    Ok(ListReply { entries, truncated })
}

pub(super) fn get(v: &mut dyn ObjectView, args: EntryArgs) -> Result<EntryArgs, Errno> {
    Ok(EntryArgs { entry: keys::read(v, key(&args.entry.tenant, &args.entry.bucket))? })
}

/// A bucket of the name with another id stays.
pub(super) fn remove(v: &mut dyn ObjectView, args: RemoveArgs) -> Result<Done, Errno> {
    let key = key(&args.tenant, &args.bucket);
    let entry: ReshardEntry = keys::read(v, &key)?;
    if args.bucket_id.is_empty() || entry.bucket_id == args.bucket_id {
        v.omap_remove(key)?;
    }
    Ok(Done)
}
