//! The client of the datastore that the flags name, and the checks of its URL.

use std::path::Path;

use datastore_api::Client;
use datastore_api::client::{Notify, Settings, Token};
use secrecy::ExposeSecret as _;
use url::Url;

use crate::cli::{DatastoreArgs, Environment};
use crate::order::job::JobError;
use crate::source::regular;

/// The flag and the variable that name the datastore.
pub(super) const FLAG: &str = "--datastore (PLANCHA_DATASTORE_URL)";

/// The datastore that the flags name.
pub(crate) fn datastore(
    args: &DatastoreArgs,
    ca_file: Option<&Path>,
    environment: &Environment,
) -> Result<Option<Client>, JobError> {
    let Some(settings) = client_settings(args, ca_file, environment)? else { return Ok(None) };
    let client = Client::new(settings);
    client.map(Some).map_err(|error| JobError::Config(format!("--ca-file: {error}")))
}

/// The settings of that client.
pub(super) fn client_settings(
    args: &DatastoreArgs,
    ca_file: Option<&Path>,
    environment: &Environment,
) -> Result<Option<Settings>, JobError> {
    let Some(text) = &args.datastore else { return Ok(None) };
    let url = parse_url(text.expose_secret(), FLAG).map_err(JobError::Usage)?;
    for (flag, file) in [("--token-file", args.token_file.as_deref()), ("--ca-file", ca_file)] {
        if let Some(file) = file {
            let checked = regular::check_named(file);
            checked.map_err(|error| JobError::Config(format!("{flag}: {error}: name a file")))?;
        }
    }
    let mut settings = settings(url, args);
    settings.ca_files.extend(ca_file.map(Path::to_owned));
    settings.token = match (&args.token_file, &environment.token) {
        (Some(file), _) => {
            environment.redaction.add_files([file.clone()]);
            Token::File(file.clone())
        }
        (None, Some(token)) => Token::Text(token.clone()),
        (None, None) => Token::None,
    };
    Ok(Some(settings))
}

/// Settings of the client: the timeout, and warnings while it waits.
pub(super) fn settings(url: Url, args: &DatastoreArgs) -> Settings {
    let notify: Notify = |notice| tracing::warn!("{notice}");
    Settings { timeout: args.datastore_timeout, notify: Some(notify), ..Settings::new(url) }
}

/// Parses the URL of a datastore. `place` names the flag or variable. Errors never contain a possible password or token.
pub(super) fn parse_url(text: &str, place: &str) -> Result<Url, String> {
    const EXPECTED: &str = "expected http://HOST[:PORT] or https://HOST[:PORT]";
    let refused = |reason: &str| Err(format!("{place}: {reason}: {EXPECTED}"));
    if text.trim().is_empty() {
        return refused("the URL is empty");
    }
    if text.starts_with(['"', '\'']) {
        return refused("the URL has quotes around it; remove them");
    }
    if text.starts_with(['/', '.', '~']) {
        return refused("this is a path, but the runner needs the URL of a datastore that serves");
    }
    if let Some(address) = without_scheme(text) {
        return Err(format!(
            "{place}: {address} has no scheme: write http://{address} or https://{address}"
        ));
    }
    let url = Url::parse(text).map_err(|error| format!("{place}: {error}: {EXPECTED}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return refused(
            "the URL has a user or password; a token goes into --token-file or PLANCHA_TOKEN",
        );
    }
    if !matches!(url.scheme(), "http" | "https") {
        // The part after the scheme may be a user and a password.
        let shown = if text.contains('@') { String::new() } else { format!(" `{url}`") };
        return refused(&format!("the URL{shown} has a scheme other than http or https"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refused(
            "the URL has a query or a fragment; a token goes into --token-file or PLANCHA_TOKEN",
        );
    }
    // `http:///x` is read as `http://x`.
    if text.split_once("://").is_none_or(|(_, rest)| rest.starts_with('/')) {
        return refused("the URL has no host");
    }
    if url.path().starts_with("//") {
        return refused("the URL has two schemes, or an empty segment in its path");
    }
    let mut segments = url.path_segments().into_iter().flatten();
    if segments.any(|segment| matches!(segment, "api" | "healthz" | "readyz")) {
        return refused(&format!(
            "the URL ends with {}, but the runner appends the route itself",
            url.path()
        ));
    }
    Ok(url)
}

/// The text, if it is only a host with an optional port and path, and so contains no secret.
fn without_scheme(text: &str) -> Option<&str> {
    let host = text.split(['/', '?', '#']).next().unwrap_or_default();
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    let is_host = !name.is_empty() && name.chars().all(is_name);
    let is_port = port.chars().all(|c| c.is_ascii_digit());
    let is_plain = !text.contains(['@', '?', '#']) && !text.contains("//");
    (is_plain && is_host && is_port).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_names_more_than_a_datastore_is_refused_without_its_secrets() {
        for (text, reason) in [
            ("http://user:hunter2@host", "a user or password"),
            ("http://host?token=hunter2", "a query or a fragment"),
            ("http://host/#hunter2", "a query or a fragment"),
            ("http:///host", "no host"),
            ("http:host", "no host"),
            ("ftp://host", "`ftp://host/` has a scheme other than"),
            ("http://host/api", "ends with /api,"),
            ("http://host/plancha/api/plans/", "ends with /plancha/api/plans/,"),
            ("http://http://host", "two schemes"),
            ("http://", "empty host"),
            ("http://host:99999", "invalid port"),
            ("", "is empty"),
            (" ", "is empty"),
            ("/srv/hunter2", "a path"),
            ("./hunter2", "a path"),
            ("\"http://me:hunter2@host\"", "has quotes"),
        ] {
            let refused = parse_url(text, "--datastore").unwrap_err();
            assert!(refused.starts_with("--datastore: "), "{refused}");
            assert!(refused.contains(reason), "{text}: {refused}");
            assert!(refused.ends_with("expected http://HOST[:PORT] or https://HOST[:PORT]"));
            assert!(!refused.contains("hunter2"), "{refused}");
        }
        for text in
            ["http://host", "https://host:9700/", "http://[::1]:9700", "http://host/behind/a/proxy"]
        {
            parse_url(text, "--datastore").unwrap();
        }
    }
}
