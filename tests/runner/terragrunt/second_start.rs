//! Terragrunt starts the tool again after some errors. The plan of an apply is stale by then, unless the tool's apply has not begun.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use support::executable;

use super::Terragrunt;

#[test]
#[ignore = "needs real tools"]
fn apply_fails_with_the_error_of_its_first_start() {
    let retry = "errors {\n  retry \"x\" {\n    retryable_errors   = [\"(?s).*Client.Timeout.*\"]\n    \
        max_attempts       = 2\n    sleep_interval_sec = 1\n  }\n}\n";
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        sandbox.write(
            "main.tf",
            "resource \"terraform_data\" \"b\" {\n  provisioner \"local-exec\" {\n    \
             command = \"echo Client.Timeout exceeded while awaiting headers >&2; exit 3\"\n  }\n}\n",
        );
        for hcl in ["", retry] {
            sandbox.write("terragrunt.hcl", hcl);
            let ended = terragrunt.run(&["plan", "--plan-file", "p"], &[]);
            assert_eq!(ended.code, 0, "{}", ended.stderr);
            let apply = ["apply", "--plan-file", "p", "--retries", "0"];
            let ended = terragrunt.run(&apply, &[]);
            assert_ne!(ended.code, 9, "{}", ended.stderr);
            let report = terragrunt.report();
            let message = report["message"].as_str().unwrap();
            assert!(message.contains("local-exec provisioner error"), "{message}");
            assert_eq!(report["errors"].as_array().unwrap().len(), 1, "{report}");
            // That of 0.72 cannot be turned off there.
            let is_again = ended.stdout.contains("Saved plan is stale")
                || ended.stderr.contains("Saved plan is stale");
            assert_eq!(
                is_again,
                terragrunt.version == "0.72.5" && hcl == retry,
                "{}",
                ended.stderr
            );
        }
    }
}

#[test]
#[ignore = "needs real tools"]
fn apply_is_run_again_only_if_terragrunt_has_failed_before_it() {
    for mut terragrunt in Terragrunt::all() {
        fail_on_request(&mut terragrunt);
        let sandbox = &terragrunt.sandbox;
        sandbox.write("main.tf", "resource \"terraform_data\" \"a\" {}\n");
        sandbox.write("terragrunt.hcl", "");
        for (command, code) in [("apply", 6), ("init", 0)] {
            let ended = terragrunt.run(&["plan", "--plan-file", "p"], &[]);
            assert_eq!(ended.code, 0, "{}", ended.stderr);
            for initialized in [".terraform", ".terragrunt-cache"] {
                let _missing = fs::remove_dir_all(sandbox.work().join(initialized));
            }
            fs::write(sandbox.path(&format!("fail.{command}")), "").unwrap();
            let ended = terragrunt.run(&["apply", "--plan-file", "p"], &[]);
            assert_eq!(ended.code, code, "{command}: {}\n{}", ended.stdout, ended.stderr);
            assert!(!sandbox.path(&format!("fail.{command}")).exists(), "{command}");
            let is_init = command == "init";
            let is_again = ended.stderr.contains("terragrunt init failed: transient");
            assert_eq!(is_again, is_init, "{command}: {}", ended.stderr);
            let report = terragrunt.report();
            let steps = report["steps"].as_array().unwrap();
            let apply = steps.iter().find(|step| step["name"] == "apply").unwrap();
            assert_eq!(apply["attempts"], if is_init { 2 } else { 1 }, "{report}");
        }
    }
}

/// Makes each command of tofu fail once with a transient error where there is a file `fail.COMMAND`.
fn fail_on_request(terragrunt: &mut Terragrunt) {
    let (tools, bin_dir) = (Path::new(&terragrunt.tools), terragrunt.sandbox.path("bin"));
    let tofu = bin_dir.join("OpenTofu/1.9.4/tofu");
    fs::create_dir_all(tofu.parent().unwrap()).unwrap();
    symlink(tools.join("Terragrunt"), bin_dir.join("Terragrunt")).unwrap();
    let fails = terragrunt.sandbox.path("fail");
    let real = tools.join("OpenTofu/1.9.4/tofu");
    executable(
        &tofu,
        &format!(
            "#!/bin/sh\nif rm {}.$1 2>/dev/null; then\n  \
             echo 'Error: Client.Timeout exceeded while awaiting headers' >&2\n  exit 1\nfi\nexec {} \"$@\"\n",
            fails.display(),
            real.display()
        ),
    );
    bin_dir.to_str().unwrap().clone_into(&mut terragrunt.tools);
}
