//! Replaces data whose checksum does not hold by another member's copy, whenever a read, a write or recovery
//! finds it.
//!
//! - A primary that finds one of its objects damaged treats it as missing: the request that found it waits
//!   until the object was fetched from a member whose copy is good.
//! - A member that has to apply a write to a damaged block loses that block. It tells the primary, which
//!   sends the whole object.
//! - A member that is asked for an object and finds it damaged refuses, and gets the object from the primary
//!   later.
//!
//! Damaged metadata is not repaired: it stops the store.
//!
//! Source: PrimaryLogPG::rep_repair_primary_object in src/osd/PrimaryLogPG.cc.

use store::{Corruption, ObjectKey, StoreError, Txn};
use types::{Errno, Eversion, HObject, PgShard};

use super::{ClientOp, Pg, Phase, persist};
use crate::MissingItem;
use crate::exec::NOBODY;
use crate::io::LogLevel;
use crate::object::stored_version;
use crate::osd::shared::{Done, Shared};
use crate::peer::PgBody;

/// Damaged objects that a copy remembers. The next deep scrub finds any more.
const MAX_REPORTS: usize = 4_096;

/// Damaged shards that a member tells its primary of at a time. It tells of the next when these are made
/// again.
const TOLD_AT_ONCE: usize = 1_024;

/// The object whose data is damaged, if the error is about damaged data.
pub(super) fn damaged_object(e: &StoreError) -> Option<HObject> {
    match e {
        StoreError::Corrupt(Corruption::Data { key, .. }) => Some(key.object.clone()),
        _ => None,
    }
}

impl Pg {
    /// Makes a request that found damaged data wait until the object was replaced, and then run again. EIO
    /// when no other copy can replace it.
    pub(super) fn repair_for(&mut self, op: ClientOp, object: &HObject, e: &StoreError, cx: &mut Shared) {
        let head = object.head();
        if self.writes.lock(&head).is_some() {
            // While a write is in flight, the members' copies may not be the newest.
            if op.conn != NOBODY {
                self.writes.wait(&head, op);
            }
            return;
        }
        if !self.begin_repair(object, &e.to_string(), cx) {
            return op.refuse(Errno::EIO, cx);
        }
        if op.conn != NOBODY {
            return self.wait_for_object(object, op, cx);
        }
        // The OSD made the request itself, and its maker tries again.
        if !self.recovering.contains_key(object) {
            self.recover_object(object, cx);
        }
    }

    /// Primary: marks the object as missing here, so that it is fetched. False when that cannot be done now:
    /// no member has the object, a write of it is in flight, or the PG is not active.
    pub(super) fn begin_repair(&mut self, object: &HObject, why: &str, cx: &mut Shared) -> bool {
        if self.is_coded() {
            self.lost_shards(vec![object.clone()], cx);
            self.repair_own(object, cx);
            return self.missing.contains(object);
        }
        if self.missing.contains(object) {
            return true;
        }
        let need = stored_version(&mut cx.store, &self.object_key(object)).unwrap_or(Eversion::ZERO);
        let others = self.peers.values().any(|p| p.has(object, need));
        let now = self.phase == Phase::Active && self.writes.lock(&object.head()).is_none();
        let can = others && now && need != Eversion::ZERO;
        let what = if can { "it is fetched from another copy" } else { "no other copy can replace it now" };
        if can || self.lamented.insert(object.clone()) {
            cx.cluster_log(LogLevel::Error, format!("pg {} object {object}: {why}; {what}", self.id));
        }
        if can {
            self.missing.insert(object.clone(), MissingItem { need, have: Eversion::ZERO });
            self.update_last_complete();
            cx.counters.repairs += 1;
            self.report = true;
        }
        can
    }

    /// Member: records that these objects have lost blocks, and tells the primary. A write met a damaged
    /// block, or it copied from an object that had lost some.
    pub(super) fn tell_damaged(&mut self, lost: Vec<ObjectKey>, cx: &mut Shared) {
        if lost.is_empty() {
            return;
        }
        if self.is_coded() {
            return self.lost_shards(lost.into_iter().map(|key| key.object).collect(), cx);
        }
        let mut txn = Txn::new();
        for key in lost {
            if self.lost_here.len() < MAX_REPORTS {
                persist::add_damaged(&mut txn, self.id, &key.object);
                self.lost_here.insert(key.object.clone());
            }
            let text = format!("pg {} object {} is damaged here; the primary sends it", self.id, key.object);
            cx.cluster_log(LogLevel::Error, text);
            let body = PgBody::Damaged { object: key.object };
            cx.send_pg(self.primary(), self.id, self.primary_interval, body);
        }
        cx.submit(txn, Done::Nothing);
    }

