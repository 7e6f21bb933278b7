//! Artifacts over HTTP: conditions, ranges and digests.
//!
//! It knows the headers of requests and answers, but not which artifact it transfers. The route determines the text of
//! errors.

use std::convert::Infallible;
use std::ops::Range;

use axum::body::Body;
use axum::extract::{FromRef, FromRequest, FromRequestParts, Request};
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE,
};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use datastore_api::{Sha256, chain};
use futures::TryStreamExt as _;

use crate::api::error::{Cause, value};
use crate::kind::Kind;
use crate::observe::context::RequestContext;
use crate::store::{ByteStream, Key, MAX_APPEND, Meta, PutConditions, Store, StoreError};
use crate::transport::admission::Admitted;
use crate::transport::body_guard::guarded;
use crate::transport::limits::Limits;
use crate::transport::upload_body::{self, Pieces};

/// How often a read is tried again if the object is replaced meanwhile.
const STAT_RETRIES: usize = 4;
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// The headers of a GET or HEAD.
#[derive(Clone)]
pub(crate) struct ReadRequest {
    head: bool,
    context: Option<RequestContext>,
    headers: HeaderMap,
    /// The digest that the artifact must have.
    sha256: Option<Sha256>,
}

/// The headers and the body of a PUT.
pub(crate) struct Upload {
    headers: HeaderMap,
    body: Body,
    limits: Limits,
    admitted: Option<Admitted>,
    context: Option<RequestContext>,
}

/// The headers and the body of an append.
pub(crate) struct AppendBody(pub(crate) Upload);

impl AppendBody {
    /// All its bytes, which keep their memory allocated.
    pub(crate) async fn bytes(self) -> Result<Bytes, Cause> {
        let conditions = conditions(&self.0.headers)?;
        if conditions.create {
            return Err(Cause::Header("`If-None-Match`"));
        }
        let length = self.0.headers.get(CONTENT_LENGTH);
        let length = length.and_then(|text| text.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > MAX_APPEND) {
            return Err(Cause::LargeAppend);
        }
        let admitted = self.0.admitted.clone();
        let (_, mut pieces) = self.0.limited(Kind::Log)?;
        let mut bytes = BytesMut::with_capacity(length.unwrap_or_default());
        while let Some(piece) = pieces.try_next().await.map_err(StoreError::Upload)? {
            if bytes.len() + piece.len() > MAX_APPEND {
                return Err(Cause::LargeAppend);
            }
            bytes.extend_from_slice(&piece);
        }
        let received = Sha256::of(&bytes);
        match conditions.sha256 {
            Some(announced) if announced != received => {
                Err(StoreError::Digest { announced, received }.into())
            }
            _ => Ok(guarded(bytes.freeze(), admitted)),
        }
    }
}

impl ReadRequest {
    /// The same request, for an artifact that must have this digest.
    pub(crate) fn of_digest(self, sha256: Sha256) -> Self {
        Self { sha256: Some(sha256), ..self }
    }

    /// Answers with the artifact at `key`, or with the requested range of it.
    pub(crate) async fn answer(self, store: &Store, key: &Key) -> Result<Response, Cause> {
        let needs_stat = [RANGE, IF_MATCH, IF_NONE_MATCH];
        if !self.head && !needs_stat.iter().any(|name| self.headers.contains_key(name)) {
            let (meta, bytes) = self.open_whole(store, key).await?;
            self.record(&meta);
            return Ok(whole(&meta, logged(bytes)));
        }
        for _ in 0..STAT_RETRIES {
            let stat = store.stat(key).await?;
            let found = stat.meta.clone();
            let meta = self.expected(key, &found)?;
            let tag = tag(&meta);
            if self.tags(&IF_MATCH).is_some_and(|tags| !etag_matches(&tags, &tag, Compare::Strong))
            {
                return Err(Cause::NoMatch);
            }
            if self
                .tags(&IF_NONE_MATCH)
                .is_some_and(|tags| etag_matches(&tags, &tag, Compare::Weak))
            {
                self.record(&found);
                return Ok((StatusCode::NOT_MODIFIED, [(ETAG, value(&tag))]).into_response());
            }
            if self.head {
                self.record(&found);
                return Ok(whole(&meta, Body::empty()));
            }
            // A part cannot be compared with the expected digest, so it is answered only of what was stored with that digest.
            let is_recorded = self.sha256.is_none() || found.sha256.is_some();
            let range = if is_recorded { self.range(&tag, meta.size)? } else { None };
            let Some(range) = range else {
                let (meta, bytes) = self.open_whole(store, key).await?;
                if crate::api::transfer::tag(&meta) != tag {
                    continue;
                }
                self.record(&meta);
                return Ok(whole(&meta, logged(bytes)));
            };
            match store.open_version(key, stat, range.clone()).await {
                Err(StoreError::Replaced) => {}
                bytes => {
                    let bytes = bytes?;
                    self.record(&found);
                    return Ok(part(&meta, &range, logged(bytes)));
                }
            }
        }
        Err(StoreError::Replaced.into())
    }

