//! What a PG reports: state bits, sums, counts of what is degraded, and when its state last changed.

use std::time::Duration;

use messages::stats::{ObjectStatCollection, ObjectStatSum, PgStat};
use types::{Epoch, PgShard, Utime};

use super::backfill::Step;
use super::recovery::Recovering;
use super::state::pg_state;
use super::{Pg, Phase};
use crate::interval::numbers;
use crate::osd::shared::Shared;

/// For this long after a state change, a PG is reported again with each new OSD map.
const FOLLOWS: Duration = Duration::from_secs(120);

/// Times of the last report and of the last changes, as `ceph pg dump` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamps {
    pub reported_seq: u64,
    pub reported_epoch: Epoch,
    /// When the state changed last (monotonic).
    changed_at: Duration,
    pub last_change: Utime,
    pub last_active: Utime,
    pub last_clean: Utime,
    pub last_peered: Utime,
    pub last_became_active: Utime,
    pub last_became_peered: Utime,
    pub last_undegraded: Utime,
    pub last_fullsized: Utime,
}

impl Pg {
    /// The PG's state as its primary sees it; 0 on other members.
    pub fn cluster_state(&self, cx: &Shared) -> u64 {
        if !self.is_primary(cx) {
            return 0;
        }
        let mut s = 0;
        let size = usize::from(self.key.size);
        if self.acting_set() != self.up_set() {
            s |= pg_state::REMAPPED;
        }
        match &self.phase {
            Phase::Active => {
                s |= if self.is_active() { pg_state::ACTIVE } else { pg_state::PEERED };
                s |= if self.key.premerge { pg_state::PREMERGE } else { 0 };
                s |= self.active_state(cx);
            }
            Phase::Activating { .. } => s |= pg_state::ACTIVATING,
            Phase::Down => s |= pg_state::DOWN,
            Phase::Incomplete => s |= pg_state::INCOMPLETE,
            Phase::Stray | Phase::Replica => {}
            _ => s |= pg_state::PEERING,
        }
        let started = matches!(self.phase, Phase::Active | Phase::Activating { .. });
        s |= self.scrub_state();
        if started && self.acting().count() < size {
            s |= pg_state::UNDERSIZED;
            if self.info.sums.objects > 0 {
                s |= pg_state::DEGRADED;
            }
        }
        if self.info.history.last_epoch_started == Epoch(0) && self.info.is_empty() && !started {
            s |= pg_state::CREATING;
        }
        s
    }

    fn active_state(&self, cx: &Shared) -> u64 {
        use maps::flags::map_flags;
        let mut s = 0;
        let lacking = self.lacks_objects();
        let backfilling = self.backfills.values().any(|b| b.step != Step::Complete);
        if lacking {
            s |= pg_state::DEGRADED;
            let held = cx.map.test_flag(map_flags::NORECOVER);
            s |= if held || self.waits_to_recover(cx) {
                pg_state::RECOVERY_WAIT
            } else {
                pg_state::RECOVERING
            };
        } else if backfilling {
            let open = self.backfills.iter().filter(|(_, b)| b.step != Step::Complete);
            let held = self.backfill_is_held(cx);
            let full = open.map(|(osd, _)| *osd).all(|osd| self.target_is_full(osd, cx));
            s |= match full {
                _ if held || cx.backfill_waits.contains_key(&self.id) => pg_state::BACKFILL_WAIT,
                false if self.waits_for_place() && self.is_idle() => pg_state::BACKFILL_WAIT,
                true => pg_state::BACKFILL_TOOFULL,
                false => pg_state::BACKFILLING,
            };
        }
        if lacking || backfilling {
            s |= if self.forced.recovery { pg_state::FORCED_RECOVERY } else { 0 };
            s |= if self.forced.backfill { pg_state::FORCED_BACKFILL } else { 0 };
        }
        if !self.unfound.is_empty() {
            s |= pg_state::RECOVERY_UNFOUND;
        }
        // With too few OSDs to move to, a remapped PG is clean too. Source: PeeringState::try_mark_clean.
        if self.is_clean() && !lacking && !backfilling {
            s |= pg_state::CLEAN;
            if self.trim.pass.is_some() {
                s |= pg_state::SNAPTRIM;
            }
        }
        s
    }

