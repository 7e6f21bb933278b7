//! Verifies ID tokens.

use datastore_api::json::PlainObject;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::Value;

use crate::auth::claims::Claims;
use crate::auth::oidc::provider::{Provider, Unreachable};

/// The skew of clocks that is accepted, in seconds.
const SKEW: u64 = 60;
/// The longest subject, in bytes.
const MAX_SUBJECT: usize = 255;
const ALGORITHMS: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];

/// A verified identity of an issuer.
pub(super) struct Identity {
    pub(super) subject: String,
    pub(super) claims: Claims,
    /// When its token expires, in seconds since 1970.
    pub(super) expires: i64,
}

/// For whom a token must be.
#[derive(Clone, Copy)]
pub(super) enum Expected<'a> {
    /// For this audience alone: a program sends it to us.
    Audience(&'a str),
    /// For this client, as the answer to the sign-in with this nonce.
    Client { id: &'a str, nonce: &'a str },
}

/// Why a token is refused.
#[derive(Debug, thiserror::Error)]
pub(in crate::auth) enum TokenError {
    #[error("it is no signed ID token")]
    Form,
    #[error("it is not signed by RS256, ES256 or EdDSA")]
    Algorithm,
    #[error("the issuer has no such key")]
    Key,
    #[error("{0}")]
    Claims(&'static str),
    #[error("the keys of the issuer are not known")]
    Unreachable,
}

impl From<Unreachable> for TokenError {
    fn from(_: Unreachable) -> Self {
        Self::Unreachable
    }
}

/// The issuer that a token names, not verified.
pub(super) fn unverified_issuer(token: &str) -> Option<String> {
    // Anybody may send one, so nothing else of it is kept.
    #[derive(Deserialize)]
    struct Named {
        iss: String,
    }
    let named = jsonwebtoken::dangerous::insecure_decode_claims::<Named>(token);
    named.ok().map(|named| named.iss)
}

/// The identity of a token, if its issuer has signed it for us and it is valid now.
pub(super) async fn verify(
    provider: &Provider,
    token: &str,
    expected: Expected<'_>,
) -> Result<Identity, TokenError> {
    let header = header(token)?;
    let key = provider.key(header.kid.as_deref(), header.alg).await?.ok_or(TokenError::Key)?;
    let mut validation = Validation::new(header.alg);
    validation.leeway = SKEW;
    validation.validate_nbf = true;
    validation.set_issuer(&[provider.issuer().as_str()]);
    validation.set_audience(&[expected.audience()]);
    validation.set_required_spec_claims(&["iss", "sub", "aud", "exp"]);
    let decoded = decode::<PlainObject>(token, &key, &validation);
    let PlainObject(claims) = decoded.map_err(|error| refusal(&error))?.claims;
    check(&claims, provider.issuer().as_str(), expected).map_err(TokenError::Claims)?;
    let subject = subject(&claims).ok_or(TokenError::Claims("its `sub` is invalid"))?.to_owned();
    let expires =
        claims.get("exp").and_then(seconds).ok_or(TokenError::Claims("its `exp` is invalid"))?;
    Ok(Identity { subject, claims, expires })
}

/// The header of a token: one of our algorithms, and no extension that we would have to understand.
fn header(token: &str) -> Result<Header, TokenError> {
    let header = decode_header(token).map_err(|error| match error.kind() {
        // An unknown algorithm, such as `none`.
        ErrorKind::Json(_) | ErrorKind::InvalidAlgorithmName => TokenError::Algorithm,
        _ => TokenError::Form,
    })?;
    let is_jwt = header.typ.as_deref().is_none_or(|of| of.eq_ignore_ascii_case("jwt"));
    if !is_jwt || header.crit.is_some() {
        return Err(TokenError::Form);
    }
    if ALGORITHMS.contains(&header.alg) { Ok(header) } else { Err(TokenError::Algorithm) }
}

fn refusal(error: &jsonwebtoken::errors::Error) -> TokenError {
    match error.kind() {
        ErrorKind::InvalidSignature => TokenError::Claims("its signature is wrong"),
        ErrorKind::ExpiredSignature => TokenError::Claims("it has expired"),
        ErrorKind::ImmatureSignature => TokenError::Claims("it is not valid yet"),
        ErrorKind::InvalidAudience => TokenError::Claims("it is for another audience"),
        ErrorKind::InvalidIssuer => TokenError::Claims("it is of another issuer"),
        ErrorKind::MissingRequiredClaim(_) => {
            TokenError::Claims("it lacks one of `iss`, `sub`, `aud` and `exp`, or one is invalid")
        }
        // These errors may quote the token.
        _ => TokenError::Form,
    }
}

/// What the library does not check.
fn check(claims: &Claims, issuer: &str, expected: Expected) -> Result<(), &'static str> {
    if claims.get("iss").and_then(Value::as_str) != Some(issuer) {
        return Err("it is of another issuer");
    }
    let authorized = claims.get("azp").map(Value::as_str);
    let is_for_one = match claims.get("aud") {
        Some(Value::Array(all)) => all.len() == 1,
        _ => true,
    };
    match expected {
        // Another audience could send it here.
        Expected::Audience(_) if !is_for_one => return Err("it is also for other audiences"),
        Expected::Audience(_) => {}
        Expected::Client { id, nonce } => {
            if authorized.is_some_and(|azp| azp != Some(id)) || !is_for_one && authorized.is_none()
            {
                return Err("it was issued to another client (`azp`)");
            }
            if claims.get("nonce").and_then(Value::as_str) != Some(nonce) {
                return Err("it is not the answer to this sign-in (`nonce`)");
            }
        }
    }
    let now = jiff::Timestamp::now().as_second();
    let is_from_future = |time: i64| time > now.saturating_add_unsigned(SKEW);
    match claims.get("iat").map(seconds) {
        Some(None) => Err("its `iat` is invalid"),
        Some(Some(time)) if is_from_future(time) => Err("it was issued in the future"),
        _ => Ok(()),
    }
}

