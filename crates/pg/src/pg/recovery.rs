//! Log-based recovery: the primary first fetches what it lacks itself, then sends members what they lack. Objects go whole.
//!
//! Requests wait only for the objects they touch; such objects go first.

use std::collections::BTreeSet;
use std::ops::Bound;

use maps::flags::map_flags;
use store::{Priority, StoreError, Txn};
use types::{Eversion, HObject};

use super::batch::{MAX_WANTS, Pushes};
use super::repair::damaged_object;
use super::room::Taken;
use super::{Pg, Phase, persist};
use crate::io::LogLevel;
use crate::object::{LoadError, stored_version};
use crate::osd::shared::{Done, PgDone, Shared};
use crate::peer::{ObjectName, ObjectPush, PgBody};

/// Omap entries read in one step.
const OMAP_PAGE: usize = 1_024;
const OMAP_PAGE_BYTES: usize = 8 << 20;

/// An object in recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recovering {
    /// Asked of that OSD.
    Pulling { from: i32 },
    /// Arrived; not durable here yet.
    Storing,
    /// Sent to these; not durable there yet.
    Pushing { to: BTreeSet<i32> },
}

impl Pg {
    /// Whether a read of the object must wait.
    pub fn is_unreadable(&self, object: &HObject) -> bool {
        self.missing.contains(object)
    }

    /// Whether a write of the object must wait: a member lacks it, or it is being copied to a backfill target.
    pub fn is_degraded(&self, object: &HObject) -> bool {
        self.missing.contains(object)
            || self.peers.iter().any(|(osd, p)| {
                p.missing.as_ref().is_some_and(|m| m.contains(object))
                    && (self.acting().contains(osd) || self.backfills.contains_key(osd))
            })
            || self.backfills.values().any(|b| b.is_copying(object))
    }

    /// Puts a request aside until the object is whole, and recovers that object now.
    pub fn wait_for_object(&mut self, object: &HObject, op: super::ClientOp, cx: &mut Shared) {
        if !self.recovering.contains_key(object) {
            self.recover_object(object, cx);
        }
        if !self.backs_off_object(&op, object, cx) {
            self.waiting_for_object.entry(object.clone()).or_default().push_back(op);
        }
    }

    /// Keeps as many objects in recovery as the OSD allows; then backfill; then the PG may be clean.
    pub fn continue_recovery(&mut self, cx: &mut Shared) {
        if self.phase != Phase::Active {
            return;
        }
        self.finish_ranges(cx);
        let norecover = cx.map.test_flag(map_flags::NORECOVER);
        let yields = !self.forced.recovery && self.others_go_first(cx);
        if !norecover && !yields {
            self.recover_more(cx);
        }
        self.continue_backfill(cx);
        self.update_forced(cx);
        self.check_clean(cx);
    }

    /// Begins the recovery of as many objects as may be in it; whoever could do more waits for a turn.
    fn recover_more(&mut self, cx: &mut Shared) {
        while let Some(object) = self.next_to_recover(cx) {
            if !cx.may_recover() || cx.must_queue(self.id) {
                cx.recovery_waits.insert(self.id);
                return;
            }
            if !self.recover_object(&object, cx) {
                // The others need not wait for it.
                self.unfound.insert(object);
            }
        }
    }

    /// Which of the objects that are missing here nobody who is known has, whether or not one may be recovered now.
    pub(super) fn find_unfound(&mut self, cx: &mut Shared) {
        let sought = self.missing.iter().filter(|(o, _)| !self.recovering.contains_key(*o));
        let unfound = sought.filter(|(o, item)| !self.peers.values().any(|p| p.has(o, item.need)));
        let unfound: BTreeSet<HObject> = unfound.map(|(o, _)| o.clone()).collect();
        for object in &unfound {
            if self.lamented.insert(object.clone()) {
                cx.cluster_log(LogLevel::Error, format!("pg {} object {object} is unfound", self.id));
            }
        }
        self.report |= unfound != self.unfound;
        self.unfound = unfound;
    }

