//! The OSD's shell: its messenger, its device's threads, its clock around the core.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use admin::Reply;
use anyhow::{Context, Result};
use bytes::Bytes;
use cephx::caps::OsdCap;
use codec::Decode;
use maps::MgrMap;
use messages::Message;
use messages::mon::{MMonSubscribe, SubscribeItem};
use messages::wire::WireMessage;
use msgr::{Limits, Local, Policy};
use pg::{FatalReason, Input, OsdConfig, OsdCore, Output, PeerInfo};
use runtime::net::{AuthInput, AuthStep, Bounds, Gone, Handler, Messenger, PeerReady};
use runtime::{Clock, HostFiles, LocalSocket, Machine, Owner, Seal};
use store::{Checkpoint, CheckpointDone, Commit, Device, Options, ReadPlan, Store, StoreError};
use tokio::sync::{Notify, oneshot};
use types::{AddrVec, ConnId, EntityAddr, EntityName, EntityType, Fsid, OsdId};

use crate::admin_socket::{self, AdminSocketAt, Commands};
use crate::device_threads::{Readers, spawn_worker};
use crate::devices::{Devices, Medium};
use crate::disks::Disks;
use crate::ear::{Domain, Ear, panics_of, within};
use crate::failure::{EndOf, Failure, Lasting};
use crate::listen::ListenAt;
use crate::numa::NumaOf;
use crate::osd_start::{StartPlace, Startup, Step};
use crate::peers::{OwnAddrs, Peers, Target};
#[cfg(feature = "test-medium")]
use crate::plant::Plant;
use crate::turn::{Bell, Committer, Executed, Outcome, timed};
use crate::twin::Twin;
use runtime::session::MonSession;
use runtime::session::SharedAuth;

/// How long the core waits before it looks again at requests whose senders all have answers to read first.
const LEISURE: Duration = Duration::from_millis(50);

/// How to start an OSD.
#[derive(Clone)]
pub struct OsdSettings {
    pub id: OsdId,
    /// The formatted block device or file.
    pub block: PathBuf,
    pub listen: ListenAt,
    pub monitors: Vec<EntityAddr>,
    pub auth: Arc<SharedAuth>,
    pub options: OsdConfig,
    /// Options of the configuration file, which win over the monitors'.
    pub local: std::collections::BTreeMap<String, String>,
    pub store: Options,
    pub admin_socket: Option<AdminSocketAt>,
    /// The place in the CRUSH map that the monitors are told before the boot; `None` leaves the OSD where it
    /// is.
    pub place: Option<StartPlace>,
    /// The cluster that it has to belong to, when that is known.
    pub cluster: Option<Fsid>,
    pub medium: Medium,
    /// Whether no other daemon is served by the threads of this process.
    pub only_daemon: bool,
    /// File descriptors that are its part of the process's.
    pub descriptors: u64,
    /// How often this process has started this OSD before. Each life has addresses of its own.
    pub life: u32,
}

/// A running OSD.
pub struct Osd {
    shell: Arc<Shell>,
    _admin: Option<LocalSocket>,
}

pub(crate) struct Shell {
    messenger: Messenger,
    auth: Arc<SharedAuth>,
    session: Arc<MonSession>,
    owner: OnceLock<Owner<OsdMachine>>,
    /// Closes the device: an OSD that has failed writes nothing more.
    seal: Seal,
    failed: EndOf<Failure>,
    stopped: Notify,
    /// The addresses of the OSDs that the map shows up. Sessions with these are kept, however long they are
    /// away.
    up: Mutex<BTreeSet<AddrVec>>,
    /// Commands from the admin socket that the core has not answered, by number.
    asked: Mutex<Asked>,
    #[cfg(feature = "test-medium")]
    pub plant: Plant,
}

#[derive(Default)]
struct Asked {
    last: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Reply>>,
}

