//! `/api/logs`: the log of a run.
//!
//! It is stored unchanged. A GET answers it as Burrito's server does: as a JSON array of lines, which is written while
//! the log is read. `append` adds to a log while its run works, and `follow` sends the text as it comes.

pub(crate) mod append;
mod events;
mod follow;

use axum::Extension;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use datastore_api::{Attempt, File, RunKey, chain};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio_util::sync::CancellationToken;

use crate::api::error::{ApiError, Cause};
use crate::api::handlers::logs::events::is_incomplete;
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::api::transfer::{Compare, Upload, etag_matches, logged, record_read, tag};
use crate::auth::{Access, Authenticator, Verb};
use crate::observe::context::RequestContext;
use crate::store::{ByteStream, Key, Store, StoreError};
use crate::transport::admission::Admission;
use crate::transport::body_guard::bounded;

pub(crate) struct Get {
    run: RunKey,
    attempt: Option<Attempt>,
    /// Whether text is sent as it comes, and from which offset.
    follow: Option<u64>,
}

pub(crate) struct Put {
    run: RunKey,
    attempt: Attempt,
}

pub(crate) async fn get(
    State(authenticator): State<Authenticator>,
    State(store): State<Store>,
    State(admission): State<Admission>,
    State(shutdown): State<CancellationToken>,
    Query(Get { run, attempt, follow }): Query<Get>,
    Extension(context): Extension<RequestContext>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let answer = async {
        let Some(offset) = follow else {
            return lines_of(&store, run, attempt, &context, &headers).await;
        };
        let follow = follow::Follow { authenticator, store, admission, shutdown, context };
        follow.answer(run, attempt, offset, &headers).await
    };
    answer.await.map_err(Route::GetLogs.error())
}

/// Answers with the lines of a log; those so far, if it is not complete.
async fn lines_of(
    store: &Store,
    run: RunKey,
    attempt: Option<Attempt>,
    context: &RequestContext,
    headers: &HeaderMap,
) -> Result<Response, Cause> {
    let key = store.resolve_attempt(run, attempt, File::Log).await?;
    let (meta, log) = match store.open_whole(&key).await {
        Err(StoreError::NotFound) => {
            if let Key::File(run, attempt, _) = &key
                && let Some((size, log)) = store.open_live_log(run, *attempt).await?
            {
                return Ok(in_json(size, log));
            }
            // It may have become complete in between.
            store.open_whole(&key).await?
        }
        opened => opened?,
    };
    record_read(context, &meta);
    // Weak, because the tag is the one of the log, and the answer is another rendering of it.
    let tag = [(ETAG, format!("W/{}", tag(&meta)))];
    let known = headers.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    if known.is_some_and(|tags| etag_matches(tags, &tag[0].1, Compare::Weak)) {
        return Ok((StatusCode::NOT_MODIFIED, tag).into_response());
    }
    Ok((tag, in_json(meta.size, log)).into_response())
}

fn in_json(size: u64, log: ByteStream) -> Response {
    // A control character becomes six characters.
    let max = size.saturating_mul(6).saturating_add(64);
    ([(CONTENT_TYPE, "application/json")], bounded(logged(lines(log)), max)).into_response()
}

pub(crate) async fn put(
    State(store): State<Store>,
    Query(Put { run, attempt }): Query<Put>,
    upload: Upload,
) -> Result<Response, ApiError> {
    let key = Key::File(run.clone(), attempt, File::Log);
    let response = upload.store(&store, &key).await.map_err(Route::PutLogs.error())?;
    // The log is stored, and readers find it first.
    if let Err(error) = store.replace_log(&run, attempt).await {
        let error = chain(&error);
        tracing::warn!(%run, error, "pieces of a live log are left, `gc` deletes them");
    }
    Ok(response)
}

impl FromParams for Get {
    const ROUTE: Route = Route::GetLogs;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let (run, attempt) = (params.run()?, params.optional("attempt")?);
        let (follows, offset) = (params.flag("follow")?, params.optional::<u64>("offset")?);
        if offset.is_some() && !follows {
            let reason = "needs `follow=true`".to_owned();
            return Err(Cause::Parameter { parameter: "offset", reason });
        }
        Ok(Self { run, attempt, follow: follows.then(|| offset.unwrap_or_default()) })
    }

    fn access(&self) -> Access<'_> {
        Access::file(&self.run, &File::Log, Verb::Read)
    }
}

impl FromParams for Put {
    const ROUTE: Route = Route::PutLogs;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self { run: params.run()?, attempt: params.required("attempt")? })
    }

    fn access(&self) -> Access<'_> {
        Access::file(&self.run, &File::Log, Verb::Write)
    }
}

/// `{"results":["line",...]}` and a newline, as Go's `encoding/json` writes it.
fn lines(log: ByteStream) -> ByteStream {
    let mut json = Lines::default();
    let first = stream::once(async { Ok(Bytes::from_static(b"{\"results\":[\"")) });
    let pieces = log.map_ok(Some).chain(stream::once(async { Ok::<_, StoreError>(None) }));
    let rest = pieces.map_ok(move |piece| match piece {
        Some(piece) => json.write(&piece),
        None => json.finish(),
    });
    first.chain(rest).boxed()
}

