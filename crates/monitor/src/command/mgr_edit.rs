//! Which manager is in charge.
//!
//! Source: MgrMonitor::prepare_command.

use crate::command::{Access, Command, Reply, WriteCtx, flags, write};
use crate::service::mgr::{drop_active, promote, propose_mgr};
use crate::state::MgrState;

const WRITES: Access = Access { module: "mgr", perm: "rw" };

pub(super) const COMMANDS: &[Command] = &[write(
    WRITES,
    "mgr fail name=who,type=CephString,req=false",
    "treat the named manager daemon as failed",
    flags::NONE,
    fail,
)];

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
