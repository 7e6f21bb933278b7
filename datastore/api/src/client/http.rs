//! Requests and their retries: what all calls have in common.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use reqwest::header::{AUTHORIZATION, ETAG, IF_NONE_MATCH, LOCATION, RANGE, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::de::DeserializeOwned;

use super::call::Call;
use super::error::{ClientError, Digests, is_transient, transport};
use super::sender::{NOT_FOUND, Sender};
use super::settings::{Settings, certificates, damaged};
use super::silence::{Notice, Progress, Silence};
use super::transfer::{Download, Upload, error_message};
use crate::digest::{Hasher, Sha256};
use crate::key::File;

/// With this header a datastore says that the stored bytes of an object have changed, or with the value [`LOST_OBJECT`] that the object is
/// gone.
const DAMAGED: &str = "plancha-damaged";
/// The value of the header `plancha-damaged` of an object that was stored and is gone.
pub const LOST_OBJECT: &str = "lost";

/// A client of one datastore. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    settings: Settings,
    silence: Arc<Silence>,
    /// Whether an answer has named a datastore of Plancha.
    is_ours: AtomicBool,
}

/// When an upload may store its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always; an existing object is replaced.
    Replace,
    /// Only if no object exists, or one with the same bytes (`If-None-Match: *`).
    Create,
}

impl Client {
    /// A client of one datastore.
    pub fn new(settings: Settings) -> Result<Self, ClientError> {
        let mut http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .tcp_nodelay(true)
            // A redirect could send the token, or code that will be run, elsewhere: it is an error that names the target.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("plancha/", env!("CARGO_PKG_VERSION")));
        for file in &settings.ca_files {
            for certificate in certificates(file)? {
                http = http.add_root_certificate(certificate);
            }
        }
        if settings.url.scheme() == "http" {
            // Reading the system's certificates takes longer than a request on loopback.
            http = http.tls_certs_only([]);
        }
        let http = http.build().map_err(|error| match &*settings.ca_files {
            [] => ClientError::Setup(error.to_string()),
            // Found only here.
            files => damaged(files),
        })?;
        let silence = Arc::new(Silence::new(settings.timeout, settings.notify));
        Ok(Self(Arc::new(Inner { http, settings, silence, is_ours: AtomicBool::new(false) })))
    }

    /// Shortens [`Settings::timeout`], also for calls in flight.
    pub fn shorten_timeout(&self, timeout: Duration) {
        self.0.silence.shorten_limit(timeout);
    }

    /// A client over the same connections for calls that the caller repeats: it tries once, notifies nobody, and its calls
    /// neither shorten nor are shortened by those of this client.
    #[must_use]
    pub fn once(&self, timeout: Duration) -> Self {
        let settings = Settings { timeout, retries: 0, notify: None, ..self.0.settings.clone() };
        let silence = Arc::new(Silence::new(timeout, None));
        let is_ours = AtomicBool::new(self.is_ours());
        Self(Arc::new(Inner { http: self.0.http.clone(), settings, silence, is_ours }))
    }

    /// The settings of this client.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Reads an object into a new file of mode 0600, and returns its digest. `recorded` is the digest if it is known from
    /// elsewhere. `None`: the object does not exist.
    pub(super) async fn save(
        &self,
        call: &Call,
        recorded: Option<Sha256>,
        to: &Path,
    ) -> Result<Option<Sha256>, ClientError> {
        let progress = Progress::default();
        self.retrying(async || match self.open_try(call, &progress).await? {
            Some(download) => {
                let expected = download.expected().or(recorded);
                match download.save(to).await {
                    Ok(sha256) => Ok(Some(sha256)),
                    Err(error) => Err(self.damaged_or(call, expected, error).await),
                }
            }
            None => Ok(None),
        })
        .await
    }

    pub(super) async fn put(
        &self,
        call: &Call,
        upload: &Upload,
        condition: Condition,
    ) -> Result<(), ClientError> {
        let progress = Progress::default();
        self.retrying(async || self.try_put(call, upload, condition, &progress).await).await
    }

