//! The oldest clients that can use a map, judged by what it holds. Source: OSDMap::get_features and
//! get_min_compat_client in src/osd/OSDMap.cc; CrushWrapper::has_nondefault_tunables and its neighbours.

use crush::{Alg, CrushMap, DEFAULT_CHOOSE_ARGS, Step};

use crate::flags::MAX_PRIMARY_AFFINITY;
use crate::pool::pool_flags;
use crate::{OsdMap, Release};

impl OsdMap {
    /// The oldest release whose clients understand this map.
    pub fn min_compat_client(&self) -> Release {
        let crush = &*self.crush;
        let rule_has = |ops: &[u32]| self.used_steps().any(|op| ops.contains(&op));
        let has_upmap = !self.pg_upmap.is_empty() || !self.pg_upmap_items.is_empty();
        if has_upmap || has_incompatible_choose_args(crush) {
            return Release::LUMINOUS;
        }
        if crush.tunables.chooseleaf_stable != 0 || rule_has(&[Step::SET_CHOOSELEAF_STABLE]) {
            return Release::JEWEL;
        }
        if crush.buckets.iter().flatten().any(|b| b.alg() == Alg::Straw2) {
            return Release::HAMMER;
        }
        let affinity = self.primary_affinity.iter().flatten().any(|a| *a != MAX_PRIMARY_AFFINITY);
        let tiered = self.pools.values().any(|p| !p.tiers.is_empty() || p.is_tier());
        let vary_r = crush.tunables.chooseleaf_vary_r != 0 || rule_has(&[Step::SET_CHOOSELEAF_VARY_R]);
        if affinity || tiered || vary_r {
            return Release::FIREFLY;
        }
        let hashed = self.pools.values().any(|p| p.has_flag(pool_flags::HASHPSPOOL));
        if crush.tunables.chooseleaf_descend_once != 0 || hashed {
            return Release::DUMPLING;
        }
        Release::ARGONAUT
    }

    /// Operations of the rules that pools use.
    fn used_steps(&self) -> impl Iterator<Item = u32> + '_ {
        let rules = self.pools.values().filter_map(|p| {
            let id = crate::mapping::find_rule(&self.crush, p.crush_rule, p.kind, p.size)?;
            self.crush.rule(id)
        });
        rules.flat_map(|rule| rule.steps.iter().map(|s| s.op))
    }
}

/// Whether a client that knows no weight sets would place differently. Source: CrushWrapper::has_incompat_choose_args.
fn has_incompatible_choose_args(crush: &CrushMap) -> bool {
    let Some(default) = crush.choose_args.get(&DEFAULT_CHOOSE_ARGS) else {
        return !crush.choose_args.is_empty();
    };
    let differs = |a: &crush::ChooseArg| !a.is_empty() && (a.weight_sets.len() != 1 || !a.ids.is_empty());
    crush.choose_args.len() > 1 || default.args.iter().any(differs)
}
