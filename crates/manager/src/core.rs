//! The manager's core: sessions, reports, the beacon, the digest.
//!
//! Invariants:
//! 1. A digest is only made of a map and of statistics that are complete (`PgMap::ready`).
//! 2. A digest whose PG states are news follows the last one after `DIGEST_SOON`; other news wait for `DIGEST_EVERY`;
//!    without news nothing is sent.
//! 3. Reports made with a later map than ours, or while another manager is in charge, wait, at most `EARLY_LIMIT` of them.
//! 4. Before it is known whose the monitors are nothing is sent that changes what they hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use admin::options::Values;
use admin::perf::Resets;
use bytes::Bytes;
use codec::{Decode, Encode};
use maps::{Incremental, MgrMap, OsdMap};
use messages::Message;
use messages::mgr::{HealthCheck, HealthChecks, MMgrConfigure, MMgrReport, MMonMgrReport, MPgDigest};
use messages::mon::{MMonSubscribe, MOsdMap, SubscribeItem};
use messages::pool_stats::{MPgStats, MPgStatsAck};
use monitor::Whose;
use monitor::state::PgSteps;
use serde_json::json;
use types::{AddrVec, ConnId, EntityType, Epoch, Fsid, Now, OsdId, PoolId};

use crate::audit::Audit;
use crate::autoscaler::Autoscaler;
use crate::balancer::{Balancer, View};
use crate::client::Client;
use crate::command::{Deferred, ReplyTo};
use crate::crashes::{self, Crashes, KEYS};
use crate::daemons::Daemons;
use crate::dashboard::DashboardAt;
use crate::device_health::{self, DeviceHealth};
use crate::devices::{self, Devices};
use crate::digest::digest;
use crate::file_systems::FileSystems;
use crate::health::{self, Limits};
use crate::io::{Input, Output, PeerInfo};
use crate::mon_commands::{MonCommands, MonRequest};
use crate::offer::Standing;
use crate::outcome::{Refusals, Then};
use crate::pg_map::PgMap;
use crate::pg_steps::{self, pg_steps};
use crate::progress::{self, Progress};
use crate::prometheus::{self, Prometheus};
use crate::rbd::Rbd;
use crate::report::pg_map_digest;
use crate::sums::Sums;
use crate::users::{self, Once, Users, WithHash};

const DIGEST_SOON: Duration = Duration::from_millis(20);
/// Ceph's monitors write a report and all maps that it changes; Ceph's own manager sends one in two seconds.
const DIGEST_SOON_OF_CEPH: Duration = Duration::from_millis(500);
const DIGEST_EVERY: Duration = Duration::from_secs(2);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// What ails PGs is looked at again this often, for some of it counts only when it lasts.
const CHECK_EVERY: Duration = Duration::from_secs(5);
const STEPS_EVERY: Duration = Duration::from_millis(500);
/// OSDs that come up together are asked for together.
const DISKS_AFTER: Duration = Duration::from_secs(2);
const EARLY_LIMIT: usize = 4_096;
/// Those of one OSD, which may be as large as a message.
const EARLY_OF_ONE: usize = 8;
/// How long a command waits for the monitors to say which disks there are.
const DEFERRED: Duration = Duration::from_secs(5);

/// What a manager is told at start.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `x` of `mgr.x`.
    pub name: String,
    pub addrs: AddrVec,
    pub metadata: BTreeMap<String, String>,
    /// Of the configuration file, by Ceph's names; they win over the config database.
    pub options: BTreeMap<String, String>,
    /// On Ceph's monitors: takes over even where modules are in use that it does not stand for.
    pub force: bool,
}

/// What the monitors keep for whichever manager is in charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Crashes,
    Devices,
    Progress,
    /// Who may sign in to the dashboard.
    Users,
    /// Which health checks have failed.
    HealthHistory,
    /// What metadata servers said of themselves.
    Mds,
    /// The same of OSDs and of monitors: where their disks are.
    Disks(&'static str),
    /// When disks were last asked.
    LastScrape,
}

/// What the last digest was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Digested {
    version: u64,
    state_version: u64,
    services: u64,
    progress: u64,
}

