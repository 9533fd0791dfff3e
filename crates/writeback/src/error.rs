//! Why a cache file is not opened.

/// By blame: the caller took the wrong file, the file is of another version, the media lost data, or reading failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the cache file belongs to image {found}, not to {wanted}")]
    OtherImage { found: String, wanted: String },
    #[error("the cache file has format {found}; this program knows format {known}")]
    OtherVersion { found: u32, known: u32 },
    #[error("not a cache file: no valid superblock")]
    NotACache,
    #[error("the cache file is damaged: record {seq} was acknowledged and cannot be read")]
    Damaged { seq: u64 },
    #[error("the cache file says it has {wanted} bytes and has {found}")]
    Truncated { wanted: u64, found: u64 },
    #[error("cannot read the cache file: {0}")]
    Read(String),
}
