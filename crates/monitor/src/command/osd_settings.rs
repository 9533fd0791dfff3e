//! Settings of the OSD map as a whole: ratios, bounds, releases, blocklist, exceptions to placement; and the map itself.
//!
//! Source: OSDMonitor::prepare_command_impl, preprocess_command.

use std::time::Duration;

use maps::Release;
use types::{AddrKind, EntityAddr, Errno, PgId};

use crate::command::osd_state::NONE_UP;
use crate::command::{ArgValue, Command, Handler, Reply, WriteCtx, flags};
use crate::service::pool::has_no_room_for_steps_of;
use crate::text::six_digits;

pub(super) const COMMANDS: &[Command] = &[
    write("osd setmaxosd name=newmax,type=CephInt,range=0", "size of the table of OSDs", setmaxosd),
    write(
        "osd set-full-ratio name=ratio,type=CephFloat,range=0.0|1.0",
        "share of an OSD in use from which it takes no more writes",
        |ctx| ratio(ctx, "full"),
    ),
    write(
        "osd set-backfillfull-ratio name=ratio,type=CephFloat,range=0.0|1.0",
        "share of an OSD in use from which it takes no more backfill",
        |ctx| ratio(ctx, "backfillfull"),
    ),
    write(
        "osd set-nearfull-ratio name=ratio,type=CephFloat,range=0.0|1.0",
        "share of an OSD in use from which health warns",
        |ctx| ratio(ctx, "nearfull"),
    ),
    write(
        "osd set-require-min-compat-client name=version,type=CephString \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "oldest client release that placement must suit",
        set_min_compat,
    ),
    write(
        "osd require-osd-release name=release,type=CephChoices,strings=octopus|pacific|quincy \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "oldest OSD release that may take part",
        require_release,
    ),
    write(
        "osd blocklist name=blocklistop,type=CephChoices,strings=add|rm name=addr,type=CephEntityAddr \
         name=expire,type=CephFloat,range=0.0,req=false",
        "shut out a client address for a while, or let it in again",
        |ctx| blocklist(ctx, "blocklistop"),
    ),
    deprecated(
        "osd blacklist name=blacklistop,type=CephChoices,strings=add|rm name=addr,type=CephEntityAddr \
         name=expire,type=CephFloat,range=0.0,req=false",
        "old name of osd blocklist",
        Handler::Write(|ctx| blocklist(ctx, "blacklistop")),
        "rw",
    ),
    write("osd blocklist clear", "let every shut-out client in again", blocklist_clear),
    deprecated(
        "osd blacklist clear",
        "old name of osd blocklist clear",
        Handler::Write(blocklist_clear),
        "rw",
    ),
    write(
        "osd pg-temp name=pgid,type=CephPgid name=id,type=CephOsdName,n=N,req=false",
        "acting set of a PG for a while (for developers)",
        pg_temp,
    ),
    write(
        "osd primary-temp name=pgid,type=CephPgid name=id,type=CephOsdName",
        "primary of a PG for a while, -1 for none (for developers)",
        primary_temp,
    ),
    write(
        "osd pg-upmap name=pgid,type=CephPgid name=id,type=CephOsdName,n=N",
        "OSDs of a PG in place of what CRUSH gives",
        pg_upmap,
    ),
    write("osd rm-pg-upmap name=pgid,type=CephPgid", "let CRUSH place a PG again", |ctx| rm_upmap(ctx, true)),
    write(
        "osd pg-upmap-items name=pgid,type=CephPgid name=id,type=CephOsdName,n=N",
        "exchange OSDs of a PG, in pairs of from and to",
        pg_upmap_items,
    ),
    write("osd rm-pg-upmap-items name=pgid,type=CephPgid", "take back the exchanges of a PG", |ctx| {
        rm_upmap(ctx, false)
    }),
];

const fn write(sig: &'static str, help: &'static str, handler: fn(&mut WriteCtx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "osd", perm: "rw", flags: flags::NONE, handler: Handler::Write(handler) }
}

const fn deprecated(sig: &'static str, help: &'static str, handler: Handler, perm: &'static str) -> Command {
    Command { sig, help, module: "osd", perm, flags: flags::DEPRECATED, handler }
}

