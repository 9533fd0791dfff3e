//! Commands to this daemon: `ceph tell osd.N ...`.

pub(super) mod bench;
mod table;

use bytes::Bytes;
use messages::common::{MCommand, MCommandReply};
use serde_json::{Map, Value, json};
use types::{ConnId, Errno, PgId, SpgId};

use super::OsdCore;
use crate::config::OPTIONS;
use crate::io::{LogLevel, Output};
use table::COMMANDS;

/// A command's outcome: a status line and output, or an errno with a line.
type Outcome = Result<(String, Bytes), (Errno, String)>;

impl OsdCore {
    pub(super) fn command(&mut self, conn: ConnId, tid: u64, m: &MCommand) {
        let outcome = match parse(&m.cmd) {
            Ok(args) => self.run_command(conn, tid, &args),
            Err(why) => Err((Errno::EINVAL, why)).into(),
        };
        if let Some(outcome) = outcome {
            self.shared.out.push(Output::Reply { conn, tid, msg: reply(outcome).into() });
        }
    }

    /// The outcome, or `None` when the command replies later.
    fn run_command(&mut self, conn: ConnId, tid: u64, args: &Map<String, Value>) -> Option<Outcome> {
        if text(args, "prefix") == Some("bench") && self.may_command(conn) {
            return self.bench(conn, tid, args).err().map(Err);
        }
        Some(self.run_short_command(conn, args))
    }

    fn run_short_command(&mut self, conn: ConnId, args: &Map<String, Value>) -> Outcome {
        let prefix = text(args, "prefix").unwrap_or_default();
        let Some(known) = COMMANDS.iter().find(|c| c.prefix == prefix) else {
            return Err((Errno::EINVAL, format!("unrecognized command '{prefix}'")));
        };
        if !known.open && !self.may_command(conn) {
            return Err((Errno::EACCES, "access denied".into()));
        }
        // `ceph pg <pgid> query` arrives as `pg` with the command beside it.
        let prefix = if prefix == "pg" { text(args, "cmd").unwrap_or("query") } else { prefix };
        if prefix.starts_with("config") || prefix == "injectargs" {
            return self.config_command(prefix, args);
        }
        match prefix {
            "version" => out(&json!({ "version": crate::VERSION_TEXT })),
            "git_version" => out(&json!({ "git_version": env!("CARGO_PKG_VERSION") })),
            "get_command_descriptions" => out(&table::descriptions()),
            "help" => out(&table::help()),
            "status" => out(&self.status()),
            "perf dump" => self.perf_dump(args),
            "dump_ops_in_flight" | "ops" => out(&self.ops_in_flight()),
            "dump_blocked_ops" => out(&self.blocked_ops()),
            "dump_historic_ops" => out(&json!({ "size": 0, "duration": 0, "ops": [] })),
            "dump_blocklist" => out(&self.blocklist()),
            "get_mapped_pools" => out(&self.mapped_pools()),
            "query" => self.query(args),
            "list_unfound" => self.list_unfound(args),
            "flush_pg_stats" => Ok((String::new(), format!("{}\n", self.flush_stats()).into())),
            "send_beacon" => {
                self.send_beacon();
                Ok((String::new(), Bytes::new()))
            }
            "get_latest_osdmap" => {
                self.shared.send_mon(super::mon::subscribe(self.shared.epoch().next()));
                Ok((String::new(), Bytes::new()))
            }
            "cluster_log" => {
                let message = words(args, "message");
                self.shared.cluster_log(LogLevel::Error, message);
                Ok((String::new(), Bytes::new()))
            }
            other => Err((Errno::EINVAL, format!("unrecognized command '{other}'"))),
        }
    }

