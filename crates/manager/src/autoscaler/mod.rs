//! How many PGs each pool should have, and the change of those whose mode is `on`.
//!
//! Invariants:
//! 1. Only a pool with mode `on` is changed, and only when it is away from what it should have by more than
//!    `THRESHOLD`.
//! 2. The commands of one look are answered before the next one.
//! 3. What health says is from the last look, and nothing while the autoscaler is switched off.
//!
//! Source: src/pybind/mgr/pg_autoscaler/module.py (16.2).

mod checks;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use admin::options::Values;
use maps::{AutoscaleMode, OptValue, OsdMap, Pool, pool_flags};
use messages::mgr::HealthCheck;
use serde_json::json;
use types::{Now, OsdId, PoolId};

use crate::modules::is_on;
use crate::mon_commands::MonRequest;
use crate::pg_map::{PgMap, unserved};
use crate::sums::Sums;

/// A pool that does not say otherwise has at least so many.
const PG_NUM_MIN: u32 = 32;
/// A pool is left alone as long as it is within this factor of its ideal.
const THRESHOLD: f64 = 3.0;

const PREFIX: &str = "mgr/pg_autoscaler/";
/// Name, type and default of each option. Source: MODULE_OPTIONS.
pub(crate) const OPTIONS: [(&str, &str, &str); 2] =
    [("noautoscale", "bool", "false"), ("sleep_interval", "secs", "60")];

/// When it looks at pools.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Autoscaler {
    /// As the option `noautoscale` says, or as somebody has asked for it.
    pub(crate) off: bool,
    sleep_interval: Duration,
    look_at: Duration,
    /// By code.
    pub(crate) checks: BTreeMap<String, HealthCheck>,
}

impl Default for Autoscaler {
    fn default() -> Self {
        let sleep_interval = Duration::from_secs(60);
        Self { off: false, sleep_interval, look_at: Duration::ZERO, checks: BTreeMap::new() }
    }
}

impl Autoscaler {
    /// Takes over what the monitors say of its options.
    pub(crate) fn configure(&mut self, given: &BTreeMap<String, String>) {
        let get = |name: &str| given.get(&format!("{PREFIX}{name}")).map(|v| v.trim());
        self.off = is_on(get("noautoscale"), false);
        let secs = get("sleep_interval").and_then(|v| v.parse::<f64>().ok()).filter(|v| v.is_finite());
        let interval = Duration::from_secs_f64(secs.unwrap_or(60.0).clamp(1.0, 1e7));
        if std::mem::replace(&mut self.sleep_interval, interval) != interval {
            self.look_at = Duration::ZERO;
        }
    }

    /// The pools that are to have another PG count now: none while a PG is not known, for a pool whose PGs
    /// have not reported looks empty. What health says stays meanwhile.
    pub(crate) fn tick(&mut self, now: Now, map: &OsdMap, pgs: &PgMap, options: &Values) -> Vec<Row> {
        if self.off {
            self.checks.clear();
            return Vec::new();
        }
        if now.mono < self.look_at {
            return Vec::new();
        }
        self.look_at = now.mono + self.sleep_interval;
        if Sums::of(pgs).num_unknown > 0 {
            return Vec::new();
        }
        let (rows, trees) = look(map, pgs, options);
        self.checks = checks::checks(map, &rows, &trees);
        rows.into_iter().filter(Row::would_adjust).collect()
    }
}

/// Pools below CRUSH roots that share OSDs.
#[derive(Default)]
struct Tree {
    roots: BTreeSet<i32>,
    osds: BTreeSet<i32>,
    capacity: u64,
    pools: u32,
    /// Of its pools.
    names: Vec<String>,
    /// Pools that have got their part.
    served: u32,
    /// Copies of PGs that are not given away yet.
    left: i64,
    target_ratios: f64,
    target_bytes: f64,
}

/// One pool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub pool: PoolId,
    pub name: String,
    pub mode: AutoscaleMode,
    pub root: i32,
    pub capacity: u64,
    pub logical_used: f64,
    pub rate: f64,
    pub bias: f64,
    pub target_bytes: u64,
    pub target_ratio: f64,
    pub effective_ratio: f64,
    pub capacity_ratio: f64,
    /// The part of what is left that the pool gets.
    pub final_ratio: f64,
    pub pg_num: u32,
    pub pg_num_target: u32,
    pub ideal: f64,
    pub pg_num_final: u32,
    pub bulk: bool,
}

impl Row {
    pub(crate) fn would_adjust(&self) -> bool {
        let (now, then) = (f64::from(self.pg_num_target), f64::from(self.pg_num_final));
        self.mode == AutoscaleMode::ON
            && (then > now * THRESHOLD || then < now / THRESHOLD)
            && (0.0..=1.0).contains(&self.final_ratio)
    }

    /// The command that has the monitors do it.
    pub(crate) fn request(&self) -> MonRequest {
        let json = json!({
            "prefix": "osd pool set", "pool": self.name, "var": "pg_num", "val": self.pg_num_final.to_string(),
        });
        MonRequest { json: json.to_string(), ..MonRequest::default() }
    }

