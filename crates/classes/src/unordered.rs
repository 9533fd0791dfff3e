//! Maps in the order of C++'s `std::unordered_map`, which Ceph stores some of its maps in.
//!
//! 1. Entries stand in groups, one for each bucket that holds any; a new group goes in front of all others.
//! 2. In a group a new entry goes in front of the others.
//! 3. When entries outgrow buckets, all are put in anew, in the order that they stand in, into more buckets.
//!
//! The order shows in what is stored and answered, so it has to be that of Ceph's builds.
//! Source: bits/hashtable.h and libsupc++/hash_bytes.cc of libstdc++ 12.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Entries that a stored or sent map may have: more than Ceph's users put into a head or an attribute, and
/// few enough to hold.
const MAX_ENTRIES: usize = 1 << 18;

/// A key with the hash that C++ gives it.
pub(crate) trait Key: Clone + Ord {
    fn hash(&self) -> u64;
}

impl Key for u32 {
    fn hash(&self) -> u64 {
        u64::from(*self)
    }
}
impl Key for Bytes {
    fn hash(&self) -> u64 {
        hash_bytes(self)
    }
}

/// Where an entry stands: its group by when that came into being, and in the group by when the entry was put
/// in. The order of C++ is the reverse of that of places.
type Place = (u64, u64);

/// Keys are found by their order, not by their hash: anyone can choose keys that all share a bucket.
#[derive(Debug, Clone)]
pub(crate) struct UnorderedMap<K, V> {
    buckets: u64,
    /// Entries that the buckets are made for; 0 as long as nothing was put in.
    room: u64,
    /// Entries that were ever put in since the buckets were made.
    puts: u64,
    /// The group of a bucket, and how many entries it has.
    groups: BTreeMap<u64, (u64, u64)>,
    entries: BTreeMap<Place, (K, V)>,
    places: BTreeMap<K, Place>,
}

impl<K, V> Default for UnorderedMap<K, V> {
    fn default() -> Self {
        let (groups, entries, places) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { buckets: 1, room: 0, puts: 0, groups, entries, places }
    }
}

impl<K: Key, V> UnorderedMap<K, V> {
    /// In C++'s order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.entries.values().rev()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(self.places.get(key)?).map(|(_, v)| v)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(self.places.get(key)?).map(|(_, v)| v)
    }

    /// Puts an entry in unless its key is there; says whether it did.
    pub(crate) fn insert(&mut self, key: K, value: V) -> bool {
        self.insert_as_one_of(1, key, value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.places.remove(key)?;
        let bucket = self.bucket(key);
        if let Some((_, left)) = self.groups.get_mut(&bucket) {
            *left -= 1;
            if *left == 0 {
                self.groups.remove(&bucket);
            }
        }
        self.entries.remove(&place).map(|(_, value)| value)
    }

    /// Removes the entries that `keep` does not want, and says whether there were any.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) -> bool {
        let gone: Vec<K> = self.iter().filter(|(_, v)| !keep(v)).map(|(k, _)| k.clone()).collect();
        for key in &gone {
            self.remove(key);
        }
        !gone.is_empty()
    }

    /// Moves in what another map has under keys that are not here. Source: `_M_merge_unique`.
    pub(crate) fn merge(&mut self, other: Self) {
        // The first that is put in makes room for all that may follow.
        let mut expected = other.len();
        for (key, value) in other.into_entries() {
            if self.insert_as_one_of(expected, key, value) {
                expected = 1;
            } else if expected != 1 {
                expected -= 1;
            }
        }
    }

    fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    fn bucket(&self, key: &K) -> u64 {
        key.hash() % self.buckets
    }

    fn insert_as_one_of(&mut self, expected: u64, key: K, value: V) -> bool {
        if self.places.contains_key(&key) {
            return false;
        }
        self.make_room(expected);
        self.put(key, value);
        true
    }

    fn put(&mut self, key: K, value: V) {
        let newest = self.entries.last_key_value().map_or(0, |((group, _), _)| group + 1);
        let (group, members) = self.groups.entry(self.bucket(&key)).or_insert((newest, 0));
        *members += 1;
        let place = (*group, self.puts);
        self.puts += 1;
        self.places.insert(key.clone(), place);
        self.entries.insert(place, (key, value));
    }

    /// Source: `_Prime_rehash_policy::_M_need_rehash`.
    fn make_room(&mut self, expected: u64) {
        let needed = self.len() + expected;
        if needed <= self.room {
            return;
        }
        let least = needed.max(if self.room == 0 { 11 } else { 0 });
        if least < self.buckets {
            self.room = self.buckets;
            return;
        }
        let buckets = prime_from((least + 1).max(self.buckets * 2));
        let entries = std::mem::take(self).into_entries();
        (self.buckets, self.room) = (buckets, buckets);
        for (key, value) in entries {
            self.put(key, value);
        }
    }

    fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        self.entries.into_values().rev()
    }
}

