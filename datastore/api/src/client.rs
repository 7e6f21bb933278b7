//! The datastore over HTTP, as its callers use it.
//!
//! Every call is retried on what passes (connection failures, 429, 5xx) and on nothing else; an
//! upload is announced by its digest and a download is checked against its own, so a wrong byte is
//! an error on either side. Memory does not grow with the size of an artifact. The token is read
//! again for every request, since kubelets and CI systems rotate it.
//!
//! A transfer that moves has no time limit. A datastore that is silent is given up after
//! [`Settings::timeout`], counted over all tries.

mod bundles;
mod call;
mod certificates;
mod damage;
mod records;
mod sender;
mod silence;
mod token;
mod transfer;
mod transport;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use reqwest::header::{AUTHORIZATION, IF_NONE_MATCH, LOCATION, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;

use self::call::{Call, file_call};
use self::certificates::certificates;
pub use self::damage::Digests;
pub use self::records::Claimed;
use self::sender::NOT_FOUND;
pub use self::sender::Sender;
pub use self::silence::{Notice, Notify};
use self::silence::{Silence, seconds};
pub use self::token::Token;
pub use self::transfer::{Download, Upload};
use self::transfer::{Progress, refusal};
use self::transport::transport;
use crate::digest::Sha256;
use crate::key::{Attempt, File, RunKey, Runs};
use crate::name::Name;

/// Speaks to one datastore. Cloning is cheap; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    settings: Settings,
    silence: Silence,
}

/// How a [`Client`] reaches its datastore.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the datastore is; `/api/...` is appended to its path.
    pub url: Url,
    /// Who calls.
    pub token: Token,
    /// Certificates to trust besides the system's, each file PEM.
    pub ca_files: Vec<PathBuf>,
    /// For how long nothing may move, in either direction, and no answer come: counted over all tries
    /// of a call, half of it for each. Calls after one that gave up wait for a twelfth of it.
    pub timeout: Duration,
    /// How often a failed call is tried again.
    pub retries: usize,
    /// The first pause between tries; each further one is twice as long, at most 10 s, jittered.
    pub first_pause: Duration,
    /// Is given what a person who waits may want to know.
    pub notify: Option<Notify>,
}

impl Settings {
    /// The defaults for the datastore at `url`: no token, 60 s, 4 retries from 250 ms on.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            token: Token::None,
            ca_files: Vec::new(),
            timeout: Duration::from_mins(1),
            retries: 4,
            first_pause: Duration::from_millis(250),
            notify: None,
        }
    }
}

/// When an upload may take its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always; what was there is replaced.
    Replace,
    /// Only where there is nothing, or the very same bytes (`If-None-Match: *`).
    Create,
}

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The datastore could not be reached, or went away.
    #[error("{call}: {reason}")]
    Transport {
        /// Method and URL, never the query or the token.
        call: String,
        /// Which of both, and the cause, without the URL.
        reason: String,
    },
    /// Nothing moved during one try.
    #[error("{call}: nothing moved for {}", seconds(*.idle))]
    TimedOut {
        /// Method and URL.
        call: String,
        /// For how long.
        idle: Duration,
    },
    /// The datastore was given up: nothing moved for
    /// [`Settings::timeout`], over all tries.
    #[error("{call}: no answer came and no byte moved for {}", seconds(*.limit))]
    Silent {
        /// Method and URL.
        call: String,
        /// The limit.
        limit: Duration,
    },
    /// The datastore answered, and refused.
    #[error("{call}: {status}{}{message}", if .message.is_empty() { "" } else { ": " })]
    Refused {
        /// Method and URL.
        call: String,
        /// Status of the response.
        status: StatusCode,
        /// What the datastore said, at most 2 KiB of it.
        message: String,
        /// For how long it asks to be left alone.
        retry_after: Option<Duration>,
        /// Who has answered.
        sender: Sender,
    },
    /// The datastore still has the object, but its bytes are not those that were stored.
    #[error("{call}: the stored bytes are no longer those that were stored{}", .digests.shown())]
    Damaged {
        /// Method and URL.
        call: String,
        /// What is known of their digests.
        digests: Digests,
    },
    /// The datastore answered what is no answer to the question.
    #[error("{call}: the answer cannot be read: {reason}")]
    Answer {
        /// Method and URL.
        call: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What arrived is not what was stored.
    #[error("{call}: what arrived has sha256 {actual}, stored was {expected}")]
    Digest {
        /// Method and URL.
        call: String,
        /// The digest that the datastore announced.
        expected: Sha256,
        /// The digest of the bytes that came.
        actual: Sha256,
    },
    /// The token's file cannot be read, or holds what no header can.
    #[error("the token in {} cannot be used: {reason}", .path.display())]
    Token {
        /// The file, or `PLANCHA_TOKEN`.
        path: PathBuf,
        /// Why, without the token.
        reason: String,
    },
    /// A local file could not be read or written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The client could not be made: a certificate file, mostly.
    #[error("{0}")]
    Setup(String),
}