    /// What is known of a pool before PGs are given away; `None` where nothing is to be said of it.
    fn new(map: &OsdMap, sums: &Sums, tree: &Tree, id: PoolId, pool: &Pool) -> Option<Self> {
        let rate = raw_rate(map, pool);
        let stat = sums.pools.get(&id).map(|p| p.stat).unwrap_or_default();
        let logical_used = match stat.num_store_stats > 0 && rate > 0.0 {
            true => (stat.store_stats.data_stored.max(0) as f64 / rate).trunc(),
            false => stat.stats.sum.num_bytes.max(0) as f64,
        };
        let target_ratio = float(pool, "target_size_ratio");
        // A ratio goes before bytes.
        let target_bytes = if target_ratio == 0.0 { float(pool, "target_size_bytes") as u64 } else { 0 };
        let share = |raw: f64| raw / tree.capacity as f64;
        let of_all = if tree.target_ratios > 0.0 { target_ratio / tree.target_ratios } else { 0.0 };
        let effective_ratio = of_all * (1.0 - share(tree.target_bytes).min(1.0));
        let capacity_ratio = share(logical_used.max(target_bytes as f64) * rate).max(effective_ratio);
        let bias = match float(pool, "pg_autoscale_bias") {
            0.0 => 1.0,
            bias => bias,
        };
        (tree.capacity > 0).then_some(Self {
            pool: id,
            name: map.pool_name(id)?.to_owned(),
            mode: pool.autoscale_mode,
            root: root_of(map, pool)?,
            capacity: tree.capacity,
            logical_used,
            rate,
            bias,
            target_bytes,
            target_ratio,
            effective_ratio,
            capacity_ratio,
            final_ratio: 0.0,
            pg_num: pool.pg_num,
            pg_num_target: pool.pg_num_target,
            ideal: 0.0,
            pg_num_final: 0,
            bulk: pool.has_flag(pool_flags::BULK),
        })
    }

    /// Gives the pool this part of what is left.
    fn give(&mut self, pool: &Pool, ratio: f64, left: i64) {
        self.final_ratio = ratio;
        self.ideal = ratio * left as f64 / f64::from(pool.size.max(1)) * self.bias;
        let least = number(pool, "pg_num_min").unwrap_or(PG_NUM_MIN);
        let most = number(pool, "pg_num_max").filter(|m| *m > 0).unwrap_or(u32::MAX);
        self.pg_num_final = nearest_power_of_two(self.ideal).max(least).min(most);
    }
}

/// What each pool should have, in the order in which they are served: first what pools need by their data,
/// then bulk pools with much of it, at last all other bulk pools alike. Pools whose roots overlap are left
/// out.
///
/// Source: PgAutoscaler._get_pool_status, _get_pool_pg_targets, _calc_final_pg_target.
pub(crate) fn rows(map: &OsdMap, pgs: &PgMap, options: &Values) -> Vec<Row> {
    look(map, pgs, options).0
}

/// The rows, and the trees that their pools are in.
fn look(map: &OsdMap, pgs: &PgMap, options: &Values) -> (Vec<Row>, Vec<Tree>) {
    let sums = Sums::of(pgs);
    let mut trees = trees(map, pgs, options.int("mon_target_pg_per_osd").clamp(1, 100_000));
    let (mut out, mut bulk, mut even) = (Vec::new(), Vec::new(), Vec::new());
    let unserved = unserved(map);
    for (id, pool) in map.pools.iter().filter(|(id, _)| !unserved.contains(id)) {
        let Some(tree) = tree_of(&mut trees, map, pool).filter(|t| t.roots.len() == 1) else { continue };
        let Some(mut row) = Row::new(map, &sums, tree, *id, pool) else { continue };
        if row.bulk {
            bulk.push((row, pool));
            continue;
        }
        row.give(pool, row.capacity_ratio, tree.left);
        tree.left -= (row.capacity_ratio * tree.left as f64) as i64;
        tree.served += 1;
        out.push(row);
    }
    let even_part = |tree: &Tree| 1.0 / f64::from(tree.pools.saturating_sub(tree.served).max(1));
    for (mut row, pool) in bulk {
        let Some(tree) = tree_of(&mut trees, map, pool) else { continue };
        if row.capacity_ratio <= even_part(tree) {
            even.push((row, pool));
            continue;
        }
        tree.served += 1;
        row.give(pool, row.capacity_ratio, tree.left);
        tree.left -= (row.capacity_ratio * tree.left as f64) as i64;
        out.push(row);
    }
    for (mut row, pool) in even {
        let Some(tree) = tree_of(&mut trees, map, pool) else { continue };
        row.give(pool, even_part(tree), tree.left);
        out.push(row);
    }
    (out, trees)
}

