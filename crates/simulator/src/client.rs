//! Client processes: what they ask, and what they make of the answers; they take only the answer to their last attempt.

use std::collections::{BTreeMap, BTreeSet};

use maps::{OsdMap, Placements};
use messages::Message;
use messages::osd::{MOsdBackoff, MOsdOp, MOsdOpReply, OpResult, flags};
use pg::IntervalKey;
use testkit::Rng;
use types::{ConnId, Epoch, HObject, PgId, PoolId, ReqId, SnapContext, SnapId, SpgId, Utime};

use crate::faults::{Death, Trigger};
use crate::history::{Call, Outcome, Record};
use crate::mutant::Mutant;
use crate::net::Node;
use crate::objecter::{MapWish, OsdSession};
use crate::queue::{MILLISECOND, SECOND, Time};
use crate::workload::{operations, outcome, payload, random_call, too_large};
use crate::world::{Event, MonLink, World};

/// Where there are quiet spells, a busy one of this length begins every so often, and with every fault.
const SPELL_EVERY: Time = 40 * SECOND;
const SPELL: Time = 3 * SECOND;
/// Of an object that nobody reads.
const COLD_BYTES: usize = 40_000;

/// One request under way.
pub struct Pending {
    pub record: usize,
    pub msg: MOsdOp,
    /// The interval it was aimed at.
    pub key: Option<IntervalKey>,
    pub target: i32,
    /// The session it was sent on; `None`: it has to be sent.
    pub conn: Option<ConnId>,
    /// The map says that there is no room.
    pub paused: bool,
    /// Its session was closed and its interval goes on: nothing sends it before the interval ends.
    pub stuck: bool,
    pub attempts: i32,
    pub sent: Time,
}

/// A client process.
pub struct Client {
    /// Which process: a new one begins without maps, sessions, and a global id.
    pub life: u32,
    pub mon: MonLink,
    pub map: Option<OsdMap>,
    /// Where CRUSH puts that map's PGs.
    pub placements: Placements,
    pub wish: MapWish,
    pub rng: Rng,
    pub pending: BTreeMap<u64, Pending>,
    /// The session to each OSD.
    pub sessions: BTreeMap<i32, OsdSession>,
    /// What OSDs told it not to send, by session and number.
    pub backoffs: BTreeMap<(ConnId, u64), MOsdBackoff>,
    next_tid: u64,
    /// Grows with each busy spell.
    pub spell: u32,
    /// It only reads, one request per object at a time: what waits for one object does not keep it from others.
    reader: bool,
    /// No new requests.
    pub paused: bool,
    pub acked: u64,
}

impl Client {
    /// Client `c` of `count`, of whom `only_reads` does. The last other one writes when nobody else does: a run without a write
    /// shows nothing.
    pub fn new(seed: u64, c: usize, count: usize, only_reads: Option<usize>) -> Self {
        let (rng, _) = character(seed, c);
        let reads = |c: usize| only_reads == Some(c) || is_reader(seed, c);
        let alone = c + 1 == count && (0..c).all(reads);
        Self::process(1, rng, only_reads == Some(c) || reads(c) && !alone)
    }

    fn process(life: u32, rng: Rng, reader: bool) -> Self {
        Self {
            life,
            mon: MonLink::default(),
            map: None,
            placements: Placements::default(),
            wish: MapWish::default(),
            rng,
            pending: BTreeMap::new(),
            sessions: BTreeMap::new(),
            backoffs: BTreeMap::new(),
            next_tid: 0,
            spell: 0,
            reader,
            paused: true,
            acked: 0,
        }
    }

    /// The process that is started when this one has ended.
    fn successor(&self, mutant: Option<Mutant>) -> Self {
        let next = Self::process(self.life + 1, self.rng.clone(), self.reader);
        let mut mon = MonLink::default();
        if mutant == Some(Mutant::SameClient) {
            mon.global_id = self.mon.global_id;
        }
        Self { paused: self.paused, acked: self.acked, mon, ..next }
    }

    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.map.is_some()
    }

    /// What waits longest, for reports.
    pub fn oldest(&self) -> Option<(u64, i32, i32)> {
        self.pending.iter().next().map(|(tid, p)| (*tid, p.target, p.attempts))
    }
}

/// A client's random numbers, and whether it only reads.
fn character(seed: u64, c: usize) -> (Rng, bool) {
    let mut rng = Rng::new(seed ^ (0xc11e_0000 + c as u64));
    let reader = rng.one_in(4);
    (rng, reader)
}

pub fn is_reader(seed: u64, c: usize) -> bool {
    character(seed, c).1
}

pub fn object_name(object: usize) -> String {
    format!("object-{object}")
}

