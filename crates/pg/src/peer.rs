//! Messages between the OSDs of a PG: peering, replication, recovery, backfill. Ours alone; no Ceph daemon reads them.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::osd::CopyCursor;
use messages::wire::priority;
use messages::{Header, Message, WireMessage, type_numbers};
use types::{Epoch, Errno, Eversion, HObject, SpgId};

use crate::coded::Add;
use crate::info::{PgHistory, PgInfo, PgSums};
use crate::interval::PastIntervals;
use crate::merge::LogPart;
use crate::missing::MissingItem;
use crate::pg::{Owed, ScrubAsk, ScrubPart};
use crate::push::{ObjectPush, Pushed, Want};

/// Bytes of data that a peer accepts in one message (`msgr::Limits::data_bytes`). A longer message would end
/// the session each time it is sent, so it never gets into a session's queue.
pub(crate) const MESSAGE_MAX: usize = 128 << 20;
/// A longer body travels in the message's data, because peers accept much less as its front.
const FRONT_MAX: usize = 256 << 10;
/// About the bytes of a body beside what may be long.
const SHORT_PARTS: usize = 512;

/// The number that these messages travel under.
pub const PG_MESSAGE: u16 = type_numbers::OURS + 0x40;
const VERSION: u16 = 3;

/// One message about one PG.
#[derive(Debug, Clone, PartialEq)]
pub struct PgMessage {
    /// With the shard of the copy that it is for.
    pub pgid: SpgId,
    /// The shard of the copy that sends it.
    pub from: i8,
    /// The sender's map.
    pub epoch: Epoch,
    /// First epoch of the PG's current interval as the sender sees it; a message from an older one is dropped.
    pub interval: Epoch,
    pub body: PgBody,
}

impl crate::OsdCore {
    /// What another OSD's message says, for traces; `None` when it is no message between PGs.
    pub fn describe_message(msg: &Message) -> Option<String> {
        let msg = PgMessage::from_message(msg)?;
        Some(msg.map_or_else(
            |e| e.to_string(),
            |m| format!("{} e{} i{} {:?}", m.pgid, m.epoch, m.interval, m.body),
        ))
    }
}

