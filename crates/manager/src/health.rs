//! Reasons for ill health that follow from PG statistics.
//!
//! Source: PGMap::get_health_checks in src/mon/PGMap.cc.

mod osds;
mod pools;

use std::collections::BTreeMap;
use std::time::Duration;

use admin::options::Values;
use maps::{OptValue, OsdMap};
use messages::mgr::HealthCheck;
use messages::pg_state as state;
use messages::stats::{ObjectStatSum, PgStat};
use types::{PgId, Utime};

use crate::daemons::{DaemonKey, Daemons};
use crate::pg_map::PgMap;
use crate::sums::Sums;
use crate::text::osds as osd_list;

pub use self::osds::pending_pgs;

const ERROR: u8 = 0;
const WARNING: u8 = 1;
/// A PG may be on its way for this long before it counts as stuck. Source: mon_pg_stuck_threshold, seconds.
pub const STUCK_S: u32 = 60;
/// Lines of detail per check. Source: mon_health_max_detail.
const MAX_DETAIL: usize = 50;

/// When a PG was last in order, for states that count only when they last.
type StuckSince = fn(&PgStat) -> Utime;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Consequence {
    Unavailable,
    Degraded,
    BackfillFull,
    Damaged,
    RecoveryFull,
}
use Consequence::{BackfillFull, Damaged, Degraded, RecoveryFull, Unavailable};

struct Rule {
    bit: u64,
    /// The check applies when the bit is *not* set.
    absent: bool,
    consequence: Consequence,
    stuck: Option<StuckSince>,
}

const fn at_once(bit: u64, consequence: Consequence) -> Rule {
    Rule { bit, absent: false, consequence, stuck: None }
}

const fn lasting(bit: u64, absent: bool, consequence: Consequence, since: StuckSince) -> Rule {
    Rule { bit, absent, consequence, stuck: Some(since) }
}

/// In the order of the bits, which is that of the summary.
const RULES: &[Rule] = &[
    lasting(state::ACTIVE, true, Unavailable, |p| p.last_active),
    at_once(state::DOWN, Unavailable),
    at_once(state::RECOVERY_UNFOUND, Damaged),
    at_once(state::BACKFILL_UNFOUND, Damaged),
    at_once(state::DEGRADED, Degraded),
    at_once(state::INCONSISTENT, Damaged),
    lasting(state::PEERING, false, Unavailable, |p| p.last_peered),
    at_once(state::INCOMPLETE, Unavailable),
    lasting(state::STALE, false, Unavailable, |p| p.last_unstale),
    at_once(state::BACKFILL_TOOFULL, BackfillFull),
    lasting(state::UNDERSIZED, false, Degraded, |p| p.last_fullsized),
    at_once(state::RECOVERY_TOOFULL, RecoveryFull),
    at_once(state::SNAPTRIM_ERROR, Damaged),
];

impl Rule {
    fn name(&self) -> String {
        if self.absent { "inactive".to_owned() } else { state::to_text(self.bit) }
    }

    fn applies(&self, stat: &PgStat, now: Utime) -> bool {
        if (stat.state & self.bit != 0) == self.absent {
            return false;
        }
        let Some(since) = self.stuck else { return true };
        let cutoff = Utime::new(now.sec.saturating_sub(STUCK_S), now.nsec);
        let since = since(stat);
        if since.is_zero() { stat.last_change < cutoff } else { since < cutoff }
    }
}

impl Consequence {
    /// Code, beginning of the summary, severity.
    fn heading(self) -> (&'static str, &'static str, u8) {
        match self {
            Unavailable => ("PG_AVAILABILITY", "Reduced data availability: ", WARNING),
            Degraded => ("PG_DEGRADED", "Degraded data redundancy: ", WARNING),
            BackfillFull => (
                "PG_BACKFILL_FULL",
                "Low space hindering backfill (add storage if this doesn't resolve itself): ",
                WARNING,
            ),
            Damaged => ("PG_DAMAGED", "Possible data damage: ", ERROR),
            RecoveryFull => ("PG_RECOVERY_FULL", "Full OSDs blocking recovery: ", ERROR),
        }
    }
}

