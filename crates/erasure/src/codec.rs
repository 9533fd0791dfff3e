//! The codec of a profile: what an OSD asks of an erasure code.

use std::ops::Range;

use crate::arithmetic::Simd;
use crate::chunks::ChunkSet;
use crate::error::CodecError;
use crate::layered::LayeredCode;
use crate::plain::PlainCode;
use crate::profile::{Profile, Scheme};
use crate::rebuild::{Rebuild, RebuildStep};

/// Encodes stripes, plans how lost chunks are made again, and tells what a change of data changes elsewhere.
///
/// Chunks go by position. Buffers of data come in the order of the data, buffers of coding chunks in
/// ascending order of their positions; plain codes have data at the positions below `k`. All buffers of a
/// call are of one length, a multiple of [`Codec::grain`]; [`Profile::chunk_size`] gives such lengths.
#[derive(Debug)]
pub struct Codec {
    chunks: usize,
    /// Positions of data, in its order.
    data: Vec<usize>,
    coding: ChunkSet,
    grain: usize,
    code: Code,
}

#[derive(Debug)]
enum Code {
    Plain(PlainCode),
    Layered(LayeredCode),
}

impl Codec {
    pub fn new(profile: &Profile, simd: Simd) -> Self {
        let code = match &profile.scheme {
            Scheme::Plain(plain) => Code::Plain(PlainCode::new(plain, simd)),
            Scheme::Layered(layers) => Code::Layered(LayeredCode::new(layers, simd)),
        };
        let grain = match &code {
            Code::Plain(plain) => plain.grain(),
            Code::Layered(layered) => layered.grain(),
        };
        let (chunks, data) = (profile.chunks(), profile.data_positions());
        let coding = ChunkSet::first(chunks) - data.iter().copied().collect();
        Self { chunks, data, coding, grain, code }
    }

    pub fn chunk_count(&self) -> usize {
        self.chunks
    }

    pub fn data_chunk_count(&self) -> usize {
        self.data.len()
    }

    /// Positions of data, in its order.
    pub fn data_chunks(&self) -> &[usize] {
        &self.data
    }

    /// Positions of the other chunks.
    pub fn coding_chunks(&self) -> ChunkSet {
        self.coding
    }

    /// Bytes of a chunk that depend on one another: 1 where every byte stands for itself.
    pub fn grain(&self) -> usize {
        self.grain
    }

