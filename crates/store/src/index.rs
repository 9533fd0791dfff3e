//! The index as readers see it: the memtable, the layer being checkpointed, and the tree, newest first.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use codec::Decode;

use crate::cache::Cache;
use crate::key::{BorrowedKey, OnodeKey, Sought, refs_key};
use crate::memtable::{KvMap, MemTable};
use crate::onode::Onode;
use crate::page::{Page, PageRef};
use crate::refs::RefRegion;
use crate::tree::{Cursor, KeyRange, Pages, lookup};
use crate::{Corruption, Counters, Device, StoreError};

/// Pages that are announced at once: some 64 MiB of the device's cache.
const MAX_ANNOUNCED: usize = 8192;

/// Pages of the tree behind a cache.
pub(crate) struct PageCache {
    device: Arc<dyn Device>,
    cache: Cache<u32, Page>,
    /// Pages that have a bad copy, by their first block: the next checkpoint mends them.
    pub(crate) sick: BTreeMap<u32, PageRef>,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) hits: u64,
    corrupt: u64,
}

impl PageCache {
    fn new(device: Arc<dyn Device>, limit_bytes: usize) -> Self {
        Self {
            device,
            cache: Cache::new(limit_bytes),
            sick: BTreeMap::new(),
            corrupt: 0,
            reads: 0,
            read_bytes: 0,
            hits: 0,
        }
    }

    fn put(&mut self, block: u32, page: Page) {
        let weight = page.weight();
        self.cache.insert(block, page, weight);
    }
}

impl Pages for PageCache {
    fn page(&mut self, r: &PageRef) -> Result<Page, StoreError> {
        if let Some(page) = self.cached(r.block()) {
            return Ok(page);
        }
        self.reads += 1;
        self.read_bytes += r.ranges().map(|(_, len)| len).sum::<u64>();
        let (page, bad) = r.read_any(self.device.as_ref())?;
        if bad {
            self.corrupt += 1;
            self.sick.insert(r.block(), r.clone());
        }
        self.put(r.block(), page.clone());
        Ok(page)
    }

    fn will_read(&mut self, refs: &[PageRef]) {
        let missing = refs.iter().filter(|r| self.cache.get(&r.block()).is_none());
        let mut ranges: Vec<(u64, u64)> = missing.flat_map(PageRef::ranges).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, range| {
            let touches = next.0 == range.0 + range.1;
            range.1 += if touches { next.1 } else { 0 };
            touches
        });
        if !ranges.is_empty() {
            self.device.will_read(&ranges);
        }
    }

    fn cached(&mut self, block: u32) -> Option<Page> {
        let page = self.cache.get(&block);
        self.hits += u64::from(page.is_some());
        page
    }
}

/// Invariants: a key's value is that of the first layer that names the key, in the order `active`, `frozen`,
/// tree; the onode cache holds only values that no layer in memory names; what `last` knows is what a look-up
/// would find.
pub(crate) struct Index {
    pub(crate) root: Option<PageRef>,
    pub(crate) active: MemTable,
    pub(crate) frozen: Option<Arc<MemTable>>,
    pub(crate) pages: PageCache,
    onodes: Cache<OnodeKey, Arc<Onode>>,
    last: LastFound,
    onode_hits: u64,
    onode_misses: u64,
}

/// The object that was looked up last: a request looks its object up for the state and again for the data.
#[derive(Default)]
struct LastFound {
    key: Vec<u8>,
    /// `None` when nothing is known of the key.
    onode: Option<Option<Arc<Onode>>>,
}

impl LastFound {
    fn get(&self, key: &[u8]) -> Option<Option<Arc<Onode>>> {
        self.onode.as_ref().filter(|_| self.key == key).cloned()
    }

    fn put(&mut self, key: &[u8], onode: &Option<Arc<Onode>>) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.onode = Some(onode.clone());
    }

    fn forget(&mut self) {
        self.onode = None;
    }
}

