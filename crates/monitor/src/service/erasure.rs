//! Erasure code profiles: what a profile means, and the CRUSH rule and sizes that pools get from it.
//!
//! Placement alone: OSDs refuse the data of erasure-coded pools.
//!
//! Source: OSDMonitor::parse_erasure_code_profile, normalize_profile, prepare_pool_size, prepare_pool_stripe_width,
//! ErasureCode::init and create_rule in src/erasure-code.

use std::collections::BTreeMap;

use admin::units::{parse_iec, parse_int};
use crush::{RULE_ERASURE, RuleMode};
use maps::OsdMap;
use types::Errno;

use crate::proposal::Batch;
use crate::service::pool::Refusal;

/// Keys and values of a profile.
pub(crate) type Profile = BTreeMap<String, String>;

/// osd_pool_erasure_code_stripe_unit, in bytes.
const STRIPE_UNIT: u64 = 4096;

/// What a profile comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    /// Chunks with data.
    pub(crate) k: u8,
    /// Chunks with parity.
    pub(crate) m: u8,
    /// Bytes of data in one stripe.
    pub(crate) stripe_width: u32,
}

impl Code {
    pub(crate) fn size(self) -> u8 {
        self.k + self.m
    }

    pub(crate) fn min_size(self) -> u8 {
        self.k + self.m.saturating_sub(1).min(1)
    }
}

fn invalid(text: impl Into<String>) -> Refusal {
    (Errno::EINVAL, text.into())
}

/// A profile from words `key=value` on top of the default one; the text is as a command prints it.
pub(crate) fn parse(words: &[String]) -> Result<Profile, Refusal> {
    let mut profile: Profile =
        [("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "2"), ("m", "2")].map(own).into();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        if let Some(rest) = key.strip_prefix("ruleset-") {
            let text = format!("property '{key}' is no longer supported; try 'crush-{rest}' instead");
            return Err(invalid(text));
        }
        profile.insert(key.to_owned(), value.to_owned());
    }
    Ok(profile)
}

