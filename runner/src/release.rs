//! Releases of the tools: which version will do, where it comes from, and installing it.
//!
//! What is wanted comes from [`mod@crate::version`]. The order of sources: for a constraint an installed
//! version, without asking anybody (unless lists are to be asked now); for `latest` the list of
//! published versions; and only where no connection can be had a program on `PATH` that will do. A
//! refusal, a wrong digest or a bad signature is never answered by taking something else.

mod commands;
pub(crate) mod download;
mod error;
pub(crate) mod install;
pub(crate) mod mirror;
mod tools;
pub(crate) mod verify;
pub(crate) mod versions;

pub(crate) use crate::release::commands::{COMMAND_LINE, install, mirror, print, resolve};
pub(crate) use crate::release::install::store::Lock;
pub(crate) use error::{ErrorKind, ReleaseError};
pub(crate) use tools::tools;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::ExposeSecret as _;
use url::{Origin, Url};

use datastore_api::Sha256;

use crate::cli::{Environment, Tenv, ToolArgs};
use crate::release::download::http::{Credential, Http, Proof, Provable};
use crate::release::install::digest_cache::Memory;
use crate::release::install::store::Store;
use crate::release::versions::fetch::List;
use crate::release::versions::site::Site;
use crate::release::versions::unreachable::Sites;
use crate::version::{Reason, Request, ToolName, Version, Wanted};

/// Where releases come from, and go to.
pub(crate) struct Releases {
    args: ToolArgs,
    tenv: Tenv,
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

impl Releases {
    /// Reads tenv's file of mirrors, and touches nothing else.
    pub(crate) fn new(args: &ToolArgs, environment: &Environment) -> Result<Self, ReleaseError> {
        let cache = environment.cache_home.as_ref().map(|home| home.join("plancha"));
        let in_cache = || cache.as_ref().map(|cache| cache.join("bin"));
        let bin_dir = args.bin_dir.clone().or_else(in_cache).ok_or(ReleaseError::Nowhere)?;
        let mut tenv = environment.tenv.clone();
        crate::release::mirror::tenv_remote_yaml::add(
            &mut tenv,
            environment.surroundings.tenv_root.as_deref(),
        )?;
        crate::release::verify::keys::check_keyrings(&args.keyring)?;
        let app = tenv.github_app.clone().map(|app| Provable { app, apis: apis(&tenv) });
        Ok(Self {
            args: args.clone(),
            bin_dir: std::path::absolute(bin_dir)?,
            path: environment.path.clone(),
            memory: Memory::new(cache.clone()),
            http: Http::new(args.ca_file.clone(), credentials(args, &tenv), app)
                .with_sites(Sites::new(cache.clone())),
            tenv,
            cache,
        })
    }

    fn site(&self, tool: ToolName) -> Result<Site, ReleaseError> {
        Site::new(tool, &self.args, &self.tenv)
    }

    /// Whether asking for a release would touch the network, which must not be.
    fn is_offline(&self, tool: ToolName) -> Result<bool, ReleaseError> {
        Ok(self.args.offline && !self.site(tool)?.is_local())
    }

    /// Whether the list goes before what is installed.
    fn asks_first(&self) -> Result<bool, ReleaseError> {
        let Some((name, text)) = &self.tenv.force_remote else { return Ok(self.args.refresh) };
        match text.trim() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(self.args.refresh),
            _ => {
                let (name, reason) = ((*name).to_owned(), "neither true nor false".to_owned());
                Err(ReleaseError::Variable { name, reason })
            }
        }
    }

    fn store(&self, tool: ToolName) -> Store {
        Store::new(&self.bin_dir, tool)
    }

