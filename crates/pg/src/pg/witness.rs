//! What members say that they have, in erasure-coded PGs, beside scrubs.
//!
//! Before a range is backfilled, a member lists what it has of it: the primary's store may have lost an
//! object without a trace, or a write of it, and the target would get no shard that is of any use.
//!
//! ```text
//! begin_range ─► ask_witness ─► (ScrubRead, ScrubMap) ─► take_witness ─► compare_range
//! ```
//! What the primary learns in this way it recovers first; then the range begins again.
//!
//! A copy may say that its shard is damaged of an object of which the primary knows nothing, and the log
//! neither: it was deleted long ago, or the primary has lost it without a trace. All members are asked then
//! (`inquire`). The mark goes if there is no such object; else the primary lacks it too.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::Decode;
use types::{Epoch, Eversion, HObject, PgShard};

use super::backend::Backend;
use super::backfill::Step;
use super::scrub::{ScrubAsk, ScrubPart, behind};
use super::{Pg, Phase};
use crate::io::{FatalReason, LogLevel};
use crate::object::{INFO_ATTR, ObjectInfo, stored_version};
use crate::osd::shared::Shared;
use crate::peer::PgBody;

/// Numbers of these questions; those of scrubs are smaller.
const FIRST: u64 = 1 << 63;
/// Objects that members are asked about at a time. Members tell of the others again.
const MAX_INQUIRIES: usize = 64;

/// The version of an object of which no shard that is left says what it is.
const OLDEST: Eversion = Eversion { epoch: Epoch(0), version: 1 };

/// Questions under way about objects of which the primary knows nothing, and who could not answer any.
#[derive(Debug, Default)]
pub(crate) struct Inquiries {
    by_number: BTreeMap<u64, Inquiry>,
    /// Members that could not list what they have in this interval: others are asked before them.
    failed: BTreeSet<PgShard>,
}

/// See `Inquiries`.
#[derive(Debug)]
struct Inquiry {
    object: HObject,
    /// Copies that have said that their shard is damaged.
    tellers: BTreeSet<PgShard>,
    /// Who has not answered.
    left: BTreeSet<PgShard>,
    /// Who has something of it.
    holders: BTreeSet<PgShard>,
    /// The newest version among these.
    newest: Eversion,
}

/// Whether an answer is to such a question.
pub(super) fn is_witness(id: u64) -> bool {
    id >= FIRST
}

impl Pg {
    /// Primary: asks another member for what it has of a range; false when there is none to ask.
    pub(super) fn ask_witness(&mut self, target: PgShard, end: &HObject, cx: &mut Shared) -> bool {
        let me = self.me(cx);
        let Backend::Coded(coded) = &self.backend else { return false };
        let others = || self.acting().filter(|copy| *copy != me);
        let answers = |copy: &PgShard| !coded.inquiries.failed.contains(copy);
        let Some(witness) = others().find(answers).or_else(|| others().next()) else { return false };
        let Some(after) = self.backfills.get(&target).map(|b| b.last_backfill.clone()) else { return false };
        let id = FIRST | cx.reads.number();
        self.step_to(target, Step::Asking { id, end: end.clone() });
        let (begin, end) = self.bounds_between(&after, end);
        let ask = ScrubAsk { id, begin, end, deep: None };
        cx.send_pg(witness, self.id, self.interval(), PgBody::ScrubRead(Box::new(ask)));
        true
    }

    /// Primary: a member has said what it has of a range.
    pub(super) fn take_witness(&mut self, from: PgShard, part: ScrubPart, cx: &mut Shared) {
        if let Some(why) = &part.failed {
            if self.note_failed(from) {
                let text = format!("pg {}: osd.{from} cannot list its objects: {why}", self.id);
                cx.cluster_log(LogLevel::Error, text);
            }
        }
        if self.answers_inquiry(from, &part, cx) {
            return;
        }
        let asked = self.backfills.iter().find_map(|(target, b)| match &b.step {
            Step::Asking { id, end } if *id == part.id => {
                Some((*target, b.last_backfill.clone(), end.clone()))
            }
            _ => None,
        });
        let Some((target, after, end)) = asked else { return };
        if part.failed.is_some() {
            // That says nothing of what it has. The range begins again, not at once.
            return self.step_to(target, Step::Idle);
        }
        for (object, found) in part.objects {
            let version = version_in(found.attrs.get(INFO_ATTR));
            if let Ok(stored) = stored_version(&mut cx.store, &self.object_key(&object)) {
                if self.is_stale_here(&object, stored) {
                    self.lost_stale(&object, cx);
                }
            }
            self.is_named(object, version, cx);
        }
        if !self.has_all_to_copy() || self.backfill_is_held(cx) {
            self.step_to(target, Step::Idle);
            return self.continue_recovery(cx);
        }
        match self.list_between(&after, &end, usize::MAX, cx) {
            Ok(listed) => self.compare_range(target, end, listed, cx),
            Err(e) => cx.fail(FatalReason::Store(e.to_string())),
        }
    }

    /// A member cannot list what it has; whether that is news in this interval.
    fn note_failed(&mut self, copy: PgShard) -> bool {
        let Backend::Coded(coded) = &mut self.backend else { return false };
        coded.inquiries.failed.insert(copy)
    }

