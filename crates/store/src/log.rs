//! The log's state: what waits to be written, what is under way, and how much of the ring is in use.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::alloc::Run;
use crate::checksum::{BLOCK, BLOCK_U64};
use crate::data::DirectWrite;
use crate::jobs::Commit;
use crate::record::{LoggedTxn, RecordBody, RecordHead, padded};
use crate::stage::SmallBlock;
use crate::superblock::LogPosition;
use crate::{Misuse, StoreError, TxnSeq};

/// A commit takes more transactions only up to this, so that the first of them need not wait for a long write.
const RECORD_MAX: usize = 8 << 20;

/// The largest transaction without what goes straight to its place: somewhat more than one message may carry
/// (`osd_max_write_size`, 90 MiB).
const TXN_MAX: usize = 96 << 20;

/// Small writes go to their places only when their runs have so many blocks on average: a checkpoint, which has more of
/// them to move, finds longer ones.
const RUN_MIN: usize = 2;

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
    /// How many blocks of `Log::small` are its own.
    small: u32,
}

/// What `take` gives out.
pub(crate) struct Taken {
    pub(crate) commit: Commit,
    /// Blocks that stay in the record: their content has to be kept until a checkpoint moves it to its place.
    pub(crate) logged: Vec<SmallBlock>,
    /// Whether small writes went straight to their places.
    pub(crate) placed: bool,
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
    pub(crate) tail: u64,
    pub(crate) head: LogPosition,
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    /// Of the queue, in its order.
    small: VecDeque<SmallBlock>,
    /// Small writes up to this transaction must be placed: the checkpoint that was begun behind it counts on that.
    place_until: TxnSeq,
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
            small: VecDeque::new(),
            place_until: TxnSeq(0),
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

    pub(crate) fn next_txn(&self) -> TxnSeq {
        TxnSeq(self.last_txn.0 + 1)
    }

    pub(crate) fn push(
        &mut self,
        logged: LoggedTxn,
        direct: Vec<DirectWrite>,
        small: impl ExactSizeIterator<Item = SmallBlock>,
    ) -> TxnSeq {
        self.last_txn = self.next_txn();
        self.queue_bytes += logged.len();
        self.longest = if self.queue.is_empty() { logged.len() } else { self.longest.max(logged.len()) };
        self.queue.push_back(Queued { seq: self.last_txn, logged, direct, small: small.len() as u32 });
        self.small.extend(small);
        self.last_txn
    }

    /// The checkpoint that begins now takes the small writes in the queue for placed.
    pub(crate) fn place_queue(&mut self) {
        self.place_until = self.last_txn;
    }

    /// The next record, as a job; `None` when nothing waits, one is under way, or there is no room. Small writes go
    /// straight to their places when they are `batch_min_bytes` together, in few runs.
    pub(crate) fn take(&mut self, generation: u64, batch_min_bytes: usize) -> Option<Taken> {
        if self.in_flight.is_some() || self.absorbed {
            return None;
        }
        let first = self.queue.front()?.seq;
        let (txns, bound) = self.next_batch();
        if txns == 0 {
            return None;
        }
        self.queue_bytes -= bound;
        let batch = self.queue.iter().take(txns);
        let has_direct = batch.clone().any(|q| !q.direct.is_empty());
        let blocks: usize = batch.map(|q| q.small as usize).sum();
        let small: Vec<SmallBlock> = self.small.drain(..blocks).collect();
        let many = are_worth_placing(&small, batch_min_bytes);
        let placed = blocks > 0 && (many || has_direct || first <= self.place_until);
        let (mut body, mut direct, mut rest) = (RecordBody::default(), Vec::new(), small.as_slice());
        for next in self.queue.drain(..txns) {
            let (mine, others) = rest.split_at(next.small as usize);
            rest = others;
            body.push(next.logged, placed.then_some(mine));
            direct.extend(next.direct);
        }
        if placed {
            direct.extend(small_writes(&small));
        }
        let last = TxnSeq(first.0 + txns as u64 - 1);
        let body_len = body.len();
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
        let commit = Commit::new(direct, head, body.into_pieces(), parts, last);
        Some(Taken { commit, logged: if placed { Vec::new() } else { small }, placed })
    }

    /// How many transactions the next record takes, and at most how many bytes they have in its body.
    fn next_batch(&self) -> (usize, usize) {
        let limit = RECORD_MAX.min((self.ring.len / 4) as usize);
        let (mut txns, mut bytes) = (0, 0);
        for next in &self.queue {
            let grown = bytes + next.logged.len();
            if padded(grown) as u64 > self.room() || (txns > 0 && grown > limit) {
                break;
            }
            (txns, bytes) = (txns + 1, grown);
        }
        (txns, bytes)
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
        let mut direct: Vec<DirectWrite> = self.queue.drain(..).flat_map(|q| q.direct).collect();
        direct.extend(small_writes(self.small.make_contiguous()));
        self.small.clear();
        direct
    }

    /// A checkpoint that holds everything before log offset `tail`, and all transactions up to `txn`, is published.
    pub(crate) fn published(&mut self, tail: u64, txn: TxnSeq) {
        self.tail = tail;
        self.durable = self.durable.max(txn);
        self.absorbed = false;
    }
}

/// Whether the blocks of a commit's small writes are many, in few runs.
fn are_worth_placing(small: &[SmallBlock], min_bytes: usize) -> bool {
    let runs = small.chunk_by(|a, b| a.place + 1 == b.place).count();
    small.len() * BLOCK >= min_bytes && small.len() >= RUN_MIN * runs
}

/// Blocks of small writes as writes of runs.
fn small_writes(small: &[SmallBlock]) -> impl Iterator<Item = DirectWrite> + '_ {
    small.chunk_by(|a, b| a.place + 1 == b.place).map(|run| DirectWrite {
        start: run.first().map_or(0, |b| b.place),
        pieces: run.iter().map(|b| b.content.clone()).collect(),
        unread: false,
    })
}

/// Padding behind a record's body.
pub(crate) fn padding(head: &RecordHead) -> Bytes {
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    let used = crate::record::RECORD_HEAD + head.body_len as usize;
    Bytes::from_static(&ZEROS).slice(..used.next_multiple_of(BLOCK) - used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_blocks_in_few_runs_are_placed() {
        let placed = |places: &[u32]| {
            let block = |place: &u32| SmallBlock { op: 0, place: *place, crc: 0, content: Bytes::new() };
            are_worth_placing(&places.iter().map(block).collect::<Vec<_>>(), 4 * BLOCK)
        };
        assert!(placed(&[5, 6, 7, 8]) && placed(&[5, 6, 90, 91, 92]) && placed(&[5, 7, 8, 9]));
        assert!(!placed(&[5, 6, 7]) && !placed(&[5, 7, 9, 10]) && !placed(&[]));
    }
}
