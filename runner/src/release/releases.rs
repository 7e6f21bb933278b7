//! The state that all of release shares: settings, cache, HTTP client and installed versions.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret as _;
use url::{Origin, Url};

use crate::cli::{Environment, Tenv, ToolArgs};
use crate::release::download::http::{Credentials, GitHubAppAuth, Http, SiteCredentials};
use crate::release::error::ReleaseError;
use crate::release::install::digest_cache::DigestCache;
use crate::release::install::store::Store;
use crate::release::mirror::tenv_remote_yaml;
use crate::release::verify::keyring;
use crate::release::versions::fetch::{self, List};
use crate::release::versions::layout::GITHUB_API;
use crate::release::versions::site::Site;
use crate::release::versions::unreachable::UnreachableSites;
use crate::source::path::is_in_removed_directory;
use crate::version::{ToolName, Version};

/// The settings and connections with which releases are resolved and installed.
pub(crate) struct Releases {
    pub(in crate::release) args: ToolArgs,
    pub(in crate::release) tenv: Tenv,
    /// Where tools are installed. `None` without `--bin-dir` and a cache: then only programs on `PATH` can be used.
    pub(in crate::release) bin_dir: Option<PathBuf>,
    /// Plancha's directory in the user's cache.
    pub(in crate::release) cache: Option<PathBuf>,
    /// `PATH`.
    pub(in crate::release) path: OsString,
    pub(in crate::release) digest_cache: DigestCache,
    pub(in crate::release) http: Http,
}

/// The absolute path of a directory that the arguments name.
pub(in crate::release) fn absolute(path: &Path) -> Result<PathBuf, ReleaseError> {
    if is_in_removed_directory(path) {
        return Err(ReleaseError::NoCurrentDirectory);
    }
    Ok(std::path::absolute(path)?)
}

impl Releases {
    /// Reads tenv's `remote.yaml` and the keyrings; makes no request.
    pub(crate) fn new(args: &ToolArgs, environment: &Environment) -> Result<Self, ReleaseError> {
        let cache = environment.cache_home.as_ref().map(|home| home.join("plancha"));
        let in_cache = || cache.as_ref().map(|cache| cache.join("bin"));
        let bin_dir =
            args.bin_dir.clone().or_else(in_cache).as_deref().map(absolute).transpose()?;
        let mut tenv = environment.tenv.clone();
        tenv_remote_yaml::add(&mut tenv, environment.search_context.tenv_root.as_deref())?;
        keyring::check(&args.keyring)?;
        let app = tenv.github_app.clone().map(|app| GitHubAppAuth { app, apis: apis(&tenv) });
        Ok(Self {
            args: args.clone(),
            bin_dir,
            path: environment.path.clone(),
            digest_cache: DigestCache::new(cache.clone()),
            http: Http::new(args.ca_file.clone(), credentials(args, &tenv), app)
                .with_sites(UnreachableSites::new(cache.clone())),
            tenv,
            cache,
        })
    }

    pub(in crate::release) fn site(&self, tool: ToolName) -> Result<Site, ReleaseError> {
        Site::new(tool, &self.args, &self.tenv)
    }

    /// Whether `--offline` forbids requests to the site of this tool.
    pub(in crate::release) fn is_offline(&self, tool: ToolName) -> Result<bool, ReleaseError> {
        Ok(self.args.offline && !self.site(tool)?.is_local())
    }

    /// The installed versions of a tool, if there is a directory for tools.
    pub(in crate::release) fn store(&self, tool: ToolName) -> Option<Store> {
        Some(Store::new(self.bin_dir.as_deref()?, tool))
    }

    /// Every published version.
    pub(in crate::release) async fn published(
        &self,
        tool: ToolName,
    ) -> Result<Vec<Version>, ReleaseError> {
        Ok(self.list(tool, self.args.refresh).await?.versions)
    }

    /// Asks the release site of a tool for its list: where it comes from, and how many versions it has. `None`: `--offline`
    /// forbids that.
    pub(crate) async fn reach(
        &self,
        tool: ToolName,
    ) -> Result<Option<(String, usize)>, ReleaseError> {
        if self.is_offline(tool)? {
            return Ok(None);
        }
        let list = self.list(tool, true).await?;
        Ok(Some((list.source, list.versions.len())))
    }

    pub(in crate::release) fn cache(&self) -> Option<&Path> {
        self.cache.as_deref()
    }

    pub(in crate::release) async fn list(
        &self,
        tool: ToolName,
        refresh: bool,
    ) -> Result<List, ReleaseError> {
        fetch::fetch(&self.http, &self.site(tool)?, self.cache(), refresh).await
    }
}

/// The credentials for each site: a mirror's password for that mirror, the token for GitHub's API.
fn credentials(args: &ToolArgs, tenv: &Tenv) -> Vec<SiteCredentials> {
    let mut credentials = Vec::new();
    let parsed = |url: &str| Url::parse(url.trim()).ok();
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
            .filter_map(|url| parsed(url.expose_secret()));
        let urls = named.chain(flag.clone());
        if let (Some(user), Some(password)) = (&mirror.user, &mirror.password) {
            credentials.extend(urls.map(|url| SiteCredentials {
                origin: url.origin(),
                address: url.into(),
                credentials: Credentials::Basic(user.clone(), password.clone()),
            }));
        }
    }
    for origin in apis(tenv) {
        if let Some(token) = &tenv.github_token {
            let (address, token) = (String::new(), Credentials::Bearer(token.clone()));
            credentials.push(SiteCredentials { origin, address, credentials: token });
        }
    }
    credentials
}

/// The GitHub APIs that receive a token: GitHub's own, and those that `LIST_MODE=api` declares.
fn apis(tenv: &Tenv) -> Vec<Origin> {
    let own = |tool| {
        let mirror = tenv.mirror(tool);
        let url = mirror.list_url.as_ref().or(mirror.remote.as_ref());
        let url = url.filter(|_| mirror.list_mode.as_deref().map(str::trim) == Some("api"))?;
        Some(url.expose_secret())
    };
    let own = [ToolName::Tofu, ToolName::Terragrunt].into_iter().filter_map(own);
    let all = std::iter::once(GITHUB_API).chain(own);
    all.filter_map(|url| Url::parse(url.trim()).ok()).map(|url| url.origin()).collect()
}
