//! How evenly data lies: PGs, objects and bytes of each OSD against its share, as one number.
//!
//! Source: Eval and Module.calc_eval in src/pybind/mgr/balancer/module.py.

use std::collections::{BTreeMap, BTreeSet};

use crush::ITEM_NONE;
use maps::{OsdMap, PgMapper};
use types::{PgId, PoolId};

use crate::pg_map::PgMap;

/// `pgs`, `objects` and `bytes` of something.
pub(crate) type Counts = [f64; 3];
pub(crate) const METRICS: [&str; 3] = ["pgs", "objects", "bytes"];

/// One tree that rules start from.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Root {
    pub(crate) id: i32,
    /// Each OSD's share.
    pub(crate) target: BTreeMap<i32, f64>,
    pub(crate) count: BTreeMap<i32, Counts>,
    pub(crate) total: Counts,
    pub(crate) scores: Counts,
    /// Of each metric; `None` where there is nothing to spread.
    pub(super) spread: [Option<Spread>; 3],
}

/// How one metric is spread over a tree's OSDs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Spread {
    pub(super) most: f64,
    pub(super) least: f64,
    pub(super) average: f64,
    pub(super) deviation: f64,
    /// The shares of OSDs that have too much.
    pub(super) weights: f64,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct OfPool {
    pub(super) name: String,
    pub(super) count: BTreeMap<i32, Counts>,
    /// Without OSDs that no tree of the pool has.
    pub(super) total: Counts,
}

/// What [`evaluate`] found.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Score {
    pub(crate) roots: BTreeMap<String, Root>,
    pub(super) pools: BTreeMap<PoolId, OfPool>,
    /// From 0, which is even, up to 1.
    pub(crate) score: f64,
    /// The up set of each PG.
    pub(crate) up: BTreeMap<PgId, Vec<i32>>,
}

/// Judges where a map puts the pools named, or all of them; `metrics` are those that count.
pub(crate) fn evaluate(map: &OsdMap, pgs: &PgMap, pools: &[String], metrics: &[String]) -> Score {
    let mut out = Score::default();
    let wanted =
        |id: &PoolId| pools.is_empty() || map.pool_name(*id).is_some_and(|n| pools.iter().any(|p| p == n));
    let ids: Vec<PoolId> = map.pools.keys().copied().filter(wanted).collect();
    let takes = |id: &PoolId| -> BTreeSet<i32> {
        let rule = map.pool(*id).and_then(|p| map.crush.rule(p.crush_rule.into()));
        rule.into_iter().flat_map(crush::Rule::takes).collect()
    };
    let mut roots_of: BTreeMap<PoolId, Vec<String>> = BTreeMap::new();
    for id in &ids {
        for take in takes(id) {
            let name = map.crush.item_name(take).map_or_else(|| take.to_string(), ToOwned::to_owned);
            out.roots.entry(name.clone()).or_insert_with(|| root(map, take));
            roots_of.entry(*id).or_default().push(name);
        }
    }
    let mut mapper = PgMapper::new(map);
    for id in &ids {
        let name = map.pool_name(*id).unwrap_or_default().to_owned();
        let pool = out.pools.entry(*id).or_default();
        pool.name = name;
        for seed in 0..map.pool(*id).map_or(0, |p| p.pg_num) {
            let pg = PgId::new(*id, seed);
            let up = mapper.map(pg).up.clone();
            let sum = pgs.pgs.get(&pg).map(|s| s.stats.sum).unwrap_or_default();
            let has = [1.0, sum.num_objects.max(0) as f64, sum.num_bytes.max(0) as f64];
            for osd in up.iter().filter(|o| **o != ITEM_NONE) {
                add(pool.count.entry(*osd).or_default(), has);
                let names = roots_of.get(id).into_iter().flatten();
                // An OSD below several roots counts for the first.
                for name in names {
                    let Some(root) = out.roots.get_mut(name) else { continue };
                    if let Some(count) = root.count.get_mut(osd) {
                        add(count, has);
                        add(&mut root.total, has);
                        add(&mut pool.total, has);
                        break;
                    }
                }
            }
            out.up.insert(pg, up);
        }
    }
    let mut sum = 0.0;
    for root in out.roots.values_mut() {
        root.judge();
        let counted = METRICS.iter().zip(root.scores).filter(|(m, _)| metrics.iter().any(|w| w == *m));
        sum += counted.map(|(_, s)| s).sum::<f64>();
    }
    out.score = sum / (metrics.len().max(1) * out.roots.len().max(1)) as f64;
    out
}

