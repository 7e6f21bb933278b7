//! Values that are secrets, and values that only look like secrets by their name.

use std::path::Path;

use secrecy::SecretSlice;
use serde_json::Value;
use url::Url;

use crate::process::url_secrets;
use crate::source::regular;

/// No file with a secret is larger.
const MAX_FILE: u64 = 1 << 20;

/// Words of at least 8 letters that messages and configurations have, and that are used as values of examples.
const COMMON: [&str; 25] = [
    "administrator",
    "changeme",
    "cluster-admin",
    "credentials",
    "deployment",
    "development",
    "disabled",
    "internal",
    "kubernetes",
    "localhost",
    "opentofu",
    "password",
    "postgres",
    "postgresql",
    "production",
    "resource",
    "resources",
    "sensitive",
    "service_account",
    "standard",
    "superuser",
    "terraform",
    "terragrunt",
    "username",
    "x-oauth-basic",
];

/// A value that must not be shown.
#[derive(Debug)]
pub(crate) struct Secret {
    /// What the user calls it: the name of a variable, a file or an output.
    pub(crate) name: String,
    pub(crate) value: SecretSlice<u8>,
}

/// The secrets in a value that is named like one: itself, unless it says where a secret is, or has secrets in it.
pub(crate) fn of_value(name: &str, value: &[u8]) -> Vec<Secret> {
    let text = std::str::from_utf8(value).map(str::trim).unwrap_or_default();
    if text.is_empty() {
        return if value.trim_ascii().is_empty() { Vec::new() } else { vec![secret(name, value)] };
    }
    if is_path(text) || is_public(text) {
        return Vec::new();
    }
    if is_url(text) {
        return of_url(name, text);
    }
    let mut secrets = Vec::from_iter(secret_unless_common(name, value));
    add_parts(name, text, &mut secrets);
    secrets
}

/// The secrets in a text that is one itself: in a JSON document, in a list all texts, in other documents of several lines what
/// follows the names of secrets, as in INI and YAML.
fn add_parts(name: &str, text: &str, secrets: &mut Vec<Secret>) {
    if let Ok(document @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text) {
        return add_fields(name, &document, document.is_array(), secrets);
    }
    for line in text.lines().skip(usize::from(!text.contains('\n'))) {
        let Some((field, value)) = line.split_once(['=', ':']) else { continue };
        if is_secret_field(field.trim()) {
            let value = value.trim().trim_matches(['"', '\'']);
            secrets.extend(secret_unless_common(name, value.as_bytes()));
        }
    }
}

/// The password of a URL, or a token in place of the user, and the values of its secret parameters.
pub(crate) fn of_url(name: &str, text: &str) -> Vec<Secret> {
    // A list, as of indexes or proxies, has several.
    let parts = text.split(|c: char| c.is_whitespace() || matches!(c, ',' | '|' | ';'));
    let parts = parts.filter(|part| *part != text && part.contains("://"));
    let of_parts = parts.flat_map(|part| of_one_url(name, part));
    of_parts.chain(of_one_url(name, text)).collect()
}

fn of_one_url(name: &str, text: &str) -> Vec<Secret> {
    let Ok(url) = Url::parse(text) else { return Vec::new() };
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<_>>();
    let mut secrets = Vec::new();
    let is_token = matches!(url.scheme(), "http" | "https")
        && matches!(url.password(), None | Some("" | "x-oauth-basic"));
    let user = Some(url.username()).filter(|_| is_token);
    for text in user.into_iter().chain(url.password()).filter(|text| !text.is_empty()) {
        secrets.extend(secret_unless_common(name, text.as_bytes()));
        secrets.extend(secret_unless_common(name, &decoded(text)));
    }
    for (parameter, value) in url.query_pairs() {
        if url_secrets::is_secret(&parameter) {
            secrets.push(secret(name, value.as_bytes()));
        }
    }
    secrets
}

/// The secrets in a file: fields of a JSON document, settings, or the text.
pub(crate) fn of_file(path: &Path) -> Vec<Secret> {
    let name = path.display().to_string();
    match regular::beginning(path, MAX_FILE) {
        Ok(Some(contents)) => of_contents(&name, &contents),
        // A pipe can be read only once, by the program that needs it.
        Ok(None) => Vec::new(),
        Err(error) => {
            tracing::debug!("the secret in {name} is not masked: {error}");
            Vec::new()
        }
    }
}

/// Of a document only what its secret fields contain: the rest is known to everybody.
fn of_contents(name: &str, contents: &[u8]) -> Vec<Secret> {
    let text = String::from_utf8_lossy(contents);
    let mut secrets = Vec::new();
    add_parts(name, text.trim(), &mut secrets);
    if secrets.is_empty() && !text.trim_start().starts_with('{') {
        return of_value(name, contents);
    }
    secrets
}

/// All texts of a document; only those of secret fields, unless `is_secret`.
pub(crate) fn add_fields(name: &str, value: &Value, is_secret: bool, secrets: &mut Vec<Secret>) {
    match value {
        Value::String(text) if is_secret => {
            secrets.extend(secret_unless_common(name, text.as_bytes()));
            add_parts(name, text, secrets);
        }
        Value::Number(number) if is_secret => {
            secrets.extend(secret_unless_common(name, number.to_string().as_bytes()));
        }
        Value::Array(list) => {
            for item in list {
                add_fields(name, item, is_secret, secrets);
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                add_fields(name, value, is_secret || is_secret_field(field), secrets);
            }
        }
        _ => {}
    }
}

/// A secret of that name.
pub(crate) fn secret(name: &str, value: &[u8]) -> Secret {
    Secret { name: name.to_owned(), value: SecretSlice::from(value.to_vec()) }
}

/// The same, unless the value is a word that everybody knows: masking it would hide nothing but the meaning of messages.
pub(crate) fn secret_unless_common(name: &str, value: &[u8]) -> Option<Secret> {
    let is_common =
        COMMON.iter().any(|word| value.trim_ascii().eq_ignore_ascii_case(word.as_bytes()));
    (!is_common).then(|| secret(name, value))
}

fn is_secret_field(name: &str) -> bool {
    const PARTS: [&str; 4] = ["private_key", "password", "secret_access_key", "key_data"];
    let lower = name.to_ascii_lowercase().replace('-', "_");
    url_secrets::is_secret(name) || PARTS.iter().any(|part| lower.contains(part))
}

/// Whether a value says where something is in the file system.
fn is_path(text: &str) -> bool {
    let is_absolute = text.starts_with('/') && !is_base64(text);
    !text.contains('\n') && (is_absolute || text.starts_with("~/") || Path::new(text).is_file())
}

/// Whether a text that begins with a slash is rather a key in base64, such as one of AWS, than a path.
fn is_base64(text: &str) -> bool {
    let has = |class: fn(&u8) -> bool| text.as_bytes().iter().any(class);
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    text.len() >= 32
        && text.bytes().all(is_base64)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
        && text.split('/').any(|part| part.len() >= 12)
}

fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty()
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    }) && !text.contains(char::is_whitespace)
}

/// Whether a value is known to everybody: a public key, a certificate.
fn is_public(text: &str) -> bool {
    let is_block = |kind: &str| text.starts_with(&format!("-----BEGIN {kind}"));
    ["ssh-rsa ", "ssh-ed25519 ", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"]
        .iter()
        .any(|kind| text.starts_with(kind))
        || ["PUBLIC KEY", "RSA PUBLIC KEY", "PGP PUBLIC KEY"].iter().any(|kind| is_block(kind))
        || is_block("CERTIFICATE") && !text.contains("PRIVATE KEY")
}
