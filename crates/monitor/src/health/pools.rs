//! Checks of pools: full, without copies, without an application.
//!
//! Source: OSDMap::check_health in src/osd/OSDMap.cc, PGMap::get_health_checks in src/mon/PGMap.cc.

use maps::{HitSetParams, OsdMap, Pool, pool_flags};
use types::PoolId;

use super::{Checks, Seen, Severity};

pub(super) fn check(seen: &Seen<'_>, checks: &mut Checks) {
    let map = seen.state.osdmap();
    scrub_flags(map, checks);
    hit_sets(seen, map, checks);
    full(map, checks);
    if seen.switch("mon_warn_on_pool_pg_num_not_power_of_two") {
        let detail = each(map, |_, name, pool| {
            let odd = !pool.pg_num_target.is_power_of_two();
            odd.then(|| format!("pool '{name}' pg_num {} is not a power of two", pool.pg_num_target))
        });
        checks.warn_each("POOL_PG_NUM_NOT_POWER_OF_TWO", "pool(s) have non-power-of-two pg_num", detail);
    }
    if seen.switch("mon_warn_on_pool_no_redundancy") {
        let detail = each(map, |_, name, pool| {
            (pool.size == 1).then(|| format!("pool '{name}' has no replicas configured"))
        });
        checks.warn_each("POOL_NO_REDUNDANCY", "pool(s) have no replicas configured", detail);
    }
    applications(seen, map, checks);
    unserved(map, checks);
}

/// OSDs serve an erasure-coded pool when its numbers are those of a profile that they know. Commands make no
/// other one; one may come with a map of an earlier release.
fn unserved(map: &OsdMap, checks: &mut Checks) {
    let detail = each(map, |_, name, pool| {
        let misfit = crate::service::erasure::misfit(map, pool)?;
        Some(format!("pool '{name}' is refused by OSDs: {misfit}"))
    });
    checks.warn_each("POOL_NOT_SERVED", "pool(s) do not fit their erasure code profile", detail);
}

/// A line for each pool that `f` finds fault with.
fn each(map: &OsdMap, f: impl Fn(PoolId, &str, &Pool) -> Option<String>) -> Vec<String> {
    map.pools.iter().filter_map(|(id, pool)| f(*id, map.pool_name(*id).unwrap_or_default(), pool)).collect()
}

/// Reported though it leaves health OK.
fn scrub_flags(map: &OsdMap, checks: &mut Checks) {
    let flags = [(pool_flags::NOSCRUB, "noscrub"), (pool_flags::NODEEP_SCRUB, "nodeep-scrub")];
    let mut detail = Vec::new();
    for (id, pool) in &map.pools {
        let name = map.pool_name(*id).unwrap_or_default();
        let set = flags.iter().filter(|(bit, _)| pool.has_flag(*bit));
        detail.extend(set.map(|(_, flag)| format!("Pool {name} has {flag} flag")));
    }
    let set = flags.iter().filter(|(bit, _)| map.pools.values().any(|p| p.has_flag(*bit)));
    let names: Vec<&str> = set.map(|(_, flag)| *flag).collect();
    if !detail.is_empty() {
        let summary = format!("Some pool(s) have the {} flag(s) set", names.join(", "));
        checks.add("POOL_SCRUB_FLAGS", Severity::Ok, summary, 0, detail);
    }
}

fn hit_sets(seen: &Seen<'_>, map: &OsdMap, checks: &mut Checks) {
    if !seen.switch("mon_warn_on_cache_pools_without_hit_sets") {
        return;
    }
    let detail = each(map, |_, name, pool| {
        let mode = pool.cache_mode_name();
        let needs = matches!(mode, "writeback" | "readforward" | "readproxy");
        let missing = needs && pool.hit_set_params == HitSetParams::None;
        let text =
            || format!("pool '{name}' with cache_mode {mode} needs hit_set_type to be set but it is not");
        missing.then(text)
    });
    checks.warn_each("CACHE_POOL_NO_HIT_SET", "cache pools are missing hit_sets", detail);
}

fn full(map: &OsdMap, checks: &mut Checks) {
    // A pool counts once, with the worst of its flags.
    let worst = |pool: &Pool| {
        [pool_flags::FULL, pool_flags::BACKFILLFULL, pool_flags::NEARFULL]
            .into_iter()
            .find(|f| pool.has_flag(*f))
    };
    let full = each(map, |_, name, pool| {
        let why = if pool.has_flag(pool_flags::FULL_QUOTA) { "running out of quota" } else { "no space" };
        (worst(pool) == Some(pool_flags::FULL)).then(|| format!("pool '{name}' is full ({why})"))
    });
    checks.warn_each("POOL_FULL", "pool(s) full", full);
    for (flag, code, word) in [
        (pool_flags::BACKFILLFULL, "POOL_BACKFILLFULL", "backfillfull"),
        (pool_flags::NEARFULL, "POOL_NEARFULL", "nearfull"),
    ] {
        let detail = each(map, |_, name, pool| {
            (worst(pool) == Some(flag)).then(|| format!("pool '{name}' is {word}"))
        });
        checks.warn_each(code, &format!("pool(s) {word}"), detail);
    }
}

fn applications(seen: &Seen<'_>, map: &OsdMap, checks: &mut Checks) {
    if !seen.switch("mon_warn_on_pool_no_app") || seen.reported("POOL_APP_NOT_ENABLED") {
        return;
    }
    let mut detail = each(map, |id, name, pool| {
        let usage = seen.state.digest.pools.get(&id)?;
        let bare =
            usage.stat.stats.sum.num_objects > 0 && pool.application_metadata.is_empty() && !pool.is_tier();
        bare.then(|| format!("application not enabled on pool '{name}'"))
    });
    if detail.is_empty() {
        return;
    }
    let count = detail.len();
    detail.push(
        "use 'ceph osd pool application enable <pool-name> <app-name>', where <app-name> is 'cephfs', 'rbd', 'rgw', \
         or freeform for custom applications."
            .to_owned(),
    );
    let summary = format!("{count} pool(s) do not have an application enabled");
    checks.warn("POOL_APP_NOT_ENABLED", summary, count, detail);
}

#[cfg(test)]
mod tests {
    use maps::PoolType;

    use super::*;

    #[test]
    fn pools_that_do_not_fit_their_profile_are_named() {
        let mut map = OsdMap::default();
        let profile = |plugin: &str| {
            let words = [("plugin", plugin), ("technique", "reed_sol_van"), ("k", "2"), ("m", "1")];
            words.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
        };
        map.erasure_code_profiles.insert("good".to_owned(), profile("jerasure"));
        map.erasure_code_profiles.insert("foreign".to_owned(), profile("clay"));
        for (id, name, profile, size) in
            [(1, "a", "good", 3), (2, "b", "good", 2), (3, "c", "foreign", 3), (4, "d", "gone", 3)]
        {
            let mut pool = Pool::new(PoolType::Erasure, 8);
            profile.clone_into(&mut pool.erasure_code_profile);
            (pool.size, pool.stripe_width) = (size, 8192);
            map.pools.insert(PoolId(id), pool);
            map.pool_names.insert(PoolId(id), name.to_owned());
        }
        let mut checks = Checks::default();
        unserved(&map, &mut checks);
        let told = &checks.0["POOL_NOT_SERVED"].detail;
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].starts_with("pool 'b' is refused by OSDs: its profile makes 3 chunks"), "{told:?}");
        assert!(told[1].starts_with("pool 'c'") && told[2].starts_with("pool 'd'"), "{told:?}");
    }
}
