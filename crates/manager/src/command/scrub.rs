//! What OSDs are told to do with PGs: scrub, repair, and which to recover first.
//!
//! Source: DaemonServer::_handle_command in src/mgr/DaemonServer.cc.

use std::collections::{BTreeMap, BTreeSet};

use maps::OsdMap;
use messages::Message;
use messages::osd::{MOsdForceRecovery, MOsdScrub2};
use messages::pg_state as state;
use monitor::command::Reply;
use types::{Errno, PgId, SpgId};

use super::osd_safety::osd_id;
use crate::command::{Command, Ctx};
use crate::text::join;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("pg scrub name=pgid,type=CephPgid", "start scrub on <pgid>", "pg", "rw", scrub_pg),
    Command::new("pg deep-scrub name=pgid,type=CephPgid", "start deep-scrub on <pgid>", "pg", "rw", scrub_pg),
    Command::new("pg repair name=pgid,type=CephPgid", "start repair on <pgid>", "pg", "rw", scrub_pg),
    Command::new(
        "pg force-recovery name=pgid,type=CephPgid,n=N",
        "force recovery of <pgid> first",
        "pg",
        "rw",
        force_pgs,
    ),
    Command::new(
        "pg force-backfill name=pgid,type=CephPgid,n=N",
        "force backfill of <pgid> first",
        "pg",
        "rw",
        force_pgs,
    ),
    Command::new(
        "pg cancel-force-recovery name=pgid,type=CephPgid,n=N",
        "restore normal recovery priority of <pgid>",
        "pg",
        "rw",
        force_pgs,
    ),
    Command::new(
        "pg cancel-force-backfill name=pgid,type=CephPgid,n=N",
        "restore normal backfill priority of <pgid>",
        "pg",
        "rw",
        force_pgs,
    ),
    Command::new(
        "osd pool scrub name=who,type=CephPoolname,n=N",
        "initiate scrub on pool <who>",
        "osd",
        "rw",
        scrub_pools,
    ),
    Command::new(
        "osd pool deep-scrub name=who,type=CephPoolname,n=N",
        "initiate deep-scrub on pool <who>",
        "osd",
        "rw",
        scrub_pools,
    ),
    Command::new(
        "osd pool repair name=who,type=CephPoolname,n=N",
        "initiate repair on pool <who>",
        "osd",
        "rw",
        scrub_pools,
    ),
    Command::new(
        "osd pool force-recovery name=who,type=CephPoolname,n=N",
        "force recovery of specified pool <who> first",
        "osd",
        "rw",
        force_pools,
    ),
    Command::new(
        "osd pool force-backfill name=who,type=CephPoolname,n=N",
        "force backfill of specified pool <who> first",
        "osd",
        "rw",
        force_pools,
    ),
    Command::new(
        "osd pool cancel-force-recovery name=who,type=CephPoolname,n=N",
        "restore normal recovery priority of specified pool <who>",
        "osd",
        "rw",
        force_pools,
    ),
    Command::new(
        "osd pool cancel-force-backfill name=who,type=CephPoolname,n=N",
        "restore normal recovery priority of specified pool <who>",
        "osd",
        "rw",
        force_pools,
    ),
    Command::new(
        "osd scrub name=who,type=CephString",
        "initiate scrub on osd <who>, or use <all|any> to scrub all",
        "osd",
        "rw",
        scrub_osds,
    ),
    Command::new(
        "osd deep-scrub name=who,type=CephString",
        "initiate deep scrub on osd <who>, or use <all|any> to deep scrub all",
        "osd",
        "rw",
        scrub_osds,
    ),
    Command::new(
        "osd repair name=who,type=CephString",
        "initiate repair on osd <who>, or use <all|any> to repair all",
        "osd",
        "rw",
        scrub_osds,
    ),
];

/// The last word of the command says what to do.
fn verb<'a>(ctx: &Ctx<'a>) -> &'a str {
    ctx.prefix.rsplit(' ').next().unwrap_or_default()
}

