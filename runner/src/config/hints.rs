//! Hints for words that are terraform's, not the runner's.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options of terraform that the runner has as well, with two dashes and a word of their own.
const OURS: [&str; 4] = ["var", "var-file", "target", "replace"];

/// Options of terraform's plan and apply that go to the tool as they are.
const THE_TOOLS: [&str; 16] = [
    "destroy",
    "refresh-only",
    "refresh",
    "parallelism",
    "lock",
    "lock-timeout",
    "compact-warnings",
    "no-color",
    "generate-config-out",
    "exclude",
    "concise",
    "consolidate-warnings",
    "state",
    "state-out",
    "backup",
    "allow-missing-config",
];

/// The error, with a hint where a word before `--` is an option of terraform's.
pub(super) fn with_hint(mut error: clap::Error, given: &[OsString]) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(hint) = given.iter().skip(1).find_map(|word| hint(word.to_str()?))
    {
        let hint = ContextValue::StyledStrs(vec![StyledStr::from(hint)]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

fn hint(word: &str) -> Option<String> {
    let option = word.strip_prefix('-')?;
    let (name, two_dashes) = match option.strip_prefix('-') {
        Some(name) => (name, true),
        None => (option, false),
    };
    let (name, value) =
        name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
    if OURS.contains(&name) && !two_dashes {
        let value = value.unwrap_or(match name {
            "var" => "NAME=VALUE",
            "var-file" => "FILE",
            _ => "ADDRESS",
        });
        return Some(format!("the runner's own option has two dashes: `--{name} '{value}'`"));
    }
    let option = option.trim_start_matches('-');
    THE_TOOLS
        .contains(&name)
        .then(|| format!("options of the tool go behind `--`: `runner plan DIR -- -{option}`"))
}
