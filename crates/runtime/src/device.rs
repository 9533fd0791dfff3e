//! A file or block device as the store's medium.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, FlockOperation, OFlags, flock};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use store::{Device, DeviceError, DeviceOp};

use crate::lanes::{Lanes, Way};

/// Plain positioned reads and writes through the page cache, and fdatasync as the flush. A write that must be
/// durable at once (a log record, read again only after a crash) goes past the page cache where the file
/// system can do that, in one call: nothing of it is written back a second time, and a checkpoint's pages do
/// not have to be written with it.
///
/// Both ways on one file are safe for three reasons:
///
/// 1. `Lanes` keeps the two ways out of each other's folios.
/// 2. Should a direct write fail to remove a folio from the cache all the same, Linux marks the file with an
///    EIO. Every handle is told of it by its next flush, before anything is acknowledged or published.
/// 3. No block is read through the cache before its commit is through, except by a read that was planned
///    when the block still belonged to another object. What such a read brings into the cache leaves with the
///    folios of the write, and the read finds by the checksum that the block is not its own any more.
///
/// The file is locked while any handle of it is open, so that a store is never used twice at a time, by two
/// processes or by two lives of an OSD in one.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    len: u64,
    direct: Option<Direct>,
    shared: Arc<Shared>,
}

/// What all handles of a device share.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// The opening of the file that holds the lock.
    locked: File,
    lanes: Lanes,
}

/// The same file opened without the page cache, and an aligned buffer.
#[derive(Debug)]
struct Direct {
    file: File,
    buffer: Mutex<Vec<u8>>,
    /// The file system took O_DIRECT and then refused a write: no other is tried.
    refused: AtomicBool,
}

/// What direct writes are aligned to, in the file and in memory.
const ALIGN: usize = 4096;
/// A longer write is not copied to align it: it goes through the page cache unless it lies aligned already.
const DIRECT_MAX: usize = 256 << 10;

/// Of a write that is at least so long the device is given each part as soon as the page cache has it, so
/// that it does not stand still until the flush.
const STRIDE: usize = 2 << 20;

/// A longer read is not looked for in the page cache: to copy and check so much takes as long as a device
/// takes.
const AT_ONCE_MAX: usize = 128 << 10;

/// Pieces of one pwritev call: what Linux takes at most.
const MAX_PIECES: usize = 1024;

impl FileDevice {
    /// Makes a sparse file of `len` bytes; an existing file is refused.
    pub fn create(path: &Path, len: u64) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len(len)?;
        file.sync_all()?;
        keep_name(path)?;
        Self::lock(file, path)
    }

    /// Opens a file or a block device for reading and writing, and drops what the page cache has of it, so
    /// that reads give what is on the medium.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let device = Self::lock(OpenOptions::new().read(true).write(true).open(path)?, path)?;
        drop_cache(path)?;
        Ok(device)
    }

    /// A handle for another thread. It opens the file once more, because Linux reports a failed write-back
    /// once to each opening of a file: with a `dup`, only one of the two threads would hear of it.
    pub fn another(&self) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(&self.shared.path)?;
        let (mine, theirs) = (self.shared.locked.metadata()?, file.metadata()?);
        if (mine.dev(), mine.ino()) != (theirs.dev(), theirs.ino()) {
            return Err(std::io::Error::other("another file was put in its place while it was open"));
        }
        Self::with(file, Arc::clone(&self.shared))
    }

    fn lock(file: File, path: &Path) -> std::io::Result<Self> {
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => {
                std::io::Error::other("in use (it is locked by another process or daemon)")
            }
            error => error.into(),
        })?;
        let shared = Shared { path: path.to_owned(), locked: file.try_clone()?, lanes: Lanes::default() };
        Self::with(file, Arc::new(shared))
    }

    fn with(file: File, shared: Arc<Shared>) -> std::io::Result<Self> {
        // Seeking finds the length of block devices too, whose metadata says 0.
        let len = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        let path = &shared.path;
        let flags = OFlags::DIRECT.bits() as i32;
        let direct = OpenOptions::new().write(true).custom_flags(flags).open(path).ok();
        let buffer = Mutex::new(Vec::new());
        let direct = direct.map(|file| Direct { file, buffer, refused: AtomicBool::new(false) });
        Ok(Self { file, len, direct, shared })
    }

    /// The file itself, for the test medium.
    #[cfg(feature = "test-medium")]
    pub(crate) fn file(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }

    /// Writes past the page cache; `false`, and perhaps a part written, when that cannot be done.
    fn write_direct(
        &self,
        offset: u64,
        pieces: &[&[u8]],
        flags: ReadWriteFlags,
    ) -> Result<bool, DeviceError> {
        let total: usize = pieces.iter().map(|p| p.len()).sum();
        self.check(DeviceOp::Write, offset, total)?;
        let fits = total % ALIGN == 0 && offset % ALIGN as u64 == 0;
        let _lane = self.shared.lanes.enter(Way::Direct, offset, total);
        match self.direct.as_ref().filter(|_| fits) {
            Some(direct) if total <= DIRECT_MAX => direct.write_copy(offset, pieces, total, flags),
            Some(direct) if pieces.iter().all(|p| is_aligned(p)) => {
                direct.write(offset, pieces, total, flags)
            }
            _ => Ok(false),
        }
    }

    pub(crate) fn check(&self, op: DeviceOp, offset: u64, len: usize) -> Result<(), DeviceError> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(DeviceError::OutOfRange { op, offset, len: len as u64 }),
        }
    }
}

