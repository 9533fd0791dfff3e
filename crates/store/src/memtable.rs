//! What changed since the last checkpoint, in memory: the newest layer over the metadata tree.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bytes::Bytes;

use crate::alloc::Run;
use crate::checksum::BLOCK;
use crate::key::{OnodeKey, class};
use crate::merge::DeadRange;
use crate::onode::Onode;
use crate::page::ENTRY_OVERHEAD;
use crate::refs::RefRegion;

/// A map entry's cost in memory beside its key and value.
const NODE_BYTES: usize = 96;

/// Changed keys; `None` stands for a removed one.
pub(crate) type KvMap = BTreeMap<Bytes, Option<Bytes>>;
pub(crate) type OnodeMap = BTreeMap<OnodeKey, Option<Arc<Onode>>>;

/// Invariants: (1) `kv` holds no key of a dead omap; (2) every block in `dirty` is taken, and its content matches the
/// checksum of the onodes that name it; (3) a block in `freed` is named by no onode of this layer or above.
#[derive(Debug, Default)]
pub(crate) struct MemTable {
    /// Keys of spaces and omaps.
    pub(crate) kv: KvMap,
    pub(crate) onodes: OnodeMap,
    pub(crate) refs: BTreeMap<u32, Arc<RefRegion>>,
    pub(crate) dead_omaps: Vec<u64>,
    /// Data that only the log holds yet, by the block where it belongs.
    pub(crate) dirty: BTreeMap<u32, Bytes>,
    /// Blocks that nothing uses any more, not to be reused before the checkpoint of this layer is published.
    pub(crate) freed: Vec<Run>,
    /// Their length: asked for with every commit, while the runs are many.
    pub(crate) freed_blocks: u64,
    bytes: usize,
    /// At least the bytes that a checkpoint of this layer puts into the tree.
    tree_bytes: u64,
    /// Keys and values of omaps that were set.
    pub(crate) omap_bytes: u64,
}

/// What decides how much room a checkpoint of a layer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LayerSize {
    pub(crate) keys: u64,
    pub(crate) tree_bytes: u64,
}

impl LayerSize {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { keys: self.keys + other.keys, tree_bytes: self.tree_bytes + other.tree_bytes }
    }

    /// Blocks by which a new tree may exceed the old one: the new bytes in half-full pages, and one broken page at
    /// each end of every stretch of leaves that was rewritten.
    pub(crate) fn growth_blocks(self, leaves: u64) -> u64 {
        self.tree_bytes.div_ceil(BLOCK as u64) * 2 + self.keys.min(leaves) * 2 + 8
    }
}

pub(crate) fn kv_tree_bytes(key: &[u8], value: Option<&Bytes>) -> u64 {
    (key.len() + value.map_or(0, Bytes::len) + ENTRY_OVERHEAD) as u64
}

fn kv_bytes(key: &[u8], value: Option<&Bytes>) -> usize {
    key.len() + value.map_or(0, Bytes::len) + NODE_BYTES
}

pub(crate) fn onode_tree_bytes(key: &[u8], onode: Option<&Arc<Onode>>) -> u64 {
    (key.len() + ENTRY_OVERHEAD) as u64 + onode.map_or(0, |o| o.encoded_bound())
}

