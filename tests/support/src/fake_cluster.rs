//! A Kubernetes API with Burrito's resources, for tests of the runner's pods where no real one is at hand.
//!
//! It speaks HTTPS, knows who calls by token, gives a runner's account the rights of Burrito's own role in
//! its namespace and no others, and treats objects as [`CrdSchemas`] says. It has no watches and no lists.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::TlsFront;
use crate::crd_schemas::CrdSchemas;

const GROUP: &str = "config.terraform.padok.cloud";
const ADMIN: &str = "the-administrator";

/// A Kubernetes API, until it is dropped.
pub struct FakeCluster {
    front: TlsFront,
    running: Option<Runtime>,
}

#[derive(Default)]
struct Known {
    schemas: CrdSchemas,
    /// `(namespace, account)` and audience, by token.
    tokens: HashMap<String, (Account, String)>,
    /// Objects of Burrito's, by namespace, plural and name.
    objects: HashMap<(String, String, String), Value>,
    /// Names that were created, of everything else.
    others: HashSet<String>,
    /// Accounts that may ask for token reviews.
    reviewers: HashSet<Account>,
    /// Accounts that have the role of a runner in a namespace.
    runners: HashSet<(String, Account)>,
}

type Account = (String, String);
type Refusal = (StatusCode, &'static str, String);

impl FakeCluster {
    /// One that holds nothing.
    pub async fn start() -> Self {
        let running = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = running.spawn(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.await.unwrap().unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let known = Known { schemas: CrdSchemas::load(), ..Known::default() };
        let router = Router::new().fallback(answer).with_state(Arc::new(Mutex::new(known)));
        running.spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { front: TlsFront::before(&address), running: Some(running) }
    }

    /// Its `https://` address.
    pub fn server(&self) -> String {
        self.front.url()
    }

    /// The certificate of its authority.
    pub fn authority(&self) -> PathBuf {
        self.front.ca_file()
    }

    /// A token that may do everything.
    pub fn admin(&self) -> &'static str {
        ADMIN
    }
}

impl Drop for FakeCluster {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown_background();
        }
    }
}

