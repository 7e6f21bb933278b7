//! `/api/changes`: the changes of a plan, without sensitive values.

#![expect(clippy::disallowed_types, reason = "terraform makes the plans")]

use std::path::Path;
use std::process::{Command, Stdio};

use datastore::config::Config;
use datastore::store::Storage;
use datastore::store::encryption::AtRest;
use datastore::{Auth, Callers, Policy, Verb};
use reqwest::Method;
use serde_json::{Value, json};
use support::TestDatastore;
use tempfile::TempDir;

use crate::access::authentication::{status, token};
use crate::http::{RUN, files, get, refusals, request, send, stored};
use crate::program::process::program;
use crate::storage::modified_objects::rot_file;

/// A plan with one change.
fn plan(before: &str, after: &str) -> String {
    let change = json!({
        "actions": ["update"], "before": {"a": before, "p": "top-secret"},
        "after": {"a": after, "p": "new-secret"}, "after_unknown": {},
        "before_sensitive": {"p": true}, "after_sensitive": {"p": true},
    });
    let resource =
        json!({"address": "x.y", "type": "x", "name": "y", "mode": "managed", "change": change});
    json!({"format_version": "1.2", "resource_changes": [resource]}).to_string()
}

fn after(listed: &Value) -> &Value {
    &listed["resources"][0]["attributes"][0]["after"]
}

/// The paths of stored lists.
fn lists(datastore: &TestDatastore) -> Vec<String> {
    datastore
        .cloud()
        .keys()
        .into_iter()
        .filter(|key| key.starts_with(".plancha/changes/"))
        .collect()
}

#[tokio::test]
async fn a_list_is_made_once_is_no_file_of_the_attempt_and_follows_its_plan() {
    for datastore in TestDatastore::each().await {
        let plans = format!("plans?{RUN}&attempt=0");
        stored(&datastore, &plans, plan("1", "2")).await;
        let attempts = get(&datastore, &format!("attempts?{RUN}")).await.json();
        let url = format!("changes?{RUN}");
        let first = get(&datastore, &url).await;
        assert_eq!((first.status, first.header("content-type")), (200, Some("application/json")));
        assert_eq!(first.header("cache-control"), Some("no-store"));
        let text = first.text();
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(
            (after(&first.json()), &first.json()["counts"]["update"]),
            (&json!("2"), &json!(1))
        );
        let second = get(&datastore, &format!("{url}&attempt=0")).await;
        assert_eq!((second.status, second.text()), (200, text));
        assert_eq!(second.header("content-type"), Some("application/json"));
        let head = send(request(&datastore, Method::HEAD, &url)).await;
        assert_eq!((head.status, head.header("etag")), (200, second.header("etag")));
        assert_eq!(get(&datastore, &format!("attempts?{RUN}")).await.json(), attempts);

        stored(&datastore, &plans, plan("1", "3")).await;
        assert_eq!(after(&get(&datastore, &url).await.json()), "3");
        stored(&datastore, &format!("plans?{RUN}&attempt=1&format=bin"), "bin").await;
        assert_eq!(get(&datastore, &url).await.status, 404, "the latest attempt has no plan.json");
        assert_eq!(after(&get(&datastore, &format!("{url}&attempt=0")).await.json()), "3");
    }
}

#[tokio::test]
async fn a_list_that_is_stored_is_one_read_and_requests_at_once_make_it_once() {
    for datastore in TestDatastore::doubles().await {
        stored(&datastore, &format!("plans?{RUN}&attempt=0"), plan("1", "2")).await;
        let url = format!("changes?{RUN}&attempt=0");
        let before = datastore.cloud().requests().len();
        let answers = futures::future::join_all((0..10).map(|_| get(&datastore, &url))).await;
        assert!(answers.iter().all(|answer| after(&answer.json()) == "2"));
        let reads = |since: usize, what: &str| {
            let requests = datastore.cloud().requests();
            requests[since..].iter().filter(|request| request.contains(what)).count()
        };
        let puts = datastore.cloud().requests()[before..]
            .iter()
            .filter(|request| request.starts_with("PUT") && request.contains(".plancha/changes/"))
            .count();
        assert_eq!((puts, lists(&datastore).len()), (1, 1));
        let before = datastore.cloud().requests().len();
        assert_eq!(after(&get(&datastore, &url).await.json()), "2");
        assert_eq!((reads(before, "plan.json"), reads(before, ".plancha/changes/")), (1, 1));
        assert!(
            datastore.cloud().requests()[before..]
                .iter()
                .any(|request| request.starts_with("HEAD"))
        );

        // Another program replaces the plan.
        datastore.cloud().put("layers/team-a/network/plan-1/0/plan.json", plan("1", "4"));
        assert_eq!(after(&get(&datastore, &url).await.json()), "4");
        assert_eq!(lists(&datastore).len(), 1, "the list of the plan before is gone");
    }
}

