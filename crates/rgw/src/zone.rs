//! A zone: the pools that everything lies in. Source: src/rgw/rgw_zone.h.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

use crate::names::join;
use crate::placement::STANDARD;
use crate::{AccessKey, IndexType, Kept, Pool};

/// Which id a name has; the object `zone_names.<name>` and its like. Source: RGWNameToId.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameToId {
    pub id: Bytes,
}
wire_struct!(NameToId(1, 1) { id });

/// Which zone, zone group or realm is meant by whoever names none. Source: RGWDefaultSystemMetaObjInfo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefaultId {
    pub id: Bytes,
}
wire_struct!(DefaultId(1, 1) { id });

/// An id and a name, as zones, zone groups and realms have. Source: RGWSystemMetaObj.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub id: Bytes,
    pub name: Bytes,
}
wire_struct!(Named(1, 1) { id, name });

/// Source: RGWZoneStorageClass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageClass {
    pub data: Option<Pool>,
    pub compression: Option<Bytes>,
}
wire_struct!(StorageClass(1, 1) { data, compression });

/// The pools of a placement target. Source: RGWZonePlacementInfo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacementPools {
    pub index: Pool,
    /// Of uploads and their parts' list; empty for the data's.
    pub data_extra: Pool,
    /// By name; the standard one is always there.
    pub classes: BTreeMap<Bytes, StorageClass>,
    pub index_type: IndexType,
}

impl PlacementPools {
    /// The pool of a storage class; of one that is not there, the standard one's.
    pub fn data(&self, class: &[u8]) -> Option<&Pool> {
        self.classes.get(class).or_else(|| self.classes.get(STANDARD))?.data.as_ref()
    }

    pub fn data_extra(&self) -> Option<&Pool> {
        if self.data_extra.is_empty() { self.data(STANDARD) } else { Some(&self.data_extra) }
    }

    fn compression(&self) -> Bytes {
        self.classes.get(STANDARD).and_then(|c| c.compression.clone()).unwrap_or_default()
    }
}

impl Encode for PlacementPools {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 1, |w| {
            self.index.to_text().encode(w);
            self.data(STANDARD).map(Pool::to_text).unwrap_or_default().encode(w);
            self.data_extra.to_text().encode(w);
            u32::from(self.index_type.0).encode(w);
            self.compression().encode(w);
            w.envelope(1, 1, |w| self.classes.encode(w));
        });
    }
}
impl Decode for PlacementPools {
    const MIN_SIZE: usize = 14;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("placement pools", 7, |r, env| {
            let mut p = Self { index: Pool::from_text(&r.blob()?), ..Self::default() };
            let data = Pool::from_text(&r.blob()?);
            if env.version >= 4 {
                p.data_extra = Pool::from_text(&r.blob()?);
            }
            if env.version >= 5 {
                p.index_type = IndexType(u8::try_from(r.u32()?).unwrap_or(u8::MAX));
            }
            let compression = if env.version >= 6 { r.blob()? } else { Bytes::new() };
            let standard = Bytes::from_static(STANDARD);
            if env.version >= 7 {
                p.classes = r.envelope("storage classes", 1, |r, _| Decode::decode(r))?;
                p.classes.entry(standard).or_default();
            } else {
                let compression = Some(compression).filter(|c| !c.is_empty());
                p.classes.insert(standard, StorageClass { data: Some(data), compression });
            }
            Ok(p)
        })
    }
}

/// Source: RGWZoneParams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zone {
    pub id: Bytes,
    pub name: Bytes,
    pub domain_root: Pool,
    pub control: Pool,
    pub gc: Pool,
    pub lc: Pool,
    pub log: Pool,
    pub intent_log: Pool,
    pub usage_log: Pool,
    pub user_keys: Pool,
    pub user_email: Pool,
    pub user_swift: Pool,
    pub user_uid: Pool,
    pub roles: Pool,
    pub reshard: Pool,
    pub otp: Pool,
    pub oidc: Pool,
    pub notifications: Pool,
    /// Of the user that other zones come as.
    pub system_key: AccessKey,
    pub placement: BTreeMap<Bytes, PlacementPools>,
    pub realm: Bytes,
    /// Settings of zones that are no copies of others, as text before version 12.
    old_tier: BTreeMap<Bytes, Bytes>,
    tier: Option<Kept>,
}

