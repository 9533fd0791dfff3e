//! A commit: device work that leaves the store as an owned job, so that no lock is held while the device is waited for.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::data::DirectWrite;
use crate::log::padding;
use crate::record::RecordHead;
use crate::{Device, DeviceError, TxnSeq};

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

/// Writes payloads to their places, neighbours in one call.
pub(crate) fn write_direct(device: &dyn Device, mut writes: Vec<DirectWrite>) -> Result<(), DeviceError> {
    writes.sort_by_key(|w| w.start);
    let mut rest = writes.into_iter().peekable();
    while let Some(first) = rest.next() {
        let (start, mut pieces) = (first.start, first.pieces);
        let mut end = start + blocks(&pieces);
        while let Some(next) = rest.next_if(|next| next.start == end) {
            end += blocks(&next.pieces);
            pieces.extend(next.pieces);
        }
        let slices: Vec<&[u8]> = pieces.iter().map(AsRef::as_ref).collect();
        device.write_vectored_at(u64::from(start) * crate::checksum::BLOCK_U64, &slices)?;
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