/// What it says.
#[derive(Debug, Clone, PartialEq)]
pub enum PgBody {
    /// Primary asks for the copy's info.
    QueryInfo,
    /// Primary asks for log entries above `since` and the missing set.
    QueryLog {
        since: Eversion,
    },
    /// A copy states its info, asked or not.
    Notify {
        info: Box<PgInfo>,
        past: PastIntervals,
        owed: Owed,
    },
    /// Answer to `QueryLog`.
    Log {
        info: Box<PgInfo>,
        log: LogPart,
        missing: Vec<(HObject, MissingItem)>,
    },
    /// Primary: the PG goes active with this log; take it over.
    Activate {
        info: Box<PgInfo>,
        log: LogPart,
        backfill: BackfillStart,
        past: PastIntervals,
    },
    /// The activation is durable here, and a lease until so long after it was asked for.
    Activated {
        lease_ms: u32,
    },
    /// Primary shares what all copies should remember: started, clean.
    History {
        history: PgHistory,
    },
    /// A write: transaction and log entries, to be applied in order.
    RepOp(Box<RepOp>),
    /// Everything up to `version` is durable here.
    RepOpAck {
        version: Eversion,
        /// Other PGs of the same primary, of which a commit made writes durable too.
        others: Vec<RepAck>,
    },
    /// Says to the primary that messages to this member were lost, so that it takes no more writes before the
    /// PG has peered again.
    OutOfStep,
    /// A member's store has room for so many bytes: told when it is little, and when it is enough again.
    Room {
        bytes: u64,
    },
    /// A member's copy of the object is damaged: it needs a push.
    Damaged {
        object: HObject,
    },
    /// Primary asks for objects.
    Pull {
        wants: Vec<Want>,
    },
    /// Objects, or pieces of them.
    Push(Vec<ObjectPush>),
    /// What became of them here: what is taken is durable.
    PushAck {
        objects: Vec<Pushed>,
    },
    /// The asked copy does not have that version. Zero: it has nothing at all of the object, of which it
    /// should have a shard.
    PullRefused {
        object: HObject,
        need: Eversion,
    },
    /// Primary: these are all objects above `begin` up to and including `end`.
    BackfillRange {
        begin: HObject,
        end: HObject,
        objects: Vec<(HObject, Eversion)>,
    },
    /// The target lacks these of the range, and has removed what does not belong.
    BackfillWants {
        end: HObject,
        objects: Vec<HObject>,
    },
    /// Primary: the range is complete.
    BackfillProgress {
        last_backfill: HObject,
        sums: Box<PgSums>,
    },
    /// That is durable here.
    BackfillAck {
        last_backfill: HObject,
    },
    /// Primary: a place for a backfill of so many bytes is wanted here.
    BackfillReserve {
        id: u64,
        priority: u8,
        bytes: u64,
    },
    /// Whether it is given; if not, there is no room for the PG.
    BackfillGrant {
        id: u64,
        granted: bool,
    },
    /// Primary: it is not needed any more.
    BackfillRelease,
    /// The PG is clean without this copy: delete it.
    Remove,
    /// Primary: may this member's PG be scrubbed now?
    ScrubReserve,
    ScrubGrant {
        granted: bool,
    },
    /// Primary: the scrub is over.
    ScrubRelease,
    /// Primary: what is in this range?
    ScrubRead(Box<ScrubAsk>),
    ScrubMap(Box<ScrubPart>),
    /// Primary: the object was deleted; a copy up to this version must go.
    ScrubRemove {
        object: HObject,
        version: Eversion,
    },
    /// Primary of an erasure-coded PG: a scrub has found that the shard there is of no use.
    Spoiled {
        object: HObject,
    },
    /// Another PG's primary copies an object of this one: a piece of it.
    CopyRead(Box<CopyAsk>),
    /// Primary: whole blocks of a large write to come, which belong at `at` in the object aside with this
    /// number.
    Stage {
        id: u64,
        hash: u32,
        at: u64,
        data: Bytes,
    },
    /// They are durable here up to so many bytes.
    Staged {
        id: u64,
        upto: u64,
    },
    /// There is no room for them here, or the one before is missing.
    StageRefused {
        id: u64,
    },
    /// Primary: what lies aside under this number is not needed any more.
    Unstage {
        id: u64,
    },
    /// Primary of an erasure-coded PG: a range of an object's shard is wanted.
    ShardRead(Box<ShardAsk>),
    /// Those bytes, fewer where the shard ends, or the errno why there are none.
    ShardPart {
        id: u64,
        /// Which of the request's ranges it is.
        place: u32,
        result: i32,
        data: Bytes,
    },
    /// Member of an erasure-coded PG: what the primary sends follows, or is, an older version of the object
    /// than the one here, and the log tells nothing of it any more. It was not taken.
    Newer {
        object: HObject,
        version: Eversion,
    },
    /// Primary of an erasure-coded PG: every member has all writes up to here. What takes them back may go.
    Settled {
        version: Eversion,
    },
    /// That piece, as `copy-get` gives it, or why there is none.
    CopyPart {
        id: u64,
        result: i32,
        user_version: u64,
        data: Bytes,
    },
}

/// A message that is too long for any peer.
#[derive(Debug, Clone, PartialEq)]
pub struct TooLong {
    /// Length of its data.
    pub bytes: usize,
    /// The message that takes its place, if it was an answer.
    pub instead: Option<Box<PgBody>>,
}

impl PgBody {
    /// About the bytes of what may be long and is encoded with the rest.
    fn long_part(&self) -> usize {
        match self {
            Self::RepOp(op) => op.txn_head.len(),
            Self::Push(pushes) => pushes.iter().map(|push| push.bytes() as usize + SHORT_PARTS).sum(),
            _ => 0,
        }
    }

    fn copy_refused(id: u64) -> Self {
        Self::CopyPart { id, result: Errno::E2BIG.neg(), user_version: 0, data: Bytes::new() }
    }
}

/// Everything of a PG up to `version` is durable on the member that says so, in this interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepAck {
    /// With the shard of the primary's copy.
    pub pgid: SpgId,
    /// The member's shard.
    pub from: i8,
    pub interval: Epoch,
    pub version: Eversion,
}

