//! Backoffs: clients are told to keep requests to themselves that could only wait here, and when to send them again.
//!
//! The OSD drops what is sent under a backoff: the client sends it again when the backoff is released, in order. A backoff
//! that is released stays with the session until the client has acknowledged it, because requests that were sent before
//! the client knew of it may still arrive; they too come again.
//!
//! Invariants:
//! 1. Each of a PG's backoffs is in its session, not released; each of a session's that is not released is in its PG.
//! 2. A client whose session lacks the feature has none.
//!
//! Source: PrimaryLogPG::do_request, PG::add_backoff, PG::release_backoffs in src/osd, src/osd/Session.h.

use messages::osd::{MOsdBackoff, backoff_op};
use types::{ConnId, HObject, features};

use super::{ClientOp, Pg, Phase};
use crate::io::Output;
use crate::osd::shared::Shared;
use crate::range::pg_range;

/// A backoff as its PG knows it; the session has the rest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Backoff {
    pub conn: ConnId,
    /// Unique in the session.
    pub id: u64,
    pub begin: HObject,
    /// Not in it; equal to `begin` for that object alone.
    pub end: HObject,
}

impl Pg {
    /// Whether the request's client has been told not to send it, or is told so now; then it is dropped.
    pub(super) fn backs_off(&mut self, op: &ClientOp, cx: &mut Shared) -> bool {
        if !can_back_off(op, cx) {
            return false;
        }
        let (start, end) = self.whole_range();
        let blocked = |o: &HObject| cx.sessions.get(&op.conn).is_some_and(|s| s.backoffs.covers(self.id, o));
        if blocked(&start) || (!op.kind.pg_op && blocked(&op.msg.object.head())) {
            cx.dropped.push((op.conn, op.tid));
            return true;
        }
        let stuck = match self.phase {
            Phase::Down | Phase::Incomplete => true,
            Phase::Active => !self.is_writeable() && !cx.config.serves_below_min_size(),
            _ => cx.config.backoff_on_peering,
        };
        if stuck {
            self.add_backoff(op, start, end, cx);
        }
        stuck
    }

    /// The same for an object that is not here, or not on every member. Its recovery was tried.
    ///
    /// Clients look only for heads among what they may send again, so a request that lacks a clone waits here instead.
    pub(super) fn backs_off_object(&mut self, op: &ClientOp, head: &HObject, cx: &mut Shared) -> bool {
        let unfound = self.missing.contains(head) && self.unfound.contains(head);
        let wanted = cx.config.backoff_on_degraded || (cx.config.backoff_on_unfound && unfound);
        let backs_off = wanted && head.is_head() && !op.kind.pg_op && can_back_off(op, cx);
        if backs_off {
            self.add_backoff(op, head.clone(), head.clone(), cx);
        }
        backs_off
    }

    fn add_backoff(&mut self, op: &ClientOp, begin: HObject, end: HObject, cx: &mut Shared) {
        cx.dropped.push((op.conn, op.tid));
        let epoch = cx.epoch();
        let Some(session) = cx.sessions.get_mut(&op.conn) else { return };
        let id = session.backoffs.add(self.id, begin.clone(), end.clone());
        self.backoffs.push(Backoff { conn: op.conn, id, begin: begin.clone(), end: end.clone() });
        let msg = MOsdBackoff { pgid: self.id, epoch, op: backoff_op::BLOCK, id, begin, end };
        cx.out.push(Output::Reply { conn: op.conn, tid: 0, msg: msg.into() });
        cx.counters.backoffs += 1;
    }

    /// Lets clients send again what is covered by these backoffs.
    fn release(&mut self, cx: &mut Shared, which: impl Fn(&Backoff) -> bool) {
        if self.backoffs.is_empty() {
            return;
        }
        let (released, kept) = std::mem::take(&mut self.backoffs).into_iter().partition(which);
        self.backoffs = kept;
        let released: Vec<Backoff> = released;
        for Backoff { conn, id, begin, end } in released {
            if let Some(session) = cx.sessions.get_mut(&conn) {
                session.backoffs.release(id);
                let epoch = cx.map.epoch;
                let msg = MOsdBackoff { pgid: self.id, epoch, op: backoff_op::UNBLOCK, id, begin, end };
                cx.out.push(Output::Reply { conn, tid: 0, msg: msg.into() });
            }
        }
    }

    /// The interval ends, or the PG serves.
    pub(super) fn release_all_backoffs(&mut self, cx: &mut Shared) {
        self.release(cx, |_| true);
    }

    /// The object is whole.
    pub(super) fn release_object_backoffs(&mut self, object: &HObject, cx: &mut Shared) {
        self.release(cx, |b| b.begin == b.end && b.begin == *object);
    }

    /// A member is whole up to there.
    pub(super) fn release_object_backoffs_up_to(&mut self, object: &HObject, cx: &mut Shared) {
        self.release(cx, |b| b.begin == b.end && b.begin <= *object);
    }

    /// Requests that came before it was known that the PG will not serve for a while.
    pub(super) fn reconsider_waiting(&mut self, cx: &mut Shared) {
        let stuck = match self.phase {
            Phase::Down | Phase::Incomplete => true,
            Phase::Active => !self.is_writeable(),
            _ => false,
        };
        if stuck && self.waiting_for_active.iter().any(|op| can_back_off(op, cx)) {
            let waiting = std::mem::take(&mut self.waiting_for_active);
            self.let_go(waiting, cx);
        }
    }

    fn whole_range(&self) -> (HObject, HObject) {
        let (start, end) = pg_range(self.id.pgid, self.key.pg_num);
        let end = if end.pool == start.pool { end } else { HObject::max() };
        (start, end)
    }
}

/// Whether the request came from a client that knows backoffs.
fn can_back_off(op: &ClientOp, cx: &Shared) -> bool {
    let feature = features::RADOS_BACKOFF;
    op.asked_by.is_none() && cx.sessions.get(&op.conn).is_some_and(|s| s.peer.features & feature == feature)
}
