//! The examples of `docs/policy.md`.

use std::path::Path;

use support::Sandbox;

use super::test_command::fixture;
use crate::{RUNNER, json};

/// The code blocks of the page in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("```{language}\n");
    let blocks = page.split(&start).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn examples_are_valid_policies() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policy.md");
    let page = std::fs::read_to_string(page).unwrap();
    let sandbox = Sandbox::new(RUNNER);
    let plan = fixture("plans/update_replace_delete.json").display().to_string();
    let mut count = 0;
    for (language, extension) in [("yaml", "yaml"), ("rego", "rego")] {
        for text in blocks(&page, language) {
            let (name, version) =
                (format!("example.{extension}"), if text.contains("deny[") { "v0" } else { "v1" });
            sandbox.write(&name, text);
            let args = [
                "policy",
                "test",
                &name,
                "--rego-version",
                version,
                "--plan-json",
                &plan,
                "--json",
            ];
            let ended = sandbox.run(&args);
            assert_eq!(ended.code, 0, "{text}: {}", ended.stderr);
            assert_ne!(json(ended.stdout.as_bytes())[0]["verdict"], "unreadable", "{text}");
            count += 1;
        }
    }
    assert!(count >= 4, "{count}");
}

#[test]
fn every_key_of_a_file_of_rules_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policy.md");
    let page = std::fs::read_to_string(page).unwrap();
    let sandbox = Sandbox::new(RUNNER);
    let plan = fixture("plans/create.json").display().to_string();
    for (text, keys) in [
        ("none: 1\n", &["rules", "protected", "max_changes", "drift_only", "watched_outputs"][..]),
        (
            "rules: [{id: x, verdict: deny, none: 1}]\n",
            &["id", "verdict", "actions", "reasons", "types", "addresses", "deposed", "message"],
        ),
    ] {
        sandbox.write("rules.yaml", text);
        let ended = sandbox.run(&["policy", "test", "rules.yaml", "--plan-json", &plan]);
        assert_eq!(ended.code, 8);
        for key in keys {
            assert!(page.contains(&format!("`{key}`")), "{key}");
            assert!(
                ended.stderr.contains(&format!("`{key}`")) || ended.stderr.contains(key),
                "{}",
                ended.stderr
            );
        }
    }
}
