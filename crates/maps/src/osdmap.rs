//! The OSD map: pools, OSDs, the CRUSH map, and exceptions to where CRUSH places PGs.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crush::CrushMap;
use types::{AddrKind, AddrVec, EntityAddr, Epoch, Fsid, OsdId, PgId, PoolId, SnapId, Utime};

use crate::flags::{MAX_PRIMARY_AFFINITY, WEIGHT_OUT, map_flags, osd_state};
use crate::{Osd, Pool, Release, SnapIntervals};

/// Settings of one erasure code profile.
pub type Profile = BTreeMap<String, String>;

/// The most OSDs a map may have. Monitors refuse more than `mon_max_osd` (10,000 by default); this is the bound on what
/// a peer can make us allocate.
pub const MAX_OSDS: usize = 1 << 20;

/// The OSD map.
///
/// Invariants: (1) `osds` and `weights` have the same length, which is the wire's `max_osd`, and so has
/// `primary_affinity` when it is there; (2) that length is at most [`MAX_OSDS`].
/// Source: OSDMap in src/osd/OSDMap.h.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdMap {
    pub fsid: Fsid,
    pub epoch: Epoch,
    pub created: Utime,
    pub modified: Utime,
    pub pools: BTreeMap<PoolId, Pool>,
    pub pool_names: BTreeMap<PoolId, String>,
    /// The highest pool id ever given out; ids are not reused.
    pub pool_max: i32,
    /// Bits of [`map_flags`].
    pub flags: u32,
    pub osds: Vec<Osd>,
    /// 16.16: `0x10000` is fully in, 0 is out.
    pub weights: Vec<u32>,
    /// 16.16; `None` while every OSD has the default.
    pub primary_affinity: Option<Vec<u32>>,
    /// PGs whose acting set differs from their up set for a while.
    pub pg_temp: BTreeMap<PgId, Vec<i32>>,
    pub primary_temp: BTreeMap<PgId, i32>,
    pub crush: Arc<CrushMap>,
    pub crush_version: u32,
    pub erasure_code_profiles: BTreeMap<String, Profile>,
    /// Whole OSD lists that replace what CRUSH gives.
    pub pg_upmap: BTreeMap<PgId, Vec<i32>>,
    /// OSDs (from, to) that replace others in what CRUSH gives.
    pub pg_upmap_items: BTreeMap<PgId, Vec<(i32, i32)>>,
    pub last_up_change: Utime,
    pub last_in_change: Utime,
    /// When each address may come back.
    pub blocklist: BTreeMap<EntityAddr, Utime>,
    /// The same for address ranges.
    pub range_blocklist: BTreeMap<EntityAddr, Utime>,
    pub cluster_snapshot_epoch: Epoch,
    pub cluster_snapshot: String,
    pub nearfull_ratio: f32,
    pub full_ratio: f32,
    pub backfillfull_ratio: f32,
    pub require_min_compat_client: Release,
    pub require_osd_release: Release,
    /// Snapshots that OSDs still have to remove.
    pub removed_snaps_queue: BTreeMap<PoolId, SnapIntervals>,
    /// What this epoch added to and took from that queue.
    pub new_removed_snaps: BTreeMap<PoolId, SnapIntervals>,
    pub new_purged_snaps: BTreeMap<PoolId, SnapIntervals>,
    /// `noup` and the like for CRUSH buckets and device classes.
    pub crush_node_flags: BTreeMap<i32, u32>,
    pub device_class_flags: BTreeMap<i32, u32>,
    pub stretch: StretchMode,
}

/// The state of a cluster that spans two sites. Source: OSDMap::stretch_mode_enabled and its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StretchMode {
    pub enabled: bool,
    /// Sites expected.
    pub bucket_count: u32,
    /// 0, or how many sites are up.
    pub degraded: u32,
    /// 1 while recovering.
    pub recovering: u32,
    /// The CRUSH type of a site.
    pub bucket_type: i32,
}

/// OSDs counted by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdCounts {
    pub total: usize,
    pub up: usize,
    pub r#in: usize,
}

