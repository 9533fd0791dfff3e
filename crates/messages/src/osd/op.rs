//! Operations with their arguments read out: what a server matches on and a client builds.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Reader};
use types::{HObject, SnapId};

use super::{CopySource, OsdOp};

/// A byte range, and the truncation that the client has seen (file system clients only).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    pub offset: u64,
    /// 0 in a read means "to the end".
    pub length: u64,
    pub truncate_size: u64,
    /// 0 when there was no truncation.
    pub truncate_seq: u32,
}

impl Extent {
    pub fn new(offset: u64, length: u64) -> Self {
        Self { offset, length, truncate_size: 0, truncate_seq: 0 }
    }

    /// The offset behind the range; `None` when it overflows.
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.length)
    }

    /// Takes a truncation number 1 to the largest size as "none", as old clients mean it.
    ///
    /// Source: PrimaryLogPG::do_osd_ops in src/osd/PrimaryLogPG.cc.
    #[must_use]
    pub fn normalised(self) -> Self {
        if self.truncate_seq == 1 && self.truncate_size == u64::MAX {
            return Self { truncate_size: 0, truncate_seq: 0, ..self };
        }
        self
    }
}

/// How `cmpxattr` and `omap-cmp` compare what is stored (left) with the argument. Source: CEPH_OSD_CMPXATTR_OP_*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CmpOp {
    Eq = 1,
    Ne = 2,
    Gt = 3,
    Gte = 4,
    Lt = 5,
    Lte = 6,
}

impl CmpOp {
    pub fn from_u8(v: u8) -> Option<Self> {
        [Self::Eq, Self::Ne, Self::Gt, Self::Gte, Self::Lt, Self::Lte].into_iter().find(|op| *op as u8 == v)
    }
}

/// What a watch operation does. Source: CEPH_OSD_WATCH_OP_*.
pub mod watch_op {
    pub const UNWATCH: u8 = 0;
    pub const LEGACY_WATCH: u8 = 1;
    pub const WATCH: u8 = 3;
    pub const RECONNECT: u8 = 5;
    pub const PING: u8 = 7;
}

/// Source: CEPH_OSD_CHECKSUM_OP_TYPE_*.
pub mod checksum_type {
    pub const XXHASH32: u8 = 0;
    pub const XXHASH64: u8 = 1;
    pub const CRC32C: u8 = 2;
}

/// Source: CEPH_OSD_COPY_FROM_FLAG_*.
pub mod copy_from_flags {
    pub const FLUSH: u8 = 1;
    pub const IGNORE_OVERLAY: u8 = 2;
    pub const IGNORE_CACHE: u8 = 4;
    pub const MAP_SNAP_CLONE: u8 = 8;
    pub const RWORDERED: u8 = 16;
    /// `copy-from2` carries the truncation to set.
    pub const TRUNCATE_SEQ: u8 = 32;
}

/// Modes of `cmpxattr`. Source: CEPH_OSD_CMPXATTR_MODE_*.
pub mod cmp_mode {
    pub const STRING: u8 = 1;
    pub const U64: u8 = 2;
}

/// A page of a PG's object list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListArgs {
    /// Entries wanted at most.
    pub count: u64,
    /// The epoch in which the client began; older replies are of no use to it.
    pub start_epoch: u32,
    /// Where to go on; `HObject::min()` to begin.
    pub cursor: HObject,
}

/// A filter of a PG's object list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListFilter {
    /// `plain`, `parent`, or `class.filter`.
    pub kind: String,
    /// The filter's own arguments with the cursor behind them; only the filter knows where it starts.
    pub args_and_cursor: Bytes,
}

impl ListFilter {
    /// The arguments of a `plain` filter: attribute name, its wanted value, and the cursor.
    ///
    /// Source: PGLSPlainFilter::init in src/osd/PrimaryLogPG.cc.
    pub fn plain(&self) -> Result<(String, String, HObject), DecodeError> {
        let r = &mut Reader::new(self.args_and_cursor.clone());
        Ok((String::decode(r)?, String::decode(r)?, HObject::decode(r)?))
    }
}