fn setmaxosd(ctx: &mut WriteCtx<'_>) -> Reply {
    let max = ctx.args.int("newmax").unwrap_or(0);
    let bound = ctx.settings.number(ctx.state(), "mon_max_osd") as i64;
    if max > bound {
        let text = format!("cannot set max_osd to {max} which is > conf.mon_max_osd ({bound})");
        return Reply::error(Errno::ERANGE, text);
    }
    let map = ctx.osdmap();
    let in_use = (0..map.max_osd()).find(|id| i64::from(*id) >= max && map.exists(*id));
    if let Some(id) = in_use {
        let text =
            format!("cannot shrink max_osd to {max} because osd.{id} (and possibly others) still in use");
        return Reply::error(Errno::EBUSY, text);
    }
    ctx.osdmap_mut().set_max_osd(usize::try_from(max).unwrap_or(0));
    Reply::done(format!("set new max_osd = {max}"))
}

fn ratio(ctx: &mut WriteCtx<'_>, which: &str) -> Reply {
    let value = ctx.args.float("ratio").unwrap_or(0.0);
    let map = ctx.osdmap_mut();
    let slot = match which {
        "full" => &mut map.full_ratio,
        "backfillfull" => &mut map.backfillfull_ratio,
        _ => &mut map.nearfull_ratio,
    };
    *slot = value as f32;
    Reply::done(format!("osd set-{which}-ratio {}", six_digits(value)))
}

fn set_min_compat(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("version");
    let Some(release) = Release::from_name(name) else {
        return Reply::error(Errno::EINVAL, format!("version {name} is not recognized"));
    };
    if release > Release(types::features::OUR_RELEASE) {
        return Reply::error(Errno::EPERM, format!("version {name} is newer than this release"));
    }
    ctx.osdmap_mut().require_min_compat_client = release;
    Reply::done(format!("set require_min_compat_client to {name}"))
}

fn require_release(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("release");
    let Some(release) = Release::from_name(name) else {
        return Reply::error(Errno::EINVAL, format!("unrecognized release {name}"));
    };
    let now = ctx.osdmap().require_osd_release;
    if release == now {
        return Reply::ok();
    }
    if ctx.osdmap().counts().up == 0 && !ctx.args.flag("yes_i_really_mean_it") {
        return Reply::error(Errno::EPERM, NONE_UP);
    }
    if release < now {
        return Reply::error(Errno::EPERM, "require_osd_release cannot be lowered once it has been set");
    }
    Reply::error(Errno::EPERM, "not supported for this release yet")
}

/// `ip[:port][/nonce]`; without a protocol the entry holds for every one.
fn parse_addr(text: &str) -> Option<EntityAddr> {
    let addr = EntityAddr::parse(text, AddrKind::Any).filter(|a| !a.is_blank())?;
    Some(EntityAddr { kind: AddrKind::Any, ..addr })
}

fn blocklist(ctx: &mut WriteCtx<'_>, op: &str) -> Reply {
    let text = ctx.args.text_or_empty("addr");
    let Some(addr) = parse_addr(text) else {
        return Reply::error(Errno::EINVAL, format!("unable to parse address {text}"));
    };
    let shown = addr.without_kind();
    if ctx.args.text(op) == Some("rm") {
        if ctx.osdmap().blocklist.contains_key(&addr) {
            ctx.osdmap_mut().blocklist.remove(&addr);
            return Reply::done(format!("un-blocklisting {shown}"));
        }
        return Reply::done(format!("{shown} isn't blocklisted"));
    }
    if has_no_room_for_steps_of(ctx.session, ctx.state(), ctx.settings) {
        let text = "the monitors keep so many OSD maps for unclean PGs that clients make no more of them";
        return Reply::error(Errno::ENOSPC, text.to_owned());
    }
    let default = ctx.settings.number(ctx.state(), "mon_osd_blocklist_default_expire");
    let secs = ctx.args.float("expire").unwrap_or(default).clamp(0.0, 1e9);
    // A leader whose clock is behind may be replaced by one that would see the entry's end at once.
    let now = ctx.settings.quorum.fastest_wall(ctx.now.wall);
    let until = now.plus(Duration::from_secs_f64(secs));
    // An increment adds or removes an entry but cannot move its end: a longer one replaces it through removal.
    ctx.osdmap_mut().blocklist.entry(addr).or_insert(until);
    Reply::done(format!("blocklisting {shown} until {until} ({} sec)", six_digits(secs)))
}

