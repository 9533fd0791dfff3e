//! Requests of a client, executed by an OSD: lists of operations, class calls among them, many one after the
//! other.
//!
//! Behind each request the core's invariants hold. At the end every request was answered, snapshots are
//! trimmed, a deep scrub finds nothing, the medium is whole, and so is what an OSD that starts from it
//! serves.

// The toy monitor of the OSD's own tests can do more than is needed here.
#[path = "../../pg/tests/cluster/mon.rs"]
#[allow(dead_code)]
mod mon;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use codec::Encode;
use maps::SnapIntervals;
use messages::Message;
use messages::osd::{
    CopyFromArgs, CopySource, Extent, MOsdOp, MOsdScrub2, Op, OpCode, OsdOp, cmp_mode, flags, watch_op,
};
use pg::{BootAddrs, Input, OsdConfig, OsdCore, Output, PeerInfo};
use store::{FormatOptions, Options, ReadPlan, Store};
use testkit::SimDevice;
use types::{
    AuthName, ConnId, EntityName, EntityType, GlobalId, HObject, Name, Now, ObjectLocator, OsdId, PgId,
    PoolId, ReqId, SnapContext, SnapId, SpgId, Utime, features,
};

const DEVICE_BYTES: u64 = 48 << 20;
/// Half-second ticks that whatever was begun may take.
const PATIENCE: usize = 400;
const CONNS: [ConnId; 2] = [ConnId(10), ConnId(11)];
const OBJECTS: [&str; 4] = ["a", "b", "rbd_header.1", ""];
const SNAPS: [SnapId; 6] = [SnapId::HEAD, SnapId(1), SnapId(2), SnapId(3), SnapId::SNAPDIR, SnapId(77)];
/// Snapshot contexts of writes, newest first.
const CONTEXTS: [&[u64]; 4] = [&[], &[1], &[2, 1], &[3, 1]];
/// Of a request: object, snapshot, context and sender; flags; how many operations.
const REQUEST_HEAD: usize = 3;
/// Of an operation: code, flags, argument, the length of its data.
const OP_HEAD: usize = 2 + 1 + ARG_LEN + 2;
const ARG_LEN: usize = 28;

struct Osd {
    core: OsdCore,
    device: Arc<SimDevice>,
    mon: mon::Mon,
    mono: Duration,
    life: u32,
    pool: PoolId,
    commit_wanted: bool,
    again: bool,
    /// What the device has to read.
    reads: VecDeque<(u64, Box<ReadPlan>)>,
    from_mon: VecDeque<Message>,
    /// Requests that nobody has answered.
    open: BTreeSet<(ConnId, u64)>,
    /// What the others were answered.
    results: Vec<i32>,
    closed: BTreeSet<ConnId>,
    next_tid: u64,
    log: Vec<String>,
}

fn addrs(life: u32) -> BootAddrs {
    let at = mon::addr(0, life);
    BootAddrs {
        public: at.clone(),
        cluster: at.clone(),
        heartbeat_front: at.clone(),
        heartbeat_back: at,
        ..BootAddrs::default()
    }
}

fn core_on(device: &Arc<SimDevice>, life: u32) -> OsdCore {
    // In every other life what is not in memory has to be waited for.
    device.set_slow(life % 2 == 1);
    let store = Store::open(device.clone(), Options::default()).expect("the store opens");
    let config = OsdConfig { max_object_size: 8 << 20, scrub_chunk_max: 5, ..OsdConfig::default() };
    OsdCore::new(OsdId(0), config, store, addrs(life)).expect("the OSD starts from its store")
}

impl Osd {
    /// Alone in its cluster, with a pool of two PGs.
    fn new() -> Self {
        let device = SimDevice::new(DEVICE_BYTES);
        let ids = FormatOptions { fsid: mon::FSID, osd_uuid: mon::uuid(0), log_bytes: None };
        Store::format(&device, ids).expect("formatted");
        let device = Arc::new(device);
        let mut osd = Self {
            core: core_on(&device, 1),
            device,
            mon: mon::Mon::new(1),
            mono: Duration::from_secs(1),
            life: 1,
            pool: PoolId(0),
            commit_wanted: false,
            again: false,
            reads: VecDeque::new(),
            from_mon: VecDeque::new(),
            open: BTreeSet::new(),
            results: Vec::new(),
            closed: BTreeSet::new(),
            next_tid: 0,
            log: Vec::new(),
        };
        osd.pool = osd.mon.create_pool(1, 1, 2);
        osd.connect();
        osd
    }

