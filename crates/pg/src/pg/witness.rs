//! What a member has of a range that is to be backfilled, in erasure-coded PGs. The primary's store may have
//! lost an object without a trace, or a write of it, and the target would get no shard that is of any use.
//!
//! ```text
//! begin_range ─► ask_witness ─► (ScrubRead, ScrubMap) ─► take_witness ─► compare_range
//! ```
//! What the primary learns in this way it recovers first; then the range begins again.

use bytes::Bytes;
use codec::Decode;
use types::{Eversion, HObject, PgShard};

use super::Pg;
use super::backfill::Step;
use super::scrub::{ScrubAsk, ScrubPart};
use crate::io::FatalReason;
use crate::object::{INFO_ATTR, ObjectInfo, stored_version};
use crate::osd::shared::Shared;
use crate::peer::PgBody;

/// Numbers of these questions; those of scrubs are smaller.
const FIRST: u64 = 1 << 63;

/// Whether an answer is to such a question.
pub(super) fn is_witness(id: u64) -> bool {
    id >= FIRST
}

impl Pg {
    /// Primary: asks another member for what it has of a range; false when there is none to ask.
    pub(super) fn ask_witness(&mut self, target: PgShard, end: &HObject, cx: &mut Shared) -> bool {
        let me = self.me(cx);
        let Some(witness) = self.acting().find(|copy| *copy != me).filter(|_| self.is_coded()) else {
            return false;
        };
        let Some(after) = self.backfills.get(&target).map(|b| b.last_backfill.clone()) else { return false };
        let id = FIRST | cx.reads.number();
        self.step_to(target, Step::Asking { id, end: end.clone() });
        let (begin, end) = self.bounds_between(&after, end);
        let ask = ScrubAsk { id, begin, end, deep: None };
        cx.send_pg(witness, self.id, self.interval(), PgBody::ScrubRead(Box::new(ask)));
        true
    }

    /// Primary: a member has said what it has of a range.
    pub(super) fn take_witness(&mut self, part: ScrubPart, cx: &mut Shared) {
        let asked = self.backfills.iter().find_map(|(target, b)| match &b.step {
            Step::Asking { id, end } if *id == part.id => {
                Some((*target, b.last_backfill.clone(), end.clone()))
            }
            _ => None,
        });
        let Some((target, after, end)) = asked else { return };
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

    fn step_to(&mut self, target: PgShard, step: Step) {
        if let Some(b) = self.backfills.get_mut(&target) {
            b.step = step;
        }
    }
}

/// The version that an object's attributes name; zero when they name none.
fn version_in(info: Option<&Bytes>) -> Eversion {
    let info = info.and_then(|raw| ObjectInfo::from_bytes(raw.clone()).ok());
    info.map_or(Eversion::ZERO, |info| info.version)
}
