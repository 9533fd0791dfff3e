//! What Prometheus is told: every series of Ceph's module `prometheus`, and the history of health checks that
//! it keeps.
//!
//! Whoever wants the series asks the manager ([`Ask::Metrics`](crate::Ask)). It asks the monitors for what no
//! map says, and answers when they have, with text that is made of what it knows at that moment. Those who
//! ask meanwhile get the same text.
//!
//! Invariants:
//! 1. Nothing is told before every OSD that is up has reported, or has been silent for 20 s (`PgMap::ready`):
//!    sums over a part look like data that came and went.
//! 2. There is at most one round of questions at a time, which ends after [`PATIENCE`].
//! 3. What the text is made of is bounded where it is taken in: counters, services, images, health checks.
//! 4. A manager that stands by leaves an address and port to the active one where both would be the same.
//! 5. An address that cannot be had is tried again, in pauses that grow from [`PAUSE`] to [`LONGEST_PAUSE`].
//!
//! Source: src/pybind/mgr/prometheus/module.py (16.2).

mod at;
mod cluster;
mod counters;
mod facts;
mod history;
mod images;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use maps::MgrMap;
use messages::mgr::HealthCheck;
use messages::mon::MMonCommandAck;
use monitor::command::Reply;
use serde_json::json;
use types::{Epoch, Errno, Now};

use crate::command::ReplyTo;
use crate::core::Manager;
use crate::io::Output;
use crate::mon_commands::MonRequest;
use crate::outcome::Then;
use at::Given;
use cluster::Sources;
use facts::{Facts, KINDS, Question};
use text::{Exposition, Kind};

pub(crate) use at::{MODULE, OPTIONS};
pub use at::{MetricsAt, Role};
pub(crate) use history::{History, KEY as HISTORY};

/// How long the monitors may take.
const PATIENCE: Duration = Duration::from_secs(8);
/// Between two attempts to serve the series where that failed: each pause is twice the last.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Those who wait for one round.
const MOST_ASKERS: usize = 64;
/// What OSDs say of themselves is asked for again after this, also where none has come up.
const OSDS_AGAIN: Duration = Duration::from_secs(300);

/// Questions that the monitors have not answered yet.
#[derive(Debug, Clone, PartialEq)]
struct Round {
    since: Duration,
    asked: BTreeMap<u64, Question>,
    askers: Vec<ReplyTo>,
}

/// An attempt to serve the series that came to nothing.
#[derive(Debug, Clone, PartialEq)]
struct Failed {
    why: String,
    pause: Duration,
    /// `None` while the shell is at the next attempt.
    again: Option<Duration>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prometheus {
    /// Where it was last told to be served, or why it is not.
    at: Result<Option<MetricsAt>, String>,
    /// Why the shell cannot serve it there, and when it is to try again.
    failed: Option<Failed>,
    round: Option<Round>,
    pub facts: Facts,
    pub history: History,
    /// The map that OSDs' metadata was asked for with, and when.
    osds_asked: Option<(Epoch, Duration)>,
}

impl Default for Prometheus {
    fn default() -> Self {
        Self {
            at: Ok(None),
            failed: None,
            round: None,
            facts: Facts::default(),
            history: History::default(),
            osds_asked: None,
        }
    }
}

impl Prometheus {
    pub fn is_answer(&self, tid: u64) -> bool {
        self.round.as_ref().is_some_and(|round| round.asked.contains_key(&tid))
    }

    /// Whoever asked does not wait any more.
    pub fn give_up(&mut self, to: ReplyTo) {
        if let Some(round) = &mut self.round {
            round.askers.retain(|asker| *asker != to);
        }
    }

    /// What health says of a module that is on and is not served. Ceph's manager gives such a module up, and
    /// says HEALTH_ERR; here it is tried again, and data is in no danger. Source:
    /// PyModuleRegistry::get_health_checks.
    pub fn check(&self) -> Option<(String, HealthCheck)> {
        const WARNING: u8 = 1;
        let why = self.at.as_ref().err().or(self.failed.as_ref().map(|f| &f.why))?;
        let summary = format!("Module '{MODULE}' has failed: {why}");
        let check =
            HealthCheck { severity: WARNING, summary: summary.clone(), detail: vec![summary], count: 1 };
        Some(("MGR_MODULE_ERROR".to_owned(), check))
    }
}

/// At which port a manager is to serve it.
pub(crate) fn port_of(options: &BTreeMap<String, String>, manager: &str) -> u16 {
    Given { name: manager, all: options }.port().unwrap_or(at::PORT)
}

impl Manager {
    /// Has it served where it is to be: by every manager, where its module is on.
    pub(crate) fn look_at_prometheus(&mut self, now: Now, out: &mut Vec<Output>) {
        let at = self.prometheus_at();
        if self.prometheus.at == at {
            return;
        }
        let shown = at.as_ref().ok().cloned().flatten();
        out.push(Output::Metrics(shown.map(Box::new)));
        if let Err(why) = &at {
            out.push(Output::Warn(format!("no metrics are served: {why}")));
        }
        self.prometheus.at = at;
        self.prometheus.failed = None;
        self.pgs.health_changed(true, now);
    }

