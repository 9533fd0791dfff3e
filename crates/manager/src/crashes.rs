//! Crashes of daemons that were reported with `ceph crash post`. The monitors keep them; here is a copy.
//!
//! Invariant: what is here is what the monitors have said that they hold; a new session with them starts over
//! from that.
//!
//! Source: src/pybind/mgr/crash/module.py.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use messages::mgr::HealthCheck;
use serde_json::{Value, json};
use types::{Now, Utime};

use crate::mon_commands::MonRequest;
use crate::times;

/// Under this prefix of the config-key store; Ceph's crash module has the same.
pub const KEYS: &str = "mgr/crash/crash/";
/// More are not taken.
const LIMIT: usize = 1_000;
const PREFIX: &str = "mgr/crash/";
/// Name, type and default of each option. Source: MODULE_OPTIONS.
pub(crate) const OPTIONS: [(&str, &str, &str); 2] =
    [("retain_interval", "secs", "31536000"), ("warn_recent_interval", "secs", "1209600")];
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
/// Lines of detail.
const MAX_DETAIL: usize = 30;

/// Reports by their id.
#[derive(Debug, Clone, PartialEq)]
pub struct Crashes {
    pub all: BTreeMap<String, Value>,
    /// Older ones do not make the cluster unhealthy.
    recent_s: u64,
    /// Older ones go.
    retain_s: u64,
    prune_at: Duration,
}

impl Default for Crashes {
    fn default() -> Self {
        let (recent_s, retain_s) = (14 * 86_400, 365 * 86_400);
        Self { all: BTreeMap::new(), recent_s, retain_s, prune_at: Duration::ZERO }
    }
}

/// A report that changed, or goes.
pub type Change = (String, Option<Value>);

/// Has the monitors keep a change.
pub(crate) fn request((id, report): &Change) -> MonRequest {
    let (prefix, input) = match report {
        Some(report) => ("config-key set", report.to_string().into()),
        None => ("config-key rm", Bytes::new()),
    };
    let json = json!({ "prefix": prefix, "key": format!("{KEYS}{id}") }).to_string();
    MonRequest { json, input, ..MonRequest::default() }
}

impl Crashes {
    /// Starts over from what the monitors answered to `config-key dump`.
    pub fn load(&mut self, dump: &[u8]) {
        let Ok(Value::Object(entries)) = serde_json::from_slice(dump) else { return };
        let read = |(key, text): (String, Value)| {
            let id = key.strip_prefix(KEYS)?.to_owned();
            Some((id, serde_json::from_str(text.as_str()?).ok()?))
        };
        self.all = entries.into_iter().filter_map(read).collect();
        // Ids begin with the time, so these are the oldest.
        while self.all.len() > LIMIT {
            self.all.pop_first();
        }
    }

    /// Takes over what the monitors say of its options; whether anything changed.
    pub(crate) fn configure(&mut self, given: &BTreeMap<String, String>) -> bool {
        let before = (self.recent_s, self.retain_s);
        let seconds = |name: &str, usual: u64| {
            given.get(&format!("{PREFIX}{name}")).and_then(|v| v.trim().parse().ok()).unwrap_or(usual)
        };
        self.recent_s = seconds("warn_recent_interval", 14 * 86_400);
        self.retain_s = seconds("retain_interval", 365 * 86_400);
        let news = before != (self.recent_s, self.retain_s);
        if news {
            self.prune_at = Duration::ZERO;
        }
        news
    }

    /// Those that are too old to be kept, when it is time to look for them.
    pub(crate) fn outlived(&mut self, now: Now) -> Vec<Change> {
        if now.mono < self.prune_at {
            return Vec::new();
        }
        self.prune_at = now.mono + PRUNE_EVERY;
        let age_s = |c: &Value| stamp(c).map_or(0, |t| u64::from(now.wall.sec.saturating_sub(t.sec)));
        let old = self.all.iter().filter(|(_, c)| age_s(c) > self.retain_s);
        old.map(|(id, _)| (id.clone(), None)).collect()
    }

    pub fn is_full(&self) -> bool {
        self.all.len() >= LIMIT
    }

    /// What makes room for a new report: the oldest that was acknowledged, or else the oldest.
    pub fn least_worth(&self) -> Option<&String> {
        let acknowledged = self.all.iter().find(|(_, c)| c.get("archived").is_some());
        acknowledged.or_else(|| self.all.first_key_value()).map(|(id, _)| id)
    }

    pub fn apply(&mut self, (id, report): Change) {
        match report {
            Some(report) => self.all.insert(id, report),
            None => self.all.remove(&id),
        };
    }

    /// Those that nobody has acknowledged.
    pub fn new_ones(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.all.iter().filter(|(_, c)| c.get("archived").is_none())
    }

