//! Sets of ids kept as intervals: queues of removed snapshots, numbers of inodes that are free.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::marker::PhantomData;

use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::{Ino, SnapId};

/// Disjoint, non-adjacent, non-empty intervals of ids: length by start.
///
/// Invariants: (1) no length is 0; (2) `start + length` does not overflow; (3) each interval ends below the next start.
/// Source: interval_set in src/include/interval_set.h.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intervals<T> {
    runs: BTreeMap<u64, u64>,
    of: PhantomData<T>,
}

pub type SnapIntervals = Intervals<SnapId>;
pub type InoSet = Intervals<Ino>;

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Self { runs: BTreeMap::new(), of: PhantomData }
    }
}

impl<T: From<u64> + Into<u64>> Intervals<T> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Start and length of each interval, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(s, l)| (*s, *l))
    }

    /// Every id, in order.
    pub fn ids(&self) -> impl Iterator<Item = T> + '_ {
        self.iter().flat_map(|(s, l)| (s..s + l).map(T::from))
    }

    /// How many ids are in the set.
    pub fn len(&self) -> u64 {
        self.runs.values().sum()
    }

    pub fn contains(&self, id: T) -> bool {
        let id = id.into();
        self.runs.range(..=id).next_back().is_some_and(|(s, l)| id - s < *l)
    }

    pub fn insert(&mut self, id: T) {
        self.insert_run(id.into(), 1);
    }

    /// Adds `start .. start + len`; ids that are in the set already stay. Ids beyond u64 are cut off.
    pub fn insert_run(&mut self, start: u64, len: u64) {
        let mut end = start.saturating_add(len);
        if end == start {
            return;
        }
        let mut begin = start;
        let touching: Vec<(u64, u64)> = self
            .runs
            .range(..=end)
            .rev()
            .map(|(s, l)| (*s, s + l))
            .take_while(|(_, e)| *e >= start)
            .collect();
        for (s, e) in touching {
            begin = begin.min(s);
            end = end.max(e);
            self.runs.remove(&s);
        }
        self.runs.insert(begin, end - begin);
    }

    /// Removes `start .. start + len`.
    pub fn remove_run(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        if end == start {
            return;
        }
        let hit: Vec<(u64, u64)> =
            self.runs.range(..end).rev().map(|(s, l)| (*s, s + l)).take_while(|(_, e)| *e > start).collect();
        for (s, e) in hit {
            self.runs.remove(&s);
            if s < start {
                self.runs.insert(s, start - s);
            }
            if e > end {
                self.runs.insert(end, e - end);
            }
        }
    }

    pub fn union_of(&mut self, other: &Self) {
        other.iter().for_each(|(s, l)| self.insert_run(s, l));
    }

    pub fn subtract(&mut self, other: &Self) {
        other.iter().for_each(|(s, l)| self.remove_run(s, l));
    }

    /// Keeps what is in `other` too.
    pub fn intersect(&mut self, other: &Self) {
        let mut only_here = Self { runs: self.runs.clone(), of: PhantomData };
        only_here.subtract(other);
        self.subtract(&only_here);
    }
}

/// `[1~3,a~1]`: start and length as the ids print; those of snapshots do so in hex.
impl<T: From<u64> + Into<u64> + Display> Display for Intervals<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts: Vec<String> = self.iter().map(|(s, l)| format!("{}~{}", T::from(s), T::from(l))).collect();
        write!(f, "[{}]", texts.join(","))
    }
}
impl<T: From<u64> + Into<u64>> FromIterator<(u64, u64)> for Intervals<T> {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(iter: I) -> Self {
        let mut set = Self::new();
        iter.into_iter().for_each(|(s, l)| set.insert_run(s, l));
        set
    }
}
impl<T> Encode for Intervals<T> {
    fn encode(&self, w: &mut Writer) {
        self.runs.encode(w);
    }
}

/// Refuses what breaks the invariants, for real writers never send it.
impl<T> Decode for Intervals<T> {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let n = r.count("intervals", 16)?;
        let mut runs = BTreeMap::new();
        let mut free_from = 0u64;
        for i in 0..n {
            let (start, len) = (r.u64()?, r.u64()?);
            let invalid = DecodeError::Invalid { what: "interval", value: start };
            let end = start.checked_add(len).filter(|e| *e > start).ok_or(invalid.clone())?;
            if i > 0 && start <= free_from {
                return Err(invalid);
            }
            free_from = end;
            runs.insert(start, len);
        }
        Ok(Self { runs, of: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Checks a run of insertions and removals against a plain set.
    #[test]
    fn agrees_with_a_plain_set() {
        let mut seed = 7u64;
        let (mut set, mut naive) = (SnapIntervals::new(), BTreeSet::new());
        for _ in 0..2_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (start, len, remove) = (seed >> 58, (seed >> 50) & 7, (seed >> 40) & 1 == 1);
            if remove {
                set.remove_run(start, len);
                naive.retain(|id| !(start..start + len).contains(id));
            } else {
                set.insert_run(start, len);
                naive.extend(start..start + len);
            }
            assert_eq!(set.ids().map(|s| s.0).collect::<Vec<_>>(), naive.iter().copied().collect::<Vec<_>>());
            assert!((0..80).all(|id| set.contains(SnapId(id)) == naive.contains(&id)));
            assert_eq!(
                SnapIntervals::from_bytes(set.to_bytes()),
                Ok(set.clone()),
                "invariants hold on the wire"
            );
        }
    }

    #[test]
    fn intersections_hold_what_is_in_both() {
        let mut a = SnapIntervals::from_iter([(1, 5), (10, 3)]);
        a.intersect(&SnapIntervals::from_iter([(0, 2), (4, 7), (12, 9)]));
        assert_eq!(a, SnapIntervals::from_iter([(1, 1), (4, 2), (10, 1), (12, 1)]));
    }

    #[test]
    fn prints_in_hex_and_refuses_overlap() {
        assert_eq!(SnapIntervals::from_iter([(1, 3), (10, 1)]).to_string(), "[1~3,a~1]");
        assert_eq!(SnapIntervals::new().to_string(), "[]");
        let overlap = BTreeMap::from([(1u64, 3u64), (4, 1)]).to_bytes();
        assert!(SnapIntervals::from_bytes(overlap).is_err());
        let huge = BTreeMap::from([(u64::MAX, 3u64)]).to_bytes();
        assert!(SnapIntervals::from_bytes(huge).is_err());
    }
}