#[tokio::test]
async fn a_damaged_list_is_made_again() {
    for attribute in ["2".to_owned(), "2".repeat(4000)] {
        let datastore = TestDatastore::temporary().await;
        let root = datastore.root();
        let whole = serde_json::from_str::<Value>(&plan("1", &attribute)).unwrap();
        let resources = vec![whole["resource_changes"][0].clone(); 100];
        let whole = json!({"format_version": "1.2", "resource_changes": resources}).to_string();
        stored(&datastore, &format!("plans?{RUN}&attempt=0"), whole).await;
        let url = format!("changes?{RUN}");
        let first = get(&datastore, &url).await.text();
        let list =
            format!(".plancha/changes/{}", files(&root.join(".plancha/changes"))[0].display());
        let damage = || rot_file(&root.join(&list), first.len() - 5, b'X');
        damage();
        // A long one is broken off, and made again afterwards.
        let read = async || {
            let answer = request(&datastore, Method::GET, &url).send().await.unwrap();
            assert_eq!(answer.status(), 200);
            answer.text().await.ok()
        };
        let mut tries = 0;
        while read().await.as_ref() != Some(&first) {
            tries += 1;
            assert!(attribute.len() > 1 && tries < 1000, "{tries}");
            tokio::task::yield_now().await;
        }
        assert_eq!(std::fs::read_to_string(root.join(&list)).unwrap(), first);
        damage();
        let storage = format!("file://{}", root.display());
        let words = ["verify", "--accept", &list, "--storage", &storage];
        assert_eq!(program(&words).output().unwrap().status.code(), Some(64));
    }
}

