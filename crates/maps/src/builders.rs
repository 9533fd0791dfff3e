//! The first map of a cluster, and the usual changes to it, as the monitor makes them.
//!
//! Source: OSDMonitor::create_initial, prepare_boot, _prepare_remove_pool, encode_pending in src/mon/OSDMonitor.cc.

use std::collections::BTreeMap;
use std::sync::Arc;

use codec::Encode;
use crush::CrushMap;
use types::{AddrVec, EntityAddr, Epoch, Fsid, OsdId, PgId, PoolId, Utime};

use crate::flags::{WEIGHT_OUT, map_flags, osd_state};
use crate::{Incremental, OsdMap, OsdXInfo, Pool, Release};

/// Where a booting OSD listens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdAddrs {
    pub client: AddrVec,
    pub cluster: AddrVec,
    pub hb_back: AddrVec,
    pub hb_front: AddrVec,
}

impl OsdMap {
    /// Epoch 1 of a new cluster: no OSDs, no pools, Pacific required, `crush` as given.
    pub fn new_cluster(fsid: Fsid, now: Utime, crush: CrushMap) -> Self {
        let profile = [("k", "2"), ("m", "2"), ("plugin", "jerasure"), ("technique", "reed_sol_van")];
        let profile = profile.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        Self {
            epoch: Epoch(1),
            created: now,
            modified: now,
            flags: map_flags::INITIAL,
            crush: Arc::new(crush),
            erasure_code_profiles: BTreeMap::from([("default".to_owned(), profile)]),
            full_ratio: 0.95,
            backfillfull_ratio: 0.90,
            nearfull_ratio: 0.85,
            require_min_compat_client: Release::LUMINOUS,
            require_osd_release: Release::PACIFIC,
            ..Self::before_first(fsid, now)
        }
    }

    /// The lowest number that no OSD has, counting those that an increment is about to create.
    pub fn lowest_free_osd(&self, pending: &Incremental) -> OsdId {
        let taken = |id: i32| {
            self.exists(id) || pending.new_state.get(&id).is_some_and(|s| s & osd_state::EXISTS != 0)
        };
        OsdId((0..i32::MAX).find(|id| !taken(*id)).unwrap_or(i32::MAX))
    }
}

impl Incremental {
    /// The increment that brings a new cluster's map: the whole of it.
    pub fn first(map: &OsdMap) -> Self {
        let (bytes, crc) = map.encode_with_crc();
        let mut inc = Self::new(map.fsid, map.epoch, map.modified);
        inc.fullmap = bytes;
        inc.full_crc = crc;
        // Real monitors repeat the ratios here, although the whole map holds them.
        inc.new_nearfull_ratio = map.nearfull_ratio;
        inc.new_full_ratio = map.full_ratio;
        inc.new_backfillfull_ratio = map.backfillfull_ratio;
        inc
    }

    /// An increment to the epoch after `base`, with nothing in it yet.
    pub fn after(base: &OsdMap, now: Utime) -> Self {
        Self::new(base.fsid, base.epoch.next(), now)
    }

    /// Stamps the increment with `now`, drops flips of no bit, notes when OSDs last went up, down, in or out, and sets
    /// the crc of the map that results. Call it last; returns that map and its wire form.
    pub fn finish(&mut self, base: &OsdMap, now: Utime) -> Result<(OsdMap, bytes::Bytes), crate::ApplyError> {
        self.modified = now;
        self.new_state.retain(|_, flip| *flip != 0);
        if !self.new_up_client.is_empty() || self.new_state.values().any(|s| s & osd_state::UP != 0) {
            self.new_last_up_change = now;
        }
        let turned = |osd: &i32, w: u32| (w != WEIGHT_OUT) != (base.weight(*osd) != WEIGHT_OUT);
        if self.new_weight.iter().any(|(osd, w)| turned(osd, *w)) {
            self.new_last_in_change = now;
        }
        let mut next = base.clone();
        next.apply(self)?;
        let (bytes, crc) = next.encode_with_crc();
        self.full_crc = crc;
        Ok((next, bytes))
    }

    /// Creates an OSD, or revives a destroyed one, under `uuid`.
    pub fn create_osd(&mut self, base: &OsdMap, osd: OsdId, uuid: Fsid) {
        let max_osd = if self.new_max_osd >= 0 { self.new_max_osd } else { base.max_osd() };
        if osd.0 >= max_osd {
            self.new_max_osd = osd.0 + 1;
        }
        let flip =
            if base.is_destroyed(osd.0) { osd_state::DESTROYED } else { osd_state::EXISTS | osd_state::NEW };
        *self.new_state.entry(osd.0).or_default() |= flip;
        if !uuid.is_zero() {
            self.new_uuid.insert(osd.0, uuid);
        }
    }

    /// Marks an OSD up at new addresses. `features` are those of its session.
    pub fn boot_osd(&mut self, base: &OsdMap, osd: OsdId, addrs: OsdAddrs, features: u64) {
        self.new_up_client.insert(osd.0, addrs.client);
        self.new_up_cluster.insert(osd.0, addrs.cluster);
        self.new_hb_back_up.insert(osd.0, addrs.hb_back);
        self.new_hb_front_up.insert(osd.0, addrs.hb_front);
        self.xinfo_mut(base, osd).features = features;
    }

    /// The OSD's further facts, to be changed.
    pub fn xinfo_mut(&mut self, base: &OsdMap, osd: OsdId) -> &mut OsdXInfo {
        let now = base.osd(osd.0).map(|o| o.xinfo).unwrap_or_default();
        self.new_xinfo.entry(osd.0).or_insert(now)
    }

