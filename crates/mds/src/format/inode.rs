//! An inode's own attributes.
//!
//! Source: inode_t in src/mds/mdstypes.h, which is version 16; 16.2.15 writes version 17.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::fs::{FileLayout, InodeStat, Quota};
use types::{GlobalId, Ino, PoolId, SnapId, Utime};

use super::stats::{FragInfo, NestInfo};
use super::wire::stored;

/// Up to where a client may write without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRange {
    pub first: u64,
    pub last: u64,
    /// Its changes are known up to this snapshot.
    pub follows: SnapId,
}
stored!(ClientRange(2, 2, 2) { first, last, follows });

/// An inode.
#[derive(Debug, Clone, PartialEq)]
pub struct Inode {
    pub ino: Ino,
    pub rdev: u32,
    pub ctime: Utime,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: i32,
    /// The number of the function that hashes a directory's names.
    pub dir_hash: u8,
    pub layout: FileLayout,
    pub size: u64,
    pub truncate_seq: u32,
    pub truncate_size: u64,
    pub truncate_from: u64,
    /// Truncations that are not done yet.
    pub truncate_pending: u32,
    pub mtime: Utime,
    pub atime: Utime,
    pub time_warp_seq: u32,
    pub client_ranges: BTreeMap<GlobalId, ClientRange>,
    pub dirstat: FragInfo,
    pub rstat: NestInfo,
    /// What the directory that it is in has of `rstat` already.
    pub accounted_rstat: NestInfo,
    pub version: u64,
    pub file_data_version: u64,
    pub xattr_version: u64,
    /// The version in which its backtrace last changed.
    pub backtrace_version: u64,
    /// Pools that have backtraces of it from before its layout changed.
    pub old_pools: BTreeSet<PoolId>,
    pub max_size_ever: u64,
    /// `InodeStat::INLINE_NONE`: data is in objects only.
    pub inline_version: u64,
    pub inline_data: Bytes,
    pub quota: Quota,
    /// Of a stray: its path before it lost its name.
    pub stray_prior_path: Bytes,
    pub last_scrub_version: u64,
    pub last_scrub_stamp: Utime,
    pub btime: Utime,
    pub change_attr: u64,
    /// The rank that the directory is pinned to; -1 for none.
    pub export_pin: i32,
    /// With this probability each directory below is pinned by its hash.
    pub random_pin: f64,
    /// The directories in it are pinned by their hashes.
    pub distributed_pin: bool,
    pub fscrypt: bool,
}

impl Inode {
    const VERSION: u8 = 17;

    const TYPE: u32 = 0o170_000;

    pub fn is_dir(&self) -> bool {
        self.mode & Self::TYPE == 0o040_000
    }

    pub fn is_symlink(&self) -> bool {
        self.mode & Self::TYPE == 0o120_000
    }

    /// Up to version 7, the oldest that is read.
    fn decode_first(r: &mut Reader) -> Result<Self, DecodeError> {
        let (ino, rdev, ctime) = (Ino::decode(r)?, r.u32()?, Utime::decode(r)?);
        let (mode, uid, gid, nlink) = (r.u32()?, r.u32()?, r.u32()?, r.i32()?);
        // Anchors: no more.
        r.skip(1)?;
        let dir_hash = r.u8()?;
        r.skip(7)?;
        Ok(Self {
            ino,
            rdev,
            ctime,
            mode,
            uid,
            gid,
            nlink,
            dir_hash,
            layout: FileLayout::decode(r)?,
            size: r.u64()?,
            truncate_seq: r.u32()?,
            truncate_size: r.u64()?,
            truncate_from: r.u64()?,
            truncate_pending: r.u32()?,
            mtime: Utime::decode(r)?,
            atime: Utime::decode(r)?,
            time_warp_seq: r.u32()?,
            client_ranges: Decode::decode(r)?,
            dirstat: FragInfo::decode(r)?,
            rstat: NestInfo::decode(r)?,
            accounted_rstat: NestInfo::decode(r)?,
            version: r.u64()?,
            file_data_version: r.u64()?,
            xattr_version: r.u64()?,
            backtrace_version: r.u64()?,
            ..Self::default()
        })
    }

