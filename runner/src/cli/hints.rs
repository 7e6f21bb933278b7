//! Hints for options of terraform that are not options of the runner, and for help that cannot be printed.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::AddrParseError;
use std::num::ParseIntError;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::environment::{is_github_job, is_set, values_of_flags};
use crate::process::github::defused;
use crate::process::text::{clean, is_visible};
use crate::process::url_secrets::{Parameters, masked};

/// Options of terraform that the runner sets itself or does not need, each with the alternative.
const SET_BY_THE_RUNNER: [(&str, &str); 5] = [
    ("out", "the runner sets -out itself: write `--plan-file PATH` to keep the plan in a file"),
    (
        "auto-approve",
        "leave it out: the runner never asks. `runner apply` applies a stored plan, `--no-plan` plans and \
         applies in one step",
    ),
    ("input", "leave it out: the tool never asks for input here"),
    ("json", "leave it out: with a datastore the plan is also stored as JSON (plan.json)"),
    ("chdir", "name the directory as DIR: `runner plan DIR`"),
];

/// Options of terraform's init.
const OF_INIT: [&str; 10] = [
    "upgrade",
    "reconfigure",
    "migrate-state",
    "force-copy",
    "backend",
    "backend-config",
    "get",
    "from-module",
    "lockfile",
    "plugin-dir",
];

/// Options of terraform's plan and apply that can be passed to the tool.
const OF_PLAN: [&str; 15] = [
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

/// The error, with a hint if a word before `--` is an option of terraform's. clap's own advice, to put any unknown option
/// after `--`, is removed: the tool would get it. A value of a variable is not that of its flag.
pub(super) fn with_hint(
    mut error: clap::Error,
    given: &[OsString],
    program: &clap::Command,
) -> clap::Error {
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        // A URL in place of another value may hold a password, and what is to be masked may be here by mistake.
        let argument = error.get(ContextKind::InvalidArg).map(ContextValue::to_string);
        let is_secret = argument.is_some_and(|argument| argument.starts_with("--redact-env"));
        let shown = if is_secret { "***".to_owned() } else { masked(value, Parameters::Secret) };
        error.insert(ContextKind::InvalidValue, ContextValue::String(shown));
    }
    let words = given.iter().skip(1).filter_map(|word| word.to_str()).collect::<Vec<_>>();
    let command = command(program, &words);
    if error.kind() != ErrorKind::UnknownArgument {
        if let Some(named) = variable(&error, &words, command) {
            error.insert(ContextKind::InvalidArg, ContextValue::String(named));
        }
        if let Some(hint) = error.source().and_then(expected) {
            let hint = ContextValue::StyledStrs(vec![StyledStr::from(hint)]);
            error.insert(ContextKind::Suggested, hint);
        }
        return error;
    }
    match words.iter().find_map(|word| hint(word, command)) {
        Some(hint) => {
            let hint = ContextValue::StyledStrs(vec![StyledStr::from(hint)]);
            error.insert(ContextKind::Suggested, hint);
        }
        None => {
            error.insert(ContextKind::Suggested, ContextValue::None);
        }
    }
    error
}

/// What a value must be that Rust's own parser of its type refuses: its errors do not say so.
fn expected(reason: &(dyn Error + 'static)) -> Option<&'static str> {
    if reason.is::<ParseIntError>() {
        Some("expected a whole number, such as 3")
    } else if reason.is::<AddrParseError>() {
        Some("expected an address and a port, such as 127.0.0.1:9090")
    } else {
        None
    }
}

/// The variable that has the invalid value, with its flag, if the flag is not on the command line.
fn variable(error: &clap::Error, words: &[&str], command: &clap::Command) -> Option<String> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = shown.split([' ', '=']).next()?;
    let is_it = |arg: &&clap::Arg| arg.get_long().is_some_and(|long| flag[2..] == *long);
    let arg = command.get_arguments().filter(|_| flag.starts_with("--")).find(is_it)?;
    let variable = arg.get_env().filter(|name| is_set(name))?;
    let aliases = arg.get_all_aliases().unwrap_or_default();
    let is_flag =
        |name: &str| aliases.iter().chain(arg.get_long().iter()).any(|long| *long == name);
    let given = words.iter().filter_map(|word| word.strip_prefix("--")?.split('=').next());
    let is_given = given.into_iter().any(is_flag);
    (!is_given).then(|| format!("{} ({shown})", variable.display()))
}

/// The innermost command that the words name.
fn command<'a>(program: &'a clap::Command, words: &[&str]) -> &'a clap::Command {
    let mut command = program;
    for word in words.iter().filter(|word| !word.starts_with('-')) {
        let Some(next) = command.find_subcommand(word) else { break };
        command = next;
    }
    command
}

