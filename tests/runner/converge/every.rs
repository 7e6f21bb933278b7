//! `--every`: rounds until a signal, and what `--listen` serves meanwhile.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Deref;

use support::{Ended, Sandbox, Started, eventually, on_path};

use crate::RUNNER;
use crate::real_layer::layers;

/// A runner that goes on until a signal, or until its test has failed.
pub(super) struct Rounds(pub(super) Option<Started>);

impl Deref for Rounds {
    type Target = Started;

    fn deref(&self) -> &Started {
        self.0.as_ref().unwrap()
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        if let Some(runner) = self.0.take() {
            runner.kill_all();
        }
    }
}

impl Rounds {
    pub(super) fn wait(mut self) -> Ended {
        self.0.take().unwrap().wait()
    }
}

fn start(sandbox: &Sandbox, args: &[&str]) -> Rounds {
    Rounds(Some(sandbox.start(None, args)))
}

/// The address of the listener, once the log names it.
pub(super) fn address(runner: &Rounds) -> String {
    let mut address = None;
    eventually("the listener", || {
        let stderr = runner.stderr();
        let line = stderr.lines().find_map(|line| line.split_once("are at http://"));
        // The line is a text or JSON.
        address =
            line.map(|(_, rest)| rest.trim_end_matches(|c: char| !c.is_ascii_digit()).to_owned());
        address.is_some()
    });
    address.unwrap()
}

/// The status and the body of an answer.
pub(super) fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn metrics(address: &str) -> String {
    let (code, page) = get(address, "/metrics");
    assert_eq!(code, 200, "{page}");
    page
}

fn rounds(runner: &Rounds) -> usize {
    runner.stderr().matches("ended with exit code").count()
}

/// Waits until this line is on the page of metrics.
fn has(address: &str, line: &str) {
    eventually(line, || metrics(address).lines().any(|there| there == line));
}

#[test]
fn rounds_go_on_after_failures_and_the_metrics_follow_the_layers() {
    let sandbox = layers(&[("a", "", "cluster_status"), ("b", "", ""), ("c", "b", "")]);
    let common =
        ["--every", "100ms", "--listen", "127.0.0.1:0", "--metrics-prefix", "candi_converge"];
    let args = [&["converge", "--source", "code", "layers"], &common[..]].concat();
    let runner = start(&sandbox, &args);
    let address = address(&runner);
    let labels = |layer: &str| format!("layer=\"{layer}\",namespace=\"default\"");
    has(
        &address,
        &format!("candi_converge_layer_last_result{{{},result=\"applied\"}} 1", labels("c")),
    );
    has(&address, "candi_converge_cluster_status{status=\"ok\"} 1");
    eventually("the first round ends", || get(&address, "/readyz").0 == 200);
    assert_eq!(get(&address, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get(&address, "/other").0, 404);
    let page = metrics(&address);
    for name in
        ["layer_phase_duration_seconds", "layer_runs_total", "layer_last_success_timestamp_seconds"]
    {
        assert!(page.contains(&format!("candi_converge_{name}{{")), "{name}\n{page}");
    }
    has(
        &address,
        &format!("candi_converge_layer_last_result{{{},result=\"unchanged\"}} 1", labels("a")),
    );

    sandbox.write("code/b/main.tf", "resource \"terraform_data\" \"a\" {");
    has(&address, &format!("candi_converge_layer_status{{{},status=\"error\"}} 1", labels("b")));
    has(
        &address,
        &format!("candi_converge_layer_last_result{{{},result=\"blocked\"}} 1", labels("c")),
    );
    sandbox.write("code/b/main.tf", "resource \"terraform_data\" \"a\" {}\n");
    has(&address, &format!("candi_converge_layer_status{{{},status=\"ok\"}} 1", labels("b")));

    sandbox.write("layers/c.yaml", "kind: [");
    eventually("the round is refused", || runner.logged("c.yaml"));
    eventually("it is counted", || !metrics(&address).contains("candi_converge_exporter_errors 0"));
    assert!(metrics(&address).contains(&labels("c")), "what was known stays");
    for name in ["c", "b", "a"] {
        std::fs::remove_file(sandbox.work().join(format!("layers/{name}.yaml"))).unwrap();
        eventually("the layer disappears", || !metrics(&address).contains(&labels(name)));
    }
    let before = rounds(&runner);
    eventually("rounds without layers", || rounds(&runner) > before + 2);
    runner.signal("TERM");
    let ended = runner.wait();
    assert!([0, 143].contains(&ended.code), "{}", ended.stderr);
    assert!(sandbox.is_clean());
}

#[test]
fn a_signal_ends_the_wait_at_once_and_a_running_round_as_it_ends_a_run() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let runner = start(&sandbox, &["check", "--every", "1h", "--jitter", "50%"]);
    eventually("the round", || rounds(&runner) == 1);
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);

    let sandbox = Sandbox::new(RUNNER).hello();
    let sandbox = sandbox.fake_terraform("[ $STEP != plan ] || { touch planning; exec sleep 30; }");
    let runner = start(&sandbox, &["check", "--every", "1ms", "--listen", "127.0.0.1:0"]);
    let address = address(&runner);
    eventually("the plan", || sandbox.calls().iter().any(|call| call.starts_with("plan")));
    assert_eq!(get(&address, "/readyz"), (503, "the first round has not ended\n".to_owned()));
    runner.signal("INT");
    let ended = runner.wait();
    assert_eq!(ended.code, 130, "{}", ended.stderr);
    assert_eq!(sandbox.calls().iter().filter(|call| call.starts_with("plan")).count(), 1);
}

