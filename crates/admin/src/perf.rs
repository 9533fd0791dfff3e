//! Counters as `perf dump` and `perf schema` show them.
//!
//! Source: src/common/perf_counters.cc.

use serde_json::{Map, Value, json};

/// Bits of a counter's type. Source: perfcounter_type_d in src/common/perf_counters.h.
mod kind {
    pub const TIME: u8 = 1;
    pub const U64: u8 = 2;
    pub const LONG_RUN_AVERAGE: u8 = 4;
    pub const COUNTER: u8 = 8;
}

/// What a counter holds.
#[derive(Debug, Clone, Copy, PartialEq)]
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
        sum: std::time::Duration,
    },
}

/// One counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counter {
    pub name: &'static str,
    pub desc: &'static str,
    pub value: Count,
}

/// The counters of one part of a daemon.
#[derive(Debug, Clone, PartialEq)]
pub struct Logger {
    pub name: &'static str,
    pub counters: Vec<Counter>,
}

impl Logger {
    pub fn new(name: &'static str) -> Self {
        Self { name, counters: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, desc: &'static str, value: Count) -> Self {
        self.counters.push(Counter { name, desc, value });
        self
    }
}

impl Count {
    fn value(self) -> Value {
        match self {
            Self::Total(n) | Self::TotalBytes(n) | Self::Gauge(n) | Self::GaugeBytes(n) => json!(n),
            Self::Time { count, sum } => {
                let sum = sum.as_secs_f64();
                let average = if count == 0 { 0.0 } else { sum / count as f64 };
                json!({ "avgcount": count, "sum": sum, "avgtime": average })
            }
        }
    }

    fn schema(self, name: &str, desc: &str) -> Value {
        let (kind, value_type, units) = match self {
            Self::Total(_) => (kind::U64 | kind::COUNTER, "integer", "none"),
            Self::TotalBytes(_) => (kind::U64 | kind::COUNTER, "integer", "bytes"),
            Self::Gauge(_) => (kind::U64, "integer", "none"),
            Self::GaugeBytes(_) => (kind::U64, "integer", "bytes"),
            Self::Time { .. } => (kind::TIME | kind::LONG_RUN_AVERAGE, "real-integer-pair", "none"),
        };
        let metric = if kind & kind::COUNTER == 0 { "gauge" } else { "counter" };
        let (nick, priority) = watched(name);
        json!({
            "type": kind,
            "metric_type": metric,
            "value_type": value_type,
            "description": desc,
            "nick": nick,
            "priority": priority,
            "units": units,
        })
    }
}

/// The heading of a counter that `ceph daemonperf` shows, and how much it matters: 10 critical, 8 interesting, 5 useful.
/// Source: src/osd/osd_perf_counters.cc, PerfCountersBuilder in src/common/perf_counters.h.
fn watched(name: &str) -> (&'static str, u8) {
    match name {
        "op" => ("ops", 10),
        "op_in_bytes" => ("wr", 8),
        "op_out_bytes" => ("rd", 8),
        "push" => ("rop", 8),
        "numpg" => ("pgs", 5),
        _ => ("", 0),
    }
}

/// The counters asked for: of one logger or all, one counter or all.
pub fn dump(loggers: &[Logger], logger: Option<&str>, counter: Option<&str>) -> Value {
    select(loggers, logger, counter, |c| c.value.value())
}

/// What the counters are.
pub fn schema(loggers: &[Logger]) -> Value {
    select(loggers, None, None, |c| c.value.schema(c.name, c.desc))
}

fn select(
    loggers: &[Logger],
    logger: Option<&str>,
    counter: Option<&str>,
    show: impl Fn(&Counter) -> Value,
) -> Value {
    let wanted = |asked: Option<&str>, name: &str| asked.is_none_or(|a| a.is_empty() || a == name);
    let mut out = Map::new();
    for l in loggers.iter().filter(|l| wanted(logger, l.name)) {
        let counters: Map<String, Value> = l
            .counters
            .iter()
            .filter(|c| wanted(counter, c.name))
            .map(|c| (c.name.to_owned(), show(c)))
            .collect();
        if counter.is_none_or(str::is_empty) || !counters.is_empty() {
            out.insert(l.name.to_owned(), Value::Object(counters));
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn counters_are_shown_and_described() {
        let time = Count::Time { count: 2, sum: Duration::from_millis(500) };
        let loggers = [
            Logger::new("osd").with("op", "operations", Count::Total(7)).with("lat", "latency", time),
            Logger::new("store").with("used", "bytes used", Count::GaugeBytes(9)),
        ];
        let lat = json!({ "avgcount": 2, "sum": 0.5, "avgtime": 0.25 });
        assert_eq!(dump(&loggers, None, None), json!({"osd": {"op": 7, "lat": lat}, "store": {"used": 9}}));
        assert_eq!(dump(&loggers, Some("osd"), Some("op")), json!({"osd": {"op": 7}}));
        assert_eq!(dump(&loggers, Some("bogus"), None), json!({}));
        let schema = schema(&loggers);
        assert_eq!((&schema["osd"]["op"]["type"], &schema["osd"]["lat"]["type"]), (&json!(10), &json!(5)));
        assert_eq!(schema["store"]["used"]["units"], "bytes");
        // Without one that matters `ceph daemonperf` shows nothing, and fails at that.
        assert_eq!(
            (&schema["osd"]["op"]["nick"], &schema["osd"]["op"]["priority"]),
            (&json!("ops"), &json!(10))
        );
    }
}
