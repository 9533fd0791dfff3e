//! Evens out where data lies: by itself every minute, or by hand with plans.
//!
//! Invariants:
//! 1. Nothing is moved while PGs are unknown or inactive, objects degraded, or as many misplaced as may be.
//! 2. The commands of one plan are answered before the next one is made by itself.
//! 3. What is even is left alone: see `maps::balance`.
//! 4. By itself it looks at no more than `PGS_PER_TURN` PGs at a time, or at one pool, or takes one step of a
//!    search for weights; the next tick goes on with the others.
//!
//! Source: src/pybind/mgr/balancer/module.py.

mod compat;
mod options;
mod plan;
mod score;
mod score_text;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use admin::options::Values;
use maps::{BalanceGoal, OsdMap};
use messages::pg_state;
use types::{Errno, Now, PgId, PoolId, Utime};

pub(crate) use options::{Mode, OPTIONS, Options};
pub(crate) use plan::Plan;
pub(crate) use score::evaluate;

use compat::Search;

use crate::pg_map::PgMap;
use crate::sums::Sums;

/// Plans kept at once.
const MAX_PLANS: usize = 64;
/// A turn of a round over all pools: commands and reports wait meanwhile.
const PGS_PER_TURN: usize = 1_024;
/// Bytes that an OSD may be away from its share: this part of the smallest OSD.
const LEAST_BYTES_PART: u64 = 100;

const DONE: &str = "Optimization plan created successfully";
const NO_POOLS: &str = "No pools available";
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
    round: Option<Round>,
    /// A search for weights, and the plan that they are for.
    search: Option<Box<(Plan, Search)>>,
}

