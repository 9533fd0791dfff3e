//! What requests of erasure-coded PGs gather of shards: how many bytes all of them hold, and which wait for
//! room before shards are asked.
//!
//! Invariants:
//! 1. `bytes` is what the requests hold that gather, or have gathered and not run yet; it is on their
//!    clients' accounts as well.
//! 2. A request begins to gather while all hold no more than `Portions::gathered` with it, its entity has a
//!    part left, and none waits; else it waits. Of those that wait, one passes another whose entity has no
//!    part left. While no other asks shards, one begins all the same: those that wait may be the very ones
//!    that hold the bytes, for a request may gather again for what it comes to later.

use std::collections::VecDeque;
use std::sync::Arc;

use types::{ConnId, SpgId};

use super::OsdCore;
use super::account::{Charge, Kept, Sum};
use super::shared::Shared;
use crate::coded::Gathered;
use crate::pg::ClientOp;

/// An entity's part of what the requests of others leave of that.
const OF_ENTITY: u64 = 2;

/// What a request has gathered, and what counts for it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Harvest {
    pub bytes: Gathered,
    pub counted: Vec<Arc<Counted>>,
}

/// Bytes that a request gathers, on the accounts of its client, of its entity and of all.
#[derive(Debug)]
pub(crate) struct Counted {
    _gathered: (Kept, Kept),
    _charge: Option<Charge>,
}

/// Whether a request may begin to gather.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum May {
    Now,
    /// Its entity has its part.
    NotItsEntity,
    /// All have too much.
    NotYet,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Gathers {
    bytes: Sum,
    /// Requests for which shards are asked now.
    asked: Sum,
    /// The PGs and numbers of those that wait.
    waits: VecDeque<(SpgId, u64)>,
    /// The sums when the last look found that none of these may begin. `None` when others wait than then.
    looked: Option<(u64, u64)>,
}

impl Gathers {
    /// What all requests hold.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub fn wait(&mut self, pgid: SpgId, id: u64) {
        self.waits.push_back((pgid, id));
        // Those before it may be gone.
        self.looked = None;
    }

    pub fn is_queued(&self) -> bool {
        !self.waits.is_empty()
    }

    fn sums(&self) -> (u64, u64) {
        (self.bytes.get(), self.asked.get())
    }
}

impl Shared {
    fn gathered_of(&self, conn: ConnId) -> Sum {
        self.sessions.get(&conn).map(|s| s.account.gathered_of_entity.clone()).unwrap_or_default()
    }

    /// Whether a request of this connection may gather so many bytes now; see the second invariant.
    pub fn may_gather(&self, conn: ConnId, bytes: u64) -> May {
        let (all, asked) = self.gathers.sums();
        let (most, theirs) = (self.config.portions.gathered, self.gathered_of(conn).get());
        let part = most.saturating_sub(all.saturating_sub(theirs)) / OF_ENTITY;
        match all.saturating_add(bytes) <= most {
            _ if asked == 0 => May::Now,
            _ if theirs >= part => May::NotItsEntity,
            true => May::Now,
            false => May::NotYet,
        }
    }

    /// Counts what a request gathers, and that it asks shards until the second is dropped.
    pub fn count_gather(&self, op: &ClientOp, bytes: u64) -> (Arc<Counted>, Kept) {
        let gathered = (self.gathers.bytes.keep(bytes), self.gathered_of(op.conn).keep(bytes));
        let charge = op.charge.as_ref().map(|charge| charge.beside(bytes));
        (Arc::new(Counted { _gathered: gathered, _charge: charge }), self.gathers.asked.keep(1))
    }
}

impl OsdCore {
    /// Lets a request ask shards that waits for room; false when none may.
    pub(super) fn gather_next(&mut self) -> bool {
        let cx = &mut self.shared;
        if cx.gathers.waits.is_empty() || cx.gathers.looked == Some(cx.gathers.sums()) {
            return false;
        }
        let mut at = 0;
        while let Some((pgid, id)) = cx.gathers.waits.get(at).copied() {
            let waits = self.pgs.get(&pgid).and_then(|pg| pg.waits_to_gather(id));
            let Some((bytes, op)) = waits.zip(cx.reads.get(id)) else {
                // The request is gone.
                cx.gathers.waits.remove(at);
                continue;
            };
            match cx.may_gather(op.conn, bytes) {
                May::Now => {}
                May::NotItsEntity => {
                    at += 1;
                    continue;
                }
                // It is not passed for ever.
                May::NotYet => break,
            }
            cx.gathers.waits.remove(at);
            if let Some(pg) = self.pgs.get_mut(&pgid) {
                pg.begin_gather(id, true, cx);
            }
            return true;
        }
        cx.gathers.looked = Some(cx.gathers.sums());
        false
    }
}
