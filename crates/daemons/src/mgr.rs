//! The manager's shell: its messenger and its clock around the core.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use admin::Reply;
use anyhow::Result;
use cephx::TicketForm;
use cephx::caps::MgrCap;
use manager::prometheus::MetricsAt;
use manager::users::HASH_COST;
use manager::{Ask, DashboardAt, Input, Manager, Output, PeerInfo, Settings};
use messages::Message;
use messages::wire::WireMessage;
use monitor::{Arrival, Whose};
use msgr::{Limits, Local, Policy};
use runtime::net::{AuthInput, AuthStep, Bounds, Gone, Handler, Messenger, PeerReady};
use runtime::{Clock, LocalSocket, Machine, Owner};
use tokio::sync::{oneshot, watch};
use types::{AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, Errno, Now};

use crate::admin_socket::{self, AdminSocketAt, Commands};
use crate::client::{Clients, Jobs};
use crate::ear::{Domain, Ear, panics_of, within};
use crate::failure::{EndOf, Failure};
use crate::inbox::{Inbox, cost};
use crate::listen::{self, ListenAt};
use crate::seen::seen_at;
use runtime::session::{MonSession, SharedAuth};

/// How long somebody in this process waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Questions of this process that wait at a time.
const MOST_ASKS: usize = 64;

/// How to start a manager.
#[derive(Clone)]
pub struct MgrSettings {
    pub name: String,
    pub listen: ListenAt,
    pub monitors: Vec<EntityAddr>,
    pub auth: Arc<SharedAuth>,
    /// Options of the configuration file.
    pub options: BTreeMap<String, String>,
    pub admin_socket: Option<AdminSocketAt>,
    /// How often this process has been a manager before: each life has an address of its own.
    pub life: i32,
    /// On Ceph's monitors: takes over even where modules are in use that it does not stand for.
    pub force: bool,
    /// File descriptors that are its part of the process's.
    pub descriptors: u64,
    /// Who does on its behalf what the core decides.
    pub clients: Arc<dyn Clients>,
}

/// How a manager ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MgrEnd {
    /// It lost its place, and its address is blocked: it may come back in another life.
    Deposed,
    Failed(Failure),
}

/// A running manager.
pub struct Mgr {
    shell: Arc<Shell>,
    _admin: Option<LocalSocket>,
}

/// What others of this process have of a manager; it does not keep the manager.
#[derive(Clone)]
pub struct MgrHandle {
    shell: Weak<Shell>,
    dashboard: watch::Receiver<Option<DashboardAt>>,
    metrics: watch::Receiver<Option<MetricsAt>>,
}

struct Shell {
    asked: AtomicU64,
    clock: Clock,
    dashboard: watch::Sender<Option<DashboardAt>>,
    metrics: watch::Sender<Option<MetricsAt>>,
    messenger: Messenger,
    auth: Arc<SharedAuth>,
    session: Arc<MonSession>,
    owner: OnceLock<Owner<MgrMachine>>,
    jobs: OnceLock<Arc<Jobs>>,
    ended: Arc<EndOf<MgrEnd>>,
}

impl Mgr {
    pub async fn start(settings: MgrSettings) -> Result<Self> {
        let clock = Clock::start();
        let local = Local { name: EntityName::new(EntityType::Mgr, -1), addrs: AddrVec::default() };
        let messenger =
            Messenger::bounded(local, Limits::default(), Bounds::within(0, settings.descriptors), clock);
        let session =
            MonSession::new(Arc::clone(&settings.auth), messenger.clone(), settings.monitors.clone(), true);
        let shell = Arc::new(Shell {
            asked: AtomicU64::new(0),
            clock,
            dashboard: watch::Sender::new(None),
            metrics: watch::Sender::new(None),
            messenger: messenger.clone(),
            auth: settings.auth,
            session: Arc::clone(&session),
            owner: OnceLock::new(),
            jobs: OnceLock::new(),
            ended: Arc::new(EndOf::new()),
        });
        messenger.set_handler(Arc::new(Ear(Arc::downgrade(&shell))));
        let addrs = bind(&messenger, &settings.listen, settings.life).await?;
        #[cfg(feature = "test-medium")]
        let plant = crate::plant::Plant::of(&format!("mgr.{}", settings.name));
        let core = Manager::new(Settings {
            name: settings.name,
            addrs,
            metadata: crate::metadata::host(),
            options: settings.options,
            force: settings.force,
        });
        let ended = Arc::clone(&shell.ended);
        let wake = {
            let shell = Arc::downgrade(&shell);
            move || {
                let _ = within(&shell, |shell| shell.submit_event(Event::Woken));
            }
        };
        let jobs = {
            let shell = Arc::downgrade(&shell);
            Jobs::new(settings.clients, move |input| {
                let _ = within(&shell, |shell| shell.submit(input));
            })
        };
        let _ = shell.jobs.set(Arc::clone(&jobs));
        let machine = MgrMachine {
            core,
            inbox: Inbox::new(messenger.clone(), clock, wake),
            names: BTreeMap::new(),
            messenger,
            clock,
            auth: Arc::clone(&shell.auth),
            session: Arc::clone(&session),
            ended,
            answers: BTreeMap::new(),
            shell: Arc::downgrade(&shell),
            runtime: tokio::runtime::Handle::current(),
            jobs,
            #[cfg(feature = "test-medium")]
            plant,
            out: Vec::new(),
        };
        let _ = shell.owner.set(Owner::contained(machine, panics_of(&shell)));
        session.connect();
        tokio::spawn(tick(Arc::downgrade(&shell)));
        let admin =
            admin_socket::open(settings.admin_socket.as_ref(), Arc::clone(&shell) as Arc<dyn Commands>);
        Ok(Self { shell, _admin: admin })
    }

