//! Applies an increment to an OSD map. Source: OSDMap::apply_incremental in src/osd/OSDMap.cc.

use std::sync::Arc;

use bytes::Bytes;
use codec::Decode;
use crush::CrushMap;
use types::{AddrVec, Epoch, Fsid, PoolId, Utime};

use crate::flags::{MAX_PRIMARY_AFFINITY, map_flags, osd_state};
use crate::osdmap::MAX_OSDS;
use crate::{ApplyError, Incremental, OsdInfo, OsdMap, OsdXInfo, Release};

impl OsdMap {
    /// Moves the map one epoch on. On an error the map is as it was.
    pub fn apply(&mut self, inc: &Incremental) -> Result<(), ApplyError> {
        if inc.epoch != Epoch(1) && inc.fsid != self.fsid {
            return Err(ApplyError::OtherCluster { ours: self.fsid, theirs: inc.fsid });
        }
        if inc.epoch != self.epoch.next() {
            return Err(ApplyError::WrongEpoch { ours: self.epoch, theirs: inc.epoch });
        }
        if !inc.fullmap.is_empty() {
            *self = Self::from_bytes(inc.fullmap.clone())?;
            return Ok(());
        }
        let crush = if inc.crush.is_empty() { None } else { Some(CrushMap::from_bytes(inc.crush.clone())?) };
        self.check_osds(inc)?;
        self.check_purged(inc)?;
        // Nothing below fails.
        self.fsid = inc.fsid;
        self.epoch = inc.epoch;
        self.modified = inc.modified;
        if let Ok(flags) = u32::try_from(inc.new_flags) {
            self.set_flags(flags);
        }
        if let Ok(max_osd) = usize::try_from(inc.new_max_osd) {
            self.set_max_osd(max_osd);
        }
        self.apply_pools(inc);
        self.apply_weights(inc);
        self.apply_profiles(inc);
        self.apply_states(inc);
        self.apply_ups(inc);
        self.apply_osd_facts(inc);
        self.apply_placement(inc);
        self.apply_blocklists(inc);
        self.apply_group_flags(inc);
        self.apply_settings(inc);
        if let Some(crush) = crush {
            self.apply_crush(crush);
        }
        if let Some(stretch) = inc.stretch {
            self.stretch = stretch;
        }
        Ok(())
    }

    /// Applies `inc` and compares the crc32c of the result with the one the increment promises; gives the result's wire
    /// form. On an error the map is as it was.
    pub fn apply_checked(&mut self, inc: &Incremental) -> Result<Bytes, ApplyError> {
        let mut next = self.clone();
        next.apply(inc)?;
        let (bytes, actual) = next.encode_with_crc();
        if actual != inc.full_crc {
            return Err(ApplyError::Crc { actual, expected: inc.full_crc });
        }
        *self = next;
        Ok(bytes)
    }

    /// Every OSD that the increment names must be within the map as the increment sizes it.
    fn check_osds(&self, inc: &Incremental) -> Result<(), ApplyError> {
        let max_osd = if inc.new_max_osd >= 0 { inc.new_max_osd } else { self.max_osd() };
        if usize::try_from(max_osd).unwrap_or(0) > MAX_OSDS {
            return Err(ApplyError::TooManyOsds { max_osd });
        }
        let named = inc.new_up_client.keys().chain(inc.new_up_cluster.keys());
        let named = named.chain(inc.new_state.keys()).chain(inc.new_weight.keys());
        let named = named.chain(inc.new_primary_affinity.keys()).chain(inc.new_up_thru.keys());
        let named = named.chain(inc.new_last_clean_interval.keys()).chain(inc.new_lost.keys());
        let mut named = named.chain(inc.new_uuid.keys()).chain(inc.new_xinfo.keys());
        if let Some(osd) = named.find(|osd| **osd < 0 || **osd >= max_osd) {
            return Err(ApplyError::NoSuchOsd { osd: *osd, max_osd });
        }
        let has_heartbeat =
            |osd: &i32| inc.new_hb_back_up.contains_key(osd) && inc.new_hb_front_up.contains_key(osd);
        match inc.new_up_client.keys().find(|osd| !has_heartbeat(osd)) {
            Some(osd) => Err(ApplyError::NoHeartbeatAddrs { osd: *osd }),
            None => Ok(()),
        }
    }

    /// Only what is queued for removal can have been purged.
    fn check_purged(&self, inc: &Incremental) -> Result<(), ApplyError> {
        let queued = |pool: &PoolId| {
            self.removed_snaps_queue.contains_key(pool) || inc.new_removed_snaps.contains_key(pool)
        };
        match inc.new_purged_snaps.keys().find(|pool| !queued(pool)) {
            Some(pool) => Err(ApplyError::NothingToPurge { pool: *pool }),
            None => Ok(()),
        }
    }

