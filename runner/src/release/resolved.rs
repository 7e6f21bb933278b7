//! What a request resolves to: a version, where it comes from, and the installed binary.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use datastore_api::Sha256;

use crate::release::install::store::Lock;
use crate::version::{Finding, ToolName, Version, Wanted};

/// A version that satisfies a request, not yet installed or verified.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// The request, and how the version was found.
    pub(crate) wanted: Wanted,
    pub(crate) version: Version,
    pub(crate) source: Source,
    /// The versions that were considered; empty for an exact request.
    pub(crate) candidates: Vec<Version>,
}

/// Where a tool comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Installed below this directory; with the reason if a newer version could not be looked up.
    Installed(PathBuf, Option<String>),
    /// To be downloaded from this URL.
    Download(String),
    /// A program on `PATH`, with the reason why it is used.
    Path(PathBuf, String),
}

/// A tool whose binary was verified and can be started.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) tool: ToolName,
    pub(crate) version: Version,
    /// Its binary.
    pub(crate) path: PathBuf,
    /// The digest of its binary.
    pub(crate) sha256: Sha256,
    /// Where it comes from and why, for messages.
    pub(crate) source: String,
    /// Keeps `tools prune` from removing it while the run lives.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) protection: Option<Arc<Lock>>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installed(dir, None) => write!(f, "already installed in {}", dir.display()),
            Self::Installed(dir, Some(reason)) => {
                write!(f, "already installed in {}: {reason}", dir.display())
            }
            Self::Download(url) => f.write_str(url),
            Self::Path(_, reason) => write!(f, "on PATH: {reason}"),
        }
    }
}

impl Resolved {
    pub(in crate::release) fn new(
        wanted: &Wanted,
        version: Version,
        source: Source,
        reason: Option<Finding>,
    ) -> Self {
        let mut wanted = wanted.clone();
        wanted.trace.extend(reason);
        Self { wanted, version, source, candidates: Vec::new() }
    }
}

impl Installed {
    pub(in crate::release) fn new(
        resolved: &Resolved,
        path: PathBuf,
        sha256: Sha256,
        source: String,
    ) -> Self {
        let (tool, version) = (resolved.wanted.tool, resolved.version.clone());
        Self { tool, version, path, sha256, source, protection: None }
    }
}
