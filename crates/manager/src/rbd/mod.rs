//! Background work on images, the service that Ceph's module `rbd_support` is: tasks, the schedules by which
//! trash is emptied, and how much each image is used.
//!
//! The core decides; the manager's client does it (`crate::client`).
//!
//! Invariants:
//! 1. Two managers never work on one image: the client is shut out together with its manager.
//! 2. Tasks of a pool are taken when it is known what it keeps. All are shown when that is known of all
//!    pools, or some have not told it for [`PATIENCE`].
//! 3. Commands that change what a pool keeps are carried out one after the other, so that no task is taken
//!    twice. Those of other pools do not wait for them.
//! 4. Jobs under way are bounded, and so are commands that wait; each pool has a share of both. Each
//!    namespace has a share of the tasks of its pool.
//! 5. One image in the trash is removed by a task or by a purge, never by both at once.
//!
//! Known faults:
//! 1. A job on a pool that does not answer ends when the pool answers, or with the client: sixteen such pools
//!    hold all tasks, and eight all purges. A wait for an image's lock alone has a bound, and ends by
//!    `cancel`. So do sixteen pools hold all tasks in which one does not end, until one of these is
//!    cancelled.
//! 2. Commands that wait for four pools which do not answer may be all that may wait.
//! 3. The parent is what the clone's header says, as in Ceph, with the manager's rights: whoever may write to
//!    a header has an image flattened from any parent, and the parent's own header says of which data pool a
//!    snapshot in the trash goes with its last clone.
//! 4. A removal that was interrupted between its entry in the trash and the image's name leaves an entry that
//!    nobody sees; it goes with the next removal that is tried, or stays if none is.
//!
//! Source: src/pybind/mgr/rbd_support (16.2).

mod commands;
mod fair;
pub(crate) mod perf;
pub(crate) mod schedule;
pub(crate) mod stats;
pub(crate) mod task;
pub(crate) mod text;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use maps::OsdMap;
use types::{ConnId, Errno, Now, PoolId};

use crate::client::Client;
use crate::core::Manager;
use crate::io::Output;
use crate::job::{Failed, Found, Job, Space};
pub(crate) use commands::{Ask, MODULE, Rights};
use commands::{Asker, Step};
use perf::Perf;
use schedule::Schedules;
use stats::Stats;
use task::{Key, News, Tasks};

/// Name, type and default of each option of the module. Source: Module.MODULE_OPTIONS.
pub(crate) const OPTIONS: [(&str, &str, &str); 3] = [
    ("max_concurrent_snap_create", "int", "10"),
    ("mirror_snapshot_schedule", "str", ""),
    ("trash_purge_schedule", "str", ""),
];

/// After a failure to read what a pool keeps.
const AGAIN: Duration = Duration::from_secs(5);
/// Commands that wait for those before them, or for what a pool keeps; for one pool; and of one session.
const MAX_ASKED: usize = 256;
const MAX_ASKED_OF_POOL: usize = 64;
const MAX_ASKED_OF_ONE: usize = 16;
/// How long a list waits for pools that do not tell what they keep.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long other commands wait for a pool.
const LONG: Duration = Duration::from_secs(30);
/// A pool that kept more than is looked at is looked at again after this, when nothing of it is left.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What a job was for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Why {
    /// The tasks of a pool.
    Tasks(PoolId),
    /// For the command of the pool that is being carried out.
    Command,
    /// A task is done.
    Task,
    /// Its key is removed.
    Forgotten(Key),
    Names(Space),
    /// The same, and the namespaces before them, for what Prometheus is told.
    StatNames(Space),
    StatSpaces(PoolId),
    Schedules(PoolId),
    Namespaces(PoolId),
    /// The schedule of a namespace that is not there is removed.
    Stale(PoolId, String),
    Purge(Space),
}

/// How far the tasks of a pool are known.
#[derive(Debug, Clone, PartialEq, Default)]
struct Kept {
    namespaces: BTreeSet<String>,
    /// Those of them that have more than is looked at, and of these the ones that are read again.
    cut: BTreeSet<String>,
    again: BTreeSet<String>,
    /// Whether there are no other namespaces.
    is_whole: bool,
}

