//! The log's state: appending, committing, retiring, and reading through the index.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::index::{Entry, Index, Source};
use crate::record::{HEADER_LEN, Header, Kind, MAX_DATA, Op, RecordRef, SECTOR, padded};
use crate::superblock::{AREA_START, Superblock};

/// Buffers to write one behind the other from a byte of the file on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaWrite {
    pub pos: u64,
    pub data: Vec<Bytes>,
}

/// What an append asks for; it counts once the writes are durable and [`Log::committed`] was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    pub seq: u64,
    pub writes: Vec<MediaWrite>,
}

/// The log has no room until older records are retired and a superblock is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cache is full")]
pub struct NoSpace;

/// A part of what a read wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Not in the cache: read the image.
    Clean {
        offset: u64,
        len: u64,
    },
    Dirty {
        source: Source,
        offset: u64,
        len: u64,
    },
}

/// Figures for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of the area in use, retired ones included whose space is not yet free.
    pub used: u64,
    pub area: u64,
    /// Records that the image may lack.
    pub dirty_records: u64,
}

/// The log and index of one image's cache.
#[derive(Debug, Clone)]
pub struct Log {
    /// The last superblock that was handed out to be written.
    pub(crate) superblock: Superblock,
    /// A durable superblock claims the file.
    pub(crate) may_append: bool,
    /// This session's number.
    pub(crate) epoch: u64,
    /// Byte of the area behind the newest record.
    pub(crate) head_pos: u64,
    pub(crate) next_seq: u64,
    pub(crate) committed_seq: u64,
    pub(crate) retired_seq: u64,
    pub(crate) group: u64,
    pub(crate) group_has_records: bool,
    /// Records from the durable tail on.
    pub(crate) live: VecDeque<Live>,
    pub(crate) index: Index,
    /// Bytes of the area from the durable tail to the head.
    pub(crate) used: u64,
}

/// A record whose space is not free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    pub record: RecordRef,
    /// Bytes of the area.
    pub size: u64,
    pub epoch: u64,
    pub group: u64,
    pub kind: Kind,
    pub offset: u64,
    pub length: u64,
}

/// The index entry of a record.
pub fn entry_of(live: &Live) -> Option<(u64, Entry)> {
    let source = match live.kind {
        Kind::Write => Source::Record { record: live.record, skip: 0 },
        Kind::Zero => Source::Zero { punch: false },
        Kind::Punch => Source::Zero { punch: true },
        Kind::Wrap => return None,
    };
    let entry = Entry { end: live.offset + live.length, seq: live.record.seq, source };
    Some((live.offset, entry))
}

impl Log {
    /// The writes that make a new cache file of `file_len` bytes for the image `identity`; then [`Log::open`] it.
    #[must_use]
    pub fn format(identity: &str, file_len: u64, id: [u8; 16]) -> Vec<MediaWrite> {
        let area_len = file_len.saturating_sub(AREA_START) / SECTOR * SECTOR;
        let superblock = Superblock {
            id,
            generation: 1,
            epoch: 0,
            area_len,
            tail_pos: 0,
            tail_seq: 1,
            tail_epoch: 0,
            synced: 0,
            claim: 0,
            is_claimed: false,
            identity: identity.to_owned(),
        };
        let blank = MediaWrite { pos: 0, data: vec![BytesMut::zeroed(AREA_START as usize).freeze()] };
        vec![blank, MediaWrite { pos: superblock.position(), data: vec![superblock.encode()] }]
    }

    /// Adds an operation to the log; longer ones come in parts ([`Op::split`]).
    ///
    /// # Errors
    /// [`NoSpace`]; nothing was changed.
    ///
    /// # Panics
    /// When the operation is empty or holds more than [`MAX_DATA`] bytes of data, or the file is not claimed.
    pub fn append(&mut self, op: &Op) -> Result<Appended, NoSpace> {
        assert!(self.may_append, "6: records only while the file is claimed");
        let (start, end) = op.range();
        assert!(op.data_len() <= MAX_DATA && start < end, "an operation that fits a record");
        let size = padded(op.data_len());
        let to_end = self.superblock.area_len - self.head_pos;
        let needs_wrap = size > to_end;
        let take = if needs_wrap { to_end + size } else { size };
        // A sector stays free, so that a full log does not look like an empty one.
        if self.used + take + SECTOR > self.superblock.area_len {
            return Err(NoSpace);
        }
        let mut writes = Vec::new();
        if needs_wrap {
            writes.push(self.push(Kind::Wrap, &Op::Zero { offset: 0, len: 0, punch: false }, to_end));
        }
        let kind = match op {
            Op::Write { .. } => Kind::Write,
            Op::Zero { punch: false, .. } => Kind::Zero,
            Op::Zero { punch: true, .. } => Kind::Punch,
        };
        writes.push(self.push(kind, op, size));
        self.group_has_records = true;
        Ok(Appended { seq: self.next_seq - 1, writes })
    }