impl OsdMap {
    /// One above the highest OSD number.
    pub fn max_osd(&self) -> i32 {
        self.osds.len() as i32
    }

    /// Grows or shrinks the tables of OSDs. `max_osd` above [`MAX_OSDS`] is cut to it.
    pub fn set_max_osd(&mut self, max_osd: usize) {
        let n = max_osd.min(MAX_OSDS);
        self.osds.resize_with(n, Osd::default);
        self.weights.resize(n, WEIGHT_OUT);
        if let Some(affinity) = &mut self.primary_affinity {
            affinity.resize(n, MAX_PRIMARY_AFFINITY);
        }
    }

    /// The OSD's entry, whether the OSD exists or not; `None` for numbers outside the map.
    pub fn osd(&self, osd: impl Into<OsdId>) -> Option<&Osd> {
        let OsdId(osd) = osd.into();
        self.osds.get(usize::try_from(osd).ok()?)
    }

    pub(crate) fn osd_mut(&mut self, osd: i32) -> Option<&mut Osd> {
        self.osds.get_mut(usize::try_from(osd).ok()?)
    }

    pub fn exists(&self, osd: impl Into<OsdId>) -> bool {
        let OsdId(osd) = osd.into();
        self.osd(osd).is_some_and(Osd::exists)
    }

    pub fn is_up(&self, osd: impl Into<OsdId>) -> bool {
        let OsdId(osd) = osd.into();
        self.osd(osd).is_some_and(Osd::is_up)
    }

    pub fn is_down(&self, osd: impl Into<OsdId>) -> bool {
        let OsdId(osd) = osd.into();
        !self.is_up(osd)
    }

    pub fn is_in(&self, osd: impl Into<OsdId>) -> bool {
        let OsdId(osd) = osd.into();
        self.exists(osd) && self.weight(osd) != WEIGHT_OUT
    }

    pub fn is_out(&self, osd: impl Into<OsdId>) -> bool {
        let OsdId(osd) = osd.into();
        !self.is_in(osd)
    }

    pub fn is_destroyed(&self, osd: impl Into<OsdId>) -> bool {
        let OsdId(osd) = osd.into();
        self.osd(osd).is_some_and(|o| o.exists() && o.state & osd_state::DESTROYED != 0)
    }

    /// Whether the OSD is surely dead since its last start, not only down. Source: OSDMap::is_dead.
    pub fn is_dead(&self, osd: impl Into<OsdId>) -> bool {
        let OsdId(osd) = osd.into();
        self.osd(osd).is_some_and(|o| o.exists() && o.xinfo.dead_epoch > o.info.up_from)
    }

    /// Weight (16.16); 0 for numbers outside the map.
    pub fn weight(&self, osd: impl Into<OsdId>) -> u32 {
        let OsdId(osd) = osd.into();
        usize::try_from(osd).ok().and_then(|i| self.weights.get(i)).copied().unwrap_or(WEIGHT_OUT)
    }

    /// Weight from 0 to 1, as dumps show it.
    pub fn weight_f32(&self, osd: impl Into<OsdId>) -> f32 {
        let OsdId(osd) = osd.into();
        self.weight(osd) as f32 / 65_536.0
    }

    /// Primary affinity (16.16).
    pub fn primary_affinity(&self, osd: impl Into<OsdId>) -> u32 {
        let OsdId(osd) = osd.into();
        let at = |v: &Vec<u32>| v.get(usize::try_from(osd).ok()?).copied();
        self.primary_affinity.as_ref().and_then(at).unwrap_or(MAX_PRIMARY_AFFINITY)
    }

    pub fn primary_affinity_f32(&self, osd: impl Into<OsdId>) -> f32 {
        let OsdId(osd) = osd.into();
        self.primary_affinity(osd) as f32 / 65_536.0
    }

    /// Numbers and entries of the OSDs that exist.
    pub fn existing_osds(&self) -> impl Iterator<Item = (OsdId, &Osd)> {
        (0..).map(OsdId).zip(&self.osds).filter(|(_, o)| o.exists())
    }

