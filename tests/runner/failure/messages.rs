//! Errors that tofu writes as JSON beside its output.

use support::{Ended, Sandbox};

use crate::{RUNNER, json};

/// A tofu of this version whose plan fails: with a box, and with messages if it is asked for them.
fn failing_tofu(version: &str) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", "");
    let calls = sandbox.path("calls");
    let script = format!(
        r#"#!/bin/sh
if [ "$*" = "version -json" ]; then echo '{{"terraform_version": "{version}"}}'; exit; fi
echo "$*" >> {calls}
[ "$1" = plan ] || exit 0
for arg in "$@"; do case $arg in -json-into=*)
umask 077; cat > "${{arg#-json-into=}}" <<'END'
{{"@level":"info","@message":"OpenTofu {version}","@module":"tofu.ui","@timestamp":"2026-11-23T10:00:00Z","tofu":"{version}","type":"version","ui":"1.2"}}
{{"@level":"error","@message":"Error: reading S3 Bucket","@module":"tofu.ui","@timestamp":"2026-11-23T10:00:01Z","diagnostic":{{"severity":"error","summary":"reading S3 Bucket","detail":"403 Forbidden: the very long sentence of this service is not wrapped here","address":"module.m[\"a, b\"].aws_s3_bucket.b","range":{{"filename":"m/main.tf","start":{{"line":7,"column":1,"byte":1}},"end":{{"line":7,"column":2,"byte":2}}}}}},"type":"diagnostic"}}
END
;; esac; done
cat >&2 <<'END'
╷
│ Error: reading S3 Bucket
│ 
│   with module.m["a, b"].aws_s3_bucket.b,
│   on m/main.tf line 7, in resource "aws_s3_bucket" "b":
│    7: resource "aws_s3_bucket" "b" {{
│ 
│ 403 Forbidden: the very long sentence of
│ this service is not wrapped here
╵
END
exit 1
"#,
        calls = calls.display()
    );
    sandbox.script("tofu", &script);
    sandbox
}

fn plan(sandbox: &Sandbox, variables: &[(&str, &str)]) -> Ended {
    let args = ["plan", "--tool", "tofu", "--result", "result.json"];
    sandbox.command(&args).envs(variables.iter().copied()).output().unwrap().into()
}

#[test]
fn errors_of_tofu_come_from_its_messages() {
    let sandbox = failing_tofu("1.12.0");
    let ended = plan(&sandbox, &[]);
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    let report = json(sandbox.read("result.json").as_bytes());
    let errors = report["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{report}");
    let detail = "403 Forbidden: the very long sentence of this service is not wrapped here";
    assert_eq!(errors[0]["detail"], detail);
    assert_eq!(errors[0]["address"], "module.m[\"a, b\"].aws_s3_bucket.b");
    assert_eq!((&errors[0]["file"], &errors[0]["line"]), (&"m/main.tf".into(), &7.into()));
    assert!(ended.stdout.contains("│ this service is not wrapped here"), "{}", ended.stdout);
    let asked = |step: &str| {
        sandbox.calls().iter().any(|call| call.starts_with(step) && call.contains(" -json-into="))
    };
    assert!(asked("init") && asked("plan"), "{:?}", sandbox.calls());
    assert!(sandbox.is_clean());
}

#[test]
fn without_messages_the_errors_come_from_the_output() {
    for (version, variables) in [
        ("1.11.9", &[][..]),
        ("1.12.0", &[("TF_CLI_ARGS_plan", "-json-into=/dev/null")]),
        ("1.12.0", &[("TF_CLI_ARGS", "-json")]),
    ] {
        let sandbox = failing_tofu(version);
        let ended = plan(&sandbox, variables);
        assert_eq!(ended.code, 5, "{}", ended.stderr);
        let report = json(sandbox.read("result.json").as_bytes());
        let detail = "403 Forbidden: the very long sentence of\nthis service is not wrapped here";
        assert_eq!(report["errors"][0]["detail"], detail, "{report}");
        let calls = sandbox.calls();
        assert!(!calls.iter().any(|call| call.contains("-json-into")), "{calls:?}");
    }
}
