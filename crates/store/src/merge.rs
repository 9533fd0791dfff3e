//! Making a new metadata tree from an old one and sorted changes, in one pass, without touching an old page.
//!
//! Invariants: (1) pages of the old tree are only read; (2) a subtree without changes is taken over by reference;
//! (3) `replaced` lists the blocks of every old page that the new tree does not refer to; (4) new pages lie in blocks
//! of the pool only.

use std::iter::Peekable;

use bytes::Bytes;
use codec::Encode;

use crate::alloc::{Run, count_blocks, push_run};
use crate::checksum::{BLOCK, BLOCK_U64, placed_crc};
use crate::data::zero_block;
use crate::key::class;
use crate::page::{ENTRY_OVERHEAD, PAGE_TARGET, Page, PageBuilder, PageRef, Sums};
use crate::tree::{Pages, child_page, pages_below};
use crate::{Device, DeviceError, StoreError};

/// Pages emptier than this are filled up from their neighbour when they are rewritten anyway.
const PAGE_LOW: usize = PAGE_TARGET / 4;
/// A root whose reference would not fit the superblock gets a page above it.
const ROOT_MAX_RUNS: usize = 64;
/// New pages are written in pieces of about this length.
const WRITE_BYTES: usize = 1 << 20;

/// `None` removes the key.
pub(crate) type Change = (Bytes, Option<Bytes>);

/// Blocks set aside for a checkpoint, handed out front to back.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    runs: std::collections::VecDeque<Run>,
}

impl Pool {
    pub(crate) fn new(runs: Vec<Run>) -> Self {
        Self { runs: runs.into() }
    }

    /// The store sizes the pool for the worst case before the checkpoint starts, so it does not run dry.
    fn take(&mut self, blocks: u32) -> Result<Vec<Run>, StoreError> {
        let mut out = Vec::new();
        let mut left = blocks;
        while left > 0 {
            let Some(first) = self.runs.front_mut() else {
                let needed_bytes = u64::from(left) * BLOCK_U64;
                return Err(StoreError::Full { needed_bytes, available_bytes: 0 });
            };
            let n = left.min(first.len);
            push_run(&mut out, Run::new(first.start, n));
            first.start += n;
            first.len -= n;
            left -= n;
            if first.len == 0 {
                self.runs.pop_front();
            }
        }
        Ok(out)
    }

    /// The same when there are so many.
    fn try_take(&mut self, blocks: u32) -> Vec<Run> {
        let enough = count_blocks(self.runs.make_contiguous()) >= u64::from(blocks);
        if enough { self.take(blocks).unwrap_or_default() } else { Vec::new() }
    }

    pub(crate) fn into_rest(self) -> Vec<Run> {
        self.runs.into()
    }
}

/// Collects writes and passes neighbours on together, without copying them.
pub(crate) struct BlockWriter<'a> {
    device: &'a dyn Device,
    start: u32,
    pieces: Vec<Bytes>,
    bytes: usize,
    pub(crate) written_bytes: u64,
}

impl<'a> BlockWriter<'a> {
    pub(crate) fn new(device: &'a dyn Device) -> Self {
        Self { device, start: 0, pieces: Vec::new(), bytes: 0, written_bytes: 0 }
    }

    /// Writes `data`, padded with zeros to whole blocks, at `block`.
    pub(crate) fn write(&mut self, block: u32, data: Bytes) -> Result<(), DeviceError> {
        let next = self.start + (self.bytes / BLOCK) as u32;
        if next != block || self.bytes >= WRITE_BYTES {
            self.finish()?;
            self.start = block;
        }
        let padding = data.len().next_multiple_of(BLOCK) - data.len();
        self.bytes += data.len() + padding;
        self.pieces.push(data);
        if padding > 0 {
            self.pieces.push(zero_block().slice(..padding));
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self) -> Result<(), DeviceError> {
        if self.bytes > 0 {
            let slices: Vec<&[u8]> = self.pieces.iter().map(AsRef::as_ref).collect();
            self.device.write_vectored_at(u64::from(self.start) * BLOCK_U64, &slices)?;
            self.written_bytes += self.bytes as u64;
            self.pieces.clear();
            self.bytes = 0;
        }
        Ok(())
    }
}

/// A half-open key range; everything in it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadRange {
    pub(crate) start: Bytes,
    pub(crate) end: Bytes,
}

