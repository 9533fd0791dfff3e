//! Recovery of erasure-coded objects: the shards that members lack are made from shards that others have.
//!
//! ```text
//! recover_object ─► rebuild ─► (attributes) ─► (ShardRead to holders, ShardPart back) ─► send_shards
//!                      ▲                                                                    │
//!                      └──── piece by piece, when all have the last one durable ◄───────────┘
//! ```
//! The primary reads ranges of as many shards as make up for the others, makes the same ranges of every shard
//! that is lacking, and sends each copy its own: a push, as in replicated pools, with the object's
//! attributes in front. Its own copy gets its shard in the same way. Where all of these copies have an older
//! version, the ranges are those that may have changed since (`shard_bases`).
//!
//! Invariants:
//! 1. An object in `Coded::rebuilds` is in `Pg::recovering`.
//! 2. Pieces are made of shards that have the object in one version: the one that the log names. A shard
//!    that is missing, or was found damaged, is no part of any.
//! 3. All copies that lack an object get the same piece, and the next one when all have that durable.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use erasure::{ChunkSet, CodecError};
use store::{Priority, StoreError, Txn};
use types::{Eversion, HObject, OsdId, PgShard, SnapId};

use super::backend::Backend;
use super::backfill::{Backfill, Step};
use super::gather::Refusal;
use super::recovery::{Recovering, Sent};
use super::room::Taken;
use super::shard_bases::Changed;
use super::{Pg, Phase, persist};
use crate::io::LogLevel;
use crate::missing::MissingItem;
use crate::osd::shared::{Done, PgDone, Shared};
use crate::peer::{PgBody, ShardAsk};
use crate::push::{Base, Cursor, ObjectName, ObjectPush, Pushed, Want};

/// Refusals of shards that the cluster log is told of in one interval.
const MAX_TOLD: usize = 1_024;
/// Damaged objects of members that wait to be rebuilt. Members tell of the others again.
const MAX_DAMAGED: usize = 4_096;

/// An object whose shards are being made.
#[derive(Debug)]
pub(crate) struct Rebuilding {
    /// The number of its reads.
    id: u64,
    version: Eversion,
    /// The copies that lack it.
    targets: BTreeSet<PgShard>,
    /// Copies that had none to give.
    without: BTreeSet<PgShard>,
    /// Copies outside of the PG that have not its attributes; of data, they may have what was before lost
    /// writes.
    headless: BTreeSet<PgShard>,
    /// Where the piece begins that is under way.
    from: Cursor,
    /// The piece's attributes, with the length of a shard.
    head: Option<ObjectPush>,
    /// Bytes of a shard, once they are known.
    size: u64,
    plan: Option<erasure::Rebuild>,
    /// What is made, of each shard.
    changed: Changed,
    /// What is read of each shard for this piece, as offsets and lengths.
    ranges: Vec<(u64, u64)>,
    /// By the number of the question: of whom, and which of the ranges.
    asked: BTreeMap<u32, (PgShard, usize)>,
    last: u32,
    /// By shard and range.
    got: BTreeMap<(usize, usize), Bytes>,
}

/// Has an object's attributes sent alone: as a push on top of the very version, of which no data differs.
fn attributes_alone(version: Eversion) -> Option<Base> {
    Some(Base { version, ranges: Vec::new(), omap: false })
}

pub(super) fn place(copy: PgShard) -> usize {
    usize::try_from(copy.shard).unwrap_or(usize::MAX)
}

impl Pg {
    fn rebuilding(&mut self, object: &HObject) -> Option<&mut Rebuilding> {
        match &mut self.backend {
            Backend::Coded(coded) => coded.rebuilds.get_mut(object),
            Backend::Replicated => None,
        }
    }

    /// The version in which an object's shards are being made.
    pub(super) fn rebuilt_version(&self, object: &HObject) -> Option<Eversion> {
        let Backend::Coded(coded) = &self.backend else { return None };
        coded.rebuilds.get(object).map(|r| r.version)
    }

