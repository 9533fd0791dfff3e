//! Guests that watch an object, and one that notifies them. A notify names every watcher: it answered, or it did not in time.
//! A watcher that is dead is one no more when its time is up.

use codec::Decode;
use messages::osd::{ListWatchersResponse, NotifyResult, Op, OsdOp, flags};
use objecter::{Outcome, Request, Ticket, WatchEvent};
use types::{Errno, SnapContext, SnapId};

use crate::board::Suspicion;
use crate::guest::{Cx, Happening};
use crate::queue::{MILLISECOND, SECOND, Time};

const WATCHED: &str = "watched";
pub const WATCH_S: u32 = 10;
const NOTIFY_S: u32 = 5;
/// OSDs look after their watches every so often, and answers are under way.
const SLACK: Time = 8 * SECOND;

#[derive(Debug, Default)]
enum WatchStep {
    #[default]
    None,
    Asked,
    Stands {
        cookie: u64,
        since: Time,
    },
    /// The watch is lost; it is taken down before another one is made.
    Ending,
}

/// One that watches.
#[derive(Default)]
pub struct Watcher {
    step: WatchStep,
    ticket: Option<Ticket>,
}

impl Watcher {
    pub fn act(&mut self, cx: &mut Cx, what: Happening) {
        match what {
            Happening::Began => {
                *self = Self::default();
                cx.later();
            }
            Happening::Think if self.ticket.is_none() => self.next(cx),
            Happening::Done(ticket, outcome) if self.ticket == Some(ticket) => {
                self.ticket = None;
                self.done(cx, outcome);
                if self.ticket.is_none() {
                    cx.later();
                }
            }
            Happening::Watch { cookie, event: WatchEvent::Notify { notify_id, payload, .. } } => {
                let number = payload.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
                cx.board.heard.insert((cx.gid, number));
                let ack = Op::NotifyAck { notify_id, cookie, reply: payload };
                cx.op(WATCHED, SnapId::HEAD, vec![OsdOp::from(ack)], flags::READ, SnapContext::default());
            }
            Happening::Watch { cookie, event: WatchEvent::Error(_) } => {
                cx.board.watch_ended(cx.gid);
                if matches!(self.step, WatchStep::Stands { cookie: c, .. } if c == cookie) {
                    self.step = WatchStep::Ending;
                    self.ticket = Some(cx.ask(Request::Unwatch { cookie }));
                }
            }
            Happening::Think | Happening::Done(..) => {}
        }
    }

    fn next(&mut self, cx: &mut Cx) {
        if cx.pool().is_none() {
            return cx.soon(50 * MILLISECOND);
        }
        match self.step {
            WatchStep::Stands { cookie, .. } => {
                let often = if cx.options.quiet_think.is_some() { 20 } else { 120 };
                let own = cx.rng.one_in(often) && !cx.paused && !cx.finishing;
                if own {
                    cx.board.count("watchers died");
                    let after = cx.rng.below(3 * SECOND);
                    return cx.restart(after);
                }
                self.ticket = Some(cx.ask(Request::WatchCheck { cookie }));
            }
            _ => {
                self.step = WatchStep::Asked;
                let object = cx.object(WATCHED);
                self.ticket = Some(cx.ask(Request::Watch { object, timeout_s: WATCH_S }));
            }
        }
    }

