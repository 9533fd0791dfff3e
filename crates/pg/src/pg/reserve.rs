//! Places for backfills, which bound how many run at one time on an OSD: one at the primary's OSD, then one
//! at each target.
//!
//! A primary asks its targets in the order of their numbers, and when it has to ask a target below those that
//! have granted it a place, it gives those places up first. So no two primaries wait for each other. Places
//! are given by priority: PGs that lack copies go before PGs whose copies are only in other places than they
//! should be.
//!
//! A target refuses if it would be too full with all backfills that it has granted places. It is asked again
//! later.
//!
//! Invariants:
//! 1. A target has at most one reservation for a PG, and it ends with the PG's interval.
//! 2. No more than `osd_max_backfills` of them are granted, unless the option was lowered meanwhile.
//!
//! Source: doc/dev/osd_internals/backfill_reservation.rst, PeeringState::get_backfill_priority,
//! OSDService::tentative_backfill_full.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use types::{Epoch, PgShard, SpgId};

use super::backfill::{Step, is_too_full};
use super::{Pg, Phase};
use crate::info::PgSums;
use crate::osd::shared::Shared;
use crate::peer::PgBody;

/// Bases of priorities, and what bounds each class.
const FORCED: usize = 254;
const INACTIVE: (usize, usize) = (220, 253);
const DEGRADED: (usize, usize) = (140, 179);
const MISPLACED: usize = 100;

/// Primary: the places that it has at targets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// The target that was asked and has not answered, and the number of that request.
    asked: Option<(PgShard, u64)>,
    granted: BTreeSet<PgShard>,
    /// Targets that are too full, and when (monotonic) they are asked again.
    refused: BTreeMap<PgShard, Duration>,
    last_id: u64,
    /// Target: bytes that are here already, once they were counted.
    here: Option<u64>,
}

/// Target: a place that a primary wants here, or has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reservation {
    primary: PgShard,
    /// As the primary names it.
    interval: Epoch,
    id: u64,
    priority: u8,
    granted: bool,
    /// What is still to come, at most.
    bytes: u64,
}

impl Pg {
    /// How urgent this PG's backfill is.
    pub(super) fn backfill_priority(&self) -> u8 {
        let open = |osd: &PgShard| !self.backfills.get(osd).is_some_and(|b| b.step != Step::Complete);
        let whole = self.acting().filter(open).count();
        let lacks = |of: u8| usize::from(of).saturating_sub(whole);
        let within = |(base, most): (usize, usize), lacks: usize| (base + lacks).min(most);
        let priority = if self.forced.backfill {
            FORCED
        } else if lacks(self.key.min_size) > 0 {
            within(INACTIVE, lacks(self.key.min_size))
        } else if lacks(self.key.size) > 0 {
            within(DEGRADED, lacks(self.key.size))
        } else {
            MISPLACED
        };
        u8::try_from(priority).unwrap_or(u8::MAX)
    }

    /// Whether the map or the target itself says that it has no room.
    pub(super) fn target_is_full(&self, osd: PgShard, cx: &Shared) -> bool {
        is_too_full(osd.osd, cx) || self.places.refused.get(&osd).is_some_and(|until| *until > cx.now.mono)
    }

    pub(super) fn has_place_at(&self, osd: PgShard) -> bool {
        self.places.granted.contains(&osd)
    }

    /// Whether a target has not answered yet.
    pub(super) fn waits_for_place(&self) -> bool {
        self.places.asked.is_some()
    }