    /// Ends when the manager cannot go on.
    pub async fn ended(&self) -> MgrEnd {
        self.shell.ended.heard().await
    }

    /// The monitors that it knows now.
    pub fn monitors(&self) -> Vec<EntityAddr> {
        self.shell.session.monitors()
    }

    pub fn stop(&self) {
        self.shell.end_jobs();
        self.shell.messenger.shut_down();
        self.shell.dashboard.send_replace(None);
        self.shell.metrics.send_replace(None);
    }

    /// For others of this process.
    pub fn handle(&self) -> MgrHandle {
        MgrHandle {
            shell: Arc::downgrade(&self.shell),
            dashboard: self.shell.dashboard.subscribe(),
            metrics: self.shell.metrics.subscribe(),
        }
    }
}

impl MgrHandle {
    /// Asks the manager, or the monitors through it. Only so much patience is had.
    pub async fn ask(&self, ask: Ask) -> Reply {
        let (answer, answered) = oneshot::channel();
        let begun = within(&self.shell, |shell| {
            let id = shell.asked.fetch_add(1, Ordering::Relaxed);
            shell.submit_event(Event::Ask { id, ask, answer });
            id
        });
        let ended = || Reply::error(Errno::EAGAIN, "the manager has ended");
        let Some(id) = begun else { return ended() };
        let mut question = Question { shell: Weak::clone(&self.shell), id, open: true };
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(reply) => {
                question.open = false;
                reply.unwrap_or_else(|_| ended())
            }
            Err(_) => Reply::error(Errno::ETIMEDOUT, "the monitors do not answer"),
        }
    }

    /// Looks at the manager's state; `None` when it has ended.
    pub fn with<T>(&self, body: impl FnOnce(&mut Manager, Now) -> T) -> Option<T> {
        let looked = within(&self.shell, |shell| {
            let now = shell.clock.now();
            shell.owner.get().and_then(|o| o.with(|m| body(&mut m.core, now)))
        });
        looked.flatten()
    }

    /// Tells the monitors where this process serves something besides, or that it does not any more.
    pub fn serving(&self, service: &str, url: Option<String>) {
        let service = service.to_owned();
        let _ = within(&self.shell, |shell| shell.submit(Input::Serving { service, url }));
    }

    /// The series for Prometheus are served where they are to be, or why they cannot be.
    pub fn metrics_served(&self, failed: Option<String>) {
        let _ = within(&self.shell, |shell| shell.submit(Input::MetricsServed { failed }));
    }

    /// Where the series for Prometheus are to be served. The channel ends with the manager.
    pub fn metrics(&self) -> watch::Receiver<Option<MetricsAt>> {
        self.metrics.clone()
    }

    /// Where the dashboard is to be served. The channel ends with the manager.
    pub fn dashboard(&self) -> watch::Receiver<Option<DashboardAt>> {
        self.dashboard.clone()
    }
}

/// A question that somebody in this process waits for. Whoever stops waiting has given it up.
struct Question {
    shell: Weak<Shell>,
    id: u64,
    open: bool,
}

impl Drop for Question {
    fn drop(&mut self) {
        if self.open {
            let _ = within(&self.shell, |shell| shell.submit_event(Event::GivenUp { id: self.id }));
        }
    }
}

