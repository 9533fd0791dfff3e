//! The monitor's shell: its messenger, its store, its clock around the core.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use admin::Reply;
use anyhow::{Context, Result};
use bytes::Bytes;
use cephx::{AuthError, Authorizer, CryptoKey};
use messages::type_numbers::LOLIGO_MON_PEER;
use messages::wire::WireMessage;
use messages::{Header, Message};
use monitor::{Arrival, Dismissal, Input, Member, Output, Settings};
use msgr::{ConMode, Limits, Local, Peer, Policy};
use quorum::{Tuning, Write};
use runtime::net::{AuthInput, AuthStep, Bounds, ConnectTo, Gone, Handler, Identity, Messenger, PeerReady};
use runtime::session::{Method, SharedAuth};
use runtime::{Clock, LocalSocket, Machine, OsEntropy, Owner, contained};
use tokio::sync::oneshot;
use types::{AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, Fsid};

use crate::admin_socket::{self, AdminSocketAt, Commands};
use crate::devices::Medium;
use crate::ear::{Domain, Ear, panics_of, within};
use crate::failure::{EndOf, Failure, Lasting};
use crate::inbox::{Inbox, cost};
use crate::mon_mgr::MgrLink;
use crate::mon_store::MonStore;

/// How to start a monitor.
#[derive(Debug, Clone)]
pub struct MonConfig {
    pub settings: Settings,
    /// The store, made by `MonStore::create`.
    pub store: PathBuf,
    pub listen: std::net::SocketAddr,
    /// Other monitors to ask while the store knows of none.
    pub seeds: Vec<EntityAddr>,
    /// How monitors prove to each other that they are monitors of this cluster.
    pub method: Method,
    pub key: CryptoKey,
    pub admin_socket: Option<AdminSocketAt>,
    /// Only for a blank store: the names of the cluster's first monitors, and the state with which the
    /// cluster begins when all of them are there.
    pub founding: Option<(Vec<String>, Bytes)>,
    /// The cluster that the store has to belong to, when that is known.
    pub cluster: Option<Fsid>,
    pub medium: Medium,
    /// File descriptors that are its part of the process's.
    pub descriptors: u64,
}

/// How a monitor ends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MonEnd {
    /// `ceph mon rm` has removed it.
    Removed,
    Failed(Failure),
}

/// A running monitor.
pub struct Mon {
    shell: Arc<Shell>,
    _admin: Option<LocalSocket>,
}

struct Shell {
    messenger: Messenger,
    owner: OnceLock<Owner<MonMachine>>,
    links: Mutex<Links>,
    failed: EndOf<MonEnd>,
}

/// Connections that this monitor opened: one to each other monitor for what it sends to it, and one to the
/// manager. What another monitor sends comes on a connection that the other one opened.
#[derive(Default)]
struct Links {
    open: BTreeMap<EntityAddr, ConnId>,
    tried: BTreeMap<EntityAddr, Duration>,
    mgr: MgrLink,
}

/// Between two attempts to reach a monitor.
const LINK_RETRY: Duration = Duration::from_millis(100);

