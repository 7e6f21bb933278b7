//! What the tool's errors say of the state's lock.

use crate::tool::diagnostics::Diagnostic;

/// The ID of the lock that is held, if the tool prints it.
pub(crate) fn lock_id(text: &str) -> Option<&str> {
    if has_own_info(text) { named_id(text) } else { lock_info(text, "ID:") }
}

/// Whether the `Lock Info` describes the refused attempt and not the holder: the backends http and pg print it so.
pub(crate) fn has_own_info(text: &str) -> bool {
    const ERRORS: [&str; 3] = [
        "HTTP remote state already locked",
        "Workspace is already locked",
        "Already locked for workspace creation",
    ];
    let (error, _) = text.split_once("Lock Info:").unwrap_or((text, ""));
    // The tool wraps lines.
    let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_own = ERRORS.iter().any(|text| error.contains(text));
    is_own && named_id(text).is_none_or(|id| lock_info(text, "ID:") != Some(id))
}

/// The ID that the backend's own error names: `already locked: ID=...`.
fn named_id(text: &str) -> Option<&str> {
    let (error, _) = text.split_once("Lock Info:").unwrap_or((text, ""));
    let (_, named) = error.split_once("already locked:")?;
    let id = named.split_whitespace().next()?.strip_prefix("ID=")?;
    Some(id).filter(|id| !id.is_empty())
}

/// Whether an error says that the state could not be locked.
pub(crate) fn is_lock_error(error: &Diagnostic) -> bool {
    const TEXT: &str = "Error acquiring the state lock";
    error.summary.contains(TEXT) || error.detail.contains(TEXT)
}

/// Whether an error says that another process holds the lock of the state.
pub(crate) fn is_held(error: &Diagnostic) -> bool {
    let text = error.text();
    is_lock_error(error) && (text.contains("Lock Info:") || text.contains("already locked"))
}

/// The value of a label in the tool's `Lock Info`. The labels may share one line.
pub(crate) fn lock_info<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    const LABELS: [&str; 7] =
        ["ID:", "Path:", "Operation:", "Who:", "Version:", "Created:", "Info:"];
    let (_, info) = text.split_once("Lock Info:")?;
    let (_, value) = info.split_once(label)?;
    let line = value.lines().next()?;
    let end = LABELS.iter().filter_map(|label| line.find(label)).min().unwrap_or(line.len());
    Some(line[..end].trim()).filter(|value| !value.is_empty())
}