impl ClientError {
    /// Whether the same call may succeed in a moment.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::TimedOut { .. } | Self::Digest { .. } => true,
            // A proxy that has lost its datastore for a moment says "not found", too.
            Self::Refused { status: StatusCode::NOT_FOUND, sender: Sender::Unknown, .. } => true,
            Self::Refused { status, .. } => is_transient(*status),
            Self::Silent { .. }
            | Self::Damaged { .. }
            | Self::Answer { .. }
            | Self::Token { .. }
            | Self::File(_)
            | Self::Setup(_) => false,
        }
    }

    /// Whether the datastore itself says that there is no such object. The answer to a HEAD has no body
    /// that could tell.
    fn says_there_is_none(&self, call: &Call) -> bool {
        match self {
            Self::Refused { status: StatusCode::NOT_FOUND, sender, .. } => {
                *sender != Sender::Unknown || call.method == Method::HEAD
            }
            _ => false,
        }
    }

    /// The status with which the datastore refused.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

impl Client {
    /// A client of one datastore.
    pub fn new(settings: Settings) -> Result<Self, ClientError> {
        let mut http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .tcp_nodelay(true)
            // A token, or code to be run, follows nobody: where it moved to is told instead.
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
        let http = http.build().map_err(|error| ClientError::Setup(error.to_string()))?;
        let silence = Silence::new(settings.timeout, settings.notify);
        Ok(Self(Arc::new(Inner { http, settings, silence })))
    }

    /// From now on a silent datastore is given up after this time at the latest, by calls under way as well.
    pub fn hurry(&self, timeout: Duration) {
        self.0.silence.hurry(timeout);
    }

    /// How it reaches its datastore.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Stores one file of an attempt.
    pub async fn put_file(
        &self,
        run: &RunKey,
        attempt: Attempt,
        file: &File,
        upload: &Upload,
        condition: Condition,
    ) -> Result<(), ClientError> {
        self.put(&file_call(Method::PUT, run, Some(attempt), file), upload, condition).await
    }

    /// Begins to read one file of an attempt, of the latest where none is named. `None`: no such file.
    /// A log comes as Burrito's JSON (`{"results": [line, ...]}`), any other file as it was stored.
    pub async fn get_file(
        &self,
        run: &RunKey,
        attempt: Option<Attempt>,
        file: &File,
    ) -> Result<Option<Download>, ClientError> {
        self.get(&file_call(Method::GET, run, attempt, file)).await
    }

    /// Reads one file of an attempt into a new file of mode 0600, and returns its digest.
    /// `None`: no such file, and none made.
    pub async fn save_file(
        &self,
        run: &RunKey,
        attempt: Option<Attempt>,
        file: &File,
        to: &Path,
    ) -> Result<Option<Sha256>, ClientError> {
        self.save(&file_call(Method::GET, run, attempt, file), None, to).await
    }

    /// Like [`Self::save_file`] for a file whose digest is `recorded` elsewhere, so that a damaged file is
    /// distinguished from a lost connection.
    pub async fn save_recorded_file(
        &self,
        run: &RunKey,
        attempt: Option<Attempt>,
        file: &File,
        recorded: Option<Sha256>,
        to: &Path,
    ) -> Result<Option<Sha256>, ClientError> {
        self.save(&file_call(Method::GET, run, attempt, file), recorded, to).await
    }

