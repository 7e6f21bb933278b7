//! A bar on a terminal while something large is fetched, and nothing anywhere else.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

const TEMPLATE: &str = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
/// Where the server does not say how much is to come.
const TEMPLATE_WITHOUT_END: &str = "{spinner} {bytes}, {bytes_per_sec}";

/// A bar on stderr for so many bytes; a hidden one if stderr is no terminal.
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
