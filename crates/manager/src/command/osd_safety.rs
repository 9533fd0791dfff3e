//! Whether OSDs can be stopped or destroyed: `osd ok-to-stop`, `osd safe-to-destroy`, `osd destroy`, `osd purge`.
//!
//! Source: DaemonServer::_check_offlines_pgs, _maximize_ok_to_stop_set and _handle_command in src/mgr/DaemonServer.cc
//! (16.2), OSDMap::parse_osd_id_list in src/osd/OSDMap.cc.

use std::collections::BTreeSet;

use bytes::Bytes;
use crush::ITEM_NONE;
use maps::OsdMap;
use messages::pg_state;
use messages::stats::PgStat;
use monitor::command::{Format, Reply};
use serde_json::{Map, Value, json};
use types::{Errno, OsdId, PgId};

use crate::command::{Command, Ctx};
use crate::pg_map::PgMap;
use crate::sums::Sums;
use crate::text::join;

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "osd destroy name=id,type=CephOsdName name=force,type=CephBool,req=false \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "mark osd as being destroyed. Keeps the ID intact (allowing reuse), but removes cephx keys, config-key data and \
         lockbox keys, rendering data permanently unreadable.",
        "osd",
        "rw",
        destroy,
    ),
    Command::new(
        "osd purge name=id,type=CephOsdName name=force,type=CephBool,req=false \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "purge all osd data from the monitors including the OSD id and CRUSH position",
        "osd",
        "rw",
        destroy,
    ),
    Command::new(
        "osd safe-to-destroy name=ids,type=CephString,n=N",
        "check whether osd(s) can be safely destroyed without reducing data durability",
        "osd",
        "r",
        safe_to_destroy,
    ),
    Command::new(
        "osd ok-to-stop name=ids,type=CephString,n=N name=max,type=CephInt,req=false",
        "check whether osd(s) can be safely stopped without reducing immediate data availability",
        "osd",
        "r",
        ok_to_stop,
    ),
];

/// The OSDs that the words name: numbers, `osd.3`, or `any`, `all`, `*` in the first place.
fn parse_ids(map: &OsdMap, words: &[String]) -> Result<BTreeSet<i32>, Reply> {
    let mut out = BTreeSet::new();
    for (i, word) in words.iter().enumerate() {
        if i == 0 && matches!(word.as_str(), "any" | "all" | "*") {
            return Ok(map.existing_osds().map(|(id, _)| id.0).collect());
        }
        let invalid = |why: String| Reply::error(Errno::EINVAL, format!("{why}invalid osd id '{word}'"));
        out.insert(osd_id(word).map_err(invalid)?);
    }
    if out.is_empty() {
        return Err(Reply::error(Errno::EINVAL, "must specify one or more OSDs"));
    }
    Ok(out)
}

/// `osd.3` or `3`; an error tells why not. Source: parse_osd_id in src/common/cmdparse.cc.
pub(super) fn osd_id(word: &str) -> Result<i32, String> {
    let digits = word.strip_prefix("osd.").unwrap_or(word);
    match digits.parse::<i64>() {
        Ok(id) if id > 0xffff => Err(format!("osd id {id} is too large")),
        Ok(id) => i32::try_from(id).ok().filter(|id| *id >= 0).ok_or_else(String::new),
        Err(_) => Err(format!("Expected option value to be integer, got '{digits}'")),
    }
}

fn unknown_pgs(n: usize) -> Reply {
    Reply::error(Errno::EAGAIN, format!("{n} pgs have unknown state; cannot draw any conclusions"))
}

/// What it would mean to destroy some OSDs.
#[derive(Default)]
struct Destruction {
    safe: BTreeSet<i32>,
    /// PGs are mapped to them.
    active: BTreeSet<i32>,
    /// They do not say what they store, and data is not complete elsewhere.
    missing_stats: BTreeSet<i32>,
    /// They store PGs, and data is not complete elsewhere.
    stored_pgs: BTreeSet<i32>,
    affected_pgs: u32,
}

impl Destruction {
    /// Fails while the state of PGs is unknown.
    fn judge(ctx: &Ctx<'_>, osds: &BTreeSet<i32>) -> Result<Self, Reply> {
        let sums = Sums::of(ctx.pgs);
        if sums.num_unknown > 0 {
            return Err(unknown_pgs(sums.num_unknown as usize));
        }
        let whole = pg_state::ACTIVE | pg_state::CLEAN;
        let clean: u32 = sums.by_state.iter().filter(|(s, _)| **s & whole == whole).map(|(_, n)| n).sum();
        let mut out = Self::default();
        for osd in osds {
            let pgs = sums.osd_pgs(*osd);
            let report = ctx.pgs.osds.get(&OsdId(*osd));
            if !ctx.map.exists(*osd) {
                out.safe.insert(*osd);
            } else if pgs.acting + pgs.up_not_acting > 0 {
                out.active.insert(*osd);
                out.affected_pgs += pgs.acting + pgs.up_not_acting;
            } else if clean < sums.num_pg && (report.is_none() || ctx.map.is_down(*osd)) {
                out.missing_stats.insert(*osd);
            } else if clean < sums.num_pg && report.is_some_and(|r| r.stat.num_pgs > 0) {
                out.stored_pgs.insert(*osd);
            } else {
                out.safe.insert(*osd);
            }
        }
        Ok(out)
    }

