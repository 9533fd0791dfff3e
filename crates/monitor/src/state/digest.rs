//! The manager's summary of what OSDs report: use of pools and OSDs, PG states, rates, reasons for ill health.

use std::collections::BTreeMap;

use codec::wire_struct;
use maps::{ServiceMap, SnapIntervals};
use messages::mgr::{HealthCheck, ProgressEvent};
use messages::stats::{ObjectStatSum, PoolStat, StoreStatfs};
use types::{Epoch, PoolId, Utime};

/// What `MPgDigest::summary` holds. The manager sends a new one every few seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PgDigest {
    pub stamp: Utime,
    /// The OSD map that the manager had.
    pub epoch: Epoch,
    /// PGs by state (PG_STATE_* bits); 0 is unknown.
    pub pg_states: BTreeMap<u64, u32>,
    pub pools: BTreeMap<PoolId, PoolUsage>,
    pub osds: BTreeMap<i32, OsdUsage>,
    pub rates: Rates,
    /// What the manager finds wrong: PG_AVAILABILITY, PG_DEGRADED, ...
    pub checks: BTreeMap<String, HealthCheck>,
    pub progress: BTreeMap<String, ProgressEvent>,
    /// Removed snapshots that no PG of the pool has clones of any more.
    pub purged_snaps: BTreeMap<PoolId, SnapIntervals>,
    /// Pools whose PG counts are on the way to their targets.
    pub steps: BTreeMap<PoolId, PgSteps>,
    /// Sums over OSDs, where the manager says no more of their space: Ceph's.
    pub sums: Option<OsdSums>,
    /// Services that report to the manager, when they are news; the monitors keep them by themselves.
    pub services: Option<ServiceMap>,
}

/// Sums over OSDs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdSums {
    pub statfs: StoreStatfs,
    pub num_osds: u32,
    /// OSDs that account for each pool, and for its omap.
    pub num_per_pool_osds: u32,
    pub num_per_pool_omap_osds: u32,
    pub by_class: BTreeMap<String, StoreStatfs>,
}
wire_struct!(OsdSums(1, 1) { statfs, num_osds, num_per_pool_osds, num_per_pool_omap_osds, by_class });

/// The next steps of a pool's PG counts, as what is known of its PGs permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PgSteps {
    /// The pool's last change when this was found; after another one it says nothing.
    pub of: Epoch,
    /// Its next `pgp_num`; 0: none for now.
    pub pgp_num: u32,
    /// Whether its last PG and the one that takes it in are both clean.
    pub merge: bool,
}
wire_struct!(PgSteps(1, 1) { of, pgp_num, merge });

impl PgDigest {
    /// What is left of a digest when nobody stands for it any more: use of space, but neither states of PGs nor rates.
    /// PGs of which nothing is known count as inactive.
    pub fn outdated(old: &Self) -> Self {
        let pgs = old.num_pgs();
        let mut new = Self { rates: Rates::default(), checks: BTreeMap::new(), ..old.clone() };
        new.progress.clear();
        new.steps.clear();
        new.pools.values_mut().for_each(|pool| pool.rates = Rates::default());
        new.pg_states = if pgs == 0 { BTreeMap::new() } else { [(0, pgs)].into() };
        if pgs > 0 {
            let s = if pgs == 1 { "" } else { "s" };
            let summary = format!("Reduced data availability: {pgs} pg{s} inactive");
            let check = HealthCheck { severity: 1, summary, detail: vec![], count: pgs.into() };
            new.checks.insert("PG_AVAILABILITY".to_owned(), check);
        }
        new
    }
}
wire_struct!(PgDigest(5, 1) {
    stamp, epoch, pg_states, pools, osds, rates, checks, progress,
} since 2 { purged_snaps } since 3 { steps } since 4 { sums } since 5 { services });

/// One pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolUsage {
    pub stat: PoolStat,
    pub num_pg: u32,
    pub rates: Rates,
    /// Bytes that can still be written, by the fullest OSD that the rule uses, before replication is taken off.
    pub avail_raw: u64,
}
wire_struct!(PoolUsage(1, 1) { stat, num_pg, rates, avail_raw });

/// One OSD.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdUsage {
    pub statfs: StoreStatfs,
    /// PGs that it holds.
    pub num_pgs: u32,
    pub commit_latency_ns: u64,
    pub apply_latency_ns: u64,
    pub up_from: Epoch,
    pub seq: u64,
}
wire_struct!(OsdUsage(1, 1) { statfs, num_pgs, commit_latency_ns, apply_latency_ns, up_from, seq });

/// Per second, over the last reports.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub reads: u64,
    pub writes: u64,
    pub recovered_bytes: u64,
    pub recovered_objects: u64,
    pub recovered_keys: u64,
}
wire_struct!(Rates(1, 1) {
    read_bytes, write_bytes, reads, writes, recovered_bytes, recovered_objects, recovered_keys,
});

impl PgDigest {
    /// Makes figures of daemons that say nonsense into some that sums and products have room for.
    pub fn clamp(&mut self) {
        let states = std::mem::take(&mut self.pg_states).into_iter().take(STATES_LIMIT);
        self.pg_states = states.map(|(state, n)| (state, n.min(u32::MAX / STATES_LIMIT as u32))).collect();
        for pool in self.pools.values_mut() {
            pool.stat.stats.sum = pool.stat.stats.sum.clamped(MOST << 10);
            pool.stat.store_stats = pool.stat.store_stats.clamped(MOST << 10);
        }
        self.osds.values_mut().for_each(|osd| osd.statfs = osd.statfs.clamped(MOST << 10));
        if let Some(sums) = &mut self.sums {
            sums.statfs = sums.statfs.clamped(MOST << 10);
            sums.by_class.values_mut().for_each(|class| *class = class.clamped(MOST << 10));
        }
    }

