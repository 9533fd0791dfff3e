//! Watches and notifies: registered, registered again after every reset, kept alive by pings.

use std::time::Duration;

use bytes::{Buf, Bytes};
use maps::flags::map_flags;
use messages::osd::{MWatchNotify, Op as Operation, OsdOp, flags, watch_event, watch_op};
use types::{Errno, HObject, SnapContext};

use crate::core::Objecter;
use crate::io::{Effect, OpRequest, Outcome, SessionId, Ticket, WatchEvent};
use crate::op::Purpose;
use crate::target::{Change, Target, Watching};

/// A watch, or a notify whose watchers have not all answered.
#[derive(Debug)]
pub(crate) struct Linger {
    object: HObject,
    kind: Kind,
    target: Target,
    /// Where it was registered last.
    pub(crate) session: Option<SessionId>,
    /// Whoever waits for the registration or the notify's end.
    ticket: Option<Ticket>,
    /// Counts registrations, so that late answers to pings are known.
    generation: u32,
    registered: bool,
    error: Option<Errno>,
    /// The operation that registers it now.
    register_tid: Option<u64>,
    /// When the OSD was last asked with success.
    valid_at: Duration,
    ping_at: Duration,
    ping_tid: Option<u64>,
    /// The OSD's number of a notify.
    notify_id: Option<u64>,
}

#[derive(Debug, Clone)]
enum Kind {
    Watch { timeout_s: u32 },
    Notify { payload: Bytes, timeout_s: u32 },
}

/// A watch that the OSD does not know is a broken connection to who watches. Source: Objecter::_normalize_watch_error.
fn watch_error(result: i32) -> Errno {
    match Errno(result.saturating_neg()) {
        Errno::ENOENT => Errno::ENOTCONN,
        other => other,
    }
}

impl Objecter {
    pub(crate) fn submit_watch(&mut self, t: Ticket, object: HObject, timeout_s: u32, out: &mut Vec<Effect>) {
        self.new_linger(t, object, Kind::Watch { timeout_s }, out);
    }

    pub(crate) fn submit_notify(
        &mut self,
        ticket: Ticket,
        object: HObject,
        payload: Bytes,
        timeout_s: u32,
        out: &mut Vec<Effect>,
    ) {
        self.new_linger(ticket, object, Kind::Notify { payload, timeout_s }, out);
    }

    fn new_linger(&mut self, ticket: Ticket, object: HObject, kind: Kind, out: &mut Vec<Effect>) {
        let cookie = self.next_tid();
        let linger = Linger {
            object,
            kind,
            target: Target::default(),
            session: None,
            ticket: Some(ticket),
            generation: 0,
            registered: false,
            error: None,
            register_tid: None,
            valid_at: self.now.mono,
            ping_at: self.now.mono,
            ping_tid: None,
            notify_id: None,
        };
        self.lingers.insert(cookie, linger);
        self.aim_linger(cookie);
        self.send_linger(cookie, out);
    }

    pub(crate) fn submit_unwatch(&mut self, ticket: Ticket, cookie: u64, out: &mut Vec<Effect>) {
        let Some(linger) = self.take_linger(cookie, out) else {
            return out.push(Effect::Done(ticket, Outcome::Failed(Errno::EBADF)));
        };
        let op = Operation::Watch { cookie, op: watch_op::UNWATCH, generation: 0, timeout_s: 0 };
        let request = request(&linger.object, op, flags::WRITE);
        self.submit_op(ticket, request, out);
    }

    pub(crate) fn watch_check(&mut self, ticket: Ticket, cookie: u64, out: &mut Vec<Effect>) {
        let outcome = match self.lingers.get(&cookie) {
            None => Outcome::Failed(Errno::ENOTCONN),
            Some(Linger { error: Some(errno), .. }) => Outcome::Failed(*errno),
            Some(l) => Outcome::WatchAge(self.now.mono.saturating_sub(l.valid_at)),
        };
        out.push(Effect::Done(ticket, outcome));
    }

    /// Whether a watch or notify of this ticket was there; it is not any more.
    pub(crate) fn cancel_linger(&mut self, ticket: Ticket, out: &mut Vec<Effect>) -> bool {
        let cookie = self.lingers.iter().find(|(_, l)| l.ticket == Some(ticket)).map(|(c, _)| *c);
        cookie.and_then(|cookie| self.take_linger(cookie, out)).is_some()
    }

    fn take_linger(&mut self, cookie: u64, out: &mut Vec<Effect>) -> Option<Linger> {
        let linger = self.lingers.remove(&cookie)?;
        for tid in linger.register_tid.iter().chain(&linger.ping_tid) {
            self.drop_op(*tid, out);
        }
        Some(linger)
    }

