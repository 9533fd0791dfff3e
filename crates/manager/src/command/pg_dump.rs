//! `pg dump` and its kin: everything that is known of PGs, pools and OSDs' stores.
//!
//! Source: process_pg_map_command and PGMap::dump* in src/mon/PGMap.cc.

use std::collections::BTreeSet;
use std::time::Duration;

use messages::pg_state;
use messages::stats::{ObjectStatSum, PgStat, PoolStat};
use monitor::command::{Format, Reply};
use monitor::text::table::TextTable;
use monitor::text::units::bytes;
use serde_json::{Map, Value, json};
use types::PgId;

use crate::command::{Command, Ctx};
use crate::dump::{self, merge};
use crate::health::stuck_cutoff;
use crate::sums::Sums;
use crate::text::{join, osds, pg_osds, table};

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "pg dump name=dumpcontents,type=CephChoices,strings=all|summary|sum|delta|pools|osds|pgs|pgs_brief,n=N,req=false",
        "show human-readable versions of pg map (only 'all' valid with plain)",
        "pg",
        "r",
        |ctx| dump(ctx, ctx.args.list("dumpcontents")),
    ),
    Command::new(
        "pg dump_json name=dumpcontents,type=CephChoices,strings=all|summary|sum|pools|osds|pgs,n=N,req=false",
        "show human-readable version of pg map in json only",
        "pg",
        "r",
        |ctx| dump(ctx, vec!["all".to_owned()]),
    ),
    Command::new("pg dump_pools_json", "show pg pools info in json only", "pg", "r", |ctx| {
        dump(ctx, vec!["pools".to_owned()])
    }),
    Command::new(
        "pg dump_stuck name=stuckops,type=CephChoices,strings=inactive|unclean|stale|undersized|degraded,n=N,req=false \
         name=threshold,type=CephInt,req=false",
        "show information about stuck pgs",
        "pg",
        "r",
        dump_stuck,
    ),
];

/// The remark that goes with numbers of omap.
pub(super) const OMAP_NOTE: &str = "\n* NOTE: Omap statistics are gathered during deep scrub and may be inaccurate soon \
    afterwards depending on utilization. See \
    http://docs.ceph.com/en/latest/dev/placement-group/#omap-statistics for further details.\n";

/// Puts `pg_ready` in front, as all commands on PGs have it.
pub(super) fn pg_info(ctx: &Ctx<'_>, value: Value) -> Value {
    merge(json!({ "pg_ready": ctx.pgs.ready }), value)
}

/// The warning that a manager has only just started.
pub(super) fn with_warning(ctx: &Ctx<'_>, reply: Reply) -> Reply {
    if ctx.pgs.ready {
        return reply;
    }
    let warning = "Warning: due to ceph-mgr restart, some PG states may not be up to date\n";
    let outs = format!("{warning}{}", reply.outs);
    reply.with_outs(outs)
}

fn dump(ctx: &mut Ctx<'_>, what: Vec<String>) -> Reply {
    let mut what: BTreeSet<String> = what.into_iter().collect();
    if what.is_empty() {
        what.insert("all".to_owned());
    }
    let sums = Sums::of(ctx.pgs);
    let wants = |name: &str| what.contains(name);
    let reply =
        Reply::show(ctx.format, || plain(ctx, &sums, &wants), || pg_info(ctx, value(ctx, &sums, &wants)));
    with_warning(ctx, reply.with_outs(format!("dumped {}", join(&what))))
}

