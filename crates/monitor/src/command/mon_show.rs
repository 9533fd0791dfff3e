//! The monitors: their map, their quorum, whether one of them could go.
//!
//! Source: MonmapMonitor::preprocess_command, Monitor::handle_command, Monitor::_quorum_status.

use std::collections::BTreeSet;

use codec::Encode;
use maps::{MonMap, mon_features};
use serde_json::{Value, json};
use types::Errno;

use crate::command::shape::{no_map, streamed};
use crate::command::status::quorum_age;
use crate::command::{Command, Ctx, Format, Handler, Reply, flags};
use crate::views;

const fn read(sig: &'static str, help: &'static str, handler: fn(&Ctx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "mon", perm: "r", flags: flags::NONE, handler: Handler::Read(handler) }
}

pub(super) const COMMANDS: &[Command] = &[
    read(
        "mon dump name=epoch,type=CephInt,range=0,req=false",
        "dump formatted monmap (optionally from epoch)",
        dump,
    ),
    read("mon stat", "summarize monitor status", stat),
    read("mon getmap name=epoch,type=CephInt,range=0,req=false", "get monmap", getmap),
    read(
        "mon feature ls name=with_value,type=CephChoices,strings=--with-value,req=false",
        "list available mon map features to be set/unset",
        feature_ls,
    ),
    read(
        "mon ok-to-stop name=ids,type=CephString,n=N",
        "check whether mon(s) can be safely stopped without reducing immediate availability",
        ok_to_stop,
    ),
    read(
        "mon ok-to-add-offline",
        "check whether adding a mon and not starting it would break quorum",
        ok_to_add_offline,
    ),
    read(
        "mon ok-to-rm name=id,type=CephString",
        "check whether removing the specified mon would break quorum",
        ok_to_rm,
    ),
    read("quorum_status", "report status of monitor quorum", quorum_status),
    read("time-sync-status", "show time sync status", time_sync_status),
];

/// Only the map of now is kept.
fn monmap<'a>(ctx: &'a Ctx<'_>) -> Result<&'a MonMap, Reply> {
    let map = &ctx.state.monmap;
    match ctx.args.int("epoch") {
        Some(epoch) if epoch != 0 && epoch != i64::from(map.epoch.0) => Err(no_map(epoch)),
        _ => Ok(map),
    }
}

/// The map with the quorum, as `mon dump` shows it.
fn monmap_json(map: &MonMap, quorum: &[u32]) -> Value {
    let mut value = map.dump();
    if let Value::Object(fields) = &mut value {
        fields.insert("quorum".to_owned(), json!(quorum));
    }
    value
}

fn dump(ctx: &Ctx<'_>) -> Reply {
    let map = match monmap(ctx) {
        Ok(map) => map,
        Err(refusal) => return refusal,
    };
    let value = || monmap_json(map, &ctx.settings.quorum.members);
    let reply = streamed(ctx.format, || map.print(), value);
    reply.with_outs(format!("dumped monmap epoch {}", map.epoch))
}

fn getmap(ctx: &Ctx<'_>) -> Reply {
    match monmap(ctx) {
        Ok(map) => Reply::data(map.to_bytes()).with_outs(format!("got monmap epoch {}", map.epoch)),
        Err(refusal) => refusal,
    }
}

fn stat(ctx: &Ctx<'_>) -> Reply {
    let (map, quorum) = (&ctx.state.monmap, &ctx.settings.quorum);
    let name = |rank: u32| map.ranks.get(usize::try_from(rank).ok()?).map(String::as_str);
    let leader = quorum.leader.and_then(name).unwrap_or_default();
    let plain = || {
        let removed: Vec<String> = map.removed_ranks.iter().map(ToString::to_string).collect();
        let ranks: Vec<String> = quorum.members.iter().map(ToString::to_string).collect();
        format!(
            "{} removed_ranks: {{{}}}, election epoch {}, leader {} {leader}, quorum {} {}",
            map.summary(),
            removed.join(","),
            quorum.term,
            quorum.leader.map_or_else(|| "-1".to_owned(), |rank| rank.to_string()),
            ranks.join(","),
            views::quorum_names(map, &quorum.members).join(",")
        )
    };
    let value = || {
        let mut value = map.dump_summary();
        let members = quorum.members.iter().map(|rank| json!({ "rank": rank, "name": name(*rank) }));
        if let Value::Object(fields) = &mut value {
            fields.insert("leader".to_owned(), leader.into());
            fields.insert("quorum".to_owned(), members.collect::<Vec<_>>().into());
        }
        value
    };
    streamed(ctx.format, plain, value)
}