    /// Sums over all pools.
    pub fn totals(&self) -> ObjectStatSum {
        self.pools.values().fold(ObjectStatSum::default(), |mut sum, pool| {
            sum += pool.stat.stats.sum.clamped(MOST << 10);
            sum.clamped(MOST << 10)
        })
    }

    /// Sums over all OSDs' stores.
    pub fn statfs(&self) -> StoreStatfs {
        if let Some(sums) = &self.sums {
            return sums.statfs;
        }
        let mut sum = StoreStatfs::default();
        self.osds.values().for_each(|o| add_statfs(&mut sum, &o.statfs));
        sum
    }

    /// PGs that nobody reports, so that they are in no state.
    pub fn unserved_pgs(&self) -> u32 {
        let of_pools: u64 = self.pools.values().map(|p| u64::from(p.num_pg)).sum();
        u32::try_from(of_pools.saturating_sub(self.num_pgs().into())).unwrap_or(u32::MAX)
    }

    pub fn num_pgs(&self) -> u32 {
        self.pg_states.values().fold(0, |sum: u32, n| sum.saturating_add(*n))
    }
}

/// Counts above this are nonsense; products of those below with a kibibyte or with copies still fit.
pub(super) const MOST: i64 = 1 << 50;
/// PG states that are told apart: a cluster has some tens, and the sum of their PGs must fit.
pub(super) const STATES_LIMIT: usize = 1_024;

/// Adds one store's numbers to a sum; an OSD may say what it likes.
pub fn add_statfs(sum: &mut StoreStatfs, s: &StoreStatfs) {
    sum.total = sum.total.saturating_add(s.total);
    sum.available = sum.available.saturating_add(s.available);
    sum.internally_reserved = sum.internally_reserved.saturating_add(s.internally_reserved);
    sum.allocated = sum.allocated.saturating_add(s.allocated);
    sum.data_stored = sum.data_stored.saturating_add(s.data_stored);
    sum.data_compressed = sum.data_compressed.saturating_add(s.data_compressed);
    sum.data_compressed_allocated = sum.data_compressed_allocated.saturating_add(s.data_compressed_allocated);
    sum.data_compressed_original = sum.data_compressed_original.saturating_add(s.data_compressed_original);
    sum.omap_allocated = sum.omap_allocated.saturating_add(s.omap_allocated);
    sum.internal_metadata = sum.internal_metadata.saturating_add(s.internal_metadata);
}

#[cfg(test)]
mod tests {
    use codec::{Decode, Encode};

    use super::*;

    /// Any OSD's key is enough to say so.
    #[test]
    fn figures_that_are_nonsense_end_nothing() {
        let statfs = |total, allocated| StoreStatfs { total, allocated, ..StoreStatfs::default() };
        let osd = |s| OsdUsage { statfs: s, ..OsdUsage::default() };
        let mut pool = PoolUsage::default();
        (pool.stat.stats.sum.num_object_copies, pool.stat.stats.sum.num_objects_degraded) = (1, i64::MIN);
        let mut digest = PgDigest {
            pg_states: [(1, u32::MAX), (2, u32::MAX)].into(),
            osds: (0..20).map(|i| (i, osd(statfs(u64::MAX, i64::MAX)))).collect(),
            pools: [(PoolId(1), pool.clone()), (PoolId(2), pool)].into(),
            ..PgDigest::default()
        };
        // As it may lie on a monitor's disk already.
        assert_eq!((digest.statfs().total, digest.num_pgs()), (u64::MAX, u32::MAX));
        assert_eq!(PgDigest::outdated(&digest).num_pgs(), u32::MAX);
        assert_eq!(digest.totals().num_objects_degraded, 0);
        digest.clamp();
        assert!(digest.num_pgs() < u32::MAX && digest.osds[&0].statfs.total < u64::MAX);
        assert_eq!(digest.pools[&PoolId(1)].stat.stats.sum.num_objects_degraded, 0);
    }

    #[test]
    fn digests_of_the_first_form_are_read() {
        let purged_snaps = BTreeMap::from([(PoolId(3), SnapIntervals::from_iter([(1, 4)]))]);
        let steps = BTreeMap::from([(PoolId(3), PgSteps { of: Epoch(6), pgp_num: 5, merge: true })]);
        let digest = PgDigest { epoch: Epoch(7), purged_snaps, steps, ..PgDigest::default() };
        let bytes = digest.to_bytes();
        assert_eq!(PgDigest::from_bytes(bytes.clone()), Ok(digest.clone()));
        let without = PgDigest { purged_snaps: BTreeMap::new(), steps: BTreeMap::new(), ..digest };
        // The first form: another version, and the last fields' 10 bytes less.
        let mut old = without.to_bytes().to_vec();
        old.truncate(old.len() - 10);
        for (at, change) in [(0, 4), (2, 10)] {
            if let Some(byte) = old.get_mut(at) {
                *byte -= change;
            }
        }
        assert_eq!(PgDigest::from_bytes(old), Ok(without));
        for n in 0..bytes.len() {
            assert!(PgDigest::from_bytes(bytes.slice(..n)).is_err(), "{n}");
        }
    }
}
