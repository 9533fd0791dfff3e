//! Hashes of object names: what decides an object's placement seed.
//!
//! Source: src/common/ceph_hash.cc, src/include/ceph_hash.h.

use crate::hash::mix;

/// Linux's old dcache hash.
pub const STR_HASH_LINUX: u32 = 0x1;
/// Robert Jenkins' hash, the default of every pool.
pub const STR_HASH_RJENKINS: u32 = 0x2;

/// Hashes `name` with the function a pool names by `kind`; all ones for a kind that does not exist.
pub fn str_hash(kind: u32, name: &[u8]) -> u32 {
    match kind {
        STR_HASH_LINUX => str_hash_linux(name),
        STR_HASH_RJENKINS => str_hash_rjenkins(name),
        _ => u32::MAX,
    }
}

/// The name of a hash function in text forms.
pub fn str_hash_name(kind: u32) -> &'static str {
    match kind {
        STR_HASH_LINUX => "linux",
        STR_HASH_RJENKINS => "rjenkins",
        _ => "unknown",
    }
}

/// Robert Jenkins' string hash over the golden ratio.
pub fn str_hash_rjenkins(name: &[u8]) -> u32 {
    let (mut a, mut b, mut c) = (0x9e37_79b9u32, 0x9e37_79b9u32, 0u32);
    let mut blocks = name.chunks_exact(12);
    for block in &mut blocks {
        let mut words = block.chunks_exact(4).map(le_word);
        a = a.wrapping_add(words.next().unwrap_or(0));
        b = b.wrapping_add(words.next().unwrap_or(0));
        c = c.wrapping_add(words.next().unwrap_or(0));
        mix(&mut a, &mut b, &mut c);
    }
    // The lowest byte of the last word holds the length, so the tail's third word starts one byte up.
    c = c.wrapping_add(name.len() as u32);
    let mut words = blocks.remainder().chunks(4).map(le_word);
    a = a.wrapping_add(words.next().unwrap_or(0));
    b = b.wrapping_add(words.next().unwrap_or(0));
    c = c.wrapping_add(words.next().unwrap_or(0) << 8);
    mix(&mut a, &mut b, &mut c);
    c
}

/// Up to four bytes, little-endian, as if zeros followed.
fn le_word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Linux's dcache hash, byte by byte.
pub fn str_hash_linux(name: &[u8]) -> u32 {
    name.iter()
        .map(|b| u32::from(*b))
        .fold(0, |h: u32, c| h.wrapping_add(c << 4).wrapping_add(c >> 4).wrapping_mul(11))
}
