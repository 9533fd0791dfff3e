//! The end of a scrub: what is told and remembered of it, and the replacement of copies that are not good.
//!
//! Source: PgScrubber::scrub_finish, scrub_process_inconsistent and repair_object in src/osd; PrimaryLogScrub::_scrub_finish.

use std::collections::BTreeSet;

use store::Txn;
use types::{Eversion, HObject, PgShard};

use super::super::{Pg, Phase};
use super::{BadObject, BadObjects, Records, Run, Wanted};
use crate::MissingItem;
use crate::entry::EntryKind;
use crate::info::PgSums;
use crate::io::LogLevel;
use crate::object::{LoadError, stored_version};
use crate::osd::shared::{Done, Shared};
use crate::peer::PgBody;

/// Copies of an object that are to be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repair {
    bad: BTreeSet<PgShard>,
    /// Of the copies that are good.
    version: Eversion,
    /// It was deleted: copies go away.
    extra: Option<BTreeSet<PgShard>>,
}

impl Pg {
    /// Primary: all chunks were compared.
    pub(super) fn scrub_finish(&mut self, cx: &mut Shared) {
        let Some(mut run) = self.scrub.run.take() else { return };
        let was = self.cluster_state(cx);
        let bad = std::mem::take(&mut run.tally.bad);
        let limit = cx.config.scrub_auto_repair_num_errors;
        let found = bad.len() + run.tally.more_bad as usize;
        if run.plan.auto_repair && found > limit {
            run.plan.repair = false;
            self.scrub.repairing = false;
        }
        let rescrub = run.plan.deep_on_error && (1..=limit).contains(&found);
        let mut fixed = self.check_sums(&mut run, cx);
        let repaired = self.process_bad(&run, bad, &mut fixed, cx);
        self.tell_rest(&run, cx);
        self.tell_result(&run, fixed, cx);
        let (shallow, deep) = (run.tally.shallow + run.snaps.errors, run.tally.deep);
        let mut left = (shallow, deep);
        if run.plan.repair {
            if fixed == shallow + deep {
                match self.is_coded() && repaired {
                    true => self.scrub.errors_go = true,
                    false => left = (0, 0),
                }
            } else if !repaired && !run.forgave {
                self.scrub.failed_repair = true;
            }
            self.scrub.check_after_repair |= run.forgave || repaired && fixed != shallow + deep;
        }
        if run.plan.check_repair && left != (0, 0) {
            self.scrub.failed_repair = true;
        }
        self.remember(&run, left, cx);
        let mends = self.scrub.errors_go || self.scrub.check_after_repair;
        let begins = run.plan.repair && mends && left != (0, 0);
        let (interval, history) = (self.interval(), &mut self.info.history.scrub);
        // A light scrub says nothing of deep errors that a repair has begun to make good.
        history.mending = begins || history.mending && !run.plan.deep;
        history.note_change(interval);
        let records = if run.plan.repair {
            Records::default()
        } else {
            let objects = std::mem::take(&mut run.tally.records).into_values().collect();
            Records::new(objects, std::mem::take(&mut run.snaps.found))
        };
        self.scrub.records = Some(records);
        cx.scrubs.remove(&self.id);
        for osd in &run.reserved {
            cx.send_pg(*osd, self.id, self.interval(), PgBody::ScrubRelease);
        }
        if rescrub && self.scrub.wanted.is_none() {
            self.scrub.wanted = Some(Wanted { deep: true, ..Wanted::default() });
        }
        self.report = true;
        self.repair_step(cx);
        self.note_state(was, cx);
        self.share_history(cx);
    }

    /// Compares the sums that are kept with what was counted; returns how many errors that mended.
    fn check_sums(&mut self, run: &mut Run, cx: &mut Shared) -> u32 {
        if !run.countable {
            return 0;
        }
        let mut got = run.snaps.sums;
        got.add(&run.later);
        let kept = &mut self.info.sums;
        let wrong = |a: &PgSums, b: &PgSums| {
            (a.objects, a.clones, a.bytes, a.whiteouts, a.objects_omap)
                != (b.objects, b.clones, b.bytes, b.whiteouts, b.objects_omap)
        };
        if !wrong(&got, kept) {
            return 0;
        }
        // What only Ceph's cache tiers count is named all the same.
        let text = format!(
            "{} {} : stat mismatch, got {}/{} objects, {}/{} clones, 0/0 dirty, {}/{} omap, 0/0 pinned, 0/0 \
             hit_set_archive, {}/{} whiteouts, {}/{} bytes, 0/0 manifest objects, 0/0 hit_set_archive bytes.",
            self.id.pgid,
            run.plan.mode(),
            got.objects,
            kept.objects,
            got.clones,
            kept.clones,
            got.objects_omap,
            kept.objects_omap,
            got.whiteouts,
            kept.whiteouts,
            got.bytes,
            kept.bytes
        );
        cx.cluster_log(LogLevel::Error, text);
        run.tally.shallow += 1;
        if !run.plan.repair {
            return 0;
        }
        kept.objects = got.objects;
        kept.clones = got.clones;
        kept.bytes = got.bytes;
        kept.whiteouts = got.whiteouts;
        kept.objects_omap = got.objects_omap;
        1
    }

