//! The configuration of a terragrunt unit, as far as it decides which code the tool reads: the module that the unit runs, and the
//! files that terragrunt writes. Configurations that it includes are not read.

use std::path::{Component, Path, PathBuf};

use fs_err as fs;
use hcl_edit::expr::Expression;
use hcl_edit::structure::Body;

use crate::version::json::{self, Json};
use crate::version::outline::{Attribute, Outline};
use crate::version::syntax::{self, Literal, MAX_CONFIGURATION};

/// The values of `if_exists` with which terragrunt leaves no file of the module as it is: with `error` it fails there.
const OVERWRITES: [&str; 3] = ["overwrite", "overwrite_terragrunt", "error"];
/// The values of `if_disabled` with which a disabled block removes a file.
const REMOVES: [&str; 2] = ["remove", "remove_terragrunt"];

/// The unit of a directory.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) file: PathBuf,
    /// The directory of the unit, which terragrunt copies over the module.
    pub(super) dir: PathBuf,
    /// The directory of the module that it runs: that of the unit if it has no source, or one that is not a local directory.
    pub(super) module: PathBuf,
    generated: Vec<Generated>,
}

/// A file that terragrunt writes or removes after it has copied.
#[derive(Debug)]
pub(super) struct Generated {
    path: String,
    /// With `${...}` for what terragrunt has to evaluate; `None` if that is all.
    pub(super) contents: Option<String>,
    pub(super) effect: Effect,
}

/// What terragrunt does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Writes it unless it exists.
    Creates,
    /// Writes it.
    Overwrites,
    Removes,
}

/// What is read of a configuration.
#[derive(Default)]
struct Read {
    source: Option<Literal>,
    generated: Vec<Generated>,
}

impl Unit {
    /// That of a directory, whose path is canonical.
    pub(super) fn read(dir: &Path) -> Option<Self> {
        let names = ["terragrunt.hcl", "terragrunt.hcl.json"];
        let file = names.into_iter().map(|name| dir.join(name)).find(|file| file.is_file())?;
        let text = syntax::lossy(syntax::read_at_most(&file, MAX_CONFIGURATION).ok()??);
        let Read { source, mut generated } =
            if file.extension().is_some_and(|extension| extension == "json") {
                in_json(&json::parse(&file, &text).ok()?)
            } else if let Ok(body) = syntax::hcl(&file, &text) {
                in_body(&body)
            } else {
                in_outline(&text)
            };
        let module = module(dir, source);
        if module.is_none() {
            // Whether the module has the file is not known.
            generated.retain(|generated| generated.effect != Effect::Creates);
        }
        let module = module.unwrap_or_else(|| dir.to_owned());
        Some(Self { file, dir: dir.to_owned(), module, generated })
    }

    /// The directory that terragrunt copies over this one of the module.
    pub(super) fn copied_over(&self, dir: &Path) -> Option<PathBuf> {
        let below = dir.strip_prefix(&self.module).ok().filter(|_| self.module != self.dir)?;
        Some(self.dir.join(below))
    }

    /// The place in the module of a child module that is only in the unit's directory. `dir` of the module calls it.
    pub(super) fn child(&self, dir: &Path, source: &str) -> Option<PathBuf> {
        let child = fs::canonicalize(self.copied_over(dir)?.join(source)).ok()?;
        let below = child.strip_prefix(&self.dir).ok().filter(|_| child.is_dir())?;
        Some(self.module.join(below))
    }

    /// What terragrunt does with files in this directory of the module.
    pub(super) fn generated_in(&self, dir: &Path) -> &[Generated] {
        if dir == self.module { &self.generated } else { &[] }
    }
}

/// The directory of the module with this source; `None` if it is none on this machine, or not known.
fn module(dir: &Path, source: Option<Literal>) -> Option<PathBuf> {
    match source {
        None | Some(Literal::Null) => Some(dir.to_owned()),
        Some(Literal::Text(source)) if source.is_empty() => Some(dir.to_owned()),
        Some(Literal::Text(source)) if is_local(&source) => {
            // `//` only separates a package from a directory in it.
            let module = fs::canonicalize(dir.join(source.replace("//", "/"))).ok();
            module.filter(|module| module.is_dir())
        }
        Some(Literal::Text(_) | Literal::Unknown) => None,
    }
}

impl Generated {
    /// That of a `generate` block with these attributes. `None` for one that may be disabled, and for one whose path is not a
    /// literal.
    fn new(
        attribute: impl Fn(&str) -> Option<Literal>,
        disabled: Option<bool>,
        contents: Option<String>,
    ) -> Option<Self> {
        let text = |name| match attribute(name) {
            Some(Literal::Text(text)) => Some(text),
            _ => None,
        };
        let is_one_of =
            |name, values: &[&str]| text(name).is_some_and(|text| values.contains(&&*text));
        let effect = if disabled? {
            is_one_of("if_disabled", &REMOVES).then_some(Effect::Removes)?
        } else if is_one_of("if_exists", &OVERWRITES) {
            Effect::Overwrites
        } else {
            Effect::Creates
        };
        Some(Self { path: text("path")?, contents, effect })
    }

    /// The name of the file, if it is in the directory of the tool itself.
    pub(super) fn name(&self) -> Option<&str> {
        let parts = Path::new(&self.path).components();
        let mut parts = parts.filter(|part| *part != Component::CurDir);
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(name)), None) => name.to_str(),
            _ => None,
        }
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
        let disabled = block.members("disable").next().is_none().then_some(false);
        Generated::new(|name| block.members(name).next().map(Json::literal), disabled, contents)
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
        let disabled = match value("disable") {
            None => Some(false),
            Some(Expression::Bool(disabled)) => Some(*disabled.value()),
            Some(_) => None,
        };
        Generated::new(|name| value(name).map(syntax::literal), disabled, contents)
    });
    let source = source.map(|source| syntax::literal(&source.value));
    Read { source, generated: generated.collect() }
}

/// The same for a file that does not parse.
fn in_outline(text: &str) -> Read {
    const NAMES: [&str; 8] = [
        "terraform",
        "source",
        "generate",
        "path",
        "if_exists",
        "contents",
        "disable",
        "if_disabled",
    ];
    let outline = Outline::read(text, &NAMES);
    let attributes = |at: usize| {
        let of_block = move |attribute: &&Attribute<'_>| attribute.block == Some(at);
        outline.attributes.iter().filter(of_block)
    };
    let mut read = Read::default();
    for (at, block) in outline.blocks.iter().enumerate().filter(|(_, block)| block.parent.is_none())
    {
        let text = |name: &str| {
            let attribute = attributes(at).find(|attribute| attribute.name == name);
            attribute.map(|attribute| attribute.value)
        };
        let value = |name: &str| text(name).map(syntax::literal_of);
        match block.kind {
            "terraform" if read.source.is_none() => read.source = value("source"),
            "generate" => {
                let contents = match value("contents") {
                    Some(Literal::Text(text)) => Some(text),
                    _ => None,
                };
                let disabled = text("disable").map_or(Some(false), |text| text.trim().parse().ok());
                read.generated.extend(Generated::new(value, disabled, contents));
            }
            _ => {}
        }
    }
    read
}
