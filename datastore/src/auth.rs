//! Authentication of callers.
//!
//! Every request below `/api` passes [`Authenticator::admit`] before its query or body is read; a caller that cannot be
//! authenticated gets Burrito's 401. Permissions are checked where the query is parsed
//! ([`crate::api::params::Query`]), for exactly the names that the handler then uses: no second parse could differ from
//! the first.

mod accounts;
mod authorization;
mod cache;
pub(crate) mod caller;
mod claims;
mod error;
mod glob;
mod kubernetes;
mod new_token;
mod oidc;
pub(crate) mod policy;
mod rules;
mod session;
pub(crate) mod sign_in;
pub(crate) mod site;
mod tokens;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use axum::response::{IntoResponse as _, Response};
use datastore_api::state::DEFAULT_WORKSPACE;
use datastore_api::{Name, Sha256, StateKey, chain};
use secrecy::{ExposeSecret as _, SecretString};
use tokio_util::sync::CancellationToken;

pub use crate::auth::accounts::{Isolation, Kubernetes};
pub use crate::auth::kubernetes::KubeApi;
pub use crate::auth::new_token::NewToken;
pub(crate) use crate::auth::new_token::add_rules;
pub use crate::auth::oidc::{IssuerUrl, Oidc, OidcClient};
pub(crate) use crate::auth::policy::Access;
pub use crate::auth::policy::{Kinds, Policy, ServiceAccount, Verb};
pub use crate::auth::session::SessionKeys;
pub use crate::auth::site::PublicUrl;

use crate::api::query::RawQuery;
use crate::api::route::Route;
use crate::auth::accounts::Accounts;
use crate::auth::authorization::{password, token};
use crate::auth::caller::{Caller, KnownCaller, Rights};
use crate::auth::error::AuthError;
use crate::auth::oidc::Issuers;
use crate::auth::policy::Who;
use crate::auth::rules::Rules;
use crate::auth::session::{Cookie, Session, SignedIn};
use crate::auth::site::{Site, may_use_session};
use crate::observe::context::RequestContext;
use crate::store::Store;
use crate::store::state::lease::{CREDENTIAL, is_credential};

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
    /// By ID tokens of these issuers.
    pub oidc: Vec<Oidc>,
    /// Rules that grant more than the default permissions.
    pub policy: Policy,
    /// The files that the rules come from: they are read again when they change.
    pub rule_files: Vec<PathBuf>,
}

/// How people sign in with a browser, as configured.
#[derive(Clone, Debug, Default)]
pub struct SessionSettings {
    /// The address that browsers have of the datastore. Without one, they can sign in on loopback addresses only.
    pub public_url: Option<PublicUrl>,
    /// The keys that seal sessions; none for one that ends with this process.
    pub keys: Option<SessionKeys>,
}

/// Authenticates callers. Clones share its cache.
#[derive(Clone, Debug)]
pub(crate) struct Authenticator(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    site: Site,
    mode: AuthMode,
}

#[derive(Debug)]
enum AuthMode {
    Open,
    Guarded(Box<Guarded>),
}

#[derive(Debug)]
struct Guarded {
    tokens: bool,
    accounts: Option<Accounts>,
    issuers: Issuers,
    rules: Rules,
    keys: SessionKeys,
}

impl Authenticator {
    /// Opens it for a process that listens on loopback addresses only, or on others, with TLS or without.
    pub(crate) async fn open(
        auth: Auth,
        sessions: SessionSettings,
        is_loopback: bool,
        has_tls: bool,
    ) -> anyhow::Result<Self> {
        let SessionSettings { public_url, keys } = sessions;
        let site = Site { public_url, is_loopback, has_tls };
        let Auth::Callers(callers) = auth else {
            return Ok(Self(Arc::new(Shared { site, mode: AuthMode::Open })));
        };
        let Callers { tokens, kubernetes, oidc, policy, rule_files } = *callers;
        let accounts = match kubernetes {
            Some(kubernetes) => Some(Accounts::open(kubernetes).await?),
            None => None,
        };
        if keys.is_none() && site.has_browsers() {
            tracing::info!(
                "sessions of browsers end with this process, and other replicas do not know them: --session-key-file is not set"
            );
        }
        let keys = keys.map_or_else(SessionKeys::random, Ok).map_err(anyhow::Error::msg)?;
        let issuers = Issuers::open(oidc)?;
        let rules = Rules::new(policy, rule_files, issuers.names());
        let guarded = Guarded { tokens, accounts, issuers, rules, keys };
        Ok(Self(Arc::new(Shared { site, mode: AuthMode::Guarded(Box::new(guarded)) })))
    }

