//! Objects whose stored bytes have changed: the datastore answers 500, or breaks a large one off.

use reqwest::header::RANGE;

use super::call::Call;
use super::transfer::{Download, Progress};
use super::transport::transport;
use super::{Client, ClientError};
use crate::digest::{Hasher, Sha256};

/// With this header a datastore says that the stored bytes have changed.
pub(super) const HEADER: &str = "plancha-damaged";

/// The digests of an object whose stored bytes have changed, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Of the bytes that were stored.
    pub expected: Option<Sha256>,
    /// Of the bytes that are there now.
    pub actual: Option<Sha256>,
}

impl Digests {
    pub(super) fn shown(&self) -> String {
        let name = |sha256: Option<Sha256>| {
            sha256.map_or_else(|| "not known".to_owned(), |sha256| sha256.to_string())
        };
        match (self.expected, self.actual) {
            (None, None) => String::new(),
            (expected, actual) => {
                format!(": their sha256 is {}, it was {}", name(actual), name(expected))
            }
        }
    }
}

impl Client {
    /// What the datastore means that says so itself.
    pub(super) async fn damaged(&self, call: &Call) -> ClientError {
        // A part is not compared. Where not even that can be had, the digest stays unknown.
        let digests = Box::pin(self.digests(call)).await.unwrap_or_default();
        ClientError::Damaged { call: self.name(call), digests }
    }

    /// Why an answer has ended with `error`: its bytes have changed, or else that error itself.
    pub(super) async fn broken_off(
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

    /// Reads the object in two parts, which the datastore does not compare with its digest.
    async fn digests(&self, call: &Call) -> Result<Digests, ClientError> {
        let (mut hasher, mut expected) = (Hasher::default(), None);
        for range in ["bytes=0-0", "bytes=1-"] {
            let progress = Progress::default();
            let request = self.request(call)?.header(RANGE, range);
            let name = self.name(call);
            let limit = self.0.silence.limit(&name, &progress, request.send());
            let answered = limit.await?.and_then(reqwest::Response::error_for_status);
            let response = answered.map_err(|error| transport(name.clone(), error))?;
            let part = Download::new(self.clone(), name, response, progress)?;
            expected = expected.or(part.expected());
            let mut part = part.of_part();
            while let Some(piece) = part.piece().await? {
                hasher.update(&piece);
            }
        }
        Ok(Digests { expected, actual: Some(hasher.finish()) })
    }
}
