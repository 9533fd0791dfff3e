//! `progress`: what is under way and what is over.
//!
//! Source: Module.handle_command in src/pybind/mgr/progress/module.py.

use bytes::Bytes;
use monitor::command::{Format, Reply};
use serde_json::json;

use crate::command::{Command, Ctx};
use crate::progress;

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

fn clear(ctx: &mut Ctx<'_>) -> Reply {
    let none = ctx.progress.clear().to_string();
    let set = json!({ "prefix": "config-key set", "key": progress::KEY });
    ctx.ask_monitors_quietly(&set, none.into(), "")
}

/// Has the monitors keep the setting; it counts here at once. What there was is forgotten with `off`.
fn switch(ctx: &mut Ctx<'_>, on: bool) -> Reply {
    let how = if on { "enabled" } else { "disabled" };
    if ctx.progress.enabled == on {
        return Reply::done(format!("progress already {how}!"));
    }
    ctx.progress.switch(on);
    let name = "mgr/progress/enabled";
    let value = if on { "true" } else { "false" };
    let request = json!({ "prefix": "config set", "who": "mgr", "name": name, "value": value });
    ctx.ask_monitors_quietly(&request, Bytes::new(), &format!("progress {how}"))
}
