//! `healthcheck history` and `prometheus file_sd_config`, of Ceph's module `prometheus`.
//!
//! Source: src/pybind/mgr/prometheus/module.py (16.2). The module says that its times are UTC and shows local
//! ones; here they are UTC.

use bytes::Bytes;
use monitor::command::Reply;
use serde_json::json;
use types::Errno;

use super::{Command, Ctx, Module};
use crate::mon_commands::MonRequest;
use crate::outcome::Then;
use crate::prometheus::{HISTORY, MODULE, port_of};
use crate::rbd::text;

const PROMETHEUS: Module = Module(MODULE);

pub(super) const COMMANDS: &[Command] = &[
    PROMETHEUS.command(
        "healthcheck history ls name=format,type=CephChoices,strings=plain|json|json-pretty|yaml,req=false",
        "List all the healthchecks being tracked",
        "r",
        history,
    ),
    PROMETHEUS.command("healthcheck history clear", "Clear the healthcheck history", "w", clear),
    PROMETHEUS.command(
        "prometheus file_sd_config",
        "Return file_sd compatible prometheus config for mgr cluster",
        "r",
        file_sd_config,
    ),
];

fn history(ctx: &mut Ctx<'_>) -> Reply {
    let history = &ctx.prometheus.history;
    let shown = match ctx.args.text("format") {
        Some("json") => history.json(),
        Some("json-pretty") => history.json_pretty(),
        Some("yaml") => history.yaml(),
        _ => history.plain(),
    };
    match shown {
        Some(text) => Reply::text(text),
        None => Reply::error(Errno::EAGAIN, "the history of health checks is not known yet"),
    }
}

fn clear(ctx: &mut Ctx<'_>) -> Reply {
    let json = json!({ "prefix": "config-key set", "key": HISTORY }).to_string();
    let request = MonRequest { json, input: Bytes::from_static(b"{}"), ..MonRequest::default() };
    ctx.ask_monitors_for_all(vec![request], Reply::text("healthcheck history cleared"), Then::HistoryCleared)
}

fn file_sd_config(ctx: &mut Ctx<'_>) -> Reply {
    let facts = &ctx.prometheus.facts;
    if !facts.is_known() {
        return Reply::error(Errno::EAGAIN, "the managers' hosts are not known yet");
    }
    let target = |(manager, host): (&str, &str)| format!("{host}:{}", port_of(ctx.module_options, manager));
    let targets: Vec<String> = facts.managers().map(target).collect();
    Reply::text(text::python(&json!([{ "targets": targets, "labels": {} }])))
}
