//! Why it failed: every error of the others becomes a kind, and the kind an exit code, a class, and
//! a next step for a person.

mod advice;
mod checkout;
mod datastore;

use std::error::Error;
use std::io;
use std::path::Path;

use datastore_api::chain;

use crate::basis::BasisError;
use crate::order::job::JobError;
use crate::order::layer::{ClusterFault, LayerError};
use crate::process::Stop;
use crate::release::{COMMAND_LINE, ErrorKind, ReleaseError};
use crate::report::Outcome;
use crate::run::action::RunError;
use crate::run::applied::AppliedError;
use crate::run::artifacts::OpenError;
use crate::run::stored_plan::PlannedError;
use crate::run::unsent::UploadError;
use crate::source::scratch::ScratchError;
use crate::tool::diagnostics::Diagnostic;
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
            Kind::Stopped(Stop::Terminate | Stop::Hangup) => 143,
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
            RunError::Tool { tool, errors, dir, stored, .. } => {
                let next = advice::after(tool, errors, dir, *stored);
                Self {
                    errors: errors.iter().cloned().collect(),
                    ..Self::new(Kind::Unclassified, error).next_step(&next)
                }
            }
            RunError::Killed { step, stop, .. } => {
                let failure = Self::new(stop.map_or(Kind::Unclassified, Kind::Stopped), error);
                match *step {
                    "apply" => failure.next_step(
                        "resources may exist that the state does not record, and the state may still be \
                         locked: compare both, then unlock it with the tool's `force-unlock`, and plan again",
                    ),
                    _ => failure.next_step(
                        "the state may still be locked: see that nothing else uses it, unlock it with the \
                         tool's `force-unlock`, and run again",
                    ),
                }
            }
            RunError::Scratch(cause) => of_scratch(cause, error),
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
            RunError::Errored { cause, errored } => Self {
                message: chain(error),
                next: Some(errored.next()),
                ..Self::from(&**cause)
            },
            RunError::Unpushed { file, dir } => Self::new(Kind::Config, error).next_step(&format!(
                "in {} run `terraform init` and then `terraform state push {}` (or the same with tofu or \
                 terragrunt), remove the file, and run again",
                dir.display(),
                file.display()
            )),
            RunError::Stopped(stop) => Self::new(Kind::Stopped(*stop), error),
        }
    }
}

