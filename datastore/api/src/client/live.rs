//! Live logs: appends, and a log that is read while it grows.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, TE, TRAILER};
use reqwest::{Body, Method, StatusCode};

use super::call::{Call, run_query};
use super::error::{ClientError, transport};
use super::http::Client;
use super::silence::Progress;
use super::transfer::Upload;
use crate::digest::Sha256;
use crate::key::{Attempt, RunKey};

/// How many bytes of a log are stored.
const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
/// Why a followed log ends.
const LOG_END: HeaderName = HeaderName::from_static("log-end");

/// The answer to an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The bytes are stored. A log that is complete may have its digest.
    Stored(Option<Sha256>),
    /// The log has other bytes there, or another size, or is complete. The size, if it was answered.
    Refused(Option<u64>),
}

/// A log that is read while it grows.
#[derive(Debug)]
pub struct FollowedLog {
    call: String,
    body: Body,
    /// Whether a trailer is to say why it ends. A proxy may leave that out.
    has_trailer: bool,
}

/// What comes of a followed log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// Its next bytes.
    Bytes(Bytes),
    /// Its end.
    Complete,
    /// Another log was stored in its place.
    Replaced,
    /// The datastore has ended the answer early, for example because it shuts down: follow the log again.
    BrokenOff,
}

impl Client {
    /// Appends to the log of an attempt, without retries. The same bytes may be appended again. No bytes confirm that the
    /// writer works.
    pub async fn append_log(
        &self,
        run: &RunKey,
        attempt: Attempt,
        offset: u64,
        bytes: Bytes,
        complete: bool,
    ) -> Result<Appended, ClientError> {
        let mut call = log_call(Method::POST, run, attempt, offset);
        if complete {
            call.query.push(("complete", "true".to_owned()));
        }
        let progress = Progress::default();
        let request = Upload::bytes(bytes).attach(self.request(&call)?, &progress).await?;
        let response = self.exchange(&call, request, &progress).await?;
        let headers = response.headers();
        match response.status() {
            StatusCode::OK => Ok(Appended::Stored(digest(headers))),
            StatusCode::CONFLICT => Ok(Appended::Refused(offset_in(headers))),
            _ => Err(self.refused(&call, response, &progress).await),
        }
    }

    /// Follows the log of an attempt from an offset, without retries. `None`: there is no log yet.
    pub async fn follow_log(
        &self,
        run: &RunKey,
        attempt: Attempt,
        offset: u64,
    ) -> Result<Option<FollowedLog>, ClientError> {
        let mut call = log_call(Method::GET, run, attempt, offset);
        call.query.push(("follow", "true".to_owned()));
        // Without trailers, an early end is an error of the connection.
        let request = self.request(&call)?.header(TE, "trailers");
        match self.send(&call, request, &Progress::default()).await {
            Ok(response) => {
                let call = self.name(&call);
                let content = response.headers().get("content-type");
                let is_text =
                    content.is_some_and(|content| content.as_bytes().starts_with(b"text/plain"));
                if !is_text {
                    // An older datastore does not know the parameter.
                    return Err(ClientError::Unsupported { call });
                }
                let is_end = |name: &HeaderValue| {
                    let names = name.to_str().map(str::to_ascii_lowercase);
                    names.is_ok_and(|names| names.contains(LOG_END.as_str()))
                };
                let has_trailer = response.headers().get_all(TRAILER).iter().any(is_end);
                Ok(Some(FollowedLog { call, body: response.into(), has_trailer }))
            }
            Err(error) if error.is_not_found(&call) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl FollowedLog {
    /// What comes next, however long it takes. An error is only one of the connection.
    pub async fn next(&mut self) -> Result<Followed, ClientError> {
        loop {
            let Some(frame) = self.body.frame().await else {
                let is_cut = self.has_trailer;
                return Ok(if is_cut { Followed::BrokenOff } else { Followed::Complete });
            };
            let frame = frame.map_err(|error| transport(self.call.clone(), error))?;
            match frame.into_data() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Ok(Followed::Bytes(bytes)),
                Err(frame) => match frame.trailers_ref().and_then(|all| all.get(LOG_END)) {
                    Some(end) if end == "complete" => return Ok(Followed::Complete),
                    Some(end) if end == "replaced" => return Ok(Followed::Replaced),
                    Some(_) => return Ok(Followed::BrokenOff),
                    None => {}
                },
            }
        }
    }
}

fn log_call(method: Method, run: &RunKey, attempt: Attempt, offset: u64) -> Call {
    let mut query = run_query(run);
    query.extend([("attempt", attempt.to_string()), ("offset", offset.to_string())]);
    Call { method, path: "/api/logs".into(), query }
}

fn digest(headers: &HeaderMap) -> Option<Sha256> {
    let text = headers.get("repr-digest")?.to_str().ok()?;
    Sha256::from_repr_digest(text).ok().flatten()
}

fn offset_in(headers: &HeaderMap) -> Option<u64> {
    headers.get(UPLOAD_OFFSET)?.to_str().ok()?.parse().ok()
}
