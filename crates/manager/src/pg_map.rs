//! What the OSDs have reported: statistics of every PG and every OSD, and rates over the last reports.
//!
//! Invariants:
//! 1. Only PGs of pools that exist in the map, with seeds below pg_num, are kept.
//! 2. A PG's report is replaced only by one of a later epoch, or of the same epoch and a later sequence.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use maps::OsdMap;
use messages::pool_stats::MPgStats;
use messages::stats::{ObjectStatSum, OsdStat, PgStat, StoreStatfs};
use types::{Epoch, OsdId, PgId, PoolId};

/// Rates are taken over this much time.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// One OSD's last report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdReport {
    pub stat: OsdStat,
    /// The map that the OSD had.
    pub epoch: Epoch,
    pub pools: BTreeMap<PoolId, StoreStatfs>,
    /// Monotonic time of arrival.
    pub at: Duration,
}

/// All reports.
#[derive(Debug, Clone, Default)]
pub struct PgMap {
    pub pgs: BTreeMap<PgId, PgStat>,
    pub osds: BTreeMap<OsdId, OsdReport>,
    /// Grows with every change.
    pub version: u64,
    /// Sums per pool at past moments, oldest first.
    history: VecDeque<(Duration, BTreeMap<PoolId, ObjectStatSum>)>,
}

impl PgMap {
    /// Takes in a report; the sequence and epoch of each PG, for the acknowledgement.
    pub fn report(
        &mut self,
        osd: OsdId,
        report: MPgStats,
        map: &OsdMap,
        at: Duration,
    ) -> BTreeMap<PgId, (u64, Epoch)> {
        self.version += 1;
        let pools = report.pool_stats.into_iter().map(|(id, s)| (PoolId(id), s)).collect();
        self.osds.insert(osd, OsdReport { stat: report.osd_stat, epoch: report.epoch, pools, at });
        let mut acks = BTreeMap::new();
        for (pg, stat) in report.pg_stats {
            acks.insert(pg, (stat.reported_seq, stat.reported_epoch));
            let newer = self.pgs.get(&pg).is_none_or(|old| {
                (stat.reported_epoch, stat.reported_seq) >= (old.reported_epoch, old.reported_seq)
            });
            if newer && map.pg_exists(pg) {
                self.pgs.insert(pg, stat);
            }
        }
        acks
    }

    /// A new map: forgets PGs and OSDs that are gone, and marks PGs whose primary is down as stale.
    pub fn map_changed(&mut self, map: &OsdMap) {
        self.version += 1;
        self.pgs.retain(|pg, _| map.pg_exists(*pg));
        self.osds.retain(|osd, _| map.exists(osd.0) && !(map.is_out(osd.0) && map.is_down(osd.0)));
        for stat in self.pgs.values_mut() {
            if map.is_down(stat.acting_primary) {
                stat.state |= state::STALE;
            }
        }
    }

    /// Sums of each pool now.
    pub fn pool_sums(&self) -> BTreeMap<PoolId, ObjectStatSum> {
        let mut sums: BTreeMap<PoolId, ObjectStatSum> = BTreeMap::new();
        for (pg, stat) in &self.pgs {
            *sums.entry(pg.pool).or_default() += stat.stats.sum;
        }
        sums
    }

    /// Remembers the sums of this moment, for rates.
    pub fn sample(&mut self, at: Duration) {
        let sums = self.pool_sums();
        self.history.push_back((at, sums));
        while self.history.len() > 2 && self.history.get(1).is_some_and(|(t, _)| at > *t + RATE_WINDOW) {
            self.history.pop_front();
        }
    }

    /// The oldest and newest sums of a pool within the window, and the time between them.
    pub fn growth(&self, pool: PoolId) -> Option<(Duration, ObjectStatSum, ObjectStatSum)> {
        let (t0, first) = self.history.front()?;
        let (t1, last) = self.history.back()?;
        let span = t1.checked_sub(*t0).filter(|d| !d.is_zero())?;
        Some((span, *first.get(&pool)?, *last.get(&pool)?))
    }
}

