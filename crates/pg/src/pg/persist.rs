//! A PG's own keys in the store: info, past intervals, log entries, dups, missing and damaged objects.
//!
//! Invariants:
//! 1. Whatever changes in memory is written in the very transaction that changes the objects it speaks of.
//! 2. A log entry's key sorts as its version does.
//! 3. A write stores no info: its newest entry carries what the info does not learn from the log (`AfterWrite`). An info
//!    that was stored later has a `last_update` at or above that entry, and is believed. An info whose `last_update`
//!    falls is stored with the removal of the entries above it.
//! 4. Trimming leaves entries that answer requests where they are: at or below the stored `log_tail` they are dups.

use std::collections::BTreeSet;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use store::{Op, Space, Store, StoreError, Txn};
use types::{Eversion, HObject, SpgId};

use crate::entry::{DupEntry, LogEntry};
use crate::info::{AfterWrite, PgInfo};
use crate::interval::PastIntervals;
use crate::log::{PgLog, Trimmed};
use crate::merge::Merged;
use crate::missing::{Missing, MissingItem};

const INFO: &[u8] = b"i";
const PAST: &[u8] = b"p";
const LOG: u8 = b'l';
const DUP: u8 = b'd';
const MISSING: u8 = b'm';
const DAMAGED: u8 = b'x';
/// Keys read in one step.
const PAGE: usize = 1_000;

/// A PG as it was stored.
pub(crate) struct Stored {
    pub info: PgInfo,
    pub past: PastIntervals,
    pub log: PgLog,
    pub missing: Missing,
    /// Objects that lost data here, as `Pg::lost_here` has them.
    pub damaged: BTreeSet<HObject>,
}

/// A stored PG could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

fn version_key(class: u8, v: Eversion) -> Bytes {
    let mut k = Vec::with_capacity(13);
    k.push(class);
    k.extend_from_slice(&v.epoch.0.to_be_bytes());
    k.extend_from_slice(&v.version.to_be_bytes());
    k.into()
}

fn object_key(class: u8, o: &HObject) -> Bytes {
    let mut k = vec![class];
    k.extend_from_slice(&o.to_bytes());
    k.into()
}

pub(crate) fn put_info(txn: &mut Txn, id: SpgId, info: &PgInfo) {
    txn.set(Space::Pg(id), Bytes::from_static(INFO), info.to_bytes());
}

pub(crate) fn put_past(txn: &mut Txn, id: SpgId, past: &PastIntervals) {
    txn.set(Space::Pg(id), Bytes::from_static(PAST), past.to_bytes());
}

pub(crate) fn put_entry(txn: &mut Txn, id: SpgId, e: &LogEntry) {
    txn.set(Space::Pg(id), version_key(LOG, e.version), e.to_bytes());
}

/// A write's newest entry, with what the info does not learn from the log.
pub(crate) fn put_newest_entry(txn: &mut Txn, id: SpgId, e: &LogEntry, after: &AfterWrite) {
    let value = Writer::collect(|w| {
        e.encode(w);
        after.encode(w);
    });
    txn.set(Space::Pg(id), version_key(LOG, e.version), value);
}

/// The entries that a write's transaction stores, and what follows the newest.
pub(crate) fn entries_of(txn: &Txn, id: SpgId) -> Result<(Vec<LogEntry>, AfterWrite), DecodeError> {
    let (mut entries, mut newest) = (Vec::with_capacity(1), None);
    for op in txn.ops() {
        let Op::Set { space, key, value } = op else { continue };
        if *space == Space::Pg(id) && key.first() == Some(&LOG) {
            let stored = StoredEntry::from_bytes(value.clone())?;
            entries.push(stored.entry);
            newest = stored.after;
        }
    }
    let newest = newest.ok_or(DecodeError::Invalid { what: "write without an entry", value: 0 })?;
    Ok((entries, newest))
}

/// An entry as it is stored.
struct StoredEntry {
    entry: LogEntry,
    after: Option<AfterWrite>,
}

impl Decode for StoredEntry {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let entry = LogEntry::decode(r)?;
        let after = if r.is_empty() { None } else { Some(AfterWrite::decode(r)?) };
        Ok(Self { entry, after })
    }
}

pub(crate) fn put_dup(txn: &mut Txn, id: SpgId, d: &DupEntry) {
    txn.set(Space::Pg(id), version_key(DUP, d.version), d.to_bytes());
}

pub(crate) fn put_trimmed(txn: &mut Txn, id: SpgId, t: &Trimmed) {
    let space = Space::Pg(id);
    for v in &t.entries {
        txn.unset(space, version_key(LOG, *v));
    }
    for v in &t.dups {
        txn.unset(space, version_key(DUP, *v));
    }
}

