//! Whether a CRUSH map that somebody asks for can be used: what pools need is there, every rule comes to an end within a
//! budget, and a whole new map leaves no pool that has OSDs without any.
//!
//! Ceph runs the map in a process of its own and gives up after some seconds; a core has no clock, so the runs are
//! bounded by what they draw. Source: OSDMonitor::prepare_command_impl (setcrushmap), OSDMap::validate_crush_rules.

use std::sync::Arc;

use crush::{CrushMap, RULE_ERASURE, Rule, Scratch};
use maps::flags::WEIGHT_IN;
use maps::{OsdMap, Pool, Release};
use types::{Epoch, Errno, PgId, PoolId};

use crate::service::pool::Refusal;

/// Inputs that each rule is run for. Source: CrushTester's range in OSDMonitor.cc.
const INPUTS: i32 = 51;
/// PGs of each pool whose OSDs are compared before and after.
const PGS: u32 = 64;
/// What one run may draw; real rules need thousands.
const DRAWS_PER_RUN: u64 = 4 << 20;
/// What all runs of one check may draw: well below a second.
const DRAWS_IN_ALL: u64 = 96 << 20;
/// More tries than this find nothing more. Ceph's default is 50.
const MAX_TRIES: u32 = 10_000;

/// Which rules are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    All,
    /// Those of pools.
    InUse,
}

/// Refuses a map that the cluster could not work with.
pub(crate) fn check(map: &OsdMap, crush: &CrushMap, rules: Rules) -> Result<(), Refusal> {
    let invalid = |text: String| (Errno::EINVAL, text);
    crush.validate().map_err(|e| invalid(format!("crush map is not valid: {e}")))?;
    check_tunables(crush).map_err(invalid)?;
    for (id, pool) in &map.pools {
        check_pool(crush, *id, pool).map_err(invalid)?;
    }
    run_rules(map, crush, rules)
        .map_err(|text| invalid(format!("crush smoke test failed with -22: {text}")))?;
    let new = OsdMap { crush: Arc::new(crush.clone()), ..map.clone() };
    check_release(&new).map_err(invalid)?;
    if rules == Rules::InUse {
        // Single edits come in steps, and one may well empty a rule until the next: that is how device classes are changed.
        return Ok(());
    }
    let lost = map.pools.iter().find(|(id, pool)| has_osds(map, **id, pool) && !has_osds(&new, **id, pool));
    if let Some((id, pool)) = lost {
        let name = map.pool_name(*id).unwrap_or_default();
        let rule = crush.rule_name(pool.crush_rule.into()).unwrap_or_default();
        let text = format!("rule '{rule}' would find no OSDs any more for the PGs of pool '{name}'");
        return Err(invalid(text));
    }
    Ok(())
}

fn check_tunables(crush: &CrushMap) -> Result<(), String> {
    let t = &crush.tunables;
    let values = [
        ("choose_local_tries", t.choose_local_tries, MAX_TRIES),
        ("choose_local_fallback_tries", t.choose_local_fallback_tries, MAX_TRIES),
        ("choose_total_tries", t.choose_total_tries, MAX_TRIES),
        ("chooseleaf_descend_once", t.chooseleaf_descend_once, 1),
        ("chooseleaf_stable", t.chooseleaf_stable.into(), 1),
        ("straw_calc_version", t.straw_calc_version.into(), 1),
    ];
    match values.into_iter().find(|(_, value, most)| value > most) {
        Some((name, value, most)) => Err(format!("tunable {name} is {value}, which is more than {most}")),
        None => Ok(()),
    }
}

/// What a pool needs of its rule.
fn check_pool(crush: &CrushMap, id: PoolId, pool: &Pool) -> Result<(), String> {
    let number = pool.crush_rule;
    let Some(rule) = crush.rule(number.into()) else {
        return Err(format!("pool {id} references crush_rule {number} but it is not present"));
    };
    if rule.ruleset != number {
        return Err(format!("rule {number} mask ruleset does not match rule id"));
    }
    if rule.rule_type != pool.kind as u8 {
        return Err(format!("pool {id} type does not match rule {number}"));
    }
    if !(rule.min_size..=rule.max_size).contains(&pool.size) {
        return Err(format!(
            "pool {id} size {} does not fall within rule {number} min_size {} and max_size {}",
            pool.size, rule.min_size, rule.max_size
        ));
    }
    Ok(())
}

fn check_release(new: &OsdMap) -> Result<(), String> {
    let (needed, promised) = (new.min_compat_client(), new.require_min_compat_client);
    if promised == Release::UNKNOWN || needed <= promised {
        return Ok(());
    }
    Err(format!("new crush map requires client version {needed} but require_min_compat_client is {promised}"))
}

/// Runs rules with every device in.
fn run_rules(map: &OsdMap, crush: &CrushMap, rules: Rules) -> Result<(), String> {
    let devices = usize::try_from(crush.max_devices).unwrap_or(0).min(maps::MAX_OSDS);
    let weights = vec![WEIGHT_IN; devices];
    let mut left = DRAWS_IN_ALL;
    let mut out = Vec::new();
    for (number, rule) in (0..).zip(&crush.rules) {
        let Some(rule) = rule else { continue };
        for (size, args) in widths(map, number, rule, rules) {
            let mut scratch = Scratch::with_budget(DRAWS_PER_RUN);
            for x in 0..INPUTS {
                crush.do_rule_into(number, x, size, &weights, args, &mut scratch, &mut out);
                left = left.saturating_sub(scratch.spent());
                if scratch.exhausted() || left == 0 {
                    let name = crush.rule_name(number as i32).unwrap_or_default();
                    return Err(format!("rule '{name}' does not come to an end in time"));
                }
            }
        }
    }
    Ok(())
}

/// How many OSDs a rule is asked for, and with whose weight sets.
fn widths(map: &OsdMap, number: u32, rule: &Rule, rules: Rules) -> Vec<(usize, Option<i64>)> {
    let users = map.pools.iter().filter(|(_, p)| u32::from(p.crush_rule) == number);
    let mut all: Vec<(usize, Option<i64>)> = users.map(|(id, p)| (usize::from(p.size), Some(id.0))).collect();
    if all.is_empty() && rules == Rules::All {
        let usual = if rule.rule_type == RULE_ERASURE { rule.max_size } else { 3 };
        all.push((usize::from(usual.clamp(rule.min_size, rule.max_size.max(rule.min_size))), None));
    }
    all.dedup();
    all
}

/// Whether CRUSH gives any PG of the pool enough OSDs that are in to be read: one, or all but one of those that an erasure
/// code needs to go on. OSDs that never started hold nothing yet.
fn has_osds(map: &OsdMap, id: PoolId, pool: &Pool) -> bool {
    let needed = if pool.is_erasure() { usize::from(pool.min_size.max(2)) - 1 } else { 1 };
    let mut pgs = (0..pool.pg_num.min(PGS)).map(|seed| map.pg_to_raw_osds(PgId::new(id, seed)).0);
    let started = |osd: &&i32| map.osd(**osd).is_some_and(|o| o.info.up_from > Epoch(0));
    pgs.any(|osds| osds.iter().filter(started).count() >= needed)
}
