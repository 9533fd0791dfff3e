//! Capabilities between a client and a metadata server: grants, revocations, moves, and what the client
//! changed under them.
//!
//! Source: src/messages/MClientCaps.h, src/messages/MClientCapRelease.h.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};
use types::{Epoch, Ino, Utime};

use super::{Caps, FileLayout, SnapTrace};
use crate::payload::{Parts, Payload, Segments};
use crate::type_numbers;

/// What a message about a capability means. Source: CEPH_CAP_OP_*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CapOp(pub u32);

impl CapOp {
    /// From the server: it has these now, perhaps fewer than before.
    pub const GRANT: Self = Self(0);
    pub const REVOKE: Self = Self(1);
    /// From the server: the file was truncated.
    pub const TRUNC: Self = Self(2);
    /// From the server: another rank will tell of the inode from now on.
    pub const EXPORT: Self = Self(3);
    pub const IMPORT: Self = Self(4);
    /// From the client: what it keeps and wants, what it changed.
    pub const UPDATE: Self = Self(5);
    pub const DROP: Self = Self(6);
    pub const FLUSH: Self = Self(7);
    pub const FLUSH_ACK: Self = Self(8);
    /// From the client: what was changed before a snapshot.
    pub const FLUSHSNAP: Self = Self(9);
    pub const FLUSHSNAP_ACK: Self = Self(10);
    pub const RELEASE: Self = Self(11);
    pub const RENEW: Self = Self(12);
}

/// The capability at the other rank, when an inode moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapPeer {
    pub cap_id: u64,
    pub seq: u32,
    pub migrate_seq: u32,
    pub rank: i32,
    /// `ReplyCap` has the bits.
    pub flags: u8,
}
wire_plain!(CapPeer { cap_id, seq, migrate_seq, rank, flags });

/// A capability's message. Which fields mean something depends on `op`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MClientCaps {
    pub op: CapOp,
    pub ino: Ino,
    pub realm: Ino,
    pub cap_id: u64,
    /// Counts the server's messages of this capability; the client states the newest it has seen.
    pub seq: u32,
    /// The last `seq` in which something was issued.
    pub issue_seq: u32,
    pub caps: Caps,
    pub wanted: Caps,
    pub dirty: Caps,
    /// Counts moves between ranks.
    pub migrate_seq: u32,
    /// The newest snapshot that is older than what is flushed.
    pub snap_follows: u64,
    pub snaps: SnapTrace,

    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    pub nlink: u32,
    pub xattr_version: u64,
    /// `decode_xattrs` reads them.
    pub xattrs: Bytes,

    pub size: u64,
    pub max_size: u64,
    pub truncate_size: u64,
    pub truncate_seq: u32,
    pub mtime: Utime,
    pub atime: Utime,
    pub ctime: Utime,
    pub btime: Utime,
    pub layout: FileLayout,
    pub time_warp_seq: u32,
    pub change_attr: u64,
    /// Of a folder; -1 when nothing is said of it.
    pub nfiles: i64,
    pub nsubdirs: i64,

    /// Of `EXPORT` and `IMPORT`.
    pub peer: CapPeer,
    pub flock: Bytes,
    /// `InodeStat::INLINE_NONE`: no data is in the inode.
    pub inline_version: u64,
    pub inline_data: Bytes,
    /// The receiver waits for this OSD map before it uses what it got.
    pub osd_epoch_barrier: Epoch,
    /// The client's oldest flush that was not answered; 0 for none.
    pub oldest_flush_tid: u64,
    pub caller_uid: u32,
    pub caller_gid: u32,
    /// `SYNC`, `PENDING_CAPSNAP`.
    pub flags: u32,
}

/// Bytes of the attributes of a file; a peer takes fewer, and zeros fill the place.
const BODY_BYTES: usize = 84;
const PEER_BYTES: usize = 21;

impl MClientCaps {
    /// The client waits for the answer.
    pub const SYNC: u32 = 1;
    /// More will be flushed for a snapshot.
    pub const PENDING_CAPSNAP: u32 = 1 << 2;

    fn encode_head(&self, w: &mut Writer, trace_len: usize) {
        w.u32(self.op.0);
        self.ino.encode(w);
        self.realm.encode(w);
        w.u64(self.cap_id);
        w.u32(self.seq);
        w.u32(self.issue_seq);
        self.caps.encode(w);
        self.wanted.encode(w);
        self.dirty.encode(w);
        w.u32(self.migrate_seq);
        w.u64(self.snap_follows);
        w.count(trace_len);
        [self.uid, self.gid, self.mode, self.nlink].into_iter().for_each(|v| w.u32(v));
        w.count(self.xattrs.len());
        w.u64(self.xattr_version);
    }

    fn encode_body(&self, w: &mut Writer) {
        if self.op == CapOp::EXPORT {
            self.peer.encode(w);
            return w.zeros(BODY_BYTES - PEER_BYTES);
        }
        w.u64(self.size);
        w.u64(self.max_size);
        w.u64(self.truncate_size);
        w.u32(self.truncate_seq);
        [self.mtime, self.atime, self.ctime].iter().for_each(|t| t.encode(w));
        self.layout.encode_old(w);
        w.u32(self.time_warp_seq);
    }

