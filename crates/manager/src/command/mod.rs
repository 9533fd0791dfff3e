//! The manager's commands: one table from which parsing, capability checks, help and dispatch follow.
//!
//! A group of commands is one file with a `COMMANDS` list; to add a group, name it in `GROUPS`.
//! Source: DaemonServer::_handle_command in src/mgr/DaemonServer.cc.

mod autoscale;
mod balancer;
mod crash;
mod daemon;
pub(crate) mod dashboard;
mod device;
mod fs_status;
mod modules;
mod osd_df;
mod osd_safety;
mod pg_dump;
mod pg_list;
mod pg_misc;
mod progress;
mod prometheus;
mod rbd;
mod reweight;
mod scrub;
mod tell;

use std::collections::BTreeMap;

use admin::options::Values;
use bytes::Bytes;
use cephx::caps::MgrRequest;
use maps::OsdMap;
use messages::Message;
use messages::common::{MCommandReply, MMgrCommandReply};
use messages::mgr::CommandDesc;
use monitor::command::{Args, Format, Reply, Signature, flags};
use serde_json::Value;
use types::{ConnId, EntityType, Errno, Now};

use crate::autoscaler::Autoscaler;
use crate::balancer::Balancer;
use crate::core::{Manager, Settings};
use crate::crashes::{self, Crashes};
use crate::daemons::Daemons;
use crate::device_health;
use crate::devices::Devices;
use crate::file_systems::FileSystems;
use crate::io::{Output, PeerInfo};
use crate::mon_commands::{MonRequest, Plan};
use crate::outcome::Then;
use crate::pg_map::PgMap;
use crate::progress::Progress;
use crate::prometheus::Prometheus;
use crate::rbd::perf::Perf;
use crate::rbd::{Ask, Rights};
use crate::users::{Once, Users, WithHash};

/// Every group, in the order in which clients are told of them.
const GROUPS: &[&[Command]] = &[
    pg_misc::COMMANDS,
    pg_dump::COMMANDS,
    pg_list::COMMANDS,
    scrub::COMMANDS,
    osd_df::COMMANDS,
    autoscale::COMMANDS,
    reweight::COMMANDS,
    osd_safety::COMMANDS,
    daemon::COMMANDS,
    device::COMMANDS,
    device::HEALTH,
    balancer::COMMANDS,
    modules::COMMANDS,
    progress::COMMANDS,
    fs_status::COMMANDS,
    crash::COMMANDS,
    dashboard::COMMANDS,
    prometheus::COMMANDS,
    rbd::COMMANDS,
];

/// Commands that wait until it is known which disks there are; more are answered from what is known.
const MAX_DEFERRED: usize = 64;

