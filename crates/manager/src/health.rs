//! Reasons for ill health that follow from PG states.
//!
//! Source: PGMap::get_health_checks in src/mon/PGMap.cc.

use std::collections::{BTreeMap, BTreeSet};

use maps::OsdMap;
use messages::mgr::HealthCheck;
use messages::stats::{ObjectStatSum, PgStat};
use types::{PgId, Utime};

use crate::pg_map::{PgMap, state};

const ERROR: u8 = 0;
const WARNING: u8 = 1;
/// A PG may be on its way for this long before it counts as stuck. Source: mon_pg_stuck_threshold, seconds.
const STUCK_S: u32 = 60;
/// Lines of detail per check. Source: mon_health_max_detail.
const MAX_DETAIL: usize = 50;

/// When a PG was last in order, for states that count only when they last.
type StuckSince = fn(&PgStat) -> Utime;

struct Rule {
    bit: u64,
    /// The check applies when the bit is *not* set.
    absent: bool,
    name: &'static str,
    code: &'static str,
    stuck: Option<StuckSince>,
}

const fn at_once(bit: u64, name: &'static str, code: &'static str) -> Rule {
    Rule { bit, absent: false, name, code, stuck: None }
}

const RULES: &[Rule] = &[
    Rule { bit: state::ACTIVE, absent: true, name: "inactive", code: "PG_AVAILABILITY", stuck: Some(|p| p.last_active) },
    at_once(state::DOWN, "down", "PG_AVAILABILITY"),
    at_once(state::DEGRADED, "degraded", "PG_DEGRADED"),
    at_once(state::INCONSISTENT, "inconsistent", "PG_DAMAGED"),
    Rule { bit: state::PEERING, absent: false, name: "peering", code: "PG_AVAILABILITY", stuck: Some(|p| p.last_peered) },
    at_once(state::INCOMPLETE, "incomplete", "PG_AVAILABILITY"),
    Rule { bit: state::STALE, absent: false, name: "stale", code: "PG_AVAILABILITY", stuck: Some(|p| p.last_unstale) },
    at_once(state::RECOVERY_UNFOUND, "recovery_unfound", "PG_DAMAGED"),
    at_once(state::BACKFILL_UNFOUND, "backfill_unfound", "PG_DAMAGED"),
    at_once(state::BACKFILL_TOOFULL, "backfill_toofull", "PG_BACKFILL_FULL"),
    Rule { bit: state::UNDERSIZED, absent: false, name: "undersized", code: "PG_DEGRADED", stuck: Some(|p| p.last_fullsized) },
    at_once(state::RECOVERY_TOOFULL, "recovery_toofull", "PG_RECOVERY_FULL"),
    at_once(state::SNAPTRIM_ERROR, "snaptrim_error", "PG_DAMAGED"),
];

fn heading(code: &str) -> (&'static str, u8) {
    match code {
        "PG_AVAILABILITY" => ("Reduced data availability: ", WARNING),
        "PG_DEGRADED" => ("Degraded data redundancy: ", WARNING),
        "PG_BACKFILL_FULL" => {
            ("Low space hindering backfill (add storage if this doesn't resolve itself): ", WARNING)
        }
        "PG_RECOVERY_FULL" => ("Full OSDs blocking recovery: ", ERROR),
        _ => ("Possible data damage: ", ERROR),
    }
}