fn own((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// A profile as texts show it.
pub(crate) fn show(profile: &Profile) -> String {
    let items: Vec<String> = profile.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", items.join(","))
}

/// Fills a profile's gaps as its plugin does, and says what it comes to.
pub(crate) fn normalise(map: &OsdMap, profile: &mut Profile, force: bool) -> Result<Code, Refusal> {
    let Some(plugin) = profile.get("plugin").cloned() else {
        let text = "cannot determine the erasure code plugin because there is no 'plugin' entry in the \
                    erasure_code_profile ";
        return Err(invalid(text.to_owned() + &show(profile)));
    };
    let domain = profile.get("crush-failure-domain").cloned().unwrap_or_default();
    if !domain.is_empty() && map.crush.type_id(&domain).is_none() {
        let text =
            format!("erasure-code-profile {} contains an invalid failure-domain \"{domain}\"", show(profile));
        return Err(invalid(text));
    }
    let technique = profile.get("technique").map_or("", String::as_str);
    if plugin != "jerasure" || !matches!(technique, "" | "reed_sol_van") {
        let text = format!("erasure code plugin {plugin} technique {technique} is not supported");
        return Err((Errno::EOPNOTSUPP, text));
    }
    for (key, default) in [
        ("crush-device-class", ""),
        ("crush-failure-domain", "host"),
        ("crush-root", "default"),
        ("jerasure-per-chunk-alignment", "false"),
        ("k", "7"),
        ("m", "3"),
        ("technique", "reed_sol_van"),
        ("w", "8"),
    ] {
        let value = profile.entry(key.to_owned()).or_default();
        if value.is_empty() {
            default.clone_into(value);
        }
    }
    let number = |key: &str| {
        let text = profile.get(key).map_or("", String::as_str);
        parse_int(text).map_err(|e| invalid(format!("could not convert {key}={text} to int because {e}")))
    };
    let (k, m, w) = (number("k")?, number("m")?, number("w")?);
    if k < 2 {
        return Err(invalid(format!("k={k} must be >= 2")));
    }
    if m < 1 {
        return Err(invalid(format!("m={m} must be >= 1")));
    }
    if !matches!(w, 8 | 16 | 32) {
        return Err(invalid(format!(
            "ReedSolomonVandermonde: w={w} must be one of {{8, 16, 32}} : revert to 8"
        )));
    }
    let (Ok(k), Ok(m), true) = (u8::try_from(k), u8::try_from(m), k + m <= 255) else {
        return Err(invalid(format!("k+m={} must be <= 255", k + m)));
    };
    let stripe_width = stripe_width(profile, u64::from(k), w.unsigned_abs(), force)?;
    Ok(Code { k, m, stripe_width })
}

/// Bytes of data in one stripe: what one chunk holds must be whole words of the code.
fn stripe_width(profile: &Profile, k: u64, w: u64, force: bool) -> Result<u32, Refusal> {
    let chunk_size = |unit: u64| (unit * k).div_ceil(k * w * 4) * w * 4;
    let unit = match profile.get("stripe_unit") {
        None => STRIPE_UNIT,
        Some(text) => {
            let parsed =
                parse_iec(text).map_err(|e| invalid(format!("could not parse stripe_unit '{text}': {e}")));
            let unit = u64::try_from(parsed?).map_err(|_| invalid("stripe_unit is negative"))?;
            if unit == 0 || unit > 1 << 24 {
                return Err(invalid(format!("stripe_unit {unit} is out of range")));
            }
            if chunk_size(unit) != unit {
                let padded = chunk_size(unit);
                let text = format!(
                    "stripe_unit {unit} does not match ec profile alignment. Would be padded to {padded}\n"
                );
                return Err(invalid(text));
            }
            if unit % 4096 != 0 && !force {
                let text = "stripe_unit should be a multiple of 4096 bytes for best performance.use --force to \
                            override this check\n";
                return Err(invalid(text));
            }
            unit
        }
    };
    u32::try_from(k * chunk_size(unit)).map_err(|_| invalid("the stripe is too wide"))
}

/// The rule of a pool: the one of this name, made from the profile when there is none.
pub(crate) fn rule(batch: &mut Batch, name: &str, profile: &Profile, code: Code) -> Result<u32, Refusal> {
    let mut crush = batch.osdmap().crush.as_ref().clone();
    if let Some(id) = crush.rule_id(name) {
        return u32::try_from(id).map_err(|_| (Errno::ENOENT, format!("rule {name} does not exist")));
    }
    let get = |key: &str| profile.get(key).map_or("", String::as_str);
    let class = Some(get("crush-device-class")).filter(|c| !c.is_empty());
    let (root, domain) = (get("crush-root"), get("crush-failure-domain"));
    let id = crush
        .add_simple_rule(name, root, domain, class, RuleMode::Indep, RULE_ERASURE, None)
        .map_err(|e| (Errno(e.errno()), e.to_string()))?;
    if let Some(Some(rule)) = crush.rules.get_mut(id as usize) {
        rule.max_size = code.size();
        rule.min_size = rule.min_size.min(code.size());
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
        let mut profile = parse(&words).expect("words");
        let got = normalise(&map, &mut profile, false);
        match want {
            Ok((k, m, stripe_width)) => assert_eq!(got, Ok(Code { k, m, stripe_width }), "{words:?}"),
            Err(text) => assert_eq!(got.expect_err("refused").1.trim_end(), text, "{words:?}"),
        }
    }

    /// What a cluster of 16.2.15 said to the same profiles.
    #[test]
    fn profiles_come_to_what_ceph_makes_of_them() {
        check(&["k=2", "m=1", "crush-failure-domain=osd"], Ok((2, 1, 8192)));
        check(&["k=2", "m=1", "stripe_unit=8K"], Ok((2, 1, 16_384)));
        check(&["k"], Ok((7, 2, 28_672)));
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
        let mut profile =
            parse(&["m=1".to_owned(), "crush-failure-domain=osd".to_owned()]).expect("a profile");
        let code = normalise(&map, &mut profile, false).expect("a profile");
        let want = "{crush-device-class=,crush-failure-domain=osd,crush-root=default,\
                    jerasure-per-chunk-alignment=false,k=2,m=1,plugin=jerasure,technique=reed_sol_van,w=8}";
        assert_eq!((show(&profile).as_str(), code.size(), code.min_size()), (want, 3, 2));
    }
}
