//! Crashes of daemons that were reported with `ceph crash post`. The monitors keep them; here is a copy.
//!
//! Invariant: what is here is what the monitors hold, or will hold when the requests that we sent them are through; a new
//! session with them starts over from what they hold.
//!
//! Source: src/pybind/mgr/crash/module.py.

use std::collections::BTreeMap;

use messages::mgr::HealthCheck;
use serde_json::Value;
use types::Utime;

/// Under this prefix of the config-key store; Ceph's crash module has the same.
pub const KEYS: &str = "mgr/crash/crash/";
/// More are not taken.
const LIMIT: usize = 1_000;
/// Older ones do not make the cluster unhealthy. Source: mgr/crash/warn_recent_interval, seconds.
const RECENT_S: u64 = 14 * 86_400;
/// Lines of detail.
const MAX_DETAIL: usize = 30;

/// Reports by their id.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Crashes {
    pub all: BTreeMap<String, Value>,
}

/// A report that changed, or goes.
pub type Change = (String, Option<Value>);

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
            |c: &Value| stamp(c).is_some_and(|t| u64::from(now.sec.saturating_sub(t.sec)) <= RECENT_S);
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
    let in_range = (1970..=2105).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..61).contains(&second);
    if !in_range || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    // Days since 1970 by counting years from March, so that leap days come last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Utime::new(u32::try_from(seconds).ok()?, nanos))
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
