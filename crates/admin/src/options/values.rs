//! The values that one daemon has of its options, by where they come from.
//!
//! Invariants:
//! 1. Every value kept is in its option's normal form and within its bounds.
//! 2. The value in force is that of the highest level; without any it is the default.
//!
//! Source: src/common/config.cc, src/common/config_values.h.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use bytes::Bytes;
use codec::Encode;
use serde_json::{Map, Value, json};
use types::Errno;

use super::{KnownOption, Row, all, find, normalize, row};

/// Where a value comes from; later ones win. Source: CONF_* in src/common/config.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Default,
    Mon,
    File,
    Override,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Mon => "mon",
            Self::File => "file",
            Self::Override => "override",
        }
    }

    pub fn number(self) -> i32 {
        match self {
            Self::Default => 0,
            Self::Mon => 1,
            Self::File => 2,
            Self::Override => 5,
        }
    }
}

/// Why a value was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    #[error("unrecognized config option '{0}'")]
    Unknown(String),
    #[error("{0}")]
    Invalid(String),
    #[error("Configuration option '{0}' may not be modified at runtime")]
    NotAtRuntime(&'static str),
}

impl SetError {
    pub fn errno(&self) -> Errno {
        match self {
            Self::Unknown(_) => Errno::ENOENT,
            Self::Invalid(_) => Errno::EINVAL,
            Self::NotAtRuntime(_) => Errno::EPERM,
        }
    }
}

/// See the module's invariants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Values {
    /// `osd.3`.
    name: String,
    set: BTreeMap<&'static str, BTreeMap<Level, String>>,
    /// The monitors' values that are not for them to give, or that do not parse.
    ignored: BTreeMap<String, String>,
    /// Grows with every change.
    version: u64,
}

impl Values {
    /// Those of a daemon (`osd.3`), with what its configuration file says. Values there that do not parse and names that
    /// are not options are left out.
    pub fn new(name: impl Into<String>, file: &BTreeMap<String, String>) -> Self {
        let mut values = Self { name: name.into(), version: 1, ..Self::default() };
        for (name, value) in file {
            let Some(option) = find(name) else { continue };
            if let Ok(value) = option.parse_value(value) {
                values.put(option.name, Level::File, value);
            }
        }
        values
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    fn put(&mut self, name: &'static str, level: Level, value: String) {
        self.version += 1;
        self.set.entry(name).or_default().insert(level, value);
    }

    fn take(&mut self, name: &str, level: Level) -> bool {
        let Some(levels) = self.set.get_mut(name) else { return false };
        let had = levels.remove(&level).is_some();
        if levels.is_empty() {
            self.set.remove(name);
        }
        self.version += u64::from(had);
        had
    }

    /// The monitors' values, which replace their earlier ones.
    pub fn set_from_mon(&mut self, given: &BTreeMap<String, String>) {
        let old: Vec<&'static str> =
            self.set.iter().filter(|(_, levels)| levels.contains_key(&Level::Mon)).map(|(n, _)| *n).collect();
        for name in old {
            self.take(name, Level::Mon);
        }
        self.ignored.clear();
        for (name, value) in given {
            let Some(option) = find(name) else { continue };
            match option.parse_value(value) {
                Ok(value) if !option.not_by_monitors => self.put(option.name, Level::Mon, value),
                _ => {
                    self.ignored.insert(option.name.to_owned(), value.clone());
                }
            }
        }
        self.version += 1;
    }

    /// Sets a value in the running daemon; gives the option and whether its value in force is another one now.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(KnownOption, bool), SetError> {
        let option = find(name).ok_or_else(|| SetError::Unknown(name.to_owned()))?;
        let value = option.parse_value(value).map_err(SetError::Invalid)?;
        let before = self.in_force(&option);
        if value != before && !option.at_runtime {
            return Err(SetError::NotAtRuntime(option.name));
        }
        let changed = value != before;
        self.put(option.name, Level::Override, value);
        Ok((option, changed))
    }

    /// Takes back what `set` did; gives the option and whether its value in force is another one now.
    pub fn unset(&mut self, name: &str) -> Result<(KnownOption, bool), SetError> {
        let option = find(name).ok_or_else(|| SetError::Unknown(name.to_owned()))?;
        let before = self.in_force(&option);
        self.take(option.name, Level::Override);
        Ok((option, before != self.in_force(&option)))
    }

    fn in_force(&self, option: &KnownOption) -> String {
        let set = self.set.get(option.name).and_then(|levels| levels.last_key_value());
        set.map_or_else(|| option.default_value(), |(_, v)| v.clone())
    }

