//! What a client hears: answers of OSDs, monitors and managers, maps, notifications, given to the core of the
//! client side while it waits for some of them; and the outputs of operations, as whoever asked for them
//! reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use crush::{CrushMap, RuleMode};
use maps::flags::WEIGHT_IN;
use maps::{Incremental, OsdAddrs, OsdMap, Pool, PoolType};
use messages::Message;
use messages::mon::MOsdMap;
use messages::osd::{
    Checksums, CopyData, Extent, ListSnapsResponse, ListWatchersResponse, MWatchNotify, NotifyResult,
    OmapKeysResponse, OmapValsResponse, Op, PglsResponse, PgnlsResponse, SparseReadResponse, StatResponse,
    flags, watch_event,
};
use messages::wire::{Header, WireMessage};
use objecter::{Effect, Input, Objecter, OpRequest, Request, SessionId, Settings, Ticket};
use types::{
    AddrVec, EntityAddr, Epoch, Errno, Fsid, HObject, Now, OsdId, PgId, PoolId, SnapContext, SnapId, Utime,
    features,
};

use crate::recorded::{self, Captured};

const FSID: Fsid = Fsid([7; 16]);
const POOL: PoolId = PoolId(1);
/// Of a record: from whom, which request is answered; number, version, lengths of front and data.
const HEAD: usize = 9;
/// Instead of a message's number: something that happens.
const EVENT: u16 = u16::MAX;

struct Maps {
    full: Bytes,
    epoch: Epoch,
    /// What follows, one after the other.
    increments: BTreeMap<Epoch, Bytes>,
}

/// Three OSDs that are up and a pool; then one of them is marked down, comes back, and the pool has more PGs.
fn maps() -> &'static Maps {
    static MAPS: OnceLock<Maps> = OnceLock::new();
    MAPS.get_or_init(|| {
        let mut crush = CrushMap::new_default();
        for osd in 0..3 {
            let at = BTreeMap::from([("root".into(), "default".into()), ("host".into(), format!("h{osd}"))]);
            crush.insert_item(osd, 0x1_0000, &format!("osd.{osd}"), &at).expect("inserted");
        }
        crush.add_simple_rule("r", "default", "osd", None, RuleMode::Firstn, 1, None).expect("a rule");
        let mut map = OsdMap::new_cluster(FSID, Utime::new(1, 0), crush);
        next(&mut map, |inc, map| {
            for osd in 0..3 {
                inc.create_osd(map, OsdId(osd), Fsid([100 + osd as u8; 16]));
                inc.set_weight(OsdId(osd), WEIGHT_IN);
            }
        });
        next(&mut map, |inc, map| {
            (0..3).for_each(|osd| boot(inc, map, osd, 1));
            let pool = Pool { size: 2, min_size: 1, ..Pool::new(PoolType::Replicated, 8) };
            inc.create_pool(map, "p", pool);
        });
        let (full, epoch) = (map.encode_with_crc().0, map.epoch);
        let changes: [fn(&mut Incremental, &OsdMap); 3] = [
            |inc, map| inc.mark_down(map, OsdId(1)),
            |inc, map| boot(inc, map, 1, 2),
            |inc, map| {
                if let Some(pool) = inc.pool_mut(map, POOL) {
                    pool.pg_num = 16;
                }
            },
        ];
        let increments = changes.map(|change| next(&mut map, change)).into();
        Maps { full, epoch, increments }
    })
}

fn boot(inc: &mut Incremental, map: &OsdMap, osd: i32, life: u32) {
    let at = |port: u16| AddrVec::single(EntityAddr::v2(([127, 0, 0, 1], port + osd as u16).into(), life));
    let addrs = OsdAddrs { client: at(6_800), cluster: at(6_900), hb_back: at(7_000), hb_front: at(7_100) };
    inc.boot_osd(map, OsdId(osd), addrs, features::PACIFIC);
}

fn next(map: &mut OsdMap, change: impl FnOnce(&mut Incremental, &OsdMap)) -> (Epoch, Bytes) {
    let now = Utime::new(1_000 + map.epoch.0, 0);
    let mut inc = Incremental::after(map, now);
    change(&mut inc, map);
    *map = inc.finish(map, now).expect("applies").0;
    (map.epoch, inc.to_bytes())
}

fn map_message(incremental: BTreeMap<Epoch, Bytes>) -> Message {
    let full = if incremental.is_empty() {
        BTreeMap::from([(maps().epoch, maps().full.clone())])
    } else {
        BTreeMap::new()
    };
    let newest = incremental.keys().last().copied().unwrap_or(maps().epoch);
    MOsdMap { fsid: FSID, full, incremental, oldest: Epoch(1), newest }.into()
}

