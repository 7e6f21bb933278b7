//! Keys of artifacts and their paths. The only module that knows the paths; it knows no storage.
//!
//! The first two forms are Burrito's, byte for byte. Everything below `.plancha/` is the datastore's own.

pub(in crate::store) mod live;
pub(in crate::store) mod locks;

use std::hash::{BuildHasher as _, RandomState};
use std::time::Instant;

use datastore_api::{
    AppliedKey, Attempt, BundleKey, DocumentKey, File, Name, PlanFormat, RunKey, Sha256, StateKey,
    VersionId,
};
use object_store::path::Path;

use crate::kind::Kind;
use crate::store::error::StoreError;
pub use crate::store::key::live::{LIVE, LivePart};

/// One stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A file of an attempt.
    File(RunKey, Attempt, File),
    /// The git bundle of a commit.
    Bundle(BundleKey),
    /// The record that a plan has been applied.
    Applied(AppliedKey),
    /// One version of a state.
    State(StateKey, VersionId),
    /// A document of a layer.
    Document(DocumentKey),
    /// One half of an approval: its offer, or its use.
    Approval(ApprovalKey, ApprovalPart),
    /// A part of an attempt that has not ended.
    Live(RunKey, Attempt, LivePart),
    /// The changes of a plan, listed from the `plan.json` that the digest identifies.
    Changes(RunKey, Attempt, Sha256),
    /// What a page of layers shows of a layer.
    Summary(Name, Name),
}

/// An approval: one offer for a set of destructive changes of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApprovalKey {
    /// Namespace of the layer.
    pub namespace: Name,
    /// The layer.
    pub layer: Name,
    /// The digest of the set.
    pub set: Sha256,
    /// How many offers for the same set were stored before.
    pub generation: u32,
}

/// A half of an approval. Each is created once and never replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApprovalPart {
    /// What is offered.
    Offer,
    /// Who has used it.
    Used,
}

impl ApprovalPart {
    fn name(self) -> &'static str {
        match self {
            Self::Offer => "offer",
            Self::Used => "used",
        }
    }
}

/// The longest key. Backends allow 1024 bytes, of which `<prefix>/.plancha/sha256/` needs the rest.
pub(in crate::store) const MAX_KEY: usize = 1024 - (MAX_PREFIX + 1) - 16;

/// The longest prefix in a bucket.
pub(in crate::store) const MAX_PREFIX: usize = 60;

/// Prefix of the records of applied plans. It is outside of `layers/`, so that no record counts as an attempt.
pub const APPLIED: &str = ".plancha/applied/";

/// Prefix of documents of layers.
pub const DOCUMENTS: &str = ".plancha/documents/";

/// Prefix of lists of changes. It is outside of `layers/`, so that none counts as a file of an attempt.
pub const CHANGES: &str = ".plancha/changes/";

/// Prefix of approvals.
pub const APPROVALS: &str = ".plancha/approvals/";

/// Prefix of the index of runs.
pub const INDEX: &str = ".plancha/runs/";

/// Prefix of leases, each under the key of its object.
pub(in crate::store) const LEASES: &str = ".plancha/leases/";

/// Prefix of the summaries of layers, and of what changes with them.
pub const SUMMARIES: &str = ".plancha/layers/";

/// Prefix of the objects of probes.
pub(in crate::store) const PROBES: &str = ".plancha/probe/";

/// Exists in a bucket in which objects were replaced by versions of the same content, which carry the time of that.
pub(in crate::store) const REWRITTEN: &str = ".plancha/rewritten";

/// Prefix of digest records.
pub(in crate::store) const RECORDS: &str = ".plancha/sha256/";

