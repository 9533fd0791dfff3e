//! The cache's file: opened by one process alone, written in vectors, flushed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use rustix::fs::{FlockOperation, OFlags};
use writeback::{Log, Media, MediaWrite, OpenError};

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
            let part = zeros.len().min((len - at) as usize);
            self.file.write_all_at(&zeros[..part], at)?;
            at += part as u64;
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

    pub fn read_at(&self, pos: u64, len: usize) -> io::Result<Bytes> {
        let mut bytes = BytesMut::zeroed(len);
        self.file.read_exact_at(&mut bytes, pos)?;
        Ok(bytes.freeze())
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
