//! The manager's client, which does the core's jobs. Another crate brings it, for clients lie above this one.

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
pub(crate) struct Jobs {
    clients: Arc<dyn Clients>,
    submit: Arc<dyn Fn(Input) + Send + Sync>,
    runtime: Handle,
    now: Mutex<State>,
}

#[derive(Default)]
struct State {
    client: Option<Arc<dyn Client>>,
    starts: Option<AbortHandle>,
    /// The number of the last start, unless it was ended: one that was aborted too late to be stopped has
    /// another one.
    start: Option<u64>,
    jobs: BTreeMap<u64, (AbortHandle, watch::Sender<bool>)>,
}

impl Jobs {
    /// Must be called within the runtime that carries the jobs.
    pub fn new(clients: Arc<dyn Clients>, submit: impl Fn(Input) + Send + Sync + 'static) -> Arc<Self> {
        let (submit, runtime) = (Arc::new(submit), Handle::current());
        Arc::new(Self { clients, submit, runtime, now: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A start that is ended, or followed by another one, may tell something all the same: the core knows it
    /// by its number.
    pub fn start(self: &Arc<Self>, start: u64) {
        let all = Arc::clone(self);
        let soon = self.clients.start();
        let mut state = self.state();
        state.start = Some(start);
        let starts = self.runtime.spawn(async move {
            let started = soon.await.map(|client| (client.addrs(), client));
            let started = {
                let mut state = all.state();
                if state.start != Some(start) {
                    return;
                }
                started.map(|(addrs, client)| {
                    state.client = Some(client);
                    addrs
                })
            };
            (all.submit)(Input::Client { start, started });
        });
        if let Some(before) = state.starts.replace(starts.abort_handle()) {
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
        let tell = Box::new(move |done, of| submit(Input::JobProgress { id, done, of }));
        let result = client.perform(job, Going { tell, told: Mutex::new(None), stop: stopped });
        drop(client);
        let all = Arc::clone(self);
        let task = self.runtime.spawn(async move {
            let result = result.await;
            all.state().jobs.remove(&id);
            (all.submit)(Input::JobDone { id, result });
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

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use types::{AddrKind, EntityAddr};

    use super::*;

    #[derive(Default)]
    struct Fakes {
        started: AtomicU32,
        jobs: OnceLock<Arc<Jobs>>,
    }

    struct Fake(u32, Arc<Fakes>);

    fn at(nonce: u32) -> AddrVec {
        let addr = EntityAddr::parse(&format!("v2:127.0.0.1:0/{nonce}"), AddrKind::Msgr2);
        AddrVec::single(addr.expect("an address"))
    }

    struct OfFakes(Arc<Fakes>);

    impl Clients for OfFakes {
        fn start(&self) -> Soon<Result<Arc<dyn Client>, String>> {
            let fakes = Arc::clone(&self.0);
            Box::pin(async move {
                let number = fakes.started.fetch_add(1, Ordering::SeqCst);
                Ok(Arc::new(Fake(number, fakes)) as Arc<dyn Client>)
            })
        }
    }

    impl Client for Fake {
        fn addrs(&self) -> AddrVec {
            let all = self.1.jobs.get().expect("the jobs");
            // Of the first one the end comes when its start cannot be stopped any more.
            if self.0 == 0 {
                all.end();
                all.start(2);
            }
            at(self.0)
        }

        fn perform(&self, _job: Job, _going: Going) -> Soon<Result<Found, Failed>> {
            Box::pin(async { Ok(Found::Nothing) })
        }
    }

    #[tokio::test]
    async fn a_start_that_was_ended_tells_no_addresses() {
        let fakes = Arc::new(Fakes::default());
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let all = Jobs::new(Arc::new(OfFakes(Arc::clone(&fakes))), move |input| drop(tell.send(input)));
        assert!(fakes.jobs.set(Arc::clone(&all)).is_ok());
        all.start(1);
        let first = told.recv().await.expect("a client");
        assert_eq!(first, Input::Client { start: 2, started: Ok(at(1)) });
    }
}
