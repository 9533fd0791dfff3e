//! The crush-compat mode: weights for placement that give every OSD its share, found step by step.
//!
//! Where Ceph throws dice to take a step that made things worse, this one takes it: runs can be repeated.
//! Source: Module.do_crush_compat in src/pybind/mgr/balancer/module.py.

use std::collections::BTreeMap;
use std::sync::Arc;

use crush::{CrushMap, DEFAULT_CHOOSE_ARGS, weight_from_f32};
use maps::OsdMap;
use types::Errno;

use super::options::Options;
use super::score::{METRICS, Score, evaluate};
use crate::pg_map::PgMap;

/// Roots with fewer PGs (or objects, or bytes) for each OSD are left alone.
const LEAST_PER_OSD: f64 = 2.0;
/// Steps in a row that may make things worse.
const BAD_STEPS: u32 = 5;

/// New weights of OSDs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Weights {
    pub(crate) compat: BTreeMap<i32, f64>,
    pub(crate) reweight: BTreeMap<i32, f64>,
}

/// The weights that placement works with now.
fn weights_now(crush: &CrushMap) -> BTreeMap<i32, f64> {
    let mut out = BTreeMap::new();
    for b in crush.buckets.iter().flatten() {
        let set = crush.choose_args.get(&DEFAULT_CHOOSE_ARGS).and_then(|s| s.get(b.id));
        let set = set.and_then(|arg| arg.weight_sets.first());
        for (at, (item, own)) in b.weighted_items().enumerate().filter(|(_, (item, _))| *item >= 0) {
            let weight = set.and_then(|s| s.get(at)).copied().unwrap_or(own);
            out.insert(item, f64::from(weight) / 65_536.0);
        }
    }
    out
}

/// The map with other weights.
pub(crate) fn with_weights(map: &OsdMap, weights: &Weights) -> OsdMap {
    let mut new = map.clone();
    let mut crush = (*map.crush).clone();
    crush.create_choose_args(DEFAULT_CHOOSE_ARGS, 1);
    for (osd, weight) in &weights.compat {
        if let Ok(weight) = weight_from_f32(*weight as f32) {
            // An OSD that left the tree meanwhile has no weight.
            let _ = crush.adjust_choose_args(DEFAULT_CHOOSE_ARGS, *osd, &[weight]);
        }
    }
    new.crush = Arc::new(crush);
    for (osd, weight) in &weights.reweight {
        if let Some(slot) = usize::try_from(*osd).ok().and_then(|i| new.weights.get_mut(i)) {
            *slot = (weight * 65_536.0) as u32;
        }
    }
    new
}

/// A search for better weights, in steps that each place all PGs of the pools once.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    metrics: Vec<String>,
    /// The metric that weights follow.
    key: usize,
    /// How it is now.
    first: Score,
    start: Weights,
    reweights: BTreeMap<i32, f64>,
    best: Weights,
    best_score: Score,
    /// Where the next step begins.
    at: Weights,
    step: f64,
    /// Steps in a row that made things worse.
    bad: u32,
    /// Steps that may still be taken.
    left: u32,
}

impl Search {
    /// Nothing is to be done, or nothing can be, where this fails.
    pub(crate) fn begin(
        map: &OsdMap,
        pgs: &PgMap,
        pools: &[String],
        options: &Options,
    ) -> Result<Self, (Errno, String)> {
        let metrics = options.metrics();
        let key = METRICS.iter().position(|m| metrics.first().is_some_and(|f| f == m)).unwrap_or(0);
        let first = evaluate(map, pgs, pools, &metrics);
        if first.score <= options.min_score() {
            let text = match first.score {
                0.0 => "Distribution is already perfect".to_owned(),
                score => {
                    format!("score {score:.6} <= min_score {:.6}, will not optimize", options.min_score())
                }
            };
            return Err((Errno(114), text));
        }
        refuse_overlap(&first)?;
        let reweights = map.existing_osds().map(|(id, _)| (id.0, f64::from(map.weight_f32(id.0)))).collect();
        let start = Weights { compat: weights_now(&map.crush), ..Weights::default() };
        Ok(Self {
            metrics,
            key,
            start: start.clone(),
            reweights,
            best: start.clone(),
            best_score: first.clone(),
            first,
            at: start,
            step: options.step(),
            bad: 0,
            left: options.max_iterations(),
        })
    }

