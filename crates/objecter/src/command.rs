//! Commands to OSDs and to the manager.

use bytes::Bytes;
use maps::NO_OSD;
use messages::common::{MCommand, MMgrCommand};
use types::{Epoch, Errno, PgId};

use crate::core::Objecter;
use crate::io::{CommandReply, Effect, Outcome, Request, ServicePeer, SessionId, Ticket};

/// A command under way.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) ticket: Ticket,
    to: To,
    cmd: Vec<String>,
    input: Bytes,
    pub(crate) session: Option<SessionId>,
    pub(crate) is_sent: bool,
    /// From this map on an OSD that is not there is not coming.
    final_from: Option<Epoch>,
}

#[derive(Debug, Clone, Copy)]
enum To {
    Osd(i32),
    Pg(PgId),
    Mgr,
}

impl Objecter {
    pub(crate) fn submit_command(&mut self, ticket: Ticket, request: Request, out: &mut Vec<Effect>) {
        let (to, cmd, input) = match request {
            Request::OsdCommand { osd, cmd, input } => (To::Osd(osd), cmd, input),
            Request::PgCommand { pg, cmd, input } => (To::Pg(pg), cmd, input),
            Request::MgrCommand { cmd, input } => (To::Mgr, cmd, input),
            _ => return out.push(Effect::Done(ticket, Outcome::Failed(Errno::EINVAL))),
        };
        let tid = self.next_tid();
        let command = Command { ticket, to, cmd, input, session: None, is_sent: false, final_from: None };
        self.commands.insert(tid, command);
        self.place_command(tid, out);
    }

    fn place_command(&mut self, tid: u64, out: &mut Vec<Effect>) {
        let Some(command) = self.commands.get(&tid) else { return };
        let (to, final_from) = (command.to, command.final_from);
        let osd = match to {
            To::Mgr => None,
            _ if self.map.epoch == Epoch(0) => return,
            To::Osd(osd) => Some(osd),
            To::Pg(pg) => Some(self.map.primary_shard(pg).map_or(NO_OSD, |(osd, _)| osd)),
        };
        if let Some(errno) = osd.and_then(|osd| self.osd_state_error(osd)) {
            match final_from {
                Some(epoch) if self.map.epoch >= epoch => {
                    self.commands.remove(&tid).into_iter().for_each(|c| {
                        out.push(Effect::Done(c.ticket, Outcome::Failed(errno)));
                    });
                }
                Some(_) => self.want_map(out),
                None => self.ask_for_newest(out),
            }
            return;
        }
        let session = match osd {
            None => self.mgr_session(out),
            Some(osd) => self.session_with(ServicePeer::Osd(osd), out),
        };
        let Some(command) = self.commands.get_mut(&tid) else { return };
        if command.session != session {
            (command.session, command.is_sent) = (session, false);
        }
        if let Some(session) = session {
            self.send_commands(session, out);
        }
    }

    /// Sends what is assigned to a session and not sent yet.
    pub(crate) fn send_commands(&mut self, session: SessionId, out: &mut Vec<Effect>) {
        let (Some(fsid), true) = (self.fsid, self.sessions.get(&session).is_some_and(|s| s.is_ready()))
        else {
            return;
        };
        let unsent = self.commands.iter_mut().filter(|(_, c)| c.session == Some(session) && !c.is_sent);
        for (tid, c) in unsent {
            c.is_sent = true;
            let (cmd, input) = (c.cmd.clone(), c.input.clone());
            let msg = match c.to {
                To::Mgr => MMgrCommand { fsid, cmd, input }.into(),
                To::Osd(_) | To::Pg(_) => MCommand { fsid, cmd, input }.into(),
            };
            out.push(Effect::Send { session, tid: *tid, msg });
        }
    }

    /// A new map.
    pub(crate) fn scan_commands(&mut self, out: &mut Vec<Effect>) {
        let tids: Vec<u64> = self.commands.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.place_command(tid, out));
    }

    pub(crate) fn commands_after_newest(&mut self, newest: Epoch, out: &mut Vec<Effect>) {
        for c in self.commands.values_mut().filter(|c| c.session.is_none() && c.final_from.is_none()) {
            c.final_from = Some(newest);
        }
        self.scan_commands(out);
    }

    pub(crate) fn command_reply(
        &mut self,
        session: SessionId,
        tid: u64,
        (result, status, output): (i32, String, Bytes),
        out: &mut Vec<Effect>,
    ) {
        if self.commands.get(&tid).is_some_and(|c| c.session == Some(session) && c.is_sent) {
            if let Some(c) = self.commands.remove(&tid) {
                out.push(Effect::Done(c.ticket, Outcome::Command(CommandReply { result, status, output })));
            }
        }
    }
}
