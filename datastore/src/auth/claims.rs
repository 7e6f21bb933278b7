//! Rules about callers of an OpenID Connect issuer: which of its identities a rule covers.
//!
//! Anyone can get an ID token of an issuer with many tenants, such as GitHub. A rule for one must name an owner, a project
//! or a subject, or it would cover strangers.

use serde_json::{Map, Value};

use crate::auth::glob::Glob;

/// The claims of an ID token.
pub(super) type Claims = Map<String, Value>;

/// The identities of an issuer that have certain claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OidcCallers {
    issuer: String,
    /// Claims and their patterns. Each claim must match one of its patterns.
    claims: Vec<(String, Vec<Glob>)>,
}

/// An issuer at which anyone can get an ID token.
struct ManyTenants {
    issuer: &'static str,
    /// The claims that name an owner, a project or a subject.
    claims: &'static [(&'static str, Form)],
    /// Examples for the error.
    examples: &'static str,
}

/// The form that a pattern must have to name one owner, project or subject.
#[derive(Clone, Copy)]
enum Form {
    /// The whole value, without `*`.
    Whole,
    /// An owner and `/` after this text, before any `*`.
    Owner(&'static str),
}

use Form::{Owner, Whole};

const MANY_TENANTS: [ManyTenants; 6] = [
    ManyTenants {
        issuer: "https://token.actions.githubusercontent.com",
        claims: &[
            ("repository", Owner("")),
            ("repository_id", Whole),
            ("repository_owner", Whole),
            ("repository_owner_id", Whole),
            ("sub", Owner("repo:")),
        ],
        examples: "`repository: OWNER/*`, `repository_owner: OWNER` or `sub: repo:OWNER/REPOSITORY:*`",
    },
    ManyTenants {
        issuer: "https://gitlab.com",
        claims: &[
            ("project_path", Owner("")),
            ("project_id", Whole),
            ("namespace_path", Whole),
            ("namespace_path", Owner("")),
            ("namespace_id", Whole),
            ("user_id", Whole),
            ("user_login", Whole),
            ("groups_direct", Whole),
            ("groups_direct", Owner("")),
            ("email", Whole),
            ("sub", Owner("project_path:")),
            ("sub", Whole),
        ],
        examples: "`project_path: GROUP/*`, `namespace_path: GROUP` or `groups_direct: GROUP`",
    },
    ManyTenants {
        issuer: "https://accounts.google.com",
        claims: &[("sub", Whole), ("email", Whole), ("hd", Whole)],
        examples: "`hd: DOMAIN`, `email: ADDRESS` or `sub: ID`",
    },
    // Personal accounts of Microsoft. Other tenants have issuers of their own.
    ManyTenants {
        issuer: "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0",
        claims: &[("sub", Whole), ("oid", Whole)],
        examples: "`sub: ID` or `oid: ID`",
    },
    ManyTenants {
        issuer: "https://agent.buildkite.com",
        claims: &[("organization_slug", Whole), ("organization_id", Whole), ("pipeline_id", Whole)],
        examples: "`organization_slug: ORGANIZATION`",
    },
    ManyTenants {
        issuer: "https://app.terraform.io",
        claims: &[
            ("terraform_organization_name", Whole),
            ("terraform_organization_id", Whole),
            ("terraform_workspace_id", Whole),
        ],
        examples: "`terraform_organization_name: ORGANIZATION`",
    },
];

/// The claim that says whether the issuer has verified the claim `email`.
const EMAIL_VERIFIED: &str = "email_verified";

impl OidcCallers {
    /// The identities of a rule, as YAML has them. An error says what is wrong.
    pub(super) fn new(issuer: String, claims: &Claims) -> Result<Self, String> {
        let claims = claims.iter().map(|(name, value)| Ok((name.clone(), patterns(name, value)?)));
        let claims = claims.collect::<Result<Vec<_>, String>>()?;
        let many = MANY_TENANTS.iter().find(|many| many.issuer == issuer.trim_end_matches('/'));
        match many {
            Some(many) if !claims.iter().any(|claim| many.is_named_by(claim)) => Err(format!(
                "anyone can get an ID token of `{issuer}`: name an owner, a project or a subject in `claims`, such as {}",
                many.examples
            )),
            _ => Ok(Self { issuer, claims }),
        }
    }

    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Whether the rule covers an identity of this issuer with these claims.
    pub(super) fn include(&self, issuer: &str, claims: &Claims) -> bool {
        let has = |(name, patterns): &(String, Vec<Glob>)| {
            is_usable(name, claims)
                && texts(claims.get(name)).iter().any(|text| matches_any(patterns, text))
        };
        self.issuer == issuer && self.claims.iter().all(has)
    }