    /// Whether no range is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.backfills.values().all(|b| matches!(b.step, Step::Idle | Step::Complete))
    }

    /// Asks the next of the targets that are to be backfilled.
    pub(super) fn ask_for_places(&mut self, cx: &mut Shared) {
        if self.places.asked.is_some() {
            return;
        }
        let open = |osd: PgShard, step: &Step| *step != Step::Complete && !self.target_is_full(osd, cx);
        let open = self.backfills.iter().filter(|(osd, b)| open(**osd, &b.step));
        let next = open.map(|(osd, _)| *osd).find(|osd| !self.has_place_at(*osd));
        let Some(osd) = next else { return };
        if self.places.granted.range(osd..).next().is_some() {
            // Whoever has the place at this one may wait for one of those.
            if !self.is_idle() {
                return;
            }
            for higher in self.places.granted.split_off(&osd) {
                cx.send_pg(higher, self.id, self.interval(), PgBody::BackfillRelease);
            }
        }
        self.places.last_id += 1;
        let id = self.places.last_id;
        self.places.asked = Some((osd, id));
        let bytes = self.part_of(&self.info.sums);
        let body = PgBody::BackfillReserve { id, priority: self.backfill_priority(), bytes };
        cx.send_pg(osd, self.id, self.interval(), body);
    }

    /// How many bytes of a PG's objects lie on one copy.
    fn part_of(&self, sums: &PgSums) -> u64 {
        u64::try_from(sums.bytes).unwrap_or(0) / self.backend.data_shards()
    }

    /// Primary: a target's answer.
    pub fn handle_backfill_grant(&mut self, from: PgShard, id: u64, granted: bool, cx: &mut Shared) {
        if self.places.asked != Some((from, id)) {
            return;
        }
        self.places.asked = None;
        match granted {
            true => drop(self.places.granted.insert(from)),
            false => {
                let until = cx.now.mono + cx.config.backfill_retry_interval;
                self.places.refused.insert(from, until);
            }
        }
        self.report = true;
        cx.stats_dirty = true;
        self.continue_recovery(cx);
    }

    /// Primary: gives the place at a target up that is through.
    pub(super) fn release_place_at(&mut self, osd: PgShard, cx: &mut Shared) {
        if self.places.granted.remove(&osd) {
            cx.send_pg(osd, self.id, self.interval(), PgBody::BackfillRelease);
        }
    }

    /// Primary: gives all places up.
    pub(super) fn release_places(&mut self, cx: &mut Shared) {
        let asked = self.places.asked.take().map(|(osd, _)| osd);
        for osd in std::mem::take(&mut self.places.granted).into_iter().chain(asked) {
            cx.send_pg(osd, self.id, self.interval(), PgBody::BackfillRelease);
        }
        cx.leave_backfill_place(self.id);
    }

    /// Target: the primary wants a place here.
    pub fn handle_backfill_reserve(
        &mut self,
        from: PgShard,
        interval: Epoch,
        (id, priority): (u64, u8),
        bytes: u64,
        cx: &mut Shared,
    ) {
        if from != self.primary() || self.phase != Phase::Replica {
            return;
        }
        // Some of it may be here already.
        let here = match self.places.here {
            Some(here) => here,
            None => self.counted(cx).map_or(0, |sums| self.part_of(&sums)),
        };
        self.places.here = Some(here);
        let bytes = bytes.saturating_sub(here);
        let wanted = Reservation { primary: from, interval, id, priority, granted: false, bytes };
        cx.reservations.insert(self.id, wanted);
        cx.grant_reservations();
    }

    /// Target: so many bytes of what was promised room are here.
    pub(super) fn use_place(&mut self, bytes: u64, cx: &mut Shared) {
        if let Some(here) = &mut self.places.here {
            *here = here.saturating_add(bytes);
        }
        cx.use_reservation(self.id, bytes);
    }

    /// Target: the place is free again.
    pub fn handle_backfill_release(&mut self, from: PgShard, cx: &mut Shared) {
        if from == self.primary() {
            cx.end_reservation(self.id);
        }
    }
}

impl Shared {
    /// Whether so many bytes more, with all that was promised room already, are too many for this OSD.
    fn would_be_full(&self, bytes: u64) -> bool {
        let s = self.store.statfs();
        let promised: u64 = self.reservations.values().filter(|r| r.granted).map(|r| r.bytes).sum();
        let used = s.total_bytes.saturating_sub(s.available_bytes);
        let then = used.saturating_add(promised).saturating_add(bytes);
        let ratio = self.map.backfillfull_ratio;
        ratio > 0.0 && s.total_bytes > 0 && then as f64 >= f64::from(ratio) * s.total_bytes as f64
    }

    /// Gives free places to the most urgent, among equals to the least PG.
    pub fn grant_reservations(&mut self) {
        loop {
            let granted = self.reservations.values().filter(|r| r.granted).count();
            let waiting = self.reservations.iter().filter(|(_, r)| !r.granted);
            let Some((id, next)) = waiting.max_by_key(|(id, r)| (r.priority, std::cmp::Reverse(**id))) else {
                return;
            };
            let (id, next) = (*id, next.clone());
            let full = self.would_be_full(next.bytes);
            if !full && granted >= self.config.max_backfills.max(1) {
                return;
            }
            match self.reservations.get_mut(&id) {
                Some(r) if !full => r.granted = true,
                _ => drop(self.reservations.remove(&id)),
            }
            let body = PgBody::BackfillGrant { id: next.id, granted: !full };
            self.send_pg(next.primary, id, next.interval, body);
        }
    }

    /// A PG needs its place no more.
    pub fn end_reservation(&mut self, id: SpgId) {
        if self.reservations.remove(&id).is_some() {
            self.grant_reservations();
        }
    }

    /// So many bytes of what was promised room are here.
    pub fn use_reservation(&mut self, id: SpgId, bytes: u64) {
        if let Some(r) = self.reservations.get_mut(&id) {
            r.bytes = r.bytes.saturating_sub(bytes);
        }
    }
}
