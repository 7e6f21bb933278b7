//! Which keys are trusted for which tool, and where they come from.
//!
//! `HashiCorp`'s key is part of the program. `OpenTofu`'s and Gruntwork's are pinned by fingerprint, fetched once from the
//! mirror or else from the vendor, and cached. The user's keyrings are trusted for every tool.

use std::path::PathBuf;

use fs_err as fs;

use crate::release::cache_file::{private_dir, replace};
use crate::release::download::url::shown;
use crate::release::error::ReleaseError;
use crate::release::releases::Releases;
use crate::release::verify::keyring;
use crate::release::verify::signature::{
    GRUNTWORK_FINGERPRINT, HASHICORP, HASHICORP_FINGERPRINT, Keys, OPENTOFU_FINGERPRINT,
    SignatureError,
};
use crate::release::versions::site::{Files, is_signed};
use crate::version::{ToolName, Version};

/// A vendor's key, pinned by its fingerprint.
#[derive(Clone, Copy)]
pub(in crate::release) struct Pin {
    pub(in crate::release) fingerprint: &'static str,
    /// The vendor's own URL of the key.
    url: &'static str,
}

const MAX_SIGNATURE: u64 = 1 << 20;

/// A verified signature.
pub(in crate::release) struct Signed {
    pub(in crate::release) url: String,
    pub(in crate::release) signature: Vec<u8>,
    /// The fingerprint of the key that made it.
    pub(in crate::release) by: String,
}

/// The pinned key of a tool's vendor; `None` where the key is part of the program.
pub(in crate::release) fn pin(tool: ToolName) -> Option<Pin> {
    match tool {
        ToolName::Terraform => None,
        ToolName::Tofu => Some(Pin {
            fingerprint: OPENTOFU_FINGERPRINT,
            url: "https://get.opentofu.org/opentofu.asc",
        }),
        ToolName::Terragrunt => Some(Pin {
            fingerprint: GRUNTWORK_FINGERPRINT,
            url: "https://gruntwork.io/.well-known/pgp-key.txt",
        }),
    }
}

