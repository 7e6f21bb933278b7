//! An apply that is disturbed at each moment, with a real terraform and a backend with locks: no created object is missing from
//! the state, nothing that was complete is created again, what is stored is whole, and a new plan applies the rest.

use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Ended, Fault, FaultyDatastore, Sandbox, Started, TestDatastore, eventually};

use crate::state_server::StateServer;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const OBJECTS: [&str; 4] = ["a", "b", "c", "d"];
const PLAN: [&str; 5] = ["plan", "--name", "x", "--run", "p"];
const APPLY: [&str; 9] =
    ["apply", "--name", "x", "--run", "a", "--plan", "p", "--datastore-timeout", "3s"];

/// What happens to an apply.
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

/// A layer with a plan that is to be applied.
struct Layer {
    sandbox: Sandbox,
    states: StateServer,
    datastore: TestDatastore,
    proxy: FaultyDatastore,
}

impl Layer {
    async fn planned() -> Self {
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
        let layer = Self { sandbox, states, datastore, proxy };
        let planned = layer.run(&PLAN);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        layer
    }

    fn run(&self, args: &[&str]) -> Ended {
        let ended = self.sandbox.run_with(&self.proxy.url, args);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        ended
    }

    /// Applies the plan. After `moment` it is disturbed.
    fn apply(&self, disturbance: Disturbance, moment: Duration) -> Ended {
        let runner = self.sandbox.start(Some(&self.proxy.url), &APPLY);
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
            Disturbance::Kill => runner.signal("KILL"),
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
    async fn assert_whole(&self, what: &str) {
        let stored = StoredRun::new(&self.datastore, "default", "x", "a");
        let names = stored.names(0).await;
        for name in names.iter().filter(|name| name.contains(".json") && *name != "plan.json") {
            let bytes = stored.artifact(name, 0).await;
            let json = serde_json::from_slice::<Value>(&bytes);
            assert!(json.is_ok(), "{what}: {name}: {json:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a minute"]
async fn apply_that_is_disturbed_at_any_moment_loses_nothing_and_repeats_nothing() {
    const MOMENTS: u32 = 12;
    let layer = Layer::planned().await;
    let started = Instant::now();
    assert_eq!(layer.run(&APPLY).code, 0);
    let usual = started.elapsed();
    let all = [
        Disturbance::Term,
        Disturbance::Kill,
        Disturbance::KillAll,
        Disturbance::Stop,
        Disturbance::Datastore,
        Disturbance::Backend,
    ];
    for disturbance in all {
        for number in 0..MOMENTS {
            let moment = usual * number / MOMENTS;
            let layer = Layer::planned().await;
            let ended = layer.apply(disturbance, moment);
            let what = format!("{disturbance:?} after {moment:?}: {}", ended.stderr);
            let is_killed = [Disturbance::Kill, Disturbance::KillAll].contains(&disturbance);
            // A signal ends a runner that has only just started.
            assert!(is_killed || ended.code >= 0 || layer.created() == [0; 4], "{what}");
            if disturbance != Disturbance::KillAll {
                eventually("the tool has ended", || layer.states.contents().lock.is_none());
                let lost = layer.created().map(|count| count > 0) != layer.known();
                assert!(!lost, "{what}: {:?} {:?}", layer.created(), layer.known());
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
            layer.assert_whole(&what).await;
        }
    }
}
