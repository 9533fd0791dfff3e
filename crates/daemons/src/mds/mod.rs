//! A metadata server's shell: its messenger and its clock around the cores `mds` and `objecter`.

mod beacon;
mod command;
mod links;
mod machine;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use admin::Reply;
use anyhow::Result;
use cephx::caps::MdsCap;
use messages::Message;
use messages::wire::WireMessage;
use msgr::{Limits, Local, Policy};
use runtime::net::{AuthInput, AuthStep, Bounds, Gone, Handler, Messenger, PeerReady};
use runtime::session::{MonSession, SharedAuth};
use runtime::{Clock, LocalSocket, Owner};
use tokio::sync::oneshot;
use types::{AddrVec, ConnId, EntityAddr, EntityName, EntityType};

use crate::admin_socket::{self, AdminSocketAt, Commands};
use crate::ear::{Domain, Ear, panics_of, within};
use crate::failure::{EndOf, Failure};
use crate::inbox::cost;
use crate::listen::{self, ListenAt};
use crate::seen::seen_at;
use machine::{Event, MdsMachine, Said};

/// Between looks at what is due.
const TICK: Duration = Duration::from_millis(100);
/// How long the monitors may take to hear that a server goes.
const FAREWELL: Duration = Duration::from_secs(1);

/// How to start a metadata server.
#[derive(Clone)]
pub struct MdsSettings {
    pub name: String,
    pub listen: ListenAt,
    pub monitors: Vec<EntityAddr>,
    pub auth: Arc<SharedAuth>,
    /// Options of the configuration file.
    pub options: BTreeMap<String, String>,
    pub admin_socket: Option<AdminSocketAt>,
    /// How often this process has been a metadata server before: each life has an address of its own.
    pub life: i32,
    /// File descriptors that are its part of the process's.
    pub descriptors: u64,
}

/// How a metadata server ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MdsEnd {
    /// It lost its rank, and its address may be blocked: it may come back in another life.
    Deposed(String),
    Failed(Failure),
}

/// A running metadata server.
pub struct Mds {
    shell: Arc<Shell>,
    _admin: Option<LocalSocket>,
}

pub(crate) struct Shell {
    messenger: Messenger,
    auth: Arc<SharedAuth>,
    session: Arc<MonSession>,
    owner: OnceLock<Owner<MdsMachine>>,
    ended: Arc<EndOf<MdsEnd>>,
}

impl Mds {
    pub async fn start(settings: MdsSettings) -> Result<Self> {
        let clock = Clock::start();
        let local = Local { name: EntityName::new(EntityType::Mds, -1), addrs: AddrVec::default() };
        let messenger =
            Messenger::bounded(local, Limits::default(), Bounds::within(0, settings.descriptors), clock);
        let session =
            MonSession::new(Arc::clone(&settings.auth), messenger.clone(), settings.monitors.clone(), true);
        let shell = Arc::new(Shell {
            messenger: messenger.clone(),
            auth: settings.auth.clone(),
            session: Arc::clone(&session),
            owner: OnceLock::new(),
            ended: Arc::new(EndOf::new()),
        });
        messenger.set_handler(Arc::new(Ear(Arc::downgrade(&shell))));
        let at = &settings.listen;
        // OSDs count from 0, managers from -1 downwards.
        let nonce = crate::nonce::nonce(std::process::id(), i32::MIN + settings.life);
        let addrs = listen::bind(&messenger, true, at.public, &at.ports, nonce).await?;
        let wake = {
            let shell = Arc::downgrade(&shell);
            move || {
                let _ = within(&shell, |shell| shell.submit(Event::Woken));
            }
        };
        let machine = MdsMachine::new(machine::Parts {
            name: settings.name,
            addrs,
            options: settings.options,
            messenger,
            clock,
            auth: settings.auth,
            session: Arc::clone(&session),
            ended: Arc::clone(&shell.ended),
            wake: Box::new(wake),
        });
        let _ = shell.owner.set(Owner::contained(machine, panics_of(&shell)));
        session.connect();
        tokio::spawn(tick(Arc::downgrade(&shell)));
        let admin =
            admin_socket::open(settings.admin_socket.as_ref(), Arc::clone(&shell) as Arc<dyn Commands>);
        Ok(Self { shell, _admin: admin })
    }

    /// Ends when the server cannot go on.
    pub async fn ended(&self) -> MdsEnd {
        self.shell.ended.heard().await
    }

