//! What a rank needs to take back a change that another rank leads, when the other one died before it
//! decided.
//!
//! Source: link_rollback, rmdir_rollback, rename_rollback in src/mds/events/EPeerUpdate.h and
//! src/mds/journal.cc.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::fs::FileName;
use types::{Ino, Utime};

use super::names::DirFrag;
use super::sessions::MetaReqId;
use super::wire::stored;

/// Of a hard link that was made or removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkRollback {
    pub req: MetaReqId,
    pub ino: Ino,
    /// A link was added.
    pub was_added: bool,
    pub old_ctime: Utime,
    pub old_dir_mtime: Utime,
    pub old_dir_rctime: Utime,
    /// The realm before, encoded; empty for none.
    pub realm: Bytes,
}
stored!(LinkRollback(3, 2, 2) {
    req, ino, was_added, old_ctime, old_dir_mtime, old_dir_rctime
} since 3 { realm });

/// Of a removed directory of which another rank had a fragment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RmdirRollback {
    pub req: MetaReqId,
    pub src_dir: DirFrag,
    pub src_name: FileName,
    pub dest_dir: DirFrag,
    pub dest_name: FileName,
    pub realm: Bytes,
}
stored!(RmdirRollback(3, 2, 2) { req, src_dir, src_name, dest_dir, dest_name } since 3 { realm });

/// One of the names that a rename touched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RenameRecord {
    pub dir: DirFrag,
    pub dir_old_mtime: Utime,
    pub dir_old_rctime: Utime,
    pub ino: Ino,
    pub remote_ino: Ino,
    pub name: FileName,
    pub remote_d_type: u8,
    pub old_ctime: Utime,
}
stored!(RenameRecord(2, 2, 2) {
    dir, dir_old_mtime, dir_old_rctime, ino, remote_ino, name, remote_d_type, old_ctime
});

/// Of a rename.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RenameRollback {
    pub req: MetaReqId,
    pub src: RenameRecord,
    pub dest: RenameRecord,
    /// Where the inode went that was replaced.
    pub stray: RenameRecord,
    pub ctime: Utime,
    pub src_realm: Bytes,
    pub dest_realm: Bytes,
}
stored!(RenameRollback(3, 2, 2) { req, src, dest, stray, ctime } since 3 { src_realm, dest_realm });

/// What is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rollback {
    Link(LinkRollback),
    Rename(Box<RenameRollback>),
    Rmdir(RmdirRollback),
}

impl Rollback {
    const LINK: u8 = 1;
    const RENAME: u8 = 2;
    const RMDIR: u8 = 3;

    /// The operation's number, as an event has it.
    pub fn op(&self) -> u8 {
        match self {
            Self::Link(_) => Self::LINK,
            Self::Rename(_) => Self::RENAME,
            Self::Rmdir(_) => Self::RMDIR,
        }
    }

    pub(super) fn decode(op: u8, r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match op {
            Self::LINK => Self::Link(Decode::decode(r)?),
            Self::RENAME => Self::Rename(Box::new(Decode::decode(r)?)),
            Self::RMDIR => Self::Rmdir(Decode::decode(r)?),
            _ => return Err(DecodeError::Invalid { what: "operation of a peer", value: op.into() }),
        })
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        match self {
            Self::Link(link) => link.encode(w),
            Self::Rename(rename) => rename.encode(w),
            Self::Rmdir(rmdir) => rmdir.encode(w),
        }
    }
}