#[tokio::test]
async fn what_is_no_plan_is_refused_without_a_quotation_of_it() {
    let datastore = TestDatastore::memory().await;
    let put = async |run: &str, body: &str| {
        stored(&datastore, &format!("plans?namespace=a&layer=b&run={run}&attempt=0"), body).await;
        let url = format!("changes?namespace=a&layer=b&run={run}");
        let first = get(&datastore, &url).await;
        assert_eq!(get(&datastore, &url).await.refusal(), first.refusal(), "nothing was stored");
        first.refusal()
    };
    let whole = plan("1", "2");
    let deep = format!(r#"{{"format_version":"1.2","x":{}}}"#, "[".repeat(100_000));
    let refused = [
        put("text", "top-secret").await,
        put("cut", &whole[..whole.len() - 10]).await,
        put("other", r#"{"format_version":"1.2","resource_changes":["top-secret"]}"#).await,
        put("twice", &whole.replacen("\"p\":true", "\"p\":true,\"p\":false", 1)).await,
        put("newer", &whole.replace("1.2", "9.0")).await,
        put("deep", &deep).await,
        put("empty", "").await,
    ];
    assert!(!refused.iter().any(|text| text.contains("secret")), "{refused:?}");
    insta::assert_snapshot!(refused.join("\n"), @r#"
    422 application/problem+json {"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"the changes of this `plan.json` cannot be listed: it is not JSON: at byte 2 is something else; `/api/plans` has it as it is stored"}
    422 application/problem+json {"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"the changes of this `plan.json` cannot be listed: it is not whole: the JSON ends too early, after 273 bytes; `/api/plans` has it as it is stored"}
    422 application/problem+json {"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"the changes of this `plan.json` cannot be listed: it is JSON, but not a plan: at byte 58 is another value than a plan has there, or a repeated key; `/api/plans` has it as it is stored"}
    422 application/problem+json {"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"the changes of this `plan.json` cannot be listed: it is JSON, but not a plan: at byte 262 is another value than a plan has there, or a repeated key; `/api/plans` has it as it is stored"}
    422 application/problem+json {"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"the changes of this `plan.json` cannot be listed: its format_version is `9.0`; versions from 0.1 to 1.x can be listed; `/api/plans` has it as it is stored"}
    422 application/problem+json {"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"the changes of this `plan.json` cannot be listed: its values are nested too deeply: more than 1000 levels at byte 1029; `/api/plans` has it as it is stored"}
    422 application/problem+json {"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"the changes of this `plan.json` cannot be listed: it is not whole: the JSON ends too early, after 0 bytes; `/api/plans` has it as it is stored"}
    "#);
    insta::assert_snapshot!(refusals(&["GET changes?namespace=a&layer=b&run=c", "GET changes?namespace=a&layer=b", "GET changes?namespace=a&layer=b&run=c&attempt=x"]).await, @r#"
    GET changes?namespace=a&layer=b&run=c
        404 application/problem+json {"type":"about:blank","title":"Not Found","status":404,"detail":"no such artifact"}
    GET changes?namespace=a&layer=b
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"missing query parameter `run`"}
    GET changes?namespace=a&layer=b&run=c&attempt=x
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"query parameter `attempt`: `x` is not an attempt (0, 1, 2 ...)"}
    "#);
}

#[tokio::test]
async fn a_plan_that_cannot_be_listed_is_not_read_again_until_it_is_replaced() {
    for datastore in TestDatastore::doubles().await {
        let plans = format!("plans?{RUN}&attempt=0");
        let url = format!("changes?{RUN}&attempt=0");
        let reads = || {
            let read = |request: &&String| {
                request.starts_with("GET") && request.contains("layers/team-a/network/plan-1/0/")
            };
            datastore.cloud().requests().iter().filter(read).count()
        };
        stored(&datastore, &plans, "{").await;
        let first = get(&datastore, &url).await;
        assert_eq!((first.status, reads()), (422, 1));
        assert_eq!((get(&datastore, &url).await.refusal(), reads()), (first.refusal(), 1));
        stored(&datastore, &plans, plan("1", "2")).await;
        assert_eq!(after(&get(&datastore, &url).await.json()), "2");
        assert_eq!(reads(), 2);
    }
}

#[tokio::test]
async fn changes_need_the_kind_of_the_plan_that_they_are_made_of() {
    let mut policy = Policy::default();
    let tokens =
        [("json", "json"), ("plan", "plan"), ("artifact", "artifact"), ("pretty", "pretty")];
    let tokens = tokens.map(|(id, kind)| {
        let (secret, rule) = token(id, &["team-a"], &[kind], &[Verb::Read, Verb::List]);
        policy.add(&rule).unwrap();
        secret
    });
    let (writer, rule) = token("writer", &["*"], &["plan"], &[Verb::Write]);
    policy.add(&rule).unwrap();
    let callers = Callers { tokens: true, policy, ..Callers::default() };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(callers))).await;
    let stored = request(&datastore, Method::PUT, &format!("plans?{RUN}&attempt=0"));
    let stored = send(stored.header("authorization", writer).body(plan("1", "2"))).await;
    assert_eq!(stored.status, 200);
    let url = format!("changes?{RUN}");
    for (token, expected) in tokens.iter().zip([200, 200, 403, 403]) {
        assert_eq!(status(&datastore, Method::GET, &url, token).await, expected);
        let elsewhere = url.replace("team-a", "team-b");
        assert_eq!(status(&datastore, Method::GET, &elsewhere, token).await, 403);
    }
    assert_eq!(status(&datastore, Method::GET, &url, "nobody").await, 401);
}

#[tokio::test]
async fn a_stored_list_is_encrypted_and_gc_deletes_it_with_its_plan() {
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("store");
    std::fs::create_dir(&root).unwrap();
    let at_rest = AtRest { key: Some("key".into()), encrypts: true };
    let config = Config { at_rest, ..Config::of(Storage::File(root.clone())) };
    let datastore = TestDatastore::of(config).await;
    for run in ["r1", "r2"] {
        stored(
            &datastore,
            &format!("plans?namespace=a&layer=b&run={run}&attempt=0"),
            plan("visible", "2"),
        )
        .await;
        let listed = get(&datastore, &format!("changes?namespace=a&layer=b&run={run}")).await;
        assert!(listed.text().contains("visible"));
    }
    let stored_lists = || {
        let lists = files(&root.join(".plancha/changes"));
        lists.into_iter().map(|path| root.join(".plancha/changes").join(path)).collect::<Vec<_>>()
    };
    for list in stored_lists() {
        let bytes = std::fs::read(list).unwrap();
        assert!(!bytes.windows(7).any(|part| part == b"visible"));
    }
    let gc = |flags: &[&str]| {
        let storage = format!("file://{}", root.display());
        let output = program(&["gc", "--storage", &storage, "--min-age", "0s"])
            .args(flags)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    gc(&["--keep-runs", "1", "--dry-run"]);
    assert_eq!(stored_lists().len(), 2);
    gc(&["--keep-runs", "1"]);
    assert_eq!(stored_lists().len(), 1);
    gc(&["--max-age", "json=0s"]);
    assert_eq!(stored_lists().len(), 0);
}

/// Runs terraform; what it printed.
fn terraform(module: &Path, arguments: &[&str]) -> String {
    let tool = if support::on_path("terraform").is_some() { "terraform" } else { "tofu" };
    let mut command = Command::new(tool);
    command.args(arguments).current_dir(module).stdin(Stdio::null());
    command.env("TF_CLI_CONFIG_FILE", module.join("rc")).env("TF_IN_AUTOMATION", "1");
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

/// What stays, and what only the first and only the second step have.
const MODULE: [&str; 3] = [
    r#"
variable "secret" {
  sensitive = true
}
variable "step" {}
resource "terraform_data" "nested" {
  input = {
    open = "value-${var.step}"
    list = [{ name = "a", password = var.secret }, { name = "b${var.step}", password = "open" }]
    set  = toset(["x", "y", "z${var.step}"])
    none = null
    big  = 123456789012345
    text = "héllo ✓ 日本 ${var.step}"
    map  = { (var.step == "1" ? "one" : "two") = true }
  }
}
resource "terraform_data" "whole" {
  input = sensitive({ a = "whole-secret-${var.step}" })
}
resource "terraform_data" "replaced" {
  triggers_replace = [var.step]
}
resource "terraform_data" "follows" {
  input = terraform_data.replaced.id
}
module "m" {
  source = "./m"
  secret = var.secret
}
output "open" { value = "out-${var.step}" }
output "secret" {
  value     = var.secret
  sensitive = true
}
check "first" {
  assert {
    condition     = var.step == "1"
    error_message = "the step is ${var.step}"
  }
}
"#,
    r#"
resource "terraform_data" "old" { input = "moved" }
resource "terraform_data" "forgotten" { input = "forgotten" }
resource "terraform_data" "gone" { input = "gone" }
"#,
    r#"
resource "terraform_data" "new" { input = "moved" }
moved {
  from = terraform_data.old
  to   = terraform_data.new
}
removed {
  from = terraform_data.forgotten
  lifecycle { destroy = false }
}
import {
  to = terraform_data.imported
  id = "some-id"
}
resource "terraform_data" "imported" { input = "i" }
"#,
];

/// The plan of the second step, in JSON.
fn real_plan() -> String {
    let directory = TempDir::new().unwrap();
    let module = directory.path();
    let write = |name: &str, text: &str| std::fs::write(module.join(name), text).unwrap();
    std::fs::create_dir(module.join("m")).unwrap();
    write("rc", "disable_checkpoint = true\n");
    write(
        "m/m.tf",
        "variable \"secret\" {}\nresource \"terraform_data\" \"x\" {\n  for_each = toset([\"k/1\"])\n  input    = [var.secret]\n}\n",
    );
    write("main.tf", MODULE[0]);
    write("step.tf", MODULE[1]);
    terraform(module, &["init", "-no-color"]);
    terraform(
        module,
        &["apply", "-no-color", "-auto-approve", "-var", "step=1", "-var", "secret=first-secret"],
    );
    write("step.tf", MODULE[2]);
    terraform(
        module,
        &["plan", "-no-color", "-out", "p", "-var", "step=2", "-var", "secret=second-secret"],
    );
    terraform(module, &["show", "-no-color", "-json", "p"])
}

/// Each resource and each attribute in one line.
fn lines(listed: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for resource in listed["resources"].as_array().unwrap() {
        let [address, actions, reason] =
            ["address", "actions", "reason"].map(|name| &resource[name]);
        let [from, id] = ["previous_address", "importing"].map(|name| &resource[name]);
        lines.push(format!("{address} {actions} {reason} {from} {id}"));
        for attribute in resource["attributes"].as_array().unwrap() {
            // IDs are different each time.
            let text = attribute.to_string();
            let is_id = |text: &str| text.len() == 36 && text.matches('-').count() == 4;
            let ids =
                text.split('"').filter(|part| is_id(part)).map(str::to_owned).collect::<Vec<_>>();
            lines.push(format!("  {}", ids.iter().fold(text, |text, id| text.replace(id, "[id]"))));
        }
    }
    lines
}

#[tokio::test]
async fn a_real_plan_is_listed_and_none_of_its_sensitive_values() {
    let plan = tokio::task::spawn_blocking(real_plan).await.unwrap();
    assert!(plan.contains("first-secret") && plan.contains("whole-secret-2"));
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, &format!("plans?{RUN}&attempt=0"), plan).await;
    let listed = get(&datastore, &format!("changes?{RUN}")).await;
    assert!(!listed.text().contains("-secret"), "{}", listed.text());
    let listed = listed.json();
    insta::assert_snapshot!(listed["counts"], @r#"{"create":0,"update":5,"delete":1,"replace":1,"read":0,"forget":1,"move":1,"import":1,"invoke":0}"#);
    let lines = lines(&listed);
    insta::assert_snapshot!(lines.join("\n"), @r#"
    "terraform_data.follows" ["update"] null null null
      {"path":["input"],"before":"[id]","unknown":true}
      {"path":["output"],"before":"[id]","unknown":true}
    "terraform_data.forgotten" ["forget"] "delete_because_no_resource_config" null null
      {"path":["id"],"before":"[id]","after":null}
      {"path":["input"],"before":"forgotten","after":null}
      {"path":["output"],"before":"forgotten","after":null}
    "terraform_data.gone" ["delete"] "delete_because_no_resource_config" null null
      {"path":["id"],"before":"[id]","after":null}
      {"path":["input"],"before":"gone","after":null}
      {"path":["output"],"before":"gone","after":null}
    "terraform_data.imported" ["update"] null null "some-id"
      {"path":["input"],"before":null,"after":"i"}
      {"path":["output"],"before":null,"unknown":true}
    "terraform_data.nested" ["update"] null null null
      {"path":["input","list",0,"password"],"sensitive":true}
      {"path":["input","list",1,"name"],"before":"b1","after":"b2"}
      {"path":["input","map","one"],"before":true,"after":null}
      {"path":["input","map","two"],"before":null,"after":true}
      {"path":["input","open"],"before":"value-1","after":"value-2"}
      {"path":["input","set"],"before":["x","y","z1"],"after":["x","y","z2"]}
      {"path":["input","text"],"before":"héllo ✓ 日本 1","after":"héllo ✓ 日本 2"}
      {"path":["output"],"sensitive":true,"unknown":true}
    "terraform_data.new" ["no-op"] null "terraform_data.old" null
    "terraform_data.replaced" ["delete","create"] "replace_because_cannot_update" null null
      {"path":["id"],"before":"[id]","unknown":true}
      {"path":["triggers_replace"],"before":["1"],"after":["2"],"replaces":true}
    "terraform_data.whole" ["update"] null null null
      {"path":["input"],"sensitive":true}
      {"path":["output"],"sensitive":true,"unknown":true}
    "module.m.terraform_data.x[\"k/1\"]" ["update"] null null null
      {"path":["input",0],"sensitive":true}
      {"path":["output"],"sensitive":true,"unknown":true}
    "#);
    insta::assert_snapshot!(format!("{}\n{}", listed["outputs"], listed["checks"]), @r#"
    [{"name":"open","actions":["update"],"before":"out-1","after":"out-2"},{"name":"secret","actions":["update"],"sensitive":true}]
    [{"address":"check.first","status":"fail","problems":["the step is 2"]}]
    "#);
    assert_eq!(listed["truncated"], Value::Null);
}
