//! `pg ls` and its kin: PGs by pool, OSD and state.
//!
//! Source: process_pg_map_command, PGMap::get_filtered_pg_stats and dump_filtered_pg_stats in src/mon/PGMap.cc.

use messages::pg_state;
use messages::stats::PgStat;
use monitor::command::{Format, Reply};
use serde_json::json;
use types::{Errno, PgId, PoolId};

use super::pg_dump::{OMAP_NOTE, list, pg_info, with_warning};
use crate::command::{Command, Ctx};
use crate::dump;
use crate::text::{pg_osds, table};

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "pg ls-by-pool name=poolstr,type=CephString name=states,type=CephString,n=N,req=false",
        "list pg with pool = [poolname]",
        "pg",
        "r",
        |ctx| {
            let name = ctx.args.text_or_empty("poolstr");
            match ctx.map.pool_by_name(name) {
                Some(pool) => show(ctx, Some(pool), None, false),
                None => Reply::error(Errno::ENOENT, format!("pool {name} does not exist")),
            }
        },
    ),
    Command::new(
        "pg ls-by-primary name=osd,type=CephOsdName name=pool,type=CephInt,req=false \
         name=states,type=CephString,n=N,req=false",
        "list pg with primary = [osd]",
        "pg",
        "r",
        |ctx| show(ctx, pool(ctx), ctx.args.int("osd"), true),
    ),
    Command::new(
        "pg ls-by-osd name=osd,type=CephOsdName name=pool,type=CephInt,req=false \
         name=states,type=CephString,n=N,req=false",
        "list pg on osd [osd]",
        "pg",
        "r",
        |ctx| show(ctx, pool(ctx), ctx.args.int("osd"), false),
    ),
    Command::new(
        "pg ls name=pool,type=CephInt,req=false name=states,type=CephString,n=N,req=false",
        "list pg with specific pool, osd, state",
        "pg",
        "r",
        |ctx| show(ctx, pool(ctx), None, false),
    ),
];

/// A negative number means any pool.
fn pool(ctx: &Ctx<'_>) -> Option<PoolId> {
    ctx.args.int("pool").filter(|id| *id >= 0).map(PoolId)
}

fn show(ctx: &mut Ctx<'_>, pool: Option<PoolId>, osd: Option<i64>, primary: bool) -> Reply {
    if let Some(pool) = pool.filter(|p| ctx.map.pool(*p).is_none()) {
        return Reply::error(Errno::ENOENT, format!("pool {pool} does not exist"));
    }
    let osd = match osd.filter(|id| *id >= 0) {
        Some(id) => match i32::try_from(id).ok().filter(|osd| ctx.map.is_up(*osd)) {
            Some(osd) => Some(osd),
            None => return Reply::error(Errno::EAGAIN, format!("osd {id} is not up")),
        },
        None => None,
    };
    let states = match states(ctx.args.list("states")) {
        Ok(states) => states,
        Err(reply) => return reply,
    };
    let wanted = |pg: &PgId, s: &PgStat| {
        pool.is_none_or(|p| p == pg.pool)
            && osd.is_none_or(|o| if primary { s.acting_primary == o } else { s.acting.contains(&o) })
            && (s.state & states != 0 || states == u64::MAX || states == 0 && s.state == 0)
    };
    let found: Vec<(&PgId, &PgStat)> = ctx.pgs.pgs.iter().filter(|(pg, s)| wanted(pg, s)).collect();
    let reply = match ctx.format {
        Format::Plain if found.is_empty() => Reply::ok(),
        Format::Plain => Reply::text(pg_table(ctx, &found)),
        format if found.is_empty() => Reply::json(format, &pg_info(ctx, json!({}))),
        format => {
            let pgs = list(found.iter().copied(), dump::pg_stat);
            Reply::json(format, &pg_info(ctx, json!({ "pg_stats": pgs })))
        }
    };
    with_warning(ctx, reply)
}

/// The bits of which a PG must have one. As in Ceph the last word is looked at first, and `all` ends the search.
fn states(words: Vec<String>) -> Result<u64, Reply> {
    if words.is_empty() {
        return Ok(u64::MAX);
    }
    let mut bits = 0;
    for word in words.iter().rev() {
        if word == "all" {
            return Ok(u64::MAX);
        }
        bits |= pg_state::by_name(word).ok_or_else(|| {
            let known = pg_state::to_text(0xffff_ffff);
            let text = format!("'{word}' is not a valid pg state, available choices: {known}");
            Reply::error(Errno::EINVAL, text)
        })?;
    }
    Ok(bits)
}

const HEADINGS: [&str; 16] = [
    "OBJECTS",
    "DEGRADED",
    "MISPLACED",
    "UNFOUND",
    "BYTES",
    "OMAP_BYTES*",
    "OMAP_KEYS*",
    "LOG",
    "STATE",
    "SINCE",
    "VERSION",
    "REPORTED",
    "UP",
    "ACTING",
    "SCRUB_STAMP",
    "DEEP_SCRUB_STAMP",
];

fn pg_table(ctx: &Ctx<'_>, pgs: &[(&PgId, &PgStat)]) -> String {
    let mut table = table(&["PG"], HEADINGS);
    for (pg, s) in pgs {
        let sum = &s.stats.sum;
        table.row([
            pg.to_string(),
            sum.num_objects.to_string(),
            sum.num_objects_degraded.to_string(),
            sum.num_objects_misplaced.to_string(),
            sum.num_objects_unfound.to_string(),
            sum.num_bytes.to_string(),
            sum.num_omap_bytes.to_string(),
            sum.num_omap_keys.to_string(),
            s.log_size.to_string(),
            pg_state::to_text(s.state),
            monitor::text::span(ctx.now.wall.since(s.last_change)),
            s.version.to_string(),
            format!("{}:{}", s.reported_epoch, s.reported_seq),
            format!("{}p{}", pg_osds(&s.up), s.up_primary),
            format!("{}p{}", pg_osds(&s.acting), s.acting_primary),
            s.last_scrub_stamp.to_string(),
            s.last_deep_scrub_stamp.to_string(),
        ]);
    }
    table.render() + OMAP_NOTE
}