    fn prometheus_at(&self) -> Result<Option<MetricsAt>, String> {
        let Some(map) = self.mgr_map.as_ref().filter(|map| map.modules.contains(MODULE)) else {
            return Ok(None);
        };
        let given = self.prometheus_options();
        let role = match self.confirmed {
            true => Role::Active,
            false if map.active_gid == 0 => return Ok(None),
            false if !map.standbys.contains_key(&self.gid) || self.is_active_there(map) => return Ok(None),
            false => given.standby(map.services.get(MODULE).cloned().unwrap_or_default())?,
        };
        given.at(role, self.own_ip()).map(Some)
    }

    /// Whether the active manager is to serve its series where this one, which stands by, would. A ceph-mgr
    /// that finds its port taken does not try again.
    fn is_active_there(&self, map: &MgrMap) -> bool {
        let theirs = Given { name: &map.active_name, all: &self.module_options };
        let host = map.active_addrs.0.first().and_then(|a| a.socket).map(|a| a.ip());
        host.is_some() && host == self.own_ip() && theirs.may_clash(&self.prometheus_options())
    }

    fn prometheus_options(&self) -> Given<'_> {
        Given { name: &self.settings.name, all: &self.module_options }
    }

    /// The pools of which images' use is told, as the option names them, and how often names are asked for.
    pub(crate) fn image_stats_wanted(&self) -> (String, Duration) {
        let is_on = self.confirmed && self.mgr_map.as_ref().is_some_and(|map| map.modules.contains(MODULE));
        let given = self.prometheus_options();
        let option = given.get("rbd_stats_pools").filter(|_| is_on).unwrap_or_default();
        (option.to_owned(), given.refresh_interval().unwrap_or(at::REFRESH))
    }

    fn own_ip(&self) -> Option<IpAddr> {
        let first = self.settings.addrs.0.first()?.socket?;
        Some(first.ip()).filter(|ip| !ip.is_unspecified())
    }

    /// The shell serves it, or says why it cannot; then it is told again when it should try.
    pub(crate) fn metrics_served(&mut self, now: Now, failed: Option<String>, out: &mut Vec<Output>) {
        let before = self.prometheus.failed.take();
        let is_wanted = matches!(self.prometheus.at, Ok(Some(_)));
        let same = before.as_ref().map(|f| &f.why) == failed.as_ref();
        if let Some(why) = failed.filter(|_| is_wanted) {
            if !same {
                let advice = format!("`ceph config set mgr mgr/{MODULE}/server_port PORT` sets another port");
                out.push(Output::Warn(format!("no metrics are served: {why}; it is tried again. {advice}")));
            }
            let pause = before.map_or(PAUSE, |f| LONGEST_PAUSE.min(f.pause * 2));
            self.prometheus.failed = Some(Failed { why, pause, again: Some(now.mono + pause) });
        }
        self.pgs.health_changed(!same, now);
    }

    fn serve_again(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(failed) = &mut self.prometheus.failed else { return };
        if failed.again.is_none_or(|at| now.mono < at) {
            return;
        }
        failed.again = None;
        let at = self.prometheus.at.clone().ok().flatten();
        out.push(Output::Metrics(at.map(Box::new)));
    }

