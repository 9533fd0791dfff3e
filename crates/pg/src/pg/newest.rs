//! The version that an erasure-coded PG's log names for an object. A copy that has another one has missed a
//! write, whatever its own shard says.
//!
//! Invariants:
//! 1. `Newest::by_object` has every object of the log's entries up to `upto`, with the version that the
//!    newest of these left: zero for a deletion.
//! 2. What a merge takes out of the log is not in it: whoever takes entries out clears it.

use std::collections::{BTreeMap, BTreeSet};

use store::{ObjectKey, Op, Txn};
use types::{Epoch, Eversion, HObject, OsdId, PgShard};

use super::backend::Backend;
use super::{Pg, Phase, persist};
use crate::entry::{EntryKind, LogEntry};
use crate::hash::FixedMap;
use crate::io::LogLevel;
use crate::log::PgLog;
use crate::missing::{Missing, MissingItem};
use crate::object::{LoadError, ObjectState, stored_version};
use crate::osd::shared::{Done, Shared};
use crate::peer::{PgBody, RepOp};
use crate::push::ObjectPush;

/// Objects of trimmed entries stay until they are as many as those of the log, and so many more.
const SPARE: usize = 64;

/// Versions that members have named and that are looked at when the PG has peered.
const MAX_NEWER: usize = 1_024;

/// What a copy has of an object that it lacks, and that was perhaps deleted. Nothing ever was in this
/// version, so it counts as none; the next primary learns by it that the copy lacks the object for a doubt
/// alone.
const DOUBTFUL: Eversion = Eversion { epoch: Epoch(0), version: 1 };

/// The object whose version an entry follows: that of a clone says which version of the head it was made of.
fn followed(entry: &LogEntry) -> HObject {
    if entry.kind == EntryKind::Clone { entry.object.head() } else { entry.object.clone() }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    by_object: FixedMap<HObject, Eversion>,
    upto: Eversion,
}

impl Newest {
    /// Takes in entries that the log got since.
    fn follow(&mut self, log: &PgLog) {
        // An entry that was trimmed before it was looked at may have been the newest of its object.
        let missed_some = self.upto < log.tail();
        if missed_some || self.by_object.len() > 2 * log.len() + SPARE {
            *self = Self::default();
        }
        for e in log.after(self.upto).filter(|e| !e.is_error()) {
            let left = if e.is_delete() { Eversion::ZERO } else { e.version };
            self.by_object.insert(e.object.clone(), left);
        }
        self.upto = log.head();
    }

    /// Whether the log names any version of an object, or its deletion.
    fn tells_of(&self, object: &HObject) -> bool {
        self.by_object.contains_key(object)
    }

    /// Whether the log names another version of an object than this one.
    pub fn contradicts(&self, object: &HObject, version: Eversion) -> bool {
        self.by_object.get(object).is_some_and(|newest| *newest != version)
    }
}

impl Pg {
    /// What the log says of objects, up to its head; `None` in replicated PGs.
    pub(super) fn newest(&mut self) -> Option<&Newest> {
        let Backend::Coded(coded) = &mut self.backend else { return None };
        coded.newest.follow(&self.log);
        Some(&coded.newest)
    }

    /// Whether the log says of an object what it is, or that it was deleted.
    pub(super) fn log_tells_of(&mut self, object: &HObject) -> bool {
        self.newest().is_some_and(|newest| newest.tells_of(object))
    }

    /// Entries were taken out of the log, or others put in their place.
    pub(super) fn forget_newest(&mut self) {
        if let Backend::Coded(coded) = &mut self.backend {
            coded.newest = Newest::default();
        }
    }

    /// The version that an object has to have: as the log says, or, if that tells nothing of it, as it is
    /// stored. Zero for none, and where the shard here does not say it: that one is damaged.
    pub(super) fn version_of(&mut self, object: &HObject, cx: &mut Shared) -> Result<Eversion, LoadError> {
        if let Some(item) = self.missing.get(object) {
            return Ok(item.need);
        }
        match self.newest().and_then(|newest| newest.by_object.get(object).copied()) {
            Some(version) => Ok(version),
            None => match stored_version(&mut cx.store, &self.object_key(object)) {
                Err(LoadError::Decode(_)) if self.is_coded() => {
                    self.lost_shards(vec![object.clone()], cx);
                    Ok(Eversion::ZERO)
                }
                found => found,
            },
        }
    }

    /// Whether the attributes of this copy's shard do not say what it is.
    pub(super) fn is_undecodable(&self, object: &HObject, cx: &mut Shared) -> bool {
        matches!(stored_version(&mut cx.store, &self.object_key(object)), Err(LoadError::Decode(_)))
    }

