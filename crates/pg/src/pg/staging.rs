//! Large writes: their data goes ahead to all members in pieces, before the request runs, so that no commit
//! has much to write and the writes of others do not wait for one.
//!
//! ```text
//! client_op ─► run ─► run_large ─► stage              the request is put aside, its object is held
//! OsdCore::stage_next ─► send_piece ─► Stage           for each piece: to all members, and to our store
//! Staged ─► piece_staged                               from each member, when a piece is durable there
//! piece_staged ─► run_staged ─► let_go ... client_op ─► run ─► run_large ─► finish_write
//! ```
//! The request runs twice. The first run shows what it writes, and whether it is refused: then nothing is
//! sent ahead. The second run is the one that counts. Its transaction moves the blocks that lie aside
//! (`store::Op::MoveRange`) and carries only what is no whole block. What is not found as it was staged is
//! carried whole.
//!
//! Invariants:
//! 1. While a request stages its pieces, its object is held: later requests of the object wait behind it. It
//!    runs the second time in its place, after all that came before it.
//! 2. Pieces are moved by the request that staged them, in the interval in which they were staged, and only
//!    when every member that gets the write had them all. A member that lacks one refuses the write, and is
//!    out of step.
//! 3. Staging waits for nobody but the members: it ends, or is given up, whatever other objects do.
//! 4. Every object aside is in `Pg::aside`, here and on members, and goes when its request is answered or
//!    dropped, or when the interval ends. What an OSD leaves behind when it dies is removed at its next
//!    start.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::{Laid, ObjectKey, Op, Priority, StoreError, Txn, blocks_digest};
use types::{ConnId, HObject, PgShard};

use super::Pg;
use super::aside::Aside;
use super::client::ClientOp;
use super::replicate::WRITE_MAX;
use crate::OsdConfig;
use crate::exec::Executed;
use crate::exec::NOBODY;
use crate::osd::shared::{Done, PgDone, Shared};
use crate::peer::PgBody;

/// Of the store: only whole blocks are moved.
const BLOCK: u64 = 4096;
/// A request none of whose pieces has moved on for so long goes on without them.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whole blocks of a write, and where they lie aside.
#[derive(Debug)]
struct Piece {
    data: Bytes,
    /// In the object that is written.
    offset: u64,
    /// In the object aside.
    at: u64,
    digest: u32,
}

/// What a request has staged. The request holds this; when nobody does, the object aside is removed.
#[derive(Debug)]
pub(crate) struct Staged {
    /// 0: nothing was staged, and the data goes with the request.
    id: u64,
    key: ObjectKey,
    pieces: Vec<Piece>,
    /// The members that have them.
    members: Vec<PgShard>,
}

/// A request whose pieces are on their way.
#[derive(Debug)]
pub(crate) struct Staging {
    op: ClientOp,
    head: HObject,
    key: ObjectKey,
    pieces: Vec<Piece>,
    /// How many went out.
    sent: usize,
    /// Members, with ourselves, and how many bytes each has made durable.
    durable: Vec<(PgShard, u64)>,
    /// When a piece went out or became durable last (monotonic).
    moved: Duration,
}

impl Staging {
    pub fn conn(&self) -> ConnId {
        self.op.conn
    }

    pub fn has_begun(&self) -> bool {
        self.sent > 0
    }

    /// Bytes that will lie aside.
    pub fn bytes(&self) -> u64 {
        self.pieces.last().map_or(0, Piece::end)
    }

    /// Pieces that went out and are not durable everywhere.
    pub fn under_way(&self) -> usize {
        let everywhere = self.everywhere();
        self.pieces.iter().take(self.sent).filter(|p| p.end() > everywhere).count()
    }

    pub fn has_more(&self) -> bool {
        self.sent < self.pieces.len()
    }

    /// Bytes that all members have.
    fn everywhere(&self) -> u64 {
        self.durable.iter().map(|(_, bytes)| *bytes).min().unwrap_or(0)
    }
}

impl Piece {
    /// Where it ends aside.
    fn end(&self) -> u64 {
        self.at + self.data.len() as u64
    }
}

impl Staged {
    /// The parts of a write that lie aside: those whose bytes are the very ones that were staged. Each is
    /// used once.
    fn parts_of(&self, offset: u64, data: &Bytes, used: &mut [bool]) -> Vec<Laid> {
        let begin = data.as_ptr() as usize;
        let mut parts: Vec<Laid> = Vec::new();
        for (piece, used) in self.pieces.iter().zip(used) {
            let Some(inside) = (piece.data.as_ptr() as usize).checked_sub(begin) else { continue };
            let is_in = inside + piece.data.len() <= data.len() && offset + inside as u64 == piece.offset;
            let follows = parts.last().is_none_or(|last| last.offset + last.len <= piece.offset);
            if is_in && follows && !std::mem::replace(used, true) {
                let len = piece.data.len() as u64;
                parts.push(Laid { offset: piece.offset, len, src_offset: piece.at, digest: piece.digest });
            }
        }
        parts
    }
}

