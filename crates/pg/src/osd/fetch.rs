//! Which copies may fetch their next piece: what they hold until they are written is bounded over all of
//! them.
//!
//! A `copy-from` is a small message that brings up to a whole object into memory. What copies hold, and the
//! piece that each is about to fetch, is charged to their clients' accounts; beyond a share of their own they
//! wait:
//!
//! - All copies together have half of what clients' requests may hold. An entity that copies alone has the
//!   whole of that, one of `n` as much as is free, and an even part of a quarter where little is, or one
//!   piece.
//! - The oldest copy of all may go on although there is no room, for those that hold parts of their objects
//!   would wait for each other for ever; but not while what is fetched and not written yet is more than the
//!   whole: that gets less by itself.
//!
//! So copies under way hold at most the whole or a piece for each entity, and one request; and those that
//! wait to be written the whole and one request. Requests behind a copy on its object wait with it
//! (`pg::copy`).

use std::collections::BTreeSet;

use types::{ConnId, HObject, SpgId};

use super::OsdCore;
use crate::pg::copy::PIECE;

/// A copy that waits for a piece.
struct Waiting {
    /// Older ones have lower numbers.
    number: u64,
    pgid: SpgId,
    head: HObject,
    conn: ConnId,
}

impl OsdCore {
    /// Lets one copy that waits go on; false when none does, or there is no room.
    pub(super) fn fetch_next(&mut self) -> bool {
        if !self.shared.copies_wait {
            return false;
        }
        let mut waiting = self.waiting_copies();
        waiting.sort_by_key(|w| w.number);
        self.shared.copies_wait = !waiting.is_empty();
        let Some(next) = self.may_fetch(&waiting) else { return false };
        if self.shared.is_slice_over() {
            // A source of this OSD's own is read at once: heartbeats and others come between.
            self.shared.some_ready = true;
            return false;
        }
        if let Some(pg) = self.pgs.get_mut(&next.pgid) {
            pg.fetch_piece(&next.head, &mut self.shared);
        }
        true
    }

    fn waiting_copies(&self) -> Vec<Waiting> {
        let copies = self.pgs.values().flat_map(|pg| pg.copies.iter().map(move |(head, c)| (pg.id, head, c)));
        let waiting = copies.filter(|(_, _, c)| c.waits_for_room());
        let waiting = waiting.map(|(pgid, head, c)| Waiting {
            number: c.number,
            pgid,
            head: head.clone(),
            conn: c.conn(),
        });
        waiting.collect()
    }

    /// The first of those who wait, the oldest first, for whom there is room.
    fn may_fetch<'a>(&self, waiting: &'a [Waiting]) -> Option<&'a Waiting> {
        let whole = match self.shared.config.client_message_size_cap {
            0 => u64::MAX,
            cap => cap / 2,
        };
        let total = self.clients.fetched().bytes;
        let session = |conn: ConnId| self.shared.sessions.get(&conn);
        let conns = self.pgs.values().flat_map(|pg| pg.copies.values()).map(|c| c.conn());
        let copying = conns.filter_map(session).map(|s| &s.peer.auth_name);
        // Those too whose copies are fetched and not written yet.
        let entities: BTreeSet<_> = copying.chain(self.clients.fetchers()).collect();
        let share = match entities.len() as u64 {
            0 | 1 => whole,
            n => (whole / n.saturating_mul(4)).max(whole.saturating_sub(total)).max(PIECE),
        };
        let has_room = |w: &&Waiting| {
            let theirs = session(w.conn).map_or(0, |s| s.account.fetched_by_entity().bytes);
            theirs.saturating_add(PIECE) <= share
        };
        waiting.iter().find(has_room).or_else(|| {
            let copies = || self.pgs.values().flat_map(|pg| pg.copies.values());
            let oldest = copies().map(|c| c.number).min();
            let under_way: u64 = copies().map(|c| c.held_bytes()).sum();
            let unwritten = total.saturating_sub(under_way);
            waiting.first().filter(|w| Some(w.number) == oldest && unwritten <= whole)
        })
    }
}
