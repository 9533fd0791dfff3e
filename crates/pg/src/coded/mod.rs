//! Erasure-coded objects on their shards: what a request's transaction changes on each, and how a shard takes
//! a write back. CODED.md has the design, and what of it is built.
//!
//! Invariants:
//! 1. All shards of an object have the same length, whole chunks. Bytes behind the object's end are zeros.
//! 2. Every shard holds the object's attributes, its info among them, in the version of the object's newest
//!    log entry, whether or not that entry changed the shard's data. A shard whose info has another version
//!    has missed something, and nothing is read from it.
//! 3. A shard's transaction holds, beside the change, all that is needed to take the change back ([`Kept`]),
//!    until every shard has the change and has been told so.

mod content;
mod keep;
mod split;

use erasure::{ChunkSet, Codec, MisfitError, Stripes};
use maps::{OsdMap, Pool};

pub use keep::{
    Adds, Kept, Prepared, forget, hand_over, is_kept, keep_whole, kept_in, prepare, read_before, take_back,
    version_before,
};
pub use split::{Add, Gathered, Needed, Parts, ShardPart, SplitStop, split};

/// The code of a pool, and how its objects lie on shards.
#[derive(Debug)]
pub struct Geometry {
    pub codec: Codec,
    pub stripes: Stripes,
}

impl Geometry {
    /// Of a pool of this map, if it fits its profile.
    pub fn of_pool(map: &OsdMap, pool: &Pool) -> Result<Self, MisfitError> {
        let (codec, stripes) = erasure::of_pool(map, pool)?;
        Ok(Self { codec, stripes })
    }

    /// Whether all data can be made from these shards.
    pub fn can_decode(&self, shards: ChunkSet) -> bool {
        let data = self.codec.data_chunks().iter().copied().collect();
        self.codec.minimum_to_decode(data, shards).is_ok()
    }

    /// Shards of an object.
    pub fn shards(&self) -> usize {
        self.codec.chunk_count()
    }
}
