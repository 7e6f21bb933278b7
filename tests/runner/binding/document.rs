//! A plan is bound to what it was made of: each difference is refused by its name, before the tool applies.

use std::time::Duration;

use serde_json::{Value, json};
use support::{Ended, Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};

use crate::source::checkout::git;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json as parsed};

/// A terraform with a remote state of this version. A file `lineage` has another lineage.
const STATE: &str = r#"
if [ $STEP = init ]; then
  mkdir -p .terraform
  echo '{"backend": {"type": "s3", "config": {"bucket": "b", "key": "k"}}}' > .terraform/terraform.tfstate
fi
if [ $STEP = state ]; then
  LINEAGE=$(cat lineage 2>/dev/null || echo l)
  echo '{"version": 4, "serial": 7, "lineage": "'$LINEAGE'", "resources": []}'
  exit
fi
"#;

pub(crate) struct Planned {
    pub(crate) datastore: TestDatastore,
    pub(crate) sandbox: Sandbox,
}

/// A plan `p` of the layer `x`, made with these arguments in a clone of `example.com/infra`.
pub(crate) async fn planned(args: &[&str]) -> Planned {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(STATE);
    let work = sandbox.work();
    git(&work, &["init", "--quiet"]);
    git(&work, &["remote", "add", "origin", "https://example.com/infra.git"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "--quiet", "-m", "x"]);
    let plan = [&["plan", "--name", "x", "--run", "p"], args].concat();
    let ended = sandbox.run_with(&datastore.url, &plan);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    std::fs::remove_file(sandbox.path("calls")).unwrap();
    Planned { datastore, sandbox }
}

impl Planned {
    pub(crate) fn stored(&self) -> StoredRun {
        StoredRun::new(&self.datastore, "default", "x", "p")
    }

    pub(crate) async fn document(&self) -> Value {
        parsed(&self.stored().artifact("binding.json", 0).await)
    }

    pub(crate) async fn replace(&self, document: &Value) {
        self.stored().put_artifact("binding.json", 0, document.to_string().into_bytes()).await;
    }

    pub(crate) fn apply(&self, args: &[&str]) -> Ended {
        let args = [&["apply", "--name", "x", "--plan", "p"], args].concat();
        self.sandbox.run_with(&self.datastore.url, &args)
    }

    /// Applies with another value of a field, which must be refused with this message.
    async fn refuses(&self, original: &Value, field: &str, value: Value, message: &str) {
        let mut changed = original.clone();
        changed["binding"][field] = value;
        self.replace(&changed).await;
        let refused = self.apply(&[]);
        assert_eq!(refused.code, 9, "{field}: {}", refused.stderr);
        assert!(refused.stderr.contains(message), "{field}: {}", refused.stderr);
    }

    /// The apply is refused with this text, and the tool has not run.
    #[track_caller]
    pub(crate) fn refused(&self, args: &[&str], expected: &str) {
        let refused = self.apply(args);
        assert_eq!(refused.code, 9, "{expected}: {}", refused.stderr);
        assert!(refused.stderr.contains(expected), "{expected}: {}", refused.stderr);
        assert_eq!(self.calls(), "", "{expected}");
    }

