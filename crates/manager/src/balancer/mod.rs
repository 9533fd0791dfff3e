//! Evens out where data lies: by itself every minute, or by hand with plans.
//!
//! Invariants:
//! 1. Nothing is moved while PGs are unknown or inactive, objects degraded, or as many misplaced as may be.
//! 2. The commands of one plan are answered before the next one is made by itself.
//! 3. What is even is left alone: see `maps::balance`.
//!
//! Source: src/pybind/mgr/balancer/module.py.

mod compat;
mod options;
mod plan;
mod score;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use admin::options::Values;
use maps::{BalanceGoal, OsdMap};
use messages::pg_state;
use types::{Errno, Now, PgId, PoolId, Utime};

pub(crate) use options::{Mode, Options};
pub(crate) use plan::Plan;
pub(crate) use score::evaluate;

use crate::pg_map::PgMap;
use crate::sums::Sums;

/// Plans kept at once.
const MAX_PLANS: usize = 64;
/// Bytes that an OSD may be away from its share: this part of the smallest OSD.
const LEAST_BYTES_PART: u64 = 100;

const DONE: &str = "Optimization plan created successfully";
const NOTHING: &str = "Unable to find further optimization, or pool(s) pg_num is decreasing, or distribution is already \
                       perfect";

/// What the balancer knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Balancer {
    pub(crate) options: Options,
    /// In the order in which they were made.
    pub(crate) plans: Vec<Plan>,
    pub(crate) last_started: String,
    pub(crate) last_duration: String,
    pub(crate) last_result: String,
    pub(crate) nothing_to_do: bool,
    /// Whether commands of its own are under way.
    pub(crate) busy: bool,
    next_at: Duration,
}

/// What it looks at.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) now: Now,
    pub(crate) map: &'a OsdMap,
    pub(crate) pgs: &'a PgMap,
    pub(crate) options: &'a Values,
}

impl Balancer {
    /// Takes over settings from the monitors; new ones are acted upon at once.
    pub(crate) fn configure(&mut self, given: &BTreeMap<String, String>) {
        if self.options.set_from_mon(given) {
            self.next_at = Duration::ZERO;
        }
    }

    /// What is to be done by itself now.
    pub(crate) fn tick(&mut self, view: View<'_>) -> Option<Plan> {
        if self.busy || view.now.mono < self.next_at {
            return None;
        }
        self.next_at = view.now.mono + self.options.sleep_interval();
        if !self.options.active() || !self.options.time_permits(view.now.wall) {
            return None;
        }
        let pools = self.options.pool_names(view.map);
        if pools.is_empty() && !self.options.pool_ids().is_empty() {
            return None;
        }
        self.optimize(view, "auto".to_owned(), pools).ok()
    }

    /// Makes a plan.
    pub(crate) fn optimize(
        &mut self,
        view: View<'_>,
        name: String,
        pools: Vec<String>,
    ) -> Result<Plan, (Errno, String)> {
        self.last_started = asctime(view.now.wall);
        // A core has no clock to measure itself with.
        self.last_duration = "0:00:00".to_owned();
        let made = self.plan(view, name, pools);
        self.last_result = match &made {
            Ok(_) => DONE.to_owned(),
            Err((_, text)) => text.clone(),
        };
        self.nothing_to_do = matches!(&made, Err((Errno(114), _)));
        made
    }

    fn plan(&self, view: View<'_>, name: String, pools: Vec<String>) -> Result<Plan, (Errno, String)> {
        let most = view.options.float("target_max_misplaced_ratio");
        ready(view.pgs, most)?;
        let mode = self.options.mode();
        let mut plan = Plan {
            name,
            mode,
            map: view.map.clone(),
            pools,
            upmaps: BTreeMap::new(),
            weights: compat::Weights::default(),
        };
        match mode {
            Mode::None => {
                let text = "Please do \"ceph balancer mode\" to choose a valid mode first";
                return Err((Errno(8), text.to_owned()));
            }
            Mode::CrushCompat => {
                plan.weights = compat::search(view.map, view.pgs, &plan.pools, &self.options, most)?;
            }
            Mode::Upmap => plan.upmaps = self.upmaps(view, &plan.pools, most)?,
        }
        Ok(plan)
    }