    /// The copies that have an object in a version, by shard. Members go before strays.
    pub(super) fn holders(
        &self,
        object: &HObject,
        version: Eversion,
        without: &BTreeSet<PgShard>,
        cx: &Shared,
    ) -> BTreeMap<usize, PgShard> {
        let me = self.me(cx);
        let is_here = !self.missing.contains(object) && !self.lost_here.contains(object);
        let is_damaged = |copy| {
            let is_told = !self.damaged.is_empty() && self.damaged.contains(&(object.clone(), copy));
            is_told || self.has_refused(object, version, copy)
        };
        let serves_stale = types::is_planted!(cx.config.planted, StaleShardsServe);
        let has = |copy: PgShard| match copy == me {
            _ if serves_stale && self.is_acting(copy) => true,
            true => is_here,
            false => self.peers.get(&copy).is_some_and(|p| p.has(object, version)) && !is_damaged(copy),
        };
        let strays = self.peers.keys().copied().filter(|copy| !self.is_acting(*copy));
        let mut found = BTreeMap::new();
        for copy in self.acting().chain(strays).filter(|copy| !without.contains(copy) && has(*copy)) {
            found.entry(place(copy)).or_insert(copy);
        }
        if !self.backfills.is_empty() && !self.backend.is_enough(found.keys().copied()) {
            let behind = self.backfills.keys().copied().filter(|copy| self.may_still_have(*copy, object));
            for copy in behind.filter(|copy| !without.contains(copy) && !is_damaged(*copy)) {
                found.entry(place(copy)).or_insert(copy);
            }
        }
        found
    }

    /// Whether a copy that gets no writes has refused a shard in this interval. What it has does not change.
    fn has_refused(&self, object: &HObject, version: Eversion, copy: PgShard) -> bool {
        let Backend::Coded(coded) = &self.backend else { return false };
        !self.is_acting(copy) && coded.refused.has(object, copy, version)
    }

    /// A copy has been given an object: what it refused before says nothing any more.
    pub(super) fn has_it_now(&mut self, copy: PgShard, object: &HObject) {
        if let Backend::Coded(coded) = &mut self.backend {
            coded.refused.forget(object, copy);
        }
    }

    /// Whether a copy whose backfill has not come to an object may have it all the same, for it had it before
    /// that began. It refuses a read of another version.
    fn may_still_have(&self, copy: PgShard, object: &HObject) -> bool {
        let lacks =
            self.peers.get(&copy).and_then(|p| p.missing.as_ref()).is_some_and(|m| m.contains(object));
        let is_behind = |b: &Backfill| *object > b.last_backfill && !b.step.lacks(object);
        !lacks && self.backfills.get(&copy).is_some_and(is_behind)
    }

    /// Which copies lack an object, and the version that they need.
    fn lacking(&mut self, object: &HObject, cx: &mut Shared) -> Option<(Eversion, BTreeSet<PgShard>)> {
        let mut need = self.missing.get(object).map(|item| item.need);
        let mut targets: BTreeSet<PgShard> = need.iter().map(|_| self.me(cx)).collect();
        for to in self.write_targets(cx) {
            let item = self.peers.get(&to).and_then(|p| p.missing.as_ref()?.get(object));
            let is_copied = || self.backfills.get(&to).is_some_and(|b| b.step.lacks(object));
            if item.is_some() || is_copied() {
                need = need.max(item.map(|item| item.need));
                targets.insert(to);
            }
        }
        let need = match need {
            Some(need) => need,
            None if targets.is_empty() => return None,
            // All of it is here: a backfill goes over it.
            None => self.version_of(object, cx).unwrap_or_default(),
        };
        (need != Eversion::ZERO && !targets.is_empty()).then_some((need, targets))
    }

    /// All objects that a member lacks.
    fn all_lacking(&self, cx: &Shared) -> BTreeSet<HObject> {
        let mut all: BTreeSet<HObject> = self.missing.iter().map(|(o, _)| o.clone()).collect();
        for to in self.write_targets(cx) {
            let missing = self.peers.get(&to).and_then(|p| p.missing.as_ref());
            all.extend(missing.into_iter().flat_map(|m| m.iter().map(|(o, _)| o.clone())));
            if let Some(Step::Copying { left, .. }) = self.backfills.get(&to).map(|b| &b.step) {
                all.extend(left.iter().cloned());
            }
        }
        all
    }

    /// Whether the shards of some copies can be made from those that are left.
    fn can_make(&self, targets: &BTreeSet<PgShard>, holders: &BTreeMap<usize, PgShard>) -> bool {
        let want: ChunkSet = targets.iter().map(|copy| place(*copy)).collect();
        let there: ChunkSet = holders.keys().copied().collect();
        self.backend.geometry().is_some_and(|g| g.codec.minimum_to_decode(want, there).is_ok())
    }

