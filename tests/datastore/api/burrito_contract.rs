//! Burrito's contract (`docs/contract`), id by id (DS06 to DS17, DS24), as Burrito's own client sends requests: a raw token,
//! sorted parameters, `attempt=` where there is none.

#![expect(clippy::disallowed_types, reason = "a test of the program must start it")]

use std::process::Command;

use datastore::config::Config;
use datastore::store::Storage;
use datastore::{Auth, Callers, Isolation, Kubernetes};
use reqwest::Method;
use support::{FakeTokenReviews, TestDatastore};
use tempfile::TempDir;

use crate::http::{Answer, files, noise, request, send};

struct Burrito {
    datastore: TestDatastore,
    root: TempDir,
    _kube: FakeTokenReviews,
}

const RUN: &str = "layer=network&namespace=team-a&run=network-plan-x7";
const BUNDLE: &str = "repository/revision/bundle";

impl Burrito {
    async fn start() -> Self {
        let (kube, root) = (FakeTokenReviews::start().await, TempDir::new().unwrap());
        kube.account("burrito-system/burrito-controllers", "controllers");
        let kubernetes = Some(Kubernetes {
            api: kube.api(),
            allowed: Some(vec!["burrito-system/burrito-controllers".parse().unwrap()]),
            main_namespace: Some("burrito-system".to_owned()),
            isolation: Isolation::Namespace,
        });
        let auth = Auth::Callers(Box::new(Callers { kubernetes, ..Callers::default() }));
        let storage = Storage::File(root.path().to_owned());
        let datastore = TestDatastore::of(Config { auth, ..Config::of(storage) }).await;
        Self { datastore, root, _kube: kube }
    }

    async fn ask(&self, method: Method, rest: &str, body: impl Into<Vec<u8>>) -> Answer {
        let request = request(&self.datastore, method, rest).header("authorization", "controllers");
        send(request.body(body.into())).await
    }

    async fn get(&self, rest: &str) -> Answer {
        self.ask(Method::GET, rest, "").await
    }

    /// A PUT counts only if it is answered exactly so.
    async fn put(&self, rest: &str, body: impl Into<Vec<u8>>) {
        let answer = self.ask(Method::PUT, rest, body).await;
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{rest}: {}", answer.text());
    }

    async fn refusals(&self, requests: &[&str]) -> String {
        let mut reported = String::new();
        for line in requests {
            let (method, rest) = line.split_once(' ').unwrap();
            let answer = self.ask(method.parse().unwrap(), rest, "x").await;
            reported.extend([line, " -> ", &answer.refusal(), "\n"]);
        }
        reported
    }
}

fn plan(attempt: &str, format: &str) -> String {
    format!("plans?attempt={attempt}&format={format}&{RUN}")
}

#[tokio::test]
async fn ds06_four_plan_formats_are_read_back_exactly_from_burritos_keys() {
    let burrito = Burrito::start().await;
    for (format, file) in [
        ("pretty", "pretty.plan"),
        ("json", "plan.json"),
        ("short", "short.diff"),
        ("bin", "plan.bin"),
    ] {
        let body = noise(70_000, u64::from(format.as_bytes()[0]));
        burrito.put(&plan("0", format), body.clone()).await;
        let answer = burrito.get(&plan("0", format)).await;
        assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
        assert!(answer.body == body, "{format}");
        let key = format!("layers/team-a/network/network-plan-x7/0/{file}");
        assert!(std::fs::read(burrito.root.path().join(key)).unwrap() == body, "{file}");
    }
    let all = files(burrito.root.path());
    assert_eq!(all.iter().filter(|path| path.starts_with("layers")).count(), 4);
}

#[tokio::test]
async fn ds06_bucket_objects_have_burritos_keys() {
    for datastore in TestDatastore::doubles().await {
        for format in ["pretty", "json", "short", "bin"] {
            let put = request(&datastore, Method::PUT, &plan("10", format)).body(format);
            assert_eq!(send(put).await.status, 200);
        }
        let put = request(&datastore, Method::PUT, &format!("logs?attempt=10&{RUN}")).body("log");
        assert_eq!(send(put).await.status, 200);
        let run = "layers/team-a/network/network-plan-x7/10";
        let expected = [("plan.bin", "bin"), ("plan.json", "json"), ("pretty.plan", "pretty")]
            .into_iter()
            .chain([("run.log", "log"), ("short.diff", "short")]);
        let keys = expected.clone().map(|(file, _)| format!("{run}/{file}"));
        assert_eq!(datastore.cloud().artifacts(), keys.collect::<Vec<_>>());
        for (file, content) in expected {
            let stored_bytes = datastore.cloud().object(&format!("{run}/{file}"));
            assert_eq!(stored_bytes.as_deref(), Some(content.as_bytes()), "{file}");
        }
    }
}