    /// The value in force as it was set, without a copy.
    fn as_set<'a>(&'a self, row: &'a Row) -> &'a str {
        let set = self.set.get(row.option.name).and_then(|levels| levels.last_key_value());
        set.map_or(row.default.as_str(), |(_, v)| v.as_str())
    }

    /// The value in force, with `$names` in it replaced; `None` for what is no option.
    pub fn get(&self, name: &str) -> Option<String> {
        Some(self.expand(self.as_set(row(name)?), 0))
    }

    /// The same as a number; 0 for what is none.
    pub fn float(&self, name: &str) -> f64 {
        // What has a name in it is a number only when the name is replaced.
        let number = |v: &str| if v.contains('$') { self.expand(v, 0).parse() } else { v.parse() };
        row(name).and_then(|row| number(self.as_set(row)).ok()).unwrap_or(0.0)
    }

    /// The same without a fraction.
    pub fn int(&self, name: &str) -> i64 {
        self.float(name) as i64
    }

    /// Values by level, for those that have any.
    pub fn levels(&self, name: &str) -> impl Iterator<Item = (Level, &str)> {
        self.set.get(name).into_iter().flatten().map(|(l, v)| (*l, v.as_str()))
    }

    /// Every option that is set somewhere, with the value in force.
    pub fn all_set(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.set.iter().filter_map(|(name, levels)| Some((*name, levels.last_key_value()?.1.as_str())))
    }

    /// Replaces `$name`, `$id`, `$type`, `$cluster` and `$other_option`. Source: md_config_t::expand_meta.
    fn expand(&self, text: &str, depth: usize) -> String {
        /// Options that name each other in a circle stay as they are.
        const DEEPEST: usize = 8;
        if depth > DEEPEST || !text.contains('$') {
            return text.to_owned();
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            out += before;
            let (braced, body) = match after.strip_prefix('{') {
                Some(body) => (true, body),
                None => (false, after),
            };
            let end = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(body.len());
            let (name, tail) = body.split_at(end);
            let tail = if braced { tail.strip_prefix('}').unwrap_or(tail) } else { tail };
            let (kind, id) = self.name.split_once('.').unwrap_or((&self.name, ""));
            match name {
                "cluster" => out += "ceph",
                "type" => out += kind,
                "id" | "num" => out += id,
                "name" => out += &self.name,
                _ => match find(name) {
                    Some(option) => out += &self.expand(&self.in_force(&option), depth + 1),
                    None => out += &format!("${name}"),
                },
            }
            rest = tail;
        }
        out + rest
    }

    /// `config show`: every option's value in force.
    pub fn show(&self) -> Value {
        let mut out = Map::new();
        out.insert("name".to_owned(), json!(self.name));
        out.insert("cluster".to_owned(), json!("ceph"));
        out.extend(all().map(|o| (o.name.to_owned(), json!(self.expand(&self.in_force(&o), 0)))));
        Value::Object(out)
    }

    /// `config diff`: for each option that is set somewhere, its default, what each level says, and the value in force.
    pub fn diff(&self) -> Value {
        let one = |(name, levels): (&&'static str, &BTreeMap<Level, String>)| {
            let option = find(name)?;
            let mut out = Map::new();
            out.insert("default".to_owned(), option.json_value(option.default));
            out.extend(levels.iter().map(|(l, v)| (l.name().to_owned(), option.json_value(v))));
            let last = self.expand(&self.in_force(&option), 0);
            out.insert("final".to_owned(), option.json_value(&last));
            Some(((*name).to_owned(), Value::Object(out)))
        };
        Value::Object(self.set.iter().filter_map(one).collect())
    }

    /// What a manager is told: values by level, and which of the monitors' are ignored. Source:
    /// md_config_t::get_config_bl.
    pub fn encode_for_manager(&self) -> Bytes {
        let not_told = ["fsid", "host"];
        let mut told: BTreeMap<&str, BTreeMap<i32, String>> = BTreeMap::new();
        for (name, levels) in self.set.iter().filter(|(n, _)| !not_told.contains(n)) {
            told.insert(name, levels.iter().map(|(l, v)| (l.number(), v.clone())).collect());
        }
        for name in self.ignored.keys().filter(|n| !not_told.contains(&n.as_str())) {
            if let (false, Some(o)) = (told.contains_key(name.as_str()), find(name)) {
                told.insert(o.name, [(Level::Default.number(), o.default_value())].into());
            }
        }
        let told: BTreeMap<String, BTreeMap<i32, String>> =
            told.into_iter().map(|(name, levels)| (name.to_owned(), levels)).collect();
        (told, self.ignored.clone()).to_bytes()
    }

