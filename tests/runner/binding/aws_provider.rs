//! A plan with a real provider is applied elsewhere: by another user, with an empty cache and without git.

use std::path::PathBuf;

use support::{Ended, Sandbox, TestDatastore};

use crate::aws::{api, provider, sandbox};
use crate::binding::elsewhere::{CountingProxy, apply_elsewhere};
use crate::json;
use crate::source::checkout::git;
use crate::stored_run::StoredRun;

/// A topic in the AWS API. The module beside the root module is part of the snapshot.
fn repository(sandbox: &Sandbox) -> PathBuf {
    let dir = sandbox.path("repository");
    let state = sandbox.path("state/terraform.tfstate");
    let backend = format!("  backend \"local\" {{\n    path = \"{}\"\n  }}\n", state.display());
    let resources = r#"module "name" {
  source = "../../modules/name"
}
resource "aws_sns_topic" "t" {
  name = module.name.name
}
output "topic" {
  value = aws_sns_topic.t.name
}
"#;
    let main = provider("sns", &api(), &backend) + resources;
    let name = "output \"name\" {\n  value = trimspace(file(\"${path.module}/name.txt\"))\n}\n";
    for (file, text) in [
        ("live/app/main.tf", main.as_str()),
        ("modules/name/main.tf", name),
        ("modules/name/name.txt", "the-topic\n"),
    ] {
        std::fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
        std::fs::write(dir.join(file), text).unwrap();
    }
    git(&dir, &["init", "--quiet"]);
    git(&dir, &["add", "."]);
    git(&dir, &["commit", "--quiet", "-m", "x"]);
    dir
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the aws provider"]
async fn a_plan_with_the_aws_provider_is_applied_by_another_user_with_an_empty_cache() {
    let datastore = TestDatastore::memory().await;
    let sandbox = sandbox();
    let dir = repository(&sandbox);
    let url = format!("file://{}", dir.display());
    let proxy = CountingProxy::new();
    let plan = ["plan", &url, "--path", "live/app", "--name", "app", "--run", "p", "--datastore"];
    let mut command = sandbox.command(&[&plan[..], &[datastore.url.as_str()]].concat());
    let planned = Ended::from(command.envs(proxy.variables()).output().unwrap());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    std::fs::remove_dir_all(&dir).unwrap();

    let apply = [
        "apply",
        "--name",
        "app",
        "--plan",
        "p",
        "--run",
        "a",
        "--datastore",
        datastore.url.as_str(),
    ];
    let applied = apply_elsewhere(&sandbox, &apply, &proxy);

    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.contains("topic = \"the-topic\""), "{}", applied.stdout);
    let report = async |run: &str| {
        json(&StoredRun::new(&datastore, "default", "app", run).artifact("run.json", 0).await)
    };
    let (plan, apply) = (report("p").await, report("a").await);
    assert!(plan["lock_file_sha256"].is_string(), "{plan}");
    assert_eq!(plan["lock_file_sha256"], apply["lock_file_sha256"]);
    assert_eq!(plan["providers"], apply["providers"]);
    let stored = StoredRun::new(&datastore, "default", "app", "p");
    let binding = json(&stored.artifact("binding.json", 0).await);
    let digests = &binding["binding"]["provider_digests"];
    let of_aws = &digests["registry.terraform.io/hashicorp/aws"];
    assert!(of_aws[0].as_str().unwrap().starts_with("h1:"), "{digests}");
    assert_eq!(proxy.connections(), 0);
}