    /// Somebody wants the series.
    pub(crate) fn ask_for_metrics(&mut self, now: Now, to: ReplyTo, out: &mut Vec<Output>) {
        if !self.acts() || !self.confirmed || self.map.is_none() {
            return out.push(to.reply(Reply::error(Errno::EAGAIN, "the cluster is not known yet")));
        }
        if let Some(round) = &mut self.prometheus.round {
            match round.askers.len() < MOST_ASKERS {
                true => round.askers.push(to),
                false => out.push(to.reply(Reply::error(Errno::EAGAIN, "too many wait for the monitors"))),
            }
            return;
        }
        let mut questions: BTreeSet<Question> = KINDS.into_iter().map(Question::Metadata).collect();
        questions.extend([Question::Health, Question::Quorum]);
        let epoch = self.epoch();
        let osds = &mut self.prometheus.osds_asked;
        match *osds {
            Some((of, at)) if of == epoch && now.mono < at + OSDS_AGAIN => {
                questions.remove(&Question::Metadata("osd"));
            }
            _ => *osds = Some((epoch, now.mono)),
        }
        let fsid = self.fsid();
        let mut asked = BTreeMap::new();
        for question in questions {
            let json = json!({ "prefix": question.prefix(), "format": "json" }).to_string();
            let request = MonRequest { json, ..MonRequest::default() };
            asked.insert(self.mon_commands.send_own(fsid, request, out), question);
        }
        self.prometheus.round = Some(Round { since: now.mono, asked, askers: vec![to] });
    }

    pub(crate) fn metrics_answered(
        &mut self,
        now: Now,
        tid: u64,
        ack: &MMonCommandAck,
        out: &mut Vec<Output>,
    ) {
        let prometheus = &mut self.prometheus;
        let Some(round) = &mut prometheus.round else { return };
        let Some(question) = round.asked.remove(&tid) else { return };
        let is_taken = prometheus.facts.take(question, ack.result, &ack.output);
        if !is_taken && question == Question::Metadata("osd") {
            prometheus.osds_asked = None;
        }
        if is_taken && question == Question::Health {
            let checks = prometheus.facts.checks.iter().map(|(code, (severity, _))| (code, severity));
            prometheus.history.look(now.wall, checks);
        }
        if !is_taken && question == Question::Health {
            return self.end_round("the monitors do not say how the cluster is", out);
        }
        if round.asked.is_empty() {
            let askers = std::mem::take(&mut round.askers);
            prometheus.round = None;
            let reply = Reply::text(self.exposition());
            out.extend(askers.into_iter().map(|to| to.reply(reply.clone())));
        }
        self.keep_history(now, out);
    }

    fn end_round(&mut self, why: &str, out: &mut Vec<Output>) {
        let Some(round) = self.prometheus.round.take() else { return };
        self.prometheus.osds_asked = None;
        let reply = Reply::error(Errno::EAGAIN, why);
        out.extend(round.askers.into_iter().map(|to| to.reply(reply.clone())));
    }

    /// What a session with a monitor was asked is not answered any more.
    pub(crate) fn end_metrics(&mut self, out: &mut Vec<Output>) {
        self.end_round("the monitor that was asked is gone", out);
    }

    pub(crate) fn tick_prometheus(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.prometheus.round.as_ref().is_some_and(|round| now.mono >= round.since + PATIENCE) {
            self.end_round("the monitors do not answer", out);
        }
        self.serve_again(now, out);
        if self.acts() {
            self.keep_history(now, out);
        }
    }

    fn keep_history(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(input) = self.prometheus.history.take_news(now.mono) else { return };
        let json = json!({ "prefix": "config-key set", "key": HISTORY }).to_string();
        let request = MonRequest { json, input: input.into(), ..MonRequest::default() };
        self.ask_of_itself(now, vec![request], Then::HistoryKept, out);
    }

    /// All series, as they are now.
    fn exposition(&self) -> String {
        let (Some(map), Some(mgr_map)) = (&self.map, &self.mgr_map) else { return String::new() };
        let sources = Sources {
            map,
            mgr_map,
            fs_map: self.file_systems.map.as_ref(),
            pgs: &self.pgs,
            daemons: &self.daemons,
            facts: &self.prometheus.facts,
            history: &self.prometheus.history,
        };
        let mut out = Exposition::with_room(64 << 10);
        sources.write(&mut out);
        counters::write(&self.daemons, &mut out);
        images::write(map, &self.rbd.stats, &mut out);
        out.finish()
    }
}

/// Series of the series themselves: how long it took to make them, all in all, and how often. They go behind
/// the others.
#[must_use]
pub fn collect_duration(seconds: f64, count: u64) -> String {
    let mut out = Exposition::default();
    let labels = [("method", "collect")];
    for (name, help, value) in [
        ("sum", "The sum of seconds took to collect all metrics of this exporter", seconds),
        ("count", "The amount of metrics gathered for this exporter", count as f64),
    ] {
        let name = format!("prometheus_collect_duration_seconds_{name}");
        if let Some(mut family) = out.family(&name, Kind::Counter, help) {
            family.series(&labels, value);
        }
    }
    out.finish()
}
