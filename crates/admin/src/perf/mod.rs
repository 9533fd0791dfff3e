//! Performance counters of a daemon: one table of them is what `perf dump` and its kin show, and what the
//! manager is told.
//!
//! A daemon makes its [`Logger`]s when somebody asks. Each counter stands in them once, with its name, what
//! it means and its value; the values themselves are plain integers wherever the daemon counts.
//!
//! Source: src/common/perf_counters.cc, src/common/perf_counters.h.

mod histogram;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

pub use histogram::Histogram;

/// Bits of a counter's type. Source: perfcounter_type_d in src/common/perf_counters.h.
pub mod kind {
    /// Nanoseconds; shown in seconds.
    pub const TIME: u8 = 1;
    pub const U64: u8 = 2;
    /// A sum, and of how many.
    pub const LONG_RUN_AVERAGE: u8 = 4;
    /// It only grows.
    pub const COUNTER: u8 = 8;
    pub const HISTOGRAM: u8 = 16;
}

/// How much a counter matters. Source: PerfCountersBuilder in src/common/perf_counters.h.
pub mod priority {
    pub const CRITICAL: u8 = 10;
    /// From here on `ceph daemonperf` shows it.
    pub const INTERESTING: u8 = 8;
    /// From here on the manager is told, unless `mgr_stats_threshold` is another.
    pub const USEFUL: u8 = 5;
    pub const DEBUG_ONLY: u8 = 0;
}

/// What a counter is counted in. Source: unit_t in src/common/perf_counters.h.
pub mod unit {
    pub const BYTES: u8 = 0;
    pub const NONE: u8 = 1;
}

/// What a counter holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Count {
    /// Only ever grows.
    Total(u64),
    /// The same in bytes.
    TotalBytes(u64),
    Gauge(u64),
    GaugeBytes(u64),
    /// How often something took how long altogether.
    Time {
        count: u64,
        sum_ns: u64,
    },
    Histogram(Box<Histogram>),
}

/// One counter.
#[derive(Debug, Clone, PartialEq)]
pub struct Counter {
    pub name: &'static str,
    pub desc: &'static str,
    /// The heading of its column in `ceph daemonperf`.
    pub nick: &'static str,
    /// One of [`priority`], or between two of them.
    pub priority: u8,
    pub value: Count,
}

/// The counters of one part of a daemon.
#[derive(Debug, Clone, PartialEq)]
pub struct Logger {
    pub name: &'static str,
    pub counters: Vec<Counter>,
    /// The least priority of the counters that follow.
    usual: u8,
}

impl Logger {
    pub fn new(name: &'static str) -> Self {
        Self { name, counters: Vec::new(), usual: priority::DEBUG_ONLY }
    }

    /// The counters from here on have at least this priority.
    #[must_use]
    pub fn usually(mut self, priority: u8) -> Self {
        self.usual = priority;
        self
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, desc: &'static str, value: Count) -> Self {
        self.counters.push(Counter { name, desc, nick: "", priority: self.usual, value });
        self
    }

    /// Gives the last counter a heading in `ceph daemonperf`, and a priority if that is higher than usual.
    #[must_use]
    pub fn headed(mut self, nick: &'static str, priority: u8) -> Self {
        if let Some(last) = self.counters.last_mut() {
            (last.nick, last.priority) = (nick, priority.max(self.usual));
        }
        self
    }
}

impl Count {
    /// Bits of [`kind`].
    pub fn kind(&self) -> u8 {
        match self {
            Self::Total(_) | Self::TotalBytes(_) => kind::U64 | kind::COUNTER,
            Self::Gauge(_) | Self::GaugeBytes(_) => kind::U64,
            Self::Time { .. } => kind::TIME | kind::LONG_RUN_AVERAGE,
            Self::Histogram(_) => kind::U64 | kind::COUNTER | kind::HISTOGRAM,
        }
    }

    /// One of [`mod@unit`].
    pub fn unit(&self) -> u8 {
        match self {
            Self::TotalBytes(_) | Self::GaugeBytes(_) => unit::BYTES,
            Self::Total(_) | Self::Gauge(_) | Self::Time { .. } | Self::Histogram(_) => unit::NONE,
        }
    }

