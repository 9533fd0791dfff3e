//! Deleting a copy: its pool is gone, or the PG is clean without it.
//!
//! A mark is made first, so that a copy which lost some of its objects never passes for a whole one: a restart goes on
//! deleting.

use bytes::Bytes;
use store::{ObjectKey, Space, Store, StoreError, Txn};
use types::{HObject, SpgId};

use crate::io::FatalReason;
use crate::osd::shared::{Done, Shared};

const MARK: &[u8] = b"r";
/// Objects removed in one transaction.
const BATCH: usize = 256;

/// Whether the deletion of a PG was under way.
pub(crate) fn is_marked(store: &mut Store, id: SpgId) -> Result<bool, StoreError> {
    Ok(store.get(Space::Pg(id), MARK)?.is_some())
}

/// Removes a copy: every object of `range`, then its own keys.
pub(crate) fn remove_copy(id: SpgId, range: &(HObject, HObject), cx: &mut Shared) {
    let mut txn = Txn::new();
    txn.set(Space::Pg(id), Bytes::from_static(MARK), Bytes::new());
    cx.submit(txn, Done::Nothing);
    loop {
        let batch = match cx.store.list(id.shard, &range.0, &range.1, BATCH) {
            Ok(batch) => batch,
            Err(e) => return cx.fail(FatalReason::Store(e.to_string())),
        };
        let mut txn = Txn::new();
        for object in &batch {
            txn.remove(&ObjectKey::new(id.shard, object.clone()));
        }
        if batch.len() < BATCH {
            txn.drop_space(Space::Pg(id));
            return cx.submit(txn, Done::Nothing);
        }
        cx.submit(txn, Done::Nothing);
        if cx.fatal.is_some() {
            return;
        }
    }
}
