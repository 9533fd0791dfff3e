//! What one transaction changes, kept apart until all of it is known to work; dropped whole when it does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::ObjectKey;
use crate::alloc::{Allocator, Run, count_blocks, push_run};
use crate::checksum::BLOCK;
use crate::data::{DirectWrite, Transit};
use crate::index::Index;
use crate::key::pool_of_onode_key;
use crate::memtable::{KvMap, LayerSize, kv_tree_bytes, onode_tree_bytes};
use crate::onode::Onode;
use crate::pool_totals::owner;
use crate::refs::RefRegion;

/// An object as the transaction found it and as it leaves it; `None` where it does not exist.
#[derive(Debug)]
pub(crate) struct StagedOnode {
    pub(crate) key: Bytes,
    pub(crate) before: Option<Arc<Onode>>,
    pub(crate) now: Option<Arc<Onode>>,
}

/// Where the payload of a write went that is not in the log record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Index of the write among the transaction's operations.
    pub(crate) op: u32,
    pub(crate) runs: Vec<Run>,
    /// Of each block, in order.
    pub(crate) crcs: Vec<u32>,
    /// Bytes of payload; stands in the operation itself, not in the stored form of this.
    pub(crate) len: u64,
}

impl Encode for Placement {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.op);
        self.runs.encode(w);
        self.crcs.encode(w);
    }
}
impl Decode for Placement {
    const MIN_SIZE: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let (op, runs) = (r.u32()?, Vec::<Run>::decode(r)?);
        let crcs = Vec::<u32>::decode(r)?;
        let blocks: u64 = runs.iter().map(|r| u64::from(r.len)).sum();
        match blocks == crcs.len() as u64 && runs.iter().all(|r| r.len > 0) {
            true => Ok(Self { op, runs, crcs, len: 0 }),
            false => Err(DecodeError::Invalid { what: "placement", value: blocks }),
        }
    }
}
codec::wire_plain!(Run { start, len });

/// A block of a small write, of which the commit decides whether it goes straight to its place or into the record.
#[derive(Debug, Clone)]
pub(crate) struct SmallBlock {
    /// Index of the write among the transaction's operations; a write's blocks follow each other.
    pub(crate) op: u32,
    pub(crate) place: u32,
    pub(crate) crc: u32,
    pub(crate) content: Bytes,
}

/// Changes of one transaction.
///
/// Invariants: (1) every block in `dirty`, `direct` and `small` is taken in the allocator, by this transaction or as a
/// block that the active layer holds dirty; (2) `taken` lists what this transaction took: given back when it fails.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// By the transaction's object index; `None` until first used.
    pub(crate) onodes: Vec<Option<StagedOnode>>,
    pub(crate) kv: StagedKv,
    pub(crate) refs: BTreeMap<u32, RefRegion>,
    pub(crate) dead_omaps: Vec<u64>,
    pub(crate) dirty: StagedBlocks,
    pub(crate) direct: Vec<DirectWrite>,
    pub(crate) placements: Vec<Placement>,
    pub(crate) small: Vec<SmallBlock>,
    pub(crate) taken: Vec<Run>,
    pub(crate) freed: Vec<Run>,
    /// Omap ids given out by this transaction, counted from the store's next one.
    pub(crate) new_omap_ids: u64,
    /// Objects of which a block was lost.
    pub(crate) lost: Vec<ObjectKey>,
    /// Blocks taken and not given back.
    pub(crate) allocated: i64,
    /// Whether the transaction gives space back on purpose: it may use the reserve.
    pub(crate) releases: bool,
}

/// Keys that a transaction sets (`None`: removes). What is set lands in a list; only who has to look at it, a scan or a
/// removal by range, has it sorted.
#[derive(Debug, Default)]
pub(crate) struct StagedKv {
    sorted: KvMap,
    /// Newer than `sorted`, oldest first.
    news: Vec<(Bytes, Option<Bytes>)>,
}

impl StagedKv {
    pub(crate) fn put(&mut self, key: Bytes, value: Option<Bytes>) {
        self.news.push((key, value));
    }

    pub(crate) fn sorted(&mut self) -> &mut KvMap {
        self.sorted.extend(self.news.drain(..));
        &mut self.sorted
    }

    /// A key that was set more than once may come more than once: what it is at last comes last.
    fn iter(&self) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        let news = self.news.iter().map(|(k, v)| (k, v.as_ref()));
        self.sorted.iter().map(|(k, v)| (k, v.as_ref())).chain(news)
    }

    fn len(&self) -> usize {
        self.sorted.len() + self.news.len()
    }

    fn drain(&mut self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> {
        std::mem::take(&mut self.sorted).into_iter().chain(self.news.drain(..))
    }
}

/// Blocks with the content that a transaction gives them, sorted: it takes blocks mostly in order.
#[derive(Debug, Default)]
pub(crate) struct StagedBlocks(Vec<(u32, Bytes)>);

impl StagedBlocks {
    fn find(&self, block: u32) -> Result<usize, usize> {
        match self.0.last() {
            Some((last, _)) if *last < block => Err(self.0.len()),
            _ => self.0.binary_search_by_key(&block, |(b, _)| *b),
        }
    }

    pub(crate) fn get(&self, block: u32) -> Option<&Bytes> {
        self.0.get(self.find(block).ok()?).map(|(_, content)| content)
    }

    pub(crate) fn contains(&self, block: u32) -> bool {
        self.find(block).is_ok()
    }