    /// Tells how many objects are not whole, and has them replaced if that is wanted; whether it is.
    fn process_bad(&mut self, run: &Run, bad: BadObjects, fixed: &mut u32, cx: &mut Shared) -> bool {
        if bad.is_empty() {
            return false;
        }
        let missing = bad.values().filter(|b| !b.missing.is_empty()).count();
        let inconsistent = bad.values().filter(|b| !b.inconsistent.is_empty()).count();
        let text = format!(
            "{} {} {missing} missing, {inconsistent} inconsistent objects",
            self.id.pgid,
            run.plan.mode()
        );
        cx.cluster_log(LogLevel::Error, text);
        if !run.plan.repair {
            return false;
        }
        for (object, b) in bad {
            let copies = b.missing.len() + b.inconsistent.len();
            *fixed += u32::try_from(copies).unwrap_or(u32::MAX);
            if self.is_coded() && !b.extra {
                self.spoil_shards(&object, &b, cx);
            }
            let has: BTreeSet<PgShard> = b.good.union(&b.inconsistent).copied().collect();
            let repair = Repair { bad: b.bad(), version: b.version, extra: b.extra.then_some(has) };
            self.scrub.repairs.insert(object, repair);
        }
        true
    }

    /// What a scrub has found is durable where it was found: the repair may not come to it in this interval.
    fn spoil_shards(&mut self, object: &HObject, bad: &BadObject, cx: &mut Shared) {
        for copy in bad.bad() {
            match copy == self.me(cx) {
                true => self.lost_shards(vec![object.clone()], cx),
                false => {
                    let body = PgBody::Spoiled { object: object.clone() };
                    cx.send_pg(copy, self.id, self.interval(), body);
                }
            }
        }
    }

    /// Member: the shard here is not what the others make of it, as the primary has found. Writes since have
    /// not replaced it.
    pub fn handle_spoiled(&mut self, from: PgShard, object: HObject, cx: &mut Shared) {
        if from == self.primary() && self.phase == Phase::Replica && !self.missing.contains(&object) {
            self.lost_shards(vec![object], cx);
        }
    }

    /// What a scrub has found beyond what is told one by one, remembered, or mended now.
    fn tell_rest(&self, run: &Run, cx: &mut Shared) {
        let records = run.tally.more_records + run.snaps.more;
        let kinds = [
            (run.lines.1 as u32, "faults like these"),
            (records, "objects that list-inconsistent will not name"),
            (run.tally.more_bad, "objects that another repair has to mend"),
        ];
        for (n, what) in kinds.into_iter().filter(|(n, _)| *n > 0) {
            let text = format!("{} {} and {n} more {what}", self.id.pgid, run.plan.mode());
            cx.cluster_log(LogLevel::Error, text);
        }
    }

    fn tell_result(&self, run: &Run, fixed: u32, cx: &mut Shared) {
        let total = run.tally.shallow + run.snaps.errors + run.tally.deep;
        let mut text = format!("{} {} ", self.id.pgid, run.plan.mode());
        match total {
            0 => text += "ok",
            n => text += &format!("{n} errors"),
        }
        let lost = self.info.history.scrub.deep_errors;
        if !run.plan.deep && lost > 0 {
            text += &format!(" ( {lost} remaining deep scrub error details lost)");
        }
        if run.plan.repair {
            text += &format!(", {fixed} fixed");
        }
        if run.tally.forgiven > 0 {
            text += &format!(", {} written over", run.tally.forgiven);
        }
        cx.cluster_log(if total > 0 { LogLevel::Error } else { LogLevel::Debug }, text);
    }

    fn remember(&mut self, run: &Run, (shallow, deep): (u32, u32), cx: &Shared) {
        let h = &mut self.info.history.scrub;
        let now = cx.now.wall;
        h.last = self.info.last_update;
        h.last_stamp = now;
        h.shallow_errors = shallow;
        if run.plan.deep {
            h.last_deep = self.info.last_update;
            h.last_deep_stamp = now;
            h.deep_errors = deep;
            h.large_omap_objects = run.omap.2;
        }
        if shallow == 0 && (!run.plan.deep || deep == 0) {
            h.last_clean_stamp = now;
        }
    }

