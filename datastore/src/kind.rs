//! The kinds of artifacts. Limits, ages and metrics are by kind.

use std::fmt;
use std::str::FromStr;

use datastore_api::document::STATUS;
use datastore_api::{ArtifactName, File, PlanFormat};

/// A kind of artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `plan.bin`, a plan for what an apply has left (`remainder-*.bin`), and a state (`*.tfstate`, `*.tfstate.output`), which
    /// hold the same secrets.
    Bin,
    /// `plan.json` and `remainder-*.json`.
    Json,
    /// `pretty.plan`.
    Pretty,
    /// `short.diff`.
    Short,
    /// `run.log`.
    Log,
    /// The git bundle of a commit.
    Bundle,
    /// Any other file of an attempt.
    Artifact,
    /// `workspace.tar.zst`: the files of a plan's working directory, which may hold secrets as the plan does.
    Workspace,
    /// A version of a terraform state.
    State,
    /// The lease of a layer, and which tool works with its states.
    Lease,
    /// `status.json`, the status of a layer.
    Status,
    /// Every other document of a layer, such as `outputs.json`, which may hold secrets as a state does.
    Outputs,
}

impl Kind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 12] = [
        Self::Bin,
        Self::Json,
        Self::Pretty,
        Self::Short,
        Self::Log,
        Self::Bundle,
        Self::Artifact,
        Self::Workspace,
        Self::State,
        Self::Lease,
        Self::Status,
        Self::Outputs,
    ];

    /// Its name in flags and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bin => "bin",
            Self::Json => "json",
            Self::Pretty => "pretty",
            Self::Short => "short",
            Self::Log => "log",
            Self::Bundle => "bundle",
            Self::Artifact => "artifact",
            Self::Workspace => "workspace",
            Self::State => "state",
            Self::Lease => "lease",
            Self::Status => "status",
            Self::Outputs => "outputs",
        }
    }

    /// The kind of a document of a layer.
    pub fn of_document(name: &ArtifactName) -> Self {
        if name.as_ref() == STATUS { Self::Status } else { Self::Outputs }
    }

    /// Whether it is encrypted whenever there is a key, also if other objects are not.
    pub(crate) fn is_always_encrypted(self) -> bool {
        matches!(self, Self::State | Self::Status | Self::Outputs)
    }

    /// Whether only a rule that names it grants it to callers of all namespaces. Rules and lists of callers were written before
    /// the datastore kept such secrets.
    pub(crate) fn must_be_named(self) -> bool {
        matches!(self, Self::State | Self::Outputs)
    }
}

impl From<&File> for Kind {
    fn from(file: &File) -> Self {
        match file {
            File::Plan(PlanFormat::Bin) => Self::Bin,
            File::Plan(PlanFormat::Json) => Self::Json,
            File::Plan(PlanFormat::Pretty) => Self::Pretty,
            File::Plan(PlanFormat::Short) => Self::Short,
            File::Log => Self::Log,
            // A state that its backend did not accept; it holds the same secrets as a plan.
            File::Other(name) if is_state(name.as_ref()) => Self::Bin,
            File::Other(name) if name.as_ref() == "workspace.tar.zst" => Self::Workspace,
            // A plan for what an apply has left, and its JSON.
            File::Other(name) if is_remainder(name.as_ref(), ".bin") => Self::Bin,
            File::Other(name) if is_remainder(name.as_ref(), ".json") => Self::Json,
            File::Other(_) => Self::Artifact,
        }
    }
}

/// `errored.tfstate`, or what the tool printed of a state (`errored.tfstate.output`).
fn is_state(name: &str) -> bool {
    name.strip_suffix(".output").unwrap_or(name).ends_with(".tfstate")
}

/// `remainder-1.bin`
fn is_remainder(name: &str, format: &str) -> bool {
    name.starts_with("remainder-") && name.ends_with(format)
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| {
            let all = Self::ALL.map(Self::as_str).join(", ");
            format!("invalid kind `{text}`: expected one of {all}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_needs_the_permission_to_read_plans() {
        let kind = |name: &str| Kind::from(&File::Other(name.parse().unwrap()));
        assert_eq!(kind("errored.tfstate"), Kind::Bin);
        assert_eq!(kind("errored-2.tfstate"), Kind::Bin);
        assert_eq!(kind("errored.tfstate.output"), Kind::Bin);
        assert_eq!(kind("errored.tfstate.json"), Kind::Artifact);
        assert_eq!(kind("run.json"), Kind::Artifact);
        assert_eq!(kind("workspace.tar.zst"), Kind::Workspace);
    }

    #[test]
    fn a_remainder_of_a_plan_is_as_secret_as_the_plan() {
        let kind = |name: &str| Kind::from(&File::Other(name.parse().unwrap()));
        assert_eq!(kind("remainder-1.bin"), Kind::Bin);
        assert_eq!(kind("remainder-12.json"), Kind::Json);
        assert_eq!(kind("remainder-1.txt"), Kind::Artifact);
        assert_eq!(kind("remainder.json"), Kind::Artifact);
    }
}
