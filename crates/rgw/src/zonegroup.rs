//! A zone group: zones that hold the same buckets, and which placement targets all of them have.
//! Source: src/rgw/rgw_zone.h.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

use crate::zone::Named;
use crate::{Kept, PlacementRule};

/// Objects that a new bucket's index has. Source: RGWZone::default_bucket_index_max_shards.
const SHARDS: u32 = 11;

/// What a zone group knows of one of its zones. Source: RGWZone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneEntry {
    pub id: Bytes,
    pub name: Bytes,
    pub endpoints: Vec<Bytes>,
    pub log_meta: bool,
    /// Changes of objects are logged for other zones.
    pub log_data: bool,
    pub read_only: bool,
    pub tier_type: Bytes,
    pub redirect_zone: Bytes,
    /// Of new buckets; 0 for an index of one object without a number.
    pub index_shards: u32,
    pub sync_from_all: bool,
    pub sync_from: BTreeSet<Bytes>,
}

impl ZoneEntry {
    pub fn new(id: Bytes, name: Bytes) -> Self {
        Self {
            id,
            name,
            endpoints: Vec::new(),
            log_meta: false,
            log_data: false,
            read_only: false,
            tier_type: Bytes::new(),
            redirect_zone: Bytes::new(),
            index_shards: SHARDS,
            sync_from_all: true,
            sync_from: BTreeSet::new(),
        }
    }
}

impl Encode for ZoneEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 1, |w| {
            self.name.encode(w);
            self.endpoints.encode(w);
            self.log_meta.encode(w);
            self.log_data.encode(w);
            self.index_shards.encode(w);
            self.id.encode(w);
            self.read_only.encode(w);
            self.tier_type.encode(w);
            self.sync_from_all.encode(w);
            self.sync_from.encode(w);
            self.redirect_zone.encode(w);
        });
    }
}
impl Decode for ZoneEntry {
    const MIN_SIZE: usize = 14;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("zone in a group", 7, |r, env| {
            let name = r.blob()?;
            let mut z = Self::new(name.clone(), name);
            z.endpoints = Decode::decode(r)?;
            if env.version >= 2 {
                (z.log_meta, z.log_data) = (Decode::decode(r)?, Decode::decode(r)?);
            }
            if env.version >= 3 {
                z.index_shards = r.u32()?;
            }
            if env.version >= 4 {
                (z.id, z.read_only) = (r.blob()?, Decode::decode(r)?);
            }
            if env.version >= 5 {
                z.tier_type = r.blob()?;
            }
            if env.version >= 6 {
                (z.sync_from_all, z.sync_from) = (Decode::decode(r)?, Decode::decode(r)?);
            }
            if env.version >= 7 {
                z.redirect_zone = r.blob()?;
            }
            Ok(z)
        })
    }
}

/// A name for a place of data that all zones of a group have. Source: RGWZoneGroupPlacementTarget.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacementTarget {
    pub name: Bytes,
    /// Users need one of these to choose it.
    pub tags: BTreeSet<Bytes>,
    /// Empty where only the standard one is.
    pub storage_classes: BTreeSet<Bytes>,
}
wire_struct!(PlacementTarget(2, 1) { name, tags } since 2 { storage_classes });

impl PlacementTarget {
    pub fn new(name: Bytes) -> Self {
        Self { name, ..Self::default() }
    }
}

/// Source: RGWZoneGroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZoneGroup {
    pub id: Bytes,
    pub name: Bytes,
    /// S3's region.
    pub api_name: Bytes,
    pub is_master: bool,
    pub endpoints: Vec<Bytes>,
    pub master_zone: Bytes,
    pub zones: BTreeMap<Bytes, ZoneEntry>,
    pub placement: BTreeMap<Bytes, PlacementTarget>,
    pub default_placement: PlacementRule,
    pub hostnames: Vec<Bytes>,
    pub website_hostnames: Vec<Bytes>,
    pub realm: Bytes,
    sync_policy: Option<Kept>,
}

impl ZoneGroup {
    /// As radosgw 16.2 makes the one that it finds missing. Source: RGWZoneGroup::create_default in
    /// src/rgw/rgw_zone.cc.
    pub fn new(id: Bytes, name: Bytes, zone: ZoneEntry) -> Self {
        let target = Bytes::from_static(b"default-placement");
        Self {
            id,
            api_name: name.clone(),
            name,
            is_master: true,
            master_zone: zone.id.clone(),
            zones: BTreeMap::from([(zone.id.clone(), zone)]),
            placement: BTreeMap::from([(target.clone(), PlacementTarget::new(target.clone()))]),
            default_placement: PlacementRule::named(target),
            ..Self::default()
        }
    }
}

impl Encode for ZoneGroup {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 1, |w| {
            self.name.encode(w);
            self.api_name.encode(w);
            self.is_master.encode(w);
            self.endpoints.encode(w);
            self.master_zone.encode(w);
            self.zones.encode(w);
            self.placement.encode(w);
            self.default_placement.encode(w);
            self.hostnames.encode(w);
            self.website_hostnames.encode(w);
            Named { id: self.id.clone(), name: self.name.clone() }.encode(w);
            self.realm.encode(w);
            // No policy is one of no groups.
            self.sync_policy.clone().unwrap_or_else(|| Kept::new([0; 4].to_vec())).encode(w);
        });
    }
}
impl Decode for ZoneGroup {
    const MIN_SIZE: usize = 40;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("zone group", 5, |r, env| {
            let name = r.blob()?;
            let mut g = Self { id: name.clone(), name, api_name: r.blob()?, ..Self::default() };
            (g.is_master, g.endpoints, g.master_zone) = (Decode::decode(r)?, Decode::decode(r)?, r.blob()?);
            (g.zones, g.placement) = (Decode::decode(r)?, Decode::decode(r)?);
            g.default_placement = Decode::decode(r)?;
            if env.version >= 2 {
                g.hostnames = Decode::decode(r)?;
            }
            if env.version >= 3 {
                g.website_hostnames = Decode::decode(r)?;
            }
            if env.version >= 4 {
                Named { id: g.id, name: g.name } = Decode::decode(r)?;
                g.realm = r.blob()?;
            }
            if env.version >= 5 {
                g.sync_policy = Some(Decode::decode(r)?);
            }
            Ok(g)
        })
    }
}
