//! Files of states, in messages: which of them are whole, and where the tool has printed a state.

use std::path::{Path, PathBuf};

use crate::source::states;

/// States that are whole, and others.
#[derive(Default)]
pub(super) struct Sorted<'a> {
    pub(super) whole: Vec<&'a Path>,
    /// Empty or incomplete.
    pub(super) broken: Vec<&'a Path>,
}

impl<'a> Sorted<'a> {
    pub(super) fn new(files: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        let files = files.into_iter().map(PathBuf::as_path);
        let (whole, broken) = files.partition(|file| states::is_whole(file));
        Self { whole, broken }
    }

    /// Those that are not whole.
    pub(super) fn problem(&self) -> Option<String> {
        let verb = if let [_] = *self.broken { "is" } else { "are" };
        (!self.broken.is_empty())
            .then(|| format!("{} {verb} empty or incomplete", listed(&self.broken)))
    }
}

pub(super) fn listed<P: AsRef<Path>>(files: &[P]) -> String {
    let files = files.iter().map(|file| file.as_ref().display().to_string());
    files.collect::<Vec<_>>().join(", ")
}

/// The outputs that are kept beside files, if there are any.
pub(super) fn kept_outputs<P: AsRef<Path>>(files: &[P]) -> Option<String> {
    let outputs = files.iter().map(|file| states::output_of(file.as_ref()));
    let outputs = outputs.filter(|output| output.exists()).collect::<Vec<_>>();
    (!outputs.is_empty()).then(|| listed(&outputs))
}

/// How the state that the tool printed gets into a file. The screen and the log are masked, which may change the state; the
/// kept output is not.
pub(super) fn copy_printed(
    states: &Sorted<'_>,
    is_cut: bool,
    stdout: &str,
    log: Option<&str>,
) -> String {
    let cut = if is_cut {
        "the output is incomplete, so that state may be cut, and a part of a state must not be pushed; "
    } else {
        ""
    };
    if let Some(outputs) = kept_outputs(&states.broken) {
        return format!("{cut}copy that JSON document from {outputs} into a file STATE.");
    }
    let or_log = log.map(|log| format!(" or {log}")).unwrap_or_default();
    format!(
        "{cut}copy that JSON document from {stdout}{or_log} into a file STATE, but only if it contains no `***`."
    )
}
