//! Whether a pool's numbers are those of its profile: OSDs serve a pool only then, and monitors say so.

use std::collections::BTreeMap;

use maps::{OsdMap, Pool};

use crate::arithmetic::Simd;
use crate::codec::Codec;
use crate::error::{CodecError, ProfileError};
use crate::profile::Profile;
use crate::stripes::Stripes;

/// A pool's profile does not fit the pool.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MisfitError {
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("its profile makes {chunks} chunks, and its size is {size}")]
    Size { chunks: usize, size: usize },
    #[error("its stripes of {width} bytes are no whole chunks of {data}")]
    Width { width: u32, data: usize },
}

/// The code of an erasure-coded pool of this map, and how its objects lie on the shards. No pool fits a
/// profile that is gone.
pub fn of_pool(map: &OsdMap, pool: &Pool) -> Result<(Codec, Stripes), MisfitError> {
    let none = BTreeMap::new();
    let values = map.erasure_code_profiles.get(&pool.erasure_code_profile).unwrap_or(&none);
    let codec = Codec::new(&Profile::new(values)?, Simd::Detected);
    let (chunks, data) = (codec.chunk_count(), codec.data_chunk_count());
    let (size, width) = (usize::from(pool.size), pool.stripe_width);
    if chunks != size {
        return Err(MisfitError::Size { chunks, size });
    }
    let chunk = u64::from(width).checked_div(data as u64).unwrap_or(0);
    if chunk == 0 || chunk * data as u64 != u64::from(width) {
        return Err(MisfitError::Width { width, data });
    }
    let stripes = Stripes::new(&codec, chunk)?;
    Ok((codec, stripes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found of a pool of this size and stripe width, with a profile of these words.
    fn found(words: &[(&str, &str)], size: u8, stripe_width: u32) -> Result<usize, MisfitError> {
        let mut map = OsdMap::default();
        let words = words.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        map.erasure_code_profiles.insert("p".to_owned(), words.collect());
        let mut pool = Pool::new(maps::PoolType::Erasure, 8);
        (pool.size, pool.stripe_width) = (size, stripe_width);
        pool.erasure_code_profile = "p".to_owned();
        of_pool(&map, &pool).map(|(codec, _)| codec.chunk_count())
    }

    #[test]
    fn a_pool_has_the_numbers_of_its_profile() {
        let words = [("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "4"), ("m", "2")];
        assert_eq!(found(&words, 6, 4 * 4096), Ok(6));
        assert_eq!(found(&words, 5, 4 * 4096), Err(MisfitError::Size { chunks: 6, size: 5 }));
        let width = 4 * 4096 + 1;
        assert_eq!(found(&words, 6, width), Err(MisfitError::Width { width, data: 4 }));
        assert_eq!(found(&words, 6, 0), Err(MisfitError::Width { width: 0, data: 4 }));
        // Whole chunks, but no whole packets.
        let words = [("technique", "cauchy_good"), ("k", "4"), ("m", "2"), ("packetsize", "128")];
        let packets = [&[("plugin", "jerasure")][..], &words].concat();
        assert_eq!(found(&packets, 6, 4 * 4096), Ok(6));
        let grain = CodecError::Grain { len: 100, grain: 1024 };
        assert_eq!(found(&packets, 6, 4 * 100), Err(MisfitError::Codec(grain)));
    }

    #[test]
    fn a_profile_that_is_not_built_or_gone_fits_no_pool() {
        let clay = [("plugin", "clay"), ("k", "4"), ("m", "2")];
        assert!(matches!(found(&clay, 6, 4 * 4096), Err(MisfitError::Profile(_))));
        let (map, pool) = (OsdMap::default(), Pool::new(maps::PoolType::Erasure, 8));
        assert!(matches!(of_pool(&map, &pool).map(|_| ()), Err(MisfitError::Profile(_))));
    }
}
