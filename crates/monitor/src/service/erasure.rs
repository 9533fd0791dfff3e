//! Erasure code profiles: which the monitor takes, and the CRUSH rule and sizes that pools get from them.
//!
//! Source: OSDMonitor::parse_erasure_code_profile, normalize_profile, prepare_pool_size, prepare_pool_stripe_width,
//! ErasureCode::init and create_rule in src/erasure-code.

use std::collections::BTreeMap;

use crush::{RULE_ERASURE, RuleMode};
use erasure::{MisfitError, Placement, Profile, ProfileError};
use maps::{OsdMap, Pool};
use types::Errno;

use crate::proposal::Batch;
use crate::service::pool::Refusal;

/// Keys and values of a profile, as a map carries them.
pub(crate) type Values = BTreeMap<String, String>;

/// osd_pool_erasure_code_stripe_unit, in bytes.
const STRIPE_UNIT: u32 = 4096;

/// The plug-in of `osd_pool_default_erasure_code_profile`.
const DEFAULT_PLUGIN: &str = "jerasure";

fn invalid(text: impl Into<String>) -> Refusal {
    (Errno::EINVAL, text.into())
}

fn refusal(error: &ProfileError) -> Refusal {
    (error.errno(), error.to_string())
}

/// A profile from words `key=value`: on top of the default one, unless they name another plug-in.
pub(crate) fn parse(words: &[String]) -> Result<Values, Refusal> {
    let mut own = Values::new();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        if let Some(rest) = key.strip_prefix("ruleset-") {
            let text = format!("property '{key}' is no longer supported; try 'crush-{rest}' instead");
            return Err(invalid(text));
        }
        own.insert(key.to_owned(), value.to_owned());
    }
    if own.get("plugin").is_some_and(|plugin| plugin != DEFAULT_PLUGIN) {
        return Ok(own);
    }
    let default = [("plugin", DEFAULT_PLUGIN), ("technique", "reed_sol_van"), ("k", "2"), ("m", "2")];
    let mut values: Values = default.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    values.append(&mut own);
    Ok(values)
}

/// A profile as texts show it.
pub(crate) fn show(values: &Values) -> String {
    let items: Vec<String> = values.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", items.join(","))
}

/// What an operator gives.
pub(crate) fn check(map: &OsdMap, values: &Values, force: bool) -> Result<Profile, Refusal> {
    if let Some(domain) = values.get("crush-failure-domain")
        && map.crush.type_id(domain).is_none()
    {
        let text =
            format!("erasure-code-profile {} contains an invalid failure-domain \"{domain}\"", show(values));
        return Err(invalid(text));
    }
    let profile = Profile::checked(values, force).map_err(|e| refusal(&e))?;
    // A pool of it shall be possible.
    profile.stripe_width(STRIPE_UNIT).map_err(|e| refusal(&e))?;
    Ok(profile)
}

/// A profile by its name; one that does not exist has no plug-in.
pub(crate) fn read(map: &OsdMap, name: &str) -> Result<Profile, Refusal> {
    let none = Values::new();
    Profile::new(map.erasure_code_profiles.get(name).unwrap_or(&none)).map_err(|e| refusal(&e))
}

/// Whether a pool is replicated, or its numbers are those of its profile: of another one OSDs make no PGs.
pub(crate) fn is_served(map: &OsdMap, pool: &Pool) -> bool {
    misfit(map, pool).is_none()
}

/// What OSDs find wrong with a pool's profile.
pub(crate) fn misfit(map: &OsdMap, pool: &Pool) -> Option<MisfitError> {
    if pool.is_erasure() { erasure::of_pool(map, pool).err() } else { None }
}

/// Bytes of data in one stripe.
pub(crate) fn stripe_width(profile: &Profile) -> Result<u32, Refusal> {
    profile.stripe_width(STRIPE_UNIT).map_err(|e| refusal(&e))
}

/// OSDs that a pool has in each PG, and those without which it answers nothing.
pub(crate) fn sizes(profile: &Profile) -> (u8, u8) {
    let (all, data) = (profile.chunks(), profile.data_chunks());
    // A profile has at most 32 chunks.
    let [size, min_size] =
        [all, data + all.saturating_sub(data + 1).min(1)].map(|n| u8::try_from(n).unwrap_or(u8::MAX));
    (size, min_size)
}