#[derive(Default)]
struct Causes {
    /// PGs by the index of the rule.
    counts: BTreeMap<usize, i64>,
    detail: BTreeMap<PgId, String>,
}

/// Options of the checks.
#[derive(Debug, Clone)]
pub struct Limits {
    /// A scrub, and a deep one, may be late by this share of the time within which each is due; 0: by any time.
    not_scrubbed_ratio: f64,
    not_deep_scrubbed_ratio: f64,
    /// Seconds within which PGs are to be scrubbed.
    scrub_max_interval: f64,
    deep_scrub_interval: f64,
    /// Copies that an OSD may have had replaced.
    repaired: u64,
    osds: osds::Limits,
    pools: pools::Limits,
}

impl Limits {
    /// Some of it monitors of ours look for themselves, and Ceph's do not.
    pub fn of(options: &Values, on_ceph: bool) -> Self {
        Self {
            not_scrubbed_ratio: options.float("mon_warn_pg_not_scrubbed_ratio"),
            not_deep_scrubbed_ratio: options.float("mon_warn_pg_not_deep_scrubbed_ratio"),
            scrub_max_interval: options.float("osd_scrub_max_interval"),
            deep_scrub_interval: options.float("osd_deep_scrub_interval"),
            repaired: u64::try_from(options.int("mon_osd_warn_num_repaired")).unwrap_or(u64::MAX),
            osds: osds::Limits::of(options, on_ceph),
            pools: pools::Limits::of(options, on_ceph),
        }
    }
}

/// All checks that fail at `now`.
pub fn checks(
    pgs: &PgMap,
    sums: &Sums,
    map: &OsdMap,
    now: Utime,
    limits: &Limits,
) -> BTreeMap<String, HealthCheck> {
    let mut causes: BTreeMap<Consequence, Causes> = BTreeMap::new();
    for (pg, stat) in &pgs.pgs {
        for (index, rule) in RULES.iter().enumerate().filter(|(_, r)| r.applies(stat, now)) {
            let c = causes.entry(rule.consequence).or_default();
            *c.counts.entry(index).or_default() += 1;
            if c.detail.len() <= MAX_DETAIL {
                c.detail.insert(*pg, line(rule, *pg, stat, map, now));
            }
        }
    }
    let sum = &sums.total.stats.sum;
    let mut out = BTreeMap::new();
    for (consequence, c) in causes {
        out.insert(consequence.heading().0.to_owned(), compose(consequence, c, sum));
    }
    scrub_errors(sum, &mut out);
    too_many_repairs(pgs, limits, &mut out);
    not_scrubbed(pgs, map, now, limits, &mut out);
    unfound(pgs, sum, &mut out);
    large_omap(sums, map, &mut out);
    osds::checks(pgs, sums, map, now, &limits.osds, &mut out);
    pools::checks(sums, map, &limits.pools, &mut out);
    out
}

fn line(rule: &Rule, pg: PgId, stat: &PgStat, map: &OsdMap, now: Utime) -> String {
    let (acting, text) = (osd_list(&stat.acting), state::to_text(stat.state));
    let mut line = match rule.stuck.map(|since| since(stat)) {
        Some(since) => {
            let lasting = match since.is_zero() {
                true => "since forever".to_owned(),
                false => format!("for {}", monitor::text::span(now.since(since))),
            };
            format!("pg {pg} is stuck {} {lasting}, current state {text}, last acting {acting}", rule.name())
        }
        None => format!("pg {pg} is {text}, acting {acting}"),
    };
    let unfound = stat.stats.sum.num_objects_unfound;
    if rule.stuck.is_none() && unfound != 0 {
        line += &format!(", {unfound} unfound");
    }
    if stat.state & state::INCOMPLETE != 0 {
        if let Some(pool) = map.pool(pg.pool).filter(|p| p.min_size > 1) {
            let name = map.pool_name(pg.pool).unwrap_or_default();
            line += &format!(
                " (reducing pool {name} min_size from {} may help; search ceph.com/docs for 'incomplete')",
                pool.min_size
            );
        }
    }
    line
}

