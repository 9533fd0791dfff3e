//! Which health checks have failed, when they first and last began to, and how often.
//!
//! Invariants:
//! 1. Nothing is kept before it is known what the monitors keep: no older history is written over.
//! 2. There are at most [`MOST`] checks; those that do not fail, and began longest ago, go first.
//!
//! Source: HealthHistory in src/pybind/mgr/prometheus/module.py (16.2).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use types::{Errno, Utime};

use crate::rbd::text;

/// Under this key of the config-key store.
pub(crate) const KEY: &str = "mgr/prometheus/health_history";
/// After a refusal it is told again.
const AGAIN: Duration = Duration::from_secs(30);
const MOST: usize = 512;
const CODE_BYTES: usize = 128;

/// A check.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Event {
    pub severity: String,
    /// Seconds since 1970.
    first_seen: f64,
    last_seen: f64,
    count: u64,
    pub active: bool,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct History {
    /// `None` before it is known.
    events: Option<BTreeMap<String, Event>>,
    /// It is not what the monitors keep.
    unsaved: bool,
    /// It is being kept.
    saves: bool,
    /// Not before this time after a refusal.
    not_before: Duration,
}

impl History {
    /// Takes what the monitors keep; an error in words where it cannot be read, and begins anew.
    pub fn load(&mut self, result: i32, kept: &[u8]) -> Result<(), String> {
        let read = match result {
            0 => serde_json::from_slice::<Value>(kept).ok(),
            code if code == Errno::ENOENT.neg() => Some(json!({})),
            // They are asked again with the next session.
            _ => return Ok(()),
        };
        let Some(Value::Object(checks)) = read else {
            self.events = Some(BTreeMap::new());
            self.unsaved = true;
            return Err(format!("{KEY} cannot be read: the history of health checks begins anew"));
        };
        let fits = checks.into_iter().filter(|(code, _)| code.len() <= CODE_BYTES).take(MOST);
        self.events = Some(fits.map(|(code, check)| (code, event(&check))).collect());
        Ok(())
    }

    /// Another manager is in charge.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// What fails now, by code, with its severity.
    pub fn look<'a>(&mut self, now: Utime, checks: impl Iterator<Item = (&'a String, &'a String)>) {
        let Some(events) = &mut self.events else { return };
        let checks: BTreeMap<&String, &String> = checks.filter(|(c, _)| c.len() <= CODE_BYTES).collect();
        for (_, event) in events.iter_mut().filter(|(code, e)| e.active && !checks.contains_key(code)) {
            event.active = false;
            self.unsaved = true;
        }
        let now = now.as_nanos() as f64 / 1e9;
        for (code, severity) in checks {
            if !events.contains_key(code) && events.len() >= MOST {
                let oldest = events.iter().filter(|(_, e)| !e.active);
                let oldest = oldest.min_by(|a, b| a.1.last_seen.total_cmp(&b.1.last_seen));
                let Some(oldest) = oldest.map(|(code, _)| code.clone()) else { continue };
                events.remove(&oldest);
            }
            let new = || Event { severity: severity.clone(), first_seen: now, ..Event::default() };
            let event = events.entry(code.clone()).or_insert_with(new);
            if !event.active {
                event.active = true;
                event.last_seen = now;
                event.count = event.count.saturating_add(1);
                self.unsaved = true;
            }
        }
    }

    /// What the monitors are to keep, where that is due.
    pub fn take_news(&mut self, now: Duration) -> Option<String> {
        if !self.unsaved || self.saves || now < self.not_before {
            return None;
        }
        self.saves = true;
        self.unsaved = false;
        self.json()
    }

    /// What [`Self::take_news`] gave is kept, or not.
    pub fn saved(&mut self, now: Duration, is_kept: bool) {
        self.saves = false;
        if !is_kept {
            self.unsaved = true;
            self.not_before = now + AGAIN;
        }
    }

    /// Somebody has cleared it. Checks that fail are new ones from now on.
    pub fn cleared(&mut self) {
        self.events = Some(BTreeMap::new());
        self.unsaved = false;
    }

    pub(super) fn events(&self) -> impl Iterator<Item = (&String, &Event)> {
        self.events.iter().flatten()
    }

    fn value(&self) -> Option<Value> {
        let check = |(code, e): (&String, &Event)| {
            let fields = [
                ("name", json!(code)),
                ("severity", json!(e.severity)),
                ("first_seen", json!(e.first_seen)),
                ("last_seen", json!(e.last_seen)),
                ("count", json!(e.count)),
                ("active", json!(e.active)),
            ];
            let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
            (code.clone(), Value::Object(fields.collect()))
        };
        let checks: Map<String, Value> = self.events.as_ref()?.iter().map(check).collect();
        Some(Value::Object(checks))
    }

    /// As the module keeps it; `None` while it is not known.
    pub fn json(&self) -> Option<String> {
        self.value().map(|value| text::python(&value))
    }

    pub fn json_pretty(&self) -> Option<String> {
        let value = self.value()?;
        serde_json::to_string_pretty(&value).ok()
    }

    pub fn yaml(&self) -> Option<String> {
        let events = self.events.as_ref()?;
        if events.is_empty() {
            return Some("--- {}\n".to_owned());
        }
        let mut out = "---\n".to_owned();
        for (code, e) in events {
            out += &format!(
                "{}:\n  active: {}\n  count: {}\n  first_seen: {:?}\n  last_seen: {:?}\n  name: {}\n  severity: {}\n",
                yaml_text(code),
                e.active,
                e.count,
                e.first_seen,
                e.last_seen,
                yaml_text(code),
                yaml_text(&e.severity)
            );
        }
        Some(out)
    }

    /// As a table.
    pub fn plain(&self) -> Option<String> {
        let events = self.events.as_ref()?;
        if events.is_empty() {
            return Some("No healthchecks have been recorded".to_owned());
        }
        let row = |code: &str, first: &str, last: &str, count: &str, active: &str| {
            format!("{code:<24}  {first:<20}  {last:<20}  {count:>5}  {active:^6}\n")
        };
        let mut out = row("Healthcheck Name", "First Seen (UTC)", "Last seen (UTC)", "Count", "Active");
        for (code, e) in events {
            let active = if e.active { "Yes" } else { "No" };
            out += &row(code, &time(e.first_seen), &time(e.last_seen), &e.count.to_string(), active);
        }
        Some(out + &format!("{} health check(s) listed\n", events.len()))
    }
}

