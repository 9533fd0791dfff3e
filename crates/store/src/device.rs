//! What the store asks of its medium: reads, writes that may wait for a flush or are durable at once,
//! flushes, and hints.

use bytes::Bytes;

/// A block device or a file of fixed length. The store opens nothing itself.
///
/// Assumed of the medium: a write that returned is seen by later reads; a flush that returned makes every
/// write that returned before the flush began survive power loss; without a flush each 512-byte sector of a
/// write is kept or lost on its own, in any order. Offsets and lengths are multiples of 4 KiB in every call
/// the store makes.
///
/// Threads that flush have a handle each: a failure to write back is told to every handle that flushes behind
/// it, not only to the first.
pub trait Device: Send + Sync {
    /// Fills `buf` from `offset` bytes.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError>;

    /// Appends `len` bytes from `offset` bytes to `out`, which has room for them. Where the device can, they
    /// are not overwritten before they are read.
    fn read_append(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), DeviceError> {
        let start = out.len();
        out.resize(start + len, 0);
        self.read_at(offset, out.get_mut(start..).unwrap_or_default())
    }

    /// The same as bytes of their own. A device in memory may share what it has.
    fn read_bytes(&self, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
        let mut out = Vec::with_capacity(len);
        self.read_append(offset, len, &mut out)?;
        Ok(out.into())
    }

    /// As `read_append` when that takes no longer than a copy in memory; else `false`, and `out` is as
    /// before. A device that does not know reads.
    fn read_at_once(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<bool, DeviceError> {
        self.read_append(offset, len, out).map(|()| true)
    }

    /// These `(offset, length)` ranges in bytes will be read soon, in any order: a device that can serves
    /// them side by side from now on. A hint that may do nothing.
    fn will_read(&self, ranges: &[(u64, u64)]) {
        let _ = ranges;
    }

    /// Writes all of `data` at `offset` bytes; durable only after a flush.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError>;

    /// Writes the pieces one after the other, starting at `offset` bytes. Pieces may have any length, also
    /// none, and be more than one system call takes; their sum is a multiple of 4 KiB. The default joins them
    /// into one buffer.
    fn write_vectored_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        match pieces {
            [one] => self.write_at(offset, one),
            many => self.write_at(offset, &many.concat()),
        }
    }

    /// Writes as `write_vectored_at` does what is hardly ever read: it need not stay in any cache.
    fn write_unread_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        self.write_vectored_at(offset, pieces)
    }

    /// Writes as `write_vectored_at` does and makes this one write durable; of others it says nothing.
    fn write_durably(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        self.write_vectored_at(offset, pieces)?;
        self.flush()
    }

    /// Makes all earlier writes durable. After a failed flush nothing is known about them: the store stops
    /// for good.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Length in bytes; does not change while the store is open.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The range's content is no longer needed; a hint that may do nothing.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let _ = (offset, len);
        Ok(())
    }
}

/// Which call to the device failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceOp {
    Read,
    Write,
    Flush,
    Discard,
}

/// The device did not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The operating system's errno for a failed call; offset and length in bytes, both 0 for a flush.
    #[error("device {op:?} at {offset} of {len} bytes failed with errno {errno}")]
    Io { op: DeviceOp, offset: u64, len: u64, errno: i32 },
    /// A range past the end of the device.
    #[error("device {op:?} at {offset} of {len} bytes is past the end")]
    OutOfRange { op: DeviceOp, offset: u64, len: u64 },
    /// An earlier write or flush failed, perhaps another thread's: what is durable is unknown.
    #[error("device {op:?} refused: the device is closed, for an earlier write or flush failed")]
    Closed { op: DeviceOp },
}

impl DeviceError {
    /// Whether the medium cannot give back what lies there; the device may be sound elsewhere.
    pub(crate) fn is_bad_sector(&self) -> bool {
        // EIO, ENODATA (a medium error), EILSEQ (a protection error), as Linux's block layer tells them.
        matches!(self, Self::Io { op: DeviceOp::Read, errno: 5 | 61 | 84, .. })
    }
}
