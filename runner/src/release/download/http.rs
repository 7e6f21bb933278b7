//! Downloads: bounded in time and size, tried again where that may help.
//!
//! The client is made when the first byte is needed, since reading the system's certificates costs
//! more than all the rest of a run without downloads. Proxies are taken from the environment. A
//! `file://` address is read from the disk.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use fs_err as fs;
use indicatif::ProgressBar;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderValue, IF_NONE_MATCH, LINK};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, Client, Method, RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use url::{Origin, Url};

use crate::cli::GitHubApp;
use crate::release::download::body::{inflated, last_page, told, whole, within};
use crate::release::download::limits::{FIRST_ANSWER, Limits, MAX_REDIRECTS, MAX_WAIT, RETRIES};
use crate::release::download::local::{copied, read_local};
use crate::release::download::url::{local, shown};
use crate::release::download::{github_app, http_error, progress};
use crate::release::error::ReleaseError;
use crate::release::versions::unreachable::Sites;

/// What proves who asks, and the only place where it is shown.
pub(in crate::release) struct Credential {
    pub(in crate::release) origin: Origin,
    pub(in crate::release) proof: Proof,
}

/// A password or a token.
pub(in crate::release) enum Proof {
    Basic(String, SecretString),
    Bearer(SecretString),
}

/// A GitHub App, and who may know what proves it.
pub(in crate::release) struct Provable {
    pub(in crate::release) app: GitHubApp,
    pub(in crate::release) apis: Vec<Origin>,
}

/// Fetches URLs.
pub(in crate::release) struct Http {
    ca_file: Option<PathBuf>,
    credentials: Vec<Credential>,
    pub(in crate::release) limits: Limits,
    client: OnceLock<Client>,
    app: Option<Provable>,
    /// The token of the App, once it was asked for.
    app_token: OnceLock<Credential>,
    sites: Sites,
    /// Whether something at hand will do, so that the first answer is not waited for any longer than
    /// [`FIRST_ANSWER`].
    hurry: AtomicBool,
}

/// A body, and what its headers say of it.
pub(in crate::release) struct Answer {
    pub(in crate::release) body: Vec<u8>,
    pub(in crate::release) etag: Option<String>,
    /// The address of the last page of a list in pages.
    pub(in crate::release) last_page: Option<String>,
}

impl Http {
    pub(in crate::release) fn new(
        ca_file: Option<PathBuf>,
        credentials: Vec<Credential>,
        app: Option<Provable>,
    ) -> Self {
        Self {
            ca_file,
            credentials,
            limits: Limits::default(),
            client: OnceLock::new(),
            app,
            app_token: OnceLock::new(),
            sites: Sites::new(None),
            hurry: AtomicBool::new(false),
        }
    }

    /// The same, remembering which sites could not be reached.
    pub(in crate::release) fn with_sites(self, sites: Sites) -> Self {
        Self { sites, ..self }
    }

    /// Whether something at hand will do. A site that could not be reached a short time ago is then not
    /// asked, and another one only once, until it answers.
    pub(in crate::release) fn hurry(&self, hurry: bool) {
        self.hurry.store(hurry, Ordering::Relaxed);
    }

    fn is_in_a_hurry(&self) -> bool {
        self.hurry.load(Ordering::Relaxed)
    }

    /// Sees that there is a token for the API of GitHub's with this list, if an App may have one and
    /// none is there.
    pub(in crate::release) async fn prove(&self, list: &str) -> Result<(), ReleaseError> {
        let Some((provable, (api, _))) = self.app.as_ref().zip(list.split_once("/repos/")) else {
            return Ok(());
        };
        let Provable { app, apis } = provable;
        let Ok(origin) = Url::parse(list).map(|url| url.origin()) else { return Ok(()) };
        if apis.contains(&origin) && self.credential(&origin).is_none() {
            let proof = Proof::Bearer({
                let call = async |method, url: &str, token: &SecretString| {
                    self.call(method, url, github_app::MAX_ANSWER, token).await
                };
                github_app::token(api, app, call).await?
            });
            // Two at once have the same right.
            drop(self.app_token.set(Credential { origin, proof }));
        }
        Ok(())
    }

