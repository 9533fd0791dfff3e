//! Requests that copy from another object: the source is read from its primary, piece by piece, before the request runs.
//!
//! ```text
//! client_op ─► start_copy ─► wait_for_room ─► (OsdCore::fetch_next) ─► fetch_piece ─► ask ─►
//!     (CopyRead to the source's primary, and its CopyPart) ─► copy_part ─► wait_for_room ... ─► ready
//! ```
//! Invariants:
//! 1. While a copy fetches its source, other requests for its object wait behind it, except `CopyRead`s of
//!    other copies: two objects that are copied from each other must not wait for each other.
//! 2. Every `CopyRead` has a number of its own. An answer with an older number is dropped. A `CopyRead` is
//!    sent again, to whichever OSD is the source's primary then, until it is answered.
//! 3. The bytes that a copy has fetched, and the piece that it has asked for, are on its client's account. It
//!    asks for a piece only when `osd::fetch` finds room for it.
//!
//! Source: PrimaryLogPG::start_copy, _copy_some, process_copy_chunk.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use messages::osd::{CopyCursor, CopyFromArgs, CopySource, Op, OpCode, copy_from_flags, flags};
use types::{
    ConnId, EntityAddr, EntityName, Epoch, Errno, HObject, Name, OsdId, PgId, PgShard, ReqId, SpgId,
};

use super::Pg;
use super::client::ClientOp;
use super::replicate::WRITE_MAX;
use crate::exec::{Copied, Sources, classify, work};
use crate::osd::account::Fetched;
use crate::osd::counters::Times;
use crate::osd::shared::Shared;
use crate::peer::{CopyAsk, PgBody};

/// Bytes of one piece: the source's primary reads it in one go, and others wait meanwhile. An object of the
/// usual size comes as one. Ceph's pieces have 8 MiB. Source: osd_copyfrom_max_chunk.
pub(crate) const PIECE: u64 = 4 << 20;
/// How often a source is fetched anew that changed between two pieces.
const AGAIN: u32 = 16;

/// A request that waits for what it copies.
#[derive(Debug)]
pub(crate) struct Copying {
    op: ClientOp,
    pub waiters: VecDeque<ClientOp>,
    fetched: Sources,
    /// Sources that have not been asked for yet.
    todo: VecDeque<Source>,
    current: Option<Fetch>,
    /// Counts up over the OSD's copies: older ones have lower numbers.
    pub number: u64,
}

/// An object to copy, for the operation at a place in the request.
#[derive(Debug)]
struct Source {
    at: u32,
    object: HObject,
    /// The user version that the source must have; 0 for any.
    version: u64,
    flags: u32,
}

#[derive(Debug)]
struct Fetch {
    source: Source,
    /// The number of the `CopyRead` that is unanswered; `None` while the copy waits for room to send it.
    id: Option<u64>,
    cursor: CopyCursor,
    copied: Copied,
    /// How often the source had changed meanwhile.
    again: u32,
}

impl Fetch {
    /// Whether the source, of which the client wants any version, was written since its first piece came:
    /// then it is fetched from its beginning.
    fn begins_anew(&mut self, e: Errno) -> bool {
        let has_changed =
            matches!(e, Errno::ERANGE | Errno::EOVERFLOW) && self.cursor != CopyCursor::default();
        if self.source.version > 0 || !has_changed || self.again >= AGAIN {
            return false;
        }
        self.again += 1;
        (self.cursor, self.copied) = Default::default();
        true
    }
}

/// The PG, on another OSD, that asked for a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyAsker {
    pub osd: OsdId,
    pub pgid: SpgId,
    pub interval: Epoch,
    pub id: u64,
}

impl Copying {
    /// Bytes of all that was fetched so far.
    fn bytes(&self) -> u64 {
        let fetched = self.fetched.values().flatten();
        fetched.chain(self.current.iter().map(|f| &f.copied)).map(Copied::bytes).sum()
    }

    /// Whether it needs a piece and has no room yet to ask for it.
    pub fn waits_for_room(&self) -> bool {
        self.current.as_ref().is_some_and(|f| f.id.is_none())
    }

