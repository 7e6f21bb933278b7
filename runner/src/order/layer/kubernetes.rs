//! A layer in a cluster: three GETs read the objects that Burrito's controllers use, and one merge-patch writes the
//! annotations. The service account of a runner may do nothing else.
//!
//! The only module that knows kube.

mod access;

use std::error::Error;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use datastore_api::{Attempt, Name};
use kube::api::{ApiResource, DynamicObject, GetParams, GroupVersionKind, Patch, PatchParams};
use kube::core::Request;
use kube::{Client, Config, Resource as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::order::layer::{Annotations, Layer, Repository, null_is_default, parse};

const GROUP: &str = "config.terraform.padok.cloud";
const VERSION: &str = "v1alpha1";
/// How long the run waits until the controller has recorded this pod in it. After that, the controller has probably
/// crashed or lost the pod.
const RECORD_TIMEOUT: Duration = Duration::from_secs(15);
const RECORD_INTERVAL: Duration = Duration::from_millis(500);
/// After this time, the wait is logged.
const QUIET: Duration = Duration::from_millis(2500);

/// The cluster of this pod, or the one that a kubeconfig names.
#[derive(Clone)]
pub(crate) struct Cluster(Client);

/// The objects of a run, except the layer's repository.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) layer: Layer,
    pub(crate) run: Run,
    pub(crate) attempt: OrderedAttempt,
}

/// The number of a pod's attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderedAttempt {
    /// The controller has recorded it.
    Recorded(Attempt),
    /// The controller has recorded other pods only: every number below this one is theirs.
    AtLeast(Attempt),
}

impl OrderedAttempt {
    /// The recorded number.
    pub(crate) fn recorded(self) -> Option<Attempt> {
        match self {
            Self::Recorded(attempt) => Some(attempt),
            Self::AtLeast(_) => None,
        }
    }

    /// The recorded number, or the lowest that may be taken.
    pub(crate) fn lowest(self) -> Attempt {
        match self {
            Self::Recorded(attempt) | Self::AtLeast(attempt) => attempt,
        }
    }
}

/// A `TerraformRun`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Run {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) spec: RunSpec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: RunStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunSpec {
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) layer: RunLayer,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) artifact: Artifact,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunLayer {
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) revision: String,
}

/// The plan to apply. Both are texts; an empty attempt is the latest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Artifact {
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) run: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) attempt: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RunStatus {
    #[serde(deserialize_with = "null_is_default")]
    retries: u32,
    #[serde(deserialize_with = "null_is_default")]
    runner_pod: String,
    #[serde(deserialize_with = "null_is_default")]
    attempts: Vec<RunAttempt>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RunAttempt {
    #[serde(deserialize_with = "null_is_default")]
    pod_name: String,
    #[serde(deserialize_with = "null_is_default")]
    number: u32,
}

/// A request to the cluster failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error("no cluster can be found: neither a pod's service account nor a kubeconfig")]
    Nowhere(#[source] Box<kube::Error>),
    #[error("{what}: {}", cause(.error))]
    Unanswered { what: String, error: Box<kube::Error> },
    /// With the API server's message only: kube would print the whole status.
    #[error("{what}: {code} {reason}: {message}")]
    Refused { what: String, code: u16, reason: String, message: String },
    #[error("{what} cannot be used: {reason}")]
    Malformed { what: String, reason: String },
}

/// The kind of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterFault {
    /// 401, or the token cannot be read.
    Unauthenticated,
    /// 403.
    Forbidden,
    /// The API server says that there is no such object (404).
    Missing,
    /// The object has an invalid field.
    Malformed,
    /// No cluster is configured.
    Nowhere,
    /// The request cannot succeed in this cluster.
    Configuration,
    /// A retry may succeed: no answer, 408, 429, 5xx.
    Transient,
}

