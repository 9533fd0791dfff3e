//! An image as a block device.

use block::{BlockDevice, BlockError, BoxFuture, CachedImage, Piece, Range};
use bytes::Bytes;

use crate::error::Error;
use crate::image::Image;

impl From<Error> for BlockError {
    fn from(e: Error) -> Self {
        Self::new(e.errno().0, e.to_string())
    }
}

impl BlockDevice for Image {
    fn identity(&self) -> String {
        let meta = &self.inner.meta;
        format!("{}/{}/{}/{}", meta.cluster().fsid(), meta.pool_id().0, meta.namespace(), self.inner.id)
    }

    fn size(&self) -> u64 {
        Image::size(self)
    }

    fn is_read_only(&self) -> bool {
        self.inner.read_only
    }

    fn preferred_block(&self) -> u32 {
        64 << 10
    }

    fn read(&self, offset: u64, len: u64) -> BoxFuture<'_, Result<Vec<Piece>, BlockError>> {
        Box::pin(async move { Ok(self.read_pieces(offset, len).await?) })
    }

    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(async move { Ok(Image::write(self, offset, data).await?) })
    }

    fn zero(&self, offset: u64, len: u64, _punch: bool) -> BoxFuture<'_, Result<(), BlockError>> {
        // Space is never reserved, so there is nothing to keep.
        Box::pin(async move { Ok(self.discard(offset, len).await?) })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), BlockError>> {
        // What the OSDs answered is durable on all of them.
        Box::pin(async move { Ok(()) })
    }

    fn status(&self, offset: u64, len: u64, most: usize) -> BoxFuture<'_, Result<Vec<Range>, BlockError>> {
        Box::pin(async move { Ok(Image::status(self, offset, len, most).await?) })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(async move { Ok(Image::close(self).await?) })
    }
}

impl CachedImage for Image {
    fn mark<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<(), BlockError>> {
        Box::pin(async move { Ok(Image::mark(self, token).await?) })
    }

    fn unmark(&self) -> BoxFuture<'_, Result<(), BlockError>> {
        Box::pin(async move { Ok(Image::unmark(self).await?) })
    }
}
