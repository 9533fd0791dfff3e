//! Which blocks are taken: a bitmap in regions that can be snapshotted cheaply, searched from a moving cursor.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Words of bits per region: what one slot of the allocation map holds beside its head.
pub(crate) const REGION_WORDS: usize = 510;
/// Blocks per region.
pub(crate) const REGION_BLOCKS: u32 = REGION_WORDS as u32 * 64;

/// Blocks whose bits share a word: a whole word of free blocks is where the next writes go, so that they lie in a row for
/// as long as there is one.
const WORD: u32 = 64;
/// A search gives up on a good place after so many regions.
const LOOK: u32 = 64;

/// A contiguous range of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Run {
    pub(crate) fn new(start: u32, len: u32) -> Self {
        Self { start, len }
    }

    pub(crate) fn end(self) -> u32 {
        self.start.saturating_add(self.len)
    }

    pub(crate) fn byte_offset(self) -> u64 {
        u64::from(self.start) * crate::checksum::BLOCK_U64
    }
}

/// Adds a block to a list of runs, joining it to the last one where it fits.
pub(crate) fn push_run(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.end() == run.start => last.len += run.len,
        _ => runs.push(run),
    }
}

pub(crate) fn count_blocks(runs: &[Run]) -> u64 {
    runs.iter().map(|r| u64::from(r.len)).sum()
}

pub(crate) type Bits = Arc<[u64; REGION_WORDS]>;

/// A set of blocks. A set bit is a taken block; a region that is not there has no bit set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bitmap {
    regions: Vec<Option<Bits>>,
    blocks: u32,
}

impl Bitmap {
    pub(crate) fn new(blocks: u32) -> Self {
        Self { regions: vec![None; blocks.div_ceil(REGION_BLOCKS) as usize], blocks }
    }

    pub(crate) fn regions(&self) -> u32 {
        self.regions.len() as u32
    }

    pub(crate) fn region(&self, region: u32) -> Option<&Bits> {
        self.regions.get(region as usize)?.as_ref()
    }

    pub(crate) fn set_region(&mut self, region: u32, bits: Option<Bits>) {
        if let Some(slot) = self.regions.get_mut(region as usize) {
            *slot = bits;
        }
    }

    pub(crate) fn get(&self, block: u32) -> bool {
        let (region, word, bit) = place(block);
        self.region(region).and_then(|r| r.get(word)).is_some_and(|w| w & (1 << bit) != 0)
    }

    /// Sets or clears every bit of the run; returns how many changed. Blocks past the end are left out.
    pub(crate) fn put(&mut self, run: Run, taken: bool) -> u32 {
        let mut changed = 0;
        let end = run.end().min(self.blocks);
        let mut block = run.start;
        while block < end {
            let (region, word, bit) = place(block);
            let n = (64 - bit).min(end - block);
            let mask = if n == 64 { u64::MAX } else { ((1u64 << n) - 1) << bit };
            if let Some(slot) = self.regions.get_mut(region as usize) {
                if taken || slot.is_some() {
                    let bits = slot.get_or_insert_with(|| Arc::new([0; REGION_WORDS]));
                    if let Some(w) = Arc::make_mut(bits).get_mut(word) {
                        let before = *w;
                        *w = if taken { before | mask } else { before & !mask };
                        changed += (before ^ *w).count_ones();
                    }
                }
            }
            block += n;
        }
        changed
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> u32 {
        self.regions.iter().flatten().map(|r| r.iter().map(|w| w.count_ones()).sum::<u32>()).sum()
    }

    /// The first free run of at least `least` blocks at or after `from` inside one region; at most `want` of it.
    fn free_run_in_region(&self, region: u32, from: u32, least: u32, want: u32) -> Option<Run> {
        let base = region * REGION_BLOCKS;
        let end = (base + REGION_BLOCKS).min(self.blocks);
        let mut at = from.max(base);
        while at < end {
            let start = self.next_with(at, end, false);
            let stop = self.next_with(start, end.min(start.saturating_add(want)), true);
            if stop > start && (stop - start >= least.min(want)) {
                return Some(Run::new(start, stop - start));
            }
            at = stop.max(start + 1);
        }
        None
    }

    /// The first free word of a region at or after `from`, and what follows it, at most `want` blocks.
    fn free_word_in_region(&self, region: u32, from: u32, want: u32) -> Option<Run> {
        let base = region * REGION_BLOCKS;
        let end = (base + REGION_BLOCKS).min(self.blocks);
        let first = from.saturating_sub(base).div_ceil(WORD);
        let words = 0..(end - base) / WORD;
        let word = match self.region(region) {
            None => Some(first),
            Some(bits) => (first..words.end).find(|w| bits.get(*w as usize) == Some(&0)),
        };
        let start = base + word.filter(|w| words.contains(w))? * WORD;
        let stop = self.next_with(start, end.min(start.saturating_add(want)), true);
        Some(Run::new(start, stop - start))
    }

    /// The first block in `at..end`, all of one region, whose bit is `taken`; `end` when there is none.
    fn next_with(&self, at: u32, end: u32, taken: bool) -> u32 {
        if at >= end {
            return end;
        }
        let Some(bits) = self.region(at / REGION_BLOCKS) else {
            return if taken { end } else { at };
        };
        let base = at - at % REGION_BLOCKS;
        let mut block = at;
        while block < end {
            let (_, word, bit) = place(block);
            let raw = bits.get(word).copied().unwrap_or(0);
            let hits = (if taken { raw } else { !raw }) >> bit;
            if hits != 0 {
                return (block + hits.trailing_zeros()).min(end);
            }
            block = base + (word as u32 + 1) * 64;
        }
        end
    }
}

fn place(block: u32) -> (u32, usize, u32) {
    let inside = block % REGION_BLOCKS;
    (block / REGION_BLOCKS, (inside / 64) as usize, inside % 64)
}

/// Hands out and takes back blocks.
///
/// Invariants: (1) `free` is the number of clear bits; (2) `touched` holds every region where a block was taken since
/// it was last emptied; (3) a region that is `crumbled` has no word of free blocks.
#[derive(Debug)]
pub(crate) struct Allocator {
    taken: Bitmap,
    free: u32,
    free_in_region: Vec<u32>,
    crumbled: Vec<bool>,
    cursor: u32,
    pub(crate) touched: BTreeSet<u32>,
}

impl Allocator {
    pub(crate) fn new(taken: Bitmap) -> Self {
        let free_in_region: Vec<u32> = (0..taken.regions())
            .map(|r| {
                let len = (taken.blocks - r * REGION_BLOCKS).min(REGION_BLOCKS);
                len - taken.region(r).map_or(0, |b| b.iter().map(|w| w.count_ones()).sum())
            })
            .collect();
        let free = free_in_region.iter().sum();
        let crumbled = vec![false; free_in_region.len()];
        Self { taken, free, free_in_region, crumbled, cursor: 0, touched: BTreeSet::new() }
    }

