//! A line without what terragrunt's log and CI systems put before it.

use std::borrow::Cow;
use std::sync::LazyLock;

use anstream::adapter::strip_str;
use regex::Regex;

/// One line of output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The terragrunt unit, or the pod; empty where none is named.
    pub(super) unit: &'a str,
    /// `None` for a line without a prefix of terragrunt.
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
    /// A line of the tool's debug log (`TF_LOG`), which may be within a message.
    Debug,
}

/// What CI systems and log collectors put before each line: a timestamp, in brackets or without a date by Jenkins, with the stream by
/// GitLab, with job and step by `gh run view --log`; the step of a container build; GitHub's `##[error]`; a byte order mark.
static COLLECTOR: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^(?:\x{feff}|##\[error\]|#\d+ \d+\.\d+ |\d\d:\d\d:\d\d(?: {2}|$)|(?:[^\t\x{2502}]+\t[^\t\x{2502}]+\t\x{feff}?)?\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?\]?(?: \d\d[OE](?:[ +]|$)| |$))",
    )
});

/// The line has at most this many prefixes of collectors.
const MAX_PREFIXES: usize = 4;

/// A line of the tool's debug log, after its timestamp.
static DEBUG: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^\[(?:TRACE|DEBUG|INFO|WARN|ERROR)\](?: |$)"));

/// `12:30:45.123 STDERR [unit] tofu: `; the level is padded to six characters.
static PRETTY: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^\d\d:\d\d:\d\d(?:\.\d+)? (STDOUT |STDERR |ERROR {2}|WARN {3}|INFO {3}|DEBUG {2}|TRACE {2}|[A-Z]+$)(?:\[([^\]\s]+)\] ?)?((?:tofu|terraform)(?: [a-z]+)?:(?: |$))?",
    )
});

/// `STDERR [unit] terraform: `, where the time has been removed.
static STREAM: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^(STDOUT|STDERR) +(?:\[([^\]\s]+)\] ?)?(?:tofu|terraform)(?: [a-z]+)?:(?: |$)")
});

/// `time=... level=stderr prefix=[unit] tf-path=tofu msg=`
static KEY_VALUE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^(?:time=\S+ )?level=([a-z]+) (?:(?:prefix=\[?([^\]\s]*)\]?|binary=\S+|tf-[a-z-]+=(?:\[[^\]]*\]|\S+)) )*msg=",
    )
});

/// What terragrunt wrote before its own messages before it had log levels.
static OLD_TERRAGRUNT: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^\[terragrunt\] (?:\[([^\]\s]+)\] )?(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?: |$))?")
});

/// What the runner says after the last error of the tool, in its log and on its screen.
static OF_RUNNER: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^(?:(?: ?WARN|ERROR) )?(?:terraform|tofu|terragrunt) [a-z ]+ (?:is not run again: |failed: .*; try \d+ follows in |failed with exit code \d)|^ERROR the tool reported \d+ errors$",
    )
});

/// `[unit] `, of units that run side by side, or `[pod/NAME/CONTAINER] `.
static UNIT: LazyLock<Regex> = LazyLock::new(|| regex(r"^\[([^\]\s]+)\] ?"));

/// `name-1  | `, of docker compose.
static CONTAINER: LazyLock<Regex> = LazyLock::new(|| regex(r"^([A-Za-z0-9][\w.-]*) +\|(?: |$)"));

/// What is left of colours where a page has removed the escape characters.
static COLOUR: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\[(?:0|1|4|22|24|3[0-9]|9[0-7])(?:;\d{1,3})*m"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is valid")
}

