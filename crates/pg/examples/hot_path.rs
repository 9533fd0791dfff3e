//! The OSD's path of small requests without sockets and disks, to be counted by `valgrind --tool=callgrind`:
//! instructions do not depend on what else the machine does.
//!
//!   cargo build --profile ship -p pg --example hot_path
//!   valgrind --tool=callgrind --toggle-collect='*OsdCore::handle*' target/ship/examples/hot_path write 2000
//!   hot_path write|read|rewrite [REQUESTS] [BYTES] [DEPTH]
//!
//! One primary and one replica, one pool of 8 PGs, messages through their wire form. Prints nanoseconds per request, which
//! are only a hint; the first half of the requests warms up.

#[path = "../tests/cluster/mon.rs"]
#[allow(dead_code)] // the toy monitor of the mini cluster can do more than is needed here
mod mon;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use messages::Message;
use messages::osd::{Extent, MOsdOp, Op, OsdOp, flags};
use pg::{BootAddrs, Input, OsdConfig, OsdCore, Output, PeerInfo};
use store::{FormatOptions, Options, Store};
use testkit::SimDevice;
use types::{
    AuthName, ConnId, EntityName, EntityType, GlobalId, HObject, Now, OsdId, PgId, PoolId, ReqId,
    SnapContext, SnapId, SpgId, Utime, features,
};

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

const CLIENT: u64 = 1000;

struct Node {
    core: OsdCore,
    device: Arc<SimDevice>,
    commit_wanted: bool,
}

struct Pair {
    nodes: Vec<Node>,
    mon: mon::Mon,
    now: Duration,
    /// (to, from, message): in order.
    queue: VecDeque<(i32, u64, Message)>,
    /// OSDs that want to go on.
    again: VecDeque<i32>,
    answered: usize,
    busy: Duration,
}

impl Pair {
    fn new() -> Self {
        let node = |osd: i32| {
            let device = SimDevice::new(1 << 30);
            let options = FormatOptions { fsid: mon::FSID, osd_uuid: mon::uuid(osd), log_bytes: None };
            Store::format(&device, options).expect("formatted");
            let device = Arc::new(device);
            let store = Store::open(device.clone(), Options::default()).expect("opened");
            let at = mon::addr(osd, 1);
            let addrs = BootAddrs {
                public: at.clone(),
                cluster: at.clone(),
                heartbeat_front: at.clone(),
                heartbeat_back: at,
                ..BootAddrs::default()
            };
            let core = OsdCore::new(OsdId(osd), OsdConfig::default(), store, addrs).expect("a core");
            Node { core, device, commit_wanted: false }
        };
        let mut pair = Self {
            nodes: (0..2).map(node).collect(),
            mon: mon::Mon::new(2),
            now: Duration::from_secs(1),
            queue: VecDeque::new(),
            again: VecDeque::new(),
            answered: 0,
            busy: Duration::ZERO,
        };
        for osd in 0..2 {
            let others = [(1 - osd as u64, EntityName::osd(1 - osd), EntityType::Osd)];
            for (id, name, kind) in
                others.into_iter().chain([(CLIENT, EntityName::client(4100), EntityType::Client)])
            {
                let peer = PeerInfo {
                    name,
                    auth_name: AuthName::new(kind, "x"),
                    global_id: GlobalId(1),
                    addr: mon::addr(id as i32, 1).0[0],
                    ip: None,
                    caps: cephx::caps::OsdCap::allow_all(),
                    features: features::PACIFIC,
                };
                pair.input(osd, Input::Connected { conn: ConnId(id), peer });
            }
            pair.input(osd, Input::MonConnected);
        }
        pair
    }

    fn input(&mut self, osd: i32, input: Input) {
        let now = Now { mono: self.now, wall: Utime::new(100_000, 0).plus(self.now) };
        let mut out = Vec::new();
        let start = Instant::now();
        self.nodes[osd as usize].core.handle(now, input, &mut out);
        self.busy += start.elapsed();
        for o in out {
            match o {
                Output::Reply { tid, msg, .. } => {
                    self.answered += usize::from(!matches!(msg.into_wire(tid).header.ty, 0));
                }
                Output::SendOsd { osd: to, msg } => {
                    self.queue.push_back((to.0, osd as u64, Message::Unknown(msg.into_wire(0))));
                }
                Output::SendMon(msg) => {
                    for reply in self.mon.handle(osd, 1, msg) {
                        self.queue.push_back((osd, u64::MAX, reply));
                    }
                }
                Output::Commit => self.nodes[osd as usize].commit_wanted = true,
                Output::Read { .. } => unreachable!("this device has everything at hand"),
                Output::Again { .. } => self.again.push_back(osd),
                Output::Fatal(why) => panic!("osd.{osd} stopped: {why}"),
                _ => {}
            }
        }
    }

