//! An object in memory for tests of methods. What a method writes becomes visible when it has returned without an error.

#![allow(clippy::indexing_slicing)] // for tests, where a panic is a finding

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use messages::osd::WatchItem;
use types::{AddrKind, EntityAddr, EntityName, Errno, SnapId, Utime};

use crate::{KeyPage, ObjectView, Origin, Stat, find};

/// Bytes that an object may hold, as an OSD bounds them.
const MAX_SIZE: u64 = 16 << 20;
/// Bytes of an attribute's name. Source: osd_max_attr_name_len in src/common/options.cc.
const MAX_NAME: usize = 100;
/// Bytes that a request may compute with, as an OSD bounds what one does.
const MAX_SPENT: u64 = 256 << 20;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct FakeObject {
    pub data: Vec<u8>,
    pub attrs: BTreeMap<Bytes, Bytes>,
    pub omap: BTreeMap<Bytes, Bytes>,
    pub header: Bytes,
}

#[derive(Debug)]
pub struct Fake {
    /// As stored.
    pub object: Option<FakeObject>,
    /// As the running method leaves it.
    next: Option<FakeObject>,
    pub now: Utime,
    /// When the object was last written.
    pub mtime: Utime,
    pub name: EntityName,
    /// Whether the caller watches the object.
    pub watches: bool,
    /// Operations that the running method has done.
    ops: u32,
    /// Bytes that the request has computed with so far.
    pub spent: u64,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            object: None,
            next: None,
            now: Utime::new(1_700_000_000, 0),
            mtime: Utime::new(1_700_000_000, 0),
            name: EntityName::client(4123),
            watches: false,
            ops: 0,
            spent: 0,
        }
    }
}

impl Fake {
    pub fn with(object: FakeObject) -> Self {
        Self { object: Some(object), ..Self::default() }
    }

    /// An object that holds text.
    pub fn with_data(data: &str) -> Self {
        Self::with(FakeObject { data: data.as_bytes().to_vec(), ..FakeObject::default() })
    }

    /// Calls a method; an error undoes what it did.
    pub fn call(
        &mut self,
        class: &str,
        method: &str,
        input: impl Into<Bytes>,
    ) -> Result<(i32, Bytes), Errno> {
        self.begin();
        let done = self.call_within(class, method, input)?;
        self.commit();
        Ok(done)
    }

    /// Begins a request of several operations, each of which reads what was there before all of them.
    pub fn begin(&mut self) {
        (self.next, self.ops, self.spent) = (self.object.clone(), 0, 0);
    }

    /// Calls a method in a request that has begun.
    pub fn call_within(
        &mut self,
        class: &str,
        method: &str,
        input: impl Into<Bytes>,
    ) -> Result<(i32, Bytes), Errno> {
        let method = find(class, method).map_err(|_| Errno::EOPNOTSUPP)?;
        if self.object.is_none() && !method.flags.write {
            return Err(Errno::ENOENT);
        }
        let mut out = Bytes::new();
        let rval = (method.run)(self, &input.into(), &mut out)?;
        Ok((rval, out))
    }

    /// The object as the request leaves it so far.
    pub fn changed(&mut self) -> &mut Option<FakeObject> {
        &mut self.next
    }

    /// Ends a request; without it nothing has changed.
    pub fn commit(&mut self) {
        self.object = self.next.clone();
    }

    /// One omap value.
    pub fn omap(&self, key: &'static str) -> Option<Bytes> {
        self.object.as_ref()?.omap.get(key.as_bytes()).cloned()
    }

    fn stored(&self) -> Result<&FakeObject, Errno> {
        self.object.as_ref().ok_or(Errno::ENOENT)
    }

    /// Does an operation of the object, which counts when it succeeds.
    fn count<T>(&mut self, op: impl FnOnce(&mut Self) -> Result<T, Errno>) -> Result<T, Errno> {
        let done = op(self)?;
        self.ops += 1;
        Ok(done)
    }

    fn made(&mut self) -> &mut FakeObject {
        self.next.get_or_insert_default()
    }
}

