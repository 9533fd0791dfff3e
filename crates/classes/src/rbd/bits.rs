//! The vector of two-bit states that an object map is, in memory and as stored. Source: src/common/bit_vector.hpp.
//!
//! Stored: a blob with the number of elements in an envelope (18 bytes in all); the elements, four to a byte with the first
//! in the highest bits; a blob with the checksum of the first blob's content, a count, and the checksum of each block of
//! 4,096 bytes of elements. A vector without checksums ends in an empty blob.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, crc32c, wire_struct};

/// Bytes in front of the elements.
pub(super) const HEADER_LEN: u64 = 18;
/// Bytes of elements under one checksum.
pub(super) const BLOCK: u64 = 4096;
const PER_BYTE: u64 = 4;
const MASK: u8 = 3;

struct Size {
    elements: u64,
}
wire_struct!(Size(1, 1) { elements });

/// The byte and the shift of an element.
fn place(index: u64) -> (u64, u32) {
    (index / PER_BYTE, (PER_BYTE - 1 - index % PER_BYTE) as u32 * 2)
}

/// Bytes that elements take.
fn byte_len(elements: u64) -> u64 {
    elements.div_ceil(PER_BYTE)
}

fn get(data: &[u8], index: u64) -> u8 {
    let (byte, shift) = place(index);
    data.get(byte as usize).map_or(0, |b| (b >> shift) & MASK)
}

fn set(data: &mut [u8], index: u64, state: u8) {
    let (byte, shift) = place(index);
    if let Some(b) = data.get_mut(byte as usize) {
        *b = (*b & !(MASK << shift)) | ((state & MASK) << shift);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BitVector {
    elements: u64,
    data: Vec<u8>,
    /// Whether the stored form carries checksums.
    with_crc: bool,
}

impl Default for BitVector {
    fn default() -> Self {
        Self { elements: 0, data: Vec::new(), with_crc: true }
    }
}

impl BitVector {
    /// The same elements, stored with or without checksums.
    pub(super) fn with_crc(self, with_crc: bool) -> Self {
        Self { with_crc, ..self }
    }

    pub(super) fn len(&self) -> u64 {
        self.elements
    }

    pub(super) fn get(&self, index: u64) -> u8 {
        get(&self.data, index)
    }

    pub(super) fn set(&mut self, index: u64, state: u8) {
        set(&mut self.data, index, state);
    }

    /// New elements are of state 0; those of the last byte keep what an earlier, longer vector had there.
    pub(super) fn resize(&mut self, elements: u64) {
        self.data.resize(byte_len(elements) as usize, 0);
        self.elements = elements;
    }
}

fn encode_size(elements: u64) -> Bytes {
    Size { elements }.to_bytes()
}

impl Encode for BitVector {
    fn encode(&self, w: &mut Writer) {
        let header = encode_size(self.elements);
        header.encode(w);
        w.raw(&self.data);
        let mut footer = Writer::new();
        if self.with_crc {
            footer.u32(crc32c(0, &header));
            let blocks = self.data.chunks(BLOCK as usize);
            footer.count(blocks.len());
            blocks.for_each(|block| footer.u32(crc32c(0, block)));
        }
        footer.into_bytes().encode(w);
    }
}
impl Decode for BitVector {
    const MIN_SIZE: usize = 22;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let header = r.blob()?;
        let Size { elements } = Size::from_bytes(header.clone())?;
        let len = usize::try_from(byte_len(elements)).unwrap_or(usize::MAX);
        let data = r.raw(len)?;
        let footer = r.blob()?;
        let with_crc = !footer.is_empty();
        if with_crc {
            let mut r = Reader::new(footer);
            check(r.u32()?, &header)?;
            r.u32()?; // the count, which follows from the size
            for block in data.chunks(BLOCK as usize) {
                check(r.u32()?, block)?;
            }
        }
        Ok(Self { elements, data: data.to_vec(), with_crc })
    }
}

fn check(stored: u32, bytes: &[u8]) -> Result<(), DecodeError> {
    if stored == crc32c(0, bytes) {
        Ok(())
    } else {
        Err(DecodeError::Invalid { what: "checksum of an object map", value: stored.into() })
    }
}

/// A range of bytes of the stored form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub offset: u64,
    pub length: u64,
}

/// Whole blocks of a stored vector, for changes without reading the rest.
#[derive(Debug)]
pub(super) struct Window {
    elements: u64,
    /// Place of the first block in the elements' bytes.
    first_byte: u64,
    data: Vec<u8>,
}

