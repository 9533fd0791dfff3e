//! Pools that are nearly full, badly split, or of no declared use.
//!
//! Source: PGMap::get_health_checks in src/mon/PGMap.cc.

use std::collections::BTreeMap;

use admin::options::Values;
use maps::{OsdMap, Pool};
use messages::mgr::HealthCheck;
use messages::stats::ObjectStatSum;
use monitor::text::six_digits;
use monitor::text::units::{bytes, count};

use super::{ERROR, WARNING, share};
use crate::sums::Sums;

/// Options of the checks.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// The share of what is left above a cache pool's own ratio.
    cache_full_ratio: f64,
    /// Shares of a pool's quota from which it counts as full and as nearly full; 0: never.
    quota_full: f64,
    quota_near_full: f64,
    /// Objects of the cluster and of a pool from which its PGs are compared, and how many times the average
    /// they may have.
    skew_objects: i64,
    skew_pool_objects: i64,
    skew: f64,
    misplaced: bool,
    /// Where the monitors do not look for it themselves.
    applications: bool,
}

impl Limits {
    pub(super) fn of(options: &Values, on_ceph: bool) -> Self {
        let switch = |name: &str| options.get(name).as_deref() == Some("true");
        Self {
            cache_full_ratio: options.float("mon_cache_target_full_warn_ratio"),
            quota_full: options.float("mon_pool_quota_crit_threshold") / 100.0,
            quota_near_full: options.float("mon_pool_quota_warn_threshold") / 100.0,
            skew_objects: options.int("mon_pg_warn_min_objects"),
            skew_pool_objects: options.int("mon_pg_warn_min_pool_objects"),
            skew: options.float("mon_pg_warn_max_object_skew"),
            misplaced: switch("mon_warn_on_misplaced"),
            applications: on_ceph && switch("mon_warn_on_pool_no_app"),
        }
    }
}

type Checks = BTreeMap<String, HealthCheck>;

/// A pool that has PGs: its name, itself, and what it holds.
type Held<'a> = (&'a str, &'a Pool, &'a ObjectStatSum);

pub(super) fn checks(sums: &Sums, map: &OsdMap, limits: &Limits, out: &mut Checks) {
    let mut pools: Vec<Held<'_>> = Vec::new();
    for (id, pool) in &map.pools {
        let Some(held) = sums.pools.get(id) else { continue };
        pools.push((map.pool_name(*id).unwrap_or_default(), pool, &held.stat.stats.sum));
    }
    caches(&pools, limits, out);
    quotas(&pools, limits, out);
    placement_counts(&pools, out);
    skewed(&pools, sums, limits, out);
    applications(&pools, limits, out);
    let sum = &sums.total.stats.sum;
    if limits.misplaced && sum.num_objects_misplaced != 0 && sum.num_object_copies > 0 {
        let summary = share(sum.num_objects_misplaced, sum.num_object_copies, "misplaced");
        let count = sum.num_objects_misplaced;
        let check = HealthCheck { severity: WARNING, summary, detail: Vec::new(), count };
        out.insert("OBJECT_MISPLACED".to_owned(), check);
    }
}

/// `3 pools full`, when there are any.
fn add(out: &mut Checks, code: &str, severity: u8, pools: usize, what: &str, detail: Vec<String>) {
    if pools != 0 {
        let summary = format!("{pools} {what}");
        out.insert(code.to_owned(), HealthCheck { severity, summary, detail, count: pools as i64 });
    }
}