    pub(crate) fn calls(&self) -> String {
        std::fs::read_to_string(self.sandbox.path("calls")).unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_difference_from_the_binding_is_refused_by_name_before_the_tool_runs() {
    let planned = planned(&[]).await;
    let original = planned.document().await;
    let digest = "0".repeat(64);
    for (field, value, named) in [
        ("plan", json!(digest), "its SHA-256"),
        ("layer", json!("y"), "bound to another layer: default/y; here it is default/x"),
        ("namespace", json!("n"), "bound to another layer: n/x; here it is default/x"),
        ("run", json!("q"), "bound to another run: q; here it is p"),
        ("attempt", json!(1), "bound to another attempt: 1; here it is 0"),
        (
            "place",
            json!({"workspace": "dev"}),
            "another place: repository unknown, path unknown, workspace dev",
        ),
        (
            "place",
            json!({"repository": "example.com/other"}),
            "here it is repository example.com/infra",
        ),
        ("place", json!({"path": "live"}), "another place: repository unknown, path live"),
        ("version", json!(2), "cannot be read: it has version 2"),
        ("tool", json!({"name": "tofu"}), "cannot be read: missing field"),
    ] {
        planned.refuses(&original, field, value, named).await;
        assert_eq!(planned.calls(), "", "{field}");
    }
    planned.replace(&original).await;
    for (args, expected) in [
        (&["--tool", "tofu"][..], "made by terraform 1.9.8, but --tool requests tofu"),
        (
            &["--tool-version", "1.9.9"],
            "made by terraform 1.9.8, but --tool-version requests 1.9.9",
        ),
        (&["--terragrunt=1.0.0"], "made by the tool alone, but --terragrunt requests terragrunt"),
    ] {
        planned.refused(args, expected);
    }

    let mut later = original.clone();
    later["binding"]["tool"] = json!("of another form");
    planned.refuses(&later, "version", json!(2), "cannot be read: it has version 2").await;

    let mut changed = original.clone();
    changed["binding"]["tool"]["sha256"] = json!(digest);
    planned.replace(&changed).await;
    planned.refused(&[], "bound to another binary: terraform 1.9.8");
    // For another platform it is another binary.
    changed["binding"]["tool"]["platform"] = json!("linux_other");
    planned.replace(&changed).await;
    let applied = planned.apply(&[]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_of_the_plan_never_reach_the_tool() {
    let planned = planned(&[]).await;
    planned.stored().put_plan_bin(0, b"another plan").await;
    planned.refused(&[], "the plan p/0 is not the one that was made");
}

/// A directory of installed tools, all of which are the fake one.
fn installed(sandbox: &Sandbox) -> String {
    for (tool, version) in [("Terragrunt", "1.0.0"), ("Terraform", "1.9.8")] {
        let dir = sandbox.path("tools").join(tool).join(version);
        std::fs::create_dir_all(&dir).unwrap();
        let to = dir.join(tool.to_lowercase());
        std::fs::copy(sandbox.path("bin/terraform"), to).unwrap();
    }
    sandbox.path("tools").display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_binary_or_lock_file_under_terragrunt_is_refused_by_name() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let tools = installed(&sandbox);
    let run = |action: &[&str]| {
        let tools = ["--tool", "terraform", "--tool-version", "1.9.8", "--bin-dir", &tools];
        let args = [action, &["--name", "x", "--terragrunt=1.0.0"], &tools].concat();
        sandbox.run_with(&datastore.url, &args)
    };
    let apply = ["apply", "--plan", "p"];
    sandbox.write(LOCK_FILE, &lock_file("h1:a"));
    let planned = run(&["plan", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);

    sandbox.write(LOCK_FILE, &lock_file("h1:b"));
    let refused = run(&apply);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("bound to another provider: "), "{}", refused.stderr);
    sandbox.write(LOCK_FILE, &lock_file("h1:a"));

    let stored = StoredRun::new(&datastore, "default", "x", "p");
    let document = stored.artifact("binding.json", 0).await;
    let mut changed = parsed(&document);
    changed["binding"]["terragrunt"]["sha256"] = json!("0".repeat(64));
    stored.put_artifact("binding.json", 0, changed.to_string().into_bytes()).await;
    let refused = run(&apply);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("another binary: terragrunt 1.0.0"), "{}", refused.stderr);
    stored.put_artifact("binding.json", 0, document).await;
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));
    let applied = run(&apply);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

const LOCK_FILE: &str = ".terraform.lock.hcl";

fn lock_file(digest: &str) -> String {
    format!(
        "provider \"registry.terraform.io/hashicorp/null\" {{\n  version = \"3.2.0\"\n  \
         hashes = [\"{digest}\", \"zh:z\"]\n}}\n"
    )
}

/// Without a lock file in the code, init selects the provider again.
#[tokio::test(flavor = "multi_thread")]
async fn another_package_of_a_provider_is_refused_on_the_same_platform() {
    let planned = planned(&[]).await;
    let mut document = planned.document().await;
    let null = "registry.terraform.io/hashicorp/null";
    document["binding"]["provider_digests"] = json!({null: ["h1:a", "h1:other-platform"]});
    planned.replace(&document).await;
    planned.sandbox.write(LOCK_FILE, &lock_file("h1:b"));
    let refused = planned.apply(&[]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    let expected = format!(
        "bound to another provider: {null} with h1:a, h1:other-platform; here it is {null} with h1:b"
    );
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    assert!(!planned.calls().contains("apply"), "{}", planned.calls());

    document["binding"]["tool"]["platform"] = json!("linux_other");
    planned.replace(&document).await;
    let applied = planned.apply(&[]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// No lock file has it.
#[tokio::test(flavor = "multi_thread")]
async fn another_binary_of_a_development_override_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let provider = sandbox.path("override/terraform-provider-null");
    std::fs::create_dir(provider.parent().unwrap()).unwrap();
    std::fs::write(&provider, "one").unwrap();
    let settings = format!(
        "provider_installation {{\n  dev_overrides {{\n    \"hashicorp/null\" = \"{}\"\n  }}\n  direct {{}}\n}}\n",
        sandbox.path("override").display()
    );
    std::fs::write(sandbox.path("terraformrc"), &settings).unwrap();
    let run = |args: &[&str]| {
        sandbox.run_with(&datastore.url, &[args, &["--name", "x", "--plan", "p"][..]].concat())
    };
    let plan = ["plan", "--name", "x", "--run", "p"];
    let planned = sandbox.run_with(&datastore.url, &plan);
    assert_eq!(planned.code, 0, "{}", planned.stderr);

    std::fs::write(&provider, "two").unwrap();
    let refused = run(&["apply"]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    let expected = "bound to another provider: registry.terraform.io/hashicorp/null with sha256:";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    // The package that init selects is another one, too.
    std::fs::write(sandbox.path("terraformrc"), "").unwrap();
    sandbox.write(LOCK_FILE, &lock_file("h1:a"));
    assert_eq!(run(&["apply"]).code, 9);
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));
    std::fs::write(sandbox.path("terraformrc"), &settings).unwrap();
    std::fs::write(&provider, "one").unwrap();
    let applied = run(&["apply"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_binary_of_a_development_override_is_a_warning_of_a_plan_and_refused_by_an_apply()
 {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let provider = sandbox.path("override/terraform-provider-null");
    std::fs::create_dir(provider.parent().unwrap()).unwrap();
    let settings = format!(
        "provider_installation {{\n  dev_overrides {{\n    \"hashicorp/null\" = \"{}\"\n  }}\n  direct {{}}\n}}\n",
        sandbox.path("override").display()
    );
    std::fs::write(sandbox.path("terraformrc"), &settings).unwrap();
    let run =
        |args: &[&str]| sandbox.run_with(&datastore.url, &[args, &["--name", "x"][..]].concat());
    // Root can read any file of a disk, but not this one.
    let unreadable = || std::os::unix::fs::symlink("/proc/self/mem", &provider).unwrap();
    unreadable();
    let planned = run(&["plan", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let expected = "an apply does not compare the provider registry.terraform.io/hashicorp/null: ";
    assert!(planned.stderr.contains(expected), "{}", planned.stderr);
    let applied = run(&["apply", "--plan", "p"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);

    std::fs::remove_file(&provider).unwrap();
    std::fs::write(&provider, "one").unwrap();
    assert_eq!(run(&["plan", "--run", "q"]).code, 0);
    std::fs::remove_file(&provider).unwrap();
    unreadable();
    let refused = run(&["apply", "--plan", "q"]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    let expected = "the provider registry.terraform.io/hashicorp/null cannot be compared with that of the plan q/0: ";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    assert!(refused.stderr.contains("override/terraform-provider-null"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_backend_or_state_is_refused_after_init() {
    let planned = planned(&[]).await;
    let original = planned.document().await;
    for (field, value, named) in [
        ("backend", json!({"type": "s3", "bucket": "b", "key": "other"}), "another backend"),
        ("backend", json!({"type": "gcs", "bucket": "b"}), "another backend"),
        (
            "state",
            json!({"lineage": "l", "serial": 6}),
            "another serial of the state: 6; here it is 7",
        ),
        (
            "state",
            json!({"lineage": "m", "serial": 7}),
            "another lineage of the state: m; here it is l",
        ),
    ] {
        planned.refuses(&original, field, value, named).await;
        assert!(!planned.calls().contains("apply"), "{field}");
    }
    planned.sandbox.write("lineage", "");
    let state = json!({"lineage": "m", "serial": 7});
    planned
        .refuses(&original, "state", state, "lineage of the state: m; here it is no state. next: ")
        .await;
    std::fs::remove_file(planned.sandbox.work().join("lineage")).unwrap();
    let mut same = original.clone();
    same["binding"]["state"] = json!({"lineage": "l", "serial": 7});
    planned.replace(&same).await;
    let applied = planned.apply(&[]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(planned.calls().contains("state pull"), "{}", planned.calls());
}

/// `run.json` may be replaced; the binding is created once.
#[tokio::test(flavor = "multi_thread")]
async fn the_binding_has_precedence_over_run_json_and_must_not_be_missing() {
    let planned = planned(&[]).await;
    let mut report = parsed(&planned.stored().artifact("run.json", 0).await);
    assert_eq!(report["bound"], true);
    report["tool"]["version"] = json!("0.1.2");
    report["place"]["workspace"] = json!("prod");
    let report = report.to_string().into_bytes();
    planned.stored().put_artifact("run.json", 0, report.clone()).await;
    assert_eq!(planned.apply(&[]).code, 0);

    // The same plan without its binding.
    let copy = StoredRun::new(&planned.datastore, "default", "x", "q");
    copy.put_plan_bin(0, b"a plan").await;
    copy.put_artifact("run.json", 0, report).await;
    let args = ["apply", "--name", "x", "--plan", "q"];
    let refused = planned.sandbox.run_with(&planned.datastore.url, &args);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("has no binding.json"), "{}", refused.stderr);
}

/// A runner that is killed while it stores a plan leaves none that seems to be finished.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_whose_binding_is_not_stored_yet_is_not_finished() {
    let planned = planned(&[]).await;
    let silent = Fault { method: "PUT", part: "name=binding.json", status: 0, times: usize::MAX };
    let datastore = FaultyDatastore::before(&planned.datastore.url, vec![silent]).await;
    let plan = ["plan", "--name", "x", "--run", "q"];
    let runner = planned.sandbox.start(Some(&datastore.url), &plan);
    let has_put = |name: &str| {
        datastore.seen().iter().any(|line| line.starts_with("PUT") && line.contains(name))
    };
    eventually("it stores the binding", || has_put("binding.json") && has_put("/api/logs"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    runner.signal("KILL");
    runner.wait();
    assert!(!has_put("run.json"), "{:?}", datastore.seen());

    let newest = planned.sandbox.run_with(&planned.datastore.url, &["apply", "--name", "x"]);
    assert_eq!(newest.code, 0, "{}", newest.stderr);
    assert!(newest.stderr.contains("skipping q/0: its run did not finish"), "{}", newest.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_binding_of_the_chosen_plan_is_read() {
    let planned = planned(&[]).await;
    let elsewhere = StoredRun::new(&planned.datastore, "default", "x", "q");
    let mut report = parsed(&planned.stored().artifact("run.json", 0).await);
    report["place"]["workspace"] = json!("prod");
    elsewhere.put_plan_bin(0, b"a plan").await;
    elsewhere.put_artifact("run.json", 0, report.to_string().into_bytes()).await;
    elsewhere.put_artifact("binding.json", 0, vec![b' '; 17 << 20]).await;

    let newest = planned.sandbox.run_with(&planned.datastore.url, &["apply", "--name", "x"]);

    assert_eq!(newest.code, 0, "{}", newest.stderr);
    assert!(
        newest.stderr.contains("skipping q/0: it was made for another place"),
        "{}",
        newest.stderr
    );
}

/// Throwaway pairs, made by `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout`.
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIDdlmflEit/EP1V1fOAopBHnUd6cIuwhUthY8/pgZvck\n-----END PRIVATE KEY-----\n";
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAl6XZzbmwojRXxl1frowr+bqhKvtpY9SkSBKVXWWrHBc=\n-----END PUBLIC KEY-----\n";
const OTHER_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

#[tokio::test(flavor = "multi_thread")]
async fn verify_key_accepts_only_plans_that_are_signed_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let (secret, other) = (file("secret", &"abcdef".repeat(8)), file("other", &"ABCDEF".repeat(8)));
    let [private, public, other_public] =
        [("private", PRIVATE), ("public", PUBLIC), ("other-public", OTHER_PUBLIC)]
            .map(|(name, text)| file(name, text));
    let unsigned = planned(&[]).await;
    for key in [&secret, &public] {
        unsigned.refused(&["--verify-key", key], "is not signed");
        let args = ["apply", "--name", "x", "--no-plan", "--verify-key", key];
        let refused = unsigned.sandbox.run_with(&unsigned.datastore.url, &args);
        assert_eq!(refused.code, 9, "{}", refused.stderr);
    }
    assert_eq!(unsigned.calls(), "");

    for (signing, verifying, other, of_other_kind) in
        [(&secret, &secret, &other, &public), (&private, &public, &other_public, &secret)]
    {
        let signed = planned(&["--signing-key", signing]).await;
        signed.refused(&["--verify-key", other], "it does not match");
        signed.refused(&["--verify-key", of_other_kind], "and the key is for");
        let original = signed.document().await;
        let verify = ["--verify-key", verifying];
        for (part, field, value, expected) in [
            ("binding", "revision", json!("0123"), "it does not match"),
            ("signature", "value", json!("AAAA"), "it does not match"),
            ("signature", "value", json!("-"), "it is not base64"),
            ("signature", "algorithm", json!("none"), "it is none, and the key is for"),
        ] {
            let mut changed = original.clone();
            changed[part][field] = value;
            signed.replace(&changed).await;
            signed.refused(&verify, expected);
        }
        let mut changed = original.clone();
        changed["signature"] = json!(null);
        signed.replace(&changed).await;
        signed.refused(&verify, "is not signed");
        signed.replace(&original).await;
        let applied = signed.apply(&verify);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
    }

    let short = file("short", "abc");
    let refused = unsigned.apply(&["--verify-key", &short]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("at least 32 printable"), "{}", refused.stderr);
}

#[test]
fn what_only_a_datastore_can_do_is_refused_without_one() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    sandbox.write("key", &"k".repeat(32));
    for args in [
        &["plan", "--signing-key", "key"][..],
        &["plan", "--snapshot=always"],
        &["apply", "--no-plan", "--snapshot=always"],
        &["plan", "--plan-file", "p", "--snapshot=always"],
    ] {
        let refused = sandbox.run(args);
        assert_eq!(refused.code, 64, "{args:?}: {}", refused.stderr);
    }
    // A plan in a file has no snapshot.
    let planned = sandbox.run(&["plan", "--plan-file", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    std::fs::remove_file(sandbox.path("calls")).unwrap();
    let datastore = "http://127.0.0.1:9".parse().unwrap();
    let refused = sandbox.run_with(&datastore, &["apply", "--plan-file", "p", "--snapshot=always"]);
    assert_eq!(refused.code, 64, "{}", refused.stderr);
    assert!(refused.stderr.contains("leave out --plan-file"), "{}", refused.stderr);
    assert!(sandbox.calls().is_empty());
}

/// The values of variables may be secret.
#[tokio::test(flavor = "multi_thread")]
async fn the_binding_has_the_arguments_without_values_of_variables() {
    let args = [
        "--var",
        "password=SECRET",
        "--target",
        "a.b",
        "--",
        "-var",
        "other=SECRET",
        "-refresh=false",
    ];
    let planned = planned(&args).await;
    let arguments = &planned.document().await["binding"]["arguments"];
    let expected = ["-var=password=***", "-target=a.b", "-var", "other=***", "-refresh=false"];
    assert_eq!(*arguments, json!(expected));
}