    pub(super) fn next_to_recover(&self, cx: &Shared) -> Option<HObject> {
        let idle = |o: &&HObject| !self.recovering.contains_key(*o) && !self.unfound.contains(*o);
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
            self.ask_for(from, object, need, cx);
            self.begin(object, Recovering::Pulling { from }, cx);
            return true;
        }
        let lacks = |p: &super::Peer| p.missing.as_ref().is_some_and(|m| m.contains(object));
        let targets = self.write_targets(cx);
        let to: BTreeSet<i32> =
            targets.into_iter().filter(|o| self.peers.get(o).is_some_and(lacks)).collect();
        !to.is_empty() && self.push_object(object, to, cx)
    }

    pub(super) fn begin(&mut self, object: &HObject, how: Recovering, cx: &mut Shared) {
        if self.recovering.insert(object.clone(), how).is_none() {
            cx.recovery_begun();
        }
    }

    pub(super) fn finish(&mut self, object: &HObject, cx: &mut Shared) {
        if self.recovering.remove(object).is_some() {
            cx.recovery_active = cx.recovery_active.saturating_sub(1);
        }
    }

    /// Sends an object to members; false when it cannot be read here.
    pub fn push_object(&mut self, object: &HObject, to: BTreeSet<i32>, cx: &mut Shared) -> bool {
        let push = match self.read_object(object, cx) {
            Ok(Some(push)) => push,
            Ok(None) => {
                let text = format!("pg {} object {object} should be here and is not", self.id);
                cx.cluster_log(LogLevel::Error, text);
                return false;
            }
            Err(LoadError::Store(e)) if damaged_object(&e).is_some() => {
                return self.begin_repair(object, &e, cx) && self.recover_object(object, cx);
            }
            Err(e) => {
                cx.cluster_log(
                    LogLevel::Error,
                    format!("pg {} object {object} cannot be read: {e}", self.id),
                );
                return false;
            }
        };
        for osd in &to {
            self.send_object(*osd, push.clone(), cx);
        }
        self.begin(object, Recovering::Pushing { to }, cx);
        true
    }

    /// The whole object as it is now; `None` when it does not exist.
    pub(super) fn read_object(
        &self,
        object: &HObject,
        cx: &mut Shared,
    ) -> Result<Option<ObjectPush>, LoadError> {
        let key = self.object_key(object);
        let version = stored_version(&mut cx.store, object)?;
        let Some(stat) = cx.store.stat(&key)?.filter(|_| version != Eversion::ZERO) else { return Ok(None) };
        let mut push = ObjectPush {
            object: ObjectName(object.clone()),
            version,
            size: stat.size,
            attrs: cx.store.attrs(&key)?,
            ..ObjectPush::default()
        };
        for (offset, len) in cx.store.extents(&key, 0, stat.size)? {
            push.extents.push((offset, cx.store.read(&key, offset, len)?));
        }
        if stat.has_omap {
            push.omap_header = cx.store.omap_header(&key)?;
            let mut from: Option<bytes::Bytes> = None;
            loop {
                let bound = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let (page, more) = cx.store.omap_list(&key, bound, OMAP_PAGE, OMAP_PAGE_BYTES)?;
                from = page.last().map(|(k, _)| k.clone());
                push.omap.extend(page);
                if !more || from.is_none() {
                    break;
                }
            }
        }
        Ok(Some(push))
    }

    /// A copy is asked for objects.
    pub fn handle_pull(
        &mut self,
        from: i32,
        reply: types::Epoch,
        wants: Vec<(HObject, Eversion)>,
        cx: &mut Shared,
    ) {
        let mut answer = Pushes::default();
        for (object, need) in wants.into_iter().take(MAX_WANTS) {
            match self.read_object(&object, cx) {
                Ok(Some(push)) if push.version == need => {
                    self.answer_with(from, reply, push, &mut answer, cx);
                    continue;
                }
                Ok(_) => {}
                Err(e) => {
                    let text = format!("pg {} object {object} cannot be read: {e}", self.id);
                    cx.cluster_log(LogLevel::Error, text);
                }
            }
            cx.send_pg(from, self.id, reply, PgBody::PullRefused { object, need });
        }
        self.send_pushes(from, reply, answer, cx);
    }

    /// The asked copy does not have the version: look elsewhere.
    pub fn handle_pull_refused(&mut self, from: i32, object: &HObject, need: Eversion, cx: &mut Shared) {
        if self.recovering.get(object) != Some(&(Recovering::Pulling { from })) {
            return;
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
        from: i32,
        reply: types::Epoch,
        pushes: Vec<ObjectPush>,
        cx: &mut Shared,
    ) -> Taken {
        let mut wanted = Vec::with_capacity(pushes.len());
        for push in pushes {
            if self.is_reverted_from(from, &push.object.0, push.version) {
                self.reverted(push, cx);
            } else if self.is_wanted(from, &push, cx) {
                wanted.push(push);
            }
        }
        if wanted.is_empty() {
            return Taken::Done;
        }
        let mut txn = Txn::new();
        for push in &wanted {
            self.store_object(push, &mut txn);
            persist::forget_missing(&mut txn, self.id, &push.object.0);
        }
        match self.is_primary(cx) {
            true => self.store_pulled(wanted, txn, cx),
            false => self.store_pushed(reply, wanted, txn, cx),
        }
    }

    fn is_wanted(&self, from: i32, push: &ObjectPush, cx: &Shared) -> bool {
        if !self.is_primary(cx) {
            return from == self.primary() && self.phase == Phase::Replica;
        }
        let object = &push.object.0;
        self.recovering.get(object) == Some(&(Recovering::Pulling { from }))
            && self.missing.get(object).is_some_and(|i| i.need == push.version)
    }

    /// Primary: what came is no longer missing when it is durable.
    fn store_pulled(&mut self, pushes: Vec<ObjectPush>, txn: Txn, cx: &mut Shared) -> Taken {
        let done = PgDone::Pulled { objects: names(&pushes) };
        let done = Done::Pg { id: self.id, interval: self.interval(), what: done };
        match cx.try_submit(txn, Priority::Member, done) {
            Ok(_) => {
                for push in pushes {
                    self.recovering.insert(push.object.0, Recovering::Storing);
                }
            }
            Err(StoreError::Full { .. }) => return Taken::NoRoom(PgBody::Push(pushes)),
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
        let lacked: Vec<_> = pushes
            .iter()
            .filter_map(|p| Some((p.object.0.clone(), self.missing.remove(&p.object.0)?)))
            .collect();
        self.update_last_complete();
        self.save_info(&mut txn);
        let done = PgDone::Pushed { objects: names(&pushes) };
        let done = Done::Pg { id: self.id, interval: self.interval(), what: done };
        match cx.try_submit(txn, Priority::Member, done) {
            Ok(_) => self.primary_interval = reply,
            Err(StoreError::Full { .. }) => {
                for (object, item) in lacked {
                    self.missing.insert(object, item);
                }
                self.info.last_complete = before;
                return Taken::NoRoom(PgBody::Push(pushes));
            }
            Err(e) => self.store_failed(&e, cx),
        }
        Taken::Done
    }

    pub(super) fn store_object(&self, push: &ObjectPush, txn: &mut Txn) {
        let key = self.object_key(&push.object.0);
        txn.remove(&key).touch(&key);
        for (offset, data) in &push.extents {
            txn.write(&key, *offset, data.clone());
        }
        txn.truncate(&key, push.size);
        for (name, value) in &push.attrs {
            txn.set_attr(&key, name.clone(), value.clone());
        }
        if !push.omap_header.is_empty() {
            txn.omap_set_header(&key, push.omap_header.clone());
        }
        if !push.omap.is_empty() {
            txn.omap_set(&key, push.omap.clone());
        }
    }

    /// Primary: pulled objects are durable here.
    pub fn pulled(&mut self, objects: &[(HObject, Eversion)], cx: &mut Shared) {
        for (object, version) in objects {
            if self.missing.get(object).is_some_and(|i| i.need == *version) {
                self.missing.remove(object);
            }
            self.finish(object, cx);
        }
        self.update_last_complete();
        self.objects_recovered(objects.iter().map(|(o, _)| o), cx);
    }

    /// Member: pushed objects are durable here.
    pub fn pushed(&mut self, objects: Vec<(HObject, Eversion)>, cx: &mut Shared) {
        cx.send_pg(self.primary(), self.id, self.primary_interval, PgBody::PushAck { objects });
    }

    /// Primary: pushed objects are durable on a member.
    pub fn handle_push_ack(&mut self, from: i32, objects: &[(HObject, Eversion)], cx: &mut Shared) {
        let mut whole = Vec::with_capacity(objects.len());
        let mut some = false;
        for (object, _) in objects {
            let Some(Recovering::Pushing { to }) = self.recovering.get_mut(object) else { continue };
            if !to.remove(&from) {
                continue;
            }
            some = true;
            let all = to.is_empty();
            if let Some(missing) = self.peers.get_mut(&from).and_then(|p| p.missing.as_mut()) {
                missing.remove(object);
            }
            self.backfill_pushed(from, object);
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

    /// Requests for these go on, and so does recovery.
    fn objects_recovered<'a>(&mut self, objects: impl Iterator<Item = &'a HObject>, cx: &mut Shared) {
        for object in objects {
            self.report = true;
            if let Some(waiting) = self.waiting_for_object.remove(object) {
                self.let_go(waiting, cx);
            }
            self.release_object_backoffs(object, cx);
        }
        self.continue_recovery(cx);
    }

    /// Copies that could have been a source are gone: ask others for what was asked of them.
    pub fn sources_gone(&mut self, gone: &[i32], cx: &mut Shared) {
        let lost = self
            .recovering
            .iter()
            .filter(|(_, r)| matches!(r, Recovering::Pulling { from } if gone.contains(from)));
        let lost: Vec<HObject> = lost.map(|(o, _)| o.clone()).collect();
        for object in lost {
            self.reverting.remove(&object);
            self.finish(&object, cx);
        }
        self.find_unfound(cx);
        self.continue_recovery(cx);
    }

    /// A copy outside the acting set has stated its info: it may hold what nobody else has, or be of no use any more.
    pub fn stray_appeared(&mut self, cx: &mut Shared) {
        if self.is_clean() {
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
            && self.acting().len() == usize::from(self.key.size)
    }

    fn check_clean(&mut self, cx: &mut Shared) {
        let targets = self.write_targets(cx);
        let whole = self.missing.is_empty()
            && self.recovering.is_empty()
            && targets.iter().all(|o| self.peers.get(o).is_some_and(super::Peer::is_whole));
        if !whole || self.phase != Phase::Active {
            return;
        }
        self.recount_if_due(cx);
        if self.is_clean() {
            return;
        }
        if self.acting() != self.up() {
            if self.can_return_to_up(cx) {
                return self.request_acting(self.up(), cx);
            }
            // Whoever of the up set does not serve yet is being backfilled.
            if self.up().iter().any(|o| !self.acting().contains(o)) {
                return;
            }
        }
        if self.acting().len() < usize::from(self.key.size) {
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
        let keep: BTreeSet<i32> = self.acting().iter().chain(self.up()).copied().collect();
        let strays: Vec<i32> = self.peers.keys().copied().filter(|o| !keep.contains(o)).collect();
        for osd in strays {
            if let Some(peer) = self.peers.remove(&osd) {
                if !peer.info.does_not_exist() {
                    cx.send_pg(osd, self.id, self.interval(), PgBody::Remove);
                }
            }
        }
    }
}

/// Which objects these are, in which version.
fn names(pushes: &[ObjectPush]) -> Vec<(HObject, Eversion)> {
    pushes.iter().map(|p| (p.object.0.clone(), p.version)).collect()
}