codec::wire_plain!(RepAck { pgid, from, interval, version });

/// A question for a piece of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyAsk {
    /// Whose primary asks.
    pub from: SpgId,
    pub id: u64,
    /// With the snapshot that is copied.
    pub object: HObject,
    /// The version that clients see; 0 for any.
    pub version: u64,
    /// Bits of `messages::osd::flags`.
    pub flags: u32,
    pub cursor: CopyCursor,
    /// Bytes.
    pub max: u64,
}

/// A question for a range of an object's shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardAsk {
    /// Of the request that needs it, and which of its ranges it is.
    pub id: u64,
    pub place: u32,
    pub object: HObject,
    /// A shard with another version has missed something.
    pub version: Eversion,
    /// In the shard.
    pub offset: u64,
    pub len: u64,
}

codec::wire_struct!(ShardAsk(1, 1) { id, place, object, version, offset, len });

codec::wire_struct!(CopyAsk(1, 1) { from, id, object, version, flags, cursor, max });

/// What an activation means for a copy's backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BackfillStart {
    /// Go on as the copy's own info says.
    Keep = 0,
    /// The log does not reach back to this copy: begin anew, with nothing.
    Restart = 1,
}

/// A replicated write.
#[derive(Debug, Clone, PartialEq)]
pub struct RepOp {
    /// The store's transaction without the payloads of its writes, and those payloads: the very one that the primary
    /// submits, with the log entries. For a backfill target that does not have the object yet, the entries alone.
    pub txn_head: Bytes,
    pub payload: Bytes,
    /// The head of the log before this write. A member whose log has another head has lost a message and must
    /// not apply it.
    pub prev: Eversion,
    /// Log entries up to here may go.
    pub trim_to: Eversion,
    /// In erasure-coded PGs, whose members have a transaction each.
    pub coded: Option<Box<CodedPart>>,
}

/// What a write of an erasure-coded PG has besides.
#[derive(Debug, Clone, PartialEq)]
pub struct CodedPart {
    /// Behind the transaction.
    pub adds: Vec<Add>,
    /// What is kept to take writes back may go up to here: every member has them.
    pub kept_to: Eversion,
}

codec::wire_struct!(CodedPart(1, 1) { adds, kept_to });

codec::wire_struct!(RepOpHead(3, 3) { txn_head, prev, trim_to });

/// A `RepOp` without its payload, which travels in the data segment.
struct RepOpHead {
    txn_head: Bytes,
    prev: Eversion,
    trim_to: Eversion,
}

impl PgMessage {
    /// Encodes the message for a session. A long body goes to the beginning of the data, and the middle then
    /// says how long it is.
    pub fn into_message(self) -> Result<Message, TooLong> {
        let instead = match &self.body {
            PgBody::CopyPart { id, .. } => Some(Box::new(PgBody::copy_refused(*id))),
            _ => None,
        };
        let (mut data, mut at) = (Bytes::new(), 0);
        let mut front = Writer::collect_about(self.body.long_part() + SHORT_PARTS, |w| {
            (self.pgid, self.from).encode(w);
            self.epoch.encode(w);
            self.interval.encode(w);
            at = w.len();
            data = encode_body(self.body, w);
        });
        let mut middle = Bytes::new();
        if front.len() > FRONT_MAX {
            let body = front.split_off(at);
            middle = (body.len() as u64).to_bytes();
            data = if data.is_empty() { body } else { [body, data].concat().into() };
        }
        if data.len() > MESSAGE_MAX {
            return Err(TooLong { bytes: data.len(), instead });
        }
        let header = Header {
            ty: PG_MESSAGE,
            priority: priority::HIGH,
            version: VERSION,
            compat_version: VERSION,
            ..Header::default()
        };
        Ok(Message::Unknown(WireMessage { header, front, middle, data, more: Vec::new() }))
    }

    /// From a message of another OSD; `None` when it is none of ours.
    pub fn from_message(msg: &Message) -> Option<Result<Self, DecodeError>> {
        let Message::Unknown(wire) = msg else { return None };
        if wire.header.ty != PG_MESSAGE {
            return None;
        }
        Some(Self::decode_parts(wire))
    }

