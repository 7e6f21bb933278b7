//! The requirements in a configuration: `required_version`, and OpenTofu's `compatible_with`.
//!
//! The rules are those of the tools. Terraform, and OpenTofu before 1.12: every `required_version` applies, but an
//! override file that has one replaces all before it. OpenTofu ignores `x.tf` beside `x.tofu`. OpenTofu 1.12 and newer
//! reads `required_version` in `.tofu` files only, and `language { compatible_with { opentofu = "..." } }` in all files;
//! its override files add constraints. Child modules whose source is a path count as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use fs_err as fs;
use hcl_edit::structure::Body;
use memchr::memmem;

use crate::version::configuration::{self, FileName, Text};
use crate::version::constraint::Constraint;
use crate::version::context::Finding;
use crate::version::error::VersionError;
use crate::version::json::{self, Json};
use crate::version::outline::Outline;
use crate::version::request::Requirement;
use crate::version::syntax::{self, Literal, MAX_CONFIGURATION};
use crate::version::tool_name::ToolName;
use crate::version::unit::{Unit, is_local};

/// More local modules than any configuration in use has.
const MAX_MODULES: usize = 1000;

/// One requirement in a file.
#[derive(Debug, PartialEq, Eq)]
struct Declaration {
    kind: Kind,
    text: String,
    /// From 1; 0 in JSON, whose parser does not keep it, and in a file that terragrunt writes.
    line: usize,
}

/// The requirements and modules in one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    declarations: Vec<Declaration>,
    /// The sources of modules, by the modules' names.
    modules: BTreeMap<String, String>,
    /// Whether a requirement is not a literal.
    unknown: bool,
    /// Whether a `required_version` is `null`. In an override file it removes what was required before.
    removes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    RequiredVersion,
    CompatibleWith,
}

impl Kind {
    /// A text that every file with such a declaration contains.
    fn needle(self) -> &'static str {
        match self {
            Self::RequiredVersion => "required_version",
            Self::CompatibleWith => "compatible_with",
        }
    }
}

/// The requirements of a module and its local child modules, and how they were found.
#[derive(Default)]
pub(super) struct Scan {
    pub(super) requirement: Requirement,
    pub(super) trace: Vec<Finding>,
    pub(super) files_read: Vec<PathBuf>,
}

/// Reads what the configuration in `dir` requires of `tool`.
pub(super) fn scan(dir: &Path, tool: ToolName) -> Result<Scan, VersionError> {
    let mut scan = Scan::default();
    let mut rules = Rules::default();
    let unit = Unit::read(dir);
    let root = unit.as_ref().map_or(dir, |unit| &*unit.module).to_owned();
    if let Some(Unit { file, .. }) = &unit {
        scan.files_read.push(file.clone());
        if root != dir {
            scan.trace.push(Finding::new(file.display(), format!("runs {}", root.display())));
        }
    }
    let mut seen = BTreeSet::from([root.clone()]);
    let mut to_do = vec![root];
    while let Some(module) = to_do.pop() {
        let files = configuration::files(&module, unit.as_ref())?;
        let (found, sources) = scan_module(&files, tool, &mut scan)?;
        rules.add(found);
        for source in sources {
            // The tool itself reports a missing module.
            let Some(child) = child(&module, &source, unit.as_ref()) else { continue };
            if seen.len() < MAX_MODULES && seen.insert(child.clone()) {
                to_do.push(child);
            }
        }
    }
    scan.requirement = rules.requirement(tool)?;
    Ok(scan)
}

/// The directory of a local child of the module in `dir`.
fn child(dir: &Path, source: &str, unit: Option<&Unit>) -> Option<PathBuf> {
    let child = fs::canonicalize(dir.join(source)).ok().filter(|child| child.is_dir());
    child.or_else(|| unit?.child(dir, source))
}