/// See the crate's documentation.
pub struct Manager {
    pub(crate) settings: Settings,
    pub(crate) map: Option<OsdMap>,
    pub(crate) pgs: PgMap,
    pub(crate) daemons: Daemons,
    pub(crate) options: Values,
    /// From where this manager's own counters are shown.
    pub(crate) resets: Resets,
    /// What daemons were last told of how to report, and OSDs.
    wished: [MMgrConfigure; 2],
    pub(crate) sessions: BTreeMap<ConnId, PeerInfo>,
    /// Commands that the monitors are asked to run on behalf of clients.
    pub(crate) mon_commands: MonCommands,
    pub(crate) crashes: Crashes,
    pub(crate) balancer: Balancer,
    pub(crate) progress: Progress,
    pub(crate) autoscaler: Autoscaler,
    /// Which commands came.
    pub(crate) audit: Audit,
    /// What the monitors refused of late.
    pub(crate) refusals: Refusals,
    pub(crate) file_systems: FileSystems,
    pub(crate) devices: Devices,
    pub(crate) users: Users,
    pub(crate) once: Once,
    /// Whose passwords are being hashed, and what becomes of that.
    pub(crate) hashing: BTreeMap<u64, (ReplyTo, WithHash)>,
    pub(crate) hashes: u64,
    /// What this manager serves besides, and where.
    pub(crate) serving: BTreeMap<String, String>,
    /// What the monitors say of modules' options.
    pub(crate) module_options: BTreeMap<String, String>,
    pub(crate) prometheus: Prometheus,
    /// Where the dashboard was last told to be served, or why it is not.
    pub(crate) dashboard: Result<Option<DashboardAt>, String>,
    pub(crate) rbd: Rbd,
    pub(crate) client: Client,
    pub(crate) device_health: DeviceHealth,
    /// When daemons' disks are asked for, after one of them has come up.
    disks_at: Option<Duration>,
    /// Commands that wait until it is known which disks there are.
    pub(crate) deferred: Vec<Deferred>,
    /// The numbers of questions for what the monitors keep, while they are open.
    asked: BTreeMap<u64, Kept>,
    early: VecDeque<(OsdId, ConnId, MPgStats)>,
    pub(crate) gid: u64,
    pub(crate) mon: bool,
    /// Whether we are the manager in charge. Until a map says otherwise we act as if; our monitors listen to
    /// nobody else.
    pub(crate) active: bool,
    /// Whether a map said that we are in charge.
    pub(crate) confirmed: bool,
    /// What we are to the monitors.
    pub(crate) standing: Standing,
    /// Modules that are switched on; `None` before the first map.
    pub(crate) modules: Option<BTreeSet<String>>,
    pub(crate) mgr_map: Option<MgrMap>,
    /// Whether the monitors have said what is set.
    configured: bool,
    digest_at: Duration,
    sample_at: Duration,
    check_at: Duration,
    digested: Option<Digested>,
    /// What pools' PG counts can do now, and when that is looked at again.
    steps: BTreeMap<PoolId, PgSteps>,
    steps_at: Duration,
}