    fn decode_parts(wire: &WireMessage) -> Result<Self, DecodeError> {
        let mut r = Reader::new(wire.front.clone());
        let (pgid, from) = (SpgId::decode(&mut r)?, i8::decode(&mut r)?);
        let (epoch, interval) = (Epoch::decode(&mut r)?, Epoch::decode(&mut r)?);
        let mut data = wire.whole_data();
        if !wire.middle.is_empty() {
            let len = Reader::new(wire.middle.clone()).u64()?;
            let mut whole = Reader::new(data.clone());
            let body = whole.raw(usize::try_from(len).unwrap_or(usize::MAX))?;
            data = data.slice(body.len()..);
            r = Reader::new(body);
        }
        Ok(Self { pgid, from, epoch, interval, body: decode_body(&mut r, &data)? })
    }
}

/// Writes kind and content; returns what goes into the data segment. Kinds 10 to 12 and 29 to 31 are no longer
/// used.
fn encode_body(body: PgBody, w: &mut Writer) -> Bytes {
    match body {
        PgBody::QueryInfo => w.u8(1),
        PgBody::QueryLog { since } => put(w, 2, &since),
        PgBody::Notify { info, past, owed } => put(w, 3, &(*info, (past, owed))),
        PgBody::Log { info, log, missing } => put(w, 4, &(*info, (log, missing))),
        PgBody::Activate { info, log, backfill, past } => {
            put(w, 5, &(*info, (log, (backfill as u8, past))));
        }
        PgBody::Activated { lease_ms } => put(w, 6, &lease_ms),
        PgBody::History { history } => put(w, 7, &history),
        PgBody::RepOp(op) => {
            let RepOp { txn_head, payload, prev, trim_to, coded } = *op;
            let head = RepOpHead { txn_head, prev, trim_to };
            match coded {
                None => put(w, 8, &head),
                Some(coded) => put(w, 43, &(head, *coded)),
            }
            return payload;
        }
        PgBody::RepOpAck { version, others } => put(w, 9, &(version, others)),
        PgBody::Pull { wants } => put(w, 32, &wants),
        PgBody::Push(pushes) => put(w, 33, &pushes),
        PgBody::PushAck { objects } => put(w, 34, &objects),
        PgBody::PullRefused { object, need } => put(w, 13, &(object, need)),
        PgBody::BackfillRange { begin, end, objects } => put(w, 14, &(begin, (end, objects))),
        PgBody::BackfillWants { end, objects } => put(w, 15, &(end, objects)),
        PgBody::BackfillProgress { last_backfill, sums } => put(w, 16, &(last_backfill, *sums)),
        PgBody::BackfillAck { last_backfill } => put(w, 17, &last_backfill),
        PgBody::Remove => w.u8(18),
        PgBody::BackfillReserve { id, priority, bytes } => put(w, 35, &(id, (priority, bytes))),
        PgBody::BackfillGrant { id, granted } => put(w, 36, &(id, granted)),
        PgBody::BackfillRelease => w.u8(37),
        PgBody::OutOfStep => w.u8(38),
        PgBody::Stage { id, hash, at, data } => {
            put(w, 39, &(id, (hash, at)));
            return data;
        }
        PgBody::Staged { id, upto } => put(w, 40, &(id, upto)),
        PgBody::StageRefused { id } => put(w, 41, &id),
        PgBody::Unstage { id } => put(w, 42, &id),
        PgBody::CopyRead(ask) => put(w, 19, &*ask),
        PgBody::ShardRead(ask) => put(w, 44, &*ask),
        PgBody::ShardPart { id, place, result, data } => {
            put(w, 45, &(id, (place, result)));
            return data;
        }
        PgBody::Settled { version } => put(w, 46, &version),
        PgBody::Newer { object, version } => put(w, 47, &(object, version)),
        PgBody::Spoiled { object } => put(w, 48, &object),
        PgBody::Room { bytes } => put(w, 21, &bytes),
        PgBody::Damaged { object } => put(w, 22, &object),
        PgBody::ScrubReserve => w.u8(23),
        PgBody::ScrubGrant { granted } => put(w, 24, &granted),
        PgBody::ScrubRelease => w.u8(25),
        PgBody::ScrubRead(ask) => put(w, 26, &*ask),
        PgBody::ScrubMap(part) => put(w, 27, &*part),
        PgBody::ScrubRemove { object, version } => put(w, 28, &(object, version)),
        PgBody::CopyPart { id, result, user_version, data } => {
            put(w, 20, &(id, (result, user_version)));
            return data;
        }
    }
    Bytes::new()
}

