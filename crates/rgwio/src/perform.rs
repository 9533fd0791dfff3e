//! Carries plans out, many at a time.

use std::sync::Arc;
use std::time::Duration;

use gateway::{Error, Plan, Reply, Request};
use rados::{Cluster, IoCtx};
use rgw::Pool;
use tokio::sync::{Mutex, Semaphore};
use types::Errno;

use crate::request::{self, Submitted};

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
    plans: Arc<Semaphore>,
    patience: Duration,
    /// Held while a pool is made.
    making: Arc<Mutex<()>>,
}

impl Performer {
    pub fn new(cluster: Cluster, limits: &Limits) -> Self {
        let plans = Arc::new(Semaphore::new(limits.plans.clamp(1, Semaphore::MAX_PERMITS)));
        Self { cluster, plans, patience: limits.patience, making: Arc::default() }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Carries a plan out to its end, also when the caller goes or has waited long enough: then the caller
    /// gets ETIMEDOUT, and does not know what became of it. Nothing is begun for a caller that went, or
    /// waited too long, before its turn.
    pub async fn run<T: Send + 'static>(&self, plan: Plan<T>) -> Result<T, Error> {
        let Plan::Ask(..) = &plan else { return self.perform(plan).await };
        let patience = tokio::time::sleep(self.patience);
        tokio::pin!(patience);
        let permit = tokio::select! {
            permit = Arc::clone(&self.plans).acquire_owned() => permit.map_err(|_| Error::Rados(Errno::ESHUTDOWN))?,
            () = &mut patience => return Err(Error::Rados(Errno::ETIMEDOUT)),
        };
        let this = self.clone();
        let task = tokio::spawn(async move {
            let _permit = permit;
            this.perform(plan).await
        });
        tokio::select! {
            done = task => done.unwrap_or(Err(Error::Unexpected)),
            () = &mut patience => Err(Error::Rados(Errno::ETIMEDOUT)),
        }
    }

    /// Carries a plan out as long as the caller waits for it, and no longer than its patience: for plans that
    /// may end between any two of their steps, as reads do.
    pub async fn read<T: Send + 'static>(&self, plan: Plan<T>) -> Result<T, Error> {
        let Plan::Ask(..) = &plan else { return self.perform(plan).await };
        let turn = async {
            let permit = self.plans.acquire().await.map_err(|_| Error::Rados(Errno::ESHUTDOWN))?;
            let done = self.perform(plan).await;
            drop(permit);
            done
        };
        tokio::time::timeout(self.patience, turn).await.unwrap_or(Err(Error::Rados(Errno::ETIMEDOUT)))
    }

    /// Carries a plan out here and now, and as far as the caller waits for it.
    pub async fn perform<T: Send + 'static>(&self, mut plan: Plan<T>) -> Result<T, Error> {
        loop {
            match plan {
                Plan::Done(result) => return result,
                Plan::Ask(requests, next) => plan = next(self.step(requests).await),
            }
        }
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
