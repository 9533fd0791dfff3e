//! Giving up objects that nobody has: an older version takes their place, or they are deleted.
//!
//! Each becomes a write that carries the whole object, or its deletion, to every member: nobody lacks it afterwards.
//!
//! Source: PrimaryLogPG::mark_all_unfound_lost.

use codec::{Decode, Encode};
use messages::osd::{MOsdOpReply, flags};
use store::Txn;
use types::{EntityName, Errno, Eversion, HObject};

use super::client::ClientOp;
use super::replicate::Write;
use super::writes::InFlight;
use super::{Pg, Phase, persist};
use crate::entry::{EntryKind, LogEntry};
use crate::exec::Executed;
use crate::io::LogLevel;
use crate::object::{INFO_ATTR, ObjectInfo};
use crate::osd::shared::{Done, Shared};

impl Pg {
    /// Gives up all unfound objects; the answer's text.
    pub fn mark_unfound_lost(&mut self, revert: bool, cx: &mut Shared) -> Result<String, (Errno, String)> {
        if !self.is_primary(cx) || self.phase != Phase::Active || !self.is_writeable() {
            return Err((Errno::EAGAIN, "not primary, or not active".into()));
        }
        let objects: Vec<HObject> = self.unfound.iter().cloned().collect();
        if objects.is_empty() {
            return Ok("pg has no unfound objects".into());
        }
        let count = objects.len();
        for object in objects {
            let what = if revert { "reverted" } else { "deleted" };
            let text = format!("pg {} object {object} is lost for good: {what}", self.id);
            cx.cluster_log(LogLevel::Error, text);
            self.give_up(&object, revert, cx);
        }
        self.recount(cx);
        self.update_last_complete();
        self.report = true;
        self.continue_recovery(cx);
        Ok(format!("pg has {count} objects unfound and apparently lost marking"))
    }

    fn give_up(&mut self, object: &HObject, revert: bool, cx: &mut Shared) {
        let version = self.next_version(cx);
        let key = self.object_key(object);
        let mut txn = Txn::new();
        let old = if revert { self.older(object, version, cx) } else { None };
        let (kind, user_version) = match &old {
            Some((push, user_version)) => {
                self.store_object(push, &mut txn);
                (EntryKind::Modify, *user_version)
            }
            None => {
                txn.remove(&key);
                (EntryKind::Delete, self.info.last_user_version + 1)
            }
        };
        self.unfound.remove(object);
        self.lamented.remove(object);
        self.missing.remove(object);
        for peer in self.peers.values_mut() {
            if let Some(missing) = &mut peer.missing {
                missing.remove(object);
            }
        }
        persist::forget_missing(&mut txn, self.id, object);
        let entry = LogEntry {
            kind,
            object: object.clone(),
            version,
            prior_version: Eversion::ZERO,
            user_version,
            reqid: Default::default(),
            mtime: cx.now.wall,
            return_code: 0,
            op_returns: Vec::new(),
        };
        let op = ClientOp::internal(self.id, object, EntityName::osd(cx.whoami), Vec::new(), cx);
        let reply = MOsdOpReply::to(&op.msg, 0, cx.epoch(), flags::ACK | flags::ONDISK);
        let in_flight =
            InFlight { version, object: object.head(), op, reply, resends: Vec::new(), effects: Vec::new() };
        let write = Write { txn, entries: vec![entry], in_flight, executed: Executed::default() };
        if let Err((e, _)) = self.issue(write, cx) {
            return self.store_failed(&e, cx);
        }
        if let Some(waiting) = self.waiting_for_object.remove(object) {
            self.let_go(waiting, cx);
        }
        self.release_object_backoffs(object, cx);
    }

    /// What is here of the object, as its new version.
    fn older(
        &mut self,
        object: &HObject,
        version: Eversion,
        cx: &mut Shared,
    ) -> Option<(crate::peer::ObjectPush, u64)> {
        let mut push = self.read_object(object, cx).ok()??;
        let raw = push.attrs.iter_mut().find(|(name, _)| name == INFO_ATTR)?;
        let mut info = ObjectInfo::from_bytes(raw.1.clone()).ok()?;
        info.prior_version = info.version;
        info.version = version;
        raw.1 = info.to_bytes();
        push.version = version;
        Some((push, info.user_version))
    }

    /// The sums spoke of what is lost.
    fn recount(&mut self, cx: &mut Shared) {
        match self.counted(cx) {
            Ok(sums) => {
                let kept = &mut self.info.sums;
                kept.objects = sums.objects;
                kept.clones = sums.clones;
                kept.bytes = sums.bytes;
                kept.whiteouts = sums.whiteouts;
                kept.objects_omap = sums.objects_omap;
                let mut txn = Txn::new();
                self.save_info(&mut txn);
                cx.submit(txn, Done::Nothing);
            }
            Err(e) => {
                let text = format!("pg {} objects cannot be counted: {e}", self.id);
                cx.cluster_log(LogLevel::Error, text);
            }
        }
    }
}
