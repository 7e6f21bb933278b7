//! `runner plan`: what it creates, stores and annotates.

use datastore_api::Sha256;
use support::{Fault, FaultyDatastore, Sandbox, TestDatastore};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const LAYER: &[&str] = &["plan", "--layer", "layer.yaml", "--run", "r"];

#[tokio::test(flavor = "multi_thread")]
async fn plan_is_stored_in_all_formats_with_log_and_report() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();

    let ended = sandbox.run_with(&datastore.url, LAYER);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended.stdout.contains("Plan: 1 to add, 0 to change, 0 to destroy."),
        "{}",
        ended.stdout
    );
    let stored = StoredRun::new(&datastore, "default", "hello", "r");
    assert_eq!(stored.plan("short", 0).await, b"Plan: 1 to create, 0 to update, 0 to delete");
    assert!(json(&stored.plan("json", 0).await)["resource_changes"].is_array());
    let pretty = String::from_utf8(stored.plan("pretty", 0).await).unwrap();
    assert!(pretty.contains("terraform_data.greeting will be created") && !pretty.contains('\x1b'));
    let bin = stored.plan("bin", 0).await;
    assert!(bin.starts_with(b"PK"), "a plan file is a zip");
    let log = stored.log(0).await;
    assert!(log.contains("Terraform has been successfully initialized!"), "{log}");
    assert!(log.contains("Plan: 1 to add"), "{log}");

    let report = json(&stored.artifact("run.json", 0).await);
    assert_eq!(report["outcome"], "changes");
    assert_eq!((&report["exit"], &report["state_lock"]), (&0.into(), &"free".into()));
    assert_eq!(report["plan"]["sha256"], Sha256::of(&bin).to_string());
    assert_eq!(
        report["plan"]["counts"],
        serde_json::json!({"create": 1, "update": 0, "delete": 0})
    );
    assert_eq!((&report["plan"]["run"], &report["plan"]["attempt"]), (&"r".into(), &0.into()));
    assert_eq!(report["tool"]["name"], "terraform");
    let steps = report["steps"].as_array().unwrap();
    let names = steps.iter().map(|step| step["name"].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(names, ["init", "plan", "show json", "show"]);
    assert!(steps.iter().all(|step| step["exit"] == 0 && step["attempts"] == 1));
    assert!(sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_urls_are_neither_stored_nor_shown() {
    let datastore = TestDatastore::memory().await;
    let line = "GET https://me:hunter2@bucket/state?X-Amz-Date=1&X-Amz-Signature=hunter2";
    let script =
        format!("[ $STEP != plan ] || echo '{line}'; [ $STEP != show ] || echo '{line}' >&2");
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&script);

    let ended = sandbox.run_with(&datastore.url, LAYER);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let log = StoredRun::new(&datastore, "default", "hello", "r").log(0).await;
    let masked = "GET https://***@bucket/state?X-Amz-Date=1&X-Amz-Signature=***";
    assert!(log.matches(masked).count() >= 2 && !log.contains("hunter2"), "{log}");
    let shown = [ended.stdout, ended.stderr].concat();
    assert!(shown.matches(masked).count() >= 2 && !shown.contains("hunter2"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_annotations_describe_the_plan() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let before = sandbox.read("layer.yaml");

    assert_eq!(sandbox.run_with(&datastore.url, LAYER).code, 0);

    let bin = StoredRun::new(&datastore, "default", "hello", "r").plan("bin", 0).await;
    let layer = sandbox.read("layer.yaml");
    let value = |key: &str| {
        let key = format!("runner.terraform.padok.cloud/{key}: ");
        layer.lines().find_map(|line| line.trim().strip_prefix(&key)).map(str::to_owned)
    };
    assert_eq!(value("plan-run").as_deref(), Some("r/0"));
    assert_eq!(value("plan-sum"), Some(Sha256::of(&bin).to_base64()));
    assert_eq!(value("plan-commit"), None, "there is no git here");
    let date = value("plan-date").unwrap();
    assert_eq!((date.len(), &date[date.len() - 9..date.len() - 4]), (28, " UTC "), "{date}");
    let kept = before.lines().all(|line| layer.contains(line));
    assert!(kept, "all that was there is still there:\n{layer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_after_the_apply_has_no_changes_and_detailed_exit_code_0() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let plan = |run| {
        let args = ["plan", "--layer", "layer.yaml", "--run", run, "--detailed-exitcode"];
        sandbox.run_with(&datastore.url, &args)
    };

    assert_eq!(plan("first").code, 2);
    let apply = sandbox.run_with(&datastore.url, &["apply", "--layer", "layer.yaml"]);
    assert_eq!(apply.code, 0, "{}", apply.stderr);
    assert_eq!(plan("second").code, 0);

    let stored = StoredRun::new(&datastore, "default", "hello", "second");
    assert_eq!(stored.plan("short", 0).await, b"Plan: 0 to create, 0 to update, 0 to delete");
    assert_eq!(json(&stored.artifact("run.json", 0).await)["outcome"], "no_changes");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_plan_stores_log_and_report_and_annotates_nothing() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    sandbox.write("broken.tf", "output \"x\" {\n  value = local.missing\n}\n");
    let before = sandbox.read("layer.yaml");

    let ended = sandbox.run_with(&datastore.url, LAYER);

    assert_eq!(ended.code, 8);
    assert!(ended.stderr.contains("terraform plan failed with exit code 1"), "{}", ended.stderr);
    assert_eq!(sandbox.read("layer.yaml"), before);
    let stored = StoredRun::new(&datastore, "default", "hello", "r");
    let report = json(&stored.artifact("run.json", 0).await);
    assert_eq!((&report["outcome"], &report["class"]), (&"failed".into(), &"config".into()));
    assert_eq!(report["exit"], 8);
    let message = report["message"].as_str().unwrap();
    let reason = "Reference to undeclared local value (broken.tf:2, in output \"x\"): A local value with the \
                  name \"missing\" has not been declared.";
    assert!(message.ends_with(reason), "{message}");
    let log = stored.log(0).await;
    assert!(log.contains("Reference to undeclared local value"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_fails_if_its_upload_is_lost() {
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method: "PUT", part: "format=json", status: 500, times: usize::MAX };
    let faulty = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let before = sandbox.read("layer.yaml");

    let ended = sandbox.run_with(&faulty.url, LAYER);

    assert_eq!(ended.code, 10, "{}", ended.stderr);
    assert!(ended.stderr.contains("/api/plans (plan.json): 500"), "{}", ended.stderr);
    assert_eq!(sandbox.read("layer.yaml"), before);
    let puts = faulty.seen().iter().filter(|place| place.contains("format=json")).count();
    assert_eq!(puts, 5, "one try and four more");
}

#[tokio::test(flavor = "multi_thread")]
async fn transient_datastore_error_is_retried() {
    let datastore = TestDatastore::memory().await;
    let faults = ["/api/attempts", "format=bin", "/api/logs", "name=run.json"].map(|part| {
        let method = if part == "/api/attempts" { "GET" } else { "PUT" };
        Fault { method, part, status: 503, times: 1 }
    });
    let sick = FaultyDatastore::before(&datastore.url, faults.to_vec()).await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");

    assert_eq!(sandbox.run_with(&sick.url, LAYER).code, 0);

    let stored = StoredRun::new(&datastore, "default", "hello", "r");
    assert!(!stored.plan("bin", 0).await.is_empty());
    assert!(stored.log(0).await.contains("plan is done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_datastore_is_reported_before_planning() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run_with(&"http://127.0.0.1:9".parse().unwrap(), LAYER);
    assert_eq!(ended.code, 10);
    assert!(ended.stderr.contains("the datastore could not be reached"), "{}", ended.stderr);
    assert!(sandbox.calls().is_empty(), "not even initialized");
}

#[tokio::test(flavor = "multi_thread")]
async fn datastore_401_is_a_credentials_error() {
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method: "GET", part: "/api/attempts", status: 401, times: usize::MAX };
    let faulty = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run_with(&faulty.url, LAYER);
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    let seen = faulty.seen();
    let attempts = seen.iter().filter(|line| line.contains("/api/attempts"));
    assert_eq!(attempts.count(), 1, "a 401 is not tried again: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_count_up_and_a_taken_one_is_not_replaced() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let stored = StoredRun::new(&datastore, "default", "hello", "r");

    assert_eq!(sandbox.run_with(&datastore.url, LAYER).code, 0);
    let first = stored.plan("bin", 0).await;
    assert_eq!(sandbox.run_with(&datastore.url, LAYER).code, 0);
    let second = stored.plan("bin", 1).await;
    assert_ne!(first, second);

    // A program that claims nothing fills the attempt while the tool plans: the next free one is taken.
    let url = format!(
        "{}api/plans?namespace=default&layer=hello&run=r&attempt=2&format=bin",
        datastore.url
    );
    let fill = format!("[ $STEP != plan ] || curl -sf -X PUT --data other '{url}'");
    let sandbox = sandbox.fake_terraform(&fill);
    let ended = sandbox.run_with(&datastore.url, LAYER);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(stored.plan("bin", 2).await, b"other");
    assert_ne!(stored.plan("bin", 3).await, second);
    for format in ["json", "pretty", "short"] {
        assert!(!stored.plan(format, 3).await.is_empty());
    }
    assert!(sandbox.read("layer.yaml").contains("plan-run: r/3"));
}

#[test]
fn var_file_that_cannot_be_read_is_refused_before_init() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    sandbox.write("good.tfvars", "");
    sandbox.write("directory/x", "");
    let work = sandbox.work().display().to_string();
    for (file, text) in [
        (
            "missing.tfvars",
            format!("--var-file missing.tfvars ({work}/missing.tfvars) does not exist"),
        ),
        (
            "missing.tfvars",
            "a file of the source is named after --: `-- -var-file=missing.tfvars`".to_owned(),
        ),
        ("directory", format!("--var-file directory ({work}/directory) is a directory")),
        ("/nope/x", "--var-file /nope/x does not exist".to_owned()),
    ] {
        for action in [&["plan"][..], &["apply", "--no-plan"]] {
            let args = [action, &["--var-file", "good.tfvars", "--var-file", file]].concat();
            let ended = sandbox.run(&args);
            assert_eq!(ended.code, 8, "{}", ended.stderr);
            assert!(ended.stderr.contains(&text), "{text}: {}", ended.stderr);
        }
    }
    assert!(sandbox.calls().is_empty(), "{:?}", sandbox.calls());
}

#[test]
fn of_several_values_of_a_variable_the_last_on_the_command_line_wins() {
    let sandbox = Sandbox::new(RUNNER);
    let code = "variable \"a\" {}\noutput \"a\" {\n  value = var.a\n}\n";
    sandbox.write("main.tf", code);
    sandbox.write("2.tfvars", "a = 2\n");
    sandbox.write("3.tfvars", "a = 3\n");
    for (args, value) in [
        (&["--var", "a=x", "--var-file=2.tfvars"][..], "2"),
        (&["--var-file", "2.tfvars", "--var=a=x"], "\"x\""),
        (&["--var-file", "2.tfvars", "--var=a=x", "--var-file", "3.tfvars"], "3"),
        (&["--var-file", "2.tfvars", "--", "-var=a=y"], "\"y\""),
    ] {
        let ended = sandbox.run(&[&["plan"], args].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stdout.contains(&format!("+ a = {value}\n")), "{args:?}: {}", ended.stdout);
    }
}

#[test]
fn tool_arguments_are_exact() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    sandbox.write("a b.tfvars", "");
    sandbox.write("second.tfvars", "");
    let ended = sandbox.run(&[
        "plan",
        "--var-file",
        "a b.tfvars",
        "--var-file=./second.tfvars",
        "--var",
        "x=$(id)",
        "--target",
        "a.b[\"c\"]",
        "--replace",
        "d.e",
        "--",
        "-parallelism=3",
    ]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let calls = sandbox.calls().join("\n");
    let calls = calls.replace(&*sandbox.work().to_string_lossy(), "WORK");
    let scratch = regex_scratch(&calls);
    insta::assert_snapshot!(calls.replace(&scratch, "PRIVATE"), @r#"
    init -no-color -input=false
    plan -no-color -input=false -out=PRIVATE/plan.bin -var-file=WORK/a b.tfvars -var-file=WORK/second.tfvars -var=x=$(id) -target=a.b["c"] -replace=d.e -parallelism=3
    show -no-color -json PRIVATE/plan.bin
    show -no-color PRIVATE/plan.bin
    "#);
}

/// The private directory that a call names.
fn regex_scratch(calls: &str) -> String {
    let out = calls.split("-out=").nth(1).unwrap();
    out.split("/plan.bin").next().unwrap().to_owned()
}

#[test]
fn plan_files_are_private_and_the_tool_sees_no_secret() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let (modes, env) = (sandbox.path("modes"), sandbox.path("env"));
    let sandbox = sandbox.fake_terraform(&format!(
        "[ -z \"$OUT\" ] || stat -c '%a' \"$OUT\" \"$(dirname \"$OUT\")\" > {}\n\
         (env; ulimit -c; umask) > {}",
        modes.display(),
        env.display()
    ));
    let output = sandbox
        .command(&["plan"])
        .env("PLANCHA_TOKEN", "the-secret-token")
        .env("TFENV_REMOTE", "https://user:the-secret-token@mirror.example.com")
        .env("TF_VAR_x", "kept")
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(std::fs::read_to_string(modes).unwrap(), "600\n700\n");
    let env = std::fs::read_to_string(env).unwrap();
    assert!(!env.contains("the-secret-token"), "{env}");
    assert!(env.contains("TF_IN_AUTOMATION=1") && env.contains("TF_VAR_x=kept"), "{env}");
    assert!(env.ends_with("\n0\n0022\n"), "no core files, and the tool's own umask: {env}");
    assert!(sandbox.is_clean());
}

#[test]
fn tool_output_is_printed_in_order() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(
        "if [ $STEP = plan ]; then for i in 1 2 3; do echo out$i; echo err$i >&2; done; fi",
    );
    let ended = sandbox.run(&["plan"]);
    assert!(ended.stdout.contains("out1\nerr1\nout2\nerr2\nout3\nerr3\nplan is done\n"));
    assert!(!ended.stdout.contains("shown"), "a rendering is stored, not shown");
    assert!(ended.stderr.contains("Plan: 1 to create, 0 to update, 0 to delete"));
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_text_has_no_escape_codes_whatever_the_tool_prints() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER)
        .hello()
        .fake_terraform("[ $STEP = plan ] && printf '\\033[1mbold\\033[0m\\n'");
    assert_eq!(sandbox.run_with(&datastore.url, LAYER).code, 0);
    let log = StoredRun::new(&datastore, "default", "hello", "r").log(0).await;
    assert!(log.contains("\nbold\n") && !log.contains('\x1b'), "{log:?}");
}

#[test]
fn daemon_left_by_the_tool_does_not_block_the_run() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("sleep 20 &");
    let started = std::time::Instant::now();
    assert_eq!(sandbox.run(&["plan"]).code, 0);
    assert!(started.elapsed().as_secs() < 20);
}

#[test]
fn result_is_written_to_the_requested_file() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run(&["plan", "--name", "n", "--result", "result.json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report = json(sandbox.read("result.json").as_bytes());
    assert_eq!((&report["version"], &report["action"]), (&1.into(), &"plan".into()));
    assert_eq!(report["tool"]["version"], "1.9.8");
    assert!(report["tool"]["source"].as_str().unwrap().contains("PATH"), "{report}");
    assert!(report["lock_file_sha256"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn datastore_with_conflicting_files_fails_the_plan() {
    let datastore = TestDatastore::memory().await;
    let fault = |times| vec![Fault { method: "PUT", part: "format=bin", status: 412, times }];
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");

    let thrice = FaultyDatastore::before(&datastore.url, fault(3)).await;
    let ended = sandbox.run_with(&thrice.url, LAYER);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    // Three attempts were claimed, and given up.
    let names = StoredRun::new(&datastore, "default", "hello", "r").names(3).await;
    assert_eq!(
        names,
        [
            "binding.json",
            "plan.bin",
            "plan.json",
            "pretty.plan",
            "run.json",
            "run.log",
            "short.diff"
        ]
    );

    let always = FaultyDatastore::before(&datastore.url, fault(usize::MAX)).await;
    assert_eq!(sandbox.run_with(&always.url, &["plan", "--name", "y"]).code, 10);
}

#[test]
fn result_file_is_written_for_a_refused_run() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run(&["plan", "--layer", "missing.yaml", "--result", "result.json"]);
    assert_eq!(ended.code, 8);
    let report = json(sandbox.read("result.json").as_bytes());
    assert_eq!((&report["outcome"], &report["exit"]), (&"failed".into(), &8.into()));
}

#[test]
fn empty_variable_counts_as_unset_and_a_flag_overrides_a_variable() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let mut command = sandbox.command(&["plan", "--plan-file", "p", "."]);
    for name in ["PLANCHA_LAYER_FILE", "PLANCHA_TOOL", "PLANCHA_GRACE", "PLANCHA_ATTEMPT"] {
        command.env(name, "");
    }
    command.env("PLANCHA_DATASTORE_URL", "http://127.0.0.1:9").env("PLANCHA_SOURCE", "nowhere");
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
}

/// With the real tool: it begins with a headline that says nothing, wraps its text, and says all twice.
#[test]
fn failed_step_reports_the_tools_error() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write(
        "main.tf",
        "variable \"a\" {\n  type = strin\n}\nresource \"x\" \"y\" {\n  a =\n}\n",
    );
    sandbox.write("more.tf", "terraform {\n  required_version = \">= 1.0\"\n  nonsense = 1\n}\n");
    let ended = sandbox.run(&["plan", "--result", "result.json"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let first = "terraform init failed with exit code 1: Invalid type specification (main.tf:2, in variable \
                 \"a\"): The keyword \"strin\" is not a valid type specification.";
    assert!(ended.stderr.contains(first), "{}", ended.stderr);
    let report = json(sandbox.read("result.json").as_bytes());
    assert_eq!(report["message"], *first);
    let errors = report["errors"].as_array().unwrap();
    let summaries = errors.iter().map(|error| error["summary"].as_str().unwrap());
    let summaries = summaries.collect::<Vec<_>>();
    assert!(summaries.last().unwrap().contains("encountered problems"), "{summaries:?}");
    assert!(summaries.contains(&"Unsupported argument"), "{summaries:?}");
    assert!(
        ended.stderr.contains("also: Unsupported argument (more.tf:3, in terraform)"),
        "{}",
        ended.stderr
    );
    assert_eq!((&errors[0]["file"], &errors[0]["line"]), (&"main.tf".into(), &2.into()));
}

#[test]
fn every_missing_variable_is_named() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", "variable \"region\" {}\nvariable \"zone\" {}\n");
    let ended = sandbox.run(&["plan"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    for name in ["region", "zone"] {
        let text = format!("The root module input variable \"{name}\" is not set");
        assert!(ended.stderr.contains(&text), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn providers_and_configuration_are_recorded_after_init() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(
        "if [ $STEP = init ]; then
           echo 'provider \"registry.terraform.io/hashicorp/null\" { version = \"3.2.1\" }' > .terraform.lock.hcl
           echo 'output \"y\" { value = 1 }' > written_by_init.tf
         fi",
    );
    assert!(!sandbox.work().join("written_by_init.tf").exists());
    let plan = async |run: &str| {
        let ended = sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--run", run]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        json(&StoredRun::new(&datastore, "default", "x", run).artifact("run.json", 0).await)
    };
    let (first, second) = (plan("first").await, plan("second").await);
    for report in [&first, &second] {
        let providers = serde_json::json!({"registry.terraform.io/hashicorp/null": "3.2.1"});
        assert_eq!(report["providers"], providers, "{report}");
        assert!(report["lock_file_sha256"].is_string(), "{report}");
    }
    let digest = &first["configuration_sha256"];
    assert!(digest.is_string(), "{first}");
    // Before the first init there was one file less than before the second.
    assert_eq!(*digest, second["configuration_sha256"]);
    std::fs::remove_file(sandbox.work().join("written_by_init.tf")).unwrap();
    let ended = sandbox.run_with(&datastore.url, &["apply", "--name", "x"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
