//! Wall-clock time as it goes over the wire: seconds and nanoseconds since 1970.

use std::time::Duration;

use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};

/// Seconds and nanoseconds since the Unix epoch. Source: utime_t in src/include/utime.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Utime {
    pub sec: u32,
    pub nsec: u32,
}

wire_plain!(Utime { sec, nsec });

impl Utime {
    pub const ZERO: Self = Self { sec: 0, nsec: 0 };

    pub fn new(sec: u32, nsec: u32) -> Self {
        Self { sec, nsec }
    }

    /// Nanoseconds since 1970.
    pub fn as_nanos(self) -> u64 {
        u64::from(self.sec) * 1_000_000_000 + u64::from(self.nsec)
    }

    pub fn from_nanos(nanos: u64) -> Self {
        Self { sec: (nanos / 1_000_000_000) as u32, nsec: (nanos % 1_000_000_000) as u32 }
    }

    /// From a duration since 1970; saturates in 2106.
    pub fn from_unix(since_1970: Duration) -> Self {
        Self { sec: u32::try_from(since_1970.as_secs()).unwrap_or(u32::MAX), nsec: since_1970.subsec_nanos() }
    }

    #[must_use]
    pub fn plus(self, d: Duration) -> Self {
        Self::from_nanos(self.as_nanos().saturating_add(d.as_nanos() as u64))
    }

    /// How much later `self` is than `earlier`; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }

    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

/// Times below this are durations to Ceph, which prints them as bare seconds: ten years. Source: utime_t::localtime.
const RELATIVE_BELOW_SEC: u32 = 60 * 60 * 24 * 365 * 10;

/// ISO 8601 in UTC with microseconds, as Ceph prints times: `2026-11-21T20:57:53.123456+0000`; what is too small to be
/// a time of day is bare seconds: `0.000000`.
impl std::fmt::Display for Utime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.sec < RELATIVE_BELOW_SEC {
            return write!(f, "{}.{:06}", self.sec, self.nsec / 1_000);
        }
        let (y, mo, d) = civil_from_days(i64::from(self.sec / 86_400));
        let s = self.sec % 86_400;
        let (h, mi, s) = (s / 3_600, s / 60 % 60, s % 60);
        write!(f, "{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{:06}+0000", self.nsec / 1_000)
    }
}

/// Year, month and day of a day number since 1970-01-01 in the proleptic Gregorian calendar.
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    // Count from 0000-03-01, so that leap days end their year; 146,097 days make 400 years.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

/// Nanoseconds of a second.
const NANOS: u32 = 1_000_000_000;

/// A time that counts nanoseconds: a surplus of them goes over into the seconds. Source: real_time in
/// src/common/ceph_time.h.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RealTime(pub Utime);

impl Encode for RealTime {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
    }
}
impl Decode for RealTime {
    const MIN_SIZE: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let (sec, nsec) = (r.u32()?, r.u32()?);
        Ok(Self(Utime::new(sec.wrapping_add(nsec / NANOS), nsec % NANOS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_ceph_does() {
        assert_eq!(Utime::new(0, 0).to_string(), "0.000000");
        assert_eq!(Utime::new(5, 6_000).to_string(), "5.000006");
        assert_eq!(Utime::new(315_360_000, 0).to_string(), "1979-12-30T00:00:00.000000+0000");
        assert_eq!(Utime::new(1_709_164_800, 1_500).to_string(), "2024-02-29T00:00:00.000001+0000");
        assert_eq!(Utime::new(1_795_294_673, 123_456_789).to_string(), "2026-11-21T20:57:53.123456+0000");
    }

    #[test]
    fn surplus_nanoseconds_become_seconds() {
        let raw = [3u32.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        assert_eq!(RealTime::from_bytes(raw), Ok(RealTime(Utime::new(7, 294_967_295))));
    }
}
