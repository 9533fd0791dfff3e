//! Events that tell how far recoveries and changes of PG counts have come.
//!
//! Invariants:
//! 1. An event that reaches its goal, fails, or is cancelled by its OSD's return moves to the finished ones,
//!    which the monitors keep for whichever manager is in charge next. `clear`, switching off and a change of
//!    managers drop running events.
//! 2. Nothing is kept with the monitors before it is known what they hold, so that no event of an earlier
//!    manager is lost. What they have not said that they keep is sent again, one at a time.
//! 3. At most `MOST_RUNNING` events are under way; what is kept takes at most `MOST_KEPT_BYTES`.
//!
//! Source: src/pybind/mgr/progress/module.py (16.2). As there, the event of all PGs begins only beside
//! another one.

mod event;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crush::ITEM_NONE;
use maps::OsdMap;
use messages::mgr::ProgressEvent;
use serde_json::{Value, json};
use types::{Now, OsdId, PgId, PoolId, Utime};

use crate::modules::is_on;
use crate::pg_map::PgMap;
use event::{Event, Goal, Moved};

/// Where Ceph's module keeps finished events, in the config-key store.
pub const KEY: &str = "mgr/progress/completed";
/// The form that the module writes.
const VERSION: u64 = 2;

const PREFIX: &str = "mgr/progress/";
/// Name, type and default of each option. Source: MODULE_OPTIONS.
pub(crate) const OPTIONS: [(&str, &str, &str); 3] =
    [("enabled", "bool", "true"), ("max_completed_events", "int", "50"), ("sleep_interval", "secs", "5")];

/// After the monitors refused to keep something it is tried again.
const KEPT_AGAIN: Duration = Duration::from_secs(60);

const MOST_RUNNING: usize = 256;
const MOST_COMPLETED: usize = 1_000;
/// Monitors refuse more. Source: mon_config_key_max_entry_size.
const MOST_KEPT_BYTES: usize = 64 << 10;

/// What is under way, and what is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    running: Vec<Event>,
    /// Finished ones in the form that is kept, the last one last.
    pub(crate) completed: Vec<Value>,
    /// Grows with everything that the monitors show.
    pub(crate) version: u64,
    pub(crate) enabled: bool,
    max_completed: usize,
    sleep_interval: Duration,
    /// What the monitors are told of each event: it stays as it was at the last look.
    shown: BTreeMap<String, ProgressEvent>,
    /// Whether it is known what the monitors hold.
    loaded: bool,
    /// Whether they hold something else than `completed`.
    dirty: bool,
    /// Whether they were told something and have not said that they keep it.
    under_way: bool,
    /// Not to be told anything before.
    keep_at: Duration,
    look_at: Duration,
    begun: u32,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            running: Vec::new(),
            completed: Vec::new(),
            version: 0,
            enabled: true,
            max_completed: 50,
            sleep_interval: Duration::from_secs(5),
            shown: BTreeMap::new(),
            loaded: false,
            dirty: false,
            under_way: false,
            keep_at: Duration::ZERO,
            look_at: Duration::ZERO,
            begun: 0,
        }
    }
}

impl Progress {
    /// Takes over what the monitors say of its options.
    pub(crate) fn configure(&mut self, given: &BTreeMap<String, String>) {
        let get = |name: &str| given.get(&format!("{PREFIX}{name}")).map(|v| v.trim());
        let number = |name: &str, usual: f64| {
            get(name).and_then(|v| v.parse::<f64>().ok()).filter(|v| v.is_finite()).unwrap_or(usual)
        };
        self.max_completed = (number("max_completed_events", 50.0).max(0.0) as usize).min(MOST_COMPLETED);
        self.sleep_interval = Duration::from_secs_f64(number("sleep_interval", 5.0).clamp(0.25, 86_400.0));
        self.enabled = is_on(get("enabled"), true);
        if !self.enabled {
            self.stop();
        }
        self.prune();
    }

    /// Takes what the monitors answered to `config-key get`, in front of what has ended since. Only the first
    /// answer since this manager came into charge counts: what they hold later is what it gave them. What
    /// cannot be read stays there as it is.
    pub(crate) fn load(&mut self, result: i32, stored: &[u8]) {
        let none_stored = result == -types::Errno::ENOENT.0;
        if self.loaded || (result != 0 && !none_stored) {
            return;
        }
        let Some(events) = (if none_stored { Some(Vec::new()) } else { read_events(stored) }) else { return };
        self.loaded = true;
        self.completed.splice(0..0, events);
        self.prune();
    }

