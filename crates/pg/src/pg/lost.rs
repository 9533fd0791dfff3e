//! Giving up objects that nobody has: an older version takes their place, or they are deleted.
//!
//! Each becomes a write that carries the whole object, or its deletion, to every member: nobody lacks it afterwards.
//!
//! Source: PrimaryLogPG::mark_all_unfound_lost.

use std::collections::BTreeSet;

use codec::{Decode, Encode};
use messages::osd::{MOsdOpReply, flags};
use store::{Misuse, StoreError, Txn};
use types::{EntityName, Errno, Eversion, HObject, PgShard};

use super::backfill::Step;
use super::client::ClientOp;
use super::replicate::{WRITE_MAX, Write};
use super::writes::InFlight;
use super::{Peer, Pg, persist};
use crate::dirty::Dirty;
use crate::entry::{EntryKind, LogEntry};
use crate::interval;
use crate::io::LogLevel;
use crate::missing::{Missing, MissingItem};
use crate::object::{INFO_ATTR, ObjectInfo, stored_version};
use crate::osd::shared::{Done, Shared};
use crate::peer::PgBody;
use crate::push::{Cursor, ObjectPush, Want};

/// An unfound object whose older version is asked of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reverting {
    from: PgShard,
    have: Eversion,
    /// Who could not read theirs.
    failed: BTreeSet<PgShard>,
    /// What has come of it.
    got: Option<ObjectPush>,
}

impl Pg {
    /// Gives up all unfound objects; the answer's text.
    pub fn mark_unfound_lost(&mut self, revert: bool, cx: &mut Shared) -> Result<String, (Errno, String)> {
        if !self.is_primary(cx) || !self.is_active() {
            return Err((Errno::EAGAIN, "not primary, or not active".into()));
        }
        if self.is_coded() && revert {
            // Older shards do not make up an older object.
            return Err((Errno::EINVAL, "mode must be 'delete' for ec pool".into()));
        }
        self.find_unfound(cx);
        let objects: Vec<HObject> = self.unfound.iter().cloned().collect();
        let count = objects.len();
        if count == 0 {
            return Ok("pg has no unfound objects".into());
        }
        if !self.ask_holders(cx) {
            let why = "unfound objects but we haven't probed all sources, not marking lost";
            return Err((Errno::EINVAL, format!("pg has {count} {why}")));
        }
        let tried = objects.iter().try_for_each(|object| match revert {
            true => self.revert(object, BTreeSet::new(), cx),
            false => self.give_up(object, None, cx),
        });
        self.continue_recovery(cx);
        match tried {
            Ok(()) => Ok(format!("pg has {count} objects unfound and apparently lost marking")),
            Err(e) => {
                Err((Errno::ENOSPC, format!("not all of {count} unfound objects are marked lost: {e}")))
            }
        }
    }

    /// Whether everybody who may hold what is unfound has said what it lacks, or is gone for good; asks the others.
    ///
    /// Source: PeeringState::all_unfound_are_queried_or_lost, PeeringState::discover_all_missing.
    pub(super) fn ask_holders(&self, cx: &mut Shared) -> bool {
        if self.unfound.is_empty() {
            return true;
        }
        let mut all_known = true;
        for osd in self.may_hold(cx) {
            let Some(state) = cx.map.osd(osd.osd) else { continue };
            let question = match self.peers.get(&osd) {
                Some(p) if p.missing.is_some() || p.info.is_empty() || !p.info.has_missing() => continue,
                Some(p) => PgBody::QueryLog { since: Eversion::new(p.info.last_epoch_started, 0) },
                None => PgBody::QueryInfo,
            };
            let lost = !state.is_up() && state.info.lost_at > state.info.up_from;
            all_known &= lost;
            if state.is_up() {
                cx.send_pg(osd, self.id, self.interval(), question);
            }
        }
        all_known
    }