    pub fn counts(&self) -> OsdCounts {
        let mut n = OsdCounts::default();
        for (id, o) in self.existing_osds() {
            n.total += 1;
            n.up += usize::from(o.is_up());
            n.r#in += usize::from(self.is_in(id.0));
        }
        n
    }

    /// The number of the OSD with this UUID.
    pub fn osd_by_uuid(&self, uuid: &Fsid) -> Option<OsdId> {
        self.existing_osds().find(|(_, o)| o.uuid == *uuid).map(|(id, _)| id)
    }

    /// The OSD that has one of its four address lists at `addr`. Source: OSDMap::identify_osd_on_all_channels.
    pub fn osd_by_addr(&self, addr: &EntityAddr) -> Option<OsdId> {
        let at = |v: &AddrVec| v.0.contains(addr);
        let hit = |o: &Osd| {
            at(&o.client_addrs) || at(&o.cluster_addrs) || at(&o.hb_back_addrs) || at(&o.hb_front_addrs)
        };
        self.existing_osds().find(|(_, o)| hit(o)).map(|(id, _)| id)
    }

    /// Whether an address may not come in: by itself, by its whole host, or by a range. Source: OSDMap::is_blocklisted.
    pub fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        let Some(socket) = addr.socket else { return false };
        // Entries hold for every protocol.
        let own = EntityAddr { kind: AddrKind::Any, ..*addr };
        let host =
            EntityAddr { kind: AddrKind::Any, nonce: 0, socket: Some(SocketAddr::new(socket.ip(), 0)) };
        self.blocklist.contains_key(&own)
            || self.blocklist.contains_key(&host)
            || self.range_blocklist.keys().any(|range| in_range(range, socket.ip()))
    }

    /// [`Self::is_blocklisted`] for any of a list.
    pub fn any_blocklisted(&self, addrs: &AddrVec) -> bool {
        addrs.0.iter().any(|a| self.is_blocklisted(a))
    }

    /// Feature bits that every OSD that is up has; 0 when none is up. Source: OSDMap::_calc_up_osd_features.
    pub fn up_osd_features(&self) -> u64 {
        let up = self.osds.iter().filter(|o| o.is_up() && o.xinfo.features != 0);
        up.map(|o| o.xinfo.features).reduce(|a, b| a & b).unwrap_or(0)
    }

    pub fn test_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub fn flags_text(&self) -> String {
        map_flags::to_text(self.flags)
    }

    pub fn pool(&self, pool: PoolId) -> Option<&Pool> {
        self.pools.get(&pool)
    }

    pub fn pool_name(&self, pool: PoolId) -> Option<&str> {
        self.pool_names.get(&pool).map(String::as_str)
    }

    pub fn pool_by_name(&self, name: &str) -> Option<PoolId> {
        self.pool_names.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }

    pub fn pg_exists(&self, pg: PgId) -> bool {
        self.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num)
    }

    /// Every PG of the map, by pool and seed.
    pub fn pgs(&self) -> impl Iterator<Item = PgId> + '_ {
        self.pools.iter().flat_map(|(id, p)| (0..p.pg_num).map(|seed| PgId::new(*id, seed)))
    }

    /// Whether the removal of this snapshot is still queued.
    pub fn in_removed_snaps_queue(&self, pool: PoolId, snap: SnapId) -> bool {
        self.removed_snaps_queue.get(&pool).is_some_and(|q| q.contains(snap))
    }

    /// The cluster snapshot's name, in the one epoch that took it.
    pub fn cluster_snapshot_now(&self) -> &str {
        if self.cluster_snapshot_epoch == self.epoch { &self.cluster_snapshot } else { "" }
    }

    /// The flags that `osd set-group` put on the OSD itself, its CRUSH ancestors or its device class.
    fn group_flags(&self, osd: i32) -> u32 {
        let own = self.osd(osd).filter(|o| o.exists()).map_or(0, |o| o.state);
        let mut flags = own;
        if !self.crush_node_flags.is_empty() {
            let mut at = osd;
            // A hierarchy is never deeper than its number of buckets.
            for _ in 0..=self.crush.buckets.len() {
                flags |= self.crush_node_flags.get(&at).copied().unwrap_or(0);
                match self.crush.buckets.iter().flatten().find(|b| b.items.contains(&at)) {
                    Some(parent) => at = parent.id,
                    None => break,
                }
            }
        }
        if let Some(class) = self.crush.device_classes.get(&osd) {
            flags |= self.device_class_flags.get(class).copied().unwrap_or(0);
        }
        flags
    }

    /// Whether the OSD may not be marked up: by the cluster's flag, its own, its CRUSH ancestors' or its class's.
    pub fn is_noup(&self, osd: impl Into<OsdId>) -> bool {
        let OsdId(osd) = osd.into();
        self.test_flag(map_flags::NOUP) || self.group_flags(osd) & osd_state::NOUP != 0
    }
    pub fn is_nodown(&self, osd: impl Into<OsdId>) -> bool {
        let OsdId(osd) = osd.into();
        self.test_flag(map_flags::NODOWN) || self.group_flags(osd) & osd_state::NODOWN != 0
    }
    pub fn is_noin(&self, osd: impl Into<OsdId>) -> bool {
        let OsdId(osd) = osd.into();
        self.test_flag(map_flags::NOIN) || self.group_flags(osd) & osd_state::NOIN != 0
    }
    pub fn is_noout(&self, osd: impl Into<OsdId>) -> bool {
        let OsdId(osd) = osd.into();
        self.test_flag(map_flags::NOOUT) || self.group_flags(osd) & osd_state::NOOUT != 0
    }

    /// Checks the numbered invariants. Panics when one is broken: that is our own fault, never a peer's.
    pub fn assert_invariants(&self) {
        assert_eq!(self.osds.len(), self.weights.len(), "invariant 1");
        if let Some(affinity) = &self.primary_affinity {
            assert_eq!(self.osds.len(), affinity.len(), "invariant 1");
        }
        assert!(self.osds.len() <= MAX_OSDS, "invariant 2");
    }
}

