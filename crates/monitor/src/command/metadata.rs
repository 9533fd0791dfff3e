//! What daemons told of themselves: metadata, versions, hosts, features.
//!
//! Source: OSDMonitor::preprocess_command, MgrMonitor::preprocess_command, Monitor::handle_command.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use types::{EntityType, Errno};

use crate::command::osd_show::existing_osd;
use crate::command::shape::streamed;
use crate::command::{Command, Ctx, Format, Handler, Reply, flags};
use crate::session::Stage;
use crate::text::table::TextTable;

const fn read(
    module: &'static str,
    sig: &'static str,
    help: &'static str,
    handler: fn(&Ctx<'_>) -> Reply,
) -> Command {
    Command { sig, help, module, perm: "r", flags: flags::NONE, handler: Handler::Read(handler) }
}

pub(super) const COMMANDS: &[Command] = &[
    read(
        "osd",
        "osd metadata name=id,type=CephOsdName,req=false",
        "fetch metadata for osd {id} (default all)",
        osd,
    ),
    read(
        "osd",
        "osd count-metadata name=property,type=CephString",
        "count OSDs by metadata field property",
        |c| counted(c, EntityType::Osd, c.args.text_or_empty("property")),
    ),
    read("osd", "osd versions", "check running versions of OSDs", |c| counted(c, EntityType::Osd, VERSION)),
    read("osd", "osd numa-status", "show NUMA status of OSDs", numa_status),
    read("mon", "mon metadata name=id,type=CephString,req=false", "fetch metadata for mon <id>", mon),
    read(
        "mon",
        "mon count-metadata name=property,type=CephString",
        "count mons by metadata field property",
        |c| counted(c, EntityType::Mon, c.args.text_or_empty("property")),
    ),
    read("mon", "mon versions", "check running versions of monitors", |c| {
        counted(c, EntityType::Mon, VERSION)
    }),
    read(
        "mgr",
        "mgr metadata name=who,type=CephString,req=false",
        "dump metadata for all daemons or a specific daemon",
        mgr,
    ),
    read(
        "mgr",
        "mgr count-metadata name=property,type=CephString",
        "count ceph-mgr daemons by metadata field property",
        |c| counted(c, EntityType::Mgr, c.args.text_or_empty("property")),
    ),
    read("mgr", "mgr versions", "check running versions of ceph-mgr daemons", |c| {
        counted(c, EntityType::Mgr, VERSION)
    }),
    read("mon", "versions", "check running versions of ceph daemons", versions),
    read("mon", "features", "report of connected features", features),
    read(
        "mon",
        "node ls name=type,type=CephChoices,strings=all|osd|mon|mds|mgr,req=false",
        "list all nodes in cluster [type]",
        node_ls,
    ),
    Command { flags: flags::TELL, ..read("mon", "version", "show mon daemon version", version) },
];

/// The field that holds a daemon's version.
const VERSION: &str = "ceph_version";

/// What this monitor answers when it is asked for its version, in the form that Ceph's tools parse.
pub const VERSION_TEXT: &str =
    concat!("ceph version 16.2.15 (loligo ", env!("CARGO_PKG_VERSION"), ") pacific (stable)");
pub(super) const VERSION_SHORT: &str = "16.2.15";

type Fields = BTreeMap<String, String>;

/// What a monitor told, and what every monitor can say of itself without having told it.
fn monitor_fields(ctx: &Ctx<'_>, name: &str) -> Fields {
    let mut fields = ctx.state.mon_metadata.get(name).cloned().unwrap_or_default();
    if let Some(info) = ctx.state.monmap.mons.get(name) {
        fields.entry("addrs".to_owned()).or_insert_with(|| info.addrs.to_string());
    }
    if name == ctx.settings.name {
        let own = [
            ("ceph_release", "pacific"),
            ("ceph_version", VERSION_TEXT),
            ("ceph_version_short", VERSION_SHORT),
            ("hostname", &ctx.settings.host_name),
        ];
        for (key, value) in own {
            fields.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
    }
    fields
}

/// Names of the managers.
fn managers<'a>(ctx: &'a Ctx<'_>) -> std::collections::BTreeSet<&'a str> {
    let mgr = &ctx.state.mgr;
    mgr.active.iter().chain(mgr.standbys.values()).map(|d| d.name.as_str()).collect()
}

/// How many daemons of a kind have each value of a field; `unknown` stands for none. OSDs count while they are up.
fn count(ctx: &Ctx<'_>, kind: EntityType, field: &str) -> BTreeMap<String, u64> {
    let value = |fields: Option<&Fields>| fields.and_then(|f| f.get(field)).cloned();
    let values: Vec<Option<String>> = match kind {
        EntityType::Osd => {
            let up = ctx.osdmap().existing_osds().filter(|(_, o)| o.is_up());
            up.map(|(id, _)| value(ctx.state.osd_metadata.get(&id.0))).collect()
        }
        EntityType::Mon => {
            ctx.state.monmap.ranks.iter().map(|name| value(Some(&monitor_fields(ctx, name)))).collect()
        }
        EntityType::Mgr => {
            managers(ctx).into_iter().map(|name| value(ctx.state.mgr.metadata.get(name))).collect()
        }
        EntityType::Mds => ctx.state.fs.metadata.values().map(|fields| value(Some(fields))).collect(),
        _ => Vec::new(),
    };
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value.unwrap_or_else(|| "unknown".to_owned())).or_insert(0) += 1;
    }
    counts
}

