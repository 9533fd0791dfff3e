//! What the OSD map says: dumps, lists, single OSDs, where an object lies.
//!
//! Source: OSDMonitor::preprocess_command.

use std::collections::BTreeMap;

use codec::Encode;
use crush::ITEM_NONE;
use maps::OsdMap;
use serde_json::{Value, json};
use types::{EntityAddr, Errno, ObjectLocator, PgId, Utime};

use crate::command::shape::{osdmap_of_epoch, streamed};
use crate::command::{Command, Ctx, Format, Handler, Reply, flags, json_text};
use crate::text::json::general;

const fn read(sig: &'static str, help: &'static str, handler: fn(&Ctx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "osd", perm: "r", flags: flags::NONE, handler: Handler::Read(handler) }
}

const fn deprecated(command: Command) -> Command {
    Command { flags: flags::DEPRECATED, ..command }
}

pub(super) const COMMANDS: &[Command] = &[
    read("osd dump name=epoch,type=CephInt,range=0,req=false", "print summary of OSD map", dump),
    read(
        "osd info name=id,type=CephOsdName,req=false",
        "print osd's {id} information (instead of all osds from map)",
        info,
    ),
    read("osd ls name=epoch,type=CephInt,range=0,req=false", "show all OSD ids", ls),
    read("osd getmap name=epoch,type=CephInt,range=0,req=false", "get OSD map", getmap),
    read("osd getcrushmap name=epoch,type=CephInt,range=0,req=false", "get CRUSH map", getcrushmap),
    read("osd getmaxosd", "show largest OSD id", getmaxosd),
    read(
        "osd ls-tree name=epoch,type=CephInt,range=0,req=false name=name,type=CephString,req=true",
        "show OSD ids under bucket <name> in the CRUSH map",
        ls_tree,
    ),
    read("osd find name=id,type=CephOsdName", "find osd <id> in the CRUSH map and show its location", find),
    read(
        "osd map name=pool,type=CephPoolname name=object,type=CephObjectname \
         name=nspace,type=CephString,req=false",
        "find pg for <object> in <pool> with [namespace]",
        map_object,
    ),
    Command { module: "pg", ..read("pg map name=pgid,type=CephPgid", "show mapping of pg to osds", map_pg) },
    deprecated(read("osd lspools", "list pools", lspools)),
    read("osd blocklist ls", "show blocklisted clients", blocklist_ls),
    deprecated(read("osd blacklist ls", "show blacklisted clients", blocklist_ls)),
    read("osd utilization", "get basic pg distribution stats", utilization),
    read(
        "osd get-require-min-compat-client",
        "get the minimum client version we will maintain compatibility with",
        min_compat_client,
    ),
    read(
        "osd last-stat-seq name=id,type=CephOsdName",
        "get the last pg stats sequence number reported for this osd",
        last_stat_seq,
    ),
];

fn dump(ctx: &Ctx<'_>) -> Reply {
    match osdmap_of_epoch(ctx) {
        Ok(map) => streamed(ctx.format, || map.print(), || map.dump()),
        Err(refusal) => refusal,
    }
}

/// The OSD that `id` names, when it exists.
pub(super) fn existing_osd(ctx: &Ctx<'_>, otherwise: Errno) -> Result<i32, Reply> {
    let Some(id) = ctx.args.int("id") else {
        let text = format!("unable to parse osd id value '{}'", ctx.args.text_or_empty("id"));
        return Err(Reply::error(Errno::EINVAL, text));
    };
    let known = i32::try_from(id).ok().filter(|osd| ctx.osdmap().exists(*osd));
    known.ok_or_else(|| Reply::error(otherwise, format!("osd.{id} does not exist")))
}