/// Writes text that comes in pieces as JSON strings, one for each line.
#[derive(Default)]
struct Lines {
    /// The first bytes of a character that continues in the next piece.
    incomplete: Vec<u8>,
}

impl Lines {
    fn write(&mut self, piece: &[u8]) -> Bytes {
        let mut text = std::mem::take(&mut self.incomplete);
        text.extend_from_slice(piece);
        let mut json = Vec::with_capacity(text.len() + text.len() / 8);
        let mut chunks = text.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            escape(chunk.valid(), &mut json);
            if chunks.peek().is_none() && is_incomplete(chunk.invalid()) {
                self.incomplete = chunk.invalid().to_vec();
            } else {
                replace(chunk.invalid(), &mut json);
            }
        }
        json.into()
    }

    fn finish(&mut self) -> Bytes {
        let mut json = Vec::new();
        replace(&std::mem::take(&mut self.incomplete), &mut json);
        json.extend_from_slice(b"\"]}\n");
        json.into()
    }
}

/// Go replaces every byte that is not UTF-8, one by one.
fn replace(invalid: &[u8], json: &mut Vec<u8>) {
    json.extend_from_slice(&b"\\ufffd".repeat(invalid.len()));
}

fn escape(text: &str, json: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut copied = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let (escaped, length): (&[u8], _) = match byte {
            b'\n' => (b"\",\"", 1),
            b'"' => (b"\\\"", 1),
            b'\\' => (b"\\\\", 1),
            b'\r' => (b"\\r", 1),
            b'\t' => (b"\\t", 1),
            0x08 => (b"\\b", 1),
            0x0c => (b"\\f", 1),
            b'<' => (b"\\u003c", 1),
            b'>' => (b"\\u003e", 1),
            b'&' => (b"\\u0026", 1),
            0xe2 if bytes[at..].starts_with("\u{2028}".as_bytes()) => (b"\\u2028", 3),
            0xe2 if bytes[at..].starts_with("\u{2029}".as_bytes()) => (b"\\u2029", 3),
            0..0x20 => (&control(byte), 1),
            _ => continue,
        };
        json.extend_from_slice(&bytes[copied..at]);
        json.extend_from_slice(escaped);
        copied = at + length;
    }
    json.extend_from_slice(&bytes[copied..]);
}

fn control(byte: u8) -> [u8; 6] {
    let hex = b"0123456789abcdef";
    [b'\\', b'u', b'0', b'0', hex[usize::from(byte >> 4)], hex[usize::from(byte & 15)]]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(pieces: &[&[u8]]) -> String {
        let mut lines = Lines::default();
        let mut json = b"{\"results\":[\"".to_vec();
        for piece in pieces {
            json.extend_from_slice(&lines.write(piece));
        }
        json.extend_from_slice(&lines.finish());
        String::from_utf8(json).unwrap()
    }

    #[test]
    fn a_log_is_an_array_of_lines_as_go_writes_it() {
        insta::assert_snapshot!(json(&[b"a\nb\n<c>\xff"]), @r#"{"results":["a","b","\u003cc\u003e\ufffd"]}"#);
        insta::assert_snapshot!(json(&[b"a\n"]), @r#"{"results":["a",""]}"#);
        insta::assert_snapshot!(json(&[]), @r#"{"results":[""]}"#);
        let odd = "\"\\\r\t\u{8}\u{c}\u{1}\u{1b}[0m&é\u{2028}\u{2029}\u{2030}🌯";
        insta::assert_snapshot!(
            json(&[odd.as_bytes()]),
            @r#"{"results":["\"\\\r\t\b\f\u0001\u001b[0m\u0026é\u2028\u2029‰🌯"]}"#
        );
    }

    #[test]
    fn bytes_that_are_no_utf8_are_replaced_one_by_one() {
        insta::assert_snapshot!(json(&[b"\xe2\x82A\xf0\x9f\x8c"]), @r#"{"results":["\ufffd\ufffdA\ufffd\ufffd\ufffd"]}"#);
    }

    proptest! {
        #[test]
        fn where_a_log_is_cut_into_pieces_does_not_show(
            log in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(0xe2), Just(0x80), Just(0xa8), Just(0xf0), any::<u8>()],
                0..64,
            ),
            size in 1_usize..8,
        ) {
            let pieces = log.chunks(size).collect::<Vec<_>>();
            let whole = json(&[&log]);
            prop_assert_eq!(json(&pieces), whole.clone());
            let read: serde_json::Value = serde_json::from_str(&whole).unwrap();
            prop_assert_eq!(
                read["results"].as_array().unwrap().len(),
                log.split(|&byte| byte == b'\n').count()
            );
        }
    }
}
