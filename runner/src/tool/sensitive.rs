//! Values that the tool itself treats as sensitive: those of variables that the root module declares so, and those that a
//! plan marks. Here they are only found; [`crate::process::redact`] masks them.

mod declared;
mod plan;
mod values;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret as _;

pub(crate) use plan::of_plan;

use crate::cli::Variable;
use crate::process::redact::values::Secret;
use crate::tool::argv::PlanOptions;
use crate::tool::cli_args::{Inputs, of_plans};
use crate::tool::file_names::is_own_values;

/// Where the values of variables come from.
pub(crate) struct Sources<'a> {
    /// The directory in which the tool works.
    pub(crate) dir: &'a Path,
    pub(crate) options: &'a PlanOptions,
    /// The variables `TF_VAR_*` and `TF_CLI_ARGS*`.
    pub(crate) inputs: &'a Inputs,
}

/// The values of the variables that the root module declares as sensitive, from all sources: also those that another
/// source overrides.
pub(crate) fn of_variables(sources: &Sources<'_>) -> Vec<Secret> {
    let Sources { dir, options, inputs } = *sources;
    let names = declared::names(dir);
    if names.is_empty() {
        return Vec::new();
    }
    let mut secrets = Vec::new();
    for (variable, value) in inputs {
        let name = variable.to_str().and_then(|variable| variable.strip_prefix("TF_VAR_"));
        if let Some(name) = name.filter(|name| names.contains(*name)) {
            secrets.extend(values::of_text(name, value.expose_secret()));
        }
    }
    let mut files = own_files(dir);
    let words = options.args.iter().cloned().chain(of_plans(inputs)).collect::<Vec<_>>();
    for variable in options.variables.iter().cloned().chain(in_words(&words, dir)) {
        match variable {
            Variable::File(file) => files.push(file),
            Variable::Value(text) => secrets.extend(of_argument(&text, &names)),
        }
    }
    secrets.extend(files.iter().flat_map(|file| values::of_file(file, &names)));
    secrets
}

/// The secrets in `NAME=VALUE`.
fn of_argument(text: &str, names: &BTreeSet<String>) -> Vec<Secret> {
    match text.split_once('=') {
        Some((name, value)) if names.contains(name.trim()) => {
            values::of_text(name.trim(), value.as_bytes())
        }
        _ => Vec::new(),
    }
}

/// The files with values that the tool reads by itself.
fn own_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(dir).into_iter().flatten().flatten();
    let own = entries.filter(|entry| is_own_values(entry.file_name().as_encoded_bytes()));
    own.map(|entry| entry.path()).collect()
}

/// The values and files that arguments of the tool name. Paths are relative to the tool's directory.
fn in_words(words: &[String], dir: &Path) -> Vec<Variable> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let word = word.strip_prefix('-').filter(|rest| rest.starts_with('-')).unwrap_or(word);
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (word, words.get(at + 1).map(String::as_str)),
        };
        match (flag, value) {
            ("-var", Some(value)) => found.push(Variable::Value(value.to_owned())),
            ("-var-file", Some(value)) => found.push(Variable::File(dir.join(value))),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests;
