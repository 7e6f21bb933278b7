//! What a configuration itself requires: `required_version`, and OpenTofu's `compatible_with`.
//!
//! The rules are those of the tools. Terraform and OpenTofu before 1.12: every `required_version`
//! counts, but an override file that has one replaces all before it. OpenTofu hides `x.tf` behind
//! `x.tofu`, and from 1.12 on heeds `required_version` in `.tofu` files only, and
//! `language { compatible_with { opentofu = "..." } }` in all. Child modules are not looked at.

use std::collections::BTreeSet;
use std::path::Path;

use fs_err as fs;
use hcl_edit::Span as _;
use hcl_edit::expr::Expression;
use hcl_edit::structure::{Attribute, Block, Body};
use hcl_edit::template::Element;
use memchr::memmem;
use serde_json::Value;

use super::number::Constraint;
use super::request::Requirement;
use super::search::read_at_most;
use super::{Reason, ToolName, VersionError};

/// No configuration file that a person or a generator writes is larger.
const MAX_CONFIGURATION: u64 = 16 * 1024 * 1024;

/// One requirement as it stands in a file.
struct Declaration {
    kind: Kind,
    text: String,
    /// From 1; 0 in JSON, whose parser does not keep it.
    line: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    RequiredVersion,
    CompatibleWith,
}

impl Kind {
    /// A text without which no file can have a declaration of this kind.
    fn needle(self) -> &'static str {
        match self {
            Self::RequiredVersion => "required_version",
            Self::CompatibleWith => "compatible_with",
        }
    }
}

/// A file name of the configuration, taken apart.
struct FileName<'a> {
    stem: &'a str,
    tofu: bool,
    json: bool,
}

impl<'a> FileName<'a> {
    /// `None` for other files, hidden ones and backups of editors.
    fn parse(name: &'a str) -> Option<Self> {
        const ENDINGS: [(&str, bool, bool); 4] = [
            (".tf", false, false),
            (".tf.json", false, true),
            (".tofu", true, false),
            (".tofu.json", true, true),
        ];
        let backup = name.ends_with('~') || (name.starts_with('#') && name.ends_with('#'));
        if name.starts_with('.') || backup {
            return None;
        }
        let find =
            |(ending, tofu, json)| name.strip_suffix(ending).map(|stem| Self { stem, tofu, json });
        ENDINGS.into_iter().find_map(find)
    }

    fn is_override(&self) -> bool {
        self.stem == "override" || self.stem.ends_with("_override")
    }
}

/// The names of the configuration's files, sorted.
fn names(dir: &Path) -> Result<BTreeSet<String>, VersionError> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir).map_err(VersionError::Unreadable)? {
        let entry = entry.map_err(VersionError::Unreadable)?;
        if let Ok(name) = entry.file_name().into_string()
            && FileName::parse(&name).is_some()
            && fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file())
        {
            names.insert(name);
        }
    }
    Ok(names)
}

/// The first file that only OpenTofu reads.
pub(super) fn tofu_file(dir: &Path) -> Result<Option<String>, VersionError> {
    let is_tofu = |name: &String| FileName::parse(name).is_some_and(|name| name.tofu);
    Ok(names(dir)?.into_iter().find(is_tofu))
}

/// What the configuration in `dir` requires of `tool`.
pub(super) fn scan(
    dir: &Path,
    tool: ToolName,
    why: &mut Vec<Reason>,
) -> Result<Requirement, VersionError> {
    let names = names(dir)?;
    let visible = |name: &&String| match (tool, FileName::parse(name)) {
        (_, None) => false,
        (ToolName::Terraform, Some(file)) => !file.tofu,
        (ToolName::Tofu, Some(file)) => {
            let json = if file.json { ".json" } else { "" };
            file.tofu || !names.contains(&format!("{}.tofu{json}", file.stem))
        }
    };
    let is_override = |name: &&String| FileName::parse(name).is_some_and(|file| file.is_override());
    let (overrides, primary): (Vec<_>, Vec<_>) =
        names.iter().filter(visible).partition(is_override);

    let mut rules = Rules::default();
    for name in primary {
        rules.add(Rules::of_file(&dir.join(name), tool, why)?);
    }
    for name in overrides {
        rules.replace(Rules::of_file(&dir.join(name), tool, why)?);
    }
    Ok(rules.requirement(tool))
}

/// What files require, by the rules of old and of new.
#[derive(Default)]
struct Rules {
    classic: Constraint,
    tofu_1_12: Constraint,
    /// A `language` block is there, which OpenTofu before 1.12 does not take.
    needs_1_12: bool,
}

