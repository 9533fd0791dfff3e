//! `config-key ...`: a small store of keys and values for daemons and tools; and `log`, which writes to the cluster log.
//!
//! Source: src/mon/ConfigKeyService.cc, LogMonitor::prepare_command.

use serde_json::{Map, Value, json};
use types::Errno;

use crate::command::{Access, Command, Ctx, Format, Handler, Reply, WriteCtx, flags, write};
use crate::state::{Change, LogEntry, Priority};

/// Longest value, in bytes. Source: mon_config_key_max_entry_size.
const MAX_VALUE: usize = 64 << 10;
/// Longest key; Ceph has no bound of its own.
const MAX_KEY: usize = 4 << 10;

/// What changes something here, and needs.
const WRITES: Access = Access { module: "config-key", perm: "rw" };

pub(super) const COMMANDS: &[Command] = &[
    read("config-key get name=key,type=CephString", "value of a key", flags::NONE, get),
    read("config-key exists name=key,type=CephString", "whether a key exists", flags::NONE, exists),
    read("config-key ls", "all keys", flags::NONE, ls),
    read("config-key list", "all keys", flags::DEPRECATED, ls),
    read(
        "config-key dump name=key,type=CephString,req=false",
        "keys that begin with <key>, and their values",
        flags::NONE,
        dump,
    ),
    write(
        WRITES,
        "config-key set name=key,type=CephString name=val,type=CephString,req=false",
        "set a key to a value, or to what -i brings",
        flags::NONE,
        set,
    ),
    write(
        WRITES,
        "config-key put name=key,type=CephString name=val,type=CephString,req=false",
        "set a key to a value, or to what -i brings",
        flags::DEPRECATED,
        set,
    ),
    write(WRITES, "config-key rm name=key,type=CephString", "remove a key", flags::NONE, rm),
    write(WRITES, "config-key del name=key,type=CephString", "remove a key", flags::DEPRECATED, rm),
    Command {
        sig: "log name=logtext,type=CephString,n=N",
        help: "write a text to the cluster log",
        module: "mon",
        perm: "rw",
        flags: flags::NONE,
        handler: Handler::Write(log),
    },
];

const fn read(sig: &'static str, help: &'static str, flags: u32, handler: fn(&Ctx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "config-key", perm: "r", flags, handler: Handler::Read(handler) }
}

fn get(ctx: &Ctx<'_>) -> Reply {
    match ctx.state.kv.get(ctx.args.text_or_empty("key")) {
        Some(value) => Reply::data(value.clone()),
        None => Reply::error(Errno::ENOENT, ""),
    }
}

fn exists(ctx: &Ctx<'_>) -> Reply {
    let key = ctx.args.text_or_empty("key");
    match ctx.state.kv.contains_key(key) {
        true => Reply::done(format!("key '{key}' exists")),
        false => Reply::error(Errno::ENOENT, format!("key '{key}' doesn't exist")),
    }
}

/// These have no plain form.
fn json_format(format: Format) -> Format {
    if format.is_plain() { Format::JsonPretty } else { format }
}

fn ls(ctx: &Ctx<'_>) -> Reply {
    let keys: Value = ctx.state.kv.keys().map(|k| json!(k)).collect();
    let reply = Reply::json(json_format(ctx.format), &keys);
    if ctx.format == Format::Json { Reply::data([&reply.data[..], b"\n"].concat()) } else { reply }
}

fn dump(ctx: &Ctx<'_>) -> Reply {
    let prefix = ctx.args.text_or_empty("key");
    let shown = |value: &bytes::Bytes| match std::str::from_utf8(value) {
        Ok(text) if text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t' || c == '\r') => {
            json!(text)
        }
        _ => json!(format!("<<< binary blob of length {} >>>", value.len())),
    };
    let under = ctx.state.kv.range(prefix.to_owned()..).take_while(|(k, _)| k.starts_with(prefix));
    let all: Map<String, Value> = under.map(|(k, v)| (k.clone(), shown(v))).collect();
    let reply = Reply::json(json_format(ctx.format), &Value::Object(all));
    if ctx.format == Format::Json { Reply::data([&reply.data[..], b"\n"].concat()) } else { reply }
}

fn set(ctx: &mut WriteCtx<'_>) -> Reply {
    let key = ctx.args.text_or_empty("key");
    if key.is_empty() || key.len() > MAX_KEY {
        return Reply::error(Errno::EINVAL, format!("error: key must have 1 to {MAX_KEY} bytes"));
    }
    let value = match ctx.args.text("val") {
        Some(text) => text.to_owned().into_bytes().into(),
        None => ctx.input.clone(),
    };
    if value.len() > MAX_VALUE {
        let text = format!(
            "error: entry size limited to {MAX_VALUE} bytes. Use 'mon config key max entry size' to manually adjust"
        );
        return Reply::error(Errno::EFBIG, text);
    }
    if ctx.state().kv.get(key) != Some(&value) {
        ctx.change(Change::Kv(key.to_owned(), Some(value)));
    }
    Reply::done(format!("set {key}"))
}

fn rm(ctx: &mut WriteCtx<'_>) -> Reply {
    let key = ctx.args.text_or_empty("key").to_owned();
    if ctx.state().kv.contains_key(&key) {
        ctx.change(Change::Kv(key, None));
    }
    Reply::done("key deleted")
}

/// The entry is in the name of whoever gave the command.
fn log(ctx: &mut WriteCtx<'_>) -> Reply {
    let text = ctx.args.list("logtext").join(" ");
    if text.is_empty() {
        return Reply::from(Errno::EINVAL);
    }
    let entry = LogEntry {
        name: ctx.session.name.clone(),
        rank: ctx.session.peer,
        addrs: ctx.session.addrs.clone(),
        ..ctx.settings.log_entry(ctx.now, Priority::Info, "cluster", text)
    };
    ctx.batch.log(entry);
    Reply::ok()
}