/// The rules of one module, and the sources of its local children.
fn scan_module(
    files: &BTreeMap<String, Text<'_>>,
    tool: ToolName,
    scan: &mut Scan,
) -> Result<(Rules, impl Iterator<Item = String>), VersionError> {
    let visible = |(name, _): &(&String, &Text<'_>)| match FileName::parse(name) {
        None => false,
        Some(file) if tool == ToolName::Tofu => {
            let json = if file.json { ".json" } else { "" };
            file.tofu || !files.contains_key(&format!("{}.tofu{json}", file.stem))
        }
        Some(file) => !file.tofu,
    };
    let is_override = |(name, _): &(&String, &Text<'_>)| {
        FileName::parse(name).is_some_and(|file| file.is_override())
    };
    let (overrides, primary): (Vec<_>, Vec<_>) =
        files.iter().filter(visible).partition(is_override);

    let mut rules = Rules::default();
    let mut modules = BTreeMap::new();
    for ((name, text), overrides) in primary
        .into_iter()
        .map(|file| (file, false))
        .chain(overrides.into_iter().map(|file| (file, true)))
    {
        let (place, contents) = read(name, text, tool, scan)?;
        // A module in an override file replaces the one with the same name.
        modules.extend(contents.modules.clone());
        let found = Rules::of_file((&place, name), contents, &mut scan.trace)?;
        if overrides {
            rules.override_with(found);
        } else {
            rules.add(found);
        }
    }
    Ok((rules, modules.into_values().filter(|source| is_local(source))))
}

/// The requirements and modules in one file, and its place.
fn read(
    name: &str,
    text: &Text<'_>,
    tool: ToolName,
    scan: &mut Scan,
) -> Result<(String, Contents), VersionError> {
    let path = match text {
        Text::File(path) => path,
        Text::Generated { by, text, earlier } => {
            let found = text.map(|text| in_generated(name, text));
            let is_known = found.as_ref().is_some_and(|found| !found.unknown);
            let Some(path) = earlier.as_ref().filter(|_| !is_known) else {
                let place = format!("{}, which generates {name}", by.display());
                let contents = found.unwrap_or_default().for_tool(&place, tool);
                return Ok((place, contents));
            };
            path
        }
    };
    scan.files_read.push(path.clone());
    Ok((path.display().to_string(), contents(path, tool)?))
}

/// The requirements of files, for versions before and from OpenTofu 1.12 on.
#[derive(Default)]
struct Rules {
    classic: Constraint,
    tofu_1_12: Constraint,
    /// There is a `language` block, which OpenTofu before 1.12 rejects.
    needs_1_12: bool,
    /// A `required_version` that OpenTofu from 1.12 on reads names a prerelease, so that it refuses it.
    refused_by_1_12: bool,
    /// A `required_version` is `null`.
    removes: bool,
}

impl Rules {
    /// Those in a file at this place with this name.
    fn of_file(
        (file, name): (&str, &str),
        contents: Contents,
        trace: &mut Vec<Finding>,
    ) -> Result<Self, VersionError> {
        let tofu_file = FileName::parse(name).is_some_and(|name| name.tofu);
        let mut rules = Self { removes: contents.removes, ..Self::default() };
        for Declaration { kind, text, line } in contents.declarations {
            let place = match line {
                0 => file.to_owned(),
                line => format!("{file}:{line}"),
            };
            let constraint = match text.parse::<Constraint>() {
                Ok(constraint) => constraint.found_in(&place),
                Err(source) => return Err(VersionError::Request { place, source }),
            };
            trace.push(Finding::new(place, format!("{} {constraint}", kind.needle())));
            rules.needs_1_12 |= kind == Kind::CompatibleWith;
            rules.refused_by_1_12 |=
                tofu_file && kind == Kind::RequiredVersion && constraint.prerelease().is_some();
            if tofu_file || kind == Kind::CompatibleWith {
                rules.tofu_1_12.and(constraint.clone());
            }
            if kind == Kind::RequiredVersion {
                rules.classic.and(constraint);
            }
        }
        Ok(rules)
    }

    fn add(&mut self, other: Self) {
        self.classic.and(other.classic);
        self.tofu_1_12.and(other.tofu_1_12);
        self.needs_1_12 |= other.needs_1_12;
        self.refused_by_1_12 |= other.refused_by_1_12;
    }

