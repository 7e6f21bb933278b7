//! Reads files in HCL and TOML, and the literals in them.
//!
//! What the blocks and keys mean is not known here.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

use fs_err as fs;
use hcl_edit::Span as _;
use hcl_edit::expr::Expression;
use hcl_edit::structure::{Attribute, Block, Body};
use hcl_edit::template::Element;

use crate::version::context::SearchContext;
use crate::version::error::VersionError;

/// Larger than any configuration file in use.
pub(super) const MAX_CONFIGURATION: u64 = 16 * 1024 * 1024;

/// Longer than any version constraint or module source.
const MAX_LITERAL: usize = 64 * 1024;

/// The value of an expression, if it is a literal.
pub(super) enum Literal {
    /// Its text; a number's digits.
    Text(String),
    /// `null`, which counts as not set.
    Null,
    /// A variable, a function, or a value of another type.
    Unknown,
}

/// The text of a file, without a byte order mark.
pub(super) fn text(path: &Path, bytes: Vec<u8>) -> Result<String, VersionError> {
    let text = String::from_utf8(bytes).map_err(|_| VersionError::NotText(path.to_owned()))?;
    Ok(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned))
}

/// The text of a configuration file. The tools accept comments that are not UTF-8.
pub(super) fn lossy(bytes: Vec<u8>) -> String {
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)
}

pub(super) fn hcl(path: &Path, text: &str) -> Result<Body, VersionError> {
    hcl_edit::parser::parse_body(text).map_err(|error| VersionError::Syntax {
        path: path.to_owned(),
        line: error.location().line(),
        column: error.location().column(),
        message: error.message().to_owned(),
        text: error.line().to_owned(),
    })
}

pub(super) fn toml(path: &Path, text: &str) -> Result<toml::Table, VersionError> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = &text[..error.span().map_or(0, |span| span.start.min(text.len()))];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        VersionError::Syntax {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            message: error.message().lines().next().unwrap_or("not TOML").to_owned(),
            text: text[start..].lines().next().unwrap_or_default().to_owned(),
        }
    })
}

pub(super) fn blocks<'a>(body: &'a Body, name: &'a str) -> impl Iterator<Item = &'a Block> {
    body.blocks().filter(move |block| block.ident.as_str() == name)
}

/// The attributes with this name; more than one is an error that the tool reports.
pub(super) fn attributes<'a>(body: &'a Body, name: &'a str) -> impl Iterator<Item = &'a Attribute> {
    body.attributes().filter(move |attribute| attribute.key.as_str() == name)
}

/// The line of an attribute, from 1.
pub(super) fn line_of(text: &str, attribute: &Attribute) -> usize {
    let start = attribute.span().map_or(0, |span| span.start);
    text.get(..start).map_or(1, |before| before.matches('\n').count() + 1)
}

/// Parses a text as an expression; `Unknown` if it is too large.
pub(super) fn literal_of(text: &str) -> Literal {
    if text.len() > MAX_LITERAL {
        return Literal::Unknown;
    }
    // As an attribute: a heredoc needs the end of its line.
    let body = hcl_edit::parser::parse_body(&format!("value = {text}\n")).ok();
    let attribute = body.as_ref().and_then(|body| attributes(body, "value").next());
    attribute.map_or(Literal::Unknown, |attribute| literal(&attribute.value))
}

pub(super) fn literal(expression: &Expression) -> Literal {
    match expression {
        Expression::Null(_) => Literal::Null,
        Expression::String(text) => Literal::Text(text.value().clone()),
        Expression::Number(number) => Literal::Text(number.value().to_string()),
        Expression::StringTemplate(template) => joined(template.iter()),
        Expression::HeredocTemplate(heredoc) => joined(heredoc.template.iter()),
        Expression::Parenthesis(inner) => literal(inner.inner()),
        _ => Literal::Unknown,
    }
}

fn joined<'a>(elements: impl Iterator<Item = &'a Element>) -> Literal {
    let part = |element: &Element| match element {
        Element::Literal(part) => Some(part.value().clone()),
        Element::Interpolation(part) => match literal(&part.expr) {
            Literal::Text(text) => Some(text),
            Literal::Null | Literal::Unknown => None,
        },
        Element::Directive(_) => None,
    };
    elements.map(part).collect::<Option<_>>().map_or(Literal::Unknown, Literal::Text)
}

/// The text of a template, with `${...}` where a value has to be evaluated.
pub(super) fn template(expression: &Expression) -> Option<String> {
    let elements = match expression {
        Expression::String(text) => return Some(text.value().clone()),
        Expression::StringTemplate(template) => template.iter(),
        Expression::HeredocTemplate(heredoc) => heredoc.template.iter(),
        _ => return None,
    };
    let part = |element: &Element| match joined(std::iter::once(element)) {
        Literal::Text(text) => text,
        Literal::Null | Literal::Unknown => "${...}".to_owned(),
    };
    Some(elements.map(part).collect())
}

/// The whole file; `None` if it does not exist.
///
/// A file that cannot be read is ignored with a warning: in a parent directory it may belong to another user.
pub(super) fn read(
    path: &Path,
    limit: u64,
    context: &SearchContext,
) -> Result<Option<Vec<u8>>, VersionError> {
    let read = || {
        if fs::metadata(path)?.is_file() {
            return read_at_most(path, limit);
        }
        Err(std::io::Error::other(format!("{} is not a regular file", path.display())))
    };
    match read() {
        Ok(Some(bytes)) => Ok(Some(bytes)),
        Ok(None) => Err(VersionError::TooLarge { path: path.to_owned(), limit }),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            if path.is_symlink() {
                let path = path.display();
                context.warn(format!("ignoring a version file: {path} is a link to nothing"));
            }
            Ok(None)
        }
        Err(error) => {
            context.warn(format!("ignoring a version file: {error}"));
            Ok(None)
        }
    }
}

/// The whole file, or `None` if it is larger than `limit` bytes.
pub(super) fn read_at_most(path: &Path, limit: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= limit))
}
