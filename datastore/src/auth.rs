//! Authentication of callers.
//!
//! Every request below `/api` passes [`Authenticator::admit`] before its query or body is read; a caller that cannot be
//! authenticated gets Burrito's 401. Permissions are checked where the query is parsed
//! ([`crate::api::params::Query`]), for exactly the names that the handler then uses: no second parse could differ from
//! the first.

mod accounts;
mod cache;
pub(crate) mod caller;
mod error;
mod kubernetes;
mod new_token;
pub(crate) mod policy;
mod tokens;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datastore_api::state::DEFAULT_WORKSPACE;
use datastore_api::{Name, Sha256, StateKey, chain};
use secrecy::{ExposeSecret as _, SecretString};

pub use crate::auth::accounts::{Isolation, Kubernetes};
pub use crate::auth::kubernetes::KubeApi;
pub use crate::auth::new_token::NewToken;
pub(crate) use crate::auth::new_token::add_rules;
pub(crate) use crate::auth::policy::Access;
pub use crate::auth::policy::{Kinds, Policy, ServiceAccount, Verb};

use crate::api::query::RawQuery;
use crate::api::route::Route;
use crate::auth::accounts::Accounts;
use crate::auth::caller::{Caller, KnownCaller, Rights};
use crate::auth::error::AuthError;
use crate::auth::policy::Who;
use crate::observe::context::RequestContext;
use crate::store::Store;
use crate::store::state::lease::CREDENTIAL;

/// How callers are authenticated, as configured.
#[derive(Clone, Debug)]
pub enum Auth {
    /// They are not: every caller has every permission.
    None,
    /// By the tokens that they send.
    Callers(Box<Callers>),
}

/// How callers are authenticated. One accepted token suffices.
#[derive(Clone, Debug, Default)]
pub struct Callers {
    /// By tokens that the policy lists.
    pub tokens: bool,
    /// By tokens of `ServiceAccounts`.
    pub kubernetes: Option<Kubernetes>,
    /// Rules that grant more than the default permissions.
    pub policy: Policy,
}

/// Authenticates callers. Clones share its cache.
#[derive(Clone, Debug)]
pub(crate) struct Authenticator(Arc<AuthMode>);

#[derive(Debug)]
enum AuthMode {
    Open,
    Guarded { tokens: bool, accounts: Option<Box<Accounts>>, policy: Policy },
}

impl Authenticator {
    pub(crate) async fn open(auth: Auth) -> anyhow::Result<Self> {
        let mode = match auth {
            Auth::None => AuthMode::Open,
            Auth::Callers(callers) => {
                let Callers { tokens, kubernetes, policy } = *callers;
                let accounts = match kubernetes {
                    Some(kubernetes) => Some(Box::new(Accounts::open(kubernetes).await?)),
                    None => None,
                };
                AuthMode::Guarded { tokens, accounts, policy }
            }
        };
        Ok(Self(Arc::new(mode)))
    }

    /// Passes a request to `next` once its caller is authenticated.
    pub(crate) async fn admit<F: Future<Output = Response>>(
        &self,
        mut request: Request,
        context: &RequestContext,
        store: &Store,
        next: impl FnOnce(Request) -> F,
    ) -> Response {
        match self.caller(request.headers(), context, store).await {
            Ok(caller) => {
                if let Some(KnownCaller(known)) = request.extensions_mut().remove()
                    && caller.known_name().is_some()
                {
                    known.store(true, Ordering::Relaxed);
                }
                context.set_caller(caller);
                next(request).await
            }
            Err(error) => {
                context.set_refusal(error.reason());
                error.into_response()
            }
        }
    }

    async fn caller(
        &self,
        headers: &HeaderMap,
        context: &RequestContext,
        store: &Store,
    ) -> Result<Caller, AuthError> {
        let (tokens, accounts, policy) = match &*self.0 {
            AuthMode::Open => return anonymous(headers, context, store).await,
            AuthMode::Guarded { tokens, accounts, policy } => (*tokens, accounts, policy),
        };
        let mut token = token(headers)?;
        if context.route().takes_credential() {
            token = password(token)?;
            if token.expose_secret().starts_with(CREDENTIAL) {
                return lease_holder(&token, context, store).await;
            }
        }
        if tokens && let Some(id) = policy.tokens.id(&token) {
            let rules = policy.of(|who| matches!(who, Who::Token(of) if of == id));
            let rights = Rights::Some { home_namespace: None, rules };
            return Ok(Caller::new(format!("token {id}"), rights));
        }
        match accounts {
            Some(accounts) => accounts.caller(token, policy).await,
            None => Err(AuthError::Invalid),
        }
    }
}

