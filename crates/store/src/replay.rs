//! Reading the log when a store is opened: finds its end, tells a torn tail from corruption, and yields the records.
//!
//! One commit is under way at a time, so when a record is read back whole, every record before it was durable. Thus a
//! bad record is the torn tail only if no record after it exists; otherwise the medium lost what it had promised.

use bytes::Bytes;
use codec::Reader;

use crate::checksum::{BLOCK, BLOCK_U64, placed_crc};
use crate::log::Ring;
use crate::record::{RECORD_HEAD, RecordHead, read_logged};
use crate::stage::Placement;
use crate::superblock::{LogPosition, Superblock};
use crate::{Corruption, Device, StoreError, Txn};

/// How far behind a bad record the next one is looked for: a few of the longest records.
const SEARCH_BYTES: u64 = 64 << 20;
const SEARCH_STEP: usize = 4 << 20;
/// What one read takes of the log: on a slow device the reads count, not their lengths.
const AHEAD_BYTES: u64 = 1 << 20;

/// A transaction of the log.
pub(crate) struct Logged {
    pub(crate) seq: u64,
    pub(crate) txn: Txn,
    pub(crate) placements: Vec<Placement>,
}

/// Reads records from a position on.
pub(crate) struct LogReader<'a> {
    device: &'a dyn Device,
    ring: Ring,
    salt: u32,
    generation: u64,
    /// Transactions up to this one are in the checkpoint.
    skip: u64,
    limit: u64,
    pub(crate) position: LogPosition,
    last_txn: u64,
    ahead: Ahead,
    /// The record at `position`, when it was looked at already.
    peeked: Option<Record>,
    /// For a planted bug: data beside the last record counts unseen.
    pub(crate) trusts: bool,
}

type Record = (RecordHead, Bytes);

/// A piece of the log that was read ahead.
#[derive(Default)]
struct Ahead {
    /// Log offset of the first byte.
    start: u64,
    raw: Bytes,
    /// Where a read ahead failed: up to here only what is asked for is read.
    exact_until: u64,
}

impl Ahead {
    fn get(&self, offset: u64, len: u64) -> Option<Bytes> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let until = from.checked_add(len as usize)?;
        (until <= self.raw.len()).then(|| self.raw.slice(from..until))
    }
}

impl<'a> LogReader<'a> {
    pub(crate) fn new(device: &'a dyn Device, sb: &Superblock) -> Self {
        let ring = Ring::new(sb.layout.log);
        Self {
            device,
            ring,
            salt: sb.log_salt,
            generation: sb.generation,
            skip: sb.txn,
            limit: sb.log.offset + ring.len,
            position: sb.log,
            last_txn: sb.txn,
            ahead: Ahead::default(),
            peeked: None,
            trusts: false,
        }
    }

