//! When the trash of pools and namespaces is emptied of what may go.
//!
//! A schedule is a set of intervals, each with a time of day that it counts from; it is kept for all pools in
//! an option, for a pool or a namespace as a key of an object in the pool. The nearest one counts. Times are
//! UTC.
//!
//! Invariants:
//! 1. What counts is looked up when trash is about to be emptied, not only when its time is set.
//! 2. Where the nearest schedule cannot be known, for it is not read, nothing is emptied.
//! 3. A namespace's schedule ends with the namespace, as soon as that is noticed: it is none of a later
//!    namespace of that name, even while its key cannot be removed.
//! 4. A purge is stopped when it has had its [`TURN`], and goes on when those have had theirs that were due
//!    before: no image is so large that others' trash waits for it.
//!
//! Source: src/pybind/mgr/rbd_support/schedule.py, trash_purge_schedule.py (16.2).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maps::OsdMap;
use serde_json::{Value, json};
use types::{Errno, Now, PoolId, Utime};

use super::text::python_sorted;
use super::{Rbd, Why, pools, removes_stale};
use crate::client::Client;
use crate::core::Manager;
use crate::io::Output;
use crate::job::{Failed, Found, Job, Space, Work};
use crate::text::iso;
use crate::times;

pub(crate) const OBJECT: &str = "rbd_trash_purge_schedule";
pub(crate) const OPTION: &str = "mgr/rbd_support/trash_purge_schedule";

/// How often namespaces are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Of one level.
const MAX_ITEMS: usize = 64;
/// Levels in all, and of one pool.
const MAX_LEVELS: usize = 4_096;
const MAX_LEVELS_OF_POOL: usize = 256;
/// Where trash is emptied, in all and of one pool.
const MAX_SPACES: usize = 16_384;
const MAX_SPACES_OF_POOL: usize = 1_024;
/// Trash that is emptied at once, of one pool only one.
const MAX_PURGES: usize = 8;
/// How long a purge goes on before others are next.
const TURN: Duration = Duration::from_secs(600);
/// Bytes of an image's id that is kept to go on behind it; with a longer one a purge begins anew.
const MAX_ID: usize = 64;
/// Bytes of a level's schedule as it is kept.
const MAX_BYTES: usize = 16_384;

/// For what a schedule is: all pools, a pool, or a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Level {
    pub pool: Option<PoolId>,
    pub namespace: Option<String>,
    /// As people name it.
    pub name: String,
}

impl Level {
    /// `""`, `pool/` or `pool/namespace/`; whether the namespace exists is not looked at. Source:
    /// LevelSpec.from_name.
    pub fn parse(map: &OsdMap, name: &str) -> Result<Self, String> {
        if name.is_empty() {
            return Ok(Self::default());
        }
        let Some((pool, rest)) = name.split_once('/').filter(|(pool, _)| !pool.is_empty()) else {
            return Err(format!("failed to parse {name}"));
        };
        let (namespace, image) = match rest.split_once('/') {
            Some((namespace, image)) => (Some(namespace), image),
            None => (None, rest),
        };
        if image.contains(['/', '@']) {
            return Err(format!("failed to parse {name}"));
        }
        if !image.is_empty() {
            return Err(format!("invalid name {name}: image level is not allowed"));
        }
        let id = map.pool_by_name(pool).ok_or_else(|| format!("pool {pool} does not exist"))?;
        if !pools(map).any(|p| p == id) {
            return Err(format!("{pool} is not an RBD pool"));
        }
        Ok(Self { pool: Some(id), namespace: namespace.map(str::to_owned), name: name.to_owned() })
    }

    /// The key of a schedule that a pool keeps. Source: LevelSpec.from_id.
    fn read(map: &OsdMap, of: PoolId, id: &str) -> Option<Self> {
        let (pool, namespace) = match id.split_once('/') {
            Some((pool, namespace)) => (pool, Some(namespace)),
            None => (id, None),
        };
        if pool.parse() != Ok(of.0) || namespace.is_some_and(|n| n.contains('/')) {
            return None;
        }
        let pool = map.pool_name(of)?;
        let name = namespace.map_or_else(|| format!("{pool}/"), |n| format!("{pool}/{n}/"));
        Some(Self { pool: Some(of), namespace: namespace.map(str::to_owned), name })
    }