impl ClusterError {
    /// The kind of the failure.
    pub(crate) fn fault(&self) -> ClusterFault {
        match self {
            Self::Refused { code: 401, .. } => ClusterFault::Unauthenticated,
            Self::Refused { code: 403, .. } => ClusterFault::Forbidden,
            Self::Refused { code: 404, .. } => ClusterFault::Missing,
            Self::Refused { code: 408 | 429 | 500.., .. } => ClusterFault::Transient,
            Self::Refused { .. } => ClusterFault::Configuration,
            Self::Nowhere(_) => ClusterFault::Nowhere,
            Self::Malformed { .. } => ClusterFault::Malformed,
            Self::Unanswered { error, .. } => match **error {
                kube::Error::Auth(_) => ClusterFault::Unauthenticated,
                kube::Error::BuildRequest(_) => ClusterFault::Configuration,
                kube::Error::FromUtf8(_) => ClusterFault::Malformed,
                _ => ClusterFault::Transient,
            },
        }
    }

    fn new(what: String, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused {
                what,
                code: status.code,
                reason: status.reason,
                message: status.message,
            },
            error => Self::Unanswered { what, error: error.into() },
        }
    }
}

impl Run {
    /// The number that the controller has recorded for this pod, else the lowest number that is free, if there is one.
    pub(super) fn attempt(&self, pod: Option<&str>) -> Option<OrderedAttempt> {
        let RunStatus { retries, runner_pod, attempts } = &self.status;
        let retries = Attempt(*retries);
        let Some(pod) = pod else { return Some(OrderedAttempt::Recorded(retries)) };
        if let Some(own) = attempts.iter().rev().find(|attempt| attempt.pod_name == pod) {
            return Some(OrderedAttempt::Recorded(Attempt(own.number)));
        }
        let others = attempts.iter().map(|attempt| Attempt(attempt.number)).max();
        if runner_pod == pod || runner_pod.is_empty() && others.is_none() {
            return Some(OrderedAttempt::Recorded(retries));
        }
        // A pod is created before it is recorded, so these numbers belong to earlier pods.
        let Attempt(highest) = others.unwrap_or(retries).max(retries);
        Some(OrderedAttempt::AtLeast(Attempt(highest.checked_add(1)?)))
    }
}

impl Cluster {
    /// Connects to the pod's own cluster: in a pod, `KUBECONFIG` is meant for a provider. Outside of a pod, to the cluster
    /// that a kubeconfig names.
    pub(crate) async fn connect() -> Result<Self, ClusterError> {
        let mut config = match Config::incluster() {
            Ok(config) => config,
            Err(_) => Config::infer().await.map_err(|error| {
                ClusterError::Nowhere(Box::new(kube::Error::InferConfig(error)))
            })?,
        };
        config.connect_timeout = Some(Duration::from_secs(5));
        config.read_timeout = Some(Duration::from_secs(30));
        // Kube's own 15 retries take minutes and log nothing. `retried` repeats a request instead.
        config.default_retry = false;
        let client =
            Client::try_from(config).map_err(|error| ClusterError::Nowhere(error.into()))?;
        Ok(Self(client))
    }

    /// Reads the layer and the run, and finds the number of this attempt. While the controller has recorded other pods
    /// but not this one, the run is read again.
    pub(crate) async fn order(
        &self,
        namespace: &Name,
        layer: &Name,
        run: &Name,
        pod: Option<&str>,
    ) -> Result<Order, ClusterError> {
        let (namespace, layer, run) = (namespace.as_ref(), layer.as_ref(), run.as_ref());
        let (layer, found) = tokio::join!(
            self.get::<Layer>("TerraformLayer", "terraformlayers", namespace, layer),
            self.run(namespace, run)
        );
        let (layer, mut found) = (layer?, found?);
        let started = Instant::now();
        let mut is_quiet = true;
        loop {
            let attempt = found.attempt(pod).ok_or_else(|| ClusterError::Malformed {
                what: format!("TerraformRun {namespace}/{run}"),
                reason: format!("status: no number of an attempt is free after {}", u32::MAX),
            })?;
            let is_late = started.elapsed() >= RECORD_TIMEOUT;
            if matches!(attempt, OrderedAttempt::Recorded(_)) || is_late {
                return Ok(Order { layer, run: found, attempt });
            }
            if is_quiet && started.elapsed() >= QUIET {
                is_quiet = false;
                tracing::warn!(
                    "the status of TerraformRun {namespace}/{run} does not list this pod yet: waiting \
                     up to {} s for the number of its attempt",
                    RECORD_TIMEOUT.as_secs()
                );
            }
            tokio::time::sleep(RECORD_INTERVAL).await;
            found = self.run(namespace, run).await?;
        }
    }

