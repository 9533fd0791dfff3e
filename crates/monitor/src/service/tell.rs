//! Commands to this monitor alone, by `ceph tell mon.a ...` or through its admin socket: options of the running process,
//! its status, its sessions.
//!
//! Source: the admin socket's commands in src/mon/Monitor.cc.

use admin::common::{self, Daemon, Described, Request, described_as};
use admin::options::Level;
use maps::{addr_json, addrvec_json};
use messages::common::{MCommand, MCommandReply};
use serde_json::{Value, json};
use types::{ConnId, Errno, Now};

use crate::command::{Args, Ctx, Handler, Reply, find};
use crate::io::Output;
use crate::monitor::Monitor;
use crate::session::{Access, Session, Stage};

/// The commands besides those of every daemon.
const TELL: &[Described] = &[
    described_as("mon_status", "report status of monitors"),
    described_as("ops", "show the ops currently in flight"),
    described_as("quorum_status", "report status of monitor quorum"),
    described_as("sessions", "list existing sessions"),
];

/// Commands for which read access is enough. Source: MonCap of tell commands: the whole monitor must be open for others.
const ONLY_READ: &[&str] = &[
    "version",
    "git_version",
    "mon_status",
    "quorum_status",
    "config show",
    "config get",
    "config help",
    "help",
    "perf dump",
    "perf schema",
];

impl Monitor {
    pub(crate) fn tell(&mut self, now: Now, conn: ConnId, tid: u64, m: &MCommand, out: &mut Vec<Output>) {
        let reply = self.run_tell(now, conn, m).unwrap_or_else(|refused| refused);
        let msg = MCommandReply { result: reply.code, status: reply.outs, output: reply.data };
        out.push(Output::Send { conn, tid, msg: msg.into() });
    }

    fn run_tell(&mut self, now: Now, conn: ConnId, m: &MCommand) -> Result<Reply, Reply> {
        let bad = |e: crate::command::CommandError| Reply::error(Errno::EINVAL, e.to_string());
        let (prefix, _) = Args::parse(&m.cmd).map_err(bad)?;
        if prefix != "get_command_descriptions" {
            let Some(session) = self.sessions.get(&conn) else { return Err(Reply::from(Errno::EACCES)) };
            let all = Access { read: true, write: true, exec: true };
            // Capabilities see what the handler will see, and nothing beside it.
            let args = Request::parse(&m.cmd, TELL).map(|r| r.args).unwrap_or_default();
            let need = if ONLY_READ.contains(&prefix.as_str()) { Access::R } else { all };
            if !session.may_command("mon", &prefix, &args.as_text(), need) {
                return Err(Reply::error(Errno::EACCES, "access denied"));
            }
        }
        Ok(self.daemon_command(now, &m.cmd))
    }

    /// A command from somebody who may do everything: the owner of the admin socket.
    pub fn daemon_command(&mut self, now: Now, cmd: &[String]) -> Reply {
        let request = match Request::parse(cmd, TELL) {
            Ok(request) => request,
            Err(refused) => return refused,
        };
        self.follow_config();
        let loggers = if request.prefix.starts_with("perf") { self.loggers() } else { Vec::new() };
        let perf = &|| loggers.clone();
        let (values, resets) = (&mut self.values, &mut self.resets);
        let mut daemon = Daemon { values, perf, resets, own: TELL };
        let reply = common::run(&request, &mut daemon);
        self.apply_values();
        let json = |value: &Value| Reply::json(request.format, value);
        let own = || match request.prefix.as_str() {
            "mon_status" => json(&crate::command::mon_status(&self.state, &self.settings)),
            "quorum_status" => self.cluster_command(now, &request),
            "ops" => json(&self.ops()),
            "sessions" => {
                let open = self.sessions.values().filter(|s| s.stage == Stage::Open);
                json(&open.map(session_value).collect())
            }
            _ => Reply::error(Errno::EINVAL, "command not known"),
        };
        reply.unwrap_or_else(|| request.finish(own()))
    }

    /// Brings the options up to what the config database says of us.
    pub(crate) fn follow_config(&mut self) {
        let me = self.settings.entity();
        let view = crate::service::subscribe::view_of(self.state.osdmap(), &me);
        let given = self.state.config.resolve(&view).into_iter().map(|(name, e)| (name, e.value));
        let given = given.collect();
        if self.given != given {
            self.values.set_from_mon(&given);
            self.given = given;
        }
    }

    /// What was set by hand holds from now on.
    fn apply_values(&mut self) {
        let local = |name: &&str| self.values.levels(name).last().is_some_and(|(l, _)| l >= Level::File);
        let set = self.values.all_set().filter(|(name, _)| local(name));
        self.settings.options = set.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    }

    /// A command that clients send to the cluster, given here.
    fn cluster_command(&self, now: Now, request: &Request) -> Reply {
        let input = bytes::Bytes::new();
        let ctx = Ctx {
            now,
            state: &self.state,
            args: &request.args,
            format: request.format,
            settings: &self.settings,
            sessions: &self.sessions,
            // The socket is the operator's: nothing is kept from it.
            conn: types::ConnId(u64::MAX),
            input: &input,
        };
        match find(&request.prefix).map(|c| c.handler) {
            Some(Handler::Read(handler)) => handler(&ctx),
            _ => Reply::error(Errno::EINVAL, "command not known"),
        }
    }

    /// Requests that wait for a place in the log, and commands that the manager has.
    fn ops(&self) -> Value {
        let waiting = self
            .waiting
            .iter()
            .map(|w| json!({ "description": format!("{} from {}", w.msg.name(), w.conn) }));
        let proxied =
            self.proxied.values().map(|p| json!({ "description": format!("mgr command from {}", p.conn) }));
        let ops: Vec<Value> = waiting.chain(proxied).collect();
        json!({ "num_ops": ops.len(), "ops": ops })
    }
}

/// Source: MonSession::dump in src/mon/Session.h.
fn session_value(s: &Session) -> Value {
    json!({
        "name": s.peer.to_string(),
        "entity_name": s.name.to_string(),
        "addrs": addrvec_json(&s.addrs),
        "socket_addr": addr_json(&s.addr),
        "con_type": s.peer.entity_type().map_or("unknown", types::EntityType::as_str),
        "con_features": s.features,
        "con_features_hex": format!("{:x}", s.features),
        "open": s.stage == Stage::Open,
        "caps": { "text": s.caps.text() },
        "authenticated": true,
        "global_id": s.global_id.0,
        "osd_epoch": s.osd_epoch.0,
        "remote_host": s.host,
    })
}
