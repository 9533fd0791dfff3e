//! What the OSDs have reported: statistics of every PG and every OSD, and how the sums grew of late.
//!
//! Invariants, from the first OSD map on:
//! 1. There is exactly one entry for each PG that OSDs serve; one that nobody reported has no state bits ("unknown").
//! 2. A PG's report is replaced only by one of a later epoch, or of the same epoch and no earlier sequence.
//! 3. There are only entries of OSDs that exist in the map.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use maps::{NO_OSD, OsdMap};
use messages::pg_state;
use messages::pool_stats::MPgStats;
use messages::stats::{ObjectStatSum, OsdStat, PgStat, StoreStatfs};
use types::{Epoch, Now, OsdId, PgId, PoolId, Utime};

/// Rates are taken over this much time.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// How long statistics count as incomplete when OSDs that are up do not report. Source: mgr_stats_period, four times.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// One OSD's last report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdReport {
    pub stat: OsdStat,
    /// The map that the OSD had.
    pub epoch: Epoch,
    /// What each pool uses of its store.
    pub pools: BTreeMap<PoolId, StoreStatfs>,
}

/// All reports.
#[derive(Debug, Clone, Default)]
pub struct PgMap {
    pub pgs: BTreeMap<PgId, PgStat>,
    pub osds: BTreeMap<OsdId, OsdReport>,
    /// Grows with every change.
    pub version: u64,
    /// Grows with what a digest should not wait for: PG states, and which PGs and OSDs there are.
    pub state_version: u64,
    /// Time of the last change.
    pub stamp: Utime,
    /// Whether every OSD that is up has reported, or `READY_WITHIN` is over; until then sums and states say little.
    /// Never taken back.
    pub ready: bool,
    /// When the first map came.
    since: Option<Duration>,
    /// By how much each pool's sums grew since we watch it. A PG's first report adds nothing: what it sums up is older.
    grown: BTreeMap<PoolId, ObjectStatSum>,
    /// What each OSD did as primary since we watch it: sums of what its PGs' statistics grew by.
    served: BTreeMap<OsdId, ObjectStatSum>,
    /// Past moments, oldest first.
    history: VecDeque<Sample>,
}

#[derive(Debug, Clone)]
struct Sample {
    at: Duration,
    pools: BTreeMap<PoolId, ObjectStatSum>,
    served: BTreeMap<OsdId, ObjectStatSum>,
}

impl PgMap {
    /// Takes in a report; the sequence and epoch of each PG, for the acknowledgement.
    pub fn report(
        &mut self,
        osd: OsdId,
        report: MPgStats,
        map: &OsdMap,
        now: Now,
    ) -> BTreeMap<PgId, (u64, Epoch)> {
        let acks = report.pg_stats.iter().map(|(pg, s)| (*pg, (s.reported_seq, s.reported_epoch))).collect();
        if !map.exists(osd.0) {
            return acks;
        }
        self.changed(now);
        let pools = report.pool_stats.into_iter().map(|(id, s)| (PoolId(id), s)).collect();
        let mut entry = OsdReport { stat: report.osd_stat, epoch: report.epoch, pools };
        if map.is_out(osd.0) {
            entry.zero();
        }
        let new = self.osds.insert(osd, entry).is_none();
        self.state_version += u64::from(new);
        for (pg, stat) in report.pg_stats {
            let Some(old) = self.pgs.get_mut(&pg) else { continue };
            if (stat.reported_epoch, stat.reported_seq) >= (old.reported_epoch, old.reported_seq) {
                self.state_version += u64::from(stat.state != old.state);
                if old.state == 0 {
                    self.grown.entry(pg.pool).or_default();
                } else {
                    let grown = self.grown.entry(pg.pool).or_default();
                    *grown += stat.stats.sum;
                    *grown -= old.stats.sum;
                    let served = self.served.entry(osd).or_default();
                    *served += stat.stats.sum;
                    *served -= old.stats.sum;
                }
                *old = stat;
            }
        }
        self.check_ready(map, now);
        acks
    }

