//! Where the makers and their mirrors keep the files of a release, and the list of releases.
//!
//! The layouts are those of releases.hashicorp.com and of releases on GitHub; every address is built
//! from the version, without asking for it. Mirrors are named by flags or by tenv's variables.

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::cli::{MirrorVariables, Tenv, ToolArgs};
use crate::release::download::http::shown;
use crate::release::error::ReleaseError;
use crate::version::{ToolName, Version};

const HASHICORP: &str = "https://releases.hashicorp.com";
const OPENTOFU_LIST: &str = "https://get.opentofu.org/tofu/api.json";
/// The first versions of Terragrunt with sums, with archives, and with signatures.
const TERRAGRUNT_SUMS: [i64; 3] = [0, 18, 1];
const TERRAGRUNT_ARCHIVES: [i64; 3] = [0, 93, 6];
const TERRAGRUNT_SIGNED: [i64; 3] = [0, 98, 0];

/// One tool's releases.
#[derive(Clone, Debug)]
pub(in crate::release) struct Site {
    pub(in crate::release) tool: ToolName,
    layout: Layout,
    /// `linux_amd64`
    pub(in crate::release) platform: String,
    /// Where the list of versions is: the next is asked only when one does not exist or is no list.
    pub(in crate::release) lists: Vec<ListAt>,
}

/// How the address of a file is built. No base has a slash at its end.
#[derive(Clone, Debug)]
enum Layout {
    /// `<base>/terraform/<version>/<file>`
    HashiCorp(String),
    /// `<base>/<tag>/<file>`
    Tags(String),
    /// tenv's template, with `{{ .Version }}` and `{{ .Artifact }}`.
    Template(String),
}

/// A list of versions.
#[derive(Clone, Debug)]
pub(in crate::release) struct ListAt {
    pub(in crate::release) url: String,
    pub(in crate::release) format: ListFormat,
}

/// What a list looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::release) enum ListFormat {
    /// releases.hashicorp.com's index.json
    Index,
    /// get.opentofu.org's api.json
    Api,
    /// GitHub's API of releases, in pages
    GitHub,
    /// Links to directories that are called as the versions are
    Html,
    /// A page whose links bear the versions as their text
    HtmlText,
}

/// The files of one version for this platform.
#[derive(Debug)]
pub(in crate::release) struct Files {
    /// What holds the binary: the first that exists.
    pub(in crate::release) archives: Vec<Archive>,
    pub(in crate::release) sums_url: String,
    /// The first that is good will do.
    pub(in crate::release) signature_urls: Vec<String>,
}

/// A file that holds the binary.
#[derive(Clone, Debug)]
pub(in crate::release) struct Archive {
    /// Its own name, as it stands in the sums.
    pub(in crate::release) name: String,
    pub(in crate::release) url: String,
    pub(in crate::release) form: Form,
}

/// What kind of file holds the binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::release) enum Form {
    /// A zip archive with this entry.
    Zip(String),
    /// The binary itself.
    Bare,
}

/// The settings of one tool's mirror, as far as any are set.
struct Mirror<'a> {
    variables: &'a MirrorVariables,
    flag: Option<String>,
    remote: Option<String>,
    list_url: Option<String>,
    /// The beginning of addresses, and what stands there instead.
    rewrite: Option<(String, String)>,
}

impl Site {
    pub(in crate::release) fn new(
        tool: ToolName,
        args: &ToolArgs,
        tenv: &Tenv,
    ) -> Result<Self, ReleaseError> {
        let variables = tenv.mirror(tool);
        let flag = match tool {
            ToolName::Terraform => &args.releases_url,
            ToolName::Tofu => &args.tofu_url,
            ToolName::Terragrunt => &args.terragrunt_url,
        };
        let mirror = Mirror {
            variables,
            flag: flag.as_ref().map(base).transpose()?,
            remote: address(variables, "REMOTE", variables.remote.as_ref())?,
            list_url: address(variables, "LIST_URL", variables.list_url.as_ref())?,
            rewrite: rewrite(variables)?,
        };
        let (layout, lists) = match tool {
            ToolName::Terraform => mirror.of_hashicorp()?,
            ToolName::Tofu | ToolName::Terragrunt => mirror.of_github(tool)?,
        };
        let platform = format!("{}_{}", os(), tenv.arch.as_deref().unwrap_or_else(|| arch()));
        Ok(Self { tool, layout, platform, lists })
    }

    /// Whether it is reached without a network.
    pub(in crate::release) fn is_local(&self) -> bool {
        self.directory("0").starts_with("file:")
            && self.lists.iter().all(|list| list.url.starts_with("file:"))
    }