    /// Another manager was or is in charge: what it knows is not known here.
    pub(crate) fn forget(&mut self) {
        self.stop();
        self.completed.clear();
        (self.loaded, self.dirty, self.under_way) = (false, false, false);
        self.keep_at = Duration::ZERO;
    }

    /// As somebody asked for it; nothing that there was stays when it is switched off.
    pub(crate) fn switch(&mut self, on: bool) {
        self.enabled = on;
        if !on {
            self.clear();
            self.dirty = true;
        }
    }

    fn stop(&mut self) {
        self.running.clear();
        self.show(Utime::ZERO);
    }

    fn prune(&mut self) {
        let surplus = self.completed.len().saturating_sub(self.max_completed);
        self.dirty |= surplus > 0;
        self.completed.drain(..surplus);
    }

    /// Forgets all: the monitors keep what [`Self::nothing`] says.
    pub(crate) fn clear(&mut self) {
        self.stop();
        self.completed.clear();
        (self.loaded, self.dirty) = (true, false);
    }

    /// What is stored when there are no events.
    pub(crate) fn nothing() -> Value {
        stored_form(&[])
    }

    /// What the monitors are to keep, when it is something new. What is too much for them is forgotten, the
    /// oldest first.
    pub(crate) fn take_news(&mut self, now: Now) -> Option<String> {
        if !self.loaded || self.under_way || now.mono < self.keep_at || !std::mem::take(&mut self.dirty) {
            return None;
        }
        self.under_way = true;
        loop {
            let text = stored_form(&self.completed).to_string();
            if text.len() <= MOST_KEPT_BYTES || self.completed.is_empty() {
                return Some(text);
            }
            self.completed.drain(..self.completed.len().div_ceil(8));
        }
    }

    /// Whether the monitors keep what they were told last. If not, they are told again.
    pub(crate) fn news_kept(&mut self, now: Now, kept: bool) {
        self.under_way = false;
        if !kept {
            self.dirty = true;
            self.keep_at = now.mono + KEPT_AGAIN;
        }
    }

    /// Begins an event for each OSD that has gone out or come in and has moved PGs by that, and ends the one
    /// of an OSD that comes back. Source: Module._osdmap_changed, Module._osd_in_out.
    pub(crate) fn map_changed(&mut self, now: Now, old: &OsdMap, new: &OsdMap, pgs: &PgMap) {
        let turned = turned(old, new);
        if !self.enabled || turned.is_empty() {
            return;
        }
        let affected = affected(old, new, &turned);
        for osd in turned {
            let is_in = new.is_in(osd);
            if is_in {
                self.end_where(now, |goal| matches!(goal, Goal::Moved(moved) if moved.osd == osd));
            }
            if let Some(which) = affected.get(&osd) {
                let message =
                    format!("Rebalancing after osd.{osd} marked {}", if is_in { "in" } else { "out" });
                self.begin(now, message, Goal::Moved(Moved::new(osd, new.epoch, which, pgs)));
            }
        }
        self.look(now, new, pgs);
    }

    /// Begins an event for a pool whose PG count the autoscaler changes, or sets the one that there is anew.
    /// Source: PgAdjustmentProgress.
    pub(crate) fn pg_num_changes(&mut self, now: Now, pool: PoolId, from: u32, to: u32) {
        if !self.enabled {
            return;
        }
        let how = if from < to { "increasing" } else { "decreasing" };
        let message = format!("PG autoscaler {how} pool {pool} PGs from {from} to {to}");
        let goal = Goal::PgNum { pool, from, to };
        let of_pool = |e: &&mut Event| matches!(e.goal, Goal::PgNum { pool: of, .. } if of == pool);
        match self.running.iter_mut().find(of_pool) {
            Some(event) => (event.message, event.goal) = (message, goal),
            None => self.begin(now, message, goal),
        }
        self.show(now.wall);
    }

    /// The monitors refused to change a pool's PG count. They may do so again at each look: of the same
    /// refusals one is kept.
    pub(crate) fn pg_num_refused(&mut self, now: Now, pool: PoolId, why: &str) {
        let is_it = |goal: &Goal| matches!(goal, Goal::PgNum { pool: of, .. } if *of == pool);
        let Some(event) = self.running.iter_mut().find(|event| is_it(&event.goal)) else { return };
        event.failed = Some(why.to_owned());
        let text = |kept: &Value, name: &str| kept.get(name).and_then(Value::as_str).map(str::to_owned);
        let is_same = |kept: &Value| {
            text(kept, "message").as_deref() == Some(&event.message)
                && text(kept, "failure_message").as_deref() == Some(why)
        };
        if self.completed.iter().any(is_same) {
            self.running.retain(|event| !is_it(&event.goal));
        } else {
            self.end_where(now, is_it);
        }
        self.show(now.wall);
    }

