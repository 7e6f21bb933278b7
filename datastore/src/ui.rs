//! The page at `/`, where people look at layers, plans and logs.
//!
//! What is served here has no data: the scripts of the page ask the routes below `/api`, whose rules decide what a caller sees. So
//! nothing here needs a caller, and no text of a user ever becomes HTML. A browser with a session gets a button to end it.

mod files;

use askama::Template;
use axum::Router;
use axum::extract::{FromRef, Path, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use datastore_api::Sha256;

use crate::api::error::not_found;
use crate::api::route::Route;
use crate::api::transfer::{Compare, etag_matches};
use crate::auth::Authenticator;
use crate::ui::files::{FILES, SCRIPT};

/// No script, style or request but those of this host, no frame, and no text that becomes HTML.
pub(crate) const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const HTML: &str = "text/html; charset=utf-8";

/// The page. Its scripts fill it.
#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    version: &'static str,
    /// Whether a browser has a session that it can end.
    is_signed_in: bool,
    /// The scripts that the first one imports.
    modules: Vec<&'static str>,
}

/// Adds the routes of the page.
pub(crate) fn add_routes<S>(router: Router<S>) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Authenticator: FromRef<S>,
{
    router.route(Route::Page.path(), get(page)).route(Route::PageFile.path(), get(file))
}

async fn page(State(authenticator): State<Authenticator>, headers: HeaderMap) -> Response {
    let modules =
        FILES.iter().filter(|file| file.content_type == SCRIPT && file.name != "theme.js");
    let modules = modules.map(|file| file.name).collect();
    let is_signed_in = authenticator.is_signed_in(&headers);
    match (Page { version: env!("CARGO_PKG_VERSION"), is_signed_in, modules }).render() {
        Ok(html) => {
            let mut response = answer(&headers, HTML, html);
            response.headers_mut().insert(VARY, HeaderValue::from_static("cookie"));
            response
        }
        Err(error) => {
            tracing::error!(%error, "cannot render the page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => answer(&headers, file.content_type, file.text.to_owned()),
        None => not_found().await,
    }
}

/// Answers with a text, or with 304 if the browser has it already. Browsers ask each time, so that a new version of the datastore
/// never meets old scripts.
fn answer(headers: &HeaderMap, content_type: &'static str, text: String) -> Response {
    let tag = format!("\"{}\"", Sha256::of(text.as_bytes()));
    let known = headers.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let mut response = if known.is_some_and(|tags| etag_matches(tags, &tag, Compare::Weak)) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(CONTENT_TYPE, content_type)], text).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, crate::api::error::value(&tag));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Names of layers are in the address. And without it, browsers would send no `Origin` with the forms of this host.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    response
}
