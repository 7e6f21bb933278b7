//! Files of attempts, and runs of a layer.

use std::path::Path;

use reqwest::Method;

use super::call::{Call, file_call};
use super::error::ClientError;
use super::http::{Client, Condition};
use super::transfer::{Download, Upload};
use crate::digest::Sha256;
use crate::key::{Attempt, File, RunKey, Runs};
use crate::name::Name;

impl Client {
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

    /// Starts reading one file of an attempt; without a number, of the latest. `None`: the file does not exist. A log is
    /// returned as Burrito's JSON (`{"results": [line, ...]}`), any other file as it was stored.
    pub async fn get_file(
        &self,
        run: &RunKey,
        attempt: Option<Attempt>,
        file: &File,
    ) -> Result<Option<Download>, ClientError> {
        self.get(&file_call(Method::GET, run, attempt, file)).await
    }

    /// Reads one file of an attempt into a new file of mode 0600, and returns its digest.
    /// `None`: the file does not exist, and none was created.
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

    /// One page of a layer's runs, newest first.
    pub async fn runs(
        &self,
        namespace: &Name,
        layer: &Name,
        cursor: Option<&str>,
    ) -> Result<Runs, ClientError> {
        let mut query = vec![("namespace", namespace.to_string()), ("layer", layer.to_string())];
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get_json(&Call { method: Method::GET, path: "/api/runs".into(), query }).await
    }
}
