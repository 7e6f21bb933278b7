//! Terragrunt starts the tool again after some errors. The plan of an apply is stale by then.

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
