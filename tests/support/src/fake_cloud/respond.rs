//! The responses of the fake cloud over HTTP.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, IF_MATCH, IF_NONE_MATCH,
    LAST_MODIFIED, RANGE,
};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, sleep, sleep_until};
use url::form_urlencoded;

use super::bucket::{Incomplete, Object};
use super::state::{CloudFault, Dialect, Pace, Shared};

/// A request that was read to its end.
struct Received {
    method: Method,
    key: String,
    query: HashMap<String, String>,
    headers: HeaderMap,
    body: Vec<Bytes>,
}

const PIECE: usize = 256 << 10;

pub(super) async fn respond(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let _counted = shared.in_flight.count();
    let (parts, body) = request.into_parts();
    let path = decoded(parts.uri.path());
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let path = path.trim_start_matches('/');
    // As a proxy it sees the host.
    let is_virtual = parts.uri.host().is_some_and(|host| host.starts_with("bucket."));
    let key = if is_virtual { Some(path) } else { path.strip_prefix("bucket") };
    let key = key.unwrap_or_default().trim_start_matches('/').to_owned();
    shared.requests.lock().unwrap().push(format!("{} {key} {query}", parts.method));
    let fault = shared.meet(parts.method.as_str(), &key, &query).unwrap_or_default();
    let pace = *shared.pace.lock().unwrap();
    let pattern = shared.pattern.lock().unwrap().clone();
    let Some(body) = received(body, pace, &pattern).await else {
        return refused(StatusCode::BAD_REQUEST, "IncompleteBody");
    };
    let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let received = Received { method: parts.method, key, query, headers: parts.headers, body };
    let is_head = received.method == Method::HEAD;
    let mut received = Some(received);
    if fault.apply_then_fail {
        drop(done(&shared, received.take().unwrap()));
    }
    // Even no sleep at all would be one of a millisecond.
    if let Some(wait) = Some(pace.latency + fault.delay).filter(|wait| !wait.is_zero()) {
        sleep(wait).await;
    }
    if let Some(document) = fault.document {
        let status = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::OK);
        let headers = [(CONTENT_TYPE, "text/html"), (ETAG, "\"page\"")];
        return (status, headers, document).into_response();
    }
    if let Ok(status) = StatusCode::from_u16(fault.status) {
        let code = if fault.code.is_empty() { "OrderedByTheTest" } else { fault.code };
        return refused(status, code);
    }
    let Some(received) = received else { return refused(StatusCode::OK, "") };
    let (mut parts, mut data) = done(&shared, received);
    if is_head {
        return Response::from_parts(parts, Body::empty());
    }
    if let Some(end) = fault.ends_after {
        let all = Bytes::from(data.concat());
        data = vec![all.slice(..end.min(all.len()))];
        parts.headers.insert(CONTENT_LENGTH, data[0].len().into());
    }
    Response::from_parts(parts, sent(data, pace, &fault))
}

/// The body, as fast as the connection is; none if it breaks off.
async fn received(body: Body, pace: Pace, pattern: &Bytes) -> Option<Vec<Bytes>> {
    let mut pieces = body.into_data_stream();
    let (mut all, mut size, since) = (Vec::new(), 0, Instant::now());
    while let Some(piece) = pieces.next().await {
        let piece = piece.ok()?;
        size += piece.len() as u64;
        let is_shared = !pattern.is_empty() && pattern.starts_with(&piece);
        all.push(if is_shared { pattern.slice(..piece.len()) } else { piece });
        pace.keep(since, size).await;
    }
    Some(all)
}