impl<K: Key + Encode, V: Encode> Encode for UnorderedMap<K, V> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.entries.len());
        for (k, v) in self.iter() {
            k.encode(w);
            v.encode(w);
        }
    }
}
impl<K: Key + Decode, V: Decode> Decode for UnorderedMap<K, V> {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let mut map = Self::default();
        let count = r.count("unordered map", K::MIN_SIZE + V::MIN_SIZE)?;
        if count > MAX_ENTRIES {
            let (claimed, bound) = (count as u64, MAX_ENTRIES as u64);
            return Err(DecodeError::TooLarge { what: "unordered map", claimed, bound });
        }
        for _ in 0..count {
            let (key, value) = Decode::decode(r)?;
            match map.get_mut(&key) {
                Some(earlier) => *earlier = value,
                None => _ = map.insert(key, value),
            }
        }
        Ok(map)
    }
}

/// Numbers of buckets; more than these no object's bytes can fill. Source: `__prime_list`.
const PRIMES: [u64; 170] = [
    13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 103, 109, 113, 127, 137,
    139, 149, 157, 167, 179, 193, 199, 211, 227, 241, 257, 277, 293, 313, 337, 359, 383, 409, 439, 467, 503,
    541, 577, 619, 661, 709, 761, 823, 887, 953, 1031, 1109, 1193, 1289, 1381, 1493, 1613, 1741, 1879, 2029,
    2179, 2357, 2549, 2753, 2971, 3209, 3469, 3739, 4027, 4349, 4703, 5087, 5503, 5953, 6427, 6949, 7517,
    8123, 8783, 9497, 10273, 11113, 12011, 12983, 14033, 15173, 16411, 17749, 19183, 20753, 22447, 24281,
    26267, 28411, 30727, 33223, 35933, 38873, 42043, 45481, 49201, 53201, 57557, 62233, 67307, 72817, 78779,
    85229, 92203, 99733, 107_897, 116_731, 126_271, 136_607, 147_793, 159_871, 172_933, 187_091, 202_409,
    218_971, 236_897, 256_279, 277_261, 299_951, 324_503, 351_061, 379_787, 410_857, 444_487, 480_881,
    520_241, 562_841, 608_903, 658_753, 712_697, 771_049, 834_181, 902_483, 976_369, 1_056_323, 1_142_821,
    1_236_397, 1_337_629, 1_447_153, 1_565_659, 1_693_859, 1_832_561, 1_982_627, 2_144_977, 2_320_627,
    2_510_653, 2_716_249, 2_938_679, 3_179_303, 3_439_651, 3_721_303, 4_026_031, 4_355_707, 4_712_381,
    5_098_259, 5_515_729, 5_967_347, 6_456_007, 6_984_629, 7_556_579,
];

fn prime_from(least: u64) -> u64 {
    PRIMES.get(PRIMES.partition_point(|p| *p < least)).copied().unwrap_or(least | 1)
}

