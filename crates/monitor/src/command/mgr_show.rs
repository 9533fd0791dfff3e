//! The manager map.
//!
//! Source: MgrMonitor::preprocess_command.

use serde_json::{Value, json};

use crate::command::shape::no_map;
use crate::command::{Command, Ctx, Handler, Reply, flags};

const fn read(sig: &'static str, help: &'static str, handler: fn(&Ctx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "mgr", perm: "r", flags: flags::NONE, handler: Handler::Read(handler) }
}

pub(super) const COMMANDS: &[Command] = &[
    read("mgr dump name=epoch,type=CephInt,range=0,req=false", "dump the latest MgrMap", dump),
    read("mgr stat", "dump basic info about the mgr cluster state", stat),
    read("mgr module ls", "list active mgr modules", module_ls),
    read("mgr services", "list service endpoints provided by mgr modules", services),
];

/// Only the map of now is kept.
fn dump(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.state.mgr.map();
    match ctx.args.int("epoch").filter(|epoch| *epoch != i64::from(map.epoch.0)) {
        Some(epoch) => no_map(epoch),
        None => Reply::json(ctx.format, &map.dump()),
    }
}

fn stat(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.state.mgr.map();
    let value = json!({
        "epoch": map.epoch.0,
        "available": map.available,
        "active_name": map.active_name,
        "num_standby": map.standbys.len(),
    });
    Reply::json(ctx.format, &value)
}

fn module_ls(ctx: &Ctx<'_>) -> Reply {
    let map = ctx.state.mgr.map();
    // Of the newest release that is listed.
    let always = map.always_on_modules.values().next_back().cloned().unwrap_or_default();
    let enabled: Vec<&String> = map.modules.iter().filter(|m| !always.contains(*m)).collect();
    let off = |name: &String| !map.modules.contains(name) && !always.contains(name);
    let whole = map.dump();
    let available = whole.get("available_modules").and_then(Value::as_array).cloned().unwrap_or_default();
    let disabled = available.into_iter().zip(&map.available_modules).filter(|(_, m)| off(&m.name));
    let value = json!({
        "always_on_modules": always,
        "enabled_modules": enabled,
        "disabled_modules": disabled.map(|(dump, _)| dump).collect::<Vec<_>>(),
    });
    Reply::json(ctx.format, &value)
}

fn services(ctx: &Ctx<'_>) -> Reply {
    Reply::json(ctx.format, &json!(ctx.state.mgr.services))
}
