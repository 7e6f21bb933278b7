//! Why it failed: every error of the others becomes a kind, and the kind an exit code, a class, and
//! a next step for a person.

use std::error::Error;
use std::io;
use std::path::Path;

use datastore_api::ClientError;
use reqwest::StatusCode;

use crate::action::RunError;
use crate::applied::AppliedError;
use crate::artifacts::OpenError;
use crate::basis::BasisError;
use crate::checkout::CheckoutError;
use crate::diagnostics::Diagnostic;
use crate::job::JobError;
use crate::layer::{ClusterFault, LayerError};
use crate::planned::PlannedError;
use crate::process::Stop;
use crate::release::{ErrorKind, ReleaseError};
use crate::report::Outcome;
use crate::unsent::UploadError;
use crate::version::{ToolName, VersionError};

/// A run, or another command, that did not do what was ordered.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    next: Option<String>,
    /// What the tool reported, where it is the tool that failed.
    errors: Vec<Diagnostic>,
}

/// More errors than this are not repeated in a message: they are in the log and in `run.json`.
const SHOWN_ERRORS: usize = 20;

/// The kinds that an exit code tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unclassified,
    Credentials,
    Network,
    Config,
    Integrity,
    Datastore,
    Usage,
    Stopped(Stop),
}

impl Failure {
    fn new(kind: Kind, error: &dyn Error) -> Self {
        Self { kind, message: chain(error), next: None, errors: Vec::new() }
    }

    fn of_datastore(cause: &ClientError, error: &dyn Error) -> Self {
        let failure = Self::new(datastore_kind(cause), error);
        match failure.kind {
            Kind::Credentials => failure.next_step(
                "give a token that may do this, by --token-file or the variable PLANCHA_TOKEN (in \
                 Burrito's pods: the mounted one)",
            ),
            Kind::Datastore if speaks_no_tls(cause) => failure.next_step(
                "that port does not speak TLS: if it speaks plain http, write http:// instead of \
                 https:// (in Burrito's pods: BURRITO_DATASTORE_TLS)",
            ),
            Kind::Datastore if cause.status() == Some(StatusCode::INSUFFICIENT_STORAGE) => failure
                .next_step("free some space in the datastore's storage, or raise its quota, then run again"),
            Kind::Datastore if cause.status() == Some(StatusCode::PRECONDITION_FAILED) => failure
                .next_step(
                    "another run stored this file with other contents under the same name and attempt; \
                     run again under another --run, or without --attempt",
                ),
            Kind::Datastore => failure.next_step(
                "see that the datastore runs and can be reached from here (GET /readyz), then run again",
            ),
            _ => failure,
        }
    }

    fn next_step(mut self, next: &str) -> Self {
        self.next = Some(next.to_owned());
        self
    }

    /// The runner's exit code (`--help` has the list).
    pub(crate) fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Unclassified => 1,
            Kind::Credentials => 5,
            Kind::Network => 6,
            Kind::Config => 8,
            Kind::Integrity => 9,
            Kind::Datastore => 10,
            Kind::Usage => 64,
            Kind::Stopped(Stop::Interrupt) => 130,
            Kind::Stopped(Stop::Terminate) => 143,
        }
    }

    /// The class, one of the words that `runner classify` will know.
    pub(crate) fn class(&self) -> &'static str {
        match self.kind {
            Kind::Unclassified | Kind::Integrity | Kind::Datastore => "unknown",
            Kind::Credentials => "auth",
            Kind::Network => "transient",
            Kind::Config | Kind::Usage => "config",
            Kind::Stopped(_) => "interrupted",
        }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match self.kind {
            Kind::Stopped(_) => Outcome::Interrupted,
            _ => Outcome::Failed,
        }
    }

    /// The error and its causes, on one line.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The message, and on further lines the other errors that the tool reported.
    pub(crate) fn reason(&self) -> String {
        let mut text = self.message.clone();
        for error in self.errors.iter().skip(1).take(SHOWN_ERRORS) {
            text = format!("{text}\n  also: {error}");
        }
        let more = self.errors.len().saturating_sub(1 + SHOWN_ERRORS);
        if more > 0 {
            text = format!("{text}\n  and {more} more");
        }
        text
    }

    /// What the tool reported, the most specific error first.
    pub(crate) fn errors(&self) -> &[Diagnostic] {
        &self.errors
    }

    /// What to do about it.
    pub(crate) fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }
}

