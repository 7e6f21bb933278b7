//! A namespace for one test, in the cluster that `PLANCHA_TEST_KUBECONFIG` names, else in a double of one:
//! Burrito's objects with every documented field, a runner's service account with upstream's rights and no
//! others, a repository as a bundle, and a datastore.

#![expect(clippy::disallowed_methods, reason = "the API server is named by a variable")]
#![expect(clippy::disallowed_types, reason = "a pod's command is handed on")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use support::{Ended, FakeCluster, Sandbox, TestDatastore};
use url::Url;

use crate::source::checkout::{Repository, git, repository};
use crate::stored_run::StoredRun;
use crate::{RUNNER, json as parsed};

/// Namespaces of this process so far. Tests with one name for theirs run at once in a real cluster.
static NAMESPACES: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct Tenant {
    http: reqwest::Client,
    pub(crate) server: Url,
    pub(crate) authority: Vec<u8>,
    admin: String,
    /// The runner's own, for the API.
    pub(crate) token: String,
    pub(crate) namespace: String,
    pub(crate) sandbox: Sandbox,
    pub(crate) datastore: TestDatastore,
    pub(crate) repository: Repository,
    starts: AtomicUsize,
    _double: Option<FakeCluster>,
}

const GROUP: &str = "config.terraform.padok.cloud";
const OBJECTS: &str = "/apis/config.terraform.padok.cloud/v1alpha1/namespaces";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

const LAYER: &str = include_str!("../../fixtures/burrito/layer.yaml");
const REPOSITORY: &str = include_str!("../../fixtures/burrito/repository.yaml");

/// Whether a variable names a real cluster.
fn is_real() -> bool {
    std::env::var_os("PLANCHA_TEST_KUBECONFIG").is_some()
}

/// Server, authority and administrator's token of that cluster.
fn cluster() -> (String, PathBuf, String) {
    let kubeconfig = std::env::var_os("PLANCHA_TEST_KUBECONFIG").unwrap();
    let kubeconfig: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    let authority = text(&cluster["certificate-authority"]).into();
    (text(&cluster["server"]), authority, text(&kubeconfig["users"][0]["user"]["token"]))
}

/// The `spec` of a fixture with every documented field, but what `spec` sets, and but the fields that
/// decide what the runner does: a test sets those that it means.
fn as_users_write_it(fixture: &str, spec: &Value) -> Value {
    let mut fixture: Value = serde_saphyr::from_str(fixture).unwrap();
    let mut all = fixture["spec"].take();
    let fields = all.as_object_mut().unwrap();
    for decided in ["terraform", "opentofu", "terragrunt", "remediationStrategy"] {
        fields.shift_remove(decided);
    }
    fields.extend(spec.as_object().unwrap().clone());
    all
}

impl Tenant {
    pub(crate) async fn new(name: &str) -> Self {
        let sandbox = Sandbox::new(RUNNER);
        let double = if is_real() { None } else { Some(FakeCluster::start().await) };
        let (server, authority, admin) = match &double {
            Some(double) => (double.server(), double.authority(), double.admin().to_owned()),
            None => cluster(),
        };
        // In Burrito's pods the program goes by this name.
        std::os::unix::fs::symlink(RUNNER, sandbox.path("bin/burrito")).unwrap();
        let number = NAMESPACES.fetch_add(1, Ordering::Relaxed);
        let mut tenant = Self {
            http: reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap(),
            server: server.parse().unwrap(),
            authority: std::fs::read(authority).unwrap(),
            admin,
            token: String::new(),
            namespace: format!("{name}-{}-{number}", std::process::id()),
            repository: repository(&sandbox),
            sandbox,
            datastore: TestDatastore::memory().await,
            starts: AtomicUsize::new(0),
            _double: double,
        };
        tenant.set_up().await;
        tenant
    }

    /// The same with a fake terraform.
    pub(crate) fn fake(self, script: &str) -> Self {
        Self { sandbox: self.sandbox.fake_terraform(script), ..self }
    }

