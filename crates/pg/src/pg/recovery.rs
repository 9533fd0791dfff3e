//! Log-based recovery: the primary first fetches what it lacks itself, then sends members what they lack.
//!
//! Requests wait only for the objects they touch; such objects go first.

use std::collections::{BTreeMap, BTreeSet};

use maps::flags::map_flags;
use store::{Priority, StoreError, Txn};
use types::{Errno, Eversion, HObject, PgShard};

use super::backend::Backend;
use super::backfill::Backfill;
use super::batch::{MAX_WANTS, Pushes};
use super::client::queue_in_order;
use super::pieces::Fits;
use super::repair::damaged_object;
use super::room::Taken;
use super::{Peer, Pg, Phase, persist};
use crate::io::LogLevel;
use crate::missing::Missing;
use crate::object::LoadError;
use crate::osd::shared::{Done, PgDone, Shared};
use crate::peer::PgBody;
use crate::push::{Base, Cursor, ObjectPush, Pushed, Want};

/// An object in recovery, with the bytes that are under way of it, at least by estimate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recovering {
    /// Asked of that OSD, or arrived in part.
    Pulling { from: PgShard, bytes: u64 },
    /// Its shards are read, so that lacking ones can be made.
    Gathering { bytes: u64 },
    /// Arrived; not durable here yet.
    Storing { bytes: u64 },
    /// Sent to these; not durable there yet.
    Pushing { to: BTreeMap<PgShard, Sent> },
}

/// What a member was sent of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    base: Option<Base>,
    bytes: u64,
    next: Option<Cursor>,
}

impl Sent {
    pub(super) fn of(push: &ObjectPush) -> Self {
        Self { base: push.base.clone(), bytes: push.bytes(), next: push.next.clone() }
    }
}

impl Recovering {
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Pulling { bytes, .. } | Self::Gathering { bytes } | Self::Storing { bytes } => *bytes,
            Self::Pushing { to } => to.values().map(|s| s.bytes).sum(),
        }
    }
}

/// Whether any member lacks the object, or it is being copied to a backfill target.
pub(super) fn lacks(
    missing: &Missing,
    peers: &BTreeMap<PgShard, Peer>,
    backfills: &BTreeMap<PgShard, Backfill>,
    is_acting: impl Fn(PgShard) -> bool,
    object: &HObject,
) -> bool {
    missing.contains(object)
        || peers.iter().any(|(osd, p)| {
            p.missing.as_ref().is_some_and(|m| m.contains(object))
                && (is_acting(*osd) || backfills.contains_key(osd))
        })
        || backfills.values().any(|b| b.is_copying(object))
}

impl Pg {
    /// Whether a read of the object must wait.
    pub fn is_unreadable(&self, object: &HObject) -> bool {
        if self.is_coded() { self.lacks_attributes(object) } else { self.missing.contains(object) }
    }

    /// Whether a write of the object must wait.
    pub fn is_degraded(&self, object: &HObject) -> bool {
        lacks(&self.missing, &self.peers, &self.backfills, |copy| self.is_acting(copy), object)
    }

    /// Puts a request aside until the object is whole, and recovers that object now.
    pub fn wait_for_object(&mut self, object: &HObject, op: super::ClientOp, cx: &mut Shared) {
        if !self.recovering.contains_key(object) {
            self.recover_object(object, cx);
        }
        let is_begun = self.recovering.contains_key(object) || self.is_being_written(object);
        let is_lost = self.is_coded() && !is_begun && !self.is_doubted(object);
        if is_lost && self.is_lost_for_good(object, cx) {
            return op.refuse(Errno::EIO, cx);
        }
        if !self.backs_off_object(&op, object, cx) {
            queue_in_order(self.waiting_for_object.entry(object.clone()).or_default(), op);
        }
    }

    /// Keeps as many objects in recovery as the OSD allows; then backfill; then the PG may be clean.
    pub fn continue_recovery(&mut self, cx: &mut Shared) {
        if self.phase != Phase::Active {
            return;
        }
        self.finish_ranges(cx);
        self.recover_if_allowed(cx);
        self.continue_backfill(cx);
        self.update_forced(cx);
        self.check_clean(cx);
    }

