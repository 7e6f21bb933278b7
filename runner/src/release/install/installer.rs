//! Installs a version: download, digest, signature, unpack, rename.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use datastore_api::{Sha256, chain};

use crate::release::cache_file::private_dir;
use crate::release::download::url::shown;
use crate::release::error::ReleaseError;
use crate::release::install::digest_cache::{self, CacheEntry};
use crate::release::install::probe::check_version;
use crate::release::install::store::{Lock, Store};
use crate::release::install::unpack::{UnpackError, copy, unpack};
use crate::release::releases::Releases;
use crate::release::resolved::{Installed, Resolved, Source};
use crate::release::select::{no_such_version, offline};
use crate::release::verify::keys::Signed;
use crate::release::versions::site::{Archive, Files, Form};
use crate::version::{Request, ToolName, Version, Wanted};

const MAX_SUMS: u64 = 4 << 20;
const MAX_ARCHIVE: u64 = 1 << 30;

impl Releases {
    /// Installs the resolved version, or verifies it if it is installed. Where no connection is possible, a
    /// program on `PATH` that satisfies the request is used instead.
    pub(crate) async fn install(&self, resolved: &Resolved) -> Result<Installed, ReleaseError> {
        if let Source::Path(path, _) = &resolved.source {
            return self.program(resolved, path.clone()).await;
        }
        let store = self.store(resolved.wanted.tool);
        if let Some(store) = &store
            && let Some(installed) = self.installed_before(resolved, store).await?
        {
            return Ok(installed);
        }
        let outcome = if self.is_offline(resolved.wanted.tool)? {
            Err(offline(&resolved.wanted))
        } else {
            let store = store.ok_or(ReleaseError::Nowhere)?;
            let has_alternative = !self.args.refresh && self.has_on_path(&resolved.wanted).await?;
            self.http.set_fail_fast(has_alternative);
            let outcome = Box::pin(self.install_now(resolved, &store)).await;
            self.http.set_fail_fast(false);
            let what = format!("{} {}", resolved.wanted.tool, resolved.version);
            outcome.map_err(|error| error.with_target(&what, store.dir()))
        };
        match outcome {
            Err(error) if error.is_unreachable() => self.use_path(&resolved.wanted, error).await,
            outcome => outcome,
        }
    }

    /// Like [`Self::install`], but a run needs no installation: where there is no directory for tools, or it cannot be
    /// written, a program on `PATH` that satisfies the request is used.
    pub(crate) async fn install_for_run(
        &self,
        resolved: &Resolved,
    ) -> Result<Installed, ReleaseError> {
        match self.install(resolved).await {
            Err(error) if error.is_unwritable() => {
                let why = chain(&error);
                let installed = self.use_path(&resolved.wanted, error).await?;
                let (tool, version, path) =
                    (installed.tool, &installed.version, installed.path.display());
                tracing::warn!("{why}; {path} is used, which is {tool} {version}");
                Ok(installed)
            }
            outcome => outcome,
        }
    }

    /// The program on `PATH` that satisfies the request, or `error`, the reason for trying.
    async fn use_path(
        &self,
        wanted: &Wanted,
        error: ReleaseError,
    ) -> Result<Installed, ReleaseError> {
        let resolved = self.fall_back_to_path(wanted, error).await?;
        match &resolved.source {
            Source::Path(path, _) => self.program(&resolved, path.clone()).await,
            _ => Err(offline(wanted)),
        }
    }

    /// Computes the digest of an installed binary that is not in the digest cache, so that [`Self::install`]
    /// finds it there. Errors are left to `install`.
    pub(crate) async fn hash_ahead(&self, tool: ToolName, version: &str) {
        let Ok(Request::Exact(version)) = version.trim().parse::<Request>() else { return };
        let Some(store) = self.store(tool) else { return };
        let path = store.binary(&version);
        if let Ok(CacheEntry::Missing) = self.digest_cache.get(&path)
            && let Ok(recorded) = store.recorded(&version)
            && let Ok(sha256) = digest(path.clone()).await
            && recorded.is_none_or(|recorded| recorded == sha256)
        {
            self.digest_cache.insert(&path, &version, sha256);
        }
    }