    /// The rules with those of an override file: it replaces what was required before. For OpenTofu
    /// 1.12 and newer it adds to that.
    fn override_with(&mut self, other: Self) {
        if other.removes || !other.classic.is_empty() {
            self.classic = Constraint::default();
        }
        self.add(other);
    }

    /// The resulting requirement. The tools refuse a prerelease in it, but not in what an override file has replaced.
    fn requirement(mut self, tool: ToolName) -> Result<Requirement, VersionError> {
        if let Some((place, item)) = self.classic.prerelease() {
            let (place, item) = (place.unwrap_or_default().to_owned(), item.to_owned());
            return Err(VersionError::Prerelease { place, item });
        }
        if tool != ToolName::Tofu {
            return Ok(Requirement { constraint: self.classic, tofu_1_12: None });
        }
        if self.needs_1_12 {
            self.classic.and(">= 1.12.0".parse().unwrap_or_default());
        }
        if self.refused_by_1_12 {
            self.tofu_1_12.and("< 1.12.0".parse().unwrap_or_default());
        }
        Ok(Requirement { constraint: self.classic, tofu_1_12: Some(self.tofu_1_12) })
    }
}

/// The requirements and modules in one file, which is parsed only if it can have any.
fn contents(path: &Path, tool: ToolName) -> Result<Contents, VersionError> {
    let bytes = syntax::read_at_most(path, MAX_CONFIGURATION).map_err(VersionError::Unreadable)?;
    let too_large = || VersionError::TooLarge { path: path.to_owned(), limit: MAX_CONFIGURATION };
    Ok(contents_of(path, bytes.ok_or_else(too_large)?, tool))
}

fn contents_of(path: &Path, bytes: Vec<u8>, tool: ToolName) -> Contents {
    let has = |needle: &str| memmem::find(&bytes, needle.as_bytes()).is_some();
    let requires = has(Kind::RequiredVersion.needle())
        || (tool == ToolName::Tofu && has(Kind::CompatibleWith.needle()));
    let local_modules = has("module") && (has("\"./") || has("\"../"));
    if !requires && !local_modules {
        return Contents::default();
    }
    let text = syntax::lossy(bytes);
    let contents = if path.extension().is_some_and(|extension| extension == "json") {
        match json::parse(path, &text) {
            Ok(root) => in_json(&root),
            Err(error) => {
                tracing::warn!("{error}: only its version requirements are read");
                in_broken_json(&text)
            }
        }
    } else {
        in_hcl(path, &text)
    };
    contents.for_tool(path.display(), tool)
}

/// The same for a file with this name that terragrunt writes, for every tool. Its text is in the configuration of the unit, and
/// may not parse.
fn in_generated(name: &str, text: &str) -> Contents {
    let is_json = FileName::parse(name).is_some_and(|name| name.json);
    let mut contents = if is_json { in_broken_json(text) } else { in_outline(text) };
    for declaration in &mut contents.declarations {
        declaration.line = 0;
    }
    contents
}

impl Contents {
    /// What this tool reads of them.
    fn for_tool(mut self, place: impl fmt::Display, tool: ToolName) -> Self {
        if tool != ToolName::Tofu {
            self.declarations.retain(|declaration| declaration.kind == Kind::RequiredVersion);
        }
        if self.unknown {
            tracing::warn!("{place}: a required version that is not a literal is ignored");
            self.declarations.clear();
        }
        self
    }

    fn declare(&mut self, kind: Kind, literal: Literal, line: usize) {
        match literal {
            Literal::Text(text) => self.declarations.push(Declaration { kind, text, line }),
            Literal::Null => self.removes |= kind == Kind::RequiredVersion,
            Literal::Unknown => self.unknown = true,
        }
    }

    /// With the declarations in the order of their lines.
    #[cfg(test)]
    pub(super) fn sorted(mut self) -> Self {
        self.declarations.sort_by_key(|declaration| declaration.line);
        self
    }
}

