//! `/api/openapi.json`: the routes, described by the signatures of their own handlers.
//!
//! [`Api`] takes a handler and makes a route *and* its description of it: the query is what its
//! [`FromParams`] asks for when it is run, the headers and bodies are those that [`Wanted`] and [`Upload`]
//! stand for, an answer in JSON is what a value of its type looks like. So there is nothing that could
//! drift, and no derive on types that the runner shares.

use std::convert::Infallible;

use axum::extract::State;
use axum::handler::Handler;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{MethodRouter, get, post, put};
use axum::{Json, Router};
use datastore_api::key::{AttemptFiles, Attempts, FileInfo, RunInfo, Runs};
use datastore_api::{Attempt, PlanFormat};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::api::encrypt::{Administrator, EncryptBody, EncryptReport};
use crate::api::error::{ApiError, Route};
use crate::api::params::{Asked, FromParams, Params, Query};
use crate::api::router::{API, App};
use crate::api::runs::Taken;
use crate::api::transfer::{Upload, Wanted};

/// Routes, and what there is to say of them.
pub(crate) struct Api {
    router: Router<App>,
    paths: Map<String, Value>,
}

/// What is said of one method of one route.
#[derive(Default)]
pub(crate) struct Operation {
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: Map<String, Value>,
    /// Whose words a refusal uses.
    route: Option<Route>,
}

/// What a handler takes.
pub(crate) trait Takes {
    fn describe(operation: &mut Operation);
}

/// What a handler gives.
pub(crate) trait Gives {
    fn describe(operation: &mut Operation);
}

/// A handler that describes itself.
pub(crate) trait Described<T> {
    fn describe(operation: &mut Operation);
}

impl Api {
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), paths: Map::new() }
    }

    /// A GET, and with it the HEAD.
    pub(crate) fn get<H, T>(self, path: &str, handler: H, summary: &str) -> Self
    where
        H: Handler<T, App> + Described<T>,
        T: 'static,
    {
        self.route::<H, T>(path, "get", get(handler), summary)
    }

    pub(crate) fn put<H, T>(self, path: &str, handler: H, summary: &str) -> Self
    where
        H: Handler<T, App> + Described<T>,
        T: 'static,
    {
        self.route::<H, T>(path, "put", put(handler), summary)
    }

    pub(crate) fn post<H, T>(self, path: &str, handler: H, summary: &str) -> Self
    where
        H: Handler<T, App> + Described<T>,
        T: 'static,
    {
        self.route::<H, T>(path, "post", post(handler), summary)
    }

    fn route<H: Described<T>, T>(
        mut self,
        path: &str,
        method: &str,
        handler: MethodRouter<App, Infallible>,
        summary: &str,
    ) -> Self {
        let mut operation = Operation::default();
        H::describe(&mut operation);
        let path = format!("{API}{path}");
        let router = self.router.route(&path, handler);
        self.paths.entry(path).or_insert_with(|| json!({}))[method] = operation.finish(summary);
        Self { router, paths: self.paths }
    }

    /// The routes, and the document.
    pub(crate) fn finish(mut self, others: &[(&str, &str, &str)]) -> (Router<App>, String) {
        for (path, content, summary) in others {
            let answer = json!({ "description": "OK", "content": { (*content): {} } });
            let operation = json!({ "summary": summary, "responses": { "200": answer } });
            self.paths.insert((*path).to_owned(), json!({ "get": operation }));
        }
        let document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Plancha datastore",
                "description": env!("CARGO_PKG_DESCRIPTION"),
                "version": env!("CARGO_PKG_VERSION"),
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            },
            "paths": self.paths,
        });
        (self.router, format!("{document:#}"))
    }
}

impl Operation {
    fn header(&mut self, name: &str, text: &str) {
        let schema = json!({ "type": "string" });
        let parameter =
            json!({ "name": name, "in": "header", "description": text, "schema": schema });
        self.parameters.push(parameter);
    }

    fn answer(&mut self, status: &str, description: &str) {
        self.answers.insert(status.to_owned(), json!({ "description": description }));
    }

    /// An answer whose words are no route's.
    fn answer_in_json(&mut self, status: &str, description: &str) {
        let answer = json!({ "description": description, "content": { "application/json": {} } });
        self.answers.insert(status.to_owned(), answer);
    }

