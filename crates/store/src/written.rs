//! Which bytes of an object's mapped blocks were written, to the byte: the rest are holes to whoever asks.

use std::ops::Range;

use crate::checksum::BLOCK;

/// Pieces of one block at most; of a block with more, all between the first and the last count as written.
const PIECES_MAX: usize = 64;
const WHOLE: Span = (0, BLOCK as u16);

/// Bytes of a block, from the first up to, without, the last.
pub(crate) type Span = (u16, u16);

/// A written part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) block: u32,
    pub(crate) span: Span,
}

/// The blocks of an object that were written in part.
///
/// Invariants: (1) sorted by block and place; pieces of one block neither overlap nor touch nor are empty; (2) none is a
/// whole block; (3) every block named is mapped. A mapped block that is not named was written whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Written {
    pieces: Vec<Piece>,
}

impl Written {
    fn find(&self, blocks: Range<u32>) -> Range<usize> {
        let from = self.pieces.partition_point(|p| p.block < blocks.start);
        let until = self.pieces.partition_point(|p| p.block < blocks.end);
        from..until.max(from)
    }

    fn of(&self, block: u32) -> &[Piece] {
        self.pieces.get(self.find(block..block.saturating_add(1))).unwrap_or_default()
    }

    /// The written parts of a mapped block, in order.
    pub(crate) fn spans(&self, block: u32) -> Vec<Span> {
        match self.of(block) {
            [] => vec![WHOLE],
            some => some.iter().map(|p| p.span).collect(),
        }
    }

    pub(crate) fn is_whole(&self, block: u32) -> bool {
        self.pieces.is_empty() || self.of(block).is_empty()
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Blocks that are holes now, or whole.
    pub(crate) fn forget(&mut self, blocks: Range<u32>) {
        if !self.pieces.is_empty() {
            let range = self.find(blocks);
            self.pieces.drain(range);
        }
    }

    /// Replaces the parts of a mapped block. There must be one.
    pub(crate) fn set(&mut self, block: u32, spans: &[Span]) {
        let many = [(spans.first().map_or(0, |s| s.0), spans.last().map_or(0, |s| s.1))];
        let spans = if spans.len() > PIECES_MAX { &many } else { spans };
        let spans = if spans == [WHOLE] { &[] } else { spans };
        let range = self.find(block..block.saturating_add(1));
        self.pieces.splice(range, spans.iter().map(|span| Piece { block, span: *span }));
    }

    /// A part of a block is written; `hole`: the block was not mapped before.
    pub(crate) fn add(&mut self, block: u32, span: Span, hole: bool) {
        if hole {
            return self.set(block, &[span]);
        }
        if self.is_whole(block) {
            return;
        }
        let mut spans = self.spans(block);
        let at = spans.partition_point(|s| s.1 < span.0);
        let until = spans.partition_point(|s| s.0 <= span.1).max(at);
        let joined = spans.get(at..until).unwrap_or_default();
        let start = joined.first().map_or(span.0, |s| s.0.min(span.0));
        let end = joined.last().map_or(span.1, |s| s.1.max(span.1));
        spans.splice(at..until, [(start, end)]);
        self.set(block, &spans);
    }

    /// What is left of a mapped block's parts without some bytes; `None` when none of those was written.
    pub(crate) fn without(&self, block: u32, hole: Span) -> Option<Vec<Span>> {
        let spans = self.spans(block);
        if !spans.iter().any(|s| s.0 < hole.1 && hole.0 < s.1) {
            return None;
        }
        let parts = spans.into_iter().flat_map(|s| [(s.0, s.1.min(hole.0)), (s.0.max(hole.1), s.1)]);
        Some(parts.filter(|s| s.0 < s.1).collect())
    }

    /// Bytes of the named blocks that were not written.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        let (mut blocks, mut bytes, mut last) = (0, 0, None);
        for p in &self.pieces {
            bytes += u64::from(p.span.1 - p.span.0);
            blocks += u64::from(last.replace(p.block) != Some(p.block));
        }
        blocks * BLOCK as u64 - bytes
    }

    /// From a stored form: false when the piece cannot follow those before it.
    pub(crate) fn push(&mut self, piece: Piece) -> bool {
        let (start, end) = piece.span;
        let follows = self
            .pieces
            .last()
            .is_none_or(|l| l.block < piece.block || (l.block == piece.block && l.span.1 < start));
        let sound = follows && start < end && end <= WHOLE.1 && piece.span != WHOLE;
        if sound {
            self.pieces.push(piece);
        }
        sound
    }

    /// Memory in use, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.pieces.capacity() * size_of::<Piece>()
    }

    #[cfg(debug_assertions)]
    pub(crate) fn assert_invariants(&self, mapped: impl Fn(u32) -> bool) {
        let mut copy = Self::default();
        assert!(self.pieces.iter().all(|p| copy.push(*p)), "written invariants 1 and 2: {self:?}");
        assert!(self.pieces.iter().all(|p| mapped(p.block)), "written invariant 3: {self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_join_and_are_cut() {
        let mut w = Written::default();
        w.add(3, (100, 200), true);
        w.add(3, (300, 400), false);
        w.add(5, (0, 4096), true);
        assert_eq!((w.spans(3), w.spans(5)), (vec![(100, 200), (300, 400)], vec![WHOLE]));
        assert_eq!(w.unwritten_bytes(), 4096 - 200);
        w.add(3, (200, 250), false);
        assert_eq!(w.spans(3), vec![(100, 250), (300, 400)]);
        assert_eq!(w.without(3, (250, 300)), None);
        assert_eq!(w.without(3, (240, 310)), Some(vec![(100, 240), (310, 400)]));
        assert_eq!(w.without(3, (0, 4096)), Some(vec![]));
        assert_eq!(w.without(5, (0, 1)), Some(vec![(1, 4096)]));
        w.add(3, (90, 350), false);
        assert_eq!(w.spans(3), vec![(90, 400)]);
        w.add(3, (0, 90), false);
        w.add(3, (400, 4096), false);
        assert!(w.is_whole(3) && w.pieces().is_empty());
    }

    #[test]
    fn a_block_of_crumbs_counts_as_one_piece() {
        let mut w = Written::default();
        for i in 0..2000u16 {
            w.add(0, (i * 2, i * 2 + 1), i == 0);
            w.assert_invariants(|_| true);
        }
        assert!(w.pieces().len() <= PIECES_MAX);
        assert_eq!(w.spans(0).last().map(|s| s.1), Some(3999));
    }
}