fn put<T: Encode>(w: &mut Writer, kind: u8, content: &T) {
    w.u8(kind);
    content.encode(w);
}

fn decode_body(r: &mut Reader, data: &Bytes) -> Result<PgBody, DecodeError> {
    Ok(match r.u8()? {
        1 => PgBody::QueryInfo,
        2 => PgBody::QueryLog { since: Eversion::decode(r)? },
        3 => PgBody::Notify {
            info: Box::new(PgInfo::decode(r)?),
            past: PastIntervals::decode(r)?,
            owed: Vec::decode(r)?,
        },
        4 => PgBody::Log {
            info: Box::new(PgInfo::decode(r)?),
            log: LogPart::decode(r)?,
            missing: Vec::decode(r)?,
        },
        5 => PgBody::Activate {
            info: Box::new(PgInfo::decode(r)?),
            log: LogPart::decode(r)?,
            backfill: match r.u8()? {
                0 => BackfillStart::Keep,
                1 => BackfillStart::Restart,
                v => return Err(DecodeError::Invalid { what: "backfill start", value: v.into() }),
            },
            past: PastIntervals::decode(r)?,
        },
        6 => PgBody::Activated { lease_ms: r.u32()? },
        7 => PgBody::History { history: PgHistory::decode(r)? },
        8 => {
            let RepOpHead { txn_head, prev, trim_to } = RepOpHead::decode(r)?;
            PgBody::RepOp(Box::new(RepOp { txn_head, payload: data.clone(), prev, trim_to, coded: None }))
        }
        9 => PgBody::RepOpAck { version: Eversion::decode(r)?, others: Vec::decode(r)? },
        13 => PgBody::PullRefused { object: HObject::decode(r)?, need: Eversion::decode(r)? },
        14 => PgBody::BackfillRange {
            begin: HObject::decode(r)?,
            end: HObject::decode(r)?,
            objects: Vec::decode(r)?,
        },
        15 => PgBody::BackfillWants { end: HObject::decode(r)?, objects: Vec::decode(r)? },
        16 => PgBody::BackfillProgress {
            last_backfill: HObject::decode(r)?,
            sums: Box::new(PgSums::decode(r)?),
        },
        17 => PgBody::BackfillAck { last_backfill: HObject::decode(r)? },
        18 => PgBody::Remove,
        19 => PgBody::CopyRead(Box::new(CopyAsk::decode(r)?)),
        20 => PgBody::CopyPart {
            id: r.u64()?,
            result: i32::decode(r)?,
            user_version: r.u64()?,
            data: data.clone(),
        },
        21 => PgBody::Room { bytes: r.u64()? },
        22 => PgBody::Damaged { object: HObject::decode(r)? },
        23 => PgBody::ScrubReserve,
        24 => PgBody::ScrubGrant { granted: bool::decode(r)? },
        25 => PgBody::ScrubRelease,
        26 => PgBody::ScrubRead(Box::new(ScrubAsk::decode(r)?)),
        27 => PgBody::ScrubMap(Box::new(ScrubPart::decode(r)?)),
        28 => PgBody::ScrubRemove { object: HObject::decode(r)?, version: Eversion::decode(r)? },
        kind @ 39..=48 => decode_later(kind, r, data)?,
        32 => PgBody::Pull { wants: Vec::decode(r)? },
        33 => PgBody::Push(Vec::decode(r)?),
        34 => PgBody::PushAck { objects: Vec::decode(r)? },
        35 => PgBody::BackfillReserve { id: r.u64()?, priority: r.u8()?, bytes: r.u64()? },
        36 => PgBody::BackfillGrant { id: r.u64()?, granted: bool::decode(r)? },
        37 => PgBody::BackfillRelease,
        38 => PgBody::OutOfStep,
        v => return Err(DecodeError::Invalid { what: "pg message kind", value: v.into() }),
    })
}