/// An object's place in the only pool.
pub fn object(map: &OsdMap, object: usize) -> Option<HObject> {
    let (pool_id, pool) = map.pools.iter().next()?;
    let name = object_name(object);
    let hash = pool.hash_key(&name, "");
    Some(HObject { pool: PoolId(pool_id.0), hash, name: name.into(), snap: SnapId::HEAD, ..HObject::min() })
}

impl World {
    pub fn start_client(&mut self, c: usize) {
        let life = self.clients[c].life;
        self.seek_mon(Node::Client(c), life);
        self.plan_in(5 * SECOND, Event::Tick { node: Node::Client(c), life });
    }

    /// A client's process ends, and another one begins: what it had under way is never answered.
    pub fn restart_client(&mut self, c: usize) {
        self.drop_connections(Node::Client(c), Death::Killed);
        self.clients[c] = self.clients[c].successor(self.scenario.mutant);
        self.start_client(c);
        self.start_thinking(c);
    }

    /// Lets every client begin (again).
    pub fn resume_clients(&mut self) {
        for c in 0..self.clients.len() {
            self.clients[c].paused = false;
            self.start_thinking(c);
        }
        self.guests.iter_mut().for_each(|g| g.paused = false);
        self.wake_guests();
    }

    fn start_thinking(&mut self, c: usize) {
        for _ in 0..self.depth(c) {
            let at = self.clients[c].rng.below(20 * MILLISECOND);
            let spell = self.clients[c].spell;
            self.plan_in(at, Event::Think { client: c, spell });
        }
    }

    /// A busy spell begins for everybody.
    pub fn wake_clients(&mut self) {
        self.busy_until = self.now + SPELL;
        if self.scenario.options.quiet_think.is_none() {
            return;
        }
        self.wake_guests();
        for c in 0..self.clients.len() {
            self.clients[c].spell += 1;
            self.start_thinking(c);
        }
    }

    fn depth(&self, c: usize) -> usize {
        let o = &self.scenario.options;
        if self.clients[c].reader { o.objects - o.cold } else { o.depth }
    }

    /// The next random request.
    pub fn think(&mut self, c: usize) {
        let depth = self.depth(c);
        let options = &self.scenario.options;
        let client = &mut self.clients[c];
        if client.paused || client.pending.len() >= depth {
            return;
        }
        if client.map.is_none() {
            let wait = 20 * MILLISECOND + client.rng.below(50 * MILLISECOND);
            let spell = client.spell;
            return self.plan_in(wait, Event::Think { client: c, spell });
        }
        let mut object = client.rng.below(options.objects as u64) as usize;
        let warm = options.objects - options.cold;
        if object >= warm {
            if !client.reader && !self.sizes.contains_key(&object) {
                let data = payload(self.history.len() as u64 + 1, COLD_BYTES);
                return self.begin(c, object, Call::WriteFull(data));
            }
            object %= warm;
        }
        if client.reader {
            let busy: BTreeSet<usize> =
                client.pending.values().map(|p| self.history[p.record].object).collect();
            let mut all = (0..warm).map(|i| (object + i) % warm);
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

    /// Mean time between a reply and the next request, as things are now.
    pub fn think_time(&self) -> Time {
        let o = &self.scenario.options;
        match o.quiet_think {
            Some(quiet) if self.now > self.busy_until && self.now % SPELL_EVERY > SPELL => quiet,
            _ => o.think,
        }
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
            ops: operations(&call, &self.scenario.options),
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
        let pending = Pending {
            record,
            msg,
            key: None,
            target: -1,
            conn: None,
            paused: false,
            stuck: false,
            attempts: 0,
            sent: self.now,
        };
        client.pending.insert(tid, pending);
        self.send_waiting(c);
    }

    pub fn client_message(&mut self, c: usize, conn: ConnId, from: Node, tid: u64, msg: Message) {
        match (from, msg) {
            (_, Message::OsdMap(m)) => self.client_map(c, &m),
            (Node::Osd(_), Message::OsdBackoff(b)) => self.client_backoff(c, conn, b),
            (Node::Osd(_), Message::OsdOpReply(r)) => {
                let ops = r.ops.iter().cloned().map(OpResult::joined).collect();
                self.client_reply(c, conn, tid, &MOsdOpReply { ops, ..*r });
            }
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
        match outcome(&rec.call, r.result, &r.ops) {
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
            _ => self.pull(Trigger::Heard, Node::Client(c)),
        }
        let think = self.think_time();
        let wait = self.clients[c].rng.below(think * 2) + 1;
        let spell = self.clients[c].spell;
        self.plan_in(wait, Event::Think { client: c, spell });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_writes_at_every_seed() {
        for (seed, count) in (0..200).flat_map(|seed| (1..5).map(move |count| (seed, count))) {
            let readers = (0..count).filter(|c| Client::new(seed, *c, count, None).reader).count();
            assert!(readers < count, "seed {seed}: all {count} only read");
        }
    }
}