    /// Whether this copy's shard, whose attributes have this version, is another than the log names.
    pub(super) fn is_stale_here(&mut self, object: &HObject, version: Eversion) -> bool {
        self.newest().is_some_and(|newest| newest.contradicts(object, version))
    }

    /// Primary: an object's state as this copy's attributes have it. `None` when they are not the object's:
    /// the shard is made again.
    pub(super) fn own_state(
        &mut self,
        object: &HObject,
        cx: &mut Shared,
    ) -> Result<Option<ObjectState>, LoadError> {
        let state = ObjectState::load(&mut cx.store, &self.object_key(object))?;
        if !self.is_stale_here(object, state.info.version) {
            return Ok(Some(state));
        }
        self.lost_stale(object, cx);
        // What was to be deleted is now.
        Ok((self.version_of(object, cx)? == Eversion::ZERO).then(ObjectState::default))
    }

    /// Primary: this copy's shard of an object is older than it has to be, its attributes too.
    pub(super) fn lost_stale(&mut self, object: &HObject, cx: &mut Shared) {
        if let Backend::Coded(coded) = &mut self.backend {
            coded.readable.remove(object);
        }
        self.lost_shards(vec![object.clone()], cx);
        self.repair_own(object, cx);
    }

    /// Objects that a write makes or changes here of what is not what it should be, because a write before
    /// has not come to the medium, or the medium has lost what was there. They get the newest version, and
    /// must not be read. Deletions need nothing of what was there.
    pub(super) fn made_of_stale(
        &mut self,
        txn: &Txn,
        entries: &[LogEntry],
        cx: &mut Shared,
    ) -> BTreeSet<HObject> {
        let mut bad = BTreeSet::new();
        let here = |e: &&LogEntry| !e.is_error() && !e.is_delete() && e.object <= self.info.last_backfill;
        for entry in entries.iter().filter(here) {
            let of = followed(entry);
            let stored = stored_version(&mut cx.store, &self.object_key(&of));
            let is_damaged = entry.kind == EntryKind::Clone && self.lost_here.contains(&of);
            if stored != Ok(entry.prior_version) || is_damaged {
                bad.insert(entry.object.clone());
            }
        }
        let object = |index| txn.object(index).map(|key| key.object.clone());
        for op in txn.ops() {
            let (Op::Clone { src, dst } | Op::CloneRange { src, dst, .. }) = op else { continue };
            let (Some(src), Some(dst)) = (object(*src), object(*dst)) else { continue };
            if !bad.contains(&dst) && dst <= self.info.last_backfill && self.is_bad_source(&src, &bad, cx) {
                bad.insert(dst);
            }
        }
        bad
    }

    /// Member: what a refused write was to copy of, and what is not here: it was lost without a trace, for
    /// the primary sends such a write when nobody is known to lack that. Where it is all here something else
    /// is wrong with what the write changes: then that is to be made again, for the same write would be
    /// refused again.
    pub(super) fn lost_sources(&self, op: &RepOp, entries: &[LogEntry], cx: &mut Shared) -> Vec<HObject> {
        if !self.is_coded() {
            return Vec::new();
        }
        let lost = self.absent_sources(op, cx);
        if !lost.is_empty() {
            return lost;
        }
        let here = |e: &&LogEntry| !e.is_error() && e.object <= self.info.last_backfill;
        let changed = entries.iter().filter(here).map(|e| e.object.clone());
        changed.filter(|object| !self.has_nothing_of(object, cx)).collect()
    }

    fn absent_sources(&self, op: &RepOp, cx: &mut Shared) -> Vec<HObject> {
        let Ok(txn) = Txn::from_head(op.txn_head.clone(), op.payload.clone()) else { return Vec::new() };
        let (mut lost, mut made) = (BTreeSet::new(), BTreeSet::new());
        for op in txn.ops() {
            let (Op::Clone { src, dst } | Op::CloneRange { src, dst, .. }) = op else { continue };
            let (src, dst) = (txn.object(*src), txn.object(*dst));
            let is_old = |key: &&ObjectKey| !made.contains(*key) && key.object <= self.info.last_backfill;
            if let Some(key) = src.filter(is_old) {
                if cx.store.stat(key).is_ok_and(|stat| stat.is_none()) {
                    lost.insert(key.object.clone());
                }
            }
            made.extend(dst);
        }
        lost.into_iter().collect()
    }

