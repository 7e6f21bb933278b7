//! Rules that grant permissions. One YAML format for all callers:
//!
//! ```yaml
//! rules:
//! - who: {token: ci, sha256: <64 hex digits>}
//!   namespaces: [team-a, team-b-*]
//!   kinds: [plan, log]
//!   verbs: [read, write, list]
//! ```
//!
//! A rule only adds permissions. An unknown key is an error: it may be a misspelt restriction.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use datastore_api::{File, Name, RunKey, Sha256};
use serde::{Deserialize, Serialize};

use crate::auth::tokens::Tokens;
use crate::kind::Kind;

/// What a caller may do with an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Read its bytes.
    Read,
    /// Store it.
    Write,
    /// Append to a live log.
    Append,
    /// List runs and attempts.
    List,
    /// Delete it.
    Delete,
    /// Change how all objects are stored.
    Admin,
}

impl Verb {
    /// Its name in rules.
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

/// The permission that a request needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    /// The namespace of the artifact.
    pub(crate) namespace: &'a Name,
    /// The kind of the artifact; none for a listing.
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

/// The kinds of a rule: one kind, or all files of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Kinds {
    /// The four files of a plan and its workspace.
    Plan,
    /// One kind.
    One(Kind),
}

/// A pattern in which `*` matches any text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Glob(String);

/// `ServiceAccounts`, as `namespace/name`; `*` in either part matches any text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ServiceAccount {
    namespace: Glob,
    name: Glob,
}

/// The callers of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Callers with a token of this id.
    Token(String),
    /// Callers with a token of these `ServiceAccounts`.
    ServiceAccount(ServiceAccount),
}

/// A rule: its callers have these permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) who: Who,
    namespaces: Vec<Glob>,
    /// None means all kinds but states and outputs.
    kinds: Option<Vec<Kinds>>,
    verbs: Vec<Verb>,
}

/// All rules, of all files.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Arc<[Rule]>,
    /// The tokens that the rules name.
    pub(super) tokens: Tokens,
}

/// A file of rules, as YAML has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RulesFile {
    #[serde(default)]
    pub(super) rules: Vec<YamlRule>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct YamlRule {
    pub(super) who: YamlWho,
    pub(super) namespaces: Vec<Glob>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kinds: Option<Vec<Kinds>>,
    pub(super) verbs: Vec<Verb>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlWho {
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
    /// Adds the rules of one file. An error names the rule.
    pub fn add(&mut self, yaml: &str) -> Result<(), String> {
        let file: RulesFile = serde_saphyr::from_str(yaml).map_err(|error| {
            // The further lines quote the file.
            let error = error.to_string();
            error.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        })?;
        let mut rules = self.rules.to_vec();
        for (number, rule) in (1..).zip(file.rules) {
            let at = |reason: String| format!("rule {number}: {reason}");
            rules.push(self.rule(rule).map_err(at)?);
        }
        self.rules = rules.into();
        Ok(())
    }

    /// The number of rules.
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// The callers of rules that grant no permission, because their verbs, namespaces or kinds are empty.
    pub(crate) fn without_effect(&self) -> impl Iterator<Item = String> {
        self.rules.iter().filter(|rule| rule.allows_nothing()).map(|rule| match &rule.who {
            Who::Token(id) => format!("the token `{id}`"),
            Who::ServiceAccount(account) => format!("the ServiceAccount `{account}`"),
        })
    }

    /// Whether any rule grants a token a permission.
    pub(crate) fn has_tokens(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.who, Who::Token(_)) && !rule.allows_nothing())
    }

    /// The id of a token that a rule names, but whose digest no rule has.
    pub fn unknown_token(&self) -> Option<&str> {
        self.rules.iter().find_map(|rule| match &rule.who {
            Who::Token(id) if !self.tokens.has(id) => Some(id.as_str()),
            _ => None,
        })
    }

    fn rule(&mut self, rule: YamlRule) -> Result<Rule, String> {
        let YamlRule { who, namespaces, kinds, verbs } = rule;
        if who.oidc.is_some() || who.claims.is_some() {
            return Err("this version does not support `oidc`".to_owned());
        }
        let who = match (who.token, who.sha256, who.serviceaccount) {
            (Some(id), sha256, None) => {
                if let Some(sha256) = sha256 {
                    let digest = sha256.parse::<Sha256>();
                    let digest = digest.map_err(|_| "invalid `sha256`: expected 64 hex digits")?;
                    self.tokens.add(&id, digest);
                }
                Who::Token(id)
            }
            (None, None, Some(account)) => Who::ServiceAccount(account),
            _ => {
                return Err("invalid `who`: expected `{token: ID, sha256: HEX}` or \
                            `{serviceaccount: NAMESPACE/NAME}`"
                    .to_owned());
            }
        };
        Ok(Rule { who, namespaces, kinds, verbs })
    }

    /// The rules whose callers match.
    pub(super) fn of(&self, matches: impl Fn(&Who) -> bool) -> Arc<[Rule]> {
        self.rules.iter().filter(|rule| matches(&rule.who)).cloned().collect()
    }
}

