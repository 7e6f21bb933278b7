//! Signing in at an issuer with a browser: the authorization code flow, with PKCE (RFC 7636), `state` and `nonce`.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use datastore_api::Sha256;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::auth::oidc::http::HttpError;
use crate::auth::oidc::provider::{Endpoints, Provider, Unreachable};
use crate::auth::oidc::settings::OidcClient;
use crate::auth::oidc::token::{Expected, Identity, TokenError, verify};
use crate::auth::session::{MAX_SIGN_IN, SignInState};

/// A sign-in that begins: where to send the browser, and what its cookie keeps.
pub(in crate::auth) struct SignInStart {
    pub(in crate::auth) location: String,
    pub(in crate::auth) state: SignInState,
}

/// What the issuer has sent the browser back with.
#[derive(Clone, Default)]
pub(crate) struct Callback {
    /// The code for a token.
    pub(crate) code: Option<SecretString>,
    /// The `state` of the sign-in.
    pub(crate) state: Option<String>,
    /// The issuer, if it names itself.
    pub(crate) iss: Option<String>,
    /// Why the sign-in has failed.
    pub(crate) error: Option<String>,
}

/// Why a sign-in at an issuer fails.
#[derive(Debug, thiserror::Error)]
pub(in crate::auth) enum FlowError {
    #[error("the issuer cannot be reached")]
    Unreachable,
    #[error("the issuer cannot be reached")]
    Http(#[source] HttpError),
    #[error("the issuer has no page to sign in: it is for programs only")]
    NoPage,
    #[error("the operating system provides no random numbers")]
    Random,
    #[error("this sign-in was started in another browser, is too old, or was completed before")]
    State,
    #[error("the answer is of another issuer than the one that was asked")]
    Issuer,
    #[error("the issuer refused the sign-in: {0}")]
    Refused(String),
    #[error("the issuer did not accept the answer: {0}")]
    Code(String),
    #[error("the issuer answered without an ID token")]
    NoToken,
    #[error("the ID token is refused: {0}")]
    Token(#[source] TokenError),
}

impl From<Unreachable> for FlowError {
    fn from(_: Unreachable) -> Self {
        Self::Unreachable
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    id_token: Option<String>,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: String,
}

/// Begins a sign-in at an issuer.
pub(super) async fn begin(
    provider: &Provider,
    client: &OidcClient,
    origin: &str,
    next: String,
) -> Result<SignInStart, FlowError> {
    let endpoints = provider.endpoints().await?;
    let mut location = endpoints.authorization.clone().ok_or(FlowError::NoPage)?;
    let (state, nonce, verifier) = (random()?, random()?, random()?);
    let issuer = provider.issuer();
    let scopes = ["openid"].into_iter().chain(client.scopes.iter().map(String::as_str));
    location
        .query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &client.id)
        .append_pair("redirect_uri", &issuer.redirect_uri(origin))
        .append_pair("scope", &scopes.collect::<Vec<_>>().join(" "))
        .append_pair("state", &state)
        .append_pair("nonce", &nonce)
        .append_pair("code_challenge", &challenge(&verifier))
        .append_pair("code_challenge_method", "S256");
    let until = jiff::Timestamp::now().as_second() + MAX_SIGN_IN;
    let (issuer, origin) = (issuer.as_str().to_owned(), origin.to_owned());
    let state = SignInState { issuer, origin, state, nonce, verifier, next, until };
    Ok(SignInStart { location: location.into(), state })
}

/// Ends a sign-in: exchanges the code for an ID token, and verifies it.
pub(super) async fn finish(
    provider: &Provider,
    client: &OidcClient,
    started: &SignInState,
    callback: Callback,
) -> Result<Identity, FlowError> {
    let endpoints = provider.endpoints().await?;
    check(provider, &endpoints, started, &callback)?;
    let code = callback.code.ok_or(FlowError::State)?;
    let token = exchange(provider, &endpoints, client, started, &code).await?;
    let expected = Expected::Client { id: &client.id, nonce: &started.nonce };
    let identity = verify(provider, token.expose_secret(), expected).await;
    identity.map_err(|error| match error {
        TokenError::Unreachable => FlowError::Unreachable,
        error => FlowError::Token(error),
    })
}

/// Checks that the answer is the one to this sign-in, and of its issuer.
fn check(
    provider: &Provider,
    endpoints: &Endpoints,
    started: &SignInState,
    callback: &Callback,
) -> Result<(), FlowError> {
    let is_same =
        |given: &str| verify_slices_are_equal(given.as_bytes(), started.state.as_bytes()).is_ok();
    if !callback.state.as_deref().is_some_and(is_same) {
        return Err(FlowError::State);
    }
    if jiff::Timestamp::now().as_second() >= started.until {
        return Err(FlowError::State);
    }
    let issuer = provider.issuer().as_str();
    let is_it = match &callback.iss {
        Some(named) => named == issuer,
        None => !endpoints.names_itself,
    };
    if started.issuer != issuer || !is_it {
        return Err(FlowError::Issuer);
    }
    match &callback.error {
        Some(error) => Err(FlowError::Refused(error_code(error))),
        None => Ok(()),
    }
}

async fn exchange(
    provider: &Provider,
    endpoints: &Endpoints,
    client: &OidcClient,
    started: &SignInState,
    code: &SecretString,
) -> Result<SecretString, FlowError> {
    let url = endpoints.token.as_ref().ok_or(FlowError::NoPage)?;
    let secret = client.secret.as_ref().map(SecretString::expose_secret);
    let in_form = secret.filter(|_| endpoints.secret_in_form);
    let form = token_form(provider, client, started, code, in_form);
    // RFC 6749, 2.3.1: both are encoded as in a form first.
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let basic = secret.filter(|_| !endpoints.secret_in_form);
    let basic = basic.map(|secret| (encoded(&client.id), encoded(secret)));
    let basic = basic.as_ref().map(|(id, secret)| (id.as_str(), secret.as_str()));
    let (status, body) = provider.http().post(url, form, basic).await.map_err(FlowError::Http)?;
    if !status.is_success() {
        let named = serde_json::from_slice::<ErrorAnswer>(&body).map(|answer| answer.error);
        return Err(FlowError::Code(
            named.map_or_else(|_| status.to_string(), |text| error_code(&text)),
        ));
    }
    let token =
        serde_json::from_slice::<TokenAnswer>(&body).ok().and_then(|answer| answer.id_token);
    token.map(SecretString::from).ok_or(FlowError::NoToken)
}

/// The request for a token.
fn token_form(
    provider: &Provider,
    client: &OidcClient,
    started: &SignInState,
    code: &SecretString,
    secret: Option<&str>,
) -> String {
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "authorization_code")
        .append_pair("code", code.expose_secret())
        .append_pair("redirect_uri", &provider.issuer().redirect_uri(&started.origin))
        .append_pair("code_verifier", &started.verifier)
        .append_pair("client_id", &client.id);
    if let Some(secret) = secret {
        form.append_pair("client_secret", secret);
    }
    form.finish()
}

/// An error code of an issuer. Others than those of the standards could be any text of a stranger.
fn error_code(text: &str) -> String {
    let is_code =
        (1..=64).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_lowercase() || c == b'_');
    if is_code { text.to_owned() } else { "unknown error".to_owned() }
}

/// 256 random bits as text.
fn random() -> Result<String, FlowError> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| FlowError::Random)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

fn challenge(verifier: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::of(verifier.as_bytes()).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_rfc_7636() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn only_codes_of_errors_are_shown() {
        assert_eq!(error_code("access_denied"), "access_denied");
        for text in ["", "<script>", "call 0800 now", &"a".repeat(65)] {
            assert_eq!(error_code(text), "unknown error", "{text}");
        }
    }
}
