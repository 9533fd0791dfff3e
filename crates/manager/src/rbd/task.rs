//! Tasks on images: their queue as the pools keep it, and the forms in which Ceph's module shows it.
//!
//! A task is a key of the object `rbd_task` in the pool and namespace of its image: its number in 16
//! hexadecimal digits, and JSON.
//!
//! Invariants:
//! 1. A task is in the queue when its key is kept, and until what it does is over; only then the key goes.
//! 2. Numbers grow, over all pools.
//!
//! Source: src/pybind/mgr/rbd_support/task.py (16.2).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};
use types::{Errno, Now, PoolId, Utime};

use super::job::{Failed, ImageFacts, Space, Work};
use super::text::{self, Spec};
use crate::text::iso;

pub(crate) const OBJECT: &str = "rbd_task";

const RETRY: Duration = Duration::from_secs(30);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// Remembered, so that a command that is sent again gives the same task.
const MAX_COMPLETED: usize = 50;
/// Tasks that are kept in memory: more are neither taken nor read.
const MAX_TASKS: usize = 16_384;

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

/// One task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Task {
    pub sequence: u64,
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
    pub fn new(now: Now, sequence: u64, message: String, refs: Refs) -> Self {
        // As a UUID, which Ceph's are. Whoever is in charge at another time has made another one.
        let (high, low) = (sequence >> 16 & 0xfff, sequence & 0xffff);
        let id = format!("{:08x}-{low:04x}-4{high:03x}-8000-{:012x}", now.wall.sec, now.wall.nsec);
        Self {
            sequence,
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

    /// One that a pool keeps; `None` where it is none that is known.
    fn read(value: &[u8]) -> Option<Self> {
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
        let task = Self::new(now, v.get("sequence")?.as_u64()?, text(&v, "message")?, refs);
        Some(Self { id: text(&v, "id")?, ..task })
    }

    pub fn key(&self) -> String {
        format!("{:016X}", self.sequence)
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
        match self.refs.action {
            Action::Flatten => Ok(Work::Flatten { image }),
            Action::Remove => Ok(Work::Remove { image }),
            Action::TrashRemove => Ok(Work::TrashRemove { id: self.refs.id.clone().unwrap_or_default() }),
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

/// What follows from the end of what was done for a task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum After {
    /// Its key is to be removed from this space.
    Forget(Space, String),
    /// It stays for another time, or is gone with its pool.
    Nothing,
}

/// The queue.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Tasks {
    /// By number, and by id: pools that were not there at the same time may have the same numbers.
    queue: BTreeMap<(u64, String), Task>,
    completed: VecDeque<Task>,
    /// The last number.
    sequence: u64,
    running: Option<(u64, String)>,
}

impl Tasks {
    /// Takes what a pool keeps; a line for the log of each that is none.
    pub fn load(&mut self, pool: PoolId, keys: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<String> {
        let mut said = Vec::new();
        for (key, value) in keys {
            match Task::read(&value) {
                Some(task) if self.queue.len() < MAX_TASKS => {
                    self.sequence = self.sequence.max(task.sequence);
                    self.queue.insert((task.sequence, task.id.clone()), task);
                }
                Some(_) => said.push(format!("pool {pool} has more tasks on images than are looked at")),
                None => said
                    .push(format!("the task {} on an image of pool {pool} is none", types::printable(&key))),
            }
        }
        said.truncate(1);
        said
    }

    /// The one that is asked for already, or was done of late.
    pub fn find(&self, refs: &Refs) -> Option<&Task> {
        let mut all: Vec<&Task> = self.queue.values().filter(|t| t.refs.is_for(refs)).collect();
        all.sort_by(|a, b| b.id.cmp(&a.id));
        all.first().copied().or_else(|| self.completed.iter().rev().find(|t| t.refs.is_for(refs)))
    }

    /// A new one, which counts when it is kept.
    pub fn make(&mut self, now: Now, message: String, refs: Refs) -> Option<Task> {
        if self.queue.len() >= MAX_TASKS {
            return None;
        }
        self.sequence += 1;
        Some(Task::new(now, self.sequence, message, refs))
    }

    pub fn add(&mut self, task: Task) {
        self.queue.insert((task.sequence, task.id.clone()), task);
    }

    pub fn get(&self, id: &str) -> Option<&Task> {
        self.queue.values().find(|task| task.id == id)
    }

    /// All that `may` be seen, or the one of this id.
    pub fn show(&self, id: Option<&str>, may: impl Fn(&Refs) -> bool) -> Option<Value> {
        let mut seen = self.queue.values().filter(|t| may(&t.refs));
        match id.filter(|id| !id.is_empty()) {
            Some(id) => seen.find(|t| t.id == id).map(Task::value),
            None => Some(seen.map(Task::value).collect()),
        }
    }

    /// Marks one for its end; true when it is under way, and has to be ended first.
    pub fn cancel(&mut self, now: Now, id: &str) -> Option<(bool, News)> {
        let task = self.queue.values_mut().find(|task| task.id == id)?;
        task.cancelled = true;
        Some((task.in_progress, task.over(now, Some("Operation canceled".to_owned()))))
    }

    /// The key of a cancelled one is gone.
    pub fn drop_cancelled(&mut self, id: &str) {
        self.queue.retain(|_, task| task.id != id || task.in_progress);
    }

    /// The one that is under way.
    pub fn running(&self) -> Option<&Task> {
        self.queue.get(self.running.as_ref()?)
    }

    /// The next one that is due is under way from now on.
    pub fn begin(&mut self, now: Now) -> Option<&Task> {
        if self.running.is_some() {
            return None;
        }
        let due = |t: &Task| !t.cancelled && t.retry_at.is_none_or(|at| at.mono <= now.mono);
        let (key, task) = self.queue.iter_mut().find(|(_, t)| due(t))?;
        task.in_progress = true;
        task.progress = 0.0;
        self.running = Some(key.clone());
        Some(task)
    }

    /// How far the running one has come; what its event is to be told, once a second.
    pub fn progress(&mut self, now: Now, done: f64) -> Option<News> {
        let task = self.queue.get_mut(self.running.as_ref()?)?;
        task.progress = done.clamp(0.0, 1.0);
        let is_soon = |(_, at): (f64, Duration)| now.mono < at + Duration::from_secs(1);
        if task.cancelled || task.posted.is_some_and(is_soon) {
            return None;
        }
        Some(task.news(now, task.progress))
    }

    /// What was done for the running one is over; `space` is where its key lies, if its pool is there.
    pub fn end(
        &mut self,
        now: Now,
        space: Option<Space>,
        result: Result<(), Failed>,
    ) -> Option<(After, Vec<News>)> {
        let key = self.running.take()?;
        let task = self.queue.get_mut(&key)?;
        task.in_progress = false;
        task.retry_attempts += 1;
        let wait = (RETRY * task.retry_attempts).min(RETRY_MAX);
        task.retry_at = Some(Now { mono: now.mono + wait, wall: now.wall.plus(wait) });
        let words = match &result {
            _ if space.is_none() || task.cancelled => None,
            Ok(()) => None,
            Err(failed) => match task.final_words(failed) {
                Some(words) => Some(words.to_owned()),
                None => {
                    task.retry_message = Some(text::error(failed.errno, &failed.why));
                    let news = task.posted.is_some().then(|| task.news(now, 0.0));
                    return Some((After::Nothing, news.into_iter().collect()));
                }
            },
        };
        let failed = words.is_some();
        // The event of a cancelled one is over.
        let news = (!task.cancelled).then(|| task.over(now, words));
        let task = self.queue.remove(&key)?;
        let after = space.map_or(After::Nothing, |space| After::Forget(space, task.key()));
        if !failed && !task.cancelled {
            self.completed.push_back(task);
            if self.completed.len() > MAX_COMPLETED {
                self.completed.pop_front();
            }
        }
        Some((after, news.into_iter().collect()))
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
