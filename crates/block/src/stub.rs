//! An image for tests that does nothing, or does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::device::{BlockDevice, BlockError, BoxFuture, CachedImage, Piece, Range};

/// Remembers how much it was asked to look at, and never ends a flush.
#[derive(Default)]
pub struct Stub {
    pub looked_at: AtomicU64,
    /// Reads and writes wait for a permit each, unless there is no gate: they fail then.
    gate: Option<Semaphore>,
    under_way: Arc<()>,
}

type Answer<'a, T> = BoxFuture<'a, Result<T, BlockError>>;

impl Stub {
    pub fn stuck() -> Self {
        Self { gate: Some(Semaphore::new(0)), ..Self::default() }
    }

    /// Reads and writes that were begun and neither ended nor were cut off.
    pub fn under_way(&self) -> usize {
        Arc::strong_count(&self.under_way) - 1
    }

    /// Ends so many.
    pub fn answer(&self, count: usize) {
        self.gate.as_ref().expect("a gate").add_permits(count);
    }

    fn wait<T: Send + 'static>(&self) -> Answer<'_, T> {
        let under_way = Arc::clone(&self.under_way);
        Box::pin(async move {
            if let Some(gate) = &self.gate {
                gate.acquire().await.expect("never closed").forget();
            }
            drop(under_way);
            Err(BlockError::new(5, "not asked for"))
        })
    }
}

impl BlockDevice for Stub {
    fn identity(&self) -> String {
        String::new()
    }

    fn size(&self) -> u64 {
        1 << 40
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, _: u64, _: u64) -> Answer<'_, Vec<Piece>> {
        self.wait()
    }

    fn write(&self, _: u64, _: Bytes) -> Answer<'_, ()> {
        self.wait()
    }

    fn zero(&self, _: u64, _: u64, _: bool) -> Answer<'_, ()> {
        self.wait()
    }

    fn flush(&self) -> Answer<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn status(&self, _: u64, len: u64, _: usize) -> Answer<'_, Vec<Range>> {
        self.looked_at.store(len, Ordering::SeqCst);
        Box::pin(async move { Ok(vec![Range { len, hole: true, zero: true }]) })
    }

    fn close(&self) -> Answer<'_, ()> {
        self.wait()
    }
}

impl CachedImage for Stub {
    fn mark<'a>(&'a self, _: &'a str) -> Answer<'a, ()> {
        self.wait()
    }

    fn unmark(&self) -> Answer<'_, ()> {
        self.wait()
    }
}