/// What is said about pieces of large writes, and in erasure-coded PGs alone.
fn decode_later(kind: u8, r: &mut Reader, data: &Bytes) -> Result<PgBody, DecodeError> {
    Ok(match kind {
        39..=42 => return decode_staging(kind, r, data),
        43 => {
            let (RepOpHead { txn_head, prev, trim_to }, coded) = Decode::decode(r)?;
            let coded = Some(Box::new(coded));
            PgBody::RepOp(Box::new(RepOp { txn_head, payload: data.clone(), prev, trim_to, coded }))
        }
        44 => PgBody::ShardRead(Box::new(ShardAsk::decode(r)?)),
        46 => PgBody::Settled { version: Eversion::decode(r)? },
        47 => PgBody::Newer { object: HObject::decode(r)?, version: Eversion::decode(r)? },
        48 => PgBody::Spoiled { object: HObject::decode(r)? },
        _ => {
            let (id, (place, result)) = Decode::decode(r)?;
            PgBody::ShardPart { id, place, result, data: data.clone() }
        }
    })
}

/// What is said about pieces of large writes.
fn decode_staging(kind: u8, r: &mut Reader, data: &Bytes) -> Result<PgBody, DecodeError> {
    let id = r.u64()?;
    Ok(match kind {
        39 => PgBody::Stage { id, hash: r.u32()?, at: r.u64()?, data: data.clone() },
        40 => PgBody::Staged { id, upto: r.u64()? },
        41 => PgBody::StageRefused { id },
        _ => PgBody::Unstage { id },
    })
}

#[cfg(test)]
mod tests {
    use types::{OsdId, PgId, PoolId};

    use super::*;
    use crate::push::{Base, Cursor, ObjectName};

    fn pieces(o: &HObject, v: Eversion) -> (Want, ObjectPush) {
        let attrs = Some(Bytes::from_static(b"attr"));
        let next = Cursor { attrs, headed: true, data: 7, omap: Some(Bytes::from_static(b"key")) };
        let base = Some(Base { version: v, ranges: vec![(0, 4096)], omap: true });
        let push = ObjectPush {
            object: ObjectName(o.clone()),
            version: v,
            size: 3,
            base: base.clone(),
            next: Some(next.clone()),
            ..ObjectPush::default()
        };
        (Want { object: o.clone(), need: v, base, from: next, max_bytes: 9 }, push)
    }

    fn copy_ask(object: HObject) -> CopyAsk {
        CopyAsk {
            from: SpgId::replicated(PgId::new(PoolId(1), 2)),
            id: 9,
            object,
            version: 3,
            flags: 4,
            cursor: CopyCursor { data_offset: 8, ..CopyCursor::default() },
            max: 5,
        }
    }

    fn coded_bodies() -> Vec<PgBody> {
        let (v, o) = (Eversion::new(Epoch(3), 4), HObject { name: "o".into(), ..HObject::min() });
        let data = Bytes::from_static(b"add");
        let add = Add { object: o.clone(), from: o.clone(), offset: 4096, data: data.clone() };
        let coded = Some(Box::new(CodedPart { adds: vec![add], kept_to: v }));
        let op = RepOp { txn_head: data.clone(), payload: data.clone(), prev: v, trim_to: v, coded };
        let ask = ShardAsk { id: 9, place: 2, object: o.clone(), version: v, offset: 4096, len: 7 };
        vec![
            PgBody::RepOp(Box::new(op)),
            PgBody::ShardRead(Box::new(ask)),
            PgBody::ShardPart { id: 9, place: 2, result: -116, data },
            PgBody::Settled { version: v },
            PgBody::Newer { object: o.clone(), version: v },
            PgBody::Spoiled { object: o },
        ]
    }

