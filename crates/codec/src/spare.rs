//! Large receive buffers, kept for the next large frame: memory that is touched for the first time costs as much as copying
//! into it.
//!
//! Invariants:
//! 1. What is kept belongs to nobody else.
//! 2. It is at most `MAX_BYTES`, and what two calls of `age` in a row found unused is given back to the allocator.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

/// All together.
const MAX_BYTES: usize = 32 << 20;
/// Smaller buffers are left to the allocator.
const LEAST: usize = 1 << 20;
/// Capacities are multiples of this, so that frames of nearly the same length share buffers, and little is left behind the
/// frame: who reads on into that keeps the whole buffer from being used again.
const STEP: usize = 8 << 10;

#[derive(Debug, Default)]
struct Spare {
    /// The last one is the next to be taken.
    buffers: Vec<BytesMut>,
    bytes: usize,
    /// How many were there at least since the last call of `age`.
    unused: usize,
}

static SPARE: Mutex<Spare> = Mutex::new(Spare { buffers: Vec::new(), bytes: 0, unused: 0 });

fn spare() -> MutexGuard<'static, Spare> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An empty buffer with room for `len` bytes.
pub fn buffer(len: usize) -> BytesMut {
    if len < LEAST {
        return BytesMut::with_capacity(len);
    }
    let capacity = len.next_multiple_of(STEP);
    let found = spare().take(capacity);
    found.unwrap_or_else(|| BytesMut::with_capacity(capacity))
}

/// Keeps the buffer that these bytes lie in, unless others hold parts of it.
pub(crate) fn give_back(bytes: Bytes) {
    if bytes.len() < LEAST {
        return;
    }
    let Ok(mut buffer) = bytes.try_into_mut() else { return };
    buffer.clear();
    // Back to the front of its memory, which the bytes may have begun behind.
    let _ = buffer.try_reclaim(buffer.capacity() + 1);
    if buffer.capacity() % STEP == 0 {
        spare().put(buffer);
    }
}

/// Call it now and then: gives back what was not needed since the last call.
pub fn age() {
    let unused = spare().age();
    drop(unused);
}

/// What is kept, in bytes.
pub fn kept_bytes() -> usize {
    spare().bytes
}

impl Spare {
    fn take(&mut self, capacity: usize) -> Option<BytesMut> {
        let at = self.buffers.iter().rposition(|b| b.capacity() == capacity)?;
        let buffer = self.buffers.remove(at);
        self.bytes -= buffer.capacity();
        self.unused = self.unused.min(self.buffers.len());
        Some(buffer)
    }

    fn put(&mut self, buffer: BytesMut) {
        if self.bytes + buffer.capacity() <= MAX_BYTES {
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }

    fn age(&mut self) -> Vec<BytesMut> {
        let old: Vec<BytesMut> = self.buffers.drain(..self.unused.min(self.buffers.len())).collect();
        self.bytes -= old.iter().map(BytesMut::capacity).sum::<usize>();
        self.unused = self.buffers.len();
        old
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Buf, BufMut};

    use super::*;

    fn full(capacity: usize) -> BytesMut {
        let mut buffer = BytesMut::with_capacity(capacity);
        buffer.put_bytes(1, capacity);
        buffer
    }

    #[test]
    fn a_buffer_is_used_again_when_nobody_else_holds_a_part_of_it() {
        let filled = || {
            let mut buffer = buffer(LEAST + 5);
            assert_eq!(buffer.capacity(), LEAST + STEP);
            let at = buffer.as_ptr().addr();
            buffer.put_bytes(7, 100 + LEAST);
            // What is before the data, and the room behind it.
            buffer.advance(100);
            let data = buffer.split().freeze();
            (at, buffer, data)
        };
        let (_, room, data) = filled();
        let part = data.slice(..10);
        give_back(data);
        assert_eq!(kept_bytes(), 0, "a part of it is still in use");
        drop((room, part));
        let (at, room, data) = filled();
        drop(room);
        give_back(data);
        assert_eq!(kept_bytes(), LEAST + STEP);
        let again = buffer(LEAST + STEP);
        assert!(again.is_empty() && again.capacity() == LEAST + STEP);
        assert_eq!((again.as_ptr().addr(), kept_bytes()), (at, 0));
    }

    #[test]
    fn what_is_kept_is_bounded_and_goes_when_it_is_not_needed() {
        let mut spare = Spare::default();
        for _ in 0..2 * MAX_BYTES / LEAST {
            spare.put(full(LEAST));
        }
        assert_eq!((spare.bytes, spare.buffers.len()), (MAX_BYTES, MAX_BYTES / LEAST));
        assert!(spare.take(LEAST + STEP).is_none());
        assert_eq!(spare.age().len(), 0, "they came since");
        let used: Vec<BytesMut> = std::iter::from_fn(|| spare.take(LEAST)).take(3).collect();
        used.into_iter().for_each(|b| spare.put(b));
        assert_eq!(spare.age().len(), MAX_BYTES / LEAST - 3);
        assert_eq!((spare.bytes, spare.age().len()), (3 * LEAST, 3));
        assert_eq!((spare.bytes, spare.age().len()), (0, 0));
    }
}
