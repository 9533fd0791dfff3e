//! Ages as status lines show them.

use std::time::Duration;

use crate::json::stream_float;

/// A number and its unit: `1.5s`, `119s`, `2m`, `47h`. Source: timespan_str in src/common/ceph_time.cc.
pub fn timespan_text(age: Duration) -> String {
    let s = age.as_secs();
    let (minutes, hours, days) = (s / 60, s / 3_600, s / 86_400);
    match s {
        0..=1 => format!("{}s", stream_float(f64::from(age.as_secs_f32()))),
        2..=119 => format!("{s}s"),
        _ if minutes < 120 => format!("{minutes}m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 14 => format!("{days}d"),
        _ if days / 7 < 12 => format!("{}w", days / 7),
        _ if days / 30 < 24 => format!("{}M", days / 30),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::timespan_text;

    #[test]
    fn units_change_once_there_are_enough_of_the_larger() {
        let text = |s| timespan_text(Duration::from_secs(s));
        let day = 86_400;
        assert_eq!(
            [text(0), text(2), text(119), text(120), text(7_199), text(7_200)],
            ["0s", "2s", "119s", "2m", "119m", "2h"]
        );
        assert_eq!(
            [text(2 * day), text(14 * day), text(83 * day), text(84 * day), text(720 * day)],
            ["2d", "2w", "11w", "2M", "1y"]
        );
        assert_eq!(timespan_text(Duration::from_millis(1_500)), "1.5s");
    }
}
