//! Numbers as operators type them: with unit prefixes, or strictly without.
//!
//! Source: src/common/strtol.cc.

/// A number with an optional binary prefix: `10`, `4K`, `10Gi`, `1TiB`.
pub fn parse_iec(text: &str) -> Result<i64, String> {
    let (digits, unit) = split(text);
    let shift = match unit.trim_end_matches('B').trim_end_matches('i') {
        "" if unit.is_empty() || unit == "B" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        "E" => 60,
        _ => return Err("strict_iecstrtoll: unit prefix not recognized".to_owned()),
    };
    scaled(digits, 1i64.checked_shl(shift).unwrap_or(0), "strict_iecstrtoll", text)
}

/// A number with an optional decimal prefix: `10`, `4K` is 4,000.
pub fn parse_si(text: &str) -> Result<i64, String> {
    let (digits, unit) = split(text);
    let factor = match unit {
        "" | "B" => 1,
        "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "P" => 1_000_000_000_000_000,
        "E" => 1_000_000_000_000_000_000,
        _ => return Err("strict_sistrtoll: unit prefix not recognized".to_owned()),
    };
    scaled(digits, factor, "strict_sistrtoll", text)
}

/// A plain integer. Source: strict_strtoll.
pub fn parse_int(text: &str) -> Result<i64, String> {
    text.trim_start().parse().map_err(|_| format!("Expected option value to be integer, got '{text}'"))
}

/// A plain number; neither NaN nor infinite.
pub fn parse_float(text: &str) -> Result<f64, String> {
    match text.trim_start().parse::<f64>() {
        Ok(v) if v.is_finite() => Ok(v),
        _ => Err(format!("Expected option value to be floating point, got '{text}'")),
    }
}

fn split(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    text.split_at(at)
}

fn scaled(digits: &str, factor: i64, what: &str, text: &str) -> Result<i64, String> {
    let digits = digits.trim();
    let invalid =
        || match !digits.is_empty() && digits.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()) {
            true => format!("The option value '{digits}' seems to be invalid"),
            false => format!("Expected option value to be integer, got '{text}'"),
        };
    let v: i64 = digits.parse().map_err(|_| invalid())?;
    v.checked_mul(factor).ok_or_else(|| format!("{what}: value seems to be too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_known() {
        assert_eq!(parse_iec("10G"), Ok(10 << 30));
        assert_eq!(parse_iec("4Ki"), Ok(4_096));
        assert_eq!(parse_iec("1TiB"), Ok(1 << 40));
        assert_eq!(parse_iec("7"), Ok(7));
        assert_eq!(parse_iec("x"), Err("strict_iecstrtoll: unit prefix not recognized".to_owned()));
        assert!(parse_iec("9999999999E").is_err() && parse_iec("").is_err());
        assert_eq!(parse_si("4K"), Ok(4_000));
        assert_eq!(parse_int("abc"), Err("Expected option value to be integer, got 'abc'".to_owned()));
        assert!(parse_float("nan").is_err() && parse_float("inf").is_err() && parse_float("0.8").is_ok());
    }
}
