//! A client that behaves as librados does: follows the map, sends to the primary, sends again when the primary changes;
//! and a naive model of what each object may hold.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use maps::OsdMap;
use messages::Message;
use messages::common::MCommandReply;
use messages::osd::{
    CopyFromArgs, CopySource, MOsdBackoff, MOsdOp, MOsdOpReply, Op, OsdOp, backoff_op, flags, op_flags,
};
use types::{Epoch, HObject, ObjectLocator, PgId, PoolId, ReqId, SnapContext, SnapId, SpgId, Utime};

/// What an object may hold: the last acknowledged content, or that of a write that is under way.
#[derive(Debug, Default, Clone)]
pub struct Expected {
    pub acked: Option<Vec<u8>>,
    pub open: Vec<Option<Vec<u8>>>,
}

impl Expected {
    pub fn allows(&self, found: Option<&[u8]>) -> bool {
        let same = |e: &Option<Vec<u8>>| e.as_deref() == found;
        same(&self.acked) || self.open.iter().any(same)
    }
}

#[derive(Debug, Clone)]
enum Kind {
    Write(Option<Vec<u8>>),
    CreateExclusive,
    Read,
    /// From an offset on, so many bytes.
    ReadPart(usize, usize),
    /// A change that leaves the data as it is, or of which the model knows nothing.
    Change,
    /// Something of the PG.
    List,
    /// Of what is not there, ENOENT; of itself, EINVAL.
    Copy(Option<Vec<u8>>),
}

struct Request {
    name: String,
    kind: Kind,
    msg: MOsdOp,
    /// PG, primary with its shard, and PG count when it was sent. Source: OSDMap::primary_changed_broken.
    key: Option<(PgId, i32, i8, u32)>,
    attempts: i32,
}

/// What a request is sent for; see [`Request::key`].
fn key_of(map: &OsdMap, pgid: PgId) -> (PgId, i32, i8, u32) {
    let shard = map.primary_shard(pgid).map_or(SpgId::NO_SHARD, |(_, id)| id.shard);
    (pgid, map.pg_to_up_acting(pgid).acting_primary, shard, map.pools[&pgid.pool].pg_num)
}

/// Whether the request is of the backoff's PG and range.
fn covers(b: &MOsdBackoff, m: &MOsdOp) -> bool {
    m.pgid == b.pgid && (m.object == b.begin || (b.begin < m.object && m.object < b.end))
}

#[derive(Default)]
pub struct Client {
    pub model: BTreeMap<String, Expected>,
    open: BTreeMap<u64, Request>,
    /// Objects with a request under way: one at a time, so that the model stays simple.
    busy: BTreeSet<String>,
    next_tid: u64,
    pub replies: Vec<(u64, MOsdOpReply)>,
    /// Answers to commands.
    pub command_replies: Vec<MCommandReply>,
    pub acked: usize,
    /// The snapshot context of writes from now on.
    pub snapc: SnapContext,
    /// Requests wait while this is set.
    pub paused: bool,
    /// What OSDs told it not to send: by OSD and number, the PG and the range.
    pub backoffs: BTreeMap<(i32, u64), MOsdBackoff>,
    /// Acknowledgements that are to be sent.
    acks: Vec<(i32, Message)>,
    /// Backoffs heard of so far.
    pub blocked: usize,
    /// Requests may meet damaged data without another copy.
    pub damage_allowed: bool,
    /// Writes ask to be told when there is no space; they then change nothing.
    pub full_allowed: bool,
    /// Changes may be larger than a write can be; they then change nothing.
    pub too_large_allowed: bool,
    /// Set: it hears of maps from OSDs alone, as librados does, and this is the newest it heard of.
    pub told: Option<Epoch>,
}

impl Client {
    pub fn object(&self, map: &OsdMap, pool: PoolId, name: &str) -> HObject {
        let hash = map.pool(pool).unwrap().hash_key(name, "");
        HObject { pool, hash, name: name.into(), snap: SnapId::HEAD, ..HObject::min() }
    }

    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    pub fn is_busy(&self, name: &str) -> bool {
        self.busy.contains(name)
    }