fn blocklist_clear(ctx: &mut WriteCtx<'_>) -> Reply {
    ctx.osdmap_mut().blocklist.clear();
    ctx.osdmap_mut().range_blocklist.clear();
    Reply::done(" removed all blocklist entries")
}

/// The PG that `pgid` names, whether it exists or not.
pub(super) fn pg_parsed(ctx: &WriteCtx<'_>) -> Result<PgId, Reply> {
    let text = ctx.args.text_or_empty("pgid");
    PgId::parse(text).ok_or_else(|| Reply::error(Errno::EINVAL, format!("invalid pgid '{text}'")))
}

/// The PG that `pgid` names, which must exist.
pub(super) fn pg_arg(ctx: &WriteCtx<'_>, missing: &dyn Fn(PgId) -> String) -> Result<PgId, Reply> {
    let pg = pg_parsed(ctx)?;
    if ctx.osdmap().pg_exists(pg) { Ok(pg) } else { Err(Reply::error(Errno::ENOENT, missing(pg))) }
}

fn existing_pg(ctx: &WriteCtx<'_>) -> Result<PgId, Reply> {
    pg_arg(ctx, &|pg| format!("pg {pg} does not exist"))
}

fn given_ids(ctx: &WriteCtx<'_>) -> Vec<i64> {
    match ctx.args.get("id") {
        Some(ArgValue::IntList(ids)) => ids.clone(),
        _ => Vec::new(),
    }
}

fn known_osd(ctx: &WriteCtx<'_>, id: i64) -> Result<i32, Reply> {
    let known = i32::try_from(id).ok().filter(|id| ctx.osdmap().exists(*id));
    known.ok_or_else(|| Reply::error(Errno::ENOENT, format!("osd.{id} does not exist")))
}

fn osd_list(ctx: &WriteCtx<'_>) -> Result<Vec<i32>, Reply> {
    given_ids(ctx).into_iter().map(|id| known_osd(ctx, id)).collect()
}

/// Refuses more OSDs than the pool has copies, and fewer than it serves with.
fn check_count(ctx: &WriteCtx<'_>, pg: PgId, osds: usize) -> Result<(), Reply> {
    let pool = ctx.osdmap().pool(pg.pool);
    let (min, size) = pool.map_or((0, 0), |p| (usize::from(p.min_size), usize::from(p.size)));
    let refuse = |text: String| Err(Reply::error(Errno::EINVAL, text));
    match osds {
        n if n < min => refuse(format!("num of osds ({n}) < pool min size ({min})")),
        n if n > size => refuse(format!("num of osds ({n}) > pool size ({size})")),
        _ => Ok(()),
    }
}

