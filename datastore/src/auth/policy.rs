//! Rules that grant permissions. One YAML format for all callers:
//!
//! ```yaml
//! rules:
//! - who: {token: ci, sha256: <64 hex digits>}
//!   namespaces: [team-a, team-b-*]
//!   kinds: [plan, log]
//!   verbs: [read, write, list]
//! - who: {oidc: "https://issuer.example.com", claims: {groups: infra}}
//!   namespaces: [team-a]
//!   verbs: [read, list]
//!   browser: all
//! ```
//!
//! A rule only adds permissions. An unknown key is an error: it may be a misspelt restriction.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use datastore_api::{ArtifactName, File, Name, RunKey, Sha256};
use serde::{Deserialize, Deserializer, Serialize};

use crate::auth::claims::{Claims, OidcCallers};
use crate::auth::glob::Glob;
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
    /// Whether the artifact holds the outputs of a layer, whatever its kind is.
    is_outputs: bool,
}

impl<'a> Access<'a> {
    pub(crate) fn of(namespace: &'a Name, kind: Kind, verb: Verb) -> Self {
        Self { namespace, kind: Some(kind), verb, is_outputs: false }
    }

    /// The access to list what a namespace has.
    pub(crate) fn list(namespace: &'a Name) -> Self {
        Self { namespace, kind: None, verb: Verb::List, is_outputs: false }
    }

    /// The access to another file of an attempt.
    pub(crate) fn artifact(namespace: &'a Name, name: &ArtifactName, verb: Verb) -> Self {
        let kind = Kind::from(&File::Other(name.clone()));
        let is_outputs = name.as_ref().starts_with("outputs.");
        Self { is_outputs, ..Self::of(namespace, kind, verb) }
    }

    /// Whether only programs need it, and it holds secrets: a session in a browser has it only by a rule that says so.
    pub(super) fn is_for_programs(&self) -> bool {
        let kinds = [Kind::State, Kind::Outputs, Kind::Bin, Kind::Workspace];
        self.is_outputs || self.kind.is_some_and(|kind| kinds.contains(&kind))
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
    /// Callers with an ID token of an issuer that has these claims.
    Oidc(OidcCallers),
}

/// A rule: its callers have these permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) who: Who,
    namespaces: Vec<Glob>,
    /// None means all kinds but states and outputs.
    kinds: Option<Vec<Kinds>>,
    verbs: Vec<Verb>,
    /// Whether it also grants a session in a browser what only programs need ([`Access::is_for_programs`]).
    all_in_browsers: bool,
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
    #[serde(default, deserialize_with = "given_kinds", skip_serializing_if = "Option::is_none")]
    pub(super) kinds: Option<Vec<Kinds>>,
    pub(super) verbs: Vec<Verb>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) browser: Option<InBrowsers>,
}

/// `kinds:` without a value is an empty list, which grants nothing: only rules without this field are about all kinds.
fn given_kinds<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Vec<Kinds>>, D::Error> {
    Ok(Some(Option::<Vec<Kinds>>::deserialize(value)?.unwrap_or_default()))
}

/// What a rule grants a session in a browser beside what people need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum InBrowsers {
    /// Everything that it grants other callers.
    All,
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
    pub(super) claims: Option<Claims>,
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
            Who::Oidc(callers) => format!("callers of `{}`", callers.issuer()),
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

    /// Checks that every issuer that a rule names is one of these.
    pub(crate) fn check_issuers(&self, issuers: &[String]) -> Result<(), String> {
        let unknown = self.rules.iter().find_map(|rule| match &rule.who {
            Who::Oidc(callers) => {
                Some(callers.issuer()).filter(|of| !issuers.iter().any(|one| one == of))
            }
            _ => None,
        });
        match unknown {
            Some(issuer) => {
                Err(format!("a rule names the issuer `{issuer}`, but no --auth oidc={issuer} does"))
            }
            None => Ok(()),
        }
    }

    /// Whether a rule is about callers of this issuer.
    pub(crate) fn has_issuer(&self, issuer: &str) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| matches!(&rule.who, Who::Oidc(callers) if callers.issuer() == issuer))
    }

    /// Of the claims of an issuer, those that a rule names, with only the values that a rule matches: what a session keeps.
    pub(super) fn matched(&self, issuer: &str, claims: &Claims) -> Claims {
        let mut matched = Claims::new();
        for rule in &*self.rules {
            if let Who::Oidc(callers) = &rule.who
                && callers.issuer() == issuer
            {
                callers.add_matched(claims, &mut matched);
            }
        }
        matched
    }

    fn rule(&mut self, rule: YamlRule) -> Result<Rule, String> {
        let YamlRule { who, namespaces, kinds, verbs, browser } = rule;
        let all_in_browsers = browser == Some(InBrowsers::All);
        Ok(Rule { who: self.who(who)?, namespaces, kinds, verbs, all_in_browsers })
    }

    fn who(&mut self, who: YamlWho) -> Result<Who, String> {
        let YamlWho { token, sha256, serviceaccount, oidc, claims } = who;
        match (token, sha256, serviceaccount, oidc, claims) {
            (Some(id), sha256, None, None, None) => {
                if let Some(sha256) = sha256 {
                    let digest = sha256.parse::<Sha256>();
                    let digest = digest.map_err(|_| "invalid `sha256`: expected 64 hex digits")?;
                    self.tokens.add(&id, digest);
                }
                Ok(Who::Token(id))
            }
            (None, None, Some(account), None, None) => Ok(Who::ServiceAccount(account)),
            (None, None, None, Some(issuer), claims) => {
                OidcCallers::new(issuer, &claims.unwrap_or_default()).map(Who::Oidc)
            }
            _ => Err("invalid `who`: expected `{token: ID, sha256: HEX}`, `{serviceaccount: NAMESPACE/NAME}` or \
                      `{oidc: ISSUER, claims: {NAME: PATTERN}}`"
                .to_owned()),
        }
    }

    /// The rules whose callers match.
    pub(super) fn of(&self, matches: impl Fn(&Who) -> bool) -> Arc<[Rule]> {
        self.rules.iter().filter(|rule| matches(&rule.who)).cloned().collect()
    }
}

