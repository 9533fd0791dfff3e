//! Client requests: everything that is checked before operations run, in Ceph's order, and what follows their run.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cephx::caps::{OsdCap, OsdRequest};
use maps::pool_flags;
use messages::osd::{MOsdOp, MOsdOpReply, Op, OpCode, OpResult, OsdOp, flags};
use store::{ReadPlan, StoreError};
use types::{
    ConnId, EntityAddr, EntityName, EntityType, Errno, Eversion, HObject, PgShard, ReqId, SnapContext,
    SnapId, SpgId,
};

use super::backend::Backend;
use super::copy::CopyAsker;
use super::recovery::lacks;
use super::repair::damaged_object;
use super::replicate::Write;
use super::writes::InFlight;
use super::{Pg, Phase, Staged};
use crate::coded::Gathered;
use crate::entry::OpReturn;
use crate::exec::{
    self, Begun, Effect, ExecEnv, ExecStop, Executed, NOBODY, RequestKind, Requester, Sources,
};
use crate::interval;
use crate::io::{FatalReason, LogLevel, Output};
use crate::log::Recorded;
use crate::object::ObjectState;
use crate::osd::account::{Charge, Fetched, Kept};
use crate::osd::counters::Times;
use crate::osd::gathers::Harvest;
use crate::osd::queries::{Deed, Subject};
use crate::osd::shared::{Shared, seen_at};
use crate::peer::PgBody;
use crate::range::contains;

/// EMSGSIZE: more data than one write may carry. Source: OSD_WRITETOOBIG in src/osd/PrimaryLogPG.cc.
const WRITE_TOO_BIG: Errno = Errno(90);
/// ERESTART: the write's snapshot context is older than the object's. Source: EOLDSNAPC in src/include/rados.h.
const OLD_SNAPC: Errno = Errno(85);

/// A request, with whoever sent it and what belongs to it while it waits. Boxed, for requests are moved often
/// on their way.
#[derive(Debug, Clone)]
pub(crate) struct ClientOp(Box<Request>);

/// See [`ClientOp`].
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub conn: ConnId,
    pub tid: u64,
    pub name: EntityName,
    pub addr: EntityAddr,
    pub reqid: ReqId,
    pub kind: RequestKind,
    pub msg: Box<MOsdOp>,
    /// Set when the primary of another PG sent it, to copy the object.
    pub asked_by: Option<CopyAsker>,
    /// The objects that the request copies, once they are fetched.
    pub sources: Option<Box<Sources>>,
    /// The memory of those, on its client's account.
    pub fetched: Option<Arc<Fetched>>,
    /// What it writes, if that went ahead; see `pg::staging`.
    pub staged: Option<Arc<Staged>>,
    /// Since when (monotonic) it waits for space in the store.
    pub space_wanted: Option<Duration>,
    /// Its part of its client's account, until it is dropped; `None` where the OSD asked itself.
    pub charge: Option<Arc<Charge>>,
    pub times: Times,
    /// What it came to in an earlier slice.
    pub paused: Option<Arc<Paused>>,
    /// Whether it has paused. If that came to nothing, because the request had to wait, it does not pause
    /// again.
    pub has_paused: bool,
    /// The number under which the device reads for it; see `pg::reading`.
    pub reading: Option<u64>,
    /// What shards have read for it.
    pub gathered: Option<Box<Harvest>>,
    /// Its place in the order in which requests came to their PGs; 0 until it has come.
    pub order: u64,
}

/// Puts a request into a queue of its object, behind those that came before it. A request may wait several
/// times, in queues that others have come to meanwhile.
pub(super) fn queue_in_order(queue: &mut VecDeque<ClientOp>, op: ClientOp) {
    let at = queue.partition_point(|other| other.order <= op.order);
    queue.insert(at, op);
}

/// A request that goes on in a later slice, and its bytes among those of all that do.
#[derive(Debug)]
pub(crate) struct Paused {
    begun: Box<Begun>,
    /// On the accounts of all paused requests and of those of its entity.
    _bytes: (Kept, Kept),
}

impl Deref for ClientOp {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.0
    }
}

impl DerefMut for ClientOp {
    fn deref_mut(&mut self) -> &mut Request {
        &mut self.0
    }
}

impl ClientOp {
    /// A request that has just come. `kind` is empty until the operations are classified.
    pub fn new(
        (conn, tid): (ConnId, u64),
        (name, addr): (EntityName, EntityAddr),
        reqid: ReqId,
        msg: Box<MOsdOp>,
    ) -> Self {
        Self(Box::new(Request {
            conn,
            tid,
            name,
            addr,
            reqid,
            kind: RequestKind::default(),
            msg,
            asked_by: None,
            sources: None,
            fetched: None,
            staged: None,
            space_wanted: None,
            charge: None,
            times: Times::default(),
            paused: None,
            has_paused: false,
            reading: None,
            gathered: None,
            order: 0,
        }))
    }