impl Rules {
    fn of_file(path: &Path, tool: ToolName, why: &mut Vec<Reason>) -> Result<Self, VersionError> {
        let tofu_file = path.file_name().and_then(|name| FileName::parse(name.to_str()?));
        let tofu_file = tofu_file.is_some_and(|name| name.tofu);
        let mut rules = Self::default();
        for Declaration { kind, text, line } in declarations(path, tool)? {
            let place = match line {
                0 => path.display().to_string(),
                line => format!("{}:{line}", path.display()),
            };
            let constraint: Constraint = text
                .parse()
                .map_err(|source| VersionError::Request { place: place.clone(), source })?;
            why.push(Reason::new(place, format!("{} {constraint}", kind.needle())));
            rules.needs_1_12 |= kind == Kind::CompatibleWith;
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
    }

    /// As an override file does: what it requires stands instead of what was required before.
    fn replace(&mut self, other: Self) {
        for (mine, others) in
            [(&mut self.classic, &other.classic), (&mut self.tofu_1_12, &other.tofu_1_12)]
        {
            if !others.is_empty() {
                *mine = Constraint::default();
            }
        }
        self.add(other);
    }

    fn requirement(mut self, tool: ToolName) -> Requirement {
        if tool == ToolName::Terraform {
            return Requirement { constraint: self.classic, tofu_1_12: None };
        }
        if self.needs_1_12 {
            self.classic.and(">= 1.12.0".parse().unwrap_or_default());
        }
        Requirement { constraint: self.classic, tofu_1_12: Some(self.tofu_1_12) }
    }
}

/// The declarations of one file. It is parsed only if it can have any.
fn declarations(path: &Path, tool: ToolName) -> Result<Vec<Declaration>, VersionError> {
    let kinds: &[Kind] = match tool {
        ToolName::Terraform => &[Kind::RequiredVersion],
        ToolName::Tofu => &[Kind::RequiredVersion, Kind::CompatibleWith],
    };
    let bytes = read_at_most(path, MAX_CONFIGURATION).map_err(VersionError::Unreadable)?;
    let too_large = || VersionError::TooLarge { path: path.to_owned(), limit: MAX_CONFIGURATION };
    let bytes = bytes.ok_or_else(too_large)?;
    if !kinds.iter().any(|kind| memmem::find(&bytes, kind.needle().as_bytes()).is_some()) {
        return Ok(Vec::new());
    }
    let text = String::from_utf8(bytes).map_err(|_| VersionError::NotText(path.to_owned()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let found = if path.extension().is_some_and(|extension| extension == "json") {
        in_json(path, text)?
    } else {
        in_hcl(path, text)?
    };
    let Some(mut found) = found else {
        tracing::warn!("{}: a required version that is no literal is passed over", path.display());
        return Ok(Vec::new());
    };
    found.retain(|declaration| kinds.contains(&declaration.kind));
    Ok(found)
}

/// `None` if a declaration is no literal.
fn in_hcl(path: &Path, text: &str) -> Result<Option<Vec<Declaration>>, VersionError> {
    let body = hcl_edit::parser::parse_body(text).map_err(|error| VersionError::Syntax {
        path: path.to_owned(),
        line: error.location().line(),
        column: error.location().column(),
        message: error.message().to_owned(),
        text: error.line().to_owned(),
    })?;
    let mut found = Vec::new();
    let mut collect = |block: &Block, key: &str, kind: Kind| {
        let named = |attribute: &&Attribute| attribute.key.as_str() == key;
        let set = |attribute: &&Attribute| !attribute.value.is_null();
        for attribute in block.body.attributes().filter(named).filter(set) {
            let Some(value) = literal(&attribute.value) else { return false };
            let start = attribute.span().map_or(0, |span| span.start);
            let line = text[..start].matches('\n').count() + 1;
            found.push(Declaration { kind, text: value, line });
        }
        true
    };
    let literals = blocks(&body, "terraform")
        .all(|block| collect(block, "required_version", Kind::RequiredVersion))
        && blocks(&body, "language")
            .flat_map(|block| blocks(&block.body, "compatible_with"))
            .all(|block| collect(block, "opentofu", Kind::CompatibleWith));
    Ok(literals.then_some(found))
}

fn blocks<'a>(body: &'a Body, name: &'a str) -> impl Iterator<Item = &'a Block> {
    body.blocks().filter(move |block| block.ident.as_str() == name)
}

/// The text of a literal, `None` for what would have to be evaluated.
fn literal(expression: &Expression) -> Option<String> {
    match expression {
        Expression::String(text) => Some(text.value().clone()),
        Expression::Number(number) => Some(number.value().to_string()),
        Expression::StringTemplate(template) => joined(template.iter()),
        Expression::HeredocTemplate(heredoc) => joined(heredoc.template.iter()),
        Expression::Parenthesis(inner) => literal(inner.inner()),
        _ => None,
    }
}

fn joined<'a>(elements: impl Iterator<Item = &'a Element>) -> Option<String> {
    let part = |element: &Element| match element {
        Element::Literal(part) => Some(part.value().clone()),
        Element::Interpolation(part) => literal(&part.expr),
        Element::Directive(_) => None,
    };
    elements.map(part).collect()
}

/// `None` if a declaration is no literal.
fn in_json(path: &Path, text: &str) -> Result<Option<Vec<Declaration>>, VersionError> {
    let root: Value = serde_json::from_str(text).map_err(|error| VersionError::Syntax {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
        message: "not JSON".to_owned(),
        text: text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default().to_owned(),
    })?;
    let terraform = members(vec![&root], "terraform");
    let language = members(members(vec![&root], "language"), "compatible_with");
    let required = members(terraform, "required_version").into_iter();
    let compatible = members(language, "opentofu").into_iter();
    let values = required
        .map(|value| (Kind::RequiredVersion, value))
        .chain(compatible.map(|value| (Kind::CompatibleWith, value)));
    let mut found = Vec::new();
    for (kind, value) in values {
        match value {
            Value::Null => {}
            Value::String(text) if !text.contains("${") && !text.contains("%{") => {
                found.push(Declaration { kind, text: text.clone(), line: 0 });
            }
            Value::Number(number) => {
                found.push(Declaration { kind, text: number.to_string(), line: 0 });
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// The members of this name in objects, or in lists of them: a block of JSON may be either.
fn members<'a>(values: Vec<&'a Value>, name: &str) -> Vec<&'a Value> {
    let objects = values.into_iter().flat_map(|value| match value {
        Value::Array(list) => list.iter().collect(),
        other => vec![other],
    });
    objects.filter_map(|object| object.get(name)).collect()
}
