//! Tasks on images: their queue as the pools keep it, and the forms in which Ceph's module shows it.
//!
//! A task is a key of the object `rbd_task` in the pool and namespace of its image: its number in 16
//! hexadecimal digits, and JSON.
//!
//! Invariants:
//! 1. A task is in the queue when its key is kept, and until what it does is over; only then the key goes. A
//!    cancelled one leaves the queue when its key is gone.
//! 2. Keys whose tasks are over are removed until that succeeds, or another manager is in charge.
//! 3. Numbers grow over all pools, whatever is kept that is no task or has an absurd one: no key that was
//!    found is written over.
//! 4. A task is for images of the pool and namespace that keep it, and for the image of its id alone.
//!
//! Source: src/pybind/mgr/rbd_support/task.py (16.2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use types::{Errno, Now, PoolId, Utime};

use super::text::{self, Spec};
use crate::job::{Failed, ImageFacts, Space, Work, share};
use crate::text::iso;

pub(crate) const OBJECT: &str = "rbd_task";

const RETRY: Duration = Duration::from_secs(30);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// Remembered, so that a command that is sent again gives the same task.
const MAX_COMPLETED: usize = 50;
/// Tasks that are kept in memory: more are neither taken nor read. And of one pool, of which its namespaces
/// have shares.
const MAX_TASKS: usize = 16_384;
pub(crate) const MAX_OF_POOL: usize = 1_024;
/// Bytes of a task as a pool keeps it, and of its id.
const MAX_BYTES: usize = 4_096;
const MAX_ID: usize = 64;
/// What a pool keeps with a higher number is none: numbers never end.
const MAX_SEQUENCE: u64 = 1 << 62;
/// Others go on without regard to tasks that have higher ones.
const SHARED_SEQUENCE: u64 = 1 << 53;
/// Tasks are done one after the other, but those of other pools go on beside one that was begun so long ago,
/// however far it has come; so many at most.
const TURN: Duration = Duration::from_secs(60);
const MAX_RUNNING: usize = 16;
/// Keys whose removal failed are removed again after this, and later each time.
const FORGET_AGAIN: Duration = Duration::from_secs(5);
const FORGET_AGAIN_MAX: Duration = Duration::from_secs(60);

const NO_MIGRATION: &str = "a manager of Loligo does not migrate images";

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Flatten,
    Remove,
    TrashRemove,
    MigrationExecute,
    MigrationCommit,
    MigrationAbort,
}

impl Action {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Flatten, "flatten"),
        (Self::Remove, "remove"),
        (Self::TrashRemove, "trash remove"),
        (Self::MigrationExecute, "migrate execute"),
        (Self::MigrationCommit, "migrate commit"),
        (Self::MigrationAbort, "migrate abort"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(action, _)| *action == self).map_or("", |(_, name)| name)
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, n)| *n == name).map(|(action, _)| *action)
    }
}

/// Which image a task is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refs {
    pub action: Action,
    pub pool: String,
    pub namespace: String,
    pub image: Option<String>,
    pub id: Option<String>,
}

impl Refs {
    pub fn new(action: Action, spec: Spec) -> Self {
        let Spec { pool, namespace, image } = spec;
        let (image, id) =
            if action == Action::TrashRemove { (None, Some(image)) } else { (Some(image), None) };
        Self { action, pool, namespace, image, id }
    }

    fn value(&self) -> Value {
        let mut value = json!({
            "action": self.action.name(),
            "pool_name": self.pool,
            "pool_namespace": self.namespace,
        });
        if let Value::Object(members) = &mut value {
            let parts = [("image_name", &self.image), ("image_id", &self.id)];
            members.extend(parts.iter().filter_map(|(k, v)| Some(((*k).to_owned(), json!(v.as_ref()?)))));
        }
        value
    }

    /// Of the events of progress.
    fn shown(&self) -> Value {
        let mut value = json!({ "origin": "rbd_support" });
        if let (Value::Object(to), Value::Object(from)) = (&mut value, self.value()) {
            to.extend(from);
        }
        value
    }

