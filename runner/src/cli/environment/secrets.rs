//! Environment variables whose values are secrets.

#![expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::process::redact::Redaction;
use crate::process::redact::values::{self, Secret, of_url, of_value};

/// Parts of the names of secrets.
const PARTS: [&str; 6] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PRIVATE", "CREDENTIAL"];
/// Names that have such a part and whose values are no secrets.
const PUBLIC: [&str; 2] = ["AWS_ACCESS_KEY_ID", "TOKENIZERS_PARALLELISM"];
/// Ends of names that say where a secret or a service is, not what it is. Secrets in URLs are masked all the same.
const PUBLIC_ENDS: [&str; 9] = [
    "_PUBLIC_KEY",
    "_FILE",
    "_FILE_PATH",
    "_PATH",
    "_DIR",
    "_SERVICE_HOST",
    "_SERVICE_PORT",
    "_TYPE",
    "_TTL",
];
/// Ends of names of files with a secret.
const FILE_ENDS: [&str; 9] = [
    "TOKEN_FILE",
    "TOKEN_FILE_PATH",
    "SECRET_FILE",
    "SECRET_FILE_PATH",
    "PASSWORD_FILE",
    "PASSWD_FILE",
    "SHARED_CREDENTIALS_FILE",
    "GOOGLE_CREDENTIALS",
    "GOOGLE_APPLICATION_CREDENTIALS",
];
/// Files with secrets in the home directory.
const HOME_FILES: [&str; 3] =
    [".aws/credentials", ".vault-token", ".terraform.d/credentials.tfrc.json"];
/// The tokens of a pod: of its service account, and of Burrito's datastore.
const POD_TOKENS: [&str; 2] =
    ["/var/run/secrets/kubernetes.io/serviceaccount/token", "/var/run/secrets/token/burrito"];

/// Adds the secrets of the environment, and the variables that `--redact-env` names.
pub(crate) fn add_secrets(redaction: &Redaction, named: &[String]) {
    let variables =
        env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value));
    let (mut secrets, mut files) = (Vec::new(), Vec::from(POD_TOKENS.map(PathBuf::from)));
    let home = env::var_os("HOME").map(PathBuf::from);
    files.extend(home.iter().flat_map(|home| HOME_FILES.map(|name| home.join(name))));
    for (name, value) in variables {
        if named.contains(&name) {
            secrets.push(values::secret(&name, value.as_bytes()));
        }
        files.extend(file(&name, &value));
        secrets.extend(of_variable(&name, &value));
    }
    for (index, name) in named.iter().enumerate() {
        if !name.is_empty() && env::var_os(name).is_none() {
            // It is not shown: a shell may have put the value of a variable in place of its name.
            let number = index + 1;
            tracing::info!(
                "nothing is masked for name {number} of --redact-env: this variable is not set"
            );
        }
    }
    redaction.add(secrets);
    redaction.add_files(files.into_iter().filter(|file| file.exists()));
}

/// The name of an environment variable, which may be any key of a Secret of Kubernetes, such as `tls.key`. What can only be
/// another list, or a value, would mask nothing.
pub(crate) fn variable_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let is_foreign = |c: char| c.is_whitespace() || matches!(c, ';' | '=' | '$' | '\0');
    if name.contains(is_foreign) {
        return Err("expected names of environment variables, separated by commas".to_owned());
    }
    Ok(name.to_owned())
}

/// The secrets in the value of a variable.
fn of_variable(name: &str, value: &OsString) -> Vec<Secret> {
    if is_secret(name) && !is_fingerprint(name, value) {
        return of_value(name, value.as_bytes());
    }
    value.to_str().map(|value| of_url(name, value)).unwrap_or_default()
}

/// The file with a secret that a variable names.
fn file(name: &str, value: &OsString) -> Option<PathBuf> {
    let name = name.to_ascii_uppercase();
    let is_file = FILE_ENDS.iter().any(|end| name.ends_with(end));
    Some(PathBuf::from(value)).filter(|path| is_file && Path::is_file(path))
}

