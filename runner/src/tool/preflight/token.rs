//! A token in a variable or in a file that a variable names.

use std::io;

use jiff::Timestamp;

use crate::tool::preflight::expiry::Expiry;
use crate::tool::preflight::findings::Findings;
use crate::tool::preflight::jwt;
use crate::tool::preflight::question::{Question, User};

/// Examines the file of a token that a variable names.
pub(super) fn examine_token_file(
    variable: &str,
    file: &str,
    (question, user): (&Question<'_>, &User<'_>),
    is_certain: bool,
    findings: &mut Findings,
) {
    const HINT: &str = "mount or write the token there, or unset the variable";
    let file = question.file(file);
    match jwt::read(&file) {
        Ok(token) => examine_token(
            &format!("the token in {} ({variable})", file.display()),
            &token,
            (question, user),
            is_certain,
            findings,
        ),
        Err(error) => {
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let reason =
                if is_missing { "it does not exist".to_owned() } else { error.to_string() };
            let text =
                format!("{variable} names {}: {reason} ({} uses it)", file.display(), user.name);
            findings.add(is_certain && is_missing, text, HINT);
        }
    }
}

/// Examines a token that may be a JWT. `what` describes it, and never contains it.
pub(super) fn examine_token(
    what: &str,
    token: &str,
    (question, user): (&Question<'_>, &User<'_>),
    is_certain: bool,
    findings: &mut Findings,
) {
    let Some(at) = jwt::expires(token) else { return };
    if at > question.now {
        findings.expiries.push(Expiry { what: what.to_owned(), at });
        return;
    }
    let text = format!("{what} expired at {} ({} uses it)", second(at), user.name);
    let is_certain = is_certain && jwt::is_expired(at, question.now);
    findings.add(is_certain, text, "provide a fresh token, and check the clock of this machine");
}

/// Examines the token in `KUBE_TOKEN`, which the providers kubernetes and helm and the backend kubernetes use.
pub(super) fn examine_kubernetes(question: &Question<'_>, findings: &mut Findings) {
    /// Settings and variables with which another token or certificate may be used.
    const OTHERS: [&str; 10] = [
        "token",
        "exec",
        "username",
        "password",
        "client_certificate",
        "client_key",
        "config_path",
        "config_paths",
        "config_context_auth_info",
        // The block of the provider helm with all of these.
        "kubernetes",
    ];
    const OTHER_VARIABLES: [&str; 7] = [
        "KUBE_USER",
        "KUBE_PASSWORD",
        "KUBE_CLIENT_CERT_DATA",
        "KUBE_CLIENT_KEY_DATA",
        "KUBE_CONFIG_PATH",
        "KUBE_CONFIG_PATHS",
        "KUBE_CTX_AUTH_INFO",
    ];
    let Some(token) = question.variable("KUBE_TOKEN") else { return };
    for user in question.users(&["kubernetes", "helm"], "kubernetes") {
        if user.has_any(&["token"]) {
            continue;
        }
        // The providers may ask nothing in a plan, the backend reads the state.
        let is_certain = user.is_started
            && user.is_backend
            && user.blocks.len() <= 1
            && !user.has_any(&OTHERS)
            && !question.is_any_set(&OTHER_VARIABLES);
        let what = "the token in KUBE_TOKEN";
        examine_token(what, token, (question, &user), is_certain, findings);
    }
}

/// A time without its fraction of a second.
pub(super) fn second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
