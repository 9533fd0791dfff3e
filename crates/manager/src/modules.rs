//! The modules of Ceph's manager, as a manager of ours stands for them on Ceph's monitors.
//!
//! Source: src/pybind/mgr of 16.2, MgrMonitor::always_on_modules.

use std::collections::{BTreeMap, BTreeSet};

use codec::Encode;
use maps::{MgrMap, ModuleOption, OsdMap, Release};
use messages::mgr::ModuleInfo;
use messages::osd::RawEnvelope;

use crate::balancer::{self, Mode};
use crate::{autoscaler, crashes, dashboard, device_health, progress, prometheus, rbd};

/// Served here.
const SERVED: [&str; 10] = [
    "balancer",
    "crash",
    "dashboard",
    "devicehealth",
    "iostat",
    "pg_autoscaler",
    "progress",
    "prometheus",
    "rbd_support",
    "status",
];

/// Codes of health that Ceph's always-on modules make.
const CODES_OF_MODULES: &str = "MGR_MODULE_*, TELEMETRY_CHANGED";

/// The others of 16.2.
const NOT_SERVED: [&str; 23] = [
    "alerts",
    "cephadm",
    "diskprediction_local",
    "influx",
    "insights",
    "k8sevents",
    "localpool",
    "mds_autoscaler",
    "mirroring",
    "nfs",
    "orchestrator",
    "osd_perf_query",
    "osd_support",
    "restful",
    "rook",
    "selftest",
    "snap_schedule",
    "stats",
    "telegraf",
    "telemetry",
    "test_orchestrator",
    "volumes",
    "zabbix",
];

/// A new cluster has these on, and they do nothing until somebody sets them up: an address that they serve
/// at, or an orchestrator.
const IDLE: [&str; 2] = ["nfs", "restful"];

const REASON: &str = "a manager of Loligo does not serve it";

/// What a beacon says of modules to Ceph's monitors.
pub(crate) fn offered() -> Vec<ModuleInfo> {
    let mut all = served();
    all.extend(NOT_SERVED.iter().map(|name| info(name, REASON)));
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The same to monitors of ours, which know what a manager of ours does not serve.
pub(crate) fn served() -> Vec<ModuleInfo> {
    SERVED.into_iter().map(|name| info(name, "")).collect()
}

fn info(name: &str, error: &str) -> ModuleInfo {
    let options = match name {
        "balancer" => described(&balancer::OPTIONS),
        "crash" => described(&crashes::OPTIONS),
        "devicehealth" => described(&device_health::OPTIONS),
        dashboard::MODULE => described(&dashboard::OPTIONS),
        "pg_autoscaler" => described(&autoscaler::OPTIONS),
        "progress" => described(&progress::OPTIONS),
        prometheus::MODULE => described(&prometheus::OPTIONS),
        "rbd_support" => described(&rbd::OPTIONS),
        _ => BTreeMap::new(),
    };
    ModuleInfo { name: name.to_owned(), can_run: error.is_empty(), error: error.to_owned(), options }
}

/// Kinds of options by number. Source: Option::type_t in src/common/options.h.
const KINDS: [&str; 11] =
    ["uint", "int", "str", "float", "bool", "addr", "addrvec", "uuid", "size", "secs", "millisecs"];

/// The monitors let only those options of a module be set that its manager names.
fn described(options: &[(&str, &str, &str)]) -> BTreeMap<String, RawEnvelope> {
    let option = |(name, kind, default): &(&str, &str, &str)| {
        let kind = KINDS.iter().position(|k| k == kind).and_then(|at| u8::try_from(at).ok()).unwrap_or(2);
        let choices: &[&str] = match *name {
            "mode" => &[Mode::None.name(), Mode::CrushCompat.name(), Mode::Upmap.name()],
            "ssl" if *default == "auto" => &["auto", "true", "false"],
            "standby_behaviour" => &["default", "error"],
            _ => &[],
        };
        let (min, max) = if *name == "standby_error_status_code" { ("400", "599") } else { ("", "") };
        let option = ModuleOption {
            name: (*name).to_owned(),
            kind,
            // Advanced, and taken over while the manager runs.
            level: 1,
            flags: 1,
            default_value: (*default).to_owned(),
            min: min.to_owned(),
            max: max.to_owned(),
            enum_allowed: choices.iter().map(|c| (*c).to_owned()).collect(),
            ..ModuleOption::default()
        };
        ((*name).to_owned(), RawEnvelope(option.to_bytes()))
    };
    options.iter().map(option).collect()
}

/// Whether commands of a module are served at least.
fn is_served(name: &str) -> bool {
    SERVED.contains(&name)
}

/// A module's switch as it is written in any of the usual ways; `default` where it says neither yes nor no.
pub(crate) fn is_on(given: Option<&str>, default: bool) -> bool {
    match given.unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => true,
        "false" | "no" | "off" | "0" => false,
        _ => default,
    }
}

/// What Ceph's manager always does and a manager of ours does not; `None` where the map says nothing of that.
pub(crate) fn always_on_unserved(map: &MgrMap) -> Option<String> {
    let all = map.always_on_modules.get(&u32::from(Release::PACIFIC.0))?;
    let missing: Vec<&str> = all.iter().map(String::as_str).filter(|name| !is_served(name)).collect();
    Some(format!(
        "of the modules that are always on this manager does not stand for {}; no health checks are made of \
         {CODES_OF_MODULES}; of rbd_support it does neither migrations nor snapshots of mirrored images",
        missing.join(", ")
    ))
}

/// Always-on modules of which pools show that they are used: those of a file system are the work of
/// `volumes`.
pub(crate) fn used_by_pools(map: &OsdMap) -> BTreeSet<String> {
    let of_files = map.pools.values().any(|pool| pool.application_metadata.contains_key("cephfs"));
    of_files.then(|| "volumes".to_owned()).into_iter().collect()
}

/// Modules in use that nobody would stand for if a manager of ours took over.
pub(crate) fn unserved(map: &MgrMap) -> BTreeSet<String> {
    let in_use = |name: &&String| {
        let name = name.as_str();
        !is_served(name) && (!IDLE.contains(&name) || map.services.contains_key(name))
    };
    map.modules.iter().filter(in_use).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_is_listed_once_with_a_reason_where_it_cannot_run() {
        let all = offered();
        let names: BTreeSet<&str> = all.iter().map(|m| m.name.as_str()).collect();
        assert_eq!((all.len(), names.len()), (33, 33));
        assert!(all.iter().all(|m| m.can_run == m.error.is_empty()));
        let always_on = MgrMap::initial().always_on_modules.into_values().next_back().expect("some");
        assert!(always_on.iter().all(|name| names.contains(name.as_str())), "{always_on:?}");
        let balancer = all.iter().find(|m| m.name == "balancer").expect("listed");
        assert!(balancer.can_run && balancer.options.contains_key("upmap_max_deviation"));
    }

    #[test]
    fn what_is_always_on_and_not_served_is_named() {
        let said = always_on_unserved(&MgrMap::initial()).expect("a line");
        assert!(said.contains("for orchestrator, telemetry, volumes;"), "{said}");
        assert_eq!(always_on_unserved(&MgrMap::default()), None);
    }

    #[test]
    fn modules_that_do_something_are_in_use() {
        let mut map = MgrMap::initial();
        assert_eq!(unserved(&map), BTreeSet::new(), "those of a new cluster");
        map.services.insert("restful".to_owned(), "https://h:8003/".to_owned());
        map.modules.insert("cephadm".to_owned());
        assert_eq!(unserved(&map), ["cephadm".to_owned(), "restful".to_owned()].into());
    }
}