impl Index {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        root: Option<PageRef>,
        page_limit_bytes: usize,
        onode_limit_bytes: usize,
    ) -> Self {
        Self {
            root,
            active: MemTable::default(),
            frozen: None,
            pages: PageCache::new(device, page_limit_bytes),
            onodes: Cache::new(onode_limit_bytes),
            last: LastFound::default(),
            onode_hits: 0,
            onode_misses: 0,
        }
    }

    /// Bounds of the two caches.
    pub(crate) fn set_cache_limits(&mut self, page_bytes: usize, onode_bytes: usize) {
        self.pages.cache.set_limit(page_bytes);
        self.onodes.set_limit(onode_bytes);
    }

    /// Memory of layers and caches.
    pub(crate) fn bytes(&self) -> usize {
        let frozen = self.frozen.as_ref().map_or(0, |f| f.bytes());
        self.active.bytes() + frozen + self.pages.cache.bytes() + self.onodes.bytes()
    }

    pub(crate) fn metadata_bytes_read(&self) -> u64 {
        self.pages.read_bytes
    }

    pub(crate) fn count(&self, counters: &mut Counters) {
        counters.pages_read = self.pages.reads;
        counters.corrupt_pages = self.pages.corrupt;
        counters.page_cache_hits = self.pages.hits;
        counters.onode_cache_hits = self.onode_hits;
        counters.onode_cache_misses = self.onode_misses;
    }

    pub(crate) fn onode(&mut self, key: &[u8]) -> Result<Option<Arc<Onode>>, StoreError> {
        if let Some(found) = self.last.get(key) {
            self.onode_hits += 1;
            return Ok(found);
        }
        let found = self.look_up_onode(key)?;
        self.last.put(key, &found);
        Ok(found)
    }

    fn look_up_onode(&mut self, key: &[u8]) -> Result<Option<Arc<Onode>>, StoreError> {
        let frozen = self.frozen.as_deref();
        let sought = BorrowedKey::new(key);
        let sought: &dyn Sought = &sought;
        if let Some(found) = self.active.onodes.get(sought).or_else(|| frozen?.onodes.get(sought)) {
            self.onode_hits += 1;
            return Ok(found.clone());
        }
        if let Some(found) = self.onodes.get(sought) {
            self.onode_hits += 1;
            return Ok(Some(found));
        }
        self.onode_misses += 1;
        let Some(raw) = lookup(&mut self.pages, self.root.as_ref(), key)? else { return Ok(None) };
        let onode = Arc::new(decode_onode(raw)?);
        self.cache_onode(OnodeKey::new(Bytes::copy_from_slice(key)), onode.clone());
        Ok(Some(onode))
    }

    /// Announces the tree's pages with the keys of these ranges to the device. What cannot be read is told to
    /// who reads it.
    pub(crate) fn will_read(&mut self, mut ranges: Vec<KeyRange>) {
        ranges.sort_unstable();
        ranges.dedup_by(|next, range| {
            let overlaps = next.0 <= range.1;
            if overlaps && next.1 > range.1 {
                range.1 = next.1.clone();
            }
            overlaps
        });
        let _ = crate::tree::will_read(&mut self.pages, self.root.as_ref(), &ranges, MAX_ANNOUNCED);
    }

    fn cache_onode(&mut self, key: OnodeKey, onode: Arc<Onode>) {
        let weight = onode.weight() + 2 * key.bytes().len() + 160;
        self.onodes.insert(key, onode, weight);
    }

    pub(crate) fn put_onode(&mut self, key: Bytes, onode: Option<Arc<Onode>>) {
        self.last.forget();
        let cached = &mut self.onodes;
        self.active.put_onode(key, onode, |key| cached.remove(key));
    }

    pub(crate) fn refs(&mut self, region: u32) -> Result<RefRegion, StoreError> {
        let frozen = self.frozen.as_deref();
        if let Some(found) = self.active.refs.get(&region).or_else(|| frozen?.refs.get(&region)) {
            return Ok(found.as_ref().clone());
        }
        match lookup(&mut self.pages, self.root.as_ref(), &refs_key(region))? {
            Some(raw) => {
                RefRegion::from_bytes(raw).map_err(|_| Corruption::Value { what: "shared blocks" }.into())
            }
            None => Ok(RefRegion::default()),
        }
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let frozen = self.frozen.as_deref();
        if let Some(found) = self.active.kv.get(key).or_else(|| frozen?.kv.get(key)) {
            return Ok(found.clone());
        }
        lookup(&mut self.pages, self.root.as_ref(), key)
    }

    /// Shows keys of spaces or omaps in order until `visit` returns false; `overlay` lies above all layers.
    pub(crate) fn scan(
        &mut self,
        overlay: Option<&KvMap>,
        from: Bound<&[u8]>,
        until: &[u8],
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StoreError> {
        let layers = [overlay, Some(&self.active.kv), self.frozen.as_deref().map(|f| &f.kv)];
        scan_layers(layers, &mut self.pages, self.root.as_ref(), from, until, &mut |key, found| match found {
            Found::Memory(value) => visit(key, value),
            Found::Tree(value) => visit(key, value),
        })
    }

    /// Shows keys of onodes in order until `visit` returns false.
    pub(crate) fn scan_onodes(
        &mut self,
        from: &[u8],
        until: &[u8],
        visit: &mut dyn FnMut(Bytes) -> bool,
    ) -> Result<(), StoreError> {
        let layers = [Some(&self.active.onodes), self.frozen.as_deref().map(|f| &f.onodes), None];
        let from = Bound::Included(from);
        scan_layers(layers, &mut self.pages, self.root.as_ref(), from, until, &mut |key, _| visit(key))
    }

    /// Keys and values of omaps in the layers, removals and overwritten ones not taken off.
    pub(crate) fn omap_bytes_in_memory(&self) -> u64 {
        let layers = [Some(&self.active), self.frozen.as_deref()];
        layers.into_iter().flatten().map(|l| l.omap_bytes).sum()
    }

    /// The checkpoint of `frozen` is published: its content is in the tree now. Returns the layer.
    pub(crate) fn publish(
        &mut self,
        root: Option<PageRef>,
        replaced: &[crate::alloc::Run],
        fresh: Vec<(u32, Page)>,
    ) -> Option<Arc<MemTable>> {
        for block in replaced.iter().flat_map(|run| run.start..run.end()) {
            self.pages.cache.remove(&block);
            self.pages.sick.remove(&block);
        }
        fresh.into_iter().for_each(|(block, page)| self.pages.put(block, page));
        self.root = root;
        self.last.forget();
        let frozen = self.frozen.take()?;
        for (key, onode) in &frozen.onodes {
            if let (Some(onode), false) = (onode, self.active.onodes.contains_key(key)) {
                self.cache_onode(key.clone(), onode.clone());
            }
        }
        Some(frozen)
    }
}

