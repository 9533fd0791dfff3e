//! How a PG's objects lie on its members: whole on each, or a shard on each. What a write changes there, and
//! what a member does with its part.
//!
//! Invariants:
//! 1. `Coded::kept` is what the store has of such records, oldest first. Both change with one transaction.
//! 2. A record goes when every member of a started PG has its write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use store::{Misuse, ObjectKey, Store, StoreError, Txn};
use types::{Epoch, Errno, Eversion, HObject, PgShard, SpgId};

use super::chunk_reads::OldChunks;
use super::client::ClientOp;
use super::gather::Gather;
use super::newest::Newest;
use super::rebuild::Rebuilding;
use super::refused::Refused;
use super::replicate::{WRITE_MAX, put_entries};
use super::witness::Inquiries;
use super::{Pg, Phase, persist};
use crate::coded::{self, Adds, Geometry, Kept, Parts, ShardPart, SplitStop};
use crate::entry::LogEntry;
use crate::exec::ExecStop;
use crate::info::AfterWrite;
use crate::io::{FatalReason, LogLevel};
use crate::merge::{Lost, MergedShards};
use crate::missing::MissingItem;
use crate::object::{LoadError, ObjectState, stored_version};
use crate::osd::shared::{Done, Shared};
use crate::peer::{CodedPart, PgBody, RepOp, ShardAsk};

/// Records that go in one transaction.
const FORGET_AT_ONCE: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) enum Backend {
    Replicated,
    Coded(Box<Coded>),
}

/// What an erasure-coded PG has besides.
#[derive(Debug, Default)]
pub(crate) struct Coded {
    /// `None` before the first interval here, and while the pool's profile is none that is known.
    pub geometry: Option<Arc<Geometry>>,
    /// Writes that can be taken back here.
    kept: VecDeque<Kept>,
    /// Whether `kept` was read. It is not again: a child's records may not be in the store yet.
    is_kept_read: bool,
    /// Primary: how many questions requests have asked shards. Their numbers are those of one request alone
    /// each, for an answer may come late, or twice.
    pub questions: u32,
    /// Primary: what is read of shards for requests, by the number of the request's reads.
    pub gathers: BTreeMap<u64, Gather>,
    /// Primary: objects whose shards are being made for copies that lack them.
    pub rebuilds: BTreeMap<HObject, Rebuilding>,
    /// Primary: objects of which only data was damaged here. Requests read that of other shards.
    pub readable: BTreeSet<HObject>,
    /// Refusals of shards that the cluster log was told of in this interval.
    pub told: BTreeSet<(HObject, Eversion, PgShard)>,
    /// Primary: what copies that get no writes have refused in this interval.
    pub refused: Refused,
    /// Primary: members were told in this interval that none of them takes back anything up to here.
    settled: Eversion,
    /// Primary: the newest write when that was last looked at.
    seen: Eversion,
    /// The versions that the log names.
    pub newest: Newest,
    /// Primary: versions that members have of objects of which the log tells nothing any more. It looks at
    /// them when it has peered, for it could not before.
    pub newer: BTreeMap<HObject, Eversion>,
    /// Primary: objects that it has learnt of in that way, and knew nothing of.
    pub doubted: BTreeSet<HObject>,
    /// Primary: what members are asked about damaged objects of which this copy knows nothing.
    pub inquiries: Inquiries,
}

/// What a write changes on the members.
pub(super) enum Change {
    /// The same on each.
    Whole(Txn),
    /// Bytes of data that the object gets, and what each shard does for that.
    Shards(usize, Parts),
}

/// A write that is ready: the primary's own transaction, and what goes out.
pub(super) struct Ready {
    pub own: Txn,
    pub shipped: Shipped,
    after: After,
}

/// What members get.
pub(super) enum Shipped {
    /// The primary's transaction and its payload.
    Whole(Bytes, Bytes),
    /// Each its own.
    Shards(BTreeMap<PgShard, RepOp>),
    Nothing,
}

/// What follows a transaction of a shard, once the store has it.
#[derive(Debug, Default)]
pub(super) struct After {
    kept: Vec<Kept>,
    /// So many of the oldest records are gone.
    forgotten: usize,
    /// Of these nothing is read here until they are rebuilt.
    damaged: BTreeSet<HObject>,
}

