//! A layer in a cluster: what Burrito's controllers wrote, read by three GETs, and the annotations, by
//! one merge-patch on the layer. Nothing else is within the rights of a runner's service account.
//!
//! The only module that knows kube.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use datastore_api::Name;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client, Config};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Annotations, Layer, Spec};

const GROUP: &str = "config.terraform.padok.cloud";
const VERSION: &str = "v1alpha1";
/// How often the run is looked at until the controller has noted our pod in it, and how far apart.
const LOOKS: usize = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// The cluster that we run in, or that a kubeconfig names.
#[derive(Clone)]
pub(crate) struct Cluster(Client);

/// What an order of Burrito's consists of, beside the layer's repository.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) layer: Layer,
    pub(crate) run: Run,
    /// The number of this attempt.
    pub(crate) attempt: u32,
}

/// A `TerraformRun`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Run {
    pub(crate) spec: RunSpec,
    #[serde(default)]
    status: Option<RunStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct RunSpec {
    #[serde(default)]
    pub(crate) layer: RunLayer,
    #[serde(default)]
    pub(crate) artifact: Artifact,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct RunLayer {
    #[serde(default)]
    pub(crate) revision: String,
}

/// The plan to apply; texts, and empty for the latest.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Artifact {
    #[serde(default)]
    pub(crate) run: String,
    #[serde(default)]
    pub(crate) attempt: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunStatus {
    #[serde(default)]
    retries: u32,
    #[serde(default)]
    runner_pod: String,
    #[serde(default)]
    attempts: Option<Vec<RunAttempt>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunAttempt {
    #[serde(default)]
    pod_name: String,
    #[serde(default)]
    number: u32,
}

/// A `TerraformRepository`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Repository {
    #[serde(default)]
    pub(crate) spec: Spec,
}

/// The cluster did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error("no cluster can be found: neither a pod's service account nor a kubeconfig")]
    Nowhere(#[source] Box<kube::Error>),
    #[error("{what}")]
    Unanswered {
        what: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// With the API server's own words alone: kube shows the whole status.
    #[error("{what}: {code} {reason}: {message}")]
    Refused { what: String, code: u16, reason: String, message: String },
    #[error("{what} is not what it should be: {reason}")]
    Malformed { what: String, reason: String },
}

impl ClusterError {
    /// The API server's own status code, where it answered.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Unanswered { .. } | Self::Nowhere(_) | Self::Malformed { .. } => None,
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
            error => Self::Unanswered { what, source: error.into() },
        }
    }
}

impl Run {
    /// The attempt that the controller noted for this pod, else the retries so far.
    fn attempt(&self, pod: Option<&str>) -> u32 {
        let Some(status) = &self.status else { return 0 };
        let attempts = status.attempts.as_deref().unwrap_or_default();
        let own = attempts.iter().rev().find(|attempt| Some(&*attempt.pod_name) == pod);
        own.map_or(status.retries, |attempt| attempt.number)
    }

    /// Whether the status is still that of the pod before: a retry's pod is made before it is saved.
    fn is_behind(&self, pod: Option<&str>) -> bool {
        let noted = self.status.as_ref().map(|status| status.runner_pod.as_str());
        matches!((noted, pod), (Some(noted), Some(pod)) if !noted.is_empty() && noted != pod)
    }
}

impl Cluster {
    /// In a pod, the pod's own cluster: a `KUBECONFIG` there is meant for a provider. Else what a
    /// kubeconfig names.
    pub(crate) async fn connect() -> Result<Self, ClusterError> {
        let mut config = match Config::incluster() {
            Ok(config) => config,
            Err(_) => Config::infer().await.map_err(|error| {
                ClusterError::Nowhere(Box::new(kube::Error::InferConfig(error)))
            })?,
        };
        config.connect_timeout = Some(Duration::from_secs(5));
        config.read_timeout = Some(Duration::from_secs(30));
        let client =
            Client::try_from(config).map_err(|error| ClusterError::Nowhere(error.into()))?;
        Ok(Self(client))
    }

