//! The mini cluster: OSD cores on simulated devices, ordered links with random interleaving, a toy monitor, one client.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use messages::Message;
use pg::{BootAddrs, Input, OsdConfig, OsdCore, Output, PeerInfo, pg_state};
use store::{FormatOptions, ObjectKey, Options, ReadPlan, Store};
use testkit::{Rng, SimDevice};
use types::{AuthName, ConnId, EntityName, EntityType, GlobalId, HObject, Now, OsdId, Utime, features};

use crate::client::Client;
use crate::mon::{self, Mon};

pub const CLIENT: i32 = 1000;
pub const MON: i32 = 2000;
const DEVICE_BYTES: u64 = 48 << 20;

pub struct Node {
    pub core: Option<OsdCore>,
    pub device: Arc<SimDevice>,
    life: u32,
    commit_wanted: bool,
    pub fatal: Option<String>,
    /// What it told the manager and the admin socket.
    pub told_mgr: Vec<Message>,
    pub admin_replies: Vec<admin::Reply>,
    pub disk_questions: Vec<(u64, pg::DiskQuestion)>,
    /// Lines for the cluster log.
    pub log: Vec<String>,
    /// Whether the client has to wait, and how often it had to.
    pub holds_clients: (bool, u32),
    /// There is more to do at once.
    pub again: bool,
    /// What its device has to read.
    pub reads: Vec<(u64, Box<ReadPlan>)>,
    /// Other clients' connections that have to wait.
    pub held: std::collections::BTreeSet<i32>,
    /// Connections that it closed.
    pub closed: Vec<i32>,
}

impl Node {
    /// What nobody waits for is put off.
    fn has_commit_to_make(&mut self) -> bool {
        let is_time = |core: &mut OsdCore| core.is_commit_urgent() || core.store_mut().checkpoint_due();
        self.commit_wanted && self.core.as_mut().is_some_and(is_time)
    }
}

pub struct Sim {
    pub rng: Rng,
    /// Whether devices have to be waited for when something is read; from an OSD's next start on.
    pub is_slow: bool,
    pub mono: Duration,
    pub nodes: Vec<Node>,
    pub mon: Mon,
    pub client: Client,
    /// Messages under way, in order per (from, to).
    pub links: BTreeMap<(i32, i32), VecDeque<Message>>,
    /// Pairs that cannot reach each other now: sessions are lossless, so messages wait.
    pub cut: Vec<(i32, i32)>,
    pub config: OsdConfig,
    pub trace: bool,
    /// Connections whose clients do not read.
    pub unread: std::collections::BTreeSet<ConnId>,
    /// How much more they may leave unread.
    pub free_bytes: u64,
    /// What other clients were answered: by connection and number.
    pub strangers: Vec<(i32, u64, Message)>,
    /// When it is to be known: the most bytes that one OSD had under way to others at one time.
    pub most_queued: Option<usize>,
}

impl Sim {
    pub fn new(osds: i32, seed: u64) -> Self {
        let config = OsdConfig { min_pg_log_entries: 200, ..OsdConfig::default() };
        Self::with_config(osds, seed, config)
    }

    pub fn with_config(osds: i32, seed: u64, config: OsdConfig) -> Self {
        Self::with_devices(&vec![DEVICE_BYTES; osds as usize], seed, config)
    }

    /// One OSD per device, which has so many bytes.
    pub fn with_devices(bytes: &[u64], seed: u64, config: OsdConfig) -> Self {
        let osds = bytes.len() as i32;
        let node = |osd: i32| {
            let device = SimDevice::new(bytes[osd as usize]);
            let options = FormatOptions { fsid: mon::FSID, osd_uuid: mon::uuid(osd), log_bytes: None };
            Store::format(&device, options).unwrap();
            Node {
                core: None,
                device: Arc::new(device),
                life: 0,
                commit_wanted: false,
                fatal: None,
                told_mgr: vec![],
                admin_replies: vec![],
                disk_questions: vec![],
                log: vec![],
                holds_clients: (false, 0),
                again: false,
                reads: Vec::new(),
                held: Default::default(),
                closed: Vec::new(),
            }
        };
        let mut sim = Self {
            rng: Rng::new(seed),
            is_slow: seed % 2 == 1,
            mono: Duration::ZERO,
            nodes: (0..osds).map(node).collect(),
            mon: Mon::new(osds),
            client: Client::default(),
            links: BTreeMap::new(),
            cut: Vec::new(),
            config,
            trace: std::env::var_os("PG_TRACE").is_some(),
            strangers: Vec::new(),
            unread: Default::default(),
            free_bytes: 1 << 30,
            most_queued: None,
        };
        for osd in 0..osds {
            sim.start(osd);
        }
        sim
    }

