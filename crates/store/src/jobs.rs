//! A commit: device work that leaves the store as an owned job, so that no lock is held while the device is waited for.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::checksum::BLOCK_U64;
use crate::data::DirectWrite;
use crate::log::padding;
use crate::record::RecordHead;
use crate::{Device, DeviceError, TxnSeq};

/// A cache takes shorter writes although nobody reads them: to wait for the device would take longer than the copy.
const UNREAD_MIN_BYTES: u64 = 512 << 10;

/// One batch of device writes and one flush: large payloads to their places, and one log record.
#[derive(Debug)]
pub struct Commit {
    direct: Vec<DirectWrite>,
    head: RecordHead,
    body: Vec<Bytes>,
    /// Device ranges of the record: two when the log wraps inside it.
    parts: Vec<(u64, u64)>,
    last: TxnSeq,
}

/// Proof that a commit's writes and flush went through.
#[derive(Debug)]
pub struct CommitDone {
    pub(crate) last: TxnSeq,
}

impl Commit {
    pub(crate) fn new(
        direct: Vec<DirectWrite>,
        head: RecordHead,
        body: Vec<Bytes>,
        parts: Vec<(u64, u64)>,
        last: TxnSeq,
    ) -> Self {
        Self { direct, head, body, parts, last }
    }

    /// The last transaction in it.
    pub fn last(&self) -> TxnSeq {
        self.last
    }

    /// Bytes it writes to the log, and bytes it writes straight to their place.
    pub fn bytes(&self) -> (u64, u64) {
        let direct = self.direct.iter().flat_map(|d| &d.pieces).map(|p| p.len() as u64).sum();
        (self.head.padded_len(), direct)
    }

    /// Writes and flushes. Any failure means that nothing of the commit may be taken for durable.
    pub fn execute(self, device: &dyn Device) -> Result<CommitDone, DeviceError> {
        let has_direct = !self.direct.is_empty();
        write_direct(device, self.direct)?;
        let head = self.head.seal(self.body.iter().map(AsRef::as_ref));
        let mut pieces: VecDeque<Bytes> = self.body.into();
        pieces.push_front(Bytes::copy_from_slice(&head));
        pieces.push_back(padding(&self.head));
        let alone = self.parts.len() == 1 && !has_direct;
        for (offset, len) in self.parts {
            let part = take_pieces(&mut pieces, len as usize);
            let part: Vec<&[u8]> = part.iter().map(AsRef::as_ref).collect();
            match alone {
                true => device.write_durably(offset, &part)?,
                false => device.write_vectored_at(offset, &part)?,
            }
        }
        if !alone {
            device.flush()?;
        }
        Ok(CommitDone { last: self.last })
    }
}

/// Writes payloads to their places, neighbours in one call. What caches take goes first: the device may begin with it while
/// it is given the rest.
pub(crate) fn write_direct(device: &dyn Device, mut writes: Vec<DirectWrite>) -> Result<(), DeviceError> {
    writes.sort_by_key(|w| (w.unread, w.start));
    let mut rest = writes.into_iter().peekable();
    while let Some(first) = rest.next() {
        let (start, mut pieces, unread) = (first.start, first.pieces, first.unread);
        let mut end = start + blocks(&pieces);
        while let Some(next) = rest.next_if(|next| next.start == end && next.unread == unread) {
            end += blocks(&next.pieces);
            pieces.extend(next.pieces);
        }
        let offset = u64::from(start) * BLOCK_U64;
        let slices: Vec<&[u8]> = pieces.iter().map(AsRef::as_ref).collect();
        match unread && u64::from(end - start) * BLOCK_U64 >= UNREAD_MIN_BYTES {
            true => device.write_unread_at(offset, &slices)?,
            false => device.write_vectored_at(offset, &slices)?,
        }
    }
    Ok(())
}

fn blocks(pieces: &[Bytes]) -> u32 {
    (pieces.iter().map(Bytes::len).sum::<usize>() / crate::checksum::BLOCK) as u32
}

/// Takes `len` bytes from the front.
fn take_pieces(pieces: &mut VecDeque<Bytes>, len: usize) -> Vec<Bytes> {
    let mut out = Vec::with_capacity(pieces.len());
    let mut left = len;
    while left > 0 {
        let Some(mut first) = pieces.pop_front() else { break };
        if first.len() > left {
            pieces.push_front(first.split_off(left));
        }
        left -= first.len();
        out.push(first);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::checksum::BLOCK;

    /// Notes which writes came, in blocks, and by which call.
    #[derive(Default)]
    struct Notes(Mutex<Vec<(u64, usize, bool)>>);

    impl Notes {
        fn note(&self, offset: u64, pieces: &[&[u8]], unread: bool) {
            let blocks = pieces.iter().map(|p| p.len()).sum::<usize>() / BLOCK;
            self.0.lock().expect("no panic").push((offset / BLOCK_U64, blocks, unread));
        }
    }

    impl Device for Notes {
        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
            Ok(())
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
            self.note(offset, &[data], false);
            Ok(())
        }

        fn write_vectored_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
            self.note(offset, pieces, false);
            Ok(())
        }

        fn write_unread_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
            self.note(offset, pieces, true);
            Ok(())
        }

        fn flush(&self) -> Result<(), DeviceError> {
            Ok(())
        }

        fn len(&self) -> u64 {
            0
        }
    }

    #[test]
    fn what_is_read_goes_first_and_neighbours_go_together_when_they_are_of_one_kind() {
        let long = UNREAD_MIN_BYTES as usize / BLOCK;
        let write = |start: usize, blocks: usize, unread| DirectWrite {
            start: start as u32,
            pieces: vec![Bytes::from(vec![0; blocks * BLOCK])],
            unread,
        };
        let (second, third, last) = (2 * long, 3 * long, 5 * long);
        let notes = Notes::default();
        let writes = vec![
            write(last, long - 1, true),
            write(third, 8, false),
            write(second + 1, long - 1, true),
            write(second, 1, true),
            write(third + 8, 1, false),
            write(0, long, true),
        ];
        write_direct(&notes, writes).expect("written");
        let expected = [(third, 9, false), (0, long, true), (second, long, true), (last, long - 1, false)];
        let expected = expected.map(|(start, blocks, unread)| (start as u64, blocks, unread));
        assert_eq!(*notes.0.lock().expect("no panic"), expected);
    }
}
