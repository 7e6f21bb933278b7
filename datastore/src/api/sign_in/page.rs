//! The page with the form to sign in. It works without scripts.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use url::form_urlencoded::byte_serialize;

use crate::auth::Authenticator;
use crate::auth::sign_in::{SignInError, SignInOptions};

/// Nothing but forms to us, and links.
const POLICY: &str =
    "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The page, with the reason of a failure.
pub(super) fn page(
    authenticator: &Authenticator,
    headers: &HeaderMap,
    next: &str,
    failure: Option<&SignInError>,
) -> Response {
    let (options, error) = match (authenticator.sign_in_options(headers), failure) {
        (options, Some(failure)) => (options.ok(), Some((failure.status(), failure.to_string()))),
        (Ok(options), None) => (Some(options), None),
        (Err(error), None) => (None, Some((error.status(), error.to_string()))),
    };
    let status = error.as_ref().map_or(StatusCode::OK, |(status, _)| *status);
    let alert = error.map(|(_, text)| format!("<p role=\"alert\">{}</p>\n", escape(&text)));
    let forms = options.map(|options| forms(&options, next)).unwrap_or_default();
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Sign in</title>\n\
         <main>\n<h1>Sign in</h1>\n{}{forms}</main>\n",
        alert.unwrap_or_default()
    );
    let mut response = (status, html).into_response();
    private(&mut response);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn forms(options: &SignInOptions, next: &str) -> String {
    let query = byte_serialize(next.as_bytes()).collect::<String>();
    let link = |(name, url): &(String, String)| {
        let (name, url) = (escape(name), escape(url));
        format!("<p><a href=\"/sign-in/oidc/{name}?next={query}\">Sign in at {url}</a></p>\n")
    };
    let links = options.issuers.iter().map(link).collect::<String>();
    if !options.by_token {
        return links;
    }
    format!(
        "{links}<form method=\"post\" action=\"/sign-in\">\n\
         <input type=\"hidden\" name=\"next\" value=\"{}\">\n\
         <p><label for=\"token\">Token</label>\n\
         <input type=\"password\" id=\"token\" name=\"token\" autocomplete=\"off\" required></p>\n\
         <p><button>Sign in</button></p>\n</form>\n",
        escape(next)
    )
}

/// No cache, no guessing of types, and no address with a code for other sites. With `no-referrer`, browsers would send our forms with
/// `Origin: null`.
pub(super) fn private(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}

/// Text in HTML, also in an attribute in double quotes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}