fn counted(ctx: &Ctx<'_>, kind: EntityType, field: &str) -> Reply {
    let value = json!(count(ctx, kind, field));
    match kind {
        EntityType::Mon => Reply::json_line(ctx.format, &value),
        _ => Reply::json(ctx.format, &value),
    }
}

/// Fields behind what names the daemon.
fn with_fields(name: (&str, Value), fields: Option<&Fields>) -> Value {
    let head = [(name.0.to_owned(), name.1)].into_iter();
    let rest = fields.into_iter().flatten().map(|(k, v)| (k.clone(), v.as_str().into()));
    Value::Object(head.chain(rest).collect())
}

/// Every OSD, with what it told.
pub(super) fn osd_metadata_json(ctx: &Ctx<'_>) -> Value {
    let of = |osd: i32| ctx.state.osd_metadata.get(&osd);
    let all = ctx.osdmap().existing_osds().map(|(id, _)| with_fields(("id", id.0.into()), of(id.0)));
    all.collect::<Vec<_>>().into()
}

fn osd(ctx: &Ctx<'_>) -> Reply {
    if ctx.args.int("id").is_none() {
        return Reply::json(ctx.format, &osd_metadata_json(ctx));
    }
    let id = match existing_osd(ctx, Errno::ENOENT) {
        Ok(id) => id,
        Err(refusal) => return refusal,
    };
    match ctx.state.osd_metadata.get(&id) {
        Some(fields) => Reply::json(ctx.format, &with_fields(("id", id.into()), Some(fields))),
        None => Reply::error(Errno::ENOENT, ""),
    }
}

fn mon(ctx: &Ctx<'_>) -> Reply {
    let Some(id) = ctx.args.text("id") else {
        let one =
            |name: &String| with_fields(("name", name.as_str().into()), Some(&monitor_fields(ctx, name)));
        let all: Vec<Value> = ctx.state.monmap.ranks.iter().map(one).collect();
        return Reply::json_line(ctx.format, &all.into());
    };
    if ctx.state.monmap.rank(id).is_none() {
        return Reply::error(Errno::ENOENT, "requested mon not found");
    }
    Reply::json_line(ctx.format, &json!(monitor_fields(ctx, id)))
}

fn mgr(ctx: &Ctx<'_>) -> Reply {
    let of = |name: &str| ctx.state.mgr.metadata.get(name);
    let one = |name: &str| with_fields(("name", name.into()), of(name));
    match ctx.args.text("who").filter(|name| !name.is_empty()) {
        None => Reply::json(ctx.format, &managers(ctx).into_iter().map(one).collect::<Vec<_>>().into()),
        Some(name) if !managers(ctx).contains(name) => {
            Reply::error(Errno::ENOENT, format!("mgr.{name} does not exist"))
        }
        Some(name) => Reply::json(ctx.format, &one(name)),
    }
}