impl Change {
    pub fn payload_len(&self) -> usize {
        match self {
            Self::Whole(txn) => txn.payload_len(),
            Self::Shards(bytes, _) => *bytes,
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Whole(txn) => txn.is_empty(),
            Self::Shards(_, parts) => parts.shards.iter().all(|part| part.txn.is_empty()),
        }
    }
}

impl Coded {
    /// Learns which writes can be taken back here.
    fn read_kept(&mut self, id: SpgId, store: &mut Store) -> Result<(), LoadError> {
        if !self.is_kept_read {
            self.kept = coded::kept_in(store, id)?.into();
            self.is_kept_read = true;
        }
        Ok(())
    }
}

impl Backend {
    pub fn of(id: SpgId) -> Self {
        match id.shard {
            SpgId::NO_SHARD => Self::Replicated,
            _ => Self::Coded(Box::default()),
        }
    }

    /// Whether objects lie on the members in shards, as the PG's id says.
    pub fn is_coded(&self) -> bool {
        matches!(self, Self::Coded(_))
    }

    /// How objects lie on shards, once it is known.
    pub fn geometry(&self) -> Option<&Geometry> {
        match self {
            Self::Coded(coded) => coded.geometry.as_deref(),
            Self::Replicated => None,
        }
    }

    /// What is done with objects that lost entries changed.
    pub fn lost_entries(&self) -> Lost {
        match self {
            Self::Replicated => Lost::Fetch,
            Self::Coded(_) => Lost::TakeBack,
        }
    }

    /// Into how many parts an object's data is divided.
    pub fn data_shards(&self) -> u64 {
        self.geometry().map_or(1, |geometry| geometry.codec.data_chunk_count().max(1) as u64)
    }

    /// Whether the copies at these places of an acting set are enough to know what was written, and to make
    /// all data: any of a replicated PG. As many shards as make up the data need not be, where the code has
    /// groups.
    pub fn is_enough(&self, places: impl IntoIterator<Item = usize>) -> bool {
        let mut places = places.into_iter();
        match self.geometry() {
            Some(geometry) => geometry.can_decode(places.collect()),
            None => places.next().is_some(),
        }
    }
}

