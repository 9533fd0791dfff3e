//! Commands to this daemon: `ceph tell osd.N ...`, and through its admin socket.

pub(super) mod bench;
pub(super) mod disks;
mod ops;
mod table;

use admin::common::{self, Daemon, Request};
use admin::{Args, Reply};
use bytes::Bytes;
use messages::common::{MCommand, MCommandReply};
use serde_json::{Map, Value, json};
use types::{ConnId, Errno, PgId, SpgId};

use super::OsdCore;
use crate::io::{LogLevel, Output};
use table::COMMANDS;

/// A command's outcome: a status line and output, or an errno with a line.
type Outcome = Result<(String, Bytes), (Errno, String)>;

/// Commands that anybody with a session may give.
const OPEN: &[&str] = &["version", "git_version", "help", "get_command_descriptions"];

/// The connection of those who speak through the admin socket.
pub(crate) const ADMIN_SOCKET: ConnId = ConnId(u64::MAX - 1);

impl OsdCore {
    pub(super) fn command(&mut self, conn: ConnId, tid: u64, m: &MCommand) {
        let opens =
            |cmd: &[String]| Args::parse(cmd).is_ok_and(|(prefix, _)| OPEN.contains(&prefix.as_str()));
        if !self.may_command(conn) && !opens(&m.cmd) {
            let denied = reply(Err((Errno::EACCES, "access denied".into())));
            return self.shared.out.push(Output::Reply { conn, tid, msg: denied.into() });
        }
        if let Some(r) = self.run_command(conn, tid, &m.cmd) {
            let msg = MCommandReply { result: r.code, status: r.outs, output: r.data };
            self.shared.out.push(Output::Reply { conn, tid, msg: msg.into() });
        }
    }

    /// A command from somebody who may do everything: the owner of the admin socket. `None`: the answer comes later, as
    /// an `Output::AdminReply` with this number.
    pub(super) fn admin_command(&mut self, tid: u64, cmd: &[String]) {
        if let Some(reply) = self.run_command(ADMIN_SOCKET, tid, cmd) {
            self.shared.out.push(Output::AdminReply { tid, reply });
        }
    }

    /// The answer, or `None` when it comes later.
    fn run_command(&mut self, conn: ConnId, tid: u64, cmd: &[String]) -> Option<Reply> {
        let request = match Request::parse(cmd, COMMANDS) {
            Ok(request) => request,
            Err(refused) => return Some(refused),
        };
        let loggers = if request.prefix.starts_with("perf") { self.loggers() } else { Vec::new() };
        let perf = &|| loggers.clone();
        let (values, resets) = (&mut self.values, &mut self.resets);
        let mut daemon = Daemon { values, perf, resets, own: COMMANDS };
        if let Some(reply) = common::run(&request, &mut daemon) {
            self.apply_values();
            return Some(reply);
        }
        if request.prefix == "bench" {
            let args = match serde_json::from_str(&cmd.concat()) {
                Ok(Value::Object(args)) => args,
                _ => Map::new(),
            };
            return self.bench(conn, tid, &args).err().map(|(e, why)| Reply::error(e, why));
        }
        if matches!(request.prefix.as_str(), "smart" | "list_devices") {
            return self.ask_disks(conn, tid, request).err();
        }
        let json = |value: &Value| Reply::json(request.format, value);
        Some(match self.answer(&request) {
            Ok(Answer::Json(value)) => request.finish(json(&value)),
            Ok(Answer::Text(text)) => Reply::text(text),
            Ok(Answer::Nothing) => Reply::ok(),
            Err((e, why)) => Reply::error(e, why),
        })
    }

    fn answer(&mut self, r: &Request) -> Result<Answer, (Errno, String)> {
        // `ceph pg <pgid> query` arrives as `pg` with the command beside it.
        let prefix = match r.prefix.as_str() {
            "pg" => r.args.text("cmd").unwrap_or("query"),
            other => other,
        };
        Ok(Answer::Json(match prefix {
            "status" => self.status(),
            "dump_ops_in_flight" | "ops" => self.ops_in_flight(),
            "dump_blocked_ops" => self.blocked_ops(),
            "dump_historic_ops" => self.tracker.historic(&self.values, self.shared.now),
            "dump_historic_ops_by_duration" => self.tracker.by_duration(&self.values, self.shared.now),
            "dump_historic_slow_ops" => self.tracker.slow(&self.values, self.shared.now),
            "dump_watchers" => self.watchers(),
            "dump_mempools" => self.mempools(),
            "dump_blocklist" => self.blocklist(),
            "get_mapped_pools" => self.mapped_pools(),
            "query" => self.query(&r.args)?,
            "list_unfound" => self.list_unfound(&r.args)?,
            "mark_unfound_lost" => return self.mark_unfound_lost(&r.args),
            "flush_pg_stats" => return Ok(Answer::Text(format!("{}\n", self.flush_stats()))),
            "send_beacon" => {
                self.send_beacon();
                return Ok(Answer::Nothing);
            }
            "get_latest_osdmap" => {
                self.shared.send_mon(super::mon::subscribe(self.shared.epoch().next()));
                return Ok(Answer::Nothing);
            }
            "cluster_log" => {
                let level = match r.args.text_or_empty("level") {
                    "warning" => LogLevel::Warn,
                    "info" => LogLevel::Info,
                    "debug" => LogLevel::Debug,
                    _ => LogLevel::Error,
                };
                self.shared.cluster_log(level, r.args.list("message").join(" "));
                return Ok(Answer::Nothing);
            }
            other => return Err((Errno::EINVAL, format!("unrecognized command '{other}'"))),
        }))
    }

