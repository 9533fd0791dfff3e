//! Commands from clients: parsed, checked, then answered from the committed state, worked into a batch, or passed on to the
//! manager.
//!
//! Source: Monitor::handle_command.

use messages::PaxosVersion;
use messages::mon::{MMonCommand, MMonCommandAck};
use types::{ConnId, EntityType, Errno, Now};

use crate::command::{
    Args, Command, Ctx, Format, Handler, Reply, Signature, WriteCtx, all, describe_all, find, flags,
};
use crate::contain::contained;
use crate::io::Output;
use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::session::{Access, Session};
use crate::state::{LogEntry, Priority};
use crate::whose::{OSDS_APART, Whose};

/// Characters of a command that the audit log keeps.
const AUDIT_CHARS: usize = 2_000;

impl Monitor {
    pub(crate) fn command(
        &mut self,
        now: Now,
        conn: ConnId,
        tid: u64,
        m: MMonCommand,
        out: &mut Vec<Output>,
    ) {
        match self.check_command(conn, &m) {
            Err(reply) => out.push(ack(conn, tid, &m.cmd, reply)),
            Ok(Route::Described) => {
                let json = describe_all(&self.state.mgr.commands).to_string();
                out.push(ack(conn, tid, &m.cmd, Reply::text(json)));
            }
            // The leader has the manager's session, or knows who has.
            Ok(Route::Manager) if !self.settings.quorum.is_leader() => self.enqueue(conn, tid, m.into(), out),
            Ok(Route::Manager) => self.proxy(now, conn, tid, m, out),
            Ok(Route::Ours(command, args, format)) => match command.handler {
                Handler::Read(handler) => {
                    let ctx = Ctx {
                        now,
                        state: &self.state,
                        args: &args,
                        format,
                        settings: &self.settings,
                        sessions: &self.sessions,
                        conn,
                        input: &m.input,
                    };
                    let reply = contained(|| {
                        #[cfg(feature = "planted")]
                        assert!(!self.panics_in.is_some_and(|p| command.sig.starts_with(p)), "planted");
                        in_format(handler(&ctx), command, &args)
                    });
                    let bug = || Reply::error(Errno::EIO, "a bug in the monitor: its log has the details");
                    out.push(ack(conn, tid, &m.cmd, reply.unwrap_or_else(bug)));
                }
                Handler::Write(_) => self.enqueue(conn, tid, m.into(), out),
            },
        }
    }

    /// A command that changes the state, in its turn.
    pub(crate) fn prepare_command(
        &mut self,
        now: Now,
        batch: &mut Batch,
        conn: ConnId,
        tid: u64,
        m: &MMonCommand,
        out: &mut Vec<Output>,
    ) {
        let (command, args, format) = match self.check_command(conn, m) {
            Ok(Route::Ours(command, args, format)) => (command, args, format),
            // The capabilities changed since it was queued.
            Err(reply) => return out.push(ack(conn, tid, &m.cmd, reply)),
            // It came when somebody else led.
            Ok(Route::Manager) => return self.proxy(now, conn, tid, m.clone(), out),
            Ok(Route::Described) => return,
        };
        let (Handler::Write(handler), Some(session)) = (command.handler, self.sessions.get(&conn)) else {
            return;
        };
        if let Some(entry) = self.audit(now, session, command, m, "dispatch") {
            batch.log(entry);
        }
        #[cfg(feature = "planted")]
        assert!(!self.panics_in.is_some_and(|p| command.sig.starts_with(p)), "planted");
        let entropy = &mut self.entropy;
        let mut fill = |b: &mut [u8]| entropy.fill(b);
        let mut ctx = WriteCtx {
            now,
            batch,
            args: &args,
            format,
            settings: &self.settings,
            session,
            input: &m.input,
            entropy: &mut fill,
        };
        let reply = in_format(handler(&mut ctx), command, &args);
        if !reply.is_error() {
            if let Some(entry) = self.audit(now, session, command, m, "finished") {
                batch.log(entry);
            }
        }
        batch.answer(conn, tid, ack_message(&m.cmd, reply));
    }

    /// Who may do what is decided here, before anything is looked at.
    fn check_command(&self, conn: ConnId, m: &MMonCommand) -> Result<Route, Reply> {
        if m.fsid != self.state.fsid {
            return Err(Reply::error(Errno::EPERM, "wrong fsid"));
        }
        let bad = |e: crate::command::CommandError| Reply::error(Errno::EINVAL, e.to_string());
        let (prefix, args) = Args::parse(&m.cmd).map_err(bad)?;
        if prefix == "get_command_descriptions" {
            return Ok(Route::Described);
        }
        let Some(session) = self.sessions.get(&conn) else { return Err(Reply::from(Errno::EACCES)) };
        // ceph-volume registers an OSD by that key before the OSD itself says anything.
        let before_boot = session.name.kind == EntityType::Osd
            || (session.name.kind == EntityType::Client && session.name.id == "bootstrap-osd");
        if before_boot && is_for_ours_alone(&prefix, &args) {
            return Err(Reply::error(Errno::EOPNOTSUPP, format!("{}: {OSDS_APART}", session.name)));
        }
        let Some(command) = find(&prefix) else { return self.check_mgr_command(session, &prefix, args) };
        if command.flags & flags::OBSOLETE != 0 {
            let text = "command is obsolete; please check usage and/or man page";
            return Err(Reply::error(Errno::EOPNOTSUPP, text));
        }
        let may = |args: &Args| {
            session.may_command(command.module, &prefix, &args.as_text(), Access::parse(command.perm))
        };
        let denied = || Reply::error(Errno::EACCES, "access denied");
        // Capabilities see what the handler will see, and nothing beside it.
        let (command, args) = match fitting(command, &prefix, args) {
            Ok(fitted) => fitted,
            Err(error) => return Err(if may(&Args::default()) { bad(error) } else { denied() }),
        };
        if !may(&args) {
            return Err(denied());
        }
        let format = Format::parse(args.text("format"))?;
        Ok(Route::Ours(command, args, format))
    }