/// A body, as fast as the connection is, and with what is ordered.
fn sent(data: Vec<Bytes>, pace: Pace, fault: &CloudFault) -> Body {
    let (cut, stall) = (fault.cut_after, fault.stall_after);
    if cut.is_none() && stall.is_none() && pace.bytes_per_second == 0 {
        return Body::from_stream(stream::iter(data.into_iter().map(Ok::<_, std::io::Error>)));
    }
    let pieces = data.into_iter().flat_map(|piece| {
        (0..piece.len()).step_by(PIECE).map(move |at| piece.slice(at..piece.len().min(at + PIECE)))
    });
    let pieces = pieces.collect::<Vec<_>>().into_iter();
    let state = (pieces, 0_usize, Instant::now());
    Body::from_stream(stream::unfold(state, move |(mut pieces, sent, since)| async move {
        let piece = pieces.next();
        let size = piece.as_ref().map_or(0, Bytes::len);
        let end = cut.or(stall).filter(|end| piece.is_some() && sent + size > *end);
        if let Some(end) = end {
            if end > sent {
                let rest = piece.map(|piece| piece.slice(..end - sent));
                return Some((Ok(rest.unwrap_or_default()), (Vec::new().into_iter(), end, since)));
            }
            if stall.is_some() {
                std::future::pending::<()>().await;
            }
        }
        match piece {
            Some(piece) if end.is_none() => {
                let sent = sent + size;
                pace.keep(since, sent as u64).await;
                Some((Ok(piece), (pieces, sent, since)))
            }
            // After a piece that was cut short, or for one that begins at the cut.
            _ if cut.is_some_and(|cut| sent >= cut) => {
                Some((Err(std::io::Error::other("cut")), (Vec::new().into_iter(), 0, since)))
            }
            _ if stall.is_some_and(|stall| sent >= stall) => {
                std::future::pending::<()>().await;
                None
            }
            _ => None,
        }
    }))
}

impl Pace {
    /// Waits until so many bytes have had their time.
    async fn keep(&self, since: Instant, bytes: u64) {
        if self.bytes_per_second > 0 {
            let time = bytes as f64 / self.bytes_per_second as f64;
            sleep_until(since + Duration::from_secs_f64(time)).await;
        }
    }
}

/// Does what is received, at once: the answer without its body, and the body.
fn done(shared: &Shared, received: Received) -> (axum::http::response::Parts, Vec<Bytes>) {
    if shared.bucket.lock().unwrap().is_missing {
        let body = error("NoSuchBucket");
        return (StatusCode::NOT_FOUND.into_response().into_parts().0, vec![body.into()]);
    }
    if shared.dialect == Dialect::S3 && shared.bucket.lock().unwrap().is_skewed() {
        let bucket = shared.bucket.lock().unwrap();
        let body = if bucket.hides_time {
            error("RequestTimeTooSkewed")
        } else {
            too_skewed(bucket.now())
        };
        return (StatusCode::FORBIDDEN.into_response().into_parts().0, vec![body.into()]);
    }
    let has = |name| received.query.contains_key(name);
    let (response, data) = match received.method {
        Method::GET if received.key.is_empty() && has("uploads") => {
            text(StatusCode::OK, list_uploads(shared, &received))
        }
        Method::GET if received.key.is_empty() => text(StatusCode::OK, list(shared, &received)),
        Method::POST if has("delete") => text(StatusCode::OK, delete_many(shared, &received)),
        Method::POST if has("uploads") => text(StatusCode::OK, begin(shared, &received)),
        Method::POST if has("uploadId") => complete(shared, &received),
        Method::PUT if has("uploadId") => part(shared, received),
        Method::PUT => put(shared, received),
        Method::DELETE if has("uploadId") => {
            shared.bucket.lock().unwrap().uploads.remove(&received.query["uploadId"]);
            (StatusCode::NO_CONTENT.into_response(), Vec::new())
        }
        Method::DELETE => delete(shared, &received),
        Method::GET | Method::HEAD => get(shared, &received),
        _ => text(StatusCode::METHOD_NOT_ALLOWED, error("MethodNotAllowed")),
    };
    (response.into_parts().0, data)
}

fn text(status: StatusCode, text: String) -> (Response, Vec<Bytes>) {
    let length = [(CONTENT_LENGTH, text.len().to_string())];
    ((status, length).into_response(), vec![text.into()])
}

fn refused(status: StatusCode, code: &str) -> Response {
    (status, error(code)).into_response()
}

fn error(code: &str) -> String {
    format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>")
}