impl From<&UploadError> for Failure {
    fn from(error: &UploadError) -> Self {
        match error {
            UploadError::Client(_) => Self::new(Kind::Config, error),
            UploadError::Missing(_) => Self::new(Kind::Config, error).next_step(
                "either all of it was sent, which removes it, or it is another: name the directory of the \
                 printed command",
            ),
            UploadError::Directory { .. } => Self::new(Kind::Config, error).next_step(
                "name the directory of an attempt, as in the printed command; it holds applied.json",
            ),
            UploadError::Damaged { .. } => Self::new(Kind::Integrity, error).next_step(
                "nothing was sent; remove that file if you can do without it (not applied.json), and run \
                 the same command again",
            ),
            UploadError::Usage(_) => Self::new(Kind::Usage, error),
            UploadError::Datastore(cause) => Self {
                next: Some(
                    "run the same command again: what was sent is not sent twice".to_owned(),
                ),
                ..Self::of_datastore(cause, error)
            },
            UploadError::Others { .. } => Self::new(Kind::Integrity, error).next_step(
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
            PlannedError::Missing { pod: true, .. } => Self::new(Kind::Config, error).next_step(
                "plan the layer again: Burrito's controllers do so at the next commit, or when its annotation \
                 api.terraform.padok.cloud/sync-now is set to true",
            ),
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
            PlannedError::Record { .. } => Self::new(Kind::Integrity, error).next_step(
                "nothing was applied; plan again, or remove the record to have only what the plan itself \
                 contains compared",
            ),
            PlannedError::Damaged { .. } => Self::new(Kind::Integrity, error).next_step(
                "nothing was applied; plan again (`datastore verify` lists what else is damaged)",
            ),
            PlannedError::Datastore(cause) => Self::of_datastore(cause, error),
            PlannedError::Io(cause) => Self {
                next: of_disk(cause).map(str::to_owned),
                ..Self::new(Kind::Unclassified, error)
            },
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
            BasisError::Mocks { .. } => (
                Kind::Integrity,
                "nothing was applied; plan again when the dependency is applied, or apply the made-up values \
                 with --allow-mocks (PLANCHA_ALLOW_MOCKS=1)",
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
            JobError::Config(_) => (Kind::Config, None),
            JobError::Layer(cause) => (Kind::Config, of_manifest(cause)),
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
                ClusterFault::Missing => (
                    Kind::Config,
                    Some(
                        "see whether it was deleted or has another name (kubectl get, in that namespace); a \
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
                ClusterFault::Configuration => (Kind::Config, None),
                ClusterFault::Transient => (
                    Kind::Network,
                    Some("see that the API server can be reached from here, then run again"),
                ),
            },
        };
        Self { next: next.map(str::to_owned), ..Self::new(kind, error) }
    }
}

/// What to do about a manifest that cannot be used.
fn of_manifest(error: &LayerError) -> Option<&'static str> {
    Some(match error {
        LayerError::Io(_) => {
            "see that it is there and may be read and written, or name another with --layer"
        }
        LayerError::Malformed { .. } => {
            "correct the manifest; `kubectl apply --dry-run=client -f` checks it"
        }
        LayerError::Missing { .. } => {
            "name with --layer a file that holds a manifest with `kind: TerraformLayer`"
        }
        LayerError::OtherName { .. } => {
            "correct --name (PLANCHA_NAME), or leave it out where the file holds one layer"
        }
        LayerError::NoLocks { .. } => "put the manifest on a file system that has locks",
        LayerError::Locked { .. } => "wait until that process has ended, then run again",
        LayerError::Ambiguous { .. } | LayerError::Cluster(_) | LayerError::Edit { .. } => {
            return None;
        }
    })
}

impl From<&VersionError> for Failure {
    fn from(error: &VersionError) -> Self {
        let kind = match error {
            VersionError::Request { place, .. }
                if place.starts_with("--") || place == COMMAND_LINE =>
            {
                Kind::Usage
            }
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
            VersionError::Prerelease { .. } => failure.next_step(
                "leave out what follows the dash (prereleases satisfy a constraint by their numbers alone), and \
                 ask for a prerelease by --tool-version or a version file",
            ),
            VersionError::NotText(_) => failure.next_step(
                "save the file as UTF-8 (`>` of Windows PowerShell writes UTF-16: use `Set-Content -Encoding utf8`)",
            ),
            VersionError::Syntax { .. } => failure.next_step(
                "correct that line (a version is a text in quotes: version = \"0.98.0\")",
            ),
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

fn of_scratch(cause: &ScratchError, error: &RunError) -> Failure {
    match cause.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem => Failure::new(Kind::Config, error)
            .next_step("set TMPDIR to a directory that exists and can be written, and run again"),
        _ => {
            let next = of_disk(&io::Error::from(cause.kind())).map(str::to_owned);
            Failure { next, ..Failure::new(Kind::Unclassified, error) }
        }
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

#[cfg(test)]
mod tests {
    use datastore_api::ClientError;
    use reqwest::StatusCode;

    use super::*;
    use crate::source::error::CheckoutError;
    use crate::tool::diagnostics::Diagnostics;

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
            (413, "--max-size KIND=SIZE"),
            (404, "a datastore's own URL"),
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
    fn a_host_without_an_address_has_a_next_step() {
        let reason = "the datastore could not be reached: failed to lookup address information: Name or \
                      service not known";
        let (call, reason) = ("GET http://h/api/attempts".to_owned(), reason.to_owned());
        let failure = Failure::from(&RunError::Datastore(ClientError::Transport { call, reason }));
        assert!(failure.next().unwrap().contains("BURRITO_DATASTORE_HOSTNAME"), "{failure:?}");
    }

    #[test]
    fn a_missing_variable_has_a_next_step() {
        let output = "Error: No value for required variable\n\n  on main.tf line 1:\n\
            \u{20}  1: variable \"region\" {}\n\nThe root module input variable \"region\" is not set.\n";
        let errors = Diagnostics::read(output.as_bytes()).unwrap();
        let (tool, dir) = ("terraform".to_owned(), "/code".into());
        let error = RunError::Tool { tool, step: "plan", code: 1, errors, dir, stored: false };
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
            let fetched = ClientError::File(io::Error::from(kind));
            let failure = Failure::from(&PlannedError::Datastore(fetched));
            assert!(failure.next().unwrap().contains(next), "{failure:?}");
            let failure = Failure::from(&RunError::Io(io::Error::from(kind)));
            assert!(failure.next().unwrap().contains(next), "{failure:?}");
        }
    }
}
