//! Reports to the manager: this OSD's space, and the PGs that it leads.

use std::collections::BTreeMap;
use std::time::Duration;

use messages::metrics::MetricQueries;
use messages::mgr::{DaemonHealthMetric, MMgrConfigure};
use messages::pool_stats::MPgStats;
use messages::stats::{OsdStat, StorePerfStat, StoreStatfs};
use messages::{Message, PaxosVersion};
use reporter::Reporter;
use types::{OsdId, PgId};

use super::OsdCore;
use super::queries::QUERIES;
use crate::io::Output;

/// The least time between two reports when states change quickly.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// When what was last said.
#[derive(Debug)]
pub(super) struct Reports {
    last: Option<Duration>,
    /// Every PG is due, not only those that changed.
    all: bool,
    questions: Duration,
    mgr: bool,
    seq: u64,
    /// The daemon's own: options, counters, health.
    own: Reporter,
}

impl Reports {
    pub fn new(whoami: OsdId) -> Self {
        Self {
            last: None,
            all: false,
            questions: Duration::ZERO,
            mgr: false,
            seq: 0,
            own: Reporter::new(whoami.to_string()),
        }
    }

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
        // Another manager asks what it wants to know.
        self.shared.queries.set(MetricQueries::new());
        let open = self.reports.own.opened(&self.values);
        self.shared.out.push(Output::SendMgr(open.into()));
        self.reports.last = None;
        self.report_if_due();
    }

    pub(super) fn mgr_message(&mut self, msg: &Message) {
        match msg {
            Message::MgrConfigure(m) => self.configured_by_mgr(m),
            Message::OsdScrub2(m) => self.scrub_requested(m),
            Message::OsdForceRecovery(m) => self.force_recovery(m),
            _ => {}
        }
    }

    /// Takes the manager's wishes. Queries that do not decode leave those that it asked before.
    fn configured_by_mgr(&mut self, m: &MMgrConfigure) {
        self.reports.own.configured(m);
        if let Ok(queries) = m.metric_queries(QUERIES) {
            self.shared.queries.set(queries);
        }
        if self.reports.own.is_wanted() {
            self.report_daemon();
        }
    }

    fn report_daemon_if_due(&mut self) {
        if self.reports.mgr && self.reports.own.is_due(self.shared.now.mono, &self.values) {
            self.report_daemon();
        }
    }

    /// Tells of counters, slow operations, and options that changed. Source: OSD::get_health_metrics.
    fn report_daemon(&mut self) {
        const SLOW_OPS: u8 = 0;
        const PENDING_CREATING_PGS: u8 = 1;
        let loggers = self.resets.applied(self.loggers());
        let mut report = self.reports.own.report(self.shared.now.mono, &self.values, &loggers);
        if !self.shared.queries.is_empty() {
            report = report.with_metrics(&self.shared.queries.take());
        }
        let (slow, oldest_s) = self.slow_ops();
        let slow = u64::from(slow) | u64::from(oldest_s) << 32;
        let metric = |kind, value| DaemonHealthMetric { kind, value };
        report.health_metrics = vec![metric(SLOW_OPS, slow), metric(PENDING_CREATING_PGS, 0)];
        self.shared.out.push(Output::SendMgr(report.into()));
    }

    /// Reports on time, and at once when a PG's state changed.
    pub(super) fn report_if_due(&mut self) {
        self.report_daemon_if_due();
        let now = self.shared.now.mono;
        let since = self.reports.last.map(|at| now.saturating_sub(at));
        let is_regular = since.is_none_or(|t| t >= self.shared.config.stats_interval);
        let news = self.shared.stats_dirty || self.reports.all;
        let due = is_regular || (news && since.is_some_and(|t| t >= MIN_INTERVAL));
        if !due || !self.reports.mgr || !self.boot.is_up() || self.stopping {
            return;
        }
        self.reports.last = Some(now);
        self.shared.stats_dirty = false;
        let all = std::mem::take(&mut self.reports.all);
        let cx = &mut self.shared;
        let mut pg_stats: BTreeMap<PgId, _> = BTreeMap::new();
        for (id, pg) in &mut self.pgs {
            if !pg.is_primary(cx) {
                continue;
            }
            if std::mem::take(&mut pg.report) || all || (is_regular && pg.is_report_outdated(cx)) {
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
        let latency = self.tracker.take_commit_latency_ns();
        let cx = &self.shared;
        OsdStat {
            statfs: self.statfs(),
            hb_peers: self.heartbeats.peers().into_iter().map(|osd| osd.0).collect(),
            // What is submitted can be read at once: as in BlueStore, one number stands for both.
            perf: StorePerfStat { commit_latency_ns: latency, apply_latency_ns: latency },
            up_from: cx.map.osd(cx.whoami).map_or(Default::default(), |o| o.info.up_from),
            seq: self.reports.seq,
            num_pgs: u32::try_from(self.pgs.len()).unwrap_or(u32::MAX),
            num_osds: 1,
            num_per_pool_osds: 1,
            num_per_pool_omap_osds: 1,
            num_shards_repaired: cx.counters.repairs,
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

    /// Each pool's share of the store; omaps from the sums of its PGs here.
    fn pool_stats(&self) -> BTreeMap<i64, StoreStatfs> {
        let mut pools: BTreeMap<i64, StoreStatfs> = BTreeMap::new();
        for (id, pg) in &self.pgs {
            let s = pools.entry(id.pgid.pool.0).or_default();
            s.omap_allocated += pg.info.sums.omap_bytes;
        }
        for (pool, totals) in self.shared.store.pool_totals() {
            if let Some(s) = pools.get_mut(pool) {
                s.data_stored = totals.stored_bytes.max(0);
                s.allocated = totals.allocated_bytes.max(0);
            }
        }
        pools
    }
}
