//! Rules: who may do what, where. One format for all kinds of caller, in YAML:
//!
//! ```yaml
//! rules:
//! - who: {token: ci, sha256: <64 hex digits>}
//!   namespaces: [team-a, team-b-*]
//!   kinds: [plan, log]
//!   verbs: [read, write, list]
//! ```
//!
//! Rules only ever add. A key that is not known is an error: it may be a restriction, misspelt.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use datastore_api::{File, Name, RunKey, Sha256};
use serde::{Deserialize, Serialize};

use crate::auth::tokens::Tokens;
use crate::kind::Kind;

/// What somebody may do with something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// To have its bytes.
    Read,
    /// To put it.
    Write,
    /// To add to a live log.
    Append,
    /// To be told what runs and attempts there are.
    List,
    /// To remove it.
    Delete,
    /// To change how everything is kept.
    Admin,
}

impl Verb {
    /// As rules name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Append => "append",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Admin => "admin",
        }
    }
}

/// What a request is about to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    /// Whose it is.
    pub(crate) namespace: &'a Name,
    /// What it is; a listing is of no kind.
    pub(crate) kind: Option<Kind>,
    pub(crate) verb: Verb,
}

impl<'a> Access<'a> {
    pub(crate) fn of(namespace: &'a Name, kind: Kind, verb: Verb) -> Self {
        Self { namespace, kind: Some(kind), verb }
    }

    pub(crate) fn file(run: &'a RunKey, file: &File, verb: Verb) -> Self {
        Self::of(&run.namespace, file.into(), verb)
    }
}

/// Some kinds of artifact, as rules name them: one of them, or the four renderings of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Kinds {
    /// All renderings of a plan.
    Plan,
    /// This one.
    One(Kind),
}

/// A text in which `*` stands for any others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Glob(String);

/// A `ServiceAccount`, or with `*` in it several, as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ServiceAccount {
    namespace: Glob,
    name: Glob,
}

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Whoever has the token of this id.
    Token(String),
    /// These accounts.
    ServiceAccount(ServiceAccount),
}

/// Who may do what, where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) who: Who,
    namespaces: Vec<Glob>,
    /// None means all.
    kinds: Option<Vec<Kinds>>,
    verbs: Vec<Verb>,
}

/// All rules.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Arc<[Rule]>,
    /// The tokens that the rules name.
    pub(super) tokens: Tokens,
}

/// A file of rules, as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    #[serde(default)]
    pub(super) rules: Vec<WrittenRule>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenRule {
    pub(super) who: WrittenWho,
    pub(super) namespaces: Vec<Glob>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kinds: Option<Vec<Kinds>>,
    pub(super) verbs: Vec<Verb>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenWho {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) serviceaccount: Option<ServiceAccount>,
    #[serde(skip_serializing)]
    pub(super) oidc: Option<String>,
    #[serde(skip_serializing)]
    pub(super) claims: Option<serde_json::Value>,
}

impl Policy {
    /// Adds the rules of one file; a refusal says which rule it is about.
    pub fn add(&mut self, yaml: &str) -> Result<(), String> {
        let written: Written = serde_saphyr::from_str(yaml).map_err(|error| {
            // The rest of the message is a picture of the file.
            let error = error.to_string();
            error.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        })?;
        let mut rules = self.rules.to_vec();
        for (number, rule) in (1..).zip(written.rules) {
            let at = |reason: String| format!("rule {number} {reason}");
            rules.push(self.rule(rule).map_err(at)?);
        }
        self.rules = rules.into();
        Ok(())
    }

    /// How many rules there are.
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whom rules name that allow nothing, since their verbs, namespaces or kinds are empty.
    pub(crate) fn useless(&self) -> impl Iterator<Item = String> {
        self.rules.iter().filter(|rule| rule.allows_nothing()).map(|rule| match &rule.who {
            Who::Token(id) => format!("the token `{id}`"),
            Who::ServiceAccount(account) => format!("the ServiceAccount `{account}`"),
        })
    }