    /// How people name the image.
    fn image_spec(&self) -> String {
        let name = self.image.as_ref().or(self.id.as_ref());
        text::image_spec(&self.pool, &self.namespace, name.map_or("", String::as_str))
    }

    /// Whether a task with these is the one that is asked for by `wanted`: what does not know an image's id
    /// is of any.
    fn is_for(&self, wanted: &Self) -> bool {
        *self == *wanted || wanted.id.is_none() && Self { id: None, ..self.clone() } == *wanted
    }

    /// Whether it says which image it is for; migrations are not done here.
    fn is_whole(&self) -> bool {
        match self.action {
            Action::Flatten | Action::Remove => self.image.is_some() && self.id.is_some(),
            Action::TrashRemove => self.id.is_some(),
            _ => true,
        }
    }

    /// What is told of a new task, when the image as it was found lets it be done.
    pub fn message(&self, found: &Result<ImageFacts, Failed>) -> Result<String, Failed> {
        let spec = self.image_spec();
        let not_found = |what: &str| {
            let why = text::error(Errno::ENOENT, &format!("Image {spec} {what}"));
            Failed { errno: Errno::ENOENT, why }
        };
        let facts = match found {
            Ok(facts) => facts,
            Err(failed) if failed.errno != Errno::ENOENT => return Err(failed.clone()),
            Err(_) if self.action == Action::TrashRemove => {
                let why = text::error(Errno::ENOENT, "error retrieving image from trash");
                return Err(Failed { errno: Errno::ENOENT, why });
            }
            Err(_) if self.action == Action::Flatten || self.action == Action::Remove => {
                return Err(not_found("does not exist"));
            }
            Err(_) => &ImageFacts::default(),
        };
        if let (Some(why), Action::Flatten | Action::Remove) = (&facts.unfit, self.action) {
            return Err(Failed { errno: Errno::EOPNOTSUPP, why: format!("Image {spec} {why}") });
        }
        match self.action {
            Action::Flatten if !facts.has_parent => Err(not_found("does not have a parent")),
            Action::Flatten => Ok(format!("Flattening image {spec}")),
            Action::Remove if facts.has_snapshots => {
                let why = text::error(Errno::EBUSY, &format!("Image {spec} has snapshots"));
                Err(Failed { errno: Errno::EBUSY, why })
            }
            Action::Remove => Ok(format!("Removing image {spec}")),
            Action::TrashRemove => Ok(format!("Removing image {spec} from trash")),
            _ if !facts.is_migrating => {
                let why = text::error(Errno::EINVAL, &format!("Image {spec} is not migrating"));
                Err(Failed { errno: Errno::EINVAL, why })
            }
            _ => Err(Failed { errno: Errno::EOPNOTSUPP, why: NO_MIGRATION.to_owned() }),
        }
    }
}

/// By what a task is known here: its number, and where it is kept.
pub(crate) type Key = (u64, Space);

/// A number as the key of the object.
pub(crate) fn key_text(sequence: u64) -> String {
    format!("{sequence:016X}")
}

/// One task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Task {
    pub sequence: u64,
    /// Where it is kept, and its image is.
    pub space: Space,
    pub id: String,
    pub message: String,
    pub refs: Refs,
    retry_message: Option<String>,
    retry_attempts: u32,
    retry_at: Option<Now>,
    in_progress: bool,
    progress: f64,
    cancelled: bool,
    /// What its event of progress was last told, and when.
    posted: Option<(f64, Duration)>,
}

impl Task {
    pub fn new(now: Now, sequence: u64, space: Space, message: String, refs: Refs) -> Self {
        // As a UUID, which Ceph's are. Whoever is in charge at another time has made another one.
        let (high, low) = (sequence >> 16 & 0xfff, sequence & 0xffff);
        let id = format!("{:08x}-{low:04x}-4{high:03x}-8000-{:012x}", now.wall.sec, now.wall.nsec);
        Self {
            sequence,
            space,
            id,
            message,
            refs,
            retry_message: None,
            retry_attempts: 0,
            retry_at: None,
            in_progress: false,
            progress: 0.0,
            cancelled: false,
            posted: None,
        }
    }