#[tokio::test]
async fn ds07_ds15_missing_objects_return_burritos_messages() {
    let burrito = Burrito::start().await;
    insta::assert_snapshot!(burrito.refusals(&[
        "PUT plans?attempt=&format=json&layer=a&namespace=b&run=c",
        "PUT plans?attempt=0&format=json&layer=&namespace=b&run=c",
        "GET plans?format=json&layer=a&namespace=b",
        "GET plans?layer=a&namespace=&run=c",
        "GET logs?attempt=0&layer=a&namespace=b",
        "PUT logs?layer=a&namespace=b&run=c",
        "GET repository/revision/bundle?name=a&namespace=b&ref=main",
        "PUT repository/revision/bundle?name=a&namespace=b&ref=main&revision=",
        "GET repository/revision/bundle?name=a&ref=main&revision=abc",
    ]).await, @"
        PUT plans?attempt=&format=json&layer=a&namespace=b&run=c -> 400 text/plain; charset=UTF-8 missing query parameters
        PUT plans?attempt=0&format=json&layer=&namespace=b&run=c -> 400 text/plain; charset=UTF-8 missing query parameters
        GET plans?format=json&layer=a&namespace=b -> 400 text/plain; charset=UTF-8 missing query parameters
        GET plans?layer=a&namespace=&run=c -> 400 text/plain; charset=UTF-8 missing query parameters
        GET logs?attempt=0&layer=a&namespace=b -> 400 text/plain; charset=UTF-8 missing query parameters
        PUT logs?layer=a&namespace=b&run=c -> 400 text/plain; charset=UTF-8 missing query parameters
        GET repository/revision/bundle?name=a&namespace=b&ref=main -> 400 text/plain; charset=UTF-8 missing revision parameter
        PUT repository/revision/bundle?name=a&namespace=b&ref=main&revision= -> 400 text/plain; charset=UTF-8 missing revision parameter
        GET repository/revision/bundle?name=a&ref=main&revision=abc -> 400 text/plain; charset=UTF-8 missing query parameters
        ");
}

#[tokio::test]
async fn ds08_missing_or_unknown_format_reads_the_json() {
    let burrito = Burrito::start().await;
    burrito.put(&plan("0", "json"), "{}").await;
    burrito.put(&plan("0", "bin"), "bin").await;
    for rest in [format!("plans?attempt=0&{RUN}"), plan("0", "zzz"), plan("0", "")] {
        assert_eq!(burrito.get(&rest).await.text(), "{}", "{rest}");
    }
}

#[tokio::test]
async fn ds09_the_latest_attempt_is_the_greatest_number() {
    let burrito = Burrito::start().await;
    for attempt in ["0", "1", "2", "10"] {
        burrito.put(&plan(attempt, "short"), attempt).await;
    }
    for rest in [plan("", "short"), format!("plans?format=short&{RUN}")] {
        assert_eq!(burrito.get(&rest).await.text(), "10");
    }
    assert_eq!(burrito.get(&plan("2", "short")).await.text(), "2");
}

#[tokio::test]
async fn ds10_ds11_ds13_latest_attempt_is_read_even_without_the_file_and_returns_404() {
    let burrito = Burrito::start().await;
    burrito.put(&plan("2", "short"), "old").await;
    burrito.put(&format!("logs?attempt=3&{RUN}"), "log").await;
    let elsewhere = "attempt=&layer=network&namespace=team-a&run=none";
    let rest = [
        format!("GET {}", plan("", "short")),
        format!("GET plans?{elsewhere}"),
        format!("GET logs?{elsewhere}"),
        format!("GET logs?attempt=2&{RUN}"),
    ];
    let rest = rest.iter().map(String::as_str).collect::<Vec<_>>();
    insta::assert_snapshot!(burrito.refusals(&rest).await, @"
        GET plans?attempt=&format=short&layer=network&namespace=team-a&run=network-plan-x7 -> 404 text/plain; charset=UTF-8 No plan for this attempt
        GET plans?attempt=&layer=network&namespace=team-a&run=none -> 404 text/plain; charset=UTF-8 No plan for this attempt
        GET logs?attempt=&layer=network&namespace=team-a&run=none -> 404 text/plain; charset=UTF-8 No logs for this attempt
        GET logs?attempt=2&layer=network&namespace=team-a&run=network-plan-x7 -> 404 text/plain; charset=UTF-8 No logs for this attempt
        ");
}

#[tokio::test]
async fn ds12_a_log_is_json_as_go_writes_it() {
    let burrito = Burrito::start().await;
    let logs = format!("logs?attempt=0&{RUN}");
    for (log, json) in [
        (&b"a\nb\n<c>\xff"[..], r#"{"results":["a","b","\u003cc\u003e\ufffd"]}"#),
        (b"a\n", r#"{"results":["a",""]}"#),
        (b"", r#"{"results":[""]}"#),
    ] {
        burrito.put(&logs, log).await;
        let answer = burrito.get(&logs).await;
        assert_eq!(answer.text(), format!("{json}\n"));
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
}

#[tokio::test]
async fn ds14_bundle_is_stored_under_the_unescaped_ref() {
    let burrito = Burrito::start().await;
    for (encoded, raw) in
        [("feat%2Fa+b%231~2", "feat/a b#1~2"), ("refs%2Ftags%2Fv1", "refs/tags/v1")]
    {
        let rest = |revision| {
            format!("{BUNDLE}?name=infra&namespace=team-a&ref={encoded}&revision={revision}")
        };
        burrito.put(&rest("0123abc"), raw).await;
        let head = burrito.ask(Method::HEAD, &rest("0123abc"), "").await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(burrito.get(&rest("0123abc")).await.text(), raw);
        assert_eq!(burrito.ask(Method::HEAD, &rest("other"), "").await.status, 404);
        assert_eq!(burrito.get(&rest("other")).await.text(), "No bundle found for this revision");
        let key = format!("repositories/team-a/infra/{raw}/0123abc.gitbundle");
        assert_eq!(std::fs::read_to_string(burrito.root.path().join(key)).unwrap(), raw);
    }
}

#[tokio::test]
async fn ds17_other_methods_and_paths_return_404_with_a_token_and_401_without() {
    let burrito = Burrito::start().await;
    insta::assert_snapshot!(burrito.refusals(&["DELETE plans", "GET x", "POST repository/revision/bundle", "PATCH logs"]).await, @r#"
        DELETE plans -> 404 application/json {"message":"Not Found"}
        GET x -> 404 application/json {"message":"Not Found"}
        POST repository/revision/bundle -> 404 application/json {"message":"Not Found"}
        PATCH logs -> 404 application/json {"message":"Not Found"}
        "#);
    for (method, rest) in [(Method::DELETE, "plans"), (Method::GET, "x")] {
        assert_eq!(send(request(&burrito.datastore, method, rest)).await.status, 401);
    }
}

#[test]
fn ds24_settings_from_burritos_file_and_variables_are_shown_with_their_source() {
    let home = TempDir::new().unwrap();
    std::fs::create_dir(home.path().join(".burrito")).unwrap();
    let yaml = "
controller: {MAINNAMESPACE: from-file, timers: {driftDetection: 1h}, types: [layer, run]}
hermitcrab: {enabled: true}
redis: [1, {a: b}]
datastore:
  addr: :9000
  hostname: burrito-datastore.burrito-system.svc.cluster.local
  serviceAccounts: [a/b, c/d]
  tls: true
  certificateSecretName: x
  storage: {mock: true, gcs: {bucket: ''}, s3: {bucket: '', usePathStyle: false}, encryption: {enabled: t}}
";
    std::fs::write(home.path().join(".burrito/config.yaml"), yaml).unwrap();
    let burrito = home.path().join("burrito");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_datastore"), &burrito).unwrap();
    let shown = |variables: &[(&str, &str)]| {
        let mut check = Command::new(&burrito);
        check.args(["datastore", "check"]).env_clear().env("HOME", home.path());
        check.env("KUBECONFIG", "/nowhere").env("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY", "hush");
        let output = check.envs(variables.iter().copied()).current_dir("/").output().unwrap();
        let shown = String::from_utf8(output.stdout.clone()).unwrap();
        // There is no such kubeconfig, with which `serve` would not start either.
        assert!(!shown.contains("hush") && output.status.code() == Some(8), "{output:?}");
        let lines = shown.lines().take_while(|line| !line.starts_with("--max-size"));
        let tidy = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.map(tidy).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(shown(&[]), @"
        encryption key set (BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY)
        encryption true (~/.burrito/config.yaml)
        --listen [::]:9000 and 0.0.0.0:9000 (~/.burrito/config.yaml)
        --storage memory:// (~/.burrito/config.yaml)
        --isolation namespace (default)
        serviceAccounts a/b,c/d (~/.burrito/config.yaml)
        mainNamespace from-file (~/.burrito/config.yaml)
        kubeconfig /nowhere (KUBECONFIG)
        --auth kubernetes (default)
        --tls-cert /etc/burrito/tls/tls.crt and /etc/burrito/tls/tls.key (~/.burrito/config.yaml)
        ");
    let variables = [
        ("BURRITO_DATASTORE_ADDR", "127.0.0.1:0"),
        ("BURRITO_DATASTORE_SERVICEACCOUNTS", "e/f,g/h"),
        ("BURRITO_DATASTORE_TLS", "false"),
        ("BURRITO_DATASTORE_STORAGE_ENCRYPTION_ENABLED", "0"),
        ("BURRITO_CONTROLLER_MAINNAMESPACE", "from-env"),
        ("PLANCHA_STORAGE", "memory://"),
    ];
    insta::assert_snapshot!(shown(&variables), @"
        encryption key set (BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY)
        encryption false (BURRITO_DATASTORE_STORAGE_ENCRYPTION_ENABLED)
        --listen 127.0.0.1:0 (BURRITO_DATASTORE_ADDR)
        --storage memory:// (PLANCHA_STORAGE)
        --isolation namespace (default)
        serviceAccounts e/f,g/h (BURRITO_DATASTORE_SERVICEACCOUNTS)
        mainNamespace from-env (BURRITO_CONTROLLER_MAINNAMESPACE)
        kubeconfig /nowhere (KUBECONFIG)
        --auth kubernetes (default)
        ");
}
