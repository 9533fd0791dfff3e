//! Room in the stores of a PG's members, and the messages and requests that wait for it.
//!
//! A member cannot refuse a write, because the primary has decided on it. Three things make that work.
//! Members with little room left say so, and their primaries stop taking writes in time. The store keeps part
//! of its reserve for writes that are under way meanwhile. And a message that finds no room all the same
//! waits at the member, in order, for the store's next checkpoint or for removals.
//!
//! A client's write that finds no room at the primary waits too, unless the client asked for ENOSPC
//! (FULL_TRY). It waits for room, or for a map that calls the pool full: a client with such a map holds its
//! writes back, and sends them again when a later map ends that. So that such a map comes, an OSD with a
//! waiting write reports that it is full, whatever its ratio says.

use std::time::Duration;

use maps::pool_flags;
use messages::osd::{OpCode, flags};
use store::StoreError;
use types::{Errno, HObject, PgShard};

use super::client::ClientOp;
use super::{Pg, Phase};
use crate::exec::NOBODY;
use crate::osd::shared::Shared;
use crate::peer::{PgBody, PgMessage};

/// Less than one part in so many of the device is little room.
const TIGHT_SHARE: u64 = 32;
/// For so long a write counts on the next checkpoint to free the space that it needs. A checkpoint takes a
/// fraction of this.
const SPACE_PATIENCE: Duration = Duration::from_secs(5);
/// A write that found no room for so long, although the store counts enough, makes its OSD report that it is
/// full.
const FULL_AFTER: Duration = Duration::from_secs(2);

/// The room that a member states once it has plenty again.
pub(crate) const PLENTY: u64 = u64::MAX;

/// Whether another member's message could be applied.
#[derive(Debug)]
#[must_use]
pub(crate) enum Taken {
    Done,
    /// The store has no room: the message waits.
    NoRoom(PgBody),
    /// The device reads what it takes: the message waits.
    OnDevice(PgBody),
}

/// Bytes left for data, when that is little.
pub(crate) fn tight_room(cx: &Shared) -> Option<u64> {
    let s = cx.store.statfs();
    (s.available_bytes < s.total_bytes / TIGHT_SHARE).then_some(s.available_bytes)
}

impl Pg {
    /// Whether messages wait here for room, or for the device. Later messages have to wait behind them.
    pub fn holds_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Keeps a message until there is room, and until the device has read what the first one takes.
    pub fn hold_back(&mut self, from: PgShard, msg: PgMessage, cx: &mut Shared) {
        self.held_back.push_back((from, msg));
        if self.chunk_reads.is_none() {
            cx.space_waited = true;
            cx.uncommitted = true;
        }
    }

    /// Member: tells the primary how much room is left here.
    pub fn tell_room(&self, bytes: u64, cx: &mut Shared) {
        if self.phase == Phase::Replica {
            cx.send_pg(self.primary(), self.id, self.primary_interval, PgBody::Room { bytes });
        }
    }

    /// Primary: a member has so much room left.
    pub fn handle_room(&mut self, from: PgShard, bytes: u64, cx: &mut Shared) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.room = bytes;
            cx.space_waited |= !self.waiting_for_space.is_empty();
        }
    }

    /// Whether every member that gets the write has room for its payload. `frees`: it takes none.
    pub fn members_have_room(
        &self,
        targets: &[PgShard],
        payload: u64,
        frees: bool,
    ) -> Result<(), StoreError> {
        let least = targets.iter().filter_map(|o| self.peers.get(o)).map(|p| p.room).min();
        match least {
            Some(room) if !frees && payload.max(1) > room => {
                Err(StoreError::Full { needed_bytes: payload, available_bytes: room })
            }
            _ => Ok(()),
        }
    }

    /// Takes a payload that is sent to these members off the room that they stated.
    pub fn use_room(&mut self, targets: &[PgShard], payload: u64) {
        for osd in targets {
            if let Some(peer) = self.peers.get_mut(osd).filter(|p| p.room != PLENTY) {
                peer.room = peer.room.saturating_sub(payload);
            }
        }
    }

    /// Whether the store is past the failsafe ratio and so does not run this write. Removals and writes with
    /// FULL_TRY run.
    pub(super) fn past_failsafe(&self, op: &ClientOp, cx: &Shared) -> bool {
        let frees = || op.msg.ops.iter().all(|o| o.code == OpCode::DELETE);
        cx.failsafe_full && op.is_write_ordered() && !op.msg.has_flag(flags::FULL_TRY) && !frees()
    }

    /// Whether the request has to wait for space before it runs: because the store is past the failsafe
    /// ratio, or because requests wait for space already and this one must stay behind them. Ordinary writes
    /// stay behind all of them; other requests (reads, writes with FULL_TRY) only behind those of their own
    /// object.
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

    /// Refuses a write for which this store or a member's has no room, or makes it wait. Space that removals
    /// gave back is free after the store's next checkpoint: a removal waits for that, and so does a write
    /// that will fit then.
    pub(super) fn no_space(&mut self, mut op: ClientOp, needed_bytes: u64, cx: &mut Shared) {
        if op.conn == NOBODY {
            // The OSD made the write itself, and its maker tries again.
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

    /// Whether clients' writes wait for room that has not come: this OSD then reports that it is full.
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

/// The part of the name that an object's head and clones have in common.
fn names(o: &HObject) -> (u32, &str, &str, &str) {
    (o.hash, &o.name, &o.key, &o.nspace)
}