impl Osd {
    /// Opens the store, listens, and begins to look for a monitor.
    pub async fn start(settings: OsdSettings) -> Result<Self> {
        let (devices, store) = open_store(&settings)?;
        let (fsid, bytes) = (store.identity().fsid, store.statfs().total_bytes);
        let numa = numa_of(&settings);
        let startup = Startup::new(settings.id, fsid, bytes, settings.place, settings.local.clone());
        let clock = Clock::start();
        let bounds = Bounds::within(settings.options.memory_target, settings.descriptors);
        let local = Local { name: EntityName::osd(settings.id.0), addrs: AddrVec::default() };
        let messenger = Messenger::bounded(local, Limits::default(), bounds, clock);
        let session =
            MonSession::new(Arc::clone(&settings.auth), messenger.clone(), settings.monitors.clone(), true);
        let shell = Arc::new(Shell {
            messenger: messenger.clone(),
            auth: Arc::clone(&settings.auth),
            session: Arc::clone(&session),
            owner: OnceLock::new(),
            seal: devices.seal.clone(),
            failed: EndOf::new(),
            stopped: Notify::new(),
            up: Mutex::default(),
            asked: Mutex::default(),
            #[cfg(feature = "test-medium")]
            plant: Plant::of(&format!("osd.{}", settings.id)),
        });
        messenger.set_handler(Arc::new(Ear(Arc::downgrade(&shell))));
        let nonce = crate::nonce::of_life(std::process::id(), settings.id.0, settings.life);
        let mut addrs = settings.listen.bind_all(&messenger, nonce).await?;
        let disks = Disks::below(&settings.block);
        addrs.host.extend(disks.metadata());
        let own = own_addrs(&addrs);
        let core = OsdCore::new(settings.id, settings.options, store, addrs)
            .map_err(|e| anyhow::anyhow!("osd.{}: {e}", settings.id))?
            .with_file_options(&settings.local);
        let machine = OsdMachine {
            core,
            messenger: messenger.clone(),
            clock,
            session: Arc::clone(&session),
            peers: Peers::new(messenger, settings.auth, own),
            startup,
            #[cfg(feature = "test-medium")]
            plant: shell.plant.clone(),
            twin: Twin::Unknown,
            numa: Some(numa),
            disks,
            shell: Arc::downgrade(&shell),
            commits: commits(&devices, &shell, settings.only_daemon)?,
            checkpoints: spawn_worker("osd-checkpoint", &devices.checkpoints, &shell, |job, dev| {
                Event::Checkpointed(Checkpoint::execute(job, dev))
            })?,
            read_device: Arc::clone(&devices.reads),
            readers: Readers::default(),
            committing: false,
            checkpointing: false,
            commit_wanted: false,
            store_error: None,
            out: Vec::new(),
            dirty: Vec::new(),
            bell: Bell::new(turn_end(&shell)),
        };
        let _ = shell.owner.set(Owner::contained(machine, panics_of(&shell)));
        session.connect();
        tokio::spawn(tick(Arc::downgrade(&shell)));
        let admin =
            admin_socket::open(settings.admin_socket.as_ref(), Arc::clone(&shell) as Arc<dyn Commands>);
        Ok(Self { shell, _admin: admin })
    }

    /// Waits until the OSD cannot go on, and gives the reason. Its ports are closed by then, and its device
    /// takes no more writes.
    pub async fn failed(&self) -> Failure {
        self.shell.failed.heard().await
    }

    /// Tells the monitor, makes everything durable, and ends; after 5 s it ends in any case.
    pub async fn stop(&self) {
        let stopped = self.shell.stopped.notified();
        tokio::pin!(stopped);
        stopped.as_mut().enable();
        self.shell.submit(Event::Core(Input::Shutdown.into()));
        tokio::select! {
            () = stopped => {}
            _ = self.shell.failed.heard() => {}
            () = tokio::time::sleep(Duration::from_secs(5)) => {}
        }
        self.shell.messenger.shut_down();
    }
}

fn own_addrs(addrs: &pg::BootAddrs) -> OwnAddrs {
    OwnAddrs {
        cluster: addrs.cluster.clone(),
        heartbeat_front: addrs.heartbeat_front.clone(),
        heartbeat_back: addrs.heartbeat_back.clone(),
    }
}