impl Key {
    /// The kind of the artifact.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::File(_, _, file) => file.into(),
            Self::Bundle(_) => Kind::Bundle,
            Self::Applied(_) | Self::Approval(..) => Kind::Artifact,
            Self::Document(document) => Kind::of_document(&document.name),
            Self::State(..) => Kind::State,
            Self::Live(_, _, LivePart::Ledger) => Kind::Artifact,
            Self::Live(_, _, LivePart::Piece(_) | LivePart::Merged(..)) => Kind::Log,
            Self::Changes(..) => Kind::Json,
            Self::Summary(..) => Kind::Status,
        }
    }

    /// Parses a path; `None` if it is not the path of an artifact.
    pub fn from_path(path: &str) -> Option<Self> {
        let (kind, rest) = path.split_once('/')?;
        let (namespace, rest) = rest.split_once('/')?;
        let (name, rest) = rest.split_once('/')?;
        let key = match kind {
            "layers" => {
                let (run, rest) = rest.split_once('/')?;
                let (attempt, file) = rest.split_once('/')?;
                let (namespace, layer) = (namespace.parse().ok()?, name.parse().ok()?);
                let run = RunKey { namespace, layer, run: run.parse().ok()? };
                Self::File(run, attempt.parse().ok()?, parse_file(file)?)
            }
            "repositories" => {
                let (git_ref, revision) = rest.rsplit_once('/')?;
                let (namespace, name) = (namespace.parse().ok()?, name.parse().ok()?);
                let revision = revision.strip_suffix(".gitbundle")?.parse().ok()?;
                Self::Bundle(BundleKey {
                    namespace,
                    name,
                    git_ref: git_ref.parse().ok()?,
                    revision,
                })
            }
            "states" => {
                let (workspace, version) = rest.split_once('/')?;
                let version = version.strip_suffix(".tfstate")?.parse().ok()?;
                let (namespace, layer) = (namespace.parse().ok()?, name.parse().ok()?);
                Self::State(
                    StateKey { namespace, layer, workspace: workspace.parse().ok()? },
                    version,
                )
            }
            ".plancha" if namespace == "applied" => {
                let (layer, plan) = rest.split_once('/')?;
                let (namespace, layer) = (name.parse().ok()?, layer.parse().ok()?);
                Self::Applied(AppliedKey { namespace, layer, plan: plan.parse().ok()? })
            }
            ".plancha" if namespace == "documents" => {
                let (layer, document) = rest.split_once('/')?;
                let (namespace, layer) = (name.parse().ok()?, layer.parse().ok()?);
                Self::Document(DocumentKey { namespace, layer, name: document.parse().ok()? })
            }
            ".plancha" if namespace == "approvals" => parse_approval(name, rest)?,
            ".plancha" if namespace == "live" => parse_live(name, rest)?,
            ".plancha" if namespace == "changes" => parse_changes(name, rest)?,
            ".plancha" if namespace == "layers" => {
                let layer = rest.strip_suffix("/summary.json")?;
                Self::Summary(name.parse().ok()?, layer.parse().ok()?)
            }
            _ => return None,
        };
        // Only the canonical form is a key.
        (key.to_path()? == path).then_some(key)
    }

    /// Its path; `None` if its names are too long together.
    pub fn to_path(&self) -> Option<String> {
        self.object_path().ok().map(Into::into)
    }

    /// Its path, byte for byte as Burrito writes it.
    ///
    /// [`Path::parse`] keeps a name as written; `Path::from` would percent-encode it.
    pub(crate) fn object_path(&self) -> Result<Path, StoreError> {
        let text = match self {
            Self::File(run, attempt, file) => {
                format!("{}/{attempt}/{}", run_prefix(run), file.name())
            }
            Self::Bundle(BundleKey { namespace, name, git_ref, revision }) => {
                format!("repositories/{namespace}/{name}/{git_ref}/{revision}.gitbundle")
            }
            Self::Applied(AppliedKey { namespace, layer, plan }) => {
                format!("{APPLIED}{namespace}/{layer}/{plan}")
            }
            Self::State(state, version) => format!("states/{state}/{version}.tfstate"),
            Self::Document(document) => format!("{DOCUMENTS}{document}"),
            Self::Approval(ApprovalKey { namespace, layer, set, generation }, part) => {
                format!("{APPROVALS}{namespace}/{layer}/{set}/{generation}/{}", part.name())
            }
            Self::Live(run, attempt, part) => format!("{}{part}", live_prefix(run, *attempt)),
            Self::Changes(run, attempt, plan) => {
                format!("{}{plan}", changes_prefix(run, *attempt))
            }
            Self::Summary(namespace, layer) => {
                format!("{SUMMARIES}{namespace}/{layer}/summary.json")
            }
        };
        if text.len() > MAX_KEY {
            return Err(StoreError::KeyTooLong { key: text, max: MAX_KEY });
        }
        parse(&text)
    }
}

/// `<layer>/<set>/<generation>/<part>`
fn parse_approval(namespace: &str, rest: &str) -> Option<Key> {
    let mut parts = rest.split('/');
    let layer = parts.next()?.parse().ok()?;
    let (set, generation) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let part = match parts.next()? {
        "offer" => ApprovalPart::Offer,
        "used" => ApprovalPart::Used,
        _ => return None,
    };
    let key = ApprovalKey { namespace: namespace.parse().ok()?, layer, set, generation };
    parts.next().is_none().then_some(Key::Approval(key, part))
}