    /// Primary: replaces copies where nothing else is under way, and notices when all is whole again.
    pub(super) fn repair_step(&mut self, cx: &mut Shared) {
        if self.phase != Phase::Active {
            return;
        }
        let busy = |pg: &Self, o: &HObject| {
            pg.writes.lock(&o.head()).is_some()
                || pg.recovering.contains_key(o)
                || pg.copies.contains_key(&o.head())
        };
        let free: Vec<HObject> = self.scrub.repairs.keys().filter(|o| !busy(self, o)).cloned().collect();
        for object in free {
            if let Some(repair) = self.scrub.repairs.remove(&object) {
                self.repair_copies(&object, repair, cx);
            }
        }
        // An earlier interval may have ended in the middle of a repair.
        let is_left = self.info.history.scrub.mending && self.scrub.wanted.is_none();
        let is_due = self.scrub.repairing || is_left;
        if !is_due || self.scrub.run.is_some() || !self.scrub.repairs.is_empty() {
            return;
        }
        let whole = self.missing.is_empty()
            && self.recovering.is_empty()
            && !self.knows_of_damage()
            && self.peers.values().all(|p| p.missing.as_ref().is_none_or(crate::Missing::is_empty));
        if whole {
            let was = self.cluster_state(cx);
            self.scrub.repairing = false;
            if std::mem::take(&mut self.scrub.errors_go) {
                let (interval, h) = (self.interval(), &mut self.info.history.scrub);
                (h.shallow_errors, h.deep_errors, h.last_clean_stamp) = (0, 0, cx.now.wall);
                h.mending = self.scrub.check_after_repair;
                h.note_change(interval);
                self.share_history(cx);
            }
            let is_left = self.info.history.scrub.mending;
            if self.scrub.wanted.is_none() && (std::mem::take(&mut self.scrub.check_after_repair) || is_left)
            {
                self.scrub.wanted =
                    Some(Wanted { deep: true, check_repair: true, required: true, ..Wanted::default() });
            }
            self.report = true;
            self.note_state(was, cx);
        }
    }

    /// Primary: the same when a write has ended. The next one must not begin on what is to be replaced.
    pub(in crate::pg) fn repair_found(&mut self, cx: &mut Shared) {
        if !self.scrub.repairs.is_empty() {
            self.repair_step(cx);
        }
    }

    /// Takes bad copies for missing ones: recovery replaces them. All other members' copies were found good.
    fn repair_copies(&mut self, object: &HObject, repair: Repair, cx: &mut Shared) {
        if let Some(has) = repair.extra {
            return self.remove_extra(object, repair.version, &has, cx);
        }
        let newest = self.log.entries().rev().find(|e| e.object == *object && !e.is_error());
        if newest.is_some_and(|e| e.kind == EntryKind::Delete && e.version > repair.version) {
            return;
        }
        if self.is_coded() {
            return self.repair_found_shards(object, &repair, cx);
        }
        // Written since: then all members have that version, good and bad ones.
        let need = newest.map_or(repair.version, |e| e.version.max(repair.version));
        let item = MissingItem { need, have: Eversion::ZERO };
        for osd in &repair.bad {
            if *osd == self.me(cx) {
                self.missing.insert(object.clone(), item);
            } else if let Some(peer) = self.peers.get_mut(osd) {
                peer.missing.get_or_insert_default().insert(object.clone(), item);
            }
        }
        self.update_last_complete();
        cx.counters.repairs += repair.bad.len() as u64;
        self.report = true;
        self.recover_object(object, cx);
    }

    /// The same of shards: what a scrub has found is damage like any other.
    fn repair_found_shards(&mut self, object: &HObject, repair: &Repair, cx: &mut Shared) {
        let me = self.me(cx);
        if repair.bad.contains(&me) {
            let is = self.version_of(object, cx).unwrap_or_default();
            if !self.learn_newer(object, (is, repair.version), cx) {
                self.lost_shards(vec![object.clone()], cx);
            }
        }
        // All of them, before the first is made: none is made of another one.
        for osd in repair.bad.iter().copied().filter(|osd| *osd != me) {
            self.takes_for_missing(osd, object, cx);
        }
        self.recover_object(object, cx);
    }

    /// Removes copies of a deleted object.
    fn remove_extra(
        &mut self,
        object: &HObject,
        version: Eversion,
        has: &BTreeSet<PgShard>,
        cx: &mut Shared,
    ) {
        for osd in has {
            if *osd == self.me(cx) {
                self.drop_extra(object, version, cx);
            } else {
                let body = PgBody::ScrubRemove { object: object.clone(), version };
                cx.send_pg(*osd, self.id, self.interval(), body);
            }
        }
        cx.counters.repairs += has.len() as u64;
    }

    /// Member: this copy of a deleted object has to go.
    pub fn handle_scrub_remove(
        &mut self,
        from: PgShard,
        object: &HObject,
        version: Eversion,
        cx: &mut Shared,
    ) {
        if from == self.primary() && self.phase == Phase::Replica {
            self.drop_extra(object, version, cx);
        }
    }

    fn drop_extra(&mut self, object: &HObject, version: Eversion, cx: &mut Shared) {
        let goes = match stored_version(&mut cx.store, &self.object_key(object)) {
            Ok(stored) => stored <= version,
            // Of a shard that is known to be damaged the version need not be known.
            Err(LoadError::Decode(_)) => version != Eversion::ZERO && self.lost_here.contains(object),
            Err(LoadError::Store(_)) => false,
        };
        if goes {
            let mut txn = Txn::new();
            txn.remove(&self.object_key(object));
            self.forget_mark(object, &mut txn);
            cx.submit(txn, Done::Nothing);
        }
    }
}
