//! `balancer ...`: what it does by itself, and plans by hand.
//!
//! Source: Module.handle_command in src/pybind/mgr/balancer/module.py.

use std::collections::BTreeSet;

use bytes::Bytes;
use monitor::command::Reply;
use serde_json::json;
use types::{Errno, PoolId};

use super::daemon::pretty;
use crate::balancer::{Mode, View, evaluate};
use crate::command::{Command, Ctx, Module};
use crate::outcome::Then;

const MODULE: Module = Module("balancer");

pub(super) const COMMANDS: &[Command] = &[
    MODULE.command("balancer status", "Show balancer status", "r", status),
    MODULE.command(
        "balancer mode name=mode,type=CephChoices,strings=none|crush-compat|upmap",
        "Set balancer mode",
        "rw",
        mode,
    ),
    MODULE.command("balancer on", "Enable automatic balancing", "rw", |ctx| switch(ctx, true)),
    MODULE.command("balancer off", "Disable automatic balancing", "rw", |ctx| switch(ctx, false)),
    MODULE.command(
        "balancer pool ls",
        "List automatic balancing pools. Note that empty list means all existing pools will be automatic balancing \
         targets, which is the default behaviour of balancer.",
        "r",
        pool_ls,
    ),
    MODULE.command(
        "balancer pool add name=pools,type=CephString,n=N",
        "Enable automatic balancing for specific pools",
        "rw",
        pool_add,
    ),
    MODULE.command(
        "balancer pool rm name=pools,type=CephString,n=N",
        "Disable automatic balancing for specific pools",
        "rw",
        pool_rm,
    ),
    MODULE.command(
        "balancer eval name=option,type=CephString,req=false",
        "Evaluate data distribution for the current cluster or specific pool or specific plan",
        "r",
        |ctx| eval(ctx, false),
    ),
    MODULE.command(
        "balancer eval-verbose name=option,type=CephString,req=false",
        "Evaluate data distribution for the current cluster or specific pool or specific plan (verbosely)",
        "r",
        |ctx| eval(ctx, true),
    ),
    MODULE.command(
        "balancer optimize name=plan,type=CephString name=pools,type=CephString,n=N,req=false",
        "Run optimizer to create a new plan",
        "rw",
        optimize,
    ),
    MODULE.command(
        "balancer show name=plan,type=CephString",
        "Show details of an optimization plan",
        "r",
        show,
    ),
    MODULE.command(
        "balancer rm name=plan,type=CephString",
        "Discard an optimization plan",
        "rw",
        |ctx| {
            let name = ctx.args.text_or_empty("plan");
            ctx.balancer.forget(name);
            Reply::ok()
        },
    ),
    MODULE.command("balancer reset", "Discard all optimization plans", "rw", |ctx| {
        ctx.balancer.plans.clear();
        Reply::ok()
    }),
    MODULE.command("balancer dump name=plan,type=CephString", "Show an optimization plan", "r", dump),
    MODULE.command("balancer ls", "List all plans", "r", |ctx| {
        let names: Vec<&str> = ctx.balancer.plans.iter().map(|p| p.name.as_str()).collect();
        Reply::json(pretty(ctx), &json!(names))
    }),
    MODULE.command(
        "balancer execute name=plan,type=CephString",
        "Execute an optimization plan",
        "rw",
        execute,
    ),
];

fn status(ctx: &mut Ctx<'_>) -> Reply {
    let b = &ctx.balancer;
    let status = json!({
        "active": b.options.active(),
        "last_optimize_duration": b.last_duration,
        "last_optimize_started": b.last_started,
        "mode": b.options.mode().name(),
        "no_optimization_needed": b.nothing_to_do,
        "optimize_result": b.last_result,
        "plans": b.plans.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(),
    });
    Reply::json(pretty(ctx), &status)
}

/// Has the monitors keep a setting; it counts here at once.
fn set(ctx: &mut Ctx<'_>, name: &str, value: &str) -> Reply {
    ctx.balancer.options.ask(name, value, ctx.now.mono);
    let name = format!("mgr/balancer/{name}");
    let request = json!({ "prefix": "config set", "who": "mgr", "name": name, "value": value });
    ctx.ask_monitors(&request, Bytes::new())
}

fn mode(ctx: &mut Ctx<'_>) -> Reply {
    let mode = ctx.args.text_or_empty("mode").to_owned();
    let promised = ctx.map.require_min_compat_client;
    if mode == Mode::Upmap.name() && promised < maps::Release::LUMINOUS {
        let text = format!(
            "min_compat_client \"{promised}\" < \"luminous\", which is required for pg-upmap. Try \"ceph osd \
             set-require-min-compat-client luminous\" before enabling this mode"
        );
        return Reply::error(Errno::EPERM, text);
    }
    set(ctx, "mode", &mode)
}

fn switch(ctx: &mut Ctx<'_>, on: bool) -> Reply {
    if ctx.balancer.options.active() == on {
        return Reply::ok();
    }
    set(ctx, "active", if on { "true" } else { "false" })
}