    fn bodies() -> Vec<PgBody> {
        let info = Box::new(PgInfo::new(PgId::new(PoolId(1), 2)));
        let pgid = SpgId::replicated(PgId::new(PoolId(1), 3));
        let v = Eversion::new(Epoch(3), 4);
        let o = HObject { name: "o".into(), ..HObject::min() };
        let (log, past) = (LogPart::default(), PastIntervals::default());
        let rep = RepOp {
            txn_head: Bytes::from_static(b"head"),
            payload: Bytes::from_static(b"payload"),
            prev: v,
            trim_to: v,
            coded: None,
        };
        let (want, push) = pieces(&o, v);
        let item = MissingItem { need: v, have: Eversion::ZERO };
        let owed = vec![(OsdId(3), 16_000), (OsdId(5), 0)];
        vec![
            PgBody::QueryInfo,
            PgBody::QueryLog { since: v },
            PgBody::Notify { info: info.clone(), past: past.clone(), owed },
            PgBody::Log { info: info.clone(), log: log.clone(), missing: vec![(o.clone(), item)] },
            PgBody::Activate { info, log, backfill: BackfillStart::Restart, past },
            PgBody::Activated { lease_ms: 16_000 },
            PgBody::History { history: PgHistory::default() },
            PgBody::RepOp(Box::new(rep)),
            PgBody::RepOpAck {
                version: v,
                others: vec![RepAck { pgid, from: -1, interval: Epoch(5), version: v }],
            },
            PgBody::Pull { wants: vec![want] },
            PgBody::PushAck { objects: vec![push.stored(), push.stored()] },
            PgBody::Push(vec![push.clone(), push]),
            PgBody::PullRefused { object: o.clone(), need: v },
            PgBody::BackfillRange { begin: HObject::min(), end: o.clone(), objects: vec![(o.clone(), v)] },
            PgBody::BackfillWants { end: HObject::max(), objects: vec![o.clone()] },
            PgBody::BackfillProgress { last_backfill: o.clone(), sums: Box::default() },
            PgBody::BackfillAck { last_backfill: o.clone() },
            PgBody::BackfillReserve { id: 1, priority: 140, bytes: 3 },
            PgBody::BackfillGrant { id: 1, granted: true },
            PgBody::BackfillRelease,
            PgBody::OutOfStep,
            PgBody::Remove,
            PgBody::Room { bytes: 77 },
            PgBody::Damaged { object: o.clone() },
            PgBody::ScrubReserve,
            PgBody::ScrubGrant { granted: true },
            PgBody::ScrubRelease,
            PgBody::ScrubRead(Box::new(ScrubAsk {
                id: 3,
                begin: HObject::min(),
                end: o.clone(),
                deep: Some(crate::pg::DeepAsk { stride: 7, from: Default::default(), seed: 3 }),
            })),
            PgBody::ScrubMap(Box::new(ScrubPart {
                id: 3,
                objects: vec![(o.clone(), Default::default())],
                more: Some(Default::default()),
                failed: Some("why".into()),
            })),
            PgBody::ScrubRemove { object: o.clone(), version: v },
            PgBody::CopyRead(Box::new(copy_ask(o))),
            PgBody::CopyPart { id: 9, result: -2, user_version: 7, data: Bytes::from_static(b"piece") },
            PgBody::Stage { id: 9, hash: 4, at: 8192, data: Bytes::from_static(b"piece") },
            PgBody::Staged { id: 9, upto: 12288 },
            PgBody::StageRefused { id: 9 },
            PgBody::Unstage { id: 9 },
        ]
    }

    /// A session repeats what its peer refuses for ever, so no front may be too long.
    #[test]
    fn a_long_body_leaves_the_front_short() {
        let pgid = SpgId::replicated(PgId::new(PoolId(1), 2));
        let long = Bytes::from(vec![7; 17 << 20]);
        let o = HObject { name: "o".into(), ..HObject::min() };
        let v = Eversion::new(Epoch(3), 4);
        let push = ObjectPush { omap: vec![(Bytes::from_static(b"k"), long.clone())], ..pieces(&o, v).1 };
        for payload in [Bytes::new(), long.clone()] {
            let op = RepOp { txn_head: long.clone(), payload, prev: v, trim_to: v, coded: None };
            for body in [PgBody::RepOp(Box::new(op)), PgBody::Push(vec![push.clone()])] {
                let sent = PgMessage { pgid, from: -1, epoch: Epoch(9), interval: Epoch(7), body };
                let msg = sent.clone().into_message().expect("short enough");
                assert_eq!(PgMessage::from_message(&msg), Some(Ok(sent)));
                let Message::Unknown(wire) = msg else { panic!("not our own number") };
                assert!(wire.front.len() < 101 && wire.middle.len() == 8, "{}", wire.front.len());
                for cut in [
                    WireMessage { data: wire.data.slice(..9 << 20), ..wire.clone() },
                    WireMessage { middle: Bytes::from(vec![255; 8]), ..wire.clone() },
                    WireMessage { middle: wire.middle.slice(..7), ..wire },
                ] {
                    assert!(matches!(PgMessage::from_message(&Message::Unknown(cut)), Some(Err(_))));
                }
            }
        }
    }

