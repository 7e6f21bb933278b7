//! States, leases of layers, and the tools of layers. Datastores of Burrito and older ones of Plancha have none of them.

use std::path::Path;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::call::Call;
use super::error::ClientError;
use super::http::Client;
use super::sender::Sender;
use super::silence::Progress;
use super::transfer::{Download, Upload};
use crate::digest::Sha256;
use crate::name::{ClaimId, Name};
use crate::state::{
    DEFAULT_WORKSPACE, GrantedLease, LayerTool, Lease, LeaseRequest, StateKey, StateKind, States,
    ToolRecord, VersionId,
};

/// The maximum size of an answer, in bytes.
const LIMIT: usize = 1 << 20;

/// The answer to a request for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// The caller holds it.
    Granted(Box<GrantedLease>),
    /// Another holds it, or another holds the lock of one of the layer's states. The text names the holder.
    Held(String),
    /// The caller held it, and another took it over. The text names the other.
    Lost(String),
    /// This datastore has no leases: it is an older one, Burrito's, or over a storage that cannot keep them.
    Unsupported,
}

/// What a write of a state records about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateOrigin {
    /// The run, as `<run>/<attempt>`.
    pub run: Option<String>,
    /// The tool.
    pub tool: Option<LayerTool>,
    /// The fencing number of the lease under which it is written.
    pub fence: Option<u64>,
    /// Where the code is. The state's first writer records it, and writers of another place are refused.
    pub place: Option<String>,
    /// Whether to record this place instead of another one.
    pub rebind: bool,
}

