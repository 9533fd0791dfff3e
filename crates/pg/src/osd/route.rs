//! Routes messages: client requests and other OSDs' messages go to their PG, each as soon as this OSD has the
//! map that the message names.

use std::sync::Arc;

use bytes::Bytes;
use messages::Message;
use messages::osd::{MOsdOp, backoff_op};
use store::StoreError;
use types::{ConnId, EntityType, Epoch, Errno, OsdId, PgShard, SpgId};

use super::OsdCore;
use super::account::Charge;
use super::counters::Times;
use super::device_reads::OfShard;
use super::maps::ShareTo;
use super::turns::{Turn, Wanted};
use crate::exec::classify;
use crate::info::PgInfo;
use crate::interval::PastIntervals;
use crate::io::{HeartbeatNet, LogLevel, Output};
use crate::peer::{PgBody, PgMessage, RepAck};
use crate::pg::room::Taken;
use crate::pg::{ClientOp, Pg};
use crate::push::ObjectPush;
use crate::range::pg_range;

/// A message that waits for the map of `epoch`.
pub(super) struct Waiting {
    epoch: Epoch,
    what: Routed,
}

/// A message on its way to a PG.
enum Routed {
    Client {
        conn: ConnId,
        tid: u64,
        msg: Box<MOsdOp>,
        charge: Option<Charge>,
        /// When it came: nanoseconds of the monotonic clock.
        came_ns: u64,
    },
    /// The client has heard of the backoff `id`.
    Acked {
        conn: ConnId,
        id: u64,
    },
    Pg {
        from: OsdId,
        msg: Box<PgMessage>,
    },
}

/// Messages of one source stay in order.
enum Source {
    Client(ConnId),
    Osd(OsdId),
}

impl Routed {
    fn source(&self) -> Source {
        match self {
            Self::Client { conn, .. } | Self::Acked { conn, .. } => Source::Client(*conn),
            Self::Pg { from, .. } => Source::Osd(*from),
        }
    }
}

impl OsdCore {
    /// A message on an incoming connection.
    pub(super) fn message(&mut self, conn: ConnId, tid: u64, msg: Message) {
        let Some(session) = self.shared.sessions.get(&conn) else { return };
        let name = session.peer.name;
        match msg {
            Message::OsdOp(m) => {
                let (epoch, msg, came_ns) = (m.epoch, m, self.shared.now_ns);
                if !self.must_wait(epoch, Source::Client(conn)) {
                    return self.client_request(conn, tid, msg, came_ns);
                }
                self.shared.counters.waited_for_map += 1;
                self.park(epoch, Routed::Client { conn, tid, msg, charge: None, came_ns });
                self.make_room_for_parked();
            }
            Message::OsdBackoff(m) if m.op == backoff_op::ACK_BLOCK => self.backoff_ack_came(conn, m.id),
            Message::Command(m) => self.command(conn, tid, &m),
            Message::Ping(m) => self.shared.out.push(Output::Reply { conn, tid, msg: Message::Ping(m) }),
            msg if name.entity_type() == Some(EntityType::Osd) => {
                if let Ok(osd) = i32::try_from(name.num) {
                    self.osd_message(OsdId(osd), Some(conn), tid, msg);
                }
            }
            Message::OsdMap(m) if name.entity_type() == Some(EntityType::Mon) => self.osdmap_of_peer(&m),
            _ => {}
        }
    }

    /// A message from a monitor.
    pub(super) fn mon_message(&mut self, msg: Message) {
        match msg {
            Message::OsdMap(m) => self.handle_osdmap(&m),
            Message::MonGetVersionReply(m) => {
                self.newest_known(Epoch(m.version.try_into().unwrap_or(u32::MAX)))
            }
            Message::LogAck(m) => self.cluster_log_kept(&m),
            _ => {}
        }
    }