pub(crate) fn decode_onode(raw: Bytes) -> Result<Onode, StoreError> {
    Onode::from_bytes(raw).map_err(|_| Corruption::Value { what: "onode" }.into())
}

/// Where a scan found a key.
enum Found<V> {
    Memory(V),
    Tree(Bytes),
}

/// Walks up to three maps and the tree together; a key counts where it is found first, and not at all when it is
/// marked removed there.
fn scan_layers<K: Ord + Borrow<[u8]>, V: Clone>(
    layers: [Option<&BTreeMap<K, Option<V>>>; 3],
    pages: &mut PageCache,
    root: Option<&PageRef>,
    from: Bound<&[u8]>,
    until: &[u8],
    visit: &mut dyn FnMut(Bytes, Found<V>) -> bool,
) -> Result<(), StoreError> {
    let (start, after) = match from {
        Bound::Included(k) => (k, None),
        Bound::Excluded(k) => (k, Some(k)),
        Bound::Unbounded => (&[][..], None),
    };
    if start >= until {
        return Ok(());
    }
    let range = (from, Bound::Excluded(until));
    let mut maps: Vec<_> =
        layers.into_iter().flatten().map(|m| m.range::<[u8], _>(range).peekable()).collect();
    let mut cursor = Cursor::seek(pages, root, start)?;
    if cursor.key().is_some_and(|k| Some(k) == after) {
        cursor.advance(pages)?;
    }
    loop {
        let tree_key = cursor.key().filter(|k| *k < until);
        let least =
            maps.iter_mut().filter_map(|m| m.peek().map(|(k, _)| (*k).borrow())).chain(tree_key).min();
        let Some(least) = least else { return Ok(()) };
        let in_tree = tree_key == Some(least);
        let key = Bytes::copy_from_slice(least);
        let mut found = None;
        for m in &mut maps {
            if let Some((_, value)) = m.next_if(|(k, _)| *(*k).borrow() == *key) {
                found = found.or(Some(value.clone().map(Found::Memory)));
            }
        }
        if in_tree {
            found = found.or_else(|| Some(cursor.entry().map(|(_, v)| Found::Tree(v))));
            cursor.advance(pages)?;
        }
        if let Some(Some(value)) = found {
            if !visit(key, value) {
                return Ok(());
            }
        }
    }
}
