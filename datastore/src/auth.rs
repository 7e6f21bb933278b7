//! Who asks, and what it may touch.
//!
//! Every request below `/api` passes [`Gate::admit`] before anything of it is read: whoever cannot be told is
//! refused there, in upstream's words. What the caller may touch is asked where the query becomes
//! names ([`crate::api::params::Query`]), of the very names that the storage is then asked for: there is no
//! second reading of a query that could differ from the first.

mod accounts;
mod cache;
mod kubernetes;
mod policy;
mod tokens;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Extension;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use secrecy::SecretString;

pub use crate::auth::accounts::{Isolation, Kubernetes};
pub use crate::auth::kubernetes::KubeApi;
pub(crate) use crate::auth::policy::Access;
pub use crate::auth::policy::{Kinds, Policy, ServiceAccount, Verb};
pub use crate::auth::tokens::NewToken;
pub(crate) use crate::auth::tokens::add_rules;

use crate::api::error::Refused;
use crate::auth::accounts::Accounts;
use crate::auth::policy::{Rule, Who};
use crate::kind::Kind;
use crate::observe::audit::Audit;

/// How callers are told apart, as it was configured.
#[derive(Clone, Debug)]
pub enum Auth {
    /// They are not: everybody may do everything.
    None,
    /// By what they show.
    Callers(Box<Callers>),
}

/// By what callers are told apart. Each way by itself suffices.
#[derive(Clone, Debug, Default)]
pub struct Callers {
    /// By the tokens of the policy.
    pub tokens: bool,
    /// By tokens of `ServiceAccounts`.
    pub kubernetes: Option<Kubernetes>,
    /// What they may do beside what follows from who they are.
    pub policy: Policy,
}

/// Who is let in. Clones share what is known of callers.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Ways>);

#[derive(Debug)]
enum Ways {
    Open,
    Guarded { tokens: bool, accounts: Option<Box<Accounts>>, policy: Policy },
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// As the log names it.
    name: String,
    rights: Rights,
}

#[derive(Clone, Debug)]
enum Rights {
    Everything,
    Some {
        /// The namespace that it lives in.
        own: Option<String>,
        rules: Arc<[Rule]>,
    },
}

/// The name of every caller where nobody is asked for one.
const ANYBODY: &str = "anybody";

/// Whether a caller has shown a valid token on a connection; goes with each of its requests.
#[derive(Clone, Debug)]
pub(crate) struct KnownCaller(pub(crate) Arc<AtomicBool>);

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    NoToken,
    Invalid,
    Unlisted,
    Unknown,
}

impl Gate {
    pub(crate) async fn open(auth: Auth) -> anyhow::Result<Self> {
        let ways = match auth {
            Auth::None => Ways::Open,
            Auth::Callers(callers) => {
                let Callers { tokens, kubernetes, policy } = *callers;
                let accounts = match kubernetes {
                    Some(kubernetes) => Some(Box::new(Accounts::open(kubernetes).await?)),
                    None => None,
                };
                Ways::Guarded { tokens, accounts, policy }
            }
        };
        Ok(Self(Arc::new(ways)))
    }

    /// Lets a request on to what is `next` once it is known who asks; tells the audit log of refusals and
    /// of writes.
    pub(crate) async fn admit<F: Future<Output = Response>>(
        &self,
        mut request: Request,
        next: impl FnOnce(Request) -> F,
    ) -> Response {
        let mut audit = Audit::of(&request);
        let response = match self.caller(request.headers()).await {
            Ok(caller) => {
                audit.by(&caller.name);
                if let Some(KnownCaller(known)) = request.extensions_mut().remove()
                    && caller.known_name().is_some()
                {
                    known.store(true, Ordering::Relaxed);
                }
                request.extensions_mut().insert(caller);
                next(request).await
            }
            Err(refusal) => refusal.into_response(),
        };
        audit.answered(&response);
        response
    }

    async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let (tokens, accounts, policy) = match &*self.0 {
            Ways::Open => return Ok(Caller::anybody()),
            Ways::Guarded { tokens, accounts, policy } => (*tokens, accounts, policy),
        };
        let token = token(headers)?;
        if tokens && let Some(id) = policy.tokens.id(&token) {
            let rules = policy.of(|who| matches!(who, Who::Token(of) if of == id));
            let rights = Rights::Some { own: None, rules };
            return Ok(Caller { name: format!("token {id}"), rights });
        }
        match accounts {
            Some(accounts) => accounts.caller(token, policy).await,
            None => Err(Refusal::Invalid),
        }
    }
}

/// What the caller shows: raw, as upstream's clients send it, or after `Bearer`. Two are as none that
/// is valid: who knows which of them a proxy before us has looked at.
fn token(headers: &HeaderMap) -> Result<SecretString, Refusal> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let text = all.next().ok_or(Refusal::NoToken)?.to_str().map_err(|_| Refusal::Invalid)?.trim();
    let token = match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => text,
    };
    match (text.is_empty(), all.next()) {
        (true, None) => Err(Refusal::NoToken),
        (false, None) if !token.is_empty() => Ok(token.into()),
        _ => Err(Refusal::Invalid),
    }
}