/// Whether a variable is named like a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let part = |part: &&str| name.contains(part);
    // `TF_VAR_private_subnets` is no secret.
    let parts = PARTS.iter().filter(|part| {
        **part != "PRIVATE" || !name.starts_with("TF_VAR_") || name.contains("PRIVATE_KEY")
    });
    let is_named_so = parts.copied().any(|name| part(&name)) || name.ends_with("_KEY");
    // Services of Kubernetes: `TOKENS_PORT_80_TCP_ADDR`.
    let is_service =
        name.contains("_SERVICE_PORT_") || name.contains("_PORT_") && name.contains("_TCP");
    is_named_so
        && !is_service
        && !PUBLIC.contains(&&*name)
        && !PUBLIC_ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether a variable holds the fingerprint of a key, as `GPG_KEY` in the images of Python.
fn is_fingerprint(name: &str, value: &OsString) -> bool {
    let value = value.as_bytes();
    let is_key = ["GPG_KEY", "PGP_KEY"].iter().any(|end| name.to_ascii_uppercase().ends_with(end));
    is_key && value.len() <= 40 && value.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_secrets_by_their_names() {
        for name in [
            "GITHUB_TOKEN",
            "TF_TOKEN_app_terraform_io",
            "AWS_SECRET_ACCESS_KEY",
            "aws_session_token",
            "PGPASSWORD",
            "MYSQL_PASSWD",
            "ARM_CLIENT_SECRET",
            "SSH_PRIVATE_KEY",
            "GOOGLE_CREDENTIALS",
            "CLOUDFLARE_API_KEY",
            "TF_VAR_db_password",
            "TF_VAR_private_key",
            "VAULT_SECRET_ID",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "AWS_ACCESS_KEY_ID",
            "AWS_REGION",
            "HOME",
            "KEY",
            "KEYBOARD",
            "SSH_AUTH_SOCK",
            "PLANCHA_TOKEN_FILE",
            "AWS_SHARED_CREDENTIALS_FILE",
            "SECRETS_SERVICE_HOST",
            "SECRETS_SERVICE_PORT_HTTP",
            "TOKENS_PORT_80_TCP_ADDR",
            "SSH_PUBLIC_KEY",
            "TF_VAR_private_subnets",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn values_that_are_no_secrets_are_not_masked() {
        let count = |name: &str, value: &str| of_variable(name, &OsString::from(value)).len();
        for (name, value) in [
            ("GPG_KEY", "A035C8C19219BA821ECEA86B64E628F8D684696D"),
            ("TLS_PRIVATE_KEY", "/etc/tls/tls.key"),
            ("TLS_PRIVATE_KEY", "~/.ssh/id_ed25519"),
            ("DEPLOY_KEY", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDeploy deploy"),
            ("ACTIONS_ID_TOKEN_REQUEST_URL", "https://token.example.com/x?api-version=2"),
            ("EMPTY_TOKEN", ""),
        ] {
            assert_eq!(count(name, value), 0, "{name}={value}");
        }
        assert_eq!(count("API_KEY", "a-secret-value"), 1);
        assert_eq!(count("AWS_SECRET_ACCESS_KEY", "/bPxRfiCYEXAMPLEKEY/wJalrXUtnFEMI/K7MDENG"), 1);
        assert!(count("SOURCE", "https://ghp_0123456789:x-oauth-basic@h/x") > 0);
        assert_eq!(count("SOURCE", "ssh://somebody@h/x"), 0);
        let (first, second) = ("https://u1:pipfirst-11@a/x", "https://u2:pipsecond-22@b/x");
        for list in [format!("{first} {second}"), format!("{first},{second}|direct")] {
            assert!(count("PIP_EXTRA_INDEX_URL", &list) >= count("X", first) + count("X", second));
        }
        assert!(count("HTTPS_PROXY", "http://me:hunter2hunter2@proxy:3128") > 0);
    }
}
