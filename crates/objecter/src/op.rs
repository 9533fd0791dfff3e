//! Operations on objects: budget, sending, replies.

use std::time::Duration;

use maps::NO_OSD;
use messages::osd::{MOsdOp, MOsdOpReply, OpResult, flags};
use types::{Epoch, Errno, HObject, ReqId, SnapId, features};

use crate::core::Objecter;
use crate::io::{Effect, OpReply, OpRequest, Outcome, ServicePeer, SessionId, Ticket};
use crate::target::{Change, Target, Watching};

/// Who waits for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Caller(Ticket),
    /// Registers a watch or sends a notify.
    Register {
        cookie: u64,
    },
    Reconnect {
        cookie: u64,
        generation: u32,
    },
    Ping {
        cookie: u64,
        generation: u32,
    },
}

impl Purpose {
    /// The watch or notify that it serves. Such an operation is not sent twice: what it serves makes a new one.
    pub(crate) fn cookie(self) -> Option<u64> {
        match self {
            Self::Caller(_) => None,
            Self::Register { cookie } | Self::Reconnect { cookie, .. } | Self::Ping { cookie, .. } => {
                Some(cookie)
            }
        }
    }
}

/// One operation.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) purpose: Purpose,
    pub(crate) msg: MOsdOp,
    pub(crate) target: Target,
    /// The session it is assigned to.
    pub(crate) session: Option<SessionId>,
    pub(crate) is_sent: bool,
    /// Waits for room in the budget.
    pub(crate) waiting: bool,
    attempts: i32,
    /// When it was submitted or last sent.
    pub(crate) stamp: Duration,
    pub(crate) bytes: u64,
    timeout_at: Option<Duration>,
    /// From this map on a pool that is not there does not exist.
    pub(crate) no_pool_since: Option<Epoch>,
}

impl Op {
    pub(crate) fn is_of(&self, ticket: Ticket) -> bool {
        self.purpose == Purpose::Caller(ticket)
    }

    /// Whether it counts against the budget.
    pub(crate) fn is_counted(&self) -> bool {
        !self.waiting && matches!(self.purpose, Purpose::Caller(_))
    }
}

impl Objecter {
    pub(crate) fn submit_op(&mut self, ticket: Ticket, request: OpRequest, out: &mut Vec<Effect>) {
        let tid = self.new_op(Purpose::Caller(ticket), request);
        let bytes = self.ops.get(&tid).map_or(0, |op| op.bytes);
        if self.waiting.is_empty() && self.has_room(bytes) {
            self.start(tid, out);
        } else {
            if let Some(op) = self.ops.get_mut(&tid) {
                op.waiting = true;
            }
            self.waiting.push_back(tid);
        }
    }

    pub(crate) fn new_op(&mut self, purpose: Purpose, request: OpRequest) -> u64 {
        let tid = self.next_tid();
        let now = self.now;
        // While anything else lives the tick is under way: starting it anew with each operation would put pings off for ever.
        if self.ops.is_empty() && self.lingers.is_empty() && self.commands.is_empty() {
            self.next_tick = now.mono + Duration::from_secs(1);
        }
        let bytes = request.bytes();
        let timeout_at = request.timeout.map(|t| now.mono.saturating_add(t));
        self.timeouts.extend(timeout_at.map(|at| (at, tid)));
        let is_write = request.flags & flags::WRITE != 0;
        let object = if is_write { HObject { snap: SnapId::HEAD, ..request.object } } else { request.object };
        let msg = MOsdOp {
            pgid: types::SpgId::default(),
            epoch: Epoch(0),
            // Servers older than Luminous look at ONDISK. Source: Objecter::_prepare_osd_op.
            flags: request.flags | flags::ONDISK | flags::KNOWN_REDIR,
            explicit_reqid: ReqId::default(),
            client_inc: 0,
            mtime: request.mtime.unwrap_or(now.wall),
            object,
            ops: request.ops,
            snapc: request.snapc,
            retry_attempt: 0,
            features: features::PACIFIC,
        };
        let op = Op {
            purpose,
            msg,
            target: Target::default(),
            session: None,
            is_sent: false,
            waiting: false,
            attempts: 0,
            stamp: now.mono,
            bytes,
            timeout_at,
            no_pool_since: None,
        };
        self.ops.insert(tid, op);
        tid
    }

    /// Something is always let through, however large it is.
    fn has_room(&self, bytes: u64) -> bool {
        let fits = self.bytes_in_flight.saturating_add(bytes) <= self.settings.max_bytes;
        self.ops_in_flight == 0 || (self.ops_in_flight < self.settings.max_ops && fits)
    }

    fn start(&mut self, tid: u64, out: &mut Vec<Effect>) {
        let Some(op) = self.ops.get_mut(&tid) else { return };
        op.waiting = false;
        self.ops_in_flight += 1;
        self.bytes_in_flight += op.bytes;
        self.place_op(tid, out);
    }

    fn admit_waiting(&mut self, out: &mut Vec<Effect>) {
        while let Some(tid) = self.waiting.front().copied() {
            match self.ops.get(&tid) {
                Some(op) if !self.has_room(op.bytes) => return,
                Some(_) => {
                    self.waiting.pop_front();
                    self.start(tid, out);
                }
                None => {
                    self.waiting.pop_front();
                }
            }
        }
    }

    /// Aims the operation by the present map and sends it, as far as that is possible now.
    pub(crate) fn place_op(&mut self, tid: u64, out: &mut Vec<Effect>) {
        if self.aim_op(tid) == Change::NoPool {
            return self.op_without_pool(tid, out);
        }
        self.assign_op(tid, out);
        self.send_op(tid, out);
    }

