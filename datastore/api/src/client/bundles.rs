//! Bundles of repositories.

use std::path::Path;

use reqwest::Method;

use super::call::bundle_call;
use super::error::ClientError;
use super::http::{Client, Condition};
use super::transfer::{Download, Upload};
use crate::digest::Sha256;
use crate::key::BundleKey;

impl Client {
    /// Stores the bundle of a commit.
    pub async fn put_bundle(&self, key: &BundleKey, upload: &Upload) -> Result<(), ClientError> {
        self.put(&bundle_call(Method::PUT, key), upload, Condition::Replace).await
    }

    /// Starts reading a bundle. `None`: the bundle does not exist.
    pub async fn get_bundle(&self, key: &BundleKey) -> Result<Option<Download>, ClientError> {
        self.get(&bundle_call(Method::GET, key)).await
    }

    /// Reads a bundle into a new file of mode 0600. `None`: the bundle does not exist, and no file was created.
    pub async fn save_bundle(
        &self,
        key: &BundleKey,
        to: &Path,
    ) -> Result<Option<Sha256>, ClientError> {
        self.save(&bundle_call(Method::GET, key), None, to).await
    }
}
