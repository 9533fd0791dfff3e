//! Background work on images, the service that Ceph's module `rbd_support` is: tasks, the schedules by which
//! trash is emptied, and how much each image is used.
//!
//! The core decides; a client of the cluster does it ([`Job`]), and is started when there is something to do.
//!
//! Invariants:
//! 1. Nothing is done before the monitors' map of managers names the client: from then on it is shut out
//!    together with this manager when another one takes its place, and two never work on one image.
//! 2. Tasks are taken and shown when it is known what all pools keep.
//! 3. Commands that change the queue are carried out one after the other, so that none is taken twice.
//! 4. Jobs under way are bounded, and so are commands that wait.
//!
//! Source: src/pybind/mgr/rbd_support (16.2).

mod commands;
pub mod job;
pub(crate) mod perf;
pub(crate) mod schedule;
pub(crate) mod task;
pub(crate) mod text;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use maps::{MgrMap, OsdMap};
use types::{AddrVec, ConnId, Errno, Now, PoolId};

use crate::core::Manager;
use crate::io::Output;
pub(crate) use commands::{Ask, MODULE, Rights};
use commands::{Asker, Step};
use job::{Failed, Found, Job, Space};
use perf::Perf;
use schedule::Schedules;
use task::{After, News, Tasks};

/// Name, type and default of each option of the module. Source: Module.MODULE_OPTIONS.
pub(crate) const OPTIONS: [(&str, &str, &str); 3] = [
    ("max_concurrent_snap_create", "int", "10"),
    ("mirror_snapshot_schedule", "str", ""),
    ("trash_purge_schedule", "str", ""),
];

/// After a failure to reach the cluster, or to read what a pool keeps.
const AGAIN: Duration = Duration::from_secs(5);
/// Jobs that are not answered.
const MAX_JOBS: usize = 256;
/// Commands that wait for those before them.
const MAX_ASKED: usize = 64;

/// The client that does what is decided here.
#[derive(Debug, Clone, PartialEq, Default)]
enum Client {
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

/// What a job was for.
#[derive(Debug, Clone, PartialEq)]
enum Why {
    /// The tasks of a pool.
    Tasks(PoolId),
    /// For the command that is being carried out.
    Command,
    /// A task is done.
    Task,
    /// Its key is removed.
    Forgotten,
    Names(Space),
    Schedules(PoolId),
    Namespaces(PoolId),
    Purge(Space),
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Rbd {
    pub tasks: Tasks,
    pub perf: Perf,
    pub schedules: Schedules,
    client: Client,
    /// Those that are not answered.
    jobs: BTreeMap<u64, Why>,
    /// Those of them that wait for the client.
    waiting: VecDeque<(u64, Job)>,
    last_job: u64,
    /// Pools of which it is not known what they keep; `None` before they are looked for.
    unread: Option<BTreeSet<PoolId>>,
    /// When those are asked again that failed.
    read_at: Duration,
    asked: VecDeque<Asker>,
    current: Option<(Asker, Step)>,
}

impl Rbd {
    /// Whether it is known what all pools keep.
    fn is_loaded(&self) -> bool {
        self.unread.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Under which number a job is handed out; `None` while there are too many.
    fn submit(&mut self, job: Job, why: Why, out: &mut Vec<Output>) -> Option<u64> {
        if self.jobs.len() >= MAX_JOBS {
            return None;
        }
        self.last_job += 1;
        let id = self.last_job;
        self.jobs.insert(id, why);
        match self.client {
            Client::Ready(_) => out.push(Output::Image { id, job }),
            Client::None => {
                self.waiting.push_back((id, job));
                self.client = Client::Starts;
                out.push(Output::StartClient);
            }
            _ => self.waiting.push_back((id, job)),
        }
        Some(id)
    }

    /// Addresses of the client that the monitors are to know.
    pub fn client_addrs(&self) -> Option<&AddrVec> {
        match &self.client {
            Client::Told(addrs) | Client::Ready(addrs) => Some(addrs),
            _ => None,
        }
    }

    /// Another manager is in charge: what is under way ends, and nothing is known any more.
    pub fn forget_all(&mut self, out: &mut Vec<Output>) {
        let last_job = self.last_job;
        if self.client != Client::None {
            out.push(Output::EndClient);
        }
        *self = Self { last_job, ..Self::default() };
    }

    /// A client of this manager's left.
    pub fn forget(&mut self, conn: ConnId) {
        self.asked.retain(|a| a.to.conn() != Some(conn));
    }

    /// Whether there is a job for the same.
    fn is_under_way(&self, why: &Why) -> bool {
        self.jobs.values().any(|w| w == why)
    }
}

/// The pools whose images Ceph's module looks after. Source: get_rbd_pools.
pub(crate) fn pools(map: &OsdMap) -> impl Iterator<Item = PoolId> + '_ {
    map.pools.iter().filter(|(_, p)| p.application_metadata.contains_key("rbd")).map(|(id, _)| *id)
}

impl Manager {
    pub(crate) fn tick_rbd(&mut self, now: Now, out: &mut Vec<Output>) {
        if let Client::Failed(again) = self.rbd.client {
            if now.mono >= again {
                self.rbd.client = Client::Starts;
                out.push(Output::StartClient);
            }
        }
        self.read_tasks(now, out);
        self.rbd_advance(now, out);
        self.tick_schedules(now, out);
        self.tick_perf(now, out);
    }