    pub fn id(&self) -> String {
        match (self.pool, &self.namespace) {
            (None, _) => String::new(),
            (Some(pool), None) => pool.0.to_string(),
            (Some(pool), Some(namespace)) => format!("{}/{namespace}", pool.0),
        }
    }

    fn is_child_of(&self, other: &Self) -> bool {
        match (other.pool, &other.namespace) {
            (None, _) => self.pool.is_some(),
            (pool, None) => self.pool == pool && self.namespace.is_some(),
            _ => false,
        }
    }

    fn matches(&self, space: &Space) -> bool {
        self.pool.is_none_or(|pool| pool == space.pool)
            && self.namespace.as_ref().is_none_or(|n| n.is_empty() || *n == space.namespace)
    }
}

/// What somebody wants of a level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Add { interval: String, start: Option<String> },
    Remove { interval: Option<String>, start: Option<String> },
    List,
    Status,
}

/// Minutes of a period, and the minute of the day that it counts from.
type Item = (u64, Option<u32>);

/// Items, with the time of day in the words of ISO 8601.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Schedule(BTreeMap<Item, Option<String>>);

/// `90`, `90m`, `2h` or `1d`.
fn interval(text: &str) -> Result<u64, String> {
    let bad = || format!("Invalid interval ({text})");
    let (digits, unit) = match text.strip_suffix(['d', 'h', 'm']) {
        Some(digits) if text.ends_with('d') => (digits, 1_440),
        Some(digits) if text.ends_with('h') => (digits, 60),
        Some(digits) => (digits, 1),
        None => (text, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    // A hundred years are enough.
    let minutes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    minutes.filter(|m| (1..=52_560_000).contains(m)).ok_or_else(bad)
}

fn interval_text(minutes: u64) -> String {
    match minutes {
        m if m % 1_440 == 0 => format!("{}d", m / 1_440),
        m if m % 60 == 0 => format!("{}h", m / 60),
        m => format!("{m}m"),
    }
}

/// A time of day, with a date in front or without: the minute that it stands for, and its text. As in Ceph a
/// zone's difference is added. Source: StartTime.
fn start(text: &str) -> Result<(u32, String), String> {
    let bad = || format!("Invalid start time {text}: Unknown string format: {text}");
    let time = text.split_once(['T', ' ']).map_or(text, |(_, time)| time);
    let (clock, ahead_s) = times::zone(time).ok_or_else(bad)?;
    let mut parts = clock.split(':');
    let mut number = |below: u32| {
        let digits = parts.next()?;
        digits.parse::<u32>().ok().filter(|n| *n < below && digits.len() <= 2)
    };
    let (hour, minute) = (number(24).ok_or_else(bad)?, number(60).ok_or_else(bad)?);
    if let Some(seconds) = parts.next() {
        let whole = seconds.split_once('.').map_or(seconds, |(whole, _)| whole);
        whole.parse::<u32>().ok().filter(|s| *s < 60).ok_or_else(bad)?;
    }
    if parts.next().is_some() {
        return Err(bad());
    }
    let zone = match clock.len() == time.len() {
        true => String::new(),
        false => {
            let (sign, ahead) = if ahead_s < 0 { ('-', -ahead_s) } else { ('+', ahead_s) };
            format!("{sign}{:02}:{:02}", ahead / 3_600, ahead / 60 % 60)
        }
    };
    let ahead = u32::try_from(ahead_s.rem_euclid(86_400) / 60).unwrap_or(0);
    Ok((hour * 60 + minute + ahead, format!("{hour:02}:{minute:02}:00{zone}")))
}

fn item(every: &str, from: Option<&str>) -> Result<(Item, Option<String>), String> {
    let from = from.filter(|f| !f.is_empty()).map(start).transpose()?;
    let (minute, text) = from.unzip();
    Ok(((interval(every)?, minute), text))
}

impl Schedule {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is kept; `None` where it is none.
    fn read(stored: &[u8]) -> Option<Self> {
        if stored.len() > MAX_BYTES {
            return None;
        }
        let stored: Vec<Value> = serde_json::from_slice(stored).ok()?;
        let read =
            |v: &Value| item(v.get("interval")?.as_str()?, v.get("start_time").and_then(Value::as_str)).ok();
        Some(Self(stored.iter().take(MAX_ITEMS).map(read).collect::<Option<_>>()?))
    }

    fn value(&self) -> Value {
        let shown = |((every, _), from): (&Item, &Option<String>)| json!({ "interval": interval_text(*every), "start_time": from });
        self.0.iter().map(shown).collect()
    }

    pub fn text(&self) -> String {
        python_sorted(&self.value())
    }

    /// The next time, later than `now`, in seconds since 1970. Source: Schedule.next_run.
    fn next(&self, now: u64) -> Option<u64> {
        let next = |(every, from): &Item| {
            let (period, from) = (every * 60, u64::from(from.unwrap_or(0)) * 60);
            from + (now.saturating_sub(from) / period + 1) * period
        };
        self.0.keys().map(next).min()
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Schedules {
    levels: BTreeMap<String, (Level, Schedule)>,
    /// Levels whose schedules are kept, but cannot be read.
    unreadable: BTreeSet<String>,
    /// Keys of namespaces that are not there, and when each is removed.
    stale: BTreeMap<String, (PoolId, Duration)>,
    /// Levels of namespaces that were known, and not changed since, when a pool was asked for its namespaces.
    asked: BTreeMap<PoolId, BTreeSet<String>>,
    /// Pools whose schedules are known, and whether these are all.
    read: BTreeMap<PoolId, bool>,
    /// Where trash is emptied, and when next, in seconds since 1970.
    next: BTreeMap<Space, Option<u64>>,
    /// Behind which image a purge goes on that was stopped.
    behind: BTreeMap<Space, String>,
    /// The job of each purge that is under way, and when its turn is over.
    turns: BTreeMap<Space, (u64, Duration)>,
    look_at: Duration,
}

impl Schedules {
    /// Takes over what the monitors say.
    pub fn configure(&mut self, now: Now, given: &BTreeMap<String, String>) {
        let schedule = given.get(OPTION).and_then(|text| Schedule::read(text.as_bytes())).unwrap_or_default();
        if self.levels.get("").map(|(_, s)| s) != Some(&schedule) {
            self.keep(now, Level::default(), schedule);
        }
    }

    /// What is left when all that pools keep is forgotten: the monitors tell of the schedule of all pools
    /// only when it changes.
    pub fn of_all(&mut self) -> Self {
        let levels = self.levels.remove_entry("").into_iter().collect();
        Self { levels, ..Self::default() }
    }

    pub fn is_read(&self, pool: PoolId) -> bool {
        self.read.contains_key(&pool)
    }

    /// Takes what a pool keeps; a line for the log where that cannot be read, or is too much.
    pub fn loaded(
        &mut self,
        map: Option<&OsdMap>,
        pool: PoolId,
        result: Result<Found, Failed>,
    ) -> Option<String> {
        let (keys, is_whole) = match result {
            Ok(Found::Keys { mut keys, cut, .. }) => (keys.remove("").unwrap_or_default(), !cut.contains("")),
            Err(failed) if failed.errno != Errno::ENOENT => {
                return Some(format!("schedules of pool {pool} cannot be read: {}", failed.why));
            }
            _ => (BTreeMap::new(), true),
        };
        let mut is_whole = is_whole;
        for (key, value) in keys {
            let level = std::str::from_utf8(&key).ok().and_then(|key| Level::read(map?, pool, key));
            let Some(level) = level else { continue };
            match Schedule::read(&value) {
                Some(schedule) if self.has_room(pool) => {
                    drop(self.levels.insert(level.id(), (level, schedule)));
                }
                Some(_) => is_whole = false,
                None => self.unreadable.extend([level.id()]),
            }
        }
        self.read.insert(pool, is_whole);
        self.look_at = Duration::ZERO;
        (!is_whole).then(|| format!("pool {pool} has more schedules than are looked at"))
    }

    fn has_room(&self, pool: PoolId) -> bool {
        let of_pool = self.levels.values().filter(|(level, _)| level.pool == Some(pool)).count();
        let stale = self.stale.values().filter(|(of, _)| *of == pool).count();
        self.levels.len() + self.stale.len() < MAX_LEVELS && of_pool + stale < MAX_LEVELS_OF_POOL
    }

    /// A level's schedule is as somebody wanted it; times that have come stay.
    pub fn keep(&mut self, now: Now, level: Level, schedule: Schedule) {
        let id = level.id();
        self.unreadable.remove(&id);
        self.stale.remove(&id);
        for asked in self.asked.values_mut() {
            asked.remove(&id);
        }
        match schedule.is_empty() {
            true => drop(self.levels.remove(&id)),
            false => drop(self.levels.insert(id, (level, schedule))),
        }
        self.set_times(now);
        self.look_at = Duration::ZERO;
    }

    /// Times that have come stay while there is a schedule.
    fn set_times(&mut self, now: Now) {
        let now = u64::from(now.wall.sec);
        let spaces: Vec<Space> = self.next.keys().cloned().collect();
        for space in spaces {
            let next = self.find(&space).and_then(|s| s.next(now));
            let may_change = |at: &Option<u64>| next.is_none() || at.is_none_or(|at| at > now);
            if let Some(at) = self.next.get_mut(&space).filter(|at| may_change(at)) {
                *at = next;
            }
        }
    }

    /// Nothing is known of pools that are gone, or are not for images any more.
    fn keep_pools(&mut self, is_there: impl Fn(PoolId) -> bool) {
        let is_gone: BTreeSet<PoolId> = self.read.keys().copied().filter(|pool| !is_there(*pool)).collect();
        if is_gone.is_empty() {
            return;
        }
        let of_gone = |id: &String| is_gone.iter().any(|p| id.split('/').next() == Some(&p.0.to_string()));
        self.next.retain(|space, _| is_there(space.pool));
        self.behind.retain(|space, _| is_there(space.pool));
        self.read.retain(|pool, _| is_there(*pool));
        self.asked.retain(|pool, _| is_there(*pool));
        self.stale.retain(|_, (pool, _)| is_there(*pool));
        self.unreadable.retain(|id| !of_gone(id));
        self.levels.retain(|_, (level, _)| level.pool.is_none_or(&is_there));
    }

    /// The nearest one, as far as that is known.
    fn find(&self, space: &Space) -> Option<&Schedule> {
        let (pool, is_whole) = (space.pool.0, self.read.get(&space.pool) == Some(&true));
        let ids = [format!("{pool}/{}", space.namespace), pool.to_string(), String::new()];
        // Of what is not read whole the nearest one may be missing.
        let ids = ids.iter().take(if is_whole { ids.len() } else { 1 });
        let nearest =
            ids.into_iter().find(|id| self.levels.contains_key(*id) || self.unreadable.contains(*id));
        nearest.and_then(|id| self.levels.get(id)).map(|(_, schedule)| schedule)
    }

    /// The level with a change made, for which the words are its own.
    pub fn changed(&self, level: &Level, change: &Change) -> Result<Schedule, String> {
        let known = self.levels.get(&level.id()).map(|(_, s)| s.clone());
        let too_many = || "there are too many schedules".to_owned();
        // What is not known would be lost.
        if known.is_none() && level.pool.is_some_and(|pool| self.read.get(&pool) != Some(&true)) {
            return Err(too_many());
        }
        let mut schedule = known.unwrap_or_default();
        match change {
            Change::Add { interval, start } => {
                let (item, text) = item(interval, start.as_deref())?;
                let is_full = level.pool.is_some_and(|pool| !self.has_room(pool)) && schedule.is_empty();
                if is_full || schedule.0.len() >= MAX_ITEMS {
                    return Err(too_many());
                }
                schedule.0.insert(item, text);
            }
            Change::Remove { interval: None, .. } => schedule.0.clear(),
            Change::Remove { interval: Some(interval), start } => {
                schedule.0.remove(&item(interval, start.as_deref())?.0);
            }
            Change::List | Change::Status => {}
        }
        Ok(schedule)
    }

    /// Those of a level, of what is below it, and the nearest one above, as far as they `may` be seen.
    /// Source: Schedules.to_list.
    pub fn list(&self, level: &Level, may: impl Fn(Option<PoolId>, &str) -> bool) -> Value {
        let all = || self.levels.values().map(|(l, _)| l);
        let above = || {
            let mut above: Vec<&Level> = all().filter(|l| level.is_child_of(l)).collect();
            above.sort_by_key(|l| l.pool.is_some());
            above.pop()
        };
        let nearest = all().find(|l| l.id() == level.id()).or_else(above).map(Level::id);
        let shown =
            self.levels.iter().filter(|(id, (l, _))| nearest.as_ref() == Some(*id) || l.is_child_of(level));
        let shown = shown.filter(|(_, (l, _))| may(l.pool, l.namespace.as_deref().unwrap_or_default()));
        let shown = shown.map(|(id, (l, s))| (id.clone(), json!({ "name": l.name, "schedule": s.value() })));
        Value::Object(shown.collect())
    }

    pub fn status(&self, map: &OsdMap, level: &Level, may: impl Fn(Option<PoolId>, &str) -> bool) -> Value {
        let due = self.next.iter().filter_map(|(space, at)| Some(((*at)?, space)));
        let is_shown = |space: &Space| level.matches(space) && may(Some(space.pool), &space.namespace);
        let mut due: Vec<_> = due.filter(|(_, space)| is_shown(space)).collect();
        due.sort();
        let shown = |(at, space): (u64, &Space)| {
            let at = Utime::new(u32::try_from(at).unwrap_or(u32::MAX), 0);
            json!({
                "namespace": space.namespace,
                "pool_id": space.pool.0.to_string(),
                "pool_name": map.pool_name(space.pool).unwrap_or_default(),
                "schedule_time": iso(at).replace('T', " "),
            })
        };
        json!({ "scheduled": due.into_iter().map(shown).collect::<Vec<_>>() })
    }

    /// A pool is asked for its namespaces: a schedule that comes later may be of one that comes later.
    fn asks(&mut self, pool: PoolId) {
        let of = |(l, _): &&(Level, Schedule)| l.pool == Some(pool) && l.namespace.is_some();
        self.asked.insert(pool, self.levels.values().filter(of).map(|(l, _)| l.id()).collect());
    }

    /// Takes a pool's namespaces. Source: Schedules.load_from_pool.
    pub fn spaces_known(&mut self, now: Now, pool: PoolId, result: Result<Found, Failed>) {
        let asked = self.asked.remove(&pool).unwrap_or_default();
        let Ok(Found::Namespaces { names, is_whole }) = result else { return };
        if is_whole {
            let known: BTreeSet<&str> = names.iter().map(String::as_str).chain([""]).collect();
            let is_gone = |id: &&String| id.split_once('/').is_some_and(|(_, n)| !known.contains(n));
            for id in asked.iter().filter(is_gone) {
                self.levels.remove(id);
                self.stale.insert(id.clone(), (pool, now.mono));
            }
        }
        let mut known: BTreeSet<String> = names.into_iter().take(MAX_SPACES_OF_POOL).collect();
        known.insert(String::new());
        let is_known = |space: &Space| space.pool != pool || known.contains(&space.namespace);
        self.next.retain(|space, _| is_known(space));
        self.behind.retain(|space, _| is_known(space));
        for namespace in known {
            let space = Space { pool, namespace };
            let is_known = self.next.contains_key(&space);
            if !matches!(self.next.get(&space), Some(Some(_))) && (is_known || self.next.len() < MAX_SPACES) {
                let at = self.find(&space).and_then(|s| s.next(now.wall.sec.into()));
                self.next.insert(space, at);
            }
        }
    }

    /// A key of each pool that is to be removed by now.
    fn to_remove(&self, now: Now) -> BTreeMap<PoolId, String> {
        let due = self.stale.iter().filter(|(_, (_, at))| *at <= now.mono);
        due.map(|(id, (pool, _))| (*pool, id.clone())).collect()
    }

    /// A stale key is gone, or is removed again later.
    pub fn stale_gone(&mut self, now: Now, id: &str, is_gone: bool) {
        match self.stale.get_mut(id) {
            Some(_) if is_gone => drop(self.stale.remove(id)),
            Some((_, at)) => *at = now.mono + LOOK_EVERY,
            None => {}
        }
    }

    /// What is due is done, or was stopped and is due at once, after all that was due before; a line for the
    /// log where it failed.
    pub fn purged(&mut self, now: Now, space: Space, result: &Result<Found, Failed>) -> Option<String> {
        let now_s = u64::from(now.wall.sec);
        let mut at = self.find(&space).and_then(|s| s.next(now_s));
        self.turns.remove(&space);
        self.behind.remove(&space);
        if let Ok(Found::Stopped { at: id }) = result {
            at = at.map(|_| now_s);
            if self.next.contains_key(&space) && id.len() <= MAX_ID {
                self.behind.insert(space.clone(), id.clone());
            }
        }
        let failed = result.as_ref().err().map(|failed| {
            let place = types::printable(&space.namespace).into_owned();
            format!("the trash of pool {} (namespace '{place}') stays: {}", space.pool, failed.why)
        });
        self.next.entry(space).and_modify(|next| *next = at);
        failed
    }
}

impl Rbd {
    /// Stops purges that have had their turns. The turn of one that waits for the client has not begun.
    fn stop_purges(&mut self, now: Now, client: &Client, out: &mut Vec<Output>) {
        for (id, over) in self.schedules.turns.values_mut() {
            let waits = client.waits(*id);
            if waits || now.mono >= *over {
                *over = now.mono + TURN;
                out.extend((!waits).then_some(Output::CancelJob { id: *id }));
            }
        }
    }

    /// Removes schedules of namespaces that are not there, while no command changes any.
    fn remove_stale(&self, now: Now, client: &mut Client, out: &mut Vec<Output>) {
        for (pool, id) in self.schedules.to_remove(now) {
            if self.current.contains_key(&pool) || removes_stale(client, pool) {
                continue;
            }
            let space = Space { pool, namespace: String::new() };
            let job = Job::Keep { space, object: OBJECT, key: id.clone(), value: None };
            client.submit(job, Why::Stale(pool, id), out);
        }
    }
}

impl Manager {
    /// Looks for schedules and namespaces, and empties trash whose time has come, one after the other.
    pub(super) fn tick_schedules(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = &self.map else { return };
        let (rbd, client) = (&mut self.rbd, &mut self.client);
        let unread = pools(map).filter(|pool| !rbd.schedules.is_read(*pool) && rbd.may_read(now, *pool));
        let ask: Vec<PoolId> = unread.filter(|pool| !client.is_under_way(&Why::Schedules(*pool))).collect();
        for pool in ask {
            // Those of namespaces are with the pool's own.
            let (object, most) = (OBJECT, MAX_LEVELS_OF_POOL);
            client.submit(
                Job::Load { pool, object, most, with_namespaces: false },
                Why::Schedules(pool),
                out,
            );
        }
        let there: BTreeSet<PoolId> = pools(map).collect();
        rbd.schedules.keep_pools(|pool| there.contains(&pool));
        rbd.remove_stale(now, client, out);
        rbd.stop_purges(now, client, out);
        if rbd.schedules.levels.is_empty() {
            return;
        }
        if now.mono >= rbd.schedules.look_at {
            rbd.schedules.look_at = now.mono + LOOK_EVERY;
            let levels = || rbd.schedules.levels.values();
            let has = |pool: &PoolId| levels().any(|(l, _)| l.pool.is_none_or(|p| p == *pool));
            // Before all of a pool's schedules are known the nearest one may be another.
            let is_known = |pool: &PoolId| rbd.schedules.is_read(*pool) && has(pool);
            let ask =
                pools(map).filter(is_known).filter(|pool| !client.is_under_way(&Why::Namespaces(*pool)));
            for pool in ask.collect::<Vec<_>>() {
                if client.submit(Job::Namespaces { pool }, Why::Namespaces(pool), out).is_some() {
                    rbd.schedules.asks(pool);
                }
            }
        }
        self.purge(now, out);
    }

    /// Begins with the trash that has waited longest; one that does not end holds no other pool's.
    fn purge(&mut self, now: Now, out: &mut Vec<Output>) {
        let (rbd, client) = (&mut self.rbd, &mut self.client);
        let purges = client.of_rbd().filter(|(_, why, _)| matches!(why, Why::Purge(_)));
        let busy: BTreeSet<PoolId> = purges.map(|(.., pool)| pool).collect();
        if busy.len() >= MAX_PURGES {
            return;
        }
        let is_due = |at: &Option<u64>| at.is_some_and(|at| at <= u64::from(now.wall.sec));
        let due = rbd.schedules.next.iter().filter(|(s, at)| is_due(at) && !busy.contains(&s.pool));
        let mut due: Vec<(u64, Space)> = due.map(|(space, at)| (at.unwrap_or(0), space.clone())).collect();
        due.sort();
        let is_scheduled = |space: &Space| rbd.schedules.find(space).is_some_and(|s| !s.is_empty());
        let Some(first) = due.iter().position(|(_, space)| is_scheduled(space)) else { return };
        let (_, space) = due.swap_remove(first);
        let behind = rbd.schedules.behind.get(&space).cloned().unwrap_or_default();
        let work = Work::TrashPurge { now: now.wall, behind, except: rbd.tasks.in_trash(&space) };
        let job = Job::Work { space: space.clone(), work };
        if let Some(id) = client.submit(job, Why::Purge(space.clone()), out) {
            rbd.schedules.turns.insert(space, (id, now.mono + TURN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_times_are_read_and_shown_as_in_ceph() {
        for (text, minutes, shown) in [
            ("90", 90, "90m"),
            ("90m", 90, "90m"),
            ("120m", 120, "2h"),
            ("48h", 2_880, "2d"),
            ("7d", 10_080, "7d"),
        ] {
            assert_eq!(interval(text), Ok(minutes), "{text}");
            assert_eq!(interval_text(minutes), shown);
        }
        for bad in ["", "d", "10x", "-1m", "0", "1.5h", "99999999999999999999d", "53000000d"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
        // As 16.2.15 has kept them.
        for (text, minute, shown) in [
            ("14:00", 840, "14:00:00"),
            ("04:30-05:00", 270 + 19 * 60, "04:30:00-05:00"),
            ("2027-01-01T04:30:05+01:00", 330, "04:30:00+01:00"),
            ("4:05Z", 245, "04:05:00+00:00"),
        ] {
            assert_eq!(start(text), Ok((minute, shown.to_owned())), "{text}");
        }
        for bad in ["nonsense", "24:00", "1:60", "1", "1:2:3:4", "1:2:60"] {
            assert!(start(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_next_time_is_that_of_the_first_item() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.next(1_000), None);
        for (every, from) in [("1d", Some("14:00")), ("90m", None)] {
            let (item, text) = item(every, from).expect("an item");
            schedule.0.insert(item, text);
        }
        assert_eq!(schedule.next(0), Some(5_400));
        assert_eq!(schedule.next(5_400), Some(10_800));
        let just_before = 86_400 + 14 * 3_600 - 1;
        assert_eq!(schedule.next(just_before), Some(just_before + 1));
        assert_eq!(Schedule::read(schedule.text().as_bytes()), Some(schedule));
        assert_eq!(Schedule::read(b"{}"), None);
    }
}
