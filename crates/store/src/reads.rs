//! Reading submitted state: objects, attributes, omaps, listings, keys of spaces.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use types::HObject;

use crate::apply::space_bounds;
use crate::checksum::BLOCK_U64;
use crate::key::{class, omap_key, onode_key, onode_key_into, parse_onode_key, space_key, split_space_key};
use crate::memtable::omap_range;
use crate::onode::{Onode, block_of, blocks_up_to};
use crate::store::Store;
use crate::{Corruption, ObjectKey, ObjectStat, Space, StoreError};

/// Entries in key order, and whether more follow.
pub type KeyPage = (Vec<(Bytes, Bytes)>, bool);

impl Store {
    pub(crate) fn onode(&mut self, key: &ObjectKey) -> Result<Option<Arc<Onode>>, StoreError> {
        self.check_running()?;
        let mut buffer = std::mem::take(&mut self.key_buffer);
        buffer.clear();
        onode_key_into(key.shard, &key.object, &mut buffer);
        let found = self.index.onode(&buffer);
        self.key_buffer = buffer;
        found
    }

    /// `None` when the object does not exist. The other reads take a missing object for an empty one.
    pub fn stat(&mut self, key: &ObjectKey) -> Result<Option<ObjectStat>, StoreError> {
        Ok(self.onode(key)?.map(|o| ObjectStat {
            size: o.size,
            allocated_bytes: u64::from(o.mapped()) * BLOCK_U64,
            has_omap: o.omap_id != 0 || !o.omap_header.is_empty(),
        }))
    }

    /// Whether a block of the object was lost to a damaged medium and not replaced. Looks at every block's
    /// entry, at no data.
    pub fn has_lost(&mut self, key: &ObjectKey) -> Result<bool, StoreError> {
        Ok(self.onode(key)?.is_some_and(|o| o.has_lost()))
    }

    /// The `(offset, length)` ranges inside the given one that were written, to the byte, joined where they touch.
    pub fn extents(&mut self, key: &ObjectKey, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, StoreError> {
        let Some(o) = self.onode(key)? else { return Ok(Vec::new()) };
        let end = offset.saturating_add(len).min(o.size);
        let mut found: Vec<(u64, u64)> = Vec::new();
        for index in block_of(offset)..blocks_up_to(end).max(block_of(offset)).min(o.slots_end()) {
            if o.slot(index).is_hole() {
                continue;
            }
            let at = u64::from(index) * BLOCK_U64;
            for (from, until) in o.written.spans(index) {
                let (start, stop) = ((at + u64::from(from)).max(offset), (at + u64::from(until)).min(end));
                match found.last_mut() {
                    _ if start >= stop => {}
                    Some((s, l)) if *s + *l == start => *l += stop - start,
                    _ => found.push((start, stop - start)),
                }
            }
        }
        Ok(found)
    }

    pub fn attr(&mut self, key: &ObjectKey, name: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.onode(key)?.and_then(|o| o.attr(name).cloned()))
    }

    /// Two attributes of an object, found together.
    pub fn attr_pair(
        &mut self,
        key: &ObjectKey,
        names: [&[u8]; 2],
    ) -> Result<[Option<Bytes>; 2], StoreError> {
        let onode = self.onode(key)?;
        Ok(names.map(|name| onode.as_ref().and_then(|o| o.attr(name).cloned())))
    }

