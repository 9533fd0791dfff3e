//! Bytes of erasure-coded objects that a request needs, read of shards: of the data alone where all of it is
//! there, else of what makes up for it.
//!
//! ```text
//! client_op ─► run ─► gather ─► (ShardRead to members, ShardPart back) ─► gathered ─► client_op ─► run
//! ```
//! Invariants:
//! 1. A request that gathers is in `Shared::reads` and in `Pg::reading`, under one number; so others wait for
//!    it as for a read of the device. Everything waits for a write.
//! 2. Shards are asked when there is room for what they give (`osd::gathers`), as it is planned in the end.
//! 3. A range is put together from shards that have the object in one version, the primary's. A shard that
//!    has another, or none, or whose bytes are damaged, refuses; the range is then read without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use codec::{Decode, Encode};
use erasure::{ChunkSet, CodecError, StripedRead};
use store::{Found, StoreError};
use types::{Epoch, Errno, Eversion, HObject, PgShard};

use super::backend::Backend;
use super::client::ClientOp;
use super::rebuild::place;
use super::repair::damaged_object;
use super::{Pg, persist};
use crate::coded::Needed;
use crate::exec;
use crate::io::LogLevel;
use crate::object::{LoadError, ObjectState, stored_version};
use crate::osd::account::Kept;
use crate::osd::device_reads::ShardRead;
use crate::osd::gathers::{Counted, May};
use crate::osd::shared::{Done, Shared};
use crate::peer::{MESSAGE_MAX, PgBody, ShardAsk};
use store::Txn;

/// The shard has another version of the object.
const STALE: Errno = Errno(116);

/// A copy gives nothing of its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub why: Errno,
    /// The version that it has, where it is another than was asked for.
    pub has: Eversion,
}

impl Refusal {
    fn of(why: Errno) -> Self {
        Self { why, has: Eversion::ZERO }
    }

    /// Whether it says that the shard is not there, not in that version, or does not pass its checksum. Any
    /// other reason, a size that is too large say, tells nothing of the shard.
    pub fn is_lack(self) -> bool {
        [Errno::ENOENT, STALE, Errno::EIO].contains(&self.why)
    }

    /// Whether nothing of the object is there, not even what is damaged.
    pub fn is_absence(self) -> bool {
        self.why == STALE && self.has == Eversion::ZERO
    }

    /// What a message says.
    fn read(result: i32, data: Bytes) -> Self {
        let why = Errno(result.saturating_neg());
        let has = if why == STALE { Eversion::from_bytes(data).unwrap_or_default() } else { Eversion::ZERO };
        Self { why, has }
    }
}

/// Why the store gives nothing: damage alone is told as such.
fn refused(e: &StoreError) -> Errno {
    if damaged_object(e).is_some() { Errno::EIO } else { Errno::EAGAIN }
}

/// What is gathered for one request.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    wanted: Vec<Wanted>,
    /// Which range of which of these a question is for, and whom it went to.
    asked: BTreeMap<u32, (usize, usize, PgShard)>,
    /// What is read, and what is put together of it.
    bytes: u64,
    /// `None` while it waits for room.
    counted: Option<(Vec<Arc<Counted>>, Kept)>,
}

