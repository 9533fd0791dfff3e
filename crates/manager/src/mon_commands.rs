//! Commands that the monitors run on behalf of a client that sent another one to us.
//!
//! Invariants:
//! 1. Each waits under a number of its own until its answer comes, its client leaves, or whoever asked in
//!    this process gives it up.
//! 2. Who asked for several at once is answered once, after the last of them; only then what they keep counts
//!    as kept.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use messages::mon::{MMonCommand, MMonCommandAck};
use monitor::command::Reply;
use serde_json::json;
use types::{ConnId, Fsid};

use crate::command::ReplyTo;
use crate::io::Output;
use crate::outcome::Then;

/// A command for the monitors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MonRequest {
    pub json: String,
    pub input: Bytes,
    /// Output that goes in front of the monitors'.
    pub before: Bytes,
}

impl MonRequest {
    /// Keeps an option in the config database.
    pub(crate) fn set_option(who: &str, name: &str, value: &str) -> Self {
        let json = json!({ "prefix": "config set", "who": who, "name": name, "value": value });
        Self { json: json.to_string(), ..Self::default() }
    }
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
}

/// Whom an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    One(ReplyTo),
    /// A group, and the place of the request in it.
    Group(u64, usize),
}

/// Requests that are asked for together.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Plan {
    /// Nobody where the manager acts by itself.
    pub to: Option<ReplyTo>,
    /// In their order.
    pub requests: Vec<MonRequest>,
    /// What the client is told when the monitors have done all.
    pub done: Reply,
    pub then: Then,
}

/// A plan that the monitors have answered whole.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Over {
    pub to: Option<ReplyTo>,
    pub done: Reply,
    pub then: Then,
    /// Nobody had asked for it.
    pub own: bool,
    pub refused: Vec<Refused>,
}

/// A request of a plan that the monitors refused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refused {
    /// Its place in the plan.
    pub at: usize,
    pub json: String,
    pub reply: Reply,
}

