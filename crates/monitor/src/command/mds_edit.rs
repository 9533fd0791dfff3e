//! Metadata servers by hand: failed, repaired, frozen, removed.
//!
//! Source: MDSMonitor::filesystem_command in src/mon/MDSMonitor.cc.

use maps::{Filesystem, MdsGid, MdsInfo, MdsState};
use types::Errno;

use crate::command::fs_edit::{commit, truth};
use crate::command::fs_show::{daemon_arg, role, visible};
use crate::command::{Access, Command, Ctx, Handler, Reply, WriteCtx, flags, write};
use crate::service::mds::fail as fail_daemon;
use crate::state::Priority;

const MDS: Access = Access { module: "mds", perm: "rw" };

pub(super) const COMMANDS: &[Command] = &[
    write(
        MDS,
        "mds fail name=role_or_gid,type=CephString",
        "Mark MDS failed: trigger a failover if a standby is available",
        flags::NONE,
        fail,
    ),
    write(
        MDS,
        "mds repaired name=role,type=CephString",
        "mark a damaged MDS rank as no longer damaged",
        flags::NONE,
        repaired,
    ),
    write(MDS, "mds rm name=gid,type=CephInt,range=0", "remove nonactive mds", flags::NONE, rm),
    write(
        MDS,
        "mds rmfailed name=role,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "remove failed rank",
        flags::HIDDEN,
        rmfailed,
    ),
    write(
        MDS,
        "mds freeze name=role_or_gid,type=CephString name=val,type=CephString",
        "freeze MDS yes/no",
        flags::HIDDEN,
        freeze,
    ),
    write(
        MDS,
        "mds set_state name=gid,type=CephInt,range=0 name=state,type=CephInt,range=0|20",
        "set mds state of <gid> to <numeric-state>",
        flags::HIDDEN,
        set_state,
    ),
    write(
        MDS,
        "mds compat rm_compat name=feature,type=CephInt,range=0",
        "remove compatible feature",
        flags::DEPRECATED,
        |ctx| rm_feature(ctx, false),
    ),
    write(
        MDS,
        "mds compat rm_incompat name=feature,type=CephInt,range=0",
        "remove incompatible feature",
        flags::DEPRECATED,
        |ctx| rm_feature(ctx, true),
    ),
    gone(
        "r",
        "mds dump name=epoch,type=CephInt,req=false,range=0",
        "dump legacy MDS cluster info, optionally from epoch",
    ),
    gone("r", "mds getmap name=epoch,type=CephInt,req=false,range=0", "get MDS map, optionally from epoch"),
    gone(
        "rw",
        "mds tell name=who,type=CephString name=args,type=CephString,n=N",
        "send command to particular mds",
    ),
    gone("rw", "mds stop name=role,type=CephString", "stop mds"),
    gone(
        "rw",
        "mds deactivate name=role,type=CephString",
        "clean up specified MDS rank (use with `set max_mds` to shrink cluster)",
    ),
    gone("rw", "mds set_max_mds name=maxmds,type=CephInt,range=0", "set max MDS index"),
    gone(
        "rw",
        "mds set name=var,type=CephChoices,strings=max_mds|max_file_size|inline_data|allow_new_snaps|allow_multimds|\
         allow_multimds_snaps|allow_dirfrags name=val,type=CephString \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "set mds parameter <var> to <val>",
    ),
    gone("rw", "mds cluster_down", "take MDS cluster down"),
    gone("rw", "mds cluster_up", "bring MDS cluster up"),
    gone("rw", "mds add_data_pool name=pool,type=CephString", "add data pool <pool>"),
    gone("rw", "mds rm_data_pool name=pool,type=CephString", "remove data pool <pool>"),
    gone("rw", "mds remove_data_pool name=pool,type=CephString", "remove data pool <pool>"),
    gone(
        "rw",
        "mds newfs name=metadata,type=CephInt,range=0 name=data,type=CephInt,range=0 \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "make new filesystem using pools <metadata> and <data>",
    ),
];

/// A command of earlier releases: whoever gives it is told that it is no more.
const fn gone(perm: &'static str, sig: &'static str, help: &'static str) -> Command {
    const fn never(_: &Ctx<'_>) -> Reply {
        Reply { code: 0, outs: String::new(), data: bytes::Bytes::new() }
    }
    Command { sig, help, module: "mds", perm, flags: flags::OBSOLETE, handler: Handler::Read(never) }
}

/// Whether the session may change a daemon of this file system, or without one.
fn may_change(ctx: &WriteCtx<'_>, of: Option<&Filesystem>) -> bool {
    let name = of.map_or("", |fs| fs.map.fs_name.as_str());
    ctx.session.caps.fs_name_capable(&ctx.session.name, name, false, true)
}

fn denied() -> Reply {
    Reply::error(Errno::EPERM, "Permission denied.")
}

/// The daemon that a command names.
fn daemon(ctx: &WriteCtx<'_>) -> Result<MdsInfo, String> {
    let map = visible(&ctx.state().fs.map, Some(ctx.session));
    daemon_arg(&map, ctx.args.text_or_empty("role_or_gid")).cloned()
}

fn fail(ctx: &mut WriteCtx<'_>) -> Reply {
    let info = match daemon(ctx) {
        Ok(info) => info,
        Err(text) => {
            let who = ctx.args.text_or_empty("role_or_gid");
            return Reply::done(format!(
                "{text}MDS named '{who}' does not exist, is not up or you lack the permission to see."
            ));
        }
    };
    if !may_change(ctx, ctx.state().fs.map.fs_of(info.gid)) {
        return denied();
    }
    let mut fs = ctx.batch.edit_fs();
    fail_daemon(ctx.now, ctx.settings, &mut fs, ctx.batch, info.gid);
    commit(ctx, fs);
    let text = format!("{} marked failed by {}", info.human_name(), ctx.session.name);
    ctx.clog(Priority::Info, text);
    Reply::done(format!("failed mds gid {}", info.gid))
}