fn versions(ctx: &Ctx<'_>) -> Reply {
    let kinds = [EntityType::Mon, EntityType::Mgr, EntityType::Osd, EntityType::Mds];
    let mut out = Map::new();
    let mut overall: BTreeMap<String, u64> = BTreeMap::new();
    for (kind, name) in kinds.into_iter().zip(["mon", "mgr", "osd", "mds"]) {
        let counts = count(ctx, kind, VERSION);
        for (version, n) in &counts {
            *overall.entry(version.clone()).or_insert(0) += n;
        }
        out.insert(name.to_owned(), json!(counts));
    }
    out.insert("overall".to_owned(), json!(overall));
    Reply::json(ctx.format, &out.into())
}

fn version(ctx: &Ctx<'_>) -> Reply {
    streamed(ctx.format, || VERSION_TEXT.to_owned(), || json!({ "version": VERSION_TEXT }))
}

/// Connected peers by kind, features and release. Source: FeatureMap::dump in src/mon/mon_types.h.
fn features(ctx: &Ctx<'_>) -> Reply {
    let mut groups: BTreeMap<u32, BTreeMap<u64, u64>> = BTreeMap::new();
    let members = ctx.settings.quorum.members.len().max(1) as u64;
    groups.entry(EntityType::Mon as u32).or_default().insert(types::features::PACIFIC, members);
    for session in ctx.sessions.values().filter(|s| s.stage == Stage::Open) {
        if session.name.kind != EntityType::Mon {
            *groups.entry(session.name.kind as u32).or_default().entry(session.features).or_insert(0) += 1;
        }
    }
    let kinds = [EntityType::Mon, EntityType::Mds, EntityType::Osd, EntityType::Client, EntityType::Mgr];
    let mut out = Map::new();
    for (kind, by_features) in groups {
        let Some(kind) = kinds.into_iter().find(|k| *k as u32 == kind) else { continue };
        let group = |(bits, n): (&u64, &u64)| json!({ "features": format!("{bits:#x}"), "release": release_of(*bits), "num": n });
        out.insert(kind.to_string(), by_features.iter().map(group).collect::<Vec<_>>().into());
    }
    Reply::json(ctx.format, &out.into())
}

/// The first release with these features. Source: ceph_release_from_features in src/common/ceph_strings.cc; features of
/// the second generation come with bit 57.
fn release_of(features: u64) -> &'static str {
    const STEPS: [(&str, u64); 7] = [
        ("argonaut", 1 << 18),
        ("dumpling", 1 << 25 | 1 << 30),
        ("firefly", 1 << 41 | 1 << 35),
        ("hammer", 1 << 48),
        ("jewel", 1 << 58),
        ("kraken", 1 << 59),
        ("luminous", 1 << 21 | 1 << 57),
    ];
    let has = STEPS.iter().take_while(|(_, need)| features & need == *need);
    has.last().map_or("unknown", |(name, _)| name)
}

/// Daemons by host. Source: Monitor::print_nodes and its like.
fn node_ls(ctx: &Ctx<'_>) -> Reply {
    let mons = || {
        let host = |name: &String| Some((monitor_fields(ctx, name).remove("hostname")?, json!(name)));
        by_host(ctx.state.monmap.ranks.iter().filter_map(host))
    };
    let osds = || {
        let host = |(id, fields): (&i32, &Fields)| Some((fields.get("hostname")?.clone(), json!(id)));
        by_host(ctx.state.osd_metadata.iter().filter_map(host))
    };
    let mdss = || {
        let fs = &ctx.state.fs;
        let host = |(gid, fields): (&u64, &Fields)| {
            Some((fields.get("hostname")?.clone(), json!(fs.map.daemon(*gid)?.name)))
        };
        by_host(fs.metadata.iter().filter_map(host))
    };
    let mgrs = || {
        let host =
            |name: &str| Some((ctx.state.mgr.metadata.get(name)?.get("hostname")?.clone(), json!(name)));
        by_host(managers(ctx).into_iter().filter_map(host))
    };
    let value = match ctx.args.text("type").unwrap_or("all") {
        "mon" => mons(),
        "osd" => osds(),
        "mgr" => mgrs(),
        "mds" => mdss(),
        // Without metadata servers there is not even an empty object for them.
        _ if ctx.state.fs.metadata.is_empty() => json!({ "mon": mons(), "osd": osds(), "mgr": mgrs() }),
        _ => json!({ "mon": mons(), "osd": osds(), "mds": mdss(), "mgr": mgrs() }),
    };
    Reply::json_line(ctx.format, &value)
}

