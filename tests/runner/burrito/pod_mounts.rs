//! The runner where a pod's mounts are: the API by the service account in `/var/run/secrets`, the token of
//! the audience `burrito`, the datastore's certificate in `/etc/ssl/certs`. The mounts are made in a mount
//! namespace of the test's own, which takes root.

#![expect(clippy::disallowed_types, reason = "a pod is another namespace")]

use std::path::Path;
use std::process::Command;

use serde_json::json;
use support::{Ended, TlsFront};

use super::{Tenant, tenant};

/// What the kubelet does before it starts the container.
const MOUNTS: &str = r#"
set -e
mount -t tmpfs pod /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount /run/secrets/token
cp "$POD/api-token" /run/secrets/kubernetes.io/serviceaccount/token
cp "$POD/api-ca" /run/secrets/kubernetes.io/serviceaccount/ca.crt
printf %s "$BURRITO_RUNNER_LAYER_NAMESPACE" > /run/secrets/kubernetes.io/serviceaccount/namespace
cp "$POD/token" /run/secrets/token/burrito
cp -rL /etc/ssl/certs "$POD/certs"
mount -t tmpfs pod /etc/ssl/certs
cp -r "$POD/certs/." /etc/ssl/certs
[ ! -e "$POD/ca" ] || cp "$POD/ca" /etc/ssl/certs/burrito-datastore-ca.crt
exec "$0" "$@"
"#;

/// Runs a plan in a mount namespace of its own, with the pod's mounts.
fn in_pod(tenant: &Tenant, ca: Option<&Path>, more: &[(&str, &str)]) -> Ended {
    let pod = tenant.sandbox.path("pod");
    drop(std::fs::remove_dir_all(&pod));
    std::fs::create_dir(&pod).unwrap();
    std::fs::write(pod.join("api-token"), &tenant.token).unwrap();
    std::fs::write(pod.join("api-ca"), &tenant.authority).unwrap();
    std::fs::write(pod.join("token"), "a datastore token").unwrap();
    if let Some(ca) = ca {
        std::fs::copy(ca, pod.join("ca")).unwrap();
    }
    let outside = tenant.command("plan", "plan-1");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", MOUNTS])
        .arg(outside.get_program())
        .args(outside.get_args());
    command.current_dir(tenant.sandbox.work()).env_clear().env("POD", pod);
    command.envs(outside.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
        .env_remove("PLANCHA_TOKEN_FILE")
        .env("KUBERNETES_SERVICE_HOST", tenant.server.host_str().unwrap())
        .env("KUBERNETES_SERVICE_PORT", tenant.server.port().unwrap().to_string())
        .envs(more.iter().copied());
    command.output().unwrap().into()
}

/// A provider's `KUBECONFIG` names another cluster: the runner's own client asks the pod's.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mounts by root"]
async fn kubeconfig_of_a_provider_does_not_affect_the_runner() {
    let tenant = tenant!("hijack");
    let tenant = tenant.fake("[ $STEP = show ] || echo \"provider: $KUBECONFIG\"");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let elsewhere = tenant.kubeconfig("provider", &"https://127.0.0.1:1".parse().unwrap(), "other");
    let elsewhere = elsewhere.to_str().unwrap();
    let ended = in_pod(&tenant, None, &[("KUBECONFIG", elsewhere)]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains(&format!("provider: {elsewhere}")), "{}", ended.stdout);
    assert_eq!(tenant.annotation("plan-run").await, "plan-1/0");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mounts by root"]
async fn rn16_datastore_certificate_is_trusted_regardless_of_ssl_cert_file() {
    let tenant = tenant!("tls");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let plain = tenant.datastore.url.as_str().trim_end_matches('/').to_owned();
    let front = TlsFront::before(&plain);
    let ca = front.ca_file();
    let host = front.url().replace("https://", "");
    let tls = [("BURRITO_DATASTORE_HOSTNAME", &*host), ("BURRITO_DATASTORE_TLS", "true")];
    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    for (what, cert_file) in [
        ("no SSL_CERT_FILE", None),
        ("the system's bundle", Some(bundle)),
        ("a file that is missing", Some("/nowhere/ca.pem")),
    ] {
        let mut more = tls.to_vec();
        more.extend(cert_file.map(|file| ("SSL_CERT_FILE", file)));
        let ended = in_pod(&tenant, Some(&ca), &more);
        assert_eq!(ended.code, 0, "{what}: {}", ended.stderr);
    }
    let ended = in_pod(&tenant, None, &tls);
    assert_eq!(ended.code, 1, "the certificate is not trusted");
    assert!(ended.stderr.contains("certificate"), "{}", ended.stderr);
}
