//! Times, as people read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const UNITS: [(i64, &str); 6] = [
    (31_536_000, "year"),
    (2_592_000, "month"),
    (604_800, "week"),
    (86_400, "day"),
    (3_600, "hour"),
    (60, "minute"),
];

/// How long ago a time is: `3 minutes ago`.
pub(super) fn age(time: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - time.as_second();
    if seconds < 5 {
        // The clocks of two machines differ by a little.
        return if seconds < -60 { "in the future".to_owned() } else { "just now".to_owned() };
    }
    let unit = UNITS.iter().find(|(length, _)| seconds >= *length);
    let (count, unit) =
        unit.map_or((seconds, "second"), |(length, unit)| (seconds / length, *unit));
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

/// A time in UTC: `2026-11-22 10:31:02 UTC`.
pub(super) fn in_utc(time: Timestamp) -> String {
    time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A duration: `0.4 s`, `12 s`, `3 min 5 s`, `1 h 2 min`. No run takes ten years.
pub(super) fn duration(seconds: f64) -> String {
    const MAX: f64 = 315_360_000.0;
    if !(0.0..MAX).contains(&seconds) {
        return "an unknown time".to_owned();
    }
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    #[expect(clippy::cast_possible_truncation, reason = "a cast of floats saturates")]
    let whole = seconds.round() as i64;
    match whole {
        ..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_has_one_unit() {
        let now = "2026-11-22T10:00:00Z".parse::<Timestamp>().unwrap();
        for (time, expected) in [
            ("2026-11-22T09:59:58Z", "just now"),
            ("2026-11-22T10:00:20Z", "just now"),
            ("2026-11-22T12:00:00Z", "in the future"),
            ("2026-11-22T09:59:30Z", "30 seconds ago"),
            ("2026-11-22T09:58:30Z", "1 minute ago"),
            ("2026-11-22T07:00:01Z", "2 hours ago"),
            ("2026-11-20T10:00:00Z", "2 days ago"),
            ("2026-11-08T10:00:00Z", "2 weeks ago"),
            ("2026-06-22T10:00:00Z", "5 months ago"),
            ("2023-11-22T10:00:00Z", "3 years ago"),
        ] {
            assert_eq!(age(time.parse().unwrap(), now), expected);
        }
        assert_eq!(in_utc(now), "2026-11-22 10:00:00 UTC");
    }

    #[test]
    fn duration_has_at_most_two_units() {
        for (seconds, expected) in [
            (0.04, "0.0 s"),
            (1.26, "1.3 s"),
            (9.96, "10 s"),
            (59.6, "1 min 0 s"),
            (185.0, "3 min 5 s"),
            (3725.0, "1 h 2 min"),
            (1e308, "an unknown time"),
            (-1.0, "an unknown time"),
            (f64::NAN, "an unknown time"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