/// As S3 says it.
fn too_skewed(now: Timestamp) -> String {
    format!(
        "<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the \
         current time is too large.</Message><ServerTime>{now}</ServerTime>\
         <MaxAllowedSkewMilliseconds>900000</MaxAllowedSkewMilliseconds></Error>"
    )
}

fn put(shared: &Shared, received: Received) -> (Response, Vec<Bytes>) {
    let mut bucket = shared.bucket.lock().unwrap();
    if let Some((status, code)) = bucket.rejects_creations
        && creates(shared.dialect, &received.headers)
    {
        return text(StatusCode::from_u16(status).unwrap(), error(code));
    }
    if creates(shared.dialect, &received.headers)
        && !bucket.ignores_conditions
        && bucket.objects.contains_key(&received.key)
    {
        return text(StatusCode::PRECONDITION_FAILED, error("PreconditionFailed"));
    }
    if !bucket.ignores_conditions
        && !bucket.ignores_updates
        && updates_another(shared.dialect, &received.headers, bucket.objects.get(&received.key))
    {
        return text(StatusCode::PRECONDITION_FAILED, error("PreconditionFailed"));
    }
    let metadata = metadata(&received.headers);
    let object = bucket.put(received.key, received.body, metadata);
    (object_response(shared.dialect, StatusCode::OK, &object), Vec::new())
}

/// Whether a request is only to create.
fn creates(dialect: Dialect, headers: &HeaderMap) -> bool {
    match dialect {
        Dialect::S3 => headers.get(IF_NONE_MATCH).is_some_and(|value| value == "*"),
        Dialect::Gcs => headers.get("x-goog-if-generation-match").is_some_and(|value| value == "0"),
    }
}

/// Whether a request is to replace another version than the one that is there.
fn updates_another(dialect: Dialect, headers: &HeaderMap, there: Option<&Object>) -> bool {
    let (name, now) = match dialect {
        Dialect::S3 => (IF_MATCH, there.map(Object::etag)),
        Dialect::Gcs => (
            HeaderName::from_static("x-goog-if-generation-match"),
            there.map(|object| object.version.to_string()),
        ),
    };
    let wanted = headers.get(name).map(|value| value.to_str().unwrap());
    wanted.is_some_and(|wanted| wanted != "0" && now.as_deref() != Some(wanted))
}

/// Headers that come back with the object: only those that users define.
fn metadata(headers: &HeaderMap) -> Vec<(String, String)> {
    let own = |name: &&HeaderName| {
        name.as_str().starts_with("x-amz-meta-") || name.as_str().starts_with("x-goog-meta-")
    };
    let value = |name: &HeaderName| headers[name].to_str().unwrap().to_owned();
    headers.keys().filter(own).map(|name| (name.to_string(), value(name))).collect()
}

fn object_response(dialect: Dialect, status: StatusCode, object: &Object) -> Response {
    let mut response = status.into_response();
    let headers = response.headers_mut();
    headers.insert(ETAG, object.etag().parse().unwrap());
    let modified = jiff::fmt::rfc2822::DateTimePrinter::new();
    let modified = modified.timestamp_to_rfc9110_string(&object.modified).unwrap();
    headers.insert(LAST_MODIFIED, modified.parse().unwrap());
    if dialect == Dialect::Gcs {
        headers.insert("x-goog-generation", object.version.into());
    }
    for (name, value) in &object.metadata {
        let name = name.parse::<HeaderName>().unwrap();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
    }
    response
}

fn get(shared: &Shared, received: &Received) -> (Response, Vec<Bytes>) {
    let bucket = shared.bucket.lock().unwrap();
    let Some(object) = bucket.objects.get(&received.key) else {
        return text(StatusCode::NOT_FOUND, error("NoSuchKey"));
    };
    let header =
        |name| received.headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap());
    let is_another = header(IF_MATCH).is_some_and(|tag| tag != object.etag());
    if is_another && !bucket.ignores_conditions {
        return text(StatusCode::PRECONDITION_FAILED, error("PreconditionFailed"));
    }
    let range = header(RANGE).map(|range| range_of(range, object.size));
    if let Some(None) = range {
        return text(StatusCode::RANGE_NOT_SATISFIABLE, error("InvalidRange"));
    }
    let (status, range) = match range.flatten() {
        Some(range) => (StatusCode::PARTIAL_CONTENT, range),
        None => (StatusCode::OK, 0..object.size),
    };
    let mut response = object_response(shared.dialect, status, object);
    response.headers_mut().insert(CONTENT_LENGTH, range.len().into());
    if status == StatusCode::PARTIAL_CONTENT {
        let place = format!("bytes {}-{}/{}", range.start, range.end - 1, object.size);
        response.headers_mut().insert(CONTENT_RANGE, place.parse().unwrap());
    }
    (response, slice(&object.data, range))
}

