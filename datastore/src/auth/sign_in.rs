//! Signing in with a browser, by a token or at an issuer, and signing out.

use std::fmt;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use datastore_api::{Sha256, chain};
use secrecy::{ExposeSecret as _, SecretString};

use crate::auth::cache::lifetime;
use crate::auth::caller::Caller;
use crate::auth::error::AuthError;
pub(crate) use crate::auth::oidc::flow::Callback;
use crate::auth::oidc::flow::FlowError;
use crate::auth::session::{
    Cookie, MAX_SESSION, MAX_SIGN_IN, Session, SignInState, SignedIn, TooLarge,
};
use crate::auth::site::{Foreign, PublicUrl};
use crate::auth::{AuthMode, Authenticator, Guarded};
use crate::observe::refusal::Refusal;

/// How people can sign in.
pub(crate) struct SignInOptions {
    /// Issuers: their names in our addresses, and their URLs.
    pub(crate) issuers: Vec<(String, String)>,
    /// Whether by a token.
    pub(crate) by_token: bool,
}

/// The result of a successful sign-in.
pub(crate) struct NewSession {
    /// The caller, for the log.
    pub(crate) caller: String,
    /// The headers `Set-Cookie`.
    pub(crate) cookies: Vec<HeaderValue>,
    /// The path to show.
    pub(crate) next: String,
}

/// Why a sign-in or sign-out has failed.
#[derive(Debug)]
pub(crate) enum SignInError {
    /// Callers are not authenticated.
    Open,
    /// Browsers do not reach us over an encrypted connection or a loopback address, as far as we know.
    NoAddress,
    /// The form is not ours.
    Foreign,
    /// The caller is not known.
    Token(Option<Refusal>),
    /// People cannot sign in there.
    UnknownIssuer,
    /// The sign-in at the issuer failed.
    Issuer(StatusCode, String),
    /// No rule is about the caller, which has this name at the issuer.
    NoRule(String),
    /// The session would be too large.
    TooLarge,
}

impl Authenticator {
    /// How people can sign in.
    pub(crate) fn sign_in_options(
        &self,
        headers: &HeaderMap,
    ) -> Result<SignInOptions, SignInError> {
        let (guarded, _) = self.for_browser(headers)?;
        let issuers = guarded.issuers.for_browsers();
        let issuers = issuers.map(|(name, url)| (name, url.to_owned())).collect();
        let by_token = guarded.tokens || guarded.accounts.is_some();
        Ok(SignInOptions { issuers, by_token })
    }

    /// Checks the headers of a form: whether it is one of ours.
    pub(crate) fn check_form(&self, headers: &HeaderMap) -> Result<(), SignInError> {
        self.of_form(headers).map(drop)
    }

    /// Signs in by a token, which a form of ours has sent.
    pub(crate) async fn sign_in(
        &self,
        headers: &HeaderMap,
        token: SecretString,
        next: String,
    ) -> Result<NewSession, SignInError> {
        let (guarded, address) = self.of_form(headers)?;
        let (of, caller, until) = guarded.signed_in(token).await?;
        new_session(guarded, &address, of, &caller, until, next)
    }

    /// The header that ends the session of a browser, requested by a form of ours.
    pub(crate) fn sign_out(&self, headers: &HeaderMap) -> Result<HeaderValue, SignInError> {
        let (_, address) = self.of_form(headers)?;
        Ok(Cookie::Session.set(address.is_secure(), "", 0))
    }

    /// Begins a sign-in at the issuer with this name. Returns where to send the browser, and its cookie.
    pub(crate) async fn begin_sign_in(
        &self,
        headers: &HeaderMap,
        name: &str,
        next: String,
    ) -> Result<(String, HeaderValue), SignInError> {
        let (guarded, address) = self.for_browser(headers)?;
        let issuer = guarded.issuers.for_browser(name).ok_or(SignInError::UnknownIssuer)?;
        let start = issuer.begin(address.origin(), next).await;
        let start = start.map_err(|error| failed(issuer.name(), &error))?;
        let sealed = guarded.keys.seal(Cookie::SignIn, &start.state)?;
        Ok((start.location, Cookie::SignIn.set(address.is_secure(), &sealed, MAX_SIGN_IN)))
    }

    /// Ends a sign-in at the issuer with this name.
    pub(crate) async fn finish_sign_in(
        &self,
        headers: &HeaderMap,
        name: &str,
        callback: Callback,
    ) -> Result<NewSession, SignInError> {
        let (guarded, address) = self.for_browser(headers)?;
        let issuer = guarded.issuers.for_browser(name).ok_or(SignInError::UnknownIssuer)?;
        let started =
            guarded.keys.open::<SignInState>(Cookie::SignIn, address.is_secure(), headers);
        let started = started.ok_or_else(|| failed(issuer.name(), &FlowError::State))?;
        let policy = guarded.rules.current();
        let finished = issuer.finish(&started, callback, &policy).await;
        let (of, caller, until) = finished.map_err(|error| failed(issuer.name(), &error))?;
        let caller = caller.map_err(|_| match &of {
            SignedIn::Oidc { subject, .. } => SignInError::NoRule(subject.clone()),
            SignedIn::Token(_) | SignedIn::Account(_) => SignInError::Token(None),
        })?;
        let mut session = new_session(guarded, &address, of, &caller, until, started.next)?;
        session.cookies.push(Cookie::SignIn.set(address.is_secure(), "", 0));
        Ok(session)
    }

    /// The header that ends a sign-in at an issuer without a session.
    pub(crate) fn forget_sign_in(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let address = self.0.site.address(headers)?;
        Some(Cookie::SignIn.set(address.is_secure(), "", 0))
    }