    fn is_histogram(&self) -> bool {
        matches!(self, Self::Histogram(_))
    }

    fn value(&self) -> Value {
        match self {
            Self::Total(n) | Self::TotalBytes(n) | Self::Gauge(n) | Self::GaugeBytes(n) => json!(n),
            Self::Time { count, sum_ns } => {
                let average = sum_ns.checked_div(*count).unwrap_or(0);
                json!({ "avgcount": count, "sum": seconds(*sum_ns), "avgtime": seconds(average) })
            }
            Self::Histogram(h) => h.value(),
        }
    }

    fn value_type(&self) -> &'static str {
        match self {
            Self::Time { .. } => "real-integer-pair",
            Self::Histogram(_) => "integer-2d-histogram",
            Self::Total(_) | Self::TotalBytes(_) | Self::Gauge(_) | Self::GaugeBytes(_) => "integer",
        }
    }

    /// What has come since `base`. A gauge is what it is.
    fn since(&self, base: &Self) -> Self {
        match (self, base) {
            (Self::Total(n), Self::Total(b)) => Self::Total(n.saturating_sub(*b)),
            (Self::TotalBytes(n), Self::TotalBytes(b)) => Self::TotalBytes(n.saturating_sub(*b)),
            (Self::Time { count, sum_ns }, Self::Time { count: before, sum_ns: then }) => {
                Self::Time { count: count.saturating_sub(*before), sum_ns: sum_ns.saturating_sub(*then) }
            }
            (Self::Histogram(h), Self::Histogram(b)) => Self::Histogram(Box::new(h.since(b))),
            _ => self.clone(),
        }
    }
}

fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

impl Counter {
    fn schema(&self) -> Value {
        let kind = self.value.kind();
        json!({
            "type": kind,
            "metric_type": if kind & kind::COUNTER == 0 { "gauge" } else { "counter" },
            "value_type": self.value.value_type(),
            "description": self.desc,
            "nick": self.nick,
            "priority": self.priority,
            "units": if self.value.unit() == unit::BYTES { "bytes" } else { "none" },
        })
    }
}

/// What counters were when they were last reset. They are shown, and the manager is told of them, from there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Resets {
    base: BTreeMap<(&'static str, &'static str), Count>,
}

impl Resets {
    /// Resets the counters of one part of the daemon, or with `all` those of every part. `loggers` are as the
    /// daemon makes them. False when there is no such part.
    pub fn reset(&mut self, name: &str, loggers: &[Logger]) -> bool {
        let mut found = name == "all";
        for logger in loggers.iter().filter(|l| name == "all" || l.name == name) {
            found = true;
            self.base.extend(logger.counters.iter().map(|c| ((logger.name, c.name), c.value.clone())));
        }
        found
    }

    /// The counters since they were reset.
    pub fn applied(&self, mut loggers: Vec<Logger>) -> Vec<Logger> {
        if self.base.is_empty() {
            return loggers;
        }
        for logger in &mut loggers {
            for counter in &mut logger.counters {
                if let Some(base) = self.base.get(&(logger.name, counter.name)) {
                    counter.value = counter.value.since(base);
                }
            }
        }
        loggers
    }
}

/// Which counters are asked for: those with numbers, or the histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    Numbers,
    Histograms,
}

/// The values of one part or all, of one counter or all. A part without what is asked for is shown empty.
pub fn dump(loggers: &[Logger], view: View, logger: Option<&str>, counter: Option<&str>) -> Value {
    select(loggers, view, logger, counter, |c| c.value.value())
}

/// What the counters are.
pub fn schema(loggers: &[Logger], view: View) -> Value {
    select(loggers, view, None, None, Counter::schema)
}