fn scrub_message(ctx: &Ctx<'_>, pgs: Vec<SpgId>) -> Message {
    let (repair, deep) = (verb(ctx) == "repair", verb(ctx) == "deep-scrub");
    MOsdScrub2 { fsid: ctx.map.fsid, epoch: ctx.map.epoch, pgs, repair, deep }.into()
}

fn scrub_pg(ctx: &mut Ctx<'_>) -> Reply {
    let text = ctx.args.text_or_empty("pgid");
    let Some(pg) = PgId::parse(text) else {
        return Reply::error(Errno::EINVAL, format!("invalid pgid '{text}'"));
    };
    if !ctx.map.pg_exists(pg) {
        return Reply::error(Errno::ENOENT, format!("pg {pg} does not exist"));
    }
    let Some((osd, shard)) = ctx.map.primary_shard(pg) else {
        return Reply::error(Errno::EAGAIN, format!("pg {pg} has no primary osd"));
    };
    let message = scrub_message(ctx, vec![shard]);
    if !ctx.send_to_osd(osd, &message) {
        let text = format!("pg {pg} primary osd.{osd} is not currently connected");
        return Reply::error(Errno::EAGAIN, text);
    }
    Reply::done(format!("instructing pg {shard} on osd.{osd} to {}", verb(ctx)))
}

fn scrub_osds(ctx: &mut Ctx<'_>) -> Reply {
    let who = ctx.args.text_or_empty("who");
    let osds: BTreeSet<i32> = if matches!(who, "*" | "all" | "any") {
        ctx.map.existing_osds().filter(|(_, o)| o.is_up()).map(|(id, _)| id.0).collect()
    } else {
        match osd_id(who) {
            Ok(osd) if ctx.map.is_up(osd) => [osd].into(),
            Ok(osd) => return Reply::error(Errno::EAGAIN, format!("osd.{osd} is not up")),
            Err(why) => return Reply::error(Errno::EINVAL, format!("{why}invalid osd '{who}'")),
        }
    };
    let mut by_primary = by_primary(ctx.map, ctx.map.pgs());
    let (mut sent, mut failed) = (BTreeSet::new(), BTreeSet::new());
    for osd in &osds {
        let message = scrub_message(ctx, by_primary.remove(osd).unwrap_or_default());
        let set = if ctx.send_to_osd(*osd, &message) { &mut sent } else { &mut failed };
        set.insert(*osd);
    }
    let what = verb(ctx);
    // Ceph reports success either way.
    if failed.len() == osds.len() {
        return Reply::done(format!("failed to instruct osd(s) {} to {what} (not connected)", join(&osds)));
    }
    let mut text = format!("instructed osd(s) {} to {what}", join(&sent));
    if !failed.is_empty() {
        text += &format!("; osd(s) {} were not connected", join(&failed));
    }
    Reply::done(text)
}

fn by_primary(map: &OsdMap, pgs: impl Iterator<Item = PgId>) -> BTreeMap<i32, Vec<SpgId>> {
    let mut out: BTreeMap<i32, Vec<SpgId>> = BTreeMap::new();
    for (osd, shard) in pgs.filter_map(|pg| map.primary_shard(pg)) {
        out.entry(osd).or_default().push(shard);
    }
    out
}

/// Every PG of the pools that `who` names.
fn pgs_of_pools(ctx: &Ctx<'_>) -> Result<BTreeSet<PgId>, Reply> {
    let names = ctx.args.list("who");
    if names.is_empty() {
        return Err(Reply::error(Errno::EINVAL, "must specify one or more pool names"));
    }
    let mut out = BTreeSet::new();
    for name in names {
        let pool = ctx.map.pool_by_name(&name);
        let Some(pool) = pool.and_then(|id| Some((id, ctx.map.pool(id)?))) else {
            return Err(Reply::error(Errno::ENOENT, format!("unrecognized pool '{name}'")));
        };
        out.extend((0..pool.1.pg_num).map(|seed| PgId::new(pool.0, seed)));
    }
    Ok(out)
}