    /// What the sites of makers have at their end and mirrors of ours as well: a key by its name.
    pub(in crate::release) fn key_url(&self, fingerprint: &str) -> Option<String> {
        match &self.layout {
            Layout::Tags(base) if !base.starts_with("https://github.com/") => {
                Some(format!("{base}/{fingerprint}.asc"))
            }
            Layout::HashiCorp(_) | Layout::Tags(_) | Layout::Template(_) => None,
        }
    }

    /// The directory of a version.
    fn directory(&self, version: &str) -> String {
        match &self.layout {
            Layout::HashiCorp(base) => format!("{base}/terraform/{version}"),
            Layout::Tags(base) => format!("{base}/{}", tag(version)),
            Layout::Template(template) => template.clone(),
        }
    }

    fn url(&self, version: &str, file: &str) -> String {
        match &self.layout {
            Layout::Template(template) => {
                filled(&filled(template, "Version", version), "Artifact", file)
            }
            Layout::HashiCorp(_) | Layout::Tags(_) => {
                format!("{}/{file}", self.directory(version))
            }
        }
    }

    /// Whether the maker has published digests of this version.
    pub(in crate::release) fn has_sums(&self, version: &Version) -> bool {
        match self.tool {
            ToolName::Terraform | ToolName::Tofu => true,
            ToolName::Terragrunt => version.is_bare_name() || version.is_at_least(TERRAGRUNT_SUMS),
        }
    }

    /// The files of a version.
    pub(in crate::release) fn files(&self, version: &Version) -> Files {
        let text = version.to_string();
        let (program, platform) = (self.tool.program(), &self.platform);
        let zip = |name: String, entry: &str| (name, Form::Zip(entry.to_owned()));
        let binaries = match (self.tool, text.as_str()) {
            (ToolName::Terraform, "0.12.0-alpha3" | "0.12.0-alpha4") => {
                vec![zip(format!("terraform_{text}_terraform_{text}_{platform}.zip"), program)]
            }
            (ToolName::Terraform | ToolName::Tofu, _) => {
                vec![zip(format!("{program}_{text}_{platform}.zip"), program)]
            }
            (ToolName::Terragrunt, _) => {
                let bare = format!("{program}_{platform}");
                let archive = zip(format!("{bare}.zip"), &bare);
                let has_archive =
                    version.is_bare_name() || version.is_at_least(TERRAGRUNT_ARCHIVES);
                let both = [has_archive.then_some(archive), Some((bare, Form::Bare))];
                both.into_iter().flatten().collect()
            }
        };
        let sums = match self.tool {
            ToolName::Terraform | ToolName::Tofu => format!("{program}_{text}_SHA256SUMS"),
            ToolName::Terragrunt => "SHA256SUMS".to_owned(),
        };
        let endings: &[&str] = match self.tool {
            // Old releases were signed again when the key of then had leaked.
            ToolName::Terraform => &[".sig", ".72D7468F.sig"],
            ToolName::Tofu | ToolName::Terragrunt => &[".gpgsig"],
        };
        let archive =
            |(name, form): (String, Form)| Archive { url: self.url(&text, &name), name, form };
        Files {
            archives: binaries.into_iter().map(archive).collect(),
            sums_url: self.url(&text, &sums),
            signature_urls: endings
                .iter()
                .map(|ending| self.url(&text, &format!("{sums}{ending}")))
                .collect(),
        }
    }
}

