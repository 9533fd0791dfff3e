//! The growing buffer that values are encoded into.

use std::cell::Cell;

use bytes::Bytes;

/// What the first byte makes room for: most small structures fit, so that they grow once.
const FIRST_BYTES: usize = 128;

/// A thread's buffer for `Writer::collect` is kept up to this size, and empty between calls.
const KEPT_BYTES: usize = 4096;

thread_local! {
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Appends wire forms; lengths of envelopes are filled in afterwards.
///
/// A `Vec`, whose appends of a known length become plain stores; those of `BytesMut` are calls (a third of the
/// instructions of a small write went there).
#[derive(Debug, Default, Clone)]
pub struct Writer {
    buf: Vec<u8>,
}

impl Writer {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_capacity(bytes: usize) -> Self {
        Self { buf: Vec::with_capacity(bytes) }
    }

    pub fn len(&self) -> usize {
        self.buf.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    /// What was written, in a buffer of just that size: many of them are kept for long.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from(self.buf.into_boxed_slice())
    }

    /// What `encode` writes, as one buffer of just that size. The growing happens in a buffer that the thread keeps: small
    /// values, of which a write encodes a dozen, cost one allocation instead of three.
    pub fn collect(encode: impl FnOnce(&mut Self)) -> Bytes {
        let mut w = Self { buf: KEPT.take() };
        encode(&mut w);
        if w.buf.capacity() > KEPT_BYTES {
            return w.into_bytes();
        }
        let bytes = Bytes::copy_from_slice(&w.buf);
        w.buf.clear();
        KEPT.set(w.buf);
        bytes
    }

    /// The same where it is known about how many bytes there will be: what is long does not grow by doubling.
    pub fn collect_about(bytes: usize, encode: impl FnOnce(&mut Self)) -> Bytes {
        if bytes <= KEPT_BYTES {
            return Self::collect(encode);
        }
        let mut w = Self::with_capacity(bytes);
        encode(&mut w);
        w.into_bytes()
    }

    /// Shows `read` what `encode` writes, without keeping it: no allocation at all.
    pub fn pass<T>(encode: impl FnOnce(&mut Self), read: impl FnOnce(&[u8]) -> T) -> T {
        let mut w = Self { buf: KEPT.take() };
        encode(&mut w);
        let result = read(&w.buf);
        if w.buf.capacity() <= KEPT_BYTES {
            w.buf.clear();
            KEPT.set(w.buf);
        }
        result
    }

    /// Appends raw bytes, without a length.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.buf.extend_from_slice(bytes);
    }

    #[inline]
    fn make_room(&mut self, bytes: usize) {
        if self.buf.capacity() - self.buf.len() < bytes {
            self.grow(bytes);
        }
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.buf.reserve(bytes.max(FIRST_BYTES));
    }

    #[inline]
    pub(crate) fn fixed<const N: usize>(&mut self, bytes: [u8; N]) {
        self.make_room(N);
        self.buf.extend_from_slice(&bytes);
    }

    /// Appends `n` zero bytes.
    pub fn zeros(&mut self, n: usize) {
        self.buf.resize(self.buf.len() + n, 0);
    }

    /// Appends a u32 length and the bytes: Ceph's form of strings and buffers.
    ///
    /// A single item of 4 GiB or more has no wire form; it is our own fault and asserted.
    #[inline]
    pub fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    /// Appends a collection's element count.
    #[inline]
    pub fn count(&mut self, n: usize) {
        assert!(u32::try_from(n).is_ok(), "a collection of {n} elements has no wire form");
        self.u32(n as u32);
    }

    /// Appends `version, compat, length` around what `body` writes. Source: ENCODE_START in src/include/encoding.h.
    pub fn envelope(&mut self, version: u8, compat: u8, body: impl FnOnce(&mut Self)) {
        self.fixed([version, compat]);
        self.sized(body);
    }

    /// Appends a u32 byte length around what `body` writes.
    #[inline]
    pub fn sized(&mut self, body: impl FnOnce(&mut Self)) {
        let at = self.buf.len();
        self.u32(0);
        body(self);
        let len = (self.buf.len() - at - 4) as u32;
        self.patch_u32(at, len);
    }

    /// Overwrites four bytes at `at` that were written before.
    #[inline]
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        if let Some(slot) = self.buf.get_mut(at..at + 4) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
    }

    #[inline]
    pub fn u8(&mut self, v: u8) {
        self.fixed(v.to_le_bytes());
    }
    #[inline]
    pub fn u16(&mut self, v: u16) {
        self.fixed(v.to_le_bytes());
    }
    #[inline]
    pub fn u32(&mut self, v: u32) {
        self.fixed(v.to_le_bytes());
    }
    #[inline]
    pub fn u64(&mut self, v: u64) {
        self.fixed(v.to_le_bytes());
    }
    #[inline]
    pub fn i32(&mut self, v: i32) {
        self.fixed(v.to_le_bytes());
    }
    #[inline]
    pub fn i64(&mut self, v: i64) {
        self.fixed(v.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collecting_may_nest_and_keeps_nothing_of_what_was_written_before() {
        let inner = |n: usize| Writer::collect(|w| w.zeros(n));
        let outer = Writer::collect(|w| {
            w.u8(1);
            w.blob(&inner(3));
            w.blob(&inner(2 * KEPT_BYTES));
            w.u8(2);
        });
        assert_eq!(outer.len(), 2 + 7 + 4 + 2 * KEPT_BYTES);
        assert_eq!((outer.first(), outer.last()), (Some(&1), Some(&2)));
        assert!(Writer::collect(|_| {}).is_empty());
        for about in [0, 3, KEPT_BYTES, 2 * KEPT_BYTES] {
            let long = Writer::collect_about(about, |w| w.zeros(KEPT_BYTES + 1));
            assert_eq!(long.len(), KEPT_BYTES + 1, "{about} bytes were a guess");
        }
        assert_eq!(Writer::pass(|w| w.u16(0x0102), <[u8]>::to_vec), [2, 1]);
        assert!(Writer::pass(|_| {}, <[u8]>::is_empty));
        assert_eq!(Writer::collect(|w| w.u16(0x0102)).as_ref(), [2, 1]);
    }
}