    /// With the lengths of the snap trace and of the extended attributes.
    fn decode_head(r: &mut Reader) -> Result<(Self, usize, usize), DecodeError> {
        let mut m = Self {
            op: CapOp(r.u32()?),
            ino: Ino::decode(r)?,
            realm: Ino::decode(r)?,
            cap_id: r.u64()?,
            seq: r.u32()?,
            issue_seq: r.u32()?,
            caps: Caps::decode(r)?,
            wanted: Caps::decode(r)?,
            dirty: Caps::decode(r)?,
            migrate_seq: r.u32()?,
            snap_follows: r.u64()?,
            nfiles: -1,
            nsubdirs: -1,
            inline_version: super::InodeStat::INLINE_NONE,
            ..Self::default()
        };
        let trace_len = r.u32()? as usize;
        (m.uid, m.gid, m.mode, m.nlink) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let xattr_len = r.u32()? as usize;
        m.xattr_version = r.u64()?;
        Ok((m, trace_len, xattr_len))
    }

    fn decode_body(&mut self, r: &mut Reader) -> Result<(), DecodeError> {
        if self.op == CapOp::EXPORT {
            self.peer = CapPeer::decode(r)?;
            return r.skip(BODY_BYTES - PEER_BYTES);
        }
        self.size = r.u64()?;
        self.max_size = r.u64()?;
        self.truncate_size = r.u64()?;
        self.truncate_seq = r.u32()?;
        self.mtime = Utime::decode(r)?;
        self.atime = Utime::decode(r)?;
        self.ctime = Utime::decode(r)?;
        self.layout = FileLayout::decode_old(r)?;
        self.time_warp_seq = r.u32()?;
        Ok(())
    }

    /// What later forms added, one after the other.
    fn decode_later(&mut self, r: &mut Reader, version: u16) -> Result<(), DecodeError> {
        if version >= 2 {
            self.flock = r.blob()?;
        }
        if version >= 3 && self.op == CapOp::IMPORT {
            self.peer = CapPeer::decode(r)?;
        }
        if version >= 4 {
            self.inline_version = r.u64()?;
            self.inline_data = r.blob()?;
        }
        if version >= 5 {
            self.osd_epoch_barrier = Epoch::decode(r)?;
        }
        if version >= 6 {
            self.oldest_flush_tid = r.u64()?;
        }
        if version >= 7 {
            (self.caller_uid, self.caller_gid) = (r.u32()?, r.u32()?);
        }
        if version >= 8 {
            self.layout.pool_ns = String::decode(r)?;
        }
        if version >= 9 {
            self.btime = Utime::decode(r)?;
            self.change_attr = r.u64()?;
        }
        if version >= 10 {
            self.flags = r.u32()?;
        }
        if version >= 11 {
            (self.nfiles, self.nsubdirs) = (r.i64()?, r.i64()?);
        }
        Ok(())
    }
}

impl Payload for MClientCaps {
    const TYPE: u16 = type_numbers::CLIENT_CAPS;
    const NAME: &'static str = "client_caps";
    const VERSION: u16 = 11;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        let trace = self.snaps.to_bytes();
        let w = &mut out.front;
        self.encode_head(w, trace.len());
        self.encode_body(w);
        w.raw(&trace);
        w.blob(&self.flock);
        if self.op == CapOp::IMPORT {
            self.peer.encode(w);
        }
        w.u64(self.inline_version);
        w.blob(&self.inline_data);
        self.osd_epoch_barrier.encode(w);
        w.u64(self.oldest_flush_tid);
        w.u32(self.caller_uid);
        w.u32(self.caller_gid);
        self.layout.pool_ns.encode(w);
        self.btime.encode(w);
        w.u64(self.change_attr);
        w.u32(self.flags);
        w.i64(self.nfiles);
        w.i64(self.nsubdirs);
        out.middle = self.xattrs.clone();
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let r = &mut parts.front;
        let (mut m, trace_len, xattr_len) = Self::decode_head(r)?;
        m.decode_body(r)?;
        m.snaps = r.bounded(trace_len, SnapTrace::decode)?;
        if xattr_len != parts.middle.len() {
            return Err(DecodeError::Invalid { what: "client_caps xattr length", value: xattr_len as u64 });
        }
        m.xattrs = parts.middle.clone();
        m.decode_later(r, parts.version)?;
        Ok(m)
    }
}

/// A capability that a client gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapItem {
    pub ino: Ino,
    pub cap_id: u64,
    pub migrate_seq: u32,
    pub seq: u32,
}
wire_plain!(CapItem { ino, cap_id, migrate_seq, seq });

crate::payload::message! {
    /// Capabilities that a client gives back, of inodes that it forgets.
    #[derive(Default)]
    MClientCapRelease = type_numbers::CLIENT_CAP_RELEASE, "client_cap_release", 2, 1 {
        caps: Vec<CapItem>,
        osd_epoch_barrier: Epoch [since 2],
    }
}