    pub(crate) fn free_blocks(&self) -> u32 {
        self.free
    }

    pub(crate) fn bitmap(&self) -> &Bitmap {
        &self.taken
    }

    /// Takes up to `want` blocks in one run: where the last one ended if they fit there, else where a whole word is free,
    /// else any.
    pub(crate) fn take(&mut self, want: u32) -> Option<Run> {
        if self.free == 0 || want == 0 {
            return None;
        }
        let run = self
            .behind_the_last(want)
            .or_else(|| self.search_word(want))
            .or_else(|| self.search(want.min(WORD / 2), want, LOOK))
            .or_else(|| self.search(1, want, u32::MAX))?;
        self.set_taken(run);
        self.cursor = run.end();
        Some(run)
    }

    /// Takes `want` blocks in as few runs as it finds; `None`, and nothing taken, when there are not so many.
    pub(crate) fn take_all(&mut self, want: u32) -> Option<Vec<Run>> {
        if self.free < want {
            return None;
        }
        let mut runs = Vec::new();
        let mut left = want;
        while left > 0 {
            let run = self.take(left)?;
            left -= run.len;
            push_run(&mut runs, run);
        }
        Some(runs)
    }

    /// Marks a given run taken; false, and nothing changed, when part of it already was.
    pub(crate) fn claim(&mut self, run: Run) -> bool {
        if run.end() > self.taken.blocks || (run.start..run.end()).any(|b| self.taken.get(b)) {
            return false;
        }
        self.set_taken(run);
        true
    }

    pub(crate) fn give_back(&mut self, run: Run) {
        let freed = self.put(run, false);
        assert_eq!(freed, run.len, "a block was freed twice: {run:?}");
        self.free += freed;
    }

    fn set_taken(&mut self, run: Run) {
        let taken = self.put(run, true);
        assert_eq!(taken, run.len, "a block was taken twice: {run:?}");
        self.free -= taken;
        for region in run.start / REGION_BLOCKS..=(run.end() - 1) / REGION_BLOCKS {
            self.touched.insert(region);
        }
    }

    /// A long run may as well begin elsewhere.
    fn behind_the_last(&self, want: u32) -> Option<Run> {
        let region_end = (self.cursor / REGION_BLOCKS + 1) * REGION_BLOCKS;
        let end = self.cursor.saturating_add(want);
        let fits = want <= WORD && end <= region_end.min(self.taken.blocks);
        (fits && self.taken.next_with(self.cursor, end, true) == end).then(|| Run::new(self.cursor, want))
    }

