//! The format of a file of rules: YAML, or JSON. What the rules decide together is in `judge`.

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::policy::glob::Glob;
use crate::policy::verdict::{JudgedChange, Kind};

/// A file of rules.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleFile {
    /// The first one that matches decides.
    #[serde(default)]
    pub(super) rules: Vec<Rule>,
    #[serde(default)]
    pub(super) protected: Option<Protected>,
    #[serde(default)]
    pub(super) max_changes: Option<u64>,
    #[serde(default)]
    pub(super) drift_only: Option<bool>,
    #[serde(default)]
    pub(super) watched_outputs: Vec<Spanned<String>>,
}

/// A rule for changes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) id: Spanned<String>,
    pub(super) verdict: Effect,
    #[serde(default)]
    actions: Option<Vec<Kind>>,
    #[serde(default)]
    reasons: Option<Vec<Glob>>,
    #[serde(default)]
    types: Option<Vec<Glob>>,
    #[serde(default)]
    addresses: Option<Vec<Glob>>,
    #[serde(default)]
    deposed: Option<bool>,
    #[serde(default)]
    pub(super) message: Option<String>,
}

/// What a rule says, the strictest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Effect {
    Allow,
    /// Unless it is approved.
    Refuse,
    /// No approval lifts it.
    Deny,
}

/// What is never deleted, replaced or forgotten without an approval.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Protected {
    #[serde(default)]
    types: Vec<Glob>,
    #[serde(default)]
    addresses: Vec<Glob>,
}

/// What is wrong with a file of rules, and in which line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    pub(super) line: u64,
    pub(super) reason: String,
}

impl RuleFile {
    /// Parses a file of rules.
    pub(super) fn parse(text: &str) -> Result<Self, Invalid> {
        let rules = serde_saphyr::from_str::<Self>(text).map_err(|error| invalid(&error))?;
        let of_file = |reason: &str| Invalid { line: 1, reason: reason.to_owned() };
        if rules.is_empty() {
            return Err(of_file("it decides nothing: it has no rules and no limits"));
        }
        let protected = rules.protected.iter();
        let mut globs = protected.flat_map(|all| all.types.iter().chain(&all.addresses));
        if globs.any(Glob::is_empty) {
            return Err(of_file("`protected` has an empty pattern"));
        }
        if rules.protected.as_ref().is_some_and(Protected::is_empty) {
            return Err(of_file("`protected` has neither types nor addresses"));
        }
        rules.rules.iter().try_for_each(Rule::check)?;
        Ok(rules)
    }

    fn is_empty(&self) -> bool {
        self.rules.is_empty()
            && self.protected.is_none()
            && self.max_changes.is_none()
            && self.drift_only.is_none()
            && self.watched_outputs.is_empty()
    }

    /// The first rule that matches a change.
    pub(super) fn first(&self, change: &JudgedChange) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.matches(change))
    }

    pub(super) fn protects(&self, change: &JudgedChange) -> bool {
        self.protected.as_ref().is_some_and(|protected| {
            protected.types.iter().any(|glob| glob.matches(&change.resource_type))
                || protected.addresses.iter().any(|glob| glob.matches(&change.address))
                || change.previous_address.as_ref().is_some_and(|previous| {
                    protected.addresses.iter().any(|glob| glob.matches(previous))
                })
        })
    }
}

impl Protected {
    fn is_empty(&self) -> bool {
        self.types.is_empty() && self.addresses.is_empty()
    }
}