impl Mon {
    /// Opens the store and listens. Clients are served as soon as there is a quorum.
    pub async fn start(config: MonConfig) -> Result<Self> {
        let store = MonStore::open_on(&config.store, config.medium, &config.settings.name, &mut OsEntropy)?;
        let options = config.settings.options.clone();
        let start = store.recover().context("the monitor's store is refused")?;
        let clock = Clock::start();
        let messenger =
            Messenger::bounded(local(0), Limits::default(), Bounds::within(0, config.descriptors), clock);
        #[cfg(feature = "test-medium")]
        let plant = crate::plant::Plant::of(&format!("mon.{}", config.settings.name));
        let mut core = Member::new(
            config.settings,
            Tuning::default(),
            config.seeds,
            Box::new(OsEntropy),
            start,
            clock.now(),
        )
        .context("the monitor's snapshot cannot be read")?;
        let theirs = core.core().state().fsid;
        if let Some(ours) = config.cluster.filter(|fsid| *fsid != theirs) {
            let store = config.store.display();
            let why = format!("{store} belongs to another cluster: {theirs} instead of {ours}");
            return Err(Lasting(why).into());
        }
        if let Some((names, state)) = config.founding {
            core.found_when_complete(names, state);
        }
        messenger.set_local(local(core.core().rank().unwrap_or(0)));
        let (jobs, work) = mpsc::channel();
        let shell = Arc::new(Shell {
            messenger: messenger.clone(),
            owner: OnceLock::new(),
            links: Mutex::default(),
            failed: EndOf::new(),
        });
        let login = PeerLogin { method: config.method, key: config.key, options };
        let wake = {
            let shell = Arc::downgrade(&shell);
            move || {
                let _ = within(&shell, |shell| shell.submit_event(Event::Woken));
            }
        };
        let machine = MonMachine {
            core,
            messenger: messenger.clone(),
            inbox: Inbox::new(messenger.clone(), clock, wake),
            shell: Arc::downgrade(&shell),
            login,
            clock,
            jobs,
            #[cfg(feature = "test-medium")]
            plant,
            out: Vec::new(),
            more: Vec::new(),
        };
        let _ = shell.owner.set(Owner::contained(machine, panics_of(&shell)));
        let weak = Arc::downgrade(&shell);
        std::thread::Builder::new()
            .name("mon-store".into())
            .spawn(move || run_store(&store, &work, &weak))?;
        messenger.set_handler(Arc::new(Ear(Arc::downgrade(&shell))));
        messenger
            .listen(config.listen, 0)
            .await
            .map_err(|e| anyhow::anyhow!("cannot listen on {}: {e}", config.listen))?;
        tokio::spawn(tick(Arc::downgrade(&shell)));
        let admin = admin_socket::open(config.admin_socket.as_ref(), Arc::clone(&shell) as Arc<dyn Commands>);
        Ok(Self { shell, _admin: admin })
    }

    /// Ends when the monitor cannot or must not go on.
    pub async fn ended(&self) -> MonEnd {
        self.shell.failed.heard().await
    }

    /// Ends the monitor from elsewhere, with the reason; a new start would meet it again.
    pub fn ender(&self) -> impl FnOnce(String) + Send + use<> {
        let shell = Arc::downgrade(&self.shell);
        move |why| {
            if let Some(shell) = shell.upgrade() {
                shell.end(MonEnd::Failed(Failure::lasting(why)));
            }
        }
    }

