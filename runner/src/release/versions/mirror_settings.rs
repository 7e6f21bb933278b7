//! Mirrors, as flags, tenv's variables and its `remote.yaml` describe them.

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::cli::MirrorVariables;
use crate::release::download::url::shown;
use crate::release::error::ReleaseError;
use crate::release::versions::layout::{
    Layout, ListAt, ListFormat, downloads, filled, github_api, is_github_api, repository,
};
use crate::version::ToolName;

const HASHICORP: &str = "https://releases.hashicorp.com";
const OPENTOFU_LIST: &str = "https://get.opentofu.org/tofu/api.json";

/// The settings of one tool's mirror, if any are set.
pub(super) struct Mirror<'a> {
    variables: &'a MirrorVariables,
    flag: Option<String>,
    remote: Option<String>,
    list_url: Option<String>,
    /// The prefix of URLs to replace, and its replacement.
    rewrite: Option<(String, String)>,
}

impl<'a> Mirror<'a> {
    /// Reads the settings; `flag` is the mirror of the command line.
    pub(super) fn new(
        flag: Option<&Url>,
        variables: &'a MirrorVariables,
    ) -> Result<Self, ReleaseError> {
        Ok(Self {
            variables,
            flag: flag.map(base).transpose()?,
            remote: address(variables, "REMOTE", variables.remote.as_ref())?,
            list_url: address(variables, "LIST_URL", variables.list_url.as_ref())?,
            rewrite: rewrite(variables)?,
        })
    }

    /// Where the files of a tool are, and the lists of its versions in the order in which they are tried.
    pub(super) fn layout_and_lists(
        &self,
        tool: ToolName,
    ) -> Result<(Layout, Vec<ListAt>), ReleaseError> {
        match tool {
            ToolName::Terraform => self.of_hashicorp(),
            ToolName::Tofu | ToolName::Terragrunt => self.of_github(tool),
        }
    }

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

    /// An HTML listing. `part` in tenv's file selects links or their texts. The fragment, which is never sent, separates the
    /// cached lists of the two.
    fn html(&self, url: &str) -> Result<ListAt, ReleaseError> {
        match self.variables.part.as_deref() {
            None | Some("href") => Ok(ListAt { url: url.to_owned(), format: ListFormat::Html }),
            Some("#text") => {
                Ok(ListAt { url: format!("{url}#text"), format: ListFormat::HtmlText })
            }
            Some(part) => {
                let reason = format!("part `{part}`: expected href or #text");
                Err(self.variable("part", &reason))
            }
        }
    }

    /// Applies tenv's rule of rewriting: to the vendor's URL, or else to the mirror's own.
    fn rewritten(&self, vendor: &str, own: String) -> Result<String, ReleaseError> {
        let Some((old, new)) = &self.rewrite else { return Ok(own) };
        let mode = self.mode("INSTALL_MODE", self.variables.install_mode.as_deref())?;
        let vendor = Some(vendor).filter(|_| self.remote.is_none() || mode != Some("direct"));
        let rest = vendor.into_iter().chain([own.as_str()]).find_map(|url| url.strip_prefix(old));
        Ok(rest.map_or_else(|| own.clone(), |rest| format!("{new}{rest}")))
    }

    /// The URL template, if it is set and the mode allows it.
    fn template(&self) -> Result<Option<String>, ReleaseError> {
        let mode = self.mode("INSTALL_MODE", self.variables.install_mode.as_deref())?;
        let Some(template) = self.variables.url_template.as_ref() else { return Ok(None) };
        if !matches!(mode, None | Some("mirror")) {
            return Ok(None);
        }
        let template = template.expose_secret().trim().to_owned();
        let example = filled(&filled(&template, "Version", "1.0.0"), "Artifact", "x");
        let whole = !example.contains("{{") && Url::parse(&example).is_ok();
        if whole {
            Ok(Some(template))
        } else {
            Err(self.variable("URL_TEMPLATE", "not a valid URL template"))
        }
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
                let reason = format!("invalid mode `{mode}`: expected {modes} or mirror");
                Err(self.variable(name, &reason))
            }
        }
    }

    fn variable(&self, name: &str, reason: &str) -> ReleaseError {
        ReleaseError::Variable { name: place(self.variables, name), reason: reason.to_owned() }
    }
}

/// The name of a setting for messages: its variable, or its key in tenv's file.
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

/// tenv's rule of rewriting, both URLs without a slash at the end.
fn rewrite(variables: &MirrorVariables) -> Result<Option<(String, String)>, ReleaseError> {
    let Some((old, new)) = &variables.rewrite else { return Ok(None) };
    let new = address(variables, "new_base_url", Some(new))?.unwrap_or_default();
    Ok(Some((old.trim_end_matches('/').to_owned(), new)))
}

/// The URL in a variable, without a slash at its end.
fn address(
    variables: &MirrorVariables,
    name: &str,
    value: Option<&SecretString>,
) -> Result<Option<String>, ReleaseError> {
    let Some(value) = value else { return Ok(None) };
    let address = Url::parse(value.expose_secret().trim()).ok().and_then(|url| base(&url).ok());
    address.map(Some).ok_or_else(|| ReleaseError::Variable {
        name: place(variables, name),
        // Without the value, which may contain a password.
        reason: "not an http, https or file URL".to_owned(),
    })
}

fn base(url: &Url) -> Result<String, ReleaseError> {
    match url.scheme() {
        "http" | "https" | "file" => Ok(url.as_str().trim_end_matches('/').to_owned()),
        _ => Err(ReleaseError::Scheme(shown(url.as_str()))),
    }
}

/// Whether this is the URL of a JSON file.
fn is_json(url: &str) -> bool {
    std::path::Path::new(url).extension().is_some_and(|extension| extension == "json")
}