impl Rule {
    pub(super) fn allows(&self, access: Access) -> bool {
        let kinds = self.kinds.as_deref();
        // Who may store a log as a whole may also append to it.
        let appends = access.verb == Verb::Append && self.verbs.contains(&Verb::Write);
        (self.verbs.contains(&access.verb) || appends)
            && self.namespaces.iter().any(|glob| glob.matches(access.namespace.as_ref()))
            && match kinds {
                // Rules that were written before states and outputs were kept here must not include them.
                None => !access.kind.is_some_and(Kind::must_be_named),
                Some(kinds) => kinds.iter().any(|kinds| kinds.include(access.kind)),
            }
    }

    fn allows_nothing(&self) -> bool {
        let no_kind = self.kinds.as_ref().is_some_and(Vec::is_empty);
        self.verbs.is_empty() || self.namespaces.is_empty() || no_kind
    }

    /// Whether it grants `admin`, which requires a rule for all namespaces and kinds.
    pub(super) fn allows_admin(&self) -> bool {
        let everywhere = self.namespaces.iter().any(|glob| glob.0 == "*");
        self.verbs.contains(&Verb::Admin) && everywhere && self.kinds.is_none()
    }
}

impl Kinds {
    /// Whether they include this kind. A listing shows all names of a run, so any kind but bundles includes it.
    fn include(self, kind: Option<Kind>) -> bool {
        use Kind::{Bin, Bundle, Json, Pretty, Short, Workspace};
        match (self, kind) {
            (kinds, None) => kinds != Self::One(Bundle),
            (Self::Plan, Some(kind)) => matches!(kind, Bin | Json | Pretty | Short | Workspace),
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
    /// Whether this `ServiceAccount` matches.
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
            _ => Err(format!("invalid ServiceAccount `{text}`: expected NAMESPACE/NAME")),
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

    #[test]
    fn a_rule_grants_only_what_it_names() {
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
    fn admin_needs_a_rule_for_everything() {
        let admin = |rest: &str| {
            let rule = format!("{{who: {{serviceaccount: a/b}}, verbs: [admin], {rest}}}");
            policy(&rule).unwrap().rules[0].allows_admin()
        };
        assert!(admin("namespaces: ['*']"));
        assert!(!admin("namespaces: ['team-*']"));
        assert!(!admin("namespaces: ['*'], kinds: [plan]"));
    }

    #[test]
    fn an_invalid_rule_is_an_error_that_names_it() {
        let refusal = |rule: &str| policy(rule).unwrap_err();
        let sha = "0".repeat(64);
        assert!(
            policy(&format!(
                "{{who: {{token: a, sha256: {sha}}}, namespaces: [a], verbs: [read]}}"
            ))
            .is_ok()
        );
        insta::assert_snapshot!(refusal("{who: {token: a, sha256: abc}, namespaces: [a], verbs: [read]}"), @"rule 1: invalid `sha256`: expected 64 hex digits");
        insta::assert_snapshot!(refusal("{who: {}, namespaces: [a], verbs: [read]}"), @"rule 1: invalid `who`: expected `{token: ID, sha256: HEX}` or `{serviceaccount: NAMESPACE/NAME}`");
        insta::assert_snapshot!(refusal("{who: {token: a, serviceaccount: a/b}, namespaces: [a], verbs: [read]}"), @"rule 1: invalid `who`: expected `{token: ID, sha256: HEX}` or `{serviceaccount: NAMESPACE/NAME}`");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: ab}, namespaces: [a], verbs: [read]}"), @"line 1 column 32: invalid ServiceAccount `ab`: expected NAMESPACE/NAME");
        insta::assert_snapshot!(refusal("{who: {oidc: 'https://x'}, namespaces: [a], verbs: [read]}"), @"rule 1: this version does not support `oidc`");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, namespaces: [a], verbs: [raed]}"), @"line 1 column 63: unknown variant `raed`, expected one of read, write, append, list, delete, admin");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, namespaces: [a], kind: [plan], verbs: [read]}"), @"line 1 column 55: unknown field `kind`, expected one of who, namespaces, kinds, verbs");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, namespaces: [a], kinds: [plans], verbs: [read]}"), @"line 1 column 63: invalid kind `plans`: expected one of bin, json, pretty, short, log, bundle, artifact, workspace, state, lease, status, outputs, plan");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, verbs: [read]}"), @"line 1 column 38: missing field `namespaces`");
    }
}
