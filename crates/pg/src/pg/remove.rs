//! Deleting a copy: its pool is gone, or the PG is clean without it.
//!
//! The copy's own keys go first, with a mark that says which objects are garbage now: a copy that lost some of its objects
//! never passes for a whole one, and a restart goes on deleting, whatever became of the pool's PGs meanwhile. Objects go slice
//! by slice, the next one when the last is durable, so that clients are served between.
//!
//! A copy that is made where garbage is left takes over that range, as one that must be backfilled from the beginning: a
//! backfill removes what does not belong, and keeps what does.
//!
//! Invariants:
//! 1. One slice is under way at a time.
//! 2. What is to be removed holds nothing of a copy that is here.
//! 3. Every removal's mark names what is left of it: all that was submitted is in it.

use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use store::{ObjectKey, Space, Store, StoreError, Txn};
use types::{HObject, SpgId};

use super::persist::{self, ReadError};
use crate::coded;
use crate::io::FatalReason;
use crate::osd::shared::{Done, Shared};
use crate::range::pg_range;

/// The mark's key, in the OSD's own space: this and the PG's id.
const MARK: &[u8] = b"remove.";
const AFTER_MARKS: &[u8] = b"remove/";
/// The mark of older releases, in the PG's space. It said nothing of the range.
const OLD_MARK: &[u8] = b"r";
/// Objects removed in one transaction.
const BATCH: usize = 256;

/// From the first object up to without the second.
type Range = (HObject, HObject);

/// What is left of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Removal {
    pub id: SpgId,
    /// Apart from each other, and none of them empty.
    ranges: Vec<Range>,
    /// Not before then (monotonic).
    not_before: Duration,
}

impl Removal {
    fn mark(&self, txn: &mut Txn) {
        let key = key(self.id);
        match self.ranges.is_empty() {
            true => txn.unset(Space::Meta, key),
            false => txn.set(Space::Meta, key, (self.id, self.ranges.clone()).to_bytes()),
        };
    }

    /// Whether it would remove any object of a range.
    pub fn meets(&self, range: &Range) -> bool {
        self.ranges.iter().any(|r| r.0 < range.1 && range.0 < r.1)
    }
}

fn key(id: SpgId) -> Bytes {
    [MARK, &id.to_bytes()].concat().into()
}

/// Whether an older release was deleting a PG.
pub(crate) fn has_old_mark(store: &mut Store, id: SpgId) -> Result<bool, StoreError> {
    Ok(store.get(Space::Pg(id), OLD_MARK)?.is_some())
}

/// The deletions that were under way.
pub(crate) fn load(store: &mut Store) -> Result<Vec<Removal>, ReadError> {
    let mut found = Vec::new();
    let mut from = MARK.to_vec();
    loop {
        let page = store.scan(Space::Meta, &from, Some(AFTER_MARKS), BATCH)?;
        let Some((last, _)) = page.last() else { return Ok(found) };
        from = [last, &[0][..]].concat();
        for (_, raw) in page {
            let (id, ranges) = <(SpgId, Vec<Range>)>::from_bytes(raw)?;
            found.push(Removal { id, ranges, not_before: Duration::ZERO });
        }
    }
}

/// Begins to remove a copy that held these objects.
pub(crate) fn remove_copy(id: SpgId, range: Range, cx: &mut Shared) {
    let mut txn = Txn::new();
    give_up(id, range, &mut txn, cx);
    cx.submit(txn, Done::Nothing);
    step(cx);
}

/// Begins to remove a copy that an older release was deleting: its mark does not say how many PGs the pool had then. Whatever
/// the copy may have held at most goes, except what is a copy's that lives here (with the number of PGs of its pool).
pub(crate) fn remove_marked(id: SpgId, alive: &[(SpgId, u32)], cx: &mut Shared) {
    let mut txn = Txn::new();
    give_up(id, pg_range(id.pgid, id.pgid.seed.saturating_add(1)), &mut txn, cx);
    for (other, pg_num) in alive {
        make_way(other.shard, &pg_range(other.pgid, *pg_num), &mut txn, cx);
    }
    cx.submit(txn, Done::Nothing);
    step(cx);
}

