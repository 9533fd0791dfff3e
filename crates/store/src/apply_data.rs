//! The data operations: writing, zeroing, truncating and sharing blocks.
//!
//! A block of the last checkpoint is never overwritten: new content goes to a new block, and the old one is reused
//! only after the next checkpoint. Content of the active layer, which no checkpoint has seen, is replaced in memory.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::apply::{Apply, Mode};
use crate::checksum::{BLOCK, BLOCK_U64, placed_crc, placed_crcs};
use crate::data::{BlockError, DirectWrite, zero_block};
use crate::onode::{MAX_OBJECT_BYTES, Onode, Slot, block_of, blocks_up_to, within};
use crate::refs::{RefRegion, refs_region};
use crate::stage::{Placement, SmallBlock};
use crate::txn::ObjectIndex;
use crate::{Corruption, Misuse, StoreError};

/// A transaction's small writes beyond so many blocks stay in its record.
const SMALL_BLOCKS_MAX: usize = 256;

impl Apply<'_> {
    pub(crate) fn write(
        &mut self,
        at: u32,
        object: ObjectIndex,
        offset: u64,
        data: &Bytes,
    ) -> Result<(), StoreError> {
        let placement = match &mut self.mode {
            Mode::Replay { placements } => placements.remove(&at),
            Mode::Live { .. } => None,
        };
        if let Some(p) = placement {
            return self.write_placed(object, offset, &p);
        }
        let end = range_end(offset, data.len() as u64)?;
        self.edit(object)?.note_written(offset, end);
        match self.mode {
            Mode::Live { direct_min_bytes, .. } if data.len() >= direct_min_bytes => {
                self.write_direct(at, object, offset, data)?;
            }
            Mode::Live { .. } if data.len() >= BLOCK => self.write_small(at, object, offset, data)?,
            _ => self.write_buffered(object, offset, data)?,
        }
        self.grow(object, if data.is_empty() { 0 } else { end })
    }

    fn grow(&mut self, object: ObjectIndex, end: u64) -> Result<(), StoreError> {
        let o = self.edit(object)?;
        o.size = o.size.max(end);
        Ok(())
    }

    /// Block by block, into the dirty data of the active layer; the log record carries the payload.
    fn write_buffered(&mut self, object: ObjectIndex, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let n = rest.len().min(BLOCK - within(at));
            let (piece, tail) = rest.split_at(n);
            self.patch_block(object, at, piece)?;
            rest = tail;
            at += n as u64;
        }
        Ok(())
    }

    /// Replaces part of one block.
    fn patch_block(&mut self, object: ObjectIndex, offset: u64, piece: &[u8]) -> Result<(), StoreError> {
        let index = block_of(offset);
        if piece.len() == BLOCK {
            let content = self.data.pool.copy(piece);
            return self.put_block(object, index, content);
        }
        let Some(old) = self.old_block(object, index)? else { return self.lose_block(object, index) };
        let mut content = BytesMut::from(old.as_ref());
        let start = within(offset);
        if let Some(place) = content.get_mut(start..start + piece.len()) {
            place.copy_from_slice(piece);
        }
        self.put_block(object, index, content.freeze())
    }

    /// A block's present content. `None` where damaged blocks are lost; in replay, it was good when the record was written.
    fn old_block(&mut self, object: ObjectIndex, index: u32) -> Result<Option<Bytes>, StoreError> {
        let slot = self.current(object)?.map_or(Slot::HOLE, |o| o.slot(index));
        if let Some(content) = self.stage.dirty.get(slot.place) {
            return Ok(Some(content.clone()));
        }
        if let Some(content) = self.staged_direct(slot.place).or_else(|| self.staged_small(slot.place)) {
            return Ok(Some(content));
        }
        let is_live = matches!(self.mode, Mode::Live { .. });
        let found = match self.data.block(self.index, slot) {
            Err(BlockError::Store(StoreError::Device(e))) if is_live && e.is_bad_sector() => {
                Err(BlockError::Mismatch)
            }
            found => found,
        };
        match found {
            Ok(content) => Ok(Some(content)),
            Err(BlockError::Mismatch)
                if matches!(self.mode, Mode::Replay { .. } | Mode::Live { lose_damaged: true, .. }) =>
            {
                Ok(None)
            }
            Err(BlockError::Mismatch) => {
                let key = self.txn.object(object).cloned().ok_or(StoreError::Misuse(Misuse::BadKey))?;
                let offset = u64::from(index) * BLOCK_U64;
                Err(Corruption::Data { key: Box::new(key), offset, len: BLOCK_U64 }.into())
            }
            Err(BlockError::Store(e)) => Err(e),
        }
    }

    fn staged_direct(&self, place: u32) -> Option<Bytes> {
        self.stage.direct.iter().find_map(|w| {
            let mut skip = (place.checked_sub(w.start)? as usize).checked_mul(BLOCK)?;
            w.pieces.iter().find_map(|piece| {
                let found = (skip + BLOCK <= piece.len()).then(|| piece.slice(skip..skip + BLOCK));
                skip = skip.wrapping_sub(piece.len());
                found
            })
        })
    }

    fn staged_small(&self, place: u32) -> Option<Bytes> {
        let found = self.stage.small.iter().rev().find(|b| b.place == place);
        found.map(|b| b.content.clone())
    }

    /// The object has a block that is lost: the caller of the store hears of it once.
    pub(crate) fn tell_lost(&mut self, object: ObjectIndex) {
        if let (Mode::Live { .. }, Some(key)) = (&self.mode, self.txn.object(object))
            && !self.stage.lost.contains(key)
        {
            self.stage.lost.push(key.clone());
        }
    }

    fn lose_block(&mut self, object: ObjectIndex, index: u32) -> Result<(), StoreError> {
        self.tell_lost(object);
        let o = self.edit(object)?;
        o.written.forget(index..index + 1);
        let (old, shared) = (o.set_slot(index, Slot::LOST), o.shared);
        self.release(shared, old)
    }

    /// Gives a block new content, which only the log will hold for now.
    fn put_block(&mut self, object: ObjectIndex, index: u32, content: Bytes) -> Result<(), StoreError> {
        let o = self.edit(object)?;
        let (old, shared) = (o.slot(index), o.shared);
        let place = match self.is_replaceable(shared, old)? {
            true => old.place,
            false => self.take_block()?,
        };
        let slot = Slot { place, crc: placed_crc(place, &content) };
        self.edit(object)?.set_slot(index, slot);
        if place != old.place {
            self.release(shared, old)?;
        }
        self.stage.dirty.put(place, content);
        Ok(())
    }

    /// Whether the block's content is only in memory, is no part of a checkpoint under way, and has no other user.
    fn is_replaceable(&mut self, shared: bool, slot: Slot) -> Result<bool, StoreError> {
        if !slot.is_placed() {
            return Ok(false);
        }
        let dirty =
            self.stage.dirty.contains(slot.place) || self.index.active.dirty.contains_key(&slot.place);
        Ok(dirty && (!shared || self.refs(slot.place)?.extra(slot.place) == 0))
    }

    fn take_block(&mut self) -> Result<u32, StoreError> {
        let run =
            self.alloc.take(1).ok_or(StoreError::Full { needed_bytes: BLOCK_U64, available_bytes: 0 })?;
        self.stage.take(run);
        Ok(run.start)
    }

    /// One user of the block less; without another one it is free after the next checkpoint.
    pub(crate) fn release(&mut self, shared: bool, slot: Slot) -> Result<(), StoreError> {
        if !slot.is_placed() {
            return Ok(());
        }
        if shared && self.refs(slot.place)?.drop_user(slot.place) {
            return Ok(());
        }
        self.stage.free(slot.place);
        Ok(())
    }

    pub(crate) fn refs(&mut self, block: u32) -> Result<&mut RefRegion, StoreError> {
        let region = refs_region(block);
        if !self.stage.refs.contains_key(&region) {
            let found = self.index.refs(region)?;
            self.stage.refs.insert(region, found);
        }
        Ok(self.stage.refs.entry(region).or_default())
    }

    /// Whole blocks to new places; the commit decides whether it writes them there.
    fn write_small(
        &mut self,
        at: u32,
        object: ObjectIndex,
        offset: u64,
        data: &Bytes,
    ) -> Result<(), StoreError> {
        let index = block_of(offset);
        if data.len() == BLOCK && within(offset) == 0 {
            let o = self.edit(object)?;
            let (old, shared) = (o.slot(index), o.shared);
            if self.is_replaceable(shared, old)? {
                return self.write_buffered(object, offset, data);
            }
            let place = self.take_block()?;
            return self.put_small(at, object, index, place, data.clone());
        }
        let blocks = blocks_up_to(offset + data.len() as u64) - index;
        if self.stage.small.len() + blocks as usize > SMALL_BLOCKS_MAX {
            return self.write_buffered(object, offset, data);
        }
        let full = StoreError::Full {
            needed_bytes: u64::from(blocks) * BLOCK_U64,
            available_bytes: u64::from(self.alloc.free_blocks()) * BLOCK_U64,
        };
        let Some(content) = self.whole_blocks(object, offset, data)? else {
            return self.write_buffered(object, offset, data);
        };
        let runs = self.alloc.take_all(blocks).ok_or(full)?;
        runs.iter().for_each(|run| self.stage.take(*run));
        let places = runs.iter().flat_map(|run| run.start..run.end());
        let contents =
            content.iter().flat_map(|p| (0..p.len()).step_by(BLOCK).map(|i| p.slice(i..i + BLOCK)));
        for ((place, content), index) in places.zip(contents).zip(index..) {
            self.put_small(at, object, index, place, content)?;
        }
        Ok(())
    }

    fn put_small(
        &mut self,
        at: u32,
        object: ObjectIndex,
        index: u32,
        place: u32,
        content: Bytes,
    ) -> Result<(), StoreError> {
        let crc = placed_crc(place, &content);
        let o = self.edit(object)?;
        let (old, shared) = (o.set_slot(index, Slot { place, crc }), o.shared);
        self.stage.small.push(SmallBlock { op: at, place, crc, content });
        self.release(shared, old)
    }

    /// Whole blocks to new places, written by the commit itself; the log record only says where.
    fn write_direct(
        &mut self,
        at: u32,
        object: ObjectIndex,
        offset: u64,
        data: &Bytes,
    ) -> Result<(), StoreError> {
        let (first, end) = (block_of(offset), blocks_up_to(offset + data.len() as u64));
        let blocks = end - first;
        let full = StoreError::Full {
            needed_bytes: u64::from(blocks) * BLOCK_U64,
            available_bytes: u64::from(self.alloc.free_blocks()) * BLOCK_U64,
        };
        let Some(content) = self.whole_blocks(object, offset, data)? else {
            // The record has to hold the payload: replay must lose the same blocks.
            return self.write_buffered(object, offset, data);
        };
        let mut content = Pieces(content);
        let runs = self.alloc.take_all(blocks).ok_or(full)?;
        runs.iter().for_each(|run| self.stage.take(*run));
        let unread = self.txn.is_unread();
        let mut crcs = Vec::with_capacity(blocks as usize);
        for run in &runs {
            let pieces = content.take(run.len as usize * BLOCK);
            let mut place = run.start;
            for piece in &pieces {
                crcs.extend(placed_crcs(place, piece));
                place += (piece.len() / BLOCK) as u32;
            }
            self.stage.direct.push(DirectWrite { start: run.start, pieces, unread });
        }
        let placement = Placement { op: at, runs, crcs, len: data.len() as u64 };
        self.map_placement(object, first, &placement)?;
        self.stage.placements.push(placement);
        Ok(())
    }

    /// The payload filled up to whole blocks with what the first and last block hold now; `None` when one of these is
    /// damaged. The payload is not copied.
    fn whole_blocks(
        &mut self,
        object: ObjectIndex,
        offset: u64,
        data: &Bytes,
    ) -> Result<Option<Vec<Bytes>>, StoreError> {
        let end = offset + data.len() as u64;
        let mut pieces = Vec::with_capacity(3);
        let head = if within(offset) == 0 { 0 } else { data.len().min(BLOCK - within(offset)) };
        if head > 0 {
            let Some(block) = self.patched(object, offset, data.get(..head).unwrap_or_default())? else {
                return Ok(None);
            };
            pieces.push(block);
        }
        let tail = within(end).min(data.len() - head);
        if data.len() > head + tail {
            pieces.push(data.slice(head..data.len() - tail));
        }
        if tail > 0 {
            let piece = data.get(data.len() - tail..).unwrap_or_default();
            let Some(block) = self.patched(object, end - tail as u64, piece)? else { return Ok(None) };
            pieces.push(block);
        }
        Ok(Some(pieces))
    }

    fn patched(
        &mut self,
        object: ObjectIndex,
        offset: u64,
        piece: &[u8],
    ) -> Result<Option<Bytes>, StoreError> {
        let Some(old) = self.old_block(object, block_of(offset))? else { return Ok(None) };
        let mut content = BytesMut::from(old.as_ref());
        let start = within(offset);
        if let Some(place) = content.get_mut(start..start + piece.len()) {
            place.copy_from_slice(piece);
        }
        Ok(Some(content.freeze()))
    }

    /// From the log: the payload is in its place already.
    fn write_placed(&mut self, object: ObjectIndex, offset: u64, p: &Placement) -> Result<(), StoreError> {
        let end = range_end(offset, p.len)?;
        if (blocks_up_to(end) - block_of(offset)) as usize != p.crcs.len() {
            return Err(Corruption::Value { what: "placement" }.into());
        }
        self.edit(object)?.note_written(offset, end);
        self.stage.allocated += p.crcs.len() as i64;
        self.map_placement(object, block_of(offset), p)?;
        self.grow(object, end)
    }

    fn map_placement(&mut self, object: ObjectIndex, first: u32, p: &Placement) -> Result<(), StoreError> {
        let places = p.runs.iter().flat_map(|run| run.start..run.end());
        let mut replaced = Vec::new();
        let o = self.edit(object)?;
        let shared = o.shared;
        for ((place, crc), index) in places.zip(&p.crcs).zip(first..) {
            let old = o.set_slot(index, Slot { place, crc: *crc });
            if old.is_placed() {
                replaced.push(old);
            }
        }
        replaced.into_iter().try_for_each(|old| self.release(shared, old))
    }

    pub(crate) fn zero(&mut self, object: ObjectIndex, offset: u64, len: u64) -> Result<(), StoreError> {
        let end = range_end(offset, len)?;
        self.edit(object)?;
        if len == 0 {
            return Ok(());
        }
        self.punch(object, offset, end)?;
        self.grow(object, end)
    }

    /// Makes `offset..end` read as zeros, and holes: blocks of which nothing else was written are unmapped, others rewritten.
    fn punch(&mut self, object: ObjectIndex, offset: u64, end: u64) -> Result<(), StoreError> {
        let limit = self.edit(object)?.slots_end();
        let end = end.min(u64::from(limit) * BLOCK_U64);
        let mut at = offset;
        while at < end {
            let n = (end - at).min(BLOCK_U64 - within(at) as u64);
            let o = self.edit(object)?;
            let (block, start) = (block_of(at), within(at) as u16);
            let (slot, shared) = (o.slot(block), o.shared);
            let left = match n {
                _ if slot.is_hole() => None,
                BLOCK_U64 => Some(Vec::new()),
                _ if slot.is_lost() => None,
                _ => o.written.without(block, (start, start + n as u16)),
            };
            match left {
                None => {}
                Some(left) if left.is_empty() => {
                    o.written.forget(block..block + 1);
                    o.set_slot(block, Slot::HOLE);
                    self.release(shared, slot)?;
                }
                Some(left) => {
                    o.written.set(block, &left);
                    let zeros = zero_block();
                    self.patch_block(object, at, zeros.get(..n as usize).unwrap_or_default())?;
                }
            }
            at += n;
        }
        Ok(())
    }

    pub(crate) fn truncate(&mut self, object: ObjectIndex, size: u64) -> Result<(), StoreError> {
        range_end(size, 0)?;
        let o = self.edit(object)?;
        let old_size = o.size;
        if size < old_size {
            self.stage.releases = true;
            // To the end of the last block, so that the block at the new end keeps no bytes behind it.
            self.punch(object, size, u64::from(blocks_up_to(old_size)) * BLOCK_U64)?;
            self.edit(object)?.trim_slots(blocks_up_to(size));
        }
        self.edit(object)?.size = size;
        Ok(())
    }

    /// Copies a range; beyond the source's end it is zeros.
    pub(crate) fn clone_range(
        &mut self,
        src: ObjectIndex,
        dst: ObjectIndex,
        src_offset: u64,
        len: u64,
        dst_offset: u64,
    ) -> Result<(), StoreError> {
        let Some(source) = self.current(src)? else {
            return Err(StoreError::Misuse(Misuse::NoCloneSource));
        };
        let (src_end, dst_end) = (range_end(src_offset, len)?, range_end(dst_offset, len)?);
        self.edit(dst)?;
        if len == 0 {
            return Ok(());
        }
        let aligned = within(src_offset) == within(dst_offset) && src != dst;
        let pieces = self.copied_pieces(src, &source, src_offset, src_end, dst_offset, aligned)?;
        self.zero(dst, dst_offset, len)?;
        if aligned {
            self.share_blocks(src, &source, dst, src_offset, src_end, dst_offset)?;
        }
        for (offset, piece) in pieces {
            match piece {
                Some(piece) => {
                    self.edit(dst)?.note_written(offset, offset + piece.len() as u64);
                    self.write_buffered(dst, offset, &piece)?;
                }
                None => self.lose_block(dst, block_of(offset))?,
            }
        }
        self.grow(dst, dst_end)
    }

    /// Content that must be copied byte by byte: block parts, or everything when blocks cannot be shared. With the
    /// offsets in the destination; holes are left out. `None`, in replay only: what was there is lost.
    fn copied_pieces(
        &mut self,
        src: ObjectIndex,
        source: &Arc<Onode>,
        src_offset: u64,
        src_end: u64,
        dst_offset: u64,
        aligned: bool,
    ) -> Result<Vec<(u64, Option<Bytes>)>, StoreError> {
        let end = src_end.min(u64::from(source.slots_end()) * BLOCK_U64);
        let mut pieces = Vec::new();
        let mut at = src_offset;
        while at < end {
            let n = (end - at).min(BLOCK_U64 - within(at) as u64);
            let is_shared = aligned && n == BLOCK_U64;
            if !is_shared && !source.slot(block_of(at)).is_hole() {
                let content = self.old_block(src, block_of(at))?;
                let to = dst_offset + (at - src_offset);
                let (start, stop) = (within(at), within(at) + n as usize);
                match content {
                    Some(content) => {
                        for (s, e) in source.written.spans(block_of(at)) {
                            let (s, e) = (usize::from(s).max(start), usize::from(e).min(stop));
                            if s < e {
                                pieces.push((to + (s - start) as u64, Some(content.slice(s..e))));
                            }
                        }
                    }
                    None => pieces.extend([(to, None), (to + n - 1, None)]),
                }
            }
            at += n;
        }
        Ok(pieces)
    }

    fn share_blocks(
        &mut self,
        src: ObjectIndex,
        source: &Arc<Onode>,
        dst: ObjectIndex,
        src_offset: u64,
        src_end: u64,
        dst_offset: u64,
    ) -> Result<(), StoreError> {
        let first = blocks_up_to(src_offset);
        let end = block_of(src_end).min(source.slots_end());
        let target = blocks_up_to(dst_offset);
        let mut any = false;
        for index in first..end {
            let slot = source.slot(index);
            if slot.is_hole() {
                continue;
            }
            if slot.is_placed() {
                self.refs(slot.place)?.add_user(slot.place);
                any = true;
            } else {
                self.tell_lost(dst);
            }
            let (to, spans) = (target + (index - first), source.written.spans(index));
            let o = self.edit(dst)?;
            o.set_slot(to, slot);
            o.written.set(to, &spans);
        }
        if any {
            self.edit(src)?.shared = true;
            self.edit(dst)?.shared = true;
        }
        Ok(())
    }
}

/// The end of a range, refused past the largest object.
pub(crate) fn range_end(offset: u64, len: u64) -> Result<u64, StoreError> {
    let end = offset.checked_add(len).filter(|end| *end <= MAX_OBJECT_BYTES);
    end.ok_or(StoreError::Misuse(Misuse::ObjectTooLarge))
}

/// Buffers seen as one, taken from the front.
struct Pieces(Vec<Bytes>);

impl Pieces {
    fn take(&mut self, bytes: usize) -> Vec<Bytes> {
        let mut out = Vec::new();
        let mut left = bytes;
        while left > 0 && !self.0.is_empty() {
            let Some(first) = self.0.first_mut() else { break };
            let n = left.min(first.len());
            out.push(first.split_to(n));
            left -= n;
            if first.is_empty() {
                self.0.remove(0);
            }
        }
        out
    }
}