    /// Whether the request is ordered among the writes of its object: writes are, and reads with RWORDERED.
    pub fn is_write_ordered(&self) -> bool {
        self.kind.writes || self.kind.rwordered
    }

    /// Whether every operation is of a kind that stores nothing more.
    pub fn only_frees(&self) -> bool {
        let frees =
            [OpCode::DELETE, OpCode::TRUNCATE, OpCode::ZERO, OpCode::OMAP_CLEAR, OpCode::OMAP_RM_KEYS];
        self.msg.ops.iter().all(|o| frees.contains(&o.code))
    }

    /// Whether the client holds the request back while its pool is full and sends it again afterwards. Such a
    /// request is never answered with ENOSPC. Source: Objecter::target_should_be_paused,
    /// Objecter::_scan_requests.
    pub fn respects_full(&self) -> bool {
        !self.msg.has_flag(flags::FULL_TRY)
            && !self.msg.has_flag(flags::FULL_FORCE)
            && self.name.entity_type() != Some(EntityType::Mds)
    }

    fn reply(&self, result: i32, cx: &Shared) -> Box<MOsdOpReply> {
        Box::new(MOsdOpReply::to(&self.msg, result, cx.epoch(), flags::ACK | flags::ONDISK))
    }

    fn reply_with(&self, result: i32, ops: Vec<OpResult>, cx: &Shared) -> Box<MOsdOpReply> {
        let flags = flags::ACK | flags::ONDISK;
        Box::new(MOsdOpReply::with_results(&self.msg, result, cx.epoch(), flags, ops))
    }

    /// A write that the OSD makes itself, in the name of `name`. Nobody gets a reply to it.
    pub fn internal(pgid: SpgId, object: &HObject, name: EntityName, ops: Vec<OsdOp>, cx: &Shared) -> Self {
        let msg = MOsdOp {
            pgid,
            epoch: cx.epoch(),
            flags: 0,
            explicit_reqid: ReqId::default(),
            client_inc: 0,
            mtime: Default::default(),
            object: object.clone(),
            ops,
            snapc: SnapContext::default(),
            retry_attempt: 0,
            features: 0,
        };
        let mut op = Self::new((NOBODY, 0), (name, EntityAddr::default()), ReqId::default(), Box::new(msg));
        // Not a write that reads: it needs no durable state, so it waits for no write in flight. The watches
        // of a client that has gone are taken out of an object one right after the other.
        op.kind.writes = true;
        op
    }

    /// Whether the request may run over several slices: it only reads, so that nothing but its answer shows
    /// that it ran.
    fn may_pause(&self) -> bool {
        let only_reads = !self.kind.writes && !self.kind.pg_op && !self.kind.notifies;
        only_reads && self.conn != NOBODY && self.asked_by.is_none()
    }

    /// Bytes that it holds while it has paused.
    pub fn held_bytes(&self) -> u64 {
        self.paused.as_ref().map_or(0, |paused| paused.begun.bytes())
    }

    /// Goes on with what the device has read; without that it begins anew and runs to its end.
    pub fn has_been_read(&mut self, data: Option<Bytes>) {
        let begun = self.paused.take().and_then(Arc::into_inner);
        self.paused = begun.zip(data).map(|(mut paused, data)| {
            paused.begun.put_fetched(data);
            Arc::new(paused)
        });
    }

    /// Forgets what it came to.
    pub fn begin_anew(mut self) -> Self {
        let op = &mut *self.0;
        (op.paused, op.has_paused, op.reading, op.gathered) = (None, false, None, None);
        self
    }

    /// Sends the reply: to the client, or as a `CopyPart` to the OSD that copies the object.
    pub fn send(&self, mut msg: Box<MOsdOpReply>, cx: &mut Shared) {
        if let Some(a) = &self.asked_by {
            let (result, user_version) = (msg.result, msg.user_version);
            let data = msg.ops.pop().map(|o| o.joined().outdata).unwrap_or_default();
            let body = PgBody::CopyPart { id: a.id, result, user_version, data };
            return cx.send_pg(PgShard { osd: a.osd, shard: a.pgid.shard }, a.pgid, a.interval, body);
        }
        if self.conn == NOBODY {
            return;
        }
        let bytes: usize = msg.ops.iter().map(OpResult::output_len).sum();
        cx.answers_left = cx.answers_left.saturating_sub(bytes as u64);
        cx.out.push(Output::Reply { conn: self.conn, tid: self.tid, msg: msg.into() });
    }

