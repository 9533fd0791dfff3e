//! Which blocks are taken: a bitmap in regions that can be snapshotted cheaply, and where the next ones are taken.
//!
//! A store that is overwritten at random frees single blocks all over the device. Small runs fill the words of which most
//! blocks are free again, one after the other, so that a batch of them lies in few runs and what lives long gathers in a
//! part of the device; long runs get whole free words. Neither has to look at what has no room for it: each region counts
//! both kinds of words.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Words of bits per region: what one slot of the allocation map holds beside its head.
pub(crate) const REGION_WORDS: usize = 510;
/// Blocks per region.
pub(crate) const REGION_BLOCKS: u32 = REGION_WORDS as u32 * 64;

/// Blocks whose bits share a word.
const WORD: u32 = 64;
/// Runs of at most so many blocks are small.
const SMALL: u32 = WORD / 2;
/// A word with so many free blocks is worth filling: they lie in runs of four on average when the rest is anywhere.
const SPARSE: u32 = WORD * 3 / 4;
/// A search gives up after so many regions that may have what it looks for.
const LOOK: usize = 2;
/// Where no word is sparse, a run of at least so many blocks is looked for near by.
const NEAR: u32 = 8;

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

    /// The free blocks of a word, counted over the whole device, as bits.
    fn free_bits(&self, word: u32) -> u64 {
        let (region, inside, _) = place(word * WORD);
        let taken = self.region(region).and_then(|bits| bits.get(inside)).copied().unwrap_or(0);
        match self.blocks.saturating_sub(word * WORD) {
            0 => 0,
            left if left < WORD => !taken & ((1 << left) - 1),
            _ => !taken,
        }
    }

    /// A region's words, counted over the whole device.
    fn words(&self, region: u32) -> std::ops::Range<u32> {
        let per_region = REGION_WORDS as u32;
        region * per_region..((region + 1) * per_region).min(self.blocks.div_ceil(WORD))
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

/// Where the first run of `want` free blocks, at most 64, begins.
fn run_of(free: u64, want: u32) -> Option<u32> {
    let (mut starts, mut len) = (free, 1);
    while len < want {
        let step = len.min(want - len);
        starts &= starts >> step;
        len += step;
    }
    (starts != 0).then(|| starts.trailing_zeros())
}

/// Most of its blocks are free, but not all.
fn is_sparse(free: u64) -> bool {
    (SPARSE..WORD).contains(&free.count_ones())
}

/// The longest run of free blocks: where it begins, and its length.
fn longest_run(free: u64) -> Option<(u32, u32)> {
    (1..=WORD).rev().find_map(|len| Some((run_of(free, len)?, len)))
}

/// What is known of a region's words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Room {
    free: u32,
    /// Words of free blocks only.
    whole: u16,
    sparse: u16,
}

impl Room {
    fn of(free: u64) -> Self {
        let n = free.count_ones();
        Self { free: n, whole: u16::from(n == WORD), sparse: u16::from(is_sparse(free)) }
    }

    fn replace(&mut self, old: Self, new: Self) {
        self.free = self.free + new.free - old.free;
        self.whole = self.whole + new.whole - old.whole;
        self.sparse = self.sparse + new.sparse - old.sparse;
    }
}

/// Hands out and takes back blocks.
///
/// Invariants: (1) `free` is the number of clear bits; (2) `touched` holds every region where a block was taken since
/// it was last emptied; (3) `rooms` says of each region what its words are.
#[derive(Debug)]
pub(crate) struct Allocator {
    taken: Bitmap,
    free: u32,
    rooms: Vec<Room>,
    /// Behind the last small run, and behind the last long one.
    small: u32,
    long: u32,
    pub(crate) touched: BTreeSet<u32>,
    /// Words that searches have looked at.
    #[cfg(test)]
    looked: std::cell::Cell<u64>,
}

impl Allocator {
    pub(crate) fn new(taken: Bitmap) -> Self {
        let room = |region| {
            let mut room = Room::default();
            for word in taken.words(region) {
                room.replace(Room::default(), Room::of(taken.free_bits(word)));
            }
            room
        };
        let rooms: Vec<Room> = (0..taken.regions()).map(room).collect();
        Self {
            free: rooms.iter().map(|room| room.free).sum(),
            taken,
            rooms,
            small: 0,
            long: 0,
            touched: BTreeSet::new(),
            #[cfg(test)]
            looked: std::cell::Cell::new(0),
        }
    }

    pub(crate) fn free_blocks(&self) -> u32 {
        self.free
    }

    pub(crate) fn bitmap(&self) -> &Bitmap {
        &self.taken
    }

    /// Takes up to `want` blocks in one run.
    pub(crate) fn take(&mut self, want: u32) -> Option<Run> {
        if self.free == 0 || want == 0 {
            return None;
        }
        let is_small = want <= SMALL;
        let run = match is_small {
            true => self.find_small(want),
            false => self.find_long(want),
        }
        .or_else(|| self.find_any(want))?;
        self.set_taken(run);
        let behind = if run.end() < self.taken.blocks { run.end() } else { 0 };
        match is_small {
            true => self.small = behind,
            false => self.long = behind,
        }
        Some(run)
    }