fn value(ctx: &Ctx<'_>, sums: &Sums, wants: &dyn Fn(&str) -> bool) -> Value {
    if wants("all") {
        let parts = [pg_stats(ctx, dump::pg_stat), pool_stats(sums), osd_stats(ctx)];
        return json!({ "pg_map": parts.into_iter().fold(basic(ctx, sums), merge) });
    }
    if wants("summary") || wants("sum") {
        return json!({ "pg_map": basic(ctx, sums) });
    }
    let mut out = Value::Object(Map::new());
    for (name, make) in [
        ("pools", (|_, sums| pool_stats(sums)) as fn(&Ctx<'_>, &Sums) -> Value),
        ("osds", |ctx, _| osd_stats(ctx)),
        ("pgs", |ctx, _| pg_stats(ctx, dump::pg_stat)),
        ("pgs_brief", |ctx, _| pg_stats(ctx, dump::pg_stat_brief)),
        ("delta", |ctx, _| json!({ "delta": delta(ctx) })),
    ] {
        if wants(name) {
            out = merge(out, make(ctx, sums));
        }
    }
    out
}

fn basic(ctx: &Ctx<'_>, sums: &Sums) -> Value {
    let head = json!({
        "version": ctx.pgs.version,
        "stamp": ctx.pgs.stamp.to_string(),
        "last_osdmap_epoch": 0,
        "last_pg_scan": 0,
        "pg_stats_sum": dump::pool_stat(&sums.total),
        "osd_stats_sum": dump::osd_stat(&sums.osds),
    });
    merge(head, delta(ctx))
}

fn delta(ctx: &Ctx<'_>) -> Value {
    let (span, sum) = ctx.pgs.growth().unwrap_or((Duration::ZERO, ObjectStatSum::default()));
    let mut stat = PoolStat::default();
    stat.stats.sum = sum;
    let span = format!("{}.{:06}", span.as_secs(), span.subsec_micros());
    json!({ "pg_stats_delta": merge(dump::pool_stat(&stat), json!({ "stamp_delta": span })) })
}

fn pg_stats(ctx: &Ctx<'_>, form: fn(&PgStat) -> Value) -> Value {
    json!({ "pg_stats": list(ctx.pgs.pgs.iter(), form) })
}

/// PGs with their ids.
pub(super) fn list<'a>(
    pgs: impl Iterator<Item = (&'a PgId, &'a PgStat)>,
    form: fn(&PgStat) -> Value,
) -> Value {
    pgs.map(|(pg, stat)| merge(json!({ "pgid": pg.to_string() }), form(stat))).collect()
}

fn pool_stats(sums: &Sums) -> Value {
    let pools = sums.pools.iter().map(|(id, pool)| {
        merge(json!({ "poolid": id.0, "num_pg": pool.num_pg }), dump::pool_stat(&pool.stat))
    });
    json!({ "pool_stats": pools.collect::<Vec<_>>() })
}

fn osd_stats(ctx: &Ctx<'_>) -> Value {
    let osds = ctx.pgs.osds.iter().map(|(osd, r)| merge(json!({ "osd": osd.0 }), dump::osd_stat(&r.stat)));
    let mut by_pool = Vec::new();
    for pool in ctx.map.pools.keys() {
        for (osd, report) in &ctx.pgs.osds {
            if let Some(statfs) = report.pools.get(pool) {
                by_pool.push(merge(json!({ "poolid": pool.0, "osd": osd.0 }), dump::statfs(statfs)));
            }
        }
    }
    json!({ "osd_stats": osds.collect::<Vec<_>>(), "pool_statfs": by_pool })
}

fn plain(ctx: &Ctx<'_>, sums: &Sums, wants: &dyn Fn(&str) -> bool) -> String {
    let all = ctx.pgs.pgs.iter();
    if wants("all") {
        let pgs = pg_table(all) + &pool_table(sums, false) + &sum_table(sums, false) + &osd_table(ctx, sums);
        return basic_text(ctx) + &pgs + OMAP_NOTE;
    }
    if wants("summary") || wants("sum") {
        return basic_text(ctx) + &sum_table(sums, true) + &osd_sum_table(sums) + OMAP_NOTE;
    }
    let mut out = String::new();
    if wants("pgs_brief") {
        out += &brief_table(all.clone());
    }
    if wants("pgs") {
        out += &pg_table(all);
    }
    if wants("pools") {
        out += &pool_table(sums, !wants("pgs"));
    }
    if wants("osds") {
        out += &osd_table(ctx, sums);
    }
    if wants("pgs") || wants("pools") {
        out += OMAP_NOTE;
    }
    out
}

fn basic_text(ctx: &Ctx<'_>) -> String {
    format!("version {}\nstamp {}\nlast_osdmap_epoch 0\nlast_pg_scan 0\n", ctx.pgs.version, ctx.pgs.stamp)
}

fn brief_table<'a>(pgs: impl Iterator<Item = (&'a PgId, &'a PgStat)>) -> String {
    let mut table = table(&["PG_STAT"], ["STATE", "UP", "UP_PRIMARY", "ACTING", "ACTING_PRIMARY"]);
    for (pg, s) in pgs {
        table.row([
            pg.to_string(),
            pg_state::to_text(s.state),
            osds(&s.up),
            s.up_primary.to_string(),
            osds(&s.acting),
            s.acting_primary.to_string(),
        ]);
    }
    table.render()
}

fn pg_table<'a>(pgs: impl Iterator<Item = (&'a PgId, &'a PgStat)>) -> String {
    let mut table = table(&["PG_STAT"], SUM_HEADINGS.into_iter().chain(PG_HEADINGS));
    for (pg, s) in pgs {
        let mut row = vec![pg.to_string()];
        row.extend(sum_cells(&s.stats.sum, s.log_size, s.ondisk_log_size));
        row.extend([
            pg_state::to_text(s.state),
            s.last_change.to_string(),
            s.version.to_string(),
            format!("{}:{}", s.reported_epoch, s.reported_seq),
            pg_osds(&s.up),
            s.up_primary.to_string(),
            pg_osds(&s.acting),
            s.acting_primary.to_string(),
            s.last_scrub.to_string(),
            s.last_scrub_stamp.to_string(),
            s.last_deep_scrub.to_string(),
            s.last_deep_scrub_stamp.to_string(),
            s.snaptrimq_len.to_string(),
        ]);
        table.row(row);
    }
    table.render()
}

