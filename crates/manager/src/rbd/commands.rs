//! Commands that change the queue of tasks or the schedules: what each asks of the cluster before it is
//! answered.

use std::time::Duration;

use cephx::caps::{MgrCap, MgrRequest};
use monitor::command::Reply;
use serde_json::json;
use types::{EntityAddr, Errno, Now, PoolId};

use super::schedule::{self, Change, Level, Schedule};
use super::task::{self, Action, Key, Refs, Task, key_text};
use super::text::{self, Spec};
use super::{
    LONG, MAX_ASKED, MAX_ASKED_OF_ONE, MAX_ASKED_OF_POOL, PATIENCE, Why, pools, removes_stale, stop,
};
use crate::command::{OF_MODULES, ReplyTo};
use crate::core::Manager;
use crate::io::Output;
use crate::job::{Failed, Found, ImageFacts, Job, Space};
use crate::mon_commands::{MonRequest, Plan};
use crate::outcome::Then;

/// The module that capabilities name.
pub(crate) const MODULE: &str = "rbd_support";

/// What who asks may do with this command: in which pools and namespaces.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rights {
    /// `None` where a monitor has looked at them, for which every pool is the same.
    pub caps: Option<(MgrCap, EntityAddr)>,
    /// Of the command.
    pub perm: &'static str,
}

impl Rights {
    /// Source: ActivePyModule::is_authorized.
    pub fn may(&self, pool: &str, namespace: &str) -> bool {
        let args = [("pool", pool), ("namespace", namespace)];
        let args = args.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        self.caps.as_ref().is_none_or(|(caps, addr)| {
            caps.is_capable(&MgrRequest {
                service: OF_MODULES,
                module: MODULE,
                command: "",
                args: &args,
                read: self.perm.contains('r'),
                write: self.perm.contains('w'),
                exec: self.perm.contains('x'),
                addr,
            })
        })
    }

    pub fn refusal(&self, pool: &str, namespace: &str) -> Option<Reply> {
        let text = || format!("not authorized on pool={pool}, namespace={namespace}");
        (!self.may(pool, namespace)).then(|| Reply::error(Errno::EACCES, text()))
    }
}

/// A command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ask {
    Add {
        action: Action,
        spec: String,
    },
    Cancel {
        id: String,
    },
    List {
        id: Option<String>,
    },
    /// Of the schedules by which trash is emptied.
    Schedule {
        level: String,
        change: Change,
    },
}

/// Who asks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asker {
    pub to: ReplyTo,
    pub since: Duration,
    pub rights: Rights,
    pub what: Ask,
    /// Which pool's answer it waits for, if it is one's.
    pub pool: Option<PoolId>,
}

/// How far the command has come that is being carried out.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// The image is looked at.
    Looks(Space, Refs),
    /// The task is written down.
    Keeps(Task),
    /// The key of a task is removed.
    Cancels(Key),
    /// The namespaces of a level's pool are looked at.
    Levels(Level, Change),
    /// A level's schedule is written down.
    Schedules(Level, Schedule),
}

/// How a command begins.
#[derive(Debug)]
enum Begun {
    /// Not before something else has come about.
    Waits,
    /// The cluster is asked for what it needs in a pool.
    Asks(PoolId, Step),
    /// The monitors answer.
    Left,
    Done(Reply),
}

impl From<Box<Reply>> for Begun {
    fn from(refusal: Box<Reply>) -> Self {
        Self::Done(*refusal)
    }
}

/// A failure as the client is told of it: its words are the module's or the cluster's.
fn refused(failed: Failed) -> Reply {
    Reply::error(failed.errno, failed.why)
}