    fn check_mgr_command(&self, session: &Session, prefix: &str, mut args: Args) -> Result<Route, Reply> {
        let words: Vec<&str> = prefix.split_whitespace().collect();
        let is_it = |sig: &str| {
            sig.split_whitespace().take_while(|w| !w.contains(['=', ','])).eq(words.iter().copied())
        };
        let Some(theirs) = self.state.mgr.commands.iter().find(|c| is_it(&c.cmdstring)) else {
            return Err(Reply::error(Errno::EINVAL, "command not known"));
        };
        args.keep_named(&theirs.cmdstring);
        if !session.may_command(&theirs.module, prefix, &args.as_text(), Access::parse(&theirs.req_perms)) {
            return Err(Reply::error(Errno::EACCES, "access denied"));
        }
        // What does not fit the manager refuses itself, in its own words.
        Ok(Route::Manager)
    }

    /// Changes are noted in the audit channel, but not the values that may be secrets.
    fn audit(
        &self,
        now: Now,
        session: &Session,
        command: &Command,
        m: &MMonCommand,
        what: &str,
    ) -> Option<LogEntry> {
        let prefix: Vec<&str> = Signature::prefix_of(command.sig).collect();
        if matches!(prefix.as_slice(), ["config", "set"] | ["config-key", "set" | "put"]) {
            return None;
        }
        let cmd: String = m.cmd.concat().chars().take(AUDIT_CHARS).collect();
        let quote = if what == "finished" { "'" } else { "" };
        let text = format!(
            "from='{} {}' entity='{}' cmd={quote}[{cmd}]{quote}: {what}",
            session.peer, session.addr, session.name
        );
        Some(self.settings.log_entry(now, Priority::Info, "audit", text))
    }
}

/// Whether an OSD sends this before it boots, and does not say that it is ours.
///
/// Source: OSD::update_crush_location, OSD::update_crush_device_class, OSD::mon_cmd_maybe_osd_create in
/// src/osd/OSD.cc.
fn is_for_ours_alone(prefix: &str, args: &Args) -> bool {
    const BEFORE_BOOT: [&str; 4] =
        ["osd crush create-or-move", "osd crush set-device-class", "osd create", "osd new"];
    let (mark, ours) = Whose::MARK;
    let is = |known: &&str| known.split(' ').eq(prefix.split_whitespace());
    BEFORE_BOOT.iter().any(is) && args.text(mark) != Some(ours)
}

/// Of the commands with one prefix (`osd crush set` is two) the first whose parameters the arguments fit.
fn fitting(
    first: &'static Command,
    prefix: &str,
    args: Args,
) -> Result<(&'static Command, Args), crate::command::CommandError> {
    let mut checked = args.clone();
    let Err(error) = checked.check(&Signature::parse(first.sig)) else { return Ok((first, checked)) };
    let others = all().filter(|c| {
        !std::ptr::eq(*c, first)
            && c.perm == first.perm
            && Signature::prefix_of(c.sig).eq(prefix.split_whitespace())
    });
    for other in others {
        let mut checked = args.clone();
        if checked.check(&Signature::parse(other.sig)).is_ok() {
            return Ok((other, checked));
        }
    }
    Err(error)
}

/// The answer in the format that was asked for.
fn in_format(reply: Reply, command: &Command, args: &Args) -> Reply {
    let prefix: Vec<&str> = Signature::prefix_of(command.sig).collect();
    admin::xml::convert(reply, args.text("format"), &prefix.join(" "))
}

/// Where a command goes.
enum Route {
    Described,
    Ours(&'static Command, Args, Format),
    Manager,
}

pub(crate) fn ack_message(cmd: &[String], reply: Reply) -> MMonCommandAck {
    MMonCommandAck {
        version: PaxosVersion::default(),
        result: reply.code,
        status: reply.outs,
        cmd: cmd.to_vec(),
        output: reply.data,
    }
}

pub(crate) fn ack(conn: ConnId, tid: u64, cmd: &[String], reply: Reply) -> Output {
    // A command that is absurdly long is not sent back.
    let long = cmd.iter().map(String::len).sum::<usize>() > crate::command::MAX_COMMAND_BYTES;
    let cmd = if long { &[] } else { cmd };
    Output::Send { conn, tid, msg: ack_message(cmd, reply).into() }
}
