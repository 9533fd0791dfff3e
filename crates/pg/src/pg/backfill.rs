//! Backfill: copying a whole PG to a member whose log is too old, in object order, range by range.
//!
//! The primary lists a range with versions; the target removes what does not belong and says what it lacks; the
//! primary sends that; then the target's `last_backfill` moves to the range's end. Writes at or below `last_backfill`
//! go to the target as to any member; writes inside the range wait; beyond it the target learns the log entry only.
//!
//! Invariants:
//! 1. The target's durable `last_backfill` never exceeds what the primary has heard back plus the one range under way.
//! 2. A range's objects are all durable on the target before `last_backfill` moves over them.

use std::collections::BTreeSet;

use maps::flags::{map_flags, osd_state};
use store::{StoreError, Txn};
use types::{Eversion, HObject, OsdId, PgShard, SnapId};

use super::{Pg, Phase};
use crate::info::PgSums;
use crate::io::{FatalReason, LogLevel};
use crate::object::stored_version;
use crate::osd::shared::{PgDone, Shared};
use crate::peer::PgBody;
use crate::range::pg_range;

/// Primary: the backfill of one member.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Backfill {
    /// The target holds everything up to here.
    pub last_backfill: HObject,
    pub step: Step,
}

/// What is under way beyond `last_backfill`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Idle,
    /// Another member says what it has up to `end`, in an erasure-coded PG.
    Asking {
        id: u64,
        end: HObject,
    },
    /// The target compares the range up to `end`.
    Comparing {
        end: HObject,
    },
    /// These of the range are not on the target yet.
    Copying {
        end: HObject,
        left: BTreeSet<HObject>,
    },
    /// The target was told to move to `end`.
    Moving {
        end: HObject,
    },
    Complete,
}

impl Step {
    /// Whether the target was found to lack the object, which has not come yet.
    pub fn lacks(&self, object: &HObject) -> bool {
        matches!(self, Self::Copying { left, .. } if left.contains(object))
    }
}

impl Backfill {
    pub fn new(last_backfill: HObject) -> Self {
        let step = if last_backfill.max { Step::Complete } else { Step::Idle };
        Self { last_backfill, step }
    }

    /// Whether the object is in the range under way.
    pub fn is_copying(&self, object: &HObject) -> bool {
        let end = match &self.step {
            Step::Comparing { end } | Step::Copying { end, .. } | Step::Moving { end } => end,
            Step::Idle | Step::Asking { .. } | Step::Complete => return false,
        };
        *object > self.last_backfill && object <= end
    }
}

/// Whether the map says that the OSD has no room for a backfill. Source: OSDService::check_backfill_full.
pub(super) fn is_too_full(osd: OsdId, cx: &Shared) -> bool {
    let full = osd_state::BACKFILLFULL | osd_state::FULL;
    cx.map.osd(osd).is_some_and(|o| o.state & full != 0)
}

/// The least object above another.
fn successor(o: &HObject) -> HObject {
    HObject { snap: SnapId(o.snap.0.saturating_add(1)), ..o.clone() }
}

impl Pg {
    /// Objects above `after` in order, at most `max`.
    fn list_after(&self, after: &HObject, max: usize, cx: &mut Shared) -> Result<Vec<HObject>, StoreError> {
        self.list_between(after, &HObject::max(), max, cx)
    }

    /// The same up to and including `end`.
    pub(super) fn list_between(
        &self,
        after: &HObject,
        end: &HObject,
        max: usize,
        cx: &mut Shared,
    ) -> Result<Vec<HObject>, StoreError> {
        let (from, until) = self.bounds_between(after, end);
        let mut listed = cx.store.list(self.id.shard, &from, &until, max)?;
        // A successor in snapshot order can be the object itself when its snapshot is the highest number.
        listed.retain(|o| o > after);
        Ok(listed)
    }

    /// What is above `after`, up to and including `end`: from, and up to without.
    pub(super) fn bounds_between(&self, after: &HObject, end: &HObject) -> (HObject, HObject) {
        let (start, until) = pg_range(self.id.pgid, self.key.pg_num);
        let from = if *after < start { start } else { successor(after) };
        (from, if end.max { until } else { successor(end) })
    }

    /// Whether flags of the map hold backfills: all, or those that would only move what has copies enough.
    /// Source: OSDService::_recover_now, PrimaryLogPG::start_recovery_ops.
    pub fn backfill_is_held(&self, cx: &Shared) -> bool {
        let open = |osd: &PgShard| self.backfills.get(osd).is_some_and(|b| b.step != Step::Complete);
        let whole = self.acting().filter(|osd| !open(osd)).count();
        let rebalance = || whole >= usize::from(self.key.size);
        let all = cx.map.test_flag(map_flags::NOBACKFILL) || cx.map.test_flag(map_flags::NORECOVER);
        all || cx.map.test_flag(map_flags::NOREBALANCE) && rebalance()
    }