    fn upmaps(
        &self,
        view: View<'_>,
        names: &[String],
        most: f64,
    ) -> Result<BTreeMap<PgId, maps::UpmapItems>, (Errno, String)> {
        let map = view.map;
        let wanted = |id: &PoolId| {
            names.is_empty() || map.pool_name(*id).is_some_and(|n| names.iter().any(|w| w == n))
        };
        let mut pools: Vec<PoolId> = map.pools.keys().copied().filter(wanted).collect();
        if pools.is_empty() {
            return Err((Errno::ENOENT, "No pools available".to_owned()));
        }
        // Each time another pool comes first.
        let turn = map.epoch.0 as usize % pools.len();
        pools.rotate_left(turn);
        let bytes: BTreeMap<PgId, u64> =
            view.pgs.pgs.iter().map(|(pg, s)| (*pg, s.stats.sum.num_bytes.max(0) as u64)).collect();
        let sizes = view.pgs.osds.values().map(|r| r.stat.statfs.total).filter(|t| *t > 0);
        let least_bytes = sizes.min().unwrap_or(0) / LEAST_BYTES_PART;
        // No more PGs than may be misplaced at a time, but always one.
        let share = (view.pgs.pgs.len() as f64 * most) as usize;
        let mut left = self.options.upmap_max_optimizations().min(share.max(1));
        let mut all = BTreeMap::new();
        for id in pools {
            let Some(pool) = map.pool(id).filter(|p| p.pg_num <= p.pg_num_target) else { continue };
            let clean = |s: &messages::stats::PgStat| s.state == pg_state::ACTIVE | pg_state::CLEAN;
            let of_pool = view.pgs.pgs.range(PgId::new(id, 0)..=PgId::new(id, pool.pg_num));
            let idle = of_pool.filter(|(_, s)| clean(s)).count();
            let changes = map.balance(&BalanceGoal {
                pools: &BTreeSet::from([id]),
                max_deviation: self.options.upmap_max_deviation(),
                max_changes: left.min(idle),
                bytes: &bytes,
                least_bytes,
            });
            left = left.saturating_sub(changes.len());
            all.extend(changes);
            if left == 0 {
                break;
            }
        }
        match all.is_empty() {
            true => Err((Errno(114), NOTHING.to_owned())),
            false => Ok(all),
        }
    }

    pub(crate) fn plan_named(&self, name: &str) -> Option<&Plan> {
        self.plans.iter().find(|p| p.name == name)
    }

    /// Keeps a plan in place of any of its name; false when there are too many.
    pub(crate) fn keep(&mut self, plan: Plan) -> bool {
        if let Some(old) = self.plans.iter_mut().find(|p| p.name == plan.name) {
            *old = plan;
            return true;
        }
        let room = self.plans.len() < MAX_PLANS;
        if room {
            self.plans.push(plan);
        }
        room
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.plans.retain(|p| p.name != name);
    }
}

/// Refuses while PGs have other worries.
fn ready(pgs: &PgMap, most: f64) -> Result<(), (Errno, String)> {
    let sums = Sums::of(pgs);
    let of_pgs = |n: u32| f64::from(n) / f64::from(sums.num_pg.max(1));
    let sum = sums.total.stats.sum;
    let of_copies = |n: i64| n.max(0) as f64 / sum.num_object_copies.max(1) as f64;
    let later = |text: String| Err((Errno::EAGAIN, text + "; try again later"));
    let unknown = of_pgs(sums.num_unknown);
    let inactive = of_pgs(sums.num_pg.saturating_sub(sums.num_active + sums.num_unknown));
    let (degraded, misplaced) = (of_copies(sum.num_objects_degraded), of_copies(sum.num_objects_misplaced));
    if unknown > 0.0 || !pgs.ready {
        return later(format!("Some PGs ({unknown:.6}) are unknown"));
    }
    if degraded > 0.0 {
        return later(format!("Some objects ({degraded:.6}) are degraded"));
    }
    if inactive > 0.0 {
        return later(format!("Some PGs ({inactive:.6}) are inactive"));
    }
    if misplaced >= most {
        return later(format!("Too many objects ({misplaced:.6} > {most:.6}) are misplaced"));
    }
    Ok(())
}

/// `Sun Nov 22 07:15:01 2026`, in UTC.
fn asctime(at: Utime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, secs) = (at.sec / 86_400, at.sec % 86_400);
    // Years that begin in March, so that leap days come last; 719,468 days before 1970.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let mday = day - (153 * month + 2) / 5 + 1;
    let month = (month + 2) % 12;
    let year = year + era * 400 + u32::from(month < 2);
    let name = |names: &[&'static str], i: u32| names.get(i as usize).copied().unwrap_or_default();
    format!(
        "{} {} {mday:2} {:02}:{:02}:{:02} {year}",
        name(&DAYS, days % 7),
        name(&MONTHS, month),
        secs / 3_600,
        secs / 60 % 60,
        secs % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_c_writes_them() {
        for (sec, want) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_795_331_701, "Sun Nov 22 07:15:01 2026"),
            (4_107_542_399, "Sun Feb 28 23:59:59 2100"),
        ] {
            assert_eq!(asctime(Utime::new(sec, 0)), want);
        }
    }
}
