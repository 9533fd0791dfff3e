//! The counters that a daemon reports.
//!
//! Invariants:
//! 1. `declared` are those that the daemon declared in this session and did not undeclare: the values of a
//!    report are theirs, in the order of their names.
//! 2. A daemon has at most [`COUNTERS`], with texts of at most [`TEXT_BYTES`] each.
//! 3. Of a report that is refused no value is taken. When it declared what is refused, nothing more is taken
//!    in this session: which value is whose is not known any more.
//!
//! Source: DaemonPerfCounters::update in src/mgr/DaemonState.cc.

use std::collections::BTreeMap;

use admin::perf::kind;
use codec::{DecodeError, Reader};
use messages::mgr::{MMgrReport, PerfCounterType};
use serde_json::{Map, Value, json};

/// Counters of one daemon, and of all daemons of the cluster; Ceph's OSDs declare about 300.
const COUNTERS: usize = 4_096;
pub(crate) const ALL_COUNTERS: usize = 1 << 20;
/// Counters of all services, and of those of one key: no key for gateways takes room from OSDs.
pub(crate) const SERVICE_COUNTERS: usize = 64 << 10;
pub(crate) const KEY_COUNTERS: usize = 4_096;
/// A counter's name, and what is said about it.
const TEXT_BYTES: usize = 512;

/// Why the counters of a report were not taken, or not all as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// More counters than one daemon may have, or than there is room for.
    TooMany,
    /// A name, a heading or a description is too long.
    LongText,
    /// A type that is none.
    Kind,
    /// It declares counters that it has declared before: their first type stays.
    Twice,
    /// The values are not those of the counters that were declared.
    Values,
    /// The report is in the name of a daemon that did not open this session.
    Foreign,
    /// Sums that the manager asked for cannot be read.
    Metrics,
    /// It registers in another's name, says too much of itself, or there is no room for it.
    Registration,
}

impl Refusal {
    pub fn why(self) -> &'static str {
        match self {
            Self::TooMany => "it declares too many counters",
            Self::LongText => "a counter's name or description is too long",
            Self::Kind => "a counter has no type that is known",
            Self::Twice => "it declares a counter twice, of which the first type stays",
            Self::Values => "the values are not those of the declared counters",
            Self::Foreign => "it has not opened this session",
            Self::Metrics => "they cannot be read",
            Self::Registration => {
                "the name is not its own or not text, it says too much, or there is no room"
            }
        }
    }
}

/// One counter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counter {
    pub what: PerfCounterType,
    /// For a long-run average its sum; times are nanoseconds.
    pub value: u64,
    /// Of how many the sum is.
    pub count: u64,
    /// What `value` was in the report before.
    pub before: u64,
}

/// See the module's invariants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    declared: BTreeMap<String, Counter>,
    /// Which value is whose is not known.
    lost: bool,
}

impl Counters {
    pub fn len(&self) -> usize {
        self.declared.len()
    }

    pub fn is_empty(&self) -> bool {
        self.declared.is_empty()
    }

    /// Takes what a report says of counters; `room` is for so many more. Says how many of those that it
    /// declares it had declared before.
    pub fn take(&mut self, m: &MMgrReport, room: usize) -> Result<u64, Refusal> {
        if self.lost {
            return Ok(0);
        }
        let declared = self.declare(&m.declare_types, room);
        let twice = declared.inspect_err(|_| *self = Self { lost: true, ..Self::default() })?;
        for path in &m.undeclare_types {
            self.declared.remove(path);
        }
        let values = self.values(m).map_err(|_| Refusal::Values)?;
        for (counter, (value, count)) in self.declared.values_mut().zip(values) {
            counter.before = counter.value;
            (counter.value, counter.count) = (value, count);
        }
        Ok(twice)
    }

    /// A counter that is declared twice keeps its first type, as in Ceph.
    fn declare(&mut self, types: &[PerfCounterType], mut room: usize) -> Result<u64, Refusal> {
        let mut twice = 0;
        for what in types {
            let texts = [&what.path, &what.nick, &what.description];
            if texts.iter().any(|text| text.len() > TEXT_BYTES) {
                return Err(Refusal::LongText);
            }
            if !is_kind(what.kind) {
                return Err(Refusal::Kind);
            }
            if self.declared.contains_key(&what.path) {
                twice += 1;
                continue;
            }
            if self.declared.len() >= COUNTERS || room == 0 {
                return Err(Refusal::TooMany);
            }
            room -= 1;
            let counter = Counter { what: what.clone(), ..Counter::default() };
            self.declared.insert(what.path.clone(), counter);
        }
        Ok(twice)
    }

    fn values(&self, m: &MMgrReport) -> Result<Vec<(u64, u64)>, DecodeError> {
        let mut r = Reader::new(m.packed.clone());
        r.envelope("counters", 1, |r, _| {
            let value = |c: &Counter| {
                let value = r.u64()?;
                let mut count = 0;
                if c.what.kind & kind::LONG_RUN_AVERAGE != 0 {
                    count = r.u64()?;
                    r.skip(8)?;
                }
                Ok((value, count))
            };
            let values = self.declared.values().map(value).collect::<Result<Vec<_>, DecodeError>>()?;
            match r.is_empty() {
                true => Ok(values),
                false => Err(DecodeError::Invalid { what: "counters", value: r.remaining() as u64 }),
            }
        })
    }

    /// By path.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Counter)> {
        self.declared.iter().map(|(path, counter)| (path.as_str(), counter))
    }

    pub fn get(&self, path: &str) -> Option<&Counter> {
        self.declared.get(path)
    }

    /// As `perf dump` of the daemon itself shows them.
    pub fn value(&self) -> Value {
        let mut loggers = Map::new();
        for (path, counter) in &self.declared {
            // The part of a daemon may have dots in its name.
            let (logger, name) = path.rsplit_once('.').unwrap_or(("", path));
            let of = loggers.entry(logger).or_insert_with(|| json!({}));
            if let Value::Object(of) = of {
                of.insert(name.to_owned(), counter.shown());
            }
        }
        Value::Object(loggers)
    }
}

impl Counter {
    fn shown(&self) -> Value {
        let is = |bit: u8| self.what.kind & bit != 0;
        let seconds = |ns: u64| std::time::Duration::from_nanos(ns).as_secs_f64();
        let number = |n: u64| if is(kind::TIME) { json!(seconds(n)) } else { json!(n) };
        if !is(kind::LONG_RUN_AVERAGE) {
            return number(self.value);
        }
        let average = self.value.checked_div(self.count).unwrap_or(0);
        match is(kind::TIME) {
            true => json!({ "avgcount": self.count, "sum": number(self.value), "avgtime": number(average) }),
            false => json!({ "avgcount": self.count, "sum": number(self.value) }),
        }
    }
}

/// Either a time or a number, and only bits that are known.
fn is_kind(bits: u8) -> bool {
    let known = kind::TIME | kind::U64 | kind::LONG_RUN_AVERAGE | kind::COUNTER | kind::HISTOGRAM;
    bits & !known == 0 && (bits & kind::TIME == 0) != (bits & kind::U64 == 0)
}
