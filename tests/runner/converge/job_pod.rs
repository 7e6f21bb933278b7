//! The Job of an operator: code from a `ConfigMap`, variables and the state from Secrets, user 65534, a read-only root file system,
//! no network, and one volume to write to (rows D3, D13, D16, S1 to S3, S5).

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use support::{Ended, Sandbox};

use crate::{RUNNER, json};

const CODE: &str = "variable \"greetee\" {}\noutput \"greetings\" { value = \"Hello ${var.greetee}\" }\n\
    resource \"terraform_data\" \"a\" {\n  input = var.greetee\n  provisioner \"local-exec\" {\n    \
    command = \"echo env $TF_IN_AUTOMATION $TF_INPUT $HTTPS_PROXY; touch $HOME/home .terraform/data && echo writable; id -u\"\n  }\n}\n";

/// All but `$VOLUME` is read-only, and there is no network. Then the program starts as the user 65534.
const POD: &str = "set -eu\nmount -t tmpfs -o mode=1777 volume \"$VOLUME\"\n\
    for at in / \"$(findmnt -n -o TARGET -T \"${VOLUME%/*}\" | tail -n 1)\"; do mount -o remount,bind,ro \"$at\"; done\n\
    if touch \"$VOLUME/../x\" 2>/dev/null; then exit 99; fi\ncd /\n\
    mkdir -m 1777 \"$VOLUME/tmp\" \"$VOLUME/home\"\n\
    setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\" && code=0 || code=$?\n\
    echo WRITTEN; cat \"$VOLUME/out\" || :\nexit $code\n";

/// A volume as the kubelet mounts a `ConfigMap` or Secret.
fn mounted(sandbox: &Sandbox, name: &str, files: &[(&str, &str)]) -> String {
    let dir = sandbox.path(name);
    std::fs::create_dir_all(dir.join("..2026_11_27")).unwrap();
    symlink("..2026_11_27", dir.join("..data")).unwrap();
    for (file, text) in files {
        std::fs::write(dir.join("..data").join(file), text).unwrap();
        symlink(Path::new("..data").join(file), dir.join(file)).unwrap();
    }
    dir.display().to_string()
}

/// Runs the runner in the pod. Returns how it ended, and the state that it has written.
fn run(sandbox: &Sandbox, args: &[&str]) -> (Ended, String) {
    let volume = sandbox.path("volume");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::set_permissions(sandbox.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = sandbox.path("runner");
    std::fs::copy(RUNNER, &program).unwrap();
    let pod = ["--mount", "--net", "sh", "-c", POD, "sh"];
    let mut command = sandbox.program(Path::new("unshare"), &pod);
    command.arg(&program).args(args).args(["--state-out", &format!("{}/out", volume.display())]);
    command.env("VOLUME", &volume);
    command.env("HOME", volume.join("home")).env("TMPDIR", volume.join("tmp"));
    command.env("HTTPS_PROXY", "http://proxy.example:3128").env_remove("XDG_CACHE_HOME");
    let ended = Ended::from(command.output().unwrap());
    let state = ended.stdout.split_once("WRITTEN\n").unwrap_or_default().1.to_owned();
    (ended, state)
}

#[test]
#[ignore = "needs mounts by root"]
fn a_job_applies_changed_variables_and_destroys_without_network_as_another_user() {
    let sandbox = Sandbox::new(RUNNER);
    let code = mounted(&sandbox, "tfconfig", &[("main.tf", CODE)]);
    let of = |greetee: &str| {
        let text = format!("greetee = \"{greetee}\"\n");
        mounted(&sandbox, &format!("tfvars-{greetee}"), &[("terraform.tfvars", &text)])
            + "/terraform.tfvars"
    };
    let [world, you] = ["World", "you"].map(of);
    let empty = mounted(&sandbox, "tfstate", &[("tfstate", "")]) + "/tfstate";
    let act = |action: &str, variables: &str, state: &str| {
        let mut args = vec![action, &code, "--name", "greeting"];
        args.extend(["--var-file", variables, "--state-in", state]);
        if action == "destroy" {
            args.push("--auto-approve");
        }
        run(&sandbox, &args)
    };
    let (ended, state) = act("converge", &world, &empty);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("env 1 0 http://proxy.example:3128"), "{}", ended.stdout);
    assert!(ended.stdout.contains("writable"), "{}", ended.stdout);
    assert!(ended.stdout.contains("65534"), "{}", ended.stdout);
    let greetings = |state: &str| json(state.as_bytes())["outputs"]["greetings"]["value"].clone();
    assert_eq!(greetings(&state), "Hello World");

    let secret = mounted(&sandbox, "tfstate-1", &[("tfstate", &state)]) + "/tfstate";
    let (ended, changed) = act("converge", &you, &secret);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(greetings(&changed), "Hello you");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), state, "the Secret is not changed");

    let secret = mounted(&sandbox, "tfstate-2", &[("tfstate", &changed)]) + "/tfstate";
    let (ended, last) = act("destroy", &you, &secret);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(json(last.as_bytes())["resources"], serde_json::json!([]));
}
