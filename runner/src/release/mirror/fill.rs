//! Fills a directory as a mirror: archive, digests, signature, the vendor's key, and an entry in the list of versions.
//!
//! The layout is the one that the mirror flags expect, so the directory can be read by `file://` or served as it is. Every
//! file appears complete under its name, and the entry in the list last.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::release::download::url::shown;
use crate::release::error::ReleaseError;
use crate::release::install::installer::Fetched;
use crate::release::install::store::{create_dir, wait_for};
use crate::release::releases::Releases;
use crate::release::resolved::Resolved;
use crate::release::verify::keys::{Signed, pin};
use crate::release::versions::layout::tag;
use crate::release::versions::site::Files;
use crate::version::{ToolName, Version};

/// The prefix of unfinished files.
const PART: &str = ".part=";

impl Releases {
    /// Adds the resolved version to the mirror `dir`, and returns the flag that uses it.
    pub(crate) async fn mirror(
        &self,
        resolved: &Resolved,
        dir: &Path,
    ) -> Result<String, ReleaseError> {
        let what = format!("{} {}", resolved.wanted.tool, resolved.version);
        self.fill(resolved, dir).await.map_err(|error| error.with_target(&what, dir))
    }

    async fn fill(&self, resolved: &Resolved, dir: &Path) -> Result<String, ReleaseError> {
        let Resolved { wanted, version, .. } = resolved;
        let tool = wanted.tool;
        let site = self.site(tool)?;
        let files = site.files(version);
        let root = std::path::absolute(dir)?.join(tool.program());
        let release = root.join(match tool {
            ToolName::Terraform => version.to_string(),
            ToolName::Tofu | ToolName::Terragrunt => tag(&version.to_string()),
        });
        create_dir(&release)?;
        let path = root.join(".lock");
        let lock = fs::File::create(&path)?;
        let waiting = format!("another process is filling {}: waiting", root.display());
        wait_for(lock.file(), &path, &waiting).await?;
        sweep(&release)?;

        let archive = unfinished(&release)?;
        let fetched = self.fetch(resolved, &files, archive.as_file()).await?;
        self.finish(tool, &root, &release, &files, &fetched, archive).await?;
        let entry = Entry { tool, version, platform: &site.platform, fetched: &fetched };
        list(&root, &entry)?;
        Ok(flag(tool, &root))
    }

    async fn finish(
        &self,
        tool: ToolName,
        root: &Path,
        release: &Path,
        files: &Files,
        fetched: &Fetched,
        archive: NamedTempFile,
    ) -> Result<(), ReleaseError> {
        finished(archive, &release.join(&fetched.archive.name))?;
        write(&release.join(last_part(&files.sums_url)), &fetched.sums)?;
        let Some(Signed { url, signature, by }) = &fetched.signed else { return Ok(()) };
        write(&release.join(last_part(url)), signature)?;
        // With the vendor's key beside it, the mirror can be verified without another site.
        if let Some(pin) = pin(tool).filter(|pin| pin.fingerprint == by) {
            let key = self.key_bytes(tool, pin, url).await?;
            write(&root.join(format!("{by}.asc")), &key)?;
        }
        Ok(())
    }
}

/// A temporary file in the directory.
fn unfinished(dir: &Path) -> std::io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(PART).tempfile_in(dir)
}

/// Renames the file to its final name, readable by every user, after it is synced.
fn finished(file: NamedTempFile, path: &Path) -> std::io::Result<()> {
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn write(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut file = unfinished(path.parent().unwrap_or(Path::new(".")))?;
    file.write_all(contents)?;
    finished(file, path)
}

/// Removes leftovers of killed processes. Call with the lock.
fn sweep(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(PART.as_bytes()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn last_part(url: &str) -> PathBuf {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    PathBuf::from(path.rsplit('/').next().unwrap_or_default())
}

/// One version in the list of versions.
struct Entry<'a> {
    tool: ToolName,
    version: &'a Version,
    platform: &'a str,
    fetched: &'a Fetched,
}

/// Adds a version to the list of the mirror, or a platform to a version.
fn list(root: &Path, entry: &Entry<'_>) -> Result<(), ReleaseError> {
    let name = match entry.tool {
        ToolName::Terraform => "index.json",
        ToolName::Tofu | ToolName::Terragrunt => "api.json",
    };
    let path = root.join(name);
    let not_a_list =
        |reason: String| ReleaseError::NotAList { url: path.display().to_string(), reason };
    let mut list = match fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map_err(|error| not_a_list(error.to_string()))?
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Value::Null,
        Err(error) => return Err(error.into()),
    };
    let added = match entry.tool {
        ToolName::Terraform => add_to_index(&mut list, entry),
        ToolName::Tofu | ToolName::Terragrunt => add_to_api(&mut list, entry),
    };
    added.ok_or_else(|| not_a_list("it has another format".to_owned()))?;
    Ok(write(&path, format!("{list:#}\n").as_bytes())?)
}

/// releases.hashicorp.com's index.json. `None` if the list is something else.
fn add_to_index(list: &mut Value, entry: &Entry<'_>) -> Option<()> {
    let Entry { version, platform, fetched, .. } = entry;
    if list.is_null() {
        *list = json!({"name": "terraform", "versions": {}});
    }
    let versions = list.get_mut("versions")?.as_object_mut()?;
    let sums = format!("terraform_{version}_SHA256SUMS");
    let release = versions.entry(version.to_string()).or_insert_with(|| {
        json!({
            "name": "terraform",
            "version": version.to_string(),
            "shasums": sums,
            "shasums_signature": format!("{sums}.sig"),
            "builds": [],
        })
    });
    let (os, arch) = platform.split_once('_')?;
    let filename = &fetched.archive.name;
    let builds = release.get_mut("builds")?.as_array_mut()?;
    builds.retain(|build| build.get("filename").and_then(Value::as_str) != Some(filename));
    builds.push(json!({
        "name": "terraform",
        "version": version.to_string(),
        "os": os,
        "arch": arch,
        "filename": filename,
        "url": shown(&fetched.archive.url),
    }));
    Some(())
}

/// get.opentofu.org's api.json. `None` if the list is something else.
fn add_to_api(list: &mut Value, entry: &Entry<'_>) -> Option<()> {
    let Entry { version, fetched, .. } = entry;
    if list.is_null() {
        *list = json!({"versions": []});
    }
    let versions = list.get_mut("versions")?.as_array_mut()?;
    let id = version.to_string();
    let is_it = |known: &Value| known.get("id").and_then(Value::as_str) == Some(&id);
    if !versions.iter().any(is_it) {
        versions.insert(0, json!({"id": id, "files": []}));
    }
    let release = versions.iter_mut().find(|known| is_it(known))?;
    let files = release.get_mut("files")?.as_array_mut()?;
    let file = Value::from(fetched.archive.name.clone());
    if !files.contains(&file) {
        files.push(file);
    }
    Some(())
}

/// The flag that uses a mirror.
fn flag(tool: ToolName, root: &Path) -> String {
    let (name, dir) = match tool {
        ToolName::Terraform => ("releases", root.parent().unwrap_or(root)),
        ToolName::Tofu => ("tofu", root),
        ToolName::Terragrunt => ("terragrunt", root),
    };
    let url = url::Url::from_file_path(dir).map_or_else(|()| String::new(), String::from);
    format!("--{name}-url {url}")
}
