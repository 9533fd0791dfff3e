//! A bucket: the name that finds its instance, and the instance itself.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{RealTime, Utime};

use crate::{Bucket, HashType, IndexType, Kept, Layout, ObjectLock, PlacementRule, Quota, UserId, Website};

/// A bucket's flags. Source: src/rgw/rgw_common.h.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Versioning(pub u32);

impl Versioning {
    pub const SUSPENDED_BUCKET: u32 = 0x1;
    /// Versions are kept, or were.
    pub const VERSIONED: u32 = 0x2;
    pub const VERSIONS_SUSPENDED: u32 = 0x4;
    pub const DATASYNC_DISABLED: u32 = 0x8;
    /// Versions are deleted with a one-time password alone.
    pub const MFA: u32 = 0x10;
    pub const OBJECT_LOCK: u32 = 0x20;

    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

fn seconds(time: RealTime) -> u64 {
    time.0.sec.into()
}

/// A time in whole seconds, as older structures have them.
fn at_second(seconds: u64) -> RealTime {
    RealTime(Utime::new(u32::try_from(seconds).unwrap_or(u32::MAX), 0))
}

/// Source: RGWBucketInfo in src/rgw/rgw_common.h and rgw_common.cc.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BucketInfo {
    pub bucket: Bucket,
    pub owner: UserId,
    pub flags: Versioning,
    /// The zone group's id.
    pub zonegroup: Bytes,
    pub created: RealTime,
    pub placement: PlacementRule,
    /// It stands in an object of its own, not in the entry point.
    pub has_instance: bool,
    pub quota: Quota,
    pub layout: Layout,
    pub requester_pays: bool,
    pub website: Option<Website>,
    /// Where Swift keeps the versions of its objects.
    pub swift_versions: Option<Bytes>,
    /// Keys that objects can be searched by, and their types.
    pub metadata_search: BTreeMap<Bytes, u32>,
    /// 0 for none, 1 while it goes on, 2 when it is done and the instance is no longer in use.
    pub reshard_status: u8,
    pub new_instance: Bytes,
    /// Only with `Versioning::OBJECT_LOCK`.
    pub object_lock: ObjectLock,
    /// Which zones have its objects, when other than the zone group's.
    pub sync_policy: Option<Kept>,
}

impl Encode for BucketInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(23, 4, |w| {
            self.bucket.encode(w);
            self.owner.id.encode(w);
            self.flags.0.encode(w);
            self.zonegroup.encode(w);
            seconds(self.created).encode(w);
            self.placement.encode(w);
            self.has_instance.encode(w);
            self.quota.encode(w);
            self.requester_pays.encode(w);
            self.owner.tenant.encode(w);
            self.website.encode(w);
            self.swift_versions.encode(w);
            self.created.encode(w);
            self.metadata_search.encode(w);
            self.reshard_status.encode(w);
            self.new_instance.encode(w);
            if self.flags.has(Versioning::OBJECT_LOCK) {
                self.object_lock.encode(w);
            }
            self.sync_policy.encode(w);
            self.layout.encode(w);
            self.owner.namespace.encode(w);
        });
    }
}

impl BucketInfo {
    /// From version 22 on the index is described at the end.
    const LAYOUT: u8 = 22;

    /// What the first 16 versions had.
    fn decode_first(r: &mut Reader, version: u8) -> Result<Self, DecodeError> {
        let mut b = Self { bucket: Decode::decode(r)?, ..Self::default() };
        if version >= 2 {
            b.owner = UserId::from_text(&r.blob()?);
        }
        if version >= 3 {
            b.flags = Versioning(r.u32()?);
        }
        if version >= 5 {
            b.zonegroup = r.blob()?;
        }
        if version >= 6 {
            b.created = at_second(r.u64()?);
        }
        if version >= 7 {
            b.placement = Decode::decode(r)?;
        }
        if version >= 8 {
            b.has_instance = Decode::decode(r)?;
        }
        if version >= 9 {
            b.quota = Decode::decode(r)?;
        }
        let index = &mut b.layout.current;
        if (10..Self::LAYOUT).contains(&version) {
            index.shards.count = r.u32()?;
        }
        if (11..Self::LAYOUT).contains(&version) {
            index.shards.hash = HashType(r.u8()?);
        }
        if version >= 12 {
            b.requester_pays = Decode::decode(r)?;
        }
        if version >= 13 {
            b.owner.tenant = r.blob()?;
        }
        if version >= 14 {
            b.website = Decode::decode(r)?;
        }
        if (15..Self::LAYOUT).contains(&version) {
            b.layout.current.kind = IndexType(u8::try_from(r.u32()?).unwrap_or(u8::MAX));
        }
        if version >= 16 {
            b.swift_versions = Decode::decode(r)?;
        }
        Ok(b)
    }
}

impl Decode for BucketInfo {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope_32("bucket instance", 23, 4, |r, version| {
            let mut b = Self::decode_first(r, version)?;
            if version >= 17 {
                b.created = Decode::decode(r)?;
            }
            if version >= 18 {
                b.metadata_search = Decode::decode(r)?;
            }
            if version >= 19 {
                (b.reshard_status, b.new_instance) = (r.u8()?, r.blob()?);
            }
            if version >= 20 && b.flags.has(Versioning::OBJECT_LOCK) {
                b.object_lock = Decode::decode(r)?;
            }
            if version >= 21 {
                b.sync_policy = Decode::decode(r)?;
            }
            if version >= Self::LAYOUT {
                b.layout = Decode::decode(r)?;
            }
            if version >= 23 {
                b.owner.namespace = r.blob()?;
            }
            Ok(b)
        })
    }
}

/// Which instance a bucket's name stands for. Source: RGWBucketEntryPoint in src/rgw/rgw_common.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryPoint {
    pub bucket: Bucket,
    pub owner: UserId,
    /// In the owner's list of buckets.
    pub linked: bool,
    pub created: RealTime,
    /// Before version 8 the instance stood here itself.
    pub old: Option<BucketInfo>,
}

impl Encode for EntryPoint {
    fn encode(&self, w: &mut Writer) {
        w.envelope(10, 8, |w| {
            self.bucket.encode(w);
            self.owner.id.encode(w);
            self.linked.encode(w);
            seconds(self.created).encode(w);
            self.owner.encode(w);
            self.created.encode(w);
        });
    }
}
impl Decode for EntryPoint {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        if r.peek_u8()? < 8 {
            return Ok(Self { old: Some(Decode::decode(r)?), ..Self::default() });
        }
        r.envelope("entry point", 10, |r, env| {
            let mut e = Self { bucket: Decode::decode(r)?, ..Self::default() };
            e.owner.id = r.blob()?;
            (e.linked, e.created) = (Decode::decode(r)?, at_second(r.u64()?));
            if env.version >= 9 {
                e.owner = Decode::decode(r)?;
            }
            if env.version >= 10 {
                e.created = Decode::decode(r)?;
            }
            Ok(e)
        })
    }
}
