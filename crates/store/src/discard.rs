//! Freed space that the device is told of, once nobody has wanted it for a while.
//!
//! What is freed is often written again soon. A file system that punches a hole, or a disk that gives its pages back, has
//! to find room again when that happens, and it costs more than the write: so freed ranges rest before they are discarded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::alloc::Run;
use crate::checksum::BLOCK_U64;

/// Most of what one job discards: it holds up a checkpoint.
const MOST_BLOCKS: u32 = (64 << 20) / BLOCK_U64 as u32;
/// What is freed while so many ranges rest is not discarded before it is freed again.
const MOST_RANGES: usize = 1 << 16;

/// Ranges that checkpoints freed and the device does not know of. Parts of them may be in use again.
///
/// Invariants: (1) no two ranges overlap; (2) `oldest` has each range's stamp and start.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    /// By first block: the one behind the last, and since when.
    ranges: BTreeMap<u32, (u32, Duration)>,
    oldest: BTreeSet<(Duration, u32)>,
    /// When it was last told the time.
    now: Duration,
    /// When a checkpoint was last published.
    published: Duration,
}

impl Resting {
    /// A checkpoint is published; `freed` are the ranges that it freed, of which those of `least` blocks or more rest now.
    pub(crate) fn published(&mut self, freed: impl Iterator<Item = Run>, least: u32) {
        self.published = self.now;
        freed.filter(|run| run.len >= least).for_each(|run| self.note(run, self.now));
    }

    /// Sets the time, as the owner's clock has it; returns how long ago a checkpoint was last published.
    pub(crate) fn set_now(&mut self, now: Duration) -> Duration {
        self.now = now;
        now.saturating_sub(self.published)
    }

    fn note(&mut self, run: Run, since: Duration) {
        self.cut(run);
        if self.ranges.len() < MOST_RANGES {
            self.insert(run.start, run.end(), since);
        }
    }

    fn insert(&mut self, start: u32, end: u32, since: Duration) {
        self.ranges.insert(start, (end, since));
        self.oldest.insert((since, start));
    }

    /// What rests within a range does so no longer.
    fn cut(&mut self, range: Run) {
        while let Some((&start, &(end, since))) = self.ranges.range(..range.end()).next_back() {
            if end <= range.start {
                return;
            }
            self.ranges.remove(&start);
            self.oldest.remove(&(since, start));
            if range.end() < end {
                self.insert(range.end(), end, since);
            }
            if start < range.start {
                self.insert(start, range.start, since);
            }
        }
    }

    /// Takes out up to `most` blocks that have rested for `rest`, those that have done so for longest first. A range is only
    /// divided when it is longer than that.
    pub(crate) fn take(&mut self, rest: Duration, most: u64) -> Vec<Run> {
        let mut left = most.min(u64::from(MOST_BLOCKS)) as u32;
        let mut taken = Vec::new();
        while let Some(&(since, start)) = self.oldest.first().filter(|_| left > 0) {
            let Some(&(end, _)) = self.ranges.get(&start) else { break };
            if since + rest > self.now {
                break;
            }
            if end - start > left && !taken.is_empty() {
                break;
            }
            let run = Run::new(start, (end - start).min(left));
            self.cut(run);
            left -= run.len;
            taken.push(run);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What it takes out when it is told the time and asked for all that is ripe.
    fn ripe(resting: &mut Resting, now: u32, most: u64) -> Vec<(u32, u32)> {
        resting.set_now(now * SECOND);
        let runs = resting.take(10 * SECOND, most);
        assert_eq!(resting.ranges.len(), resting.oldest.len());
        runs.into_iter().map(|run| (run.start, run.len)).collect()
    }

    fn free(resting: &mut Resting, now: u32, runs: &[(u32, u32)]) {
        resting.set_now(now * SECOND);
        resting.published(runs.iter().map(|(start, len)| Run::new(*start, *len)), 4);
    }

    #[test]
    fn a_range_rests_until_its_time_whatever_is_freed_beside_it() {
        let mut r = Resting::default();
        free(&mut r, 1, &[(100, 10), (50, 3), (0, 4)]);
        free(&mut r, 5, &[(110, 10), (96, 4)]);
        assert_eq!(ripe(&mut r, 10, 99), []);
        assert_eq!(ripe(&mut r, 11, 99), [(0, 4), (100, 10)]);
        assert_eq!(ripe(&mut r, 15, 99), [(96, 4), (110, 10)]);
        assert_eq!(ripe(&mut r, 99, 99), []);
    }

    #[test]
    fn what_is_freed_again_begins_anew_and_the_rest_of_its_range_does_not() {
        let mut r = Resting::default();
        free(&mut r, 1, &[(0, 100), (200, 10)]);
        free(&mut r, 5, &[(40, 20), (190, 40)]);
        assert_eq!(ripe(&mut r, 11, 999), [(0, 40), (60, 40)]);
        assert_eq!(ripe(&mut r, 15, 999), [(40, 20), (190, 40)]);
    }

    #[test]
    fn one_job_takes_no_more_than_it_may() {
        let mut r = Resting::default();
        free(&mut r, 1, &[(0, 3 * MOST_BLOCKS)]);
        assert_eq!(ripe(&mut r, 11, 7), [(0, 7)]);
        assert_eq!(ripe(&mut r, 11, u64::MAX), [(7, MOST_BLOCKS)]);
        assert_eq!(ripe(&mut r, 11, 0), []);
        free(&mut r, 1, &[(0, 4), (10, 6)]);
        assert_eq!(ripe(&mut r, 11, 8), [(0, 4)]);
        assert_eq!(ripe(&mut r, 11, 8), [(10, 6)]);
    }

    #[test]
    fn there_is_a_bound_to_what_it_remembers() {
        let mut r = Resting::default();
        let runs: Vec<(u32, u32)> = (0..MOST_RANGES as u32 + 9).map(|i| (i * 8, 4)).collect();
        free(&mut r, 1, &runs);
        assert_eq!(r.ranges.len(), MOST_RANGES);
        assert_eq!(r.set_now(3 * SECOND), 2 * SECOND);
    }
}
