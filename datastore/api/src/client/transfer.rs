//! The bytes of an upload or a download, and their progress.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use fs_err::tokio as fs;
use futures::TryStreamExt as _;
use reqwest::header::CONTENT_LENGTH;
use reqwest::{Body, Response, StatusCode};
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;

use super::error::{ClientError, transport};
use super::silence::{Progress, Silence};
use crate::digest::{Hasher, Sha256};
use crate::json::Plain;

/// Bytes are read from files in pieces of this size.
const PIECE: usize = 256 << 10;
/// A file up to this size is kept in memory.
const SMALL: usize = 64 << 10;

/// The content of an upload. It can be sent more than once.
#[derive(Clone, Debug)]
pub struct Upload {
    source: Source,
    len: u64,
    sha256: Sha256,
}

#[derive(Clone)]
enum Source {
    Bytes(Bytes),
    File(PathBuf),
}

impl fmt::Debug for Source {
    /// Without the content, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::File(path) => path.fmt(f),
        }
    }
}

impl Upload {
    /// Uploads these bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { len: bytes.len() as u64, sha256: Sha256::of(&bytes), source: Source::Bytes(bytes) }
    }

    /// Uploads this file. A small one is read now. Others are read twice: for the digest, and when they are sent. The
    /// datastore rejects a file that changes in between.
    pub async fn file(path: impl Into<PathBuf>) -> Result<Self, ClientError> {
        let path = path.into();
        if let Some(bytes) = small(path.clone()).await? {
            return Ok(Self::bytes(bytes));
        }
        let mut pieces = ReaderStream::with_capacity(fs::File::open(&path).await?, PIECE);
        let (mut hasher, mut len) = (Hasher::default(), 0);
        while let Some(piece) = pieces.try_next().await? {
            hasher.update(&piece);
            len += piece.len() as u64;
        }
        Ok(Self { source: Source::File(path), len, sha256: hasher.finish() })
    }

    /// A byte under the digest of no bytes: a datastore that lets the caller store something refuses it and stores nothing.
    pub fn mismatch() -> Self {
        Self { sha256: Sha256::of(b""), ..Self::bytes(&b"x"[..]) }
    }

    /// The digest of the content.
    pub fn sha256(&self) -> Sha256 {
        self.sha256
    }

    /// Adds the size of the upload to the error for one that is too large.
    pub(super) fn sized(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::Refused { call, status, message, retry_after, sender }
                if status == StatusCode::PAYLOAD_TOO_LARGE =>
            {
                let separator = if message.is_empty() { "" } else { ": " };
                let message = format!("the file has {} bytes{separator}{message}", self.len);
                ClientError::Refused { call, status, message, retry_after, sender }
            }
            error => error,
        }
    }

    pub(super) async fn attach(
        &self,
        request: reqwest::RequestBuilder,
        progress: &Progress,
    ) -> Result<reqwest::RequestBuilder, ClientError> {
        let request = request
            .header("repr-digest", self.sha256.to_repr_digest())
            .header(CONTENT_LENGTH, self.len);
        Ok(match &self.source {
            Source::Bytes(bytes) => request.body(bytes.clone()),
            Source::File(path) => {
                let file = fs::File::open(path).await?;
                let progress = progress.clone();
                let pieces = ReaderStream::with_capacity(file, PIECE);
                let pieces = pieces.inspect_ok(move |piece| progress.moved(piece.len()));
                request.body(Body::wrap_stream(pieces))
            }
        })
    }
}

/// The content of a small file, read in one step on another thread.
async fn small(path: PathBuf) -> io::Result<Option<Vec<u8>>> {
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        fs_err::File::open(path)?.take(SMALL as u64 + 1).read_to_end(&mut bytes)?;
        Ok((bytes.len() <= SMALL).then_some(bytes))
    });
    read.await.map_err(io::Error::other)?
}

/// A download in progress. Its bytes are verified only when the end is reached without an error.
#[derive(Debug)]
pub struct Download {
    silence: Arc<Silence>,
    call: String,
    response: Response,
    progress: Progress,
    expected: Option<Sha256>,
    hasher: Hasher,
}

impl Download {
    pub(super) fn new(
        silence: Arc<Silence>,
        call: String,
        response: Response,
        progress: Progress,
    ) -> Result<Self, ClientError> {
        let header = response.headers().get("repr-digest");
        let expected = header
            .map(|value| Sha256::from_repr_digest(value.to_str().unwrap_or_default()))
            .transpose()
            .map_err(|error| ClientError::Answer { call: call.clone(), reason: error.to_string() })?
            .flatten();
        Ok(Self { silence, call, response, progress, expected, hasher: Hasher::default() })
    }

