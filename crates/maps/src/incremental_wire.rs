//! The wire form of OSD map increments. Source: OSDMap::Incremental::encode and decode in src/osd/OSDMap.cc.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Epoch, Fsid, Utime};

use crate::addrs::encode_by_addr;
use crate::osdmap_wire::{OSD_PART_RANGES, OSD_PART_STRETCH, decode_with_crc, encode_with_crc};
use crate::{Incremental, Release, StretchMode};

const CLIENT_PART: u8 = 8;
const OSD_PART: u8 = 9;
/// The oldest client part we read: Luminous'.
const OLDEST_CLIENT_PART: u8 = 5;

impl Encode for Incremental {
    fn encode(&self, w: &mut Writer) {
        let body = |w: &mut Writer| {
            w.envelope(CLIENT_PART, 1, |w| self.encode_client_part(w));
            let mut version = OSD_PART;
            if self.stretch.is_some() {
                version = version.max(OSD_PART_STRETCH);
            }
            if !self.new_range_blocklist.is_empty() || !self.old_range_blocklist.is_empty() {
                version = version.max(OSD_PART_RANGES);
            }
            w.envelope(version, 1, |w| self.encode_osd_part(version, w));
        };
        encode_with_crc(w, body, &self.full_crc.to_le_bytes());
    }
}

impl Incremental {
    fn encode_client_part(&self, w: &mut Writer) {
        self.fsid.encode(w);
        self.epoch.encode(w);
        self.modified.encode(w);
        w.i64(self.new_pool_max);
        w.i32(self.new_flags);
        self.fullmap.encode(w);
        self.crush.encode(w);
        w.i32(self.new_max_osd);
        self.new_pools.encode(w);
        self.new_pool_names.encode(w);
        self.old_pools.encode(w);
        self.new_up_client.encode(w);
        self.new_state.encode(w);
        self.new_weight.encode(w);
        self.new_pg_temp.encode(w);
        self.new_primary_temp.encode(w);
        self.new_primary_affinity.encode(w);
        self.new_erasure_code_profiles.encode(w);
        self.old_erasure_code_profiles.encode(w);
        self.new_pg_upmap.encode(w);
        self.old_pg_upmap.encode(w);
        self.new_pg_upmap_items.encode(w);
        self.old_pg_upmap_items.encode(w);
        self.new_removed_snaps.encode(w);
        self.new_purged_snaps.encode(w);
        self.new_last_up_change.encode(w);
        self.new_last_in_change.encode(w);
    }

    fn encode_osd_part(&self, version: u8, w: &mut Writer) {
        self.new_hb_back_up.encode(w);
        self.new_up_thru.encode(w);
        self.new_last_clean_interval.encode(w);
        self.new_lost.encode(w);
        encode_by_addr(&self.new_blocklist, w);
        self.old_blocklist.encode(w);
        self.new_up_cluster.encode(w);
        self.cluster_snapshot.encode(w);
        self.new_uuid.encode(w);
        self.new_xinfo.encode(w);
        self.new_hb_front_up.encode(w);
        w.u64(self.encode_features);
        self.new_nearfull_ratio.encode(w);
        self.new_full_ratio.encode(w);
        self.new_backfillfull_ratio.encode(w);
        self.new_require_min_compat_client.encode(w);
        self.new_require_osd_release.encode(w);
        self.new_crush_node_flags.encode(w);
        self.new_device_class_flags.encode(w);
        if version >= OSD_PART_STRETCH {
            let s = self.stretch.unwrap_or_default();
            self.stretch.is_some().encode(w);
            w.u32(s.bucket_count);
            w.u32(s.degraded);
            w.u32(s.recovering);
            w.i32(s.bucket_type);
            s.enabled.encode(w);
        }
        if version >= OSD_PART_RANGES {
            encode_by_addr(&self.new_range_blocklist, w);
            self.old_range_blocklist.encode(w);
        }
    }
}

impl Decode for Incremental {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let body = |r: &mut Reader| {
            let mut inc = decode_client_part(r)?;
            decode_osd_part(&mut inc, r)?;
            Ok(inc)
        };
        let tail = |inc: &mut Self, r: &mut Reader| {
            inc.full_crc = r.u32()?;
            Ok(())
        };
        decode_with_crc("OSDMap::Incremental", r, body, tail).map(|(inc, _)| inc)
    }
}

