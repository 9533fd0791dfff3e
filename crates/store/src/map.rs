//! The allocation map on the device: for each region two slots, written in turn, and a digest over all that are valid.
//!
//! A checkpoint that is built and not published leaves slots of a generation that no superblock has. They must not count
//! as valid once a later superblock has that generation. Two rules see to that:
//!
//! 1. A store takes no generation that some slot has had (`MapState::newest`).
//! 2. The first checkpoint after a crash writes each such slot anew (`MapState::unpublished`), in the same place, since it
//!    stands beside the valid one.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::alloc::{Bitmap, Bits, REGION_WORDS};
use crate::checksum::{BLOCK, BLOCK_U64, crc32c};
use crate::superblock::Layout;
use crate::{Device, DeviceError};

/// Checksum, region and generation.
const SLOT_HEAD: usize = 16;
const _: () = assert!(SLOT_HEAD + REGION_WORDS * 8 == BLOCK);

/// A region's valid slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SlotState {
    /// 0 or 1.
    which: u32,
    digest: u64,
}

/// Which slot of each region is valid. A region that was never written has no bit set beyond the fixed blocks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MapState {
    slots: BTreeMap<u32, SlotState>,
    /// The highest generation of any slot, valid or not.
    newest: u64,
    /// Regions with a slot that no superblock has published.
    unpublished: BTreeSet<u32>,
}

impl MapState {
    /// The sum over the valid slots: tells a complete set from one where a write was lost.
    pub(crate) fn digest(&self) -> u64 {
        self.slots.values().fold(0, |sum, s| sum.wrapping_add(s.digest))
    }

    /// What the next checkpoint takes after a superblock of this generation.
    pub(crate) fn next_generation(&self, generation: u64) -> u64 {
        generation.max(self.newest).saturating_add(1)
    }

    /// Regions that the next checkpoint has to write, whether they changed or not.
    pub(crate) fn unpublished(&self) -> impl Iterator<Item = u32> {
        self.unpublished.iter().copied()
    }

    /// The state of a map that is to be made anew. Its slots are written over as if none were valid.
    pub(crate) fn forgotten(&self) -> Self {
        Self { newest: self.newest, ..Self::default() }
    }

    /// The slots to write for new content of some regions, and the state once they are valid.
    pub(crate) fn update<'a>(
        &self,
        layout: &Layout,
        generation: u64,
        regions: impl Iterator<Item = (u32, Option<&'a Bits>)>,
    ) -> (Self, Vec<(u32, Bytes)>) {
        let mut next = self.clone();
        let mut writes = Vec::new();
        for (region, bits) in regions {
            let which = self.slots.get(&region).map_or(0, |s| 1 - s.which);
            let (raw, crc) = encode_slot(region, generation, bits);
            next.slots.insert(region, SlotState { which, digest: slot_digest(region, generation, crc) });
            next.unpublished.remove(&region);
            writes.push((slot_block(layout, region, which), raw));
            next.newest = next.newest.max(generation);
        }
        (next, writes)
    }

    /// Reads the slots that were valid at `generation`.
    pub(crate) fn load(
        device: &dyn Device,
        layout: &Layout,
        generation: u64,
    ) -> Result<(Self, Bitmap), DeviceError> {
        let mut state = Self::default();
        let mut bitmap = Bitmap::new(layout.blocks);
        let mut raw = vec![0u8; 2 * BLOCK];
        for region in 0..bitmap.regions() {
            device.read_at(u64::from(slot_block(layout, region, 0)) * BLOCK_U64, &mut raw)?;
            let found = raw.chunks(BLOCK).zip(0..).filter_map(|(slot, which)| {
                let (found, crc) = decode_slot(region, slot)?;
                state.newest = state.newest.max(found.generation);
                if found.generation > generation {
                    state.unpublished.insert(region);
                    return None;
                }
                Some((found, which, crc))
            });
            if let Some((slot, which, crc)) = found.max_by_key(|(s, ..)| s.generation) {
                let digest = slot_digest(region, slot.generation, crc);
                state.slots.insert(region, SlotState { which, digest });
                bitmap.set_region(region, Some(slot.bits));
            }
        }
        bitmap.put(layout.fixed(), true);
        Ok((state, bitmap))
    }
}

struct Slot {
    generation: u64,
    bits: Bits,
}

fn slot_block(layout: &Layout, region: u32, which: u32) -> u32 {
    layout.map.start + 2 * region + which
}

fn encode_slot(region: u32, generation: u64, bits: Option<&Bits>) -> (Bytes, u32) {
    let mut raw = Vec::with_capacity(BLOCK);
    raw.extend_from_slice(&[0; 4]);
    raw.extend_from_slice(&region.to_le_bytes());
    raw.extend_from_slice(&generation.to_le_bytes());
    for word in 0..REGION_WORDS {
        let word = bits.and_then(|b| b.get(word)).copied().unwrap_or(0);
        raw.extend_from_slice(&word.to_le_bytes());
    }
    let crc = crc32c(raw.get(4..).unwrap_or_default());
    if let Some(place) = raw.first_chunk_mut() {
        *place = crc.to_le_bytes();
    }
    (raw.into(), crc)
}

fn decode_slot(region: u32, raw: &[u8]) -> Option<(Slot, u32)> {
    let (crc, rest) = raw.split_first_chunk::<4>()?;
    let crc = u32::from_le_bytes(*crc);
    if crc32c(rest) != crc {
        return None;
    }
    let (found_region, rest) = rest.split_first_chunk::<4>()?;
    let (generation, words) = rest.split_first_chunk::<8>()?;
    if u32::from_le_bytes(*found_region) != region {
        return None;
    }
    let mut bits = [0u64; REGION_WORDS];
    for (slot, word) in bits.iter_mut().zip(words.chunks_exact(8)) {
        *slot = word.first_chunk().map_or(0, |w| u64::from_le_bytes(*w));
    }
    Some((Slot { generation: u64::from_le_bytes(*generation), bits: bits.into() }, crc))
}

fn slot_digest(region: u32, generation: u64, crc: u32) -> u64 {
    let mixed = (u64::from(region) << 32 | u64::from(crc)) ^ generation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn slots_come_back_and_damage_is_noticed() {
        let bits: Bits = Arc::new(std::array::from_fn(|i| i as u64 * 77));
        let (raw, crc) = encode_slot(3, 9, Some(&bits));
        let (slot, found) = decode_slot(3, &raw).expect("own slot");
        assert!(slot.generation == 9 && slot.bits == bits && found == crc);
        assert!(decode_slot(2, &raw).is_none());
        for at in (0..raw.len()).step_by(7) {
            let mut bad = raw.to_vec();
            bad[at] ^= 4;
            assert!(decode_slot(3, &bad).is_none());
        }
    }

    #[test]
    fn slots_are_written_in_turn_and_the_digest_follows() {
        let layout = Layout::plan(1 << 20, None).expect("fits");
        let first = MapState::default();
        let (second, w1) = first.update(&layout, 1, [(0, None)].into_iter());
        let (third, w2) = second.update(&layout, 2, [(0, None)].into_iter());
        assert_eq!(w1[0].0 + 1, w2[0].0);
        assert!(first.digest() != second.digest() && second.digest() != third.digest());
    }
}
