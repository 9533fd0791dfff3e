//! `rbd task`, `rbd trash purge schedule`, `rbd perf image`: what `rbd` and `ceph` ask the module
//! `rbd_support`.
//!
//! Source: Module.COMMANDS in src/pybind/mgr/rbd_support/module.py.

use monitor::command::Reply;
use types::Errno;

use crate::command::{Command, Ctx, Module};
use crate::rbd::perf::Shown;
use crate::rbd::schedule::Change;
use crate::rbd::task::Action;
use crate::rbd::{Ask, MODULE};

const OF: Module = Module(MODULE);

/// The command that adds a task: its words, and the name of its argument.
macro_rules! add {
    ($what:literal, $spec:literal, $help:literal, $action:expr) => {
        OF.command(
            concat!("rbd task add ", $what, " name=", $spec, ",type=CephString"),
            concat!($help, " asynchronously in the background"),
            "w",
            |ctx| add(ctx, $action, $spec),
        )
    };
}

macro_rules! perf {
    ($what:literal, $how:expr) => {
        OF.command(
            concat!(
                "rbd perf image ",
                $what,
                " name=pool_spec,type=CephString,req=false name=sort_by,type=CephChoices,\
                 strings=write_ops|write_bytes|write_latency|read_ops|read_bytes|read_latency,req=false"
            ),
            concat!("Retrieve current RBD IO performance ", $what),
            "r",
            |ctx| perf(ctx, $how),
        )
    };
}

pub(super) const COMMANDS: &[Command] = &[
    OF.command(
        "rbd mirror snapshot schedule add name=level_spec,type=CephString name=interval,type=CephString \
         name=start_time,type=CephString,req=false",
        "Add rbd mirror snapshot schedule",
        "w",
        no_mirrors,
    ),
    OF.command(
        "rbd mirror snapshot schedule remove name=level_spec,type=CephString \
         name=interval,type=CephString,req=false name=start_time,type=CephString,req=false",
        "Remove rbd mirror snapshot schedule",
        "w",
        no_mirrors,
    ),
    OF.command(
        "rbd mirror snapshot schedule list name=level_spec,type=CephString,req=false",
        "List rbd mirror snapshot schedule",
        "r",
        no_mirrors,
    ),
    OF.command(
        "rbd mirror snapshot schedule status name=level_spec,type=CephString,req=false",
        "Show rbd mirror snapshot schedule status",
        "r",
        no_mirrors,
    ),
    perf!("stats", Shown::Stats),
    perf!("counters", Shown::Counters),
    add!("flatten", "image_spec", "Flatten a cloned image", Action::Flatten),
    add!("remove", "image_spec", "Remove an image", Action::Remove),
    add!("trash remove", "image_id_spec", "Remove an image from the trash", Action::TrashRemove),
    add!("migration execute", "image_spec", "Execute an image migration", Action::MigrationExecute),
    add!("migration commit", "image_spec", "Commit an executed migration", Action::MigrationCommit),
    add!("migration abort", "image_spec", "Abort a prepared migration", Action::MigrationAbort),
    OF.command(
        "rbd task cancel name=task_id,type=CephString",
        "Cancel a pending or running asynchronous task",
        "r",
        |ctx| {
            let id = ctx.args.text_or_empty("task_id").to_owned();
            ctx.ask_pools(Ask::Cancel { id })
        },
    ),
    OF.command(
        "rbd task list name=task_id,type=CephString,req=false",
        "List pending or running asynchronous tasks",
        "r",
        |ctx| {
            let id = ctx.args.text("task_id").map(str::to_owned);
            ctx.ask_pools(Ask::List { id })
        },
    ),
    OF.command(
        "rbd trash purge schedule add name=level_spec,type=CephString name=interval,type=CephString \
         name=start_time,type=CephString,req=false",
        "Add rbd trash purge schedule",
        "w",
        |ctx| {
            let (interval, start) = (ctx.args.text_or_empty("interval").to_owned(), start(ctx));
            schedule(ctx, Change::Add { interval, start })
        },
    ),
    OF.command(
        "rbd trash purge schedule remove name=level_spec,type=CephString \
         name=interval,type=CephString,req=false name=start_time,type=CephString,req=false",
        "Remove rbd trash purge schedule",
        "w",
        |ctx| {
            let (interval, start) = (ctx.args.text("interval").map(str::to_owned), start(ctx));
            schedule(ctx, Change::Remove { interval, start })
        },
    ),
    OF.command(
        "rbd trash purge schedule list name=level_spec,type=CephString,req=false",
        "List rbd trash purge schedule",
        "r",
        |ctx| schedule(ctx, Change::List),
    ),
    OF.command(
        "rbd trash purge schedule status name=level_spec,type=CephString,req=false",
        "Show rbd trash purge schedule status",
        "r",
        |ctx| schedule(ctx, Change::Status),
    ),
];

fn no_mirrors(_: &mut Ctx<'_>) -> Reply {
    let why = "a manager of Loligo makes no snapshots of mirrored images";
    Reply::error(Errno::EOPNOTSUPP, why)
}

fn add(ctx: &mut Ctx<'_>, action: Action, spec: &str) -> Reply {
    let spec = ctx.args.text_or_empty(spec).to_owned();
    ctx.ask_pools(Ask::Add { action, spec })
}

fn start(ctx: &Ctx<'_>) -> Option<String> {
    ctx.args.text("start_time").map(str::to_owned)
}

fn schedule(ctx: &mut Ctx<'_>, change: Change) -> Reply {
    let level = ctx.args.text_or_empty("level_spec").to_owned();
    ctx.ask_pools(Ask::Schedule { level, change })
}

fn perf(ctx: &mut Ctx<'_>, how: Shown) -> Reply {
    let words = [ctx.args.text_or_empty("pool_spec"), ctx.args.text("sort_by").unwrap_or("write_ops")];
    ctx.perf.answer(ctx.now, ctx.map, &ctx.rights, words, how)
}
