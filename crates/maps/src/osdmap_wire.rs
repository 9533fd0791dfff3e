//! The wire form of the OSD map: a part that clients use, a part for OSDs only, and a crc32c over both.
//!
//! Source: OSDMap::encode and decode in src/osd/OSDMap.cc, doc/dev/osd_internals/osdmap_versions.txt.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, crc32c};
use crush::CrushMap;
use types::{AddrVec, Epoch, Fsid, Utime};

use crate::addrs::encode_by_addr;
use crate::flags::map_flags;
use crate::osdmap::MAX_OSDS;
use crate::{Osd, OsdMap, Release, StretchMode};

/// Version of the wrapper around both parts, in maps and increments.
pub(crate) const WRAPPER: u8 = 8;
pub(crate) const WRAPPER_COMPAT: u8 = 7;
/// Versions of the parts that we write; the second rises with what the map holds.
const CLIENT_PART: u8 = 9;
const OSD_PART: u8 = 9;
/// The OSD part's version when it holds stretch mode, and when it holds ranges of addresses.
pub(crate) const OSD_PART_STRETCH: u8 = 10;
pub(crate) const OSD_PART_RANGES: u8 = 11;
/// The oldest client part we read: Luminous'.
const OLDEST_CLIENT_PART: u8 = 6;

/// Appends the wrapper around what `body` writes, the crc32c of all of it, and `tail`, which the crc covers as well.
/// Returns the crc.
pub(crate) fn encode_with_crc(w: &mut Writer, body: impl FnOnce(&mut Writer), tail: &[u8]) -> u32 {
    // The crc covers the wrapper's head, so the whole is built apart and the crc patched in.
    let mut inner = Writer::new();
    let mut at = 0;
    inner.envelope(WRAPPER, WRAPPER_COMPAT, |w| {
        body(w);
        at = w.len();
        w.u32(0);
        w.raw(tail);
    });
    let bytes = inner.as_slice();
    let front = bytes.get(..at).unwrap_or_default();
    let crc = crc32c(crc32c(!0, front), tail);
    inner.patch_u32(at, crc);
    w.raw(inner.as_slice());
    crc
}

/// Reads what [`encode_with_crc`] wrote: `body` reads the parts and `tail` what follows the crc.
pub(crate) fn decode_with_crc<T>(
    what: &'static str,
    r: &mut Reader,
    body: impl FnOnce(&mut Reader) -> Result<T, DecodeError>,
    tail: impl FnOnce(&mut T, &mut Reader) -> Result<(), DecodeError>,
) -> Result<(T, u32), DecodeError> {
    let (all, start) = (r.rest(), r.position());
    r.envelope(what, WRAPPER, |r, env| {
        if env.version < WRAPPER {
            // Older wrappers have no crc or no envelope at all: no release since Jewel writes them.
            return Err(DecodeError::Invalid { what, value: env.version.into() });
        }
        let mut value = body(r)?;
        let front = all.get(..r.position() - start).unwrap_or_default();
        let claimed = r.u32()?;
        let actual = crc32c(crc32c(!0, front), &r.rest());
        if claimed != actual {
            return Err(DecodeError::Invalid { what: "map crc", value: claimed.into() });
        }
        tail(&mut value, r)?;
        Ok((value, claimed))
    })
}

impl OsdMap {
    /// The wire form and the crc32c inside it, which the increment that leads here repeats as its `full_crc`.
    pub fn encode_with_crc(&self) -> (Bytes, u32) {
        let mut w = Writer::new();
        let crc = self.encode_into(&mut w);
        (w.into_bytes(), crc)
    }

    /// Decodes a map and gives the crc32c it carried.
    pub fn decode_with_crc(r: &mut Reader) -> Result<(Self, u32), DecodeError> {
        decode_with_crc(
            "OSDMap",
            r,
            |r| {
                let mut map = decode_client_part(r)?;
                decode_osd_part(&mut map, r)?;
                Ok(map)
            },
            |_, _| Ok(()),
        )
    }

    fn encode_into(&self, w: &mut Writer) -> u32 {
        self.assert_invariants();
        let body = |w: &mut Writer| {
            w.envelope(CLIENT_PART, 1, |w| self.encode_client_part(w));
            let mut version = OSD_PART;
            if self.stretch.enabled {
                version = version.max(OSD_PART_STRETCH);
            }
            if !self.range_blocklist.is_empty() {
                version = version.max(OSD_PART_RANGES);
            }
            w.envelope(version, 1, |w| self.encode_osd_part(version, w));
        };
        encode_with_crc(w, body, &[])
    }