impl ObjectView for Fake {
    fn stat(&mut self) -> Result<Stat, Errno> {
        self.count(|f| {
            let o = f.next.as_ref().ok_or(Errno::ENOENT)?;
            Ok(Stat { size: o.data.len() as u64, mtime: f.mtime })
        })
    }
    fn read(&mut self, offset: u64, length: u64) -> Result<Bytes, Errno> {
        self.count(|f| {
            let data = f.object.as_ref().map_or(&[][..], |o| &o.data);
            let start = data.len().min(offset as usize);
            let length = if length == 0 { data.len() } else { length as usize };
            Ok(Bytes::copy_from_slice(&data[start..data.len().min(start.saturating_add(length))]))
        })
    }
    fn xattr(&mut self, name: &[u8]) -> Result<Bytes, Errno> {
        self.count(|f| f.stored()?.attrs.get(name).cloned().ok_or(Errno::ENODATA))
    }
    fn xattrs(&mut self) -> Result<BTreeMap<Bytes, Bytes>, Errno> {
        self.count(|f| Ok(f.stored()?.attrs.clone()))
    }
    fn omap_list(&mut self, start_after: &[u8], prefix: &[u8], max: u64) -> Result<KeyPage, Errno> {
        self.count(|f| {
            let empty = BTreeMap::new();
            let omap = f.object.as_ref().map_or(&empty, |o| &o.omap);
            let fits = omap.iter().filter(|(k, _)| k.as_ref() > start_after && k.starts_with(prefix));
            let all: Vec<_> = fits.map(|(k, v)| (k.clone(), v.clone())).collect();
            let more = all.len() as u64 > max;
            Ok((all.into_iter().take(max as usize).collect(), more))
        })
    }
    fn omap_get(&mut self, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, Errno> {
        self.count(|f| {
            let empty = BTreeMap::new();
            let omap = f.object.as_ref().map_or(&empty, |o| &o.omap);
            Ok(keys.iter().filter_map(|k| Some((k.clone(), omap.get(k)?.clone()))).collect())
        })
    }
    fn omap_header(&mut self) -> Result<Bytes, Errno> {
        self.count(|f| Ok(f.object.as_ref().map(|o| o.header.clone()).unwrap_or_default()))
    }
    fn watchers(&mut self) -> Result<Vec<WatchItem>, Errno> {
        self.count(|f| {
            let Origin { name, addr } = f.origin();
            let watcher = WatchItem { name, cookie: 1, timeout_s: 30, addr };
            Ok(if f.watches { vec![watcher] } else { Vec::new() })
        })
    }
    fn snapset_seq(&mut self) -> Result<u64, Errno> {
        self.stored().map(|_| 0)
    }

    fn create(&mut self, exclusive: bool) -> Result<(), Errno> {
        self.count(|f| {
            if exclusive && f.next.is_some() {
                return Err(Errno::EEXIST);
            }
            f.made();
            Ok(())
        })
    }
    fn remove(&mut self) -> Result<(), Errno> {
        self.count(|f| f.next.take().map(|_| ()).ok_or(Errno::ENOENT))
    }
    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Errno> {
        self.count(|f| {
            if offset.saturating_add(data.len() as u64) > MAX_SIZE {
                return Err(Errno::EFBIG);
            }
            let (at, o) = (offset as usize, f.made());
            o.data.resize(o.data.len().max(at + data.len()), 0);
            o.data[at..at + data.len()].copy_from_slice(&data);
            Ok(())
        })
    }
    fn write_full(&mut self, data: Bytes) -> Result<(), Errno> {
        self.count(|f| {
            f.made().data = data.to_vec();
            Ok(())
        })
    }
    fn truncate(&mut self, size: u64) -> Result<(), Errno> {
        self.count(|f| {
            if size > MAX_SIZE {
                return Err(Errno::EFBIG);
            }
            if let Some(o) = &mut f.next {
                o.data.resize(size as usize, 0);
            }
            Ok(())
        })
    }
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        self.count(|f| {
            if let Some(o) = &mut f.next {
                let (start, end) = (offset as usize, offset.saturating_add(length) as usize);
                if end >= o.data.len() {
                    // As an OSD does it, which cuts off what nothing follows.
                    o.data.truncate(start);
                } else {
                    o.data[start..end].fill(0);
                }
            }
            Ok(())
        })
    }
    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Errno> {
        self.count(|f| {
            if name.len() > MAX_NAME {
                return Err(Errno::ENAMETOOLONG);
            }
            f.made().attrs.insert(Bytes::copy_from_slice(name), value);
            Ok(())
        })
    }
    fn omap_set(&mut self, entries: BTreeMap<Bytes, Bytes>) -> Result<(), Errno> {
        self.count(|f| {
            f.made().omap.extend(entries);
            Ok(())
        })
    }
    fn omap_set_header(&mut self, header: Bytes) -> Result<(), Errno> {
        self.count(|f| {
            f.made().header = header;
            Ok(())
        })
    }
    fn omap_remove(&mut self, key: Bytes) -> Result<(), Errno> {
        self.count(|f| {
            f.next.as_mut().ok_or(Errno::ENOENT)?.omap.remove(&key);
            Ok(())
        })
    }
    fn omap_remove_range(&mut self, begin: Bytes, end: Bytes) -> Result<(), Errno> {
        self.count(|f| {
            f.next.as_mut().ok_or(Errno::ENOENT)?.omap.retain(|k, _| *k < begin || *k >= end);
            Ok(())
        })
    }
    fn omap_clear(&mut self) -> Result<(), Errno> {
        self.count(|f| {
            f.next.as_mut().ok_or(Errno::ENOENT)?.omap.clear();
            Ok(())
        })
    }
    fn rollback(&mut self, _: SnapId) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn origin(&self) -> Origin {
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        Origin { name: self.name, addr: EntityAddr { kind: AddrKind::Any, nonce: 4123, socket: Some(at) } }
    }
    fn now(&self) -> Utime {
        self.now
    }
    fn current_version(&self) -> u64 {
        77777
    }
    fn subop(&self) -> u32 {
        self.ops
    }
    fn unique(&self) -> [u8; 16] {
        *b"0123456789abcdef"
    }
    fn spend(&mut self, bytes: u64) -> Result<(), Errno> {
        self.spent = self.spent.saturating_add(bytes);
        if self.spent > MAX_SPENT { Err(Errno::E2BIG) } else { Ok(()) }
    }
}