    /// Aims it by the present map; every new interval means that it has to register again.
    fn aim_linger(&mut self, cookie: u64) -> Change {
        let Some(l) = self.lingers.get_mut(&cookie) else { return Change::None };
        if self.map.epoch.0 == 0 {
            return Change::None;
        }
        let flags = l.kind.flags();
        l.target.aim(&self.map, &mut self.placements, &mut l.object, flags, Watching::Interval, 0)
    }

    /// A new map.
    pub(crate) fn scan_linger(&mut self, cookie: u64, force: bool, out: &mut Vec<Effect>) {
        match self.aim_linger(cookie) {
            Change::NoPool if self.lingers.get(&cookie).is_some_and(|l| l.target.pool_existed) => {
                self.linger_without_pool(cookie, out);
            }
            // Its registration finds out whether the pool exists.
            Change::NoPool => {}
            Change::None if !force => {}
            Change::None | Change::Resend => self.send_linger(cookie, out),
        }
    }

    /// Its session ended: registers on the next one.
    pub(crate) fn relink(&mut self, cookie: u64, session: Option<SessionId>, out: &mut Vec<Effect>) {
        if let Some(l) = self.lingers.get_mut(&cookie) {
            l.session = session;
        }
        self.send_linger(cookie, out);
    }

    /// Registers it (again), or tells the OSD that we are back.
    fn send_linger(&mut self, cookie: u64, out: &mut Vec<Effect>) {
        let Some(l) = self.lingers.get_mut(&cookie) else { return };
        let stale = [l.register_tid.take(), l.ping_tid.take()];
        let (op, purpose) = match &l.kind {
            Kind::Watch { .. } if l.registered => {
                l.generation = l.generation.wrapping_add(1);
                let generation = l.generation;
                let op = Operation::Watch { cookie, op: watch_op::RECONNECT, generation, timeout_s: 0 };
                (op, Purpose::Reconnect { cookie, generation })
            }
            Kind::Watch { timeout_s } => {
                let op =
                    Operation::Watch { cookie, op: watch_op::WATCH, generation: 0, timeout_s: *timeout_s };
                (op, Purpose::Register { cookie })
            }
            Kind::Notify { payload, timeout_s } => {
                l.notify_id = None;
                let op = Operation::Notify { cookie, timeout_s: *timeout_s, payload: payload.clone() };
                (op, Purpose::Register { cookie })
            }
        };
        let request = request(&l.object, op, l.kind.flags());
        stale.into_iter().flatten().for_each(|tid| self.drop_op(tid, out));
        let tid = self.new_op(purpose, request);
        if let Some(l) = self.lingers.get_mut(&cookie) {
            l.register_tid = Some(tid);
        }
        self.place_op(tid, out);
    }

    /// Source: Objecter::_send_linger_ping.
    pub(crate) fn ping_watches(&mut self, out: &mut Vec<Effect>) {
        let now = self.now.mono;
        if self.map.test_flag(map_flags::PAUSERD) {
            return;
        }
        let due = |l: &Linger| {
            matches!(l.kind, Kind::Watch { .. })
                && l.registered
                && l.error.is_none()
                && l.register_tid.is_none()
                && l.ping_at <= now
                && l.session.is_some()
        };
        let cookies: Vec<u64> = self.lingers.iter().filter(|(_, l)| due(l)).map(|(c, _)| *c).collect();
        for cookie in cookies {
            let interval = self.settings.ping_interval;
            let Some(l) = self.lingers.get_mut(&cookie) else { continue };
            l.ping_at = now + interval;
            // A ping without an answer tells enough; another one on top of it would not.
            if l.ping_tid.is_some() {
                continue;
            }
            let generation = l.generation;
            let op = Operation::Watch { cookie, op: watch_op::PING, generation, timeout_s: 0 };
            let request = request(&l.object, op, l.kind.flags());
            let tid = self.new_op(Purpose::Ping { cookie, generation }, request);
            if let Some(l) = self.lingers.get_mut(&cookie) {
                l.ping_tid = Some(tid);
            }
            self.place_op(tid, out);
        }
    }