fn numa_of(settings: &OsdSettings) -> NumaOf {
    NumaOf {
        osd: settings.id,
        front: settings.listen.public,
        back: settings.listen.cluster,
        block: settings.block.clone(),
        local: settings.local.clone(),
        only_daemon: settings.only_daemon,
        host: HostFiles::default(),
    }
}

/// The OSD's device and the store on it, which must be of the right cluster.
fn open_store(settings: &OsdSettings) -> Result<(Devices, Store)> {
    let block = settings.block.display();
    let devices = Devices::open(&settings.block, settings.medium)?;
    let store = Store::open(Arc::clone(&devices.store), settings.store)
        .with_context(|| format!("the store on {block} cannot be opened"))?;
    let theirs = store.identity().fsid;
    match settings.cluster {
        Some(ours) if ours != theirs => {
            let why = format!("{block} belongs to another cluster: {theirs} instead of {ours}");
            Err(Lasting(why).into())
        }
        _ => Ok((devices, store)),
    }
}

fn commits(devices: &Devices, shell: &Arc<Shell>, only_daemon: bool) -> Result<Committer> {
    let thread = spawn_worker("osd-commit", &devices.commits, shell, |job: Commit, dev| {
        Event::Committed(timed(job, dev))
    })?;
    Ok(Committer::new(Arc::clone(&devices.commits), thread, only_daemon))
}

fn turn_end(shell: &Arc<Shell>) -> impl FnMut() -> bool + Send + 'static {
    let shell = Arc::downgrade(shell);
    move || {
        shell.upgrade().is_some_and(|shell| {
            shell.submit(Event::TurnEnds);
            true
        })
    }
}

async fn tick(shell: Weak<Shell>) {
    let mut every = tokio::time::interval(Duration::from_millis(500));
    loop {
        every.tick().await;
        if within(&shell, Shell::tick).is_none() {
            return;
        }
    }
}

impl Shell {
    pub fn submit(&self, event: Event) {
        if let Some(owner) = self.owner.get() {
            owner.submit(event);
        }
    }

    fn tick(&self) {
        self.session.tick();
        if let Some(errno) = self.session.refused() {
            let name = self.auth.name();
            let why = format!("the monitors refuse the key of {name} ({errno}): see `ceph auth get {name}`");
            self.fail(Failure::lasting(why));
        }
        self.submit(Event::Core(Input::Tick.into()));
        self.messenger.sweep(|at| self.up().contains(at));
    }

    /// Ends the OSD with a failure. Nothing of it is written from now on, and its ports are closed, so that
    /// peers see at once that it is gone.
    fn fail(&self, failure: Failure) {
        self.failed.tell(failure, || {
            self.seal.close();
            self.messenger.shut_down();
        });
        // Last, because it drops the machine's handles of the device: the next life can then open it.
        if let Some(owner) = self.owner.get() {
            owner.end();
        }
    }
}

impl Domain for Shell {
    fn panicked(&self, how: String) {
        self.fail(Failure::passing(how));
    }
}

/// What the owner handles: the core's inputs, and the device's results.
pub(crate) enum Event {
    Core(Box<Input>),
    Committed(Outcome),
    Checkpointed(Result<CheckpointDone, StoreError>),
    Read {
        id: u64,
        result: Result<Bytes, StoreError>,
    },
    /// The core wants to go on.
    Again,
    /// Every connection that had something was read.
    TurnEnds,
    /// A message on some connection; which peer it is from is known to the machine.
    Message {
        conn: ConnId,
        wire: WireMessage,
    },
    Ready {
        conn: ConnId,
    },
    /// The peer has forgotten the session.
    Reset {
        conn: ConnId,
    },
    Gone {
        conn: ConnId,
        why: Gone,
    },
    /// Whether another process lives at the address that the map had for this OSD.
    Twin {
        at: AddrVec,
        lives: bool,
    },
}

