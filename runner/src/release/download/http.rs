//! Downloads: limited in time and size, retried where that may help.
//!
//! The client is created for the first request, since reading the system's certificates takes longer than the rest of a
//! run without downloads. Proxies come from the environment. A `file://` URL is read from the disk.

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
use crate::release::download::body::{check_size, inflated, last_page, while_doing, whole};
use crate::release::download::limits::{FIRST_ANSWER, Limits, MAX_REDIRECTS, MAX_WAIT, RETRIES};
use crate::release::download::local::{copy_local, read_local};
use crate::release::download::url::{local, shown};
use crate::release::download::{github_app, http_error, progress};
use crate::release::error::ReleaseError;
use crate::release::versions::unreachable::UnreachableSites;
use crate::source::regular;

/// Credentials, and the only origin that receives them.
pub(in crate::release) struct SiteCredentials {
    pub(in crate::release) origin: Origin,
    /// The address of the mirror, which distinguishes it from others of this origin; empty for a token.
    pub(in crate::release) address: String,
    pub(in crate::release) credentials: Credentials,
}

/// A password or a token.
pub(in crate::release) enum Credentials {
    Basic(String, SecretString),
    Bearer(SecretString),
}

/// A GitHub App, and the APIs that receive its tokens.
pub(in crate::release) struct GitHubAppAuth {
    pub(in crate::release) app: GitHubApp,
    pub(in crate::release) apis: Vec<Origin>,
}

/// Fetches URLs.
pub(in crate::release) struct Http {
    ca_file: Option<PathBuf>,
    credentials: Vec<SiteCredentials>,
    pub(in crate::release) limits: Limits,
    client: OnceLock<Client>,
    app: Option<GitHubAppAuth>,
    /// The App's token, once requested.
    app_token: OnceLock<SiteCredentials>,
    sites: UnreachableSites,
    /// Whether there is an alternative, so that the first response is awaited for [`FIRST_ANSWER`] only.
    fail_fast: AtomicBool,
}

/// A body and some headers.
pub(in crate::release) struct Answer {
    pub(in crate::release) body: Vec<u8>,
    pub(in crate::release) etag: Option<String>,
    /// The URL of the last page of a paged list.
    pub(in crate::release) last_page: Option<String>,
}

impl Http {
    pub(in crate::release) fn new(
        ca_file: Option<PathBuf>,
        credentials: Vec<SiteCredentials>,
        app: Option<GitHubAppAuth>,
    ) -> Self {
        Self {
            ca_file,
            credentials,
            limits: Limits::default(),
            client: OnceLock::new(),
            app,
            app_token: OnceLock::new(),
            sites: UnreachableSites::new(None),
            fail_fast: AtomicBool::new(false),
        }
    }

    /// With a record of unreachable sites.
    pub(in crate::release) fn with_sites(self, sites: UnreachableSites) -> Self {
        Self { sites, ..self }
    }

    /// Sets whether there is an alternative to downloading. Then a site that was unreachable a short time ago gets no
    /// request, and any other site gets one try, until it responds.
    pub(in crate::release) fn set_fail_fast(&self, fail_fast: bool) {
        self.fail_fast.store(fail_fast, Ordering::Relaxed);
    }

    fn is_failing_fast(&self) -> bool {
        self.fail_fast.load(Ordering::Relaxed)
    }

