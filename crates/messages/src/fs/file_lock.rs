//! Locks on ranges of files (fcntl) and on whole files (flock).
//!
//! Source: ceph_filelock and CEPH_LOCK_* in src/include/ceph_fs.h, Client::_encode_filelocks.

use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};

/// Whose rules a lock follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LockKind(pub u8);

impl LockKind {
    pub const FCNTL: Self = Self(1);
    pub const FLOCK: Self = Self(2);
    /// Ends a wait.
    pub const FCNTL_INTR: Self = Self(3);
    pub const FLOCK_INTR: Self = Self(4);
}

/// What a lock is, or shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LockType(pub u8);

impl LockType {
    pub const SHARED: Self = Self(1);
    pub const EXCL: Self = Self(2);
    pub const UNLOCK: Self = Self(4);
}

macro_rules! byte {
    ($name:ident) => {
        impl Encode for $name {
            fn encode(&self, w: &mut Writer) {
                w.u8(self.0);
            }
        }
        impl Decode for $name {
            fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
                r.u8().map(Self)
            }
        }
    };
}
byte!(LockKind);
byte!(LockType);

/// A lock that somebody holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FileLock {
    pub start: u64,
    /// 0: to the end, wherever that is.
    pub length: u64,
    /// The client's global id; 0 in what a client says of itself.
    pub client: u64,
    pub owner: u64,
    pub pid: u64,
    pub lock: LockType,
}
wire_plain!(FileLock { start, length, client, owner, pid, lock });

/// The locks of one file that a client has, as it tells a new server of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileLocks {
    pub fcntl: Vec<FileLock>,
    pub flock: Vec<FileLock>,
}
wire_plain!(FileLocks { fcntl, flock });
