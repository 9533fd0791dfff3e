//! One event: what it waits for, how far that has come, and the forms in which Ceph's module shows it.
//!
//! Source: src/pybind/mgr/progress/module.py (16.2).

use std::collections::{BTreeMap, BTreeSet};

use maps::OsdMap;
use messages::pg_state;
use messages::stats::PgStat;
use serde_json::{Value, json};
use types::{Epoch, OsdId, PgId, PoolId, Utime};

use crate::pg_map::PgMap;

/// The monitors' time to take a command.
const TAKEN_WITHIN_S: f64 = 60.0;

/// Something that is under way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    pub id: String,
    pub message: String,
    pub started: Utime,
    /// 0 to 1.
    pub done: f64,
    pub goal: Goal,
    /// Why it is over without having come about.
    pub failed: Option<String>,
}

/// What an event waits for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Goal {
    /// PGs that an OSD's going out or coming in has moved.
    Moved(Moved),
    /// All PGs active and clean, as they were reported with this map or a later one.
    AllClean { since: Epoch },
    /// A pool's PG count, which was `from` when that was asked for.
    PgNum { pool: PoolId, from: u32, to: u32 },
    /// What somebody else tells of it.
    Told { refs: Value },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Moved {
    pub osd: OsdId,
    /// The map in which the OSD went or came: what PGs reported before says nothing.
    since: Epoch,
    /// The PGs that have not arrived, and the bytes that each had recovered before.
    left: BTreeMap<PgId, i64>,
    count: usize,
}

impl Moved {
    pub fn new(osd: OsdId, since: Epoch, which: &BTreeSet<PgId>, pgs: &PgMap) -> Self {
        let recovered = |pg: &PgId| pgs.pgs.get(pg).map_or(0, |s| s.stats.sum.num_bytes_recovered);
        Self { osd, since, count: which.len(), left: which.iter().map(|pg| (*pg, recovered(pg))).collect() }
    }

    /// Takes off what has arrived or is gone. A PG that is on its way counts by the bytes that it has
    /// recovered.
    fn look(&mut self, pgs: &PgMap) -> f64 {
        let is_known = |stat: &PgStat| stat.reported_epoch >= self.since;
        self.left.retain(|pg, _| pgs.pgs.get(pg).is_some_and(|s| !(is_known(s) && is_clean(s))));
        let part = |(pg, before): (&PgId, &i64)| {
            let sum = pgs.pgs.get(pg).filter(|s| is_known(s)).map(|s| s.stats.sum)?;
            let recovered = sum.num_bytes_recovered.saturating_sub(*before) as f64;
            (sum.num_bytes > 0).then(|| (recovered / sum.num_bytes as f64).clamp(0.0, 1.0))
        };
        let parts: f64 = self.left.iter().filter_map(part).sum();
        match self.count {
            0 => 1.0,
            _ if self.left.is_empty() => 1.0,
            // However much it has recovered, a PG that is not clean has not arrived.
            count => (((count - self.left.len()) as f64 + parts) / count as f64).clamp(0.0, 0.999),
        }
    }
}

fn is_clean(stat: &PgStat) -> bool {
    let whole = pg_state::ACTIVE | pg_state::CLEAN;
    stat.state & whole == whole
}

/// The part of all PGs that is clean; those that were so before, and have said nothing since, do not count.
///
/// Ceph's module counts them above the line and not below it: its event can end before the last PG is clean.
fn clean_part(since: Epoch, pgs: &PgMap) -> f64 {
    let (mut clean, mut idle) = (0usize, 0usize);
    for stat in pgs.pgs.values().filter(|s| is_clean(s)) {
        *(if stat.reported_epoch >= since { &mut clean } else { &mut idle }) += 1;
    }
    match pgs.pgs.len() - idle {
        0 => 1.0,
        rest => clean as f64 / rest as f64,
    }
}

/// Whether every PG is active and clean.
pub(super) fn all_clean(pgs: &PgMap) -> bool {
    pgs.pgs.values().all(is_clean)
}

impl Event {
    /// Looks how far it has come; true when it is over.
    /// Whether it is the one of this id that somebody else looks after.
    pub fn is_told(&self, id: &str) -> bool {
        self.id == id && matches!(self.goal, Goal::Told { .. })
    }

    pub fn look(&mut self, now: Utime, map: &OsdMap, pgs: &PgMap) -> bool {
        let elapsed_s = self.elapsed_s(now);
        self.done = match &mut self.goal {
            // It is over when that is said.
            Goal::Told { .. } => return false,
            Goal::Moved(moved) => moved.look(pgs),
            Goal::AllClean { since } => clean_part(*since, pgs),
            Goal::PgNum { pool, from, to } => match map.pool(*pool) {
                None => 1.0,
                Some(p) if p.pg_num == *to => 1.0,
                // Before the monitors have taken the command the pool is as it was.
                Some(p)
                    if p.pg_num == p.pg_num_target && (p.pg_num != *from || elapsed_s > TAKEN_WITHIN_S) =>
                {
                    self.failed = Some(format!("the pool has {} PGs", p.pg_num));
                    1.0
                }
                Some(p) => {
                    let (from, to, now) = (f64::from(*from), f64::from(*to), f64::from(p.pg_num));
                    if from == to { 0.0 } else { ((from - now) / (from - to)).clamp(0.0, 0.999) }
                }
            },
        };
        self.done >= 1.0
    }