    fn connect(&mut self) {
        self.closed.clear();
        for (i, conn) in CONNS.into_iter().enumerate() {
            let peer = PeerInfo {
                name: EntityName::client(4_100 + i as i64),
                auth_name: AuthName::new(EntityType::Client, "x"),
                global_id: GlobalId(1 + i as u64),
                addr: mon::addr(90 + i as i32, 1).0[0],
                ip: None,
                caps: cephx::caps::OsdCap::allow_all(),
                features: features::PACIFIC,
            };
            self.input(Input::Connected { conn, peer });
        }
        self.input(Input::MonConnected);
        self.until("it serves", |osd| {
            osd.core.is_up()
                && osd.core.pg_states().iter().filter(|(_, s)| s & pg::pg_state::ACTIVE != 0).count() == 2
        });
    }

    /// Ends without a word and starts from what is on the medium.
    fn restart(&mut self) {
        self.life += 1;
        self.device = Arc::new(self.device.fork());
        self.core = core_on(&self.device, self.life);
        (self.commit_wanted, self.again) = (false, false);
        self.reads.clear();
        self.from_mon.clear();
        self.open.clear();
        self.mon.forget(0);
        self.connect();
    }

    fn input(&mut self, input: Input) {
        let now = Now { mono: self.mono, wall: Utime::new(100_000, 0).plus(self.mono) };
        let mut out = Vec::new();
        self.core.handle(now, input, &mut out);
        for output in out {
            match output {
                Output::Reply { conn, tid, msg: msg @ (Message::OsdOpReply(_) | Message::OsdBackoff(_)) } => {
                    // What a client is told must be something that it can be sent.
                    let wire = msg.into_wire(tid);
                    let decoded = Message::decode(&wire);
                    assert!(decoded.is_ok(), "an answer that no client understands: {decoded:?}");
                    self.open.remove(&(conn, tid));
                    if let Ok(Message::OsdOpReply(reply)) = decoded {
                        self.results.push(reply.result);
                    }
                }
                Output::SendMon(msg) => self.from_mon.extend(self.mon.handle(0, self.life, msg)),
                Output::Commit => self.commit_wanted = true,
                Output::Read { id, plan } => self.reads.push_back((id, plan)),
                Output::Again { .. } => self.again = true,
                Output::CloseConn { conn } => {
                    self.closed.insert(conn);
                    self.open.retain(|(c, _)| *c != conn);
                }
                Output::ClusterLog { text, .. } => self.log.push(text),
                Output::Fatal(why) => panic!("the OSD stops: {why}"),
                _ => {}
            }
        }
    }

    /// Until nothing is left to do at this time.
    fn run(&mut self) {
        loop {
            let published = self.mon.publish().into_iter().map(|(_, msg)| msg);
            self.from_mon.extend(published);
            if let Some(msg) = self.from_mon.pop_front() {
                self.input(Input::FromMon(msg));
            } else if let Some((id, plan)) = self.reads.pop_front() {
                let result = plan.execute(&*self.device);
                self.input(Input::Read { id, result });
            } else if std::mem::take(&mut self.again) {
                self.mono += Duration::from_micros(10);
                self.input(Input::Again { unread: BTreeSet::new(), free_bytes: 1 << 30 });
            } else if std::mem::take(&mut self.commit_wanted) {
                self.commit();
            } else {
                return;
            }
        }
    }

