//! A rank over objects in memory, and clients of it: every message and operation waits until it is its turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use cephfs::{Answer, Attr, Call, Client, Handle, Node, SessionId, Ticket};
use cephx::caps::MdsCap;
use codec::Encode;
use maps::{MdsInfo, MdsMap, MdsState};
use mds::storage::{ObjectName, ObjectOp, OpId, Reply, Step, StepResult};
use mds::{Effect, Input, OsdMapView, Peer, Server, Settings};
use messages::Message;
use messages::fs::{
    CapOp, Caps, FilePath, FsOp, InodeStat, MClientReconnect, MClientReply, MClientRequest, RequestArgs,
};
use messages::mon::MMdsMap;
use messages::osd::Op;
use objecter::{OpReply, OpRequest};
use types::{
    AuthName, ConnId, EntityAddr, EntityType, Epoch, Errno, GlobalId, Ino, Now, PoolId, SnapId, Utime,
};

use crate::model::{DATA, Object, Objects, POOL, Random};

pub type Outcome = Result<Answer, Errno>;

/// A client with its connections.
pub struct Peered {
    pub core: Client,
    pub id: GlobalId,
    caps: MdsCap,
    conns: BTreeMap<SessionId, ConnId>,
    done: BTreeMap<Ticket, Outcome>,
    last_ticket: u64,
    /// It says nothing any more.
    pub is_dead: bool,
}

enum Mail {
    ToServer(ConnId, u64, Message),
    ToClient(ConnId, u64, Message),
    FromMonitors(Input),
}

pub struct World {
    pub server: Server,
    pub now: Now,
    pub objects: Objects,
    pub map: MdsMap,
    pub osd: OsdMapView,
    pub clients: Vec<Peered>,
    pub settings: Settings,
    pub warnings: Vec<String>,
    conns: BTreeMap<ConnId, (usize, SessionId)>,
    last_conn: u64,
    gid: u64,
    mail: VecDeque<Mail>,
    ops: VecDeque<ObjectOp>,
    /// What files' objects were in snapshots.
    pub clones: Clones,
    /// Operations that were executed.
    pub executed: usize,
    /// The server dies before this many more operations.
    pub dies_in: Option<usize>,
    pub deaths: usize,
    random: Option<Random>,
    /// This client does not answer about capabilities.
    pub deaf: Option<usize>,
    /// Clients hear of a map before the server does.
    pub is_server_last: bool,
    /// What this client says of capabilities of this inode comes late.
    pub slow: Option<(usize, Ino)>,
    late: Vec<(ConnId, u64, Message)>,
    /// What a client says instead of what it has.
    pub lie_at_reconnect: Option<(usize, MClientReconnect)>,
    inputs: u64,
    trace: bool,
    raw_tid: u64,
    raw_done: BTreeMap<u64, MClientReply>,
}

/// Objects as OSDs keep them for snapshots that clients number themselves.
#[derive(Default)]
pub struct Clones {
    /// By the newest snapshot that has them: of which snapshots they are.
    kept: BTreeMap<ObjectName, BTreeMap<u64, (Vec<u64>, Object)>>,
    seqs: BTreeMap<ObjectName, u64>,
    removed: BTreeSet<u64>,
}

impl Clones {
    /// Keeps an object that is about to change.
    fn before(&mut self, objects: &Objects, op: &ObjectOp) {
        let reads = |op: &Op| matches!(op, Op::Read(_) | Op::Stat | Op::GetXattr { .. });
        if op.object.pool != DATA || op.steps.iter().all(|s| reads(&s.op)) {
            return;
        }
        assert!(op.snaps.is_valid(), "{:?}", op.snaps);
        let seq = self.seqs.entry(op.object.clone()).or_default();
        let new: Vec<u64> =
            op.snaps.snaps.iter().copied().filter(|s| s > seq && !self.removed.contains(s)).collect();
        if let (Some(object), Some(newest)) = (objects.0.get(&op.object), new.first().copied()) {
            self.kept.entry(op.object.clone()).or_default().insert(newest, (new, object.clone()));
        }
        *seq = op.snaps.seq.max(*seq);
    }

    /// Objects as they were at a snapshot, as far as this one goes.
    fn at(&self, objects: &Objects, object: &ObjectName, snap: SnapId) -> Result<Objects, Errno> {
        let clone = self.kept.get(object).and_then(|kept| kept.range(snap.0..).next());
        let found = match clone {
            Some((_, (snaps, data))) => snaps.contains(&snap.0).then_some(data),
            None if snap.0 > self.seqs.get(object).copied().unwrap_or(0) => objects.0.get(object),
            None => None,
        };
        let found = found.ok_or(Errno::ENOENT)?;
        Ok(Objects([(object.clone(), found.clone())].into()))
    }