fn range_of(header: &str, size: usize) -> Option<Range<usize>> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let range = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => first..size.min(last + 1),
        (Ok(first), Err(_)) => first..size,
        (Err(_), Ok(length)) => size.saturating_sub(length)..size,
        (Err(_), Err(_)) => return None,
    };
    (range.start < range.end).then_some(range)
}

fn slice(data: &[Bytes], range: Range<usize>) -> Vec<Bytes> {
    let mut at = 0;
    let mut pieces = Vec::new();
    for piece in data {
        let (start, end) = (range.start.max(at), range.end.min(at + piece.len()));
        if start < end {
            pieces.push(piece.slice(start - at..end - at));
        }
        at += piece.len();
    }
    pieces
}

fn delete(shared: &Shared, received: &Received) -> (Response, Vec<Bytes>) {
    let gone = shared.bucket.lock().unwrap().objects.remove(&received.key);
    if gone.is_none() && shared.dialect == Dialect::Gcs {
        return text(StatusCode::NOT_FOUND, error("NoSuchKey"));
    }
    (StatusCode::NO_CONTENT.into_response(), Vec::new())
}

fn delete_many(shared: &Shared, received: &Received) -> String {
    let mut bucket = shared.bucket.lock().unwrap();
    let mut answer = "<DeleteResult>".to_owned();
    let body = String::from_utf8(received.body.concat()).unwrap();
    for key in elements(&body, "Key") {
        bucket.objects.remove(&key);
        write!(answer, "<Deleted><Key>{}</Key></Deleted>", escaped(&key)).unwrap();
    }
    answer + "</DeleteResult>"
}

fn begin(shared: &Shared, received: &Received) -> String {
    let metadata = metadata(&received.headers);
    let id = shared.bucket.lock().unwrap().begin(received.key.clone(), metadata);
    format!(
        "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
    )
}

fn part(shared: &Shared, received: Received) -> (Response, Vec<Bytes>) {
    let number = received.query["partNumber"].parse().unwrap();
    let part =
        shared.bucket.lock().unwrap().part(&received.query["uploadId"], number, received.body);
    match part {
        Some(version) => ([(ETAG, format!("\"{version:032x}\""))].into_response(), Vec::new()),
        None => text(StatusCode::NOT_FOUND, error("NoSuchUpload")),
    }
}

fn complete(shared: &Shared, received: &Received) -> (Response, Vec<Bytes>) {
    let body = String::from_utf8(received.body.concat()).unwrap();
    let numbers = elements(&body, "PartNumber").map(|number| number.parse().unwrap());
    let named = numbers.zip(elements(&body, "ETag")).collect::<Vec<_>>();
    let mut bucket = shared.bucket.lock().unwrap();
    if let Some((status, code)) = bucket.rejects_completions
        && creates(shared.dialect, &received.headers)
    {
        return text(StatusCode::from_u16(status).unwrap(), error(code));
    }
    let heeds = !bucket.ignores_conditions && !bucket.ignores_completions;
    if heeds
        && creates(shared.dialect, &received.headers)
        && bucket.objects.contains_key(&received.key)
    {
        return text(StatusCode::PRECONDITION_FAILED, error("PreconditionFailed"));
    }
    if heeds
        && updates_another(shared.dialect, &received.headers, bucket.objects.get(&received.key))
    {
        return text(StatusCode::PRECONDITION_FAILED, error("PreconditionFailed"));
    }
    match bucket.complete(&received.query["uploadId"], &named) {
        Ok(object) => {
            let another =
                if bucket.returns_wrong_etags { "\"another\"".to_owned() } else { object.etag() };
            let tag = escaped(&another);
            let answer = format!(
                "<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
            );
            text(StatusCode::OK, answer)
        }
        Err(Incomplete::NoSuchUpload) => text(StatusCode::NOT_FOUND, error("NoSuchUpload")),
        Err(Incomplete::TooSmall) => text(StatusCode::BAD_REQUEST, error("EntityTooSmall")),
        Err(Incomplete::WrongPart) => text(StatusCode::BAD_REQUEST, error("InvalidPart")),
    }
}