    async fn set_up(&mut self) {
        let namespace = &self.namespace;
        self.post("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        self.account("burrito-runner").await;
        // Burrito's ClusterRole, verbatim; the first test creates it.
        let role = json!({"metadata": {"name": "burrito-runner"}, "rules": [
            {"apiGroups": [GROUP], "resources": ["terraformlayers"], "verbs": ["get", "patch"]},
            {"apiGroups": [GROUP], "resources": ["terraformruns"], "verbs": ["get"]},
            {"apiGroups": [GROUP], "resources": ["terraformrepositories"], "verbs": ["get"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "delete"]},
        ]});
        let (status, body) = self.call(Method::POST, &format!("{RBAC}/clusterroles"), &role).await;
        assert!(status < 300 || status == 409, "{body}");
        // Bound in the tenant's namespace only.
        let binding = json!({"metadata": {"name": "burrito-runner"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "burrito-runner"},
            "subjects": [{"kind": "ServiceAccount", "name": "burrito-runner", "namespace": namespace}]});
        self.post(&format!("{RBAC}/namespaces/{namespace}/rolebindings"), binding).await;
        self.token = self.token_of("burrito-runner", None).await;
        let server = self.server.clone();
        self.kubeconfig("kubeconfig", &server, &self.token);
        std::fs::write(self.sandbox.path("token"), "a datastore token\n").unwrap();
        self.repository_object("repo", json!({"terraform": {"enabled": true}})).await;
    }

    pub(crate) async fn account(&self, name: &str) {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace);
        self.post(&path, json!({"metadata": {"name": name}})).await;
    }

    /// A new token of an account; without an audience it is for the API server itself.
    pub(crate) async fn token_of(&self, account: &str, audience: Option<&str>) -> String {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", self.namespace);
        let audiences = audience.into_iter().collect::<Vec<_>>();
        let token = self.post(&path, json!({"spec": {"audiences": audiences}})).await;
        token["status"]["token"].as_str().unwrap().to_owned()
    }

