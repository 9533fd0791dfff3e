//! A client's request to a metadata server.
//!
//! Source: src/messages/MClientRequest.h; 16.2.15 writes version 5 with a head of version 2.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Epoch, Ino, Utime};

use super::{Caps, FileName, FsOp, RequestArgs};
use crate::payload::{Parts, Payload, Segments};
use crate::type_numbers;

/// A path from an inode on; without a name it is that inode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilePath {
    pub base: Ino,
    pub path: FileName,
}

impl Encode for FilePath {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.base.encode(w);
        w.blob(&self.path);
    }
}
impl Decode for FilePath {
    const MIN_SIZE: usize = 13;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.skip(1)?;
        Ok(Self { base: Ino::decode(r)?, path: r.blob()? })
    }
}

/// What a client gives up together with a request, because the request is going to change it. Source:
/// ceph_mds_request_release.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapDrop {
    pub ino: Ino,
    pub cap_id: u64,
    /// What it keeps.
    pub caps: Caps,
    pub wanted: Caps,
    pub seq: u32,
    pub issue_seq: u32,
    pub migrate_seq: u32,
    /// Of the lease on `name`.
    pub lease_seq: u32,
    pub name: FileName,
}

impl Encode for CapDrop {
    fn encode(&self, w: &mut Writer) {
        self.ino.encode(w);
        w.u64(self.cap_id);
        self.caps.encode(w);
        self.wanted.encode(w);
        [self.seq, self.issue_seq, self.migrate_seq, self.lease_seq].into_iter().for_each(|v| w.u32(v));
        w.blob(&self.name);
    }
}
impl Decode for CapDrop {
    const MIN_SIZE: usize = 44;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            ino: Ino::decode(r)?,
            cap_id: r.u64()?,
            caps: Caps::decode(r)?,
            wanted: Caps::decode(r)?,
            seq: r.u32()?,
            issue_seq: r.u32()?,
            migrate_seq: r.u32()?,
            lease_seq: r.u32()?,
            name: r.blob()?,
        })
    }
}

/// A request. Its number is the message's tid.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MClientRequest {
    pub op: FsOp,
    pub args: RequestArgs,
    /// The client's oldest request that has no safe answer: the server forgets what is older.
    pub oldest_tid: u64,
    pub mdsmap_epoch: Epoch,
    /// `REPLAY`, `WANT_DENTRY`, `ASYNC`.
    pub flags: u32,
    pub num_retry: u32,
    pub num_fwd: u32,
    /// The server has the feature `32bits_retry_fwd`; without it the counts go in a byte each.
    pub wide_counts: bool,
    pub caller_uid: u32,
    pub caller_gid: u32,
    /// The inode that a request made, when it is sent again after a failover.
    pub ino: Ino,
    pub path: FilePath,
    /// What the request is about besides: a target, an old name, the name of an attribute.
    pub path2: FilePath,
    pub drops: Vec<CapDrop>,
    pub stamp: Utime,
    pub gids: Vec<u64>,
    /// Of a new name; empty without encryption.
    pub alternate_name: Bytes,
    /// The value of an attribute.
    pub data: Bytes,
}

impl MClientRequest {
    /// It was answered before a failover, but not safely.
    pub const REPLAY: u32 = 1;
    /// The answer is to have the name.
    pub const WANT_DENTRY: u32 = 2;
    pub const ASYNC: u32 = 4;

    fn encode_head(&self, w: &mut Writer) {
        let narrow = |count: u32| u8::try_from(count).unwrap_or(u8::MAX);
        w.u16(if self.wide_counts { 2 } else { 1 });
        w.u64(self.oldest_tid);
        self.mdsmap_epoch.encode(w);
        w.u32(self.flags);
        w.u8(narrow(self.num_retry));
        w.u8(narrow(self.num_fwd));
        let drops = u16::try_from(self.drops.len());
        assert!(drops.is_ok(), "a request gives up a few capabilities");
        w.u16(drops.unwrap_or(u16::MAX));
        w.u32(self.op.0);
        w.u32(self.caller_uid);
        w.u32(self.caller_gid);
        self.ino.encode(w);
        self.args.encode(w);
        if self.wide_counts {
            w.u32(self.num_retry);
            w.u32(self.num_fwd);
        }
    }

    /// With the number of capabilities that follow.
    fn decode_head(r: &mut Reader, version: u16) -> Result<(Self, usize), DecodeError> {
        let head = if version >= 4 { r.u16()? } else { 0 };
        let mut m = Self { oldest_tid: r.u64()?, mdsmap_epoch: Epoch::decode(r)?, ..Self::default() };
        m.flags = r.u32()?;
        (m.num_retry, m.num_fwd) = (r.u8()?.into(), r.u8()?.into());
        let drops = usize::from(r.u16()?);
        m.op = FsOp(r.u32()?);
        (m.caller_uid, m.caller_gid) = (r.u32()?, r.u32()?);
        m.ino = Ino::decode(r)?;
        let args_bytes = if version >= 4 { RequestArgs::BYTES } else { RequestArgs::OLD_BYTES };
        m.args = r.bounded(args_bytes, |r| RequestArgs::decode(r, m.op))?;
        if head >= 2 {
            m.wide_counts = true;
            (m.num_retry, m.num_fwd) = (r.u32()?, r.u32()?);
        }
        Ok((m, drops))
    }
}

impl Payload for MClientRequest {
    const TYPE: u16 = type_numbers::CLIENT_REQUEST;
    const NAME: &'static str = "client_request";
    const VERSION: u16 = 5;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.encode_head(w);
        self.path.encode(w);
        self.path2.encode(w);
        self.drops.iter().for_each(|d| d.encode(w));
        self.stamp.encode(w);
        self.gids.encode(w);
        w.blob(&self.alternate_name);
        out.data = self.data.clone();
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let version = parts.version;
        let r = &mut parts.front;
        let (mut m, drops) = Self::decode_head(r, version)?;
        m.path = FilePath::decode(r)?;
        m.path2 = FilePath::decode(r)?;
        let bound = r.remaining() / CapDrop::MIN_SIZE;
        if drops > bound {
            let (claimed, bound) = (drops as u64, bound as u64);
            return Err(DecodeError::TooLarge { what: "capabilities of a request", claimed, bound });
        }
        m.drops = (0..drops).map(|_| CapDrop::decode(r)).collect::<Result<_, _>>()?;
        if version >= 2 {
            m.stamp = Utime::decode(r)?;
        }
        if version >= 4 {
            m.gids = Decode::decode(r)?;
        }
        if version >= 5 {
            m.alternate_name = r.blob()?;
        }
        m.data = parts.data.clone();
        Ok(m)
    }
}
