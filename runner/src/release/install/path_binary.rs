//! A program on `PATH`: used only where no connection is possible.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::release::error::ReleaseError;
use crate::release::install::digest_cache::CacheEntry;
use crate::release::install::installer::digest;
use crate::release::install::probe::probe;
use crate::release::install::store::is_program;
use crate::release::releases::Releases;
use crate::release::resolved::{Installed, Resolved, Source};
use crate::version::{Finding, ToolName, Version, Wanted};

impl Releases {
    /// Whether a program on `PATH` satisfies the request.
    pub(in crate::release) async fn has_on_path(
        &self,
        wanted: &Wanted,
    ) -> Result<bool, ReleaseError> {
        let Some(path) = find(&self.path, wanted.tool) else { return Ok(false) };
        let version = self.version_of(&path, wanted).await?;
        Ok(version.is_some_and(|version| wanted.request.allows(&version)))
    }

    /// Resolves the request to a program on `PATH`, or returns `error`, the reason for trying.
    pub(in crate::release) async fn fall_back_to_path(
        &self,
        wanted: &Wanted,
        error: ReleaseError,
    ) -> Result<Resolved, ReleaseError> {
        let Some(path) = find(&self.path, wanted.tool) else { return Err(error) };
        let Some(version) = self.version_of(&path, wanted).await? else {
            tracing::warn!("{} does not print its version", path.display());
            return Err(error);
        };
        if !wanted.request.allows(&version) {
            let (path, request) = (path.display(), &wanted.request);
            tracing::info!("{path} is {version}, which does not match `{request}`");
            return Err(error);
        }
        let reason = match &error {
            ReleaseError::Offline { .. } => "--offline forbids network access".to_owned(),
            error => error.to_string(),
        };
        let found = Finding::new(path.display(), format!("is {version}"));
        Ok(Resolved::new(wanted, version, Source::Path(path, reason), Some(found)))
    }

    /// The version of a program. A wrapper that selects another program is started in the directory of the run, every
    /// time; the answer of any other program is cached.
    async fn version_of(
        &self,
        path: &Path,
        wanted: &Wanted,
    ) -> Result<Option<Version>, ReleaseError> {
        if hands_on(path, wanted.tool) {
            let dir = fs::canonicalize(&wanted.dir).unwrap_or_else(|_| PathBuf::from("/"));
            return Ok(probe(path, wanted.tool, dir).await);
        }
        if let CacheEntry::Unchanged(known) = self.digest_cache.get(path)? {
            return Ok(Some(known.version));
        }
        let version = probe(path, wanted.tool, PathBuf::from("/")).await;
        if let Some(version) = &version {
            self.digest_cache.insert(path, version, digest(path.to_owned()).await?);
        }
        Ok(version)
    }

    /// The program on `PATH` with its current digest.
    pub(in crate::release) async fn program(
        &self,
        resolved: &Resolved,
        path: PathBuf,
    ) -> Result<Installed, ReleaseError> {
        let sha256 = match self.digest_cache.get(&path)? {
            CacheEntry::Unchanged(known) => known.sha256,
            _ => digest(path.clone()).await?,
        };
        Ok(Installed::new(resolved, path, sha256, resolved.source.to_string()))
    }
}

/// The first program of that name in the absolute directories of `PATH`.
fn find(path: &OsStr, tool: ToolName) -> Option<PathBuf> {
    let directories = std::env::split_paths(path).filter(|directory| directory.is_absolute());
    directories.map(|directory| directory.join(tool.program())).find(|path| is_program(path))
}

/// Whether a program may be a wrapper (tenv, tfenv, asdf), whose version depends on the working directory: a script, a
/// link to a program of another name, or a file beside tenv.
fn hands_on(path: &Path, tool: ToolName) -> bool {
    let mut magic = [0; 2];
    let is_script = fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut magic))
        .map_or(true, |()| magic == *b"#!");
    let Ok(real) = fs::canonicalize(path) else { return true };
    let other_name = !real
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(tool.program().as_bytes()));
    let beside_tenv = [path, &real].iter().any(|path| path.with_file_name("tenv").exists());
    is_script || other_name || beside_tenv
}
