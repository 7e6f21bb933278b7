//! Masks secrets by their value: `***` instead of each one, in text that is shown or stored for people.
//!
//! A secret is found as it is and in the usual encodings ([`forms`]), also where it begins in one piece of a stream and ends
//! in another ([`stream`]). What is a secret is decided elsewhere: in [`crate::cli`] for environment variables.

mod file;
mod forms;
mod patterns;
mod stream;
pub(crate) mod values;
mod words;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use secrecy::ExposeSecret as _;

use crate::process::redact::patterns::{MIN_LEN, Patterns};
pub(crate) use crate::process::redact::stream::Stream;
use crate::process::redact::values::Secret;

/// The secrets of a run. All clones share them.
#[derive(Clone, Default)]
pub struct Redaction(Arc<Shared>);

/// What was masked at one time.
pub(crate) struct Known(Arc<Patterns>);

#[derive(Default)]
struct Shared {
    patterns: RwLock<Arc<Patterns>>,
    /// Files that contain one secret, and may change while the run lasts.
    files: Mutex<BTreeSet<PathBuf>>,
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redaction")
    }
}

impl Redaction {
    /// Adds secrets. A debug line names those that are too short to be masked.
    pub(crate) fn add(&self, secrets: impl IntoIterator<Item = Secret>) {
        let mut forms = Vec::new();
        for Secret { name, value } in secrets {
            let of_value = forms::of(value.expose_secret());
            if of_value.is_empty() && !value.expose_secret().is_empty() {
                tracing::debug!("{name} is not masked: it has less than {MIN_LEN} bytes");
            }
            forms.extend(of_value);
        }
        let mut patterns = self.0.patterns.write().unwrap_or_else(PoisonError::into_inner);
        if forms.iter().any(|form| !patterns.has(form)) {
            let before = patterns.all().cloned();
            *patterns = Arc::new(Patterns::new(before.chain(forms)));
        }
    }

    /// Adds files with a secret each, and what they contain now.
    pub(crate) fn add_files(&self, files: impl IntoIterator<Item = PathBuf>) {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner).extend(files);
        self.read_files_again();
    }

    /// Adds what the files contain now: credentials are renewed while a run lasts.
    pub(crate) fn read_files_again(&self) {
        let files = self.0.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.add(files.iter().flat_map(|file| values::of_file(file)));
    }

    /// What is masked now, for [`Self::forget_later`].
    pub(crate) fn known(&self) -> Known {
        Known(Arc::clone(&self.0.patterns.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Masks again only what was known then, and what the files contain now. For a process that runs for months: what each run
    /// has learned of its plan, and tokens that were renewed, would add up. Call it when nothing runs.
    pub(crate) fn forget_later(&self, known: &Known) {
        *self.0.patterns.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&known.0);
        self.read_files_again();
    }

    /// How many byte strings are masked. Their number only grows while a run lasts.
    pub(crate) fn count(&self) -> usize {
        self.0.patterns.read().unwrap_or_else(PoisonError::into_inner).all().count()
    }

    /// Masks a stream with the secrets that are known now.
    pub(crate) fn stream(&self) -> Stream {
        Stream::new(Arc::clone(&self.0.patterns.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The bytes, masked.
    pub(crate) fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut stream = self.stream();
        if stream.has_nothing_to_mask() {
            return Cow::Borrowed(bytes);
        }
        let mut masked = Vec::with_capacity(bytes.len());
        stream.push(bytes, &mut masked);
        stream.finish(&mut masked);
        Cow::Owned(masked)
    }

    /// The text, masked.
    pub(crate) fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// A line of the runner's log, masked. One of JSON stays JSON.
    pub(crate) fn line<'a>(&self, line: &'a [u8]) -> Cow<'a, [u8]> {
        let masked = self.bytes(line);
        let is_document = masked != line && line.starts_with(b"{");
        match serde_json::from_slice(line) {
            Ok(mut document) if is_document => {
                self.mask_json(&mut document);
                Cow::Owned(format!("{document}\n").into_bytes())
            }
            _ => masked,
        }
    }

    /// Masks a file that people read, and the secrets of URLs in it.
    pub(crate) async fn mask_file(&self, path: &Path) -> io::Result<()> {
        let (path, stream) = (path.to_owned(), self.stream());
        tokio::task::spawn_blocking(move || file::mask(&path, stream))
            .await
            .map_err(io::Error::other)?
    }

    /// Masks a file in place, with the secrets that are known by now.
    pub(crate) fn mask_in_place(&self, path: &Path) -> io::Result<()> {
        file::mask_in_place(path, || self.stream())
    }

    /// Masks a text in place.
    pub(crate) fn mask(&self, text: &mut String) {
        if let Cow::Owned(masked) = self.bytes(text.as_bytes())
            && masked != text.as_bytes()
        {
            *text = String::from_utf8_lossy(&masked).into_owned();
        }
    }

    /// Masks every text of a JSON document.
    pub(crate) fn mask_json(&self, value: &mut serde_json::Value) {
        use serde_json::Value;
        match value {
            Value::String(text) => self.mask(text),
            Value::Array(list) => list.iter_mut().for_each(|item| self.mask_json(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.mask_json(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Whether a part of a text may be masked, so that it is not known exactly.
pub(crate) fn is_masked(text: &str) -> bool {
    text.contains("***")
}

#[cfg(test)]
mod tests;
