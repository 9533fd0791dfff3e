//! Lifecycle: buckets whose objects expire, and how far the work on them got. Source: src/cls/rgw/cls_rgw.cc.

use std::collections::BTreeMap;

use ::rgw::{LifecycleEntry, LifecycleHead};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::Errno;

use crate::registry::{Done, Nothing, stored};
use crate::{ObjectView, keys};

/// An entry of earlier releases: a bucket and its status.
fn entry_of_old(r: &mut Reader) -> Result<LifecycleEntry, DecodeError> {
    Ok(LifecycleEntry { bucket: r.blob()?, started: 0, status: r.u32()? })
}

/// Input of `set` and `rm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryArgs {
    pub entry: LifecycleEntry,
}

impl Encode for EntryArgs {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| self.entry.encode(w));
    }
}
impl Decode for EntryArgs {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("lifecycle entry", 2, |r, env| {
            let entry = if env.version < 2 { entry_of_old(r)? } else { LifecycleEntry::decode(r)? };
            Ok(Self { entry })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkerArgs {
    pub marker: Bytes,
}
wire_struct!(MarkerArgs(1, 1) { marker });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetReply {
    pub entry: LifecycleEntry,
}
wire_struct!(GetReply(1, 1) { entry });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextReply {
    /// One without a name behind the last.
    pub entry: LifecycleEntry,
}
wire_struct!(NextReply(2, 2) { entry });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadArgs {
    pub head: LifecycleHead,
}
wire_struct!(HeadArgs(1, 1) { head });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListArgs {
    /// The caller's; it decides about the form of the answer.
    pub version: u8,
    pub marker: Bytes,
    pub max: u32,
}

impl Encode for ListArgs {
    fn encode(&self, w: &mut Writer) {
        w.envelope(self.version, 1, |w| {
            self.marker.encode(w);
            self.max.encode(w);
        });
    }
}
impl Decode for ListArgs {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("lifecycle listing", 3, |r, env| {
            Ok(Self { version: env.version, marker: r.blob()?, max: r.u32()? })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReply {
    pub version: u8,
    pub entries: Vec<LifecycleEntry>,
    pub truncated: bool,
}

impl Encode for ListReply {
    fn encode(&self, w: &mut Writer) {
        w.envelope(self.version, 1, |w| {
            if self.version <= 2 {
                // Of two entries for one bucket the first counts.
                let pairs = self.entries.iter().rev().map(|e| (&e.bucket[..], e.status));
                let by_name: BTreeMap<&[u8], u32> = pairs.collect();
                w.count(by_name.len());
                for (bucket, status) in by_name {
                    Bytes::copy_from_slice(bucket).encode(w);
                    status.encode(w);
                }
            } else {
                self.entries.encode(w);
            }
            self.truncated.encode(w);
        });
    }
}

impl Decode for ListReply {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("lifecycle entries", 3, |r, env| {
            let entries = if env.version <= 2 {
                let by_name: BTreeMap<Bytes, u32> = Decode::decode(r)?;
                let entry = |(bucket, status)| LifecycleEntry { bucket, started: 0, status };
                by_name.into_iter().map(entry).collect()
            } else {
                Decode::decode(r)?
            };
            // Asked for version 0 or 1, an OSD says it as well.
            let truncated = if env.version >= 2 || !r.is_empty() { Decode::decode(r)? } else { false };
            Ok(Self { version: env.version, entries, truncated })
        })
    }
}

pub(super) fn get_entry(v: &mut dyn ObjectView, args: MarkerArgs) -> Result<GetReply, Errno> {
    Ok(GetReply { entry: keys::read(v, &args.marker)? })
}

pub(super) fn set_entry(v: &mut dyn ObjectView, args: EntryArgs) -> Result<Done, Errno> {
    keys::write(v, args.entry.bucket.clone(), &args.entry)?;
    Ok(Done)
}

/// ENOENT without the object.
pub(super) fn rm_entry(v: &mut dyn ObjectView, args: EntryArgs) -> Result<Done, Errno> {
    v.omap_remove(args.entry.bucket)?;
    Ok(Done)
}

pub(super) fn get_next_entry(v: &mut dyn ObjectView, args: MarkerArgs) -> Result<NextReply, Errno> {
    let (found, _) = v.omap_list(&args.marker, b"", 1)?;
    let entry = found.into_iter().next().map(|(_, value)| stored(value)).transpose()?;
    Ok(NextReply { entry: entry.unwrap_or_default() })
}

pub(super) fn put_head(v: &mut dyn ObjectView, args: HeadArgs) -> Result<Done, Errno> {
    v.omap_set_header(args.head.to_bytes())?;
    Ok(Done)
}

/// EINVAL when it does not decode.
pub(super) fn get_head(v: &mut dyn ObjectView, _: Nothing) -> Result<HeadArgs, Errno> {
    let raw = v.omap_header()?;
    let head = if raw.is_empty() {
        LifecycleHead::default()
    } else {
        LifecycleHead::from_bytes(raw).map_err(|_| Errno::EINVAL)?
    };
    Ok(HeadArgs { head })
}

pub(super) fn list_entries(v: &mut dyn ObjectView, args: ListArgs) -> Result<ListReply, Errno> {
    let (found, truncated) = v.omap_list(&args.marker, b"", u64::from(args.max))?;
    let entries = found.into_iter().map(|(_, value)| listed(value)).collect::<Result<_, _>>()?;
    Ok(ListReply { version: args.version, entries, truncated })
}

/// Only a listing knows entries of earlier releases.
fn listed(value: Bytes) -> Result<LifecycleEntry, Errno> {
    let entry = LifecycleEntry::from_bytes(value.clone()).or_else(|_| entry_of_old(&mut Reader::new(value)));
    entry.map_err(|_| Errno::EIO)
}
