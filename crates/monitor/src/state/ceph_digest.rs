//! The digest of Ceph's manager, as ours: what its sums say of pools, OSDs and PGs.
//!
//! Source: MgrStatMonitor::prepare_report, PGMapDigest in src/mon/PGMap.h.

use std::collections::BTreeMap;

use maps::{OsdMap, SnapIntervals};
use messages::pg_map_digest::PgMapDigest;
use messages::stats::{OsdStat, PoolStat};
use types::{PoolId, SnapId, Utime};

use crate::state::{OsdSums, OsdUsage, PgDigest, PoolUsage, Rates};

use super::digest::{MOST, STATES_LIMIT};

impl PgDigest {
    /// What Ceph's manager says of the cluster of this map: pools that do not exist are left out, sums are
    /// not negative.
    ///
    /// The digest has no epoch. It counts as made with this map, for what depends on that is left out of
    /// pools some of whose PGs it does not know.
    pub(crate) fn of_ceph(d: &PgMapDigest, map: &OsdMap, stamp: Utime) -> Self {
        let pools = d.pools.iter().filter_map(|(id, stat)| {
            let id = PoolId(i64::from(*id));
            let pool = map.pool(id)?;
            let count = d.num_pg_by_pool.get(&id).copied().unwrap_or(0);
            let avail = d.avail_by_rule.get(&i32::from(pool.crush_rule)).copied().unwrap_or(0);
            let usage = PoolUsage {
                stat: sane(stat),
                num_pg: u32::try_from(count).unwrap_or(0).min(maps::MAX_PG_NUM),
                rates: d.pool_deltas.get(&id).map(rates).unwrap_or_default(),
                avail_raw: u64::try_from(avail.min(MOST << 10)).unwrap_or(0),
            };
            Some((id, usage))
        });
        let states = d.num_pg_by_state.iter();
        let states =
            states.filter_map(|(state, n)| Some((*state, u32::try_from(*n).ok()?.min(maps::MAX_PG_NUM))));
        Self {
            stamp,
            epoch: map.epoch,
            pg_states: states.filter(|(_, n)| *n > 0).take(STATES_LIMIT).collect(),
            pools: pools.collect(),
            osds: osds(d, map),
            rates: rates(&(d.sum_delta, d.sum_delta_span)),
            purged_snaps: purged(d, map),
            sums: Some(sums(d, map)),
            ..Self::default()
        }
    }

    /// Pools with sums that cannot be.
    pub(crate) fn wild_pools(d: &PgMapDigest) -> u64 {
        d.pools.values().filter(|stat| sane(stat) != **stat).count() as u64
    }
}

fn sane(stat: &PoolStat) -> PoolStat {
    let mut stat = *stat;
    stat.stats.sum = stat.stats.sum.clamped(MOST << 10);
    stat.store_stats = stat.store_stats.clamped(MOST << 10);
    stat
}

/// Per second, from what was added in a span of time.
fn rates((delta, span): &(PoolStat, Utime)) -> Rates {
    let secs = f64::from(span.sec) + f64::from(span.nsec) / 1e9;
    if secs <= 0.0 {
        return Rates::default();
    }
    let sum = delta.stats.sum.clamped(MOST);
    let per_second = |n: i64| (n as f64 / secs) as u64;
    Rates {
        read_bytes: per_second(sum.num_rd_kb << 10),
        write_bytes: per_second(sum.num_wr_kb << 10),
        reads: per_second(sum.num_rd),
        writes: per_second(sum.num_wr),
        recovered_bytes: per_second(sum.num_bytes_recovered),
        recovered_objects: per_second(sum.num_objects_recovered),
        recovered_keys: per_second(sum.num_keys_recovered),
    }
}

/// PGs and the last report of each OSD; its space is known in the sum alone.
fn osds(d: &PgMapDigest, map: &OsdMap) -> BTreeMap<i32, OsdUsage> {
    let mut out: BTreeMap<i32, OsdUsage> = BTreeMap::new();
    for (osd, seq) in (0..map.max_osd()).zip(&d.osd_last_seq).filter(|(osd, _)| map.exists(*osd)) {
        out.entry(osd).or_default().seq = *seq;
    }
    for (osd, count) in d.num_pg_by_osd.iter().filter(|(osd, _)| map.exists(**osd)) {
        out.entry(*osd).or_default().num_pgs = u32::try_from(count.acting).unwrap_or(0);
    }
    out
}

/// Of device classes those count that the map has: tables of them are as wide as the longest name in every
/// line.
fn sums(d: &PgMapDigest, map: &OsdMap) -> OsdSums {
    let known = |s: &OsdStat| s.num_osds.max(u32::from(s.statfs.total > 0));
    OsdSums {
        statfs: d.osd_sum.statfs.clamped(MOST << 10),
        num_osds: known(&d.osd_sum),
        num_per_pool_osds: d.osd_sum.num_per_pool_osds,
        num_per_pool_omap_osds: d.osd_sum.num_per_pool_omap_osds,
        by_class: d
            .osd_sum_by_class
            .iter()
            .filter(|(class, _)| map.crush.class_id(class).is_some())
            .map(|(class, s)| (class.clone(), s.statfs.clamped(MOST << 10)))
            .collect(),
    }
}

/// Snapshots that are gone from all PGs of a pool. What does not know each PG, as after a split, knows it of
/// none.
fn purged(d: &PgMapDigest, map: &OsdMap) -> BTreeMap<PoolId, SnapIntervals> {
    let whole = |id: PoolId| {
        let count = d.num_pg_by_pool.get(&id).copied().unwrap_or(0);
        map.pool(id).is_some_and(|pool| i64::from(pool.pg_num) <= count)
    };
    let known = d.purged_snaps.iter().filter(|(id, _)| whole(**id));
    let set = |snaps: &[(SnapId, u64)]| -> SnapIntervals {
        let runs = snaps.iter().filter(|(first, count)| *count > 0 && first.0.checked_add(*count).is_some());
        runs.map(|(first, count)| (first.0, *count)).collect()
    };
    known.map(|(id, snaps)| (*id, set(snaps))).filter(|(_, set)| !set.is_empty()).collect()
}
