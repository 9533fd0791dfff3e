//! How much memory requests may hold, from the moment their data is received until their reply is written.
//!
//! 1. Every connection has memory of its own for small requests, and each can have some under way whatever others do.
//! 2. A longer request that is its connection's only one comes from the memory for such. An image gets no more of it than it
//!    leaves free, and room for one in any case.
//! 3. What is more comes from the server's memory. An image gets no more of it than it leaves free, and a connection no more
//!    than it leaves free of that: peers that take no replies and images that do not answer hold a part, never all.
//! 4. Those that wait for the memory for long requests get it in the order in which they came, image by image: the longest
//!    has its turn too.
//! 5. Requests that outlive their connection are counted to their image; one that has many takes no new connections.

use std::collections::{BTreeMap, VecDeque};
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
/// Units for one long request per connection: 512 MiB.
const LONG_UNITS: u64 = 8192;
/// Requests of connections that are gone above which an image takes no new ones: twice what one connection can leave.
const MAX_LEFT: usize = 2 * MAX_REQUESTS;

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
    /// Of the server's memory.
    free: u64,
    /// Of the memory for long requests.
    free_long: u64,
    exports: Vec<Use>,
    /// Who waits for memory for long requests, by export, the first to come in front.
    waiting: BTreeMap<usize, VecDeque<u64>>,
    last_ticket: u64,
}

/// A place among those who wait, until it is dropped.
#[derive(Debug)]
struct Ticket {
    pool: Arc<Pool>,
    export: usize,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut all = self.pool.lock();
        if let Some(waiting) = all.waiting.get_mut(&self.export) {
            waiting.retain(|number| *number != self.number);
        }
        drop(all);
        self.pool.freed.notify_waiters();
    }
}

/// What one export holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Use {
    shared: u64,
    long: u64,
    /// Of its guaranteed turn, beyond the memory that there is for long requests.
    guaranteed: u64,
    /// Requests whose connections are gone.
    left: usize,
}

impl SharedMemory {
    pub fn new(exports: usize) -> Self {
        let units = Units {
            free: SHARED_UNITS,
            free_long: LONG_UNITS,
            exports: vec![Use::default(); exports],
            waiting: BTreeMap::new(),
            last_ticket: 0,
        };
        Self(Arc::new(Pool { units: Mutex::new(units), freed: Notify::new() }))
    }

    /// Whether an export takes new connections: those that are gone have not left too much to it.
    pub fn admits(&self, export: usize) -> bool {
        self.0.lock().exports.get(export).is_none_or(|e| e.left < MAX_LEFT)
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
    has_long: bool,
    /// Requests of each export: of one, as clients choose once.
    requests: BTreeMap<usize, usize>,
    /// The connection is.
    is_gone: bool,
}

/// Room for one request, until it is dropped.
#[derive(Debug)]
pub struct Room {
    _request: OwnedSemaphorePermit,
    held: Arc<Mutex<Held>>,
    pool: Arc<Pool>,
    units: u64,
    export: usize,
    place: Place,
}

/// Where a request's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Own,
    Long { is_guaranteed: bool },
    Shared,
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
        let mut ticket = None;
        loop {
            let freed = pool.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.try_room(export, len.div_ceil(UNIT), request, ticket.as_ref()) {
                Ok(room) => return Ok(room),
                Err(back) => request = back,
            }
            if ticket.is_none() {
                ticket = self.queue_up(export, len.div_ceil(UNIT));
            }
            freed.await;
        }
    }

    fn try_room(
        &self,
        export: usize,
        units: u64,
        request: OwnedSemaphorePermit,
        ticket: Option<&Ticket>,
    ) -> Result<Room, OwnedSemaphorePermit> {
        let pool = &self.shared.0;
        let mut all = pool.lock();
        let mut held = lock(&self.held);
        let first = all.waiting.get(&export).and_then(VecDeque::front);
        let is_next = first.is_none() || first == ticket.map(|t| &t.number);
        let Some(place) = all.place(&held, export, units, is_next) else { return Err(request) };
        let mut nowhere = Use::default();
        let Units { free, free_long, exports, .. } = &mut *all;
        let of_export = exports.get_mut(export).unwrap_or(&mut nowhere);
        match place {
            Place::Own => held.own += units,
            Place::Long { is_guaranteed } => {
                held.has_long = true;
                if is_guaranteed {
                    of_export.guaranteed += units;
                } else {
                    *free_long -= units;
                    of_export.long += units;
                }
            }
            Place::Shared => {
                held.shared += units;
                *free -= units;
                of_export.shared += units;
            }
        }
        *held.requests.entry(export).or_default() += 1;
        drop((all, held));
        let (held, pool) = (Arc::clone(&self.held), Arc::clone(pool));
        Ok(Room { _request: request, held, pool, units, export, place })
    }

    /// Takes a place among those who wait for the memory for long requests; nothing for a request that gets none of it. A
    /// connection that has its long request under way is not among them: others must not wait for its peer.
    fn queue_up(&self, export: usize, units: u64) -> Option<Ticket> {
        let pool = &self.shared.0;
        let mut all = pool.lock();
        if units <= OWN_UNITS || lock(&self.held).has_long {
            return None;
        }
        all.last_ticket += 1;
        let number = all.last_ticket;
        all.waiting.entry(export).or_default().push_back(number);
        Some(Ticket { pool: Arc::clone(pool), export, number })
    }
}