    /// The version that will do.
    pub(crate) async fn choose(&self, wanted: &Wanted) -> Result<Choice, ReleaseError> {
        if let Some([one, two]) = wanted.request.contradiction() {
            return Err(ReleaseError::Conflict { tool: wanted.tool, one, two });
        }
        let store = self.store(wanted.tool);
        let installed = || {
            let versions = store.versions();
            let best = wanted.request.best(&versions).cloned();
            best.map(|version| (version, versions))
        };
        match &wanted.request {
            Request::Exact(version) => {
                return self.choice(wanted, version.clone(), Vec::new(), None);
            }
            Request::Highest(_) | Request::Lowest(_) if !self.asks_first()? => {
                if let Some((version, candidates)) = installed() {
                    return self.choice(wanted, version, candidates, None);
                }
            }
            _ => {}
        }
        let list = if self.is_offline(wanted.tool)? {
            Err(offline(wanted))
        } else if !self.args.refresh
            && crate::release::versions::fetch::is_fresh(&self.site(wanted.tool)?, self.cache())
        {
            self.list(wanted.tool, false).await
        } else {
            let stands_in = installed().is_some() || self.has_on_path(wanted).await?;
            self.http.hurry(stands_in && !self.args.refresh);
            let list = self.list(wanted.tool, self.args.refresh).await;
            self.http.hurry(false);
            list
        };
        let outage =
            |why: &dyn fmt::Display| format!("no newer list of versions can be had: {why}");
        match list {
            Ok(list) => match list.old.as_ref().and_then(|old| Some((old, installed()?))) {
                Some((old, found)) => {
                    self.stand_in(wanted, found, Reason::new(&list.source, outage(old)))
                }
                None => self.choice_of(wanted, list),
            },
            Err(error) if error.is_unreachable() => match installed() {
                Some(found) => {
                    let place = self.store(wanted.tool).dir().display().to_string();
                    let why = match &error {
                        ReleaseError::Offline { .. } => {
                            "the network is not to be touched".to_owned()
                        }
                        error => error.to_string(),
                    };
                    self.stand_in(wanted, found, Reason::new(place, outage(&why)))
                }
                None => self.path_or(wanted, error).await,
            },
            Err(error) => Err(error),
        }
    }

    /// An installed version, and why nothing newer was looked for.
    fn stand_in(
        &self,
        wanted: &Wanted,
        (version, candidates): (Version, Vec<Version>),
        reason: Reason,
    ) -> Result<Choice, ReleaseError> {
        let why = Some(reason.says.clone());
        let choice = self.choice(wanted, version, candidates, Some(reason))?;
        let source = Source::Installed(self.store(wanted.tool).dir().to_owned(), why);
        Ok(Choice { source, ..choice })
    }

    /// Every published version.
    async fn published(&self, tool: ToolName) -> Result<Vec<Version>, ReleaseError> {
        Ok(self.list(tool, self.args.refresh).await?.versions)
    }

    fn cache(&self) -> Option<&Path> {
        self.cache.as_deref()
    }

    /// This version: installed, or to be downloaded.
    fn choice(
        &self,
        wanted: &Wanted,
        version: Version,
        candidates: Vec<Version>,
        reason: Option<Reason>,
    ) -> Result<Choice, ReleaseError> {
        let store = self.store(wanted.tool);
        let source = if store.has(&version) {
            Source::Installed(store.dir().to_owned(), None)
        } else {
            let files = self.site(wanted.tool)?.files(&version);
            let first = files.archives.first();
            Source::Download(first.map_or_else(String::new, |archive| {
                crate::release::download::http::shown(&archive.url)
            }))
        };
        Ok(Choice { candidates, ..Choice::new(wanted, version, source, reason) })
    }

    /// The best of the published versions.
    fn choice_of(&self, wanted: &Wanted, list: List) -> Result<Choice, ReleaseError> {
        let Some(version) = wanted.request.best(&list.versions).cloned() else {
            return Err(no_such_version(wanted, &list));
        };
        let says = format!("{version} is the best match of {} versions", list.versions.len());
        let reason = Reason::new(&list.source, says);
        self.choice(wanted, version, list.versions, Some(reason))
    }

    async fn list(&self, tool: ToolName, refresh: bool) -> Result<List, ReleaseError> {
        crate::release::versions::fetch::fetch(&self.http, &self.site(tool)?, self.cache(), refresh)
            .await
    }
}

impl Choice {
    fn new(wanted: &Wanted, version: Version, source: Source, reason: Option<Reason>) -> Self {
        let mut wanted = wanted.clone();
        wanted.why.extend(reason);
        Self { wanted, version, source, candidates: Vec::new() }
    }
}