    fn push(&mut self, kind: Kind, op: &Op, size: u64) -> MediaWrite {
        let (offset, end) = op.range();
        let data = match op {
            Op::Write { data, .. } => data.clone(),
            Op::Zero { .. } => Bytes::new(),
        };
        let header = Header {
            crc: 0,
            file_id: self.superblock.file_id(),
            seq: self.next_seq,
            epoch: self.epoch,
            synced: self.committed_seq,
            group: self.group,
            kind,
            data_len: data.len() as u32,
            offset,
            length: end - offset,
        };
        let pos = AREA_START + self.head_pos;
        let record =
            RecordRef { pos, len: HEADER_LEN + data.len(), seq: self.next_seq, file_id: header.file_id };
        let length = end - offset;
        let (epoch, group) = (self.epoch, self.group);
        self.live.push_back(Live { record, size, epoch, group, kind, offset, length });
        self.used += size;
        self.head_pos = (self.head_pos + size) % self.superblock.area_len;
        self.next_seq += 1;
        MediaWrite { pos, data: header.encode(&data) }
    }

    /// Everything up to record `seq` is durable on the media: reads see it, the image may get it.
    pub fn committed(&mut self, seq: u64) {
        let entries: Vec<_> = self
            .live
            .iter()
            .rev()
            .skip_while(|l| l.record.seq > seq)
            .take_while(|l| l.record.seq > self.committed_seq)
            .filter_map(entry_of)
            .collect();
        for (start, entry) in entries.into_iter().rev() {
            self.index.insert(start, entry);
        }
        self.committed_seq = self.committed_seq.max(seq);
    }

    /// The client flushed: what comes later reaches the image after everything before.
    pub fn barrier(&mut self) {
        if std::mem::take(&mut self.group_has_records) {
            self.group += 1;
        }
    }

    /// The parts of a range, in order, and where each is.
    #[must_use]
    pub fn read(&self, offset: u64, len: u64) -> Vec<Segment> {
        self.first_parts(offset, len, usize::MAX)
    }

    /// As [`Log::read`], but only the first parts: at least one of a range that is not empty, and at most `most` and one.
    #[must_use]
    pub fn first_parts(&self, offset: u64, len: u64, most: usize) -> Vec<Segment> {
        let end = offset.saturating_add(len);
        let mut out = Vec::new();
        let mut at = offset;
        for (start, entry) in self.index.lookup(offset, end) {
            if !out.is_empty() && out.len() >= most {
                return out;
            }
            if start > at {
                out.push(Segment::Clean { offset: at, len: start - at });
            }
            out.push(Segment::Dirty { source: entry.source, offset: start, len: entry.end - start });
            at = entry.end;
        }
        if at < end {
            out.push(Segment::Clean { offset: at, len: end - at });
        }
        out
    }

    /// Whether the record still holds the newest bytes of some range: a read that found other bytes there looks again.
    #[must_use]
    pub fn is_live(&self, seq: u64) -> bool {
        self.live.front().is_some_and(|l| l.record.seq <= seq) && seq < self.next_seq
    }

    /// Whether retired records hold space that a superblock would free.
    #[must_use]
    pub fn has_space_to_free(&self) -> bool {
        self.live.front().is_some_and(|l| l.record.seq <= self.retired_seq)
    }

    /// The superblock that frees the retired records' space, with [`Log::superblock_durable`] once it is durable.
    #[must_use]
    pub fn superblock_write(&mut self) -> MediaWrite {
        let tail = self.live.get(self.retired_count());
        self.superblock.tail_pos = tail.map_or(self.head_pos, |l| l.record.pos - AREA_START);
        self.superblock.tail_seq = tail.map_or(self.next_seq, |l| l.record.seq);
        self.superblock.tail_epoch = tail.map_or(self.epoch, |l| l.epoch);
        self.superblock.generation += 1;
        self.superblock.epoch = self.epoch;
        self.superblock.synced = self.committed_seq;
        MediaWrite { pos: self.superblock.position(), data: vec![self.superblock.encode()] }
    }