impl<'a> Line<'a> {
    pub(super) fn parse(raw: &'a str) -> Self {
        let (raw, is_dated) = without_collector(raw);
        if is_dated && DEBUG.is_match(raw) {
            return Line { unit: "", level: Some(Level::Debug), text: raw };
        }
        // Most lines have no prefix: their beginning says so. A pattern that is not used needs no memory.
        let (pattern, quoted) = match raw.as_bytes() {
            [b'0'..=b'9', ..] => (&PRETTY, false),
            [b'S', ..] => (&STREAM, false),
            [b't', b'i', ..] | [b'l', b'e', ..] => (&KEY_VALUE, true),
            [b'[', ..] => return Self::with_unit(raw),
            _ => return Line { unit: "", level: None, text: raw },
        };
        if let Some(found) = pattern.captures(raw) {
            let level = match found[1].trim_end().to_ascii_lowercase().as_str() {
                "stdout" | "stderr" => Level::Tool,
                // The tool's stderr is at this level as well, by terragrunt 0.72 for example.
                "error" if found.get(3).is_some() => Level::Tool,
                "error" | "fatal" => Level::Error,
                _ => Level::Other,
            };
            let unit = found.get(2).map_or("", |unit| unit.as_str());
            let text = &raw[found[0].len()..];
            let (text, later) = if quoted { message(text) } else { (text, "") };
            let unit = if unit.is_empty() { later } else { unit };
            return Line { unit: unit_name(unit), level: Some(level), text };
        }
        Line { unit: "", level: None, text: raw }
    }

    /// One that begins with a unit in brackets, or with what terragrunt wrote before it had log levels.
    fn with_unit(raw: &'a str) -> Self {
        if let Some(found) = OLD_TERRAGRUNT.captures(raw) {
            let unit = found.get(1).map_or("", |unit| unit.as_str());
            let text = &raw[found[0].len()..];
            let level = match found.get(2) {
                Some(_) if text.starts_with("Error: ") || text.contains("detected no outputs") => {
                    Some(Level::Error)
                }
                Some(_) => Some(Level::Other),
                None => None,
            };
            return Line { unit, level, text };
        }
        match UNIT.captures(raw) {
            Some(found) => {
                let (whole, unit) = (found[0].len(), found.get(1).map_or("", |unit| unit.as_str()));
                Line { unit, level: None, text: without_collector(&raw[whole..]).0 }
            }
            None => Line { unit: "", level: None, text: raw },
        }
    }
}

/// Whether the runner itself has written a line.
pub(super) fn is_of_runner(line: &str) -> bool {
    line.starts_with(['E', 'W', ' ', 't']) && OF_RUNNER.is_match(line)
}

/// The line after the prefixes of collectors, and whether one of them was a timestamp.
fn without_collector(raw: &str) -> (&str, bool) {
    let (mut rest, mut is_dated) = (raw, false);
    let may_begin = |c: char| c.is_ascii_digit() || "[#\u{feff}".contains(c);
    for _ in 0..MAX_PREFIXES {
        if !rest.starts_with(may_begin) && !rest.contains('\t') {
            break;
        }
        let Some(found) = COLLECTOR.captures(rest) else { break };
        is_dated |= found.get(1).is_some();
        rest = &rest[found[0].len()..];
    }
    (rest, is_dated)
}

/// `.` is the directory in which terragrunt runs.
fn unit_name(unit: &str) -> &str {
    if unit == "." { "" } else { unit }
}

/// The text of `msg=`, without the fields after it, and the unit that one of them names.
fn message(text: &str) -> (&str, &str) {
    let (text, unit) = match text.rsplit_once(" prefix=[") {
        Some((text, rest)) => (text, rest.trim_end().strip_suffix(']').unwrap_or_default()),
        None => (text, ""),
    };
    (text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text), unit)
}

/// The names that docker compose puts before the lines of its containers.
#[derive(Debug, Default)]
pub(super) struct Containers(Vec<String>);

impl Containers {
    /// The line without such a name. A name without a number is known by a headline after it: else it may be part of a
    /// message.
    pub(super) fn strip<'a>(&mut self, line: &'a str) -> &'a str {
        const MAX_NAMES: usize = 16;
        if !line.contains('|') {
            return line;
        }
        let Some(found) = CONTAINER.captures(line) else { return line };
        let (name, rest) = (&found[1], &line[found[0].len()..]);
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_numbered =
            stem.len() < name.len() && (stem.is_empty() || stem.ends_with(['-', '_']));
        if is_numbered || self.0.iter().any(|known| known == name) {
            return rest;
        }
        let begins = ["Error: ", "Warning: ", "\u{2577}", "\u{2502}"];
        let plain = without_collector(rest).0;
        if self.0.len() < MAX_NAMES && begins.iter().any(|begin| plain.starts_with(begin)) {
            self.0.push(name.to_owned());
            return rest;
        }
        line
    }
}

