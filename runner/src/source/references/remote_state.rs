//! Whether a configuration reads other states with the user and password that the tool has for its own: the backend `http`
//! takes them from its environment also in a `terraform_remote_state`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use hcl_edit::expr::{Expression, Object};
use hcl_edit::structure::{BlockLabel, Body};
use serde_json::{Map, Value};

use crate::source::references::search::first_file;

/// The type of the data source.
const REMOTE_STATE: &str = "terraform_remote_state";

/// A file that reads such a state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RemoteState {
    /// From another server.
    Foreign(PathBuf),
    /// From an address, or with settings, that are not literal.
    Unknown(PathBuf),
}

/// From where a state is read without a password of its own.
#[derive(Debug, PartialEq, Eq)]
enum Address {
    Literal(String),
    Unknown,
}

/// Searches the module in `root` and all modules that init has installed. `is_own`: whether an address is one of the server of
/// the tool's own state. The tool keeps its data in `data_dir`.
pub(crate) fn remote_state(
    root: &Path,
    data_dir: &Path,
    is_own: impl Fn(&str) -> bool,
) -> io::Result<Option<RemoteState>> {
    let first = |is_meant: &dyn Fn(&Address) -> bool| {
        first_file(root, data_dir, |file, text| addresses(file, text).iter().any(is_meant))
    };
    let is_foreign =
        |address: &Address| matches!(address, Address::Literal(address) if !is_own(address));
    if let Some(file) = first(&is_foreign)? {
        return Ok(Some(RemoteState::Foreign(file)));
    }
    let unknown = first(&|address: &Address| *address == Address::Unknown)?;
    Ok(unknown.map(RemoteState::Unknown))
}

fn addresses(file: &Path, text: &str) -> Vec<Address> {
    let mut found = Vec::new();
    if !text.contains(REMOTE_STATE) {
        return found;
    }
    if file.extension() == Some(OsStr::new("json")) {
        in_json(&serde_json::from_str(text).unwrap_or_default(), &mut found);
        return found;
    }
    match hcl_edit::parser::parse_body(text) {
        Ok(body) => in_body(&body, &mut found),
        // Of what the parser rejects only the text is known.
        Err(_) => found.extend(text.contains("\"http\"").then_some(Address::Unknown)),
    }
    found
}

fn in_body(body: &Body, found: &mut Vec<Address>) {
    for block in body.blocks() {
        match block.ident.as_str() {
            "check" => in_body(&block.body, found),
            "data" if block.labels.first().map(BlockLabel::as_str) == Some(REMOTE_STATE) => {
                found.extend(of_block(&block.body));
            }
            _ => {}
        }
    }
}

fn of_block(data: &Body) -> Option<Address> {
    let value = |name| data.get_attribute(name).map(|attribute| &attribute.value);
    if value("backend").and_then(Expression::as_str) != Some("http") {
        return None;
    }
    let Some(Expression::Object(config)) = value("config") else { return Some(Address::Unknown) };
    if setting(config, "password").is_some() {
        return None;
    }
    Some(literal(setting(config, "address").and_then(Expression::as_str)))
}

fn literal(address: Option<&str>) -> Address {
    address.map_or(Address::Unknown, |address| Address::Literal(address.to_owned()))
}

fn setting<'a>(config: &'a Object, name: &str) -> Option<&'a Expression> {
    config.iter().find_map(|(key, value)| {
        let is_named = key.as_ident().is_some_and(|key| key.as_str() == name)
            || key.as_expr().and_then(Expression::as_str) == Some(name);
        is_named.then(|| value.expr())
    })
}

fn in_json(file: &Value, found: &mut Vec<Address>) {
    for checks in blocks(file.get("check")) {
        let all = checks.as_object().into_iter().flat_map(Map::values);
        all.flat_map(|check| blocks(Some(check))).for_each(|check| in_json(check, found));
    }
    for data in blocks(file.get("data")) {
        for named in blocks(data.get(REMOTE_STATE)) {
            let all = named.as_object().into_iter().flat_map(Map::values);
            found.extend(all.flat_map(|block| blocks(Some(block))).filter_map(of_json));
        }
    }
}

/// In JSON every block may be a list of blocks.
fn blocks(value: Option<&Value>) -> Vec<&Value> {
    match value {
        Some(Value::Array(all)) => all.iter().collect(),
        value => value.into_iter().collect(),
    }
}

fn of_json(data: &Value) -> Option<Address> {
    if data.get("backend").and_then(Value::as_str) != Some("http") {
        return None;
    }
    let config = data.get("config").and_then(Value::as_object);
    if config.is_some_and(|config| config.contains_key("password")) {
        return None;
    }
    let address = config.and_then(|config| config.get("address")).and_then(Value::as_str);
    Some(literal(address.filter(|address| !address.contains("${"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_without_a_password_of_their_own_are_found_with_their_address() {
        let at = |address: &str| Some(Address::Literal(address.to_owned()));
        for (config, expected) in [
            ("{ address = \"https://a.example/x\" }", at("https://a.example/x")),
            ("{ \"address\" = \"https://a.example/x\" }", at("https://a.example/x")),
            ("{ address = var.address }", Some(Address::Unknown)),
            ("merge(local.http, { address = \"https://a.example/x\" })", Some(Address::Unknown)),
            ("{ address = \"https://a.example/x\", password = var.password }", None),
            ("{ \"address\" = \"https://a.example/x\", \"password\" = \"\" }", None),
        ] {
            let data = |backend: &str| {
                format!(
                    "data \"{REMOTE_STATE}\" \"x\" {{\n  backend = \"{backend}\"\n  config  = {config}\n}}\n"
                )
            };
            let found = |text: &str| addresses(Path::new("a.tf"), text).pop();
            assert_eq!(found(&data("http")), expected, "{config}");
            assert_eq!(found(&format!("check \"c\" {{\n{}}}\n", data("http"))), expected);
            assert_eq!(found(&data("s3")), None, "{config}");
        }
        for (data, expected) in [
            (r#"{"backend": "http", "config": {"address": "https://a/x"}}"#, at("https://a/x")),
            (r#"[{"backend": "http", "config": {"address": "${var.a}"}}]"#, Some(Address::Unknown)),
            (r#"{"backend": "http", "config": {"address": "https://a/x", "password": "p"}}"#, None),
            (r#"{"backend": "s3", "config": {"address": "https://a/x"}}"#, None),
        ] {
            let json = format!(
                "{{\"data\": {{\"{REMOTE_STATE}\": {{\"x\": {data}}}}}, \"port\": \"http\", \"password\": 1}}"
            );
            assert_eq!(addresses(Path::new("a.tf.json"), &json).pop(), expected, "{json}");
        }
    }
}
