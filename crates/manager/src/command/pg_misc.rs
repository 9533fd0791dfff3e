//! Short commands on PG statistics: `pg stat`, `pg getmap`, `pg debug`, `osd perf`, `osd blocked-by`, `osd pool stats`.
//!
//! Source: process_pg_map_command, PGMapDigest::print_oneline_summary, recovery_summary, recovery_rate_summary,
//! client_io_rate_summary and PGMap::dump_pool_stats_and_io_rate in src/mon/PGMap.cc.

use std::collections::BTreeMap;
use std::time::Duration;

use codec::{Encode, Writer};
use messages::pg_state;
use messages::stats::ObjectStatSum;
use monitor::command::{Format, Reply};
use monitor::text::table::TextTable;
use monitor::text::units::{bytes, bytes_signed, count_signed};
use serde_json::{Map, Value, json};
use types::{Errno, PoolId};

use super::pg_dump::{pg_info, with_warning};
use crate::command::{Command, Ctx};
use crate::dump;
use crate::health::share;
use crate::sums::Sums;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("pg stat", "show placement group status.", "pg", "r", pg_stat),
    Command::new("pg getmap", "get binary pg map to -o/stdout", "pg", "r", getmap),
    Command::new(
        "pg debug name=debugop,type=CephChoices,strings=unfound_objects_exist|degraded_pgs_exist",
        "show debug info about pgs",
        "pg",
        "r",
        debug,
    ),
    Command::new("osd perf", "print dump of OSD perf summary stats", "osd", "r", osd_perf),
    Command::new(
        "osd blocked-by",
        "print histogram of which OSDs are blocking their peers",
        "osd",
        "r",
        blocked_by,
    ),
    Command::new(
        "osd pool stats name=pool_name,type=CephPoolname,req=false",
        "obtain stats from all pools, or from specified pool",
        "osd",
        "r",
        pool_stats,
    ),
];

type Object = Map<String, Value>;

fn pg_stat(ctx: &mut Ctx<'_>) -> Reply {
    let sums = Sums::of(ctx.pgs);
    let sum = &sums.total.stats.sum;
    let fs = &sums.osds.statfs;
    let mut io = Object::new();
    let (recovery, mut text) = recovery(sum);
    let growth = ctx.pgs.growth();
    let mut plain = client_io(growth.as_ref(), &mut io);
    io.extend(recovery);
    if let Some((fields, rate)) = growth.as_ref().and_then(recovery_rate) {
        io.extend(fields);
        text.push(format!("{rate} recovering"));
    }
    text.iter().for_each(|t| plain += &format!("; {t}"));
    let states: Vec<String> =
        sums.by_state.iter().map(|(state, n)| format!("{n} {}", pg_state::to_text(*state))).collect();
    let line = || {
        format!(
            "{} pgs: {}; {} data, {} used, {} / {} avail{plain}\n",
            sums.num_pg,
            states.join(", "),
            bytes_signed(sum.num_bytes),
            bytes(fs.used()),
            bytes(fs.available),
            bytes(fs.total),
        )
    };
    let value = || {
        let state = |(s, n): (&u64, &u32)| json!({ "name": pg_state::to_text(*s), "num": n });
        let summary = json!({
            "num_pg_by_state": sums.by_state.iter().map(state).collect::<Vec<_>>(),
            "num_pgs": sums.num_pg,
            "num_bytes": sum.num_bytes,
            "total_bytes": fs.total,
            "total_avail_bytes": fs.available,
            "total_used_bytes": fs.used(),
            "total_used_raw_bytes": fs.used_raw(),
        });
        pg_info(ctx, json!({ "pg_summary": dump::merge(summary, Value::Object(io.clone())) }))
    };
    let reply = Reply::show(ctx.format, line, value);
    with_warning(ctx, reply)
}

/// Per second; what shrank counts as unchanged.
fn per_second(n: i64, span: Duration) -> i64 {
    (n.max(0) as f64 / span.as_secs_f64()) as i64
}