    fn decode_later(&mut self, r: &mut Reader, version: u8) -> Result<(), DecodeError> {
        if version >= 7 {
            self.old_pools = Decode::decode(r)?;
        }
        if version >= 8 {
            self.max_size_ever = r.u64()?;
        }
        if version >= 9 {
            self.inline_version = r.u64()?;
            self.inline_data = r.blob()?;
        }
        if version < 10 {
            self.backtrace_version = 0;
        }
        if version >= 11 {
            self.quota = Quota::decode(r)?;
        }
        if version >= 12 {
            self.stray_prior_path = r.blob()?;
        }
        if version >= 13 {
            self.last_scrub_version = r.u64()?;
            self.last_scrub_stamp = Utime::decode(r)?;
        }
        if version >= 14 {
            self.btime = Utime::decode(r)?;
            self.change_attr = r.u64()?;
        }
        if version >= 15 {
            self.export_pin = r.i32()?;
        }
        if version >= 16 {
            self.random_pin = f64::decode(r)?;
            self.distributed_pin = bool::decode(r)?;
        }
        if version >= 17 {
            self.fscrypt = bool::decode(r)?;
        }
        Ok(())
    }

    fn encode_first(&self, w: &mut Writer) {
        self.ino.encode(w);
        w.u32(self.rdev);
        self.ctime.encode(w);
        [self.mode, self.uid, self.gid].into_iter().for_each(|n| w.u32(n));
        w.i32(self.nlink);
        w.u8(0);
        w.u8(self.dir_hash);
        w.zeros(7);
        self.layout.encode(w);
        w.u64(self.size);
        w.u32(self.truncate_seq);
        w.u64(self.truncate_size);
        w.u64(self.truncate_from);
        w.u32(self.truncate_pending);
        self.mtime.encode(w);
        self.atime.encode(w);
        w.u32(self.time_warp_seq);
        self.client_ranges.encode(w);
        self.dirstat.encode(w);
        self.rstat.encode(w);
        self.accounted_rstat.encode(w);
        w.u64(self.version);
        w.u64(self.file_data_version);
        w.u64(self.xattr_version);
        w.u64(self.backtrace_version);
    }
}

impl Encode for Inode {
    fn encode(&self, w: &mut Writer) {
        w.envelope(Self::VERSION, 6, |w| {
            self.encode_first(w);
            self.old_pools.encode(w);
            w.u64(self.max_size_ever);
            w.u64(self.inline_version);
            w.blob(&self.inline_data);
            self.quota.encode(w);
            w.blob(&self.stray_prior_path);
            w.u64(self.last_scrub_version);
            self.last_scrub_stamp.encode(w);
            self.btime.encode(w);
            w.u64(self.change_attr);
            w.i32(self.export_pin);
            self.random_pin.encode(w);
            self.distributed_pin.encode(w);
            self.fscrypt.encode(w);
        });
    }
}
impl Decode for Inode {
    const MIN_SIZE: usize = 200;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope_since("inode_t", Self::VERSION, 6, |r, version| {
            let mut inode = Self::decode_first(r)?;
            inode.decode_later(r, version)?;
            Ok(inode)
        })
    }
}

impl Default for Inode {
    fn default() -> Self {
        Self {
            ino: Ino(0),
            rdev: 0,
            ctime: Utime::ZERO,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 0,
            dir_hash: 0,
            layout: FileLayout::default(),
            size: 0,
            truncate_seq: 0,
            truncate_size: 0,
            truncate_from: 0,
            truncate_pending: 0,
            mtime: Utime::ZERO,
            atime: Utime::ZERO,
            time_warp_seq: 0,
            client_ranges: BTreeMap::new(),
            dirstat: FragInfo::default(),
            rstat: NestInfo::default(),
            accounted_rstat: NestInfo::default(),
            version: 0,
            file_data_version: 0,
            xattr_version: 0,
            backtrace_version: 0,
            old_pools: BTreeSet::new(),
            max_size_ever: 0,
            inline_version: InodeStat::INLINE_NONE,
            inline_data: Bytes::new(),
            quota: Quota::default(),
            stray_prior_path: Bytes::new(),
            last_scrub_version: 0,
            last_scrub_stamp: Utime::ZERO,
            btime: Utime::ZERO,
            change_attr: 0,
            export_pin: -1,
            random_pin: 0.0,
            distributed_pin: false,
            fscrypt: false,
        }
    }
}