    fn remove(&mut self, snaps: &BTreeMap<i32, Vec<SnapId>>) {
        self.removed.extend(snaps.values().flatten().map(|s| s.0));
        let removed = &self.removed;
        for kept in self.kept.values_mut() {
            kept.values_mut().for_each(|(snaps, _)| snaps.retain(|s| !removed.contains(s)));
            kept.retain(|_, (snaps, _)| !snaps.is_empty());
        }
    }

    pub fn count(&self) -> usize {
        self.kept.values().map(BTreeMap::len).sum()
    }
}

pub fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

impl World {
    pub fn new(clients: usize) -> Self {
        Self::with(Settings::default(), &vec!["allow *"; clients])
    }

    /// A fresh file system that is served, and mounted by a client with each of these keys.
    pub fn with(settings: Settings, caps: &[&str]) -> Self {
        let now = Now { mono: Duration::from_secs(100), wall: Utime::new(1_700_000_000, 0) };
        let map = MdsMap {
            enabled: true,
            fs_name: "cephfs".into(),
            data_pools: vec![DATA.0],
            metadata_pool: POOL.0,
            ..MdsMap::default()
        };
        let osd = OsdMapView {
            epoch: Epoch(5),
            pools: [("meta".to_owned(), POOL), ("data".to_owned(), DATA)].into(),
            ..OsdMapView::default()
        };
        let mut world = Self {
            server: Server::new(settings.clone()),
            now,
            objects: Objects::default(),
            map,
            osd,
            clients: Vec::new(),
            settings,
            warnings: Vec::new(),
            conns: BTreeMap::new(),
            last_conn: 0,
            gid: 10,
            mail: VecDeque::new(),
            ops: VecDeque::new(),
            clones: Clones::default(),
            executed: 0,
            dies_in: None,
            deaths: 0,
            random: None,
            deaf: None,
            is_server_last: false,
            slow: None,
            late: Vec::new(),
            lie_at_reconnect: None,
            inputs: 0,
            trace: std::env::var_os("MDS_TRACE").is_some(),
            raw_tid: 1 << 32,
            raw_done: BTreeMap::new(),
        };
        world.start(MdsState::CREATING);
        world.settle();
        assert_eq!(world.server.state(), MdsState::ACTIVE, "{:?}", world.warnings);
        for caps in caps {
            world.add_client(caps);
        }
        world
    }

    pub fn shuffled(mut self, seed: u64) -> Self {
        self.random = Some(Random(seed));
        self
    }

    pub fn add_client(&mut self, caps: &str) -> usize {
        let id = GlobalId(4100 + self.clients.len() as u64);
        let client = Peered {
            core: Client::new(cephfs::Settings::default()),
            id,
            caps: MdsCap::parse(caps).expect("caps"),
            conns: BTreeMap::new(),
            done: BTreeMap::new(),
            last_ticket: 0,
            is_dead: false,
        };
        self.clients.push(client);
        let i = self.clients.len() - 1;
        self.client(i, cephfs::Input::OsdMap(self.osd.epoch));
        self.client(i, cephfs::Input::MonReady);
        self.tell_map(i);
        i
    }

    pub fn mounted(clients: usize) -> Self {
        let mut world = Self::new(clients);
        (0..clients).for_each(|i| drop(world.ok(i, Call::Mount { path: Bytes::new() })));
        world
    }

    /// Another process takes the rank.
    fn start(&mut self, state: MdsState) {
        self.gid += 1;
        self.server = Server::new(Settings { gid: self.gid, ..self.settings.clone() });
        self.map.info.clear();
        let info = MdsInfo { gid: self.gid, name: "a".into(), rank: 0, state, ..MdsInfo::default() };
        self.map.info.insert(self.gid, info);
        self.map.up = [(0, self.gid)].into();
        self.map.r#in = [0].into();
        self.serve(Input::OsdMap(self.osd.clone()));
        self.new_map();
    }

    fn new_map(&mut self) {
        self.map.epoch = self.map.epoch.next();
        let (map, n) = (Box::new(self.map.clone()), self.clients.len());
        let is_last = self.is_server_last || self.random.as_mut().is_some_and(|r| r.below(2) == 0);
        if !is_last {
            self.serve(Input::MdsMap(map));
            return (0..n).for_each(|i| self.tell_map(i));
        }
        (0..n).for_each(|i| self.tell_map(i));
        self.mail.push_back(Mail::FromMonitors(Input::MdsMap(map)));
    }

