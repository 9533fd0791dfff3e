//! Sets of numbered features that grow beyond one word.

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Bits by number, as many words as the highest needs. Source: feature_bitset_t in src/mds/mdstypes.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureBits(Vec<u64>);

impl FeatureBits {
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub fn contains(&self, bit: usize) -> bool {
        self.0.get(bit / 64).is_some_and(|word| word & (1 << (bit % 64)) != 0)
    }

    pub fn insert(&mut self, bit: usize) {
        let at = bit / 64;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        if let Some(word) = self.0.get_mut(at) {
            *word |= 1 << (bit % 64);
        }
    }

    pub fn remove(&mut self, bit: usize) {
        if let Some(word) = self.0.get_mut(bit / 64) {
            *word &= !(1 << (bit % 64));
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

impl<const N: usize> From<[usize; N]> for FeatureBits {
    fn from(numbers: [usize; N]) -> Self {
        let mut bits = Self::default();
        numbers.into_iter().for_each(|n| bits.insert(n));
        bits
    }
}

impl Encode for FeatureBits {
    fn encode(&self, w: &mut Writer) {
        w.count(self.0.len() * 8);
        self.0.iter().for_each(|word| w.u64(*word));
    }
}
/// The length is in bytes; those that make no whole word are the last word's lower ones.
impl Decode for FeatureBits {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let len = r.count("feature bits", 1)?;
        let bytes = r.raw(len)?;
        let word = |part: &[u8]| part.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b));
        Ok(Self(bytes.chunks(8).map(word).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_go_as_words_and_come_back_from_any_length() {
        let mut bits = FeatureBits::from([0, 9, 64]);
        assert_eq!(bits.to_bytes().as_ref(), [16, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(FeatureBits::from_bytes(bits.to_bytes()), Ok(bits.clone()));
        assert_eq!(FeatureBits::from_bytes(vec![2, 0, 0, 0, 1, 2]), Ok(FeatureBits::from([0, 9])));
        bits.remove(64);
        assert_eq!(bits, FeatureBits::from([0, 9]));
        assert!(FeatureBits::from_bytes(vec![0xff, 0xff, 0xff, 0xff, 1]).is_err());
    }
}
