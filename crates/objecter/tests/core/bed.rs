//! A core with a cluster that the test plays.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use codec::Encode;
use crush::{CrushMap, RuleMode};
use maps::flags::WEIGHT_IN;
use maps::{Incremental, OsdAddrs, OsdMap, Pool, PoolType};
use messages::Message;
use messages::mon::{MMonSubscribe, MOsdMap};
use messages::osd::{Extent, MOsdOp, MOsdOpReply, Op, OsdOp, flags};
use objecter::{
    Effect, Input, Objecter, OpReply, OpRequest, Outcome, Request, ServicePeer, SessionId, Settings, Ticket,
};
use types::{
    AddrVec, EntityAddr, Epoch, Fsid, HObject, Now, OsdId, PgId, PoolId, SnapContext, SnapId, Utime, features,
};

pub const FSID: Fsid = Fsid([7; 16]);
pub const POOL: PoolId = PoolId(1);

/// A message to an OSD or the manager, as sent.
#[derive(Debug, Clone)]
pub struct Sent {
    pub session: SessionId,
    pub tid: u64,
    pub msg: Message,
}

impl Sent {
    pub fn op(&self) -> &MOsdOp {
        match &self.msg {
            Message::OsdOp(m) => m,
            other => panic!("not an operation: {other:?}"),
        }
    }

    pub fn name(&self) -> &str {
        &self.op().object.name
    }
}

pub struct Bed {
    pub core: Objecter,
    pub now: Now,
    pub map: OsdMap,
    incs: BTreeMap<Epoch, Bytes>,
    life: u32,
    next_ticket: u64,
    /// Sessions that are open, by id.
    pub open: BTreeMap<SessionId, (ServicePeer, AddrVec)>,
    /// Everything that was sent and not taken out by a test.
    pub sent: Vec<Sent>,
    pub done: Vec<(Ticket, Outcome)>,
    pub asked: Vec<(u64, Message)>,
    /// Everything else.
    pub other: Vec<Effect>,
    /// Sessions become usable as soon as they are opened.
    pub answers_open: bool,
}

fn addrs(osd: i32, life: u32) -> OsdAddrs {
    let at = |port: i32| {
        let socket = format!("127.0.0.1:{}", port + osd).parse().expect("an address");
        AddrVec::single(EntityAddr::v2(socket, life))
    };
    OsdAddrs { client: at(6800), cluster: at(6900), hb_back: at(7000), hb_front: at(7100) }
}