impl Rule {
    fn check(&self) -> Result<(), Invalid> {
        let refused = |reason: &str| {
            let reason = format!("rule `{}`: {reason}", self.id.value);
            Err(Invalid { line: self.id.referenced.line(), reason })
        };
        let globs =
            [("reasons", &self.reasons), ("types", &self.types), ("addresses", &self.addresses)];
        for (key, list) in globs {
            if list.as_ref().is_some_and(|list| list.is_empty() || list.iter().any(Glob::is_empty))
            {
                return refused(&format!(
                    "`{key}` is empty, or has an empty pattern: leave it out for all"
                ));
            }
        }
        let actions = self.actions.as_deref();
        if actions.is_some_and(<[Kind]>::is_empty) {
            return refused("`actions` is empty: leave it out for all");
        }
        if self.verdict != Effect::Allow {
            return Ok(());
        }
        if actions.is_some_and(|actions| actions.contains(&Kind::Unknown)) {
            return refused("what this runner does not know cannot be allowed");
        }
        if actions.is_none() && self.reasons.is_none() {
            return refused("say what it allows: with `actions`, or with `reasons`");
        }
        Ok(())
    }

    fn matches(&self, change: &JudgedChange) -> bool {
        let any = |globs: &Option<Vec<Glob>>, text: &str| {
            globs.as_ref().is_none_or(|globs| globs.iter().any(|glob| glob.matches(text)))
        };
        self.actions.as_ref().is_none_or(|actions| actions.contains(&change.kind))
            && any(&self.reasons, change.action_reason.as_deref().unwrap_or_default())
            && any(&self.types, &change.resource_type)
            && any(&self.addresses, &change.address)
            && self.deposed.is_none_or(|deposed| deposed == change.deposed.is_some())
    }
}

fn invalid(error: &serde_saphyr::Error) -> Invalid {
    let line = error.location().map_or(1, |location| location.line());
    let text = error.to_string();
    let reason = text.lines().next().unwrap_or_default();
    // It begins with the line and the column.
    let (_, after) = reason.split_once(" column ").unwrap_or_default();
    let reason = after.split_once(": ").map_or(reason, |(_, reason)| reason).to_owned();
    Invalid { line, reason }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mistakes_are_found_with_their_line() {
        for (text, line, reason) in [
            ("", 1, ""),
            ("{}", 1, "decides nothing"),
            ("max_change: 3", 1, "max_change"),
            ("rules:\n- id: a\n  verdict: permit\n", 3, "permit"),
            ("rules:\n- id: a\n  verdict: allow\n", 2, "say what it allows"),
            ("rules:\n- id: a\n  verdict: allow\n  types: ['*']\n", 2, "say what it allows"),
            ("rules:\n- id: a\n  verdict: deny\n  types: []\n", 2, "`types` is empty"),
            ("rules:\n- id: a\n  verdict: deny\n  addresses: ['']\n", 2, "`addresses` is empty"),
            ("rules:\n- id: a\n  verdict: deny\n  actions: []\n", 2, "`actions` is empty"),
            ("rules:\n- id: a\n  verdict: deny\n  actions: [remove]\n", 4, "remove"),
            ("rules:\n- id: a\n  verdict: allow\n  actions: [unknown]\n", 2, "cannot be allowed"),
            ("rules:\n- id: a\n  verdict: deny\n  action: [delete]\n", 4, "action"),
            ("rules:\n- verdict: deny\n", 2, "id"),
            ("protected: {}", 1, "neither types nor addresses"),
            ("protected: {types: ['']}", 1, "empty pattern"),
            ("protected: {kinds: [a]}", 1, "kinds"),
            ("max_changes: -1", 1, ""),
            ("max_changes: 1\nmax_changes: 2\n", 2, ""),
            ("drift_only: maybe", 1, ""),
            ("rules: [", 1, ""),
        ] {
            let error = RuleFile::parse(text).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error:?}");
            assert_eq!(error.line, line, "{text}: {error:?}");
        }
    }

    #[test]
    fn json_is_a_file_of_rules_as_well() {
        let json =
            r#"{"rules": [{"id": "a", "verdict": "deny", "types": ["x_*"]}], "max_changes": 2}"#;
        assert_eq!(RuleFile::parse(json).unwrap().max_changes, Some(2));
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "[a-z_:\\-\\[\\]{}'\" \n0-9*&!|>]{0,80}") {
            let _parsed = RuleFile::parse(&text);
        }
    }
}