/// `<layer>/<run>/<attempt>/<part>`
fn parse_live(namespace: &str, rest: &str) -> Option<Key> {
    let mut parts = rest.split('/');
    let (layer, run) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let run = RunKey { namespace: namespace.parse().ok()?, layer, run };
    let (attempt, part) = (parts.next()?.parse().ok()?, LivePart::parse(parts.next()?)?);
    parts.next().is_none().then_some(Key::Live(run, attempt, part))
}

/// `<layer>/<run>/<attempt>/<digest>`
fn parse_changes(namespace: &str, rest: &str) -> Option<Key> {
    let mut parts = rest.split('/');
    let (layer, run) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let run = RunKey { namespace: namespace.parse().ok()?, layer, run };
    let (attempt, plan) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(Key::Changes(run, attempt, plan))
}

fn parse_file(file: &str) -> Option<File> {
    let burritos = PlanFormat::ALL.map(File::Plan).into_iter().chain([File::Log]);
    let known = burritos.into_iter().find(|known| known.name() == file);
    known.or_else(|| file.parse().ok().map(File::Other))
}

pub(in crate::store) fn run_prefix(run: &RunKey) -> String {
    format!("layers/{run}")
}

/// Where the live log of an attempt is, with its `/`.
pub(in crate::store) fn live_prefix(run: &RunKey, attempt: Attempt) -> String {
    format!("{LIVE}{run}/{attempt}/")
}

/// Where the lists of changes of an attempt are, with its `/`.
pub(in crate::store) fn changes_prefix(run: &RunKey, attempt: Attempt) -> String {
    format!("{CHANGES}{run}/{attempt}/")
}

/// Whether the path belongs to the datastore itself, including claims, documents of layers and records of applied plans.
pub fn is_own(key: &str) -> bool {
    key.starts_with(".plancha/")
}

/// The path of the digest record of an object.
pub(in crate::store) fn record_path(path: &Path) -> Result<Path, StoreError> {
    parse(&format!("{RECORDS}{path}"))
}

/// The directory of the index of a layer's runs.
pub(in crate::store) fn index_prefix(namespace: &str, layer: &str) -> String {
    format!(".plancha/runs/{namespace}/{layer}")
}

pub(in crate::store) fn parse(text: &str) -> Result<Path, StoreError> {
    Path::parse(text).map_err(|error| StoreError::Backend(error.into()))
}