    /// One that is kept in a space, under this key, in the pool of this name; `None` where it is none that is
    /// known, or is for another place: whoever may write to one pool has no say in others.
    fn read(space: &Space, pool_name: &str, key: &[u8], value: &[u8]) -> Option<Self> {
        if value.len() > MAX_BYTES {
            return None;
        }
        let v: Value = serde_json::from_slice(value).ok()?;
        let refs = v.get("refs")?;
        let text = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
        let refs = Refs {
            action: Action::parse(&text(refs, "action")?)?,
            pool: text(refs, "pool_name")?,
            namespace: text(refs, "pool_namespace").unwrap_or_default(),
            image: text(refs, "image_name"),
            id: text(refs, "image_id"),
        };
        let now = Now { mono: Duration::ZERO, wall: Utime::ZERO };
        let task = Self::new(now, v.get("sequence")?.as_u64()?, space.clone(), text(&v, "message")?, refs);
        let task = Self { id: text(&v, "id")?, ..task };
        let is_here = task.refs.pool == pool_name && task.refs.namespace == space.namespace;
        let is_its_key = task.sequence <= MAX_SEQUENCE && key_text(task.sequence).as_bytes() == key;
        let is_odd = |c: char| c == '/' || c.is_control();
        let is_id = (1..=MAX_ID).contains(&task.id.len()) && !task.id.contains(is_odd);
        (is_here && is_its_key && is_id && task.refs.is_whole()).then_some(task)
    }

    /// Whether what is kept of it is read again.
    pub fn may_be_kept(&self) -> bool {
        self.text().len() <= MAX_BYTES
    }

    /// The pool and the namespace as people name them.
    fn place(&self) -> String {
        match self.space.namespace.as_str() {
            "" => self.refs.pool.clone(),
            namespace => format!("{}/{namespace}", self.refs.pool),
        }
    }

    /// Whether it is meant by an id, which may stand behind the task's place.
    fn is_called(&self, id: &str) -> bool {
        match id.rsplit_once('/') {
            Some((place, id)) => self.id == id && self.place() == place,
            None => self.id == id,
        }
    }

    pub fn key(&self) -> Key {
        (self.sequence, self.space.clone())
    }

    fn value(&self) -> Value {
        let mut value = json!({
            "sequence": self.sequence,
            "id": self.id,
            "message": self.message,
            "refs": self.refs.value(),
        });
        let mut add = |name: &str, what: Value| {
            if let Value::Object(members) = &mut value {
                members.insert(name.to_owned(), what);
            }
        };
        if let Some(why) = &self.retry_message {
            add("retry_message", json!(why));
        }
        if self.retry_attempts > 0 {
            add("retry_attempts", json!(self.retry_attempts));
        }
        if let Some(at) = self.retry_at {
            add("retry_time", json!(iso(at.wall)));
        }
        if self.in_progress {
            add("in_progress", json!(true));
            add("progress", json!(self.progress));
        }
        if self.cancelled {
            add("canceled", json!(true));
        }
        value
    }

    /// As it is kept, and as whoever asked for it is told of it.
    pub fn text(&self) -> String {
        text::python(&self.value())
    }

    /// What is to be done for it; a refusal where that is none of ours.
    pub fn work(&self) -> Result<Work, Failed> {
        let image = self.refs.image.clone().unwrap_or_default();
        let id = self.refs.id.clone().unwrap_or_default();
        match self.refs.action {
            Action::Flatten => Ok(Work::Flatten { image, id }),
            Action::Remove => Ok(Work::Remove { image, id }),
            Action::TrashRemove => Ok(Work::TrashRemove { id }),
            _ => Err(Failed { errno: Errno::EOPNOTSUPP, why: NO_MIGRATION.to_owned() }),
        }
    }

    /// Why a failure is the task's end, in the words of its event; `None` where it is tried again.
    fn final_words(&self, failed: &Failed) -> Option<&'static str> {
        match (failed.errno, self.refs.action) {
            (Errno::ENOENT, _) => Some("Image does not exist"),
            (Errno::EINVAL, Action::Flatten) => Some("Image does not have parent"),
            _ => None,
        }
    }
}

