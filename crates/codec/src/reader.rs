//! A bounded view of untrusted bytes.

use bytes::Bytes;

use crate::DecodeError;

/// Reads forward through a refcounted buffer. Every read checks what is left first; nothing here panics or allocates
/// more than the buffer holds. Blobs come out as slices of the same buffer, without a copy.
#[derive(Debug, Clone)]
pub struct Reader {
    buf: Bytes,
    pos: usize,
    end: usize,
}

impl Reader {
    pub fn new(buf: Bytes) -> Self {
        let end = buf.len();
        Self { buf, pos: 0, end }
    }

    /// Bytes not read yet.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.end.saturating_sub(self.pos)
    }

    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Bytes read so far, from the start of the buffer.
    pub fn position(&self) -> usize {
        self.pos
    }

    /// What was not read yet, without consuming it.
    pub fn rest(&self) -> Bytes {
        self.buf.slice(self.pos.min(self.end)..self.end)
    }

    /// Next byte without consuming it.
    pub fn peek_u8(&self) -> Result<u8, DecodeError> {
        if self.pos < self.end {
            if let Some(b) = self.buf.get(self.pos) {
                return Ok(*b);
            }
        }
        Err(DecodeError::Short { needed: 1, left: 0 })
    }

    #[inline]
    fn advance(&mut self, n: usize) -> Result<usize, DecodeError> {
        if n > self.remaining() {
            return Err(self.short(n));
        }
        let at = self.pos;
        self.pos += n;
        Ok(at)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        // A load of known length: `copy_from_slice` was a call for each field of a message.
        match self.buf.get(self.pos..self.end).and_then(|left| left.first_chunk()) {
            Some(found) => {
                self.pos += N;
                Ok(*found)
            }
            None => Err(self.short(N)),
        }
    }

    #[cold]
    fn short(&self, needed: usize) -> DecodeError {
        DecodeError::Short { needed: needed as u64, left: self.remaining() as u64 }
    }

    pub fn skip(&mut self, n: usize) -> Result<(), DecodeError> {
        self.advance(n).map(|_| ())
    }

    /// The next `n` bytes, sharing the buffer.
    #[inline]
    pub fn raw(&mut self, n: usize) -> Result<Bytes, DecodeError> {
        let at = self.advance(n)?;
        Ok(self.buf.slice(at..at + n))
    }

    /// A u32 length and that many bytes, sharing the buffer.
    #[inline]
    pub fn blob(&mut self) -> Result<Bytes, DecodeError> {
        let n = self.u32()? as usize;
        self.raw(n)
    }

    /// A u32 length and that many bytes of UTF-8, shown to `take` in place.
    #[inline]
    pub fn text<T>(&mut self, take: impl FnOnce(&str) -> T) -> Result<T, DecodeError> {
        let n = self.u32()? as usize;
        let at = self.advance(n)?;
        let raw = self.buf.get(at..at + n).unwrap_or_default();
        std::str::from_utf8(raw).map(take).map_err(|_| DecodeError::NotUtf8 { what: "string" })
    }

    /// A u32 element count, refused when the rest of the buffer cannot hold that many elements of `min_size` bytes.
    #[inline]
    pub fn count(&mut self, what: &'static str, min_size: usize) -> Result<usize, DecodeError> {
        let claimed = u64::from(self.u32()?);
        let bound = (self.remaining() / min_size.max(1)) as u64;
        if claimed > bound {
            return Err(DecodeError::TooLarge { what, claimed, bound });
        }
        Ok(claimed as usize)
    }

    /// Runs `body` on the next `n` bytes only and leaves the reader behind them, whatever `body` left unread.
    pub fn bounded<T>(
        &mut self,
        n: usize,
        body: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        if n > self.remaining() {
            return Err(self.short(n));
        }
        let (outer, inner) = (self.end, self.pos + n);
        self.end = inner;
        let result = body(self);
        self.end = outer;
        self.pos = inner;
        result
    }

    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(u8::from_le_bytes)
    }
    #[inline]
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }
    #[inline]
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.array().map(i32::from_le_bytes)
    }
    #[inline]
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.array().map(i64::from_le_bytes)
    }
}
