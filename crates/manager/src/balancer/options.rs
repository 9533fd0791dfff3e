//! The balancer's settings: options of the config database under `mgr/balancer/`.
//!
//! Source: MODULE_OPTIONS in src/pybind/mgr/balancer/module.py.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maps::OsdMap;
use types::{PoolId, Utime};

use crate::modules::is_on;

const PREFIX: &str = "mgr/balancer/";

/// Name, type and default of each, as Ceph's monitors are told before they let one be set.
pub(crate) const OPTIONS: [(&str, &str, &str); 14] = [
    ("active", "bool", "true"),
    ("begin_time", "str", "0000"),
    ("begin_weekday", "uint", "0"),
    ("crush_compat_max_iterations", "uint", "25"),
    ("crush_compat_metrics", "str", "pgs,objects,bytes"),
    ("crush_compat_step", "float", "0.5"),
    ("end_time", "str", "2400"),
    ("end_weekday", "uint", "7"),
    ("min_score", "float", "0"),
    ("mode", "str", "upmap"),
    ("pool_ids", "str", ""),
    ("sleep_interval", "secs", "60"),
    ("upmap_max_deviation", "int", "5"),
    ("upmap_max_optimizations", "uint", "10"),
];

/// How PGs are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    None,
    CrushCompat,
    Upmap,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::CrushCompat => "crush-compat",
            Self::Upmap => "upmap",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::CrushCompat, Self::Upmap].into_iter().find(|m| m.name() == name)
    }
}

/// How long a value that the monitors were asked for counts while they say something else: what they say may be from before
/// they heard of it, or, after they refused, from before somebody asked for something else.
const ASKED_COUNTS: Duration = Duration::from_secs(5);

/// Values as given; what is missing or makes no sense counts as the default.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Options {
    given: BTreeMap<String, String>,
    /// What the monitors were asked for and have not said yet, and until when it counts.
    asked: BTreeMap<String, (String, Duration)>,
}

impl Options {
    /// Takes over what the monitors say; whether anything changed.
    pub(crate) fn set_from_mon(&mut self, given: &BTreeMap<String, String>) -> bool {
        let mine = given.iter().filter_map(|(k, v)| Some((k.strip_prefix(PREFIX)?.to_owned(), v.clone())));
        let before = self.values();
        self.given = mine.collect();
        self.asked.retain(|name, (value, _)| self.given.get(name) != Some(value));
        before != self.values()
    }

    /// A value that the monitors are about to be asked for: it counts at once, whatever they said before they heard of it.
    pub(crate) fn ask(&mut self, name: &str, value: &str, now: Duration) {
        self.asked.insert(name.to_owned(), (value.to_owned(), now + ASKED_COUNTS));
    }

    /// Forgets what the monitors did not take over.
    pub(crate) fn tick(&mut self, now: Duration) {
        self.asked.retain(|_, (_, until)| *until > now);
    }

    fn values(&self) -> BTreeMap<String, String> {
        let asked = self.asked.iter().map(|(name, (value, _))| (name.clone(), value.clone()));
        self.given.clone().into_iter().chain(asked).collect()
    }

    fn get(&self, name: &str) -> Option<&String> {
        self.asked.get(name).map(|(value, _)| value).or_else(|| self.given.get(name))
    }

    fn number(&self, name: &str, default: f64) -> f64 {
        self.get(name).and_then(|v| v.trim().parse().ok()).filter(|v: &f64| v.is_finite()).unwrap_or(default)
    }

    fn text(&self, name: &str, default: &str) -> String {
        self.get(name).filter(|v| !v.is_empty()).map_or_else(|| default.to_owned(), Clone::clone)
    }

    pub(crate) fn active(&self) -> bool {
        is_on(self.get("active").map(String::as_str), true)
    }

    pub(crate) fn mode(&self) -> Mode {
        Mode::from_name(&self.text("mode", "upmap")).unwrap_or(Mode::Upmap)
    }

    pub(crate) fn sleep_interval(&self) -> Duration {
        Duration::from_secs_f64(self.number("sleep_interval", 60.0).clamp(1.0, 1e7))
    }

    pub(crate) fn upmap_max_optimizations(&self) -> usize {
        self.number("upmap_max_optimizations", 10.0).clamp(0.0, 10_000.0) as usize
    }

    pub(crate) fn upmap_max_deviation(&self) -> u32 {
        self.number("upmap_max_deviation", 5.0).clamp(1.0, 1e6) as u32
    }

    pub(crate) fn max_iterations(&self) -> u32 {
        self.number("crush_compat_max_iterations", 25.0).clamp(1.0, 250.0) as u32
    }

