//! Clients that behave as librados does: they follow every map, send to the primary, send again under the same name when
//! the interval changed or the session broke, and take only the answer to their last attempt.

use std::collections::{BTreeMap, BTreeSet};

use codec::Decode;
use maps::{Incremental, OsdMap};
use messages::Message;
use messages::mon::{MMonSubscribe, MOsdMap, SubscribeItem};
use messages::osd::{MOsdOp, MOsdOpReply, flags};
use pg::IntervalKey;
use testkit::Rng;
use types::{ConnId, Epoch, HObject, PgId, PoolId, ReqId, SnapContext, SnapId, SpgId, Utime};

use crate::faults::Trigger;
use crate::history::{Call, Outcome, Record};
use crate::mutant::Mutant;
use crate::net::{End, Node};
use crate::queue::{MILLISECOND, SECOND, Time};
use crate::workload::{operations, outcome, random_call, too_large};
use crate::world::{Event, MonLink, World, life_of};

/// One request under way.
struct Pending {
    record: usize,
    msg: MOsdOp,
    /// The interval it was aimed at.
    key: Option<IntervalKey>,
    target: i32,
    /// The session it was sent on; `None`: it has to be sent.
    conn: Option<ConnId>,
    attempts: i32,
    sent: Time,
}

/// A client process.
pub struct Client {
    pub mon: MonLink,
    pub map: Option<OsdMap>,
    rng: Rng,
    pending: BTreeMap<u64, Pending>,
    /// The session to each OSD, and to which life.
    sessions: BTreeMap<i32, (ConnId, u32)>,
    /// OSDs whose session broke a moment ago.
    resting: BTreeMap<i32, Time>,
    next_tid: u64,
    /// It only reads, one request per object at a time: what waits for one object does not keep it from others.
    reader: bool,
    /// No new requests.
    pub paused: bool,
    pub acked: u64,
}

impl Client {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let reader = rng.one_in(4);
        Self {
            mon: MonLink::default(),
            map: None,
            rng,
            reader,
            pending: BTreeMap::new(),
            sessions: BTreeMap::new(),
            resting: BTreeMap::new(),
            next_tid: 0,
            paused: true,
            acked: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// What waits longest, for reports.
    pub fn oldest(&self) -> Option<(u64, i32, i32)> {
        self.pending.iter().next().map(|(tid, p)| (*tid, p.target, p.attempts))
    }
}

pub fn object_name(object: usize) -> String {
    format!("object-{object}")
}

/// An object's place in the only pool.
pub fn object(map: &OsdMap, object: usize) -> Option<HObject> {
    let (pool_id, pool) = map.pools.iter().next()?;
    let name = object_name(object);
    let hash = pool.hash_key(&name, "");
    Some(HObject { pool: PoolId(pool_id.0), hash, name, snap: SnapId::HEAD, ..HObject::min() })
}

fn pg_of(map: &OsdMap, o: &HObject) -> Option<PgId> {
    map.raw_pg_to_pg(PgId::new(o.pool, o.hash))
}

impl World {
    pub fn start_client(&mut self, c: usize) {
        self.seek_mon(Node::Client(c), 1);
        self.plan_in(5 * SECOND, Event::Tick { node: Node::Client(c), life: 1 });
    }

    /// Lets every client begin (again).
    pub fn resume_clients(&mut self) {
        for c in 0..self.clients.len() {
            self.clients[c].paused = false;
            for _ in 0..self.depth(c) {
                let at = self.clients[c].rng.below(20 * MILLISECOND);
                self.plan_in(at, Event::Think { client: c });
            }
        }
    }

    fn depth(&self, c: usize) -> usize {
        let o = &self.scenario.options;
        if self.clients[c].reader { o.objects } else { o.depth }
    }

    /// The next random request.
    pub fn think(&mut self, c: usize) {
        let depth = self.depth(c);
        let options = &self.scenario.options;
        let client = &mut self.clients[c];
        if client.paused || client.pending.len() >= depth {
            return;
        }
        let object = client.rng.below(options.objects as u64) as usize;
        if client.reader {
            let busy: BTreeSet<usize> =
                client.pending.values().map(|p| self.history[p.record].object).collect();
            let mut all = (0..options.objects).map(|i| (object + i) % options.objects);
            let free = all.find(|o| !busy.contains(o)).unwrap_or(object);
            return self.begin(c, free, Call::Read);
        }
        let unique = self.history.len() as u64 + 1;
        let mut call = random_call(&mut client.rng, unique, options);
        let written: u64 = self.sizes.get(&object).copied().unwrap_or(0);
        if too_large(&call, written) {
            call = Call::Delete;
        }
        self.begin(c, object, call);
    }

