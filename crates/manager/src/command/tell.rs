//! What `ceph tell mgr.x` answers: commands of the daemon itself, not of the cluster.
//!
//! Source: src/common/admin_socket.cc and CephContext::_do_command in src/common/ceph_context.cc.

use monitor::command::{Args, Format, Reply, Signature};
use serde_json::{Value, json};
use types::{Errno, Now};

use crate::core::Manager;
use crate::io::PeerInfo;
use crate::options::{Level, OPTIONS, OptionInfo, Options};

/// A command that changes the daemon or reads what it holds.
struct TellCommand {
    sig: &'static str,
    help: &'static str,
    handler: fn(&mut Manager, &Args, Format) -> Reply,
}

const fn command(
    sig: &'static str,
    help: &'static str,
    handler: fn(&mut Manager, &Args, Format) -> Reply,
) -> TellCommand {
    TellCommand { sig, help, handler }
}

/// The commands, in the order of their words.
const COMMANDS: &[TellCommand] = &[
    command("config diff", "dump diff of current config and default config", config_diff),
    command(
        "config diff get name=var,type=CephString",
        "dump diff get <field>: dump diff of current and default config setting <field>",
        |m, args, format| with_option(args, |o| Reply::json(format, &json!({ "diff": diff(&m.options, o) }))),
    ),
    command(
        "config get name=var,type=CephString",
        "config get <field>: get the config value",
        |m, args, format| {
            with_option(args, |o| Reply::json(format, &json!({ o.name: m.options.text(o.name) })))
        },
    ),
    command(
        "config help name=var,type=CephString,req=false",
        "get config setting schema and descriptions",
        config_help,
    ),
    command(
        "config set name=var,type=CephString name=val,type=CephString,n=N",
        "config set <field> <val> [<val> ...]: set a config variable",
        config_set,
    ),
    command("config show", "dump current config settings", |m, _, format| {
        let name = [("name".to_owned(), json!(format!("mgr.{}", m.settings.name)))];
        let values = OPTIONS.iter().map(|o| (o.name.to_owned(), json!(m.options.text(o.name))));
        Reply::json(format, &Value::Object(name.into_iter().chain(values).collect()))
    }),
    command(
        "config unset name=var,type=CephString",
        "config unset <field>: unset a config variable",
        |m, args, format| {
            with_option(args, |o| {
                m.options.unset(o.name);
                Reply::json(format, &json!({ "success": "" }))
            })
        },
    ),
    command("get_command_descriptions", "list available commands", |_, _, _| {
        let commands = COMMANDS.iter().map(|c| (c.sig, c.help, "mgr", "rw"));
        Reply::text(super::describe(commands).to_string())
    }),
    command("help", "list available commands", |_, _, format| {
        let help = COMMANDS.iter().map(|c| (prefix(c), json!(c.help)));
        Reply::json(format, &Value::Object(help.collect()))
    }),
    command("mgr_status", "Dump mgr status", |m, _, format| {
        let epoch = m.map.as_ref().map_or(0, |map| map.epoch.0);
        Reply::json(
            format,
            &json!({ "osd_epoch": epoch, "pg_ready": m.pgs.ready, "sessions": m.sessions.len() }),
        )
    }),
    command(
        "perf dump name=logger,type=CephString,req=false name=counter,type=CephString,req=false",
        "dump perfcounters value",
        perf_dump,
    ),
    command("version", "get ceph version", |_, _, format| {
        Reply::json(format, &json!({ "version": VERSION, "release": RELEASE, "release_type": "stable" }))
    }),
];

/// The release whose protocol we speak: clients compare it with their own.
const VERSION: &str = "16.2.15";
const RELEASE: &str = "pacific";