/// Where it is reached from now on.
async fn bind(messenger: &Messenger, at: &ListenAt, life: i32) -> Result<AddrVec> {
    // OSDs count from 0.
    let nonce = crate::nonce::nonce(std::process::id(), -1 - life);
    listen::bind(messenger, true, at.public, &at.ports, nonce).await
}

async fn tick(shell: Weak<Shell>) {
    let mut every = tokio::time::interval(Duration::from_millis(250));
    loop {
        every.tick().await;
        if within(&shell, Shell::tick).is_none() {
            return;
        }
    }
}

impl Shell {
    fn tick(&self) {
        self.session.tick();
        if let Some(errno) = self.session.refused() {
            let name = self.auth.name();
            let why = format!("the monitors refuse the key of {name} ({errno}): see `ceph auth get {name}`");
            self.fail(Failure::lasting(why));
        }
        self.submit(Input::Tick);
    }

    fn end_jobs(&self) {
        if let Some(jobs) = self.jobs.get() {
            jobs.end();
        }
    }

    fn fail(&self, failure: Failure) {
        self.end_jobs();
        self.ended.tell(MgrEnd::Failed(failure), || self.messenger.shut_down());
        if let Some(owner) = self.owner.get() {
            owner.end();
        }
    }

    fn submit(&self, input: Input) {
        self.submit_event(Event::Core(input));
    }

    fn submit_event(&self, event: Event) {
        if let Some(owner) = self.owner.get() {
            owner.submit(event);
        }
    }
}

impl Domain for Shell {
    fn panicked(&self, how: String) {
        self.fail(Failure::passing(how));
    }
}

/// What a thread brings.
enum Event {
    /// Goes to the core at once.
    Core(Input),
    /// Takes its turn among the messages of all peers.
    Message { conn: ConnId, bytes: u64, said: Box<Said> },
    /// Messages wait for another turn.
    Woken,
    /// Somebody in this process asks.
    Ask { id: u64, ask: Ask, answer: oneshot::Sender<Reply> },
    /// The same does not wait any more.
    GivenUp { id: u64 },
}

/// A message of a client or a daemon.
struct Said {
    tid: u64,
    msg: Message,
}

struct MgrMachine {
    core: Manager,
    messenger: Messenger,
    inbox: Inbox<Box<Said>>,
    /// Who is at the other end of each accepted connection.
    names: BTreeMap<ConnId, AuthName>,
    clock: Clock,
    auth: Arc<SharedAuth>,
    session: Arc<MonSession>,
    ended: Arc<EndOf<MgrEnd>>,
    /// Who waits in this process for an answer.
    answers: BTreeMap<u64, oneshot::Sender<Reply>>,
    shell: Weak<Shell>,
    runtime: tokio::runtime::Handle,
    jobs: Arc<Jobs>,
    #[cfg(feature = "test-medium")]
    plant: crate::plant::Plant,
    out: Vec<Output>,
}

impl Machine for MgrMachine {
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
                Event::Ask { id, ask, answer } => self.ask(id, ask, answer),
                Event::GivenUp { id } => {
                    self.answers.remove(&id);
                    self.handle(Input::GivenUp { id });
                }
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

impl MgrMachine {
    fn arrive(&mut self, conn: ConnId, bytes: u64, said: Box<Said>) {
        let name = self.names.get(&conn).cloned().unwrap_or_default();
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
        let Said { tid, msg } = said;
        self.handle(Input::Message { conn, tid, msg });
    }

    fn handle(&mut self, input: Input) {
        match &input {
            Input::Connected { conn, peer } => drop(self.names.insert(*conn, peer.auth_name.clone())),
            Input::Disconnected { conn } => self.forget(*conn),
            _ => {}
        }
        self.core.handle(self.clock.now(), input, &mut self.out);
        let mut out = std::mem::take(&mut self.out);
        out.drain(..).for_each(|output| self.carry_out(output));
        self.out = out;
    }

    fn ask(&mut self, id: u64, ask: Ask, answer: oneshot::Sender<Reply>) {
        if self.answers.len() >= MOST_ASKS {
            let _ = answer.send(Reply::error(Errno::EAGAIN, "too many questions wait for the monitors"));
            return;
        }
        self.answers.insert(id, answer);
        self.handle(Input::Ask { id, ask });
    }

    /// A hash takes a good part of a second: no thread that serves others makes it.
    fn hash(&self, id: u64, password: String) {
        let shell = Weak::clone(&self.shell);
        self.runtime.spawn_blocking(move || {
            let hash =
                bcrypt::hash(password, HASH_COST).inspect_err(|e| tracing::error!("no hash: {e}")).ok();
            let _ = within(&shell, |shell| shell.submit(Input::Hashed { id, hash }));
        });
    }

