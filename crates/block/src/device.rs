//! What a block image does, whatever it is made of.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

pub use nbd::{Piece, Range};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An operation failed; the errno says to the image's user whose fault it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} (errno {errno})")]
pub struct BlockError {
    /// Linux's number, positive.
    pub errno: i32,
    pub what: String,
}

impl BlockError {
    #[must_use]
    pub fn new(errno: i32, what: impl Into<String>) -> Self {
        Self { errno, what: what.into() }
    }

    /// The range does not lie inside the image.
    #[must_use]
    pub fn out_of_range(offset: u64, len: u64, size: u64) -> Self {
        Self::new(22, format!("{len} bytes at {offset} do not lie inside {size} bytes"))
    }
}

/// An image of bytes. Operations may run at the same time; two that overlap have no order unless one waited for the
/// other. Offsets and lengths are in bytes and need no alignment; a range outside the image is EINVAL.
pub trait BlockDevice: Send + Sync + 'static {
    /// Names the image for good, through renames: a cache of one image must not be taken for another's.
    fn identity(&self) -> String;

    /// Bytes; changes when somebody resizes the image.
    fn size(&self) -> u64;

    fn is_read_only(&self) -> bool;

    /// The size of requests that suits the image best, a power of two.
    fn preferred_block(&self) -> u32 {
        4096
    }

    /// What `len` bytes from `offset` on hold, in order.
    fn read(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<Vec<Piece>, BlockError>>;

    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), BlockError>>;

    /// As [`BlockDevice::write`], for a caller that has nothing else to do until it is answered: the device may hold the
    /// calling thread up for one short write to local media.
    fn write_alone(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), BlockError>> {
        self.write(offset, data)
    }

    /// Makes a range read as zeros; with `punch` its space may be given back.
    fn zero(&self, offset: u64, len: u64, punch: bool) -> BoxFuture<'_, Result<(), BlockError>>;

    /// Everything that was answered before is durable.
    fn flush(&self) -> BoxFuture<'_, Result<(), BlockError>>;

    /// What is allocated of a range, in order; may say less is a hole than is. The caller has use for `most` ranges, alike
    /// neighbours counted once: the answer may end before the range does, but holds something of it.
    fn status(&self, offset: u64, len: u64, most: usize) -> BoxFuture<'_, Result<Vec<Range>, BlockError>>;

    /// Flushes and lets go of the image; nothing may be called afterwards.
    fn close(&self) -> BoxFuture<'_, Result<(), BlockError>>;
}

/// An image that a write-back cache may stand before: it bears a mark while the cache holds what it lacks.
pub trait CachedImage: BlockDevice {
    /// Says in the image, durably, that the cache whose file has this token may hold writes that the image lacks. The mark
    /// proves nothing any more once another client could write to the image.
    fn mark<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<(), BlockError>>;

    /// The image has everything.
    fn unmark(&self) -> BoxFuture<'_, Result<(), BlockError>>;
}

/// The image belongs to another client now, for good: no operation of ours can succeed any more. Linux's ESHUTDOWN, as
/// OSDs answer blocklisted clients.
pub const SHUT_OUT: i32 = 108;

/// Checks that a range lies inside an image of `size` bytes.
pub(crate) fn check_range(offset: u64, len: u64, size: u64) -> Result<(), BlockError> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(BlockError::out_of_range(offset, len, size)),
    }
}