impl Kept {
    /// Whether all tasks of a namespace are known.
    fn knows(&self, namespace: &str) -> bool {
        !self.cut.contains(namespace) && (self.is_whole || self.namespaces.contains(namespace))
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Rbd {
    pub tasks: Tasks,
    pub perf: Perf,
    pub stats: Stats,
    pub schedules: Schedules,
    /// Pools of which it is known what they keep.
    read: BTreeMap<PoolId, Kept>,
    /// Pools that are not for images, of which somebody wants something all the same.
    wanted: BTreeSet<PoolId>,
    /// When those are asked again that failed, or kept too much.
    read_at: BTreeMap<PoolId, Duration>,
    asked: VecDeque<Asker>,
    /// The command of each pool that is being carried out.
    current: BTreeMap<PoolId, (Asker, Step)>,
    /// Whether the monitors are keeping the schedule of all pools.
    pub setting: bool,
}

impl Rbd {
    /// Another manager is in charge: nothing is known any more.
    pub fn forget_all(&mut self) {
        *self = Self { schedules: self.schedules.of_all(), ..Self::default() };
    }

    /// A client of this manager's left.
    pub fn forget(&mut self, conn: ConnId) {
        self.asked.retain(|a| a.to.conn() != Some(conn));
    }

    /// Whether the pool may be asked for what it keeps.
    fn may_read(&self, now: Now, pool: PoolId) -> bool {
        self.read_at.get(&pool).is_none_or(|at| now.mono >= *at)
    }
}

/// The work on a pool's task is to end; whether it is over by that.
fn stop(client: &mut Client, pool: PoolId, out: &mut Vec<Output>) -> bool {
    let id = client.of_rbd().find(|(_, why, of)| **why == Why::Task && *of == pool).map(|(id, ..)| id);
    id.is_some_and(|id| client.cancel(id, out))
}

fn removes_stale(client: &Client, pool: PoolId) -> bool {
    client.of_rbd().any(|(_, why, of)| of == pool && matches!(why, Why::Stale(..)))
}

/// Trash that is being emptied.
fn purged(client: &Client) -> BTreeSet<Space> {
    let purged = client.of_rbd().filter_map(|(_, why, _)| match why {
        Why::Purge(space) => Some(space.clone()),
        _ => None,
    });
    purged.collect()
}

/// The pools whose images Ceph's module looks after. Source: get_rbd_pools.
pub(crate) fn pools(map: &OsdMap) -> impl Iterator<Item = PoolId> + '_ {
    map.pools.iter().filter(|(_, p)| p.application_metadata.contains_key("rbd")).map(|(id, _)| *id)
}

impl Manager {
    pub(crate) fn tick_rbd(&mut self, now: Now, out: &mut Vec<Output>) {
        self.follow_pools(now);
        self.read_tasks(now, out);
        self.rbd_advance(now, out);
        self.tick_schedules(now, out);
        self.tick_perf(now, out);
        self.tick_image_stats(now, out);
    }

    /// Asks for what pools keep of which that is not known.
    fn read_tasks(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = &self.map else { return };
        let (rbd, client) = (&mut self.rbd, &mut self.client);
        let unread = pools(map).chain(rbd.wanted.iter().copied()).filter(|pool| !rbd.read.contains_key(pool));
        let cut = rbd.read.iter().filter(|(_, kept)| !kept.cut.is_empty()).map(|(pool, _)| *pool);
        let ask =
            unread.chain(cut).filter(|p| rbd.may_read(now, *p) && !client.is_under_way(&Why::Tasks(*p)));
        for pool in ask.collect::<BTreeSet<PoolId>>() {
            if let Some(kept) = rbd.read.get_mut(&pool) {
                // Of what was too much something may be left that was not looked at. Nothing comes to it
                // before that is known.
                let space = |namespace: &String| Space { pool, namespace: namespace.clone() };
                kept.again = kept.cut.iter().filter(|n| !rbd.tasks.has_of(&space(n))).cloned().collect();
                if kept.again.is_empty() {
                    continue;
                }
            }
            let (object, most) = (task::OBJECT, task::MAX_OF_POOL);
            client.submit(Job::Load { pool, object, most, with_namespaces: true }, Why::Tasks(pool), out);
        }
    }

    /// Nothing is kept of pools that are gone.
    fn follow_pools(&mut self, now: Now) {
        let Some(map) = &self.map else { return };
        let is_there = |pool: &PoolId| map.pools.contains_key(pool);
        let rbd = &mut self.rbd;
        rbd.read.retain(|pool, _| is_there(pool));
        rbd.wanted.retain(is_there);
        rbd.read_at.retain(|pool, _| is_there(pool));
        let news = rbd.tasks.keep_pools(now, |pool| is_there(&pool));
        self.tell_of_tasks(now, news);
    }

    /// Pools of images of which it is not known what they keep.
    fn has_unread(&self) -> bool {
        self.map.as_ref().is_none_or(|map| pools(map).any(|pool| !self.rbd.read.contains_key(&pool)))
    }

    pub(crate) fn rbd_progress(&mut self, now: Now, pool: PoolId, done: f64) {
        let news = self.rbd.tasks.progress(now, pool, done);
        self.tell_of_tasks(now, news);
    }