    /// Takes one step, on the map that it was begun with; whether there is no other to take.
    pub(crate) fn turn(&mut self, map: &OsdMap, pgs: &PgMap, pools: &[String], max_misplaced: f64) -> bool {
        if self.left == 0 {
            return true;
        }
        self.left -= 1;
        let next = self.next(map);
        let only_compat = Weights { compat: next.compat.clone(), ..Weights::default() };
        let score = evaluate(&with_weights(map, &only_compat), pgs, pools, &self.metrics);
        if misplaced(&self.first, &score) > max_misplaced {
            if self.best_score.score < self.first.score {
                return true;
            }
            self.step /= 2.0;
            self.at.clone_from(&self.best);
        } else if score.score > self.best_score.score * 1.0001 {
            self.bad += 1;
            if self.bad < BAD_STEPS {
                self.at = next;
            } else {
                self.step /= 2.0;
                self.at.clone_from(&self.best);
            }
        } else {
            self.bad = 0;
            (self.best, self.best_score) = (next.clone(), score);
            self.at = next;
        }
        self.left == 0 || self.best_score.score == 0.0
    }

    /// Weights that make the score better.
    pub(crate) fn found(self) -> Result<Weights, (Errno, String)> {
        // Letting go of old reweights may cost a little.
        let fudge = if self.best.reweight.is_empty() { 0.0 } else { 0.001 };
        if self.best_score.score < self.first.score + fudge && self.best != self.start {
            return Ok(self.best);
        }
        let text = "Unable to find further optimization, change balancer mode and retry might help";
        Err((Errno(33), text.to_owned()))
    }

    /// One step on.
    fn next(&self, map: &OsdMap) -> Weights {
        let (from, step) = (&self.at, self.step);
        let mut next = from.clone();
        for root in self.best_score.roots.values() {
            let total = root.total.get(self.key).copied().unwrap_or(0.0);
            if total < LEAST_PER_OSD * root.target.len() as f64 {
                continue;
            }
            for (osd, target) in &root.target {
                let (actual, weight) = (root.actual(*osd, self.key), from.compat.get(osd).copied());
                let (Some(weight), Some(reweight)) = (weight, self.reweights.get(osd)) else { continue };
                // What has nothing yet is brought up slowly.
                let ideal = if actual > 0.0 { target / actual * weight * reweight } else { *target };
                next.compat.insert(*osd, weight * (1.0 - step) + ideal * step);
                if *reweight < 1.0 {
                    let grown = (step + (1.0 - step) * reweight).max(reweight + 0.005).min(1.0);
                    next.reweight.insert(*osd, grown);
                }
            }
            let whole = map.crush.item_weight(root.id).map_or(0.0, |w| f64::from(w) / 65_536.0);
            let sum: f64 = root.target.keys().filter_map(|o| next.compat.get(o)).sum();
            if sum > 0.0 && whole > 0.0 {
                for osd in root.target.keys() {
                    if let Some(w) = next.compat.get_mut(osd) {
                        *w *= whole / sum;
                    }
                }
            }
        }
        next
    }
}

/// The part of the PGs that would move.
fn misplaced(before: &Score, after: &Score) -> f64 {
    let moved = before.up.iter().filter(|(pg, up)| after.up.get(pg) != Some(up)).count();
    moved as f64 / before.up.len().max(1) as f64
}

/// An OSD below two roots would be given two weights.
fn refuse_overlap(score: &Score) -> Result<(), (Errno, String)> {
    let mut seen: BTreeMap<i32, Vec<&str>> = BTreeMap::new();
    for (name, root) in &score.roots {
        root.target.keys().for_each(|osd| seen.entry(*osd).or_default().push(name));
    }
    let twice = seen.into_iter().filter(|(_, roots)| roots.len() > 1);
    let twice: Vec<String> = twice.map(|(osd, roots)| format!("{osd}: {roots:?}")).collect();
    match twice.is_empty() {
        true => Ok(()),
        false => {
            let text = format!("Some osds belong to multiple subtrees: {{{}}}", twice.join(", "));
            Err((Errno::EOPNOTSUPP, text.replace('"', "'")))
        }
    }
}