/// Murmur's hash. Source: `_Hash_bytes` for words of 8 bytes, with the seed of `std::hash`.
fn hash_bytes(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0xc70f_6907;
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |v: u64| v ^ (v >> 47);
    let word = |part: &[u8]| part.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b));
    let start = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let hash = bytes.chunks(8).fold(start, |hash, part| {
        let whole = |v: u64| mix(v.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
        let data = if part.len() == 8 { whole(word(part)) } else { word(part) };
        (hash ^ data).wrapping_mul(FACTOR)
    });
    mix(mix(hash).wrapping_mul(FACTOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(keys: impl IntoIterator<Item = u32>) -> UnorderedMap<u32, u32> {
        let mut map = UnorderedMap::default();
        for key in keys {
            map.insert(key, key);
        }
        map
    }

    fn order(map: &UnorderedMap<u32, u32>) -> Vec<u32> {
        map.iter().map(|(k, _)| *k).collect()
    }

    #[test]
    fn text_has_the_hash_of_libstdcxx() {
        for (text, hash) in [
            ("", 0x553e_9390_1e46_2a6e),
            ("a", 0x454d_dee4_88c1_ed6b),
            ("1234567", 0x6d7a_4e79_e8a2_cbf6),
            ("12345678", 0x8c5b_90a3_3a04_dca5),
            ("tag.eight", 0x5638_979c_880d_bca1),
            ("tag of more than sixteen bytes", 0xf961_b448_7e2c_c544),
        ] {
            assert_eq!(Bytes::from(text).hash(), hash, "{text}");
        }
    }

    #[test]
    fn entries_stand_in_the_order_of_libstdcxx() {
        let twenty = numbers(1..=20);
        assert_eq!(order(&twenty), [20, 19, 18, 17, 16, 15, 14, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        let mut tags = UnorderedMap::default();
        for i in 0..30 {
            tags.insert(Bytes::from(format!("tag{i}")), i);
        }
        let got: Vec<u32> = tags.iter().map(|(_, v)| *v).collect();
        let want = [
            12, 19, 11, 10, 22, 9, 7, 6, 5, 16, 3, 8, 14, 18, 2, 1, 0, 13, 21, 15, 4, 20, 17, 23, 24, 25, 26,
            27, 29, 28,
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn merged_maps_have_room_for_both_at_once() {
        let (mut one, other) = (numbers(1..=20), numbers(15..=40));
        one.merge(other);
        assert_eq!(one.buckets, 59);
        let want: Vec<u32> = [27, 26, 25, 24, 23, 22, 21]
            .into_iter()
            .chain(28..=40)
            .chain((1..=13).rev())
            .chain(14..=20)
            .collect();
        assert_eq!(order(&one), want);
    }

    #[test]
    fn buckets_grow_as_those_of_libstdcxx() {
        let mut map = UnorderedMap::default();
        let mut seen = Vec::new();
        for key in 0..3000u32 {
            map.insert(key, ());
            if seen.last() != Some(&map.buckets) {
                seen.push(map.buckets);
            }
        }
        assert_eq!(seen, [13, 29, 59, 127, 257, 541, 1109, 2357, 5087]);
    }

    thread_local! {
        static COMPARISONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    /// A key that counts its comparisons; all have one hash.
    #[derive(Clone)]
    struct Counted(u32);

    impl Key for Counted {
        fn hash(&self) -> u64 {
            5
        }
    }
    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0.cmp(&other.0)
        }
    }
    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }
    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }
    impl Eq for Counted {}

    #[test]
    fn keys_of_one_bucket_are_found_as_soon_as_others() {
        const KEYS: u32 = 5000;
        let mut map = UnorderedMap::default();
        for key in 0..KEYS {
            assert!(map.insert(Counted(key), key));
        }
        for key in 0..KEYS {
            assert_eq!(map.get(&Counted(key)), Some(&key));
        }
        for key in 0..KEYS {
            assert_eq!(map.remove(&Counted(key)), Some(key));
        }
        // Some dozens for each; one behind the other would take over 30 million.
        let comparisons = COMPARISONS.get();
        assert!(comparisons < 2_000_000, "{comparisons}");
        assert_eq!((map.iter().count(), map.groups.len()), (0, 0));
    }

    #[test]
    fn maps_that_are_too_large_are_refused() {
        let encoded = |count: usize| {
            Writer::collect(|w| {
                w.count(count);
                w.raw(&vec![0; count * 5]);
            })
        };
        assert!(UnorderedMap::<u32, u8>::from_bytes(encoded(MAX_ENTRIES)).is_ok());
        assert!(UnorderedMap::<u32, u8>::from_bytes(encoded(MAX_ENTRIES + 1)).is_err());
    }

    #[test]
    fn what_was_put_in_is_found_until_it_is_removed() {
        let mut map = numbers(0..200);
        assert!(!map.insert(7, 8));
        assert_eq!((map.remove(&7), map.remove(&7), map.get(&8)), (Some(7), None, Some(&8)));
        assert!(map.retain(|v| v % 2 == 0));
        assert!(!map.retain(|v| v % 2 == 0));
        let mut left = order(&map);
        left.sort_unstable();
        assert_eq!(left, (0..200).step_by(2).collect::<Vec<_>>());
        let back = UnorderedMap::<u32, u32>::from_bytes(map.to_bytes()).unwrap();
        assert_eq!(order(&back).len(), 100);
        let twice = [2u32, 5, 1, 5, 2].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(UnorderedMap::<u32, u32>::from_bytes(twice).unwrap().get(&5), Some(&2));
    }
}
