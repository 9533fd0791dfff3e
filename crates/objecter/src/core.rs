//! The state, and the way of an input through it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use maps::{MgrMap, OsdMap};
use messages::Message;
use types::{Epoch, Errno, Fsid, Now};

use crate::command::Command;
use crate::io::{Effect, Input, Outcome, Request, ServicePeer, SessionId, Ticket};
use crate::linger::Linger;
use crate::mon::MonRequest;
use crate::op::Op;
use crate::session::Session;
use crate::subs::Subs;
use crate::target::Placements;

/// Bounds and times.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Operations in flight at most; others wait. Source: objecter_inflight_ops.
    pub max_ops: usize,
    /// Bytes in flight at most. Source: objecter_inflight_op_bytes.
    pub max_bytes: u64,
    /// An operation that waits longer makes us ask for a map. Source: objecter_timeout.
    pub laggy_after: Duration,
    /// Between two pings of a watch. Source: objecter_tick_interval.
    pub ping_interval: Duration,
    /// Before the first and the last attempts to reach an OSD. Source: ms_initial_backoff, ms_max_backoff.
    pub first_backoff: Duration,
    pub last_backoff: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_ops: 1024,
            max_bytes: 100 << 20,
            laggy_after: Duration::from_secs(10),
            ping_interval: Duration::from_secs(5),
            first_backoff: Duration::from_millis(50),
            last_backoff: Duration::from_secs(5),
        }
    }
}

/// Looking after what waits.
const TICK: Duration = Duration::from_secs(1);

/// See the crate's documentation.
#[derive(Debug)]
pub struct Objecter {
    pub(crate) settings: Settings,
    pub(crate) now: Now,
    pub(crate) next_tick: Duration,
    /// The cluster's id; nothing that states it can be sent before it is known.
    pub(crate) fsid: Option<Fsid>,
    /// Of epoch 0 until the first one came.
    pub(crate) map: Arc<OsdMap>,
    /// An increment could not be applied: take whatever whole map comes.
    pub(crate) distrusts_map: bool,
    pub(crate) placements: Placements,
    pub(crate) subs: Subs,
    pub(crate) mon_ready: bool,
    pub(crate) mgr: Option<MgrMap>,

    last_tid: u64,
    pub(crate) ops: BTreeMap<u64, Op>,
    /// Operations that the budget has no room for, in order.
    pub(crate) waiting: VecDeque<u64>,
    pub(crate) ops_in_flight: usize,
    pub(crate) bytes_in_flight: u64,
    pub(crate) timeouts: BTreeSet<(Duration, u64)>,

    last_session: u64,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) by_peer: BTreeMap<ServicePeer, SessionId>,
    /// By cookie.
    pub(crate) lingers: BTreeMap<u64, Linger>,
    pub(crate) commands: BTreeMap<u64, Command>,
    pub(crate) mon_requests: BTreeMap<u64, MonRequest>,
    pub(crate) map_waits: Vec<(Epoch, Ticket)>,
    /// The monitor is being asked for its newest map, on behalf of requests whose pool or OSD we do not know.
    pub(crate) newest_query: Option<u64>,
}

impl Objecter {
    pub fn new(settings: Settings) -> Self {
        let mut subs = Subs::default();
        subs.want("monmap", 0, 0);
        subs.want("osdmap", 0, messages::mon::SubscribeItem::ONETIME);
        Self {
            settings,
            now: Now::default(),
            next_tick: Duration::ZERO,
            fsid: None,
            map: Arc::new(OsdMap::default()),
            distrusts_map: false,
            placements: Placements::default(),
            subs,
            mon_ready: false,
            mgr: None,
            last_tid: 0,
            ops: BTreeMap::new(),
            waiting: VecDeque::new(),
            ops_in_flight: 0,
            bytes_in_flight: 0,
            timeouts: BTreeSet::new(),
            last_session: 0,
            sessions: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            lingers: BTreeMap::new(),
            commands: BTreeMap::new(),
            mon_requests: BTreeMap::new(),
            map_waits: Vec::new(),
            newest_query: None,
        }
    }

    /// The newest map; of epoch 0 before the first.
    pub fn map(&self) -> &Arc<OsdMap> {
        &self.map
    }

