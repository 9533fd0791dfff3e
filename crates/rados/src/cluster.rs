//! A connection to a cluster: its maps, its pools, commands to its daemons.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use maps::OsdMap;
use messages::osd::OpResult;
use objecter::{CommandReply, Outcome, Request, Ticket};
use runtime::session::SharedAuth;
use tokio::sync::oneshot;
use types::{EntityType, Epoch, Errno, Fsid, PgId, PoolId};

use crate::config::{Config, GatewayOptions};
use crate::error::check;
use crate::shell::{Event, Shared};
use crate::{Error, IoCtx, Result};

/// A client of a cluster. Clones, and the [`IoCtx`]s made of it, share one client; when the last of them is
/// dropped its connections close and its tasks end.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) handle: Arc<Handle>,
}

pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) config: Config,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.shut_down();
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({} as {})", self.fsid(), self.handle.config.name)
    }
}

/// Output of a command, and its line for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandOutput {
    pub output: Bytes,
    pub status: String,
}

/// Used and free space of the cluster. Source: librados cluster_stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterStat {
    pub kib: u64,
    pub kib_used: u64,
    pub kib_available: u64,
    pub objects: u64,
}

impl Cluster {
    /// Logs in and waits for the first map. Must be called within a tokio runtime, which carries the
    /// connections from then on.
    pub async fn connect(mut config: Config) -> Result<Self> {
        // For gateways to read before; some are secrets.
        config.rgw = GatewayOptions::default();
        let key = config.key.clone().unwrap_or_default();
        let auth = SharedAuth::new(config.method, config.name.clone(), key, EntityType::Client);
        let auth = auth.with_options(&config.modes);
        let mut monitors = config.monitors.clone();
        if !monitors.is_empty() {
            // Clients spread over the monitors.
            let mut random = runtime::OsEntropy;
            let at = types::Entropy::next_u64(&mut random) as usize % monitors.len();
            monitors.rotate_left(at);
        }
        let shared = Shared::start(auth, monitors, config.objecter.clone());
        let limit = config.connect_timeout;
        let name = config.name.to_string();
        let cluster = Self { handle: Arc::new(Handle { shared, config }) };
        let first_map = async {
            loop {
                let news = cluster.shared().news.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                if cluster.map().epoch > Epoch(0) {
                    return Ok(());
                }
                if let Some(errno) = cluster.shared().auth.take_refusal() {
                    return Err(Error::Refused { name: name.clone(), errno });
                }
                news.await;
            }
        };
        match tokio::time::timeout(limit, first_map).await {
            Ok(result) => result.map(|()| cluster),
            Err(_) => Err(Error::Unreachable { seconds: limit.as_secs() }),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// The newest OSD map that we have.
    pub fn map(&self) -> Arc<OsdMap> {
        self.shared().map()
    }

    pub fn fsid(&self) -> Fsid {
        self.map().fsid
    }

    /// Our number in this cluster. Source: librados get_instance_id.
    pub fn global_id(&self) -> u64 {
        self.shared().auth.global_id().0
    }

    /// Under which address daemons know this client: whoever blocks it there shuts the client out. Source:
    /// librados get_addrs.
    pub fn addrs(&self) -> types::AddrVec {
        self.shared().messenger.stated()
    }

    /// Waits until our map is as new as the monitor's was when this was called.
    pub async fn wait_for_latest_map(&self) -> Result<Arc<OsdMap>> {
        self.ask(Request::LatestMap).await?;
        Ok(self.map())
    }

    /// The pool of this name; ENOENT when the newest map has none.
    pub async fn pool(&self, name: &str) -> Result<IoCtx> {
        let found = match self.map().pool_by_name(name) {
            Some(id) => Some(id),
            None => self.wait_for_latest_map().await?.pool_by_name(name),
        };
        found.map(|id| IoCtx::new(self.clone(), id)).ok_or(Error::Os(Errno::ENOENT))
    }

    /// The pool of this number; ENOENT when the newest map has none.
    pub async fn pool_by_id(&self, id: PoolId) -> Result<IoCtx> {
        let known = self.map().pool(id).is_some();
        if !known && self.wait_for_latest_map().await?.pool(id).is_none() {
            return Err(Error::Os(Errno::ENOENT));
        }
        Ok(IoCtx::new(self.clone(), id))
    }

    /// Numbers and names of all pools.
    pub fn pools(&self) -> Vec<(PoolId, String)> {
        self.map().pool_names.iter().map(|(id, name)| (*id, name.clone())).collect()
    }

    /// A command to the monitors, as Ceph's JSON (`{"prefix": "osd dump"}`).
    pub async fn mon_command(&self, json: &str, input: Bytes) -> Result<CommandOutput> {
        self.command(Request::MonCommand { cmd: vec![json.to_owned()], input }).await
    }

    pub async fn osd_command(&self, osd: i32, json: &str, input: Bytes) -> Result<CommandOutput> {
        self.command(Request::OsdCommand { osd, cmd: vec![json.to_owned()], input }).await
    }

    /// To the OSD that leads the PG.
    pub async fn pg_command(&self, pg: PgId, json: &str, input: Bytes) -> Result<CommandOutput> {
        self.command(Request::PgCommand { pg, cmd: vec![json.to_owned()], input }).await
    }

    pub async fn mgr_command(&self, json: &str, input: Bytes) -> Result<CommandOutput> {
        self.command(Request::MgrCommand { cmd: vec![json.to_owned()], input }).await
    }

    async fn command(&self, request: Request) -> Result<CommandOutput> {
        match self.ask(request).await? {
            Outcome::Command(CommandReply { result, status, output }) if result >= 0 => {
                Ok(CommandOutput { output, status })
            }
            Outcome::Command(CommandReply { result, status, .. }) => {
                Err(Error::Command { errno: Errno(result.saturating_neg()), status })
            }
            other => Err(unexpected(other)),
        }
    }

    /// Used and free space, of one pool or of all.
    pub async fn stat(&self, pool: Option<PoolId>) -> Result<ClusterStat> {
        match self.ask(Request::Statfs { pool }).await? {
            Outcome::Statfs(s) => Ok(ClusterStat {
                kib: s.kb,
                kib_used: s.kb_used,
                kib_available: s.kb_avail,
                objects: s.num_objects,
            }),
            other => Err(unexpected(other)),
        }
    }

    /// Asks something that goes through the monitors or daemons, with the configured time limit.
    pub(crate) async fn ask(&self, request: Request) -> Result<Outcome> {
        let (ticket, rx) = self.shared().submit(request);
        self.wait(ticket, rx, self.handle.config.mon_timeout).await
    }

    pub(crate) async fn wait(
        &self,
        ticket: Ticket,
        rx: oneshot::Receiver<Outcome>,
        limit: Option<Duration>,
    ) -> Result<Outcome> {
        // Dropped while it waits: the request ends too.
        let mut guard = CancelOnDrop { shared: self.shared(), ticket: Some(ticket) };
        let outcome = match limit {
            None => rx.await,
            Some(limit) => match tokio::time::timeout(limit, rx).await {
                Ok(outcome) => outcome,
                Err(_) => return Err(Error::Os(Errno::ETIMEDOUT)),
            },
        };
        guard.ticket = None;
        match outcome {
            Ok(Outcome::Failed(errno)) => Err(Error::Os(errno)),
            Ok(outcome) => Ok(outcome),
            Err(_) => Err(Error::ShutDown),
        }
    }
}

struct CancelOnDrop<'a> {
    shared: &'a Shared,
    ticket: Option<Ticket>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.shared.hand_in(Event::Cancel(ticket, Errno::ECANCELED));
        }
    }
}