    fn commit(&mut self) {
        let mut durable = Vec::new();
        if let Some(commit) = self.core.store_mut().take_commit() {
            let done = commit.execute(&*self.device);
            durable.push(self.core.store_mut().committed(done).expect("committed"));
        }
        while self.core.store_mut().checkpoint_due() {
            let Some(checkpoint) = self.core.store_mut().take_checkpoint() else { break };
            let done = checkpoint.execute(&*self.device);
            durable.push(self.core.store_mut().checkpointed(done).expect("checkpointed"));
        }
        durable.into_iter().for_each(|seq| self.input(Input::Durable(seq)));
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        for _ in 0..PATIENCE {
            self.run();
            if is_so(self) {
                return;
            }
            self.mono += Duration::from_millis(500);
            self.input(Input::Tick);
        }
        panic!("not within {PATIENCE} ticks: {what}; open {:?}, log {:#?}", self.open, self.log);
    }

    /// One request, by way of the wire.
    fn request(&mut self, head: [u8; REQUEST_HEAD], ops: Vec<OsdOp>) {
        let [what, flag, _] = head.map(usize::from);
        let conn = CONNS[what >> 7];
        let name = OBJECTS[what & 3];
        let map = &self.mon.map;
        let hash = map.pool(self.pool).map_or(0, |pool| pool.hash_key(name, ""));
        let snap = SNAPS[(what >> 2 & 7) % SNAPS.len()];
        let object = HObject { pool: self.pool, hash, name: name.into(), snap, ..HObject::min() };
        let pgid = map.raw_pg_to_pg(PgId::new(self.pool, hash)).unwrap_or(PgId::new(self.pool, 0));
        let snaps = CONTEXTS[what >> 5 & 3];
        let chosen = [flags::RETURNVEC, flags::FULL_TRY, flags::RWORDERED, flags::PGOP, flags::SKIPRWLOCKS];
        let chosen = chosen.iter().enumerate().filter(|(i, _)| flag >> i & 1 != 0).map(|(_, f)| f);
        let msg = MOsdOp {
            pgid: SpgId::replicated(pgid),
            epoch: map.epoch,
            flags: chosen.fold(flags::ONDISK | flags::READ | flags::WRITE, |all, f| all | f),
            explicit_reqid: ReqId::default(),
            client_inc: 0,
            mtime: Utime::new(50_000, 0),
            object,
            ops,
            snapc: SnapContext { seq: snaps.first().copied().unwrap_or(0), snaps: snaps.to_vec() },
            retry_attempt: 0,
            features: features::PACIFIC,
        };
        self.next_tid += 1;
        let tid = self.next_tid;
        let wire = Message::from(msg).into_wire(tid);
        let Ok(msg) = Message::decode(&wire) else { return };
        if !self.closed.contains(&conn) {
            self.open.insert((conn, tid));
            self.input(Input::Message { conn, tid, msg });
            self.run();
            self.core.assert_invariants();
        }
    }

    /// A deep scrub of each PG finds nothing.
    fn scrub(&mut self) {
        let pgs: Vec<SpgId> = (0..2).map(|seed| SpgId::replicated(PgId::new(self.pool, seed))).collect();
        let ends = |pg: &SpgId| format!("{} deep-scrub ok", pg.pgid);
        self.log.clear();
        let (fsid, epoch) = (mon::FSID, self.mon.map.epoch);
        self.input(Input::FromMgr(
            MOsdScrub2 { fsid, epoch, pgs: pgs.clone(), repair: false, deep: true }.into(),
        ));
        self.until("a deep scrub finds nothing", |osd| {
            pgs.iter().all(|pg| osd.log.iter().any(|l| l.ends_with(&ends(pg))))
        });
    }

    /// One of the snapshots is removed, and what only it has goes.
    fn trim(&mut self) {
        let pool = self.pool;
        self.mon.change(|inc, _| {
            let mut gone = SnapIntervals::default();
            gone.insert(SnapId(2));
            inc.new_removed_snaps.insert(pool, gone);
        });
        (0..4).for_each(|_| {
            self.mono += Duration::from_secs(1);
            self.input(Input::Tick);
            self.run();
        });
    }
}

/// Records, each a request.
pub(crate) fn osd_requests(data: &[u8]) {
    drop(executed(data));
}

