//! The manager's shell: its messenger and its clock around the core.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use admin::Reply;
use anyhow::Result;
use cephx::caps::MgrCap;
use manager::{Input, Manager, Output, PeerInfo, Settings};
use messages::Message;
use messages::wire::WireMessage;
use msgr::{Limits, Local, Policy};
use runtime::net::{AuthInput, AuthStep, Gone, Handler, Messenger, PeerReady};
use runtime::{Clock, LocalSocket, Machine, Owner};
use tokio::sync::{oneshot, watch};
use types::{AddrVec, ConnId, EntityAddr, EntityName, EntityType};

use crate::admin_socket::{self, AdminSocketAt, Commands};
use crate::listen::{self, ListenAt};
use runtime::session::{MonSession, SharedAuth};

/// How to start a manager.
#[derive(Clone)]
pub struct MgrSettings {
    pub name: String,
    pub listen: ListenAt,
    pub monitors: Vec<EntityAddr>,
    pub auth: Arc<SharedAuth>,
    /// Options of the configuration file.
    pub options: std::collections::BTreeMap<String, String>,
    pub admin_socket: Option<AdminSocketAt>,
    /// How often this process has been a manager before: each life has an address of its own.
    pub life: i32,
}

/// How a manager ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MgrEnd {
    /// It lost its place, and its address is blocked: it may come back in another life.
    Deposed,
    Failed(String),
}

/// A running manager.
pub struct Mgr {
    shell: Arc<Shell>,
    _admin: Option<LocalSocket>,
}

struct Shell {
    messenger: Messenger,
    auth: Arc<SharedAuth>,
    session: Arc<MonSession>,
    owner: OnceLock<Owner<MgrMachine>>,
    ended: watch::Sender<Option<MgrEnd>>,
}

impl Mgr {
    pub async fn start(settings: MgrSettings) -> Result<Self> {
        let clock = Clock::start();
        let local = Local { name: EntityName::new(EntityType::Mgr, -1), addrs: AddrVec::default() };
        let messenger = Messenger::new(local, Limits::default(), clock);
        let session =
            MonSession::new(Arc::clone(&settings.auth), messenger.clone(), settings.monitors.clone(), true);
        let shell = Arc::new(Shell {
            messenger: messenger.clone(),
            auth: settings.auth,
            session: Arc::clone(&session),
            owner: OnceLock::new(),
            ended: watch::Sender::new(None),
        });
        messenger.set_handler(Arc::new(Ear(Arc::downgrade(&shell))));
        let at = &settings.listen;
        // OSDs count from 0.
        let nonce = crate::nonce::nonce(std::process::id(), -1 - settings.life);
        let addrs = listen::bind(&messenger, true, at.public, &at.ports, nonce).await?;
        let core = Manager::new(Settings {
            name: settings.name,
            addrs,
            metadata: crate::metadata::host(),
            options: settings.options,
        });
        let ended = shell.ended.clone();
        let machine =
            MgrMachine { core, messenger, clock, session: Arc::clone(&session), ended, out: Vec::new() };
        let _ = shell.owner.set(Owner::new(machine));
        session.connect();
        tokio::spawn(tick(Arc::downgrade(&shell)));
        let admin =
            admin_socket::open(settings.admin_socket.as_ref(), Arc::clone(&shell) as Arc<dyn Commands>);
        Ok(Self { shell, _admin: admin })
    }

    /// Ends when the manager cannot go on.
    pub async fn ended(&self) -> MgrEnd {
        if let Ok(end) = self.shell.ended.subscribe().wait_for(Option::is_some).await {
            if let Some(end) = end.clone() {
                return end;
            }
        }
        std::future::pending().await
    }

    pub fn stop(&self) {
        self.shell.messenger.shut_down();
    }
}

async fn tick(shell: Weak<Shell>) {
    let mut every = tokio::time::interval(Duration::from_millis(250));
    loop {
        every.tick().await;
        let Some(shell) = shell.upgrade() else { return };
        shell.session.tick();
        if let Some(errno) = shell.session.refused() {
            let why = format!("the monitors refuse the key of {} ({errno})", shell.auth.name());
            end(&shell.ended, MgrEnd::Failed(why));
        }
        shell.submit(Input::Tick);
    }
}