    /// The OSD's answer to one of its operations, which was sent at `sent`.
    pub(crate) fn linger_reply(
        &mut self,
        purpose: Purpose,
        result: i32,
        output: Bytes,
        sent: Duration,
        out: &mut Vec<Effect>,
    ) {
        let Some(cookie) = purpose.cookie() else { return };
        let ping_at = self.now.mono + self.settings.ping_interval;
        let Some(l) = self.lingers.get_mut(&cookie) else { return };
        match purpose {
            Purpose::Caller(_) => {}
            Purpose::Register { .. } => {
                l.register_tid = None;
                self.registered(cookie, result, output, sent, out);
            }
            Purpose::Reconnect { generation, .. } if generation == l.generation => {
                l.register_tid = None;
                l.ping_at = ping_at;
                self.checked(cookie, result, sent, out);
            }
            Purpose::Ping { generation, .. } if generation == l.generation => {
                l.ping_tid = None;
                self.checked(cookie, result, sent, out);
            }
            Purpose::Reconnect { .. } | Purpose::Ping { .. } => {}
        }
    }

    fn registered(&mut self, cookie: u64, result: i32, output: Bytes, sent: Duration, out: &mut Vec<Effect>) {
        let ping_at = self.now.mono + self.settings.ping_interval;
        let Some(l) = self.lingers.get_mut(&cookie) else { return };
        if result < 0 {
            let ticket = l.ticket;
            self.take_linger(cookie, out);
            out.extend(ticket.map(|t| Effect::Done(t, Outcome::Failed(Errno(result.saturating_neg())))));
            return;
        }
        l.registered = true;
        match l.kind {
            Kind::Watch { .. } => {
                (l.valid_at, l.ping_at) = (sent, ping_at);
                out.extend(l.ticket.take().map(|t| Effect::Done(t, Outcome::Watching { cookie })));
            }
            Kind::Notify { .. } => {
                let mut output = output;
                l.notify_id = (output.len() >= 8).then(|| output.get_u64_le());
            }
        }
    }

    /// What a ping or a reconnection says of the watch.
    fn checked(&mut self, cookie: u64, result: i32, sent: Duration, out: &mut Vec<Effect>) {
        if result < 0 {
            return self.linger_failed(cookie, watch_error(result), out);
        }
        if let Some(l) = self.lingers.get_mut(&cookie) {
            l.valid_at = sent;
        }
    }

    /// A watch is told once that it is lost.
    fn linger_failed(&mut self, cookie: u64, errno: Errno, out: &mut Vec<Effect>) {
        let Some(l) = self.lingers.get_mut(&cookie).filter(|l| l.error.is_none()) else { return };
        l.error = Some(errno);
        out.push(Effect::Watch { cookie, event: WatchEvent::Error(errno) });
    }

    /// The pool does not exist (any more).
    pub(crate) fn linger_without_pool(&mut self, cookie: u64, out: &mut Vec<Effect>) {
        let Some(l) = self.lingers.get(&cookie) else { return };
        match l.ticket {
            Some(ticket) => {
                self.take_linger(cookie, out);
                out.push(Effect::Done(ticket, Outcome::Failed(Errno::ENOENT)));
            }
            None => self.linger_failed(cookie, Errno::ENOTCONN, out),
        }
    }

    /// Source: Objecter::handle_watch_notify.
    pub(crate) fn watch_notify(&mut self, m: MWatchNotify, out: &mut Vec<Effect>) {
        let cookie = m.cookie;
        let Some(l) = self.lingers.get(&cookie) else { return };
        match (&l.kind, m.event) {
            // While it is asked for, that is the end of an earlier attempt: the answer to this one is to come.
            (Kind::Watch { .. }, watch_event::DISCONNECT) if l.ticket.is_none() => {
                self.linger_failed(cookie, Errno::ENOTCONN, out);
            }
            (Kind::Watch { .. }, watch_event::NOTIFY) => {
                let event =
                    WatchEvent::Notify { notify_id: m.notify_id, notifier: m.notifier, payload: m.payload };
                out.push(Effect::Watch { cookie, event });
            }
            (Kind::Notify { .. }, watch_event::NOTIFY_COMPLETE) => {
                // The end of an attempt before the last one.
                if l.notify_id.is_some_and(|id| id != m.notify_id) {
                    return;
                }
                let Some(l) = self.take_linger(cookie, out) else { return };
                let outcome = Outcome::Notified { result: m.return_code, replies: m.result };
                out.extend(l.ticket.map(|t| Effect::Done(t, outcome)));
            }
            _ => {}
        }
    }
}

impl Kind {
    fn flags(&self) -> u32 {
        match self {
            // Source: Objecter::linger_watch, _send_linger.
            Self::Watch { .. } => flags::WRITE | flags::READ,
            Self::Notify { .. } => flags::READ,
        }
    }
}

fn request(object: &HObject, op: Operation, flags: u32) -> OpRequest {
    OpRequest {
        object: object.clone(),
        ops: vec![OsdOp::from(op)],
        flags,
        snapc: SnapContext::default(),
        mtime: None,
        timeout: None,
    }
}
