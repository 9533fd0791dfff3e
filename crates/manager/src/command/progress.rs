//! `progress`: what is under way and what is over.
//!
//! Source: Module.handle_command in src/pybind/mgr/progress/module.py.

use monitor::command::{Format, Reply};
use serde_json::json;

use crate::command::{Command, Ctx};
use crate::mon_commands::MonRequest;
use crate::outcome::Then;
use crate::progress::{self, Progress};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("progress", "Show progress of recovery operations", "mgr", "r", |ctx| {
        match ctx.progress.text(ctx.now.wall) {
            none if none.is_empty() => Reply::done("Nothing in progress"),
            text => Reply::text(text),
        }
    }),
    Command::new("progress json", "Show machine readable progress information", "mgr", "r", |ctx| {
        Reply::json(Format::JsonPretty, &ctx.progress.json(ctx.now.wall))
    }),
    Command::new("progress clear", "Reset progress tracking", "mgr", "rw", clear),
    Command::new("progress on", "Enable progress tracking", "mgr", "rw", |ctx| switch(ctx, true)),
    Command::new("progress off", "Disable progress tracking", "mgr", "rw", |ctx| switch(ctx, false)),
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
