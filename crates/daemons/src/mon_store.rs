//! The monitor's store: its identity and vote, the replicated log and the newest snapshot, in redb.
//!
//! Invariants:
//! 1. The snapshot at index `s` holds everything up to `s`; the log holds the entries above it without gaps.
//! 2. A write is durable, whole, before the quorum hears of it.
//! 3. The format changes in the same transaction as what is stored in it.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use codec::crc32c;
use quorum::{Entry, HardState, MemberId, Membership, Payload, Snapshot, Start, Write, stored};
use redb::{Database, ReadableDatabase, TableDefinition, WriteTransaction};
use types::Entropy;

use crate::devices::Medium;

/// Index to record.
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
/// `snapshot` and `vote`: records. `format`: version of this layout.
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const FORMAT: u32 = 2;
/// The format of stores that could hold a monitor without others only.
const ALONE: u32 = 1;

/// The store holds every key of the cluster.
const PRIVATE: u32 = 0o600;

#[derive(Debug)]
pub struct MonStore {
    db: Database,
}

impl MonStore {
    /// Makes a store. With an empty membership its monitor has to be let in by others.
    pub fn create(path: &Path, id: MemberId, members: Membership, state: &Bytes) -> Result<()> {
        let made = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path).map(drop);
        made.with_context(|| format!("cannot create {}", path.display()))?;
        let store =
            Self { db: Database::create(path).with_context(|| format!("cannot create {}", path.display()))? };
        let hard = HardState { id, ..HardState::default() };
        let snapshot = Snapshot { members, state: state.clone(), ..Snapshot::default() };
        let tx = store.db.begin_write()?;
        put(&tx, &Write { hard: Some(hard), snapshot: Some(snapshot), ..Write::default() })?;
        put_format(&tx)?;
        tx.commit()?;
        runtime::keep_name(path).with_context(|| format!("cannot sync the folder of {}", path.display()))
    }

    /// Opens a store; `name` is the monitor's, for stores of the older form.
    pub fn open(path: &Path, name: &str, entropy: &mut dyn Entropy) -> Result<Self> {
        Self::open_on(path, Medium::default(), name, entropy)
    }

    /// The same, on a bad medium where tests have one.
    pub fn open_on(path: &Path, medium: Medium, name: &str, entropy: &mut dyn Entropy) -> Result<Self> {
        keep_private(path);
        let db = open_database(path, medium).with_context(|| format!("cannot open {}", path.display()))?;
        let store = Self { db };
        let format = store.meta("format")?;
        if format == ALONE.to_le_bytes() {
            store.convert(name, entropy).context("cannot convert the monitor's store")?;
        } else if format != FORMAT.to_le_bytes() {
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

    fn rows(&self) -> Result<Vec<(u64, Bytes)>> {
        let tx = self.db.begin_read()?;
        let table = tx.open_table(LOG)?;
        let mut rows = Vec::new();
        for row in table.range(0..)? {
            let (key, value) = row?;
            rows.push((key.value(), Bytes::copy_from_slice(value.value())));
        }
        Ok(rows)
    }

    /// What the member starts from.
    pub fn recover(&self) -> Result<Start> {
        let (vote, snapshot) = (self.meta("vote")?.into(), self.meta("snapshot")?.into());
        Ok(stored::recover_whole(&vote, &snapshot, self.rows()?)?)
    }

    /// Carries out a write; it is durable when this returns.
    pub fn write(&self, write: &Write) -> Result<()> {
        let tx = self.db.begin_write()?;
        put(&tx, write)?;
        tx.commit()?;
        Ok(())
    }

    /// A store of a monitor that was always alone becomes that of the only member of a quorum.
    fn convert(&self, name: &str, entropy: &mut dyn Entropy) -> Result<()> {
        let tx = self.db.begin_write()?;
        self.put_converted(&tx, name, entropy)?;
        tx.commit()?;
        Ok(())
    }

    /// Invariant 3: converted twice, a store would be lost.
    fn put_converted(&self, tx: &WriteTransaction, name: &str, entropy: &mut dyn Entropy) -> Result<()> {
        let id = MemberId::draw(entropy);
        let members = Membership::of([(id, name.to_owned())]);
        let (index, state) = unpack(&self.meta("snapshot")?).context("the snapshot is damaged")?;
        let mut entries = Vec::new();
        for (key, row) in self.rows()?.into_iter().filter(|(key, _)| *key > index) {
            let (at, data) = unpack(&row).context("the log is damaged")?;
            if at != key || at != index + 1 + entries.len() as u64 {
                bail!("the monitor's log has a gap before entry {at}");
            }
            entries.push(Entry { index: at, term: 1, payload: Payload::Data(data) });
        }
        let hard = HardState { id, term: 1, vote: id, outdated: false };
        let snapshot = Snapshot { index, term: 1, members, state };
        put(tx, &Write { hard: Some(hard), snapshot: Some(snapshot), entries, ..Write::default() })?;
        put_format(tx)
    }
}

fn open_database(path: &Path, medium: Medium) -> Result<Database> {
    #[cfg(feature = "test-medium")]
    if let Some(twin) = medium.twin {
        return bad_medium::open_database(path, twin);
    }
    let Medium { .. } = medium;
    runtime::drop_cache(path)?;
    Ok(Database::open(path)?)
}

#[cfg(feature = "test-medium")]
mod bad_medium {
    use std::fs::OpenOptions;
    use std::io;
    use std::path::Path;

    use anyhow::Result;
    use redb::{Database, StorageBackend};
    use runtime::{Twin, TwinFile};

    #[derive(Debug)]
    struct Backend(TwinFile);

    pub(super) fn open_database(path: &Path, twin: Twin) -> Result<Database> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Database::builder().create_with_backend(Backend(TwinFile::new(file, twin)))?)
    }

    impl StorageBackend for Backend {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.0.sync()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.0.write(offset, data)
        }
    }
}

