//! The digest that the monitors keep: pool and OSD usage, PG states, rates.

use std::collections::BTreeMap;
use std::time::Duration;

use crush::CrushMap;
use maps::{OsdMap, Pool, SnapIntervals};
use messages::stats::ObjectStatSum;
use monitor::state::{OsdUsage, PgDigest, PoolUsage, Rates};
use types::{PoolId, Utime};

use crate::health::{self, Limits};
use crate::pg_map::PgMap;
use crate::sums::Sums;

/// Makes the digest of what is known now.
pub fn digest(pgs: &PgMap, map: &OsdMap, stamp: Utime, limits: &Limits) -> PgDigest {
    let mut sums = Sums::of(pgs);
    let mut out = PgDigest { stamp, epoch: map.epoch, ..PgDigest::default() };
    out.pg_states = std::mem::take(&mut sums.by_state);
    for (osd, report) in &pgs.osds {
        out.osds.insert(
            osd.0,
            OsdUsage {
                statfs: report.stat.statfs,
                num_pgs: report.stat.num_pgs,
                commit_latency_ns: report.stat.perf.commit_latency_ns,
                apply_latency_ns: report.stat.perf.apply_latency_ns,
                up_from: report.stat.up_from,
                seq: report.stat.seq,
            },
        );
    }
    for (id, pool) in &map.pools {
        let stat = sums.pools.get(id).map(|p| p.stat).unwrap_or_default();
        let avail_raw = available(pgs, map, pool);
        out.pools.insert(
            *id,
            PoolUsage { stat, num_pg: pool.pg_num, rates: rates(pgs.pool_growth(*id)), avail_raw },
        );
    }
    out.rates = rates(pgs.growth());
    out.checks = health::checks(pgs, &sums, map, stamp, limits);
    out.purged_snaps = purged_snaps(pgs);
    out
}

/// What a pool uses, and what it could use.
pub(crate) fn pool_usage(pgs: &PgMap, map: &OsdMap, id: PoolId) -> Option<PoolUsage> {
    let pool = map.pool(id)?;
    let stat = Sums::of(pgs).pools.get(&id).map(|p| p.stat).unwrap_or_default();
    Some(PoolUsage {
        stat,
        num_pg: pool.pg_num,
        rates: Rates::default(),
        avail_raw: available(pgs, map, pool),
    })
}

/// What every PG of a pool has purged; nothing while one of them has not reported. Source: PGMap::calc_purged_snaps.
pub(crate) fn purged_snaps(pgs: &PgMap) -> BTreeMap<PoolId, SnapIntervals> {
    let mut out: BTreeMap<PoolId, SnapIntervals> = BTreeMap::new();
    for (pg, stat) in &pgs.pgs {
        let here: SnapIntervals = match stat.state {
            0 => SnapIntervals::new(),
            _ => stat.purged_snaps.iter().map(|(first, count)| (first.0, *count)).collect(),
        };
        match out.get_mut(&pg.pool) {
            Some(all) => all.intersect(&here),
            None => {
                out.insert(pg.pool, here);
            }
        }
    }
    out.retain(|_, snaps| !snaps.is_empty());
    out
}

fn rates(growth: Option<(Duration, ObjectStatSum)>) -> Rates {
    let Some((span, d)) = growth else { return Rates::default() };
    let per_second = |n: i64| (n.max(0) as f64 / span.as_secs_f64()) as u64;
    Rates {
        read_bytes: per_second(d.num_rd_kb << 10),
        write_bytes: per_second(d.num_wr_kb << 10),
        reads: per_second(d.num_rd),
        writes: per_second(d.num_wr),
        recovered_bytes: per_second(d.num_bytes_recovered),
        recovered_objects: per_second(d.num_objects_recovered),
        recovered_keys: per_second(d.num_keys_recovered),
    }
}

/// Raw bytes that can be written before the first OSD under the pool's rule is full, all copies counted.
///
/// Each OSD takes its share of new data by CRUSH weight; the one that fills first sets the bound.
/// Source: PGMap::get_rule_avail in src/mon/PGMap.cc.
pub(crate) fn available(pgs: &PgMap, map: &OsdMap, pool: &Pool) -> u64 {
    let weights = rule_weights(&map.crush, map, pool);
    let total: f64 = weights.values().sum();
    if total <= 0.0 {
        return 0;
    }
    let mut bound: Option<f64> = None;
    for (osd, weight) in weights {
        let Some(report) = pgs.osds.get(&types::OsdId(osd)) else { continue };
        let statfs = &report.stat.statfs;
        if statfs.total == 0 || weight <= 0.0 {
            continue;
        }
        let unusable = (statfs.total >> 10) as f64 * (1.0 - f64::from(map.full_ratio));
        let avail = ((statfs.available >> 10) as f64 - unusable).max(0.0) * 1024.0;
        let projected = avail / (weight / total);
        bound = Some(bound.map_or(projected, |b| b.min(projected)));
    }
    bound.unwrap_or(0.0) as u64
}

/// CRUSH weight, scaled by the in/out weight, of each OSD that the pool's rule can choose.
fn rule_weights(crush: &CrushMap, map: &OsdMap, pool: &Pool) -> BTreeMap<i32, f64> {
    let mut out = BTreeMap::new();
    for (osd, weight) in crush.rule_weights(u32::from(pool.crush_rule)) {
        let share = f64::from(weight) * f64::from(map.weight_f32(osd));
        if share > 0.0 {
            out.insert(osd, share);
        }
    }
    out
}