    /// A message from another OSD, on either session.
    pub(super) fn osd_message(&mut self, from: OsdId, conn: Option<ConnId>, tid: u64, msg: Message) {
        match &msg {
            Message::OsdMap(m) => return self.osdmap_of_peer(m),
            Message::OsdPing(m) => return self.handle_ping(from, &HeartbeatNet::BOTH, conn, tid, m),
            _ => {}
        }
        let decoded = PgMessage::from_message(&msg);
        if let Some(Err(e)) = &decoded {
            if self.not_understood.insert(from) {
                let text = format!("osd.{from} sends messages that are not understood and dropped: {e}");
                self.shared.cluster_log(LogLevel::Warn, text);
                self.osd_reset(from);
            }
        }
        if let Some(Ok(msg)) = decoded {
            match self.must_wait(msg.epoch, Source::Osd(from)) {
                true => {
                    self.shared.counters.waited_for_map += 1;
                    self.park(msg.epoch, Routed::Pg { from, msg: Box::new(msg) });
                }
                false => self.pg_message(from, msg),
            }
        }
    }

    /// Messages between that OSD and this one may have been lost, in either direction: a session with it was
    /// forgotten.
    pub(super) fn osd_reset(&mut self, osd: OsdId) {
        let text = format!("osd.{} has lost messages to or from osd.{osd}", self.shared.whoami);
        self.shared.cluster_log(LogLevel::Warn, text);
        for pg in self.pgs.values_mut() {
            pg.session_lost(osd, &mut self.shared);
        }
    }

    /// Whether a message of this epoch has to wait for its map, or behind others of its source that do.
    fn must_wait(&self, epoch: Epoch, source: Source) -> bool {
        let is_behind = || match source {
            Source::Client(conn) => {
                self.shared.sessions.get(&conn).is_some_and(|s| s.account.parked.held().ops > 0)
            }
            Source::Osd(from) => {
                let same = |w: &Waiting| matches!(w.what, Routed::Pg { from: f, .. } if f == from);
                self.waiting_for_map.iter().any(same)
            }
        };
        epoch > self.shared.epoch() || !self.waiting_for_map.is_empty() && is_behind()
    }

    /// Delivers a message, or keeps it until its map is here; one source's messages stay in order.
    fn route(&mut self, epoch: Epoch, what: Routed) {
        match self.must_wait(epoch, what.source()) {
            true => self.park(epoch, what),
            false => self.deliver(what),
        }
    }

    fn park(&mut self, epoch: Epoch, mut what: Routed) {
        if let Routed::Client { conn, msg, charge, .. } = &mut what {
            let Some(session) = self.shared.sessions.get(conn) else { return };
            *charge = Some(self.clients.park(*conn, &session.account, msg.memory_bytes()));
        }
        self.waiting_for_map.push_back(Waiting { epoch, what });
    }

    /// Client operations among what waits for a map.
    pub(super) fn waiting_for_map_ops(&self) -> impl Iterator<Item = (ConnId, u64)> {
        self.waiting_for_map.iter().filter_map(|w| match &w.what {
            Routed::Client { conn, tid, .. } => Some((*conn, *tid)),
            Routed::Acked { .. } | Routed::Pg { .. } => None,
        })
    }

