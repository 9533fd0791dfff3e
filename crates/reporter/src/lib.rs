//! A daemon's session with the manager: it introduces itself with its options, and reports its counters as
//! often as the manager wants.
//!
//! Invariants:
//! 1. Nothing is reported before the manager has said how often.
//! 2. `declared` are the counters that the manager knows in this session. The values of each report are those
//!    of `declared`, in its order, for that is how the manager tells them apart.
//! 3. A counter below the manager's threshold, or one that is no more, is undeclared before its value is left
//!    out.
//!
//! Source: src/mgr/MgrClient.cc.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use admin::options::Values;
use admin::perf::{Count, Counter, Logger};
use bytes::Bytes;
use codec::Writer;
use messages::mgr::{MMgrConfigure, MMgrOpen, MMgrReport, PerfCounterType};

/// The least time between two reports when options change quickly.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// See the module's invariants.
#[derive(Debug, Clone, PartialEq)]
pub struct Reporter {
    /// `3` of `osd.3`.
    name: String,
    /// How often the manager wants to hear of this daemon; `None` while it wants nothing.
    every: Option<Duration>,
    /// When (monotonic) it last did.
    last: Duration,
    /// Counters of lower priority are not wanted.
    threshold: u32,
    declared: BTreeSet<String>,
    /// Version of the options that the manager knows.
    told_values: u64,
}

impl Reporter {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            every: None,
            last: Duration::ZERO,
            threshold: 0,
            declared: BTreeSet::new(),
            told_values: 0,
        }
    }

    /// A (new) session stands: what introduces this daemon, with its options. Source: MgrClient::_send_open.
    pub fn opened(&mut self, values: &Values) -> MMgrOpen {
        *self = Self { told_values: values.version(), ..Self::new(std::mem::take(&mut self.name)) };
        MMgrOpen {
            daemon_name: self.name.clone(),
            config: values.encode_for_manager(),
            config_defaults: Values::encode_defaults(),
            ..MMgrOpen::default()
        }
    }

    /// Takes the manager's wishes. Source: MgrClient::handle_mgr_configure.
    pub fn configured(&mut self, m: &MMgrConfigure) {
        let period = Duration::from_secs(m.period_s.into());
        self.every = (!period.is_zero()).then_some(period);
        self.threshold = m.threshold;
    }

    /// Whether the manager wants to hear of this daemon at all.
    pub fn is_wanted(&self) -> bool {
        self.every.is_some()
    }

    /// Whether a report is due: the time has come, or options have changed.
    pub fn is_due(&self, now: Duration, values: &Values) -> bool {
        let since = now.saturating_sub(self.last);
        let news = self.told_values != values.version();
        self.every.is_some_and(|every| since >= every || (news && since >= MIN_INTERVAL))
    }

    /// A report: options that have changed, and the counters. What else a daemon has to tell it adds. Source:
    /// MgrClient::_send_report.
    pub fn report(&mut self, now: Duration, values: &Values, loggers: &[Logger]) -> MMgrReport {
        self.last = now;
        let version = values.version();
        let news = std::mem::replace(&mut self.told_values, version) != version;
        let mut report = MMgrReport {
            daemon_name: self.name.clone(),
            config: if news { values.encode_for_manager() } else { Bytes::new() },
            ..MMgrReport::default()
        };
        self.put_counters(loggers, &mut report);
        report
    }

    fn put_counters(&mut self, loggers: &[Logger], report: &mut MMgrReport) {
        let counters = self.wanted(loggers);
        report.undeclare_types =
            self.declared.iter().filter(|path| !counters.contains_key(*path)).cloned().collect();
        let new = counters.iter().filter(|(path, _)| !self.declared.contains(*path));
        report.declare_types = new.map(|(path, counter)| declaration(path, counter)).collect();
        let mut w = Writer::new();
        w.envelope(1, 1, |w| counters.values().for_each(|c| put_value(&c.value, w)));
        report.packed = w.into_bytes();
        self.declared = counters.into_keys().collect();
    }

    /// Those to be told, by path. A histogram's cells have no place in a report, and without them it says
    /// nothing.
    fn wanted<'a>(&self, loggers: &'a [Logger]) -> BTreeMap<String, &'a Counter> {
        let told =
            |c: &&Counter| u32::from(c.priority) >= self.threshold && !matches!(c.value, Count::Histogram(_));
        let of =
            |l: &'a Logger| l.counters.iter().filter(told).map(|c| (format!("{}.{}", l.name, c.name), c));
        loggers.iter().flat_map(of).collect()
    }
}

fn declaration(path: &str, counter: &Counter) -> PerfCounterType {
    PerfCounterType {
        path: path.to_owned(),
        description: counter.desc.to_owned(),
        nick: counter.nick.to_owned(),
        kind: counter.value.kind(),
        priority: counter.priority,
        unit: counter.value.unit(),
    }
}