    fn finish(mut self, summary: &str) -> Value {
        let wrong = "A name or the query is wrong, or the body is not what it was said to be.";
        if !self.answers.contains_key("400") {
            self.answer("400", wrong);
        }
        self.answer("500", "The storage failed.");
        self.answer("503", "Too much is under way: try again after `Retry-After` seconds.");
        let refusal = match self.route {
            Some(Route::Own) => "application/problem+json",
            _ => "text/plain",
        };
        for (status, answer) in &mut self.answers {
            if status == "401" {
                answer["content"] = json!({ "application/json": {} });
            } else if status.starts_with(['4', '5'])
                && status != "404"
                && answer.get("content").is_none()
            {
                answer["content"] = json!({ refusal: {} });
            }
        }
        self.answers.sort_keys();
        let mut operation = json!({ "summary": summary, "parameters": self.parameters });
        if let Some(body) = self.body {
            operation["requestBody"] = body;
        }
        operation["responses"] = self.answers.into();
        operation
    }
}

fn bytes() -> Value {
    json!({ "application/octet-stream": {} })
}

impl<S> Takes for State<S> {
    fn describe(_: &mut Operation) {}
}

impl Takes for HeaderMap {
    fn describe(operation: &mut Operation) {
        operation.header("If-None-Match", "Entity tags; 304 if it is one of these.");
        operation.answer("304", "It is what `If-None-Match` names.");
        operation.answer("404", "There is none.");
    }
}

impl Takes for Administrator {
    fn describe(operation: &mut Operation) {
        operation.route = Some(Route::Own);
        operation.answer("401", "Nobody is known by this token, or there is none.");
        operation.answer("403", "This caller may not do that.");
    }
}

impl Takes for EncryptBody {
    fn describe(operation: &mut Operation) {
        operation.answer_in_json("400", "The body cannot be read, or nothing is encrypted here.");
        operation.answer_in_json("401", "The key is not the configured one.");
        operation.answer_in_json("500", "No key is configured.");
    }
}

impl Gives for EncryptReport {
    fn describe(operation: &mut Operation) {
        operation.answer_in_json("200", "Everything is encrypted.");
        operation
            .answer_in_json("206", "Some objects could not be encrypted; `errors` names them.");
    }
}

impl<T: FromParams> Takes for Query<T> {
    fn describe(operation: &mut Operation) {
        operation.route = Some(T::ROUTE);
        operation.answer("401", "Nobody is known by this token, or there is none.");
        operation.answer("403", "This caller may not do that in this namespace.");
        for Asked { name, required, type_name } in Params::asked_by::<T>() {
            operation.parameters.push(json!({
                "name": name, "in": "query", "required": required, "schema": schema(type_name),
            }));
        }
    }
}

impl Takes for Wanted {
    fn describe(operation: &mut Operation) {
        operation.header("Range", "One range of bytes.");
        operation.header("If-Match", "Entity tags; 412 if it is none of these.");
        operation.header("If-None-Match", "Entity tags; 304 if it is one of these.");
        operation.header("If-Range", "An entity tag; `Range` counts only if it is this one.");
        let tags = json!({
            "ETag": { "schema": { "type": "string" } },
            "Repr-Digest": { "description": "Its sha256 (RFC 9530).", "schema": { "type": "string" } },
        });
        for (status, text) in [("200", "All of it."), ("206", "The range that was asked for.")] {
            let answer = json!({ "description": text, "headers": tags, "content": bytes() });
            operation.answers.insert(status.to_owned(), answer);
        }
        operation.answer("304", "It is what `If-None-Match` names.");
        operation.answer("404", "There is none.");
        operation.answer("412", "It is not what `If-Match` names.");
        operation.answer("416", "The range begins past the end.");
    }
}

impl Takes for Upload {
    fn describe(operation: &mut Operation) {
        operation.header("Repr-Digest", "The sha256 of the body (RFC 9530); 400 if it is another.");
        operation.header("If-None-Match", "`*`: 412 if something else is there already.");
        operation.body = Some(json!({ "required": true, "content": bytes() }));
        let etag = json!({ "ETag": { "schema": { "type": "string" } } });
        let answer = json!({ "description": "It is stored.", "headers": etag });
        operation.answers.insert("200".to_owned(), answer);
        operation.answer("412", "Something else is there already.");
        operation.answer("413", "It is larger than this kind may be.");
        operation.answer("507", "The storage is full.");
    }
}

