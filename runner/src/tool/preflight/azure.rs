//! Credentials of Azure: tokens of `OpenID` Connect, which its providers and its backend exchange.

use crate::tool::preflight::findings::Findings;
use crate::tool::preflight::question::{Question, User};
use crate::tool::preflight::token::{examine_token, examine_token_file};

/// Settings and variables with which the token is not the one that is used, or not for certain.
const OTHERS: [&str; 11] = [
    "client_secret",
    "client_secret_file_path",
    "client_certificate",
    "client_certificate_path",
    "oidc_token",
    "oidc_token_file_path",
    "oidc_request_token",
    "access_key",
    "sas_token",
    "use_msi",
    "use_cli",
];
const OTHER_VARIABLES: [&str; 6] = [
    "ARM_CLIENT_SECRET",
    "ARM_CLIENT_SECRET_FILE_PATH",
    "ARM_CLIENT_CERTIFICATE",
    "ARM_CLIENT_CERTIFICATE_PATH",
    "ARM_ACCESS_KEY",
    "ARM_SAS_TOKEN",
];

/// What names the client and the tenant. Without both a token is not used: the provider goes on with the CLI of Azure.
const CLIENT: [&[&str]; 2] = [
    &["client_id", "client_id_file_path"],
    &["ARM_CLIENT_ID", "ARM_CLIENT_ID_FILE_PATH", "AZURE_CLIENT_ID"],
];
const TENANT: [&[&str]; 2] = [&["tenant_id"], &["ARM_TENANT_ID", "AZURE_TENANT_ID"]];

pub(super) fn examine(question: &Question<'_>, findings: &mut Findings) {
    for user in question.users(&["azurerm", "azuread"], "azurerm") {
        let is_certain = user.is_started
            && user.blocks.len() <= 1
            && !user.has_any(&OTHERS)
            && !question.is_any_set(&OTHER_VARIABLES)
            && [CLIENT, TENANT].iter().all(|[settings, variables]| {
                user.has_any(settings) || question.is_any_set(variables)
            });
        if is_on(question, &user, "use_oidc", "ARM_USE_OIDC") {
            let name = "ARM_OIDC_TOKEN_FILE_PATH";
            let token = question.variable("ARM_OIDC_TOKEN");
            match (question.variable(name), token) {
                // Where both are set, they must be the same.
                (Some(file), _) => {
                    examine_token_file(name, file, (question, &user), is_certain, findings);
                }
                (None, Some(token)) => {
                    let what = "the token in ARM_OIDC_TOKEN";
                    examine_token(what, token, (question, &user), is_certain, findings);
                }
                (None, None) => {}
            }
        }
        let name = "AZURE_FEDERATED_TOKEN_FILE";
        if is_on(question, &user, "use_aks_workload_identity", "ARM_USE_AKS_WORKLOAD_IDENTITY")
            && let Some(file) = question.variable(name)
        {
            examine_token_file(name, file, (question, &user), is_certain, findings);
        }
    }
}

/// Whether a setting, else its variable, is true.
fn is_on(question: &Question<'_>, user: &User<'_>, setting: &str, variable: &str) -> bool {
    if user.has_any(&[setting]) {
        return user.blocks.iter().any(|block| block.literal(setting) == Some("true"));
    }
    matches!(question.variable(variable), Some("true" | "TRUE" | "True" | "1" | "t" | "T"))
}