    /// Begins a request.
    pub fn begin(&mut self, c: usize, object: usize, call: Call) {
        match &call {
            Call::Append(d) => *self.sizes.entry(object).or_default() += d.len() as u64,
            Call::Delete | Call::WriteFull(_) => *self.sizes.entry(object).or_default() = 0,
            _ => {}
        }
        let kind = if call.is_read() { flags::READ } else { flags::WRITE | flags::ONDISK };
        let Some(hobject) = self.clients[c].map.as_ref().and_then(|m| crate::client::object(m, object))
        else {
            return;
        };
        let msg = MOsdOp {
            pgid: SpgId::replicated(PgId::default()),
            epoch: Epoch(0),
            flags: kind,
            explicit_reqid: ReqId::default(),
            client_inc: 0,
            mtime: Utime::new(50_000, 0),
            object: hobject,
            ops: operations(&call),
            snapc: SnapContext::default(),
            retry_attempt: 0,
            features: types::features::PACIFIC,
        };
        let record = self.history.len();
        self.history.push(Record {
            client: c,
            object,
            call,
            begun: self.now,
            ended: None,
            version: 0,
            sends: 0,
        });
        let client = &mut self.clients[c];
        client.next_tid += 1;
        let tid = client.next_tid;
        let pending = Pending { record, msg, key: None, target: -1, conn: None, attempts: 0, sent: self.now };
        client.pending.insert(tid, pending);
        self.send_waiting(c);
    }

    /// Sends whatever is not sent and has a primary, in order.
    fn send_waiting(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let Some(map) = client.map.take() else { return };
        let tids: Vec<u64> =
            client.pending.iter().filter(|(_, p)| p.conn.is_none()).map(|(t, _)| *t).collect();
        for tid in tids {
            self.send_request(c, &map, tid);
        }
        self.clients[c].map = Some(map);
    }

    fn send_request(&mut self, c: usize, map: &OsdMap, tid: u64) {
        let Some(pgid) = self.clients[c].pending.get(&tid).and_then(|p| pg_of(map, &p.msg.object)) else {
            return;
        };
        let key = IntervalKey::of(map, pgid);
        let mut target = key.as_ref().map_or(-1, |k| k.members.acting_primary);
        if self.scenario.mutant == Some(Mutant::ReadAnyCopy) {
            let read = self.clients[c].pending[&tid].msg.ops.iter().all(|op| op.code.is_read());
            if let Some(k) = key.as_ref().filter(|k| read && !k.members.acting.is_empty()) {
                target = *self.clients[c].rng.pick(&k.members.acting);
            }
        }
        let life = map.osd(target).map_or(0, |o| life_of(&o.client_addrs));
        let rests = self.clients[c].resting.get(&target).is_some_and(|until| *until > self.now);
        if target < 0 || life == 0 || rests {
            return;
        }
        let conn = match self.clients[c].sessions.get(&target).copied() {
            Some((conn, known)) if known == life => conn,
            other => {
                if let Some((old, _)) = other {
                    self.net.close(self.now, old, End::Opener);
                }
                let conn = self.connect(Node::Client(c), Node::Osd(target), life, true);
                self.clients[c].sessions.insert(target, (conn, life));
                conn
            }
        };
        let now = self.now;
        let Some(p) = self.clients[c].pending.get_mut(&tid) else { return };
        p.key = key;
        p.target = target;
        p.conn = Some(conn);
        p.sent = now;
        p.msg.pgid = SpgId::replicated(pgid);
        p.msg.epoch = map.epoch;
        p.msg.retry_attempt = p.attempts;
        if p.attempts > 0 {
            p.msg.flags |= flags::RETRY;
        }
        p.attempts += 1;
        let (msg, record) = (p.msg.clone(), p.record);
        self.history[record].sends += 1;
        self.net.send(now, conn, End::Opener, tid, msg.into());
    }

    pub fn client_message(&mut self, c: usize, conn: ConnId, from: Node, tid: u64, msg: Message) {
        match (from, msg) {
            (_, Message::OsdMap(m)) => self.client_map(c, &m),
            (Node::Osd(_), Message::OsdOpReply(r)) => self.client_reply(c, conn, tid, &r),
            _ => {}
        }
    }

    fn client_reply(&mut self, c: usize, conn: ConnId, tid: u64, r: &MOsdOpReply) {
        let client = &mut self.clients[c];
        let Some(p) = client.pending.get(&tid) else { return };
        if p.conn != Some(conn) || r.retry_attempt != p.attempts - 1 {
            return;
        }
        let record = p.record;
        client.pending.remove(&tid);
        client.acked += 1;
        let rec = &mut self.history[record];
        rec.version = r.user_version;
        match outcome(&rec.call, r) {
            Ok(outcome) => rec.ended = Some((self.now, outcome)),
            Err(text) => {
                let text = format!("{text}: {rec}");
                return self.violation(text);
            }
        }
        match (&rec.call, &rec.ended) {
            (Call::Read, Some((_, Outcome::Seen(seen)))) => {
                let size = seen.as_ref().map_or(0, |s| s.data.len() as u64);
                self.sizes.insert(rec.object, size);
            }
            _ => self.pull(Trigger::Heard),
        }
        let think = self.scenario.options.think;
        let wait = self.clients[c].rng.below(think * 2) + 1;
        self.plan_in(wait, Event::Think { client: c });
    }

