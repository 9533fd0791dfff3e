//! A short sum of a shard that is coded as the shard is: the sums of an object's shards are chunks of one
//! stripe, unless a shard is not what the others make of it. Parity is checked so without a byte of data on
//! the wire.
//!
//! A shard's blocks are added (exclusive or) to several folds; which of them a block goes to depends on its
//! place and on a seed. Codes are linear, and treat all blocks of whole grains alike: so the folds of coding
//! chunks are the coding chunks of the folds of data. One block that is wrong is always seen. Two whose
//! errors are the same byte for byte cancel each other out with about one seed in 255.

use std::collections::BTreeMap;

use crate::chunks::ChunkSet;
use crate::codec::Codec;
use crate::error::CodecError;

const FOLDS: usize = 8;
const LEAST_BLOCK: usize = 64;

/// The sum of a shard's bytes from its beginning up to some place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sketch {
    seed: u64,
    block: usize,
    at: u64,
    folds: Vec<u8>,
}

/// What sums of shards say of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parity {
    Holds,
    /// It holds without this one, and not without any other.
    Wrong(usize),
    /// It does not hold, and nothing says which shard is wrong.
    Broken,
    /// Too few shards are there to tell.
    Unknown,
}

impl Sketch {
    pub fn new(codec: &Codec, seed: u64) -> Self {
        let block = LEAST_BLOCK.next_multiple_of(codec.grain().max(1));
        Self { seed, block, at: 0, folds: vec![0; block * FOLDS] }
    }

    /// Goes on with a sum over the first `at` bytes; `None` if it is not of that kind.
    pub fn resume(codec: &Codec, seed: u64, at: u64, folds: Vec<u8>) -> Option<Self> {
        let new = Self::new(codec, seed);
        (folds.len() == new.folds.len()).then_some(Self { at, folds, ..new })
    }

    /// Adds the shard's next bytes.
    pub fn add(&mut self, mut bytes: &[u8]) {
        let block = self.block as u64;
        while !bytes.is_empty() {
            // Both below the length of a block.
            let lead = (self.at % block) as usize;
            let (now, later) = bytes.split_at(bytes.len().min(self.block - lead));
            let mask = mask(self.seed, self.at / block);
            for (nth, fold) in self.folds.chunks_exact_mut(self.block).enumerate() {
                if mask >> nth & 1 == 1 {
                    let to = fold.iter_mut().skip(lead);
                    to.zip(now).for_each(|(sum, byte)| *sum ^= byte);
                }
            }
            self.at += now.len() as u64;
            bytes = later;
        }
    }

    pub fn into_folds(self) -> Vec<u8> {
        self.folds
    }
}

/// The folds that a block goes to, at least one of them.
fn mask(seed: u64, block: u64) -> u8 {
    let mut x = seed ^ block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Source: the finalizer of splitmix64.
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) % 255) as u8 + 1
}

impl Codec {
    /// What the sums of an object's shards say, by position; made with one seed, of shards of one length.
    pub fn parity(&self, sums: &[Option<&[u8]>]) -> Result<Parity, CodecError> {
        let there: ChunkSet = (0..self.chunk_count()).filter(|at| sum(sums, *at).is_some()).collect();
        match self.agree(there, sums)? {
            None => return Ok(Parity::Unknown),
            Some(true) => return Ok(Parity::Holds),
            Some(false) => {}
        }
        let mut wrong = None;
        for shard in there.iter() {
            let one: ChunkSet = [shard].into_iter().collect();
            if self.agree(there - one, sums)? == Some(true) && wrong.replace(shard).is_some() {
                return Ok(Parity::Broken);
            }
        }
        Ok(wrong.map_or(Parity::Broken, Parity::Wrong))
    }

    /// Whether some shards are what the data makes that as many of them as it takes make up; `None` where
    /// nothing is left to compare. A layered code may take more of them than the data has chunks, and these
    /// need not agree with each other.
    fn agree(&self, shards: ChunkSet, sums: &[Option<&[u8]>]) -> Result<Option<bool>, CodecError> {
        let data: ChunkSet = self.data_chunks().iter().copied().collect();
        let Ok(basis) = self.minimum_to_decode(data, shards) else { return Ok(None) };
        let Ok(plan) = self.rebuild(data - basis, basis) else { return Ok(None) };
        if shards.len() <= data.len() {
            return Ok(None);
        }
        let len = shards.iter().find_map(|at| sum(sums, at)).map_or(0, <[u8]>::len);
        let mut made = vec![vec![0; len]; plan.targets().len()];
        plan.execute(sums, &mut buffers(&mut made))?;
        let made: BTreeMap<usize, Vec<u8>> = plan.targets().iter().zip(made).collect();
        let chunk =
            |at: &usize| made.get(at).map(Vec::as_slice).or_else(|| sum(sums, *at)).unwrap_or_default();
        let inputs: Vec<&[u8]> = self.data_chunks().iter().map(chunk).collect();
        let mut coding = vec![vec![0; len]; self.coding_chunks().len()];
        self.encode(&inputs, &mut buffers(&mut coding))?;
        let all = self.coding_chunks().iter().zip(coding).chain(made);
        let agrees = |(at, is): (usize, Vec<u8>)| !shards.contains(at) || sum(sums, at) == Some(&is);
        Ok(Some(all.into_iter().all(agrees)))
    }
}

fn buffers(all: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    all.iter_mut().map(Vec::as_mut_slice).collect()
}

fn sum<'a>(sums: &[Option<&'a [u8]>], at: usize) -> Option<&'a [u8]> {
    sums.get(at).copied().flatten()
}