    async fn save(
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
                    Err(error) => Err(self.broken_off(call, expected, error).await),
                }
            }
            None => Ok(None),
        })
        .await
    }

    /// One page of a layer's runs, newest first.
    pub async fn runs(
        &self,
        namespace: &Name,
        layer: &Name,
        cursor: Option<&str>,
    ) -> Result<Runs, ClientError> {
        let mut query = vec![("namespace", namespace.to_string()), ("layer", layer.to_string())];
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get_json(&Call { method: Method::GET, path: "/api/runs", query }).await
    }

    async fn put(
        &self,
        call: &Call,
        upload: &Upload,
        condition: Condition,
    ) -> Result<(), ClientError> {
        let progress = Progress::default();
        let attempt = async || {
            let progress = progress.another_try();
            let mut request = self.request(call)?;
            request = upload.attach(request, &progress).await?;
            if condition == Condition::Create {
                request = request.header(IF_NONE_MATCH, "*");
            }
            self.send(call, request, &progress).await.map(drop).map_err(|error| upload.sized(error))
        };
        self.retrying(attempt).await
    }

    async fn get(&self, call: &Call) -> Result<Option<Download>, ClientError> {
        let progress = Progress::default();
        self.retrying(async || self.open_try(call, &progress).await).await
    }

    /// A GET or HEAD that is tried once.
    async fn open(&self, call: &Call) -> Result<Option<Download>, ClientError> {
        self.open_try(call, &Progress::default()).await
    }

    /// One try of a GET or HEAD that has come as far as `progress` says in its other tries.
    async fn open_try(
        &self,
        call: &Call,
        progress: &Progress,
    ) -> Result<Option<Download>, ClientError> {
        let progress = progress.another_try();
        match self.send(call, self.request(call)?, &progress).await {
            Ok(response) => {
                Download::new(self.clone(), self.name(call), response, progress).map(Some)
            }
            Err(error) if error.says_there_is_none(call) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An answer of at most 16 MiB.
    async fn get_json<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ClientError> {
        const LIMIT: usize = 16 << 20;
        let body = async || match self.open(call).await? {
            Some(download) => download.bytes(LIMIT).await,
            None => Err(ClientError::Refused {
                call: self.name(call),
                status: StatusCode::NOT_FOUND,
                message: "is this URL a datastore of Plancha?".to_owned(),
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

    async fn retrying<T>(
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
                ClientError::Refused { retry_after: Some(asked), .. } => {
                    pause.map(|pause| pause.max(*asked))
                }
                _ => pause,
            })
            .await
    }

    /// The call as messages have it: method and URL without the query, and the file that it is about.
    fn name(&self, call: &Call) -> String {
        let base = self.0.settings.url.as_str().trim_end_matches('/');
        let of_query = |name| Some(&call.query.iter().find(|(key, _)| *key == name)?.1);
        let file = match call.path {
            "/api/logs" => Some(File::Log.name().to_owned()),
            "/api/plans" => of_query("format")
                .and_then(|format| Some(File::Plan(format.parse().ok()?).name().to_owned())),
            "/api/artifacts" => of_query("name").cloned(),
            _ => None,
        };
        let file = file.map(|file| format!(" ({file})")).unwrap_or_default();
        format!("{} {base}{}{file}", call.method, call.path)
    }

    fn request(&self, call: &Call) -> Result<reqwest::RequestBuilder, ClientError> {
        let Inner { http, settings, .. } = &*self.0;
        let mut url = settings.url.clone();
        url.set_path(&format!("{}{}", url.path().trim_end_matches('/'), call.path));
        let request = http.request(call.method.clone(), url).query(&call.query);
        Ok(match settings.token.header()? {
            Some(token) => request.header(AUTHORIZATION, token),
            None => request,
        })
    }

    /// The one place that turns a response into an error.
    async fn send(
        &self,
        call: &Call,
        request: reqwest::RequestBuilder,
        progress: &Progress,
    ) -> Result<Response, ClientError> {
        let silence = &self.0.silence;
        let response = silence.limit(&self.name(call), progress, request.send()).await?;
        let response = response.map_err(|error| transport(self.name(call), error))?;
        let status = response.status();
        if !is_transient(status) {
            silence.broken();
        }
        if status.is_success() {
            return Ok(response);
        }
        if response.headers().contains_key(damage::HEADER) {
            return Err(self.damaged(call).await);
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
            // Without the query, as calls are named.
            Some(to) => format!("it points to {}, and redirects are not followed", origin(&to)),
            None => silence.limit(&self.name(call), progress, refusal(response)).await?,
        };
        if NOT_FOUND.contains(&&*message) && sender == Sender::Unknown {
            sender = Sender::Datastore;
        }
        let call = self.name(call);
        Err(ClientError::Refused { call, status, message, retry_after, sender })
    }
}

fn is_transient(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}