    fn config_command(&mut self, prefix: &str, args: &Map<String, Value>) -> Outcome {
        match prefix {
            "config get" => self.config_get(args),
            "config set" => self.config_set(args),
            "config unset" => self.config_unset(args),
            "config show" => out(&self.config_show()),
            "config diff" | "config diff get" => out(&self.config_diff(text(args, "var"))),
            _ => self.inject(args),
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
        let (name, value) = (text(args, "var").unwrap_or_default(), words(args, "val"));
        if self.shared.config.get(name).is_none() {
            let why = format!("error setting '{name}' to '{value}': (2) No such file or directory");
            return Err((Errno::ENOENT, why));
        }
        if self.shared.config.set(name, &value) {
            return out(&json!({ "success": format!("{name} = '{value}' ") }));
        }
        Err((Errno::EINVAL, format!("error setting '{name}' to '{value}': (22) Invalid argument")))
    }

    fn config_unset(&mut self, args: &Map<String, Value>) -> Outcome {
        let name = text(args, "var").unwrap_or_default();
        match crate::OsdConfig::default().get(name) {
            Some(value) if self.shared.config.set(name, &value) => {
                out(&json!({ "success": format!("{name} = '' ") }))
            }
            _ => Err((Errno::ENOENT, format!("error unsetting '{name}': (2) No such file or directory"))),
        }
    }

    fn config_show(&self) -> Value {
        let get = |name: &&str| self.shared.config.get(name).map(|v| ((*name).to_owned(), Value::from(v)));
        Value::Object(OPTIONS.iter().filter_map(get).collect())
    }

    /// Options that are not at their defaults, or the one that is asked for.
    fn config_diff(&self, only: Option<&str>) -> Value {
        let default = crate::OsdConfig::default();
        let changed = OPTIONS.iter().filter(|name| only.is_none_or(|o| o == **name)).filter_map(|name| {
            let (now, was) = (self.shared.config.get(name)?, default.get(name)?);
            let differs = json!({ "default": was, "override": now, "final": now });
            (now != was || only.is_some()).then(|| ((*name).to_owned(), differs))
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

    fn perf_dump(&self, args: &Map<String, Value>) -> Outcome {
        let mut all = self.perf_counters();
        if let Some(logger) = text(args, "logger") {
            let mut one = all.get(logger).cloned().unwrap_or(json!({}));
            if let Some(counter) = text(args, "counter") {
                one = one.get(counter).map_or(json!({}), |v| json!({ counter: v }));
            }
            all = json!({ logger: one });
        }
        out(&all)
    }

    fn perf_counters(&self) -> Value {
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

    /// Requests that wait for something else than a disk.
    fn blocked_ops(&self) -> Value {
        let waiting = |pg: &crate::pg::Pg| {
            let object = pg.waiting_for_object.iter().map(|(o, q)| (format!("object {o}"), q.len()));
            let active = ("active".to_owned(), pg.waiting_for_active.len());
            object.chain([active]).filter(|(_, n)| *n > 0).collect::<Vec<_>>()
        };
        let ops: Vec<Value> = self
            .pgs
            .iter()
            .flat_map(|(id, pg)| waiting(pg).into_iter().map(move |(what, n)| (id, what, n)))
            .map(|(id, what, n)| json!({ "pg": id.to_string(), "waiting_for": what, "count": n }))
            .collect();
        json!({ "num_blocked_ops": ops.len(), "ops": ops })
    }

    fn blocklist(&self) -> Value {
        let entries = self.shared.map.blocklist.iter();
        Value::Array(
            entries.map(|(a, until)| json!({ "addr": a.to_string(), "until": until.to_string() })).collect(),
        )
    }

    fn pg_of(&self, args: &Map<String, Value>) -> Result<&crate::pg::Pg, (Errno, String)> {
        let asked = text(args, "pgid").unwrap_or_default();
        let pgid =
            PgId::parse(asked).ok_or_else(|| (Errno::EINVAL, format!("couldn't parse pgid '{asked}'")))?;
        let found = self.pgs.get(&SpgId::replicated(pgid));
        found.ok_or_else(|| (Errno::ENOENT, format!("i don't have pgid {pgid}")))
    }

    fn query(&self, args: &Map<String, Value>) -> Outcome {
        out(&self.pg_of(args)?.query(&self.shared))
    }

    fn list_unfound(&self, args: &Map<String, Value>) -> Outcome {
        let pg = self.pg_of(args)?;
        let objects: Vec<Value> = pg
            .unfound
            .iter()
            .map(|o| {
                let need = pg.missing.get(o).map(|i| i.need.to_string());
                json!({ "oid": { "oid": o.name, "key": o.key, "namespace": o.nspace, "hash": o.hash }, "need": need })
            })
            .collect();
        out(&json!({
            "num_missing": pg.missing.len(), "num_unfound": objects.len(), "objects": objects, "more": false,
        }))
    }
}

fn reply(outcome: Outcome) -> MCommandReply {
    match outcome {
        Ok((status, output)) => MCommandReply { result: 0, status, output },
        Err((e, status)) => MCommandReply { result: e.neg(), status, output: Bytes::new() },
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

/// An argument of one or several words.
fn words(args: &Map<String, Value>, name: &str) -> String {
    match args.get(name) {
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Some(Value::String(s)) => s.clone(),
        _ => String::new(),
    }
}

fn out(value: &Value) -> Outcome {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    Ok((String::new(), text.into()))
}
