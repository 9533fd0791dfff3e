//! Disks' health, the service that Ceph's module `devicehealth` is: OSDs are asked what their disks tell, which
//! a pool keeps by time in an object for each disk; and warnings of disks that are expected to fail.
//!
//! Invariants:
//! 1. One run asks OSDs at a time, one OSD after the other. Runs that wait are bounded, and so is what an OSD
//!    may answer.
//! 2. What outlives this manager is where Ceph's module keeps it: in the pool, and when disks were last asked
//!    in the config-key store.
//! 3. While no OSD names a disk nobody is asked anything by itself, and no pool is made. Ceph's module makes
//!    its pool in every cluster.
//!
//! Monitors are not asked: those of Loligo do not look at their disks.
//!
//! Source: src/pybind/mgr/devicehealth/module.py (16.2).

mod checks;
mod options;
mod pool;
mod scrape;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use messages::mgr::HealthCheck;
use monitor::command::Reply;
use serde_json::{Value, json};
use types::{ConnId, Errno, Now, OsdId, Utime};

use crate::command::ReplyTo;
use crate::core::Manager;
use crate::io::Output;
use crate::job::{Failed, Found, Job};
use crate::mon_commands::MonRequest;
use crate::outcome::Then;
use crate::rbd::text::{answer, python_sorted};
use crate::times;
pub(crate) use options::{ENABLED, OPTIONS, Options};
use scrape::Scrape;

/// In the config-key store.
pub(crate) const LAST_SCRAPE: &str = "mgr/devicehealth/last_scrape";

/// After this manager has come into charge: OSDs have told of themselves by then.
const FIRST_LOOK: Duration = Duration::from_secs(30);
/// How long an OSD may take to ask its disks.
const ASKED_FOR: Duration = Duration::from_secs(60);
/// Questions of clients that are answered by one job, and runs that wait.
const MAX_QUICK: usize = 32;
const MAX_WAITING: usize = 16;
/// Of what a disk has told so many are shown, and looked through for old ones. Source: MAX_SAMPLES.
const MAX_SAMPLES: usize = 500;

/// The number of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct RunId(u64);

/// A command that is answered when daemons or pools have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ask {
    /// What the disks of an OSD tell.
    Query(OsdId),
    /// What disks tell is to be kept: those of these OSDs, or of these one disk alone.
    Scrape { osds: Vec<OsdId>, of: Option<String> },
    /// What is kept of a disk, all or one of it.
    Show { of: String, sample: Option<String> },
    /// Disks are to be looked at now.
    Check,
}

#[derive(Debug, Clone, PartialEq)]
enum Quick {
    Query,
    Show { sample: Option<String> },
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct DeviceHealth {
    options: Options,
    pub checks: BTreeMap<String, HealthCheck>,
    last_run: RunId,
    quick: BTreeMap<RunId, (ReplyTo, Quick)>,
    scrape: Option<Scrape>,
    waiting: VecDeque<Scrape>,
    /// When disks are looked at; `None` before this manager has been in charge for a while.
    look_at: Option<Duration>,
    /// When disks were last asked, in Ceph's words; `None` before the monitors have said.
    last_scrape: Option<String>,
    /// Whether the monitors are asked for that.
    asked_last: bool,
    pool: pool::Making,
}

impl DeviceHealth {
    /// Takes over what the monitors say.
    pub fn configure(&mut self, given: &BTreeMap<String, String>) {
        let on = std::mem::replace(&mut self.options, Options::of(given)).enabled;
        let on = std::mem::replace(&mut self.options.enabled, on);
        self.switch(on);
    }

    /// Disks are looked at, from now on, or not any more.
    pub fn switch(&mut self, on: bool) {
        if on && !self.options.enabled {
            self.look_at = self.look_at.map(|_| Duration::ZERO);
        }
        if !on {
            // No warning stays that nobody takes back.
            self.checks.clear();
        }
        self.options.enabled = on;
    }

    /// Another manager is in charge: nothing is known any more.
    pub fn forget(&mut self) {
        *self = Self { options: self.options.clone(), last_run: self.last_run, ..Self::default() };
    }

    /// A client left.
    pub fn forget_client(&mut self, conn: ConnId) {
        self.quick.retain(|_, (to, _)| to.conn() != Some(conn));
        self.waiting.retain(|run| run.to.is_none_or(|to| to.conn() != Some(conn)));
    }