fn feature_ls(ctx: &Ctx<'_>) -> Reply {
    let map = &ctx.state.monmap;
    let with_value = ctx.args.text("with_value") == Some("--with-value");
    let names = |bits: u64| -> Vec<String> {
        let set = (0..u64::BITS).map(|i| 1u64 << i).filter(|bit| bits & bit != 0);
        let name = |bit: u64| {
            let name = mon_features::names(bit).join(",");
            if with_value { format!("{name}({bit})") } else { name }
        };
        set.map(name).collect()
    };
    let all = names(mon_features::ALL);
    let (persistent, optional) = (names(map.persistent_features), names(map.optional_features));
    let required = names(map.persistent_features | map.optional_features);
    let plain = || {
        let list = |names: &[String]| {
            if names.is_empty() { "[none]".to_owned() } else { format!("[{}]", names.join(",")) }
        };
        format!(
            "all features\n\tsupported: {0}\n\tpersistent: {0}\non current monmap (epoch {1})\n\
             \tpersistent: {2}\n\trequired: {3}\n",
            list(&all),
            map.epoch,
            list(&persistent),
            list(&required)
        )
    };
    let value = || {
        json!({
            "all": { "supported": all, "persistent": all },
            "monmap": { "persistent": persistent, "optional": optional, "required": required },
        })
    };
    streamed(ctx.format, plain, value)
}

/// A majority of so many.
pub(super) fn majority(monitors: usize) -> usize {
    monitors / 2 + 1
}

fn ok_to_stop(ctx: &Ctx<'_>) -> Reply {
    let map = &ctx.state.monmap;
    let ids = ctx.args.list("ids");
    let mut left: BTreeSet<String> =
        views::quorum_names(map, &ctx.settings.quorum.members).into_iter().collect();
    for id in &ids {
        left.remove(id);
    }
    let names = left.iter().cloned().collect::<Vec<_>>().join(",");
    let stopped = ids.join(",");
    if left.len() < majority(map.mons.len()) {
        let text =
            format!("not enough monitors would be available ({names}) after stopping mons [{stopped}]");
        return Reply::error(Errno::EBUSY, text);
    }
    Reply::done(format!("quorum should be preserved ({names}) after stopping [{stopped}]"))
}

fn ok_to_add_offline(ctx: &Ctx<'_>) -> Reply {
    if ctx.settings.quorum.members.len() < majority(ctx.state.monmap.mons.len() + 1) {
        let text = "adding a monitor may break quorum (until that monitor starts)";
        return Reply::error(Errno::EBUSY, text);
    }
    Reply::done("adding another mon that is not yet online will not break quorum")
}

fn ok_to_rm(ctx: &Ctx<'_>) -> Reply {
    let (map, quorum) = (&ctx.state.monmap, &ctx.settings.quorum.members);
    let id = ctx.args.text_or_empty("id");
    let Some(rank) = map.rank(id) else { return Reply::done(format!("mon.{id} does not exist")) };
    let member = quorum.iter().any(|r| usize::try_from(*r) == Ok(rank));
    if member && quorum.len() - 1 < majority(map.mons.len().saturating_sub(1)) {
        return Reply::error(Errno::EBUSY, format!("removing mon.{id} would break quorum"));
    }
    Reply::done(format!("safe to remove mon.{id}"))
}

/// JSON in any case; without a format the compact form, which is Ceph's default here.
fn quorum_status(ctx: &Ctx<'_>) -> Reply {
    let (map, quorum) = (&ctx.state.monmap, &ctx.settings.quorum);
    let leader = quorum.leader.and_then(|rank| map.ranks.get(usize::try_from(rank).ok()?));
    let value = json!({
        "election_epoch": quorum.term,
        "quorum": quorum.members,
        "quorum_names": views::quorum_names(map, &quorum.members),
        "quorum_leader_name": leader.map(String::as_str).unwrap_or_default(),
        "quorum_age": quorum_age(ctx).as_secs(),
        "features": {
            "quorum_con": types::features::PACIFIC.to_string(),
            "quorum_mon": mon_features::names(mon_features::ALL),
        },
        "monmap": map.dump(),
    });
    let format = if ctx.format == Format::Plain { Format::Json } else { ctx.format };
    Reply::json_line(format, &value)
}

/// Monitors here compare no clocks with each other: what a lone monitor of Ceph answers. Source: Monitor::do_health.
fn time_sync_status(ctx: &Ctx<'_>) -> Reply {
    let checks = json!({ "epoch": ctx.settings.quorum.term, "round": 0, "round_status": "finished" });
    Reply::json(ctx.format, &json!({ "timechecks": checks }))
}