    /// A job is over.
    pub(crate) fn rbd_over(
        &mut self,
        now: Now,
        pool: PoolId,
        why: Why,
        result: Result<Found, Failed>,
        out: &mut Vec<Output>,
    ) {
        match why {
            Why::Tasks(pool) => self.tasks_read(now, pool, result, out),
            Why::Command => self.rbd_step(now, pool, result, out),
            Why::Task => self.task_done(now, pool, result),
            Why::Forgotten(key) => {
                let said = self.rbd.tasks.forgotten(now, &key, &result.map(drop));
                out.extend(said.map(Output::Warn));
            }
            Why::Names(space) => self.rbd.perf.named(&space, result),
            Why::StatNames(space) => out.extend(self.rbd.stats.named(now, &space, result).map(Output::Warn)),
            Why::StatSpaces(pool) => self.rbd.stats.spaces_known(now, pool, result),
            Why::Schedules(pool) => {
                if let Some(said) = self.rbd.schedules.loaded(self.map.as_ref(), pool, result) {
                    if !self.rbd.schedules.is_read(pool) {
                        self.rbd.read_at.insert(pool, now.mono + AGAIN);
                    }
                    out.push(Output::Warn(said));
                }
            }
            Why::Namespaces(pool) => self.rbd.schedules.spaces_known(now, pool, result),
            Why::Stale(_, id) => self.rbd.schedules.stale_gone(now, &id, result.is_ok()),
            Why::Purge(space) => out.extend(self.rbd.schedules.purged(now, space, &result).map(Output::Warn)),
        }
    }

    fn tasks_read(&mut self, now: Now, pool: PoolId, result: Result<Found, Failed>, out: &mut Vec<Output>) {
        let (keys, cut, is_whole) = match result {
            Ok(Found::Keys { keys, cut, is_whole }) => (keys, cut, is_whole),
            Err(failed) if failed.errno != Errno::ENOENT => {
                out.push(Output::Warn(format!(
                    "tasks on images of pool {pool} cannot be read: {}",
                    failed.why
                )));
                self.rbd.read_at.insert(pool, now.mono + AGAIN);
                return;
            }
            _ => (BTreeMap::new(), BTreeSet::new(), true),
        };
        let Some(name) = self.map.as_ref().and_then(|map| map.pool_name(pool)) else { return };
        let before = self.rbd.read.remove(&pool);
        let mut kept = Kept { is_whole, ..Kept::default() };
        kept.cut.extend(before.iter().flat_map(|b| b.cut.difference(&b.again)).cloned());
        self.rbd.tasks.spaces_known(pool, keys.len());
        let mut said = None;
        for (namespace, keys) in &keys {
            kept.namespaces.insert(namespace.clone());
            if before.as_ref().is_some_and(|b| !b.again.contains(namespace)) {
                // What is known has changed since then.
                continue;
            }
            let space = Space { pool, namespace: namespace.clone() };
            let (is_all, line) = self.rbd.tasks.load(&space, name, keys);
            said = line.or(said);
            if !is_all || cut.contains(namespace) {
                kept.cut.insert(namespace.clone());
            }
        }
        if !kept.cut.is_empty() || !is_whole {
            said = Some(format!("pool {pool} has more tasks on images than are looked at"));
            self.rbd.read_at.insert(pool, now.mono + LOOK_AGAIN);
        }
        out.extend(said.map(Output::Warn));
        self.rbd.read.insert(pool, kept);
    }

    /// Goes on with the commands that wait, and with the tasks.
    pub(crate) fn rbd_advance(&mut self, now: Now, out: &mut Vec<Output>) {
        if !self.acts() {
            return;
        }
        for asker in std::mem::take(&mut self.rbd.asked) {
            if let Some(asker) = self.rbd_begin(now, asker, out) {
                self.rbd.asked.push_back(asker);
            }
        }
        for (pool, key) in self.rbd.tasks.to_forget(now) {
            let is_busy = |(_, why, of): (u64, &Why, PoolId)| of == pool && matches!(why, Why::Forgotten(_));
            if !self.client.of_rbd().any(is_busy) {
                let (space, text) = (key.1.clone(), task::key_text(key.0));
                let job = Job::Keep { space, object: task::OBJECT, key: text, value: None };
                self.client.submit(job, Why::Forgotten(key), out);
            }
        }
        let purged = purged(&self.client);
        while let Some(task) = self.rbd.tasks.begin(now, &purged) {
            let (work, space, name) = (task.work(), task.space.clone(), task.refs.pool.clone());
            let pool = space.pool;
            let refused = |errno, why: &str| Err(Failed { errno, why: why.to_owned() });
            let result = match work {
                Err(failed) => Err(failed),
                Ok(_) if !self.is_named(pool, &name) => {
                    refused(Errno::EAGAIN, "the pool has another name by now")
                }
                Ok(work) => match self.client.submit(Job::Work { space, work }, Why::Task, out) {
                    Some(_) => continue,
                    None => refused(Errno::EAGAIN, "too much is under way"),
                },
            };
            self.task_done(now, pool, result);
        }
    }

    fn is_named(&self, pool: PoolId, name: &str) -> bool {
        self.map.as_ref().and_then(|map| map.pool_name(pool)) == Some(name)
    }

    pub(crate) fn space(&self, pool: &str, namespace: &str) -> Option<Space> {
        let pool = self.map.as_ref()?.pool_by_name(pool)?;
        Some(Space { pool, namespace: namespace.to_owned() })
    }

    fn task_done(&mut self, now: Now, pool: PoolId, result: Result<Found, Failed>) {
        let is_there = self.map.as_ref().is_some_and(|map| map.pools.contains_key(&pool));
        let news = self.rbd.tasks.end(now, pool, is_there, &result.map(drop));
        self.tell_of_tasks(now, news);
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
