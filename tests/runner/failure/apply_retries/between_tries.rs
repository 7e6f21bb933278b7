//! What somebody else changes between two tries of an apply: nothing more is applied, and the difference is named.

use support::{Ended, Sandbox, TestDatastore};

use super::{APPLY, BROKEN, PLAN, applies, failing, made};
use crate::stored_run::StoredRun;

const UNPLANNED: &[&str] = &["apply", "--no-plan", "--name", "x", "--run", "a"];

/// A module with a child and a named file, and a resource of each kind of change.
fn module() -> Sandbox {
    let sandbox = failing(1, BROKEN);
    let code = sandbox.read("main.tf");
    let outside = sandbox.path("outside.txt");
    std::fs::write(&outside, "a").unwrap();
    let more = "
locals { outside = file(\"OUTSIDE\") }
module \"child\" { source = \"./child\" }
locals { named = file(\"named.txt\") }
variable \"v\" { default = 0 }
";
    let more = more.replace("OUTSIDE", outside.to_str().unwrap());
    sandbox.write("main.tf", &format!("{code}{more}"));
    sandbox.write("child/main.tf", "locals { x = 1 }\n");
    sandbox.write("named.txt", "a");
    sandbox.write("v.tfvars", "v = 1\n");
    sandbox
}

/// The failed run of an apply after whose first try this script runs in the directory of the module.
async fn changed(script: &str, is_planned: bool, options: &[&str]) -> (Sandbox, Ended) {
    let datastore = TestDatastore::memory().await;
    let sandbox = module();
    let terraform = support::on_path("terraform").unwrap();
    let script = script.replace("terraform ", &format!("{} ", terraform.display()));
    std::fs::write(sandbox.path("pause"), script).unwrap();
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    let ended = if is_planned {
        assert_eq!(run(&[PLAN, options].concat()).code, 0);
        run(APPLY)
    } else {
        run(&[UNPLANNED, options].concat())
    };
    assert!(sandbox.path("pause.ran").exists(), "{}", ended.stderr);
    let names = StoredRun::new(&datastore, "default", "x", "a").names(1).await;
    assert_eq!(names.contains(&"applied.json".to_owned()), ended.code == 0, "{names:?}");
    (sandbox, ended)
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_is_tried_again_only_with_what_the_first_try_worked_with() {
    for (script, options, difference) in [
        ("echo '# other' >> main.tf", &[][..], "main.tf has changed since the first try"),
        ("sed -i '/^locals/d' main.tf", &[], "main.tf has changed since the first try"),
        ("echo 'v = 2' > terraform.tfvars", &[], "terraform.tfvars was added since the first try"),
        ("echo 'v = 2' > z.auto.tfvars", &[], "z.auto.tfvars was added since the first try"),
        (
            "echo 'v = 2' > v.tfvars",
            &["--var-file", "v.tfvars"],
            "v.tfvars has changed since the first try",
        ),
        ("echo b > ../outside.txt", &[], "/outside.txt has changed since the first try"),
        ("echo b > named.txt", &[], "named.txt has changed since the first try"),
        (
            "echo 'locals { y = 1 }' > child/more.tf",
            &[],
            "child/more.tf was added since the first try",
        ),
        (
            "echo '# other' > .terraform.lock.hcl",
            &[],
            ".terraform.lock.hcl was added since the first try",
        ),
        (
            "printf other > .terraform/environment",
            &[],
            "the workspace has changed since the first try: default; now it is other",
        ),
        (
            "terraform workspace new other",
            &[],
            "the workspace has changed since the first try: default; now it is other",
        ),
    ] {
        for is_planned in [true, false] {
            let (sandbox, ended) = changed(script, is_planned, options).await;

            assert_eq!((ended.code, applies(&sandbox)), (9, 1), "{script}: {}", ended.stderr);
            assert_eq!(made(&sandbox), "first", "{script}");
            assert!(ended.stderr.contains("connection reset by peer"), "{}", ended.stderr);
            let text = ended.stderr.replace(&format!("{}/", sandbox.work().display()), "");
            assert!(text.contains(difference), "{script}: {text}");
        }
    }
}

/// A creation that was completed is not repeated, nothing is destroyed that was made, and no other state is taken for it.
#[tokio::test(flavor = "multi_thread")]
async fn apply_is_tried_again_only_on_the_state_that_the_first_try_has_left() {
    let other = "sed -i 's/\"lineage\": \"[^\"]*\"/\"lineage\": \"other\"/' terraform.tfstate";
    let serial = "sed -i 's/\"serial\": .*,/\"serial\": 99,/' terraform.tfstate";
    let again = "terraform_data.first: a failed try has created it, and it is to be created again";
    for (script, difference) in [
        ("terraform state rm terraform_data.first", again),
        ("rm terraform.tfstate", again),
        ("terraform taint terraform_data.first", again),
        (other, "another process has changed the state since the last try: it was serial"),
        (serial, "now it is serial 99 of lineage"),
    ] {
        for is_planned in [true, false] {
            let (sandbox, ended) = changed(script, is_planned, &[]).await;

            assert_eq!((ended.code, applies(&sandbox)), (9, 1), "{script}: {}", ended.stderr);
            assert_eq!(made(&sandbox), "first", "{script}");
            let unplanned =
                "another process has changed the state since the last try: it was serial";
            let says = if is_planned { difference } else { unplanned };
            assert!(ended.stderr.contains(says), "{script}: {}", ended.stderr);
        }
    }
}

/// While the new plan is made and stored.
#[tokio::test(flavor = "multi_thread")]
async fn file_that_changes_while_the_rest_is_planned_is_a_difference() {
    let datastore = TestDatastore::memory().await;
    let sandbox = module();
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    std::fs::write(sandbox.path("hold"), "").unwrap();
    let runner = sandbox.start(Some(&datastore.url), APPLY);
    support::eventually("it plans again", || sandbox.path("held").exists());
    sandbox.write("named.txt", "b");
    std::fs::remove_file(sandbox.path("hold")).unwrap();
    let ended = runner.wait();
    assert_eq!((ended.code, applies(&sandbox)), (9, 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("named.txt has changed since the first try"), "{}", ended.stderr);
}

/// A plan that was named may be of other code, which is a warning. Its rest would be planned with that code.
#[tokio::test(flavor = "multi_thread")]
async fn plan_of_other_code_is_applied_and_not_tried_again() {
    let datastore = TestDatastore::memory().await;
    let sandbox = module();
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    sandbox.write("named.txt", "b");
    let ended = sandbox.run_with(&datastore.url, APPLY);
    assert!(![0, 9].contains(&ended.code), "{}", ended.stderr);
    assert_eq!(applies(&sandbox), 1, "{}", ended.stderr);
    let says =
        "the apply is not tried again: the file has changed since the plan p/0 was made: named.txt";
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
}

/// What the apply itself writes beside its code does not keep it from being tried again.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_no_code_names_may_change() {
    let (_, ended) = changed("echo x > notes.txt; echo x > child/notes.txt", true, &[]).await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// No planned value depends on it: only a provisioner uses it.
#[tokio::test(flavor = "multi_thread")]
async fn data_that_changes_between_two_tries_is_a_difference() {
    let datastore = TestDatastore::memory().await;
    let sandbox = module();
    let data = "data \"terraform_remote_state\" \"other\" {
  backend = \"local\"
  config  = { path = \"other.tfstate\" }
}
";
    let code = sandbox.read("main.tf");
    let used = "echo third ${data.terraform_remote_state.other.outputs.v} >>";
    sandbox.write("main.tf", &(code.replace("echo third >>", used) + data));
    let state = |v: &str| {
        format!(
            "{{\"version\": 4, \"terraform_version\": \"1.11.4\", \"serial\": 1, \"lineage\": \"x\",
            \"outputs\": {{\"v\": {{\"value\": \"{v}\", \"type\": \"string\"}}}}, \"resources\": []}}"
        )
    };
    sandbox.write("other.tfstate", &state("reviewed"));
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    std::fs::write(sandbox.path("pause"), "sed -i s/reviewed/other/ other.tfstate").unwrap();

    let ended = sandbox.run_with(&datastore.url, APPLY);

    assert_eq!((ended.code, applies(&sandbox)), (9, 1), "{}", ended.stderr);
    let says = "data.terraform_remote_state.other: what is read differs in outputs";
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
}