impl Pg {
    /// Learns how objects lie on shards, and what can be taken back here. Of a pool that is not served the
    /// OSD has told.
    pub(super) fn know_geometry(&mut self, cx: &mut Shared) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        let Some(geometry) = cx.coded_pools.geometry(self.id.pgid.pool) else { return };
        if coded.geometry.is_some() {
            return;
        }
        coded.geometry = Some(geometry);
        if let Err(e) = coded.read_kept(self.id, &mut cx.store) {
            cx.fail(FatalReason::Store(e.to_string()));
        }
    }

    /// What a request's transaction changes on the members.
    pub(super) fn divide(&self, txn: Txn, op: &ClientOp, cx: &mut Shared) -> Result<Change, SplitStop> {
        let Backend::Coded(coded) = &self.backend else { return Ok(Change::Whole(txn)) };
        let geometry = coded.geometry.as_ref().ok_or(SplitStop::Refused(Errno::EIO))?;
        let (store, shard) = (&mut cx.store, self.id.shard);
        let size_of = |o: &HObject| {
            let state = ObjectState::load(store, &ObjectKey::new(shard, o.clone()))?;
            Ok(state.info.size)
        };
        let none = coded::Gathered::default();
        let parts = coded::split(
            geometry,
            &txn,
            op.gathered.as_deref().map_or(&none, |harvest| &harvest.bytes),
            size_of,
        )?;
        Ok(Change::Shards(txn.payload_len(), parts))
    }

    /// Of the objects that a scrub looks at, the shards on which a write leaves nothing of the data.
    pub(super) fn replaced_shards(
        &self,
        change: &Change,
        entries: &[LogEntry],
    ) -> Vec<(HObject, BTreeSet<i8>)> {
        let Change::Shards(_, parts) = change else { return Vec::new() };
        let looked_at = entries.iter().filter(|e| !e.is_error() && self.scrub.looks_at(&e.object));
        let shards_of = |entry: &LogEntry| {
            let object = &entry.object;
            let shards = (0i8..).zip(&parts.shards);
            let replaced =
                shards.filter(|(shard, part)| part.replaces(&ObjectKey::new(*shard, object.clone())));
            (object.clone(), replaced.map(|(shard, _)| shard).collect())
        };
        looked_at.map(shards_of).collect()
    }

    /// Deals with a write that cannot be divided (yet).
    pub(super) fn not_divided(&mut self, op: ClientOp, head: &HObject, stop: SplitStop, cx: &mut Shared) {
        match stop {
            SplitStop::Needs(needs) => self.gather(op, head, needs, cx),
            SplitStop::Refused(e) => op.refuse(e, cx),
            SplitStop::Load(e) => self.stopped(op, head, ExecStop::Load(e), cx),
            SplitStop::Codec(e) => {
                cx.cluster_log(LogLevel::Error, format!("pg {} object {head}: {e}", self.id));
                op.refuse(Errno::EIO, cx);
            }
        }
    }

    /// Makes a write ready for the store and for the members. `without` are members that get the log entries
    /// alone.
    pub(super) fn make_ready(
        &mut self,
        change: Change,
        entries: &[LogEntry],
        newest: &AfterWrite,
        (targets, without): (&[PgShard], impl Fn(PgShard) -> bool),
        (prev, trim_to): (Eversion, Eversion),
        cx: &mut Shared,
    ) -> Result<Ready, StoreError> {
        let (bytes, mut parts) = match change {
            Change::Whole(mut own) => {
                put_entries(&mut own, self.id, entries, newest);
                check_size(&mut own)?;
                let shipped = match targets.is_empty() {
                    true => Shipped::Nothing,
                    false => {
                        let (head, payload) = split_txn(&mut own);
                        Shipped::Whole(head, payload)
                    }
                };
                return Ok(Ready { own, shipped, after: After::default() });
            }
            Change::Shards(bytes, parts) => (bytes, parts),
        };
        if bytes > WRITE_MAX {
            return Err(StoreError::Misuse(Misuse::TxnTooLarge));
        }
        let kept_to = self.durable_everywhere(cx);
        let mut part_of = |shard: i8, again: bool| {
            let part = usize::try_from(shard).ok().and_then(|at| parts.shards.get_mut(at));
            let take = |part: &mut ShardPart| if again { part.clone() } else { std::mem::take(part) };
            let mut part = part.map(take).unwrap_or_default();
            put_entries(&mut part.txn, SpgId { shard, ..self.id }, entries, newest);
            part
        };
        let mut ops = BTreeMap::new();
        for (at, to) in targets.iter().enumerate() {
            // A backfill target may be to take the place of a member.
            let others = targets.iter().skip(at + 1).map(|other| other.shard);
            let again = others.chain([self.id.shard]).any(|shard| shard == to.shard);
            let mut part = part_of(to.shard, again);
            if without(*to) {
                part = ShardPart::default();
                put_entries(&mut part.txn, SpgId { shard: to.shard, ..self.id }, entries, newest);
            }
            check_size(&mut part.txn)?;
            let (txn_head, payload) = split_txn(&mut part.txn);
            let coded = Some(Box::new(CodedPart { adds: part.adds, kept_to }));
            ops.insert(*to, RepOp { txn_head, payload, prev, trim_to, coded });
        }
        let own = part_of(self.id.shard, false);
        let (own, after) = self.with_records(own, kept_to, entries, &OldChunks::new(), cx)?;
        Ok(Ready { own, shipped: Shipped::Shards(ops), after })
    }

    /// A member's transaction of a write, with all that belongs to it here. An error says that it is no write
    /// of this PG.
    pub(super) fn on_member(
        &mut self,
        txn: Txn,
        op: &RepOp,
        entries: &[LogEntry],
        old: &OldChunks,
        cx: &mut Shared,
    ) -> Result<(Txn, After), StoreError> {
        match (&self.backend, &op.coded) {
            (Backend::Replicated, None) => Ok((txn, After::default())),
            (Backend::Coded(_), Some(coded)) => {
                let part = ShardPart { txn, adds: coded.adds.clone() };
                self.with_records(part, coded.kept_to, entries, old, cx)
            }
            // `next_write` has refused it.
            _ => Err(StoreError::Misuse(Misuse::BadKey)),
        }
    }

    /// A shard's part of a write, with the records that take it back and without those that are not needed
    /// any more. `old` are chunks to which something is added, as far as they were read before.
    fn with_records(
        &mut self,
        part: ShardPart,
        kept_to: Eversion,
        entries: &[LogEntry],
        old: &OldChunks,
        cx: &mut Shared,
    ) -> Result<(Txn, After), StoreError> {
        if !self.is_coded() {
            return Ok((part.txn, After::default()));
        }
        let stale = self.made_of_stale(&part.txn, entries, cx);
        // What lies beyond a backfill is not here, and is not taken back.
        let here =
            entries.iter().filter(|e| e.object <= self.info.last_backfill).cloned().collect::<Vec<_>>();
        let mut adds = part.adds;
        if types::is_planted!(cx.config.planted, ParityAddedTwice) {
            // The second time takes it out again.
            adds.iter_mut().for_each(|add| add.data = vec![0; add.data.len()].into());
        }
        let ready = coded::prepare(&mut cx.store, self.id, part.txn, Adds { adds: &adds, old }, &here)?;
        let damaged: BTreeSet<HObject> = ready.damaged.into_iter().chain(stale).collect();
        let mut txn = ready.txn;
        // With the write: its version must never be that of a shard which nobody knows to be damaged.
        for object in damaged.iter().filter(|o| !self.lost_here.contains(*o)) {
            persist::add_damaged(&mut txn, self.id, object);
        }
        let Backend::Coded(coded) = &self.backend else { return Ok((txn, After::default())) };
        let gone = coded.kept.iter().take_while(|kept| kept.version <= kept_to);
        let forgotten = gone.map(|kept| coded::forget(&mut txn, self.id, kept)).count();
        Ok((txn, After { kept: ready.kept, forgotten, damaged }))
    }

    /// The store has the transaction of a write.
    pub(super) fn submitted(&mut self, after: After, cx: &mut Shared) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        coded.kept.drain(..after.forgotten.min(coded.kept.len()));
        coded.kept.extend(after.kept);
        self.note_damaged(after.damaged, cx);
    }

    /// Takes lost writes back, newest first, from what was kept here; and keeps what deletions remove that
    /// were learnt of. An object that does not come out as it was before the lost writes is missing, and the
    /// primary is told: it was made again meanwhile, or there is no record of one of the writes.
    pub(super) fn merge_shards(&mut self, merged: &MergedShards, txn: &mut Txn, cx: &mut Shared) {
        self.forget_newest();
        let mut left = self.undo_writes(merged.common, txn, cx);
        let newer: BTreeSet<&HObject> = match merged.undone.is_empty() {
            true => BTreeSet::new(),
            false => self.log.after(merged.common).filter(|e| !e.is_error()).map(|e| &e.object).collect(),
        };
        let mut lost = Vec::new();
        for (object, prior) in &merged.undone {
            let key = ObjectKey::new(self.id.shard, object.clone());
            let stored = |cx: &mut Shared| stored_version(&mut cx.store, &key).ok();
            let is = left.get(object).copied().unwrap_or_else(|| stored(cx));
            left.insert(object.clone(), is);
            if *prior == Eversion::ZERO {
                // Whatever is there.
                txn.remove(&key);
                left.insert(object.clone(), Some(Eversion::ZERO));
            } else if is == Some(*prior) {
                // Whatever was lacking before.
                if self.missing.get(object).is_some_and(|item| item.need == *prior) {
                    self.missing.remove(object);
                }
            } else if !newer.contains(object) && !self.missing.contains(object) {
                lost.push((object.clone(), *prior));
            }
        }
        for (object, need) in lost {
            persist::add_damaged(txn, self.id, &object);
            self.lost_here.insert(object.clone());
            self.missing.insert(object, MissingItem { need, have: Eversion::ZERO });
        }
        self.keep_deleted(&merged.deletes, left, txn, cx);
    }

    /// Takes back what was written above a version; the versions that objects then have, `None` where that
    /// cannot be told. An object that was made again since its record was written is not what the record goes
    /// back from.
    fn undo_writes(
        &mut self,
        common: Eversion,
        txn: &mut Txn,
        cx: &mut Shared,
    ) -> BTreeMap<HObject, Option<Eversion>> {
        let mut left: BTreeMap<HObject, Option<Eversion>> = BTreeMap::new();
        let Backend::Coded(coded) = &mut self.backend else { return left };
        while coded.kept.back().is_some_and(|kept| kept.version > common) {
            let Some(kept) = coded.kept.pop_back() else { break };
            let key = ObjectKey::new(self.id.shard, kept.object.clone());
            let is = match left.get(&kept.object) {
                Some(is) => *is,
                None => stored_version(&mut cx.store, &key).ok(),
            };
            if !kept.goes_back_from(is) {
                coded::forget(txn, self.id, &kept);
                left.insert(kept.object, None);
                continue;
            }
            let before = coded::version_before(&mut cx.store, self.id, &kept);
            match types::is_planted!(cx.config.planted, LostShardsStay) {
                true => coded::forget(txn, self.id, &kept),
                false => coded::take_back(txn, self.id, &kept),
            }
            left.insert(kept.object, before.ok());
        }
        left
    }

    /// Removes what was deleted, and keeps it. `left` are versions that objects have by now.
    fn keep_deleted(
        &mut self,
        deletes: &[(Eversion, HObject)],
        mut left: BTreeMap<HObject, Option<Eversion>>,
        txn: &mut Txn,
        cx: &mut Shared,
    ) {
        let shuns = cx.config.keeps_deleted();
        let Backend::Coded(coded) = &mut self.backend else { return };
        for (version, object) in deletes.iter().filter(|_| !shuns) {
            let key = ObjectKey::new(self.id.shard, object.clone());
            let is_there = match left.insert(object.clone(), Some(Eversion::ZERO)) {
                Some(version) => version != Some(Eversion::ZERO),
                None => cx.store.stat(&key).is_ok_and(|stat| stat.is_some()),
            };
            if is_there {
                coded.kept.push_back(coded::keep_whole(txn, self.id, object, *version));
                txn.remove(&key);
            }
        }
    }

    /// Primary: looks every now and then whether writes have ended. While they go on, they say themselves
    /// what is needed no more.
    pub(super) fn settle_if_idle(&mut self, cx: &mut Shared) {
        let newest = self.info.last_update;
        let Backend::Coded(coded) = &mut self.backend else { return };
        let is_idle = std::mem::replace(&mut coded.seen, newest) == newest;
        if is_idle && self.writes.is_empty() {
            self.settle(cx);
        }
    }

    /// Primary: every member of the PG, which has started with enough of them, has all writes up to some
    /// version. Nobody takes them back any more: a copy that comes later took part in no such start.
    pub(super) fn settle(&mut self, cx: &mut Shared) {
        let version = self.durable_everywhere(cx);
        let is_started = self.phase == Phase::Active && self.is_writeable();
        let Backend::Coded(coded) = &mut self.backend else { return };
        if !is_started || version <= coded.settled {
            return;
        }
        coded.settled = version;
        for member in self.write_targets(cx) {
            cx.send_pg(member, self.id, self.interval(), PgBody::Settled { version });
        }
        self.forget_kept_to(version, cx);
    }

    /// Member: nobody takes back what was written up to this version.
    pub fn handle_settled(&mut self, from: PgShard, interval: Epoch, version: Eversion, cx: &mut Shared) {
        let is_of_now = from == self.primary() && interval == self.primary_interval;
        if is_of_now && self.phase == Phase::Replica {
            self.forget_kept_to(version.min(self.info.last_update), cx);
        }
    }

    /// Lets the records up to a version go, some in each transaction.
    fn forget_kept_to(&mut self, version: Eversion, cx: &mut Shared) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        let mut left = coded.kept.iter().take_while(|kept| kept.version <= version).count();
        while left > 0 {
            let mut txn = Txn::new();
            let some = left.min(FORGET_AT_ONCE);
            coded.kept.drain(..some).for_each(|kept| coded::forget(&mut txn, self.id, &kept));
            cx.submit(txn, Done::Nothing);
            left -= some;
        }
    }

    /// A new interval has told nobody anything. What was learnt of members is the primary's while it stays.
    pub(super) fn begin_coded(&mut self, is_primary: bool) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        if !is_primary {
            coded.newer.clear();
            coded.doubted.clear();
        }
        coded.readable.clear();
        coded.inquiries = Inquiries::default();
        coded.told.clear();
        coded.refused.clear();
        (coded.settled, coded.seen) = (Eversion::ZERO, Eversion::ZERO);
    }

    /// Copy outside of the PG: a range of a shard as it was before lost writes, which nobody takes back here.
    pub(super) fn read_before_lost(&self, ask: &ShardAsk, cx: &mut Shared) -> Option<Bytes> {
        let Backend::Coded(coded) = &self.backend else { return None };
        let is = stored_version(&mut cx.store, &self.object_key(&ask.object)).ok()?;
        if self.phase != Phase::Stray || is == ask.version || coded.kept.is_empty() {
            return None;
        }
        let (newest_first, range) = (coded.kept.iter().rev(), (ask.offset, ask.len));
        let (store, versions) = (&mut cx.store, (is, ask.version));
        coded::read_before(store, self.id, &ask.object, newest_first, versions, range).ok()?
    }

    /// Forgets what takes writes of these objects back, which are deleted and were damaged here: what the
    /// records keep is damaged too. If the deletions are lost, the objects are missing.
    pub(super) fn forget_records_of(&mut self, objects: &[HObject], txn: &mut Txn) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        if objects.is_empty() {
            return;
        }
        coded.kept.retain(|kept| {
            let stays = !objects.contains(&kept.object);
            if !stays {
                coded::forget(txn, self.id, kept);
            }
            stays
        });
    }

    /// Gives a child what takes writes of its objects back, and what members have said of its objects.
    pub(super) fn divide_records(
        &mut self,
        child: &mut Self,
        moves: impl Fn(&HObject) -> bool,
        store: &mut Store,
        txn: &mut Txn,
    ) -> Result<(), LoadError> {
        self.forget_newest();
        let (Backend::Coded(ours), Backend::Coded(theirs)) = (&mut self.backend, &mut child.backend) else {
            return Ok(());
        };
        // A copy that has begun no interval yet has not read its own.
        ours.read_kept(self.id, store)?;
        (theirs.kept, ours.kept) = std::mem::take(&mut ours.kept).into_iter().partition(|k| moves(&k.object));
        theirs.kept.iter().for_each(|kept| coded::hand_over(txn, self.id, child.id, kept));
        theirs.is_kept_read = true;
        (theirs.newer, ours.newer) = std::mem::take(&mut ours.newer).into_iter().partition(|(o, _)| moves(o));
        Ok(())
    }

    /// Forgets what was kept, known yet or not: all members have it.
    pub(crate) fn forget_all_kept(&mut self, txn: &mut Txn, cx: &mut Shared) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        match coded.read_kept(self.id, &mut cx.store) {
            Ok(()) => coded.kept.drain(..).for_each(|kept| coded::forget(txn, self.id, &kept)),
            Err(e) => cx.fail(FatalReason::Store(e.to_string())),
        }
    }

    /// Forgets what was kept: the copy begins anew.
    pub(super) fn forget_kept(&mut self, txn: &mut Txn) {
        self.forget_newest();
        let Backend::Coded(coded) = &mut self.backend else { return };
        coded.kept.drain(..).for_each(|kept| coded::forget(txn, self.id, &kept));
    }

    /// Checks the invariants that the module states.
    pub(super) fn assert_backend(&self) {
        assert_eq!(self.backend.is_coded(), self.is_coded(), "{}", self.id);
        let Backend::Coded(coded) = &self.backend else { return };
        let in_order = coded.kept.iter().zip(coded.kept.iter().skip(1)).all(|(a, b)| a.version < b.version);
        assert!(in_order, "1: records of {}", self.id);
    }
}

impl Ready {
    pub fn into_parts(self) -> (Txn, Shipped, After) {
        (self.own, self.shipped, self.after)
    }
}

fn check_size(txn: &mut Txn) -> Result<(), StoreError> {
    match txn.seal().len().saturating_add(txn.payload_len()) > WRITE_MAX {
        true => Err(StoreError::Misuse(Misuse::TxnTooLarge)),
        false => Ok(()),
    }
}

/// A transaction's change list, which it keeps for the log, and payloads; a single payload is shared, not
/// copied.
fn split_txn(txn: &mut Txn) -> (Bytes, Bytes) {
    let head = txn.seal();
    let mut payloads = txn.payloads();
    let payload = match (payloads.next(), payloads.next()) {
        (None, _) => Bytes::new(),
        (Some(one), None) => one.clone(),
        (Some(one), Some(two)) => {
            let mut all = BytesMut::with_capacity(txn.payload_len());
            all.extend_from_slice(one);
            all.extend_from_slice(two);
            payloads.for_each(|p| all.extend_from_slice(p));
            all.freeze()
        }
    };
    (head, payload)
}
