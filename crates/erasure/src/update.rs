//! What a write of a range of an object changes on each shard.
//!
//! Whole stripes are encoded from what is written. Of a stripe that is written in part there are two ways,
//! and the one that reads less is taken: to read the rest of the stripe and encode it (`Way::Encode`), or to
//! read what is overwritten and have each coding shard add the difference to what it holds (`Way::Delta`).
//! What lies behind the old end of the object is known to be zeros, and not read.
//!
//! A plan says which ranges of the *object* it needs; [`Stripes::read`] gets them, from lost shards too.

use std::ops::Range;

use crate::codec::Codec;
use crate::error::CodecError;
use crate::stripes::{Stripes, check};

/// What becomes of a range of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardUpdate {
    pub shard: usize,
    /// In the shard, in bytes.
    pub offset: u64,
    pub change: Change,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Write(Vec<u8>),
    /// Added (exclusive or) to what is there; behind the end of the shard there are zeros.
    Add(Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Encode,
    Delta,
}

/// A run of whole stripes, or a part of one.
#[derive(Debug)]
struct Part {
    /// Of the object.
    range: Range<u64>,
    way: Way,
    /// Where coding chunks change, in their shards.
    span: Range<u64>,
    /// Which of the plan's reads are this part's.
    reads: Range<usize>,
}

/// A planned write.
#[derive(Debug)]
pub struct StripedWrite {
    stripes: Stripes,
    range: Range<u64>,
    parts: Vec<Part>,
    reads: Vec<Range<u64>>,
}

impl Stripes {
    /// Plans a write of a range of an object that has `size` bytes.
    pub fn write(&self, codec: &Codec, size: u64, range: Range<u64>) -> Result<StripedWrite, CodecError> {
        check(&range)?;
        let mut plan = StripedWrite {
            stripes: self.clone(),
            range: range.clone(),
            parts: Vec::new(),
            reads: Vec::new(),
        };
        let width = self.stripe_width();
        let whole = range.start.div_ceil(width) * width..range.end / width * width;
        if whole.start >= whole.end {
            // No stripe is whole; the range may lie across the border of two.
            let border = range.end.min(whole.start).max(range.start);
            plan.add_part(codec, size, range.start..border);
            plan.add_part(codec, size, border..range.end);
            return Ok(plan);
        }
        plan.add_part(codec, size, range.start..whole.start);
        plan.add_whole(whole.clone());
        plan.add_part(codec, size, whole.end..range.end);
        Ok(plan)
    }
}

impl StripedWrite {
    /// The ranges of the object, as it was before, that [`Self::updates`] needs.
    pub fn reads(&self) -> &[Range<u64>] {
        &self.reads
    }

    fn add_whole(&mut self, range: Range<u64>) {
        let span = self.stripes.part(0, &range);
        let none = self.reads.len()..self.reads.len();
        self.parts.push(Part { range, way: Way::Encode, span, reads: none });
    }

    /// Adds a range that lies in one stripe.
    fn add_part(&mut self, codec: &Codec, size: u64, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let touched = |index| self.stripes.part(index, &range);
        let parts: Vec<Range<u64>> = self.stripes.indices().map(touched).filter(|p| !p.is_empty()).collect();
        let start = parts.iter().map(|p| p.start).min().unwrap_or(0);
        let end = parts.iter().map(|p| p.end).max().unwrap_or(0);
        let span = codec.parity_range(start..end);
        let overwritten = range.start.min(size)..range.end.min(size);
        let rest = self.rest_of_stripe(&span, &range, size);
        let bytes = |r: &Range<u64>| r.end - r.start;
        let to_encode: u64 = rest.iter().map(bytes).sum();
        let mut affected = crate::ChunkSet::EMPTY;
        for index in self.stripes.indices().filter(|i| !touched(*i).is_empty()) {
            affected = affected | codec.affected_by(self.stripes.shard(index));
        }
        let to_add = bytes(&overwritten) + affected.len() as u64 * bytes(&span);
        let (way, needed) = match to_encode <= to_add {
            true => (Way::Encode, rest),
            false if overwritten.is_empty() => (Way::Delta, Vec::new()),
            false => (Way::Delta, vec![overwritten]),
        };
        let from = self.reads.len();
        self.reads.extend(needed);
        self.parts.push(Part { range, way, span, reads: from..self.reads.len() });
    }

