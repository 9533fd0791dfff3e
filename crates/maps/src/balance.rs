//! Evens out how many PGs, and then how many bytes, each OSD has, by replacements on top of CRUSH.
//!
//! Invariants:
//! 1. Every change lowers the sum of the squared deviations that it is made for, so the search ends and a run on its own
//!    result changes nothing more.
//! 2. Nothing moves while no OSD is further from its share than the bound.
//! 3. What comes out could have come from the rule: it keeps to the failure domains, level by level.
//!
//! Ceph's `OSDMap::calc_pg_upmaps` is the model for what counts: the share of an OSD follows from its CRUSH weight and
//! reweight, and deviations are counted in PGs. Bytes are our addition: they count in mean PGs' worth, so one bound serves
//! both. Source: src/osd/OSDMap.cc.

use std::collections::{BTreeMap, BTreeSet};

use types::{PgId, PoolId};

use crate::{OsdMap, RuleShape};

/// Lists tried in one search; on large clusters it then goes on with the next round.
const TRIES: usize = 200_000;

/// What a search aims at.
#[derive(Debug, Clone)]
pub struct BalanceGoal<'a> {
    pub pools: &'a BTreeSet<PoolId>,
    /// PGs that an OSD may be away from its share; below 1 counts as 1.
    pub max_deviation: u32,
    /// Replacements changed at most.
    pub max_changes: usize,
    /// Bytes in each PG; those that are missing count as empty.
    pub bytes: &'a BTreeMap<PgId, u64>,
    /// Bytes that an OSD may be away from its share whatever that is in PGs.
    pub least_bytes: u64,
}

/// How uneven PGs lie.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Deviation {
    /// Of the OSD furthest from its share, in PGs.
    pub max: f64,
    /// Square root of the mean square.
    pub standard: f64,
}

/// New replacements of a PG; an empty list takes them all back.
pub type UpmapItems = Vec<(i32, i32)>;

/// A PG under consideration.
#[derive(Debug, Clone)]
struct Placed {
    raw: Vec<i32>,
    /// With the replacements.
    osds: Vec<i32>,
    items: UpmapItems,
    /// In mean PGs' worth.
    size: f64,
    shape: PoolId,
}

/// What an OSD has too much, or too little below 0.
#[derive(Debug, Clone, Copy, Default)]
struct Excess {
    pgs: f64,
    bytes: f64,
}

struct Search<'a> {
    goal: &'a BalanceGoal<'a>,
    max: f64,
    shapes: BTreeMap<PoolId, RuleShape>,
    pgs: BTreeMap<PgId, Placed>,
    by_osd: BTreeMap<i32, BTreeSet<PgId>>,
    excess: BTreeMap<i32, Excess>,
    changed: BTreeMap<PgId, UpmapItems>,
    changes: usize,
    tries: usize,
    map: &'a OsdMap,
}

impl OsdMap {
    /// Replacements that bring the PGs of some pools nearer to their OSDs' shares.
    pub fn balance(&self, goal: &BalanceGoal<'_>) -> BTreeMap<PgId, UpmapItems> {
        let Some(mut search) = Search::new(self, goal) else { return BTreeMap::new() };
        while search.changes < goal.max_changes && (search.even_pgs() || search.even_bytes()) {}
        search.changed
    }

    /// How uneven the PGs of some pools lie on the OSDs that they may lie on; `None` when there are none.
    pub fn deviation(&self, pools: &BTreeSet<PoolId>) -> Option<Deviation> {
        let bytes = BTreeMap::new();
        let goal = BalanceGoal { pools, max_deviation: 1, max_changes: 0, bytes: &bytes, least_bytes: 0 };
        let search = Search::new(self, &goal)?;
        let squares: f64 = search.excess.values().map(|e| e.pgs * e.pgs).sum();
        let max = search.excess.values().map(|e| e.pgs.abs()).fold(0.0, f64::max);
        Some(Deviation { max, standard: (squares / search.excess.len() as f64).sqrt() })
    }
}