impl MemTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.kv.is_empty()
            && self.onodes.is_empty()
            && self.refs.is_empty()
            && self.dead_omaps.is_empty()
            && self.freed.is_empty()
    }

    /// Memory in use, dirty data included.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.dirty.len() * (BLOCK + NODE_BYTES) + self.freed.len() * size_of::<Run>()
    }

    pub(crate) fn size(&self) -> LayerSize {
        let keys = self.kv.len() + self.onodes.len() + self.refs.len();
        LayerSize { keys: keys as u64, tree_bytes: self.tree_bytes }
    }

    pub(crate) fn put_kv(&mut self, key: Bytes, value: Option<Bytes>) {
        self.bytes += kv_bytes(&key, value.as_ref());
        self.tree_bytes += kv_tree_bytes(&key, value.as_ref());
        if let (Some(&class::OMAP), Some(value)) = (key.first(), &value) {
            self.omap_bytes += (key.len() - 9.min(key.len()) + value.len()) as u64;
        }
        match self.kv.entry(key) {
            Entry::Vacant(place) => {
                place.insert(value);
            }
            Entry::Occupied(mut place) => {
                let old = place.insert(value);
                self.bytes -= kv_bytes(place.key(), old.as_ref());
                self.tree_bytes -= kv_tree_bytes(place.key(), old.as_ref());
            }
        }
    }

    fn forget_kv(&mut self, key: &[u8], value: Option<&Bytes>) {
        self.bytes -= kv_bytes(key, value);
        self.tree_bytes -= kv_tree_bytes(key, value);
    }

    /// `on_new` hears the key when the layer did not name the object before.
    pub(crate) fn put_onode(
        &mut self,
        key: Bytes,
        onode: Option<Arc<Onode>>,
        on_new: impl FnOnce(&OnodeKey),
    ) {
        let cost = |key: &[u8], o: &Option<Arc<Onode>>| {
            let memory = key.len() + NODE_BYTES + o.as_ref().map_or(0, |o| o.weight());
            (memory, onode_tree_bytes(key, o.as_ref()))
        };
        let (added, added_tree) = cost(&key, &onode);
        self.bytes += added;
        self.tree_bytes += added_tree;
        match self.onodes.entry(OnodeKey::new(key)) {
            Entry::Vacant(place) => {
                on_new(place.key());
                place.insert(onode);
            }
            Entry::Occupied(mut place) => {
                let old = place.insert(onode);
                let (removed, removed_tree) = cost(place.key().bytes(), &old);
                self.bytes -= removed;
                self.tree_bytes -= removed_tree;
            }
        }
    }

    pub(crate) fn put_refs(&mut self, region: u32, refs: RefRegion) {
        let (added, tree) = (refs.weight() + NODE_BYTES, refs.weight() as u64 + 64);
        let old = self.refs.insert(region, Arc::new(refs));
        let removed = old.map_or((0, 0), |o| (o.weight() + NODE_BYTES, o.weight() as u64 + 64));
        self.bytes = self.bytes + added - removed.0;
        self.tree_bytes = self.tree_bytes + tree - removed.1;
    }

    /// Forgets what this layer holds of an omap and remembers that the tree's part of it is to go.
    pub(crate) fn kill_omap(&mut self, omap_id: u64) {
        let range = omap_range(omap_id);
        let keys: Vec<Bytes> = self.kv.range(range.start..range.end).map(|(k, _)| k.clone()).collect();
        for key in keys {
            if let Some(old) = self.kv.remove(&key) {
                self.forget_kv(&key, old.as_ref());
            }
        }
        self.dead_omaps.push(omap_id);
    }

    /// The dead omaps as key ranges in order.
    pub(crate) fn dead_ranges(&self) -> Vec<DeadRange> {
        let mut ids = self.dead_omaps.clone();
        ids.sort_unstable();
        ids.into_iter().map(omap_range).collect()
    }
}

/// All keys of an omap.
pub(crate) fn omap_range(omap_id: u64) -> DeadRange {
    let end = crate::key::omap_prefix(omap_id.saturating_add(1));
    DeadRange {
        start: Bytes::copy_from_slice(&crate::key::omap_prefix(omap_id)),
        end: Bytes::copy_from_slice(&end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::omap_key;

    #[test]
    fn accounting_returns_to_zero() {
        let mut m = MemTable::default();
        for round in 0..3u8 {
            for k in 0..10u8 {
                m.put_kv(omap_key(1, &[k]), (round != 1).then(|| Bytes::from(vec![0; usize::from(k)])));
            }
        }
        assert!(m.bytes() > 0 && m.size().tree_bytes > 0);
        m.kill_omap(1);
        assert_eq!((m.bytes(), m.size().keys, m.size().tree_bytes), (0, 0, 0));
        assert_eq!(m.dead_ranges(), vec![omap_range(1)]);
    }
}
