//! Decides which large write sends its next piece ahead (`pg::staging`), so that others' writes find short
//! commits.
//!
//! 1. A few pieces are under way at one time, fewer of one entity, and of one request no more than keeps its
//!    members busy.
//! 2. An entity has few requests that have begun, and what lies aside for all of them together has a bound.
//!    The oldest request begins in any case when nothing lies aside.
//!
//! Older requests go first: when one finds no room aside, no younger one begins. A request that has begun
//! ends without others: it needs no more than rule 1 gives in turn.
//!
//! Invariant: while `Shared::pieces_wait` is not set, no piece may go.

use std::collections::BTreeMap;

use types::{AuthName, SpgId};

use super::OsdCore;

/// Pieces under way: in all, of one entity.
const PIECES: usize = 4;
const PIECES_OF_ENTITY: usize = 2;
/// Requests of one entity that have begun.
const BEGUN_OF_ENTITY: usize = 2;

/// What an entity has under way.
#[derive(Debug, Clone, Copy, Default)]
struct OfEntity {
    pieces: usize,
    begun: usize,
}

impl OsdCore {
    /// Sends one piece. False when none waits, or none may go now.
    pub(super) fn stage_next(&mut self) -> bool {
        if !self.shared.pieces_wait {
            return false;
        }
        if self.shared.is_slice_over() {
            // A piece is work, and so goes with the next slice.
            self.shared.some_ready = true;
            return false;
        }
        let Some((pgid, id)) = self.next_piece() else {
            self.shared.pieces_wait = false;
            return false;
        };
        if let Some(pg) = self.pgs.get_mut(&pgid) {
            pg.send_piece(id, &mut self.shared);
        }
        true
    }

    /// The piece that may go now, if one may.
    pub(super) fn next_piece(&self) -> Option<(SpgId, u64)> {
        let stagings =
            || self.pgs.values().flat_map(|pg| pg.staging.iter().map(move |(id, s)| (pg.id, *id, s)));
        let entity = |conn| self.shared.sessions.get(&conn).map(|s| &s.peer.auth_name);
        let mut of: BTreeMap<Option<&AuthName>, OfEntity> = BTreeMap::new();
        let (mut pieces, mut bytes) = (0, 0);
        for (_, _, staging) in stagings() {
            let of = of.entry(entity(staging.conn())).or_default();
            let under_way = staging.under_way();
            of.pieces += under_way;
            of.begun += usize::from(staging.has_begun());
            pieces += under_way;
            bytes += if staging.has_begun() { staging.bytes() } else { 0 };
        }
        // What was staged and waits to be used counts as well.
        let waits = self
            .pgs
            .values()
            .flat_map(|pg| pg.aside.iter().filter(|(id, a)| a.is_ours() && !pg.staging.contains_key(id)));
        bytes += waits.map(|(_, a)| a.bytes).sum::<u64>();
        if pieces >= PIECES {
            return None;
        }
        let mut all: Vec<_> = stagings().filter(|(_, _, s)| s.has_more()).collect();
        all.sort_by_key(|(_, id, _)| *id);
        // An older request has found no room aside.
        let mut is_full = false;
        for (pgid, id, staging) in all {
            let of = of.get(&entity(staging.conn())).copied().unwrap_or_default();
            if of.pieces >= PIECES_OF_ENTITY {
                continue;
            }
            if staging.has_begun() {
                return Some((pgid, id));
            }
            if of.begun < BEGUN_OF_ENTITY && !is_full {
                let room = self.shared.config.portions.aside;
                if bytes == 0 || bytes.saturating_add(staging.bytes()) <= room {
                    return Some((pgid, id));
                }
                is_full = true;
            }
        }
        None
    }
}
