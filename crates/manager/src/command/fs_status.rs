//! `fs status`: who serves file systems, what they do, and what the pools hold.
//!
//! Source: src/pybind/mgr/status/module.py.

use std::collections::BTreeMap;

use maps::{Filesystem, FsMap, MdsInfo, MdsState};
use monitor::command::{Format, Reply, pool_space};
use serde_json::{Map, Value, json};
use types::{Errno, PoolId};

use crate::command::{Command, Ctx, Module};
use crate::daemons::DaemonKey;
use crate::digest::pool_usage;
use crate::pretty_table::{PrettyTable, bold, coloured, dimless, of_bytes};

const MODULE: Module = Module("status");

pub(super) const COMMANDS: &[Command] = &[MODULE.command(
    "fs status name=fs,type=CephString,req=false",
    "Show the status of a CephFS filesystem",
    "r",
    fs_status,
)];

/// Daemons by their version.
type Versions = BTreeMap<String, Vec<String>>;

fn fs_status(ctx: &mut Ctx<'_>) -> Reply {
    let none = FsMap::initial();
    let map = ctx.file_systems.map.as_ref().unwrap_or(&none);
    let wanted = ctx.args.text("fs");
    let shown: Vec<&Filesystem> =
        map.filesystems.values().filter(|fs| wanted.is_none_or(|name| fs.map.fs_name == name)).collect();
    if let Some(name) = wanted.filter(|_| shown.is_empty()) {
        return Reply::error(Errno::EINVAL, format!("Invalid filesystem: {name}"));
    }
    match ctx.format {
        Format::Plain => Reply::text(as_text(ctx, map, &shown)),
        format => Reply::json(format, &as_json(ctx, map, &shown)),
    }
}

/// A counter as a daemon last reported it; 0 while it has not.
fn latest(ctx: &Ctx<'_>, name: &str, path: &str) -> u64 {
    let key = DaemonKey { service: "mds".to_owned(), id: name.to_owned() };
    ctx.daemons.get(&key).and_then(|d| d.counters.get(path)).map_or(0, |c| c.value)
}

/// By how much a counter grew a second between the last two reports.
fn rate(ctx: &Ctx<'_>, name: &str, path: &str) -> f64 {
    let key = DaemonKey { service: "mds".to_owned(), id: name.to_owned() };
    let grew = ctx.daemons.get(&key).and_then(|d| d.counters.get(path));
    // A counter that begins has no report before.
    let grew = grew.filter(|c| c.before > 0).map_or(0, |c| c.value.saturating_sub(c.before));
    grew as f64 / ctx.options.int("mgr_stats_period").max(1) as f64
}

/// Entries of the cache: names, inodes, folders, capabilities.
fn cached(ctx: &Ctx<'_>, name: &str) -> [u64; 4] {
    ["mds_mem.dn", "mds_mem.ino", "mds_mem.dir", "mds_mem.cap"].map(|path| latest(ctx, name, path))
}

/// The sessions that the first rank has; of another one while that is down.
fn clients(ctx: &Ctx<'_>, fs: &Filesystem) -> u64 {
    let mut count = 0;
    for (rank, info) in fs.map.r#in.iter().filter_map(|rank| Some((*rank, fs.map.holder(*rank)?))) {
        if rank == 0 || count == 0 {
            count = latest(ctx, &info.name, "mds_sessions.session_count");
        }
    }
    count
}

fn state(info: &MdsInfo) -> String {
    let name = info.state.name().split(':').nth(1).unwrap_or_default();
    format!("{name}{}", if info.is_laggy() { "(laggy)" } else { "" })
}

const REQUESTS: &str = "mds_server.handle_client_request";
const REPLAYED: &str = "mds_log.replayed";

fn version(ctx: &Ctx<'_>, name: &str) -> String {
    ctx.file_systems.versions.get(name).cloned().unwrap_or_else(|| "None".to_owned())
}

/// Everybody that is shown, by version.
fn versions(ctx: &Ctx<'_>, map: &FsMap, shown: &[&Filesystem]) -> Versions {
    let ranked = shown.iter().flat_map(|fs| fs.map.info.values());
    let mut out = Versions::new();
    for info in ranked.chain(map.standbys.values().map(|(info, _)| info)) {
        out.entry(version(ctx, &info.name)).or_default().push(info.name.clone());
    }
    out
}

/// A pool's number, name, use, bytes used and bytes free.
fn pools(ctx: &Ctx<'_>, fs: &Filesystem) -> Vec<(i64, String, &'static str, u64, u64)> {
    let metadata = fs.map.metadata_pool;
    let one = |id: i64| {
        let pool = PoolId(id);
        let space = pool_usage(ctx.pgs, ctx.map, pool).and_then(|usage| pool_space(ctx.map, pool, &usage));
        let (used, avail) = space.unwrap_or_default();
        let name = ctx.map.pool_name(pool).unwrap_or_default().to_owned();
        (id, name, if id == metadata { "metadata" } else { "data" }, used, avail)
    };
    std::iter::once(metadata).chain(fs.map.data_pools.iter().copied()).map(one).collect()
}