    pub(crate) fn step(&self) -> f64 {
        self.number("crush_compat_step", 0.5).clamp(0.001, 0.999)
    }

    pub(crate) fn min_score(&self) -> f64 {
        self.number("min_score", 0.0)
    }

    /// Of `pgs`, `objects` and `bytes`, in the order given.
    pub(crate) fn metrics(&self) -> Vec<String> {
        self.text("crush_compat_metrics", "pgs,objects,bytes")
            .split(',')
            .map(|m| m.trim().to_owned())
            .collect()
    }

    /// Pools that are balanced; none named means every one. Those that are gone count for nothing.
    pub(crate) fn pool_ids(&self) -> BTreeSet<PoolId> {
        self.text("pool_ids", "").split(',').filter_map(|id| id.trim().parse().ok().map(PoolId)).collect()
    }

    pub(crate) fn pool_names(&self, map: &OsdMap) -> Vec<String> {
        self.pool_ids().into_iter().filter_map(|id| map.pool_name(id).map(ToOwned::to_owned)).collect()
    }

    /// Whether the hours and weekdays allow moving data now. Hours are UTC.
    pub(crate) fn time_permits(&self, now: Utime) -> bool {
        let minutes = now.sec / 60 % 1_440;
        let hhmm = format!("{:02}{:02}", minutes / 60, minutes % 60);
        // The epoch's first day was a Thursday.
        let weekday = f64::from((now.sec / 86_400 + 4) % 7);
        let (from, to) = (self.text("begin_time", "0000"), self.text("end_time", "2400"));
        let (first, last) = (self.number("begin_weekday", 0.0), self.number("end_weekday", 7.0));
        within(&from, &to, &hhmm) && within(&first, &last, &weekday)
    }
}

/// Whether a value lies from one bound up to another; a range that runs backwards goes over the end.
fn within<T: PartialOrd>(from: &T, to: &T, value: &T) -> bool {
    if from <= to { from <= value && value < to } else { value >= from || value < to }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(values: &[(&str, &str)]) -> Options {
        let mut options = Options::default();
        values.iter().for_each(|(name, value)| options.ask(name, value, Duration::ZERO));
        options
    }

    #[test]
    fn hours_and_weekdays_may_run_over_their_end() {
        // Sunday 2026-11-22, 07:15 UTC.
        let now = Utime::new(1_795_331_700, 0);
        let check = |values: &[(&str, &str)], want| {
            assert_eq!(options(values).time_permits(now), want, "{values:?}");
        };
        check(&[], true);
        check(&[("begin_time", "0700"), ("end_time", "0800")], true);
        check(&[("begin_time", "0715"), ("end_time", "0716")], true);
        check(&[("begin_time", "0716"), ("end_time", "0800")], false);
        check(&[("begin_time", "2200"), ("end_time", "0800")], true);
        check(&[("begin_time", "2200"), ("end_time", "0700")], false);
        check(&[("begin_weekday", "1"), ("end_weekday", "6")], false);
        check(&[("begin_weekday", "6"), ("end_weekday", "1")], true);
        check(&[("end_weekday", "1")], true);
    }

    #[test]
    fn values_that_make_no_sense_are_the_default() {
        let o = options(&[("mode", "best"), ("upmap_max_deviation", "-7"), ("sleep_interval", "soon")]);
        assert_eq!((o.mode(), o.upmap_max_deviation()), (Mode::Upmap, 1));
        assert_eq!(o.sleep_interval(), Duration::from_secs(60));
        assert!(o.active() && !options(&[("active", "False")]).active());
        assert_eq!(options(&[("pool_ids", "3,x,7")]).pool_ids(), [PoolId(3), PoolId(7)].into());
    }

    /// Two people change settings at once: the monitors tell of the one before they have heard of the other.
    #[test]
    fn what_was_asked_for_counts_while_the_monitors_have_not_heard_of_it() {
        let say = |active: &str| BTreeMap::from([("mgr/balancer/active".to_owned(), active.to_owned())]);
        let start = Duration::from_secs(100);
        let mut o = Options::default();
        o.ask("active", "false", start);
        assert!(!o.set_from_mon(&BTreeMap::new()) && !o.active(), "said before they heard of it");
        assert!(!o.set_from_mon(&say("false")) && !o.active());
        assert!(o.set_from_mon(&say("true")) && o.active(), "it is taken over: what comes later is newer");

        o.ask("active", "false", start);
        o.tick(start + ASKED_COUNTS - Duration::from_millis(1));
        assert!(!o.active());
        o.tick(start + ASKED_COUNTS);
        assert!(o.active(), "they never took it over");
    }
}
