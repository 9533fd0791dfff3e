//! `ceph status` (`ceph -s`).
//!
//! Source: Monitor::get_cluster_status, PGMapDigest::print_summary in src/mon/PGMap.cc,
//! src/mgr/ServiceMap.cc.

use std::collections::BTreeMap;

use maps::ServiceMap;
use maps::flags::map_flags;
use serde_json::{Map, Value, json};
use types::printable;

use crate::command::{Command, Ctx, Format, Handler, Reply, flags};
use crate::health::{Health, health_json, health_line};
use crate::pg_sums::PgSums;
use crate::text::{full_lines, span};
use crate::views;

pub(super) const COMMANDS: &[Command] = &[Command {
    sig: "status",
    help: "show cluster status",
    module: "mon",
    perm: "r",
    flags: flags::NONE,
    handler: Handler::Read(status),
}];

/// Lines of services, lines of tasks, and characters of what one of them says; a manager may tell of any
/// number.
const SERVICES_SHOWN: usize = 256;
const TASKS_SHOWN: usize = 256;
const CHARS_SHOWN: usize = 256;

fn status(ctx: &Ctx<'_>) -> Reply {
    match ctx.format {
        Format::Plain => Reply::text(status_text(ctx)),
        _ => Reply::json_line(ctx.format, &status_json(ctx)),
    }
}

/// Seconds since the quorum was formed, as far as this process knows.
pub(super) fn quorum_age(ctx: &Ctx<'_>) -> std::time::Duration {
    ctx.now.mono.saturating_sub(ctx.settings.quorum_since)
}

fn status_json(ctx: &Ctx<'_>) -> Value {
    let quorum = &ctx.settings.quorum;
    let health = Health::of(ctx.state, ctx.settings, ctx.now);
    let progress: Map<String, Value> = ctx.state.digest.progress.iter().map(|(id, e)| {
        let event = json!({ "message": e.message, "progress": f64::from(e.progress), "add_to_ceph_s": e.add_to_ceph_s });
        (id.clone(), event)
    }).collect();
    json!({
        "fsid": ctx.state.fsid.to_string(),
        "health": health_json(&health, false),
        "election_epoch": quorum.term,
        "quorum": quorum.members,
        "quorum_names": views::quorum(ctx.state, ctx.settings),
        "quorum_age": quorum_age(ctx).as_secs(),
        "monmap": ctx.state.monmap.dump_summary(),
        "osdmap": osd_summary_json(ctx),
        "pgmap": PgSums::of(&ctx.state.digest).summary_json(),
        "fsmap": ctx.state.fs.map.dump_summary(),
        "mgrmap": ctx.state.mgr.map().dump_summary(),
        "servicemap": ctx.state.service_map.dump(),
        "progress_events": progress,
    })
}

/// Source: OSDMap::print_summary.
pub(super) fn osd_summary_json(ctx: &Ctx<'_>) -> Value {
    let map = ctx.osdmap();
    let n = map.counts();
    json!({
        "epoch": map.epoch.0,
        "num_osds": n.total,
        "num_up_osds": n.up,
        "osd_up_since": map.last_up_change.sec,
        "num_in_osds": n.r#in,
        "osd_in_since": map.last_in_change.sec,
        "num_remapped_pgs": map.pg_temp.len(),
    })
}

fn status_text(ctx: &Ctx<'_>) -> String {
    let health = Health::of(ctx.state, ctx.settings, ctx.now);
    let indent = "\n            ";
    let mut out = format!("  cluster:\n    id:     {}\n", ctx.state.fsid);
    out += &format!("    health: {}\n", health_line(&health, ctx.now.wall, indent, indent));
    out += " \n  services:\n";
    out += &services_text(ctx);
    out += &tasks_text(&ctx.state.service_map);
    out += " \n  data:\n";
    if let Some(volumes) = ctx.state.fs.map.volumes_summary() {
        out += &format!("    volumes: {volumes}\n");
    }
    out += &PgSums::of(&ctx.state.digest).summary_text();
    let progress: Vec<_> = ctx.state.digest.progress.values().collect();
    if !progress.is_empty() {
        out += "\n \n  progress:\n";
        for event in progress.into_iter().filter(|e| e.add_to_ceph_s) {
            out += &format!("    {}\n", event.message);
        }
    }
    full_lines(&(out + "\n "))
}