fn hint(word: &str, command: &clap::Command) -> Option<String> {
    let option = word.strip_prefix('-')?;
    let (option, one_dash) = match option.strip_prefix('-') {
        Some(option) => (option, false),
        None => (option, true),
    };
    let (name, value) =
        option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    let is_word = name.len() > 1 && name.starts_with(|c: char| c.is_ascii_alphabetic());
    // `-refresh=false` is terraform's, `--refresh` ours.
    let fits = |arg: &clap::Arg| value.is_none() || arg.get_action().takes_values();
    let ours = command.get_arguments().find(|arg| arg.get_long() == Some(name) && fits(arg));
    if !is_word || (ours.is_some() && !one_dash) {
        return None;
    }
    if let Some(ours) = ours {
        return Some(format!("the runner's own option has two dashes: `{}`", in_full(ours, value)));
    }
    if let Some((_, instead)) = SET_BY_THE_RUNNER.iter().find(|(of_tool, _)| *of_tool == name) {
        return Some((*instead).to_owned());
    }
    if name == "version" {
        return Some(
            "the runner's version: `runner version`; the tool's: `runner resolve`".to_owned(),
        );
    }
    let takes_tool_arguments = command.get_positionals().any(clap::Arg::is_last_set);
    if !takes_tool_arguments {
        return None;
    }
    if OF_INIT.contains(&name) {
        return Some(format!(
            "options of the tool's init go into a variable: `TF_CLI_ARGS_init='-{option}'`"
        ));
    }
    if name == "destroy" {
        return Some("to destroy everything that the state has: `runner destroy DIR`".to_owned());
    }
    let of_tool = one_dash || OF_PLAN.contains(&name);
    of_tool.then(|| format!("options of the tool go after `--`: `runner plan DIR -- -{option}`"))
}

/// A runner option with its value, as the user should write it.
fn in_full(ours: &clap::Arg, value: Option<&str>) -> String {
    let name = ours.get_long().unwrap_or_default();
    if !ours.get_action().takes_values() {
        return format!("--{name}");
    }
    let placeholder = ours.get_value_names().and_then(|names| names.first());
    match value.or(placeholder.map(clap::builder::Str::as_str)) {
        Some(value) if ours.is_require_equals_set() => format!("--{name}='{value}'"),
        Some(value) => format!("--{name} '{value}'"),
        None => format!("--{name}"),
    }
}

/// Prints help or an error. An error repeats arguments and variables, which may be of others: their control characters are
/// made visible, and in a job of GitHub no line of them is a command.
pub(super) fn print(error: &clap::Error) -> io::Result<()> {
    if !error.use_stderr() {
        return error.print();
    }
    let is_github = is_github_job();
    let has_controls = |text: OsString| text.to_string_lossy().chars().any(|c| !is_visible(c));
    if !is_github && !env::args_os().chain(values_of_flags()).any(has_controls) {
        return error.print();
    }
    let text = clean(&error.render().to_string());
    let text = if is_github { defused(&text) } else { text };
    io::stderr().write_all(text.as_bytes())
}

/// Whether text for stdout was not written, which is reported. A reader that has closed the pipe did not want more.
pub(super) fn is_lost(printed: &io::Result<()>) -> bool {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // Without stderr, only the exit code is left.
            drop(writeln!(
                io::stderr(),
                "error: stdout cannot be written: {error}\n  next: check where stdout goes: free some space there, or \
                 write to another file"
            ));
            true
        }
        _ => false,
    }
}
