//! The manager's commands: one table from which parsing, capability checks, help and dispatch follow.
//!
//! A group of commands is one file with a `COMMANDS` list; to add a group, name it in `GROUPS`.

use std::collections::BTreeMap;

use bytes::Bytes;
use cephx::caps::MgrRequest;
use maps::OsdMap;
use messages::Message;
use messages::common::MCommandReply;
use messages::mgr::CommandDesc;
use monitor::command::{Args, Format, Reply, Signature};
use types::{ConnId, Errno, Now};

use crate::core::Manager;
use crate::io::{Output, PeerInfo};
use crate::pg_map::PgMap;

/// Every group, in the order in which clients are told of them.
const GROUPS: &[&[Command]] = &[];

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
}

/// What a command works with.
pub struct Ctx<'a> {
    pub now: Now,
    pub map: &'a OsdMap,
    pub pgs: &'a PgMap,
    pub args: &'a Args,
    pub format: Format,
    pub input: &'a Bytes,
    /// Messages that the command sends besides its reply.
    pub out: &'a mut Vec<Output>,
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
            flags: u64::from(monitor::command::flags::MGR),
        })
        .collect()
}

/// Runs the command of `msg` and answers it.
pub(crate) fn run(
    manager: &mut Manager,
    now: Now,
    conn: ConnId,
    tid: u64,
    peer: &PeerInfo,
    msg: Message,
    out: &mut Vec<Output>,
) {
    let (cmd, input, to_mgr) = match msg {
        Message::Command(m) => (m.cmd, m.input, false),
        Message::MgrCommand(m) => (m.cmd, m.input, true),
        _ => return,
    };
    let reply = answer(manager, now, peer, &cmd, &input, out);
    let (result, status, output) = (reply.code, reply.outs, reply.data);
    let msg = if to_mgr {
        messages::common::MMgrCommandReply { result, status, output }.into()
    } else {
        MCommandReply { result, status, output }.into()
    };
    out.push(Output::Send { conn, tid, msg });
}

fn answer(
    manager: &mut Manager,
    now: Now,
    peer: &PeerInfo,
    cmd: &[String],
    input: &Bytes,
    out: &mut Vec<Output>,
) -> Reply {
    let (prefix, mut args) = match Args::parse(cmd) {
        Ok(parsed) => parsed,
        Err(error) => return Reply::error(Errno::EINVAL, error.to_string()),
    };
    let Some(command) = all().find(|c| Signature::prefix_of(c.sig).eq(prefix.split_whitespace())) else {
        return Reply::error(Errno::EINVAL, format!("command not known: '{prefix}'"));
    };
    let text = args.as_text();
    if !permitted(peer, command, &prefix, &text) {
        let why = format!("access denied: does your client key have mgr caps? See the mgr caps of {}", peer.auth_name);
        return Reply::error(Errno::EACCES, why);
    }
    if let Err(error) = args.check(&Signature::parse(command.sig)) {
        return Reply::error(Errno::EINVAL, error.to_string());
    }
    let format = match Format::parse(args.text("format")) {
        Ok(format) => format,
        Err(reply) => return reply,
    };
    let Some(map) = &manager.map else {
        return Reply::error(Errno::EAGAIN, "the manager has no OSD map yet");
    };
    let mut ctx = Ctx { now, map, pgs: &manager.pgs, args: &args, format, input, out };
    (command.handler)(&mut ctx)
}

fn permitted(peer: &PeerInfo, command: &Command, prefix: &str, args: &BTreeMap<String, String>) -> bool {
    peer.caps.is_capable(&MgrRequest {
        service: command.module,
        module: "",
        command: prefix,
        args,
        read: command.perm.contains('r'),
        write: command.perm.contains('w'),
        exec: command.perm.contains('x'),
        addr: &peer.addr,
    })
}