    async fn run(&self, namespace: &str, run: &str) -> Result<Run, ClusterError> {
        self.get("TerraformRun", "terraformruns", namespace, run).await
    }

    /// Reads the repository that a layer in `namespace` names.
    pub(crate) async fn repository(
        &self,
        layer: &Layer,
        namespace: &Name,
    ) -> Result<Repository, ClusterError> {
        let repository = layer.spec.repository.as_ref();
        let name = repository.and_then(|repository| repository.name.as_deref());
        let name = name.filter(|name| !name.is_empty()).ok_or_else(|| ClusterError::Malformed {
            what: "the layer".to_owned(),
            reason: "it names no repository in spec.repository.name".to_owned(),
        })?;
        let owner = repository.and_then(|repository| repository.namespace.as_deref());
        let namespace = owner.unwrap_or(namespace.as_ref());
        self.get("TerraformRepository", "terraformrepositories", namespace, name).await
    }

    async fn get<T: DeserializeOwned>(
        &self,
        kind: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<T, ClusterError> {
        let what = format!("{kind} {namespace}/{name}");
        let (requests, params) = (requests(kind, plural, namespace), GetParams::default());
        // The answer is parsed here and not by kube, which would require more fields than the runner reads.
        let send = async || {
            let request = requests.get(name, &params).map_err(kube::Error::BuildRequest)?;
            self.0.request_text(request).await
        };
        let object =
            retried(&what, send).await.map_err(|error| ClusterError::new(what.clone(), error))?;
        parse(&object).map_err(|reason| ClusterError::Malformed { what, reason })
    }

    /// Sets the annotations on the layer. Those without a value are removed.
    pub(crate) async fn annotate(
        &self,
        namespace: &Name,
        layer: &Name,
        annotations: &Annotations,
    ) -> Result<(), ClusterError> {
        let values = annotations.iter().map(|(key, value)| (key.clone(), json!(value)));
        let patch = json!({"metadata": {"annotations": values.collect::<Map<String, Value>>()}});
        let layers = requests("TerraformLayer", "terraformlayers", namespace.as_ref());
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let send = async || {
            let request = layers.patch(layer.as_ref(), &params, &patch);
            self.0.request_text(request.map_err(kube::Error::BuildRequest)?).await
        };
        let what = format!("the annotations of TerraformLayer {namespace}/{layer}");
        let changed =
            retried(&what, send).await.map_err(|error| ClusterError::new(what.clone(), error))?;
        // The page of a proxy is no answer of the API's.
        match parse::<Named>(&changed) {
            Ok(Named { metadata: ObjectName { name } }) if name == layer.as_ref() => Ok(()),
            Ok(_) => {
                let reason = "the answer is of another object".to_owned();
                Err(ClusterError::Malformed { what, reason })
            }
            Err(reason) => Err(ClusterError::Malformed { what, reason }),
        }
    }
}

/// An object, as far as it says which one it is.
#[derive(Deserialize)]
struct Named {
    metadata: ObjectName,
}

#[derive(Deserialize)]
struct ObjectName {
    name: String,
}

fn requests(kind: &str, plural: &str, namespace: &str) -> Request {
    let kind = GroupVersionKind::gvk(GROUP, VERSION, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Request::new(DynamicObject::url_path(&resource, Some(namespace)))
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cluster")
    }
}

/// The cause of an error, without the layers of the HTTP client above it.
fn cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 0 => {
            format!(
                "the answer is none of the Kubernetes API, perhaps of a proxy: {}",
                status.message
            )
        }
        kube::Error::Api(status) => {
            format!(
                "the Kubernetes API answers {} {}: {}",
                status.code, status.reason, status.message
            )
        }
        kube::Error::HyperError(_) | kube::Error::Service(_) => {
            let mut cause: &dyn Error = error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            format!("the Kubernetes API could not be reached: {cause}")
        }
        error => error.to_string(),
    }
}

