//! Health as text and as JSON.
//!
//! Source: HealthMonitor::get_health_status.

use serde_json::{Map, Value, json};
use types::Utime;

use super::{Health, Severity};
use crate::text::span;

/// `{"status", "checks", "mutes"}`.
pub fn health_json(health: &Health, detail: bool) -> Value {
    let mut checks = Map::new();
    for (code, c) in &health.checks {
        let mut check = json!({
            "severity": Severity::from_u8(c.severity).name(),
            "summary": { "message": c.summary, "count": c.count },
        });
        if detail {
            let lines: Vec<Value> = c.detail.iter().map(|line| json!({ "message": line })).collect();
            put(&mut check, "detail", lines.into());
        }
        put(&mut check, "muted", health.is_muted(code).into());
        checks.insert(code.clone(), check);
    }
    let mutes = health.mutes.iter().map(|(code, m)| {
        let mut mute = json!({ "code": code });
        if !m.until.is_zero() {
            put(&mut mute, "ttl", m.until.to_string().into());
        }
        put(&mut mute, "sticky", m.sticky.into());
        put(&mut mute, "summary", m.summary.as_str().into());
        put(&mut mute, "count", m.count.into());
        mute
    });
    json!({ "status": health.status().name(), "checks": checks, "mutes": mutes.collect::<Vec<_>>() })
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(fields) = object {
        fields.insert(key.to_owned(), value);
    }
}

/// `HEALTH_WARN 1 osds down; 1 host (1 osds) down (muted: X)`, with other separators when asked for, and no newline.
pub fn health_line(health: &Health, now: Utime, first: &str, next: &str) -> String {
    let mut out = health.status().name().to_owned();
    let loud = health.checks.iter().filter(|(code, _)| !health.is_muted(code));
    let summaries: Vec<&str> = loud.map(|(_, c)| c.summary.as_str()).collect();
    if !summaries.is_empty() {
        out += first;
        out += &summaries.join(next);
    }
    if !health.mutes.is_empty() {
        out += if summaries.is_empty() { first } else { next };
        let codes = health.mutes.iter().map(|(code, m)| match m.until.is_zero() {
            true => format!(" {code}"),
            false => format!(" {code}({})", span(m.until.since(now))),
        });
        out += &format!("(muted:{})", codes.collect::<String>());
    }
    out
}

/// The lines that `health detail` adds.
pub fn health_detail(health: &Health, now: Utime) -> String {
    let mut out = String::new();
    for (code, c) in &health.checks {
        if let Some(mute) = health.mutes.get(code) {
            let ttl = match mute.until.is_zero() {
                true => String::new(),
                false => format!(" ttl {}", span(mute.until.since(now))),
            };
            out += &format!("(MUTED{ttl}{}) ", if mute.sticky { ", STICKY" } else { "" });
        }
        out += &format!("[{}] {code}: {}\n", Severity::from_u8(c.severity).short(), c.summary);
        for line in &c.detail {
            out += &format!("    {line}\n");
        }
    }
    out
}
