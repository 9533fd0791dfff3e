//! Small helpers for dumps in the shapes of Ceph's formatter.

use serde_json::{Map, Value};

/// A float as Ceph's formatter shows it: a `float` is widened to a double, and whole numbers have no fraction.
pub(crate) fn float(v: f64) -> Value {
    if v.fract() == 0.0 && v.abs() < 1e15 { Value::from(v as i64) } else { Value::from(v) }
}

/// An object from pairs, in their order.
pub(crate) fn object<K: Into<String>>(pairs: impl IntoIterator<Item = (K, Value)>) -> Value {
    Value::Object(pairs.into_iter().map(|(k, v)| (k.into(), v)).collect::<Map<_, _>>())
}

/// A list of whatever converts.
pub(crate) fn array<T: Into<Value>>(items: impl IntoIterator<Item = T>) -> Value {
    Value::Array(items.into_iter().map(Into::into).collect())
}

/// An object of strings.
pub(crate) fn strings<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> Value {
    object(pairs.into_iter().map(|(k, v)| (k.as_str(), Value::from(v.as_str()))))
}

/// What C++ streams print for a float at their default precision: up to six significant digits, no trailing zeros.
pub(crate) fn stream_float(v: f64) -> String {
    if v == 0.0 {
        return "0".to_owned();
    }
    if !v.is_finite() {
        return if v.is_nan() {
            "nan".to_owned()
        } else if v > 0.0 {
            "inf".to_owned()
        } else {
            "-inf".to_owned()
        };
    }
    // `{:e}` rounds to the precision and gives the exponent after rounding, as %g wants it.
    let scientific = format!("{v:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(digits), exponent.abs());
    }
    let decimals = usize::try_from(5 - exponent).unwrap_or(0);
    trim(&format!("{v:.decimals$}")).to_owned()
}

fn trim(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_streams_do() {
        let cases: [(f64, &str); 9] = [
            (f64::from(0.95f32), "0.95"),
            (1.0, "1"),
            (0.899_993_896_484_375, "0.899994"),
            (86_400.5, "86400.5"),
            (1e-5, "1e-05"),
            (1_234_567.0, "1.23457e+06"),
            (999_999.9, "1e+06"),
            (0.0001, "0.0001"),
            (-2.5, "-2.5"),
        ];
        for (v, want) in cases {
            assert_eq!(stream_float(v), want);
        }
    }

    #[test]
    fn whole_numbers_have_no_fraction_in_json() {
        assert_eq!(float(1.0).to_string(), "1");
        assert_eq!(float(f64::from(0.95f32)).to_string(), "0.949999988079071");
    }
}