#[cfg(feature = "test-medium")]
impl Event {
    fn kind(&self) -> &'static str {
        match self {
            Self::Core(input) => match **input {
                Input::Tick => "tick",
                Input::Connected { .. } => "connected",
                Input::AdminCommand { .. } => "admin",
                _ => "core",
            },
            Self::Committed(_) => "committed",
            Self::Checkpointed(_) => "checkpointed",
            Self::Read { .. } => "read",
            Self::TurnEnds => "turn",
            Self::Again => "again",
            Self::Message { .. } => "message",
            Self::Ready { .. } => "ready",
            Self::Gone { .. } => "gone",
            Self::Reset { .. } => "reset",
            Self::Twin { .. } => "twin",
        }
    }
}

struct OsdMachine {
    core: OsdCore,
    messenger: Messenger,
    clock: Clock,
    session: Arc<MonSession>,
    peers: Peers,
    startup: Startup,
    #[cfg(feature = "test-medium")]
    plant: Plant,
    twin: Twin,
    /// Until the monitors' options are known.
    numa: Option<NumaOf>,
    disks: Disks,
    shell: Weak<Shell>,
    commits: Committer,
    checkpoints: mpsc::Sender<Checkpoint>,
    read_device: Arc<dyn Device>,
    /// From the first read on that has to wait.
    readers: Readers,
    /// One commit is with the device at a time; transactions that come meanwhile form the next one.
    committing: bool,
    checkpointing: bool,
    commit_wanted: bool,
    /// The store's first error, which explains the core's fatal one.
    store_error: Option<StoreError>,
    out: Vec<Output>,
    /// Channels with messages queued since the last turn's end.
    dirty: Vec<ConnId>,
    bell: Bell,
}

impl Machine for OsdMachine {
    type Input = Event;

    fn apply(&mut self, inputs: &mut Vec<Event>) {
        // One time for the whole batch: its inputs came together.
        let now = self.clock.now();
        let mut turn_ends = !self.bell.is_worth_it();
        for event in inputs.drain(..) {
            #[cfg(feature = "test-medium")]
            self.plant.strike(event.kind());
            // These end a turn, or come from outside of the reactor's turns.
            turn_ends |= matches!(
                event,
                Event::TurnEnds
                    | Event::Again
                    | Event::Committed(_)
                    | Event::Checkpointed(_)
                    | Event::Read { .. }
            );
            if let Some(input) = self.translate(event) {
                self.handle(now, input);
            }
        }
        if self.core.has_answered() {
            self.core.batch_done(self.clock.now().mono);
        }
        if turn_ends {
            self.end_turn();
        } else if self.commit_wanted || !self.dirty.is_empty() {
            self.bell.ring();
        }
    }
}

impl OsdMachine {
    fn handle(&mut self, now: types::Now, input: Input) {
        self.core.handle(now, input, &mut self.out);
        let mut out = std::mem::take(&mut self.out);
        out.drain(..).for_each(|output| self.carry_out(output));
        self.out = out;
    }

    fn translate(&mut self, event: Event) -> Option<Input> {
        match event {
            Event::Core(input) => {
                if matches!(*input, Input::Tick) {
                    self.peers.reach_mgr();
                    self.core.set_load(self.host_load());
                    let now = self.clock.now();
                    let step = self.startup.tick(now.mono);
                    if let Some(connected) = self.start_step(step) {
                        self.handle(now, connected);
                    }
                    self.discard(now.mono);
                }
                Some(*input)
            }
            Event::Again => Some(self.again()),
            Event::TurnEnds => {
                self.bell.heard();
                None
            }
            Event::Committed(outcome) => Some(self.committed(outcome)),
            Event::Checkpointed(done) => {
                self.checkpointing = false;
                // A commit that found the log full has room now, and nothing else may come to ask for it.
                self.commit_wanted = true;
                Some(self.settled(|store| store.checkpointed(done)))
            }
            Event::Read { id, result } => Some(Input::Read { id, result }),
            Event::Message { conn, wire } => {
                self.messenger.gate().taken(wire.payload_len() as u64);
                self.message(conn, &wire)
            }
            Event::Ready { conn } if self.session.is(conn) => {
                self.session.on_ready();
                let what = [("mgrmap", 0), ("config", 0)]
                    .map(|(name, start)| (name.to_owned(), SubscribeItem { start, flags: 0 }));
                self.session.send(MMonSubscribe { what: what.into(), ..MMonSubscribe::default() }.into());
                let step = self.startup.connected(self.clock.now().mono);
                self.start_step(step)
            }
            Event::Ready { conn } => match self.peers.target(conn) {
                Some(Target::Mgr) => Some(Input::MgrConnected),
                _ => None,
            },
            Event::Reset { conn } => self.reset(conn),
            Event::Gone { conn, why } => {
                if self.session.is(conn) {
                    self.session.on_gone();
                    return None;
                }
                match (self.peers.target(conn), why) {
                    (Some(Target::Osd(osd)), Gone::Refused) => Some(Input::OsdRefused { osd }),
                    (Some(Target::Osd(_)), Gone::Lost(_)) => None,
                    (Some(Target::Heartbeat(osd, _)), why) => {
                        self.peers.gone(conn);
                        (why == Gone::Refused).then_some(Input::OsdRefused { osd })
                    }
                    (Some(Target::Mgr), _) => {
                        self.peers.gone(conn);
                        None
                    }
                    (None, _) => Some(Input::Disconnected { conn }),
                }
            }
            Event::Twin { at, lives } => {
                self.looked_for_twin(at, lives);
                None
            }
        }
    }

