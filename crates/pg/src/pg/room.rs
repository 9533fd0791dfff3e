//! Space on other members: they say so when it gets tight, and what a full member cannot take yet waits there.
//!
//! A member cannot refuse a write: the primary has decided on it. So primaries stop taking writes in time for members with
//! little room left, the store keeps part of its reserve for what is under way meanwhile, and what finds no room all the
//! same waits, in order, for the store's next checkpoint or for removals.

use store::StoreError;

use super::{Pg, Phase};
use crate::osd::shared::Shared;
use crate::peer::{PgBody, PgMessage};

/// Less than this share of the device is little room.
const TIGHT_SHARE: u64 = 32;
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
}