/// A check as it is kept; what is missing is as the module takes it.
fn event(check: &Value) -> Event {
    let seconds =
        |name: &str| check.get(name).and_then(Value::as_f64).filter(|s| s.is_finite()).unwrap_or(0.0);
    Event {
        severity: check.get("severity").and_then(Value::as_str).unwrap_or_default().to_owned(),
        first_seen: seconds("first_seen"),
        last_seen: seconds("last_seen"),
        count: check.get("count").and_then(Value::as_u64).unwrap_or(1),
        active: check.get("active").and_then(Value::as_bool).unwrap_or(true),
    }
}

/// `2026/11/29 06:26:20`.
fn time(seconds: f64) -> String {
    let at = Utime::new(seconds.clamp(0.0, f64::from(u32::MAX)) as u32, 0).to_string();
    // `2026-11-29T06:26:20.000000+0000`
    at.get(..19).unwrap_or_default().replace('-', "/").replace('T', " ")
}

/// A plain word as it is; anything else in quotes.
fn yaml_text(text: &str) -> String {
    let is_word = text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.contains('_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_word { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARN: &str = "HEALTH_WARN";

    fn look(h: &mut History, at: u32, codes: &[&str]) {
        let checks: BTreeMap<String, String> =
            codes.iter().map(|c| ((*c).to_owned(), WARN.to_owned())).collect();
        h.look(Utime::new(at, 500_000_000), checks.iter());
    }

    #[test]
    fn checks_come_and_go_and_are_kept_when_they_do() {
        let mut h = History::default();
        look(&mut h, 5, &["A_B"]);
        assert_eq!((h.take_news(Duration::from_secs(1)), h.plain()), (None, None), "nothing is known yet");
        h.load(Errno::ENOENT.neg(), b"").expect("nothing is kept");
        assert_eq!(h.plain().expect("known"), "No healthchecks have been recorded");
        assert_eq!(h.yaml().expect("known"), "--- {}\n");
        look(&mut h, 1_795_933_580, &["A_B"]);
        let kept = h.take_news(Duration::from_secs(1)).expect("news");
        // The form that 16.2.15's module keeps.
        let want = r#"{"A_B": {"name": "A_B", "severity": "HEALTH_WARN", "first_seen": 1795933580.5, "last_seen": 1795933580.5, "count": 1, "active": true}}"#;
        assert_eq!(kept, want);
        look(&mut h, 1_795_933_590, &["A_B"]);
        h.saved(Duration::ZERO, true);
        assert_eq!(h.take_news(Duration::from_secs(1)), None, "nothing has changed");
        look(&mut h, 1_795_933_600, &[]);
        look(&mut h, 1_795_933_660, &["A_B"]);
        assert!(
            h.take_news(Duration::from_secs(1))
                .is_some_and(|k| k.contains("\"last_seen\": 1795933660.5, \"count\": 2"))
        );
        h.saved(Duration::ZERO, false);
        assert_eq!(h.take_news(Duration::from_secs(1)), None, "not at once");
        assert!(h.take_news(AGAIN).is_some(), "what is not kept is told again");
        let plain = "Healthcheck Name          First Seen (UTC)      Last seen (UTC)       Count  Active\n\
                     A_B                       2026/11/29 06:26:20   2026/11/29 06:27:40       2   Yes  \n\
                     1 health check(s) listed\n";
        assert_eq!(h.plain().expect("known"), plain);
        assert!(
            h.yaml()
                .is_some_and(|y| y.starts_with("---\nA_B:\n  active: true\n  count: 2\n  first_seen: 17"))
        );
        let mut next = History::default();
        next.load(0, kept.as_bytes()).expect("read");
        assert_eq!(next.json(), Some(kept));
        h.cleared();
        assert_eq!(h.json().expect("known"), "{}");
    }

    #[test]
    fn what_is_kept_may_be_anything_and_stays_bounded() {
        for bad in ["", "[]", "7", "{"] {
            let mut h = History::default();
            assert!(h.load(0, bad.as_bytes()).is_err());
            assert_eq!(h.json().as_deref(), Some("{}"), "{bad}");
        }
        let mut h = History::default();
        h.load(Errno::EAGAIN.neg(), b"").expect("not an answer");
        assert_eq!(h.json(), None);
        h.load(0, br#"{"A_B": 7, "C": {"count": -1, "first_seen": 1e300, "active": "x"}}"#)
            .expect("an object");
        assert!(h.plain().is_some_and(|p| p.contains("2 health check(s)")));
        assert!(h.yaml().is_some_and(|y| y.contains("\"C\":\n")));
        let many: Vec<String> = (0..MOST + 9).map(|n| format!("CODE_{n}")).collect();
        look(&mut h, 9, &many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(h.events().count(), MOST);
    }
}