    /// Primary: sends what the ranges under way still lack. Whatever forbids a range to begin: writes wait for one that is
    /// under way, so it is finished, and at once. What that takes of the OSD's share, and of its pauses, others miss later.
    pub(super) fn finish_ranges(&mut self, cx: &mut Shared) {
        let targets: Vec<PgShard> = self.backfills.keys().copied().collect();
        for osd in targets {
            if let Some(Step::Copying { left, .. }) = self.backfills.get(&osd).map(|b| b.step.clone()) {
                self.copy_objects(osd, &left, cx);
            }
        }
    }

    /// Primary: begins the next range of each backfill.
    pub fn continue_backfill(&mut self, cx: &mut Shared) {
        if self.phase != Phase::Active || self.backfills.is_empty() {
            return;
        }
        let yields = !self.forced.backfill && self.others_go_first(cx);
        let may_begin = self.has_all_to_copy() && !self.backfill_is_held(cx) && !yields;
        let open =
            self.backfills.iter().any(|(osd, b)| b.step == Step::Idle && !self.target_is_full(*osd, cx));
        let has_place = may_begin && open && cx.take_backfill_place(self.id, self.backfill_priority());
        if has_place {
            self.ask_for_places(cx);
        }
        let rests = has_place && cx.rests();
        if rests {
            cx.recovery_waits.insert(self.id);
        }
        let begins = has_place && !rests;
        let targets: Vec<PgShard> = self.backfills.keys().copied().collect();
        for osd in targets {
            match self.backfills.get(&osd).map(|b| b.step.clone()) {
                Some(Step::Idle) if begins && self.has_place_at(osd) && !self.target_is_full(osd, cx) => {
                    self.begin_range(osd, cx);
                }
                _ => {}
            }
        }
        if self.is_idle() && !rests && !(has_place && self.waits_for_place()) {
            self.release_places(cx);
        }
    }

    /// Whether the primary lacks nothing that targets need. An object that was perhaps deleted does not hold
    /// them up: that may turn out when they are members, and not before.
    pub(super) fn has_all_to_copy(&self) -> bool {
        self.missing.iter().all(|(object, _)| self.is_doubted(object) && self.unfound.contains(object))
    }

    fn begin_range(&mut self, osd: PgShard, cx: &mut Shared) {
        let Some(b) = self.backfills.get(&osd) else { return };
        let begin = b.last_backfill.clone();
        let max = cx.config.backfill_scan_max.max(1);
        let listed = match self.list_after(&begin, max, cx) {
            Ok(listed) => listed,
            Err(e) => return cx.fail(FatalReason::Store(e.to_string())),
        };
        let end = match listed.last() {
            Some(last) if listed.len() >= max => last.clone(),
            _ => HObject::max(),
        };
        if !self.ask_witness(osd, &end, cx) {
            self.compare_range(osd, end, listed, cx);
        }
    }

    /// Has the target compare a range, of which these objects are here.
    pub(super) fn compare_range(
        &mut self,
        osd: PgShard,
        end: HObject,
        listed: Vec<HObject>,
        cx: &mut Shared,
    ) {
        let Some(b) = self.backfills.get_mut(&osd) else { return };
        let begin = b.last_backfill.clone();
        b.step = Step::Comparing { end: end.clone() };
        let mut objects = Vec::with_capacity(listed.len());
        for object in listed {
            match stored_version(&mut cx.store, &self.object_key(&object)) {
                Ok(version) => objects.push((object, version)),
                Err(e) => cx.cluster_log(LogLevel::Error, format!("pg {} object {object}: {e}", self.id)),
            }
        }
        cx.send_pg(osd, self.id, self.interval(), PgBody::BackfillRange { begin, end, objects });
    }

    /// Target: removes what is not in the range's list, and says what is lacking.
    pub fn handle_backfill_range(
        &mut self,
        from: PgShard,
        reply: types::Epoch,
        begin: &HObject,
        end: HObject,
        objects: Vec<(HObject, Eversion)>,
        cx: &mut Shared,
    ) {
        if from != self.primary() || self.phase != Phase::Replica || self.info.last_backfill != *begin {
            return;
        }
        let wanted: BTreeSet<&HObject> = objects.iter().map(|(o, _)| o).collect();
        let mut txn = Txn::new();
        let mut after = begin.clone();
        loop {
            let batch = match self.list_after(&after, 256, cx) {
                Ok(batch) => batch,
                Err(e) => return cx.fail(FatalReason::Store(e.to_string())),
            };
            let kept = types::is_planted!(cx.config.planted, BackfillKeepsStrangers);
            for object in batch.iter().filter(|o| **o <= end && !wanted.contains(o) && !kept) {
                txn.remove(&self.object_key(object));
            }
            match batch.last() {
                Some(last) if *last < end => after = last.clone(),
                _ => break,
            }
        }
        if !txn.is_empty() {
            cx.submit(txn, crate::osd::shared::Done::Nothing);
        }
        let mut lacking = Vec::new();
        for (object, version) in objects {
            match stored_version(&mut cx.store, &self.object_key(&object)) {
                Ok(v) if v == version => {}
                _ => lacking.push(object),
            }
        }
        cx.send_pg(from, self.id, reply, PgBody::BackfillWants { end, objects: lacking });
    }

