//! Keeps direct writes (past the page cache) and cached writes (through it) of one file out of each other's
//! folios.
//!
//! A direct write removes the folios of its range from the page cache before it begins and again when it is
//! done. The second removal fails if another thread has written into such a folio meanwhile. Linux then no
//! longer vouches for any earlier write to the file (`wb_err` becomes EIO), and the cache may go on showing
//! old bytes. This store does both at once: a checkpoint writes through the cache while commits write past
//! it, and a large folio can span the border between the log and the data. Source: Linux' mm/filemap.c,
//! kiocb_invalidate_post_direct_write.
//!
//! Invariants:
//! 1. While a direct write runs, no cached write runs in any folio that it touches, nor the other way round.
//! 2. A writer waits for nothing but write calls that are running: no lane is held across a flush.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The largest folio of the page cache where pages have 4 KiB. Where they are larger a folio may be too; a
/// direct write that meets another write there fails by the EIO above, at the next flush of every handle.
const FOLIO: u64 = 2 << 20;

/// How a write reaches the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Cached,
}

/// The running writes of all handles of one file.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bounded by the number of threads that write.
    running: Vec<(Way, Range<u64>)>,
    waiting: usize,
}

impl State {
    fn is_free(&self, way: Way, folios: &Range<u64>) -> bool {
        let meets = |other: &Range<u64>| folios.start < other.end && other.start < folios.end;
        !self.running.iter().any(|(other, range)| *other != way && meets(range))
    }
}

/// A running write, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    lanes: &'a Lanes,
    way: Way,
    folios: Range<u64>,
}

impl Lanes {
    /// Waits until no write of the other way runs in the folios of this range, then counts as running.
    pub fn enter(&self, way: Way, offset: u64, len: usize) -> Lane<'_> {
        let folios = offset / FOLIO..offset.saturating_add(len as u64).div_ceil(FOLIO);
        let mut state = self.state();
        state.waiting += 1;
        while !state.is_free(way, &folios) {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        state.running.push((way, folios.clone()));
        Lane { lanes: self, way, folios }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        let mut state = self.lanes.state();
        let mine = state.running.iter().position(|(way, folios)| *way == self.way && *folios == self.folios);
        mine.map(|at| state.running.swap_remove(at));
        // To wake is a system call even where nobody waits.
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.lanes.left.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_of_two_ways_that_share_a_folio_keep_out_of_each_other() {
        let lanes = Lanes::default();
        let lane = lanes.enter(Way::Direct, FOLIO + 4096, FOLIO as usize);
        let free = |way, folios| lanes.state().is_free(way, &folios);
        assert!(free(Way::Direct, 1..3), "the same way");
        assert!(free(Way::Cached, 0..1) && free(Way::Cached, 3..4), "beside it");
        assert!(!free(Way::Cached, 0..2) && !free(Way::Cached, 2..3) && !free(Way::Cached, 0..9));
        let same = lanes.enter(Way::Direct, FOLIO + 4096, FOLIO as usize);
        drop(lane);
        assert!(!free(Way::Cached, 1..2), "the other one still runs");
        drop(same);
        assert!(free(Way::Cached, 0..9));
    }
}