impl Memory {
    /// As [`SharedMemory::admits`].
    pub fn admits(&self, export: usize) -> bool {
        self.shared.admits(export)
    }
}

impl Drop for Memory {
    /// The connection goes; what it has under way is its image's from here on.
    fn drop(&mut self) {
        let mut all = self.shared.0.lock();
        let mut held = lock(&self.held);
        held.is_gone = true;
        for (export, count) in &held.requests {
            if let Some(export) = all.exports.get_mut(*export) {
                export.left += count;
            }
        }
    }
}

impl Units {
    /// Where a request of so many units gets its memory; nothing while it has to wait.
    /// `is_next`: nobody came before it who waits for memory for long requests.
    fn place(&self, held: &Held, export: usize, units: u64, is_next: bool) -> Option<Place> {
        if units == 0 || held.own + units <= OWN_UNITS {
            return Some(Place::Own);
        }
        let none = Use::default();
        let of_export = self.exports.get(export).unwrap_or(&none);
        if units > OWN_UNITS && !held.has_long && is_next {
            let left = self.free_long.checked_sub(units);
            if left.is_some_and(|left| of_export.long + units <= left) {
                return Some(Place::Long { is_guaranteed: false });
            }
            if of_export.long == 0 && of_export.guaranteed == 0 {
                return Some(Place::Long { is_guaranteed: true });
            }
        }
        // What the image, and of that the connection, leave when they have it.
        let left = self.free.checked_sub(units)?;
        let left_by_export = left.checked_sub(of_export.shared + units)?;
        (held.shared + units <= left_by_export.min(CONNECTION_UNITS)).then_some(Place::Shared)
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
            let mut nowhere = Use::default();
            let Units { free, free_long, exports, .. } = &mut *all;
            let of_export = exports.get_mut(self.export).unwrap_or(&mut nowhere);
            match self.place {
                Place::Own => held.own -= self.units,
                Place::Long { is_guaranteed } => {
                    held.has_long = false;
                    if is_guaranteed {
                        of_export.guaranteed -= self.units;
                    } else {
                        *free_long += self.units;
                        of_export.long -= self.units;
                    }
                }
                Place::Shared => {
                    held.shared -= self.units;
                    *free += self.units;
                    of_export.shared -= self.units;
                }
            }
            if let Some(count) = held.requests.get_mut(&self.export) {
                *count -= 1;
            }
            if held.is_gone {
                of_export.left -= 1;
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
        assert_eq!(shared.0.lock().exports, [Use::default()]);
    }

    #[tokio::test]
    async fn long_requests_of_an_image_get_their_room_in_order() {
        let shared = SharedMemory::new(1);
        {
            let mut all = shared.0.lock();
            (all.free, all.free_long) = (0, 4 * OWN_UNITS);
        }
        let memories: Vec<_> = (0..4).map(|_| Memory::new(&shared)).collect();
        let first = fits(&memories[0], 0, 2).await.expect("room");
        let long = memories[1].room(0, 3 << 20);
        tokio::pin!(long);
        let waits = async |what: std::pin::Pin<&mut dyn Future<Output = io::Result<Room>>>| {
            tokio::time::timeout(Duration::from_millis(20), what).await.is_err()
        };
        assert!(waits(long.as_mut()).await);
        drop(first);
        // It would have room, and comes later.
        assert!(fits(&memories[2], 0, 2).await.is_none());
        assert!(fits(&memories[2], 0, 1).await.is_some(), "its own memory has nothing to do with it");
        let next = memories[3].room(0, 2 << 20);
        tokio::pin!(next);
        assert!(waits(next.as_mut()).await);
        drop(long.await.expect("its turn"));
        drop(next.await.expect("its turn"));
        assert!(shared.0.lock().waiting[&0].is_empty(), "who gave up waits no more");
    }

    #[tokio::test]
    async fn requests_without_data_are_counted_too() {
        let memory = Memory::new(&SharedMemory::new(1));
        let (rooms, _) = hog(&memory, 0, 0).await;
        assert_eq!(rooms.len(), MAX_REQUESTS);
    }

    #[tokio::test]
    async fn nobody_takes_more_than_it_leaves() {
        let shared = SharedMemory::new(8);
        let mut held = Vec::new();
        for export in 0..8 {
            // The second connection of an image has what the first one leaves.
            for _ in 0..2 {
                let memory = Memory::new(&shared);
                while let Some(room) = fits(&memory, export, 32).await {
                    if room.place == Place::Shared {
                        let all = shared.0.lock();
                        let of_export = all.exports[export].shared;
                        assert!(of_export <= all.free, "{of_export} of an image, {} left", all.free);
                        let of_connection = lock(&memory.held).shared;
                        assert!(of_connection <= all.free - of_export, "{of_connection} of a connection");
                    }
                    held.push(room);
                }
                held.extend(fits(&memory, export, 0).await);
            }
        }
        assert!(shared.0.lock().free >= 512, "a part is left, whoever asked for it");
    }

    #[tokio::test]
    async fn what_has_no_data_waits_for_no_memory() {
        let shared = SharedMemory::new(1);
        let memory = Memory::new(&shared);
        let _held = [hog(&memory, 0, 32).await, hog(&Memory::new(&shared), 0, 1).await];
        let _small = hog(&memory, 0, 1).await;
        assert!(fits(&memory, 0, 1).await.is_none(), "its memory is used up");
        assert!(fits(&memory, 0, 0).await.is_some(), "a flush needs none");
    }

    #[tokio::test]
    async fn long_requests_of_many_connections_are_bounded_and_each_image_has_its_turn() {
        let shared = SharedMemory::new(2);
        let memories: Vec<_> = (0..MAX_REQUESTS).map(|_| Memory::new(&shared)).collect();
        let mut rooms = Vec::new();
        for memory in &memories {
            let units = (32 << 20) / UNIT;
            let permit = Arc::clone(&memory.requests).acquire_owned().await.expect("a permit");
            rooms.extend(memory.try_room(0, units, permit, None).ok());
        }
        let sum: u64 = rooms.iter().map(|r| r.units).sum();
        assert!(sum <= LONG_UNITS / 2 + SHARED_UNITS / 2, "{sum} units of one image");
        shared.0.lock().free_long = 0;
        let other = Memory::new(&shared);
        let turn = fits(&other, 1, 32).await.expect("an image's first long request always fits");
        assert_eq!(turn.place, Place::Long { is_guaranteed: true });
        drop(turn);
        assert_eq!(shared.0.lock().exports[1], Use::default());
    }

    #[tokio::test]
    async fn requests_that_outlive_their_connections_are_their_images() {
        let shared = SharedMemory::new(2);
        let mut left = Vec::new();
        for _ in 0..2 {
            assert!(shared.admits(0));
            let memory = Memory::new(&shared);
            left.extend(hog(&memory, 0, 0).await.0);
            drop(memory);
        }
        assert!(!shared.admits(0), "one more would be one too many");
        assert!(shared.admits(1), "another image has nothing to do with it");
        left.pop();
        assert!(shared.admits(0));
        drop(left);
        assert_eq!(shared.0.lock().exports[0], Use::default());
    }
}
