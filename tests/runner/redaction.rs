//! Secrets are masked in everything that people read, and nowhere else.

use std::path::Path;

use support::{Ended, Sandbox, TestDatastore};

use crate::RUNNER;
use crate::stored_run::StoredRun;

const TOKEN: &str = "hunter2/hunter2+hunter2\"x";
const PIN: &str = "4711-4712-4713";
const MODULE: &str = r#"
variable "api_token" {}
variable "fails" { default = false }

resource "terraform_data" "print" {
  input = jsonencode({ token = var.api_token })
  provisioner "local-exec" {
    command = <<-EOT
      echo "raw $TF_VAR_api_token, pin $DEPLOY_PIN, $SHORT_TOKEN"
      printf 'x%s' "$TF_VAR_api_token" | base64
      printf '%s' "${self.output}"
      test ${var.fails} = false
    EOT
  }
}

output "token" {
  value = var.api_token
}
"#;

/// The files in a directory and below.
fn files(dir: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

/// The secrets in a text, in the forms in which this module prints them.
fn secrets_in(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    // In base64 after one byte: without the characters that other bytes determine, too.
    let forms = [TOKEN, PIN, "hunter2", "VudGVyMi9odW50ZXIyK2h1bnRlcjI"];
    forms.iter().filter(|form| text.contains(**form)).map(|form| (*form).to_owned()).collect()
}

/// Neither the output nor a file has a secret, but those that a plan and an apply need byte by byte.
fn assert_masked(ended: &Ended, datastore: &TestDatastore, sandbox: &Sandbox) {
    const EXACT: [&str; 4] = ["plan.bin", "plan.json", "terraform.tfstate", ".tar.zst"];
    assert_eq!(secrets_in(ended.stdout.as_bytes()), [""; 0], "{}", ended.stdout);
    assert_eq!(secrets_in(ended.stderr.as_bytes()), [""; 0], "{}", ended.stderr);
    let mut found = Vec::new();
    files(&datastore.root(), &mut found);
    files(&sandbox.work(), &mut found);
    for (path, contents) in found {
        if !EXACT.iter().any(|name| path.contains(name)) {
            assert_eq!(secrets_in(&contents), [""; 0], "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_variables_are_only_in_plan_files() {
    let datastore = TestDatastore::temporary().await;
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", MODULE);
    let run = |args: &[&str], format: &str| -> Ended {
        let mut command = sandbox.command(args);
        command.args([
            "--redact-env",
            "DEPLOY_PIN",
            "--summary",
            "summary.md",
            "--result",
            "result.json",
        ]);
        command.args(["--name", "x", "--log-format", format]);
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str()).env("TF_VAR_api_token", TOKEN);
        command.env("DEPLOY_PIN", PIN).env("SHORT_TOKEN", "short77");
        command.output().unwrap().into()
    };
    let check = |ended: &Ended| assert_masked(ended, &datastore, &sandbox);

    let planned = run(&["plan", "--run", "p"], "text");
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stdout.contains("= \"***\""), "{}", planned.stdout);
    check(&planned);
    let stored = |run: &str| StoredRun::new(&datastore, "default", "x", run);
    let json = crate::json(&stored("p").plan("json", 0).await);
    assert_eq!(json["variables"]["api_token"]["value"], TOKEN);
    let pretty = String::from_utf8(stored("p").plan("pretty", 0).await).unwrap();
    assert!(pretty.contains("+ token = \"***\""), "{pretty}");

    let applied = run(&["apply", "--run", "a", "--plan", "p"], "json");
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.contains("raw ***, pin ***, short77"), "{}", applied.stdout);
    check(&applied);

    // The error of a provisioner repeats its output.
    let failed = run(
        &[
            "apply",
            "--run",
            "f",
            "--no-plan",
            "--var",
            "fails=true",
            "--replace",
            "terraform_data.print",
        ],
        "json",
    );
    assert_eq!(failed.code, 1, "{}", failed.stderr);
    check(&failed);
    let report = crate::json(&stored("f").artifact("run.json", 0).await);
    assert!(report["errors"][0].to_string().contains("raw ***, pin ***"), "{report}");
    assert!(sandbox.is_clean());
}