    fn begin(
        &mut self,
        map: &OsdMap,
        pool: PoolId,
        name: &str,
        kind: Kind,
        ops: Vec<OsdOp>,
        flag: u32,
    ) -> u64 {
        assert!(self.busy.insert(name.into()), "{name} is busy");
        self.next_tid += 1;
        let told = if self.full_allowed && flag & flags::WRITE != 0 { flags::FULL_TRY } else { 0 };
        let msg = MOsdOp {
            pgid: SpgId::replicated(PgId::default()),
            epoch: map.epoch,
            flags: flag | flags::ONDISK | told,
            explicit_reqid: ReqId::default(),
            client_inc: 0,
            mtime: Utime::new(50_000, 0),
            object: self.object(map, pool, name),
            ops,
            snapc: self.snapc.clone(),
            retry_attempt: 0,
            features: 0,
        };
        self.open.insert(self.next_tid, Request { name: name.into(), kind, msg, key: None, attempts: 0 });
        self.next_tid
    }

    pub fn write(&mut self, map: &OsdMap, pool: PoolId, name: &str, content: Vec<u8>) -> u64 {
        let op = Op::WriteFull {
            extent: messages::osd::Extent::new(0, content.len() as u64),
            data: Bytes::from(content.clone()),
        };
        self.model.entry(name.into()).or_default().open.push(Some(content.clone()));
        self.begin(map, pool, name, Kind::Write(Some(content)), vec![op.into()], flags::WRITE)
    }

    /// Replaces a part of an object.
    pub fn patch(&mut self, map: &OsdMap, pool: PoolId, name: &str, offset: usize, part: &[u8]) -> u64 {
        let mut content = self.model.get(name).and_then(|e| e.acked.clone()).unwrap_or_default();
        content.resize(content.len().max(offset + part.len()), 0);
        content[offset..offset + part.len()].copy_from_slice(part);
        let extent = messages::osd::Extent::new(offset as u64, part.len() as u64);
        let op = Op::Write { extent, data: Bytes::copy_from_slice(part) };
        self.model.entry(name.into()).or_default().open.push(Some(content.clone()));
        self.begin(map, pool, name, Kind::Write(Some(content)), vec![op.into()], flags::WRITE)
    }

    /// Any change: of an object that the model knows, one that leaves its data as it is.
    pub fn change(&mut self, map: &OsdMap, pool: PoolId, name: &str, ops: Vec<Op>) -> u64 {
        self.begin(map, pool, name, Kind::Change, ops.into_iter().map(Into::into).collect(), flags::WRITE)
    }

    /// Replaces an object whole after a read of it, which waits for the writes before it.
    pub fn read_and_write(&mut self, map: &OsdMap, pool: PoolId, name: &str, content: &[u8]) -> u64 {
        let extent = messages::osd::Extent::new(0, content.len() as u64);
        let write = Op::WriteFull { extent, data: Bytes::copy_from_slice(content) };
        self.change(map, pool, name, vec![Op::Read(messages::osd::Extent::new(0, 0)), write])
    }

    pub fn remove(&mut self, map: &OsdMap, pool: PoolId, name: &str) -> u64 {
        self.model.entry(name.into()).or_default().open.push(None);
        self.begin(map, pool, name, Kind::Write(None), vec![Op::Delete.into()], flags::WRITE)
    }

    /// Makes an object what it was at a snapshot, where it held `content`.
    pub fn rollback(
        &mut self,
        map: &OsdMap,
        pool: PoolId,
        name: &str,
        snap: SnapId,
        content: Vec<u8>,
    ) -> u64 {
        self.model.entry(name.into()).or_default().open.push(Some(content.clone()));
        let ops = vec![Op::Rollback { snap }.into()];
        self.begin(map, pool, name, Kind::Write(Some(content)), ops, flags::WRITE)
    }

    /// Another request for the object may be sent while one is under way.
    pub fn goes_on(&mut self, name: &str) {
        self.busy.remove(name);
    }

    /// Copies `source`, which nothing is under way on, to `name`.
    pub fn copy(&mut self, map: &OsdMap, pool: PoolId, name: &str, source: &str) -> u64 {
        let content = self.model.get(source).and_then(|e| e.acked.clone());
        self.model.entry(name.into()).or_default().open.push(content.clone());
        let from = CopySource { object: source.into(), locator: ObjectLocator::pool(pool) };
        let op = Op::CopyFrom2 {
            from,
            args: CopyFromArgs { snap: SnapId::HEAD, ..Default::default() },
            truncation: None,
        };
        self.begin(map, pool, name, Kind::Copy(content), vec![op.into()], flags::WRITE)
    }

