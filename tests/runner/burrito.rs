//! `runner start` against a real Kubernetes API with Burrito's objects and rights, and a real datastore.
//!
//! `scripts/e2e` starts the API and names its kubeconfig in `PLANCHA_TEST_KUBECONFIG`; without it there
//! is nothing to be seen here.

#![expect(clippy::disallowed_methods, reason = "the API server is named by a variable")]

use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datastore_api::Sha256;
use serde_json::{Value, json};
use support::{Ended, Sandbox, TestDatastore};

use crate::checkout::{Repository, git, repository};
use crate::stored::Stored;
use crate::{RUNNER, json as parsed};

/// A namespace of its own in a cluster, with a runner's service account and upstream's rights.
struct Tenant {
    http: reqwest::Client,
    server: String,
    admin: String,
    namespace: String,
    sandbox: Sandbox,
    datastore: TestDatastore,
    repository: Repository,
}

const GROUP: &str = "/apis/config.terraform.padok.cloud/v1alpha1";

impl Tenant {
    /// `None`: no cluster was named.
    async fn new(name: &str) -> Option<Self> {
        let kubeconfig = PathBuf::from(std::env::var_os("PLANCHA_TEST_KUBECONFIG")?);
        let kubeconfig: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let http =
            reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap();
        let sandbox = Sandbox::new(RUNNER);
        let tenant = Self {
            http,
            server: text(&kubeconfig["clusters"][0]["cluster"]["server"]),
            admin: text(&kubeconfig["users"][0]["user"]["token"]),
            namespace: format!("{name}-{}", std::process::id()),
            repository: repository(&sandbox),
            sandbox,
            datastore: TestDatastore::memory().await,
        };
        tenant.set_up(&text(&kubeconfig["clusters"][0]["cluster"]["certificate-authority"])).await;
        Some(tenant)
    }