    #[test]
    fn a_full_log_with_long_names_goes_in_one_message() {
        let pgid = SpgId::replicated(PgId::new(PoolId(1), 2));
        let info = PgInfo::new(pgid.pgid);
        let object = |i: u64| HObject { name: format!("{i:01024}").into(), ..HObject::min() };
        let at = |i: u64| Eversion::new(Epoch(3), i);
        let item = |i: u64| (object(i), MissingItem { need: at(i), have: Eversion::ZERO });
        let entry = |i: u64| crate::LogEntry {
            kind: crate::EntryKind::Modify,
            object: object(i),
            version: at(i),
            prior_version: Eversion::ZERO,
            user_version: i,
            reqid: Default::default(),
            mtime: Default::default(),
            return_code: 0,
            op_returns: Vec::new(),
            dirty: crate::dirty::Dirty::ALL,
        };
        let mut log = LogPart { head: at(10_000), whole: true, ..LogPart::default() };
        log.entries = (1..=10_000).map(entry).collect();
        let body = PgBody::Log { info: Box::new(info), log, missing: (1..=10_000).map(item).collect() };
        let sent = PgMessage { pgid, from: -1, epoch: Epoch(9), interval: Epoch(7), body };
        let msg = sent.clone().into_message().expect("short enough");
        assert_eq!(PgMessage::from_message(&msg), Some(Ok(sent)));
        let Message::Unknown(wire) = msg else { panic!("not our own number") };
        assert!(wire.front.len() < 101 && wire.data.len() > 20 << 20, "{}", wire.data.len());
    }

    #[test]
    fn what_no_reader_takes_is_not_sent() {
        let pgid = SpgId::replicated(PgId::new(PoolId(1), 2));
        let data = Bytes::from(vec![0; MESSAGE_MAX + 1]);
        let part = PgBody::CopyPart { id: 3, result: 0, user_version: 7, data: data.clone() };
        let refused = PgBody::CopyPart { id: 3, result: -7, user_version: 0, data: Bytes::new() };
        let instead = Some(Box::new(refused));
        let zero = Eversion::ZERO;
        let op =
            RepOp { txn_head: Bytes::new(), payload: data.clone(), prev: zero, trim_to: zero, coded: None };
        for (body, instead) in [(part, instead), (PgBody::RepOp(Box::new(op)), None)] {
            let msg = PgMessage { pgid, from: -1, epoch: Epoch(9), interval: Epoch(7), body };
            assert_eq!(msg.into_message(), Err(TooLong { bytes: data.len(), instead }));
        }
    }

    #[test]
    fn every_kind_comes_back_and_no_truncation_panics() {
        for body in bodies().into_iter().chain(coded_bodies()) {
            let pgid = SpgId::replicated(PgId::new(PoolId(1), 2));
            let sent = PgMessage { pgid, from: -1, epoch: Epoch(9), interval: Epoch(7), body };
            let msg = sent.clone().into_message().expect("short enough");
            assert_eq!(PgMessage::from_message(&msg), Some(Ok(sent)));
            let Message::Unknown(wire) = msg else { panic!("not our own number") };
            for n in 0..wire.front.len() {
                let cut = WireMessage { front: wire.front.slice(..n), ..wire.clone() };
                assert!(matches!(PgMessage::from_message(&Message::Unknown(cut)), Some(Err(_))), "{n}");
            }
        }
    }
}
