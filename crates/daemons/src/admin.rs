//! A small client for `loligo`'s own commands: logs in to the monitor and runs them there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use messages::Message;
use messages::mon::MMonCommand;
use messages::wire::WireMessage;
use msgr::{Limits, Local, Policy};
use runtime::Clock;
use runtime::net::{AuthInput, AuthStep, Gone, Handler, Messenger, PeerReady};
use tokio::sync::{Notify, oneshot};
use types::{AddrVec, ConnId, EntityAddr, EntityName, Errno, Fsid};

use runtime::session::{MonSession, SharedAuth};

/// What a command answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// 0 or a negated errno.
    pub code: i32,
    pub status: String,
    pub data: Bytes,
}

/// A logged-in client; the session is made when the first command needs it.
pub struct AdminClient {
    shared: Arc<Shared>,
}

struct Shared {
    fsid: Fsid,
    messenger: Messenger,
    session: Arc<MonSession>,
    ready: Notify,
    next_tid: AtomicU64,
    waiting: Mutex<BTreeMap<u64, oneshot::Sender<Answer>>>,
}

impl AdminClient {
    pub fn new(fsid: Fsid, auth: Arc<SharedAuth>, monitors: Vec<EntityAddr>) -> Self {
        let local = Local { name: EntityName::client(-1), addrs: AddrVec::default() };
        let messenger = Messenger::new(local, Limits::default(), Clock::start());
        let session = MonSession::new(auth, messenger.clone(), monitors, false);
        let shared = Arc::new(Shared {
            fsid,
            messenger: messenger.clone(),
            session: Arc::clone(&session),
            ready: Notify::new(),
            next_tid: AtomicU64::new(1),
            waiting: Mutex::new(BTreeMap::new()),
        });
        messenger.set_handler(Arc::clone(&shared) as Arc<dyn Handler>);
        session.connect();
        Self { shared }
    }

    /// Waits until a session stands.
    pub async fn connected(&self, limit: Duration) -> Result<()> {
        let wait = async {
            while !self.shared.session.is_ready() {
                let _ = tokio::time::timeout(Duration::from_millis(20), self.shared.ready.notified()).await;
            }
        };
        tokio::time::timeout(limit, wait).await.context("the monitor cannot be reached")
    }

    /// Runs one command, given as Ceph's JSON. The session must stand.
    pub async fn command(&self, json: &serde_json::Value, limit: Duration) -> Result<Answer> {
        self.command_with(json, Bytes::new(), limit).await
    }

    /// The same with input, as `ceph -i FILE` gives it.
    pub async fn command_with(
        &self,
        json: &serde_json::Value,
        input: Bytes,
        limit: Duration,
    ) -> Result<Answer> {
        let tid = self.shared.next_tid.fetch_add(1, Ordering::Relaxed);
        let (tx, rx) = oneshot::channel();
        self.waiting().insert(tid, tx);
        let cmd = vec![json.to_string()];
        let message = MMonCommand { fsid: self.shared.fsid, cmd, input, ..MMonCommand::default() };
        self.shared.session.send_as(message.into(), tid);
        match tokio::time::timeout(limit, rx).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => bail!("the session with the monitor was lost"),
            Err(_) => {
                self.waiting().remove(&tid);
                bail!("the monitor did not answer within {} s", limit.as_secs())
            }
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, oneshot::Sender<Answer>>> {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for Shared {
    fn authenticate(&self, _: ConnId, _: u8, _: EntityAddr, _: AuthInput) -> AuthStep {
        AuthStep::Bad { errno: Errno::EOPNOTSUPP.0, methods: vec![], modes: vec![] }
    }

    fn accept_policy(&self, _: types::EntityType) -> Policy {
        Policy::stateless_server()
    }

    fn ready(&self, _: ConnId, _: PeerReady) {
        self.session.on_ready();
        self.ready.notify_waiters();
    }

    fn messages(&self, _: ConnId, batch: &mut Vec<WireMessage>) {
        for wire in batch.drain(..) {
            let tid = wire.header.tid;
            let Ok(msg) = Message::decode(&wire) else { continue };
            if let Some(Message::MonCommandAck(ack)) = self.session.on_message(msg) {
                let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&tid);
                if let Some(tx) = waiting {
                    let _ = tx.send(Answer { code: ack.result, status: ack.status, data: wire.data });
                }
            }
        }
    }

    fn gone(&self, _: ConnId, _: Gone) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.session.on_gone();
    }
}

impl Drop for AdminClient {
    fn drop(&mut self) {
        self.shared.messenger.shut_down();
    }
}
