//! A plan, an apply and an upload that are disturbed at each moment, with a real terraform and a backend with locks: no created
//! object is missing from the state, nothing that was complete is created again, what is stored is whole, and what the messages
//! say leads to the end.

use std::time::{Duration, Instant};

use serde_json::Value;
use support::{
    Ended, Fault, FaultyDatastore, Sandbox, Started, TestDatastore, eventually, has_ended,
};

use crate::run::apply_once::unsent;
use crate::state_server::StateServer;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const OBJECTS: [&str; 4] = ["a", "b", "c", "d"];
const PLAN: [&str; 5] = ["plan", "--name", "x", "--run", "p"];
const APPLY: [&str; 9] =
    ["apply", "--name", "x", "--run", "a", "--plan", "p", "--datastore-timeout", "3s"];

const MOMENTS: u32 = 12;

/// What happens to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    /// SIGTERM for the runner.
    Term,
    /// SIGKILL for the runner alone.
    Kill,
    /// SIGKILL for all processes, as at the end of a pod.
    KillAll,
    /// SIGSTOP for the runner, and SIGCONT a second later.
    Stop,
    /// The datastore answers nothing but 503 until the runner has ended.
    Datastore,
    /// The backend refuses to store two states.
    Backend,
}

impl Disturbance {
    /// Those of any command.
    const ALL: [Self; 5] = [Self::Term, Self::Kill, Self::KillAll, Self::Stop, Self::Datastore];

    fn is_kill(self) -> bool {
        [Self::Kill, Self::KillAll].contains(&self)
    }
}

/// A layer of four objects.
struct Layer {
    sandbox: Sandbox,
    states: StateServer,
    datastore: TestDatastore,
    proxy: FaultyDatastore,
}

impl Layer {
    async fn new() -> Self {
        let (sandbox, datastore) = (Sandbox::new(RUNNER), TestDatastore::memory().await);
        let (states, backend) = StateServer::start();
        let proxy = FaultyDatastore::before(&datastore.url, Vec::new()).await;
        let resource = r#"
resource "terraform_data" "o" {
  for_each = toset(["a", "b", "c", "d"])
  provisioner "local-exec" {
    command = "echo ${each.key} >> created; sleep 0.2"
  }
}
"#;
        sandbox.write("main.tf", &format!("{backend}{resource}"));
        Self { sandbox, states, datastore, proxy }
    }

    async fn planned() -> Self {
        let layer = Self::new().await;
        let planned = layer.run(&PLAN);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        layer
    }

    fn run(&self, args: &[&str]) -> Ended {
        let ended = self.sandbox.run_with(&self.proxy.url, args);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        ended
    }

    /// Starts a command, and disturbs it after `moment`.
    fn run_disturbed(&self, args: &[&str], disturbance: Disturbance, moment: Duration) -> Ended {
        let runner = self.sandbox.start(Some(&self.proxy.url), args);
        std::thread::sleep(moment);
        self.disturb(&runner, disturbance);
        let ended = runner.wait();
        self.proxy.set_faults(Vec::new());
        self.states.contents().faults.clear();
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        ended
    }

    fn disturb(&self, runner: &Started, disturbance: Disturbance) {
        match disturbance {
            Disturbance::Term => runner.signal("TERM"),
            Disturbance::Kill => {
                let processes = runner.processes();
                runner.signal("KILL");
                let tool = &processes[1..];
                eventually("the tool has ended", || tool.iter().all(|pid| has_ended(*pid)));
            }
            Disturbance::KillAll => runner.kill_all(),
            Disturbance::Stop => {
                runner.signal("STOP");
                std::thread::sleep(Duration::from_secs(1));
                runner.signal("CONT");
            }
            Disturbance::Datastore => {
                let fault = |method| Fault { method, part: "", status: 503, times: usize::MAX };
                self.proxy.set_faults(["GET", "HEAD", "PUT", "POST"].map(fault).to_vec());
            }
            Disturbance::Backend => self.states.refuse("POST", 503, 2),
        }
    }

    /// How often each object was created.
    fn created(&self) -> [usize; 4] {
        let created = std::fs::read_to_string(self.sandbox.work().join("created"));
        let created = created.unwrap_or_default();
        OBJECTS.map(|object| created.lines().filter(|line| *line == object).count())
    }

    /// Whether the state has each object.
    fn known(&self) -> [bool; 4] {
        let state = self.states.contents().state.as_deref().map_or(Value::Null, json);
        let resources = state["resources"].as_array().cloned().unwrap_or_default();
        let instances = resources.iter().flat_map(|of| of["instances"].as_array().unwrap());
        let keys = instances.map(|of| of["index_key"].as_str().unwrap()).collect::<Vec<_>>();
        OBJECTS.map(|object| keys.contains(&object))
    }

    /// Does what the messages say, as long as something is left: plans again, and applies that.
    fn complete(&self, what: &str) {
        for number in 0..5 {
            let (plan, apply) = (format!("p{number}"), format!("a{number}"));
            let planned = self.run(&["plan", "--name", "x", "--run", &plan, "--detailed-exitcode"]);
            match planned.code {
                0 => return,
                2 => {}
                // A person compares, and unlocks.
                4 => {
                    self.states.contents().lock = None;
                    continue;
                }
                code => panic!("{what}: plan {code}: {}", planned.stderr),
            }
            let applied = self.run(&["apply", "--name", "x", "--run", &apply, "--plan", &plan]);
            assert_eq!(applied.code, 0, "{what}: {}", applied.stderr);
        }
        panic!("{what}: something is always left");
    }