    /// Of the objects that members lack, those that nobody can make now.
    pub(super) fn unfound_shards(&mut self, cx: &mut Shared) -> BTreeSet<HObject> {
        let mut all = self.all_lacking(cx);
        all.retain(|object| {
            if self.is_being_written(object) {
                return false;
            }
            let Some((need, targets)) = self.lacking(object, cx) else { return false };
            let holders = self.holders(object, need, &BTreeSet::new(), cx);
            !self.recovering.contains_key(object) && !self.can_make(&targets, &holders)
        });
        all
    }

    /// Whether a write of an object, or one that made it, is in flight. Which members have the new version is
    /// not known before it is done: what copies lack is made then.
    pub(super) fn is_being_written(&self, object: &HObject) -> bool {
        self.is_coded() && self.writes.lock(&object.head()).is_some_and(|lock| lock.writes > 0)
    }

    /// Primary: a write of an object has ended, and no other one of it has begun. What is lacking of its
    /// clones begins to be made now, which goes on while the head is written again: a client may leave no
    /// other time.
    pub(super) fn between_writes(&mut self, object: &HObject, cx: &mut Shared) {
        let (first, last) = (object.head().at(SnapId(0)), object.head());
        self.learn_newer_of(&first, &last, cx);
        if !self.waiting_for_object.is_empty() {
            let waited: Vec<HObject> =
                self.waiting_for_object.range(&first..=&last).map(|(object, _)| object.clone()).collect();
            for object in waited {
                self.recover_object(&object, cx);
            }
        }
        self.recover_between(&first, &last, cx);
    }

    /// Begins to make what copies lack of some objects, as far as that may be: of the others nothing has
    /// changed.
    fn recover_between(&mut self, first: &HObject, last: &HObject, cx: &mut Shared) {
        if !self.lacks_objects() || !self.may_recover(cx) {
            return;
        }
        let targets = self.write_targets(cx);
        let theirs = targets.iter().filter_map(|to| self.peers.get(to)?.missing.as_ref());
        let all = std::iter::once(&self.missing).chain(theirs).flat_map(|m| m.between(first, last));
        let begun = |o: &HObject| self.recovering.contains_key(o) || self.is_being_written(o);
        let lacking: BTreeSet<HObject> =
            all.filter(|o| !begun(o) && !self.unfound.contains(*o)).cloned().collect();
        for object in lacking {
            if !self.recover_in_turn(object, cx) {
                return;
            }
        }
    }

    /// Begins to make what copies lack of an object; false when nobody can, or nobody lacks any.
    pub(super) fn rebuild_object(&mut self, object: &HObject, cx: &mut Shared) -> bool {
        if self.recovering.contains_key(object) || self.is_being_written(object) {
            return true;
        }
        let Some((version, targets)) = self.lacking(object, cx) else { return false };
        let holders = self.holders(object, version, &BTreeSet::new(), cx);
        if !self.can_make(&targets, &holders) {
            self.lament(object, cx);
            return false;
        }
        self.unfound.remove(object);
        let id = cx.reads.number();
        let begun = Rebuilding {
            id,
            version,
            targets,
            without: BTreeSet::new(),
            headless: BTreeSet::new(),
            from: Cursor::default(),
            head: None,
            size: 0,
            plan: None,
            changed: Changed::default(),
            ranges: Vec::new(),
            asked: BTreeMap::new(),
            last: 0,
            got: BTreeMap::new(),
        };
        let Backend::Coded(coded) = &mut self.backend else { return false };
        coded.rebuilds.insert(object.clone(), begun);
        self.track(object, Recovering::Gathering { bytes: 0 }, cx);
        self.rebuild(object, cx);
        self.recovering.contains_key(object)
    }

    /// Nobody can make the object now. Whoever waits for it waits on.
    fn lament(&mut self, object: &HObject, cx: &mut Shared) {
        self.report |= self.unfound.insert(object.clone());
        if self.lamented.insert(object.clone()) {
            cx.cluster_log(LogLevel::Error, format!("pg {} object {object} is unfound", self.id));
        }
    }

    pub(super) fn cannot_rebuild(&mut self, object: &HObject, cx: &mut Shared) {
        self.finish(object, cx);
        self.lament(object, cx);
    }