    /// What `config-key get` said.
    pub fn last_scrape_known(&mut self, result: i32, text: &[u8]) {
        self.asked_last = false;
        if result == 0 {
            self.last_scrape = Some(String::from_utf8_lossy(text).into_owned());
        } else if result == Errno::ENOENT.neg() {
            self.last_scrape = Some(String::new());
        }
    }

    fn run_id(&mut self) -> RunId {
        self.last_run.0 += 1;
        self.last_run
    }

    /// Whether disks are to be asked again. Source: Module.serve.
    fn is_due(&self, now: Utime) -> bool {
        let last = self.last_scrape.as_deref().and_then(parse_stamp);
        last.is_none_or(|last| {
            let every = self.options.scrape_s;
            u64::from(now.sec) >= u64::from(last.sec) / every * every + every
        })
    }
}

/// `20261121-220340`. Source: TIME_FORMAT.
fn stamp(at: Utime) -> String {
    let iso = crate::text::iso(Utime::new(at.sec, 0));
    iso.chars().filter(|c| !matches!(c, '-' | ':')).map(|c| if c == 'T' { '-' } else { c }).collect()
}

fn parse_stamp(text: &str) -> Option<Utime> {
    let (date, time) = text.trim().split_once('-').filter(|(d, t)| d.len() == 8 && t.len() == 6)?;
    let part = |text: &str, from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    times::utc(
        [part(date, 0, 4)?, part(date, 4, 6)?, part(date, 6, 8)?],
        [part(time, 0, 2)?, part(time, 2, 4)?, part(time, 4, 6)?],
        0,
    )
}

/// The question for an OSD.
fn tell(osd: OsdId, of: Option<&str>) -> Job {
    let mut json = json!({ "prefix": "smart", "format": "json" });
    if let (Some(fields), Some(id)) = (json.as_object_mut(), of) {
        fields.insert("devid".to_owned(), id.into());
    }
    Job::Tell { osd, json: json.to_string(), within: ASKED_FOR }
}

impl Manager {
    /// Takes a command.
    pub(crate) fn disks_ask(&mut self, now: Now, to: ReplyTo, ask: Ask, out: &mut Vec<Output>) {
        let busy = |to: ReplyTo| to.reply(Reply::error(Errno::EAGAIN, "too much is asked of disks"));
        if !self.acts() {
            return out.push(to.reply(Reply::error(Errno::EAGAIN, "the manager does not know all PGs yet")));
        }
        let (job, quick) = match ask {
            Ask::Check => {
                self.look_at_disks(now, out);
                return out.push(to.reply(Reply::ok()));
            }
            Ask::Scrape { osds, of } => {
                if self.device_health.waiting.len() >= MAX_WAITING {
                    return out.push(busy(to));
                }
                let id = self.device_health.run_id();
                let run = Scrape::new(id, Some(to), osds, of);
                self.device_health.waiting.push_back(run);
                return self.advance_scrapes(now, out);
            }
            Ask::Query(osd) => (tell(osd, None), Quick::Query),
            Ask::Show { of, sample } => {
                let name = &self.device_health.options.pool_name;
                let Some(pool) = self.map.as_ref().and_then(|map| map.pool_by_name(name)) else {
                    return out.push(to.reply(answer("{}".to_owned())));
                };
                let prefix = sample.clone().unwrap_or_default();
                (Job::Values { pool, object: of, prefix, most: MAX_SAMPLES }, Quick::Show { sample })
            }
        };
        if self.device_health.quick.len() >= MAX_QUICK {
            return out.push(busy(to));
        }
        let id = self.device_health.run_id();
        match self.client.submit(job, id, out) {
            Some(_) => drop(self.device_health.quick.insert(id, (to, quick))),
            None => out.push(busy(to)),
        }
    }

    /// A job is over.
    pub(crate) fn disks_step(
        &mut self,
        now: Now,
        run: RunId,
        result: Result<Found, Failed>,
        out: &mut Vec<Output>,
    ) {
        let Some((to, quick)) = self.device_health.quick.remove(&run) else {
            return self.scrape_step(now, run, result, out);
        };
        let reply = match (result, quick) {
            (Ok(Found::Said(said)), Quick::Query) => match said.data.is_empty() {
                true => said,
                false => Reply { data: [&said.data[..], b"\n"].concat().into(), ..said },
            },
            (Ok(Found::Keys { keys, .. }), Quick::Show { sample }) => {
                let read = |(key, value): (&bytes::Bytes, &bytes::Bytes)| {
                    let key = String::from_utf8_lossy(key).into_owned();
                    let is_asked_for = sample.as_ref().is_none_or(|sample| *sample == key);
                    is_asked_for.then(|| Some((key, serde_json::from_slice(value).ok()?))).flatten()
                };
                let all: Value = Value::Object(keys.values().flatten().filter_map(read).collect());
                answer(python_sorted(&all))
            }
            (Ok(_), _) => Reply::from(Errno::EIO),
            (Err(failed), _) => Reply::error(failed.errno, failed.why),
        };
        out.push(to.reply(reply));
    }