    pub fn conn(&self) -> ConnId {
        self.op.conn
    }

    /// Bytes on its client's account.
    pub fn held_bytes(&self) -> u64 {
        self.op.fetched.as_ref().map_or(0, |f| f.bytes())
    }

    /// Charges its client with the bytes that are here and the piece that was asked for.
    fn charge(&self) {
        let asked = self.current.as_ref().is_some_and(|f| f.id.is_some());
        if let Some(fetched) = &self.op.fetched {
            fetched.set(self.bytes() + if asked { PIECE } else { 0 });
        }
    }

    /// The request and those that wait behind it, in the order in which they came.
    pub fn into_requests(self) -> impl Iterator<Item = ClientOp> {
        std::iter::once(self.op).chain(self.waiters)
    }
}

impl ClientOp {
    /// Whether something must be fetched before this request can run.
    pub fn must_copy(&self) -> bool {
        let copies = |code| matches!(code, OpCode::COPY_FROM | OpCode::COPY_FROM2);
        self.sources.is_none() && self.msg.ops.iter().any(|o| copies(o.code))
    }
}

impl Pg {
    /// Begins to fetch the sources of a request, which runs once all are here.
    pub fn start_copy(&mut self, mut op: ClientOp, head: HObject, cx: &mut Shared) {
        cx.last_copy += 1;
        cx.counters.copies += 1;
        let client = cx.sessions.get(&op.conn).map(|s| &s.account);
        op.fetched = op.charge.as_ref().zip(client).map(|(charge, of)| Arc::new(Fetched::of(charge, of)));
        let mut copying = Copying {
            fetched: Sources::new(),
            todo: VecDeque::new(),
            current: None,
            waiters: VecDeque::new(),
            number: cx.last_copy,
            op,
        };
        for (at, operation) in (0..).zip(&copying.op.msg.ops) {
            let (from, args) = match operation.parse() {
                Ok(Op::CopyFrom { from, args } | Op::CopyFrom2 { from, args, .. }) => (from, args),
                // Operations whose arguments do not decode answer that themselves.
                _ => continue,
            };
            match source(&head, at, operation.code, &from, &args, cx) {
                Ok(source) => copying.todo.push_back(source),
                Err(e) => {
                    copying.fetched.insert(at, Err(e));
                }
            }
        }
        self.copies.insert(head.clone(), copying);
        self.next_source(&head, cx);
    }

    /// Asks for the next source, or lets the request run when there is none left.
    fn next_source(&mut self, head: &HObject, cx: &mut Shared) {
        let Some(copying) = self.copies.get_mut(head) else { return };
        if let Some(source) = copying.todo.pop_front() {
            let copied = Copied { user_version: source.version, ..Copied::default() };
            copying.current =
                Some(Fetch { source, id: None, cursor: CopyCursor::default(), copied, again: 0 });
            return self.wait_for_room_to_fetch(head, cx);
        }
        copying.charge();
        if let Some(Copying { mut op, waiters, fetched, .. }) = self.copies.remove(head) {
            op.sources = Some(Box::new(fetched));
            self.let_go([op].into_iter().chain(waiters), cx);
        }
    }

    /// Makes the copy wait until `osd::fetch` finds room for its next piece.
    fn wait_for_room_to_fetch(&mut self, head: &HObject, cx: &mut Shared) {
        let Some(copying) = self.copies.get_mut(head) else { return };
        if let Some(fetch) = &mut copying.current {
            fetch.id = None;
        }
        copying.charge();
        cx.copies_wait = true;
    }

    /// Asks for the piece that the copy waits for: there is room for it.
    pub fn fetch_piece(&mut self, head: &HObject, cx: &mut Shared) {
        self.last_copy_id += 1;
        let Some(copying) = self.copies.get_mut(head) else { return };
        if let Some(fetch) = &mut copying.current {
            fetch.id = Some(self.last_copy_id);
        }
        copying.charge();
        self.ask(head, cx);
    }