/// The core answers every request with its own kind of outcome.
pub(crate) fn unexpected(outcome: Outcome) -> Error {
    tracing::error!("an outcome of another kind: {outcome:?}");
    Error::Os(Errno::EIO)
}

/// What an operation brought.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// 0 or more, or a negated errno; see [`Pending::raw`].
    pub result: i32,
    /// The object's version after (of a read: at) the operation.
    pub version: u64,
    /// Result and output of each operation of the request.
    pub ops: Vec<OpResult>,
}

impl Reply {
    /// The output of the operation at this place; empty when there is none.
    pub fn output(&self, at: usize) -> Bytes {
        self.ops.get(at).map(|op| op.outdata.clone()).unwrap_or_default()
    }

    /// The result of the operation at this place.
    pub fn rval(&self, at: usize) -> i32 {
        self.ops.get(at).map_or(0, |op| op.rval)
    }
}

/// An operation that has been submitted; await it for its reply. Dropping it leaves the operation to run.
#[must_use = "the outcome is only known when it is awaited; `forget` says that it does not matter"]
pub struct Pending {
    state: State,
}

enum State {
    /// Refused before it was sent.
    Failed(Option<Error>),
    Waiting(oneshot::Receiver<Outcome>),
}

impl Pending {
    pub(crate) fn new(rx: oneshot::Receiver<Outcome>) -> Self {
        Self { state: State::Waiting(rx) }
    }

    pub(crate) fn failed(error: Error) -> Self {
        Self { state: State::Failed(Some(error)) }
    }

    /// The reply also when its result is an error, for the sake of single operations' results and outputs.
    pub async fn raw(self) -> Result<Reply> {
        match self.state {
            State::Failed(error) => Err(error.unwrap_or(Error::ShutDown)),
            State::Waiting(rx) => reply(rx.await),
        }
    }

    /// Lets it run without waiting.
    pub fn forget(self) {}
}

fn reply(outcome: std::result::Result<Outcome, oneshot::error::RecvError>) -> Result<Reply> {
    match outcome {
        Ok(Outcome::Op(r)) => Ok(Reply { result: r.result, version: r.version, ops: r.ops }),
        Ok(Outcome::Failed(errno)) => Err(Error::Os(errno)),
        Ok(other) => Err(unexpected(other)),
        Err(_) => Err(Error::ShutDown),
    }
}

impl Future for Pending {
    type Output = Result<Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Reply>> {
        match &mut self.state {
            State::Failed(error) => Poll::Ready(Err(error.take().unwrap_or(Error::ShutDown))),
            State::Waiting(rx) => Pin::new(rx).poll(cx).map(|outcome| {
                let reply = reply(outcome)?;
                check(reply.result)?;
                Ok(reply)
            }),
        }
    }
}
