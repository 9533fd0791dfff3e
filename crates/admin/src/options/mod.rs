//! The options that 16.2 knows: types, defaults, bounds, and which of them monitors may hold.

mod describe;
mod effect;
mod module;
mod parse;
mod values;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

pub use effect::Effect;
pub use module::ModuleSetting;
pub use parse::{normalize, parse_span};
pub use values::{Level, SetError, Values};

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionOf<'a> {
    pub name: &'a str,
    /// `str`, `int`, `uint`, `size`, `float`, `bool`, `secs`, `millisecs`, `uuid`, `addr`, `addrvec`.
    pub kind: &'a str,
    /// `basic`, `advanced` or `dev`.
    pub level: &'a str,
    /// The default of daemons.
    pub default: &'a str,
    /// The default of clients, and that of daemons where it differs (else empty).
    pub defaults: (&'a str, &'a str),
    pub at_runtime: bool,
    /// Something else keeps it (`mon_host`, `fsid` of clients): the config database may not.
    pub not_by_monitors: bool,
    pub cluster_creation: bool,
    flags: &'a str,
    /// Empty where there is no bound.
    pub min: &'a str,
    pub max: &'a str,
    /// Values allowed, separated by `|`; empty for any.
    choices: &'a str,
    /// Lists separated by commas.
    services: &'a str,
    see_also: &'a str,
    tags: &'a str,
    /// One line, for the options that operators meet; else empty.
    pub desc: &'a str,
    /// More lines, of modules' options.
    pub(crate) long_desc: &'a str,
}

/// An option of the table.
pub type KnownOption = OptionOf<'static>;

const TABLE: &str = include_str!("options.tsv");
const DESCRIPTIONS: &str = include_str!("descriptions.tsv");
const OURS: &str = include_str!("ours.tsv");

/// A line of the table, and its default in its normal form: daemons ask for it all the time.
struct Row {
    option: KnownOption,
    default: String,
}

static OPTIONS: LazyLock<BTreeMap<&'static str, Row>> = LazyLock::new(|| {
    let described: BTreeMap<&str, &str> = lines(DESCRIPTIONS).filter_map(|l| l.split_once('\t')).collect();
    let mut all: BTreeMap<_, _> =
        lines(TABLE).filter_map(|l| read(l, &described)).map(|o| (o.name, o)).collect();
    for (name, value) in ours() {
        if let Some(o) = all.get_mut(name) {
            (o.default, o.defaults.1) = (value, value);
        }
    }
    all.into_iter().map(|(name, option)| (name, Row { default: option.default_value(), option })).collect()
});

/// Defaults of our daemons that are not Ceph's.
fn ours() -> impl Iterator<Item = (&'static str, &'static str)> {
    lines(OURS).filter_map(|line| {
        let mut fields = line.split('\t');
        Some((fields.next()?, fields.next()?))
    })
}

fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|l| !l.starts_with('#'))
}

/// Every option, by name.
pub fn all() -> impl Iterator<Item = KnownOption> {
    OPTIONS.values().map(|row| row.option)
}

/// The option called `name`; spaces and dashes count as underscores.
pub fn find(name: &str) -> Option<KnownOption> {
    row(name).map(|row| row.option)
}

/// Most ask by the name as it stands in the table, where all are in their normal form.
fn row(name: &str) -> Option<&'static Row> {
    OPTIONS.get(name).or_else(|| OPTIONS.get(normalize(name).as_str()))
}

fn read(line: &'static str, described: &BTreeMap<&str, &'static str>) -> Option<KnownOption> {
    let mut fields = line.split('\t');
    let (name, kind, level) = (fields.next()?, fields.next()?, fields.next()?);
    let mut next = || fields.next().unwrap_or_default();
    let (default, of_daemons, flags) = (next(), next(), next());
    Some(KnownOption {
        name,
        kind,
        level: match level {
            "b" => "basic",
            "d" => "dev",
            _ => "advanced",
        },
        default: if of_daemons.is_empty() { default } else { of_daemons },
        defaults: (default, of_daemons),
        at_runtime: flags.contains('r'),
        not_by_monitors: flags.contains('n'),
        cluster_creation: flags.contains('c'),
        flags,
        min: next(),
        max: next(),
        choices: next(),
        services: next(),
        see_also: next(),
        tags: next(),
        desc: described.get(name).copied().unwrap_or_default(),
        long_desc: "",
    })
}

impl OptionOf<'_> {
    /// The values allowed, when only some are.
    pub fn choices(&self) -> Vec<&str> {
        if self.choices.is_empty() { Vec::new() } else { self.choices.split('|').collect() }
    }

    /// A value of this option as JSON: numbers and switches as themselves, everything else as text.
    /// Source: Option::dump_value in src/common/options.cc.
    pub fn json_value(&self, text: &str) -> Value {
        let number = match self.kind {
            "int" => text.parse::<i64>().ok().map(Value::from),
            "uint" => text.parse::<u64>().ok().map(Value::from),
            "float" => text.parse::<f64>().ok().map(Value::from),
            "bool" => Some(json!(text == "true")),
            _ => None,
        };
        number.unwrap_or_else(|| json!(text))
    }

    /// The default as daemons print it.
    pub fn default_value(&self) -> String {
        self.parse_value(self.default).unwrap_or_else(|_| self.default.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        assert!(all().count() > 1_700);
        let names = || lines(TABLE).filter_map(|l| l.split('\t').next());
        assert!(names().zip(names().skip(1)).all(|(a, b)| a < b), "sorted, each once");
        let o = find("osd max-backfills").expect("known");
        assert_eq!((o.kind, o.level, o.default, o.at_runtime), ("uint", "advanced", "1", true));
        assert!(find("mon_host").expect("known").not_by_monitors);
        assert_eq!(find("bogus"), None);
    }

    #[test]
    fn descriptions_are_of_options() {
        let all: Vec<_> = lines(DESCRIPTIONS).collect();
        assert!(all.len() >= 150, "{}", all.len());
        for line in all {
            let (name, text) = line.split_once('\t').expect("name and text");
            assert!(find(name).is_some_and(|o| o.desc == text), "{name}");
        }
    }

    #[test]
    fn our_own_defaults_count() {
        for (name, value) in ours() {
            assert!(find(name).is_some_and(|o| o.default == value && o.defaults.0 != value), "{name}");
        }
        let schema = find("osd_map_cache_size").expect("known").schema();
        assert_eq!((&schema["default"], &schema["daemon_default"]), (&50.into(), &500.into()));
    }

    #[test]
    fn defaults_keep_to_their_own_bounds() {
        // A uint whose table gives it a minimum of -10 can hold nothing; 0 is no target of memory.
        let broken = ["rgw_rados_pool_recovery_priority", "osd_memory_target"];
        for o in all().filter(|o| !o.default.is_empty() && !broken.contains(&o.name)) {
            assert!(o.parse_value(o.default).is_ok(), "{}: {:?}", o.name, o.parse_value(o.default));
        }
    }
}