    /// Whether objects are missing here or on a member.
    pub(super) fn lacks_objects(&self) -> bool {
        let member = |osd: &PgShard| self.is_acting(*osd) || self.backfills.contains_key(osd);
        let lacks = |p: &super::Peer| p.missing.as_ref().is_some_and(|m| !m.is_empty());
        !self.missing.is_empty() || self.peers.iter().any(|(osd, p)| member(osd) && lacks(p))
    }

    /// Whether other PGs have taken all that this OSD may recover at one time.
    fn waits_to_recover(&self, cx: &Shared) -> bool {
        self.recovering.is_empty() && cx.recovery_waits.contains(&self.id)
    }

    /// Bits that scrubs and repairs set.
    fn scrub_state(&self) -> u64 {
        let mut s = 0;
        let begun = self.scrub.run.as_ref().filter(|r| r.has_begun());
        if let Some(run) = begun {
            s |= pg_state::SCRUBBING;
            s |= if run.plan.deep { pg_state::DEEP_SCRUB } else { 0 };
        }
        if self.scrub.repairing {
            s |= pg_state::REPAIR;
        }
        if self.info.history.scrub.errors() > 0 {
            s |= pg_state::INCONSISTENT;
            s |= if self.scrub.failed_repair { pg_state::FAILED_REPAIR } else { 0 };
        }
        s
    }

    /// Stamps a change of the state since `before`.
    pub fn note_state(&mut self, before: u64, cx: &mut Shared) {
        let state = self.cluster_state(cx);
        let now = cx.now.wall;
        if state == before {
            return;
        }
        let peered = pg_state::ACTIVE | pg_state::PEERED;
        let s = &mut self.stamps;
        s.last_change = now;
        s.changed_at = cx.now.mono;
        if state & pg_state::ACTIVE != 0 && before & pg_state::ACTIVE == 0 {
            s.last_became_active = now;
        }
        if state & peered != 0 && before & peered == 0 {
            s.last_became_peered = now;
        }
        self.report = true;
        cx.stats_dirty = true;
    }

    /// Whether the next report is to have this PG although it says nothing new of it.
    ///
    /// Ceph's manager measures a recovery by the PGs that report with the map in which it noticed the cause,
    /// or with a later one. It looks at maps every few seconds: a PG that was clean before that would never
    /// count. Source: PgRecoveryEvent.pg_update in src/pybind/mgr/progress/module.py.
    pub fn is_report_outdated(&self, cx: &Shared) -> bool {
        let s = &self.stamps;
        s.reported_epoch < cx.epoch() && cx.now.mono.saturating_sub(s.changed_at) < FOLLOWS
    }