    /// Member: tells the primary again which objects are damaged here, because the copy was activated anew:
    /// an earlier report may have been lost, or have gone to another primary.
    pub(super) fn tell_damaged_again(&mut self, cx: &mut Shared) {
        if self.lost_here.is_empty() {
            return;
        }
        let is_coded = self.is_coded();
        if !is_coded {
            self.forget_what_is_whole(cx);
        }
        let most = if is_coded { TOLD_AT_ONCE } else { usize::MAX };
        let untold = self.lost_here.iter().filter(|o| is_coded || !self.missing.contains(o)).take(most);
        for object in untold {
            let body = PgBody::Damaged { object: object.clone() };
            cx.send_pg(self.primary(), self.id, self.primary_interval, body);
        }
    }

    /// Forgets objects that were removed, and objects whose lost blocks were all written anew: the copy here
    /// is good, and a fetched one may be worse. A shard may be of no use although its blocks are whole: its
    /// mark goes when it is made again, or when the primary says that there is no such object.
    fn forget_what_is_whole(&mut self, cx: &mut Shared) {
        let mut txn = Txn::new();
        let id = self.id;
        self.lost_here.retain(|o| {
            let lacks_data = cx.store.has_lost(&ObjectKey::new(id.shard, o.clone())) != Ok(false);
            if !lacks_data {
                persist::forget_damaged(&mut txn, id, o);
            }
            lacks_data
        });
        if !txn.is_empty() {
            cx.submit(txn, Done::Nothing);
        }
    }

    /// An object that was damaged here is removed.
    pub(super) fn forget_mark(&mut self, object: &HObject, txn: &mut Txn) {
        if self.lost_here.remove(object) {
            persist::forget_damaged(txn, self.id, object);
            self.forget_records_of(std::slice::from_ref(object), txn);
        }
    }

    /// Primary: sends a member an object whose copy is damaged there, or remembers it until it can be sent.
    pub fn handle_damaged(&mut self, from: PgShard, object: HObject, cx: &mut Shared) {
        if !self.is_primary(cx) {
            return;
        }
        if self.is_coded() {
            if !self.is_known_to_lack(from, &object) {
                self.doubt_no_more(&object);
            }
            return self.shard_is_damaged(from, object, cx);
        }
        // An object that is missing here too is fetched first: `stored_version` would be that of an older
        // object, or of none.
        let busy = self.writes.lock(&object.head()).is_some()
            || self.recovering.contains_key(&object)
            || self.missing.contains(&object);
        if busy || self.phase != Phase::Active {
            if self.damaged.len() < MAX_REPORTS {
                self.damaged.insert((object, from));
            }
            return;
        }
        let need = stored_version(&mut cx.store, &self.object_key(&object)).unwrap_or(Eversion::ZERO);
        let Some(peer) = self.peers.get_mut(&from).filter(|_| need != Eversion::ZERO) else { return };
        let missing = peer.missing.get_or_insert_default();
        missing.insert(object.clone(), MissingItem { need, have: Eversion::ZERO });
        cx.counters.repairs += 1;
        self.report = true;
        self.recover_object(&object, cx);
    }

    /// Primary: tries again to repair members' objects that had to wait, and objects that were damaged in
    /// this copy while another OSD was primary, which may not have heard of it.
    pub(super) fn repeat_repairs(&mut self, cx: &mut Shared) {
        if self.is_coded() {
            return self.repair_shards(cx);
        }
        if self.phase == Phase::Active && !self.lost_here.is_empty() {
            self.forget_what_is_whole(cx);
            for object in self.lost_here.clone() {
                if !self.missing.contains(&object)
                    && self.begin_repair(&object, "data was lost here earlier", cx)
                {
                    self.recover_object(&object, cx);
                }
            }
        }
        for (object, from) in std::mem::take(&mut self.damaged) {
            self.handle_damaged(from, object, cx);
        }
    }
}
