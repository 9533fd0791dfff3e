//! What is known of an inode: attributes, capabilities, what was changed under them, and of a folder its
//! names.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use maps::Rank;
use messages::fs::{Caps, FileLocks, FileName, InodeStat, MClientCaps, ReplyCap, decode_xattrs};
use types::{Ino, SnapContext};

use crate::core::Client;
use crate::dentry::Dentry;
use crate::io::{Node, Ticket};
use crate::loss::Losses;

/// A capability of one rank.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Cap {
    pub id: u64,
    /// What may be used for new things.
    pub issued: Caps,
    /// What the server believes that we have: more than is issued while something is being given back.
    pub implemented: Caps,
    /// What the server knows to be wanted.
    pub wanted: Caps,
    pub seq: u32,
    pub issue_seq: u32,
    pub migrate_seq: u32,
    /// The session's count of times that it went stale.
    pub generation: u64,
}

/// What a file was at a snapshot, if it was being changed when the snapshot was taken.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CapSnap {
    pub dirty: Caps,
    pub issued: Caps,
    /// A write with the older context is under way.
    pub is_writing: bool,
    /// 0: not flushed yet.
    pub flush_tid: u64,
    pub stat: InodeStat,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Inode {
    /// Its `xattrs` are read into the field of that name.
    pub stat: InodeStat,
    pub xattrs: BTreeMap<Bytes, Bytes>,
    /// The newest version that the responsible rank showed.
    pub auth_version: u64,

    pub caps: BTreeMap<Rank, Cap>,
    /// The rank that is responsible for it, when it has given a capability.
    pub auth: Option<Rank>,
    /// Of a snapshot's inode: these last for ever.
    pub snap_caps: Caps,
    pub realm: Ino,

    pub dirty: Caps,
    /// By flush; a snapshot's flush has no bits.
    pub flushing: BTreeMap<u64, Caps>,
    pub cap_snaps: BTreeMap<u64, CapSnap>,
    /// Flushes are to be sent again when the server is active.
    pub kick_flush: bool,
    /// When what is dirty or too much goes to the server.
    pub hold_until: Option<Duration>,
    /// The end of a write that is beyond `max_size`, and whether the server was asked.
    pub wanted_max: u64,
    pub requested_max: u64,
    /// Size as the server was last told.
    pub reported_size: u64,

    /// Reads and writes under way.
    pub reading: u32,
    pub writing: u32,
    /// One of the writes is an append; the next one waits for it.
    pub is_appending: bool,
    /// Handles.
    pub open_read: u32,
    pub open_write: u32,
    /// All capabilities are gone and an `OPEN` asks for new ones.
    pub is_renewing: bool,
    pub locks: FileLocks,
    /// What could not be written back.
    pub losses: Losses,

    /// Counts how often the folder's shared capability came anew: names that are older are not covered by it.
    pub shared_gen: u64,
    /// All names are known, as long as the shared capability is held.
    pub is_complete: bool,
    /// Counts changes that make a listing under way incomplete.
    pub release_count: u64,
    pub dentries: BTreeMap<FileName, Dentry>,
    /// Of `dentries`, those that lead nowhere.
    pub negatives: usize,
    /// Names that lead here, and the newest of them.
    pub names: BTreeSet<(Node, FileName)>,
    pub parent: Option<(Node, FileName)>,
    /// Of a snapshot's inode: the path from the folder that it is now.
    pub snap_path: Option<(Ino, FileName)>,

    /// Calls that wait for capabilities.
    pub waiters: Vec<Ticket>,
    /// When it was last used, for `trim`.
    pub touched: u64,
}

impl Inode {
    const TYPE: u32 = 0o170_000;

    pub fn is_dir(&self) -> bool {
        self.stat.mode & Self::TYPE == 0o040_000
    }

    pub fn is_symlink(&self) -> bool {
        self.stat.mode & Self::TYPE == 0o120_000
    }

    /// What handles and calls use right now.
    pub fn used(&self) -> Caps {
        let mut used = Caps::NONE;
        if self.reading > 0 {
            used |= Caps::FILE_RD;
        }
        if self.writing > 0 {
            used |= Caps::FILE_WR;
        }
        used
    }

    /// What open handles want. Source: ceph_caps_for_mode in src/common/ceph_fs.cc.
    pub fn file_wanted(&self) -> Caps {
        let mut wanted = Caps::NONE;
        if self.open_read > 0 {
            wanted |= Caps::PIN | Caps::FILE_SHARED | Caps::FILE_RD | Caps::FILE_CACHE;
        }
        if self.open_write > 0 {
            wanted |= Caps::PIN | Caps::FILE_EXCL | Caps::FILE_WR | Caps::FILE_BUFFER;
            wanted |= Caps::AUTH_SHARED | Caps::AUTH_EXCL | Caps::XATTR_SHARED | Caps::XATTR_EXCL;
        }
        wanted
    }

