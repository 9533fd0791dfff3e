//! Commands that the monitors run on behalf of a client that sent another one to us.
//!
//! Invariant: each waits under a number of its own until its answer comes or its client leaves.

use std::collections::BTreeMap;

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
    /// Their status line is not for the client.
    pub quiet: bool,
}

/// More at once are refused.
const LIMIT: usize = 1_024;

#[derive(Debug, Clone, PartialEq)]
struct Waiting {
    to: ReplyTo,
    cmd: Vec<String>,
    input: Bytes,
    /// Output that goes in front of the monitors'.
    before: Bytes,
    quiet: bool,
}

/// Those under way, by the number that they were sent with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MonCommands {
    waiting: BTreeMap<u64, Waiting>,
    last: u64,
}

impl MonCommands {
    /// Sends a command; false when there are too many.
    pub fn send(&mut self, fsid: Fsid, to: ReplyTo, request: MonRequest, out: &mut Vec<Output>) -> bool {
        if self.waiting.len() >= LIMIT {
            return false;
        }
        self.last += 1;
        let MonRequest { json, input, before, quiet } = request;
        let waiting = Waiting { to, cmd: vec![json], input, before, quiet };
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

    /// An answer goes on to the client as it is.
    pub fn answered(&mut self, tid: u64, ack: MMonCommandAck, out: &mut Vec<Output>) {
        if let Some(w) = self.waiting.remove(&tid) {
            let outs = if w.quiet && ack.result >= 0 { String::new() } else { ack.status };
            let data = if w.before.is_empty() { ack.output } else { [w.before, ack.output].concat().into() };
            out.push(w.to.reply(Reply { code: ack.result, outs, data }));
        }
    }

    /// On a new session with the monitors: what was under way is asked again. All of it can be repeated.
    pub fn resend(&self, fsid: Fsid, out: &mut Vec<Output>) {
        out.extend(self.waiting.iter().map(|(tid, w)| w.request(*tid, fsid)));
    }

    /// A client left.
    pub fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|_, w| w.to.conn() != Some(conn));
    }
}

impl Waiting {
    fn request(&self, tid: u64, fsid: Fsid) -> Output {
        let m =
            MMonCommand { fsid, cmd: self.cmd.clone(), input: self.input.clone(), ..MMonCommand::default() };
        Output::SendMon { tid, msg: m.into() }
    }
}