/// A command.
#[derive(Clone, Copy)]
pub struct Command {
    /// As in the monitor's table: prefix words, then parameters.
    pub sig: &'static str,
    pub help: &'static str,
    pub module: &'static str,
    /// Of `r`, `w`, `x`.
    pub perm: &'static str,
    pub handler: fn(&mut Ctx<'_>) -> Reply,
    /// Besides `flags::MGR`.
    pub flags: u32,
    /// The module of Ceph's manager that capabilities name for it; empty for none.
    pub of: &'static str,
}

impl Command {
    /// A command that `ceph` sends once.
    pub const fn new(
        sig: &'static str,
        help: &'static str,
        module: &'static str,
        perm: &'static str,
        handler: fn(&mut Ctx<'_>) -> Reply,
    ) -> Self {
        Self { sig, help, module, perm, handler, flags: flags::NONE, of: "" }
    }

    /// `ceph` sends it again and again.
    #[must_use]
    pub const fn polled(self) -> Self {
        Self { flags: flags::POLL, ..self }
    }
}

/// A module of Ceph's manager, whose commands have capabilities of their own.
#[derive(Clone, Copy)]
pub(crate) struct Module(&'static str);

impl Module {
    /// A command of its own that `ceph` sends once.
    const fn command(
        self,
        sig: &'static str,
        help: &'static str,
        perm: &'static str,
        handler: fn(&mut Ctx<'_>) -> Reply,
    ) -> Command {
        Command { of: self.0, ..Command::new(sig, help, "mgr", perm, handler) }
    }
}

/// The service that capabilities name for all modules. Source: DaemonServer::_handle_command,
/// ActivePyModule::is_authorized.
pub(crate) const OF_MODULES: &str = "py";

/// What a command works with.
pub struct Ctx<'a> {
    pub now: Now,
    pub map: &'a OsdMap,
    pub pgs: &'a PgMap,
    pub(crate) daemons: &'a Daemons,
    pub(crate) options: &'a Values,
    pub settings: &'a Settings,
    pub(crate) crashes: &'a Crashes,
    pub(crate) file_systems: &'a FileSystems,
    pub(crate) progress: &'a mut Progress,
    pub(crate) balancer: &'a mut Balancer,
    pub(crate) autoscaler: &'a Autoscaler,
    pub(crate) devices: &'a Devices,
    pub(crate) users: &'a mut Users,
    pub(crate) once: &'a mut Once,
    pub(crate) prometheus: &'a Prometheus,
    /// What the monitors say of modules' options.
    pub(crate) module_options: &'a BTreeMap<String, String>,
    pub(crate) perf: &'a mut Perf,
    /// What who asks may do with images.
    pub(crate) rights: Rights,
    pub sessions: &'a BTreeMap<ConnId, PeerInfo>,
    /// The words that it was called by, with single spaces.
    pub prefix: &'a str,
    pub args: &'a Args,
    pub format: Format,
    pub input: &'a Bytes,
    /// Messages that the command sends besides its reply.
    pub out: &'a mut Vec<Output>,
    /// See [`Ctx::ask_monitors`].
    asked: Option<MonRequest>,
    /// See [`Ctx::ask_monitors_for_all`].
    asked_all: Option<Plan>,
    /// See [`Ctx::hash`].
    asked_hash: Option<(String, WithHash)>,
    /// See [`Ctx::ask_pools`].
    asked_pools: Option<Ask>,
    /// See [`Ctx::ask_disks`].
    asked_disks: Option<device_health::Ask>,
}

impl Ctx<'_> {
    /// Has the command answered when what pools keep is known, and what it changes of that is kept.
    pub(crate) fn ask_pools(&mut self, ask: Ask) -> Reply {
        self.asked_pools = Some(ask);
        Reply::ok()
    }

    /// Has the command answered when daemons' disks have told, or the pool that keeps it.
    pub(crate) fn ask_disks(&mut self, ask: device_health::Ask) -> Reply {
        self.asked_disks = Some(ask);
        Reply::ok()
    }

    /// Has the monitors answer instead: they run the command in `json`, and the client gets what they say.
    pub fn ask_monitors(&mut self, json: &Value, input: Bytes) -> Reply {
        self.ask_monitors_after(Bytes::new(), json, input)
    }

    /// The same with output that goes in front of theirs.
    pub fn ask_monitors_after(&mut self, before: Bytes, json: &Value, input: Bytes) -> Reply {
        self.asked = Some(MonRequest { json: json.to_string(), input, before });
        Reply::ok()
    }

    /// Has the monitors run several commands. The client is answered when they all are: `done`, or the first
    /// error if there is one. What follows from them follows then.
    pub(crate) fn ask_monitors_for_all(
        &mut self,
        requests: Vec<MonRequest>,
        done: Reply,
        then: Then,
    ) -> Reply {
        self.asked_all = Some(Plan { to: None, requests, done, then });
        Reply::ok()
    }

    /// Has a password hashed; the client is answered when what follows from that is done.
    pub(crate) fn hash(&mut self, password: String, then: WithHash) -> Reply {
        self.asked_hash = Some((password, then));
        Reply::ok()
    }

    /// Has the monitors keep these changes of crash reports, which count when they do.
    pub(crate) fn keep_crashes(&mut self, changes: Vec<crashes::Change>) -> Reply {
        let requests = changes.iter().map(crashes::request).collect();
        self.ask_monitors_for_all(requests, Reply::ok(), Then::Crashes(changes))
    }

    /// Sends a message to an OSD on every session that it has; false when there is none.
    pub fn send_to_osd(&mut self, osd: i32, msg: &Message) -> bool {
        let name = types::EntityName::osd(osd);
        let before = self.out.len();
        for (conn, _) in self.sessions.iter().filter(|(_, p)| p.name == name) {
            self.out.push(Output::Send { conn: *conn, tid: 0, msg: msg.clone() });
        }
        self.out.len() > before
    }
}

/// Who gave a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Giver<'a> {
    /// Its key has to allow the command.
    Client(&'a PeerInfo),
    /// It has checked that whoever asked it may give the command. Those of ours pass commands on over the
    /// session that this manager has with them.
    Monitor(Option<&'a PeerInfo>),
    /// Somebody in this process.
    Own,
}

impl<'a> Giver<'a> {
    /// Whose capabilities are to be looked at.
    fn to_check(self) -> Option<&'a PeerInfo> {
        match self {
            Self::Client(peer) => Some(peer),
            Self::Monitor(_) | Self::Own => None,
        }
    }
}

/// Where an answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyTo {
    /// A session; commands for managers have a reply of their own kind.
    Client { conn: ConnId, tid: u64, mgr_command: bool },
    /// A monitor that passed a client's command on.
    Monitor { tid: u64 },
    /// Somebody in this process.
    Own { id: u64 },
}

impl ReplyTo {
    pub fn conn(self) -> Option<ConnId> {
        match self {
            Self::Client { conn, .. } => Some(conn),
            Self::Monitor { .. } | Self::Own { .. } => None,
        }
    }