    /// Sends a request with this token and returns the whole body.
    async fn call(
        &self,
        method: Method,
        url: &str,
        limit: u64,
        token: &SecretString,
    ) -> Result<Vec<u8>, ReleaseError> {
        let once = async || {
            let request = self.client()?.request(method.clone(), url);
            let response = self.ask(url, request.bearer_auth(token.expose_secret()), None).await?;
            whole(url, response, limit).await
        };
        self.retried(url, self.limits.small, once).await
    }

    /// The whole body.
    pub(in crate::release) async fn get(
        &self,
        url: &str,
        limit: u64,
    ) -> Result<Vec<u8>, ReleaseError> {
        match self.get_changed(url, limit, None).await? {
            Some(answer) => Ok(answer.body),
            None => Err(ReleaseError::Refused { url: shown(url), status: 304 }),
        }
    }

    /// The whole body, or `None` where it still has the `etag`.
    pub(in crate::release) async fn get_changed(
        &self,
        url: &str,
        limit: u64,
        etag: Option<&str>,
    ) -> Result<Option<Answer>, ReleaseError> {
        if let Some(path) = local(url)? {
            let body = read_local(url, &path, limit)?;
            return Ok(Some(Answer { body, etag: None, last_page: None }));
        }
        let once = async || {
            let request = self.request(url)?.header(ACCEPT_ENCODING, "gzip");
            let response = self.ask(url, request, etag).await?;
            if response.status() == StatusCode::NOT_MODIFIED {
                return Ok(None);
            }
            let header = |name| {
                let value = response.headers().get(name)?.to_str().ok()?;
                Some(value.to_owned())
            };
            let (etag, link, coding) = (header(ETAG), header(LINK), header(CONTENT_ENCODING));
            let mut body = whole(url, response, limit).await?;
            if coding.is_some_and(|coding| coding.eq_ignore_ascii_case("gzip")) {
                body = inflated(url, &body, limit)?;
            }
            Ok(Some(Answer { body, etag, last_page: link.as_deref().and_then(last_page) }))
        };
        self.retried(url, self.limits.small, once).await
    }

    /// The digest of the body, which is then the whole content of `file`.
    pub(in crate::release) async fn download(
        &self,
        url: &str,
        limit: u64,
        file: &File,
    ) -> Result<Sha256, ReleaseError> {
        if let Some(path) = local(url)? {
            return copied(url, &path, limit, file);
        }
        let once = async || {
            let mut response = self.ask(url, self.request(url)?, None).await?;
            let mut out = file;
            out.set_len(0)?;
            out.rewind()?;
            let bar = Bar(progress::bar(response.content_length()));
            let (mut hasher, mut size) = (Hasher::default(), 0);
            while let Some(piece) =
                response.chunk().await.map_err(|error| http_error::failed(url, error))?
            {
                size += piece.len() as u64;
                within(url, size, limit)?;
                hasher.update(&piece);
                out.write_all(&piece).map_err(|error| told("writing the archive", &error))?;
                bar.0.set_position(size);
            }
            Ok(hasher.finish())
        };
        self.retried(url, self.limits.archive, once).await
    }

    fn request(&self, url: &str) -> Result<RequestBuilder, ReleaseError> {
        let request = self.client()?.get(url);
        let Some(origin) = Url::parse(url).ok().map(|url| url.origin()) else { return Ok(request) };
        Ok(match self.credential(&origin).map(|credential| &credential.proof) {
            None => request,
            Some(Proof::Basic(user, password)) => {
                request.basic_auth(user, Some(password.expose_secret()))
            }
            Some(Proof::Bearer(token)) => request.bearer_auth(token.expose_secret()),
        })
    }

    fn credential(&self, origin: &Origin) -> Option<&Credential> {
        let mut all = self.credentials.iter().chain(self.app_token.get());
        all.find(|credential| credential.origin == *origin)
    }

