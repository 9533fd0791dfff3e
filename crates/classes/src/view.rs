//! What a class method sees of its object, and of the request that calls it.

use std::collections::BTreeMap;

use bytes::Bytes;
use messages::osd::WatchItem;
use types::{EntityAddr, EntityName, Errno, SnapId, Utime};

/// Who sent the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    pub name: EntityName,
    pub addr: EntityAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// Bytes.
    pub size: u64,
    pub mtime: Utime,
}

/// Entries in key order, and whether more follow.
pub type KeyPage = (Vec<(Bytes, Bytes)>, bool);

/// The object that a method works on. Errors are those of the operation of the same name.
///
/// Reads see what was stored before the request: what a method has just written it does not read back. `stat` alone sees
/// sizes and existence as the method leaves them. Source: src/osd/objclass.cc.
pub trait ObjectView {
    /// ENOENT when there is no such object.
    fn stat(&mut self) -> Result<Stat, Errno>;
    /// Short at the end; length 0 means to the end.
    fn read(&mut self, offset: u64, length: u64) -> Result<Bytes, Errno>;
    /// ENODATA without the attribute, ENOENT without the object.
    fn xattr(&mut self, name: &[u8]) -> Result<Bytes, Errno>;
    fn xattrs(&mut self) -> Result<BTreeMap<Bytes, Bytes>, Errno>;
    /// Entries behind `start_after` whose keys begin with `prefix`; the OSD may return fewer than `max`.
    fn omap_list(&mut self, start_after: &[u8], prefix: &[u8], max: u64) -> Result<KeyPage, Errno>;
    /// Those of the keys that exist.
    fn omap_get(&mut self, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, Errno>;
    fn omap_header(&mut self) -> Result<Bytes, Errno>;
    fn watchers(&mut self) -> Result<Vec<WatchItem>, Errno>;
    /// The newest snapshot that the object knows; ENOENT without the object.
    fn snapset_seq(&mut self) -> Result<u64, Errno>;

    /// EEXIST when the object exists and `exclusive` is set.
    fn create(&mut self, exclusive: bool) -> Result<(), Errno>;
    fn remove(&mut self) -> Result<(), Errno>;
    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Errno>;
    fn write_full(&mut self, data: Bytes) -> Result<(), Errno>;
    fn truncate(&mut self, size: u64) -> Result<(), Errno>;
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Errno>;
    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Errno>;
    fn omap_set(&mut self, entries: BTreeMap<Bytes, Bytes>) -> Result<(), Errno>;
    fn omap_set_header(&mut self, header: Bytes) -> Result<(), Errno>;
    fn omap_remove(&mut self, key: Bytes) -> Result<(), Errno>;
    /// Removes keys from `begin` up to, without, `end`.
    fn omap_remove_range(&mut self, begin: Bytes, end: Bytes) -> Result<(), Errno>;
    fn omap_clear(&mut self) -> Result<(), Errno>;
    /// Makes the object what it was at a snapshot.
    fn rollback(&mut self, snap: SnapId) -> Result<(), Errno>;

    fn origin(&self) -> Origin;
    /// The OSD's wall clock.
    fn now(&self) -> Utime;
    /// The newest user version in the placement group.
    fn current_version(&self) -> u64;
    /// Operations that the request has done so far, counting those above that methods did, as far as they
    /// succeeded. Source: cls_current_subop_num in src/osd/objclass.cc.
    fn subop(&self) -> u32;
    /// Bytes that no other request will be given; not secret.
    fn unique(&self) -> [u8; 16];
    /// Takes what a method is about to compute without the object, in bytes looked at or made: such work
    /// costs the OSD's core time that no operation of the object accounts for. E2BIG when the request has no
    /// more left; it is then refused whole, whatever the method returns.
    fn spend(&mut self, bytes: u64) -> Result<(), Errno>;

    /// One omap value; ENOENT without the key.
    fn omap_value(&mut self, key: &[u8]) -> Result<Bytes, Errno> {
        let found = self.omap_get(&[Bytes::copy_from_slice(key)])?;
        found.into_iter().next().map(|(_, value)| value).ok_or(Errno::ENOENT)
    }
}

impl dyn ObjectView + '_ {
    /// Sets one omap value.
    pub fn put(&mut self, key: impl Into<Bytes>, value: Bytes) -> Result<(), Errno> {
        self.omap_set(BTreeMap::from([(key.into(), value)]))
    }
}
