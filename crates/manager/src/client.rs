//! The manager's own client of the cluster, which does what modules want done in pools and by daemons: tasks on
//! images, what disks have told. The core decides; the client does it ([`Job`]), and is started when there is
//! something to do.
//!
//! Invariants:
//! 1. Nothing is done before the monitors' map of managers names the client: from then on it is shut out
//!    together with this manager when another one takes its place, and two never do the same.
//! 2. Jobs under way are bounded, and so are those of one pool.
//! 3. Each job that is taken is over once: it is answered, or ends with the client.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use maps::MgrMap;
use types::{AddrVec, Errno, Now, PoolId};

use crate::core::Manager;
use crate::io::Output;
use crate::job::{Failed, Found, Job};
use crate::{device_health, rbd};

/// After a failure to reach the cluster.
const AGAIN: Duration = Duration::from_secs(5);
/// Jobs that are not answered; and of one pool, which is more than it has where it answers.
const MAX_JOBS: usize = 1_024;
const MAX_JOBS_OF_POOL: usize = 12;

/// For whom a job is done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Why {
    Rbd(rbd::Why),
    /// The run of this number.
    Disks(device_health::RunId),
}

impl From<rbd::Why> for Why {
    fn from(why: rbd::Why) -> Self {
        Self::Rbd(why)
    }
}

impl From<device_health::RunId> for Why {
    fn from(run: device_health::RunId) -> Self {
        Self::Disks(run)
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
enum State {
    /// There was nothing to do yet, or the last one is of no use any more.
    #[default]
    None,
    Starts,
    /// It is not started anew before this time.
    Failed(Duration),
    /// The monitors are told of it.
    Told(AddrVec),
    /// They know it.
    Ready(AddrVec),
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Client {
    state: State,
    /// Jobs that are not answered, and the pools that are to answer.
    jobs: BTreeMap<u64, (Why, Option<PoolId>)>,
    /// Those of them that wait for the client.
    waiting: VecDeque<(u64, Job)>,
    last_job: u64,
    /// The number of the last start of a client.
    last_start: u64,
}

impl Client {
    /// Under which number a job is handed out; `None` while there are too many.
    pub fn submit(&mut self, job: Job, why: impl Into<Why>, out: &mut Vec<Output>) -> Option<u64> {
        let pool = job.pool();
        let of_pool = self.jobs.values().filter(|(_, of)| *of == pool && pool.is_some()).count();
        if self.jobs.len() >= MAX_JOBS || of_pool >= MAX_JOBS_OF_POOL {
            return None;
        }
        self.last_job += 1;
        let id = self.last_job;
        self.jobs.insert(id, (why.into(), pool));
        match self.state {
            State::Ready(_) => out.push(Output::Job { id, job }),
            State::None => {
                self.waiting.push_back((id, job));
                self.start(out);
            }
            _ => self.waiting.push_back((id, job)),
        }
        Some(id)
    }

    fn start(&mut self, out: &mut Vec<Output>) {
        self.state = State::Starts;
        self.last_start += 1;
        out.push(Output::StartClient { start: self.last_start });
    }

    /// Starts it anew when it is time to.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        if matches!(self.state, State::Failed(again) if now.mono >= again) {
            self.start(out);
        }
    }

    /// A job is to end. What waits for the client is never handed to it: then it is over.
    pub fn cancel(&mut self, id: u64, out: &mut Vec<Output>) -> bool {
        let is_over = self.waits(id);
        self.waiting.retain(|(waiting, _)| *waiting != id);
        match is_over {
            true => drop(self.jobs.remove(&id)),
            false => out.push(Output::CancelJob { id }),
        }
        is_over
    }

    /// Whether a job waits for the client.
    pub fn waits(&self, id: u64) -> bool {
        self.waiting.iter().any(|(waiting, _)| *waiting == id)
    }

    /// Whether there is a job for the same.
    pub fn is_under_way(&self, why: &rbd::Why) -> bool {
        self.jobs.values().any(|(w, _)| matches!(w, Why::Rbd(w) if w == why))
    }

    /// Jobs on images, and their pools.
    pub fn of_rbd(&self) -> impl Iterator<Item = (u64, &rbd::Why, PoolId)> {
        self.jobs.iter().filter_map(|(id, (why, pool))| match (why, pool) {
            (Why::Rbd(why), Some(pool)) => Some((*id, why, *pool)),
            _ => None,
        })
    }

    /// Addresses of the client that the monitors are to know.
    pub fn addrs(&self) -> Option<&AddrVec> {
        match &self.state {
            State::Told(addrs) | State::Ready(addrs) => Some(addrs),
            _ => None,
        }
    }

    /// Another manager is in charge: what is under way ends.
    pub fn forget_all(&mut self, out: &mut Vec<Output>) {
        if self.state != State::None {
            out.push(Output::EndClient);
        }
        *self = Self { last_job: self.last_job, last_start: self.last_start, ..Self::default() };
    }
}

impl Manager {
    /// The client is there, or could not be started.
    pub(crate) fn client_started(
        &mut self,
        now: Now,
        start: u64,
        started: Result<AddrVec, String>,
        out: &mut Vec<Output>,
    ) {
        if self.client.state != State::Starts || start != self.client.last_start {
            // Somebody else came into charge meanwhile, or the client was shut out before it was heard of.
            return;
        }
        match started {
            Ok(addrs) => {
                self.client.state = State::Told(addrs);
                self.beacon(now, out);
            }
            Err(why) => {
                out.push(Output::Warn(format!("nothing can be done in pools: {why}")));
                self.client.state = State::Failed(now.mono + AGAIN);
            }
        }
    }