impl Releases {
    /// Verifies the signature of the digests; `None` if a version that was never signed has none. `first` is the response
    /// for the first URL, which is requested together with the digests. The first valid signature is used; if there is
    /// none, the error is that of the first.
    pub(in crate::release) async fn check(
        &self,
        tool: ToolName,
        version: &Version,
        files: &Files,
        sums: &[u8],
        first: Result<Vec<u8>, ReleaseError>,
    ) -> Result<Option<Signed>, ReleaseError> {
        let mut first = Some(first);
        let mut refusal = None;
        for url in &files.signature_urls {
            let signature = match first.take() {
                Some(signature) => signature,
                None => self.http.get(url, MAX_SIGNATURE).await,
            };
            let error = match signature {
                Ok(signature) => match self.verify(tool, url, sums, &signature).await {
                    Ok(by) => return Ok(Some(Signed { url: url.clone(), signature, by })),
                    Err(error @ ReleaseError::Signature { .. }) => error,
                    Err(error) => return Err(error),
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
                Ok(None)
            }
            Some(error) => Err(error),
            None => Ok(None),
        }
    }

    async fn verify(
        &self,
        tool: ToolName,
        url: &str,
        sums: &[u8],
        signature: &[u8],
    ) -> Result<String, ReleaseError> {
        let refused = |source| ReleaseError::Signature { url: shown(url), tool, source };
        let mut keys = self.keyring(tool).await?;
        let mut fetchable = None;
        match pin(tool) {
            None => keys.add(Keys::parse(HASHICORP).map_err(refused)?.only(HASHICORP_FINGERPRINT)),
            Some(pin) => match self.cached_key(pin) {
                Some((kept, _)) => keys.add(kept),
                None => fetchable = Some(pin).filter(|pin| !keys.has(pin.fingerprint)),
            },
        }
        let mut outcome = keys.verify(sums, signature);
        if let Err(SignatureError::UnknownKey(_)) = outcome
            && let Some(pin) = fetchable
        {
            keys.add(self.fetch_key(tool, pin, url).await?.0);
            outcome = keys.verify(sums, signature);
        }
        let fingerprint = outcome.map_err(refused)?;
        tracing::debug!("{} is signed by {fingerprint}", shown(url));
        Ok(fingerprint)
    }

    /// The keys that the user trusts.
    async fn keyring(&self, tool: ToolName) -> Result<Keys, ReleaseError> {
        let mut keys = Keys::default();
        let named = self.tenv.mirror(tool).key.as_deref();
        let (urls, paths): (Vec<_>, Vec<_>) = named
            .into_iter()
            .partition(|key| key.starts_with("http://") || key.starts_with("https://"));
        for path in self.args.keyring.iter().cloned().chain(paths.into_iter().map(PathBuf::from)) {
            keys.add(keyring::read(&path)?);
        }
        for url in urls {
            let bytes = self.http.get(url, MAX_SIGNATURE).await?;
            let path = PathBuf::from(url);
            keys.add(Keys::parse(&bytes).map_err(|source| ReleaseError::Keyring { path, source })?);
        }
        Ok(keys)
    }

    fn key_file(&self, pin: Pin) -> Option<PathBuf> {
        Some(self.cache.as_ref()?.join("keys").join(format!("{}.asc", pin.fingerprint)))
    }

    /// The cached key, verified as if it had just been fetched.
    fn cached_key(&self, pin: Pin) -> Option<(Keys, Vec<u8>)> {
        let bytes = fs::read(self.key_file(pin)?).ok()?;
        Some((pinned(&bytes, pin)?, bytes))
    }

    /// The file of a pinned key.
    pub(in crate::release) async fn key_bytes(
        &self,
        tool: ToolName,
        pin: Pin,
        signature: &str,
    ) -> Result<Vec<u8>, ReleaseError> {
        match self.cached_key(pin) {
            Some((_, bytes)) => Ok(bytes),
            None => Ok(self.fetch_key(tool, pin, signature).await?.1),
        }
    }

    /// Fetches a pinned key; returns it with its bytes. Any source will do, since the fingerprint identifies the key.
    async fn fetch_key(
        &self,
        tool: ToolName,
        pin: Pin,
        signature: &str,
    ) -> Result<(Keys, Vec<u8>), ReleaseError> {
        let mirrored = match self.site(tool)?.key_url(pin.fingerprint) {
            Some(url) => self.http.get(&url, MAX_SIGNATURE).await.unwrap_or_default(),
            None => Vec::new(),
        };
        let (keys, bytes) = match pinned(&mirrored, pin) {
            Some(keys) => (keys, mirrored),
            None => self.vendor_key(pin).await.map_err(|error| match error {
                error @ ReleaseError::WrongKey { .. } => error,
                source => ReleaseError::NoKey {
                    signature: shown(signature),
                    fingerprint: pin.fingerprint,
                    source: Box::new(source),
                },
            })?,
        };
        if let Some(file) = self.key_file(pin)
            && let Some(dir) = file.parent()
            && let Err(error) = private_dir(dir).and_then(|()| replace(&file, &bytes))
        {
            tracing::debug!("cannot cache {}: {error}", file.display());
        }
        Ok((keys, bytes))
    }

    async fn vendor_key(&self, pin: Pin) -> Result<(Keys, Vec<u8>), ReleaseError> {
        let Pin { fingerprint, url } = pin;
        if self.args.offline {
            return Err(ReleaseError::NotFound(url.to_owned()));
        }
        let bytes = self.http.get(url, MAX_SIGNATURE).await?;
        let wrong = || ReleaseError::WrongKey { url: url.to_owned(), fingerprint };
        Ok((pinned(&bytes, pin).ok_or_else(wrong)?, bytes))
    }
}

/// The pinned key in a file, which may contain others.
fn pinned(bytes: &[u8], pin: Pin) -> Option<Keys> {
    let keys = Keys::parse(bytes).ok()?.only(pin.fingerprint);
    keys.has(pin.fingerprint).then_some(keys)
}