    fn tell_map(&mut self, i: usize) {
        let map = self.map.to_bytes();
        let m = MMdsMap { epoch: self.map.epoch, map, fs_name: "cephfs".into(), ..MMdsMap::default() };
        self.client(i, cephfs::Input::FromMon(m.into()));
    }

    /// The server dies, with what was on its way; another one replays its journal.
    pub fn fail_over(&mut self) {
        self.deaths += 1;
        self.ops.clear();
        self.mail.clear();
        self.conns.clear();
        self.clients.iter_mut().for_each(|c| c.conns.clear());
        self.osd.epoch = self.osd.epoch.next();
        self.map.last_failure_osd_epoch = self.osd.epoch;
        self.start(MdsState::REPLAY);
    }

    pub fn serve(&mut self, input: Input) {
        let mut out = Vec::new();
        if self.trace {
            println!("-> {:.300}", format!("{input:?}"));
        }
        self.server.handle(self.now, input, &mut out);
        self.inputs += 1;
        if self.server.inodes() < 100 || self.inputs % 256 == 0 {
            self.server.assert_invariants();
        }
        let mut wants = None;
        for effect in out {
            if self.trace {
                println!("  <- {:.300}", format!("{effect:?}"));
            }
            match effect {
                Effect::Send { conn, tid, msg } => self.mail.push_back(Mail::ToClient(conn, tid, msg)),
                Effect::Close(conn) => {
                    if let Some((i, session)) = self.conns.remove(&conn) {
                        self.clients[i].conns.remove(&session);
                        self.client(i, cephfs::Input::SessionGone(session));
                    }
                }
                Effect::Want(state) => wants = Some(state),
                Effect::Object(op) => self.ops.push_back(*op),
                Effect::NeedOsdMap(_) => {}
                Effect::Blocklist(client, addr) => {
                    self.osd.epoch = self.osd.epoch.next();
                    self.osd.blocklisted.insert(addr);
                    let epoch = self.osd.epoch;
                    self.serve(Input::Blocklisted(client, epoch));
                }
                Effect::RemoveSnaps(snaps) => {
                    self.clones.remove(&snaps);
                    self.mail.push_back(Mail::FromMonitors(Input::SnapsRemoved(snaps)));
                }
                Effect::Warn(text) => self.warnings.push(text),
                Effect::Damaged(why) => panic!("damaged: {why}"),
                Effect::Respawn => panic!("the server ended: {:?}", self.warnings),
            }
        }
        if let Some(state) = wants {
            let gid = self.gid;
            if let Some(info) = self.map.info.get_mut(&gid) {
                info.state = state;
                self.new_map();
            }
        }
    }

    pub fn client(&mut self, i: usize, input: cephfs::Input) {
        if self.clients[i].is_dead {
            return;
        }
        let mut out = Vec::new();
        self.clients[i].core.handle(self.now, input, &mut out);
        if self.inputs < 1_000 || self.inputs % 256 == 0 {
            self.clients[i].core.assert_invariants();
        }
        for effect in out {
            self.client_effect(i, effect);
        }
    }

    fn client_effect(&mut self, i: usize, effect: cephfs::Effect) {
        match effect {
            cephfs::Effect::SendMon(_) | cephfs::Effect::NeedOsdMap(_) => {}
            cephfs::Effect::Open { session, .. } => {
                self.last_conn += 1;
                let conn = ConnId(self.last_conn);
                self.conns.insert(conn, (i, session));
                let c = &mut self.clients[i];
                c.conns.insert(session, conn);
                let addr = EntityAddr { nonce: c.id.0 as u32, ..EntityAddr::default() };
                let name = AuthName::new(EntityType::Client, "x");
                let peer = Peer { client: c.id, addr, name, caps: c.caps.clone() };
                self.serve(Input::Connected(conn, Box::new(peer)));
            }
            cephfs::Effect::Close(session) => {
                if let Some(conn) = self.clients[i].conns.remove(&session) {
                    self.conns.remove(&conn);
                    self.serve(Input::Gone(conn));
                }
            }
            cephfs::Effect::Send { msg: Message::ClientCaps(_), .. } if self.deaf == Some(i) => {}
            cephfs::Effect::Send { session, tid, mut msg } => {
                if let Message::ClientCaps(m) = &mut msg {
                    if m.op == CapOp::FLUSHSNAP {
                        // As libcephfs tells it.
                        m.truncate_seq = 0;
                    }
                }
                if let (Message::ClientReconnect(_), Some((liar, lie))) = (&msg, &self.lie_at_reconnect) {
                    if *liar == i {
                        msg = lie.clone().into();
                    }
                }
                let is_slow = match (&msg, self.slow) {
                    (Message::ClientCaps(m), Some((slow, ino))) => slow == i && m.ino == ino,
                    _ => false,
                };
                if let Some(conn) = self.clients[i].conns.get(&session) {
                    if is_slow {
                        return self.late.push((*conn, tid, msg));
                    }
                    self.mail.push_back(Mail::ToServer(*conn, tid, msg));
                }
            }
            cephfs::Effect::Object(ticket, request) => {
                let reply = self.file_op(*request);
                self.client(i, cephfs::Input::ObjectDone(ticket, reply));
            }
            cephfs::Effect::Done(ticket, result) => drop(self.clients[i].done.insert(ticket, result)),
        }
    }

