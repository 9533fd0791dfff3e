//! The options that 16.2 knows: types, defaults, and which of them monitors may hold.

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownOption {
    pub name: &'static str,
    pub kind: &'static str,
    /// `basic`, `advanced` or `dev`.
    pub level: &'static str,
    /// The daemons' default where it differs from the clients'.
    pub default: &'static str,
    pub at_runtime: bool,
    /// Something else keeps it (`mon_host`, `fsid` of clients): the config database may not.
    pub not_by_monitors: bool,
    pub cluster_creation: bool,
}

const TABLE: &str = include_str!("options.tsv");

/// Every option, by name.
pub fn all() -> impl Iterator<Item = KnownOption> {
    TABLE.lines().filter(|l| !l.starts_with('#')).filter_map(parse)
}

/// The option called `name`; spaces and dashes count as underscores.
pub fn find(name: &str) -> Option<KnownOption> {
    let name = normalize(name);
    let line = TABLE.lines().find(|l| l.split('\t').next() == Some(name.as_str()) && !l.starts_with('#'))?;
    parse(line)
}

/// `osd max backfills` is `osd_max_backfills`. Source: ConfFile::normalize_key_name.
pub fn normalize(name: &str) -> String {
    name.split([' ', '-', '_']).filter(|w| !w.is_empty()).collect::<Vec<_>>().join("_")
}

fn parse(line: &'static str) -> Option<KnownOption> {
    let mut fields = line.split('\t');
    let (name, kind, level) = (fields.next()?, fields.next()?, fields.next()?);
    let (default, of_daemons) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    let flags = fields.next().unwrap_or_default();
    Some(KnownOption {
        name,
        kind,
        level: match level {
            "b" => "basic",
            "d" => "dev",
            _ => "advanced",
        },
        default: if of_daemons.is_empty() { default } else { of_daemons },
        at_runtime: flags.contains('r'),
        not_by_monitors: flags.contains('n'),
        cluster_creation: flags.contains('c'),
    })
}

impl KnownOption {
    /// The value in its one normal form, or why it is none. Source: Option::parse_value in src/common/options.cc.
    pub fn parse_value(&self, text: &str) -> Result<String, String> {
        use crate::units::{parse_float, parse_iec, parse_int, parse_si};
        let unsigned = |n: Result<i64, String>| match n {
            Ok(n) if n >= 0 => Ok(n.to_string()),
            Ok(_) => Err(format!("Expected option value to be unsigned, got '{text}'")),
            Err(e) => Err(e
                .replace("strict_sistrtoll", "strict_si_cast")
                .replace("strict_iecstrtoll", "strict_iec_cast")),
        };
        match self.kind {
            "bool" => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Ok("true".to_owned()),
                "false" | "no" | "off" => Ok("false".to_owned()),
                _ => parse_int(text).map(|n| (n != 0).to_string()),
            },
            "int" => parse_si(text)
                .map(|n| n.to_string())
                .map_err(|e| e.replace("strict_sistrtoll", "strict_si_cast")),
            "uint" => unsigned(parse_si(text)),
            "size" => unsigned(parse_iec(text)),
            "float" => parse_float(text).map(|_| text.to_owned()),
            "secs" | "millisecs" => parse_duration(text).map(|()| text.to_owned()),
            "uuid" => match types::Fsid::parse(text) {
                Some(id) => Ok(id.to_string()),
                None => Err(String::new()),
            },
            _ => Ok(text.to_owned()),
        }
    }
}

/// Numbers with units: `10`, `5min`, `1 hour`.
fn parse_duration(text: &str) -> Result<(), String> {
    let words = text.split_whitespace();
    let good = |w: &str| {
        let unit = w.trim_start_matches(|c: char| c.is_ascii_digit());
        unit.len() < w.len() && unit.chars().all(|c| c.is_ascii_alphabetic())
            || w.chars().all(|c| c.is_ascii_alphabetic())
    };
    let mut any = false;
    for word in words {
        any = true;
        if !good(word) {
            return Err(format!("'{text}' is not a duration"));
        }
    }
    if any { Ok(()) } else { Err("no duration".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        assert!(all().count() > 1_700);
        assert!(all().zip(all().skip(1)).all(|(a, b)| a.name < b.name), "sorted, each once");
        let o = find("osd max-backfills").expect("known");
        assert_eq!((o.kind, o.level, o.default, o.at_runtime), ("uint", "advanced", "1", true));
        assert!(find("mon_host").expect("known").not_by_monitors);
        assert_eq!(find("bogus"), None);
    }

    #[test]
    fn values_are_checked_and_normalized() {
        let check = |name: &str, text: &str| find(name).expect("known").parse_value(text);
        assert_eq!(check("osd_max_backfills", "3"), Ok("3".into()));
        assert_eq!(
            check("osd_max_backfills", "abc"),
            Err("strict_si_cast: unit prefix not recognized".into())
        );
        assert_eq!(check("rbd_cache", "yes"), Ok("true".into()));
        assert_eq!(
            check("rbd_cache", "maybe"),
            Err("Expected option value to be integer, got 'maybe'".into())
        );
        assert_eq!(check("osd_memory_target", "4G"), Ok((4u64 << 30).to_string()));
        assert_eq!(check("debug_ms", "1/5"), Ok("1/5".into()));
        assert_eq!(check("fsid", "zz"), Err(String::new()));
    }
}
