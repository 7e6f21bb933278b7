//! Durations as both programs read and print them: `30s`, `5m`, `1h30m`, `7d`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use jiff::{SignedDuration, SpanRelativeTo};

/// A duration as a person writes it. A day has 24 hours.
///
/// The format is jiff's "friendly" one: numbers with units, from `ns` to `w`. A unit is required, since `30` may
/// mean seconds to one reader and days to another. A negative duration is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HumanDuration(pub Duration);

/// The text is not a duration with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a duration with a unit, such as 500ms, 30s, 5m, 1h30m or 7d")]
pub struct InvalidDuration;

impl FromStr for HumanDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let span = SpanParser::new().parse_span(text).map_err(|_| InvalidDuration)?;
        let duration = span.to_duration(SpanRelativeTo::days_are_24_hours());
        let duration = duration.map_err(|_| InvalidDuration)?;
        Duration::try_from(duration).map(Self).map_err(|_| InvalidDuration)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", SignedDuration::try_from(self.0).unwrap_or(SignedDuration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_numbers_with_units() {
        for (text, milliseconds) in [
            ("0s", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("1.5s", 1_500),
            ("90s", 90_000),
            ("5m", 300_000),
            ("5 minutes", 300_000),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("7d", 604_800_000),
            ("1w", 604_800_000),
            ("1d12h", 129_600_000),
        ] {
            let expected = HumanDuration(Duration::from_millis(milliseconds));
            assert_eq!(text.parse(), Ok(expected), "{text}");
            assert_eq!(expected.to_string().parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn no_unit_a_negative_value_and_units_of_the_calendar_are_errors() {
        for text in [
            "",
            "0",
            "30",
            "-5m",
            "5m ago",
            "5x",
            "m",
            "1mo",
            "1y",
            "PT5M",
            "soon",
            "5m,",
            "99999999999999999999d",
        ] {
            assert_eq!(text.parse::<HumanDuration>(), Err(InvalidDuration), "{text}");
        }
    }

    #[test]
    fn the_error_lists_examples_that_are_valid() {
        let message = InvalidDuration.to_string();
        let (_, examples) = message.split_once("such as ").unwrap();
        for example in examples.split([',', ' ']).filter(|word| !matches!(*word, "" | "or")) {
            example.parse::<HumanDuration>().unwrap();
        }
    }
}
