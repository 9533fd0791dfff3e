//! What clients have asked for and do not read.
//!
//! A client with much of it is not read from until it takes some. How much that is depends on what all
//! clients have left of their common limit: the fuller it is, the less, so that many connections stop before
//! one of them has to be cut off. That alone bounds nothing: one read may bring hundreds of small requests
//! with large answers. So beyond the limit, the client with the most is cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sum over all clients' connections.
#[derive(Debug, Default)]
pub(super) struct Unread {
    total_bytes: AtomicU64,
}

/// One connection's part; leaves the sum with it.
#[derive(Debug)]
pub(super) struct Share {
    all: Arc<Unread>,
    bytes: AtomicU64,
}

impl Unread {
    pub(super) fn total(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// One client may have so much before it is not read from: half of what is free, at most `usual`.
    pub(super) fn pause_bytes(&self, limit: u64, usual: u64) -> u64 {
        usual.min(limit.saturating_sub(self.total()) / 2)
    }

    pub(super) fn share(self: &Arc<Self>) -> Share {
        Share { all: Arc::clone(self), bytes: AtomicU64::new(0) }
    }
}

impl Share {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        // Modulo 2^64: up or down.
        self.all.total_bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuller_the_limit_the_less_one_client_may_leave() {
        let unread = Arc::new(Unread::default());
        let (one, other) = (unread.share(), unread.share());
        assert_eq!(unread.pause_bytes(100, 20), 20, "nobody has anything");
        for (ones, others, pause) in [(50, 0, 20), (50, 20, 15), (90, 0, 5), (100, 0, 0), (100, 50, 0)] {
            one.set(ones);
            other.set(others);
            assert_eq!(unread.pause_bytes(100, 20), pause, "{ones} and {others}");
        }
        drop((one, other));
        assert_eq!(unread.pause_bytes(100, 20), 20);
    }
}