    pub fn wanted(&self) -> Caps {
        let mut wanted = self.file_wanted() | self.used();
        if wanted.intersects(Caps::FILE_BUFFER) {
            wanted |= Caps::FILE_EXCL;
        }
        wanted
    }

    /// Whether something is not written back yet.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.flushing.is_empty() || !self.cap_snaps.is_empty()
    }

    /// Whether something has to be sent, or sent again, that is not now.
    pub fn is_unsent(&self) -> bool {
        let is_ready = |s: &CapSnap| s.flush_tid == 0 && !s.is_writing;
        let is_orphan = self.auth.is_none() && !self.flushing.is_empty();
        is_orphan || !self.dirty.is_empty() || self.cap_snaps.values().any(is_ready)
    }

    /// Whether nothing would be lost if it was forgotten.
    pub fn is_idle(&self) -> bool {
        let in_use = self.reading + self.writing + self.open_read + self.open_write > 0;
        !in_use && !self.is_dirty() && self.waiters.is_empty() && !self.is_renewing
    }

    /// A call looks again when capabilities change.
    pub fn wait(&mut self, ticket: Ticket) {
        if !self.waiters.contains(&ticket) {
            self.waiters.push(ticket);
        }
    }

    /// Source: Client::update_inode_file_size.
    pub fn update_size(&mut self, size: u64, truncate_seq: u32, truncate_size: u64) {
        let stat = &mut self.stat;
        if truncate_seq > stat.truncate_seq || (truncate_seq == stat.truncate_seq && size > stat.size) {
            stat.size = size;
            self.reported_size = size;
            stat.truncate_seq = truncate_seq;
        }
        if truncate_seq >= stat.truncate_seq {
            stat.truncate_size = truncate_size;
        }
    }

    /// Our own times count while we may have set them. Source: Client::update_inode_file_time.
    pub fn update_times(&mut self, held: Caps, from: &Times) {
        let stat = &mut self.stat;
        let ours = Caps::FILE_EXCL | Caps::FILE_WR | Caps::FILE_BUFFER | Caps::AUTH_EXCL | Caps::XATTR_EXCL;
        if !held.intersects(ours) {
            if from.warp >= stat.time_warp_seq {
                (stat.ctime, stat.mtime, stat.atime) = (from.ctime, from.mtime, from.atime);
                stat.time_warp_seq = from.warp;
            }
            return;
        }
        stat.ctime = stat.ctime.max(from.ctime);
        if from.warp > stat.time_warp_seq {
            (stat.mtime, stat.atime, stat.time_warp_seq) = (from.mtime, from.atime, from.warp);
        } else if from.warp == stat.time_warp_seq {
            stat.mtime = stat.mtime.max(from.mtime);
            stat.atime = stat.atime.max(from.atime);
        }
    }

    pub fn update_xattrs(&mut self, held: Caps, version: u64, blob: &Bytes) {
        let is_ours = held.intersects(Caps::XATTR_EXCL) && self.stat.xattr_version != 0;
        if is_ours || blob.is_empty() || version <= self.stat.xattr_version {
            return;
        }
        if let Ok(xattrs) = decode_xattrs(blob) {
            self.xattrs = xattrs;
            self.stat.xattr_version = version;
        }
    }
}

/// Times of a file as a server tells them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub warp: u32,
    pub ctime: types::Utime,
    pub mtime: types::Utime,
    pub atime: types::Utime,
}

impl Times {
    fn of(stat: &InodeStat) -> Self {
        Self { warp: stat.time_warp_seq, ctime: stat.ctime, mtime: stat.mtime, atime: stat.atime }
    }

    pub fn of_caps(m: &MClientCaps) -> Self {
        Self { warp: m.time_warp_seq, ctime: m.ctime, mtime: m.mtime, atime: m.atime }
    }
}

impl Client {
    /// Takes an inode from a reply, with its capability. Source: Client::add_update_inode.
    pub(crate) fn fill(&mut self, rank: Rank, new: &InodeStat) -> Node {
        let node = Node { ino: new.ino, snap: new.snap };
        let held = self.issued(node) | self.inodes.get(&node).map_or(Caps::NONE, |i| i.dirty);
        self.uses += 1;
        let touched = self.uses;
        let inode = self.inodes.entry(node).or_default();
        inode.touched = touched;
        let is_first = inode.stat.version == 0 && inode.stat.ino != new.ino;
        if is_first {
            inode.stat.ino = new.ino;
            inode.stat.snap = new.snap;
            inode.stat.mode = new.mode & Inode::TYPE;
            inode.realm = new.cap.realm;
        }
        inode.stat.rdev = new.rdev;
        inode.stat.symlink.clone_from(&new.symlink);
        let is_auth = new.cap.flags & ReplyCap::AUTH != 0;
        // A rank that is not responsible may show the newest version without the newest attributes: it counts
        // until the responsible one has spoken. libcephfs takes the version from any.
        let is_newer = is_first
            || if is_auth {
                inode.auth_version & !1 < new.version
            } else {
                inode.auth_version == 0 && inode.stat.version < new.version
            };
        if is_auth {
            inode.auth_version = inode.auth_version.max(new.version);
        }
        update(inode, new, held, is_newer, is_auth);
        if node.is_head() && inode.stat.nlink == 0 {
            self.unlinked.insert(node);
        }
        let Some(inode) = self.inodes.get_mut(&node) else { return node };
        if new.cap.caps.is_empty() {
            return node;
        }
        if !node.is_head() {
            inode.snap_caps |= new.cap.caps;
            return node;
        }
        if new.cap.cap_id != 0 {
            self.add_cap(node, rank, &new.cap);
        }
        if let Some(inode) = self.inodes.get_mut(&node).filter(|i| i.auth == Some(rank)) {
            inode.stat.max_size = new.max_size;
        }
        node
    }

