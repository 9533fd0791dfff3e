//! What goes into the core and what comes out.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use maps::Rank;
use messages::Message;
use messages::fs::{Caps, FileLayout, FileLock, FileName, Frag, InodeStat, LockKind, Quota, SetAttr};
use objecter::{OpReply, OpRequest};
use types::{AddrVec, Epoch, Errno, Ino, SnapId, Utime};

/// The shell's name for one call; it is used for one call only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One connection to a metadata server, from `Open` until `Close` or `SessionGone`; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The core's name for one operation on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectTicket(pub u64);

/// An open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// An inode, as it is now or as it was at a snapshot. With `SnapId::SNAPDIR` it is the folder `.snap` of a
/// folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    pub ino: Ino,
    pub snap: SnapId,
}

impl Node {
    pub const ROOT: Self = Self::head(Ino::ROOT);

    pub const fn head(ino: Ino) -> Self {
        Self { ino, snap: SnapId::HEAD }
    }

    pub fn is_head(self) -> bool {
        self.snap == SnapId::HEAD
    }

    pub fn is_snapdir(self) -> bool {
        self.snap == SnapId::SNAPDIR
    }
}

/// An inode's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    pub node: Node,
    /// With the type of the file.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub rdev: u32,
    pub size: u64,
    pub mtime: Utime,
    pub atime: Utime,
    pub ctime: Utime,
    pub btime: Utime,
    pub change_attr: u64,
    pub symlink: FileName,
    pub layout: FileLayout,
    pub quota: Quota,
    pub nfiles: u64,
    pub nsubdirs: u64,
    pub rbytes: u64,
    pub rfiles: u64,
    pub rsubdirs: u64,
    pub rctime: Utime,
}

impl Attr {
    const TYPE: u32 = 0o170_000;

    pub(crate) fn of(node: Node, stat: &InodeStat) -> Self {
        Self {
            node,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            nlink: stat.nlink,
            rdev: stat.rdev,
            size: stat.size,
            mtime: stat.mtime,
            atime: stat.atime,
            ctime: stat.ctime,
            btime: stat.btime,
            change_attr: stat.change_attr,
            symlink: stat.symlink.clone(),
            layout: stat.layout.clone(),
            quota: stat.quota,
            nfiles: stat.nfiles,
            nsubdirs: stat.nsubdirs,
            rbytes: stat.rbytes,
            rfiles: stat.rfiles,
            rsubdirs: stat.rsubdirs,
            rctime: stat.rctime,
        }
    }

    pub fn is_dir(&self) -> bool {
        self.mode & Self::TYPE == 0o040_000
    }

    pub fn is_file(&self) -> bool {
        self.mode & Self::TYPE == 0o100_000
    }

    pub fn is_symlink(&self) -> bool {
        self.mode & Self::TYPE == 0o120_000
    }
}

/// Where a listing goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor {
    pub(crate) frag: Frag,
    /// Behind this name of the fragment; empty for its beginning.
    pub(crate) after: FileName,
    /// Counts of the folder when the listing began: it was whole if they are the same at its end.
    pub(crate) seen: (u64, u64),
}