    /// Goes on with the piece that is next: with its attributes, then with its data.
    fn rebuild(&mut self, object: &HObject, cx: &mut Shared) {
        let Some(r) = self.rebuilding(object) else { return };
        (r.plan, r.got) = (None, BTreeMap::new());
        r.asked.clear();
        if r.head.is_some() || r.from.headed {
            return self.read_shards(object, cx);
        }
        let (version, from, without) = (r.version, r.from.clone(), r.without.clone());
        let holders = self.holders(object, version, &without, cx);
        let me = self.me(cx);
        let has_attributes = holders.get(&place(me)) == Some(&me) || self.is_readable_here(object);
        let source = if has_attributes && !without.contains(&me) { Some(me) } else { None };
        let headless = self.rebuilding(object).map(|r| r.headless.clone()).unwrap_or_default();
        let other = holders.values().copied().find(|copy| !headless.contains(copy));
        let Some(source) = source.or(other) else {
            return self.cannot_rebuild(object, cx);
        };
        if source != me {
            let base = attributes_alone(version);
            let want = Want { object: object.clone(), need: version, base, from, max_bytes: 0 };
            return self.pull(source, want, cx);
        }
        match self.read_piece(object, attributes_alone(version).as_ref(), &from, 1, cx) {
            Ok(Some(head)) if head.version == version => self.got_attributes(object, head, cx),
            Ok(_) => self.shard_refused(object, me, "it has another version", cx),
            Err(e) => self.shard_refused(object, me, &e.to_string(), cx),
        }
    }

    /// Attributes of an object are here.
    fn got_attributes(&mut self, object: &HObject, mut head: ObjectPush, cx: &mut Shared) {
        let Some(r) = self.rebuilding(object) else { return };
        head.base = None;
        head.from = r.from.clone();
        r.size = head.size;
        if r.from.is_start() {
            let (what, targets) = ((r.version, r.size), r.targets.clone());
            let changed = self.changed_shards(object, what, &targets, cx);
            if let Some(r) = self.rebuilding(object) {
                r.changed = changed;
            }
        }
        let Some(r) = self.rebuilding(object) else { return };
        r.head = Some(head);
        self.track(object, Recovering::Gathering { bytes: 0 }, cx);
        self.read_shards(object, cx);
    }

    /// Asks holders for the next range of their shards; at once where there is none.
    fn read_shards(&mut self, object: &HObject, cx: &mut Shared) {
        let Some(r) = self.rebuilding(object) else { return };
        let (version, targets, without) = (r.version, r.targets.clone(), r.without.clone());
        let has_more_attributes = r.head.as_ref().is_some_and(|head| head.next.is_some());
        if has_more_attributes || r.changed.next(r.from.data, r.size).is_none() {
            // Attributes alone.
            r.ranges.clear();
            return self.send_shards(object, cx);
        }
        let holders = self.holders(object, version, &without, cx);
        let Some(geometry) = self.backend.geometry() else { return self.cannot_rebuild(object, cx) };
        let want: ChunkSet = targets.iter().map(|copy| place(*copy)).collect();
        let there: ChunkSet = holders.keys().copied().collect();
        let Ok(plan) = geometry.codec.rebuild(want, there) else {
            return self.cannot_rebuild(object, cx);
        };
        // A stray may have the very shard that a member lacks.
        let sources = plan.sources() | (want & there);
        let (chunk, shards) = (geometry.stripes.chunk_size(), sources.len().max(1) as u64);
        let most = (cx.piece_bytes() / shards / chunk).max(1).saturating_mul(chunk);
        let (mut asks, mut bytes) = (Vec::with_capacity(sources.len()), 0u64);
        if let Some(r) = self.rebuilding(object) {
            r.plan = Some(plan);
            r.ranges = r.changed.piece(r.from.data, r.size, most);
            let ranges = r.ranges.iter().enumerate();
            for (range, (offset, len)) in ranges.map(|(at, range)| (at, *range)) {
                for copy in sources.iter().filter_map(|shard| holders.get(&shard)) {
                    r.last += 1;
                    r.asked.insert(r.last, (*copy, range));
                    let object = object.clone();
                    asks.push((*copy, ShardAsk { id: r.id, place: r.last, object, version, offset, len }));
                    bytes = bytes.saturating_add(len);
                }
            }
        }
        self.track(object, Recovering::Gathering { bytes }, cx);
        for (copy, ask) in asks {
            cx.send_pg(copy, self.id, self.interval(), PgBody::ShardRead(Box::new(ask)));
        }
    }