    /// Adds those values of the claims that match a pattern of this rule.
    pub(super) fn add_matched(&self, claims: &Claims, matched: &mut Claims) {
        for (name, patterns) in self.claims.iter().filter(|(name, _)| is_usable(name, claims)) {
            let mut all = texts(matched.get(name));
            for text in texts(claims.get(name)) {
                if matches_any(patterns, &text) && !all.contains(&text) {
                    all.push(text);
                }
            }
            if all.is_empty() {
                continue;
            }
            if name == "email" {
                matched.insert(EMAIL_VERIFIED.to_owned(), true.into());
            }
            matched.insert(name.clone(), all.into());
        }
    }
}

impl ManyTenants {
    /// Whether each pattern of a claim names an owner, a project or a subject.
    fn is_named_by(&self, (name, patterns): &(String, Vec<Glob>)) -> bool {
        let mut forms = self.claims.iter().filter(|(claim, _)| claim == name);
        forms.any(|(_, form)| patterns.iter().all(|pattern| form.fits(pattern)))
    }
}

impl Form {
    fn fits(self, pattern: &Glob) -> bool {
        let (literal, has_star) = pattern.literal();
        match self {
            Whole => !has_star && !literal.is_empty(),
            Owner(prefix) => literal
                .strip_prefix(prefix)
                .and_then(|rest| rest.split_once('/'))
                .is_some_and(|(owner, _)| !owner.is_empty()),
        }
    }
}

fn matches_any(patterns: &[Glob], text: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(text))
}

/// The patterns of a claim: one, or a list.
fn patterns(name: &str, value: &Value) -> Result<Vec<Glob>, String> {
    let all = texts(Some(value));
    let count = value.as_array().map_or(1, Vec::len);
    if all.is_empty() || all.len() != count {
        return Err(format!(
            "invalid claim `{}`: expected a pattern or a list of patterns",
            name.escape_debug()
        ));
    }
    Ok(all.iter().map(|text| Glob::new(text)).collect())
}