    pub fn reply(self, reply: Reply) -> Output {
        let (result, status, output) = (reply.code, reply.outs, reply.data);
        match self {
            Self::Client { conn, tid, mgr_command: true } => {
                Output::send(conn, tid, MMgrCommandReply { result, status, output })
            }
            Self::Client { conn, tid, mgr_command: false } => {
                Output::send(conn, tid, MCommandReply { result, status, output })
            }
            Self::Own { id } => {
                Output::Answer { id, reply: Reply { code: result, outs: status, data: output } }
            }
            Self::Monitor { tid } => {
                Output::SendMon { tid, msg: MCommandReply { result, status, output }.into() }
            }
        }
    }
}

/// Every command of the table.
pub fn all() -> impl Iterator<Item = &'static Command> {
    GROUPS.iter().copied().flatten()
}

/// The table as the monitors are told of it in the beacon, so that clients know what to send here.
pub fn descriptions() -> Vec<CommandDesc> {
    all()
        .map(|c| CommandDesc {
            cmdstring: c.sig.to_owned(),
            helpstring: c.help.to_owned(),
            module: c.module.to_owned(),
            req_perms: c.perm.to_owned(),
            availability: "cli,rest".to_owned(),
            flags: u64::from(flags::MGR | c.flags),
        })
        .collect()
}

/// Runs the command that a client sent and answers it, at once or when the monitors have.
pub(crate) fn run(
    manager: &mut Manager,
    now: Now,
    conn: ConnId,
    tid: u64,
    peer: &PeerInfo,
    msg: Message,
    out: &mut Vec<Output>,
) {
    let (cmd, input, mgr_command) = match msg {
        // With the cluster's id it is `ceph tell`; old clients send the manager's commands without.
        Message::Command(m) if !m.fsid.is_zero() => {
            let reply = tell::answer(manager, now, peer, &m.cmd);
            return out.push(ReplyTo::Client { conn, tid, mgr_command: false }.reply(reply));
        }
        Message::Command(m) => (m.cmd, m.input, false),
        Message::MgrCommand(m) => (m.cmd, m.input, true),
        _ => return,
    };
    let to = ReplyTo::Client { conn, tid, mgr_command };
    let giver = match peer.auth_name.kind {
        // One of Ceph's passes on what clients ask it for.
        EntityType::Mon => Giver::Monitor(Some(peer)),
        _ => Giver::Client(peer),
    };
    answer(manager, now, to, giver, &cmd, &input, out);
}

/// The same for a command that a monitor passed on, and whose sender it has checked.
pub(crate) fn run_for_mon(manager: &mut Manager, now: Now, tid: u64, msg: Message, out: &mut Vec<Output>) {
    if let Message::Command(m) = msg {
        answer(manager, now, ReplyTo::Monitor { tid }, Giver::Monitor(None), &m.cmd, &m.input, out);
    }
}

/// A command that waits until it is known which disks there are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Deferred {
    pub to: ReplyTo,
    pub since: std::time::Duration,
    /// Whose capabilities are to be looked at, and a monitor of Ceph's.
    peer: Option<PeerInfo>,
    cmd: Vec<String>,
    input: Bytes,
}