impl<'a> Search<'a> {
    fn new(map: &'a OsdMap, goal: &'a BalanceGoal<'a>) -> Option<Self> {
        let mut shapes = BTreeMap::new();
        let mut weights: BTreeMap<i32, f64> = BTreeMap::new();
        let mut copies = 0.0;
        for id in goal.pools {
            let (Some(pool), Some(shape)) = (map.pool(*id), map.pool_rule_shape(*id)) else { continue };
            for (osd, weight) in shape.weights() {
                let weight = f64::from(weight * map.weight_f32(*osd));
                if weight > 0.0 {
                    *weights.entry(*osd).or_default() += weight;
                }
            }
            copies += f64::from(pool.size) * f64::from(pool.pg_num);
            shapes.insert(*id, shape);
        }
        let total: f64 = weights.values().sum();
        if total <= 0.0 {
            return None;
        }
        let mut search = Self {
            goal,
            max: f64::from(goal.max_deviation.max(1)),
            shapes,
            pgs: BTreeMap::new(),
            by_osd: weights.keys().map(|osd| (*osd, BTreeSet::new())).collect(),
            excess: BTreeMap::new(),
            changed: BTreeMap::new(),
            changes: 0,
            tries: TRIES,
            map,
        };
        search.place();
        let stored: f64 = search.pgs.values().map(|p| p.size * p.osds.len() as f64).sum();
        for (osd, weight) in weights {
            let share = weight / total;
            search.excess.insert(osd, Excess { pgs: -share * copies, bytes: -share * stored });
        }
        let held: Vec<(i32, f64)> =
            search.pgs.values().flat_map(|p| p.osds.iter().map(|o| (*o, p.size))).collect();
        for (osd, size) in held {
            search.add(osd, 1.0, size);
        }
        Some(search)
    }

    fn place(&mut self) {
        let pools: Vec<PoolId> = self.shapes.keys().copied().collect();
        let of_pool = |id: &PoolId| self.map.pool(*id).map_or(0, |p| p.pg_num);
        let all: Vec<PgId> =
            pools.iter().flat_map(|id| (0..of_pool(id)).map(|seed| PgId::new(*id, seed))).collect();
        let bytes = |pg: &PgId| self.goal.bytes.get(pg).copied().unwrap_or(0) as f64;
        let mean = all.iter().map(bytes).sum::<f64>() / all.len().max(1) as f64;
        for pg in all {
            let (raw, osds) = self.map.pg_to_raw_upmap(pg);
            let items = self.map.pg_upmap_items.get(&pg).cloned().unwrap_or_default();
            let size = if mean > 0.0 { bytes(&pg) / mean } else { 0.0 };
            for osd in &osds {
                if let Some(pgs) = self.by_osd.get_mut(osd) {
                    pgs.insert(pg);
                }
            }
            self.pgs.insert(pg, Placed { raw, osds, items, size, shape: pg.pool });
        }
    }

    fn add(&mut self, osd: i32, pgs: f64, bytes: f64) {
        if let Some(e) = self.excess.get_mut(&osd) {
            e.pgs += pgs;
            e.bytes += bytes;
        }
    }

    fn of(&self, osd: i32) -> Excess {
        self.excess.get(&osd).copied().unwrap_or_default()
    }

    /// OSDs by one measure, the fullest first.
    fn ranked(&self, by: impl Fn(&Excess) -> f64) -> Vec<(i32, f64)> {
        let mut all: Vec<(i32, f64)> = self.excess.iter().map(|(osd, e)| (*osd, by(e))).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all
    }