impl From<&RunError> for Failure {
    fn from(error: &RunError) -> Self {
        match error {
            RunError::Checkout(cause) => cause.into(),
            RunError::Version(cause) => cause.into(),
            RunError::Release(cause) => cause.into(),
            RunError::Datastore(cause) | RunError::Open(OpenError::Datastore(cause)) => {
                Self::of_datastore(cause, error)
            }
            RunError::Open(OpenError::Taken { .. }) => Self::new(Kind::Config, error)
                .next_step("leave out --attempt for the next free one, or name another"),
            RunError::Applied(AppliedError::Unannotated { next, .. }) => {
                Self::new(Kind::Unclassified, error).next_step(next)
            }
            RunError::Applied(AppliedError::Unsent { next, .. }) => {
                Self::new(Kind::Datastore, error).next_step(next)
            }
            RunError::Tool { errors, .. } => {
                let summary = errors.first().map(Diagnostic::to_string).unwrap_or_default();
                let next = if summary.contains("No value for required variable") {
                    "give the variable's value with --var NAME=VALUE, --var-file FILE or the environment \
                     variable TF_VAR_NAME"
                } else {
                    "the tool's output is above, and in the stored log"
                };
                Self {
                    errors: errors.iter().cloned().collect(),
                    ..Self::new(Kind::Unclassified, error).next_step(next)
                }
            }
            RunError::Plan(_) => Self::new(Kind::Unclassified, error),
            RunError::Incomplete { cause, .. } | RunError::Io(cause) => Self {
                next: of_disk(cause).map(str::to_owned),
                ..Self::new(Kind::Unclassified, error)
            },
            RunError::Annotate { .. } => Self::new(Kind::Unclassified, error)
                .next_step("all else was done and stored; the annotations can be written by hand"),
            RunError::Planned(cause) => cause.into(),
            RunError::Basis(cause) => cause.into(),
            RunError::LocalState(_) => Self::new(Kind::Config, error).next_step(
                "nothing was applied; give the code a backend block, or a directory that stays \
                 by --work-dir",
            ),
            RunError::Stopped(stop) => Self::new(Kind::Stopped(*stop), error),
        }
    }
}

impl From<&UploadError> for Failure {
    fn from(error: &UploadError) -> Self {
        match error {
            UploadError::Directory { .. } | UploadError::Client(_) => {
                Self::new(Kind::Config, error)
            }
            UploadError::Usage(_) => Self::new(Kind::Usage, error),
            UploadError::Datastore(cause) => Self {
                next: Some(
                    "run the same command again: what was sent is not sent twice".to_owned(),
                ),
                ..Self::of_datastore(cause, error)
            },
            UploadError::Others { .. } => Self::new(Kind::Datastore, error).next_step(
                "nothing was replaced; compare the files, and delete the directory if you do not \
                 need them",
            ),
            UploadError::Io(_) => Self::new(Kind::Unclassified, error),
        }
    }
}

impl From<&PlannedError> for Failure {
    fn from(error: &PlannedError) -> Self {
        match error {
            PlannedError::Missing { .. }
            | PlannedError::NoneHere { .. }
            | PlannedError::Unreadable(_)
            | PlannedError::Unfinished(_) => {
                Self::new(Kind::Config, error).next_step("plan first, or name another plan")
            }
            PlannedError::Basis(cause) => cause.into(),
            PlannedError::Other { .. } => Self::new(Kind::Integrity, error)
                .next_step("nothing was applied; plan again, and find out who wrote the other one"),
            PlannedError::Unchecked(_) => {
                Self::new(Kind::Integrity, error).next_step("nothing was applied; plan again")
            }
            PlannedError::Datastore(cause) => Self::of_datastore(cause, error),
            PlannedError::Io(_) => Self::new(Kind::Unclassified, error),
        }
    }
}

impl From<&BasisError> for Failure {
    fn from(error: &BasisError) -> Self {
        let (kind, next) = match error {
            BasisError::Unrecorded { .. } => {
                (Kind::Config, "plan again, or name the plan by --plan")
            }
            BasisError::Elsewhere { .. } => (
                Kind::Integrity,
                "nothing was applied; plan here, or apply where the plan was made",
            ),
            BasisError::Changed { .. } => {
                (Kind::Integrity, "nothing was applied; plan again, or name the plan with --plan")
            }
            BasisError::Tool { .. } => {
                (Kind::Integrity, "nothing was applied; leave out the flag, or plan again with it")
            }
        };
        Self::new(kind, error).next_step(next)
    }
}

