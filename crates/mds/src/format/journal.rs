//! The journal as a file: its header, where it is, and how entries lie one after the other.
//!
//! Positions count bytes from the start of the file, whose first object the header has for itself. An entry
//! may lie across objects. Source: src/osdc/Journaler.h, src/osdc/Journaler.cc, src/mds/JournalPointer.h.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::fs::FileLayout;
use types::Ino;

use super::wire::stored;

/// How entries are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum StreamFormat {
    /// A length in front of each.
    Legacy = 0,
    /// A sentinel and a length in front, the entry's position behind: what is damaged can be skipped.
    #[default]
    Resilient = 1,
}

/// The first object of a journal.
///
/// Invariant (`is_ordered`): `trimmed_pos <= expire_pos <= write_pos`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalHeader {
    pub magic: Bytes,
    /// Objects below are gone.
    pub trimmed_pos: u64,
    /// Here replay begins.
    pub expire_pos: u64,
    /// Written as `expire_pos`, and read by nobody.
    pub unused: u64,
    /// Up to here there are whole entries; there may be more behind.
    pub write_pos: u64,
    /// How the file lies in objects. Its namespace is not stored.
    pub layout: FileLayout,
    pub format: StreamFormat,
}

impl JournalHeader {
    pub fn is_ordered(&self) -> bool {
        self.trimmed_pos <= self.expire_pos && self.expire_pos <= self.write_pos
    }
}

impl Encode for JournalHeader {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.blob(&self.magic);
            [self.trimmed_pos, self.expire_pos, self.unused, self.write_pos]
                .into_iter()
                .for_each(|at| w.u64(at));
            self.layout.encode_old(w);
            w.u8(self.format as u8);
        });
    }
}
impl Decode for JournalHeader {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope_since("Journaler::Header", 2, 2, |r, _| {
            Ok(Self {
                magic: r.blob()?,
                trimmed_pos: r.u64()?,
                expire_pos: r.u64()?,
                unused: r.u64()?,
                write_pos: r.u64()?,
                layout: FileLayout::decode(r)?,
                format: match r.u8()? {
                    0 => StreamFormat::Legacy,
                    1 => StreamFormat::Resilient,
                    other => {
                        return Err(DecodeError::Invalid { what: "journal format", value: other.into() });
                    }
                },
            })
        })
    }
}

/// Which file is a rank's journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalPointer {
    pub front: Ino,
    /// The one that it is being rewritten to; 0 for none.
    pub back: Ino,
}
stored!(JournalPointer(1, 1, 1) { front, back });

/// Opens an entry. Source: JournalStream::sentinel.
const SENTINEL: u64 = 0x3141_5926_5358_9793;

/// An entry's bytes at most. Ceph has no bound; its largest, of an import of a subtree, are a few MiB.
pub const MAX_ENTRY_BYTES: u32 = 256 << 20;

impl StreamFormat {
    /// Bytes in front of an entry.
    fn front(self) -> usize {
        match self {
            Self::Legacy => 4,
            Self::Resilient => 12,
        }
    }

    fn behind(self) -> usize {
        match self {
            Self::Legacy => 0,
            Self::Resilient => 8,
        }
    }
}

/// What lies at a place of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadEntry {
    /// An entry, and where the next one begins.
    Entry { payload: Bytes, next: u64 },
    /// As many bytes are needed, counted from the entry's start.
    Needs(u64),
}

/// No entry lies at a place of a journal. Positions are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("no entry begins at {at}: {found:#x} is there")]
    NoSentinel { at: u64, found: u64 },
    #[error("an entry of {claimed} bytes at {at}")]
    TooLarge { at: u64, claimed: u32 },
    #[error("the entry at {at} says that it is at {claimed}")]
    Elsewhere { at: u64, claimed: u64 },
}

