//! Real terragrunts, below and above 0.73.0, where `scripts/e2e-tools` has built them.

#![expect(clippy::disallowed_methods, reason = "real tools are named by a variable")]

mod arguments;
mod ignored_errors;
mod left_out;
mod second_start;

use support::{Ended, Sandbox, TestDatastore};

use crate::source::checkout::git;
use crate::{RUNNER, json};

const VERSIONS: [&str; 2] = ["0.72.5", "1.0.0"];

/// A sandbox with one of them.
struct Terragrunt {
    sandbox: Sandbox,
    tools: String,
    version: &'static str,
}

impl Terragrunt {
    /// Each version.
    fn all() -> Vec<Self> {
        let tools = std::env::var("PLANCHA_TEST_TOOLS")
            .expect("PLANCHA_TEST_TOOLS names the tools of scripts/e2e-tools");
        let new = |version| Self { sandbox: Sandbox::new(RUNNER), tools: tools.clone(), version };
        VERSIONS.map(new).into()
    }

    /// The newest version.
    fn newest() -> Self {
        Self::all().pop().unwrap()
    }

    fn plan(&self, dir: &str) -> Ended {
        self.run(&["plan", dir], &[])
    }

    /// With arguments for the tool.
    fn run_with(&self, args: &[&str], arguments: &[&str]) -> Ended {
        self.run_all(args, arguments, &[])
    }

    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> Ended {
        self.run_all(args, &[], variables)
    }

    fn run_all(&self, args: &[&str], arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        let terragrunt = format!("--terragrunt={}", self.version);
        let tofu = ["--tool", "tofu", "--tool-version", "1.9.4", "--bin-dir", &self.tools];
        let all = [args, &[&terragrunt, "--result", "result.json"], &tofu].concat();
        let mut command = self.sandbox.command(&all);
        if !arguments.is_empty() {
            command.arg("--").args(arguments);
        }
        command.envs(variables.iter().copied()).output().unwrap().into()
    }

    /// A module `app` whose dependency `dep` has mock outputs for a plan and is not applied.
    fn mocked(&self) {
        let sandbox = &self.sandbox;
        sandbox.write("dep/main.tf", "output \"id\" {\n  value = \"real\"\n}\n");
        sandbox.write("dep/terragrunt.hcl", "");
        sandbox.write("app/main.tf", "variable \"id\" {}\noutput \"x\" {\n  value = var.id\n}\n");
        sandbox.write(
            "app/terragrunt.hcl",
            "dependency \"dep\" {
               config_path                             = \"../dep\"
               mock_outputs                            = { id = \"mocked\" }
               mock_outputs_allowed_terraform_commands = [\"plan\"]
             }
             inputs = { id = dependency.dep.outputs.id }
             ",
        );
    }

    fn report(&self) -> serde_json::Value {
        json(self.sandbox.read("result.json").as_bytes())
    }
}

#[test]
#[ignore = "needs real tools"]
fn plan_uses_mock_outputs_of_a_dependency() {
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        terragrunt.mocked();
        let work = sandbox.work();
        git(&work, &["init", "--quiet"]);
        git(&work, &["add", "."]);
        git(&work, &["commit", "--quiet", "-m", "all"]);
        let head = git(&work, &["rev-parse", "HEAD"]);
        for _ in 0..2 {
            let ended = terragrunt.plan("app");
            assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
            assert!(ended.stdout.contains("+ x = \"mocked\""), "{}", ended.stdout);
            let report = terragrunt.report();
            assert_eq!(report["revision"], *head, "what terragrunt writes is no change");
            assert_eq!(report["backend"]["type"], "local", "as the plan itself says");
        }
        // Without outputs and without mocks there is an error of terragrunt's own.
        sandbox.write("app/terragrunt.hcl", "dependency \"dep\" {\n  config_path = \"../dep\"\n}\ninputs = { id = dependency.dep.outputs.id }\n");
        let ended = terragrunt.plan("app");
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        let report = terragrunt.report();
        let message = report["message"].as_str().unwrap();
        assert!(message.contains("but detected no outputs"), "{message}");
    }
}