/// What proves who asks: the password of a mirror to that mirror, the token to GitHub's API.
fn credentials(args: &ToolArgs, tenv: &Tenv) -> Vec<Credential> {
    let mut credentials = Vec::new();
    let origin = |url: &str| Url::parse(url.trim()).ok().map(|url| url.origin());
    for tool in ToolName::ALL {
        let mirror = tenv.mirror(tool);
        let flag = match tool {
            ToolName::Terraform => &args.releases_url,
            ToolName::Tofu => &args.tofu_url,
            ToolName::Terragrunt => &args.terragrunt_url,
        };
        let rewritten = mirror.rewrite.as_ref().map(|(_, new)| new);
        let named = [&mirror.remote, &mirror.list_url, &mirror.url_template];
        let named = named
            .into_iter()
            .flatten()
            .chain(rewritten)
            .filter_map(|url| origin(url.expose_secret()));
        let origins = named.chain(flag.as_ref().map(Url::origin));
        if let (Some(user), Some(password)) = (&mirror.user, &mirror.password) {
            credentials.extend(origins.map(|origin| Credential {
                origin,
                proof: Proof::Basic(user.clone(), password.clone()),
            }));
        }
    }
    for origin in apis(tenv) {
        if let Some(token) = &tenv.github_token {
            credentials.push(Credential { origin, proof: Proof::Bearer(token.clone()) });
        }
    }
    credentials
}

/// The APIs of GitHub's that may know a token: its own, and those that are said to be one.
fn apis(tenv: &Tenv) -> Vec<Origin> {
    let own = |tool| {
        let mirror = tenv.mirror(tool);
        let url = mirror.list_url.as_ref().or(mirror.remote.as_ref());
        let url = url.filter(|_| mirror.list_mode.as_deref().map(str::trim) == Some("api"))?;
        Some(url.expose_secret())
    };
    let own = [ToolName::Tofu, ToolName::Terragrunt].into_iter().filter_map(own);
    let all = std::iter::once(crate::release::versions::site::GITHUB_API).chain(own);
    all.filter_map(|url| Url::parse(url.trim()).ok()).map(|url| url.origin()).collect()
}

fn no_such_version(wanted: &Wanted, list: &List) -> ReleaseError {
    ReleaseError::NoSuchVersion {
        tool: wanted.tool,
        request: wanted.request.to_string(),
        origin: wanted.origin.clone(),
        refusing: refusing(wanted, list).into(),
        nearest: list.nearest(&wanted.request),
        list: list.source.clone(),
    }
}

/// The constraints that no version satisfies together, where there are several.
fn refusing(wanted: &Wanted, list: &List) -> String {
    match wanted.request.refusing(&list.versions).as_slice() {
        [] | [_] => String::new(),
        several => format!(": these conflict: {}", several.join("; ")),
    }
}

fn offline(wanted: &Wanted) -> ReleaseError {
    let (tool, origin) = (wanted.tool, wanted.origin.clone());
    ReleaseError::Offline { tool, request: wanted.request.to_string(), origin }
}

/// What fuzz targets call.
#[cfg(fuzzing)]
pub(crate) mod fuzz {
    use std::io::Write as _;

    use crate::release::install::unpack::unpack;
    use crate::release::versions::formats;
    use crate::release::versions::site::ListFormat;

    /// Lists of versions, of every format.
    pub fn list(bytes: &[u8]) {
        for format in [
            ListFormat::Index,
            ListFormat::Api,
            ListFormat::GitHub,
            ListFormat::Html,
            ListFormat::HtmlText,
        ] {
            drop(self::feed::parse(format, bytes));
        }
    }

    /// An archive that may hold a tool: whatever it says, no more is written than that.
    pub fn archive(bytes: &[u8]) {
        let (Ok(mut archive), Ok(mut out)) = (tempfile::tempfile(), tempfile::tempfile()) else {
            return;
        };
        if archive.write_all(bytes).is_ok() {
            drop(unpack(&archive, "terraform", &mut out));
        }
    }
}