    /// Every option's default, as a manager is told. Source: md_config_t::get_defaults_bl.
    pub fn encode_defaults() -> Bytes {
        static ENCODED: LazyLock<Bytes> = LazyLock::new(|| {
            let defaults: BTreeMap<String, String> =
                all().map(|o| (o.name.to_owned(), o.default_value())).collect();
            defaults.to_bytes()
        });
        ENCODED.clone()
    }

    /// Names of options whose values from the monitors are not taken.
    pub fn ignored(&self) -> BTreeSet<&str> {
        self.ignored.keys().map(String::as_str).collect()
    }

    /// Sets what a text such as `--osd-max-backfills 3 --debug_osd=20` says; the line that reports it, or the errno with
    /// what was wrong. What comes before a mistake stays set. Source: md_config_t::injectargs.
    pub fn inject(&mut self, text: &str) -> Result<String, (Errno, String)> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut left: Vec<&str> = Vec::new();
        let mut said = String::new();
        let mut failed: Option<(Errno, String)> = None;
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let Some(body) = word.strip_prefix("--") else {
                left.push(word);
                continue;
            };
            let (name, given) = match body.split_once('=') {
                Some((name, value)) => (normalize(name), Some(value.to_owned())),
                None => (normalize(body), None),
            };
            let Some(option) = find(&name) else {
                let switch = name.strip_prefix("no_").and_then(find).filter(|o| o.kind == "bool");
                match switch {
                    Some(o) => said += &self.inject_one(o.name, "false", &mut failed),
                    None => left.push(word),
                }
                continue;
            };
            let value = match given {
                Some(value) => value,
                // A switch may stand alone.
                None if option.kind == "bool" => words
                    .next_if(|next| option.parse_value(next).is_ok())
                    .map_or_else(|| "true".to_owned(), str::to_owned),
                None => match words.next() {
                    Some(value) => value.to_owned(),
                    None => {
                        let why = format!("Option {word} requires an argument.\n");
                        failed = Some((Errno::EINVAL, why));
                        continue;
                    }
                },
            };
            said += &self.inject_one(option.name, &value, &mut failed);
        }
        if !left.is_empty() {
            let why = failed.map(|(_, why)| why).unwrap_or_default();
            return Err((Errno::EINVAL, format!("{why} failed to parse arguments: {}\n", left.join(","))));
        }
        failed.map_or(Ok(said), Err)
    }

    fn inject_one(&mut self, name: &str, value: &str, failed: &mut Option<(Errno, String)>) -> String {
        match self.set(name, value) {
            Ok((option, true)) => self.changed_text(&option),
            Ok((_, false)) => String::new(),
            Err(error) => {
                let why = format!("Parse error setting {name} to '{value}' using injectargs ({error}).\n");
                *failed = Some((error.errno(), why));
                String::new()
            }
        }
    }

    /// What is reported of a changed option: `osd_max_backfills = '3' `.
    pub fn changed_text(&self, option: &KnownOption) -> String {
        let value = self.expand(&self.in_force(option), 0);
        match option.no_effect_on(&self.name) {
            Some(why) => format!("{} = '{value}' ({why}) ", option.name),
            None => format!("{} = '{value}' ", option.name),
        }
    }

    /// Checks the invariants that the module states.
    pub fn assert_invariants(&self) {
        for (name, levels) in &self.set {
            for value in levels.values() {
                let normal = find(name).map(|o| o.parse_value(value));
                assert_eq!(normal, Some(Ok(value.clone())), "1: {name}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use codec::Decode;

    use super::*;

    fn values() -> Values {
        let file = [("run_dir", "/r"), ("osd_max_backfills", "4"), ("bogus", "1"), ("osd_max_scrubs", "x")];
        Values::new("osd.3", &file.map(|(k, v)| (k.to_owned(), v.to_owned())).into())
    }

    #[test]
    fn later_levels_win_and_bad_values_lose() {
        let mut v = values();
        let mon =
            [("osd_max_backfills", "2"), ("osd_recovery_sleep", "1"), ("mon_host", "h"), ("bogus", "1")];
        v.set_from_mon(&mon.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert_eq!(v.get("osd_max_backfills").as_deref(), Some("4"));
        assert_eq!(v.get("osd_recovery_sleep").as_deref(), Some("1.000000"));
        assert_eq!(v.ignored(), BTreeSet::from(["mon_host"]));
        assert!(v.set("osd_max_backfills", "9").is_ok_and(|(_, changed)| changed));
        let levels = [(Level::Mon, "2"), (Level::File, "4"), (Level::Override, "9")];
        assert_eq!(v.levels("osd_max_backfills").collect::<Vec<_>>(), levels);
        assert!(v.unset("osd_max_backfills").is_ok_and(|(_, changed)| changed));
        assert!(v.unset("osd_max_backfills").is_ok_and(|(_, changed)| !changed));
        v.set_from_mon(&BTreeMap::new());
        assert_eq!(v.get("osd_recovery_sleep").as_deref(), Some("0.000000"));
        assert_eq!(v.get("osd_max_scrubs").as_deref(), Some("1"));
        assert_eq!(v.get("bogus"), None);
        v.assert_invariants();
    }

    #[test]
    fn only_what_may_change_at_runtime_does() {
        let mut v = values();
        assert_eq!(v.set("osd_op_num_shards", "9"), Err(SetError::NotAtRuntime("osd_op_num_shards")));
        assert!(v.set("osd_op_num_shards", "0").is_ok_and(|(_, changed)| !changed));
        assert_eq!(v.set("bogus", "1").map_err(|e| e.errno()), Err(Errno::ENOENT));
        assert_eq!(v.set("osd_memory_target", "1").map_err(|e| e.errno()), Err(Errno::EINVAL));
    }

    #[test]
    fn names_in_values_are_replaced() {
        assert_eq!(values().get("admin_socket").as_deref(), Some("/r/ceph-osd.3.asok"));
        let mut v = values();
        v.set("run_dir", "${run_dir}/x").expect_err("not at run time");
        let file = [("run_dir".to_owned(), "$run_dir/$type-$nothing".to_owned())].into();
        let circle = Values::new("osd.1", &file).get("run_dir").expect("known");
        assert!(circle.contains("/osd-$nothing"), "{circle}");
    }

    /// What is said is that of 16.2.15.
    #[test]
    fn arguments_are_injected() {
        let mut v = values();
        let said = v.inject("--osd_max_backfills=2 --osd-recovery-sleep 0.1");
        assert_eq!(said.as_deref(), Ok("osd_max_backfills = '2' osd_recovery_sleep = '0.100000' "));
        let why = " failed to parse arguments: --bogus,1\n".to_owned();
        assert_eq!(v.inject("--bogus 1"), Err((Errno::EINVAL, why)));
        let why = "Parse error setting osd_max_backfills to 'abc' using injectargs (strict_si_cast: unit prefix \
                   not recognized).\n";
        assert_eq!(v.inject("--osd_max_backfills abc"), Err((Errno::EINVAL, why.to_owned())));
        assert_eq!(v.inject("--osd_op_num_shards 7").map_err(|(e, _)| e), Err(Errno::EPERM));
        assert_eq!(v.inject("--osd_scrub_auto_repair").as_deref(), Ok("osd_scrub_auto_repair = 'true' "));
        assert_eq!(v.inject("--no-osd-scrub-auto-repair").as_deref(), Ok("osd_scrub_auto_repair = 'false' "));
        v.assert_invariants();
    }

    #[test]
    fn diff_has_each_level() {
        let mut v = values();
        v.set("osd_max_backfills", "9").expect("set");
        let want = json!({ "default": 1, "file": 4, "override": 9, "final": 9 });
        assert_eq!(v.diff()["osd_max_backfills"], want);
    }

    #[test]
    fn the_manager_can_read_what_it_is_told() {
        type Told = (BTreeMap<String, BTreeMap<i32, String>>, BTreeMap<String, String>);
        let mut v = values();
        v.set_from_mon(&[("mon_host".to_owned(), "h".to_owned())].into());
        let (told, ignored) = Told::from_bytes(v.encode_for_manager()).expect("decodes");
        assert_eq!(told["osd_max_backfills"], BTreeMap::from([(2, "4".to_owned())]));
        assert_eq!(told["mon_host"], BTreeMap::from([(0, String::new())]));
        assert_eq!(ignored["mon_host"], "h");
        let defaults = BTreeMap::<String, String>::from_bytes(Values::encode_defaults()).expect("decodes");
        assert_eq!(defaults["osd_recovery_sleep"], "0.000000");
    }
}
