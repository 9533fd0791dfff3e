//! The manager's client, which does what the core wants done to images. Another crate brings it, for clients
//! lie above this one.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use manager::Input;
pub use manager::job;
use manager::job::{Failed, Found, Job};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use types::AddrVec;

pub type Soon<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The core hears of a job's progress so often at most.
const TOLD_EVERY: Duration = Duration::from_millis(200);

/// Starts clients of the cluster with the manager's own key.
pub trait Clients: Send + Sync {
    /// A client that is connected, or why there is none.
    fn start(&self) -> Soon<Result<Arc<dyn Client>, String>>;
}

/// A client of the cluster; its connections end when it is dropped.
pub trait Client: Send + Sync {
    /// Where whoever blocks it shuts it out.
    fn addrs(&self) -> AddrVec;

    /// Does a job. What is cancelled fails with ECANCELED, and leaves nothing behind that others would wait
    /// for.
    fn perform(&self, job: Job, going: Going) -> Soon<Result<Found, Failed>>;
}

/// A job's way back to whoever wants it.
pub struct Going {
    tell: Box<dyn Fn(u64, u64) + Send + Sync>,
    told: Mutex<Option<Instant>>,
    stop: watch::Receiver<bool>,
}

impl Going {
    /// So much is done, of so much.
    pub fn progress(&self, done: u64, of: u64) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            *told = Some(Instant::now());
            (self.tell)(done, of);
        }
    }

    /// Whether the job is to end early, at its next step.
    pub fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }
}

/// The client while there is one, and what it does.
pub(crate) struct Images {
    clients: Arc<dyn Clients>,
    submit: Arc<dyn Fn(Input) + Send + Sync>,
    runtime: Handle,
    now: Mutex<State>,
}

#[derive(Default)]
struct State {
    client: Option<Arc<dyn Client>>,
    starts: Option<AbortHandle>,
    jobs: BTreeMap<u64, (AbortHandle, watch::Sender<bool>)>,
}

impl Images {
    /// Must be called within the runtime that carries the jobs.
    pub fn new(clients: Arc<dyn Clients>, submit: impl Fn(Input) + Send + Sync + 'static) -> Arc<Self> {
        let (submit, runtime) = (Arc::new(submit), Handle::current());
        Arc::new(Self { clients, submit, runtime, now: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn start(self: &Arc<Self>) {
        let images = Arc::clone(self);
        let start = self.clients.start();
        let starts = self.runtime.spawn(async move {
            let started = start.await.map(|client| {
                let addrs = client.addrs();
                images.state().client = Some(client);
                addrs
            });
            (images.submit)(Input::Client { started });
        });
        if let Some(before) = self.state().starts.replace(starts.abort_handle()) {
            before.abort();
        }
    }

    /// Ends the client and all that it does.
    pub fn end(&self) {
        let before = std::mem::take(&mut *self.state());
        let jobs = before.jobs.into_values().map(|(job, _)| job);
        jobs.chain(before.starts).for_each(|task| task.abort());
    }

    pub fn perform(self: &Arc<Self>, id: u64, job: Job) {
        let mut state = self.state();
        let Some(client) = state.client.clone() else { return };
        let (stop, stopped) = watch::channel(false);
        let submit = Arc::clone(&self.submit);
        let tell = Box::new(move |done, of| submit(Input::ImageProgress { id, done, of }));
        let result = client.perform(job, Going { tell, told: Mutex::new(None), stop: stopped });
        drop(client);
        let images = Arc::clone(self);
        let task = self.runtime.spawn(async move {
            let result = result.await;
            images.state().jobs.remove(&id);
            (images.submit)(Input::ImageDone { id, result });
        });
        // The task waits for this lock before it takes itself off.
        state.jobs.insert(id, (task.abort_handle(), stop));
    }

    pub fn cancel(&self, id: u64) {
        if let Some((_, stop)) = self.state().jobs.get(&id) {
            stop.send_replace(true);
        }
    }
}
