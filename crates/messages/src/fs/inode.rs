//! An inode as replies show it, with its capability and what travels beside it.
//!
//! Source: src/messages/MClientReply.h, CInode::encode_inodestat, CDir::encode_dirstat, Locker::encode_lease.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain, wire_struct};
use types::{Ino, SnapId, Utime};

use super::{Caps, FileLayout, FileName, Frag, FragTree, Quota};

/// The capability that comes with an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplyCap {
    pub caps: Caps,
    pub wanted: Caps,
    /// 0: none is issued, and `caps` says which of the attributes are right now.
    pub cap_id: u64,
    pub seq: u32,
    pub migrate_seq: u32,
    /// The inode that the snapshots around it belong to.
    pub realm: Ino,
    pub flags: u8,
}
wire_plain!(ReplyCap { caps, wanted, cap_id, seq, migrate_seq, realm, flags });

impl ReplyCap {
    /// Given by the server that is responsible for the inode.
    pub const AUTH: u8 = 1;
    /// To be given back at once.
    pub const RELEASE: u8 = 1 << 1;
}

/// An inode: all attributes, of which those are right that its capability covers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InodeStat {
    pub ino: Ino,
    pub snap: SnapId,
    pub rdev: u32,
    pub version: u64,
    /// 0: extended attributes are not in here.
    pub xattr_version: u64,
    pub cap: ReplyCap,
    pub layout: FileLayout,
    pub ctime: Utime,
    pub mtime: Utime,
    pub atime: Utime,
    /// Counts how often mtime and atime were set to something earlier.
    pub time_warp_seq: u32,
    pub size: u64,
    /// Up to here a writer may make the file longer without asking.
    pub max_size: u64,
    pub truncate_size: u64,
    pub truncate_seq: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// Of a folder: what is directly in it.
    pub nfiles: u64,
    pub nsubdirs: u64,
    /// Of a folder: what is in it and below it.
    pub rbytes: u64,
    pub rfiles: u64,
    pub rsubdirs: u64,
    pub rctime: Utime,
    pub frag_tree: FragTree,
    /// Where a symbolic link leads.
    pub symlink: FileName,
    /// The number of the function that hashes names.
    pub dir_hash: u8,
    /// `decode_xattrs` reads them.
    pub xattrs: Bytes,
    /// `u64::MAX`: no data is in the inode.
    pub inline_version: u64,
    pub inline_data: Bytes,
    pub quota: Quota,
    pub btime: Utime,
    pub change_attr: u64,
    /// The rank that the folder is pinned to; -1 for none.
    pub dir_pin: i32,
    pub snap_btime: Utime,
    pub rsnaps: u64,
    pub snap_metadata: BTreeMap<String, String>,
    /// Set by clients of later releases, which encrypt.
    pub fscrypt: bool,
}

impl InodeStat {
    const ENVELOPE: u8 = 6;
    /// `inline_version` of an inode that has no data in itself.
    pub const INLINE_NONE: u64 = u64::MAX;

    fn decode_body(r: &mut Reader, version: u8) -> Result<Self, DecodeError> {
        let mut stat = Self {
            ino: Ino::decode(r)?,
            snap: SnapId::decode(r)?,
            rdev: r.u32()?,
            version: r.u64()?,
            xattr_version: r.u64()?,
            cap: ReplyCap::decode(r)?,
            layout: FileLayout::decode_old(r)?,
            ctime: Utime::decode(r)?,
            mtime: Utime::decode(r)?,
            atime: Utime::decode(r)?,
            time_warp_seq: r.u32()?,
            size: r.u64()?,
            max_size: r.u64()?,
            truncate_size: r.u64()?,
            truncate_seq: r.u32()?,
            mode: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            nlink: r.u32()?,
            nfiles: r.u64()?,
            nsubdirs: r.u64()?,
            rbytes: r.u64()?,
            rfiles: r.u64()?,
            rsubdirs: r.u64()?,
            rctime: Utime::decode(r)?,
            frag_tree: FragTree::decode(r)?,
            symlink: r.blob()?,
            dir_hash: r.u8()?,
            ..Self::default()
        };
        r.skip(7)?;
        stat.xattrs = r.blob()?;
        stat.inline_version = r.u64()?;
        stat.inline_data = r.blob()?;
        stat.quota = Quota::decode(r)?;
        stat.layout.pool_ns = String::decode(r)?;
        stat.btime = Utime::decode(r)?;
        stat.change_attr = r.u64()?;
        stat.dir_pin = if version >= 2 { r.i32()? } else { -1 };
        if version >= 3 {
            stat.snap_btime = Utime::decode(r)?;
        }
        if version >= 4 {
            stat.rsnaps = r.u64()?;
        }
        if version >= 5 {
            stat.snap_metadata = Decode::decode(r)?;
        }
        if version >= 6 {
            stat.fscrypt = bool::decode(r)?;
        }
        Ok(stat)
    }
}

