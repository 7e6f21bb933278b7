//! A Kubernetes API that knows one thing: whose token this is.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::datastore::KubeApi;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// A Kubernetes API that answers token reviews, until it is dropped.
pub struct FakeTokenReviews {
    known: Arc<Mutex<Known>>,
    dir: TempDir,
    /// Of its own, so that with it everything ends: a server that is down.
    running: Option<Runtime>,
}

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenReviewFault {
    /// It takes the question and never answers.
    Hangs,
    /// It answers with this status.
    Status(u16),
    /// It takes so long.
    Slow(Duration),
    /// It is of a time before audiences, and names none.
    KnowsNoAudience,
}

#[derive(Default)]
struct Known {
    /// User and audience, by token.
    tokens: HashMap<String, (String, String)>,
    /// Every review so far.
    reviews: Vec<Value>,
    fault: Option<TokenReviewFault>,
}

impl FakeTokenReviews {
    /// One that knows no token.
    pub async fn start() -> Self {
        let running = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = running.spawn(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.await.unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let known = Arc::<Mutex<Known>>::default();
        let router = Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(review))
            .with_state(Arc::clone(&known));
        running.spawn(async { axum::serve(listener, router).await.unwrap() });
        let dir = TempDir::new().unwrap();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: fake\n\
             clusters: [{{name: fake, cluster: {{server: \"http://{address}\"}}}}]\n\
             users: [{{name: us, user: {{token: our-own-token}}}}]\n\
             contexts: [{{name: fake, context: {{cluster: fake, user: us}}}}]\n"
        );
        std::fs::write(dir.path().join("config"), kubeconfig).unwrap();
        Self { known, dir, running: Some(running) }
    }

    /// Where it is.
    pub fn api(&self) -> KubeApi {
        KubeApi::Kubeconfig(vec![self.kubeconfig()])
    }

    /// The file that says so.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    /// Makes a `ServiceAccount`'s token known, for our audience; `account` is `namespace/name`.
    pub fn account(&self, account: &str, token: &str) {
        let (namespace, name) = account.split_once('/').unwrap();
        self.user(&format!("system:serviceaccount:{namespace}:{name}"), "burrito", token);
    }

    /// Makes a user's token known, for some audience.
    pub fn user(&self, username: &str, audience: &str, token: &str) {
        let user = (username.to_owned(), audience.to_owned());
        self.known.lock().unwrap().tokens.insert(token.to_owned(), user);
    }

    /// Makes a token unknown again.
    pub fn revoke(&self, token: &str) {
        self.known.lock().unwrap().tokens.remove(token);
    }

    /// From now on it does this wrong, or nothing.
    pub fn fault(&self, fault: Option<TokenReviewFault>) {
        self.known.lock().unwrap().fault = fault;
    }

    /// Every review so far.
    pub fn reviews(&self) -> Vec<Value> {
        self.known.lock().unwrap().reviews.clone()
    }

    /// From now on it refuses connections.
    pub fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown_background();
        }
    }
}

impl Drop for FakeTokenReviews {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn review(State(known): State<Arc<Mutex<Known>>>, Json(review): Json<Value>) -> Response {
    let (fault, found) = {
        let mut known = known.lock().unwrap();
        known.reviews.push(review.clone());
        let token = review["spec"]["token"].as_str().unwrap();
        (known.fault, known.tokens.get(token).cloned())
    };
    match fault {
        Some(TokenReviewFault::Hangs) => std::future::pending::<()>().await,
        Some(TokenReviewFault::Slow(time)) => tokio::time::sleep(time).await,
        Some(TokenReviewFault::Status(status)) => {
            let body = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "as ordered", "reason": "Forbidden", "code": status,
            });
            return (StatusCode::from_u16(status).unwrap(), Json(body)).into_response();
        }
        Some(TokenReviewFault::KnowsNoAudience) | None => {}
    }
    let audiences = review["spec"]["audiences"].as_array().cloned().unwrap_or_default();
    let status = match found {
        Some((user, audience)) if audiences.contains(&json!(audience)) => {
            let knows_none = fault == Some(TokenReviewFault::KnowsNoAudience);
            let audiences = if knows_none { json!([]) } else { json!([audience]) };
            json!({"authenticated": true, "user": {"username": user}, "audiences": audiences})
        }
        _ => json!({"authenticated": false, "error": "not for us"}),
    };
    let body = json!({
        "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": null}, "spec": review["spec"], "status": status,
    });
    (StatusCode::CREATED, Json(body)).into_response()
}