impl Manager {
    pub fn new(settings: Settings) -> Self {
        let options = Values::new(format!("mgr.{}", settings.name), &settings.options);
        Self {
            settings,
            map: None,
            pgs: PgMap::default(),
            daemons: Daemons::default(),
            options,
            resets: Resets::default(),
            wished: <[MMgrConfigure; 2]>::default(),
            sessions: BTreeMap::new(),
            mon_commands: MonCommands::default(),
            crashes: Crashes::default(),
            balancer: Balancer::default(),
            progress: Progress::default(),
            autoscaler: Autoscaler::default(),
            audit: Audit::default(),
            refusals: Refusals::default(),
            file_systems: FileSystems::default(),
            devices: Devices::default(),
            users: Users::default(),
            once: Once::default(),
            hashing: BTreeMap::new(),
            hashes: 0,
            serving: BTreeMap::new(),
            module_options: BTreeMap::new(),
            prometheus: Prometheus::default(),
            dashboard: Ok(None),
            rbd: Rbd::default(),
            client: Client::default(),
            device_health: DeviceHealth::default(),
            disks_at: None,
            deferred: Vec::new(),
            asked: BTreeMap::new(),
            early: VecDeque::new(),
            gid: 0,
            mon: false,
            active: true,
            confirmed: false,
            standing: Standing::default(),
            modules: None,
            mgr_map: None,
            configured: false,
            digest_at: Duration::ZERO,
            sample_at: Duration::ZERO,
            check_at: Duration::ZERO,
            digested: None,
            steps: BTreeMap::new(),
            steps_at: Duration::ZERO,
        }
    }

    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Connected { conn, peer } => {
                self.sessions.insert(conn, peer);
            }
            Input::Disconnected { conn } => {
                self.sessions.remove(&conn);
                self.forget(now, conn);
            }
            Input::Message { conn, tid, msg } => self.message(now, conn, tid, msg, out),
            Input::FromMon { tid, msg } => self.mon_message(now, tid, msg, out),
            Input::MonConnected { gid } => self.mon_connected(now, gid, out),
            Input::Ask { id, ask } => self.asked_here(now, id, ask, out),
            Input::GivenUp { id } => {
                self.mon_commands.give_up(ReplyTo::Own { id });
                self.prometheus.give_up(ReplyTo::Own { id });
            }
            Input::Hashed { id, hash } => self.hashed(now, id, hash, out),
            Input::Serving { service, url } => self.serves(now, service, url, out),
            Input::MetricsServed { failed } => self.metrics_served(now, failed, out),
            Input::Client { start, started } => self.client_started(now, start, started, out),
            Input::JobProgress { id, done, of } => self.job_progress(now, id, done, of),
            Input::JobDone { id, result } => self.job_done(now, id, result, out),
            Input::OldTickets { count } => self.daemons.tickets_refused += count,
            Input::Tick => self.tick(now, out),
        }
        self.maybe_digest(now, out);
    }

    /// Where something is served besides, or not any more; the monitors are told what is news.
    fn serves(&mut self, now: Now, service: String, url: Option<String>, out: &mut Vec<Output>) {
        let before = match &url {
            Some(url) => self.serving.insert(service, url.clone()),
            None => self.serving.remove(&service),
        };
        if before != url && self.mon {
            self.beacon(now, out);
        }
    }

    /// What a session leaves behind when it is over.
    fn forget(&mut self, now: Now, conn: ConnId) {
        let news = self.daemons.disconnected(now, conn);
        self.pgs.health_changed(news, now);
        self.mon_commands.forget(conn);
        self.rbd.forget(conn);
        self.device_health.forget_client(conn);
        self.deferred.retain(|command| command.to.conn() != Some(conn));
        self.early.retain(|(_, of, _)| *of != conn);
    }

    fn mon_connected(&mut self, now: Now, gid: u64, out: &mut Vec<Output>) {
        self.standing.connected(gid != self.gid);
        self.end_metrics(out);
        self.gid = gid;
        self.mon = true;
        self.audit_again();
        self.beacon(now, out);
        let item = |start: u64| SubscribeItem { start, flags: 0 };
        let osdmap = self.map.as_ref().map_or(0, |m| u64::from(m.epoch.0) + 1);
        subscribe(
            [("osdmap", item(osdmap)), ("mgrmap", item(0)), ("fsmap", item(0)), ("config", item(0))],
            out,
        );
        self.follow_services(out);
        self.ask_whose(now, out);
        // A new leader has to be told everything again.
        self.digested = None;
        self.digest_at = now.mono;
        self.ask_for_kept(out);
        // What the old session was asked is not answered any more.
        self.mon_commands.resend(self.fsid(), out);
    }

    pub(crate) fn fsid(&self) -> Fsid {
        self.map.as_ref().map(|m| m.fsid).unwrap_or_default()
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        self.tick_standing(now, out);
        self.tell_new_wishes(out);
        if let Some(map) = &self.map {
            self.pgs.check_ready(map, now);
        }
        if now.mono >= self.steps_at {
            self.steps_at = now.mono + STEPS_EVERY;
            match self.standing.whose {
                Some(Whose::Ceph) => self.take_steps(now, out),
                _ => self.look_for_steps(now),
            }
        }
        if now.mono >= self.sample_at {
            self.sample_at = now.mono + SAMPLE_EVERY;
            self.pgs.sample(now.mono);
        }
        if now.mono >= self.check_at {
            self.check_at = now.mono + CHECK_EVERY;
            self.pgs.touch_unless_clean();
        }
        if self.acts() && self.configured {
            self.autoscale(now, out);
            self.balance(now, out);
            self.prune_crashes(now, out);
            self.client.tick(now, out);
            self.tick_rbd(now, out);
            self.tick_disks(now, out);
        }
        self.run_deferred(now, out);
        self.tell_progress(now, out);
        self.tick_prometheus(now, out);
        self.send_audit(now, out);
        self.ask_for_disks(now, out);
        if self.mon && !self.fsid().is_zero() && self.users.ask_again(now.mono) {
            self.ask_for(Kept::Users, &json!({ "prefix": "config-key get", "key": users::KEY }), out);
        }
    }

    /// Looks how far events have come, and has the monitors keep those that are over.
    fn tell_progress(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = self.map.as_ref().filter(|_| self.acts()) else { return };
        self.progress.tick(now, map, &self.pgs);
        if let Some(input) = self.progress.take_news(now) {
            let json = json!({ "prefix": "config-key set", "key": progress::KEY }).to_string();
            let request = MonRequest { json, input: input.into(), ..MonRequest::default() };
            self.ask_of_itself(now, vec![request], Then::ProgressKept, out);
        }
    }

    /// Whether the monitors, the PGs and our own place are known well enough to change anything.
    pub(crate) fn acts(&self) -> bool {
        self.mon && self.active && self.pgs.ready && self.standing.whose.is_some()
    }

    /// Has Ceph's monitors take the next steps towards the pools' PG counts.
    fn take_steps(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = self.map.as_ref().filter(|_| self.acts()) else { return };
        if self.mon_commands.own_under_way() {
            return;
        }
        let most = self.options.float("target_max_misplaced_ratio");
        let creating = u32::try_from(self.options.int("mon_osd_max_creating_pgs").max(1)).unwrap_or(u32::MAX);
        let steps = pg_steps::commands(&self.pgs, map, most, creating);
        if !steps.is_empty() {
            self.ask_of_itself(now, steps, Then::Nothing, out);
        }
    }

    fn look_for_steps(&mut self, now: Now) {
        let Some(map) = &self.map else { return };
        let most = self.options.float("target_max_misplaced_ratio");
        let steps = pg_steps(&self.pgs, map, most);
        let news = steps != self.steps;
        self.steps = steps;
        self.pgs.health_changed(news, now);
    }

    fn autoscale(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = self.map.as_ref().filter(|_| !self.mon_commands.own_under_way()) else { return };
        let before = self.autoscaler.checks.clone();
        let rows = self.autoscaler.tick(now, map, &self.pgs, &self.options);
        self.pgs.health_changed(before != self.autoscaler.checks, now);
        for row in &rows {
            self.progress.pg_num_changes(now, row.pool, row.pg_num, row.pg_num_final);
        }
        if !rows.is_empty() {
            let (requests, pools) = rows.iter().map(|row| (row.request(), row.pool)).unzip();
            self.ask_of_itself(now, requests, Then::Scaled(pools), out);
        }
    }

    fn prune_crashes(&mut self, now: Now, out: &mut Vec<Output>) {
        let old = self.crashes.outlived(now);
        if !old.is_empty() {
            let requests = old.iter().map(crashes::request).collect();
            self.ask_of_itself(now, requests, Then::Crashes(old), out);
        }
    }

    fn balance(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = &self.map else { return };
        self.balancer.busy = self.mon_commands.own_under_way();
        let view = View { now, map, pgs: &self.pgs, options: &self.options };
        if let Some(plan) = self.balancer.tick(view) {
            self.balancer.busy = true;
            self.ask_of_itself(now, plan.requests(), Then::Nothing, out);
        }
    }

    fn maybe_digest(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = &self.map else { return };
        let news = Digested {
            version: self.pgs.version,
            state_version: self.pgs.state_version,
            services: self.daemons.services_version,
            progress: self.progress.version,
        };
        if !self.acts() || self.digested == Some(news) {
            return;
        }
        let of_ceph = self.standing.whose == Some(Whose::Ceph);
        let soon = if of_ceph { DIGEST_SOON_OF_CEPH } else { DIGEST_SOON };
        let urgent = self.digested.is_none_or(|d| d.state_version != news.state_version);
        let wait = if urgent { DIGEST_EVERY - soon } else { Duration::ZERO };
        if now.mono + wait < self.digest_at {
            return;
        }
        let told = self.digested.replace(news).is_some_and(|d| d.services == news.services);
        self.digest_at = now.mono + DIGEST_EVERY;
        let of_daemons =
            health::slow_ops(&self.daemons).into_iter().chain(health::pending_pgs(&self.daemons));
        let of_pools = self.autoscaler.checks.clone();
        let checks = of_daemons.chain(self.crashes.check(now.wall)).chain(of_pools);
        let checks = checks.chain(self.device_health.checks.clone());
        let checks = checks.chain(self.prometheus.check());
        if of_ceph {
            let checks = checks.collect();
            return self.report(now, checks, out);
        }
        let mut summary = digest(&self.pgs, map, now.wall, &Limits::of(&self.options, false));
        summary.steps = self.steps.clone();
        summary.progress = self.progress.shown();
        if !told {
            let (services, line) = self.daemons.services_for_monitors(now);
            summary.services = Some(services);
            out.extend(line.map(Output::Warn));
        }
        summary.checks.extend(checks);
        let summary = summary.to_bytes();
        out.push(Output::send_mon(MPgDigest { epoch: map.epoch, gid: self.gid, summary }));
    }

    /// Tells Ceph's monitors what their PGs and services are like. Source: DaemonServer::send_report.
    fn report(&mut self, now: Now, mut checks: BTreeMap<String, HealthCheck>, out: &mut Vec<Output>) {
        let Some(map) = &self.map else { return };
        let sums = Sums::of(&self.pgs);
        let limits = Limits::of(&self.options, true);
        checks.extend(health::checks(&self.pgs, &sums, map, now.wall, &limits));
        let (service_map, line) = self.standing.services_to_send(now, &mut self.daemons);
        out.extend(line.map(Output::Warn));
        let report = MMonMgrReport {
            checks: HealthChecks { checks },
            service_map,
            progress: self.progress.shown(),
            gid: self.gid,
            digest: pg_map_digest(&self.pgs, map, now.wall).to_bytes(),
            ..MMonMgrReport::default()
        };
        out.push(Output::send_mon(report));
    }

    fn mon_message(&mut self, now: Now, tid: u64, msg: Message, out: &mut Vec<Output>) {
        match msg {
            Message::OsdMap(m) => self.osd_map(now, &m, out),
            Message::Config(m) => {
                self.options.set_from_mon(&m.options);
                self.balancer.configure(&m.options);
                self.progress.configure(&m.options);
                self.autoscaler.configure(&m.options);
                self.rbd.schedules.configure(now, &m.options);
                self.device_health.configure(&m.options);
                let news = self.crashes.configure(&m.options);
                self.pgs.health_changed(news, now);
                self.configured = true;
                self.module_options =
                    m.options.iter().filter(|(k, _)| k.starts_with("mgr/")).map(own).collect();
                self.look_at_dashboard(out);
                self.look_at_prometheus(now, out);
            }
            Message::MonCommandAck(ack) if self.prometheus.is_answer(tid) => {
                self.metrics_answered(now, tid, &ack, out);
            }
            Message::MonCommandAck(ack) if self.standing.is_answer(tid) => self.told_whose(now, &ack, out),
            Message::MonCommandAck(ack) => match self.asked.remove(&tid) {
                Some(Kept::Crashes) => {
                    self.crashes.load(&ack.output);
                    self.pgs.health_changed(true, now);
                }
                Some(Kept::Devices) => self.devices.load(&ack.output),
                Some(Kept::Disks(kind)) => {
                    self.devices.take_metadata(kind, &ack.output);
                    self.run_deferred(now, out);
                }
                Some(Kept::LastScrape) => self.device_health.last_scrape_known(ack.result, &ack.output),
                Some(Kept::Progress) => self.progress.load(ack.result, &ack.output),
                Some(Kept::Users) => {
                    let loaded = self.users.load(now.mono, ack.result, &ack.output);
                    out.extend(loaded.err().map(Output::Warn));
                }
                Some(Kept::HealthHistory) => {
                    let loaded = self.prometheus.history.load(ack.result, &ack.output);
                    out.extend(loaded.err().map(Output::Warn));
                }
                Some(Kept::Mds) => self.file_systems.take_metadata(&ack.output),
                None => {
                    let fsid = self.fsid();
                    if let Some(over) = self.mon_commands.answered(fsid, tid, ack, out) {
                        self.over(now, over, out);
                    }
                }
            },
            Message::MgrMap(m) => self.mgr_map(now, m.map.0, out),
            Message::LogAck(ack) => self.audit_kept(&ack),
            Message::ServiceMap(m) => self.service_map(now, m.map.0),
            Message::FsMap(m) => self.fs_map(m.map.0, out),
            msg @ Message::Command(_) => crate::command::run_for_mon(self, now, tid, msg, out),
            _ => {}
        }
    }

    /// Takes a new manager map, which says who is in charge.
    ///
    /// If this manager has just come into charge, all daemons have as long to report as after a start, and
    /// what they sent before the map came counts. If it has just lost its place, it forgets what daemons have
    /// told it and closes their sessions: they open new ones with the manager in charge. The monitors have
    /// put its address on the blocklist, so that this life can write nothing more, and the shell begins
    /// another one.
    ///
    /// Source: MgrStandby::handle_mgr_map, which calls respawn().
    fn mgr_map(&mut self, now: Now, map: Bytes, out: &mut Vec<Output>) {
        let Ok(map) = MgrMap::from_bytes(map) else { return };
        if self.is_replaced_by_its_like(&map) {
            let why = format!("another process is mgr.{} as well, and came later", self.settings.name);
            return out.push(Output::End(why));
        }
        // Our number is another one after a new login, until the monitors have heard from us.
        let own = &self.settings.addrs;
        let ours = map.active_gid == self.gid || (!own.is_empty() && map.active_addrs == *own);
        let before = std::mem::replace(&mut self.active, ours);
        let was_confirmed = std::mem::replace(&mut self.confirmed, self.active);
        let deposed = was_confirmed && !self.active;
        self.mgr_map = Some(map.clone());
        self.look_at_modules(now, &map, out);
        self.look_at_prometheus(now, out);
        self.client_listed(&map, out);
        if self.confirmed && !was_confirmed {
            // With this one the monitors learn that we serve.
            self.beacon(now, out);
        }
        if before == self.active {
            return;
        }
        self.pgs = PgMap::default();
        self.progress.forget();
        self.users.forget();
        self.prometheus.history.forget();
        self.end_metrics(out);
        self.rbd.forget_all();
        self.client.forget_all(out);
        self.device_health.forget();
        self.autoscaler.checks.clear();
        self.digested = None;
        if let Some(map) = &self.map {
            self.pgs.map_changed(map, now);
        }
        if self.active {
            // The last one in charge may have taken some, or let some go.
            self.ask_for_kept(out);
            return self.take_early(now, out);
        }
        self.mon_commands.drop_own();
        // Forgotten here, because the shell does not report connections that we close ourselves.
        for conn in std::mem::take(&mut self.sessions).into_keys() {
            self.forget(now, conn);
            out.push(Output::Close { conn });
        }
        out.extend(deposed.then_some(Output::Respawn));
    }

    fn take_early(&mut self, now: Now, out: &mut Vec<Output>) {
        for (osd, conn, report) in std::mem::take(&mut self.early) {
            self.take_report(now, osd, conn, report, out);
        }
    }

    fn osd_map(&mut self, now: Now, m: &MOsdMap, out: &mut Vec<Output>) {
        let Some(last) = m.last() else { return };
        let before = self.epoch();
        // Kept where OSDs may go out or come in: what that moves is seen beside the map from before.
        let old = self.map.as_ref().filter(|_| self.acts() && may_turn_osds(m)).cloned();
        while self.epoch() < last {
            if !step(&mut self.map, m, last) {
                // A gap, or a map that does not fit: start over from a whole one.
                self.map = None;
                return subscribe([("osdmap", SubscribeItem { start: 0, flags: 0 })], out);
            }
        }
        if before == Epoch(0) {
            // Commands need the cluster's id, which came with the map.
            self.ask_whose(now, out);
            self.ask_for_kept(out);
        }
        let Some(map) = self.map.as_ref().filter(|map| map.epoch > before) else { return };
        self.pgs.map_changed(map, now);
        if before == Epoch(0) || may_have_started(m) {
            self.disks_at.get_or_insert(now.mono + DISKS_AFTER);
        }
        if let Some(old) = old {
            self.progress.map_changed(now, &old, map, &self.pgs);
        }
        let news = self.daemons.map_changed(map);
        self.pgs.health_changed(news, now);
        self.look_at_pools(now, out);
        self.take_early(now, out);
    }

    /// Asks the monitors for what they keep. Answers to earlier questions are not newer, and do not count.
    fn ask_for_kept(&mut self, out: &mut Vec<Output>) {
        let fsid = self.fsid();
        self.asked.clear();
        self.disks_at = Some(Duration::ZERO);
        if !self.mon || fsid.is_zero() {
            return;
        }
        for (kept, command) in [
            (Kept::Crashes, json!({ "prefix": "config-key dump", "key": KEYS, "format": "json" })),
            (Kept::Devices, json!({ "prefix": "config-key dump", "key": devices::KEYS, "format": "json" })),
            (Kept::Progress, json!({ "prefix": "config-key get", "key": progress::KEY })),
            (Kept::Users, json!({ "prefix": "config-key get", "key": users::KEY })),
            (Kept::HealthHistory, json!({ "prefix": "config-key get", "key": prometheus::HISTORY })),
        ] {
            self.ask_for(kept, &command, out);
        }
    }

    fn ask_for(&mut self, kept: Kept, command: &serde_json::Value, out: &mut Vec<Output>) {
        let request = MonRequest { json: command.to_string(), ..MonRequest::default() };
        self.asked.insert(self.mon_commands.send_own(self.fsid(), request, out), kept);
    }

    /// Asks what OSDs and monitors say of their disks, when that is due: of Ceph's monitors as soon as an OSD
    /// has started, of ours when somebody wants to know.
    fn ask_for_disks(&mut self, now: Now, out: &mut Vec<Output>) {
        let due = self.disks_at.is_some_and(|at| now.mono >= at);
        if due && self.active && self.standing.whose == Some(Whose::Ceph) {
            self.ask_disks_now(out);
        }
    }

    fn ask_disks_now(&mut self, out: &mut Vec<Output>) {
        if !self.mon || self.fsid().is_zero() {
            return;
        }
        self.disks_at = None;
        for kind in ["osd", "mon"] {
            let command = json!({ "prefix": format!("{kind} metadata"), "format": "json" });
            self.ask_for(Kept::Disks(kind), &command, out);
        }
    }

    /// Whether it is known which disks there are; asks where it is not.
    pub(crate) fn knows_disks(&mut self, out: &mut Vec<Output>) -> bool {
        if self.disks_at.is_some() {
            self.ask_disks_now(out);
        }
        let is_asking = self.asked.values().any(|kept| matches!(kept, Kept::Disks(_)));
        self.disks_at.is_none() && !is_asking
    }

    /// Carries out commands that waited until it is known which disks there are, or for long enough.
    fn run_deferred(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.deferred.is_empty() {
            return;
        }
        let knows = self.knows_disks(out);
        for command in std::mem::take(&mut self.deferred) {
            if knows || now.mono >= command.since + DEFERRED {
                crate::command::run_deferred(self, now, command, out);
            } else {
                self.deferred.push(command);
            }
        }
    }

    pub(crate) fn ask_for_last_scrape(&mut self, out: &mut Vec<Output>) {
        let command = json!({ "prefix": "config-key get", "key": device_health::LAST_SCRAPE });
        self.ask_for(Kept::LastScrape, &command, out);
    }

    /// Takes the map of file systems; of daemons that are new it asks the monitors what they said of themselves.
    fn fs_map(&mut self, map: Bytes, out: &mut Vec<Output>) {
        let fsid = self.fsid();
        if self.file_systems.take_map(map) && !fsid.is_zero() {
            let command = json!({ "prefix": "mds metadata", "format": "json" });
            self.ask_for(Kept::Mds, &command, out);
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.map.as_ref().map_or(Epoch(0), |map| map.epoch)
    }

    fn message(&mut self, now: Now, conn: ConnId, tid: u64, msg: Message, out: &mut Vec<Output>) {
        let Some(peer) = self.sessions.get(&conn).cloned() else { return };
        let is_osd = peer.name.entity_type() == Some(EntityType::Osd);
        match msg {
            Message::MgrOpen(open) => {
                out.extend(self.daemons.opened(now, conn, &peer, *open).map(Output::Warn));
                out.push(Output::send(conn, 0, self.wishes(is_osd)));
            }
            Message::MgrClose(close) => {
                let news = self.daemons.closed(now, conn);
                self.pgs.health_changed(news, now);
                out.push(Output::send(conn, tid, close));
            }
            Message::MgrReport(report) => {
                out.extend(self.daemons.counted(conn, &peer, &report).map(Output::Warn));
                let news = self.daemons.reported(now, conn, &peer, &report);
                self.pgs.health_changed(news, now);
                if is_osd {
                    self.metrics(conn, &peer, &report, out);
                }
            }
            Message::PgStats(report) => {
                let osd = is_osd.then_some(peer.name.num);
                if let Some(osd) = osd.and_then(|n| i32::try_from(n).ok()) {
                    self.take_report(now, OsdId(osd), conn, *report, out);
                }
            }
            Message::Command(_) | Message::MgrCommand(_) => {
                crate::command::run(self, now, conn, tid, &peer, msg, out)
            }
            Message::Ping(ping) => out.push(Output::send(conn, tid, ping)),
            _ => {}
        }
    }

    /// How often a daemon is to report, and which counters; OSDs also what images are used.
    fn wishes(&self, is_osd: bool) -> MMgrConfigure {
        let number = |name: &str, usual| u32::try_from(self.options.int(name)).unwrap_or(usual);
        let wishes = MMgrConfigure {
            period_s: number("mgr_stats_period", 5),
            threshold: number("mgr_stats_threshold", 5),
            ..MMgrConfigure::default()
        };
        let mut queries = self.rbd.perf.queries();
        queries.extend(self.rbd.stats.query().map(|query| (query.clone(), Vec::new())));
        if is_osd && !queries.is_empty() { wishes.with_metric_queries(&queries) } else { wishes }
    }

    /// Tells every daemon when they are others than before. Source: DaemonServer::handle_conf_change.
    fn tell_new_wishes(&mut self, out: &mut Vec<Output>) {
        let wishes = [false, true].map(|is_osd| self.wishes(is_osd));
        if wishes == self.wished {
            return;
        }
        for (key, daemon) in &self.daemons.daemons {
            let is_osd = usize::from(key.service == "osd");
            let of = |wishes: &[MMgrConfigure; 2]| wishes.get(is_osd).cloned();
            if let (Some(conn), Some(wish), true) =
                (daemon.conn, of(&wishes), of(&wishes) != of(&self.wished))
            {
                out.push(Output::send(conn, 0, wish));
            }
        }
        self.wished = wishes;
    }

    /// Takes what an OSD has summed up of images.
    fn metrics(&mut self, conn: ConnId, peer: &PeerInfo, report: &MMgrReport, out: &mut Vec<Output>) {
        match report.metrics() {
            Ok(metrics) if self.daemons.is_of(conn, peer, report) => {
                self.rbd.perf.take(&metrics);
                self.rbd.stats.take(&metrics);
            }
            Ok(_) => {}
            Err(_) => out.extend(self.daemons.refuse_metrics(conn, peer).map(Output::Warn)),
        }
    }

    fn take_report(&mut self, now: Now, osd: OsdId, conn: ConnId, report: MPgStats, out: &mut Vec<Output>) {
        match &self.map {
            Some(map) if self.active && report.epoch <= map.epoch => {
                if report.fsid == map.fsid {
                    let pgs = self.pgs.report(osd, report, map, now);
                    out.push(Output::send(conn, 0, MPgStatsAck { pgs }));
                }
            }
            _ => {
                let of_osd = self.early.iter().filter(|(of, ..)| *of == osd).count();
                let first = self.early.iter().position(|(of, ..)| of_osd < EARLY_OF_ONE || *of == osd);
                if of_osd >= EARLY_OF_ONE || self.early.len() >= EARLY_LIMIT {
                    first.map(|i| self.early.remove(i));
                }
                self.early.push_back((osd, conn, report));
            }
        }
    }
}

