//! Names that are safe as segments of a key, checked when they are parsed.
//!
//! They are less strict than Kubernetes names, since CI jobs and people name runs too. Rejected is what could leave its
//! segment of a key, or would be stored under another text.

use std::fmt;
use std::str::FromStr;

/// The text is not valid as this part of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {reason}", shown(.text))]
pub struct InvalidName {
    text: String,
    reason: &'static str,
}

/// The text in backquotes; `it` if it is empty.
fn shown(text: &str) -> String {
    if text.is_empty() { "it".to_owned() } else { format!("`{}`", text.escape_debug()) }
}

impl InvalidName {
    pub(crate) fn new(text: &str, reason: &'static str) -> Self {
        // A hostile text may have megabytes: only its beginning is kept.
        let text = match text.char_indices().nth(80) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text.to_owned(),
        };
        Self { text, reason }
    }
}

/// A namespace, layer, run or repository: one segment of a key.
///
/// 1 to 253 bytes of UTF-8 without `/`, `\` and control characters; not `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

/// A git ref (`main`, `refs/tags/v1`, `feat/x`): one or more segments of a key.
///
/// Every segment is a valid [`Name`]. The whole has at most 700 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GitRef(String);

/// A git commit, which names its bundle: a [`Name`] of at most 240 bytes. The file name is this with `.gitbundle`, and
/// file systems allow 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revision(String);

/// The file name of an artifact without a route of its own: `[A-Za-z0-9._-]{1,128}`, without a dot at the start, and
/// none of Burrito's file names ([`crate::key::File`] has those).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArtifactName(String);

/// The random id with which a runner claims an attempt: `[A-Za-z0-9-]{1,64}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimId(String);

const MAX_NAME: usize = 253;
const MAX_GIT_REF: usize = 700;
const MAX_REVISION: usize = 240;
const MAX_ARTIFACT_NAME: usize = 128;
const MAX_CLAIM_ID: usize = 64;
/// Burrito's files, those of `/api/plans` and `/api/logs`; see [`crate::key::File`].
pub(crate) const BURRITO_FILES: [&str; 5] =
    ["plan.bin", "plan.json", "pretty.plan", "short.diff", "run.log"];

fn check_segment(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        Err("is empty")
    } else if text == "." || text == ".." {
        Err("must not be `.` or `..`")
    } else if text.len() > MAX_NAME {
        Err("is longer than 253 bytes")
    } else if text.contains(['/', '\\']) {
        Err("must not contain `/` or `\\`")
    } else if text.contains(char::is_control) {
        Err("must not contain control characters")
    } else {
        Ok(())
    }
}

fn check_git_ref(text: &str) -> Result<(), &'static str> {
    if text.len() > MAX_GIT_REF {
        return Err("is longer than 700 bytes");
    }
    text.split('/').try_for_each(|segment| match segment {
        "" => Err("must not be empty, start or end with `/`, or contain `//`"),
        segment => check_segment(segment),
    })
}

fn check_revision(text: &str) -> Result<(), &'static str> {
    check_segment(text)?;
    if text.len() > MAX_REVISION { Err("is longer than 240 bytes") } else { Ok(()) }
}

fn check_artifact_name(text: &str) -> Result<(), &'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.is_empty() || text.len() > MAX_ARTIFACT_NAME || !text.chars().all(allowed) {
        Err("is not 1 to 128 characters of `A-Z a-z 0-9 . _ -`")
    } else if text.starts_with('.') {
        Err("must not start with a dot")
    } else if BURRITO_FILES.contains(&text) {
        Err("has its own route: `/api/plans` or `/api/logs`")
    } else {
        Ok(())
    }
}

fn check_claim_id(text: &str) -> Result<(), &'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if text.is_empty() || text.len() > MAX_CLAIM_ID || !text.chars().all(allowed) {
        return Err("is not 1 to 64 characters of `A-Z a-z 0-9 -`");
    }
    Ok(())
}

macro_rules! checked_text {
    ($($type:ident by $check:ident;)*) => {$(
        impl FromStr for $type {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                match $check(text) {
                    Ok(()) => Ok(Self(text.to_owned())),
                    Err(reason) => Err(InvalidName::new(text, reason)),
                }
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

checked_text! {
    Name by check_segment;
    GitRef by check_git_ref;
    Revision by check_revision;
    ArtifactName by check_artifact_name;
    ClaimId by check_claim_id;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_people_and_of_kubernetes_are_valid() {
        for text in ["a", "random-pets", "v1.0", "Run 7", "é", "a#1~2", "..a", &"a".repeat(253)] {
            assert_eq!(text.parse::<Name>().unwrap().as_ref(), text);
        }
    }

    #[test]
    fn a_name_cannot_leave_its_segment() {
        for text in ["", ".", "..", "a/b", "a\\b", "a\0", "a\n", "\u{7f}", &"a".repeat(254)] {
            text.parse::<Name>().unwrap_err();
        }
    }

    #[test]
    fn a_git_ref_keeps_its_slashes() {
        for text in ["main", "refs/tags/v1", "feat/a b#1~2"] {
            assert_eq!(text.parse::<GitRef>().unwrap().as_ref(), text);
        }
        for text in ["", "/main", "main/", "a//b", "a/../b", "./a", "a/\\", &"a/".repeat(400)] {
            text.parse::<GitRef>().unwrap_err();
        }
    }

    #[test]
    fn a_revision_leaves_room_for_its_suffix() {
        assert!("a".repeat(240).parse::<Revision>().is_ok());
        assert!("a".repeat(241).parse::<Revision>().is_err());
        assert!("a/b".parse::<Revision>().is_err());
    }

    #[test]
    fn an_artifact_is_a_plain_file_name_that_has_no_route_of_its_own() {
        for text in ["run.json", "workspace.tar.zst", "A_b-1"] {
            assert_eq!(text.parse::<ArtifactName>().unwrap().as_ref(), text);
        }
        for text in ["", ".hidden", "a b", "a/b", "é", "plan.bin", "run.log", &"a".repeat(129)] {
            text.parse::<ArtifactName>().unwrap_err();
        }
    }

    #[test]
    fn a_claim_id_is_a_short_word() {
        for text in ["1", "0b5c-A", &"a".repeat(64)] {
            assert_eq!(text.parse::<ClaimId>().unwrap().as_ref(), text);
        }
        for text in ["", "a b", "a/b", "a.b", &"a".repeat(65)] {
            text.parse::<ClaimId>().unwrap_err();
        }
    }

    #[test]
    fn an_error_escapes_control_characters_and_shortens_the_text() {
        let error = "a\nb".parse::<Name>().unwrap_err();
        assert_eq!(error.to_string(), "`a\\nb` must not contain control characters");
        assert!("x".repeat(1 << 20).parse::<Name>().unwrap_err().to_string().len() < 200);
    }
}