impl Gather {
    /// What it comes to as it is planned now.
    fn planned(&self) -> u64 {
        let bytes = |wanted: &Wanted| {
            let read = wanted.read.ranges().iter().map(|range| range.len);
            read.fold(wanted.what.range.end - wanted.what.range.start, u64::saturating_add)
        };
        self.wanted.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Gives up what it has asked, and what it holds: all is planned anew when there is room.
    fn begin_anew(&mut self) {
        self.counted = None;
        self.asked.clear();
        for wanted in &mut self.wanted {
            wanted.questions.clear();
            wanted.pieces.fill(Bytes::new());
        }
    }
}

/// One range of an object.
#[derive(Debug)]
struct Wanted {
    what: Needed,
    version: Eversion,
    /// Copies that have refused.
    without: BTreeSet<PgShard>,
    holders: BTreeMap<usize, PgShard>,
    read: StripedRead,
    pieces: Vec<Bytes>,
    /// Its questions in `Gather::asked`.
    questions: Vec<u32>,
}

impl Pg {
    /// Has shards read for a request, which runs again then.
    pub(super) fn gather(&mut self, mut op: ClientOp, head: &HObject, needs: Vec<Needed>, cx: &mut Shared) {
        let id = match op.reading.filter(|_| self.is_reading(head, &op)) {
            Some(id) => id,
            None => cx.reads.number(),
        };
        op.reading = Some(id);
        self.begin_reading(head, id, op.kind.writes);
        cx.reads.hold(id, op);
        let mut gather = Gather::default();
        let mut object = None;
        let planned = needs.into_iter().try_for_each(|what| {
            object = Some(what.object.clone());
            let version = self.version_of(&what.object, cx).map_err(|_| CodecError::OutOfRange)?;
            let without = BTreeSet::new();
            let (read, holders) = self.plan_read(&what, version, &without, cx)?;
            let pieces = vec![Bytes::new(); read.ranges().len()];
            let questions = Vec::new();
            gather.wanted.push(Wanted { what, version, without, holders, read, pieces, questions });
            Ok(())
        });
        if let Err(e) = planned {
            return self.gave_up(id, object.as_ref(), &e, cx);
        }
        gather.bytes = gather.planned();
        let Backend::Coded(coded) = &mut self.backend else { return };
        let bytes = gather.bytes;
        coded.gathers.insert(id, gather);
        let may = |op: &ClientOp| cx.may_gather(op.conn, bytes) == May::Now;
        match !cx.gathers.is_queued() && cx.reads.get(id).is_some_and(may) {
            true => self.begin_gather(id, false, cx),
            false => cx.gathers.wait(self.id, id),
        }
    }

    /// How many bytes a request gathers that waits for room; `None` if it does not.
    pub fn waits_to_gather(&self, id: u64) -> Option<u64> {
        let Backend::Coded(coded) = &self.backend else { return None };
        coded.gathers.get(&id).filter(|gather| gather.counted.is_none()).map(|gather| gather.bytes)
    }

    /// There is room for what the request gathers: shards are asked. Copies may be gone by now if it has
    /// waited for that.
    pub fn begin_gather(&mut self, id: u64, has_waited: bool, cx: &mut Shared) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        let Some((mut gather, op)) = coded.gathers.remove(&id).zip(cx.reads.get(id)) else { return };
        let (counted, asks) = cx.count_gather(op, gather.bytes);
        gather.counted = Some((vec![counted], asks));
        for at in 0..gather.wanted.len() {
            match has_waited {
                true => self.plan_anew(&mut gather, id, at, true, cx),
                false => self.ask_shards(&mut gather, id, at, cx),
            }
        }
        self.keep_gather(id, gather, cx);
    }

    /// How to read a range from the copies that have the object, without some of them; and these copies.
    fn plan_read(
        &self,
        what: &Needed,
        version: Eversion,
        without: &BTreeSet<PgShard>,
        cx: &Shared,
    ) -> Result<(StripedRead, BTreeMap<usize, PgShard>), CodecError> {
        let Backend::Coded(coded) = &self.backend else { return Err(CodecError::OutOfRange) };
        let geometry = coded.geometry.as_ref().ok_or(CodecError::OutOfRange)?;
        let holders = self.holders(&what.object, version, without, cx);
        let there: ChunkSet = holders.keys().copied().collect();
        Ok((geometry.stripes.read(&geometry.codec, what.range.clone(), there)?, holders))
    }