    fn now(&self) -> Now {
        Now { mono: self.mono, wall: Utime::new(100_000, 0).plus(self.mono) }
    }

    /// Starts a stopped OSD on its device.
    pub fn start(&mut self, osd: i32) {
        let now = self.now();
        let node = &mut self.nodes[osd as usize];
        assert!(node.core.is_none());
        node.life += 1;
        node.device.set_slow(self.is_slow);
        let store = Store::open(node.device.clone(), Options::default()).unwrap();
        let at = mon::addr(osd, node.life);
        let addrs = BootAddrs {
            public: at.clone(),
            cluster: at.clone(),
            heartbeat_front: at.clone(),
            heartbeat_back: at,
            ..BootAddrs::default()
        };
        let mut core = OsdCore::new(OsdId(osd), self.config.clone(), store, addrs).unwrap();
        let mut out = Vec::new();
        let others = (0..self.nodes.len() as i32).filter(|o| *o != osd);
        let names = others.map(|o| (o, EntityName::osd(o), EntityType::Osd));
        for (id, name, kind) in names.chain([(CLIENT, EntityName::client(4100), EntityType::Client)]) {
            let peer = peer(id, name, kind, features::PACIFIC);
            core.handle(now, Input::Connected { conn: ConnId(id as u64), peer }, &mut out);
        }
        core.handle(now, Input::MonConnected, &mut out);
        core.handle(now, Input::MgrConnected, &mut out);
        self.nodes[osd as usize].core = Some(core);
        self.client.session_lost(osd);
        self.effects(osd, out);
    }

    /// From now on the OSDs take the client for one that knows no backoffs.
    pub fn client_without_backoffs(&mut self) {
        let without = features::PACIFIC & !features::RADOS_BACKOFF;
        for osd in 0..self.nodes.len() as i32 {
            let peer = peer(CLIENT, EntityName::client(4100), EntityType::Client, without);
            self.input(osd, Input::Connected { conn: ConnId(CLIENT as u64), peer });
        }
    }

    /// Another client, which is given all caps unless `change` says otherwise; its connection is `conn` at every OSD.
    pub fn connect(&mut self, conn: i32, change: impl Fn(&mut PeerInfo)) {
        for osd in 0..self.nodes.len() as i32 {
            let name = EntityName::client(conn.into());
            let mut peer = peer(conn, name, EntityType::Client, features::PACIFIC);
            peer.auth_name = AuthName::new(EntityType::Client, conn.to_string());
            change(&mut peer);
            self.input(osd, Input::Connected { conn: ConnId(conn as u64), peer });
        }
    }

    /// Stops an OSD at once: what its device had not flushed is kept, lost or torn at random.
    pub fn crash(&mut self, osd: i32) {
        let node = &mut self.nodes[osd as usize];
        if node.core.take().is_none() {
            return;
        }
        (node.commit_wanted, node.again) = (false, false);
        node.reads.clear();
        node.device = Arc::new(node.device.crash_randomly(&mut self.rng));
        self.links.retain(|(from, to), _| *from != osd && *to != osd);
        self.mon.forget(osd);
        self.client.session_lost(osd);
    }

    /// The others notice that nobody listens there.
    pub fn notice_crash(&mut self, osd: i32) {
        for other in 0..self.nodes.len() as i32 {
            if other != osd {
                self.input(other, Input::OsdRefused { osd: OsdId(osd) });
            }
        }
    }

    /// Stops an OSD at once, and waits until the map says so.
    pub fn kill(&mut self, osd: i32) {
        self.crash(osd);
        self.notice_crash(osd);
        self.until("down", |s| !s.mon.map.is_up(osd));
    }

    /// The same, and starts it again.
    pub fn restart(&mut self, osd: i32) {
        self.kill(osd);
        self.start(osd);
    }

    /// How long it takes an OSD to handle an input; what comes of that is carried out.
    pub fn time_of(&mut self, osd: i32, input: Input) -> Duration {
        let now = self.now();
        let core = self.nodes[osd as usize].core.as_mut().expect("it runs");
        let (mut out, begin) = (Vec::new(), std::time::Instant::now());
        core.handle(now, input, &mut out);
        let took = begin.elapsed();
        self.effects(osd, out);
        took
    }

