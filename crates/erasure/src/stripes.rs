//! Where an object's bytes lie on its shards, and which ranges of shards a read takes.
//!
//! ```text
//! object   | chunk 0 | chunk 1 |...| chunk k-1 | chunk 0 | ...        (`stripe_width` bytes a stripe)
//! shard i  | its chunk of stripe 0 | its chunk of stripe 1 | ...      (`chunk_size` bytes each)
//! ```
//! Bytes behind the end of an object are zeros to the code. Source: ECUtil::stripe_info_t in
//! src/osd/ECUtil.h.

use std::borrow::Cow;
use std::ops::Range;

use crate::chunks::ChunkSet;
use crate::codec::Codec;
use crate::error::CodecError;
use crate::rebuild::Rebuild;

/// Offsets in objects are below this, so that no sum of them leaves a u64.
const MAX_OFFSET: u64 = 1 << 60;

/// Whether a range of an object can be.
pub(crate) fn check(range: &Range<u64>) -> Result<(), CodecError> {
    let fits = range.start <= range.end && range.end <= MAX_OFFSET;
    if fits { Ok(()) } else { Err(CodecError::OutOfRange) }
}

/// The geometry of a pool's objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripes {
    /// Shards of data, in the order of the data.
    data: Vec<usize>,
    chunk_size: u64,
}

/// A range of a shard, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardRange {
    pub shard: usize,
    pub offset: u64,
    pub len: u64,
}

impl ShardRange {
    /// How many bytes it covers, as an index; a range that memory cannot hold has none.
    fn size(&self) -> Result<usize, CodecError> {
        usize::try_from(self.len).map_err(|_| CodecError::OutOfRange)
    }
}

/// A part of a range of the object that lies in one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Which of the data chunks, in the order of the data.
    pub index: usize,
    /// In the shard.
    pub offset: u64,
    pub len: u64,
    /// From the beginning of the range.
    pub from: u64,
}

impl Stripes {
    /// Chunks of `chunk_size` bytes, a multiple of the codec's grain.
    pub fn new(codec: &Codec, chunk_size: u64) -> Result<Self, CodecError> {
        let grain = codec.grain() as u64;
        let data = codec.data_chunks().to_vec();
        let fits = chunk_size > 0 && chunk_size % grain == 0;
        if !fits || chunk_size > u64::from(u32::MAX) || data.is_empty() {
            let len = usize::try_from(chunk_size).unwrap_or(usize::MAX);
            return Err(CodecError::Grain { len, grain: codec.grain() });
        }
        Ok(Self { data, chunk_size })
    }

    pub fn chunk_size(&self) -> u64 {
        self.chunk_size
    }

    /// Bytes of data in a stripe.
    pub fn stripe_width(&self) -> u64 {
        self.chunk_size * self.data.len() as u64
    }

    /// Length of every shard of an object of `size` bytes: whole chunks.
    pub fn shard_len(&self, size: u64) -> u64 {
        size.div_ceil(self.stripe_width()) * self.chunk_size
    }

    /// The shard of the data chunk `index`.
    pub(crate) fn shard(&self, index: usize) -> usize {
        self.data.get(index).copied().unwrap_or(usize::MAX)
    }

    pub(crate) fn indices(&self) -> Range<usize> {
        0..self.data.len()
    }

    /// How many bytes of the data chunks `index` lie before a byte of the object.
    fn before(&self, index: usize, at: u64) -> u64 {
        let (stripe, within) = (at / self.stripe_width(), at % self.stripe_width());
        stripe * self.chunk_size + within.saturating_sub(index as u64 * self.chunk_size).min(self.chunk_size)
    }

    /// What a range of the object takes of the data chunks `index`, as a range of their shard.
    pub(crate) fn part(&self, index: usize, range: &Range<u64>) -> Range<u64> {
        self.before(index, range.start)..self.before(index, range.end)
    }

