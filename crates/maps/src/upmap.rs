//! Whether explicit replacements for what CRUSH places are valid, and the removal of those that are not or say nothing.
//!
//! Source: OSDMap::check_pg_upmaps and clean_pg_upmaps in src/osd/OSDMap.cc, CrushWrapper::verify_upmap.

use std::collections::{BTreeMap, BTreeSet};

use crush::{CrushMap, ITEM_NONE, Step};
use types::PgId;

use crate::OsdMap;
use crate::flags::WEIGHT_OUT;
use crate::mapping::find_rule;

/// One level that a rule spreads a PG's OSDs over.
#[derive(Debug, Clone)]
struct Level {
    /// Whether each bucket of this level is to hold one OSD (`chooseleaf`).
    leaf: bool,
    /// Buckets of this level below each of the level above.
    count: usize,
    /// The bucket of this level above each OSD; empty for the OSDs' own level.
    parents: BTreeMap<i32, i32>,
}

/// What lies between a `take` and an `emit`.
#[derive(Debug, Clone)]
struct Section {
    /// OSDs below what is taken.
    members: BTreeSet<i32>,
    levels: Vec<Level>,
}

/// What one rule asks of the OSDs of a PG, looked up once for many PGs.
#[derive(Debug, Clone)]
pub struct RuleShape {
    sections: Vec<Section>,
    /// OSDs that the rule can reach, with their CRUSH weights.
    weights: BTreeMap<i32, f32>,
}

impl RuleShape {
    /// `None` when there is no such rule. `size` is the pool's.
    pub fn new(crush: &CrushMap, rule: u32, size: usize) -> Option<Self> {
        let mut sections = Vec::new();
        let mut open: Option<(i32, Vec<Level>)> = None;
        for step in &crush.rule(rule)?.steps {
            match step.op {
                Step::TAKE => open = Some((step.arg1, Vec::new())),
                Step::CHOOSE_FIRSTN
                | Step::CHOOSE_INDEP
                | Step::CHOOSELEAF_FIRSTN
                | Step::CHOOSELEAF_INDEP => {
                    let leaf = matches!(step.op, Step::CHOOSELEAF_FIRSTN | Step::CHOOSELEAF_INDEP);
                    let below = usize::try_from(step.arg1).ok().filter(|n| *n > 0);
                    let count =
                        below.unwrap_or_else(|| size.saturating_sub(step.arg1.unsigned_abs() as usize));
                    if let Some((root, levels)) = &mut open {
                        levels.push(Level { leaf, count, parents: parents(crush, *root, step.arg2) });
                    }
                }
                Step::EMIT => {
                    if let Some((root, levels)) = open.take() {
                        sections.push(Section { members: crush.leaves(root), levels });
                    }
                }
                _ => {}
            }
        }
        Some(Self { sections, weights: crush.rule_weights(rule) })
    }

    /// CRUSH weight of an OSD that the rule can reach.
    pub fn weight(&self, osd: i32) -> Option<f32> {
        self.weights.get(&osd).copied()
    }

    pub fn weights(&self) -> &BTreeMap<i32, f32> {
        &self.weights
    }

    /// Whether a list respects the rule's failure domains and stays below what it takes, as Ceph judges it.
    pub fn allows(&self, osds: &[i32]) -> bool {
        let mut rest = osds;
        for section in &self.sections {
            for level in section.levels.iter().filter(|l| !l.parents.is_empty()) {
                let mut held: BTreeMap<i32, BTreeSet<i32>> = BTreeMap::new();
                for osd in osds {
                    if let Some(parent) = level.parents.get(osd) {
                        held.entry(*parent).or_default().insert(*osd);
                    }
                }
                let broken = match level.leaf {
                    true => held.values().any(|in_one| in_one.len() > 1),
                    false => held.len() > level.count,
                };
                if broken {
                    return false;
                }
            }
            let here = section.levels.iter().map(|l| l.count).product::<usize>().min(rest.len());
            let (mine, others) = rest.split_at(here);
            if mine.iter().any(|osd| *osd != ITEM_NONE && !section.members.contains(osd)) {
                return false;
            }
            rest = others;
        }
        true
    }

