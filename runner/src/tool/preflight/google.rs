//! Credentials of Google: the file of the application's default credentials, and the token that it names.
//!
//! The provider asks for an access token at its first call only, and a plan may need none. So an expired token is certain to
//! fail only for the backend, which reads the state.

use serde_json::Value;

use crate::tool::preflight::findings::Findings;
use crate::tool::preflight::jwt;
use crate::tool::preflight::question::Question;
use crate::tool::preflight::token::examine_token_file;

/// Settings and variables that come first.
const OWN: [&str; 3] = ["credentials", "access_token", "external_credentials"];
const FIRST: [&str; 5] = [
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "GOOGLE_CREDENTIALS",
    "GOOGLE_CLOUD_KEYFILE_JSON",
    "GCLOUD_KEYFILE_JSON",
    "GOOGLE_BACKEND_CREDENTIALS",
];

pub(super) fn examine(question: &Question<'_>, findings: &mut Findings) {
    const NAME: &str = "GOOGLE_APPLICATION_CREDENTIALS";
    let Some(file) = question.variable(NAME) else { return };
    for user in question.users(&["google", "google-beta"], "gcs") {
        if user.has_any(&OWN) || question.is_any_set(&FIRST) {
            continue;
        }
        let Ok(text) = jwt::read(&question.file(file)) else {
            examine_token_file(NAME, file, (question, &user), user.is_started, findings);
            continue;
        };
        let credentials = serde_json::from_str::<Value>(&text).unwrap_or_default();
        let source = &credentials["credential_source"];
        // A token in JSON is left to the provider.
        let is_text = matches!(source["format"]["type"].as_str(), None | Some("text"));
        if credentials["type"] == "external_account"
            && let Some(token) = source["file"].as_str().filter(|_| is_text)
        {
            let is_certain = user.is_started && user.is_backend;
            let what = format!("{NAME}, credential_source.file");
            examine_token_file(&what, token, (question, &user), is_certain, findings);
        }
    }
}