/// What the event of progress of a task is told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct News {
    pub id: String,
    pub message: String,
    pub refs: Value,
    pub done: f64,
    /// It is over, and why it has failed if it has.
    pub over: Option<Option<String>>,
}

/// A key that is to be removed.
#[derive(Debug, Clone, PartialEq)]
struct Forget {
    at: Duration,
    attempts: u32,
}

/// A task that is under way.
#[derive(Debug, Clone, PartialEq)]
struct Running {
    key: Key,
    began: Duration,
}

/// The queue.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Tasks {
    queue: BTreeMap<Key, Task>,
    completed: VecDeque<Task>,
    /// The last number over all pools.
    sequence: u64,
    /// Numbers of keys that are no tasks.
    taken: BTreeMap<Space, BTreeSet<u64>>,
    /// How many namespaces each pool has, itself among them.
    spaces: BTreeMap<PoolId, usize>,
    /// One of a pool at most.
    running: BTreeMap<PoolId, Running>,
    /// Keys of tasks that are over or cancelled.
    forgetting: BTreeMap<Key, Forget>,
}

impl Tasks {
    /// How many namespaces share what a pool may have.
    pub fn spaces_known(&mut self, pool: PoolId, namespaces: usize) {
        self.spaces.insert(pool, namespaces);
    }