    fn refs(&self) -> Value {
        match &self.goal {
            Goal::Moved(moved) => json!([["osd", moved.osd.0]]),
            Goal::AllClean { .. } => json!([["global", ""]]),
            Goal::PgNum { pool, .. } => json!([["pool", pool.0]]),
            Goal::Told { refs } => refs.clone(),
        }
    }

    /// Whether `ceph -s` has a line of it.
    pub fn is_in_status(&self) -> bool {
        matches!(self.goal, Goal::AllClean { .. })
    }

    fn elapsed_s(&self, now: Utime) -> f64 {
        (seconds(now) - seconds(self.started)).max(0.0)
    }

    /// Seconds until the end if all goes on as fast as it went so far: what stands still takes longer and
    /// longer.
    fn left_s(&self, now: Utime) -> Option<u64> {
        (self.done > 0.0).then(|| (self.elapsed_s(now) * (1.0 - self.done) / self.done) as u64)
    }

    pub fn lines(&self, now: Utime, indent: usize) -> String {
        two_lines(&self.message, self.elapsed_s(now), self.done, self.left_s(now), indent)
    }

    pub fn json(&self, now: Utime) -> Value {
        json!({
            "id": self.id,
            "message": self.message,
            "duration": format!("({})", span(self.elapsed_s(now) as u64)),
            "refs": self.refs(),
            "progress": self.done,
            "started_at": seconds(self.started),
            "time_remaining": self.left_s(now),
        })
    }

    /// What is kept of it when it is over. The colon in a name is Ceph's.
    pub fn ended(&self, now: Utime) -> Value {
        let mut kept = json!({
            "id": self.id,
            "message": self.message,
            "refs": self.refs(),
            "started_at": seconds(self.started),
            "finished_at": seconds(now),
            "add_to_ceph_s:": self.is_in_status(),
        });
        if let (Some(why), Some(kept)) = (&self.failed, kept.as_object_mut()) {
            kept.insert("failed".to_owned(), json!(true));
            kept.insert("failure_message".to_owned(), json!(why));
        }
        kept
    }
}

pub(super) fn seconds(at: Utime) -> f64 {
    at.as_nanos() as f64 / 1e9
}

/// Source: Event.twoline_progress.
pub(super) fn two_lines(
    message: &str,
    elapsed_s: f64,
    done: f64,
    left_s: Option<u64>,
    indent: usize,
) -> String {
    const WIDTH: usize = 28;
    let full = ((done * WIDTH as f64) as usize).min(WIDTH);
    let bar = "=".repeat(full) + &".".repeat(WIDTH - full);
    let left = left_s.filter(|s| *s > 0).map(|s| format!("(remaining: {})", span(s))).unwrap_or_default();
    format!("{message} ({})\n{:indent$}[{bar}] {left}", span(elapsed_s as u64), "")
}

/// Source: to_pretty_timedelta in src/pybind/mgr/mgr_util.py.
fn span(secs: u64) -> String {
    const UNITS: [(u64, u64, char); 6] = [
        (120, 1, 's'),
        (120 * 60, 60, 'm'),
        (48 * 3_600, 3_600, 'h'),
        (14 * 86_400, 86_400, 'd'),
        (84 * 86_400, 7 * 86_400, 'w'),
        (730 * 86_400, 30 * 86_400, 'M'),
    ];
    let unit = UNITS.iter().find(|(below, ..)| secs < *below).copied();
    let (_, size, name) = unit.unwrap_or((0, 365 * 86_400, 'y'));
    format!("{}{name}", secs / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_one_unit() {
        let all = [0, 119, 120, 7_199, 7_200, 172_800, 1_209_600, 7_257_600, 63_072_000].map(span);
        assert_eq!(all, ["0s", "119s", "2m", "119m", "2h", "2d", "2w", "2M", "2y"]);
    }

    #[test]
    fn the_time_left_grows_while_nothing_goes_on() {
        let goal = Goal::PgNum { pool: PoolId(4), from: 32, to: 16 };
        let started = Utime::new(1_000, 0);
        let mut event =
            Event { id: "i".to_owned(), message: "m".to_owned(), started, done: 0.0, goal, failed: None };
        let left = |e: &Event, after: u32| e.left_s(Utime::new(1_000 + after, 0));
        assert_eq!(left(&event, 10), None, "nothing is known of its speed");
        event.done = 0.25;
        assert_eq!([0, 10, 60].map(|after| left(&event, after)), [Some(0), Some(30), Some(180)]);
        assert_eq!(
            event.lines(Utime::new(1_010, 0), 4),
            "m (10s)\n    [=======.....................] (remaining: 30s)"
        );
        event.done = 1.0;
        assert_eq!(event.lines(Utime::new(1_130, 0), 4), format!("m (2m)\n    [{}] ", "=".repeat(28)));
        assert_eq!(left(&event, 0), Some(0));
        assert_eq!(event.elapsed_s(Utime::new(900, 0)), 0.0, "a clock that was set back");
    }
}
