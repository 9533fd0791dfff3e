//! Decides which `copy-from` request may fetch its next piece, so that the memory of all copies is bounded.
//!
//! A `copy-from` is a small message that brings up to a whole object into memory. What copies have fetched,
//! and the piece that each has just asked for, is charged to their clients' accounts (`account::Fetched`).
//! Two rules bound it:
//!
//! 1. All copies together have a budget: half of `client_message_size_cap`. While the copies of only one
//!    entity exist, that entity may use all of it. Otherwise each entity may hold what is free of the budget;
//!    or, if that is more, an even part of a quarter of the budget; or, if that is more, one piece.
//! 2. The oldest copy may fetch on although its entity has no room: else copies that each hold a part of
//!    their objects could wait for each other for ever. It has to wait only while copies that are complete
//!    and not written yet hold more than the budget, for those end without fetching anything.
//!
//! So copies that still fetch hold at most the budget (or one piece for each entity, where that is more) and
//! one request beyond it; copies that wait to be written hold as much again. Requests for an object that is
//! being copied to wait behind its copy (`pg::copy`).

use std::collections::BTreeSet;

use types::{ConnId, HObject, SpgId};

use super::OsdCore;
use crate::pg::copy::{Copying, PIECE};

/// A copy that waits for room for its next piece.
struct Waiting {
    /// Older ones have lower numbers.
    number: u64,
    pgid: SpgId,
    head: HObject,
    conn: ConnId,
}

impl OsdCore {
    /// Lets one waiting copy ask for its next piece. False when no copy waits, or none of them has room.
    pub(super) fn fetch_next(&mut self) -> bool {
        let changes = self.clients.fetch_changes();
        if !self.shared.copies_wait || self.no_room_at == Some(changes) {
            // All copies are looked through: not for each input while none of them has changed.
            return false;
        }
        let mut waiting = self.waiting_copies();
        waiting.sort_by_key(|w| w.number);
        self.shared.copies_wait = !waiting.is_empty();
        let Some(next) = self.may_fetch(&waiting) else {
            self.no_room_at = Some(changes);
            return false;
        };
        if self.shared.is_slice_over() {
            // A source on this OSD is read at once, which is work of this slice: it waits for the next one.
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

    /// Bytes that all copies together may hold.
    fn copy_budget(&self) -> u64 {
        match self.shared.config.client_message_size_cap {
            0 => u64::MAX,
            cap => cap / 2,
        }
    }

    /// Bytes that the copies of one entity may hold, by rule 1.
    fn copy_share(&self) -> u64 {
        let budget = self.copy_budget();
        let free = budget.saturating_sub(self.clients.fetched().bytes);
        let sessions = self.copies().filter_map(|c| self.shared.sessions.get(&c.conn()));
        let copying = sessions.map(|s| &s.peer.auth_name);
        // Entities whose copies are complete and not written yet count as well.
        let entities: BTreeSet<_> = copying.chain(self.clients.fetchers()).collect();
        match entities.len() as u64 {
            0 | 1 => budget,
            n => (budget / n.saturating_mul(4)).max(free).max(PIECE),
        }
    }

    /// The oldest waiting copy whose entity has room; else the oldest copy of all, where rule 2 lets it go
    /// on. `waiting` is ordered by age.
    fn may_fetch<'a>(&self, waiting: &'a [Waiting]) -> Option<&'a Waiting> {
        let share = self.copy_share();
        let has_room = |w: &&Waiting| {
            let session = self.shared.sessions.get(&w.conn);
            let theirs = session.map_or(0, |s| s.account.fetched_by_entity().bytes);
            theirs.saturating_add(PIECE) <= share
        };
        waiting.iter().find(has_room).or_else(|| {
            let oldest = self.copies().map(|c| c.number).min();
            let fetching: u64 = self.copies().map(|c| c.held_bytes()).sum();
            let complete = self.clients.fetched().bytes.saturating_sub(fetching);
            waiting.first().filter(|w| Some(w.number) == oldest && complete <= self.copy_budget())
        })
    }

    fn copies(&self) -> impl Iterator<Item = &Copying> {
        self.pgs.values().flat_map(|pg| pg.copies.values())
    }
}
