//! Times as texts. Source: src/common/iso_8601.cc.

use types::RealTime;

/// Days before each month of a year that is no leap year.
const MONTHS: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const DAY_S: u64 = 24 * 3600;

fn is_leap(year: u64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days from 1970 to a year's first.
fn days_before(year: u64) -> u64 {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// What is left of a text that is read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn number(&mut self, digits: usize) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        let digit = |b: &u8| b.is_ascii_digit().then(|| u64::from(b - b'0'));
        number.iter().try_fold(0, |sum, b| Some(sum * 10 + digit(b)?))
    }

    fn takes(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    fn ends(&self, with: &[u8]) -> bool {
        self.0 == with
    }
}

/// Reads `YYYY[-MM[-DD[THH[:MM[:SS[.n]]]Z]]]`, of years from 1970 on: seconds since then, and nanoseconds.
/// Ceph takes days and hours that are none, too, for those that follow.
pub fn read(text: &str) -> Option<(u64, u32)> {
    let mut rest = Rest(text.as_bytes());
    let year = rest.number(4).filter(|year| *year >= 1970)?;
    let mut seconds = days_before(year) * DAY_S;
    if rest.ends(b"") {
        return Some((seconds, 0));
    }
    rest.takes(b"-")?;
    let month = rest.number(2).filter(|month| (1..=12).contains(month))?;
    let leap = u64::from(month > 2 && is_leap(year));
    let before = MONTHS.get(usize::try_from(month - 1).ok()?)? + leap;
    seconds += before * DAY_S;
    if rest.ends(b"") {
        return Some((seconds, 0));
    }
    rest.takes(b"-")?;
    let day = rest.number(2).filter(|day| (1..=days_of(year, month)).contains(day))?;
    seconds += (day - 1) * DAY_S;
    if rest.ends(b"") {
        return Some((seconds, 0));
    }
    for (n, (begins, most, unit)) in [(b"T", 23, 3600), (b":", 59, 60), (b":", 59, 1)].into_iter().enumerate()
    {
        rest.takes(begins)?;
        // A leap second is the next one.
        let most = if n == 2 { most + 1 } else { most };
        seconds += rest.number(2).filter(|number| *number <= most)? * unit;
        if rest.ends(b"Z") {
            return Some((seconds, 0));
        }
    }
    rest.takes(b".")?;
    let fraction = rest.0.strip_suffix(b"Z").filter(|digits| (1..=9).contains(&digits.len()))?;
    let mut digits = Rest(fraction);
    let number = digits.number(fraction.len())? * 10u64.pow(9 - u32::try_from(fraction.len()).ok()?);
    Some((seconds, u32::try_from(number).ok()?))
}

/// A text that is the time in the form of Ceph's and S3's documents; nothing for one that is not stored:
/// behind the year 2106.
pub fn time(text: &str) -> Option<RealTime> {
    let (seconds, nsec) = read(text)?;
    Some(RealTime(types::Utime { sec: u32::try_from(seconds).ok()?, nsec }))
}

/// `YYYY-MM-DDTHH:MM:SS` and a fraction of so many digits, at most nine.
pub fn text(RealTime(time): RealTime, digits: usize) -> String {
    let seconds = u64::from(time.sec);
    let (mut days, second) = (seconds / DAY_S, seconds % DAY_S);
    let mut year = 1970 + days / 366;
    while days_before(year + 1) <= days {
        year += 1;
    }
    days -= days_before(year);
    let mut month = 1;
    while days >= days_of(year, month) {
        days -= days_of(year, month);
        month += 1;
    }
    let nanoseconds = format!("{:09}", time.nsec.min(999_999_999));
    let fraction = nanoseconds.get(..digits.min(9)).unwrap_or_default();
    let point = if fraction.is_empty() { "" } else { "." };
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{:02}{point}{fraction}Z", days + 1, second % 60)
}

#[cfg(test)]
mod tests {
    use types::Utime;

    use super::*;

    #[test]
    fn times_are_read_as_ceph_reads_them() {
        for (text, want) in [
            ("1970", Some((0, 0))),
            ("2000-03", Some((951_868_800, 0))),
            ("2015-01-01", Some((1_420_070_400, 0))),
            ("2017-09-27T00Z", Some((1_506_470_400, 0))),
            ("2030-01-01T00:00:00Z", Some((1_893_456_000, 0))),
            ("2024-02-29T23:59:59.5Z", Some((1_709_251_199, 500_000_000))),
            ("2030-01-01T00:00:00.000000001Z", Some((1_893_456_000, 1))),
            ("2140-01-01T00:00:00.000Z", Some((5_364_662_400, 0))),
            ("9999-12-31T23:59:60Z", Some((253_402_300_800, 0))),
            ("1969-12-31", None),
            ("2023-02-29", None),
            ("2030-13-01", None),
            ("2030-01-00", None),
            ("2030-1-1", None),
            ("20300101", None),
            ("2030-01-01T00:00:00", None),
            ("2030-01-01T24:00:00Z", None),
            ("2030-01-01T00:00:00.Z", None),
            ("2030-01-01T00:00:00.0000000001Z", None),
            ("2030-01-01T00:00:00+01:00", None),
            ("", None),
        ] {
            assert_eq!(read(text), want, "{text}");
        }
        assert_eq!((time("2106-02-07T06:28:15Z").is_some(), time("2106-02-07T06:28:16Z")), (true, None));
    }

    #[test]
    fn what_is_written_is_read() {
        for sec in (0..u32::MAX).step_by(9_999_991).chain([u32::MAX, 951_782_400, 68_169_600]) {
            let at = RealTime(Utime { sec, nsec: 7_000_000 });
            assert_eq!((time(&text(at, 9)), time(&text(at, 3))), (Some(at), Some(at)), "{sec}");
        }
        let at = RealTime(Utime { sec: 1_893_456_000, nsec: 5 });
        assert_eq!(text(at, 9), "2030-01-01T00:00:00.000000005Z");
        assert_eq!(text(at, 0), "2030-01-01T00:00:00Z");
    }
}