    /// One try of a PUT. `progress` is shared with its other tries.
    pub(super) async fn try_put(
        &self,
        call: &Call,
        upload: &Upload,
        condition: Condition,
        progress: &Progress,
    ) -> Result<(), ClientError> {
        let progress = progress.another_try();
        let mut request = self.request(call)?;
        request = upload.attach(request, &progress).await?;
        if condition == Condition::Create {
            request = request.header(IF_NONE_MATCH, "*");
        }
        let response = self.send(call, request, &progress).await;
        let response = response.map_err(|error| upload.sized(error))?;
        self.check_stored(call, response, upload, &progress).await
    }

    /// Whether an answer has named a datastore of Plancha. A proxy may replace that header.
    fn is_ours(&self) -> bool {
        self.0.is_ours.load(Ordering::Relaxed)
    }

    /// Whether a datastore has answered this upload: Plancha's names the digest of what it has stored.
    async fn check_stored(
        &self,
        call: &Call,
        response: Response,
        upload: &Upload,
        progress: &Progress,
    ) -> Result<(), ClientError> {
        let ours = format!("\"sha256-{}\"", upload.sha256());
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        let etag = etag.map(|etag| etag.trim_start_matches("W/").to_owned());
        let names_us = Sender::of(&response) == Sender::Plancha;
        self.check_empty(call, response, progress).await?;
        let reason = match etag {
            Some(etag) if etag.starts_with("\"sha256-") && etag != ours => {
                format!("what it has stored is {etag}, and not {ours}")
            }
            // Other answers have named Plancha, so no proxy removes that.
            None if self.is_ours() && !names_us => {
                "it is not the answer of Plancha's datastore".to_owned()
            }
            _ => return Ok(()),
        };
        Err(ClientError::Answer { call: self.name(call), reason })
    }

    /// Whether a datastore has answered: with 200 and without a body. The login page of a proxy is another answer.
    pub(super) async fn check_empty(
        &self,
        call: &Call,
        mut response: Response,
        progress: &Progress,
    ) -> Result<(), ClientError> {
        let (status, mut has_body) = (response.status(), false);
        while !has_body {
            let piece = response.chunk();
            let piece = self.0.silence.limit(&self.name(call), progress, piece).await?;
            let piece = piece.map_err(|error| transport(self.name(call), error))?;
            // Over HTTP/2 there may be an empty one.
            let Some(piece) = piece else { break };
            has_body = !piece.is_empty();
        }
        if status == StatusCode::OK && !has_body {
            return Ok(());
        }
        let body = if has_body { " with a body" } else { "" };
        Err(ClientError::Answer {
            call: self.name(call),
            reason: format!("{status}{body}, and a datastore answers 200 without one"),
        })
    }

    pub(super) async fn get(&self, call: &Call) -> Result<Option<Download>, ClientError> {
        let progress = Progress::default();
        self.retrying(async || self.open_try(call, &progress).await).await
    }

