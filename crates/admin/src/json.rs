//! JSON as Ceph's formatter writes it: floats with 17 significant digits, four spaces of indent.
//!
//! Source: JSONFormatter in src/common/Formatter.cc.

use std::io::{self, Write};

use serde::Serialize as _;
use serde_json::Value;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// Compact, or with indents and a newline behind.
pub fn to_text(value: &Value, pretty: bool) -> String {
    let mut out = Vec::new();
    // Writing a value to memory cannot fail.
    let _ = if pretty {
        let inner = PrettyFormatter::with_indent(b"    ");
        value.serialize(&mut Serializer::with_formatter(&mut out, CephFormatter { inner }))
    } else {
        value.serialize(&mut Serializer::with_formatter(&mut out, CephFormatter { inner: CompactFormatter }))
    };
    if pretty {
        out.push(b'\n');
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A number with at most `digits` significant digits and no trailing zeros: printf's `%g`, and what C++ streams print.
pub fn general(v: f64, digits: usize) -> String {
    if v == 0.0 {
        return "0".to_owned();
    }
    if !v.is_finite() {
        return v.to_string().to_lowercase();
    }
    let digits = digits.max(1);
    let scientific = format!("{v:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = i32::try_from(digits).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= digits {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(digits - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{v:.decimals$}")).to_owned()
}

fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// Another formatter's layout with Ceph's floats.
struct CephFormatter<F> {
    inner: F,
}

impl<F: Formatter> Formatter for CephFormatter<F> {
    fn write_f64<W: ?Sized + Write>(&mut self, w: &mut W, value: f64) -> io::Result<()> {
        w.write_all(general(value, 17).as_bytes())
    }
    fn begin_array<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.inner.begin_array(w)
    }
    fn end_array<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.inner.end_array(w)
    }
    fn begin_array_value<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        self.inner.begin_array_value(w, first)
    }
    fn end_array_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.inner.end_array_value(w)
    }
    fn begin_object<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.inner.begin_object(w)
    }
    fn end_object<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.inner.end_object(w)
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        self.inner.begin_object_key(w, first)
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.inner.begin_object_value(w)
    }
    fn end_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.inner.end_object_value(w)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_cephs() {
        // From `df -f json`, `osd tree -f json` and `osd dump -f json` of 16.2.15.
        let values = [0.028_758_112_341_165_543, 2.208_436_853_834_428e-6, f64::from(0.95f32), 1.0, 0.0];
        let want = ["0.028758112341165543", "2.2084368538344279e-06", "0.94999998807907104", "1", "0"];
        assert_eq!(values.map(|v| general(v, 17)), want);
        assert_eq!(to_text(&serde_json::json!([1.0, 0.5]), false), "[1,0.5]");
        assert_eq!(general(1_234_567.0, 6), "1.23457e+06");
    }
}