#[test]
fn a_tool_that_hangs_makes_the_process_unhealthy() {
    let sandbox = layers(&[("a", "", ""), ("b", "", "")]);
    let real = on_path("terraform").unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$PWD $1\" in */a' 'plan) exec sleep 60;; esac\nexec {} \"$@\"\n",
        real.display()
    );
    sandbox.script("terraform", &script);
    let common = [
        "--parallel",
        "2",
        "--every",
        "1h",
        "--listen",
        "127.0.0.1:0",
        "--unhealthy-after",
        "500ms",
    ];
    let runner = start(&sandbox, &[&["check", "--source", "code", "layers"], &common[..]].concat());
    let address = address(&runner);
    let reason = "default/a has made no progress for";
    eventually("it is unhealthy", || {
        let (code, text) = get(&address, "/healthz");
        code == 503 && text.starts_with(reason)
    });
    assert_eq!(get(&address, "/readyz").0, 503);
    runner.signal("TERM");
    assert_eq!(runner.wait().code, 143);
}

#[test]
fn rounds_leave_no_file_and_no_thread_open() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let runner = start(&sandbox, &["check", "--every", "1ms"]);
    let count = |what: &str| {
        let pid = runner.processes()[0];
        std::fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count()
    };
    // What is open at least, over some rounds: during a round there is more.
    let least = |from: usize| {
        let mut least = (usize::MAX, usize::MAX);
        eventually("some rounds", || {
            least = (least.0.min(count("fd")), least.1.min(count("task")));
            rounds(&runner) >= from + 5
        });
        least
    };
    let (early, later) = (least(1), least(30));
    // One in every second round would be more.
    assert!(later.0 < early.0 + 10 && later.1 < early.1 + 10, "{early:?}, later {later:?}");
    runner.signal("TERM");
    let ended = runner.wait();
    assert!([0, 143].contains(&ended.code), "{}", ended.stderr);
    assert!(sandbox.is_clean());
}

#[test]
fn wrong_combinations_are_usage_errors() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    for args in [
        &["converge", "--every", "1h", "--auto-approve"][..],
        &["converge", "--every", "1h", "--run", "x"],
        &["converge", "--every", "1h", "--summary", "x.md"],
        &["converge", "--every", "0s"],
        &["converge", "--every", "1h", "--jitter", "101%"],
        &["converge", "--jitter", "10%"],
        &["check", "--every", "1h", "--detailed-exitcode"],
        &["check", "--listen", "127.0.0.1:0"],
        &["check", "--every", "1h", "--unhealthy-after", "1m"],
        &["check", "--metrics-prefix", "a-b"],
        // It is wrong in the first round, and would be in each.
        &["check", "--every", "1ms", "--plan-file", "x"],
    ] {
        let ended = sandbox.run(args);
        assert_eq!(ended.code, 64, "{args:?}: {}", ended.stderr);
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = sandbox.run(&["check", "--every", "1h", "--listen", &address]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains(&address), "{}", ended.stderr);
    assert!(sandbox.calls().is_empty());
}
