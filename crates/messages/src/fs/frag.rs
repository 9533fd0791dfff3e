//! Fragments of directories: which hashes of names each has, and how a directory is split into them.
//!
//! A fragment has the hashes whose upper bits (of 24) are its own. Source: src/include/frag.h,
//! src/include/ceph_frag.h.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Bits of a hash that fragments tell apart.
const HASH_BITS: u32 = 24;
const HASH_MASK: u32 = (1 << HASH_BITS) - 1;

/// A fragment: how many upper bits of a hash it decides, and their value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Frag(pub u32);

impl Frag {
    /// The whole directory.
    pub const ROOT: Self = Self(0);

    /// With more bits than a hash has it is one with all of them.
    pub fn new(bits: u32, value: u32) -> Self {
        let bits = bits.min(HASH_BITS);
        Self(bits << HASH_BITS | value & Self::mask_of(bits))
    }

    fn mask_of(bits: u32) -> u32 {
        HASH_MASK << (HASH_BITS - bits.min(HASH_BITS)) & HASH_MASK
    }

    pub fn bits(self) -> u32 {
        self.0 >> HASH_BITS
    }

    pub fn value(self) -> u32 {
        self.0 & HASH_MASK
    }

    /// Whether it has the names of this hash.
    pub fn contains(self, hash: u32) -> bool {
        hash & Self::mask_of(self.bits()) == self.value()
    }

    /// The `i`th of the fragments that it has when it is split by `by` bits.
    pub fn child(self, by: u32, i: u32) -> Self {
        let bits = (self.bits() + by).min(HASH_BITS);
        Self::new(bits, self.value() | i << (HASH_BITS - bits))
    }

    pub fn is_rightmost(self) -> bool {
        self.value() == Self::mask_of(self.bits())
    }

    /// The fragment of as many bits that follows; `None` behind the last one.
    pub fn next(self) -> Option<Self> {
        let bits = self.bits().min(HASH_BITS);
        (!self.is_rightmost()).then(|| Self::new(bits, self.value() + (1 << (HASH_BITS - bits))))
    }
}

/// By value, and the larger fragment before those that it has.
impl Ord for Frag {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.value(), self.bits()).cmp(&(other.value(), other.bits()))
    }
}
impl PartialOrd for Frag {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Encode for Frag {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.0);
    }
}
impl Decode for Frag {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u32().map(Self)
    }
}

/// How a directory is split: by how many bits each fragment that is not a leaf.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FragTree(pub BTreeMap<Frag, i32>);

impl FragTree {
    /// The fragment that has the names of this hash.
    pub fn leaf(&self, hash: u32) -> Frag {
        let mut frag = Frag::ROOT;
        while frag.bits() < HASH_BITS {
            let Some(by) = self.0.get(&frag).and_then(|by| u32::try_from(*by).ok()).filter(|by| *by > 0)
            else {
                break;
            };
            let bits = (frag.bits() + by.min(HASH_BITS)).min(HASH_BITS);
            frag = Frag::new(bits, hash);
        }
        frag
    }
}

impl Encode for FragTree {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
    }
}
impl Decode for FragTree {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Decode::decode(r).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::{Frag, FragTree};

    #[test]
    fn a_hash_finds_its_leaf_and_leaves_follow_each_other() {
        let quarter = |i| Frag::ROOT.child(2, i);
        let tree = FragTree([(Frag::ROOT, 2), (quarter(2), 1)].into());
        assert_eq!(tree.leaf(0x00_1234), quarter(0));
        assert_eq!(tree.leaf(0x7f_ffff), quarter(1));
        assert_eq!(tree.leaf(0xa0_0000), quarter(2).child(1, 1));
        assert_eq!(quarter(0).next(), Some(quarter(1)));
        assert_eq!(quarter(3).next(), None);
        assert_eq!(Frag::ROOT.next(), None);
        assert!(quarter(3).contains(0xff_ffff) && !quarter(3).contains(0x80_0000));
        assert!(Frag::ROOT < quarter(0) && quarter(0) < quarter(1));
    }

    #[test]
    fn senseless_trees_end() {
        for by in [i32::MIN, -1, 0, 1, 24, 99, i32::MAX] {
            let tree = FragTree([(Frag::ROOT, by)].into());
            assert!(tree.leaf(0xff_ffff).bits() <= 24, "{by}");
        }
        let odd = Frag(0xff00_0001);
        assert!(odd.next().is_none_or(|n| n.bits() <= 24));
        assert!(odd.child(200, 7).bits() <= 24 && !odd.contains(7));
    }
}