    fn set_flags(&mut self, flags: u32) {
        self.flags = flags;
        // Clusters just upgraded to Luminous named the release by a flag.
        let named = if flags & map_flags::REQUIRE_KRAKEN != 0 {
            Release(11)
        } else if flags & map_flags::REQUIRE_JEWEL != 0 {
            Release::JEWEL
        } else {
            return;
        };
        self.require_osd_release = self.require_osd_release.max(named);
    }

    fn apply_pools(&mut self, inc: &Incremental) {
        if inc.new_pool_max != -1 {
            self.pool_max = inc.new_pool_max as i32;
        }
        for (id, pool) in &inc.new_pools {
            let mut pool = pool.clone();
            pool.last_change = self.epoch;
            self.pools.insert(*id, pool);
        }
        self.new_removed_snaps = inc.new_removed_snaps.clone();
        self.new_purged_snaps = inc.new_purged_snaps.clone();
        for (pool, snaps) in &inc.new_removed_snaps {
            self.removed_snaps_queue.entry(*pool).or_default().union_of(snaps);
        }
        for (pool, snaps) in &inc.new_purged_snaps {
            if let Some(queue) = self.removed_snaps_queue.get_mut(pool) {
                queue.subtract(snaps);
                if queue.is_empty() {
                    self.removed_snaps_queue.remove(pool);
                }
            }
        }
        if !inc.new_last_up_change.is_zero() {
            self.last_up_change = inc.new_last_up_change;
        }
        if !inc.new_last_in_change.is_zero() {
            self.last_in_change = inc.new_last_in_change;
        }
        for (id, name) in &inc.new_pool_names {
            self.pool_names.insert(*id, name.clone());
        }
        for id in &inc.old_pools {
            self.pools.remove(id);
            self.pool_names.remove(id);
        }
    }

    fn apply_weights(&mut self, inc: &Incremental) {
        for (osd, weight) in &inc.new_weight {
            if let Some(slot) = usize::try_from(*osd).ok().and_then(|i| self.weights.get_mut(i)) {
                *slot = *weight;
            }
            if *weight == 0 {
                continue;
            }
            if let Some(o) = self.osd_mut(*osd) {
                o.state |= osd_state::EXISTS;
                o.state &= !(osd_state::AUTOOUT | osd_state::NEW);
                o.xinfo.old_weight = 0;
            }
        }
        for (osd, affinity) in &inc.new_primary_affinity {
            self.set_primary_affinity(*osd, *affinity);
        }
    }

    fn set_primary_affinity(&mut self, osd: i32, affinity: u32) {
        let n = self.osds.len();
        let all = self.primary_affinity.get_or_insert_with(|| vec![MAX_PRIMARY_AFFINITY; n]);
        if let Some(slot) = usize::try_from(osd).ok().and_then(|i| all.get_mut(i)) {
            *slot = affinity;
        }
    }

    fn apply_profiles(&mut self, inc: &Incremental) {
        for name in &inc.old_erasure_code_profiles {
            self.erasure_code_profiles.remove(name);
        }
        for (name, profile) in &inc.new_erasure_code_profiles {
            self.erasure_code_profiles.insert(name.clone(), profile.clone());
        }
    }

    fn apply_states(&mut self, inc: &Incremental) {
        let (epoch, modified) = (self.epoch, self.modified);
        for (osd, flip) in &inc.new_state {
            let flip = if *flip == 0 { osd_state::UP } else { *flip };
            let Some(o) = self.osd_mut(*osd) else { continue };
            if o.state & flip & osd_state::UP != 0 {
                o.info.down_at = epoch;
                o.xinfo.down_stamp = modified;
            }
            if o.state & flip & osd_state::EXISTS == 0 {
                o.state ^= flip;
                continue;
            }
            // The number is free again: nothing of the OSD stays.
            o.state = 0;
            o.uuid = Fsid::default();
            o.info = OsdInfo::default();
            o.xinfo = OsdXInfo::default();
            o.client_addrs = AddrVec::default();
            o.cluster_addrs = AddrVec::default();
            o.hb_back_addrs = AddrVec::default();
            o.hb_front_addrs = AddrVec::default();
            self.set_primary_affinity(*osd, MAX_PRIMARY_AFFINITY);
        }
    }

    fn apply_ups(&mut self, inc: &Incremental) {
        let epoch = self.epoch;
        for (osd, addrs) in &inc.new_up_client {
            let Some(o) = self.osd_mut(*osd) else { continue };
            o.state |= osd_state::EXISTS | osd_state::UP;
            o.state &= !osd_state::STOP;
            o.client_addrs = addrs.clone();
            o.hb_back_addrs = inc.new_hb_back_up.get(osd).cloned().unwrap_or_default();
            o.hb_front_addrs = inc.new_hb_front_up.get(osd).cloned().unwrap_or_default();
            o.info.up_from = epoch;
        }
        for (osd, addrs) in &inc.new_up_cluster {
            if let Some(o) = self.osd_mut(*osd) {
                o.cluster_addrs = addrs.clone();
            }
        }
    }