/// Carries out a command that has waited.
pub(crate) fn run_deferred(manager: &mut Manager, now: Now, command: Deferred, out: &mut Vec<Output>) {
    let Deferred { to, peer, cmd, input, .. } = command;
    let giver = match (to, &peer) {
        (ReplyTo::Own { .. }, _) => Giver::Own,
        (ReplyTo::Client { .. }, Some(peer)) if peer.auth_name.kind != EntityType::Mon => Giver::Client(peer),
        (_, peer) => Giver::Monitor(peer.as_ref()),
    };
    answer_now(manager, now, to, giver, &cmd, &input, out);
}

pub(crate) fn answer(
    manager: &mut Manager,
    now: Now,
    to: ReplyTo,
    giver: Giver<'_>,
    cmd: &[String],
    input: &Bytes,
    out: &mut Vec<Output>,
) {
    let is_of_disks = Args::parse(cmd).is_ok_and(|(prefix, _)| device::is_of_disks(&prefix));
    if is_of_disks && manager.deferred.len() < MAX_DEFERRED && !manager.knows_disks(out) {
        let peer = match giver {
            Giver::Client(peer) => Some(peer.clone()),
            Giver::Monitor(peer) => peer.cloned(),
            Giver::Own => None,
        };
        let (cmd, input) = (cmd.to_vec(), input.clone());
        return manager.deferred.push(Deferred { to, since: now.mono, peer, cmd, input });
    }
    answer_now(manager, now, to, giver, cmd, input, out);
}

fn answer_now(
    manager: &mut Manager,
    now: Now,
    to: ReplyTo,
    giver: Giver<'_>,
    cmd: &[String],
    input: &Bytes,
    out: &mut Vec<Output>,
) {
    let mut asked = Asked::default();
    let reply = evaluate(manager, now, giver, cmd, input, out, &mut asked);
    let fsid = manager.fsid();
    if let Some((password, then)) = asked.hash {
        return manager.hash(to, password, then, out);
    }
    if let Some((ask, rights)) = asked.pools {
        return manager.rbd_ask(now, to, rights, ask, out);
    }
    if let Some(ask) = asked.disks {
        return manager.disks_ask(now, to, ask, out);
    }
    let taken = match (asked.all, asked.request) {
        (Some(plan), _) => {
            let plan = Plan { to: Some(to), ..plan };
            let untaken = manager.mon_commands.send_all(fsid, plan, out).err();
            if untaken.as_ref().is_some_and(|plan| matches!(plan.then, Then::Users(_))) {
                manager.users.unsent();
            }
            untaken.is_none()
        }
        (None, Some(request)) => manager.mon_commands.send(fsid, to, request, out),
        (None, None) => {
            out.push(to.reply(reply));
            true
        }
    };
    if !taken {
        out.push(to.reply(Reply::error(Errno::EAGAIN, "too many commands wait for the monitors")));
    }
}

/// What a command wants of the monitors, or of pools.
#[derive(Default)]
struct Asked {
    request: Option<MonRequest>,
    all: Option<Plan>,
    hash: Option<(String, WithHash)>,
    pools: Option<(Ask, Rights)>,
    disks: Option<device_health::Ask>,
}

/// What is to be run, once it is known to be a command that its sender may give.
struct Called {
    command: &'static Command,
    prefix: String,
    args: Args,
    format: Format,
}

fn called(manager: &Manager, peer: Option<&PeerInfo>, prefix: &str, mut args: Args) -> Result<Called, Reply> {
    let invalid = |error: String| Reply::error(Errno::EINVAL, error);
    let prefix = prefix.split_whitespace().collect::<Vec<_>>().join(" ");
    let found = all().find(|c| Signature::prefix_of(c.sig).eq(prefix.split(' ')));
    let command = found.ok_or_else(|| invalid(format!("No handler found for '{prefix}'")))?;
    let fits = args.check(&Signature::parse(command.sig));
    // Capabilities see what the handler will see, and nothing beside it.
    let seen = fits.as_ref().map(|()| args.as_text()).unwrap_or_default();
    if peer.is_some_and(|p| !permitted(p, command, &prefix, &seen)) {
        return Err(Reply::error(Errno::EACCES, NO_CAPS));
    }
    fits.map_err(|error| invalid(error.to_string()))?;
    if let Some(refusal) = modules::switched_off(manager.modules.as_ref(), &prefix) {
        return Err(refusal);
    }
    let format = format_of(&prefix, &args)?;
    Ok(Called { command, prefix, args, format })
}

