//! Arguments of the tools, and their output: fake tools for every version, real ones where available.

#![expect(clippy::disallowed_methods, reason = "real tools are named by a variable")]

use std::path::PathBuf;

use serde_json::json;
use support::Ended;

use super::{Tenant, tenant};
use crate::json as parsed;

/// A mirror of providers that is down, as the variables that name it.
const MIRROR_DOWN: [(&str, &str); 2] = [
    ("BURRITO_HERMITCRAB_ENABLED", "true"),
    ("BURRITO_HERMITCRAB_URL", "https://127.0.0.1:1/v1/providers/"),
];

/// A plan and its apply by this tool; the calls, with the private directory's name taken out.
async fn calls(tenant: &Tenant, layer: serde_json::Value) -> String {
    tenant.ready(layer).await;
    tenant.run("plan-1", json!({})).await;
    let ended = tenant.start("plan", "plan-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    let ended = tenant.start("apply", "apply-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let calls = tenant.sandbox.calls().join("\n");
    let root = std::fs::canonicalize(tenant.sandbox.path("")).unwrap();
    let calls = calls
        .replace(root.to_str().unwrap(), "")
        .replace(tenant.sandbox.path("").to_str().unwrap(), "");
    let private = regex::Regex::new(r"/?tmp/plancha-[A-Za-z0-9]+").unwrap();
    private.replace_all(&calls, "/private").into_owned()
}

/// The arguments: upstream's subcommands, order and directory; no `-upgrade`, a
/// private plan path, `-input=false`.
#[tokio::test(flavor = "multi_thread")]
async fn rn02_rn07_terraform_and_tofu_get_burritos_arguments() {
    for (name, tool, dir, binary) in
        [("tf", "terraform", "Terraform", "terraform"), ("tofu", "opentofu", "OpenTofu", "tofu")]
    {
        let tenant = Tenant::new(&format!("argv-{name}")).await;
        let tenant =
            tenant.fake("[ $STEP = show ] || echo \"cwd=$(pwd)\"; [ -z \"$OUT\" ] || ls -l \"$OUT\" | cut -c-10");
        tenant.prebaked(dir, "1.9.4", binary);
        let layer = json!({ tool: {"enabled": true, "version": "1.9.4"} });
        let calls = calls(&tenant, layer).await;
        insta::allow_duplicates! { insta::assert_snapshot!(calls, @r"
        init -no-color -input=false
        plan -no-color -input=false -out=/private/plan.bin
        show -no-color -json /private/plan.bin
        show -no-color /private/plan.bin
        init -no-color -input=false
        apply -no-color -input=false -auto-approve /private/plan.bin
        "); }
        let log = tenant.stored("plan-1").log(0).await;
        let cwd = tenant.sandbox.path("pod-0/content/live/vpc");
        let cwd = format!("cwd={}", std::fs::canonicalize(cwd).unwrap().display());
        assert!(log.matches(&cwd).count() >= 2, "{log}");
        assert!(log.contains("-rw-------"), "only we may read the plan: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rn03_terragrunt_gets_the_arguments_of_its_version() {
    for (number, version) in ["0.72.9", "0.73.0-rc1", "0.73.0", "1.0.0"].into_iter().enumerate() {
        let tenant = Tenant::new(&format!("grunt-{number}")).await;
        let tenant = tenant.fake(
            "STEP=$1; case \"$*\" in *-json*) set -- show -json;; *) set -- \"$STEP\";; esac",
        );
        tenant.prebaked("Terragrunt", version, "terragrunt");
        tenant.prebaked("Terraform", "1.9.4", "terraform");
        let layer = json!({"terraform": {"enabled": true, "version": "1.9.4"},
            "terragrunt": {"enabled": true, "version": version}});
        let calls = calls(&tenant, layer).await;
        let (path, dir, quiet) = match number {
            0 | 1 => {
                ("--terragrunt-tfpath", "--terragrunt-working-dir", "--terragrunt-non-interactive")
            }
            _ => ("--tf-path", "--working-dir", "--non-interactive"),
        };
        let options = |pod| {
            let work = format!("pod-{pod}/content/live/vpc");
            format!("{path} runner-bin/Terraform/1.9.4/terraform {dir} {work} {quiet} -no-color")
        };
        let (plan, apply) = (options(0), options(1));
        let expected = [
            // No init: terragrunt initializes by itself, with the mock outputs that a plan may have.
            format!("plan {plan} -input=false -out=/private/plan.bin"),
            format!("show {plan} -json /private/plan.bin"),
            format!("show {plan} /private/plan.bin"),
            format!("apply {apply} -input=false -auto-approve /private/plan.bin"),
        ];
        let calls = calls.replace(" /runner-bin", " runner-bin").replace(" /pod-", " pod-");
        assert_eq!(calls.lines().collect::<Vec<_>>(), expected, "{version}");
    }
}

/// `scripts/e2e-tools` builds them.
fn real_tools() -> PathBuf {
    let tools = std::env::var_os("PLANCHA_TEST_TOOLS");
    tools.expect("PLANCHA_TEST_TOOLS names the tools of scripts/e2e-tools").into()
}

async fn plans_and_applies(tenant: &Tenant, layer: serde_json::Value, tools: &str) {
    tenant.ready(layer).await;
    tenant.run("plan-1", json!({})).await;
    let bin = [("BURRITO_RUNNER_RUNNERBINARYPATH", tools)];
    let ended = tenant.start_with("plan", "plan-1", &bin);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let stored = tenant.stored("plan-1");
    let plan = parsed(&stored.plan("json", 0).await);
    assert_eq!(plan["output_changes"]["x"]["after"], "first", "{plan}");
    let pretty = String::from_utf8(stored.plan("pretty", 0).await).unwrap();
    assert!(pretty.contains("x = \"first\"") && !pretty.contains('\u{1b}'), "{pretty}");
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    let ended = tenant.start_with("apply", "apply-1", &bin);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("Apply complete!"), "{}", ended.stdout);
    assert!(!ended.stdout.contains('\u{1b}'), "{}", ended.stdout);
    assert_eq!(tenant.annotation("apply-sum").await, tenant.annotation("plan-sum").await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real tools"]
async fn rn02_a_real_tofu_plans_and_applies() {
    let tools = real_tools();
    let tenant = tenant!("realtofu");
    let layer = json!({"opentofu": {"enabled": true, "version": "1.9.4"}});
    plans_and_applies(&tenant, layer, tools.to_str().unwrap()).await;
    let report = parsed(&tenant.stored("plan-1").artifact("run.json", 0).await);
    assert_eq!(report["tool"]["name"], "tofu");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real tools"]
async fn rn03_real_terragrunts_plan_and_apply() {
    let tools = real_tools();
    for version in ["0.72.5", "1.0.0"] {
        let name = format!("realgrunt{}", version.replace('.', "-"));
        let tenant = Tenant::new(&name).await;
        let dir = tenant.repository.dir.clone();
        std::fs::write(
            dir.join("live/vpc/main.tf"),
            "variable \"said\" {}\noutput \"x\" { value = var.said }\n",
        )
        .unwrap();
        std::fs::write(dir.join("live/vpc/terragrunt.hcl"), "inputs = { said = \"first\" }\n")
            .unwrap();
        crate::source::checkout::git(&dir, &["add", "."]);
        crate::source::checkout::git(&dir, &["commit", "--quiet", "-m", "terragrunt"]);
        let mut tenant = tenant;
        tenant.repository.commits[0] = crate::source::checkout::git(&dir, &["rev-parse", "HEAD"]);
        let layer = json!({"opentofu": {"enabled": true, "version": "1.9.4"},
            "terragrunt": {"enabled": true, "version": version}});
        plans_and_applies(&tenant, layer, tools.to_str().unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rn14_every_step_gets_the_provider_mirror_configuration() {
    let tenant = tenant!("mirror");
    // A rendering that warns is made again.
    let tenant = tenant.fake(
        "[ $STEP = show ] || cat \"$TF_CLI_CONFIG_FILE\" >&2; env | grep ^TF_CLI_CONFIG_FILE >> $HOME/seen",
    );
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let url = "https://burrito-hermitcrab.burrito-system.svc.cluster.local/v1/providers/";
    let mirror = [("BURRITO_HERMITCRAB_ENABLED", "true"), ("BURRITO_HERMITCRAB_URL", url)];
    let ended = tenant.start_with("plan", "plan-1", &mirror);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    // With the user's own file, which the sandbox always has.
    let log = tenant.stored("plan-1").log(0).await;
    assert!(log.contains("disable_checkpoint = true"), "the user's own stays: {log}");
    assert!(log.contains(&format!("network_mirror {{\n    url = \"{url}\"")), "{log}");
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    assert_eq!(tenant.start_with("apply", "apply-1", &mirror).code, 0);
    let seen = std::fs::read_to_string(tenant.sandbox.path("home/seen")).unwrap();
    assert_eq!(seen.matches("config.tfrc").count(), 6, "{seen}");
    tenant.run("plan-2", json!({})).await;
    let off = [("BURRITO_HERMITCRAB_ENABLED", "false"), ("BURRITO_HERMITCRAB_URL", url)];
    assert_eq!(tenant.start_with("plan", "plan-2", &off).code, 0);
    let seen = std::fs::read_to_string(tenant.sandbox.path("home/seen")).unwrap();
    assert!(seen.ends_with("terraformrc\n"), "{seen}");
}

/// With the real tool, which fails where one of its ways does, be there a `direct` beside it or not.
#[tokio::test(flavor = "multi_thread")]
async fn rn14_unreachable_provider_mirror_is_bypassed() {
    let tenant = tenant!("mirrordown");
    let dir = tenant.repository.dir.clone();
    let requires =
        "terraform {\n  required_providers {\n    null = { source = \"hashicorp/null\" }\n  }\n}\n";
    std::fs::write(dir.join("live/vpc/providers.tf"), requires).unwrap();
    crate::source::checkout::git(&dir, &["add", "."]);
    crate::source::checkout::git(&dir, &["commit", "--quiet", "-m", "a provider"]);
    let revision = crate::source::checkout::git(&dir, &["rev-parse", "HEAD"]);
    tenant.layer(json!({})).await;
    tenant.bundle_of("main", "main", &revision).await;
    tenant.run_of("plan-1", json!({}), &revision).await;
    // The user's own way; `direct` leads nowhere on a machine without the registry.
    let provider =
        tenant.sandbox.path("mirror/registry.terraform.io/hashicorp/null/3.2.0/linux_amd64");
    std::fs::create_dir_all(&provider).unwrap();
    std::fs::write(provider.join("terraform-provider-null_v3.2.0"), "#!/bin/sh\nexit 1\n").unwrap();
    let own = format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = \"{}\"\n  }}\n}}\n",
        tenant.sandbox.path("mirror").display()
    );
    std::fs::write(tenant.sandbox.path("terraformrc"), own).unwrap();
    let ended = tenant.start_with("plan", "plan-1", &MIRROR_DOWN);
    assert!(
        ended.stderr.contains("the provider mirror did not serve a provider"),
        "{}",
        ended.stderr
    );
    assert!(ended.stdout.contains("successfully initialized"), "{}", ended.stdout);
}

/// Plans as `plan-1` with terragrunt, while the mirror is down.
async fn plan_with_terragrunt(tenant: &Tenant) -> Ended {
    tenant.prebaked("Terragrunt", "1.0.0", "terragrunt");
    tenant.prebaked("Terraform", "1.9.4", "terraform");
    let layer = json!({"terraform": {"enabled": true, "version": "1.9.4"},
        "terragrunt": {"enabled": true, "version": "1.0.0"}});
    tenant.ready(layer).await;
    tenant.run("plan-1", json!({})).await;
    let ended = tenant.start_with("plan", "plan-1", &MIRROR_DOWN);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended
}

/// Terragrunt initializes by itself, so that it is the plan or the apply that fails for want of a provider.
#[tokio::test(flavor = "multi_thread")]
async fn rn14_terragrunt_repeats_a_step_without_the_unreachable_mirror() {
    let tenant = tenant!("gruntdown");
    let tenant = tenant.fake(
        "STEP=$1; case \"$*\" in *-json*) set -- show -json;; *) set -- \"$STEP\";; esac
         case $STEP$TF_CLI_CONFIG_FILE in plan*config.tfrc | apply*config.tfrc)
             printf '\\nError: Failed to query available provider packages\\n\\n' >&2; exit 1;; esac",
    );
    let ended = plan_with_terragrunt(&tenant).await;
    assert!(
        ended.stderr.contains("the provider mirror did not serve a provider"),
        "{}",
        ended.stderr
    );
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    let ended = tenant.start_with("apply", "apply-1", &MIRROR_DOWN);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let calls = tenant.sandbox.calls();
    let count = |step: &str| calls.iter().filter(|call| call.starts_with(step)).count();
    assert_eq!((count("init"), count("plan"), count("apply")), (0, 2, 2), "{calls:?}");
}

/// The run without the mirror is no retry. Each try gets the tool's own configuration, with its tokens, as it is then.
#[tokio::test(flavor = "multi_thread")]
async fn rn14_run_without_the_mirror_uses_no_retry_and_a_retry_reads_the_configuration_again() {
    let tenant = tenant!("mirrorretry");
    let own = tenant.sandbox.path("terraformrc");
    let script = "echo \"$STEP $(grep -c renewed \"$TF_CLI_CONFIG_FILE\") ${TF_CLI_CONFIG_FILE##*/}\" >> $HOME/seen
         BUSY='429 Too Many Requests, try again in 1 seconds'
         case $(wc -l < $HOME/seen) in
             1) printf '\\nError: Failed to query available provider packages\\n\\n' >&2; exit 1;;
             2) printf '\\nError: reading: %s\\n\\n' \"$BUSY\" >&2; exit 1;;
         esac";
    let tenant = tenant.fake(script);
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let with = [MIRROR_DOWN.as_slice(), &[("PLANCHA_RETRIES", "1")]].concat();
    let ended = tenant.start_with("plan", "plan-1", &with);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let seen = || std::fs::read_to_string(tenant.sandbox.path("home/seen")).unwrap();
    let (direct, mirrored) = ("0 terraformrc", "0 config.tfrc");
    let steps = ["plan", "show", "show"].map(|step| format!("{step} {direct}\n")).concat();
    assert_eq!(seen(), format!("init {mirrored}\ninit {direct}\ninit {direct}\n{steps}"));

    // With a mirror that answers, the configuration is the runner's own.
    std::fs::remove_file(tenant.sandbox.path("home/seen")).unwrap();
    let script = format!(
        "echo \"$STEP $(grep -c renewed \"$TF_CLI_CONFIG_FILE\") ${{TF_CLI_CONFIG_FILE##*/}}\" >> $HOME/seen
         if [ $(wc -l < $HOME/seen) = 1 ]; then
             printf 'credentials \"h.example.com\" {{\\n  token = \"renewed\"\\n}}\\n' >> {own}
             printf '\\nError: reading: 429 Too Many Requests, try again in 1 seconds\\n\\n' >&2; exit 1
         fi",
        own = own.display()
    );
    let tenant = tenant.fake(&script);
    tenant.run("plan-2", json!({})).await;
    let ended = tenant.start_with("plan", "plan-2", &with);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let seen = std::fs::read_to_string(tenant.sandbox.path("home/seen")).unwrap();
    assert!(
        seen.starts_with("init 0 config.tfrc\ninit 1 config.tfrc\nplan 1 config.tfrc\n"),
        "{seen}"
    );
}

/// A provisioner may have printed the message.
#[tokio::test(flavor = "multi_thread")]
async fn apply_of_terragrunt_that_has_started_is_not_repeated_without_the_mirror() {
    let tenant = tenant!("gruntstarted");
    let tenant = tenant.fake(
        "STEP=$1; case \"$*\" in *-json*) set -- show -json;; *) set -- \"$STEP\";; esac
         if [ $STEP = apply ]; then echo 'null_resource.a: Creating...'; yes 'a line' | head -c 100000
         printf '\\nError: Failed to query available provider packages\\n\\n' >&2; exit 1; fi",
    );
    plan_with_terragrunt(&tenant).await;
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    let ended = tenant.start_with("apply", "apply-1", &MIRROR_DOWN);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let calls = tenant.sandbox.calls();
    let applies = calls.iter().filter(|call| call.starts_with("apply")).count();
    assert_eq!(applies, 1, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn rn15_pod_environment_reaches_the_tool() {
    let tenant = tenant!("env");
    let tenant = tenant.fake("[ $STEP = show ] || env | grep -E '^(TF_|AWS_)' | sort");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let said = [
        ("TF_CLI_ARGS_init", "-upgrade"),
        ("TF_CLI_ARGS_plan", "-var-file=\"a b.tfvars\" -parallelism=3"),
        ("TF_CLI_ARGS_apply", "-parallelism=3"),
        ("TF_WORKSPACE", "blue"),
        ("TF_VAR_x", "a=b c"),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/x"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/eks/token"),
    ];
    let ended = tenant.start_with("plan", "plan-1", &said);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for (name, value) in said {
        assert_eq!(
            ended.stdout.matches(&format!("{name}={value}\n")).count(),
            2,
            "{}",
            ended.stdout
        );
    }
}

/// `-upgrade` is not ours to pass; a layer's `extraInitArgs` bring it back.
#[tokio::test(flavor = "multi_thread")]
async fn rn15_real_terraform_upgrades_on_request() {
    let tenant = tenant!("upgrade");
    let dir = tenant.repository.dir.clone();
    std::fs::create_dir_all(dir.join("modules/m")).unwrap();
    std::fs::write(dir.join("modules/m/main.tf"), "output \"m\" { value = 1 }\n").unwrap();
    std::fs::write(dir.join("live/vpc/m.tf"), "module \"m\" { source = \"../../modules/m\" }\n")
        .unwrap();
    crate::source::checkout::git(&dir, &["add", "."]);
    crate::source::checkout::git(&dir, &["commit", "--quiet", "-m", "a module"]);
    let revision = crate::source::checkout::git(&dir, &["rev-parse", "HEAD"]);
    tenant.layer(json!({})).await;
    tenant.bundle_of("main", "main", &revision).await;
    tenant.run_of("plan-1", json!({}), &revision).await;
    let ended = tenant.start("plan", "plan-1");
    assert!(ended.stdout.contains("Initializing modules..."), "{}", ended.stdout);
    let ended = tenant.start_with("plan", "plan-1", &[("TF_CLI_ARGS_init", "-upgrade")]);
    assert!(ended.stdout.contains("Upgrading modules..."), "{}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn rn18_tool_output_of_both_streams_is_in_order_and_without_colour() {
    let tenant = tenant!("streams");
    let tenant = tenant.fake(
        "if [ $STEP = plan ]; then for n in 1 2 3 4 5 6 7 8; do echo out-$n; echo err-$n >&2; done; fi",
    );
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let ended = tenant.start("plan", "plan-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let lines =
        (1..=8).flat_map(|n| [format!("out-{n}\n"), format!("err-{n}\n")]).collect::<String>();
    assert!(ended.stdout.contains(&lines), "{}", ended.stdout);
    assert!(tenant.stored("plan-1").log(0).await.contains(lines.trim_end()));
    assert!(tenant.sandbox.calls().iter().all(|call| call.contains("-no-color")));
}

/// A bundle has no submodules: what is needed of one is missing, and a plan without it would destroy.
#[tokio::test(flavor = "multi_thread")]
async fn bundle_with_a_required_submodule_is_refused() {
    let tenant = tenant!("submodule");
    let dir = tenant.repository.dir.clone();
    let net = tenant.sandbox.path("net");
    std::fs::create_dir(&net).unwrap();
    std::fs::write(net.join("main.tf"), "output \"x\" {\n  value = 1\n}\n").unwrap();
    for args in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "-m", "net"]] {
        crate::source::checkout::git(&net, args);
    }
    let allow = ["-c", "protocol.file.allow=always"];
    let add = ["submodule", "--quiet", "add", net.to_str().unwrap(), "modules/net"];
    crate::source::checkout::git(&dir, &[&allow[..], &add].concat());
    let call = "module \"net\" {\n  source = \"../../modules/net\"\n}\n";
    std::fs::write(dir.join("live/vpc/net.tf"), call).unwrap();
    crate::source::checkout::git(&dir, &["add", "."]);
    crate::source::checkout::git(&dir, &["commit", "--quiet", "-m", "a submodule"]);
    let revision = crate::source::checkout::git(&dir, &["rev-parse", "HEAD"]);
    tenant.layer(json!({})).await;
    tenant.bundle_of("main", "main", &revision).await;
    tenant.run_of("plan-1", json!({}), &revision).await;
    let ended = tenant.start_with("plan", "plan-1", &[]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let text = "live/vpc/net.tf:2 needs `modules/net`, but the submodule `modules/net` is empty";
    assert!(ended.stderr.contains(text), "{}", ended.stderr);
    tenant.run_of("plan-2", json!({}), &revision).await;
    let off = [("PLANCHA_NO_SUBMODULES", "1")];
    let ended = tenant.start_with("plan", "plan-2", &off);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// A bundle contains no LFS files.
#[tokio::test(flavor = "multi_thread")]
async fn bundle_with_an_lfs_pointer_that_the_tool_reads_is_refused() {
    let tenant = tenant!("pointer");
    let dir = tenant.repository.dir.clone();
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12\n",
        "0".repeat(64)
    );
    std::fs::write(dir.join("live/vpc/a.json"), pointer).unwrap();
    let reads = "output \"y\" {\n  value = file(\"${path.module}/a.json\")\n}\n";
    std::fs::write(dir.join("live/vpc/reads.tf"), reads).unwrap();
    crate::source::checkout::git(&dir, &["add", "."]);
    crate::source::checkout::git(&dir, &["commit", "--quiet", "-m", "a pointer"]);
    let revision = crate::source::checkout::git(&dir, &["rev-parse", "HEAD"]);
    tenant.layer(json!({})).await;
    tenant.bundle_of("main", "main", &revision).await;
    tenant.run_of("plan-1", json!({}), &revision).await;
    let ended = tenant.start("plan", "plan-1");
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let text = "live/vpc/reads.tf:2 reads `live/vpc/a.json`, but that is a git LFS pointer";
    assert!(ended.stderr.contains(text), "{}", ended.stderr);
    assert!(ended.stderr.contains("a bundle has no LFS files"), "{}", ended.stderr);
    assert!(tenant.short("plan-1", 0).await.contains(text));
    tenant.run_of("plan-2", json!({}), &revision).await;
    let ended = tenant.start_with("plan", "plan-2", &[("PLANCHA_NO_SUBMODULES", "1")]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