    /// Why not all of them are safe to destroy.
    fn objection(&self) -> Option<Reply> {
        if self.active.is_empty() && self.missing_stats.is_empty() && self.stored_pgs.is_empty() {
            return None;
        }
        let mut text = String::new();
        if !self.safe.is_empty() {
            text += &format!(
                "OSD(s) {} are safe to destroy without reducing data durability. ",
                join(&self.safe)
            );
        }
        if !self.active.is_empty() {
            let pgs = self.affected_pgs;
            text += &format!("OSD(s) {} have {pgs} pgs currently mapped to them. ", join(&self.active));
        }
        if !self.missing_stats.is_empty() {
            text += &format!(
                "OSD(s) {} have no reported stats, and not all PGs are active+clean; we cannot draw any conclusions. ",
                join(&self.missing_stats)
            );
        }
        if !self.stored_pgs.is_empty() {
            text += &format!(
                "OSD(s) {} last reported they still store some PG data, and not all PGs are active+clean; we cannot be \
                 sure they aren't still needed.",
                join(&self.stored_pgs)
            );
        }
        let busy = !self.active.is_empty() || !self.stored_pgs.is_empty();
        Some(Reply::error(if busy { Errno::EBUSY } else { Errno::EAGAIN }, text))
    }
}

fn safe_to_destroy(ctx: &mut Ctx<'_>) -> Reply {
    let judged = parse_ids(ctx.map, &ctx.args.list("ids"))
        .and_then(|osds| Destruction::judge(ctx, &osds).map(|judged| (osds, judged)));
    let (osds, judged) = match judged {
        Ok(judged) => judged,
        Err(reply) => return reply,
    };
    match ctx.format {
        Format::Plain => judged.objection().unwrap_or_else(|| {
            let osds = join(&osds);
            Reply::done(format!("OSD(s) {osds} are safe to destroy without reducing data durability."))
        }),
        format => Reply::json(
            format,
            &json!({
                "safe_to_destroy": judged.safe,
                "active": judged.active,
                "missing_stats": judged.missing_stats,
                "stored_pgs": judged.stored_pgs,
            }),
        ),
    }
}

/// Both `osd destroy` and `osd purge`: the monitors do it when it is safe, or forced.
fn destroy(ctx: &mut Ctx<'_>) -> Reply {
    let Some(id) = ctx.args.int("id") else { return Reply::error(Errno::EINVAL, "must specify OSD id") };
    let Ok(osd) = i32::try_from(id) else { return Reply::error(Errno::EINVAL, "invalid osd id") };
    let objection = match Destruction::judge(ctx, &BTreeSet::from([osd])) {
        Ok(judged) => judged.objection(),
        Err(reply) => Some(reply),
    };
    let force = ctx.args.flag("force") || ctx.args.flag("yes_i_really_mean_it");
    if let Some(reply) = objection.filter(|_| !force) {
        let outs = format!(
            "{}\nYou can proceed by passing --force, but be warned that this will likely mean real, permanent data loss.",
            reply.outs
        );
        return reply.with_outs(outs);
    }
    let command =
        json!({ "prefix": format!("{}-actual", ctx.prefix), "id": osd, "yes_i_really_mean_it": true });
    ctx.ask_monitors(&command, Bytes::new())
}

/// What happens to PGs when some OSDs stop.
#[derive(Debug, Clone, PartialEq, Default)]
struct Stop {
    osds: BTreeSet<i32>,
    ok: BTreeSet<PgId>,
    not_ok: BTreeSet<PgId>,
    unknown: BTreeSet<PgId>,
    become_degraded: BTreeSet<PgId>,
    become_more_degraded: BTreeSet<PgId>,
    no_pool: BTreeSet<PgId>,
    already_inactive: BTreeSet<PgId>,
    become_inactive: BTreeSet<PgId>,
}

impl Stop {
    fn judge(osds: BTreeSet<i32>, map: &OsdMap, pgs: &PgMap) -> Self {
        let mut out = Self { osds, ..Self::default() };
        for (pg, stat) in &pgs.pgs {
            out.judge_pg(*pg, stat, map);
        }
        out
    }