/// A long-run average is followed by its count twice, for whoever reads it while it changes.
fn put_value(value: &Count, w: &mut Writer) {
    match value {
        Count::Total(n) | Count::TotalBytes(n) | Count::Gauge(n) | Count::GaugeBytes(n) => w.u64(*n),
        Count::Time { count, sum_ns } => {
            w.u64(*sum_ns);
            w.u64(*count);
            w.u64(*count);
        }
        Count::Histogram(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use admin::perf::priority;
    use codec::Reader;

    use super::*;

    fn values() -> Values {
        Values::new("osd.3", &BTreeMap::new())
    }

    fn loggers() -> Vec<Logger> {
        let histogram = Count::Histogram(Box::default());
        let osd = Logger::new("osd")
            .usually(priority::USEFUL)
            .with("op", "operations", Count::Total(7))
            .headed("ops", priority::CRITICAL)
            .with("op_latency", "how long they took", Count::Time { count: 2, sum_ns: 500 })
            .with("hist", "both", histogram);
        let store = Logger::new("a_store").with("used", "bytes", Count::GaugeBytes(9));
        vec![osd, store]
    }

    fn configure(threshold: u32) -> MMgrConfigure {
        MMgrConfigure { period_s: 5, threshold, ..MMgrConfigure::default() }
    }

    fn numbers(report: &MMgrReport) -> Vec<u64> {
        let mut r = Reader::new(report.packed.clone());
        r.envelope("packed", 1, |r, _| (0..r.remaining() / 8).map(|_| r.u64()).collect()).expect("decodes")
    }

    fn paths(report: &MMgrReport) -> Vec<&str> {
        report.declare_types.iter().map(|t| t.path.as_str()).collect()
    }

    #[test]
    fn counters_are_declared_once_and_told_each_time() {
        let mut reporter = Reporter::new("3");
        assert_eq!(reporter.opened(&values()).daemon_name, "3");
        reporter.configured(&configure(0));
        let first = reporter.report(Duration::ZERO, &values(), &loggers());
        assert_eq!(paths(&first), ["a_store.used", "osd.op", "osd.op_latency"]);
        let op = PerfCounterType {
            path: "osd.op".to_owned(),
            description: "operations".to_owned(),
            nick: "ops".to_owned(),
            kind: 10,
            priority: 10,
            unit: 1,
        };
        assert_eq!(first.declare_types.get(1), Some(&op));
        assert_eq!(numbers(&first), [9, 7, 500, 2, 2]);
        let second = reporter.report(Duration::ZERO, &values(), &loggers());
        assert_eq!((paths(&second), numbers(&second)), (vec![], vec![9, 7, 500, 2, 2]));
        // The threshold rises and falls, and a part of the daemon goes.
        reporter.configured(&configure(6));
        let third = reporter.report(Duration::ZERO, &values(), &loggers());
        assert_eq!(third.undeclare_types, ["a_store.used", "osd.op_latency"]);
        assert_eq!((paths(&third), numbers(&third)), (vec![], vec![7]));
        reporter.configured(&configure(5));
        let fourth = reporter.report(Duration::ZERO, &values(), &loggers());
        assert_eq!((paths(&fourth), numbers(&fourth)), (vec!["osd.op_latency"], vec![7, 500, 2, 2]));
        let gone = reporter.report(Duration::ZERO, &values(), &[]);
        assert_eq!((gone.undeclare_types.len(), numbers(&gone)), (2, vec![]));
        // Another manager knows nothing of it.
        reporter.opened(&values());
        reporter.configured(&configure(5));
        assert_eq!(paths(&reporter.report(Duration::ZERO, &values(), &loggers())).len(), 2);
    }

    #[test]
    fn reports_are_as_often_as_the_manager_wants() {
        let (mut reporter, mut values) = (Reporter::new("3"), values());
        let secs = Duration::from_secs;
        reporter.opened(&values);
        assert!(!reporter.is_due(secs(1_000), &values), "not asked yet");
        reporter.configured(&configure(5));
        assert!(reporter.is_due(secs(1_000), &values));
        let report = reporter.report(secs(1_000), &values, &[]);
        assert!(report.config.is_empty(), "told when the session was opened");
        assert!(!reporter.is_due(secs(1_004), &values) && reporter.is_due(secs(1_005), &values));
        // An option is told at once.
        values.set("osd_max_backfills", "7").expect("set");
        assert!(reporter.is_due(secs(1_001), &values));
        assert!(!reporter.report(secs(1_001), &values, &[]).config.is_empty());
        assert!(!reporter.is_due(secs(1_002), &values));
        // Nothing is wanted.
        reporter.configured(&MMgrConfigure { period_s: 0, ..configure(5) });
        assert!(!reporter.is_due(secs(9_000), &values));
    }
}