impl Pg {
    /// Goes on with a write of much data that has run: has it staged, or carries it out when it was, or
    /// cannot be.
    pub(super) fn run_large(
        &mut self,
        op: ClientOp,
        head: HObject,
        mut done: Box<Executed>,
        cx: &mut Shared,
    ) {
        let known = op.staged.clone().filter(|s| s.id == 0 || self.aside.contains_key(&s.id));
        let Some(staged) = known else {
            if let Some((op, done)) = self.stage(op, &head, done, cx) {
                self.finish_write(op, head, done, cx);
            }
            return;
        };
        let bytes = done.txn.payload_len() as u64;
        let members = self.write_targets(cx);
        if staged.id > 0 && members.iter().all(|member| staged.members.contains(member)) {
            let key = self.object_key(&head);
            let mut used = vec![false; staged.pieces.len()];
            done.txn.take_from(&staged.key, |object, offset, data| match *object == key {
                true => staged.parts_of(offset, data, &mut used),
                false => Vec::new(),
            });
            done.txn.remove(&staged.key);
        }
        if self.finish_write(op, head, done, cx) {
            self.writes.newest_stores(bytes);
            // Behind the write: a member that takes no part in it has the pieces still.
            self.unstage(staged.id, cx);
        }
    }

    /// Begins to stage the data of the write. Gives the request back when the data is to go with it.
    fn stage(
        &mut self,
        mut op: ClientOp,
        head: &HObject,
        done: Box<Executed>,
        cx: &mut Shared,
    ) -> Option<(ClientOp, Box<Executed>)> {
        let bytes = done.txn.payload_len();
        if op.conn == NOBODY || op.asked_by.is_some() || bytes > WRITE_MAX {
            return Some((op, done));
        }
        let pieces = cut(&op, &done.txn, &self.object_key(head), cx.config.stage_piece());
        let total = pieces.last().map_or(0, Piece::end);
        let members = self.write_targets(cx);
        let has_room = cx.store.statfs().available_bytes >= total
            && self.members_have_room(&members, total, false).is_ok();
        if pieces.is_empty() || !has_room {
            return Some((op, done));
        }
        drop(done);
        op.staged = None;
        cx.last_staged += 1;
        let key = self.aside_stage_key(head.hash, self.interval(), cx.last_staged);
        let durable = members.into_iter().chain([self.me(cx)]).map(|to| (to, 0)).collect();
        let head = head.clone();
        self.writes.hold(&head);
        let staging = Staging { op, head, key, pieces, sent: 0, durable, moved: cx.now.mono };
        self.staging.insert(cx.last_staged, staging);
        cx.pieces_wait = true;
        None
    }

    /// Sends the next piece of a request to all members, and writes it here.
    pub fn send_piece(&mut self, id: u64, cx: &mut Shared) {
        let (interval, me) = (self.interval(), self.me(cx));
        let Some(staging) = self.staging.get_mut(&id) else { return };
        let Some(piece) = staging.pieces.get_mut(staging.sent) else { return };
        piece.digest = blocks_digest(&piece.data);
        let mut txn = Txn::new();
        if staging.sent == 0 {
            txn.remove(&staging.key);
        }
        txn.write(&staging.key, piece.at, piece.data.clone());
        let done = Done::Pg { id: self.id, interval, what: PgDone::Staged { id, upto: piece.end() } };
        match cx.try_submit(txn, Priority::Client, done) {
            Ok(_) => {}
            Err(StoreError::Full { .. } | StoreError::Misuse(_)) => return self.go_on_whole(id, cx),
            Err(e) => return self.store_failed(&e, cx),
        }
        let bytes = piece.data.len() as u64;
        let body = PgBody::Stage { id, hash: staging.head.hash, at: piece.at, data: piece.data.clone() };
        staging.sent += 1;
        staging.moved = cx.now.mono;
        cx.slice_left = cx.slice_left.saturating_sub(bytes);
        let members: Vec<PgShard> =
            staging.durable.iter().map(|(to, _)| *to).filter(|to| *to != me).collect();
        let aside = self.aside.entry(id).or_insert_with(|| Aside::begun(&staging.key, &members, cx.now.mono));
        aside.bytes += bytes;
        for to in &members {
            cx.send_pg(*to, self.id, interval, body.clone());
        }
        self.use_room(&members, bytes);
    }

    /// A member, or this OSD itself, has made the pieces durable up to so many bytes.
    pub fn piece_staged(&mut self, from: PgShard, id: u64, upto: u64, cx: &mut Shared) {
        let Some(staging) = self.staging.get_mut(&id) else { return };
        for (_, bytes) in staging.durable.iter_mut().filter(|(member, _)| *member == from) {
            *bytes = upto.max(*bytes);
        }
        staging.moved = cx.now.mono;
        cx.pieces_wait = true;
        if staging.everywhere() < staging.bytes() {
            return;
        }
        let Some(Staging { mut op, head, key, pieces, durable, .. }) = self.staging.remove(&id) else {
            return;
        };
        let members = durable.into_iter().map(|(member, _)| member).collect();
        let staged = Arc::new(Staged { id, key, pieces, members });
        if let Some(aside) = self.aside.get_mut(&id) {
            aside.keep_for(&staged, cx.now.mono);
        }
        cx.counters.staged += 1;
        op.staged = Some(staged);
        self.run_staged(op, &head, cx);
    }

