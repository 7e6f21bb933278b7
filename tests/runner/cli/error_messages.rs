//! Error messages: each names the thing, the cause and the next step.

use std::fmt::Write as _;

use support::{Ended, Sandbox};

use crate::RUNNER;

/// Every command line and the runner's message; none of them reaches the tool.
fn refused(code: i32, lines: &[&[&str]]) -> String {
    let mut all = String::new();
    for args in lines {
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
        let mut command = sandbox.command(args);
        if code == 64 {
            // Usage shows the flags whose variables are set.
            command.env_remove("PLANCHA_OFFLINE");
        }
        let ended = Ended::from(command.output().unwrap());
        assert_eq!(sandbox.calls(), Vec::<String>::new(), "{args:?}");
        assert!(ended.stdout.is_empty(), "{args:?}: {}", ended.stdout);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.stderr);
        let messages =
            ended.stderr.lines().filter(|line| !line.is_empty() && !line.contains("INFO"));
        let messages = messages
            .collect::<Vec<_>>()
            .join("\n")
            .replace(&*sandbox.work().to_string_lossy(), "WORK");
        writeln!(all, "$ runner {}\n{messages}\n", args.join(" ")).unwrap();
    }
    all
}

#[test]
fn wrong_usage_is_exit_code_64() {
    insta::assert_snapshot!(refused(
        64,
        &[
            &["plan", "--layr", "x"],
            &["plan", "a", "b"],
            &["frobnicate"],
            &["plan", "--namespace", "a/b"],
            &["plan", "--attempt", "01"],
            &["plan", "--retries", "many"],
            &["plan", "--grace", "soon"],
            &["plan", "--datastore", "ftp://x"],
            &["plan", "--datastore", "http://user:pw@x"],
            &["plan", "--revision", "main"],
            &["apply", "--no-plan", "--plan", "r"],
            &["apply", "--plan-file", "x", "--var", "a=b"],
            &["resolve", "terraform@"],
        ]
    ), @r#"
    $ runner plan --layr x
    error: unexpected argument '--layr' found
      tip: a similar argument exists: '--layer'
    Usage: runner plan --layer <FILE> [DIR] [-- <ARGS>...]
    For more information, try '--help'.

    $ runner plan a b
    error: unexpected argument 'b' found
    Usage: runner plan [OPTIONS] [DIR] [-- <ARGS>...]
    For more information, try '--help'.

    $ runner frobnicate
    error: unrecognized subcommand 'frobnicate'
    Usage: runner [OPTIONS] <COMMAND>
    For more information, try '--help'.

    $ runner plan --namespace a/b
    error: invalid value 'a/b' for '--namespace <NAME>': `a/b` must not contain `/` or `\`
    For more information, try '--help'.

    $ runner plan --attempt 01
    error: invalid value '01' for '--attempt <N>': `01` is not an attempt (0, 1, 2 ...)
    For more information, try '--help'.

    $ runner plan --retries many
    error: invalid value 'many' for '--retries <N>': invalid digit found in string
      tip: expected a whole number, such as 3
    For more information, try '--help'.

    $ runner plan --grace soon
    error: invalid value 'soon' for '--grace <DURATION>': expected a duration with a unit, such as 500ms, 30s, 5m, 1h30m or 7d
    For more information, try '--help'.

    $ runner plan --datastore ftp://x
    ERROR --datastore (PLANCHA_DATASTORE_URL): the URL `ftp://x/` has a scheme other than http or https: expected http://HOST[:PORT] or https://HOST[:PORT]

    $ runner plan --datastore http://user:pw@x
    ERROR --datastore (PLANCHA_DATASTORE_URL): the URL has a user or password; a token goes into --token-file or PLANCHA_TOKEN: expected http://HOST[:PORT] or https://HOST[:PORT]

    $ runner plan --revision main
    ERROR --revision goes with a git URL or a git bundle; the directory `.` is used as it is

    $ runner apply --no-plan --plan r
    error: the argument '--no-plan' cannot be used with '--plan <RUN[/ATTEMPT]>'
    Usage: runner apply --no-plan [DIR] [-- <ARGS>...]
    For more information, try '--help'.

    $ runner apply --plan-file x --var a=b
    ERROR --var, --var-file, --target, --replace and arguments after -- were decided when the plan was made; an apply takes them only with --no-plan (ephemeral variables of a plan are set as TF_VAR_NAME)

    $ runner resolve terraform@
    ERROR `terraform@` has no version after the @: expected terraform@1.9.8, terraform@latest or just terraform
    "#);
}

#[test]
fn missing_things_exit_8() {
    insta::assert_snapshot!(refused(
        8,
        &[
            &["plan", "missing"],
            &["plan", "main.tf"],
            &["plan", "--layer", "missing.yaml"],
            &["plan", "--layer", "main.tf"],
            &["plan", "--path", "missing"],
            &["plan", "--tool-version", "~> 99.0"],
            &["apply"],
        ]
    ), @r#"
    $ runner plan missing
    ERROR missing is not a directory: it does not exist

    $ runner plan main.tf
    ERROR the archive main.tf: it is not a tar archive. next: a source is a directory, a git URL, a git bundle, or a tar archive, plain or compressed with gzip or zstd

    $ runner plan --layer missing.yaml
    ERROR the layer's manifest cannot be read or written: failed to open file `missing.yaml`: No such file or directory (os error 2). next: check that the file exists and can be read and written, or name another with --layer

    $ runner plan --layer main.tf
    ERROR main.tf contains no TerraformLayer. next: set --layer to a file that contains a manifest with `kind: TerraformLayer`

    $ runner plan --path missing
    ERROR the source has no directory `missing`. next: name a directory inside the source with --path (in a layer: spec.path), or leave it out for the source itself

    $ runner plan --tool-version ~> 99.0
    ERROR no installed version of terraform matches `~> 99.0` (requested by --tool-version), and --offline forbids network access. next: leave out --offline (PLANCHA_OFFLINE), or install the version first with `runner install`

    $ runner apply
    ERROR there is no plan to apply without a datastore: name one with --datastore, a file with --plan-file, or plan and apply in one step with --no-plan
    "#);
}

/// The thing, the cause and the next step of refusals that people meet.
/// A shell stays in a directory that something else has removed.
#[test]
fn removed_current_directory_is_named_by_every_command_that_needs_it() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let run = |args: &[&str]| {
        let script = "mkdir $$ && cd $$ && rmdir ../$$ && exec \"$@\"";
        let shell = [&["-c", script, "sh", RUNNER], args].concat();
        Ended::from(sandbox.program("/bin/sh".as_ref(), &shell).output().unwrap())
    };
    let datastore = "--datastore=http://127.0.0.1:9";
    for args in [
        &["plan"][..],
        &["plan", "."],
        &["plan", "module"],
        &["plan", "a.tar"],
        &["plan", "--layer", "layer.yaml"],
        &["apply", "--no-plan"],
        &["apply", "--plan-file", "p"],
        &["runs", datastore],
        &["runs", "module", datastore],
        &["show", "p", datastore],
        &["logs", "p", datastore],
        &["upload", "unsent", datastore],
        &["resolve"],
        &["resolve", "terraform"],
        &["install", "module"],
        &["resolve", "terraform@1.11.4", "--bin-dir", "bin"],
        &["tools", "list", "--bin-dir", "bin"],
        &["mirror", "terraform@1.11.4", "mirror"],
    ] {
        let refused = run(args);
        assert_eq!(refused.code, 8, "{args:?}: {}", refused.stderr);
        for text in ["the current directory no longer exists", "change into an existing directory"]
        {
            assert!(refused.stderr.contains(text), "{args:?}: {}", refused.stderr);
        }
    }
    let work = sandbox.work();
    for args in [&["version"][..], &["plan", work.to_str().unwrap()]] {
        let ended = run(args);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn error_names_the_thing_and_the_next_step() {
    let layer =
        "kind: TerraformLayer\nmetadata: {name: other}\nspec: {terraform: {version: abc}}\n";
    for (args, code, words) in [
        (&["plan", "--tool", "opentofu"][..], 64, &["`opentofu`: write `tofu`"][..]),
        (&["plan", "--tool", "terragrunt"], 64, &["add --terragrunt"]),
        (&["plan", "--tool", "terrafrom"], 64, &["did you mean `terraform`?"]),
        (&["plan", "--grace", "0s"], 64, &["expected a duration of more than 0"]),
        (&["plan", "--name", ""], 64, &["'--name <NAME>': it is empty"]),
        (&["plan", "--", "-out=x"], 64, &["`-out=x` after --", "--plan-file PATH"]),
        (&["plan", "--layer", "other.yaml", "--name", "nope"], 8, &["`nope`", "`other`", "next: "]),
        (&["plan", "--layer", "other.yaml"], 8, &["the layer's spec.terraform.version", "next: "]),
        (
            &["plan", "--layer", "main.tf"],
            8,
            &["main.tf contains no TerraformLayer", "next: set --layer"],
        ),
        (&["plan", "--layer", "no.yaml"], 8, &["no.yaml", "next: check that the file exists"]),
        (
            &["plan", "--layer", "bad.yaml"],
            8,
            &["bad.yaml is not a manifest: line 1", "next: correct"],
        ),
        (
            &["plan", "--keyring", "no.asc"],
            8,
            &["--keyring (PLANCHA_KEYRING): no.asc", "next: check that it exists"],
        ),
        (
            &["plan", "--datastore", "http://127.0.0.1:9", "--token-file", "no"],
            8,
            &["the token in no cannot be used", "next: check that the file of --token-file"],
        ),
        (&["resolve", "utf16"], 8, &["utf16/.terraform-version is not UTF-8 text", "UTF-16"]),
        (&["resolve", "terragrunt", "toml"], 8, &["toml/.tgswitch.toml:1:", "next: correct that"]),
        (&["start"], 8, &["BURRITO_RUNNER_LAYER_NAME is not set", "use `runner plan`"]),
    ] {
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
        sandbox.write("other.yaml", layer);
        sandbox.write("bad.yaml", "kind: [\n");
        sandbox.write("toml/.tgswitch.toml", "version = \n");
        sandbox.write("utf16/main.tf", "");
        std::fs::write(sandbox.work().join("utf16/.terraform-version"), b"\xff\xfe1\0").unwrap();
        let ended = sandbox.run(args);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.stderr);
        for words in words {
            assert!(ended.stderr.contains(words), "{args:?}: {words}: {}", ended.stderr);
        }
        assert!(!ended.stderr.contains("``"), "{}", ended.stderr);
    }
}

#[test]
fn failed_run_reports_a_stored_log_only_if_it_is_stored() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("echo 'Error: no' >&2; exit 1");
    let ended = sandbox.run(&["plan"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("next: read the tool's output above\n"), "{}", ended.stderr);
}

#[test]
fn ignored_settings_are_reported_once() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let root = sandbox.path("tenv");
    std::fs::create_dir_all(root.join("remote.yaml")).unwrap();
    let args = ["plan", "--tool", "terraform", "--tool-version", "latest"];
    let ended = Ended::from(sandbox.command(&args).env("TENV_ROOT", root).output().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("tenv's mirror settings").count(), 1, "{}", ended.stderr);
}

#[test]
fn help_describes_its_own_command() {
    let sandbox = Sandbox::new(RUNNER);
    let help = |args: &[&str]| sandbox.run(args).stdout;
    assert!(help(&["start", "--help"]).contains("[default: /runner/bin]"));
    assert!(help(&["plan", "--help"]).contains("[default: plancha/bin in"));
    let upload = help(&["upload", "--help"]);
    assert!(!upload.contains("nothing is stored"), "{upload}");
    assert!(upload.contains("A run that cannot store all of its files"), "{upload}");
}

#[test]
fn program_runs_under_the_name_burrito() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let burrito = sandbox.path("bin/burrito");
    std::os::unix::fs::symlink(RUNNER, &burrito).unwrap();
    let run = |args: &[&str]| sandbox.program(&burrito, args).output().unwrap().status.code();
    assert_eq!(run(&["runner", "plan"]), Some(0));
    assert_eq!(run(&["version"]), Some(0));
    assert_eq!(run(&["runner", "frobnicate"]), Some(2));
    assert_eq!(run(&["runner"]), Some(2));
    assert_eq!(run(&["runner", "plan", "--frobnicate"]), Some(1));
    assert_eq!(run(&["frobnicate"]), Some(1), "as upstream's cobra");
    let output = sandbox.program(&burrito, &["runner", "plan", "a", "b"]).output().unwrap();
    let usage = String::from_utf8(output.stderr).unwrap();
    assert!(usage.contains("Usage: burrito runner plan "), "{usage}");
    assert_eq!(run(&["runner", "plan", "missing"]), Some(1), "upstream knows no other code");
}

#[test]
fn configuration_that_is_too_large_to_be_read_needs_only_a_named_version() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let file = std::fs::File::create(sandbox.work().join("main.tf.json")).unwrap();
    file.set_len(17 << 20).unwrap();
    let refused = sandbox.run(&["plan"]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    for text in
        ["main.tf.json is larger than 16384 KiB", "next: name the tool and its version with --tool"]
    {
        assert!(refused.stderr.contains(text), "{}", refused.stderr);
    }
    let planned = sandbox.run(&["plan", "--tool", "terraform", "--tool-version", "1.9.8"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
}
