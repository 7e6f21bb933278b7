//! An order that is delivered again: it is not repeated, and a different one under its name is refused.

use std::collections::BTreeSet;

use support::{Ended, Fault, FaultyDatastore, Sandbox, Started, TestDatastore, eventually};
use url::Url;

use super::{applies, faulty, lost, lost_everything, unsent};
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const UNPLANNED: &[&str] = &["apply", "--no-plan", "--name", "x"];
const RUN: &[&str] = &["--run", "a"];
const KEY: &[&str] = &["--order-key", "k"];
const AGAIN: &[&str] = &["--again"];

fn order(parts: &[&[&str]]) -> Vec<String> {
    [UNPLANNED]
        .iter()
        .chain(parts)
        .flat_map(|part| part.iter().map(|&word| word.to_owned()))
        .collect()
}

fn ordered(sandbox: &Sandbox, datastore: &Url, parts: &[&[&str]]) -> Ended {
    let words = order(parts);
    sandbox.run_with(datastore, &words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A datastore and a fake terraform.
async fn ready() -> (TestDatastore, Sandbox) {
    (TestDatastore::memory().await, Sandbox::new(RUNNER).hello().fake_terraform(""))
}

/// The run ended so, and the tool has applied so often.
#[track_caller]
fn ended(sandbox: &Sandbox, ended: &Ended, code: i32, count: usize, text: &str) {
    assert_eq!((ended.code, applies(sandbox)), (code, count), "{}", ended.stderr);
    assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_order_with_another_module_script_or_archive_is_refused() {
    let (datastore, sandbox) = ready().await;
    let run = |name: &str, source: &str| {
        let key = ["--order-key", name, "--work-dir", "kept"];
        sandbox.run_with(&datastore.url, &[UNPLANNED, &key, &[source]].concat())
    };
    let main = "module \"m\" {\n  source = \"./m\"\n}\noutput \"x\" {\n  value = file(\"${path.module}/x.txt\")\n}\n";
    sandbox.write("code/main.tf", main);
    sandbox.write("code/m/main.tf", "# first");
    sandbox.write("code/x.txt", "first");
    sandbox.write("code/unnamed.txt", "first");
    let tar = |name: &str| {
        let mut tar = tar::Builder::new(std::fs::File::create(sandbox.work().join(name)).unwrap());
        tar.append_dir_all(".", sandbox.work().join("code")).unwrap();
        tar.finish().unwrap();
    };
    tar("code.tar");
    ended(&sandbox, &run("d", "code"), 0, 1, "");
    ended(&sandbox, &run("a", "code.tar"), 0, 2, "");
    sandbox.write("code/unnamed.txt", "other");
    sandbox.write("code/made.zip", "by the tool");
    ended(&sandbox, &run("d", "code"), 0, 2, "nothing is applied again");
    ended(&sandbox, &run("a", "code.tar"), 0, 2, "nothing is applied again");
    for file in ["m/main.tf", "x.txt"] {
        let before = std::fs::read(sandbox.work().join("code").join(file)).unwrap();
        sandbox.write(&format!("code/{file}"), "# other");
        ended(&sandbox, &run("d", "code"), 9, 2, "another source: sha256 ");
        std::fs::write(sandbox.work().join("code").join(file), before).unwrap();
    }
    ended(&sandbox, &run("d", "code"), 0, 2, "nothing is applied again");
    tar("code.tar");
    ended(&sandbox, &run("a", "code.tar"), 9, 2, "another source: sha256 ");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_order_whose_apply_writes_a_named_file_is_the_same() {
    let (datastore, sandbox) = ready().await;
    let sandbox = sandbox.fake_terraform("[ $STEP != apply ] || date +%N > made.zip");
    sandbox.write("x.tf", "output \"y\" {\n  value = filemd5(\"${path.module}/made.zip\")\n}\n");
    for text in ["", "nothing is applied again", "nothing is applied again"] {
        ended(&sandbox, &ordered(&sandbox, &datastore.url, &[KEY]), 0, 1, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn same_order_is_not_repeated_and_a_different_one_is_refused_until_again() {
    for name in [RUN, KEY] {
        let (datastore, sandbox) = ready().await;
        let run = |parts: &[&[&str]]| ordered(&sandbox, &datastore.url, &[&[name], parts].concat());
        sandbox.write("v.tfvars", "a = 1\n");
        let vars: &[&str] = &["--var-file", "v.tfvars", "--var", "b=secret-value"];
        ended(&sandbox, &run(&[vars]), 0, 1, "");
        let calls = sandbox.calls().len();
        ended(&sandbox, &run(&[vars]), 0, 1, "nothing is applied again");
        ended(&sandbox, &run(&[&vars[..2]]), 9, 1, "other variables or arguments");
        ended(&sandbox, &run(&[vars, &["--target", "x.y"]]), 9, 1, "other variables or arguments");
        ended(&sandbox, &run(&[vars, &["--", "-refresh=false"]]), 9, 1, "with --again");
        sandbox.write("v.tfvars", "a = 2\n");
        ended(&sandbox, &run(&[vars]), 9, 1, "other variables or arguments");
        sandbox.write("v.tfvars", "a = 1\n");
        sandbox.write("more.tf", "");
        ended(&sandbox, &run(&[vars]), 9, 1, "another configuration: sha256 ");
        assert_eq!(sandbox.calls().len(), calls, "no init");

        ended(&sandbox, &run(&[vars, AGAIN]), 0, 2, "");
        ended(&sandbox, &run(&[vars]), 0, 2, "nothing is applied again");
        std::fs::remove_file(sandbox.work().join("more.tf")).unwrap();
        ended(&sandbox, &run(&[vars]), 9, 2, "another configuration");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_or_run_is_a_new_order() {
    let (datastore, sandbox) = ready().await;
    for (count, name) in
        [(1, &["--order-key", "k"]), (2, &["--order-key", "l"]), (3, &["--run", "r"])]
    {
        ended(&sandbox, &ordered(&sandbox, &datastore.url, &[name]), 0, count, "");
        ended(&sandbox, &ordered(&sandbox, &datastore.url, &[name]), 0, count, "");
    }
    let variable = |key: &str| {
        let mut command = sandbox.command(UNPLANNED);
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        Ended::from(command.env("PLANCHA_ORDER_KEY", key).output().unwrap())
    };
    ended(&sandbox, &variable("k"), 0, 3, "nothing is applied again");
    ended(&sandbox, &variable("m"), 0, 4, "");
    let other_layer = ["apply", "--no-plan", "--name", "y", "--order-key", "k"];
    ended(&sandbox, &sandbox.run_with(&datastore.url, &other_layer), 0, 5, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_the_environment_belong_to_the_order() {
    let (datastore, sandbox) = ready().await;
    let run = |name: &str, value: &str| {
        let mut command = sandbox.command(&["apply", "--no-plan", "--name", "x", "--run", "a"]);
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str()).env(name, value);
        Ended::from(command.output().unwrap())
    };
    ended(&sandbox, &run("TF_VAR_size", "1"), 0, 1, "");
    ended(&sandbox, &run("TF_VAR_size", "1"), 0, 1, "nothing is applied again");
    ended(&sandbox, &run("TF_VAR_size", "2"), 9, 1, "other variables");
    ended(&sandbox, &run("TF_CLI_ARGS_apply", "-lock=false"), 9, 1, "other variables");
}

#[tokio::test(flavor = "multi_thread")]
async fn record_has_the_source_and_no_value_of_a_variable() {
    let (datastore, sandbox) = ready().await;
    let parts: [&[&str]; 3] = [RUN, KEY, &["--var", "password=hunter2"]];
    assert_eq!(ordered(&sandbox, &datastore.url, &parts).code, 0);
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    let record = json(&stored.artifact("applied.json", 0).await);
    for part in ["configuration_sha256", "inputs"] {
        assert!(!record["order"][part].is_null(), "{record}");
    }
    assert_eq!(record["order_key"]["index"], 0);
    assert!(!record.to_string().contains("hunter2"));
    let plain = datastore_api::Sha256::of(b"password=hunter2").to_string();
    assert!(!record.to_string().contains(&plain));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_commit_is_refused_and_a_state_in_the_work_tree_is_not_a_change() {
    let datastore = TestDatastore::memory().await;
    let writes = "[ $STEP != apply ] || echo '{}' | tee terraform.tfstate > notes.txt";
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(writes);
    let git = |args: &[&str]| {
        let words = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let mut command = sandbox.program("git".as_ref(), &[&words, args].concat());
        assert!(command.output().unwrap().status.success(), "{args:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-qm", "one"]);
    let run = || ordered(&sandbox, &datastore.url, &[KEY]);
    ended(&sandbox, &run(), 0, 1, "");
    ended(&sandbox, &run(), 0, 1, "nothing is applied again");
    git(&["commit", "--allow-empty", "-qm", "two"]);
    ended(&sandbox, &run(), 9, 1, "another revision: ");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_holds_for_stored_plans_and_names_another_plan() {
    let (datastore, sandbox) = ready().await;
    let plan = |run: &str| sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--run", run]);
    let apply = |plan: &[&str]| {
        let words = [&["apply", "--name", "x"], KEY, plan].concat();
        sandbox.run_with(&datastore.url, &words)
    };
    assert_eq!(plan("p").code, 0);
    ended(&sandbox, &apply(&[]), 0, 1, "");
    ended(&sandbox, &apply(&["--plan", "p"]), 0, 1, "nothing is applied again");
    assert_eq!(plan("q").code, 0);
    ended(&sandbox, &apply(&["--plan", "q"]), 9, 1, "the order `k` (run x-apply-");
    ended(&sandbox, &apply(&[]), 9, 1, "another plan: sha256 ");
    ended(&sandbox, &ordered(&sandbox, &datastore.url, &[KEY]), 9, 1, "now it is none");
    let other_key = ["apply", "--name", "x", "--plan", "p", "--order-key", "l"];
    ended(
        &sandbox,
        &sandbox.run_with(&datastore.url, &other_key),
        0,
        1,
        "nothing is applied again",
    );
    ended(&sandbox, &sandbox.run_with(&datastore.url, &["apply", "--name", "x"]), 0, 2, "");
}

/// Two names that lead to different plans are two orders, also if another order has applied the plan that is named now.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_order_with_a_plan_of_another_order_is_refused() {
    let (datastore, sandbox) = ready().await;
    let run =
        |words: &[&str]| sandbox.run_with(&datastore.url, &[words, &["--name", "x"]].concat());
    for (count, (plan, name, key)) in [(1, ("p", "a", "k")), (2, ("q", "b", "l"))] {
        assert_eq!(run(&["plan", "--run", plan]).code, 0);
        let applied = run(&["apply", "--plan", plan, "--run", name, "--order-key", key]);
        ended(&sandbox, &applied, 0, count, "");
    }
    for (name, refused) in [
        (["--order-key", "l"], "the order `l` (run b) was applied with another plan: sha256 "),
        (["--run", "b"], "run b was applied with another plan: sha256 "),
    ] {
        let other = run(&[&["apply", "--plan", "p"], &name[..]].concat());
        ended(&sandbox, &other, 9, 2, refused);
        let same = run(&[&["apply", "--plan", "q"], &name[..]].concat());
        ended(&sandbox, &same, 0, 2, "run b has applied this: nothing is applied again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_key_names_the_run_of_its_order() {
    let (datastore, sandbox) = ready().await;
    let run = |parts: &[&[&str]]| ordered(&sandbox, &datastore.url, parts);
    ended(&sandbox, &run(&[KEY, &["--run", "a"]]), 0, 1, "");
    ended(&sandbox, &run(&[&["--order-key", "l"], &["--run", "b"]]), 0, 2, "");
    let repeated = run(&[KEY, &["--run", "b"]]);
    ended(&sandbox, &repeated, 0, 2, "attempt 0 of run a has applied this");
}

/// Else a later delivery would apply a newer plan.
#[tokio::test(flavor = "multi_thread")]
async fn key_whose_plan_another_order_has_applied_is_bound_to_that_plan() {
    let (datastore, sandbox) = ready().await;
    let run =
        |words: &[&str]| sandbox.run_with(&datastore.url, &[words, &["--name", "x"]].concat());
    assert_eq!(run(&["plan", "--run", "p"]).code, 0);
    ended(&sandbox, &run(&["apply", "--order-key", "k"]), 0, 1, "");
    let other = run(&["apply", "--order-key", "l"]);
    ended(&sandbox, &other, 0, 1, "nothing is applied again");
    assert_eq!(run(&["plan", "--run", "q"]).code, 0);
    let repeated = run(&["apply", "--order-key", "l"]);
    ended(&sandbox, &repeated, 9, 1, "was applied with another plan: sha256 ");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_name_holds_for_stored_plans_and_names_another_plan() {
    let (datastore, sandbox) = ready().await;
    let run = |words: &[&str]| sandbox.run_with(&datastore.url, words);
    let plan = |name: &str| assert_eq!(run(&["plan", "--name", "x", "--run", name]).code, 0);
    let apply = |words: &[&str]| run(&[&["apply", "--name", "x"], RUN, words].concat());
    plan("p");
    ended(&sandbox, &apply(&[]), 0, 1, "");
    ended(&sandbox, &apply(&[]), 0, 1, "nothing is applied again");
    plan("q");
    ended(&sandbox, &apply(&[]), 9, 1, "run a was applied with another plan: sha256 ");
    let refused = apply(&["--plan", "q"]);
    ended(&sandbox, &refused, 9, 1, "(--plan p/0); now it is sha256 ");
    let next =
        "use another --run for a new order, or repeat the old one as it was, with --plan p/0\n";
    ended(&sandbox, &refused, 9, 1, next);
    ended(&sandbox, &apply(&["--no-plan"]), 9, 1, "now it is none");
    ended(&sandbox, &apply(&["--plan", "p"]), 0, 1, "nothing is applied again");
    ended(&sandbox, &run(&["apply", "--name", "x", "--run", "b"]), 0, 2, "");

    // One without a stored plan, and then one with it.
    plan("r");
    ended(&sandbox, &run(&["apply", "--name", "x", "--no-plan", "--run", "c"]), 0, 3, "");
    let planned = run(&["apply", "--name", "x", "--run", "c"]);
    ended(&sandbox, &planned, 9, 3, "another plan: none, the tool made its own; now it is sha256 ");
    let next =
        "use another --run for a new order, or repeat the old one as it was, with --no-plan\n";
    ended(&sandbox, &planned, 9, 3, next);
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_for_a_key_of_another_order_names_the_key_and_how_the_old_order_is_repeated() {
    let (datastore, sandbox) = ready().await;
    let run = |words: &[&str]| sandbox.run_with(&datastore.url, words);
    ended(&sandbox, &ordered(&sandbox, &datastore.url, &[KEY]), 0, 1, "");
    assert_eq!(run(&["plan", "--name", "x", "--run", "p"]).code, 0);
    let planned = run(&["apply", "--name", "x", "--order-key", "k"]);
    let next = "use another --order-key for a new order, or repeat the old one as it was, with --no-plan\n";
    ended(&sandbox, &planned, 9, 1, next);
    let vars: &[&str] = &["--var", "a=b"];
    let unplanned = ordered(&sandbox, &datastore.url, &[KEY, vars]);
    let next =
        "use another --order-key for a new order, or apply it under this name with --again\n";
    ended(&sandbox, &unplanned, 9, 1, next);
    let named = ordered(&sandbox, &datastore.url, &[KEY, RUN]);
    ended(&sandbox, &named, 0, 1, "nothing is applied again");
}

#[tokio::test(flavor = "multi_thread")]
async fn unsent_record_of_a_run_counts_for_its_other_plans() {
    let (datastore, sandbox) = ready().await;
    let lossy = faulty(&datastore, &[]).await;
    let run = |words: &[&str]| sandbox.run_with(&lossy.url, words);
    let plan = |name: &str| assert_eq!(run(&["plan", "--name", "x", "--run", name]).code, 0);
    let apply = [&["apply", "--name", "x"], RUN].concat();
    plan("p");
    lossy.set_faults(vec![lost("", usize::MAX)]);
    ended(&sandbox, &run(&apply), 10, 1, "");
    lossy.set_faults(Vec::new());
    plan("q");
    ended(&sandbox, &run(&apply), 9, 1, "another plan: sha256 ");
}

/// The second delivery has read the records before the first one is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn second_delivery_of_a_run_with_another_plan_is_refused_when_the_first_has_applied() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let go = sandbox.path("go");
    let waits =
        format!("while [ $STEP = apply ] && [ ! -e {} ]; do sleep 0.02; done", go.display());
    let sandbox = sandbox.fake_terraform(&waits);
    let count = |step: &str| sandbox.calls().iter().filter(|call| call.starts_with(step)).count();
    for name in ["p", "q"] {
        let planned = sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--run", name]);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
    }
    let start = |plan: &str| {
        let words = [&["apply", "--name", "x", "--plan", plan], RUN].concat();
        sandbox.start(Some(&datastore.url), &words)
    };
    let first = start("p");
    eventually("the first applies", || count("apply") == 1);
    let second = start("q");
    eventually("the second has read the records", || second.logged("waiting for it"));
    std::fs::write(&go, "").unwrap();
    let first = first.wait();
    assert_eq!(first.code, 0, "{}", first.stderr);
    ended(&sandbox, &second.wait(), 9, 1, "another plan: sha256 ");
}

#[tokio::test(flavor = "multi_thread")]
async fn unsent_record_of_an_order_counts() {
    let (datastore, sandbox) = ready().await;
    let lossy = lost_everything(&datastore).await;
    ended(&sandbox, &ordered(&sandbox, &lossy.url, &[KEY]), 10, 1, "");
    ended(
        &sandbox,
        &ordered(&sandbox, &lossy.url, &[KEY, &["--var", "a=b"]]),
        9,
        1,
        "other variables",
    );
    lossy.set_faults(Vec::new());
    ended(&sandbox, &ordered(&sandbox, &lossy.url, &[KEY]), 0, 1, "nothing is applied again");
    // Another machine finds what was sent.
    std::fs::remove_dir_all(sandbox.path("home/.local/state/plancha")).unwrap();
    ended(&sandbox, &ordered(&sandbox, &datastore.url, &[KEY]), 0, 1, "nothing is applied again");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_record_of_a_key_is_sent_by_upload() {
    let (datastore, sandbox) = ready().await;
    let lossy = faulty(&datastore, &[lost("/api/applied", usize::MAX)]).await;
    ended(&sandbox, &ordered(&sandbox, &lossy.url, &[KEY, RUN]), 10, 1, "runner upload");
    let kept = unsent(&sandbox).join("default/x/a/0");
    let kept = kept.to_str().unwrap();
    let sent = sandbox.run(&["upload", "--datastore", datastore.url.as_str(), kept]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    ended(&sandbox, &ordered(&sandbox, &datastore.url, &[KEY]), 0, 1, "nothing is applied again");
}

/// As the run itself would have done.
#[tokio::test(flavor = "multi_thread")]
async fn upload_records_an_order_under_the_next_key_if_another_machine_has_taken_its_own() {
    let (datastore, sandbox) = ready().await;
    let lossy = faulty(&datastore, &[lost("/api/applied", usize::MAX)]).await;
    ended(&sandbox, &ordered(&sandbox, &lossy.url, &[KEY, RUN]), 10, 1, "runner upload");
    let words = order(&[KEY, &["--run", "b"]]);
    let mut other = sandbox.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    other.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
    let other = other.env("XDG_STATE_HOME", sandbox.path("other")).output().unwrap().into();
    ended(&sandbox, &other, 0, 2, "");
    let kept = unsent(&sandbox).join("default/x/a/0");
    let upload = ["upload", "--datastore", datastore.url.as_str(), kept.to_str().unwrap()];
    ended(&sandbox, &sandbox.run(&upload), 0, 2, "");
    assert!(!kept.exists());
    let repeated = ordered(&sandbox, &datastore.url, &[KEY]);
    ended(&sandbox, &repeated, 0, 2, "attempt 0 of run a has applied this");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_concurrent_deliveries_applies() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("[ $STEP != apply ] || sleep 0.5");
    let words = order(&[KEY]);
    let words = words.iter().map(String::as_str).collect::<Vec<_>>();
    let runners = [(); 4].map(|()| sandbox.start(Some(&datastore.url), &words));
    for runner in runners {
        let ended = runner.wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    assert_eq!(applies(&sandbox), 1);
    let locks = sandbox.path("home/.local/state/plancha/applying-orders");
    assert_eq!(std::fs::read_dir(locks).unwrap().count(), 0);
}

/// Two orders with `--again` under one key, of which the second has read the records before the first is recorded.
async fn two_at_once(stored: &TestDatastore, is_one_machine: bool) -> (Sandbox, FaultyDatastore) {
    let datastore = faulty(stored, &[]).await;
    if !is_one_machine {
        // With leases the second one is refused.
        let (method, part, times) = ("POST", "/api/leases/", usize::MAX);
        datastore.set_faults(vec![Fault { method, part, status: 501, times }]);
    }
    let sandbox = Sandbox::new(RUNNER).hello();
    let go = sandbox.path("go");
    let waits =
        format!("while [ $STEP = apply ] && [ ! -e {} ]; do sleep 0.02; done", go.display());
    let sandbox = sandbox.fake_terraform(&waits);
    std::fs::write(&go, "").unwrap();
    ended(&sandbox, &ordered(&sandbox, &datastore.url, &[KEY]), 0, 1, "");
    std::fs::remove_file(&go).unwrap();
    let count = |step: &str| sandbox.calls().iter().filter(|call| call.starts_with(step)).count();
    let start = |machine: usize, var: &str| {
        let words = order(&[KEY, AGAIN, &["--var", var]]);
        let mut command = sandbox.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        command.env("XDG_STATE_HOME", sandbox.path(&format!("state-{machine}")));
        Started::spawn(command)
    };
    let first = start(1, "a=1");
    eventually("the first applies", || count("apply") == 2);
    let second = start(if is_one_machine { 1 } else { 2 }, "a=2");
    eventually("the second has read the records", || {
        if is_one_machine { second.logged("waiting for it") } else { count("apply") == 3 }
    });
    std::fs::write(&go, "").unwrap();
    for runner in [first, second] {
        let ended = runner.wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    (sandbox, datastore)
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_order_that_waited_for_another_is_the_latest() {
    let stored = TestDatastore::memory().await;
    let (sandbox, datastore) = two_at_once(&stored, true).await;
    let run = |var: &str| ordered(&sandbox, &datastore.url, &[KEY, &["--var", var]]);
    ended(&sandbox, &run("a=2"), 0, 3, "nothing is applied again");
    ended(&sandbox, &run("a=1"), 9, 3, "other variables");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_orders_of_two_machines_are_both_recorded() {
    let stored = TestDatastore::memory().await;
    let (_sandbox, datastore) = two_at_once(&stored, false).await;
    let keys = datastore.seen().into_iter().filter(|line| line.starts_with("PUT /api/applied"));
    assert_eq!(keys.collect::<BTreeSet<_>>().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_needs_a_datastore() {
    let (_, sandbox) = ready().await;
    let words = order(&[KEY]);
    let without = sandbox.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    ended(&sandbox, &without, 64, 0, "--order-key needs a datastore");
}

/// It has neither claims nor records of applies.
#[tokio::test(flavor = "multi_thread")]
async fn key_needs_a_datastore_that_keeps_records() {
    let (datastore, sandbox) = ready().await;
    let early = FaultyDatastore::early(&datastore.url).await;
    assert_eq!(sandbox.run_with(&early.url, &["plan", "--name", "x", "--run", "p"]).code, 0);
    let calls = sandbox.calls().len();
    for plan in [&["--no-plan"][..], &["--plan", "p"]] {
        let args = [&["apply", "--name", "x"], KEY, plan].concat();
        let refused = sandbox.run_with(&early.url, &args);
        ended(&sandbox, &refused, 8, 0, "next: nothing was applied; update the datastore");
    }
    assert_eq!(sandbox.calls().len(), calls, "no init");
    let without = ordered(&sandbox, &early.url, &[RUN]);
    ended(&sandbox, &without, 0, 1, "the datastore is older than this runner");
}