fn add(to: &mut Counts, more: Counts) {
    to.iter_mut().zip(more).for_each(|(a, b)| *a += b);
}

fn root(map: &OsdMap, id: i32) -> Root {
    let crush = &map.crush;
    let weight = |osd: i32| {
        let own = crush.buckets.iter().flatten().filter(|b| crush.subtree_contains(id, b.id));
        let own = own.filter_map(|b| b.position(osd).map(|p| f64::from(b.item_weight(p)))).next();
        own.unwrap_or(1.0) * f64::from(map.weight_f32(osd))
    };
    let weights: BTreeMap<i32, f64> =
        crush.leaves(id).into_iter().map(|o| (o, weight(o))).filter(|(_, w)| *w > 0.0).collect();
    let total: f64 = weights.values().sum();
    Root {
        id,
        count: weights.keys().map(|o| (*o, Counts::default())).collect(),
        target: weights.into_iter().map(|(o, w)| (o, w / total)).collect(),
        ..Root::default()
    }
}

impl Root {
    /// The part of what a metric counts that an OSD has.
    pub(crate) fn actual(&self, osd: i32, metric: usize) -> f64 {
        let count = self.count.get(&osd).and_then(|c| c.get(metric)).copied().unwrap_or(0.0);
        count / self.total.get(metric).copied().unwrap_or(0.0).max(1.0)
    }

    fn judge(&mut self) {
        let num = self.target.len().max(1) as f64;
        for metric in 0..METRICS.len() {
            let total = self.total.get(metric).copied().unwrap_or(0.0);
            if total == 0.0 {
                continue;
            }
            let average = total / num;
            let (mut score, mut weights, mut squares) = (0.0, 0.0, 0.0);
            let (mut most, mut least) = (0.0_f64, f64::INFINITY);
            for (osd, target) in &self.target {
                let count = self.count.get(osd).and_then(|c| c.get(metric)).copied().unwrap_or(0.0);
                (most, least) = (most.max(count), least.min(count));
                let adjusted = count / target / num;
                // Only what is too full urges.
                if adjusted > average {
                    score += target * erf((adjusted - average) / average / std::f64::consts::SQRT_2);
                    weights += target;
                }
                squares += (average - adjusted).powi(2);
            }
            if let (Some(s), Some(spread)) = (self.scores.get_mut(metric), self.spread.get_mut(metric)) {
                *s = score / weights.max(1.0);
                let deviation = (squares / (num - 1.0).max(1.0)).sqrt();
                *spread = Some(Spread { most, least, average, deviation, weights });
            }
        }
    }
}

/// The error function, for arguments from 0.
fn erf(x: f64) -> f64 {
    if x > 6.0 {
        return 1.0;
    }
    let square = x * x;
    if x < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= -square / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    // A continued fraction for what is left to 1.
    let tail = (1..60).rev().fold(0.0, |tail, n| f64::from(n) / 2.0 / (x + tail));
    1.0 - (-square).exp() / (x + tail) * std::f64::consts::FRAC_2_SQRT_PI / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_exact_enough() {
        for (x, want) in [
            (0.0, 0.0),
            (0.1, 0.112_462_916_018_284_9),
            (1.0, 0.842_700_792_949_714_9),
            (2.9, 0.999_958_902_121_900_6),
            (3.1, 0.999_988_351_342_633),
            (7.0, 1.0),
        ] {
            assert!((erf(x) - want).abs() < 1e-11, "erf({x}) = {}", erf(x));
        }
    }
}