/// Stores that others may read, as older versions made them, become private.
fn keep_private(path: &Path) {
    let Ok(about) = std::fs::metadata(path) else { return };
    if about.permissions().mode() & 0o077 == 0 {
        return;
    }
    if let Err(error) = std::fs::set_permissions(path, Permissions::from_mode(PRIVATE)) {
        tracing::warn!(%error, path = %path.display(), "others may read the monitor's store");
    }
}

fn put(tx: &WriteTransaction, write: &Write) -> Result<()> {
    let mut meta = tx.open_table(META)?;
    let mut log = tx.open_table(LOG)?;
    if let Some(hard) = &write.hard {
        meta.insert("vote", &stored::pack_hard_state(hard)[..])?;
    }
    if let Some(snapshot) = &write.snapshot {
        meta.insert("snapshot", &stored::pack_snapshot(snapshot)[..])?;
        log.retain_in(..=snapshot.index, |_, _| false)?;
    }
    if let Some(from) = write.truncate {
        log.retain_in(from.., |_, _| false)?;
    }
    for entry in &write.entries {
        log.insert(entry.index, &stored::pack_entry(entry, write.durable)[..])?;
    }
    Ok(())
}

fn put_format(tx: &WriteTransaction) -> Result<()> {
    tx.open_table(META)?.insert("format", FORMAT.to_le_bytes().as_slice())?;
    Ok(())
}

