//! Reads a log back after a crash or a clean end.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::error::OpenError;
use crate::index::Index;
use crate::log::{Live, Log, MediaWrite, entry_of};
use crate::record::{HEADER_LEN, Header, Kind, RecordRef, SECTOR, padded};
use crate::superblock::{AREA_START, Superblock};

/// The file, as replay reads it.
pub trait Media {
    /// Bytes of the file.
    fn len(&self) -> u64;

    /// Exactly `len` bytes from `pos` on.
    ///
    /// # Errors
    /// The reason, for people.
    fn read(&self, pos: u64, len: usize) -> Result<Bytes, String>;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Log {
    /// Opens the cache of the image `identity`: its records are replayed into the index. Before the first append the
    /// shell flushes the media (what replay found may be in a volatile cache), writes the returned superblock, flushes
    /// again and calls [`Log::superblock_durable`].
    ///
    /// # Errors
    /// The file is not this image's cache, or lost acknowledged records; see [`OpenError`].
    pub fn open(media: &dyn Media, identity: &str) -> Result<(Self, MediaWrite), OpenError> {
        let head_len = media.len().min(AREA_START) as usize;
        let start = media.read(0, head_len).map_err(OpenError::Read)?;
        let superblock = Superblock::choose(&start, identity)?;
        let wanted = AREA_START.saturating_add(superblock.area_len);
        if media.len() < wanted {
            return Err(OpenError::Truncated { wanted, found: media.len() });
        }
        let mut log = Self::from_superblock(&superblock);
        let mut scan = Scan { media, log: &mut log, epoch: superblock.tail_epoch };
        while scan.step()? {}
        scan.check_nothing_lost(superblock.synced)?;
        log.settle_replayed();
        // If it does not say so, the newest slot is lost; the token is an older one then, and proves nothing.
        log.superblock.is_claimed |= !log.is_clean();
        let first = log.superblock_write();
        Ok((log, first))
    }

    fn from_superblock(superblock: &Superblock) -> Self {
        Self {
            superblock: superblock.clone(),
            may_append: false,
            epoch: superblock.epoch + 1,
            head_pos: superblock.tail_pos,
            next_seq: superblock.tail_seq,
            committed_seq: superblock.tail_seq.wrapping_sub(1),
            retired_seq: superblock.tail_seq.wrapping_sub(1),
            group: 0,
            group_has_records: false,
            live: VecDeque::new(),
            index: Index::default(),
            used: 0,
        }
    }

    fn settle_replayed(&mut self) {
        self.committed_seq = self.next_seq.wrapping_sub(1);
        self.group = self.live.back().map_or(0, |l| l.group) + 1;
        let entries: Vec<_> = self.live.iter().filter_map(entry_of).collect();
        for (start, entry) in entries {
            self.index.insert(start, entry);
        }
    }
}

/// Read at once when looking for records behind the end.
const SCAN_BYTES: u64 = 1 << 20;

struct Scan<'a> {
    media: &'a dyn Media,
    log: &'a mut Log,
    /// Of the record before, or what the tail has at least; epochs never fall.
    epoch: u64,
}

impl Scan<'_> {
    /// Takes the next record; false at the end of the chain.
    fn step(&mut self) -> Result<bool, OpenError> {
        if self.log.used + SECTOR > self.log.superblock.area_len {
            return Ok(false);
        }
        let Some(header) = self.record_at(self.log.head_pos)? else { return Ok(false) };
        if header.seq != self.log.next_seq
            || header.epoch < self.epoch
            || header.epoch > self.log.superblock.epoch
        {
            return Ok(false);
        }
        let to_end = self.log.superblock.area_len - self.log.head_pos;
        let size = if header.kind == Kind::Wrap { to_end } else { padded(header.data_len as usize) };
        if size > to_end || self.log.used + size > self.log.superblock.area_len {
            return Ok(false);
        }
        self.epoch = header.epoch;
        self.log.live.push_back(Live {
            record: RecordRef {
                pos: AREA_START + self.log.head_pos,
                len: HEADER_LEN + header.data_len as usize,
                seq: header.seq,
                file_id: header.file_id,
            },
            size,
            epoch: header.epoch,
            group: header.group,
            kind: header.kind,
            offset: header.offset,
            length: header.length,
        });
        self.log.used += size;
        self.log.head_pos = (self.log.head_pos + size) % self.log.superblock.area_len;
        self.log.next_seq += 1;
        Ok(true)
    }

    /// An intact record of this file at a byte of the area.
    fn record_at(&self, pos: u64) -> Result<Option<Header>, OpenError> {
        let left = self.log.superblock.area_len - pos;
        let sector = self.read(pos, SECTOR.min(left))?;
        let Some(header) = Header::parse(&sector) else { return Ok(None) };
        let len = (HEADER_LEN + header.data_len as usize) as u64;
        if header.file_id != self.log.superblock.file_id() || len > left {
            return Ok(None);
        }
        let whole = if len <= SECTOR { sector } else { self.read(pos, len)? };
        Ok(header.is_intact(&whole).then_some(header))
    }

    fn read(&self, pos: u64, len: u64) -> Result<Bytes, OpenError> {
        self.media.read(AREA_START + pos, len as usize).map_err(OpenError::Read)
    }

    /// The chain ended before `next_seq`: an error if anything says that this record was durable.
    fn check_nothing_lost(&self, synced: u64) -> Result<(), OpenError> {
        let missing = self.log.next_seq;
        let lost = OpenError::Damaged { seq: missing };
        if synced.wrapping_add(1) > missing {
            return Err(lost);
        }
        let area = self.log.superblock.area_len;
        let free = area - self.log.used;
        let mut done = 0;
        while done < free {
            let pos = (self.log.head_pos + done) % area;
            let len = SCAN_BYTES.min(area - pos).min(free - done);
            if self.tells_of(missing, pos, &self.read(pos, len)?, missing + free)? {
                return Err(lost);
            }
            done += len;
        }
        Ok(())
    }

    /// Whether a record in these sectors was written when record `missing` was durable already.
    fn tells_of(&self, missing: u64, pos: u64, bytes: &Bytes, bound: u64) -> Result<bool, OpenError> {
        for at in (0..bytes.len()).step_by(SECTOR as usize) {
            // The cheap look first: nearly every sector ends here.
            if !Header::may_start(bytes.get(at..).unwrap_or_default()) {
                continue;
            }
            let Some(header) = Header::parse(&bytes.slice(at..)) else { continue };
            let tells = header.seq > missing && header.seq < bound && header.synced >= missing;
            if tells && self.record_at(pos + at as u64)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
