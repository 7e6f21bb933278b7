//! An apply that would create again what an earlier one has created is refused: nothing of that is in the state.

use std::time::Duration;

use support::{
    Ended, Fault, FaultyDatastore, Sandbox, Started, TestDatastore, eventually, wait_for,
};
use url::Url;

use super::orphaned_tool::works_in;
use crate::RUNNER;
use crate::state_server::StateServer;
use crate::stored_run::StoredRun;

pub(super) const UNPLANNED: [&str; 4] = ["apply", "--no-plan", "--run", "u"];

/// How long the lease of a killed run is valid.
pub(super) const LEASE: Duration = Duration::from_secs(1);

/// Makes a created object a tainted one.
pub(super) const FAILING: &str =
    "  provisioner \"local-exec\" {\n    command = \"[ -e works ]\"\n  }";

/// A layer with one object. Its creation takes as long as the file `hold` is there.
pub(super) struct Layer {
    pub(super) sandbox: Sandbox,
    pub(super) states: StateServer,
}

impl Layer {
    pub(super) fn new() -> Self {
        Self::with("")
    }

    /// With further code of the resource.
    pub(super) fn with(code: &str) -> Self {
        let (sandbox, (states, backend)) = (Sandbox::new(RUNNER), StateServer::start());
        let command = "echo a >> created; while [ -e hold ]; do [ ! -e kill ] || { kill -9 $PPID; exit; }; sleep 0.05; done";
        let resource = format!(
            "resource \"terraform_data\" \"a\" {{\n  provisioner \"local-exec\" {{\n    command = \"{command}\"\n  }}\n{code}\n}}\n"
        );
        sandbox.write("main.tf", &format!("{backend}{resource}"));
        for dir in ["tmp2", "home2"] {
            std::fs::create_dir(sandbox.path(dir)).unwrap();
        }
        Self { sandbox, states }
    }

    pub(super) fn run(&self, datastore: &Url, args: &[&str]) -> Ended {
        self.sandbox.run_with(datastore, &[args, &["--name", "x"]].concat())
    }

    /// The same on a machine that knows nothing of the earlier runs, when the lease of a killed one has expired.
    pub(super) fn run_elsewhere(&self, datastore: &Url, args: &[&str]) -> Ended {
        let mut ended = None;
        eventually("no other run has the lease", || {
            let tried = ended.insert(self.try_elsewhere(datastore, args));
            !tried.stderr.contains("the lease of the layer default/x is not granted")
        });
        ended.unwrap()
    }

    fn try_elsewhere(&self, datastore: &Url, args: &[&str]) -> Ended {
        let mut command = self.sandbox.command(&[args, &["--name", "x"]].concat());
        command.env("TMPDIR", self.sandbox.path("tmp2")).env("HOME", self.sandbox.path("home2"));
        command.env("PLANCHA_DATASTORE_URL", datastore.as_str()).output().unwrap().into()
    }

