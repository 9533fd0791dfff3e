//! Moving whole blocks from one object to another: places and checksums change hands, and the data stays
//! where it is.
//!
//! What is to be moved is checked before: every block must be there, written whole, and the digest of their
//! contents, which follows from their checksums, must be the stated one. So a transaction that another OSD
//! has decided on never leaves an object with bytes that are missing, or with those of another write. What
//! a block holds on the device is not read: its checksum goes with it, and is verified by whoever reads the
//! block next.

use crate::apply::{Apply, Mode};
use crate::apply_data::range_end;
use crate::checksum::{digest_of, place_mask};
use crate::onode::{Onode, Slot, block_of, within};
use crate::txn::{ObjectIndex, Op};
use crate::{Misuse, StoreError};

impl Apply<'_> {
    pub(crate) fn move_range(&mut self, op: &Op) -> Result<(), StoreError> {
        let Op::MoveRange { src, dst, src_offset, len, dst_offset, digest } = *op else { return Ok(()) };
        let (src_end, dst_end) = (range_end(src_offset, len)?, range_end(dst_offset, len)?);
        let is_whole = [src_offset, len, dst_offset].into_iter().all(|at| within(at) == 0);
        let (first, end, target) = (block_of(src_offset), block_of(src_end), block_of(dst_offset));
        let is_live = matches!(self.mode, Mode::Live { .. });
        let Some(source) = self.current(src)?.filter(|_| is_whole && src != dst) else {
            return Err(StoreError::Misuse(Misuse::BadMove));
        };
        let slots: Vec<Slot> = (first..end).map(|index| source.slot(index)).collect();
        // In replay all of it was there once. Only a partial write since may have found a block damaged.
        if is_live && !is_there(&source, src_end, first, &slots, digest) {
            return Err(StoreError::Misuse(Misuse::BadMove));
        }
        let came_shared = source.shared;
        drop(source);
        let source = self.edit(src)?;
        for index in first..end {
            source.set_slot(index, Slot::HOLE);
        }
        source.written.forget(first..end);
        self.map_moved(dst, target, &slots, came_shared)?;
        let o = self.edit(dst)?;
        o.written.forget(target..target + (end - first));
        o.size = o.size.max(if len == 0 { 0 } else { dst_end });
        Ok(())
    }

    fn map_moved(
        &mut self,
        dst: ObjectIndex,
        target: u32,
        slots: &[Slot],
        came_shared: bool,
    ) -> Result<(), StoreError> {
        let mut replaced = Vec::new();
        let o = self.edit(dst)?;
        let was_shared = o.shared;
        o.shared |= came_shared;
        for (slot, index) in slots.iter().zip(target..) {
            let old = o.set_slot(index, *slot);
            if old.is_placed() {
                replaced.push(old);
            }
        }
        let shared = was_shared && !types::is_planted!(self.planted, MoveForgetsSharers);
        replaced.into_iter().try_for_each(|old| self.release(shared, old))
    }
}

/// Whether these are blocks that are there, whole, with the stated content.
fn is_there(source: &Onode, end: u64, first: u32, slots: &[Slot], digest: u32) -> bool {
    source.size >= end
        && slots.iter().all(|slot| slot.is_placed())
        && (first..).zip(slots).all(|(index, _)| source.written.is_whole(index))
        && digest_of(slots.iter().map(|slot| slot.crc ^ place_mask(slot.place))) == digest
}