impl Manager {
    /// Takes a command; it is answered when what it needs is known and done.
    pub(crate) fn rbd_ask(
        &mut self,
        now: Now,
        to: ReplyTo,
        rights: Rights,
        what: Ask,
        out: &mut Vec<Output>,
    ) {
        let pool = self.pool_asked(&rights, &what);
        let asked = &self.rbd.asked;
        let of_one = asked.iter().filter(|a| a.to.conn() == to.conn()).count();
        let of_pool = asked.iter().filter(|a| a.pool.is_some() && a.pool == pool).count();
        if asked.len() >= MAX_ASKED || of_pool >= MAX_ASKED_OF_POOL || of_one >= MAX_ASKED_OF_ONE {
            return out.push(to.reply(Reply::error(Errno::EAGAIN, "too many commands wait for the pools")));
        }
        self.rbd.asked.push_back(Asker { to, since: now.mono, rights, what, pool });
        self.rbd_advance(now, out);
    }

    /// The pool that a command is for; `None` where that is more than one, or none that is there.
    fn pool_asked(&self, rights: &Rights, what: &Ask) -> Option<PoolId> {
        match what {
            Ask::Add { spec, .. } => {
                let spec = Spec::parse(spec, &self.default_pool())?;
                self.space(&spec.pool, &spec.namespace).map(|space| space.pool)
            }
            Ask::Cancel { id } => {
                self.rbd.tasks.get(id, |task| self.may_see(rights, task)).map(|task| task.space.pool)
            }
            Ask::List { .. } => None,
            Ask::Schedule { level, .. } => self.map.as_ref()?.pool_by_name(level.split('/').next()?),
        }
    }

    fn default_pool(&self) -> String {
        self.options.get("rbd_default_pool").unwrap_or_else(|| "rbd".to_owned())
    }

    /// Begins with a command; it comes back where it has to wait.
    pub(super) fn rbd_begin(&mut self, now: Now, asker: Asker, out: &mut Vec<Output>) -> Option<Asker> {
        let begun = match asker.what.clone() {
            Ask::List { id } => self.task_list(now, &asker, id.as_deref()),
            Ask::Add { action, spec } => {
                self.task_add(&asker, action, &spec, out).unwrap_or_else(Begun::from)
            }
            Ask::Cancel { id } => self.task_cancel(now, &asker, &id, out),
            Ask::Schedule { level, change } => {
                self.schedule_begin(now, &asker, &level, change, out).unwrap_or_else(Begun::from)
            }
        };
        let reply = match begun {
            Begun::Waits if now.mono < asker.since + LONG => return Some(asker),
            Begun::Waits => Reply::error(Errno::EAGAIN, "the pool does not answer, or not all of them do"),
            Begun::Asks(pool, step) => {
                self.rbd.current.insert(pool, (asker, step));
                return None;
            }
            Begun::Left => return None,
            Begun::Done(reply) => reply,
        };
        out.push(asker.to.reply(reply));
        None
    }

    /// Whether a command that changes what a pool keeps may begin.
    fn is_free(&mut self, pool: PoolId) -> bool {
        if !self.rbd.read.contains_key(&pool) {
            self.rbd.wanted.insert(pool);
            return false;
        }
        !self.rbd.current.contains_key(&pool)
    }

    /// The pool's name by now, which rights are for.
    fn may_see(&self, rights: &Rights, task: &Task) -> bool {
        let name = self.map.as_ref().and_then(|map| map.pool_name(task.space.pool));
        rights.may(name.unwrap_or_default(), &task.space.namespace)
    }

    fn task_list(&self, now: Now, asker: &Asker, id: Option<&str>) -> Begun {
        if self.has_unread() && now.mono < asker.since + PATIENCE {
            return Begun::Waits;
        }
        Begun::Done(match self.rbd.tasks.show(id, |task| self.may_see(&asker.rights, task)) {
            Some(value) => text::answer(text::python_sorted(&value)),
            None => no_task(id.unwrap_or_default()),
        })
    }