fn decode_client_part(r: &mut Reader) -> Result<Incremental, DecodeError> {
    r.envelope("increment's client part", CLIENT_PART, |r, env| {
        if env.version < OLDEST_CLIENT_PART {
            return Err(DecodeError::Invalid { what: "increment's client part", value: env.version.into() });
        }
        let mut inc = Incremental::new(Fsid::decode(r)?, Epoch::decode(r)?, Utime::decode(r)?);
        inc.new_pool_max = r.i64()?;
        inc.new_flags = r.i32()?;
        inc.fullmap = r.blob()?;
        inc.crush = r.blob()?;
        inc.new_max_osd = r.i32()?;
        inc.new_pools = Decode::decode(r)?;
        inc.new_pool_names = Decode::decode(r)?;
        inc.old_pools = Decode::decode(r)?;
        inc.new_up_client = Decode::decode(r)?;
        inc.new_state = Decode::decode(r)?;
        inc.new_weight = Decode::decode(r)?;
        inc.new_pg_temp = Decode::decode(r)?;
        inc.new_primary_temp = Decode::decode(r)?;
        inc.new_primary_affinity = Decode::decode(r)?;
        inc.new_erasure_code_profiles = Decode::decode(r)?;
        inc.old_erasure_code_profiles = Decode::decode(r)?;
        inc.new_pg_upmap = Decode::decode(r)?;
        inc.old_pg_upmap = Decode::decode(r)?;
        inc.new_pg_upmap_items = Decode::decode(r)?;
        inc.old_pg_upmap_items = Decode::decode(r)?;
        if env.version >= 6 {
            inc.new_removed_snaps = Decode::decode(r)?;
            inc.new_purged_snaps = Decode::decode(r)?;
        }
        if env.version >= 8 {
            inc.new_last_up_change = Utime::decode(r)?;
            inc.new_last_in_change = Utime::decode(r)?;
        }
        Ok(inc)
    })
}

fn decode_osd_part(inc: &mut Incremental, r: &mut Reader) -> Result<(), DecodeError> {
    r.envelope("increment's OSD part", OSD_PART_RANGES, |r, env| {
        if env.version < 6 {
            return Err(DecodeError::Invalid { what: "increment's OSD part", value: env.version.into() });
        }
        inc.new_hb_back_up = Decode::decode(r)?;
        inc.new_up_thru = Decode::decode(r)?;
        inc.new_last_clean_interval = Decode::decode(r)?;
        inc.new_lost = Decode::decode(r)?;
        inc.new_blocklist = Decode::decode(r)?;
        inc.old_blocklist = Decode::decode(r)?;
        inc.new_up_cluster = Decode::decode(r)?;
        inc.cluster_snapshot = Decode::decode(r)?;
        inc.new_uuid = Decode::decode(r)?;
        inc.new_xinfo = Decode::decode(r)?;
        inc.new_hb_front_up = Decode::decode(r)?;
        inc.encode_features = r.u64()?;
        inc.new_nearfull_ratio = f32::decode(r)?;
        inc.new_full_ratio = f32::decode(r)?;
        inc.new_backfillfull_ratio = f32::decode(r)?;
        inc.new_require_min_compat_client = Release::decode(r)?;
        inc.new_require_osd_release = Release::decode(r)?;
        if env.version >= 8 {
            inc.new_crush_node_flags = Decode::decode(r)?;
        }
        if env.version >= 9 {
            inc.new_device_class_flags = Decode::decode(r)?;
        }
        if env.version >= OSD_PART_STRETCH {
            let change = bool::decode(r)?;
            let mut s = StretchMode {
                bucket_count: r.u32()?,
                degraded: r.u32()?,
                recovering: r.u32()?,
                bucket_type: r.i32()?,
                enabled: false,
            };
            s.enabled = bool::decode(r)?;
            inc.stretch = change.then_some(s);
        }
        if env.version >= OSD_PART_RANGES {
            inc.new_range_blocklist = Decode::decode(r)?;
            inc.old_range_blocklist = Decode::decode(r)?;
        }
        Ok(())
    })
}