fn compose(consequence: Consequence, c: Causes, sum: &ObjectStatSum) -> HealthCheck {
    let (_, heading, severity) = consequence.heading();
    let mut summary = heading.to_owned();
    if consequence == Degraded && sum.num_objects_degraded != 0 && sum.num_object_copies > 0 {
        summary += &share(sum.num_objects_degraded, sum.num_object_copies, "degraded");
        summary += ", ";
    }
    let part = |(index, n): (&usize, &i64)| {
        let name = RULES.get(*index).map(Rule::name).unwrap_or_default();
        format!("{n} pg{} {name}", if *n > 1 { "s" } else { "" })
    };
    summary += &c.counts.iter().map(part).collect::<Vec<_>>().join(", ");
    HealthCheck {
        severity,
        summary,
        detail: c.detail.into_values().collect(),
        count: c.counts.values().sum(),
    }
}

/// `3/9 objects degraded (33.333%)`.
pub fn share(n: i64, of: i64, what: &str) -> String {
    format!("{n}/{of} objects {what} ({:.3}%)", n as f64 / of as f64 * 100.0)
}

/// Operations that take long. Source: SlowOps in src/mgr/DaemonHealthMetricCollector.cc.
pub fn slow_ops(daemons: &Daemons) -> Option<(String, HealthCheck)> {
    /// Names in the summary.
    const SHOWN: usize = 10;
    let slow: Vec<(&DaemonKey, (u32, u32))> = daemons.slow().collect();
    let names: Vec<String> = slow.iter().map(|(k, _)| format!("{}.{}", k.service, k.id)).collect();
    let count: u64 = slow.iter().map(|(_, (n, _))| u64::from(*n)).sum();
    let oldest_s = slow.iter().map(|(_, (_, age))| *age).max()?;
    let who = match names.as_slice() {
        [one] => format!("{one} has slow ops"),
        all if all.len() > SHOWN => format!(
            "daemons [{}]... have slow ops.",
            all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(",")
        ),
        all => format!("daemons [{}] have slow ops.", all.join(",")),
    };
    let summary = format!("{count} slow ops, oldest one blocked for {oldest_s} sec, {who}");
    Some(("SLOW_OPS".to_owned(), HealthCheck { severity: WARNING, summary, detail: vec![], count: 1 }))
}

fn scrub_errors(sum: &ObjectStatSum, out: &mut BTreeMap<String, HealthCheck>) {
    let count = sum.num_scrub_errors;
    if count != 0 {
        let check =
            HealthCheck { severity: ERROR, summary: format!("{count} scrub errors"), detail: vec![], count };
        out.insert("OSD_SCRUB_ERRORS".to_owned(), check);
    }
}

fn too_many_repairs(pgs: &PgMap, limits: &Limits, out: &mut BTreeMap<String, HealthCheck>) {
    let many = pgs.osds.iter().filter(|(_, r)| r.stat.num_shards_repaired > limits.repaired);
    let line = |(osd, r): (&types::OsdId, &crate::OsdReport)| {
        format!("osd.{} had {} reads repaired", osd.0, r.stat.num_shards_repaired)
    };
    let detail: Vec<String> = many.map(line).collect();
    if detail.is_empty() {
        return;
    }
    let summary = format!("Too many repaired reads on {} OSDs", detail.len());
    let count = detail.len() as i64;
    out.insert("OSD_TOO_MANY_REPAIRS".to_owned(), HealthCheck { severity: WARNING, summary, detail, count });
}