    /// The instructions that bulk work uses, for reports.
    pub fn path(&self) -> &'static str {
        match &self.code {
            Code::Plain(plain) => plain.encoder().path(),
            Code::Layered(layered) => layered.path(),
        }
    }

    /// Computes the coding chunks of a stripe.
    pub fn encode(&self, data: &[&[u8]], coding: &mut [&mut [u8]]) -> Result<(), CodecError> {
        let expected = self.data.len();
        if data.len() != expected {
            return Err(CodecError::Count { what: "data chunks", expected, got: data.len() });
        }
        let len = data.first().map_or(0, |chunk| chunk.len());
        if let Some(odd) = data.iter().find(|chunk| chunk.len() != len) {
            return Err(CodecError::Length { expected: len, got: odd.len() });
        }
        self.check_coding(coding, len)?;
        match &self.code {
            Code::Plain(plain) => plain.encoder().apply(data, coding),
            Code::Layered(layered) => {
                let known = self.data.iter().copied().zip(data.iter().copied());
                layered.encode(known, self.coding.iter().zip(coding.iter_mut().map(|c| &mut **c)));
            }
        }
        Ok(())
    }

    fn check_coding(&self, coding: &[&mut [u8]], len: usize) -> Result<(), CodecError> {
        let expected = self.coding.len();
        if coding.len() != expected {
            return Err(CodecError::Count { what: "coding chunks", expected, got: coding.len() });
        }
        if let Some(odd) = coding.iter().find(|chunk| chunk.len() != len) {
            return Err(CodecError::Length { expected: len, got: odd.len() });
        }
        if len % self.grain != 0 {
            return Err(CodecError::Grain { len, grain: self.grain });
        }
        Ok(())
    }

    /// The chunks to read for those that are wanted, given what is there. Source:
    /// ErasureCode::_minimum_to_decode, and ErasureCodeLrc's, which reads a group where that is enough.
    pub fn minimum_to_decode(&self, want: ChunkSet, available: ChunkSet) -> Result<ChunkSet, CodecError> {
        let available = available & ChunkSet::first(self.chunks);
        if available.includes(want) {
            return Ok(want);
        }
        let minimum = match &self.code {
            _ if !ChunkSet::first(self.chunks).includes(want) => None,
            Code::Plain(plain) => {
                let first: ChunkSet = available.iter().take(plain.k()).collect();
                Some(first).filter(|first| first.len() == plain.k())
            }
            Code::Layered(layered) => layered.minimum_to_decode(want, available),
        };
        minimum.ok_or(CodecError::NotEnough { want, available })
    }

    /// Plans how the wanted chunks that are not available are made from those that are.
    pub fn rebuild(&self, want: ChunkSet, available: ChunkSet) -> Result<Rebuild, CodecError> {
        let available = available & ChunkSet::first(self.chunks);
        let lost = want - available;
        let not_enough = CodecError::NotEnough { want, available };
        if !ChunkSet::first(self.chunks).includes(want) {
            return Err(not_enough);
        }
        let steps = match &self.code {
            _ if lost.is_empty() => Some(Vec::new()),
            Code::Plain(plain) => plain_steps(plain, lost, available),
            Code::Layered(layered) => layered.rebuild(lost, available),
        };
        Ok(Rebuild::new(lost, self.grain, steps.ok_or(not_enough)?))
    }

    /// Where coding chunks change when a data chunk changes in a range of its bytes.
    pub fn parity_range(&self, change: Range<u64>) -> Range<u64> {
        let grain = self.grain as u64;
        let end = change.end.checked_next_multiple_of(grain).unwrap_or(u64::MAX);
        change.start - change.start % grain..end
    }

    /// The coding chunks that change when a data chunk does.
    pub fn affected_by(&self, chunk: usize) -> ChunkSet {
        match &self.code {
            _ if !self.data.contains(&chunk) => ChunkSet::EMPTY,
            Code::Plain(_) => self.coding,
            Code::Layered(layered) => layered.affected_by(chunk),
        }
    }

    /// Adds (exclusive or) to the coding chunks what a change of a data chunk adds to them: `change` is the
    /// old bytes against the new ones, from byte `offset` of the chunk on. Each coding buffer covers
    /// [`Codec::parity_range`] of the change. Buffers of zeros become the changes to send; buffers with the
    /// old content become the new content.
    pub fn delta(
        &self,
        chunk: usize,
        offset: u64,
        change: &[u8],
        coding: &mut [&mut [u8]],
    ) -> Result<(), CodecError> {
        let input = self.data.iter().position(|at| *at == chunk).ok_or(CodecError::NoSuchChunk(chunk))?;
        let end = offset.checked_add(change.len() as u64).ok_or(CodecError::OutOfRange)?;
        let range = self.parity_range(offset..end);
        let len = usize::try_from(range.end - range.start).map_err(|_| CodecError::OutOfRange)?;
        self.check_coding(coding, len)?;
        // Below the grain, which is a usize.
        let lead = (offset - range.start) as usize;
        match &self.code {
            Code::Plain(plain) => plain.encoder().fold(input, lead, change, coding),
            Code::Layered(layered) => {
                layered.delta(
                    chunk,
                    lead,
                    change,
                    self.coding.iter().zip(coding.iter_mut().map(|c| &mut **c)),
                );
            }
        }
        Ok(())
    }
}

/// One step, from the first chunks that are there.
fn plain_steps(plain: &PlainCode, lost: ChunkSet, available: ChunkSet) -> Option<Vec<RebuildStep>> {
    let sources: Vec<usize> = available.iter().take(plain.k()).collect();
    let targets: Vec<usize> = lost.iter().collect();
    if sources.len() < plain.k() {
        return None;
    }
    let work = plain.rebuild(&sources, &targets)?;
    Some(vec![RebuildStep { sources, targets, work }])
}
