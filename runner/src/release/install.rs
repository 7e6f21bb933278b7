//! Installing a version: download, digest, signature, unpack, rename.

use std::fs::File;
use std::path::PathBuf;

use datastore_api::Sha256;

use super::error::ReleaseError;
use super::http::shown;
use super::memory::{self, Recollection};
use super::site::{Files, Site};
use super::store::{Lock, Store};
use super::unpack::{UnpackError, unpack};
use super::{Choice, Installed, Releases, Source, no_such_version, offline};
use crate::version::{ToolName, Version};

const MAX_SUMS: u64 = 4 << 20;
const MAX_ARCHIVE: u64 = 1 << 30;

impl Releases {
    /// Brings the chosen version to hand. Where no connection can be had, a program on `PATH` that
    /// will do as well is taken.
    pub(crate) async fn install(&self, choice: &Choice) -> Result<Installed, ReleaseError> {
        if let Source::Path(path, _) = &choice.source {
            return self.program(choice, path.clone()).await;
        }
        let store = self.store(choice.wanted.tool);
        if store.has(&choice.version) {
            return self.installed_before(choice, &store).await;
        }
        let outcome = if self.args.offline {
            Err(offline(&choice.wanted))
        } else {
            Box::pin(self.install_now(choice, &store)).await
        };
        match outcome {
            Err(error) if error.is_unreachable() => {
                let choice = self.path_or(&choice.wanted, error).await?;
                match &choice.source {
                    Source::Path(path, _) => self.program(&choice, path.clone()).await,
                    _ => Err(offline(&choice.wanted)),
                }
            }
            outcome => outcome,
        }
    }

    /// An installed binary: it must still be what was installed.
    async fn installed_before(
        &self,
        choice: &Choice,
        store: &Store,
    ) -> Result<Installed, ReleaseError> {
        let path = store.binary(&choice.version);
        let sha256 = match self.memory.recall(&path)? {
            Recollection::Same(known) => known.sha256,
            Recollection::Touched(known) => {
                let actual = digest(path.clone()).await?;
                if actual != known.sha256 {
                    return Err(ReleaseError::Changed { path, recorded: known.sha256, actual });
                }
                self.memory.remember(&path, &choice.version, actual);
                actual
            }
            Recollection::Unknown => {
                let sha256 = digest(path.clone()).await?;
                self.memory.remember(&path, &choice.version, sha256);
                sha256
            }
        };
        let source = Source::Installed(store.dir().to_owned()).to_string();
        Ok(Installed::new(choice, path, sha256, source))
    }

    async fn install_now(&self, choice: &Choice, store: &Store) -> Result<Installed, ReleaseError> {
        let Choice { wanted, version, .. } = choice;
        if let Some(cache) = self.cache.as_ref().filter(|cache| self.bin_dir.starts_with(cache)) {
            memory::private_dir(cache)?;
        }
        let lock = store.lock(version).await?;
        if store.has(version) {
            return self.installed_before(choice, store).await;
        }
        let files = Site::new(wanted.tool, &self.args)?.files(version);
        let url = shown(&files.archive_url);
        tracing::info!("downloading {url}");
        let archive = store.archive()?;
        let downloads = async {
            tokio::try_join!(
                self.http.download(&files.archive_url, MAX_ARCHIVE, &archive),
                self.sums(wanted.tool, version, &files),
            )
        };
        let (actual, sums) = match downloads.await {
            Err(ReleaseError::NotFound(url)) => return Err(self.explain(choice, url).await),
            other => other?,
        };
        let expected = listed(&sums, &files)?;
        if actual != expected {
            return Err(ReleaseError::WrongDigest { url, expected, actual });
        }
        let (path, sha256) =
            unpacked(lock, store.clone(), archive, wanted.tool, version, url.clone()).await?;
        self.memory.remember(&path, version, sha256);
        Ok(Installed::new(choice, path, sha256, url))
    }