    /// Ends; `hand_over`: another monitor takes the lead first, when this one has it.
    pub async fn stop(&self, hand_over: bool) {
        let leads_others = |m: &mut MonMachine| m.core.raft().is_leader() && !m.core.raft().alone();
        if hand_over && self.shell.with(leads_others).unwrap_or_default() {
            self.shell.submit(Input::Resign);
            // What was proposed here has to get to its successor first, what is said last has to leave this
            // process, and the successor may still ask for this one's vote.
            let start = self.shell.messenger.now().mono;
            while self.shell.waits_for_successor(self.shell.messenger.now().mono.saturating_sub(start)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        self.shell.messenger.shut_down();
    }
}

fn local(rank: u32) -> Local {
    Local { name: EntityName::mon(rank.into()), addrs: AddrVec::default() }
}

async fn tick(shell: Weak<Shell>) {
    while let Some(Some(every)) = within(&shell, Shell::tick) {
        tokio::time::sleep(every).await;
    }
}

impl Shell {
    /// How long until the next one; `None` when there is none.
    fn tick(&self) -> Option<Duration> {
        self.submit(Input::Tick);
        self.reach_mgr();
        self.check_membership();
        self.messenger.sweep(|_| false);
        self.with(|m| m.core.tick_every())
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a session with the manager in charge.
    fn reach_mgr(&self) {
        let Some(at) = self.with(|m| m.core.core().manager_at()) else { return };
        let old = self.links().mgr.leads_elsewhere(&at);
        if let Some(old) = old {
            self.messenger.close(old);
            self.submit(Input::ManagerLost);
        }
        let now = self.messenger.now();
        if !self.links().mgr.may_open(&at, now.mono) {
            return;
        }
        let Some(Ok((auth, authorizer))) = self.with(|m| m.mgr_login(now)) else { return };
        self.links().mgr.open(&self.messenger, at, move || match &authorizer {
            Some(made) => auth.to_service_with(EntityType::Mgr, made.clone()),
            None => auth.to_service(EntityType::Mgr),
        });
    }

    fn with<T>(&self, body: impl FnOnce(&mut MonMachine) -> T) -> Option<T> {
        self.owner.get()?.with(body)
    }

    fn submit(&self, input: Input) {
        self.submit_event(Event::Core(input));
    }

    fn submit_event(&self, event: Event) {
        if let Some(owner) = self.owner.get() {
            owner.submit(event);
        }
    }

    fn waits_for_successor(&self, resigned_for: Duration) -> bool {
        self.with(|m| m.core.waits_for_successor(resigned_for)).unwrap_or_default()
    }

    /// Ends the monitor when the cluster has no place for it any more.
    fn check_membership(&self) {
        let now = self.messenger.now();
        let dismissed = self.with(|m| m.core.dismissed(now)).flatten();
        let lasting = |why: &str| MonEnd::Failed(Failure::lasting(why));
        let end = match dismissed {
            None => return,
            Some(Dismissal::Removed) => MonEnd::Removed,
            Some(Dismissal::Former) => lasting(
                "it was removed from the cluster (ceph mon rm); to use it again, make a new store and add it",
            ),
            Some(Dismissal::Unreadable) => lasting(
                "the other monitors sent a state or a change that this program does not understand: update it to their version",
            ),
            Some(Dismissal::OutdatedStore) => lasting(
                "its store is an older copy and lacks what this monitor has acknowledged; make a new store and it will \
                 fetch everything from the others",
            ),
        };
        self.end(end);
    }

    /// Ends the monitor: its port is closed, and with the machine goes the thread that has the store.
    fn end(&self, end: MonEnd) {
        self.failed.tell(end, || self.messenger.shut_down());
        if let Some(owner) = self.owner.get() {
            owner.end();
        }
    }
}

impl Domain for Shell {
    fn panicked(&self, how: String) {
        self.end(MonEnd::Failed(Failure::passing(how)));
    }
}

/// Makes writes durable, one after the other, off the threads that serve connections.
fn run_store(store: &MonStore, work: &mpsc::Receiver<Write>, shell: &Weak<Shell>) {
    while let Ok(write) = work.recv() {
        let result = contained(|| store.write(&write));
        let Some(shell) = shell.upgrade() else { return };
        match result {
            Ok(Ok(())) => shell.submit(Input::Written { seq: write.seq }),
            // After a failed write nothing is known about what the store holds: the next life finds out.
            Ok(Err(e)) => {
                return shell.end(MonEnd::Failed(Failure::passing(format!("its store failed: {e:#}"))));
            }
            Err(how) => return shell.panicked(how),
        }
    }
}

/// What this monitor proves to other monitors with that it is one.
struct PeerLogin {
    method: Method,
    key: CryptoKey,
    /// The monitor's own.
    options: BTreeMap<String, String>,
}

/// What a thread brings.
enum Event {
    /// Goes to the core at once: it comes from a monitor, or has a bound of its own.
    Core(Input),
    /// Takes its turn among the messages of all peers.
    Message { conn: ConnId, bytes: u64, said: Box<Said> },
    /// Messages wait for another turn.
    Woken,
}

/// A message of a client or a daemon.
struct Said {
    header: Header,
    msg: Message,
    /// Bytes of its payload, which are counted while it waits.
    bytes: usize,
}

struct MonMachine {
    core: Member,
    messenger: Messenger,
    inbox: Inbox<Box<Said>>,
    shell: Weak<Shell>,
    login: PeerLogin,
    clock: Clock,
    jobs: mpsc::Sender<Write>,
    #[cfg(feature = "test-medium")]
    plant: crate::plant::Plant,
    out: Vec<Output>,
    /// Inputs that follow from outputs.
    more: Vec<Input>,
}

impl Machine for MonMachine {
    type Input = Event;

    fn apply(&mut self, events: &mut Vec<Event>) {
        #[cfg(feature = "test-medium")]
        self.plant.strike("input");
        self.inbox.begin();
        for event in events.drain(..) {
            match event {
                Event::Core(input) => self.handle(input),
                Event::Message { conn, bytes, said } => self.arrive(conn, bytes, said),
                Event::Woken => self.inbox.woken(),
            }
        }
        // Whatever else came has taken its time.
        self.inbox.begin();
        while let Some((conn, said)) = self.inbox.next() {
            self.hear(conn, *said);
        }
        self.inbox.end();
    }
}

impl MonMachine {
    fn arrive(&mut self, conn: ConnId, bytes: u64, said: Box<Said>) {
        // The core closes connections that it knows nothing of.
        let name = self.core.core().entity_of(conn).cloned().unwrap_or_default();
        match self.inbox.arrive(&name, conn, bytes, said) {
            Arrival::Now(said) => self.hear(conn, *said),
            Arrival::Waits => {}
            Arrival::TooMuch => {
                self.messenger.close(conn);
                self.handle(Input::Disconnected { conn });
            }
        }
    }

    fn hear(&mut self, conn: ConnId, said: Said) {
        let Said { header, msg, bytes } = said;
        self.handle(Input::Message { conn, header, msg, bytes });
    }

    fn handle(&mut self, input: Input) {
        if let Input::Disconnected { conn } = &input {
            self.inbox.forget(*conn);
        }
        let now = self.clock.now();
        self.more.push(input);
        while let Some(input) = self.more.pop() {
            self.core.handle(now, input, &mut self.out);
            let mut out = std::mem::take(&mut self.out);
            out.drain(..).for_each(|output| self.carry_out(output));
            self.out = out;
        }
    }

    /// This monitor's identity towards a manager, and its proof where the cluster wants one.
    fn mgr_login(&mut self, now: types::Now) -> Result<(Arc<SharedAuth>, Option<Authorizer>), AuthError> {
        let name = AuthName::new(EntityType::Mon, "");
        let auth = SharedAuth::new(self.login.method, name, self.login.key.clone(), EntityType::Mon);
        let authorizer = match self.login.method {
            Method::Cephx => Some(self.core.core_mut().manager_authorizer(now)?),
            Method::None => None,
        };
        Ok((auth.with_options(&self.login.options), authorizer))
    }

    /// Sends to another monitor, connecting first when there is no connection. What cannot be sent is lost,
    /// and the core hears of that.
    fn send_to_peer(&mut self, addr: EntityAddr, data: Bytes) {
        let Some(shell) = self.shell.upgrade() else { return };
        let mut links = shell.links();
        let conn = match links.open.get(&addr) {
            Some(conn) => *conn,
            None => {
                let now = self.clock.now().mono;
                if links.tried.get(&addr).is_some_and(|at| *at + LINK_RETRY > now) {
                    return self.more.push(Input::PeerLost { addr });
                }
                links.tried.insert(addr, now);
                let name = AuthName::new(EntityType::Mon, "");
                let (method, key) = (self.login.method, self.login.key.clone());
                let options = self.login.options.clone();
                let auth = Arc::new(move || {
                    let auth = SharedAuth::new(method, name.clone(), key.clone(), EntityType::Mon);
                    auth.with_options(&options).login()
                });
                let peer = Peer { name: EntityName::mon(0), addrs: AddrVec::single(addr) };
                let to = ConnectTo { peer, addr, policy: Policy::lossy_client(), auth, from: None };
                let conn = self.messenger.connect(to);
                links.open.insert(addr, conn);
                conn
            }
        };
        drop(links);
        // As data, not as front: a snapshot may be larger than what a front may hold.
        let header = Header { ty: LOLIGO_MON_PEER, version: 1, compat_version: 1, ..Header::default() };
        self.messenger.send(conn, WireMessage { header, data, ..WireMessage::default() });
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::AuthMore { conn, payload } => self.messenger.answer_auth(conn, AuthStep::More(payload)),
            Output::AuthDone { conn, name, global_id, con_mode, payload, session_key, connection_secret } => {
                let identity = Identity { name, global_id, caps: Default::default() };
                let step = AuthStep::Done {
                    identity,
                    mode: ConMode::from_u32(con_mode).unwrap_or(ConMode::Crc),
                    payload,
                    session_key,
                    connection_secret,
                };
                self.messenger.answer_auth(conn, step);
            }
            Output::AuthBad { conn, refusal } => {
                if let Some(why) = &refusal.why {
                    tracing::warn!("refused a connection: {why}");
                }
                let modes = refusal.allowed_modes.iter().filter_map(|m| ConMode::from_u32(*m)).collect();
                let step = AuthStep::Bad { errno: refusal.errno.0, methods: refusal.allowed_methods, modes };
                self.messenger.answer_auth(conn, step);
            }
            Output::Send { conn, tid, msg } => self.messenger.send(conn, msg.into_wire(tid)),
            Output::SendManager { tid, msg } => {
                let mgr = self.shell.upgrade().and_then(|shell| shell.links().mgr.conn());
                mgr.into_iter().for_each(|conn| self.messenger.send(conn, msg.clone().into_wire(tid)));
            }
            // The messenger calls no `gone` for a connection that it was told to close, and the core has
            // forgotten it.
            Output::Close { conn } => {
                self.messenger.close(conn);
                self.inbox.forget(conn);
            }
            Output::Peer { addr, data } => self.send_to_peer(addr, data),
            Output::Write(write) => {
                let _ = self.jobs.send(write);
            }
            // `Member` has carried these out itself and passes none of them on.
            Output::Propose { .. }
            | Output::TakeSnapshot { .. }
            | Output::Read { .. }
            | Output::Forward { .. }
            | Output::WantIds { .. } => {}
        }
    }
}

impl Commands for Shell {
    fn command(&self, cmd: String, answer: oneshot::Sender<Reply>) {
        if let Some(reply) = self.with(|m| m.core.core_mut().daemon_command(m.clock.now(), &[cmd])) {
            let _ = answer.send(reply);
        }
    }
}

impl Handler for Shell {
    fn authenticate(&self, conn: ConnId, peer_type: u8, addr: EntityAddr, input: AuthInput) -> AuthStep {
        self.submit(match input {
            AuthInput::Request { method, preferred_modes, payload } => Input::AuthRequest {
                conn,
                peer_type: EntityType::from_u8(peer_type).unwrap_or(EntityType::Client),
                method,
                preferred_modes,
                payload,
                peer_addr: addr,
            },
            AuthInput::More { payload } => Input::AuthMore { conn, payload },
        });
        AuthStep::Pending
    }

    fn accept_policy(&self, _: EntityType) -> Policy {
        Policy::stateless_server()
    }

    fn ready(&self, conn: ConnId, peer: PeerReady) {
        if peer.identity.is_none() {
            // A connection that this monitor opened: to the manager, or to another monitor.
            if self.links().mgr.conn() == Some(conn) {
                self.submit(Input::ManagerConnected);
            }
            return;
        }
        self.submit(Input::Connected { conn, peer: peer.name, addrs: peer.addrs, features: peer.features });
    }

    /// Clients alone: daemons do not wait for clients. What daemons send is bounded by the inbox.
    fn is_gated(&self, kind: EntityType) -> bool {
        kind == EntityType::Client
    }

    fn messages(&self, conn: ConnId, batch: &mut Vec<WireMessage>) {
        let links = self.links();
        let from_mgr = links.mgr.conn() == Some(conn);
        // What another monitor has to say comes on connections that it opened. On this link it sends tickets
        // when their form changes, as it does to every peer that logged in, and this monitor needs none.
        let is_own = links.open.values().any(|own| *own == conn);
        drop(links);
        if is_own {
            return batch.clear();
        }
        for wire in batch.drain(..) {
            let bytes = cost(&wire);
            // A manager is no monitor: what it sends in that form is for the core to ignore.
            if wire.header.ty == LOLIGO_MON_PEER && !from_mgr {
                self.submit(Input::Peer { conn, data: wire.data });
                continue;
            }
            match Message::decode(&wire) {
                Ok(msg) if from_mgr => self.submit(Input::FromManager { tid: wire.header.tid, msg }),
                Ok(msg) => {
                    self.messenger.gate().came(bytes);
                    let said = Box::new(Said { header: wire.header, msg, bytes: wire.payload_len() });
                    self.submit_event(Event::Message { conn, bytes, said });
                }
                Err(error) => {
                    tracing::info!("{conn}: message of type {} does not decode: {error}", wire.header.ty);
                    self.messenger.close(conn);
                    self.gone(conn, Gone::Lost(error.to_string()));
                    return;
                }
            }
        }
    }

    fn gone(&self, conn: ConnId, _: Gone) {
        let mut links = self.links();
        if links.mgr.gone(conn) {
            drop(links);
            return self.submit(Input::ManagerLost);
        }
        let ours = links.open.iter().find(|(_, c)| **c == conn).map(|(addr, _)| *addr);
        if let Some(addr) = ours {
            links.open.remove(&addr);
            drop(links);
            return self.submit(Input::PeerLost { addr });
        }
        drop(links);
        self.submit(Input::Disconnected { conn });
    }
}

#[cfg(test)]
mod tests {
    use cephx::METHOD_NONE;
    use messages::mon::MMonGetMap;
    use monitor::{GenesisConfig, Monitor};
    use quorum::{MemberId, Membership};
    use types::{AddrKind, SeededEntropy, Utime};

    use super::*;

    /// A lone monitor, in a folder that goes with the first of these.
    async fn started() -> (tempfile::TempDir, Mon) {
        let dir = tempfile::tempdir().expect("a folder");
        let store = dir.path().join("store.redb");
        let addrs =
            AddrVec::single(EntityAddr::parse("v2:127.0.0.1:3300/0", AddrKind::Msgr2).expect("an address"));
        let genesis = GenesisConfig {
            fsid: Fsid([7; 16]),
            monmap: maps::MonMap::new(Fsid([7; 16]), Utime::ZERO, [("a".to_owned(), addrs.clone())]),
            entities: BTreeMap::new(),
            failure_domain: "osd".to_owned(),
            options: Vec::new(),
            osds: Vec::new(),
        };
        let state = Monitor::genesis(&genesis, Clock::start().now(), &mut SeededEntropy(1));
        let members = Membership::of([(MemberId(7), "a".to_owned())]);
        MonStore::create(&store, MemberId(7), members, &state).expect("a store");
        let mut settings = Settings::new("a", addrs);
        settings.auth_methods = vec![METHOD_NONE];
        let config = MonConfig {
            settings,
            store,
            listen: "127.0.0.1:0".parse().expect("an address"),
            seeds: Vec::new(),
            method: Method::None,
            key: CryptoKey::new([1; 16], Utime::ZERO),
            admin_socket: None,
            founding: None,
            cluster: None,
            medium: Medium::default(),
            descriptors: 1_024,
        };
        (dir, Mon::start(config).await.expect("a monitor"))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_core_hears_of_the_end_of_what_it_closed() {
        let (_dir, mon) = started().await;
        let conn = ConnId(1_000);
        let name = AuthName::new(EntityType::Client, "x");
        let knows = |mon: &Mon| mon.shell.with(|m| m.core.core().entity_of(conn).is_some()).expect("it runs");
        // A number for the session comes with the first commit.
        let payload = cephx::none_login_request(&name, types::GlobalId(0));
        mon.shell.submit(Input::AuthRequest {
            conn,
            peer_type: EntityType::Client,
            method: METHOD_NONE,
            preferred_modes: vec![1],
            payload,
            peer_addr: EntityAddr::default(),
        });
        while !knows(&mon) {
            tokio::task::yield_now().await;
        }
        // A message before the connection stands has the core close it.
        let said = Box::new(Said { header: Header::default(), msg: MMonGetMap {}.into(), bytes: 0 });
        mon.shell.messenger.gate().came(1);
        mon.shell.submit_event(Event::Message { conn, bytes: 1, said });
        while knows(&mon) {
            tokio::task::yield_now().await;
        }
        mon.stop(false).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_link_outlasts_what_is_said_on_it() {
        let (_dir, mon) = started().await;
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = EntityAddr::v2(silent.local_addr().expect("an address"), 0);
        mon.shell.with(|m| m.send_to_peer(at, Bytes::new())).expect("it runs");
        let conn = *mon.shell.links().open.get(&at).expect("a link");
        let tickets = Message::from(messages::auth::MAuthReply::default());
        mon.shell.messages(conn, &mut vec![tickets.into_wire(0)]);
        mon.shell.with(|_| ()).expect("it runs");
        assert!(mon.shell.messenger.peer_addr(conn).is_some(), "still there");
        mon.stop(false).await;
    }
}
