//! Environment variables that select where providers work: accounts, regions, addresses.

#![expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]

use std::env;

use datastore_api::Sha256;

use crate::process::url_secrets::{Parameters, masked};

/// Their names, as the documentation of the providers has them.
const NAMES: [&str; 77] = [
    "ALIBABA_CLOUD_PROFILE",
    "ALIBABA_CLOUD_REGION",
    "ALICLOUD_PROFILE",
    "ALICLOUD_REGION",
    "ARM_CLIENT_ID",
    "ARM_ENVIRONMENT",
    "ARM_METADATA_HOSTNAME",
    "ARM_SUBSCRIPTION_ID",
    "ARM_TENANT_ID",
    "AUTH0_DOMAIN",
    "AWS_CONFIG_FILE",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_ROLE_ARN",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AZDO_ORG_SERVICE_URL",
    "CLOUDFLARE_ACCOUNT_ID",
    "CLOUDFLARE_BASE_URL",
    "CLOUDSDK_COMPUTE_REGION",
    "CLOUDSDK_COMPUTE_ZONE",
    "CLOUDSDK_CORE_PROJECT",
    "CONSUL_DATACENTER",
    "CONSUL_HTTP_ADDR",
    "CONSUL_NAMESPACE",
    "DATABRICKS_CONFIG_PROFILE",
    "DATABRICKS_HOST",
    "DATADOG_HOST",
    "DD_HOST",
    "DIGITALOCEAN_API_URL",
    "GCLOUD_PROJECT",
    "GCLOUD_REGION",
    "GCLOUD_ZONE",
    "GITHUB_BASE_URL",
    "GITHUB_ORGANIZATION",
    "GITHUB_OWNER",
    "GITLAB_BASE_URL",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_IMPERSONATE_SERVICE_ACCOUNT",
    "GOOGLE_PROJECT",
    "GOOGLE_REGION",
    "GOOGLE_UNIVERSE_DOMAIN",
    "GOOGLE_ZONE",
    "GRAFANA_ORG_ID",
    "GRAFANA_URL",
    "HCLOUD_ENDPOINT",
    "HELM_NAMESPACE",
    "KUBERNETES_SERVICE_HOST",
    "KUBE_CONFIG_PATH",
    "KUBE_CONFIG_PATHS",
    "KUBE_CTX",
    "KUBE_CTX_AUTH_INFO",
    "KUBE_CTX_CLUSTER",
    "KUBE_HOST",
    "KUBE_NAMESPACE",
    "NOMAD_ADDR",
    "NOMAD_REGION",
    "OKTA_BASE_URL",
    "OKTA_ORG_NAME",
    "OS_AUTH_URL",
    "OS_CLOUD",
    "OS_PROJECT_ID",
    "OS_PROJECT_NAME",
    "OS_REGION_NAME",
    "OS_TENANT_NAME",
    "OVH_ENDPOINT",
    "PGHOST",
    "PGPORT",
    "SCW_DEFAULT_ORGANIZATION_ID",
    "SCW_DEFAULT_PROJECT_ID",
    "SCW_DEFAULT_REGION",
    "SCW_DEFAULT_ZONE",
    "SCW_PROFILE",
    "TENCENTCLOUD_REGION",
    "VAULT_ADDR",
    "VAULT_NAMESPACE",
    "VSPHERE_SERVER",
];
/// The beginning of variables with addresses of AWS's services.
const ENDPOINTS: &str = "AWS_ENDPOINT_URL";

/// The digest of the variables, which tells whether they are the same. Secrets in URLs are left out: a digest could be compared with
/// those of guesses.
pub(super) fn digest() -> Sha256 {
    let mut lines = env::vars_os()
        .filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| selects_place(name))?;
            Some(format!("{name}={}", masked(&value.to_string_lossy(), Parameters::All)))
        })
        .collect::<Vec<_>>();
    lines.sort();
    Sha256::of(lines.join("\0").as_bytes())
}

fn selects_place(name: &str) -> bool {
    NAMES.contains(&name) || name.starts_with(ENDPOINTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_providers_select_places() {
        for name in ["AWS_REGION", "AWS_ENDPOINT_URL_IAM", "ARM_ENVIRONMENT", "KUBE_CTX"] {
            assert!(selects_place(name), "{name}");
        }
        // These are renewed, or differ between nodes and builds.
        for name in ["AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "DD_AGENT_HOST", "BUILD_URL"] {
            assert!(!selects_place(name), "{name}");
        }
    }
}
