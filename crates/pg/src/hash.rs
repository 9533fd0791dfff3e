//! A hasher without random state: lookups only, so that runs with the same inputs are the same.

use std::collections::HashMap as Table;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash table that is the same in every run; its iteration order still means nothing and is never used.
pub type FixedMap<K, V> = Table<K, V, BuildHasherDefault<FixedHasher>>;

/// Multiply-rotate over eight bytes at a time. Keys come from authenticated clients and are bounded in number per PG,
/// so a flood of collisions slows that client's own PG only.
#[derive(Debug, Clone, Default)]
pub struct FixedHasher(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl FixedHasher {
    fn add(&mut self, v: u64) {
        self.0 = (self.0.rotate_left(29) ^ v).wrapping_mul(MULTIPLIER);
    }
}

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            if let Some(slot) = word.get_mut(..chunk.len()) {
                slot.copy_from_slice(chunk);
            }
            self.add(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, v: u8) {
        self.add(v.into());
    }
    fn write_u32(&mut self, v: u32) {
        self.add(v.into());
    }
    fn write_u64(&mut self, v: u64) {
        self.add(v);
    }
    fn write_i32(&mut self, v: i32) {
        self.add(v as u64);
    }
    fn write_i64(&mut self, v: i64) {
        self.add(v as u64);
    }
}
