//! What clients have asked for and do not read.
//!
//! A client with much of it is not read from until it takes some. That alone bounds nothing: one read may bring hundreds
//! of small requests with large answers. So beyond a limit for all clients of a messenger, the one with the most is cut off.

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
