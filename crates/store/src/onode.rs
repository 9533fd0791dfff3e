//! An object's metadata: size, attributes, omap, and where each 4 KiB of data lies with which checksum.

use std::sync::Arc;

use bytes::Bytes;

use crate::checksum::{BLOCK, BLOCK_U64};
use crate::written::Written;

/// The largest object, in bytes: bounds what one object's block table may take.
pub(crate) const MAX_OBJECT_BYTES: u64 = 4 << 30;
/// Blocks per chunk of the table; a change copies one chunk, which at 1 KiB is still a cheap allocation.
pub(crate) const CHUNK: u32 = 128;

/// Place and checksum of one block of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Slot {
    /// Block number on the device; 0, the superblock's, stands for a hole.
    pub(crate) place: u32,
    pub(crate) crc: u32,
}

impl Slot {
    pub(crate) const HOLE: Self = Self { place: 0, crc: 0 };
    /// The content was lost to a damaged medium and must not be invented.
    pub(crate) const LOST: Self = Self { place: u32::MAX, crc: 0 };

    pub(crate) fn is_hole(self) -> bool {
        self.place == 0
    }

    pub(crate) fn is_lost(self) -> bool {
        self.place == u32::MAX
    }

    /// Whether it names a block on the device.
    pub(crate) fn is_placed(self) -> bool {
        !self.is_hole() && !self.is_lost()
    }
}

/// Invariants: (1) bytes of a mapped block at or beyond `size` are zero; (2) no slot at or beyond `size` is mapped;
/// (3) `mapped` counts the slots that are not holes; (4) `attrs` is sorted by name, without duplicates; (5) `shared`
/// is set when any placed block may also belong to another object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Onode {
    pub(crate) size: u64,
    pub(crate) attrs: Vec<(Bytes, Bytes)>,
    /// Prefix of the omap's keys in the index; 0 without an omap.
    pub(crate) omap_id: u64,
    pub(crate) omap_header: Bytes,
    pub(crate) shared: bool,
    /// Which blocks were written in part only.
    pub(crate) written: Written,
    mapped: u32,
    /// The first slot while there are no chunks, and a hole else: most objects of small writes have one block.
    lone: Slot,
    /// Chunks of `CHUNK` slots; a short or missing chunk ends in holes. None while only the first slot may be mapped.
    chunks: Vec<Arc<Vec<Slot>>>,
}

impl Onode {
    /// An object of holes.
    pub(crate) fn with_size(size: u64) -> Self {
        Self { size, ..Self::default() }
    }

    pub(crate) fn slot(&self, index: u32) -> Slot {
        if self.chunks.is_empty() {
            return if index == 0 { self.lone } else { Slot::HOLE };
        }
        let chunk = self.chunks.get((index / CHUNK) as usize);
        chunk.and_then(|c| c.get((index % CHUNK) as usize)).copied().unwrap_or(Slot::HOLE)
    }

    /// Replaces a slot and returns what was there.
    pub(crate) fn set_slot(&mut self, index: u32, slot: Slot) -> Slot {
        if slot.is_hole() && self.slot(index).is_hole() {
            return Slot::HOLE;
        }
        if self.chunks.is_empty() {
            if index == 0 {
                let old = std::mem::replace(&mut self.lone, slot);
                self.count_change(old, slot);
                return old;
            }
            let first = std::mem::replace(&mut self.lone, Slot::HOLE);
            if !first.is_hole() {
                self.chunks.push(Arc::new(vec![first]));
            }
        }
        let (chunk_at, at) = ((index / CHUNK) as usize, (index % CHUNK) as usize);
        if self.chunks.len() <= chunk_at {
            self.chunks.resize_with(chunk_at + 1, Arc::default);
        }
        let Some(chunk) = self.chunks.get_mut(chunk_at) else { return Slot::HOLE };
        let chunk = Arc::make_mut(chunk);
        if chunk.len() <= at {
            if chunk.capacity() == 0 {
                chunk.reserve_exact(at + 1);
            }
            chunk.resize(at + 1, Slot::HOLE);
        }
        let Some(place) = chunk.get_mut(at) else { return Slot::HOLE };
        let old = std::mem::replace(place, slot);
        self.count_change(old, slot);
        old
    }

