//! A gate holds clients back: while it is closed, nothing is read from the connections behind it, so that
//! their requests wait in their sockets and not in our memory.
//!
//! A gate is closed while its daemon holds it, and while more than [`INBOX_LIMIT_BYTES`] wait in the daemon's
//! inbox.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// Bytes of messages that were read and that the core has not looked at yet.
const INBOX_LIMIT_BYTES: u64 = 64 << 20;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Gate {
    held: AtomicBool,
    inbox_bytes: AtomicU64,
    opened: Notify,
}

impl Gate {
    pub fn is_open(&self) -> bool {
        !self.held.load(Ordering::Acquire) && self.inbox_bytes.load(Ordering::Acquire) <= INBOX_LIMIT_BYTES
    }

    /// Closes the gate for the daemon, or with `false` takes that back.
    pub fn hold(&self, hold: bool) {
        self.held.store(hold, Ordering::Release);
        if !hold {
            self.opened.notify_waiters();
        }
    }

    /// So many bytes of messages were put into the inbox.
    pub fn came(&self, bytes: u64) {
        self.inbox_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// The core has taken so many bytes out of the inbox.
    pub fn taken(&self, bytes: u64) {
        let before = self.inbox_bytes.fetch_sub(bytes, Ordering::AcqRel);
        if before > INBOX_LIMIT_BYTES && before.saturating_sub(bytes) <= INBOX_LIMIT_BYTES {
            self.opened.notify_waiters();
        }
    }

    /// Waits until it is open.
    pub async fn pass(&self) {
        loop {
            let opened = self.opened.notified();
            tokio::pin!(opened);
            // Registered before the look at the gate, so that an opening right after the look is not missed.
            opened.as_mut().enable();
            if self.is_open() {
                return;
            }
            opened.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn it_opens_when_neither_reason_holds() {
        let gate = Arc::new(Gate::default());
        gate.pass().await;
        gate.hold(true);
        gate.came(INBOX_LIMIT_BYTES + 1);
        let waiting = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.pass().await }
        });
        tokio::task::yield_now().await;
        gate.hold(false);
        assert!(!gate.is_open());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        gate.taken(1);
        assert!(gate.is_open());
        waiting.await.expect("opened");
    }
}