    /// Routes all messages that wait for maps again, because a new map has come.
    pub(super) fn map_arrived(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting_for_map);
        for w in &mut waiting {
            // Not charged while they are routed: `must_wait` takes a parked charge for a request that still
            // waits in front. A request that has to wait on is charged again.
            if let Routed::Client { charge, .. } = &mut w.what {
                *charge = None;
            }
        }
        for w in waiting {
            self.route(w.epoch, w.what);
        }
    }

    fn deliver(&mut self, what: Routed) {
        match what {
            Routed::Client { conn, tid, msg, came_ns, charge: _ } => {
                self.client_request(conn, tid, msg, came_ns)
            }
            Routed::Acked { conn, id } => self.backoff_acked(conn, id),
            Routed::Pg { from, msg } => self.pg_message(from, *msg),
        }
    }

    /// An acknowledgement of a backoff has come. A second one says nothing new, and any number of them would
    /// wait.
    fn backoff_ack_came(&mut self, conn: ConnId, id: u64) {
        let is_new = self.shared.sessions.get_mut(&conn).is_some_and(|s| s.backoffs.note_ack(id));
        if is_new {
            self.route(Epoch(0), Routed::Acked { conn, id });
        }
    }

    /// Takes an acknowledgement of a backoff behind the requests that were sent before it. Otherwise the
    /// backoff may be over and forgotten when one of them has its turn, and that one would run before the
    /// requests that the backoff dropped.
    fn backoff_acked(&mut self, conn: ConnId, id: u64) {
        let Some(session) = self.shared.sessions.get_mut(&conn) else { return };
        if self.turns.has(&session.peer.auth_name, conn) {
            let turn = Turn { tid: 0, what: Wanted::Acked(id) };
            return self.turns.push(&session.peer.auth_name, conn, turn);
        }
        session.backoffs.acked(id);
    }

    /// Starts a client's request whose map is here, or queues it for its turn when this slice's work is spent
    /// or other requests wait already.
    fn client_request(&mut self, conn: ConnId, tid: u64, msg: Box<MOsdOp>, came_ns: u64) {
        let Some(session) = self.shared.sessions.get(&conn) else { return };
        let charge = self.clients.run(conn, &session.account, msg.memory_bytes());
        let turn = Turn { tid, what: Wanted::ToBegin { msg, charge, came_ns } };
        if self.shared.is_slice_over() || self.shared.some_ready || !self.turns.is_empty() {
            return self.turns.push(&session.peer.auth_name, conn, turn);
        }
        self.start_request(conn, turn);
    }

    /// Gives a request its turn.
    pub(super) fn start_request(&mut self, conn: ConnId, turn: Turn) {
        match turn.what {
            Wanted::ToBegin { msg, charge, came_ns } => {
                self.begin_request(conn, turn.tid, msg, (charge, came_ns));
            }
            Wanted::ToGoOn(op) => self.run_request(*op),
            Wanted::Acked(id) => {
                if let Some(session) = self.shared.sessions.get_mut(&conn) {
                    session.backoffs.acked(id);
                }
            }
        }
    }

    fn begin_request(&mut self, conn: ConnId, tid: u64, msg: Box<MOsdOp>, (charge, came): (Charge, u64)) {
        let Some(session) = self.shared.sessions.get_mut(&conn) else { return };
        session.epoch = session.epoch.max(msg.epoch);
        session.asked = self.shared.now.mono;
        let (theirs, name, addr) = (session.epoch, session.peer.name, session.peer.addr);
        if theirs < self.shared.epoch() {
            self.share_map(ShareTo::Conn(conn), theirs);
        }
        let reqid = msg.reqid(name, tid);
        let kind = classify(&msg.ops, msg.flags);
        let id = msg.pgid;
        let mut op = ClientOp::new((conn, tid), (name, addr), reqid, msg);
        op.charge = Some(Arc::new(charge));
        let begun = self.shared.now_ns;
        op.times = Times { came, begun, ran: begun };
        self.shared.counters.waited_for_turn.add(begun.saturating_sub(came));
        match kind {
            Ok(kind) => op.kind = kind,
            Err(e) => return op.refuse(e, &mut self.shared),
        }
        if self.shared.coded_pools.refuses(id.pgid.pool) {
            // No OSD has copies of such a pool. Without an answer its clients would wait for ever.
            return op.refuse(Errno::EOPNOTSUPP, &mut self.shared);
        }
        self.run_request(op);
    }

    /// The copy that a request is for. In replicated pools, what a client says of shards means nothing.
    fn local_id(&self, op: &ClientOp) -> SpgId {
        let is_coded = self.shared.map.pool(op.msg.pgid.pgid.pool).is_some_and(maps::Pool::is_erasure);
        if is_coded { op.msg.pgid } else { SpgId::replicated(op.msg.pgid.pgid) }
    }

    fn run_request(&mut self, op: ClientOp) {
        let pgid = self.local_id(&op);
        let Some(pg) = self.pgs.get_mut(&pgid) else {
            // No such PG here: the client's map is old, and it has just been sent ours.
            return op.drop_it(&mut self.shared);
        };
        pg.client_op(&mut self.shared, op);
        self.request_ran(pgid);
    }

    /// The device has read for a request.
    pub(super) fn device_has_read(&mut self, id: u64, result: Result<Bytes, StoreError>) {
        match self.shared.reads.shard_answered(id, &mut self.shared.out) {
            Some(OfShard::Part(read)) => {
                if let Some(pg) = self.pgs.get_mut(&read.pgid) {
                    pg.shard_was_read(&read, result, &mut self.shared);
                }
                return;
            }
            Some(OfShard::Chunk(pgid)) => return self.chunk_was_read(pgid, id, result),
            None => {}
        }
        let Some(op) = self.shared.reads.answered(id) else { return };
        if !self.shared.sessions.contains_key(&op.conn) {
            // What it held counted until now: a client that connects anew has no second share of the device.
            return;
        }
        let pgid = self.local_id(&op);
        let Some(pg) = self.pgs.get_mut(&pgid) else { return op.drop_it(&mut self.shared) };
        pg.device_has_read(id, op, result, &mut self.shared);
        self.request_ran(pgid);
    }

    /// The device has read what a member's write adds to. That goes on when all of it is there, and then what
    /// has waited behind it.
    fn chunk_was_read(&mut self, pgid: SpgId, id: u64, result: Result<Bytes, StoreError>) {
        let Some(pg) = self.pgs.get_mut(&pgid) else { return };
        if pg.chunk_was_read(id, result) {
            for (from, msg) in std::mem::take(&mut pg.held_back) {
                deliver_to_pg(pg, from, msg, &mut self.shared);
            }
            pg.run_ready(&mut self.shared);
        }
    }

    /// If its slice was over it is the next of its connection; what it has freed in its PG goes on.
    fn request_ran(&mut self, pgid: SpgId) {
        if let Some(op) = self.shared.paused.take() {
            if let Some(session) = self.shared.sessions.get(&op.conn) {
                let (entity, conn) = (&session.peer.auth_name, op.conn);
                let turn = Turn { tid: op.tid, what: Wanted::ToGoOn(Box::new(op)) };
                self.turns.put_back(entity, conn, turn);
            }
        }
        if let Some(pg) = self.pgs.get_mut(&pgid) {
            pg.run_ready(&mut self.shared);
        }
    }

    pub(super) fn pg_message(&mut self, from: OsdId, mut msg: PgMessage) {
        if let PgBody::RepOpAck { others, .. } = &mut msg.body {
            for RepAck { pgid, from: shard, interval, version } in std::mem::take(others) {
                let body = PgBody::RepOpAck { version, others: Vec::new() };
                self.pg_message(from, PgMessage { pgid, from: shard, epoch: msg.epoch, interval, body });
            }
        }
        let sender = PgShard { osd: from, shard: msg.from };
        if !self.pgs.contains_key(&msg.pgid) {
            return self.no_such_pg(sender, &msg);
        }
        if msg.epoch < self.shared.epoch() && matches!(msg.body, PgBody::QueryInfo | PgBody::Notify { .. }) {
            self.share_map(ShareTo::Osd(from), msg.epoch);
        }
        let cx = &mut self.shared;
        let Some(pg) = self.pgs.get_mut(&msg.pgid) else { return };
        if msg.epoch < pg.interval() {
            // The sender did not know of the present interval yet.
            return;
        }
        if let PgBody::Remove = msg.body {
            let me = pg.me(cx);
            if pg.primary() == sender && !pg.is_acting(me) && !pg.is_in_up(me) {
                let range = pg_range(msg.pgid.pgid, pg.key.pg_num.max(msg.pgid.pgid.seed + 1));
                pg.stop(cx);
                self.pgs.remove(&msg.pgid);
                cx.sessions.values_mut().for_each(|s| s.backoffs.forget(msg.pgid));
                crate::pg::remove::remove_copy(msg.pgid, range, cx);
            }
            return;
        }
        deliver_to_pg(pg, sender, msg, cx);
        pg.run_ready(cx);
    }

    /// Answers questions about a copy that is not here: an empty copy. Other messages are ignored.
    fn no_such_pg(&mut self, from: PgShard, msg: &PgMessage) {
        if matches!(msg.body, PgBody::QueryInfo | PgBody::QueryLog { .. }) {
            let info = Box::new(PgInfo::new(msg.pgid.pgid));
            // An earlier life of this OSD may have been a member and let some primary answer. Which one is
            // forgotten, so the answer says what this OSD owes to every OSD.
            let osds: Vec<OsdId> = self.shared.map.existing_osds().map(|(osd, _)| osd).collect();
            let owed = crate::pg::owed_to(osds, &self.shared);
            let body = PgBody::Notify { info, past: PastIntervals::default(), owed };
            self.shared.send_pg(from, msg.pgid, msg.interval, body);
        }
    }

    pub(super) fn disconnected(&mut self, conn: ConnId) {
        let session = self.shared.sessions.remove(&conn);
        for (pgid, id) in session.iter().flat_map(|s| s.backoffs.held()) {
            if let Some(pg) = self.pgs.get_mut(&pgid) {
                pg.backoffs.retain(|b| b.conn != conn || b.id != id);
            }
        }
        if let Some(session) = session {
            self.held_conns -= usize::from(session.account.is_held);
            if session.account.parked.held().ops > 0 {
                let theirs = |w: &Waiting| match w.what {
                    Routed::Client { conn: c, .. } | Routed::Acked { conn: c, .. } => c == conn,
                    Routed::Pg { .. } => false,
                };
                self.waiting_for_map.retain(|w| !theirs(w));
            }
            if session.account.running.held().ops > 0 {
                // The client sends unanswered requests again. Kept here, they would let a client exceed its
                // share by connecting anew.
                self.pgs.values_mut().for_each(|pg| pg.drop_requests_of(conn, &mut self.shared));
            }
        }
        self.turns.remove(conn);
        self.shared.reads.disconnected(conn);
        self.clients.active.remove(&conn);
        crate::watch::disconnected(self, conn);
    }
}