    fn count_change(&mut self, old: Slot, new: Slot) {
        self.mapped = self.mapped + u32::from(!new.is_hole()) - u32::from(!old.is_hole());
    }

    /// One more than the highest slot that may be mapped.
    pub(crate) fn slots_end(&self) -> u32 {
        match self.chunks.last() {
            Some(last) => (self.chunks.len() as u32 - 1) * CHUNK + last.len() as u32,
            None => u32::from(!self.lone.is_hole()),
        }
    }

    /// Mapped slots with their indexes, in order.
    pub(crate) fn mapped_slots(&self) -> impl Iterator<Item = (u32, Slot)> + '_ {
        let lone = (!self.lone.is_hole()).then_some((0, self.lone));
        let chunks = self.chunks.iter().enumerate().flat_map(|(c, chunk)| {
            let base = c as u32 * CHUNK;
            chunk.iter().enumerate().map(move |(i, s)| (base + i as u32, *s)).filter(|(_, s)| !s.is_hole())
        });
        lone.into_iter().chain(chunks)
    }

    pub(crate) fn mapped(&self) -> u32 {
        self.mapped
    }

    /// Whether a block was lost. Looks at every slot.
    pub(crate) fn has_lost(&self) -> bool {
        self.mapped > 0 && self.mapped_slots().any(|(_, slot)| slot.is_lost())
    }

    /// Shortens the table; the caller has emptied the slots behind `end`.
    pub(crate) fn trim_slots(&mut self, end: u32) {
        self.chunks.truncate(end.div_ceil(CHUNK) as usize);
        if end % CHUNK != 0 && self.chunks.len() as u32 == end.div_ceil(CHUNK) {
            if let Some(last) = self.chunks.last_mut().filter(|c| c.len() as u32 > end % CHUNK) {
                Arc::make_mut(last).truncate((end % CHUNK) as usize);
            }
        }
        if self.slots_end() <= 1 {
            self.lone = self.slot(0);
            self.chunks.clear();
        }
    }

    /// A range is about to be written: its blocks are not mapped anew yet.
    pub(crate) fn note_written(&mut self, offset: u64, end: u64) {
        let mut at = offset;
        while at < end {
            let block = block_of(at);
            let n = (end - at).min(BLOCK_U64 - within(at) as u64);
            if n == BLOCK_U64 {
                let after = block_of(end);
                self.written.forget(block..after);
                at = u64::from(after) * BLOCK_U64;
            } else {
                let start = within(at) as u16;
                let hole = self.slot(block).is_hole();
                self.written.add(block, (start, start + n as u16), hole);
                at += n;
            }
        }
    }

    /// Data bytes as clients see them: what was written of the mapped blocks, the last one up to the object's end.
    pub(crate) fn stored_bytes(&self) -> u64 {
        let tail = self.size % BLOCK_U64;
        let last = (self.size / BLOCK_U64) as u32;
        let mut bytes = u64::from(self.mapped) * BLOCK_U64 - self.written.unwritten_bytes();
        if tail != 0 && !self.slot(last).is_hole() && self.written.is_whole(last) {
            bytes -= BLOCK_U64 - tail;
        }
        bytes
    }

    pub(crate) fn attr(&self, name: &[u8]) -> Option<&Bytes> {
        let at = self.attrs.binary_search_by(|(n, _)| n.as_ref().cmp(name)).ok()?;
        self.attrs.get(at).map(|(_, v)| v)
    }

    /// Copies the value, so that it does not keep a received message in memory.
    pub(crate) fn set_attr(&mut self, name: &[u8], value: &[u8]) {
        let value = Bytes::copy_from_slice(value);
        match self.attrs.binary_search_by(|(n, _)| n.as_ref().cmp(name)) {
            Ok(at) => {
                if let Some(entry) = self.attrs.get_mut(at) {
                    entry.1 = value;
                }
            }
            Err(at) => {
                // Most objects have one or two for ever.
                self.attrs.reserve_exact(1);
                self.attrs.insert(at, (attr_name(name), value));
            }
        }
    }

    pub(crate) fn rm_attr(&mut self, name: &[u8]) {
        if let Ok(at) = self.attrs.binary_search_by(|(n, _)| n.as_ref().cmp(name)) {
            self.attrs.remove(at);
        }
    }

    /// Memory in use, in bytes, roughly.
    pub(crate) fn weight(&self) -> usize {
        let attrs: usize = self.attrs.iter().map(|(n, v)| n.len() + v.len() + 128).sum();
        let slots: usize = self.chunks.iter().map(|c| 48 + c.capacity() * size_of::<Slot>()).sum();
        size_of::<Self>() + 64 + attrs + slots + self.omap_header.len() + self.written.weight()
    }

    /// At least the length of the stored form, in bytes.
    pub(crate) fn encoded_bound(&self) -> u64 {
        let attrs: usize = self.attrs.iter().map(|(n, v)| n.len() + v.len() + 10).sum();
        let written = self.written.pieces().len() as u64 * 9;
        64 + (attrs + self.omap_header.len()) as u64 + u64::from(self.mapped) * 16 + written
    }

    #[cfg(debug_assertions)]
    pub(crate) fn assert_invariants(&self) {
        let mapped = self.mapped_slots().count() as u32;
        assert_eq!(mapped, self.mapped, "onode invariant 3");
        let end = self.mapped_slots().last().map_or(0, |(i, _)| u64::from(i) + 1);
        assert!(
            end * BLOCK_U64 < self.size + BLOCK_U64,
            "onode invariant 2: {end} blocks, size {}",
            self.size
        );
        assert!(self.lone.is_hole() || self.chunks.is_empty(), "a first slot beside chunks");
        self.written.assert_invariants(|block| !self.slot(block).is_hole());
        assert!(self.attrs.is_sorted_by(|a, b| a.0 < b.0), "onode invariant 4");
    }
}

