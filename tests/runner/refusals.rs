//! Wrong input: every refusal names the thing, the cause and the way out.

use std::fmt::Write as _;

use support::{Ended, Sandbox};

use crate::RUNNER;

/// Every command line and what the runner says to it; none of them reaches the tool.
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
        let said = ended.stderr.lines().filter(|line| !line.is_empty() && !line.contains("INFO"));
        let said =
            said.collect::<Vec<_>>().join("\n").replace(&*sandbox.work().to_string_lossy(), "WORK");
        writeln!(all, "$ runner {}\n{said}\n", args.join(" ")).unwrap();
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

    $ runner plan --grace soon
    error: invalid value 'soon' for '--grace <DURATION>': `soon` is no duration (90s, 5m)
    For more information, try '--help'.

    $ runner plan --datastore ftp://x
    ERROR --datastore (PLANCHA_DATASTORE_URL): the URL `ftp://x/` has another scheme than http or https: expected http://HOST[:PORT] or https://HOST[:PORT]

    $ runner plan --datastore http://user:pw@x
    ERROR --datastore (PLANCHA_DATASTORE_URL): the URL has a user or password; a token goes into --token-file or PLANCHA_TOKEN: expected http://HOST[:PORT] or https://HOST[:PORT]

    $ runner plan --revision main
    ERROR --revision goes with a git URL; the directory `.` is used as it is

    $ runner apply --no-plan --plan r
    error: the argument '--no-plan' cannot be used with '--plan <RUN[/ATTEMPT]>'
    Usage: runner apply --no-plan [DIR] [-- <ARGS>...]
    For more information, try '--help'.

    $ runner apply --plan-file x --var a=b
    ERROR --var, --var-file, --target, --replace and arguments after -- were decided when the plan was made; an apply takes them only with --no-plan

    $ runner resolve terraform@
    ERROR `terraform@` names no version: terraform@1.9.8, terraform@latest or just terraform
    "#);
}

#[test]
fn what_is_not_there_is_exit_code_8() {
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
    ERROR main.tf is not a directory; archives and git bundles cannot be used by this version

    $ runner plan --layer missing.yaml
    ERROR the layer's manifest cannot be read or written: failed to open file `missing.yaml`: No such file or directory (os error 2)

    $ runner plan --layer main.tf
    ERROR main.tf holds no TerraformLayer

    $ runner plan --path missing
    ERROR the source has no directory `missing`

    $ runner plan --tool-version ~> 99.0
    ERROR no terraform at hand matches `~> 99.0` (asked for by --tool-version), and the network is not to be touched
      next: install it once with network, or leave out --offline

    $ runner apply
    ERROR there is no plan to apply without a datastore: name one by --datastore, a file by --plan-file, or plan and apply in one with --no-plan
    "#);
}

#[test]
fn burrito_is_a_name_of_the_same_program() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let burrito = sandbox.path("bin/burrito");
    std::os::unix::fs::symlink(RUNNER, &burrito).unwrap();
    let run = |args: &[&str]| sandbox.program(&burrito, args).output().unwrap().status.code();
    assert_eq!(run(&["runner", "plan"]), Some(0));
    assert_eq!(run(&["version"]), Some(0));
    assert_eq!(run(&["runner", "frobnicate"]), Some(2));
    assert_eq!(run(&["runner"]), Some(2));
    assert_eq!(run(&["runner", "plan", "--frobnicate"]), Some(1));
    assert_eq!(run(&["runner", "plan", "missing"]), Some(1), "upstream knows no other code");
}
