//! Trimming: clones of removed snapshots go, a few objects at a time.
//!
//! The map's queue says which snapshots were removed. A pass goes through the PG's objects in their order and takes all
//! snapshots that were queued when it began; there is no index of clones by snapshot, because a clone stands beside its
//! head in the order, a pass reads names only where there are no clones, one pass serves every snapshot that was removed
//! since the last, and nothing is stored that recovery, splits and log merges would have to keep right. A PG without
//! clones has nothing to go through.
//!
//! Nothing of a pass is stored either: what it changed is in the log like any write, and a new primary, or a restarted one,
//! begins again with what the monitors still have queued.
//!
//! Invariants:
//! 1. Only a clean PG's primary trims.
//! 2. A snapshot counts as purged when a pass that began after its removal has ended, and all that the pass changed is
//!    durable on every member.
//! 3. At most `osd_pg_max_concurrent_snap_trims` objects are in flight.

use std::time::Duration;

use maps::SnapIntervals;
use maps::flags::map_flags;
use messages::pg_state;
use types::{EntityName, Eversion, HObject, SnapId};

use super::client::ClientOp;
use super::{Pg, Phase};
use crate::exec;
use crate::object::ObjectState;
use crate::osd::shared::Shared;
use crate::range::pg_range;

/// Names read in one step.
const PAGE: usize = 1_000;
/// Runs of purged snapshots that one report holds. Source: osd_max_snap_prune_intervals_per_epoch.
const REPORTED_RUNS: usize = 512;

/// How far a primary is with removed snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Trim {
    /// Those of the queue that have left no clone here.
    pub purged: SnapIntervals,
    pub pass: Option<Pass>,
}

/// One way through the PG's objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pass {
    snaps: SnapIntervals,
    /// The next object to look at; `None` when all were.
    next: Option<HObject>,
    /// The newest change.
    last: Eversion,
    /// Not before this time (monotonic).
    resume: Duration,
}

/// What became of one object.
enum Trimmed {
    Untouched,
    Issued,
    /// Something else is under way there, or the store has no room: to be tried again.
    Busy,
}

impl Pg {
    /// Goes on trimming, as far as the bounds allow.
    pub fn trim_step(&mut self, cx: &mut Shared) {
        if self.trim == Trim::default() && !cx.map.removed_snaps_queue.contains_key(&self.id.pgid.pool) {
            return;
        }
        if !self.is_primary(cx) || self.phase != Phase::Active {
            return;
        }
        let was = self.cluster_state(cx);
        if self.begin_pass(cx, was) && self.pass_is_due(cx) {
            self.go_on(cx);
        }
        self.note_state(was, cx);
    }

    /// Whether a pass is under way, after having begun one if there is a reason to.
    fn begin_pass(&mut self, cx: &Shared, state: u64) -> bool {
        let queue = cx.map.removed_snaps_queue.get(&self.id.pgid.pool).cloned().unwrap_or_default();
        let mut done = self.trim.purged.clone();
        done.subtract(&queue);
        // What the monitors have taken off the queue is over for good.
        self.trim.purged.subtract(&done);
        let clean = state & (pg_state::ACTIVE | pg_state::CLEAN) == pg_state::ACTIVE | pg_state::CLEAN;
        if !clean || cx.map.test_flag(map_flags::NOSNAPTRIM) {
            return false;
        }
        if self.trim.pass.is_some() {
            return true;
        }
        let mut snaps = queue;
        snaps.subtract(&self.trim.purged);
        if snaps.is_empty() {
            return false;
        }
        if types::is_planted!(cx.config.planted, TrimsTooMuch) {
            let runs: Vec<(u64, u64)> = snaps.iter().collect();
            runs.into_iter().for_each(|(start, len)| snaps.insert_run(start, len + 1));
        }
        let start = pg_range(self.id.pgid, self.key.pg_num).0;
        let next = (self.info.sums.clones > 0).then_some(start);
        self.trim.pass = Some(Pass { snaps, next, last: self.info.last_update, resume: cx.now.mono });
        true
    }