    fn task_add(
        &mut self,
        asker: &Asker,
        action: Action,
        spec: &str,
        out: &mut Vec<Output>,
    ) -> Result<Begun, Box<Reply>> {
        let Some(spec) = Spec::parse(spec, &self.default_pool()) else {
            return Err(Box::new(Reply::error(Errno::EINVAL, format!("Invalid image spec: {spec}"))));
        };
        if let Some(refusal) = asker.rights.refusal(&spec.pool, &spec.namespace) {
            return Err(Box::new(refusal));
        }
        let Some(space) = self.space(&spec.pool, &spec.namespace) else {
            return Err(Box::new(Reply::error(Errno::ENOENT, text::no_pool(&spec.pool))));
        };
        if !self.is_free(space.pool) {
            return Ok(Begun::Waits);
        }
        let image = spec.image.clone();
        let refs = Refs::new(action, spec);
        let job = match action {
            Action::TrashRemove => Job::LookInTrash { space: space.clone(), id: image },
            _ => Job::Look { space: space.clone(), image },
        };
        self.rbd_job(job, out)?;
        Ok(Begun::Asks(space.pool, Step::Looks(space, refs)))
    }

    /// Has the client do something for the command that is being carried out.
    fn rbd_job(&mut self, job: Job, out: &mut Vec<Output>) -> Result<(), Box<Reply>> {
        match self.client.submit(job, Why::Command, out) {
            Some(_) => Ok(()),
            None => Err(Box::new(Reply::error(Errno::EAGAIN, "too much is under way"))),
        }
    }

    fn task_cancel(&mut self, now: Now, asker: &Asker, id: &str, out: &mut Vec<Output>) -> Begun {
        let places = self.rbd.tasks.places(id, |task| self.may_see(&asker.rights, task));
        if places.len() > 1 {
            let all: Vec<String> = places.iter().take(4).map(|place| format!("{place}/{id}")).collect();
            let why = format!("more than one task has the id {id}: say which, as {}", all.join(" or "));
            return Begun::Done(Reply::error(Errno::EEXIST, why));
        }
        let found = self.rbd.tasks.get(id, |task| self.may_see(&asker.rights, task));
        let key = match found.map(Task::key) {
            Some(key) if self.rbd.current.contains_key(&key.1.pool) => return Begun::Waits,
            Some(key) => key,
            None if self.has_unread() => return Begun::Waits,
            None => return Begun::Done(no_task(id)),
        };
        let Some((is_under_way, news)) = self.rbd.tasks.cancel(now, &key) else {
            return Begun::Done(no_task(id));
        };
        self.tell_of_tasks(now, news);
        let pool = key.1.pool;
        if is_under_way && stop(&mut self.client, pool, out) {
            let why = "it was cancelled".to_owned();
            self.task_done(now, pool, Err(Failed { errno: Errno::ECANCELED, why }));
        }
        let (space, text) = (key.1.clone(), key_text(key.0));
        match self.rbd_job(Job::Keep { space, object: task::OBJECT, key: text, value: None }, out) {
            Ok(()) => Begun::Asks(pool, Step::Cancels(key)),
            Err(refusal) => Begun::from(refusal),
        }
    }

    /// What was asked of the cluster for a pool's command has been answered.
    pub(super) fn rbd_step(
        &mut self,
        now: Now,
        pool: PoolId,
        result: Result<Found, Failed>,
        out: &mut Vec<Output>,
    ) {
        let Some((asker, step)) = self.rbd.current.remove(&pool) else { return };
        let begun = match step {
            Step::Looks(space, refs) => {
                self.task_looked(now, space, refs, result, out).unwrap_or_else(Begun::from)
            }
            Step::Keeps(task) => Begun::Done(match result {
                Ok(_) => {
                    let reply = text::answer(task.text());
                    self.rbd.tasks.add(task);
                    reply
                }
                Err(failed) => {
                    // It may be kept all the same, and who asked is told that it is not.
                    self.rbd.tasks.forget(now.mono, task.key());
                    refused(failed)
                }
            }),
            Step::Cancels(key) => {
                let result = result.map(drop);
                out.extend(self.rbd.tasks.forgotten(now, &key, &result).map(Output::Warn));
                Begun::Done(match result {
                    Err(failed) if failed.errno != Errno::ENOENT => refused(failed),
                    _ => Reply::ok(),
                })
            }
            Step::Levels(level, change) => {
                self.schedule_found(&asker, pool, level, change, result, out).unwrap_or_else(Begun::from)
            }
            Step::Schedules(level, kept) => Begun::Done(match result {
                Ok(_) => {
                    self.rbd.schedules.keep(now, level, kept);
                    Reply::ok()
                }
                Err(failed) => refused(failed),
            }),
        };
        match begun {
            Begun::Asks(pool, step) => drop(self.rbd.current.insert(pool, (asker, step))),
            Begun::Done(reply) => out.push(asker.to.reply(reply)),
            Begun::Waits | Begun::Left => {}
        }
    }