    /// Reads the files of rules again when they change, until `shutdown`.
    pub(crate) async fn watch(self, shutdown: CancellationToken) {
        if let AuthMode::Guarded(guarded) = &self.0.mode {
            guarded.rules.watch(shutdown).await;
        }
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

    /// Whether the caller of a long request still has its permission, by the current rules. While its token cannot be verified, it
    /// keeps the permission.
    pub(crate) async fn still_allows(
        &self,
        headers: &HeaderMap,
        context: &RequestContext,
        store: &Store,
        access: Access<'_>,
    ) -> bool {
        match self.caller(headers, context, store).await {
            Ok(caller) => caller.may(access),
            Err(error) => error == AuthError::Unavailable,
        }
    }

    async fn caller(
        &self,
        headers: &HeaderMap,
        context: &RequestContext,
        store: &Store,
    ) -> Result<Caller, AuthError> {
        let AuthMode::Guarded(guarded) = &self.0.mode else {
            self.0.site.check_open(headers).map_err(AuthError::Foreign)?;
            return anonymous(headers, context, store).await;
        };
        // A session counts for reading, and only if the request has no token.
        let reads = [Method::GET, Method::HEAD].contains(context.method());
        if reads
            && !headers.contains_key(AUTHORIZATION)
            && may_use_session(headers)
            && let Some(session) = self.session(guarded, headers)
        {
            return guarded.session_caller(session).await.map(Caller::in_browser);
        }
        let mut token = token(headers)?;
        if context.route().takes_credential() {
            token = password(token)?;
            if token.expose_secret().starts_with(CREDENTIAL) {
                return lease_holder(&token, context, store).await;
            }
        }
        guarded.caller(token).await
    }

    /// Whether a browser has a session that has not ended. The rules may have changed since.
    pub(crate) fn is_signed_in(&self, headers: &HeaderMap) -> bool {
        let AuthMode::Guarded(guarded) = &self.0.mode else { return false };
        self.session(guarded, headers).is_some()
    }

    /// The session of a request that has not ended.
    fn session(&self, guarded: &Guarded, headers: &HeaderMap) -> Option<Session> {
        let address = self.0.site.address(headers)?;
        let session =
            guarded.keys.open::<Session>(Cookie::Session, address.is_secure(), headers)?;
        (jiff::Timestamp::now().as_second() < session.until).then_some(session)
    }
}

impl Guarded {
    /// The caller with this token.
    async fn caller(&self, token: SecretString) -> Result<Caller, AuthError> {
        let policy = self.rules.current();
        let digest = Sha256::of(token.expose_secret().as_bytes());
        if let Some(caller) = self.listed(digest, &policy) {
            return Ok(caller);
        }
        if let Some(caller) = self.issuers.caller(&token, &policy).await {
            return caller;
        }
        match &self.accounts {
            Some(accounts) => accounts.caller(token, &policy).await,
            None => Err(AuthError::Invalid),
        }
    }

    /// The caller with a token that the rules list, by its digest.
    fn listed(&self, digest: Sha256, policy: &Policy) -> Option<Caller> {
        let id = policy.tokens.id(digest).filter(|_| self.tokens)?;
        let rules = policy.of(|who| matches!(who, Who::Token(of) if of == id));
        let rights = Rights::Some { home_namespace: None, rules };
        Some(Caller::new(format!("token {id}"), rights))
    }

    /// The caller of a session, with the permissions that it has now.
    async fn session_caller(&self, session: Session) -> Result<Caller, AuthError> {
        let policy = self.rules.current();
        match session.of {
            SignedIn::Token(digest) => self.listed(digest, &policy).ok_or(AuthError::Invalid),
            SignedIn::Account(digest) => {
                let accounts = self.accounts.as_ref().ok_or(AuthError::Invalid)?;
                let token = accounts.signed_in(digest).ok_or(AuthError::Invalid)?;
                accounts.caller(token, &policy).await
            }
            SignedIn::Oidc { issuer, subject, claims } => {
                self.issuers.session(&issuer, &subject, &claims, &policy)
            }
        }
    }
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
    if !is_credential(token.expose_secret()) {
        return Err(AuthError::Invalid);
    }
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
        let Callers { tokens, kubernetes, oidc, .. } = &**callers;
        let tokens = tokens.then(|| "tokens".to_owned());
        let kubernetes = kubernetes.is_some().then(|| "kubernetes".to_owned());
        let oidc = oidc.iter().map(|oidc| format!("oidc={}", oidc.issuer));
        f.write_str(&tokens.into_iter().chain(kubernetes).chain(oidc).collect::<Vec<_>>().join(","))
    }
}
