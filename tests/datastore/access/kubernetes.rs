//! The datastore as `burrito datastore start` beside a real Kubernetes API: real `ServiceAccounts`, real
//! tokens for the audience `burrito`, and the only permission that Burrito's datastore has.
//!
//! `scripts/e2e-kubernetes` starts the API, names its kubeconfig in `PLANCHA_TEST_KUBECONFIG` and runs these tests.

#![expect(clippy::disallowed_methods, reason = "the API server is named by a variable")]
#![expect(clippy::disallowed_types, reason = "a test of the program must start it")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, watch};

use crate::http::{Answer, send};
use crate::program::deploy;
use crate::transport::tls::{Issued, issue};

/// Reviews are counted, so one test at a time asks for them.
static TURN: Mutex<()> = Mutex::const_new(());

/// A cluster, and names of our own in it.
struct Cluster {
    http: Client,
    server: String,
    authority: String,
    admin: String,
    mark: String,
}

impl Cluster {
    fn named(mark: &str) -> Self {
        let kubeconfig = std::env::var_os("PLANCHA_TEST_KUBECONFIG")
            .expect("PLANCHA_TEST_KUBECONFIG names a cluster: scripts/e2e-kubernetes");
        let kubeconfig = std::fs::read_to_string(kubeconfig).unwrap();
        // `scripts/e2e-kubernetes` has it written: a value ends at a brace, a comma or the end of its line.
        let after = |key: &str| {
            let (_, rest) = kubeconfig.split_once(key).unwrap();
            rest.split(['}', ',', '\n']).next().unwrap().trim().trim_matches('"').to_owned()
        };
        Self {
            http: Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap(),
            server: after("server: "),
            authority: after("certificate-authority: "),
            admin: after("token: "),
            mark: format!("{mark}-{}", std::process::id()),
        }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.http.post(format!("{}{path}", self.server)).bearer_auth(&self.admin);
        let request = request.header("content-type", "application/json").body(body.to_string());
        let answer = send(request).await;
        assert!(answer.status < 300, "{path}: {}", answer.text());
        answer.json()
    }