    /// Member: an object of which a newer version is here than one that the primary names, while the log
    /// tells nothing of it any more: the primary's shard has missed a write.
    pub(super) fn newer_here(
        &mut self,
        object: &HObject,
        named: Eversion,
        cx: &mut Shared,
    ) -> Option<Eversion> {
        if !self.is_coded() || *object > self.info.last_backfill || self.phase != Phase::Replica {
            return None;
        }
        let stored = stored_version(&mut cx.store, &self.object_key(object)).ok().filter(|v| *v > named)?;
        let is_told =
            self.missing.contains(object) || self.newest().is_none_or(|newest| newest.tells_of(object));
        (!is_told).then_some(stored)
    }

    /// Member: the same of what a write follows.
    pub(super) fn newer_than_followed(
        &mut self,
        entries: &[LogEntry],
        cx: &mut Shared,
    ) -> Option<(HObject, Eversion)> {
        entries.iter().filter(|e| !e.is_error()).find_map(|entry| {
            let of = followed(entry);
            let newer = self.newer_here(&of, entry.prior_version, cx)?;
            Some((of, newer))
        })
    }

    /// Member: whether a push that begins is of an older version than the one here; the primary is told then.
    pub(super) fn is_older_than_here(
        &mut self,
        (from, reply): (PgShard, Epoch),
        push: &ObjectPush,
        cx: &mut Shared,
    ) -> bool {
        if !self.is_coded() || !push.from.is_start() {
            return false;
        }
        let object = push.object.0.clone();
        let Some(version) = self.newer_here(&object, push.version, cx) else { return false };
        cx.send_pg(from, self.id, reply, PgBody::Newer { object, version });
        true
    }

    /// Primary: a member has a newer version of an object than what was sent to it.
    pub fn handle_newer(&mut self, from: PgShard, object: HObject, version: Eversion, cx: &mut Shared) {
        if !self.is_primary(cx) || !self.is_acting(from) {
            return;
        }
        match self.rebuilt_version(&object).filter(|_| self.phase == Phase::Active) {
            Some(asked) if self.learn_newer(&object, (asked, version), cx) => {
                self.finish(&object, cx);
                self.rebuild_object(&object, cx);
            }
            Some(_) if self.is_pulling(&object, from) => {
                self.doubt_no_more(&object);
                self.attributes_refused(&object, from, cx);
            }
            Some(asked) if !self.learns_later(&object, (asked, version)) => {
                if self.version_of(&object, cx).is_ok_and(|need| need > asked) {
                    self.finish(&object, cx);
                    self.rebuild_object(&object, cx);
                    return;
                }
                if !self.lamented.contains(&object) {
                    let text = format!("pg {} object {object}: osd.{from} has {version} of it", self.id);
                    cx.cluster_log(LogLevel::Error, text);
                }
                self.cannot_rebuild(&object, cx);
            }
            // What was sent is not taken. It is made anew, in the newer version, when the write has ended.
            Some(_) => self.finish(&object, cx),
            None => self.keep_newer(object, version),
        }
    }

    /// Primary: whether a newer version of an object is to be learnt of when the write has ended that is in
    /// flight.
    pub(super) fn learns_later(&mut self, object: &HObject, (asked, version): (Eversion, Eversion)) -> bool {
        let is_busy = self.writes.lock(&object.head()).is_some();
        let is_told = self.newest().is_none_or(|newest| newest.tells_of(object));
        let is_news = is_busy && !is_told && version > asked && version <= self.log.tail();
        if is_news {
            self.keep_newer(object.clone(), version);
        }
        is_news
    }