    /// Begins to recover objects, unless the map forbids it or other PGs go first.
    pub(super) fn recover_if_allowed(&mut self, cx: &mut Shared) {
        if !self.may_recover(cx) {
            return;
        }
        // As many as may be in recovery; whoever could do more waits for a turn.
        while let Some(object) = self.next_to_recover(cx) {
            if !self.recover_in_turn(object, cx) {
                return;
            }
        }
    }

    /// Whether the map allows it, and no other PG goes first.
    pub(super) fn may_recover(&self, cx: &Shared) -> bool {
        let norecover = cx.map.test_flag(map_flags::NORECOVER);
        !norecover && (self.forced.recovery || !self.others_go_first(cx))
    }

    /// Begins the recovery of an object; false when the PG has to wait for its turn.
    pub(super) fn recover_in_turn(&mut self, object: HObject, cx: &mut Shared) -> bool {
        if !cx.may_recover() || cx.must_queue(self.id) {
            cx.recovery_waits.insert(self.id);
            return false;
        }
        if !self.recover_object(&object, cx) {
            // The others need not wait for it.
            self.unfound.insert(object);
        }
        true
    }

    /// Which of the objects that are missing nobody who is known has, or can make, whether or not one may be
    /// recovered now.
    pub(super) fn find_unfound(&mut self, cx: &mut Shared) {
        let unfound = if self.is_coded() { self.unfound_shards(cx) } else { self.unfound_copies() };
        for object in &unfound {
            if self.lamented.insert(object.clone()) {
                cx.cluster_log(LogLevel::Error, format!("pg {} object {object} is unfound", self.id));
            }
        }
        self.report |= unfound != self.unfound;
        self.unfound = unfound;
    }

    fn unfound_copies(&self) -> BTreeSet<HObject> {
        let sought = self.missing.iter().filter(|(o, _)| !self.recovering.contains_key(*o));
        let unfound = sought.filter(|(o, item)| !self.peers.values().any(|p| p.has(o, item.need)));
        unfound.map(|(o, _)| o.clone()).collect()
    }

    pub(super) fn next_to_recover(&self, cx: &Shared) -> Option<HObject> {
        let idle = |o: &&HObject| {
            let begun = self.recovering.contains_key(*o) || self.is_being_written(o);
            !begun && !self.unfound.contains(*o)
        };
        if let Some(own) = self.missing.by_version().map(|(_, o)| o).find(idle) {
            return Some(own.clone());
        }
        let targets = self.write_targets(cx);
        let lacking = targets.iter().filter_map(|o| self.peers.get(o)?.missing.as_ref());
        lacking
            .filter_map(|m| m.by_version().map(|(_, o)| o).filter(idle).find(|o| !self.missing.contains(o)))
            .next()
            .cloned()
    }

    /// Begins an object's recovery; false when nobody has it.
    pub fn recover_object(&mut self, object: &HObject, cx: &mut Shared) -> bool {
        if self.is_coded() {
            self.repair_own(object, cx);
            return self.rebuild_object(object, cx);
        }
        if let Some(item) = self.missing.get(object) {
            let need = item.need;
            let Some(from) = self.peers.iter().find(|(_, p)| p.has(object, need)).map(|(o, _)| *o) else {
                self.report |= self.unfound.insert(object.clone());
                if self.lamented.insert(object.clone()) {
                    cx.cluster_log(LogLevel::Error, format!("pg {} object {object} is unfound", self.id));
                }
                return false;
            };
            self.unfound.remove(object);
            let base = self.own_base(object, cx);
            self.pull(
                from,
                Want { object: object.clone(), need, base, from: Cursor::default(), max_bytes: 0 },
                cx,
            );
            return true;
        }
        let lacks = |p: &super::Peer| p.missing.as_ref().is_some_and(|m| m.contains(object));
        let targets = self.write_targets(cx);
        let to: BTreeSet<PgShard> =
            targets.into_iter().filter(|o| self.peers.get(o).is_some_and(lacks)).collect();
        !to.is_empty() && self.push_object(object, to, cx)
    }

