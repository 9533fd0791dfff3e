//! The monitor's store: the replicated log and the newest snapshot, in redb.
//!
//! Invariants:
//! 1. The snapshot at index `s` holds everything up to `s`; the log holds the entries above it without gaps.
//! 2. An entry is durable before the monitor hears that it is committed.

use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use codec::crc32c;
use redb::{Database, ReadableDatabase, TableDefinition};

/// Index to crc32c and entry.
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
/// `snapshot`: index, crc32c and state. `format`: version of this layout.
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const FORMAT: u32 = 1;

/// What a monitor starts from.
#[derive(Debug, Clone)]
pub struct Recovered {
    pub snapshot_index: u64,
    pub snapshot: Bytes,
    /// Entries above the snapshot, in order.
    pub log: Vec<(u64, Bytes)>,
}

#[derive(Debug)]
pub struct MonStore {
    db: Database,
}

impl MonStore {
    /// Makes a store that holds the state of a new cluster.
    pub fn create(path: &Path, genesis: &[u8]) -> Result<()> {
        let store =
            Self { db: Database::create(path).with_context(|| format!("cannot create {}", path.display()))? };
        let tx = store.db.begin_write()?;
        {
            let mut meta = tx.open_table(META)?;
            meta.insert("format", FORMAT.to_le_bytes().as_slice())?;
            meta.insert("snapshot", pack(0, genesis).as_slice())?;
            tx.open_table(LOG)?;
        }
        tx.commit()?;
        Ok(())
    }

    pub fn open(path: &Path) -> Result<Self> {
        let db = Database::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let store = Self { db };
        let format = store.meta("format")?;
        if format != FORMAT.to_le_bytes() {
            bail!("{} has another format ({format:?}); this loligo reads format {FORMAT}", path.display());
        }
        Ok(store)
    }

    fn meta(&self, key: &str) -> Result<Vec<u8>> {
        let tx = self.db.begin_read()?;
        let table = tx.open_table(META)?;
        let value = table.get(key)?.with_context(|| format!("the monitor's store has no {key}"))?;
        Ok(value.value().to_vec())
    }

    pub fn recover(&self) -> Result<Recovered> {
        let (snapshot_index, snapshot) =
            unpack(&self.meta("snapshot")?).context("the snapshot is damaged")?;
        let tx = self.db.begin_read()?;
        let table = tx.open_table(LOG)?;
        let mut log = Vec::new();
        for row in table.range(snapshot_index + 1..)? {
            let (key, value) = row?;
            let (index, entry) = unpack(value.value()).context("the log is damaged")?;
            if index != key.value() || index != snapshot_index + 1 + log.len() as u64 {
                bail!("the monitor's log has a gap before entry {index}");
            }
            log.push((index, entry));
        }
        Ok(Recovered { snapshot_index, snapshot, log })
    }

    /// Appends an entry; it is durable when this returns.
    pub fn append(&self, index: u64, entry: &[u8]) -> Result<()> {
        let tx = self.db.begin_write()?;
        tx.open_table(LOG)?.insert(index, pack(index, entry).as_slice())?;
        tx.commit()?;
        Ok(())
    }

    /// Replaces the snapshot and cuts the log up to it.
    pub fn snapshot(&self, index: u64, state: &[u8]) -> Result<()> {
        let tx = self.db.begin_write()?;
        tx.open_table(META)?.insert("snapshot", pack(index, state).as_slice())?;
        tx.open_table(LOG)?.retain_in(..=index, |_, _| false)?;
        tx.commit()?;
        Ok(())
    }
}

fn pack(index: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(12 + bytes.len());
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(bytes);
    let crc = crc32c(u32::MAX, &out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn unpack(row: &[u8]) -> Option<(u64, Bytes)> {
    let (body, crc) = row.split_last_chunk::<4>()?;
    if crc32c(u32::MAX, body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (index, bytes) = body.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*index), Bytes::copy_from_slice(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_snapshots_come_back_and_damage_is_found() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("store.redb");
        MonStore::create(&path, b"genesis").expect("created");
        let store = MonStore::open(&path).expect("opened");
        for i in 1..=5 {
            store.append(i, format!("entry {i}").as_bytes()).expect("appended");
        }
        store.snapshot(3, b"three").expect("snapshot");
        drop(store);
        let store = MonStore::open(&path).expect("opened");
        let got = store.recover().expect("recovered");
        assert_eq!((got.snapshot_index, &got.snapshot[..]), (3, b"three".as_slice()));
        assert_eq!(got.log.iter().map(|(i, _)| *i).collect::<Vec<_>>(), vec![4, 5]);
        store.append(7, b"gap").expect("appended");
        assert!(store.recover().is_err(), "a gap is found");
        let mut row = pack(1, b"x");
        row[8] ^= 1;
        assert!(unpack(&row).is_none(), "a flipped bit is found");
    }
}