/// What came out of a merge.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) root: Option<PageRef>,
    pub(crate) replaced: Vec<Run>,
    pub(crate) used: Vec<Run>,
    /// Lengths of the two.
    pub(crate) replaced_blocks: u64,
    pub(crate) used_blocks: u64,
    /// Of these, second copies.
    pub(crate) replaced_mirror_blocks: u64,
    pub(crate) used_mirror_blocks: u64,
    /// New inner pages, and leaves as far as the limit goes, for the reader's cache.
    pub(crate) fresh: Vec<(u32, Page)>,
}

/// Builds the new tree from `root`, the changes in key order, and the dead ranges in key order. No change lies in a
/// dead range. Pages get second copies as far as `mirror` goes.
#[allow(clippy::too_many_arguments)] // what a checkpoint has; a struct of it would be used once
pub(crate) fn merge<P: Pages>(
    pages: P,
    writer: &mut BlockWriter<'_>,
    (pool, mirror): (&mut Pool, &mut Pool),
    root: Option<&PageRef>,
    changes: impl Iterator<Item = Result<Change, StoreError>>,
    dead: &[DeadRange],
    fresh_limit_bytes: usize,
) -> Result<Merged, StoreError> {
    let changes = changes.peekable();
    let copies = BlockWriter::new(writer.device);
    let builder = Builder {
        writer,
        copies,
        pool,
        mirror,
        mirror_blocks: 0,
        levels: Vec::new(),
        used: Vec::new(),
        fresh: Vec::new(),
        fresh_left: fresh_limit_bytes,
    };
    let mut m = Merge { pages, changes, dead, builder, replaced: Vec::new(), replaced_mirror_blocks: 0 };
    match root {
        Some(root) => {
            let page = m.pages.page(root)?;
            m.page(root, &page, &[], None)?;
        }
        None => m.leaf_rest(None)?,
    }
    let new_root = m.builder.finish()?;
    m.builder.writer.finish()?;
    m.builder.copies.finish()?;
    m.builder.writer.written_bytes += m.builder.copies.written_bytes;
    let (replaced_mirror_blocks, used_mirror_blocks) = (m.replaced_mirror_blocks, m.builder.mirror_blocks);
    let (replaced, used, fresh) = (m.replaced, m.builder.used, m.builder.fresh);
    let (replaced_blocks, used_blocks) = (count_blocks(&replaced), count_blocks(&used));
    Ok(Merged {
        root: new_root,
        replaced,
        used,
        replaced_blocks,
        used_blocks,
        replaced_mirror_blocks,
        used_mirror_blocks,
        fresh,
    })
}

struct Merge<'a, 'd, P, I: Iterator<Item = Result<Change, StoreError>>> {
    pages: P,
    changes: Peekable<I>,
    dead: &'a [DeadRange],
    builder: Builder<'a, 'd>,
    replaced: Vec<Run>,
    replaced_mirror_blocks: u64,
}

impl<P: Pages, I: Iterator<Item = Result<Change, StoreError>>> Merge<'_, '_, P, I> {
    /// Rewrites a page that has changes in its range `low..high`, or whose content is wanted by the builder.
    fn page(&mut self, r: &PageRef, page: &Page, low: &[u8], high: Option<&[u8]>) -> Result<(), StoreError> {
        if page.level() == 0 {
            return self.leaf(r, page, high);
        }
        self.replace(r);
        for i in 0..page.count() {
            let start = if i == 0 { low } else { page.key(i).unwrap_or(low) };
            let end = if i + 1 < page.count() { page.key(i + 1) } else { high };
            self.child(page, i, start, end)?;
        }
        Ok(())
    }

    fn replace(&mut self, r: &PageRef) {
        self.replaced.extend_from_slice(&r.runs);
        self.replaced_mirror_blocks += u64::from(r.mirror_blocks());
    }

    fn child(&mut self, parent: &Page, i: u32, start: &[u8], end: Option<&[u8]>) -> Result<(), StoreError> {
        let changed = self.has_change_below(end)?;
        let cut = Cut::of(self.dead, start, end);
        if cut == Cut::Whole && !changed {
            return self.drop_subtree(parent, i);
        }
        let level = parent.level() - 1;
        if cut == Cut::None && !changed && !self.builder.is_low(level) {
            let key = parent.key_bytes(i).unwrap_or_default();
            return self.builder.reuse(level, &key, &parent.child(i)?);
        }
        let (r, page) = child_page(&mut self.pages, parent, i)?;
        self.page(&r, &page, start, end)
    }

