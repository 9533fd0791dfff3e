//! The live figures: one event of the stream, and the points that charts begin with.

use std::collections::VecDeque;

use manager::Figures;
use serde_json::{Value, json};

use super::{health, integer, list, part, set, text};

/// Points that are kept: an hour at one in two seconds.
const MOST_POINTS: usize = 1_800;

/// What the figures are made of.
pub struct Moment<'a> {
    /// Seconds since 1970.
    pub at: f64,
    pub overview: &'a Value,
    pub rates: &'a Figures,
    /// Of the monitors: `health detail` and `status`.
    pub health: &'a Value,
    pub status: &'a Value,
    pub manager: &'a str,
    pub version: &'a str,
}

/// One event.
pub fn figures(m: &Moment<'_>) -> Value {
    let r = m.rates;
    let health = health::basic(m.health);
    let tasks: Vec<Value> = list(m.overview, "/tasks").iter().map(task).collect();
    let mut out = part(m.overview, &["fsid", "usage", "pgs", "objects", "osds", "pools"]);
    for (name, value) in [
        ("at", json!(m.at)),
        ("manager", json!(m.manager)),
        ("version", json!(m.version)),
        ("health", part(&health, &["status", "checks"])),
        (
            "client",
            json!({
                "reads": r.reads.round(),
                "writes": r.writes.round(),
                "read_bytes": r.read_bytes.round(),
                "write_bytes": r.write_bytes.round(),
            }),
        ),
        ("recovery", json!({ "bytes": r.recovered_bytes.round(), "objects": r.recovered_objects.round() })),
        (
            "mons",
            json!({
                "total": integer(m.status, "/monmap/num_mons"),
                "in_quorum": list(m.status, "/quorum").len(),
            }),
        ),
        ("mgrs", json!({ "active": m.manager, "standbys": integer(m.status, "/mgrmap/num_standbys") })),
        ("tasks", Value::Array(tasks)),
    ] {
        set(&mut out, name, value);
    }
    out
}

/// Parts of an event that not everybody may read, and the scope of each, as in the documents of health.
const SCOPES: [(&str, &str); 9] = [
    ("usage", "pool"),
    ("client", "pool"),
    ("recovery", "pool"),
    ("pools", "pool"),
    ("pgs", "osd"),
    ("objects", "osd"),
    ("osds", "osd"),
    ("mons", "monitor"),
    ("mgrs", "manager"),
];

/// An event without what a user may not read.
pub fn seen(event: &Value, may_read: impl Fn(&str) -> bool) -> Value {
    let hidden = |name: &str| SCOPES.iter().any(|(part, scope)| *part == name && !may_read(scope));
    let fields = event.as_object().into_iter().flatten().filter(|(name, _)| !hidden(name));
    let shown = |(name, value): (&String, &Value)| match name.as_str() {
        "tasks" => (name.clone(), tasks_seen(value, &may_read)),
        _ => (name.clone(), value.clone()),
    };
    Value::Object(fields.map(shown).collect())
}

/// Running tasks without those that a user may not read.
fn tasks_seen(tasks: &Value, may_read: impl Fn(&str) -> bool) -> Value {
    let of = |task: &Value| {
        let mut task = task.as_object().cloned()?;
        let scope = task.remove("scope");
        let scope = scope.as_ref().and_then(Value::as_str).unwrap_or_default();
        (scope.is_empty() || may_read(scope)).then_some(Value::Object(task))
    };
    Value::Array(tasks.as_array().into_iter().flatten().filter_map(of).collect())
}

/// What a user must be allowed to read to see a task; empty: nothing more. Those on images name them.
fn scope_of(task: &Value) -> &'static str {
    match task.pointer("/refs/origin").and_then(Value::as_str) {
        Some("rbd_support") => "rbd-image",
        _ => "",
    }
}

/// The same of a history, which has what clients get.
pub fn history_seen(history: Value, may_read: impl Fn(&str) -> bool) -> Value {
    if may_read("pool") { history } else { History::default().value() }
}

fn task(of: &Value) -> Value {
    json!({
        "id": text(of, "/id"),
        "message": text(of, "/message"),
        "progress": of.get("progress"),
        "started_at": of.get("started_at"),
        "left_s": of.get("time_remaining"),
        "scope": scope_of(of),
    })
}

