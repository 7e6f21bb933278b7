//! A GitHub App instead of a token: the App authenticates with its key and receives a token of one of its installations,
//! valid for an hour.

use std::path::Path;
use std::time::SystemTime;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use fs_err as fs;
use reqwest::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::cli::GitHubApp;
use crate::release::download::url::shown;
use crate::release::error::ReleaseError;

pub(super) const MAX_ANSWER: u64 = 1 << 20;
/// Seconds that a web token is valid, and that GitHub's clock may be behind ours; at most 600 together.
const LIFETIME: u64 = 480;
const SKEW: u64 = 60;

#[derive(Deserialize)]
struct Installation {
    id: u64,
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

/// Requests a token of the configured installation, or else of the App's first one. `api` is the URL of GitHub's API or
/// of a GitHub Enterprise server; `call` sends a request with a web token and returns the body.
pub(in crate::release) async fn token(
    api: &str,
    app: &GitHubApp,
    call: impl AsyncFn(Method, &str, &SecretString) -> Result<Vec<u8>, ReleaseError>,
) -> Result<SecretString, ReleaseError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let proof = proof(app, now.map_or(0, |now| now.as_secs()))?;
    let installation = if let Some(installation) = &app.installation {
        installation.clone()
    } else {
        let url = format!("{api}/app/installations");
        let installations: Vec<Installation> =
            parsed(&url, &call(Method::GET, &url, &proof).await?)?;
        let Some(first) = installations.first() else {
            let reason = "this App has no installation".to_owned();
            return Err(ReleaseError::Variable { name: "TENV_GITHUB_APP_ID".to_owned(), reason });
        };
        first.id.to_string()
    };
    let url = format!("{api}/app/installations/{installation}/access_tokens");
    let token: Token = parsed(&url, &call(Method::POST, &url, &proof).await?)?;
    Ok(token.token.into())
}

fn parsed<T: serde::de::DeserializeOwned>(url: &str, body: &[u8]) -> Result<T, ReleaseError> {
    // Without the response, which may contain the token.
    let reason = "the response is not that of GitHub's API for Apps";
    serde_json::from_slice(body)
        .map_err(|_| ReleaseError::NotUnderstood { url: shown(url), reason: reason.to_owned() })
}

/// A JSON web token, signed with the App's key.
fn proof(app: &GitHubApp, now: u64) -> Result<SecretString, ReleaseError> {
    let key = key(app)?;
    let claims =
        serde_json::json!({"iat": now - SKEW.min(now), "exp": now + LIFETIME, "iss": app.id});
    let part = |text: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(text);
    let head = part(br#"{"alg":"RS256","typ":"JWT"}"#);
    let signed = format!("{head}.{}", part(claims.to_string().as_bytes()));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .map_err(|_| no_key(app))?;
    Ok(format!("{signed}.{}", part(&signature)).into())
}

fn key(app: &GitHubApp) -> Result<RsaKeyPair, ReleaseError> {
    let pem = match (&app.pem, &app.pem_file) {
        (Some(pem), _) => pem.clone(),
        (None, Some(file)) => read(file)?,
        (None, None) => return Err(no_key(app)),
    };
    // In a variable, line ends are sometimes written as `\n`.
    let text = pem.expose_secret().replace("\\n", "\n");
    let lines = text.lines().map(str::trim);
    let inner = lines
        .skip_while(|line| !line.starts_with("-----BEGIN"))
        .skip(1)
        .take_while(|line| !line.starts_with("-----END"));
    let der = BASE64_STANDARD.decode(inner.collect::<String>()).map_err(|_| no_key(app))?;
    RsaKeyPair::from_der(&der).or_else(|_| RsaKeyPair::from_pkcs8(&der)).map_err(|_| no_key(app))
}

fn read(file: &Path) -> Result<SecretString, ReleaseError> {
    fs::read_to_string(file).map(Into::into).map_err(ReleaseError::Unreadable)
}

fn no_key(app: &GitHubApp) -> ReleaseError {
    let name = match (&app.pem, &app.pem_file) {
        (None, Some(file)) => file.display().to_string(),
        _ => "TENV_GITHUB_APP_PEM".to_owned(),
    };
    ReleaseError::Variable { name, reason: "it is not an RSA private key (PEM)".to_owned() }
}

#[cfg(test)]
mod tests;