/// The subject, which is shown in the log.
fn subject(claims: &Claims) -> Option<&str> {
    let subject = claims.get("sub")?.as_str()?;
    let is_valid =
        !subject.is_empty() && subject.len() <= MAX_SUBJECT && !subject.contains(char::is_control);
    is_valid.then_some(subject)
}

/// A time in seconds since 1970, which may have a fraction.
fn seconds(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let time = value.as_f64()?;
        // Up to the year 9999, so that no sum overflows.
        #[expect(clippy::cast_possible_truncation, reason = "within the range")]
        (0.0..253_402_300_800.0).contains(&time).then_some(time as i64)
    })
}

impl Expected<'_> {
    fn audience(&self) -> &str {
        match self {
            Self::Audience(audience) => audience,
            Self::Client { id, .. } => id,
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;

    use super::*;

    /// A token whose claim `x` has these levels of texts within texts, each of which `serde_json` would parse as a raw value.
    fn of_nested_texts(levels: usize) -> String {
        let mut value = "1".to_owned();
        for _ in 0..levels {
            let text = value.replace('\\', "\\u005c").replace('"', "\\u0022");
            let (opened, closed) = ("[".repeat(90), "]".repeat(90));
            value = format!("{opened}{{\"$serde_json::private::RawValue\":\"{text}\"}}{closed}");
        }
        let claims = format!("{{\"x\":{value},\"iss\":\"https://issuer\"}}");
        format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn the_issuer_is_found_on_a_small_stack_whatever_else_a_token_has() {
        let token = of_nested_texts(20);
        assert!(token.len() < 16 << 10);
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let issuer = thread.spawn(move || unverified_issuer(&token)).unwrap().join().unwrap();
        assert_eq!(issuer.as_deref(), Some("https://issuer"));
    }

    #[test]
    fn an_issuer_that_is_no_text_is_none() {
        for claims in ["{}", "[]", "{\"iss\":1}", "{\"iss\":null}", "x"] {
            let token = format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims));
            assert_eq!(unverified_issuer(&token), None, "{claims}");
        }
    }
}