    fn reset(&self, conn: ConnId) -> Option<Input> {
        match self.peers.target(conn) {
            Some(Target::Osd(osd)) => Some(Input::OsdReset { osd }),
            _ => None,
        }
    }

    fn looked_for_twin(&mut self, at: AddrVec, lives: bool) {
        if lives {
            let why = format!("another process serves osd.{} at {at}", self.core.whoami());
            self.fail(Failure::lasting(why));
        }
        self.twin = Twin::Gone(at);
    }

    /// Tells the store what became of a job, and the core what is durable now.
    fn settled(&mut self, tell: impl FnOnce(&mut Store) -> Result<store::TxnSeq, StoreError>) -> Input {
        match tell(self.core.store_mut()) {
            Ok(seq) => Input::Durable(seq),
            Err(error) => {
                tracing::error!("the store: {error}");
                self.store_error.get_or_insert(error);
                Input::DeviceFailed
            }
        }
    }

    fn message(&mut self, conn: ConnId, wire: &WireMessage) -> Option<Input> {
        let tid = wire.header.tid;
        let msg = match Message::decode(wire) {
            Ok(msg) => msg,
            Err(error) => {
                tracing::info!("{conn}: message of type {} does not decode: {error}", wire.header.ty);
                // A session with a monitor, the manager or an OSD has to hear of it as well.
                return match self.peers.target(conn) {
                    // What waited in it is lost with it, in both directions, and the core makes up for that.
                    Some(Target::Osd(osd)) => {
                        self.peers.drop_osd(osd);
                        Some(Input::OsdReset { osd })
                    }
                    _ => {
                        self.messenger.give_up(conn, "a message does not decode");
                        None
                    }
                };
            }
        };
        if self.session.is(conn) {
            return match self.session.on_message(msg)? {
                Message::MgrMap(m) => {
                    match MgrMap::from_bytes(m.map.0) {
                        Ok(map) => self.peers.mgr_map(&map),
                        Err(error) => tracing::warn!("the manager map does not decode: {error}"),
                    }
                    None
                }
                Message::Config(m) => self.options(m.options.into_iter().collect()),
                Message::MonCommandAck(ack) => {
                    let step = self.startup.answer(self.clock.now().mono, tid, &ack);
                    self.start_step(step)
                }
                other => Some(Input::FromMon(other)),
            };
        }
        Some(match self.peers.target(conn) {
            Some(Target::Osd(osd)) => Input::FromOsd { osd, msg },
            Some(Target::Heartbeat(osd, net)) => {
                self.peers.answered(osd, net);
                Input::FromHeartbeat { osd, net, msg }
            }
            Some(Target::Mgr) => Input::FromMgr(msg),
            None => Input::Message { conn, tid, msg },
        })
    }