    /// A new map: PGs and OSDs come and go, and PGs whose primary went down become stale.
    pub fn map_changed(&mut self, map: &OsdMap, now: Now) {
        self.changed(now);
        let before = self.pgs.len();
        let unserved = unserved(map);
        self.pgs.retain(|pg, _| map.pg_exists(*pg) && !unserved.contains(&pg.pool));
        self.state_version += u64::from(self.pgs.len() != before);
        for pg in map.pgs().filter(|pg| !unserved.contains(&pg.pool)) {
            self.pgs.entry(pg).or_insert_with(|| {
                self.state_version += 1;
                unknown(map.modified)
            });
        }
        self.osds.retain(|osd, _| map.exists(osd.0));
        self.served.retain(|osd, _| map.exists(osd.0));
        self.grown.retain(|pool, _| map.pools.contains_key(pool));
        for (osd, report) in &mut self.osds {
            if map.is_out(osd.0) {
                report.zero();
            } else if map.is_down(osd.0) {
                report.stat.op_queue_age_hist.bins.clear();
            }
        }
        for stat in self.pgs.values_mut() {
            let fresh = stat.state & pg_state::STALE == 0;
            if fresh && stat.acting_primary != NO_OSD && map.is_down(stat.acting_primary) {
                stat.state |= pg_state::STALE;
                stat.last_unstale = now.wall;
                self.state_version += 1;
            }
        }
        self.check_ready(map, now);
    }

    fn changed(&mut self, now: Now) {
        self.version += 1;
        self.stamp = now.wall;
    }

    /// Whether something besides PGs changed that the digest tells of.
    pub fn health_changed(&mut self, news: bool, now: Now) {
        if news {
            self.changed(now);
            self.state_version += 1;
        }
    }

    /// Counts as a change when there are PGs that are not active and clean.
    pub fn touch_unless_clean(&mut self) {
        let chores =
            pg_state::SCRUBBING | pg_state::DEEP_SCRUB | pg_state::SNAPTRIM | pg_state::SNAPTRIM_WAIT;
        let whole = pg_state::ACTIVE | pg_state::CLEAN;
        self.version += u64::from(self.pgs.values().any(|s| s.state & !chores != whole));
    }

    /// See `ready`.
    pub fn check_ready(&mut self, map: &OsdMap, now: Now) {
        let since = *self.since.get_or_insert(now.mono);
        if self.ready {
            return;
        }
        let late = now.mono.saturating_sub(since) >= READY_WITHIN;
        if late || map.existing_osds().all(|(id, o)| !o.is_up() || self.osds.contains_key(&id)) {
            self.ready = true;
            self.changed(now);
        }
    }

    /// Remembers the sums of this moment, for rates. Sums that are incomplete would make for high ones, so those are not.
    pub fn sample(&mut self, at: Duration) {
        if !self.ready {
            return;
        }
        let grown = |pgs: &Self| pgs.growth().map(|(_, d)| d).unwrap_or_default();
        let before = grown(self);
        self.history.push_back(Sample { at, pools: self.grown.clone(), served: self.served.clone() });
        while self.history.len() > 2 && self.history.get(1).is_some_and(|s| at >= s.at + RATE_WINDOW) {
            self.history.pop_front();
        }
        // Rates go up and down without reports.
        self.version += u64::from(before != grown(self) || before != ObjectStatSum::default());
    }

    /// By how much a pool's sums grew within the window, and how long that took.
    pub fn pool_growth(&self, pool: PoolId) -> Option<(Duration, ObjectStatSum)> {
        self.grown(|s| s.pools.get(&pool).copied())
    }

    /// The same of what an OSD did as primary.
    pub fn served(&self, osd: OsdId) -> Option<(Duration, ObjectStatSum)> {
        self.grown(|s| Some(s.served.get(&osd).copied().unwrap_or_default()))
    }

    fn grown(&self, get: impl Fn(&Sample) -> Option<ObjectStatSum>) -> Option<(Duration, ObjectStatSum)> {
        let (t0, first) = self.history.iter().find_map(|s| Some((s.at, get(s)?)))?;
        let last = self.history.back()?;
        let span = last.at.checked_sub(t0).filter(|d| !d.is_zero())?;
        let mut delta = get(last)?;
        delta -= first;
        Some((span, delta))
    }

