//! Commands that change the queue of tasks or the schedules: what each asks of the cluster before it is
//! answered.

use cephx::caps::{MgrCap, MgrRequest};
use monitor::command::Reply;
use serde_json::json;
use types::{EntityAddr, Errno, Now};

use super::job::{Failed, Found, ImageFacts, Job, Space};
use super::schedule::{self, Change, Level, Schedule};
use super::task::{self, Action, Refs, Task};
use super::text::{self, Spec};
use super::{MAX_ASKED, Why};
use crate::command::ReplyTo;
use crate::core::Manager;
use crate::io::Output;
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
                service: "",
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
    pub rights: Rights,
    pub what: Ask,
}

/// How far the command has come that is being carried out.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// The image is looked at.
    Looks(Space, Refs),
    /// The task is written down.
    Keeps(Task),
    /// The key of a task is removed.
    Cancels(String),
    /// The namespaces of a level's pool are looked at.
    Levels(Level, Change),
    /// A level's schedule is written down.
    Schedules(Level, Schedule),
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
        if self.rbd.asked.len() >= MAX_ASKED {
            return out.push(to.reply(Reply::error(Errno::EAGAIN, "too many commands wait for the pools")));
        }
        self.rbd.asked.push_back(Asker { to, rights, what });
        self.rbd_advance(now, out);
    }

    pub(super) fn rbd_begin(&mut self, now: Now, asker: Asker, out: &mut Vec<Output>) {
        let reply = match asker.what.clone() {
            Ask::List { id } => self.task_list(&asker.rights, id.as_deref()),
            Ask::Add { action, spec } => match self.task_add(&asker, action, &spec, out) {
                Ok(step) => return self.rbd.current = Some((asker, step)),
                Err(reply) => *reply,
            },
            Ask::Cancel { id } => match self.task_cancel(now, &asker.rights, &id, out) {
                Some(Ok(step)) => return self.rbd.current = Some((asker, step)),
                Some(Err(reply)) => reply,
                None => Reply::error(Errno::ENOENT, format!("No such task {id}")),
            },
            Ask::Schedule { level, change } => match self.schedule_begin(&asker, &level, change, out) {
                Ok(Some(step)) => return self.rbd.current = Some((asker, step)),
                // The monitors answer.
                Ok(None) => return,
                Err(reply) => *reply,
            },
        };
        out.push(asker.to.reply(reply));
    }

    fn task_list(&self, rights: &Rights, id: Option<&str>) -> Reply {
        let may = |refs: &Refs| rights.may(&refs.pool, &refs.namespace);
        match self.rbd.tasks.show(id, may) {
            Some(value) => text::answer(text::python_sorted(&value)),
            None => Reply::error(Errno::ENOENT, format!("No such task {}", id.unwrap_or_default())),
        }
    }

    fn task_add(
        &mut self,
        asker: &Asker,
        action: Action,
        spec: &str,
        out: &mut Vec<Output>,
    ) -> Result<Step, Box<Reply>> {
        let default = self.options.get("rbd_default_pool").unwrap_or_else(|| "rbd".to_owned());
        let Some(spec) = Spec::parse(spec, &default) else {
            return Err(Box::new(Reply::error(Errno::EINVAL, format!("Invalid image spec: {spec}"))));
        };
        if let Some(refusal) = asker.rights.refusal(&spec.pool, &spec.namespace) {
            return Err(Box::new(refusal));
        }
        let Some(space) = self.space(&spec.pool, &spec.namespace) else {
            return Err(Box::new(Reply::error(Errno::ENOENT, text::no_pool(&spec.pool))));
        };
        let image = spec.image.clone();
        let refs = Refs::new(action, spec);
        let job = match action {
            Action::TrashRemove => Job::LookInTrash { space: space.clone(), id: image },
            _ => Job::Look { space: space.clone(), image },
        };
        self.rbd_job(job, out)?;
        Ok(Step::Looks(space, refs))
    }

    /// Has the client do something for the command that is being carried out.
    fn rbd_job(&mut self, job: Job, out: &mut Vec<Output>) -> Result<(), Box<Reply>> {
        match self.rbd.submit(job, Why::Command, out) {
            Some(_) => Ok(()),
            None => Err(Box::new(Reply::error(Errno::EAGAIN, "too much is under way"))),
        }
    }

    /// `None` where there is no such task that may be seen.
    fn task_cancel(
        &mut self,
        now: Now,
        rights: &Rights,
        id: &str,
        out: &mut Vec<Output>,
    ) -> Option<Result<Step, Reply>> {
        let task = self.rbd.tasks.get(id).filter(|t| rights.may(&t.refs.pool, &t.refs.namespace))?;
        let (key, pool, namespace) = (task.key(), task.refs.pool.clone(), task.refs.namespace.clone());
        let (is_under_way, news) = self.rbd.tasks.cancel(now, id)?;
        self.tell_of_tasks(now, [news]);
        if is_under_way {
            let job = self.rbd.jobs.iter().find(|(_, why)| **why == Why::Task);
            out.extend(job.map(|(id, _)| Output::CancelImage { id: *id }));
        }
        let Some(space) = self.space(&pool, &namespace) else {
            self.rbd.tasks.drop_cancelled(id);
            return Some(Err(Reply::error(Errno::ENOENT, text::no_pool(&pool))));
        };
        let job = Job::Keep { space, object: task::OBJECT, key, value: None };
        Some(self.rbd_job(job, out).map(|()| Step::Cancels(id.to_owned())).map_err(|reply| *reply))
    }

    /// What was asked of the cluster for a command has been answered.
    pub(super) fn rbd_step(&mut self, now: Now, result: Result<Found, Failed>, out: &mut Vec<Output>) {
        let Some((asker, step)) = self.rbd.current.take() else { return };
        let reply = match step {
            Step::Looks(space, refs) => match self.task_looked(now, space, refs, result, out) {
                Ok(step) => return self.rbd.current = Some((asker, step)),
                Err(reply) => *reply,
            },
            Step::Keeps(task) => match result {
                Ok(_) => {
                    let reply = text::answer(task.text());
                    self.rbd.tasks.add(task);
                    reply
                }
                Err(failed) => refused(failed),
            },
            Step::Cancels(id) => {
                self.rbd.tasks.drop_cancelled(&id);
                match result {
                    Err(failed) if failed.errno != Errno::ENOENT => refused(failed),
                    _ => Reply::ok(),
                }
            }
            Step::Levels(level, change) => match self.schedule_found(&asker, level, change, result, out) {
                Ok(Some(step)) => return self.rbd.current = Some((asker, step)),
                Ok(None) => return,
                Err(reply) => *reply,
            },
            Step::Schedules(level, kept) => match result {
                Ok(_) => {
                    self.rbd.schedules.keep(now, level, kept);
                    Reply::ok()
                }
                Err(failed) => refused(failed),
            },
        };
        out.push(asker.to.reply(reply));
    }

    fn task_looked(
        &mut self,
        now: Now,
        space: Space,
        mut refs: Refs,
        result: Result<Found, Failed>,
        out: &mut Vec<Output>,
    ) -> Result<Step, Box<Reply>> {
        let found = result.map(|found| match found {
            Found::Image(facts) => facts,
            _ => ImageFacts::default(),
        });
        if let (Ok(facts), true) = (&found, refs.id.is_none()) {
            let has_id = matches!(refs.action, Action::Flatten | Action::Remove) || facts.is_migrating;
            refs.id = has_id.then(|| facts.id.clone());
        }
        if let Some(task) = self.rbd.tasks.find(&refs) {
            return Err(Box::new(text::answer(task.text())));
        }
        let message = refs.message(&found).map_err(|failed| Box::new(refused(failed)))?;
        let Some(task) = self.rbd.tasks.make(now, message, refs) else {
            return Err(Box::new(Reply::error(Errno::EAGAIN, "too many tasks wait")));
        };
        let job = Job::Keep { space, object: task::OBJECT, key: task.key(), value: Some(task.text()) };
        self.rbd_job(job, out)?;
        Ok(Step::Keeps(task))
    }

    /// `None` where the monitors answer.
    fn schedule_begin(
        &mut self,
        asker: &Asker,
        name: &str,
        change: Change,
        out: &mut Vec<Output>,
    ) -> Result<Option<Step>, Box<Reply>> {
        let Some(map) = &self.map else {
            return Err(Box::new(Reply::error(Errno::EAGAIN, "the manager has no OSD map yet")));
        };
        let level = Level::parse(map, name).map_err(|why| bad_level(name, &why))?;
        match (level.pool, level.namespace.as_deref()) {
            (Some(pool), Some(namespace)) if !namespace.is_empty() => {
                self.rbd_job(Job::Namespaces { pool }, out)?;
                Ok(Some(Step::Levels(level, change)))
            }
            _ => self.schedule_change(asker, level, &change, out),
        }
    }

    /// The same when it is known which namespaces there are.
    fn schedule_found(
        &mut self,
        asker: &Asker,
        level: Level,
        change: Change,
        result: Result<Found, Failed>,
        out: &mut Vec<Output>,
    ) -> Result<Option<Step>, Box<Reply>> {
        let namespaces = match result {
            Ok(Found::Namespaces(namespaces)) => namespaces,
            Ok(_) => Vec::new(),
            Err(failed) => return Err(Box::new(refused(failed))),
        };
        match &level.namespace {
            Some(namespace) if !namespaces.contains(namespace) => {
                Err(bad_level(&level.name, &format!("namespace {namespace} does not exist")))
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
    ) -> Result<Option<Step>, Box<Reply>> {
        let shown = |value| Err(Box::new(text::answer(text::python_sorted(&value))));
        match (change, &self.map) {
            (Change::List, _) => return shown(self.rbd.schedules.list(&level)),
            (Change::Status, Some(map)) => return shown(self.rbd.schedules.status(map, &level)),
            _ => {}
        }
        let bad = |why| Box::new(Reply::error(Errno::EINVAL, why));
        let schedule = self.rbd.schedules.changed(&level, change).map_err(bad)?;
        let value = (!schedule.is_empty()).then(|| schedule.text());
        if let Some(pool) = level.pool {
            let space = Space { pool, namespace: String::new() };
            let job = Job::Keep { space, object: schedule::OBJECT, key: level.id(), value };
            self.rbd_job(job, out)?;
            return Ok(Some(Step::Schedules(level, schedule)));
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
        Ok(None)
    }
}

fn bad_level(name: &str, why: &str) -> Box<Reply> {
    Box::new(Reply::error(Errno::EINVAL, format!("Invalid level spec {name}: {why}")))
}
