//! Namespaces and layers, as the datastore lists them.

use serde::{Deserialize, Serialize};

use crate::key::{Attempt, Live};
use crate::status::LayerStatus;

/// The answer of `GET /api/namespaces`: one page, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// The namespaces in which the caller may list runs.
    pub namespaces: Vec<String>,
    /// The `after` of the next page, `null` on the last.
    pub next: Option<String>,
}

/// The answer of `GET /api/layers`: one page, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Layers {
    /// The layers that have a run or a status.
    pub layers: Vec<ListedLayer>,
    /// The `after` of the next page, `null` on the last.
    pub next: Option<String>,
}

/// A layer, as a listing shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedLayer {
    /// Its name.
    pub name: String,
    /// The run that has started last.
    pub last_run: Option<LayerRun>,
    /// Its status, without the changes that it lists. `null` if it has none, or the caller may not read it.
    pub status: Option<LayerStatus>,
}

/// The last run of a layer. What a run has not stored, or the caller may not read, is `null`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRun {
    /// Name of the run.
    pub run: String,
    /// Its newest attempt. The rest is about this one.
    pub attempt: Attempt,
    /// `plan`, `apply`, `check`, `converge`, `destroy` or `migrate`.
    pub action: Option<String>,
    /// As in `run.json`: `changes`, `no_changes`, `applied`, `failed` or `interrupted`.
    pub outcome: Option<String>,
    /// When it stored its first file, RFC 3339 in UTC.
    pub created: String,
    /// When it stored its result, RFC 3339 in UTC.
    pub finished: Option<String>,
    /// What its plan changes.
    pub counts: Option<PlanCounts>,
    /// The commit.
    pub revision: Option<String>,
    /// `terraform` or `tofu`.
    pub tool: Option<String>,
    /// The version of the tool.
    pub tool_version: Option<String>,
    /// Whether its log still grows; `null` if it is complete, or there is none.
    pub live: Option<Live>,
}

impl LayerRun {
    /// A run that has no result yet.
    pub fn without_result(run: String, attempt: Attempt, created: String) -> Self {
        Self {
            run,
            attempt,
            action: None,
            outcome: None,
            created,
            finished: None,
            counts: None,
            revision: None,
            tool: None,
            tool_version: None,
            live: None,
        }
    }
}

/// The counts of a plan, as Burrito counts them: a replacement is both a creation and a deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCounts {
    /// Objects that it creates.
    pub create: u64,
    /// Objects that it updates.
    pub update: u64,
    /// Objects that it deletes.
    pub delete: u64,
}
