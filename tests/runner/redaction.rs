//! Secrets are masked in everything that people read, and nowhere else.

use std::path::Path;

use support::{Ended, Fault, FaultyDatastore, Sandbox, Started, TestDatastore, eventually};
use url::Url;

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

/// The forms of the secrets in which this module prints them.
// In base64 after one byte: without the characters that other bytes determine, too.
const FORMS: [&str; 4] = [TOKEN, PIN, "hunter2", "VudGVyMi9odW50ZXIyK2h1bnRlcjI"];

/// Those of the secrets that are in a text.
fn secrets_in(text: &[u8], secrets: &[&str]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    secrets.iter().filter(|form| text.contains(**form)).map(|form| (*form).to_owned()).collect()
}

/// No file has a secret, but the code, those that a plan and an apply need byte by byte, and the outputs, which have a kind of
/// their own.
fn assert_stored_masked(datastore: &TestDatastore, sandbox: &Sandbox, secrets: &[&str]) {
    const EXACT: [&str; 7] =
        ["plan.bin", "plan.json", ".tfstate", ".tar.zst", "main.tf", ".tfvars", "/x/outputs."];
    let mut found = Vec::new();
    files(&datastore.root(), &mut found);
    files(&sandbox.work(), &mut found);
    for (path, contents) in found {
        if !EXACT.iter().any(|name| path.contains(name)) {
            assert_eq!(secrets_in(&contents, secrets), [""; 0], "{path}");
        }
    }
}

