//! Values of options: from what operators type to the one normal form.
//!
//! Source: Option::parse_value and Option::validate in src/common/options.cc.

use types::Fsid;

use super::OptionOf;
use crate::units::{parse_float, parse_iec, parse_int, parse_si};

/// `osd max backfills` is `osd_max_backfills`. Source: ConfFile::normalize_key_name.
pub fn normalize(name: &str) -> String {
    name.split([' ', '-', '_']).filter(|w| !w.is_empty()).collect::<Vec<_>>().join("_")
}

impl OptionOf<'_> {
    /// The value in its one normal form, or why it is none.
    pub fn parse_value(&self, text: &str) -> Result<String, String> {
        let value = self.read(text)?;
        self.check_bounds(&value)?;
        Ok(value)
    }

    fn read(&self, text: &str) -> Result<String, String> {
        let cast = |e: String| e.replace("strict_sistrtoll", "strict_si_cast");
        match self.kind {
            "bool" => match text.to_ascii_lowercase().as_str() {
                "true" => Ok("true".to_owned()),
                "false" => Ok("false".to_owned()),
                _ => parse_int(text).map(|n| (n != 0).to_string()),
            },
            "int" => parse_si(text).map(|n| n.to_string()).map_err(cast),
            "uint" => match text.parse::<u64>() {
                // Above what a signed number holds.
                Ok(n) => Ok(n.to_string()),
                Err(_) => not_negative(parse_si(text).map_err(cast), "strict_sistrtoll"),
            },
            "size" => not_negative(parse_iec(text), "strict_iecstrtoll"),
            "float" => parse_float(text).map(|v| format!("{v:.6}")),
            "secs" => parse_span(text).map(|s| s.to_string()),
            "millisecs" => match text.parse::<u64>() {
                Ok(n) => Ok(n.to_string()),
                Err(_) => {
                    Err("bad lexical cast: source type value could not be interpreted as target".to_owned())
                }
            },
            "uuid" => Fsid::parse(text).map(|id| id.to_string()).ok_or_else(String::new),
            _ if self.name.starts_with("debug_") && self.defaults.0.contains('/') => debug_level(text),
            _ => Ok(text.to_owned()),
        }
    }

    fn check_bounds(&self, value: &str) -> Result<(), String> {
        if !self.choices.is_empty() && !self.choices.split('|').any(|c| c == value) {
            let allowed = self.choices().join(", ");
            return Err(format!("'{value}' is not one of the permitted values: {allowed}"));
        }
        let (Ok(v), numeric) = (value.parse::<f64>(), !matches!(self.kind, "str" | "uuid")) else {
            return Ok(());
        };
        let shown = |bound: &str| match (self.kind, bound.parse::<f64>()) {
            ("float", Ok(b)) => format!("{b:.6}"),
            _ => bound.to_owned(),
        };
        if numeric && self.min.parse::<f64>().is_ok_and(|min| v < min) {
            return Err(format!("Value '{value}' is below minimum {}", shown(self.min)));
        }
        if numeric && self.max.parse::<f64>().is_ok_and(|max| v > max) {
            return Err(format!("Value '{value}' exceeds maximum {}", shown(self.max)));
        }
        Ok(())
    }
}

fn not_negative(n: Result<i64, String>, what: &str) -> Result<String, String> {
    match n? {
        n if n >= 0 => Ok(n.to_string()),
        _ => Err(format!("{what}: value should not be negative")),
    }
}

/// `N` or `N/M`: what is logged, and what is gathered for a crash.
fn debug_level(text: &str) -> Result<String, String> {
    let good = |n: &str| n.trim().parse::<i32>().is_ok();
    let (log, gather) = text.split_once('/').unwrap_or((text, text));
    match good(log) && good(gather) {
        true => Ok(format!("{}/{}", log.trim(), gather.trim())),
        false => Err("value must take the form N or N/M, where N and M are integers".to_owned()),
    }
}

/// Seconds of a span such as `10`, `5min`, `1 hour 30 m`. Source: parse_timespan in src/common/ceph_time.cc.
pub fn parse_span(text: &str) -> Result<u64, String> {
    let mut rest = text.trim_start();
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let (digits, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        let n: u64 = digits.parse().map_err(|_| "expected digit".to_owned())?;
        let after = after.trim_start();
        let (unit, after) =
            after.split_at(after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len()));
        let seconds = n.checked_mul(unit_seconds(unit)?).and_then(|s| sum.checked_add(s));
        sum = seconds.ok_or("the span is too long")?;
        rest = after.trim_start();
        if unit.is_empty() && !rest.is_empty() {
            return Err(format!("unexpected trailing '{rest}'"));
        }
    }
    Ok(sum)
}

fn unit_seconds(unit: &str) -> Result<u64, String> {
    Ok(match unit {
        "" | "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hr" | "hour" | "hours" => 3_600,
        "d" | "day" | "days" => 86_400,
        "w" | "wk" | "week" | "weeks" => 7 * 86_400,
        "mo" | "month" | "months" => 30 * 86_400,
        "y" | "yr" | "year" | "years" => 365 * 86_400,
        other => return Err(format!("unrecognized unit '{other}'")),
    })
}

#[cfg(test)]
mod tests {
    use crate::options::find;

    fn check(name: &str, text: &str, want: Result<&str, &str>) {
        let got = find(name).expect("known").parse_value(text);
        assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{name} = {text}");
    }

    #[test]
    fn values_are_read_into_one_form() {
        check("osd_max_backfills", "3", Ok("3"));
        check("osd_max_backfills", "2K", Ok("2000"));
        check("rbd_cache", "TRUE", Ok("true"));
        check("rbd_cache", "0", Ok("false"));
        check("osd_memory_target", "4G", Ok("4294967296"));
        check("debug_ms", "1/5", Ok("1/5"));
        check("debug_osd", "20", Ok("20/20"));
        check("osd_recovery_sleep", "-1", Ok("-1.000000"));
        check("osd_recovery_sleep", "0.1", Ok("0.100000"));
        check("mon_mgr_beacon_grace", "2 min 10s", Ok("130"));
    }

    /// The texts are those of `ceph config set` of 16.2.15.
    #[test]
    fn bad_values_are_refused_in_cephs_words() {
        check("osd_max_backfills", "abc", Err("strict_si_cast: unit prefix not recognized"));
        check("osd_memory_target", "1", Err("Value '1' is below minimum 939524096"));
        check("osd_scrub_begin_hour", "30", Err("Value '30' exceeds maximum 23"));
        check("mon_max_pg_per_osd", "0", Err("Value '0' is below minimum 1"));
        let modes = "'zz' is not one of the permitted values: writethrough, writeback, writearound";
        check("rbd_cache_policy", "zz", Err(modes));
        let debug = "value must take the form N or N/M, where N and M are integers";
        check("debug_osd", "zz", Err(debug));
        check("fsid", "1", Err(""));
        check("rbd_cache", "yes", Err("Expected option value to be integer, got 'yes'"));
        check(
            "osd_memory_target",
            "99999999999999999999999",
            Err("The option value '99999999999999999999999' seems to be invalid"),
        );
    }
}
