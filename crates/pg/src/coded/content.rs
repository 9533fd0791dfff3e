//! An object's data while the operations of a transaction are followed: what of the old bytes is left, and
//! what was laid over them.

use std::collections::BinaryHeap;
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

    /// The changes as they lie over one another in the end.
    pub fn laid(&self) -> Laid<'_> {
        let mut starts: Vec<usize> = (0..self.changes.len()).collect();
        starts.sort_by_key(|at| self.range(*at).start);
        let mut points: Vec<u64> = self.changes.iter().flat_map(|(r, _)| [r.start, r.end]).collect();
        points.sort_unstable();
        points.dedup();
        let (mut starts, mut open) = (starts.into_iter().peekable(), BinaryHeap::new());
        let mut segments: Vec<Segment> = Vec::with_capacity(points.len());
        for (at, until) in points.iter().zip(points.iter().skip(1)) {
            while let Some(change) = starts.next_if(|change| self.range(*change).start <= *at) {
                open.push(change);
            }
            // The newest of those that are not over.
            while open.peek().is_some_and(|change| self.range(*change).end <= *at) {
                open.pop();
            }
            let Some(change) = open.peek().copied() else { continue };
            match segments.last_mut() {
                Some(last) if last.change == change && last.range.end == *at => last.range.end = *until,
                _ => segments.push(Segment { range: *at..*until, change }),
            }
        }
        Laid { content: self, segments }
    }

    fn range(&self, change: usize) -> Range<u64> {
        self.changes.get(change).map_or(0..0, |(range, _)| range.clone())
    }
}

/// Where a change is the newest.
struct Segment {
    range: Range<u64>,
    change: usize,
}

/// The changes of a content: in order and apart, so that none is looked at for ranges that it does not touch.
pub(super) struct Laid<'a> {
    content: &'a Content,
    segments: Vec<Segment>,
}

impl Laid<'_> {
    /// The segments that touch a range.
    fn over(&self, range: &Range<u64>) -> &[Segment] {
        let from = self.segments.partition_point(|s| s.range.end <= range.start);
        let until = self.segments.partition_point(|s| s.range.start < range.end);
        self.segments.get(from..until).unwrap_or_default()
    }

    /// The ranges that change, in order and apart, up to the end of the last stripe. Those that meet in one
    /// stripe are one, for a stripe's coding chunks are made once.
    pub fn changed(&self, stripe_width: u64) -> Vec<Range<u64>> {
        let end = self.content.size.div_ceil(stripe_width).saturating_mul(stripe_width);
        let mut out: Vec<Range<u64>> = Vec::with_capacity(self.segments.len());
        for range in self.over(&(0..end)).iter().map(|s| s.range.start..s.range.end.min(end)) {
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
        let end = range.end.min(self.content.cut).min(self.content.stored).max(range.start);
        let (mut left, mut at) = (Vec::new(), range.start);
        for gone in self.over(&(range.start..end)) {
            if at < gone.range.start {
                left.push(at..gone.range.start);
            }
            at = at.max(gone.range.end);
        }
        if at < end {
            left.push(at..end);
        }
        left
    }

    /// The bytes of a range that one change covers: most writes are that.
    pub fn one_over(&self, range: &Range<u64>) -> Option<&[u8]> {
        let [segment] = self.over(range) else { return None };
        let (changed, data) = self.content.changes.get(segment.change)?;
        let covers = segment.range.start <= range.start && range.end <= segment.range.end;
        let data = data.as_ref().filter(|_| covers)?;
        // A range of bytes that are in memory.
        data.get((range.start - changed.start) as usize..(range.end - changed.start) as usize)
    }

    /// Lays the changes over what a range keeps. `bytes` begins with the range, and has zeros elsewhere.
    pub fn lay_over(&self, range: &Range<u64>, bytes: &mut [u8]) {
        for segment in self.over(range) {
            let Some((changed, data)) = self.content.changes.get(segment.change) else { continue };
            let (from, until) = (segment.range.start.max(range.start), segment.range.end.min(range.end));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Against changes that are carried out one after the other on bytes.
    #[test]
    fn what_is_laid_is_what_comes_of_the_changes() {
        let mut x = 0x2545_f491_4f6c_dd1du64;
        let mut random = |below: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x % below
        };
        for _ in 0..500 {
            let stored = random(60);
            let mut content = Content::stored(HObject::min(), stored);
            // 0 for what is stored and stays.
            let mut model = vec![0u8; stored as usize];
            for tag in 1..=random(9) as u8 {
                let (at, len) = (random(50), random(20));
                match random(4) {
                    0 => {
                        content.truncate(at);
                        model.resize(at as usize, 100);
                    }
                    1 => {
                        content.zero(at, len);
                        model.resize(model.len().max((at + len) as usize), 100);
                        model[at as usize..(at + len) as usize].fill(100);
                    }
                    _ => {
                        content.write(at, vec![tag; len as usize].into());
                        model.resize(model.len().max((at + len) as usize), 100);
                        model[at as usize..(at + len) as usize].fill(tag);
                    }
                }
            }
            let laid = content.laid();
            let whole = 0..content.size;
            for range in laid.changed(16) {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                laid.lay_over(&range, &mut bytes);
                assert!(laid.one_over(&range).is_none_or(|one| one == bytes), "{range:?} of {content:?}");
            }
            let mut bytes = vec![0u8; model.len()];
            laid.lay_over(&whole, &mut bytes);
            let kept = laid.kept(&whole);
            for (at, (is, was)) in bytes.iter().zip(&model).enumerate() {
                let is_kept = kept.iter().any(|range| range.contains(&(at as u64)));
                assert_eq!(is_kept, *was == 0, "{at} of {content:?}: {kept:?}");
                assert_eq!(*is, if *was == 100 { 0 } else { *was }, "{at} of {content:?}");
            }
        }
    }

    /// What many small writes of one request come to is looked at once for each, not once for each pair.
    #[test]
    fn many_changes_are_looked_at_once_each() {
        let count = 16_384u64;
        let mut content = Content::stored(HObject::min(), count * 64);
        (0..count).for_each(|at| content.write(at * 64 + at % 7, Bytes::from_static(b"x")));
        let laid = content.laid();
        let changed = laid.changed(16);
        assert_eq!((laid.segments.len() as u64, changed.len() as u64), (count, count));
        let looked: usize = changed.iter().map(|range| laid.over(range).len()).sum();
        assert_eq!(looked as u64, count);
    }
}
