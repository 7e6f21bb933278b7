//! The page with the form to sign in. It works without scripts.

use askama::Template;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use url::form_urlencoded::byte_serialize;

use crate::auth::Authenticator;
use crate::auth::sign_in::SignInError;
use crate::ui;

/// The page. Its style and its script are those of the page at `/`; it works without them.
#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage<'a> {
    error: Option<String>,
    /// Issuers: their names in our addresses, and their URLs.
    issuers: Vec<(String, String)>,
    by_token: bool,
    /// The path to show after the sign-in, and the same in a query.
    next: &'a str,
    query: String,
}

/// The page, with the reason of a failure.
pub(super) fn page(
    authenticator: &Authenticator,
    headers: &HeaderMap,
    next: &str,
    failure: Option<&SignInError>,
) -> Response {
    let options = authenticator.sign_in_options(headers);
    let failure = failure.or(options.as_ref().err());
    let status = failure.map_or(StatusCode::OK, SignInError::status);
    let error = failure.map(ToString::to_string);
    let (issuers, by_token) =
        options.map(|options| (options.issuers, options.by_token)).unwrap_or_default();
    let query = byte_serialize(next.as_bytes()).collect();
    let mut response = match (SignInPage { error, issuers, by_token, next, query }).render() {
        Ok(html) => (status, html).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot render the sign-in page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    };
    private(&mut response);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, ui::POLICY);
    response
}

/// No cache, no guessing of types, and no address with a code for other sites. With `no-referrer`, browsers would send our forms with
/// `Origin: null`.
pub(super) fn private(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}
