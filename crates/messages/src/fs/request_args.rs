//! The arguments of requests: a union of fixed size, which the operation tells how to read.
//!
//! Source: ceph_mds_request_args in src/include/ceph_fs.h.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Ino, SnapId, Utime};

use super::{Caps, FileLayout, FileLock, Frag, FsOp, LockKind};

/// Attributes to set, and which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Utime,
    pub atime: Utime,
    pub size: u64,
    pub old_size: u64,
    /// `SetAttr::MODE` and the like.
    pub mask: u32,
    pub btime: Utime,
}

impl SetAttr {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const MTIME: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const SIZE: u32 = 1 << 5;
    pub const CTIME: u32 = 1 << 6;
    pub const MTIME_NOW: u32 = 1 << 7;
    pub const ATIME_NOW: u32 = 1 << 8;
    pub const BTIME: u32 = 1 << 9;
    /// Set-user-id and set-group-id go, as after a write.
    pub const KILL_SGUID: u32 = 1 << 10;
}

/// Which part of a directory to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReaddirArgs {
    pub frag: Frag,
    /// 0: as many as fit.
    pub max_entries: u32,
    pub max_bytes: u32,
    pub flags: u16,
    /// Names from this hash on.
    pub offset_hash: u32,
}

impl ReaddirArgs {
    /// The reply may have all of its flags.
    pub const REPLY_BITFLAGS: u16 = 1;
}

/// How to open or create a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenArgs {
    /// `OpenArgs::WRONLY` and the like.
    pub flags: u32,
    pub mode: u32,
    /// The layout of a new file; 0 for the folder's.
    pub stripe_unit: u32,
    pub stripe_count: u32,
    pub object_size: u32,
    /// -1 for the folder's.
    pub pool: i32,
    pub mask: Caps,
    pub old_size: u64,
}

impl OpenArgs {
    pub const RDONLY: u32 = 0;
    pub const WRONLY: u32 = 1;
    pub const RDWR: u32 = 2;
    pub const CREAT: u32 = 0o100;
    pub const EXCL: u32 = 0o200;
    pub const TRUNC: u32 = 0o1000;
    pub const LAZY: u32 = 0o20000;
    pub const DIRECTORY: u32 = 0o200_000;
    pub const NOFOLLOW: u32 = 0o400_000;
}

/// The arguments of one request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RequestArgs {
    #[default]
    None,
    /// Which attributes the answer is to have right.
    Mask(Caps),
    SetAttr(SetAttr),
    Readdir(ReaddirArgs),
    Mknod {
        mode: u32,
        rdev: u32,
    },
    Mkdir {
        mode: u32,
    },
    Open(OpenArgs),
    SetXattr {
        /// `XATTR_CREATE` and the like.
        flags: u32,
        /// An OSD map that knows the pool of a layout.
        osdmap_epoch: u32,
    },
    Layout(FileLayout),
    FileLock {
        kind: LockKind,
        lock: FileLock,
        wait: bool,
    },
    LookupIno {
        mask: Caps,
        snap: SnapId,
        parent: Ino,
        hash: u32,
    },
}

impl RequestArgs {
    /// Bytes of the union, and of its form before birth times were set.
    pub const BYTES: usize = 56;
    pub const OLD_BYTES: usize = 48;

    pub const XATTR_CREATE: u32 = 1;
    pub const XATTR_REPLACE: u32 = 1 << 1;
    pub const XATTR_REMOVE: u32 = 1 << 31;