fn by_host(daemons: impl Iterator<Item = (String, Value)>) -> Value {
    let mut hosts: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (host, daemon) in daemons {
        hosts.entry(host).or_default().push(daemon);
    }
    json!(hosts)
}

fn numa_status(ctx: &Ctx<'_>) -> Reply {
    let known =
        ctx.osdmap().existing_osds().filter_map(|(id, _)| Some((id.0, ctx.state.osd_metadata.get(&id.0)?)));
    let known: Vec<(i32, &Fields)> = known.collect();
    match ctx.format {
        Format::Plain => Reply::text(numa_text(&known)),
        _ => Reply::json(
            ctx.format,
            &known.iter().map(|(osd, f)| numa_json(*osd, f)).collect::<Vec<_>>().into(),
        ),
    }
}

fn numa_text(osds: &[(i32, &Fields)]) -> String {
    use crate::text::table::Align::{Left, Right};
    let mut table = TextTable::new().column_headed("OSD", Left, Right).left("HOST").right("NETWORK");
    table = table.right("STORAGE").right("AFFINITY").left("CPUS");
    for (osd, fields) in osds {
        let get = |key: &str| fields.get(key).cloned();
        let dash = || "-".to_owned();
        let (node, cpus) = match (get("numa_node"), get("numa_node_cpus")) {
            (Some(node), Some(cpus)) => (node, cpus),
            _ => (dash(), dash()),
        };
        let host = get("hostname").unwrap_or_default();
        let network = get("network_numa_nodes").unwrap_or_else(dash);
        let storage = get("objectstore_numa_nodes").unwrap_or_else(dash);
        table.row([osd.to_string(), host, network, storage, node, cpus]);
    }
    table.render()
}

fn numa_json(osd: i32, fields: &Fields) -> Value {
    let mut out = Map::new();
    out.insert("osd".to_owned(), osd.into());
    out.insert("host".to_owned(), fields.get("hostname").cloned().unwrap_or_default().into());
    let number = |text: &str| text.trim().parse::<i64>().unwrap_or(0);
    for key in ["network_numa_node", "objectstore_numa_node", "numa_node"] {
        if let Some(value) = fields.get(key) {
            out.insert(key.to_owned(), number(value).into());
        }
    }
    for key in ["network_numa_nodes", "objectstore_numa_nodes"] {
        if let Some(value) = fields.get(key) {
            let nodes: Vec<i64> = value.split(',').filter(|n| !n.is_empty()).map(number).collect();
            out.insert(key.to_owned(), json!(nodes));
        }
    }
    if let Some(value) = fields.get("numa_node_cpus") {
        out.insert("numa_node_cpus".to_owned(), cpu_list(value).into());
    }
    Value::Object(out)
}

/// The numbers of `0-3,8`. Source: dump_cpu_list in src/mon/OSDMonitor.cc, parse_cpu_set_list in src/common/numa.cc.
fn cpu_list(text: &str) -> Vec<u64> {
    let range = |part: &str| -> Option<(u64, u64)> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // More processors than a machine has are a daemon's error.
        (first <= last && last < 65_536).then_some((first, last))
    };
    text.split(',').filter_map(range).flat_map(|(first, last)| first..=last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_follow_from_features() {
        assert_eq!(release_of(types::features::PACIFIC), "luminous");
        assert_eq!((release_of(0), release_of(1 << 18)), ("unknown", "argonaut"));
    }

    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(cpu_list("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(cpu_list("5-2,x,9999999-99999999"), [0u64; 0]);
    }
}