    /// The object whose rebuild has asked a copy this; `None` when none has.
    pub(super) fn rebuild_that_asked(&self, from: PgShard, id: u64, place: u32) -> Option<HObject> {
        let Backend::Coded(coded) = &self.backend else { return None };
        let is_it = |asked: &(PgShard, usize)| asked.0 == from;
        let asked = |r: &Rebuilding| r.id == id && r.asked.get(&place).is_some_and(is_it);
        coded.rebuilds.iter().find(|(_, r)| asked(r)).map(|(object, _)| object.clone())
    }

    /// A copy has read a range of its shard for a rebuild, or says why not.
    pub(super) fn rebuild_part(
        &mut self,
        object: &HObject,
        copy: PgShard,
        number: u32,
        read: Result<Bytes, Refusal>,
        cx: &mut Shared,
    ) {
        let Some(r) = self.rebuilding(object) else { return };
        let version = r.version;
        let Some(range) = r.asked.get(&number).map(|(_, range)| *range) else { return };
        let len = r.ranges.get(range).map_or(0, |(_, len)| *len);
        match read {
            Ok(bytes) if bytes.len() as u64 == len => {
                r.asked.remove(&number);
                r.got.insert((place(copy), range), bytes);
                if r.asked.is_empty() {
                    self.send_shards(object, cx);
                }
            }
            Ok(_) => {
                self.doubt_no_more(object);
                self.shard_refused(object, copy, "its shard is too short", cx);
            }
            Err(refusal) if self.is_acting(copy) && self.learn_newer(object, (version, refusal.has), cx) => {
                self.finish(object, cx);
                self.rebuild_object(object, cx);
            }
            Err(refusal) if self.is_acting(copy) && self.learns_later(object, (version, refusal.has)) => {
                self.finish(object, cx);
            }
            Err(refusal) if refusal.is_lack() => {
                if !refusal.is_absence() {
                    self.doubt_no_more(object);
                }
                self.shard_refused(object, copy, &refusal.why.to_string(), cx);
            }
            Err(_) => {
                if let Some(r) = self.rebuilding(object) {
                    r.without.insert(copy);
                }
                self.rebuild(object, cx);
            }
        }
    }

    /// A copy has no shard to give for a rebuild: it is done without.
    fn shard_refused(&mut self, object: &HObject, copy: PgShard, why: &str, cx: &mut Shared) {
        let Some(r) = self.rebuilding(object) else { return };
        let version = r.version;
        r.without.insert(copy);
        self.note_refusal(object, version, copy, why, cx);
        self.rebuild(object, cx);
    }

    /// A copy gives nothing of an object that it should have: it lacks the object from now on. One that a
    /// backfill has not come to yet need not have it: it is asked in vain once in an interval, and nobody is
    /// told.
    pub(super) fn note_refusal(
        &mut self,
        object: &HObject,
        version: Eversion,
        copy: PgShard,
        why: &str,
        cx: &mut Shared,
    ) {
        let may_lack = self.may_still_have(copy, object);
        let Backend::Coded(coded) = &mut self.backend else { return };
        if !may_lack {
            cx.counters.shards_refused += 1;
            if coded.told.len() < MAX_TOLD && coded.told.insert((object.clone(), version, copy)) {
                let text = format!("pg {} object {object}: osd.{copy} gives no data of it: {why}", self.id);
                cx.cluster_log(LogLevel::Error, text);
            }
        }
        let is_member = self.is_acting(copy) || self.backfills.contains_key(&copy) && !may_lack;
        if copy == self.me(cx) {
            self.lost_shards(vec![object.clone()], cx);
            self.repair_own(object, cx);
        } else if is_member {
            self.shard_is_damaged(copy, object.clone(), cx);
        } else if let Backend::Coded(coded) = &mut self.backend {
            coded.refused.note(object, copy, version);
        }
    }

