//! Where the files of a root module say that its state is: a `backend`, `cloud` or `state_store` block.

use std::fmt;
use std::io;
use std::path::Path;

use fs_err as fs;
use hcl_edit::structure::{Block, BlockLabel, Body};
use serde_json::Value;

use crate::tool::{file_names, state_file};

/// The blocks that decide where the state is.
const BLOCKS: [&str; 3] = ["backend", "cloud", "state_store"];

/// Such a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredBackend {
    /// `backend`, `cloud` or `state_store`.
    block: &'static str,
    label: Option<String>,
    /// The name of the file.
    file: String,
}

impl DeclaredBackend {
    /// Whether it is a `cloud` block.
    pub(crate) fn is_cloud(&self) -> bool {
        self.block == "cloud"
    }
}

impl fmt::Display for DeclaredBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = self.label.as_ref().map(|label| format!(" \"{}\"", label.escape_debug()));
        write!(
            f,
            "a `{}{}` block in {}",
            self.block,
            label.unwrap_or_default(),
            self.file.escape_debug()
        )
    }
}

/// The first such block of the module in `dir`. Files that cannot be parsed are passed over: the tool reads them.
pub(crate) fn declared_backend(dir: &Path) -> io::Result<Option<DeclaredBackend>> {
    declared(dir, &BLOCKS)
}

/// Whether the module in `dir` has tofu encrypt its state or plans.
pub(crate) fn declares_encryption(dir: &Path) -> io::Result<bool> {
    Ok(declared(dir, &["encryption"])?.is_some())
}

fn declared(dir: &Path, blocks: &[&'static str]) -> io::Result<Option<DeclaredBackend>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let is_read = file_names::is_code(name) && !file_names::is_ignored(name);
        if is_read && path.is_file() && !state_file::is_own(&path) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files.into_iter().find_map(|file| {
        let (block, label) = find(&file, blocks)?;
        let file = file.file_name()?.to_string_lossy().into_owned();
        Some(DeclaredBackend { block, label, file })
    }))
}

fn find(file: &Path, blocks: &[&'static str]) -> Option<(&'static str, Option<String>)> {
    let text = fs::read_to_string(file).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if file.extension().is_some_and(|extension| extension == "json") {
        return in_json(&serde_json::from_str(text).ok()?, blocks);
    }
    in_hcl(&hcl_edit::parser::parse_body(text).ok()?, blocks)
}

fn in_hcl(body: &Body, names: &[&'static str]) -> Option<(&'static str, Option<String>)> {
    let settings = body.blocks().filter(|block| block.ident.as_str() == "terraform");
    let mut blocks = settings.flat_map(|block| block.body.blocks());
    blocks.find_map(|block| {
        let name = *names.iter().find(|name| block.ident.as_str() == **name)?;
        Some((name, label(block)))
    })
}

fn label(block: &Block) -> Option<String> {
    block.labels.first().map(|label| match label {
        BlockLabel::Ident(ident) => ident.as_str().to_owned(),
        BlockLabel::String(text) => text.value().clone(),
    })
}

fn in_json(file: &Value, names: &[&'static str]) -> Option<(&'static str, Option<String>)> {
    each(&file["terraform"]).find_map(|settings| {
        let name = *names.iter().find(|name| !settings[**name].is_null())?;
        let label = each(&settings[name]).find_map(|block| block.as_object()?.keys().next());
        Some((name, label.cloned().filter(|_| name != "cloud")))
    })
}

/// The blocks of a value, which is one block or a list of them.
fn each(value: &Value) -> impl Iterator<Item = &Value> {
    let (list, one) = match value {
        Value::Array(list) => (&list[..], None),
        value => (&[][..], Some(value)),
    };
    list.iter().chain(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(name), text).unwrap();
        let found = declared_backend(dir.path()).unwrap()?;
        assert_eq!(found.file, name);
        Some(found.to_string().split(" block in").next().unwrap().to_owned())
    }

    #[test]
    fn a_block_is_found_in_every_file_that_the_tool_reads() {
        let s3 = "terraform {\n  backend \"s3\" {}\n}\n";
        for (name, text, expected) in [
            ("main.tf", s3, "a `backend \"s3\"`"),
            ("x.tofu", s3, "a `backend \"s3\"`"),
            ("backend_override.tf", s3, "a `backend \"s3\"`"),
            ("main.tf", "terraform {\n  cloud {}\n}\n", "a `cloud`"),
            ("main.tf", "terraform {\n  state_store \"x\" {}\n}\n", "a `state_store \"x\"`"),
            ("x.tf.json", r#"{"terraform": {"backend": {"gcs": {}}}}"#, "a `backend \"gcs\"`"),
            (
                "x.tf.json",
                r#"{"terraform": [{}, {"cloud": [{"organization": "x"}]}]}"#,
                "a `cloud`",
            ),
        ] {
            assert_eq!(found(name, text).as_deref(), Some(expected), "{name}: {text}");
        }
        for (name, text) in [
            ("main.tf", "terraform {\n  required_version = \"> 1\"\n}\n"),
            ("main.tf", "# terraform { backend \"s3\" {} }\n"),
            (".main.tf", s3),
            ("main.tf~", s3),
            ("main.txt", s3),
            ("x.tf.json", r#"{"terraform": {"required_version": "> 1"}}"#),
        ] {
            assert_eq!(found(name, text), None, "{name}: {text}");
        }
    }
}