    /// The sums of a version, signed as they have to be.
    async fn sums(
        &self,
        tool: ToolName,
        version: &Version,
        files: &Files,
    ) -> Result<Vec<u8>, ReleaseError> {
        let (sums, signature) = tokio::join!(
            self.http.get(&files.sums_url, MAX_SUMS),
            self.http.get(&files.signature_urls[0], MAX_SUMS),
        );
        let sums = sums?;
        self.check(tool, version, files, &sums, signature).await?;
        Ok(sums)
    }

    /// A file that is not there: the version is not, or only this file of it.
    async fn explain(&self, choice: &Choice, url: String) -> ReleaseError {
        let Choice { wanted, version, .. } = choice;
        match self.list(wanted.tool, true).await {
            Ok(list) if !list.is_old && list.versions.contains(version) => {
                ReleaseError::NoSuchFile { tool: wanted.tool, version: version.clone(), url }
            }
            Ok(list) if !list.is_old => no_such_version(wanted, &list),
            _ => ReleaseError::NotFound(url),
        }
    }
}

impl Installed {
    pub(super) fn new(choice: &Choice, path: PathBuf, sha256: Sha256, source: String) -> Self {
        let (tool, version) = (choice.wanted.tool, choice.version.clone());
        Self { tool, version, path, sha256, source }
    }
}

/// The digest that the sums have for the archive: the line of exactly that name.
fn listed(sums: &[u8], files: &Files) -> Result<Sha256, ReleaseError> {
    let missing =
        || ReleaseError::NoDigest { url: shown(&files.sums_url), file: files.archive.clone() };
    let text = str::from_utf8(sums).map_err(|_| missing())?;
    let digest = text.lines().find_map(|line| {
        let (digest, name) = line.split_once("  ")?;
        (name.trim_end() == files.archive).then_some(digest)
    });
    digest.and_then(|digest| digest.parse().ok()).ok_or_else(missing)
}

/// The binary under its name, and its digest. The archive was checked. The lock goes along: this goes
/// on even when nobody waits for it any more.
async fn unpacked(
    lock: Lock,
    store: Store,
    archive: File,
    tool: ToolName,
    version: &Version,
    url: String,
) -> Result<(PathBuf, Sha256), ReleaseError> {
    let version = version.clone();
    blocking(move || {
        let _lock = lock;
        let mut binary = store.unfinished(&version)?;
        let program = tool.program();
        let sha256 = match unpack(&archive, program, binary.as_file_mut()) {
            Ok(sha256) => sha256,
            Err(UnpackError::Write(error)) => return Err(error.into()),
            Err(UnpackError::Refused(reason)) => {
                return Err(ReleaseError::Archive { url, program, reason });
            }
        };
        Ok((store.finish(&version, binary)?, sha256))
    })
    .await
}

pub(super) async fn digest(path: PathBuf) -> Result<Sha256, ReleaseError> {
    blocking(move || Ok(memory::digest(&path)?)).await
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
    fn the_digest_is_that_of_the_very_name() {
        let files = Files {
            archive: "tofu_1.6.0_linux_amd64.zip".into(),
            archive_url: String::new(),
            sums_url: "URL".into(),
            signature_urls: vec![],
        };
        let [a, b] = [Sha256::of(b"a"), Sha256::of(b"b")];
        let sums = format!("{a}  x_tofu_1.6.0_linux_amd64.zip\n{b}  tofu_1.6.0_linux_amd64.zip\n");
        assert_eq!(listed(sums.as_bytes(), &files).unwrap(), b);
        for sums in ["", "x  tofu_1.6.0_linux_amd64.zip", "tofu_1.6.0_linux_amd64.zip", "\u{ff}"] {
            listed(sums.as_bytes(), &files).unwrap_err();
        }
        listed(format!("{a}  tofu_1.6.0_linux_amd64.zip.sbom").as_bytes(), &files).unwrap_err();
    }
}
