//! Wire forms of collections: a u32 count, then the elements.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{Decode, DecodeError, Encode, Reader, Writer};

impl<T: Encode> Encode for [T] {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        self.iter().for_each(|e| e.encode(w));
    }
}
impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        self.as_slice().encode(w);
    }
}
impl<T: Decode> Decode for Vec<T> {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let n = r.count("list", T::MIN_SIZE)?;
        (0..n).map(|_| T::decode(r)).collect()
    }
}

impl<T: Encode> Encode for VecDeque<T> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        self.iter().for_each(|e| e.encode(w));
    }
}
impl<T: Decode> Decode for VecDeque<T> {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let n = r.count("list", T::MIN_SIZE)?;
        (0..n).map(|_| T::decode(r)).collect()
    }
}

impl<T: Encode> Encode for BTreeSet<T> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        self.iter().for_each(|e| e.encode(w));
    }
}
impl<T: Decode + Ord> Decode for BTreeSet<T> {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let n = r.count("set", T::MIN_SIZE)?;
        (0..n).map(|_| T::decode(r)).collect()
    }
}

impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        for (k, v) in self {
            k.encode(w);
            v.encode(w);
        }
    }
}
impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let n = r.count("map", K::MIN_SIZE + V::MIN_SIZE)?;
        (0..n).map(|_| Ok((K::decode(r)?, V::decode(r)?))).collect()
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
        self.1.encode(w);
    }
}
impl<A: Decode, B: Decode> Decode for (A, B) {
    const MIN_SIZE: usize = A::MIN_SIZE + B::MIN_SIZE;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}

/// Optional values: a presence byte first. Source: src/include/encoding.h (boost::optional, std::optional).
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, w: &mut Writer) {
        w.u8(u8::from(self.is_some()));
        if let Some(v) = self {
            v.encode(w);
        }
    }
}
impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => Ok(None),
            _ => T::decode(r).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::{Decode, Encode};

    #[test]
    fn a_claimed_count_cannot_allocate_more_than_the_buffer_holds() {
        let huge = [0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8];
        assert!(Vec::<u64>::from_bytes(huge.to_vec()).is_err());
        assert!(BTreeMap::<String, u64>::from_bytes(huge.to_vec()).is_err());
    }

    #[test]
    fn maps_and_options_come_back() {
        let m: BTreeMap<String, Option<u32>> = [("a".into(), Some(1)), ("b".into(), None)].into();
        assert_eq!(BTreeMap::from_bytes(m.to_bytes()), Ok(m));
    }
}