    pub(super) fn encode(&self, w: &mut Writer) {
        let before = w.len();
        match self {
            Self::None => {}
            Self::Mask(mask) => mask.encode(w),
            Self::SetAttr(a) => {
                [a.mode, a.uid, a.gid].into_iter().for_each(|v| w.u32(v));
                a.mtime.encode(w);
                a.atime.encode(w);
                w.u64(a.size);
                w.u64(a.old_size);
                w.u32(a.mask);
                a.btime.encode(w);
            }
            Self::Readdir(a) => {
                a.frag.encode(w);
                w.u32(a.max_entries);
                w.u32(a.max_bytes);
                w.u16(a.flags);
                w.u32(a.offset_hash);
            }
            Self::Mknod { mode, rdev } => [*mode, *rdev].into_iter().for_each(|v| w.u32(v)),
            Self::Mkdir { mode } => w.u32(*mode),
            Self::Open(a) => {
                [a.flags, a.mode, a.stripe_unit, a.stripe_count, a.object_size]
                    .into_iter()
                    .for_each(|v| w.u32(v));
                w.i32(a.pool);
                a.mask.encode(w);
                w.u64(a.old_size);
            }
            Self::SetXattr { flags, osdmap_epoch } => {
                [*flags, *osdmap_epoch].into_iter().for_each(|v| w.u32(v))
            }
            Self::Layout(layout) => layout.encode_old(w),
            Self::FileLock { kind, lock, wait } => {
                kind.encode(w);
                lock.lock.encode(w);
                [lock.owner, lock.pid, lock.start, lock.length].into_iter().for_each(|v| w.u64(v));
                wait.encode(w);
            }
            Self::LookupIno { mask, snap, parent, hash } => {
                mask.encode(w);
                snap.encode(w);
                parent.encode(w);
                w.u32(*hash);
            }
        }
        let written = w.len() - before;
        w.zeros(Self::BYTES - written);
    }

    /// Of the union's bytes, all or those of its older form.
    pub(super) fn decode(r: &mut Reader, op: FsOp) -> Result<Self, DecodeError> {
        Ok(match op {
            FsOp::LOOKUP | FsOp::GETATTR | FsOp::LOOKUPPARENT | FsOp::LOOKUPNAME | FsOp::LOOKUPSNAP => {
                Self::Mask(Caps::decode(r)?)
            }
            FsOp::SETATTR => Self::SetAttr(Self::decode_set_attr(r)?),
            FsOp::READDIR | FsOp::LSSNAP => Self::Readdir(ReaddirArgs {
                frag: Frag::decode(r)?,
                max_entries: r.u32()?,
                max_bytes: r.u32()?,
                flags: r.u16()?,
                offset_hash: r.u32()?,
            }),
            FsOp::MKNOD => Self::Mknod { mode: r.u32()?, rdev: r.u32()? },
            FsOp::MKDIR | FsOp::MKSNAP => Self::Mkdir { mode: r.u32()? },
            FsOp::OPEN | FsOp::CREATE => Self::Open(OpenArgs {
                flags: r.u32()?,
                mode: r.u32()?,
                stripe_unit: r.u32()?,
                stripe_count: r.u32()?,
                object_size: r.u32()?,
                pool: r.i32()?,
                mask: Caps::decode(r)?,
                old_size: r.u64()?,
            }),
            FsOp::SETXATTR => Self::SetXattr { flags: r.u32()?, osdmap_epoch: r.u32()? },
            FsOp::SETLAYOUT | FsOp::SETDIRLAYOUT => Self::Layout(FileLayout::decode_old(r)?),
            FsOp::SETFILELOCK | FsOp::GETFILELOCK => {
                let (kind, lock) = (Decode::decode(r)?, Decode::decode(r)?);
                let (owner, pid, start, length) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
                let lock = FileLock { start, length, client: 0, owner, pid, lock };
                Self::FileLock { kind, lock, wait: bool::decode(r)? }
            }
            FsOp::LOOKUPINO => Self::LookupIno {
                mask: Caps::decode(r)?,
                snap: SnapId::decode(r)?,
                parent: Ino::decode(r)?,
                hash: r.u32()?,
            },
            _ => Self::None,
        })
    }

    /// Without a birth time in the older form, which cannot ask for one either.
    fn decode_set_attr(r: &mut Reader) -> Result<SetAttr, DecodeError> {
        let mut a = SetAttr {
            mode: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            mtime: Utime::decode(r)?,
            atime: Utime::decode(r)?,
            size: r.u64()?,
            old_size: r.u64()?,
            mask: r.u32()?,
            btime: Utime::ZERO,
        };
        match r.is_empty() {
            true => a.mask &= !SetAttr::BTIME,
            false => a.btime = Utime::decode(r)?,
        }
        Ok(a)
    }
}