    fn may_command(&self, conn: ConnId) -> bool {
        self.shared.sessions.get(&conn).is_some_and(|s| s.peer.caps.is_allow_all())
    }

    fn status(&self) -> Value {
        json!({
            "cluster_fsid": self.shared.map.fsid.to_string(),
            "osd_fsid": self.shared.store.identity().osd_uuid.to_string(),
            "whoami": self.shared.whoami.0,
            "state": if self.boot.is_up() { "active" } else { "booting" },
            "oldest_map": self.superblock.oldest_map.0,
            "cluster_osdmap_trim_lower_bound": self.superblock.oldest_map.0,
            "newest_map": self.superblock.current_epoch.0,
            "num_pgs": self.pgs.len(),
        })
    }

    /// What is known of memory: the store counts its own, the logs are added up.
    fn mempools(&self) -> Value {
        let store = self.shared.store.counters().memory_bytes;
        let logs = self.pgs.values().map(|pg| &pg.log);
        let (items, bytes) = logs.fold((0, 0), |(items, bytes), log| {
            (items + log.len() + log.dups_len(), bytes + log.memory_bytes() as u64)
        });
        let (ops, op_bytes) = (self.tracker.in_flight(), self.clients.bytes());
        let pools = json!({
            "store": { "bytes": store, "limit": self.shared.store.memory_limit() },
            "osd_pglog": { "items": items, "bytes": bytes },
            "client_ops": { "items": ops, "bytes": op_bytes },
        });
        let total = json!({ "items": items + ops, "bytes": store + bytes + op_bytes });
        json!({ "mempool": { "by_pool": pools, "total": total } })
    }

    fn mapped_pools(&self) -> Value {
        let pools: std::collections::BTreeSet<i64> = self.pgs.keys().map(|id| id.pgid.pool.0).collect();
        json!({ "mapped_pools": pools })
    }

    fn blocklist(&self) -> Value {
        let entries = self.shared.map.blocklist.iter();
        Value::Array(
            entries.map(|(a, until)| json!({ "addr": a.to_string(), "until": until.to_string() })).collect(),
        )
    }

    fn pg_of(&self, args: &Args) -> Result<&crate::pg::Pg, (Errno, String)> {
        let asked = args.text_or_empty("pgid");
        let pgid =
            PgId::parse(asked).ok_or_else(|| (Errno::EINVAL, format!("couldn't parse pgid '{asked}'")))?;
        // Source: OSD::asok_command, which looks for the primary's shard.
        let id = self.shared.map.primary_shard(pgid).map_or(SpgId::replicated(pgid), |(_, id)| id);
        let found = self.pgs.get(&id);
        found.ok_or_else(|| (Errno::ENOENT, format!("i don't have pgid {pgid}")))
    }

    fn query(&self, args: &Args) -> Result<Value, (Errno, String)> {
        Ok(self.pg_of(args)?.query(&self.shared))
    }

    fn mark_unfound_lost(&mut self, args: &Args) -> Result<Answer, (Errno, String)> {
        let revert = match args.text_or_empty("mulcmd") {
            "revert" => true,
            "delete" => false,
            _ => {
                return Err((
                    Errno::EINVAL,
                    "mode must be 'revert' or 'delete'; mark not yet implemented".into(),
                ));
            }
        };
        let id = self.pg_of(args)?.id;
        let pg = self.pgs.get_mut(&id).ok_or((Errno::ENOENT, String::new()))?;
        pg.mark_unfound_lost(revert, &mut self.shared).map(Answer::Text)
    }

    fn list_unfound(&self, args: &Args) -> Result<Value, (Errno, String)> {
        let pg = self.pg_of(args)?;
        let objects: Vec<Value> = pg
            .unfound
            .iter()
            .map(|o| {
                let need = pg.missing.get(o).map(|i| i.need.to_string());
                let (name, key, nspace) = (o.name.as_str(), o.key.as_str(), o.nspace.as_str());
                json!({ "oid": { "oid": name, "key": key, "namespace": nspace, "hash": o.hash }, "need": need })
            })
            .collect();
        Ok(json!({
            "num_missing": pg.missing.len(), "num_unfound": objects.len(), "objects": objects, "more": false,
        }))
    }
}

/// What a command prints.
enum Answer {
    Json(Value),
    Text(String),
    Nothing,
}

fn reply(outcome: Outcome) -> MCommandReply {
    match outcome {
        Ok((status, output)) => MCommandReply { result: 0, status, output },
        Err((e, status)) => MCommandReply { result: e.neg(), status, output: Bytes::new() },
    }
}

fn out(value: &Value) -> Outcome {
    let text = admin::json_text(admin::Format::JsonPretty, value);
    Ok((String::new(), text.into()))
}