/// Reads the entry at position `at`, whose bytes, as far as they are known, are `bytes`.
pub fn read_entry(format: StreamFormat, bytes: &Bytes, at: u64) -> Result<ReadEntry, EntryError> {
    let needs = |len: usize| Ok(ReadEntry::Needs(len as u64));
    let mut r = Reader::new(bytes.clone());
    if format == StreamFormat::Resilient {
        match r.u64() {
            Ok(SENTINEL) => {}
            Ok(found) => return Err(EntryError::NoSentinel { at, found }),
            Err(_) => return needs(format.front()),
        }
    }
    let Ok(claimed) = r.u32() else { return needs(format.front()) };
    if claimed > MAX_ENTRY_BYTES {
        return Err(EntryError::TooLarge { at, claimed });
    }
    let whole = format.front() + claimed as usize + format.behind();
    let Ok(payload) = r.raw(claimed as usize) else { return needs(whole) };
    if format == StreamFormat::Resilient {
        match r.u64() {
            Ok(start) if start == at => {}
            Ok(claimed) => return Err(EntryError::Elsewhere { at, claimed }),
            Err(_) => return needs(whole),
        }
    }
    Ok(ReadEntry::Entry { payload, next: at.saturating_add(whole as u64) })
}

/// Appends an entry that will lie at position `at`; the caller's payload is at most [`MAX_ENTRY_BYTES`].
/// Answers where the next one begins.
pub fn write_entry(w: &mut Writer, payload: &[u8], at: u64) -> u64 {
    assert!(payload.len() <= MAX_ENTRY_BYTES as usize, "an entry of {} bytes", payload.len());
    let format = StreamFormat::Resilient;
    w.u64(SENTINEL);
    w.blob(payload);
    w.u64(at);
    at + (format.front() + payload.len() + format.behind()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(payload: &'static [u8], at: u64) -> Bytes {
        Writer::collect(|w| assert_eq!(write_entry(w, payload, at), at + 20 + payload.len() as u64))
    }

    fn read(bytes: &[u8], at: u64) -> Result<ReadEntry, EntryError> {
        read_entry(StreamFormat::Resilient, &Bytes::copy_from_slice(bytes), at)
    }

    #[test]
    fn entries_say_how_many_bytes_they_need() {
        let bytes = written(b"hello", 4_194_304);
        for n in 0..bytes.len() {
            let want = if n < 12 { 12 } else { 25 };
            assert_eq!(read(&bytes[..n], 4_194_304), Ok(ReadEntry::Needs(want)), "{n}");
        }
        let more = [&bytes[..], b"more"].concat();
        let entry = ReadEntry::Entry { payload: Bytes::from_static(b"hello"), next: 4_194_329 };
        assert_eq!(read(&more, 4_194_304), Ok(entry));
    }

    #[test]
    fn what_is_no_entry_is_told_apart() {
        let bytes = written(b"hello", 7);
        assert_eq!(read(&bytes, 8), Err(EntryError::Elsewhere { at: 8, claimed: 7 }));
        assert_eq!(read(&bytes[4..], 7), Err(EntryError::NoSentinel { at: 7, found: 0x5_3141_5926 }));
        assert_eq!(read(&[0; 12], 7), Err(EntryError::NoSentinel { at: 7, found: 0 }));
        let mut large = bytes.to_vec();
        large[8..12].copy_from_slice(&(MAX_ENTRY_BYTES + 1).to_le_bytes());
        assert_eq!(read(&large, 7), Err(EntryError::TooLarge { at: 7, claimed: MAX_ENTRY_BYTES + 1 }));
    }

    #[test]
    fn old_streams_have_a_length_alone() {
        let bytes = Bytes::from_static(b"\x03\0\0\0abcd");
        let read = |n| read_entry(StreamFormat::Legacy, &bytes.slice(..n), 100);
        assert_eq!((read(3), read(6)), (Ok(ReadEntry::Needs(4)), Ok(ReadEntry::Needs(7))));
        assert_eq!(read(8), Ok(ReadEntry::Entry { payload: Bytes::from_static(b"abc"), next: 107 }));
    }
}
