//! Erasure codes: a stripe of data as `k` data chunks and some coding chunks, of which enough rebuild the
//! others.
//!
//! A [`Profile`] is the checked form of the words of `osd erasure-code-profile set`; it says how large chunks
//! are and how CRUSH spreads them. A [`Codec`] does the arithmetic on slices that the caller owns.
//! [`Stripes`] say what a read or a write of a range of an object takes of each shard. Chunks equal those of
//! Ceph's plug-ins `jerasure`, `isa` and `lrc` bit for bit (`tests/golden.txt` is Ceph's own output). Shapes:
//! a chunk is known by its position, which is its shard's number, and sets of chunks are sets of positions.
//! Lengths are in bytes.
//!
//! Invariants:
//! 1. Every code is linear: a coding chunk is a sum of data chunks with fixed coefficients. So a change of
//!    data gives a change of coding chunks that depends on nothing else ([`Codec::delta`]).
//! 2. Any `m` chunks of a plain code may be lost: the profile's bounds allow no matrix for which that is not
//!    so.
//! 3. What a processor can do changes how long a call takes, never what it gives.
//!
//! Source: src/erasure-code/ErasureCode.cc, and jerasure/, isa/ and lrc/ beside it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod profile;

mod pool;

mod codec;
mod layered;
mod plain;
mod rebuild;
mod sketch;

mod stripes;
mod update;

mod chunks;
mod error;

mod arithmetic;
mod bytewise;
mod packets;

mod field;
mod generators;
mod matrix;

pub use arithmetic::Simd;
pub use chunks::{ChunkSet, MAX_CHUNKS};
pub use codec::Codec;
pub use error::{CodecError, ProfileError};
pub use pool::{MisfitError, of_pool};
pub use profile::{Placement, PlacementStep, Profile};
pub use rebuild::Rebuild;
pub use sketch::{Parity, Sketch};
pub use stripes::{ShardRange, StripedRead, Stripes};
pub use update::{Change, ShardUpdate, StripedWrite};
