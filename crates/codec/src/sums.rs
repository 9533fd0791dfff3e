//! Checksums of large buffers, computed once: by whoever receives the bytes or reads them from the device. Those who need
//! them again (a frame that carries the bytes on, the store that keeps a checksum for each block) combine what is known.
//!
//! A buffer is summed chunk by chunk. CRC is linear, so the checksum of chunks after one another follows from theirs
//! without a look at the bytes, whatever the seed.
//!
//! Invariants:
//! 1. A buffer is in the table exactly while the `Bytes` that `keep` gave, or a part of it, lives: it cannot change, and no
//!    other buffer can have its address.
//! 2. So what the table says of a slice is what a computation would say at any time; it saves work and decides nothing.
//!    When memory goes bad after the first look, the receiver of the bytes finds out, for the sum is that of the good bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::crc32c;

/// Bytes that one known sum stands for: a block of the store.
pub const CHUNK: usize = 4096;
/// Shorter buffers are not worth an entry.
pub const WORTHWHILE: usize = 32 << 10;

/// Sums of the whole chunks of a buffer, each as `crc32c(0, chunk)`.
pub type Sums = Arc<[u32]>;

/// The table, by address.
static KNOWN: Mutex<BTreeMap<usize, Known>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Known {
    len: usize,
    sums: Sums,
}

fn known() -> MutexGuard<'static, BTreeMap<usize, Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a chunk's bytes of zero make of a register: by each of its bytes.
static ADVANCE: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
    let mut tables = [[0u32; 256]; 4];
    for (byte, table) in tables.iter_mut().enumerate() {
        for (value, slot) in (0u32..).zip(table.iter_mut()) {
            *slot = crc32c(value << (8 * byte), &[0; CHUNK]);
        }
    }
    tables
});

/// The register behind a chunk, from the one before it and the chunk's sum.
fn over_chunk(register: u32, sum: u32) -> u32 {
    let bytes = register.to_le_bytes();
    let parts =
        ADVANCE.iter().zip(bytes).map(|(table, b)| table.get(usize::from(b)).copied().unwrap_or_default());
    parts.fold(sum, |all, part| all ^ part)
}

/// The usual CRC-32C of a chunk, from its sum: seed of all ones, the end inverted.
pub fn standard(sum: u32) -> u32 {
    !over_chunk(!0, sum)
}

/// The sum of a chunk, from its usual CRC-32C.
pub fn from_standard(crc: u32) -> u32 {
    over_chunk(!0, !crc)
}

/// The checksum of `bytes` and, on the way, the sums of its whole chunks.
pub fn summed(seed: u32, bytes: &[u8]) -> (u32, Sums) {
    let chunks = bytes.chunks_exact(CHUNK);
    let rest = chunks.remainder();
    let sums: Sums = chunks.map(|chunk| crc32c(0, chunk)).collect();
    let register = sums.iter().fold(seed, |register, sum| over_chunk(register, *sum));
    (crc32c(register, rest), sums)
}

/// The same bytes with their sums known from now on, while any part of the result lives.
pub fn keep(bytes: Bytes, sums: Sums) -> Bytes {
    keep_as(bytes, sums, false)
}

/// The same of what lies in a buffer of [`crate::spare`], which gets it back in the end.
pub fn keep_received(bytes: Bytes, sums: Sums) -> Bytes {
    keep_as(bytes, sums, true)
}

fn keep_as(bytes: Bytes, sums: Sums, spare: bool) -> Bytes {
    if bytes.len() < WORTHWHILE || sums.len() != bytes.len() / CHUNK {
        return bytes;
    }
    let at = bytes.as_ptr().addr();
    let mut table = known();
    if table.contains_key(&at) {
        return bytes;
    }
    table.insert(at, Known { len: bytes.len(), sums });
    drop(table);
    Bytes::from_owner(Kept { bytes, spare })
}

/// Ends the entry with the buffer, before its memory can be used again.
struct Kept {
    bytes: Bytes,
    spare: bool,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        known().remove(&self.bytes.as_ptr().addr());
        if self.spare {
            crate::spare::give_back(std::mem::take(&mut self.bytes));
        }
    }
}