    /// Requests a token for the GitHub API of this list, if a GitHub App is configured and there is no token yet.
    pub(in crate::release) async fn authenticate(&self, list: &str) -> Result<(), ReleaseError> {
        let Some((provable, (api, _))) = self.app.as_ref().zip(list.split_once("/repos/")) else {
            return Ok(());
        };
        let GitHubAppAuth { app, apis } = provable;
        let Ok(url) = Url::parse(list) else { return Ok(()) };
        let origin = url.origin();
        if apis.contains(&origin) && self.credential(&url).is_none() {
            let credentials = Credentials::Bearer({
                let call = async |method, url: &str, token: &SecretString| {
                    self.call(method, url, github_app::MAX_ANSWER, token).await
                };
                github_app::token(api, app, call).await?
            });
            // Of two concurrent requests either token will do.
            let address = String::new();
            drop(self.app_token.set(SiteCredentials { origin, address, credentials }));
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
            self.check_reachable(url)?;
            let request = self.client()?.request(method.clone(), url);
            let response =
                self.send_checked(url, request.bearer_auth(token.expose_secret()), None).await?;
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

    /// The whole body, or `None` if it still has this `etag`.
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
            let response = self.send_checked(url, request, etag).await?;
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

    /// Downloads the body into `file`, replacing its content; returns the digest.
    pub(in crate::release) async fn download(
        &self,
        url: &str,
        limit: u64,
        file: &File,
    ) -> Result<Sha256, ReleaseError> {
        if let Some(path) = local(url)? {
            return copy_local(url, &path, limit, file);
        }
        let once = async || {
            let mut response = self.send_checked(url, self.request(url)?, None).await?;
            let mut out = file;
            out.set_len(0)?;
            out.rewind()?;
            let bar = Bar(progress::bar(response.content_length()));
            let (mut hasher, mut size) = (Hasher::default(), 0);
            while let Some(piece) =
                response.chunk().await.map_err(|error| http_error::failed(url, error))?
            {
                size += piece.len() as u64;
                check_size(url, size, limit)?;
                hasher.update(&piece);
                out.write_all(&piece)
                    .map_err(|error| while_doing("the archive cannot be written", &error))?;
                bar.0.set_position(size);
            }
            Ok(hasher.finish())
        };
        self.retried(url, self.limits.archive, once).await
    }

    /// Fails if no request is sent: the site was unreachable a short time ago. To be called before the client is made, which
    /// loads all root certificates.
    fn check_reachable(&self, url: &str) -> Result<(), ReleaseError> {
        if self.is_failing_fast()
            && let Some((site, seconds)) = self.sites.recent_failure(url)
        {
            return Err(ReleaseError::Skipped { site, seconds });
        }
        Ok(())
    }

    fn request(&self, url: &str) -> Result<RequestBuilder, ReleaseError> {
        self.check_reachable(url)?;
        let request = self.client()?.get(url);
        let Ok(url) = Url::parse(url) else { return Ok(request) };
        Ok(match self.credential(&url).map(|credential| &credential.credentials) {
            None => request,
            Some(Credentials::Basic(user, password)) => {
                request.basic_auth(user, Some(password.expose_secret()))
            }
            Some(Credentials::Bearer(token)) => request.bearer_auth(token.expose_secret()),
        })
    }

    /// The credentials for a URL: where several mirrors have one origin, those of the mirror whose address is most like it.
    fn credential(&self, url: &Url) -> Option<&SiteCredentials> {
        let all = self.credentials.iter().chain(self.app_token.get());
        let origin = url.origin();
        let of_origin = all.filter(|credential| credential.origin == origin);
        let url = url.as_str();
        // Below the whole address of a mirror, or else with most parts of it.
        let likeness = |credential: &&SiteCredentials| {
            let address = credential.address.trim_end_matches('/');
            let rest = url.strip_prefix(address).filter(|_| !address.is_empty());
            let is_below = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
            let parts = address.split('/').zip(url.split('/'));
            (is_below, parts.take_while(|(own, other)| own == other).count())
        };
        // The first of equals.
        of_origin.rev().max_by_key(likeness)
    }

    async fn send_checked(
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
                self.set_fail_fast(false);
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

    /// Whether no request is sent: the site was unreachable a short time ago.
    pub(in crate::release) fn is_skipped(&self, url: &str) -> bool {
        self.check_reachable(url).is_err()
    }

    async fn send(&self, url: &str, request: RequestBuilder) -> Result<Response, ReleaseError> {
        let mut sent = std::pin::pin!(request.send());
        if self.is_failing_fast() {
            match tokio::time::timeout(FIRST_ANSWER, &mut sent).await {
                Ok(sent) => return sent.map_err(|error| http_error::failed(url, error)),
                // If the site has responded to another request in the meantime, this one may take longer.
                Err(_) if self.is_failing_fast() => {
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
            let pem = regular::check_named(path).and_then(|()| fs::read(path));
            let pem = pem.map_err(ReleaseError::Unreadable)?;
            let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
            if certificates.is_empty() {
                return Err(ReleaseError::CaFile(path.clone()));
            }
            builder = builder.tls_certs_merge(certificates);
        }
        let client = builder.build().map_err(|error| match &self.ca_file {
            // A damaged certificate is found only here. Without the file the same client can be made.
            Some(path) if Client::builder().build().is_ok() => ReleaseError::CaFile(path.clone()),
            _ => ReleaseError::Client(error),
        })?;
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
            // There may be an alternative, and five seconds without a connection are enough.
            ReleaseError::Unreachable { source, .. } => {
                unreachable += 1;
                unreachable < 2 && !source.is_timeout() && !self.is_failing_fast()
            }
            error => error.is_transient(),
        };
        let as_requested = |error: &ReleaseError, wait: Option<Duration>| match error {
            ReleaseError::Busy { after: Some(after), .. } => {
                wait.map(|wait| wait.max(*after).min(MAX_WAIT))
            }
            _ => wait,
        };
        let notify = |error: &ReleaseError, pause: Duration| {
            let text = match error {
                ReleaseError::Busy { url, status, .. } => format!("{url} answered {status}"),
                error => error.to_string(),
            };
            tracing::warn!("{text}; trying again in {:.1} s", pause.as_secs_f64());
        };
        bounded.retry(waits).when(is_transient).adjust(as_requested).notify(notify).await
    }
}

/// Removes the bar when its download ends, also by an error.
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