    fn file_op(&mut self, request: OpRequest) -> Result<OpReply, Errno> {
        let steps: Vec<Step> =
            request.ops.iter().map(|op| op.parse().expect("an operation").into()).collect();
        let object = ObjectName {
            pool: PoolId(request.object.pool.0),
            nspace: request.object.nspace,
            name: request.object.name,
        };
        let op = ObjectOp { id: OpId(0), object, snaps: request.snapc, mtime: None, steps };
        self.clones.before(&self.objects, &op);
        let results = match request.object.snap {
            SnapId::HEAD => self.objects.execute(&op)?,
            snap => self.clones.at(&self.objects, &op.object, snap)?.execute(&op)?,
        };
        let ops = request.ops.iter().zip(results).map(|(op, step)| {
            let mut result = messages::osd::OpResult::from(op);
            (result.rval, result.outdata) = (step.result, step.output);
            result
        });
        Ok(OpReply { result: 0, ops: ops.collect(), version: 1 })
    }

    /// The journal's objects are large: what is written to them does not copy them.
    fn execute(&mut self, op: &ObjectOp) -> Reply {
        self.clones.before(&self.objects, op);
        let writes: Option<Vec<_>> = op
            .steps
            .iter()
            .map(|step| match &step.op {
                Op::Write { extent, data } => Some((extent.offset as usize, data)),
                _ => None,
            })
            .collect();
        match (writes, self.objects.0.get_mut(&op.object)) {
            (Some(writes), Some(object)) => {
                for (at, data) in writes {
                    let end = at + data.len();
                    object.data.resize(object.data.len().max(end), 0);
                    object.data[at..end].copy_from_slice(data);
                }
                Ok(vec![StepResult::default(); op.steps.len()])
            }
            _ => self.objects.execute(op),
        }
    }

    /// Does one of the things that wait. False: none does.
    pub fn step(&mut self) -> bool {
        let may_serve = !self.ops.is_empty();
        let may_mail = !self.mail.is_empty();
        let serves = match (may_serve, may_mail) {
            (false, false) => return false,
            (true, true) => self.random.as_mut().is_none_or(|r| r.below(3) == 0),
            (serves, _) => serves,
        };
        if serves {
            let Some(op) = self.ops.pop_front() else { return false };
            if self.dies_in == Some(0) {
                self.dies_in = None;
                self.fail_over();
                return true;
            }
            self.dies_in = self.dies_in.map(|n| n - 1);
            let reply = self.execute(&op);
            self.executed += 1;
            self.serve(Input::ObjectDone(op.id, reply));
            return true;
        }
        match self.mail.pop_front() {
            Some(Mail::FromMonitors(input)) => self.serve(input),
            Some(Mail::ToServer(conn, tid, msg)) => self.serve(Input::Said { conn, tid, msg }),
            Some(Mail::ToClient(_, tid, Message::ClientReply(m))) if tid >= 1 << 32 => {
                self.raw_done.insert(tid, m);
            }
            Some(Mail::ToClient(conn, tid, msg)) => {
                if let Some((i, session)) = self.conns.get(&conn).copied() {
                    self.client(i, cephfs::Input::FromSession { session, tid, msg });
                }
            }
            None => {}
        }
        true
    }

    pub fn settle(&mut self) {
        let mut steps = 0;
        while self.step() || self.wait_for_journal() {
            steps += 1;
            assert!(steps < 200_000, "it does not come to rest");
        }
    }

