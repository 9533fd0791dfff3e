//! The growing buffer that values are encoded into.

use bytes::{BufMut, Bytes, BytesMut};

/// Appends wire forms; lengths of envelopes are filled in afterwards.
#[derive(Debug, Default, Clone)]
pub struct Writer {
    buf: BytesMut,
}

impl Writer {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_capacity(bytes: usize) -> Self {
        Self { buf: BytesMut::with_capacity(bytes) }
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

    pub fn into_bytes(self) -> Bytes {
        self.buf.freeze()
    }

    /// Appends raw bytes, without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.put_slice(bytes);
    }

    /// Appends `n` zero bytes.
    pub fn zeros(&mut self, n: usize) {
        self.buf.put_bytes(0, n);
    }

    /// Appends a u32 length and the bytes: Ceph's form of strings and buffers.
    ///
    /// A single item of 4 GiB or more has no wire form; it is our own fault and asserted.
    pub fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    /// Appends a collection's element count.
    pub fn count(&mut self, n: usize) {
        assert!(u32::try_from(n).is_ok(), "a collection of {n} elements has no wire form");
        self.buf.put_u32_le(n as u32);
    }

    /// Appends `version, compat, length` around what `body` writes. Source: ENCODE_START in src/include/encoding.h.
    pub fn envelope(&mut self, version: u8, compat: u8, body: impl FnOnce(&mut Self)) {
        self.buf.put_u8(version);
        self.buf.put_u8(compat);
        self.sized(body);
    }

    /// Appends a u32 byte length around what `body` writes.
    pub fn sized(&mut self, body: impl FnOnce(&mut Self)) {
        let at = self.buf.len();
        self.buf.put_u32_le(0);
        body(self);
        let len = (self.buf.len() - at - 4) as u32;
        self.patch_u32(at, len);
    }

    /// Overwrites four bytes at `at` that were written before.
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        if let Some(slot) = self.buf.get_mut(at..at + 4) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
    }

    pub fn u8(&mut self, v: u8) {
        self.buf.put_u8(v);
    }
    pub fn u16(&mut self, v: u16) {
        self.buf.put_u16_le(v);
    }
    pub fn u32(&mut self, v: u32) {
        self.buf.put_u32_le(v);
    }
    pub fn u64(&mut self, v: u64) {
        self.buf.put_u64_le(v);
    }
    pub fn i32(&mut self, v: i32) {
        self.buf.put_i32_le(v);
    }
    pub fn i64(&mut self, v: i64) {
        self.buf.put_i64_le(v);
    }
}