    pub fn create_exclusive(&mut self, map: &OsdMap, pool: PoolId, name: &str) -> u64 {
        self.model.entry(name.into()).or_default().open.push(Some(Vec::new()));
        let op = OsdOp { flags: op_flags::EXCL, ..Op::Create.into() };
        self.begin(map, pool, name, Kind::CreateExclusive, vec![op], flags::WRITE)
    }

    pub fn read(&mut self, map: &OsdMap, pool: PoolId, name: &str) -> u64 {
        let op: OsdOp = Op::Read(messages::osd::Extent::new(0, 0)).into();
        self.begin(map, pool, name, Kind::Read, vec![op], flags::READ)
    }

    pub fn read_part(
        &mut self,
        map: &OsdMap,
        pool: PoolId,
        name: &str,
        (offset, len): (usize, usize),
    ) -> u64 {
        let op: OsdOp = Op::Read(messages::osd::Extent::new(offset as u64, len as u64)).into();
        self.begin(map, pool, name, Kind::ReadPart(offset, len), vec![op], flags::READ)
    }

    /// Asks the PG of `name` what its newest scrub has found; the answer is in `replies`.
    pub fn list_scrub(&mut self, map: &OsdMap, pool: PoolId, name: &str, args: Vec<u8>) -> u64 {
        let code = messages::osd::OpCode::SCRUBLS;
        let op = OsdOp { code, indata: args.into(), ..Op::Delete.into() };
        self.begin(map, pool, name, Kind::List, vec![op], flags::READ | flags::PGOP)
    }

    /// Follows one map: requests whose PG or primary it changes must be sent again.
    pub fn saw(&mut self, map: &OsdMap) {
        for r in self.open.values_mut() {
            let pgid = map.raw_pg_to_pg(PgId::new(r.msg.object.pool, r.msg.object.hash)).unwrap();
            if r.key != Some(key_of(map, pgid)) {
                r.key = None;
            }
        }
    }

    /// What must be sent (again) now.
    pub fn outgoing(&mut self, map: &OsdMap) -> Vec<(i32, Message)> {
        if self.paused {
            return Vec::new();
        }
        let mut out = std::mem::take(&mut self.acks);
        let unsent: Vec<u64> = self.open.iter().filter(|(_, r)| r.key.is_none()).map(|(t, _)| *t).collect();
        for tid in unsent {
            let (to, msg) = self.send_now(map, tid);
            let r = self.open.get_mut(&tid).unwrap();
            let blocks = |((osd, _), b): (&(i32, u64), &MOsdBackoff)| *osd == to && covers(b, &r.msg);
            if to >= 0 && self.backoffs.iter().any(blocks) {
                // Sent for this map, and dropped: it goes out when the backoff ends.
                continue;
            }
            out.extend((to >= 0).then_some((to, msg)));
        }
        out
    }

    fn backoff(&mut self, from: i32, b: MOsdBackoff) {
        match b.op {
            backoff_op::BLOCK => {
                self.blocked += 1;
                let ack = MOsdBackoff { op: backoff_op::ACK_BLOCK, ..b.clone() };
                self.acks.push((from, Message::Unknown(Message::from(ack).into_wire(0))));
                self.backoffs.insert((from, b.id), b);
            }
            _ => {
                let told = self.backoffs.remove(&(from, b.id)).expect("a backoff that was told of");
                let held = self.open.values_mut().filter(|r| covers(&told, &r.msg));
                for r in held.filter(|r| r.key.is_some_and(|k| k.1 == from)) {
                    r.key = None;
                }
            }
        }
    }

    /// The request addressed by this map; -1 when the PG has no primary.
    pub fn send_now(&mut self, map: &OsdMap, tid: u64) -> (i32, Message) {
        let r = self.open.get_mut(&tid).unwrap();
        let pgid = map.raw_pg_to_pg(PgId::new(r.msg.object.pool, r.msg.object.hash)).unwrap();
        let primary = map.pg_to_up_acting(pgid).acting_primary;
        if primary >= 0 {
            r.key = Some(key_of(map, pgid));
            r.attempts += 1;
        }
        r.msg.pgid = map.primary_shard(pgid).map_or(SpgId::replicated(pgid), |(_, id)| id);
        r.msg.epoch = map.epoch;
        r.msg.retry_attempt = r.attempts - 1;
        (primary, Message::Unknown(Message::from(r.msg.clone()).into_wire(tid)))
    }