    /// One try of a GET or HEAD. `progress` is shared with its other tries.
    pub(super) async fn open_try(
        &self,
        call: &Call,
        progress: &Progress,
    ) -> Result<Option<Download>, ClientError> {
        let progress = progress.another_try();
        match self.send(call, self.request(call)?, &progress).await {
            Ok(response) => self.download(self.name(call), response, progress).map(Some),
            Err(error) if error.is_not_found(call) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A JSON answer of at most 16 MiB.
    pub(super) async fn get_json<T: DeserializeOwned>(
        &self,
        call: &Call,
    ) -> Result<T, ClientError> {
        const LIMIT: usize = 16 << 20;
        let progress = Progress::default();
        let body = async || match self.open_try(call, &progress).await? {
            Some(download) => download.bytes(LIMIT).await,
            None => Err(ClientError::Refused {
                call: self.name(call),
                status: StatusCode::NOT_FOUND,
                message: "check that this URL is a datastore of Plancha".to_owned(),
                retry_after: None,
                sender: Sender::Plancha,
            }),
        };
        let body = self.retrying(body).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Answer {
            call: self.name(call),
            reason: error.to_string(),
        })
    }

    /// A JSON answer of at most 16 MiB, to any method; [`ClientError::Unsupported`] where the datastore has no such route.
    pub(super) async fn json<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ClientError> {
        let progress = Progress::default();
        self.retrying(async || {
            let progress = progress.another_try();
            let response = self.send(call, self.request(call)?, &progress).await;
            let response = self.or_unsupported(response).await?;
            let body = self.download(self.name(call), response, progress)?.bytes(16 << 20).await?;
            serde_json::from_slice(&body).map_err(|error| ClientError::Answer {
                call: self.name(call),
                reason: error.to_string(),
            })
        })
        .await
    }

    pub(super) async fn retrying<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let settings = &self.0.settings;
        let pauses = ExponentialBuilder::default()
            .with_min_delay(settings.first_pause)
            .with_max_delay(Duration::from_secs(10))
            .with_max_times(settings.retries)
            .with_jitter();
        (async || attempt().await)
            .retry(pauses)
            .when(ClientError::is_transient)
            .notify(|error, pause| self.0.silence.notify(&Notice::Retry { error, pause }))
            .adjust(|error, pause| match error {
                ClientError::Refused { retry_after: Some(minimum), .. } => {
                    pause.map(|pause| pause.max(*minimum))
                }
                _ => pause,
            })
            .await
    }

    /// The call as messages show it: method, URL without the query, and the file.
    pub(super) fn name(&self, call: &Call) -> String {
        let base = self.0.settings.url.as_str().trim_end_matches('/');
        let of_query = |name| Some(&call.query.iter().find(|(key, _)| *key == name)?.1);
        let file = match &*call.path {
            "/api/logs" => Some(File::Log.name().to_owned()),
            "/api/plans" => of_query("format")
                .and_then(|format| Some(File::Plan(format.parse().ok()?).name().to_owned())),
            "/api/artifacts" | "/api/documents" => of_query("name").cloned(),
            _ => None,
        };
        let file = file.map(|file| format!(" ({file})")).unwrap_or_default();
        format!("{} {base}{}{file}", call.method, call.path)
    }

    pub(super) fn request(&self, call: &Call) -> Result<reqwest::RequestBuilder, ClientError> {
        let Inner { http, settings, .. } = &*self.0;
        let mut url = settings.url.clone();
        url.set_path(&format!("{}{}", url.path().trim_end_matches('/'), call.path));
        let request = http.request(call.method.clone(), url).query(&call.query);
        Ok(match settings.token.header()? {
            Some(token) => request.header(AUTHORIZATION, token),
            None => request,
        })
    }