    // Maps.

    fn subscribe(&mut self, c: usize) {
        let start = self.clients[c].map.as_ref().map_or(0, |m| u64::from(m.epoch.0) + 1);
        let what = BTreeMap::from([("osdmap".to_owned(), SubscribeItem { start, flags: 0 })]);
        self.send_mon(Node::Client(c), 0, MMonSubscribe { what, hostname: String::new() }.into());
    }

    pub fn client_mon_ready(&mut self, c: usize) {
        self.subscribe(c);
    }

    fn client_map(&mut self, c: usize, m: &MOsdMap) {
        let have = self.clients[c].map.as_ref().map_or(Epoch(0), |map| map.epoch);
        let Some(last) = m.last().filter(|last| *last > have) else { return };
        let mut at = self.clients[c].map.take();
        let mut gap = false;
        while at.as_ref().map_or(Epoch(0), |map| map.epoch) < last && !gap {
            match next_map(at.as_ref(), m) {
                Ok(map) => {
                    self.clients[c].saw(&map);
                    at = Some(map);
                }
                Err(None) => gap = true,
                Err(Some(text)) => {
                    gap = true;
                    self.violation(text);
                }
            }
        }
        self.clients[c].map = at;
        if gap {
            self.subscribe(c);
        }
        self.drop_old_sessions(c);
        self.send_waiting(c);
    }

    fn drop_old_sessions(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let Some(map) = &client.map else { return };
        let life = |osd: i32| map.osd(osd).filter(|o| o.is_up()).map_or(0, |o| life_of(&o.client_addrs));
        let old: Vec<(i32, ConnId)> = client
            .sessions
            .iter()
            .filter(|(o, (_, l))| life(**o) != *l)
            .map(|(o, (c, _))| (*o, *c))
            .collect();
        for (osd, conn) in old {
            client.sessions.remove(&osd);
            client.resting.remove(&osd);
            client.pending.values_mut().filter(|p| p.conn == Some(conn)).for_each(|p| p.conn = None);
            self.net.close(self.now, conn, End::Opener);
        }
    }

    pub fn client_session_gone(&mut self, c: usize, osd: i32, conn: ConnId) {
        let now = self.now;
        let client = &mut self.clients[c];
        if client.sessions.get(&osd).is_some_and(|(known, _)| *known == conn) {
            client.sessions.remove(&osd);
        }
        client.pending.values_mut().filter(|p| p.conn == Some(conn)).for_each(|p| p.conn = None);
        let rest = 50 * MILLISECOND + client.rng.below(200 * MILLISECOND);
        client.resting.insert(osd, now + rest);
        self.plan_in(rest, Event::ReachOsd { client: c, osd });
    }

    pub fn reach_osd(&mut self, c: usize, _osd: i32) {
        self.send_waiting(c);
    }

    /// Requests that take long: perhaps there is a newer map.
    pub fn client_tick(&mut self, c: usize) {
        let now = self.now;
        if self.clients[c].pending.values().any(|p| now - p.sent > 5 * SECOND) {
            self.subscribe(c);
        }
    }
}

impl Client {
    /// Requests whose interval this map ends must be sent again.
    fn saw(&mut self, map: &OsdMap) {
        for p in self.pending.values_mut().filter(|p| p.conn.is_some()) {
            let key = pg_of(map, &p.msg.object).and_then(|pgid| IntervalKey::of(map, pgid));
            if p.key != key {
                p.conn = None;
            }
        }
    }
}

/// The map after `at`; `Err(None)`: the message does not lead on from there.
fn next_map(at: Option<&OsdMap>, m: &MOsdMap) -> Result<OsdMap, Option<String>> {
    let next = at.map_or(Epoch(0), |map| map.epoch).next();
    if let (Some(map), Some(raw)) = (at, m.incremental.get(&next)) {
        let mut map = map.clone();
        let inc = Incremental::from_bytes(raw.clone()).map_err(|e| Some(format!("increment {next}: {e}")))?;
        map.apply_checked(&inc).map_err(|e| Some(format!("increment {next}: {e}")))?;
        return Ok(map);
    }
    let full = m.full.get(&next).or_else(|| m.full.values().next_back()).ok_or(None)?;
    OsdMap::from_bytes(full.clone()).map_err(|e| Some(format!("map {next}: {e}")))
}