    /// Counts the request: it has succeeded, and is answered now. What an OSD reads of another one to copy it
    /// counts, as in Ceph; what it makes of its own accord does not.
    pub fn count(&self, in_bytes: u64, out_bytes: u64, cx: &mut Shared) {
        if self.conn == NOBODY && self.asked_by.is_none() {
            return;
        }
        cx.counters.request(&self.kind, self.times, cx.now_ns, in_bytes, out_bytes);
        if !cx.queries.is_empty() {
            let (client, addr) = (self.reqid.name, &self.addr);
            let (pgid, object) = (self.msg.pgid, &self.msg.object);
            let (reads, writes) = (self.kind.reads, self.kind.writes);
            let latency_ns = cx.now_ns.saturating_sub(self.times.came);
            let subject = Subject { client, addr, osd: cx.whoami, pgid, object };
            cx.queries.add(&subject, Deed { reads, writes, in_bytes, out_bytes, latency_ns });
        }
    }

    /// Drops the request without an answer, because its client will send it again: when it has our map, or,
    /// if the map calls the pool full, when it has a later one that does not.
    pub fn drop_it(&self, cx: &mut Shared) {
        if self.asked_by.is_none() {
            cx.dropped.push((self.conn, self.tid));
        }
    }

    /// Answers with an error, without having run anything. Source: OSDService::reply_op_error.
    pub fn refuse(&self, e: Errno, cx: &mut Shared) {
        let mut msg = self.reply(e.neg(), cx);
        msg.flags = i64::from(self.msg.flags & (flags::ACK | flags::ONDISK))
            | i64::from(self.msg.flags & !flags::ONNVRAM);
        self.send(msg, cx);
    }

    /// Whether the client may have sent it to a replica on purpose. Source: PrimaryLogPG::do_op.
    fn may_read_a_replica(&self) -> bool {
        let anywhere = self.msg.has_flag(flags::BALANCE_READS) || self.msg.has_flag(flags::LOCALIZE_READS);
        anywhere && !self.kind.writes
    }

    fn wants_returns(&self) -> bool {
        self.msg.has_flag(flags::RETURNVEC)
    }
}

impl Pg {
    /// Runs a request, or refuses it, or puts it into the queue of what it has to wait for.
    pub fn client_op(&mut self, cx: &mut Shared, mut op: ClientOp) {
        if op.order == 0 {
            cx.last_order += 1;
            op.order = cx.last_order;
        }
        // A request that has to wait drops what it has read: the object may have changed when it goes on.
        let (paused, gathered) = (op.paused.take(), op.gathered.take());
        if !self.is_primary(cx) && op.may_read_a_replica() && self.is_acting(self.me(cx)) {
            // Only the primary knows which writes are complete. After EAGAIN the client asks the primary.
            return op.refuse(Errno::EAGAIN, cx);
        }
        if !self.is_primary(cx) || self.will_be_sent_again(&op, cx) {
            return op.drop_it(cx);
        }
        if self.backs_off(&op, cx) {
            return;
        }
        let alone = cx.config.serves_below_min_size() && self.phase == Phase::Active;
        if !self.is_active() && !alone {
            self.waiting_for_active.push_back(op);
            return;
        }
        match self.check_request(&op, cx) {
            Ok(()) => {}
            Err(Some(e)) => return op.refuse(e, cx),
            Err(None) => return op.drop_it(cx),
        }
        if self.waits_for_space(&op, cx) {
            let Some(op) = self.follow_inside(op, cx) else { return };
            return self.wait_for_space(op, cx);
        }
        // Writes wait for the lease too: a write that is refused, or was done before, is answered without the
        // members.
        if !self.waiting_for_lease.is_empty() || self.lacks_a_lease(cx) {
            let Some(op) = self.follow_inside(op, cx) else { return };
            self.waiting_for_lease.push_back(op);
            cx.leases.waited = true;
            return;
        }
        if op.kind.pg_op {
            return self.run_pg_op(op, cx);
        }
        let head = op.msg.object.head();
        if self.is_unreadable(&head) || (op.is_write_ordered() && self.must_be_whole(&head, cx)) {
            let Some(op) = self.follow_inside(op, cx) else { return };
            return self.wait_for_object(&head, op, cx);
        }
        if let Some(clone) = self.clone_that_a_write_waits_for(&head).filter(|_| op.is_write_ordered()) {
            return self.wait_for_object(&clone, op, cx);
        }
        if op.kind.writes {
            if let Some(recorded) = self.log.find_request(&op.reqid) {
                return self.answer_resend(op, recorded, cx);
            }
        }
        if let Some(copying) = self.copies.get_mut(&head).filter(|_| op.asked_by.is_none()) {
            return copying.waiters.push_back(op);
        }
        let Some(mut op) = self.wait_behind_reads(&head, op) else { return };
        if self.must_wait_for_lock(&head, &op) {
            return self.writes.wait(&head, op);
        }
        if op.must_copy() {
            return self.start_copy(op, head, cx);
        }
        op.paused = paused;
        op.gathered = gathered.filter(|_| self.is_reading(&head, &op));
        self.run(op, head, cx);
    }

