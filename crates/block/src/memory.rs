//! How much memory requests may hold, from the moment their data is received until their reply is written.
//!
//! 1. Every connection can have one request under way whatever others do: its first one, and small ones, are its own.
//! 2. What is more comes from the server's memory. An image gets no more of it than it leaves free, and a connection no more
//!    than it leaves free of that: peers that take no replies and images that do not answer hold a part, never all.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Requests of one connection under way at once.
pub const MAX_REQUESTS: usize = 128;
const UNIT: u64 = 64 << 10;
/// Units of small requests that each connection has of its own: 1 MiB.
const OWN_UNITS: u64 = 16;
/// Units of the server's memory that one connection may hold: 64 MiB.
const CONNECTION_UNITS: u64 = 1024;
/// Units of the server's memory: 256 MiB.
const SHARED_UNITS: u64 = 4096;

/// The server's memory.
#[derive(Debug, Clone)]
pub struct SharedMemory(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    units: Mutex<Units>,
    /// Something was given back.
    freed: Notify,
}

#[derive(Debug)]
struct Units {
    free: u64,
    /// Units of each export.
    exports: Vec<u64>,
}

impl SharedMemory {
    pub fn new(exports: usize) -> Self {
        let units = Units { free: SHARED_UNITS, exports: vec![0; exports] };
        Self(Arc::new(Pool { units: Mutex::new(units), freed: Notify::new() }))
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Units> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one connection may hold.
#[derive(Debug)]
pub struct Memory {
    requests: Arc<Semaphore>,
    held: Arc<Mutex<Held>>,
    shared: SharedMemory,
}

/// Units of one connection.
#[derive(Debug, Default)]
struct Held {
    own: u64,
    shared: u64,
}

/// Room for one request, until it is dropped.
#[derive(Debug)]
pub struct Room {
    _request: OwnedSemaphorePermit,
    held: Arc<Mutex<Held>>,
    pool: Arc<Pool>,
    units: u64,
    /// Whose share of the server's memory it is; nothing for the connection's own.
    export: Option<usize>,
}

impl Memory {
    pub fn new(shared: &SharedMemory) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            held: Arc::default(),
            shared: shared.clone(),
        }
    }

    /// Waits until a request to an export with `len` bytes of data, its own or its reply's, fits.
    pub async fn room(&self, export: usize, len: u64) -> io::Result<Room> {
        let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        let mut request = Arc::clone(&self.requests).acquire_owned().await.map_err(closed)?;
        let pool = &self.shared.0;
        loop {
            let freed = pool.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.try_room(export, len.div_ceil(UNIT), request) {
                Ok(room) => return Ok(room),
                Err(back) => request = back,
            }
            freed.await;
        }
    }

    fn try_room(
        &self,
        export: usize,
        units: u64,
        request: OwnedSemaphorePermit,
    ) -> Result<Room, OwnedSemaphorePermit> {
        let pool = &self.shared.0;
        let mut all = pool.lock();
        let mut held = lock(&self.held);
        let place = if held.own == 0 || held.own + units <= OWN_UNITS {
            held.own += units;
            None
        } else {
            let of_export = all.exports.get(export).copied().unwrap_or_default();
            let left = all.free.saturating_sub(of_export);
            let is_fair = of_export + units <= all.free && held.shared + units <= left.min(CONNECTION_UNITS);
            if !is_fair {
                return Err(request);
            }
            held.shared += units;
            all.free -= units;
            if let Some(of_export) = all.exports.get_mut(export) {
                *of_export += units;
            }
            Some(export)
        };
        drop((all, held));
        let (held, pool) = (Arc::clone(&self.held), Arc::clone(pool));
        Ok(Room { _request: request, held, pool, units, export: place })
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Room {
    fn drop(&mut self) {
        {
            let mut all = self.pool.lock();
            let mut held = lock(&self.held);
            match self.export {
                None => held.own -= self.units,
                Some(export) => {
                    held.shared -= self.units;
                    all.free += self.units;
                    if let Some(of_export) = all.exports.get_mut(export) {
                        *of_export -= self.units;
                    }
                }
            }
        }
        self.pool.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Whether a request of so many MiB fits now.
    async fn fits(memory: &Memory, export: usize, mib: u64) -> Option<Room> {
        tokio::time::timeout(Duration::from_millis(20), memory.room(export, mib << 20)).await.ok()?.ok()
    }

    /// Takes what there is, in requests of so many MiB; gives the sum too.
    async fn hog(memory: &Memory, export: usize, mib: u64) -> (Vec<Room>, u64) {
        let mut rooms = Vec::new();
        while let Some(room) = fits(memory, export, mib).await {
            rooms.push(room);
        }
        let sum = rooms.len() as u64 * mib;
        (rooms, sum)
    }

    #[tokio::test]
    async fn those_who_hold_what_they_have_leave_something_to_others() {
        let shared = SharedMemory::new(3);
        let mut held = Vec::new();
        let mut memories = Vec::new();
        let mut total = 0;
        for _ in 0..12 {
            let memory = Memory::new(&shared);
            let (rooms, sum) = hog(&memory, 0, 1).await;
            assert!((1..=65).contains(&sum), "{sum} MiB: one of its own, and a share");
            total += sum;
            held.push(rooms);
            memories.push(memory);
        }
        assert!((120..=128 + 12).contains(&total), "{total} MiB: one image has at most half");

        let same = Memory::new(&shared);
        let first = fits(&same, 0, 32).await.expect("a connection's first request always fits");
        assert!(fits(&same, 0, 32).await.is_none(), "its image has its share");
        let other = Memory::new(&shared);
        let (rooms, sum) = hog(&other, 1, 8).await;
        assert!(sum >= 48, "another image has {sum} MiB");
        let third = Memory::new(&shared);
        let (more, sum) = hog(&third, 2, 8).await;
        assert!(sum >= 24, "and a third one {sum}");

        drop((held, rooms, more));
        assert!(fits(&same, 0, 32).await.is_some(), "what was given back");
        drop(first);
    }

    #[tokio::test]
    async fn what_waits_gets_room_when_something_is_given_back() {
        let shared = SharedMemory::new(1);
        let memory = Memory::new(&shared);
        let (mut rooms, _) = hog(&memory, 0, 32).await;
        let waits = memory.room(0, 32 << 20);
        tokio::pin!(waits);
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut waits).await.is_err());
        rooms.pop();
        assert!(tokio::time::timeout(Duration::from_secs(20), waits).await.is_ok());
        drop(rooms);
        assert_eq!(shared.0.lock().free, SHARED_UNITS, "everything is given back");
        assert_eq!(shared.0.lock().exports, [0]);
    }

    #[tokio::test]
    async fn requests_without_data_are_counted_too() {
        let memory = Memory::new(&SharedMemory::new(1));
        let (rooms, _) = hog(&memory, 0, 0).await;
        assert_eq!(rooms.len(), MAX_REQUESTS);
    }
}