/// Whether `ip` shares the first `nonce` bits with a range's address.
fn in_range(range: &EntityAddr, ip: IpAddr) -> bool {
    let (base, bits, width) = match (range.socket.map(|s| s.ip()), ip) {
        (Some(IpAddr::V4(base)), IpAddr::V4(ip)) => {
            (u128::from(base.to_bits()), u128::from(ip.to_bits()), 32)
        }
        (Some(IpAddr::V6(base)), IpAddr::V6(ip)) => (base.to_bits(), ip.to_bits(), 128),
        _ => return false,
    };
    let free = u32::saturating_sub(width, range.nonce);
    (base ^ bits).checked_shr(free).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocklists_name_addresses_hosts_and_ranges() {
        let addr = |text: &str| EntityAddr::parse(text, AddrKind::Msgr2).expect("parses");
        let mut map = OsdMap::default();
        for entry in ["any:10.0.0.1:0/77", "any:10.0.0.2:0/0"] {
            map.blocklist.insert(addr(entry), Utime::ZERO);
        }
        for range in ["cidr:192.168.0.0:0/16", "cidr:[fe80::]:0/10"] {
            map.range_blocklist.insert(addr(range), Utime::ZERO);
        }
        let cases = [
            ("v2:10.0.0.1:0/77", true),
            ("v1:10.0.0.1:0/78", false),
            ("v1:10.0.0.2:6800/78", true),
            ("v2:192.168.255.1:1/1", true),
            ("v2:192.169.0.0:1/1", false),
            ("v2:[fe80::1]:1/1", true),
            ("v2:[ff80::1]:1/1", false),
        ];
        for (text, want) in cases {
            assert_eq!(map.is_blocklisted(&addr(text)), want, "{text}");
        }
        assert!(!map.is_blocklisted(&EntityAddr::default()));
    }
}
