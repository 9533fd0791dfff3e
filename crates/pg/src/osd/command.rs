//! Commands to this daemon: `ceph tell osd.N ...`.

use bytes::Bytes;
use messages::common::{MCommand, MCommandReply};
use serde_json::{Map, Value, json};
use types::{ConnId, Errno, PgId, SpgId};

use super::OsdCore;
use crate::config::OPTIONS;
use crate::io::Output;
use crate::pg::state::pg_state;

/// Name and arguments as `ceph` parses them, help, and the permission needed.
struct Command {
    prefix: &'static str,
    /// Further words of the signature after the prefix, as JSON values.
    args: &'static [Arg],
    help: &'static str,
    perm: &'static str,
}

/// One argument.
struct Arg {
    name: &'static str,
    kind: &'static str,
    required: bool,
}

const fn arg(name: &'static str, kind: &'static str, required: bool) -> Arg {
    Arg { name, kind, required }
}

const fn command(
    prefix: &'static str,
    args: &'static [Arg],
    help: &'static str,
    perm: &'static str,
) -> Command {
    Command { prefix, args, help, perm }
}

const COMMANDS: [Command; 16] = [
    command("version", &[], "report version of OSD", "r"),
    command("get_command_descriptions", &[], "list available commands", ""),
    command("help", &[], "list available commands", ""),
    command("status", &[], "high-level status of OSD", "r"),
    command("config get", &[arg("var", "CephString", true)], "get the config value", "r"),
    command(
        "config set",
        &[arg("var", "CephString", true), arg("val", "CephString", true)],
        "set a config variable",
        "rw",
    ),
    command("config show", &[], "dump current config settings", "r"),
    command("config diff", &[], "dump diff of current config and default config", "r"),
    command(
        "injectargs",
        &[arg("injected_args", "CephString", true)],
        "inject configuration arguments",
        "rw",
    ),
    command("perf dump", &[], "dump perfcounters value", "r"),
    command("dump_ops_in_flight", &[], "show the ops currently in flight", "r"),
    command("ops", &[], "show the ops currently in flight", "r"),
    command("dump_pgstate_history", &[], "show recent state history", "r"),
    command("get_mapped_pools", &[], "dump pools whose PG(s) are mapped to this OSD.", "r"),
    command("list_pgs", &[], "list the PGs of this OSD and their states", "r"),
    command("query", &[arg("pgid", "CephPgid", true)], "show details of a specific pg", "r"),
];

/// A command's outcome: a status line and output, or an errno with a line.
type Outcome = Result<(String, Bytes), (Errno, String)>;

impl OsdCore {
    pub(super) fn command(&mut self, conn: ConnId, tid: u64, m: &MCommand) {
        let outcome = match parse(&m.cmd) {
            Ok(args) => self.run_command(conn, &args),
            Err(why) => Err((Errno::EINVAL, why)),
        };
        let reply = match outcome {
            Ok((status, output)) => MCommandReply { result: 0, status, output },
            Err((e, status)) => MCommandReply { result: e.neg(), status, output: Bytes::new() },
        };
        self.shared.out.push(Output::Reply { conn, tid, msg: reply.into() });
    }

    fn run_command(&mut self, conn: ConnId, args: &Map<String, Value>) -> Outcome {
        let prefix = text(args, "prefix").unwrap_or_default();
        // `ceph pg <pgid> query` arrives as prefix `pg` with the command beside it.
        let prefix = if prefix == "pg" { text(args, "cmd").unwrap_or("query") } else { prefix };
        let Some(known) = COMMANDS.iter().find(|c| c.prefix == prefix) else {
            return Err((Errno::EINVAL, format!("unrecognized command '{prefix}'")));
        };
        // Source: OSD::do_command and OSDCap::is_capable for an empty pool: what a service-wide grant allows.
        if !known.perm.is_empty() && !self.may_command(conn) {
            return Err((Errno::EACCES, "access denied".into()));
        }
        match prefix {
            "version" => out(&json!({ "version": crate::VERSION_TEXT })),
            "get_command_descriptions" => out(&descriptions()),
            "help" => out(&help()),
            "status" => out(&self.status()),
            "config get" => self.config_get(args),
            "config set" => self.config_set(args),
            "config show" => out(&self.config_show()),
            "config diff" => out(&self.config_diff()),
            "injectargs" => self.inject(args),
            "perf dump" => out(&self.perf_dump()),
            "dump_ops_in_flight" | "ops" => out(&self.ops_in_flight()),
            "get_mapped_pools" => out(&self.mapped_pools()),
            "list_pgs" => out(&self.list_pgs()),
            "query" => self.query(args),
            _ => out(&json!({ "pgs": [] })),
        }
    }

    fn may_command(&self, conn: ConnId) -> bool {
        self.shared.sessions.get(&conn).is_some_and(|s| s.peer.caps.is_allow_all())
    }

    fn status(&self) -> Value {
        json!({
            "cluster_fsid": self.shared.map.fsid.to_string(),
            "osd_fsid": self.shared.store.identity().osd_uuid.to_string(),
            "whoami": self.shared.whoami,
            "state": if self.boot.is_up() { "active" } else { "booting" },
            "oldest_map": self.superblock.oldest_map.0,
            "newest_map": self.superblock.current_epoch.0,
            "num_pgs": self.pgs.len(),
        })
    }

    fn config_get(&self, args: &Map<String, Value>) -> Outcome {
        let name = text(args, "var").unwrap_or_default();
        match self.shared.config.get(name) {
            Some(value) => out(&json!({ name: value })),
            None => Err((Errno::ENOENT, format!("error getting '{name}': (2) No such file or directory"))),
        }
    }