fn scrub_pools(ctx: &mut Ctx<'_>) -> Reply {
    let pgs = match pgs_of_pools(ctx) {
        Ok(pgs) => pgs,
        Err(reply) => return reply,
    };
    for (osd, shards) in by_primary(ctx.map, pgs.into_iter()) {
        let message = scrub_message(ctx, shards);
        if !ctx.send_to_osd(osd, &message) {
            return Reply::error(Errno::EAGAIN, format!("osd.{osd} is not currently connected"));
        }
    }
    Reply::ok()
}

fn force_pgs(ctx: &mut Ctx<'_>) -> Reply {
    let (mut pgs, mut outs, mut code) = (BTreeSet::new(), String::new(), 0);
    for text in ctx.args.list("pgid") {
        match PgId::parse(&text) {
            Some(pg) => {
                pgs.insert(pg);
            }
            None => {
                outs += &format!("invalid pgid '{text}'; ");
                code = Errno::EINVAL.neg();
            }
        }
    }
    force(ctx, pgs, outs, code)
}

fn force_pools(ctx: &mut Ctx<'_>) -> Reply {
    match pgs_of_pools(ctx) {
        Ok(pgs) => force(ctx, pgs, String::new(), 0),
        Err(reply) => reply,
    }
}

/// Asks for PGs to be recovered or backfilled first, or takes that back; those for which it makes no sense are left out.
fn force(ctx: &mut Ctx<'_>, pgs: BTreeSet<PgId>, mut outs: String, mut code: i32) -> Reply {
    let verb = verb(ctx);
    let cancel = verb.starts_with("cancel");
    let recovery = verb.ends_with("recovery");
    let (forced, needs, name, work) = match recovery {
        true => {
            let needs = state::DEGRADED | state::RECOVERY_WAIT | state::RECOVERING;
            (state::FORCED_RECOVERY, needs, "recovery", "recovery")
        }
        false => {
            let needs = state::DEGRADED | state::BACKFILL_WAIT | state::BACKFILLING;
            (state::FORCED_BACKFILL, needs, "backfill", "backfilling")
        }
    };
    let mut chosen = Vec::new();
    for pg in pgs {
        let (text, error) = match ctx.pgs.pgs.get(&pg).map(|s| s.state) {
            None => (format!("pg {pg} does not exist; "), Some(Errno::ENOENT)),
            Some(bits) if cancel && bits & forced == 0 => (format!("pg {pg} {name} not forced; "), None),
            Some(bits) if !cancel && bits & needs == 0 => (format!("pg {pg} doesn't require {work}; "), None),
            Some(bits) if !cancel && bits & forced != 0 => {
                (format!("pg {pg} {name} already forced; "), Some(Errno::EINVAL))
            }
            Some(_) => {
                chosen.push(pg);
                continue;
            }
        };
        outs += &text;
        code = error.map_or(code, Errno::neg);
    }
    if !chosen.is_empty() {
        code = 0;
    }
    let kind = if recovery { MOsdForceRecovery::RECOVERY } else { MOsdForceRecovery::BACKFILL };
    let options = if cancel { kind | MOsdForceRecovery::CANCEL } else { kind };
    for (osd, shards) in by_primary(ctx.map, chosen.into_iter()) {
        let list = join(&shards);
        let message = MOsdForceRecovery { fsid: ctx.map.fsid, pgs: shards, options }.into();
        if ctx.send_to_osd(osd, &message) {
            outs += &format!("instructing pg(s) [{list}] on osd.{osd} to {verb}; ");
        } else {
            outs += &format!("osd.{osd} is not currently connected");
            code = Errno::EAGAIN.neg();
        }
    }
    Reply { code, outs: outs + "\n", ..Reply::default() }
}