    /// No PG count is changed any more.
    pub(crate) fn scaling_is_over(&mut self, now: Now) {
        self.end_where(now, |goal| matches!(goal, Goal::PgNum { .. }));
        self.show(now.wall);
    }

    /// How far an event has come that somebody else looks after. Source: Module.update.
    pub(crate) fn told(&mut self, now: Now, id: &str, message: String, refs: Value, done: f64) {
        if !self.enabled {
            return;
        }
        let goal = Goal::Told { refs };
        let is_full = self.running.len() >= MOST_RUNNING;
        match self.running.iter_mut().find(|event| event.is_told(id)) {
            Some(event) => (event.message, event.goal, event.done) = (message, goal, done),
            None if is_full => return,
            None => {
                let (id, started) = (id.to_owned(), now.wall);
                self.running.push(Event { id, message, started, done, goal, failed: None });
            }
        }
        self.show(now.wall);
    }

    /// It is over, and has failed if there is a reason. Source: Module.complete, Module.fail.
    pub(crate) fn told_over(&mut self, now: Now, id: &str, failed: Option<String>) {
        let Some(at) = self.running.iter().position(|event| event.is_told(id)) else { return };
        let event = Event { failed, ..self.running.remove(at) };
        self.end(now, &[event]);
        self.show(now.wall);
    }

    fn begin(&mut self, now: Now, message: String, goal: Goal) {
        if self.running.len() >= MOST_RUNNING {
            return;
        }
        self.begun = self.begun.wrapping_add(1);
        // As a UUID, which Ceph's are.
        let id = format!("{:08x}-{:04x}-4000-8000-{:012x}", now.wall.sec, self.begun & 0xffff, now.wall.nsec);
        self.running.push(Event { id, message, started: now.wall, done: 0.0, goal, failed: None });
    }

    fn end_where(&mut self, now: Now, is_over: impl Fn(&Goal) -> bool) {
        let (over, running) =
            std::mem::take(&mut self.running).into_iter().partition::<Vec<_>, _>(|e| is_over(&e.goal));
        self.running = running;
        self.end(now, &over);
    }

    fn end(&mut self, now: Now, over: &[Event]) {
        self.dirty |= !over.is_empty();
        self.completed.extend(over.iter().map(|event| event.ended(now.wall)));
        self.prune();
    }

    /// Looks at all events when that is due.
    pub(crate) fn tick(&mut self, now: Now, map: &OsdMap, pgs: &PgMap) {
        if now.mono >= self.look_at && !self.running.is_empty() {
            self.look(now, map, pgs);
        }
    }

    fn look(&mut self, now: Now, map: &OsdMap, pgs: &PgMap) {
        self.look_at = now.mono + self.sleep_interval;
        let is_global = |e: &Event| matches!(e.goal, Goal::AllClean { .. });
        if !self.running.is_empty() && !self.running.iter().any(is_global) && !event::all_clean(pgs) {
            let since = map.epoch;
            self.begin(now, "Global Recovery Event".to_owned(), Goal::AllClean { since });
        }
        let mut over = Vec::new();
        for mut event in std::mem::take(&mut self.running) {
            let to = if event.look(now.wall, map, pgs) { &mut over } else { &mut self.running };
            to.push(event);
        }
        self.end(now, &over);
        self.show(now.wall);
    }

    /// Makes what the monitors are told.
    fn show(&mut self, now: Utime) {
        let shown = self.running.iter().map(|e| {
            let (message, add_to_ceph_s) = (e.lines(now, 6), e.is_in_status());
            (e.id.clone(), ProgressEvent { message, progress: e.done as f32, add_to_ceph_s })
        });
        let shown: BTreeMap<String, ProgressEvent> = shown.collect();
        if shown != self.shown {
            self.version += 1;
            self.shown = shown;
        }
    }

    /// What the monitors are told of events under way.
    pub(crate) fn shown(&self) -> BTreeMap<String, ProgressEvent> {
        self.shown.clone()
    }