    fn config_set(&mut self, args: &Map<String, Value>) -> Outcome {
        let (name, value) = (text(args, "var").unwrap_or_default(), text(args, "val").unwrap_or_default());
        if self.shared.config.set(name, value) {
            return out(&json!({ "success": format!("{name} = '{value}' ") }));
        }
        Err((Errno::EINVAL, format!("error setting '{name}' to '{value}': (22) Invalid argument")))
    }

    fn config_show(&self) -> Value {
        let get = |name: &&str| self.shared.config.get(name).map(|v| ((*name).to_owned(), Value::from(v)));
        Value::Object(OPTIONS.iter().filter_map(get).collect())
    }

    fn config_diff(&self) -> Value {
        let default = crate::OsdConfig::default();
        let changed = OPTIONS.iter().filter_map(|name| {
            let (now, was) = (self.shared.config.get(name)?, default.get(name)?);
            (now != was).then(|| ((*name).to_owned(), json!({ "default": was, "override": now })))
        });
        json!({ "diff": Value::Object(changed.collect()) })
    }

    /// `--name value`, `--name=value`, several of them.
    fn inject(&mut self, args: &Map<String, Value>) -> Outcome {
        let given = match args.get("injected_args") {
            Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
            Some(Value::String(s)) => s.clone(),
            _ => String::new(),
        };
        let mut words = given.split_whitespace();
        let mut said = String::new();
        while let Some(word) = words.next() {
            let word = word.trim_start_matches('-').replace('-', "_");
            let (name, value) = match word.split_once('=') {
                Some((n, v)) => (n.to_owned(), v.to_owned()),
                None => (word, words.next().unwrap_or_default().to_owned()),
            };
            if !self.shared.config.set(&name, &value) {
                return Err((Errno::EINVAL, format!("failed to parse arguments: {name}={value}")));
            }
            said.push_str(&format!("{name} = '{value}' "));
        }
        Ok((said, Bytes::new()))
    }

    fn perf_dump(&self) -> Value {
        let c = &self.shared.counters;
        let s = self.shared.store.counters();
        json!({
            "osd": {
                "op": c.ops, "op_r": c.reads, "op_r_out_bytes": c.read_bytes, "op_w": c.writes,
                "op_w_in_bytes": c.write_bytes, "subop_w": c.rep_ops, "pull": c.pulls, "push": c.pushes,
                "numpg": self.pgs.len(),
                "numpg_primary": self.pgs.values().filter(|pg| pg.is_primary(&self.shared)).count(),
                "map_epoch": self.shared.epoch().0,
            },
            "store": {
                "txns": s.txns, "commits": s.commits, "checkpoints": s.checkpoints, "log_bytes": s.log_bytes,
                "direct_bytes": s.direct_bytes, "checkpoint_bytes": s.checkpoint_bytes,
                "blocks_read": s.blocks_read, "pages_read": s.pages_read, "corrupt_blocks": s.corrupt_blocks,
                "memory_bytes": s.memory_bytes, "memory_peak_bytes": s.memory_peak_bytes,
                "log_used_bytes": s.log_used_bytes,
            },
        })
    }

    fn ops_in_flight(&self) -> Value {
        let ops: Vec<Value> = self
            .pgs
            .values()
            .flat_map(|pg| pg.writes.iter().map(|w| {
                json!({ "description": format!("osd_op({} {} {})", w.op.tid, pg.id, w.object), "version": w.version.to_string() })
            }))
            .collect();
        json!({ "num_ops": ops.len(), "ops": ops })
    }

    fn mapped_pools(&self) -> Value {
        let pools: std::collections::BTreeSet<i64> = self.pgs.keys().map(|id| id.pgid.pool.0).collect();
        json!({ "mapped_pools": pools })
    }

    fn list_pgs(&self) -> Value {
        let pgs = self.pgs.iter().map(|(id, pg)| {
            json!({ "pgid": id.to_string(), "state": pg_state::to_text(pg.cluster_state(&self.shared)), "primary": pg.primary() })
        });
        Value::Array(pgs.collect())
    }

    fn query(&self, args: &Map<String, Value>) -> Outcome {
        let asked = text(args, "pgid").unwrap_or_default();
        let Some(pgid) = PgId::parse(asked) else {
            return Err((Errno::EINVAL, format!("couldn't parse pgid '{asked}'")));
        };
        let Some(pg) = self.pgs.get(&SpgId::replicated(pgid)) else {
            return Err((Errno::ENOENT, format!("i don't have pgid {pgid}")));
        };
        out(&pg.query(&self.shared))
    }
}

fn parse(cmd: &[String]) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(&cmd.concat()) {
        Ok(Value::Object(args)) => Ok(args),
        Ok(_) => Err("command is no JSON object".into()),
        Err(e) => Err(format!("command is not JSON: {e}")),
    }
}

fn text<'a>(args: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    args.get(name).and_then(Value::as_str)
}

fn out(value: &Value) -> Outcome {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    Ok((String::new(), text.into()))
}

/// Signatures in the form that `ceph` parses its arguments with.
fn descriptions() -> Value {
    let describe = |(i, c): (usize, &Command)| {
        let words = c.prefix.split(' ').map(Value::from);
        let args = c.args.iter().map(|a| json!({ "name": a.name, "type": a.kind, "req": a.required }));
        let sig: Vec<Value> = words.chain(args).collect();
        (
            format!("cmd{i:03}"),
            json!({ "sig": sig, "help": c.help, "module": "osd", "perm": c.perm, "flags": 0 }),
        )
    };
    Value::Object(COMMANDS.iter().enumerate().map(describe).collect())
}

fn help() -> Value {
    Value::Object(COMMANDS.iter().map(|c| (c.prefix.to_owned(), Value::from(c.help))).collect())
}
