//! Commands on the state of single OSDs and on the cluster's flags: in, out, down, reweight, noout and the like.
//!
//! Source: OSDMonitor::prepare_command_impl.

use maps::OsdMap;
use maps::flags::{WEIGHT_OUT, map_flags, osd_state};
use types::Errno;

use crate::command::{Command, Handler, Reply, WriteCtx, flags};
use crate::edit;
use crate::state::Priority;

pub(super) const COMMANDS: &[Command] = &[
    write(
        "osd down name=ids,type=CephString,n=N name=definitely_dead,type=CephBool,req=false",
        "mark OSDs down; those that live come up again",
        down,
    ),
    write("osd stop name=ids,type=CephString,n=N", "tell OSDs to stop, and mark them down", stop),
    write("osd out name=ids,type=CephString,n=N", "mark OSDs out: their data moves elsewhere", out),
    write("osd in name=ids,type=CephString,n=N", "mark OSDs in: they take data again", mark_in),
    write("osd rm name=ids,type=CephString,n=N", "remove OSDs that are down from the OSD map", rm),
    write(
        "osd reweight name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0|1.0",
        "change the share of data that an OSD takes, between 0 and 1",
        reweight,
    ),
    write(
        "osd reweightn name=weights,type=CephString",
        "change the shares of several OSDs, given as JSON in 1/65536",
        reweightn,
    ),
    write(
        "osd primary-affinity name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0|1.0",
        "how readily an OSD becomes primary, between 0 and 1",
        primary_affinity,
    ),
    write("osd pause", "stop client IO", |ctx| change_flags(ctx, PAUSE, true)),
    write("osd unpause", "let client IO go on", |ctx| change_flags(ctx, PAUSE, false)),
    write(
        "osd set name=key,type=CephChoices,strings=full|pause|noup|nodown|noout|noin|nobackfill|norebalance|\
norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim|pglog_hardlimit \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "set a flag of the whole cluster",
        |ctx| flag_by_name(ctx, true),
    ),
    write(
        "osd unset name=key,type=CephChoices,strings=full|pause|noup|nodown|noout|noin|nobackfill|norebalance|\
norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim",
        "clear a flag of the whole cluster",
        |ctx| flag_by_name(ctx, false),
    ),
    write(
        "osd set-group name=flags,type=CephString name=who,type=CephString,n=N",
        "set flags (noup, nodown, noin, noout, comma separated) of OSDs, CRUSH buckets or device classes",
        |ctx| group(ctx, true),
    ),
    write(
        "osd unset-group name=flags,type=CephString name=who,type=CephString,n=N",
        "clear flags (noup, nodown, noin, noout, comma separated) of OSDs, CRUSH buckets or device classes",
        |ctx| group(ctx, false),
    ),
    write("osd add-noup name=ids,type=CephString,n=N", "forbid that OSDs are marked up", |c| {
        single(c, osd_state::NOUP, true)
    }),
    write("osd add-nodown name=ids,type=CephString,n=N", "forbid that OSDs are marked down", |c| {
        single(c, osd_state::NODOWN, true)
    }),
    write("osd add-noin name=ids,type=CephString,n=N", "forbid that OSDs are marked in", |c| {
        single(c, osd_state::NOIN, true)
    }),
    write("osd add-noout name=ids,type=CephString,n=N", "forbid that OSDs are marked out", |c| {
        single(c, osd_state::NOOUT, true)
    }),
    write("osd rm-noup name=ids,type=CephString,n=N", "let OSDs be marked up again", |c| {
        single(c, osd_state::NOUP, false)
    }),
    write("osd rm-nodown name=ids,type=CephString,n=N", "let OSDs be marked down again", |c| {
        single(c, osd_state::NODOWN, false)
    }),
    write("osd rm-noin name=ids,type=CephString,n=N", "let OSDs be marked in again", |c| {
        single(c, osd_state::NOIN, false)
    }),
    write("osd rm-noout name=ids,type=CephString,n=N", "let OSDs be marked out again", |c| {
        single(c, osd_state::NOOUT, false)
    }),
];

const fn write(sig: &'static str, help: &'static str, handler: fn(&mut WriteCtx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "osd", perm: "rw", flags: flags::NONE, handler: Handler::Write(handler) }
}