    /// Asks a copy for an object, or its next piece.
    pub(super) fn pull(&mut self, from: PgShard, want: Want, cx: &mut Shared) {
        let object = want.object.clone();
        let max_bytes = cx.piece_bytes();
        // What comes is as large as the PG's objects are, on average.
        let sums = &self.info.sums;
        let expected = u64::try_from(sums.bytes / sums.objects.max(1)).unwrap_or(0);
        let expected = if self.is_coded() { 0 } else { expected };
        self.ask_for(from, Want { max_bytes, ..want }, cx);
        self.track(&object, Recovering::Pulling { from, bytes: expected.min(max_bytes) }, cx);
    }

    /// The object's recovery is as far as that.
    pub(super) fn track(&mut self, object: &HObject, how: Recovering, cx: &mut Shared) {
        cx.recovery_bytes += how.bytes();
        match self.recovering.insert(object.clone(), how) {
            Some(before) => cx.recovery_bytes = cx.recovery_bytes.saturating_sub(before.bytes()),
            None => cx.recovery_begun(),
        }
    }

    pub(super) fn finish(&mut self, object: &HObject, cx: &mut Shared) {
        if let Some(before) = self.recovering.remove(object) {
            if let Backend::Coded(coded) = &mut self.backend {
                coded.rebuilds.remove(object);
            }
            cx.recovery_active = cx.recovery_active.saturating_sub(1);
            cx.recovery_bytes = cx.recovery_bytes.saturating_sub(before.bytes());
        }
    }

    pub(super) fn is_pulling(&self, object: &HObject, asked: PgShard) -> bool {
        matches!(self.recovering.get(object), Some(Recovering::Pulling { from, .. }) if *from == asked)
    }

    /// Sends an object to members; false when it cannot be read here.
    pub fn push_object(&mut self, object: &HObject, to: BTreeSet<PgShard>, cx: &mut Shared) -> bool {
        if self.is_coded() {
            return self.rebuild_object(object, cx);
        }
        let mut bases: Vec<(Option<Base>, Vec<PgShard>)> = Vec::new();
        for osd in to {
            let base = self.base_of(osd, object, cx);
            match bases.iter_mut().find(|(b, _)| *b == base) {
                Some((_, osds)) => osds.push(osd),
                None => bases.push((base, vec![osd])),
            }
        }
        let (mut sent, mut pushes) = (BTreeMap::new(), Vec::new());
        for (base, osds) in bases {
            let Some(push) = self.piece_for_members(object, base.as_ref(), &Cursor::default(), cx) else {
                // By now it may be fetched from another copy.
                return self.recovering.contains_key(object);
            };
            sent.extend(osds.iter().map(|osd| (*osd, Sent::of(&push))));
            pushes.push((push, osds));
        }
        self.track(object, Recovering::Pushing { to: sent }, cx);
        for (push, osds) in pushes {
            osds.into_iter().for_each(|osd| self.send_object(osd, push.clone(), cx));
        }
        true
    }

    /// A piece to be sent; `None` when it cannot be read here: then the object is fetched from another copy, if there is one.
    fn piece_for_members(
        &mut self,
        object: &HObject,
        base: Option<&Base>,
        from: &Cursor,
        cx: &mut Shared,
    ) -> Option<ObjectPush> {
        let why = match self.read_piece(object, base, from, cx.piece_bytes(), cx) {
            Ok(Some(push)) => return Some(push),
            Ok(None) => "should be here and is not".to_owned(),
            Err(LoadError::Store(e)) if damaged_object(&e).is_some() => {
                self.finish(object, cx);
                if self.begin_repair(object, &e.to_string(), cx) {
                    self.recover_object(object, cx);
                }
                return None;
            }
            Err(e) => format!("cannot be read: {e}"),
        };
        cx.cluster_log(LogLevel::Error, format!("pg {} object {object} {why}", self.id));
        None
    }