    /// The same for all pools together; a pool that came meanwhile counts from when it was first seen. One that went does
    /// not count.
    pub fn growth(&self) -> Option<(Duration, ObjectStatSum)> {
        let (first, last) = (self.history.front()?, self.history.back()?);
        let span = last.at.checked_sub(first.at).filter(|d| !d.is_zero())?;
        let mut delta = ObjectStatSum::default();
        for pool in last.pools.keys() {
            if let Some((_, grown)) = self.pool_growth(*pool) {
                delta += grown;
            }
        }
        Some((span, delta))
    }

    /// Checks the numbered invariants that hold between reports.
    pub fn assert_invariants(&self, map: &OsdMap) {
        let unserved = unserved(map);
        let served = map.pgs().filter(|pg| !unserved.contains(&pg.pool));
        assert!(self.pgs.keys().copied().eq(served), "invariant 1");
        assert!(self.osds.keys().all(|o| map.exists(o.0)), "invariant 3");
    }
}

impl OsdReport {
    /// An OSD that is out has no space to offer. That it still holds PGs is not forgotten: it decides whether
    /// the OSD may be destroyed. What pools use of it stays as well, for it goes only when the PGs have
    /// moved.
    ///
    /// Source: ClusterState::ingest_pgstats, which empties osd_stat alone.
    fn zero(&mut self) {
        let s = &self.stat;
        self.stat = OsdStat { seq: s.seq, up_from: s.up_from, num_pgs: s.num_pgs, ..OsdStat::default() };
    }
}

/// Erasure-coded pools whose numbers are not those of their profile. OSDs make no PGs of them, and nobody
/// will ever report any.
pub(crate) fn unserved(map: &OsdMap) -> BTreeSet<PoolId> {
    let coded = map.pools.iter().filter(|(_, pool)| pool.is_erasure());
    coded.filter(|(_, pool)| erasure::of_pool(map, pool).is_err()).map(|(id, _)| *id).collect()
}

/// A PG that nobody has reported. Its times make it count as stuck when that lasts.
fn unknown(since: Utime) -> PgStat {
    PgStat {
        up_primary: NO_OSD,
        acting_primary: NO_OSD,
        last_fresh: since,
        last_change: since,
        last_active: since,
        last_peered: since,
        last_clean: since,
        last_unstale: since,
        last_undegraded: since,
        last_fullsized: since,
        last_scrub_stamp: since,
        last_deep_scrub_stamp: since,
        last_clean_scrub_stamp: since,
        ..PgStat::default()
    }
}

#[cfg(test)]
mod tests {
    use maps::{Pool, PoolType};

    use super::*;

    /// One came with a map of an earlier release: the others are balanced and scaled all the same.
    #[test]
    fn pgs_of_a_pool_that_nobody_serves_are_not_unknown() {
        let mut map = OsdMap::default();
        let words = [("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "2"), ("m", "1")];
        let values = words.map(|(k, v)| (k.to_owned(), v.to_owned()));
        map.erasure_code_profiles.insert("p".to_owned(), values.into());
        for (id, size) in [(1, 3), (2, 2)] {
            let mut pool = Pool::new(PoolType::Erasure, 8);
            pool.erasure_code_profile = "p".to_owned();
            (pool.size, pool.stripe_width) = (size, 8192);
            map.pools.insert(PoolId(id), pool);
        }
        map.pools.insert(PoolId(3), Pool::new(PoolType::Replicated, 4));
        let mut pgs = PgMap::default();
        let now = Now { mono: Duration::ZERO, wall: Utime::ZERO };
        pgs.map_changed(&map, now);
        pgs.assert_invariants(&map);
        let pools: Vec<i64> = pgs.pgs.keys().map(|pg| pg.pool.0).collect();
        assert_eq!(pools, [[1; 8].as_slice(), &[3; 4]].concat());
        // A pool that is put right has PGs again.
        map.pools.get_mut(&PoolId(2)).expect("there").size = 3;
        pgs.map_changed(&map, now);
        assert_eq!(pgs.pgs.len(), 20);
    }
}