    /// Makes the piece of every shard that is lacking, and sends it.
    fn send_shards(&mut self, object: &HObject, cx: &mut Shared) {
        let made = match self.rebuilding(object) {
            Some(r) => r.make(object, types::is_planted!(cx.config.planted, ShardsOutOfPlace)),
            None => return,
        };
        let made = match made {
            Ok(made) => made,
            Err(e) => {
                cx.cluster_log(LogLevel::Error, format!("pg {} object {object}: {e}", self.id));
                return self.cannot_rebuild(object, cx);
            }
        };
        let (mut sent, mut pushes) = (BTreeMap::new(), Vec::with_capacity(made.len()));
        for (to, push) in made {
            sent.insert(to, Sent::of(&push));
            pushes.push((to, push));
        }
        self.track(object, Recovering::Pushing { to: sent }, cx);
        for (to, push) in pushes {
            self.send_object(to, push, cx);
        }
    }

    /// All copies have the piece durable; `next` is where the next one begins.
    pub(super) fn rebuild_next(&mut self, object: &HObject, next: Cursor, cx: &mut Shared) {
        if let Some(r) = self.rebuilding(object) {
            (r.from, r.head) = (next, None);
            self.track(object, Recovering::Gathering { bytes: 0 }, cx);
            self.rebuild(object, cx);
        }
    }

    /// Primary: attributes of an object that were asked of a copy, or pieces of its own shard.
    pub(super) fn take_rebuilt(&mut self, from: PgShard, pushes: Vec<ObjectPush>, cx: &mut Shared) -> Taken {
        if from == self.me(cx) {
            return self.store_own(pushes, cx);
        }
        for push in pushes {
            let object = push.object.0.clone();
            let is_asked = self.is_pulling(&object, from);
            let wanted = |r: &mut Rebuilding| r.version == push.version && r.from == push.from;
            if is_asked && self.rebuilding(&object).is_some_and(wanted) {
                self.got_attributes(&object, push, cx);
            }
        }
        Taken::Done
    }

    /// The asked copy has no attributes to give.
    pub(super) fn attributes_refused(&mut self, object: &HObject, from: PgShard, cx: &mut Shared) {
        let is_member = self.is_acting(from) || self.backfills.contains_key(&from);
        match self.rebuilding(object).filter(|_| !is_member) {
            Some(r) => {
                r.headless.insert(from);
                self.rebuild(object, cx);
            }
            None => self.shard_refused(object, from, "it has another version", cx),
        }
        self.continue_recovery(cx);
    }

    /// Stores pieces of this copy's own shards.
    fn store_own(&mut self, pushes: Vec<ObjectPush>, cx: &mut Shared) -> Taken {
        let me = self.me(cx);
        let is_sent = |push: &ObjectPush| match self.recovering.get(&push.object.0) {
            Some(Recovering::Pushing { to }) => to.contains_key(&me),
            _ => false,
        };
        let pushes: Vec<ObjectPush> = pushes.into_iter().filter(is_sent).collect();
        let mut txn = Txn::new();
        for push in &pushes {
            self.store_piece(push, &mut txn);
            if push.next.is_none() {
                persist::forget_missing(&mut txn, self.id, &push.object.0);
                persist::forget_damaged(&mut txn, self.id, &push.object.0);
            }
        }
        let objects = pushes.iter().map(ObjectPush::stored).collect();
        let done = PgDone::Pulled { from: me, objects };
        let done = Done::Pg { id: self.id, interval: self.interval(), what: done };
        match cx.try_submit(txn, Priority::Member, done) {
            Ok(_) => {
                cx.counters.recovery_bytes += pushes.iter().map(ObjectPush::bytes).sum::<u64>();
                pushes.iter().for_each(|push| self.note_piece(push));
            }
            Err(StoreError::Full { .. }) => return Taken::NoRoom(PgBody::Push(pushes)),
            Err(StoreError::Misuse(e)) => self.push_refused(me, e, cx),
            Err(e) => self.store_failed(&e, cx),
        }
        Taken::Done
    }

    /// Pieces of this copy's own shards are durable.
    pub(super) fn own_shards_stored(&mut self, objects: &[Pushed], cx: &mut Shared) {
        let me = self.me(cx);
        for pushed in objects.iter().filter(|pushed| pushed.next.is_none()) {
            let is_it = |i: &MissingItem| i.need == pushed.version;
            if self.missing.get(&pushed.object).is_some_and(is_it) {
                self.missing.remove(&pushed.object);
            }
            if let Backend::Coded(coded) = &mut self.backend {
                coded.readable.remove(&pushed.object);
            }
            self.doubt_no_more(&pushed.object);
        }
        self.update_last_complete();
        self.handle_push_ack(me, objects, cx);
    }