/// Commands that somebody asked for together; nobody when the manager acts by itself or the client has left.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    to: Option<ReplyTo>,
    own: bool,
    done: Reply,
    then: Then,
    /// Under way.
    sent: usize,
    /// The place of the next one to be sent.
    next: usize,
    /// Still to be sent.
    rest: VecDeque<MonRequest>,
    refused: Vec<Refused>,
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
        let MonRequest { json, input, before } = request;
        let waiting = Waiting { to: Target::One(to), cmd: vec![json], input, before };
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

    /// Sends the requests of a plan, in this order; gives the plan back where there are too many.
    pub(crate) fn send_all(
        &mut self,
        fsid: Fsid,
        plan: Plan,
        out: &mut Vec<Output>,
    ) -> Result<(), Box<Plan>> {
        if self.waiting.len() >= LIMIT || self.groups.len() >= MAX_GROUPS {
            return Err(Box::new(plan));
        }
        if plan.requests.is_empty() {
            out.extend(plan.to.map(|to| to.reply(plan.done)));
            return Ok(());
        }
        self.last += 1;
        let id = self.last;
        let Plan { to, requests, done, then } = plan;
        let (own, rest) = (to.is_none(), VecDeque::from(requests));
        self.groups.insert(id, Group { to, own, done, then, sent: 0, next: 0, rest, refused: Vec::new() });
        self.send_more(fsid, id, out);
        Ok(())
    }

    /// Sends of a group what may be under way.
    fn send_more(&mut self, fsid: Fsid, id: u64, out: &mut Vec<Output>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        while group.sent < SLICE {
            let Some(MonRequest { json, input, before }) = group.rest.pop_front() else { return };
            let to = Target::Group(id, group.next);
            group.sent += 1;
            group.next += 1;
            self.last += 1;
            let waiting = Waiting { to, cmd: vec![json], input, before };
            out.push(waiting.request(self.last, fsid));
            self.waiting.insert(self.last, waiting);
        }
    }

    /// Whether commands are under way that nobody asked for.
    pub fn own_under_way(&self) -> bool {
        self.groups.values().any(|g| g.own)
    }

    /// Takes an answer to a command of a group; gives the group when that was the last one.
    fn group_answered(
        &mut self,
        fsid: Fsid,
        id: u64,
        refused: Option<Refused>,
        out: &mut Vec<Output>,
    ) -> Option<Over> {
        let group = self.groups.get_mut(&id)?;
        group.sent = group.sent.saturating_sub(1);
        group.refused.extend(refused);
        if !group.rest.is_empty() {
            self.send_more(fsid, id, out);
            return None;
        }
        if group.sent > 0 {
            return None;
        }
        let Group { to, own, done, then, refused, .. } = self.groups.remove(&id)?;
        Some(Over { to, done, then, own, refused })
    }

    /// Another manager is in charge: of what nobody asked for nothing more is sent.
    pub fn drop_own(&mut self) {
        self.groups.values_mut().filter(|g| g.own).for_each(|g| g.rest.clear());
        self.groups.retain(|_, g| !g.own || g.sent > 0);
    }

    /// An answer goes on to the client as it is; a plan that is over with it is given to the manager.
    pub(crate) fn answered(
        &mut self,
        fsid: Fsid,
        tid: u64,
        ack: MMonCommandAck,
        out: &mut Vec<Output>,
    ) -> Option<Over> {
        let w = self.waiting.remove(&tid)?;
        let to = match w.to {
            Target::One(to) => to,
            Target::Group(group, at) => {
                let refused = (ack.result < 0).then(|| Refused {
                    at,
                    json: w.cmd.concat(),
                    reply: Reply { code: ack.result, outs: ack.status, data: ack.output },
                });
                return self.group_answered(fsid, group, refused, out);
            }
        };
        let data = if w.before.is_empty() { ack.output } else { [w.before, ack.output].concat().into() };
        out.push(to.reply(Reply { code: ack.result, outs: ack.status, data }));
        None
    }

    /// On a new session with the monitors: what was under way is asked again. All of it can be repeated.
    pub fn resend(&self, fsid: Fsid, out: &mut Vec<Output>) {
        out.extend(self.waiting.iter().map(|(tid, w)| w.request(*tid, fsid)));
    }

    /// A client left.
    pub fn forget(&mut self, conn: ConnId) {
        self.forget_all(|to| to.conn() == Some(conn));
    }

    /// Whoever asked for it does not wait any more.
    pub(crate) fn give_up(&mut self, asked: ReplyTo) {
        self.forget_all(|to| to == asked);
    }

    fn forget_all(&mut self, gone: impl Fn(ReplyTo) -> bool) {
        self.waiting.retain(|_, w| !matches!(w.to, Target::One(to) if gone(to)));
        // What was asked for together is seen through.
        for group in self.groups.values_mut() {
            group.to = group.to.filter(|to| !gone(*to));
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
        let requests = (0..3_000).map(request).collect();
        let plan = Plan { to: Some(to), requests, ..Plan::default() };
        assert_eq!(commands.send_all(Fsid::default(), plan, &mut out), Ok(()));
        assert_eq!(out.len(), SLICE);
        let mut asked = Vec::new();
        let (mut over, mut others) = (Vec::new(), Vec::new());
        while !out.is_empty() {
            assert!(out.len() <= SLICE);
            for output in std::mem::take(&mut out) {
                match output {
                    Output::SendMon { tid, msg: messages::Message::MonCommand(m) } => {
                        asked.push(m.cmd.concat());
                        let result = if m.cmd == ["7"] { -22 } else { 0 };
                        let ack = MMonCommandAck { result, ..MMonCommandAck::default() };
                        over.extend(commands.answered(Fsid::default(), tid, ack, &mut out));
                    }
                    other => others.push(other),
                }
            }
        }
        assert_eq!(asked, (0..3_000).map(|i: usize| i.to_string()).collect::<Vec<_>>());
        let over: Vec<_> = over.iter().map(|o| (o.to, o.refused.iter().map(|r| r.at).collect())).collect();
        assert_eq!((over, others), (vec![(Some(to), vec![7])], Vec::new()));
        assert_eq!(commands.waiting.len() + commands.groups.len(), 0);
    }

    #[test]
    fn what_was_given_up_waits_no_more_and_is_not_asked_again() {
        let (mut commands, mut out) = (MonCommands::default(), Vec::new());
        for id in 0..LIMIT as u64 {
            assert!(commands.send(Fsid::default(), ReplyTo::Own { id }, MonRequest::default(), &mut out));
        }
        let one_more = |commands: &mut MonCommands| {
            commands.send(Fsid::default(), ReplyTo::Own { id: 7 }, MonRequest::default(), &mut Vec::new())
        };
        assert!(!one_more(&mut commands), "as many as there may be");
        (1..LIMIT as u64).for_each(|id| commands.give_up(ReplyTo::Own { id }));
        out.clear();
        commands.resend(Fsid::default(), &mut out);
        assert_eq!(out.len(), 1);
        assert!(one_more(&mut commands));
        let plan = Plan {
            to: Some(ReplyTo::Own { id: 7 }),
            requests: vec![MonRequest::default()],
            ..Plan::default()
        };
        assert_eq!(commands.send_all(Fsid::default(), plan, &mut out), Ok(()));
        commands.give_up(ReplyTo::Own { id: 7 });
        let ack = MMonCommandAck::default();
        let over = commands.answered(Fsid::default(), commands.last, ack, &mut out).expect("seen through");
        assert_eq!(over.to, None);
    }

    #[test]
    fn of_a_plan_of_its_own_a_deposed_manager_sends_nothing_more() {
        let (mut commands, mut out) = (MonCommands::default(), Vec::new());
        let request = |i: usize| MonRequest { json: i.to_string(), ..MonRequest::default() };
        let plan = Plan { requests: (0..3_000).map(request).collect(), ..Plan::default() };
        assert_eq!(commands.send_all(Fsid::default(), plan, &mut out), Ok(()));
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
