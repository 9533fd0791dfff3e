//! What storage tells its owner.

use std::collections::BTreeMap;

use codec::DecodeError;
use types::{EntityName, Errno, Utime};

use crate::format::{
    Backtrace, BaseInode, Dentry, DentryKey, DirFrag, EntryError, Fnode, InoTable, LogEvent, SessionInfo,
    SnapTable,
};

/// The owner's name for a request; events bring it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tag(pub u64);

/// Why something could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The object is not there, although it has to be: damage, unless the caller knows better.
    #[error("{object} does not exist")]
    Missing { object: String },
    /// What is there is not understood.
    #[error("{object} is damaged: {error}")]
    Damaged { object: String, error: DecodeError },
    /// An entry of a journal is not understood. `at`: its position in bytes.
    #[error("journal {object} is damaged at {at}: {error}")]
    DamagedEntry { object: String, at: u64, error: EntryDamage },
    /// What has been understood contradicts itself.
    #[error("{object}: {what}")]
    Inconsistent { object: String, what: &'static str },
    /// The operation failed for a reason of the cluster. `EBLOCKLISTED` ([`BLOCKLISTED`]): another server
    /// has the rank; this one must end.
    #[error("{object}: {errno}")]
    Os { object: String, errno: Errno },
}

/// OSDs refuse a client that was blocklisted with this. Source: EBLOCKLISTED in src/include/rados.h.
pub const BLOCKLISTED: Errno = Errno::ESHUTDOWN;

impl StorageError {
    pub fn is_blocklisted(&self) -> bool {
        matches!(self, Self::Os { errno, .. } if *errno == BLOCKLISTED)
    }

    /// Whether the medium or another server is to blame: the rank or the folder is damaged.
    pub fn is_damage(&self) -> bool {
        !matches!(self, Self::Os { .. })
    }
}

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryDamage {
    #[error(transparent)]
    Frame(#[from] EntryError),
    #[error(transparent)]
    Payload(#[from] DecodeError),
    /// The journal has a hole: bytes are missing that its end says are there.
    #[error("bytes are missing")]
    Hole,
}

/// What a rank has in its tables, as stored: the journal has changes behind it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tables {
    pub inos: InoTable,
    /// The version of the table of sessions, and its sessions.
    pub session_version: u64,
    pub sessions: BTreeMap<EntityName, SessionInfo>,
    /// The rank's own folder; of rank 0 the root, before it. They are in no directory, and the journal need
    /// not have them.
    pub base: Vec<BaseInode>,
    /// Of the rank that has the table of snapshots (the lowest one) only.
    pub snaps: Option<Box<SnapTable>>,
}

/// A fragment of a directory as it is stored, or a page of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadedDir {
    pub fnode: Fnode,
    pub dentries: Vec<(DentryKey, Dentry)>,
    /// Keys whose values are not understood, or that no server writes, with the reason. The rest is good.
    pub damaged: Vec<(Vec<u8>, DecodeError)>,
    /// No name of the fragment is left to be read. Always, if keys were asked for.
    pub is_last: bool,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A fresh rank lies in the pool, in Ceph's form; [`Storage::open`](super::Storage::open) may follow.
    Created,
    /// The tables, and the journal's limits, are read. [`Storage::replay`](super::Storage::replay) may
    /// follow.
    Opened(Box<Tables>),
    /// An entry of the journal, in order. `at`: where it begins; `next`: where the next one begins.
    Replayed {
        at: u64,
        next: u64,
        event: Box<LogEvent>,
    },
    /// Every entry that there is has been told. A rank that follows asks again after a while
    /// ([`Storage::follow`](super::Storage::follow)).
    ReplayEnd {
        write_pos: u64,
    },
    /// A rank that follows was outrun: entries that it did not read are trimmed. It has to begin anew
    /// ([`Storage::new`](super::Storage::new)).
    Outrun {
        expire_pos: u64,
    },
    /// The journal may be appended to.
    Writeable {
        write_pos: u64,
    },
    /// All entries that end at or before this are durable.
    Safe(u64),
    /// `mark_expired` is in the header: replay begins there from now on.
    Expired(u64),

    /// A page of a fragment; the last one has `is_last`.
    DirLoaded {
        tag: Tag,
        dir: DirFrag,
        loaded: Box<LoadedDir>,
    },
    /// The load ended without the rest.
    DirFailed {
        tag: Tag,
        dir: DirFrag,
        error: StorageError,
    },
    /// All of the commit is durable.
    DirCommitted {
        tag: Tag,
        dir: DirFrag,
    },
    /// The object of the fragment is gone.
    DirRemoved {
        tag: Tag,
        dir: DirFrag,
    },
    BaseInode {
        tag: Tag,
        result: Result<Box<BaseInode>, StorageError>,
    },
    Backtrace {
        tag: Tag,
        result: Result<Box<Backtrace>, StorageError>,
    },
    /// What was to be stored or done with this tag is durable.
    Done {
        tag: Tag,
    },
    /// It failed.
    Failed {
        tag: Tag,
        error: StorageError,
    },
    /// The end of a file by its objects: no byte of it lies behind `size`. `mtime`: the newest of theirs.
    Probed {
        tag: Tag,
        size: u64,
        mtime: Utime,
    },

    /// An entry of the purge queue is not understood. What is behind it stays, what is handed over is kept.
    PurgeStopped(StorageError),
    /// The rank cannot go on: its journal, a table or a commit. It tells the monitor that it is damaged
    /// (`error.is_damage()`), or ends.
    Fatal(StorageError),
}
