//! Keys of objects and prefixes of keys, as arguments.

use crate::store::{Key, is_own};

/// A valid key.
pub(super) fn key(text: String) -> Result<String, String> {
    check(&text, &text).map(|()| text)
}

/// A valid key of an object whose present bytes can be accepted.
pub(super) fn acceptable_key(text: String) -> Result<String, String> {
    let text = key(text)?;
    if is_own(&text) && !matches!(Key::from_path(&text), Some(Key::Applied(_))) {
        return Err(format!(
            "--accept: `{text}` is one of the datastore's own files, of which only records of applies are accepted\nhint: \
             restore it from a backup; or use a key below layers/ or repositories/, as `datastore ls` prints it"
        ));
    }
    Ok(text)
}

/// A valid prefix of keys: empty, or a key that may end within a name.
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
        "invalid key `{}`: expected names separated by single slashes, without `.` and `..`, such as \
         layers/NAMESPACE/LAYER",
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
    fn an_invalid_key_is_an_error() {
        for text in ["", "../x", "a/../b", "a//b", "/a", "a/", ".", "a/./b", "a\nb"] {
            assert!(key(text.to_owned()).unwrap_err().contains("invalid key"), "{text}");
        }
        for text in ["../x", "..", "a/../b", "a//b", "/a", "/", "./"] {
            assert!(prefix(text.to_owned()).unwrap_err().contains("invalid key"), "{text}");
        }
        for text in ["", "lay", "layers/", "layers/a", ".plancha/"] {
            prefix(text.to_owned()).unwrap();
        }
        for text in ["layers/a/b/c/0/run.log", ".plancha/runs/a/b/c", "x"] {
            key(text.to_owned()).unwrap();
        }
        for text in [".plancha/runs/a/b/c", ".plancha/sha256/layers/a/b/c/0/run.log", ".plancha/x"]
        {
            assert!(acceptable_key(text.to_owned()).unwrap_err().contains("own files"), "{text}");
        }
        acceptable_key("layers/a/b/c/0/run.log".to_owned()).unwrap();
        acceptable_key(format!(".plancha/applied/a/b/{}", "0".repeat(64))).unwrap();
    }
}