fn tree_of<'a>(trees: &'a mut [Tree], map: &OsdMap, pool: &Pool) -> Option<&'a mut Tree> {
    let root = root_of(map, pool)?;
    trees.iter_mut().find(|t| t.roots.contains(&root))
}

fn trees(map: &OsdMap, pgs: &PgMap, pgs_per_osd: i64) -> Vec<Tree> {
    let mut trees: Vec<Tree> = Vec::new();
    for (id, pool) in &map.pools {
        let Some(root) = root_of(map, pool) else { continue };
        let osds: BTreeSet<i32> = map.crush.leaves(root).into_iter().collect();
        let shares = |t: &Tree| t.roots.contains(&root) || !t.osds.is_disjoint(&osds);
        let at = trees.iter().position(shares).unwrap_or_else(|| {
            trees.push(Tree::default());
            trees.len() - 1
        });
        let Some(tree) = trees.get_mut(at) else { continue };
        tree.roots.insert(root);
        tree.osds.extend(osds);
        tree.pools += 1;
        tree.names.extend(map.pool_name(*id).map(str::to_owned));
        match float(pool, "target_size_ratio") {
            0.0 => tree.target_bytes += float(pool, "target_size_bytes") * raw_rate(map, pool),
            ratio => tree.target_ratios += ratio,
        }
    }
    for tree in &mut trees {
        let stats = tree.osds.iter().filter_map(|o| pgs.osds.get(&OsdId(*o)));
        tree.capacity = stats.fold(0u64, |sum, r| sum.wrapping_add(r.stat.statfs.total >> 10 << 10));
        tree.left = pgs_per_osd * i64::try_from(tree.osds.len()).unwrap_or(0);
    }
    trees
}

fn float(pool: &Pool, name: &str) -> f64 {
    match pool.opts.get(name) {
        Some(OptValue::Double(v)) => *v,
        Some(OptValue::Int(v)) => *v as f64,
        _ => 0.0,
    }
}

fn number(pool: &Pool, name: &str) -> Option<u32> {
    match pool.opts.get(name) {
        Some(OptValue::Int(v)) => u32::try_from(*v).ok(),
        _ => None,
    }
}

/// The first root that the pool's rule takes from.
fn root_of(map: &OsdMap, pool: &Pool) -> Option<i32> {
    map.crush.rule(u32::from(pool.crush_rule))?.takes().next()
}

/// Raw bytes per byte of data. The k of a profile is not always its data chunks: lrc may have layers instead.
fn raw_rate(map: &OsdMap, pool: &Pool) -> f64 {
    let size = f64::from(pool.size);
    let values = map.erasure_code_profiles.get(&pool.erasure_code_profile);
    let Some(values) = values.filter(|_| pool.is_erasure()) else {
        return size;
    };
    let of_profile = erasure::Profile::new(values).ok().map(|profile| profile.data_chunks() as f64);
    match of_profile.or_else(|| values.get("k")?.parse().ok()) {
        Some(k) if k > 0.0 => size / k,
        _ => size,
    }
}

/// Source: nearest_power_of_two.
fn nearest_power_of_two(n: f64) -> u32 {
    let whole = (n.max(0.0) as u32).min(1 << 30);
    if whole == 0 {
        return 0;
    }
    let above = whole.next_power_of_two();
    let below = above >> 1;
    if f64::from(above) - n > n - f64::from(below) { below } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers whose `k` is -1 in the map, as Ceph stores it.
    const LAYERS: [(&str, &str); 4] = [
        ("plugin", "lrc"),
        ("k", "-1"),
        ("mapping", "DD__DD__"),
        ("layers", r#"[["DDc_DDc_"],["DDDc____"],["____DDDc"]]"#),
    ];

    fn check(words: &[(&str, &str)], size: u8, want: f64) {
        let mut map =
            OsdMap::new_cluster(Default::default(), Default::default(), crush::CrushMap::new_default());
        let values = words.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        map.erasure_code_profiles.insert("p".to_owned(), values);
        let mut pool = Pool::new(maps::PoolType::Erasure, 8);
        pool.size = size;
        pool.erasure_code_profile = "p".to_owned();
        assert_eq!(raw_rate(&map, &pool), want, "{words:?}");
    }

    #[test]
    fn a_code_takes_all_its_chunks_by_those_with_data() {
        check(&[("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "4"), ("m", "2")], 6, 1.5);
        check(&[("plugin", "lrc"), ("k", "4"), ("m", "2"), ("l", "3")], 8, 2.0);
        check(&LAYERS, 8, 2.0);
        // A code that is not built here.
        check(&[("plugin", "shec"), ("k", "4"), ("m", "3"), ("c", "2")], 7, 1.75);
    }

    #[test]
    fn powers_of_two_are_rounded_to_the_nearer_one() {
        let got = [0.0, 0.9, 1.0, 2.9, 3.1, 5.9, 6.1, 100.0, 1e12].map(nearest_power_of_two);
        assert_eq!(got, [0, 0, 1, 2, 4, 4, 8, 128, 1 << 30]);
    }
}
