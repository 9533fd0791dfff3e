//! Recovery sends a large object in pieces, each when the one before is durable. To a member that still has
//! an older version of the object it sends only what has changed since.
//!
//! An object that comes in several pieces is built aside, as an object of a pool that no client can name, and
//! takes the object's place in the transaction of its last piece. Objects that were begun aside are removed
//! when the interval ends, and when an OSD starts.
//!
//! The bytes of objects in recovery are bounded: while many are under way, an object that no request waits
//! for is not begun, and pieces are small.
//!
//! Source: ReplicatedBackend::submit_push_data, ReplicatedBackend::build_push_op, ReplicatedBackend::calc_head_subsets.

use std::collections::BTreeSet;
use std::ops::Bound;

use bytes::Bytes;
use store::{ObjectKey, Space, Store, StoreError, Txn};
use types::{Eversion, HObject, PgShard, PoolId, SnapId, SpgId};

use super::Pg;
use crate::coded;
use crate::dirty::changed_between;
use crate::object::{LoadError, stored_version};
use crate::osd::shared::{Done, Shared};
use crate::push::{Base, Cursor, ObjectName, ObjectPush};

/// Omap entries read in one step.
const OMAP_PAGE: usize = 1_024;
/// Bytes that a piece may have however much else is under way.
const MIN_PIECE_BYTES: u64 = 256 << 10;
/// Bytes of attributes and omap header in one piece; a single longer one has a piece of its own.
const MAX_HEAD_BYTES: usize = 8 << 20;
/// Bytes that have to be saved for a push that is based on an older version.
pub(super) const WORTH_A_BASE_BYTES: u64 = 16 << 10;
/// Objects removed in one transaction.
const REMOVE_PAGE: usize = 256;

/// An object that is being built aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub version: Eversion,
    pub base: Option<Base>,
    /// Where the next piece has to begin.
    pub next: Cursor,
}

/// Whether a push fits what is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fits {
    Yes,
    /// It is based on a version that is not here.
    LacksBase,
    /// It does not go on where the one before ended.
    OutOfOrder,
}

impl Shared {
    /// With so many bytes of objects in recovery, only objects that requests wait for are begun.
    pub fn max_recovery_bytes(&self) -> u64 {
        self.config.recovery_max_chunk.max(1).saturating_mul(2)
    }

    /// Bytes for a piece when `left` may still be under way: at least the smallest piece, at most the
    /// largest.
    pub fn least_piece(&self, left: u64) -> u64 {
        left.max(MIN_PIECE_BYTES).min(self.config.recovery_max_chunk.max(1))
    }

    /// Bytes that the next piece may have.
    pub fn piece_bytes(&self) -> u64 {
        self.least_piece(self.max_recovery_bytes().saturating_sub(self.recovery_bytes))
    }
}

impl Pg {
    /// Reads a piece of an object as it is in this store, from `from` on. With a base, only what has changed
    /// since. `None` when the object does not exist. `max_bytes` bounds its data and omap.
    pub(super) fn read_piece(
        &self,
        object: &HObject,
        base: Option<&Base>,
        from: &Cursor,
        max_bytes: u64,
        cx: &mut Shared,
    ) -> Result<Option<ObjectPush>, LoadError> {
        let key = self.object_key(object);
        let version = stored_version(&mut cx.store, &key)?;
        let Some(stat) = cx.store.stat(&key)?.filter(|_| version != Eversion::ZERO) else { return Ok(None) };
        let mut push = ObjectPush {
            object: ObjectName(object.clone()),
            version,
            size: stat.size,
            base: base.cloned(),
            from: from.clone(),
            ..ObjectPush::default()
        };
        let with_omap = stat.has_omap && base.is_none_or(|b| b.omap);
        if !from.headed {
            push.next = read_head(&mut push, &key, with_omap, &mut cx.store)?;
            if push.next.is_some() {
                return Ok(Some(push));
            }
        }
        let mut left = max_bytes.max(1);
        push.next = read_data(&mut push, &key, &mut left, &mut cx.store)?;
        if push.next.is_none() && with_omap {
            push.next = match left {
                0 => Some(Cursor { data: Cursor::ALL_DATA, ..Cursor::headed() }),
                _ => {
                    let entries = cx.config.recovery_max_omap_entries.max(1);
                    read_omap(&mut push, &key, left, entries, &mut cx.store)?
                }
            };
        }
        Ok(Some(push))
    }