/// A line without colours and other escape codes, also where a page has removed their escape characters.
pub(super) fn plain(raw: &str) -> Cow<'_, str> {
    let text =
        if raw.contains('\x1b') { Cow::from(strip_str(raw).to_string()) } else { Cow::from(raw) };
    if !["[0m", "[1m", "[31m", "[33m"].iter().any(|colour| text.contains(colour)) {
        return text;
    }
    let (mut kept, mut end) = (String::with_capacity(text.len()), 0);
    for found in COLOUR.find_iter(&text) {
        // A duration in a query is not a colour: `[1m]`.
        if !text[found.end()..].starts_with(']') {
            kept.push_str(&text[end..found.start()]);
            end = found.end();
        }
    }
    kept.push_str(&text[end..]);
    kept.into()
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
            ("STDERR terraform: │ Error: x", "", Some(Level::Tool), "│ Error: x"),
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
            (
                "time=2022-01-31T13:25:34Z level=error msg=exit status 1 prefix=[/live/vpc] ",
                "/live/vpc",
                Some(Level::Error),
                "exit status 1",
            ),
            ("[live/vpc] │ Error: x", "live/vpc", None, "│ Error: x"),
            ("[terragrunt] Error: x", "", None, "Error: x"),
            ("[terragrunt] 2020/03/11 12:35:36 Running it", "", Some(Level::Other), "Running it"),
        ] {
            assert_eq!(Line::parse(raw), Line { unit, level, text }, "{raw}");
        }
    }

    #[test]
    fn timestamps_of_ci_systems_are_removed() {
        for prefix in [
            "2026-05-05T10:00:00.1234567Z ",
            "\u{feff}2026-05-05T10:00:00.1234567Z ",
            "2026-05-05T10:00:00.123456Z 01O ",
            "2026-05-05T10:00:00.123456Z 01E+",
            "[2026-05-05T10:00:00.123Z] ",
            "2026-05-05 10:00:00,123 ",
            "plan\tRun terraform\t2026-05-05T10:00:00.123Z ",
            "2026-05-05T10:00:00.1234567Z ##[error]",
            "#12 3.456 ",
        ] {
            let line = format!("{prefix}Error: x");
            let expected = Line { unit: "", level: None, text: "Error: x" };
            assert_eq!(Line::parse(&line), expected, "{line}");
        }
        let line = "[pod/web-1/tf] 2026-05-05T10:00:00Z Error: x";
        assert_eq!(Line::parse(line), Line { unit: "pod/web-1/tf", level: None, text: "Error: x" });
        let line = "2019-05-20T20:09:03.650Z [DEBUG] plugin: exited";
        assert_eq!(Line::parse(line).level, Some(Level::Debug));
    }

    #[test]
    fn names_of_containers_are_removed_and_columns_of_a_message_are_not() {
        let mut containers = Containers::default();
        for (line, text) in [
            ("tf | on", "tf | on"),
            ("tf-1  | on", "on"),
            ("tf-1  |", ""),
            ("tf  | │ Error: x", "│ Error: x"),
            ("tf  |   on main.tf line 1:", "  on main.tf line 1:"),
            ("other  | x", "other  | x"),
        ] {
            assert_eq!(containers.strip(line), text, "{line}");
        }
    }

    #[test]
    fn colours_are_removed_also_without_their_escape_characters() {
        for (raw, text) in [
            ("\x1b[31m│\x1b[0m \x1b[1mError: \x1b[0m\x1b[1mx", "│ Error: x"),
            ("[31m│[0m [0m[1m[31mError: [0m[0m[1mx[0m", "│ Error: x"),
            ("rate(x[1m]) [0mis[0m", "rate(x[1m]) is"),
            ("a[0], b[1m", "a[0], b"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(plain(raw), text, "{raw:?}");
        }
    }
}
