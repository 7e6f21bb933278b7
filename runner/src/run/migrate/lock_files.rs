//! The lock file after a migration: it keeps the providers of both registries, so that either tool finds its own.

use std::collections::HashSet;
use std::path::Path;

use fs_err as fs;
use hcl_edit::structure::Block;

use crate::run::prepare::lock_file::LockFile;
use crate::source::checkout::Workspace;
use crate::source::regular::unless_missing;
use crate::tool::file_names::LOCK_FILE;

/// The lock file of a module, of the user and in the private copy.
#[derive(Debug)]
pub(super) struct LockFiles {
    /// That of the user; `None` where the code is fetched.
    of_user: Option<LockFile>,
    /// The contents after the init of the old tool.
    old: Option<String>,
}

impl LockFiles {
    /// Reads that of the user, before init.
    pub(super) fn read(workspace: &Workspace) -> std::io::Result<Self> {
        let of_user = workspace.in_place_of.as_deref().map(LockFile::read).transpose()?;
        Ok(Self { of_user, old: None })
    }

    /// Remembers what the init of the old tool has left.
    pub(super) fn keep_old(&mut self, module: &Path) -> std::io::Result<()> {
        self.old = unless_missing(fs::read_to_string(module.join(LOCK_FILE)))?;
        Ok(())
    }

    /// Adds what the new tool's init has left out, in the private copy.
    pub(super) fn merge(&self, module: &Path) -> std::io::Result<()> {
        let (Some(old), file) = (&self.old, module.join(LOCK_FILE)) else { return Ok(()) };
        let new = unless_missing(fs::read_to_string(&file))?.unwrap_or_default();
        match merged(old, &new) {
            Some(merged) if merged != new => fs::write(file, merged),
            Some(_) => Ok(()),
            None => {
                tracing::warn!(
                    "the lock file is that of the new tool alone, because one of the two cannot be parsed: {}",
                    file.display()
                );
                Ok(())
            }
        }
    }

    /// Writes the merged file to that of the user.
    pub(super) fn write_back(&self, module: &Path) -> std::io::Result<()> {
        match &self.of_user {
            Some(of_user) => of_user.follow(module),
            None if module.join(LOCK_FILE).exists() => {
                tracing::warn!(
                    "the code was fetched, so its lock file is not changed: run `tofu init` in it, and commit the file"
                );
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// The new lock file, with the providers that only the old one has. `None`: one of them cannot be parsed.
fn merged(old: &str, new: &str) -> Option<String> {
    let parse = |text: &str| hcl_edit::parser::parse_body(text).ok();
    let (old, mut all) = (parse(old)?, parse(new)?);
    let known = all.blocks().filter_map(provider).collect::<HashSet<_>>();
    let is_missing =
        |block: &Block| provider(block).is_some_and(|address| !known.contains(&address));
    for block in old.into_blocks().filter(is_missing) {
        all.push(block);
    }
    Some(all.to_string())
}

/// The address of the provider that a block is about.
fn provider(block: &Block) -> Option<String> {
    let label = block.labels.first().filter(|_| block.ident.as_str() == "provider")?;
    Some(label.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_of_both_registries_are_kept() {
        let old = "# This file is maintained automatically by \"terraform init\".\n\n\
            provider \"registry.terraform.io/hashicorp/null\" {\n  version = \"3.2.3\"\n  hashes = [\n    \"h1:a\",\n  ]\n}\n\n\
            provider \"example.com/own/thing\" {\n  version = \"1.0.0\"\n}\n";
        let new = "# This file is maintained automatically by \"tofu init\".\n\n\
            provider \"example.com/own/thing\" {\n  version = \"1.0.0\"\n  hashes = [\"h1:b\"]\n}\n\n\
            provider \"registry.opentofu.org/hashicorp/null\" {\n  version = \"3.2.3\"\n}\n";
        let merged = merged(old, new).unwrap();
        assert!(merged.starts_with(new), "{merged}");
        let added = merged.strip_prefix(new).unwrap();
        assert!(added.contains("registry.terraform.io/hashicorp/null") && added.contains("h1:a"));
        assert_eq!(merged.matches("provider \"").count(), 3);
        assert!(hcl_edit::parser::parse_body(&merged).is_ok());
    }

    #[test]
    fn a_lock_file_that_cannot_be_parsed_is_not_merged() {
        assert_eq!(merged("provider {", ""), None);
        assert_eq!(merged("", "provider {"), None);
        assert_eq!(merged("", "").as_deref(), Some(""));
    }
}