    /// All attributes in name order.
    pub fn attrs(&mut self, key: &ObjectKey) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        Ok(self.onode(key)?.map(|o| o.attrs.clone()).unwrap_or_default())
    }

    pub fn omap_header(&mut self, key: &ObjectKey) -> Result<Bytes, StoreError> {
        Ok(self.onode(key)?.map(|o| o.omap_header.clone()).unwrap_or_default())
    }

    /// Those of the given keys that exist, with their values, in the order asked.
    pub fn omap_get(&mut self, key: &ObjectKey, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let id = self.onode(key)?.map_or(0, |o| o.omap_id);
        let mut found = Vec::new();
        for k in keys.iter().filter(|_| id != 0) {
            if let Some(value) = self.index.get(&omap_key(id, k))? {
                found.push((k.clone(), value));
            }
        }
        Ok(found)
    }

    /// Omap entries in key order from `from`, at most so many and (but for the first) so many bytes.
    pub fn omap_list(
        &mut self,
        key: &ObjectKey,
        from: Bound<&[u8]>,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<KeyPage, StoreError> {
        let id = self.onode(key)?.map_or(0, |o| o.omap_id);
        if id == 0 {
            return Ok((Vec::new(), false));
        }
        let range = omap_range(id);
        let from = from.map(|k| omap_key(id, k));
        let from = match &from {
            Bound::Included(k) => Bound::Included(k.as_ref()),
            Bound::Excluded(k) => Bound::Excluded(k.as_ref()),
            Bound::Unbounded => Bound::Included(range.start.as_ref()),
        };
        let (mut entries, mut bytes, mut more) = (Vec::new(), 0, false);
        self.index.scan(None, from, &range.end, &mut |k, v| {
            let k = k.slice(range.start.len()..);
            bytes += k.len() + v.len();
            more = entries.len() >= max_entries || (bytes > max_bytes && !entries.is_empty());
            if !more {
                entries.push((k, v));
            }
            !more
        })?;
        Ok((entries, more))
    }

    /// Objects of a shard from `from` up to, without, `until`, in order.
    pub fn list(
        &mut self,
        shard: i8,
        from: &HObject,
        until: &HObject,
        max: usize,
    ) -> Result<Vec<HObject>, StoreError> {
        self.check_running()?;
        let bound = |o: &HObject| {
            let mut k = Vec::new();
            onode_key_into(shard, o, &mut k);
            k
        };
        let mut found = Vec::new();
        let mut damaged = false;
        if max > 0 {
            self.index.scan_onodes(&bound(from), &bound(until), &mut |key| {
                match parse_onode_key(&key) {
                    Some(k) => found.push(k.object),
                    None => damaged = true,
                }
                found.len() < max
            })?;
        }
        if damaged { Err(Corruption::Value { what: "object key" }.into()) } else { Ok(found) }
    }

    /// Objects of all shards behind `after`, in order: for tools that walk a whole store.
    pub fn list_all(&mut self, after: Option<&ObjectKey>, max: usize) -> Result<Vec<ObjectKey>, StoreError> {
        self.check_running()?;
        let start = after.map_or_else(|| Bytes::from_static(&[class::ONODE]), onode_key);
        let (mut found, mut damaged) = (Vec::new(), false);
        let end = if max > 0 { [class::ONODE + 1] } else { [class::ONODE] };
        self.index.scan_onodes(&start, &end, &mut |key| {
            match parse_onode_key(&key) {
                Some(k) if after != Some(&k) => found.push(k),
                Some(_) => {}
                None => damaged = true,
            }
            found.len() < max
        })?;
        if damaged { Err(Corruption::Value { what: "object key" }.into()) } else { Ok(found) }
    }

    pub fn get(&mut self, space: Space, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.check_running()?;
        self.index.get(&space_key(space, key))
    }

    /// Keys of a space from `from` up to, without, `until` (`None`: to the end), at most `max`.
    pub fn scan(
        &mut self,
        space: Space,
        from: &[u8],
        until: Option<&[u8]>,
        max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.check_running()?;
        let (start, end) = space_bounds(space, from, until);
        let skip = space_key(space, &[]).len();
        let mut found = Vec::new();
        if max > 0 {
            self.index.scan(None, Bound::Included(&start), &end, &mut |k, v| {
                found.push((k.slice(skip..), v));
                found.len() < max
            })?;
        }
        Ok(found)
    }

    /// Says that the keys of all PGs are read next, as an OSD does when it starts: thousands of pages, which a slow device
    /// would else give one after the other.
    pub fn will_read_pgs(&mut self) {
        let all = (Bytes::from_static(&[class::PG]), Bytes::from_static(&[class::PG + 1]));
        self.index.will_read(vec![all]);
    }

    /// All spaces that hold a key, in order.
    pub fn spaces(&mut self) -> Result<Vec<Space>, StoreError> {
        self.check_running()?;
        let mut found = Vec::new();
        let mut from = Bytes::from_static(&[class::META]);
        loop {
            let mut next = None;
            self.index.scan(None, Bound::Included(&from), &[class::ONODE], &mut |k, _| {
                next = split_space_key(&k).map(|(space, _)| space);
                false
            })?;
            let Some(space) = next else { return Ok(found) };
            found.push(space);
            from = space_bounds(space, &[], None).1;
        }
    }
}
