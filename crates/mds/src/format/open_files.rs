//! The table of files that clients have open: the next server of the rank looks them up before clients come
//! back.
//!
//! Its values are one key for each inode, the number in hex. A change too large for one operation lies in
//! keys like `_journal.0` first, each a [`OpenFilesChange`] that counts once the header says that all are
//! there.
//!
//! Source: src/mds/OpenFileTable.cc, src/mds/Anchor.h, src/mds/Anchor.cc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};
use messages::fs::{FileName, Frag};
use types::Ino;

use super::MAGIC;
use super::store::check_magic;

/// Objects of a table at most. Source: OpenFileTable::MAX_OBJECTS.
const MAX_OBJECTS: u32 = 1024;

/// An inode that is open, or above one that is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenFile {
    pub ino: Ino,
    /// 0 for the root.
    pub dir: Ino,
    pub name: FileName,
    /// That of directory entries (`DT_DIR`).
    pub d_type: u8,
    /// Fragments that are loaded, of a directory.
    pub frags: BTreeSet<Frag>,
}

impl OpenFile {
    /// The key of an inode's value.
    pub fn key(ino: Ino) -> String {
        format!("{:x}", ino.0)
    }
}

impl Encode for OpenFile {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.ino.encode(w);
            self.dir.encode(w);
            w.blob(&self.name);
            w.u8(self.d_type);
            self.frags.encode(w);
        });
        // Fragments stood here once.
        w.u32(0);
    }
}
impl Decode for OpenFile {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let file = r.envelope("Anchor", 2, |r, env| {
            Ok(Self {
                ino: Ino::decode(r)?,
                dir: Ino::decode(r)?,
                name: r.blob()?,
                d_type: r.u8()?,
                frags: if env.version >= 2 { Decode::decode(r)? } else { BTreeSet::new() },
            })
        })?;
        Vec::<Frag>::decode(r)?;
        Ok(file)
    }
}

/// The header of each of the table's objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenFilesHeader {
    pub version: u64,
    /// Objects of the table.
    pub objects: u32,
    /// `JOURNAL_NONE`, `JOURNAL_START`, `JOURNAL_FINISH`.
    pub journal: u8,
}

impl OpenFilesHeader {
    pub const JOURNAL_NONE: u8 = 0;
    /// Changes are written aside; they do not count.
    pub const JOURNAL_START: u8 = 1;
    /// All changes lie there, and are to be made.
    pub const JOURNAL_FINISH: u8 = 2;

    /// Bytes of the form of 14.0, without magic and envelope.
    const OBSOLETE_BYTES: usize = 13;

    fn decode_fields(r: &mut Reader) -> Result<Self, DecodeError> {
        let header = Self { version: r.u64()?, objects: r.u32()?, journal: r.u8()? };
        let (objects, bound) = (u64::from(header.objects), u64::from(MAX_OBJECTS));
        if objects > bound {
            return Err(DecodeError::TooLarge { what: "objects of open files", claimed: objects, bound });
        }
        if header.journal > Self::JOURNAL_FINISH {
            return Err(DecodeError::Invalid { what: "journal of open files", value: header.journal.into() });
        }
        Ok(header)
    }
}

impl Encode for OpenFilesHeader {
    fn encode(&self, w: &mut Writer) {
        w.blob(MAGIC);
        w.envelope(1, 1, |w| {
            w.u64(self.version);
            w.u32(self.objects);
            w.u8(self.journal);
        });
    }
}
/// From a whole header: its length tells the form.
impl Decode for OpenFilesHeader {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        if r.remaining() == Self::OBSOLETE_BYTES {
            return Self::decode_fields(r);
        }
        check_magic(r)?;
        r.envelope("OpenFileTable", 1, |r, _| Self::decode_fields(r))
    }
}

/// A part of a change that does not fit into one operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenFilesChange {
    /// That of the header; others are left over.
    pub version: u64,
    /// Values, each an [`OpenFile`].
    pub update: BTreeMap<Bytes, Bytes>,
    pub remove: BTreeSet<Bytes>,
}
wire_plain!(OpenFilesChange { version, update, remove });