    fn task_looked(
        &mut self,
        now: Now,
        space: Space,
        mut refs: Refs,
        result: Result<Found, Failed>,
        out: &mut Vec<Output>,
    ) -> Result<Begun, Box<Reply>> {
        let found = result.map(|found| match found {
            Found::Image(facts) => facts,
            _ => ImageFacts::default(),
        });
        if let (Ok(facts), true) = (&found, refs.id.is_none()) {
            let has_id = matches!(refs.action, Action::Flatten | Action::Remove) || facts.is_migrating;
            refs.id = has_id.then(|| facts.id.clone());
        }
        if let Some(task) = self.rbd.tasks.find(&space, &refs) {
            return Err(Box::new(text::answer(task.text())));
        }
        let message = refs.message(&found).map_err(|failed| Box::new(refused(failed)))?;
        // Where not all is known, a number may be another task's.
        let is_known = self.rbd.read.get(&space.pool).is_some_and(|kept| kept.knows(&space.namespace));
        let task = is_known.then(|| self.rbd.tasks.make(now, space.clone(), message, refs)).flatten();
        let Some(task) = task.filter(Task::may_be_kept) else {
            return Err(Box::new(Reply::error(Errno::EAGAIN, "too many tasks wait, or it is too long")));
        };
        let (pool, key) = (space.pool, key_text(task.sequence));
        self.rbd_job(Job::Keep { space, object: task::OBJECT, key, value: Some(task.text()) }, out)?;
        Ok(Begun::Asks(pool, Step::Keeps(task)))
    }

    fn schedule_begin(
        &mut self,
        now: Now,
        asker: &Asker,
        name: &str,
        change: Change,
        out: &mut Vec<Output>,
    ) -> Result<Begun, Box<Reply>> {
        let Some(map) = &self.map else {
            return Err(Box::new(Reply::error(Errno::EAGAIN, "the manager has no OSD map yet")));
        };
        let level = Level::parse(map, name).map_err(|why| bad_level(name, &why))?;
        let is_shown = matches!(change, Change::List | Change::Status);
        let pool_name = level.pool.and_then(|pool| map.pool_name(pool)).unwrap_or_default().to_owned();
        let namespace = level.namespace.clone().unwrap_or_default();
        // Of all pools those are shown that may be seen.
        let is_filtered = is_shown && level.pool.is_none();
        if let Some(refusal) = asker.rights.refusal(&pool_name, &namespace).filter(|_| !is_filtered) {
            return Err(Box::new(refusal));
        }
        let is_long = now.mono >= asker.since + PATIENCE;
        match level.pool {
            Some(pool) if !self.rbd.schedules.is_read(pool) => return Ok(Begun::Waits),
            Some(pool) if self.rbd.current.contains_key(&pool) => return Ok(Begun::Waits),
            Some(pool) if removes_stale(&self.client, pool) => return Ok(Begun::Waits),
            None if is_shown && !is_long && pools(map).any(|p| !self.rbd.schedules.is_read(p)) => {
                return Ok(Begun::Waits);
            }
            None if !is_shown && self.rbd.setting => return Ok(Begun::Waits),
            _ => {}
        }
        match level.pool {
            Some(pool) if !namespace.is_empty() => {
                self.rbd_job(Job::Namespaces { pool }, out)?;
                Ok(Begun::Asks(pool, Step::Levels(level, change)))
            }
            _ => self.schedule_change(asker, level, &change, out),
        }
    }

