//! The datastore as `burrito datastore start` beside a real Kubernetes API: real `ServiceAccounts`, real
//! tokens for the audience `burrito`, and the one right that upstream's datastore has.
//!
//! `scripts/e2e-kubernetes` starts the API and names its kubeconfig in `PLANCHA_TEST_KUBECONFIG`; without
//! it there is nothing to be seen here.

#![expect(clippy::disallowed_methods, reason = "the API server is named by a variable")]
#![expect(clippy::disallowed_types, reason = "a test of the program must start it")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use futures::future::join_all;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::http::{Answer, send};

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
    /// `None`: no cluster was named.
    fn named(mark: &str) -> Option<Self> {
        let kubeconfig = std::env::var_os("PLANCHA_TEST_KUBECONFIG")?;
        let kubeconfig = std::fs::read_to_string(kubeconfig).unwrap();
        // Its lines are those of ../shared/testbed/kube-up.sh.
        let after = |key: &str| {
            let (_, rest) = kubeconfig.split_once(key).unwrap();
            rest.split(['}', ',', '\n']).next().unwrap().trim().trim_matches('"').to_owned()
        };
        Some(Self {
            http: Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap(),
            server: after("server: "),
            authority: after("certificate-authority: "),
            admin: after("token: "),
            mark: format!("{mark}-{}", std::process::id()),
        })
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

    /// The datastore in `namespace`, with the right to ask for reviews or without.
    async fn datastore(&self, namespace: &str, may_ask: bool, config: &str) -> Datastore {
        self.account(namespace, "burrito-datastore").await;
        if may_ask {
            let subject = json!({"kind": "ServiceAccount", "name": "burrito-datastore", "namespace": namespace});
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"});
            let name = json!({"name": format!("datastore-{namespace}")});
            let binding = json!({"metadata": name, "roleRef": role, "subjects": [subject]});
            self.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
        }
        let token = self.token(namespace, "burrito-datastore", None).await;
        let home = TempDir::new().unwrap();
        std::fs::create_dir(home.path().join(".burrito")).unwrap();
        std::fs::write(home.path().join(".burrito/config.yaml"), config).unwrap();
        let (server, authority) = (&self.server, &self.authority);
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"{server}\", certificate-authority: \"{authority}\"}}}}]\n\
             users: [{{name: u, user: {{token: {token}}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        std::fs::write(home.path().join("kubeconfig"), kubeconfig).unwrap();
        Datastore::start(home)
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
    fn start(home: TempDir) -> Self {
        let burrito = home.path().join("burrito");
        symlink(env!("CARGO_BIN_EXE_datastore"), &burrito).unwrap();
        let mut child = Command::new(burrito)
            .args(["datastore", "start"])
            .env_clear()
            .env("HOME", home.path())
            .env("KUBECONFIG", home.path().join("kubeconfig"))
            .current_dir(home.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let (_, rest) = first.split_once("http://").unwrap_or_else(|| panic!("{first}"));
        let url = format!("http://{}", rest.split(' ').next().unwrap());
        assert!(first.contains("auth=kubernetes"), "{first}");
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url, http: Client::new(), _home: home }
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

macro_rules! cluster {
    ($mark:literal) => {
        match Cluster::named($mark) {
            Some(cluster) => cluster,
            None => return eprintln!("not seen here: PLANCHA_TEST_KUBECONFIG names no cluster"),
        }
    };
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
async fn ds02_ds03_ds04_ds05_ds27_real_tokens_open_their_own_namespace_and_no_other() {
    let cluster = cluster!("tenants");
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
        let told = refusal(token).await;
        let invalid = r#"401 application/json {"message":"invalid token"}"#;
        let unauthorized = r#"401 application/json {"message":"unauthorized user"}"#;
        assert!(told == invalid || known_user && told == unauthorized, "{told}");
    }
    insta::assert_snapshot!(refusal(&unlisted).await, @r#"401 application/json {"message":"unauthorized user"}"#);
    insta::assert_snapshot!(refusal("rubbish").await, @r#"401 application/json {"message":"invalid token"}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_by_a_hundred_real_tokens_cost_a_hundred_reviews() {
    let cluster = cluster!("load");
    let _turn = TURN.lock().await;
    let main = cluster.namespace("main").await;
    let datastore = cluster.datastore(&main, true, &config(&main, &[])).await;
    let team = cluster.namespace("team").await;
    let mut tokens = Vec::new();
    for number in 0..100 {
        let name = format!("runner-{}", number / 10);
        if number % 10 == 0 {
            cluster.account(&team, &name).await;
        }
        // Two tokens of one account and one second are the same but for their `exp`.
        let spec = json!({"spec": {"audiences": ["burrito"], "expirationSeconds": 700 + number}});
        let path = format!("/api/v1/namespaces/{team}/serviceaccounts/{name}/token");
        let token = cluster.post(&path, spec).await["status"]["token"].clone();
        tokens.push(token.as_str().unwrap().to_owned());
    }
    let before = cluster.reviews().await;
    let plan = format!("plans?namespace={team}&layer=network&run=r");
    let since = Instant::now();
    let requests =
        (0..1000).map(|number| datastore.status(Method::GET, &plan, &tokens[number % 100]));
    let told = join_all(requests).await;
    let (took, reviews) = (since.elapsed(), cluster.reviews().await - before);
    println!("1,000 requests by 100 real tokens: {took:?}, {reviews} reviews");
    assert!(told.iter().all(|status| *status == 404), "{told:?}");
    assert!((1..=100).contains(&reviews), "{reviews}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_ask_for_reviews_nobody_is_let_in() {
    let cluster = cluster!("forbidden");
    let _turn = TURN.lock().await;
    let main = cluster.namespace("main").await;
    cluster.account(&main, "burrito-controllers").await;
    let datastore = cluster.datastore(&main, false, &config(&main, &[])).await;
    let token = cluster.token(&main, "burrito-controllers", Some("burrito")).await;
    let plan = format!("plans?namespace={main}&layer=network&run=r");
    insta::assert_snapshot!(datastore.ask(Method::GET, &plan, &token).await.refusal(), @r#"500 application/json {"message":"error validating token"}"#);
}