    pub(super) fn planned(&self, datastore: &Url, args: &[&str]) {
        let ended = self.run(datastore, &[&["plan"], args].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }

    /// Starts an apply, and waits until it creates.
    pub(super) fn creating(&self, datastore: &Url, args: &[&str]) -> Started {
        self.sandbox.write("hold", "");
        let before = self.created();
        let runner = self.sandbox.start(Some(datastore), &[args, &["--name", "x"]].concat());
        eventually("it creates", || self.created() > before);
        runner
    }

    /// Kills an apply while it creates. The backend forgets its lock.
    pub(super) async fn killed(&self, datastore: &TestDatastore, args: &[&str]) {
        let run = args[args.iter().position(|arg| *arg == "--run").unwrap() + 1];
        let before = open_creations(datastore, run).await;
        let runner = self.creating(&datastore.url, args);
        ledger_is_stored(datastore, run, before).await;
        runner.kill_all();
        runner.wait();
        self.release();
        self.states.contents().lock = None;
    }

    /// Kills the tool that creates, but not the runner.
    pub(super) fn kill_tool(&self, runner: Started) -> Ended {
        self.sandbox.write("kill", "");
        let ended = runner.wait();
        std::fs::remove_file(self.sandbox.work().join("kill")).unwrap();
        self.release();
        self.states.contents().lock = None;
        ended
    }

    pub(super) fn release(&self) {
        std::fs::remove_file(self.sandbox.work().join("hold")).unwrap();
    }

    /// How often the object was created.
    pub(super) fn created(&self) -> usize {
        std::fs::read_to_string(self.sandbox.work().join("created"))
            .map_or(0, |created| created.lines().count())
    }

    /// Applies this on another machine, which is refused.
    #[track_caller]
    pub(super) fn refused(&self, datastore: &Url, args: &[&str], words: &[&str]) {
        let before = self.created();
        let ended = self.run_elsewhere(datastore, args);
        // A probe of the lock may outlive its run.
        eventually("nothing works there", || !works_in(&self.sandbox.work()));
        assert_eq!((ended.code, self.created()), (9, before), "{args:?}: {}", ended.stderr);
        for words in [words, &["terraform_data.a may exist, and would be created again"]].concat() {
            assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
        }
    }
}

/// How many creations the stored ledgers of the first two attempts of a run have that have not ended.
async fn open_creations(datastore: &TestDatastore, run: &str) -> usize {
    let (stored, mut count) = (StoredRun::new(datastore, "default", "x", run), 0);
    for attempt in 0..2 {
        let query = format!("attempt={attempt}&name=ledger.json");
        if let Some(ledger) = stored.get("artifacts", &query).await {
            let resources = crate::json(&ledger)["resources"].as_array().unwrap().clone();
            count += resources.iter().filter(|resource| resource["state"] == "started").count();
        }
    }
    count
}

/// Waits until the ledgers of a run have more open creations than before.
async fn ledger_is_stored(datastore: &TestDatastore, run: &str, before: usize) {
    let find = async || (open_creations(datastore, run).await > before).then_some(());
    wait_for("the ledger is stored", find).await;
}

/// The state is that of before, so the plan is not stale.
#[tokio::test(flavor = "multi_thread")]
async fn apply_that_was_killed_in_a_creation_is_not_made_again() {
    let datastore = TestDatastore::hasty(LEASE).await;
    let (url, layer) = (&datastore.url, Layer::new());
    layer.planned(url, &["--run", "p"]);
    layer.killed(&datastore, &["apply", "--run", "a", "--plan", "p"]).await;
    // The last one is the run that has made the plan.
    for run in ["a", "b", "p"] {
        let words = ["an apply of this plan (a/0)", "then plan again"];
        layer.refused(url, &["apply", "--run", run, "--plan", "p"], &words);
    }
    layer.killed(&datastore, &UNPLANNED).await;
    layer.refused(url, &UNPLANNED, &["an apply of this run (u/0)", "then run again with --again"]);
    let ended = layer.run(url, &[&UNPLANNED[..], &["--again"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    layer.planned(url, &["--run", "q", "--detailed-exitcode"]);
}

/// More than the datastore lists at once, as plans that look for drift make in a night.
#[tokio::test(flavor = "multi_thread")]
async fn killed_apply_is_found_behind_many_later_runs() {
    let datastore = TestDatastore::hasty(LEASE).await;
    let (url, layer) = (&datastore.url, Layer::new());
    layer.planned(url, &["--run", "p"]);
    layer.killed(&datastore, &["apply", "--run", "a", "--plan", "p"]).await;
    for i in 0..60 {
        let run = format!("drift-{i}");
        StoredRun::new(&datastore, "default", "x", &run).put_log(0, b"log".to_vec()).await;
    }
    layer.refused(url, &["apply", "--run", "b", "--plan", "p"], &["(a/0)"]);
}

/// The backend refuses the state of an object that was created. Only the ledger and `errored.tfstate` tell of it.
#[tokio::test(flavor = "multi_thread")]
async fn object_whose_state_was_refused_is_not_created_again() {
    let orders: [(&[&str], _); 2] = [
        (&["apply", "--run", "a", "--plan", "p"], "errored.tfstate"),
        (&UNPLANNED, "then run again with --again"),
    ];
    for (code, (order, words)) in
        ["", FAILING].into_iter().flat_map(|code| orders.map(|of| (code, of)))
    {
        let datastore = TestDatastore::hasty(LEASE).await;
        let (url, layer) = (&datastore.url, Layer::with(code));
        layer.planned(url, &["--run", "p"]);
        layer.states.refuse("POST", 403, usize::MAX);
        let ended = layer.run(url, order);
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        layer.states.contents().faults.clear();
        // As if this were the disk of a pod.
        std::fs::remove_file(layer.sandbox.work().join("errored.tfstate")).unwrap();
        layer.refused(url, order, &[words]);
    }
}

/// The stored ledger is that of before the tool was started.
#[tokio::test(flavor = "multi_thread")]
async fn killed_apply_whose_ledger_could_not_be_stored_is_not_made_again() {
    let datastore = TestDatastore::hasty(LEASE).await;
    let layer = Layer::new();
    layer.planned(&datastore.url, &["--run", "p"]);
    let failing = FaultyDatastore::before(&datastore.url, Vec::new()).await;
    let runner = layer.creating(&failing.url, &["apply", "--run", "a", "--plan", "p"]);
    let fault = Fault { method: "PUT", part: "", status: 503, times: usize::MAX };
    failing.set_faults(vec![fault]);
    std::thread::sleep(Duration::from_secs(2));
    runner.kill_all();
    runner.wait();
    layer.release();
    layer.states.contents().lock = None;
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    let ledger = crate::json(&stored.artifact("ledger.json", 0).await);
    assert!(ledger.get("ended").is_none(), "{ledger}");
    layer.refused(&datastore.url, &["apply", "--run", "b", "--plan", "p"], &["(a/0)"]);
}

/// The message does not advise to delete what it is creating.
#[tokio::test(flavor = "multi_thread")]
async fn apply_that_still_works_is_no_killed_one() {
    let datastore = TestDatastore::hasty(LEASE).await;
    let (url, layer) = (&datastore.url, Layer::new());
    layer.planned(url, &["--run", "p"]);
    let runner = layer.creating(url, &["apply", "--run", "a", "--plan", "p"]);
    ledger_is_stored(&datastore, "a", 0).await;
    let ended = layer.try_elsewhere(url, &["apply", "--run", "b", "--plan", "p"]);
    assert_eq!((ended.code, layer.created()), (4, 1), "{}", ended.stderr);
    for words in ["run a/0", "wait until it has ended"] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    // A datastore without leases does not know that it works.
    let fault = Fault { method: "POST", part: "/api/leases/", status: 501, times: usize::MAX };
    let without = FaultyDatastore::before(url, vec![fault]).await;
    let ended = layer.try_elsewhere(&without.url, &["apply", "--run", "b", "--plan", "p"]);
    assert_eq!((ended.code, layer.created()), (4, 1), "{}", ended.stderr);
    for words in ["the state is locked", "if it still works, wait"] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    layer.release();
    let ended = runner.wait();
    assert_eq!((ended.code, layer.created()), (0, 1), "{}", ended.stderr);
    // It was applied, by run a.
    let ended = layer.run_elsewhere(url, &["apply", "--run", "b", "--plan", "p"]);
    assert_eq!((ended.code, layer.created()), (0, 1), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_that_may_not_list_runs_applies_its_plan() {
    let datastore = TestDatastore::hasty(LEASE).await;
    let layer = Layer::new();
    layer.planned(&datastore.url, &["--run", "p"]);
    let fault = Fault { method: "GET", part: "/api/runs", status: 403, times: usize::MAX };
    let proxy = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let ended = layer.run(&proxy.url, &["apply", "--run", "a", "--plan", "p"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("it is not known whether another run"), "{}", ended.stderr);
}

/// What an apply has created is in the state, also if its address has a secret: the ledger has the masked one.
#[tokio::test(flavor = "multi_thread")]
async fn apply_that_has_failed_with_its_state_saved_is_made_again() {
    let datastore = TestDatastore::hasty(LEASE).await;
    let (sandbox, (_states, backend)) = (Sandbox::new(RUNNER), StateServer::start());
    let resources = r#"
resource "terraform_data" "a" {
  for_each = toset(["hunter2hunter2", "b"])
  provisioner "local-exec" { command = "echo a >> created" }
}
resource "terraform_data" "b" {
  depends_on = [terraform_data.a]
  provisioner "local-exec" { command = "[ -e works ]" }
}
"#;
    sandbox.write("main.tf", &format!("{backend}{resources}"));
    let run = || {
        let mut command = sandbox.command(&[&UNPLANNED[..], &["--name", "x"]].concat());
        command.env("SERVICE_TOKEN", "hunter2hunter2");
        let command = command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        Ended::from(command.output().unwrap())
    };
    let failed = run();
    assert_eq!(failed.code, 1, "{}", failed.stderr);
    sandbox.write("works", "");
    let ended = run();
    assert_eq!((ended.code, sandbox.read("created").lines().count()), (0, 2), "{}", ended.stderr);
}

/// The state has the old object at the same address.
#[tokio::test(flavor = "multi_thread")]
async fn replacement_that_was_not_saved_is_not_made_again() {
    let replace = ["--replace", "terraform_data.a"];
    for code in ["", "  lifecycle {\n    create_before_destroy = true\n  }"] {
        let datastore = TestDatastore::hasty(LEASE).await;
        let (url, layer) = (&datastore.url, Layer::with(code));
        assert_eq!(layer.run(url, &["apply", "--no-plan", "--run", "first"]).code, 0);
        layer.planned(url, &[&["--run", "p"], &replace[..]].concat());
        layer.killed(&datastore, &["apply", "--run", "a", "--plan", "p"]).await;
        layer.refused(url, &["apply", "--run", "b", "--plan", "p"], &["(a/0)"]);

        // Complete, and not saved.
        let unplanned = [&UNPLANNED[..], &replace].concat();
        for (plan, order) in [("q", &["apply", "--run", "c", "--plan", "q"][..]), ("r", &unplanned)]
        {
            layer.planned(url, &[&["--run", plan], &replace[..]].concat());
            layer.states.refuse("POST", 403, usize::MAX);
            let ended = layer.run(url, order);
            assert_eq!(ended.code, 1, "{}", ended.stderr);
            layer.states.contents().faults.clear();
            for dir in ["tmp", "home"] {
                std::fs::remove_dir_all(layer.sandbox.path(dir)).unwrap();
                std::fs::create_dir(layer.sandbox.path(dir)).unwrap();
            }
            std::fs::remove_file(layer.sandbox.work().join("errored.tfstate")).unwrap();
            layer.refused(url, order, &[]);
        }
    }
}
