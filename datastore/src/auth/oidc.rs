//! Callers with ID tokens of issuers (OpenID Connect): programs that send one with each request, and people who sign in with a
//! browser.
//!
//! `openidconnect` is not used: it brings a second generation of the RustCrypto crates (and `chrono`), and its checks have
//! no place for audiences of programs. Signatures and times are verified by `jsonwebtoken`, over the crypto library that TLS uses.

pub(crate) mod flow;
mod http;
mod keys;
mod provider;
mod settings;
mod token;

use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};

pub use crate::auth::oidc::settings::{IssuerUrl, Oidc, OidcClient};

use crate::auth::caller::{Caller, Rights};
use crate::auth::claims::Claims;
use crate::auth::error::AuthError;
use crate::auth::oidc::flow::{Callback, FlowError, SignInStart};
use crate::auth::oidc::provider::Provider;
use crate::auth::oidc::token::{Expected, Identity, TokenError, unverified_issuer, verify};
use crate::auth::policy::{Policy, Who};
use crate::auth::session::{SignInState, SignedIn};

/// The configured issuers.
#[derive(Debug)]
pub(super) struct Issuers(Vec<Issuer>);

#[derive(Debug)]
pub(super) struct Issuer {
    provider: Provider,
    audience: Option<String>,
    client: Option<OidcClient>,
}

impl Issuers {
    pub(super) fn open(all: Vec<Oidc>) -> anyhow::Result<Self> {
        let open = |Oidc { issuer, audience, client }| {
            let name = issuer.to_string();
            let provider = Provider::new(issuer).with_context(|| format!("--auth oidc={name}"))?;
            Ok(Issuer { provider, audience, client })
        };
        all.into_iter().map(open).collect::<anyhow::Result<_>>().map(Self)
    }

    /// Their URLs.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|issuer| issuer.name().to_owned()).collect()
    }

    /// Whether a token names one of them as its issuer, which is not verified.
    pub(super) fn have_issued(&self, token: &SecretString) -> bool {
        let named = unverified_issuer(token.expose_secret());
        named.is_some_and(|named| self.0.iter().any(|issuer| issuer.name() == named))
    }

    /// The caller with this token; none if it is not of one of these issuers.
    pub(super) async fn caller(
        &self,
        token: &SecretString,
        policy: &Policy,
    ) -> Option<Result<Caller, AuthError>> {
        // No token is sent anywhere to find out whose it is.
        let named = unverified_issuer(token.expose_secret())?;
        let issuer = self.0.iter().find(|issuer| issuer.name() == named)?;
        // Such an issuer is for browsers only.
        let Some(audience) = issuer.audience.as_deref() else {
            return Some(Err(AuthError::Invalid));
        };
        let verified =
            verify(&issuer.provider, token.expose_secret(), Expected::Audience(audience)).await;
        Some(match verified {
            Ok(Identity { subject, claims, .. }) => {
                caller(issuer.name(), &subject, &claims, policy)
            }
            Err(TokenError::Unreachable) => Err(AuthError::Unavailable),
            Err(error) => {
                tracing::info!(issuer = issuer.name(), %error, "an ID token is refused");
                Err(AuthError::Invalid)
            }
        })
    }

    /// The issuers at which people can sign in: names in our addresses, and URLs.
    pub(super) fn for_browsers(&self) -> impl Iterator<Item = (String, &str)> {
        let with_client = self.0.iter().filter(|issuer| issuer.client.is_some());
        with_client.map(|issuer| (issuer.provider.issuer().name(), issuer.name()))
    }

    /// The issuer with this name in our addresses, at which people can sign in.
    pub(super) fn for_browser(&self, name: &str) -> Option<&Issuer> {
        let is_it = |issuer: &&Issuer| issuer.provider.issuer().name() == name;
        self.0.iter().find(is_it).filter(|issuer| issuer.client.is_some())
    }

    /// The caller of a session of this issuer, if people can still sign in there.
    pub(super) fn session(
        &self,
        named: &str,
        subject: &str,
        claims: &Claims,
        policy: &Policy,
    ) -> Result<Caller, AuthError> {
        let mut for_browsers = self.for_browsers();
        if for_browsers.any(|(_, issuer)| issuer == named) {
            caller(named, subject, claims, policy)
        } else {
            Err(AuthError::Invalid)
        }
    }
}

impl Issuer {
    pub(super) fn name(&self) -> &str {
        self.provider.issuer().as_str()
    }

    /// Begins a sign-in. `origin` is our address, `next` the path to show at the end.
    pub(super) async fn begin(&self, origin: &str, next: String) -> Result<SignInStart, FlowError> {
        let client = self.client.as_ref().ok_or(FlowError::NoPage)?;
        flow::begin(&self.provider, client, origin, next).await
    }

    /// Ends a sign-in. Returns who has signed in, the caller, and when the ID token expires.
    pub(super) async fn finish(
        &self,
        started: &SignInState,
        callback: Callback,
        policy: &Policy,
    ) -> Result<(SignedIn, Result<Caller, AuthError>, i64), FlowError> {
        let client = self.client.as_ref().ok_or(FlowError::NoPage)?;
        let identity = flow::finish(&self.provider, client, started, callback).await?;
        let Identity { subject, claims, expires } = identity;
        let caller = caller(self.name(), &subject, &claims, policy);
        let claims = policy.matched(self.name(), &claims);
        let issuer = self.name().to_owned();
        Ok((SignedIn::Oidc { issuer, subject, claims }, caller, expires))
    }
}

/// The caller with this identity. Anyone may have an ID token of a public issuer: one that no rule covers is refused.
fn caller(
    issuer: &str,
    subject: &str,
    claims: &Claims,
    policy: &Policy,
) -> Result<Caller, AuthError> {
    let rules = policy.of(|who| matches!(who, Who::Oidc(of) if of.include(issuer, claims)));
    if rules.is_empty() {
        return Err(AuthError::NotAllowed);
    }
    let rights = Rights::Some { home_namespace: None, rules };
    Ok(Caller::new(format!("oidc {subject} of {issuer}"), rights))
}