    /// The monitors' options, which may say what to tell before the boot.
    fn options(&mut self, options: BTreeMap<String, String>) -> Option<Input> {
        if let Some(numa) = self.numa.take() {
            self.core.add_host_metadata(numa.settle(&options));
        }
        let step = self.startup.options(self.clock.now().mono, &options);
        self.handle(self.clock.now(), Input::Config(options.into_iter().collect()));
        self.start_step(step)
    }

    /// Carries out what comes before the boot; the core hears of the monitors when that is through.
    fn start_step(&mut self, step: Step) -> Option<Input> {
        match step {
            Step::Wait => None,
            Step::Later(why) => {
                tracing::warn!("{why}; it is asked for again");
                None
            }
            Step::Send { tid, msg } => {
                self.session.send_as(msg, tid);
                None
            }
            Step::Boot => Some(Input::MonConnected),
            Step::Fail(why) => {
                self.fail(Failure::lasting(why));
                None
            }
        }
    }

    fn fail(&self, failure: Failure) {
        if let Some(shell) = self.shell.upgrade() {
            shell.fail(failure);
        }
    }

    fn fatal(&self, reason: &FatalReason) {
        let why = match &self.store_error {
            Some(error) => format!("{reason}: {error}"),
            None => reason.to_string(),
        };
        // The device or the store may work again in the next life; the other reasons need an operator.
        let may_pass = match reason {
            FatalReason::DeviceFailed | FatalReason::Store(_) | FatalReason::Flapping { .. } => true,
            FatalReason::ForeignCluster { .. }
            | FatalReason::NotInMap(_)
            | FatalReason::OtherDisk { .. }
            | FatalReason::OtherOsd { .. }
            | FatalReason::MapMissing(_)
            | FatalReason::Corrupt { .. } => false,
        };
        self.fail(Failure { why, may_pass });
    }

