//! Errors of the order: flags, manifest, cluster, and a record that may be of the same order.

use crate::failure::{Failure, Kind};
use crate::order::job::JobError;
use crate::order::layer::{ClusterFault, LayerError};
use crate::run::error::UnreadableError;
use crate::run::unsent::Unreadable;

impl From<&JobError> for Failure {
    fn from(error: &JobError) -> Self {
        let (kind, next) = match error {
            JobError::Usage(_) => (Kind::Usage, None),
            JobError::Config(_) | JobError::Result(_) | JobError::Outputs(_) => {
                (Kind::Config, None)
            }
            JobError::Key(cause) => (Kind::Config, Some(cause.next())),
            JobError::Layer(cause) => (Kind::Config, of_manifest(cause)),
            JobError::Policy(cause) => return cause.into(),
            JobError::Cluster(cause) => match cause.fault() {
                ClusterFault::Unauthenticated => (
                    Kind::Credentials,
                    Some("check that the service account's token is mounted and has not expired"),
                ),
                ClusterFault::Forbidden => (
                    Kind::Credentials,
                    Some(
                        "the service account needs the rights of Burrito's ClusterRole \
                         burrito-runner in that namespace",
                    ),
                ),
                ClusterFault::Malformed => (
                    Kind::Config,
                    Some("correct that field of the object (kubectl edit), then run again"),
                ),
                ClusterFault::Missing => (
                    Kind::Config,
                    Some(
                        "check whether it was deleted or has another name (kubectl get, in that namespace); a \
                         layer names its repository in spec.repository",
                    ),
                ),
                ClusterFault::Nowhere => (
                    Kind::Config,
                    Some(
                        "`runner start` is for Burrito's pods: mount the service account's token there, or set \
                         KUBECONFIG; elsewhere use `runner plan` or `runner apply`",
                    ),
                ),
                ClusterFault::Configuration => (
                    Kind::Config,
                    Some(
                        "check the cluster's address and certificates, and what its API server refuses",
                    ),
                ),
                ClusterFault::Transient => (
                    Kind::Network,
                    Some("check that the API server can be reached from here, then run again"),
                ),
            },
        };
        Self { hint: next.map(str::to_owned), ..Self::new(kind, error) }
    }
}

impl From<&UnreadableError> for Failure {
    fn from(error: &UnreadableError) -> Self {
        let (kind, read) = match error.record.cause {
            Unreadable::File => (Kind::Config, "make the file readable for this user, or "),
            Unreadable::Damaged => (Kind::Integrity, ""),
            Unreadable::Later => {
                (Kind::Config, "use the version of Plancha that wrote the file, or ")
            }
        };
        let apply = if error.is_planned {
            "remove the file; then run again if it was not applied, plan again if it was"
        } else {
            "remove the file and run again if it was not, or use --again to apply in any case"
        };
        Self::new(kind, error).with_hint(&format!(
            "nothing was applied; {read}compare the state with the code to see whether it was applied, and {apply}"
        ))
    }
}

/// What to do about a manifest that cannot be used.
fn of_manifest(error: &LayerError) -> Option<&'static str> {
    Some(match error {
        LayerError::Io(_) => {
            "check that the file exists and can be read and written, or name another with --layer"
        }
        LayerError::Malformed { .. } => {
            "correct the manifest; `kubectl apply --dry-run=client -f` checks it"
        }
        LayerError::Missing { .. } => {
            "set --layer to a file that contains a manifest with `kind: TerraformLayer`"
        }
        LayerError::OtherName { .. } => {
            "correct --name (PLANCHA_NAME), or leave it out where the file contains one layer"
        }
        LayerError::NoLocks { .. } => "move the manifest to a file system that supports locks",
        LayerError::Locked { .. } => "wait until that process has ended, then run again",
        LayerError::Edit { .. } => {
            "correct the manifest at that place, or write the annotations by hand"
        }
        LayerError::Ambiguous { .. } | LayerError::Cluster(_) => return None,
    })
}
