//! Pieces of text that several outputs share.

use crush::ITEM_NONE;
use monitor::text::table::{Align, TextTable};
use types::Utime;

/// A table whose first columns stand left, and whose others have their headings left and their texts right.
pub fn table<'a>(left: &[&str], right: impl IntoIterator<Item = &'a str>) -> TextTable {
    let table = left.iter().fold(TextTable::new(), |t, heading| t.left(heading));
    right.into_iter().fold(table, |t, heading| t.column_headed(heading, Align::Left, Align::Right))
}

/// `[1,2]`, as C++ streams print a list of OSDs.
pub fn osds(list: &[i32]) -> String {
    format!("[{}]", join(list))
}

/// The same with `NONE` for a missing shard. Source: pg_vector_string in src/osd/osd_types.cc.
pub fn pg_osds(list: &[i32]) -> String {
    let name = |o: &i32| if *o == ITEM_NONE { "NONE".to_owned() } else { o.to_string() };
    format!("[{}]", list.iter().map(name).collect::<Vec<_>>().join(","))
}

/// `0,1,2`.
pub fn join<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|v| v.to_string()).collect::<Vec<_>>().join(",")
}

/// `Sat Nov 21 22:03:40 2026`, in UTC: what C's ctime prints.
pub fn ctime(at: Utime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = civil(at.sec / 86_400);
    let weekday = DAYS.get((at.sec / 86_400 % 7) as usize).copied().unwrap_or_default();
    let month = MONTHS.get(month).copied().unwrap_or_default();
    let s = at.sec % 86_400;
    format!("{weekday} {month} {day:2} {:02}:{:02}:{:02} {year}", s / 3_600, s / 60 % 60, s % 60)
}

/// `2026-11-21T22:03:40`, in UTC, with microseconds where there are any: what Python's isoformat gives.
pub fn iso(at: Utime) -> String {
    let (year, month, day) = civil(at.sec / 86_400);
    let s = at.sec % 86_400;
    let part = at.nsec / 1_000;
    let part = if part == 0 { String::new() } else { format!(".{part:06}") };
    format!("{year}-{:02}-{day:02}T{:02}:{:02}:{:02}{part}", month + 1, s / 3_600, s / 60 % 60, s % 60)
}

/// Year, index of the month and day of a day since 1970-01-01.
fn civil(mut days: u32) -> (u32, usize, u32) {
    let leap = |y: u32| y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    let mut year = 1970;
    while days >= 365 + u32::from(leap(year)) {
        days -= 365 + u32::from(leap(year));
        year += 1;
    }
    let february = 28 + u32::from(leap(year));
    let mut month = 0;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_ctime_prints_them() {
        let check = |sec: u32, want: &str| assert_eq!(ctime(Utime::new(sec, 0)), want);
        check(0, "Thu Jan  1 00:00:00 1970");
        check(1_709_164_799, "Wed Feb 28 23:59:59 2024");
        check(1_709_164_800, "Thu Feb 29 00:00:00 2024");
        check(1_709_251_200, "Fri Mar  1 00:00:00 2024");
        check(1_795_298_620, "Sat Nov 21 22:03:40 2026");
        check(4_107_542_400, "Mon Mar  1 00:00:00 2100");
        assert_eq!(iso(Utime::new(1_709_164_799, 0)), "2024-02-28T23:59:59");
        assert_eq!(iso(Utime::new(1_709_251_200, 25_999)), "2024-03-01T00:00:00.000025");
    }

    #[test]
    fn osd_lists_are_as_streams_print_them() {
        assert_eq!(osds(&[2, ITEM_NONE]), "[2,2147483647]");
        assert_eq!((pg_osds(&[2, ITEM_NONE]), osds(&[])), ("[2,NONE]".to_owned(), "[]".to_owned()));
        assert_eq!(join([3, 1]), "3,1");
    }
}