    /// The whole object as it is now; `None` when it does not exist.
    pub(super) fn read_object(
        &self,
        object: &HObject,
        cx: &mut Shared,
    ) -> Result<Option<ObjectPush>, LoadError> {
        let Some(mut all) = self.read_piece(object, None, &Cursor::default(), u64::MAX, cx)? else {
            return Ok(None);
        };
        while let Some(next) = all.next.take() {
            match self.read_piece(object, None, &next, u64::MAX, cx)? {
                Some(piece) => all.append(piece),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// What a copy with the version `have` lacks of the version `need`, by this copy's log. `None`: it needs
    /// the whole object.
    pub(super) fn base_for(&self, have: Eversion, need: Eversion) -> Option<Base> {
        changed_between(&self.log, have, need)
    }

    /// The base for a push of the object to a member. `None`: the whole object is sent, because the member
    /// has no older version of it, or because a base would save little.
    pub(super) fn base_of(&self, osd: PgShard, object: &HObject, cx: &mut Shared) -> Option<Base> {
        let item = *self.peers.get(&osd)?.missing.as_ref()?.get(object)?;
        let base = self.base_for(item.have, item.need)?;
        let key = self.object_key(object);
        let stat = cx.store.stat(&key).ok().flatten()?;
        let kept = stat.size.saturating_sub(base.bytes_below(stat.size));
        (kept >= WORTH_A_BASE_BYTES || stat.has_omap && !base.omap).then_some(base)
    }

    /// The base for a pull of the object to this copy, if the older version is here and whole. `None`: the
    /// whole object is asked for.
    pub(super) fn own_base(&self, object: &HObject, cx: &mut Shared) -> Option<Base> {
        let item = *self.missing.get(object)?;
        let base = self.base_for(item.have, item.need)?;
        let stat = cx.store.stat(&self.object_key(object)).ok().flatten()?;
        let here = self.is_base(object, base.version, cx);
        let kept = stat.size.saturating_sub(base.bytes_below(stat.size));
        (here && (kept >= WORTH_A_BASE_BYTES || stat.has_omap && !base.omap)).then_some(base)
    }

    /// The key under which an object is built from pieces.
    fn aside_key(&self, object: &HObject) -> ObjectKey {
        ObjectKey::new(self.id.shard, HObject { pool: aside_pool(object.pool), ..object.clone() })
    }

    /// Whether a push continues the piece before it, and whether the version that it is based on is here.
    pub(super) fn fits(&self, push: &ObjectPush, cx: &mut Shared) -> Fits {
        if !push.from.is_start() {
            let begun = self.incoming.get(&push.object.0);
            let goes_on = begun
                .is_some_and(|i| (i.version, &i.next, &i.base) == (push.version, &push.from, &push.base));
            return if goes_on { Fits::Yes } else { Fits::OutOfOrder };
        }
        match &push.base {
            Some(base) if !self.is_base(&push.object.0, base.version, cx) => Fits::LacksBase,
            _ => Fits::Yes,
        }
    }

    /// Whether the copy here has this version and nothing of it is damaged. What is lost would stay lost in
    /// what is built on it.
    pub(super) fn is_base(&self, object: &HObject, version: Eversion, cx: &mut Shared) -> bool {
        !self.lost_here.contains(object)
            && stored_version(&mut cx.store, &self.object_key(object)).is_ok_and(|v| v == version)
            && cx.store.has_lost(&self.object_key(object)).is_ok_and(|lost| !lost)
    }

    /// Adds a push for which `fits` said yes to a transaction. Call `note_piece` once that is submitted.
    pub(super) fn store_piece(&self, push: &ObjectPush, txn: &mut Txn) {
        let key = self.object_key(&push.object.0);
        let at = if push.is_all() { key.clone() } else { self.aside_key(&push.object.0) };
        match &push.base {
            _ if !push.from.is_start() => {}
            None => {
                txn.remove(&at).touch(&at);
            }
            Some(base) => {
                if at != key {
                    txn.clone_object(&key, &at);
                }
                for (offset, len) in &base.ranges {
                    let end = offset.saturating_add(*len).min(push.size);
                    if *offset < end {
                        txn.zero(&at, *offset, end - offset);
                    }
                }
                txn.rm_attrs(&at);
                if base.omap {
                    txn.omap_clear(&at);
                }
            }
        }
        for (offset, data) in &push.extents {
            txn.write(&at, *offset, data.clone());
        }
        txn.truncate(&at, push.size);
        for (name, value) in &push.attrs {
            txn.set_attr(&at, name.clone(), value.clone());
        }
        if !push.omap_header.is_empty() {
            txn.omap_set_header(&at, push.omap_header.clone());
        }
        if !push.omap.is_empty() {
            txn.omap_set(&at, push.omap.clone());
        }
        if at != key && push.next.is_none() {
            txn.rename(&at, &key);
        }
    }

    /// Remembers where the next piece has to begin, now that the transaction with this push is submitted.
    pub(super) fn note_piece(&mut self, push: &ObjectPush) {
        if push.next.is_none() {
            self.lost_here.remove(&push.object.0);
        }
        match &push.next {
            Some(next) => {
                let incoming =
                    Incoming { version: push.version, base: push.base.clone(), next: next.clone() };
                self.incoming.insert(push.object.0.clone(), incoming);
            }
            None if push.from.is_start() => {}
            None => drop(self.incoming.remove(&push.object.0)),
        }
    }

    /// Removes the objects that are being built aside, because their next pieces will not come.
    pub(super) fn drop_incoming(&mut self, cx: &mut Shared) {
        if self.incoming.is_empty() {
            return;
        }
        let mut txn = Txn::new();
        for object in std::mem::take(&mut self.incoming).into_keys() {
            txn.remove(&self.aside_key(&object));
        }
        cx.submit(txn, Done::Nothing);
    }
}

impl Base {
    /// Bytes of data below `size` that may have changed.
    pub(super) fn bytes_below(&self, size: u64) -> u64 {
        let below =
            |(offset, len): &(u64, u64)| offset.saturating_add(*len).min(size).saturating_sub(*offset);
        self.ranges.iter().map(below).sum()
    }
}

/// Reads attributes from where the push begins, and the omap's header after the last attribute. Returns where
/// the next piece begins if this one is full.
fn read_head(
    push: &mut ObjectPush,
    key: &ObjectKey,
    with_omap: bool,
    store: &mut Store,
) -> Result<Option<Cursor>, StoreError> {
    let mut bytes = 0;
    let mut last = push.from.attrs.clone();
    for (name, value) in
        store.attrs(key)?.into_iter().filter(|(name, _)| Some(name) > push.from.attrs.as_ref())
    {
        bytes += name.len() + value.len();
        if bytes > MAX_HEAD_BYTES && !push.attrs.is_empty() {
            return Ok(Some(Cursor { attrs: last, ..Cursor::default() }));
        }
        last = Some(name.clone());
        push.attrs.push((name, value));
    }
    if with_omap {
        let header = store.omap_header(key)?;
        bytes += header.len();
        if bytes > MAX_HEAD_BYTES && !push.attrs.is_empty() && !header.is_empty() {
            return Ok(Some(Cursor { attrs: last, ..Cursor::default() }));
        }
        push.omap_header = header;
    }
    Ok((bytes > MAX_HEAD_BYTES).then(Cursor::headed))
}

/// Reads data from where the push begins, at most `left` bytes. Returns where the next piece begins if that
/// was not all.
fn read_data(
    push: &mut ObjectPush,
    key: &ObjectKey,
    left: &mut u64,
    store: &mut Store,
) -> Result<Option<Cursor>, StoreError> {
    let all = [(0, push.size)];
    let ranges = push.base.as_ref().map_or(all.as_slice(), |b| &b.ranges);
    for (offset, len) in ranges {
        let (start, end) = ((*offset).max(push.from.data), offset.saturating_add(*len).min(push.size));
        if start >= end {
            continue;
        }
        for (at, len) in store.extents(key, start, end - start)? {
            let take = len.min(*left);
            if take > 0 {
                push.extents.push((at, store.read(key, at, take)?));
            }
            *left -= take;
            if take < len {
                return Ok(Some(Cursor { data: at + take, ..Cursor::headed() }));
            }
        }
    }
    Ok(None)
}

/// Reads omap entries from where the push begins, as `read_data` does; at least one for a piece that has
/// nothing else.
fn read_omap(
    push: &mut ObjectPush,
    key: &ObjectKey,
    mut left: u64,
    mut entries: usize,
    store: &mut Store,
) -> Result<Option<Cursor>, StoreError> {
    let mut last: Option<Bytes> = push.from.omap.clone();
    loop {
        let bound = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let max_bytes = usize::try_from(left).unwrap_or(usize::MAX);
        let (page, more) = store.omap_list(key, bound, entries.min(OMAP_PAGE), max_bytes)?;
        let bytes: usize = page.iter().map(|(k, v)| k.len() + v.len()).sum();
        if bytes as u64 > left && push.bytes() > 0 {
            // A single long entry gets a piece of its own.
            return Ok(Some(Cursor { data: Cursor::ALL_DATA, omap: last, ..Cursor::headed() }));
        }
        left = left.saturating_sub(bytes as u64);
        entries = entries.saturating_sub(page.len());
        last = page.last().map(|(k, _)| k.clone()).or(last);
        let ends = !more || page.is_empty();
        push.omap.extend(page);
        if ends {
            return Ok(None);
        }
        if left == 0 || entries == 0 {
            return Ok(Some(Cursor { data: Cursor::ALL_DATA, omap: last, ..Cursor::headed() }));
        }
    }
}

/// The pool of the objects that are built aside for `pool`; the store counts their blocks for `pool` itself.
/// Source: hobject_t::POOL_TEMP_START in src/common/hobject.h.
pub(super) fn aside_pool(pool: PoolId) -> PoolId {
    PoolId((-2i64).saturating_sub(pool.0))
}

/// Removes the objects that an earlier life of this OSD was building aside. What shards keep of objects
/// stays.
pub(crate) fn remove_all_aside(cx: &mut Shared) -> Result<(), StoreError> {
    let spaces = cx.store.spaces()?.into_iter();
    let shards = spaces.filter_map(|space| match space {
        Space::Pg(id) => Some(id.shard),
        Space::Meta => None,
    });
    let shards: BTreeSet<i8> = shards.chain([SpgId::NO_SHARD]).collect();
    shards.into_iter().try_for_each(|shard| remove_aside(shard, cx))
}

fn remove_aside(shard: i8, cx: &mut Shared) -> Result<(), StoreError> {
    let until = HObject { pool: PoolId(-1), ..HObject::min() };
    let mut from = HObject::min();
    loop {
        let page = cx.store.list(shard, &from, &until, REMOVE_PAGE)?;
        let Some(last) = page.last().cloned() else { return Ok(()) };
        // One pool's at a time: a transaction's blocks count for one pool.
        for objects in page.chunk_by(|a, b| a.pool == b.pool) {
            let mut txn = Txn::new();
            for object in objects.iter().filter(|object| !coded::is_kept(object)) {
                txn.remove(&ObjectKey::new(shard, object.clone()));
            }
            if !txn.is_empty() {
                cx.submit(txn, Done::Nothing);
            }
        }
        from = HObject { snap: SnapId(last.snap.0.saturating_add(1)), ..last };
    }
}