    /// A copy is asked for objects. What answers them all together has not much more bytes than one piece.
    pub fn handle_pull(&mut self, from: PgShard, reply: types::Epoch, wants: Vec<Want>, cx: &mut Shared) {
        let mut answer = Pushes::default();
        let mut left = cx.config.recovery_max_chunk;
        for want in wants.into_iter().take(MAX_WANTS) {
            let Want { object, need, base, from: at, max_bytes } = want;
            let max_bytes = max_bytes.min(cx.least_piece(left));
            if self.is_coded() && self.lacks_attributes(&object) {
                cx.send_pg(from, self.id, reply, PgBody::PullRefused { object, need });
                continue;
            }
            match self.read_piece(&object, base.as_ref(), &at, max_bytes, cx) {
                Ok(Some(push)) if push.version == need => {
                    left = left.saturating_sub(push.bytes());
                    self.answer_with(from, reply, push, &mut answer, cx);
                    continue;
                }
                Ok(_) => {}
                Err(e) => {
                    let text = format!("pg {} object {object} cannot be read: {e}", self.id);
                    cx.cluster_log(LogLevel::Error, text);
                }
            }
            let refused = match self.newer_here(&object, need, cx) {
                Some(version) => PgBody::Newer { object, version },
                None if self.has_nothing_of(&object, cx) => {
                    PgBody::PullRefused { object, need: Eversion::ZERO }
                }
                None => PgBody::PullRefused { object, need },
            };
            cx.send_pg(from, self.id, reply, refused);
        }
        self.send_pushes(from, reply, answer, cx);
    }

    /// Whether no shard of an object is here, of whatever version.
    pub(super) fn has_nothing_of(&self, object: &HObject, cx: &mut Shared) -> bool {
        self.is_coded() && cx.store.stat(&self.object_key(object)) == Ok(None)
    }

    /// The asked copy does not have the version: look elsewhere.
    pub fn handle_pull_refused(&mut self, from: PgShard, object: &HObject, need: Eversion, cx: &mut Shared) {
        if !self.is_pulling(object, from) {
            return;
        }
        if self.is_coded() {
            if need != Eversion::ZERO {
                self.doubt_no_more(object);
            }
            return self.attributes_refused(object, from, cx);
        }
        if self.revert_refused(from, object, cx) {
            return;
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            let missing = peer.missing.get_or_insert_default();
            missing.insert(object.clone(), crate::MissingItem { need, have: Eversion::ZERO });
        }
        self.finish(object, cx);
        self.recover_object(object, cx);
        self.continue_recovery(cx);
    }

    /// Objects arrive: asked for by us as the primary, or sent by the primary.
    pub fn handle_push(
        &mut self,
        from: PgShard,
        reply: types::Epoch,
        pushes: Vec<ObjectPush>,
        cx: &mut Shared,
    ) -> Taken {
        if self.is_coded() && self.is_primary(cx) {
            return self.take_rebuilt(from, pushes, cx);
        }
        let mut wanted = Vec::with_capacity(pushes.len());
        let mut lacks_base = Vec::new();
        for push in pushes {
            if self.is_reverted_from(from, &push.object.0, push.version) {
                self.reverted(push, cx);
                continue;
            }
            if !self.is_wanted(from, &push, cx) || self.is_older_than_here((from, reply), &push, cx) {
                continue;
            }
            match self.fits(&push, cx) {
                Fits::Yes => wanted.push(push),
                Fits::LacksBase => lacks_base.push(Pushed { lacks_base: true, ..push.stored() }),
                Fits::OutOfOrder => {
                    let text = format!("pg {} got a piece of {} out of order", self.id, push.object.0);
                    cx.cluster_log(LogLevel::Error, text);
                }
            }
        }
        if !lacks_base.is_empty() {
            cx.send_pg(from, self.id, reply, PgBody::PushAck { objects: lacks_base });
        }
        if wanted.is_empty() {
            return Taken::Done;
        }
        let mut txn = Txn::new();
        for push in &wanted {
            cx.counters.recovery_bytes += push.bytes();
            self.store_piece(push, &mut txn);
            if push.next.is_none() {
                persist::forget_missing(&mut txn, self.id, &push.object.0);
                if self.lost_here.contains(&push.object.0) {
                    persist::forget_damaged(&mut txn, self.id, &push.object.0);
                }
            }
        }
        match self.is_primary(cx) {
            true => self.store_pulled(from, wanted, txn, cx),
            false => self.store_pushed(reply, wanted, txn, cx),
        }
    }