impl Encode for InodeStat {
    fn encode(&self, w: &mut Writer) {
        w.envelope(Self::ENVELOPE, 1, |w| {
            self.ino.encode(w);
            self.snap.encode(w);
            w.u32(self.rdev);
            w.u64(self.version);
            w.u64(self.xattr_version);
            self.cap.encode(w);
            self.layout.encode_old(w);
            [self.ctime, self.mtime, self.atime].iter().for_each(|t| t.encode(w));
            w.u32(self.time_warp_seq);
            w.u64(self.size);
            w.u64(self.max_size);
            w.u64(self.truncate_size);
            w.u32(self.truncate_seq);
            [self.mode, self.uid, self.gid, self.nlink].into_iter().for_each(|v| w.u32(v));
            w.u64(self.nfiles);
            w.u64(self.nsubdirs);
            w.u64(self.rbytes);
            w.u64(self.rfiles);
            w.u64(self.rsubdirs);
            self.rctime.encode(w);
            self.frag_tree.encode(w);
            w.blob(&self.symlink);
            w.u8(self.dir_hash);
            w.zeros(7);
            w.blob(&self.xattrs);
            w.u64(self.inline_version);
            w.blob(&self.inline_data);
            self.quota.encode(w);
            self.layout.pool_ns.encode(w);
            self.btime.encode(w);
            w.u64(self.change_attr);
            w.i32(self.dir_pin);
            self.snap_btime.encode(w);
            w.u64(self.rsnaps);
            self.snap_metadata.encode(w);
            self.fscrypt.encode(w);
        });
    }
}
impl Decode for InodeStat {
    /// Its fixed fields, so that a claimed count of entries allocates no more than a few times what came.
    const MIN_SIZE: usize = 300;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("InodeStat", Self::ENVELOPE, |r, env| Self::decode_body(r, env.version))
    }
}

/// Which server is responsible for a fragment of a directory, and which have copies of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirStat {
    pub frag: Frag,
    /// A rank; -1: the one that is responsible for the folder.
    pub auth: i32,
    pub dist: BTreeSet<i32>,
}
wire_struct!(DirStat(1, 1) { frag, auth, dist });

/// For how long a name may be taken to lead to the inode with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseStat {
    pub mask: u16,
    pub duration_ms: u32,
    pub seq: u32,
    /// The name as clients that encrypt see it; empty without encryption.
    pub alternate_name: Bytes,
}
wire_struct!(LeaseStat(2, 1) { mask, duration_ms, seq } since 2 { alternate_name });

impl LeaseStat {
    /// A lease is given. Source: CEPH_LEASE_VALID.
    pub const VALID: u16 = 1 | 2;
    /// The name is the inode's first one, not a hard link.
    pub const PRIMARY_LINK: u16 = 4;
}

/// Extended attributes as inodes and capabilities carry them.
pub fn decode_xattrs(bytes: &Bytes) -> Result<BTreeMap<Bytes, Bytes>, DecodeError> {
    if bytes.is_empty() {
        return Ok(BTreeMap::new());
    }
    BTreeMap::from_bytes(bytes.clone())
}

/// The same, back.
pub fn encode_xattrs(xattrs: &BTreeMap<Bytes, Bytes>) -> Bytes {
    xattrs.to_bytes()
}