    /// Sends a request. An answer with an error status is an error.
    pub(super) async fn send(
        &self,
        call: &Call,
        request: reqwest::RequestBuilder,
        progress: &Progress,
    ) -> Result<Response, ClientError> {
        let response = self.exchange(call, request, progress).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refused(call, response, progress).await)
    }

    /// Sends a request, and returns the answer whatever its status is.
    pub(super) async fn exchange(
        &self,
        call: &Call,
        request: reqwest::RequestBuilder,
        progress: &Progress,
    ) -> Result<Response, ClientError> {
        let silence = &self.0.silence;
        let response = silence.limit(&self.name(call), progress, request.send()).await?;
        let response = response.map_err(|error| transport(self.name(call), error))?;
        if !is_transient(response.status()) && progress.is_first_answer() {
            silence.end();
        }
        if Sender::of(&response) == Sender::Plancha {
            self.0.is_ours.store(true, Ordering::Relaxed);
        }
        Ok(response)
    }

    /// Converts an answer with an error status. No other function does.
    pub(super) async fn refused(
        &self,
        call: &Call,
        response: Response,
        progress: &Progress,
    ) -> ClientError {
        let (silence, status) = (&self.0.silence, response.status());
        let damage = response.headers().get(DAMAGED);
        let is_lost = damage.is_some_and(|damage| damage == LOST_OBJECT);
        if damage.is_some() && !is_lost {
            return self.damaged(call).await;
        }
        let mut sender = Sender::of(&response);
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(|seconds: u64| Duration::from_secs(seconds.min(30)));
        let moved = response.headers().get(LOCATION).filter(|_| status.is_redirection());
        let moved = moved.and_then(|to| self.0.settings.url.join(to.to_str().ok()?).ok());
        let message = match moved {
            // Only the origin: the query may be secret.
            Some(to) => {
                let origin = to.origin().ascii_serialization();
                format!("the redirect to {origin} is not followed")
            }
            None => {
                match silence.limit(&self.name(call), progress, error_message(response)).await {
                    Ok(message) => message,
                    Err(error) => return error,
                }
            }
        };
        if is_lost {
            return ClientError::Lost { call: self.name(call), message };
        }
        if NOT_FOUND.contains(&&*message) && sender == Sender::Unknown {
            sender = Sender::Datastore;
        }
        // Other answers have named Plancha, so no proxy removes that: this is the word of one, not that there is no object.
        if status == StatusCode::NOT_FOUND && sender == Sender::Datastore && self.is_ours() {
            sender = Sender::Unknown;
        }
        let call = self.name(call);
        ClientError::Refused { call, status, message, retry_after, sender }
    }

    pub(super) fn download(
        &self,
        call: String,
        response: Response,
        progress: Progress,
    ) -> Result<Download, ClientError> {
        Download::new(Arc::clone(&self.0.silence), call, response, progress)
    }

    /// The error of an object whose stored bytes have changed, as the datastore reported.
    async fn damaged(&self, call: &Call) -> ClientError {
        // The datastore does not verify a range. If that cannot be read either, the digest stays unknown.
        let digests = Box::pin(self.digests(call)).await.unwrap_or_default();
        ClientError::Damaged { call: self.name(call), digests }
    }

    /// The error of an object whose stored bytes have changed, if that is why the answer ended; else `error`.
    async fn damaged_or(
        &self,
        call: &Call,
        expected: Option<Sha256>,
        error: ClientError,
    ) -> ClientError {
        if !matches!(error, ClientError::Transport { .. }) {
            return error;
        }
        match Box::pin(self.digests(call)).await {
            Ok(Digests { expected: recorded, actual: Some(actual) })
                if expected.or(recorded).is_some_and(|expected| expected != actual) =>
            {
                let digests = Digests { expected: expected.or(recorded), actual: Some(actual) };
                ClientError::Damaged { call: self.name(call), digests }
            }
            _ => error,
        }
    }

    /// Reads the object in two ranges, which the datastore does not verify.
    async fn digests(&self, call: &Call) -> Result<Digests, ClientError> {
        let (mut hasher, mut expected) = (Hasher::default(), None);
        for range in ["bytes=0-0", "bytes=1-"] {
            let progress = Progress::default();
            let request = self.request(call)?.header(RANGE, range);
            let name = self.name(call);
            let limit = self.0.silence.limit(&name, &progress, request.send());
            let response = limit.await?.and_then(Response::error_for_status);
            let response = response.map_err(|error| transport(name.clone(), error))?;
            if response.status() != StatusCode::PARTIAL_CONTENT {
                let reason = format!("it is {}, and not a part", response.status());
                return Err(ClientError::Answer { call: name, reason });
            }
            let part = self.download(name, response, progress)?;
            expected = expected.or(part.expected());
            let mut part = part.of_part();
            while let Some(piece) = part.piece().await? {
                hasher.update(&piece);
            }
        }
        Ok(Digests { expected, actual: Some(hasher.finish()) })
    }
}
