//! Reports to the manager: this OSD's space, and the PGs that it leads.

use std::collections::BTreeMap;
use std::time::Duration;

use messages::PaxosVersion;
use messages::pool_stats::MPgStats;
use messages::stats::{OsdStat, StoreStatfs};
use types::PgId;

use super::OsdCore;
use crate::io::Output;

/// The least time between two reports when states change quickly.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// When what was last said.
#[derive(Debug, Default)]
pub(super) struct Reports {
    last: Option<Duration>,
    /// Every PG is due, not only those that changed.
    all: bool,
    questions: Duration,
    mgr: bool,
    seq: u64,
}

impl Reports {
    pub fn all_due(&mut self) {
        self.all = true;
    }

    /// Whether open questions should be asked again now.
    pub fn questions_due(&mut self, now: Duration, every: Duration) -> bool {
        let due = now.saturating_sub(self.questions) >= every;
        if due {
            self.questions = now;
        }
        due
    }
}

impl OsdCore {
    pub(super) fn mgr_connected(&mut self) {
        self.reports.mgr = true;
        self.reports.all = true;
        self.reports.last = None;
        self.report_if_due();
    }

    /// Reports on time, and at once when a PG's state changed.
    pub(super) fn report_if_due(&mut self) {
        let now = self.shared.now.mono;
        let since = self.reports.last.map(|at| now.saturating_sub(at));
        let due = match since {
            None => true,
            Some(t) => {
                t >= self.shared.config.stats_interval
                    || ((self.shared.stats_dirty || self.reports.all) && t >= MIN_INTERVAL)
            }
        };
        if !due || !self.reports.mgr || !self.boot.is_up() || self.stopping {
            return;
        }
        self.reports.last = Some(now);
        self.shared.stats_dirty = false;
        let all = std::mem::take(&mut self.reports.all);
        let cx = &mut self.shared;
        let mut pg_stats: BTreeMap<PgId, _> = BTreeMap::new();
        for (id, pg) in &mut self.pgs {
            if pg.is_primary(cx) && (std::mem::take(&mut pg.report) || all) {
                pg_stats.insert(id.pgid, pg.pg_stat(cx));
            }
        }
        let msg = MPgStats {
            version: PaxosVersion(0),
            fsid: self.shared.map.fsid,
            osd_stat: self.osd_stat(),
            pg_stats,
            epoch: self.shared.epoch(),
            pool_stats: self.pool_stats(),
        };
        self.shared.out.push(Output::SendMgr(msg.into()));
    }

    /// Reports now; returns the report's number.
    pub(super) fn flush_stats(&mut self) -> u64 {
        self.reports.last = None;
        self.report_if_due();
        self.reports.seq
    }

    fn osd_stat(&mut self) -> OsdStat {
        self.reports.seq += 1;
        let cx = &self.shared;
        OsdStat {
            statfs: self.statfs(),
            hb_peers: self.heartbeats.peers(),
            up_from: cx.map.osd(cx.whoami).map_or(Default::default(), |o| o.info.up_from),
            seq: self.reports.seq,
            num_pgs: u32::try_from(self.pgs.len()).unwrap_or(u32::MAX),
            num_osds: 1,
            num_per_pool_osds: 1,
            num_per_pool_omap_osds: 1,
            ..OsdStat::default()
        }
    }

    fn statfs(&self) -> StoreStatfs {
        let s = self.shared.store.statfs();
        StoreStatfs {
            total: s.total_bytes,
            available: s.available_bytes,
            internally_reserved: 0,
            allocated: s.allocated_bytes as i64,
            data_stored: s.stored_bytes as i64,
            omap_allocated: s.omap_bytes as i64,
            internal_metadata: s.metadata_bytes as i64,
            ..StoreStatfs::default()
        }
    }

    /// Each pool's share of the store, from the sums of its PGs here.
    fn pool_stats(&self) -> BTreeMap<i64, StoreStatfs> {
        let mut pools: BTreeMap<i64, StoreStatfs> = BTreeMap::new();
        for (id, pg) in &self.pgs {
            let s = pools.entry(id.pgid.pool.0).or_default();
            let sums = &pg.info.sums;
            s.data_stored += sums.bytes;
            s.allocated += sums.bytes;
            s.omap_allocated += sums.omap_bytes;
        }
        pools
    }
}