    /// The same, and every bucket of every level holds no more of the OSDs than the rule would put there. What this accepts
    /// could have come from CRUSH itself.
    pub fn fits(&self, osds: &[i32]) -> bool {
        let mut rest = osds;
        for section in &self.sections {
            let here = section.levels.iter().map(|l| l.count).product::<usize>().min(rest.len());
            let (mine, others) = rest.split_at(here);
            rest = others;
            let mut below: usize = section.levels.iter().map(|l| l.count).product();
            for level in &section.levels {
                below /= level.count.max(1);
                let mut held: BTreeMap<i32, usize> = BTreeMap::new();
                for osd in mine {
                    if let Some(parent) = level.parents.get(osd) {
                        *held.entry(*parent).or_default() += 1;
                    }
                }
                let most = if level.leaf { 1 } else { below };
                if held.values().any(|n| *n > most) {
                    return false;
                }
            }
        }
        let real = || osds.iter().filter(|o| **o != ITEM_NONE);
        real().collect::<BTreeSet<_>>().len() == real().count() && self.allows(osds)
    }
}

/// The bucket of a type above each OSD below `root`, in the tree that `root` is of.
fn parents(crush: &CrushMap, root: i32, type_id: i32) -> BTreeMap<i32, i32> {
    if type_id <= 0 {
        return BTreeMap::new();
    }
    let buckets = crush.children_of_type(root, type_id, true);
    buckets.into_iter().flat_map(|b| crush.leaves(b).into_iter().map(move |osd| (osd, b))).collect()
}

/// What is to become of a PG's replacements.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Keep,
    Cancel,
    Simplify(Vec<(i32, i32)>),
}

impl OsdMap {
    /// What CRUSH gives a PG, and the same with the PG's replacements.
    pub fn pg_to_raw_upmap(&self, pg: PgId) -> (Vec<i32>, Vec<i32>) {
        let (raw, _) = self.pg_to_raw_osds(pg);
        let mut replaced = raw.clone();
        if let Some(pool) = self.pool(pg.pool) {
            self.apply_upmap(pool, pg, &mut replaced);
        }
        (raw, replaced)
    }

    /// The shape of the rule that places a pool; `None` when the pool has none.
    pub fn pool_rule_shape(&self, pool: types::PoolId) -> Option<RuleShape> {
        let p = self.pool(pool)?;
        let rule = find_rule(&self.crush, p.crush_rule, p.kind, p.size)?;
        RuleShape::new(&self.crush, rule, p.size.into())
    }

    /// Drops replacements of PGs that are gone, that put copies where the rule does not, that lead to OSDs that are out or
    /// not below the rule's root any more, and those that change nothing. Whether any was.
    pub fn clean_upmaps(&mut self) -> bool {
        let pgs: BTreeSet<PgId> = self.pg_upmap.keys().chain(self.pg_upmap_items.keys()).copied().collect();
        let mut shapes = BTreeMap::new();
        let mut changed = false;
        for pg in pgs {
            let shape = shapes.entry(pg.pool).or_insert_with(|| self.pool_rule_shape(pg.pool));
            match self.judge_upmap(pg, shape.as_ref()) {
                Verdict::Keep => continue,
                Verdict::Cancel => {
                    self.pg_upmap.remove(&pg);
                    self.pg_upmap_items.remove(&pg);
                }
                Verdict::Simplify(items) => {
                    self.pg_upmap_items.insert(pg, items);
                }
            }
            changed = true;
        }
        changed
    }

    fn judge_upmap(&self, pg: PgId, shape: Option<&RuleShape>) -> Verdict {
        let (Some(pool), Some(shape)) = (self.pool(pg.pool), shape) else { return Verdict::Cancel };
        if pg.seed >= pool.pg_num_pending || pool.is_pending_merge(pg) {
            return Verdict::Cancel;
        }
        let (raw, replaced) = self.pg_to_raw_upmap(pg);
        if !shape.allows(&replaced) {
            return Verdict::Cancel;
        }
        let weightless = |osd: &i32| {
            *osd != ITEM_NONE && shape.weight(*osd).is_none_or(|w| w * self.weight_f32(*osd) == 0.0)
        };
        if replaced.iter().any(weightless) || self.pg_upmap.get(&pg) == Some(&raw) {
            return Verdict::Cancel;
        }
        let Some(items) = self.pg_upmap_items.get(&pg) else { return Verdict::Keep };
        let out = |osd: i32| {
            usize::try_from(osd).ok().and_then(|i| self.weights.get(i)).is_some_and(|w| *w == WEIGHT_OUT)
        };
        let useful: Vec<(i32, i32)> =
            items.iter().copied().filter(|(from, to)| raw.contains(from) && !out(*to)).collect();
        match useful {
            u if u.is_empty() => Verdict::Cancel,
            u if u.len() < items.len() => Verdict::Simplify(u),
            _ => Verdict::Keep,
        }
    }
}
