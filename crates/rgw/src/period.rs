//! Realms, and the states that the zone groups of one went through. Source: src/rgw/rgw_zone.h and .cc.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

use crate::zone::Named;
use crate::{Quota, ZoneGroup};

/// Source: RGWRealm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Realm {
    pub id: Bytes,
    pub name: Bytes,
    pub current_period: Bytes,
    /// Counts its periods.
    pub epoch: u32,
}

impl Encode for Realm {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            Named { id: self.id.clone(), name: self.name.clone() }.encode(w);
            self.current_period.encode(w);
            self.epoch.encode(w);
        });
    }
}
impl Decode for Realm {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("realm", 1, |r, _| {
            let Named { id, name } = Decode::decode(r)?;
            Ok(Self { id, name, current_period: r.blob()?, epoch: r.u32()? })
        })
    }
}

/// The zone groups of a period. Source: RGWPeriodMap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeriodMap {
    /// The period's.
    pub id: Bytes,
    pub zonegroups: BTreeMap<Bytes, ZoneGroup>,
    pub master_zonegroup: Bytes,
    /// Numbers that stand for zones in places where there is no room for an id.
    pub short_zone_ids: BTreeMap<Bytes, u32>,
}
wire_struct!(PeriodMap(2, 1) { id, zonegroups, master_zonegroup } since 2 { short_zone_ids });

/// Quotas of users and buckets that have none of their own. Source: RGWPeriodConfig.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeriodConfig {
    pub bucket: Quota,
    pub user: Quota,
}
wire_struct!(PeriodConfig(1, 1) { bucket, user });

/// Source: RGWPeriod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Period {
    pub id: Bytes,
    pub epoch: u32,
    /// The realm's, when this became its current period.
    pub realm_epoch: u32,
    pub predecessor: Bytes,
    pub sync_status: Vec<Bytes>,
    pub map: PeriodMap,
    pub master_zone: Bytes,
    pub master_zonegroup: Bytes,
    pub config: PeriodConfig,
    pub realm: Bytes,
    pub realm_name: Bytes,
}
wire_struct!(Period(1, 1) {
    id,
    epoch,
    realm_epoch,
    predecessor,
    sync_status,
    map,
    master_zone,
    master_zonegroup,
    config,
    realm,
    realm_name,
});