    fn encode_client_part(&self, w: &mut Writer) {
        self.fsid.encode(w);
        self.epoch.encode(w);
        self.created.encode(w);
        self.modified.encode(w);
        self.pools.encode(w);
        self.pool_names.encode(w);
        w.i32(self.pool_max);
        w.u32(self.flags);
        w.i32(self.max_osd());
        self.each_osd(w, |o, w| w.u32(o.state));
        self.weights.encode(w);
        self.each_osd(w, |o, w| o.client_addrs.encode(w));
        self.pg_temp.encode(w);
        self.primary_temp.encode(w);
        self.primary_affinity.as_deref().unwrap_or_default().encode(w);
        w.sized(|w| self.crush.encode(w));
        self.erasure_code_profiles.encode(w);
        self.pg_upmap.encode(w);
        self.pg_upmap_items.encode(w);
        w.u32(self.crush_version);
        self.new_removed_snaps.encode(w);
        self.new_purged_snaps.encode(w);
        self.last_up_change.encode(w);
        self.last_in_change.encode(w);
    }

    fn encode_osd_part(&self, version: u8, w: &mut Writer) {
        self.each_osd(w, |o, w| o.hb_back_addrs.encode(w));
        self.each_osd(w, |o, w| o.info.encode(w));
        encode_by_addr(&self.blocklist, w);
        self.each_osd(w, |o, w| o.cluster_addrs.encode(w));
        self.cluster_snapshot_epoch.encode(w);
        self.cluster_snapshot.encode(w);
        self.each_osd(w, |o, w| o.uuid.encode(w));
        self.each_osd(w, |o, w| o.xinfo.encode(w));
        self.each_osd(w, |o, w| o.hb_front_addrs.encode(w));
        self.nearfull_ratio.encode(w);
        self.full_ratio.encode(w);
        self.backfillfull_ratio.encode(w);
        self.require_min_compat_client.encode(w);
        self.require_osd_release.encode(w);
        self.removed_snaps_queue.encode(w);
        self.crush_node_flags.encode(w);
        self.device_class_flags.encode(w);
        if version >= OSD_PART_STRETCH {
            let s = &self.stretch;
            s.enabled.encode(w);
            w.u32(s.bucket_count);
            w.u32(s.degraded);
            w.u32(s.recovering);
            w.i32(s.bucket_type);
        }
        if version >= OSD_PART_RANGES {
            encode_by_addr(&self.range_blocklist, w);
        }
    }

    /// One field of every OSD, as a list.
    fn each_osd(&self, w: &mut Writer, field: impl Fn(&Osd, &mut Writer)) {
        w.count(self.osds.len());
        self.osds.iter().for_each(|o| field(o, w));
    }

    /// Reads one field of every OSD. All lists of a map have `max_osd` elements; another count is refused.
    fn read_each_osd<T: Decode>(
        &mut self,
        what: &'static str,
        r: &mut Reader,
        set: impl Fn(&mut Osd, T),
    ) -> Result<(), DecodeError> {
        let n = r.count(what, T::MIN_SIZE)?;
        if n != self.osds.len() {
            return Err(DecodeError::Invalid { what, value: n as u64 });
        }
        self.osds.iter_mut().try_for_each(|o| T::decode(r).map(|v| set(o, v)))
    }
}

impl Encode for OsdMap {
    fn encode(&self, w: &mut Writer) {
        self.encode_into(w);
    }
}
impl Decode for OsdMap {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Self::decode_with_crc(r).map(|(map, _)| map)
    }
}