    /// The monitors that it knows now.
    pub fn monitors(&self) -> Vec<EntityAddr> {
        self.shell.session.monitors()
    }

    /// Tells the monitors that it goes, so that another one takes its rank at once.
    pub async fn stop(&self) {
        let farewell = async {
            while self.shell.with(MdsMachine::says_farewell) == Some(false) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
        self.shell.messenger.shut_down();
    }
}

async fn tick(shell: Weak<Shell>) {
    let mut every = tokio::time::interval(TICK);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ticks = 0u64;
    loop {
        every.tick().await;
        ticks += 1;
        if within(&shell, |shell| shell.tick(ticks % 10 == 0)).is_none() {
            return;
        }
    }
}

impl Shell {
    fn tick(&self, is_second: bool) {
        if is_second {
            self.session.tick();
        }
        if let Some(errno) = self.session.refused() {
            let name = self.auth.name();
            let why = format!("the monitors refuse the key of {name} ({errno}): see `ceph auth get {name}`");
            self.fail(Failure::lasting(why));
        }
        self.submit(Event::Tick);
    }

    fn fail(&self, failure: Failure) {
        self.ended.tell(MdsEnd::Failed(failure), || self.messenger.shut_down());
        if let Some(owner) = self.owner.get() {
            owner.end();
        }
    }

    fn submit(&self, event: Event) {
        if let Some(owner) = self.owner.get() {
            owner.submit(event);
        }
    }

    fn with<T>(&self, body: impl FnOnce(&mut MdsMachine) -> T) -> Option<T> {
        self.owner.get().and_then(|owner| owner.with(body))
    }
}

impl Domain for Shell {
    fn panicked(&self, how: String) {
        self.fail(Failure::passing(how));
    }
}

impl Commands for Shell {
    fn command(&self, cmd: String, answer: oneshot::Sender<Reply>) {
        self.submit(Event::Asked { cmd, answer });
    }
}

impl Handler for Shell {
    fn authenticate(&self, conn: ConnId, peer_type: u8, _: EntityAddr, input: AuthInput) -> AuthStep {
        let peer = EntityType::from_u8(peer_type).unwrap_or(EntityType::Client);
        self.auth.judge(conn, peer, input, self.messenger.now())
    }

    /// Clients' sessions outlive their connections. Source: src/ceph_mds.cc.
    fn accept_policy(&self, kind: EntityType) -> Policy {
        match kind {
            EntityType::Client => Policy::stateful_server(),
            _ => Policy::stateless_server(),
        }
    }

    fn ready(&self, conn: ConnId, peer: PeerReady) {
        let Some(identity) = peer.identity else {
            if self.session.is(conn) {
                self.session.on_ready();
                return self.submit(Event::MonReady { gid: self.auth.global_id().0 });
            }
            return self.submit(Event::ServiceReady(conn));
        };
        let caps = match MdsCap::from_info(&identity.caps) {
            Ok(caps) => caps,
            Err(error) => {
                tracing::warn!("{}: capabilities do not parse: {error}", identity.name);
                return self.messenger.close(conn);
            }
        };
        let addr = seen_at(peer.addr, self.messenger.peer_addr(conn));
        let peer = mds::Peer { client: identity.global_id, addr, name: identity.name, caps };
        self.submit(Event::Connected(conn, Box::new(peer)));
    }

    fn is_gated(&self, kind: EntityType) -> bool {
        kind == EntityType::Client
    }

    fn messages(&self, conn: ConnId, batch: &mut Vec<WireMessage>) {
        for wire in batch.drain(..) {
            let (bytes, tid) = (cost(&wire), wire.header.tid);
            let msg = match Message::decode(&wire) {
                Ok(msg) => msg,
                Err(error) => {
                    tracing::info!("{conn}: message of type {} does not decode: {error}", wire.header.ty);
                    return self.messenger.give_up(conn, "a message does not decode");
                }
            };
            if self.session.is(conn) {
                if let Some(msg) = self.session.on_message(msg) {
                    self.submit(Event::FromMon { tid, msg });
                }
            } else {
                self.messenger.gate().came(bytes);
                self.submit(Event::Said { conn, bytes, said: Box::new(Said { tid, msg }) });
            }
        }
    }

    fn gone(&self, conn: ConnId, _: Gone) {
        self.auth.forget(conn);
        if self.session.is(conn) {
            self.session.on_gone();
            return self.submit(Event::MonGone);
        }
        self.submit(Event::Gone(conn));
    }
}