    fn is_wanted(&self, from: PgShard, push: &ObjectPush, cx: &Shared) -> bool {
        if !self.is_primary(cx) {
            return from == self.primary() && self.phase == Phase::Replica;
        }
        let object = &push.object.0;
        self.is_pulling(object, from) && self.missing.get(object).is_some_and(|i| i.need == push.version)
    }

    /// Primary: what came is no longer missing when it is durable.
    fn store_pulled(&mut self, from: PgShard, pushes: Vec<ObjectPush>, txn: Txn, cx: &mut Shared) -> Taken {
        let done = PgDone::Pulled { from, objects: stored(&pushes) };
        let done = Done::Pg { id: self.id, interval: self.interval(), what: done };
        match cx.try_submit(txn, Priority::Member, done) {
            Ok(_) => {
                for push in pushes {
                    let bytes = push.bytes();
                    let how = match push.next {
                        Some(_) => Recovering::Pulling { from, bytes },
                        None => Recovering::Storing { bytes },
                    };
                    self.note_piece(&push);
                    self.track(&push.object.0, how, cx);
                }
            }
            Err(StoreError::Full { .. }) => return Taken::NoRoom(PgBody::Push(pushes)),
            Err(StoreError::Misuse(e)) => self.push_refused(from, e, cx),
            Err(e) => self.store_failed(&e, cx),
        }
        Taken::Done
    }

    /// Member: the primary hears of it when it is durable.
    fn store_pushed(
        &mut self,
        reply: types::Epoch,
        pushes: Vec<ObjectPush>,
        mut txn: Txn,
        cx: &mut Shared,
    ) -> Taken {
        let before = self.info.last_complete;
        let ended = pushes.iter().filter(|p| p.next.is_none());
        let lacked: Vec<_> =
            ended.filter_map(|p| Some((p.object.0.clone(), self.missing.remove(&p.object.0)?))).collect();
        self.update_last_complete();
        self.save_info(&mut txn);
        let done = PgDone::Pushed { objects: stored(&pushes) };
        let done = Done::Pg { id: self.id, interval: self.interval(), what: done };
        match cx.try_submit(txn, Priority::Member, done) {
            Ok(_) => {
                self.primary_interval = reply;
                pushes.iter().for_each(|push| self.note_piece(push));
                self.use_place(pushes.iter().map(ObjectPush::bytes).sum(), cx);
                let lost = cx.store.take_lost();
                self.tell_damaged(lost, cx);
            }
            Err(e @ (StoreError::Full { .. } | StoreError::Misuse(_))) => {
                for (object, item) in lacked {
                    self.missing.insert(object, item);
                }
                self.info.last_complete = before;
                match e {
                    StoreError::Misuse(e) => self.push_refused(self.primary(), e, cx),
                    _ => return Taken::NoRoom(PgBody::Push(pushes)),
                }
            }
            Err(e) => self.store_failed(&e, cx),
        }
        Taken::Done
    }

    /// Logs a push that no store could take, which is the sender's mistake. The objects stay missing, and
    /// this OSD goes on.
    pub(super) fn push_refused(&self, from: PgShard, e: store::Misuse, cx: &mut Shared) {
        let text = format!("pg {} cannot store what osd.{from} sent: {e}", self.id);
        cx.cluster_log(LogLevel::Error, text);
    }

    /// Primary: pulled objects, or pieces of them, are durable here.
    pub fn pulled(&mut self, from: PgShard, objects: Vec<Pushed>, cx: &mut Shared) {
        if self.is_coded() {
            return self.own_shards_stored(&objects, cx);
        }
        let mut whole = Vec::with_capacity(objects.len());
        for Pushed { object, version, next, .. } in objects {
            let Some(next) = next else {
                if self.missing.get(&object).is_some_and(|i| i.need == version) {
                    self.missing.remove(&object);
                }
                self.finish(&object, cx);
                whole.push(object);
                continue;
            };
            let begun = self.incoming.get(&object).filter(|i| i.version == version && i.next == next);
            let Some(base) = begun.map(|i| i.base.clone()).filter(|_| self.is_pulling(&object, from)) else {
                continue;
            };
            // What is durable is not under way any more.
            self.track(&object, Recovering::Pulling { from, bytes: 0 }, cx);
            self.pull(from, Want { object, need: version, base, from: next, max_bytes: 0 }, cx);
        }
        self.update_last_complete();
        self.objects_recovered(whole.iter(), cx);
    }