    async fn open_whole(&self, store: &Store, key: &Key) -> Result<(Meta, ByteStream), Cause> {
        Ok(match self.sha256 {
            Some(sha256) => store.open_whole_of(key, sha256).await?,
            None => store.open_whole(key).await?,
        })
    }

    /// The metadata of an object with the digest that it must have. Refuses one whose recorded digest is another one.
    fn expected(&self, key: &Key, found: &Meta) -> Result<Meta, Cause> {
        match (self.sha256, found.sha256) {
            (Some(expected), Some(recorded)) if expected != recorded => {
                Err(StoreError::Corrupt(key.object_path()?).into())
            }
            (expected, recorded) => {
                let mut meta = found.clone();
                meta.sha256 = recorded.or(expected);
                Ok(meta)
            }
        }
    }

    fn record(&self, meta: &Meta) {
        if let Some(context) = &self.context {
            record_read(context, meta);
        }
    }

    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// All entity tags of a header. A value that is not text matches nothing.
    fn tags(&self, name: &HeaderName) -> Option<String> {
        let lines = self.headers.get_all(name).iter();
        let lines = lines.map(|line| line.to_str().unwrap_or_default()).collect::<Vec<_>>();
        (!lines.is_empty()).then(|| lines.join(","))
    }

    /// The requested range; RFC 9110 ignores one that is invalid.
    fn range(&self, tag: &str, size: u64) -> Result<Option<Range<u64>>, Cause> {
        if self.headers.contains_key(IF_RANGE) && self.header(&IF_RANGE) != Some(tag) {
            return Ok(None);
        }
        match self.header(&RANGE).and_then(|header| parse_range(header, size)) {
            Some(range) if range.is_empty() => Err(Cause::Range { size }),
            range => Ok(range),
        }
    }
}

impl Upload {
    /// Sets `If-None-Match: *`, so that the upload never replaces other content.
    pub(crate) fn once(mut self) -> Self {
        self.headers.entry(IF_NONE_MATCH).or_insert(HeaderValue::from_static("*"));
        self
    }

