//! Each stored value is decoded, is an error when it is cut anywhere, and is encoded to the same bytes.

use bytes::Bytes;
use codec::{Decode, Encode, Writer};
use mds::format::{
    Backtrace, BaseInode, Dentry, DentryKey, Fnode, InoTable, JournalHeader, JournalPointer, LogEvent,
    OpenFile, OpenFilesHeader, PurgeItem, ReadEntry, SessionInfo, SessionMapHeader, SnapTable, StreamFormat,
    read_entry, write_entry,
};
use messages::fs::FileLayout;

use crate::common::{cases, position, unhex};

fn check_value<T: Decode + Encode + PartialEq + std::fmt::Debug>(place: &str, whole: &Bytes) -> T {
    for n in 0..whole.len() {
        assert!(T::from_bytes(whole.slice(..n)).is_err(), "{place}: {n} of {}", whole.len());
    }
    let value = T::from_bytes(whole.clone()).unwrap_or_else(|e| panic!("{place}: {e}"));
    assert_eq!(value.to_bytes(), whole, "{place}: {value:?}");
    value
}

fn check<T: Decode + Encode + PartialEq + std::fmt::Debug>(kind: &str) {
    for (place, whole) in cases(kind) {
        check_value::<T>(&place, &whole);
    }
}

#[test]
fn stored_values_come_back_byte_for_byte() {
    check::<Fnode>("fnode");
    check::<Dentry>("dentry");
    check::<Backtrace>("backtrace");
    check::<FileLayout>("layout");
    check::<BaseInode>("base_inode");
    check::<InoTable>("ino_table");
    check::<SnapTable>("snap_table");
    check::<SessionMapHeader>("session_header");
    check::<SessionInfo>("session");
    check::<OpenFilesHeader>("open_files_header");
    check::<OpenFile>("open_file");
    check::<JournalPointer>("pointer");
    check::<JournalHeader>("journal_header");
}

#[test]
fn keys_of_names_come_back() {
    for (place, _) in cases("dentry") {
        let key = unhex(place.split('/').nth(1).expect("a key"));
        assert_eq!(DentryKey::of_key(&key).map(|k| k.to_key()), Some(key), "{place}");
    }
}

/// The payload of an entry, whose frame comes back too.
fn payload(place: &str, framed: &Bytes) -> Bytes {
    let at = position(place);
    for n in 0..framed.len() {
        let cut = read_entry(StreamFormat::Resilient, &framed.slice(..n), at);
        assert!(matches!(cut, Ok(ReadEntry::Needs(needs)) if needs > n as u64), "{place}: {n}");
    }
    let Ok(ReadEntry::Entry { payload, next }) = read_entry(StreamFormat::Resilient, framed, at) else {
        panic!("{place}: no entry");
    };
    assert_eq!(next, at + framed.len() as u64);
    let mut again = Writer::new();
    write_entry(&mut again, &payload, at);
    assert_eq!(again.into_bytes(), framed, "{place}");
    payload
}

#[test]
fn entries_of_the_purge_queue_come_back_byte_for_byte() {
    for (place, framed) in cases("purge_item") {
        check_value::<PurgeItem>(&place, &payload(&place, &framed));
    }
}

#[test]
fn events_come_back_byte_for_byte() {
    for (place, framed) in cases("event") {
        let payload = payload(&place, &framed);
        let event: LogEvent = check_value(&place, &payload);
        assert!(place.starts_with(event.kind_str()), "{place} is {event:?}");
        let more = [&payload[..], b"x"].concat();
        assert!(LogEvent::from_bytes(more).is_err(), "{place}: bytes behind it");
    }
}