    pub(crate) fn put(&mut self, block: u32, content: Bytes) {
        match self.find(block) {
            Err(at) => self.0.insert(at, (block, content)),
            Ok(at) => {
                if let Some(entry) = self.0.get_mut(at) {
                    entry.1 = content;
                }
            }
        }
    }

    fn remove(&mut self, block: u32) {
        if let Ok(at) = self.find(block) {
            self.0.remove(at);
        }
    }
}

/// How the store's totals change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Delta {
    pub(crate) objects: i64,
    /// Pool by pool; a pool may be there more than once.
    pub(crate) stored_by_pool: Vec<(i64, i64)>,
    /// Of the first object; what is built aside counts for the pool that it is for.
    pub(crate) pool: Option<i64>,
    pub(crate) allocated_bytes: i64,
}

impl Delta {
    pub(crate) fn stored_bytes(&self) -> i64 {
        self.stored_by_pool.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Stage {
    pub(crate) fn taken_blocks(&self) -> u64 {
        count_blocks(&self.taken)
    }

    pub(crate) fn take(&mut self, run: Run) {
        self.allocated += i64::from(run.len);
        push_run(&mut self.taken, run);
    }

    pub(crate) fn free(&mut self, block: u32) {
        self.dirty.remove(block);
        self.allocated -= 1;
        push_run(&mut self.freed, Run::new(block, 1));
    }

    /// What this adds to the layer, for the room that the next checkpoint needs.
    pub(crate) fn size(&self) -> LayerSize {
        let mut size = LayerSize { keys: self.kv.len() as u64, tree_bytes: 0 };
        size.tree_bytes += self.kv.iter().map(|(k, v)| kv_tree_bytes(k, v)).sum::<u64>();
        for refs in self.refs.values() {
            size.keys += 1;
            size.tree_bytes += refs.weight() as u64 + 64;
        }
        for o in self.onodes.iter().flatten().filter(|o| o.is_changed()) {
            size.keys += 1;
            size.tree_bytes += onode_tree_bytes(&o.key, o.now.as_ref());
        }
        size
    }

    /// Takes everything back.
    pub(crate) fn abandon(&mut self, alloc: &mut Allocator) {
        self.taken.drain(..).for_each(|run| alloc.give_back(run));
    }

    /// Empties it and keeps the room that its lists have: the next transaction finds it there. A large one
    /// leaves none behind.
    pub(crate) fn empty(&mut self) {
        const KEPT: usize = 64;
        let capacity = self.onodes.capacity() + self.kv.news.capacity() + self.dirty.0.capacity();
        if capacity + self.small.capacity() > KEPT {
            *self = Self::default();
            return;
        }
        // Each field is named, so that a new one cannot be forgotten.
        let Self {
            onodes,
            kv: StagedKv { sorted, news },
            refs,
            dead_omaps,
            dirty: StagedBlocks(dirty),
            direct,
            placements,
            small,
            taken,
            freed,
            new_omap_ids,
            lost,
            allocated,
            releases,
        } = self;
        (*new_omap_ids, *allocated, *releases) = (0, 0, false);
        onodes.clear();
        sorted.clear();
        news.clear();
        refs.clear();
        dead_omaps.clear();
        dirty.clear();
        small.clear();
        taken.clear();
        freed.clear();
        // These are handed on, not copied: they leave no room behind.
        (*direct, *placements, *lost) = (Vec::new(), Vec::new(), Vec::new());
    }

    /// Makes the changes those of the active layer. Cannot fail. What goes straight to its place is in `transit` already.
    pub(crate) fn merge_into(&mut self, index: &mut Index, transit: &mut Transit) -> Delta {
        let mut delta = Delta { allocated_bytes: self.allocated * BLOCK as i64, ..Delta::default() };
        for run in &self.freed {
            for block in run.start..run.end() {
                index.active.dirty.remove(&block);
                transit.free(block);
            }
            push_run(&mut index.active.freed, *run);
            index.active.freed_blocks += u64::from(run.len);
        }
        index.active.dirty.extend(self.dirty.0.drain(..));
        for o in self.onodes.drain(..).flatten().filter(StagedOnode::is_changed) {
            #[cfg(debug_assertions)]
            o.now.iter().for_each(|o| o.assert_invariants());
            delta.objects += i64::from(o.now.is_some()) - i64::from(o.before.is_some());
            let stored = |o: &Option<Arc<Onode>>| o.as_ref().map_or(0, |o| o.stored_bytes()) as i64;
            if let Some(pool) = pool_of_onode_key(&o.key) {
                delta.pool = delta.pool.or(Some(owner(pool)));
                match (stored(&o.now) - stored(&o.before), delta.stored_by_pool.last_mut()) {
                    (0, _) => {}
                    (more, Some(last)) if last.0 == pool => last.1 += more,
                    (more, _) => delta.stored_by_pool.push((pool, more)),
                }
            }
            index.put_onode(o.key, o.now);
        }
        for (region, refs) in std::mem::take(&mut self.refs) {
            index.active.put_refs(region, refs);
        }
        self.dead_omaps.iter().for_each(|id| index.active.kill_omap(*id));
        for (key, value) in self.kv.drain() {
            index.active.put_kv(key, value);
        }
        delta
    }
}

impl StagedOnode {
    fn is_changed(&self) -> bool {
        match (&self.before, &self.now) {
            (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
            (None, None) => false,
            _ => true,
        }
    }
}