    /// The next record's transactions that are not in the checkpoint; `None` at the end of the log.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Logged>>, StoreError> {
        let found = match self.peeked.take().filter(|(head, _)| head.position == self.position) {
            Some(record) => Some(record),
            None => self.record_at(self.position, self.limit)?,
        };
        let Some((head, body)) = found else {
            return self.check_tail().map(|()| None);
        };
        if head.generation > self.generation {
            // A later checkpoint was published, and both its superblock copies are gone.
            return Err(Corruption::Superblock.into());
        }
        let txns = self.parse(&head, body).ok_or_else(|| self.corrupt(self.position))?;
        if txns.iter().any(|t| !t.placements.is_empty()) {
            // Only the last record may not have been flushed; its data must be whole for it to count.
            let next = LogPosition {
                offset: self.position.offset + head.padded_len(),
                record: self.position.record + 1,
            };
            self.peeked = self.record_at(next, self.limit)?;
            if self.peeked.is_none() && !self.trusts && !self.placed_data_is_whole(&txns)? {
                return self.check_tail().map(|()| None);
            }
        }
        self.position.offset += head.padded_len();
        self.position.record += 1;
        self.last_txn = head.first_txn + u64::from(head.txns) - 1;
        Ok(Some(txns))
    }

    fn corrupt(&self, at: LogPosition) -> StoreError {
        Corruption::Log { record: at.record, offset: self.ring.locate(at.offset).0 }.into()
    }

    /// The record at a position, when there is a whole one with the right number.
    fn record_at(&mut self, at: LogPosition, limit: u64) -> Result<Option<Record>, StoreError> {
        if at.offset.checked_add(BLOCK_U64).is_none_or(|end| end > limit) {
            return Ok(None);
        }
        let first = self.read(at.offset, BLOCK_U64)?;
        let Some((head, crc)) = RecordHead::parse(&first) else { return Ok(None) };
        let fits = at.offset.checked_add(head.padded_len()).is_some_and(|end| end <= limit);
        if head.position != at || head.salt != self.salt || !fits || head.padded_len() > self.ring.len {
            return Ok(None);
        }
        let raw = self.read(at.offset, head.padded_len())?;
        let body = raw.slice(RECORD_HEAD..RECORD_HEAD + head.body_len as usize);
        Ok(head.verifies(crc, &body).then_some((head, body)))
    }

    /// Log bytes, out of a longer piece that is kept for the next call.
    fn read(&mut self, offset: u64, len: u64) -> Result<Bytes, StoreError> {
        if let Some(known) = self.ahead.get(offset, len) {
            return Ok(known);
        }
        let until = offset.saturating_add(AHEAD_BYTES).min(self.limit);
        if offset >= self.ahead.exact_until && until.saturating_sub(offset) > len {
            match self.read_exactly(offset, until - offset) {
                Ok(raw) => self.ahead = Ahead { start: offset, raw, ..self.ahead },
                // Of what is behind nobody may ask.
                Err(_) => self.ahead.exact_until = until,
            }
            if let Some(known) = self.ahead.get(offset, len) {
                return Ok(known);
            }
        }
        self.read_exactly(offset, len)
    }

    fn read_exactly(&self, offset: u64, len: u64) -> Result<Bytes, StoreError> {
        let parts = self.ring.parts(offset, len);
        if let [(at, n)] = *parts {
            return Ok(self.device.read_bytes(at, n as usize)?);
        }
        let mut raw = Vec::with_capacity(len as usize);
        for (at, n) in parts {
            self.device.read_append(at, n as usize, &mut raw)?;
        }
        Ok(raw.into())
    }

    /// `None` when a record with a good checksum makes no sense.
    fn parse(&self, head: &RecordHead, body: Bytes) -> Option<Vec<Logged>> {
        let starts_well = head.first_txn == self.last_txn + 1
            || (head.first_txn <= self.skip + 1 && self.last_txn == self.skip && head.first_txn > 0);
        if !starts_well {
            return None;
        }
        let mut r = Reader::new(body);
        let mut txns = Vec::new();
        for i in 0..u64::from(head.txns) {
            let (txn, placements) = read_logged(&mut r).ok()?;
            let seq = head.first_txn + i;
            if seq > self.skip {
                txns.push(Logged { seq, txn, placements });
            }
        }
        (r.is_empty() && head.txns > 0).then_some(txns)
    }

    fn placed_data_is_whole(&self, txns: &[Logged]) -> Result<bool, StoreError> {
        for p in txns.iter().flat_map(|t| &t.placements) {
            let mut crcs = p.crcs.iter();
            for run in &p.runs {
                let raw = self.device.read_bytes(run.byte_offset(), run.len as usize * BLOCK)?;
                let mut blocks = raw.chunks(BLOCK).zip(run.start..);
                if !blocks.all(|(content, place)| crcs.next() == Some(&placed_crc(place, content))) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// There is no whole record at the position: an error if one exists behind it.
    fn check_tail(&mut self) -> Result<(), StoreError> {
        let start = self.position.offset;
        let end = self.limit.min(start + SEARCH_BYTES);
        let mut at = start;
        while at < end {
            let n = (end - at).min(SEARCH_STEP as u64);
            let raw = self.read_exactly(at, n)?;
            for (i, block) in raw.chunks(BLOCK).enumerate() {
                let offset = at + (i * BLOCK) as u64;
                let Some((head, _)) = RecordHead::parse(block) else { continue };
                let newer = head.salt == self.salt && head.position.record > self.position.record;
                let in_place = self.ring.locate(head.position.offset) == self.ring.locate(offset);
                if newer && in_place && self.record_at(head.position, u64::MAX)?.is_some() {
                    // Of a later round through the ring: the superblock that knew about it is gone.
                    let lapped = head.position.offset != offset;
                    return Err(if lapped {
                        Corruption::Superblock.into()
                    } else {
                        self.corrupt(self.position)
                    });
                }
            }
            at += n;
        }
        Ok(())
    }
}