#[test]
fn redacted_variables_are_listed_with_commas_and_other_lists_are_refused() {
    let run = |list: &str| -> Ended {
        let sandbox = Sandbox::new(RUNNER);
        sandbox.write("main.tf", MODULE);
        let mut command = sandbox.command(&["apply", "--no-plan"]);
        command.env("PLANCHA_REDACT_ENV", list).env("OTHER_PIN", "other-pin-4711");
        command.env("deploy.pin-2", PIN);
        command.env("TF_VAR_api_token", TOKEN).env("DEPLOY_PIN", PIN);
        command.output().unwrap().into()
    };
    for list in [
        "OTHER_PIN, DEPLOY_PIN",
        " DEPLOY_PIN ,",
        "DEPLOY_PIN,NO_SUCH_PIN",
        "deploy.pin-2",
        "DEPLOY_PIN,471147114711",
    ] {
        let ended = run(list);
        assert_eq!(ended.code, 0, "{list}: {}", ended.stderr);
        assert!(ended.stdout.contains("pin ***"), "{list}: {}", ended.stdout);
        let is_unset = ended.stderr.contains("name 2 of --redact-env: this variable is not set");
        assert_eq!(is_unset, list.contains("NO_") || list.contains("471147"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("471147"), "{}", ended.stderr);
    }
    for list in
        ["OTHER_PIN DEPLOY_PIN", "DEPLOY_PIN;OTHER_PIN", "DEPLOY_PIN=hunter2", "$DEPLOY_PIN"]
    {
        let ended = run(list);
        assert_eq!(ended.code, 64, "{list}: {}", ended.stdout);
        assert!(ended.stderr.contains("separated by commas"), "{list}: {}", ended.stderr);
        assert!(!ended.stderr.contains("_PIN"), "{list}: {}", ended.stderr);
        assert!(!ended.stderr.contains("hunter2"), "{list}: {}", ended.stderr);
    }
}

/// Neither does the output.
fn assert_masked(ended: &Ended, datastore: &TestDatastore, sandbox: &Sandbox, secrets: &[&str]) {
    assert_eq!(secrets_in(ended.stdout.as_bytes(), secrets), [""; 0], "{}", ended.stdout);
    assert_eq!(secrets_in(ended.stderr.as_bytes(), secrets), [""; 0], "{}", ended.stderr);
    assert_stored_masked(datastore, sandbox, secrets);
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
    let check = |ended: &Ended| assert_masked(ended, &datastore, &sandbox, &FORMS);

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

const SENSITIVE: &str = r#"
variable "password" { sensitive = true }
variable "argument" { sensitive = true }
variable "object" {
  type      = object({ keys = list(string) })
  sensitive = true
}

locals {
  computed = join("-", ["computed", "by", "the", "plan"])
  secrets = nonsensitive("${var.password} ${var.argument} ${var.object.keys[0]}")
}

resource "terraform_data" "marked" {
  input = sensitive(local.computed)
}

resource "terraform_data" "print" {
  provisioner "local-exec" {
    command = "echo 'secrets: ${local.secrets} ${local.computed}'; cat $AWS_WEB_IDENTITY_TOKEN_FILE"
  }
}

check "computed" {
  assert {
    condition     = local.computed == ""
    error_message = "computed: ${local.computed}"
  }
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn sensitive_values_are_masked_from_the_moment_when_they_are_known() {
    const COMPUTED: &str = "computed-by-the-plan";
    let known = ["of-the-environment", "of-an-argument", "of-a-file", "of-a-token-file"];
    let all = [&known[..], &[COMPUTED]].concat();
    let datastore = TestDatastore::temporary().await;
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", SENSITIVE);
    sandbox.write("terraform.tfvars", "object = {\n  keys = [\"of-a-file\"]\n}\n");
    std::fs::write(sandbox.path("token"), "of-a-token-file\n").unwrap();
    let run = |args: &[&str], password: Option<&str>| -> Ended {
        let mut command = sandbox.command(args);
        command.args(["--name", "x", "--summary", "summary.md", "--result", "result.json"]);
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        command.env("AWS_WEB_IDENTITY_TOKEN_FILE", sandbox.path("token"));
        command.envs(password.map(|password| ("TF_VAR_password", password)));
        command.output().unwrap().into()
    };
    let argument = ["--var", "argument=of-an-argument"];
    let planned =
        run(&[&["plan", "--run", "p"], &argument[..]].concat(), Some("of-the-environment"));
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert_masked(&planned, &datastore, &sandbox, &known);
    // The screen has shown what only the plan shows to be sensitive; no file has it.
    assert!(planned.stdout.contains(COMPUTED), "{}", planned.stdout);
    assert_stored_masked(&datastore, &sandbox, &all);
    let stored = |run: &str| StoredRun::new(&datastore, "default", "x", run);
    let log = stored("p").log(0).await;
    assert!(log.contains("computed: ***"), "{log}");

    // An apply is not given the variables again.
    let applied = run(&["apply", "--run", "a", "--plan", "p"], None);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.contains("secrets: *** *** *** ***"), "{}", applied.stdout);
    assert_masked(&applied, &datastore, &sandbox, &all);

    let args = ["apply", "--run", "n", "--no-plan", "--replace", "terraform_data.print"];
    let applied = run(&[&args[..], &argument[..]].concat(), Some("of-the-environment"));
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert_masked(&applied, &datastore, &sandbox, &known);
    assert!(sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_that_the_datastore_cannot_serve_as_json_is_masked_all_the_same() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", SENSITIVE);
    sandbox.write("terraform.tfvars", "argument = 1\nobject = { keys = [1] }\n");
    let run = |datastore: &Url, args: &[&str], password: Option<&str>| -> Ended {
        let mut command = sandbox.command(&[args, &["--name", "x"]].concat());
        command.env("PLANCHA_DATASTORE_URL", datastore.as_str());
        command.env("AWS_WEB_IDENTITY_TOKEN_FILE", "terraform.tfvars");
        command.envs(password.map(|password| ("TF_VAR_password", password)));
        command.output().unwrap().into()
    };
    let planned = run(&datastore.url, &["plan", "--run", "p"], Some("of-the-environment"));
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let fails = Fault { method: "GET", part: "format=json", status: 403, times: usize::MAX };
    let failing = FaultyDatastore::before(&datastore.url, vec![fails]).await;
    let applied = run(&failing.url, &["apply", "--run", "a", "--plan", "p"], None);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.contains("secrets: *** "), "{}", applied.stdout);
    assert!(!applied.stdout.contains("of-the-environment"), "{}", applied.stdout);
}

#[test]
fn output_is_shown_while_the_tool_runs_but_for_the_beginning_of_a_secret() {
    let sandbox = Sandbox::new(RUNNER);
    let seen = sandbox.path("seen");
    let sandbox = sandbox.fake_terraform(&format!(
        "case $1 in plan) echo 'hunter2/hun'; printf 'then hunter2/'; \
         while [ ! -e {0} ]; do sleep 0.05; done; echo 'hunter2+hunter2\"x!';; esac",
        seen.display()
    ));
    sandbox.write("main.tf", "");
    let mut command = sandbox.command(&["plan"]);
    command.env("API_TOKEN", TOKEN);
    let started = Started::spawn(command);
    eventually("the output is shown", || started.said("hunter2/hun\nthen "));
    assert!(!started.said("then h"));
    std::fs::write(seen, "").unwrap();
    let ended = started.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("hunter2/hun\nthen ***!\n"), "{}", ended.stdout);
}

#[test]
fn error_with_a_secret_is_masked_in_the_annotation_of_a_job_and_in_its_summary() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform(
        "case $1 in plan) printf 'Error: no access with %s\\n\\n  on main.tf line 1:\\n\\nThe token %s is refused\\n' \
         \"$API_TOKEN\" \"$(printf %s \"$API_TOKEN\" | base64)\" >&2; exit 1;; esac",
    );
    sandbox.write("main.tf", "");
    let mut command = sandbox.command(&["plan", "--result", "result.json"]);
    command.env("API_TOKEN", TOKEN).env("GITHUB_ACTIONS", "true");
    command.env("GITHUB_STEP_SUMMARY", sandbox.work().join("summary.md"));
    let ended = Ended::from(command.output().unwrap());
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let (summary, result) = (sandbox.read("summary.md"), sandbox.read("result.json"));
    assert!(ended.stdout.contains("::error"), "{}", ended.stdout);
    for text in [&ended.stdout, &ended.stderr, &summary, &result] {
        assert!(text.contains("no access with ***"), "{text}");
        assert_eq!(secrets_in(text.as_bytes(), &[TOKEN, "aHVudGVyMi9odW50ZXI"]), [""; 0], "{text}");
    }
}

#[test]
fn secrets_of_urls_are_not_shown() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let seen = sandbox.path("seen");
    let sandbox = sandbox.fake_terraform(&format!(
        "if [ $STEP = plan ]; then printf 'working...'; while [ ! -e {} ]; do sleep 0.05; done; echo
           printf 'Downloading git::https://bo'; sleep 0.3; printf 'b:hunter2@h/x.git?ref=main&tok'; sleep 0.3; echo 'en=hunter2'; fi",
        seen.display()
    ));
    let started = Started::spawn(sandbox.command(&["plan"]));
    eventually("the beginning of a line is shown", || started.said("working..."));
    std::fs::write(seen, "").unwrap();
    let ended = started.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let shown = "working...\nDownloading git::https://***@h/x.git?ref=main&token=***\n";
    assert!(ended.stdout.contains(shown), "{}", ended.stdout);
}
