//! Options that the manager itself heeds, with their defaults; values come from the monitors or from `tell`.

use std::collections::BTreeMap;

/// One option. Source: src/common/options.cc.
#[derive(Debug, Clone, Copy)]
pub struct OptionInfo {
    pub name: &'static str,
    /// `int`, `uint`, `float`, `size`, `secs`, as Ceph names types.
    pub kind: &'static str,
    pub default: &'static str,
    pub desc: &'static str,
}

const fn option(
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    desc: &'static str,
) -> OptionInfo {
    OptionInfo { name, kind, default, desc }
}

/// In the order of their names.
pub const OPTIONS: &[OptionInfo] = &[
    option("mgr_stats_period", "int", "5", "Period in seconds of OSD/MDS stats reports to manager"),
    option(
        "mon_pg_stuck_threshold",
        "int",
        "60",
        "number of seconds after which pgs can be considered stuck",
    ),
    option("mon_reweight_max_change", "float", "0.05", "maximum change to apply to reweighted OSDs"),
    option("mon_reweight_max_osds", "int", "4", "maximum number of OSDs to reweight at once"),
    option(
        "mon_reweight_min_bytes_per_osd",
        "size",
        "104857600",
        "minimum bytes used per osd for reweight by utilization",
    ),
    option("mon_reweight_min_pgs_per_osd", "uint", "10", "minimum pgs per osd for reweight by pg"),
];

/// Where a value came from; later ones win. Source: CONF_* in src/common/config_values.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Mon,
    Override,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mon => "mon",
            Self::Override => "override",
        }
    }

    /// Source: CONF_* in src/common/config.h.
    pub fn number(self) -> i32 {
        match self {
            Self::Mon => 1,
            Self::Override => 5,
        }
    }
}

/// Values that are not defaults.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    values: BTreeMap<&'static str, BTreeMap<Level, String>>,
}

impl Options {
    /// What the option is about.
    pub fn info(name: &str) -> Option<&'static OptionInfo> {
        OPTIONS.iter().find(|o| o.name == name)
    }

    /// The monitors' values, which replace their earlier ones. Values that do not parse and options that are not ours are
    /// left out.
    pub fn set_from_mon(&mut self, values: &BTreeMap<String, String>) {
        for levels in self.values.values_mut() {
            levels.remove(&Level::Mon);
        }
        for (name, value) in values {
            // A value that does not parse leaves the default in place.
            let _ = self.set(name, value, Level::Mon);
        }
    }

    /// Sets a value; an error tells why not.
    pub fn set(&mut self, name: &str, value: &str, level: Level) -> Result<(), String> {
        let Some(info) = Self::info(name) else { return Err(format!("unrecognized config option '{name}'")) };
        let number = value.parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0);
        match number {
            Some(v) if info.kind == "float" || v.fract() == 0.0 => {
                self.values.entry(info.name).or_default().insert(level, value.to_owned());
                Ok(())
            }
            _ => Err(format!("error parsing value: '{value}' is not a valid {}", info.kind)),
        }
    }

    /// Back to what the monitors say.
    pub fn unset(&mut self, name: &str) {
        if let Some(levels) = self.values.get_mut(name) {
            levels.remove(&Level::Override);
        }
    }

    /// The value in force.
    pub fn text(&self, name: &str) -> Option<&str> {
        let set = self.values.get(name).and_then(|levels| levels.last_key_value());
        set.map(|(_, v)| v.as_str()).or_else(|| Self::info(name).map(|o| o.default))
    }

    /// Values by level, for those that have any.
    pub fn levels(&self, name: &str) -> impl Iterator<Item = (Level, &str)> {
        self.values.get(name).into_iter().flatten().map(|(l, v)| (*l, v.as_str()))
    }

    /// The value in force; 0 for names that are not options.
    pub fn float(&self, name: &str) -> f64 {
        self.text(name).and_then(|v| v.parse().ok()).unwrap_or(0.0)
    }

    pub fn int(&self, name: &str) -> i64 {
        self.float(name) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_levels_win_and_bad_values_lose() {
        let mut o = Options::default();
        assert_eq!((o.int("mgr_stats_period"), o.float("mon_reweight_max_change")), (5, 0.05));
        let from_mon = [("mgr_stats_period", "7"), ("mon_pg_stuck_threshold", "x"), ("bogus", "1")];
        o.set_from_mon(&from_mon.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert_eq!((o.int("mgr_stats_period"), o.int("mon_pg_stuck_threshold")), (7, 60));
        assert_eq!(o.set("mgr_stats_period", "9", Level::Override), Ok(()));
        assert_eq!(o.text("mgr_stats_period"), Some("9"));
        assert_eq!(
            o.levels("mgr_stats_period").collect::<Vec<_>>(),
            [(Level::Mon, "7"), (Level::Override, "9")]
        );
        o.unset("mgr_stats_period");
        o.set_from_mon(&BTreeMap::new());
        assert_eq!(o.text("mgr_stats_period"), Some("5"));
        assert!(o.set("mgr_stats_period", "1.5", Level::Override).is_err());
        assert!(o.set("mgr_stats_period", "-1", Level::Override).is_err());
        assert!(o.set("bogus", "1", Level::Override).is_err_and(|e| e.contains("bogus")));
    }

    #[test]
    fn defaults_parse_and_names_are_in_order() {
        assert!(OPTIONS.is_sorted_by(|a, b| a.name < b.name));
        let mut o = Options::default();
        assert!(OPTIONS.iter().all(|i| o.set(i.name, i.default, Level::Override).is_ok()));
    }
}
