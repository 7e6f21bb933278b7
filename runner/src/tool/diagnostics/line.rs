//! A line without what terragrunt's log and CI systems put before it.

use std::sync::LazyLock;

use regex::Regex;

/// One line of output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The terragrunt unit; empty where none is named.
    pub(super) unit: &'a str,
    /// `None` for a line without a prefix.
    pub(super) level: Option<Level>,
    pub(super) text: &'a str,
}

/// The source of a line, by its log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// The tool that terragrunt runs.
    Tool,
    /// An error of terragrunt's own.
    Error,
    /// Any other message of terragrunt.
    Other,
}

/// `2026-05-05T10:00:00.1234567Z `, as CI systems put it before each line.
static TIMESTAMP: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) "));

/// `12:30:45.123 STDERR [unit] tofu: `; the level is padded to six characters.
static PRETTY: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^\d\d:\d\d:\d\d(?:\.\d+)? (STDOUT |STDERR |ERROR {2}|WARN {3}|INFO {3}|DEBUG {2}|TRACE {2}|[A-Z]+$)(?:\[([^\]\s]+)\] ?)?(?:(?:tofu|terraform)(?: [a-z]+)?:(?: |$))?",
    )
});

/// `time=... level=stderr prefix=[unit] tf-path=tofu msg=`
static KEY_VALUE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^(?:time=\S+ )?level=([a-z]+) (?:(?:prefix=\[?([^\]\s]*)\]?|binary=\S+|tf-[a-z-]+=(?:\[[^\]]*\]|\S+)) )*msg=",
    )
});

/// `[unit] `, of units that run side by side.
static UNIT: LazyLock<Regex> = LazyLock::new(|| regex(r"^\[([^\]\s]+)\] ?"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is valid")
}

impl<'a> Line<'a> {
    pub(super) fn parse(raw: &'a str) -> Self {
        let raw = TIMESTAMP.find(raw).map_or(raw, |found| &raw[found.end()..]);
        for (pattern, quoted) in [(&PRETTY, false), (&KEY_VALUE, true)] {
            let Some(found) = pattern.captures(raw) else { continue };
            let level = match found[1].trim_end().to_ascii_lowercase().as_str() {
                "stdout" | "stderr" => Level::Tool,
                "error" | "fatal" => Level::Error,
                _ => Level::Other,
            };
            let unit = found.get(2).map_or("", |unit| unit.as_str());
            let text = &raw[found[0].len()..];
            let text = if quoted { without_quotes(text) } else { text };
            return Line { unit: unit_name(unit), level: Some(level), text };
        }
        match UNIT.captures(raw) {
            Some(found) => {
                let (whole, unit) = (found[0].len(), found.get(1).map_or("", |unit| unit.as_str()));
                Line { unit, level: None, text: &raw[whole..] }
            }
            None => Line { unit: "", level: None, text: raw },
        }
    }
}

/// `.` is the directory in which terragrunt runs.
fn unit_name(unit: &str) -> &str {
    if unit == "." { "" } else { unit }
}

fn without_quotes(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_terragrunt_and_of_ci_systems_are_removed() {
        for (raw, unit, level, text) in [
            ("Error: x", "", None, "Error: x"),
            ("12:30:45.123 ERROR  Error: x", "", Some(Level::Error), "Error: x"),
            (
                "12:30:45.123 ERROR    on x.hcl line 1:",
                "",
                Some(Level::Error),
                "  on x.hcl line 1:",
            ),
            ("12:30:45.123 ERROR", "", Some(Level::Error), ""),
            (
                "12:30:45.123 STDERR [live/vpc] tofu: │ Error: x",
                "live/vpc",
                Some(Level::Tool),
                "│ Error: x",
            ),
            ("12:30:45.123 STDERR terraform:", "", Some(Level::Tool), ""),
            ("12:30:45.123 INFO   [../dep] tofu: ready", "../dep", Some(Level::Other), "ready"),
            (
                "time=2026-01-01T00:00:00Z level=stderr prefix=[live/vpc] tf-path=terraform msg=Error: x",
                "live/vpc",
                Some(Level::Tool),
                "Error: x",
            ),
            (
                "time=12:30:45 level=error prefix=. tf-path=tofu msg=\"Error: x\"",
                "",
                Some(Level::Error),
                "Error: x",
            ),
            ("[live/vpc] │ Error: x", "live/vpc", None, "│ Error: x"),
            ("2026-05-05T10:00:00.1234567Z Error: x", "", None, "Error: x"),
        ] {
            assert_eq!(Line::parse(raw), Line { unit, level, text }, "{raw}");
        }
    }
}
