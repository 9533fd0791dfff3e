//! `progress`: what is under way and what is over.
//!
//! Source: Module.handle_command in src/pybind/mgr/progress/module.py.

use monitor::command::Reply;
use serde_json::json;

use crate::command::{Command, Ctx, Module};
use crate::mon_commands::MonRequest;
use crate::outcome::Then;
use crate::progress::{self, Progress};
use crate::rbd::text;

const MODULE: Module = Module("progress");

pub(super) const COMMANDS: &[Command] = &[
    MODULE.command("progress", "Show progress of recovery operations", "r", |ctx| {
        match ctx.progress.text(ctx.now.wall) {
            none if none.is_empty() => Reply::done("Nothing in progress"),
            text => Reply::text(text),
        }
    }),
    MODULE.command("progress json", "Show machine readable progress information", "r", |ctx| {
        text::answer(text::python_sorted(&ctx.progress.json(ctx.now.wall)))
    }),
    MODULE.command("progress clear", "Reset progress tracking", "rw", clear),
    MODULE.command("progress on", "Enable progress tracking", "rw", |ctx| switch(ctx, true)),
    MODULE.command("progress off", "Disable progress tracking", "rw", |ctx| switch(ctx, false)),
];

/// Has the monitors forget what they keep; when they have, nothing is known here any more either.
fn clear(ctx: &mut Ctx<'_>) -> Reply {
    let json = json!({ "prefix": "config-key set", "key": progress::KEY }).to_string();
    let input = Progress::nothing().to_string().into();
    let request = MonRequest { json, input, ..MonRequest::default() };
    ctx.ask_monitors_for_all(vec![request], Reply::ok(), Then::ProgressCleared)
}

/// Has the monitors keep the setting; it counts here when they do. What there was is forgotten with `off`.
fn switch(ctx: &mut Ctx<'_>, on: bool) -> Reply {
    let how = if on { "enabled" } else { "disabled" };
    if ctx.progress.enabled == on {
        return Reply::done(format!("progress already {how}!"));
    }
    let request = MonRequest::set_option("mgr", "mgr/progress/enabled", if on { "true" } else { "false" });
    let done = Reply::done(format!("progress {how}"));
    ctx.ask_monitors_for_all(vec![request], done, Then::ProgressSwitched(on))
}
