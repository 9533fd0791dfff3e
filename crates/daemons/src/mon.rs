//! The monitor's shell: its messenger, its store, its clock around the core.

use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use admin::Reply;
use anyhow::{Context, Result};
use bytes::Bytes;
use messages::Message;
use messages::wire::WireMessage;
use monitor::{Input, Monitor, Output, QuorumView, Settings};
use msgr::{ConMode, Limits, Local, Policy};
use runtime::net::{AuthInput, AuthStep, Gone, Handler, Identity, Messenger, PeerReady};
use runtime::{Clock, LocalSocket, Machine, OsEntropy, Owner};
use tokio::sync::{oneshot, watch};
use types::{AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType};

use crate::admin_socket::{self, AdminSocketAt, Commands};
use crate::mon_store::MonStore;

/// How to start a monitor.
#[derive(Debug, Clone)]
pub struct MonConfig {
    pub settings: Settings,
    /// The store, made by `MonStore::create`.
    pub store: PathBuf,
    pub listen: std::net::SocketAddr,
    pub admin_socket: Option<AdminSocketAt>,
}

/// A running monitor.
pub struct Mon {
    shell: Arc<Shell>,
    _admin: Option<LocalSocket>,
}

struct Shell {
    messenger: Messenger,
    owner: OnceLock<Owner<MonMachine>>,
    failed: watch::Sender<Option<String>>,
}

impl Mon {
    /// Opens the store and listens; clients are served when this returns.
    pub async fn start(config: MonConfig) -> Result<Self> {
        let store = MonStore::open(&config.store)?;
        let recovered = store.recover()?;
        let clock = Clock::start();
        let local =
            Local { name: EntityName::mon(config.settings.quorum.rank.into()), addrs: AddrVec::default() };
        let messenger = Messenger::new(local, Limits::default(), clock);
        // Nobody leads while the log is replayed, so nothing is proposed on the way.
        let quorum = config.settings.quorum.clone();
        let mut settings = config.settings;
        settings.quorum = QuorumView { leader: None, term: 0, ..quorum.clone() };
        let mut core = Monitor::new(settings, Box::new(OsEntropy), &recovered.snapshot)
            .context("the monitor's snapshot cannot be read")?;
        let mut sink = Vec::new();
        let mut last = recovered.snapshot_index;
        for (index, change) in recovered.log {
            core.handle(clock.now(), Input::Committed { index, change }, &mut sink);
            sink.clear();
            last = index;
        }
        let (jobs, work) = mpsc::channel();
        let shell = Arc::new(Shell {
            messenger: messenger.clone(),
            owner: OnceLock::new(),
            failed: watch::Sender::new(None),
        });
        let machine =
            MonMachine { core, messenger: messenger.clone(), clock, last_index: last, jobs, out: sink };
        let _ = shell.owner.set(Owner::new(machine));
        let weak = Arc::downgrade(&shell);
        std::thread::Builder::new()
            .name("mon-store".into())
            .spawn(move || run_store(&store, &work, &weak))?;
        messenger.set_handler(Arc::clone(&shell) as Arc<dyn Handler>);
        shell.submit(Input::Quorum(quorum));
        shell.submit(Input::Tick);
        messenger
            .listen(config.listen, 0)
            .await
            .map_err(|e| anyhow::anyhow!("cannot listen on {}: {e}", config.listen))?;
        tokio::spawn(tick(Arc::downgrade(&shell)));
        let admin = admin_socket::open(config.admin_socket.as_ref(), Arc::clone(&shell) as Arc<dyn Commands>);
        Ok(Self { shell, _admin: admin })
    }

    /// Ends when the monitor cannot go on, with the reason.
    pub async fn failed(&self) -> String {
        wait_failed(self.shell.failed.subscribe()).await
    }

    pub fn stop(&self) {
        self.shell.messenger.shut_down();
    }
}

/// Resolves with the reason when a daemon reports that it cannot go on.
pub(crate) async fn wait_failed(mut rx: watch::Receiver<Option<String>>) -> String {
    match rx.wait_for(Option::is_some).await {
        Ok(reason) => reason.clone().unwrap_or_default(),
        Err(_) => std::future::pending().await,
    }
}

async fn tick(shell: Weak<Shell>) {
    let mut every = tokio::time::interval(Duration::from_millis(500));
    loop {
        every.tick().await;
        let Some(shell) = shell.upgrade() else { return };
        shell.submit(Input::Tick);
        shell.messenger.sweep();
    }
}