/// A random number for names that must be unique.
pub(in crate::store) fn random() -> u64 {
    // Every `RandomState` has its own keys, made from random numbers of the system.
    RandomState::new().hash_one(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunKey {
        RunKey {
            namespace: "team-a".parse().unwrap(),
            layer: "network".parse().unwrap(),
            run: "plan 1#%2F~é".parse().unwrap(),
        }
    }

    #[test]
    fn every_key_has_burritos_path() {
        let file = |file| Key::File(run(), Attempt(10), file).object_path().unwrap().to_string();
        let plans = datastore_api::PlanFormat::ALL.map(|format| file(File::Plan(format)));
        insta::assert_snapshot!(plans.join("\n"), @r"
        layers/team-a/network/plan 1#%2F~é/10/pretty.plan
        layers/team-a/network/plan 1#%2F~é/10/plan.json
        layers/team-a/network/plan 1#%2F~é/10/short.diff
        layers/team-a/network/plan 1#%2F~é/10/plan.bin
        ");
        insta::assert_snapshot!(file(File::Log), @"layers/team-a/network/plan 1#%2F~é/10/run.log");
        let bundle = BundleKey {
            namespace: "team-a".parse().unwrap(),
            name: "infra".parse().unwrap(),
            git_ref: "feat/a b#1~2".parse().unwrap(),
            revision: "0123abc".parse().unwrap(),
        };
        let bundle = Key::Bundle(bundle).object_path().unwrap();
        insta::assert_snapshot!(bundle, @"repositories/team-a/infra/feat/a b#1~2/0123abc.gitbundle");
        insta::assert_snapshot!(
            record_path(&bundle).unwrap(),
            @".plancha/sha256/repositories/team-a/infra/feat/a b#1~2/0123abc.gitbundle"
        );
    }

    #[test]
    fn a_key_that_is_too_long_is_refused() {
        let bundle = BundleKey {
            namespace: "n".repeat(253).parse().unwrap(),
            name: "m".repeat(253).parse().unwrap(),
            git_ref: "r/".repeat(349).trim_end_matches('/').parse().unwrap(),
            revision: "0".parse().unwrap(),
        };
        let error = Key::Bundle(bundle).object_path().unwrap_err();
        assert!(matches!(error, StoreError::KeyTooLong { .. }));
        assert!(error.to_string().len() < 200);
    }

    #[test]
    fn the_longest_key_leaves_room_for_its_record() {
        let path = Path::parse("k".repeat(MAX_KEY)).unwrap();
        let record = record_path(&path).unwrap();
        assert_eq!(MAX_PREFIX + "/".len() + record.as_ref().len(), 1024);
    }

    #[test]
    fn a_path_parses_to_the_key_with_that_path() {
        for path in [
            "layers/team-a/network/plan 1#%2F~é/10/pretty.plan",
            "layers/a/b/c/0/plan.json",
            "layers/a/b/c/0/short.diff",
            "layers/a/b/c/0/plan.bin",
            "layers/a/b/c/0/run.log",
            "layers/a/b/c/0/run.json",
            "repositories/team-a/infra/feat/a b#1~2/0123abc.gitbundle",
            "repositories/a/b/main/0123abc.gitbundle",
            &format!(".plancha/applied/team-a/network/{}", Sha256::of(b"")),
            "states/team-a/network/default/fffa0b1c2d3e4f50-0123456789abcdef.tfstate",
            ".plancha/documents/team-a/network/status.json",
            &format!(".plancha/approvals/team-a/network/{}/10/offer", Sha256::of(b"")),
            &format!(".plancha/approvals/team-a/network/{}/0/used", Sha256::of(b"")),
            ".plancha/live/team-a/network/plan 1#%2F~é/10/00000000000000ff",
            ".plancha/live/a/b/c/0/0000000000000000-000000000000000a",
            ".plancha/live/a/b/c/0/ledger.json",
            &format!(".plancha/changes/team-a/network/plan 1#%2F~é/10/{}", Sha256::of(b"")),
            ".plancha/layers/team-a/network/summary.json",
        ] {
            assert_eq!(Key::from_path(path).unwrap().object_path().unwrap().as_ref(), path);
        }
    }

    #[test]
    fn a_foreign_path_is_not_a_key() {
        for path in [
            "",
            "layers",
            "layers/a/b/c",
            "layers/a/b/c/0",
            "layers/a/b/c/latest/plan.bin",
            "layers/a/b/c/00/plan.bin",
            "layers/a/b/c/0/.hidden",
            "layers/a/b/c/0/below/plan.bin",
            "layers//b/c/0/plan.bin",
            "/layers/a/b/c/0/plan.bin",
            "repositories/a/b/0123abc.gitbundle",
            "repositories/a/b/main/0123abc",
            ".plancha/sha256/layers/a/b/c/0/plan.bin",
            ".plancha/applied/a/b/0123abc",
            ".plancha/claims/a/b/c/0",
            ".plancha/documents/a/b",
            ".plancha/documents/a/b/c/d",
            &format!(".plancha/approvals/a/b/{}/00/offer", Sha256::of(b"")),
            &format!(".plancha/approvals/a/b/{}/0/other", Sha256::of(b"")),
            &format!(".plancha/approvals/a/b/{}/0/used/more", Sha256::of(b"")),
            ".plancha/live/a/b/c/0/alive",
            ".plancha/live/a/b/c/0/00000000000000FF",
            ".plancha/live/a/b/c/0/+0000000000000ff",
            ".plancha/live/a/b/c/0/00000000000000ff-00000000000000ff",
            ".plancha/live/a/b/c/00/ledger.json",
            ".plancha/live/a/b/c/0/ledger.json/x",
            ".plancha/changes/a/b/c/0/abc",
            &format!(".plancha/changes/a/b/c/00/{}", Sha256::of(b"")),
            ".plancha/layers/a/b/changed",
            ".plancha/layers/a/b/c/summary.json",
            ".plancha/layers/a/summary.json",
            "states/a/b/default/0.tfstate",
            "states/a/b/fffa0b1c2d3e4f50-0123456789abcdef.tfstate",
        ] {
            assert_eq!(Key::from_path(path), None, "{path}");
        }
    }
}
