//! A run that asks OSDs what their disks tell, and has it kept.
//!
//! Source: scrape_daemon, scrape_device, scrape_all, put_device_metrics in
//! src/pybind/mgr/devicehealth/module.py (16.2).

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use monitor::command::Reply;
use serde_json::{Map, Value};
use types::{Errno, Now, OsdId, PoolId, Utime};

use super::pool::Pool;
use super::{MAX_SAMPLES, RunId, stamp, tell};
use crate::command::ReplyTo;
use crate::core::Manager;
use crate::devices::{self, MAX_ID_BYTES};
use crate::io::Output;
use crate::job::{Failed, Found, Job};
use crate::outcome::Then;
use crate::rbd::text::python;

/// How long a pool may take until it is there.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of what the disks of one OSD tell, and disks of one OSD.
const MAX_BYTES: usize = 4 << 20;
const MAX_DISKS: usize = 128;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scrape {
    id: RunId,
    /// Nobody where the manager acts by itself.
    pub to: Option<ReplyTo>,
    /// One disk alone.
    of: Option<String>,
    /// Still to be asked.
    osds: VecDeque<OsdId>,
    /// Still to be kept.
    told: VecDeque<(String, Value)>,
    did: BTreeSet<String>,
    doing: Doing,
    failed: Option<Reply>,
}

#[derive(Debug, Clone, PartialEq)]
enum Doing {
    Nothing,
    /// Since then.
    WaitsForPool(Duration),
    Asks,
    /// The wear level that comes with it, in parts of 1.
    Keeps {
        disk: String,
        wear: Option<f64>,
    },
}

impl Scrape {
    pub fn new(id: RunId, to: Option<ReplyTo>, osds: Vec<OsdId>, of: Option<String>) -> Self {
        Self {
            id,
            to,
            of,
            osds: osds.into(),
            told: VecDeque::new(),
            did: BTreeSet::new(),
            doing: Doing::Nothing,
            failed: None,
        }
    }

    /// Takes what an OSD said; a disk that another one has told of counts once.
    fn take(&mut self, said: &Reply) {
        if said.code < 0 || said.data.len() > MAX_BYTES {
            return;
        }
        let Ok(all) = serde_json::from_slice::<Map<String, Value>>(&said.data) else { return };
        let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
        for (disk, value) in all.into_iter().take(MAX_DISKS) {
            let fits = (1..=MAX_ID_BYTES).contains(&disk.len()) && !is_empty(&value);
            if fits && self.did.insert(disk.clone()) {
                self.told.push_back((disk, value));
            }
        }
    }
}

/// How worn a disk is, in parts of 1, where it tells. Source: get_ata_wear_level, get_nvme_wear_level.
fn wear(told: &Value) -> Option<f64> {
    let pages = told.pointer("/ata_device_statistics/pages").and_then(Value::as_array);
    let of_flash = pages.into_iter().flatten().filter(|page| page["number"] == 7);
    let rows = of_flash.filter_map(|page| page["table"].as_array()).flatten();
    let ata = rows.into_iter().find(|row| row["offset"] == 8).and_then(|row| row["value"].as_f64());
    let nvme = || told.pointer("/nvme_smart_health_information_log/percentage_used").and_then(Value::as_f64);
    ata.or_else(nvme).map(|percent| percent / 100.0)
}

/// The sample of a disk, under the time of now.
fn sample(pool: PoolId, disk: &str, told: &Value, now: Utime, retention_s: u64) -> Job {
    let from = Utime::new(now.sec.saturating_sub(u32::try_from(retention_s).unwrap_or(u32::MAX)), 0);
    Job::Sample {
        pool,
        object: disk.to_owned(),
        key: stamp(now),
        value: python(told),
        from: stamp(from),
        most: MAX_SAMPLES,
    }
}

impl Manager {
    /// Goes on with the run, and begins with the next one.
    pub(super) fn advance_scrapes(&mut self, now: Now, out: &mut Vec<Output>) {
        if !self.acts() {
            return;
        }
        while let Some(mut run) = self.next_scrape(now) {
            if !self.advance(now, &mut run, out) {
                self.device_health.scrape = Some(run);
                return;
            }
            let is_own = run.to.is_none();
            match (run.to, run.failed) {
                (Some(to), failed) => out.push(to.reply(failed.unwrap_or_else(Reply::ok))),
                (None, Some(failed)) => {
                    out.push(Output::Warn(format!("what disks tell is not kept: {}", failed.outs)));
                }
                (None, None) => {}
            }
            if is_own {
                self.all_asked(now, out);
            }
        }
    }

    /// The run that can go on.
    fn next_scrape(&mut self, now: Now) -> Option<Scrape> {
        let health = &mut self.device_health;
        match &health.scrape {
            Some(run) if !matches!(run.doing, Doing::WaitsForPool(_)) => None,
            Some(_) => health.scrape.take(),
            None => {
                let next = health.waiting.pop_front()?;
                Some(Scrape { doing: Doing::WaitsForPool(now.mono), ..next })
            }
        }
    }