    /// What is stored of a run can be read.
    async fn assert_whole(&self, run: &str, what: &str) {
        let stored = StoredRun::new(&self.datastore, "default", "x", run);
        let names = stored.names(0).await;
        for name in names.iter().filter(|name| name.contains(".json") && *name != "plan.json") {
            let bytes = stored.artifact(name, 0).await;
            let json = serde_json::from_slice::<Value>(&bytes);
            assert!(json.is_ok(), "{what}: {name}: {json:?}");
        }
    }
}

/// How long something takes.
fn timed(run: impl FnOnce() -> Ended) -> Duration {
    let started = Instant::now();
    let ended = run();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a minute"]
async fn plan_that_is_disturbed_at_any_moment_is_stored_whole_or_not_at_all() {
    let layer = Layer::new().await;
    let usual = timed(|| layer.run(&PLAN));
    for disturbance in Disturbance::ALL {
        for number in 0..MOMENTS {
            let moment = usual * number / MOMENTS;
            let layer = Layer::new().await;
            let ended = layer.run_disturbed(&PLAN, disturbance, moment);
            let what = format!("{disturbance:?} after {moment:?}: {}", ended.stderr);
            if disturbance != Disturbance::KillAll {
                eventually("the tool has ended", || layer.states.contents().lock.is_none());
            }
            // A plan that is interrupted may store an empty state: terraform saves what it has.
            assert_eq!((layer.known(), layer.created()), ([false; 4], [0; 4]), "{what}");
            layer.assert_whole("p", &what).await;
            let stored = StoredRun::new(&layer.datastore, "default", "x", "p");
            let report = stored.get("artifacts", "attempt=0&name=run.json").await;
            let is_complete = report.is_some_and(|report| json(&report)["outcome"] == "changes");
            layer.states.contents().lock = None;
            // A complete plan can be applied; else the same command makes one.
            let next = if is_complete { [&APPLY[..], &PLAN] } else { [&PLAN[..], &APPLY] };
            for args in next {
                let ended = layer.run(args);
                assert_eq!(ended.code, 0, "{what}\n{args:?} {}", ended.stderr);
            }
            assert_eq!((layer.known(), layer.created()), ([true; 4], [1; 4]), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a minute"]
async fn upload_that_is_disturbed_at_any_moment_is_completed_by_the_next_one() {
    let unsent_layer = async || {
        let layer = Layer::planned().await;
        let runner = layer.sandbox.start(Some(&layer.proxy.url), &APPLY);
        eventually("the apply runs", || layer.created() != [0; 4]);
        layer.disturb(&runner, Disturbance::Datastore);
        let ended = runner.wait();
        assert_eq!(ended.code, 10, "{}", ended.stderr);
        layer.proxy.set_faults(Vec::new());
        let state_home = layer.sandbox.path("home/.local/state");
        let dir = state_home.to_str().unwrap().to_owned();
        (layer, ["upload".to_owned(), dir])
    };
    let (layer, [upload, dir]) = unsent_layer().await;
    let usual = timed(|| layer.run(&[&upload, &dir]));
    for disturbance in Disturbance::ALL {
        // Each needs an apply that loses its datastore.
        for number in (0..MOMENTS).step_by(2) {
            let moment = usual * number / MOMENTS;
            let (layer, [upload, dir]) = unsent_layer().await;
            let ended = layer.run_disturbed(&[&upload, &dir], disturbance, moment);
            let what = format!("{disturbance:?} after {moment:?}: {}", ended.stderr);
            layer.assert_whole("a", &what).await;
            let sent = layer.run(&[&upload, &dir]);
            assert_eq!(sent.code, 0, "{what}\n{}", sent.stderr);
            let stored = StoredRun::new(&layer.datastore, "default", "x", "a");
            assert_eq!(json(&stored.artifact("run.json", 0).await)["outcome"], "applied", "{what}");
            let ledger = json(&stored.artifact("ledger.json", 0).await);
            let resources = ledger["resources"].as_array().unwrap();
            assert!(ledger["ended"].is_string() && resources.len() == 4, "{what}\n{ledger}");
            assert!(stored.log(0).await.contains("Apply complete!"), "{what}");
            assert!(!unsent(&layer.sandbox).join("default/x/a/0").exists(), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a minute"]
async fn apply_that_is_disturbed_at_any_moment_loses_nothing_and_repeats_nothing() {
    let layer = Layer::planned().await;
    let usual = timed(|| layer.run(&APPLY));
    for disturbance in Disturbance::ALL.into_iter().chain([Disturbance::Backend]) {
        for number in 0..MOMENTS {
            let moment = usual * number / MOMENTS;
            let layer = Layer::planned().await;
            let ended = layer.run_disturbed(&APPLY, disturbance, moment);
            let what = format!("{disturbance:?} after {moment:?}: {}", ended.stderr);
            // A signal ends a runner that has only just started.
            assert!(
                disturbance.is_kill() || ended.code >= 0 || layer.created() == [0; 4],
                "{what}"
            );
            if disturbance != Disturbance::KillAll {
                eventually("the tool has ended", || layer.states.contents().lock.is_none());
                // The state may have an object whose provisioner was stopped before it wrote its line.
                let (created, known) = (layer.created(), layer.known());
                let mut both = created.iter().zip(known);
                assert!(
                    both.all(|(count, known)| *count == 0 || known),
                    "{what}: {created:?} {known:?}"
                );
            }
            layer.complete(&what);
            assert_eq!(layer.known(), [true; 4], "{what}");
            // A command that was interrupted may be repeated.
            let most = match disturbance {
                Disturbance::Term | Disturbance::Kill | Disturbance::KillAll => 2,
                _ => 1,
            };
            let created = layer.created();
            assert!(created.iter().all(|count| (1..=most).contains(count)), "{what}: {created:?}");
            layer.assert_whole("a", &what).await;
        }
    }
}