/// The parser rejects some files that the tools accept, so a rejected file is read by its outline. Real errors are for the
/// tool to report.
fn in_hcl(path: &Path, text: &str) -> Contents {
    match syntax::hcl(path, text) {
        Ok(body) => in_body(text, &body),
        Err(error) => {
            tracing::warn!("{error}: only its version requirements and modules are read");
            in_outline(text)
        }
    }
}

pub(super) fn in_body(text: &str, body: &Body) -> Contents {
    let mut contents = Contents::default();
    let terraform = syntax::blocks(body, "terraform");
    let language = syntax::blocks(body, "language");
    let compatible = language.flat_map(|block| syntax::blocks(&block.body, "compatible_with"));
    let declaring = terraform
        .map(|block| (block, "required_version", Kind::RequiredVersion))
        .chain(compatible.map(|block| (block, "opentofu", Kind::CompatibleWith)));
    for (block, name, kind) in declaring {
        for attribute in syntax::attributes(&block.body, name) {
            let line = syntax::line_of(text, attribute);
            contents.declare(kind, syntax::literal(&attribute.value), line);
        }
    }
    for module in syntax::blocks(body, "module") {
        let Some(name) = module.labels.first() else { continue };
        for source in syntax::attributes(&module.body, "source") {
            if let Literal::Text(source) = syntax::literal(&source.value) {
                contents.modules.insert(name.as_str().to_owned(), source);
            }
        }
    }
    contents
}

/// The same for a file that does not parse.
pub(super) fn in_outline(text: &str) -> Contents {
    const NAMES: [&str; 7] = [
        "terraform",
        "required_version",
        "language",
        "compatible_with",
        "opentofu",
        "module",
        "source",
    ];
    let outline = Outline::read(text, &NAMES);
    let mut contents = Contents::default();
    for attribute in &outline.attributes {
        let literal = || syntax::literal_of(attribute.value);
        match (outline.path(attribute).as_slice(), attribute.name) {
            ([block], "required_version") if block.kind == "terraform" => {
                contents.declare(Kind::RequiredVersion, literal(), attribute.line);
            }
            ([outer, inner], "opentofu")
                if outer.kind == "language" && inner.kind == "compatible_with" =>
            {
                contents.declare(Kind::CompatibleWith, literal(), attribute.line);
            }
            ([block], "source") if block.kind == "module" => {
                if let (Some(name), Literal::Text(source)) = (block.label, literal()) {
                    contents.modules.insert(name.to_owned(), source);
                }
            }
            _ => {}
        }
    }
    contents
}

fn in_json(root: &Json) -> Contents {
    let mut contents = Contents::default();
    for value in root.members("terraform").flat_map(|block| block.members("required_version")) {
        contents.declare(Kind::RequiredVersion, value.literal(), 0);
    }
    let compatible = root.members("language").flat_map(|block| block.members("compatible_with"));
    for value in compatible.flat_map(|block| block.members("opentofu")) {
        contents.declare(Kind::CompatibleWith, value.literal(), 0);
    }
    for (name, module) in root.members("module").flat_map(Json::entries) {
        for source in module.members("source") {
            if let Literal::Text(source) = source.literal() {
                contents.modules.insert(name.to_owned(), source);
            }
        }
    }
    contents
}

/// The version requirements of a JSON file that does not parse: the tool may still accept it.
fn in_broken_json(text: &str) -> Contents {
    let mut contents = Contents::default();
    for (line, value) in json::values_of(text, "required_version") {
        contents.declare(Kind::RequiredVersion, value, line);
    }
    contents
}

/// Reads these bytes in every way that a file can be read.
#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    for name in ["a.tf", "a.tofu", "a.tf.json"] {
        let path = Path::new(name);
        drop(in_outline(&syntax::lossy(bytes.to_vec())));
        for tool in [ToolName::Terraform, ToolName::Tofu] {
            let contents = contents_of(path, bytes.to_vec(), tool);
            drop(Rules::of_file((name, name), contents, &mut Vec::new()));
        }
    }
}
