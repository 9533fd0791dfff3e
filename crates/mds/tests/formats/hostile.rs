//! Bytes that no server writes: changed and random ones never panic, and what is made of them can be written.

use bytes::Bytes;
use codec::{Decode, Encode};
use mds::format::{
    Backtrace, BaseInode, Dentry, DentryKey, Fnode, InoTable, JournalHeader, JournalPointer, LogEvent,
    OpenFile, OpenFilesChange, OpenFilesHeader, PurgeItem, SessionInfo, SessionMapHeader, SnapMutation,
    SnapTable, StreamFormat, read_entry,
};
use messages::fs::FileLayout;

use crate::common::cases;

/// A small generator, so that a failure comes again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Whether the bytes decode; then what is encoded of the value decodes to the same.
fn try_as<T: Decode + Encode>(bytes: &[u8]) -> bool {
    let Ok(value) = T::from_bytes(bytes.to_vec()) else { return false };
    let once = value.to_bytes();
    let again = T::from_bytes(once.clone()).expect("our own bytes decode").to_bytes();
    assert_eq!(once, again);
    true
}

type Try = fn(&[u8]) -> bool;

/// Decoders, with the kind of stored values that each takes; `""` for none.
const DECODERS: &[(&str, Try)] = &[
    ("fnode", try_as::<Fnode>),
    ("dentry", try_as::<Dentry>),
    ("backtrace", try_as::<Backtrace>),
    ("layout", try_as::<FileLayout>),
    ("base_inode", try_as::<BaseInode>),
    ("ino_table", try_as::<InoTable>),
    ("snap_table", try_as::<SnapTable>),
    ("session_header", try_as::<SessionMapHeader>),
    ("session", try_as::<SessionInfo>),
    ("open_files_header", try_as::<OpenFilesHeader>),
    ("open_file", try_as::<OpenFile>),
    ("pointer", try_as::<JournalPointer>),
    ("journal_header", try_as::<JournalHeader>),
    ("event", |framed| framed.len() > 20 && try_as::<LogEvent>(&framed[12..framed.len() - 8])),
    ("purge_item", |framed| framed.len() > 20 && try_as::<PurgeItem>(&framed[12..framed.len() - 8])),
    ("", try_as::<OpenFilesChange>),
    ("", try_as::<SnapMutation>),
    ("", |bytes| DentryKey::of_key(bytes).is_some()),
    ("", |bytes| read_entry(StreamFormat::Legacy, &Bytes::copy_from_slice(bytes), 0).is_ok()),
    ("", |bytes| read_entry(StreamFormat::Resilient, &Bytes::copy_from_slice(bytes), 0).is_ok()),
];

#[test]
fn changed_values_do_not_panic_and_can_be_written() {
    let mut random = Random(0x3d5_5eed);
    for (kind, run) in DECODERS.iter().filter(|(kind, _)| !kind.is_empty()) {
        let (mut whole, mut refused) = (0, 0);
        for (place, value) in cases(kind) {
            assert!(run(&value), "{place}");
            for _ in 0..100 {
                let mut bytes = value.to_vec();
                for _ in 0..=random.below(3) {
                    let at = random.below(bytes.len());
                    bytes[at] = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.below(6)];
                }
                if run(&bytes) { whole += 1 } else { refused += 1 }
            }
        }
        assert!(whole > 0 && refused > 0, "{kind}: {whole} decoded, {refused} refused");
    }
}

#[test]
fn random_bytes_do_not_panic() {
    let mut random = Random(0x0dd_b17e5);
    for (_, run) in DECODERS {
        for _ in 0..2_000 {
            let len = random.below(300);
            let mut bytes = random.bytes(len);
            // An envelope in front, which random bytes hardly ever have.
            if len > 6 && random.below(2) == 0 {
                let body = (len - 6) as u32;
                bytes[..2].copy_from_slice(&[[2, 5, 9][random.below(3)], 1]);
                bytes[2..6].copy_from_slice(&body.to_le_bytes());
            }
            run(&bytes);
        }
    }
}