    fn for_browser(&self, headers: &HeaderMap) -> Result<(&Guarded, PublicUrl), SignInError> {
        let AuthMode::Guarded(guarded) = &self.0.mode else { return Err(SignInError::Open) };
        let address = self.0.site.address(headers).ok_or(SignInError::NoAddress)?;
        Ok((guarded, address))
    }

    fn of_form(&self, headers: &HeaderMap) -> Result<(&Guarded, PublicUrl), SignInError> {
        let (guarded, _) = self.for_browser(headers)?;
        let address = self.0.site.check_form(headers).map_err(|foreign| match foreign {
            Foreign::Host => SignInError::NoAddress,
            Foreign::Origin | Foreign::CrossSite => SignInError::Foreign,
        })?;
        Ok((guarded, address))
    }
}

impl Guarded {
    /// Who signs in by this token, and until when the token is valid, in seconds since 1970.
    async fn signed_in(&self, token: SecretString) -> Result<(SignedIn, Caller, i64), AuthError> {
        if token.expose_secret().is_empty() {
            return Err(AuthError::NoToken);
        }
        let policy = self.rules.current();
        let digest = Sha256::of(token.expose_secret().as_bytes());
        if let Some(caller) = self.listed(digest, &policy) {
            return Ok((SignedIn::Token(digest), caller, i64::MAX));
        }
        // ID tokens for programs are not for people; and they are not sent elsewhere.
        if self.issuers.have_issued(&token) {
            return Err(AuthError::Invalid);
        }
        let accounts = self.accounts.as_ref().ok_or(AuthError::Invalid)?;
        let caller = accounts.caller(token.clone(), &policy).await?;
        let left = i64::try_from(lifetime(&token).as_secs()).unwrap_or(i64::MAX);
        let until = jiff::Timestamp::now().as_second().saturating_add(left.min(MAX_SESSION));
        accounts.keep(token, until);
        Ok((SignedIn::Account(digest), caller, until))
    }
}

/// A session until its token expires, and for at most 8 hours.
fn new_session(
    guarded: &Guarded,
    address: &PublicUrl,
    of: SignedIn,
    caller: &Caller,
    until: i64,
    next: String,
) -> Result<NewSession, SignInError> {
    let now = jiff::Timestamp::now().as_second();
    let until = until.min(now + MAX_SESSION);
    if until <= now {
        return Err(AuthError::Invalid.into());
    }
    let sealed = guarded.keys.seal(Cookie::Session, &Session { of, until })?;
    let cookie = Cookie::Session.set(address.is_secure(), &sealed, until - now);
    Ok(NewSession { caller: caller.name().to_owned(), cookies: vec![cookie], next })
}

/// A failed sign-in at an issuer, which is also logged: the person who sees the page cannot fix it.
fn failed(issuer: &str, error: &FlowError) -> SignInError {
    tracing::warn!(issuer, error = chain(error), "a sign-in at an issuer failed");
    let status = match error {
        FlowError::State | FlowError::Issuer => StatusCode::BAD_REQUEST,
        FlowError::Refused(_) | FlowError::Token(_) => StatusCode::FORBIDDEN,
        FlowError::Random => StatusCode::INTERNAL_SERVER_ERROR,
        FlowError::Unreachable
        | FlowError::Http(_)
        | FlowError::NoPage
        | FlowError::Code(_)
        | FlowError::NoToken => StatusCode::BAD_GATEWAY,
    };
    SignInError::Issuer(status, error.to_string())
}

impl SignInError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Open | Self::NoAddress | Self::UnknownIssuer => StatusCode::NOT_FOUND,
            Self::Foreign | Self::NoRule(_) => StatusCode::FORBIDDEN,
            Self::Token(Some(Refusal::TokenUnverified)) | Self::TooLarge => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Token(_) => StatusCode::UNAUTHORIZED,
            Self::Issuer(status, _) => *status,
        }
    }

    /// The refusal that it counts as.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Foreign => Some(Refusal::Origin),
            Self::Token(refusal) => *refusal,
            Self::NoRule(_) => Some(Refusal::Unlisted),
            Self::Open
            | Self::NoAddress
            | Self::UnknownIssuer
            | Self::Issuer(..)
            | Self::TooLarge => None,
        }
    }
}

impl fmt::Display for SignInError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("Callers are not authenticated here: there is no need to sign in."),
            Self::NoAddress => f.write_str(
                "People cannot sign in at this address. Its operator can set --public-url to the address with https:// that \
                 browsers use.",
            ),
            Self::Foreign => f.write_str(
                "The form was not sent by a page of this datastore. If it was, --public-url is not the address that your \
                 browser shows.",
            ),
            Self::Token(Some(Refusal::TokenUnverified)) => {
                f.write_str("The token could not be verified. Try again; the log has the reason.")
            }
            Self::Token(Some(Refusal::Unlisted)) => f.write_str("The token is valid, but not accepted here."),
            Self::Token(_) => f.write_str("The token is unknown or has expired."),
            Self::UnknownIssuer => f.write_str("There is no such issuer to sign in at."),
            Self::Issuer(_, reason) => write!(f, "The sign-in failed: {reason}. Sign in again."),
            Self::NoRule(subject) => write!(
                f,
                "You are known as `{subject}`, but no rule is about you. The operator can add one to --policy."
            ),
            Self::TooLarge => f.write_str(
                "The session would be too large for a cookie. The operator can name fewer claims, or fewer values, in rules.",
            ),
        }
    }
}

impl From<AuthError> for SignInError {
    fn from(error: AuthError) -> Self {
        Self::Token(Some(error.reason()))
    }
}

impl From<TooLarge> for SignInError {
    fn from(_: TooLarge) -> Self {
        Self::TooLarge
    }
}
