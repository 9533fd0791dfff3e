//! What a gateway tells the others about an object of metadata that it changed: they have it in their caches.
//!
//! It goes to the watchers of `notify.<n>` in the zone's control pool. Source: src/rgw/rgw_cache.h.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::RealTime;

use crate::RawObject;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoticeOp(pub u32);

impl NoticeOp {
    pub const UPDATE: Self = Self(0);
    pub const REMOVE: Self = Self(1);
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Meta {
    size: u64,
    mtime: RealTime,
}

impl Encode for Meta {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            self.size.encode(w);
            self.mtime.encode(w);
        });
    }
}
impl Decode for Meta {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("noticed meta", 2, 2, |r, _| Ok(Self { size: r.u64()?, mtime: Decode::decode(r)? }))
    }
}

/// A version of an object, as class `version` counts. Source: obj_version in src/cls/version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectVersion {
    pub version: u64,
    /// Of whoever began to count.
    pub tag: Bytes,
}
wire_struct!(ObjectVersion(1, 1) { version, tag });

/// What the changed object now holds. Source: ObjectCacheInfo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noticed {
    /// 0, or an errno below it.
    pub status: i32,
    /// Which of the fields say something.
    pub flags: u32,
    pub data: Bytes,
    pub attrs: BTreeMap<Bytes, Bytes>,
    pub size: u64,
    pub mtime: RealTime,
    pub removed_attrs: BTreeMap<Bytes, Bytes>,
    pub epoch: u64,
    pub version: ObjectVersion,
}

impl Noticed {
    pub const DATA: u32 = 0x1;
    pub const ATTRS: u32 = 0x2;
    pub const META: u32 = 0x4;
    /// `attrs` are set and `removed_attrs` taken away; all others stay.
    pub const MODIFY_ATTRS: u32 = 0x8;
    pub const VERSION: u32 = 0x10;
}

impl Encode for Noticed {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 3, |w| {
            self.status.encode(w);
            self.flags.encode(w);
            self.data.encode(w);
            self.attrs.encode(w);
            Meta { size: self.size, mtime: self.mtime }.encode(w);
            self.removed_attrs.encode(w);
            self.epoch.encode(w);
            self.version.encode(w);
        });
    }
}
impl Decode for Noticed {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("noticed object", 5, 3, |r, version| {
            let mut n = Self { status: r.i32()?, flags: r.u32()?, data: r.blob()?, ..Self::default() };
            n.attrs = Decode::decode(r)?;
            Meta { size: n.size, mtime: n.mtime } = Decode::decode(r)?;
            if version >= 2 {
                n.removed_attrs = Decode::decode(r)?;
            }
            if version >= 4 {
                n.epoch = r.u64()?;
            }
            if version >= 5 {
                n.version = Decode::decode(r)?;
            }
            Ok(n)
        })
    }
}

/// Source: RGWCacheNotifyInfo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notice {
    pub op: NoticeOp,
    pub object: RawObject,
    pub info: Noticed,
    offset: i64,
    namespace: Bytes,
}

impl Notice {
    pub fn new(op: NoticeOp, object: RawObject, info: Noticed) -> Self {
        Self { op, object, info, ..Self::default() }
    }
}

impl Encode for Notice {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            self.op.0.encode(w);
            self.object.encode(w);
            self.info.encode(w);
            self.offset.encode(w);
            self.namespace.encode(w);
        });
    }
}
impl Decode for Notice {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("notice", 2, 2, |r, _| {
            let (op, object) = (NoticeOp(r.u32()?), Decode::decode(r)?);
            let (info, offset) = (Decode::decode(r)?, r.i64()?);
            Ok(Self { op, object, info, offset, namespace: r.blob()? })
        })
    }
}