    /// For people; empty when there is nothing. Source: Module._handle_ls.
    pub(crate) fn text(&self, now: Utime) -> String {
        let mut out = String::new();
        // The last begun is the first.
        for event in self.running.iter().rev() {
            out += &(event.lines(now, 4) + "\n");
        }
        for (i, event) in self.completed.iter().enumerate() {
            let how = if event.get("failed").and_then(Value::as_bool) == Some(true) {
                "Failed"
            } else {
                "Complete"
            };
            let message = event.get("message").and_then(Value::as_str).unwrap_or_default();
            let started = event.get("started_at").and_then(Value::as_f64);
            // Ceph counts on after the end.
            let elapsed_s = started.map_or(0.0, |s| (event::seconds(now) - s).clamp(0.0, 1e10));
            // Ceph's manager takes the empty line off where nothing is in front of it.
            out += if i == 0 && !out.is_empty() { "\n" } else { "" };
            out += &format!("[{how}]: {}\n", event::two_lines(message, elapsed_s, 1.0, None, 4));
        }
        out
    }

    /// What is under way.
    pub(crate) fn running_json(&self, now: Utime) -> Vec<Value> {
        self.running.iter().map(|e| e.json(now)).collect()
    }

    pub(crate) fn json(&self, now: Utime) -> Value {
        json!({ "completed": self.completed, "events": self.running_json(now) })
    }
}

/// Finished events as the monitors keep them.
fn stored_form(events: &[Value]) -> Value {
    json!({ "events": events, "version": VERSION, "compat_version": VERSION })
}

/// OSDs that have gone out or come in. An OSD whose weight rises from 0 to less than 1 begins no event, nor
/// when it later reaches 1 (as in Ceph).
fn turned(old: &OsdMap, new: &OsdMap) -> BTreeSet<OsdId> {
    const WHOLE: u32 = 0x1_0000;
    let all = new.existing_osds().map(|(id, _)| id).filter(|id| old.exists(*id));
    all.filter(|id| match (old.weight(*id), new.weight(*id)) {
        (0, now) => now >= WHOLE,
        (_, now) => now == 0,
    })
    .collect()
}

/// PGs of the old map whose acting set has changed, by the OSDs of `turned` that are or were in it.
fn affected(old: &OsdMap, new: &OsdMap, turned: &BTreeSet<OsdId>) -> BTreeMap<OsdId, BTreeSet<PgId>> {
    let set = |acting: &[i32]| acting.iter().copied().filter(|o| *o != ITEM_NONE).collect::<BTreeSet<i32>>();
    let mut before: BTreeMap<PgId, BTreeSet<i32>> = BTreeMap::new();
    old.for_each_pg(|pg, m| {
        before.insert(pg, set(&m.acting));
    });
    let mut out: BTreeMap<OsdId, BTreeSet<PgId>> = BTreeMap::new();
    new.for_each_pg(|pg, m| {
        let Some(then) = before.get(&pg) else { return };
        let now = set(&m.acting);
        if *then == now {
            return;
        }
        for osd in then.union(&now).map(|o| OsdId(*o)).filter(|o| turned.contains(o)) {
            out.entry(osd).or_default().insert(pg);
        }
    });
    out
}

