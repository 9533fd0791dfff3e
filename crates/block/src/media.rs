//! The cache's file: opened by one process alone, written in vectors, flushed.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use writeback::{Log, Media, MediaWrite, OpenError};

/// Buffers of one call: what Linux takes at most.
const MAX_SLICES: usize = 1024;

/// The cache's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: in use by another process")]
    InUse { path: PathBuf },
    #[error("{path}: {source}")]
    Log { path: PathBuf, source: OpenError },
}

/// A cache's file, read but not used yet: what it holds may have to be proved, or given up, first.
#[derive(Debug)]
pub struct CacheFile {
    pub(crate) media: MediaFile,
    pub(crate) log: Log,
    path: PathBuf,
}

impl CacheFile {
    /// Opens the file of the image `identity`, making one of `new_size` bytes when there is none. Nobody else opens it while
    /// this, or the cache made of it, lives.
    ///
    /// # Errors
    /// The file is another image's, damaged, in use, or cannot be read or made.
    pub fn open(path: &Path, identity: &str, new_size: u64) -> Result<Self, MediaError> {
        let (media, log) = MediaFile::open(path, identity, new_size)?;
        let mut file = Self { media, log, path: path.to_owned() };
        if file.log.is_claimed() && file.dirty_records() == 0 {
            let settled = file.log.settle();
            file.write(&settled)?;
        }
        Ok(file)
    }

    /// Names the file and its last claim; see [`Log::token`].
    #[must_use]
    pub fn token(&self) -> String {
        self.log.token()
    }

    /// Acknowledged writes that the image may lack.
    #[must_use]
    pub fn dirty_records(&self) -> u64 {
        self.log.stats().dirty_records
    }

    /// Gives up what the image lacks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn discard(&mut self) -> Result<(), MediaError> {
        let write = self.log.discard();
        self.write(&write)
    }

    fn write(&mut self, superblock: &MediaWrite) -> Result<(), MediaError> {
        let io = |source| MediaError::Io { path: self.path.clone(), source };
        self.media.write(superblock).and_then(|()| self.media.sync()).map_err(io)?;
        self.log.superblock_durable();
        Ok(())
    }
}

/// The open file.
#[derive(Debug)]
pub struct MediaFile {
    file: File,
    len: u64,
}