    /// Takes what a space keeps, in the pool of this name: whether all of it is taken, and a line for the log
    /// where some of that is none.
    pub fn load<'a>(
        &mut self,
        space: &Space,
        pool_name: &str,
        keys: impl IntoIterator<Item = (&'a Bytes, &'a Bytes)>,
    ) -> (bool, Option<String>) {
        let (mut said, mut is_whole) = (None, true);
        let (mut taken, mut room) = (BTreeSet::new(), self.room(space));
        for (key, value) in keys {
            match Task::read(space, pool_name, key, value) {
                // What is over by now was read before that was kept.
                Some(task) if self.forgetting.contains_key(&task.key()) => {}
                Some(task) if room > 0 => {
                    room -= 1;
                    if task.sequence <= SHARED_SEQUENCE {
                        self.sequence = self.sequence.max(task.sequence);
                    }
                    self.queue.entry(task.key()).or_insert(task);
                }
                Some(_) => is_whole = false,
                None => {
                    taken.extend(std::str::from_utf8(key).ok().and_then(|k| u64::from_str_radix(k, 16).ok()));
                    let key = String::from_utf8_lossy(key.get(..MAX_ID).unwrap_or(key)).into_owned();
                    said.get_or_insert(format!(
                        "the task {} on an image of pool {} is none, or is not for images of this place",
                        types::printable(&key),
                        space.pool
                    ));
                }
            }
        }
        self.taken.insert(space.clone(), taken);
        (is_whole, said)
    }

    /// How many further tasks a space may have.
    fn room(&self, space: &Space) -> usize {
        let keys = || self.queue.keys().chain(self.forgetting.keys());
        let of_pool = keys().filter(|(_, s)| s.pool == space.pool).count();
        let of_space = keys().filter(|(_, s)| s == space).count();
        let share = share(MAX_OF_POOL, self.spaces.get(&space.pool).copied().unwrap_or(1));
        let left = [(MAX_TASKS, keys().count()), (4 * MAX_OF_POOL, of_pool), (share, of_space)];
        left.iter().map(|(most, have)| most.saturating_sub(*have)).min().unwrap_or(0)
    }

    /// The one that is asked for already, or was done of late.
    pub fn find(&self, space: &Space, refs: &Refs) -> Option<&Task> {
        let is_it = |t: &&Task| t.space == *space && !t.cancelled && t.refs.is_for(refs);
        let mut all: Vec<&Task> = self.queue.values().filter(is_it).collect();
        all.sort_by(|a, b| b.id.cmp(&a.id));
        all.first().copied().or_else(|| self.completed.iter().rev().find(is_it))
    }

    /// A new one, which counts when it is kept.
    pub fn make(&mut self, now: Now, space: Space, message: String, refs: Refs) -> Option<Task> {
        if self.room(&space) == 0 {
            return None;
        }
        let taken = self.taken.get(&space);
        let is_free = |n: &u64| {
            let key = (*n, space.clone());
            !taken.is_some_and(|taken| taken.contains(n))
                && !self.queue.contains_key(&key)
                && !self.forgetting.contains_key(&key)
        };
        self.sequence = (self.sequence + 1..=MAX_SEQUENCE).find(is_free)?;
        Some(Task::new(now, self.sequence, space, message, refs))
    }

    pub fn add(&mut self, task: Task) {
        self.queue.insert(task.key(), task);
    }

    /// Where there are tasks of this id that `may` be seen. Of more than one somebody has made up the others:
    /// whoever may write to one place has no say in others.
    pub fn places(&self, id: &str, may: impl Fn(&Task) -> bool) -> BTreeSet<String> {
        self.queue.values().filter(|task| task.is_called(id) && may(task)).map(Task::place).collect()
    }

    /// The first one of this id that `may` be seen.
    pub fn get(&self, id: &str, may: impl Fn(&Task) -> bool) -> Option<&Task> {
        self.queue.values().find(|task| task.is_called(id) && may(task))
    }

    /// All that `may` be seen, or the one of this id.
    pub fn show(&self, id: Option<&str>, may: impl Fn(&Task) -> bool) -> Option<Value> {
        match id.filter(|id| !id.is_empty()) {
            Some(id) => self.get(id, may).map(Task::value),
            None => Some(self.queue.values().filter(|t| may(t)).map(Task::value).collect()),
        }
    }

    pub fn has_of(&self, space: &Space) -> bool {
        self.queue.keys().chain(self.forgetting.keys()).any(|(_, s)| s == space)
    }

    /// Ids of images in a space's trash that tasks are to remove.
    pub fn in_trash(&self, space: &Space) -> BTreeSet<String> {
        let of = |t: &&Task| t.space == *space && t.refs.action == Action::TrashRemove;
        self.queue.values().filter(of).filter_map(|t| t.refs.id.clone()).collect()
    }

    /// Marks one for its end: whether it is under way, and has to be ended first. Its key is to be removed.
    /// Its event ends with the first time.
    pub fn cancel(&mut self, now: Now, key: &Key) -> Option<(bool, Option<News>)> {
        let task = self.queue.get_mut(key)?;
        let is_first = !std::mem::replace(&mut task.cancelled, true);
        let news = is_first.then(|| task.over(now, Some("Operation canceled".to_owned())));
        let ended = (task.in_progress, news);
        self.forget(now.mono + FORGET_AGAIN, key.clone());
        Some(ended)
    }

    /// A key is to be removed, from then on.
    pub fn forget(&mut self, at: Duration, key: Key) {
        self.forgetting.entry(key).or_insert(Forget { at, attempts: 0 });
    }

    /// One key of each pool that is to be removed by now.
    pub fn to_forget(&self, now: Now) -> BTreeMap<PoolId, Key> {
        let due = self.forgetting.iter().filter(|(_, f)| f.at <= now.mono);
        due.map(|(key, _)| (key.1.pool, key.clone())).rev().collect()
    }

    /// A key is gone, or could not be removed; a line for the log when that is so for the first time.
    pub fn forgotten(&mut self, now: Now, key: &Key, result: &Result<(), Failed>) -> Option<String> {
        match result {
            Err(failed) if failed.errno != Errno::ENOENT => {
                let forget = self.forgetting.get_mut(key)?;
                forget.attempts = forget.attempts.saturating_add(1);
                let wait = FORGET_AGAIN.saturating_mul(forget.attempts).min(FORGET_AGAIN_MAX);
                forget.at = now.mono + wait;
                let text = || format!("a task of pool {} is over, but stays: {}", key.1.pool, failed.why);
                (forget.attempts == 1).then(text)
            }
            _ => {
                self.forgetting.remove(key);
                if self.queue.get(key).is_some_and(|t| t.cancelled && !t.in_progress) {
                    self.queue.remove(key);
                }
                None
            }
        }
    }

    /// Nothing is kept of pools that are gone, and what was to be done there is over. What is under way ends
    /// by itself.
    pub fn keep_pools(&mut self, now: Now, is_there: impl Fn(PoolId) -> bool) -> Vec<News> {
        self.forgetting.retain(|(_, space), _| is_there(space.pool));
        self.taken.retain(|space, _| is_there(space.pool));
        self.spaces.retain(|pool, _| is_there(*pool));
        let is_gone = |t: &Task| !t.in_progress && !is_there(t.space.pool);
        let gone: Vec<Key> = self.queue.iter().filter(|(_, t)| is_gone(t)).map(|(k, _)| k.clone()).collect();
        let gone = gone.iter().filter_map(|key| self.queue.remove(key));
        gone.filter(|t| !t.cancelled).map(|mut task| task.over(now, None)).collect()
    }

    /// The next one that is due is under way from now on; none that removes something from a trash that is
    /// `purged`.
    pub fn begin(&mut self, now: Now, purged: &BTreeSet<Space>) -> Option<&Task> {
        let had_turn = |r: &Running| now.mono >= r.began + TURN;
        if self.running.len() >= MAX_RUNNING || !self.running.values().all(had_turn) {
            return None;
        }
        let running = &self.running;
        let due = |t: &Task| !t.cancelled && t.retry_at.is_none_or(|at| at.mono <= now.mono);
        let waits = |t: &Task| t.refs.action == Action::TrashRemove && purged.contains(&t.space);
        let is_next = |t: &Task| due(t) && !waits(t) && !running.contains_key(&t.space.pool);
        let (key, task) = self.queue.iter_mut().find(|(_, t)| is_next(t))?;
        task.in_progress = true;
        task.progress = 0.0;
        self.running.insert(task.space.pool, Running { key: key.clone(), began: now.mono });
        Some(task)
    }

    /// How far a pool's has come; what its event is to be told, once a second.
    pub fn progress(&mut self, now: Now, pool: PoolId, done: f64) -> Option<News> {
        let running = self.running.get(&pool)?;
        let task = self.queue.get_mut(&running.key)?;
        task.progress = done.clamp(0.0, 1.0);
        let is_soon = |(_, at): (f64, Duration)| now.mono < at + Duration::from_secs(1);
        if task.cancelled || task.posted.is_some_and(is_soon) {
            return None;
        }
        Some(task.news(now, task.progress))
    }

    /// What was done for the one of a pool is over; `is_there`: the pool is.
    pub fn end(
        &mut self,
        now: Now,
        pool: PoolId,
        is_there: bool,
        result: &Result<(), Failed>,
    ) -> Option<News> {
        let key = self.running.remove(&pool)?.key;
        let task = self.queue.get_mut(&key)?;
        task.in_progress = false;
        if task.cancelled {
            // Its event is over. It stays as long as its key.
            if !self.forgetting.contains_key(&key) {
                self.queue.remove(&key);
            }
            return None;
        }
        task.retry_attempts = task.retry_attempts.saturating_add(1);
        let wait = RETRY.saturating_mul(task.retry_attempts).min(RETRY_MAX);
        task.retry_at = Some(Now { mono: now.mono + wait, wall: now.wall.plus(wait) });
        let words = match result {
            Err(failed) if is_there => match task.final_words(failed) {
                Some(words) => Some(words.to_owned()),
                None => {
                    task.retry_message = Some(text::error(failed.errno, &failed.why));
                    return task.posted.is_some().then(|| task.news(now, 0.0));
                }
            },
            _ => None,
        };
        let failed = words.is_some();
        let news = task.over(now, words);
        let task = self.queue.remove(&key)?;
        if is_there {
            self.forget(now.mono, key);
        }
        if !failed {
            self.completed.push_back(task);
            if self.completed.len() > MAX_COMPLETED {
                self.completed.pop_front();
            }
        }
        Some(news)
    }
}

impl Task {
    fn news(&mut self, now: Now, done: f64) -> News {
        self.posted = Some((done, now.mono));
        let (id, message, refs) = (self.id.clone(), self.message.clone(), self.refs.shown());
        News { id, message, refs, done, over: None }
    }

    fn over(&mut self, now: Now, why: Option<String>) -> News {
        let done = self.posted.map_or(0.0, |(done, _)| done);
        News { over: Some(why), ..self.news(now, done) }
    }
}