/// A name in a buffer of its own; the two that nearly every object has share one for all.
fn attr_name(name: &[u8]) -> Bytes {
    match name {
        b"_" => Bytes::from_static(b"_"),
        b"ss" => Bytes::from_static(b"ss"),
        _ => Bytes::copy_from_slice(name),
    }
}

/// Index of the block that holds a byte.
pub(crate) fn block_of(offset: u64) -> u32 {
    (offset / BLOCK_U64) as u32
}

/// One more than the index of the block that holds the last byte before `end`.
pub(crate) fn blocks_up_to(end: u64) -> u32 {
    end.div_ceil(BLOCK_U64) as u32
}

/// Offset inside a block.
pub(crate) fn within(offset: u64) -> usize {
    (offset % BLOCK_U64) as usize
}

const _: () = assert!(BLOCK == 4096);

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(place: u32) -> Slot {
        Slot { place, crc: place * 7 }
    }

    #[test]
    fn slots_are_kept_sparsely() {
        let mut o = Onode { size: MAX_OBJECT_BYTES, ..Onode::default() };
        for i in [0, 255, 256, 100_000] {
            assert_eq!(o.set_slot(i, slot(i + 1)), Slot::HOLE);
        }
        o.assert_invariants();
        assert_eq!(
            (o.mapped(), o.slots_end(), o.slot(100_000), o.slot(5)),
            (4, 100_001, slot(100_001), Slot::HOLE)
        );
        assert!(o.weight() < 64 << 10);
        assert_eq!(o.set_slot(100_000, Slot::HOLE), slot(100_001));
        o.trim_slots(257);
        assert_eq!(o.mapped_slots().map(|(i, _)| i).collect::<Vec<_>>(), vec![0, 255, 256]);
        assert_eq!(o.slots_end(), 257);
    }

    #[test]
    fn stored_bytes_end_at_the_object() {
        let mut o = Onode { size: 5000, ..Onode::default() };
        o.set_slot(1, slot(9));
        assert_eq!(o.stored_bytes(), 904);
        o.set_slot(0, slot(8));
        assert_eq!(o.stored_bytes(), 5000);
    }

    #[test]
    fn attributes_stay_sorted() {
        let mut o = Onode::default();
        for n in ["b", "a", "c", "b"] {
            o.set_attr(n.as_bytes(), b"v");
        }
        o.rm_attr(b"a");
        o.assert_invariants();
        assert_eq!((o.attrs.len(), o.attr(b"b").is_some(), o.attr(b"a").is_some()), (2, true, false));
    }
}
