//! Keeps writes past the page cache apart from writes through it, where both would touch one folio.
//!
//! A direct write throws the folios of its range out of the page cache before it begins and again when it is done. The
//! second time fails when somebody has written into such a folio meanwhile: Linux then calls all of the file's earlier
//! writes into question (`wb_err` becomes EIO), and the cache may go on showing old bytes. A checkpoint writes through the
//! cache while commits write past it, and a large folio reaches over the border between the log and the data.
//! Source: Linux' mm/filemap.c, kiocb_invalidate_post_direct_write.
//!
//! Invariants:
//! 1. While a write of one way runs, none of the other way runs in any folio that it touches.
//! 2. Nobody waits for more than the write calls that are running: no lane is held across a flush.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The largest folio of the page cache where pages have 4 KiB. Where they are larger a folio may be too; a direct write
/// that meets another write there fails by the EIO above, at the next flush of every handle.
const FOLIO: u64 = 2 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Cached,
}

/// The writes that run, of all handles of a file.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// One for each thread that writes at most.
    running: Vec<(Way, Range<u64>)>,
    waiting: usize,
}

impl State {
    fn is_free(&self, way: Way, folios: &Range<u64>) -> bool {
        let meets = |other: &Range<u64>| folios.start < other.end && other.start < folios.end;
        !self.running.iter().any(|(other, range)| *other != way && meets(range))
    }
}

/// A running write; it leaves its lane when this is dropped.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    lanes: &'a Lanes,
    way: Way,
    folios: Range<u64>,
}

impl Lanes {
    /// Waits until no write of the other way is near.
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
        drop(state);
        self.lanes.left.notify_all();
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
