//! An error with its causes, on one line.

use std::error::Error;

/// The error and its causes, on one line.
///
/// Some libraries (`object_store`, hyper) print their causes and also return them from `source()`: a cause that the text
/// already has is not repeated.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