fn list(ids: &BTreeSet<PoolId>) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn pool_ls(ctx: &mut Ctx<'_>) -> Reply {
    if ctx.balancer.options.pool_ids().is_empty() {
        return Reply::ok();
    }
    let mut names = ctx.balancer.options.pool_names(ctx.map);
    names.sort();
    Reply::json(pretty(ctx), &json!(names))
}

/// Pools of a command that do not exist, as Python prints lists.
fn unknown(ctx: &Ctx<'_>) -> Option<String> {
    let names = ctx.args.list("pools");
    let missing: Vec<String> =
        names.iter().filter(|n| ctx.map.pool_by_name(n).is_none()).map(|n| format!("'{n}'")).collect();
    (!missing.is_empty()).then(|| format!("[{}]", missing.join(", ")))
}

fn pool_add(ctx: &mut Ctx<'_>) -> Reply {
    if let Some(missing) = unknown(ctx) {
        return Reply::error(Errno::EINVAL, format!("pool(s) {missing} not found"));
    }
    let mut ids = ctx.balancer.options.pool_ids();
    ids.extend(ctx.args.list("pools").iter().filter_map(|n| ctx.map.pool_by_name(n)));
    set(ctx, "pool_ids", &list(&ids))
}

fn pool_rm(ctx: &mut Ctx<'_>) -> Reply {
    let mut ids = ctx.balancer.options.pool_ids();
    if ids.is_empty() {
        return Reply::ok();
    }
    let gone: Vec<PoolId> = ctx.args.list("pools").iter().filter_map(|n| ctx.map.pool_by_name(n)).collect();
    ids.retain(|id| ctx.map.pools.contains_key(id) && !gone.contains(id));
    set(ctx, "pool_ids", &list(&ids))
}

fn eval(ctx: &mut Ctx<'_>, verbose: bool) -> Reply {
    let metrics = ctx.balancer.options.metrics();
    let Some(option) = ctx.args.text("option") else {
        let score = evaluate(ctx.map, ctx.pgs, &[], &metrics);
        return Reply::text(score.show("current cluster", verbose));
    };
    if let Some(plan) = ctx.balancer.plan_named(option) {
        let score = evaluate(&plan.result(), ctx.pgs, &plan.pools, &metrics);
        return Reply::text(score.show(&format!("plan {option} final"), verbose));
    }
    if ctx.map.pool_by_name(option).is_none() {
        return Reply::error(Errno::EINVAL, format!("option \"{option}\" not a plan or a pool"));
    }
    let score = evaluate(ctx.map, ctx.pgs, &[option.to_owned()], &metrics);
    Reply::text(score.show(&format!("pool \"{option}\""), verbose))
}

/// By hand nothing is done while the balancer works by itself.
fn by_hand(ctx: &Ctx<'_>, what: &str) -> Result<(), Reply> {
    if ctx.balancer.options.active() {
        return Err(Reply::error(Errno::EINVAL, format!("Balancer enabled, disable to {what}")));
    }
    if ctx.balancer.busy {
        return Err(Reply::error(Errno::EINVAL, "Balancer finishing up....try again"));
    }
    Ok(())
}

fn optimize(ctx: &mut Ctx<'_>) -> Reply {
    if let Err(reply) = by_hand(ctx, "optimize manually") {
        return reply;
    }
    if let Some(missing) = unknown(ctx) {
        return Reply::error(Errno::EINVAL, format!("pools {missing} not found"));
    }
    let (name, pools) = (ctx.args.text_or_empty("plan").to_owned(), ctx.args.list("pools"));
    let view = View { now: ctx.now, map: ctx.map, pgs: ctx.pgs, options: ctx.options };
    match ctx.balancer.optimize(view, name, pools) {
        Ok(plan) => match ctx.balancer.keep(plan) {
            true => Reply::ok(),
            false => Reply::error(Errno::ENOSPC, "too many plans; remove some first"),
        },
        Err((errno, text)) => Reply::error(errno, text),
    }
}

fn missing(name: &str) -> Reply {
    Reply::error(Errno::ENOENT, format!("plan {name} not found"))
}

fn show(ctx: &mut Ctx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("plan");
    ctx.balancer.plan_named(name).map_or_else(|| missing(name), |plan| Reply::text(plan.show()))
}

fn dump(ctx: &mut Ctx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("plan");
    ctx.balancer.plan_named(name).map_or_else(|| missing(name), |plan| Reply::json(pretty(ctx), &plan.dump()))
}

fn execute(ctx: &mut Ctx<'_>) -> Reply {
    if let Err(reply) = by_hand(ctx, "execute a plan") {
        return reply;
    }
    let name = ctx.args.text_or_empty("plan");
    let Some(plan) = ctx.balancer.plan_named(name) else { return missing(name) };
    let requests = plan.requests();
    ctx.balancer.forget(name);
    ctx.ask_monitors_for_all(requests, Reply::ok(), Then::Nothing)
}