const PG_HEADINGS: [&str; 13] = [
    "STATE",
    "STATE_STAMP",
    "VERSION",
    "REPORTED",
    "UP",
    "UP_PRIMARY",
    "ACTING",
    "ACTING_PRIMARY",
    "LAST_SCRUB",
    "SCRUB_STAMP",
    "LAST_DEEP_SCRUB",
    "DEEP_SCRUB_STAMP",
    "SNAPTRIMQ_LEN",
];

const SUM_HEADINGS: [&str; 10] = [
    "OBJECTS",
    "MISSING_ON_PRIMARY",
    "DEGRADED",
    "MISPLACED",
    "UNFOUND",
    "BYTES",
    "OMAP_BYTES*",
    "OMAP_KEYS*",
    "LOG",
    "DISK_LOG",
];

fn sum_cells(s: &ObjectStatSum, log_size: i64, ondisk_log_size: i64) -> [String; 10] {
    [
        s.num_objects,
        s.num_objects_missing_on_primary,
        s.num_objects_degraded,
        s.num_objects_misplaced,
        s.num_objects_unfound,
        s.num_bytes,
        s.num_omap_bytes,
        s.num_omap_keys,
        log_size,
        ondisk_log_size,
    ]
    .map(|v| v.to_string())
}

/// Headings are left out below another table with the same columns.
fn summing_table(first: &str, headings: bool) -> TextTable {
    if headings { table(&[first], SUM_HEADINGS) } else { table(&[""], [""; SUM_HEADINGS.len()]) }
}

fn pool_table(sums: &Sums, headings: bool) -> String {
    let mut table = summing_table("POOLID", headings);
    for (id, pool) in &sums.pools {
        let s = &pool.stat;
        let cells = sum_cells(&s.stats.sum, s.log_size, s.ondisk_log_size);
        table.row([id.to_string()].into_iter().chain(cells));
    }
    table.render()
}

fn sum_table(sums: &Sums, headings: bool) -> String {
    let mut table = summing_table("PG_STAT", headings);
    let s = &sums.total;
    table.row(["sum".to_owned()].into_iter().chain(sum_cells(&s.stats.sum, s.log_size, s.ondisk_log_size)));
    table.render()
}

fn osd_cells(first: String, s: &messages::stats::OsdStat) -> Vec<String> {
    let fs = &s.statfs;
    vec![first, bytes(fs.used()), bytes(fs.available), bytes(fs.used_raw()), bytes(fs.total)]
}

fn osd_table(ctx: &Ctx<'_>, sums: &Sums) -> String {
    let headings = ["USED", "AVAIL", "USED_RAW", "TOTAL", "HB_PEERS", "PG_SUM", "PRIMARY_PG_SUM"];
    let mut table = table(&["OSD_STAT"], headings);
    for (osd, report) in &ctx.pgs.osds {
        let mut row = osd_cells(osd.to_string(), &report.stat);
        let pgs = sums.osd_pgs(osd.0);
        row.extend([osds(&report.stat.hb_peers), pgs.acting.to_string(), pgs.primary.to_string()]);
        table.row(row);
    }
    table.row(osd_cells("sum".to_owned(), &sums.osds));
    table.render()
}

fn osd_sum_table(sums: &Sums) -> String {
    let mut table = table(&["OSD_STAT"], ["USED", "AVAIL", "USED_RAW", "TOTAL"]);
    table.row(osd_cells("sum".to_owned(), &sums.osds));
    table.render()
}

/// Source: PGMap::dump_stuck_pg_stats, PGMap::get_stuck_stats.
fn dump_stuck(ctx: &mut Ctx<'_>) -> Reply {
    let mut ops = ctx.args.list("stuckops");
    if ops.is_empty() {
        ops.push("unclean".to_owned());
    }
    let threshold = ctx.args.int("threshold").unwrap_or_else(|| ctx.options.int("mon_pg_stuck_threshold"));
    let cutoff = stuck_cutoff(ctx.now.wall, Duration::from_secs(u64::try_from(threshold).unwrap_or(0)));
    let is_stuck = |s: &PgStat| {
        ops.iter().any(|op| match op.as_str() {
            "inactive" => s.state & pg_state::ACTIVE == 0 && s.last_active < cutoff,
            "unclean" => s.state & pg_state::CLEAN == 0 && s.last_clean < cutoff,
            "degraded" => s.state & pg_state::DEGRADED != 0 && s.last_undegraded < cutoff,
            "undersized" => s.state & pg_state::UNDERSIZED != 0 && s.last_fullsized < cutoff,
            "stale" => s.state & pg_state::STALE != 0 && s.last_unstale < cutoff,
            _ => false,
        })
    };
    let stuck: Vec<(&PgId, &PgStat)> = ctx.pgs.pgs.iter().filter(|(_, s)| is_stuck(s)).collect();
    let rows = || stuck.iter().copied();
    let plain = || if stuck.is_empty() { String::new() } else { brief_table(rows()) };
    let value = || pg_info(ctx, json!({ "stuck_pg_stats": list(rows(), dump::pg_stat) }));
    let reply = match ctx.format {
        Format::Plain => Reply::text(plain()),
        format => Reply::json(format, &value()),
    };
    with_warning(ctx, reply.with_outs("ok"))
}