    /// Member: pushed objects are durable here.
    pub fn pushed(&mut self, objects: Vec<Pushed>, cx: &mut Shared) {
        cx.send_pg(self.primary(), self.id, self.primary_interval, PgBody::PushAck { objects });
    }

    /// Primary: pushed objects, or pieces of them, are durable on a member.
    pub fn handle_push_ack(&mut self, from: PgShard, objects: &[Pushed], cx: &mut Shared) {
        let mut whole = Vec::with_capacity(objects.len());
        let mut some = false;
        for pushed in objects {
            let Some(Recovering::Pushing { to }) = self.recovering.get_mut(&pushed.object) else { continue };
            // What was sent before the object's recovery began anew is of no interest.
            let answers = |s: &Sent| pushed.lacks_base || s.next == pushed.next;
            if !to.get(&from).is_some_and(answers) {
                continue;
            }
            let Some(sent) = to.remove(&from) else { continue };
            cx.recovery_bytes = cx.recovery_bytes.saturating_sub(sent.bytes);
            some = true;
            let object = &pushed.object;
            let all = to.is_empty();
            if pushed.lacks_base && self.is_coded() {
                self.shard_lacks_base(from, object, cx);
                continue;
            }
            if let Some(next) = pushed.next.clone().filter(|_| self.is_coded()) {
                if all {
                    self.rebuild_next(object, next, cx);
                }
                continue;
            }
            if pushed.lacks_base || pushed.next.is_some() {
                self.push_on(from, pushed, sent.base, cx);
                continue;
            }
            if let Some(missing) = self.peers.get_mut(&from).and_then(|p| p.missing.as_mut()) {
                missing.remove(object);
            }
            self.backfill_pushed(from, object);
            self.has_it_now(from, object);
            if all {
                self.finish(object, cx);
                whole.push(object);
            }
        }
        if some {
            self.check_range(from, cx);
            self.objects_recovered(whole.into_iter(), cx);
        }
    }

    /// Sends a member the next piece of an object, or the first one of all of it.
    fn push_on(&mut self, osd: PgShard, pushed: &Pushed, base: Option<Base>, cx: &mut Shared) {
        let object = &pushed.object;
        let base = base.filter(|_| !pushed.lacks_base);
        if pushed.lacks_base {
            self.has_no_base(osd, object);
        }
        let from = pushed.next.clone().filter(|_| !pushed.lacks_base).unwrap_or_default();
        let Some(push) = self.piece_for_members(object, base.as_ref(), &from, cx) else {
            if !self.recovering.contains_key(object) || !self.missing.contains(object) {
                self.finish(object, cx);
                self.unfound.insert(object.clone());
            }
            return;
        };
        if let Some(Recovering::Pushing { to }) = self.recovering.get_mut(object) {
            let sent = Sent::of(&push);
            cx.recovery_bytes += sent.bytes;
            to.insert(osd, sent);
            self.send_object(osd, push, cx);
        }
    }

    /// Primary: a member says that it has nothing that a push could be based on.
    pub(super) fn has_no_base(&mut self, copy: PgShard, object: &HObject) {
        let missing = self.peers.get_mut(&copy).and_then(|p| p.missing.as_mut());
        if let Some((missing, item)) = missing.and_then(|m| m.get(object).copied().map(|i| (m, i))) {
            missing.insert(object.clone(), crate::MissingItem { have: Eversion::ZERO, ..item });
        }
    }