/// An operation. Names of extended attributes travel without the `_` that Ceph's store puts before them.
///
/// Omap keys are bytes: the gateway's index uses keys that are not UTF-8.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    Read(Extent),
    SparseRead(Extent),
    SyncRead(Extent),
    MapExt(Extent),
    Stat,
    Checksum {
        offset: u64,
        length: u64,
        chunk_size: u32,
        kind: u8,
        init: Bytes,
    },
    CmpExt {
        extent: Extent,
        data: Bytes,
    },
    AssertVer {
        version: u64,
    },
    ListWatchers,
    ListSnaps,

    Write {
        extent: Extent,
        data: Bytes,
    },
    WriteFull {
        extent: Extent,
        data: Bytes,
    },
    Append {
        extent: Extent,
        data: Bytes,
    },
    /// `data` is repeated over the range; its length divides the range's.
    WriteSame {
        offset: u64,
        length: u64,
        data_length: u64,
        data: Bytes,
    },
    Zero(Extent),
    /// The new size is the extent's offset.
    Truncate(Extent),
    TrimTrunc(Extent),
    Delete,
    /// `op_flags::EXCL` makes an existing object an error.
    Create,
    Rollback {
        snap: SnapId,
    },
    AllocHint {
        object_size: u64,
        write_size: u64,
        flags: u32,
    },
    CopyFrom {
        from: CopySource,
        args: CopyFromArgs,
    },
    /// `truncation` is sequence number and size, present with `copy_from_flags::TRUNCATE_SEQ`.
    CopyFrom2 {
        from: CopySource,
        args: CopyFromArgs,
        truncation: Option<(u32, u64)>,
    },
    CopyGet {
        max: u64,
        cursor: super::CopyCursor,
    },

    GetXattr {
        name: String,
    },
    GetXattrs,
    CmpXattr {
        name: String,
        op: u8,
        mode: u8,
        value: Bytes,
    },
    SetXattr {
        name: String,
        value: Bytes,
    },
    RmXattr {
        name: String,
    },

    OmapGetKeys {
        start_after: Bytes,
        max: u64,
    },
    OmapGetVals {
        start_after: Bytes,
        max: u64,
        prefix: Bytes,
    },
    OmapGetHeader,
    OmapGetValsByKeys {
        keys: BTreeSet<Bytes>,
    },
    OmapSetVals {
        vals: BTreeMap<Bytes, Bytes>,
    },
    OmapSetHeader {
        header: Bytes,
    },
    OmapClear,
    OmapRmKeys {
        keys: BTreeSet<Bytes>,
    },
    /// From `begin` up to, without, `end`.
    OmapRmKeyRange {
        begin: Bytes,
        end: Bytes,
    },
    /// Each key's wanted value and `CmpOp` as a number.
    OmapCmp {
        assertions: BTreeMap<Bytes, (Bytes, i32)>,
    },

    Watch {
        cookie: u64,
        op: u8,
        generation: u32,
        timeout_s: u32,
    },
    Notify {
        cookie: u64,
        timeout_s: u32,
        payload: Bytes,
    },
    NotifyAck {
        notify_id: u64,
        cookie: u64,
        reply: Bytes,
    },
    Call {
        class: String,
        method: String,
        input: Bytes,
    },

    Pgls(ListArgs),
    Pgnls(ListArgs),
    PglsFilter {
        count: u64,
        start_epoch: u32,
        filter: ListFilter,
    },
    PgnlsFilter {
        count: u64,
        start_epoch: u32,
        filter: ListFilter,
    },

    TmapGet,
    TmapPut {
        data: Bytes,
    },
    TmapUp {
        commands: Bytes,
    },
    Tmap2Omap {
        flags: u8,
    },

    /// Anything else, as it came.
    Other(OsdOp),
}

/// Source: ceph_osd_op's copy_from in src/include/rados.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyFromArgs {
    pub snap: SnapId,
    /// The version that the source must have; 0 for any.
    pub version: u64,
    /// `copy_from_flags::*`.
    pub flags: u8,
    /// `op_flags::FADVISE_*` for reading the source.
    pub src_fadvise: u32,
}
