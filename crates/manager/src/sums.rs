//! Sums over everything reported: per pool, per OSD, per state. Made anew for each use, in one pass.
//!
//! Source: PGMap::stat_pg_add, PGMap::stat_osd_add in src/mon/PGMap.cc; osd_stat_t::add in src/osd/osd_types.h.

use std::collections::BTreeMap;

use crush::ITEM_NONE;
use messages::pg_state;
use messages::stats::{OsdStat, PgStat, PoolStat, StoreStatfs};
use types::PoolId;

use crate::pg_map::PgMap;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sums {
    pub num_pg: u32,
    pub num_active: u32,
    pub num_unknown: u32,
    /// PGs by state bits.
    pub by_state: BTreeMap<u64, u32>,
    pub pools: BTreeMap<PoolId, PoolSum>,
    /// Over all PGs; what OSDs report by pool is not in it.
    pub total: PoolStat,
    /// Over all OSDs.
    pub osds: OsdStat,
    pub by_osd: BTreeMap<i32, OsdPgs>,
    /// For how many PGs an OSD is waited for.
    pub blocked_by: BTreeMap<i32, u32>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolSum {
    pub num_pg: u32,
    pub stat: PoolStat,
}

/// PGs of one OSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdPgs {
    pub acting: u32,
    pub up_not_acting: u32,
    pub primary: u32,
}

impl Sums {
    pub fn of(pgs: &PgMap) -> Self {
        let mut sums = Self::default();
        for (pg, stat) in &pgs.pgs {
            sums.add_pg(pg.pool, stat);
        }
        for (osd, report) in &pgs.osds {
            add_osd_stat(&mut sums.osds, &report.stat);
            for (pool, statfs) in &report.pools {
                if let Some(pool) = sums.pools.get_mut(pool) {
                    add_statfs(&mut pool.stat.store_stats, statfs);
                    pool.stat.num_store_stats += 1;
                }
            }
            sums.by_osd.entry(osd.0).or_default();
        }
        sums
    }

    fn add_pg(&mut self, pool: PoolId, s: &PgStat) {
        self.num_pg += 1;
        self.num_active += u32::from(s.state & pg_state::ACTIVE != 0);
        self.num_unknown += u32::from(s.state == 0);
        *self.by_state.entry(s.state).or_default() += 1;
        let pool = self.pools.entry(pool).or_default();
        pool.num_pg += 1;
        add_pg_stat(&mut pool.stat, s);
        add_pg_stat(&mut self.total, s);
        let there = |osd: &&i32| **osd != ITEM_NONE;
        for osd in s.acting.iter().filter(there) {
            self.by_osd.entry(*osd).or_default().acting += 1;
        }
        for osd in s.up.iter().filter(there).filter(|o| !s.acting.contains(o)) {
            self.by_osd.entry(*osd).or_default().up_not_acting += 1;
        }
        if s.up_primary >= 0 && s.up_primary != ITEM_NONE {
            self.by_osd.entry(s.up_primary).or_default().primary += 1;
        }
        for osd in &s.blocked_by {
            *self.blocked_by.entry(*osd).or_default() += 1;
        }
    }

    pub fn osd_pgs(&self, osd: i32) -> OsdPgs {
        self.by_osd.get(&osd).copied().unwrap_or_default()
    }
}

fn add_pg_stat(sum: &mut PoolStat, s: &PgStat) {
    sum.stats.sum += s.stats.sum;
    sum.log_size = sum.log_size.wrapping_add(s.log_size);
    sum.ondisk_log_size = sum.ondisk_log_size.wrapping_add(s.ondisk_log_size);
    sum.up = sum.up.wrapping_add(s.up.len() as i32);
    sum.acting = sum.acting.wrapping_add(s.acting.len() as i32);
}

/// Adds numbers that a peer made up: they may overflow, which is the peer's problem alone.
macro_rules! add_fields {
    ($sum:expr, $s:expr, $($($field:ident).+),+ $(,)?) => {
        $( $sum.$($field).+ = $sum.$($field).+.wrapping_add($s.$($field).+); )+
    };
}

/// Adds a store's bytes.
pub fn add_statfs(sum: &mut StoreStatfs, s: &StoreStatfs) {
    add_fields!(
        sum,
        s,
        total,
        available,
        internally_reserved,
        allocated,
        data_stored,
        data_compressed,
        data_compressed_allocated,
        data_compressed_original,
        omap_allocated,
        internal_metadata,
    );
}

/// Adds what can be added; heartbeat peers and ping times cannot.
pub fn add_osd_stat(sum: &mut OsdStat, s: &OsdStat) {
    add_statfs(&mut sum.statfs, &s.statfs);
    add_fields!(
        sum,
        s,
        snap_trim_queue_len,
        num_snap_trimming,
        num_shards_repaired,
        perf.commit_latency_ns,
        perf.apply_latency_ns,
        num_pgs,
        num_osds,
        num_per_pool_osds,
        num_per_pool_omap_osds,
    );
    let bins = &mut sum.op_queue_age_hist.bins;
    bins.resize(bins.len().max(s.op_queue_age_hist.bins.len()), 0);
    bins.iter_mut().zip(&s.op_queue_age_hist.bins).for_each(|(a, b)| *a = a.wrapping_add(*b));
    for (osd, alerts) in &s.alerts {
        let target = sum.alerts.entry(*osd).or_default();
        alerts.iter().for_each(|(k, v)| {
            target.entry(k.clone()).or_insert_with(|| v.clone());
        });
    }
}