    fn pass_is_due(&self, cx: &Shared) -> bool {
        let due = |p: &Pass| p.last <= self.durable_everywhere(cx) && cx.now.mono >= p.resume;
        self.trim.pass.as_ref().is_some_and(due)
    }

    fn go_on(&mut self, cx: &mut Shared) {
        let Some(mut pass) = self.trim.pass.take() else { return };
        let Some(from) = pass.next.take() else {
            self.trim.purged.union_of(&pass.snaps);
            self.report = true;
            cx.stats_dirty = true;
            return;
        };
        let until = pg_range(self.id.pgid, self.key.pg_num).1;
        let found = match cx.store.list(self.id.shard, &from, &until, PAGE) {
            Ok(found) => found,
            Err(e) => return self.store_failed(&e, cx),
        };
        pass.next = (found.len() == PAGE).then(|| found.last().map(behind)).flatten();
        let mut issued = 0;
        let mut head: Option<HObject> = None;
        for clone in found.into_iter().filter(|o| !o.is_head()) {
            if head.as_ref().is_some_and(|h| *h == clone.head()) {
                continue;
            }
            let enough = issued >= cx.config.max_snap_trims.max(1);
            let trimmed =
                if enough { Trimmed::Busy } else { self.trim_object(&clone.head(), &pass.snaps, cx) };
            match trimmed {
                Trimmed::Untouched => {}
                Trimmed::Issued => issued += 1,
                Trimmed::Busy => {
                    pass.next = Some(clone);
                    break;
                }
            }
            head = Some(clone.head());
        }
        if issued > 0 {
            pass.last = self.info.last_update;
            pass.resume = cx.now.mono + cx.config.snap_trim_sleep;
        }
        self.trim.pass = Some(pass);
    }

    fn trim_object(&mut self, head: &HObject, snaps: &SnapIntervals, cx: &mut Shared) -> Trimmed {
        if self.writes.lock(head).is_some()
            || self.copies.contains_key(head)
            || self.reading.contains_key(head)
        {
            return Trimmed::Busy;
        }
        let version = self.next_version(cx);
        let key = self.object_key(head);
        let state = match self.is_coded() {
            true if self.is_unreadable(head) || self.is_degraded(head) => return Trimmed::Busy,
            true => match self.own_state(head, cx) {
                Ok(Some(state)) => Ok(state),
                Ok(None) => return Trimmed::Busy,
                Err(e) => Err(e),
            },
            false => ObjectState::load(&mut cx.store, &key),
        };
        let trimmed = state
            .map_err(Into::into)
            .and_then(|state| exec::trim(&mut cx.store, &key, &state, snaps, version));
        let op = ClientOp::internal(self.id, head, EntityName::osd(cx.whoami.0), Vec::new(), cx);
        match trimmed {
            Ok(None) => Trimmed::Untouched,
            Ok(Some(done)) => match self.finish_write(op, head.clone(), Box::new(done), cx) {
                true => Trimmed::Issued,
                // The pass stays here until the store's next checkpoint has made room.
                false => Trimmed::Busy,
            },
            Err(stop) => {
                // Told to the cluster log; the clone stays.
                self.stopped(op, head, stop, cx);
                Trimmed::Untouched
            }
        }
    }

    /// Runs of purged snapshots, and how many wait to be trimmed, for the report.
    pub(super) fn trim_report(&self, cx: &Shared) -> (Vec<(SnapId, u64)>, u32) {
        let queued = cx.map.removed_snaps_queue.get(&self.id.pgid.pool).map_or(0, SnapIntervals::len);
        let purged = self.trim.purged.iter().take(REPORTED_RUNS).map(|(s, n)| (SnapId(s), n)).collect();
        (purged, u32::try_from(queued.saturating_sub(self.trim.purged.len())).unwrap_or(u32::MAX))
    }
}

/// The position right behind an object.
fn behind(o: &HObject) -> HObject {
    o.at(SnapId(o.snap.0.saturating_add(1)))
}