fn info(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.osdmap();
    let single = ctx.args.get("id").is_some();
    let osds: Vec<i32> = match single {
        false => map.existing_osds().map(|(id, _)| id.0).collect(),
        true => match existing_osd(ctx, Errno::EINVAL) {
            Ok(osd) => vec![osd],
            Err(refusal) => return refusal,
        },
    };
    let plain = || {
        let mut out = String::new();
        osds.iter().for_each(|osd| map.print_osd(*osd, &mut out));
        out
    };
    let value = || {
        let mut all: Vec<Value> =
            osds.iter().filter_map(|osd| Some(map.dump_osd(*osd, map.osd(*osd)?))).collect();
        if single { all.pop().unwrap_or_default() } else { all.into() }
    };
    streamed(ctx.format, plain, value)
}

/// Numbers, one to a line.
pub(super) fn numbers(ctx: &Ctx<'_>, osds: &[i32]) -> Reply {
    let lines = || osds.iter().map(|osd| format!("{osd}\n")).collect();
    streamed(ctx.format, lines, || json!(osds))
}

/// The map of now, whatever the epoch, which only has to be there: so does 16.2.15.
fn ls(ctx: &Ctx<'_>) -> Reply {
    match osdmap_of_epoch(ctx) {
        Ok(_) => numbers(ctx, &ctx.osdmap().existing_osds().map(|(id, _)| id.0).collect::<Vec<_>>()),
        Err(refusal) => refusal,
    }
}

fn getmap(ctx: &Ctx<'_>) -> Reply {
    let map = match osdmap_of_epoch(ctx) {
        Ok(map) => map,
        Err(refusal) => return refusal,
    };
    let full = ctx.state.osds.full(map.epoch).unwrap_or_else(|| map.encode_with_crc().0);
    Reply::data(full).with_outs(format!("got osdmap epoch {}", map.epoch))
}

fn getcrushmap(ctx: &Ctx<'_>) -> Reply {
    match osdmap_of_epoch(ctx) {
        Ok(map) => Reply::data(map.crush.to_bytes()).with_outs(map.crush_version.to_string()),
        Err(refusal) => refusal,
    }
}

fn getmaxosd(ctx: &Ctx<'_>) -> Reply {
    let (epoch, max) = (ctx.osdmap().epoch.0, ctx.osdmap().max_osd());
    let plain = || format!("max_osd = {max} in epoch {epoch}\n");
    Reply::show(ctx.format, plain, || json!({ "epoch": epoch, "max_osd": max }))
}

fn ls_tree(ctx: &Ctx<'_>) -> Reply {
    let map = match osdmap_of_epoch(ctx) {
        Ok(map) => map,
        Err(refusal) => return refusal,
    };
    let name = ctx.args.text_or_empty("name");
    let Some(bucket) = map.crush.item_id(name) else {
        return Reply::error(Errno::ENOENT, format!("\"{name}\" does not exist"));
    };
    let osds = map.crush.leaves(bucket).into_iter().filter(|osd| ctx.osdmap().exists(*osd));
    numbers(ctx, &osds.collect::<Vec<_>>())
}

fn find(ctx: &Ctx<'_>) -> Reply {
    let osd = match existing_osd(ctx, Errno::ENOENT) {
        Ok(osd) => osd,
        Err(refusal) => return refusal,
    };
    let map = ctx.osdmap();
    let Some(entry) = map.osd(osd) else { return Errno::ENOENT.into() };
    let addrs = map.dump_osd(osd, entry).get("public_addrs").cloned().unwrap_or_default();
    let mut fields = vec![("osd", json!(osd)), ("addrs", addrs), ("osd_fsid", entry.uuid.to_string().into())];
    let metadata = ctx.state.osd_metadata.get(&osd);
    for (key, name) in [
        ("hostname", "host"),
        ("pod_name", "pod_name"),
        ("pod_namespace", "pod_namespace"),
        ("container_name", "container_name"),
    ] {
        if let Some(value) = metadata.and_then(|m| m.get(key)) {
            fields.push((name, value.as_str().into()));
        }
    }
    fields.push(("crush_location", json!(map.crush.full_location(osd))));
    let value = fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    Reply::json(ctx.format, &Value::Object(value))
}