/// PGs whose scrubs are late.
fn not_scrubbed(
    pgs: &PgMap,
    map: &OsdMap,
    now: Utime,
    limits: &Limits,
    out: &mut BTreeMap<String, HealthCheck>,
) {
    type Stamp = fn(&PgStat) -> Utime;
    let kinds: [(&str, &str, &str, f64, f64, Stamp); 2] = [
        (
            "PG_NOT_SCRUBBED",
            "scrubbed",
            "scrub_max_interval",
            limits.not_scrubbed_ratio,
            limits.scrub_max_interval,
            |s| s.last_scrub_stamp,
        ),
        (
            "PG_NOT_DEEP_SCRUBBED",
            "deep-scrubbed",
            "deep_scrub_interval",
            limits.not_deep_scrubbed_ratio,
            limits.deep_scrub_interval,
            |s| s.last_deep_scrub_stamp,
        ),
    ];
    for (code, word, option, ratio, default, stamp) in kinds {
        if ratio == 0.0 {
            continue;
        }
        let within = |pg: &PgId| match map.pool(pg.pool)?.opts.get(option) {
            Some(OptValue::Double(s)) if *s > 0.0 => Some(*s),
            _ => Some(default),
        };
        let late = |(pg, s): &(&PgId, &PgStat)| {
            let age = within(pg).and_then(|s| Duration::try_from_secs_f64(s + s * ratio).ok());
            age.is_some_and(|age| stamp(s) < stuck_cutoff(now, age))
        };
        let all: Vec<(&PgId, &PgStat)> = pgs.pgs.iter().filter(late).collect();
        if all.is_empty() {
            continue;
        }
        let line = |(pg, s): &(&PgId, &PgStat)| format!("pg {pg} not {word} since {}", stamp(s));
        let mut detail: Vec<String> = all.iter().take(MAX_DETAIL).map(line).collect();
        if all.len() > MAX_DETAIL {
            detail.push(format!("{} more pgs... ", all.len() - MAX_DETAIL));
        }
        let (summary, count) = (format!("{} pgs not {word} in time", all.len()), all.len() as i64);
        out.insert(code.to_owned(), HealthCheck { severity: WARNING, summary, detail, count });
    }
}

fn unfound(pgs: &PgMap, sum: &ObjectStatSum, out: &mut BTreeMap<String, HealthCheck>) {
    let count = sum.num_objects_unfound;
    if count == 0 || sum.num_objects <= 0 {
        return;
    }
    let line = |(pg, s): (&PgId, &PgStat)| {
        let n = s.stats.sum.num_objects_unfound;
        (n != 0).then(|| format!("pg {pg} has {n} unfound objects"))
    };
    let mut detail: Vec<String> = pgs.pgs.iter().filter_map(line).take(MAX_DETAIL + 1).collect();
    if detail.len() > MAX_DETAIL {
        detail.push("(additional pgs left out for brevity)".to_owned());
    }
    let summary = share(count, sum.num_objects, "unfound");
    out.insert("OBJECT_UNFOUND".to_owned(), HealthCheck { severity: WARNING, summary, detail, count });
}

fn large_omap(sums: &Sums, map: &OsdMap, out: &mut BTreeMap<String, HealthCheck>) {
    let count = sums.total.stats.sum.num_large_omap_objects;
    if count == 0 {
        return;
    }
    let mut detail = Vec::new();
    for (id, pool) in &sums.pools {
        let n = pool.stat.stats.sum.num_large_omap_objects;
        if let (Some(name), true) = (map.pool_name(*id), n != 0) {
            detail.push(format!("{n} large objects found in pool '{name}'"));
        }
    }
    detail.push("Search the cluster log for 'Large omap object found' for more details.".to_owned());
    let summary = format!("{count} large omap objects");
    let check = HealthCheck { severity: WARNING, summary, detail, count };
    out.insert("LARGE_OMAP_OBJECTS".to_owned(), check);
}

/// Seconds before now that count as stuck.
pub fn stuck_cutoff(now: Utime, threshold: Duration) -> Utime {
    Utime::from_nanos(now.as_nanos().saturating_sub(u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX)))
}