    async fn set_up(&self, ca: &str) {
        let namespace = &self.namespace;
        self.post("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        let account = json!({"metadata": {"name": "burrito-runner"}});
        self.post(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), account).await;
        // Upstream's ClusterRole burrito-runner, bound in the tenant's namespace only.
        let group = "config.terraform.padok.cloud";
        let role = json!({"metadata": {"name": "burrito-runner"}, "rules": [
            {"apiGroups": [group], "resources": ["terraformlayers"], "verbs": ["get", "patch"]},
            {"apiGroups": [group], "resources": ["terraformruns"], "verbs": ["get"]},
            {"apiGroups": [group], "resources": ["terraformrepositories"], "verbs": ["get"]},
        ]});
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        self.post(&format!("{rbac}/roles"), role).await;
        let binding = json!({"metadata": {"name": "burrito-runner"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "burrito-runner"},
            "subjects": [{"kind": "ServiceAccount", "name": "burrito-runner", "namespace": namespace}]});
        self.post(&format!("{rbac}/rolebindings"), binding).await;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/burrito-runner/token");
        let token = self.post(&path, json!({"spec": {}})).await;
        let token = token["status"]["token"].as_str().unwrap();
        let ca = BASE64_STANDARD.encode(std::fs::read(ca).unwrap());
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.server, "certificate-authority-data": ca}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
        std::fs::write(self.sandbox.path("kubeconfig"), kubeconfig.to_string()).unwrap();
        std::fs::write(self.sandbox.path("token"), "a datastore token\n").unwrap();
        let spec = json!({"terraform": {"enabled": true}});
        self.object("terraformrepositories", "TerraformRepository", "repo", spec).await;
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let url = format!("{}{path}", self.server);
        let request =
            self.http.post(url).bearer_auth(&self.admin).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.unwrap();
        let status = answer.status();
        let body = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status}: {body}");
        parsed(body.as_bytes())
    }

    async fn object(&self, plural: &str, kind: &str, name: &str, spec: Value) {
        let path = format!("{GROUP}/namespaces/{}/{plural}", self.namespace);
        let body = json!({"apiVersion": "config.terraform.padok.cloud/v1alpha1", "kind": kind,
            "metadata": {"name": name}, "spec": spec});
        self.post(&path, body).await;
    }

    async fn layer(&self, spec: Value) {
        let mut all = json!({"path": "live/vpc", "branch": "main",
            "repository": {"name": "repo", "namespace": self.namespace}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.object("terraformlayers", "TerraformLayer", "vpc", all).await;
    }

    async fn run(&self, name: &str, artifact: Value) {
        let layer = json!({"name": "vpc", "namespace": self.namespace,
            "revision": self.repository.commits[0]});
        let spec = json!({"action": "plan", "layer": layer, "artifact": artifact});
        self.object("terraformruns", "TerraformRun", name, spec).await;
    }

    /// The bundle as upstream's controller cuts it: at the branch's tip, named by an older commit.
    async fn bundle(&self) {
        let file = self.sandbox.path("main.gitbundle");
        git(&self.repository.dir, &["bundle", "create", "-q", &file.to_string_lossy(), "main"]);
        let revision = &self.repository.commits[0];
        let query = format!("namespace={}&name=repo&ref=main&revision={revision}", self.namespace);
        let url =
            self.datastore.url.join(&format!("/api/repository/revision/bundle?{query}")).unwrap();
        let put = self.http.put(url).body(std::fs::read(file).unwrap()).send().await.unwrap();
        assert_eq!(put.status(), 200);
    }

    fn start(&self, action: &str, run: &str) -> Ended {
        self.start_with(action, run, &[])
    }

    fn start_with(&self, action: &str, run: &str, more: &[(&str, &str)]) -> Ended {
        let content = self.sandbox.path(&format!("repository-{run}"));
        let mut command = self.sandbox.command(&["start"]);
        command
            .env("KUBECONFIG", self.sandbox.path("kubeconfig"))
            .env("BURRITO_RUNNER_LAYER_NAME", "vpc")
            .env("BURRITO_RUNNER_LAYER_NAMESPACE", &self.namespace)
            .env("BURRITO_RUNNER_RUN", run)
            .env("BURRITO_RUNNER_ACTION", action)
            .env("BURRITO_DATASTORE_HOSTNAME", self.datastore.url.authority())
            .env("BURRITO_RUNNER_REPOSITORYPATH", content)
            .env("BURRITO_RUNNER_RUNNERBINARYPATH", self.sandbox.path("cache/bin"))
            .env("PLANCHA_TOKEN_FILE", self.sandbox.path("token"))
            .envs(more.iter().copied());
        command.output().unwrap().into()
    }

    async fn annotations(&self) -> Value {
        let url =
            format!("{}{GROUP}/namespaces/{}/terraformlayers/vpc", self.server, self.namespace);
        let answer = self.http.get(url).bearer_auth(&self.admin).send().await.unwrap();
        let layer = parsed(&answer.bytes().await.unwrap());
        layer["metadata"]["annotations"].clone()
    }

    fn stored(&self, run: &str) -> Stored {
        Stored::new(&self.datastore, &self.namespace, "vpc", run)
    }
}

macro_rules! tenant {
    ($name:literal) => {
        match Tenant::new($name).await {
            Some(tenant) => tenant,
            None => return eprintln!("not seen here: PLANCHA_TEST_KUBECONFIG names no cluster"),
        }
    };
}

fn key(name: &str) -> String {
    format!("runner.terraform.padok.cloud/{name}")
}

#[tokio::test(flavor = "multi_thread")]
async fn rn01_rn04_rn05_rn07_burritos_plan_and_apply_leave_burritos_annotations_and_files() {
    let tenant = tenant!("flow");
    tenant.layer(json!({})).await;
    tenant.bundle().await;
    tenant.run("plan-1", json!({})).await;

    let ended = tenant.start("plan", "plan-1");

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("x = \"first\""), "the revision, not the tip: {}", ended.stdout);
    let annotations = tenant.annotations().await;
    let bin = tenant.stored("plan-1").plan("bin", 0).await;
    assert_eq!(annotations[key("plan-run")], "plan-1/0");
    assert_eq!(annotations[key("plan-sum")], Sha256::of(&bin).to_base64());
    assert_eq!(annotations[key("plan-commit")], tenant.repository.commits[0]);
    assert!(annotations[key("plan-date")].as_str().unwrap().contains(" UTC "));

    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    let ended = tenant.start("apply", "apply-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let annotations = tenant.annotations().await;
    assert_eq!(annotations[key("apply-sum")], annotations[key("plan-sum")]);
    assert_eq!(annotations[key("apply-commit")], tenant.repository.commits[0]);
    assert_eq!(tenant.stored("apply-1").plan("short", 0).await, b"Apply Successful");
}

#[tokio::test(flavor = "multi_thread")]
async fn rn12_a_failure_is_exit_code_1_its_reason_is_the_short_text_and_nothing_is_annotated() {
    let tenant = tenant!("fail");
    tenant.layer(json!({"path": "nowhere"})).await;
    tenant.bundle().await;
    tenant.run("plan-1", json!({})).await;

    let ended = tenant.start("plan", "plan-1");

    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let short = String::from_utf8(tenant.stored("plan-1").plan("short", 0).await).unwrap();
    assert_eq!(short, "the source has no directory `nowhere`");
    assert!(tenant.annotations().await.is_null());
    assert_eq!(tenant.start("destroy", "plan-1").code, 1, "an unknown action");
    assert_eq!(tenant.start("plan", "missing").code, 1, "no such run");
}

#[tokio::test(flavor = "multi_thread")]
async fn rn20_a_plan_that_is_not_the_annotated_one_is_not_applied() {
    let tenant = tenant!("swap");
    tenant.layer(json!({})).await;
    tenant.bundle().await;
    tenant.run("plan-1", json!({})).await;
    assert_eq!(tenant.start("plan", "plan-1").code, 0);
    tenant.stored("plan-1").put_plan_bin(0, b"another plan").await;
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;

    let ended = tenant.start("apply", "apply-1");

    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("the annotation plan-sum says"), "{}", ended.stderr);
    assert!(!ended.stdout.contains("Apply complete"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_an_earlier_attempt_made_is_only_noted() {
    let tenant = tenant!("again");
    tenant.layer(json!({})).await;
    tenant.bundle().await;
    tenant.run("plan-1", json!({})).await;
    assert_eq!(tenant.start("plan", "plan-1").code, 0);
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    assert_eq!(tenant.start("apply", "apply-1").code, 0);

    // The controller counts a retry, as it does when the pod was lost before it ended.
    let status = json!({"status": {"retries": 1}});
    let url = format!(
        "{}{GROUP}/namespaces/{}/terraformruns/apply-1/status",
        tenant.server, tenant.namespace
    );
    let patch = tenant.http.patch(url).bearer_auth(&tenant.admin);
    let patch =
        patch.header("content-type", "application/merge-patch+json").body(status.to_string());
    assert!(patch.send().await.unwrap().status().is_success());
    let again = tenant.sandbox.path("again");
    let ended = tenant.start_with(
        "apply",
        "apply-1",
        &[("BURRITO_RUNNER_REPOSITORYPATH", again.to_str().unwrap())],
    );

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stdout.contains("Apply complete"), "{}", ended.stdout);
    assert_eq!(tenant.stored("apply-1").plan("short", 1).await, b"Apply Successful");
    let report = parsed(&tenant.stored("apply-1").artifact("run.json", 1).await);
    assert_eq!(report["outcome"], "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn rn08_rn14_rn15_an_apply_without_a_plan_and_what_reaches_the_tool() {
    let tenant = tenant!("tool");
    let tenant =
        Tenant { sandbox: tenant.sandbox.fake_terraform("env | grep ^TF_ | sort"), ..tenant };
    tenant.layer(json!({"remediationStrategy": {"applyWithoutPlanArtifact": true}})).await;
    tenant.bundle().await;
    tenant.run("apply-1", json!({})).await;
    let ended = tenant.start_with(
        "apply",
        "apply-1",
        &[
            ("TF_CLI_ARGS_apply", "-parallelism=3"),
            ("TF_VAR_x", "1"),
            ("BURRITO_HERMITCRAB_ENABLED", "true"),
            ("BURRITO_HERMITCRAB_URL", "https://mirror.example.com/v1/providers/"),
        ],
    );
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for line in ["TF_CLI_ARGS_apply=-parallelism=3", "TF_VAR_x=1", "TF_CLI_CONFIG_FILE="] {
        assert!(ended.stdout.contains(line), "{line}: {}", ended.stdout);
    }
    let calls = tenant.sandbox.calls();
    assert_eq!(
        calls,
        ["init -no-color -input=false", "apply -no-color -input=false -auto-approve"]
    );
}