    /// Whether a write of the object has to wait until every member has the object.
    fn must_be_whole(&self, object: &HObject, cx: &Shared) -> bool {
        if cx.config.writes_in_backfill_range() {
            return lacks(&self.missing, &self.peers, &BTreeMap::new(), |copy| self.is_acting(copy), object);
        }
        self.is_degraded(object)
    }

    /// Keeps the order of an object's requests across queues. `client_op` checks the reasons to wait one
    /// after the other, and a request that was let go of one queue passes all checks again. So if `op` went
    /// into the queue of an early check while an older request of the same object is in the queue of a later
    /// one, the older request, once let go, could end up behind `op`.
    ///
    /// This puts `op` behind the older request, if there is one; they leave that queue together and in order.
    /// Otherwise `op` comes back, to wait where it has to.
    fn follow_inside(&mut self, op: ClientOp, cx: &mut Shared) -> Option<ClientOp> {
        let (head, ordered) = (op.msg.object.head(), op.is_write_ordered());
        if op.kind.pg_op {
            return Some(op);
        }
        if let Some(copying) = self.copies.get_mut(&head).filter(|_| op.asked_by.is_none()) {
            copying.waiters.push_back(op);
            return None;
        }
        // What waits behind reads came before whatever waits for the object to be whole.
        let others_wait = self.reading.get(&head).is_some_and(|reading| !reading.waiters.is_empty());
        let op = if others_wait { self.wait_behind_reads(&head, op)? } else { op };
        // Reads of what can be read pass writes that wait until all members have it.
        if ordered || self.is_unreadable(&head) {
            let clone = self.clone_that_a_write_waits_for(&head).filter(|_| ordered);
            let object = clone.as_ref().unwrap_or(&head);
            if self.waiting_for_object.contains_key(object) {
                // The object's recovery may have been given up while requests went on waiting for it.
                if !self.recovering.contains_key(object) {
                    self.recover_object(object, cx);
                }
                queue_in_order(self.waiting_for_object.entry(object.clone()).or_default(), op);
                return None;
            }
        }
        if self.writes.lock(&head).is_some_and(|lock| lock.held || !lock.waiters.is_empty()) {
            self.writes.wait(&head, op);
            return None;
        }
        let op = self.wait_behind_reads(&head, op)?;
        if self.waiting_for_lease.iter().any(|earlier| earlier.msg.object.head() == head) {
            self.waiting_for_lease.push_back(op);
            return None;
        }
        Some(op)
    }

    /// A client's connection has ended: its waiting requests are dropped, for nobody would read the replies.
    /// Writes that were sent to the members go on.
    pub fn drop_requests_of(&mut self, conn: ConnId, cx: &mut Shared) {
        let keep = |op: &ClientOp| op.conn != conn;
        let queues = [
            &mut self.waiting_for_active,
            &mut self.waiting_for_lease,
            &mut self.waiting_for_space,
            &mut self.ready,
        ];
        queues.into_iter().chain(self.waiting_for_object.values_mut()).for_each(|ops| ops.retain(keep));
        self.waiting_for_object.retain(|_, ops| !ops.is_empty());
        self.copies.values_mut().for_each(|c| c.waiters.retain(keep));
        self.drop_copies_of(conn, cx);
        self.drop_reads_of(conn, cx);
        self.drop_stagings_of(conn, cx);
        self.writes.drop_waiters_of(conn);
    }

    /// The clone of this head that a rollback waits for. Later writes of the head wait behind the rollback.
    /// Source: objects_blocked_on_degraded_snap.
    fn clone_that_a_write_waits_for(&self, head: &HObject) -> Option<HObject> {
        if self.waiting_for_object.is_empty() {
            return None;
        }
        let clones = self.waiting_for_object.range(head.at(SnapId(0))..head.clone());
        let mut blocked = clones.filter(|(_, ops)| ops.iter().any(ClientOp::is_write_ordered));
        blocked.next().map(|(clone, _)| clone.clone())
    }

    /// Whether the client sends the request again by itself once it has our map: since it sent the request,
    /// the primary has changed, the PG was split, or the pool has asked for resends. Source:
    /// PG::can_discard_op.
    pub fn will_be_sent_again(&self, op: &ClientOp, cx: &Shared) -> bool {
        let sent = op.msg.epoch;
        let h = &self.info.history;
        sent < h.same_primary_since
            || sent < h.last_epoch_split
            || cx.map.pool(self.id.pgid.pool).is_none_or(|p| sent < p.last_force_op_resend)
    }