    /// Copies that were asked are gone. Their objects are begun anew.
    pub(super) fn objects_asked_of(&self, gone: &[PgShard]) -> Vec<HObject> {
        let Backend::Coded(coded) = &self.backend else { return Vec::new() };
        let asks = |r: &Rebuilding| r.asked.values().any(|(copy, _)| gone.contains(copy));
        coded.rebuilds.iter().filter(|(_, r)| asks(r)).map(|(object, _)| object.clone()).collect()
    }

    /// Whether the attributes here are the object's, although its data is not.
    pub(super) fn is_readable_here(&self, object: &HObject) -> bool {
        match &self.backend {
            Backend::Coded(coded) => coded.readable.contains(object),
            Backend::Replicated => false,
        }
    }

    /// Whether requests have to wait until this copy's own shard is there: its attributes are not.
    pub(super) fn lacks_attributes(&self, object: &HObject) -> bool {
        let lacks = self.missing.contains(object) || self.lost_here.contains(object);
        lacks && !self.is_readable_here(object)
    }

    /// Whether shards are known to be damaged that nobody has begun to make again: a stray may have what they
    /// are made of.
    pub(super) fn knows_of_damage(&self) -> bool {
        self.is_coded() && !(self.lost_here.is_empty() && self.damaged.is_empty())
    }

    /// Primary: a member's shard is damaged. It is rebuilt, or remembered until that can be done.
    pub(super) fn shard_is_damaged(&mut self, from: PgShard, object: HObject, cx: &mut Shared) {
        // What is made is the whole shard: what it tells of before it has that is mended by it.
        if self.rebuilding(&object).is_some_and(|r| r.targets.contains(&from)) {
            return;
        }
        let busy = self.writes.lock(&object.head()).is_some() || self.recovering.contains_key(&object);
        if busy || self.phase != Phase::Active {
            return self.remember_damage(from, object);
        }
        if self.takes_for_missing(from, &object, cx) {
            self.recover_object(&object, cx);
        } else if self.version_of(&object, cx) == Ok(Eversion::ZERO) {
            match self.log_tells_of(&object) {
                // There is no such object: what is left of it goes, and the mark.
                true => {
                    let version = self.info.last_update;
                    cx.send_pg(from, self.id, self.interval(), PgBody::ScrubRemove { object, version });
                }
                false => self.inquire(from, object, cx),
            }
        }
    }

    /// Primary: a member's shard of an object is of no use from now on; false when there is no such object.
    pub(super) fn takes_for_missing(&mut self, copy: PgShard, object: &HObject, cx: &mut Shared) -> bool {
        let need = self.version_of(object, cx).unwrap_or_default();
        let Some(peer) = self.peers.get_mut(&copy).filter(|_| need != Eversion::ZERO) else { return false };
        let missing = peer.missing.get_or_insert_default();
        if !missing.contains(object) {
            missing.insert(object.clone(), MissingItem { need, have: Eversion::ZERO });
            cx.counters.repairs += 1;
        }
        self.report = true;
        true
    }

    /// Primary: begins to rebuild damaged shards that had to wait, its own and those of members.
    pub(super) fn repair_shards(&mut self, cx: &mut Shared) {
        if self.phase != Phase::Active || self.lost_here.is_empty() && self.damaged.is_empty() {
            return;
        }
        for object in self.lost_here.clone() {
            self.repair_own(&object, cx);
        }
        for (object, from) in std::mem::take(&mut self.damaged) {
            self.shard_is_damaged(from, object, cx);
        }
    }

    /// The same of one object, which is not busy any more, and of its clones.
    pub(super) fn repair_shards_of(&mut self, object: &HObject, cx: &mut Shared) {
        if !self.knows_of_damage() || self.phase != Phase::Active {
            return;
        }
        let (first, last) = (object.head().at(SnapId(0)), object.head());
        let least = PgShard { osd: OsdId(i32::MIN), shard: i8::MIN };
        let own: Vec<HObject> = self.lost_here.range(first.clone()..=last.clone()).cloned().collect();
        for object in own {
            self.repair_own(&object, cx);
        }
        let theirs = self.damaged.range((first, least)..).take_while(|(object, _)| *object <= last);
        for (object, from) in theirs.cloned().collect::<Vec<_>>() {
            self.damaged.remove(&(object.clone(), from));
            self.shard_is_damaged(from, object, cx);
        }
    }