/// Whether a message waits when the store is full, or must not overtake one that does.
fn takes_room(body: &PgBody) -> bool {
    matches!(
        body,
        PgBody::RepOp(_)
            | PgBody::Push(_)
            | PgBody::BackfillRange { .. }
            | PgBody::BackfillProgress { .. }
            | PgBody::ScrubRead(_)
            | PgBody::ScrubRemove { .. }
            | PgBody::Unstage { .. }
    )
}

/// Gives a message to its PG, or makes it wait for room. Replies to questions of another interval are
/// ignored.
pub(super) fn deliver_to_pg(pg: &mut Pg, from: PgShard, msg: PgMessage, cx: &mut super::Shared) {
    if pg.holds_back() && takes_room(&msg.body) {
        return pg.hold_back(from, msg, cx);
    }
    let asked_now = msg.interval == pg.interval();
    let PgMessage { pgid, from: shard, epoch, interval, body } = msg;
    let taken = match body {
        PgBody::RepOp(op) => pg.handle_rep_op(from, interval, op, cx),
        PgBody::Push(pushes) => {
            cx.counters.pushes_taken += 1;
            cx.counters.push_in_bytes += pushes.iter().map(ObjectPush::bytes).sum::<u64>();
            pg.handle_push(from, interval, pushes, cx)
        }
        body => return deliver_other(pg, from, interval, asked_now, body, cx),
    };
    if let Taken::NoRoom(body) | Taken::OnDevice(body) = taken {
        pg.hold_back(from, PgMessage { pgid, from: shard, epoch, interval, body }, cx);
    }
}

