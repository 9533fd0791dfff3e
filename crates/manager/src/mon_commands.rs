//! Commands that the monitors run on behalf of a client that sent another one to us.
//!
//! Invariants:
//! 1. Each waits under a number of its own until its answer comes or its client leaves.
//! 2. Who asked for several at once is answered once, after the last of them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use messages::mon::{MMonCommand, MMonCommandAck};
use monitor::command::Reply;
use types::{ConnId, Fsid};

use crate::command::ReplyTo;
use crate::io::Output;

/// A command for the monitors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MonRequest {
    pub json: String,
    pub input: Bytes,
    /// Output that goes in front of the monitors'.
    pub before: Bytes,
    /// What the client is told instead of their status line, if they do it.
    pub status: Option<String>,
}

/// More at once are refused.
const LIMIT: usize = 1_024;
/// Of several that were asked for together so many are under way at a time; the others follow as answers come.
const SLICE: usize = 128;
/// So many may be seen through at once.
const MAX_GROUPS: usize = 64;

#[derive(Debug, Clone, PartialEq)]
struct Waiting {
    to: Target,
    cmd: Vec<String>,
    input: Bytes,
    /// Output that goes in front of the monitors'.
    before: Bytes,
    status: Option<String>,
}

/// Whom an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    One(ReplyTo),
    Group(u64),
}

/// Commands that somebody asked for together; nobody when the manager acts by itself or the client has left.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    to: Option<ReplyTo>,
    own: bool,
    /// Under way.
    sent: usize,
    /// Still to be sent.
    rest: VecDeque<MonRequest>,
    failed: Option<Reply>,
}

/// Those under way, by the number that they were sent with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MonCommands {
    waiting: BTreeMap<u64, Waiting>,
    groups: BTreeMap<u64, Group>,
    last: u64,
}

impl MonCommands {
    /// Sends a command; false when there are too many.
    pub fn send(&mut self, fsid: Fsid, to: ReplyTo, request: MonRequest, out: &mut Vec<Output>) -> bool {
        if self.waiting.len() >= LIMIT {
            return false;
        }
        self.last += 1;
        let MonRequest { json, input, before, status } = request;
        let waiting = Waiting { to: Target::One(to), cmd: vec![json], input, before, status };
        out.push(waiting.request(self.last, fsid));
        self.waiting.insert(self.last, waiting);
        true
    }

    /// Sends a command of the manager's own; gives the number that its answer comes with. It is not repeated.
    pub fn send_own(&mut self, fsid: Fsid, request: MonRequest, out: &mut Vec<Output>) -> u64 {
        self.last += 1;
        let msg =
            MMonCommand { fsid, cmd: vec![request.json], input: request.input, ..MMonCommand::default() };
        out.push(Output::SendMon { tid: self.last, msg: msg.into() });
        self.last
    }

    /// Sends several commands, in this order. Who asked for them is told when all are answered.
    pub fn send_all(
        &mut self,
        fsid: Fsid,
        to: Option<ReplyTo>,
        requests: Vec<MonRequest>,
        out: &mut Vec<Output>,
    ) {
        if self.waiting.len() >= LIMIT || self.groups.len() >= MAX_GROUPS {
            let busy = Reply::error(types::Errno::EAGAIN, "too many commands wait for the monitors");
            return out.extend(to.map(|to| to.reply(busy)));
        }
        if requests.is_empty() {
            return out.extend(to.map(|to| to.reply(Reply::ok())));
        }
        let group = self.last;
        let rest = VecDeque::from(requests);
        self.groups.insert(group, Group { to, own: to.is_none(), sent: 0, rest, failed: None });
        self.send_more(fsid, group, out);
    }

    /// Sends of a group what may be under way.
    fn send_more(&mut self, fsid: Fsid, id: u64, out: &mut Vec<Output>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        while group.sent < SLICE {
            let Some(MonRequest { json, input, before, status }) = group.rest.pop_front() else { return };
            group.sent += 1;
            self.last += 1;
            let waiting = Waiting { to: Target::Group(id), cmd: vec![json], input, before, status };
            out.push(waiting.request(self.last, fsid));
            self.waiting.insert(self.last, waiting);
        }
    }

    /// Whether commands are under way that nobody asked for.
    pub fn own_under_way(&self) -> bool {
        self.groups.values().any(|g| g.own)
    }

