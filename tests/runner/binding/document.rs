//! A plan is bound to what it was made of: each difference is refused by its name, before the tool applies.

use std::time::Duration;

use serde_json::{Value, json};
use support::{Ended, Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json as parsed};

/// A terraform with a remote state of this version.
const STATE: &str = r#"
if [ $STEP = init ]; then
  mkdir -p .terraform
  echo '{"backend": {"type": "s3", "config": {"bucket": "b", "key": "k"}}}' > .terraform/terraform.tfstate
fi
if [ $STEP = state ]; then echo '{"version": 4, "serial": 7, "lineage": "l", "resources": []}'; exit; fi
"#;

struct Planned {
    datastore: TestDatastore,
    sandbox: Sandbox,
}

/// A plan `p` of the layer `x`, made with these arguments.
async fn planned(args: &[&str]) -> Planned {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(STATE);
    let plan = [&["plan", "--name", "x", "--run", "p"], args].concat();
    let ended = sandbox.run_with(&datastore.url, &plan);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    std::fs::remove_file(sandbox.path("calls")).unwrap();
    Planned { datastore, sandbox }
}

impl Planned {
    fn stored(&self) -> StoredRun {
        StoredRun::new(&self.datastore, "default", "x", "p")
    }

    async fn document(&self) -> Value {
        parsed(&self.stored().artifact("binding.json", 0).await)
    }

    async fn replace(&self, document: &Value) {
        self.stored().put_artifact("binding.json", 0, document.to_string().into_bytes()).await;
    }

    fn apply(&self, args: &[&str]) -> Ended {
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

    fn calls(&self) -> String {
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
        ("place", json!({"workspace": "dev"}), "made for another place"),
        ("version", json!(2), "cannot be read: it has version 2"),
        ("tool", json!({"name": "tofu"}), "cannot be read: missing field"),
    ] {
        planned.refuses(&original, field, value, named).await;
        assert_eq!(planned.calls(), "", "{field}");
    }

    let mut later = original.clone();
    later["binding"]["tool"] = json!("of another form");
    planned.refuses(&later, "version", json!(2), "cannot be read: it has version 2").await;

    let mut changed = original.clone();
    changed["binding"]["tool"]["sha256"] = json!(digest);
    planned.replace(&changed).await;
    let refused = planned.apply(&[]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("bound to another binary: terraform 1.9.8"),
        "{}",
        refused.stderr
    );
    assert_eq!(planned.calls(), "");
    // For another platform it is another binary.
    changed["binding"]["tool"]["platform"] = json!("linux_other");
    planned.replace(&changed).await;
    let applied = planned.apply(&[]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_backend_or_state_is_refused_after_init() {
    let planned = planned(&[]).await;
    let original = planned.document().await;
    for (field, value, named) in [
        ("backend", json!({"type": "s3", "bucket": "b", "key": "other"}), "another backend"),
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

#[tokio::test(flavor = "multi_thread")]
async fn verify_key_accepts_only_plans_that_are_signed_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let secret = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text.repeat(8)).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let (key, other) = (secret("key", "abcdef"), secret("other", "ABCDEF"));
    let unsigned = planned(&[]).await;
    let refused = unsigned.apply(&["--verify-key", &key]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("is not signed"), "{}", refused.stderr);
    let args = ["apply", "--name", "x", "--no-plan", "--verify-key", &key];
    let refused = unsigned.sandbox.run_with(&unsigned.datastore.url, &args);
    assert_eq!(refused.code, 9, "{}", refused.stderr);

    let signed = planned(&["--signing-key", &key]).await;
    let refused = signed.apply(&["--verify-key", &other]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("it does not match"), "{}", refused.stderr);
    let original = signed.document().await;
    let mut changed = original.clone();
    changed["binding"]["revision"] = json!("0123");
    signed.replace(&changed).await;
    let refused = signed.apply(&["--verify-key", &key]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert_eq!(signed.calls(), "");
    signed.replace(&original).await;
    let applied = signed.apply(&["--verify-key", &key]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);

    let short = secret("short", "abc");
    let refused = signed.apply(&["--verify-key", &short]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("at least 32 letters"), "{}", refused.stderr);
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
