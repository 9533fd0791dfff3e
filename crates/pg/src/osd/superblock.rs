//! What an OSD remembers of itself, and the maps it keeps: keys of the store's meta space.
//!
//! Invariants:
//! 1. Maps from `oldest_map` to `current_epoch` are all stored, whole and (but for the first of a run) as increments.
//! 2. Every PG in the store has followed the maps up to `current_epoch`: both move in one transaction.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode};
use maps::OsdMap;
use store::{Space, Store, StoreError, Txn};
use types::{Epoch, Fsid, OsdId};

const SUPERBLOCK: &[u8] = b"superblock";

/// See the module's invariants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Superblock {
    /// Zero until the first map arrived.
    pub cluster_fsid: Fsid,
    pub whoami: OsdId,
    pub current_epoch: Epoch,
    pub oldest_map: Epoch,
    /// The last epoch in which this OSD was up; before that the one in which it first asked to be, when nothing that an
    /// earlier life held was missing here.
    pub mounted: Epoch,
    /// Everything up to here was shut down cleanly.
    pub clean_thru: Epoch,
    /// The last stop was clean.
    pub clean: bool,
}

codec::wire_struct!(Superblock(1, 1) {
    cluster_fsid, whoami, current_epoch, oldest_map, mounted, clean_thru, clean,
});

/// The meta space could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MetaError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{what}: {error}")]
    Decode { what: &'static str, error: DecodeError },
}

fn epoch_key(kind: &str, e: Epoch) -> Bytes {
    let mut k = kind.as_bytes().to_vec();
    k.extend_from_slice(&e.0.to_be_bytes());
    k.into()
}

impl Superblock {
    pub fn read(store: &mut Store) -> Result<Option<Self>, MetaError> {
        let Some(raw) = store.get(Space::Meta, SUPERBLOCK)? else { return Ok(None) };
        Self::from_bytes(raw).map(Some).map_err(|error| MetaError::Decode { what: "superblock", error })
    }

    pub fn save(&self, txn: &mut Txn) {
        txn.set(Space::Meta, Bytes::from_static(SUPERBLOCK), self.to_bytes());
    }
}

pub(crate) fn put_full_map(txn: &mut Txn, e: Epoch, raw: Bytes) {
    txn.set(Space::Meta, epoch_key("full.", e), raw);
}

pub(crate) fn put_increment(txn: &mut Txn, e: Epoch, raw: Bytes) {
    txn.set(Space::Meta, epoch_key("inc.", e), raw);
}

pub(crate) fn forget_maps_before(txn: &mut Txn, from: Epoch, to: Epoch) {
    txn.unset_range(Space::Meta, epoch_key("full.", from), epoch_key("full.", to));
    txn.unset_range(Space::Meta, epoch_key("inc.", from), epoch_key("inc.", to));
}

/// A stored map; `None` when it was trimmed.
pub(crate) fn full_map(store: &mut Store, e: Epoch) -> Result<Option<OsdMap>, MetaError> {
    let Some(raw) = store.get(Space::Meta, &epoch_key("full.", e))? else { return Ok(None) };
    OsdMap::from_bytes(raw).map(Some).map_err(|error| MetaError::Decode { what: "OSD map", error })
}

/// A stored map as it came.
pub(crate) fn full_map_raw(store: &mut Store, e: Epoch) -> Result<Option<Bytes>, StoreError> {
    store.get(Space::Meta, &epoch_key("full.", e))
}

pub(crate) fn increment_raw(store: &mut Store, e: Epoch) -> Result<Option<Bytes>, StoreError> {
    store.get(Space::Meta, &epoch_key("inc.", e))
}