/// The same as part of a transaction that is submitted soon; the next step begins it.
pub(crate) fn give_up(id: SpgId, range: Range, txn: &mut Txn, cx: &mut Shared) {
    if id.shard != SpgId::NO_SHARD {
        // What it keeps to take writes back lies outside the range.
        match coded::kept_in(&mut cx.store, id) {
            Ok(kept) => kept.iter().for_each(|kept| coded::forget(txn, id, kept)),
            Err(e) => return cx.fail(FatalReason::Store(e.to_string())),
        }
        // With its marks: a copy that is made of what is left takes what it finds for good.
        match persist::damaged_in(&mut cx.store, id) {
            Ok(damaged) => damaged.into_iter().for_each(|o| {
                txn.remove(&ObjectKey::new(id.shard, o));
            }),
            Err(e) => return cx.fail(FatalReason::Store(e.to_string())),
        }
    }
    txn.drop_space(Space::Pg(id));
    let at = cx.removals.iter().position(|r| r.id == id).unwrap_or_else(|| {
        cx.removals.push_back(Removal { id, ranges: Vec::new(), not_before: Duration::ZERO });
        cx.removals.len() - 1
    });
    if let Some(removal) = cx.removals.get_mut(at) {
        removal.ranges.push(range);
        removal.mark(txn);
    }
}

/// A copy of these objects is made here: nothing of them is removed any more. Whether something was to be.
pub(crate) fn make_way(shard: i8, range: &Range, txn: &mut Txn, cx: &mut Shared) -> bool {
    let mut met = false;
    for removal in cx.removals.iter_mut().filter(|r| r.id.shard == shard && r.meets(range)) {
        met = true;
        removal.ranges = removal.ranges.iter().flat_map(|r| without(r, range)).collect();
        removal.mark(txn);
    }
    cx.removals.retain(|r| !r.ranges.is_empty());
    met
}

/// What of `all` is outside `taken`.
fn without(all: &Range, taken: &Range) -> impl Iterator<Item = Range> {
    let below = (all.0.clone(), all.1.clone().min(taken.0.clone()));
    let above = (all.0.clone().max(taken.1.clone()), all.1.clone());
    [below, above].into_iter().filter(|(from, until)| from < until)
}

/// Removes the next slice, unless one is under way.
pub(crate) fn step(cx: &mut Shared) {
    let now = cx.now.mono;
    if cx.removing || cx.fatal.is_some() {
        return;
    }
    let Some(at) = cx.removals.iter().position(|r| r.not_before <= now) else { return };
    let Some(mut removal) = cx.removals.remove(at) else { return };
    cx.removing = true;
    slice(&mut removal, cx);
    if !removal.ranges.is_empty() {
        removal.not_before = now + cx.config.delete_sleep;
        cx.removals.push_front(removal);
    }
}

/// A slice is durable.
pub(crate) fn removed(cx: &mut Shared) {
    cx.removing = false;
    step(cx);
}

/// Removes some objects.
fn slice(removal: &mut Removal, cx: &mut Shared) {
    let mut txn = Txn::new();
    let mut left = BATCH;
    while let Some((from, until)) = removal.ranges.first_mut() {
        let batch = match cx.store.list(removal.id.shard, from, until, left) {
            Ok(batch) => batch,
            Err(e) => return cx.fail(FatalReason::Store(e.to_string())),
        };
        for object in &batch {
            txn.remove(&ObjectKey::new(removal.id.shard, object.clone()));
        }
        left = left.saturating_sub(batch.len());
        if left == 0 {
            if let Some(last) = batch.into_iter().last() {
                *from = last;
            }
            break;
        }
        removal.ranges.remove(0);
    }
    removal.mark(&mut txn);
    cx.submit(txn, Done::Removed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hash: u32) -> HObject {
        HObject { hash: hash.reverse_bits(), ..HObject::min() }
    }

    #[test]
    fn what_a_new_copy_takes_is_not_removed() {
        let check = |all: (u32, u32), taken: (u32, u32), want: &[(u32, u32)]| {
            let range = |(a, b)| (at(a), at(b));
            let left: Vec<Range> = without(&range(all), &range(taken)).collect();
            assert_eq!(left, want.iter().map(|r| range(*r)).collect::<Vec<_>>(), "{all:?} without {taken:?}");
        };
        check((10, 20), (10, 20), &[]);
        check((10, 20), (0, 90), &[]);
        check((10, 20), (10, 12), &[(12, 20)]);
        check((10, 20), (18, 25), &[(10, 18)]);
        check((10, 20), (12, 15), &[(10, 12), (15, 20)]);
        check((10, 20), (20, 30), &[(10, 20)]);
        check((10, 20), (1, 10), &[(10, 20)]);
    }
}
