//! Object data by block: where the content of a block is found, and what is on its way to the device.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::TxnSeq;
use crate::checksum::{BLOCK, BLOCK_U64, placed_crc};
use crate::index::Index;
use crate::onode::Slot;
use crate::{Device, StoreError};

/// Data that goes straight to its place: a run of blocks and its content, in pieces of whole blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirectWrite {
    pub(crate) start: u32,
    pub(crate) pieces: Vec<Bytes>,
    /// Hardly ever read: see `Txn::note_unread`.
    pub(crate) unread: bool,
}

/// Direct writes, and small ones that are not decided on, whose commit is not through: the device does not have them yet,
/// so reads take them from here.
#[derive(Debug, Default)]
pub(crate) struct Transit {
    /// By first block; pieces of whole blocks.
    pieces: BTreeMap<u32, Bytes>,
    order: VecDeque<(TxnSeq, u32)>,
    bytes: usize,
}

impl Transit {
    pub(crate) fn add(&mut self, txn: TxnSeq, writes: &[DirectWrite]) {
        for write in writes {
            let mut block = write.start;
            for piece in &write.pieces {
                self.bytes += piece.len();
                self.pieces.insert(block, piece.clone());
                self.order.push_back((txn, block));
                block += (piece.len() / BLOCK) as u32;
            }
        }
    }

    /// A block of a small write.
    pub(crate) fn add_small(&mut self, txn: TxnSeq, block: u32, content: Bytes) {
        self.bytes += content.len();
        self.pieces.insert(block, content);
        self.order.push_back((txn, block));
    }

    /// Takes out a block of a small write; `None` when nothing names it any more.
    pub(crate) fn take_small(&mut self, block: u32) -> Option<Bytes> {
        let piece = self.pieces.remove(&block)?;
        self.bytes -= piece.len();
        Some(piece)
    }

    /// Nothing names the block any more.
    pub(crate) fn free(&mut self, block: u32) {
        if self.pieces.get(&block).is_some_and(|piece| piece.len() == BLOCK) {
            self.take_small(block);
        }
    }

    /// Everything up to `txn` is on the device.
    pub(crate) fn forget(&mut self, txn: TxnSeq) {
        while let Some((_, block)) = self.order.front().filter(|(t, _)| *t <= txn) {
            if let Some(piece) = self.pieces.remove(block) {
                self.bytes -= piece.len();
            }
            self.order.pop_front();
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn block(&self, block: u32) -> Option<Bytes> {
        let (start, piece) = self.pieces.range(..=block).next_back()?;
        let at = (block - start) as usize * BLOCK;
        (at + BLOCK <= piece.len()).then(|| piece.slice(at..at + BLOCK))
    }
}

/// Buffers of one block, kept from a checkpoint for the next writes: fresh memory costs more than the copy into it.
#[derive(Debug, Default)]
pub(crate) struct BlockPool {
    spare: Vec<BytesMut>,
}

impl BlockPool {
    /// A copy of a whole block.
    pub(crate) fn copy(&mut self, content: &[u8]) -> Bytes {
        match self.spare.pop() {
            Some(mut buffer) if buffer.len() == content.len() => {
                buffer.copy_from_slice(content);
                buffer.freeze()
            }
            _ => Bytes::copy_from_slice(content),
        }
    }

    /// Keeps those buffers that nobody else reads.
    pub(crate) fn recycle(&mut self, blocks: impl Iterator<Item = Bytes>, limit_bytes: usize) {
        let room = (limit_bytes / BLOCK).saturating_sub(self.spare.len());
        self.spare.extend(blocks.filter_map(|b| b.try_into_mut().ok()).take(room));
    }

    pub(crate) fn bytes(&self) -> usize {
        self.spare.len() * BLOCK
    }
}

/// A block's content did not match its checksum; the caller knows which object and offset that is.
#[derive(Debug)]
pub(crate) enum BlockError {
    Mismatch,
    Store(StoreError),
}

impl From<StoreError> for BlockError {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}

/// Finds and verifies block contents.
pub(crate) struct DataBlocks {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) transit: Transit,
    pub(crate) pool: BlockPool,
    pub(crate) blocks_read: u64,
    pub(crate) corrupt_blocks: u64,
}

impl DataBlocks {
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        Self {
            device,
            transit: Transit::default(),
            pool: BlockPool::default(),
            blocks_read: 0,
            corrupt_blocks: 0,
        }
    }

    /// Content that is in memory; `None` when only the device has it.
    pub(crate) fn in_memory(&self, index: &Index, place: u32) -> Option<Bytes> {
        let frozen = index.frozen.as_deref();
        let dirty = index.active.dirty.get(&place).or_else(|| frozen?.dirty.get(&place));
        dirty.cloned().or_else(|| self.transit.block(place))
    }

    /// One block, verified; zeros for a hole.
    pub(crate) fn block(&mut self, index: &Index, slot: Slot) -> Result<Bytes, BlockError> {
        if slot.is_hole() {
            return Ok(zero_block());
        }
        if slot.is_lost() {
            return Err(BlockError::Mismatch);
        }
        if let Some(content) = self.in_memory(index, slot.place) {
            return Ok(content);
        }
        let mut raw = vec![0u8; BLOCK];
        self.blocks_read += 1;
        let read = self.device.read_at(u64::from(slot.place) * BLOCK_U64, &mut raw);
        read.map_err(|e| BlockError::Store(e.into()))?;
        if placed_crc(slot.place, &raw) != slot.crc {
            self.corrupt_blocks += 1;
            return Err(BlockError::Mismatch);
        }
        Ok(raw.into())
    }
}

pub(crate) fn zero_block() -> Bytes {
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    Bytes::from_static(&ZEROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transit_finds_blocks_inside_pieces_until_their_commit_is_through() {
        let piece = |v: u8, n: usize| Bytes::from(vec![v; n * BLOCK]);
        let mut t = Transit::default();
        t.add(TxnSeq(1), &[DirectWrite { start: 10, pieces: vec![piece(1, 1), piece(2, 3)], unread: false }]);
        t.add(TxnSeq(2), &[DirectWrite { start: 20, pieces: vec![piece(3, 1)], unread: true }]);
        let first = |t: &Transit, b| t.block(b).map(|c| c[0]);
        assert_eq!(
            [9, 10, 11, 13, 14, 20].map(|b| first(&t, b)),
            [None, Some(1), Some(2), Some(2), None, Some(3)]
        );
        t.forget(TxnSeq(1));
        assert_eq!((first(&t, 11), first(&t, 20), t.bytes()), (None, Some(3), BLOCK));
        t.add_small(TxnSeq(3), 30, piece(4, 1));
        t.add_small(TxnSeq(3), 31, piece(5, 1));
        t.free(30);
        t.free(30);
        assert_eq!((first(&t, 30), first(&t, 31), t.bytes()), (None, Some(5), 2 * BLOCK));
        assert_eq!((t.take_small(30), t.take_small(31)), (None, Some(piece(5, 1))));
        t.forget(TxnSeq(3));
        assert_eq!((t.order.len(), t.bytes()), (0, 0));
    }
}
