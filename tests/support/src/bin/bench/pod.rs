//! `pod`: a plan through `runner start`, as Burrito's pods run it, against the same commands in a script.
//!
//! The Kubernetes API is the tests' double, over TLS; the datastore is a process of its own.

use std::path::Path;
use std::process::Command;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use support::FakeCluster;
use tempfile::TempDir;

use crate::{Programs, Server, median, ms, timed};

const ROUNDS: usize = 15;
const OBJECTS: &str = "/apis/config.terraform.padok.cloud/v1alpha1/namespaces/team";

pub(crate) async fn pod(programs: &Programs) {
    let cluster = FakeCluster::start().await;
    let server = Server::start(&programs.datastore);
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let revision = repository(dir.path());
    let version = prebake(&at("bin"));
    order(&cluster, &revision, &version).await;
    let bundle = std::fs::read(at("cut.gitbundle")).unwrap();
    let place = format!(
        "{}/api/repository/revision/bundle?namespace=team&name=infra&ref=main&revision={revision}",
        server.url.trim_end_matches('/')
    );
    let stored = Client::new().put(place).body(bundle).send().await.unwrap();
    assert!(stored.status().is_success(), "{}", stored.text().await.unwrap());
    let authority = cluster.authority();
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": cluster.server(), "certificate-authority": authority}}],
        "users": [{"name": "u", "user": {"token": cluster.admin()}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    std::fs::write(at("kubeconfig"), kubeconfig.to_string()).unwrap();
    std::fs::write(at("token"), "none").unwrap();
    std::fs::write(at("rc"), "disable_checkpoint = true\n").unwrap();
    std::os::unix::fs::symlink(&programs.runner, at("burrito")).unwrap();
    let host = server.url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let (mut scripts, mut plans) = (vec![], vec![]);
    tokio::task::block_in_place(|| {
        for round in 0..=ROUNDS {
            let script = bare(dir.path(), &version, round);
            let mut command = Command::new(at("burrito"));
            command
                .args(["runner", "start"])
                .current_dir(dir.path())
                .env("TF_CLI_CONFIG_FILE", at("rc"))
                .env("KUBECONFIG", at("kubeconfig"))
                // A pod has never seen this tool.
                .env("HOME", at(&format!("home-{round}")))
                .env("BURRITO_RUNNER_LAYER_NAME", "vpc")
                .env("BURRITO_RUNNER_LAYER_NAMESPACE", "team")
                .env("BURRITO_RUNNER_RUN", "plan-1")
                .env("BURRITO_RUNNER_ACTION", "plan")
                .env("BURRITO_DATASTORE_HOSTNAME", &host)
                .env("BURRITO_RUNNER_REPOSITORYPATH", at(&format!("pod-{round}")))
                .env("BURRITO_RUNNER_RUNNERBINARYPATH", at("bin"))
                .env("PLANCHA_TOKEN_FILE", at("token"));
            let (plan, _) = timed(&mut command);
            // The first round warms up.
            if round > 0 {
                scripts.push(script);
                plans.push(plan);
            }
        }
    });
    let (script, plan) = (ms(median(&scripts)), ms(median(&plans)));
    println!("pod: a plan through `runner start`, medians of {ROUNDS} rounds in turn");
    println!("  script (git clone, init, plan, show -json, show) {script:6.1} ms");
    println!(
        "  runner start                                     {plan:6.1} ms   {:.2} x, {:+.1} ms",
        plan / script,
        plan - script
    );
}

/// The same commands in a shell.
fn bare(dir: &Path, version: &str, round: usize) -> std::time::Duration {
    let to = dir.join(format!("bare-{round}"));
    let script = "set -e; git clone -q --branch main \"$1\" \"$2\"; cd \"$2/live/vpc\"; t=$3; \
                  $t init -input=false -no-color; $t plan -input=false -no-color -out=p; \
                  $t show -no-color -json p >p.json; $t show -no-color p >p.txt";
    let terraform = dir.join(format!("bin/Terraform/{version}/terraform"));
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(dir.join("cut.gitbundle")).args([to, terraform]);
    command.env("TF_CLI_CONFIG_FILE", dir.join("rc")).env("CHECKPOINT_DISABLE", "1");
    timed(&mut command).0
}

/// A repository with one commit, cut into a bundle; its revision.
fn repository(dir: &Path) -> String {
    let work = dir.join("repository");
    let module = work.join("live/vpc");
    std::fs::create_dir_all(&module).unwrap();
    let hello = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/hello/main.tf");
    std::fs::copy(hello, module.join("main.tf")).unwrap();
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
        let output =
            Command::new("git").args(identity).args(args).current_dir(&work).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q", "-b", "main"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "bench"]);
    git(&["bundle", "create", "-q", "../cut.gitbundle", "main"]);
    git(&["rev-parse", "HEAD"])
}

/// The terraform of this machine, as users bake it into their images; its version.
fn prebake(bin: &Path) -> String {
    let output = Command::new("terraform").args(["version", "-json"]).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let version = answer["terraform_version"].as_str().unwrap().to_owned();
    let found = Command::new("sh").args(["-c", "command -v terraform"]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let dir = bin.join("Terraform").join(&version);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::copy(found.trim(), dir.join("terraform")).unwrap();
    version
}

/// Burrito's objects.
async fn order(cluster: &FakeCluster, revision: &str, version: &str) {
    let http = Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap();
    let here = |name: &str| json!({"name": name, "namespace": "team"});
    let tool = json!({"enabled": true, "version": version});
    let url = json!({"url": "https://git.example.com/infra.git"});
    let layer = json!({"path": "live/vpc", "branch": "main", "repository": here("infra")});
    let run = json!({"action": "plan", "artifact": {},
        "layer": {"name": "vpc", "namespace": "team", "revision": revision}});
    let mut objects = vec![
        (
            "terraformrepositories",
            "infra".to_owned(),
            json!({"repository": url, "terraform": tool}),
        ),
        ("terraformlayers", "vpc".to_owned(), layer),
    ];
    // Each pod has a run of its own.
    objects
        .extend((0..=ROUNDS).map(|round| ("terraformruns", format!("plan-{round}"), run.clone())));
    for (plural, name, spec) in objects {
        let body = json!({"metadata": {"name": name}, "spec": spec}).to_string();
        let url = format!("{}{OBJECTS}/{plural}", cluster.server());
        let request = http.request(Method::POST, url).bearer_auth(cluster.admin());
        let answer = request.body(body).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }
}
