//! A plan with a real provider is applied elsewhere: by another user, with an empty cache and without git.

#![expect(clippy::disallowed_methods, reason = "scripts/e2e sets the variables")]

use std::path::{Path, PathBuf};

use support::{Ended, Sandbox, TestDatastore};

use crate::source::checkout::git;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// A queue in the AWS API at this URL. The module beside the root module is part of the snapshot.
fn repository(sandbox: &Sandbox, api: &str) -> PathBuf {
    let dir = sandbox.path("repository");
    let state = sandbox.path("state/terraform.tfstate");
    let main = format!(
        r#"terraform {{
  required_providers {{
    aws = {{
      source = "hashicorp/aws"
    }}
  }}
  backend "local" {{
    path = "{}"
  }}
}}
provider "aws" {{
  region                      = "eu-west-3"
  access_key                  = "x"
  secret_key                  = "y"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
  skip_metadata_api_check     = true
  endpoints {{
    sns = "{api}"
  }}
}}
module "name" {{
  source = "../../modules/name"
}}
resource "aws_sns_topic" "t" {{
  name = module.name.name
}}
output "topic" {{
  value = aws_sns_topic.t.name
}}
"#,
        state.display()
    );
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

/// The apply, as another user if this one is root.
fn apply_elsewhere(sandbox: &Sandbox, args: &[&str]) -> Ended {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    for name in ["elsewhere", "elsewhere/home", "elsewhere/tmp", "elsewhere/work", "state"] {
        let dir = sandbox.path(name);
        std::fs::create_dir_all(&dir).unwrap();
        if is_root {
            chown(&dir, Some(65534), Some(65534)).unwrap();
        }
    }
    // Temporary directories of tests belong to their user alone.
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path(""), mode).unwrap();
    let runner = sandbox.path("elsewhere/runner");
    std::fs::copy(RUNNER, &runner).unwrap();
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let program = Path::new(if is_root { "setpriv" } else { "env" });
    let mut command = sandbox.program(program, if is_root { &user } else { &[] });
    command
        .arg(&runner)
        .args(args)
        .current_dir(sandbox.path("elsewhere/work"))
        .env("HOME", sandbox.path("elsewhere/home"))
        .env("TMPDIR", sandbox.path("elsewhere/tmp"))
        .env_remove("XDG_CACHE_HOME");
    command.output().unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the aws provider"]
async fn a_plan_with_the_aws_provider_is_applied_by_another_user_with_an_empty_cache() {
    let api = std::env::var("PLANCHA_TEST_AWS_API").unwrap();
    let plugins = std::env::var("PLANCHA_TEST_AWS_PLUGINS").unwrap();
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let mirror = format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = \"{plugins}\"\n  }}\n}}\n"
    );
    std::fs::write(sandbox.path("terraformrc"), format!("disable_checkpoint = true\n{mirror}"))
        .unwrap();
    let dir = repository(&sandbox, &api);
    let url = format!("file://{}", dir.display());
    let plan = ["plan", &url, "--path", "live/app", "--name", "app", "--run", "p"];
    let planned = sandbox.run_with(&datastore.url, &plan);
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
    let applied = apply_elsewhere(&sandbox, &apply);

    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.contains("topic = \"the-topic\""), "{}", applied.stdout);
    let report = async |run: &str| {
        json(&StoredRun::new(&datastore, "default", "app", run).artifact("run.json", 0).await)
    };
    let (plan, apply) = (report("p").await, report("a").await);
    assert!(plan["lock_file_sha256"].is_string(), "{plan}");
    assert_eq!(plan["lock_file_sha256"], apply["lock_file_sha256"]);
    assert_eq!(plan["providers"], apply["providers"]);
}