    fn step_to(&mut self, target: PgShard, step: Step) {
        if let Some(b) = self.backfills.get_mut(&target) {
            b.step = step;
        }
    }

    /// Primary: asks all members whether they have an object. A copy says that its shard of it is damaged,
    /// and neither the log nor this copy's store knows of any.
    pub(super) fn inquire(&mut self, teller: PgShard, object: HObject, cx: &mut Shared) {
        let me = self.me(cx);
        let left: BTreeSet<PgShard> = self.acting().filter(|copy| *copy != me).collect();
        let Backend::Coded(coded) = &mut self.backend else { return };
        let all = &mut coded.inquiries.by_number;
        if let Some(known) = all.values_mut().find(|known| known.object == object) {
            known.tellers.insert(teller);
            return;
        }
        if all.len() >= MAX_INQUIRIES || left.is_empty() {
            return;
        }
        let id = FIRST | cx.reads.number();
        let ask = ScrubAsk { id, begin: object.clone(), end: behind(&object), deep: None };
        let (tellers, holders, newest) = (BTreeSet::from([teller]), BTreeSet::new(), Eversion::ZERO);
        all.insert(id, Inquiry { object, tellers, left: left.clone(), holders, newest });
        for copy in left {
            cx.send_pg(copy, self.id, self.interval(), PgBody::ScrubRead(Box::new(ask.clone())));
        }
    }

    /// Primary: whether this answers such a question.
    fn answers_inquiry(&mut self, from: PgShard, part: &ScrubPart, cx: &mut Shared) -> bool {
        let Backend::Coded(coded) = &mut self.backend else { return false };
        let all = &mut coded.inquiries.by_number;
        let Some(inquiry) = all.get_mut(&part.id) else { return false };
        if let Some((_, found)) = part.objects.iter().find(|(object, _)| *object == inquiry.object) {
            inquiry.holders.insert(from);
            inquiry.newest = inquiry.newest.max(version_in(found.attrs.get(INFO_ATTR)));
        }
        inquiry.left.remove(&from);
        // Whoever tells of its damage tells of it again.
        let is_over = part.failed.is_some() || inquiry.left.is_empty();
        let ended = if is_over { all.remove(&part.id) } else { None };
        if let Some(inquiry) = ended.filter(|_| part.failed.is_none()) {
            self.conclude(inquiry, cx);
        }
        true
    }

    /// Primary: all members have said whether they have an object that copies have damaged.
    fn conclude(&mut self, inquiry: Inquiry, cx: &mut Shared) {
        let Inquiry { object, tellers, mut holders, newest, .. } = inquiry;
        let is_busy = self.writes.lock(&object.head()).is_some() || self.phase != Phase::Active;
        let is_known = self.log_tells_of(&object) || self.version_of(&object, cx) != Ok(Eversion::ZERO);
        if is_busy || is_known {
            return;
        }
        let me = self.me(cx);
        if !self.has_nothing_of(&object, cx) {
            holders.insert(me);
        }
        // What one copy alone has something of has been deleted, and that copy has missed it.
        let is_alone = holders.len() < 2 && holders.is_superset(&tellers);
        let all_are_there = self.acting().count() == usize::from(self.key.size) && self.nobody_is_away(cx);
        if holders.is_empty() || is_alone && newest == Eversion::ZERO {
            if all_are_there {
                // Copies that are made by a backfill tell of damage, and are not asked.
                let is_left = !holders.is_empty() || tellers.iter().any(|copy| !self.is_acting(*copy));
                self.remove_marked(&object, &tellers, is_left, cx);
            }
            return;
        }
        // Where nobody can tell the version any more, it is an older one than any that may turn up.
        let unknown = if all_are_there { OLDEST } else { Eversion::ZERO };
        let newest = if newest == Eversion::ZERO { unknown } else { newest };
        if newest != Eversion::ZERO {
            for teller in tellers.into_iter().filter(|copy| *copy != me && !is_alone) {
                self.remember_damage(teller, object.clone());
            }
            self.is_named(object.clone(), newest, cx);
            if !is_alone {
                // Two copies have something of it, or had: it was not deleted.
                self.doubt_no_more(&object);
            }
            if self.missing.contains(&object) {
                self.recover_object(&object, cx);
            }
        }
    }

    /// Primary: there is no such object: marks of it go, and what is left of it.
    fn remove_marked(
        &mut self,
        object: &HObject,
        tellers: &BTreeSet<PgShard>,
        is_left: bool,
        cx: &mut Shared,
    ) {
        let version = if is_left { self.info.last_update } else { Eversion::ZERO };
        for copy in tellers {
            if *copy == self.me(cx) {
                self.remove_own(object, cx);
                continue;
            }
            let body = PgBody::ScrubRemove { object: object.clone(), version };
            cx.send_pg(*copy, self.id, self.interval(), body);
        }
    }
}

/// The version that an object's attributes name; zero when they name none.
fn version_in(info: Option<&Bytes>) -> Eversion {
    let info = info.and_then(|raw| ObjectInfo::from_bytes(raw.clone()).ok());
    info.map_or(Eversion::ZERO, |info| info.version)
}
