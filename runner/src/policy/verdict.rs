//! What a policy says of a plan. It holds addresses and reasons, but no values of the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use datastore_api::Sha256;
use serde::{Deserialize, Serialize};

use crate::process::text::one_line;

/// What is known of the layer, beside the plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// The addresses that ledgers of this layer show as created by one of its failed runs and never completed.
    pub(crate) created_by_failed_run: BTreeSet<String>,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Create,
    Update,
    Delete,
    Replace,
    Forget,
    /// Only imported.
    Import,
    /// Only moved to another address.
    Move,
    /// An action of a provider is run (terraform 1.14).
    Invoke,
    /// Actions that this runner does not know.
    Unknown,
}

impl Kind {
    /// The kinds that are counted, also where there is none.
    const COUNTED: [Self; 8] = [
        Self::Create,
        Self::Update,
        Self::Delete,
        Self::Replace,
        Self::Forget,
        Self::Import,
        Self::Move,
        Self::Invoke,
    ];

    /// Whether an object is lost, or may be.
    pub(crate) fn is_destructive(self) -> bool {
        matches!(self, Self::Delete | Self::Replace | Self::Forget | Self::Invoke | Self::Unknown)
    }

    /// Its name, as in rules.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Replace => "replace",
            Self::Forget => "forget",
            Self::Import => "import",
            Self::Move => "move",
            Self::Invoke => "invoke",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A change of a resource, with what the policy says of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JudgedChange {
    pub(crate) address: String,
    #[serde(rename = "type")]
    pub(crate) resource_type: String,
    /// `managed` or `data`.
    pub(crate) mode: Option<String>,
    /// As the plan has them, in their order: `["create", "delete"]` creates first.
    pub(crate) actions: Vec<String>,
    /// Why, in the tool's words: `replace_because_tainted`.
    pub(crate) action_reason: Option<String>,
    /// The key of an object that an earlier apply could not destroy.
    pub(crate) deposed: Option<String>,
    pub(crate) kind: Kind,
    /// The address before, if it is moved; perhaps beside another change.
    pub(crate) previous_address: Option<String>,
    /// Whether it is imported; perhaps beside another change.
    pub(crate) imported: bool,
    /// Whether the plan only restores what was changed outside of the tool.
    pub(crate) corrects_drift: bool,
    /// Why it is refused; empty if it is allowed.
    pub(crate) refused: Vec<String>,
    /// Whether it deletes, replaces or forgets an object, or may, whatever the policy says.
    pub(crate) destructive: bool,
}

impl JudgedChange {
    /// Its address, and the key of a deposed object.
    pub(crate) fn name(&self) -> String {
        match &self.deposed {
            Some(key) => format!("{} (deposed {key})", self.address),
            None => self.address.clone(),
        }
    }

    /// `replace (replace_because_tainted)`
    fn what(&self) -> String {
        let actions = || self.actions.join(", ");
        let kind = match self.kind {
            Kind::Unknown => format!("unknown actions [{}]", actions()),
            kind => kind.to_string(),
        };
        match &self.action_reason {
            Some(reason) => format!("{kind} ({reason})"),
            None => kind,
        }
    }
}

/// A changed output, with what the policy says of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JudgedOutput {
    pub(crate) name: String,
    pub(crate) actions: Vec<String>,
    /// Why it is refused; empty if it is allowed.
    pub(crate) refused: Vec<String>,
}

/// What a policy says of a plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// Every change of a resource, in the plan's order. What stays as it is, or is only read, is none.
    pub(crate) changes: Vec<JudgedChange>,
    /// The outputs whose values change.
    pub(crate) outputs: Vec<JudgedOutput>,
    /// What no approval lifts.
    pub(crate) denials: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// The digest of everything that is refused, if anything is: what an approval names.
    pub(crate) destructive_sha256: Option<Sha256>,
    /// The changes of each kind. An import or move beside another change counts as both.
    pub(crate) counts: BTreeMap<String, u64>,
}

impl Verdict {
    /// Whether the plan may be applied.
    pub(crate) fn is_allowed(&self) -> bool {
        self.denials.is_empty() && !self.needs_approval()
    }

    /// Whether the plan may be applied if its destructive set is approved.
    pub(crate) fn is_allowed_with_approval(&self) -> bool {
        self.denials.is_empty()
    }

    fn needs_approval(&self) -> bool {
        self.changes.iter().any(|change| !change.refused.is_empty())
            || self.outputs.iter().any(|output| !output.refused.is_empty())
    }

    /// Everything that is refused with its reasons, for the log and the screen.
    pub(crate) fn lines(&self) -> Vec<String> {
        let changes = self.changes.iter().filter(|change| !change.refused.is_empty());
        let changes = changes.map(|change| {
            format!("{}: {}: {}", change.name(), change.what(), change.refused.join("; "))
        });
        let outputs = self.outputs.iter().filter(|output| !output.refused.is_empty());
        let outputs =
            outputs.map(|output| format!("output {}: {}", output.name, output.refused.join("; ")));
        let denials = self.denials.iter().map(|denial| format!("denied: {denial}"));
        changes.chain(outputs).chain(denials).map(|line| one_line(&line)).collect()
    }

    /// Counts the changes.
    pub(super) fn count(&mut self) {
        self.counts = Kind::COUNTED.map(|kind| (kind.name().to_owned(), 0)).into();
        for change in &self.changes {
            let moved = change.previous_address.is_some() && change.kind != Kind::Move;
            let imported = change.imported && change.kind != Kind::Import;
            let beside = [(moved, Kind::Move), (imported, Kind::Import)];
            let kinds = beside.into_iter().filter(|(is, _)| *is).map(|(_, kind)| kind);
            for kind in kinds.chain([change.kind]) {
                *self.counts.entry(kind.name().to_owned()).or_default() += 1;
            }
        }
    }
}