    fn has_change_below(&mut self, end: Option<&[u8]>) -> Result<bool, StoreError> {
        match self.changes.peek() {
            None => Ok(false),
            Some(Ok((key, _))) => Ok(end.is_none_or(|end| key.as_ref() < end)),
            Some(Err(e)) => Err(e.clone()),
        }
    }

    fn drop_subtree(&mut self, parent: &Page, i: u32) -> Result<(), StoreError> {
        let r = parent.child(i)?;
        self.replace(&r);
        if parent.level() > 1 {
            let (_, page) = child_page(&mut self.pages, parent, i)?;
            let (replaced, mirrors) = (&mut self.replaced, &mut self.replaced_mirror_blocks);
            pages_below(&mut self.pages, &page, &mut |r, _| {
                replaced.extend_from_slice(&r.runs);
                *mirrors += u64::from(r.mirror_blocks());
            })?;
        }
        Ok(())
    }

    fn leaf(&mut self, r: &PageRef, page: &Page, high: Option<&[u8]>) -> Result<(), StoreError> {
        let mut mine = Vec::new();
        while self.has_change_below(high)? {
            if let Some(change) = self.changes.next() {
                mine.push(change?);
            }
        }
        if !self.builder.is_low(0) && !self.changes_leaf(page, &mine) {
            let key = page.key_bytes(0).unwrap_or_default();
            return self.builder.reuse(0, &key, r);
        }
        self.replace(r);
        let mut mine = mine.into_iter();
        let mut next = mine.next();
        for i in 0..page.count() {
            let Some((key, value)) = page.entry(i) else { continue };
            let mut stays = true;
            while let Some((k, v)) = next.take_if(|(k, _)| k.as_ref() <= key) {
                stays = k.as_ref() != key;
                self.builder.put(&k, v)?;
                next = mine.next();
            }
            if stays && !is_dead(self.dead, key) {
                self.builder.entry(key, value)?;
            }
        }
        next.into_iter().chain(mine).try_for_each(|(k, v)| self.builder.put(&k, v))
    }

    /// Whether anything in the leaf would be different afterwards: removals of absent keys do not count.
    fn changes_leaf(&self, page: &Page, mine: &[Change]) -> bool {
        mine.iter().any(|(k, v)| v.is_some() || page.find(k).is_some())
            || !self.dead.is_empty()
                && (0..page.count()).any(|i| page.key(i).is_some_and(|k| is_dead(self.dead, k)))
    }

    /// All further changes up to `high` go into new leaves.
    fn leaf_rest(&mut self, high: Option<&[u8]>) -> Result<(), StoreError> {
        while self.has_change_below(high)? {
            if let Some(change) = self.changes.next() {
                let (key, value) = change?;
                self.builder.put(&key, value)?;
            }
        }
        Ok(())
    }
}

/// How much of a key range the dead ranges take.
#[derive(Debug, PartialEq, Eq)]
enum Cut {
    None,
    Part,
    Whole,
}

impl Cut {
    fn of(dead: &[DeadRange], start: &[u8], end: Option<&[u8]>) -> Self {
        // The first range that ends behind `start`; the ranges are sorted and apart.
        let at = dead.partition_point(|d| d.end.as_ref() <= start);
        let Some(d) = dead.get(at) else { return Self::None };
        if end.is_some_and(|end| d.start.as_ref() >= end) {
            Self::None
        } else if d.start.as_ref() <= start && end.is_some_and(|end| end <= d.end.as_ref()) {
            Self::Whole
        } else {
            Self::Part
        }
    }
}

fn is_dead(dead: &[DeadRange], key: &[u8]) -> bool {
    if dead.is_empty() {
        return false;
    }
    let at = dead.partition_point(|d| d.end.as_ref() <= key);
    dead.get(at).is_some_and(|d| d.start.as_ref() <= key)
}

/// Fills pages of all levels from left to right and writes them.
struct Builder<'a, 'd> {
    writer: &'a mut BlockWriter<'d>,
    /// Writes second copies.
    copies: BlockWriter<'d>,
    pool: &'a mut Pool,
    mirror: &'a mut Pool,
    mirror_blocks: u64,
    levels: Vec<PageBuilder>,
    used: Vec<Run>,
    fresh: Vec<(u32, Page)>,
    fresh_left: usize,
}

