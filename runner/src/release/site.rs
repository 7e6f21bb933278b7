//! Where the makers and their mirrors keep the files of a release.
//!
//! The layouts are those of releases.hashicorp.com and of OpenTofu's releases on GitHub; every
//! address is built from the version, without asking for it.

use crate::config::ToolArgs;
use crate::version::{ToolName, Version};

use super::error::ReleaseError;

/// One tool's releases.
#[derive(Clone, Debug)]
pub(super) struct Site {
    tool: ToolName,
    /// Without a slash at its end.
    base: String,
    /// Where the list of versions is.
    pub(super) list: String,
}

/// The files of one version for this platform.
#[derive(Debug)]
pub(super) struct Files {
    /// The archive's own name, as it stands in the sums.
    pub(super) archive: String,
    pub(super) archive_url: String,
    pub(super) sums_url: String,
    /// The first that is good will do.
    pub(super) signature_urls: Vec<String>,
}

impl Site {
    pub(super) fn new(tool: ToolName, args: &ToolArgs) -> Result<Self, ReleaseError> {
        let mirror = match tool {
            ToolName::Terraform => &args.releases_url,
            ToolName::Tofu => &args.tofu_url,
        };
        if let Some(url) = mirror.as_ref().filter(|url| !matches!(url.scheme(), "http" | "https")) {
            return Err(ReleaseError::Scheme(super::http::shown(url.as_str())));
        }
        let mirror = mirror.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned());
        let (base, list) = match (tool, mirror) {
            (ToolName::Terraform, mirror) => {
                let base = mirror.unwrap_or_else(|| "https://releases.hashicorp.com".to_owned());
                let list = format!("{base}/terraform/index.json");
                (base, list)
            }
            (ToolName::Tofu, Some(base)) => {
                let list = format!("{base}/api.json");
                (base, list)
            }
            (ToolName::Tofu, None) => (
                "https://github.com/opentofu/opentofu/releases/download".to_owned(),
                "https://get.opentofu.org/tofu/api.json".to_owned(),
            ),
        };
        Ok(Self { tool, base, list })
    }

    pub(super) fn files(&self, version: &Version) -> Files {
        let directory = match self.tool {
            ToolName::Terraform => format!("{}/terraform/{version}", self.base),
            ToolName::Tofu => format!("{}/v{version}", self.base),
        };
        let program = self.tool.program();
        let archive = format!("{program}_{version}_{}_{}.zip", os(), arch());
        let sums_url = format!("{directory}/{program}_{version}_SHA256SUMS");
        let endings: &[&str] = match self.tool {
            // Old releases were signed again when the key of then had leaked.
            ToolName::Terraform => &[".sig", ".72D7468F.sig"],
            ToolName::Tofu => &[".gpgsig"],
        };
        let signature_urls = endings.iter().map(|ending| format!("{sums_url}{ending}")).collect();
        Files { archive_url: format!("{directory}/{archive}"), archive, sums_url, signature_urls }
    }
}

/// Whether the maker signs this version with OpenPGP: all of Terraform; of OpenTofu all but the
/// prereleases of 1.6.0.
pub(super) fn is_signed(tool: ToolName, version: &Version) -> bool {
    match tool {
        ToolName::Terraform => true,
        ToolName::Tofu => !version.is_prerelease() || version.is_at_least([1, 7, 0]),
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