    async fn ask(
        &self,
        url: &str,
        mut request: RequestBuilder,
        etag: Option<&str>,
    ) -> Result<Response, ReleaseError> {
        if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let response = self.send(url, request).await;
        match &response {
            Ok(_) => {
                self.hurry(false);
                self.sites.remember(url, false);
            }
            Err(ReleaseError::Unreachable { .. } | ReleaseError::NoAnswer { .. }) => {
                self.sites.remember(url, true);
            }
            Err(_) => {}
        }
        let response = response?;
        match response.status().as_u16() {
            200 | 201 | 304 => Ok(response),
            _ => Err(http_error::refused(url, &response)),
        }
    }

    /// Whether a request for it is not even sent: the site could not be reached a short time ago.
    pub(in crate::release) fn is_skipped(&self, url: &str) -> bool {
        self.is_in_a_hurry() && self.sites.failed(url).is_some()
    }

    async fn send(&self, url: &str, request: RequestBuilder) -> Result<Response, ReleaseError> {
        if self.is_in_a_hurry()
            && let Some((site, seconds)) = self.sites.failed(url)
        {
            return Err(ReleaseError::NotAsked { site, seconds });
        }
        let mut sent = std::pin::pin!(request.send());
        if self.is_in_a_hurry() {
            match tokio::time::timeout(FIRST_ANSWER, &mut sent).await {
                Ok(sent) => return sent.map_err(|error| http_error::failed(url, error)),
                // Where it has answered another request meanwhile, this one may take its time.
                Err(_) if self.is_in_a_hurry() => {
                    let url = shown(url);
                    return Err(ReleaseError::NoAnswer { url, limit: FIRST_ANSWER });
                }
                Err(_) => {}
            }
        }
        sent.await.map_err(|error| http_error::failed(url, error))
    }

    fn client(&self) -> Result<&Client, ReleaseError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let mut builder = Client::builder()
            .user_agent(concat!("plancha/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.limits.connect)
            .read_timeout(self.limits.silence)
            .redirect(Policy::custom(redirect));
        if let Some(path) = &self.ca_file {
            let pem = fs::read(path).map_err(ReleaseError::Unreadable)?;
            let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
            if certificates.is_empty() {
                return Err(ReleaseError::CaFile(path.clone()));
            }
            builder = builder.tls_certs_merge(certificates);
        }
        let client = builder.build().map_err(ReleaseError::Client)?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn retried<T>(
        &self,
        url: &str,
        limit: Duration,
        once: impl AsyncFn() -> Result<T, ReleaseError>,
    ) -> Result<T, ReleaseError> {
        let waits = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(200))
            .with_max_times(RETRIES)
            .with_jitter();
        let bounded = || async {
            match tokio::time::timeout(limit, once()).await {
                Ok(outcome) => outcome,
                Err(_) => Err(ReleaseError::TooSlow { url: shown(url), limit }),
            }
        };
        let mut unreachable = 0;
        let is_transient = |error: &ReleaseError| match error {
            // Something else may stand in, and five seconds of silence are long enough.
            ReleaseError::Unreachable { source, .. } => {
                unreachable += 1;
                unreachable < 2 && !source.is_timeout() && !self.is_in_a_hurry()
            }
            error => error.is_transient(),
        };
        let as_asked = |error: &ReleaseError, wait: Option<Duration>| match error {
            ReleaseError::Busy { after: Some(after), .. } => {
                wait.map(|wait| wait.max(*after).min(MAX_WAIT))
            }
            _ => wait,
        };
        let notify = |error: &ReleaseError, pause: Duration| {
            tracing::warn!("{error}; trying again in {:.1} s", pause.as_secs_f64());
        };
        bounded.retry(waits).when(is_transient).adjust(as_asked).notify(notify).await
    }
}

/// Gone when its download ends, however that ends.
struct Bar(ProgressBar);

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn redirect(attempt: Attempt) -> reqwest::redirect::Action {
    let secure = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    if attempt.previous().len() > MAX_REDIRECTS {
        attempt.error("more than ten redirects")
    } else if secure && attempt.url().scheme() != "https" {
        attempt.error("from https to http")
    } else {
        attempt.follow()
    }
}

#[cfg(test)]
mod tests;