    /// Does the next step; whether the run is over.
    fn advance(&mut self, now: Now, run: &mut Scrape, out: &mut Vec<Output>) -> bool {
        let unavailable = |why: String| Some(Reply::error(Errno::EAGAIN, why));
        let pool = match (self.device_pool(now, out), &run.doing) {
            (Pool::Is(pool), _) => pool,
            (Pool::Soon, Doing::WaitsForPool(since)) if now.mono < *since + PATIENCE => return false,
            (Pool::Soon, Doing::WaitsForPool(_)) => {
                run.failed = unavailable("the pool for what disks tell does not come about".to_owned());
                return true;
            }
            (Pool::Soon, _) => {
                run.doing = Doing::WaitsForPool(now.mono);
                return false;
            }
            (Pool::None(why), _) => {
                run.failed = unavailable(why);
                return true;
            }
        };
        let (job, doing) = match (run.told.pop_front(), run.osds.pop_front()) {
            (Some((disk, told)), osd) => {
                osd.into_iter().for_each(|osd| run.osds.push_front(osd));
                let keep_s = self.device_health.options.retention_s;
                let job = sample(pool, &disk, &told, now.wall, keep_s);
                (job, Doing::Keeps { disk, wear: wear(&told) })
            }
            (None, Some(osd)) => (tell(osd, run.of.as_deref()), Doing::Asks),
            (None, None) => return true,
        };
        match self.client.submit(job, run.id, out) {
            Some(_) => {
                run.doing = doing;
                false
            }
            None => {
                run.failed = unavailable("too much is under way".to_owned());
                true
            }
        }
    }

    /// A job of a run is over.
    pub(super) fn scrape_step(
        &mut self,
        now: Now,
        id: RunId,
        result: Result<Found, Failed>,
        out: &mut Vec<Output>,
    ) {
        let Some(mut run) = self.device_health.scrape.take_if(|run| run.id == id) else { return };
        match (std::mem::replace(&mut run.doing, Doing::WaitsForPool(now.mono)), result) {
            (Doing::Asks, Ok(Found::Said(said))) => run.take(&said),
            (Doing::Keeps { disk, wear }, Ok(_)) => self.worn(now, &disk, wear, out),
            (Doing::Keeps { .. }, Err(failed)) => {
                run.failed.get_or_insert(Reply::error(failed.errno, failed.why));
            }
            // An OSD that does not answer keeps no other from being asked.
            _ => {}
        }
        self.device_health.scrape = Some(run);
        self.advance_scrapes(now, out);
    }

    /// Has the monitors keep how worn a disk is, where that is something new.
    fn worn(&mut self, now: Now, disk: &str, wear: Option<f64>, out: &mut Vec<Output>) {
        let device = self.devices.get(disk).cloned().unwrap_or_default();
        let change = (disk.to_owned(), device.worn(wear));
        if change.1 != device.kept {
            self.ask_of_itself(now, vec![devices::request(&change)], Then::Device(change), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wear_is_read_where_disks_tell_it() {
        let page =
            |number: u64, value: u64| json!({ "number": number, "table": [{ "offset": 8, "value": value }] });
        let ata = json!({ "ata_device_statistics": { "pages": [null, page(1, 9), page(7, 25)] } });
        assert_eq!(wear(&ata), Some(0.25));
        assert_eq!(
            wear(&json!({ "nvme_smart_health_information_log": { "percentage_used": 3 } })),
            Some(0.03)
        );
        for none in [json!({}), json!(7), json!({ "ata_device_statistics": { "pages": 7 } })] {
            assert_eq!(wear(&none), None, "{none}");
        }
    }

    #[test]
    fn of_what_an_osd_says_only_so_much_is_taken() {
        let mut run = Scrape::new(RunId(1), None, Vec::new(), None);
        let say = |run: &mut Scrape, value: &Value| run.take(&Reply::text(value.to_string()));
        say(&mut run, &json!({ "a": { "x": 1 }, "": { "x": 1 }, "b": {}, "c": null }));
        say(&mut run, &json!({ "a": { "x": 2 }, "d": { "x": 1 } }));
        run.take(&Reply { code: -22, ..Reply::text(r#"{"e":{"x":1}}"#.to_owned()) });
        assert_eq!(run.told, [("a".to_owned(), json!({ "x": 1 })), ("d".to_owned(), json!({ "x": 1 }))]);
        let many: Map<String, Value> = (0..1_000).map(|n| (format!("m{n}"), json!({ "x": 1 }))).collect();
        say(&mut run, &Value::Object(many));
        assert_eq!(run.told.len(), 2 + MAX_DISKS);
        say(&mut run, &json!({ "f": { "x": "y".repeat(MAX_BYTES) } }));
        say(&mut run, &json!([]));
        assert_eq!(run.told.len(), 2 + MAX_DISKS);
    }
}