fn as_json(ctx: &Ctx<'_>, map: &FsMap, shown: &[&Filesystem]) -> Value {
    let (mut daemons, mut all_pools, mut sessions) = (Vec::new(), Vec::new(), Vec::new());
    for fs in shown {
        for rank in &fs.map.r#in {
            let Some(info) = fs.map.holder(*rank) else {
                daemons.push(json!({ "rank": rank, "state": "failed" }));
                continue;
            };
            let [dns, inos, dirs, caps] = cached(ctx, &info.name);
            let active = info.state == MdsState::ACTIVE && !info.is_laggy();
            let requests = if active { json!(rate(ctx, &info.name, REQUESTS)) } else { json!("0") };
            daemons.push(json!({
                "rank": rank, "name": info.name, "state": state(info), "rate": requests,
                "dns": dns, "inos": inos, "dirs": dirs, "caps": caps,
            }));
        }
        for info in fs.map.info.values().filter(|i| i.follows()) {
            let [dns, inos, dirs, caps] = cached(ctx, &info.name);
            daemons.push(json!({
                "rank": info.rank, "name": info.name, "state": "standby-replay",
                "events": rate(ctx, &info.name, REPLAYED),
                "dns": dns, "inos": inos, "dirs": dirs, "caps": caps,
            }));
        }
        all_pools.extend(pools(ctx, fs).into_iter().map(|(id, name, kind, used, avail)| {
            json!({ "id": id, "name": name, "type": kind, "used": used, "avail": avail })
        }));
        sessions.push(json!({ "fs": fs.map.fs_name, "clients": clients(ctx, fs) }));
    }
    daemons.extend(map.standbys.values().map(|(i, _)| json!({ "name": i.name, "state": "standby" })));
    let mut out = Map::new();
    for (name, list) in [("clients", sessions), ("mdsmap", daemons), ("pools", all_pools)] {
        if !list.is_empty() {
            out.insert(name.to_owned(), list.into());
        }
    }
    let versions = versions(ctx, map, shown);
    let version: Option<Value> = match versions.len() {
        0 => None,
        1 => versions.keys().next().map(|v| v.as_str().into()),
        _ => Some(versions.iter().map(|(v, names)| json!({ "version": v, "daemons": names })).collect()),
    };
    out.extend(version.map(|v| ("mds_version".to_owned(), v)));
    sorted(Value::Object(out))
}

/// With the keys of every object in order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> = fields.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

fn as_text(ctx: &Ctx<'_>, map: &FsMap, shown: &[&Filesystem]) -> String {
    let mut out = String::new();
    for fs in shown {
        let name = &fs.map.fs_name;
        out += &format!("{name} - {} clients\n{}\n", clients(ctx, fs), "=".repeat(name.len()));
        out += &ranks_text(ctx, fs);
        let mut table = PrettyTable::centred(&["POOL", "TYPE", "USED", "AVAIL"]);
        for (_, name, kind, used, avail) in pools(ctx, fs) {
            let size = |n: u64| of_bytes(n as f64, 5);
            table.row([name, kind.to_owned(), size(used), size(avail)]);
        }
        out += &table.render();
    }
    if !map.standbys.is_empty() {
        let mut table = PrettyTable::centred(&["STANDBY MDS"]);
        map.standbys.values().for_each(|(info, _)| table.row([info.name.clone()]));
        out += &table.render();
    }
    let versions = versions(ctx, map, shown);
    if let (1, Some(version)) = (versions.len(), versions.keys().next()) {
        return out + &format!("MDS version: {version}\n");
    }
    let mut table = PrettyTable::centred(&["VERSION", "DAEMONS"]);
    for (version, names) in versions {
        table.row([version, names.join(", ")]);
    }
    out + &table.render()
}

fn ranks_text(ctx: &Ctx<'_>, fs: &Filesystem) -> String {
    let mut table =
        PrettyTable::centred(&["RANK", "STATE", "MDS", "ACTIVITY", "DNS", "INOS", "DIRS", "CAPS"]);
    let numbers = |name: &str| cached(ctx, name).map(|n| dimless(n as f64, 5));
    for rank in &fs.map.r#in {
        let Some(info) = fs.map.holder(*rank) else {
            let mut cells = vec![rank.to_string(), "failed".to_owned()];
            cells.resize(8, String::new());
            table.row(cells);
            continue;
        };
        let active = info.state == MdsState::ACTIVE;
        let requests = || format!("Reqs: {}/s", dimless(rate(ctx, &info.name, REQUESTS), 5));
        let activity = if active { requests() } else { String::new() };
        let green = active && !info.is_laggy();
        let state = coloured(&state(info), if green { 2 } else { 3 });
        let head = [bold(&rank.to_string()), state, info.name.clone(), activity];
        table.row(head.into_iter().chain(numbers(&info.name)));
    }
    for info in fs.map.info.values().filter(|i| i.follows()) {
        let activity = format!("Evts: {}/s", dimless(rate(ctx, &info.name, REPLAYED), 5));
        let head = [format!("{}-s", info.rank), "standby-replay".to_owned(), info.name.clone(), activity];
        table.row(head.into_iter().chain(numbers(&info.name)));
    }
    table.render()
}