    /// Copies that may hold what is unfound: of now, and of intervals before.
    fn may_hold(&self, cx: &Shared) -> BTreeSet<PgShard> {
        let members = self.acting().chain(self.up());
        let is_coded = self.is_coded();
        let past = self.past.iter().flat_map(|i| interval::copies(&i.acting, is_coded));
        let mut holders: BTreeSet<PgShard> = past.chain(members).collect();
        holders.remove(&self.me(cx));
        holders
    }

    /// Whether nobody who may hold what is unfound is away, or has not said what it lacks.
    pub(super) fn nobody_is_away(&self, cx: &Shared) -> bool {
        let is_known = |p: &Peer| p.missing.is_some() || p.info.is_empty() || !p.info.has_missing();
        self.may_hold(cx).into_iter().all(|copy| {
            let Some(state) = cx.map.osd(copy.osd) else { return true };
            let lost = !state.is_up() && state.info.lost_at > state.info.up_from;
            lost || self.peers.get(&copy).is_some_and(is_known)
        })
    }

    /// A copy outside the acting set says what it lacks: it may hold what nobody else has.
    pub(super) fn got_missing_of_stray(&mut self, from: PgShard, missing: Missing, cx: &mut Shared) {
        let Some(peer) = self.peers.get_mut(&from).filter(|p| p.missing.is_none()) else { return };
        peer.missing = Some(missing);
        self.find_unfound(cx);
        self.continue_recovery(cx);
    }

    /// The newest version that a member has takes the object's place; it is deleted when none has any. It stays unfound
    /// when there is one that cannot be read. Source: PrimaryLogPG::pick_newest_available.
    fn revert(
        &mut self,
        object: &HObject,
        mut failed: BTreeSet<PgShard>,
        cx: &mut Shared,
    ) -> Result<(), StoreError> {
        loop {
            let Some((have, _, osd)) = self.older_copies(object, &mut failed, cx).into_iter().max() else {
                if failed.is_empty() {
                    return self.give_up(object, None, cx);
                }
                let text =
                    format!("pg {} object {object} stays unfound: what is older cannot be read", self.id);
                cx.cluster_log(LogLevel::Error, text);
                self.unfound.insert(object.clone());
                return Ok(());
            };
            if osd != self.me(cx) {
                let want = Want {
                    object: object.clone(),
                    need: have,
                    base: None,
                    from: Cursor::default(),
                    max_bytes: 0,
                };
                self.pull(osd, want, cx);
                self.reverting.insert(object.clone(), Reverting { from: osd, have, failed, got: None });
                return Ok(());
            }
            match self.read_object(object, cx) {
                Ok(Some(push)) => return self.give_up(object, Some(push), cx),
                Ok(None) | Err(_) => failed.insert(osd),
            };
        }
    }

    /// The versions that members have of an object, ours before theirs, without those that failed.
    fn older_copies(
        &self,
        object: &HObject,
        failed: &mut BTreeSet<PgShard>,
        cx: &mut Shared,
    ) -> Vec<(Eversion, bool, PgShard)> {
        let mut found = Vec::new();
        for osd in self.write_targets(cx).into_iter().filter(|o| !failed.contains(o)) {
            let Some(peer) = self.peers.get(&osd).filter(|p| *object <= p.info.last_backfill) else {
                continue;
            };
            if let Some(item) = peer.missing.as_ref().and_then(|m| m.get(object)) {
                found.push((item.have, false, osd));
            }
        }
        match stored_version(&mut cx.store, &self.object_key(object)) {
            Ok(have) if !failed.contains(&self.me(cx)) => found.push((have, true, self.me(cx))),
            Ok(_) => {}
            Err(_) => {
                failed.insert(self.me(cx));
            }
        }
        found.retain(|(have, ..)| *have != Eversion::ZERO);
        found
    }

    /// Whether this is what `revert` has asked for.
    pub(super) fn is_reverted_from(&self, from: PgShard, object: &HObject, version: Eversion) -> bool {
        self.reverting.get(object).is_some_and(|r| (r.from, r.have) == (from, version))
    }