    /// What the stripe of a range holds, in `span` of each data shard, besides the range.
    fn rest_of_stripe(&self, span: &Range<u64>, range: &Range<u64>, size: u64) -> Vec<Range<u64>> {
        let (width, chunk) = (self.stripes.stripe_width(), self.stripes.chunk_size());
        let stripe = range.start / width;
        let mut rest: Vec<Range<u64>> = Vec::new();
        for index in self.stripes.indices() {
            let at = stripe * width + index as u64 * chunk;
            let of_shard = |offset: u64| at + (offset - stripe * chunk);
            let all = of_shard(span.start)..of_shard(span.end);
            for gap in [all.start..all.end.min(range.start), all.start.max(range.end)..all.end] {
                let there = gap.start..gap.end.min(size);
                match rest.last_mut() {
                    _ if there.is_empty() => {}
                    Some(last) if last.end == there.start => last.end = there.end,
                    _ => rest.push(there),
                }
            }
        }
        rest
    }

    /// What changes on each shard, given the bytes of [`Self::reads`] (short ones end with zeros) and those
    /// to be written.
    pub fn updates(
        &self,
        codec: &Codec,
        read: &[&[u8]],
        data: &[u8],
    ) -> Result<Vec<ShardUpdate>, CodecError> {
        if read.len() != self.reads.len() {
            let (expected, got) = (self.reads.len(), read.len());
            return Err(CodecError::Count { what: "ranges", expected, got });
        }
        let expected = usize::try_from(self.range.end.saturating_sub(self.range.start));
        let expected = expected.map_err(|_| CodecError::OutOfRange)?;
        if data.len() != expected {
            return Err(CodecError::Length { expected, got: data.len() });
        }
        let mut updates = Vec::new();
        for part in &self.parts {
            // Below the length of `data`.
            let from = (part.range.start - self.range.start) as usize;
            let until = (part.range.end - self.range.start) as usize;
            let new = data.get(from..until).ok_or(CodecError::OutOfRange)?;
            let ranges = self.reads.get(part.reads.clone()).unwrap_or_default();
            let old = ranges.iter().zip(read.get(part.reads.clone()).unwrap_or_default());
            let old: Vec<(&Range<u64>, &[u8])> = old.map(|(range, bytes)| (range, *bytes)).collect();
            match part.way {
                Way::Encode => self.encode(codec, part, &old, new, &mut updates)?,
                Way::Delta => self.difference(codec, part, &old, new, &mut updates)?,
            }
        }
        Ok(updates)
    }

    /// The data that is written, as writes of its shards.
    fn data_writes(&self, part: &Part, new: &[u8], updates: &mut Vec<ShardUpdate>) -> Result<(), CodecError> {
        let range = |index| (index, self.stripes.part(index, &part.range));
        for (index, range) in self.stripes.indices().map(range).filter(|(_, range)| !range.is_empty()) {
            let bytes = self.stripes.chunk_of(index, &part.range, new)?;
            updates.push(self.write_of(index, range.start, bytes));
        }
        Ok(())
    }

    fn write_of(&self, index: usize, offset: u64, bytes: Vec<u8>) -> ShardUpdate {
        ShardUpdate { shard: self.stripes.shard(index), offset, change: Change::Write(bytes) }
    }