impl Rule {
    /// Whether it allows this to a session in a browser.
    pub(super) fn allows_in_browsers(&self, access: Access) -> bool {
        self.all_in_browsers && self.allows(access)
    }

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
        let everywhere = self.namespaces.iter().any(|glob| glob.as_str() == "*");
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
        write!(f, "{}/{}", self.namespace.as_str(), self.name.as_str())
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
    fn a_rule_grants_only_what_it_names() {
        let rule = "{who: {serviceaccount: 'ci/*'}, namespaces: [team-*], kinds: [plan, log], verbs: [read, list]}";
        let rules = policy(rule).unwrap().rules;
        let allows = |namespace: &str, kind, verb| {
            let namespace = namespace.parse().unwrap();
            let listing = Access::list(&namespace);
            rules[0].allows(Access { kind, verb, ..listing })
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
                Who::Token(_) | Who::Oidc(_) => false,
            })
        };
        assert!(about("ci", "runner"));
        assert!(!about("ci2", "runner"));
    }

    #[test]
    fn an_empty_list_of_kinds_grants_nothing() {
        let rule = |kinds: &str| {
            let rule =
                format!("{{who: {{serviceaccount: a/b}}, namespaces: [a], verbs: [read]{kinds}}}");
            policy(&rule).unwrap().rules[0].clone()
        };
        for kinds in [", kinds: ", ", kinds: null", ", kinds: ~", ", kinds: []"] {
            assert!(rule(kinds).allows_nothing(), "{kinds}");
        }
        assert!(!rule("").allows_nothing());
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
        insta::assert_snapshot!(refusal("{who: {}, namespaces: [a], verbs: [read]}"), @"rule 1: invalid `who`: expected `{token: ID, sha256: HEX}`, `{serviceaccount: NAMESPACE/NAME}` or `{oidc: ISSUER, claims: {NAME: PATTERN}}`");
        insta::assert_snapshot!(refusal("{who: {token: a, serviceaccount: a/b}, namespaces: [a], verbs: [read]}"), @"rule 1: invalid `who`: expected `{token: ID, sha256: HEX}`, `{serviceaccount: NAMESPACE/NAME}` or `{oidc: ISSUER, claims: {NAME: PATTERN}}`");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: ab}, namespaces: [a], verbs: [read]}"), @"line 1 column 32: invalid ServiceAccount `ab`: expected NAMESPACE/NAME");
        insta::assert_snapshot!(refusal("{who: {claims: {a: b}}, namespaces: [a], verbs: [read]}"), @"rule 1: invalid `who`: expected `{token: ID, sha256: HEX}`, `{serviceaccount: NAMESPACE/NAME}` or `{oidc: ISSUER, claims: {NAME: PATTERN}}`");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, namespaces: [a], verbs: [read], browser: states}"), @"line 1 column 79: unknown variant `states`, expected one of all");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, namespaces: [a], verbs: [raed]}"), @"line 1 column 63: unknown variant `raed`, expected one of read, write, append, list, delete, admin");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, namespaces: [a], kind: [plan], verbs: [read]}"), @"line 1 column 55: unknown field `kind`, expected one of who, namespaces, kinds, verbs, browser");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, namespaces: [a], kinds: [plans], verbs: [read]}"), @"line 1 column 63: invalid kind `plans`: expected one of bin, json, pretty, short, log, bundle, artifact, workspace, state, lease, status, outputs, plan");
        insta::assert_snapshot!(refusal("{who: {serviceaccount: a/b}, verbs: [read]}"), @"line 1 column 38: missing field `namespaces`");
    }
}
