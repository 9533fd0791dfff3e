//! The commands that `ceph tell osd.N` knows: signatures as `ceph` parses its arguments with, in Ceph's own words.
//!
//! Source: `ceph tell osd.0 get_command_descriptions` of 16.2.15; OSD::final_init in src/osd/OSD.cc.

use serde_json::{Map, Value, json};

/// A command.
pub(super) struct Command {
    /// Words that stand for themselves.
    pub prefix: &'static str,
    pub args: &'static [Arg],
    pub help: &'static str,
    /// Whether anybody with a session may run it.
    pub open: bool,
}

/// One argument.
pub(super) struct Arg {
    pub name: &'static str,
    pub kind: &'static str,
    pub required: bool,
    /// Takes all words that are left.
    pub rest: bool,
    /// Allowed words, separated by `|`; empty for any.
    pub choices: &'static str,
}

const fn need(name: &'static str, kind: &'static str) -> Arg {
    Arg { name, kind, required: true, rest: false, choices: "" }
}
const fn may(name: &'static str, kind: &'static str) -> Arg {
    Arg { name, kind, required: false, rest: false, choices: "" }
}
const fn rest(name: &'static str, required: bool) -> Arg {
    Arg { name, kind: "CephString", required, rest: true, choices: "" }
}
const fn choice(name: &'static str, choices: &'static str) -> Arg {
    Arg { name, kind: "CephChoices", required: true, rest: false, choices }
}

const fn command(prefix: &'static str, args: &'static [Arg], help: &'static str) -> Command {
    Command { prefix, args, help, open: false }
}

pub(super) const COMMANDS: &[Command] = &[
    command(
        "bench",
        &[
            may("count", "CephInt"),
            may("size", "CephInt"),
            may("object_size", "CephInt"),
            may("object_num", "CephInt"),
        ],
        "OSD benchmark: write <count> <size>-byte objects(with <obj_size> <obj_num>), (default count=1G default \
         size=4MB). Results in log.",
    ),
    command(
        "cluster_log",
        &[choice("level", "error"), rest("message", true)],
        "log a message to the cluster log",
    ),
    command("config diff", &[], "dump diff of current config and default config"),
    command(
        "config diff get",
        &[need("var", "CephString")],
        "dump diff get <field>: dump diff of current and default config setting <field>",
    ),
    command("config get", &[need("var", "CephString")], "config get <field>: get the config value"),
    command(
        "config set",
        &[need("var", "CephString"), rest("val", true)],
        "config set <field> <val> [<val> ...]: set a config variable",
    ),
    command("config show", &[], "dump current config settings"),
    command("config unset", &[need("var", "CephString")], "config unset <field>: unset a config variable"),
    command("dump_blocked_ops", &[rest("filterstr", false)], "show the blocked ops currently in flight"),
    command("dump_blocklist", &[], "dump blocklisted clients and times"),
    command("dump_historic_ops", &[rest("filterstr", false)], "show recent ops"),
    command("dump_ops_in_flight", &[rest("filterstr", false)], "show the ops currently in flight"),
    command("flush_pg_stats", &[], "flush pg stats"),
    Command { prefix: "get_command_descriptions", args: &[], help: "list available commands", open: true },
    command("get_latest_osdmap", &[], "force osd to update the latest map from the mon"),
    command("get_mapped_pools", &[], "dump pools whose PG(s) are mapped to this OSD."),
    Command { prefix: "git_version", args: &[], help: "get git sha1", open: true },
    Command { prefix: "help", args: &[], help: "list available commands", open: true },
    command(
        "injectargs",
        &[rest("injected_args", true)],
        "inject configuration arguments into running daemon",
    ),
    command(
        "list_unfound",
        &[may("pgid", "CephPgid"), may("offset", "CephString")],
        "list unfound objects on this pg, perhaps starting at an offset given in JSON",
    ),
    command("ops", &[rest("filterstr", false)], "show the ops currently in flight"),
    command(
        "perf dump",
        &[may("logger", "CephString"), may("counter", "CephString")],
        "dump perfcounters value",
    ),
    command("pg", &[need("pgid", "CephPgid"), choice("cmd", "query")], ""),
    command(
        "pg",
        &[need("pgid", "CephPgid"), choice("cmd", "list_unfound"), may("offset", "CephString")],
        "",
    ),
    command("query", &[may("pgid", "CephPgid")], "show details of a specific pg"),
    command("send_beacon", &[], "send OSD beacon to mon immediately"),
    command("status", &[], "high-level status of OSD"),
    Command { prefix: "version", args: &[], help: "get ceph version", open: true },
];

impl Arg {
    fn describe(&self) -> Value {
        let mut d = Map::new();
        d.insert("name".into(), self.name.into());
        d.insert("type".into(), self.kind.into());
        if !self.required {
            d.insert("req".into(), "false".into());
        }
        if self.rest {
            d.insert("n".into(), "N".into());
        }
        if !self.choices.is_empty() {
            d.insert("strings".into(), self.choices.into());
        }
        Value::Object(d)
    }
}

/// Signatures in the form that `ceph` parses its arguments with.
pub(super) fn descriptions() -> Value {
    let describe = |(i, c): (usize, &Command)| {
        let words = c.prefix.split(' ').map(Value::from);
        let sig: Vec<Value> = words.chain(c.args.iter().map(Arg::describe)).collect();
        (format!("cmd{i:03}"), json!({ "sig": sig, "help": c.help }))
    };
    Value::Object(COMMANDS.iter().enumerate().map(describe).collect())
}

pub(super) fn help() -> Value {
    Value::Object(COMMANDS.iter().map(|c| (c.prefix.to_owned(), Value::from(c.help))).collect())
}