    fn encode(
        &self,
        codec: &Codec,
        part: &Part,
        old: &[(&Range<u64>, &[u8])],
        new: &[u8],
        updates: &mut Vec<ShardUpdate>,
    ) -> Result<(), CodecError> {
        let len = usize::try_from(part.span.end - part.span.start).map_err(|_| CodecError::OutOfRange)?;
        let chunks =
            match part.range.end - part.range.start == self.stripes.indices().len() as u64 * len as u64 {
                // Whole stripes: each chunk is made of what is written alone.
                true => self.stripes.indices().map(|i| self.stripes.chunk_of(i, &part.range, new)).collect(),
                false => self.laid_over(part, len, old, new),
            }?;
        let mut coding = vec![vec![0u8; len]; codec.coding_chunks().len()];
        let inputs: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        codec.encode(&inputs, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>())?;
        for (index, mut bytes) in self.stripes.indices().zip(chunks) {
            let range = self.stripes.part(index, &part.range);
            if range.is_empty() {
                continue;
            }
            // Of what is encoded its shard has to write what has changed alone.
            let at = |offset: u64| offset.checked_sub(part.span.start).ok_or(CodecError::OutOfRange);
            let (from, until) = (at(range.start)? as usize, at(range.end)? as usize);
            bytes.truncate(until);
            bytes.drain(..from.min(bytes.len()));
            updates.push(self.write_of(index, range.start, bytes));
        }
        let offset = part.span.start;
        let write = |(shard, bytes)| ShardUpdate { shard, offset, change: Change::Write(bytes) };
        updates.extend(codec.coding_chunks().iter().zip(coding).map(write));
        Ok(())
    }

    /// A stripe's data chunks, each `len` bytes from the beginning of the span: what they hold, and over it
    /// what is written.
    fn laid_over(
        &self,
        part: &Part,
        len: usize,
        old: &[(&Range<u64>, &[u8])],
        new: &[u8],
    ) -> Result<Vec<Vec<u8>>, CodecError> {
        let mut chunks = vec![vec![0u8; len]; self.stripes.indices().len()];
        let mut place = |range: &Range<u64>, bytes: &[u8]| -> Result<(), CodecError> {
            for piece in self.stripes.pieces(range.clone()) {
                let from = (piece.from as usize).min(bytes.len());
                let bytes = &bytes.get(from..).unwrap_or_default();
                let bytes = bytes.get(..piece.len as usize).unwrap_or(bytes);
                let at = piece.offset.checked_sub(part.span.start).ok_or(CodecError::OutOfRange)? as usize;
                let to = chunks.get_mut(piece.index).and_then(|c| c.get_mut(at..at + bytes.len()));
                to.ok_or(CodecError::OutOfRange)?.copy_from_slice(bytes);
            }
            Ok(())
        };
        old.iter().try_for_each(|(range, bytes)| place(range, bytes))?;
        place(&part.range, new)?;
        Ok(chunks)
    }

    fn difference(
        &self,
        codec: &Codec,
        part: &Part,
        old: &[(&Range<u64>, &[u8])],
        new: &[u8],
        updates: &mut Vec<ShardUpdate>,
    ) -> Result<(), CodecError> {
        let mut changed = new.to_vec();
        let was = old.first().map_or(&[][..], |(_, bytes)| bytes);
        changed.iter_mut().zip(was).for_each(|(new, old)| *new ^= old);
        let len = usize::try_from(part.span.end - part.span.start).map_err(|_| CodecError::OutOfRange)?;
        let mut coding = vec![vec![0u8; len]; codec.coding_chunks().len()];
        let mut affected = crate::ChunkSet::EMPTY;
        for piece in self.stripes.pieces(part.range.clone()) {
            let shard = self.stripes.shard(piece.index);
            let change = changed.get(piece.from as usize..(piece.from + piece.len) as usize);
            let change = change.ok_or(CodecError::OutOfRange)?;
            let range = codec.parity_range(piece.offset..piece.offset + piece.len);
            let (from, until) = (range.start - part.span.start, range.end - part.span.start);
            let cut = |chunk| <[u8]>::get_mut(chunk, from as usize..until as usize);
            let mut buffers: Vec<&mut [u8]> =
                coding.iter_mut().filter_map(|c| cut(c.as_mut_slice())).collect();
            codec.delta(shard, piece.offset, change, &mut buffers)?;
            affected = affected | codec.affected_by(shard);
        }
        self.data_writes(part, new, updates)?;
        let offset = part.span.start;
        let coded = codec.coding_chunks().iter().zip(coding).filter(|(shard, _)| affected.contains(*shard));
        updates.extend(coded.map(|(shard, bytes)| ShardUpdate { shard, offset, change: Change::Add(bytes) }));
        Ok(())
    }
}