    /// Lets the client do what waits for it, once the monitors know it.
    pub(crate) fn client_listed(&mut self, map: &MgrMap, out: &mut Vec<Output>) {
        let State::Told(addrs) = &self.client.state else { return };
        let socket = |a: &AddrVec| a.0.iter().map(|a| (a.socket, a.nonce)).collect::<Vec<_>>();
        if self.confirmed && map.clients.iter().any(|c| socket(&c.addrs) == socket(addrs)) {
            self.client.state = State::Ready(addrs.clone());
            let waiting = std::mem::take(&mut self.client.waiting);
            out.extend(waiting.into_iter().map(|(id, job)| Output::Job { id, job }));
        }
    }

    pub(crate) fn job_progress(&mut self, now: Now, id: u64, done: u64, of: u64) {
        if let Some((Why::Rbd(rbd::Why::Task), Some(pool))) = self.client.jobs.get(&id).filter(|_| of > 0) {
            self.rbd_progress(now, *pool, done as f64 / of as f64);
        }
    }

    pub(crate) fn job_done(
        &mut self,
        now: Now,
        id: u64,
        result: Result<Found, Failed>,
        out: &mut Vec<Output>,
    ) {
        let Some((why, pool)) = self.client.jobs.remove(&id) else { return };
        let mut lost = Vec::new();
        if result.as_ref().is_err_and(|f| f.errno == Errno::ESHUTDOWN) && self.client.addrs().is_some() {
            // Somebody shut the client out. Under its address it can do nothing any more, whatever else it is
            // at.
            out.push(Output::EndClient);
            self.client.start(out);
            lost.extend(std::mem::take(&mut self.client.jobs).into_values());
        }
        let again = result.clone();
        self.job_over(now, pool, why, result, out);
        for (why, pool) in lost {
            self.job_over(now, pool, why, again.clone(), out);
        }
        self.rbd_advance(now, out);
    }

    fn job_over(
        &mut self,
        now: Now,
        pool: Option<PoolId>,
        why: Why,
        result: Result<Found, Failed>,
        out: &mut Vec<Output>,
    ) {
        match (why, pool) {
            (Why::Rbd(why), Some(pool)) => self.rbd_over(now, pool, why, result, out),
            (Why::Rbd(_), None) => {}
            (Why::Disks(run), _) => self.disks_step(now, run, result, out),
        }
    }
}