    /// Handles one input and appends what has to be done.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        self.now = now;
        match input {
            Input::Submit(ticket, request) => self.submit(ticket, request, out),
            Input::Cancel(ticket, errno) => self.cancel(ticket, errno, out),
            Input::MonReady => self.mon_ready(out),
            Input::MonGone => self.mon_ready = false,
            Input::FromMon { tid, msg } => self.on_mon(tid, msg, out),
            Input::SessionReady(session) => self.session_ready(session, out),
            Input::SessionGone(session) => self.session_gone(session, out),
            Input::FromSession { session, tid, msg } => self.on_session(session, tid, msg, out),
            Input::Tick => self.tick(out),
        }
    }

    /// When a `Tick` is due (monotonic); `None` while nothing waits.
    pub fn deadline(&self) -> Option<Duration> {
        let busy = !(self.ops.is_empty() && self.lingers.is_empty() && self.commands.is_empty());
        let tick = busy.then_some(self.next_tick);
        let retry = self.sessions.values().filter_map(Session::retry_at).min();
        let timeout = self.timeouts.first().map(|(at, _)| *at);
        [tick, retry, timeout].into_iter().flatten().min()
    }

    fn submit(&mut self, ticket: Ticket, request: Request, out: &mut Vec<Effect>) {
        match request {
            Request::Op(request) => self.submit_op(ticket, *request, out),
            Request::Watch { object, timeout_s } => self.submit_watch(ticket, object, timeout_s, out),
            Request::Unwatch { cookie } => self.submit_unwatch(ticket, cookie, out),
            Request::WatchCheck { cookie } => self.watch_check(ticket, cookie, out),
            Request::Notify { object, payload, timeout_s } => {
                self.submit_notify(ticket, object, payload, timeout_s, out);
            }
            Request::OsdCommand { .. } | Request::PgCommand { .. } | Request::MgrCommand { .. } => {
                self.submit_command(ticket, request, out);
            }
            Request::WaitMap(epoch) => {
                self.map_waits.push((epoch, ticket));
                self.check_map_waits(out);
            }
            Request::MonCommand { .. }
            | Request::PoolOp { .. }
            | Request::Statfs { .. }
            | Request::PoolStats { .. }
            | Request::LatestMap => self.submit_mon(ticket, request, out),
        }
    }

    fn cancel(&mut self, ticket: Ticket, errno: Errno, out: &mut Vec<Effect>) {
        if let Some(tid) = self.ops.iter().find(|(_, op)| op.is_of(ticket)).map(|(tid, _)| *tid) {
            return self.fail_op(tid, errno, out);
        }
        let before = self.commands.len() + self.mon_requests.len() + self.map_waits.len();
        self.commands.retain(|_, c| c.ticket != ticket);
        self.mon_requests.retain(|_, r| !r.is_of(ticket));
        self.map_waits.retain(|(_, t)| *t != ticket);
        let ended = self.commands.len() + self.mon_requests.len() + self.map_waits.len() < before;
        if ended || self.cancel_linger(ticket, out) {
            out.push(Effect::Done(ticket, Outcome::Failed(errno)));
        }
    }

    fn on_session(&mut self, session: SessionId, tid: u64, msg: Message, out: &mut Vec<Effect>) {
        if !self.sessions.contains_key(&session) {
            return;
        }
        match msg {
            Message::OsdOpReply(reply) => self.op_reply(session, tid, *reply, out),
            Message::WatchNotify(notify) => self.watch_notify(notify, out),
            Message::OsdBackoff(backoff) => self.backoff(session, backoff, out),
            Message::OsdMap(map) => self.take_maps(&map, out),
            Message::CommandReply(r) => self.command_reply(session, tid, (r.result, r.status, r.output), out),
            Message::MgrCommandReply(r) => {
                self.command_reply(session, tid, (r.result, r.status, r.output), out);
            }
            _ => {}
        }
    }

    fn tick(&mut self, out: &mut Vec<Effect>) {
        let now = self.now.mono;
        while let Some((at, tid)) = self.timeouts.first().copied().filter(|(at, _)| *at <= now) {
            self.timeouts.remove(&(at, tid));
            self.fail_op(tid, Errno::ETIMEDOUT, out);
        }
        self.retry_sessions(out);
        if self.next_tick <= now {
            self.next_tick = now + TICK;
            self.look_for_laggy(out);
            self.ping_watches(out);
        }
    }

    /// Operations that wait long: perhaps there is a newer map, or the session is dead and does not know it.
    fn look_for_laggy(&mut self, out: &mut Vec<Effect>) {
        let old = self.now.mono.saturating_sub(self.settings.laggy_after);
        let laggy = |op: &&Op| !op.waiting && (op.session.is_none() || op.stamp < old);
        let sessions: BTreeSet<SessionId> = {
            let sent = self.ops.values().filter(|op| op.is_sent && op.stamp < old);
            sent.filter_map(|op| op.session).collect()
        };
        let homeless = self.commands.values().any(|c| c.session.is_none());
        // An OSD whose interval ends forgets notifies and tells nobody: who made one has to see the map.
        // Source: Objecter::tick.
        if homeless || !self.lingers.is_empty() || self.ops.values().any(|op| laggy(&op)) {
            self.want_map(out);
        }
        for session in sessions {
            let ping = messages::common::MPing::default();
            out.push(Effect::Send { session, tid: 0, msg: ping.into() });
        }
    }

    pub(crate) fn next_tid(&mut self) -> u64 {
        self.last_tid += 1;
        self.last_tid
    }

    pub(crate) fn next_session(&mut self) -> SessionId {
        self.last_session += 1;
        SessionId(self.last_session)
    }

    /// Checks the numbered invariants of the crate's documentation. For tests.
    pub fn assert_invariants(&self) {
        let started = || self.ops.values().filter(|op| op.is_counted());
        for op in self.ops.values().filter(|op| op.is_sent) {
            assert!(op.session.is_some_and(|s| self.sessions.contains_key(&s)), "invariant 1");
        }
        assert_eq!(started().count(), self.ops_in_flight, "invariant 2");
        assert_eq!(started().map(|op| op.bytes).sum::<u64>(), self.bytes_in_flight, "invariant 2");
        assert!(self.ops_in_flight <= self.settings.max_ops, "invariant 2");
        for (peer, id) in &self.by_peer {
            assert!(self.sessions.get(id).is_some_and(|s| s.peer == *peer), "invariant 1");
        }
    }

    /// Panics unless every operation has ended. For tests.
    pub fn assert_idle(&self) {
        assert!(
            self.ops.is_empty(),
            "{} operations are left, the first is {:?}",
            self.ops.len(),
            self.ops.values().next()
        );
    }
}