/// A look at all pools, in several turns.
#[derive(Debug, Clone, Default)]
struct Round {
    left: VecDeque<PoolId>,
    found: bool,
    /// PGs that may still be moved.
    moves: usize,
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
            // They were begun with other pools and limits.
            self.round = None;
            self.search = None;
        }
    }

    /// What is to be done by itself now.
    pub(crate) fn tick(&mut self, view: View<'_>) -> Option<Plan> {
        self.options.tick(view.now.mono);
        if self.busy || view.now.mono < self.next_at {
            return None;
        }
        self.next_at = view.now.mono + self.options.sleep_interval();
        if !self.options.active() || !self.options.time_permits(view.now.wall) {
            self.search = None;
            return None;
        }
        let pools = self.options.pool_names(view.map);
        if pools.is_empty() && !self.options.pool_ids().is_empty() {
            return None;
        }
        match self.options.mode() {
            Mode::Upmap => self.turn(view, pools),
            Mode::CrushCompat => self.search_turn(view, pools),
            Mode::None => self.optimize(view, "auto".to_owned(), pools).ok(),
        }
    }

    /// One step of the search for weights that is under way, or the beginning of one.
    fn search_turn(&mut self, view: View<'_>, pools: Vec<String>) -> Option<Plan> {
        let most = view.options.float("target_max_misplaced_ratio");
        // What was found on another map would undo what has changed since.
        let under_way = self.search.take().filter(|s| places_alike(&s.0.map, view.map));
        let made = match under_way {
            None => {
                self.start(view.now);
                let plan = self.empty_plan(view, "auto".to_owned(), pools);
                ready(view.pgs, most)
                    .and_then(|()| Search::begin(&plan.map, view.pgs, &plan.pools, &self.options))
                    .map(|search| (plan, search))
            }
            Some(under_way) => {
                let (plan, mut search) = *under_way;
                if search.turn(&plan.map, view.pgs, &plan.pools, most) {
                    let found = ready(view.pgs, most).and_then(|()| search.found());
                    let made = found.map(|weights| Plan { weights, ..plan });
                    self.conclude(&made);
                    return made.ok();
                }
                Ok((plan, search))
            }
        };
        match made {
            Ok(under_way) => {
                self.search = Some(Box::new(under_way));
                self.next_at = view.now.mono;
            }
            Err(why) => self.conclude(&Err(why)),
        }
        None
    }

    /// One turn of the round that is under way, or of a new one.
    fn turn(&mut self, view: View<'_>, pools: Vec<String>) -> Option<Plan> {
        let most = view.options.float("target_max_misplaced_ratio");
        let mut round = self.round.take().unwrap_or_else(|| Round {
            left: pool_order(view.map, &pools),
            found: false,
            moves: self.most_moves(view, most),
        });
        self.start(view.now);
        if round.left.is_empty() {
            self.last_result = NO_POOLS.to_owned();
            return None;
        }
        let upmaps = match ready(view.pgs, most) {
            Ok(()) => self.upmaps(view, &mut round.left, &mut round.moves, PGS_PER_TURN),
            Err((_, text)) => {
                self.last_result = text;
                self.nothing_to_do = false;
                return None;
            }
        };
        round.found |= !upmaps.is_empty();
        let over = round.left.is_empty();
        if round.found || over {
            self.last_result = if round.found { DONE } else { NOTHING }.to_owned();
            self.nothing_to_do = !round.found;
        }
        if !over {
            self.round = Some(round);
            self.next_at = view.now.mono;
        }
        (!upmaps.is_empty()).then(|| self.empty_plan(view, "auto".to_owned(), pools).with(upmaps))
    }

    fn start(&mut self, now: Now) {
        self.last_started = asctime(now.wall);
        // A core has no clock to measure itself with.
        self.last_duration = "0:00:00".to_owned();
    }

    fn conclude(&mut self, made: &Result<Plan, (Errno, String)>) {
        self.last_result = match made {
            Ok(_) => DONE.to_owned(),
            Err((_, text)) => text.clone(),
        };
        self.nothing_to_do = matches!(made, Err((Errno(114), _)));
    }

    fn empty_plan(&self, view: View<'_>, name: String, pools: Vec<String>) -> Plan {
        let (mode, map) = (self.options.mode(), view.map.clone());
        Plan { name, mode, map, pools, upmaps: BTreeMap::new(), weights: compat::Weights::default() }
    }

    /// Makes a plan.
    pub(crate) fn optimize(
        &mut self,
        view: View<'_>,
        name: String,
        pools: Vec<String>,
    ) -> Result<Plan, (Errno, String)> {
        self.start(view.now);
        let made = self.plan(view, name, pools);
        self.conclude(&made);
        made
    }

    fn plan(&self, view: View<'_>, name: String, pools: Vec<String>) -> Result<Plan, (Errno, String)> {
        let most = view.options.float("target_max_misplaced_ratio");
        ready(view.pgs, most)?;
        let mut plan = self.empty_plan(view, name, pools);
        match plan.mode {
            Mode::None => {
                let text = "Please do \"ceph balancer mode\" to choose a valid mode first";
                return Err((Errno(8), text.to_owned()));
            }
            Mode::CrushCompat => {
                let mut search = Search::begin(view.map, view.pgs, &plan.pools, &self.options)?;
                while !search.turn(view.map, view.pgs, &plan.pools, most) {}
                plan.weights = search.found()?;
            }
            Mode::Upmap => {
                let mut ids = pool_order(view.map, &plan.pools);
                if ids.is_empty() {
                    return Err((Errno::ENOENT, NO_POOLS.to_owned()));
                }
                plan.upmaps = self.upmaps(view, &mut ids, &mut self.most_moves(view, most), usize::MAX);
                if plan.upmaps.is_empty() {
                    return Err((Errno(114), NOTHING.to_owned()));
                }
            }
        }
        Ok(plan)
    }

    /// How many PGs may be moved in one round: no more than may be misplaced at a time, but always one.
    fn most_moves(&self, view: View<'_>, most: f64) -> usize {
        let share = (view.pgs.pgs.len() as f64 * most) as usize;
        self.options.upmap_max_optimizations().min(share.max(1))
    }

    /// Replacements for the first of `pools`, which are taken from it: all, or as many as `most_pgs` allow. At most `moves`,
    /// which becomes less by them; none are left when no more may be moved now.
    fn upmaps(
        &self,
        view: View<'_>,
        pools: &mut VecDeque<PoolId>,
        moves: &mut usize,
        most_pgs: usize,
    ) -> BTreeMap<PgId, maps::UpmapItems> {
        let map = view.map;
        let mut seen = 0;
        let bytes: BTreeMap<PgId, u64> =
            view.pgs.pgs.iter().map(|(pg, s)| (*pg, s.stats.sum.num_bytes.max(0) as u64)).collect();
        let sizes = view.pgs.osds.values().map(|r| r.stat.statfs.total).filter(|t| *t > 0);
        let least_bytes = sizes.min().unwrap_or(0) / LEAST_BYTES_PART;
        let mut all = BTreeMap::new();
        while let Some(id) = pools.front().copied() {
            let pgs = map.pool(id).map_or(0, |p| p.pg_num as usize);
            if seen > 0 && seen + pgs > most_pgs {
                break;
            }
            seen += pgs.max(1);
            pools.pop_front();
            let Some(pool) = map.pool(id).filter(|p| p.pg_num <= p.pg_num_target) else { continue };
            let clean = |s: &messages::stats::PgStat| s.state == pg_state::ACTIVE | pg_state::CLEAN;
            let of_pool = view.pgs.pgs.range(PgId::new(id, 0)..=PgId::new(id, pool.pg_num));
            let idle = of_pool.filter(|(_, s)| clean(s)).count();
            let changes = map.balance(&BalanceGoal {
                pools: &BTreeSet::from([id]),
                max_deviation: self.options.upmap_max_deviation(),
                max_changes: (*moves).min(idle),
                bytes: &bytes,
                least_bytes,
            });
            *moves = moves.saturating_sub(changes.len());
            all.extend(changes);
            if *moves == 0 {
                pools.clear();
            }
        }
        all
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

/// The pools of these names, or all. Each time another one comes first.
fn pool_order(map: &OsdMap, names: &[String]) -> VecDeque<PoolId> {
    let wanted =
        |id: &PoolId| names.is_empty() || map.pool_name(*id).is_some_and(|n| names.iter().any(|w| w == n));
    let mut pools: VecDeque<PoolId> = map.pools.keys().copied().filter(wanted).collect();
    let turn = map.epoch.0 as usize % pools.len().max(1);
    pools.rotate_left(turn);
    pools
}

/// Whether weights found on one map fit the other: the same tree, weights of OSDs, and pools.
fn places_alike(a: &OsdMap, b: &OsdMap) -> bool {
    let pools = |map: &OsdMap| {
        let shape = |p: &maps::Pool| (p.pg_num, p.pgp_num, p.size, p.crush_rule);
        map.pools.iter().map(|(id, p)| (*id, shape(p))).collect::<Vec<_>>()
    };
    a.crush_version == b.crush_version && a.weights == b.weights && pools(a) == pools(b)
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
    fn a_round_takes_as_many_turns_as_its_pgs_need() {
        let mut map =
            OsdMap::new_cluster(types::Fsid([1; 16]), Utime::new(1, 0), crush::CrushMap::new_default());
        for id in 1..=5 {
            map.pools.insert(PoolId(id), maps::Pool::new(maps::PoolType::Replicated, 600));
            map.pool_names.insert(PoolId(id), format!("p{id}"));
        }
        let (mut pgs, options) = (PgMap::default(), Values::new("mgr.x".to_owned(), &BTreeMap::new()));
        pgs.ready = true;
        let mut balancer = Balancer::default();
        let mut left = Vec::new();
        let mut now = Now { mono: Duration::from_secs(100), wall: Utime::new(1_795_331_701, 0) };
        while left.len() < 6 {
            assert!(balancer.tick(View { now, map: &map, pgs: &pgs, options: &options }).is_none());
            left.push(balancer.round.as_ref().map(|r| r.left.len()));
            now.mono += Duration::from_millis(250);
        }
        assert_eq!(
            left,
            [Some(4), Some(3), Some(2), Some(1), None, None],
            "one pool a turn, then the usual wait"
        );
        assert!(balancer.nothing_to_do);
        now.mono += balancer.options.sleep_interval();
        balancer.tick(View { now, map: &map, pgs: &pgs, options: &options });
        assert_eq!(balancer.round.as_ref().map(|r| r.left.len()), Some(4), "the next round");
        balancer
            .configure(&BTreeMap::from([("mgr/balancer/upmap_max_deviation".to_owned(), "1".to_owned())]));
        assert!(balancer.round.is_none(), "other limits begin a new one");
    }

    #[test]
    fn what_may_be_moved_counts_for_a_whole_round() {
        let (map, pgs) = uneven(4);
        let options = Values::new("mgr.x".to_owned(), &BTreeMap::new());
        let now = Now { mono: Duration::from_secs(100), wall: Utime::new(1_795_331_701, 0) };
        // What each turn of one round moves.
        let round = |most: usize| {
            let mut balancer = Balancer::default();
            balancer.configure(&BTreeMap::from([
                ("mgr/balancer/upmap_max_deviation".to_owned(), "1".to_owned()),
                ("mgr/balancer/upmap_max_optimizations".to_owned(), most.to_string()),
            ]));
            let mut moved = Vec::new();
            while moved.is_empty() || balancer.round.is_some() {
                let plan = balancer.tick(View { now, map: &map, pgs: &pgs, options: &options });
                moved.push(plan.map_or(0, |p| p.upmaps.len()));
            }
            moved
        };
        let all = round(1_000);
        let first = all.first().copied().unwrap_or(0);
        assert!(first > 0 && all.iter().sum::<usize>() > first + 1, "{all:?}");
        let few = round(first + 1);
        assert!(few.len() > 1, "more than one pool is looked at: {few:?}");
        assert_eq!(few.iter().sum::<usize>(), first + 1, "{few:?}");
    }

    /// Pools of 600 PGs on six hosts, all clean.
    fn uneven(pools: i64) -> (OsdMap, PgMap) {
        let mut crush = crush::CrushMap::new_default();
        for id in 0..6 {
            let place = [("host".to_owned(), format!("h{id}")), ("root".to_owned(), "default".to_owned())];
            crush.insert_item(id, 0x10000, &format!("osd.{id}"), &BTreeMap::from(place)).expect("free");
        }
        let (mode, kind) = (crush::RuleMode::Firstn, crush::RULE_REPLICATED);
        let rule =
            crush.add_simple_rule("r", "default", "host", None, mode, kind, None).expect("a free name");
        crush.finalize();
        let mut map = OsdMap::new_cluster(types::Fsid([1; 16]), Utime::new(1, 0), crush);
        map.require_min_compat_client = maps::Release::LUMINOUS;
        map.set_max_osd(6);
        map.weights.iter_mut().for_each(|w| *w = maps::flags::WEIGHT_IN);
        let up = maps::flags::osd_state::EXISTS | maps::flags::osd_state::UP;
        map.osds.iter_mut().for_each(|o| o.state = up);
        for id in 1..=pools {
            let mut pool = maps::Pool::new(maps::PoolType::Replicated, 600);
            (pool.size, pool.min_size, pool.crush_rule) = (3, 2, rule as u8);
            map.pools.insert(PoolId(id), pool);
            map.pool_names.insert(PoolId(id), format!("p{id}"));
        }
        let now = Now { mono: Duration::from_secs(1), wall: Utime::new(1, 0) };
        let mut pgs = PgMap::default();
        pgs.map_changed(&map, now);
        pgs.pgs.values_mut().for_each(|s| s.state = pg_state::ACTIVE | pg_state::CLEAN);
        pgs.ready = true;
        (map, pgs)
    }

    /// Gives osd.3 another weight.
    fn reweigh(map: &mut OsdMap, to: u32) {
        map.weights.iter_mut().skip(3).take(1).for_each(|w| *w = to);
    }

    /// What was found on the map of the search's beginning would take back what an operator did meanwhile.
    #[test]
    fn a_search_for_weights_begins_anew_when_the_map_or_the_hour_is_another() {
        let given = BTreeMap::from([("target_max_misplaced_ratio".to_owned(), "0.9".to_owned())]);
        let options = Values::new("mgr.x".to_owned(), &given);
        // `None`: the hour is over.
        type Change = fn(&mut OsdMap);
        let cases: [(Option<Change>, bool); 6] = [
            (Some(|map| map.crush_version += 1), false),
            (Some(|map| reweigh(map, maps::flags::WEIGHT_IN)), false),
            (Some(|map| map.pools.values_mut().for_each(|p| p.pgp_num -= 1)), false),
            (Some(|map| map.pool_max += 1), true),
            (None, false),
            (Some(|map| reweigh(map, 0)), false),
        ];
        for (i, (change, goes_on)) in cases.into_iter().enumerate() {
            let (mut map, pgs) = uneven(1);
            reweigh(&mut map, maps::flags::WEIGHT_IN / 2);
            let mut balancer = Balancer::default();
            balancer.configure(&BTreeMap::from([
                ("mgr/balancer/mode".to_owned(), "crush-compat".to_owned()),
                ("mgr/balancer/end_time".to_owned(), "0100".to_owned()),
            ]));
            let mut now = Now { mono: Duration::from_secs(100), wall: Utime::new(0, 0) };
            let mut tick = |map: &OsdMap, now: Now| {
                let plan = balancer.tick(View { now, map, pgs: &pgs, options: &options });
                (plan.map(|p| p.weights), balancer.search.as_ref().map(|s| s.0.map.epoch))
            };
            let begun = map.epoch;
            (0..2).for_each(|_| assert_eq!(tick(&map, now), (None, Some(begun)), "{i}"));
            let Some(change) = change else {
                now.wall = Utime::new(3_600, 0);
                assert_eq!(tick(&map, now), (None, None), "{i}");
                continue;
            };
            change(&mut map);
            map.epoch = map.epoch.next();
            let expected = if goes_on { begun } else { map.epoch };
            assert_eq!(tick(&map, now), (None, Some(expected)), "{i}");
            if map.weights.get(3) == Some(&0) {
                let found = (0..100).find_map(|_| tick(&map, now).0);
                let weights = found.expect("a plan");
                assert!(!weights.reweight.contains_key(&3), "it stays out: {weights:?}");
            }
        }
    }

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
