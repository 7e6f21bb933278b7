//! `/api/openapi.json`: a description of the routes, made from the signatures of their handlers.
//!
//! [`Api`] makes a route and its description from the same handler. The parameters of the query are those that its
//! [`FromParams`] parses. Headers and bodies are those of [`ReadRequest`] and [`Upload`]. The schema of a JSON answer is
//! made from example values of its type. So the description cannot differ from the code, and types that the runner
//! shares need no derive.
//!
//! `utoipa` was tried on three of the routes and took 145 lines. All routes would take about as many lines as this
//! file, but every handler would repeat its path, parameters and answers, which nothing compares with the code. The
//! answers would be listed twice, because errors of Burrito's routes have another content type.

mod example;

use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post, put};
use axum::{Extension, Json, Router};
use datastore_api::PlanFormat;
use datastore_api::approval::{LIFETIME, MAX_LIFETIME};
use datastore_api::status::metrics::PREFIX;
use serde_json::{Map, Value, json};

use crate::api::body::{JsonBody, SmallBody};
use crate::api::error::{ApiError, wrong_state_method};
use crate::api::openapi::example::Example;
use crate::api::params::{FromOpenParams, FromParams, OpenQuery, ParamSpec, Params, Query};
use crate::api::route::{Route, STATE_IN_WORKSPACE};
use crate::api::transfer::{AppendBody, ReadRequest, Upload};

/// Routes with the state `S`, and their descriptions.
pub(crate) struct Api<S> {
    router: Router<S>,
    paths: Map<String, Value>,
}