    /// The same of one object of this copy. What is lacking for a rebuild is missing, as in replicated pools.
    pub(super) fn repair_own(&mut self, object: &HObject, cx: &mut Shared) {
        let busy = self.writes.lock(&object.head()).is_some() || self.recovering.contains_key(object);
        let is_known = !self.lost_here.contains(object) || self.missing.contains(object);
        if busy || is_known || self.phase != Phase::Active {
            return;
        }
        let Ok(need) = self.version_of(object, cx) else { return };
        if need == Eversion::ZERO {
            return match self.log_tells_of(object) {
                true => self.remove_own(object, cx),
                false => self.inquire(self.me(cx), object.clone(), cx),
            };
        }
        self.missing.insert(object.clone(), MissingItem { need, have: Eversion::ZERO });
        self.update_last_complete();
        cx.counters.repairs += 1;
        self.report = true;
        self.rebuild_object(object, cx);
    }

    /// Primary: there is no object whose shard is damaged here. It was deleted since, or is now.
    pub(super) fn remove_own(&mut self, object: &HObject, cx: &mut Shared) {
        let mut txn = Txn::new();
        txn.remove(&self.object_key(object));
        self.forget_mark(object, &mut txn);
        cx.submit(txn, Done::Nothing);
        if let Some(waiting) = self.waiting_for_object.remove(object) {
            self.let_go(waiting, cx);
        }
    }

    /// Primary: a damaged shard of a member that cannot be made now is remembered.
    pub(super) fn remember_damage(&mut self, from: PgShard, object: HObject) {
        if self.damaged.len() < MAX_DAMAGED {
            self.damaged.insert((object, from));
        }
    }
}

impl Rebuilding {
    /// The piece of each copy that lacks the object.
    fn make(
        &mut self,
        object: &HObject,
        is_mixed_up: bool,
    ) -> Result<Vec<(PgShard, ObjectPush)>, CodecError> {
        let made = self.make_ranges()?;
        let head = self.head.take();
        let end = self.ranges.last().map_or(self.from.data, |(offset, len)| offset.saturating_add(*len));
        let after_head = head.as_ref().and_then(|head| head.next.clone());
        let piece = ObjectPush {
            object: ObjectName(object.clone()),
            version: self.version,
            size: self.size,
            from: self.from.clone(),
            next: after_head.or_else(|| self.changed.next(end, self.size)),
            extents: Vec::new(),
            ..head.unwrap_or_default()
        };
        let got = std::mem::take(&mut self.got);
        let data_of = |to: &PgShard, range: usize| {
            let other = got.values().next().filter(|_| is_mixed_up);
            let key = (place(*to), range);
            other.or_else(|| made.get(&key)).or_else(|| got.get(&key))
        };
        let push_of = |to: &PgShard| {
            let mut push = ObjectPush { base: self.changed.base(*to).cloned(), ..piece.clone() };
            for (range, (offset, _)) in self.ranges.iter().enumerate() {
                let extents = data_of(to, range).map(|data| self.changed.extents(*to, *offset, data));
                push.extents.extend(extents.into_iter().flatten());
            }
            (*to, push)
        };
        Ok(self.targets.iter().map(push_of).collect())
    }

    /// The ranges of the shards that nobody has, by shard and range.
    fn make_ranges(&mut self) -> Result<BTreeMap<(usize, usize), Bytes>, CodecError> {
        let mut made = BTreeMap::new();
        let Some(plan) = self.plan.take() else { return Ok(made) };
        for (range, (_, len)) in self.ranges.iter().enumerate() {
            let bytes = usize::try_from(*len).map_err(|_| CodecError::OutOfRange)?;
            let mut out = vec![vec![0; bytes]; plan.targets().len()];
            let mut sources: Vec<Option<&[u8]>> = vec![None; erasure::MAX_CHUNKS];
            for ((shard, _), data) in self.got.iter().filter(|((_, of), _)| *of == range) {
                sources.get_mut(*shard).into_iter().for_each(|source| *source = Some(data));
            }
            let mut buffers: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
            plan.execute(&sources, &mut buffers)?;
            let out = out.into_iter().map(Bytes::from);
            made.extend(plan.targets().iter().zip(out).map(|(shard, data)| ((shard, range), data)));
        }
        Ok(made)
    }
}
