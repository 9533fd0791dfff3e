//! The client's request to an OSD: operations on one object, or on a placement group.

use codec::{Decode, DecodeError, Encode, Reader};
use types::{
    EntityName, EntityType, Epoch, HObject, Name, ObjectLocator, PoolId, ReqId, SnapContext, SnapId, SpgId,
    Utime,
};

use super::raw_op::{decode_ops, encode_ops};
use super::{OsdOp, flags};
use crate::payload::{Parts, Payload, Segments};
use crate::{WireMessage, type_numbers};

/// Bytes of the trace ids that releases without tracing leave zero. Source: encode_trace in src/msg/Message.cc.
pub(super) const TRACE_LEN: usize = 24;

/// A client's request. Source: src/messages/MOSDOp.h (version 8).
#[derive(Debug, Clone, PartialEq)]
pub struct MOsdOp {
    pub pgid: SpgId,
    /// The client's map.
    pub epoch: Epoch,
    /// `flags::*`.
    pub flags: u32,
    /// Set by a sender that acts for somebody else; else only `inc` is. See `reqid()`.
    pub explicit_reqid: ReqId,
    /// The client's incarnation.
    pub client_inc: i32,
    pub mtime: Utime,
    /// Pool, hash, namespace, key, name and the snapshot to read.
    pub object: HObject,
    pub ops: Vec<OsdOp>,
    /// The writer's snapshot context.
    pub snapc: SnapContext,
    /// 0 for the first attempt, -1 for unknown.
    pub retry_attempt: i32,
    /// The client's feature bits.
    pub features: u64,
}

/// The part of a request that its routing needs, without the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OsdOpHead {
    pub pgid: SpgId,
    /// The object's placement hash before it is folded to a PG.
    pub hash: u32,
    pub epoch: Epoch,
    pub flags: u32,
    pub explicit_reqid: ReqId,
}

impl MOsdOp {
    /// The name of this request for ever; `source` has proven to be who it is and sent it with `tid` in its header.
    ///
    /// Only OSDs and MDSs name requests of others: a client that could would have another's write answered as one that
    /// ran before. Source: MOSDOp::get_reqid, which believes everybody.
    pub fn reqid(&self, source: EntityName, tid: u64) -> ReqId {
        reqid(self.explicit_reqid, source, tid)
    }

    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// About how many bytes of memory the request holds: what its front was decoded to, and its data.
    pub fn memory_bytes(&self) -> u64 {
        let data: usize = self.ops.iter().map(|op| op.indata.len()).sum();
        let ops = self.ops.len() * size_of::<OsdOp>();
        let o = &self.object;
        let names = o.name.memory_bytes() + o.key.memory_bytes() + o.nspace.memory_bytes();
        (size_of::<Self>() + ops + self.snapc.snaps.len() * size_of::<u64>() + names + data) as u64
    }

    /// Whether the client says that this may change the object. Source: CEPH_OSD_FLAG_WRITE.
    pub fn may_write(&self) -> bool {
        self.has_flag(flags::WRITE)
    }

    /// Reads only what routing needs, leaving the operations encoded.
    pub fn decode_head(wire: &WireMessage) -> Result<OsdOpHead, DecodeError> {
        check_version(wire.header.version)?;
        OsdOpHead::decode(&mut Reader::new(wire.front.clone()))
    }
}

impl OsdOpHead {
    /// As `MOsdOp::reqid`.
    pub fn reqid(&self, source: EntityName, tid: u64) -> ReqId {
        reqid(self.explicit_reqid, source, tid)
    }

    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let head = Self {
            pgid: SpgId::decode(r)?,
            hash: r.u32()?,
            epoch: Epoch::decode(r)?,
            flags: r.u32()?,
            explicit_reqid: ReqId::decode(r)?,
        };
        r.skip(TRACE_LEN)?;
        Ok(head)
    }
}

fn reqid(explicit: ReqId, source: EntityName, tid: u64) -> ReqId {
    let unset = EntityName { kind: 0, num: 0 };
    let may_name = matches!(source.entity_type(), Some(EntityType::Osd | EntityType::Mds));
    if may_name && (explicit.name != unset || explicit.tid != 0) {
        return explicit;
    }
    ReqId { name: source, tid, inc: explicit.inc }
}

/// The form changes with every version; clients of Luminous and newer all send 8 to a server of our features.
fn check_version(version: u16) -> Result<(), DecodeError> {
    match version {
        8 => Ok(()),
        v => Err(DecodeError::Invalid { what: "osd_op version", value: v.into() }),
    }
}

impl Payload for MOsdOp {
    const TYPE: u16 = type_numbers::OSD_OP;
    const NAME: &'static str = "osd_op";
    const VERSION: u16 = 8;
    const COMPAT: u16 = 3;
    /// Source: osd_client_op_priority in src/common/options.cc.
    const PRIORITY: u16 = 63;

    fn encode_payload(&self, out: &mut Segments) {
        let w = &mut out.front;
        self.pgid.encode(w);
        w.u32(self.object.hash);
        self.epoch.encode(w);
        w.u32(self.flags);
        self.explicit_reqid.encode(w);
        w.zeros(TRACE_LEN);
        w.i32(self.client_inc);
        self.mtime.encode(w);
        locator_of(&self.object).encode(w);
        self.object.name.encode(w);
        encode_ops(&self.ops, w);
        self.object.snap.encode(w);
        self.snapc.encode(w);
        w.i32(self.retry_attempt);
        w.u64(self.features);
        out.set_data(self.ops.iter().map(|op| &op.indata));
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        check_version(parts.version)?;
        let r = &mut parts.front;
        let head = OsdOpHead::decode(r)?;
        let client_inc = r.i32()?;
        let mtime = Utime::decode(r)?;
        let locator = ObjectLocator::decode(r)?;
        let name = Name::decode(r)?;
        let ops = decode_ops(r, &parts.data)?;
        let snap = SnapId::decode(r)?;
        let snapc = SnapContext::decode(r)?;
        Ok(Self {
            pgid: head.pgid,
            epoch: head.epoch,
            flags: head.flags,
            explicit_reqid: head.explicit_reqid,
            client_inc,
            mtime,
            object: object_of(head, locator, name, snap),
            ops,
            snapc,
            retry_attempt: r.i32()?,
            features: r.u64()?,
        })
    }
}

/// A key equal to the name means no key. Source: hobject_t::set_key in src/common/hobject.h.
fn object_of(head: OsdOpHead, locator: ObjectLocator, name: Name, snap: SnapId) -> HObject {
    let key = if locator.key == name { Name::new() } else { locator.key };
    HObject {
        pool: head.pgid.pgid.pool,
        hash: head.hash,
        nspace: locator.nspace,
        key,
        name,
        snap,
        max: false,
    }
}

/// Requests to a PG name no object, and state the hash outright. Source: MOSDOp::get_object_locator.
fn locator_of(object: &HObject) -> ObjectLocator {
    let nameless = object.name.is_empty();
    ObjectLocator {
        pool: object.pool,
        key: if nameless { Name::new() } else { object.key.clone() },
        nspace: object.nspace.clone(),
        hash: if nameless { object.hash.into() } else { -1 },
    }
}

/// Arguments of `copy-from` name another object: its name and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopySource {
    pub object: Name,
    pub locator: ObjectLocator,
}

codec::wire_plain!(CopySource { object, locator });

impl CopySource {
    pub fn pool(&self) -> PoolId {
        self.locator.pool
    }
}