    /// Moves one PG for the sake of the PGs' number; false when nothing is to be done or can be.
    fn even_pgs(&mut self) -> bool {
        let ranked = self.ranked(|e| e.pgs);
        let worst = ranked.iter().map(|(_, d)| d.abs()).fold(0.0, f64::max);
        if worst <= self.max {
            return false;
        }
        let overfull = ranked.first().is_some_and(|(_, d)| *d > self.max);
        for (from, over) in &ranked {
            // Without any that is overfull the underfull ones take from all that are above their share.
            if *over <= if overfull { self.max } else { 0.0 } {
                break;
            }
            for (to, under) in ranked.iter().rev() {
                // Only then the sum of squares becomes smaller.
                if over - under <= 1.0 + 1e-6 || (!overfull && *under >= -self.max) {
                    break;
                }
                if self.move_one(*from, *to, |_, _| true) {
                    return true;
                }
            }
        }
        // Nothing leaves the overfull ones any more; the underfull may still be helped.
        self.fill_underfull(&ranked)
    }

    fn fill_underfull(&mut self, ranked: &[(i32, f64)]) -> bool {
        let bound = self.max;
        for (to, under) in ranked.iter().rev().take_while(|(_, d)| *d < -bound) {
            for (from, over) in ranked {
                if over - under <= 1.0 + 1e-6 {
                    break;
                }
                if self.move_one(*from, *to, |_, _| true) {
                    return true;
                }
            }
        }
        false
    }

    /// The same for bytes; the PGs' number stays within its bound, if need be by moving a smaller PG the other way.
    fn even_bytes(&mut self) -> bool {
        let mean =
            self.goal.bytes.iter().filter(|(pg, _)| self.pgs.contains_key(*pg)).map(|(_, b)| *b as f64);
        let mean = mean.sum::<f64>() / self.pgs.len().max(1) as f64;
        if mean <= 0.0 {
            return false;
        }
        let bound = self.max.max(self.goal.least_bytes as f64 / mean);
        let ranked = self.ranked(|e| e.bytes);
        if ranked.iter().all(|(_, d)| d.abs() <= bound) {
            return false;
        }
        for (from, over) in ranked.iter().filter(|(_, d)| *d > 0.0) {
            for (to, under) in ranked.iter().rev().take_while(|(_, d)| *d < 0.0) {
                if over.max(-under) <= bound {
                    break;
                }
                let gap = over - under;
                let counts = (self.of(*from).pgs, self.of(*to).pgs);
                let room = counts.0 - 1.0 >= -self.max && counts.1 + 1.0 <= self.max;
                if room && self.move_one(*from, *to, |size, _| size > 0.0 && size < gap - 1e-6) {
                    return true;
                }
                if self.changes + 2 <= self.goal.max_changes && self.swap(*from, *to, gap) {
                    return true;
                }
            }
        }
        false
    }

    /// Moves one PG and a smaller one back.
    fn swap(&mut self, from: i32, to: i32, gap: f64) -> bool {
        let (there, back) = (self.candidates(from, to), self.candidates(to, from));
        let size = |pg: &PgId| self.pgs.get(pg).map_or(0.0, |p| p.size);
        let pairs = there.iter().flat_map(|large| back.iter().map(move |small| (large, small)));
        let helps = |((large, _), (small, _)): &(&(PgId, UpmapItems), &(PgId, UpmapItems))| {
            let gain = size(large) - size(small);
            gain > 0.01 && gain < gap - 1e-6
        };
        // The nearer to half the gap, the better.
        let off = |((large, _), (small, _)): &(&(PgId, UpmapItems), &(PgId, UpmapItems))| {
            (size(large) - size(small) - gap / 2.0).abs()
        };
        let best = pairs.filter(helps).min_by(|a, b| off(a).total_cmp(&off(b)));
        let Some(((large, out), (small, into))) = best.map(|(l, s)| (l.clone(), s.clone())) else {
            return false;
        };
        self.take(large, from, to, out);
        self.take(small, to, from, into);
        true
    }