    /// Verifies an installed binary against the digest recorded beside it and against this user's digest cache.
    /// A binary without a record is accepted, and recorded if the directory is writable. `None` if it is not installed.
    async fn installed_before(
        &self,
        resolved: &Resolved,
        store: &Store,
    ) -> Result<Option<Installed>, ReleaseError> {
        if !store.has(&resolved.version) {
            return Ok(None);
        }
        let protection = store.protect(&resolved.version).await.map(Arc::new);
        // Another process may have removed it before it was protected.
        if !store.has(&resolved.version) {
            return Ok(None);
        }
        let path = store.binary(&resolved.version);
        let recorded = store.recorded(&resolved.version)?;
        let known = self.digest_cache.get(&path)?;
        let (sha256, remembered) = match &known {
            CacheEntry::Unchanged(known) => (known.sha256, None),
            CacheEntry::Changed(known) => (digest(path.clone()).await?, Some(known.sha256)),
            CacheEntry::Missing => (digest(path.clone()).await?, None),
        };
        let mut expected = [recorded, remembered].into_iter().flatten();
        if let Some(recorded) = expected.find(|expected| *expected != sha256) {
            return Err(ReleaseError::Changed { path, recorded, actual: sha256 });
        }
        if !matches!(known, CacheEntry::Unchanged(_)) {
            self.digest_cache.insert(&path, &resolved.version, sha256);
        }
        if recorded.is_none()
            && let Err(error) = store.record(&resolved.version, sha256)
        {
            tracing::debug!("the digest of {} is not recorded: {error}", path.display());
        }
        store.used(&resolved.version);
        let source = match &resolved.source {
            source @ Source::Installed(..) => source.to_string(),
            // Another process has installed it in the meantime.
            _ => Source::Installed(store.dir().to_owned(), None).to_string(),
        };
        Ok(Some(Installed { protection, ..Installed::new(resolved, path, sha256, source) }))
    }

    async fn install_now(
        &self,
        resolved: &Resolved,
        store: &Store,
    ) -> Result<Installed, ReleaseError> {
        let Resolved { wanted, version, .. } = resolved;
        if let Some(cache) = self.cache.as_ref().filter(|cache| store.dir().starts_with(cache)) {
            private_dir(cache)?;
        }
        let files = self.site(wanted.tool)?.files(version);
        // Again if another process removes it before it is protected.
        let mut tries = 3;
        loop {
            let lock = store.lock(version).await?;
            if store.has(version) {
                drop(lock);
                if let Some(installed) = self.installed_before(resolved, store).await? {
                    return Ok(installed);
                }
                continue;
            }
            let archive = store.archive()?;
            let Fetched { archive: Archive { url, form, .. }, .. } =
                self.fetch(resolved, &files, &archive).await?;
            let url = shown(&url);
            let (path, sha256) =
                unpacked(lock, store.clone(), archive, wanted.tool, version, form, url.clone())
                    .await?;
            let protection = store.protect(version).await.map(Arc::new);
            tries -= 1;
            if tries == 0 || store.has(version) {
                self.digest_cache.insert(&path, version, sha256);
                store.used(version);
                return Ok(Installed { protection, ..Installed::new(resolved, path, sha256, url) });
            }
        }
    }

    /// Downloads the archive into `file` and verifies it against the vendor's signed digests.
    pub(in crate::release) async fn fetch(
        &self,
        resolved: &Resolved,
        files: &Files,
        file: &File,
    ) -> Result<Fetched, ReleaseError> {
        let Resolved { wanted, version, .. } = resolved;
        if let Some(mode @ ("sha" | "none")) = self.tenv.validation.as_deref().map(str::trim) {
            tracing::warn!("TENV_VALIDATION={mode} is ignored: everything is always verified");
        }
        if !self.site(wanted.tool)?.has_sums(version) {
            return Err(ReleaseError::NoSums { tool: wanted.tool, version: version.clone() });
        }
        let downloads = async {
            tokio::try_join!(self.archive(files, file), self.sums(wanted.tool, version, files),)
        };
        let (found, (sums, signed)) = match downloads.await {
            Err(ReleaseError::NotFound(url)) => return Err(self.explain(resolved, url).await),
            other => other?,
        };
        let Some((archive, actual)) = found else {
            return Err(self.missing(resolved, files, &sums)?);
        };
        let expected = digest_in(&sums, &archive.name).ok_or_else(|| ReleaseError::NoDigest {
            url: shown(&files.sums_url),
            file: archive.name.clone(),
        })?;
        if actual != expected {
            return Err(ReleaseError::WrongDigest { url: shown(&archive.url), expected, actual });
        }
        Ok(Fetched { archive, sums, signed })
    }