    fn judge_pg(&mut self, pg: PgId, stat: &PgStat, map: &OsdMap) {
        if stat.state == 0 {
            self.unknown.insert(pg);
            return;
        }
        let degraded = stat.state & pg_state::DEGRADED != 0;
        // Of a degraded PG only those count that miss nothing.
        let holders: Vec<i32> = match degraded {
            true => stat.avail_no_missing.iter().map(|s| s.osd).collect(),
            false => stat.acting.clone(),
        };
        let (stopping, staying): (BTreeSet<i32>, BTreeSet<i32>) =
            holders.into_iter().partition(|osd| self.osds.contains(osd));
        if stopping.is_empty() {
            return;
        }
        let left = staying.iter().filter(|osd| **osd != ITEM_NONE).count();
        let mut bad = false;
        let mut note = |set: &mut BTreeSet<PgId>, applies: bool| {
            if applies {
                set.insert(pg);
                bad = true;
            }
        };
        let pool = map.pool(pg.pool);
        note(&mut self.no_pool, pool.is_none());
        note(&mut self.already_inactive, stat.state & pg_state::ACTIVE == 0);
        note(&mut self.become_inactive, pool.is_some_and(|p| left < usize::from(p.min_size)));
        if bad {
            self.not_ok.insert(pg);
            return;
        }
        self.ok.insert(pg);
        let set = if degraded { &mut self.become_more_degraded } else { &mut self.become_degraded };
        set.insert(pg);
    }

    fn is_ok(&self) -> bool {
        self.not_ok.is_empty() && self.unknown.is_empty()
    }

    /// Adds OSDs near the first one, up to `max`, as long as all of them can stop together.
    fn maximize(mut self, max: usize, map: &OsdMap, pgs: &PgMap) -> Self {
        if !self.is_ok() {
            return self;
        }
        let Some(mut parent) = self.osds.first().copied() else { return self };
        while let Some(next) = map.crush.parent(parent) {
            parent = next;
            let mut failed = false;
            for osd in map.crush.descendants(parent) {
                if self.osds.len() >= max {
                    return self;
                }
                if osd < 0 || map.is_down(osd) || self.osds.contains(&osd) {
                    continue;
                }
                let mut osds = self.osds.clone();
                osds.insert(osd);
                let more = Self::judge(osds, map, pgs);
                if more.is_ok() { self = more } else { failed = true }
            }
            if failed {
                break;
            }
        }
        self
    }

    fn value(&self) -> Value {
        let mut out = Map::new();
        out.insert("ok_to_stop".to_owned(), self.is_ok().into());
        out.insert("osds".to_owned(), self.osds.iter().copied().collect());
        out.insert("num_ok_pgs".to_owned(), self.ok.len().into());
        out.insert("num_not_ok_pgs".to_owned(), self.not_ok.len().into());
        if !self.unknown.is_empty() {
            out.insert("num_unknown_pgs".to_owned(), self.unknown.len().into());
        }
        for (name, pgs) in [
            ("unknown_pgs", &self.unknown),
            ("bad_no_pool_pgs", &self.no_pool),
            ("bad_already_inactive", &self.already_inactive),
            ("bad_become_inactive", &self.become_inactive),
            ("ok_become_degraded", &self.become_degraded),
            ("ok_become_more_degraded", &self.become_more_degraded),
        ] {
            if !pgs.is_empty() {
                out.insert(name.to_owned(), pgs.iter().map(ToString::to_string).collect());
            }
        }
        Value::Object(out)
    }
}

fn ok_to_stop(ctx: &mut Ctx<'_>) -> Reply {
    let osds = match parse_ids(ctx.map, &ctx.args.list("ids")) {
        Ok(osds) => osds,
        Err(reply) => return reply,
    };
    let max = ctx.args.int("max").and_then(|m| usize::try_from(m).ok()).unwrap_or(1);
    let stop = Stop::judge(osds, ctx.map, ctx.pgs).maximize(max, ctx.map, ctx.pgs);
    // There is no plain form.
    let format = if ctx.format == Format::Plain { Format::Json } else { ctx.format };
    let mut data = monitor::command::Reply::json(format, &stop.value()).data.to_vec();
    data.push(b'\n');
    let refused = match () {
        () if !stop.unknown.is_empty() => unknown_pgs(stop.unknown.len()),
        () if stop.is_ok() => Reply::ok(),
        () => {
            let n = stop.not_ok.len();
            let text = format!("unsafe to stop osd(s) at this time ({n} PGs are or would become offline)");
            Reply::error(Errno::EBUSY, text)
        }
    };
    Reply { data: data.into(), ..refused }
}