    /// Asks for what pools keep of which that is not known.
    fn read_tasks(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = &self.map else { return };
        let rbd = &mut self.rbd;
        let unread = rbd.unread.get_or_insert_with(|| pools(map).collect());
        unread.retain(|pool| map.pools.contains_key(pool));
        if now.mono < rbd.read_at {
            return;
        }
        let ask: Vec<PoolId> = unread.iter().copied().collect();
        for pool in ask.into_iter().filter(|pool| !rbd.is_under_way(&Why::Tasks(*pool))).collect::<Vec<_>>() {
            rbd.submit(Job::Load { pool, object: task::OBJECT }, Why::Tasks(pool), out);
        }
    }

    /// The client is there, or could not be started.
    pub(crate) fn rbd_client(&mut self, now: Now, started: Result<AddrVec, String>, out: &mut Vec<Output>) {
        if self.rbd.client != Client::Starts {
            // Somebody else came into charge meanwhile.
            return;
        }
        match started {
            Ok(addrs) => {
                self.rbd.client = Client::Told(addrs);
                self.beacon(now, out);
            }
            Err(why) => {
                out.push(Output::Warn(format!("images cannot be looked after: {why}")));
                self.rbd.client = Client::Failed(now.mono + AGAIN);
            }
        }
    }

    /// Lets the client do what waits for it, once the monitors know it.
    pub(crate) fn rbd_map(&mut self, map: &MgrMap, out: &mut Vec<Output>) {
        let Client::Told(addrs) = &self.rbd.client else { return };
        let socket = |a: &AddrVec| a.0.iter().map(|a| (a.socket, a.nonce)).collect::<Vec<_>>();
        if self.confirmed && map.clients.iter().any(|c| socket(&c.addrs) == socket(addrs)) {
            self.rbd.client = Client::Ready(addrs.clone());
            let waiting = std::mem::take(&mut self.rbd.waiting);
            out.extend(waiting.into_iter().map(|(id, job)| Output::Image { id, job }));
        }
    }

    pub(crate) fn rbd_progress(&mut self, now: Now, id: u64, done: u64, of: u64) {
        if self.rbd.jobs.get(&id) != Some(&Why::Task) || of == 0 {
            return;
        }
        let news = self.rbd.tasks.progress(now, done as f64 / of as f64);
        self.tell_of_tasks(now, news);
    }

    pub(crate) fn rbd_done(
        &mut self,
        now: Now,
        id: u64,
        result: Result<Found, Failed>,
        out: &mut Vec<Output>,
    ) {
        let Some(why) = self.rbd.jobs.remove(&id) else { return };
        let mut lost = Vec::new();
        if result.as_ref().is_err_and(|f| f.errno == Errno::ESHUTDOWN) && self.rbd.client_addrs().is_some() {
            // Somebody shut the client out. Under its address it can do nothing any more, whatever else it is
            // at.
            self.rbd.client = Client::Starts;
            out.extend([Output::EndClient, Output::StartClient]);
            lost.extend(std::mem::take(&mut self.rbd.jobs).into_values());
        }
        let again = result.clone();
        self.job_over(now, why, result, out);
        for why in lost {
            self.job_over(now, why, again.clone(), out);
        }
        self.rbd_advance(now, out);
    }

