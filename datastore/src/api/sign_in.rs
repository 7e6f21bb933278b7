//! `/sign-in` and `/sign-out`: sessions of browsers.
//!
//! Forms are accepted only from our own pages. A token is sent in a form, never in an address.

mod page;

use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use secrecy::SecretString;
use tokio::time::timeout;
use url::form_urlencoded;

use crate::api::query::RawQuery;
use crate::api::sign_in::page::{page, private};
use crate::auth::Authenticator;
use crate::auth::sign_in::{Callback, NewSession, SignInError};
use crate::observe::context::RequestContext;
use crate::observe::log::IMMEDIATE;

/// The largest form, in bytes: a token and a path.
const MAX_FORM: usize = 16 << 10;
/// From the head of a form to its end.
const FORM_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest path to show after a sign-in, in bytes: it is kept in a cookie meanwhile.
const MAX_NEXT: usize = 1024;

/// The page with the form.
pub(crate) async fn show(State(authenticator): State<Authenticator>, parts: Parts) -> Response {
    let next = next_of(query(&parts).and_then(|query| query.text("next")));
    page(&authenticator, &parts.headers, &next, None)
}

/// Signs in by the token of a form.
pub(crate) async fn sign_in(
    State(authenticator): State<Authenticator>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let context = parts.extensions.get::<RequestContext>();
    if let Err(error) = authenticator.check_form(&parts.headers) {
        record(context, &error);
        return page(&authenticator, &parts.headers, "/", Some(&error));
    }
    let (mut token, mut next) = (None, None);
    // A form that is too large, broken or slow is an empty one: its token is unknown.
    let form = timeout(FORM_TIMEOUT, to_bytes(body, MAX_FORM)).await;
    let form = form.ok().and_then(Result::ok).unwrap_or_default();
    for (name, value) in form_urlencoded::parse(&form) {
        match &*name {
            "token" => token = Some(SecretString::from(value.trim())),
            "next" => next = Some(value.into_owned()),
            _ => {}
        }
    }
    let next = next_of(next.as_deref());
    let token = token.unwrap_or_default();
    match authenticator.sign_in(&parts.headers, token, next.clone()).await {
        Ok(session) => signed_in(context, session),
        Err(error) => {
            record(context, &error);
            page(&authenticator, &parts.headers, &next, Some(&error))
        }
    }
}

/// Signs out, and shows the page with the form.
pub(crate) async fn sign_out(State(authenticator): State<Authenticator>, parts: Parts) -> Response {
    match authenticator.sign_out(&parts.headers) {
        Ok(cookie) => redirect("/sign-in", [cookie]),
        Err(error) => {
            record(parts.extensions.get(), &error);
            page(&authenticator, &parts.headers, "/", Some(&error))
        }
    }
}

/// Sends the browser to an issuer.
pub(crate) async fn begin(State(authenticator): State<Authenticator>, parts: Parts) -> Response {
    let empty = RawQuery::default();
    let query = query(&parts).unwrap_or(&empty);
    let next = next_of(query.text("next"));
    let name = query.text("issuer").unwrap_or_default();
    match authenticator.begin_sign_in(&parts.headers, name, next.clone()).await {
        Ok((location, cookie)) => redirect(&location, [cookie]),
        Err(error) => page(&authenticator, &parts.headers, &next, Some(&error)),
    }
}

/// Where an issuer sends the browser back to.
pub(crate) async fn finish(State(authenticator): State<Authenticator>, parts: Parts) -> Response {
    let empty = RawQuery::default();
    let query = query(&parts).unwrap_or(&empty);
    // A repeated one is none: which one would another reader use?
    let once = |name| query.text(name).filter(|_| query.count(name) == 1).map(str::to_owned);
    let callback = Callback {
        code: once("code").map(SecretString::from),
        state: once("state"),
        iss: once("iss"),
        error: once("error"),
    };
    let name = query.text("issuer").unwrap_or_default();
    match authenticator.finish_sign_in(&parts.headers, name, callback).await {
        Ok(session) => signed_in(parts.extensions.get(), session),
        Err(error) => {
            record(parts.extensions.get(), &error);
            let mut response = page(&authenticator, &parts.headers, "/", Some(&error));
            if let Some(cookie) = authenticator.forget_sign_in(&parts.headers) {
                response.headers_mut().append(SET_COOKIE, cookie);
            }
            response
        }
    }
}

fn query(parts: &Parts) -> Option<&RawQuery> {
    parts.extensions.get::<RequestContext>().map(RequestContext::query)
}

fn signed_in(context: Option<&RequestContext>, session: NewSession) -> Response {
    let id = context.map(RequestContext::id);
    tracing::info!(target: IMMEDIATE, parent: None, id, caller = session.caller, "audit: signed in");
    redirect(&session.next, session.cookies)
}

/// Records a failed sign-in.
fn record(context: Option<&RequestContext>, error: &SignInError) {
    let (id, status) = (context.map(RequestContext::id), error.status().as_u16());
    tracing::info!(parent: None, id, status, "audit: not signed in");
    if let (Some(context), Some(reason)) = (context, error.refusal()) {
        context.set_refusal(reason);
    }
}

fn redirect(location: &str, cookies: impl IntoIterator<Item = HeaderValue>) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    private(&mut response);
    let headers = response.headers_mut();
    // It has only characters of an address.
    headers
        .insert(LOCATION, HeaderValue::from_str(location).unwrap_or(HeaderValue::from_static("/")));
    for cookie in cookies {
        headers.append(SET_COOKIE, cookie);
    }
    response
}

/// The path to show after a sign-in: a path of this host, but none of those to sign in and out, else `/`. A browser takes `//x` and
/// `/\x` for another host.
fn next_of(text: Option<&str>) -> String {
    let is_path = |path: &&str| {
        let mut rest = path.bytes();
        rest.next() == Some(b'/')
            && rest.next() != Some(b'/')
            && path.len() <= MAX_NEXT
            && !path.starts_with("/sign-")
            && path.bytes().all(|c| c.is_ascii_graphic() && c != b'\\')
    };
    text.filter(is_path).unwrap_or("/").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_of_this_host_is_shown_next() {
        for path in ["/", "/a?b=c#d", "/layers/team-a/%C3%A9", "/a//b"] {
            assert_eq!(next_of(Some(path)), path);
        }
        for text in [
            "",
            "a",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "/a\r\nb: c",
            "/é",
            "/a b",
            "\t/a",
            "/sign-out",
        ] {
            assert_eq!(next_of(Some(text)), "/", "{text}");
        }
        assert_eq!(next_of(Some(&format!("/{}", "a".repeat(MAX_NEXT)))), "/");
        assert_eq!(next_of(None), "/");
    }
}