impl Caller {
    /// Whoever comes where nobody is asked for.
    fn anybody() -> Self {
        Self { name: ANYBODY.to_owned(), rights: Rights::Everything }
    }

    /// Its name, where callers are told apart.
    pub(crate) fn known_name(&self) -> Option<&str> {
        Some(&*self.name).filter(|name| *name != ANYBODY)
    }

    /// Whether it may do this.
    pub(crate) fn may(&self, access: Access) -> bool {
        match &self.rights {
            Rights::Everything => true,
            Rights::Some { own, rules } => {
                let at_home = own.as_deref() == Some(access.namespace.as_ref());
                at_home && at_home_may(access) || rules.iter().any(|rule| rule.allows(access))
            }
        }
    }

    /// What it may not do, and who can change that.
    pub(crate) fn denial(&self, access: Access) -> String {
        let Access { namespace, kind, verb } = access;
        let (name, verb) = (&self.name, verb.name());
        let what = kind.map_or("runs and attempts".to_owned(), |kind| format!("`{kind}`"));
        format!(
            "{name} may not {verb} {what} in the namespace `{namespace}`; a rule in the datastore's policy \
             (PLANCHA_POLICY) can allow it"
        )
    }

    /// Whether it may change how everything is kept.
    pub(crate) fn may_administer(&self) -> bool {
        match &self.rights {
            Rights::Everything => true,
            Rights::Some { rules, .. } => rules.iter().any(Rule::allows_admin),
        }
    }
}

/// What a `ServiceAccount` may do in its own namespace. Bundles are code, and come from the
/// controllers only.
fn at_home_may(access: Access) -> bool {
    match access.verb {
        Verb::Read | Verb::List => true,
        Verb::Write => access.kind.is_some_and(|kind| kind != Kind::Bundle),
        Verb::Append => access.kind == Some(Kind::Log),
        Verb::Delete | Verb::Admin => false,
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, message) = match self {
            Self::NoToken => (StatusCode::UNAUTHORIZED, "missing Authorization header"),
            Self::Invalid => (StatusCode::UNAUTHORIZED, "invalid token"),
            Self::Unlisted => (StatusCode::UNAUTHORIZED, "unauthorized user"),
            Self::Unknown => (StatusCode::INTERNAL_SERVER_ERROR, "error validating token"),
        };
        let json = [(CONTENT_TYPE, "application/json")];
        let reason = Extension(Refused(match self {
            Self::NoToken => "no_token",
            Self::Invalid => "invalid_token",
            Self::Unlisted => "unlisted",
            Self::Unknown => "token_unverified",
        }));
        (status, json, reason, format!("{{\"message\":\"{message}\"}}\n")).into_response()
    }
}

impl fmt::Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Callers(callers) = self else { return f.write_str("none") };
        let Callers { tokens, kubernetes, .. } = &**callers;
        if *tokens {
            f.write_str(if kubernetes.is_some() { "tokens,kubernetes" } else { "tokens" })
        } else {
            f.write_str("kubernetes")
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_token_may_come_raw_or_as_a_bearer() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            token(&headers).map(|token| token.expose_secret().to_owned())
        };
        for text in ["a.b.c", "Bearer a.b.c", "bearer  a.b.c", " a.b.c "] {
            assert_eq!(read(&[text]), Ok("a.b.c".to_owned()), "{text}");
        }
        assert_eq!(read(&["Basic YTpi"]), Ok("Basic YTpi".to_owned()));
        assert_eq!(read(&[]), Err(Refusal::NoToken));
        assert_eq!(read(&[""]), Err(Refusal::NoToken));
        assert_eq!(read(&["Bearer "]), Ok("Bearer".to_owned()));
        assert_eq!(read(&["a.b.c", "a.b.c"]), Err(Refusal::Invalid));
        assert_eq!(read(&["", "a.b.c"]), Err(Refusal::Invalid));
    }

    #[test]
    fn at_home_everything_is_read_and_bundles_are_not_written() {
        let home = "team-a".parse().unwrap();
        let may = |verb| {
            let access = |kind| Access { namespace: &home, kind, verb };
            Kind::ALL
                .into_iter()
                .filter(|kind| at_home_may(access(Some(*kind))))
                .collect::<Vec<_>>()
        };
        assert_eq!(may(Verb::Read), Kind::ALL);
        let written = may(Verb::Write);
        assert_eq!(written.len(), Kind::ALL.len() - 1);
        assert!(!written.contains(&Kind::Bundle));
        assert_eq!(may(Verb::Append), [Kind::Log]);
        assert!(may(Verb::Delete).is_empty() && may(Verb::Admin).is_empty());
    }
}
