//! How a client finds OSDs, as librados does: one OSD map at a time, requests sent again when their interval ends or their
//! session breaks, connections that are tried again and again until a map says better.
//!
//! Source: src/osdc/Objecter.cc (handle_osd_map, _calc_target, ms_handle_reset, tick), src/mon/MonSub.cc,
//! ProtocolV2::_fault in src/msg/async/ProtocolV2.cc.

use std::collections::BTreeMap;

use codec::Decode;
use maps::flags::map_flags;
use maps::{Incremental, OsdMap, pool_flags};
use messages::mon::{MMonSubscribe, MOsdMap, SubscribeItem};
use messages::osd::{MOsdBackoff, MOsdOp, backoff_op, flags};
use pg::IntervalKey;
use types::{ConnId, Epoch, HObject, PgId, SpgId};

use crate::client::Client;
use crate::mutant::Mutant;
use crate::net::{End, Node};
use crate::queue::{MILLISECOND, SECOND, Time};
use crate::world::{Event, World, life_of};

/// A request that waits longer makes its client ask for a map. Source: objecter_timeout.
const LAGGY: Time = 10 * SECOND;
/// Source: ms_initial_backoff, ms_max_backoff.
const FIRST_BACKOFF: Time = 200 * MILLISECOND;
const LAST_BACKOFF: Time = 15 * SECOND;
/// Source: CEPH_SUBSCRIBE_ONETIME.
const ONETIME: u8 = 1;

/// The subscription to the next OSD map: one map, then it has to be asked for again.
#[derive(Debug, Default)]
pub struct MapWish {
    /// The first epoch wanted, not asked for yet.
    new: Option<u64>,
    /// The same, asked for.
    sent: Option<u64>,
}

impl MapWish {
    /// Whether there is something new to ask for.
    fn want(&mut self, start: u64) -> bool {
        let known = self.new == Some(start) || self.sent == Some(start);
        if !known {
            self.new = Some(start);
        }
        !known
    }

    fn got(&mut self, have: u64) {
        let wish = if self.new.is_some() { &mut self.new } else { &mut self.sent };
        if wish.is_some_and(|start| start <= have) {
            *wish = None;
        }
    }
}

/// The session to an OSD.
#[derive(Debug, Clone, Copy)]
pub struct OsdSession {
    pub conn: ConnId,
    /// Which process of the OSD, as the map named it.
    life: u32,
    /// Before the next attempt, when this one fails.
    backoff: Time,
}

/// Whether the request is of the backoff's PG and range.
fn covers(b: &MOsdBackoff, m: &MOsdOp) -> bool {
    m.pgid == b.pgid && (m.object == b.begin || (b.begin < m.object && m.object < b.end))
}

/// Whether a write has to wait until there is room. Source: Objecter::target_should_be_paused.
fn has_no_room(map: &OsdMap, m: &MOsdOp) -> bool {
    let pool = map.pools.iter().find(|(id, _)| id.0 == m.object.pool.0).map(|(_, p)| p);
    let full = map.test_flag(map_flags::FULL) || pool.is_some_and(|p| p.has_flag(pool_flags::FULL));
    full && m.flags & flags::WRITE != 0
}

fn pg_of(map: &OsdMap, o: &HObject) -> Option<PgId> {
    map.raw_pg_to_pg(PgId::new(o.pool, o.hash))
}

impl World {
    // Requests.

    /// Sends whatever is not sent and has a primary, in order.
    pub fn send_waiting(&mut self, c: usize) {
        let Some(map) = self.clients[c].map.take() else { return };
        for p in self.clients[c].pending.values_mut().filter(|p| p.conn.is_none()) {
            p.paused = has_no_room(&map, &p.msg);
        }
        let waits = |(tid, p): (&u64, &crate::client::Pending)| {
            (p.conn.is_none() && !p.stuck && !p.paused).then_some(*tid)
        };
        let tids: Vec<u64> = self.clients[c].pending.iter().filter_map(waits).collect();
        for tid in tids {
            self.send_request(c, &map, tid);
        }
        self.clients[c].map = Some(map);
        if self.clients[c].pending.values().any(|p| p.conn.is_none()) {
            self.maybe_request_map(c);
        }
    }