/// A record of the older form: index, bytes, checksum.
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
    use runtime::Twin;
    use types::SeededEntropy;

    use super::*;

    fn entry(index: u64) -> Entry {
        Entry { index, term: 1, payload: Payload::Data(Bytes::from(format!("entry {index}"))) }
    }

    /// The store of `a`, alone, in a folder that goes with the first of these.
    fn made() -> (tempfile::TempDir, std::path::PathBuf, Membership) {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("store.redb");
        let members = Membership::of([(MemberId(7), "a".to_owned())]);
        MonStore::create(&path, MemberId(7), members.clone(), &Bytes::from_static(b"genesis"))
            .expect("created");
        (dir, path, members)
    }

    #[test]
    fn writes_come_back_and_a_gap_is_found() {
        let (_dir, path, members) = made();
        let store = MonStore::open(&path, "a", &mut SeededEntropy(1)).expect("opened");
        for i in 1..=5 {
            let write = Write { durable: i - 1, entries: vec![entry(i)], ..Write::default() };
            store.write(&write).expect("written");
        }
        let snapshot =
            Snapshot { index: 3, term: 1, members: members.clone(), state: Bytes::from_static(b"three") };
        store.write(&Write { snapshot: Some(snapshot.clone()), ..Write::default() }).expect("written");
        drop(store);
        let store = MonStore::open(&path, "a", &mut SeededEntropy(1)).expect("opened");
        let start = store.recover().expect("recovered");
        assert_eq!((start.hard.id, &start.snapshot), (MemberId(7), &snapshot));
        assert_eq!(start.entries, vec![entry(4), entry(5)]);
        let write = Write { truncate: Some(5), entries: vec![], ..Write::default() };
        store.write(&write).expect("written");
        assert_eq!(store.recover().expect("recovered").entries, vec![entry(4)]);
        store.write(&Write { durable: 6, entries: vec![entry(7)], ..Write::default() }).expect("written");
        assert!(store.recover().is_err(), "a gap below what was durable is found");
    }

    #[test]
    fn nobody_else_may_read_a_store() {
        let (_dir, path, members) = made();
        let mode = || std::fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        assert!(MonStore::create(&path, MemberId(7), members, &Bytes::new()).is_err(), "it is in use");
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("set");
        MonStore::open(&path, "a", &mut SeededEntropy(1)).expect("opened");
        assert_eq!(mode(), 0o600, "a start makes it private");
    }

    #[test]
    fn a_damaged_last_record_is_no_torn_tail() {
        let (_dir, path, _) = made();
        let store = MonStore::open(&path, "a", &mut SeededEntropy(1)).expect("opened");
        store.write(&Write { entries: vec![entry(1), entry(2)], ..Write::default() }).expect("written");
        assert_eq!(store.recover().expect("recovered").entries.len(), 2);
        let mut bent = stored::pack_entry(&entry(2), 0).to_vec();
        bent[20] ^= 1;
        let tx = store.db.begin_write().expect("a write");
        tx.open_table(LOG).expect("log").insert(2, bent.as_slice()).expect("entry");
        tx.commit().expect("committed");
        assert!(store.recover().is_err(), "it may have been acknowledged");
    }

    /// A store that dies again and again without having synced what it wrote last still holds every write
    /// that returned.
    #[test]
    fn power_losses_take_nothing_that_was_written() {
        let (_dir, path, _) = made();
        let mut index = 0;
        for life in 0..30 {
            let medium = Medium { twin: Some(Twin { power_loss: Some(life), ..Twin::default() }) };
            let store = MonStore::open_on(&path, medium, "a", &mut SeededEntropy(life)).expect("opened");
            let start = store.recover().expect("recovered");
            assert_eq!(start.entries.last().map_or(0, |e| e.index), index, "life {life}");
            for _ in 0..1 + life % 4 {
                index += 1;
                let write = Write { durable: index - 1, entries: vec![entry(index)], ..Write::default() };
                store.write(&write).expect("written");
            }
            // Not dropped: redb would note an orderly end in the store.
            std::mem::forget(store);
        }
    }

    fn pack(index: u64, bytes: &[u8]) -> Vec<u8> {
        let mut out = index.to_le_bytes().to_vec();
        out.extend_from_slice(bytes);
        let crc = crc32c(u32::MAX, &out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    #[test]
    fn a_store_of_the_older_form_is_converted_once() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("store.redb");
        let db = Database::create(&path).expect("created");
        let tx = db.begin_write().expect("a write");
        {
            let mut meta = tx.open_table(META).expect("meta");
            meta.insert("format", 1u32.to_le_bytes().as_slice()).expect("format");
            meta.insert("snapshot", pack(2, b"two").as_slice()).expect("snapshot");
            tx.open_table(LOG).expect("log").insert(3, pack(3, b"entry 3").as_slice()).expect("entry");
        }
        tx.commit().expect("committed");
        // A crash at any point before the commit leaves the older form whole: rows and format go together.
        let store = MonStore { db };
        let tx = store.db.begin_write().expect("a write");
        store.put_converted(&tx, "a", &mut SeededEntropy(1)).expect("converted");
        tx.abort().expect("aborted");
        assert_eq!(store.meta("format").expect("format"), ALONE.to_le_bytes());
        assert_eq!(store.meta("snapshot").expect("snapshot"), pack(2, b"two"));
        assert_eq!(store.rows().expect("rows"), vec![(3, pack(3, b"entry 3").into())]);
        drop(store);
        let start =
            MonStore::open(&path, "a", &mut SeededEntropy(1)).expect("opened").recover().expect("recovered");
        assert_eq!((start.snapshot.index, &start.snapshot.state[..]), (2, b"two".as_slice()));
        assert_eq!(start.entries, vec![entry(3)]);
        assert!(start.snapshot.members.is_voter(start.hard.id));
        let again =
            MonStore::open(&path, "a", &mut SeededEntropy(2)).expect("opened").recover().expect("recovered");
        assert_eq!(start, again);
    }
}