/// The rank that a command names.
fn rank(ctx: &WriteCtx<'_>) -> Result<(Filesystem, i32), Reply> {
    let map = visible(&ctx.state().fs.map, Some(ctx.session));
    let (of, rank) = role(&map, ctx.args.text_or_empty("role"))?;
    if may_change(ctx, Some(of)) { Ok((of.clone(), rank)) } else { Err(denied()) }
}

fn repaired(ctx: &mut WriteCtx<'_>) -> Reply {
    let (of, rank) = match rank(ctx) {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    let mut fs = ctx.batch.edit_fs();
    if !fs.map.undamaged(of.fscid, rank) {
        return Reply::done("nothing to do: rank is not damaged");
    }
    commit(ctx, fs);
    Reply::done(format!("repaired: restoring rank {}:{rank}", of.fscid))
}

fn rmfailed(ctx: &mut WriteCtx<'_>) -> Reply {
    if !ctx.args.flag("yes_i_really_mean_it") {
        let text = "WARNING: this can make your filesystem inaccessible! Add --yes-i-really-mean-it if you are sure \
                    you wish to continue.";
        return Reply::error(Errno::EPERM, text);
    }
    let (of, rank) = match rank(ctx) {
        Ok(found) => found,
        Err(refusal) if refusal.code == Errno::EPERM.neg() => return refusal,
        Err(refusal) => {
            let text = format!("{}invalid role '{}'", refusal.outs, ctx.args.text_or_empty("role"));
            return Reply::error(Errno::EINVAL, text);
        }
    };
    let mut fs = ctx.batch.edit_fs();
    fs.map.modify_fs(of.fscid, |fs| {
        fs.map.failed.remove(&rank);
    });
    commit(ctx, fs);
    Reply::done(format!("removed failed mds.{}:{rank}", of.fscid))
}

fn gid_arg(ctx: &WriteCtx<'_>) -> MdsGid {
    ctx.args.int("gid").and_then(|gid| MdsGid::try_from(gid).ok()).unwrap_or(0)
}

fn rm(ctx: &mut WriteCtx<'_>) -> Reply {
    let gid = gid_arg(ctx);
    let map = visible(&ctx.state().fs.map, Some(ctx.session));
    let Some(info) = map.daemon(gid).cloned() else {
        return Reply::done(format!("mds gid {gid} does not exist"));
    };
    if !may_change(ctx, map.fs_of(gid)) {
        return denied();
    }
    // Whoever holds a rank writes: also while it creates or starts it.
    let holds = map.fs_of(gid).is_some() && !info.follows();
    if info.state.0 > 0 || holds {
        let text = format!("cannot remove active mds.{} rank {}", info.name, info.rank);
        return Reply::error(Errno::EBUSY, text);
    }
    let mut fs = ctx.batch.edit_fs();
    fs.map.erase(gid, None);
    commit(ctx, fs);
    Reply::done(format!("removed mds gid {gid}"))
}

fn freeze(ctx: &mut WriteCtx<'_>) -> Reply {
    let info = match daemon(ctx) {
        Ok(info) => info,
        Err(text) => return Reply::error(Errno::EINVAL, text),
    };
    if !may_change(ctx, ctx.state().fs.map.fs_of(info.gid)) {
        return denied();
    }
    let on = match truth(ctx.args.text_or_empty("val")) {
        Ok(on) => on,
        Err(refusal) => return refusal,
    };
    let mut fs = ctx.batch.edit_fs();
    fs.map.modify_daemon(info.gid, |i| match on {
        true => i.flags |= MdsInfo::FROZEN,
        false => i.flags &= !MdsInfo::FROZEN,
    });
    commit(ctx, fs);
    Reply::done(format!("{} mds.{}", if on { "freezing" } else { "unfreezing" }, info.gid))
}

/// For developers. A standby has one state, and what it holds would have to follow.
fn set_state(ctx: &mut WriteCtx<'_>) -> Reply {
    let gid = gid_arg(ctx);
    let state = ctx.args.int("state").and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
    let state = MdsState(state);
    let map = visible(&ctx.state().fs.map, Some(ctx.session));
    let Some(of) = map.fs_of(gid) else {
        return match map.daemon(gid) {
            None => Reply::ok(),
            Some(_) => Reply::error(Errno::EINVAL, format!("mds gid {gid} has no rank")),
        };
    };
    if !may_change(ctx, Some(of)) {
        return denied();
    }
    if of.map.info.get(&gid).is_some_and(MdsInfo::follows) {
        return Reply::error(Errno::EINVAL, format!("mds gid {gid} follows a rank and holds none"));
    }
    let mut fs = ctx.batch.edit_fs();
    fs.map.modify_daemon(gid, |i| i.state = state);
    commit(ctx, fs);
    Reply::done(format!("set mds gid {gid} to state {} {}", state.0, state.name()))
}

fn rm_feature(ctx: &mut WriteCtx<'_>, incompat: bool) -> Reply {
    let number = ctx.args.int("feature").unwrap_or(0);
    let kind = if incompat { "incompat" } else { "compat" };
    let mut fs = ctx.batch.edit_fs();
    let set = if incompat { &mut fs.map.compat.incompat } else { &mut fs.map.compat.compat };
    let removed = u64::try_from(number).ok().and_then(|n| set.0.remove(&n));
    if removed.is_none() {
        return Reply::done(format!("{kind} feature {number} not present in {}", fs.map.compat));
    }
    commit(ctx, fs);
    Reply::done(format!("removing {kind} feature {number}"))
}