    fn forget(&mut self, conn: ConnId) {
        self.names.remove(&conn);
        self.inbox.forget(conn);
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { conn, tid, msg } => self.messenger.send(conn, msg.into_wire(tid)),
            Output::SendMon { tid, msg } => self.session.send_as(msg, tid),
            Output::Close { conn } => {
                self.forget(conn);
                self.messenger.close(conn);
            }
            Output::StartClient { start } => self.jobs.start(start),
            Output::EndClient => self.jobs.end(),
            Output::Job { id, job } => self.jobs.perform(id, job),
            Output::CancelJob { id } => self.jobs.cancel(id),
            Output::Respawn => self.ended.tell(MgrEnd::Deposed, || {}),
            Output::Monitors(whose) => self.auth.take_tickets_of(match whose {
                Whose::Ours => TicketForm::Sealed,
                Whose::Ceph => TicketForm::Ceph,
            }),
            Output::Answer { id, reply } => {
                if let Some(answer) = self.answers.remove(&id) {
                    let _ = answer.send(reply);
                }
            }
            Output::Hash { id, password } => self.hash(id, password),
            Output::Dashboard(at) => {
                let _ = within(&self.shell, |shell| shell.dashboard.send_replace(at));
            }
            Output::Metrics(at) => {
                let _ = within(&self.shell, |shell| shell.metrics.send_replace(at.map(|at| *at)));
            }
            Output::Warn(text) => tracing::warn!("{}: {text}", self.auth.name()),
            Output::End(why) => {
                self.jobs.end();
                let failed = MgrEnd::Failed(Failure::lasting(why));
                self.ended.tell(failed, || self.messenger.shut_down());
            }
        }
    }
}

impl Commands for Shell {
    fn command(&self, cmd: String, answer: oneshot::Sender<Reply>) {
        if let Some(reply) = self.owner.get().and_then(|o| o.with(|m| m.core.daemon_command(&[cmd]))) {
            let _ = answer.send(reply);
        }
    }
}

impl Handler for Shell {
    fn authenticate(&self, conn: ConnId, peer_type: u8, _: EntityAddr, input: AuthInput) -> AuthStep {
        let peer = EntityType::from_u8(peer_type).unwrap_or(EntityType::Client);
        let step = self.auth.judge(conn, peer, input, self.messenger.now());
        let count = self.auth.take_old_tickets();
        if count > 0 {
            self.submit(Input::OldTickets { count });
        }
        step
    }

    fn accept_policy(&self, _: EntityType) -> Policy {
        Policy::stateless_server()
    }

    fn ready(&self, conn: ConnId, peer: PeerReady) {
        let Some(identity) = peer.identity else {
            self.session.on_ready();
            let gid = self.auth.global_id().0;
            return self.submit(Input::MonConnected { gid });
        };
        let caps = match MgrCap::from_info(&identity.caps) {
            Ok(caps) => caps,
            Err(error) => {
                tracing::warn!("{}: capabilities do not parse: {error}", identity.name);
                return self.messenger.close(conn);
            }
        };
        let name = identity.entity(peer.name);
        let addr = seen_at(peer.addr, self.messenger.peer_addr(conn));
        let peer = PeerInfo { name, auth_name: identity.name, addr, caps };
        self.submit(Input::Connected { conn, peer });
    }

    /// Clients alone: daemons do not wait for clients. What daemons send is bounded by the inbox.
    fn is_gated(&self, kind: EntityType) -> bool {
        kind == EntityType::Client
    }

    fn messages(&self, conn: ConnId, batch: &mut Vec<WireMessage>) {
        for wire in batch.drain(..) {
            let bytes = cost(&wire);
            let msg = match Message::decode(&wire) {
                Ok(msg) => msg,
                Err(error) => {
                    tracing::info!("{conn}: message of type {} does not decode: {error}", wire.header.ty);
                    return self.messenger.give_up(conn, "a message does not decode");
                }
            };
            if self.session.is(conn) {
                if let Some(msg) = self.session.on_message(msg) {
                    self.submit(Input::FromMon { tid: wire.header.tid, msg });
                }
            } else {
                self.messenger.gate().came(bytes);
                let said = Box::new(Said { tid: wire.header.tid, msg });
                self.submit_event(Event::Message { conn, bytes, said });
            }
        }
    }

    fn gone(&self, conn: ConnId, _: Gone) {
        self.auth.forget(conn);
        if self.session.is(conn) {
            return self.session.on_gone();
        }
        self.submit(Input::Disconnected { conn });
    }
}