impl Zone {
    /// As radosgw 16.2 makes the zone that it finds missing: everything in pools of its name.
    /// Source: RGWZoneParams::create and fix_pool_names in src/rgw/rgw_zone.cc.
    pub fn new(id: Bytes, name: Bytes) -> Self {
        let pool = |suffix: &[u8], namespace: &'static str| Pool::new(join(&[&name, suffix]), namespace);
        let (log, meta) = (|ns| pool(b".rgw.log", ns), |ns| pool(b".rgw.meta", ns));
        let standard = StorageClass { data: Some(pool(b".rgw.buckets.data", "")), compression: None };
        let placement = PlacementPools {
            index: pool(b".rgw.buckets.index", ""),
            data_extra: pool(b".rgw.buckets.non-ec", ""),
            classes: BTreeMap::from([(Bytes::from_static(STANDARD), standard)]),
            index_type: IndexType::NORMAL,
        };
        Self {
            domain_root: meta("root"),
            control: pool(b".rgw.control", ""),
            gc: log("gc"),
            lc: log("lc"),
            log: log(""),
            intent_log: log("intent"),
            usage_log: log("usage"),
            user_keys: meta("users.keys"),
            user_email: meta("users.email"),
            user_swift: meta("users.swift"),
            user_uid: meta("users.uid"),
            roles: meta("roles"),
            reshard: log("reshard"),
            otp: pool(b".rgw.otp", ""),
            oidc: meta("oidc"),
            notifications: log("notif"),
            placement: BTreeMap::from([(Bytes::from_static(b"default-placement"), placement)]),
            id,
            name,
            ..Self::default()
        }
    }

    fn named(&self) -> Named {
        Named { id: self.id.clone(), name: self.name.clone() }
    }

    /// Pools that had no field of their own in what older versions wrote.
    fn fill_in(&mut self, version: u8) {
        let beside = |pool: &Pool, namespace: &'static str| Pool::new(pool.name.clone(), namespace);
        let own = |suffix: &[u8]| join(&[&self.name, suffix]);
        let (meta, otp) = (own(b".rgw.meta"), own(b".rgw.otp"));
        for (since, pool, made) in [
            (7, &mut self.lc, beside(&self.log, "lc")),
            (9, &mut self.roles, Pool::new(meta.clone(), "roles")),
            (10, &mut self.reshard, beside(&self.log, "reshard")),
            (11, &mut self.otp, Pool::new(otp, "")),
            (13, &mut self.oidc, Pool::new(meta, "oidc")),
            (14, &mut self.notifications, beside(&self.log, "notif")),
        ] {
            if version < since {
                *pool = made;
            }
        }
    }
}

/// Settings of which there are none: a value of no kind in JSON. Source: JSONFormattable::encode in
/// src/common/ceph_json.h.
fn no_tier(w: &mut Writer) {
    w.envelope(2, 1, |w| {
        w.u8(0);
        Bytes::new().encode(w);
        w.u32(0);
        w.u32(0);
        w.u8(0);
    });
}

impl Encode for Zone {
    fn encode(&self, w: &mut Writer) {
        w.envelope(14, 1, |w| {
            for pool in [&self.domain_root, &self.control, &self.gc, &self.log, &self.intent_log] {
                pool.encode(w);
            }
            self.usage_log.encode(w);
            for pool in [&self.user_keys, &self.user_email, &self.user_swift, &self.user_uid] {
                pool.encode(w);
            }
            self.named().encode(w);
            self.system_key.encode(w);
            self.placement.encode(w);
            // Where a pool was that nothing used.
            Pool::default().encode(w);
            self.realm.encode(w);
            self.lc.encode(w);
            self.old_tier.encode(w);
            [&self.roles, &self.reshard, &self.otp].into_iter().for_each(|pool| pool.encode(w));
            match &self.tier {
                Some(tier) => tier.encode(w),
                None => no_tier(w),
            }
            [&self.oidc, &self.notifications].into_iter().for_each(|pool| pool.encode(w));
        });
    }
}
impl Decode for Zone {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("zone", 14, |r, env| {
            let mut z = Self::default();
            for pool in [&mut z.domain_root, &mut z.control, &mut z.gc, &mut z.log, &mut z.intent_log] {
                *pool = Decode::decode(r)?;
            }
            z.usage_log = Decode::decode(r)?;
            for pool in [&mut z.user_keys, &mut z.user_email, &mut z.user_swift, &mut z.user_uid] {
                *pool = Decode::decode(r)?;
            }
            if env.version >= 6 {
                Named { id: z.id, name: z.name } = Decode::decode(r)?;
            } else if env.version >= 2 {
                z.name = r.blob()?;
                z.id = z.name.clone();
            }
            if env.version >= 3 {
                z.system_key = Decode::decode(r)?;
            }
            if env.version >= 4 {
                z.placement = Decode::decode(r)?;
            }
            if env.version >= 5 {
                Pool::decode(r)?;
            }
            if env.version >= 6 {
                z.realm = r.blob()?;
            }
            if env.version >= 7 {
                z.lc = Decode::decode(r)?;
            }
            if env.version >= 8 {
                z.old_tier = Decode::decode(r)?;
            }
            for (since, pool) in [(9, &mut z.roles), (10, &mut z.reshard), (11, &mut z.otp)] {
                if env.version >= since {
                    *pool = Decode::decode(r)?;
                }
            }
            if env.version >= 12 {
                z.tier = Some(Decode::decode(r)?);
            }
            for (since, pool) in [(13, &mut z.oidc), (14, &mut z.notifications)] {
                if env.version >= since {
                    *pool = Decode::decode(r)?;
                }
            }
            z.fill_in(env.version);
            Ok(z)
        })
    }
}