fn executed(data: &[u8]) -> Osd {
    let mut osd = Osd::new();
    let mut rest = data;
    while let Some((head, body)) = rest.split_first_chunk::<REQUEST_HEAD>() {
        rest = body;
        let ops = (0..=head[2] % 8).map_while(|_| take_op(&mut rest)).collect();
        osd.request(*head, ops);
    }
    // Notifications and watches end by themselves.
    osd.until("every request is answered", |osd| osd.open.is_empty());
    osd.trim();
    osd.scrub();
    osd.core.assert_invariants();
    let report = store::fsck(&*osd.device, true).expect("the medium is read");
    assert!(report.is_clean(), "{report:?}");
    osd.restart();
    osd.scrub();
    osd.core.assert_invariants();
    osd
}

fn take_op(rest: &mut &[u8]) -> Option<OsdOp> {
    let (head, body) = rest.split_first_chunk::<OP_HEAD>()?;
    let [c0, c1, flag, arg @ .., l0, l1] = *head;
    let (indata, more) = body.split_at(usize::from(u16::from_le_bytes([l0, l1])).min(body.len()));
    *rest = more;
    let code = OpCode(u16::from_le_bytes([c0, c1]));
    Some(OsdOp { code, flags: flag.into(), arg, indata: Bytes::copy_from_slice(indata) })
}