impl Mirror<'_> {
    fn of_hashicorp(&self) -> Result<(Layout, Vec<ListAt>), ReleaseError> {
        let mirror = self.flag.clone().or_else(|| self.remote.clone());
        let is_official = mirror.is_none() && self.list_url.is_none();
        let base = mirror.unwrap_or_else(|| HASHICORP.to_owned());
        let list = self.list_url.clone().unwrap_or_else(|| base.clone());
        let base = if self.flag.is_none() { self.rewritten(HASHICORP, base)? } else { base };
        let index =
            if is_json(&list) { list.clone() } else { format!("{list}/terraform/index.json") };
        let index = ListAt { url: index, format: ListFormat::Index };
        let html = self.html(&format!("{list}/terraform/"))?;
        let lists = match self.mode("LIST_MODE", self.variables.list_mode.as_deref())? {
            Some("html") => vec![html],
            Some(_) => vec![index],
            None if is_official || is_json(&list) => vec![index],
            None => vec![index, html],
        };
        Ok((Layout::HashiCorp(base), lists))
    }

    fn of_github(&self, tool: ToolName) -> Result<(Layout, Vec<ListAt>), ReleaseError> {
        let repository = repository(tool);
        let web = format!("https://github.com/{repository}/releases/download");
        let layout = match (&self.flag, &self.remote, self.template()?) {
            (Some(base), _, _) => Layout::Tags(base.clone()),
            (None, _, Some(template)) => Layout::Template(template),
            (None, Some(remote), None) => {
                Layout::Tags(self.rewritten(&web, downloads(remote, repository))?)
            }
            (None, None, None) => Layout::Tags(self.rewritten(&web, web.clone())?),
        };
        let json = |url: &str| ListAt {
            url: if is_json(url) { url.to_owned() } else { format!("{url}/api.json") },
            format: ListFormat::Api,
        };
        let html = |url: &str| self.html(&format!("{url}/"));
        let api = |url: &str| ListAt { url: url.to_owned(), format: ListFormat::GitHub };
        let official = match tool {
            ToolName::Terraform | ToolName::Tofu => json(OPENTOFU_LIST),
            ToolName::Terragrunt => api(&github_api(repository)),
        };
        let mode = self.mode("LIST_MODE", self.variables.list_mode.as_deref())?;
        let own = self.list_url.as_ref().or(self.remote.as_ref());
        let lists = match (mode, &self.flag, own) {
            (None, Some(base), _) => vec![json(base), html(base)?],
            (None, None, None) => vec![official],
            (None, None, Some(own)) if is_json(own) => vec![json(own)],
            (None, None, Some(own)) if is_github_api(own, repository) => vec![api(own)],
            (None, None, Some(own)) => vec![json(own), html(&downloads(own, repository))?],
            (Some("api"), _, own) => {
                vec![own.map_or_else(|| api(&github_api(repository)), |own| api(own))]
            }
            (Some("html"), _, own) => {
                vec![html(&own.map_or(web, |own| downloads(own, repository)))?]
            }
            (Some(_), _, own) => vec![own.map_or_else(|| json(OPENTOFU_LIST), |own| json(own))],
        };
        Ok((layout, lists))
    }

    /// A listing, of which tenv's file may say where the versions stand. What is kept of the two ways of
    /// reading it is told apart by a fragment, which is never sent.
    fn html(&self, url: &str) -> Result<ListAt, ReleaseError> {
        match self.variables.part.as_deref() {
            None | Some("href") => Ok(ListAt { url: url.to_owned(), format: ListFormat::Html }),
            Some("#text") => {
                Ok(ListAt { url: format!("{url}#text"), format: ListFormat::HtmlText })
            }
            Some(part) => {
                let reason = format!("part `{part}`: versions are looked for in href or #text");
                Err(self.variable("part", &reason))
            }
        }
    }

    /// Where the files are after tenv's rule of rewriting: that is made for the makers' addresses, or
    /// else for the mirror's own.
    fn rewritten(&self, makers: &str, own: String) -> Result<String, ReleaseError> {
        let Some((old, new)) = &self.rewrite else { return Ok(own) };
        let mode = self.mode("INSTALL_MODE", self.variables.install_mode.as_deref())?;
        let makers = Some(makers).filter(|_| self.remote.is_none() || mode != Some("direct"));
        let rest = makers.into_iter().chain([own.as_str()]).find_map(|url| url.strip_prefix(old));
        Ok(rest.map_or_else(|| own.clone(), |rest| format!("{new}{rest}")))
    }

    /// The template of the addresses, if it is set and no other mode is.
    fn template(&self) -> Result<Option<String>, ReleaseError> {
        let mode = self.mode("INSTALL_MODE", self.variables.install_mode.as_deref())?;
        let Some(template) = self.variables.url_template.as_ref() else { return Ok(None) };
        if !matches!(mode, None | Some("mirror")) {
            return Ok(None);
        }
        let template = template.expose_secret().trim().to_owned();
        let example = filled(&filled(&template, "Version", "1.0.0"), "Artifact", "x");
        let whole = !example.contains("{{") && Url::parse(&example).is_ok();
        if whole { Ok(Some(template)) } else { Err(self.variable("URL_TEMPLATE", "no template")) }
    }

    fn mode<'m>(
        &self,
        name: &str,
        value: Option<&'m str>,
    ) -> Result<Option<&'m str>, ReleaseError> {
        match (name, value.map(str::trim)) {
            (_, None) => Ok(None),
            ("LIST_MODE", Some(mode @ ("api" | "html" | "mirror")))
            | ("INSTALL_MODE", Some(mode @ ("api" | "direct" | "mirror"))) => Ok(Some(mode)),
            (_, Some(mode)) => {
                let modes = if name == "LIST_MODE" { "api, html" } else { "api, direct" };
                let reason = format!("`{mode}` is no mode of it: {modes} and mirror are");
                Err(self.variable(name, &reason))
            }
        }
    }

    fn variable(&self, name: &str, reason: &str) -> ReleaseError {
        ReleaseError::Variable { name: place(self.variables, name), reason: reason.to_owned() }
    }
}

