//! What queues store, and what their methods are given and answer. Source: src/cls/fifo/cls_fifo_types.h,
//! src/cls/fifo/cls_fifo_ops.h of 16.2.15.
//!
//! Earlier 16.2 releases told parts apart by tags. Where these stood, empty ones are written, and what stands
//! there is not looked at.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::RealTime;

/// Bytes in front of a part's entries, which its header is kept in.
pub(super) const PART_HEADER_SIZE: u64 = 512;
/// Bytes of a `Mark`.
pub(super) const MARK_SIZE: u64 = 44;
/// Bytes of an `EntryHeader`.
pub(super) const ENTRY_HEADER_SIZE: u64 = 14;
/// Bytes that a part holds for each entry beside its data.
pub(super) const ENTRY_OVERHEAD: u32 = 58;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Version {
    pub instance: Bytes,
    pub number: u64,
}
wire_struct!(Version(1, 1) { instance, number });

/// Sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Params {
    pub max_part_size: u64,
    pub max_entry_size: u64,
    /// A part that goes on behind it is full.
    pub full_size_threshold: u64,
}
wire_struct!(Params(1, 1) { max_part_size, max_entry_size, full_size_threshold });

/// What is to be done with a part: 1 it is created, 2 it becomes the head, 3 it is removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Task {
    pub kind: i32,
    pub part: i64,
    old_tag: OldTag,
}
wire_struct!(Task(1, 1) { kind, part, old_tag });

impl Task {
    /// Whether it can be stored.
    pub fn is_valid(&self) -> bool {
        (1..=3).contains(&self.kind) && self.part >= 0
    }
}

/// A text of earlier releases.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OldTag;

impl Encode for OldTag {
    fn encode(&self, w: &mut Writer) {
        w.blob(b"");
    }
}
impl Decode for OldTag {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.blob().map(|_| Self)
    }
}

/// Tags by part, of earlier releases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OldTags;

impl Encode for OldTags {
    fn encode(&self, w: &mut Writer) {
        w.count(0);
    }
}
impl Decode for OldTags {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        BTreeMap::<i64, Bytes>::decode(r).map(|_| Self)
    }
}

/// What is to be done: each task behind its part's number, in the order of kinds, then of parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Journal(pub BTreeSet<Task>);

impl Encode for Journal {
    fn encode(&self, w: &mut Writer) {
        w.count(self.0.len());
        for task in &self.0 {
            task.part.encode(w);
            task.encode(w);
        }
    }
}
impl Decode for Journal {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let tasks: Vec<(i64, Task)> = Decode::decode(r)?;
        Ok(Self(tasks.into_iter().map(|(_, task)| task).collect()))
    }
}

/// All that the object of a queue holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Info {
    pub id: Bytes,
    pub version: Version,
    /// Parts are objects of this name, a dot and their number.
    pub prefix: Bytes,
    pub params: Params,
    pub tail: i64,
    pub head: i64,
    pub min_push: i64,
    pub max_push: i64,
    pub old_tags: OldTags,
    pub old_head_tag: OldTag,
    pub journal: Journal,
}
wire_struct!(Info(1, 1) {
    id, version, prefix, params, tail, head, min_push, max_push, old_tags, old_head_tag, journal
});

/// The header of a part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PartHeader {
    pub old_tag: OldTag,
    pub params: Params,
    /// Stands in front of each entry.
    pub magic: u64,
    /// Where the first entry is that was not trimmed.
    pub min_offset: u64,
    /// Where the last entry is.
    pub last_offset: u64,
    /// Where the next entry goes.
    pub next_offset: u64,
    pub min_index: u64,
    pub max_index: u64,
    pub max_time: RealTime,
}
wire_struct!(PartHeader(1, 1) {
    old_tag, params, magic, min_offset, last_offset, next_offset, min_index, max_index, max_time
});

impl PartHeader {
    pub fn is_full(&self) -> bool {
        self.next_offset > self.params.full_size_threshold
    }
}

/// What stands in front of each entry, without an envelope: the sizes of what follows it, in bytes.
pub(super) struct Mark {
    pub magic: u64,
    pub mark_size: u64,
    pub header_size: u64,
    pub data_size: u64,
    pub index: u64,
    pub reserved: u32,
}
codec::wire_plain!(Mark { magic, mark_size, header_size, data_size, index, reserved });

/// Stands between an entry's mark and its data.
pub(super) struct EntryHeader {
    pub time: RealTime,
}
wire_struct!(EntryHeader(1, 1) { time });

pub(super) struct CreateArgs {
    pub id: Bytes,
    pub version: Option<Version>,
    pub pool: Bytes,
    pub namespace: Bytes,
    pub prefix: Option<Bytes>,
    pub max_part_size: u64,
    pub max_entry_size: u64,
    pub exclusive: bool,
}
wire_struct!(CreateArgs(1, 1) {
    id, version, pool, namespace, prefix, max_part_size, max_entry_size, exclusive
});

pub(super) struct GetArgs {
    pub version: Option<Version>,
}
wire_struct!(GetArgs(1, 1) { version });

pub(super) struct GetReply {
    pub info: Info,
    pub part_header_size: u32,
    pub entry_overhead: u32,
}
wire_struct!(GetReply(1, 1) { info, part_header_size, entry_overhead });

pub(super) struct UpdateArgs {
    pub version: Version,
    pub tail: Option<i64>,
    pub head: Option<i64>,
    pub min_push: Option<i64>,
    pub max_push: Option<i64>,
    pub add: Vec<Task>,
    pub remove: Vec<Task>,
}
wire_struct!(UpdateArgs(1, 1) { version, tail, head, min_push, max_push, add, remove });

pub(super) struct InitArgs {
    pub old_tag: OldTag,
    pub params: Params,
}
wire_struct!(InitArgs(1, 1) { old_tag, params });

pub(super) struct PushArgs {
    pub old_tag: OldTag,
    pub entries: Vec<Bytes>,
    /// Bytes of all of them.
    pub total: u64,
}
wire_struct!(PushArgs(1, 1) { old_tag, entries, total });

pub(super) struct TrimArgs {
    pub old_tag: Option<OldTag>,
    /// Where the last entry is that goes.
    pub offset: u64,
    /// That one stays.
    pub exclusive: bool,
}
wire_struct!(TrimArgs(1, 1) { old_tag, offset, exclusive });

pub(super) struct ListArgs {
    pub old_tag: Option<OldTag>,
    /// Where the entry is that the listing starts behind.
    pub offset: u64,
    pub max: i32,
}
wire_struct!(ListArgs(1, 1) { old_tag, offset, max });

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub data: Bytes,
    pub offset: u64,
    pub time: RealTime,
}
wire_struct!(Listed(1, 1) { data, offset, time });

pub(super) struct ListReply {
    pub old_tag: OldTag,
    pub entries: Vec<Listed>,
    pub more: bool,
    pub full: bool,
}
wire_struct!(ListReply(1, 1) { old_tag, entries, more, full });

pub(super) struct PartReply {
    pub header: PartHeader,
}
wire_struct!(PartReply(1, 1) { header });
