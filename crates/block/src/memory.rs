//! How much memory requests may hold, from the moment their data is received until their reply is written.
//!
//! Each connection has a little of its own, so that every one gets on whatever others do; what is more comes from the
//! server's memory, which all connections share.

use std::io;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests of one connection under way at once.
pub const MAX_REQUESTS: usize = 128;
const UNIT: u64 = 64 << 10;
/// Units that each connection has of its own: 1 MiB.
const OWN_UNITS: usize = 16;
/// Units that one connection may hold: 64 MiB.
const CONNECTION_UNITS: u32 = 1024;
/// Units that all connections share: 256 MiB.
const SHARED_UNITS: usize = 4096;

/// The server's memory.
#[derive(Debug, Clone)]
pub struct SharedMemory(Arc<Semaphore>);

impl SharedMemory {
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(SHARED_UNITS)))
    }
}

/// What one connection may hold.
#[derive(Debug)]
pub struct Memory {
    requests: Arc<Semaphore>,
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
    shared: SharedMemory,
}

/// Room for one request, until it is dropped.
#[derive(Debug)]
pub struct Room {
    _permits: [OwnedSemaphorePermit; 3],
}

impl Memory {
    pub fn new(shared: &SharedMemory) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            all: Arc::new(Semaphore::new(CONNECTION_UNITS as usize)),
            own: Arc::new(Semaphore::new(OWN_UNITS)),
            shared: shared.clone(),
        }
    }

    /// Waits until a request with `len` bytes of data, its own or its reply's, fits.
    pub async fn room(&self, len: u64) -> io::Result<Room> {
        let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        let units = u32::try_from(len.div_ceil(UNIT)).unwrap_or(u32::MAX).min(CONNECTION_UNITS);
        let request = Arc::clone(&self.requests).acquire_owned().await.map_err(closed)?;
        let all = Arc::clone(&self.all).acquire_many_owned(units).await.map_err(closed)?;
        let data = match Arc::clone(&self.own).try_acquire_many_owned(units) {
            Ok(own) => own,
            Err(_) => Arc::clone(&self.shared.0).acquire_many_owned(units).await.map_err(closed)?,
        };
        Ok(Room { _permits: [request, all, data] })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Whether a request of so many MiB fits now.
    async fn fits(memory: &Memory, mib: u64) -> Option<Room> {
        tokio::time::timeout(Duration::from_millis(20), memory.room(mib << 20)).await.ok()?.ok()
    }

    #[tokio::test]
    async fn connections_share_what_they_have_not_of_their_own() {
        let shared = SharedMemory::new();
        let connections: Vec<Memory> = (0..5).map(|_| Memory::new(&shared)).collect();
        let mut held = Vec::new();
        for memory in &connections[..4] {
            for _ in 0..2 {
                held.push(fits(memory, 32).await.expect("64 MiB for each connection"));
            }
            assert!(fits(memory, 1).await.is_none(), "and no more");
        }
        assert!(fits(&connections[4], 32).await.is_none(), "the server's memory is full");
        let small = fits(&connections[4], 1).await.expect("what is its own is there");
        assert!(fits(&connections[4], 1).await.is_none());
        held.truncate(7);
        held.push(fits(&connections[4], 32).await.expect("what was given back"));
        drop(small);
        assert!(fits(&connections[4], 1).await.is_some());
    }
}
