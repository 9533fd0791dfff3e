//! The digest that the monitors keep: pool and OSD usage, PG states, rates.

use std::collections::BTreeMap;

use crush::CrushMap;
use maps::{OsdMap, Pool};
use messages::stats::{ObjectStatCollection, ObjectStatSum, PoolStat, StoreStatfs};
use monitor::state::{OsdUsage, PgDigest, PoolUsage, Rates};
use types::{PoolId, Utime};

use crate::health;
use crate::pg_map::PgMap;

/// Makes the digest of what is known now.
pub fn digest(pgs: &PgMap, map: &OsdMap, stamp: Utime) -> PgDigest {
    let mut out = PgDigest { stamp, epoch: map.epoch, ..PgDigest::default() };
    for pg in map.pgs() {
        let state = pgs.pgs.get(&pg).map_or(0, |s| s.state);
        *out.pg_states.entry(state).or_default() += 1;
    }
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
        let usage = pool_usage(pgs, map, *id, pool);
        add(&mut out.rates, &usage.rates);
        out.pools.insert(*id, usage);
    }
    out.checks = health::checks(pgs, map, stamp);
    out
}

fn pool_usage(pgs: &PgMap, map: &OsdMap, id: PoolId, pool: &Pool) -> PoolUsage {
    let mut stat = PoolStat::default();
    let mut sum = ObjectStatSum::default();
    for (_, pg) in pgs.pgs.range(types::PgId::new(id, 0)..=types::PgId::new(id, u32::MAX)) {
        sum += pg.stats.sum;
        stat.log_size += pg.log_size;
        stat.ondisk_log_size += pg.ondisk_log_size;
        stat.up += pg.up.len() as i32;
        stat.acting += pg.acting.len() as i32;
    }
    stat.stats = ObjectStatCollection { sum };
    for report in pgs.osds.values() {
        if let Some(statfs) = report.pools.get(&id) {
            accumulate(&mut stat.store_stats, statfs);
            stat.num_store_stats += 1;
        }
    }
    PoolUsage { stat, num_pg: pool.pg_num, rates: rates(pgs, id), avail_raw: available(pgs, map, pool) }
}

fn accumulate(sum: &mut StoreStatfs, s: &StoreStatfs) {
    sum.total += s.total;
    sum.available += s.available;
    sum.internally_reserved += s.internally_reserved;
    sum.allocated += s.allocated;
    sum.data_stored += s.data_stored;
    sum.data_compressed += s.data_compressed;
    sum.data_compressed_allocated += s.data_compressed_allocated;
    sum.data_compressed_original += s.data_compressed_original;
    sum.omap_allocated += s.omap_allocated;
    sum.internal_metadata += s.internal_metadata;
}

fn rates(pgs: &PgMap, pool: PoolId) -> Rates {
    let Some((span, a, b)) = pgs.growth(pool) else { return Rates::default() };
    let per_second = |from: i64, to: i64| ((to - from).max(0) as f64 / span.as_secs_f64()) as u64;
    Rates {
        read_bytes: per_second(a.num_rd_kb, b.num_rd_kb) << 10,
        write_bytes: per_second(a.num_wr_kb, b.num_wr_kb) << 10,
        reads: per_second(a.num_rd, b.num_rd),
        writes: per_second(a.num_wr, b.num_wr),
        recovered_bytes: per_second(a.num_bytes_recovered, b.num_bytes_recovered),
        recovered_objects: per_second(a.num_objects_recovered, b.num_objects_recovered),
        recovered_keys: per_second(a.num_keys_recovered, b.num_keys_recovered),
    }
}

fn add(sum: &mut Rates, r: &Rates) {
    sum.read_bytes += r.read_bytes;
    sum.write_bytes += r.write_bytes;
    sum.reads += r.reads;
    sum.writes += r.writes;
    sum.recovered_bytes += r.recovered_bytes;
    sum.recovered_objects += r.recovered_objects;
    sum.recovered_keys += r.recovered_keys;
}

/// Raw bytes that can be written before the first OSD under the pool's rule is full, all copies counted.
///
/// Each OSD takes its share of new data by CRUSH weight; the one that fills first sets the bound.
/// Source: PGMap::get_rule_avail in src/mon/PGMap.cc.
fn available(pgs: &PgMap, map: &OsdMap, pool: &Pool) -> u64 {
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
        let unusable = statfs.total as f64 * f64::from(1.0 - map.full_ratio);
        let avail = (statfs.available as f64 - unusable).max(0.0);
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