/// Source: PerfCountersCollectionImpl::dump_formatted_generic.
fn select(
    loggers: &[Logger],
    view: View,
    logger: Option<&str>,
    counter: Option<&str>,
    show: impl Fn(&Counter) -> Value,
) -> Value {
    let wanted = |asked: Option<&str>, name: &str| asked.is_none_or(|a| a.is_empty() || a == name);
    let shown =
        |c: &&Counter| c.value.is_histogram() == (view == View::Histograms) && wanted(counter, c.name);
    let of = |l: &Logger| {
        let counters = l.counters.iter().filter(shown).map(|c| (c.name.to_owned(), show(c)));
        (l.name.to_owned(), Value::Object(counters.collect::<Map<String, Value>>()))
    };
    Value::Object(loggers.iter().filter(|l| wanted(logger, l.name)).map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loggers(ops: u64, used: u64) -> Vec<Logger> {
        let mut histogram = Histogram::default();
        (0..ops).for_each(|_| histogram.add(250_000, 4096));
        let time = Count::Time { count: ops, sum_ns: ops * 250_000_000 };
        vec![
            Logger::new("osd")
                .usually(priority::USEFUL)
                .with("op", "operations", Count::Total(ops))
                .headed("ops", priority::CRITICAL)
                .with("lat", "latency", time)
                .with("hist", "both", Count::Histogram(Box::new(histogram))),
            Logger::new("store").with("used", "bytes used", Count::GaugeBytes(used)),
        ]
    }

    fn numbers(loggers: &[Logger], logger: Option<&str>, counter: Option<&str>) -> Value {
        dump(loggers, View::Numbers, logger, counter)
    }

    #[test]
    fn counters_are_shown_and_described() {
        let loggers = loggers(2, 9);
        let lat = json!({ "avgcount": 2, "sum": 0.5, "avgtime": 0.25 });
        assert_eq!(
            numbers(&loggers, None, None),
            json!({"osd": {"op": 2, "lat": lat}, "store": {"used": 9}})
        );
        assert_eq!(numbers(&loggers, Some("osd"), Some("op")), json!({"osd": {"op": 2}}));
        assert_eq!(numbers(&loggers, None, Some("op")), json!({"osd": {"op": 2}, "store": {}}));
        assert_eq!(numbers(&loggers, Some("bogus"), None), json!({}));
        let schema = schema(&loggers, View::Numbers);
        let op = json!({
            "type": 10, "metric_type": "counter", "value_type": "integer", "description": "operations",
            "nick": "ops", "priority": 10, "units": "none",
        });
        assert_eq!(schema["osd"]["op"], op);
        assert_eq!(
            (&schema["osd"]["lat"]["type"], &schema["osd"]["lat"]["priority"]),
            (&json!(5), &json!(5))
        );
        assert_eq!(schema["store"]["used"]["units"], "bytes");
        assert_eq!(schema["osd"].get("hist"), None);
    }

    #[test]
    fn histograms_have_commands_of_their_own() {
        let loggers = loggers(3, 9);
        let shown = dump(&loggers, View::Histograms, None, None);
        assert_eq!(shown["store"], json!({}));
        assert_eq!(shown["osd"]["hist"]["values"][3][5], 3);
        let schema = schema(&loggers, View::Histograms);
        assert_eq!(schema["osd"]["hist"]["type"], 26);
        assert_eq!(schema["osd"].as_object().map(Map::len), Some(1));
    }

    #[test]
    fn what_was_reset_counts_from_there() {
        let mut resets = Resets::default();
        assert!(resets.reset("osd", &loggers(2, 9)));
        assert!(!resets.reset("bogus", &loggers(2, 9)));
        let now = resets.applied(loggers(5, 8));
        let lat = json!({ "avgcount": 3, "sum": 0.75, "avgtime": 0.25 });
        assert_eq!(numbers(&now, None, None), json!({"osd": {"op": 3, "lat": lat}, "store": {"used": 8}}));
        assert_eq!(dump(&now, View::Histograms, None, None)["osd"]["hist"]["values"][3][5], 3);
        // A second time, from the daemon's own numbers; what is used is used.
        assert!(resets.reset("all", &loggers(6, 8)));
        assert_eq!(
            numbers(&resets.applied(loggers(6, 7)), None, Some("op")),
            json!({"osd": {"op": 0}, "store": {}})
        );
        assert_eq!(
            numbers(&resets.applied(loggers(6, 7)), Some("store"), None),
            json!({"store": {"used": 7}})
        );
    }
}