    /// Asks to be marked up, unless another process answers at the address that the map has for
    /// this OSD.
    fn boot(&mut self, msg: Message) {
        let me = self.core.whoami();
        let known = self.core.osdmap().osd(me.0).filter(|o| o.is_up()).map(|o| o.cluster_addrs.clone());
        let at = match known {
            Some(at) if at != self.peers.own().cluster && self.twin != Twin::Gone(at.clone()) => at,
            _ => return self.session.send(msg),
        };
        if self.twin == Twin::Asked(at.clone()) {
            return;
        }
        self.twin = Twin::Asked(at.clone());
        let Some(shell) = self.shell.upgrade() else { return };
        let (session, auth) = (Arc::clone(&self.session), Arc::clone(&shell.auth));
        self.messenger.runtime().spawn(async move {
            let lives = crate::twin::lives(me, &at, auth).await;
            if !lives {
                session.send(msg);
            }
            shell.submit(Event::Twin { at, lives });
        });
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Reply { conn, tid, msg } => self.queue(conn, msg.into_wire(tid)),
            Output::SendOsd { osd, msg } => {
                if let Some(conn) = self.peers.osd(osd, self.core.osdmap()) {
                    self.queue(conn, msg.into_wire(0));
                }
            }
            Output::Heartbeat { osd, net, msg } => {
                if let Some(conn) = self.peers.heartbeat(osd, net, self.core.osdmap()) {
                    self.queue(conn, msg.into_wire(0));
                }
            }
            Output::SendMon(msg @ Message::OsdBoot(_)) => self.boot(msg),
            Output::SendMon(msg) => self.session.send(msg),
            Output::SendMgr(msg) => {
                if let Some(conn) = self.peers.mgr() {
                    self.queue(conn, msg.into_wire(0));
                }
            }
            Output::AdminReply { tid, reply } => {
                let asked = self.shell.upgrade().and_then(|shell| shell.asked().waiting.remove(&tid));
                if let Some(answer) = asked {
                    let _ = answer.send(reply);
                }
            }
            Output::AskDisks { id, question } => self.ask_disks(id, question),
            Output::HoldClients(hold) => self.messenger.gate().hold(hold),
            Output::HoldClient { conn, hold } => self.messenger.hold(conn, hold),
            Output::Commit => self.commit_wanted = true,
            Output::Read { id, plan } => self.read(id, plan),
            Output::Again { at_leisure } => self.come_again(at_leisure),
            Output::CloseConn { conn } => self.messenger.close(conn),
            Output::DropOsd { osd } => self.peers.drop_osd(osd),
            Output::MapChanged => self.note_up(),
            Output::Up => tracing::info!("up"),
            Output::ClusterLog { level, text } => tracing::info!("cluster log {level:?}: {text}"),
            Output::Fatal(reason) => self.fatal(&reason),
            Output::Stopped => {
                if let Some(shell) = self.shell.upgrade() {
                    shell.stopped.notify_waiters();
                }
            }
        }
    }

    /// The host's load in the last minute, in hundredths; 0 where the kernel does not say.
    fn host_load(&self) -> u64 {
        let text = std::fs::read_to_string(self.disks.host().proc.join("loadavg")).unwrap_or_default();
        let load = text.split(' ').next().and_then(|word| word.parse::<f64>().ok());
        load.map_or(0, |load| (load * 100.0) as u64)
    }

    /// Programs that ask disks take seconds: no thread that serves others waits for them.
    fn ask_disks(&self, id: u64, question: pg::DiskQuestion) {
        let (shell, disks) = (Weak::clone(&self.shell), self.disks.clone());
        self.messenger.runtime().spawn_blocking(move || {
            let told = disks.answer(&question);
            let _ = within(&shell, |shell| shell.submit(Event::Core(Input::DisksTold { id, told }.into())));
        });
    }

    /// Has a thread read for the core.
    fn read(&mut self, id: u64, plan: Box<ReadPlan>) {
        let Some(shell) = self.shell.upgrade() else { return };
        let sockets = self.messenger.runtime();
        if let Err(e) = self.readers.ask((id, plan), &self.read_device, &shell, sockets) {
            self.fail(Failure::passing(format!("no thread for reads: {e:#}")));
        }
    }

    /// Notes which OSDs the new map shows up: their sessions are kept.
    fn note_up(&self) {
        if let Some(shell) = self.shell.upgrade() {
            let up = self.core.osdmap().existing_osds().filter(|(_, o)| o.is_up());
            *shell.up() = up.map(|(_, o)| o.cluster_addrs.clone()).collect();
        }
    }

    fn again(&self) -> Input {
        let clients = self.core.clients_in_turn();
        let unread = clients.filter(|conn| self.messenger.has_much_unread(*conn)).collect();
        Input::Again { unread, free_bytes: self.messenger.room_for_answers() }
    }

    /// Lets the core go on after other tasks had their turn. On a runtime of one thread, these tasks read the
    /// other connections.
    fn come_again(&self, at_leisure: bool) {
        let Some(shell) = self.shell.upgrade() else { return };
        self.messenger.runtime().spawn(async move {
            match at_leisure {
                true => tokio::time::sleep(LEISURE).await,
                false => tokio::task::yield_now().await,
            }
            shell.submit(Event::Again);
        });
    }

    fn queue(&mut self, conn: ConnId, wire: WireMessage) {
        self.messenger.queue(conn, wire);
        self.dirty.push(conn);
    }

    /// Sends what was queued, so that replicas have their work before this OSD writes its own part, and then
    /// gives the device what was submitted.
    fn end_turn(&mut self) {
        self.flush();
        if let Some(outcome) = self.commit() {
            let durable = self.committed(outcome);
            self.handle(self.clock.now(), durable);
            let store = self.core.store_mut();
            self.commit_wanted = store.submitted() > store.durable();
            self.flush();
            if self.commit_wanted {
                self.bell.ring();
            }
        }
        if !self.checkpointing && self.core.store_mut().checkpoint_due() {
            if let Some(checkpoint) = self.core.store_mut().take_checkpoint() {
                self.checkpointing = self.checkpoints.send(checkpoint).is_ok();
            }
        }
    }

    /// Has the device told of space that has been free for a while, when no checkpoint is under way.
    fn discard(&mut self, now: Duration) {
        if !self.checkpointing {
            let job = self.core.store_mut().take_discard(now);
            self.checkpointing = job.is_some_and(|job| self.checkpoints.send(job).is_ok());
        }
    }

    fn flush(&mut self) {
        self.dirty.sort_unstable();
        self.dirty.dedup();
        for conn in self.dirty.drain(..) {
            self.messenger.flush(conn);
        }
    }

    fn committed(&mut self, (done, took): Outcome) -> Input {
        self.committing = false;
        self.commit_wanted = true;
        self.commits.note(took);
        self.settled(|store| store.committed(done))
    }

    /// Hands the device what was submitted, unless it is still busy with the last batch or more should come
    /// first; the outcome, when it is here at once.
    fn commit(&mut self) -> Option<Outcome> {
        if self.commits.gathers() && !self.core.is_commit_urgent() {
            // Another input will make it urgent.
            return None;
        }
        if !std::mem::take(&mut self.commit_wanted) || self.committing {
            return None;
        }
        let store = self.core.store_mut();
        let txns = store.submitted().0 - store.durable().0;
        let commit = store.take_commit()?;
        match self.commits.execute(commit, txns) {
            Executed::Now(outcome) => Some(outcome),
            Executed::Later => {
                self.committing = true;
                None
            }
            Executed::Never => None,
        }
    }
}