fn services_text(ctx: &Ctx<'_>) -> String {
    let services = &ctx.state.service_map.services;
    // A service may have any name.
    let width = services.keys().map(String::len).max().unwrap_or(0).clamp(3, 64);
    let pad = |name: &str| " ".repeat(width.saturating_sub(name.len()));
    let line = |name: &str, text: &str| format!("    {name}:{} {text}\n", pad(name));
    let mut out = line("mon", &monitors_text(ctx));
    if ctx.state.mgr.epoch.0 > 0 {
        out += &line("mgr", &ctx.state.mgr.map().summary(ctx.now.wall));
    }
    if !ctx.state.fs.map.filesystems.is_empty() {
        out += &line("mds", &ctx.state.fs.map.daemons_summary());
    }
    out += &line("osd", &osds_text(ctx, width + 6));
    let others = services.iter().filter(|(name, _)| !ServiceMap::is_cluster_daemon(name));
    for (name, service) in others.clone().take(SERVICES_SHOWN) {
        out += &line(&shown(name), &shown(&service.summary()));
    }
    match others.count().saturating_sub(SERVICES_SHOWN) {
        0 => out,
        more => out + &format!("    and {more} more\n"),
    }
}

/// What services are busy with: a line for each task, and one below it for each daemon that has it.
fn tasks_text(map: &ServiceMap) -> String {
    let mut by_task: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut more = 0;
    let mut room = TASKS_SHOWN;
    for (name, service) in &map.services {
        for (id, daemon) in &service.daemons {
            for (task, status) in &daemon.task_status {
                if room == 0 {
                    more += 1;
                    continue;
                }
                room -= 1;
                let line = format!("        {}.{}: {}\n", shown(name), shown(id), shown(status));
                by_task.entry(task).or_default().push(line);
            }
        }
    }
    if by_task.is_empty() {
        return String::new();
    }
    let one = |(task, lines): (&str, Vec<String>)| format!("    {}:\n{}", shown(task), lines.concat());
    let out = format!(" \n  task status:\n{}", by_task.into_iter().map(one).collect::<String>());
    if more == 0 { out } else { out + &format!("    and {more} more\n") }
}

/// What a service says, as one part of one line.
fn shown(text: &str) -> String {
    let mut chars = text.chars();
    let cut: String = chars.by_ref().take(CHARS_SHOWN).collect();
    let end = if chars.next().is_some() { "..." } else { "" };
    printable(&cut).into_owned() + end
}

fn monitors_text(ctx: &Ctx<'_>) -> String {
    let map = &ctx.state.monmap;
    let members = &ctx.settings.quorum.members;
    let names = views::quorum_names(map, members);
    let age = span(std::time::Duration::from_secs(quorum_age(ctx).as_secs()));
    let mut out = format!("{} daemons, quorum {} (age {age})", map.mons.len(), names.join(","));
    let absent: Vec<&str> = map.ranks.iter().filter(|n| !names.contains(n)).map(String::as_str).collect();
    if !absent.is_empty() {
        out += &format!(", out of quorum: {}", absent.join(", "));
    }
    out
}

/// Source: OSDMap::print_summary without the epoch.
fn osds_text(ctx: &Ctx<'_>, indent: usize) -> String {
    let map = ctx.osdmap();
    let n = map.counts();
    let since = |t: types::Utime| match t.is_zero() {
        true => String::new(),
        false => format!(" (since {})", span(ctx.now.wall.since(t))),
    };
    let mut out = format!("{} osds: {} up{}", n.total, n.up, since(map.last_up_change));
    out += &format!(", {} in{}", n.r#in, since(map.last_in_change));
    if !map.pg_temp.is_empty() {
        out += &format!("; {} remapped pgs", map.pg_temp.len());
    }
    let flags = map.flags & !map_flags::SEMIHIDDEN;
    if flags != 0 {
        out += &format!("\n{}flags {}", " ".repeat(indent), map_flags::to_text(flags));
    }
    out
}
