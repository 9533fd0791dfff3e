//! Whether a pool's numbers are those of its profile: OSDs serve a pool only then, and monitors say so.

use std::collections::BTreeMap;

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

/// The code of a pool of `size` shards with this profile, whose stripes hold `stripe_width` bytes of data,
/// and how its objects lie on the shards.
pub fn of_pool(
    values: &BTreeMap<String, String>,
    size: usize,
    stripe_width: u32,
) -> Result<(Codec, Stripes), MisfitError> {
    let codec = Codec::new(&Profile::new(values)?, Simd::Detected);
    let (chunks, data) = (codec.chunk_count(), codec.data_chunk_count());
    if chunks != size {
        return Err(MisfitError::Size { chunks, size });
    }
    let chunk = u64::from(stripe_width).checked_div(data as u64).unwrap_or(0);
    if chunk == 0 || chunk * data as u64 != u64::from(stripe_width) {
        return Err(MisfitError::Width { width: stripe_width, data });
    }
    let stripes = Stripes::new(&codec, chunk)?;
    Ok((codec, stripes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(words: &[(&str, &str)]) -> BTreeMap<String, String> {
        words.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_pool_has_the_numbers_of_its_profile() {
        let values =
            profile(&[("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "4"), ("m", "2")]);
        let found = |size, width| of_pool(&values, size, width).map(|(codec, _)| codec.chunk_count());
        assert_eq!(found(6, 4 * 4096), Ok(6));
        assert_eq!(found(5, 4 * 4096), Err(MisfitError::Size { chunks: 6, size: 5 }));
        assert_eq!(found(6, 4 * 4096 + 1), Err(MisfitError::Width { width: 4 * 4096 + 1, data: 4 }));
        assert_eq!(found(6, 0), Err(MisfitError::Width { width: 0, data: 4 }));
        // Whole chunks, but no whole packets.
        let words = [("technique", "cauchy_good"), ("k", "4"), ("m", "2"), ("packetsize", "128")];
        let packets = profile(&[&[("plugin", "jerasure")][..], &words].concat());
        assert!(of_pool(&packets, 6, 4 * 4096).is_ok());
        let found = of_pool(&packets, 6, 4 * 100).map(|_| ());
        assert_eq!(found, Err(MisfitError::Codec(CodecError::Grain { len: 100, grain: 1024 })));
    }

    #[test]
    fn a_profile_that_is_not_built_fits_no_pool() {
        let clay = profile(&[("plugin", "clay"), ("k", "4"), ("m", "2")]);
        assert!(matches!(of_pool(&clay, 6, 4 * 4096), Err(MisfitError::Profile(_))));
        assert!(matches!(of_pool(&BTreeMap::new(), 6, 4 * 4096), Err(MisfitError::Profile(_))));
    }
}