/// The rates of `pg stat`, with a separator in front.
fn client_io(growth: Option<&(Duration, ObjectStatSum)>, io: &mut Object) -> String {
    let Some((span, d)) = growth.filter(|(_, d)| d.num_rd > 0 || d.num_wr > 0) else { return String::new() };
    let mut text = "; ".to_owned();
    if d.num_rd > 0 {
        let rate = per_second(d.num_rd_kb << 10, *span);
        text += &format!("{}/s rd, ", bytes_signed(rate));
        io.insert("read_bytes_sec".to_owned(), rate.into());
    }
    if d.num_wr > 0 {
        let rate = per_second(d.num_wr_kb << 10, *span);
        text += &format!("{}/s wr, ", bytes_signed(rate));
        io.insert("write_bytes_sec".to_owned(), rate.into());
    }
    let ops = per_second(d.num_rd.max(0) + d.num_wr.max(0), *span);
    io.insert("io_sec".to_owned(), ops.into());
    text + &format!("{} op/s", count_signed(ops))
}

/// What is not where or as often as it should be: as fields and as lines.
fn recovery(sum: &ObjectStatSum) -> (Object, Vec<String>) {
    let (mut fields, mut lines) = (Object::new(), Vec::new());
    for (what, n, of) in [
        ("degraded", sum.num_objects_degraded, sum.num_object_copies),
        ("misplaced", sum.num_objects_misplaced, sum.num_object_copies),
        ("unfound", sum.num_objects_unfound, sum.num_objects),
    ] {
        if n != 0 && of > 0 {
            fields.insert(format!("{what}_objects"), n.into());
            fields.insert(format!("{what}_total"), of.into());
            fields.insert(format!("{what}_ratio"), (n as f64 / of as f64).into());
            lines.push(share(n, of, what));
        }
    }
    (fields, lines)
}

fn recovery_rate((span, d): &(Duration, ObjectStatSum)) -> Option<(Object, String)> {
    let (objects, data, keys) = (d.num_objects_recovered, d.num_bytes_recovered, d.num_keys_recovered);
    if objects <= 0 && data <= 0 && keys <= 0 {
        return None;
    }
    let rate = |n: i64| per_second(n, *span);
    let fields = json!({
        "recovering_objects_per_sec": rate(objects),
        "recovering_bytes_per_sec": rate(data),
        "recovering_keys_per_sec": rate(keys),
        "num_objects_recovered": objects.max(0),
        "num_bytes_recovered": data.max(0),
        "num_keys_recovered": keys.max(0),
    });
    let mut text = format!("{}/s", bytes_signed(rate(data)));
    if keys > 0 {
        text += &format!(", {} keys/s", count_signed(rate(keys)));
    }
    text += &format!(", {} objects/s", count_signed(rate(objects)));
    Some((object(fields), text))
}

fn object(value: Value) -> Object {
    match value {
        Value::Object(object) => object,
        _ => Object::new(),
    }
}

/// Source: PGMap::encode (version 8).
fn getmap(ctx: &mut Ctx<'_>) -> Reply {
    let mut w = Writer::new();
    let pgs = ctx.pgs;
    w.envelope(8, 8, |w| {
        w.u64(pgs.version);
        pgs.pgs.encode(w);
        w.u32(pgs.osds.len() as u32);
        for (osd, report) in &pgs.osds {
            osd.encode(w);
            report.stat.encode(w);
        }
        // Epochs of the last map and scan, which nobody keeps any more.
        w.u32(0);
        w.u32(0);
        pgs.stamp.encode(w);
        let mut by_pool = BTreeMap::new();
        for (osd, report) in &pgs.osds {
            by_pool.extend(report.pools.iter().map(|(pool, statfs)| ((pool.0, osd.0), *statfs)));
        }
        by_pool.encode(w);
    });
    let reply = Reply::data(w.into_bytes()).with_outs(format!("got pgmap version {}", pgs.version));
    with_warning(ctx, reply)
}

fn debug(ctx: &mut Ctx<'_>) -> Reply {
    let count = |s: &ObjectStatSum| match ctx.args.text("debugop") {
        Some("degraded_pgs_exist") => s.num_objects_degraded,
        _ => s.num_objects_unfound,
    };
    let found = ctx.pgs.pgs.values().any(|s| count(&s.stats.sum) > 0);
    with_warning(ctx, Reply::text(if found { "TRUE\n" } else { "FALSE\n" }))
}

fn osd_perf(ctx: &mut Ctx<'_>) -> Reply {
    let osds = || ctx.pgs.osds.iter().map(|(osd, r)| (osd.0, r.stat.perf));
    let plain = || {
        let mut table = TextTable::new().right("osd").right("commit_latency(ms)").right("apply_latency(ms)");
        for (osd, perf) in osds() {
            let ms = |ns: u64| (ns / 1_000_000).to_string();
            table.row([osd.to_string(), ms(perf.commit_latency_ns), ms(perf.apply_latency_ns)]);
        }
        table.render()
    };
    let value = || {
        let infos = osds().map(|(osd, perf)| json!({ "id": osd, "perf_stats": dump::perf_stat(&perf) }));
        pg_info(ctx, json!({ "osdstats": { "osd_perf_infos": infos.collect::<Vec<_>>() } }))
    };
    let reply = Reply::show(ctx.format, plain, value);
    with_warning(ctx, reply)
}