    /// In the word where the last small run was, else in a sparse one, else in a free one.
    fn find_small(&self, want: u32) -> Option<Run> {
        let (word, bit) = (self.small / WORD, self.small % WORD);
        let free = self.taken.free_bits(word);
        // A word that begins here is one like all others.
        let open = bit > 0 || is_sparse(free);
        let here = run_of(free & (u64::MAX << bit), want).filter(|_| open).map(|at| (word, at));
        let sparse = |free| is_sparse(free).then(|| run_of(free, want)).flatten();
        let whole = |free| (free == u64::MAX).then_some(0);
        here.or_else(|| self.find_word(self.small, |room| room.sparse > 0, sparse))
            .or_else(|| self.find_word(self.small, |room| room.whole > 0, whole))
            .map(|(word, at)| Run::new(word * WORD + at, want))
    }

    /// Right behind the last long run, else from a free word on, else the longest run of a sparse word.
    fn find_long(&self, want: u32) -> Option<Run> {
        if let Some(run) = self.behind_the_last(want) {
            return Some(run);
        }
        let whole = |free| (free == u64::MAX).then_some(());
        if let Some((word, ())) = self.find_word(self.long, |room| room.whole > 0, whole) {
            return Some(self.run_from(word * WORD, want));
        }
        let sparse = |free| is_sparse(free).then(|| longest_run(free)).flatten();
        let (word, (at, len)) = self.find_word(self.long, |room| room.sparse > 0, sparse)?;
        Some(Run::new(word * WORD + at, len.min(want)))
    }

    /// A run that is long enough if there is one near by, else the next free block with what is free behind it.
    fn find_any(&self, want: u32) -> Option<Run> {
        let from = if want <= SMALL { self.small } else { self.long };
        let least = want.min(NEAR);
        let long_enough = |free| run_of(free, least);
        let (word, at) = self.find_word(from, |room| room.free >= least, long_enough).or_else(|| {
            let (word, bit) = (from / WORD, from % WORD);
            let behind = self.taken.free_bits(word) & (u64::MAX << bit);
            match run_of(behind, 1) {
                Some(at) => Some((word, at)),
                None => self.find_word(from, |room| room.free > 0, |free| run_of(free, 1)),
            }
        })?;
        Some(self.run_from(word * WORD + at, want))
    }

    /// The first word that suits at or behind a block's, once around but for what `LOOK` leaves out.
    fn find_word<T>(
        &self,
        from: u32,
        may: impl Fn(&Room) -> bool,
        suits: impl Fn(u64) -> Option<T>,
    ) -> Option<(u32, T)> {
        let own = from / REGION_BLOCKS;
        let may = |region: &u32| self.rooms.get(*region as usize).is_some_and(&may);
        self.regions_from(from).enumerate().filter(|(_, region)| may(region)).take(LOOK).find_map(
            |(i, region)| {
                let words = self.taken.words(region);
                let first = if i == 0 && region == own { from / WORD } else { words.start };
                (first..words.end).find_map(|word| {
                    self.look();
                    Some((word, suits(self.taken.free_bits(word))?))
                })
            },
        )
    }

    /// All regions from a block's own on, and that one once more.
    fn regions_from(&self, block: u32) -> impl Iterator<Item = u32> + use<> {
        let regions = self.taken.regions();
        let own = (block / REGION_BLOCKS).min(regions.saturating_sub(1));
        (own..regions).chain(0..own).chain(std::iter::once(own))
    }

    /// What is free from a free block on, at most `want` blocks, in its region.
    fn run_from(&self, start: u32, want: u32) -> Run {
        let region_end = ((start / REGION_BLOCKS + 1) * REGION_BLOCKS).min(self.taken.blocks);
        let stop = self.taken.next_with(start, region_end.min(start.saturating_add(want)), true);
        Run::new(start, stop - start)
    }