/// The caller's token: alone, as Burrito's clients send it, or after `Bearer`. A request with two is rejected: a proxy
/// in front of the datastore may have checked either one.
fn token(headers: &HeaderMap) -> Result<SecretString, AuthError> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let text =
        all.next().ok_or(AuthError::NoToken)?.to_str().map_err(|_| AuthError::Invalid)?.trim();
    let token = match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => text,
    };
    match (text.is_empty(), all.next()) {
        (true, None) => Err(AuthError::NoToken),
        (false, None) if !token.is_empty() => Ok(token.into()),
        _ => Err(AuthError::Invalid),
    }
}

/// The password of Basic authentication, by which terraform and tofu send a token; any other token unchanged.
fn password(token: SecretString) -> Result<SecretString, AuthError> {
    let text = token.expose_secret();
    let Some((scheme, encoded)) = text.split_once(' ') else { return Ok(token) };
    if !scheme.eq_ignore_ascii_case("basic") {
        return Ok(token);
    }
    let decoded = BASE64_STANDARD.decode(encoded.trim()).map_err(|_| AuthError::Invalid)?;
    let decoded = String::from_utf8(decoded).map_err(|_| AuthError::Invalid)?;
    let (_, password) = decoded.split_once(':').ok_or(AuthError::Invalid)?;
    if password.is_empty() { Err(AuthError::NoToken) } else { Ok(password.into()) }
}

/// The state of the request's path, as its handler finds it.
fn state_of(query: &RawQuery) -> Option<StateKey> {
    let name = |parameter| {
        query.text(parameter).filter(|_| query.count(parameter) == 1)?.parse::<Name>().ok()
    };
    let workspace = match query.text("workspace") {
        Some(_) => name("workspace")?,
        None => DEFAULT_WORKSPACE.parse().ok()?,
    };
    Some(StateKey { namespace: name("namespace")?, layer: name("layer")?, workspace })
}

/// The caller where callers are not authenticated. One with the credential of a lease still writes under its number.
async fn anonymous(
    headers: &HeaderMap,
    context: &RequestContext,
    store: &Store,
) -> Result<Caller, AuthError> {
    let token = token(headers).ok().filter(|_| context.route().is_state());
    let token = token.and_then(|token| password(token).ok());
    let token = token.filter(|token| token.expose_secret().starts_with(CREDENTIAL));
    let Some(token) = token else { return Ok(Caller::anonymous()) };
    match lease_holder(&token, context, store).await {
        Err(AuthError::Invalid) => Ok(Caller::anonymous()),
        found => found,
    }
}

/// The caller with the credential of a lease, which is valid for the state of the request's path only.
async fn lease_holder(
    token: &SecretString,
    context: &RequestContext,
    store: &Store,
) -> Result<Caller, AuthError> {
    let sha256 = Sha256::of(token.expose_secret().as_bytes());
    let is_renewal = context.route() == Route::RenewLease;
    let key = state_of(context.query()).ok_or(AuthError::Invalid)?;
    // A lease is renewed whatever state its credential is for.
    let workspace = Some(&key.workspace).filter(|_| !is_renewal);
    match store.credential_holder(&(&key).into(), workspace, sha256).await {
        Ok(Some(holder)) if is_renewal && !holder.is_present => Err(AuthError::Invalid),
        Ok(Some(holder)) => {
            let rights =
                if is_renewal { Rights::OneLease } else { Rights::OneState(holder.number) };
            Ok(Caller::of_lease(&holder.caller, rights))
        }
        Ok(None) => Err(AuthError::Invalid),
        Err(error) => {
            tracing::error!(error = chain(&error), "the credential of a lease cannot be verified");
            Err(AuthError::Unavailable)
        }
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
    use super::*;
    use axum::http::HeaderValue;

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
        assert_eq!(read(&[]), Err(AuthError::NoToken));
        assert_eq!(read(&[""]), Err(AuthError::NoToken));
        assert_eq!(read(&["Bearer "]), Ok("Bearer".to_owned()));
        assert_eq!(read(&["a.b.c", "a.b.c"]), Err(AuthError::Invalid));
        assert_eq!(read(&["", "a.b.c"]), Err(AuthError::Invalid));
    }

    #[test]
    fn terraform_sends_a_token_as_a_password() {
        let read = |text: &str| {
            let token = |token: SecretString| token.expose_secret().to_owned();
            password(text.to_owned().into()).map(token)
        };
        assert_eq!(read("Basic YTpi"), Ok("b".to_owned()));
        assert_eq!(read("basic  YTpiOmM="), Ok("b:c".to_owned()));
        assert_eq!(read("a.b.c"), Ok("a.b.c".to_owned()));
        assert_eq!(read("Basic YTo="), Err(AuthError::NoToken));
        for text in ["Basic YQ==", "Basic !", "Basic", "Basic /w=="] {
            let unchanged = text == "Basic";
            assert_eq!(read(text).is_err(), !unchanged, "{text}");
        }
    }
}
