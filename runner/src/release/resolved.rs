//! What a request resolves to: a version, where it comes from, and the installed binary.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use datastore_api::Sha256;

use crate::release::install::store::Lock;
use crate::version::{Reason, ToolName, Version, Wanted};

/// A version that will do, not yet at hand.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// What it will do for, and all that led to it.
    pub(crate) wanted: Wanted,
    pub(crate) version: Version,
    pub(crate) source: Source,
    /// The versions that it was chosen from; none if it was asked for by its number.
    pub(crate) candidates: Vec<Version>,
}

/// Where a tool comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// It is installed below this directory; and why nothing newer was looked for, where that was to be.
    Installed(PathBuf, Option<String>),
    /// It has to be downloaded from here.
    Download(String),
    /// It is a program on `PATH`; and why that.
    Path(PathBuf, String),
}

/// A tool that can be started, and was checked.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) tool: ToolName,
    pub(crate) version: Version,
    /// Its binary.
    pub(crate) path: PathBuf,
    /// The digest of its binary.
    pub(crate) sha256: Sha256,
    /// Where it comes from, and why, for people.
    pub(crate) source: String,
    /// Keeps it from being removed as long as somebody may start it.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) protection: Option<Arc<Lock>>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installed(dir, None) => write!(f, "installed before in {}", dir.display()),
            Self::Installed(dir, Some(reason)) => {
                write!(f, "installed before in {}: {reason}", dir.display())
            }
            Self::Download(url) => f.write_str(url),
            Self::Path(_, reason) => write!(f, "on PATH: {reason}"),
        }
    }
}

impl Choice {
    pub(in crate::release) fn new(
        wanted: &Wanted,
        version: Version,
        source: Source,
        reason: Option<Reason>,
    ) -> Self {
        let mut wanted = wanted.clone();
        wanted.why.extend(reason);
        Self { wanted, version, source, candidates: Vec::new() }
    }
}

impl Installed {
    pub(in crate::release) fn new(
        choice: &Choice,
        path: PathBuf,
        sha256: Sha256,
        source: String,
    ) -> Self {
        let (tool, version) = (choice.wanted.tool, choice.version.clone());
        Self { tool, version, path, sha256, source, protection: None }
    }
}
