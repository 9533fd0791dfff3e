//! A metadata server's answer to a request.
//!
//! Source: src/messages/MClientReply.h, MClientRequestForward.h; Server::set_trace_dist,
//! handle_client_readdir and handle_client_openc in src/mds/Server.cc.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::{Epoch, Ino};

use super::{DirStat, FileName, FsOp, InodeStat, LeaseStat, SnapTrace};
use crate::payload::{Parts, Payload, Segments, message};
use crate::type_numbers;

/// An answer. A change is answered twice: when it was made, and when it is safe in the journal (`is_safe`),
/// unless both are one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MClientReply {
    pub op: FsOp,
    /// 0 or a negated errno.
    pub result: i32,
    pub mdsmap_epoch: Epoch,
    pub is_safe: bool,
    /// What `trace` has.
    pub has_dentry: bool,
    pub has_target: bool,
    /// `trace()` reads it.
    pub trace: Bytes,
    /// Of `READDIR` and `LSSNAP` a `ReaddirReply`, of `CREATE` a `CreateReply`, of `GETFILELOCK` a
    /// `FileLock`, of `GETVXATTR` an envelope with the value.
    pub extra: Bytes,
    /// A `SnapTrace`.
    pub snaps: Bytes,
}

impl Payload for MClientReply {
    const TYPE: u16 = type_numbers::CLIENT_REPLY;
    const NAME: &'static str = "client_reply";
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        w.u32(self.op.0);
        w.i32(self.result);
        self.mdsmap_epoch.encode(w);
        self.is_safe.encode(w);
        self.has_dentry.encode(w);
        self.has_target.encode(w);
        w.blob(&self.trace);
        w.blob(&self.extra);
        w.blob(&self.snaps);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        let r = &mut parts.front;
        Ok(Self {
            op: FsOp(r.u32()?),
            result: r.i32()?,
            mdsmap_epoch: Epoch::decode(r)?,
            is_safe: bool::decode(r)?,
            has_dentry: bool::decode(r)?,
            has_target: bool::decode(r)?,
            trace: r.blob()?,
            extra: r.blob()?,
            snaps: r.blob()?,
        })
    }
}

impl MClientReply {
    /// The folder, name and inode that the request was about.
    pub fn trace(&self) -> Result<Trace, DecodeError> {
        let r = &mut Reader::new(self.trace.clone());
        let dentry = if self.has_dentry { Some(TraceDentry::decode(r)?) } else { None };
        let target = if self.has_target { Some(InodeStat::decode(r)?) } else { None };
        Ok(Trace { dentry, target })
    }

    /// Puts a trace in.
    pub fn set_trace(&mut self, trace: &Trace) {
        self.has_dentry = trace.dentry.is_some();
        self.has_target = trace.target.is_some();
        self.trace = Writer::collect(|w| {
            if let Some(dentry) = &trace.dentry {
                dentry.encode(w);
            }
            if let Some(target) = &trace.target {
                target.encode(w);
            }
        });
    }

    pub fn snap_trace(&self) -> Result<SnapTrace, DecodeError> {
        SnapTrace::from_bytes(self.snaps.clone())
    }
}

/// What a reply shows of the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    pub dentry: Option<TraceDentry>,
    /// Without it, the name leads nowhere.
    pub target: Option<InodeStat>,
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceDentry {
    pub dir: InodeStat,
    pub frag: DirStat,
    pub name: FileName,
    pub lease: LeaseStat,
}
codec::wire_plain!(TraceDentry { dir, frag, name, lease });

/// A name in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirEntry {
    pub name: FileName,
    pub lease: LeaseStat,
    pub inode: InodeStat,
}

impl Encode for DirEntry {
    fn encode(&self, w: &mut Writer) {
        w.blob(&self.name);
        self.lease.encode(w);
        self.inode.encode(w);
    }
}
impl Decode for DirEntry {
    const MIN_SIZE: usize = 4 + 6 + InodeStat::MIN_SIZE;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { name: r.blob()?, lease: Decode::decode(r)?, inode: Decode::decode(r)? })
    }
}

/// Part of a directory's fragment, or of a folder's snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReaddirReply {
    pub frag: DirStat,
    /// `END`, `COMPLETE`, `HASH_ORDER`, `OFFSET_HASH`.
    pub flags: u16,
    pub entries: Vec<DirEntry>,
}

impl ReaddirReply {
    /// Nothing of the fragment follows.
    pub const END: u16 = 1;
    /// The whole fragment is here.
    pub const COMPLETE: u16 = 1 << 8;
    /// Names come in the order of their hashes.
    pub const HASH_ORDER: u16 = 1 << 9;
    /// A listing goes on behind a hash.
    pub const OFFSET_HASH: u16 = 1 << 10;
}

impl Encode for ReaddirReply {
    fn encode(&self, w: &mut Writer) {
        self.frag.encode(w);
        w.count(self.entries.len());
        w.u16(self.flags);
        self.entries.iter().for_each(|e| e.encode(w));
    }
}
impl Decode for ReaddirReply {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let frag = DirStat::decode(r)?;
        let count = r.count("directory entries", DirEntry::MIN_SIZE)?;
        let flags = r.u16()?;
        let entries = (0..count).map(|_| DirEntry::decode(r)).collect::<Result<_, _>>()?;
        Ok(Self { frag, flags, entries })
    }
}

/// The inode that a `CREATE` made; with the feature `deleg_ino`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateReply {
    pub created: Ino,
    /// Numbers that the client may give to files that it creates: first ones, and how many follow.
    pub delegated: BTreeMap<u64, u64>,
}
wire_struct!(CreateReply(1, 1) { created, delegated });

message! {
    /// Another rank is to be asked.
    #[derive(Default)]
    MClientRequestForward = type_numbers::CLIENT_REQUEST_FORWARD, "client_request_forward", 1, 1 {
        rank: i32,
        num_fwd: i32,
        /// Always: servers do not pass requests on themselves.
        must_resend: bool,
    }
}
