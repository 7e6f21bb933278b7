//! One line for each refusal and each write: who, what, and what became of it. It is the only line of its
//! request.

use std::time::Instant;

use axum::extract::Request;
use axum::http::header::ETAG;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;

use crate::api::params::Params;
use crate::observe::request::{self, Noted, short};

/// What is said of a request, if something is to be said.
pub(crate) struct Audit {
    method: Method,
    uri: Uri,
    caller: Option<String>,
    since: Instant,
    noted: Noted,
    is_answered: bool,
}

impl Audit {
    pub(crate) fn of(request: &Request) -> Self {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let noted = request.extensions().get().cloned().unwrap_or_default();
        Self { method, uri, caller: None, since: Instant::now(), noted, is_answered: false }
    }

    pub(crate) fn by(&mut self, caller: &str) {
        self.caller = Some(caller.to_owned());
    }

    pub(crate) fn answered(mut self, response: &Response) {
        self.is_answered = true;
        let status = response.status();
        let etag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
        let sha256 = etag.and_then(|tag| tag.trim_matches('"').strip_prefix("sha256-"));
        let refused = self.caller.is_none() || status == StatusCode::FORBIDDEN;
        if refused {
            self.tell(Some(status), None, "audit: refused");
        } else if self.is_write() && status.is_success() {
            self.tell(Some(status), sha256, "audit: written");
        } else if self.is_write() {
            self.tell(Some(status), None, "audit: not written");
        }
    }

    fn is_write(&self) -> bool {
        self.method != Method::GET && self.method != Method::HEAD
    }

    /// A refusal is not written at once: whoever is refused would make us wait for the log with every try.
    fn tell(&self, status: Option<StatusCode>, sha256: Option<&str>, what: &str) {
        self.noted.tell();
        let params = Params::parse(self.uri.query().unwrap_or_default());
        macro_rules! line {
            ($($target:tt)*) => { tracing::info!(
            $($target)*
            parent: None,
            id = self.noted.id(),
            caller = self.caller,
            method = %self.method,
            path = short(self.uri.path()),
            namespace = params.text("namespace").map(short),
            layer = params.text("layer").map(short),
            run = params.text("run").map(short),
            attempt = params.text("attempt").map(short),
            format = params.text("format").map(short),
            name = params.text("name").map(short),
            "ref" = params.text("ref").map(short),
            revision = params.text("revision").map(short),
            status = status.map(|status| status.as_u16()),
            sha256,
            bytes_in = self.noted.received(),
            ms = u64::try_from(self.since.elapsed().as_millis()).ok(),
            "{what}",
            ) };
        }
        if self.caller.is_some() {
            line!(target: request::AT_ONCE,);
        } else {
            line!();
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        // An upload that is whole is kept even if nobody waits for the answer.
        if !self.is_answered && self.is_write() {
            self.tell(None, None, "audit: its caller left before the answer; it may be written");
        }
    }
}