    fn look(&self) {
        #[cfg(test)]
        self.looked.set(self.looked.get() + 1);
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

    /// Takes what is free of a range, but for runs of fewer than `least` blocks.
    pub(crate) fn claim_free(&mut self, range: Run, least: u32) -> Vec<Run> {
        let (mut at, end) = (range.start, range.end().min(self.taken.blocks));
        let mut runs = Vec::new();
        while at < end {
            let region_end = ((at / REGION_BLOCKS + 1) * REGION_BLOCKS).min(end);
            let start = self.taken.next_with(at, region_end, false);
            at = self.taken.next_with(start, region_end, true);
            if start < at {
                push_run(&mut runs, Run::new(start, at - start));
            }
        }
        runs.retain(|run| run.len >= least);
        runs.iter().for_each(|run| self.set_taken(*run));
        runs
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

    /// Behind the last long run, when the whole fits there and is no longer than a word: a longer one may as well begin
    /// elsewhere.
    fn behind_the_last(&self, want: u32) -> Option<Run> {
        let run = (want <= WORD && self.long < self.taken.blocks).then(|| self.run_from(self.long, want))?;
        (run.len == want).then_some(run)
    }

    fn put(&mut self, run: Run, taken: bool) -> u32 {
        let mut changed = 0;
        let mut block = run.start;
        while block < run.end() {
            let word = block / WORD;
            let part = Run::new(block, (run.end() - block).min((word + 1) * WORD - block));
            let old = Room::of(self.taken.free_bits(word));
            changed += self.taken.put(part, taken);
            let new = Room::of(self.taken.free_bits(word));
            if let Some(room) = self.rooms.get_mut((block / REGION_BLOCKS) as usize) {
                room.replace(old, new);
            }
            block = part.end();
        }
        changed
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
        // Four of the fourth word's blocks are taken.
        assert_eq!(a.take(1), Some(Run::new(193, 1)));
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

    /// What was counted of each region is what counting again finds.
    fn check_rooms(a: &Allocator) {
        let again = Allocator::new(a.taken.clone());
        assert_eq!((&a.rooms, a.free), (&again.rooms, again.free));
    }

    /// A device a fourth full of blocks that are overwritten one by one at random, six times over, freed by checkpoints.
    fn aged(seed: u64) -> (Allocator, Vec<u32>) {
        let mut a = Allocator::new(Bitmap::new(8 * REGION_BLOCKS));
        let mut live: Vec<u32> = Vec::new();
        while live.len() < 2 * REGION_BLOCKS as usize {
            live.extend(a.take_all(1024).expect("room").iter().flat_map(|run| run.start..run.end()));
        }
        let (mut freed, mut x) = (Vec::new(), seed);
        for i in 0..6 * live.len() {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let which = (x >> 33) as usize % live.len();
            let run = a.take(1).expect("room");
            freed.push(std::mem::replace(&mut live[which], run.start));
            if i % 5000 == 0 {
                freed.drain(..).for_each(|block| a.give_back(Run::new(block, 1)));
            }
        }
        freed.drain(..).for_each(|block| a.give_back(Run::new(block, 1)));
        (a, live)
    }

    #[test]
    fn an_aged_device_has_long_runs_and_rows_and_both_are_found_soon() {
        let (mut a, live) = aged(42);
        check_rooms(&a);
        let used =
            (0..8 * REGION_BLOCKS / WORD).filter(|w| a.taken.free_bits(*w) != u64::MAX).count() as u32 * WORD;
        assert!(
            used * 4 < live.len() as u32 * 9,
            "{used} blocks lie in words of which {} are used",
            live.len()
        );
        a.looked.set(0);

        let rows = 2000;
        let mut runs = 0;
        for _ in 0..rows {
            let mut row = Vec::new();
            (0..8).for_each(|_| push_run(&mut row, a.take(1).expect("room")));
            runs += row.len();
        }
        let looked = a.looked.get() / (8 * rows);
        assert!(runs < 4 * rows as usize, "{rows} batches of eight blocks lie in {runs} runs");
        assert!(looked < 64, "{looked} words looked at for a block");
        a.looked.set(0);
        let (mut taken, mut pieces) = (0, 0);
        while a.free_blocks() > REGION_BLOCKS * 4 {
            pieces += a.take_all(1024).expect("room").len();
            taken += 1;
        }
        assert!(pieces < 4 * taken, "{taken} long runs are in {pieces} pieces");
        let looked = a.looked.get() / pieces as u64;
        assert!(looked < 64, "{looked} words looked at for a piece");
        check_rooms(&a);
    }

    #[test]
    fn the_worst_place_is_searched_no_longer_than_two_regions() {
        let mut a = Allocator::new(Bitmap::new(6 * REGION_BLOCKS));
        for block in (0..6 * REGION_BLOCKS).filter(|b| b % 4 < 2) {
            assert!(a.claim(Run::new(block, 1)));
        }
        for want in [1, 2, 3, 32, 33, 1024] {
            a.looked.set(0);
            let runs = a.take_all(want).expect("room");
            assert!(
                a.looked.get() <= u64::from(want.div_ceil(2)) * 2 * (2 * REGION_WORDS as u64 + 1),
                "{want}"
            );
            assert!(runs.len() as u32 <= want.div_ceil(2) + 1, "{want} blocks in {} runs", runs.len());
        }
        check_rooms(&a);
        while a.take(5).is_some() {}
        assert_eq!(a.free_blocks(), 0);
        check_rooms(&a);
    }

    #[test]
    fn runs_within_a_word_are_found() {
        for (free, want, at) in [
            (0, 1, None),
            (u64::MAX, 64, Some(0)),
            (u64::MAX - 1, 64, None),
            (u64::MAX - 1, 63, Some(1)),
            (0b1110_1101, 3, Some(5)),
            (1 << 63, 1, Some(63)),
            (1 << 63, 2, None),
        ] {
            assert_eq!(run_of(free, want), at, "{free:b} {want}");
        }
        assert_eq!(longest_run(0b1110_1101), Some((5, 3)));
        assert_eq!((longest_run(u64::MAX), longest_run(0)), (Some((0, 64)), None));
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