impl Shell {
    fn up(&self) -> MutexGuard<'_, BTreeSet<AddrVec>> {
        self.up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Commands for Shell {
    fn command(&self, cmd: String, answer: oneshot::Sender<Reply>) {
        let tid = {
            let mut asked = self.asked();
            asked.last += 1;
            let tid = asked.last;
            asked.waiting.insert(tid, answer);
            tid
        };
        self.submit(Event::Core(Input::AdminCommand { tid, cmd }.into()));
    }
}

impl Handler for Shell {
    fn authenticate(&self, conn: ConnId, peer_type: u8, _: EntityAddr, input: AuthInput) -> AuthStep {
        #[cfg(feature = "test-medium")]
        self.plant.strike("authenticate");
        let peer = EntityType::from_u8(peer_type).unwrap_or(EntityType::Client);
        let step = self.auth.judge(conn, peer, input, self.messenger.now());
        let count = self.auth.take_old_tickets();
        if count > 0 {
            self.submit(Event::Core(Input::OldTickets { count }.into()));
        }
        step
    }

    fn accept_policy(&self, kind: EntityType) -> Policy {
        match kind {
            EntityType::Osd => Policy::stateful_server(),
            _ => Policy::stateless_server(),
        }
    }

    fn ready(&self, conn: ConnId, peer: PeerReady) {
        let Some(identity) = peer.identity else { return self.submit(Event::Ready { conn }) };
        let caps = match OsdCap::from_info(&identity.caps) {
            Ok(caps) => caps,
            Err(error) => {
                tracing::warn!("{}: capabilities do not parse: {error}", identity.name);
                return self.messenger.close(conn);
            }
        };
        let info = PeerInfo {
            name: identity.entity(peer.name),
            auth_name: identity.name,
            global_id: identity.global_id,
            addr: peer.addr,
            ip: self.messenger.peer_addr(conn).and_then(|a| a.socket).map(|s| s.ip().to_canonical()),
            caps,
            features: peer.features,
        };
        self.submit(Event::Core(Input::Connected { conn, peer: info }.into()));
    }

    /// OSDs never wait for each other: what one sends may be what the other waits for.
    fn is_gated(&self, kind: EntityType) -> bool {
        pg::has_share(kind)
    }

    fn messages(&self, conn: ConnId, batch: &mut Vec<WireMessage>) {
        if let Some(owner) = self.owner.get() {
            self.messenger.gate().came(batch.iter().map(|wire| wire.payload_len() as u64).sum());
            let mut events = batch.drain(..).map(|wire| Event::Message { conn, wire }).collect();
            owner.submit_all(&mut events);
        }
    }

    fn reset(&self, conn: ConnId) {
        self.submit(Event::Reset { conn });
    }

    fn gone(&self, conn: ConnId, why: Gone) {
        self.auth.forget(conn);
        self.submit(Event::Gone { conn, why });
    }
}