    /// Drops the copies of a connection that has ended; requests that waited behind them go on.
    pub fn drop_copies_of(&mut self, conn: ConnId, cx: &mut Shared) {
        let theirs = self.copies.iter().filter(|(_, c)| c.conn() == conn).map(|(head, _)| head.clone());
        for head in theirs.collect::<Vec<_>>() {
            let waiters = self.copies.remove(&head).map(|c| c.waiters).unwrap_or_default();
            self.let_go(waiters, cx);
        }
    }

    fn ask(&self, head: &HObject, cx: &mut Shared) {
        let Some(fetch) = self.copies.get(head).and_then(|c| c.current.as_ref()) else { return };
        let (object, Some(id)) = (&fetch.source.object, fetch.id) else { return };
        // Without pool or primary the question waits for another map; a pool that is gone is answered below.
        let Some(pgid) = cx.map.raw_pg_to_pg(PgId::new(object.pool, object.hash)) else { return };
        let Some((primary, pgid)) = cx.map.primary_shard(pgid) else { return };
        let ask = CopyAsk {
            from: self.id,
            id,
            object: object.clone(),
            version: fetch.copied.user_version,
            flags: fetch.source.flags,
            cursor: fetch.cursor.clone(),
            max: PIECE,
        };
        let to = PgShard { osd: OsdId(primary), shard: pgid.shard };
        cx.send_pg(to, pgid, self.interval(), PgBody::CopyRead(Box::new(ask)));
    }

    /// Sends every unanswered `CopyRead` again. A source whose pool is gone counts as an object that does not
    /// exist.
    pub fn repeat_copies(&mut self, cx: &mut Shared) {
        let heads: Vec<HObject> = self.copies.keys().cloned().collect();
        for head in heads {
            let source = self.copies.get(&head).and_then(|c| c.current.as_ref()).map(|f| &f.source.object);
            match source.map(|o| cx.map.pool(o.pool).is_some()) {
                Some(false) => self.fetched(&head, Err(Errno::ENOENT), cx),
                _ => self.ask(&head, cx),
            }
        }
    }

    /// Takes the answer of a source's primary to the `CopyRead` with this number.
    pub fn copy_part(&mut self, id: u64, result: i32, user_version: u64, data: Bytes, cx: &mut Shared) {
        let asked = |c: &Copying| c.current.as_ref().is_some_and(|f| f.id == Some(id));
        let Some(head) = self.copies.iter().find(|(_, c)| asked(c)).map(|(head, _)| head.clone()) else {
            return;
        };
        let Some(copying) = self.copies.get_mut(&head) else { return };
        let Some(fetch) = &mut copying.current else { return };
        if result < 0 && fetch.begins_anew(Errno(-result)) {
            return self.wait_for_room_to_fetch(&head, cx);
        }
        if result < 0 {
            return self.fetched(&head, Err(Errno(-result)), cx);
        }
        fetch.copied.user_version = user_version;
        let next = match fetch.copied.add(data) {
            Err(_) => return self.fetched(&head, Err(Errno::EIO), cx),
            Ok(_) if copied_too_much(&fetch.copied, cx) => {
                return self.fetched(&head, Err(Errno::EFBIG), cx);
            }
            Ok(next) => next,
        };
        // The first piece tells how much data there is to come.
        let to_come = fetch.copied.data_to_come();
        let stuck = next == fetch.cursor;
        fetch.cursor = next;
        if copying.bytes().saturating_add(to_come) > most(cx) {
            return self.refuse_copy(&head, cx);
        }
        let Some(fetch) = self.copies.get_mut(&head).and_then(|c| c.current.as_mut()) else { return };
        if fetch.cursor.is_complete() {
            let copied = std::mem::take(&mut fetch.copied);
            self.fetched(&head, Ok(copied), cx);
        } else if stuck {
            self.fetched(&head, Err(Errno::EFBIG), cx);
        } else {
            self.wait_for_room_to_fetch(&head, cx);
        }
    }