    fn job_over(&mut self, now: Now, why: Why, result: Result<Found, Failed>, out: &mut Vec<Output>) {
        match why {
            Why::Tasks(pool) => self.tasks_read(now, pool, result, out),
            Why::Command => self.rbd_step(now, result, out),
            Why::Task => self.task_done(now, result, out),
            // A key that stayed is removed when its task is found done.
            Why::Forgotten => {}
            Why::Names(space) => self.rbd.perf.named(&space, result),
            Why::Schedules(pool) => {
                if let Some(said) = self.rbd.schedules.loaded(self.map.as_ref(), pool, result) {
                    self.rbd.read_at = now.mono + AGAIN;
                    out.push(Output::Warn(said));
                }
            }
            Why::Namespaces(pool) => self.rbd.schedules.spaces_known(now, pool, result),
            Why::Purge(space) => out.extend(self.rbd.schedules.purged(now, space, &result).map(Output::Warn)),
        }
    }

    fn tasks_read(&mut self, now: Now, pool: PoolId, result: Result<Found, Failed>, out: &mut Vec<Output>) {
        let keys = match result {
            Ok(Found::Keys(keys)) => keys,
            Err(failed) if failed.errno != Errno::ENOENT => {
                out.push(Output::Warn(format!(
                    "tasks on images of pool {pool} cannot be read: {}",
                    failed.why
                )));
                self.rbd.read_at = now.mono + AGAIN;
                return;
            }
            _ => BTreeMap::new(),
        };
        let text = |(key, value): (bytes::Bytes, bytes::Bytes)| {
            (String::from_utf8_lossy(&key).into_owned(), value.to_vec())
        };
        let said = self.rbd.tasks.load(pool, keys.into_values().flatten().map(text));
        out.extend(said.into_iter().map(Output::Warn));
        if let Some(unread) = &mut self.rbd.unread {
            unread.remove(&pool);
        }
    }

    /// Goes on with the commands that wait, and with the tasks.
    pub(crate) fn rbd_advance(&mut self, now: Now, out: &mut Vec<Output>) {
        if !self.rbd.is_loaded() || !self.acts() {
            return;
        }
        while self.rbd.current.is_none() {
            let Some(asker) = self.rbd.asked.pop_front() else { break };
            self.rbd_begin(now, asker, out);
        }
        while let Some(task) = self.rbd.tasks.begin(now) {
            let (work, refs) = (task.work(), task.refs.clone());
            let space = self.space(&refs.pool, &refs.namespace);
            match (space, work) {
                (Some(space), Ok(work)) => {
                    let job = Job::Work { space, work };
                    if self.rbd.submit(job, Why::Task, out).is_some() {
                        return;
                    }
                    let why = "too much is under way".to_owned();
                    self.task_done(now, Err(Failed { errno: Errno::EAGAIN, why }), out);
                }
                (None, _) => self.task_done(now, Ok(Found::Nothing), out),
                (_, Err(failed)) => self.task_done(now, Err(failed), out),
            }
        }
    }

    pub(crate) fn space(&self, pool: &str, namespace: &str) -> Option<Space> {
        let pool = self.map.as_ref()?.pool_by_name(pool)?;
        Some(Space { pool, namespace: namespace.to_owned() })
    }

    fn task_done(&mut self, now: Now, result: Result<Found, Failed>, out: &mut Vec<Output>) {
        let refs = self.rbd.tasks.running().map(|t| (t.refs.pool.clone(), t.refs.namespace.clone()));
        let space = refs.and_then(|(pool, namespace)| self.space(&pool, &namespace));
        let Some((after, news)) = self.rbd.tasks.end(now, space, result.map(drop)) else { return };
        self.tell_of_tasks(now, news);
        if let After::Forget(space, key) = after {
            let job = Job::Keep { space, object: task::OBJECT, key, value: None };
            self.rbd.submit(job, Why::Forgotten, out);
        }
    }

    fn tell_of_tasks(&mut self, now: Now, news: impl IntoIterator<Item = News>) {
        for News { id, message, refs, done, over } in news {
            self.progress.told(now, &id, message, refs, done);
            if let Some(failed) = over {
                self.progress.told_over(now, &id, failed);
            }
        }
    }
}
