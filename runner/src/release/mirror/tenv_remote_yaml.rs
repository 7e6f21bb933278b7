//! tenv's `remote.yaml`: settings of mirrors in a file.
//!
//! For each setting, a variable overrides the file.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fs_err as fs;
use secrecy::SecretString;

use crate::cli::{MirrorVariables, Tenv};
use crate::release::error::ReleaseError;
use crate::version::ToolName;

/// Addresses of a few mirrors.
const MAX_FILE: u64 = 64 << 10;

/// The settings by tool; tools that Plancha does not know are ignored.
type Settings = BTreeMap<String, Option<BTreeMap<String, Option<String>>>>;

/// Adds the settings of the file to those of the variables. A missing file is no error.
pub(in crate::release) fn add(
    tenv: &mut Tenv,
    tenv_root: Option<&Path>,
) -> Result<(), ReleaseError> {
    let in_root = || Some(tenv_root?.join("remote.yaml"));
    let Some(path) = tenv.remote_conf.clone().or_else(in_root) else { return Ok(()) };
    let text = match fs::metadata(&path).map(|metadata| metadata.len()) {
        Ok(size) if size > MAX_FILE => {
            return Err(ReleaseError::RemoteConfSize { path, limit: MAX_FILE });
        }
        Ok(_) => fs::read_to_string(&path),
        Err(error) => Err(error),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(error) if tenv.remote_conf.is_none() => {
            // The default file: it may belong to another user.
            tracing::warn!("tenv's mirror settings are ignored: {error}");
            return Ok(());
        }
        Err(error) => return Err(ReleaseError::Unreadable(error)),
    };
    let settings = match parse(&text) {
        Ok(settings) => settings,
        Err((line, column)) => {
            // Without the text, which may contain a password.
            return Err(ReleaseError::RemoteConfSyntax { path, line, column });
        }
    };
    for tool in ToolName::ALL {
        if let Some(Some(section)) = settings.get(tool.program()) {
            add_section(tenv.mirror_mut(tool), section, &path);
        }
    }
    Ok(())
}

/// Parses the settings; the error is the line and column.
fn parse(text: &str) -> Result<Settings, (u64, u64)> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#')) {
        return Ok(Settings::new());
    }
    serde_saphyr::from_str(text).map_err(|error: serde_saphyr::Error| {
        error.location().map_or((1, 1), |location| (location.line(), location.column()))
    })
}

fn add_section(
    mirror: &mut MirrorVariables,
    section: &BTreeMap<String, Option<String>>,
    path: &Path,
) {
    let text = |name: &str| {
        let text = section.get(name)?.as_deref()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let secret = |name| text(name).map(SecretString::from);
    let mut from_file = Vec::new();
    let mut take = |name, is_set: bool, key: &str| {
        let takes = !is_set && text(key).is_some();
        from_file.extend(takes.then_some(name));
        takes
    };
    if take("REMOTE", mirror.remote.is_some(), "url") {
        mirror.remote = secret("url");
    }
    if take("LIST_URL", mirror.list_url.is_some(), "list_url") {
        mirror.list_url = secret("list_url");
    }
    if take("LIST_MODE", mirror.list_mode.is_some(), "list_mode") {
        mirror.list_mode = text("list_mode");
    }
    if take("INSTALL_MODE", mirror.install_mode.is_some(), "install_mode") {
        mirror.install_mode = text("install_mode");
    }
    mirror.part = text("part");
    // The default of `old_base_url` is the vendor's own site.
    mirror.rewrite = secret("new_base_url").map(|new| {
        let old = text("old_base_url").unwrap_or_else(|| vendor_site(mirror.prefix).to_owned());
        (old, new)
    });
    mirror.file = Some((PathBuf::from(path), from_file));
}

/// The vendor's site of the tool with this prefix of variables.
fn vendor_site(prefix: &str) -> &'static str {
    if prefix == "TFENV_" { "https://releases.hashicorp.com" } else { "https://github.com" }
}