    /// Primary: what the target lacks of the range.
    pub fn handle_backfill_wants(
        &mut self,
        from: PgShard,
        end: &HObject,
        objects: Vec<HObject>,
        cx: &mut Shared,
    ) {
        let Some(b) = self.backfills.get_mut(&from) else { return };
        if b.step != (Step::Comparing { end: end.clone() }) {
            return;
        }
        b.step = Step::Copying { end: end.clone(), left: objects.into_iter().collect() };
        self.check_range(from, cx);
        self.continue_recovery(cx);
    }

    fn copy_objects(&mut self, osd: PgShard, left: &BTreeSet<HObject>, cx: &mut Shared) {
        let mut begun = left.iter().filter(|o| self.recovering.contains_key(*o)).count();
        let mut may = cx.config.recovery_max_active.max(1).saturating_sub(begun);
        for object in left {
            if may == 0 || begun > 0 && cx.recovery_bytes >= cx.max_recovery_bytes() {
                // One that is through makes room for the next.
                return;
            }
            let waits = self.missing.contains(object) || self.is_being_written(object);
            if waits || self.recovering.contains_key(object) {
                continue;
            }
            may -= 1;
            begun += 1;
            self.push_object(object, BTreeSet::from([osd]), cx);
        }
    }

    /// Primary: a pushed object is durable on a backfill target.
    pub fn backfill_pushed(&mut self, osd: PgShard, object: &HObject) {
        if let Some(Backfill { step: Step::Copying { left, .. }, .. }) = self.backfills.get_mut(&osd) {
            left.remove(object);
        }
    }

    /// Moves the target on when nothing of its range is left.
    pub(super) fn check_range(&mut self, osd: PgShard, cx: &mut Shared) {
        let Some(b) = self.backfills.get_mut(&osd) else { return };
        if let Step::Copying { end, left } = &b.step {
            if left.len() <= usize::from(types::is_planted!(cx.config.planted, BackfillMovesEarly)) {
                let last_backfill = end.clone();
                b.step = Step::Moving { end: last_backfill.clone() };
                let body = PgBody::BackfillProgress { last_backfill, sums: Box::new(self.info.sums) };
                cx.send_pg(osd, self.id, self.interval(), body);
            }
        }
    }

    /// Target: everything up to `last_backfill` is here.
    pub fn handle_backfill_progress(
        &mut self,
        from: PgShard,
        reply: types::Epoch,
        last_backfill: HObject,
        sums: PgSums,
        cx: &mut Shared,
    ) {
        if from != self.primary() || self.phase != Phase::Replica {
            return;
        }
        self.info.last_backfill = last_backfill.clone();
        self.info.sums = sums;
        self.primary_interval = reply;
        let mut txn = Txn::new();
        self.save_info(&mut txn);
        self.submit(txn, PgDone::BackfillProgress { last_backfill }, cx);
    }

    /// Target: that is durable.
    pub fn backfill_moved(&mut self, last_backfill: HObject, cx: &mut Shared) {
        cx.send_pg(self.primary(), self.id, self.primary_interval, PgBody::BackfillAck { last_backfill });
    }

    /// Primary: the target has moved on.
    pub fn handle_backfill_ack(&mut self, from: PgShard, last_backfill: HObject, cx: &mut Shared) {
        let Some(b) = self.backfills.get_mut(&from) else { return };
        if b.step != (Step::Moving { end: last_backfill.clone() }) {
            return;
        }
        *b = Backfill::new(last_backfill.clone());
        if last_backfill.max {
            self.release_place_at(from, cx);
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.info.last_backfill = last_backfill.clone();
        }
        let freed: Vec<HObject> =
            self.waiting_for_object.keys().filter(|o| **o <= last_backfill).cloned().collect();
        for object in freed {
            if let Some(waiting) = self.waiting_for_object.remove(&object) {
                self.let_go(waiting, cx);
            }
        }
        self.release_object_backoffs_up_to(&last_backfill, cx);
        self.report = true;
        self.continue_recovery(cx);
    }
}