    fn send_request(&mut self, c: usize, map: &OsdMap, tid: u64) {
        let Some(pgid) = self.clients[c].pending.get(&tid).and_then(|p| pg_of(map, &p.msg.object)) else {
            return;
        };
        let key = IntervalKey::placed(map, pgid, &mut self.clients[c].placements);
        let mut target = key.as_ref().map_or(-1, |k| k.members.acting_primary.0);
        if self.scenario.mutant == Some(Mutant::ReadAnyCopy) {
            let read = self.clients[c].pending[&tid].msg.ops.iter().all(|op| op.code.is_read());
            if let Some(k) = key.as_ref().filter(|k| read && !k.members.acting.is_empty()) {
                target = self.clients[c].rng.pick(&k.members.acting).0;
            }
        }
        let life = map.osd(target).filter(|o| o.is_up()).map_or(0, |o| life_of(&o.client_addrs));
        if target < 0 || life == 0 {
            return;
        }
        let conn = match self.clients[c].sessions.get(&target) {
            Some(session) => session.conn,
            None => self.open_session(c, target, life),
        };
        let client = &mut self.clients[c];
        let Some(p) = client.pending.get_mut(&tid) else { return };
        p.key = key;
        p.target = target;
        p.msg.pgid = map.primary_shard(pgid).map_or(SpgId::replicated(pgid), |(_, id)| id);
        p.msg.epoch = map.epoch;
        let blocks = |(on, b): (&(ConnId, u64), &MOsdBackoff)| on.0 == conn && covers(b, &p.msg);
        if client.backoffs.iter().any(blocks) {
            // It goes out when the backoff ends.
            (p.conn, p.sent) = (Some(conn), self.now);
            return;
        }
        self.send_on(c, tid, conn);
    }

    /// An OSD says what not to send to it, or that it may be sent now. Source: Objecter::handle_osd_backoff.
    pub fn client_backoff(&mut self, c: usize, conn: ConnId, b: MOsdBackoff) {
        if !self.clients[c].sessions.values().any(|s| s.conn == conn) {
            return;
        }
        if b.op == backoff_op::BLOCK {
            let ack = MOsdBackoff { op: backoff_op::ACK_BLOCK, ..b.clone() };
            self.clients[c].backoffs.insert((conn, b.id), b);
            return self.net.send(self.now, conn, End::Opener, 0, ack.into());
        }
        if self.clients[c].backoffs.remove(&(conn, b.id)).is_none() {
            return self.violation(format!("client {c} knows no backoff {} on {conn:?}", b.id));
        }
        let held = |tid: &u64| self.clients[c].pending.get(tid).is_some_and(|p| covers(&b, &p.msg));
        let again: Vec<u64> = self.clients[c].sent_on(conn).into_iter().filter(held).collect();
        for tid in again {
            self.send_on(c, tid, conn);
        }
    }

    /// One more attempt.
    fn send_on(&mut self, c: usize, tid: u64, conn: ConnId) {
        let now = self.now;
        let Some(p) = self.clients[c].pending.get_mut(&tid) else { return };
        p.conn = Some(conn);
        p.sent = now;
        p.msg.retry_attempt = p.attempts;
        if p.attempts > 0 {
            p.msg.flags |= flags::RETRY;
        }
        p.attempts += 1;
        let (msg, record) = (p.msg.clone(), p.record);
        self.history[record].sends += 1;
        self.net.send(now, conn, End::Opener, tid, msg.into());
    }

    // Sessions.

    fn open_session(&mut self, c: usize, osd: i32, life: u32) -> ConnId {
        let conn = self.connect(Node::Client(c), Node::Osd(osd), life, true);
        self.clients[c].sessions.insert(osd, OsdSession { conn, life, backoff: FIRST_BACKOFF });
        conn
    }