/// Answers a command. They need all capabilities, whatever they do.
pub(super) fn answer(manager: &mut Manager, _: Now, peer: &PeerInfo, cmd: &[String]) -> Reply {
    let (prefix, mut args) = match Args::parse(cmd) {
        Ok(parsed) => parsed,
        Err(error) => return Reply::error(Errno::EINVAL, error.to_string()),
    };
    if !peer.caps.is_allow_all() {
        let why = "access denied: does your client key have mgr caps? See \
                   http://docs.ceph.com/en/latest/mgr/administrator/#client-authentication";
        return Reply::error(Errno::EACCES, why);
    }
    let Some(command) = COMMANDS.iter().find(|c| Signature::prefix_of(c.sig).eq(prefix.split_whitespace()))
    else {
        return Reply::error(Errno::EINVAL, format!("unknown command '{prefix}'"));
    };
    if let Err(error) = args.check(&Signature::parse(command.sig)) {
        return Reply::error(Errno::EINVAL, error.to_string());
    }
    // Without a format these print JSON for people.
    let format = match Format::parse(args.text("format")) {
        Ok(Format::Plain) => Format::JsonPretty,
        Ok(format) => format,
        Err(reply) => return reply,
    };
    (command.handler)(manager, &args, format)
}

fn prefix(command: &TellCommand) -> String {
    Signature::prefix_of(command.sig).collect::<Vec<_>>().join(" ")
}

fn with_option(args: &Args, then: impl FnOnce(&'static OptionInfo) -> Reply) -> Reply {
    let name = args.text_or_empty("var");
    match Options::info(name) {
        Some(option) => then(option),
        None => Reply::error(Errno::ENOENT, format!("error getting '{name}': {}", Errno::ENOENT)),
    }
}

fn config_set(manager: &mut Manager, args: &Args, format: Format) -> Reply {
    let value = args.list("val").join(" ");
    match manager.options.set(args.text_or_empty("var"), &value, Level::Override) {
        Ok(()) => Reply::json(format, &json!({ "success": "" })),
        Err(error) => Reply::error(Errno::EINVAL, error),
    }
}

/// Default, values by level, and the one in force; empty for an option at its default.
fn diff(options: &Options, option: &OptionInfo) -> Value {
    let levels: Vec<(String, Value)> =
        options.levels(option.name).map(|(level, v)| (level.name().to_owned(), json!(v))).collect();
    if levels.is_empty() {
        return json!({});
    }
    let first = ("default".to_owned(), json!(option.default));
    let last = ("final".to_owned(), json!(options.text(option.name)));
    let values = Value::Object([first].into_iter().chain(levels).chain([last]).collect());
    json!({ option.name: values })
}

fn config_diff(manager: &mut Manager, _: &Args, format: Format) -> Reply {
    let all = OPTIONS.iter().map(|o| diff(&manager.options, o)).reduce(crate::dump::merge);
    Reply::json(format, &json!({ "diff": all }))
}

fn config_help(_: &mut Manager, args: &Args, format: Format) -> Reply {
    let describe = |o: &OptionInfo| {
        json!({
            "name": o.name,
            "type": o.kind,
            "level": "advanced",
            "desc": o.desc,
            "long_desc": "",
            "default": o.default,
            "daemon_default": "",
            "tags": [],
            "services": ["mgr"],
            "see_also": [],
            "enum_values": [],
            "min": "",
            "max": "",
            "can_update_at_runtime": true,
            "flags": ["runtime"],
        })
    };
    match args.text("var") {
        Some(_) => with_option(args, |o| Reply::json(format, &json!({ "option": describe(o) }))),
        None => Reply::json(format, &json!({ "options": OPTIONS.iter().map(describe).collect::<Vec<_>>() })),
    }
}

/// What is counted: sessions, and what is held of PGs and OSDs.
fn perf_dump(manager: &mut Manager, args: &Args, format: Format) -> Reply {
    let counters = json!({
        "mgr": {
            "sessions": manager.sessions.len(),
            "num_pgs": manager.pgs.pgs.len(),
            "num_osds": manager.pgs.osds.len(),
            "pgmap_version": manager.pgs.version,
        },
    });
    let Some(logger) = args.text("logger") else { return Reply::json(format, &counters) };
    let chosen = counters.get(logger).cloned().unwrap_or_else(|| json!({}));
    let chosen = match args.text("counter") {
        Some(counter) => chosen.get(counter).map_or_else(|| json!({}), |v| json!({ counter: v })),
        None => chosen,
    };
    Reply::json(format, &json!({ logger: chosen }))
}