/// PG_STATE_* bits. Source: src/osd/osd_types.h.
pub mod state {
    pub const CREATING: u64 = 1 << 0;
    pub const ACTIVE: u64 = 1 << 1;
    pub const CLEAN: u64 = 1 << 2;
    pub const DOWN: u64 = 1 << 4;
    pub const RECOVERY_UNFOUND: u64 = 1 << 5;
    pub const BACKFILL_UNFOUND: u64 = 1 << 6;
    pub const PREMERGE: u64 = 1 << 7;
    pub const SCRUBBING: u64 = 1 << 8;
    pub const DEGRADED: u64 = 1 << 10;
    pub const INCONSISTENT: u64 = 1 << 11;
    pub const PEERING: u64 = 1 << 12;
    pub const REPAIR: u64 = 1 << 13;
    pub const RECOVERING: u64 = 1 << 14;
    pub const BACKFILL_WAIT: u64 = 1 << 15;
    pub const INCOMPLETE: u64 = 1 << 16;
    pub const STALE: u64 = 1 << 17;
    pub const REMAPPED: u64 = 1 << 18;
    pub const DEEP_SCRUB: u64 = 1 << 19;
    pub const BACKFILLING: u64 = 1 << 20;
    pub const BACKFILL_TOOFULL: u64 = 1 << 21;
    pub const RECOVERY_WAIT: u64 = 1 << 22;
    pub const UNDERSIZED: u64 = 1 << 23;
    pub const ACTIVATING: u64 = 1 << 24;
    pub const PEERED: u64 = 1 << 25;
    pub const SNAPTRIM: u64 = 1 << 26;
    pub const SNAPTRIM_WAIT: u64 = 1 << 27;
    pub const RECOVERY_TOOFULL: u64 = 1 << 28;
    pub const SNAPTRIM_ERROR: u64 = 1 << 29;
    pub const FORCED_RECOVERY: u64 = 1 << 30;
    pub const FORCED_BACKFILL: u64 = 1 << 31;
    pub const FAILED_REPAIR: u64 = 1 << 32;
    pub const LAGGY: u64 = 1 << 33;
    pub const WAIT: u64 = 1 << 34;

    /// Names in the order in which Ceph prints them. Source: pg_state_string in src/osd/osd_types.cc.
    pub const NAMES: [(u64, &str); 33] = [
        (STALE, "stale"),
        (CREATING, "creating"),
        (ACTIVE, "active"),
        (ACTIVATING, "activating"),
        (CLEAN, "clean"),
        (RECOVERY_WAIT, "recovery_wait"),
        (RECOVERY_TOOFULL, "recovery_toofull"),
        (RECOVERING, "recovering"),
        (FORCED_RECOVERY, "forced_recovery"),
        (DOWN, "down"),
        (RECOVERY_UNFOUND, "recovery_unfound"),
        (BACKFILL_UNFOUND, "backfill_unfound"),
        (UNDERSIZED, "undersized"),
        (DEGRADED, "degraded"),
        (REMAPPED, "remapped"),
        (PREMERGE, "premerge"),
        (SCRUBBING, "scrubbing"),
        (DEEP_SCRUB, "deep"),
        (INCONSISTENT, "inconsistent"),
        (PEERING, "peering"),
        (REPAIR, "repair"),
        (BACKFILL_WAIT, "backfill_wait"),
        (BACKFILLING, "backfilling"),
        (FORCED_BACKFILL, "forced_backfill"),
        (BACKFILL_TOOFULL, "backfill_toofull"),
        (INCOMPLETE, "incomplete"),
        (PEERED, "peered"),
        (SNAPTRIM, "snaptrim"),
        (SNAPTRIM_WAIT, "snaptrim_wait"),
        (SNAPTRIM_ERROR, "snaptrim_error"),
        (FAILED_REPAIR, "failed_repair"),
        (LAGGY, "laggy"),
        (WAIT, "wait"),
    ];

    /// `active+clean`; `unknown` for no bits at all.
    pub fn text(bits: u64) -> String {
        let names: Vec<&str> = NAMES.iter().filter(|(b, _)| bits & b != 0).map(|(_, n)| *n).collect();
        if names.is_empty() { "unknown".to_owned() } else { names.join("+") }
    }
}