    /// The older version of an unfound object has come.
    pub(super) fn reverted(&mut self, push: ObjectPush, cx: &mut Shared) {
        let object = push.object.0.clone();
        let Some(Reverting { from, have, failed, got }) = self.reverting.remove(&object) else { return };
        let push = match got {
            Some(mut got) => {
                got.append(push);
                got
            }
            None => push,
        };
        if push.bytes() > WRITE_MAX as u64 {
            self.finish(&object, cx);
            self.stays_unfound(&object, "what is older is too large for one write", cx);
            return self.continue_recovery(cx);
        }
        if let Some(next) = push.next.clone() {
            // The write that follows carries all of it.
            let want = Want { object: object.clone(), need: have, base: None, from: next, max_bytes: 0 };
            self.pull(from, want, cx);
            self.reverting.insert(object, Reverting { from, have, failed, got: Some(push) });
            return;
        }
        self.finish(&object, cx);
        if let Err(e) = self.give_up(&object, Some(push), cx) {
            self.stays_unfound(&object, &e.to_string(), cx);
        }
        self.continue_recovery(cx);
    }

    /// The asked member cannot give its older version: somebody else's is next. Whether that was the question.
    pub(super) fn revert_refused(&mut self, from: PgShard, object: &HObject, cx: &mut Shared) -> bool {
        let Some(mut asked) = self.reverting.remove(object) else { return false };
        self.finish(object, cx);
        asked.failed.insert(from);
        if let Err(e) = self.revert(object, asked.failed, cx) {
            self.stays_unfound(object, &e.to_string(), cx);
        }
        self.continue_recovery(cx);
        true
    }

    /// Gives an object up: `older` takes its place, or nothing. Nothing has changed when there is no room for that.
    pub(super) fn give_up(
        &mut self,
        object: &HObject,
        older: Option<ObjectPush>,
        cx: &mut Shared,
    ) -> Result<(), StoreError> {
        let version = self.next_version(cx);
        let given_up = self.version_of(object, cx).unwrap_or_default();
        let mut txn = Txn::new();
        let older = match older.map(|push| as_newest(push, version)) {
            Some(None) => {
                self.stays_unfound(object, "what is older is damaged", cx);
                return Ok(());
            }
            older => older.flatten(),
        };
        let (kind, user_version, what) = match &older {
            Some((push, user_version)) => {
                self.store_piece(push, &mut txn);
                (EntryKind::Modify, *user_version, "reverted")
            }
            None => {
                txn.remove(&self.object_key(object));
                (EntryKind::Delete, self.info.last_user_version + 1, "deleted")
            }
        };
        let payload = txn.payload_len() as u64;
        self.members_have_room(&self.write_targets(cx), payload, payload == 0)?;
        persist::forget_missing(&mut txn, self.id, object);
        let lacked = self.missing.remove(object);
        let lacking =
            self.peers.iter_mut().filter_map(|(o, p)| Some((*o, p.missing.as_mut()?.remove(object)?)));
        let lacking: Vec<(PgShard, MissingItem)> = lacking.collect();
        // Whoever has what was given up keeps it when this entry comes to nothing.
        let prior = if self.is_coded() { given_up } else { lacked.map_or(Eversion::ZERO, |i| i.need) };
        let entry = lost_entry(object, kind, (version, prior), user_version, cx);
        let op = ClientOp::internal(self.id, object, EntityName::osd(cx.whoami.0), Vec::new(), cx);
        let reply = Box::new(MOsdOpReply::to(&op.msg, 0, cx.epoch(), flags::ACK | flags::ONDISK));
        let change = match self.divide(txn, &op, cx) {
            Ok(change) => change,
            Err(_) => {
                lacked.into_iter().for_each(|item| self.missing.insert(object.clone(), item));
                self.lack_again(object, lacking);
                return Err(StoreError::Misuse(Misuse::BadKey));
            }
        };
        let in_flight = InFlight::new(version, object.head(), op, reply);
        let write = Write { change, entries: vec![entry], in_flight, executed: Box::default() };
        if let Err((e, _)) = self.issue(write, cx) {
            lacked.into_iter().for_each(|item| self.missing.insert(object.clone(), item));
            self.lack_again(object, lacking);
            if !matches!(e, StoreError::Full { .. } | StoreError::Misuse(_)) {
                self.store_failed(&e, cx);
            }
            return Err(e);
        }
        cx.cluster_log(LogLevel::Error, format!("pg {} object {object} is lost for good: {what}", self.id));
        self.unfound.remove(object);
        self.lamented.remove(object);
        self.compare_again(object);
        self.update_last_complete();
        self.info.sums.uncounted += 1;
        if let Some(waiting) = self.waiting_for_object.remove(object) {
            self.let_go(waiting, cx);
        }
        self.release_object_backoffs(object, cx);
        Ok(())
    }

