//! A file or block device as the store's medium.

use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use store::{Device, DeviceError, DeviceOp};

/// Plain positioned reads and writes through the page cache, and fdatasync as the flush. A write that must be durable at
/// once (a log record, read again only after a crash) goes past the page cache where the file system can do that, in one
/// call: nothing of it is written back a second time, and a checkpoint's pages do not have to be written with it.
///
/// The file is locked while open, so that two processes never use one store.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    len: u64,
    direct: Option<Direct>,
}

/// The same file opened without the page cache, and an aligned buffer.
#[derive(Debug)]
struct Direct {
    file: File,
    buffer: Mutex<Vec<u8>>,
    /// The file system took the flag but no write.
    refused: AtomicBool,
}

/// What direct writes are aligned to, in the file and in memory.
const ALIGN: usize = 4096;
/// Longer writes go through the page cache: they need no copy there, and their bytes cost more than the call.
const DIRECT_MAX: usize = 256 << 10;

/// Pieces of one pwritev call: what Linux takes at most.
const MAX_PIECES: usize = 1024;

impl FileDevice {
    /// Makes a sparse file of `len` bytes; an existing file is refused.
    pub fn create(path: &Path, len: u64) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len(len)?;
        Self::lock(file, path)
    }

    /// Opens a file or a block device for reading and writing.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        Self::lock(OpenOptions::new().read(true).write(true).open(path)?, path)
    }

    fn lock(file: File, path: &Path) -> std::io::Result<Self> {
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| std::io::Error::other("in use by another process"))?;
        // Seeking finds the length of block devices too, whose metadata says 0.
        let len = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        let flags = OFlags::DIRECT.bits() as i32;
        let direct = OpenOptions::new().write(true).custom_flags(flags).open(path).ok();
        let buffer = Mutex::new(Vec::new());
        let direct = direct.map(|file| Direct { file, buffer, refused: AtomicBool::new(false) });
        Ok(Self { file, len, direct })
    }

    /// Another handle of the file.
    pub(crate) fn handle(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }

    pub(crate) fn check(&self, op: DeviceOp, offset: u64, len: usize) -> Result<(), DeviceError> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(DeviceError::OutOfRange { op, offset, len: len as u64 }),
        }
    }
}

impl Direct {
    /// Writes and waits until it is durable; `false` when the file system does not do such writes.
    fn write(&self, offset: u64, pieces: &[&[u8]], total: usize) -> Result<bool, DeviceError> {
        if self.refused.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() < total + ALIGN {
            buffer.resize(total.next_power_of_two() + ALIGN, 0);
        }
        let start = buffer.as_ptr().align_offset(ALIGN);
        let Some(aligned) = buffer.get_mut(start..start + total) else { return Ok(false) };
        let mut rest = &mut *aligned;
        for piece in pieces {
            let (place, behind) = rest.split_at_mut(piece.len());
            place.copy_from_slice(piece);
            rest = behind;
        }
        let mut done = 0;
        while done < total {
            let left = [IoSlice::new(aligned.get(done..).unwrap_or_default())];
            match pwritev2(&self.file, &left, offset + done as u64, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(failed(DeviceOp::Write, offset, total, None)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                // A part was written, or the device wants another alignment: the page cache takes the whole.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                    self.refused.store(true, Ordering::Relaxed);
                    return Ok(false);
                }
                Err(e) => return Err(failed(DeviceOp::Write, offset, total, Some(e.raw_os_error()))),
            }
        }
        Ok(true)
    }
}

pub(crate) fn failed(op: DeviceOp, offset: u64, len: usize, errno: Option<i32>) -> DeviceError {
    DeviceError::Io { op, offset, len: len as u64, errno: errno.unwrap_or(Errno::IO.raw_os_error()) }
}

impl Device for FileDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check(DeviceOp::Read, offset, buf.len())?;
        let len = buf.len();
        self.file
            .read_exact_at(buf, offset)
            .map_err(|e| failed(DeviceOp::Read, offset, len, e.raw_os_error()))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.check(DeviceOp::Write, offset, data.len())?;
        self.file
            .write_all_at(data, offset)
            .map_err(|e| failed(DeviceOp::Write, offset, data.len(), e.raw_os_error()))
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        let total: usize = pieces.iter().map(|p| p.len()).sum();
        self.check(DeviceOp::Write, offset, total)?;
        let mut at = offset;
        for group in pieces.chunks(MAX_PIECES) {
            let mut slices: Vec<IoSlice<'_>> = group.iter().map(|p| IoSlice::new(p)).collect();
            let mut left = slices.as_mut_slice();
            while !left.is_empty() {
                match rustix::io::pwritev(&self.file, left, at) {
                    Ok(0) => return Err(failed(DeviceOp::Write, at, total, None)),
                    Ok(n) => {
                        at += n as u64;
                        IoSlice::advance_slices(&mut left, n);
                    }
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(failed(DeviceOp::Write, at, total, Some(e.raw_os_error()))),
                }
            }
        }
        Ok(())
    }

    fn write_durably(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        let total: usize = pieces.iter().map(|p| p.len()).sum();
        self.check(DeviceOp::Write, offset, total)?;
        let fits = total <= DIRECT_MAX && total % ALIGN == 0 && offset % ALIGN as u64 == 0;
        if let Some(direct) = self.direct.as_ref().filter(|_| fits) {
            if direct.write(offset, pieces, total)? {
                return Ok(());
            }
        }
        self.write_vectored_at(offset, pieces)?;
        self.flush()
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.file.sync_data().map_err(|e| failed(DeviceOp::Flush, 0, 0, e.raw_os_error()))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check(DeviceOp::Discard, offset, len as usize)?;
        use rustix::fs::FallocateFlags;
        // A hint: file systems that cannot punch holes keep the bytes.
        let _ = rustix::fs::fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset,
            len,
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectored_writes_land_one_after_the_other_and_ranges_are_checked() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("block");
        let dev = FileDevice::create(&path, 8192).expect("created");
        let many: Vec<[u8; 1]> = (0..4096u32).map(|i| [i as u8]).collect();
        let pieces: Vec<&[u8]> = many.iter().map(|p| p.as_slice()).collect();
        dev.write_vectored_at(4096, &pieces).expect("written");
        dev.flush().expect("flushed");
        let pages = [[7u8; 4096], [8u8; 4096]];
        dev.write_durably(0, &[&pages[0][..100], &pages[0][100..]])
            .expect("past the page cache, or through it");
        dev.write_durably(1, &[b"odd"]).expect("through the page cache");
        let mut back = vec![0u8; 8192];
        dev.read_at(0, &mut back).expect("read");
        assert!(back[0] == 7 && back[1..4] == *b"odd" && back[4..4096].iter().all(|b| *b == 7));
        assert!(matches!(dev.write_durably(4096, &[&pages[1], &[0]]), Err(DeviceError::OutOfRange { .. })));
        let mut back = vec![0u8; 4096];
        dev.read_at(4096, &mut back).expect("read");
        assert!(back.iter().enumerate().all(|(i, b)| *b == i as u8));
        assert!(matches!(dev.write_at(8000, &[0; 4096]), Err(DeviceError::OutOfRange { .. })));
        assert!(FileDevice::create(&path, 8192).is_err(), "an existing file is not overwritten");
        assert!(FileDevice::open(&path).is_err(), "locked while open");
        drop(dev);
        assert_eq!(FileDevice::open(&path).expect("opens").len(), 8192);
    }
}