/// Of a slice of a kept buffer: where in it the slice begins, and the buffer's sums.
fn find(bytes: &[u8]) -> Option<(usize, Sums)> {
    if bytes.len() < WORTHWHILE {
        return None;
    }
    let at = bytes.as_ptr().addr();
    let table = known();
    let (start, entry) = table.range(..=at).next_back()?;
    let inside = at - start;
    (inside + bytes.len() <= entry.len).then(|| (inside, Arc::clone(&entry.sums)))
}

/// `crc32c` of the bytes, from what is known of them.
pub fn crc32c_known(seed: u32, bytes: &[u8]) -> u32 {
    let Some((inside, sums)) = find(bytes) else { return crc32c(seed, bytes) };
    let first = inside.div_ceil(CHUNK);
    let (head, rest) = bytes.split_at((first * CHUNK - inside).min(bytes.len()));
    let sums = sums.get(first..first + rest.len() / CHUNK).unwrap_or_default();
    let register = sums.iter().fold(crc32c(seed, head), |register, sum| over_chunk(register, *sum));
    crc32c(register, rest.get(sums.len() * CHUNK..).unwrap_or_default())
}

/// The sums of the whole chunks of the bytes, when they are known.
pub fn chunk_sums(bytes: &[u8]) -> Option<Vec<u32>> {
    let (inside, sums) = find(bytes)?;
    let first = inside / CHUNK;
    (inside % CHUNK == 0).then(|| sums.get(first..first + bytes.len() / CHUNK).map(<[u32]>::to_vec))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn combined_sums_are_those_of_the_bytes() {
        let text = text(3 * WORTHWHILE + 77);
        for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, WORTHWHILE, text.len()] {
            for seed in [0, !0, 0x1234_5678] {
                let (crc, sums) = summed(seed, &text[..len]);
                assert_eq!((crc, sums.len()), (crc32c(seed, &text[..len]), len / CHUNK), "{len}");
            }
        }
        let chunk = &text[..CHUNK];
        assert_eq!(standard(crc32c(0, chunk)), !crc32c(!0, chunk));
        assert_eq!(from_standard(!crc32c(!0, chunk)), crc32c(0, chunk));
    }

    #[test]
    fn any_part_of_a_kept_buffer_has_the_sum_of_its_bytes() {
        let text = text(4 * WORTHWHILE + 5);
        let kept = keep(text.clone().into(), summed(0, &text).1);
        for from in [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1] {
            for to in [text.len(), text.len() - 5, text.len() - 6, text.len() - CHUNK] {
                let part = kept.slice(from..to);
                assert_eq!(crc32c_known(!0, &part), crc32c(!0, &text[from..to]), "{from}..{to}");
                let sums: Vec<u32> = part.chunks_exact(CHUNK).map(|c| crc32c(0, c)).collect();
                assert_eq!(chunk_sums(&part), (from % CHUNK == 0).then_some(sums), "{from}..{to}");
            }
        }
    }

    #[test]
    fn what_is_known_ends_with_the_last_part_of_the_buffer() {
        let text = text(WORTHWHILE);
        let kept = keep(text.clone().into(), summed(0, &text).1);
        let at = kept.as_ptr().addr();
        assert!(known().contains_key(&at));
        assert!(chunk_sums(&text).is_none(), "the same bytes elsewhere are another buffer");
        let part = kept.slice(CHUNK..);
        drop(kept);
        assert!(known().contains_key(&at));
        // Kept a second time, the first entry stays.
        let part = keep(part, Arc::from([]));
        drop(part);
        assert!(!known().contains_key(&at));
    }

    #[test]
    fn sums_that_do_not_fit_and_short_buffers_are_not_kept() {
        let short = keep(Bytes::from(vec![1; WORTHWHILE - 1]), Arc::from(vec![0; WORTHWHILE / CHUNK - 1]));
        let wrong = keep(Bytes::from(vec![1; WORTHWHILE]), Arc::from([0]));
        assert!(chunk_sums(&short).is_none() && chunk_sums(&wrong).is_none());
    }
}