fn decode_client_part(r: &mut Reader) -> Result<OsdMap, DecodeError> {
    r.envelope("OSDMap client part", CLIENT_PART, |r, env| {
        if env.version < OLDEST_CLIENT_PART {
            return Err(DecodeError::Invalid { what: "OSDMap client part", value: env.version.into() });
        }
        let mut map = OsdMap {
            fsid: Fsid::decode(r)?,
            epoch: Epoch::decode(r)?,
            created: Utime::decode(r)?,
            modified: Utime::decode(r)?,
            pools: Decode::decode(r)?,
            pool_names: Decode::decode(r)?,
            pool_max: r.i32()?,
            flags: r.u32()?,
            ..OsdMap::default()
        };
        let max_osd = r.i32()?;
        // Each OSD takes four bytes in the list that follows at once, so this cannot allocate out of proportion.
        let bound = MAX_OSDS.min(r.remaining() / 4);
        match usize::try_from(max_osd) {
            Ok(n) if n <= bound => map.set_max_osd(n),
            _ => {
                let claimed = u64::from(max_osd as u32);
                return Err(DecodeError::TooLarge { what: "max_osd", claimed, bound: bound as u64 });
            }
        }
        map.read_each_osd("osd_state", r, |o, state| o.state = state)?;
        map.weights = Decode::decode(r)?;
        check_len("osd_weight", map.weights.len(), &map)?;
        map.read_each_osd("client_addrs", r, |o, a: AddrVec| o.client_addrs = a)?;
        map.pg_temp = Decode::decode(r)?;
        map.primary_temp = Decode::decode(r)?;
        let affinity: Vec<u32> = Decode::decode(r)?;
        if !affinity.is_empty() {
            check_len("osd_primary_affinity", affinity.len(), &map)?;
            map.primary_affinity = Some(affinity);
        }
        map.crush = Arc::new(CrushMap::from_bytes(r.blob()?)?);
        map.erasure_code_profiles = Decode::decode(r)?;
        map.pg_upmap = Decode::decode(r)?;
        map.pg_upmap_items = Decode::decode(r)?;
        map.crush_version = r.u32()?;
        if env.version >= 7 {
            map.new_removed_snaps = Decode::decode(r)?;
            map.new_purged_snaps = Decode::decode(r)?;
        }
        if env.version >= 9 {
            map.last_up_change = Utime::decode(r)?;
            map.last_in_change = Utime::decode(r)?;
        }
        Ok(map)
    })
}

fn check_len(what: &'static str, n: usize, map: &OsdMap) -> Result<(), DecodeError> {
    if n == map.osds.len() { Ok(()) } else { Err(DecodeError::Invalid { what, value: n as u64 }) }
}

fn decode_osd_part(map: &mut OsdMap, r: &mut Reader) -> Result<(), DecodeError> {
    r.envelope("OSDMap OSD part", OSD_PART_RANGES, |r, env| {
        if env.version < 5 {
            return Err(DecodeError::Invalid { what: "OSDMap OSD part", value: env.version.into() });
        }
        map.read_each_osd("hb_back_addrs", r, |o, a: AddrVec| o.hb_back_addrs = a)?;
        map.read_each_osd("osd_info", r, |o, info| o.info = info)?;
        map.blocklist = Decode::decode(r)?;
        map.read_each_osd("cluster_addrs", r, |o, a: AddrVec| o.cluster_addrs = a)?;
        map.cluster_snapshot_epoch = Epoch::decode(r)?;
        map.cluster_snapshot = String::decode(r)?;
        map.read_each_osd("osd_uuid", r, |o, uuid| o.uuid = uuid)?;
        map.read_each_osd("osd_xinfo", r, |o, xinfo| o.xinfo = xinfo)?;
        map.read_each_osd("hb_front_addrs", r, |o, a: AddrVec| o.hb_front_addrs = a)?;
        map.nearfull_ratio = f32::decode(r)?;
        map.full_ratio = f32::decode(r)?;
        map.backfillfull_ratio = f32::decode(r)?;
        map.require_min_compat_client = Release::decode(r)?;
        map.require_osd_release = Release::decode(r)?;
        imply_flags(map);
        if env.version >= 6 {
            map.removed_snaps_queue = Decode::decode(r)?;
        }
        if env.version >= 8 {
            map.crush_node_flags = Decode::decode(r)?;
        }
        if env.version >= 9 {
            map.device_class_flags = Decode::decode(r)?;
        }
        if env.version >= OSD_PART_STRETCH {
            map.stretch = StretchMode {
                enabled: bool::decode(r)?,
                bucket_count: r.u32()?,
                degraded: r.u32()?,
                recovering: r.u32()?,
                bucket_type: r.i32()?,
            };
        }
        if env.version >= OSD_PART_RANGES {
            map.range_blocklist = BTreeMap::decode(r)?;
        }
        Ok(())
    })
}

/// The flags that follow from the required release.
fn imply_flags(map: &mut OsdMap) {
    if map.require_osd_release >= Release::NAUTILUS {
        map.flags |= map_flags::PGLOG_HARDLIMIT;
    }
    if map.require_osd_release >= Release::LUMINOUS {
        map.flags &= !map_flags::LEGACY_REQUIRE;
        map.flags |= map_flags::RECOVERY_DELETES;
    }
}
