//! The configuration of a terragrunt unit, as far as it decides which code the tool reads: the module that the unit runs, and the
//! files of it that terragrunt overwrites. Configurations that it includes are not read.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use fs_err as fs;
use hcl_edit::expr::Expression;
use hcl_edit::structure::Body;

use crate::version::json::{self, Json};
use crate::version::outline::{Attribute, Outline};
use crate::version::syntax::{self, Literal, MAX_CONFIGURATION};

/// The values of `if_exists` with which terragrunt overwrites a file of the module.
const OVERWRITES: [&str; 2] = ["overwrite", "overwrite_terragrunt"];

/// The unit of a directory.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) file: PathBuf,
    /// The directory of the module that it runs.
    pub(super) module: PathBuf,
    generated: Vec<Generated>,
}

/// A file that terragrunt writes, also over one of the module.
#[derive(Debug)]
struct Generated {
    path: String,
    contents: String,
}

/// What is read of a configuration.
#[derive(Default)]
struct Read {
    source: Option<Literal>,
    generated: Vec<Generated>,
}

impl Unit {
    /// That of a directory, if its source is a literal relative path.
    pub(super) fn read(dir: &Path) -> Option<Self> {
        let names = ["terragrunt.hcl", "terragrunt.hcl.json"];
        let file = names.into_iter().map(|name| dir.join(name)).find(|file| file.is_file())?;
        let text = syntax::lossy(syntax::read_at_most(&file, MAX_CONFIGURATION).ok()??);
        let Read { source, generated } =
            if file.extension().is_some_and(|extension| extension == "json") {
                in_json(&json::parse(&file, &text).ok()?)
            } else if let Ok(body) = syntax::hcl(&file, &text) {
                in_body(&body)
            } else {
                in_outline(&text)
            };
        let Literal::Text(source) = source? else { return None };
        // `//` only separates a package from a directory in it.
        let module = is_local(&source).then(|| dir.join(source.replace("//", "/")))?;
        let module = fs::canonicalize(module).ok().filter(|module| module.is_dir())?;
        Some(Self { file, module, generated })
    }

    /// The text that terragrunt writes over the module's file with this name, if it does; with `${...}` for what it has to evaluate,
    /// and empty if that is all.
    pub(super) fn overwrites(&self, name: &str) -> Option<&str> {
        let is_it = |generated: &&Generated| {
            let parts = Path::new(&generated.path).components();
            parts
                .filter(|part| *part != Component::CurDir)
                .eq([Component::Normal(OsStr::new(name))])
        };
        self.generated.iter().find(is_it).map(|generated| &*generated.contents)
    }
}

impl Generated {
    /// That of a `generate` block with these attributes. `None` for one that may be disabled, and for one that leaves a file of
    /// the module as it is.
    fn new(attribute: impl Fn(&str) -> Option<Literal>, contents: Option<String>) -> Option<Self> {
        let text = |name| match attribute(name) {
            Some(Literal::Text(text)) => Some(text),
            _ => None,
        };
        let overwrites = OVERWRITES.contains(&&*text("if_exists")?);
        let path = text("path").filter(|_| overwrites && attribute("disable").is_none())?;
        Some(Self { path, contents: contents.unwrap_or_default() })
    }
}

/// Whether the source of a module is a path.
pub(super) fn is_local(source: &str) -> bool {
    source.starts_with("./") || source.starts_with("../")
}

fn in_json(root: &Json) -> Read {
    let mut sources = root.members("terraform").flat_map(|block| block.members("source"));
    let blocks = root.members("generate").flat_map(Json::entries);
    let generated = blocks.filter_map(|(_, block)| {
        let contents = block.members("contents").find_map(|contents| match contents {
            Json::Text(text) => Some(text.clone()),
            _ => None,
        });
        Generated::new(|name| block.members(name).next().map(Json::literal), contents)
    });
    Read { source: sources.next().map(Json::literal), generated: generated.collect() }
}

fn in_body(body: &Body) -> Read {
    let mut blocks = syntax::blocks(body, "terraform");
    let source = blocks.find_map(|block| syntax::attributes(&block.body, "source").next());
    let generated = syntax::blocks(body, "generate").filter_map(|block| {
        let value = |name: &str| {
            let attribute = block.body.attributes().find(|found| found.key.as_str() == name);
            attribute.map(|attribute| &attribute.value)
        };
        let contents = value("contents").and_then(syntax::template);
        // What is said to be false is as if it were not there.
        let is_true =
            |value: &&Expression| !matches!(value, Expression::Bool(bool) if !bool.value());
        Generated::new(|name| value(name).filter(is_true).map(syntax::literal), contents)
    });
    let source = source.map(|source| syntax::literal(&source.value));
    Read { source, generated: generated.collect() }
}

/// The same for a file that does not parse.
fn in_outline(text: &str) -> Read {
    const NAMES: [&str; 7] =
        ["terraform", "source", "generate", "path", "if_exists", "contents", "disable"];
    let outline = Outline::read(text, &NAMES);
    let attributes = |at: usize| {
        let of_block = move |attribute: &&Attribute<'_>| attribute.block == Some(at);
        outline.attributes.iter().filter(of_block)
    };
    let mut read = Read::default();
    for (at, block) in outline.blocks.iter().enumerate().filter(|(_, block)| block.parent.is_none())
    {
        let value = |name: &str| {
            let attribute = attributes(at).find(|attribute| attribute.name == name);
            attribute.map(|attribute| syntax::literal_of(attribute.value))
        };
        match block.kind {
            "terraform" if read.source.is_none() => read.source = value("source"),
            "generate" => {
                let contents = match value("contents") {
                    Some(Literal::Text(text)) => Some(text),
                    _ => None,
                };
                read.generated.extend(Generated::new(value, contents));
            }
            _ => {}
        }
    }
    read
}