    fn group_answered(&mut self, fsid: Fsid, id: u64, ack: MMonCommandAck, out: &mut Vec<Output>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.sent = group.sent.saturating_sub(1);
        if ack.result < 0 && group.failed.is_none() {
            group.failed = Some(Reply { code: ack.result, outs: ack.status, data: ack.output });
        }
        if !group.rest.is_empty() {
            return self.send_more(fsid, id, out);
        }
        if group.sent == 0 {
            if let Some(Group { to: Some(to), failed, .. }) = self.groups.remove(&id) {
                out.push(to.reply(failed.unwrap_or_else(Reply::ok)));
            }
        }
    }

    /// Another manager is in charge: of what nobody asked for nothing more is sent.
    pub fn drop_own(&mut self) {
        self.groups.values_mut().filter(|g| g.own).for_each(|g| g.rest.clear());
        self.groups.retain(|_, g| !g.own || g.sent > 0);
    }

    /// An answer goes on to the client as it is.
    pub fn answered(&mut self, fsid: Fsid, tid: u64, ack: MMonCommandAck, out: &mut Vec<Output>) {
        if let Some(w) = self.waiting.remove(&tid) {
            let to = match w.to {
                Target::One(to) => to,
                Target::Group(group) => return self.group_answered(fsid, group, ack, out),
            };
            let outs = w.status.filter(|_| ack.result >= 0).unwrap_or(ack.status);
            let data = if w.before.is_empty() { ack.output } else { [w.before, ack.output].concat().into() };
            out.push(to.reply(Reply { code: ack.result, outs, data }));
        }
    }

    /// On a new session with the monitors: what was under way is asked again. All of it can be repeated.
    pub fn resend(&self, fsid: Fsid, out: &mut Vec<Output>) {
        out.extend(self.waiting.iter().map(|(tid, w)| w.request(*tid, fsid)));
    }

    /// A client left.
    pub fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|_, w| !matches!(w.to, Target::One(to) if to.conn() == Some(conn)));
        // What was asked for together is seen through.
        for group in self.groups.values_mut() {
            group.to = group.to.filter(|to| to.conn() != Some(conn));
        }
    }
}

impl Waiting {
    fn request(&self, tid: u64, fsid: Fsid) -> Output {
        let m =
            MMonCommand { fsid, cmd: self.cmd.clone(), input: self.input.clone(), ..MMonCommand::default() };
        Output::SendMon { tid, msg: m.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_plan_goes_out_in_slices_whole_and_in_order() {
        let (mut commands, mut out) = (MonCommands::default(), Vec::new());
        let request = |i: usize| MonRequest { json: i.to_string(), ..MonRequest::default() };
        let to = ReplyTo::Client { conn: ConnId(1), tid: 9, mgr_command: false };
        commands.send_all(Fsid::default(), Some(to), (0..3_000).map(request).collect(), &mut out);
        assert_eq!(out.len(), SLICE);
        let mut asked = Vec::new();
        let mut replies = Vec::new();
        while !out.is_empty() {
            assert!(out.len() <= SLICE);
            for output in std::mem::take(&mut out) {
                match output {
                    Output::SendMon { tid, msg: messages::Message::MonCommand(m) } => {
                        asked.push(m.cmd.concat());
                        commands.answered(Fsid::default(), tid, MMonCommandAck::default(), &mut out);
                    }
                    other => replies.push(other),
                }
            }
        }
        assert_eq!(asked, (0..3_000).map(|i: usize| i.to_string()).collect::<Vec<_>>());
        assert_eq!(replies, [to.reply(Reply::ok())]);
        assert_eq!(commands.waiting.len() + commands.groups.len(), 0);
    }

    #[test]
    fn of_a_plan_of_its_own_a_deposed_manager_sends_nothing_more() {
        let (mut commands, mut out) = (MonCommands::default(), Vec::new());
        let request = |i: usize| MonRequest { json: i.to_string(), ..MonRequest::default() };
        commands.send_all(Fsid::default(), None, (0..3_000).map(request).collect(), &mut out);
        assert!(commands.own_under_way());
        commands.drop_own();
        let sent = std::mem::take(&mut out);
        assert_eq!(sent.len(), SLICE);
        for output in sent {
            if let Output::SendMon { tid, .. } = output {
                commands.answered(Fsid::default(), tid, MMonCommandAck::default(), &mut out);
            }
        }
        assert_eq!(out, []);
        assert!(!commands.own_under_way());
        assert_eq!(commands.waiting.len(), 0);
    }
}
