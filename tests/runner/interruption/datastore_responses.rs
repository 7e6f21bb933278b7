//! Responses of a datastore that a run must not follow, or may ignore.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use support::{Fault, FaultyDatastore, Sandbox, TestDatastore, TlsFront, eventually};

use crate::run::apply_once::applies;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// The annotation says what the plan's sum is; what its `run.json` says is not needed then.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_run_json_is_a_warning_if_the_layer_has_the_digest() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let plan = ["plan", "--layer", "layer.yaml", "--run", "p"];
    assert_eq!(sandbox.run_with(&datastore.url, &plan).code, 0);
    let query = "namespace=default&layer=hello&run=p&attempt=0&name=run.json";
    let url = datastore.url.join(&format!("/api/artifacts?{query}")).unwrap();
    let put = reqwest::Client::new().put(url).body("{\"version\": 1, \"plan\": ").send().await;
    assert_eq!(put.unwrap().status(), 200);

    let ended = sandbox.run_with(&datastore.url, &["apply", "--layer", "layer.yaml"]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("run.json of p/0 cannot be read"), "{}", ended.stderr);
}

/// A token goes nowhere but to the address that was named, nor does code come from elsewhere.
#[test]
fn datastore_redirect_is_reported_and_not_followed() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let datastore = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", datastore.local_addr().unwrap());
    let to = format!("http://{}", elsewhere.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {to}/api/attempts?x\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n"
    );
    std::thread::spawn(move || {
        for stream in datastore.incoming() {
            let mut stream = stream.unwrap();
            drop(stream.read(&mut [0; 4096]));
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run(&["plan", "--datastore", &url]);
    assert_eq!(ended.code, 10, "{}", ended.stderr);
    let reported = format!("307 Temporary Redirect: the redirect to {to} is not followed");
    assert!(ended.stderr.contains(&reported), "{}", ended.stderr);
    assert!(elsewhere.accept().is_err(), "the other server got a connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn record_of_an_apply_that_is_refused_at_first_is_stored_after_the_other_files() {
    let datastore = TestDatastore::memory().await;
    let refused = Fault { method: "PUT", part: "name=applied.json", status: 403, times: 1 };
    let refusing = FaultyDatastore::before(&datastore.url, vec![refused]).await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let args = ["apply", "--no-plan", "--name", "x", "--run", "a"];
    let ended = sandbox.run_with(&refusing.url, &args);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    assert_eq!(json(&stored.artifact("applied.json", 0).await)["applied"], "unplanned");
}

/// The whole program: the exit code, the file, and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn upload_refused_with_412_or_507_is_exit_code_10_and_names_the_file() {
    let datastore = TestDatastore::memory().await;
    for (status, args, part, file, next) in [
        (
            412,
            &["plan"][..],
            "format=json",
            "plan.json",
            "run again under another --run, or without",
        ),
        (
            507,
            &["plan"],
            "format=pretty",
            "pretty.plan",
            "free some space in the datastore's storage",
        ),
        (507, &["apply", "--no-plan"], "/api/logs", "run.log", "runner upload "),
    ] {
        let refused = Fault { method: "PUT", part, status, times: usize::MAX };
        let refusing = FaultyDatastore::before(&datastore.url, vec![refused]).await;
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
        let run = format!("{}-{status}", args[0]);
        let args = [args, &["--name", "x", "--run", &run, "--result", "result.json"]].concat();
        let ended = sandbox.run_with(&refusing.url, &args);
        assert_eq!(ended.code, 10, "{status}: {}", ended.stderr);
        for text in [&*format!("({file})"), &status.to_string(), "next: ", next] {
            assert!(ended.stderr.contains(text), "{status}: {text}: {}", ended.stderr);
        }
        let report = json(sandbox.read("result.json").as_bytes());
        let outcome = if args[0] == "apply" { "applied" } else { "failed" };
        assert_eq!(report["outcome"], outcome, "{report}");
    }
}

/// The signal decides, although the datastore gets less time after it.
#[tokio::test(flavor = "multi_thread")]
async fn plan_that_is_stopped_while_the_datastore_hangs_was_stopped() {
    let datastore = TestDatastore::memory().await;
    let hangs = Fault { method: "PUT", part: "", status: 0, times: usize::MAX };
    let proxy = FaultyDatastore::before(&datastore.url, vec![hangs]).await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let plan = ["plan", "--name", "x", "--run", "r", "--grace", "8s"];
    let runner = sandbox.start(Some(&proxy.url), &plan);
    eventually("it uploads", || proxy.seen().iter().any(|seen| seen.starts_with("PUT")));
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(ended.stderr.contains("stopped by SIGTERM"), "{}", ended.stderr);
}

/// A proxy with a login page answers 200 to everything. Nothing is stored by that, and a repeated order must not apply again.
#[tokio::test(flavor = "multi_thread")]
async fn page_of_a_proxy_is_no_answer_to_an_upload() {
    let datastore = TestDatastore::memory().await;
    let page = |method, part| Fault { method, part, status: 200, times: usize::MAX };
    for (run, (args, faults, applied)) in [
        (&["apply", "--no-plan"][..], vec![page("POST", "/api/attempts")], 0),
        (&["apply", "--no-plan"], vec![page("PUT", "name=ledger.json")], 0),
        (
            &["apply", "--no-plan"],
            vec![page("PUT", "/api/applied"), page("PUT", "applied.json")],
            1,
        ),
        (&["apply", "--no-plan"], vec![page("PUT", "/api/logs")], 1),
        (&["plan"], vec![page("PUT", "format=bin")], 0),
    ]
    .into_iter()
    .enumerate()
    {
        let proxy = FaultyDatastore::before(&datastore.url, faults).await;
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
        let run = format!("r{run}");
        let args = [args, &["--name", "x", "--run", &run]].concat();
        let ended = sandbox.run_with(&proxy.url, &args);
        assert_eq!((ended.code, applies(&sandbox)), (10, applied), "{}", ended.stderr);
        assert!(ended.stderr.contains("200 OK with a body"), "{}", ended.stderr);
        proxy.set_faults(Vec::new());
        let again = sandbox.run_with(&proxy.url, &args);
        assert_eq!(applies(&sandbox), usize::from(args[0] == "apply"), "{}", again.stderr);
    }
}

/// Plancha's datastore says what it has stored. An empty answer of something else does not.
#[tokio::test(flavor = "multi_thread")]
async fn empty_answer_without_a_digest_is_none_of_planchas() {
    let datastore = TestDatastore::memory().await;
    let proxy = FaultyDatastore::unnamed(&datastore.url).await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run_with(&proxy.url, &["plan", "--name", "x"]);
    assert_eq!(ended.code, 10, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("it is not the answer of Plancha's datastore"),
        "{}",
        ended.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn datastore_behind_a_wrong_scheme_or_an_unknown_authority_has_a_next_step() {
    let datastore = TestDatastore::memory().await;
    let plain = datastore.url.as_str().trim_end_matches('/').to_owned();
    let front = TlsFront::before(&plain);
    let https = front.url();
    let ca_file = front.ca_file();
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    sandbox.write("main.tf", "");
    let run = |url: &str, more: &[&str]| {
        let args = [&["runs", "--name", "x", "--datastore", url], more].concat();
        sandbox.run(&args)
    };
    for (url, expected) in [
        (&*https, "--ca-file or PLANCHA_CA_FILE"),
        (&*https.replace("https://", "http://"), "write https:// instead of http://"),
        (&*plain.replace("http://", "https://"), "write http:// instead of https://"),
    ] {
        let ended = run(url, &[]);
        assert_eq!(ended.code, 10, "{url}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{url}: {}", ended.stderr);
    }
    let ended = run(&https, &["--ca-file", &ca_file.display().to_string()]);
    assert!(!ended.stderr.contains("certificate"), "{}", ended.stderr);
}