/// The rule of a pool: the one of this name, made from the profile when there is none.
pub(crate) fn rule(batch: &mut Batch, name: &str, profile: &Profile) -> Result<u32, Refusal> {
    let mut crush = batch.osdmap().crush.as_ref().clone();
    if let Some(id) = crush.rule_id(name) {
        return u32::try_from(id).map_err(|_| (Errno::ENOENT, format!("rule {name} does not exist")));
    }
    let (size, _) = sizes(profile);
    let class = |name: &'_ str| Some(name.to_owned()).filter(|name| !name.is_empty());
    let id = match profile.placement() {
        Placement::Simple { root, failure_domain, device_class } => {
            let class = class(device_class);
            crush.add_simple_rule(
                name,
                root,
                failure_domain,
                class.as_deref(),
                RuleMode::Indep,
                RULE_ERASURE,
                None,
            )
        }
        Placement::Steps { root, device_class, steps } => {
            let class = class(device_class);
            let steps = steps.iter().map(|step| (step.leaf, step.count, step.bucket_type.as_str()));
            crush.add_stepped_rule(name, root, class.as_deref(), steps, size)
        }
    };
    let id = id.map_err(|e| (Errno(e.errno()), e.to_string()))?;
    if let Some(Some(rule)) = crush.rules.get_mut(id as usize) {
        rule.max_size = size;
        rule.min_size = rule.min_size.min(size);
    }
    if !crate::edit::set_crush(batch.osdmap_mut(), &crush) {
        return Err(invalid("the edited CRUSH map cannot be encoded"));
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], want: Result<(u8, u8, u32), &str>) {
        let map = OsdMap::new_cluster(Default::default(), Default::default(), crush::CrushMap::new_default());
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let got = parse(&words).and_then(|values| super::check(&map, &values, false));
        match want {
            Ok((size, min_size, width)) => {
                let profile = got.unwrap_or_else(|e| panic!("{words:?}: {e:?}"));
                assert_eq!(
                    (sizes(&profile), stripe_width(&profile)),
                    ((size, min_size), Ok(width)),
                    "{words:?}"
                );
            }
            Err(text) => assert_eq!(got.expect_err("refused").1.trim_end(), text, "{words:?}"),
        }
    }

    /// What a cluster of 16.2.15 said to the same profiles.
    #[test]
    fn profiles_come_to_what_ceph_makes_of_them() {
        check(&["k=2", "m=1", "crush-failure-domain=osd"], Ok((3, 2, 8192)));
        check(&["k=2", "m=1", "stripe_unit=8K"], Ok((3, 2, 16_384)));
        check(&["k"], Ok((9, 8, 28_672)));
        check(&["plugin=isa", "k=4"], Ok((7, 5, 16_384)));
        check(&["plugin=lrc", "k=4", "m=2", "l=3"], Ok((8, 5, 16_384)));
        check(&["technique=cauchy_good", "k=4"], Ok((6, 5, 262_144)));
        check(&["k=1", "m=1"], Err("k=1 must be >= 2"));
        check(&["k=2", "m=0"], Err("m=0 must be >= 1"));
        check(&["k=3", "w=7"], Err("ReedSolomonVandermonde: w=7 must be one of {8, 16, 32} : revert to 8"));
        check(
            &["k=2", "m=1", "stripe_unit=5000"],
            Err("stripe_unit 5000 does not match ec profile alignment. Would be padded to 5024"),
        );
        check(
            &["crush-failure-domain=moon", "m=1"],
            Err(
                "erasure-code-profile {crush-failure-domain=moon,k=2,m=1,plugin=jerasure,technique=reed_sol_van} \
                 contains an invalid failure-domain \"moon\"",
            ),
        );
        assert_eq!(parse(&["ruleset-root=x".to_owned()]).map_err(|e| e.0), Err(Errno::EINVAL));
    }

    #[test]
    fn a_profile_is_filled_up_as_the_plugin_does() {
        let map = OsdMap::new_cluster(Default::default(), Default::default(), crush::CrushMap::new_default());
        let values = parse(&["m=1".to_owned(), "crush-failure-domain=osd".to_owned()]).expect("a profile");
        let profile = super::check(&map, &values, false).expect("a profile");
        let want = "{crush-device-class=,crush-failure-domain=osd,crush-root=default,\
                    jerasure-per-chunk-alignment=false,k=2,m=1,plugin=jerasure,technique=reed_sol_van,w=8}";
        assert_eq!((show(profile.values()).as_str(), sizes(&profile)), (want, (3, 2)));
    }
}