    /// The same when it is known which namespaces there are.
    fn schedule_found(
        &mut self,
        asker: &Asker,
        pool: PoolId,
        level: Level,
        change: Change,
        result: Result<Found, Failed>,
        out: &mut Vec<Output>,
    ) -> Result<Begun, Box<Reply>> {
        let (namespaces, is_whole) = match result {
            Ok(Found::Namespaces { names, is_whole }) => (names, is_whole),
            Ok(_) => (Vec::new(), true),
            Err(failed) => return Err(Box::new(refused(failed))),
        };
        if !self.rbd.schedules.is_read(pool) {
            return Err(Box::new(Reply::error(Errno::EAGAIN, "another manager is in charge")));
        }
        match &level.namespace {
            // What is kept for one that is gone may be removed.
            Some(namespace)
                if !namespaces.contains(namespace) && !matches!(change, Change::Remove { .. }) =>
            {
                let why = match is_whole {
                    true => "does not exist",
                    false => "is not among those of the pool that are looked at",
                };
                Err(bad_level(&level.name, &format!("namespace {namespace} {why}")))
            }
            _ => self.schedule_change(asker, level, &change, out),
        }
    }

    fn schedule_change(
        &mut self,
        asker: &Asker,
        level: Level,
        change: &Change,
        out: &mut Vec<Output>,
    ) -> Result<Begun, Box<Reply>> {
        let shown = |value| Ok(Begun::Done(text::answer(text::python_sorted(&value))));
        if let Some(map) = &self.map {
            let may = |pool: Option<PoolId>, namespace: &str| {
                let name = pool.and_then(|pool| map.pool_name(pool)).unwrap_or_default();
                asker.rights.may(name, namespace)
            };
            match change {
                Change::List => return shown(self.rbd.schedules.list(&level, may)),
                Change::Status => return shown(self.rbd.schedules.status(map, &level, may)),
                _ => {}
            }
        }
        let bad = |why| Box::new(Reply::error(Errno::EINVAL, why));
        let schedule = self.rbd.schedules.changed(&level, change).map_err(bad)?;
        let value = (!schedule.is_empty()).then(|| schedule.text());
        if let Some(pool) = level.pool {
            let space = Space { pool, namespace: String::new() };
            let job = Job::Keep { space, object: schedule::OBJECT, key: level.id(), value };
            self.rbd_job(job, out)?;
            return Ok(Begun::Asks(pool, Step::Schedules(level, schedule)));
        }
        let request = match value {
            Some(value) => MonRequest::set_option("mgr", schedule::OPTION, &value),
            None => {
                let json = json!({ "prefix": "config rm", "who": "mgr", "name": schedule::OPTION });
                MonRequest { json: json.to_string(), ..MonRequest::default() }
            }
        };
        let then = Then::TrashSchedule(schedule);
        let plan = Plan { to: Some(asker.to), requests: vec![request], done: Reply::ok(), then };
        let full = |_| Box::new(Reply::error(Errno::EAGAIN, "too many commands wait for the monitors"));
        self.mon_commands.send_all(self.fsid(), plan, out).map_err(full)?;
        self.rbd.setting = true;
        Ok(Begun::Left)
    }
}

fn no_task(id: &str) -> Reply {
    Reply::error(Errno::ENOENT, format!("No such task {id}"))
}

fn bad_level(name: &str, why: &str) -> Box<Reply> {
    Box::new(Reply::error(Errno::EINVAL, format!("Invalid level spec {name}: {why}")))
}
