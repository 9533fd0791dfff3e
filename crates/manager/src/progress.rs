//! What Ceph's manager last finished, as its progress module keeps it: a manager of ours makes no events of
//! its own, and shows those of the last one in charge.
//!
//! Source: src/pybind/mgr/progress/module.py.

use serde_json::Value;
use types::Utime;

/// Where Ceph's module keeps them, in the config-key store.
pub const KEY: &str = "mgr/progress/completed";
/// The form that the module writes.
const VERSION: u64 = 2;
/// More are not shown. Source: mgr/progress/max_completed_events.
const LIMIT: usize = 50;

/// Finished events, the last one last.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    pub completed: Vec<Value>,
}

impl Progress {
    /// Starts over from what the monitors answered to `config-key get`.
    pub fn load(&mut self, stored: &[u8]) {
        let stored: Value = serde_json::from_slice(stored).unwrap_or_default();
        let is_read = stored.get("compat_version").and_then(Value::as_u64).is_some_and(|v| v <= VERSION);
        let events = stored.get("events").and_then(Value::as_array).filter(|_| is_read);
        let events = events.map(Vec::as_slice).unwrap_or_default();
        let last = events.iter().skip(events.len().saturating_sub(LIMIT));
        self.completed = last.filter(|e| e.get("message").is_some_and(Value::is_string)).cloned().collect();
    }

    /// Forgets all; gives what is to be stored.
    pub fn clear(&mut self) -> Value {
        self.completed.clear();
        serde_json::json!({ "events": [], "version": VERSION, "compat_version": VERSION })
    }

    /// For people; empty when there is nothing. Source: Module._handle_ls, Event.twoline_progress.
    pub fn text(&self, now: Utime) -> String {
        let mut out = String::new();
        for event in &self.completed {
            let how = if event.get("failed").and_then(Value::as_bool) == Some(true) {
                "Failed"
            } else {
                "Complete"
            };
            let message = event.get("message").and_then(Value::as_str).unwrap_or_default();
            let started = event.get("started_at").and_then(Value::as_f64);
            // Ceph counts on after the end.
            let secs = started.map_or(0.0, |s| (f64::from(now.sec) - s).clamp(0.0, 1e10)) as u64;
            out += &format!("\n[{how}]: {message} ({})\n    [{}] ", span(secs), "=".repeat(28));
        }
        if out.is_empty() { out } else { out + "\n" }
    }
}

/// Source: to_pretty_timedelta in src/pybind/mgr/mgr_util.py.
fn span(secs: u64) -> String {
    const UNITS: [(u64, u64, char); 6] = [
        (120, 1, 's'),
        (120 * 60, 60, 'm'),
        (48 * 3_600, 3_600, 'h'),
        (14 * 86_400, 86_400, 'd'),
        (84 * 86_400, 7 * 86_400, 'w'),
        (730 * 86_400, 30 * 86_400, 'M'),
    ];
    let unit = UNITS.iter().find(|(below, ..)| secs < *below).copied();
    let (_, size, name) = unit.unwrap_or((0, 365 * 86_400, 'y'));
    format!("{}{name}", secs / size)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(events: &[Value], compat: u64) -> Progress {
        let mut progress = Progress::default();
        let whole = json!({ "events": events, "version": 2, "compat_version": compat });
        progress.load(whole.to_string().as_bytes());
        progress
    }

    #[test]
    fn finished_events_are_shown_as_cephs_module_shows_them() {
        let event =
            |message: &str| json!({ "id": "a", "message": message, "refs": [], "started_at": 1_000.5 });
        let mut failed = event("Rebalancing after osd.1 marked in");
        failed.as_object_mut().expect("an object").insert("failed".to_owned(), json!(true));
        let p = stored(&[event("Global Recovery Event"), failed], 2);
        let bar = "=".repeat(28);
        let want = format!(
            "\n[Complete]: Global Recovery Event (4m)\n    [{bar}] \n[Failed]: Rebalancing after osd.1 marked in \
             (4m)\n    [{bar}] \n"
        );
        assert_eq!(p.text(Utime::new(1_290, 0)), want);
        assert_eq!(stored(&[], 2).text(Utime::new(1_290, 0)), "");
    }

    #[test]
    fn what_is_stored_is_taken_as_far_as_it_is_known_and_no_further() {
        let event = json!({ "message": "x" });
        assert_eq!(stored(&vec![event.clone(); 60], 2).completed.len(), 50);
        assert_eq!(stored(std::slice::from_ref(&event), 3).completed.len(), 0, "of a later form");
        assert_eq!(stored(&[json!(7), json!({ "message": 7 }), event], 1).completed.len(), 1);
        for bad in ["", "[]", "{", "7", r#"{"events":7,"compat_version":2}"#] {
            let mut p = Progress { completed: vec![json!(1)] };
            p.load(bad.as_bytes());
            assert_eq!(p.completed, Vec::<Value>::new(), "{bad}");
        }
    }

    #[test]
    fn spans_have_one_unit() {
        let all = [0, 119, 120, 7_199, 7_200, 172_800, 1_209_600, 7_257_600, 63_072_000].map(span);
        assert_eq!(all, ["0s", "119s", "2m", "119m", "2h", "2d", "2w", "2M", "2y"]);
    }
}
