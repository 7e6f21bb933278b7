use super::*;

fn input(name: &str, value: &str) -> (std::ffi::OsString, secrecy::SecretSlice<u8>) {
    (name.into(), value.as_bytes().to_vec().into())
}

/// A directory with these files.
fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs_err::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn texts(secrets: &[Secret]) -> Vec<String> {
    let text = |secret: &Secret| String::from_utf8_lossy(secret.value.expose_secret()).into_owned();
    let mut texts = secrets.iter().map(text).collect::<Vec<_>>();
    texts.sort();
    texts.dedup();
    texts
}

#[test]
fn variables_are_sensitive_where_any_file_of_the_module_says_so() {
    let dir = directory(&[
        (
            "main.tf",
            "variable \"a\" {\n  sensitive = true\n}\nvariable b {\n  sensitive = \"true\"\n}\n\
             variable \"no\" {\n  sensitive = false\n}\nvariable \"none\" {}\n",
        ),
        ("c.tofu", "variable \"c\" {\n  type = string\n  sensitive = (true)\n}"),
        (
            "d.tf.json",
            r#"{"variable": {"d": {"sensitive": true}, "dno": {"sensitive": false}, "e": [{"sensitive": "true"}]}}"#,
        ),
        ("f.tofu.json", r#"[{"variable": [{"f": {"sensitive": true}}]}]"#),
        // Not valid, perhaps only for this parser.
        (
            "g.tf",
            "variable \"g\" {\n default = {{\n sensitive   = true\n}\nvariable \"gno\" {\n sensitive = false }",
        ),
        (".hidden.tf", "variable \"hidden\" {\n  sensitive = true\n}"),
        ("x.txt", "variable \"text\" {\n  sensitive = true\n}"),
    ]);
    let names = declared::names(dir.path()).into_iter().collect::<String>();
    assert_eq!(names, "abcdefg");
    assert!(declared::names(&dir.path().join("missing")).is_empty());
}

#[test]
fn values_of_sensitive_variables_are_found_in_every_source() {
    let dir = directory(&[
        (
            "main.tf",
            "variable \"s\" {\n  sensitive = true\n}\nvariable \"o\" {\n  sensitive = true\n}\nvariable \"p\" {}\n",
        ),
        (
            "terraform.tfvars",
            "s = \"of-tfvars\"\np = \"public-value\"\no = {\n  a = [\"in-a-list\", 12345678]\n  b = <<-EOT\n    first line\n    second line\n  EOT\n}\n",
        ),
        ("terraform.tfvars.json", r#"{"s": "of-tfvars-json", "p": "public-value"}"#),
        ("x.auto.tfvars", "s = \"of-auto-$${x}\\\"\"\n"),
        ("y.auto.tfvars.json", r#"{"o": {"z": {"deep": ["of-auto-json"]}}}"#),
        ("unnamed.tfvars", "s = \"not-used-value\"\n"),
        ("named.tfvars", "s = \"of-var-file\"\n"),
        ("args.tfvars", "s = \"of-args-file\"\n"),
        ("env.tfvars", "s = \"of-env-file\"\n"),
        ("broken.auto.tfvars", "s = = \"unreadable\"\n"),
    ]);
    let options = PlanOptions {
        variables: vec![
            Variable::Value("s=of-var=x".to_owned()),
            Variable::Value("p=public-value".to_owned()),
            Variable::File(dir.path().join("named.tfvars")),
        ],
        args: ["-var", "s=of-args-var", "--var-file=args.tfvars", "-var=o=[\"of-args-list\"]"]
            .map(str::to_owned)
            .to_vec(),
        ..PlanOptions::default()
    };
    let inputs = Inputs::from([
        input("TF_VAR_s", "of-environment"),
        input("TF_VAR_p", "public-value"),
        input("TF_VAR_o", "{ k = \"in-an-object\", \"l\": \"terraform\" }"),
        input("TF_CLI_ARGS_plan", "-var-file env.tfvars -var 's=of env args'"),
    ]);
    let sources = Sources { dir: dir.path(), options: &options, inputs: &inputs };
    assert_eq!(
        texts(&of_variables(&sources)),
        [
            "12345678",
            "[\"of-args-list\"]",
            "first line\nsecond line\n",
            "in-a-list",
            "in-an-object",
            "of env args",
            "of-args-file",
            "of-args-list",
            "of-args-var",
            "of-auto-${x}\"",
            "of-auto-json",
            "of-env-file",
            "of-environment",
            "of-tfvars",
            "of-tfvars-json",
            "of-var-file",
            "of-var=x",
            "{ k = \"in-an-object\", \"l\": \"terraform\" }",
        ]
    );
}

#[test]
fn marked_values_of_a_plan_are_found() {
    let plan = r#"{
      "format_version": "1.2",
      "variables": {"v": {"value": {"k": "of-variable"}}, "p": {"value": "public-value"}},
      "planned_values": {
        "outputs": {
          "value": {"sensitive": true, "value": "of-output"},
          "open": {"sensitive": false, "value": "public-value"}
        },
        "root_module": {
          "resources": [{"values": {"a": "of-values", "b": "public-value"}, "sensitive_values": {"a": true}}],
          "child_modules": [{
            "resources": [{"values": {"l": ["public-value", {"x": "of-child"}]}, "sensitive_values": {"l": [false, {"x": true}]}}]
          }]
        }
      },
      "resource_changes": [{"change": {
        "before": {"a": "of-before", "b": "public-value"}, "before_sensitive": {"a": true},
        "after": {"a": {"password": "of-after", "json": "{\"token\": \"of-json-text\", \"x\": 1}"}}, "after_sensitive": {"a": true}
      }}],
      "resource_drift": [{"change": {"before": "of-drift", "before_sensitive": true, "after": null, "after_sensitive": false}}],
      "output_changes": {"before": {"before": null, "after": "of-output-change", "before_sensitive": false, "after_sensitive": true}},
      "prior_state": {"values": {
        "outputs": {"o": {"value": ["of-state-output", 7, true, null], "sensitive": true}},
        "root_module": {"resources": [{"sensitive_values": {"r": true}, "values": {"r": 123456789}}]}
      }},
      "configuration": {
        "provider_config": {"x": {"expressions": {"sensitive": {"constant_value": true}}}},
        "root_module": {"variables": {"v": {"sensitive": true}, "p": {}}}
      }
    }"#;
    assert_eq!(
        texts(&of_plan(plan.as_bytes()).unwrap()),
        [
            "123456789",
            "7",
            "of-after",
            "of-before",
            "of-child",
            "of-drift",
            "of-json-text",
            "of-output",
            "of-output-change",
            "of-state-output",
            "of-values",
            "of-variable",
            "{\"token\": \"of-json-text\", \"x\": 1}",
        ]
    );
    of_plan(&b"{"[..]).unwrap_err();
}
