//! Numbers with units, as status lines show them. Source: si_u_t, byte_u_t and weightf_t in src/include/types.h.

/// Bytes with a binary unit: `883 MiB`, `7.2 KiB`, `0 B`.
pub fn bytes(v: u64) -> String {
    const UNITS: [&str; 7] = [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"];
    with_unit(v, 1024, &UNITS)
}

/// A count with a decimal unit: `211`, `3.80k`.
pub fn count(v: u64) -> String {
    with_unit(v, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

/// The same for sums that can come out negative for a moment; those show as 0.
pub fn bytes_signed(v: i64) -> String {
    bytes(u64::try_from(v).unwrap_or(0))
}

pub fn count_signed(v: i64) -> String {
    count(u64::try_from(v).unwrap_or(0))
}

fn with_unit(v: u64, base: u64, units: &[&str]) -> String {
    let steps =
        std::iter::successors(Some((v, 1u64)), |(n, unit)| (*n >= base).then(|| (n / base, unit * base)));
    let (index, (whole, unit)) = steps.enumerate().last().unwrap_or((0, (v, 1)));
    let name = units.get(index).copied().unwrap_or_default();
    if v % unit == 0 {
        return format!("{whole}{name}");
    }
    // As many decimals as leave seven characters, unit included.
    let exact = v as f64 / unit as f64;
    let candidates = [2, 1, 0].map(|decimals| format!("{exact:.decimals$}{name}"));
    let [_, _, shortest] = &candidates;
    candidates.iter().find(|text| text.len() <= 7).unwrap_or(shortest).clone()
}

/// A percentage with two decimals; below 0.01 a bare 0. Source: percentify in src/mon/PGMap.cc.
pub fn percent(v: f32) -> String {
    if f64::from(v) < 0.01 { "0".to_owned() } else { format!("{v:.2}") }
}

/// A CRUSH weight with five decimals; `-` below zero.
pub fn weight(v: f32) -> String {
    if v < -0.01 {
        "-".to_owned()
    } else if v < 0.000_001 {
        "0".to_owned()
    } else {
        format!("{v:.5}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_cephs() {
        let got = [0, 512, 1023, 1024, 2306, 10_239, 65_536, 926_363_648, 32_212_254_720, 31_285_891_072];
        let want =
            ["0 B", "512 B", "1023 B", "1 KiB", "2.3 KiB", "10 KiB", "64 KiB", "883 MiB", "30 GiB", "29 GiB"];
        assert_eq!(got.map(bytes), want);
        assert_eq!(bytes(u64::MAX), "16 EiB");
        assert_eq!(
            [999, 1_000, 3_801, 3_590, 1_234_567].map(count),
            ["999", "1k", "3.80k", "3.59k", "1.23M"]
        );
        assert_eq!([0.0, 0.009, 2.876].map(percent), ["0", "0", "2.88"]);
        assert_eq!([-1.0, 0.0, 0.0098, 1.0].map(weight), ["-", "0", "0.00980", "1.00000"]);
    }
}