    pub(crate) fn aim_op(&mut self, tid: u64) -> Change {
        let Some(op) = self.ops.get_mut(&tid) else { return Change::None };
        if self.map.epoch == Epoch(0) {
            return Change::None;
        }
        let flags = op.msg.flags;
        op.target.aim(&self.map, &mut self.placements, &mut op.msg.object, flags, Watching::Primary, tid)
    }

    /// Finds the session for where the operation is aimed at.
    pub(crate) fn assign_op(&mut self, tid: u64, out: &mut Vec<Effect>) {
        let Some(op) = self.ops.get(&tid) else { return };
        let osd = op.target.osd;
        let session = if osd == NO_OSD { None } else { self.session_with(ServicePeer::Osd(osd), out) };
        let Some(op) = self.ops.get_mut(&tid) else { return };
        op.session = session;
        op.is_sent = false;
        let (purpose, homeless) = (op.purpose, session.is_none() || op.target.paused);
        if let Some(linger) = purpose.cookie().and_then(|c| self.lingers.get_mut(&c)) {
            linger.session = session;
        }
        if homeless {
            self.want_map(out);
        }
    }

    /// Sends the operation unless something holds it back.
    pub(crate) fn send_op(&mut self, tid: u64, out: &mut Vec<Effect>) {
        let Some(op) = self.ops.get_mut(&tid) else { return };
        let Some(session) = op.session else { return };
        let Some(state) = self.sessions.get(&session).filter(|s| s.is_ready()) else { return };
        // Pings change nothing: a full pool must not make every watcher look dead. Source: Objecter::_send_linger_ping.
        if op.target.paused && !matches!(op.purpose, Purpose::Ping { .. }) {
            return;
        }
        let spg = op.target.spg();
        if !state.backoffs.is_empty() && state.backoffs.blocks(spg, &op.msg.object) {
            return;
        }
        op.is_sent = true;
        op.stamp = self.now.mono;
        op.msg.pgid = spg;
        op.msg.epoch = self.map.epoch;
        op.msg.retry_attempt = op.attempts;
        if op.attempts > 0 {
            op.msg.flags |= flags::RETRY;
        }
        op.attempts = op.attempts.saturating_add(1);
        out.push(Effect::Send { session, tid, msg: op.msg.clone().into() });
    }

    /// The map does not know the pool: it is gone, or the map is old.
    pub(crate) fn op_without_pool(&mut self, tid: u64, out: &mut Vec<Effect>) {
        let Some(op) = self.ops.get_mut(&tid) else { return };
        (op.session, op.is_sent) = (None, false);
        if op.target.pool_existed {
            op.no_pool_since = Some(self.map.epoch);
        }
        match op.no_pool_since {
            Some(since) if self.map.epoch >= since => match op.purpose.cookie() {
                Some(cookie) => {
                    self.drop_op(tid, out);
                    self.linger_without_pool(cookie, out);
                }
                None => self.fail_op(tid, Errno::ENOENT, out),
            },
            Some(_) => self.want_map(out),
            None => self.ask_for_newest(out),
        }
    }

    pub(crate) fn op_reply(
        &mut self,
        session: SessionId,
        tid: u64,
        reply: MOsdOpReply,
        out: &mut Vec<Effect>,
    ) {
        let Some(op) = self.ops.get_mut(&tid).filter(|op| op.session == Some(session) && op.is_sent) else {
            return;
        };
        // An answer to an earlier attempt; the one to the last follows.
        if reply.retry_attempt >= 0 && reply.retry_attempt != op.attempts - 1 {
            return;
        }
        if reply.result == Errno::EAGAIN.neg() && op.target.used_replica {
            // The copy cannot tell: ask the primary.
            op.msg.flags &= !(flags::BALANCE_READS | flags::LOCALIZE_READS);
            op.target.placement = None;
            return self.place_op(tid, out);
        }
        let purpose = op.purpose;
        let (stamp, result) = (op.stamp, reply.result);
        match purpose {
            Purpose::Caller(ticket) => {
                let version = reply.user_version;
                self.drop_op(tid, out);
                out.push(Effect::Done(ticket, Outcome::Op(OpReply { result, ops: reply.ops, version })));
                self.admit_waiting(out);
            }
            _ => {
                self.drop_op(tid, out);
                self.linger_reply(purpose, result, first_output(reply.ops), stamp, out);
            }
        }
    }

    /// Ends an operation with an error of our own.
    pub(crate) fn fail_op(&mut self, tid: u64, errno: Errno, out: &mut Vec<Effect>) {
        let Some(op) = self.ops.get(&tid) else { return };
        let purpose = op.purpose;
        self.drop_op(tid, out);
        if let Purpose::Caller(ticket) = purpose {
            let reply = OpReply { result: errno.neg(), ops: Vec::new(), version: 0 };
            out.push(Effect::Done(ticket, Outcome::Op(reply)));
            self.admit_waiting(out);
        }
    }

    /// Takes the operation out of all tables.
    pub(crate) fn drop_op(&mut self, tid: u64, _out: &mut Vec<Effect>) {
        let Some(op) = self.ops.remove(&tid) else { return };
        if op.is_counted() {
            self.ops_in_flight -= 1;
            self.bytes_in_flight -= op.bytes;
        }
        if let Some(at) = op.timeout_at {
            self.timeouts.remove(&(at, tid));
        }
    }
}

fn first_output(ops: Vec<OpResult>) -> bytes::Bytes {
    ops.into_iter().next().map(|op| op.outdata).unwrap_or_default()
}