/// The core of a client, with what it waits for.
struct Client {
    core: Objecter,
    now: Duration,
    next_ticket: u64,
    /// Those of operations, which have a time.
    timed: Vec<Ticket>,
    open: BTreeSet<SessionId>,
    done: BTreeSet<Ticket>,
    /// Numbers of what was sent: to a monitor, then to sessions.
    asked: Vec<u64>,
    sent: Vec<(SessionId, u64)>,
    cookies: Vec<u64>,
}

impl Client {
    fn new() -> Self {
        let mut client = Self {
            core: Objecter::new(Settings { max_ops: 24, ..Settings::default() }),
            now: Duration::from_secs(100),
            next_ticket: 0,
            timed: Vec::new(),
            open: BTreeSet::new(),
            done: BTreeSet::new(),
            asked: Vec::new(),
            sent: Vec::new(),
            cookies: Vec::new(),
        };
        client.input(Input::MonReady);
        client.input(Input::FromMon { tid: 0, msg: map_message(BTreeMap::new()) });
        client.ask();
        client
    }

    fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let now = Now { mono: self.now, wall: Utime::new(5_000_000, 0).plus(self.now) };
            let mut out = Vec::new();
            self.core.handle(now, input, &mut out);
            self.core.assert_invariants();
            for effect in out {
                match effect {
                    Effect::Open { session, .. } => {
                        assert!(self.open.insert(session), "a session is opened once");
                        inputs.push(Input::SessionReady(session));
                    }
                    Effect::Close(session) => assert!(self.open.remove(&session), "it was open"),
                    Effect::Send { session, tid, .. } => {
                        assert!(self.open.contains(&session), "sent on a session that is not open");
                        self.sent.push((session, tid));
                    }
                    // Subscriptions have no number.
                    Effect::SendMon { tid, .. } => self.asked.extend((tid != 0).then_some(tid)),
                    Effect::Done(ticket, outcome) => {
                        assert!(self.done.insert(ticket), "a ticket ends once");
                        if let objecter::Outcome::Watching { cookie } = outcome {
                            self.cookies.push(cookie);
                        }
                    }
                    Effect::Watch { .. } | Effect::NewMap(_) | Effect::NewMonMap(_) => {}
                }
            }
        }
    }

    /// One of each request.
    fn ask(&mut self) {
        let object =
            |name: &str| HObject { pool: POOL, name: name.into(), snap: SnapId::HEAD, ..HObject::min() };
        let op = |name: &str, op: Op, flags: u32| {
            Request::Op(Box::new(OpRequest {
                object: object(name),
                ops: vec![op.into()],
                flags,
                snapc: SnapContext::default(),
                mtime: None,
                timeout: Some(Duration::from_secs(60)),
            }))
        };
        let cmd = || vec![r#"{"prefix":"status"}"#.to_owned()];
        let input = Bytes::new;
        let write = Op::WriteFull { extent: Extent::new(0, 4), data: Bytes::from_static(b"data") };
        let requests = [
            op("a", Op::Read(Extent::new(0, 100)), flags::READ),
            op("a", write, flags::WRITE),
            op("b", Op::Stat, flags::READ),
            Request::Watch { object: object("a"), timeout_s: 30 },
            Request::Notify { object: object("a"), payload: Bytes::from_static(b"p"), timeout_s: 5 },
            Request::MonCommand { cmd: cmd(), input: input() },
            Request::OsdCommand { osd: 1, cmd: cmd(), input: input() },
            Request::PgCommand { pg: PgId::new(POOL, 1), cmd: cmd(), input: input() },
            Request::MgrCommand { cmd: cmd(), input: input() },
            Request::PoolOp { pool: POOL, op: 0x21, snap: SnapId(1), name: "s".to_owned(), crush_rule: 0 },
            Request::Statfs { pool: None },
            Request::PoolStats { pools: vec!["p".to_owned()] },
            Request::LatestMap,
            Request::WaitMap(Epoch(7)),
        ];
        for request in requests {
            self.submit(request);
        }
    }

    fn submit(&mut self, request: Request) {
        self.next_ticket += 1;
        if matches!(request, Request::Op(_)) {
            self.timed.push(Ticket(self.next_ticket));
        }
        self.input(Input::Submit(Ticket(self.next_ticket), request));
    }

    fn hear(&mut self, from: u8, which: u8, msg: Message) {
        let which = usize::from(which);
        if from == 0 {
            let tid = self.asked.get(which).copied().unwrap_or(which as u64);
            return self.input(Input::FromMon { tid, msg });
        }
        let mut sent = self.sent.iter().rev();
        let (session, tid) = sent.nth(which).copied().unwrap_or((SessionId(which as u64), 1));
        self.input(Input::FromSession { session, tid, msg });
    }

    fn happen(&mut self, from: u8, which: u8) {
        match which % 8 {
            0 => self.pass(Duration::from_secs(1)),
            1 => self.pass(Duration::from_secs(30)),
            2 => {
                let session = self.open.iter().nth(usize::from(from) % self.open.len().max(1)).copied();
                if let Some(session) = session {
                    self.open.remove(&session);
                    self.input(Input::SessionGone(session));
                }
            }
            3 => {
                self.input(Input::MonGone);
                self.input(Input::MonReady);
            }
            4 if self.next_ticket < 500 => self.ask(),
            5 => self.input(Input::Cancel(Ticket(from.into()), Errno::ETIMEDOUT)),
            6 => {
                let cookie = self.cookies.last().copied().unwrap_or(from.into());
                self.submit(Request::Unwatch { cookie });
            }
            _ => {
                let cookie = self.cookies.last().copied().unwrap_or(from.into());
                self.submit(Request::WatchCheck { cookie });
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.input(Input::Tick);
    }
}

/// Records of messages and events.
pub(crate) fn replies(data: &[u8]) {
    drop(heard(data));
}

fn heard(data: &[u8]) -> Client {
    let mut client = Client::new();
    let mut rest = data;
    while let Some((head, body)) = rest.split_first_chunk::<HEAD>() {
        let [from, which, t0, t1, version, f0, f1, d0, d1] = *head;
        let (front, body) = body.split_at(usize::from(u16::from_le_bytes([f0, f1])).min(body.len()));
        let (data, body) = body.split_at(usize::from(u16::from_le_bytes([d0, d1])).min(body.len()));
        rest = body;
        let ty = u16::from_le_bytes([t0, t1]);
        if ty == EVENT {
            client.happen(from, which);
            continue;
        }
        let header = Header { ty, version: version.into(), compat_version: 1, ..Header::default() };
        let (front, data) = (Bytes::copy_from_slice(front), Bytes::copy_from_slice(data));
        if let Ok(msg) = Message::decode(&WireMessage { header, front, data, ..WireMessage::default() }) {
            client.hear(from, which, msg);
        }
    }
    // Operations have a minute; who waits for a watch or a map may go on waiting.
    (0..90).for_each(|_| client.pass(Duration::from_secs(1)));
    let endless = client.timed.iter().find(|t| !client.done.contains(t));
    assert_eq!(endless, None, "an operation's time is over");
    client
}

fn record(from: u8, which: u8, ty: u16, version: u8, front: &[u8], data: &[u8]) -> Vec<u8> {
    let [t0, t1] = ty.to_le_bytes();
    let [f0, f1] = (front.len() as u16).to_le_bytes();
    let [d0, d1] = (data.len() as u16).to_le_bytes();
    [&[from, which, t0, t1, version, f0, f1, d0, d1][..], front, data].concat()
}

fn of_message(from: u8, which: u8, msg: Message) -> Vec<u8> {
    let wire = msg.into_wire(1);
    record(from, which, wire.header.ty, wire.header.version as u8, &wire.front, &wire.data)
}

fn event(from: u8, which: u8) -> Vec<u8> {
    record(from, which, EVENT, 0, &[], &[])
}

pub(crate) fn replies_seeds() -> Vec<Vec<u8>> {
    use messages::type_numbers as ty;
    let from_mon = [
        ty::MON_MAP,
        ty::MON_COMMAND_ACK,
        ty::STATFS_REPLY,
        ty::GET_POOL_STATS_REPLY,
        ty::MON_GET_VERSION_REPLY,
        ty::MGR_MAP,
        ty::POOL_OP_REPLY,
        ty::OSD_MAP,
    ];
    let short = |m: &Captured| m.front.len() < 9_000 && m.data.len() < 9_000;
    let all: Vec<Captured> = recorded::messages().into_iter().filter(short).collect();
    let one = |m: &Captured, which: u8| {
        let from = u8::from(!from_mon.contains(&m.ty));
        record(from, which, m.ty, m.version, &m.front, &m.data)
    };
    let answers = [ty::OSD_OP_REPLY, ty::WATCH_NOTIFY, ty::OSD_BACKOFF, ty::COMMAND_REPLY];
    let heard: Vec<&Captured> =
        all.iter().filter(|m| from_mon.contains(&m.ty) || answers.contains(&m.ty)).collect();
    // In the order in which a monitor is asked.
    let asked = [ty::MON_COMMAND_ACK, ty::POOL_OP_REPLY, ty::STATFS_REPLY, ty::GET_POOL_STATS_REPLY];
    let place = |m: &Captured, i: usize| asked.iter().position(|ty| *ty == m.ty).unwrap_or(i) as u8;
    // Ten at a time from all over the list, so that answers of several kinds meet.
    let mut out: Vec<Vec<u8>> = (0..heard.len().div_ceil(10))
        .map(|begin| {
            let some = heard.iter().skip(begin).step_by(heard.len().div_ceil(10));
            some.enumerate().flat_map(|(i, m)| one(m, place(m, i))).collect()
        })
        .collect();
    let notify = |cookie: u64, event: u8| {
        let result = NotifyResult { replies: vec![((7, 1), Bytes::from_static(b"r"))], missed: vec![(8, 1)] };
        MWatchNotify { cookie, event, notify_id: 9, result: result.to_bytes(), ..MWatchNotify::default() }
            .into()
    };
    let news = |i: usize| {
        let (epoch, raw) = maps().increments.iter().nth(i).map(|(e, r)| (*e, r.clone())).unwrap_or_default();
        of_message(0, 0, map_message([(epoch, raw)].into()))
    };
    // Each answer in turn, with maps, lost sessions and time between them.
    let reply = heard.iter().find(|m| m.ty == ty::OSD_OP_REPLY);
    for which in 0..8u8 {
        let mut seed = Vec::new();
        seed.extend(reply.map(|m| one(m, which)).unwrap_or_default());
        seed.extend(news(0));
        seed.extend(event(which, which));
        for cookie in 1..4 {
            seed.extend(of_message(1, which, notify(cookie, watch_event::NOTIFY + which % 3)));
        }
        seed.extend(news(1));
        seed.extend(event(0, 4));
        seed.extend(reply.map(|m| one(m, which + 1)).unwrap_or_default());
        seed.extend(news(2));
        seed.extend(event(which, 2));
        out.push(seed);
    }
    out
}

/// One byte says which operation's output the rest is.
pub(crate) fn output(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let raw = Bytes::copy_from_slice(rest);
    match kind % 14 {
        0 => drop(StatResponse::from_bytes(raw)),
        1 => drop(SparseReadResponse::from_bytes(raw)),
        2 => drop(OmapKeysResponse::from_bytes(raw)),
        3 => drop(OmapValsResponse::from_bytes(raw)),
        4 => drop(ListWatchersResponse::from_bytes(raw)),
        5 => drop(ListSnapsResponse::from_bytes(raw)),
        6 => drop(PgnlsResponse::from_bytes(raw)),
        7 => drop(PglsResponse::from_bytes(raw)),
        8 => drop(CopyData::from_bytes(raw)),
        9 => drop(Checksums::<u32>::from_bytes(raw)),
        10 => drop(Checksums::<u64>::from_bytes(raw)),
        11 => drop(NotifyResult::from_bytes(raw)),
        12 => drop(BTreeMap::<Bytes, Bytes>::from_bytes(raw)),
        _ => drop(BTreeMap::<u64, u64>::from_bytes(raw)),
    }
}

/// What real OSDs answered to each operation, taken for each kind.
pub(crate) fn output_seeds() -> Vec<Vec<u8>> {
    let replies = recorded::messages().into_iter().filter(|m| m.ty == messages::type_numbers::OSD_OP_REPLY);
    let outputs = replies.flat_map(|m| match Message::decode(&m.wire()) {
        Ok(Message::OsdOpReply(reply)) => reply.ops.into_iter().map(|op| op.outdata).collect(),
        _ => Vec::new(),
    });
    let outputs: BTreeSet<Bytes> = outputs.filter(|o| !o.is_empty() && o.len() < 4_096).collect();
    outputs.iter().flat_map(|o| (0..14u8).map(move |kind| [&[kind][..], o].concat())).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_answer_requests() {
        let done: Vec<usize> =
            super::replies_seeds().iter().map(|seed| super::heard(seed).done.len()).collect();
        // Three operations end by their time at least.
        assert!(done.iter().all(|n| *n > 4) && done.iter().sum::<usize>() > 70, "{done:?}");
    }
}
