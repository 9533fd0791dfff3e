//! Operations with their arguments read out: what a server matches on and a client builds.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{HObject, SnapId};

use super::raw_op::{ARG_LEN, u8_at, u32_at, u64_at};
use super::{CopySource, OpCode, OsdOp};

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

    fn from_arg(arg: &[u8; ARG_LEN]) -> Self {
        Self {
            offset: u64_at(arg, 0),
            length: u64_at(arg, 8),
            truncate_size: u64_at(arg, 16),
            truncate_seq: u32_at(arg, 24),
        }
    }

    fn put(&self, w: &mut Writer) {
        w.u64(self.offset);
        w.u64(self.length);
        w.u64(self.truncate_size);
        w.u32(self.truncate_seq);
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

impl CopyFromArgs {
    fn from_arg(arg: &[u8; ARG_LEN]) -> Self {
        Self {
            snap: SnapId(u64_at(arg, 0)),
            version: u64_at(arg, 8),
            flags: u8_at(arg, 16),
            src_fadvise: u32_at(arg, 17),
        }
    }

    fn put(&self, w: &mut Writer) {
        self.snap.encode(w);
        w.u64(self.version);
        w.u8(self.flags);
        w.u32(self.src_fadvise);
    }
}

impl OsdOp {
    /// Reads the arguments. A server answers EINVAL to an error.
    pub fn parse(&self) -> Result<Op, DecodeError> {
        let extent = || Extent::from_arg(&self.arg);
        let data = || self.indata.clone();
        Ok(match self.code {
            OpCode::READ => Op::Read(extent()),
            OpCode::SPARSE_READ => Op::SparseRead(extent()),
            OpCode::SYNC_READ => Op::SyncRead(extent()),
            OpCode::MAPEXT => Op::MapExt(extent()),
            OpCode::STAT => Op::Stat,
            OpCode::CHECKSUM => Op::Checksum {
                offset: u64_at(&self.arg, 0),
                length: u64_at(&self.arg, 8),
                chunk_size: u32_at(&self.arg, 16),
                kind: u8_at(&self.arg, 20),
                init: data(),
            },
            OpCode::CMPEXT => Op::CmpExt { extent: extent(), data: data() },
            OpCode::ASSERT_VER => Op::AssertVer { version: u64_at(&self.arg, 8) },
            OpCode::LIST_WATCHERS => Op::ListWatchers,
            OpCode::LIST_SNAPS => Op::ListSnaps,
            OpCode::CALL => self.parse_call()?,
            _ if self.code.is_pg_op() => self.parse_list()?,
            _ if self.code.is_attr() => self.parse_xattr()?,
            OpCode::WATCH | OpCode::NOTIFY | OpCode::NOTIFY_ACK => self.parse_watch(),
            _ => match self.parse_write()? {
                Some(op) => op,
                None => self.parse_omap()?,
            },
        })
    }

    fn parse_write(&self) -> Result<Option<Op>, DecodeError> {
        let extent = Extent::from_arg(&self.arg);
        let data = self.indata.clone();
        Ok(Some(match self.code {
            OpCode::WRITE => Op::Write { extent, data },
            OpCode::WRITEFULL => Op::WriteFull { extent, data },
            OpCode::APPEND => Op::Append { extent, data },
            OpCode::WRITESAME => Op::WriteSame {
                offset: u64_at(&self.arg, 0),
                length: u64_at(&self.arg, 8),
                data_length: u64_at(&self.arg, 16),
                data,
            },
            OpCode::ZERO => Op::Zero(extent),
            OpCode::TRUNCATE => Op::Truncate(extent),
            OpCode::TRIMTRUNC => Op::TrimTrunc(extent),
            OpCode::DELETE => Op::Delete,
            OpCode::CREATE => Op::Create,
            OpCode::ROLLBACK => Op::Rollback { snap: SnapId(u64_at(&self.arg, 0)) },
            OpCode::SET_ALLOC_HINT => Op::AllocHint {
                object_size: u64_at(&self.arg, 0),
                write_size: u64_at(&self.arg, 8),
                flags: u32_at(&self.arg, 16),
            },
            OpCode::COPY_FROM | OpCode::COPY_FROM2 => self.parse_copy_from()?,
            OpCode::COPY_GET => {
                let r = &mut Reader::new(data);
                Op::CopyGet { cursor: Decode::decode(r)?, max: r.u64()? }
            }
            OpCode::TMAPGET => Op::TmapGet,
            OpCode::TMAPPUT => Op::TmapPut { data },
            OpCode::TMAPUP => Op::TmapUp { commands: data },
            OpCode::TMAP2OMAP => Op::Tmap2Omap { flags: u8_at(&self.arg, 0) },
            _ => return Ok(None),
        }))
    }

    fn parse_copy_from(&self) -> Result<Op, DecodeError> {
        let args = CopyFromArgs::from_arg(&self.arg);
        let r = &mut Reader::new(self.indata.clone());
        let from = CopySource::decode(r)?;
        if self.code == OpCode::COPY_FROM {
            return Ok(Op::CopyFrom { from, args });
        }
        let truncation = match args.flags & copy_from_flags::TRUNCATE_SEQ {
            0 => None,
            _ => Some((r.u32()?, r.u64()?)),
        };
        Ok(Op::CopyFrom2 { from, args, truncation })
    }

    fn parse_xattr(&self) -> Result<Op, DecodeError> {
        let r = &mut Reader::new(self.indata.clone());
        let mut name = || text(r, u32_at(&self.arg, 0) as usize);
        Ok(match self.code {
            OpCode::GETXATTR => Op::GetXattr { name: name()? },
            OpCode::RMXATTR => Op::RmXattr { name: name()? },
            OpCode::SETXATTR => {
                let name = name()?;
                Op::SetXattr { name, value: r.raw(u32_at(&self.arg, 4) as usize)? }
            }
            OpCode::CMPXATTR => {
                let name = name()?;
                let (op, mode) = (u8_at(&self.arg, 8), u8_at(&self.arg, 9));
                // A number is always eight bytes, whatever length the client states.
                let len = if mode == cmp_mode::U64 { 8 } else { u32_at(&self.arg, 4) as usize };
                Op::CmpXattr { name, op, mode, value: r.raw(len)? }
            }
            OpCode::GETXATTRS => Op::GetXattrs,
            _ => Op::Other(self.clone()),
        })
    }

    fn parse_omap(&self) -> Result<Op, DecodeError> {
        let r = &mut Reader::new(self.indata.clone());
        Ok(match self.code {
            OpCode::OMAP_GET_KEYS => Op::OmapGetKeys { start_after: r.blob()?, max: r.u64()? },
            OpCode::OMAP_GET_VALS => {
                Op::OmapGetVals { start_after: r.blob()?, max: r.u64()?, prefix: r.blob()? }
            }
            OpCode::OMAP_GET_HEADER => Op::OmapGetHeader,
            OpCode::OMAP_GET_VALS_BY_KEYS => Op::OmapGetValsByKeys { keys: Decode::decode(r)? },
            OpCode::OMAP_SET_VALS => Op::OmapSetVals { vals: Decode::decode(r)? },
            OpCode::OMAP_SET_HEADER => Op::OmapSetHeader { header: self.indata.clone() },
            OpCode::OMAP_CLEAR => Op::OmapClear,
            OpCode::OMAP_RM_KEYS => Op::OmapRmKeys { keys: Decode::decode(r)? },
            OpCode::OMAP_RM_KEY_RANGE => Op::OmapRmKeyRange { begin: r.blob()?, end: r.blob()? },
            OpCode::OMAP_CMP => Op::OmapCmp { assertions: Decode::decode(r)? },
            _ => Op::Other(self.clone()),
        })
    }

    /// Malformed notifies and acks are taken as old forms and never refused. Source: PrimaryLogPG::do_osd_ops.
    fn parse_watch(&self) -> Op {
        let cookie = u64_at(&self.arg, 0);
        let r = &mut Reader::new(self.indata.clone());
        match self.code {
            OpCode::WATCH => Op::Watch {
                cookie,
                op: u8_at(&self.arg, 16),
                generation: u32_at(&self.arg, 17),
                timeout_s: u32_at(&self.arg, 21),
            },
            OpCode::NOTIFY => {
                let args = (|| {
                    r.skip(4)?;
                    Ok::<_, DecodeError>((r.u32()?, r.blob()?))
                })();
                let (timeout_s, payload) = args.unwrap_or_default();
                Op::Notify { cookie, timeout_s, payload }
            }
            _ => {
                let args = (|| {
                    let (id, cookie) = (r.u64()?, r.u64()?);
                    let reply = if r.is_empty() { Bytes::new() } else { r.blob()? };
                    Ok::<_, DecodeError>((id, cookie, reply))
                })();
                let (notify_id, cookie, reply) = args.unwrap_or((cookie, 0, Bytes::new()));
                Op::NotifyAck { notify_id, cookie, reply }
            }
        }
    }

    fn parse_call(&self) -> Result<Op, DecodeError> {
        let r = &mut Reader::new(self.indata.clone());
        let class = text(r, u8_at(&self.arg, 0).into())?;
        let method = text(r, u8_at(&self.arg, 1).into())?;
        let input = r.raw(u32_at(&self.arg, 3) as usize)?;
        Ok(Op::Call { class, method, input })
    }

    fn parse_list(&self) -> Result<Op, DecodeError> {
        let (count, start_epoch) = (u64_at(&self.arg, 0), u32_at(&self.arg, 8));
        let r = &mut Reader::new(self.indata.clone());
        let mut filter = || {
            // Two names that every client sends and no server looks at.
            r.blob()?;
            r.blob()?;
            Ok::<_, DecodeError>(ListFilter { kind: String::decode(r)?, args_and_cursor: r.rest() })
        };
        Ok(match self.code {
            OpCode::PGLS_FILTER => Op::PglsFilter { count, start_epoch, filter: filter()? },
            OpCode::PGNLS_FILTER => Op::PgnlsFilter { count, start_epoch, filter: filter()? },
            OpCode::PGLS => Op::Pgls(ListArgs { count, start_epoch, cursor: HObject::decode(r)? }),
            OpCode::PGNLS => Op::Pgnls(ListArgs { count, start_epoch, cursor: HObject::decode(r)? }),
            _ => Op::Other(self.clone()),
        })
    }
}

/// `len` bytes of UTF-8 without a length of their own.
fn text(r: &mut Reader, len: usize) -> Result<String, DecodeError> {
    let raw = r.raw(len)?;
    std::str::from_utf8(&raw)
        .map(str::to_owned)
        .map_err(|_| DecodeError::NotUtf8 { what: "operation argument" })
}

/// Builds the raw form of an operation from its argument writer and its bytes.
fn raw(code: OpCode, arg: impl FnOnce(&mut Writer), indata: Bytes) -> OsdOp {
    let mut w = Writer::with_capacity(ARG_LEN);
    arg(&mut w);
    let mut slot = [0; ARG_LEN];
    for (to, from) in slot.iter_mut().zip(w.as_slice()) {
        *to = *from;
    }
    OsdOp { code, flags: 0, arg: slot, indata }
}

fn encoded(body: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new();
    body(&mut w);
    w.into_bytes()
}

fn no_arg(_: &mut Writer) {}

impl From<Op> for OsdOp {
    /// The wire form, with no flags set.
    fn from(op: Op) -> Self {
        let extent = |code, e: Extent, data| raw(code, |w| e.put(w), data);
        let none = Bytes::new();
        match op {
            Op::Read(e) => extent(OpCode::READ, e, none),
            Op::SparseRead(e) => extent(OpCode::SPARSE_READ, e, none),
            Op::SyncRead(e) => extent(OpCode::SYNC_READ, e, none),
            Op::MapExt(e) => extent(OpCode::MAPEXT, e, none),
            Op::Zero(e) => extent(OpCode::ZERO, e, none),
            Op::Truncate(e) => extent(OpCode::TRUNCATE, e, none),
            Op::TrimTrunc(e) => extent(OpCode::TRIMTRUNC, e, none),
            Op::CmpExt { extent: e, data } => extent(OpCode::CMPEXT, e, data),
            Op::Write { extent: e, data } => extent(OpCode::WRITE, e, data),
            Op::WriteFull { extent: e, data } => extent(OpCode::WRITEFULL, e, data),
            Op::Append { extent: e, data } => extent(OpCode::APPEND, e, data),
            Op::Stat => raw(OpCode::STAT, no_arg, none),
            Op::ListWatchers => raw(OpCode::LIST_WATCHERS, no_arg, none),
            Op::ListSnaps => raw(OpCode::LIST_SNAPS, no_arg, none),
            Op::Delete => raw(OpCode::DELETE, no_arg, none),
            Op::Create => raw(OpCode::CREATE, no_arg, none),
            Op::GetXattrs => raw(OpCode::GETXATTRS, no_arg, none),
            Op::OmapGetHeader => raw(OpCode::OMAP_GET_HEADER, no_arg, none),
            Op::OmapClear => raw(OpCode::OMAP_CLEAR, no_arg, none),
            Op::TmapGet => raw(OpCode::TMAPGET, no_arg, none),
            Op::TmapPut { data } => raw(OpCode::TMAPPUT, no_arg, data),
            Op::TmapUp { commands } => raw(OpCode::TMAPUP, no_arg, commands),
            Op::Tmap2Omap { flags } => raw(OpCode::TMAP2OMAP, |w| w.u8(flags), none),
            Op::Rollback { snap } => raw(OpCode::ROLLBACK, |w| snap.encode(w), none),
            Op::AssertVer { version } => raw(
                OpCode::ASSERT_VER,
                |w| {
                    w.u64(0);
                    w.u64(version);
                },
                none,
            ),
            Op::Other(op) => op,
            other => build_with_data(other),
        }
    }
}

/// Operations whose arguments are more than an extent.
fn build_with_data(op: Op) -> OsdOp {
    match op {
        Op::Checksum { offset, length, chunk_size, kind, init } => {
            let arg = |w: &mut Writer| {
                w.u64(offset);
                w.u64(length);
                w.u32(chunk_size);
                w.u8(kind);
            };
            raw(OpCode::CHECKSUM, arg, init)
        }
        Op::WriteSame { offset, length, data_length, data } => {
            let arg = |w: &mut Writer| {
                w.u64(offset);
                w.u64(length);
                w.u64(data_length);
            };
            raw(OpCode::WRITESAME, arg, data)
        }
        Op::AllocHint { object_size, write_size, flags } => {
            let arg = |w: &mut Writer| {
                w.u64(object_size);
                w.u64(write_size);
                w.u32(flags);
            };
            raw(OpCode::SET_ALLOC_HINT, arg, Bytes::new())
        }
        Op::CopyFrom { from, args } => raw(OpCode::COPY_FROM, |w| args.put(w), from.to_bytes()),
        Op::CopyFrom2 { from, args, truncation } => {
            let data = encoded(|w| {
                from.encode(w);
                if let Some((seq, size)) = truncation {
                    w.u32(seq);
                    w.u64(size);
                }
            });
            raw(OpCode::COPY_FROM2, |w| args.put(w), data)
        }
        Op::CopyGet { max, cursor } => {
            let data = encoded(|w| {
                cursor.encode(w);
                w.u64(max);
            });
            raw(OpCode::COPY_GET, no_arg, data)
        }
        Op::Call { class, method, input } => build_call(&class, &method, &input),
        Op::Watch { .. } | Op::Notify { .. } | Op::NotifyAck { .. } => build_watch(op),
        Op::GetXattr { .. } | Op::RmXattr { .. } | Op::SetXattr { .. } | Op::CmpXattr { .. } => {
            build_xattr(op)
        }
        Op::Pgls(_) | Op::Pgnls(_) | Op::PglsFilter { .. } | Op::PgnlsFilter { .. } => build_list(op),
        other => build_omap(other),
    }
}

fn build_xattr(op: Op) -> OsdOp {
    let (code, name, value, cmp) = match op {
        Op::GetXattr { name } => (OpCode::GETXATTR, name, Bytes::new(), (0, 0)),
        Op::RmXattr { name } => (OpCode::RMXATTR, name, Bytes::new(), (0, 0)),
        Op::SetXattr { name, value } => (OpCode::SETXATTR, name, value, (0, 0)),
        Op::CmpXattr { name, op, mode, value } => (OpCode::CMPXATTR, name, value, (op, mode)),
        _ => return OsdOp::default(),
    };
    let arg = |w: &mut Writer| {
        w.count(name.len());
        w.count(value.len());
        w.u8(cmp.0);
        w.u8(cmp.1);
    };
    let data = encoded(|w| {
        w.raw(name.as_bytes());
        w.raw(&value);
    });
    raw(code, arg, data)
}

fn build_omap(op: Op) -> OsdOp {
    let (code, data) = match op {
        Op::OmapGetKeys { start_after, max } => (
            OpCode::OMAP_GET_KEYS,
            encoded(|w| {
                w.blob(&start_after);
                w.u64(max);
            }),
        ),
        Op::OmapGetVals { start_after, max, prefix } => (
            OpCode::OMAP_GET_VALS,
            encoded(|w| {
                w.blob(&start_after);
                w.u64(max);
                w.blob(&prefix);
            }),
        ),
        Op::OmapGetValsByKeys { keys } => (OpCode::OMAP_GET_VALS_BY_KEYS, keys.to_bytes()),
        Op::OmapSetVals { vals } => (OpCode::OMAP_SET_VALS, vals.to_bytes()),
        Op::OmapSetHeader { header } => (OpCode::OMAP_SET_HEADER, header),
        Op::OmapRmKeys { keys } => (OpCode::OMAP_RM_KEYS, keys.to_bytes()),
        Op::OmapRmKeyRange { begin, end } => (OpCode::OMAP_RM_KEY_RANGE, (begin, end).to_bytes()),
        Op::OmapCmp { assertions } => (OpCode::OMAP_CMP, assertions.to_bytes()),
        _ => return OsdOp::default(),
    };
    raw(code, no_arg, data)
}

fn build_watch(op: Op) -> OsdOp {
    match op {
        Op::Watch { cookie, op, generation, timeout_s } => {
            let arg = |w: &mut Writer| {
                w.u64(cookie);
                w.u64(0);
                w.u8(op);
                w.u32(generation);
                w.u32(timeout_s);
            };
            raw(OpCode::WATCH, arg, Bytes::new())
        }
        Op::Notify { cookie, timeout_s, payload } => {
            let data = encoded(|w| {
                // A protocol version that nobody reads.
                w.u32(1);
                w.u32(timeout_s);
                w.blob(&payload);
            });
            raw(OpCode::NOTIFY, |w| w.u64(cookie), data)
        }
        Op::NotifyAck { notify_id, cookie, reply } => {
            let data = encoded(|w| {
                w.u64(notify_id);
                w.u64(cookie);
                w.blob(&reply);
            });
            raw(OpCode::NOTIFY_ACK, no_arg, data)
        }
        _ => OsdOp::default(),
    }
}

fn build_call(class: &str, method: &str, input: &Bytes) -> OsdOp {
    // Names of methods are ours or a caller's constants; they have one length byte.
    assert!(class.len() < 256 && method.len() < 256, "a method name has one length byte");
    let arg = |w: &mut Writer| {
        w.u8(class.len() as u8);
        w.u8(method.len() as u8);
        w.u8(0);
        w.count(input.len());
    };
    let data = encoded(|w| {
        w.raw(class.as_bytes());
        w.raw(method.as_bytes());
        w.raw(input);
    });
    raw(OpCode::CALL, arg, data)
}

fn build_list(op: Op) -> OsdOp {
    let filtered = |f: &ListFilter| {
        encoded(|w| {
            "pg".encode(w);
            "filter".encode(w);
            f.kind.encode(w);
            w.raw(&f.args_and_cursor);
        })
    };
    let (code, count, start_epoch, data) = match op {
        Op::Pgls(a) => (OpCode::PGLS, a.count, a.start_epoch, a.cursor.to_bytes()),
        Op::Pgnls(a) => (OpCode::PGNLS, a.count, a.start_epoch, a.cursor.to_bytes()),
        Op::PglsFilter { count, start_epoch, filter } => {
            (OpCode::PGLS_FILTER, count, start_epoch, filtered(&filter))
        }
        Op::PgnlsFilter { count, start_epoch, filter } => {
            (OpCode::PGNLS_FILTER, count, start_epoch, filtered(&filter))
        }
        _ => return OsdOp::default(),
    };
    let arg = |w: &mut Writer| {
        w.u64(count);
        w.u32(start_epoch);
    };
    raw(code, arg, data)
}