async fn answer(
    State(known): State<Arc<Mutex<Known>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut known = known.lock().unwrap();
    let token = headers.get("authorization").and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let path = uri.path().trim_matches('/').split('/').collect::<Vec<_>>();
    match known.respond(token, &method, &path, body) {
        Ok((status, object)) => (status, Json(object)).into_response(),
        Err((status, reason, message)) => {
            let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "code": status.as_u16()});
            (status, Json(body)).into_response()
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn forbidden(account: &Account, verb: &Method, what: &str) -> Refusal {
    let (namespace, name) = account;
    let user = format!("system:serviceaccount:{namespace}:{name}");
    let message = format!("{what} is forbidden: User \"{user}\" cannot {verb} it");
    (StatusCode::FORBIDDEN, "Forbidden", message)
}

impl Known {
    fn respond(
        &mut self,
        token: &str,
        method: &Method,
        path: &[&str],
        body: Value,
    ) -> Result<(StatusCode, Value), Refusal> {
        let caller = match self.tokens.get(token) {
            _ if token == ADMIN => None,
            // A token for another audience is not one for the API.
            Some((account, audience)) if audience.is_empty() => Some(account.clone()),
            _ => return Err((StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".to_owned())),
        };
        match path {
            ["apis", GROUP, "v1alpha1", "namespaces", namespace, plural, rest @ ..] => {
                if let Some(account) = &caller {
                    self.may(account, method, namespace, plural, rest)?;
                }
                self.object(method, namespace, plural, rest, body)
            }
            ["apis", "authentication.k8s.io", "v1", "tokenreviews"] => match caller {
                Some(account) if !self.reviewers.contains(&account) => {
                    Err(forbidden(&account, method, "tokenreviews.authentication.k8s.io"))
                }
                _ => Ok((StatusCode::CREATED, self.review(&body))),
            },
            ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"] => {
                Ok((StatusCode::CREATED, self.own_review(caller.as_ref(), body)))
            }
            _ if caller.is_some() => Err(forbidden(&caller.unwrap(), method, &path.join("/"))),
            ["api", "v1", "namespaces", namespace, "serviceaccounts", account, "token"] => {
                Ok((StatusCode::CREATED, self.issue(namespace, account, body)))
            }
            _ if method == Method::POST => self.other(path, body),
            _ => {
                Err((StatusCode::NOT_FOUND, "NotFound", "the double does not know this".to_owned()))
            }
        }
    }

    /// Whether the caller may do what it asks about.
    fn own_review(&self, caller: Option<&Account>, mut body: Value) -> Value {
        let asked = &body["spec"]["resourceAttributes"];
        let (namespace, plural) = (text(&asked["namespace"]), text(&asked["resource"]));
        let method = if asked["verb"] == "patch" { Method::PATCH } else { Method::GET };
        let is_allowed = caller.is_none_or(|account| {
            self.may(account, &method, &namespace, &plural, &["name"]).is_ok()
        });
        body["status"] = json!({"allowed": is_allowed});
        body
    }

    /// Burrito's ClusterRole `burrito-runner`, where a RoleBinding gives it.
    fn may(
        &self,
        account: &Account,
        method: &Method,
        namespace: &str,
        plural: &str,
        rest: &[&str],
    ) -> Result<(), Refusal> {
        let bound = self.runners.contains(&(namespace.to_owned(), account.clone()));
        let verbs = match plural {
            "terraformlayers" => &[Method::GET, Method::PATCH][..],
            "terraformruns" | "terraformrepositories" => &[Method::GET][..],
            _ => &[][..],
        };
        if bound && rest.len() == 1 && verbs.contains(method) {
            return Ok(());
        }
        Err(forbidden(account, method, &format!("{plural}.{GROUP} \"{}\"", rest.join("/"))))
    }

    fn object(
        &mut self,
        method: &Method,
        namespace: &str,
        plural: &str,
        rest: &[&str],
        mut body: Value,
    ) -> Result<(StatusCode, Value), Refusal> {
        let named =
            rest.first().map_or_else(|| text(&body["metadata"]["name"]), ToString::to_string);
        let what = format!("{plural}.{GROUP} \"{named}\"");
        let key = (namespace.to_owned(), plural.to_owned(), named);
        match (method, rest) {
            (&Method::POST, []) => {
                if self.objects.contains_key(&key) {
                    let message = format!("{what} already exists");
                    return Err((StatusCode::CONFLICT, "AlreadyExists", message));
                }
                // The status is a resource of its own.
                body.as_object_mut().unwrap().shift_remove("status");
                body["metadata"]["namespace"] = namespace.into();
                body["metadata"]["managedFields"] = json!([{"manager": "test", "operation": "Update",
                    "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]);
                self.admit(plural, &what, &mut body)?;
                self.objects.insert(key, body.clone());
                Ok((StatusCode::CREATED, body))
            }
            (&Method::GET, [_]) => match self.objects.get(&key) {
                Some(object) => Ok((StatusCode::OK, object.clone())),
                None => Err((StatusCode::NOT_FOUND, "NotFound", format!("{what} not found"))),
            },
            (&Method::PATCH, [_, subresource @ ..]) => {
                let Some(object) = self.objects.get(&key) else {
                    return Err((StatusCode::NOT_FOUND, "NotFound", format!("{what} not found")));
                };
                let only_status = subresource == ["status"];
                let fields = body.as_object_mut().unwrap();
                fields.retain(|name, _| (name == "status") == only_status);
                let mut changed = object.clone();
                merge(&mut changed, &body);
                self.admit(plural, &what, &mut changed)?;
                self.objects.insert(key, changed.clone());
                Ok((StatusCode::OK, changed))
            }
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", what)),
        }
    }

    fn admit(&self, plural: &str, what: &str, object: &mut Value) -> Result<(), Refusal> {
        let admitted = self.schemas.admit(plural, object).map(drop);
        admitted.map_err(|reason| {
            let message = format!("{what} is invalid: {reason}");
            (StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
        })
    }

    /// Namespaces, accounts, roles and their bindings.
    fn other(&mut self, path: &[&str], body: Value) -> Result<(StatusCode, Value), Refusal> {
        let name = text(&body["metadata"]["name"]);
        if !self.others.insert(format!("{}/{name}", path.join("/"))) {
            let message = format!("\"{name}\" already exists");
            return Err((StatusCode::CONFLICT, "AlreadyExists", message));
        }
        let role = text(&body["roleRef"]["name"]);
        for subject in body["subjects"].as_array().into_iter().flatten() {
            let account = (text(&subject["namespace"]), text(&subject["name"]));
            match (path, role.as_str()) {
                ([.., "clusterrolebindings"], "system:auth-delegator") => {
                    self.reviewers.insert(account);
                }
                ([.., "namespaces", namespace, "rolebindings"], "burrito-runner") => {
                    self.runners.insert(((*namespace).to_owned(), account));
                }
                (path, role) => panic!("the double does not know the role {role} of {path:?}"),
            }
        }
        Ok((StatusCode::CREATED, body))
    }

    fn issue(&mut self, namespace: &str, account: &str, mut body: Value) -> Value {
        let token = format!("token-{:016x}", rand::random::<u64>());
        let audience = text(&body["spec"]["audiences"][0]);
        let account = (namespace.to_owned(), account.to_owned());
        self.tokens.insert(token.clone(), (account, audience));
        body["status"] = json!({"token": token});
        body
    }

    fn review(&self, body: &Value) -> Value {
        let audiences = &body["spec"]["audiences"];
        let asked = |audience: &String| {
            audiences.as_array().is_some_and(|asked| asked.contains(&json!(audience)))
        };
        let status = match self.tokens.get(&text(&body["spec"]["token"])) {
            Some(((namespace, name), audience)) if asked(audience) => {
                let user = format!("system:serviceaccount:{namespace}:{name}");
                json!({"authenticated": true, "user": {"username": user}, "audiences": [audience]})
            }
            _ => json!({"authenticated": false, "error": "not for this audience"}),
        };
        json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {}, "spec": body["spec"], "status": status})
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().shift_remove(name);
        } else {
            merge(&mut target[name.as_str()], value);
        }
    }
}
