//! Points in time as people and modules of Ceph's manager write them.

use types::Utime;

/// A point in time of UTC; `None` where there is none such, or it does not fit.
pub fn utc([year, month, day]: [i64; 3], [hour, minute, second]: [i64; 3], nanos: u32) -> Option<Utime> {
    let in_range = (1970..=2105).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..61).contains(&second);
    if !in_range {
        return None;
    }
    // Days since 1970 by counting years from March, so that leap days come last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Utime::new(u32::try_from(seconds).ok()?, nanos))
}

/// Digits behind a point as nanoseconds.
pub fn fraction(digits: &str) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.len() <= 9 && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| format!("{digits:0<9}").parse().ok()).flatten()
}

/// `2027-01-31`, `2027-01-31 10:00`, `2027-01-31T10:00:00.25+0100`, or seconds since 1970. Without a zone it
/// is UTC. Source: utime_t::parse_date in src/include/utime.h.
pub fn parse(text: &str) -> Option<Utime> {
    let numbers = |text: &str, by: char| -> Option<Vec<i64>> {
        let number =
            |word: &str| word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse().ok()).flatten();
        text.split(by).map(number).collect()
    };
    if !text.contains('-') {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        return Some(Utime::new(whole.parse().ok()?, fraction(part)?));
    }
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let date: [i64; 3] = numbers(date, '-')?.try_into().ok()?;
    let (time, ahead_s) = zone(time)?;
    let (clock, part) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = numbers(clock, ':')?;
    if clock.len() == 2 {
        clock.push(0);
    }
    let at = utc(date, clock.try_into().ok()?, fraction(part)?)?;
    Some(Utime::new(u32::try_from(i64::from(at.sec) - ahead_s).ok()?, at.nsec))
}

/// Takes the zone off a time of day; with it goes by how many seconds its clocks are ahead of UTC.
pub fn zone(time: &str) -> Option<(&str, i64)> {
    if let Some(utc) = time.strip_suffix('Z') {
        return Some((utc, 0));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, 0)) };
    let (time, zone) = time.split_at_checked(at)?;
    let digits: String = zone.chars().filter(char::is_ascii_digit).collect();
    let is_zone = zone.chars().skip(1).all(|c| c.is_ascii_digit() || c == ':');
    let minutes = match (digits.len(), is_zone) {
        (2, true) => digits.parse::<i64>().ok()? * 60,
        (4, true) => digits.parse::<i64>().ok()? / 100 * 60 + digits.parse::<i64>().ok()? % 100,
        _ => return None,
    };
    Some((time, if zone.starts_with('-') { -minutes * 60 } else { minutes * 60 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_cephs_manager_reads_them() {
        let check = |text: &str, want: Option<&str>| {
            assert_eq!(parse(text).map(|t| t.to_string()).as_deref(), want, "{text}");
        };
        // As `device set-life-expectancy` of 16.2.15 took them.
        check("2027-01-01", Some("2027-01-01T00:00:00.000000+0000"));
        check("2027-06-01T10:11:12", Some("2027-06-01T10:11:12.000000+0000"));
        check("2027-01-02 3:4", Some("2027-01-02T03:04:00.000000+0000"));
        check("2027-01-01 10:00:00.123456Z", Some("2027-01-01T10:00:00.123456+0000"));
        check("2027-01-01T10:00:00.000000+0000", Some("2027-01-01T10:00:00.000000+0000"));
        check("2027-01-01T10:00:00.5-0130", Some("2027-01-01T11:30:00.500000+0000"));
        check("1529699738", Some("2018-06-22T20:35:38.000000+0000"));
        for bad in ["", "nix", "2027-13-01", "2027-01-01Tx", "2027-01-01T1:2:3:4", "2027-01-01T1:2+1", "-"] {
            check(bad, None);
        }
    }
}