    /// Looks whether disks are to be looked at, or asked.
    pub(crate) fn tick_disks(&mut self, now: Now, out: &mut Vec<Output>) {
        self.advance_scrapes(now, out);
        let health = &mut self.device_health;
        let at = *health.look_at.get_or_insert(now.mono + FIRST_LOOK);
        if !health.options.enabled || now.mono < at || !self.knows_disks(out) {
            return;
        }
        let health = &mut self.device_health;
        if !self.devices.all().any(|(_, device)| !device.daemons.is_empty()) {
            health.look_at = Some(now.mono + health.options.sleep);
            let news = !std::mem::take(&mut health.checks).is_empty();
            return self.pgs.health_changed(news, now);
        }
        if health.last_scrape.is_none() {
            return self.ask_last_scrape(out);
        }
        health.look_at = Some(now.mono + health.options.sleep);
        let is_asking = health.scrape.iter().chain(&health.waiting).any(|run| run.to.is_none());
        if health.is_due(now.wall) && !is_asking {
            let id = health.run_id();
            let run = Scrape::new(id, None, self.all_osds(), None);
            self.device_health.waiting.push_back(run);
        }
        self.look_at_disks(now, out);
        self.advance_scrapes(now, out);
    }

    fn ask_last_scrape(&mut self, out: &mut Vec<Output>) {
        if !std::mem::replace(&mut self.device_health.asked_last, true) {
            self.ask_for_last_scrape(out);
        }
    }

    /// Those whose disks can be asked.
    pub(crate) fn all_osds(&self) -> Vec<OsdId> {
        let Some(map) = &self.map else { return Vec::new() };
        map.existing_osds().filter(|(_, osd)| osd.is_up()).map(|(id, _)| id).collect()
    }

    /// Makes the warnings, and marks out what is to fail.
    fn look_at_disks(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = &self.map else { return };
        let min_in = self.options.float("mon_osd_min_in_ratio");
        let health = &mut self.device_health;
        let looked = checks::look(&self.devices, map, &self.pgs, &health.options, min_in, now.wall);
        let requests = looked.requests();
        let news = std::mem::replace(&mut health.checks, looked.checks) != health.checks;
        self.pgs.health_changed(news, now);
        if !requests.is_empty() {
            self.ask_of_itself(now, requests, Then::Nothing, out);
        }
    }

    /// All disks were asked.
    fn all_asked(&mut self, now: Now, out: &mut Vec<Output>) {
        let at = stamp(now.wall);
        let json = json!({ "prefix": "config-key set", "key": LAST_SCRAPE }).to_string();
        let request = MonRequest { json, input: at.clone().into(), ..MonRequest::default() };
        self.device_health.last_scrape = Some(at);
        self.ask_of_itself(now, vec![request], Then::Nothing, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_cephs_module_writes_them() {
        let at = Utime::new(1_795_298_620, 7);
        assert_eq!(stamp(at), "20261121-220340");
        assert_eq!(parse_stamp("20261121-220340\n"), Some(Utime::new(1_795_298_620, 0)));
        for bad in ["", "20261121", "2026112-1220340", "20261321-220340", "20261121-22034x"] {
            assert_eq!(parse_stamp(bad), None, "{bad}");
        }
    }

    #[test]
    fn disks_are_asked_at_whole_periods() {
        let mut health = DeviceHealth::default();
        assert!(health.is_due(Utime::new(1_000_000, 0)), "they never were");
        health.last_scrape_known(0, b"19700102-000001");
        assert!(!health.is_due(Utime::new(2 * 86_400 - 1, 0)) && health.is_due(Utime::new(2 * 86_400, 0)));
        health.last_scrape_known(0, b"nonsense");
        assert!(health.is_due(Utime::new(0, 0)));
        health.last_scrape_known(-1, b"19700102-000001");
        assert_eq!(health.last_scrape.as_deref(), Some("nonsense"), "the monitors did not say");
    }
}