/// Finished events as Ceph's module keeps them; `None` where they are of a later form or none at all. An
/// event has the members without which that module would stop. Source: Module._load in
/// src/pybind/mgr/progress/module.py.
fn read_events(stored: &[u8]) -> Option<Vec<Value>> {
    let mut stored: Value = serde_json::from_slice(stored).ok()?;
    let compat = stored.get("compat_version").and_then(Value::as_u64).filter(|v| *v <= VERSION)?;
    let Some(Value::Array(events)) = stored.get_mut("events").map(Value::take) else { return None };
    let whole = |mut event: Value| {
        let members = event.as_object_mut()?;
        let is_text = |name: &str| members.get(name).is_some_and(Value::is_string);
        // Those of tasks on images have names.
        let is_refs = |refs: &Value| refs.is_array() || refs.is_object();
        if !is_text("id") || !is_text("message") || !members.get("refs").is_some_and(is_refs) {
            return None;
        }
        for time in ["started_at", "finished_at"] {
            if compat < VERSION || !members.contains_key(time) {
                members.insert(time.to_owned(), Value::Null);
            }
        }
        Some(event)
    };
    Some(events.into_iter().filter_map(whole).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { mono: Duration::from_secs(1_000), wall: Utime::ZERO };

    fn stored(events: &[Value], compat: u64) -> Progress {
        let mut progress = Progress::default();
        let whole = json!({ "events": events, "version": 2, "compat_version": compat });
        progress.load(0, whole.to_string().as_bytes());
        progress
    }

    #[test]
    fn finished_events_are_shown_as_cephs_module_shows_them() {
        let event =
            |message: &str| json!({ "id": "a", "message": message, "refs": [], "started_at": 1_000.5 });
        let mut failed = event("Rebalancing after osd.1 marked in");
        failed.as_object_mut().expect("an object").insert("failed".to_owned(), json!(true));
        let p = stored(&[event("Global Recovery Event"), failed], 2);
        let bar = "=".repeat(28);
        let want = format!(
            "[Complete]: Global Recovery Event (4m)\n    [{bar}] \n[Failed]: Rebalancing after osd.1 marked in \
             (4m)\n    [{bar}] \n"
        );
        assert_eq!(p.text(Utime::new(1_290, 0)), want);
        assert_eq!(stored(&[], 2).text(Utime::new(1_290, 0)), "");
    }

    #[test]
    fn what_is_stored_is_taken_as_far_as_it_is_known_and_no_further() {
        let event = json!({ "id": "a", "message": "x", "refs": [], "started_at": 1, "finished_at": 2 });
        assert_eq!(stored(&vec![event.clone(); 60], 2).completed.len(), 50);
        let bad = [json!(7), json!({ "message": "x" }), json!({ "id": "a", "message": 7, "refs": [] })];
        assert_eq!(stored(&[&bad[..], std::slice::from_ref(&event)].concat(), 2).completed, [event]);
        let of_task = json!({
            "id": "a", "message": "x", "refs": { "origin": "rbd_support" }, "started_at": 1, "finished_at": 2,
        });
        assert_eq!(stored(std::slice::from_ref(&of_task), 2).completed, [of_task]);
        let old = json!({ "id": "a", "message": "x", "refs": [] });
        let whole = json!({ "id": "a", "message": "x", "refs": [], "started_at": null, "finished_at": null });
        assert_eq!(stored(&[old], 1).completed, [whole], "Ceph's module asks for the times");
    }

    #[test]
    fn what_cannot_be_read_is_not_written_over() {
        let later = r#"{"events":[],"version":3,"compat_version":3}"#;
        for bad in ["", "[]", "{", "7", r#"{"events":7,"compat_version":2}"#, later] {
            let mut p = Progress { completed: vec![json!({})], dirty: true, ..Progress::default() };
            p.load(0, bad.as_bytes());
            assert_eq!((p.completed.len(), p.take_news(NOW)), (1, None), "{bad}");
            p.clear();
            assert!(p.loaded, "it goes when that is asked for");
        }
    }

    #[test]
    fn what_the_monitors_hold_is_not_lost_before_it_is_known() {
        let ended = |n: u32| json!({ "id": n.to_string(), "message": "m", "refs": [], "started_at": n, "finished_at": n });
        let mut p = Progress { completed: vec![ended(2)], dirty: true, ..Progress::default() };
        assert_eq!(p.take_news(NOW), None);
        p.load(-types::Errno::EACCES.0, b"");
        assert_eq!(p.take_news(NOW), None, "nothing is known");
        let whole = json!({ "events": [ended(1)], "version": 2, "compat_version": 2 });
        p.load(0, whole.to_string().as_bytes());
        let kept: Value = serde_json::from_str(&p.take_news(NOW).expect("news")).expect("JSON");
        assert_eq!(kept.get("events"), Some(&json!([ended(1), ended(2)])));
        assert_eq!(p.take_news(NOW), None, "it is on its way");
        p.news_kept(NOW, false);
        assert_eq!(p.take_news(NOW), None, "it is not asked for at once");
        let later = Now { mono: NOW.mono + KEPT_AGAIN, ..NOW };
        assert_eq!(p.take_news(later).map(|text| text.len()), Some(kept.to_string().len()));
        p.news_kept(later, true);
        assert_eq!(p.take_news(later), None, "it is kept");
        p.load(0, b"{}");
        assert_eq!(p.completed.len(), 2, "a later answer is not newer");
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let long = json!({ "id": "a", "message": "m".repeat(4_000), "refs": [] });
        let mut p = stored(&vec![long; 40], 2);
        p.dirty = true;
        let news = p.take_news(NOW).expect("news");
        assert!((MOST_KEPT_BYTES / 2..=MOST_KEPT_BYTES).contains(&news.len()));
        p.news_kept(NOW, true);
        p.configure(&[("mgr/progress/max_completed_events".to_owned(), "3".to_owned())].into());
        assert_eq!((p.completed.len(), p.take_news(NOW).is_some()), (3, true));
    }
}