    /// Sends a finished or open request once more, as a client does whose reply was lost.
    pub fn resend(&self, tid: u64, msg: &MOsdOp) -> Message {
        Message::Unknown(Message::from(msg.clone()).into_wire(tid))
    }

    /// The session to an OSD is gone: what was sent there goes out again.
    pub fn session_lost(&mut self, osd: i32) {
        self.backoffs.retain(|(from, _), _| *from != osd);
        self.acks.retain(|(to, _)| *to != osd);
        for r in self.open.values_mut() {
            if r.key.is_some_and(|(_, primary, ..)| primary == osd) {
                r.key = None;
            }
        }
    }

    pub fn is_answered(&self, tid: u64) -> bool {
        self.replies.iter().any(|(answered, _)| *answered == tid)
    }

    pub fn was_sent(&self, tid: u64) -> bool {
        self.open.get(&tid).is_some_and(|r| r.attempts > 0)
    }

    pub fn message_of(&self, tid: u64) -> MOsdOp {
        self.open[&tid].msg.clone()
    }

    pub fn reply(&mut self, from: i32, msg: Message) {
        let Message::Unknown(wire) = msg else { return };
        let tid = wire.header.tid;
        let reply = match Message::decode(&wire).unwrap() {
            Message::OsdOpReply(reply) => reply,
            Message::OsdBackoff(b) => return self.backoff(from, b),
            Message::OsdMap(m) => {
                let newest = self.told.max(m.last());
                return self.told = self.told.and(newest);
            }
            Message::CommandReply(reply) => return self.command_replies.push(reply),
            _ => return,
        };
        self.replies.push((tid, *reply.clone()));
        let Some(r) = self.open.remove(&tid) else { return };
        self.busy.remove(&r.name);
        if self.damage_allowed && reply.result == types::Errno::EIO.neg() {
            return self.model.entry(r.name).or_default().open.clear();
        }
        match r.kind {
            Kind::Read => {
                let found = (reply.result >= 0).then(|| reply.ops[0].outdata.to_vec());
                let want = self.model.get(&r.name).cloned().unwrap_or_default();
                assert!(want.allows(found.as_deref()), "read of {}: {found:?} is none of {want:?}", r.name);
            }
            Kind::ReadPart(offset, len) => {
                let found = (reply.result >= 0).then(|| reply.ops[0].outdata.to_vec());
                let whole = self.model.get(&r.name).cloned().unwrap_or_default();
                let part = |all: &Vec<u8>| all[offset.min(all.len())..(offset + len).min(all.len())].to_vec();
                let want = Expected {
                    acked: whole.acked.as_ref().map(part),
                    open: whole.open.iter().map(|open| open.as_ref().map(part)).collect(),
                };
                assert!(want.allows(found.as_deref()), "{offset}+{len} of {}: {found:?}", r.name);
            }
            Kind::List => {}
            Kind::Change if self.too_large_allowed && reply.result == types::Errno::E2BIG.neg() => {}
            Kind::Change => assert!(reply.result >= -2, "a change answered {}", reply.result),
            Kind::Write(content) => {
                let expected = self.model.entry(r.name).or_default();
                if self.full_allowed && reply.result == types::Errno::ENOSPC.neg() {
                    return expected.open.clear();
                }
                let deleted_nothing = content.is_none() && expected.acked.is_none() && reply.result == -2;
                assert!(reply.result == 0 || deleted_nothing, "write answered {}", reply.result);
                assert!(reply.is_on_disk());
                *expected = Expected { acked: content, open: Vec::new() };
                self.acked += 1;
            }
            Kind::Copy(None) => {
                assert!(
                    reply.result == -2 || reply.result == -22,
                    "a copy of nothing answered {}",
                    reply.result
                );
                self.model.entry(r.name).or_default().open.clear();
            }
            Kind::Copy(content) => {
                assert_eq!(reply.result, 0);
                *self.model.entry(r.name).or_default() = Expected { acked: content, open: Vec::new() };
                self.acked += 1;
            }
            Kind::CreateExclusive => {
                assert_eq!(reply.result, 0, "a resent create must not see its own first run");
                *self.model.entry(r.name).or_default() =
                    Expected { acked: Some(Vec::new()), open: Vec::new() };
                self.acked += 1;
            }
        }
    }
}
