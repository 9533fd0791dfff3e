//! Reads ceph.conf: sections, and option names that are blind to spaces, dashes and underscores.
//!
//! Source: doc/rados/configuration/ceph-conf.rst; src/common/ConfUtils.cc.

use std::collections::BTreeMap;
use std::path::Path;

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfError {
    #[error("cannot read {path}: {why}")]
    Unreadable { path: String, why: std::io::Error },
    #[error("{path}, line {line}: neither a [section] nor an option = value")]
    Malformed { path: String, line: usize },
}

/// Options by section, names with underscores.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conf {
    sections: BTreeMap<String, BTreeMap<String, String>>,
}

impl Conf {
    /// Reads a file; a missing one is empty.
    pub fn read(path: &Path) -> Result<Self, ConfError> {
        let shown = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|line| ConfError::Malformed { path: shown, line }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(why) => Err(ConfError::Unreadable { path: shown, why }),
        }
    }

    /// Parses a file's text; an error is the number of the line that is malformed.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut conf = Self::default();
        let mut section = "global".to_owned();
        let mut carried = String::new();
        for (number, raw) in text.lines().enumerate() {
            // A backslash at the end continues the line.
            carried.push_str(raw);
            if carried.ends_with('\\') {
                carried.pop();
                continue;
            }
            let whole = std::mem::take(&mut carried);
            let line = strip_comment(&whole).trim();
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = name.trim().to_owned();
                continue;
            }
            let Some((name, value)) = line.split_once('=') else {
                return Err(number + 1);
            };
            let value = value.trim();
            let unquoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
            conf.sections.entry(section.clone()).or_default().insert(normal(name), unquoted.to_owned());
        }
        Ok(conf)
    }

    /// What holds for a daemon: `[global]`, then its type's section, then its own.
    pub fn for_daemon(&self, kind: &str, id: &str) -> BTreeMap<String, String> {
        let own = format!("{kind}.{id}");
        let mut out = BTreeMap::new();
        for section in ["global", kind, &own] {
            out.extend(self.sections.get(section).into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
        }
        out
    }

    /// Section and name of each setting in the file.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sections
            .iter()
            .flat_map(|(section, s)| s.keys().map(move |name| (section.as_str(), name.as_str())))
    }

    /// The names of all options in the file, each once.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let all: std::collections::BTreeSet<&str> =
            self.sections.values().flat_map(|s| s.keys()).map(String::as_str).collect();
        all.into_iter()
    }
}

/// A comment begins with # or ; outside of quotes, unless escaped.
fn strip_comment(line: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (i, c) in line.char_indices() {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            '#' | ';' if !quoted && !escaped => return line.get(..i).unwrap_or(line),
            _ => {}
        }
        escaped = false;
    }
    line
}

/// `osd pool-default  size` is `osd_pool_default_size`.
fn normal(name: &str) -> String {
    let words: Vec<&str> = name.split([' ', '\t', '-', '_']).filter(|w| !w.is_empty()).collect();
    words.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_override_each_other_and_names_are_normal() {
        let conf = Conf::parse(
            "# top\n[global]\nosd pool-default size = 3 ; why\nmon_host = \"a;b\"\n[osd]\nosd_max_backfills=1\\\n6\n[osd.1]\nosd max backfills = 2\n",
        )
        .expect("parses");
        assert_eq!(conf.for_daemon("osd", "0")["osd_max_backfills"], "16");
        assert_eq!(conf.for_daemon("osd", "1")["osd_max_backfills"], "2");
        assert_eq!(conf.for_daemon("mon", "a")["osd_pool_default_size"], "3");
        assert_eq!(conf.for_daemon("mon", "a")["mon_host"], "a;b");
        assert!(Conf::parse("nonsense\n").is_err());
    }
}