impl From<&JobError> for Failure {
    fn from(error: &JobError) -> Self {
        let (kind, next) = match error {
            JobError::Usage(_) => (Kind::Usage, None),
            JobError::Config(_) | JobError::Layer(_) => (Kind::Config, None),
            JobError::Cluster(cause) => match cause.fault() {
                ClusterFault::Unauthenticated => (
                    Kind::Credentials,
                    Some("see whether the service account's token is mounted, and not too old"),
                ),
                ClusterFault::Forbidden => (
                    Kind::Credentials,
                    Some(
                        "the service account needs the rights of Burrito's ClusterRole \
                         burrito-runner in that very namespace",
                    ),
                ),
                ClusterFault::Malformed => (
                    Kind::Config,
                    Some("correct that field of the object (kubectl edit), then run again"),
                ),
                ClusterFault::Missing | ClusterFault::Configuration => (Kind::Config, None),
                ClusterFault::Transient => (Kind::Network, None),
            },
        };
        let failure = Self::new(kind, error);
        let no_locks = matches!(error, JobError::Layer(LayerError::NoLocks { .. }));
        match next.or(no_locks.then_some("put the manifest on a file system that has locks")) {
            Some(next) => failure.next_step(next),
            None => failure,
        }
    }
}

impl From<&CheckoutError> for Failure {
    fn from(error: &CheckoutError) -> Self {
        let kind = match error {
            CheckoutError::NotADirectory { .. }
            | CheckoutError::NotOurs(_)
            | CheckoutError::Busy(_)
            | CheckoutError::StateInTheWay { .. }
            | CheckoutError::NoSuchPath { .. }
            | CheckoutError::Outside { .. }
            | CheckoutError::NoSuchRevision { .. }
            | CheckoutError::NoSuchRepository { .. }
            | CheckoutError::EmptySubmodule { .. }
            | CheckoutError::OutdatedSubmodule { .. }
            | CheckoutError::LfsPointer { .. } => Kind::Config,
            CheckoutError::Credentials { .. } => Kind::Credentials,
            CheckoutError::Network { .. } => Kind::Network,
            CheckoutError::NoBundle(_) | CheckoutError::NotInBundle { .. } => Kind::Config,
            CheckoutError::Datastore(cause) => datastore_kind(cause),
            CheckoutError::Git { .. } | CheckoutError::Io(_) => Kind::Unclassified,
            CheckoutError::Stopped(stop) => Kind::Stopped(*stop),
        };
        let failure = Self::new(kind, error);
        match error {
            CheckoutError::Credentials { .. } => failure.next_step(
                "git uses your own configuration, keys and helpers; try the same fetch by hand",
            ),
            CheckoutError::EmptySubmodule { next, .. } | CheckoutError::LfsPointer { next, .. } => {
                failure.next_step(&format!("{next}; --no-submodules plans without it"))
            }
            CheckoutError::Datastore(cause) if cause.status() == Some(StatusCode::FORBIDDEN) => failure
                .next_step(
                    "the repository is in another namespace than this service account: the datastore's \
                     policy (PLANCHA_POLICY) must let the account read that namespace's bundles",
                ),
            CheckoutError::Io(cause) => {
                Self { next: of_disk(cause).map(str::to_owned), ..failure }
            }
            CheckoutError::NoSuchRevision { .. } => {
                failure.next_step("name a branch, a tag or a commit by --revision")
            }
            CheckoutError::NoBundle(_) | CheckoutError::NotInBundle { .. } => failure
                .next_step("have the controllers sync the repository again: they cut its bundles"),
            CheckoutError::Network { .. } => failure.next_step("run again when it can be reached"),
            CheckoutError::OutdatedSubmodule { .. } => failure.next_step(
                "see that .gitmodules has a URL from which git may fetch it here, or name a new --work-dir",
            ),
            CheckoutError::StateInTheWay { .. } => failure
                .next_step("move the state to a backend or another directory, or name another --work-dir"),
            _ => failure,
        }
    }
}