impl Window {
    /// Number of elements in a vector of which this is the start.
    pub(super) fn elements(header: Bytes) -> Result<u64, DecodeError> {
        let mut r = Reader::new(header);
        Ok(Size::from_bytes(r.blob()?)?.elements)
    }

    /// Where the blocks of elements `from..to` are, and their checksums; the range is not empty and within the vector.
    pub(super) fn extents(elements: u64, from: u64, to: u64) -> (Extent, Extent) {
        let len = byte_len(elements);
        let first = place(from).0 / BLOCK;
        let behind = place(to.saturating_sub(1)).0 / BLOCK + 1;
        let start = first * BLOCK;
        let data = Extent { offset: HEADER_LEN + start, length: (behind * BLOCK).min(len) - start };
        // Behind the elements: the footer's length, the header's checksum, the count.
        let crcs = Extent { offset: HEADER_LEN + len + 12 + first * 4, length: (behind - first) * 4 };
        (data, crcs)
    }

    /// Blocks as read. What is stored without checksums is taken as it is.
    pub(super) fn new(elements: u64, at: Extent, data: Bytes, crcs: Bytes) -> Result<Self, DecodeError> {
        if data.len() as u64 != at.length {
            return Err(DecodeError::Short { needed: at.length, left: data.len() as u64 });
        }
        let mut r = Reader::new(crcs);
        for block in data.chunks(BLOCK as usize) {
            if r.remaining() >= 4 {
                check(r.u32()?, block)?;
            }
        }
        let first_byte = at.offset.saturating_sub(HEADER_LEN);
        Ok(Self { elements, first_byte, data: data.to_vec() })
    }

    pub(super) fn get(&self, index: u64) -> u8 {
        get(&self.data, self.local(index))
    }

    pub(super) fn set(&mut self, index: u64, state: u8) {
        let index = self.local(index);
        set(&mut self.data, index, state);
    }

    fn local(&self, index: u64) -> u64 {
        debug_assert!(index < self.elements);
        index.saturating_sub(self.first_byte * PER_BYTE)
    }

    /// The blocks and their checksums, to be written where `extents` says.
    pub(super) fn into_parts(self) -> (Bytes, Bytes) {
        let mut crcs = Writer::new();
        self.data.chunks(BLOCK as usize).for_each(|block| crcs.u32(crc32c(0, block)));
        (self.data.into(), crcs.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_go_from_the_highest_bits_down() {
        let mut v = BitVector::default();
        v.resize(5);
        (0..5).for_each(|i| v.set(i, (i % 4) as u8));
        assert_eq!(v.data, [0b00_01_10_11, 0]);
        assert_eq!((0..5).map(|i| v.get(i)).collect::<Vec<_>>(), [0, 1, 2, 3, 0]);
    }

    #[test]
    fn a_vector_comes_back_and_a_changed_byte_does_not() {
        let mut v = BitVector::default();
        v.resize(40_000);
        (0..40_000).step_by(7).for_each(|i| v.set(i, 2));
        let stored = v.to_bytes();
        assert_eq!(BitVector::from_bytes(stored.clone()), Ok(v.clone()));
        for at in [4, 17, 18, 5000, stored.len() - 1] {
            let mut bad = stored.to_vec();
            bad[at] ^= 1;
            assert!(BitVector::from_bytes(bad).is_err(), "{at}");
        }
        for n in 0..stored.len() {
            assert!(BitVector::from_bytes(stored.slice(..n)).is_err(), "{n}");
        }
    }

    #[test]
    fn a_window_changes_what_the_whole_would() {
        let mut v = BitVector::default();
        v.resize(100_000);
        for (from, to) in [(0, 1), (16_383, 16_385), (20_000, 99_999), (99_999, 100_000), (16_384, 32_768)] {
            let mut stored = v.to_bytes().to_vec();
            let (data, crcs) = Window::extents(v.len(), from, to);
            let part = |e: Extent, b: &[u8]| {
                Bytes::copy_from_slice(&b[e.offset as usize..(e.offset + e.length) as usize])
            };
            let mut w = Window::new(v.len(), data, part(data, &stored), part(crcs, &stored)).unwrap();
            for i in from..to {
                assert_eq!(w.get(i), v.get(i));
                w.set(i, 3);
                v.set(i, 3);
            }
            let (d, c) = w.into_parts();
            stored[data.offset as usize..][..d.len()].copy_from_slice(&d);
            stored[crcs.offset as usize..][..c.len()].copy_from_slice(&c);
            assert_eq!(stored, v.to_bytes());
        }
    }
}
