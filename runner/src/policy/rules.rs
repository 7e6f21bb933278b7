//! Rules in YAML: what is allowed and what is not, by action, reason, type and address.

use serde::Deserialize;

use crate::policy::change::PlannedChange;
use crate::policy::kind::Kind;

/// One file of rules.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Rules {
    /// The first one that matches a change decides.
    #[serde(rename = "rules")]
    list: Vec<Rule>,
    /// Types and addresses that are never deleted, replaced or forgotten by a rule.
    protected: Vec<Selector>,
    /// Outputs whose change needs an approval: `NAME` or `NAME.PATH`.
    pub(super) watched_outputs: Vec<String>,
    /// A plan with more changes is denied.
    pub(super) max_changes: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    effect: Effect,
    /// `create`, `update`, `delete`, `replace`, `forget`, `import`, `move`; empty: all.
    #[serde(default)]
    actions: Vec<Kind>,
    /// Values of `action_reason`, as globs; empty: all, also none.
    #[serde(default)]
    reasons: Vec<String>,
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    addresses: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Effect {
    Allow,
    Refuse,
}

/// What rules say of a change.
pub(super) enum Decision {
    Allowed,
    Refused(String),
}

/// What is protected.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Selector {
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    addresses: Vec<String>,
}

impl Rules {
    /// Parses a file.
    pub(super) fn parse(yaml: &str) -> Result<Self, String> {
        if yaml.trim().is_empty() {
            return Err(
                "it is empty; expected rules, protected, watched_outputs or max_changes".to_owned()
            );
        }
        let rules: Self = serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
        let is_empty =
            |selector: &Selector| selector.types.is_empty() && selector.addresses.is_empty();
        if rules.protected.iter().any(is_empty) {
            return Err("an entry of protected names neither types nor addresses".to_owned());
        }
        if rules.list.iter().any(|rule| rule.actions.contains(&Kind::Unknown)) {
            return Err("`unknown` is no action of a rule".to_owned());
        }
        Ok(rules)
    }

    /// The outputs of `--destructive-output`.
    pub(super) fn of_outputs(outputs: &[String]) -> Self {
        Self { watched_outputs: outputs.to_vec(), ..Self::default() }
    }

    /// Whether a change is allowed. `None`: no rule matches it.
    pub(super) fn decision(&self, change: &PlannedChange) -> Option<Decision> {
        if change.kind.is_destructive() {
            let protected = self.protected.iter().any(|selector| {
                matches_any(&selector.types, &change.resource_type)
                    && matches_any(&selector.addresses, &change.address)
            });
            if protected {
                return Some(Decision::Refused(format!("{} is protected", change.address)));
            }
        }
        if change.kind == Kind::Unknown {
            return None;
        }
        let at = self.list.iter().position(|rule| rule.matches(change))?;
        Some(match self.list[at].effect {
            Effect::Allow => Decision::Allowed,
            Effect::Refuse => Decision::Refused(format!("rule {} refuses it", at + 1)),
        })
    }
}

impl Rule {
    fn matches(&self, change: &PlannedChange) -> bool {
        (self.actions.is_empty() || self.actions.contains(&change.kind))
            && matches_any(&self.reasons, change.action_reason.as_deref().unwrap_or_default())
            && matches_any(&self.types, &change.resource_type)
            && matches_any(&self.addresses, &change.address)
    }
}

/// Whether one of the patterns matches, or there is none.
fn matches_any(patterns: &[String], text: &str) -> bool {
    patterns.is_empty()
        || patterns.iter().any(|pattern| matches(pattern.as_bytes(), text.as_bytes()))
}

/// A glob in which only `*` and `?` have a meaning: addresses contain brackets and quotes.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Only the last star is tried again, so it takes at most pattern times text steps.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_glob_has_stars_and_question_marks_alone() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("aws_*", "aws_vpc", true),
            ("aws_*_x", "aws_a_b_x", true),
            ("aws_*_x", "aws_a_b_y", false),
            (r#"module.a["k"].*"#, r#"module.a["k"].aws_vpc.b[0]"#, true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        let (pattern, text) = ("a*".repeat(200), "a".repeat(20_000) + "b");
        assert!(!matches(format!("{pattern}c").as_bytes(), text.as_bytes()));
    }
}