impl MediaFile {
    /// Opens the cache of `identity` at `path`, making one of `new_len` bytes when there is none, and replays it.
    pub fn open(path: &Path, identity: &str, new_len: u64) -> Result<(Self, Log), MediaError> {
        let io = |source| MediaError::Io { path: path.to_owned(), source };
        // The image's bytes are nobody else's to read, and a link that somebody laid must not lead the zeros elsewhere.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .map_err(io)?;
        if let Err(e) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            return Err(match e {
                rustix::io::Errno::WOULDBLOCK => MediaError::InUse { path: path.to_owned() },
                other => io(other.into()),
            });
        }
        let len = file.metadata().map_err(io)?.len();
        let mut media = Self { file, len };
        if media.is_new().map_err(io)? {
            media.format(path, identity, new_len).map_err(io)?;
        }
        // What replay finds may still be in the page cache of a process that was killed.
        media.sync().map_err(io)?;
        let log_error = |source| MediaError::Log { path: path.to_owned(), source };
        let (mut log, first) = Log::open(&media, identity).map_err(log_error)?;
        media.write(&first).and_then(|()| media.sync()).map_err(io)?;
        log.superblock_durable();
        Ok((media, log))
    }

    /// Nothing was ever written to it: empty, or a process died before the first superblock was there.
    fn is_new(&self) -> io::Result<bool> {
        let mut start = vec![0; self.len.min(writeback::AREA_START) as usize];
        self.file.read_exact_at(&mut start, 0)?;
        Ok(start.iter().all(|b| *b == 0))
    }

    /// Fills the file with zeros first: a flush of blocks that exist is cheaper than one that allocates them.
    fn format(&mut self, path: &Path, identity: &str, len: u64) -> io::Result<()> {
        let len = len.max(writeback::MIN_FILE_LEN);
        let zeros = vec![0; 1 << 20];
        let mut at = 0;
        while at < len {
            let part = zeros.get(..(len - at) as usize).unwrap_or(&zeros);
            self.file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        self.sync()?;
        for write in Log::format(identity, len, uuid::Uuid::new_v4().into_bytes()) {
            self.write(&write)?;
        }
        self.len = len;
        self.file.sync_all()?;
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }

    pub fn write(&self, write: &MediaWrite) -> io::Result<()> {
        match &write.data[..] {
            [one] => self.file.write_all_at(one, write.pos),
            parts => {
                let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
                parts.iter().for_each(|p| whole.extend_from_slice(p));
                self.file.write_all_at(&whole, write.pos)
            }
        }
    }

    /// Writes and makes durable: in one call where the writes lie one behind the other, as nearly always.
    pub fn write_durably(&self, writes: &[MediaWrite]) -> io::Result<()> {
        let mut end = writes.first().map_or(0, |w| w.pos);
        let is_one_run = writes.iter().all(|w| {
            let fits = w.pos == end;
            end = w.pos + w.data.iter().map(|d| d.len() as u64).sum::<u64>();
            fits
        });
        let mut slices: Vec<_> = writes.iter().flat_map(|w| &w.data).map(|d| IoSlice::new(d)).collect();
        let pos = writes.first().map_or(0, |w| w.pos);
        if is_one_run && slices.len() <= MAX_SLICES && self.write_synced(&mut slices, pos)? {
            return Ok(());
        }
        writes.iter().try_for_each(|w| self.write(w))?;
        self.sync()
    }

    /// False where the file system has no such writes; nothing is promised of the bytes then.
    fn write_synced(&self, mut left: &mut [IoSlice<'_>], mut pos: u64) -> io::Result<bool> {
        while !left.is_empty() {
            match pwritev2(&self.file, left, pos, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    pos += n as u64;
                    IoSlice::advance_slices(&mut left, n);
                }
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }

    pub fn read_at(&self, pos: u64, len: usize) -> io::Result<Bytes> {
        let mut bytes = BytesMut::zeroed(len);
        self.file.read_exact_at(&mut bytes, pos)?;
        Ok(bytes.freeze())
    }

    /// As `read_at`, when the page cache has it: nothing is waited for. `None` when it has not, or does not say.
    pub fn read_at_once(&self, pos: u64, len: usize) -> io::Result<Option<Bytes>> {
        let mut bytes = BytesMut::zeroed(len);
        let mut into = [IoSliceMut::new(&mut bytes)];
        match preadv2(&self.file, &mut into, pos, ReadWriteFlags::NOWAIT) {
            Ok(n) if n == len => Ok(Some(bytes.freeze())),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Media for MediaFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, pos: u64, len: usize) -> Result<Bytes, String> {
        self.read_at(pos, len).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn durable_writes_land_where_they_belong() {
        let folder = tempfile::tempdir().expect("folder");
        let (media, _) =
            MediaFile::open(&folder.path().join("a"), "a", writeback::MIN_FILE_LEN).expect("opens");
        let write = |pos, parts: &[&'static [u8]]| MediaWrite {
            pos,
            data: parts.iter().map(|p| Bytes::from_static(p)).collect(),
        };
        let start = writeback::AREA_START;
        media
            .write_durably(&[write(start, &[b"ab", b"c"]), write(start + 3, &[b"", b"d"])])
            .expect("one run");
        media.write_durably(&[write(start + 10, &[b"x"]), write(start + 5, &[b"yz"])]).expect("two runs");
        let many: Vec<_> = (0..1500).map(|i| write(start + 100 + i, &[b"m"])).collect();
        media.write_durably(&many).expect("more than one call takes");
        media.write_durably(&[]).expect("nothing");
        let at_once = media.read_at_once(start, 12).expect("reads");
        assert!(at_once.is_none_or(|bytes| bytes == media.read_at(start, 12).expect("reads")));
        assert_eq!(media.read_at_once(media.len - 1, 2).expect("past the end"), None);
        assert_eq!(media.read_at(start, 12).expect("reads"), &b"abcd\0yz\0\0\0x\0"[..]);
        assert!(
            media.read_at(start + 99, 1502).expect("reads").iter().filter(|b| **b == b'm').count() == 1500
        );
    }

    #[test]
    fn a_new_file_is_its_owners_alone_and_links_are_not_followed() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("a.cache");
        drop(MediaFile::open(&path, "a", writeback::MIN_FILE_LEN).expect("opens"));
        let mode = std::fs::metadata(&path).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (link, target) = (folder.path().join("b.cache"), folder.path().join("target"));
        std::os::unix::fs::symlink(&target, &link).expect("links");
        let refused = MediaFile::open(&link, "b", writeback::MIN_FILE_LEN);
        assert!(matches!(refused, Err(MediaError::Io { .. })));
        assert!(!target.exists());
    }
}