/// `[1,NONE,3]`. Source: pg_vector_string in src/osd/osd_types.cc.
pub(crate) fn osd_list_text(osds: &[i32]) -> String {
    let name = |osd: &i32| if *osd == ITEM_NONE { "NONE".to_owned() } else { osd.to_string() };
    format!("[{}]", osds.iter().map(name).collect::<Vec<_>>().join(","))
}

fn map_object(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.osdmap();
    let (pool_name, object) = (ctx.args.text_or_empty("pool"), ctx.args.text_or_empty("object"));
    let nspace = ctx.args.text_or_empty("nspace");
    let Some(pool) = map.pool_by_name(pool_name) else {
        return Reply::error(Errno::ENOENT, format!("pool {pool_name} does not exist"));
    };
    let locator = ObjectLocator { nspace: nspace.into(), ..ObjectLocator::pool(pool) };
    let raw = map.object_to_raw_pg(&locator, object);
    let (Some(raw), Some(pg)) = (raw, raw.and_then(|raw| map.raw_pg_to_pg(raw))) else {
        return Errno::ENOENT.into();
    };
    let at = map.pg_to_up_acting(pg);
    let full_name = if nspace.is_empty() { object.to_owned() } else { format!("{nspace}/{object}") };
    let plain = || {
        let (up, acting) = (osd_list_text(&at.up), osd_list_text(&at.acting));
        format!(
            "osdmap e{} pool '{pool_name}' ({pool}) object '{full_name}' -> pg {raw} ({pg}) -> \
             up ({up}, p{}) acting ({acting}, p{})\n",
            map.epoch, at.up_primary, at.acting_primary
        )
    };
    let value = || {
        json!({
            "epoch": map.epoch.0,
            "pool": pool_name,
            "pool_id": pool.0,
            "objname": full_name,
            "raw_pgid": raw.to_string(),
            "pgid": pg.to_string(),
            "up": at.up,
            "up_primary": at.up_primary,
            "acting": at.acting,
            "acting_primary": at.acting_primary,
        })
    };
    Reply::show(ctx.format, plain, value)
}

fn map_pg(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.osdmap();
    let text = ctx.args.text_or_empty("pgid");
    let Some(pg) = PgId::parse(text) else {
        return Reply::error(Errno::EINVAL, format!("invalid pgid '{text}'"));
    };
    let Some(mapped) = map.raw_pg_to_pg(pg) else {
        return Reply::error(Errno::ENOENT, format!("pg '{text}' does not exist"));
    };
    let at = map.pg_to_up_acting(pg);
    let plain = || {
        let list = |osds: &[i32]| osds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let (up, acting) = (list(&at.up), list(&at.acting));
        format!("osdmap e{} pg {pg} ({mapped}) -> up [{up}] acting [{acting}]\n", map.epoch)
    };
    let value = || {
        json!({
            "epoch": map.epoch.0,
            "raw_pgid": pg.to_string(),
            "pgid": mapped.to_string(),
            "up": at.up,
            "acting": at.acting,
        })
    };
    Reply::show(ctx.format, plain, value)
}

fn lspools(ctx: &Ctx<'_>) -> Reply {
    let pools = &ctx.osdmap().pool_names;
    let plain = || pools.iter().map(|(id, name)| format!("{id} {name}\n")).collect();
    let value = || {
        let pool = |(id, name): (&types::PoolId, &String)| json!({ "poolnum": id.0, "poolname": name });
        pools.iter().map(pool).collect::<Vec<_>>().into()
    };
    streamed(ctx.format, plain, value)
}