/// Drops what the page cache has of a file, so that reads give what is on the medium. After a failed
/// write-back the cache goes on showing data that never reached the medium.
pub fn drop_cache(path: &Path) -> std::io::Result<()> {
    // A handle of its own, so that the error of an earlier write-back is reported here and not to the
    // handles of the store.
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if let Err(error) = file.sync_data() {
        tracing::warn!(%error, "{}: not all that was written earlier has reached the medium", path.display());
    }
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    Ok(())
}

/// Makes the directory entry of a new file durable, and that of its folder, which may be as new. Otherwise a
/// loss of power could take the file, with all that was synced in it.
pub fn keep_name(path: &Path) -> std::io::Result<()> {
    let whole = path.canonicalize()?;
    whole.ancestors().skip(1).take(2).try_for_each(|folder| match File::open(folder) {
        Ok(folder) => folder.sync_all(),
        // A folder that this process may not open holds no entry that it has just made.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    })
}

/// Whether a device can take these bytes from where they are.
fn is_aligned(piece: &[u8]) -> bool {
    piece.as_ptr().addr() % ALIGN == 0 && piece.len() % ALIGN == 0
}

impl Direct {
    /// Writes past the page cache, from an aligned copy; `false` when the file system does not do such
    /// writes.
    fn write_copy(
        &self,
        offset: u64,
        pieces: &[&[u8]],
        total: usize,
        flags: ReadWriteFlags,
    ) -> Result<bool, DeviceError> {
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
        self.write(offset, &[&*aligned], total, flags)
    }

    /// The same for pieces that lie aligned already.
    fn write(
        &self,
        offset: u64,
        pieces: &[&[u8]],
        total: usize,
        flags: ReadWriteFlags,
    ) -> Result<bool, DeviceError> {
        if self.refused.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match write_all(&self.file, offset, pieces, flags) {
            Ok(()) => Ok(true),
            // The device wants another alignment, and a part may be written: the page cache takes the whole.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                self.refused.store(true, Ordering::Relaxed);
                Ok(false)
            }
            Err(e) => Err(failed(DeviceOp::Write, offset, total, Some(e.raw_os_error()))),
        }
    }
}

fn write_all(file: &File, offset: u64, pieces: &[&[u8]], flags: ReadWriteFlags) -> Result<(), Errno> {
    let mut at = offset;
    for group in pieces.chunks(MAX_PIECES) {
        let mut slices: Vec<IoSlice<'_>> = group.iter().map(|p| IoSlice::new(p)).collect();
        let mut left = slices.as_mut_slice();
        while !left.is_empty() {
            match pwritev2(file, left, at, flags) {
                Ok(0) => return Err(Errno::IO),
                Ok(n) => {
                    at += n as u64;
                    IoSlice::advance_slices(&mut left, n);
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

/// Writes through the page cache, and has the device begin with what the cache has meanwhile.
fn write_behind(file: &File, offset: u64, pieces: &[&[u8]]) -> Result<(), Errno> {
    let mut at = offset;
    let mut part: Vec<&[u8]> = Vec::new();
    let (mut len, mut pieces) = (0, pieces.iter().flat_map(|p| p.chunks(STRIDE)).peekable());
    while let Some(piece) = pieces.next() {
        part.push(piece);
        len += piece.len();
        if len >= STRIDE || pieces.peek().is_none() {
            write_all(file, at, &part, ReadWriteFlags::empty())?;
            // Of all that safe code can ask for only this starts to write and does not wait. What is being
            // written stays in the cache, though among the first to go when memory is short. A hint: the
            // flush does what it does not.
            let _ = rustix::fs::fadvise(file, at, NonZeroU64::new(len as u64), Advice::DontNeed);
            at += len as u64;
            (len, part) = (0, Vec::new());
        }
    }
    Ok(())
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

    fn read_append(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), DeviceError> {
        self.check(DeviceOp::Read, offset, len)?;
        let end = out.len() + len;
        out.reserve_exact(len);
        while out.len() < end {
            let (at, left) = (offset + (len - (end - out.len())) as u64, end - out.len());
            // Never more than was asked for, although the buffer may have more room.
            let got = match left == out.capacity() - out.len() {
                true => rustix::io::pread(&self.file, spare_capacity(out), at),
                false => {
                    let start = out.len();
                    out.resize(end, 0);
                    let got = rustix::io::pread(&self.file, out.get_mut(start..).unwrap_or_default(), at);
                    out.truncate(start + got.unwrap_or_default());
                    got
                }
            };
            match got {
                Ok(0) => return Err(failed(DeviceOp::Read, offset, len, None)),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(failed(DeviceOp::Read, offset, len, Some(e.raw_os_error()))),
            }
        }
        Ok(())
    }

    fn read_at_once(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<bool, DeviceError> {
        self.check(DeviceOp::Read, offset, len)?;
        if len > AT_ONCE_MAX {
            return Ok(false);
        }
        let start = out.len();
        out.resize(start + len, 0);
        let buffer = out.get_mut(start..).unwrap_or_default();
        match preadv2(&self.file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) {
            Ok(got) if got == len => return Ok(true),
            // The cache has a part or nothing of it. A read that failed is made again by the usual way, which
            // tells why.
            _ => out.truncate(start),
        }
        Ok(false)
    }

    fn will_read(&self, ranges: &[(u64, u64)]) {
        for (offset, len) in ranges {
            let _ = rustix::fs::fadvise(&self.file, *offset, NonZeroU64::new(*len), Advice::WillNeed);
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.check(DeviceOp::Write, offset, data.len())?;
        let _lane = self.shared.lanes.enter(Way::Cached, offset, data.len());
        self.file
            .write_all_at(data, offset)
            .map_err(|e| failed(DeviceOp::Write, offset, data.len(), e.raw_os_error()))
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        let total: usize = pieces.iter().map(|p| p.len()).sum();
        self.check(DeviceOp::Write, offset, total)?;
        let _lane = self.shared.lanes.enter(Way::Cached, offset, total);
        let done = match total < STRIDE {
            true => write_all(&self.file, offset, pieces, ReadWriteFlags::empty()),
            false => write_behind(&self.file, offset, pieces),
        };
        done.map_err(|e| failed(DeviceOp::Write, offset, total, Some(e.raw_os_error())))
    }

    fn write_unread_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        match self.write_direct(offset, pieces, ReadWriteFlags::empty())? {
            true => Ok(()),
            false => self.write_vectored_at(offset, pieces),
        }
    }

    fn write_durably(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        if self.write_direct(offset, pieces, ReadWriteFlags::DSYNC)? {
            return Ok(());
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

    /// So many bytes that begin a page, or not.
    fn text(len: usize, aligned: bool) -> (Vec<u8>, usize) {
        let bytes: Vec<u8> =
            (0..(len + 2 * ALIGN) as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let start = bytes.as_ptr().align_offset(ALIGN) + usize::from(!aligned);
        (bytes, start)
    }

    #[test]
    fn long_writes_land_whole_whichever_way_they_take() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (len, at) = (2 * STRIDE + 3 * ALIGN, 5 * ALIGN as u64);
        let dev = FileDevice::create(&dir.path().join("block"), (len + 8 * ALIGN) as u64).expect("created");
        for (aligned, unread) in [(true, true), (false, true), (true, false), (false, false)] {
            let (bytes, start) = text(len, aligned);
            let bytes = &bytes[start..start + len];
            // Pieces of whole blocks, one of them longer than what the device is given at once, and an empty
            // one.
            let (head, rest) = bytes.split_at(ALIGN);
            let (body, tail) = rest.split_at(STRIDE + 7 * ALIGN);
            let pieces = [head, body, &[], tail];
            dev.write_vectored_at(at, &[&vec![9; len]]).expect("something else is there");
            match unread {
                true => dev.write_unread_at(at, &pieces),
                false => dev.write_vectored_at(at, &pieces),
            }
            .expect("written");
            dev.flush().expect("flushed");
            let mut back = vec![0; len];
            dev.read_at(at, &mut back).expect("read");
            assert!(back == bytes, "aligned {aligned}, unread {unread}");
        }
        let mut around = [7; ALIGN];
        for outside in [at - ALIGN as u64, at + len as u64] {
            dev.read_at(outside, &mut around).expect("read");
            assert!(around.iter().all(|b| *b == 0));
        }
        let (bytes, start) = text(len, true);
        let past = dev.write_unread_at(at + 4 * ALIGN as u64, &[&bytes[start..start + len]]);
        assert!(matches!(past, Err(DeviceError::OutOfRange { .. })));
    }

    #[test]
    fn what_is_read_at_once_is_whole_or_nothing() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("block");
        let dev = FileDevice::create(&path, 1 << 20).expect("created");
        let (bytes, start) = text(8 * ALIGN, true);
        let bytes = &bytes[start..start + 8 * ALIGN];
        dev.write_at(4096, bytes).expect("written");
        dev.flush().expect("flushed");
        let mut seen = Vec::new();
        for round in 0..40 {
            if round % 2 == 1 {
                drop_cache(&path).expect("dropped");
            }
            let mut out = b"before".to_vec();
            let there = dev.read_at_once(4096, bytes.len(), &mut out).expect("asked");
            seen.push(there);
            assert_eq!(&out[..6], b"before");
            assert!(if there { &out[6..] == bytes } else { out.len() == 6 }, "round {round}");
            dev.read_append(4096, bytes.len(), &mut out).expect("read");
        }
        let mut byte = [0];
        let asked = preadv2(&dev.file, &mut [IoSliceMut::new(&mut byte)], 4096, ReadWriteFlags::NOWAIT);
        let cannot_say = asked == Err(Errno::OPNOTSUPP);
        assert!(
            cannot_say || seen.iter().step_by(2).any(|there| *there),
            "it was in the cache before it was dropped"
        );
        let mut out = Vec::new();
        assert_eq!(dev.read_at_once(0, AT_ONCE_MAX + 4096, &mut out), Ok(false), "it takes long in any case");
        let past = dev.read_at_once(1 << 20, 4096, &mut out);
        assert!(matches!(past, Err(DeviceError::OutOfRange { .. })));
    }

    #[test]
    fn a_write_through_the_cache_waits_for_a_direct_one_in_its_folio_and_the_other_way_round() {
        let dir = tempfile::tempdir().expect("tempdir");
        let dev = FileDevice::create(&dir.path().join("block"), 4 << 20).expect("created");
        let other = dev.another().expect("another handle");
        let page = [7u8; ALIGN];
        type Write = fn(&FileDevice, &[u8]) -> Result<(), DeviceError>;
        let cached: [Write; 2] =
            [|dev, page| dev.write_at(0, page), |dev, page| dev.write_vectored_at(0, &[page])];
        let direct: [Write; 2] =
            [|dev, page| dev.write_durably(0, &[page]), |dev, page| dev.write_unread_at(0, &[page])];
        for (way, writes) in [(Way::Direct, cached), (Way::Cached, direct)] {
            for write in writes {
                let lane = dev.shared.lanes.enter(way, 8192, 4096);
                std::thread::scope(|scope| {
                    let writer = scope.spawn(|| write(&other, &page));
                    while dev.shared.lanes.waiting() == 0 && !writer.is_finished() {
                        std::thread::yield_now();
                    }
                    assert!(!writer.is_finished(), "a write beside one that is {way:?}");
                    drop(lane);
                    writer.join().expect("no panic").expect("written");
                });
            }
        }
    }

    #[test]
    fn names_are_kept_of_files_that_are_there() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("block");
        assert!(keep_name(&path).is_err(), "there is no such file");
        std::fs::write(&path, "x").expect("written");
        keep_name(&path).expect("its folders are synced");
    }

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
        for room in [8192, 4096 + 1, 1] {
            let mut grown = Vec::with_capacity(room);
            grown.push(9);
            dev.read_append(0, 8191, &mut grown).expect("read");
            assert!(grown[0] == 9 && grown[1..] == back[..8191], "{room}");
        }
        assert!(dev.read_append(1, 8192, &mut Vec::new()).is_err());
        let mut back = vec![0u8; 4096];
        dev.read_at(4096, &mut back).expect("read");
        assert!(back.iter().enumerate().all(|(i, b)| *b == i as u8));
        assert!(matches!(dev.write_at(8000, &[0; 4096]), Err(DeviceError::OutOfRange { .. })));
        assert!(FileDevice::create(&path, 8192).is_err(), "an existing file is not overwritten");
        assert!(FileDevice::open(&path).is_err(), "locked while open");
        let other = dev.another().expect("another handle");
        drop(dev);
        assert!(FileDevice::open(&path).is_err(), "locked by any handle");
        drop(other);
        assert_eq!(FileDevice::open(&path).expect("opens").len(), 8192);
    }
}