    /// Requests for these go on, and so does recovery.
    fn objects_recovered<'a>(&mut self, objects: impl Iterator<Item = &'a HObject>, cx: &mut Shared) {
        for object in objects {
            self.report = true;
            if let Some(waiting) = self.waiting_for_object.remove(object) {
                self.let_go(waiting, cx);
            }
            self.release_object_backoffs(object, cx);
            self.repair_shards_of(object, cx);
        }
        self.continue_recovery(cx);
    }

    /// Copies that could have been a source are gone: ask others for what was asked of them.
    pub fn sources_gone(&mut self, gone: &[PgShard], cx: &mut Shared) {
        let lost = self
            .recovering
            .iter()
            .filter(|(_, r)| matches!(r, Recovering::Pulling { from, .. } if gone.contains(from)));
        let lost: Vec<HObject> = lost.map(|(o, _)| o.clone()).collect();
        for object in lost.into_iter().chain(self.objects_asked_of(gone)) {
            self.reverting.remove(&object);
            self.finish(&object, cx);
        }
        self.gather_without(gone, cx);
        self.find_unfound(cx);
        self.continue_recovery(cx);
    }

    /// A copy outside the acting set has stated its info: it may hold what nobody else has, or be of no use any more.
    pub fn stray_appeared(&mut self, cx: &mut Shared) {
        let lacks = self.knows_of_damage() || self.lacks_objects();
        if self.is_clean() && !lacks {
            self.purge_strays(cx);
        } else if !self.unfound.is_empty() {
            self.find_unfound(cx);
            self.ask_holders(cx);
            self.continue_recovery(cx);
        }
    }

    /// Whether every copy is complete and where CRUSH wants it.
    pub fn is_clean(&self) -> bool {
        self.phase == Phase::Active
            && self.info.history.last_interval_clean == self.interval()
            && self.acting().count() == usize::from(self.key.size)
    }

    fn check_clean(&mut self, cx: &mut Shared) {
        let targets = self.write_targets(cx);
        let whole = self.missing.is_empty()
            && self.recovering.is_empty()
            && !self.knows_of_damage()
            && (targets.iter().all(|o| self.peers.get(o).is_some_and(super::Peer::is_whole))
                || types::is_planted!(cx.config.planted, CleanTooSoon));
        if !whole || self.phase != Phase::Active {
            return;
        }
        self.recount_if_due(cx);
        if self.is_clean() {
            // Those that came while something was lacking.
            self.purge_strays(cx);
            return;
        }
        if self.acting_set() != self.up_set() {
            if self.can_return_to_up(cx) {
                return self.request_acting(self.up_set(), cx);
            }
            // Whoever of the up set does not serve yet is being backfilled, or the up set is too short.
            if self.up().any(|o| !self.is_acting(o)) {
                let want = self.up_and_acting(cx).filter(|want| want != self.acting_set());
                want.into_iter().for_each(|want| self.request_acting(&want, cx));
                return;
            }
        }
        if self.acting().count() < usize::from(self.key.size) {
            return;
        }
        let was = self.cluster_state(cx);
        self.info.history.last_epoch_clean = cx.epoch();
        self.info.history.last_interval_clean = self.interval();
        self.info.history.last_clean_stamp = cx.now.wall;
        self.past.clear();
        self.force(false, true, true, cx);
        self.share_history(cx);
        self.purge_strays(cx);
        self.note_state(was, cx);
    }

    /// Copies that the clean PG does without may be deleted.
    fn purge_strays(&mut self, cx: &mut Shared) {
        let keep: BTreeSet<PgShard> = self.acting().chain(self.up()).collect();
        let strays: Vec<PgShard> = self.peers.keys().copied().filter(|o| !keep.contains(o)).collect();
        for osd in &strays {
            if let Some(peer) = self.peers.remove(osd) {
                if !peer.info.does_not_exist() {
                    cx.send_pg(*osd, self.id, self.interval(), PgBody::Remove);
                }
            }
        }
        if self.is_coded() && !strays.is_empty() {
            self.sources_gone(&strays, cx);
        }
    }
}

/// What became of these when they are durable.
fn stored(pushes: &[ObjectPush]) -> Vec<Pushed> {
    pushes.iter().map(ObjectPush::stored).collect()
}