fn evaluate(
    manager: &mut Manager,
    now: Now,
    giver: Giver<'_>,
    cmd: &[String],
    input: &Bytes,
    out: &mut Vec<Output>,
    asked: &mut Asked,
) -> Reply {
    let (prefix, args) = match Args::parse(cmd) {
        Ok(parsed) => parsed,
        Err(error) => return Reply::error(Errno::EINVAL, error.to_string()),
    };
    if prefix == "get_command_descriptions" {
        return Reply::text(describe(all().map(|c| (c.sig, c.help, c.module, c.perm))).to_string());
    }
    let peer = giver.to_check();
    let called = called(manager, peer, &prefix, args);
    let is_denied = called.as_ref().is_err_and(|refusal| refusal.outs == NO_CAPS);
    manager.audit(now, giver, cmd, is_denied);
    let Called { command, prefix, args, format } = match called {
        Ok(called) => called,
        Err(refusal) => return refusal,
    };
    let Some(map) = &manager.map else {
        return Reply::error(Errno::EAGAIN, "the manager has no OSD map yet");
    };
    let rights = Rights { caps: peer.map(|p| (p.caps.clone(), p.addr)), perm: command.perm };
    let mut ctx = Ctx {
        now,
        map,
        pgs: &manager.pgs,
        daemons: &manager.daemons,
        options: &manager.options,
        settings: &manager.settings,
        crashes: &manager.crashes,
        file_systems: &manager.file_systems,
        progress: &mut manager.progress,
        balancer: &mut manager.balancer,
        autoscaler: &manager.autoscaler,
        devices: &manager.devices,
        users: &mut manager.users,
        once: &mut manager.once,
        prometheus: &manager.prometheus,
        module_options: &manager.module_options,
        perf: &mut manager.rbd.perf,
        rights,
        sessions: &manager.sessions,
        prefix: &prefix,
        args: &args,
        format,
        input,
        out,
        asked: None,
        asked_all: None,
        asked_hash: None,
        asked_pools: None,
        asked_disks: None,
    };
    let reply = (command.handler)(&mut ctx);
    let reply = admin::xml::convert(reply, args.text("format"), &prefix);
    let pools = ctx.asked_pools.map(|ask| (ask, ctx.rights));
    let disks = ctx.asked_disks;
    *asked = Asked { request: ctx.asked, all: ctx.asked_all, hash: ctx.asked_hash, pools, disks };
    reply
}

fn format_of(prefix: &str, args: &Args) -> Result<Format, Reply> {
    match prefix {
        // It has YAML as well, and writes all forms itself.
        "healthcheck history ls" => Ok(Format::Plain),
        _ if prefix.ends_with("_json") => Ok(Format::Json),
        _ => Format::parse(args.text("format")),
    }
}

/// What a client is told whose key does not allow a command.
const NO_CAPS: &str = "access denied: does your client key have mgr caps? See \
                       http://docs.ceph.com/en/latest/mgr/administrator/#client-authentication";

fn permitted(peer: &PeerInfo, command: &Command, prefix: &str, args: &BTreeMap<String, String>) -> bool {
    peer.caps.is_capable(&MgrRequest {
        service: if command.of.is_empty() { command.module } else { OF_MODULES },
        module: command.of,
        command: prefix,
        args,
        read: command.perm.contains('r'),
        write: command.perm.contains('w'),
        exec: command.perm.contains('x'),
        addr: &peer.addr,
    })
}

/// What `get_command_descriptions` answers: signature, help, module and permissions of each command.
fn describe<'a>(commands: impl Iterator<Item = (&'static str, &'a str, &'a str, &'a str)>) -> Value {
    let describe = |(sig, help, module, perm): (&'static str, &str, &str, &str)| {
        let sig = Signature::parse(sig);
        let words = sig.prefix.iter().map(|w| Value::from(*w));
        let params = sig.params.iter().map(|p| {
            Value::Object(p.described.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect())
        });
        let sig: Vec<Value> = words.chain(params).collect();
        serde_json::json!({ "sig": sig, "help": help, "module": module, "perm": perm, "flags": 0 })
    };
    Value::Object(commands.enumerate().map(|(i, c)| (format!("cmd{i:03}"), describe(c))).collect())
}
