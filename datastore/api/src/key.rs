//! Keys of artifacts.
//!
//! Every field is checked when it is parsed, so every key is valid. The path of an artifact in a storage is not known
//! here, but in `datastore::store`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::Sha256;
use crate::name::{ArtifactName, GitRef, InvalidName, Name, Revision};

/// One run of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunKey {
    /// Namespace of the layer.
    pub namespace: Name,
    /// The layer that was planned or applied.
    pub layer: Name,
    /// The run, unique within its layer.
    pub run: Name,
}

/// The number of an attempt of a run, from 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Attempt(pub u32);

/// One file of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum File {
    /// One format of its plan.
    Plan(PlanFormat),
    /// Its log.
    Log,
    /// Any other file.
    Other(ArtifactName),
}

/// A format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlanFormat {
    /// The binary plan that `apply` takes.
    Bin,
    /// The output of `show -json`.
    Json,
    /// The output of `show`, for people.
    Pretty,
    /// One line: how many resources to create, update and delete.
    Short,
}

/// The git bundle of one commit of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BundleKey {
    /// Namespace of the repository.
    pub namespace: Name,
    /// The repository.
    pub name: Name,
    /// The branch or tag, as the layer names it.
    pub git_ref: GitRef,
    /// The commit at its tip.
    pub revision: Revision,
}

/// The record that a plan has been applied, by any run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AppliedKey {
    /// Namespace of the layer.
    pub namespace: Name,
    /// The layer whose plan it was.
    pub layer: Name,
    /// The SHA-256 digest of its `plan.bin`.
    pub plan: Sha256,
}

impl FromStr for Attempt {
    type Err = InvalidName;

    /// Parses a decimal number without leading zeros: `01` and `1` would be two paths of one attempt.
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let number = text.parse::<u32>().ok().filter(|number| number.to_string() == text);
        number.map(Self).ok_or_else(|| InvalidName::new(text, "is not an attempt (0, 1, 2 ...)"))
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PlanFormat {
    /// Every format, in the order in which a run stores them.
    pub const ALL: [Self; 4] = [Self::Pretty, Self::Json, Self::Short, Self::Bin];

    /// Its name in the query parameter `format`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bin => "bin",
            Self::Json => "json",
            Self::Pretty => "pretty",
            Self::Short => "short",
        }
    }
}

impl FromStr for PlanFormat {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::ALL
            .into_iter()
            .find(|format| format.as_str() == text)
            .ok_or_else(|| InvalidName::new(text, "is not a format (json, pretty, short or bin)"))
    }
}

impl File {
    /// The name of the file within its attempt; Burrito's names.
    pub fn name(&self) -> &str {
        match self {
            Self::Plan(PlanFormat::Bin) => "plan.bin",
            Self::Plan(PlanFormat::Json) => "plan.json",
            Self::Plan(PlanFormat::Pretty) => "pretty.plan",
            Self::Plan(PlanFormat::Short) => "short.diff",
            Self::Log => "run.log",
            Self::Other(name) => name.as_ref(),
        }
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, layer, run } = self;
        write!(f, "{namespace}/{layer}/{run}")
    }
}

/// The answer of `GET /api/attempts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// Every attempt that has a file or a claim, oldest first.
    pub attempts: Vec<AttemptFiles>,
}

/// The files of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFiles {
    /// The attempt.
    pub attempt: Attempt,
    /// Its files, sorted by name. An attempt that is only claimed has none.
    pub artifacts: Vec<FileInfo>,
    /// Whether its log still grows; none if it is complete, or there is none.
    #[serde(default)]
    pub live: Option<Live>,
}

/// A log that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Live {
    /// Its runner works.
    Running,
    /// Its runner was not heard of for a minute.
    Lost,
}

/// A stored file, as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its name within the attempt ([`File::name`]).
    pub name: String,
    /// Its stored size in bytes.
    pub size: u64,
    /// When it was stored, RFC 3339 in UTC.
    pub modified: String,
}

/// The answer of `GET /api/runs`: one page of a layer's runs, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// The runs of this page.
    pub runs: Vec<RunInfo>,
    /// The `cursor` of the next page, `null` on the last.
    pub next: Option<String>,
}

/// A run, as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Name of the run.
    pub run: String,
    /// When its newest attempt stored its first file, RFC 3339 in UTC.
    pub started: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::BURRITO_FILES;

    #[test]
    fn an_attempt_has_one_spelling() {
        assert_eq!("0".parse(), Ok(Attempt(0)));
        assert_eq!("4294967295".parse(), Ok(Attempt(u32::MAX)));
        for text in ["", "01", "+1", "-1", "1.0", "4294967296", "a"] {
            text.parse::<Attempt>().unwrap_err();
        }
    }

    #[test]
    fn every_file_of_burrito_has_its_own_variant() {
        let plans = PlanFormat::ALL.map(File::Plan);
        let names = plans.iter().chain([&File::Log]).map(File::name).collect::<Vec<_>>();
        for name in BURRITO_FILES {
            assert!(names.contains(&name), "{name}");
        }
    }
}
