//! Which manager is in charge, and which of its modules are switched on.
//!
//! Source: MgrMonitor::prepare_command.

use maps::MgrMap;
use types::Errno;

use crate::command::{Access, Command, Reply, WriteCtx, flags, write};
use crate::service::mgr::{drop_active, promote, propose_mgr};
use crate::state::MgrState;

const WRITES: Access = Access { module: "mgr", perm: "rw" };

pub(super) const COMMANDS: &[Command] = &[
    write(
        WRITES,
        "mgr fail name=who,type=CephString,req=false",
        "treat the named manager daemon as failed",
        flags::NONE,
        fail,
    ),
    write(
        WRITES,
        "mgr module enable name=module,type=CephString name=force,type=CephChoices,strings=--force,req=false",
        "enable mgr module",
        flags::NONE,
        enable,
    ),
    write(
        WRITES,
        "mgr module disable name=module,type=CephString",
        "disable mgr module",
        flags::NONE,
        disable,
    ),
];

/// Modules that may be switched on at once, and bytes of a name: with force any name may.
const MODULES_LIMIT: usize = 128;
const NAME_LIMIT: usize = 64;

fn is_always_on(name: &str) -> bool {
    let always = MgrMap::initial().always_on_modules;
    always.values().next_back().is_some_and(|on| on.contains(name))
}

fn enable(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("module").to_owned();
    if is_always_on(&name) {
        return Reply::done(format!("module '{name}' is already enabled (always-on)"));
    }
    let mut mgr = MgrState::clone(&ctx.state().mgr);
    let forced = ctx.args.text("force") == Some("--force");
    if let Some(why) = refusal(&mgr, &name).filter(|_| !forced) {
        return Reply::error(Errno::ENOENT, why);
    }
    let mut on = mgr.enabled();
    if on.contains(&name) {
        return Reply::done(format!("module '{name}' is already enabled"));
    }
    if name.is_empty() || name.len() > NAME_LIMIT || on.len() >= MODULES_LIMIT {
        return Reply::error(Errno::EINVAL, Errno::EINVAL.to_string());
    }
    on.insert(name);
    mgr.modules = Some(on);
    propose_mgr(ctx.now, ctx.settings, mgr, ctx.batch);
    Reply::ok()
}

/// Why a module cannot be switched on.
fn refusal(mgr: &MgrState, name: &str) -> Option<String> {
    let active = mgr.active.as_ref().filter(|a| a.has_module(name));
    let Some(active) = active.filter(|_| mgr.standbys.values().all(|d| d.has_module(name))) else {
        return Some(format!(
            "all mgr daemons do not support module '{name}', pass --force to force enablement"
        ));
    };
    let why = active.cannot_run(name)?;
    Some(format!(
        "module '{name}' reports that it cannot run on the active manager daemon: {why} (pass --force to force \
         enablement)"
    ))
}

fn disable(ctx: &mut WriteCtx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("module").to_owned();
    if is_always_on(&name) {
        return Reply::error(Errno::EINVAL, format!("module '{name}' cannot be disabled (always-on)"));
    }
    let mut mgr = MgrState::clone(&ctx.state().mgr);
    let mut on = mgr.enabled();
    if !on.remove(&name) {
        return Reply::done(format!("module '{name}' is already disabled"));
    }
    mgr.modules = Some(on);
    propose_mgr(ctx.now, ctx.settings, mgr, ctx.batch);
    Reply::ok()
}

/// `who` is a name or a global id; the manager in charge when nobody is named. It may come back with its next beacon.
fn fail(ctx: &mut WriteCtx<'_>) -> Reply {
    let mut mgr = MgrState::clone(&ctx.state().mgr);
    let named = ctx.args.text("who").map(str::to_owned);
    let Some(who) = named.or_else(|| mgr.active.as_ref().map(|a| a.name.clone())) else {
        return Reply::done("Currently no active mgr");
    };
    let is_meant = |gid: u64, name: &str| who.parse().map_or(name == who, |wanted: u64| wanted == gid);
    if mgr.active.as_ref().is_some_and(|a| is_meant(a.gid, &a.name)) {
        drop_active(ctx.now, ctx.settings, &mut mgr, ctx.batch, "was failed by an operator");
        promote(ctx.now, ctx.settings, &mut mgr, ctx.batch);
    } else if let Some(gid) =
        mgr.standbys.iter().find(|(gid, d)| is_meant(**gid, &d.name)).map(|(gid, _)| *gid)
    {
        mgr.standbys.remove(&gid);
    } else {
        return Reply::done(format!("Daemon not found '{who}', already failed?"));
    }
    propose_mgr(ctx.now, ctx.settings, mgr, ctx.batch);
    Reply::ok()
}