#[derive(Default)]
struct Causes {
    /// By name, in the order of `RULES`.
    counts: Vec<(&'static str, i64)>,
    detail: Vec<String>,
    seen: BTreeSet<PgId>,
}

/// All checks that fail at `now`.
pub fn checks(pgs: &PgMap, map: &OsdMap, now: Utime) -> BTreeMap<String, HealthCheck> {
    let mut causes: BTreeMap<&'static str, Causes> = BTreeMap::new();
    let mut sum = ObjectStatSum::default();
    for (pg, stat) in &pgs.pgs {
        sum += stat.stats.sum;
        for rule in RULES {
            if applies(rule, stat, now) {
                note(causes.entry(rule.code).or_default(), rule, *pg, stat, now);
            }
        }
    }
    let mut out = BTreeMap::new();
    for (code, c) in causes {
        out.insert(code.to_owned(), compose(code, c, &sum));
    }
    scrub_and_unfound(&sum, &mut out);
    unreported(pgs, map, &mut out);
    out
}

fn applies(rule: &Rule, stat: &PgStat, now: Utime) -> bool {
    if (stat.state & rule.bit != 0) == rule.absent {
        return false;
    }
    let Some(since) = rule.stuck else { return true };
    let cutoff = Utime::new(now.sec.saturating_sub(STUCK_S), now.nsec);
    let since = since(stat);
    if since.is_zero() { stat.last_change < cutoff } else { since < cutoff }
}

fn note(c: &mut Causes, rule: &Rule, pg: PgId, stat: &PgStat, now: Utime) {
    match c.counts.iter_mut().find(|(name, _)| *name == rule.name) {
        Some((_, n)) => *n += 1,
        None => c.counts.push((rule.name, 1)),
    }
    if c.detail.len() >= MAX_DETAIL || !c.seen.insert(pg) {
        return;
    }
    let acting = format!("{:?}", stat.acting).replace(" ", "");
    let text = state::text(stat.state);
    c.detail.push(match rule.stuck {
        Some(since) => {
            let since = since(stat);
            let lasting = if since.is_zero() {
                "since forever".to_owned()
            } else {
                format!("for {}", monitor::text::span(now.since(since)))
            };
            format!("pg {pg} is stuck {} {lasting}, current state {text}, last acting {acting}", rule.name)
        }
        None => {
            let unfound = stat.stats.sum.num_objects_unfound;
            let tail = if unfound > 0 { format!(", {unfound} unfound") } else { String::new() };
            format!("pg {pg} is {text}, acting {acting}{tail}")
        }
    });
}

fn compose(code: &str, c: Causes, sum: &ObjectStatSum) -> HealthCheck {
    let (heading, severity) = heading(code);
    let mut summary = heading.to_owned();
    if code == "PG_DEGRADED" && sum.num_objects_degraded > 0 && sum.num_object_copies > 0 {
        let percent = sum.num_objects_degraded as f64 / sum.num_object_copies as f64 * 100.0;
        summary += &format!(
            "{}/{} objects degraded ({percent:.3}%), ",
            sum.num_objects_degraded, sum.num_object_copies
        );
    }
    let parts: Vec<String> =
        c.counts.iter().map(|(name, n)| format!("{n} pg{} {name}", if *n > 1 { "s" } else { "" })).collect();
    summary += &parts.join(", ");
    let count = c.counts.iter().map(|(_, n)| n).sum();
    HealthCheck { severity, summary, detail: c.detail, count }
}

fn scrub_and_unfound(sum: &ObjectStatSum, out: &mut BTreeMap<String, HealthCheck>) {
    if sum.num_scrub_errors > 0 {
        let summary = format!("{} scrub errors", sum.num_scrub_errors);
        let check = HealthCheck { severity: ERROR, summary, detail: vec![], count: sum.num_scrub_errors };
        out.insert("OSD_SCRUB_ERRORS".to_owned(), check);
    }
    if sum.num_objects_unfound > 0 && sum.num_objects > 0 {
        let percent = sum.num_objects_unfound as f64 / sum.num_objects as f64 * 100.0;
        let summary =
            format!("{}/{} objects unfound ({percent:.3}%)", sum.num_objects_unfound, sum.num_objects);
        let check = HealthCheck { severity: WARNING, summary, detail: vec![], count: sum.num_objects_unfound };
        out.insert("OBJECT_UNFOUND".to_owned(), check);
    }
    if sum.num_objects_misplaced > 0 && sum.num_object_copies > 0 {
        let percent = sum.num_objects_misplaced as f64 / sum.num_object_copies as f64 * 100.0;
        let summary = format!(
            "{}/{} objects misplaced ({percent:.3}%)",
            sum.num_objects_misplaced, sum.num_object_copies
        );
        let check = HealthCheck { severity: WARNING, summary, detail: vec![], count: sum.num_objects_misplaced };
        out.insert("OBJECT_MISPLACED".to_owned(), check);
    }
}

/// PGs of pools that have existed for a while and that nobody reports.
fn unreported(pgs: &PgMap, map: &OsdMap, out: &mut BTreeMap<String, HealthCheck>) {
    let old = |id: types::PoolId| {
        map.pool(id).is_some_and(|p| map.modified.since(p.create_time).as_secs() > u64::from(STUCK_S))
    };
    let missing: Vec<PgId> = map.pgs().filter(|pg| !pgs.pgs.contains_key(pg) && old(pg.pool)).collect();
    // A manager that has just started has heard of nothing yet.
    if missing.is_empty() || pgs.osds.len() < map.counts().up {
        return;
    }
    let n = missing.len();
    let summary = format!("Reduced data availability: {n} pg{} inactive", if n > 1 { "s" } else { "" });
    let detail = missing.iter().take(MAX_DETAIL).map(|pg| format!("pg {pg} is unknown")).collect();
    let check = HealthCheck { severity: WARNING, summary, detail, count: n as i64 };
    out.entry("PG_AVAILABILITY".to_owned()).or_insert(check);
}
