//! This monitor as a client of the manager, which every daemon is: its counters, and the session that it
//! reports them over.
//!
//! The shell keeps the session up and asks where it leads to ([`Monitor::manager_at`]).
//!
//! Source: mgr_client in src/mon/Monitor.cc.

use admin::perf::{Count, Logger, priority};
use cephx::{AuthError, Authorizer};
use messages::Message;
use messages::pg_state::{ACTIVE, CLEAN, PEERING};
use messages::stats::ObjectStatSum;
use types::{AddrVec, EntityType, Now};

use crate::io::Output;
use crate::monitor::Monitor;
use crate::session::Stage;
use crate::settings::QuorumView;
use crate::state::PgDigest;

/// What this monitor counts, since its process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counters {
    pub sessions_opened: u64,
    pub sessions_closed: u64,
    /// Those of clients that were sent to other monitors.
    pub sessions_trimmed: u64,
    /// Elections that this monitor has seen the end of.
    pub elections: u64,
    pub won: u64,
    pub lost: u64,
    /// Entries that this monitor proposed to the log, and their bytes.
    pub begun: u64,
    pub begun_bytes: u64,
    /// Entries that it has applied, and whole states that it took from others.
    pub committed: u64,
    pub installed: u64,
    /// Messages that only daemons send, from a key that does not allow them.
    pub not_allowed: u64,
    /// Beacons and reports of managers that were not taken, and sums of pools that were cut to what can be.
    pub manager_refused: u64,
    pub manager_bounded: u64,
}

impl Counters {
    /// Another view of the quorum has come.
    pub fn quorum(&mut self, before: &QuorumView, now: &QuorumView) {
        if now.leader.is_none() || before.same_leadership(now) {
            return;
        }
        self.elections += 1;
        self.won += u64::from(now.is_leader());
        self.lost += u64::from(!now.is_leader());
    }
}

impl Monitor {
    /// Where the manager in charge listens; empty when there is none.
    pub fn manager_at(&self) -> AddrVec {
        self.state.mgr.active.as_ref().map(|a| a.addrs.clone()).unwrap_or_default()
    }

    /// What proves to a manager that this is a monitor: it makes its own ticket.
    pub fn manager_authorizer(&mut self, now: Now) -> Result<Authorizer, AuthError> {
        let entropy = &mut self.entropy;
        self.state.auth.mon_authorizer(EntityType::Mgr, now.wall, &mut |b: &mut [u8]| entropy.fill(b))
    }

    pub(crate) fn manager_connected(&mut self, out: &mut Vec<Output>) {
        self.follow_config();
        let open = self.reporter.opened(&self.values);
        self.reports = true;
        out.push(Output::SendManager { tid: 0, msg: open.into() });
        self.send_proxied(out);
    }

    pub(crate) fn manager_lost(&mut self, out: &mut Vec<Output>) {
        self.reports = false;
        self.proxied_lost(out);
    }

    pub(crate) fn manager_said(&mut self, now: Now, tid: u64, msg: Message, out: &mut Vec<Output>) {
        match msg {
            Message::MgrConfigure(m) => {
                self.reporter.configured(&m);
                if self.reporter.is_wanted() {
                    self.report(now, out);
                }
            }
            Message::MgrCommandReply(m) => self.manager_answered(tid, m, out),
            _ => {}
        }
    }

    pub(crate) fn report_if_due(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.reports && self.reporter.is_due(now.mono, &self.values) {
            self.report(now, out);
        }
    }

    fn report(&mut self, now: Now, out: &mut Vec<Output>) {
        self.follow_config();
        let loggers = self.resets.applied(self.loggers());
        let report = self.reporter.report(now.mono, &self.values, &loggers);
        out.push(Output::SendManager { tid: 0, msg: report.into() });
    }

