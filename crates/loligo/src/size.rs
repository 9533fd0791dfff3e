//! Sizes on the command line.

/// What a number without a unit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Byte,
    Mib,
}

/// Parses `4096`, `4K`, `512M`, `4Gi`, `10GiB`, `2tb`; units are powers of 1024.
pub fn parse(text: &str, bare: Unit) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = lower.get(digits.len()..).unwrap_or_default();
    let letter = ["ib", "b", "i"].into_iter().find_map(|end| unit.strip_suffix(end)).unwrap_or(unit);
    let shift = match letter {
        "" if unit == "b" => 0,
        "" if unit.is_empty() => match bare {
            Unit::Byte => 0,
            Unit::Mib => 20,
        },
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("unknown unit '{unit}': use B, K, M, G or T")),
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("'{text}' is not a size such as 4096, 4K or 10G"))?;
    number.checked_shl(shift).filter(|bytes| bytes >> shift == number).ok_or_else(|| "too large".to_owned())
}

/// A bare number is bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    parse(text, Unit::Byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        for (text, expected) in [
            ("512b", 512),
            ("4K", 4096),
            ("10M", 10 << 20),
            ("10mb", 10 << 20),
            ("1GiB", 1 << 30),
            ("4Gi", 4 << 30),
            ("8ki", 8 << 10),
            ("2t", 2 << 40),
            ("0K", 0),
        ] {
            assert_eq!((bytes(text), parse(text, Unit::Mib)), (Ok(expected), Ok(expected)), "{text}");
        }
        assert_eq!((bytes("10"), parse("10", Unit::Mib)), (Ok(10), Ok(10 << 20)));
        for bad in
            ["", "M", "1X", "-1", "1.5G", "1ib", "1i", "1bi", "1KK", "99999999T", "99999999999999999999"]
        {
            assert!(parse(bad, Unit::Mib).is_err(), "{bad}");
        }
    }
}
