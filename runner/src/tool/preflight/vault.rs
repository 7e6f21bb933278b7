//! The token of Vault.

use std::path::Path;

use jiff::SignedDuration;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::tool::preflight::expiry::Expiry;
use crate::tool::preflight::findings::Findings;
use crate::tool::preflight::http::{client, send};
use crate::tool::preflight::jwt;
use crate::tool::preflight::question::Question;

/// Settings with which the provider does not use the variables alone.
const OWN: [&str; 13] = [
    "token",
    "auth_login",
    "auth_login_aws",
    "auth_login_azure",
    "auth_login_cert",
    "auth_login_gcp",
    "auth_login_jwt",
    "auth_login_kerberos",
    "auth_login_oci",
    "auth_login_oidc",
    "auth_login_radius",
    "auth_login_token_file",
    "auth_login_userpass",
];
/// Variables of connections that are not made here.
const OTHER_CONNECTIONS: [&str; 5] = [
    "VAULT_SKIP_VERIFY",
    "VAULT_CLIENT_CERT",
    "VAULT_CAPATH",
    "VAULT_CACERT_BYTES",
    "VAULT_TLS_SERVER_NAME",
];

/// Asks Vault whether it accepts the token, and until when.
pub(super) async fn ask(question: &Question<'_>, ca_file: Option<&Path>) -> Findings {
    let mut findings = Findings::default();
    let users = question.users(&["vault"], "");
    let Some(user) = users.first().filter(|user| !user.has_any(&OWN)) else { return findings };
    if user.is_computed("address") || user.is_computed("namespace") {
        return findings;
    }
    let (what, token) = match (question.variable("VAULT_TOKEN"), question.home) {
        (Some(token), _) => ("the token in VAULT_TOKEN".to_owned(), SecretString::from(token)),
        (None, Some(home)) => {
            let file = home.join(".vault-token");
            let Ok(token) = jwt::read(&file) else { return findings };
            (format!("the token in {}", file.display()), token.trim().to_owned().into())
        }
        (None, None) => return findings,
    };
    let address = user.literal("address").or_else(|| question.variable("VAULT_ADDR"));
    let Some(address) = address.filter(|_| user.blocks.len() <= 1) else { return findings };
    if question.is_any_set(&OTHER_CONNECTIONS) || user.has_any(&["skip_tls_verify", "ca_cert_file"])
    {
        findings.warnings.push(format!(
            "Vault was not asked about {what}: its connection has settings of its own"
        ));
        return findings;
    }
    let certificates = ca_file.into_iter().chain(question.variable("VAULT_CACERT").map(Path::new));
    let sent = async {
        let url = format!("{}/v1/auth/token/lookup-self", address.trim_end_matches('/'));
        let client = client(&certificates.collect::<Vec<_>>())?;
        let mut request = client.get(url).header("x-vault-token", token.expose_secret().trim());
        if let Some(namespace) =
            user.literal("namespace").or_else(|| question.variable("VAULT_NAMESPACE"))
        {
            request = request.header("x-vault-namespace", namespace);
        }
        send(request).await
    };
    match sent.await {
        Ok((status, body)) if status.is_success() => {
            let answer = serde_json::from_str::<Value>(&body).unwrap_or_default();
            let seconds = answer["data"]["ttl"].as_i64().filter(|seconds| *seconds > 0);
            let at = seconds.and_then(|seconds| {
                question.now.checked_add(SignedDuration::from_secs(seconds)).ok()
            });
            findings.expiries.extend(at.map(|at| Expiry { what, at }));
        }
        Ok((status, body)) => {
            let is_vaults = serde_json::from_str::<Value>(&body)
                .is_ok_and(|answer| answer["errors"].is_array());
            let is_refused = is_vaults && matches!(status.as_u16(), 401 | 403);
            let text = format!("Vault refuses {what} ({status}; {} uses it)", user.name);
            findings.add(user.is_started && is_refused, text, "provide a fresh token");
        }
        Err(reason) => {
            findings.warnings.push(format!("Vault could not be asked about {what}: {reason}"));
        }
    }
    findings
}