    fn done(&mut self, cx: &mut Cx, outcome: Outcome) {
        match (&self.step, outcome) {
            (WatchStep::Asked, Outcome::Watching { cookie }) => {
                cx.board.count("watches");
                cx.board.watching.insert(cx.gid, cx.now);
                self.step = WatchStep::Stands { cookie, since: cx.now };
            }
            // Nobody has made the object yet.
            (WatchStep::Asked, Outcome::Failed(Errno::ENOENT)) => self.step = WatchStep::None,
            (WatchStep::Stands { since, .. }, Outcome::WatchAge(age)) => {
                let good_at = cx.now.saturating_sub(age.as_nanos() as Time);
                let left_out = |s: &&Suspicion| s.watcher == cx.gid && s.at < good_at && s.at > *since;
                if let Some(s) = cx.board.suspicions.iter().find(left_out) {
                    let text = s.text.clone();
                    cx.violation(text);
                }
            }
            (WatchStep::Stands { .. }, Outcome::Failed(_)) => {}
            (WatchStep::Ending, _) => self.step = WatchStep::None,
            (step, outcome) => {
                let text = format!("{step:?} came to {outcome:?}");
                cx.violation(text);
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Notifying {
    Creating,
    Notify { number: u64, began: Time, watching: Vec<u64> },
    Listing { began: Time },
}

/// The one that notifies.
#[derive(Default)]
pub struct Notifier {
    created: bool,
    doing: Option<(Ticket, Notifying)>,
    /// The last list was made when every watch was what it should be.
    finished: bool,
}

impl Notifier {
    pub fn has_finished(&self) -> bool {
        self.finished
    }

    pub fn act(&mut self, cx: &mut Cx, what: Happening) {
        match what {
            Happening::Began => {
                self.doing = None;
                cx.later();
            }
            Happening::Think if self.doing.is_none() => self.next(cx),
            Happening::Done(ticket, outcome) => {
                let Some((_, doing)) = self.doing.take_if(|(t, _)| *t == ticket) else { return };
                self.done(cx, doing, outcome);
                if cx.finishing { cx.soon(SECOND) } else { cx.later() }
            }
            Happening::Think | Happening::Watch { .. } => {}
        }
    }

    fn next(&mut self, cx: &mut Cx) {
        if cx.pool().is_none() {
            return cx.soon(50 * MILLISECOND);
        }
        if (cx.paused && !cx.finishing) || self.finished {
            return;
        }
        let none = SnapContext::default;
        if !self.created {
            let ticket = cx.op(WATCHED, SnapId::HEAD, vec![Op::Create.into()], flags::WRITE, none());
            self.doing = Some((ticket, Notifying::Creating));
        } else if cx.finishing || cx.rng.one_in(4) {
            let ticket = cx.op(WATCHED, SnapId::HEAD, vec![Op::ListWatchers.into()], flags::READ, none());
            self.doing = Some((ticket, Notifying::Listing { began: cx.now }));
        } else {
            let number = cx.unique();
            let watching = cx.board.watching.keys().copied().collect();
            let (object, payload) = (cx.object(WATCHED), number.to_le_bytes().to_vec().into());
            let ticket = cx.ask(Request::Notify { object, payload, timeout_s: NOTIFY_S });
            self.doing = Some((ticket, Notifying::Notify { number, began: cx.now, watching }));
        }
    }

    fn done(&mut self, cx: &mut Cx, doing: Notifying, outcome: Outcome) {
        match (doing, outcome) {
            (Notifying::Creating, Outcome::Op(r)) if r.result == 0 => self.created = true,
            (Notifying::Notify { number, began, watching }, Outcome::Notified { result, replies }) => {
                cx.board.count("notifies");
                match NotifyResult::from_bytes(replies) {
                    Ok(r) => self.notified(cx, number, began, watching, result, &r),
                    Err(e) => cx.violation(format!("a notify's result: {e}")),
                }
            }
            (Notifying::Listing { began }, Outcome::Op(r)) if r.result == 0 => {
                let output = r.ops.first().map(|o| o.outdata.clone()).unwrap_or_default();
                match ListWatchersResponse::from_bytes(output) {
                    Ok(list) => self.listed(cx, began, &list),
                    Err(e) => cx.violation(format!("a list of watchers: {e}")),
                }
            }
            (doing, outcome) => cx.violation(format!("{doing:?} came to {outcome:?}")),
        }
    }

    fn notified(
        &mut self,
        cx: &mut Cx,
        number: u64,
        began: Time,
        watching: Vec<u64>,
        result: i32,
        r: &NotifyResult,
    ) {
        if result != 0 && result != -Errno::ETIMEDOUT.0 {
            return cx.violation(format!("a notify came to {result}"));
        }
        if (result == 0) != r.missed.is_empty() {
            return cx.violation(format!("a notify came to {result}, and {:?} did not answer", r.missed));
        }
        if !r.missed.is_empty() {
            cx.board.count("notifies with a silent watcher");
        }
        // While things go wrong the OSD that it waits for may be dead.
        let took = cx.now.saturating_sub(began.max(cx.settled_at));
        if cx.now > cx.settled_at && took > Time::from(NOTIFY_S) * SECOND + SLACK {
            return cx.violation(format!("a notify took {} s", took / SECOND));
        }
        for ((gid, _), _) in &r.replies {
            if !cx.board.heard.contains(&(*gid, number)) {
                return cx.violation(format!("client.{gid} answered a notify that it never heard"));
            }
        }
        let named = |gid: u64| {
            r.replies.iter().any(|((w, _), _)| *w == gid) || r.missed.iter().any(|(w, _)| *w == gid)
        };
        for gid in watching.into_iter().filter(|gid| !named(*gid)) {
            // It may have ended, and the watcher not know yet.
            let since = cx.board.watching.get(&gid).copied();
            if since.is_some_and(|since| since <= began) {
                let text = format!("client.{gid} watched, and a notify at {began} ns left it out");
                cx.board.suspicions.push(Suspicion { watcher: gid, at: cx.now, text });
            }
        }
    }

    fn listed(&mut self, cx: &mut Cx, began: Time, list: &ListWatchersResponse) {
        let bound = Time::from(WATCH_S) * SECOND + SLACK;
        // A new primary gives every watcher its time anew.
        let calm_since = if cx.options.only_guests_die { 0 } else { cx.settled_at };
        for w in &list.entries {
            let Some(died) = cx.board.dead.get(&(w.name.num as u64)).copied() else { continue };
            if calm_since < Time::MAX && began > died.max(calm_since) + bound {
                let ago = (began - died) / SECOND;
                return cx.violation(format!("{} watches, and is dead since {ago} s", w.name));
            }
        }
        let last_death = cx.board.dead.values().copied().max().unwrap_or(0);
        let calm = began > last_death.max(cx.settled_at).saturating_add(bound);
        if !cx.finishing || !calm {
            return;
        }
        let listed = |gid: &u64| list.entries.iter().any(|w| w.name.num as u64 == *gid);
        match cx.board.watching.keys().find(|gid| !listed(gid)) {
            // Its watch may have been lost; then it hears of that in a moment.
            Some(gid) if began > cx.settled_at.saturating_add(3 * bound) => {
                let text = format!("client.{gid} watches and is not in the list");
                cx.violation(text);
            }
            Some(_) => {}
            None => self.finished = true,
        }
    }
}
