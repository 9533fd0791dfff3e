//! What trimming removed snapshots means for one object: clones that serve no other snapshot go, and what an older clone
//! shares with them it now shares with the next newer one. Source: PrimaryLogPG::trim_object.

use maps::SnapIntervals;
use store::{ObjectKey, Store, Txn};
use types::{Eversion, SnapId};

use super::snaps::{intersect, total};
use super::{EntryDraft, ExecStop, Executed};
use crate::dirty::Dirty;
use crate::entry::EntryKind;
use crate::info::PgSums;
use crate::object::{CloneInfo, ObjectState, info_flags};

/// Takes removed snapshots out of an object's clones; `None` when it has no clone for any of them.
///
/// The head's log entry is the last one; it is a deletion when the head was kept for its clones alone, and none is left.
pub fn trim(
    store: &mut Store,
    head: &ObjectKey,
    state: &ObjectState,
    removed: &SnapIntervals,
    first_version: Eversion,
) -> Result<Option<Executed>, ExecStop> {
    let gone = |snap: &u64| removed.contains(SnapId(*snap));
    let concerned = |c: &CloneInfo| c.snaps.iter().any(gone);
    if !state.exists || !state.snapset.clones.values().any(concerned) {
        return Ok(None);
    }
    let mut state = state.clone();
    let (mut txn, mut entries, mut delta) = (Txn::new(), Vec::new(), PgSums::default());
    let mut version = first_version;
    let ids: Vec<u64> = state.snapset.clones.keys().copied().collect();
    for id in ids {
        let Some(clone) = state.snapset.clones.get_mut(&id) else { continue };
        clone.snaps.retain(|s| !gone(s));
        if !clone.snaps.is_empty() {
            continue;
        }
        remove_clone(&mut state, id, &mut delta);
        let object = head.object.at(SnapId(id));
        let key = ObjectKey::new(head.shard, object.clone());
        let info = ObjectState::load(store, &key)?.info;
        delta.objects_omap -= i64::from(info.test(info_flags::OMAP));
        txn.remove(&key);
        let prior_version = info.version;
        entries.push(EntryDraft {
            kind: EntryKind::Delete,
            object,
            version,
            prior_version,
            user_version: 0,
            dirty: Dirty::ALL,
        });
        version = Eversion::new(version.epoch, version.version + 1);
    }
    let prior_version = state.info.version;
    let whiteout = state.info.test(info_flags::WHITEOUT);
    let kind =
        if whiteout && state.snapset.clones.is_empty() { EntryKind::Delete } else { EntryKind::Modify };
    if kind == EntryKind::Delete {
        txn.remove(head);
        delta.objects -= 1;
        delta.whiteouts -= 1;
        // A deletion that left a whiteout kept the flag.
        delta.objects_omap -= i64::from(state.info.test(info_flags::OMAP));
        state = ObjectState::default();
    } else {
        state.info.prior_version = prior_version;
        state.info.version = version;
        state.save(head, true, &mut txn);
    }
    let dirty = Dirty::of(&txn, head);
    entries.push(EntryDraft {
        kind,
        object: head.object.clone(),
        version,
        prior_version,
        user_version: 0,
        dirty,
    });
    Ok(Some(Executed { txn, entries, new_state: Some(state), delta, ..Executed::default() }))
}

/// Takes a clone out of the snapset: the next older one shares with its new neighbour what it shared with this one, as far
/// as this one shared it.
fn remove_clone(state: &mut ObjectState, id: u64, delta: &mut PgSums) {
    let clones = &mut state.snapset.clones;
    let Some(gone) = clones.remove(&id) else { return };
    let bytes = |c: &CloneInfo| c.size as i64 - total(&c.overlap) as i64;
    delta.objects -= 1;
    delta.clones -= 1;
    delta.bytes -= bytes(&gone);
    if let Some((_, older)) = clones.range_mut(..id).next_back() {
        delta.bytes -= bytes(older);
        older.overlap = intersect(&older.overlap, &gone.overlap);
        delta.bytes += bytes(older);
    }
}