    pub(crate) fn touch(&mut self, node: Node) {
        self.uses += 1;
        if let Some(inode) = self.inodes.get_mut(&node) {
            inode.touched = self.uses;
        }
    }
}

/// Takes those attributes that are newer than ours and that we have not changed.
fn update(inode: &mut Inode, new: &InodeStat, held: Caps, is_newer: bool, is_auth: bool) {
    let gained = new.cap.caps.without(held);
    if (is_newer || gained.intersects(Caps::AUTH_SHARED)) && !held.intersects(Caps::AUTH_EXCL) {
        let stat = &mut inode.stat;
        (stat.mode, stat.uid, stat.gid, stat.btime) = (new.mode, new.uid, new.gid, new.btime);
        stat.snap_btime = new.snap_btime;
        stat.snap_metadata.clone_from(&new.snap_metadata);
    }
    if (is_newer || gained.intersects(Caps::LINK_SHARED)) && !held.intersects(Caps::LINK_EXCL) {
        inode.stat.nlink = new.nlink;
    }
    let readable = Caps::ALL_SHARED | Caps::FILE_RD | Caps::FILE_CACHE;
    if is_newer || gained.intersects(readable) {
        inode.update_times(held, &Times::of(new));
    }
    if is_newer || gained.intersects(Caps::FILE_SHARED | Caps::FILE_RD | Caps::FILE_CACHE | Caps::ANY_FILE_WR)
    {
        inode.stat.layout.clone_from(&new.layout);
        inode.update_size(new.size, new.truncate_seq, new.truncate_size);
    }
    let stat = &mut inode.stat;
    if is_newer || gained.intersects(Caps::FILE_SHARED) {
        (stat.nfiles, stat.nsubdirs) = (new.nfiles, new.nsubdirs);
    }
    if is_newer || is_auth {
        (stat.rbytes, stat.rfiles, stat.rsubdirs) = (new.rbytes, new.rfiles, new.rsubdirs);
        (stat.rctime, stat.rsnaps, stat.quota, stat.dir_pin) =
            (new.rctime, new.rsnaps, new.quota, new.dir_pin);
        stat.dir_hash = new.dir_hash;
    }
    stat.frag_tree.clone_from(&new.frag_tree);
    if new.inline_version > stat.inline_version || stat.version == 0 {
        stat.inline_version = new.inline_version;
    }
    stat.change_attr = stat.change_attr.max(new.change_attr);
    stat.version = stat.version.max(new.version);
    inode.update_xattrs(held, new.xattr_version, &new.xattrs);
}

impl Client {
    /// What may be used of an inode. Source: Inode::caps_issued.
    pub(crate) fn issued(&self, node: Node) -> Caps {
        self.issued_and_held(node).0
    }

    /// With what the servers believe that we hold.
    pub(crate) fn issued_and_held(&self, node: Node) -> (Caps, Caps) {
        let Some(inode) = self.inodes.get(&node) else { return (Caps::NONE, Caps::NONE) };
        let (mut issued, mut held) = (inode.snap_caps, inode.snap_caps);
        for (rank, cap) in &inode.caps {
            if self.is_cap_good(*rank, cap) {
                issued |= cap.issued;
                held |= cap.implemented;
            }
        }
        // What the responsible rank takes back, no other one may leave us.
        if let Some(cap) = inode.auth.and_then(|rank| inode.caps.get(&rank)) {
            issued = issued.without(cap.implemented.without(cap.issued));
        }
        (issued, held)
    }

    fn is_cap_good(&self, rank: Rank, cap: &Cap) -> bool {
        self.sessions
            .get(&rank)
            .is_some_and(|s| s.generation <= cap.generation && self.now.mono < s.good_until)
    }

    /// The context of new writes.
    pub(crate) fn snap_context(&self, node: Node) -> SnapContext {
        self.inodes.get(&node).map(|i| self.realm_context(i.realm)).unwrap_or_default()
    }
}
