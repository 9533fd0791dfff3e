//! Which PG is scrubbed next on this OSD. Source: OSD::sched_scrub, OSD::scrub_time_permit, OSD::handle_fast_scrub.

use messages::osd::{MOsdForceRecovery, MOsdScrub2};
use types::{SpgId, Utime};

use super::OsdCore;
use crate::OsdConfig;

impl OsdCore {
    /// The manager passes on what an operator wants scrubbed.
    pub(super) fn scrub_requested(&mut self, m: &MOsdScrub2) {
        if m.fsid != self.shared.map.fsid {
            return;
        }
        for id in &m.pgs {
            if let Some(pg) = self.pgs.get_mut(id).filter(|pg| pg.is_primary(&self.shared)) {
                pg.scrub_wanted(m.deep, m.repair);
            }
        }
    }

    /// The manager passes on whose recovery or backfill is to go first. Source: OSD::handle_fast_force_recovery.
    pub(super) fn force_recovery(&mut self, m: &MOsdForceRecovery) {
        if m.fsid != self.shared.map.fsid {
            return;
        }
        let set = |bit| m.options & bit != 0;
        let (recovery, backfill) = (set(MOsdForceRecovery::RECOVERY), set(MOsdForceRecovery::BACKFILL));
        for id in &m.pgs {
            if let Some(pg) = self.pgs.get_mut(id).filter(|pg| pg.is_primary(&self.shared)) {
                pg.force(!set(MOsdForceRecovery::CANCEL), recovery, backfill, &mut self.shared);
                pg.continue_recovery(&mut self.shared);
            }
        }
    }

    /// Lets scrubs under way go on, and begins at most one.
    pub(super) fn scrub_tick(&mut self) {
        for pg in self.pgs.values_mut() {
            pg.scrub_tick(&mut self.shared);
        }
        let cx = &self.shared;
        if !self.boot.is_up() || self.stopping || cx.scrubs.len() >= cx.config.max_scrubs {
            return;
        }
        if cx.now.mono < cx.scrub_pause {
            return;
        }
        let recovering = cx.recovery_active > 0 && !cx.config.scrub_during_recovery;
        if recovering && !cx.config.repair_during_recovery {
            return;
        }
        let now = cx.now.wall;
        let timely = time_permits(now, &cx.config);
        let repairs = |pg: &crate::pg::Pg| pg.scrub.wanted.is_some_and(|w| w.repair);
        let mut due: Vec<(Utime, SpgId)> = Vec::new();
        for (id, pg) in &self.pgs {
            let Some(at) = pg.scrub_due(cx).filter(|at| *at <= now) else { continue };
            let in_time = timely || pg.scrub.wanted.is_some() || pg.scrub_overdue(cx);
            if in_time && (!recovering || repairs(pg)) {
                due.push((at, *id));
            }
        }
        due.sort_unstable();
        for (_, id) in due {
            let Some(pg) = self.pgs.get_mut(&id) else { continue };
            if let Some(plan) = pg.scrub_plan(&mut self.shared) {
                return pg.scrub_begin(plan, &mut self.shared);
            }
        }
    }
}

/// Whether the hour and the day are among those that are set.
fn time_permits(now: Utime, c: &OsdConfig) -> bool {
    let hours = now.sec / 3600;
    // The first of January 1970 was a Thursday.
    let (hour, day) = (hours % 24, (hours / 24 + 4) % 7);
    let within = |from: u32, until: u32, at: u32| match from < until {
        true => (from..until).contains(&at),
        false => at >= from || at < until,
    };
    within(c.scrub_begin_week_day, c.scrub_end_week_day, day)
        && within(c.scrub_begin_hour, c.scrub_end_hour, hour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_and_days() {
        let check = |begin: (u32, u32), end: (u32, u32), sec: u32, expected: bool| {
            let c = OsdConfig {
                scrub_begin_hour: begin.0,
                scrub_begin_week_day: begin.1,
                scrub_end_hour: end.0,
                scrub_end_week_day: end.1,
                ..OsdConfig::default()
            };
            assert_eq!(time_permits(Utime::new(sec, 0), &c), expected, "{begin:?} {end:?} {sec}");
        };
        check((0, 0), (0, 0), 123_456_789, true);
        // Thursday, 00:00.
        check((1, 0), (6, 0), 0, false);
        check((1, 0), (6, 0), 3600, true);
        check((1, 0), (6, 0), 6 * 3600, false);
        check((22, 0), (6, 0), 0, true);
        check((22, 0), (6, 0), 12 * 3600, false);
        check((0, 4), (0, 5), 0, true);
        check((0, 5), (0, 4), 0, false);
        check((0, 6), (0, 2), 3 * 86_400, true);
    }
}
