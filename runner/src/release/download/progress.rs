//! A progress bar for large downloads, on a terminal only.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

const TEMPLATE: &str = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
/// For a response without a length.
const TEMPLATE_WITHOUT_END: &str = "{spinner} {bytes}, {bytes_per_sec}";

/// A bar on stderr for this many bytes; hidden if stderr is not a terminal.
pub(in crate::release) fn bar(length: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template = if length.is_some() { TEMPLATE } else { TEMPLATE_WITHOUT_END };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
