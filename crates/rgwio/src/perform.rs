//! Carries plans out, many at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway::{Error, Plan, Reply, Request};
use rados::{Cluster, IoCtx};
use rgw::Pool;
use tokio::sync::Mutex;
use types::Errno;

use crate::request::{self, Submitted};
use crate::turns::Turns;

/// Requests of one step that are under way at a time: a step may have one for each stripe of a large object.
const WINDOW: usize = 64;

/// How much is done at a time, and for how long somebody waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Plans at a time. One more waits.
    pub plans: usize,
    /// How long `run` waits for a plan, from when it was handed in.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { plans: 1024, patience: Duration::from_secs(60) }
    }
}

/// Performs plans on a cluster. Clones share their limits.
#[derive(Debug, Clone)]
pub struct Performer {
    cluster: Cluster,
    turns: Turns,
    /// Held while a pool is made.
    making: Arc<Mutex<()>>,
}

impl Performer {
    pub fn new(cluster: Cluster, limits: &Limits) -> Self {
        Self { cluster, turns: Turns::new(limits.plans, limits.patience), making: Arc::default() }
    }

    /// The same for one client's plans: a quarter of all at a time, more wait.
    pub fn of_client(&self, client: Bytes) -> Self {
        Self { turns: self.turns.of_client(client), ..self.clone() }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Carries a plan out to its end, also when the caller goes or has waited long enough: then the caller
    /// gets ETIMEDOUT, and does not know what became of it. Nothing is begun for a caller that went, or
    /// waited too long, before its turn.
    pub async fn run<T: Send + 'static>(&self, plan: Plan<T>) -> Result<T, Error> {
        self.run_or(plan, Plan::ok(()), |_| Plan::ok(())).await
    }

    /// As `run`, for a plan with something that is not to be lost sight of: `instead` is carried out if the
    /// plan's turn does not come in time, and what is planned `after` it if it ends when nobody waits for
    /// what it gives any more.
    pub async fn run_or<T: Send + 'static>(
        &self,
        plan: Plan<T>,
        instead: Plan<()>,
        after: impl FnOnce(T) -> Plan<()> + Send + 'static,
    ) -> Result<T, Error> {
        if let Plan::Done(result) = plan {
            return result;
        }
        let this = self.clone();
        let of = |plan: Plan<()>| {
            let this = this.clone();
            // What cannot be taken back stays, and nobody asks for it.
            async move { drop(this.perform(plan).await) }
        };
        let instead = match instead {
            Plan::Done(_) => None,
            plan => Some(of(plan)),
        };
        let performer = this.clone();
        let after = move |value| async move { drop(performer.perform(after(value)).await) };
        self.turns.run(Box::pin(async move { this.perform(plan).await }), instead, after).await
    }

    /// Carries a plan out as long as the caller waits for it, and no longer than its patience: for plans that
    /// may end between any two of their steps, as reads do.
    pub async fn read<T: Send + 'static>(&self, plan: Plan<T>) -> Result<T, Error> {
        match plan {
            Plan::Done(result) => result,
            plan => self.turns.read(self.perform(plan)).await,
        }
    }

    /// Carries a plan out here and now, and as far as the caller waits for it.
    pub async fn perform<T: Send + 'static>(&self, mut plan: Plan<T>) -> Result<T, Error> {
        loop {
            match plan {
                Plan::Done(result) => return result,
                Plan::Ask(requests, next) => plan = next(self.step(requests).await),
                Plan::Wait(time, next) => {
                    tokio::time::sleep(time).await;
                    plan = next();
                }
            }
        }
    }

    /// Tells the names of all objects of a pool's namespace, in no order; of a pool that is not there, none.
    pub async fn names(&self, pool: &Pool, mut each: impl FnMut(&str)) -> Result<(), Error> {
        let failed = |e: rados::Error| Error::Rados(e.errno());
        let mut objects = match self.pool(pool, false).await {
            Err(e) if e.is_not_found() => return Ok(()),
            io => io.map_err(failed)?.objects(),
        };
        while let Some(page) = objects.next_page().await.map_err(failed)? {
            page.iter().for_each(|object| each(&object.name));
        }
        Ok(())
    }

    async fn step(&self, requests: Vec<Request>) -> Vec<Result<Reply, Errno>> {
        let mut replies = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let mut window = Vec::with_capacity(requests.len().min(WINDOW));
            for request in requests.by_ref().take(WINDOW) {
                window.push(self.submit(request).await);
            }
            for submitted in window {
                replies.push(match submitted {
                    Ok(submitted) => submitted.reply().await,
                    Err(e) => Err(e),
                });
            }
        }
        replies
    }

    async fn submit(&self, request: Request) -> Result<Submitted, Errno> {
        let io = match self.pool(&request.object.pool, request::changes(&request)).await {
            Ok(io) => io,
            Err(e) => return Err(e.errno()),
        };
        request::submit(&io, request)
    }

    /// The pool of an object. One that is not there is made for requests that change something.
    async fn pool(&self, pool: &Pool, changes: bool) -> rados::Result<IoCtx> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| Errno::EINVAL);
        let (name, namespace) = (text(&pool.name)?, text(&pool.namespace)?);
        let io = match self.cluster.pool(&name).await {
            Err(e) if e.is_not_found() && changes && !name.is_empty() => self.make_pool(&name).await?,
            found => found?,
        };
        Ok(io.with_namespace(namespace))
    }

    /// Makes a pool with the cluster's defaults, marked as a gateway's. Source: rgw_init_ioctx in
    /// src/rgw/rgw_tools.cc.
    async fn make_pool(&self, name: &str) -> rados::Result<IoCtx> {
        let _making = self.making.lock().await;
        match self.cluster.create_pool(name).await {
            // Another one was first.
            Err(e) if e.errno() == Errno::EEXIST => self.cluster.pool(name).await,
            Err(e) => Err(e),
            Ok(io) => {
                if let Err(e) = io.enable_application("rgw", false).await {
                    tracing::warn!("the pool {name} is not marked as a gateway's: {e}");
                }
                Ok(io)
            }
        }
    }
}
