//! What metadata servers store: directories, inodes, tables and journals, as objects of the metadata pool.
//!
//! | what | object | in it |
//! |---|---|---|
//! | a fragment of a directory | `<ino>.<fragment>` | header of the omap: [`Fnode`]; keys: [`DentryKey`], values: [`Dentry`] |
//! | where an inode is linked | its first object | attribute `parent`: [`Backtrace`]; `layout`: `FileLayout` |
//! | the root, a server's own folder | `<ino>.00000000.inode` | [`BaseInode`] |
//! | free inode numbers | `mds<rank>_inotable` | [`InoTable`] |
//! | snapshots of the file system | `mds_snaptable` | [`SnapTable`] |
//! | sessions with clients | `mds<rank>_sessionmap` | header of the omap: [`SessionMapHeader`]; values: [`SessionInfo`] |
//! | files that are open | `mds<rank>_openfiles.<n>` | header of the omap: [`OpenFilesHeader`]; values: [`OpenFile`], [`OpenFilesChange`] |
//! | where the journal is | `<0x400 + rank>.00000000` | [`JournalPointer`] |
//! | the journal | a file of inode `0x200 + rank` | first object: [`JournalHeader`]; then entries ([`read_entry`]) of [`LogEvent`] |
//! | what is to be purged | a file of inode `0x500 + rank` | the same with entries of [`PurgeItem`] |
//!
//! Numbers in names of objects are hexadecimal ([`names`]).
//!
//! Invariants:
//! 1. What 16.2.15 wrote is decoded and encoded again to the same bytes. Fields of later versions are skipped,
//!    as Ceph does.
//! 2. A decoder allocates no more than a few times the bytes that it was given, and never panics.
//! 3. Forms of old without a length in front are refused and not guessed at.
//! 4. An event of the journal is decoded whole, or not at all: bytes behind it and unknown kinds are errors.
//! 5. Names are bytes; they need not be UTF-8.

mod wire;

pub mod names;

mod dentry;
mod inode;
mod realm;
mod stats;
mod store;

mod backtrace;

mod open_files;
mod sessions;
mod tables;

mod blob;
mod events;
mod journal;
mod log_event;
mod purge;
mod rollback;

pub use backtrace::{Backpointer, Backtrace};
pub use blob::{DirLump, DirLumpState, FullBit, FullBitState, MetaBlob, NullBit, RemoteBit};
pub use dentry::{Dentry, DentryKey, Link};
pub use events::{
    Committed, Export, Fragment, ImportFinish, ImportStart, NoOp, Opened, OpenedSessions, PeerUpdate, Purged,
    ResetJournal, SessionEvent, Sessions, SubtreeMap, TableClient, TableServer, Update,
};
pub use inode::{ClientRange, Inode};
pub use journal::{
    EntryError, JournalHeader, JournalPointer, MAX_ENTRY_BYTES, ReadEntry, StreamFormat, read_entry,
    write_entry,
};
pub use log_event::LogEvent;
pub use names::DirFrag;
pub use open_files::{OpenFile, OpenFilesChange, OpenFilesHeader};
pub use purge::{PurgeAction, PurgeItem};
pub use realm::{SnapInfo, SnapLink, SnapRealm};
pub use rollback::{LinkRollback, RenameRecord, RenameRollback, RmdirRollback, Rollback};
pub use sessions::{ClientMetadata, MetaReqId, SessionInfo, SessionMapHeader};
pub use stats::{Fnode, FragInfo, NestInfo};
pub use store::{BaseInode, InodeStore, OldInode};
pub use tables::{InoTable, SnapMutation, SnapTable, TablePending};

/// Opens what belongs to a file system. Source: CEPH_FS_ONDISK_MAGIC in src/mds/mdstypes.h.
pub const MAGIC: &[u8] = b"ceph fs volume v011";

/// Extended attributes by name.
pub type Xattrs = std::collections::BTreeMap<bytes::Bytes, bytes::Bytes>;