/// As the target takes them.
fn input_of(requests: &[([u8; 2], Vec<OsdOp>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for ([what, flag], ops) in requests {
        out.extend([*what, *flag, ops.len().saturating_sub(1) as u8]);
        for op in ops {
            out.extend(op.code.0.to_le_bytes());
            out.push(op.flags as u8);
            out.extend(op.arg);
            out.extend((op.indata.len() as u16).to_le_bytes());
            out.extend(&op.indata);
        }
    }
    out
}

fn each_alone(what: u8, ops: Vec<Op>) -> Vec<([u8; 2], Vec<OsdOp>)> {
    ops.into_iter().map(|op| ([what, 0], vec![op.into()])).collect()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut out = vec![
        input_of(&each_alone(0, data_ops())),
        input_of(&each_alone(1, attribute_ops())),
        input_of(&each_alone(0, watch_ops())),
        input_of(&snapshot_requests()),
        input_of(&[([0, 1], data_ops().into_iter().take(7).map(OsdOp::from).collect())]),
    ];
    // What a real client sent, one after the other on one object.
    let recorded: Vec<OsdOp> = crate::seeds::recorded_ops();
    out.extend(
        recorded
            .chunks(12)
            .map(|ops| input_of(&ops.iter().map(|op| ([2, 0], vec![op.clone()])).collect::<Vec<_>>())),
    );
    let calls = crate::recorded::calls();
    out.extend(calls.chunks(16).map(|calls| {
        let call = |(class, method, input): &(String, String, Vec<u8>)| Op::Call {
            class: class.clone(),
            method: method.clone(),
            input: input.clone().into(),
        };
        input_of(&each_alone(2, calls.iter().map(call).collect()))
    }));
    out
}

fn data_ops() -> Vec<Op> {
    let data = |n: usize| Bytes::from(vec![n as u8 | 1; n]);
    let at = |offset: u64, n: usize| Extent::new(offset, n as u64);
    let from = |name: &'static str| CopySource {
        object: Name::from(name),
        locator: ObjectLocator { pool: PoolId(1), ..ObjectLocator::default() },
    };
    vec![
        Op::Create,
        Op::Write { extent: at(3, 5_000), data: data(5_000) },
        Op::Append { extent: at(0, 70), data: data(70) },
        Op::WriteSame { offset: 4_096, length: 8_192, data_length: 512, data: data(512) },
        Op::Zero(at(100, 9_000)),
        Op::Truncate(at(6_000, 0)),
        Op::TrimTrunc(Extent { truncate_size: 100, truncate_seq: 5, ..at(100, 0) }),
        Op::Read(at(0, 0)),
        Op::SparseRead(at(0, 1 << 20)),
        Op::MapExt(at(0, 1 << 20)),
        Op::SyncRead(at(3, 9)),
        Op::Checksum { offset: 0, length: 96, chunk_size: 32, kind: 2, init: 7u32.to_bytes() },
        Op::CmpExt { extent: at(0, 3), data: Bytes::from_static(&[0; 3]) },
        Op::AssertVer { version: 3 },
        Op::AllocHint { object_size: 1 << 22, write_size: 4_096, flags: 0 },
        Op::WriteFull { extent: at(0, 300), data: data(300) },
        Op::CopyGet { max: 1 << 20, cursor: Default::default() },
        Op::CopyFrom {
            from: from("b"),
            args: CopyFromArgs { snap: SnapId::HEAD, ..CopyFromArgs::default() },
        },
        Op::CopyFrom2 {
            from: from("rbd_header.1"),
            args: CopyFromArgs { snap: SnapId::HEAD, ..CopyFromArgs::default() },
            truncation: Some((3, 10)),
        },
        Op::Stat,
        Op::Delete,
    ]
}

fn attribute_ops() -> Vec<Op> {
    let key = |n: u8| Bytes::from(vec![b'k', n]);
    let name = || "n".to_owned();
    vec![
        Op::SetXattr { name: name(), value: 17u64.to_bytes() },
        Op::GetXattr { name: name() },
        Op::GetXattrs,
        Op::CmpXattr { name: name(), op: 1, mode: cmp_mode::U64, value: 17u64.to_bytes() },
        Op::OmapSetVals { vals: (0..9).map(|n| (key(n), key(n))).collect() },
        Op::OmapSetHeader { header: key(1) },
        Op::OmapGetKeys { start_after: key(3), max: 5 },
        Op::OmapGetVals { start_after: Bytes::new(), max: 3, prefix: Bytes::from_static(b"k") },
        Op::OmapGetHeader,
        Op::OmapGetValsByKeys { keys: [key(1), key(80)].into() },
        Op::OmapCmp { assertions: [(key(1), (key(1), 1))].into() },
        Op::OmapRmKeys { keys: [key(1)].into() },
        Op::OmapRmKeyRange { begin: key(2), end: key(4) },
        Op::RmXattr { name: name() },
        Op::OmapClear,
        Op::TmapPut { data: [&0u32.to_le_bytes()[..], &0u32.to_le_bytes()].concat().into() },
        Op::TmapUp { commands: Bytes::from_static(b"s\x01\0\0\0b\x01\0\0\x002") },
        Op::TmapGet,
        Op::Tmap2Omap { flags: 0 },
    ]
}

fn watch_ops() -> Vec<Op> {
    let watch = |op: u8| Op::Watch { cookie: 9, op, generation: 1, timeout_s: 5 };
    vec![
        Op::Create,
        watch(watch_op::WATCH),
        watch(watch_op::PING),
        Op::Notify { cookie: 9, timeout_s: 2, payload: Bytes::from_static(b"p") },
        Op::NotifyAck { notify_id: 1, cookie: 9, reply: Bytes::from_static(b"r") },
        Op::ListWatchers,
        watch(watch_op::RECONNECT),
        watch(watch_op::UNWATCH),
        watch(watch_op::LEGACY_WATCH),
        Op::Delete,
    ]
}

/// Writes under one context after another, and reads of what they left behind.
fn snapshot_requests() -> Vec<([u8; 2], Vec<OsdOp>)> {
    let write = |at: u64| Op::Write { extent: Extent::new(at, 9), data: Bytes::from_static(b"snapshots") };
    let mut all = Vec::new();
    for context in 0..4u8 {
        all.push(([context << 5, 0], vec![write(u64::from(context) * 5).into()]));
    }
    all.push(([3 << 5, 0], vec![Op::Rollback { snap: SnapId(1) }.into()]));
    for snap in 0..4u8 {
        all.push(([snap << 2, 0], vec![Op::Read(Extent::new(0, 90)).into()]));
    }
    all.push(([4 << 2, 0], vec![Op::ListSnaps.into()]));
    all.push(([2 << 5, 0], vec![Op::Delete.into()]));
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn most_of_the_seeds_requests_succeed() {
        let results: Vec<i32> =
            super::seeds().iter().flat_map(|seed| super::executed(seed).results).collect();
        let good = results.iter().filter(|r| **r >= 0).count();
        assert!(results.len() > 300 && good * 3 > results.len(), "{good} of {}", results.len());
    }
}