pub(crate) fn put_merged(txn: &mut Txn, id: SpgId, m: &Merged) {
    let space = Space::Pg(id);
    if let Some(tail) = m.dups_above {
        let end = Bytes::from_static(&[DUP + 1]);
        txn.unset_range(space, version_key(DUP, Eversion::new(tail.epoch, tail.version + 1)), end);
    }
    for v in &m.removed_entries {
        txn.unset(space, version_key(LOG, *v));
    }
    for e in &m.added_entries {
        put_entry(txn, id, e);
    }
    for d in &m.added_dups {
        put_dup(txn, id, d);
    }
}

/// Replaces the stored log.
pub(crate) fn put_log(txn: &mut Txn, id: SpgId, log: &mut PgLog) {
    let space = Space::Pg(id);
    txn.unset_range(space, vec![LOG], vec![LOG + 1]);
    txn.unset_range(space, vec![DUP], vec![DUP + 1]);
    log.entries().for_each(|e| put_entry(txn, id, e));
    log.dups().for_each(|d| put_dup(txn, id, &d));
    log.dups_stored_apart();
}

/// Replaces the stored missing set.
pub(crate) fn put_missing(txn: &mut Txn, id: SpgId, missing: &Missing) {
    let space = Space::Pg(id);
    txn.unset_range(space, vec![MISSING], vec![MISSING + 1]);
    for (o, item) in missing.iter() {
        txn.set(space, object_key(MISSING, o), (o.clone(), *item).to_bytes());
    }
}

/// Stores one of the missing objects, or what is known of it now.
pub(crate) fn add_missing(txn: &mut Txn, id: SpgId, o: &HObject, item: MissingItem) {
    txn.set(Space::Pg(id), object_key(MISSING, o), (o.clone(), item).to_bytes());
}

pub(crate) fn forget_missing(txn: &mut Txn, id: SpgId, o: &HObject) {
    txn.unset(Space::Pg(id), object_key(MISSING, o));
}

/// Replaces the stored damaged objects.
pub(crate) fn put_damaged(txn: &mut Txn, id: SpgId, damaged: &BTreeSet<HObject>) {
    txn.unset_range(Space::Pg(id), vec![DAMAGED], vec![DAMAGED + 1]);
    damaged.iter().for_each(|o| add_damaged(txn, id, o));
}

pub(crate) fn add_damaged(txn: &mut Txn, id: SpgId, o: &HObject) {
    txn.set(Space::Pg(id), object_key(DAMAGED, o), o.to_bytes());
}

pub(crate) fn forget_damaged(txn: &mut Txn, id: SpgId, o: &HObject) {
    txn.unset(Space::Pg(id), object_key(DAMAGED, o));
}

/// The objects whose damage is stored.
pub(crate) fn damaged_in(store: &mut Store, id: SpgId) -> Result<Vec<HObject>, ReadError> {
    read_class(store, id, DAMAGED)
}

/// Reads a PG; `None` when the space holds no info (a PG whose deletion was under way keeps it to the end).
pub(crate) fn read(store: &mut Store, id: SpgId) -> Result<Option<Stored>, ReadError> {
    let Some(raw) = store.get(Space::Pg(id), INFO)? else { return Ok(None) };
    let mut info = PgInfo::from_bytes(raw)?;
    let past = match store.get(Space::Pg(id), PAST)? {
        Some(raw) => PastIntervals::from_bytes(raw)?,
        None => PastIntervals::default(),
    };
    let stored: Vec<StoredEntry> = read_class(store, id, LOG)?;
    if let Some(StoredEntry { entry, after: Some(after) }) = stored.last() {
        if entry.version > info.last_update {
            info.last_user_version = after.last_user_version;
            info.sums = after.sums;
        }
    }
    let entries = stored.into_iter().map(|s| s.entry).collect();
    let dups: Vec<DupEntry> = read_class(store, id, DUP)?;
    let missing: Vec<(HObject, MissingItem)> = read_class(store, id, MISSING)?;
    let damaged = damaged_in(store, id)?;
    let mut log = PgLog::from_parts(info.log_tail, entries, dups);
    if info.last_update > log.head() {
        log.set_head(info.last_update);
    }
    let missing = Missing::from_items(missing);
    Ok(Some(Stored { info, past, log, missing, damaged: damaged.into_iter().collect() }))
}

fn read_class<T: Decode>(store: &mut Store, id: SpgId, class: u8) -> Result<Vec<T>, ReadError> {
    let mut out = Vec::new();
    let mut from = vec![class];
    let until = [class + 1];
    loop {
        let page = store.scan(Space::Pg(id), &from, Some(&until), PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(out) };
        from = last.to_vec();
        from.push(0);
        let full = page.len() == PAGE;
        for (_, raw) in page {
            out.push(T::from_bytes(raw)?);
        }
        if !full {
            return Ok(out);
        }
    }
}
