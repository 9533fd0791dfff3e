//! Pieces of text that many outputs share: spans of time, numbers with units, tables, JSON.

pub mod table;
pub mod units;

use std::time::Duration;

pub use admin::json;
pub use messages::pg_state;

/// A span as status lines show it: `45s`, `12m`, `3h`, `2d`. Source: timespan_str in src/common/ceph_time.cc.
pub fn span(d: Duration) -> String {
    let secs = d.as_secs();
    if secs < 2 {
        return format!("{}s", six_digits(d.as_secs_f64()));
    }
    // Each unit is used from twice the next smaller one's size on, more or less: limits are in the unit before.
    let (minutes, hours, days) = (secs / 60, secs / 3_600, secs / 86_400);
    match () {
        () if secs < 120 => format!("{secs}s"),
        () if minutes < 120 => format!("{minutes}m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 14 => format!("{days}d"),
        () if days / 7 < 12 => format!("{}w", days / 7),
        () if days / 30 < 24 => format!("{}M", days / 30),
        () => format!("{}y", days / 365),
    }
}

/// The lines that are not empty, each with its end: what is left of a text that Ceph sends through a stream.
///
/// Source: bufferlist::append(std::istream&) in src/common/buffer.cc.
pub fn full_lines(text: &str) -> String {
    text.split('\n').filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

/// A number with six significant digits and no trailing zeros, as C++ streams print it by default (without exponents).
pub fn six_digits(v: f64) -> String {
    if v == 0.0 || !v.is_finite() {
        return "0".to_owned();
    }
    let magnitude = v.abs().log10().floor() as i32;
    let decimals = usize::try_from((5 - magnitude).clamp(0, 12)).unwrap_or(0);
    let text = format!("{v:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Shortens a text to at most so many bytes, between two characters.
pub(crate) fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(secs: f64, want: &str) {
        assert_eq!(span(Duration::from_secs_f64(secs)), want);
    }

    #[test]
    fn spans_are_cephs() {
        check(0.0, "0s");
        check(0.875779, "0.875779s");
        check(1.5, "1.5s");
        check(119.0, "119s");
        check(120.0, "2m");
        check(7_199.0, "119m");
        check(7_200.0, "2h");
        check(172_800.0, "2d");
        check(14.0 * 86_400.0, "2w");
        check(84.0 * 86_400.0, "2M");
        check(720.0 * 86_400.0, "1y");
    }

    #[test]
    fn numbers_have_six_digits() {
        assert_eq!(
            (six_digits(0.95), six_digits(1234567.0), six_digits(0.000_012_345_678)),
            ("0.95".into(), "1234567".into(), "0.0000123457".into())
        );
    }
}