fn list(shared: &Shared, received: &Received) -> String {
    let bucket = shared.bucket.lock().unwrap();
    let query = |name: &str| received.query.get(name).map_or("", String::as_str);
    let token = query("continuation-token").trim_start_matches("after:");
    let after = if token.is_empty() { query("start-after") } else { token };
    let keys = query("max-keys").parse().unwrap_or(1000);
    let page = bucket.list(query("prefix"), query("delimiter"), after, keys);
    let mut xml = "<?xml version=\"1.0\"?><ListBucketResult>".to_owned();
    for (key, object) in page.objects {
        let (key, tag) = (escaped(key), escaped(&object.etag()));
        let (size, modified) = (object.size, object.modified);
        write!(
            xml,
            "<Contents><Key>{key}</Key><LastModified>{modified}</LastModified><ETag>{tag}</ETag>\
             <Size>{size}</Size></Contents>"
        )
        .unwrap();
    }
    for prefix in page.prefixes {
        let prefix = escaped(&prefix);
        write!(xml, "<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>").unwrap();
    }
    if let Some(next) = page.next {
        let next = escaped(&next);
        write!(xml, "<NextContinuationToken>after:{next}</NextContinuationToken>").unwrap();
    }
    xml + "</ListBucketResult>"
}

/// One upload on each page, so that pages are tested. Google Cloud Storage passes over the marker of an upload
/// without that of a key.
fn list_uploads(shared: &Shared, received: &Received) -> String {
    let bucket = shared.bucket.lock().unwrap();
    let query = |name: &str| received.query.get(name).map_or("", String::as_str);
    let (key, id) = (query("key-marker"), query("upload-id-marker"));
    let after = (key.to_owned(), if key.is_empty() { "" } else { id }.to_owned());
    let uploads =
        bucket.uploads.iter().filter(|(_, upload)| upload.key.starts_with(query("prefix")));
    let mut uploads = uploads
        .map(|(id, upload)| ((upload.key.clone(), id.clone()), upload.initiated))
        .filter(|(place, _)| *place > after)
        .collect::<Vec<_>>();
    uploads.sort();
    let mut xml = "<?xml version=\"1.0\"?><ListMultipartUploadsResult>".to_owned();
    write!(xml, "<IsTruncated>{}</IsTruncated>", uploads.len() > 1).unwrap();
    if let Some(((key, id), initiated)) = uploads.first() {
        let (key, id) = (escaped(key), escaped(id));
        write!(
            xml,
            "<NextKeyMarker>{key}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker><Upload>\
             <Key>{key}</Key><UploadId>{id}</UploadId><Initiated>{initiated}</Initiated></Upload>"
        )
        .unwrap();
    }
    xml + "</ListMultipartUploadsResult>"
}

/// The texts of every element of this name.
fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = String> + use<'a> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&open)?;
        let (text, after) = after.split_once(&close)?;
        rest = after;
        Some(unescaped(text))
    })
}

const ESCAPES: [(&str, &str); 5] =
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];

fn escaped(text: &str) -> String {
    ESCAPES.iter().rev().fold(text.to_owned(), |text, (name, c)| text.replace(c, name))
}

fn unescaped(text: &str) -> String {
    ESCAPES.iter().fold(text.to_owned(), |text, (name, c)| text.replace(name, c))
}

fn decoded(path: &str) -> String {
    percent_decode_str(path).decode_utf8().unwrap().into_owned()
}