/// The values of a claim as text: its own, or those of its elements.
fn texts(value: Option<&Value>) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is) => Some(is.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    match value {
        Some(Value::Array(values)) => values.iter().filter_map(text).collect(),
        Some(value) => text(value).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Whether a claim can be relied on. Users can enter an address that is not theirs, until the issuer has verified it.
fn is_usable(name: &str, claims: &Claims) -> bool {
    name != "email" || texts(claims.get(EMAIL_VERIFIED)).iter().any(|verified| verified == "true")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: &Value) -> Claims {
        value.as_object().unwrap().clone()
    }

    fn rule(issuer: &str, claims: &Value) -> Result<OidcCallers, String> {
        OidcCallers::new(issuer.to_owned(), &map(claims))
    }

    #[test]
    fn a_rule_covers_identities_that_have_all_of_its_claims() {
        let rule =
            rule("https://dex", &json!({"groups": ["infra", "ops-*"], "level": 3, "email": "a@b"}));
        let rule = rule.unwrap();
        let include = |issuer: &str, claims: &Value| rule.include(issuer, &map(claims));
        let all =
            json!({"groups": ["x", "ops-1"], "level": 3, "email": "a@b", "email_verified": true});
        assert!(include("https://dex", &all));
        assert!(!include("https://dex/", &all) && !include("https://other", &all));
        for (name, value) in [
            ("groups", json!(["x"])),
            ("groups", json!([["infra"]])),
            ("groups", json!({"infra": 1})),
            ("groups", Value::Null),
            ("level", json!(4)),
            ("email", json!("c@b")),
            ("email_verified", json!(false)),
            ("email_verified", Value::Null),
        ] {
            let mut other = all.clone();
            other[name] = value;
            assert!(!include("https://dex", &other), "{other}");
        }
    }

    #[test]
    fn a_session_keeps_only_the_values_that_rules_match() {
        let claims = json!({"groups": ["x", "infra", "ops-1"], "email": "a@b", "email_verified": true, "name": "A"});
        let mut kept = Claims::new();
        for claims_of_rule in [json!({"groups": "infra"}), json!({"groups": "*r*", "email": "*"})] {
            let rule = rule("https://dex", &claims_of_rule).unwrap();
            rule.add_matched(&map(&claims), &mut kept);
            assert!(rule.include("https://dex", &kept), "{kept:?}");
        }
        let expected = json!({"groups": ["infra"], "email": ["a@b"], "email_verified": true});
        assert_eq!(Value::Object(kept), expected);
    }

    #[test]
    fn a_rule_for_an_issuer_with_many_tenants_must_name_one() {
        let github = "https://token.actions.githubusercontent.com";
        let (gitlab, google) = ("https://gitlab.com", "https://accounts.google.com");
        for (issuer, claims) in [
            (github, json!({"repository": "org/*"})),
            (github, json!({"repository": ["org/a", "org2/*"], "ref": "*"})),
            (github, json!({"repository_owner_id": 42})),
            (github, json!({"sub": "repo:org/a:*"})),
            (gitlab, json!({"project_path": "group/*"})),
            (gitlab, json!({"namespace_path": "group"})),
            (gitlab, json!({"sub": "project_path:group/a:ref_type:branch:ref:main"})),
            (google, json!({"hd": "example.com"})),
            ("https://dex.example.com", json!({})),
        ] {
            assert!(rule(issuer, &claims).is_ok(), "{issuer} {claims}");
        }
        for (issuer, claims) in [
            (github, json!({})),
            (github, json!({"ref": "refs/heads/main"})),
            (github, json!({"repository": "org*"})),
            (github, json!({"repository": "*/a"})),
            (github, json!({"repository": "/a"})),
            (github, json!({"repository": ["org/a", "*"]})),
            (github, json!({"repository_owner": "org*"})),
            (github, json!({"sub": "repo:*/a"})),
            (github, json!({"sub": "environment:production/x"})),
            (github, json!({"job_workflow_ref": "org/a/.github/workflows/x.yml@*"})),
            ("https://token.actions.githubusercontent.com/", json!({})),
            (gitlab, json!({"namespace_path": "group*"})),
            (gitlab, json!({"sub": "project_path:*"})),
            (google, json!({"email": "*@example.com"})),
        ] {
            assert!(rule(issuer, &claims).is_err(), "{issuer} {claims}");
        }
        insta::assert_snapshot!(rule(github, &json!({"ref": "x"})).unwrap_err(), @"anyone can get an ID token of `https://token.actions.githubusercontent.com`: name an owner, a project or a subject in `claims`, such as `repository: OWNER/*`, `repository_owner: OWNER` or `sub: repo:OWNER/REPOSITORY:*`");
        insta::assert_snapshot!(rule("https://dex", &json!({"a": []})).unwrap_err(), @"invalid claim `a`: expected a pattern or a list of patterns");
        insta::assert_snapshot!(rule("https://dex", &json!({"a": ["x", {}]})).unwrap_err(), @"invalid claim `a`: expected a pattern or a list of patterns");
    }
}