impl Shell {
    fn submit(&self, input: Input) {
        if let Some(owner) = self.owner.get() {
            owner.submit(input);
        }
    }
}

enum Job {
    Append { index: u64, data: Bytes },
    Snapshot { index: u64, state: Bytes },
}

/// Makes entries durable, one after the other, off the threads that serve connections.
fn run_store(store: &MonStore, work: &mpsc::Receiver<Job>, shell: &Weak<Shell>) {
    while let Ok(job) = work.recv() {
        let result = match &job {
            Job::Append { index, data } => store.append(*index, data),
            Job::Snapshot { index, state } => store.snapshot(*index, state),
        };
        let Some(shell) = shell.upgrade() else { return };
        match (result, job) {
            (Ok(()), Job::Append { index, data }) => shell.submit(Input::Committed { index, change: data }),
            (Ok(()), Job::Snapshot { .. }) => {}
            (Err(e), _) => {
                // After a failed write nothing is known about what the store holds: stop for good.
                shell.failed.send_replace(Some(format!("the monitor's store failed: {e:#}")));
                return;
            }
        }
    }
}

struct MonMachine {
    core: Monitor,
    messenger: Messenger,
    clock: Clock,
    last_index: u64,
    jobs: mpsc::Sender<Job>,
    out: Vec<Output>,
}

impl Machine for MonMachine {
    type Input = Input;

    fn apply(&mut self, inputs: &mut Vec<Input>) {
        let now = self.clock.now();
        for input in inputs.drain(..) {
            self.core.handle(now, input, &mut self.out);
            let mut out = std::mem::take(&mut self.out);
            out.drain(..).for_each(|output| self.carry_out(output));
            self.out = out;
        }
    }
}

impl MonMachine {
    fn carry_out(&mut self, output: Output) {
        match output {
            Output::AuthMore { conn, payload } => self.messenger.answer_auth(conn, AuthStep::More(payload)),
            Output::AuthDone { conn, global_id, con_mode, payload, session_key, connection_secret } => {
                // The core keeps who it is; the messenger only compares names when a session is resumed.
                let name = AuthName::new(EntityType::Client, global_id.to_string());
                let identity = Identity { name, global_id, caps: Default::default() };
                let step = AuthStep::Done {
                    identity,
                    mode: ConMode::from_u32(con_mode).unwrap_or(ConMode::Crc),
                    payload,
                    session_key: session_key.to_vec(),
                    connection_secret: connection_secret.to_vec(),
                };
                self.messenger.answer_auth(conn, step);
            }
            Output::AuthBad { conn, refusal } => {
                let modes = refusal.allowed_modes.iter().filter_map(|m| ConMode::from_u32(*m)).collect();
                let step = AuthStep::Bad { errno: refusal.errno.0, methods: refusal.allowed_methods, modes };
                self.messenger.answer_auth(conn, step);
            }
            Output::Send { conn, tid, msg } => self.messenger.send(conn, msg.into_wire(tid)),
            Output::Close { conn } => self.messenger.close(conn),
            Output::Propose { data } => {
                self.last_index += 1;
                let _ = self.jobs.send(Job::Append { index: self.last_index, data });
            }
            Output::TakeSnapshot { index } => {
                let state = self.core.snapshot();
                let _ = self.jobs.send(Job::Snapshot { index, state });
            }
        }
    }
}

impl Commands for Shell {
    fn command(&self, cmd: String, answer: oneshot::Sender<Reply>) {
        if let Some(owner) = self.owner.get() {
            let _ = answer.send(owner.with(|m| m.core.daemon_command(m.clock.now(), &[cmd])));
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

    fn accept_policy(&self, _: u8) -> Policy {
        Policy::stateless_server()
    }

    fn ready(&self, conn: ConnId, peer: PeerReady) {
        let addrs = AddrVec::single(peer.addr);
        self.submit(Input::Connected { conn, peer: peer.name, addrs, features: peer.features });
    }

    fn messages(&self, conn: ConnId, batch: &mut Vec<WireMessage>) {
        for wire in batch.drain(..) {
            match Message::decode(&wire) {
                Ok(msg) => self.submit(Input::Message { conn, header: wire.header, msg }),
                Err(error) => {
                    tracing::info!("{conn}: message of type {} does not decode: {error}", wire.header.ty);
                    self.messenger.close(conn);
                    self.submit(Input::Disconnected { conn });
                    return;
                }
            }
        }
    }

    fn gone(&self, conn: ConnId, _: Gone) {
        self.submit(Input::Disconnected { conn });
    }
}