    /// Backfills that were to copy an object, which is deleted, compare their ranges anew.
    fn compare_again(&mut self, object: &HObject) {
        for backfill in self.backfills.values_mut().filter(|b| b.step.lacks(object)) {
            backfill.step = Step::Idle;
        }
    }

    fn stays_unfound(&mut self, object: &HObject, why: &str, cx: &mut Shared) {
        cx.cluster_log(LogLevel::Error, format!("pg {} object {object} stays unfound: {why}", self.id));
        self.unfound.insert(object.clone());
    }

    fn lack_again(&mut self, object: &HObject, lacking: Vec<(PgShard, MissingItem)>) {
        for (osd, item) in lacking {
            let missing = self.peers.get_mut(&osd).and_then(|p| p.missing.as_mut());
            missing.into_iter().for_each(|m| m.insert(object.clone(), item));
        }
    }

    /// The sums still speak of what was given up, or were divided without what was missing: counts anew, now that nothing
    /// is, and tells the members.
    pub(super) fn recount_if_due(&mut self, cx: &mut Shared) {
        if std::mem::take(&mut self.info.sums.uncounted) == 0 {
            return;
        }
        let sums = match self.counted(cx) {
            Ok(sums) => sums,
            Err(e) => {
                let text = format!("pg {} objects cannot be counted: {e}", self.id);
                return cx.cluster_log(LogLevel::Error, text);
            }
        };
        let kept = &mut self.info.sums;
        kept.objects = sums.objects;
        kept.clones = sums.clones;
        kept.bytes = sums.bytes;
        kept.whiteouts = sums.whiteouts;
        kept.objects_omap = sums.objects_omap;
        let mut txn = Txn::new();
        self.save_info(&mut txn);
        cx.submit(txn, Done::Nothing);
        for osd in self.write_targets(cx) {
            // All of them are whole.
            let body =
                PgBody::BackfillProgress { last_backfill: HObject::max(), sums: Box::new(self.info.sums) };
            cx.send_pg(osd, self.id, self.interval(), body);
        }
    }
}

/// What the log says of an object that is given up.
fn lost_entry(
    object: &HObject,
    kind: EntryKind,
    (version, prior_version): (Eversion, Eversion),
    user_version: u64,
    cx: &Shared,
) -> LogEntry {
    LogEntry {
        kind,
        object: object.clone(),
        version,
        prior_version,
        user_version,
        reqid: Default::default(),
        mtime: cx.now.wall,
        return_code: 0,
        op_returns: Vec::new(),
        dirty: Dirty::ALL,
    }
}

/// The object as its new version, with its user version; `None` when it does not say what it is.
fn as_newest(mut push: ObjectPush, version: Eversion) -> Option<(ObjectPush, u64)> {
    let raw = push.attrs.iter_mut().find(|(name, _)| name == INFO_ATTR)?;
    let mut info = ObjectInfo::from_bytes(raw.1.clone()).ok()?;
    info.prior_version = info.version;
    info.version = version;
    raw.1 = info.to_bytes();
    push.version = version;
    Some((push, info.user_version))
}