    /// Ends a copy whose sources are too large together with E2BIG: nothing more is fetched, and nothing of
    /// what was fetched is used.
    fn refuse_copy(&mut self, head: &HObject, cx: &mut Shared) {
        let Some(copying) = self.copies.get_mut(head) else { return };
        copying.todo.clear();
        copying.fetched.values_mut().for_each(|f| *f = Err(Errno::E2BIG));
        self.fetched(head, Err(Errno::E2BIG), cx);
    }

    fn fetched(&mut self, head: &HObject, outcome: Result<Copied, Errno>, cx: &mut Shared) {
        let Some(copying) = self.copies.get_mut(head) else { return };
        if let Some(fetch) = copying.current.take() {
            copying.fetched.insert(fetch.source.at, outcome);
        }
        self.next_source(head, cx);
    }

    /// Reads a piece of one of our objects for the primary of another PG, which copies it.
    pub fn copy_read(&mut self, from: PgShard, interval: Epoch, ask: CopyAsk, cx: &mut Shared) {
        let mut ops = Vec::new();
        if ask.version > 0 {
            ops.push(Op::AssertVer { version: ask.version }.into());
        }
        ops.push(Op::CopyGet { max: ask.max, cursor: ask.cursor }.into());
        let mut op = ClientOp::internal(self.id, &ask.object, EntityName::osd(from.osd.0), ops, cx);
        op.msg.flags = ask.flags | flags::READ;
        op.asked_by = Some(CopyAsker { osd: from.osd, pgid: ask.from, interval, id: ask.id });
        (op.addr, op.reqid) = (EntityAddr::default(), ReqId::default());
        op.times = Times { came: cx.now_ns, begun: cx.now_ns, ran: cx.now_ns };
        match classify(&op.msg.ops, op.msg.flags) {
            Ok(kind) => op.kind = kind,
            Err(e) => return op.refuse(e, cx),
        }
        self.client_op(cx, op);
    }
}

/// Whether a source is larger than an object can be, or than one write can make of it.
fn copied_too_much(copied: &Copied, cx: &Shared) -> bool {
    let bytes = copied.bytes().saturating_add(copied.data_to_come());
    copied.size() > cx.config.max_object_size || bytes > WRITE_MAX as u64
}

/// Bytes that the sources of one request may have together: no write is larger.
fn most(cx: &Shared) -> u64 {
    work::bytes(&cx.config).min(WRITE_MAX as u64)
}

/// The object that an operation copies from, checked.
fn source(
    head: &HObject,
    at: u32,
    code: OpCode,
    from: &CopySource,
    args: &CopyFromArgs,
    cx: &Shared,
) -> Result<Source, Errno> {
    use copy_from_flags as f;
    const KNOWN: u8 =
        f::FLUSH | f::IGNORE_OVERLAY | f::IGNORE_CACHE | f::MAP_SNAP_CLONE | f::RWORDERED | f::TRUNCATE_SEQ;
    if code == OpCode::COPY_FROM2 && args.flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let locator = &from.locator;
    let pool = cx.map.pool(locator.pool).ok_or(Errno::ENOENT)?;
    let key = if locator.key.is_empty() { &from.object } else { &locator.key };
    let hash = match u32::try_from(locator.hash) {
        Ok(hash) => hash,
        Err(_) => pool.hash_key(key, &locator.nspace),
    };
    let object = HObject {
        pool: locator.pool,
        hash,
        nspace: locator.nspace.clone(),
        // A key that is the name says nothing.
        key: if locator.key == from.object { Name::new() } else { locator.key.clone() },
        name: from.object.clone(),
        snap: args.snap,
        max: false,
    };
    if object == *head {
        return Err(Errno::EINVAL);
    }
    let mut request = 0;
    for (bit, flag) in [
        (f::FLUSH, flags::FLUSH),
        (f::IGNORE_CACHE, flags::IGNORE_CACHE),
        (f::IGNORE_OVERLAY, flags::IGNORE_OVERLAY),
        (f::MAP_SNAP_CLONE, flags::MAP_SNAP_CLONE),
        (f::RWORDERED, flags::RWORDERED),
    ] {
        request |= if args.flags & bit != 0 { flag } else { 0 };
    }
    Ok(Source { at, object, version: args.version, flags: request })
}
