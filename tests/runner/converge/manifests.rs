//! `deploy/kubernetes/converge`: its containers run as they are written, and its parts fit together.

use std::path::Path;

use serde_json::Value;
use support::{Sandbox, Started, TestDatastore};

use crate::RUNNER;
use crate::converge::every::{Rounds, address, get};
use crate::source::checkout::{commit_all, git};

const LAYERS: &str = include_str!("../../../deploy/kubernetes/converge/layers.yaml");
const JOB: &str = include_str!("../../../deploy/kubernetes/converge/job.yaml");
const CRON_JOB: &str = include_str!("../../../deploy/kubernetes/converge/cronjob.yaml");
const DEPLOYMENT: &str = include_str!("../../../deploy/kubernetes/converge/deployment.yaml");
const MONITOR: &str = include_str!("../../../deploy/kubernetes/converge/pod-monitor.yaml");

/// The object of this kind and name.
fn object(text: &str, kind: &str, name: &str) -> Value {
    let objects = serde_saphyr::from_multiple::<Value>(text).unwrap();
    let is_it = |object: &Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.into_iter().find(is_it).unwrap()
}

fn pods() -> [(&'static str, Value); 3] {
    let name = "plancha-converge";
    let job = object(JOB, "Job", name)["spec"].clone();
    let cron_job = object(CRON_JOB, "CronJob", name)["spec"]["jobTemplate"]["spec"].clone();
    let deployment = object(DEPLOYMENT, "Deployment", name)["spec"].clone();
    for job in [&job, &cron_job] {
        assert_eq!(job["backoffLimit"], 0);
        assert!(job["ttlSecondsAfterFinished"].is_u64());
    }
    assert_eq!(
        (&deployment["replicas"], &deployment["strategy"]["type"]),
        (&1.into(), &"Recreate".into())
    );
    [("job", job), ("cron job", cron_job), ("deployment", deployment)]
        .map(|(name, owner)| (name, owner["template"]["spec"].clone()))
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

fn items<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Variables with values of their own.
fn variables(container: &Value) -> Vec<(&str, &str)> {
    let variables = items(container, "env").iter();
    variables
        .map(|entry| (entry["name"].as_str().unwrap(), entry["value"].as_str().unwrap_or_default()))
        .collect()
}

#[test]
fn pods_have_few_rights_and_every_variable_is_one_of_the_program() {
    let help = Sandbox::new(RUNNER).run(&["converge", "--help"]).stdout;
    for (name, pod) in pods() {
        let of_pod = &pod["securityContext"];
        assert_eq!(
            (&of_pod["runAsUser"], &of_pod["runAsNonRoot"]),
            (&65534.into(), &true.into()),
            "{name}"
        );
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        let volumes =
            items(&pod, "volumes").iter().map(|volume| &volume["name"]).collect::<Vec<_>>();
        for container in items(&pod, "containers") {
            let of_container = &container["securityContext"];
            assert_eq!(of_container["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(of_container["capabilities"]["drop"], serde_json::json!(["ALL"]), "{name}");
            assert!(
                items(container, "volumeMounts")
                    .iter()
                    .all(|mount| volumes.contains(&&mount["name"])),
                "{name}"
            );
        }
        let variables = variables(&pod["containers"][0]);
        let of = |wanted: &str| variables.iter().find(|(name, _)| *name == wanted).unwrap().1;
        let grace = of("PLANCHA_GRACE").strip_suffix('s').unwrap().parse::<u64>().unwrap();
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() >= grace + 30, "{name}");
        assert_eq!(of("PLANCHA_ALLOWED_COMMANDS"), "converge");
        for (variable, _) in
            variables.iter().filter(|(variable, _)| variable.starts_with("PLANCHA_"))
        {
            let is_known = *variable == "PLANCHA_ALLOWED_COMMANDS" || *variable == "PLANCHA_TOKEN";
            assert!(
                is_known
                    || help.contains(&format!("[env: {variable}=]"))
                    || help.contains(&format!("env: {variable}]")),
                "{name}: {variable}"
            );
        }
    }
}

#[test]
fn metrics_are_read_only_through_the_proxy() {
    let [_, _, (_, pod)] = pods();
    let [converge, proxy] = items(&pod, "containers") else { panic!("two containers") };
    let flag = |container: &Value, name: &str| {
        let mut args = texts(&container["args"]).into_iter();
        args.find_map(|arg| arg.strip_prefix(name)?.strip_prefix('=')).unwrap().to_owned()
    };
    let listen = flag(converge, "--listen");
    assert!(listen.starts_with("127.0.0.1:"), "{listen}");
    assert_eq!(flag(proxy, "--upstream"), format!("http://{listen}/"));
    assert_eq!(flag(proxy, "--ignore-paths"), "/healthz,/readyz");
    assert!(converge["ports"].is_null());
    let port = &proxy["ports"][0];
    assert!(
        flag(proxy, "--secure-listen-address").ends_with(&format!(":{}", port["containerPort"]))
    );
    let get = &converge["readinessProbe"]["httpGet"];
    assert_eq!((&get["port"], &get["scheme"]), (&port["containerPort"], &"HTTPS".into()));
    // A proxy that cannot start must not end a converge that works.
    let alive = texts(&converge["livenessProbe"]["exec"]["command"]);
    assert_eq!(alive.last().unwrap(), &format!("http://{listen}/healthz"));
    let endpoint =
        object(MONITOR, "PodMonitor", "plancha-converge")["spec"]["podMetricsEndpoints"][0].clone();
    assert_eq!((&endpoint["port"], &endpoint["honorLabels"]), (&port["name"], &true.into()));
    let config =
        object(DEPLOYMENT, "ConfigMap", "plancha-converge-proxy")["data"]["config.yaml"].clone();
    let config = serde_saphyr::from_str::<Value>(config.as_str().unwrap()).unwrap();
    let asked = &config["authorization"]["resourceAttributes"];
    let rule = object(MONITOR, "Role", "plancha-metrics-reader")["rules"][0].clone();
    assert_eq!(rule["resourceNames"], serde_json::json!([asked["name"]]));
    let resource = format!(
        "{}/{}",
        asked["resource"].as_str().unwrap(),
        asked["subresource"].as_str().unwrap()
    );
    assert_eq!(rule["resources"], serde_json::json!([resource]));
    assert_eq!(rule["apiGroups"], serde_json::json!([asked["apiGroup"]]));
}

/// Writes a ConfigMap as a pod sees it: the files are links into a directory that a change replaces.
fn mount(dir: &Path, config_map: &Value) {
    std::fs::create_dir_all(dir.join("..1")).unwrap();
    std::os::unix::fs::symlink("..1", dir.join("..data")).unwrap();
    for (name, text) in config_map["data"].as_object().unwrap() {
        std::fs::write(dir.join("..1").join(name), text.as_str().unwrap()).unwrap();
        std::os::unix::fs::symlink(Path::new("..data").join(name), dir.join(name)).unwrap();
    }
}

/// What the pods mount, and a repository with the code of their layers.
fn site() -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    let root = sandbox.path("root");
    for (name, path) in [("plancha-layers", "layers"), ("plancha-policy", "policy")] {
        mount(&root.join("etc/plancha").join(path), &object(LAYERS, "ConfigMap", name));
    }
    for dir in ["work", "tmp", "var/run/secrets/plancha"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    std::fs::write(root.join("var/run/secrets/plancha/token"), "none").unwrap();
    let repository = sandbox.path("repository");
    for layer in ["network", "cluster"] {
        let dir = repository.join("live").join(layer);
        std::fs::create_dir_all(&dir).unwrap();
        let state = sandbox.path(&format!("{layer}.tfstate"));
        let code = format!(
            "terraform {{\n  backend \"local\" {{ path = \"{}\" }}\n}}\nresource \"terraform_data\" \"a\" {{}}\n",
            state.display()
        );
        std::fs::write(dir.join("main.tf"), code).unwrap();
    }
    git(&repository, &["init", "--quiet"]);
    commit_all(&repository);
    sandbox
}

/// Starts the first container of a pod, with its command, arguments and variables, and with its paths below `root`. The mounts of
/// the pod are read-only.
fn start(sandbox: &Sandbox, datastore: &TestDatastore, pod: &Value) -> Started {
    let root = sandbox.path("root");
    let moved = |text: &str| {
        let below = |prefix: &str| format!("{}{prefix}", root.display());
        let text = ["/etc/plancha", "/var/run/secrets/plancha", "/work", "/tmp"]
            .into_iter()
            .find(|prefix| text.starts_with(prefix))
            .map_or_else(|| text.to_owned(), |prefix| text.replacen(prefix, &below(prefix), 1));
        text.replace("127.0.0.1:9101", "127.0.0.1:0")
    };
    let container = &pod["containers"][0];
    assert_eq!(texts(&container["command"]), ["runner"]);
    let args = texts(&container["args"]).into_iter().map(moved);
    let script = "mount --bind \"$0/etc\" \"$0/etc\" && mount -o remount,bind,ro \"$0/etc\" || exit 99; exec \"$@\"";
    let words = ["-rm", "sh", "-c", script, root.to_str().unwrap(), RUNNER].map(str::to_owned);
    let words = words.into_iter().chain(args).collect::<Vec<_>>();
    let words = words.iter().map(String::as_str).collect::<Vec<_>>();
    let mut command = sandbox.program(Path::new("unshare"), &words);
    for (name, value) in variables(container) {
        let value = match name {
            "PLANCHA_SOURCE" => format!("file://{}", sandbox.path("repository").display()),
            "PLANCHA_DATASTORE_URL" => datastore.url.to_string(),
            _ => moved(value),
        };
        command.env(name, value);
    }
    Started::spawn(command)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mounts in a user namespace"]
async fn the_containers_converge_the_layers_of_the_config_map() {
    let [(_, job), (_, cron_job), (_, deployment)] = pods();
    let (sandbox, datastore) = (site(), TestDatastore::memory().await);
    for (pod, result) in [(job, "applied"), (cron_job, "unchanged")] {
        let ended = start(&sandbox, &datastore, &pod).wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        for layer in ["network", "cluster"] {
            let row = ended.stderr.lines().rfind(|line| line.contains(&format!("team-a/{layer} ")));
            assert!(row.is_some_and(|row| row.contains(result)), "{}", ended.stderr);
        }
    }
    let runner = Rounds(Some(start(&sandbox, &datastore, &deployment)));
    let address = address(&runner);
    support::eventually("it is ready", || get(&address, "/readyz").0 == 200);
    let (code, page) = get(&address, "/metrics");
    assert_eq!(code, 200);
    for layer in ["network", "cluster"] {
        let status = format!(
            "plancha_layer_status{{layer=\"{layer}\",namespace=\"team-a\",status=\"ok\"}} 1"
        );
        assert!(page.contains(&status), "{page}");
        // The datastore has the runs of all three.
        let runs = format!(
            "plancha_layer_runs_total{{class=\"ok\",layer=\"{layer}\",namespace=\"team-a\"}} 3"
        );
        assert!(page.contains(&runs), "{page}");
    }
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