    pub fn input(&mut self, osd: i32, input: Input) {
        let now = self.now();
        let Some(core) = &mut self.nodes[osd as usize].core else { return };
        let mut out = Vec::new();
        core.handle(now, input, &mut out);
        core.assert_invariants();
        self.effects(osd, out);
    }

    fn effects(&mut self, osd: i32, out: Vec<Output>) {
        for o in out {
            match o {
                Output::Reply { conn, tid, msg } => self.send(osd, conn.0 as i32, with_tid(msg, tid)),
                Output::SendOsd { osd: to, msg }
                | Output::Heartbeat { osd: to, net: pg::HeartbeatNet::Back, msg } => {
                    self.send(osd, to.0, msg)
                }
                Output::SendMon(msg) => self.send(osd, MON, msg),
                Output::SendMgr(msg) => self.nodes[osd as usize].told_mgr.push(msg),
                Output::HoldClient { conn, hold } if conn.0 != CLIENT as u64 => {
                    let held = &mut self.nodes[osd as usize].held;
                    let changed =
                        if hold { held.insert(conn.0 as i32) } else { held.remove(&(conn.0 as i32)) };
                    assert!(changed, "told twice");
                }
                Output::HoldClients(hold) | Output::HoldClient { hold, .. } => {
                    let (holds, times) = &mut self.nodes[osd as usize].holds_clients;
                    *times += u32::from(hold);
                    *holds = hold;
                }
                Output::Read { id, plan } => self.nodes[osd as usize].reads.push((id, plan)),
                Output::Again { .. } => self.nodes[osd as usize].again = true,
                Output::CloseConn { conn } => self.nodes[osd as usize].closed.push(conn.0 as i32),
                Output::AdminReply { reply, .. } => self.nodes[osd as usize].admin_replies.push(reply),
                Output::AskDisks { id, question } => {
                    self.nodes[osd as usize].disk_questions.push((id, question));
                }
                Output::Commit => self.nodes[osd as usize].commit_wanted = true,
                Output::DropOsd { osd: to } => {
                    self.links.remove(&(osd, to.0));
                }
                Output::Fatal(why) => self.nodes[osd as usize].fatal = Some(why.to_string()),
                Output::ClusterLog { text, .. } => {
                    if self.trace {
                        println!("log osd.{osd}: {text}");
                    }
                    self.nodes[osd as usize].log.push(text);
                }
                _ => {}
            }
        }
        if let Some(why) = &self.nodes[osd as usize].fatal {
            panic!("osd.{osd} stopped: {why}");
        }
    }

    pub fn send(&mut self, from: i32, to: i32, msg: Message) {
        if to < MON.min(CLIENT) && self.nodes[to as usize].core.is_none() {
            return;
        }
        if let Message::Unknown(w) = &msg {
            // What a reader takes; see `msgr::Limits`.
            let fits = w.front.len().max(w.middle.len()) <= 16 << 20 && w.data.len() <= 128 << 20;
            assert!(fits, "{} bytes of front, {} of data to {to}", w.front.len(), w.data.len());
        }
        self.links.entry((from, to)).or_default().push_back(msg);
        if let Some(most) = self.most_queued.filter(|_| from < CLIENT && to < CLIENT) {
            let queued = self.links.iter().filter(|((f, t), _)| *f == from && *t < CLIENT);
            let bytes: usize = queued.flat_map(|(_, q)| q).map(wire_len).sum();
            self.most_queued = Some(most.max(bytes));
        }
    }