/// Retries a call after transient errors: no answer, 429, 5xx. The pauses take 13 to 26 seconds, as long as an API server
/// takes to restart.
async fn retried<T>(
    what: &str,
    call: impl AsyncFn() -> Result<T, kube::Error>,
) -> Result<T, kube::Error> {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(250))
        .with_max_delay(Duration::from_secs(5))
        .with_max_times(6)
        .with_jitter();
    let is_transient = |error: &kube::Error| match error {
        // The answer of a proxy may have no code.
        kube::Error::Api(status) => [0, 429].contains(&status.code) || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    };
    let notify = |error: &kube::Error, pause: Duration| {
        let (cause, pause) = (cause(error), pause.as_secs_f64());
        tracing::warn!("{what}: {cause}; trying again in {pause:.1} s");
    };
    (async || call().await).retry(pauses).when(is_transient).notify(notify).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(status: &str, pod: Option<&str>) -> OrderedAttempt {
        let run: Run = parse(&format!(r#"{{"spec": {{}}, "status": {status}}}"#)).unwrap();
        run.attempt(pod).unwrap()
    }

    #[test]
    fn an_attempt_is_the_recorded_one() {
        let recorded = |number| OrderedAttempt::Recorded(Attempt(number));
        assert_eq!(attempt("null", Some("p")), recorded(0));
        assert_eq!(attempt(r#"{"retries": 0}"#, Some("p")), recorded(0), "the first pod");
        assert_eq!(attempt(r#"{"retries": 2}"#, Some("p")), recorded(2));
        let status = r#"{"retries": 1, "runnerPod": "new",
            "attempts": [{"podName": "old", "number": 0}, {"podName": "new", "number": 1}]}"#;
        assert_eq!(attempt(status, Some("new")), recorded(1));
        assert_eq!(attempt(status, Some("old")), recorded(0));
        assert_eq!(attempt(status, None), recorded(1));
        assert_eq!(attempt(r#"{"retries": 3, "runnerPod": "p"}"#, Some("p")), recorded(3));
    }

    #[test]
    fn an_unrecorded_pod_takes_no_number_of_another_pod() {
        let at_least = |number| OrderedAttempt::AtLeast(Attempt(number));
        assert_eq!(attempt(r#"{"runnerPod": "old"}"#, Some("new")), at_least(1));
        assert_eq!(attempt(r#"{"retries": 2, "runnerPod": "old"}"#, Some("new")), at_least(3));
        let status = r#"{"retries": 0, "attempts": [{"podName": "old", "number": 4}]}"#;
        assert_eq!(attempt(status, Some("new")), at_least(5));
    }

    #[test]
    fn no_number_follows_the_last_one() {
        let run =
            |status| parse::<Run>(&format!(r#"{{"spec": {{}}, "status": {status}}}"#)).unwrap();
        let status = r#"{"attempts": [{"podName": "old", "number": 4294967295}]}"#;
        assert!(run(status).attempt(Some("new")).is_none());
        assert!(run(status).attempt(Some("old")).is_some());
    }

    #[test]
    fn an_object_that_cannot_be_read_names_the_field() {
        let error = parse::<Layer>(r#"{"spec": {"repository": {"name": 5}}}"#).unwrap_err();
        assert_eq!(error, "spec.repository.name: invalid type: integer `5`, expected a string");
    }

    #[tokio::test]
    async fn an_api_that_refuses_connections_is_reported_with_the_cause_once() {
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let requests = requests("TerraformLayer", "terraformlayers", "n");
        let request = requests.get("l", &GetParams::default()).unwrap();
        let error = client.request_text(request).await.unwrap_err();
        let error = ClusterError::new("TerraformLayer n/l".to_owned(), error);
        assert_eq!(
            error.to_string(),
            "TerraformLayer n/l: the Kubernetes API could not be reached: Connection refused (os error 111)"
        );
        assert!(error.source().is_none() && error.fault() == ClusterFault::Transient);
    }
}
