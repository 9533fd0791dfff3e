//! The server's owner of state: cores, connections, and what goes between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use admin::Reply;
use admin::options::Values;
use admin::perf::Resets;
use bytes::Bytes;
use codec::Decode;
use maps::{MdsMap, MdsState, OsdMap};
use mds::{Effect, OsdMapView, Peer, Server, storage};
use messages::Message;
use messages::common::{MCommand, MCommandReply};
use messages::log::{LogEntry, MLog, log_priority};
use messages::mon::{MMdsMap, MMonSubscribe, SubscribeItem};
use messages::osd::MRemoveSnaps;
use messages::payload::PaxosVersion;
use monitor::Arrival;
use msgr::Local;
use objecter::{Objecter, Outcome, Request, SessionId, Ticket};
use runtime::net::Messenger;
use runtime::session::{MonSession, SharedAuth};
use runtime::{Clock, Machine};
use tokio::sync::oneshot;
use types::{
    AddrKind, AddrVec, AuthName, CompatSet, ConnId, EntityAddr, EntityName, EntityType, Epoch, Errno, Fsid,
    GlobalId,
};

use super::MdsEnd;
use super::beacon::Beacon;
use super::links::Links;
use crate::failure::{EndOf, Failure};
use crate::inbox::Inbox;

/// What a thread brings.
pub(crate) enum Event {
    MonReady {
        gid: u64,
    },
    MonGone,
    FromMon {
        tid: u64,
        msg: Message,
    },
    /// A connection that the objecter opened stands.
    ServiceReady(ConnId),
    Connected(ConnId, Box<Peer>),
    /// A client's message takes its turn among those of all clients; one of a daemon that the objecter has
    /// asked is heard at once.
    Said {
        conn: ConnId,
        bytes: u64,
        said: Box<Said>,
    },
    Gone(ConnId),
    /// A command through the admin socket.
    Asked {
        cmd: String,
        answer: oneshot::Sender<Reply>,
    },
    /// Messages wait for another turn.
    Woken,
    Tick,
}

/// A client's message.
pub(crate) struct Said {
    pub(super) tid: u64,
    pub(super) msg: Message,
}

/// What a machine is made of.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) addrs: AddrVec,
    pub(super) options: BTreeMap<String, String>,
    pub(super) messenger: Messenger,
    pub(super) clock: Clock,
    pub(super) auth: Arc<SharedAuth>,
    pub(super) session: Arc<MonSession>,
    pub(super) ended: Arc<EndOf<MdsEnd>>,
    pub(super) wake: Box<dyn Fn() + Send + Sync>,
}

/// Commands that wait until the journal is flushed, at most.
const MAX_FLUSHING: usize = 16;

/// What the objecter is asked for.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Object(storage::OpId),
    /// A client is to be shut out; then the map that says so is needed.
    Blocklist(GlobalId),
    BlocklistMap(GlobalId),
    /// A newer map, whichever.
    NextMap,
    /// A map that the core waits for.
    Map,
}

/// What is to be handled before an event is done with.
enum Todo {
    Core(mds::Input),
    Objecter(objecter::Input),
}

/// See the module's documentation.
pub(crate) struct MdsMachine {
    pub(super) name: String,
    pub(super) core: Option<Server>,
    objecter: Objecter,
    pub(super) beacon: Beacon,
    links: Links,
    pub(super) map: MdsMap,
    pub(super) osd_map: Arc<OsdMap>,
    pub(super) values: Values,
    pub(super) resets: Resets,
    pub(super) addrs: AddrVec,
    gid: u64,
    fsid: Fsid,
    is_mon_ready: bool,
    is_leaving: bool,
    is_laggy: bool,
    /// Why the rank is damaged; the monitors are told, then the server ends.
    damage: Option<String>,
    log_seq: u64,
    last_ticket: u64,
    asked: BTreeMap<Ticket, Asked>,
    peers: BTreeMap<ConnId, Peer>,
    /// Who waits until the journal is flushed.
    flushing: Vec<Box<dyn FnOnce(Reply) + Send>>,
    inbox: Inbox<Box<Said>>,
    dirty: BTreeSet<ConnId>,
    todo: VecDeque<Todo>,
    out: Vec<Effect>,
    effects: Vec<objecter::Effect>,
    messenger: Messenger,
    clock: Clock,
    session: Arc<MonSession>,
    ended: Arc<EndOf<MdsEnd>>,
}

