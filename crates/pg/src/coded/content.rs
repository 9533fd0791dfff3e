//! An object's data while the operations of a transaction are followed: what of the old bytes is left, and
//! what was laid over them.

use std::ops::Range;

use bytes::Bytes;
use types::HObject;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    /// The object whose stored bytes this one began with: itself, or what it was cloned from.
    pub base: Option<HObject>,
    /// Bytes that the shards hold of it.
    pub stored: u64,
    /// The stored bytes from here on are gone.
    cut: u64,
    pub size: u64,
    /// In order; `None` for zeros.
    changes: Vec<(Range<u64>, Option<Bytes>)>,
    /// The size was set, or the object made.
    pub touched: bool,
}

impl Content {
    /// An object with so many bytes in the store.
    pub fn stored(base: HObject, size: u64) -> Self {
        Self { base: Some(base), stored: size, cut: size, size, ..Self::default() }
    }

    /// What a clone of it begins with; `None` when it has changed, so that the store's clone is another.
    pub fn cloned(&self) -> Option<Self> {
        (!self.is_changed()).then(|| Self { touched: true, ..self.clone() })
    }

    pub fn is_changed(&self) -> bool {
        self.touched || !self.changes.is_empty()
    }

    pub fn write(&mut self, offset: u64, data: Bytes) {
        let end = offset.saturating_add(data.len() as u64);
        self.size = self.size.max(end);
        self.touched = true;
        if offset < end {
            self.changes.push((offset..end, Some(data)));
        }
    }

    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        self.size = self.size.max(end);
        self.touched = true;
        if offset < end {
            self.changes.push((offset..end, None));
        }
    }

    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.changes.push((size..self.size, None));
            self.cut = self.cut.min(size);
        }
        self.size = size;
        self.touched = true;
    }

    /// The ranges that change, in order and apart, up to the end of the last stripe. Those that meet in one
    /// stripe are one, for a stripe's coding chunks are made once.
    pub fn changed(&self, stripe_width: u64) -> Vec<Range<u64>> {
        let end = self.size.div_ceil(stripe_width).saturating_mul(stripe_width);
        let clipped = self.changes.iter().map(|(r, _)| r.start..r.end.min(end)).filter(|r| !r.is_empty());
        let mut all: Vec<Range<u64>> = clipped.collect();
        all.sort_unstable_by_key(|r| r.start);
        let mut out: Vec<Range<u64>> = Vec::with_capacity(all.len());
        for range in all {
            match out.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                Some(last) if range.start / stripe_width == (last.end - 1) / stripe_width => {
                    last.end = range.end;
                }
                _ => out.push(range),
            }
        }
        out
    }

    /// The parts of a range that keep the bytes that are stored.
    pub fn kept(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let there = range.start..range.end.min(self.cut).min(self.stored).max(range.start);
        let mut left: Vec<Range<u64>> = Vec::from([there]);
        for (gone, _) in &self.changes {
            let cut = |r: Range<u64>| [r.start..r.end.min(gone.start), r.start.max(gone.end)..r.end];
            left = left.into_iter().flat_map(cut).filter(|r| r.start < r.end).collect();
        }
        left.retain(|r| !r.is_empty());
        left
    }

    /// Lays the changes over what a range keeps. `bytes` begins with the range, and has zeros elsewhere.
    pub fn lay_over(&self, range: &Range<u64>, bytes: &mut [u8]) {
        for (changed, data) in &self.changes {
            let (from, until) = (changed.start.max(range.start), changed.end.min(range.end));
            if from >= until {
                continue;
            }
            // Both are within the buffer, which is in memory.
            let to = (from - range.start) as usize..(until - range.start) as usize;
            let Some(to) = bytes.get_mut(to) else { continue };
            match data {
                None => to.fill(0),
                Some(data) => {
                    let at = (from - changed.start) as usize;
                    if let Some(data) = data.get(at..at + to.len()) {
                        to.copy_from_slice(data);
                    }
                }
            }
        }
    }
}
