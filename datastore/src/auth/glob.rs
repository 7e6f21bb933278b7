//! Patterns of rules.

use serde::{Deserialize, Serialize};

/// A pattern in which `*` matches any text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Glob(String);

impl Glob {
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The text before the first `*`, and whether there is one.
    pub(super) fn literal(&self) -> (&str, bool) {
        match self.0.split_once('*') {
            Some((literal, _)) => (literal, true),
            None => (&self.0, false),
        }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut text) = text.strip_prefix(first) else { return false };
        let mut middle = rest.split('*').collect::<Vec<_>>();
        let last = middle.pop().unwrap_or_default();
        for part in middle {
            let Some(at) = text.find(part) else { return false };
            text = &text[at + part.len()..];
        }
        text.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (glob, yes, no) in [
            ("team-a", &["team-a"][..], &["team-b", "team-a2", "ateam-a", ""][..]),
            ("*", &["", "x", "team-a"], &[]),
            ("team-*", &["team-", "team-a", "team-a-b"], &["team", "xteam-a"]),
            ("*-ci", &["-ci", "a-ci"], &["ci", "a-ci2"]),
            ("a*b*c", &["abc", "axxbyyc", "abbc"], &["ab", "acb", "abcd"]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("", &[], &["a"]),
        ] {
            for text in yes {
                assert!(Glob::new(glob).matches(text), "{glob} {text}");
            }
            for text in no {
                assert!(!Glob::new(glob).matches(text), "{glob} {text}");
            }
        }
    }
}