impl MdsMachine {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { name, addrs, options, messenger, clock, auth, session, ended, wake } = parts;
        let values = Values::new(format!("mds.{name}"), &options);
        let mut about = crate::metadata::host();
        about.insert("addr".to_owned(), addrs.to_string());
        let fs = values.get("mds_join_fs").unwrap_or_default();
        let beacon = Beacon::new(name.clone(), fs, about, clock.now().mono);
        Self {
            name,
            core: None,
            objecter: Objecter::new(objecter::Settings::default()),
            beacon,
            links: Links::new(messenger.clone(), auth),
            map: MdsMap::default(),
            osd_map: Arc::new(OsdMap::default()),
            values,
            resets: Resets::default(),
            addrs,
            gid: 0,
            fsid: Fsid::default(),
            is_mon_ready: false,
            is_leaving: false,
            is_laggy: false,
            damage: None,
            log_seq: 0,
            last_ticket: 0,
            asked: BTreeMap::new(),
            peers: BTreeMap::new(),
            flushing: Vec::new(),
            inbox: Inbox::new(messenger.clone(), clock, wake),
            dirty: BTreeSet::new(),
            todo: VecDeque::new(),
            out: Vec::new(),
            effects: Vec::new(),
            messenger,
            clock,
            session,
            ended,
        }
    }

    /// Tells the monitors that the server goes; whether they have heard it.
    pub(super) fn says_farewell(&mut self) -> bool {
        self.is_leaving = true;
        self.beacon.want(MdsState::DNE);
        self.send_beacon();
        // Who is in no map is not missed, and gets no answer.
        !self.is_mon_ready || !self.map.info.contains_key(&self.gid) || self.beacon.is_heard()
    }

    pub(super) fn gid(&self) -> u64 {
        self.gid
    }

    /// -1 for none.
    pub(super) fn rank(&self) -> maps::Rank {
        self.map.info.get(&self.gid).map_or(maps::NO_RANK, |info| info.rank)
    }

    fn deposed(&mut self, why: impl Into<String>) {
        if !self.is_leaving {
            self.is_leaving = true;
            self.ended.tell(MdsEnd::Deposed(why.into()), || self.messenger.shut_down());
        }
    }

    /// Ends for good.
    fn fail(&mut self, why: String) {
        self.is_leaving = true;
        self.ended.tell(MdsEnd::Failed(Failure::lasting(why)), || self.messenger.shut_down());
    }

    pub(super) fn core(&mut self, input: mds::Input) {
        self.todo.push_back(Todo::Core(input));
    }

    fn ask(&mut self, asked: Asked, request: Request) {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.asked.insert(ticket, asked);
        self.todo.push_back(Todo::Objecter(objecter::Input::Submit(ticket, request)));
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::MonReady { gid } => self.mon_ready(gid),
            Event::MonGone => {
                self.is_mon_ready = false;
                self.todo.push_back(Todo::Objecter(objecter::Input::MonGone));
            }
            Event::FromMon { tid, msg } => self.hear_mon(tid, msg),
            Event::ServiceReady(conn) => {
                if let Some(session) = self.links.session(conn) {
                    self.todo.push_back(Todo::Objecter(objecter::Input::SessionReady(session)));
                }
            }
            Event::Connected(conn, peer) => {
                // A peer that forgot its session comes again over the same connection.
                if self.peers.insert(conn, (*peer).clone()).is_some() {
                    self.core(mds::Input::Gone(conn));
                }
                self.core(mds::Input::Connected(conn, peer));
            }
            Event::Said { conn, bytes, said } => match self.links.session(conn) {
                Some(session) => self.hear_service(session, bytes, *said),
                None => self.arrive(conn, bytes, said),
            },
            Event::Gone(conn) => self.gone(conn),
            Event::Asked { cmd, answer } => self.command(&[cmd], move |reply| {
                let _ = answer.send(reply);
            }),
            Event::Woken => self.inbox.woken(),
            Event::Tick => self.tick(),
        }
        self.settle();
    }

    /// Handles what there is to do until nothing is left.
    fn settle(&mut self) {
        while let Some(todo) = self.todo.pop_front() {
            let now = self.clock.now();
            match todo {
                Todo::Core(input) => {
                    let Some(core) = &mut self.core else { continue };
                    let mut out = std::mem::take(&mut self.out);
                    core.handle(now, input, &mut out);
                    out.drain(..).for_each(|effect| self.carry_out(effect));
                    self.out = out;
                }
                Todo::Objecter(input) => {
                    let mut effects = std::mem::take(&mut self.effects);
                    self.objecter.handle(now, input, &mut effects);
                    effects.drain(..).for_each(|effect| self.carry_out_objecter(effect));
                    self.effects = effects;
                }
            }
        }
    }

    fn gone(&mut self, conn: ConnId) {
        if let Some(session) = self.links.gone(conn) {
            return self.todo.push_back(Todo::Objecter(objecter::Input::SessionGone(session)));
        }
        self.inbox.forget(conn);
        if self.peers.remove(&conn).is_some() {
            self.core(mds::Input::Gone(conn));
        }
    }

    fn hear_service(&mut self, session: SessionId, bytes: u64, said: Said) {
        self.messenger.gate().taken(bytes);
        let Said { tid, msg } = said;
        self.todo.push_back(Todo::Objecter(objecter::Input::FromSession { session, tid, msg }));
    }

    fn arrive(&mut self, conn: ConnId, bytes: u64, said: Box<Said>) {
        let name = self.peers.get(&conn).map(|peer| peer.name.clone()).unwrap_or_default();
        match self.inbox.arrive(&name, conn, bytes, said) {
            Arrival::Now(said) => self.hear(conn, *said),
            Arrival::Waits => {}
            Arrival::TooMuch => {
                self.messenger.close(conn);
                self.gone(conn);
            }
        }
    }

    fn hear(&mut self, conn: ConnId, said: Said) {
        let Said { tid, msg } = said;
        match msg {
            Message::Command(m) => self.hear_command(conn, tid, &m),
            msg => self.core(mds::Input::Said { conn, tid, msg }),
        }
        self.settle();
    }

    fn hear_command(&mut self, conn: ConnId, tid: u64, m: &MCommand) {
        let may = self.peers.get(&conn).is_some_and(|peer| peer.caps.is_allow_all());
        let messenger = self.messenger.clone();
        let answer = move |reply: Reply| {
            let msg = MCommandReply { result: reply.code, status: reply.outs, output: reply.data };
            messenger.send(conn, Message::from(msg).into_wire(tid));
        };
        match may {
            true => self.command(&m.cmd, answer),
            false => answer(Reply::error(Errno::EACCES, "permission denied")),
        }
    }

    /// Writes everything back that is in the journal alone, and answers when nothing is.
    pub(super) fn when_flushed(&mut self, answer: Box<dyn FnOnce(Reply) + Send>) {
        if self.flushing.len() >= MAX_FLUSHING {
            return answer(Reply::error(Errno::EBUSY, "the journal is being flushed already"));
        }
        self.flushing.push(answer);
        self.flush_on();
    }

    fn flush_on(&mut self) {
        if self.flushing.is_empty() {
            return;
        }
        let Some(core) = &mut self.core else { return };
        core.flush_journal();
        // What it wants comes with the next input.
        if core.cache_view().dirty > 0 {
            return self.todo.push_back(Todo::Core(mds::Input::Tick));
        }
        for answer in self.flushing.drain(..) {
            let value = serde_json::json!({ "message": "", "return_code": 0 });
            answer(Reply::json(admin::Format::JsonPretty, &value));
        }
    }

    fn send(&mut self, conn: ConnId, tid: u64, msg: Message) {
        self.messenger.queue(conn, msg.into_wire(tid));
        self.dirty.insert(conn);
    }

    fn tick(&mut self) {
        let now = self.clock.now().mono;
        if self.objecter.deadline().is_some_and(|at| at <= now) {
            self.todo.push_back(Todo::Objecter(objecter::Input::Tick));
        }
        if self.core.as_ref().and_then(Server::deadline).is_some_and(|at| at <= now) {
            self.core(mds::Input::Tick);
        }
        self.flush_on();
        self.send_beacon();
        let was_laggy = std::mem::replace(&mut self.is_laggy, self.beacon.is_laggy(now));
        if self.is_laggy && !was_laggy {
            tracing::warn!("mds.{}: the monitors do not answer; another server may get its rank", self.name);
        }
        if self.damage.is_some() && self.beacon.is_heard() {
            let why = self.damage.take().unwrap_or_default();
            self.is_leaving = true;
            // The monitors give the rank to nobody until somebody says that it is repaired.
            self.ended.tell(MdsEnd::Deposed(why), || self.messenger.shut_down());
        }
    }

    fn send_beacon(&mut self) {
        if !self.is_mon_ready || self.fsid == Fsid::default() {
            return;
        }
        if let Some(beacon) = self.beacon.due(self.clock.now().mono, self.gid, self.fsid) {
            self.session.send(beacon.into());
        }
    }

    // The monitors.

    fn mon_ready(&mut self, gid: u64) {
        if self.gid != 0 && self.gid != gid {
            return self.deposed("the monitors gave it another number");
        }
        self.gid = gid;
        self.is_mon_ready = true;
        let start = self.map.epoch.0.saturating_add(1);
        let start = if self.map.epoch == Epoch(0) { 0 } else { start };
        let what = [("mdsmap".to_owned(), SubscribeItem { start: start.into(), flags: 0 })];
        self.session.send(MMonSubscribe { what: what.into(), ..MMonSubscribe::default() }.into());
        self.todo.push_back(Todo::Objecter(objecter::Input::MonReady));
        if self.osd_map.epoch == Epoch(0) {
            self.ask(Asked::NextMap, Request::WaitMap(Epoch(1)));
        }
        self.beacon.again();
        self.send_beacon();
    }

    fn hear_mon(&mut self, tid: u64, msg: Message) {
        match msg {
            Message::MdsMap(m) => self.mds_map(m),
            Message::MdsBeacon(m) => self.beacon.answered(m.seq),
            Message::Config(m) => self.values.set_from_mon(&m.options),
            Message::RemoveSnaps(m) => self.core(mds::Input::SnapsRemoved(m.snaps)),
            msg => self.todo.push_back(Todo::Objecter(objecter::Input::FromMon { tid, msg })),
        }
    }

    /// Source: MDSDaemon::handle_mds_map in src/mds/MDSDaemon.cc.
    fn mds_map(&mut self, m: MMdsMap) {
        let map = match MdsMap::from_bytes(m.map) {
            Ok(map) => map,
            Err(error) => return tracing::warn!("mds.{}: a map does not decode: {error}", self.name),
        };
        if map.epoch <= self.map.epoch || self.is_leaving {
            return;
        }
        if !CompatSet::all().may_write(&map.compat) {
            let compat = &map.compat;
            return self.fail(format!("the file system needs what this server does not have: {compat}"));
        }
        if map.inline_data {
            return self.fail("the file system has data within inodes, which is not served".to_owned());
        }
        let state = |map: &MdsMap| map.info.get(&self.gid).map(|info| info.state);
        let (before, state) = (state(&self.map), state(&map));
        self.beacon.map(&map);
        self.map = map.clone();
        self.be_called();
        match (before, state) {
            (Some(_), None) => return self.deposed("the map has removed it"),
            (_, None) => return,
            // One that is to follow a rank waits for it, and reads the journal when it has the rank.
            (_, Some(state @ (MdsState::STANDBY | MdsState::STANDBY_REPLAY))) => self.beacon.want(state),
            (_, Some(_)) => {}
        }
        if self.core.is_none() {
            self.core = Some(Server::new(mds::Settings { gid: self.gid, ..mds::Settings::default() }));
            self.tell_osd_map();
        }
        self.core(mds::Input::MdsMap(Box::new(map)));
    }

    /// Clients know the servers of a file system by their ranks. Source: MDSRank::init, MDSDaemon::init.
    fn be_called(&self) {
        let name = EntityName::new(EntityType::Mds, self.rank().into());
        let local = self.messenger.local();
        if local.name != name {
            self.messenger.set_local(Local { name, ..local });
        }
    }

    fn tell_osd_map(&mut self) {
        let map = &self.osd_map;
        if map.epoch == Epoch(0) {
            return;
        }
        let view = OsdMapView {
            epoch: map.epoch,
            pools: map.pool_names.iter().map(|(id, name)| (name.clone(), *id)).collect(),
            snap_seqs: map.pools.iter().map(|(id, pool)| (*id, pool.snap_seq)).collect(),
            blocklisted: self.shut_out(),
        };
        self.core(mds::Input::OsdMap(view));
    }

    /// Addresses that are shut out, as clients have them: the map's hold for every protocol, and some for a
    /// whole host.
    fn shut_out(&self) -> BTreeSet<EntityAddr> {
        let map = &self.osd_map;
        let listed = map.blocklist.keys().map(|addr| EntityAddr { kind: AddrKind::Msgr2, ..*addr });
        let peers = self.peers.values().map(|peer| peer.addr).filter(|addr| map.is_blocklisted(addr));
        listed.chain(peers).collect()
    }

    fn new_osd_map(&mut self, map: Arc<OsdMap>) {
        if map.any_blocklisted(&self.addrs) {
            return self.deposed("the OSD map has blocklisted it");
        }
        self.fsid = map.fsid;
        self.osd_map = map;
        self.tell_osd_map();
        self.ask(Asked::NextMap, Request::WaitMap(self.osd_map.epoch.next()));
        self.send_beacon();
    }

    // What the cores want.

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { conn, tid, msg } => self.send(conn, tid, msg),
            Effect::Close(conn) => {
                self.inbox.forget(conn);
                self.peers.remove(&conn);
                self.messenger.close(conn);
            }
            Effect::Want(state) => {
                self.beacon.want(state);
                self.send_beacon();
            }
            Effect::RemoveSnaps(snaps) => {
                self.session.send(MRemoveSnaps { snaps, ..MRemoveSnaps::default() }.into());
            }
            Effect::Blocklist(client, addr) => {
                // Source: MDSRank::evict_client in src/mds/MDSRank.cc.
                let at = addr.socket.map_or_else(|| "-".to_owned(), |at| format!("{at}/{}", addr.nonce));
                let command =
                    serde_json::json!({"prefix": "osd blocklist", "blocklistop": "add", "addr": at});
                let cmd = vec![command.to_string()];
                self.ask(Asked::Blocklist(client), Request::MonCommand { cmd, input: Bytes::new() });
            }
            Effect::NeedOsdMap(epoch) => self.ask(Asked::Map, Request::WaitMap(epoch)),
            Effect::Object(op) => {
                let id = op.id;
                self.ask(Asked::Object(id), Request::Op(Box::new(op.into_request())));
            }
            Effect::Warn(text) => self.warn(text),
            Effect::Damaged(why) => {
                self.warn(format!("the rank is damaged: {why}"));
                self.damage = Some(why);
                self.beacon.want(MdsState::DAMAGED);
                self.send_beacon();
            }
            Effect::Respawn => self.deposed("it has lost its rank"),
        }
    }

    /// A line for the cluster's log, and for this daemon's own.
    fn warn(&mut self, text: String) {
        tracing::warn!("mds.{}: {text}", self.name);
        self.log_seq += 1;
        let entry = LogEntry {
            name: AuthName::new(EntityType::Mds, self.name.clone()),
            rank: EntityName::new(EntityType::Mds, i64::from(self.rank())),
            addrs: self.addrs.clone(),
            stamp: self.clock.now().wall,
            seq: self.log_seq,
            priority: log_priority::WARN,
            text,
            channel: "cluster".to_owned(),
        };
        let msg = MLog { version: PaxosVersion(0), fsid: self.fsid, entries: vec![entry] };
        self.session.send(msg.into());
    }

    fn carry_out_objecter(&mut self, effect: objecter::Effect) {
        use objecter::Effect as E;
        match effect {
            E::SendMon { tid, msg } => self.session.send_as(msg, tid),
            E::Open { session, peer, addrs } => self.links.open(session, peer, addrs),
            E::Close(session) => self.links.close(session),
            E::Send { session, tid, msg } => {
                if let Some(conn) = self.conn_of(session) {
                    self.send(conn, tid, msg);
                }
            }
            E::Done(ticket, outcome) => {
                if let Some(asked) = self.asked.remove(&ticket) {
                    self.answered(asked, outcome);
                }
            }
            E::NewMap(map) => self.new_osd_map(map),
            E::NewMonMap(map) => self.session.follow(&map),
            E::Watch { .. } => {}
        }
    }

    fn conn_of(&self, session: SessionId) -> Option<ConnId> {
        self.links.conn(session)
    }

    fn answered(&mut self, asked: Asked, outcome: Outcome) {
        match (asked, outcome) {
            (Asked::Object(id), Outcome::Op(reply)) => {
                self.core(mds::Input::ObjectDone(id, storage::reply_of(reply)));
            }
            (Asked::Object(id), _) => self.core(mds::Input::ObjectDone(id, Err(Errno::EIO))),
            (Asked::Blocklist(client), Outcome::Command(reply)) if reply.result >= 0 => {
                self.ask(Asked::BlocklistMap(client), Request::LatestMap);
            }
            (Asked::Blocklist(client), outcome) => {
                self.warn(format!("client.{client} cannot be shut out: {outcome:?}"));
            }
            (Asked::BlocklistMap(client), Outcome::Map(epoch)) => {
                self.core(mds::Input::Blocklisted(client, epoch));
            }
            (Asked::BlocklistMap(_) | Asked::NextMap | Asked::Map, _) => {}
        }
    }
}

impl Machine for MdsMachine {
    type Input = Event;

    fn apply(&mut self, events: &mut Vec<Event>) {
        self.inbox.begin();
        events.drain(..).for_each(|event| self.event(event));
        // Whatever else came has taken its time.
        self.inbox.begin();
        while let Some((conn, said)) = self.inbox.next() {
            self.hear(conn, *said);
        }
        self.inbox.end();
        for conn in std::mem::take(&mut self.dirty) {
            self.messenger.flush(conn);
        }
    }
}