impl StateOrigin {
    /// As parameters of a query.
    fn query(&self) -> Vec<(&'static str, String)> {
        let tool = self.tool.as_ref();
        let pairs = [
            ("run", self.run.clone()),
            ("tool", tool.map(|tool| tool.name.clone())),
            ("tool_version", tool.map(|tool| tool.version.clone())),
            ("fence", self.fence.map(|fence| fence.to_string())),
            ("place", self.place.clone()),
            ("rebind", self.rebind.then(|| "true".to_owned())),
        ];
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

impl Client {
    /// The address of a state for the `http` backend of terraform and tofu, for all three of its addresses. It has no
    /// secret.
    pub fn state_address(&self, key: &StateKey, origin: &StateOrigin) -> Url {
        let mut url = self.settings().url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}{}", state_path(key)));
        let query = origin.query();
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    /// The present state, and one page of its versions, newest first: of one kind, or those that were the state and
    /// snapshots.
    pub async fn states(
        &self,
        key: &StateKey,
        kind: Option<StateKind>,
        limit: u16,
        cursor: Option<&str>,
    ) -> Result<States, ClientError> {
        let mut query = key_query(key);
        query.push(("limit", limit.to_string()));
        query.extend(kind.map(|kind| ("kind", kind.as_str().to_owned())));
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.json(&Call { method: Method::GET, path: "/api/states".into(), query }).await
    }

    /// Reads a state, or one version of it, into a new file of mode 0600, and returns its digest. `None`: there is none.
    pub async fn save_state(
        &self,
        key: &StateKey,
        version: Option<&VersionId>,
        to: &Path,
    ) -> Result<Option<Sha256>, ClientError> {
        let query = version.map(|version| ("version", version.to_string()));
        self.save(&state_call(Method::GET, key, query.into_iter().collect()), None, to).await
    }

    /// Opens a state, or one version of it. `None`: there is none.
    pub async fn open_state(
        &self,
        key: &StateKey,
        version: Option<&VersionId>,
    ) -> Result<Option<Download>, ClientError> {
        let query = version.map(|version| ("version", version.to_string()));
        self.get(&state_call(Method::GET, key, query.into_iter().collect())).await
    }

    /// Stores a copy of a state that is kept elsewhere, or that is not complete yet. It never becomes the state by itself.
    pub async fn put_snapshot(
        &self,
        key: &StateKey,
        origin: &StateOrigin,
        upload: &Upload,
    ) -> Result<(), ClientError> {
        let query = [key_query(key), origin.query()].concat();
        let call = Call { method: Method::PUT, path: "/api/states".into(), query };
        self.upload_state(&call, upload).await
    }

    /// Writes a state, as a tool does. `force` (with the permission `admin`) accepts any lineage and serial.
    pub async fn push_state(
        &self,
        key: &StateKey,
        origin: &StateOrigin,
        upload: &Upload,
        force: bool,
    ) -> Result<(), ClientError> {
        let mut query = origin.query();
        query.extend(force.then(|| ("force", "true".to_owned())));
        self.upload_state(&state_call(Method::POST, key, query), upload).await
    }

    async fn upload_state(&self, call: &Call, upload: &Upload) -> Result<(), ClientError> {
        let progress = Progress::default();
        self.retrying(async || {
            let progress = progress.another_try();
            let request = upload.attach(self.request(call)?, &progress).await?;
            let response = self.send(call, request, &progress).await;
            let response = response.map_err(|error| upload.sized(error))?;
            self.check_empty(call, response, &progress).await
        })
        .await
    }

    /// Makes an old version the state again. Needs the permission `admin`.
    pub async fn restore_state(
        &self,
        key: &StateKey,
        version: &VersionId,
    ) -> Result<(), ClientError> {
        let query = [key_query(key), vec![("version", version.to_string())]].concat();
        self.order("/api/states/restore", query).await
    }

    /// Removes the lock with this ID. Needs the permission `admin`.
    pub async fn unlock_state(&self, key: &StateKey, id: &str) -> Result<(), ClientError> {
        let query = [key_query(key), vec![("id", id.to_owned())]].concat();
        self.order("/api/states/unlock", query).await
    }

    /// Removes a lock, as its holder does: `lock` has its ID. One that is not held any more is no error.
    pub async fn free_lock(
        &self,
        key: &StateKey,
        origin: &StateOrigin,
        lock: &Value,
    ) -> Result<(), ClientError> {
        let call = state_call(unlock(), key, origin.query());
        self.sent(&call, || self.with_json(&call, self.request(&call)?, lock)).await
    }

    /// Deletes a state. Its versions stay for 30 days. Needs the permission `admin`.
    pub async fn delete_state(&self, key: &StateKey) -> Result<(), ClientError> {
        self.send_order(&state_call(Method::DELETE, key, Vec::new())).await
    }

    /// Undoes the deletion of a state. Needs the permission `admin`.
    pub async fn undelete_state(&self, key: &StateKey) -> Result<(), ClientError> {
        self.order("/api/states/undelete", key_query(key)).await
    }

    async fn order(
        &self,
        path: &'static str,
        query: Vec<(&'static str, String)>,
    ) -> Result<(), ClientError> {
        self.send_order(&Call { method: Method::POST, path: path.into(), query }).await
    }

    async fn send_order(&self, call: &Call) -> Result<(), ClientError> {
        self.sent(call, || self.request(call)).await
    }

    /// Sends a request whose answer has no body.
    async fn sent(
        &self,
        call: &Call,
        request: impl Fn() -> Result<RequestBuilder, ClientError>,
    ) -> Result<(), ClientError> {
        let progress = Progress::default();
        self.retrying(async || {
            let progress = progress.another_try();
            let response = self.send(call, request()?, &progress).await?;
            self.check_empty(call, response, &progress).await
        })
        .await
    }

    /// Takes the lease of a layer. The same `id` succeeds again, so a lost answer does no harm. With a workspace the answer
    /// has a credential for its state, if the caller may use that state.
    pub async fn take_lease(
        &self,
        namespace: &Name,
        layer: &Name,
        workspace: Option<&Name>,
        id: &ClaimId,
        request: &LeaseRequest,
    ) -> Result<LeaseAnswer, ClientError> {
        let mut query = vec![("id", id.to_string())];
        query.extend(workspace.map(|workspace| ("workspace", workspace.to_string())));
        self.lease_answer(&lease_call(Method::POST, namespace, layer, query), Some(request)).await
    }

    /// Renews a lease, also an expired one that nobody has taken over.
    pub async fn renew_lease(
        &self,
        namespace: &Name,
        layer: &Name,
        id: &ClaimId,
    ) -> Result<LeaseAnswer, ClientError> {
        let query = vec![("id", id.to_string())];
        self.lease_answer(&lease_call(Method::PUT, namespace, layer, query), None).await
    }

    async fn lease_answer(
        &self,
        call: &Call,
        request: Option<&LeaseRequest>,
    ) -> Result<LeaseAnswer, ClientError> {
        let progress = Progress::default();
        let answer: Result<GrantedLease, ClientError> = self
            .retrying(async || {
                let mut builder = self.request(call)?;
                if let Some(request) = request {
                    builder = self.with_json(call, builder, request)?;
                }
                let answer = self.json_of(call, builder, progress.another_try()).await;
                self.or_unsupported(answer).await
            })
            .await;
        match answer {
            Ok(granted) => Ok(LeaseAnswer::Granted(Box::new(granted))),
            Err(ClientError::Refused { status: StatusCode::LOCKED, message, .. }) => {
                Ok(LeaseAnswer::Held(message))
            }
            // Only a datastore knows of leases: another program's answer says nothing of them.
            Err(ClientError::Refused {
                status: StatusCode::CONFLICT,
                message,
                sender: Sender::Plancha | Sender::Datastore,
                ..
            }) => Ok(LeaseAnswer::Lost(message)),
            Err(ClientError::Unsupported { .. }) => Ok(LeaseAnswer::Unsupported),
            Err(error) => Err(error),
        }
    }

    /// Releases a lease. A lease that is not held any more is no error.
    pub async fn release_lease(
        &self,
        namespace: &Name,
        layer: &Name,
        id: &ClaimId,
    ) -> Result<(), ClientError> {
        let query = vec![("id", id.to_string())];
        self.send_order(&lease_call(Method::DELETE, namespace, layer, query)).await
    }

    /// The lease of a layer, also an expired one; `None` if there is none.
    pub async fn lease(
        &self,
        namespace: &Name,
        layer: &Name,
    ) -> Result<Option<Lease>, ClientError> {
        self.get_optional(&lease_call(Method::GET, namespace, layer, Vec::new())).await
    }

    /// The tool that works with the states of a layer, wherever they are; `None` if none was recorded.
    pub async fn layer_tool(
        &self,
        namespace: &Name,
        layer: &Name,
    ) -> Result<Option<ToolRecord>, ClientError> {
        self.get_optional(&tool_call(Method::GET, namespace, layer)).await
    }

    /// Records the tool that works with the states of a layer.
    pub async fn put_layer_tool(
        &self,
        namespace: &Name,
        layer: &Name,
        tool: &ToolRecord,
    ) -> Result<(), ClientError> {
        let call = tool_call(Method::PUT, namespace, layer);
        self.sent(&call, || self.with_json(&call, self.request(&call)?, tool)).await
    }

    /// A JSON answer; `None` for something that does not exist, also where the datastore has no such route.
    async fn get_optional<T: DeserializeOwned>(
        &self,
        call: &Call,
    ) -> Result<Option<T>, ClientError> {
        let progress = Progress::default();
        let answer = self
            .retrying(async || {
                let request = self.request(call)?;
                let answer = self.json_of(call, request, progress.another_try()).await;
                self.or_unsupported(answer).await
            })
            .await;
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(ClientError::Unsupported { .. }) => Ok(None),
            Err(error) if error.is_not_found(call) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn with_json(
        &self,
        call: &Call,
        request: RequestBuilder,
        body: &impl Serialize,
    ) -> Result<RequestBuilder, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::Answer {
            call: self.name(call),
            reason: error.to_string(),
        })?;
        Ok(request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body))
    }

    async fn json_of<T: DeserializeOwned>(
        &self,
        call: &Call,
        request: RequestBuilder,
        progress: Progress,
    ) -> Result<T, ClientError> {
        let response = self.send(call, request, &progress).await?;
        let body = self.download(self.name(call), response, progress)?.bytes(LIMIT).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Answer {
            call: self.name(call),
            reason: error.to_string(),
        })
    }
}