/// A route without parameters of a query and without a caller: its answer and summary.
pub(crate) struct Other(pub(crate) Route, pub(crate) OtherAnswer, pub(crate) &'static str);

/// The answer of such a route.
pub(crate) enum OtherAnswer {
    /// 200 with this content type.
    Content(&'static str),
    /// 303.
    Redirect,
}

/// The description of one method of one path.
#[derive(Default)]
pub(crate) struct Operation {
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: Map<String, Value>,
    /// Determines the content type of errors.
    route: Option<Route>,
    /// The path, with the names of its parameters.
    path: &'static str,
}

/// Describes an argument of a handler.
pub(crate) trait DescribeRequest {
    fn describe(operation: &mut Operation);
}

/// Describes the answer of a handler.
pub(crate) trait DescribeResponse {
    fn describe(operation: &mut Operation);
}

/// Describes a handler by its arguments and its answer.
pub(crate) trait DescribeHandler<T> {
    fn describe(operation: &mut Operation);
}

impl<S: Clone + Send + Sync + 'static> Api<S> {
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), paths: Map::new() }
    }

    /// Adds a route. A GET also answers HEAD.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a handler is named, and each path has a copy"
    )]
    pub(crate) fn route<H, T>(mut self, route: Route, handler: H, summary: &str) -> Self
    where
        H: Handler<T, S> + DescribeHandler<T>,
        T: 'static,
    {
        for path in paths(route) {
            let (handler, method) = match route.method() {
                Method::PUT => (put(handler.clone()), "put"),
                Method::POST => (post(handler.clone()), "post"),
                Method::DELETE => (delete(handler.clone()), "delete"),
                _ => (get(handler.clone()), "get"),
            };
            self.router = self.router.route(path, handler);
            self.describe::<H, T>(path, method, summary);
        }
        self
    }

    /// Adds the methods LOCK and UNLOCK of the routes of states. `OpenAPI` has no word for them.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a handler is named, and each path has a copy"
    )]
    pub(crate) fn locks<L, T, U, V>(mut self, lock: (L, &str), unlock: (U, &str)) -> Self
    where
        L: Handler<T, S> + DescribeHandler<T>,
        U: Handler<V, S> + DescribeHandler<V>,
        T: 'static,
        V: 'static,
    {
        for path in paths(Route::LockState) {
            let (locks, unlocks) = (lock.0.clone(), unlock.0.clone());
            let either = async move |State(state): State<S>, request: Request| match request
                .method()
                .as_str()
            {
                "LOCK" => locks.clone().call(request, state).await,
                "UNLOCK" => unlocks.clone().call(request, state).await,
                _ => wrong_state_method(),
            };
            self.router = self.router.route(path, MethodRouter::new().fallback(either));
            self.describe::<L, T>(path, "x-lock", lock.1);
            self.describe::<U, V>(path, "x-unlock", unlock.1);
        }
        self
    }

    fn describe<H: DescribeHandler<T>, T>(
        &mut self,
        path: &'static str,
        method: &str,
        summary: &str,
    ) {
        let mut operation = Operation { path, ..Operation::default() };
        H::describe(&mut operation);
        if method == "x-lock" {
            operation.answer("422", "It is refused, and not because of a lock or a lease.");
        }
        self.paths.entry(path).or_insert_with(|| json!({}))[method] = operation.finish(summary);
    }

    /// Returns the routes, and the document with `others` added.
    pub(crate) fn finish(mut self, others: &[Other]) -> (Router<S>, String) {
        for Other(route, answer, summary) in others {
            let (status, answer) = match answer {
                OtherAnswer::Content(content) => {
                    ("200", json!({ "description": "OK", "content": { (*content): {} } }))
                }
                OtherAnswer::Redirect => ("303", json!({ "description": "To another address." })),
            };
            let mut operation = json!({ "summary": summary, "responses": { status: answer } });
            let in_path = route.path().split('/').filter_map(|part| part.strip_prefix('{'));
            let parameters = in_path.map(|name| {
                let name = name.trim_end_matches('}');
                json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
            });
            let parameters = parameters.collect::<Vec<_>>();
            if !parameters.is_empty() {
                operation["parameters"] = parameters.into();
            }
            let method = route.method().as_str().to_lowercase();
            self.paths.entry(route.path()).or_insert_with(|| json!({}))[method] = operation;
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

/// The paths of a route: those of states have a second one, with a workspace.
fn paths(route: Route) -> Vec<&'static str> {
    let workspace = route.is_state().then_some(STATE_IN_WORKSPACE);
    [route.path()].into_iter().chain(workspace).collect()
}

impl Operation {
    fn header(&mut self, name: &str, text: &str) {
        let schema = json!({ "type": "string" });
        let parameter =
            json!({ "name": name, "in": "header", "description": text, "schema": schema });
        self.parameters.push(parameter);
    }

    /// Describes the parameters of a route.
    fn parameters(&mut self, route: Route, specs: Vec<ParamSpec>) {
        self.of(route);
        self.answer("401", "The token is missing or unknown.");
        for ParamSpec { name, required, type_name } in specs {
            let in_path = self.path.contains(&format!("{{{name}}}"));
            let place = if in_path { "path" } else { "query" };
            self.parameters.push(json!({
                "name": name, "in": place, "required": required || in_path, "schema": schema(type_name),
            }));
        }
    }

    /// Describes an answer in JSON that has the form of these examples.
    pub(crate) fn answer_like(&mut self, description: &str, examples: &[&Value]) {
        let content = json!({ "application/json": { "schema": shape(examples) } });
        self.answers
            .insert("200".to_owned(), json!({ "description": description, "content": content }));
    }

    /// Sets the route, which determines the content type of errors.
    pub(crate) fn of(&mut self, route: Route) {
        self.route = Some(route);
    }

    pub(crate) fn answer(&mut self, status: &str, description: &str) {
        self.answers.insert(status.to_owned(), json!({ "description": description }));
    }

    /// Describes an answer that is JSON on any route.
    pub(crate) fn answer_in_json(&mut self, status: &str, description: &str) {
        let answer = json!({ "description": description, "content": { "application/json": {} } });
        self.answers.insert(status.to_owned(), answer);
    }

    /// Describes an answer with this content type on any route.
    pub(crate) fn answer_with(&mut self, status: &str, description: &str, content: &str) {
        let answer = json!({ "description": description, "content": { (content): {} } });
        self.answers.insert(status.to_owned(), answer);
    }

    fn finish(mut self, summary: &str) -> Value {
        let wrong = "A parameter is missing or invalid, or the body does not match its digest.";
        if !self.answers.contains_key("400") {
            self.answer("400", wrong);
        }
        self.answer("500", "The storage failed.");
        self.answer("503", "The server is at capacity: retry after `Retry-After` seconds.");
        let refusal = match self.route {
            Some(route) if !route.has_burrito_texts() => "application/problem+json",
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

impl<S> DescribeRequest for State<S> {
    fn describe(_: &mut Operation) {}
}

impl<T> DescribeRequest for Extension<T> {
    fn describe(_: &mut Operation) {}
}

impl DescribeRequest for HeaderMap {
    fn describe(operation: &mut Operation) {
        operation.header("If-None-Match", "Entity tags; 304 if one of them matches.");
        operation.header("Accept", "`text/event-stream`: a followed log comes as events.");
        operation.header("Last-Event-ID", "The offset of the next byte of a followed log.");
        operation.answer("304", "The entity tag matches `If-None-Match`.");
        operation.answer("404", "The object does not exist.");
        operation.answer("416", "The log has fewer bytes than `offset`.");
    }
}

impl<T: FromParams> DescribeRequest for Query<T> {
    fn describe(operation: &mut Operation) {
        operation.parameters(T::ROUTE, Params::specs(T::from_params));
        operation.answer("403", "The caller has no permission for this in the namespace.");
    }
}

impl<T: FromOpenParams> DescribeRequest for OpenQuery<T> {
    fn describe(operation: &mut Operation) {
        operation.parameters(T::ROUTE, Params::specs(T::from_params));
    }
}

impl DescribeRequest for SmallBody {
    fn describe(operation: &mut Operation) {
        operation.body = Some(json!({ "content": { "application/json": {} } }));
        operation.answer("200", "Done.");
        operation.answer("409", "It does not fit what is recorded now; the text says why.");
        operation
            .answer_in_json("423", "Another holds the lock or the lease; the answer describes it.");
    }
}

impl<T: Example> DescribeRequest for JsonBody<T> {
    fn describe(operation: &mut Operation) {
        SmallBody::describe(operation);
        let mut schema = example_schema::<T>();
        // What may be null may be left out.
        let properties = schema["properties"].clone();
        let is_needed =
            |name: &Value| !properties[name.as_str().unwrap_or_default()]["type"].is_array();
        if let Some(required) = schema["required"].as_array_mut() {
            required.retain(is_needed);
        }
        let content = json!({ "application/json": { "schema": schema } });
        operation.body = Some(json!({ "required": true, "content": content }));
    }
}

impl DescribeRequest for ReadRequest {
    fn describe(operation: &mut Operation) {
        operation.header("Range", "One range of bytes.");
        operation.header("If-Match", "Entity tags; 412 if none of them matches.");
        operation.header("If-None-Match", "Entity tags; 304 if one of them matches.");
        operation.header("If-Range", "An entity tag; `Range` is used only if it matches.");
        let tags = json!({
            "ETag": { "schema": { "type": "string" } },
            "Repr-Digest": { "description": "The SHA-256 digest (RFC 9530).", "schema": { "type": "string" } },
        });
        for (status, text) in [("200", "The whole content."), ("206", "The requested range.")] {
            let answer = json!({ "description": text, "headers": tags, "content": bytes() });
            operation.answers.insert(status.to_owned(), answer);
        }
        operation.answer("304", "The entity tag matches `If-None-Match`.");
        operation.answer("404", "The object does not exist.");
        operation.answer("412", "The `If-Match` precondition failed.");
        operation.answer("416", "The range begins after the end of the object.");
    }
}

impl DescribeRequest for Upload {
    fn describe(operation: &mut Operation) {
        operation.header(
            "Repr-Digest",
            "The SHA-256 digest of the body (RFC 9530); 400 if the body does not match it.",
        );
        operation.header("If-None-Match", "`*`: 412 if other content is already stored.");
        operation.body = Some(json!({ "required": true, "content": bytes() }));
        let etag = json!({ "ETag": { "schema": { "type": "string" } } });
        let answer = json!({ "description": "The object is stored.", "headers": etag });
        operation.answers.insert("200".to_owned(), answer);
        operation.answer("412", "Other content is already stored.");
        operation.answer("413", "The body is larger than the limit of its kind.");
        operation.answer("507", "The storage is full.");
    }
}

impl DescribeRequest for AppendBody {
    fn describe(operation: &mut Operation) {
        operation.header(
            "Repr-Digest",
            "The SHA-256 digest of the body (RFC 9530); 400 if the body does not match it.",
        );
        operation.body = Some(json!({ "content": bytes() }));
        operation.answer("413", "The body has more than 4 MiB, or the log would be too large.");
        operation.answer("507", "The storage is full.");
    }
}

impl DescribeResponse for Response {
    /// [`ReadRequest`] and [`Upload`] describe their answers themselves.
    fn describe(operation: &mut Operation) {
        if !operation.answers.contains_key("200") {
            let content = json!({ "application/json": { "schema": { "type": "object" } } });
            let answer = json!({ "description": "The whole content.", "content": content });
            operation.answers.insert("200".to_owned(), answer);
        }
    }
}

impl<T: Example> DescribeResponse for Json<T> {
    fn describe(operation: &mut Operation) {
        let content = json!({ "application/json": { "schema": example_schema::<T>() } });
        let answer = json!({ "description": "The listing.", "content": content });
        operation.answers.insert("200".to_owned(), answer);
    }
}

macro_rules! described {
    ($($part:ident),*) => {
        impl<Function, Fut, Res, M, $($part),*> DescribeHandler<(M, $($part),*)> for Function
        where
            Function: Fn($($part),*) -> Fut,
            Fut: Future<Output = Result<Res, ApiError>>,
            Res: DescribeResponse,
            $($part: DescribeRequest),*
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
described!(A, B, C, D);
described!(A, B, C, D, E, F);
described!(A, B, C, D, E, F, G);

/// The schema of the examples of a type.
fn example_schema<T: Example>() -> Value {
    let examples = T::examples().map(|example| json!(example));
    shape(&examples.iter().collect::<Vec<_>>())
}

/// The schema that fits all of these values. An object that has a field without a name is a
/// map.
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
    let objects = values.iter().filter_map(|value| value.as_object()).collect::<Vec<_>>();
    let Some(fields) = objects.first() else { return schema };
    for name in fields.keys() {
        if name.is_empty() {
            let values = objects.iter().flat_map(|object| object.values()).collect::<Vec<_>>();
            schema["additionalProperties"] = shape(&values);
            return schema;
        }
        let values = values.iter().filter_map(|value| value.get(name)).collect::<Vec<_>>();
        schema["properties"][name] = shape(&values);
    }
    let is_always_there = |name: &&String| objects.iter().all(|object| object.contains_key(*name));
    schema["required"] = fields.keys().filter(is_always_there).cloned().collect();
    schema
}

/// The schema of a parameter, by the name of the Rust type that parses it, without its path. Two parameter types must
/// not have the same name. A type without an arm here is described as any string.
fn schema(type_name: &str) -> Value {
    match type_name.rsplit("::").next() {
        Some("Attempt") => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        Some("Limit") => json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 50 }),
        Some("PlanFormat") => {
            json!({ "type": "string", "enum": PlanFormat::ALL.map(PlanFormat::as_str), "default": "json" })
        }
        Some("Name") => json!({ "type": "string", "minLength": 1, "maxLength": 253 }),
        Some("ClaimId") => json!({ "type": "string", "pattern": "^[A-Za-z0-9-]{1,64}$" }),
        Some("RunAttempt") => json!({ "type": "string", "pattern": "^[^/]+/(0|[1-9][0-9]*)$" }),
        Some("MetricPrefix") => {
            json!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$", "default": PREFIX })
        }
        Some("Lifetime") => {
            json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIFETIME, "default": LIFETIME })
        }
        Some("Flag") => json!({ "type": "string", "enum": ["true"] }),
        Some("KindOfState") => {
            json!({ "type": "string", "enum": ["head", "snapshot", "rejected"] })
        }
        Some("VersionId") => json!({ "type": "string", "pattern": "^[0-9a-f]{16}-[0-9a-f]{16}$" }),
        Some("u64") => json!({ "type": "integer", "minimum": 0 }),
        Some("Text") => json!({ "type": "string", "maxLength": 1024 }),
        Some("Sha256") => json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" }),
        Some("Revision") => json!({ "type": "string", "minLength": 1, "maxLength": 240 }),
        Some("ArtifactName") => {
            json!({ "type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$" })
        }
        _ => json!({ "type": "string" }),
    }
}