    /// All checks that do not need the object. `Err(Some(errno))` refuses the request, `Err(None)` drops it.
    fn check_request(&self, op: &ClientOp, cx: &Shared) -> Result<(), Option<Errno>> {
        let m = &op.msg;
        let pool = cx.map.pool(self.id.pgid.pool).ok_or(None)?;
        if !op.kind.pg_op && !contains(self.id.pgid, pool, m.object.hash) {
            return Err(None);
        }
        if m.has_flag(flags::PARALLELEXEC) {
            return Err(Some(Errno::EINVAL));
        }
        if !self.has_caps(op, cx) {
            return Err(Some(Errno::EPERM));
        }
        if op.kind.pg_op {
            return Ok(());
        }
        let c = &cx.config;
        if m.object.name.len() > c.max_object_name_len
            || m.object.key.len() > c.max_object_name_len
            || m.object.nspace.len() > c.max_object_namespace_len
        {
            return Err(Some(Errno::ENAMETOOLONG));
        }
        if m.object.name.is_empty() {
            return Err(Some(Errno::EINVAL));
        }
        if cx.is_blocklisted(&op.addr, cx.ip_of(op.conn)) {
            return Err(Some(Errno::ESHUTDOWN));
        }
        if self.past_failsafe(op, cx) && pool.has_flag(pool_flags::FULL) {
            return Err(None);
        }
        if op.kind.writes {
            if m.object.snap != SnapId::HEAD {
                return Err(Some(Errno::EINVAL));
            }
            let data: u64 = m.ops.iter().map(|o| o.indata.len() as u64).sum();
            if c.max_write_size > 0 && data > c.max_write_size {
                return Err(Some(WRITE_TOO_BIG));
            }
        }
        if op.kind.notifies {
            crate::watch::may_notify(self, op, cx)?;
        }
        let listing = m.ops.iter().any(|o| o.code == OpCode::LIST_SNAPS);
        let others = m.ops.iter().any(|o| o.code != OpCode::LIST_SNAPS);
        let snapdir = m.object.snap == SnapId::SNAPDIR;
        if (listing && !snapdir) || (others && snapdir) {
            return Err(Some(Errno::EINVAL));
        }
        Ok(())
    }

    fn has_caps(&self, op: &ClientOp, cx: &Shared) -> bool {
        if op.asked_by.is_some() {
            // Only an authenticated OSD can send `CopyRead`; it has checked the client's capabilities itself.
            return true;
        }
        let Some(session) = cx.sessions.get(&op.conn) else { return false };
        let caps = &session.peer.caps;
        if caps.is_allow_all() {
            return true;
        }
        let pool_id = self.id.pgid.pool;
        let (Some(pool), Some(name)) = (cx.map.pool(pool_id), cx.map.pool_name(pool_id)) else {
            return false;
        };
        let o = &op.msg.object;
        // A capability that is limited to a network counts by where the client connects from, not by what it
        // states.
        let addr = session.peer.ip.map_or(op.addr, |ip| seen_at(&op.addr, ip));
        caps.is_capable(&OsdRequest {
            pool: name,
            namespace: &o.nspace,
            app_metadata: &pool.application_metadata,
            object: if o.key.is_empty() { &o.name } else { &o.key },
            read: op.kind.needs_read_cap,
            write: op.kind.needs_write_cap,
            classes: &op.kind.classes,
            addr: &addr,
        }) && may_read_sources(&op.msg, caps, &addr, cx)
    }

    /// Answers a request that ran before with the same result: at once, or when the first run is durable.
    fn answer_resend(&mut self, op: ClientOp, r: Recorded, cx: &mut Shared) {
        let mut msg = op.reply(r.return_code, cx);
        msg.set_versions(r.version, r.user_version);
        if !r.op_returns.is_empty() && r.op_returns.len() == msg.ops.len() {
            for (out, kept) in msg.ops.iter_mut().zip(r.op_returns) {
                out.rval = kept.rval;
                (out.outdata, out.more) = (kept.data, Vec::new());
            }
        }
        match self.writes.find(r.version) {
            Some(running) => running.resends.push((op, msg)),
            None => op.send(msg, cx),
        }
    }

    /// Whether the request has to wait for writes of its object that are in flight. Reads do, and writes that
    /// also read, for what they answer must be durable. Every other write waits only behind requests that
    /// wait already.
    fn must_wait_for_lock(&self, head: &HObject, op: &ClientOp) -> bool {
        // Of coded PGs members may still wait with what the request would see.
        if op.msg.has_flag(flags::SKIPRWLOCKS) && !self.is_coded() {
            return false;
        }
        match self.writes.lock(head) {
            None => false,
            // What is added to a coding chunk is a difference to what the write before leaves.
            Some(_) if self.is_coded() => true,
            Some(lock) => lock.held || !lock.waiters.is_empty() || !op.kind.writes || op.kind.reads,
        }
    }