    /// Every counter of this monitor. What concerns the cluster every monitor knows, and the manager need not
    /// be told.
    pub(crate) fn loggers(&self) -> Vec<Logger> {
        let open = self.sessions.values().filter(|s| s.stage == Stage::Open).count() as u64;
        let c = &self.counters;
        let mon = Logger::new("mon")
            .with("num_sessions", "open sessions", Count::Gauge(open))
            .headed("sess", priority::USEFUL)
            .with("session_add", "sessions opened", Count::Total(c.sessions_opened))
            .headed("sadd", priority::INTERESTING)
            .with("session_rm", "sessions closed", Count::Total(c.sessions_closed))
            .headed("srm", priority::INTERESTING)
            .with("session_trim", "sessions left to other monitors", Count::Total(c.sessions_trimmed))
            .headed("strm", priority::USEFUL)
            .with("num_elections", "elections seen", Count::Total(c.elections))
            .headed("ecnt", priority::USEFUL)
            .with(
                "election_call",
                "elections that this monitor called for",
                Count::Total(self.settings.quorum.calls),
            )
            .headed("estt", priority::INTERESTING)
            .with("election_win", "elections won", Count::Total(c.won))
            .headed("ewon", priority::INTERESTING)
            .with("election_lose", "elections lost", Count::Total(c.lost))
            .headed("elst", priority::INTERESTING)
            .with(
                "not_allowed",
                "messages of daemons that the sender's key does not allow",
                Count::Total(c.not_allowed),
            )
            .with(
                "mgr_refused",
                "beacons and reports of managers that were refused",
                Count::Total(c.manager_refused),
            )
            .with(
                "mgr_bounded",
                "sums of pools in reports of managers that cannot be",
                Count::Total(c.manager_bounded),
            )
            .with("log_index", "entries of the replicated log", Count::Gauge(self.index()))
            .headed("log", priority::USEFUL);
        vec![mon, self.paxos_logger(), self.cluster_logger()]
    }

    /// The replicated log, which is Raft's here: what is counted is the same.
    ///
    /// Source: Paxos::init_logger in src/mon/Paxos.cc.
    fn paxos_logger(&self) -> Logger {
        let c = &self.counters;
        Logger::new("paxos")
            .usually(priority::USEFUL)
            .with("start_leader", "times that this monitor began to lead", Count::Total(c.won))
            .with("start_peon", "times that it began to follow", Count::Total(c.lost))
            .with("begin", "entries that it proposed", Count::Total(c.begun))
            .with("loligo_begin_bytes", "their bytes", Count::TotalBytes(c.begun_bytes))
            .with("commit", "entries committed", Count::Total(c.committed))
            .with("refresh", "states applied", Count::Total(c.committed + c.installed))
    }

    /// Source: the cluster logger in src/mon/Monitor.cc, MgrStatMonitor::update_logger.
    fn cluster_logger(&self) -> Logger {
        let (map, digest) = (self.state.osdmap(), &self.state.digest);
        let osds = map.counts();
        let quorum = &self.settings.quorum;
        let statfs = digest.statfs();
        let totals = digest.totals();
        let pgs = |state: u64| Count::Gauge(pgs_with(digest, state));
        let used = statfs.total.saturating_sub(statfs.available);
        let cluster = Logger::new("cluster")
            .with("num_mon", "monitors", Count::Gauge(quorum.monitors.into()))
            .with("num_mon_quorum", "monitors in the quorum", Count::Gauge(quorum.members.len() as u64))
            .with("num_osd", "OSDs", Count::Gauge(osds.total as u64))
            .with("num_osd_up", "OSDs that are up", Count::Gauge(osds.up as u64))
            .with("num_osd_in", "OSDs that are in", Count::Gauge(osds.r#in as u64))
            .with("osd_epoch", "epoch of the OSD map", Count::Gauge(map.epoch.0.into()))
            .with("osd_bytes", "size of all stores", Count::GaugeBytes(statfs.total))
            .with("osd_bytes_used", "bytes in use", Count::GaugeBytes(used))
            .with("osd_bytes_avail", "bytes free", Count::GaugeBytes(statfs.available))
            .with("num_pool", "pools", Count::Gauge(map.pools.len() as u64))
            .with("num_pg", "PGs", pgs(0))
            .with("num_pg_active_clean", "PGs that are active and clean", pgs(ACTIVE | CLEAN))
            .with("num_pg_active", "PGs that are active", pgs(ACTIVE))
            .with("num_pg_peering", "PGs that are peering", pgs(PEERING));
        with_objects(cluster, &totals)
    }
}

fn with_objects(cluster: Logger, totals: &ObjectStatSum) -> Logger {
    let number = |n: i64| u64::try_from(n).unwrap_or(0);
    let objects = |n: i64| Count::Gauge(number(n));
    cluster
        .with("num_object", "objects", objects(totals.num_objects))
        .with("num_object_degraded", "copies that are lacking", objects(totals.num_objects_degraded))
        .with("num_object_misplaced", "copies that are elsewhere", objects(totals.num_objects_misplaced))
        .with("num_object_unfound", "objects that are nowhere", objects(totals.num_objects_unfound))
        .with("num_bytes", "bytes of all objects", Count::GaugeBytes(number(totals.num_bytes)))
}

fn pgs_with(digest: &PgDigest, state: u64) -> u64 {
    let all = digest.pg_states.iter().filter(|(s, _)| **s & state == state);
    all.map(|(_, n)| u64::from(*n)).sum()
}
