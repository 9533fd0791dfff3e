//! Reading a journal: ahead, within a bound, entry by entry.

use bytes::{Buf, Bytes, BytesMut};
use messages::osd::{Extent, Op};
use types::Errno;

use super::{Journal, JournalOp, Phase};
use crate::format::{ReadEntry, StreamFormat, read_entry};
use crate::storage::desk::Desk;
use crate::storage::event::{EntryDamage, StorageError};

/// An entry that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::storage) struct Entry {
    pub(in crate::storage) at: u64,
    pub(in crate::storage) next: u64,
    pub(in crate::storage) payload: Bytes,
}

impl Journal {
    /// The next entry, if it is here. At the end of what a server that died wrote, an entry that was cut off
    /// is left out: the journal ends before it.
    pub(in crate::storage) fn next_entry(&mut self) -> Option<Entry> {
        let end = self.readable_end();
        if !self.is_reading() || self.read.pos >= end {
            return None;
        }
        let at = self.read.pos;
        match read_entry(self.format(), &self.read.have, at) {
            Ok(ReadEntry::Entry { payload, next }) if next <= end => {
                let length = (next - at) as usize;
                self.read.have.advance(length);
                (self.read.pos, self.read.needed) = (next, 0);
                Some(Entry { at, next, payload })
            }
            Ok(ReadEntry::Entry { next, .. }) => {
                self.read.needed = next - at;
                None
            }
            Ok(ReadEntry::Needs(bytes)) => {
                self.read.needed = bytes;
                if at.saturating_add(bytes) > end {
                    self.cut_off(at);
                }
                None
            }
            Err(error) => {
                self.damaged_entry(at, error.into());
                None
            }
        }
    }

    pub(super) fn format(&self) -> StreamFormat {
        self.header.as_ref().map_or(StreamFormat::Resilient, |h| h.format)
    }

    pub(in crate::storage) fn damaged_entry(&mut self, at: u64, error: EntryDamage) {
        self.fail(StorageError::DamagedEntry { object: self.head_name(), at, error });
    }

    /// The entry at `at` reaches beyond the end.
    fn cut_off(&mut self, at: u64) {
        let have = self.read.pos + self.read.have.len() as u64;
        if self.phase == Phase::Writing || have < self.write_pos {
            return;
        }
        if at < self.header_end() {
            // It was whole once, as the header says.
            return self.hole(at);
        }
        self.write_pos = at;
        self.read_from(at);
    }

    /// Asks for what the next entries need, up to the bound.
    pub(in crate::storage) fn read_ahead(&mut self, bound: u64, desk: &mut Desk) {
        if !self.is_reading() {
            return;
        }
        let until = self.read.pos.saturating_add(bound.max(self.read.needed)).min(self.readable_end());
        while self.read.requested < until {
            let at = self.read.requested;
            let block = at / self.period;
            let end = ((block + 1) * self.period).min(self.readable_end());
            let (length, extent) = (end - at, Extent::new(at % self.period, end - at));
            self.send(desk, JournalOp::Read { at, length }, block, Op::Read(extent));
            self.read.requested = end;
        }
    }

    pub(super) fn part_read(&mut self, at: u64, length: u64, result: Result<Bytes, Errno>) {
        match result {
            Ok(bytes) if bytes.len() as u64 == length => self.part(at, bytes),
            Ok(bytes) => self.gone(at + bytes.len() as u64),
            Err(Errno::ENOENT) => self.gone(at),
            Err(errno) => {
                let object = self.object(at / self.period.max(1)).name.to_string();
                self.fail(StorageError::Os { object, errno });
            }
        }
    }

    /// Bytes are not there. A rank that follows was outrun by the server that trims; to anybody else it is
    /// damage.
    fn gone(&mut self, at: u64) {
        if self.is_following {
            self.outrun();
        } else {
            self.hole(at);
        }
    }

    fn part(&mut self, at: u64, bytes: Bytes) {
        self.read.parts.insert(at, bytes);
        loop {
            let next = self.read.pos + self.read.have.len() as u64;
            let Some(part) = self.read.parts.remove(&next) else { return };
            self.read.have = if self.read.have.is_empty() {
                part
            } else {
                let mut all = BytesMut::with_capacity(self.read.have.len() + part.len());
                all.extend_from_slice(&self.read.have);
                all.extend_from_slice(&part);
                all.freeze()
            };
        }
    }
}