/// The variable of this name, or the file that says the same.
fn place(variables: &MirrorVariables, name: &str) -> String {
    let (section, key) = match (variables.prefix, name) {
        ("TFENV_", name) => ("terraform", name),
        ("TOFUENV_", name) => ("tofu", name),
        (_, name) => ("terragrunt", name),
    };
    let key = if key == "REMOTE" { "url".to_owned() } else { key.to_lowercase() };
    match &variables.file {
        Some((path, from_file)) if from_file.contains(&name) || name == key => {
            format!("{}, {section}, {key}", path.display())
        }
        _ => format!("{}{name}", variables.prefix),
    }
}

/// tenv's rule of rewriting, both ends without a slash.
fn rewrite(variables: &MirrorVariables) -> Result<Option<(String, String)>, ReleaseError> {
    let Some((old, new)) = &variables.rewrite else { return Ok(None) };
    let new = address(variables, "new_base_url", Some(new))?.unwrap_or_default();
    Ok(Some((old.trim_end_matches('/').to_owned(), new)))
}

/// The address in a variable, without a slash at its end.
fn address(
    variables: &MirrorVariables,
    name: &str,
    value: Option<&SecretString>,
) -> Result<Option<String>, ReleaseError> {
    let Some(value) = value else { return Ok(None) };
    let address = Url::parse(value.expose_secret().trim()).ok().and_then(|url| base(&url).ok());
    address.map(Some).ok_or_else(|| ReleaseError::Variable {
        name: place(variables, name),
        // Not what it holds: that may be a password.
        reason: "no http, https or file URL".to_owned(),
    })
}

fn base(url: &Url) -> Result<String, ReleaseError> {
    match url.scheme() {
        "http" | "https" | "file" => Ok(url.as_str().trim_end_matches('/').to_owned()),
        _ => Err(ReleaseError::Scheme(shown(url.as_str()))),
    }
}

/// Whether an address is that of a list itself.
fn is_json(url: &str) -> bool {
    std::path::Path::new(url).extension().is_some_and(|extension| extension == "json")
}

/// A field of tenv's template, with or without spaces in its braces.
fn filled(template: &str, field: &str, value: &str) -> String {
    template
        .replace(&format!("{{{{ .{field} }}}}"), value)
        .replace(&format!("{{{{.{field}}}}}"), value)
}

/// The name of the repository that holds the releases of a tool.
fn repository(tool: ToolName) -> &'static str {
    match tool {
        ToolName::Terraform => "hashicorp/terraform",
        ToolName::Tofu => "opentofu/opentofu",
        ToolName::Terragrunt => "gruntwork-io/terragrunt",
    }
}

/// GitHub's own API.
pub(in crate::release) const GITHUB_API: &str = "https://api.github.com";

fn github_api(repository: &str) -> String {
    format!("{GITHUB_API}/repos/{repository}/releases")
}

/// Whether an address is that of an API of GitHub's, there or in a house of its own.
fn is_github_api(url: &str, repository: &str) -> bool {
    url.ends_with(&format!("/repos/{repository}/releases"))
}

/// Where the files are, of a remote in the layout of github.com or of its API.
fn downloads(remote: &str, repository: &str) -> String {
    let host = match remote.strip_suffix(&format!("/repos/{repository}/releases")) {
        Some(GITHUB_API) => "https://github.com",
        Some(api) => api.strip_suffix("/api/v3").unwrap_or(api),
        None => remote,
    };
    format!("{host}/{repository}/releases/download")
}

/// The tag of a version: previews that are bare names have no `v`.
pub(in crate::release) fn tag(version: &str) -> String {
    let numbered = version.starts_with(|first: char| first.is_ascii_digit());
    if numbered { format!("v{version}") } else { version.to_owned() }
}

/// Whether the maker signs this version with OpenPGP: all of Terraform; of OpenTofu all but the
/// prereleases of 1.6.0; of Terragrunt what came after January 2026.
pub(in crate::release) fn is_signed(tool: ToolName, version: &Version) -> bool {
    match tool {
        ToolName::Terraform => true,
        ToolName::Tofu => !version.is_prerelease() || version.is_at_least([1, 7, 0]),
        ToolName::Terragrunt => version.is_at_least(TERRAGRUNT_SIGNED),
    }
}

/// As Go names it.
fn os() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        os => os,
    }
}

/// As Go names it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        arch => arch,
    }
}

#[cfg(test)]
mod tests;
