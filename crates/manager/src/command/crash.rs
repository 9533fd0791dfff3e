//! Crash reports: `ceph crash ...`.
//!
//! Source: src/pybind/mgr/crash/module.py.

use std::collections::BTreeMap;

use monitor::command::{Format, Reply};
use serde_json::{Value, json};
use types::{Errno, Utime};

use crate::command::{Command, Ctx, Module};
use crate::crashes::stamp;
use crate::pretty_table::PrettyTable;

/// A longer report does not fit into the monitors' store. Source: mon_config_key_max_entry_size.
const MAX_REPORT_BYTES: usize = 64 << 10;
const MAX_ID_BYTES: usize = 256;
const DAY_S: u64 = 86_400;

const MODULE: Module = Module("crash");

pub(super) const COMMANDS: &[Command] = &[
    MODULE.command("crash info name=id,type=CephString", "show crash dump metadata", "r", info),
    MODULE.command("crash ls", "Show new and archived crash dumps", "r", |ctx| {
        let all: Vec<&Value> = ctx.crashes.all.values().collect();
        list(ctx.format, &all)
    }),
    MODULE.command("crash ls-new", "Show new crash dumps", "r", |ctx| {
        let new: Vec<&Value> = ctx.crashes.new_ones().map(|(_, c)| c).collect();
        list(ctx.format, &new)
    }),
    MODULE.command("crash post", "Add a crash dump (use -i <jsonfile>)", "rw", post),
    MODULE.command(
        "crash prune name=keep,type=CephString",
        "Remove crashes older than <keep> days",
        "rw",
        prune,
    ),
    MODULE.command("crash rm name=id,type=CephString", "Remove a saved crash <id>", "rw", |ctx| {
        let id = ctx.args.text_or_empty("id").to_owned();
        if !ctx.crashes.all.contains_key(&id) {
            return Reply::ok();
        }
        ctx.keep_crashes(vec![(id, None)])
    }),
    MODULE.command("crash stat", "Summarize recorded crashes", "r", stat),
    MODULE.command(
        "crash json_report name=hours,type=CephString",
        "Crashes in the last <hours> hours",
        "r",
        json_report,
    ),
    MODULE.command(
        "crash archive name=id,type=CephString",
        "Acknowledge a crash and silence health warning(s)",
        "w",
        |ctx| {
            let id = ctx.args.text_or_empty("id").to_owned();
            match ctx.crashes.all.contains_key(&id) {
                true => archive(ctx, Some(&id)),
                false => not_found(&id),
            }
        },
    ),
    MODULE.command(
        "crash archive-all",
        "Acknowledge all new crashes and silence health warning(s)",
        "w",
        |ctx| archive(ctx, None),
    ),
];

fn not_found(id: &str) -> Reply {
    Reply::error(Errno::EINVAL, format!("crash info: {id} not found"))
}

fn info(ctx: &mut Ctx<'_>) -> Reply {
    let id = ctx.args.text_or_empty("id");
    match ctx.crashes.all.get(id) {
        // With sorted keys.
        Some(crash) => Reply::text(pretty(&sorted(crash))),
        None => not_found(id),
    }
}

fn pretty(value: &Value) -> String {
    monitor::command::json_text(Format::JsonPretty, value)
}

/// The same object with its keys in order.
fn sorted(crash: &Value) -> Value {
    match crash {
        Value::Object(fields) => {
            let ordered: BTreeMap<&String, &Value> = fields.iter().collect();
            Value::Object(ordered.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect())
        }
        other => other.clone(),
    }
}

fn list(format: Format, crashes: &[&Value]) -> Reply {
    if format != Format::Plain {
        return Reply::text(pretty(&crashes.iter().map(|c| sorted(c)).collect()));
    }
    if crashes.is_empty() {
        return Reply::ok();
    }
    let mut table = PrettyTable::new(&[("ID", false), ("ENTITY", false), ("NEW", false)]);
    for c in crashes {
        let text = |name: &str| c.get(name).and_then(Value::as_str).map(str::to_owned);
        let new = if c.get("archived").is_some() { "" } else { "*" };
        let entity = text("entity_name").unwrap_or_else(|| "unknown".to_owned());
        table.row([text("crash_id").unwrap_or_default(), entity, format!(" {new} ")]);
    }
    Reply::text(table.render())
}