fn own((name, value): (&String, &String)) -> (String, String) {
    (name.clone(), value.clone())
}

pub(crate) fn subscribe<const N: usize>(what: [(&str, SubscribeItem); N], out: &mut Vec<Output>) {
    let what = what.map(|(name, item)| (name.to_owned(), item)).into();
    out.push(Output::send_mon(MMonSubscribe { what, ..MMonSubscribe::default() }));
}

/// Whether a message of maps may change which OSDs are in.
fn may_turn_osds(m: &MOsdMap) -> bool {
    let turns =
        |bytes: &Bytes| Incremental::from_bytes(bytes.clone()).is_ok_and(|i| !i.new_weight.is_empty());
    !m.full.is_empty() || m.incremental.values().any(turns)
}

/// Whether a message of maps may have an OSD that has come up, maybe with another disk.
fn may_have_started(m: &MOsdMap) -> bool {
    let started =
        |bytes: &Bytes| Incremental::from_bytes(bytes.clone()).is_ok_and(|i| !i.new_up_client.is_empty());
    !m.full.is_empty() || m.incremental.values().any(started)
}

/// Brings the map one step forward, to the next epoch or to the newest whole map; false when `m` cannot.
fn step(map: &mut Option<OsdMap>, m: &MOsdMap, last: Epoch) -> bool {
    let have = map.as_ref().map_or(Epoch(0), |map| map.epoch);
    let next = have.next();
    match (m.full.get(&next), m.incremental.get(&next), &mut *map) {
        (None, Some(bytes), Some(map)) => {
            Incremental::from_bytes(bytes.clone()).is_ok_and(|inc| map.apply(&inc).is_ok())
                && map.epoch == next
        }
        (full, _, _) => {
            let newest = || m.full.range(..=last).next_back().map(|(_, bytes)| bytes);
            let Some(bytes) = full.or_else(newest) else { return false };
            match OsdMap::from_bytes(bytes.clone()) {
                Ok(new) if new.epoch > have => {
                    *map = Some(new);
                    true
                }
                _ => false,
            }
        }
    }
}
