//! Releases of the tools: which version will do, where it comes from, and installing it.
//!
//! What is wanted comes from [`crate::version`]. The order of sources: for a constraint an installed
//! version, without asking anybody (unless lists are to be asked now); for `latest` the list of
//! published versions; and only where no connection can be had a program on `PATH` that will do. A
//! refusal, a wrong digest or a bad signature is never answered by taking something else.

mod command;
mod error;
mod http;
mod install;
mod list;
mod memory;
mod path;
mod signature;
mod site;
mod store;
mod trust;
mod unpack;

pub(crate) use command::{install, print, resolve};
pub(crate) use error::{ErrorKind, ReleaseError};

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use datastore_api::Sha256;

use crate::config::{Environment, ToolArgs};
use crate::version::{Reason, Request, ToolName, Version, Wanted};
use http::Http;
use list::List;
use memory::Memory;
use site::Site;
use store::Store;

/// Where releases come from, and go to.
pub(crate) struct Releases {
    args: ToolArgs,
    bin_dir: PathBuf,
    /// Plancha's directory in the user's cache.
    cache: Option<PathBuf>,
    /// Where programs are looked for.
    path: OsString,
    memory: Memory,
    http: Http,
}

/// A version that will do, not yet at hand.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// What it will do for, and all that led to it.
    pub(crate) wanted: Wanted,
    pub(crate) version: Version,
    pub(crate) source: Source,
}

/// Where a tool comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// It is installed below this directory.
    Installed(PathBuf),
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
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installed(dir) => write!(f, "installed before in {}", dir.display()),
            Self::Download(url) => f.write_str(url),
            Self::Path(_, reason) => write!(f, "on PATH: {reason}"),
        }
    }
}

impl Releases {
    /// Touches neither disk nor network.
    pub(crate) fn new(args: &ToolArgs, environment: &Environment) -> Result<Self, ReleaseError> {
        let cache = environment.cache_home.as_ref().map(|home| home.join("plancha"));
        let in_cache = || cache.as_ref().map(|cache| cache.join("bin"));
        let bin_dir = args.bin_dir.clone().or_else(in_cache).ok_or(ReleaseError::Nowhere)?;
        Ok(Self {
            args: args.clone(),
            bin_dir: std::path::absolute(bin_dir)?,
            path: environment.path.clone(),
            memory: Memory::new(cache.clone()),
            http: Http::new(args.ca_file.clone()),
            cache,
        })
    }

    fn store(&self, tool: ToolName) -> Store {
        Store::new(&self.bin_dir, tool)
    }

    /// The version that will do.
    pub(crate) async fn choose(&self, wanted: &Wanted) -> Result<Choice, ReleaseError> {
        let store = self.store(wanted.tool);
        let installed = || wanted.request.best(&store.versions()).cloned();
        match &wanted.request {
            Request::Exact(version) => return self.choice(wanted, version.clone(), None),
            Request::Highest(_) | Request::Lowest(_) if !self.args.refresh => {
                if let Some(version) = installed() {
                    return self.choice(wanted, version, None);
                }
            }
            _ => {}
        }
        let list = if self.args.offline {
            Err(offline(wanted))
        } else {
            self.list(wanted.tool, self.args.refresh).await
        };
        let outage = "no newer list of versions can be had";
        match list {
            Ok(list) => match installed().filter(|_| list.is_old) {
                Some(version) => {
                    self.choice(wanted, version, Some(Reason::new(list.source, outage)))
                }
                None => self.choice_of(wanted, &list),
            },
            Err(error) if error.is_unreachable() => match installed() {
                Some(version) => self.choice(wanted, version, Some(Reason::new(error, outage))),
                None => self.path_or(wanted, error).await,
            },
            Err(error) => Err(error),
        }
    }

    /// This version: installed, or to be downloaded.
    fn choice(
        &self,
        wanted: &Wanted,
        version: Version,
        reason: Option<Reason>,
    ) -> Result<Choice, ReleaseError> {
        let store = self.store(wanted.tool);
        let source = if store.has(&version) {
            Source::Installed(store.dir().to_owned())
        } else {
            let files = Site::new(wanted.tool, &self.args)?.files(&version);
            Source::Download(http::shown(&files.archive_url))
        };
        Ok(Choice::new(wanted, version, source, reason))
    }

    /// The best of the published versions.
    fn choice_of(&self, wanted: &Wanted, list: &List) -> Result<Choice, ReleaseError> {
        let Some(version) = wanted.request.best(&list.versions) else {
            return Err(no_such_version(wanted, list));
        };
        let says = format!("{version} is the best match of {} versions", list.versions.len());
        self.choice(wanted, version.clone(), Some(Reason::new(&list.source, says)))
    }

    async fn list(&self, tool: ToolName, refresh: bool) -> Result<List, ReleaseError> {
        let url = Site::new(tool, &self.args)?.list;
        list::fetch(&self.http, tool, &url, self.cache.as_deref(), refresh).await
    }
}

impl Choice {
    fn new(wanted: &Wanted, version: Version, source: Source, reason: Option<Reason>) -> Self {
        let mut wanted = wanted.clone();
        wanted.why.extend(reason);
        Self { wanted, version, source }
    }
}

fn no_such_version(wanted: &Wanted, list: &List) -> ReleaseError {
    ReleaseError::NoSuchVersion {
        tool: wanted.tool,
        request: wanted.request.to_string(),
        origin: wanted.origin.clone(),
        nearest: list.nearest(&wanted.request),
    }
}

fn offline(wanted: &Wanted) -> ReleaseError {
    let (tool, origin) = (wanted.tool, wanted.origin.clone());
    ReleaseError::Offline { tool, request: wanted.request.to_string(), origin }
}
