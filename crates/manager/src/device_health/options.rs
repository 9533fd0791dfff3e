//! Options of disks' health, under `mgr/devicehealth/`.
//!
//! Source: MODULE_OPTIONS in src/pybind/mgr/devicehealth/module.py (16.2).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::modules::is_on;

const PREFIX: &str = "mgr/devicehealth/";
/// The one that `device monitoring on|off` sets.
pub(crate) const ENABLED: &str = "mgr/devicehealth/enable_monitoring";

/// Name, type and default of each.
pub(crate) const OPTIONS: [(&str, &str, &str); 8] = [
    ("enable_monitoring", "bool", "true"),
    ("mark_out_threshold", "secs", "2419200"),
    ("pool_name", "str", "device_health_metrics"),
    ("retention_period", "secs", "15552000"),
    ("scrape_frequency", "secs", "86400"),
    ("self_heal", "bool", "true"),
    ("sleep_interval", "secs", "600"),
    ("warn_threshold", "secs", "7257600"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub enabled: bool,
    pub pool_name: String,
    pub self_heal: bool,
    pub mark_out_s: u64,
    pub warn_s: u64,
    pub retention_s: u64,
    /// How often disks are asked, and how often it is looked whether that is due; never 0.
    pub scrape_s: u64,
    pub sleep: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self::of(&BTreeMap::new())
    }
}

impl Options {
    /// What the monitors say; what makes no sense counts as the default.
    pub fn of(given: &BTreeMap<String, String>) -> Self {
        let get = |name: &str| given.get(&format!("{PREFIX}{name}")).map(|v| v.trim());
        let usual = |name: &str| OPTIONS.iter().find(|(n, ..)| *n == name).map_or("", |(.., v)| *v);
        let seconds = |name: &str| {
            let number = |text: &str| text.parse::<u64>().ok();
            get(name).and_then(number).or_else(|| number(usual(name))).unwrap_or(0)
        };
        let not_0 = |n: u64, else_: u64| if n == 0 { else_ } else { n };
        let pool_name = get("pool_name").filter(|name| !name.is_empty()).unwrap_or(usual("pool_name"));
        Self {
            enabled: is_on(get("enable_monitoring"), true),
            pool_name: pool_name.to_owned(),
            self_heal: is_on(get("self_heal"), true),
            mark_out_s: seconds("mark_out_threshold"),
            warn_s: seconds("warn_threshold"),
            retention_s: seconds("retention_period"),
            scrape_s: not_0(seconds("scrape_frequency"), 86_400),
            sleep: Duration::from_secs(not_0(seconds("sleep_interval"), 60)),
        }
    }
}
