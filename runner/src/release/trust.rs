//! Whose signature counts for which tool, and where the keys come from.
//!
//! `HashiCorp`'s key is part of the program. `OpenTofu`'s is known by its fingerprint, fetched once and
//! kept. Keyrings of the user count for every tool.

use std::path::PathBuf;

use fs_err as fs;

use super::Releases;
use super::error::ReleaseError;
use super::http::shown;
use super::memory::{private_dir, replace};
use super::signature::{
    HASHICORP, HASHICORP_FINGERPRINT, Keys, OPENTOFU_FINGERPRINT, SignatureError,
};
use super::site::{Files, is_signed};
use crate::version::{ToolName, Version};

const OPENTOFU_KEY: &str = "https://get.opentofu.org/opentofu.asc";
const MAX_SIGNATURE: u64 = 1 << 20;

impl Releases {
    /// Whether the sums are signed as they have to be. The first of the signatures was asked for
    /// already; the first that is good will do, else what is wrong with the first is told.
    pub(super) async fn check(
        &self,
        tool: ToolName,
        version: &Version,
        files: &Files,
        sums: &[u8],
        first: Result<Vec<u8>, ReleaseError>,
    ) -> Result<(), ReleaseError> {
        let mut first = Some(first);
        let mut refusal = None;
        for url in &files.signature_urls {
            let signature = match first.take() {
                Some(signature) => signature,
                None => self.http.get(url, MAX_SIGNATURE).await,
            };
            let error = match signature {
                Ok(signature) => match self.verify(tool, url, sums, &signature).await {
                    Err(error @ ReleaseError::Signature { .. }) => error,
                    outcome => return outcome,
                },
                Err(ReleaseError::NotFound(url)) => ReleaseError::NoSignature(url, tool),
                Err(error) => return Err(error),
            };
            refusal.get_or_insert(error);
        }
        match refusal {
            Some(ReleaseError::NoSignature(url, _))
                if !is_signed(tool, version) && !self.args.require_signature =>
            {
                tracing::warn!(
                    "{tool} {version} was never signed; only its digest is checked: no {url}"
                );
                Ok(())
            }
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    async fn verify(
        &self,
        tool: ToolName,
        url: &str,
        sums: &[u8],
        signature: &[u8],
    ) -> Result<(), ReleaseError> {
        let refused = |source| ReleaseError::Signature { url: shown(url), tool, source };
        let mut keys = self.keyring()?;
        match tool {
            ToolName::Terraform => {
                keys.add(Keys::parse(HASHICORP).map_err(refused)?.only(HASHICORP_FINGERPRINT));
            }
            ToolName::Tofu => keys.add(self.kept_opentofu_key().unwrap_or_default()),
        }
        let mut outcome = keys.verify(sums, signature);
        if let Err(SignatureError::UnknownKey(_)) = outcome
            && tool == ToolName::Tofu
            && !keys.has(OPENTOFU_FINGERPRINT)
        {
            keys.add(self.fetch_opentofu_key(url).await?);
            outcome = keys.verify(sums, signature);
        }
        let fingerprint = outcome.map_err(refused)?;
        tracing::debug!("{} is signed by {fingerprint}", shown(url));
        Ok(())
    }

    fn keyring(&self) -> Result<Keys, ReleaseError> {
        let mut keys = Keys::default();
        for path in &self.args.keyring {
            let broken = |source| ReleaseError::Keyring { path: path.clone(), source };
            keys.add(
                Keys::parse(&fs::read(path).map_err(ReleaseError::Unreadable)?).map_err(broken)?,
            );
        }
        Ok(keys)
    }

    fn opentofu_key_file(&self) -> Option<PathBuf> {
        Some(self.cache.as_ref()?.join("keys").join(format!("{OPENTOFU_FINGERPRINT}.asc")))
    }

    /// Checked as if it had just been fetched.
    fn kept_opentofu_key(&self) -> Option<Keys> {
        let bytes = fs::read(self.opentofu_key_file()?).ok()?;
        pinned(&bytes)
    }

    async fn fetch_opentofu_key(&self, signature: &str) -> Result<Keys, ReleaseError> {
        let fingerprint = OPENTOFU_FINGERPRINT;
        let missing = |source| ReleaseError::NoKey {
            signature: shown(signature),
            fingerprint,
            source: Box::new(source),
        };
        let bytes = self.http.get(OPENTOFU_KEY, MAX_SIGNATURE).await.map_err(missing)?;
        let wrong = || ReleaseError::WrongKey { url: OPENTOFU_KEY.to_owned(), fingerprint };
        let keys = pinned(&bytes).ok_or_else(wrong)?;
        if let Some(file) = self.opentofu_key_file()
            && let Some(dir) = file.parent()
            && let Err(error) = private_dir(dir).and_then(|()| replace(&file, &bytes))
        {
            tracing::debug!("not keeping {}: {error}", file.display());
        }
        Ok(keys)
    }
}

/// `OpenTofu`'s key among these bytes, whatever else is there.
fn pinned(bytes: &[u8]) -> Option<Keys> {
    let keys = Keys::parse(bytes).ok()?.only(OPENTOFU_FINGERPRINT);
    keys.has(OPENTOFU_FINGERPRINT).then_some(keys)
}