    /// The superblock after which records may be appended, with [`Log::superblock_durable`] once it is durable. Then the
    /// image is marked with [`Log::token`], before the first record is acknowledged. `random` is drawn anew: a copy of the
    /// file that makes a claim of its own has another token.
    #[must_use]
    pub fn claim(&mut self, random: u64) -> MediaWrite {
        self.superblock.claim = random;
        self.superblock.is_claimed = true;
        self.superblock_write()
    }

    /// The superblock that says that the image has everything; nothing is appended before the next claim. Once it is
    /// durable the image's mark may go.
    ///
    /// # Panics
    /// When the image lacks something.
    #[must_use]
    pub fn settle(&mut self) -> MediaWrite {
        assert!(
            self.retired_seq + 1 == self.next_seq,
            "6: a settled log has no records that the image lacks"
        );
        self.may_append = false;
        self.superblock.is_claimed = false;
        self.superblock_write()
    }

    /// Gives up every record that the image lacks; otherwise as [`Log::settle`].
    #[must_use]
    pub fn discard(&mut self) -> MediaWrite {
        self.committed_seq = self.next_seq - 1;
        self.retired_seq = self.committed_seq;
        self.index = Index::default();
        self.settle()
    }

    /// Names the file and its last claim. While an image bears it, and its lock is still that of the claim's session, nobody
    /// else has written to the image.
    #[must_use]
    pub fn token(&self) -> String {
        let id: String = self.superblock.id.iter().map(|b| format!("{b:02x}")).collect();
        format!("{id}.{}", self.superblock.claim)
    }

    #[must_use]
    pub fn is_claimed(&self) -> bool {
        self.superblock.is_claimed
    }

    /// The last superblock handed out is durable: its free space may be written again.
    pub fn superblock_durable(&mut self) {
        self.may_append = self.superblock.is_claimed;
        while self.live.front().is_some_and(|l| l.record.seq < self.superblock.tail_seq) {
            if let Some(live) = self.live.pop_front() {
                self.used -= live.size;
            }
        }
    }

    pub(crate) fn unretired(&self) -> impl Iterator<Item = &Live> {
        let to = self.committed_seq;
        self.live.iter().skip(self.retired_count()).take_while(move |l| l.record.seq <= to)
    }

    /// Records at the front that the image has; numbers are consecutive.
    fn retired_count(&self) -> usize {
        let first = self.live.front().map_or(self.next_seq, |l| l.record.seq);
        usize::try_from((self.retired_seq + 1).saturating_sub(first)).unwrap_or(usize::MAX)
    }

    pub(crate) fn forget(&mut self, start: u64, end: u64, through: u64) {
        self.index.remove_if(start, end, |e| e.seq <= through);
    }

    pub(crate) fn retire_through(&mut self, seq: u64) {
        self.retired_seq = self.retired_seq.max(seq);
    }

    /// Whether the image has everything that was committed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.retired_seq >= self.committed_seq
    }

    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            used: self.used,
            area: self.superblock.area_len,
            dirty_records: self.committed_seq - self.retired_seq.min(self.committed_seq),
        }
    }

    /// Checks the invariants that the crate's documentation numbers.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn assert_invariants(&self) {
        self.index.assert_invariants();
        let mut pos = None;
        let mut seq = None;
        for live in &self.live {
            assert!(seq.is_none_or(|s| s + 1 == live.record.seq), "1: numbers are consecutive");
            assert!(pos.is_none_or(|p| p == live.record.pos), "1: records lie one behind the other");
            seq = Some(live.record.seq);
            let end = (live.record.pos - AREA_START + live.size) % self.superblock.area_len;
            pos = Some(AREA_START + end);
        }
        assert_eq!(self.used, self.live.iter().map(|l| l.size).sum::<u64>(), "2: space is accounted");
        for (_, entry) in self.index.iter() {
            assert!(entry.seq <= self.committed_seq, "3: only committed records are seen");
            assert!(entry.seq > self.retired_seq, "4: retired records left the index");
        }
    }
}