    /// Looks for a free word, once around from the cursor.
    fn search_word(&mut self, want: u32) -> Option<Run> {
        let regions = self.taken.regions();
        let first = (self.cursor / REGION_BLOCKS).min(regions.saturating_sub(1));
        let open = (0..=regions).map(|i| ((first + i) % regions, i == 0)).filter(|(region, _)| {
            let region = *region as usize;
            let free = self.free_in_region.get(region).is_some_and(|free| *free >= WORD);
            free && self.crumbled.get(region) == Some(&false)
        });
        let mut crumbled = Vec::new();
        let found = open.take(LOOK as usize).find_map(|(region, from_cursor)| {
            let from = if from_cursor { self.cursor } else { 0 };
            let found = self.taken.free_word_in_region(region, from, want);
            if found.is_none() && !from_cursor {
                crumbled.push(region);
            }
            found
        });
        for region in crumbled {
            if let Some(c) = self.crumbled.get_mut(region as usize) {
                *c = true;
            }
        }
        found
    }

    fn put(&mut self, run: Run, taken: bool) -> u32 {
        let changed = self.taken.put(run, taken);
        let mut block = run.start;
        while block < run.end() {
            let region = block / REGION_BLOCKS;
            let n = (run.end() - block).min((region + 1) * REGION_BLOCKS - block);
            if let Some(free) = self.free_in_region.get_mut(region as usize) {
                *free = if taken { free.saturating_sub(n) } else { *free + n };
            }
            if let Some(crumbled) = self.crumbled.get_mut(region as usize) {
                *crumbled &= taken;
            }
            block += n;
        }
        changed
    }

    /// Looks once around from the cursor, through at most `max_regions` regions that have room.
    fn search(&self, least: u32, want: u32, max_regions: u32) -> Option<Run> {
        let regions = self.taken.regions();
        let first = (self.cursor / REGION_BLOCKS).min(regions.saturating_sub(1));
        let mut looked = 0;
        for i in 0..=regions {
            let region = (first + i) % regions;
            if self.free_in_region.get(region as usize).is_none_or(|free| *free < least) {
                continue;
            }
            looked += 1;
            if looked > max_regions {
                return None;
            }
            let from = if i == 0 { self.cursor } else { 0 };
            if let Some(run) = self.taken.free_run_in_region(region, from, least, want) {
                return Some(run);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_every_block_once_and_reuses_what_came_back() {
        let blocks = REGION_BLOCKS + 100;
        let mut a = Allocator::new(Bitmap::new(blocks));
        assert!(a.claim(Run::new(10, 5)) && !a.claim(Run::new(14, 2)));
        let mut seen = Bitmap::new(blocks);
        while let Some(run) = a.take(1000) {
            assert_eq!(seen.put(run, true), run.len);
        }
        assert_eq!((seen.count(), a.free_blocks()), (blocks - 5, 0));
        a.give_back(Run::new(REGION_BLOCKS - 3, 6));
        let runs = a.take_all(6).expect("six are free");
        assert_eq!(runs, vec![Run::new(REGION_BLOCKS - 3, 6)]);
        assert_eq!(a.take_all(1), None);
    }

    #[test]
    fn prefers_a_long_run_over_holes() {
        let mut a = Allocator::new(Bitmap::new(1000));
        for b in (0..200).step_by(2) {
            assert!(a.claim(Run::new(b, 1)));
        }
        assert_eq!(a.take(64), Some(Run::new(256, 64)));
        assert_eq!(a.take(1), Some(Run::new(320, 1)));
        assert!(a.touched.contains(&0));
    }

    #[test]
    fn single_blocks_lie_in_a_row_while_a_word_is_free() {
        let blocks = 2 * REGION_BLOCKS;
        let mut a = Allocator::new(Bitmap::new(blocks));
        // Every other block of the first region and of half of the second is taken, and a word of each is free.
        let held = |b: &u32| b % 2 == 0 && !(640..704).contains(b);
        for b in (0..REGION_BLOCKS + REGION_BLOCKS / 2).filter(held) {
            assert!(a.claim(Run::new(b, 1)));
        }
        let row = |a: &mut Allocator, n| (0..n).map(|_| a.take(1).expect("room")).collect::<Vec<_>>();
        let ones = |start: u32, n: u32| (start..start + n).map(|b| Run::new(b, 1)).collect::<Vec<_>>();
        assert_eq!(row(&mut a, 64), ones(640, 64));
        let begin = REGION_BLOCKS + REGION_BLOCKS / 2;
        assert_eq!(row(&mut a, blocks - begin), ones(begin, blocks - begin));
        // Holes are all that is left, then nothing. What comes back is found again.
        assert_eq!(a.take(1), Some(Run::new(1, 1)));
        while a.take(1).is_some() {}
        assert_eq!(a.free_blocks(), 0);
        a.give_back(Run::new(128, 70));
        assert_eq!(row(&mut a, 70), ones(128, 70));
        assert_eq!(a.take(1), None);
    }

    #[test]
    fn a_snapshot_is_not_changed_by_later_calls() {
        let mut a = Allocator::new(Bitmap::new(1000));
        a.take(10);
        let snap = a.bitmap().clone();
        a.take(10);
        a.give_back(Run::new(0, 5));
        assert_eq!((snap.count(), a.bitmap().count()), (10, 15));
    }
}
