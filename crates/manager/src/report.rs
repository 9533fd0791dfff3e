//! What Ceph's monitors are told: the digest of all PG statistics that MMonMgrReport carries.
//!
//! Source: PGMap::encode_digest, PGMap::get_rules_avail, PGMap::calc_osd_sum_by_class in src/mon/PGMap.cc.

use std::collections::BTreeMap;
use std::time::Duration;

use maps::OsdMap;
use messages::pg_map_digest::{PgCount, PgMapDigest};
use messages::stats::{ObjectStatCollection, ObjectStatSum, OsdStat, PoolStat};
use types::{OsdId, SnapId, Utime};

use crate::digest::{available, purged_snaps};
use crate::pg_map::PgMap;
use crate::sums::{Sums, add_osd_stat};

/// Makes the digest of what is known at `now`.
pub(crate) fn pg_map_digest(pgs: &PgMap, map: &OsdMap, now: Utime) -> PgMapDigest {
    let sums = Sums::of(pgs);
    let signed = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let purged = purged_snaps(pgs).into_iter();
    let runs = |snaps: maps::SnapIntervals| snaps.iter().map(|(first, n)| (SnapId(first), n)).collect();
    let mut out = PgMapDigest {
        num_pg: sums.num_pg.into(),
        num_pg_active: sums.num_active.into(),
        num_pg_unknown: sums.num_unknown.into(),
        num_osd: i64::try_from(pgs.osds.len()).unwrap_or(i64::MAX),
        pool_sum: sums.total,
        num_pg_by_state: sums.by_state.iter().map(|(state, n)| (*state, signed(*n))).collect(),
        num_pg_by_pool: sums.pools.iter().map(|(id, p)| (*id, p.num_pg.into())).collect(),
        osd_last_seq: last_seqs(pgs, map),
        avail_by_rule: avail_by_rule(pgs, &sums, map),
        purged_snaps: purged.map(|(pool, snaps)| (pool, runs(snaps))).collect(),
        osd_sum_by_class: by_class(pgs, map),
        ..PgMapDigest::default()
    };
    for (osd, n) in &sums.by_osd {
        let count = PgCount {
            acting: signed(n.acting),
            up_not_acting: signed(n.up_not_acting),
            primary: signed(n.primary),
        };
        out.num_pg_by_osd.insert(*osd, count);
    }
    for (id, pool) in &sums.pools {
        // Pools have numbers of 32 bits there.
        let Ok(number) = i32::try_from(id.0) else { continue };
        out.pools.insert(number, pool.stat);
        if let Some(delta) = delta(pgs.pool_growth(*id)) {
            out.pool_deltas.insert(*id, delta);
            out.pool_delta_stamps.insert(*id, now);
        }
    }
    out.osd_sum = sums.osds;
    (out.sum_delta, out.sum_delta_span) = delta(pgs.growth()).unwrap_or_default();
    out
}

/// What was added, and in what time.
fn delta(growth: Option<(Duration, ObjectStatSum)>) -> Option<(PoolStat, Utime)> {
    let (span, sum) = growth?;
    let stat = PoolStat { stats: ObjectStatCollection { sum }, ..PoolStat::default() };
    Some((stat, Utime::ZERO.plus(span)))
}

/// By the number of the OSD; 0 for those that reported nothing.
fn last_seqs(pgs: &PgMap, map: &OsdMap) -> Vec<u64> {
    let seq = |osd| pgs.osds.get(&OsdId(osd)).map_or(0, |report| report.stat.seq);
    (0..map.max_osd()).map(seq).collect()
}

/// Raw bytes that can be written, by rule that a pool with PGs uses.
fn avail_by_rule(pgs: &PgMap, sums: &Sums, map: &OsdMap) -> BTreeMap<i32, i64> {
    let mut out = BTreeMap::new();
    for (_, pool) in map.pools.iter().filter(|(id, _)| sums.pools.contains_key(id)) {
        let avail = || i64::try_from(available(pgs, map, pool)).unwrap_or(i64::MAX);
        out.entry(i32::from(pool.crush_rule)).or_insert_with(avail);
    }
    out
}

fn by_class(pgs: &PgMap, map: &OsdMap) -> BTreeMap<String, OsdStat> {
    let mut out: BTreeMap<String, OsdStat> = BTreeMap::new();
    for (osd, report) in &pgs.osds {
        let Some(class) = map.crush.item_class(osd.0) else { continue };
        add_osd_stat(out.entry(class.to_owned()).or_default(), &report.stat);
    }
    out
}
