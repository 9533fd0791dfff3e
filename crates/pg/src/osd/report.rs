//! Reports to the manager: this OSD's space, and the PGs that it leads.

use std::collections::BTreeMap;
use std::time::Duration;

use admin::options::Values;
use bytes::Bytes;
use messages::mgr::{DaemonHealthMetric, MMgrOpen, MMgrReport};
use messages::pool_stats::MPgStats;
use messages::stats::{OsdStat, StorePerfStat, StoreStatfs};
use messages::{Message, PaxosVersion};
use types::PgId;

use super::OsdCore;
use crate::io::Output;

/// The least time between two reports when states change quickly.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// An envelope of version 1 with nothing in it: no counters are declared.
const NO_COUNTERS: Bytes = Bytes::from_static(&[1, 1, 0, 0, 0, 0]);

/// When what was last said.
#[derive(Debug, Default)]
pub(super) struct Reports {
    last: Option<Duration>,
    /// Every PG is due, not only those that changed.
    all: bool,
    questions: Duration,
    mgr: bool,
    seq: u64,
    /// How often the manager wants to hear of this daemon, and when it last did.
    daemon_every: Option<Duration>,
    daemon_last: Duration,
    /// Version of the options that it knows.
    told_values: u64,
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
        self.open_mgr_session();
        self.reports.last = None;
        self.report_if_due();
    }

    /// Introduces this daemon with its options. Source: MgrClient::_send_open.
    fn open_mgr_session(&mut self) {
        self.reports.daemon_every = None;
        self.reports.told_values = self.values.version();
        let open = MMgrOpen {
            daemon_name: self.shared.whoami.to_string(),
            config: self.values.encode_for_manager(),
            config_defaults: Values::encode_defaults(),
            ..MMgrOpen::default()
        };
        self.shared.out.push(Output::SendMgr(open.into()));
    }

    pub(super) fn mgr_message(&mut self, msg: &Message) {
        match msg {
            Message::MgrConfigure(m) => {
                // Nothing is reported to a manager that wants no reports.
                let period = Duration::from_secs(m.period_s.into());
                self.reports.daemon_every = (!period.is_zero()).then_some(period);
                self.report_daemon();
            }
            Message::OsdScrub2(m) => self.scrub_requested(m),
            Message::OsdForceRecovery(m) => self.force_recovery(m),
            _ => {}
        }
    }

    fn report_daemon_if_due(&mut self) {
        let now = self.shared.now.mono;
        let news = self.reports.told_values != self.values.version();
        let since = now.saturating_sub(self.reports.daemon_last);
        let due = |every: Duration| since >= every || (news && since >= MIN_INTERVAL);
        if self.reports.mgr && self.reports.daemon_every.is_some_and(due) {
            self.report_daemon();
        }
    }

    /// Tells of slow operations, and of options that changed. Source: MgrClient::_send_report, OSD::get_health_metrics.
    fn report_daemon(&mut self) {
        const SLOW_OPS: u8 = 0;
        const PENDING_CREATING_PGS: u8 = 1;
        self.reports.daemon_last = self.shared.now.mono;
        let (slow, oldest_s) = self.slow_ops();
        let slow = u64::from(slow) | u64::from(oldest_s) << 32;
        let metric = |kind, value| DaemonHealthMetric { kind, value };
        let version = self.values.version();
        let news = std::mem::replace(&mut self.reports.told_values, version) != version;
        let report = MMgrReport {
            daemon_name: self.shared.whoami.to_string(),
            packed: NO_COUNTERS,
            health_metrics: vec![metric(SLOW_OPS, slow), metric(PENDING_CREATING_PGS, 0)],
            config: if news { self.values.encode_for_manager() } else { Bytes::new() },
            ..MMgrReport::default()
        };
        self.shared.out.push(Output::SendMgr(report.into()));
    }

    /// Reports on time, and at once when a PG's state changed.
    pub(super) fn report_if_due(&mut self) {
        self.report_daemon_if_due();
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
        let latency = self.tracker.take_commit_latency_ns();
        let cx = &self.shared;
        OsdStat {
            statfs: self.statfs(),
            hb_peers: self.heartbeats.peers(),
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
