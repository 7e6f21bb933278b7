//! Questions of `runner doctor` to the Kubernetes API. Each is asked once.

use datastore_api::Name;
use kube::api::{GetParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};

use crate::order::layer::kubernetes::{Cluster, ClusterError, GROUP};

impl Cluster {
    /// Whether this pod's account may do this with Burrito's objects (`SelfSubjectAccessReview`).
    pub(crate) async fn may(
        &self,
        verb: &str,
        plural: &str,
        namespace: &Name,
    ) -> Result<bool, ClusterError> {
        let attributes = json!({"group": GROUP, "resource": plural, "namespace": namespace.as_ref(), "verb": verb});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes}});
        let requests = Request::new("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        let body = review.to_string().into_bytes();
        let sent = async {
            let request = requests.create(&PostParams::default(), body);
            self.0.request_text(request.map_err(kube::Error::BuildRequest)?).await
        };
        let answer = answer(sent.await, "the review of this pod's rights")?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// How long Kubernetes waits after the signal until it kills this pod, in seconds.
    pub(crate) async fn grace_period(
        &self,
        namespace: &str,
        pod: &str,
    ) -> Result<Option<u64>, ClusterError> {
        let requests = Request::new(format!("/api/v1/namespaces/{namespace}/pods"));
        let sent = async {
            let request = requests.get(pod, &GetParams::default());
            self.0.request_text(request.map_err(kube::Error::BuildRequest)?).await
        };
        let answer = answer(sent.await, &format!("Pod {namespace}/{pod}"))?;
        Ok(answer["spec"]["terminationGracePeriodSeconds"].as_u64())
    }
}

fn answer(text: Result<String, kube::Error>, what: &str) -> Result<Value, ClusterError> {
    let text = text.map_err(|error| ClusterError::new(what.to_owned(), error))?;
    serde_json::from_str(&text).map_err(|error| ClusterError::Malformed {
        what: what.to_owned(),
        reason: error.to_string(),
    })
}