fn list_text(osds: &[i32]) -> String {
    osds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn pg_temp(ctx: &mut WriteCtx<'_>) -> Reply {
    let (pg, osds) = match existing_pg(ctx).and_then(|pg| Ok((pg, osd_list(ctx)?))) {
        Ok(parsed) => parsed,
        Err(reply) => return reply,
    };
    if osds.is_empty() {
        ctx.osdmap_mut().pg_temp.remove(&pg);
        return Reply::done(format!("done cleaning up pg_temp of {pg}"));
    }
    if let Err(reply) = check_count(ctx, pg, osds.len()) {
        return reply;
    }
    ctx.osdmap_mut().pg_temp.insert(pg, osds.clone());
    Reply::done(format!("set {pg} pg_temp mapping to [{}]", list_text(&osds)))
}

fn primary_temp(ctx: &mut WriteCtx<'_>) -> Reply {
    let pg = match existing_pg(ctx) {
        Ok(pg) => pg,
        Err(reply) => return reply,
    };
    let id = i32::try_from(ctx.args.int("id").unwrap_or(-1)).unwrap_or(-1);
    if id != -1 && !ctx.osdmap().exists(id) {
        return Reply::error(Errno::ENOENT, format!("osd.{id} does not exist"));
    }
    let map = ctx.osdmap_mut();
    if id == -1 {
        map.primary_temp.remove(&pg);
    } else {
        map.primary_temp.insert(pg, id);
    }
    Reply::done(format!("set {pg} primary_temp mapping to {id}"))
}

/// Upmaps change placement in a way that clients before Luminous do not know.
fn upmap_allowed(ctx: &WriteCtx<'_>) -> Result<(), Reply> {
    let release = ctx.osdmap().require_min_compat_client;
    if release >= Release::LUMINOUS {
        return Ok(());
    }
    let text = format!(
        "min_compat_client {release} < luminous, which is required for pg-upmap. Try 'ceph osd \
         set-require-min-compat-client luminous' before using the new interface"
    );
    Err(Reply::error(Errno::EPERM, text))
}

fn pg_upmap(ctx: &mut WriteCtx<'_>) -> Reply {
    let parsed = upmap_allowed(ctx).and_then(|()| existing_pg(ctx));
    let checked = parsed.and_then(|pg| {
        check_count(ctx, pg, given_ids(ctx).len())?;
        Ok((pg, osd_list(ctx)?))
    });
    let (pg, given) = match checked {
        Ok(checked) => checked,
        Err(reply) => return reply,
    };
    let (mut osds, mut said) = (Vec::new(), String::new());
    for osd in given {
        match osds.contains(&osd) {
            true => said += &format!("osd.{osd} already exists, "),
            false => osds.push(osd),
        }
    }
    let text = list_text(&osds);
    ctx.osdmap_mut().pg_upmap.insert(pg, osds);
    Reply::done(format!("{said}set {pg} pg_upmap mapping to [{text}]"))
}

fn pg_upmap_items(ctx: &mut WriteCtx<'_>) -> Reply {
    let pg = match upmap_allowed(ctx).and_then(|()| existing_pg(ctx)) {
        Ok(pg) => pg,
        Err(reply) => return reply,
    };
    let (ids, size) = (given_ids(ctx), ctx.osdmap().pool(pg.pool).map_or(0, |p| usize::from(p.size)));
    if ids.len() % 2 != 0 {
        return Reply::error(Errno::EINVAL, "you must specify pairs of osd ids to be remapped");
    }
    if ids.len() / 2 > size {
        let text = format!("num of osd pairs ({}) > pool size ({size})", ids.len() / 2);
        return Reply::error(Errno::EINVAL, text);
    }
    let (mut items, mut said) = (Vec::new(), String::new());
    for pair in ids.chunks_exact(2) {
        let [from, to] = [pair.first(), pair.get(1)].map(|id| id.copied().unwrap_or(-1));
        if from == to {
            said += &format!("from osd.{from} == to osd.{to}, ");
            continue;
        }
        let pair = match known_osd(ctx, from).and_then(|from| Ok((from, known_osd(ctx, to)?))) {
            Ok(pair) => pair,
            Err(reply) => return reply,
        };
        match items.contains(&pair) {
            true => said += &format!("osd.{from} -> osd.{to} already exists, "),
            false => items.push(pair),
        }
    }
    if items.is_empty() {
        return Reply::error(Errno::EINVAL, said + "no valid upmap items(pairs) is specified");
    }
    let text: Vec<String> = items.iter().map(|(from, to)| format!("{from}->{to}")).collect();
    ctx.osdmap_mut().pg_upmap_items.insert(pg, items);
    Reply::done(format!("{said}set {pg} pg_upmap_items mapping to [{}]", text.join(",")))
}

fn rm_upmap(ctx: &mut WriteCtx<'_>, whole: bool) -> Reply {
    let pg = match upmap_allowed(ctx).and_then(|()| existing_pg(ctx)) {
        Ok(pg) => pg,
        Err(reply) => return reply,
    };
    let map = ctx.osdmap_mut();
    let what = if whole {
        map.pg_upmap.remove(&pg);
        "pg_upmap"
    } else {
        map.pg_upmap_items.remove(&pg);
        "pg_upmap_items"
    };
    Reply::done(format!("clear {pg} {what} mapping"))
}