    /// Runs a write that the OSD makes itself. If it would have to wait, it is dropped: its maker comes
    /// again.
    pub fn internal_op(&mut self, op: ClientOp, cx: &mut Shared) {
        let head = op.msg.object.head();
        let free = !self.copies.contains_key(&head)
            && !self.reading.contains_key(&head)
            && self.is_active()
            && !self.is_unreadable(&head)
            && !self.is_degraded(&head);
        if free && !self.must_wait_for_lock(&head, &op) {
            self.run(op, head, cx);
        }
    }

    fn run(&mut self, mut op: ClientOp, head: HObject, cx: &mut Shared) {
        let begun = op.paused.take().and_then(Arc::into_inner).map(|paused| paused.begun);
        op.times.ran = cx.now_ns;
        let cached = self.writes.lock(&head).and_then(|l| l.state.clone());
        let state = match cached {
            Some(state) => state,
            None if self.is_coded() => match self.own_state(&head, cx) {
                Ok(Some(state)) => state,
                Ok(None) => return self.wait_for_object(&head, op, cx),
                Err(e) => return self.stopped(op, &head, ExecStop::Load(e), cx),
            },
            None => match ObjectState::load(&mut cx.store, &self.object_key(&head)) {
                Ok(state) => state,
                Err(e) => return self.stopped(op, &head, ExecStop::Load(e), cx),
            },
        };
        self.watches.populate(cx.now.mono, &head, &state.info.watchers);
        if op.kind.writes && op.msg.has_flag(flags::ORDERSNAP) && self.snapc(&op, cx).seq < state.snapset.seq
        {
            return op.refuse(OLD_SNAPC, cx);
        }
        if let Some(what) = self.will_need(&op, &head, &state) {
            match self.read_of_own(&what, cx) {
                Some(bytes) => op.gathered.get_or_insert_default().bytes.add(what, bytes),
                None => return self.gather(op, &head, vec![what], cx),
            }
        }
        match self.execute(&op, &head, &state, begun, cx) {
            Err(stop) => self.stopped(op, &head, stop, cx),
            Ok(done) if op.kind.writes && !done.unrecorded => {
                if done.txn.payload_len() > cx.config.portions.stage_from && !self.is_coded() {
                    return self.run_large(op, head, done, cx);
                }
                self.finish_write(op, head, done, cx);
            }
            Ok(done) => self.finish_read(op, done, cx),
        }
    }

    fn execute(
        &mut self,
        op: &ClientOp,
        head: &HObject,
        state: &ObjectState,
        begun: Option<Box<Begun>>,
        cx: &mut Shared,
    ) -> Result<Box<Executed>, ExecStop> {
        // What begins anew runs to its end: writes that come in every slice would have it begin for ever.
        let may_pause = op.may_pause() && (begun.is_some() || !op.has_paused);
        let none_gathered = Gathered::default();
        let may_pause = may_pause && !self.is_coded();
        let found = op.gathered.as_deref().map_or(&none_gathered, |harvest| &harvest.bytes);
        let gathered = self.is_coded().then_some(found);
        let slice = may_pause.then_some(cx.slice_left.max(exec::LEAST_SLICE));
        let (map, none, interval) = (cx.map.clone(), Sources::new(), self.interval());
        let Some(pool) = map.pool(self.id.pgid.pool) else { return Err(ExecStop::Drop) };
        let requester = Requester { conn: op.conn, name: op.name, addr: op.addr };
        let snapc = if op.kind.writes { self.snapc(op, cx) } else { SnapContext::default() };
        let first_version = self.next_version(cx);
        self.newest();
        let newest = match &self.backend {
            Backend::Coded(coded) => Some(&coded.newest),
            Backend::Replicated => None,
        };
        let (acting, is_coded) = (&self.key.members.acting, self.is_coded());
        let is_acting = |copy| interval::copies(acting, is_coded).any(|member| member == copy);
        let mut env = ExecEnv {
            map: &map,
            pool,
            pgid: self.id,
            missing: &self.missing,
            is_degraded: &|o| lacks(&self.missing, &self.peers, &self.backfills, is_acting, o),
            is_stale: &|o, version| newest.is_some_and(|newest| newest.contradicts(o, version)),
            list_scrub: &|args| self.scrub.list(args, interval),
            watches: &mut self.watches,
            requester: &requester,
            reqid: op.reqid,
            flags: op.msg.flags,
            now: cx.now.wall,
            mtime: op.msg.mtime,
            snapc,
            snapid: op.msg.object.snap,
            first_version,
            last_user_version: self.info.last_user_version,
            sources: op.sources.as_deref().unwrap_or(&none),
            gathered,
            may_read: op.kind.reads,
            may_write: op.kind.writes,
            work: 0,
            slice,
            begun,
            store: &mut cx.store,
            config: &cx.config,
        };
        let ran = exec::execute(&mut env, head, state, &op.msg.ops);
        let work = env.work.max(exec::work::OPERATION);
        cx.slice_left = cx.slice_left.saturating_sub(work);
        ran
    }