#[test]
#[ignore = "needs real tools"]
fn reason_is_terragrunts_error_and_not_the_exit_status() {
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        for (hcl, tofu, reason) in [
            (
                "",
                "resource \"x\" \"y\" {\n  a =\n}\n",
                "Invalid expression (main.tf:2, in resource \"x\" \"y\"): Expected the start of an \
                 expression, but found an invalid expression token.",
            ),
            (
                "",
                "variable \"region\" {}\n",
                "No value for required variable (main.tf:1): The root module input variable \"region\" is \
                 not set, and has no default value. Use a -var or -var-file command line argument to \
                 provide a value for this variable.",
            ),
            ("inputs = { x = local.nope }\n", "", "terragrunt.hcl:1): This "),
        ] {
            sandbox.write("main.tf", tofu);
            sandbox.write("terragrunt.hcl", hcl);
            let ended = terragrunt.plan(".");
            assert_eq!(ended.code, 8, "{}", ended.stderr);
            let report = terragrunt.report();
            let message = report["message"].as_str().unwrap();
            assert!(message.contains(reason), "{message}");
            assert!(message.starts_with("terragrunt plan failed"), "{message}");
            assert!(report["errors"][0]["file"].is_string(), "{report}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}

#[test]
#[ignore = "needs real tools"]
fn plan_with_mock_outputs_is_applied_only_on_request() {
    for terragrunt in Terragrunt::all() {
        terragrunt.mocked();
        // Terragrunt itself refuses an apply where mock outputs are for plans only.
        let sandbox = &terragrunt.sandbox;
        let lines = sandbox.read("app/terragrunt.hcl");
        let lines = lines.lines().filter(|line| !line.contains("_allowed_"));
        sandbox.write("app/terragrunt.hcl", &lines.collect::<Vec<_>>().join("\n"));
        let plan = ["plan", "app", "--plan-file", "the.plan"];
        let apply = ["apply", "app", "--plan-file", "the.plan"];
        let quiet = [("TG_LOG_LEVEL", "error"), ("TERRAGRUNT_LOG_LEVEL", "error")];
        let mute = [("TG_LOG_DISABLE", "true"), ("TERRAGRUNT_LOG_DISABLE", "true")];
        let json = [("TG_LOG_FORMAT", "json"), ("TERRAGRUNT_LOG_FORMAT", "json")];
        let level =
            [("TG_LOG_CUSTOM_FORMAT", "%level\n"), ("TERRAGRUNT_LOG_CUSTOM_FORMAT", "%level\n")];
        let cut = "%msg(width=9)\n";
        let cut = [("TG_LOG_CUSTOM_FORMAT", cut), ("TERRAGRUNT_LOG_CUSTOM_FORMAT", cut)];
        let bare = [("TG_LOG_FORMAT", "bare"), ("TERRAGRUNT_LOG_FORMAT", "bare")];
        let pairs = [("TG_LOG_FORMAT", "key-value"), ("TERRAGRUNT_LOG_FORMAT", "key-value")];
        for variables in [&[][..], &quiet, &mute, &json, &level, &cut, &bare, &pairs] {
            let ended = terragrunt.run(&plan, variables);
            assert_eq!(ended.code, 0, "{}", ended.stderr);
            let report = terragrunt.report();
            let mocked = report["mocks"][0].as_str().unwrap_or_default();
            assert!(mocked.ends_with("/dep/terragrunt.hcl"), "{variables:?}: {report}");
            let expected = format!("this plan uses mock outputs, not the real ones of {mocked}");
            assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
        }
        let ended = terragrunt.run(&apply, &[]);
        assert_eq!(ended.code, 9, "{}", ended.stderr);
        assert!(ended.stderr.contains("was made with mock outputs"), "{}", ended.stderr);
        assert!(ended.stderr.contains("plan again when the dependency is applied"));
        assert!(!ended.stdout.contains("Apply complete"), "{}", ended.stdout);

        let ended = terragrunt.run(&[&apply[..], &["--allow-mocks"]].concat(), &[]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stdout.contains("x = \"mocked\""), "{}", ended.stdout);

        // With the dependency applied, a new plan has its outputs.
        let ended = terragrunt.run(&["apply", "dep", "--no-plan"], &[]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(terragrunt.run(&plan, &[]).code, 0);
        assert!(terragrunt.report()["mocks"].is_null());
        let ended = terragrunt.run(&apply, &[]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stdout.contains("x = \"real\""), "{}", ended.stdout);
    }
}

/// Of a git URL: the checkout is removed, and a local state in it with it.
#[test]
#[ignore = "needs real tools"]
fn local_state_in_a_temporary_checkout_is_refused_with_terragrunt() {
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        let repository = sandbox.path("repository");
        let write = |name: &str, text: &str| {
            let path = repository.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let outside = sandbox.path("outside.tfstate");
        let generated = format!(
            "remote_state {{\n  backend = \"local\"\n  config = {{ path = \"{}\" }}\n  \
             generate = {{ path = \"backend.tf\", if_exists = \"overwrite\" }}\n}}\n",
            outside.display()
        );
        let code = "output \"x\" {\n  value = 1\n}\n";
        write("plain/main.tf", code);
        write("plain/terragrunt.hcl", "");
        write("modules/m/main.tf", code);
        write("source/terragrunt.hcl", "terraform {\n  source = \"../modules//m\"\n}\n");
        write(
            "absolute/terragrunt.hcl",
            "terraform {\n  source = \"../modules//m\"\n}\nremote_state {\n  backend = \"local\"\n  \
             config = { path = \"${get_terragrunt_dir()}/x.tfstate\" }\n  \
             generate = { path = \"backend.tf\", if_exists = \"overwrite\" }\n}\n",
        );
        write("kept/main.tf", code);
        write("kept/terragrunt.hcl", &generated);
        git(&repository, &["init", "--quiet"]);
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "--quiet", "-m", "all"]);
        let url = format!("file://{}", repository.display());
        for (dir, code) in [("plain", 8), ("source", 8), ("absolute", 8), ("kept", 0)] {
            let file = format!("{dir}.plan");
            let source = [&url, "--path", dir];
            let planned = [&["plan"], &source[..], &["--plan-file", &file]].concat();
            let ended = terragrunt.run(&planned, &[]);
            assert_eq!(ended.code, 0, "{}", ended.stderr);
            let by_file = [&["apply"], &source[..], &["--plan-file", &file]].concat();
            let unplanned = [&["apply"], &source[..], &["--no-plan"]].concat();
            if dir == "absolute" {
                // As a runner recorded it that did not know this yet.
                let name = format!("{file}.run.json");
                let mut record = json(sandbox.read(&name).as_bytes());
                assert!(record.as_object_mut().unwrap().remove("removed_state").is_some());
                sandbox.write(&name, &record.to_string());
                let ended = terragrunt.run(&by_file, &[]);
                assert_eq!(ended.code, 8, "{}", ended.stderr);
                assert_eq!(terragrunt.run(&planned, &[]).code, 0);
            }
            for apply in [by_file, unplanned] {
                let ended = terragrunt.run(&apply, &[]);
                assert_eq!(ended.code, code, "{apply:?}: {}\n{}", ended.stdout, ended.stderr);
                let is_lost = ended.stderr.contains("the state would be lost");
                assert_eq!(is_lost, code == 8, "{}", ended.stderr);
                assert_eq!(ended.stdout.contains("Apply complete"), code == 0, "{}", ended.stdout);
            }
        }
        assert!(outside.exists());
    }
}

/// Other programs of these names are first on PATH.
#[test]
#[ignore = "needs real tools"]
fn hooks_and_local_exec_find_the_resolved_tools() {
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        for name in ["tofu", "terragrunt"] {
            sandbox.script(name, "#!/bin/sh\necho another program\n");
        }
        let [local_exec, hook] = ["local-exec", "hook"].map(|name| sandbox.path(name));
        let versions = "tofu version; terragrunt --version";
        sandbox.write(
            "main.tf",
            &format!(
                "resource \"terraform_data\" \"x\" {{\n  provisioner \"local-exec\" {{\n    \
                 command = \"({versions}) > {}\"\n  }}\n}}\n",
                local_exec.display()
            ),
        );
        sandbox.write(
            "terragrunt.hcl",
            &format!(
                "terraform {{\n  before_hook \"versions\" {{\n    commands = [\"apply\"]\n    \
                 execute  = [\"sh\", \"-c\", \"({versions}) > {}\"]\n  }}\n}}\n",
                hook.display()
            ),
        );
        let ended = terragrunt.run(&["apply", "--no-plan"], &[]);
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
        for file in [local_exec, hook] {
            let seen = std::fs::read_to_string(&file).unwrap();
            assert!(seen.contains("OpenTofu v1.9.4"), "{}: {seen}", file.display());
            assert!(seen.contains(terragrunt.version), "{}: {seen}", file.display());
            assert!(!seen.contains("another program"), "{}: {seen}", file.display());
        }
    }
}

/// Modules that use what terragrunt offers. Each has the output `x`, whose value is the module's name.
const STACK: &[(&str, &str)] = &[
    ("root.hcl", "locals {\n  from_root = \"included\"\n}\ninputs = {\n  x = local.from_root\n}\n"),
    ("shared/m/main.tf", "variable \"x\" {}\noutput \"x\" {\n  value = var.x\n}\n"),
    ("plain/main.tf", "output \"x\" {\n  value = \"plain\"\n}\n"),
    ("plain/terragrunt.hcl", ""),
    (
        "included/terragrunt.hcl",
        "include \"root\" {\n  path = find_in_parent_folders(\"root.hcl\")\n}\nterraform {\n  \
         source = \"../shared//m\"\n}\n",
    ),
    (
        "generated/terragrunt.hcl",
        "generate \"x\" {\n  path      = \"x.tf\"\n  if_exists = \"overwrite\"\n  \
         contents  = \"output \\\"x\\\" {\\n  value = \\\"generated\\\"\\n}\\n\"\n}\n\
         remote_state {\n  backend = \"local\"\n  config = {\n    path = \"${get_terragrunt_dir()}/s.tfstate\"\n  }\n  \
         generate = {\n    path = \"backend.tf\"\n    if_exists = \"overwrite\"\n  }\n}\n",
    ),
    ("generated/main.tf", ""),
    (
        "hooked/terragrunt.hcl",
        "terraform {\n  source = \"../shared//m\"\n  before_hook \"init\" {\n    commands = [\"init\"]\n    \
         execute  = [\"sh\", \"-c\", \"echo x = \\\\\\\"hooked\\\\\\\" > from_hook.auto.tfvars\"]\n  }\n  \
         extra_arguments \"quiet\" {\n    commands  = [\"plan\"]\n    arguments = [\"-compact-warnings\"]\n  }\n}\n",
    ),
    (
        "dependent/terragrunt.hcl",
        "terraform {\n  source = \"../shared//m\"\n}\ndependencies {\n  paths = [\"../plain\"]\n}\n\
         dependency \"included\" {\n  config_path  = \"../included\"\n  \
         mock_outputs = {\n    x = \"dependent\"\n  }\n  \
         mock_outputs_allowed_terraform_commands = [\"plan\"]\n}\n\
         inputs = {\n  x = dependency.included.outputs.x\n}\n",
    ),
];

/// Every module that terragrunt can plan without the runner. Both work in trees of the same content, so that neither finds
/// the other's files.
#[test]
#[ignore = "needs real tools"]
fn modules_that_bare_terragrunt_plans_are_planned() {
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        for (name, text) in STACK {
            sandbox.write(&format!("ours/{name}"), text);
            sandbox.write(&format!("bare/{name}"), text);
        }
        let of_tools = |name: &str| std::path::Path::new(&terragrunt.tools).join(name);
        let bare = of_tools(&format!("Terragrunt/{}/terragrunt", terragrunt.version));
        let tofu = of_tools("OpenTofu/1.9.4/tofu");
        for module in ["plain", "included", "generated", "hooked", "dependent"] {
            let mut command = sandbox.program(&bare, &["plan", "-no-color", "-input=false"]);
            command.current_dir(sandbox.work().join("bare").join(module));
            command.env("TERRAGRUNT_TFPATH", &tofu).env("TG_TF_PATH", &tofu);
            let bare = Ended::from(command.output().unwrap());
            let ours = terragrunt.plan(&format!("ours/{module}"));
            let shows = format!("+ x = \"{module}\"");
            for ended in [&bare, &ours] {
                let text = format!("{module}: {}\n{}", ended.stdout, ended.stderr);
                assert_eq!(ended.code, 0, "{text}");
                assert!(ended.stdout.contains(&shows), "{text}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real tools"]
async fn state_in_the_datastore_is_applied_and_destroyed_under_the_lease() {
    for terragrunt in Terragrunt::all() {
        let datastore = TestDatastore::memory().await;
        let address = datastore.url.join("api/state/default/unit").unwrap();
        let sandbox = &terragrunt.sandbox;
        sandbox.write(
            "unit/main.tf",
            "terraform {\n  backend \"http\" {}\n}\nresource \"terraform_data\" \"a\" {}\n",
        );
        sandbox.write(
            "unit/terragrunt.hcl",
            &format!(
                "remote_state {{
                   backend = \"http\"
                   config  = {{ address = \"{address}\", lock_address = \"{address}\", unlock_address = \"{address}\" }}
                 }}
                "
            ),
        );
        let url = [("PLANCHA_DATASTORE_URL", datastore.url.as_str())];
        let run =
            |args: &[&str]| terragrunt.run(&[args, &["unit", "--name", "unit"]].concat(), &url);
        let version = async || {
            let query = "api/states?namespace=default&layer=unit";
            let answer = reqwest::get(datastore.url.join(query).unwrap()).await.unwrap();
            json(&answer.bytes().await.unwrap())["head"]["version"].clone()
        };
        for (number, apply) in [(1, &["plan"][..]), (4, &["apply", "--no-plan"])] {
            let ended = run(apply);
            assert_eq!(ended.code, 0, "{}", ended.stderr);
            if apply == ["plan"] {
                let ended = run(&["apply"]);
                assert_eq!(ended.code, 0, "{}", ended.stderr);
            }
            let applied = version().await;
            assert_eq!((&applied["resources"], &applied["fence"]), (&1.into(), &number.into()));
            let ended = run(&["destroy", "--auto-approve"]);
            assert_eq!(ended.code, 0, "{}", ended.stderr);
            assert_eq!(version().await["resources"], 0);
        }
        let ended =
            terragrunt.sandbox.run_with(&datastore.url, &["migrate", "--to", "tofu", "unit"]);
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        assert!(ended.stderr.contains("terragrunt runs the tool here"), "{}", ended.stderr);
    }
}
