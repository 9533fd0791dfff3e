//! The entries of a part in their order. Source: EntryReader in src/cls/fifo/cls_fifo.cc.

use bytes::Bytes;
use codec::Decode;
use types::Errno;

use super::types::{EntryHeader, Listed, MARK_SIZE, Mark, PartHeader};
use crate::ObjectView;
use crate::registry::stored;

/// Bytes that are read at once, and so the most that an entry's data may be beyond what is at hand.
const READ_AHEAD: u64 = 128 << 10;

pub(super) struct Entries<'v> {
    view: &'v mut dyn ObjectView,
    magic: u64,
    /// Where the entries end.
    end: u64,
    offset: u64,
    /// Bytes from `offset` on.
    data: Bytes,
}

impl<'v> Entries<'v> {
    /// From an offset on, which is one of an entry, or lies in front of all.
    pub fn new(view: &'v mut dyn ObjectView, header: &PartHeader, offset: u64) -> Self {
        let offset = offset.max(header.min_offset);
        Self { view, magic: header.magic, end: header.next_offset, offset, data: Bytes::new() }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn is_at_end(&self) -> bool {
        self.offset >= self.end
    }

    /// The mark of the next entry. ERANGE where no entry begins, ENOENT at the end.
    pub fn mark(&mut self) -> Result<Mark, Errno> {
        if self.is_at_end() {
            return Err(Errno::ENOENT);
        }
        self.fetch(MARK_SIZE)?;
        let mark: Mark = stored(self.data.clone())?;
        if mark.magic == self.magic { Ok(mark) } else { Err(Errno::ERANGE) }
    }

    pub fn next(&mut self) -> Result<Listed, Errno> {
        let (mark, offset) = (self.mark()?, self.offset);
        self.take(mark.mark_size)?;
        let header = EntryHeader::from_bytes(self.take(mark.header_size)?).map_err(|_| Errno::EIO)?;
        // A copy: a small part of what was read ahead would keep all of that in memory.
        let data = Bytes::copy_from_slice(&self.take(mark.data_size)?);
        Ok(Listed { data, offset, time: header.time })
    }

    fn take(&mut self, bytes: u64) -> Result<Bytes, Errno> {
        let taken = self.fetch(bytes)?;
        self.offset = self.offset.wrapping_add(bytes);
        Ok(self.data.split_to(taken))
    }

    /// Sees to it that as many bytes are at hand; ERANGE when there are fewer.
    ///
    /// Ceph holds the lower 32 bits of the number against what is there. Here a number with higher bits is
    /// refused: entries that each claim 2^32 bytes would have each of them read ahead, with nothing used up.
    fn fetch(&mut self, bytes: u64) -> Result<usize, Errno> {
        let at_hand = self.data.len() as u64;
        let wanted = usize::try_from(bytes).map_err(|_| Errno::ERANGE)?;
        if bytes > at_hand + READ_AHEAD {
            return Err(Errno::ERANGE);
        }
        if at_hand < bytes {
            let more = self.view.read(self.offset.wrapping_add(at_hand), READ_AHEAD)?;
            if self.data.is_empty() {
                self.data = more;
            } else if !more.is_empty() {
                self.data = [&self.data[..], &more].concat().into();
            }
        }
        if wanted > self.data.len() { Err(Errno::ERANGE) } else { Ok(wanted) }
    }
}