    /// One random thing happens; false when there is nothing left to do but wait.
    pub fn step(&mut self) -> bool {
        self.mono += Duration::from_millis(1);
        for (osd, msg) in self.mon.publish() {
            self.send(MON, osd, msg);
        }
        let known = self.client.told.unwrap_or(self.mon.map.epoch);
        let (seen, unseen) = std::mem::take(&mut self.mon.unseen).into_iter().partition(|m| m.epoch <= known);
        self.mon.unseen = unseen;
        let seen: Vec<maps::OsdMap> = seen;
        seen.iter().for_each(|map| self.client.saw(map));
        for (to, msg) in self.client.outgoing(self.mon.map_at(known)) {
            self.send(CLIENT, to, msg);
        }
        let cut = |(a, b): (i32, i32)| self.cut.contains(&(a, b)) || self.cut.contains(&(b, a));
        let ready = self.links.iter().filter(|(k, q)| !q.is_empty() && !cut(**k));
        let mut choices: Vec<(i32, i32)> = ready.map(|(k, _)| *k).collect();
        for (osd, node) in self.nodes.iter_mut().enumerate() {
            if node.has_commit_to_make() {
                choices.push((osd as i32, -1));
            }
            if node.again {
                choices.push((osd as i32, -2));
            }
            if !node.reads.is_empty() {
                choices.push((osd as i32, -3));
            }
        }
        if choices.is_empty() {
            return false;
        }
        let (from, to) = *self.rng.pick(&choices);
        if to == -1 {
            self.commit(from);
            return true;
        }
        if to == -3 {
            self.read(from);
            return true;
        }
        if to == -2 {
            self.nodes[from as usize].again = false;
            let unread = self.unread.clone();
            self.input(from, Input::Again { unread, free_bytes: self.free_bytes });
            return true;
        }
        let msg = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front).unwrap();
        if self.trace {
            println!("{} {from} -> {to}: {}", self.mono.as_millis(), short(&msg));
        }
        self.deliver(from, to, msg);
        true
    }

    pub fn deliver(&mut self, from: i32, to: i32, msg: Message) {
        match (from, to) {
            (from, MON) => {
                let life = self.nodes[from as usize].life;
                for reply in self.mon.handle(from, life, msg) {
                    self.send(MON, from, reply);
                }
            }
            (MON, to) => self.input(to, Input::FromMon(msg)),
            (from, CLIENT) => self.client.reply(from, msg),
            (_, to) if to > CLIENT => {
                let (tid, msg) = split_tid(msg);
                self.strangers.push((to, tid, msg));
            }
            (from, to) => {
                let (tid, msg) = split_tid(msg);
                self.input(to, Input::Message { conn: ConnId(from as u64), tid, msg });
            }
        }
    }

    /// Sends what the client has to send, and delivers it there now.
    pub fn deliver_requests(&mut self, to: i32) {
        let map = self.mon.map.clone();
        for (osd, msg) in self.client.outgoing(&map) {
            self.send(CLIENT, osd, msg);
        }
        self.deliver_all(CLIENT, to);
    }

    /// Delivers all that is under way from one to another now.
    pub fn deliver_all(&mut self, from: i32, to: i32) {
        let link = self.links.remove(&(from, to)).unwrap_or_default();
        link.into_iter().for_each(|msg| self.deliver(from, to, msg));
    }

    /// Whether this OSD has the newest map.
    pub fn is_up_to_date(&self, osd: i32) -> bool {
        let core = self.nodes.get(osd as usize).and_then(|node| node.core.as_ref());
        core.is_none_or(|core| core.osdmap().epoch == self.mon.map.epoch)
    }

    /// Whether all that this OSD submitted to its store survives its end.
    pub fn is_durable(&mut self, osd: i32) -> bool {
        let store = self.nodes[osd as usize].core.as_mut().expect("runs").store_mut();
        store.submitted() == store.durable()
    }

    pub fn commit(&mut self, osd: i32) {
        let node = &mut self.nodes[osd as usize];
        node.commit_wanted = false;
        let device = node.device.clone();
        let Some(core) = &mut node.core else { return };
        let mut seqs = Vec::new();
        if let Some(commit) = core.store_mut().take_commit() {
            let done = commit.execute(&*device);
            seqs.push(core.store_mut().committed(done).unwrap());
        }
        while core.store_mut().checkpoint_due() {
            let Some(checkpoint) = core.store_mut().take_checkpoint() else { break };
            let done = checkpoint.execute(&*device);
            seqs.push(core.store_mut().checkpointed(done).unwrap());
        }
        for seq in seqs {
            self.input(osd, Input::Durable(seq));
        }
    }

    /// The device carries out one of the reads that it was asked for.
    pub fn read(&mut self, osd: i32) {
        let node = &mut self.nodes[osd as usize];
        let at = self.rng.below(node.reads.len() as u64) as usize;
        let (id, plan) = node.reads.swap_remove(at);
        let result = plan.execute(node.device.as_ref());
        self.input(osd, Input::Read { id, result });
    }

    /// Lets time pass on all OSDs.
    pub fn tick(&mut self, by: Duration) {
        self.mono += by;
        for osd in 0..self.nodes.len() as i32 {
            self.input(osd, Input::Tick);
        }
    }

    /// Runs until the condition holds; time passes when nothing else happens.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..400 {
            for _ in 0..5_000 {
                if done(self) {
                    return;
                }
                if !self.step() {
                    break;
                }
            }
            self.tick(Duration::from_millis(500));
        }
        for node in &self.nodes {
            let lines = node.core.as_ref().map(OsdCore::pg_lines).unwrap_or_default();
            lines.iter().for_each(|l| println!("{l}"));
        }
        panic!("never came: {what}; {:?}", self.states());
    }

    /// Random steps, without waiting for anything.
    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.step() {
                self.tick(Duration::from_millis(500));
            }
        }
    }

    /// Every PG's state at its primary.
    pub fn states(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        self.mon.map.for_each_pg(|pg, m| {
            let primary = usize::try_from(m.acting_primary).ok().and_then(|p| self.nodes[p].core.as_ref());
            let state = primary.and_then(|c| c.pg_states().into_iter().find(|(id, _)| id.pgid == pg));
            let text = state.map_or("none".into(), |(_, s)| pg_state::to_text(s));
            all.insert(format!("{pg} {:?}/{:?}", m.up, m.acting), text);
        });
        all
    }

    pub fn all_are(&self, state: &str) -> bool {
        let states = self.states();
        !states.is_empty() && states.values().all(|s| s == state)
    }

    /// Waits until all OSDs have the newest map, everything is whole and all requests are answered.
    pub fn settle(&mut self) {
        self.until("active+clean", |s| {
            let cores = s.nodes.iter().filter_map(|n| n.core.as_ref());
            cores.into_iter().all(|c| c.osdmap().epoch == s.mon.map.epoch) && s.all_are("active+clean")
        });
        self.until("no requests", |s| s.client.is_idle());
    }

    /// Checks that every member of every PG holds the same objects, and what the client wrote last.
    pub fn check_copies(&mut self) {
        let mut found: BTreeMap<String, Vec<Option<Vec<u8>>>> = BTreeMap::new();
        let map = self.mon.map.clone();
        let pools: Vec<_> = map.pools.keys().copied().collect();
        for pool in pools {
            let names: Vec<String> = self.client.model.keys().cloned().collect();
            for name in names {
                let object = self.client.object(&map, pool, &name);
                let pgid = map.raw_pg_to_pg(types::PgId::new(pool, object.hash)).unwrap();
                let members = map.pg_to_up_acting(pgid).acting;
                assert!(!members.is_empty());
                for osd in members {
                    let copy = self.stored(osd, &object);
                    found.entry(name.clone()).or_default().push(copy);
                }
            }
        }
        for (name, want) in &self.client.model {
            for copy in &found[name] {
                assert!(want.allows(copy.as_deref()), "{name}: {copy:?} is none of {want:?}");
                assert_eq!(copy, &found[name][0], "copies of {name} differ");
            }
        }
    }

    pub fn stored(&mut self, osd: i32, object: &HObject) -> Option<Vec<u8>> {
        let store = self.nodes[osd as usize].core.as_mut().unwrap().store_mut();
        let key = ObjectKey::replicated(object.clone());
        let stat = store.stat(&key).unwrap()?;
        Some(store.read(&key, 0, stat.size).unwrap().to_vec())
    }
}