    /// Flips state bits to the values wanted: `set` on, `clear` off. Bits already as wanted stay.
    pub fn change_state(&mut self, base: &OsdMap, osd: OsdId, set: u32, clear: u32) {
        let state = base.osd(osd.0).map_or(0, |o| o.state);
        let pending = self.new_state.entry(osd.0).or_default();
        // What the state will be, and which bits must still flip.
        let will_be = state ^ *pending;
        *pending ^= (set & !will_be) | (clear & will_be);
        if *pending == 0 {
            self.new_state.remove(&osd.0);
        }
    }

    /// Marks an OSD down; nothing when it is down or about to be.
    pub fn mark_down(&mut self, base: &OsdMap, osd: OsdId) {
        self.change_state(base, osd, 0, osd_state::UP);
    }

    /// Sets the in/out weight (16.16): [`crate::flags::WEIGHT_IN`], [`WEIGHT_OUT`] or between.
    pub fn set_weight(&mut self, osd: OsdId, weight: u32) {
        self.new_weight.insert(osd.0, weight);
    }

    /// Marks an OSD out because it stayed down, remembering its weight for when it comes back.
    pub fn mark_out_automatically(&mut self, base: &OsdMap, osd: OsdId) {
        self.xinfo_mut(base, osd).old_weight = base.weight(osd.0);
        self.set_weight(osd, WEIGHT_OUT);
        self.change_state(base, osd, osd_state::AUTOOUT, 0);
    }

    /// Removes an OSD's number from the map.
    pub fn remove_osd(&mut self, base: &OsdMap, osd: OsdId) {
        let state = base.osd(osd.0).map_or(0, |o| o.state);
        self.new_state.insert(osd.0, state);
        self.new_uuid.insert(osd.0, Fsid::default());
    }

    /// Keeps the number but empties it, for another disk under the same number.
    pub fn destroy_osd(&mut self, base: &OsdMap, osd: OsdId) {
        self.change_state(base, osd, osd_state::DESTROYED, 0);
        self.new_uuid.insert(osd.0, Fsid::default());
    }

    /// Switches cluster-wide flags on and off.
    pub fn change_flags(&mut self, base: &OsdMap, set: u32, clear: u32) {
        let flags = u32::try_from(self.new_flags).unwrap_or(base.flags);
        // Bit 31 is unused, so the number stays positive.
        self.new_flags = ((flags | set) & !clear) as i32;
    }

    /// Adds a pool and returns its id.
    pub fn create_pool(&mut self, base: &OsdMap, name: &str, pool: Pool) -> PoolId {
        let last = if self.new_pool_max == -1 { i64::from(base.pool_max) } else { self.new_pool_max };
        let id = PoolId(last + 1);
        self.new_pool_max = id.0;
        self.new_pool_names.insert(id, name.to_owned());
        self.new_pools.insert(id, pool);
        id
    }

    /// The pool as this increment will leave it, to be changed. `None` when there is none.
    pub fn pool_mut(&mut self, base: &OsdMap, id: PoolId) -> Option<&mut Pool> {
        match self.new_pools.entry(id) {
            std::collections::btree_map::Entry::Occupied(e) => Some(e.into_mut()),
            std::collections::btree_map::Entry::Vacant(e) => Some(e.insert(base.pool(id)?.clone())),
        }
    }

    /// The pool as this increment will leave it.
    pub fn pool<'a>(&'a self, base: &'a OsdMap, id: PoolId) -> Option<&'a Pool> {
        self.new_pools.get(&id).or_else(|| base.pool(id))
    }

    /// Removes a pool and every exception for its PGs. Weight sets of the pool in the CRUSH map are the caller's to drop.
    pub fn remove_pool(&mut self, base: &OsdMap, id: PoolId) {
        self.old_pools.insert(id);
        self.new_pools.remove(&id);
        self.new_pool_names.remove(&id);
        let of_pool = |pg: &&PgId| pg.pool == id;
        for pg in base.pg_temp.keys().filter(of_pool) {
            self.new_pg_temp.insert(*pg, Vec::new());
        }
        for pg in base.primary_temp.keys().filter(of_pool) {
            self.new_primary_temp.insert(*pg, -1);
        }
        self.old_pg_upmap.extend(base.pg_upmap.keys().filter(of_pool));
        self.old_pg_upmap_items.extend(base.pg_upmap_items.keys().filter(of_pool));
        self.new_pg_upmap.retain(|pg, _| pg.pool != id);
        self.new_pg_upmap_items.retain(|pg, _| pg.pool != id);
    }

    pub fn rename_pool(&mut self, id: PoolId, name: &str) {
        self.new_pool_names.insert(id, name.to_owned());
    }

    /// Queues a snapshot for removal by the OSDs.
    pub fn remove_snap(&mut self, pool: PoolId, snap: types::SnapId) {
        self.new_removed_snaps.entry(pool).or_default().insert(snap);
    }

    /// Keeps an address out until `until`. Entries that hold for every protocol have the kind "any".
    pub fn blocklist(&mut self, addr: EntityAddr, until: Utime) {
        self.new_blocklist.insert(addr, until);
        self.old_blocklist.retain(|a| *a != addr);
    }

    /// Lets an address in again.
    pub fn unblocklist(&mut self, base: &OsdMap, addr: EntityAddr) {
        self.new_blocklist.remove(&addr);
        if base.blocklist.contains_key(&addr) {
            self.old_blocklist.push(addr);
        }
    }

    /// Sets the acting set of a PG for a while; an empty list ends that.
    pub fn set_pg_temp(&mut self, pg: PgId, osds: Vec<i32>) {
        self.new_pg_temp.insert(pg, osds);
    }

    /// Replaces the CRUSH map.
    pub fn set_crush(&mut self, crush: &CrushMap) {
        self.crush = crush.to_bytes();
    }
}
