//! The URLs of a release's files and of the lists of versions, on the vendor's site or on a mirror.
//!
//! Every URL is built from the version, without a request.

use crate::cli::{Tenv, ToolArgs};
use crate::release::error::ReleaseError;
use crate::release::versions::layout::{Layout, ListAt, filled, tag};
use crate::release::versions::mirror_settings::Mirror;
use crate::version::{ToolName, Version};

/// The first versions of Terragrunt with digests, with archives, and with signatures.
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
    /// Where the list of versions is: the next is requested only if one does not exist or is not a list.
    pub(in crate::release) lists: Vec<ListAt>,
}

/// The files of one version for this platform.
#[derive(Debug)]
pub(in crate::release) struct Files {
    /// The files that contain the binary: the first that exists is used.
    pub(in crate::release) archives: Vec<Archive>,
    pub(in crate::release) sums_url: String,
    /// The first valid signature is used.
    pub(in crate::release) signature_urls: Vec<String>,
}

/// A file that contains the binary.
#[derive(Clone, Debug)]
pub(in crate::release) struct Archive {
    /// Its file name, as in the published digests.
    pub(in crate::release) name: String,
    pub(in crate::release) url: String,
    pub(in crate::release) form: Form,
}

/// The kind of a file that contains the binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::release) enum Form {
    /// A zip archive with this entry.
    Zip(String),
    /// The binary itself.
    Bare,
}

impl Site {
    pub(in crate::release) fn new(
        tool: ToolName,
        args: &ToolArgs,
        tenv: &Tenv,
    ) -> Result<Self, ReleaseError> {
        let flag = match tool {
            ToolName::Terraform => &args.releases_url,
            ToolName::Tofu => &args.tofu_url,
            ToolName::Terragrunt => &args.terragrunt_url,
        };
        let (layout, lists) =
            Mirror::new(flag.as_ref(), tenv.mirror(tool))?.layout_and_lists(tool)?;
        let platform = format!("{}_{}", os(), tenv.arch.as_deref().unwrap_or_else(|| arch()));
        Ok(Self { tool, layout, platform, lists })
    }

    /// Whether it is on the local disk.
    pub(in crate::release) fn is_local(&self) -> bool {
        self.directory("0").starts_with("file:")
            && self.lists.iter().all(|list| list.url.starts_with("file:"))
    }

    /// Where a mirror has the vendor's key, by its fingerprint; `None` for sites that do not have it.
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

    /// Whether the vendor has published digests of this version.
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
            // Old releases were signed again after the former key had leaked.
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

/// Whether the vendor signs this version with OpenPGP: all of Terraform; of OpenTofu all but the prereleases of 1.6.0; of
/// Terragrunt since January 2026 (0.98.0).
pub(in crate::release) fn is_signed(tool: ToolName, version: &Version) -> bool {
    match tool {
        ToolName::Terraform => true,
        ToolName::Tofu => !version.is_prerelease() || version.is_at_least([1, 7, 0]),
        ToolName::Terragrunt => version.is_at_least(TERRAGRUNT_SIGNED),
    }
}

/// The operating system by Go's name.
fn os() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        os => os,
    }
}

/// The architecture by Go's name.
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