impl Builder<'_, '_> {
    fn put(&mut self, key: &[u8], value: Option<Bytes>) -> Result<(), StoreError> {
        match value {
            Some(value) => self.entry(key, &value),
            None => Ok(()),
        }
    }

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let mut sums = Sums::default();
        if key.first() == Some(&class::OMAP) {
            sums.omap_bytes = (key.len() - 9.min(key.len()) + value.len()) as u64;
        }
        self.push(0, key, value, sums)
    }

    /// Whether the open page of this level has so little in it that closing it would leave a nearly empty page.
    fn is_low(&self, level: u8) -> bool {
        self.levels.iter().take(usize::from(level) + 1).any(|b| !b.is_empty() && b.len() < PAGE_LOW)
    }

    /// Takes over a subtree of the old tree whose root is at `level`.
    fn reuse(&mut self, level: u8, key: &Bytes, r: &PageRef) -> Result<(), StoreError> {
        for below in 0..=level {
            self.close(below)?;
        }
        self.child(level + 1, key, r)
    }

    fn child(&mut self, level: u8, key: &[u8], r: &PageRef) -> Result<(), StoreError> {
        self.push(level, key, &r.to_bytes(), r.sums)
    }

    fn push(&mut self, level: u8, key: &[u8], value: &[u8], sums: Sums) -> Result<(), StoreError> {
        let at = usize::from(level);
        while self.levels.len() <= at {
            self.levels.push(PageBuilder::new(self.levels.len() as u8));
        }
        let grown = key.len() + value.len() + ENTRY_OVERHEAD;
        if self.levels.get(at).is_some_and(|b| !b.is_empty() && b.len() + grown > PAGE_TARGET) {
            self.close(level)?;
        }
        if let Some(b) = self.levels.get_mut(at) {
            b.push(key, value);
            b.sums.add(sums);
        }
        Ok(())
    }

    /// Writes the open page of a level, if there is one, and enters it one level up.
    fn close(&mut self, level: u8) -> Result<(), StoreError> {
        let Some(b) = self.levels.get_mut(usize::from(level)) else { return Ok(()) };
        if b.is_empty() {
            return Ok(());
        }
        let (key, raw, sums) = b.take();
        let r = self.write_page(level, raw, sums)?;
        self.child(level + 1, &key, &r)
    }

    fn write_page(&mut self, level: u8, raw: Bytes, mut sums: Sums) -> Result<PageRef, StoreError> {
        let blocks = raw.len().div_ceil(BLOCK) as u32;
        let mut runs = self.pool.take(blocks)?;
        let start = runs.first().map_or(0, |r| r.start);
        let copy = self.mirror.try_take(blocks);
        self.mirror_blocks += count_blocks(&copy);
        for (writer, runs) in [(&mut *self.writer, &runs), (&mut self.copies, &copy)] {
            let mut rest = raw.clone();
            for run in runs {
                let piece = rest.split_to(rest.len().min(run.len as usize * BLOCK));
                writer.write(run.start, piece)?;
                push_run(&mut self.used, *run);
            }
        }
        runs.extend(copy);
        if level == 0 {
            sums.leaves = 1;
        }
        let r = PageRef { runs, len: raw.len() as u32, crc: placed_crc(start, &raw), sums };
        if level > 0 || raw.len() <= self.fresh_left {
            self.fresh_left = self.fresh_left.saturating_sub(raw.len());
            self.fresh.extend(Page::parse(raw).map(|page| (start, page)));
        }
        Ok(r)
    }

    /// Closes all levels; the one page left at the top is the root.
    fn finish(&mut self) -> Result<Option<PageRef>, StoreError> {
        let mut level = 0;
        while let Some(b) = self.levels.get_mut(usize::from(level)) {
            if level > 0 && b.count() == 1 && self.levels.len() == usize::from(level) + 1 {
                return self.root_from_top(level);
            }
            self.close(level)?;
            level += 1;
        }
        Ok(None)
    }

    /// The only child of the top level is the root.
    fn root_from_top(&mut self, level: u8) -> Result<Option<PageRef>, StoreError> {
        let Some((_, raw, sums)) = self.levels.last_mut().map(PageBuilder::take) else { return Ok(None) };
        let root = Page::parse(raw.clone()).map(|page| page.child(0)).transpose()?;
        match root {
            Some(root) if root.runs.len() > ROOT_MAX_RUNS => self.write_page(level, raw, sums).map(Some),
            root => Ok(root),
        }
    }
}
