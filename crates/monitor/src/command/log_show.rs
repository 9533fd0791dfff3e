//! `ceph log last`.
//!
//! Source: LogMonitor::preprocess_command, LogEntry::dump.

use maps::addrvec_json;
use serde_json::{Value, json};

use crate::command::{Command, Ctx, Handler, Reply, flags};
use crate::state::{LogEntry, Priority, log_line};

pub(super) const COMMANDS: &[Command] = &[Command {
    sig: "log last name=num,type=CephInt,range=1,req=false \
          name=level,type=CephChoices,strings=debug|info|sec|warn|error,req=false \
          name=channel,type=CephChoices,strings=*|cluster|audit|cephadm,req=false",
    help: "print last few lines of the cluster log",
    module: "mon",
    perm: "r",
    flags: flags::NONE,
    handler: Handler::Read(last),
}];

/// Entries when no number is given.
const DEFAULT_LINES: i64 = 20;

fn last(ctx: &Ctx<'_>) -> Reply {
    let n = usize::try_from(ctx.args.int("num").unwrap_or(DEFAULT_LINES)).unwrap_or(0);
    let level = ctx.args.text("level").and_then(Priority::from_name).unwrap_or(Priority::Info);
    let channel = ctx.args.text("channel").unwrap_or("cluster");
    let entries = ctx.state.log.last(n, level, channel);
    let plain = || entries.iter().map(|e| log_line(e) + "\n").collect();
    Reply::show(ctx.format, plain, || entries.iter().map(|e| entry_json(e)).collect::<Vec<_>>().into())
}

fn entry_json(e: &LogEntry) -> Value {
    json!({
        "name": e.name.to_string(),
        "rank": e.rank.to_string(),
        "addrs": addrvec_json(&e.addrs),
        "stamp": e.stamp.to_string(),
        "seq": e.seq,
        "channel": e.channel,
        "priority": Priority::from_u16(e.priority).tag(),
        "message": e.text,
    })
}
