//! Which record holds the newest bytes of each dirty range.

use std::collections::BTreeMap;

use crate::record::RecordRef;

/// Where the bytes of a dirty range are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In a record's data, `skip` bytes behind its start.
    Record {
        record: RecordRef,
        skip: u64,
    },
    Zero {
        punch: bool,
    },
}

impl Source {
    fn advanced(self, by: u64) -> Self {
        match self {
            Self::Record { record, skip } => Self::Record { record, skip: skip + by },
            zero @ Self::Zero { .. } => zero,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub end: u64,
    pub seq: u64,
    pub source: Source,
}

/// Disjoint dirty ranges by their start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index(BTreeMap<u64, Entry>);

impl Index {
    /// Puts a range over what was there.
    pub fn insert(&mut self, start: u64, entry: Entry) {
        if start >= entry.end {
            return;
        }
        self.remove_if(start, entry.end, |_| true);
        self.0.insert(start, entry);
    }

    /// Removes of `start..end` what satisfies `is_gone`, cutting entries at the edges.
    pub fn remove_if(&mut self, start: u64, end: u64, is_gone: impl Fn(&Entry) -> bool) {
        let hit: Vec<(u64, Entry)> =
            self.overlapping(start, end).filter(|(_, e)| is_gone(e)).map(|(s, e)| (s, *e)).collect();
        for (at, entry) in hit {
            self.0.remove(&at);
            if at < start {
                self.0.insert(at, Entry { end: start, ..entry });
            }
            if entry.end > end {
                self.0.insert(end, Entry { source: entry.source.advanced(end - at), ..entry });
            }
        }
    }

    /// Entries that touch `start..end`, uncut, in order.
    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let first =
            self.0.range(..=start).next_back().filter(|(_, e)| e.end > start).map_or(start, |(s, _)| *s);
        self.0.range(first..end.max(first)).map(|(s, e)| (*s, e))
    }

    /// The parts of `start..end` that are dirty, cut to it, in order.
    pub fn lookup(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, Entry)> {
        self.overlapping(start, end).map(move |(at, entry)| {
            let from = at.max(start);
            (
                from,
                Entry { end: entry.end.min(end), seq: entry.seq, source: entry.source.advanced(from - at) },
            )
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Entry)> {
        self.0.iter().map(|(s, e)| (*s, e))
    }

    /// Ranges are disjoint, in order and not empty.
    pub fn assert_invariants(&self) {
        let mut last = 0;
        for (start, entry) in &self.0 {
            assert!(*start >= last && entry.end > *start, "index out of order at {start}");
            last = entry.end;
        }
    }
}
