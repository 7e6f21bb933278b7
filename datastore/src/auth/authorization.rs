//! The header `Authorization`.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use secrecy::{ExposeSecret as _, SecretString};

use crate::auth::error::AuthError;

/// The caller's token: alone, as Burrito's clients send it, or after `Bearer`. A request with two is rejected: a proxy
/// in front of the datastore may have checked either one.
pub(super) fn token(headers: &HeaderMap) -> Result<SecretString, AuthError> {
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
pub(super) fn password(token: SecretString) -> Result<SecretString, AuthError> {
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