    fn keep_newer(&mut self, object: HObject, version: Eversion) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        if coded.newer.len() < MAX_NEWER || coded.newer.contains_key(&object) {
            let known = coded.newer.entry(object).or_default();
            *known = version.max(*known);
        }
    }

    /// Primary: looks at the newer versions of an object and its clones that members have named while it was
    /// written.
    pub(super) fn learn_newer_of(&mut self, first: &HObject, last: &HObject, cx: &mut Shared) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        if coded.newer.is_empty() {
            return;
        }
        let family = coded.newer.range(first..=last).map(|(object, version)| (object.clone(), *version));
        for (object, version) in family.collect::<Vec<_>>() {
            if let Backend::Coded(coded) = &mut self.backend {
                coded.newer.remove(&object);
            }
            self.is_named(object, version, cx);
        }
    }

    /// Primary: an earlier one may have learnt of objects of which nobody's log tells, and have ended before
    /// it turned out whether they were deleted. It alone lacks them then: whoever has missed a write of
    /// theirs, or has lost it, lacks them as well. Several may have learnt of them one after the other, and
    /// say so (`DOUBTFUL`).
    pub(super) fn doubt_again(&mut self, cx: &mut Shared) {
        // What the log tells is known by now.
        self.newest();
        let Backend::Coded(coded) = &self.backend else { return };
        let theirs =
            self.write_targets(cx).into_iter().filter_map(|to| self.peers.get(&to)?.missing.as_ref());
        let all = std::iter::once(&self.missing).chain(theirs).flat_map(Missing::iter);
        let untold = all.filter(|(o, item)| item.need <= self.log.tail() && !coded.newest.tells_of(o));
        // By object: its version, how many lack it, and how many of these for a doubt.
        let mut by_object: BTreeMap<HObject, (Eversion, usize, usize)> = BTreeMap::new();
        for (object, item) in untold {
            let (_, lacking, doubtful) = by_object.entry(object.clone()).or_insert((item.need, 0, 0));
            *lacking += 1;
            *doubtful += usize::from(item.have == DOUBTFUL);
        }
        by_object.retain(|object, (_, lacking, doubtful)| {
            (*lacking == 1 || lacking == doubtful) && self.has_nothing_of(object, cx)
        });
        for (object, (need, ..)) in by_object {
            if self.missing.contains(&object) {
                self.doubt(object, cx);
            } else if let Backend::Coded(coded) = &mut self.backend {
                if coded.newer.len() < MAX_NEWER {
                    coded.newer.insert(object, need);
                }
            }
        }
    }

    /// Primary: looks at the newer versions that members have named, now that the PG has peered. What they
    /// refused was taken back.
    pub(super) fn learn_all_newer(&mut self, cx: &mut Shared) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        for (object, version) in std::mem::take(&mut coded.newer) {
            let is_told = self.newest().is_some_and(|newest| newest.tells_of(&object));
            if is_told && self.version_of(&object, cx) == Ok(Eversion::ZERO) {
                self.remove_deleted(&object, version, cx);
            } else {
                self.is_named(object, version, cx);
            }
        }
    }

    /// Primary: a member has an object in this version. It may be news.
    pub(super) fn is_named(&mut self, object: HObject, version: Eversion, cx: &mut Shared) {
        let Ok(is) = self.version_of(&object, cx) else { return };
        if self.learn_newer(&object, (is, version), cx) && is == Eversion::ZERO {
            self.doubt(object, cx);
        }
    }

    /// Primary: it is not known whether an object was deleted, unless a member has said that its shard is
    /// damaged.
    fn doubt(&mut self, object: HObject, cx: &mut Shared) {
        let least = PgShard { osd: OsdId(i32::MIN), shard: i8::MIN };
        let mut told = self.damaged.range((object.clone(), least)..).take_while(|(of, _)| *of == object);
        if told.any(|(_, copy)| !self.is_known_to_lack(*copy, &object)) {
            return;
        }
        let Backend::Coded(coded) = &mut self.backend else { return };
        coded.doubted.insert(object.clone());
        let lacked = self.missing.get(&object).filter(|item| item.need > DOUBTFUL).copied();
        if let Some(item) = lacked.filter(|item| item.have != DOUBTFUL) {
            let (item, mut txn) = (MissingItem { have: DOUBTFUL, ..item }, Txn::new());
            persist::add_missing(&mut txn, self.id, &object, item);
            self.missing.insert(object, item);
            cx.submit(txn, Done::Nothing);
        }
    }

    /// Primary: whether a copy says itself that it lacks an object. That it is marked as damaged there as
    /// well, as with a primary before that has learnt of it, says nothing then.
    pub(super) fn is_known_to_lack(&self, copy: PgShard, object: &HObject) -> bool {
        self.peers.get(&copy).and_then(|p| p.missing.as_ref()).is_some_and(|m| m.contains(object))
    }

    /// Primary: the log deletes an object of which a member has a shard all the same. The member's own log
    /// may not go back to the deletion.
    fn remove_deleted(&self, object: &HObject, version: Eversion, cx: &mut Shared) {
        for member in self.write_targets(cx) {
            let body = PgBody::ScrubRemove { object: object.clone(), version };
            cx.send_pg(member, self.id, self.interval(), body);
        }
    }

    /// Primary: whether nothing but a member's shard says that there is such an object.
    pub(super) fn is_doubted(&self, object: &HObject) -> bool {
        matches!(&self.backend, Backend::Coded(coded) if coded.doubted.contains(object))
    }

    /// Primary: a member has something of an object, damaged or of another version: it was not deleted.
    pub(super) fn doubt_no_more(&mut self, object: &HObject) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        coded.doubted.remove(object);
        // What is stored may go on to say that. Then it is looked at once more.
        if let Some(item) = self.missing.get(object).filter(|item| item.have == DOUBTFUL).copied() {
            self.missing.insert(object.clone(), MissingItem { have: Eversion::ZERO, ..item });
        }
    }

    /// Primary: objects that some members have and the others, this copy among them, do not. If they cannot
    /// be made, although all members are there and the others have nothing of them, they were deleted, and
    /// the shards that are left missed that.
    pub(super) fn delete_doubted(&mut self, cx: &mut Shared) {
        if !self.is_active() {
            return;
        }
        let Backend::Coded(coded) = &mut self.backend else { return };
        let mut doubted = std::mem::take(&mut coded.doubted);
        doubted.retain(|object| self.stays_doubted(object, cx));
        if let Backend::Coded(coded) = &mut self.backend {
            coded.doubted = doubted;
        }
    }

    fn stays_doubted(&mut self, object: &HObject, cx: &mut Shared) -> bool {
        if !self.missing.contains(object) {
            return false;
        }
        let is_busy = self.recovering.contains_key(object) || self.writes.lock(&object.head()).is_some();
        let is_gone = !is_busy && self.unfound.contains(object) && self.is_lost_for_good(object, cx);
        !is_gone || self.give_up(object, None, cx).is_err()
    }

    /// Whether a write must not copy this object here. The head's own entry tells of heads.
    fn is_bad_source(&mut self, src: &HObject, bad: &BTreeSet<HObject>, cx: &mut Shared) -> bool {
        if bad.contains(src) || self.lost_here.contains(src) || self.missing.contains(src) {
            return true;
        }
        if src.is_head() {
            return false;
        }
        let stored = stored_version(&mut cx.store, &self.object_key(src)).unwrap_or_default();
        stored == Eversion::ZERO || self.is_stale_here(src, stored)
    }

    /// Primary: a member that was asked for a version of an object has another one. If it is newer, and the
    /// log tells nothing of the object any more, this copy has missed a write: true, and that is what has to
    /// be here from now on.
    pub(super) fn learn_newer(
        &mut self,
        object: &HObject,
        (asked, version): (Eversion, Eversion),
        cx: &mut Shared,
    ) -> bool {
        if version <= asked {
            return false;
        }
        let is_busy = self.writes.lock(&object.head()).is_some();
        let is_told = self.newest().is_none_or(|newest| newest.tells_of(object));
        if is_busy || is_told || version > self.log.tail() {
            return false;
        }
        let item = MissingItem { need: version, have: Eversion::ZERO };
        if self.missing.get(object).is_some_and(|known| known.need >= version) {
            return false;
        }
        self.lost_shards(vec![object.clone()], cx);
        if let Backend::Coded(coded) = &mut self.backend {
            coded.readable.remove(object);
        }
        let mut txn = Txn::new();
        self.missing.insert(object.clone(), item);
        persist::add_missing(&mut txn, self.id, object, item);
        self.update_last_complete();
        self.save_info(&mut txn);
        cx.submit(txn, Done::Nothing);
        cx.counters.repairs += 1;
        self.report = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use types::Epoch;

    use super::*;
    use crate::dirty::Dirty;

    fn entry(version: u64) -> LogEntry {
        LogEntry {
            kind: EntryKind::Modify,
            object: HObject { name: "o".into(), ..HObject::min() },
            version: Eversion::new(Epoch(1), version),
            prior_version: Eversion::ZERO,
            user_version: version,
            reqid: Default::default(),
            mtime: Default::default(),
            return_code: 0,
            op_returns: Vec::new(),
            dirty: Dirty::ALL,
        }
    }

    /// A member looks at its log now and then. What was trimmed meanwhile is not what it saw before.
    #[test]
    fn what_was_trimmed_unseen_is_not_contradicted() {
        let (mut log, mut newest) = (PgLog::default(), Newest::default());
        let object = entry(1).object;
        log.append(entry(1));
        newest.follow(&log);
        assert!(newest.contradicts(&object, Eversion::ZERO));
        assert!(!newest.contradicts(&object, entry(1).version));
        log.append(entry(2));
        log.append(LogEntry { object: HObject::min(), ..entry(3) });
        log.trim(entry(2).version, 0);
        newest.follow(&log);
        assert!(!newest.contradicts(&object, entry(2).version));
        assert!(newest.contradicts(&HObject::min(), entry(2).version));
    }
}