    /// The headers, and the body within the limits of its kind.
    pub(crate) fn limited(self, kind: Kind) -> Result<(HeaderMap, Pieces), Cause> {
        let length =
            self.headers.get(CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
        let Self { headers, body, limits, admitted, .. } = self;
        let pieces = upload_body::limited(body, length, kind, &limits, admitted)?;
        Ok((headers, pieces))
    }

    /// Stores the body at `key`.
    pub(crate) async fn store(self, store: &Store, key: &Key) -> Result<Response, Cause> {
        let conditions = conditions(&self.headers)?;
        self.store_if(store, key, conditions).await
    }

    /// Stores the body at `key` if it has this digest.
    pub(crate) async fn store_of_digest(
        self,
        store: &Store,
        key: &Key,
        sha256: Sha256,
    ) -> Result<Response, Cause> {
        let conditions = PutConditions { sha256: Some(sha256), ..conditions(&self.headers)? };
        self.store_if(store, key, conditions).await
    }

    async fn store_if(
        self,
        store: &Store,
        key: &Key,
        conditions: PutConditions,
    ) -> Result<Response, Cause> {
        let length =
            self.headers.get(CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
        let Self { body, limits, admitted, context, .. } = self;
        let body = upload_body::limited(body, length, key.kind(), &limits, admitted)?;
        let sha256 = store.put(key, conditions, body).await?;
        if let Some(context) = context {
            context.set_sha256(sha256);
        }
        Ok([(ETAG, value(&sha256_tag(sha256)))].into_response())
    }
}

pub(crate) fn conditions(headers: &HeaderMap) -> Result<PutConditions, Cause> {
    // Each of these would change the meaning of the PUT, so they must not be ignored.
    if headers.contains_key(CONTENT_RANGE) {
        return Err(Cause::Header("`Content-Range`"));
    }
    if headers.contains_key(IF_MATCH) {
        return Err(Cause::Header("`If-Match`"));
    }
    let create = match headers.get(IF_NONE_MATCH).map(HeaderValue::as_bytes) {
        None => false,
        Some(b"*") => true,
        Some(_) => return Err(Cause::Header("`If-None-Match` other than `*`")),
    };
    let mut sha256 = None;
    for header in headers.get_all(REPR_DIGEST) {
        sha256 = Sha256::from_repr_digest(header.to_str().unwrap_or_default())?.or(sha256);
    }
    Ok(PutConditions { sha256, create, ..PutConditions::default() })
}

fn whole(meta: &Meta, body: Body) -> Response {
    let mut response = artifact(meta, meta.size, body);
    *response.status_mut() = StatusCode::OK;
    response
}

fn part(meta: &Meta, range: &Range<u64>, body: Body) -> Response {
    let mut response = artifact(meta, range.end - range.start, body);
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    let text = format!("bytes {}-{}/{}", range.start, range.end - 1, meta.size);
    response.headers_mut().insert(CONTENT_RANGE, value(&text));
    response
}

fn artifact(meta: &Meta, length: u64, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // A browser stores it, and shows it in no page.
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(ETAG, value(&tag(meta)));
    if let Some(sha256) = meta.sha256 {
        headers.insert(REPR_DIGEST, value(&sha256.to_repr_digest()));
    }
    response
}

/// A body that ends early on an error, which breaks the connection off. The log has the reason.
pub(crate) fn logged(bytes: ByteStream) -> Body {
    let log = |error: &StoreError| tracing::error!(error = chain(error), "answer broken off");
    Body::from_stream(bytes.inspect_err(log))
}

/// The entity tag: made of the digest if it is known, otherwise of the backend's own tag.
pub(crate) fn tag(meta: &Meta) -> String {
    match meta.sha256 {
        Some(sha256) => sha256_tag(sha256),
        None => format!("\"be-{}\"", meta.etag.trim_start_matches("W/").trim_matches('"')),
    }
}

/// Records the read of an object that another program stored.
pub(crate) fn record_read(context: &RequestContext, meta: &Meta) {
    if !meta.is_verified() {
        context.set_foreign();
    }
}

fn sha256_tag(sha256: Sha256) -> String {
    format!("\"sha256-{sha256}\"")
}

/// How entity tags are compared: RFC 9110, 8.8.3.2.
#[derive(Clone, Copy)]
pub(crate) enum Compare {
    /// As for `If-Match`: a weak tag never matches.
    Strong,
    /// As for `If-None-Match`: weak and strong tags can match.
    Weak,
}

/// Whether a list of entity tags, as in `If-Match`, contains this one.
pub(crate) fn etag_matches(tags: &str, tag: &str, compare: Compare) -> bool {
    let bare = |tag: &str| match compare {
        Compare::Strong => tag.trim().to_owned(),
        Compare::Weak => tag.trim().trim_start_matches("W/").to_owned(),
    };
    tags.trim() == "*" || tags.split(',').any(|named| bare(named) == bare(tag))
}

/// The range of a `Range` header, empty if it begins after the end. `None` for several ranges, other units and
/// invalid headers.
pub(crate) fn parse_range(header: &str, size: u64) -> Option<Range<u64>> {
    let (unit, range) = header.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    if first.is_empty() {
        let length = number(last)?;
        return Some(size.saturating_sub(length)..size);
    }
    let first = number(first)?;
    let end = if last.is_empty() { size } else { number(last)?.checked_add(1)? };
    if !last.is_empty() && end <= first {
        return None;
    }
    Some(first.min(size)..end.min(size))
}

/// Digits only: `parse` alone would accept a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok())?
}

impl<S: Sync> FromRequestParts<S> for ReadRequest {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let head = parts.method == Method::HEAD;
        let context = parts.extensions.get().cloned();
        Ok(Self { head, context, headers: std::mem::take(&mut parts.headers), sha256: None })
    }
}

impl<S: Sync> FromRequest<S> for Upload
where
    Limits: FromRef<S>,
{
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Self, Infallible> {
        let (mut parts, body) = request.into_parts();
        let (admitted, context) = (parts.extensions.remove(), parts.extensions.remove());
        let limits = Limits::from_ref(state);
        Ok(Self { headers: parts.headers, body, limits, admitted, context })
    }
}

impl<S: Sync> FromRequest<S> for AppendBody
where
    Limits: FromRef<S>,
{
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Self, Infallible> {
        Upload::from_request(request, state).await.map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_says() {
        let empty = Some(10..10);
        for (header, range) in [
            ("bytes=0-0", Some(0..1)),
            ("bytes=2-5", Some(2..6)),
            ("bytes=2-", Some(2..10)),
            ("bytes=2-99", Some(2..10)),
            ("bytes=-3", Some(7..10)),
            ("bytes=-99", Some(0..10)),
            ("Bytes = 2-5", Some(2..6)),
            ("bytes=10-", empty.clone()),
            ("bytes=10-12", empty.clone()),
            ("bytes=-0", empty),
            ("bytes=0-1,3-4", None),
            ("bytes=5-2", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("bytes=a-b", None),
            ("bytes=0-99999999999999999999", None),
            ("lines=0-1", None),
            ("bytes", None),
        ] {
            assert_eq!(parse_range(header, 10), range, "{header}");
        }
    }

    #[test]
    fn a_list_of_tags_is_searched() {
        for compare in [Compare::Strong, Compare::Weak] {
            for tags in ["*", "\"a\"", "\"b\", \"a\""] {
                assert!(etag_matches(tags, "\"a\"", compare), "{tags}");
            }
            for tags in ["", "\"b\"", "a", "\"aa\""] {
                assert!(!etag_matches(tags, "\"a\"", compare), "{tags}");
            }
        }
        assert!(etag_matches("W/\"a\"", "\"a\"", Compare::Weak));
        assert!(!etag_matches("W/\"a\"", "\"a\"", Compare::Strong));
    }
}