/// What the shell may ask for. Names hold no slash; paths are taken apart at slashes.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Finds the servers and the folder `path` of the file system, which later paths start from. ETIMEDOUT
    /// after `Settings::mount_timeout`.
    Mount {
        path: FileName,
    },
    /// Closes what is open, writes back what was changed, waits until all is safe, and ends the sessions.
    /// EBUSY while other calls are under way. Any other error tells what is lost, or ETIMEDOUT after
    /// `Settings::mount_timeout`; the sessions are at an end then all the same.
    Unmount,
    /// Writes back what was changed, and waits until all that was asked before is safe. An error tells of
    /// something that was lost since the last one.
    Sync,
    /// Follows a path from the mounted folder; symbolic links in its middle always.
    Walk {
        path: FileName,
        follow: bool,
    },
    Lookup {
        dir: Node,
        name: FileName,
    },
    /// `mask` says which attributes have to be right.
    GetAttr {
        node: Node,
        mask: Caps,
    },
    SetAttr {
        node: Node,
        set: SetAttr,
    },
    /// In a folder `.snap`: takes a snapshot.
    Mkdir {
        dir: Node,
        name: FileName,
        mode: u32,
    },
    /// In a folder `.snap`: removes a snapshot.
    Rmdir {
        dir: Node,
        name: FileName,
    },
    Mknod {
        dir: Node,
        name: FileName,
        mode: u32,
        rdev: u32,
    },
    Symlink {
        dir: Node,
        name: FileName,
        target: FileName,
    },
    Link {
        node: Node,
        dir: Node,
        name: FileName,
    },
    Unlink {
        dir: Node,
        name: FileName,
    },
    Rename {
        dir: Node,
        name: FileName,
        to_dir: Node,
        to_name: FileName,
    },
    /// `flags` are those of `OpenArgs`.
    Create {
        dir: Node,
        name: FileName,
        mode: u32,
        flags: u32,
    },
    Open {
        node: Node,
        flags: u32,
    },
    /// Gives back the locks of nobody: whoever locked unlocks.
    Close {
        handle: Handle,
    },
    Read {
        handle: Handle,
        offset: u64,
        length: u64,
    },
    Write {
        handle: Handle,
        /// `None`: at the end of the file.
        offset: Option<u64>,
        data: Bytes,
    },
    /// Done when the file's attributes and what made them are safe; data is when it is written. Each handle
    /// hears once of what was lost since it was opened, or before if nobody heard.
    Fsync {
        handle: Handle,
    },
    /// A part of a folder, from the beginning or where another part ended.
    Readdir {
        dir: Node,
        from: Option<Cursor>,
    },
    GetXattr {
        node: Node,
        name: FileName,
    },
    SetXattr {
        node: Node,
        name: FileName,
        value: Bytes,
        /// `RequestArgs::XATTR_CREATE` and the like.
        flags: u32,
    },
    RemoveXattr {
        node: Node,
        name: FileName,
    },
    ListXattr {
        node: Node,
    },
    /// A lock on a file, or its end (`LockType::UNLOCK`).
    Lock {
        handle: Handle,
        kind: LockKind,
        lock: FileLock,
        wait: bool,
    },
    /// What lock is in the way of this one; `LockType::UNLOCK` if none is.
    TestLock {
        handle: Handle,
        kind: LockKind,
        lock: FileLock,
    },
}

/// What a call brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    Attr(Box<Attr>),
    Opened {
        handle: Handle,
        attr: Box<Attr>,
    },
    Data(Bytes),
    /// Bytes written.
    Written(u64),
    Listing {
        entries: Vec<Entry>,
        /// `None` behind the last part.
        next: Option<Cursor>,
    },
    Value(Bytes),
    Names(Vec<FileName>),
    Lock(FileLock),
}

/// A name in a folder; not in a listing are `.` and `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: FileName,
    pub attr: Attr,
}

/// What happens to the core.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    Submit(Ticket, Call),
    /// Nobody waits for a call any more: it ends with ECANCELED, unless it has ended or only waits for
    /// objects. What a server was asked may happen all the same.
    Cancel(Ticket),
    /// The session with a monitor stands; what the one before was asked is asked again.
    MonReady,
    FromMon(Message),
    /// The server does not know the connection any more.
    SessionGone(SessionId),
    FromSession {
        session: SessionId,
        tid: u64,
        msg: Message,
    },
    ObjectDone(ObjectTicket, Result<OpReply, Errno>),
    /// The newest OSD map of the objecter.
    OsdMap(Epoch),
    /// Time has passed.
    Tick,
}

/// What the shell has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Dropped by the shell while no session stands; the core sends again what matters.
    SendMon(Message),
    /// Connect, lossless: what is sent waits for the connection, and is sent again after a cut. `SessionGone`
    /// follows if the server forgets it.
    Open {
        session: SessionId,
        rank: Rank,
        addrs: AddrVec,
    },
    /// No `SessionGone` follows.
    Close(SessionId),
    Send {
        session: SessionId,
        tid: u64,
        msg: Message,
    },
    /// An operation for the objecter.
    Object(ObjectTicket, Box<OpRequest>),
    /// The objecter is to get an OSD map of this epoch at least.
    NeedOsdMap(Epoch),
    Done(Ticket, Result<Answer, Errno>),
}

/// What is said of this client, and its bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The file system's name; `None` for the cluster's first.
    pub fs_name: Option<String>,
    /// What servers show of the session: `hostname`, `entity_id`, `root`.
    pub metadata: BTreeMap<String, String>,
    /// On whose behalf requests are.
    pub uid: u32,
    pub gid: u32,
    /// Calls under way at most; more get EBUSY.
    pub max_calls: usize,
    pub max_handles: usize,
    /// Inodes that nobody uses are forgotten beyond this many. Source: client_cache_size.
    pub max_inodes: usize,
    /// Of a mount and of an unmount. Source: client_mount_timeout.
    pub mount_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fs_name: None,
            metadata: BTreeMap::new(),
            uid: 0,
            gid: 0,
            max_calls: 4096,
            max_handles: 65_536,
            max_inodes: 16_384,
            mount_timeout: Duration::from_secs(300),
        }
    }
}