    /// A connection is over. One that stood is made anew at once, and everything on it sent again; one that did not is tried
    /// again later, without anybody above hearing of it.
    pub fn client_session_gone(&mut self, c: usize, osd: i32, conn: ConnId, stood: bool) {
        let client = &mut self.clients[c];
        let Some(session) = client.sessions.get_mut(&osd).filter(|s| s.conn == conn) else { return };
        if !stood {
            let (wait, life) = (session.backoff, client.life);
            session.backoff = (wait * 2).min(LAST_BACKOFF);
            return self.plan_in(wait, Event::ReachOsd { client: c, life, osd, conn });
        }
        client.sessions.remove(&osd);
        client.backoffs.retain(|(on, _), _| *on != conn);
        let addrs =
            client.map.as_ref().and_then(|m| m.osd(osd)).filter(|o| o.is_up()).map(|o| &o.client_addrs);
        let life = addrs.map_or(0, life_of);
        let tids = client.sent_on(conn);
        if life > 0 {
            let again = self.open_session(c, osd, life);
            for tid in tids {
                self.send_on(c, tid, again);
            }
        } else {
            client.pending.values_mut().filter(|p| p.conn == Some(conn)).for_each(|p| p.conn = None);
        }
        self.maybe_request_map(c);
    }

    /// The next attempt of a connection that never stood, with the same messages.
    pub fn reach_osd(&mut self, c: usize, life: u32, osd: i32, conn: ConnId) {
        if self.clients[c].life != life {
            return;
        }
        let Some(session) = self.clients[c].sessions.get(&osd).copied().filter(|s| s.conn == conn) else {
            return;
        };
        let again = self.connect(Node::Client(c), Node::Osd(osd), session.life, true);
        self.clients[c].sessions.insert(osd, OsdSession { conn: again, ..session });
        for tid in self.clients[c].sent_on(conn) {
            let Some(p) = self.clients[c].pending.get_mut(&tid) else { continue };
            p.conn = Some(again);
            let msg = p.msg.clone();
            self.net.send(self.now, again, End::Opener, tid, msg.into());
        }
    }

    /// A session that stands begins anew with short waits.
    pub fn client_osd_ready(&mut self, c: usize, osd: i32, conn: ConnId) {
        if let Some(s) = self.clients[c].sessions.get_mut(&osd).filter(|s| s.conn == conn) {
            s.backoff = FIRST_BACKOFF;
        }
    }

    // Maps.

    /// Asks for the next map, unless that is asked already.
    fn maybe_request_map(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let start = client.map.as_ref().map_or(0, |m| u64::from(m.epoch.0) + 1);
        if client.wish.want(start) {
            self.renew_wish(c);
        }
    }

    fn renew_wish(&mut self, c: usize) {
        let client = &mut self.clients[c];
        if !client.mon.ready {
            return;
        }
        let Some(start) = client.wish.new.take() else { return };
        client.wish.sent = Some(start);
        let what = BTreeMap::from([("osdmap".to_owned(), SubscribeItem { start, flags: ONETIME })]);
        self.send_mon(Node::Client(c), 0, MMonSubscribe { what, hostname: String::new() }.into());
    }

    /// A new session with the monitor: what the old one did not answer is asked again.
    pub fn client_mon_ready(&mut self, c: usize) {
        let wish = &mut self.clients[c].wish;
        wish.new = wish.new.or(wish.sent);
        if self.clients[c].map.is_none() {
            self.clients[c].wish.want(0);
        }
        self.renew_wish(c);
    }