    /// The digest that the datastore announced.
    pub(super) fn expected(&self) -> Option<Sha256> {
        self.expected
    }

    /// The same download, as a range: its digest is not compared with that of the object.
    pub(super) fn of_part(self) -> Self {
        Self { expected: None, ..self }
    }

    /// Its length in bytes, if the datastore announced it.
    pub fn content_length(&self) -> Option<u64> {
        self.response.content_length()
    }

    /// The next piece. `None` is the end: the digest matches, if the object has one (what Burrito's own datastore stored
    /// has none).
    pub async fn piece(&mut self) -> Result<Option<Bytes>, ClientError> {
        let (silence, round) = (&self.silence, Instant::now());
        let next = silence.limit(&self.call, &self.progress, self.response.chunk()).await?;
        let next = next.map_err(|error| transport(self.call.clone(), error))?;
        match &next {
            Some(piece) => {
                self.hasher.update(piece);
                self.progress.moved(piece.len());
                silence.moved(&self.progress, round);
            }
            None => self.check()?,
        }
        Ok(next)
    }

    fn check(&self) -> Result<(), ClientError> {
        let actual = self.hasher.clone().finish();
        match self.expected {
            Some(expected) if expected != actual => {
                Err(ClientError::Digest { call: self.call.clone(), expected, actual })
            }
            _ => Ok(()),
        }
    }

    /// All bytes, at most `limit`.
    pub async fn bytes(mut self, limit: usize) -> Result<Bytes, ClientError> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.piece().await? {
            if all.len() + piece.len() > limit {
                let reason = format!("it has more than {limit} bytes");
                return Err(ClientError::Answer { call: self.call, reason });
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    /// Writes the bytes to a file of mode 0600, replacing an existing one, and returns their digest. Removes the file on
    /// an error.
    pub async fn save(mut self, to: &Path) -> Result<Sha256, ClientError> {
        let written = self.write(to).await;
        if written.is_err() {
            // The first error matters more than an error of the removal.
            drop(fs::remove_file(to).await);
        }
        written.map(|()| self.hasher.finish())
    }

    async fn write(&mut self, to: &Path) -> Result<(), ClientError> {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(to).await?;
        while let Some(piece) = self.piece().await? {
            file.write_all(&piece).await?;
        }
        file.flush().await?;
        Ok(())
    }
}

/// The message of an error answer: the `detail` of a problem document, the `message` or `error` of JSON, or the text
/// itself; on one line, at most 2 KiB.
pub(super) async fn error_message(mut response: Response) -> String {
    const LIMIT: usize = 2 << 10;
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await
        && body.len() < LIMIT
    {
        body.extend_from_slice(&piece);
    }
    let json = serde_json::from_slice::<Plain>(&body).ok();
    let message = json.and_then(|Plain(json)| {
        ["detail", "message", "error"]
            .iter()
            .find_map(|key| json.get(key)?.as_str().map(str::to_owned))
    });
    let text = message.unwrap_or_else(|| {
        // The end of a URL may be missing.
        let is_cut = body.len() >= LIMIT;
        body.truncate(LIMIT);
        let text = String::from_utf8_lossy(&body).into_owned();
        let (before, last) = text.rsplit_once(char::is_whitespace).unwrap_or(("", &text));
        if is_cut && last.contains("://") { before.to_owned() } else { text }
    });
    without_secrets(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The text with `***` instead of the users, passwords and queries of URLs: a proxy may quote that of its upstream.
fn without_secrets(text: &str) -> String {
    let is_end = |c: char| " \"'<>".contains(c);
    let masked = |word: &str| {
        let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
        // A password may contain slashes and question marks.
        let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, host)| ("***@", host));
        let Some((host, query)) = rest.split_once('?') else {
            return format!("{scheme}://{user}{rest}");
        };
        format!("{scheme}://{user}{host}?***{}", query.trim_start_matches(|c| !is_end(c)))
    };
    text.split_inclusive(is_end).map(masked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_urls_in_an_answer_are_masked() {
        for (text, expected) in [
            (
                "no <http://me:p%40ss/w@h:80/x?token=s>, see \"https://h/y?a=b\" or https://h/z?",
                "no <http://***@h:80/x?***>, see \"https://h/y?***\" or https://h/z?***",
            ),
            ("at https://me:p?s/s@h", "at https://***@h"),
            ("a plain text, me@h, 10 % of x?y", "a plain text, me@h, 10 % of x?y"),
            ("https://h/x#y and http://[::1]:80", "https://h/x#y and http://[::1]:80"),
        ] {
            assert_eq!(without_secrets(text), expected);
        }
    }
}