    /// Reads layer and run, and the number of this attempt. The run is read again as long as the
    /// controller has not noted our pod in it.
    pub(crate) async fn order(
        &self,
        namespace: &Name,
        layer: &Name,
        run: &Name,
        pod: Option<&str>,
    ) -> Result<Order, ClusterError> {
        let (namespace, layer, run) = (namespace.as_ref(), layer.as_ref(), run.as_ref());
        let layer: Layer = self.get("TerraformLayer", "terraformlayers", namespace, layer).await?;
        let mut looks = 1;
        let mut found: Run = self.get("TerraformRun", "terraformruns", namespace, run).await?;
        while found.is_behind(pod) && looks < LOOKS {
            tokio::time::sleep(BETWEEN_LOOKS).await;
            found = self.get("TerraformRun", "terraformruns", namespace, run).await?;
            looks += 1;
        }
        let attempt = found.attempt(pod);
        Ok(Order { layer, run: found, attempt })
    }

    /// Reads the repository that a layer in `namespace` names.
    pub(crate) async fn repository(
        &self,
        layer: &Layer,
        namespace: &Name,
    ) -> Result<Repository, ClusterError> {
        let repository = layer.spec.repository.as_ref().ok_or_else(|| ClusterError::Malformed {
            what: "the layer".to_owned(),
            reason: "it names no repository".to_owned(),
        })?;
        let namespace = repository.namespace.as_deref().unwrap_or(namespace.as_ref());
        self.get("TerraformRepository", "terraformrepositories", namespace, &repository.name).await
    }

    async fn get<T: DeserializeOwned>(
        &self,
        kind: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<T, ClusterError> {
        let what = format!("{kind} {namespace}/{name}");
        let api = self.api(kind, plural, namespace);
        let object = retried(async || api.get(name).await).await;
        let object = object.map_err(|error| ClusterError::new(what.clone(), error))?;
        serde_json::to_value(object)
            .and_then(serde_json::from_value)
            .map_err(|error| ClusterError::Malformed { what, reason: error.to_string() })
    }

    /// Sets the annotations on the layer; those without a value go.
    pub(crate) async fn annotate(
        &self,
        namespace: &Name,
        layer: &Name,
        annotations: &Annotations,
    ) -> Result<(), ClusterError> {
        let values = annotations.iter().map(|(key, value)| (key.clone(), json!(value)));
        let patch = json!({"metadata": {"annotations": values.collect::<Map<String, Value>>()}});
        let api = self.api("TerraformLayer", "terraformlayers", namespace.as_ref());
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let patched = retried(async || api.patch(layer.as_ref(), &params, &patch).await).await;
        let what = || format!("the annotations of TerraformLayer {namespace}/{layer}");
        patched.map(drop).map_err(|error| ClusterError::new(what(), error))
    }

    fn api(&self, kind: &str, plural: &str, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(GROUP, VERSION, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::namespaced_with(self.0.clone(), namespace, &resource)
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cluster")
    }
}

/// Tries again what passes: no answer, 429, 5xx.
async fn retried<T>(call: impl AsyncFn() -> Result<T, kube::Error>) -> Result<T, kube::Error> {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(250))
        .with_max_delay(Duration::from_secs(5))
        .with_max_times(4)
        .with_jitter();
    let is_transient = |error: &kube::Error| match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    };
    let notify = |error: &kube::Error, pause: Duration| {
        tracing::warn!("the Kubernetes API: {error}; trying again in {:.1} s", pause.as_secs_f64());
    };
    (async || call().await).retry(pauses).when(is_transient).notify(notify).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(status: &str) -> Run {
        serde_json::from_str(&format!(r#"{{"spec": {{}}, "status": {status}}}"#)).unwrap()
    }

    #[test]
    fn an_attempt_is_the_one_noted_for_this_pod_else_the_retries() {
        assert_eq!(serde_json::from_str::<Run>(r#"{"spec": {}}"#).unwrap().attempt(Some("p")), 0);
        assert_eq!(run(r#"{"retries": 2}"#).attempt(Some("p")), 2);
        let noted = r#"{"retries": 1, "runnerPod": "new",
            "attempts": [{"podName": "old", "number": 0}, {"podName": "new", "number": 1}]}"#;
        assert_eq!(run(noted).attempt(Some("new")), 1);
        assert_eq!(run(noted).attempt(Some("old")), 0);
    }

    #[test]
    fn a_status_that_tells_of_the_pod_before_is_behind() {
        assert!(run(r#"{"runnerPod": "old"}"#).is_behind(Some("new")));
        assert!(!run(r#"{"runnerPod": "new"}"#).is_behind(Some("new")));
        assert!(!run(r#"{"runnerPod": "old"}"#).is_behind(None));
        assert!(!run(r#"{"retries": 0}"#).is_behind(Some("new")), "a first attempt is 0 anyway");
    }
}