    pub fn client_map(&mut self, c: usize, m: &MOsdMap) {
        let have = self.clients[c].map.as_ref().map_or(Epoch(0), |map| map.epoch);
        let Some(last) = m.last().filter(|last| *last > have) else { return };
        let mut gap = false;
        while self.clients[c].map.as_ref().map_or(Epoch(0), |map| map.epoch) < last && !gap {
            match next_map(self.clients[c].map.as_ref(), m) {
                Ok((map, skipped)) => {
                    self.clients[c].saw(&map, skipped);
                    self.clients[c].map = Some(map);
                    self.close_old_sessions(c);
                }
                Err(None) => gap = true,
                Err(Some(text)) => {
                    gap = true;
                    self.violation(text);
                }
            }
        }
        if gap {
            self.maybe_request_map(c);
        }
        let have = self.clients[c].map.as_ref().map_or(0, |m| u64::from(m.epoch.0));
        self.clients[c].wish.got(have);
        self.send_waiting(c);
    }

    /// Requests of a closed session whose interval goes on wait for the next interval, as librados's do: a map must never
    /// change the address of an OSD that it does not mark down first.
    fn close_old_sessions(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let Some(map) = &client.map else { return };
        let life = |osd: i32| map.osd(osd).filter(|o| o.is_up()).map_or(0, |o| life_of(&o.client_addrs));
        let old = |(osd, s): (&i32, &OsdSession)| (life(*osd) != s.life).then_some((*osd, s.conn));
        let old: Vec<(i32, ConnId)> = client.sessions.iter().filter_map(old).collect();
        for (osd, conn) in old {
            client.sessions.remove(&osd);
            client.backoffs.retain(|(on, _), _| *on != conn);
            for p in client.pending.values_mut().filter(|p| p.conn == Some(conn)) {
                p.conn = None;
                p.stuck = true;
            }
            self.net.close(self.now, conn, End::Opener);
        }
    }

    /// Requests that take long, or have nobody to go to: perhaps there is a newer map.
    pub fn client_tick(&mut self, c: usize) {
        let now = self.now;
        if self.clients[c].pending.values().any(|p| p.conn.is_none() || now - p.sent > LAGGY) {
            self.maybe_request_map(c);
        }
    }
}

impl Client {
    /// Requests under way on a connection, in order.
    fn sent_on(&self, conn: ConnId) -> Vec<u64> {
        self.pending.iter().filter(|(_, p)| p.conn == Some(conn)).map(|(tid, _)| *tid).collect()
    }

    /// Requests whose interval this map ends must be sent again; after a jump over maps nobody knows whether theirs ended.
    fn saw(&mut self, map: &OsdMap, skipped: bool) {
        for p in self.pending.values_mut() {
            let pgid = pg_of(map, &p.msg.object);
            let key = pgid.and_then(|pgid| IntervalKey::placed(map, pgid, &mut self.placements));
            let paused = has_no_room(map, &p.msg);
            if p.key != key || skipped || (p.paused && !paused) {
                p.conn = None;
                p.stuck = false;
                p.key = key;
            }
            p.paused = paused;
        }
    }
}

/// The map after `at`, and whether maps between them were skipped; `Err(None)`: the message does not lead on from there.
fn next_map(at: Option<&OsdMap>, m: &MOsdMap) -> Result<(OsdMap, bool), Option<String>> {
    let mut next = at.map_or(Epoch(0), |map| map.epoch).next();
    let decode = |epoch: Epoch, raw: &bytes::Bytes| {
        OsdMap::from_bytes(raw.clone()).map_err(|e| Some(format!("map {epoch}: {e}")))
    };
    let Some(map) = at else {
        let (epoch, full) = m.full.last_key_value().ok_or(None)?;
        return Ok((decode(*epoch, full)?, false));
    };
    if let Some(raw) = m.incremental.get(&next) {
        let mut map = map.clone();
        let inc = Incremental::from_bytes(raw.clone()).map_err(|e| Some(format!("increment {next}: {e}")))?;
        map.apply_checked(&inc).map_err(|e| Some(format!("increment {next}: {e}")))?;
        return Ok((map, false));
    }
    let skipped = next < m.oldest;
    next = next.max(m.oldest);
    let full = m.full.get(&next).ok_or(None)?;
    Ok((decode(next, full)?, skipped))
}
