//! Deleting a copy: its pool is gone, or the PG is clean without it.
//!
//! A mark is made first, so that a copy which lost some of its objects never passes for a whole one: a restart goes on
//! deleting. Objects go slice by slice, the next one when the last is durable, so that clients are served between.
//!
//! Invariants:
//! 1. One slice is under way at a time.
//! 2. No copy of a pool is made here while one of that pool is being deleted: what is left goes first.

use std::time::Duration;

use bytes::Bytes;
use store::{ObjectKey, Space, Store, StoreError, Txn};
use types::{HObject, PoolId, SpgId};

use crate::io::FatalReason;
use crate::osd::shared::{Done, Shared};

const MARK: &[u8] = b"r";
/// Objects removed in one transaction.
const BATCH: usize = 256;

/// A copy on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Removal {
    pub id: SpgId,
    range: (HObject, HObject),
    /// Not before then (monotonic).
    not_before: Duration,
}

/// Whether the deletion of a PG was under way.
pub(crate) fn is_marked(store: &mut Store, id: SpgId) -> Result<bool, StoreError> {
    Ok(store.get(Space::Pg(id), MARK)?.is_some())
}

/// Begins to remove a copy: every object of `range`, then its own keys.
pub(crate) fn remove_copy(id: SpgId, range: (HObject, HObject), cx: &mut Shared) {
    let mut txn = Txn::new();
    txn.set(Space::Pg(id), Bytes::from_static(MARK), Bytes::new());
    cx.submit(txn, Done::Nothing);
    cx.removals.push_back(Removal { id, range, not_before: Duration::ZERO });
    step(cx);
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
    if !slice(&removal, Done::Removed, cx) {
        removal.not_before = now + cx.config.delete_sleep;
        cx.removals.push_front(removal);
    }
}

/// A slice is durable.
pub(crate) fn removed(cx: &mut Shared) {
    cx.removing = false;
    step(cx);
}

/// Removes all that is left of a pool's copies, at once.
pub(crate) fn finish(pool: PoolId, cx: &mut Shared) {
    let all = std::mem::take(&mut cx.removals);
    let (now, later): (Vec<Removal>, Vec<Removal>) = all.into_iter().partition(|r| r.id.pgid.pool == pool);
    cx.removals = later.into();
    for removal in now {
        while cx.fatal.is_none() && !slice(&removal, Done::Nothing, cx) {}
    }
}

/// Removes some objects; whether that was all.
fn slice(removal: &Removal, done: Done, cx: &mut Shared) -> bool {
    let Removal { id, range, .. } = removal;
    let batch = match cx.store.list(id.shard, &range.0, &range.1, BATCH) {
        Ok(batch) => batch,
        Err(e) => {
            cx.fail(FatalReason::Store(e.to_string()));
            return true;
        }
    };
    let mut txn = Txn::new();
    for object in &batch {
        txn.remove(&ObjectKey::new(id.shard, object.clone()));
    }
    let last = batch.len() < BATCH;
    if last {
        txn.drop_space(Space::Pg(*id));
    }
    cx.submit(txn, done);
    last
}