impl ClientError {
    /// Whether this is the answer of a datastore without the route, or whose storage cannot keep states.
    pub fn lacks_route(&self) -> bool {
        matches!(self, Self::Unsupported { .. }) || is_unsupported(self)
    }
}

/// Whether this is the answer of a datastore without the route, or whose storage cannot keep states.
fn is_unsupported(error: &ClientError) -> bool {
    match error {
        ClientError::Refused { status: StatusCode::NOT_IMPLEMENTED, .. } => true,
        ClientError::Refused { status: StatusCode::NOT_FOUND, sender, message, .. } => {
            *sender != Sender::Datastore && message == "Not Found"
        }
        _ => false,
    }
}

/// The method by which terraform removes a lock.
fn unlock() -> Method {
    Method::from_bytes(b"UNLOCK").expect("a valid method")
}

fn segment(name: &Name) -> impl std::fmt::Display {
    utf8_percent_encode(name.as_ref(), NON_ALPHANUMERIC)
}

fn state_path(key: &StateKey) -> String {
    let StateKey { namespace, layer, workspace } = key;
    let path = format!("/api/state/{}/{}", segment(namespace), segment(layer));
    if workspace.as_ref() == DEFAULT_WORKSPACE {
        path
    } else {
        format!("{path}/{}", segment(workspace))
    }
}

fn state_call(method: Method, key: &StateKey, query: Vec<(&'static str, String)>) -> Call {
    Call { method, path: state_path(key).into(), query }
}

fn lease_call(
    method: Method,
    namespace: &Name,
    layer: &Name,
    query: Vec<(&'static str, String)>,
) -> Call {
    let path = format!("/api/leases/{}/{}", segment(namespace), segment(layer));
    Call { method, path: path.into(), query }
}

fn tool_call(method: Method, namespace: &Name, layer: &Name) -> Call {
    let path = format!("/api/tools/{}/{}", segment(namespace), segment(layer));
    Call { method, path: path.into(), query: Vec::new() }
}

fn key_query(key: &StateKey) -> Vec<(&'static str, String)> {
    vec![
        ("namespace", key.namespace.to_string()),
        ("layer", key.layer.to_string()),
        ("workspace", key.workspace.to_string()),
    ]
}