/// Gives a message that stores no data to its PG.
fn deliver_other(
    pg: &mut Pg,
    from: PgShard,
    interval: Epoch,
    asked_now: bool,
    body: PgBody,
    cx: &mut super::Shared,
) {
    match body {
        PgBody::QueryInfo => pg.handle_query_info(from, cx),
        PgBody::QueryLog { since } => pg.handle_query_log(from, interval, since, cx),
        PgBody::Notify { info, past, owed } => pg.handle_notify(from, *info, &past, &owed, cx),
        PgBody::Activate { info, log, backfill, past } => {
            pg.handle_activate(from, interval, &info, log, backfill, &past, cx);
        }
        PgBody::History { history } => pg.handle_history(from, &history, cx),
        PgBody::CopyRead(ask) => pg.copy_read(from, interval, *ask, cx),
        PgBody::ShardRead(ask) => pg.handle_shard_read(from, interval, ask, cx),
        PgBody::Pull { wants } => {
            cx.counters.pulls_taken += 1;
            pg.handle_pull(from, interval, wants, cx)
        }
        PgBody::BackfillRange { begin, end, objects } => {
            pg.handle_backfill_range(from, interval, &begin, end, objects, cx);
        }
        PgBody::BackfillProgress { last_backfill, sums } => {
            pg.handle_backfill_progress(from, interval, last_backfill, *sums, cx);
        }
        PgBody::BackfillReserve { id, priority, bytes } => {
            pg.handle_backfill_reserve(from, interval, (id, priority), bytes, cx);
        }
        PgBody::BackfillRelease => pg.handle_backfill_release(from, cx),
        PgBody::ScrubReserve => pg.handle_scrub_reserve(from, interval, cx),
        PgBody::ScrubRelease => pg.handle_scrub_release(from, cx),
        PgBody::ScrubRead(ask) => pg.handle_scrub_read(from, interval, &ask, cx),
        PgBody::ScrubRemove { object, version } => pg.handle_scrub_remove(from, &object, version, cx),
        PgBody::Spoiled { object } => pg.handle_spoiled(from, object, cx),
        PgBody::Stage { id, hash, at, data } => pg.handle_stage((from, interval), (id, hash), at, data, cx),
        PgBody::Unstage { id } => pg.handle_unstage(from, interval, id, cx),
        PgBody::Settled { version } => pg.handle_settled(from, interval, version, cx),
        PgBody::Remove | PgBody::RepOp(_) | PgBody::Push(_) => {}
        _ if !asked_now => {}
        PgBody::Log { info, log, missing } => pg.handle_log(from, *info, log, missing, cx),
        PgBody::CopyPart { id, result, user_version, data } => {
            pg.copy_part(id, result, user_version, data, cx)
        }
        PgBody::ShardPart { id, place, result, data } => {
            pg.handle_shard_part(from, (id, place), result, data, cx);
        }
        PgBody::Staged { id, upto } => pg.piece_staged(from, id, upto, cx),
        PgBody::StageRefused { id } => pg.go_on_whole(id, cx),
        PgBody::Activated { lease_ms } => pg.activated(from, lease_ms, cx),
        PgBody::OutOfStep => pg.peer_again(cx),
        PgBody::Damaged { object } => pg.handle_damaged(from, object, cx),
        PgBody::Newer { object, version } => pg.handle_newer(from, object, version, cx),
        PgBody::Room { bytes } => pg.handle_room(from, bytes, cx),
        PgBody::BackfillGrant { id, granted } => pg.handle_backfill_grant(from, id, granted, cx),
        PgBody::ScrubGrant { granted } => pg.handle_scrub_grant(from, granted, cx),
        PgBody::ScrubMap(part) => pg.handle_scrub_map(from, *part, cx),
        PgBody::RepOpAck { version, .. } => pg.handle_rep_op_ack(from, version, cx),
        PgBody::PushAck { objects } => pg.handle_push_ack(from, &objects, cx),
        PgBody::PullRefused { object, need } => pg.handle_pull_refused(from, &object, need, cx),
        PgBody::BackfillWants { end, objects } => pg.handle_backfill_wants(from, &end, objects, cx),
        PgBody::BackfillAck { last_backfill } => pg.handle_backfill_ack(from, last_backfill, cx),
    }
}