/// Tasks that have come to an end, as far as a user may read them, in the page's form.
pub fn ended(tasks: &[Value], may_read: impl Fn(&str) -> bool) -> Value {
    let is_shown = |of: &&Value| matches!(scope_of(of), scope if scope.is_empty() || may_read(scope));
    let one = |of: &Value| {
        let failed = of.get("failed").and_then(Value::as_bool).unwrap_or_default();
        json!({
            "id": text(of, "/id"),
            "message": text(of, "/message"),
            "started_at": of.get("started_at"),
            "finished_at": of.get("finished_at"),
            "failed": failed.then(|| text(of, "/failure_message")),
        })
    };
    json!({ "finished": tasks.iter().filter(is_shown).map(one).collect::<Vec<_>>() })
}

/// What charts begin with.
#[derive(Debug, Default)]
pub struct History(VecDeque<[f64; 7]>);

impl History {
    pub fn add(&mut self, at: f64, r: &Figures) {
        let point =
            [at, r.reads, r.writes, r.read_bytes, r.write_bytes, r.recovered_bytes, r.recovered_objects];
        if self.0.len() >= MOST_POINTS {
            self.0.pop_front();
        }
        self.0.push_back(point.map(f64::round));
    }

    pub fn value(&self) -> Value {
        json!({ "points": self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_what_the_page_reads() {
        let overview = json!({
            "fsid": "f", "usage": { "total": 3 }, "pgs": {}, "objects": {}, "osds": { "up": 1 }, "pools": 2,
            "tasks": [{ "id": "t", "message": "m", "progress": 0.5, "started_at": 9.0, "time_remaining": null, "refs": [] }],
        });
        let health = json!({ "status": "HEALTH_OK", "checks": {}, "mutes": [] });
        let status =
            json!({ "quorum": [0, 2], "monmap": { "num_mons": 3 }, "mgrmap": { "num_standbys": 1 } });
        let rates = Figures { reads: 10.4, ..Figures::default() };
        let m = Moment {
            at: 1.5,
            overview: &overview,
            rates: &rates,
            health: &health,
            status: &status,
            manager: "x",
            version: "v",
        };
        let event = figures(&m);
        assert_eq!(event["mons"], json!({ "total": 3, "in_quorum": 2 }));
        assert_eq!(event["client"]["reads"], json!(10.0));
        assert_eq!(event["tasks"][0]["left_s"], Value::Null);
        assert_eq!(event["health"], json!({ "status": "HEALTH_OK", "checks": [] }));
        let names = |event: &Value| event.as_object().map(|o| o.keys().cloned().collect::<Vec<_>>());
        assert_eq!(names(&seen(&event, |_| true)), names(&event));
        let for_all = names(&seen(&event, |_| false)).unwrap_or_default();
        assert_eq!(for_all, ["fsid", "at", "manager", "version", "health", "tasks"]);
        let mut all = names(&event).unwrap_or_default();
        all.retain(|name| !for_all.contains(name));
        all.sort_unstable();
        let mut hidden: Vec<&str> = SCOPES.iter().map(|(part, _)| *part).collect();
        hidden.sort_unstable();
        assert_eq!(all, hidden, "each part is for all, or has a scope");
    }

    #[test]
    fn who_may_not_read_images_sees_no_tasks_on_them() {
        let of = |id: &str, refs: Value| json!({ "id": id, "message": "m", "refs": refs });
        let all = [of("pg", json!([["pool", 1]])), of("image", json!({ "origin": "rbd_support" }))];
        let ids = |of: &Value| -> Vec<String> {
            of.as_array().into_iter().flatten().map(|t| text(t, "/id").to_owned()).collect()
        };
        let running = json!({ "tasks": all.iter().map(task).collect::<Vec<_>>() });
        for (scope, want) in [("rbd-image", &["pg", "image"][..]), ("osd", &["pg"])] {
            let may_read = |asked: &str| asked == scope;
            let seen = seen(&running, may_read);
            assert_eq!(ids(&seen["tasks"]), want, "{scope}");
            assert_eq!(seen["tasks"][0].get("scope"), None, "for the server alone");
            assert_eq!(ids(&ended(&all, may_read)["finished"]), want, "{scope}");
        }
    }

    #[test]
    fn the_history_is_bounded() {
        let mut history = History::default();
        (0..5_000).for_each(|n| history.add(f64::from(n), &Figures::default()));
        assert_eq!(history.value()["points"].as_array().map(Vec::len), Some(MOST_POINTS));
        assert_eq!(history.value()["points"][0][0], json!(3_200.0));
    }
}