impl Shell {
    fn submit(&self, input: Input) {
        if let Some(owner) = self.owner.get() {
            owner.submit(input);
        }
    }
}

/// The first reason counts.
fn end(ended: &watch::Sender<Option<MgrEnd>>, why: MgrEnd) {
    ended.send_if_modified(|known| known.is_none() && known.replace(why).is_none());
}

struct MgrMachine {
    core: Manager,
    messenger: Messenger,
    clock: Clock,
    session: Arc<MonSession>,
    ended: watch::Sender<Option<MgrEnd>>,
    out: Vec<Output>,
}

impl Machine for MgrMachine {
    type Input = Input;

    fn apply(&mut self, inputs: &mut Vec<Input>) {
        let now = self.clock.now();
        for input in inputs.drain(..) {
            self.core.handle(now, input, &mut self.out);
            for output in self.out.drain(..) {
                match output {
                    Output::Send { conn, tid, msg } => self.messenger.send(conn, msg.into_wire(tid)),
                    Output::SendMon { tid, msg } => self.session.send_as(msg, tid),
                    Output::Close { conn } => self.messenger.close(conn),
                    Output::Respawn => end(&self.ended, MgrEnd::Deposed),
                }
            }
        }
    }
}

impl Commands for Shell {
    fn command(&self, cmd: String, answer: oneshot::Sender<Reply>) {
        if let Some(owner) = self.owner.get() {
            let _ = answer.send(owner.with(|m| m.core.daemon_command(&[cmd])));
        }
    }
}

/// What the messenger tells the shell, as long as there is one: a messenger that kept its handler would keep itself.
struct Ear(Weak<Shell>);

impl Handler for Ear {
    fn authenticate(&self, conn: ConnId, _: u8, _: EntityAddr, input: AuthInput) -> AuthStep {
        match self.0.upgrade() {
            Some(shell) => shell.authenticate(conn, input),
            // Its connections are being closed.
            None => AuthStep::Pending,
        }
    }

    fn accept_policy(&self, _: EntityType) -> Policy {
        Policy::stateless_server()
    }

    fn ready(&self, conn: ConnId, peer: PeerReady) {
        if let Some(shell) = self.0.upgrade() {
            shell.ready(conn, peer);
        }
    }

    fn messages(&self, conn: ConnId, batch: &mut Vec<WireMessage>) {
        if let Some(shell) = self.0.upgrade() {
            shell.messages(conn, batch);
        }
    }

    fn gone(&self, conn: ConnId, gone: Gone) {
        if let Some(shell) = self.0.upgrade() {
            shell.gone(conn, gone);
        }
    }
}

impl Shell {
    fn authenticate(&self, conn: ConnId, input: AuthInput) -> AuthStep {
        self.auth.judge(conn, input, self.messenger.now())
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
        let num = match identity.name.kind {
            EntityType::Osd => identity.name.id.parse().unwrap_or(-1),
            _ => identity.global_id.0 as i64,
        };
        let name = EntityName::new(identity.name.kind, num);
        let peer = PeerInfo { name, auth_name: identity.name, addr: peer.addr, caps };
        self.submit(Input::Connected { conn, peer });
    }

    fn messages(&self, conn: ConnId, batch: &mut Vec<WireMessage>) {
        for wire in batch.drain(..) {
            let msg = match Message::decode(&wire) {
                Ok(msg) => msg,
                Err(error) => {
                    tracing::info!("{conn}: message of type {} does not decode: {error}", wire.header.ty);
                    self.messenger.close(conn);
                    return self.submit(Input::Disconnected { conn });
                }
            };
            if self.session.is(conn) {
                if let Some(msg) = self.session.on_message(msg) {
                    self.submit(Input::FromMon { tid: wire.header.tid, msg });
                }
            } else {
                self.submit(Input::Message { conn, tid: wire.header.tid, msg });
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
