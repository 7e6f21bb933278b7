//! Keys and prefixes of objects on the command line.

use crate::store::{Key, is_own};

/// A key, in the form of an object's.
pub(super) fn key(text: String) -> Result<String, String> {
    check(&text, &text).map(|()| text)
}

/// The key of an object whose digest may be recorded anew.
pub(super) fn accepted(text: String) -> Result<String, String> {
    let text = key(text)?;
    if is_own(&text) && Key::from_path(&text).is_none() {
        return Err(format!(
            "--accept: `{text}` is one of the datastore's own files and has no digest: name an object below \
             layers/ or repositories/, as `datastore ls` shows it"
        ));
    }
    Ok(text)
}

/// What keys begin with: nothing, or a key that may end within a name.
pub(super) fn prefix(text: String) -> Result<String, String> {
    let (directory, _) = text.rsplit_once('/').unwrap_or_default();
    if text.is_empty() || directory.is_empty() && !text.starts_with('/') && !is_relative(&text) {
        return Ok(text);
    }
    check(directory, &text).map(|()| text)
}

fn check(key: &str, shown: &str) -> Result<(), String> {
    let is_name =
        |name: &str| !name.is_empty() && !is_relative(name) && !name.contains(char::is_control);
    if key.split('/').all(is_name) {
        return Ok(());
    }
    Err(format!(
        "`{}` is no key: expected names with one `/` between them, like layers/NAMESPACE/LAYER, without `.` \
         or `..`",
        shown.escape_debug()
    ))
}

fn is_relative(name: &str) -> bool {
    matches!(name, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_key_is_refused() {
        for text in ["", "../x", "a/../b", "a//b", "/a", "a/", ".", "a/./b", "a\nb"] {
            assert!(key(text.to_owned()).unwrap_err().contains("is no key"), "{text}");
        }
        for text in ["../x", "..", "a/../b", "a//b", "/a", "/", "./"] {
            assert!(prefix(text.to_owned()).unwrap_err().contains("is no key"), "{text}");
        }
        for text in ["", "lay", "layers/", "layers/a", ".plancha/"] {
            prefix(text.to_owned()).unwrap();
        }
        for text in ["layers/a/b/c/0/run.log", ".plancha/runs/a/b/c", "x"] {
            key(text.to_owned()).unwrap();
        }
        for text in [".plancha/runs/a/b/c", ".plancha/sha256/layers/a/b/c/0/run.log", ".plancha/x"]
        {
            assert!(accepted(text.to_owned()).unwrap_err().contains("own files"), "{text}");
        }
        accepted("layers/a/b/c/0/run.log".to_owned()).unwrap();
    }
}