    /// The write's snapshot context: the pool's own, or the client's without snapshots that were removed. A
    /// request whose connection was stuck may come long after a snapshot was purged, and a clone for that
    /// snapshot would stay for ever.
    fn snapc(&self, op: &ClientOp, cx: &Shared) -> SnapContext {
        let pool_id = self.id.pgid.pool;
        let Some(pool) = cx.map.pool(pool_id) else { return SnapContext::default() };
        if pool.is_pool_snaps_mode() && !op.msg.has_flag(flags::ENFORCE_SNAPC) {
            let snaps = pool.snaps.keys().rev().copied().collect();
            return SnapContext { seq: pool.snap_seq, snaps };
        }
        let mut snapc = op.msg.snapc.clone();
        let purged = cx.purged_snaps.get(&pool_id);
        if cx.map.removed_snaps_queue.contains_key(&pool_id) || purged.is_some() {
            let is_purged = |s| purged.is_some_and(|p| p.contains(SnapId(s)));
            snapc.snaps.retain(|s| !cx.map.in_removed_snaps_queue(pool_id, SnapId(*s)) && !is_purged(*s));
        }
        snapc
    }

    /// Deals with a request that `execute` has stopped.
    pub(super) fn stopped(&mut self, mut op: ClientOp, head: &HObject, stop: ExecStop, cx: &mut Shared) {
        match stop {
            ExecStop::Missing(object) if self.is_coded() => match self.own_state(&object, cx) {
                Ok(_) => self.wait_for_object(&object, op, cx),
                Err(e) => self.stopped(op, head, ExecStop::Load(e), cx),
            },
            ExecStop::Missing(object) => self.wait_for_object(&object, op, cx),
            ExecStop::Paused(mut begun) => {
                let theirs = cx.sessions.get(&op.conn).map(|s| s.account.paused_of_entity.clone());
                let plan = begun.take_wanted();
                let bytes = begun.bytes();
                let _bytes = (cx.paused_bytes.keep(bytes), theirs.unwrap_or_default().keep(bytes));
                op.paused = Some(Arc::new(Paused { begun, _bytes }));
                op.has_paused = true;
                match plan {
                    Some(plan) => self.wait_for_device(op, head, plan, cx),
                    // It keeps its place before those that wait behind it.
                    None if self.is_reading(head, &op) => {
                        self.wait_for_device(op, head, Box::new(ReadPlan::of_nothing()), cx);
                    }
                    None => cx.paused = Some(op),
                }
            }
            ExecStop::Needs(needs) => self.gather(op, head, needs, cx),
            ExecStop::Drop => {}
            ExecStop::Refused(e) => op.refuse(e, cx),
            ExecStop::Store(StoreError::Stopped) => cx.fail(FatalReason::DeviceFailed),
            ExecStop::Store(e) if damaged_object(&e).is_some() => {
                let object = damaged_object(&e).unwrap_or_else(|| head.clone());
                self.repair_for(op, &object, &e, cx);
            }
            ExecStop::Store(e) => {
                cx.cluster_log(LogLevel::Error, format!("pg {} object {head}: {e}", self.id));
                op.refuse(e.errno(), cx);
            }
            ExecStop::Load(e) => {
                cx.cluster_log(LogLevel::Error, format!("pg {} object {head}: {e}", self.id));
                if self.is_coded() && self.is_undecodable(head, cx) {
                    self.lost_stale(head, cx);
                    return self.wait_for_object(head, op, cx);
                }
                op.refuse(Errno::EIO, cx);
            }
        }
    }

    /// Source: PrimaryLogPG::complete_read_ctx.
    fn finish_read(&mut self, op: ClientOp, done: Box<Executed>, cx: &mut Shared) {
        if done.result >= 0 {
            op.count(0, out_bytes(&done.results), cx);
        }
        self.info.sums.add(&done.delta);
        self.report = true;
        let mut msg = op.reply_with(done.result, done.results, cx);
        if done.result >= 0 {
            msg.set_versions(Eversion::ZERO, done.user_version);
        } else if done.result == Errno::ENOENT.neg() {
            msg.set_enoent_versions(self.info.last_update, self.info.last_user_version);
        }
        if done.result >= 0 && !done.effects.is_empty() {
            self.apply_effects(&op, &done.effects, cx);
        }
        op.send(msg, cx);
    }