    async fn namespace(&self, name: &str) -> String {
        let name = format!("{name}-{}", self.mark);
        self.post("/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
        name
    }

    async fn account(&self, namespace: &str, name: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        self.post(&path, json!({"metadata": {"name": name}})).await;
    }

    /// A new token of an account; without an audience it is for the API server itself.
    async fn token(&self, namespace: &str, name: &str, audience: Option<&str>) -> String {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let spec = json!({"audiences": audience.into_iter().collect::<Vec<_>>()});
        let token = self.post(&path, json!({ "spec": spec })).await;
        token["status"]["token"].as_str().unwrap().to_owned()
    }

    /// How many reviews the API server has done so far.
    async fn reviews(&self) -> u64 {
        let request = self.http.get(format!("{}/metrics", self.server)).bearer_auth(&self.admin);
        let metrics = send(request).await.text();
        let lines = metrics.lines().filter(|line| {
            line.starts_with("apiserver_request_total{")
                && line.contains("resource=\"tokenreviews\"")
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Tokens of accounts in `namespace` for us, no two of them the same.
    async fn tokens(&self, namespace: &str, count: usize) -> Vec<String> {
        let mut tokens = Vec::new();
        for number in 0..count {
            let name = format!("runner-{}", number / 10);
            if number % 10 == 0 {
                self.account(namespace, &name).await;
            }
            // Two tokens of one account and one second are the same but for their `exp`.
            let spec =
                json!({"spec": {"audiences": ["burrito"], "expirationSeconds": 700 + number}});
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
            let token = self.post(&path, spec).await["status"]["token"].clone();
            tokens.push(token.as_str().unwrap().to_owned());
        }
        tokens
    }

    /// A new token of the datastore's own account, with the right to ask for reviews or without.
    async fn own_token(&self, namespace: &str, may_ask: bool) -> String {
        self.account(namespace, "burrito-datastore").await;
        if may_ask {
            let subject = json!({"kind": "ServiceAccount", "name": "burrito-datastore", "namespace": namespace});
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"});
            let name = json!({"name": format!("datastore-{namespace}")});
            let binding = json!({"metadata": name, "roleRef": role, "subjects": [subject]});
            self.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
        }
        self.token(namespace, "burrito-datastore", None).await
    }

    /// The datastore in `namespace`, with the right to ask for reviews or without.
    async fn datastore(&self, namespace: &str, may_ask: bool, config: &str) -> Datastore {
        self.datastore_by(&self.server, namespace, may_ask, config).await
    }

    /// One that reaches the API at another address.
    async fn datastore_by(
        &self,
        server: &str,
        namespace: &str,
        may_ask: bool,
        config: &str,
    ) -> Datastore {
        let token = self.own_token(namespace, may_ask).await;
        let home = TempDir::new().unwrap();
        std::fs::create_dir(home.path().join(".burrito")).unwrap();
        std::fs::write(home.path().join(".burrito/config.yaml"), config).unwrap();
        let authority = &self.authority;
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"{server}\", certificate-authority: \"{authority}\"}}}}]\n\
             users: [{{name: u, user: {{token: {token}}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        std::fs::write(home.path().join("kubeconfig"), kubeconfig).unwrap();
        let mut command = Command::new(burrito(home.path()));
        command.args(["datastore", "start"]).env_clear();
        command.env("KUBECONFIG", home.path().join("kubeconfig"));
        Datastore::start(home, command, Client::new())
    }

    /// The datastore in a pod of Burrito's chart: this `config.yaml` and certificate where the chart mounts
    /// them, its account where Kubernetes does, and nothing else in `/etc` and `/run`.
    async fn pod(&self, namespace: &str, config: &Value, issued: &Issued) -> Datastore {
        let token = self.own_token(namespace, true).await;
        let home = TempDir::new().unwrap();
        let at = |path: &str| {
            let path = home.path().join(path);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        std::fs::write(at("etc/burrito").join("config.yaml"), config.to_string()).unwrap();
        issued.write(&at("etc/burrito/tls"));
        let account = at("run/secrets/kubernetes.io/serviceaccount");
        std::fs::write(account.join("token"), token).unwrap();
        std::fs::write(account.join("namespace"), namespace).unwrap();
        std::fs::copy(&self.authority, account.join("ca.crt")).unwrap();
        let (host, port) = self.server.trim_start_matches("https://").split_once(':').unwrap();
        let mounted = "mount --bind \"$0/etc\" /etc && mount --bind \"$0/run\" /run && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", mounted]).arg(home.path());
        command.arg(burrito(home.path())).args(["datastore", "start"]).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
        // The chart's own port may be somebody else's here.
        command.env("BURRITO_DATASTORE_ADDR", "127.0.0.1:0");
        command.env("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY", "test-encryption-key");
        Datastore::start(home, command, issued.client())
    }
}

/// The program by its other name.
fn burrito(home: &Path) -> std::path::PathBuf {
    let burrito = home.join("burrito");
    symlink(env!("CARGO_BIN_EXE_datastore"), &burrito).unwrap();
    burrito
}

/// A relay between one datastore and the API server: it can cut off this datastore alone.
struct Wire {
    url: String,
    held: watch::Sender<bool>,
    running: Option<Runtime>,
}

impl Wire {
    fn to(server: &str) -> Self {
        let server = server.trim_start_matches("https://").to_owned();
        let running = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (held, watched) = watch::channel(false);
        running.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let far = TcpStream::connect(&server).await.unwrap();
                let ((from_near, to_near), (from_far, to_far)) =
                    (near.into_split(), far.into_split());
                tokio::spawn(pass(from_near, to_far, watched.clone()));
                tokio::spawn(pass(from_far, to_near, watched.clone()));
            }
        });
        Self { url, held, running: Some(running) }
    }