fn post(ctx: &mut Ctx<'_>) -> Reply {
    let malformed = |why: String| Reply::error(Errno::EINVAL, format!("malformed crash metadata: {why}"));
    if ctx.input.len() > MAX_REPORT_BYTES {
        return malformed(format!("{} bytes are more than {MAX_REPORT_BYTES}", ctx.input.len()));
    }
    let report: Value = match serde_json::from_slice(ctx.input) {
        Ok(report) => report,
        Err(e) => return malformed(e.to_string()),
    };
    let Some(id) = report.get("crash_id").and_then(Value::as_str).map(str::to_owned) else {
        return malformed("missing 'crash_id' field".to_owned());
    };
    if id.is_empty() || id.len() > MAX_ID_BYTES {
        return malformed(format!("'crash_id' must have 1 to {MAX_ID_BYTES} bytes"));
    }
    if report.get("timestamp").is_none() {
        return malformed("missing 'timestamp' field".to_owned());
    }
    if stamp(&report).is_none() {
        return malformed("the timestamp is no time".to_owned());
    }
    if ctx.crashes.all.contains_key(&id) {
        return Reply::ok();
    }
    let mut changes = Vec::new();
    if ctx.crashes.is_full() {
        let Some(old) = ctx.crashes.least_worth().filter(|old| **old < id) else {
            return Reply::error(Errno::ENOSPC, "too many crashes are recorded; see 'ceph crash prune'");
        };
        changes.push((old.clone(), None));
    }
    changes.push((id, Some(report)));
    ctx.keep_crashes(changes)
}

fn archive(ctx: &mut Ctx<'_>, only: Option<&str>) -> Reply {
    let now = ctx.now.wall.to_string();
    let acknowledge = |(id, c): (&String, &Value)| {
        let mut c = c.clone();
        c.as_object_mut()?.insert("archived".to_owned(), json!(now));
        Some((id.clone(), Some(c)))
    };
    let new = ctx.crashes.new_ones().filter(|(id, _)| only.is_none_or(|o| o == id.as_str()));
    let changes: Vec<_> = new.filter_map(acknowledge).collect();
    ctx.keep_crashes(changes)
}

fn prune(ctx: &mut Ctx<'_>) -> Reply {
    let Ok(days) = ctx.args.text_or_empty("keep").parse::<u64>() else {
        return Reply::error(Errno::EINVAL, "keep argument must be integer");
    };
    let old = ctx.crashes.all.iter().filter(|(_, c)| age_s(c, ctx.now.wall) >= days.saturating_mul(DAY_S));
    let changes: Vec<_> = old.map(|(id, _)| (id.clone(), None)).collect();
    ctx.keep_crashes(changes)
}

fn age_s(crash: &Value, now: Utime) -> u64 {
    stamp(crash).map_or(0, |t| u64::from(now.sec.saturating_sub(t.sec)))
}

fn stat(ctx: &mut Ctx<'_>) -> Reply {
    let all = &ctx.crashes.all;
    let mut lines = vec![format!("{} crashes recorded", all.len())];
    for days in [1, 3, 7] {
        let old: Vec<&String> =
            all.iter().filter(|(_, c)| age_s(c, ctx.now.wall) >= days * DAY_S).map(|(id, _)| id).collect();
        if !old.is_empty() {
            lines.push(format!("{} older than {days} days old:", old.len()));
            lines.extend(old.into_iter().cloned());
        }
    }
    Reply::text(lines.join("\n") + "\n")
}

/// How often each program crashed: Ceph counts all crashes, whatever `hours` says.
fn json_report(ctx: &mut Ctx<'_>) -> Reply {
    if ctx.args.text_or_empty("hours").parse::<i64>().is_err() {
        return Reply::error(Errno::EINVAL, "<hours> argument must be integer");
    }
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for c in ctx.crashes.all.values() {
        let name = c.get("process_name").and_then(Value::as_str).filter(|n| !n.is_empty());
        *counts.entry(name.unwrap_or("unknown")).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(name, n)| format!("{}: {n}", json!(name))).collect();
    Reply::done(format!("{{{}}}", counts.join(", ")))
}