impl Gives for Response {
    /// What is in it, [`Wanted`] or [`Upload`] have said.
    fn describe(operation: &mut Operation) {
        if !operation.answers.contains_key("200") {
            let content = json!({ "application/json": { "schema": { "type": "object" } } });
            let answer = json!({ "description": "All of it.", "content": content });
            operation.answers.insert("200".to_owned(), answer);
        }
    }
}

impl Gives for Taken {
    fn describe(operation: &mut Operation) {
        operation.answer("200", "The attempt is this claim's, perhaps since an earlier try.");
        operation.answer("409", "Another claim has taken it.");
    }
}

impl<T: Example> Gives for Json<T> {
    fn describe(operation: &mut Operation) {
        let examples = T::examples().map(|example| json!(example));
        let content = json!({ "application/json": { "schema": shape(&examples.iter().collect::<Vec<_>>()) } });
        let answer = json!({ "description": "What there is.", "content": content });
        operation.answers.insert("200".to_owned(), answer);
    }
}

macro_rules! described {
    ($($part:ident),*) => {
        impl<F, Fut, Res, M, $($part),*> Described<(M, $($part),*)> for F
        where
            F: Fn($($part),*) -> Fut,
            Fut: Future<Output = Result<Res, ApiError>>,
            Res: Gives,
            $($part: Takes),*
        {
            fn describe(operation: &mut Operation) {
                $($part::describe(operation);)*
                Res::describe(operation);
            }
        }
    };
}

described!(A, B);
described!(A, B, C);

/// Two values that show together all that an answer may hold.
trait Example: Serialize + Sized {
    fn examples() -> [Self; 2];
}

impl Example for Runs {
    fn examples() -> [Self; 2] {
        let run = RunInfo { run: String::new(), started: String::new() };
        [Self { runs: vec![run], next: Some(String::new()) }, Self::default()]
    }
}

impl Example for Attempts {
    fn examples() -> [Self; 2] {
        let file = FileInfo { name: String::new(), size: 0, modified: String::new() };
        let attempt = AttemptFiles { attempt: Attempt(0), artifacts: vec![file] };
        [Self { attempts: vec![attempt] }, Self::default()]
    }
}

/// The schema of values like these.
fn shape(values: &[&Value]) -> Value {
    let of = |value: &&Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let mut types = values.iter().map(of).collect::<Vec<_>>();
    types.sort_unstable_by(|a, b| b.cmp(a));
    types.dedup();
    let mut schema =
        if let [one] = types[..] { json!({ "type": one }) } else { json!({ "type": types }) };
    let items = values.iter().filter_map(|value| value.as_array()).flatten().collect::<Vec<_>>();
    if !items.is_empty() {
        schema["items"] = shape(&items);
    }
    if let Some(fields) = values.iter().find_map(|value| value.as_object()) {
        for name in fields.keys() {
            let values = values.iter().filter_map(|value| value.get(name)).collect::<Vec<_>>();
            schema["properties"][name] = shape(&values);
        }
        schema["required"] = fields.keys().cloned().collect();
    }
    schema
}

/// The schema of a parameter, by the type that parses it.
fn schema(type_name: &str) -> Value {
    match type_name.rsplit("::").next() {
        Some("Attempt") => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        Some("Limit") => json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 50 }),
        Some("PlanFormat") => {
            json!({ "type": "string", "enum": PlanFormat::ALL.map(PlanFormat::as_str), "default": "json" })
        }
        Some("Name") => json!({ "type": "string", "minLength": 1, "maxLength": 253 }),
        Some("ClaimId") => json!({ "type": "string", "pattern": "^[A-Za-z0-9-]{1,64}$" }),
        Some("Sha256") => json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" }),
        Some("Revision") => json!({ "type": "string", "minLength": 1, "maxLength": 240 }),
        Some("ArtifactName") => {
            json!({ "type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$" })
        }
        _ => json!({ "type": "string" }),
    }
}