    fn run(&mut self) {
        loop {
            for (osd, msg) in self.mon.publish() {
                self.queue.push_back((osd, u64::MAX, msg));
            }
            while let Some((to, from, msg)) = self.queue.pop_front() {
                self.now += Duration::from_micros(5);
                match (from, msg) {
                    (u64::MAX, msg) => self.input(to, Input::FromMon(msg)),
                    (_, Message::Unknown(wire)) => {
                        let start = Instant::now();
                        let msg = Message::decode(&wire).expect("decodes");
                        self.busy += start.elapsed();
                        self.input(to, Input::Message { conn: ConnId(from), tid: wire.header.tid, msg });
                    }
                    _ => unreachable!("only wire messages are queued"),
                }
            }
            // As shells do: after what else has come. Clients here read their answers at once.
            if let Some(osd) = self.again.pop_front() {
                self.input(osd, Input::Again { unread: BTreeSet::new(), free_bytes: u64::MAX });
                continue;
            }
            let wanting = (0..2).find(|o| self.nodes[*o as usize].commit_wanted);
            let Some(osd) = wanting else { return };
            self.commit(osd);
        }
    }

    fn commit(&mut self, osd: i32) {
        let node = &mut self.nodes[osd as usize];
        node.commit_wanted = false;
        let mut seqs = Vec::new();
        if let Some(commit) = node.core.store_mut().take_commit() {
            let done = commit.execute(&*node.device);
            seqs.push(node.core.store_mut().committed(done).expect("committed"));
        }
        while node.core.store_mut().checkpoint_due() {
            let Some(checkpoint) = node.core.store_mut().take_checkpoint() else { break };
            let done = checkpoint.execute(&*node.device);
            seqs.push(node.core.store_mut().checkpointed(done).expect("checkpointed"));
        }
        for seq in seqs {
            self.input(osd, Input::Durable(seq));
        }
    }

    fn request(&mut self, pool: PoolId, tid: u64, name: &str, op: OsdOp, flag: u32) {
        let map = &self.mon.map;
        let hash = map.pool(pool).expect("the pool").hash_key(name, "");
        let object = HObject { pool, hash, name: name.into(), snap: SnapId::HEAD, ..HObject::min() };
        let pgid = map.raw_pg_to_pg(PgId::new(pool, hash)).expect("a PG");
        let primary = map.pg_to_up_acting(pgid).acting_primary;
        let msg = MOsdOp {
            pgid: SpgId::replicated(pgid),
            epoch: map.epoch,
            flags: flag | flags::ONDISK,
            explicit_reqid: ReqId::default(),
            client_inc: 0,
            mtime: Utime::new(50_000, 0),
            object,
            ops: vec![op],
            snapc: SnapContext::default(),
            retry_attempt: 0,
            features: 0,
        };
        self.queue.push_back((primary, CLIENT, Message::Unknown(Message::from(msg).into_wire(tid))));
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize, or: usize| args.get(at).map_or(or, |a| a.parse().expect("a number"));
    let what = args.get(1).map_or("write", String::as_str);
    let (requests, bytes, depth) = (number(2, 20_000), number(3, 4096), number(4, 16));
    let mut pair = Pair::new();
    pair.run();
    let pool = pair.mon.create_pool(2, 1, 8);
    for _ in 0..20 {
        pair.run();
        pair.now += Duration::from_millis(500);
        (0..2).for_each(|osd| pair.input(osd, Input::Tick));
    }
    let data = Bytes::from(vec![0x5a; bytes]);
    let write =
        |at: u64| -> OsdOp { Op::Write { extent: Extent::new(at, bytes as u64), data: data.clone() }.into() };
    let objects = if what == "rewrite" { 64 } else { requests };
    if what != "write" {
        for i in 0..objects {
            pair.request(pool, i as u64, &format!("object{i:08}"), write(0), flags::WRITE);
            pair.run();
        }
    }
    let mut sent = 0;
    for round in 0..2 {
        (pair.answered, pair.busy) = (0, Duration::ZERO);
        let (start, first) = (Instant::now(), sent);
        while sent < first + requests / 2 {
            for _ in 0..depth {
                let name = format!("object{:08}", sent % objects);
                let at = (sent / objects * bytes % (4 << 20)) as u64;
                match what {
                    "read" => {
                        let op = Op::Read(Extent::new(0, bytes as u64));
                        pair.request(pool, sent as u64, &name, op.into(), flags::READ);
                    }
                    _ => pair.request(pool, sent as u64, &name, write(at), flags::WRITE),
                }
                sent += 1;
            }
            pair.run();
        }
        assert_eq!(pair.answered, sent - first, "every request is answered");
        let per = |d: Duration| d.as_nanos() as usize / (sent - first);
        if round == 1 {
            println!(
                "{what} of {bytes} bytes, {depth} at a time: {} ns in the cores, {} ns in all",
                per(pair.busy),
                per(start.elapsed())
            );
        }
    }
}
