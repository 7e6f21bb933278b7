//! Which version satisfies a request, and where it comes from.
//!
//! A constraint is satisfied by an installed version without any request to a site, unless the lists are to
//! be fetched first. `latest` needs the list of published versions. A program on `PATH` is used only where
//! no connection is possible. A refusal, a wrong digest or a bad signature never leads to another version.

use std::fmt;
use std::path::PathBuf;

use crate::release::download::url::shown;
use crate::release::error::ReleaseError;
use crate::release::releases::Releases;
use crate::release::resolved::{Resolved, Source};
use crate::release::versions::fetch::{self, List};
use crate::version::{Finding, Request, Version, Wanted};

/// The installed version that satisfies a request.
struct InstalledVersion {
    /// The directory of the tool's versions.
    dir: PathBuf,
    version: Version,
    /// All installed versions.
    candidates: Vec<Version>,
}

impl Releases {
    /// Whether the list of versions is fetched before installed versions are considered.
    fn refresh_first(&self) -> Result<bool, ReleaseError> {
        let Some((name, text)) = &self.tenv.force_remote else { return Ok(self.args.refresh) };
        match text.trim() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(self.args.refresh),
            _ => {
                let (name, reason) = ((*name).to_owned(), "expected true or false".to_owned());
                Err(ReleaseError::Variable { name, reason })
            }
        }
    }

    /// Resolves a request to a version.
    pub(crate) async fn resolve(&self, wanted: &Wanted) -> Result<Resolved, ReleaseError> {
        if let Some([one, two]) = wanted.request.contradiction() {
            return Err(ReleaseError::Conflict { tool: wanted.tool, one, two });
        }
        let installed = || {
            let store = self.store(wanted.tool)?;
            let candidates = store.versions();
            let version = wanted.request.best(&candidates).cloned()?;
            Some(InstalledVersion { dir: store.dir().to_owned(), version, candidates })
        };
        match &wanted.request {
            Request::Exact(version) => {
                return self.resolved(wanted, version.clone(), Vec::new(), None);
            }
            Request::Highest(_) | Request::Lowest(_) if !self.refresh_first()? => {
                if let Some(InstalledVersion { version, candidates, .. }) = installed() {
                    return self.resolved(wanted, version, candidates, None);
                }
            }
            _ => {}
        }
        let list = if self.is_offline(wanted.tool)? {
            Err(offline(wanted))
        } else if !self.args.refresh && fetch::is_fresh(&self.site(wanted.tool)?, self.cache()) {
            self.list(wanted.tool, false).await
        } else {
            let has_alternative = installed().is_some() || self.has_on_path(wanted).await?;
            self.http.set_fail_fast(has_alternative && !self.args.refresh);
            let list = self.list(wanted.tool, self.args.refresh).await;
            self.http.set_fail_fast(false);
            list
        };
        let outage =
            |why: &dyn fmt::Display| format!("the list of versions cannot be updated: {why}");
        match list {
            Ok(list) => match list.old.as_ref().and_then(|old| Some((old, installed()?))) {
                Some((old, found)) => self.fall_back_to_installed(
                    wanted,
                    found,
                    Finding::new(&list.source, outage(old)),
                ),
                None => self.best_published(wanted, list),
            },
            Err(error) if error.is_unreachable() => match installed() {
                Some(found) => {
                    let place = found.dir.display().to_string();
                    let why = match &error {
                        ReleaseError::Offline { .. } => {
                            "--offline forbids network access".to_owned()
                        }
                        error => error.to_string(),
                    };
                    self.fall_back_to_installed(wanted, found, Finding::new(place, outage(&why)))
                }
                None => self.fall_back_to_path(wanted, error).await,
            },
            Err(error) => Err(error),
        }
    }

    /// Uses an installed version, and records why a newer one could not be looked up.
    fn fall_back_to_installed(
        &self,
        wanted: &Wanted,
        found: InstalledVersion,
        reason: Finding,
    ) -> Result<Resolved, ReleaseError> {
        let InstalledVersion { dir, version, candidates } = found;
        let why = Some(reason.text.clone());
        let resolved = self.resolved(wanted, version, candidates, Some(reason))?;
        let source = Source::Installed(dir, why);
        Ok(Resolved { source, ..resolved })
    }

    /// Whether this version is installed or has to be downloaded.
    fn resolved(
        &self,
        wanted: &Wanted,
        version: Version,
        candidates: Vec<Version>,
        reason: Option<Finding>,
    ) -> Result<Resolved, ReleaseError> {
        let store = self.store(wanted.tool).filter(|store| store.has(&version));
        let source = if let Some(store) = store {
            Source::Installed(store.dir().to_owned(), None)
        } else {
            let files = self.site(wanted.tool)?.files(&version);
            let first = files.archives.first();
            Source::Download(first.map_or_else(String::new, |archive| shown(&archive.url)))
        };
        Ok(Resolved { candidates, ..Resolved::new(wanted, version, source, reason) })
    }

    /// The best published version that satisfies the request.
    fn best_published(&self, wanted: &Wanted, list: List) -> Result<Resolved, ReleaseError> {
        let Some(version) = wanted.request.best(&list.versions).cloned() else {
            return Err(no_such_version(wanted, &list));
        };
        let says = format!("{version} is the best match of {} versions", list.versions.len());
        let reason = Finding::new(&list.source, says);
        self.resolved(wanted, version, list.versions, Some(reason))
    }
}

pub(in crate::release) fn no_such_version(wanted: &Wanted, list: &List) -> ReleaseError {
    ReleaseError::NoSuchVersion {
        tool: wanted.tool,
        request: wanted.request.to_string(),
        origin: wanted.origin.clone(),
        refusing: refusing(wanted, list).into(),
        nearest: list.nearest(&wanted.request),
        list: list.source.clone(),
    }
}

/// The constraints that conflict with each other, for the error message; empty if there are not several.
fn refusing(wanted: &Wanted, list: &List) -> String {
    match wanted.request.refusing(&list.versions).as_slice() {
        [] | [_] => String::new(),
        several => format!(": these conflict: {}", several.join("; ")),
    }
}

pub(in crate::release) fn offline(wanted: &Wanted) -> ReleaseError {
    let (tool, origin) = (wanted.tool, wanted.origin.clone());
    ReleaseError::Offline { tool, request: wanted.request.to_string(), origin }
}