    /// Whether a token of a rule allows anything.
    pub(crate) fn has_tokens(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.who, Who::Token(_)) && !rule.allows_nothing())
    }

    /// Whether every token that a rule names is known; else its id.
    pub fn unknown_token(&self) -> Option<&str> {
        self.rules.iter().find_map(|rule| match &rule.who {
            Who::Token(id) if !self.tokens.has(id) => Some(id.as_str()),
            _ => None,
        })
    }

    fn rule(&mut self, written: WrittenRule) -> Result<Rule, String> {
        let WrittenRule { who, namespaces, kinds, verbs } = written;
        if who.oidc.is_some() || who.claims.is_some() {
            return Err("is for `oidc`, which this version does not know yet".to_owned());
        }
        let who = match (who.token, who.sha256, who.serviceaccount) {
            (Some(id), sha256, None) => {
                if let Some(sha256) = sha256 {
                    let digest = sha256.parse::<Sha256>();
                    let digest = digest.map_err(|_| "has a `sha256` that is not 64 hex digits")?;
                    self.tokens.add(&id, digest);
                }
                Who::Token(id)
            }
            (None, None, Some(account)) => Who::ServiceAccount(account),
            _ => {
                return Err("must say who: `{token: ID, sha256: HEX}` or \
                            `{serviceaccount: namespace/name}`"
                    .to_owned());
            }
        };
        Ok(Rule { who, namespaces, kinds, verbs })
    }

    /// The rules about those whom `who` picks.
    pub(super) fn of(&self, who: impl Fn(&Who) -> bool) -> Arc<[Rule]> {
        self.rules.iter().filter(|rule| who(&rule.who)).cloned().collect()
    }
}

impl Rule {
    pub(super) fn allows(&self, access: Access) -> bool {
        let kinds = self.kinds.as_deref();
        self.verbs.contains(&access.verb)
            && self.namespaces.iter().any(|glob| glob.matches(access.namespace.as_ref()))
            && kinds.is_none_or(|kinds| kinds.iter().any(|kinds| kinds.have(access.kind)))
    }

    fn allows_nothing(&self) -> bool {
        let no_kind = self.kinds.as_ref().is_some_and(Vec::is_empty);
        self.verbs.is_empty() || self.namespaces.is_empty() || no_kind
    }

    /// Whether it is about everything there is.
    pub(super) fn allows_admin(&self) -> bool {
        let everywhere = self.namespaces.iter().any(|glob| glob.0 == "*");
        self.verbs.contains(&Verb::Admin) && everywhere && self.kinds.is_none()
    }
}

impl Kinds {
    /// A listing shows names only, but not to whom it is about none of them.
    fn have(self, kind: Option<Kind>) -> bool {
        use Kind::{Bin, Bundle, Json, Pretty, Short};
        match (self, kind) {
            (kinds, None) => kinds != Self::One(Bundle),
            (Self::Plan, Some(kind)) => matches!(kind, Bin | Json | Pretty | Short),
            (Self::One(one), Some(kind)) => one == kind,
        }
    }
}

impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "plan" => Ok(Self::Plan),
            _ => text.parse().map(Self::One).map_err(|error: String| format!("{error}, plan")),
        }
    }
}

impl TryFrom<String> for Kinds {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Kinds> for String {
    fn from(kinds: Kinds) -> Self {
        match kinds {
            Kinds::Plan => "plan".to_owned(),
            Kinds::One(kind) => kind.to_string(),
        }
    }
}

impl FromStr for Verb {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "read" => Self::Read,
            "write" => Self::Write,
            "append" => Self::Append,
            "list" => Self::List,
            "delete" => Self::Delete,
            "admin" => Self::Admin,
            _ => {
                return Err(format!(
                    "invalid verb `{text}`: expected one of read, write, append, list, delete, admin"
                ));
            }
        })
    }
}

impl Glob {
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
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

impl ServiceAccount {
    /// Whether it is this one, or one of these.
    pub(super) fn matches(&self, namespace: &str, name: &str) -> bool {
        self.namespace.matches(namespace) && self.name.matches(name)
    }
}

impl FromStr for ServiceAccount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self { namespace: Glob::new(namespace), name: Glob::new(name) })
            }
            _ => Err(format!("`{text}` is not of the form namespace/name")),
        }
    }
}