/// Ranges come in a second list behind the first, which makes the output no JSON document. Scripts for 16.2 expect it.
fn blocklist_ls(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.osdmap();
    let lists = [&map.blocklist, &map.range_blocklist];
    let outs = format!("listed {} entries", map.blocklist.len() + map.range_blocklist.len());
    let text: String = match ctx.format {
        Format::Plain => {
            lists.into_iter().flatten().map(|(addr, until)| format!("{addr} {until}\n")).collect()
        }
        _ => {
            let list = |entries: &BTreeMap<EntityAddr, Utime>| {
                let entry =
                    |(a, t): (&EntityAddr, &Utime)| json!({ "addr": a.to_string(), "until": t.to_string() });
                json_text(ctx.format, &entries.iter().map(entry).collect::<Vec<_>>().into())
            };
            lists.into_iter().map(list).collect()
        }
    };
    Reply::text(text).with_outs(outs)
}

fn min_compat_client(ctx: &Ctx<'_>) -> Reply {
    let text = ctx.osdmap().require_min_compat_client.name().to_owned() + "\n";
    Reply::text(text)
}

fn last_stat_seq(ctx: &Ctx<'_>) -> Reply {
    let osd = match existing_osd(ctx, Errno::ENOENT) {
        Ok(osd) => osd,
        Err(refusal) => return refusal,
    };
    let seq = ctx.state.digest.osds.get(&osd).map_or(0, |usage| usage.seq);
    Reply::show(ctx.format, || format!("{seq}\n"), || json!(seq))
}

/// PGs per OSD as the map places them; nothing without an OSD that is up and in.
///
/// Source: OSDMap::summarize_mapping_stats without a second map.
fn utilization(ctx: &Ctx<'_>) -> Reply {
    match Spread::of(ctx.osdmap()) {
        Some(spread) => Reply::show(ctx.format, || spread.text(), || spread.json()),
        None => Reply::ok(),
    }
}

/// How evenly PGs are spread; in single precision, as Ceph computes it.
struct Spread {
    average: f32,
    deviation: f32,
    /// The deviation of an even draw.
    expected: f32,
    /// OSDs with the fewest and the most PGs.
    least: (i32, u32),
    most: (i32, u32),
}

impl Spread {
    fn of(map: &OsdMap) -> Option<Self> {
        let serving = map.existing_osds().filter(|(id, o)| o.is_up() && map.is_in(id.0));
        let mut held: BTreeMap<i32, u32> = serving.map(|(id, _)| (id.0, 0)).collect();
        map.for_each_pg(|_, at| {
            for osd in &at.up {
                if let Some(n) = held.get_mut(osd) {
                    *n += 1;
                }
            }
        });
        let shards: u32 = map.pools.values().map(|p| p.pg_num.saturating_mul(p.size.into())).sum();
        let n = held.len() as f32;
        let average = shards as f32 / n;
        let squares = held.values().fold(0.0f32, |sum, v| sum + (*v as f32 - average).powi(2));
        let entries = || held.iter().map(|(osd, v)| (*osd, *v));
        Some(Self {
            average,
            deviation: (squares / n).sqrt(),
            expected: (f64::from(average) * (1.0 - 1.0 / f64::from(n))).sqrt() as f32,
            least: entries().min_by_key(|(_, v)| *v)?,
            // The first of those with the most.
            most: entries().rev().max_by_key(|(_, v)| *v)?,
        })
    }

    fn text(&self) -> String {
        let six = |v: f32| general(v.into(), 6);
        let mut out = format!("avg {}\n", six(self.average));
        out += &format!("stddev {} (expected baseline {})\n", six(self.deviation), six(self.expected));
        let edge = |name: &str, (osd, pgs): (i32, u32)| {
            format!("{name} osd.{osd} with {pgs} pgs ({} * mean)", six(pgs as f32 / self.average))
        };
        out += &format!("{}\n{}\n", edge("min", self.least), edge("max", self.most));
        out
    }

    fn json(&self) -> Value {
        json!({
            "avg_pgs": f64::from(self.average),
            "std_dev": f64::from(self.deviation),
            "expected_baseline_std_dev": f64::from(self.expected),
            "min_osd": self.least.0,
            "min_osd_pgs": self.least.1,
            "max_osd": self.most.0,
            "max_osd_pgs": self.most.1,
        })
    }
}
