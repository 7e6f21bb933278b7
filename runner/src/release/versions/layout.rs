//! The layouts of release sites: where the files of a version and the lists of versions are.
//!
//! They are those of releases.hashicorp.com and of releases on GitHub.

use crate::version::ToolName;

/// How the URL of a file is built. No base ends with a slash.
#[derive(Clone, Debug)]
pub(super) enum Layout {
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

/// The format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::release) enum ListFormat {
    /// releases.hashicorp.com's index.json
    Index,
    /// get.opentofu.org's api.json
    Api,
    /// GitHub's API of releases, in pages
    GitHub,
    /// An HTML page with links to directories named like versions
    Html,
    /// An HTML page whose links have versions as their text
    HtmlText,
}

/// Replaces a field of tenv's template, with or without spaces in its braces.
pub(super) fn filled(template: &str, field: &str, value: &str) -> String {
    template
        .replace(&format!("{{{{ .{field} }}}}"), value)
        .replace(&format!("{{{{.{field}}}}}"), value)
}

/// The name of the repository that holds the releases of a tool.
pub(super) fn repository(tool: ToolName) -> &'static str {
    match tool {
        ToolName::Terraform => "hashicorp/terraform",
        ToolName::Tofu => "opentofu/opentofu",
        ToolName::Terragrunt => "gruntwork-io/terragrunt",
    }
}

/// GitHub's own API.
pub(in crate::release) const GITHUB_API: &str = "https://api.github.com";

pub(super) fn github_api(repository: &str) -> String {
    format!("{GITHUB_API}/repos/{repository}/releases")
}

/// Whether this is the URL of releases in the API of GitHub or of a GitHub Enterprise server.
pub(super) fn is_github_api(url: &str, repository: &str) -> bool {
    url.ends_with(&format!("/repos/{repository}/releases"))
}

/// The base URL of the files, for a mirror with the layout of github.com or of its API.
pub(super) fn downloads(remote: &str, repository: &str) -> String {
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