    /// The request runs, and then those that wait behind it.
    fn run_staged(&mut self, op: ClientOp, head: &HObject, cx: &mut Shared) {
        let waiters = self.writes.let_go(head);
        self.let_go([op].into_iter().chain(waiters), cx);
    }

    /// A request's pieces cannot be staged: its data goes with it.
    pub fn go_on_whole(&mut self, id: u64, cx: &mut Shared) {
        let Some(Staging { mut op, head, key, .. }) = self.staging.remove(&id) else { return };
        self.unstage(id, cx);
        op.staged = Some(Arc::new(Staged { id: 0, key, pieces: Vec::new(), members: Vec::new() }));
        cx.pieces_wait = true;
        self.run_staged(op, &head, cx);
    }

    /// A connection has ended: what its requests have staged goes, and those that wait behind them go on.
    pub(super) fn drop_stagings_of(&mut self, conn: ConnId, cx: &mut Shared) {
        let theirs = self.staging.iter().filter(|(_, s)| s.conn() == conn).map(|(id, _)| *id);
        for id in theirs.collect::<Vec<_>>() {
            self.unstage(id, cx);
            let Some(staging) = self.staging.remove(&id) else { continue };
            cx.pieces_wait = true;
            let mut waiters = self.writes.let_go(&staging.head);
            waiters.retain(|op| op.conn != conn);
            self.let_go(waiters, cx);
        }
    }

    /// Gives up what gets nowhere, and removes what nobody will use.
    pub fn staging_tick(&mut self, cx: &mut Shared) {
        let now = cx.now.mono;
        let is_stuck = |s: &Staging| s.has_begun() && now.saturating_sub(s.moved) >= PATIENCE;
        let stuck: Vec<u64> = self.staging.iter().filter(|(_, s)| is_stuck(s)).map(|(id, _)| *id).collect();
        for id in stuck {
            self.go_on_whole(id, cx);
        }
        self.reap_aside(cx);
    }

    /// The requests that stage, when the interval ends. What they have staged goes with `drop_aside`.
    pub(super) fn stop_staging(&mut self) -> impl Iterator<Item = ClientOp> + use<> {
        std::mem::take(&mut self.staging).into_values().map(|s| s.op)
    }

    /// Checks the invariants that the module states.
    pub(super) fn assert_staging(&self) {
        for (id, staging) in &self.staging {
            let held = self.writes.lock(&staging.head).is_some_and(|lock| lock.held);
            assert!(held, "1: {} is staged and not held", staging.head);
            assert!(!staging.has_begun() || self.aside.contains_key(id), "4: {id} is aside unseen");
        }
        let held = self.writes.held();
        assert_eq!(held, self.staging.len(), "1: objects are held for nobody");
    }
}

/// Whole blocks that a request writes to its object, in pieces, as far as the request itself holds the bytes.
/// Bytes that it makes when it runs would have to be kept until the second run, or compared with those of it.
fn cut(op: &ClientOp, txn: &Txn, key: &ObjectKey, piece: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut end_aside = 0;
    for written in txn.ops() {
        let Op::Write { object, offset, data } = written else { continue };
        if txn.object(*object) != Some(key) {
            continue;
        }
        let (mut at, end) = (offset.next_multiple_of(BLOCK), (offset + data.len() as u64) / BLOCK * BLOCK);
        // The request's bytes are looked for in all of its operations, so this is asked of long writes alone.
        if end.saturating_sub(at) < piece / 2 || !op.holds(data) {
            continue;
        }
        while at < end {
            let n = piece.min(end - at);
            let from = (at - offset) as usize;
            let data = data.slice(from..from + n as usize);
            pieces.push(Piece { data, offset: at, at: end_aside, digest: 0 });
            end_aside += n;
            at += n;
        }
    }
    pieces
}

impl ClientOp {
    /// Whether these are bytes of its message, or of what it has fetched.
    fn holds(&self, data: &Bytes) -> bool {
        let wanted = data.as_ptr_range();
        let is_in = |whole: &Bytes| {
            let whole = whole.as_ptr_range();
            whole.start <= wanted.start && wanted.end <= whole.end
        };
        let fetched = self.sources.iter().flat_map(|sources| sources.values()).flatten();
        self.msg.ops.iter().any(|o| is_in(&o.indata)) || fetched.flat_map(|c| &c.data).any(is_in)
    }
}

impl OsdConfig {
    /// Bytes of a piece: whole blocks.
    fn stage_piece(&self) -> u64 {
        (self.portions.stage_piece / BLOCK).max(1) * BLOCK
    }
}
