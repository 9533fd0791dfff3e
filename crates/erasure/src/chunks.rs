//! Sets of chunks.

use std::fmt;

/// Chunks that a code has at most. A bound of ours: Ceph has none of its own for most techniques.
pub const MAX_CHUNKS: usize = 32;

/// A set of chunks, by position.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkSet(u32);

impl ChunkSet {
    pub const EMPTY: Self = Self(0);

    /// The first `count` positions, at most [`MAX_CHUNKS`].
    pub fn first(count: usize) -> Self {
        (0..count).collect()
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, chunk: usize) -> bool {
        u32::try_from(chunk).is_ok_and(|c| self.0.checked_shr(c).is_some_and(|bits| bits & 1 == 1))
    }

    /// Whether all of `other` is in it.
    pub fn includes(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Puts a chunk in; a position from [`MAX_CHUNKS`] on is none.
    pub fn insert(&mut self, chunk: usize) {
        self.0 |= u32::try_from(chunk).ok().and_then(|c| 1u32.checked_shl(c)).unwrap_or(0);
    }

    /// In ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> + Clone {
        (0..MAX_CHUNKS).filter(move |c| self.contains(*c))
    }

    /// How many of its chunks stand before `chunk`.
    pub(crate) fn rank(self, chunk: usize) -> usize {
        self.iter().take_while(|c| *c < chunk).count()
    }
}

impl std::ops::BitOr for ChunkSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitAnd for ChunkSet {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl std::ops::Sub for ChunkSet {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl FromIterator<usize> for ChunkSet {
    fn from_iter<I: IntoIterator<Item = usize>>(chunks: I) -> Self {
        let mut set = Self::EMPTY;
        chunks.into_iter().for_each(|c| set.insert(c));
        set
    }
}

impl fmt::Display for ChunkSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunks: Vec<String> = self.iter().map(|c| c.to_string()).collect();
        write!(f, "{{{}}}", chunks.join(","))
    }
}

impl fmt::Debug for ChunkSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_was_put_in() {
        let set: ChunkSet = [31, 0, 7, 32, usize::MAX].into_iter().collect();
        assert_eq!((set.len(), set.to_string().as_str()), (3, "{0,7,31}"));
        assert!(set.contains(31) && !set.contains(32) && !set.contains(usize::MAX));
        assert_eq!((set - ChunkSet::first(8)).iter().collect::<Vec<_>>(), [31]);
        assert_eq!((set & ChunkSet::first(8)).rank(7), 1);
        assert!(ChunkSet::first(40).includes(set) && !set.includes(ChunkSet::first(2)));
        assert!(set.includes(ChunkSet::EMPTY) && ChunkSet::EMPTY.is_empty());
    }
}