    /// Asks the holders for a range, this copy among them.
    fn ask_shards(&mut self, gather: &mut Gather, id: u64, at: usize, cx: &mut Shared) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        let Some(wanted) = gather.wanted.get_mut(at) else { return };
        let mut asks = Vec::with_capacity(wanted.read.ranges().len());
        for (slot, range) in wanted.read.ranges().iter().enumerate() {
            let Some(copy) = wanted.holders.get(&range.shard).copied() else { continue };
            coded.questions = coded.questions.wrapping_add(1);
            gather.asked.insert(coded.questions, (at, slot, copy));
            wanted.questions.push(coded.questions);
            let ask = ShardAsk {
                id,
                place: coded.questions,
                object: wanted.what.object.clone(),
                version: wanted.version,
                offset: range.offset,
                len: range.len,
            };
            asks.push((slot, copy, ask));
        }
        let me = self.me(cx);
        for (slot, copy, ask) in asks {
            // A request that gathers once more has others go first: it may do so for each of its operations.
            let at_once = copy == me && cx.reads.get(id).is_some_and(|op| op.gathered.is_none());
            if let Some(data) = at_once.then(|| self.read_at_once(&ask, cx)).flatten() {
                gather.asked.remove(&ask.place);
                let piece = gather.wanted.get_mut(at).and_then(|wanted| wanted.pieces.get_mut(slot));
                piece.into_iter().for_each(|piece| *piece = data.clone());
                continue;
            }
            cx.send_pg(copy, self.id, self.interval(), PgBody::ShardRead(Box::new(ask)));
        }
    }

    /// A range of this copy's own shard, where nothing has to be waited for. Whatever stands against it is
    /// dealt with when this copy is asked as others are.
    fn read_at_once(&mut self, ask: &ShardAsk, cx: &mut Shared) -> Option<Bytes> {
        self.may_read_shard(ask, cx).ok()?;
        match cx.store.read_at_once(&self.object_key(&ask.object), ask.offset, ask.len) {
            Ok(Found::Data(data)) if data.len() as u64 == ask.len => Some(data),
            _ => None,
        }
    }

    /// What a request reads, if that is all it does and it has gathered nothing yet. What is not durable yet
    /// it may not see.
    pub(super) fn will_need(&self, op: &ClientOp, head: &HObject, state: &ObjectState) -> Option<Needed> {
        if !self.is_coded() || op.kind.writes || op.gathered.is_some() || self.writes.lock(head).is_some() {
            return None;
        }
        let range = exec::of_head(state, op.msg.object.snap, &op.msg.ops)?;
        Some(Needed { object: head.clone(), range })
    }

    /// A range of an object of which this copy's attributes are right, if it lies in one chunk that this copy
    /// has, and the device need not be waited for.
    pub(super) fn read_of_own(&mut self, what: &Needed, cx: &mut Shared) -> Option<Bytes> {
        let Backend::Coded(coded) = &self.backend else { return None };
        let there = coded.geometry.as_ref()?.stripes.within_chunk(what.range.clone())?;
        let is_mine = there.shard == place(self.me(cx));
        if !is_mine || self.missing.contains(&what.object) || self.lost_here.contains(&what.object) {
            return None;
        }
        match cx.store.read_at_once(&self.object_key(&what.object), there.offset, there.len) {
            Ok(Found::Data(data)) if data.len() as u64 == there.len => Some(data),
            _ => None,
        }
    }

    /// Takes what a shard answered; without that, the range is planned anew.
    fn take_shard(
        &mut self,
        gather: &mut Gather,
        id: u64,
        place: u32,
        read: Result<Bytes, Refusal>,
        cx: &mut Shared,
    ) {
        let Some((at, slot, copy)) = gather.asked.remove(&place) else { return };
        let Some(wanted) = gather.wanted.get_mut(at) else { return };
        let len = wanted.read.ranges().get(slot).map_or(0, |range| range.len);
        let refusal = match read {
            // All that is asked for lies within the shards.
            Ok(bytes) if bytes.len() as u64 != len => Refusal::of(Errno::EIO),
            Ok(bytes) => {
                wanted.pieces.get_mut(slot).into_iter().for_each(|piece| *piece = bytes.clone());
                return;
            }
            Err(e) => e,
        };
        let object = wanted.what.object.clone();
        wanted.without.insert(copy);
        let version = wanted.version;
        if self.is_acting(copy) && self.learn_newer(&object, (version, refusal.has), cx) {
            gather.wanted.clear();
            gather.asked.clear();
            let why = CodecError::OutOfRange;
            return self.gave_up(id, Some(&object), &why, cx);
        }
        if refusal.is_lack() {
            self.note_refusal(&object, version, copy, &refusal.why.to_string(), cx);
        }
        // No recovery brings what is there and cannot be had.
        self.plan_anew(gather, id, at, refusal.is_lack(), cx);
    }

    /// Plans a range without copies that give nothing of it. `waits`: if too few are left, the request waits
    /// for more.
    fn plan_anew(&mut self, gather: &mut Gather, id: u64, at: usize, waits: bool, cx: &mut Shared) {
        let Some(wanted) = gather.wanted.get_mut(at) else { return };
        for question in wanted.questions.drain(..) {
            gather.asked.remove(&question);
        }
        let object = wanted.what.object.clone();
        let planned = self.plan_read(&wanted.what, wanted.version, &wanted.without, cx);
        match planned {
            Ok((read, holders)) => {
                wanted.holders = holders;
                wanted.pieces = vec![Bytes::new(); read.ranges().len()];
                wanted.read = read;
                if self.has_room(gather, id, cx) {
                    self.ask_shards(gather, id, at, cx);
                }
            }
            Err(e) => {
                gather.wanted.clear();
                gather.asked.clear();
                self.gave_up(id, Some(&object).filter(|_| waits), &e, cx);
            }
        }
    }

    /// Counts what a range takes more that is planned anew: without one of its shards, others make up for it.
    /// If there is no room for that, the request waits and holds nothing.
    fn has_room(&self, gather: &mut Gather, id: u64, cx: &mut Shared) -> bool {
        let bytes = gather.planned();
        let more = bytes.saturating_sub(gather.bytes);
        gather.bytes = gather.bytes.max(bytes);
        let Some((counted, _)) = &mut gather.counted else { return false };
        let Some(op) = cx.reads.get(id).filter(|_| more > 0) else { return true };
        if cx.may_gather(op.conn, more) == May::Now {
            counted.push(cx.count_gather(op, more).0);
            return true;
        }
        gather.begin_anew();
        cx.gathers.wait(self.id, id);
        false
    }

    /// Copies that may have been asked are gone, and will not answer: what they were asked for is planned
    /// anew.
    pub(super) fn gather_without(&mut self, gone: &[PgShard], cx: &mut Shared) {
        let Backend::Coded(coded) = &mut self.backend else { return };
        let asks = |gather: &Gather| gather.asked.values().any(|(_, _, copy)| gone.contains(copy));
        let ids: Vec<u64> = coded.gathers.iter().filter(|(_, g)| asks(g)).map(|(id, _)| *id).collect();
        for id in ids {
            let Backend::Coded(coded) = &mut self.backend else { return };
            let Some(mut gather) = coded.gathers.remove(&id) else { continue };
            let of = gather.asked.values().filter(|(_, _, copy)| gone.contains(copy)).map(|(at, ..)| *at);
            for at in of.collect::<BTreeSet<usize>>() {
                gather.wanted.get_mut(at).into_iter().for_each(|wanted| wanted.without.extend(gone));
                self.plan_anew(&mut gather, id, at, true, cx);
            }
            self.keep_gather(id, gather, cx);
        }
    }

    /// Keeps what is being gathered until all of it is there.
    fn keep_gather(&mut self, id: u64, gather: Gather, cx: &mut Shared) {
        if !cx.reads.contains(id) {
            return;
        }
        if gather.asked.is_empty() && gather.counted.is_some() {
            return self.gathered(id, gather, cx);
        }
        if let Backend::Coded(coded) = &mut self.backend {
            coded.gathers.insert(id, gather);
        }
    }

    /// A member has read a range of its shard, or says why not.
    pub fn handle_shard_part(
        &mut self,
        from: PgShard,
        (id, place): (u64, u32),
        result: i32,
        data: Bytes,
        cx: &mut Shared,
    ) {
        let read = if result < 0 { Err(Refusal::read(result, data)) } else { Ok(data) };
        if let Some(object) = self.rebuild_that_asked(from, id, place) {
            return self.rebuild_part(&object, from, place, read, cx);
        }
        let Backend::Coded(coded) = &mut self.backend else { return };
        let Some(mut gather) = coded.gathers.remove(&id) else { return };
        let is_asked = gather.asked.get(&place).is_some_and(|(_, _, copy)| *copy == from);
        if is_asked {
            self.take_shard(&mut gather, id, place, read, cx);
        }
        self.keep_gather(id, gather, cx);
    }

    /// All is there: the request runs again.
    fn gathered(&mut self, id: u64, gather: Gather, cx: &mut Shared) {
        let mut found = Vec::with_capacity(gather.wanted.len());
        for wanted in gather.wanted {
            let len = wanted.what.range.end - wanted.what.range.start;
            if let (true, [piece]) = (wanted.read.is_of_data(), wanted.pieces.as_slice()) {
                if piece.len() as u64 == len {
                    found.push((wanted.what, piece.clone()));
                    continue;
                }
            }
            let pieces: Vec<&[u8]> = wanted.pieces.iter().map(Bytes::as_ref).collect();
            match wanted.read.assemble(&pieces) {
                Ok(bytes) => found.push((wanted.what, Bytes::from(bytes))),
                Err(e) => return self.gave_up(id, None, &e, cx),
            }
        }
        let Some(mut op) = cx.reads.remove(id) else { return };
        let gathered = op.gathered.get_or_insert_default();
        found.into_iter().for_each(|(what, bytes)| gathered.bytes.add(what, bytes));
        gathered.counted.extend(gather.counted.into_iter().flat_map(|(counted, _)| counted));
        let head = op.msg.object.head();
        self.client_op(cx, op);
        // Unless it needs more.
        if !cx.reads.contains(id) {
            self.read_ended(id, &head, cx);
        }
    }

    /// Too few shards have the object: the request waits until more do. When the data of too many is damaged
    /// there is nothing to wait for.
    fn gave_up(&mut self, id: u64, object: Option<&HObject>, why: &CodecError, cx: &mut Shared) {
        let Some(op) = cx.reads.remove(id) else { return };
        let head = op.msg.object.head();
        let object = object.filter(|object| !self.is_lost_for_good(object, cx));
        match object {
            Some(object) => {
                self.read_ended(id, &head, cx);
                self.wait_for_object(object, op, cx);
            }
            None => {
                cx.cluster_log(LogLevel::Error, format!("pg {} object {head}: {why}", self.id));
                op.refuse(Errno::EIO, cx);
                self.read_ended(id, &head, cx);
            }
        }
    }

    /// Refuses requests that wait for objects of which too few shards are left, and nobody is away any more
    /// who may have one.
    pub(super) fn refuse_for_lost(&mut self, cx: &mut Shared) {
        if !self.is_coded() || self.unfound.is_empty() {
            return;
        }
        let waited = self.unfound.iter().filter(|object| self.waiting_for_object.contains_key(*object));
        let waited = waited.filter(|object| !self.is_doubted(object));
        for object in waited.cloned().collect::<Vec<_>>() {
            if self.is_lost_for_good(&object, cx) {
                let waiting = self.waiting_for_object.remove(&object).unwrap_or_default();
                waiting.into_iter().for_each(|op| op.refuse(Errno::EIO, cx));
            }
        }
    }

    /// Whether all places of the PG are filled and nobody is away, and all the same too few have the object.
    pub(super) fn is_lost_for_good(&mut self, object: &HObject, cx: &mut Shared) -> bool {
        let whole = self.acting().count() == usize::from(self.key.size);
        let need = self.version_of(object, cx).unwrap_or_default();
        if need == Eversion::ZERO {
            // It was deleted.
            return false;
        }
        let holders = self.holders(object, need, &BTreeSet::new(), cx);
        whole && !self.backend.is_enough(holders.into_keys()) && self.nobody_is_away(cx)
    }

    /// Reads a range of this copy's shard for the primary, which may be this copy; the device is waited for
    /// outside the core.
    pub fn handle_shard_read(&mut self, from: PgShard, reply: Epoch, ask: Box<ShardAsk>, cx: &mut Shared) {
        let key = self.object_key(&ask.object);
        if let Some(data) = self.may_be_read(&ask).ok().and_then(|()| self.read_before_lost(&ask, cx)) {
            return self.send_part(from, reply, &ask, Ok(data), cx);
        }
        let found = self.may_read_shard(&ask, cx).and_then(|()| {
            let found = cx.store.read_at_once(&key, ask.offset, ask.len);
            found.or_else(|e| self.read_refused(&ask, &e, cx).map(Found::Data))
        });
        match found {
            Ok(Found::Data(data)) => self.send_part(from, reply, &ask, Ok(data), cx),
            Ok(Found::OnDevice(plan)) => {
                let read = ShardRead { pgid: self.id, asker: from, interval: reply, ask };
                cx.reads.add_shard(read, plan, &mut cx.out);
            }
            Err(e) => self.send_part(from, reply, &ask, Err(e), cx),
        }
    }

    /// The device has read a range of this copy's shard: as it was when it was asked for. If it came too
    /// late, or the bytes are damaged, the range is read again at once, which tells the one from the other.
    pub fn shard_was_read(&mut self, read: &ShardRead, found: Result<Bytes, StoreError>, cx: &mut Shared) {
        let ShardRead { asker, interval, ask, .. } = read;
        let found = found.or_else(|_| {
            self.may_read_shard(ask, cx)?;
            let found = cx.store.read(&self.object_key(&ask.object), ask.offset, ask.len);
            found.or_else(|e| self.read_refused(ask, &e, cx))
        });
        self.send_part(*asker, *interval, ask, found, cx);
    }

    fn send_part(
        &self,
        to: PgShard,
        reply: Epoch,
        ask: &ShardAsk,
        found: Result<Bytes, Refusal>,
        cx: &mut Shared,
    ) {
        let (result, data) = match found {
            Ok(data) => (0, data),
            Err(Refusal { why, has }) if why == STALE => (why.neg(), has.to_bytes()),
            Err(Refusal { why, .. }) => (why.neg(), Bytes::new()),
        };
        cx.send_pg(to, self.id, reply, PgBody::ShardPart { id: ask.id, place: ask.place, result, data });
    }

    /// Whether something is here to read, and the question is none for too much.
    fn may_be_read(&self, ask: &ShardAsk) -> Result<(), Refusal> {
        if self.missing.contains(&ask.object) || self.lost_here.contains(&ask.object) {
            return Err(Refusal::of(Errno::ENOENT));
        }
        if ask.len > MESSAGE_MAX as u64 / 2 {
            return Err(Refusal::of(Errno::EINVAL));
        }
        Ok(())
    }

    /// Whether the shard here is the object's, in the version that is asked for.
    fn may_read_shard(&self, ask: &ShardAsk, cx: &mut Shared) -> Result<(), Refusal> {
        if types::is_planted!(cx.config.planted, StaleShardsServe) {
            return Ok(());
        }
        self.may_be_read(ask)?;
        match stored_version(&mut cx.store, &self.object_key(&ask.object)) {
            Ok(version) if version == ask.version => Ok(()),
            // Its attributes are gone.
            Ok(Eversion::ZERO) if !self.has_nothing_of(&ask.object, cx) => Err(Refusal::of(Errno::EIO)),
            Ok(has) => Err(Refusal { why: STALE, has }),
            Err(LoadError::Decode(_)) => Err(Refusal::of(Errno::EIO)),
            Err(LoadError::Store(e)) => Err(Refusal::of(refused(&e))),
        }
    }

    /// A read has failed: damaged data is not read again.
    fn read_refused(&mut self, ask: &ShardAsk, e: &StoreError, cx: &mut Shared) -> Result<Bytes, Refusal> {
        if damaged_object(e).is_some() {
            if let Backend::Coded(coded) = &mut self.backend {
                // Its attributes are good.
                coded.readable.insert(ask.object.clone());
            }
            self.lost_shards(vec![ask.object.clone()], cx);
        }
        Err(Refusal::of(refused(e)))
    }

    /// Objects whose shard here is damaged: nothing is read of them any more.
    pub(super) fn lost_shards(&mut self, objects: Vec<HObject>, cx: &mut Shared) {
        if objects.is_empty() {
            return;
        }
        let mut txn = Txn::new();
        for object in objects.iter().filter(|o| !self.lost_here.contains(*o)) {
            persist::add_damaged(&mut txn, self.id, object);
        }
        if !txn.is_empty() {
            cx.submit(txn, Done::Nothing);
        }
        self.note_damaged(objects.into_iter().collect(), cx);
    }

    /// The store knows that these are damaged here; a member tells the primary.
    pub(super) fn note_damaged(&mut self, objects: BTreeSet<HObject>, cx: &mut Shared) {
        let is_primary = self.is_primary(cx);
        for object in objects {
            let is_new = self.lost_here.insert(object.clone());
            if is_primary {
                continue;
            }
            if is_new {
                let text = format!("pg {} object {object} is damaged here; the primary sends it", self.id);
                cx.cluster_log(LogLevel::Error, text);
            }
            cx.send_pg(self.primary(), self.id, self.primary_interval, PgBody::Damaged { object });
        }
    }
}