impl From<&VersionError> for Failure {
    fn from(error: &VersionError) -> Self {
        let kind = match error {
            VersionError::Request { place, .. } if place.starts_with("--") => Kind::Usage,
            _ => Kind::Config,
        };
        let failure = Self::new(kind, error);
        match error {
            VersionError::NoDirectory(path) => match meant(path) {
                Some(meant) => failure.next_step(&format!("did you mean `{meant}`?")),
                None => failure.next_step(
                    "name a directory, or TOOL[@REQUEST] with terraform, tofu or terragrunt",
                ),
            },
            VersionError::Request { .. } => failure.next_step(
                "write a version (1.9.8), a constraint (`~> 1.9`, `>= 1.5, != 1.5.3, < 2`) or a keyword \
                 (latest, latest-pre, latest-allowed, min-required, latest:REGEX, min:REGEX), and nothing \
                 else: no comment, no second line",
            ),
            _ => failure,
        }
    }
}

/// The tool, and perhaps the request, that a misspelt word stands for.
fn meant(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let (tool, request) = match text.split_once('@') {
        Some((tool, request)) => (tool, format!("@{request}")),
        None => (text, String::new()),
    };
    ToolName::meant_by(tool).map(|tool| format!("{tool}{request}"))
}

impl From<&ReleaseError> for Failure {
    fn from(error: &ReleaseError) -> Self {
        let kind = match error.kind() {
            ErrorKind::Credentials => Kind::Credentials,
            ErrorKind::Network => Kind::Network,
            ErrorKind::Config => Kind::Config,
            ErrorKind::Integrity => Kind::Integrity,
            ErrorKind::Other => Kind::Unclassified,
        };
        Self::new(kind, error).next_step(error.next())
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        (&RunError::Stopped(stop)).into()
    }
}

/// What to do about a disk that takes nothing more.
fn of_disk(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Some("free some space there, or set TMPDIR to a directory with more, and run again")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Some(
            "see that it may be read and written; TMPDIR names the directory for temporary files",
        ),
        _ => None,
    }
}

/// Whether https met a port of plain http.
fn speaks_no_tls(error: &ClientError) -> bool {
    chain(error).contains("InvalidContentType")
}

fn datastore_kind(error: &ClientError) -> Kind {
    match (error, error.status()) {
        (_, Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => Kind::Credentials,
        (ClientError::Token { .. }, _) => Kind::Credentials,
        (ClientError::Setup(_), _) => Kind::Config,
        (ClientError::Digest { .. }, _) => Kind::Integrity,
        (ClientError::File(_), _) => Kind::Unclassified,
        _ => Kind::Datastore,
    }
}

/// The error and its causes, on one line. Some libraries print their causes *and* return them from
/// `source()`; a cause already told is not told again.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let told = cause.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Diagnostics;

    fn refused(status: u16) -> ClientError {
        ClientError::Refused {
            call: "PUT http://h/api/plans (plan.json)".to_owned(),
            status: StatusCode::from_u16(status).unwrap(),
            message: String::new(),
            sender: datastore_api::client::Sender::Unknown,
            retry_after: None,
        }
    }

    #[test]
    fn what_the_datastore_refuses_has_a_next_step() {
        for (status, next) in [
            (507, "free some space in the datastore's storage"),
            (412, "another run stored this file"),
            (401, "give a token"),
        ] {
            let failure = Failure::from(&RunError::Datastore(refused(status)));
            assert!(failure.message().contains("(plan.json)"), "{failure:?}");
            assert!(failure.next().unwrap().contains(next), "{failure:?}");
        }
        let failure = Failure::from(&CheckoutError::Datastore(refused(403)));
        assert!(failure.next().unwrap().contains("(PLANCHA_POLICY)"), "{failure:?}");
        assert_eq!(failure.exit_code(), 5);
    }

    #[test]
    fn a_missing_variable_has_a_next_step() {
        let output = "Error: No value for required variable\n\n  on main.tf line 1:\n\
            \u{20}  1: variable \"region\" {}\n\nThe root module input variable \"region\" is not set.\n";
        let errors = Diagnostics::read(output.as_bytes()).unwrap();
        let error = RunError::Tool { tool: "terraform".to_owned(), step: "plan", code: 1, errors };
        let failure = Failure::from(&error);
        assert!(failure.message().contains("variable \"region\" is not set"), "{failure:?}");
        assert!(failure.next().unwrap().contains("TF_VAR_NAME"), "{failure:?}");
    }

    #[test]
    fn a_full_or_read_only_disk_has_a_next_step() {
        for (kind, next) in [
            (io::ErrorKind::StorageFull, "free some space"),
            (io::ErrorKind::ReadOnlyFilesystem, "TMPDIR names"),
        ] {
            let failure = Failure::from(&RunError::Io(io::Error::from(kind)));
            assert!(failure.next().unwrap().contains(next), "{failure:?}");
        }
    }
}