    /// Lets the time pass after which the server sends what its journal has. False: it has sent everything.
    fn wait_for_journal(&mut self) -> bool {
        let soon = self.now.mono + self.settings.journal_delay;
        if !self.server.has_unsent() {
            return false;
        }
        let at = self.server.deadline().expect("it has something to do").min(soon);
        self.now.wall = self.now.wall.plus(at.saturating_sub(self.now.mono));
        self.now.mono = self.now.mono.max(at);
        self.serve(Input::Tick);
        true
    }

    /// What was said late comes now. How many words.
    pub fn hear_late(&mut self) -> usize {
        self.slow = None;
        let late = std::mem::take(&mut self.late);
        let count = late.len();
        self.mail.extend(late.into_iter().map(|(conn, tid, msg)| Mail::ToServer(conn, tid, msg)));
        count
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now.mono + time;
        while self.now.mono < end {
            let by = Duration::from_millis(500).min(end - self.now.mono);
            self.now.mono += by;
            self.now.wall = self.now.wall.plus(by);
            self.serve(Input::Tick);
            (0..self.clients.len()).for_each(|i| self.client(i, cephfs::Input::Tick));
            self.settle();
        }
    }

    pub fn submit(&mut self, i: usize, call: Call) -> Ticket {
        let c = &mut self.clients[i];
        c.last_ticket += 1;
        let ticket = Ticket(c.last_ticket);
        if self.trace {
            println!("client {i} {ticket:?} {call:?}");
        }
        self.client(i, cephfs::Input::Submit(ticket, call));
        ticket
    }

    pub fn is_done(&self, i: usize, ticket: Ticket) -> Option<&Outcome> {
        self.clients[i].done.get(&ticket)
    }

    /// Waits for a call, as long as a minute.
    pub fn wait(&mut self, i: usize, ticket: Ticket) -> Outcome {
        for _ in 0..240 {
            while !self.clients[i].done.contains_key(&ticket) && self.step() {}
            if let Some(result) = self.clients[i].done.remove(&ticket) {
                return result;
            }
            self.pass(Duration::from_millis(500));
        }
        panic!("call {ticket:?} of client {i} does not end: {:?}", self.warnings);
    }

    pub fn call(&mut self, i: usize, call: Call) -> Outcome {
        let ticket = self.submit(i, call);
        self.wait(i, ticket)
    }

    pub fn ok(&mut self, i: usize, call: Call) -> Answer {
        let text = format!("{call:?}");
        self.call(i, call).unwrap_or_else(|errno| panic!("client {i}: {text}: {errno}"))
    }

    pub fn err(&mut self, i: usize, call: Call) -> Errno {
        let text = format!("{call:?}");
        match self.call(i, call) {
            Err(errno) => errno,
            Ok(answer) => panic!("client {i}: {text}: {answer:?}"),
        }
    }

    // Calls by path.

    pub fn node(&mut self, i: usize, path: &str) -> Node {
        self.stat(i, path).unwrap_or_else(|errno| panic!("client {i}: {path}: {errno}")).node
    }

    pub fn stat(&mut self, i: usize, path: &str) -> Result<Attr, Errno> {
        match self.call(i, Call::Walk { path: name(path), follow: false })? {
            Answer::Attr(attr) => Ok(*attr),
            other => panic!("{other:?}"),
        }
    }

    fn split(&mut self, i: usize, path: &str) -> (Node, Bytes) {
        match path.rsplit_once('/') {
            Some((dir, last)) => (self.node(i, dir), name(last)),
            None => (Node::ROOT, name(path)),
        }
    }

    pub fn mkdir(&mut self, i: usize, path: &str) -> Outcome {
        let (dir, name) = self.split(i, path);
        self.call(i, Call::Mkdir { dir, name, mode: 0o755 })
    }

    pub fn create(&mut self, i: usize, path: &str) -> Result<Handle, Errno> {
        let (dir, name) = self.split(i, path);
        match self.call(i, Call::Create { dir, name, mode: 0o644, flags: 2 })? {
            Answer::Opened { handle, .. } => Ok(handle),
            other => panic!("{other:?}"),
        }
    }

    pub fn open(&mut self, i: usize, path: &str, flags: u32) -> Result<Handle, Errno> {
        let node = self.node(i, path);
        match self.call(i, Call::Open { node, flags })? {
            Answer::Opened { handle, .. } => Ok(handle),
            other => panic!("{other:?}"),
        }
    }

    pub fn close(&mut self, i: usize, handle: Handle) {
        self.ok(i, Call::Close { handle });
    }