fn peer(id: i32, name: EntityName, kind: EntityType, features: u64) -> PeerInfo {
    PeerInfo {
        name,
        auth_name: AuthName::new(kind, "x"),
        global_id: GlobalId(1),
        addr: mon::addr(id, 1).0[0],
        ip: None,
        caps: cephx::caps::OsdCap::allow_all(),
        features,
    }
}

/// Replies and requests carry their tid inside the wire form; this keeps it beside decoded ones.
fn with_tid(msg: Message, tid: u64) -> Message {
    match msg {
        Message::Unknown(_) => msg,
        other => Message::Unknown(other.into_wire(tid)),
    }
}

fn split_tid(msg: Message) -> (u64, Message) {
    match msg {
        Message::Unknown(w) => {
            let tid = w.header.tid;
            (tid, Message::decode(&w).unwrap())
        }
        other => (0, other),
    }
}

fn wire_len(msg: &Message) -> usize {
    match msg {
        Message::Unknown(w) => w.front.len() + w.middle.len() + w.data.len(),
        _ => 0,
    }
}

fn short(msg: &Message) -> String {
    let (tid, msg) = split_tid(msg.clone());
    let mut text = OsdCore::describe_message(&msg).unwrap_or_else(|| format!("{tid} {msg:?}"));
    text.truncate(700);
    text
}
