//! The log's state: what waits to be written, what is under way, and how much of the ring is in use.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::alloc::Run;
use crate::checksum::{BLOCK, BLOCK_U64};
use crate::data::DirectWrite;
use crate::jobs::Commit;
use crate::record::{LoggedTxn, RecordHead, padded};
use crate::superblock::LogPosition;
use crate::{Misuse, StoreError, TxnSeq};

/// A commit takes more transactions only up to this, so that the first of them need not wait for a long write.
const RECORD_MAX: usize = 8 << 20;

/// The largest transaction without what goes straight to its place: somewhat more than one message may carry
/// (`osd_max_write_size`, 90 MiB).
const TXN_MAX: usize = 96 << 20;

/// Where in the ring a position of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ring {
    /// First byte on the device.
    start: u64,
    pub(crate) len: u64,
}

impl Ring {
    pub(crate) fn new(log: Run) -> Self {
        Self { start: log.byte_offset(), len: u64::from(log.len) * BLOCK_U64 }
    }

    /// Device offset of a log offset, and how many bytes follow it before the ring wraps.
    pub(crate) fn locate(&self, offset: u64) -> (u64, u64) {
        let inside = offset % self.len;
        (self.start + inside, self.len - inside)
    }

    /// Blocks that a device range of a record covers, in at most two parts.
    pub(crate) fn parts(&self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let (at, before_wrap) = self.locate(offset);
        if len <= before_wrap {
            vec![(at, len)]
        } else {
            vec![(at, before_wrap), (self.start, len - before_wrap)]
        }
    }
}

#[derive(Debug)]
struct Queued {
    seq: TxnSeq,
    logged: LoggedTxn,
    direct: Vec<DirectWrite>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InFlight {
    record: u64,
    last: TxnSeq,
}

/// Invariants: (1) at most one commit is under way; (2) `tail <= head.offset <= tail + ring.len`; (3) transactions
/// leave the queue in the order of their numbers; (4) all transactions up to `durable` are durable, and record
/// `durable_record` is the last durable one.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) ring: Ring,
    salt: u32,
    /// Log offset before which everything is in the checkpoint.
    tail: u64,
    pub(crate) head: LogPosition,
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    /// At least the length of the longest transaction in the queue.
    longest: usize,
    in_flight: Option<InFlight>,
    durable_record: u64,
    pub(crate) last_txn: TxnSeq,
    pub(crate) durable: TxnSeq,
    /// Set while a checkpoint stands in for records that had no room: none may be written before it is through.
    pub(crate) absorbed: bool,
}

impl Log {
    /// After replay: everything up to `head` was read back and flushed.
    pub(crate) fn new(ring: Ring, salt: u32, tail: u64, head: LogPosition, last_txn: TxnSeq) -> Self {
        Self {
            ring,
            salt,
            tail,
            head,
            queue: VecDeque::new(),
            queue_bytes: 0,
            longest: 0,
            in_flight: None,
            durable_record: head.record - 1,
            last_txn,
            durable: last_txn,
            absorbed: false,
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.head.offset - self.tail
    }

    fn room(&self) -> u64 {
        self.ring.len - self.used_bytes()
    }

    pub(crate) fn queue_bytes(&self) -> usize {
        self.queue_bytes
    }

    pub(crate) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Refuses what is larger than any transaction should be. One that does not even fit an empty log is made durable by a
    /// checkpoint.
    pub(crate) fn check_size(&self, logged: &LoggedTxn) -> Result<(), StoreError> {
        match logged.len() <= TXN_MAX || padded(logged.len()) as u64 <= self.ring.len / 2 {
            true => Ok(()),
            false => Err(StoreError::Misuse(Misuse::TxnTooLarge)),
        }
    }

    pub(crate) fn push(&mut self, logged: LoggedTxn, direct: Vec<DirectWrite>) -> TxnSeq {
        self.last_txn.0 += 1;
        self.queue_bytes += logged.len();
        self.longest = if self.queue.is_empty() { logged.len() } else { self.longest.max(logged.len()) };
        self.queue.push_back(Queued { seq: self.last_txn, logged, direct });
        self.last_txn
    }

    /// The next record, as a job; `None` when nothing waits, one is under way, or there is no room.
    pub(crate) fn take(&mut self, generation: u64) -> Option<Commit> {
        if self.in_flight.is_some() || self.absorbed {
            return None;
        }
        let first = self.queue.front()?.seq;
        let mut last = first;
        let (mut body, mut direct, mut body_len) = (Vec::new(), Vec::new(), 0);
        let limit = RECORD_MAX.min((self.ring.len / 4) as usize);
        while let Some(next) = self.queue.front() {
            let grown = body_len + next.logged.len();
            if padded(grown) as u64 > self.room() || (body_len > 0 && grown > limit) {
                break;
            }
            let Some(next) = self.queue.pop_front() else { break };
            body_len = grown;
            last = next.seq;
            body.push(next.logged.head);
            body.extend(next.logged.payloads);
            direct.extend(next.direct);
        }
        if body_len == 0 {
            return None;
        }
        self.queue_bytes -= body_len;
        let head = RecordHead {
            position: self.head,
            durable_record: self.durable_record,
            generation,
            first_txn: first.0,
            txns: (last.0 - first.0 + 1) as u32,
            body_len: body_len as u32,
            salt: self.salt,
        };
        let parts = self.ring.parts(self.head.offset, head.padded_len());
        self.in_flight = Some(InFlight { record: self.head.record, last });
        self.head.offset += head.padded_len();
        self.head.record += 1;
        Some(Commit::new(direct, head, body, parts, last))
    }

    /// The commit up to `last` is through.
    pub(crate) fn committed(&mut self, last: TxnSeq) -> Result<(), StoreError> {
        match self.in_flight.take() {
            Some(done) if done.last == last => {
                self.durable_record = done.record;
                self.durable = self.durable.max(last);
                Ok(())
            }
            _ => Err(StoreError::Misuse(Misuse::WrongJob)),
        }
    }

    /// The last transaction that waits for the commit under way.
    pub(crate) fn in_flight_last(&self) -> Option<TxnSeq> {
        self.in_flight.map(|f| f.last)
    }

    /// Whether everything in the queue fits behind what the log holds.
    pub(crate) fn queue_fits(&self) -> bool {
        let per_record = RECORD_MAX.min((self.ring.len / 4) as usize);
        // Each record may leave one transaction's length unused and is padded.
        let records = self.queue_bytes / per_record.saturating_sub(self.longest).max(BLOCK) + 2;
        (self.queue_bytes + records * 2 * BLOCK) as u64 <= self.room()
    }

    /// Hands the whole queue to a checkpoint, which makes it durable without the log; only the data that goes straight
    /// to its place is left to write.
    pub(crate) fn absorb(&mut self) -> Vec<DirectWrite> {
        self.absorbed = true;
        self.queue_bytes = 0;
        self.queue.drain(..).flat_map(|q| q.direct).collect()
    }

    /// A checkpoint that holds everything before log offset `tail`, and all transactions up to `txn`, is published.
    pub(crate) fn published(&mut self, tail: u64, txn: TxnSeq) {
        self.tail = tail;
        self.durable = self.durable.max(txn);
        self.absorbed = false;
    }
}

/// Padding behind a record's body.
pub(crate) fn padding(head: &RecordHead) -> Bytes {
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    let used = crate::record::RECORD_HEAD + head.body_len as usize;
    Bytes::from_static(&ZEROS).slice(..used.next_multiple_of(BLOCK) - used)
}
