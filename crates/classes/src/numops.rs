//! Class `numops`: arithmetic on decimal numbers in omap values. Source: src/cls/numops/cls_numops.cc.

use bytes::Bytes;
use codec::wire_plain;
use types::Errno;

use crate::ObjectView;
use crate::registry::{Class, Method, MethodFlags as F, input};

pub static CLASS: Class = Class {
    name: "numops",
    methods: &[Method::new("add", F::RD_WR, add), Method::new("mul", F::RD_WR, mul)],
};

/// Significant digits of what is stored.
const PRECISION: usize = 10;

struct Args {
    key: Bytes,
    value: Bytes,
}
wire_plain!(Args { key, value });

/// A number as strtod reads a whole string, which ends at the first zero byte; the empty one is 0.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.split(|b| *b == 0).next()?.trim_ascii_start();
    let text = std::str::from_utf8(text).ok()?;
    if text.is_empty() { Some(0.0) } else { text.parse().ok() }
}

/// As C prints `%.10g`.
fn print(v: f64) -> String {
    if !v.is_finite() {
        return if v.is_nan() { "nan".into() } else { if v > 0.0 { "inf" } else { "-inf" }.into() };
    }
    let scientific = format!("{v:.*e}", PRECISION - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |s: &str| match s.contains('.') {
        true => s.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => s.to_owned(),
    };
    if exponent < -4 || exponent >= PRECISION as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    let decimals = (PRECISION as i32 - 1 - exponent).max(0) as usize;
    trim(&format!("{v:.decimals$}"))
}

fn change(v: &mut dyn ObjectView, bytes: &Bytes, f: impl Fn(f64, f64) -> f64) -> Result<i32, Errno> {
    let args: Args = input(bytes)?;
    let operand = number(&args.value).ok_or(Errno::EINVAL)?;
    // Whatever keeps the value from being read, it counts as 0.
    let stored = v.omap_value(&args.key).unwrap_or_default();
    let value = number(&stored).ok_or(Errno::EBADMSG)?;
    v.put(args.key, print(f(value, operand)).into())?;
    Ok(0)
}

fn add(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    change(v, bytes, |a, b| a + b)
}

fn mul(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    change(v, bytes, |a, b| a * b)
}

#[cfg(test)]
mod tests {
    use codec::Encode;

    use super::*;
    use crate::fake::Fake;

    #[test]
    fn numbers_print_as_c_prints_them() {
        for (v, text) in [
            (0.0, "0"),
            (10.5, "10.5"),
            (-3.0, "-3"),
            (1e10, "1e+10"),
            (1234567890.0, "1234567890"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.0 / 3.0, "0.3333333333"),
            (123456789012.0, "1.23456789e+11"),
            (9999999999.9, "1e+10"),
        ] {
            assert_eq!(print(v), text);
        }
    }

    #[test]
    fn values_add_and_multiply() {
        let mut f = Fake::default();
        let args = |v: &'static str| Args { key: "k".into(), value: v.into() }.to_bytes();
        for (method, operand, result) in [("add", "5.5", "5.5"), ("add", "-2", "3.5"), ("mul", "2", "7")] {
            assert!(f.call("numops", method, args(operand)).is_ok());
            assert_eq!(f.omap("k"), Some(result.into()));
        }
        assert!(f.call("numops", "add", args("\0x")).is_ok());
        assert_eq!(f.call("numops", "add", args("x")), Err(Errno::EINVAL));
        f.object.as_mut().unwrap().omap.insert("k".into(), "y".into());
        assert_eq!(f.call("numops", "add", args("1")), Err(Errno::EBADMSG));
    }
}
