//! Recoveries and backfills that somebody wants first keep those of this OSD's other PGs waiting; objects that clients
//! wait for, and ranges of a backfill that are under way, excepted.
//!
//! Invariant: `Shared::forced` names a PG only with what it wants first and can do now, so that nobody waits for a PG that
//! cannot go on, and no two wait for each other.
//!
//! Source: PeeringState::set_force_recovery, PeeringState::set_force_backfill.

use maps::flags::map_flags;

use types::PgShard;

use super::backfill::Step;
use super::state::pg_state;
use super::{Pg, Phase};
use crate::osd::shared::Shared;

/// What goes before other PGs' work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Forced {
    pub recovery: bool,
    pub backfill: bool,
}

impl Forced {
    fn any(self) -> bool {
        self.recovery || self.backfill
    }
}

impl Pg {
    /// Puts this PG's recovery or backfill before other PGs', when there is any, or takes that back.
    pub fn force(&mut self, on: bool, recovery: bool, backfill: bool, cx: &mut Shared) {
        let was = self.cluster_state(cx);
        let recovers = pg_state::DEGRADED | pg_state::RECOVERY_WAIT | pg_state::RECOVERING;
        let backfills = pg_state::DEGRADED | pg_state::BACKFILL_WAIT | pg_state::BACKFILLING;
        if recovery && (!on || was & recovers != 0) {
            self.forced.recovery = on;
        }
        if backfill && (!on || was & backfills != 0) {
            self.forced.backfill = on;
        }
        self.tell_forced(cx);
        self.note_state(was, cx);
    }

    /// Takes back what is done, and lets other PGs go on while nothing can be.
    pub(super) fn update_forced(&mut self, cx: &mut Shared) {
        if !self.forced.any() {
            return;
        }
        let was = self.cluster_state(cx);
        let lacking = self.lacks_objects();
        self.forced.recovery &= lacking;
        self.forced.backfill &= lacking || self.backfills.values().any(|b| b.step != Step::Complete);
        self.tell_forced(cx);
        self.note_state(was, cx);
    }

    fn tell_forced(&self, cx: &mut Shared) {
        let active = self.phase == Phase::Active;
        let now = Forced {
            recovery: active && self.forced.recovery && self.can_recover(cx),
            backfill: active && self.forced.backfill && self.can_backfill(cx),
        };
        match now.any() {
            true => cx.forced.insert(self.id, now),
            false => cx.forced.remove(&self.id),
        };
    }

    fn can_recover(&self, cx: &Shared) -> bool {
        !self.recovering.is_empty() || self.next_to_recover(cx).is_some()
    }

    fn can_backfill(&self, cx: &Shared) -> bool {
        let can = |osd: PgShard, step: &Step| *step != Step::Complete && !self.target_is_full(osd, cx);
        self.missing.is_empty()
            && !self.backfill_is_held(cx)
            && self.backfills.iter().any(|(osd, b)| can(*osd, &b.step))
    }

    /// Whether another PG's work goes before what is not forced here.
    pub(super) fn others_go_first(&self, cx: &Shared) -> bool {
        let norecover = cx.map.test_flag(map_flags::NORECOVER);
        let others = cx.forced.iter().filter(|(id, _)| **id != self.id);
        !norecover && others.map(|(_, f)| f).any(|f| f.backfill || f.recovery)
    }
}