    /// PGs that may go from one OSD to another, with their replacements then: those first whose way back to where CRUSH puts
    /// them this is, then those whose bytes help most.
    fn candidates(&mut self, from: i32, to: i32) -> Vec<(PgId, UpmapItems)> {
        let mut found = Vec::new();
        for pg in self.by_osd.get(&from).cloned().unwrap_or_default() {
            if self.tries == 0 {
                break;
            }
            if let Some(items) = self.replaced(pg, from, to) {
                found.push((pg, items));
            }
        }
        let wish = (self.of(from).bytes - self.of(to).bytes) / 2.0;
        let rank = |(pg, items): &(PgId, UpmapItems)| {
            let p = self.pgs.get(pg);
            let more = items.len() as f64 - p.map_or(0.0, |p| p.items.len() as f64);
            (more, (p.map_or(0.0, |p| p.size) - wish).abs())
        };
        found.sort_by(|a, b| {
            let ((am, ad), (bm, bd)) = (rank(a), rank(b));
            am.total_cmp(&bm).then(ad.total_cmp(&bd)).then(a.0.cmp(&b.0))
        });
        found
    }

    fn move_one(&mut self, from: i32, to: i32, wanted: impl Fn(f64, PgId) -> bool) -> bool {
        let candidates = self.candidates(from, to);
        let fits = |(pg, _): &(PgId, UpmapItems)| wanted(self.pgs.get(pg).map_or(0.0, |p| p.size), *pg);
        let Some((pg, items)) = candidates.into_iter().find(fits) else { return false };
        self.take(pg, from, to, items);
        true
    }

    /// The replacements with which a PG has `to` in place of `from`; `None` when the rule does not allow that.
    fn replaced(&mut self, pg: PgId, from: i32, to: i32) -> Option<UpmapItems> {
        let p = self.pgs.get(&pg)?;
        // Whole lists are an administrator's wish.
        if p.osds.contains(&to) || self.map.pg_upmap.contains_key(&pg) {
            return None;
        }
        self.tries -= 1;
        let shape = self.shapes.get(&p.shape)?;
        shape.weight(to)?;
        let mut items = p.items.clone();
        match items.iter().position(|(_, now)| *now == from) {
            Some(at) => {
                let (origin, _) = items.remove(at);
                if origin != to {
                    items.push((origin, to));
                }
            }
            None => items.push((from, to)),
        }
        let wanted: Vec<i32> = p.osds.iter().map(|o| if *o == from { to } else { *o }).collect();
        (shape.fits(&wanted) && applied(&p.raw, &items) == wanted && items.len() <= p.osds.len())
            .then_some(items)
    }

    fn take(&mut self, pg: PgId, from: i32, to: i32, items: UpmapItems) {
        let Some(p) = self.pgs.get_mut(&pg) else { return };
        p.osds.iter_mut().filter(|o| **o == from).for_each(|o| *o = to);
        p.items.clone_from(&items);
        let size = p.size;
        for (osd, now) in [(from, false), (to, true)] {
            if let Some(pgs) = self.by_osd.get_mut(&osd) {
                if now {
                    pgs.insert(pg)
                } else {
                    pgs.remove(&pg)
                };
            }
        }
        self.add(from, -1.0, -size);
        self.add(to, 1.0, size);
        self.changes += 1;
        if self.map.pg_upmap_items.get(&pg).map(Vec::as_slice).unwrap_or_default() == items.as_slice() {
            self.changed.remove(&pg);
        } else {
            self.changed.insert(pg, items);
        }
    }
}

/// A list with replacements made, as placement makes them. Source: OSDMap::_apply_upmap.
fn applied(raw: &[i32], items: &[(i32, i32)]) -> Vec<i32> {
    let mut osds = raw.to_vec();
    for (from, to) in items {
        if osds.contains(to) {
            continue;
        }
        if let Some(slot) = osds.iter_mut().find(|o| *o == from) {
            *slot = *to;
        }
    }
    osds
}