    /// Makes a service account what upstream's datastore is.
    pub(crate) async fn may_review(&self, account: &str) {
        let binding = json!({"metadata": {"name": format!("{}-{account}", self.namespace)},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}]});
        self.post(&format!("{RBAC}/clusterrolebindings"), binding).await;
    }

    /// Writes a kubeconfig for a server and a token.
    pub(crate) fn kubeconfig(&self, name: &str, server: &Url, token: &str) -> PathBuf {
        let ca = BASE64_STANDARD.encode(&self.authority);
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": ca}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
        let path = self.sandbox.path(name);
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let kind = if method == Method::PATCH { "merge-patch+json" } else { "json" };
        let url = self.server.join(path).unwrap();
        let request = self.http.request(method, url).bearer_auth(&self.admin);
        let request = request.header("content-type", format!("application/{kind}"));
        let answer = request.body(body.to_string()).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, parsed(&answer.bytes().await.unwrap()))
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, body) = self.call(Method::POST, path, &body).await;
        assert!(status < 300, "{path}: {status}: {body}");
        body
    }

    async fn object(&self, plural: &str, kind: &str, name: &str, spec: Value) {
        let body = json!({"apiVersion": format!("{GROUP}/v1alpha1"), "kind": kind,
            "metadata": {"name": name}, "spec": spec});
        self.post(&format!("{OBJECTS}/{}/{plural}", self.namespace), body).await;
    }

    pub(crate) async fn repository_object(&self, name: &str, spec: Value) {
        let spec = as_users_write_it(REPOSITORY, &spec);
        self.object("terraformrepositories", "TerraformRepository", name, spec).await;
    }

    /// The layer `vpc`, and what is said of it beside its place in the repository.
    pub(crate) async fn layer(&self, spec: Value) {
        self.layer_named("vpc", spec).await;
    }

    pub(crate) async fn layer_named(&self, name: &str, spec: Value) {
        let mut all = json!({"path": "live/vpc", "branch": "main",
            "repository": {"name": "repo", "namespace": self.namespace}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let all = as_users_write_it(LAYER, &all);
        self.object("terraformlayers", "TerraformLayer", name, all).await;
    }

    pub(crate) async fn change_layer(&self, spec: Value) {
        self.patch_layer(json!({ "spec": spec })).await;
    }

    /// Removes one of the runner's annotations from the layer.
    pub(crate) async fn remove_annotation(&self, name: &str) {
        let name = format!("runner.terraform.padok.cloud/{name}");
        self.patch_layer(json!({"metadata": {"annotations": {name: null}}})).await;
    }

    async fn patch_layer(&self, changes: Value) {
        let path = format!("{OBJECTS}/{}/terraformlayers/vpc", self.namespace);
        let (code, body) = self.call(Method::PATCH, &path, &changes).await;
        assert!(code < 300, "{body}");
    }

    /// A run of the first commit.
    pub(crate) async fn run(&self, name: &str, artifact: Value) {
        self.run_of(name, artifact, &self.repository.commits[0]).await;
    }

    pub(crate) async fn run_of(&self, name: &str, artifact: Value, revision: &str) {
        let layer = json!({"name": "vpc", "namespace": self.namespace, "revision": revision});
        let spec = json!({"action": "plan", "layer": layer, "artifact": artifact});
        self.object("terraformruns", "TerraformRun", name, spec).await;
    }

    /// What the run controller notes of a run.
    pub(crate) async fn status(&self, run: &str, status: Value) {
        let path = format!("{OBJECTS}/{}/terraformruns/{run}/status", self.namespace);
        let (code, body) = self.call(Method::PATCH, &path, &json!({ "status": status })).await;
        assert!(code < 300, "{body}");
    }

    /// The bundle as upstream's controller cuts it: at the branch's tip, named by an older commit.
    pub(crate) async fn bundle(&self) {
        self.bundle_of("main", "main", &self.repository.commits[0]).await;
    }

    pub(crate) async fn bundle_of(&self, cut: &str, git_ref: &str, revision: &str) {
        assert_eq!(self.put_bundle("repo", cut, git_ref, revision).await, 200);
    }

    /// The same of another repository.
    pub(crate) async fn bundle_for(&self, repository: &str) -> u16 {
        self.put_bundle(repository, "main", "main", &self.repository.commits[0]).await
    }

    async fn put_bundle(&self, repository: &str, cut: &str, git_ref: &str, revision: &str) -> u16 {
        let file = self.sandbox.path("cut.gitbundle");
        git(&self.repository.dir, &["bundle", "create", "-q", &file.to_string_lossy(), cut]);
        let mut url = self.datastore.url.join("/api/repository/revision/bundle").unwrap();
        url.query_pairs_mut()
            .extend_pairs([("namespace", &*self.namespace), ("name", repository)])
            .extend_pairs([("ref", git_ref), ("revision", revision)]);
        let put = self.http.put(url).body(std::fs::read(file).unwrap()).send().await.unwrap();
        put.status().as_u16()
    }

    /// All that an order needs, but the order.
    pub(crate) async fn ready(&self, layer: Value) {
        self.layer(layer).await;
        self.bundle().await;
    }

    /// `runner start` as a pod of the controller's would, but that it finds the API by a kubeconfig.
    pub(crate) fn command(&self, action: &str, run: &str) -> Command {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let burrito = self.sandbox.path("bin/burrito");
        let mut command = self.sandbox.program(&burrito, &["runner", "start"]);
        command
            .env("KUBECONFIG", self.sandbox.path("kubeconfig"))
            .env("BURRITO_RUNNER_LAYER_NAME", "vpc")
            .env("BURRITO_RUNNER_LAYER_NAMESPACE", &self.namespace)
            .env("BURRITO_RUNNER_RUN", run)
            .env("BURRITO_RUNNER_ACTION", action)
            .env("BURRITO_DATASTORE_HOSTNAME", self.datastore.url.authority())
            .env("BURRITO_RUNNER_REPOSITORYPATH", self.sandbox.path(&format!("pod-{start}")))
            .env("BURRITO_RUNNER_RUNNERBINARYPATH", self.sandbox.path("runner-bin"))
            .env("PLANCHA_TOKEN_FILE", self.sandbox.path("token"));
        command
    }

    /// The same as `runner`, whose exit codes say more than 0 and 1.
    pub(crate) fn as_runner(&self, burrito: &Command) -> Command {
        let mut command = self.sandbox.command(&["start"]);
        command.envs(burrito.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    pub(crate) fn start(&self, action: &str, run: &str) -> Ended {
        self.start_with(action, run, &[])
    }

    pub(crate) fn start_with(&self, action: &str, run: &str, more: &[(&str, &str)]) -> Ended {
        self.command(action, run).envs(more.iter().copied()).output().unwrap().into()
    }

    /// The same through a proxy before the datastore.
    pub(crate) fn start_through(&self, datastore: &Url, action: &str, run: &str) -> Ended {
        self.start_with(action, run, &[("BURRITO_DATASTORE_HOSTNAME", datastore.authority())])
    }

    pub(crate) async fn annotations(&self) -> Value {
        self.annotations_of("vpc").await
    }

    pub(crate) async fn annotations_of(&self, layer: &str) -> Value {
        let path = format!("{OBJECTS}/{}/terraformlayers/{layer}", self.namespace);
        let (_, layer) = self.call(Method::GET, &path, &Value::Null).await;
        layer["metadata"]["annotations"].clone()
    }

    pub(crate) async fn annotation(&self, name: &str) -> Value {
        self.annotations().await[format!("runner.terraform.padok.cloud/{name}")].clone()
    }

    pub(crate) fn stored(&self, run: &str) -> StoredRun {
        StoredRun::new(&self.datastore, &self.namespace, "vpc", run)
    }

    pub(crate) async fn short(&self, run: &str, attempt: u32) -> String {
        String::from_utf8(self.stored(run).plan("short", attempt).await).unwrap()
    }

    /// Lets the fake terraform stand in for another tool, as users bake one into their images.
    pub(crate) fn prebaked(&self, tool: &str, version: &str, name: &str) {
        let dir = self.sandbox.path(&format!("runner-bin/{tool}/{version}"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::copy(self.sandbox.path("bin/terraform"), dir.join(name)).unwrap();
    }
}
