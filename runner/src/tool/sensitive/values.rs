//! Values of variables, as the command line, the environment and files have them: every text in them, and every long number.

use std::collections::BTreeSet;
use std::path::Path;

use hcl_edit::expr::{Expression, Object};
use hcl_edit::template::Element;
use serde_json::Value;

use crate::process::redact::values::{Secret, add_fields, secret_unless_common};
use crate::source::regular;

/// Larger than any file with values in use.
const MAX_FILE: u64 = 16 << 20;

/// The secrets in the value of a variable, which is a text, or an expression if the variable has such a type.
pub(super) fn of_text(name: &str, value: &[u8]) -> Vec<Secret> {
    let mut secrets = Vec::from_iter(secret_unless_common(name, value));
    let text = String::from_utf8_lossy(value);
    if text.trim_start().starts_with(['{', '[', '"', '<']) {
        // As an attribute: a heredoc needs the end of its line.
        let body = hcl_edit::parser::parse_body(&format!("value = {}\n", text.trim())).ok();
        for attribute in body.iter().flat_map(|body| body.attributes()) {
            add_expression(name, &attribute.value, &mut secrets);
        }
    }
    secrets
}

/// The secrets in a file with values: those of variables with these names.
pub(super) fn of_file(file: &Path, names: &BTreeSet<String>) -> Vec<Secret> {
    let mut secrets = Vec::new();
    let Some(text) = text_of(file) else { return secrets };
    let is_json = file.extension().is_some_and(|end| end == "json");
    if is_json {
        let Ok(Value::Object(values)) = serde_json::from_str(&text) else {
            warn(file);
            return secrets;
        };
        for (name, value) in values.iter().filter(|(name, _)| names.contains(*name)) {
            add_fields(name, value, true, &mut secrets);
        }
    } else {
        let Ok(body) = hcl_edit::parser::parse_body(&text) else {
            warn(file);
            return secrets;
        };
        for attribute in body.attributes().filter(|set| names.contains(set.key.as_str())) {
            add_expression(attribute.key.as_str(), &attribute.value, &mut secrets);
        }
    }
    secrets
}

/// The parser's own message would contain the line.
fn warn(file: &Path) {
    let file = file.display();
    tracing::warn!("{file} cannot be parsed: sensitive values in it are not masked");
}

/// The text of a plain file: a pipe can be read only once, by the tool.
pub(super) fn text_of(file: &Path) -> Option<String> {
    let read = regular::beginning(file, MAX_FILE);
    let bytes = read.inspect_err(|error| tracing::debug!("{error}")).ok()?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    Some(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
}

/// Every text in an expression.
fn add_expression(name: &str, value: &Expression, secrets: &mut Vec<Secret>) {
    match value {
        Expression::String(text) => {
            secrets.extend(secret_unless_common(name, text.as_str().as_bytes()));
        }
        Expression::Number(number) => {
            secrets.extend(secret_unless_common(name, number.value().to_string().as_bytes()));
        }
        Expression::StringTemplate(template) => add_template(name, template.iter(), secrets),
        Expression::HeredocTemplate(heredoc) => {
            add_template(name, heredoc.template.iter(), secrets);
        }
        Expression::Array(items) => {
            items.iter().for_each(|item| add_expression(name, item, secrets));
        }
        Expression::Object(fields) => add_object(name, fields, secrets),
        Expression::Parenthesis(inner) => add_expression(name, inner.inner(), secrets),
        _ => {}
    }
}

fn add_object(name: &str, fields: &Object, secrets: &mut Vec<Secret>) {
    fields.iter().for_each(|(_, value)| add_expression(name, value.expr(), secrets));
}

/// A file with values has no variables: its templates have only literals, such as `"$${x}"`.
fn add_template<'a>(
    name: &str,
    elements: impl Iterator<Item = &'a Element>,
    secrets: &mut Vec<Secret>,
) {
    let mut text = String::new();
    for element in elements {
        match element {
            Element::Literal(part) => text.push_str(part),
            Element::Interpolation(part) => match &part.expr {
                Expression::String(part) => text.push_str(part),
                part => add_expression(name, part, secrets),
            },
            Element::Directive(_) => {}
        }
    }
    secrets.extend(secret_unless_common(name, text.as_bytes()));
}
