//! What is stored beside an object's data: its info (attribute `_`), the snapshots of its head (`ss`), and clients' own
//! attributes under names with a leading `_`.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, Encode};
use store::{ObjectKey, Store, StoreError};
use types::{EntityAddr, EntityName, Eversion, ReqId, Utime};

/// Attribute that holds the `ObjectInfo`.
pub const INFO_ATTR: &[u8] = b"_";
/// Attribute of a head that holds its `SnapSet`.
pub const SNAPSET_ATTR: &[u8] = b"ss";

/// The store's name of a client's attribute.
pub fn user_attr(name: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(name.len() + 1);
    out.push(b'_');
    out.extend_from_slice(name);
    out.into()
}

/// A client's attribute name from the store's; `None` for our own.
pub fn user_attr_name(stored: &[u8]) -> Option<&[u8]> {
    stored.strip_prefix(b"_").filter(|n| !n.is_empty())
}

/// Bits of `ObjectInfo::flags`. Source: object_info_t::flag_t in src/osd/osd_types.h.
pub mod info_flags {
    pub const WHITEOUT: u32 = 1 << 1;
    pub const DIRTY: u32 = 1 << 2;
    pub const OMAP: u32 = 1 << 3;
    pub const DATA_DIGEST: u32 = 1 << 4;
    pub const OMAP_DIGEST: u32 = 1 << 5;
    pub const CACHE_PIN: u32 = 1 << 6;
}

/// A registered watch, as it survives restarts. Source: watch_info_t in src/osd/osd_types.h.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchInfo {
    pub cookie: u64,
    pub timeout_seconds: u32,
    pub addr: EntityAddr,
}

codec::wire_struct!(WatchInfo(1, 1) { cookie, timeout_seconds, addr });

/// Our own form of what Ceph calls object_info_t; it never goes to a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectInfo {
    /// The log entry that last changed the object.
    pub version: Eversion,
    pub prior_version: Eversion,
    /// The version that clients see and assert.
    pub user_version: u64,
    pub last_reqid: ReqId,
    /// Bytes.
    pub size: u64,
    /// The client's time of the last change, and ours.
    pub mtime: Utime,
    pub local_mtime: Utime,
    /// Bits of `info_flags`.
    pub flags: u32,
    pub truncate_seq: u32,
    pub truncate_size: u64,
    /// crc32c of data and omap, valid with their flags.
    pub data_digest: u32,
    pub omap_digest: u32,
    pub expected_object_size: u64,
    pub expected_write_size: u64,
    pub alloc_hint_flags: u32,
    /// By cookie and watcher.
    pub watchers: BTreeMap<(u64, EntityName), WatchInfo>,
}

codec::wire_struct!(ObjectInfo(1, 1) {
    version, prior_version, user_version, last_reqid, size, mtime, local_mtime, flags, truncate_seq, truncate_size,
    data_digest, omap_digest, expected_object_size, expected_write_size, alloc_hint_flags, watchers,
});

impl ObjectInfo {
    pub fn test(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// One clone of a head. Source: SnapSet in src/osd/osd_types.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CloneInfo {
    /// Snapshots that this clone serves, newest first.
    pub snaps: Vec<u64>,
    /// Bytes.
    pub size: u64,
    /// Ranges (offset, length) that the clone shares with the next newer one or the head.
    pub overlap: Vec<(u64, u64)>,
}

codec::wire_struct!(CloneInfo(1, 1) { snaps, size, overlap });

/// The snapshots of an object; kept with the head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapSet {
    /// The newest snapshot that a write has seen.
    pub seq: u64,
    /// By the clone's id: the newest snapshot it serves.
    pub clones: BTreeMap<u64, CloneInfo>,
}

codec::wire_struct!(SnapSet(1, 1) { seq, clones });

/// An object as operations see it: whether it is there, and what is stored beside its data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectState {
    pub exists: bool,
    pub info: ObjectInfo,
    /// Empty for clones.
    pub snapset: SnapSet,
}

/// An object's metadata could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("metadata of an object: {0}")]
    Decode(#[from] codec::DecodeError),
}

impl ObjectState {
    /// Whether clients see the object: it exists, and not only for the sake of its clones.
    pub fn is_present(&self) -> bool {
        self.exists && !self.info.test(info_flags::WHITEOUT)
    }

    /// Reads an object's state; one without an info attribute does not exist.
    pub fn load(store: &mut Store, key: &ObjectKey) -> Result<Self, LoadError> {
        let [info, snapset] = store.attr_pair(key, [INFO_ATTR, SNAPSET_ATTR])?;
        let Some(raw) = info else { return Ok(Self::default()) };
        let info = ObjectInfo::from_bytes(raw)?;
        let snapset = match snapset {
            Some(raw) => SnapSet::from_bytes(raw)?,
            None => SnapSet::default(),
        };
        Ok(Self { exists: true, info, snapset })
    }

    /// Adds the attributes that hold this state to a transaction. `is_head` says whether there is a snapset.
    pub fn save(&self, key: &ObjectKey, is_head: bool, txn: &mut store::Txn) {
        txn.set_attr(key, Bytes::from_static(INFO_ATTR), self.info.to_bytes());
        if is_head && self.snapset != SnapSet::default() {
            txn.set_attr(key, Bytes::from_static(SNAPSET_ATTR), self.snapset.to_bytes());
        }
    }
}

/// The version of a stored object; zero when it is not there.
pub fn stored_version(store: &mut Store, key: &ObjectKey) -> Result<Eversion, LoadError> {
    match store.attr(key, INFO_ATTR)? {
        Some(raw) => Ok(ObjectInfo::from_bytes(raw)?.version),
        None => Ok(Eversion::ZERO),
    }
}