    /// A range of the object, chunk by chunk.
    pub(crate) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let left = range.end.checked_sub(at).filter(|left| *left > 0)?;
            let (stripe, within) = (at / self.stripe_width(), at % self.stripe_width());
            let (index, lead) = (within / self.chunk_size, within % self.chunk_size);
            let len = left.min(self.chunk_size - lead);
            let piece = Piece {
                index: index as usize,
                offset: stripe * self.chunk_size + lead,
                len,
                from: at - range.start,
            };
            at += len;
            Some(piece)
        })
    }

    /// What the data chunks `index` hold of a range of the object, of which these are the bytes.
    pub(crate) fn chunk_of(
        &self,
        index: usize,
        range: &Range<u64>,
        bytes: &[u8],
    ) -> Result<Vec<u8>, CodecError> {
        let part = self.part(index, range);
        let len = usize::try_from(part.end - part.start).map_err(|_| CodecError::OutOfRange)?;
        let mut chunk = Vec::with_capacity(len.min(bytes.len()));
        let mut at = part.start;
        while at < part.end {
            let (stripe, lead) = (at / self.chunk_size, at % self.chunk_size);
            let len = (part.end - at).min(self.chunk_size - lead);
            let begin = stripe * self.stripe_width() + index as u64 * self.chunk_size + lead;
            // All of the range is in memory.
            let from = begin.checked_sub(range.start).ok_or(CodecError::OutOfRange)? as usize;
            chunk.extend_from_slice(bytes.get(from..from + len as usize).ok_or(CodecError::OutOfRange)?);
            at += len;
        }
        Ok(chunk)
    }

    /// The range of one shard that holds all of this range of the object, if it lies within one chunk.
    pub fn within_chunk(&self, range: Range<u64>) -> Option<ShardRange> {
        let mut pieces = self.pieces(range);
        let piece = pieces.next()?;
        let one = ShardRange { shard: self.shard(piece.index), offset: piece.offset, len: piece.len };
        pieces.next().is_none().then_some(one)
    }

    /// Plans a read of a range of the object, clipped to its size, from the shards that are available: of the
    /// data alone where all of it is there, else of what makes up for it. All shards then give the same
    /// range, from the first byte to the last that the read takes of any.
    pub fn read(
        &self,
        codec: &Codec,
        range: Range<u64>,
        available: ChunkSet,
    ) -> Result<StripedRead, CodecError> {
        check(&range)?;
        let parts: Vec<(usize, Range<u64>)> = self
            .indices()
            .map(|index| (self.shard(index), self.part(index, &range)))
            .filter(|(_, part)| !part.is_empty())
            .collect();
        let want: ChunkSet = parts.iter().map(|(shard, _)| *shard).collect();
        if available.includes(want) {
            let of = |(shard, part): (usize, Range<u64>)| ShardRange {
                shard,
                offset: part.start,
                len: part.end - part.start,
            };
            let ranges = parts.into_iter().map(of).collect();
            return Ok(StripedRead { stripes: self.clone(), range, ranges, rebuild: None });
        }
        let start = parts.iter().map(|(_, part)| part.start).min().unwrap_or(0);
        let end = parts.iter().map(|(_, part)| part.end).max().unwrap_or(0);
        let span = codec.parity_range(start..end);
        let rebuild = codec.rebuild(want, available)?;
        let needed = rebuild.sources() | (want & available);
        let of = |shard| ShardRange { shard, offset: span.start, len: span.end - span.start };
        let ranges = needed.iter().map(of).collect();
        Ok(StripedRead { stripes: self.clone(), range, ranges, rebuild: Some(rebuild) })
    }
}

/// A planned read of a range of an object.
#[derive(Debug)]
pub struct StripedRead {
    stripes: Stripes,
    range: Range<u64>,
    ranges: Vec<ShardRange>,
    /// For shards that are lost; all ranges are the same then.
    rebuild: Option<Rebuild>,
}

impl StripedRead {
    /// What is to be read.
    pub fn ranges(&self) -> &[ShardRange] {
        &self.ranges
    }

    /// Whether data alone is read: nothing is to be made from coding chunks.
    pub fn is_of_data(&self) -> bool {
        self.rebuild.is_none()
    }

    /// Puts the bytes of the range together from what was read, in the order of [`Self::ranges`]. Behind the
    /// end of a shard there is less to read: zeros.
    pub fn assemble(&self, read: &[&[u8]]) -> Result<Vec<u8>, CodecError> {
        if read.len() != self.ranges.len() {
            let (expected, got) = (self.ranges.len(), read.len());
            return Err(CodecError::Count { what: "ranges", expected, got });
        }
        let mut whole = Vec::with_capacity(read.len());
        for (range, bytes) in self.ranges.iter().zip(read) {
            let expected = range.size()?;
            whole.push(match bytes.len() {
                got if got == expected => Cow::Borrowed(*bytes),
                got if got < expected => Cow::Owned([*bytes, &vec![0; expected - got]].concat()),
                got => return Err(CodecError::Length { expected, got }),
            });
        }
        // By shard: where its bytes begin, and the bytes.
        let mut chunks: Vec<Option<(u64, &[u8])>> = vec![None; crate::MAX_CHUNKS];
        for (range, bytes) in self.ranges.iter().zip(&whole) {
            if let Some(slot) = chunks.get_mut(range.shard) {
                *slot = Some((range.offset, bytes));
            }
        }
        let made = self.rebuilt(&chunks)?;
        if let (Some(rebuild), Some(first)) = (&self.rebuild, self.ranges.first()) {
            for (shard, bytes) in rebuild.targets().iter().zip(&made) {
                if let Some(slot) = chunks.get_mut(shard) {
                    *slot = Some((first.offset, bytes));
                }
            }
        }
        self.gather(&chunks)
    }

    fn rebuilt(&self, chunks: &[Option<(u64, &[u8])>]) -> Result<Vec<Vec<u8>>, CodecError> {
        let (Some(rebuild), Some(first)) = (&self.rebuild, self.ranges.first()) else {
            return Ok(Vec::new());
        };
        let len = first.size()?;
        let mut made = vec![vec![0; len]; rebuild.targets().len()];
        let sources: Vec<Option<&[u8]>> = chunks.iter().map(|c| c.map(|(_, bytes)| bytes)).collect();
        let mut out: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
        rebuild.execute(&sources, &mut out)?;
        Ok(made)
    }

    fn gather(&self, chunks: &[Option<(u64, &[u8])>]) -> Result<Vec<u8>, CodecError> {
        let len = usize::try_from(self.range.end.saturating_sub(self.range.start));
        let mut out = Vec::with_capacity(len.map_err(|_| CodecError::OutOfRange)?);
        for piece in self.stripes.pieces(self.range.clone()) {
            let shard = self.stripes.shard(piece.index);
            let (offset, bytes) = chunks.get(shard).copied().flatten().ok_or(CodecError::Missing(shard))?;
            // Both below the length of a buffer in memory.
            let at = (piece.offset - offset) as usize;
            out.extend_from_slice(bytes.get(at..at + piece.len as usize).ok_or(CodecError::OutOfRange)?);
        }
        Ok(out)
    }
}