    pub fn write(&mut self, i: usize, handle: Handle, offset: u64, text: &str) {
        self.ok(i, Call::Write { handle, offset: Some(offset), data: name(text) });
    }

    pub fn read(&mut self, i: usize, handle: Handle) -> String {
        match self.ok(i, Call::Read { handle, offset: 0, length: 1 << 20 }) {
            Answer::Data(data) => String::from_utf8(data.to_vec()).expect("text"),
            other => panic!("{other:?}"),
        }
    }

    /// A file with this text, closed.
    pub fn put(&mut self, i: usize, path: &str, text: &str) {
        let handle = self.create(i, path).expect("it is made");
        self.write(i, handle, 0, text);
        self.close(i, handle);
    }

    pub fn get(&mut self, i: usize, path: &str) -> Result<String, Errno> {
        let handle = self.open(i, path, 0)?;
        let text = self.read(i, handle);
        self.close(i, handle);
        Ok(text)
    }

    pub fn unlink(&mut self, i: usize, path: &str) -> Outcome {
        let (dir, name) = self.split(i, path);
        self.call(i, Call::Unlink { dir, name })
    }

    pub fn rmdir(&mut self, i: usize, path: &str) -> Outcome {
        let (dir, name) = self.split(i, path);
        self.call(i, Call::Rmdir { dir, name })
    }

    pub fn link(&mut self, i: usize, old: &str, new: &str) -> Outcome {
        let node = self.node(i, old);
        let (dir, name) = self.split(i, new);
        self.call(i, Call::Link { node, dir, name })
    }

    pub fn rename(&mut self, i: usize, old: &str, new: &str) -> Outcome {
        let (dir, name) = self.split(i, old);
        let (to_dir, to_name) = self.split(i, new);
        self.call(i, Call::Rename { dir, name, to_dir, to_name })
    }

    pub fn list(&mut self, i: usize, path: &str) -> Vec<String> {
        let dir = self.node(i, path);
        let mut names = Vec::new();
        let mut from = None;
        loop {
            let Answer::Listing { entries, next } = self.ok(i, Call::Readdir { dir, from }) else {
                panic!("a listing")
            };
            names.extend(entries.into_iter().map(|e| String::from_utf8(e.name.to_vec()).expect("text")));
            if next.is_none() {
                names.sort();
                return names;
            }
            from = next;
        }
    }

    /// The same file system, by a server that has read it anew.
    pub fn restart(&mut self) {
        self.settle();
        self.fail_over();
        self.settle();
        for _ in 0..4 {
            if self.server.state() == MdsState::ACTIVE {
                return;
            }
            self.pass(Duration::from_secs(50));
        }
        panic!("it does not serve: {:?}", self.server.state());
    }

    /// Delivers messages, while no operation on an object is executed.
    pub fn deliver_only_mail(&mut self) {
        let ops = std::mem::take(&mut self.ops);
        loop {
            let later = std::mem::take(&mut self.ops);
            let any = self.step();
            let more = std::mem::replace(&mut self.ops, later);
            self.ops.extend(more);
            if !any {
                break;
            }
        }
        let later = std::mem::replace(&mut self.ops, ops);
        self.ops.extend(later);
    }

    /// A message of a client that its core did not think of.
    pub fn say(&mut self, i: usize, tid: u64, msg: Message) {
        let conn =
            self.conns.iter().find(|(_, (c, _))| *c == i).map(|(conn, _)| *conn).expect("a connection");
        self.serve(Input::Said { conn, tid, msg });
    }

    /// A request of a client that its core did not think of.
    pub fn raw(&mut self, i: usize, m: MClientRequest) -> Result<(), Errno> {
        self.raw_tid += 1;
        let tid = self.raw_tid;
        self.say(i, tid, Box::new(m).into());
        self.settle();
        match self.raw_done.get(&tid).expect("an answer").result {
            0 => Ok(()),
            result => Err(Errno(-result)),
        }
    }

    /// What a request about something below a folder shows.
    pub fn raw_stat(&mut self, i: usize, op: FsOp, dir: &str, path: &str) -> InodeStat {
        let path = FilePath { base: self.node(i, dir).ino, path: name(path) };
        let args = RequestArgs::Mask(Caps::NONE);
        self.raw(i, MClientRequest { op, args, path, ..MClientRequest::default() }).expect("an answer");
        let reply = self.raw_done.get(&self.raw_tid).expect("an answer");
        reply.trace().expect("a trace").target.expect("an inode")
    }
}