const PAUSE: u32 = map_flags::PAUSERD | map_flags::PAUSEWR;

/// OSDs that a command names, and what is to be said of the words that name none.
struct Named {
    ids: Vec<i32>,
    said: String,
    bad: bool,
    /// One word for all of them: those that need nothing are passed over in silence.
    all: bool,
}

fn named(map: &OsdMap, words: &[String], all: impl Fn(&OsdMap, i32) -> bool) -> Named {
    let mut out = Named { ids: Vec::new(), said: String::new(), bad: false, all: false };
    if let Some("any" | "all" | "*") = words.first().map(String::as_str) {
        out.ids = map.existing_osds().map(|(id, _)| id.0).filter(|id| all(map, *id)).collect();
        out.all = true;
        return out;
    }
    for word in words {
        match word.strip_prefix("osd.").unwrap_or(word).parse::<i32>() {
            Ok(id) if id >= 0 && map.exists(id) => out.ids.push(id),
            Ok(id) if id >= 0 => out.said += &format!("osd.{id} does not exist. "),
            _ => {
                out.bad = true;
                out.said += &format!("Expected option value to be integer, got '{word}'invalid osd id-1");
            }
        }
    }
    out
}

/// Runs `act` on each OSD that the command names; what it says is the reply.
fn each(
    ctx: &mut WriteCtx<'_>,
    wanted: impl Fn(&OsdMap, i32) -> bool,
    mut act: impl FnMut(&mut WriteCtx<'_>, i32, bool) -> String,
) -> Reply {
    let words = ctx.args.list("ids");
    let targets = named(ctx.osdmap(), &words, wanted);
    let mut said = targets.said;
    for id in targets.ids {
        said += &act(ctx, id, !targets.all);
    }
    if targets.bad { Reply::error(Errno::EINVAL, said) } else { Reply::done(said) }
}

fn down(ctx: &mut WriteCtx<'_>) -> Reply {
    let dead = ctx.args.flag("definitely_dead");
    each(
        ctx,
        |_, _| true,
        |ctx, id, verbose| {
            let was_up = ctx.osdmap().is_up(id);
            if was_up {
                edit::mark_down(ctx.osdmap_mut(), id);
            }
            if dead {
                let epoch = ctx.batch.next_osdmap_epoch();
                if let Some(o) = edit::osd_mut(ctx.osdmap_mut(), id) {
                    o.xinfo.dead_epoch = epoch;
                }
            }
            match (was_up, verbose) {
                (true, _) => format!("marked down osd.{id}. "),
                (false, true) => format!("osd.{id} is already down. "),
                (false, false) => String::new(),
            }
        },
    )
}

fn stop(ctx: &mut WriteCtx<'_>) -> Reply {
    each(
        ctx,
        |_, _| true,
        |ctx, id, verbose| {
            let map = ctx.osdmap();
            if map.osd(id).is_some_and(|o| o.state & osd_state::STOP != 0) {
                return if verbose { format!("osd.{id} is already stopped. ") } else { String::new() };
            }
            let was_up = map.is_up(id);
            if let Some(o) = edit::osd_mut(ctx.osdmap_mut(), id) {
                o.state = o.state & !osd_state::UP | osd_state::STOP;
            }
            if was_up { format!("stop osd.{id}. ") } else { format!("stop down osd.{id}. ") }
        },
    )
}

fn out(ctx: &mut WriteCtx<'_>) -> Reply {
    each(
        ctx,
        |_, _| true,
        |ctx, id, verbose| {
            if ctx.osdmap().is_out(id) {
                return if verbose { format!("osd.{id} is already out. ") } else { String::new() };
            }
            let (weight, up) = (ctx.osdmap().weight(id), ctx.osdmap().is_up(id));
            edit::set_weight(ctx.osdmap_mut(), id, WEIGHT_OUT);
            if let Some(o) = edit::osd_mut(ctx.osdmap_mut(), id) {
                o.xinfo.old_weight = weight;
            }
            let who = ctx.session.name.clone();
            let while_up = if up { ", while it was still marked up" } else { "" };
            ctx.clog(Priority::Info, format!("Client {who} marked osd.{id} out{while_up}"));
            format!("marked out osd.{id}. ")
        },
    )
}

fn mark_in(ctx: &mut WriteCtx<'_>) -> Reply {
    each(
        ctx,
        |map, id| map.is_out(id),
        |ctx, id, verbose| {
            if ctx.osdmap().is_in(id) {
                return if verbose { format!("osd.{id} is already in. ") } else { String::new() };
            }
            edit::mark_in(ctx.osdmap_mut(), id);
            format!("marked in osd.{id}. ")
        },
    )
}

fn rm(ctx: &mut WriteCtx<'_>) -> Reply {
    let mut busy = false;
    let mut any = false;
    let mut reply = each(
        ctx,
        |_, _| true,
        |ctx, id, _| {
            if ctx.osdmap().is_up(id) {
                busy = true;
                let comma = if any { ", " } else { "" };
                return format!("{comma}osd.{id} is still up; must be down before removal. ");
            }
            edit::remove_osd(ctx.osdmap_mut(), id);
            let text = if any { format!(", osd.{id}") } else { format!("removed osd.{id}") };
            any = true;
            text
        },
    );
    if busy {
        reply.code = Errno::EBUSY.neg();
    }
    reply
}

/// The OSD that `id` names, when it exists.
pub(super) fn osd_arg(ctx: &WriteCtx<'_>) -> Result<i32, Reply> {
    let id = ctx.args.int("id").and_then(|id| i32::try_from(id).ok()).filter(|id| *id >= 0);
    let Some(id) = id else {
        return Err(Reply::error(Errno::EINVAL, "invalid osd id"));
    };
    if ctx.osdmap().exists(id) {
        Ok(id)
    } else {
        Err(Reply::error(Errno::ENOENT, format!("osd.{id} does not exist")))
    }
}

fn reweight(ctx: &mut WriteCtx<'_>) -> Reply {
    let id = match osd_arg(ctx) {
        Ok(id) => id,
        Err(reply) => return reply,
    };
    let w = ctx.args.float("weight").unwrap_or(0.0);
    let weight = (w * 65_536.0) as u32;
    edit::set_weight(ctx.osdmap_mut(), id, weight);
    Reply::done(format!("reweighted osd.{id} to {} ({weight:x})", crate::text::six_digits(w)))
}

/// `{"osd id": weight in 16.16}`.
fn reweightn(ctx: &mut WriteCtx<'_>) -> Reply {
    let text = ctx.args.text_or_empty("weights");
    let bad = || Reply::error(Errno::EINVAL, format!("unable to parse 'weights' value '{text}'"));
    let parsed: Result<std::collections::BTreeMap<String, f64>, _> = serde_json::from_str(text);
    let Ok(weights) = parsed else { return bad() };
    let mut all = Vec::new();
    for (id, w) in weights {
        match id.parse::<i32>() {
            Ok(id) if ctx.osdmap().exists(id) && (0.0..=65_536.0).contains(&w) => all.push((id, w as u32)),
            _ => return bad(),
        }
    }
    for (id, w) in all {
        edit::set_weight(ctx.osdmap_mut(), id, w);
    }
    Reply::ok()
}

fn primary_affinity(ctx: &mut WriteCtx<'_>) -> Reply {
    let id = match osd_arg(ctx) {
        Ok(id) => id,
        Err(reply) => return reply,
    };
    let w = ctx.args.float("weight").unwrap_or(0.0);
    let value = (w * 65_536.0) as u32;
    let map = ctx.osdmap_mut();
    let n = map.osds.len();
    let all = map.primary_affinity.get_or_insert_with(|| vec![maps::flags::MAX_PRIMARY_AFFINITY; n]);
    if let Some(slot) = usize::try_from(id).ok().and_then(|i| all.get_mut(i)) {
        *slot = value;
    }
    // Ceph prints the numbers of two stream flags around the value, where it means to print it in hexadecimal.
    Reply::done(format!("set osd.{id} primary-affinity to {} (8{value}2)", crate::text::six_digits(w)))
}

fn change_flags(ctx: &mut WriteCtx<'_>, bits: u32, on: bool) -> Reply {
    let now = ctx.osdmap().flags;
    let new = if on { now | bits } else { now & !bits };
    if now != new {
        ctx.osdmap_mut().flags = new;
    }
    let what = if on { "set" } else { "unset" };
    Reply::done(format!("{} is {what}", map_flags::to_text(bits)))
}

fn flag_by_name(ctx: &mut WriteCtx<'_>, on: bool) -> Reply {
    let key = ctx.args.text_or_empty("key");
    let bits = match key {
        "pause" => PAUSE,
        "full" | "pauserd" | "pausewr" | "pauserec" | "sortbitwise" => {
            return Reply::error(Errno::EINVAL, format!("unrecognized flag '{key}'"));
        }
        _ => match map_flags::by_name(key) {
            Some(bit) => bit,
            None => return Reply::error(Errno::EINVAL, format!("unrecognized flag '{key}'")),
        },
    };
    let none_up = ctx.osdmap().counts().up == 0;
    if key == "pglog_hardlimit" && none_up && !ctx.args.flag("yes_i_really_mean_it") {
        return Reply::error(Errno::EPERM, NONE_UP);
    }
    change_flags(ctx, bits, on)
}

/// What needs OSDs that are up is not done without any.
pub(super) const NONE_UP: &str = "Not advisable to continue since no OSDs are up. Pass --yes-i-really-mean-it if you \
                                  really wish to continue.";

/// `noup` and the like for one OSD, a CRUSH bucket or a device class.
fn group(ctx: &mut WriteCtx<'_>, on: bool) -> Reply {
    let mut bits = 0;
    for word in ctx.args.text_or_empty("flags").split(',') {
        match osd_state::flag_by_name(word) {
            Some(bit) => bits |= bit,
            None => {
                let text = format!("unrecognized flag '{word}', must be one of {{noup,nodown,noin,noout}}");
                return Reply::error(Errno::EINVAL, text);
            }
        }
    }
    apply_group(ctx, &ctx.args.list("who"), bits, on)
}

fn single(ctx: &mut WriteCtx<'_>, bits: u32, on: bool) -> Reply {
    let words = ctx.args.list("ids");
    let number = |word: &String| word.strip_prefix("osd.").unwrap_or(word).parse::<i32>().ok();
    let missing = |word: &String| number(word).filter(|id| *id >= 0 && !ctx.osdmap().exists(*id));
    let said: String =
        words.iter().filter_map(missing).map(|id| format!("osd.{id} does not exist. ")).collect();
    let known: Vec<String> = words.into_iter().filter(|word| missing(word).is_none()).collect();
    if known.is_empty() {
        return Reply::done(said);
    }
    let reply = apply_group(ctx, &known, bits, on);
    Reply { outs: said + &reply.outs, ..reply }
}

fn apply_group(ctx: &mut WriteCtx<'_>, who: &[String], bits: u32, on: bool) -> Reply {
    if who.is_empty() {
        return Reply::error(Errno::EINVAL, "must specify at least one or more targets to set/unset");
    }
    let set = |old: u32| if on { old | bits } else { old & !bits };
    let mut unknown = String::new();
    for name in who {
        let all = matches!(name.as_str(), "any" | "all" | "*");
        let id = name.strip_prefix("osd.").unwrap_or(name).parse::<i32>().ok();
        let osds: Vec<i32> = match id {
            _ if all => ctx.osdmap().existing_osds().map(|(id, _)| id.0).collect(),
            Some(id) if ctx.osdmap().exists(id) => vec![id],
            _ => Vec::new(),
        };
        let node = ctx.osdmap().crush.item_id(name).filter(|id| *id < 0);
        let class = ctx.osdmap().crush.class_id(name);
        let map = ctx.osdmap_mut();
        if let Some(node) = node {
            let old = map.crush_node_flags.get(&node).copied().unwrap_or(0);
            put(&mut map.crush_node_flags, node, set(old));
        } else if let (Some(class), true) = (class, osds.is_empty()) {
            let old = map.device_class_flags.get(&class).copied().unwrap_or(0);
            put(&mut map.device_class_flags, class, set(old));
        } else if osds.is_empty() {
            unknown += &format!("unable to parse osd id or crush node or device class: \"{name}\". ");
        }
        for id in osds {
            if let Some(o) = edit::osd_mut(map, id) {
                o.state = set(o.state);
            }
        }
    }
    if unknown.is_empty() { Reply::ok() } else { Reply::error(Errno::EINVAL, unknown) }
}

fn put(map: &mut std::collections::BTreeMap<i32, u32>, id: i32, flags: u32) {
    if flags == 0 {
        map.remove(&id);
    } else {
        map.insert(id, flags);
    }
}