impl TryFrom<String> for ServiceAccount {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ServiceAccount> for String {
    fn from(account: ServiceAccount) -> Self {
        account.to_string()
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace.0, self.name.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: &str) -> Result<Policy, String> {
        let mut policy = Policy::default();
        policy.add(&format!("rules: [{rules}]"))?;
        Ok(policy)
    }

    #[test]
    fn a_star_stands_for_any_text() {
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

    #[test]
    fn a_rule_allows_what_it_names_and_nothing_else() {
        let rule = "{who: {serviceaccount: 'ci/*'}, namespaces: [team-*], kinds: [plan, log], verbs: [read, list]}";
        let rules = policy(rule).unwrap().rules;
        let allows = |namespace: &str, kind, verb| {
            rules[0].allows(Access { namespace: &namespace.parse().unwrap(), kind, verb })
        };
        assert!(allows("team-a", Some(Kind::Bin), Verb::Read));
        assert!(allows("team-a", Some(Kind::Log), Verb::Read));
        assert!(allows("team-a", None, Verb::List));
        assert!(!allows("team", Some(Kind::Bin), Verb::Read));
        assert!(!allows("team-a", Some(Kind::Bundle), Verb::Read));
        assert!(!allows("team-a", Some(Kind::Artifact), Verb::Read));
        assert!(!allows("team-a", Some(Kind::Bin), Verb::Write));
        assert!(!rules[0].allows_admin());
        let about = |namespace, name| {
            rules.iter().any(|rule| match &rule.who {
                Who::ServiceAccount(account) => account.matches(namespace, name),
                Who::Token(_) => false,
            })
        };
        assert!(about("ci", "runner"));
        assert!(!about("ci2", "runner"));
    }

    #[test]
    fn admin_is_only_for_those_who_have_everything() {
        let admin = |rest: &str| {
            let rule = format!("{{who: {{serviceaccount: a/b}}, verbs: [admin], {rest}}}");
            policy(&rule).unwrap().rules[0].allows_admin()
        };
        assert!(admin("namespaces: ['*']"));
        assert!(!admin("namespaces: ['team-*']"));
        assert!(!admin("namespaces: ['*'], kinds: [plan]"));
    }

    #[test]
    fn what_is_misspelt_is_refused_and_named() {
        let refusal = |rule: &str| policy(rule).unwrap_err();
        let sha = "0".repeat(64);
        assert!(
            policy(&format!(
                "{{who: {{token: a, sha256: {sha}}}, namespaces: [a], verbs: [read]}}"
            ))
            .is_ok()
        );
        insta::assert_snapshot!(refusal("{who: {token: a, sha256: abc}, namespaces: [a], verbs: [read]}"), @"rule 1 has a `sha256` that is not 64 hex digits");
        insta::assert_snapshot!(refusal("{who: {}, namespaces: [a], verbs: [read]}"), @"rule 1 must say who: `{token: ID, sha256: HEX}` or `{serviceaccount: namespace/name}`");
        insta::assert_snapshot!(refusal("{who: {token: a, serviceaccount: a/b}, namespaces: [a], verbs: [read]}"), @"rule 1 must say who: `{token: ID, sha256: HEX}` or `{serviceaccount: namespace/name}`");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: ab}, namespaces: [a], verbs: [read]}"), @"line 1 column 32: `ab` is not of the form namespace/name");
        insta::assert_snapshot!(refusal("{who: {oidc: 'https://x'}, namespaces: [a], verbs: [read]}"), @"rule 1 is for `oidc`, which this version does not know yet");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, namespaces: [a], verbs: [raed]}"), @"line 1 column 63: unknown variant `raed`, expected one of read, write, append, list, delete, admin");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, namespaces: [a], kind: [plan], verbs: [read]}"), @"line 1 column 55: unknown field `kind`, expected one of who, namespaces, kinds, verbs");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, namespaces: [a], kinds: [plans], verbs: [read]}"), @"line 1 column 63: invalid kind `plans`: expected one of bin, json, pretty, short, log, bundle, artifact, plan");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, verbs: [read]}"), @"line 1 column 38: missing field `namespaces`");
    }
}
