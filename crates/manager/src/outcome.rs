//! What follows when the monitors have answered all that they were asked for together.
//!
//! Invariants:
//! 1. What the monitors are to keep counts here when they have said that they keep it, and only of that which
//!    they did not refuse.
//! 2. A refusal of what the manager asked for by itself is said, the same words once in `SAID_AGAIN`.

use std::collections::BTreeMap;
use std::time::Duration;

use monitor::command::Reply;
use types::{Errno, Now, PoolId};

use crate::core::Manager;
use crate::io::Output;
use crate::mon_commands::{MonRequest, Over, Plan, Refused};
use crate::rbd::schedule::{Level, Schedule};
use crate::users::Changed;
use crate::{crashes, devices};

const SAID_AGAIN: Duration = Duration::from_secs(60);
/// Refusals of different words that are remembered; beyond them none is said.
const MOST_REFUSALS: usize = 64;

/// What follows from a plan that the monitors have carried out.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Then {
    #[default]
    Nothing,
    /// Crash reports that changed, one for each request.
    Crashes(Vec<crashes::Change>),
    Device(devices::Change),
    /// The next step towards the pool for what disks tell.
    DevicePool,
    /// Disks are asked and looked at, or not any more.
    DeviceMonitoring(bool),
    ProgressKept,
    ProgressCleared,
    ProgressSwitched(bool),
    /// The pools whose PG counts change, one for each request.
    Scaled(Vec<PoolId>),
    /// The autoscaler of all pools is switched off, or on.
    NoAutoscale(bool),
    /// Who may sign in to the dashboard.
    Users(Box<Changed>),
    /// The history of health checks.
    HistoryKept,
    HistoryCleared,
    /// When the trash of all pools is emptied.
    TrashSchedule(Schedule),
}

/// What was refused of late, and when that was said.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Refusals(BTreeMap<String, Duration>);

impl Refusals {
    /// The line for the log, where it is to be said now.
    fn line(&mut self, now: Now, first: &Refused, others: usize) -> Option<String> {
        self.0.retain(|_, said| now.mono.saturating_sub(*said) < SAID_AGAIN);
        let and = if others > 0 { format!(", and {others} more") } else { String::new() };
        let line = format!("the monitors refuse {}: {}{and}", first.json, reason(&first.reply));
        let is_new = self.0.len() < MOST_REFUSALS && !self.0.contains_key(&line);
        is_new.then(|| {
            self.0.insert(line.clone(), now.mono);
            line
        })
    }
}

fn reason(reply: &Reply) -> String {
    match reply.outs.as_str() {
        "" => format!("error {}", reply.code),
        text => format!("{text} ({})", reply.code),
    }
}

impl Manager {
    /// Has the monitors do what nobody asked this manager for.
    pub(crate) fn ask_of_itself(
        &mut self,
        now: Now,
        requests: Vec<MonRequest>,
        then: Then,
        out: &mut Vec<Output>,
    ) {
        let plan = Plan { requests, then, ..Plan::default() };
        if let Err(plan) = self.mon_commands.send_all(self.fsid(), plan, out) {
            // It is asked for again when there is room.
            match plan.then {
                Then::ProgressKept => self.progress.news_kept(now, false),
                Then::HistoryKept => self.prometheus.history.saved(now.mono, false),
                _ => {}
            }
        }
    }

    /// Takes what the monitors have done, and answers who asked for it.
    pub(crate) fn over(&mut self, now: Now, over: Over, out: &mut Vec<Output>) {
        let Over { to, done, then, own, mut refused } = over;
        if matches!(then, Then::NoAutoscale(_)) {
            // A pool that was deleted meanwhile scales no more.
            refused.retain(|r| r.reply.code != Errno::ENOENT.neg());
        }
        if let (true, Some(first)) = (own, refused.first()) {
            out.extend(self.refusals.line(now, first, refused.len() - 1).map(Output::Warn));
        }
        // A manager that has lost its place knows nothing any more; the next one asks what is kept.
        if self.active {
            self.follow(now, then, &refused);
        }
        let failed = refused.into_iter().next().map(|first| first.reply);
        out.extend(to.map(|to| to.reply(failed.unwrap_or(done))));
    }

    fn follow(&mut self, now: Now, then: Then, refused: &[Refused]) {
        let is_done = refused.is_empty();
        match then {
            Then::Nothing => {}
            Then::Crashes(changes) => {
                let kept = changes.into_iter().enumerate();
                let kept = kept.filter(|(at, _)| !refused.iter().any(|r| r.at == *at));
                kept.for_each(|(_, change)| self.crashes.apply(change));
                self.pgs.health_changed(true, now);
            }
            Then::Device(change) if is_done => self.devices.apply(change),
            Then::DevicePool => {
                self.device_pool_asked(refused.first().map(|refused| reason(&refused.reply)));
            }
            Then::DeviceMonitoring(on) if is_done => {
                self.device_health.switch(on);
                self.pgs.health_changed(true, now);
            }
            Then::ProgressKept => self.progress.news_kept(now, is_done),
            Then::ProgressCleared if is_done => self.progress.clear(),
            Then::ProgressSwitched(on) if is_done => self.progress.switch(on),
            Then::Scaled(pools) => {
                let of = |r: &Refused| Some((*pools.get(r.at)?, reason(&r.reply)));
                for (pool, why) in refused.iter().filter_map(of) {
                    self.progress.pg_num_refused(now, pool, &why);
                }
            }
            Then::NoAutoscale(off) if is_done => {
                self.autoscaler.off = off;
                if off {
                    self.progress.scaling_is_over(now);
                }
            }
            Then::Users(changed) => self.users.kept(now.mono, *changed, is_done),
            Then::HistoryKept => self.prometheus.history.saved(now.mono, is_done),
            Then::HistoryCleared if is_done => self.prometheus.history.cleared(),
            Then::TrashSchedule(schedule) => {
                self.rbd.setting = false;
                if is_done {
                    self.rbd.schedules.keep(now, Level::default(), schedule);
                }
            }
            Then::Device(_) | Then::DeviceMonitoring(_) | Then::HistoryCleared => {}
            Then::ProgressCleared | Then::ProgressSwitched(_) | Then::NoAutoscale(_) => {}
        }
    }
}