    /// The report to the manager.
    pub fn pg_stat(&mut self, cx: &Shared) -> PgStat {
        let state = self.cluster_state(cx);
        let now = cx.now.wall;
        let s = &mut self.stamps;
        s.reported_seq += 1;
        s.reported_epoch = cx.epoch();
        let stamp_if = |at: &mut Utime, bit: u64, want: bool| {
            if (state & bit != 0) == want {
                *at = now;
            }
        };
        stamp_if(&mut s.last_active, pg_state::ACTIVE, true);
        stamp_if(&mut s.last_clean, pg_state::CLEAN, true);
        stamp_if(&mut s.last_peered, pg_state::ACTIVE | pg_state::PEERED, true);
        stamp_if(&mut s.last_undegraded, pg_state::DEGRADED, false);
        stamp_if(&mut s.last_fullsized, pg_state::UNDERSIZED, false);
        let s = self.stamps;
        let (purged_snaps, snaptrimq_len) = self.trim_report(cx);
        let h = &self.info.history;
        let m = &self.key.members;
        PgStat {
            version: self.info.last_update,
            reported_seq: s.reported_seq,
            reported_epoch: s.reported_epoch,
            state,
            log_start: self.info.log_tail,
            ondisk_log_start: self.info.log_tail,
            created: h.epoch_created,
            last_epoch_clean: h.last_epoch_clean,
            last_scrub: h.scrub.last,
            last_scrub_stamp: h.scrub.last_stamp,
            last_deep_scrub: h.scrub.last_deep,
            last_deep_scrub_stamp: h.scrub.last_deep_stamp,
            last_clean_scrub_stamp: h.scrub.last_clean_stamp,
            stats: ObjectStatCollection { sum: self.stat_sum() },
            log_size: self.log.len() as i64,
            ondisk_log_size: self.log.len() as i64,
            up: numbers(&m.up),
            acting: numbers(&m.acting),
            last_fresh: now,
            last_change: s.last_change,
            last_active: s.last_active,
            last_clean: s.last_clean,
            last_unstale: now,
            mapping_epoch: h.same_interval_since,
            last_became_active: s.last_became_active,
            up_primary: m.up_primary.0,
            acting_primary: m.acting_primary.0,
            blocked_by: numbers(&self.blocked_by),
            last_undegraded: s.last_undegraded,
            last_fullsized: s.last_fullsized,
            last_peered: s.last_peered,
            last_became_peered: s.last_became_peered,
            snaptrimq_len,
            purged_snaps,
            ..PgStat::default()
        }
    }

    pub(super) fn stat_sum(&self) -> ObjectStatSum {
        let sums = &self.info.sums;
        let size = i64::from(self.key.size);
        let (degraded, misplaced) = self.lacking_copies();
        let scrub = &self.info.history.scrub;
        ObjectStatSum {
            num_bytes: sums.bytes,
            num_objects: sums.objects,
            num_object_clones: sums.clones,
            num_object_copies: sums.objects * size,
            num_objects_missing_on_primary: self.missing.len() as i64,
            num_objects_missing: self.missing.len() as i64,
            num_objects_degraded: degraded,
            num_objects_misplaced: misplaced,
            num_objects_unfound: self.unfound.len() as i64,
            num_rd: sums.reads,
            num_rd_kb: sums.read_kib,
            num_wr: sums.writes,
            num_wr_kb: sums.write_kib,
            num_objects_recovered: sums.objects_recovered,
            num_bytes_recovered: sums.bytes_recovered,
            num_keys_recovered: sums.keys_recovered,
            num_whiteouts: sums.whiteouts,
            num_objects_omap: sums.objects_omap,
            num_objects_pinned: sums.objects_pinned,
            num_omap_bytes: sums.omap_bytes,
            num_omap_keys: sums.omap_keys,
            num_scrub_errors: i64::from(scrub.errors()),
            num_shallow_scrub_errors: i64::from(scrub.shallow_errors),
            num_deep_scrub_errors: i64::from(scrub.deep_errors),
            num_large_omap_objects: i64::from(scrub.large_omap_objects),
            ..ObjectStatSum::default()
        }
    }

    /// Object copies that are lacking, and that are not where CRUSH wants them.
    fn lacking_copies(&self) -> (i64, i64) {
        let objects = self.info.sums.objects;
        let absent = i64::from(self.key.size) - self.acting().count() as i64;
        let mut degraded = absent.max(0) * objects + self.missing.len() as i64;
        for (_, peer) in self.peers.iter().filter(|(o, _)| self.is_acting(**o)) {
            degraded += peer.missing.as_ref().map_or(0, |m| m.len() as i64);
        }
        let moving = self.up().filter(|o| !self.is_acting(*o)).count() as i64;
        let on_their_way = moving.min(absent.max(0)) * objects;
        (degraded, (moving * objects - on_their_way).max(0))
    }

    /// How many objects are in recovery, by kind: pulled, pushed.
    pub fn recovery_counts(&self) -> (usize, usize) {
        let pushing = self.recovering.values().filter(|r| matches!(r, Recovering::Pushing { .. })).count();
        (self.recovering.len() - pushing, pushing)
    }
}