/// What nobody can have fewer of than none.
fn whole(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

fn caches(pools: &[Held<'_>], limits: &Limits, out: &mut Checks) {
    let (mut near, mut detail) = (0, Vec::new());
    for (name, pool, sum) in pools {
        let own = f64::from(pool.cache_target_full_ratio_micro);
        let ratio = (own + (1e6 - own) * limits.cache_full_ratio) / 1e6;
        let reached = |n: u64, most: u64| most != 0 && n as f64 > most as f64 * ratio;
        let before = detail.len();
        let objects = whole(sum.num_objects.saturating_sub(sum.num_objects_hit_set_archive));
        if reached(objects, pool.target_max_objects) {
            let (n, most) = (count(whole(sum.num_objects)), count(pool.target_max_objects));
            detail.push(format!("cache pool '{name}' with {n} objects at/near target max {most} objects"));
        }
        let held = whole(sum.num_bytes.saturating_sub(sum.num_bytes_hit_set_archive));
        if reached(held, pool.target_max_bytes) {
            let (n, most) = (bytes(whole(sum.num_bytes)), bytes(pool.target_max_bytes));
            detail.push(format!("cache pool '{name}' with {n} at/near target max {most}"));
        }
        near += usize::from(detail.len() > before);
    }
    add(out, "CACHE_POOL_NEAR_FULL", WARNING, near, "cache pools at or near target size", detail);
}

/// Of the quota of each pool, those that have reached it are the monitors' matter.
fn quotas(pools: &[Held<'_>], limits: &Limits, out: &mut Checks) {
    let (mut full, mut near): ((usize, Vec<String>), (usize, Vec<String>)) = Default::default();
    for (name, pool, sum) in pools {
        let (objects, held) = (whole(sum.num_objects), whole(sum.num_bytes));
        let lines = [
            (
                objects,
                pool.quota_max_objects,
                format!("{objects} objects"),
                pool.quota_max_objects.to_string(),
            ),
            (held, pool.quota_max_bytes, bytes(held), bytes(pool.quota_max_bytes)),
        ];
        let before = (full.1.len(), near.1.len());
        for (n, most, has, quota) in lines {
            let above = |ratio: f64| ratio > 0.0 && n as f64 >= most as f64 * ratio;
            let line = || format!("pool '{name}' has {has} (max {quota})");
            if most == 0 || n >= most {
                continue;
            }
            if above(limits.quota_full) {
                full.1.push(line());
            } else if above(limits.quota_near_full) {
                near.1.push(line());
            }
        }
        full.0 += usize::from(full.1.len() > before.0);
        near.0 += usize::from(near.1.len() > before.1);
    }
    add(out, "POOL_FULL", ERROR, full.0, "pools full", full.1);
    add(out, "POOL_NEAR_FULL", WARNING, near.0, "pools nearfull", near.1);
}

fn placement_counts(pools: &[Held<'_>], out: &mut Checks) {
    let line = |(name, pool, _): &Held<'_>| {
        let (pgs, places) = (pool.pg_num_target, pool.pgp_num_target);
        (pgs > places).then(|| format!("pool {name} pg_num {pgs} > pgp_num {places}"))
    };
    let detail: Vec<String> = pools.iter().filter_map(line).collect();
    add(out, "SMALLER_PGP_NUM", WARNING, detail.len(), "pools have pg_num > pgp_num", detail);
}

fn skewed(pools: &[Held<'_>], sums: &Sums, limits: &Limits, out: &mut Checks) {
    let all = sums.total.stats.sum.num_objects;
    let average = all.checked_div(i64::from(sums.num_pg)).unwrap_or(0);
    if average <= 0 || all < limits.skew_objects || limits.skew <= 0.0 {
        return;
    }
    let line = |(name, pool, sum): &Held<'_>| {
        let per_pg = sum.num_objects.checked_div(i64::from(pool.pg_num_target))?;
        let ratio = per_pg as f64 / average as f64;
        let far = sum.num_objects >= limits.skew_pool_objects && ratio > limits.skew;
        let ratio = six_digits(ratio);
        let text = || {
            format!(
                "pool {name} objects per pg ({per_pg}) is more than {ratio} times cluster average ({average})"
            )
        };
        far.then(text)
    };
    let detail: Vec<String> = pools.iter().filter_map(line).collect();
    let what = "pools have many more objects per pg than average";
    add(out, "MANY_OBJECTS_PER_PG", WARNING, detail.len(), what, detail);
}

fn applications(pools: &[Held<'_>], limits: &Limits, out: &mut Checks) {
    if !limits.applications {
        return;
    }
    let line = |(name, pool, sum): &Held<'_>| {
        let bare = sum.num_objects > 0 && pool.application_metadata.is_empty() && !pool.is_tier();
        bare.then(|| format!("application not enabled on pool '{name}'"))
    };
    let mut detail: Vec<String> = pools.iter().filter_map(line).collect();
    let found = detail.len();
    detail.push(
        "use 'ceph osd pool application enable <pool-name> <app-name>', where <app-name> is 'cephfs', 'rbd', 'rgw', \
         or freeform for custom applications."
            .to_owned(),
    );
    add(out, "POOL_APP_NOT_ENABLED", WARNING, found, "pool(s) do not have an application enabled", detail);
}