    /// Logs what a write did, or that it failed, and sends it to the members. True when it is under way;
    /// false when the store has not taken it: the request was refused then, or waits.
    ///
    /// Source: PrimaryLogPG::execute_ctx, record_write_error.
    pub(super) fn finish_write(
        &mut self,
        mut op: ClientOp,
        head: HObject,
        mut done: Box<Executed>,
        cx: &mut Shared,
    ) -> bool {
        let change = match self.divide(std::mem::take(&mut done.txn), &op, cx) {
            Ok(change) => change,
            Err(stop) => {
                self.not_divided(op, &head, stop, cx);
                return false;
            }
        };
        let mut result = done.result;
        let changes = !done.entries.is_empty();
        if changes && !op.wants_returns() {
            result = 0;
            done.results.iter_mut().for_each(|r| (r.outdata, r.more) = Default::default());
        }
        let returns = if op.wants_returns() { op_returns(&done.results) } else { Vec::new() };
        let out_bytes = if changes { 0 } else { out_bytes(&done.results) };
        let mut msg = op.reply_with(result, std::mem::take(&mut done.results), cx);
        let entries = if changes {
            let code = if op.wants_returns() { result } else { 0 };
            Self::complete_entries(&op, std::mem::take(&mut done.entries), code, returns)
        } else {
            vec![self.error_entry(&op, result, returns, cx)]
        };
        let Some(version) = entries.last().map(|e| e.version) else { return false };
        if !changes && result == Errno::ENOENT.neg() {
            msg.set_enoent_versions(self.info.last_update, self.info.last_user_version);
        } else {
            msg.set_versions(version, done.user_version);
        }
        op.gathered = None;
        let in_flight = InFlight {
            version,
            object: head,
            op,
            in_bytes: 0,
            out_bytes,
            reply: msg,
            resends: Vec::new(),
            effects: std::mem::take(&mut done.effects),
        };
        match self.issue(Write { change, entries, in_flight, executed: done }, cx) {
            Ok(()) => return true,
            Err((StoreError::Full { needed_bytes, .. }, op)) => self.no_space(op, needed_bytes, cx),
            Err((e @ StoreError::Misuse(_), op)) => op.refuse(e.errno(), cx),
            Err((e, op)) if damaged_object(&e).is_some() => {
                let object = damaged_object(&e).unwrap_or_else(|| op.msg.object.head());
                self.repair_for(op, &object, &e, cx);
            }
            Err((e, _)) => self.store_failed(&e, cx),
        }
        false
    }

    /// Runs a request to the PG itself (a listing), once no object is missing in this copy.
    fn run_pg_op(&mut self, op: ClientOp, cx: &mut Shared) {
        let lacking = self.missing.by_version().next().map(|(_, o)| o.clone());
        if let Some(object) = lacking {
            return self.wait_for_object(&object, op, cx);
        }
        // The request's object names only the namespace.
        let head = op.msg.object.clone();
        match self.execute(&op, &head, &ObjectState::default(), None, cx) {
            Err(stop) => self.stopped(op, &head, stop, cx),
            Ok(done) => {
                let mut msg = op.reply_with(done.result, done.results, cx);
                msg.set_versions(self.info.last_update, self.info.last_user_version);
                op.send(msg, cx);
            }
        }
    }

    /// Applies what an execution asked for besides changes of objects: watches and notifies.
    pub(super) fn apply_effects(&mut self, op: &ClientOp, effects: &[Effect], cx: &mut Shared) {
        for effect in effects {
            crate::watch::apply(self, op, effect, cx);
        }
    }
}

fn out_bytes(results: &[OpResult]) -> u64 {
    results.iter().map(|r| r.output_len() as u64).sum()
}

fn op_returns(results: &[OpResult]) -> Vec<OpReturn> {
    results.iter().map(|r| OpReturn { rval: r.rval, data: r.clone().joined().outdata }).collect()
}

/// Whether the client may read every source that the request copies. It is checked here because this OSD
/// fetches sources in its own name. A source in a pool that does not exist passes: fetching it gives the
/// error.
fn may_read_sources(msg: &MOsdOp, caps: &OsdCap, addr: &EntityAddr, cx: &Shared) -> bool {
    msg.ops.iter().filter(|o| matches!(o.code, OpCode::COPY_FROM | OpCode::COPY_FROM2)).all(|o| {
        let Ok(Op::CopyFrom { from, .. } | Op::CopyFrom2 { from, .. }) = o.parse() else { return true };
        let at = &from.locator;
        let (Some(pool), Some(name)) = (cx.map.pool(at.pool), cx.map.pool_name(at.pool)) else { return true };
        caps.is_capable(&OsdRequest {
            pool: name,
            namespace: &at.nspace,
            app_metadata: &pool.application_metadata,
            object: if at.key.is_empty() { &from.object } else { &at.key },
            read: true,
            write: false,
            classes: &[],
            addr,
        })
    })
}