impl Bed {
    /// Three OSDs that are up, a pool with two copies, the map not given to the core yet.
    pub fn without_map(settings: Settings) -> Self {
        let mut crush = CrushMap::new_default();
        for osd in 0..3 {
            let at = BTreeMap::from([("root".into(), "default".into()), ("host".into(), format!("h{osd}"))]);
            crush.insert_item(osd, 0x10000, &format!("osd.{osd}"), &at).expect("inserted");
        }
        crush.add_simple_rule("r", "default", "osd", None, RuleMode::Firstn, 1, None).expect("a rule");
        let mut bed = Self {
            core: Objecter::new(settings),
            now: Now { mono: Duration::from_secs(100), wall: Utime::new(5_000_000, 0) },
            map: OsdMap::new_cluster(FSID, Utime::new(1, 0), crush),
            incs: BTreeMap::new(),
            life: 1,
            next_ticket: 1,
            open: BTreeMap::new(),
            sent: Vec::new(),
            done: Vec::new(),
            asked: Vec::new(),
            other: Vec::new(),
            answers_open: true,
        };
        bed.change(|inc, map| {
            for osd in 0..3 {
                inc.create_osd(map, OsdId(osd), Fsid([100 + osd as u8; 16]));
                inc.set_weight(OsdId(osd), WEIGHT_IN);
            }
        });
        bed.change(|inc, map| {
            for osd in 0..3 {
                inc.boot_osd(map, OsdId(osd), addrs(osd, 1), features::PACIFIC);
            }
            let pool = Pool { size: 2, min_size: 1, ..Pool::new(PoolType::Replicated, 8) };
            assert_eq!(inc.create_pool(map, "p", pool), POOL);
        });
        bed
    }

    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        let mut bed = Self::without_map(settings);
        bed.input(Input::MonReady);
        bed.give_full();
        bed.asked.clear();
        bed
    }

    /// A new epoch, not given to the core.
    pub fn change(&mut self, f: impl FnOnce(&mut Incremental, &OsdMap)) {
        let now = Utime::new(1000 + self.map.epoch.0, 0);
        let mut inc = Incremental::after(&self.map, now);
        f(&mut inc, &self.map);
        let (map, _) = inc.finish(&self.map, now).expect("applies");
        self.incs.insert(map.epoch, inc.to_bytes());
        self.map = map;
    }

    pub fn fail(&mut self, osd: i32) {
        self.change(|inc, map| inc.mark_down(map, OsdId(osd)));
    }

    pub fn boot(&mut self, osd: i32) {
        self.life += 1;
        let life = self.life;
        self.change(|inc, map| inc.boot_osd(map, OsdId(osd), addrs(osd, life), features::PACIFIC));
    }

    /// A message with everything from this epoch on.
    pub fn increments(&self, from: Epoch) -> MOsdMap {
        let incremental = self.incs.range(from..).map(|(e, b)| (*e, b.clone())).collect();
        MOsdMap { fsid: FSID, incremental, oldest: Epoch(1), newest: self.map.epoch, ..MOsdMap::default() }
    }

    pub fn full(&self) -> MOsdMap {
        let full = BTreeMap::from([(self.map.epoch, self.map.encode_with_crc().0)]);
        MOsdMap { fsid: FSID, full, oldest: Epoch(1), newest: self.map.epoch, ..MOsdMap::default() }
    }

    pub fn give_full(&mut self) {
        let full = self.full();
        self.mon_says(0, full.into());
    }

    /// What the core has not seen yet, as increments.
    pub fn give(&mut self) {
        let incs = self.increments(self.core.map().epoch.next());
        self.mon_says(0, incs.into());
    }

    pub fn mon_says(&mut self, tid: u64, msg: Message) {
        self.input(Input::FromMon { tid, msg });
    }

    pub fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.core.handle(self.now, input, &mut out);
        self.core.assert_invariants();
        let mut opened = Vec::new();
        for effect in out {
            match effect {
                Effect::Open { session, peer, addrs } => {
                    assert!(self.open.insert(session, (peer, addrs)).is_none(), "a session is opened once");
                    opened.push(session);
                }
                Effect::Close(session) => drop(self.open.remove(&session).expect("it was open")),
                Effect::Send { session, tid, msg } => {
                    assert!(self.open.contains_key(&session), "sent on a session that is not open");
                    self.sent.push(Sent { session, tid, msg });
                }
                Effect::Done(ticket, outcome) => {
                    assert!(self.done.iter().all(|(t, _)| *t != ticket), "a ticket ends once");
                    self.done.push((ticket, outcome));
                }
                Effect::SendMon { tid, msg } => self.asked.push((tid, msg)),
                other => self.other.push(other),
            }
        }
        if self.answers_open {
            opened.into_iter().for_each(|session| self.input(Input::SessionReady(session)));
        }
    }

    /// The session breaks.
    pub fn reset(&mut self, session: SessionId) {
        self.open.remove(&session).expect("it was open");
        self.input(Input::SessionGone(session));
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.mono += time;
        self.now.wall = self.now.wall.plus(time);
        while self.core.deadline().is_some_and(|at| at <= self.now.mono) {
            self.input(Input::Tick);
        }
    }

    pub fn submit(&mut self, request: Request) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.input(Input::Submit(ticket, request));
        ticket
    }

    pub fn write(&mut self, name: &str) -> Ticket {
        self.submit(Request::Op(Box::new(write(name))))
    }

    pub fn read(&mut self, name: &str) -> Ticket {
        let ops = vec![OsdOp::from(Op::Read(Extent::new(0, 10)))];
        self.submit(Request::Op(Box::new(OpRequest { ops, flags: flags::READ, ..write(name) })))
    }

    /// What was sent since the last call.
    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    /// Names of the objects of the operations sent since the last call.
    pub fn take_names(&mut self) -> Vec<String> {
        self.take_sent().iter().map(|s| s.name().to_owned()).collect()
    }

    pub fn reply(&mut self, to: &Sent, result: i32) {
        let mut reply = MOsdOpReply::to(to.op(), result, self.map.epoch, flags::ONDISK);
        reply.user_version = 5;
        self.input(Input::FromSession { session: to.session, tid: to.tid, msg: reply.into() });
    }

    /// The outcome of an operation; `None` while it runs.
    pub fn op_result(&self, ticket: Ticket) -> Option<i32> {
        self.done.iter().find(|(t, _)| *t == ticket).map(|(_, outcome)| match outcome {
            Outcome::Op(OpReply { result, .. }) => *result,
            other => panic!("not an operation: {other:?}"),
        })
    }

    pub fn outcome(&self, ticket: Ticket) -> Option<&Outcome> {
        self.done.iter().find(|(t, _)| *t == ticket).map(|(_, outcome)| outcome)
    }

    pub fn osd_of(&self, name: &str) -> i32 {
        let pool = self.map.pool(POOL).expect("the pool");
        let pg = pool.raw_pg_to_pg(PgId::new(POOL, pool.hash_key(name, "")));
        self.map.pg_to_up_acting(pg).acting_primary
    }

    pub fn peer(&self, session: SessionId) -> ServicePeer {
        self.open[&session].0
    }

    /// Subscriptions asked for since the last call.
    pub fn take_subscriptions(&mut self) -> Vec<MMonSubscribe> {
        let asked = std::mem::take(&mut self.asked);
        asked
            .into_iter()
            .filter_map(|(_, m)| if let Message::MonSubscribe(s) = m { Some(s) } else { None })
            .collect()
    }
}

pub fn object(name: &str) -> HObject {
    HObject { pool: POOL, name: name.into(), snap: SnapId::HEAD, ..HObject::min() }
}

pub fn write(name: &str) -> OpRequest {
    let extent = Extent::new(0, 4);
    OpRequest {
        object: object(name),
        ops: vec![OsdOp::from(Op::Write { extent, data: Bytes::from_static(b"data") })],
        flags: flags::WRITE,
        snapc: SnapContext::default(),
        mtime: None,
        timeout: None,
    }
}