    /// The warning of new crashes that are recent.
    pub fn check(&self, now: Utime) -> Option<(String, HealthCheck)> {
        let recent =
            |c: &Value| stamp(c).is_some_and(|t| u64::from(now.sec.saturating_sub(t.sec)) <= self.recent_s);
        let mut detail: Vec<String> = Vec::new();
        let mut count = 0;
        for (_, c) in self.new_ones().filter(|(_, c)| recent(c)) {
            count += 1;
            if detail.len() < MAX_DETAIL {
                let text = |name: &str, default: &str| {
                    c.get(name).and_then(Value::as_str).unwrap_or(default).to_owned()
                };
                detail.push(format!(
                    "{} crashed on host {} at {}",
                    text("entity_name", "unidentified daemon"),
                    text("utsname_hostname", "(unknown)"),
                    text("timestamp", "unknown time")
                ));
            }
        }
        if count == 0 {
            return None;
        }
        if count > MAX_DETAIL as i64 {
            detail.push(format!("and {} more", count - MAX_DETAIL as i64));
        }
        let summary = format!("{count} daemons have recently crashed");
        Some(("RECENT_CRASH".to_owned(), HealthCheck { severity: 1, summary, detail, count }))
    }
}

/// When a report says that its daemon crashed.
pub fn stamp(report: &Value) -> Option<Utime> {
    parse_time(report.get("timestamp")?.as_str()?)
}

/// `2018-06-22T20:35:38.058818Z`, or with a blank instead of the T.
fn parse_time(text: &str) -> Option<Utime> {
    let text = text.trim_end_matches('Z');
    let (date, time) = text.split_once(['T', ' '])?;
    let mut date = date.splitn(3, '-').map(|n| n.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = time.split_once('.')?;
    let mut clock = clock.splitn(3, ':').map(|n| n.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    times::utc([year, month, day], [hour, minute, second], times::fraction(fraction)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_reports_the_newest_are_known() {
        let report = |n: usize| (format!("{KEYS}{n:04}"), Value::String("{}".to_owned()));
        let all: serde_json::Map<String, Value> = (0..LIMIT + 200).map(report).collect();
        let mut crashes = Crashes::default();
        crashes.load(Value::Object(all).to_string().as_bytes());
        let ids: Vec<&String> = crashes.all.keys().collect();
        assert_eq!(
            (ids.len(), ids.first(), ids.last()),
            (LIMIT, Some(&&"0200".to_owned()), Some(&&"1199".to_owned()))
        );
    }

    #[test]
    fn reports_go_when_they_are_old_and_sooner_where_that_is_set() {
        let mut crashes = Crashes::default();
        let at = |days: u32| Utime::new(1_795_300_000 - days * 86_400, 0).to_string().replace("+0000", "Z");
        for days in [1, 20, 400] {
            let report = json!({ "timestamp": at(days) });
            crashes.apply((days.to_string(), Some(report)));
        }
        let now = |secs: u64| Now { mono: Duration::from_secs(secs), wall: Utime::new(1_795_300_000, 0) };
        let ids = |changes: Vec<Change>| changes.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        let recent = |c: &Crashes| c.check(now(0).wall).map(|(_, check)| check.count);
        assert_eq!((recent(&crashes), ids(crashes.outlived(now(1)))), (Some(1), vec!["400".to_owned()]));
        assert_eq!(ids(crashes.outlived(now(2))), Vec::<String>::new(), "an hour has not passed");
        let set = |name: &str, value: &str| [(format!("mgr/crash/{name}"), value.to_owned())].into();
        assert!(crashes.configure(&set("retain_interval", "864000")));
        assert_eq!(ids(crashes.outlived(now(3))), ["20", "400"]);
        crashes.configure(&set("warn_recent_interval", "3600"));
        assert_eq!(recent(&crashes), None);
        assert!(!crashes.configure(&set("warn_recent_interval", "3600")));
    }

    #[test]
    fn times_are_read() {
        let want = Some(Utime::new(1_529_699_738, 58_818_000));
        assert_eq!(parse_time("2018-06-22T20:35:38.058818Z"), want);
        assert_eq!(parse_time("2018-06-22 20:35:38.058818Z"), want);
        assert_eq!(parse_time("1970-01-01T00:00:00.0"), Some(Utime::new(0, 0)));
        assert_eq!(parse_time("2024-02-29T00:00:00.000001Z").map(|t| t.sec), Some(1_709_164_800));
        for bad in [
            "",
            "2018",
            "2018-13-01T00:00:00.0",
            "2018-06-22T20:35:38Z",
            "2018-06-22T25:00:00.0",
            "x-y-zTa:b:c.d",
        ] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }
}
