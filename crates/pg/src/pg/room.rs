//! Space on other members: they say so when it gets tight, and what a full member cannot take yet waits there.
//!
//! A member cannot refuse a write: the primary has decided on it. So primaries stop taking writes in time for members with
//! little room left, the store keeps part of its reserve for what is under way meanwhile, and what finds no room all the
//! same waits, in order, for the store's next checkpoint or for removals.
//!
//! A client's write that finds no room waits too, unless the client asked to be told (FULL_TRY). It waits for
//! room, or for a map that calls the pool full: with that map the client keeps its writes back, and with the
//! one that ends it, it sends them again. So an OSD with such a write is full whatever its ratio says, and
//! the map comes.

use std::time::Duration;

use maps::pool_flags;
use messages::osd::{OpCode, flags};
use store::StoreError;
use types::{Errno, HObject};

use super::client::{ClientOp, NOBODY};
use super::{Pg, Phase};
use crate::osd::shared::Shared;
use crate::peer::{PgBody, PgMessage};

/// Less than this share of the device is little room.
const TIGHT_SHARE: u64 = 32;
/// How long a request waits for space that should come: a checkpoint takes a fraction of it.
const SPACE_PATIENCE: Duration = Duration::from_secs(5);
/// A write for which there should be room, and was none for so long, makes its OSD full.
const FULL_AFTER: Duration = Duration::from_secs(2);

/// What a member says that has room again.
pub(crate) const PLENTY: u64 = u64::MAX;

/// What became of a message of another member.
#[derive(Debug)]
#[must_use]
pub(crate) enum Taken {
    Done,
    /// The store has no room: the message waits.
    NoRoom(PgBody),
}

/// Bytes left for data, when that is little.
pub(crate) fn tight_room(cx: &Shared) -> Option<u64> {
    let s = cx.store.statfs();
    (s.available_bytes < s.total_bytes / TIGHT_SHARE).then_some(s.available_bytes)
}

impl Pg {
    /// Whether something of this interval waits for room here: later messages stay behind it.
    pub fn lacks_room(&self) -> bool {
        !self.waiting_for_room.is_empty()
    }

    /// Keeps a message until there is room.
    pub fn wait_for_room(&mut self, from: i32, msg: PgMessage, cx: &mut Shared) {
        self.waiting_for_room.push_back((from, msg));
        cx.space_waited = true;
        cx.uncommitted = true;
    }

    /// Member: tells the primary how much room is left here.
    pub fn tell_room(&self, bytes: u64, cx: &mut Shared) {
        if self.phase == Phase::Replica {
            cx.send_pg(self.primary(), self.id, self.primary_interval, PgBody::Room { bytes });
        }
    }

    /// Primary: a member has so much room left.
    pub fn handle_room(&mut self, from: i32, bytes: u64, cx: &mut Shared) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.room = bytes;
            cx.space_waited |= !self.waiting_for_space.is_empty();
        }
    }

    /// Whether every member that gets the write has room for its payload. `frees`: it takes none.
    pub fn members_have_room(&self, targets: &[i32], payload: u64, frees: bool) -> Result<(), StoreError> {
        let least = targets.iter().filter_map(|o| self.peers.get(o)).map(|p| p.room).min();
        match least {
            Some(room) if !frees && payload.max(1) > room => {
                Err(StoreError::Full { needed_bytes: payload, available_bytes: room })
            }
            _ => Ok(()),
        }
    }

    /// The payload is under way to these members.
    pub fn use_room(&mut self, targets: &[i32], payload: u64) {
        for osd in targets {
            if let Some(peer) = self.peers.get_mut(osd).filter(|p| p.room != PLENTY) {
                peer.room = peer.room.saturating_sub(payload);
            }
        }
    }

    /// The store is so full that only those write who asked to try, and removals.
    pub(super) fn past_failsafe(&self, op: &ClientOp, cx: &Shared) -> bool {
        let frees = || op.msg.ops.iter().all(|o| o.code == OpCode::DELETE);
        cx.failsafe_full && op.is_write_ordered() && !op.msg.has_flag(flags::FULL_TRY) && !frees()
    }

    /// Whether the request waits for space before it runs: to keep the order of its object's requests, or
    /// that of writes which wait for the same. Reads, and those that may make room, pass others' writes.
    pub(super) fn waits_for_space(&self, op: &ClientOp, cx: &Shared) -> bool {
        if self.past_failsafe(op, cx) {
            return true;
        }
        let follows = op.is_write_ordered() && op.respects_full();
        let same = |o: &ClientOp| names(&o.msg.object) == names(&op.msg.object);
        !self.waiting_for_space.is_empty() && (follows || self.waiting_for_space.iter().any(same))
    }

    pub(super) fn wait_for_space(&mut self, op: ClientOp, cx: &mut Shared) {
        cx.space_waited = true;
        self.waiting_for_space.push_back(op);
    }

    /// The store, or a member's, has no room for a write. What removals gave back is free after the store's
    /// next checkpoint: a removal waits for it, and so does a write that will then fit.
    pub(super) fn no_space(&mut self, mut op: ClientOp, needed_bytes: u64, cx: &mut Shared) {
        if op.conn == NOBODY {
            // Who made it comes again.
            return;
        }
        let waited = cx.now.mono.saturating_sub(*op.space_wanted.get_or_insert(cx.now.mono));
        let soon = op.only_frees() || cx.store.statfs().available_bytes >= needed_bytes;
        if op.respects_full() {
            if self.pool_is_full(cx) {
                return op.drop_it(cx);
            }
            let targets = self.write_targets(cx);
            if !soon || self.members_have_room(&targets, needed_bytes, op.only_frees()).is_err() {
                self.short_of = self.short_of.max(needed_bytes);
            }
        } else if !soon || waited >= SPACE_PATIENCE {
            return op.refuse(Errno::ENOSPC, cx);
        }
        cx.uncommitted |= soon && waited < SPACE_PATIENCE;
        self.wait_for_space(op, cx);
    }

    fn pool_is_full(&self, cx: &Shared) -> bool {
        cx.map.pool(self.id.pgid.pool).is_some_and(|p| p.has_flag(pool_flags::FULL))
    }

    /// Whether writes of clients found no room that is not there yet.
    pub fn is_short_of_space(&mut self, cx: &Shared) -> bool {
        if self.short_of > 0 && cx.store.statfs().available_bytes >= self.short_of {
            let room = self.members_have_room(&self.write_targets(cx), self.short_of, false);
            self.short_of = if room.is_ok() { 0 } else { self.short_of };
        }
        let late = |since: Duration| cx.now.mono.saturating_sub(since) >= FULL_AFTER;
        let waits = |op: &ClientOp| op.respects_full() && op.space_wanted.is_some_and(late);
        self.short_of > 0 || self.waiting_for_space.iter().any(waits)
    }
}

/// What an object's head and clones have in common.
fn names(o: &HObject) -> (u32, &str, &str, &str) {
    (o.hash, &o.name, &o.key, &o.nspace)
}