fn blocked_by(ctx: &mut Ctx<'_>) -> Reply {
    let sums = Sums::of(ctx.pgs);
    let plain = || {
        let mut table = TextTable::new().right("osd").right("num_blocked");
        sums.blocked_by.iter().for_each(|(osd, n)| table.row([osd.to_string(), n.to_string()]));
        table.render()
    };
    let value = || {
        let infos = sums.blocked_by.iter().map(|(osd, n)| json!({ "id": osd, "num_blocked": n }));
        pg_info(ctx, json!({ "osd_blocked_by": { "osd_blocked_by_infos": infos.collect::<Vec<_>>() } }))
    };
    let reply = Reply::show(ctx.format, plain, value);
    with_warning(ctx, reply)
}

fn pool_stats(ctx: &mut Ctx<'_>) -> Reply {
    let pools: Vec<PoolId> = match ctx.args.text("pool_name").filter(|n| !n.is_empty()) {
        Some(name) => match ctx.map.pool_by_name(name) {
            Some(pool) => vec![pool],
            None => return Reply::error(Errno::ENOENT, format!("unrecognized pool '{name}'")),
        },
        None => ctx.map.pools.keys().copied().collect(),
    };
    if pools.is_empty() && ctx.format == Format::Plain {
        return Reply::done("there are no pools!");
    }
    let sums = Sums::of(ctx.pgs);
    let (mut text, mut values) = (String::new(), Vec::new());
    for pool in pools {
        let (plain, value) = one_pool(ctx, &sums, pool);
        text += &plain;
        values.push(value);
    }
    Reply::show(ctx.format, || text, || Value::Array(values))
}

fn one_pool(ctx: &Ctx<'_>, sums: &Sums, pool: PoolId) -> (String, Value) {
    let name = ctx.map.pool_name(pool).unwrap_or_default();
    let growth = ctx.pgs.pool_growth(pool);
    let sum = sums.pools.get(&pool).map(|p| p.stat.stats.sum).unwrap_or_default();
    let (recovery, mut lines) = recovery(&sum);
    let recovering = growth.as_ref().and_then(recovery_rate);
    let client = growth.as_ref().and_then(client_rate);
    lines.extend(recovering.iter().map(|(_, text)| format!("recovery io {text}")));
    lines.extend(client.iter().map(|(_, text)| format!("client io {text}")));
    if lines.is_empty() {
        lines.push("nothing is going on".to_owned());
    }
    let lines: String = lines.iter().map(|l| format!("  {l}\n")).collect();
    let mut value = json!({
        "pool_name": name,
        "pool_id": pool.0,
        "recovery": recovery,
        "recovery_rate": recovering.map(|(fields, _)| fields).unwrap_or_default(),
        "client_io_rate": client.map(|(fields, _)| fields).unwrap_or_default(),
    });
    if ctx.map.pool(pool).is_some_and(maps::Pool::is_tier) {
        value = dump::merge(value, json!({ "cache_io_rate": {} }));
    }
    (format!("pool {name} id {pool}\n{lines}\n"), value)
}

fn client_rate((span, d): &(Duration, ObjectStatSum)) -> Option<(Object, String)> {
    if d.num_rd <= 0 && d.num_wr <= 0 {
        return None;
    }
    let (mut fields, mut text) = (Object::new(), String::new());
    for (n, kb, name, short) in
        [(d.num_rd, d.num_rd_kb, "read_bytes_sec", "rd"), (d.num_wr, d.num_wr_kb, "write_bytes_sec", "wr")]
    {
        if n > 0 {
            let rate = per_second(kb << 10, *span);
            fields.insert(name.to_owned(), rate.into());
            text += &format!("{}/s {short}, ", bytes_signed(rate));
        }
    }
    let (reads, writes) = (per_second(d.num_rd, *span), per_second(d.num_wr, *span));
    fields.insert("read_op_per_sec".to_owned(), reads.into());
    fields.insert("write_op_per_sec".to_owned(), writes.into());
    text += &format!("{} op/s rd, {} op/s wr", count_signed(reads), count_signed(writes));
    Some((fields, text))
}