    /// From now on nothing gets through, but every connection stays; or it goes on.
    fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// From now on it refuses connections.
    fn cut(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown_background();
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.cut();
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut held: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let free = held.wait_for(|held| !held).await.is_ok();
        if !free || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// `burrito datastore start`, killed when dropped.
struct Datastore {
    child: Child,
    url: String,
    http: Client,
    _home: TempDir,
}

impl Datastore {
    fn start(home: TempDir, mut command: Command, http: Client) -> Self {
        command.env("HOME", home.path()).current_dir(home.path()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = lines.by_ref().map(Result::unwrap).find(|line| line.contains("address="));
        let listening = listening.expect("a line with the address");
        let (_, rest) = listening.split_once("address=").unwrap();
        let url = rest.split(' ').next().unwrap().to_owned();
        assert!(listening.contains("auth=kubernetes"), "{listening}");
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url, http, _home: home }
    }

    async fn ask(&self, method: Method, rest: &str, token: &str) -> Answer {
        let url = format!("{}/api/{rest}", self.url);
        send(self.http.request(method, url).header("authorization", token).body("body")).await
    }

    async fn status(&self, method: Method, rest: &str, token: &str) -> u16 {
        self.ask(method, rest, token).await.status
    }
}

impl Drop for Datastore {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn config(main: &str, accounts: &[String]) -> String {
    let accounts = if accounts.is_empty() {
        String::new()
    } else {
        format!("serviceAccounts: [{}]", accounts.join(", "))
    };
    format!(
        "controller: {{mainNamespace: {main}, namespaces: []}}\nredis: {{hostname: x}}\n\
         datastore:\n  addr: '127.0.0.1:0'\n  storage: {{mock: true}}\n  {accounts}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Kubernetes API"]
async fn ds02_ds03_ds04_ds05_ds27_real_tokens_give_access_only_to_their_own_namespace() {
    let cluster = Cluster::named("tenants");
    let _turn = TURN.lock().await;
    let [main, a, b] = ["main", "team-a", "team-b"].map(|name| cluster.namespace(name));
    let (main, a, b) = tokio::join!(main, a, b);
    for (namespace, name) in [
        (&main, "burrito-controllers"),
        (&a, "burrito-runner"),
        (&b, "burrito-runner"),
        (&a, "unlisted"),
    ] {
        cluster.account(namespace, name).await;
    }
    let listed = [
        format!("{main}/burrito-controllers"),
        format!("{a}/burrito-runner"),
        format!("{b}/burrito-runner"),
    ];
    let datastore = cluster.datastore(&main, true, &config(&main, &listed)).await;
    let of_a = cluster.token(&a, "burrito-runner", Some("burrito")).await;
    let of_b = cluster.token(&b, "burrito-runner", Some("burrito")).await;
    let controllers = cluster.token(&main, "burrito-controllers", Some("burrito")).await;
    let plan = format!("plans?namespace={a}&layer=network&run=r&attempt=0&format=bin");
    let bundle =
        format!("repository/revision/bundle?namespace={a}&name=infra&ref=main&revision=abc");

    assert_eq!(datastore.status(Method::PUT, &plan, &of_a).await, 200);
    assert_eq!(datastore.status(Method::PUT, &bundle, &controllers).await, 200);
    for rest in [&plan, &bundle] {
        assert_eq!(datastore.status(Method::GET, rest, &of_a).await, 200);
        assert_eq!(datastore.status(Method::GET, rest, &format!("Bearer {of_a}")).await, 200);
        assert_eq!(datastore.status(Method::GET, rest, &controllers).await, 200);
        for method in [Method::GET, Method::HEAD, Method::PUT] {
            assert_eq!(datastore.status(method, rest, &of_b).await, 403);
        }
    }
    assert_eq!(datastore.status(Method::PUT, &bundle, &of_a).await, 403);

    let refusal = async |token: &str| datastore.ask(Method::GET, &plan, token).await.refusal();
    let for_the_api = cluster.token(&a, "burrito-runner", None).await;
    let for_another = cluster.token(&a, "burrito-runner", Some("vault")).await;
    let unlisted = cluster.token(&a, "unlisted", Some("burrito")).await;
    let mut forged = of_a.clone();
    let last = forged.pop().unwrap();
    forged.insert(forged.len() - 20, if last == 'A' { 'B' } else { 'A' });
    for token in [&for_the_api, &for_another, &forged, &cluster.admin] {
        let known_user = token == &cluster.admin;
        let reported = refusal(token).await;
        let invalid = r#"401 application/json {"message":"invalid token"}"#;
        let unauthorized = r#"401 application/json {"message":"unauthorized user"}"#;
        assert!(reported == invalid || known_user && reported == unauthorized, "{reported}");
    }
    insta::assert_snapshot!(refusal(&unlisted).await, @r#"401 application/json {"message":"unauthorized user"}"#);
    insta::assert_snapshot!(refusal("rubbish").await, @r#"401 application/json {"message":"invalid token"}"#);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Kubernetes API"]
async fn thousand_requests_with_hundred_real_tokens_make_hundred_token_reviews() {
    let cluster = Cluster::named("load");
    let _turn = TURN.lock().await;
    let main = cluster.namespace("main").await;
    let datastore = cluster.datastore(&main, true, &config(&main, &[])).await;
    let team = cluster.namespace("team").await;
    let tokens = cluster.tokens(&team, 100).await;
    let before = cluster.reviews().await;
    let plan = format!("plans?namespace={team}&layer=network&run=r");
    let since = Instant::now();
    let requests =
        (0..1000).map(|number| datastore.status(Method::GET, &plan, &tokens[number % 100]));
    let reported = join_all(requests).await;
    let (took, reviews) = (since.elapsed(), cluster.reviews().await - before);
    println!("1,000 requests by 100 real tokens: {took:?}, {reviews} reviews");
    assert!(reported.iter().all(|status| *status == 404), "{reported:?}");
    assert!((1..=100).contains(&reviews), "{reviews}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Kubernetes API"]
async fn without_the_tokenreview_permission_every_request_is_rejected() {
    let cluster = Cluster::named("forbidden");
    let _turn = TURN.lock().await;
    let main = cluster.namespace("main").await;
    cluster.account(&main, "burrito-controllers").await;
    let datastore = cluster.datastore(&main, false, &config(&main, &[])).await;
    let token = cluster.token(&main, "burrito-controllers", Some("burrito")).await;
    let plan = format!("plans?namespace={main}&layer=network&run=r");
    insta::assert_snapshot!(datastore.ask(Method::GET, &plan, &token).await.refusal(), @r#"500 application/json {"message":"error validating token"}"#);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Kubernetes API"]
async fn only_cached_callers_are_accepted_while_the_api_server_is_down() {
    let cluster = Cluster::named("gone");
    let _turn = TURN.lock().await;
    let main = cluster.namespace("main").await;
    let mut wire = Wire::to(&cluster.server);
    let datastore = cluster.datastore_by(&wire.url, &main, true, &config(&main, &[])).await;
    let team = cluster.namespace("team").await;
    let tokens = cluster.tokens(&team, 30).await;
    let (known, strangers) = tokens.split_at(10);
    let (strangers, others) = strangers.split_at(10);
    let plan = format!("plans?namespace={team}&layer=network&run=r");
    let reported = async |tokens: &[String]| {
        let since = Instant::now();
        let asked = tokens.iter().map(|token| datastore.status(Method::GET, &plan, token));
        let reported = join_all(asked).await;
        assert!(reported.iter().all(|status| *status == reported[0]), "{reported:?}");
        (reported[0], since.elapsed())
    };
    assert_eq!(reported(known).await.0, 404);

    wire.hold(true);
    let ((refused, took), (let_in, at_once)) = tokio::join!(reported(strangers), reported(known));
    println!("hung: strangers {refused} after {took:?}, known {let_in} after {at_once:?}");
    assert_eq!((refused, let_in), (500, 404));
    assert!(took < Duration::from_secs(8) && at_once < Duration::from_secs(1));
    wire.hold(false);
    assert_eq!(reported(strangers).await.0, 404, "an answer that did not come is not kept");

    wire.cut();
    let ((refused, took), (let_in, at_once)) = tokio::join!(reported(others), reported(known));
    println!("gone: strangers {refused} after {took:?}, known {let_in} after {at_once:?}");
    assert_eq!((refused, let_in), (500, 404));
    assert!(took < Duration::from_secs(4) && at_once < Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Kubernetes API"]
async fn ds23_ds24_serves_with_the_mounts_of_burritos_chart() {
    let cluster = Cluster::named("pod");
    let _turn = TURN.lock().await;
    let [main, a, b] = ["main", "team-a", "team-b"].map(|name| cluster.namespace(name));
    let (main, a, b) = tokio::join!(main, a, b);
    for (namespace, name) in
        [(&main, "burrito-controllers"), (&a, "burrito-runner"), (&b, "burrito-runner")]
    {
        cluster.account(namespace, name).await;
    }
    let more = json!({
        "config": {"burrito": {"datastore": {"storage": {"mock": true, "encryption": {"enabled": true}}}}},
        "datastore": {"tls": {"enabled": true}},
    });
    let config = deploy::config(&main, &[&a, &b], &more);
    let datastore = cluster.pod(&main, &config, &issue()).await;
    assert!(datastore.url.starts_with("https://"), "{}", datastore.url);
    // The chart's probes.
    let probe = send(datastore.http.get(format!("{}/healthz", datastore.url))).await;
    assert_eq!((probe.status, &*probe.text()), (200, "OK"));
    let unencrypted = datastore.url.replace("https://", "http://");
    assert!(
        Client::new().get(format!("{unencrypted}/healthz")).send().await.is_err(),
        "plain HTTP"
    );

    let controllers = cluster.token(&main, "burrito-controllers", Some("burrito")).await;
    let of_a = cluster.token(&a, "burrito-runner", Some("burrito")).await;
    let of_b = cluster.token(&b, "burrito-runner", Some("burrito")).await;
    let plan = format!("plans?namespace={a}&layer=network&run=r&attempt=0&format=bin");
    let bundle =
        format!("repository/revision/bundle?namespace={a}&name=infra&ref=main&revision=abc");
    assert_eq!(datastore.status(Method::PUT, &bundle, &controllers).await, 200);
    assert_eq!(datastore.status(Method::GET, &bundle, &of_a).await, 200);
    assert_eq!(datastore.status(Method::PUT, &bundle, &of_a).await, 403);
    assert_eq!(datastore.status(Method::PUT, &plan, &of_a).await, 200);
    assert_eq!(datastore.ask(Method::GET, &plan, &controllers).await.text(), "body");
    assert_eq!(datastore.status(Method::GET, &plan, &of_b).await, 403);
    assert_eq!(datastore.status(Method::POST, "encrypt", &of_a).await, 403);
    // Its own namespace may ask; the body of this test is not the JSON that it takes.
    assert_eq!(datastore.status(Method::POST, "encrypt", &controllers).await, 400);
}
