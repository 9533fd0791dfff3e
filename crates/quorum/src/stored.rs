//! The stored form of the log: records that know where they belong, what was durable before them, and whether they are whole.
//!
//! Invariants:
//! 1. A record names its index and the highest index that was known to be durable when it was written.
//! 2. A record that is missing or damaged at or below the highest such mark is corruption, and the store is refused.
//! 3. Above it, what is damaged is corruption as well where writes are atomic (`recover_whole`): it may have been acknowledged.
//!    Where a crash can cut a write off (`recover`), it is the tail of one, and is dropped with everything after it: nobody was
//!    told that it is there.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, crc32c};
use thiserror::Error;

use crate::log::{Entry, Snapshot};
use crate::raft::{HardState, Start};

/// Why a store cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoredError {
    #[error("{0} of the monitor's store is damaged")]
    Damaged(&'static str),
    #[error("entry {index} of the monitor's log is damaged or missing, although {durable} was durable")]
    Corrupt { index: u64, durable: u64 },
    #[error("the monitor's store is of a newer form: {0}")]
    Newer(#[from] DecodeError),
}

/// A log record. `durable`: what was known to be on the disk before.
pub fn pack_entry(entry: &Entry, durable: u64) -> Bytes {
    sealed(|w| {
        w.u64(durable);
        entry.encode(w);
    })
}

pub fn pack_snapshot(snapshot: &Snapshot) -> Bytes {
    sealed(|w| snapshot.encode(w))
}

pub fn pack_hard_state(hard: &HardState) -> Bytes {
    sealed(|w| hard.encode(w))
}

fn sealed(body: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new();
    body(&mut w);
    let crc = crc32c(u32::MAX, w.as_slice());
    w.u32(crc);
    w.into_bytes()
}

fn unseal(record: &Bytes) -> Option<Reader> {
    let (body, crc) = record.split_last_chunk::<4>()?;
    (crc32c(u32::MAX, body) == u32::from_le_bytes(*crc)).then(|| Reader::new(record.slice(..body.len())))
}

/// What a crash can leave of the last write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    Torn,
    Whole,
}

/// What a member starts from, out of its records, where a crash can leave a part of a write. Rows are the log's keys and
/// records.
pub fn recover(
    hard: &Bytes,
    snapshot: &Bytes,
    rows: impl IntoIterator<Item = (u64, Bytes)>,
) -> Result<Start, StoredError> {
    read(hard, snapshot, rows, Tail::Torn)
}

/// The same where every write is there whole or not at all: each row above the snapshot must be readable, without gaps.
pub fn recover_whole(
    hard: &Bytes,
    snapshot: &Bytes,
    rows: impl IntoIterator<Item = (u64, Bytes)>,
) -> Result<Start, StoredError> {
    read(hard, snapshot, rows, Tail::Whole)
}

fn read(
    hard: &Bytes,
    snapshot: &Bytes,
    rows: impl IntoIterator<Item = (u64, Bytes)>,
    tail: Tail,
) -> Result<Start, StoredError> {
    let mut r = unseal(hard).ok_or(StoredError::Damaged("the vote"))?;
    let hard = HardState::decode(&mut r)?;
    let mut r = unseal(snapshot).ok_or(StoredError::Damaged("the snapshot"))?;
    let snapshot = Snapshot::decode(&mut r)?;
    let mut durable = 0;
    let mut good = BTreeMap::new();
    for (key, record) in rows {
        if tail == Tail::Whole {
            // That it is there at all says that its write was completed.
            durable = durable.max(key);
        }
        let Some(mut r) = unseal(&record) else { continue };
        let mark = r.u64()?;
        let entry = Entry::decode(&mut r)?;
        durable = durable.max(mark);
        if entry.index == key && key > snapshot.index {
            good.insert(key, entry);
        }
    }
    let mut entries = Vec::new();
    let mut next = snapshot.index + 1;
    while let Some(entry) = good.remove(&next) {
        entries.push(entry);
        next += 1;
    }
    if next <= durable {
        return Err(StoredError::Corrupt { index: next, durable });
    }
    Ok(Start { hard, snapshot, entries })
}