    /// Downloads the first archive that exists; returns it with its digest.
    async fn archive(
        &self,
        files: &Files,
        file: &File,
    ) -> Result<Option<(Archive, Sha256)>, ReleaseError> {
        for archive in &files.archives {
            if !self.http.is_skipped(&archive.url) {
                tracing::info!("downloading {}", shown(&archive.url));
            }
            match self.http.download(&archive.url, MAX_ARCHIVE, file).await {
                Ok(digest) => return Ok(Some((archive.clone(), digest))),
                Err(ReleaseError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The digests of a version, with their signature verified, if the version is signed.
    async fn sums(
        &self,
        tool: ToolName,
        version: &Version,
        files: &Files,
    ) -> Result<(Vec<u8>, Option<Signed>), ReleaseError> {
        let (sums, signature) = tokio::join!(
            self.http.get(&files.sums_url, MAX_SUMS),
            self.http.get(&files.signature_urls[0], MAX_SUMS),
        );
        let sums = sums?;
        let signature = self.check(tool, version, files, &sums, signature).await?;
        Ok((sums, signature))
    }

    /// Why there is no archive although there are digests, by what the digests list.
    fn missing(
        &self,
        resolved: &Resolved,
        files: &Files,
        sums: &[u8],
    ) -> Result<ReleaseError, ReleaseError> {
        let (tool, version) = (resolved.wanted.tool, resolved.version.clone());
        let named = files.archives.iter().find(|archive| digest_in(sums, &archive.name).is_some());
        if let Some(archive) = named {
            return Ok(ReleaseError::NoSuchFile { tool, version, url: shown(&archive.url) });
        }
        let built = platforms(sums, tool, &version);
        if built.is_empty() {
            let file = files.archives.first().map(|archive| archive.name.clone());
            let (url, file) = (shown(&files.sums_url), file.unwrap_or_default());
            return Ok(ReleaseError::NoDigest { url, file });
        }
        let (platform, version) = (self.site(tool)?.platform, version.to_string());
        let sums_url = shown(&files.sums_url);
        Ok(ReleaseError::NoBuild { tool, version, platform, built, sums_url })
    }

    /// Whether a missing file means that the version does not exist, or only this file of it.
    async fn explain(&self, resolved: &Resolved, url: String) -> ReleaseError {
        let Resolved { wanted, version, .. } = resolved;
        match self.list(wanted.tool, true).await {
            Ok(list) if list.old.is_none() && list.versions.contains(version) => {
                ReleaseError::NoSuchFile { tool: wanted.tool, version: version.clone(), url }
            }
            Ok(list) if list.old.is_none() => no_such_version(wanted, &list),
            _ => ReleaseError::NotFound(url),
        }
    }
}

/// A downloaded and verified release.
pub(in crate::release) struct Fetched {
    pub(in crate::release) archive: Archive,
    pub(in crate::release) sums: Vec<u8>,
    pub(in crate::release) signed: Option<Signed>,
}

/// The digest of a file, from the line with exactly its name.
fn digest_in(sums: &[u8], file: &str) -> Option<Sha256> {
    let mut lines = str::from_utf8(sums).ok()?.lines();
    lines.find_map(|line| entry(line).filter(|(_, name)| *name == file)?.0.parse().ok())
}

/// The digest and file name of a line; `sha256sum --binary` puts an asterisk before the name.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (digest, name) = line.split_once(' ')?;
    let name = name.strip_prefix([' ', '*'])?;
    Some((digest, name.trim_end()))
}

/// The platforms whose files are listed: `darwin_amd64, linux_amd64`.
fn platforms(sums: &[u8], tool: ToolName, version: &Version) -> String {
    let prefix = match tool {
        ToolName::Terraform | ToolName::Tofu => format!("{tool}_{version}_"),
        ToolName::Terragrunt => format!("{tool}_"),
    };
    let names = str::from_utf8(sums).unwrap_or_default().lines();
    let platform = |line: &str| {
        let name = entry(line)?.1.strip_prefix(&prefix)?.to_owned();
        let name = name.strip_suffix(".zip").unwrap_or(&name).to_owned();
        let is_platform = name.split('_').count() == 2 && !name.contains('.');
        is_platform.then_some(name)
    };
    let platforms: std::collections::BTreeSet<_> = names.filter_map(platform).collect();
    platforms.into_iter().collect::<Vec<_>>().join(", ")
}

/// Unpacks the verified archive and installs the binary; returns its path and digest. It holds the lock itself, since it
/// continues even if the caller is cancelled.
async fn unpacked(
    lock: Lock,
    store: Store,
    archive: File,
    tool: ToolName,
    version: &Version,
    form: Form,
    url: String,
) -> Result<(PathBuf, Sha256), ReleaseError> {
    let version = version.clone();
    blocking(move || {
        let _lock = lock;
        let mut binary = store.unfinished(&version)?;
        let program = tool.program();
        let unpacked = match form {
            Form::Zip(entry) => unpack(&archive, &entry, binary.as_file_mut()),
            Form::Bare => copy(&archive, binary.as_file_mut()),
        };
        let sha256 = match unpacked {
            Ok(sha256) => sha256,
            Err(UnpackError::Write(error)) => return Err(error.into()),
            Err(UnpackError::Refused(reason)) => {
                return Err(ReleaseError::Archive { url, program, reason });
            }
        };
        let binary = Store::executable(binary)?;
        if tool == ToolName::Terragrunt && !version.is_bare_name() {
            tokio::runtime::Handle::current().block_on(check_version(&binary, &version, url))?;
        }
        Ok((store.finish(&version, binary, sha256)?, sha256))
    })
    .await
}

pub(in crate::release) async fn digest(path: PathBuf) -> Result<Sha256, ReleaseError> {
    blocking(move || Ok(digest_cache::digest(&path)?)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReleaseError> + Send + 'static,
) -> Result<T, ReleaseError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(std::io::Error::other(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_found_by_the_exact_file_name() {
        let name = "tofu_1.6.0_linux_amd64.zip";
        let [a, b] = [Sha256::of(b"a"), Sha256::of(b"b")];
        let sums = format!("{a}  x_tofu_1.6.0_linux_amd64.zip\n{b}  tofu_1.6.0_linux_amd64.zip\n");
        assert_eq!(digest_in(sums.as_bytes(), name), Some(b));
        let binary = format!("{a} *{name}.sbom\n{b} *{name}\r\n");
        assert_eq!(digest_in(binary.as_bytes(), name), Some(b));
        for sums in ["", "x  tofu_1.6.0_linux_amd64.zip", "tofu_1.6.0_linux_amd64.zip", "\u{ff}"] {
            assert_eq!(digest_in(sums.as_bytes(), name), None);
        }
        assert_eq!(digest_in(format!("{a}  {name}.sbom").as_bytes(), name), None);
    }

    #[test]
    fn the_digests_list_the_platforms_of_a_version() {
        let version: Version = "0.11.15".parse().unwrap();
        let sums =
            b"00  terraform_0.11.15_linux_amd64.zip\n00  terraform_0.11.15_darwin_amd64.zip\n\
            00  terraform_0.11.15_linux_amd64.zip.sbom\n00  other_linux_amd64.zip\n";
        let built = platforms(sums, ToolName::Terraform, &version);
        assert_eq!(built, "darwin_amd64, linux_amd64");
        let sums =
            b"00 *terragrunt_linux_386\n00  terragrunt_linux_386.zip\n00  terragrunt_x.txt\n";
        assert_eq!(platforms(sums, ToolName::Terragrunt, &version), "linux_386");
    }
}
