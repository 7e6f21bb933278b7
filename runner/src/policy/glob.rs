//! Patterns of resource types and addresses: `*` is any text, `?` any one character, and everything else is itself. A
//! bracket is no class of characters, because addresses have brackets.

use serde::Deserialize;

/// A pattern of a type or an address.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Glob(String);

impl Glob {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the whole text is of this form.
    pub(super) fn matches(&self, text: &str) -> bool {
        let (pattern, text) =
            (self.0.chars().collect::<Vec<_>>(), text.chars().collect::<Vec<_>>());
        let (mut at, mut of) = (0, 0);
        // Where the last `*` is, and up to where its text goes.
        let mut star: Option<(usize, usize)> = None;
        while at < text.len() {
            match pattern.get(of) {
                Some('*') => {
                    star = Some((of, at));
                    of += 1;
                }
                Some(c) if *c == '?' || *c == text[at] => {
                    (at, of) = (at + 1, of + 1);
                }
                _ => {
                    let Some((star_of, star_at)) = star else { return false };
                    star = Some((star_of, star_at + 1));
                    (at, of) = (star_at + 1, star_of + 1);
                }
            }
        }
        pattern[of..].iter().all(|c| *c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match_and_brackets_are_themselves() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("aws_db_*", "aws_db_instance", true),
            ("aws_db_*", "aws_dbx", false),
            ("module.net.*", "module.net.aws_vpc.a", true),
            ("module.net.*", "module.network.aws_vpc.a", false),
            ("x.many[\"a,b\"]", "x.many[\"a,b\"]", true),
            ("x.many[*]", "x.many[\"a,b\"]", true),
            ("x.many[0]", "x.many0", false),
            ("*.web[?]", "module.m[1].a.web[2]", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*c", "xxaxxbxx", false),
            ("", "", true),
            ("", "x", false),
            ("*é", "caf\u{e9}", true),
        ] {
            assert_eq!(Glob(pattern.to_owned()).matches(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let glob = Glob("*a".repeat(60));
        assert!(!glob.matches(&"a".repeat(59)));
        assert!(!glob.matches(&"b".repeat(20_000)));
    }
}