    fn apply_osd_facts(&mut self, inc: &Incremental) {
        for (osd, epoch) in &inc.new_up_thru {
            if let Some(o) = self.osd_mut(*osd) {
                o.info.up_thru = *epoch;
            }
        }
        for (osd, (begin, end)) in &inc.new_last_clean_interval {
            if let Some(o) = self.osd_mut(*osd) {
                o.info.last_clean_begin = *begin;
                o.info.last_clean_end = *end;
            }
        }
        for (osd, epoch) in &inc.new_lost {
            if let Some(o) = self.osd_mut(*osd) {
                o.info.lost_at = *epoch;
            }
        }
        for (osd, xinfo) in &inc.new_xinfo {
            if let Some(o) = self.osd_mut(*osd) {
                o.xinfo = *xinfo;
            }
        }
        for (osd, uuid) in &inc.new_uuid {
            if let Some(o) = self.osd_mut(*osd) {
                o.uuid = *uuid;
            }
        }
    }

    fn apply_placement(&mut self, inc: &Incremental) {
        for (pg, osds) in &inc.new_pg_temp {
            if osds.is_empty() {
                self.pg_temp.remove(pg);
            } else {
                self.pg_temp.insert(*pg, osds.clone());
            }
        }
        for (pg, osd) in &inc.new_primary_temp {
            if *osd == -1 {
                self.primary_temp.remove(pg);
            } else {
                self.primary_temp.insert(*pg, *osd);
            }
        }
        for (pg, osds) in &inc.new_pg_upmap {
            self.pg_upmap.insert(*pg, osds.clone());
        }
        for pg in &inc.old_pg_upmap {
            self.pg_upmap.remove(pg);
        }
        for (pg, items) in &inc.new_pg_upmap_items {
            self.pg_upmap_items.insert(*pg, items.clone());
        }
        for pg in &inc.old_pg_upmap_items {
            self.pg_upmap_items.remove(pg);
        }
    }

    /// An address that is listed already keeps its time, as in Ceph.
    fn apply_blocklists(&mut self, inc: &Incremental) {
        for (addr, until) in &inc.new_blocklist {
            self.blocklist.entry(*addr).or_insert(*until);
        }
        for addr in &inc.old_blocklist {
            self.blocklist.remove(addr);
        }
        for (addr, until) in &inc.new_range_blocklist {
            self.range_blocklist.entry(*addr).or_insert(*until);
        }
        for addr in &inc.old_range_blocklist {
            self.range_blocklist.remove(addr);
        }
    }

    fn apply_group_flags(&mut self, inc: &Incremental) {
        let mine = [&mut self.crush_node_flags, &mut self.device_class_flags];
        for (mine, new) in mine.into_iter().zip([&inc.new_crush_node_flags, &inc.new_device_class_flags]) {
            for (id, flags) in new {
                if *flags == 0 {
                    mine.remove(id);
                } else {
                    mine.insert(*id, *flags);
                }
            }
        }
    }

    fn apply_settings(&mut self, inc: &Incremental) {
        let taken = !inc.cluster_snapshot.is_empty();
        self.cluster_snapshot = inc.cluster_snapshot.clone();
        self.cluster_snapshot_epoch = if taken { inc.epoch } else { Epoch(0) };
        if inc.new_nearfull_ratio >= 0.0 {
            self.nearfull_ratio = inc.new_nearfull_ratio;
        }
        if inc.new_backfillfull_ratio >= 0.0 {
            self.backfillfull_ratio = inc.new_backfillfull_ratio;
        }
        if inc.new_full_ratio >= 0.0 {
            self.full_ratio = inc.new_full_ratio;
        }
        if inc.new_require_min_compat_client > Release::UNKNOWN {
            self.require_min_compat_client = inc.new_require_min_compat_client;
        }
        if inc.new_require_osd_release >= Release::UNKNOWN {
            self.require_osd_release = inc.new_require_osd_release;
            if self.require_osd_release >= Release::LUMINOUS {
                self.flags &= !map_flags::LEGACY_REQUIRE;
                self.flags |= map_flags::RECOVERY_DELETES;
            }
            if self.require_osd_release >= Release::NAUTILUS {
                self.flags |= map_flags::PGLOG_HARDLIMIT;
            }
        }
    }

    fn apply_crush(&mut self, crush: CrushMap) {
        self.device_class_flags.retain(|class, _| crush.class_names.contains_key(class));
        self.crush = Arc::new(crush);
        if self.require_osd_release >= Release::LUMINOUS {
            self.crush_version = self.crush_version.wrapping_add(1);
        }
    }
}

/// The map before epoch 1, to which a cluster's first increment applies.
impl OsdMap {
    pub fn before_first(fsid: Fsid, created: Utime) -> Self {
        Self { fsid, created, crush_version: 1, ..Self::default() }
    }
}
