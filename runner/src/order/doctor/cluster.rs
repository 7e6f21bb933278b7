//! A pod: the rights of its account, and the time that Kubernetes gives it.

use std::time::Duration;

use datastore_api::{HumanDuration, Name, chain};
use futures::future::join_all;

use crate::cli::{DoctorArgs, Environment};
use crate::order::doctor::check::{Check, limited};
use crate::order::doctor::remote::namespace;
use crate::order::layer::{Cluster, ClusterFault};
use crate::order::pod;

/// What a runner of Burrito's does with the objects of its order.
const NEEDED: [(&str, &str); 4] = [
    ("get", "terraformlayers"),
    ("patch", "terraformlayers"),
    ("get", "terraformruns"),
    ("get", "terraformrepositories"),
];
/// What `--grace` is by default.
const GRACE: Duration = Duration::from_mins(5);
/// How long the rest of a run may take after the signal: in a pod of Burrito's, and elsewhere.
const REST_OF_BURRITO: Duration = Duration::from_secs(8);
const REST: Duration = Duration::from_secs(15);
/// Where Kubernetes says the namespace of a pod.
const NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
const ROLE: &str = "bind the role of a runner to the pod's service account in this namespace (ClusterRole burrito-runner)";

pub(super) async fn checks(args: &DoctorArgs, environment: &Environment) -> Vec<Check> {
    let is_burritos = environment.pod.layer.is_some();
    if !is_burritos && !environment.pod.is_kubernetes {
        return Vec::new();
    }
    let cluster = match limited(Cluster::connect()).await {
        Ok(Ok(cluster)) => cluster,
        Ok(Err(error)) if is_burritos => {
            return vec![Check::fail("kubernetes", 8, chain(&error), ROLE)];
        }
        Err(reason) if is_burritos => return vec![Check::fail("kubernetes", 6, reason, ROLE)],
        // Only a pod of Burrito's needs the API.
        _ => return Vec::new(),
    };
    let rights = async {
        match namespace(args, environment).filter(|_| is_burritos) {
            Some(namespace) => Some(rights(&cluster, &namespace).await),
            None => None,
        }
    };
    let (rights, grace) = tokio::join!(rights, grace(&cluster, args, environment));
    rights.into_iter().chain(grace).collect()
}

async fn rights(cluster: &Cluster, namespace: &Name) -> Check {
    let asked = NEEDED.map(|(verb, plural)| async move {
        limited(cluster.may(verb, plural, namespace)).await.map(|may| (verb, plural, may))
    });
    let mut missing = Vec::new();
    for answer in join_all(asked).await {
        match answer {
            Ok((_, _, Ok(true))) => {}
            Ok((verb, plural, Ok(false))) => missing.push(format!("{verb} {plural}")),
            Ok((_, _, Err(error))) => {
                let exit = match error.fault() {
                    ClusterFault::Transient => 6,
                    ClusterFault::Configuration | ClusterFault::Malformed => 8,
                    _ => 5,
                };
                return Check::fail("kubernetes", exit, chain(&error), ROLE);
            }
            Err(reason) => {
                return Check::fail(
                    "kubernetes",
                    6,
                    format!("the API: {reason}"),
                    "check the network policy of the pod",
                );
            }
        }
    }
    if missing.is_empty() {
        let text = format!(
            "the account may read the objects of namespace {namespace} and annotate layers"
        );
        return Check::ok("kubernetes", text);
    }
    let text =
        format!("in namespace {namespace} the account of this pod may not: {}", missing.join(", "));
    Check::fail("kubernetes", 5, text, ROLE)
}

/// Compares the grace period of the pod with the time that a run takes after a signal.
async fn grace(cluster: &Cluster, args: &DoctorArgs, environment: &Environment) -> Option<Check> {
    let (own, rest) = if environment.pod.layer.is_some() {
        (pod::GRACE, REST_OF_BURRITO)
    } else {
        (args.grace.unwrap_or(GRACE), REST)
    };
    let needed = own + rest;
    let name = environment.pod.name.as_deref()?;
    let namespace =
        fs_err::read_to_string(NAMESPACE).ok().or_else(|| environment.pod.namespace.clone())?;
    let hint = format!(
        "set terminationGracePeriodSeconds of the pod to {} or more, or a smaller --grace",
        needed.as_secs()
    );
    let reason = match limited(cluster.grace_period(namespace.trim(), name)).await {
        Ok(Ok(Some(seconds))) if Duration::from_secs(seconds) >= needed => {
            return Some(Check::ok(
                "grace",
                format!(
                    "terminationGracePeriodSeconds is {seconds}; a run needs {}",
                    HumanDuration(needed)
                ),
            ));
        }
        Ok(Ok(Some(seconds))) => {
            let text = format!(
                "Kubernetes kills this pod {seconds} s after the signal, and a run may need {}",
                HumanDuration(needed)
            );
            return Some(Check::warn("grace", text, &hint));
        }
        Ok(Ok(None)) => "it is not set".to_owned(),
        Ok(Err(error)) => chain(&error),
        Err(reason) => reason,
    };
    let text = format!("terminationGracePeriodSeconds of this pod is not known: {reason}");
    Some(Check::warn("grace", text, &hint))
}
