//! Paths of the datastore's own objects about states. It knows no storage.

use datastore_api::state::StateKind;
use datastore_api::{Sha256, StateKey, VersionId};
use object_store::path::Path;

use crate::store::error::StoreError;
use crate::store::key::parse;
use crate::store::state::LayerKey;

/// Prefix of control objects and of the descriptions of versions.
pub(in crate::store) const STATES: &str = ".plancha/states/";

/// Prefix of the documents of versions.
pub(super) const DOCUMENTS: &str = "states/";

impl From<&StateKey> for LayerKey {
    fn from(key: &StateKey) -> Self {
        Self { namespace: key.namespace.clone(), layer: key.layer.clone() }
    }
}

/// One of the datastore's own objects about the states of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateObject {
    /// The control object.
    Control,
    /// The description of a version, of this workspace.
    Description(String, StateKind, VersionId),
    /// Which snapshot has this digest.
    Hash(Sha256),
}

/// Where the descriptions of a state's versions are.
pub(super) fn directory(key: &StateKey, kind: StateKind) -> String {
    let name = match kind {
        StateKind::Head => "versions",
        StateKind::Snapshot => "snapshots",
        StateKind::Rejected => "rejected",
    };
    format!("{}/workspaces/{}/{name}", LayerKey::from(key).prefix(), key.workspace)
}

/// The path of the description of a version.
pub fn description_path(key: &StateKey, kind: StateKind, id: &VersionId) -> String {
    format!("{}/{id}", directory(key, kind))
}

/// Which version has the snapshot with this digest.
pub(super) fn hash_path(key: &StateKey, sha256: Sha256) -> String {
    format!("{}/workspaces/{}/hashes/{sha256}", LayerKey::from(key).prefix(), key.workspace)
}

impl StateObject {
    /// What a path means; `None` for anything else.
    pub fn of(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix(STATES)?.splitn(3, '/').skip(2);
        let rest = parts.next()?;
        if rest == "control" {
            return Some(Self::Control);
        }
        let (workspace, rest) = rest.strip_prefix("workspaces/")?.split_once('/')?;
        let (kind, name) = rest.split_once('/')?;
        let described =
            |kind| Some(Self::Description(workspace.to_owned(), kind, name.parse().ok()?));
        match kind {
            "versions" => described(StateKind::Head),
            "snapshots" => described(StateKind::Snapshot),
            "rejected" => described(StateKind::Rejected),
            "hashes" => Some(Self::Hash(name.parse().ok()?)),
            _ => None,
        }
    }
}

impl LayerKey {
    /// Where everything but the documents of its states is.
    pub(super) fn prefix(&self) -> String {
        format!("{STATES}{}/{}", self.namespace, self.layer)
    }

    pub(super) fn control_path(&self) -> Result<Path, StoreError> {
        parse(&format!("{}/control", self.prefix()))
    }

    /// Where the datastore's own objects about the states of this layer are, and where the documents are.
    pub fn state_directories(&self) -> [String; 2] {
        [format!("{}/", self.prefix()), format!("{DOCUMENTS}{}/{}/", self.namespace, self.layer)]
    }

    /// The layer with this path, `<namespace>/<layer>`, and what follows it.
    pub(super) fn split(path: &str) -> Option<(Self, &str)> {
        let (namespace, rest) = path.split_once('/')?;
        let (layer, rest) = rest.split_once('/')?;
        Some((Self { namespace: namespace.parse().ok()?, layer: layer.parse().ok()? }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_state_objects_are_parsed() {
        let id = "fffa0b1c2d3e4f50-0123456789abcdef";
        let path = |rest: &str| format!("{STATES}team-a/network/{rest}");
        let described =
            |kind| Some(StateObject::Description("blue".to_owned(), kind, id.parse().unwrap()));
        for (rest, object) in [
            ("control".to_owned(), Some(StateObject::Control)),
            (format!("workspaces/blue/versions/{id}"), described(StateKind::Head)),
            (format!("workspaces/blue/snapshots/{id}"), described(StateKind::Snapshot)),
            (format!("workspaces/blue/rejected/{id}"), described(StateKind::Rejected)),
            (
                format!("workspaces/blue/hashes/{}", Sha256::of(b"")),
                Some(StateObject::Hash(Sha256::of(b""))),
            ),
            (format!("workspaces/blue/other/{id}"), None),
            ("workspaces/blue/versions/x".to_owned(), None),
            ("other".to_owned(), None),
        ] {
            assert_eq!(StateObject::of(&path(&rest)), object, "{rest}");
        }
        assert_eq!(StateObject::of("states/team-a/network/control"), None);
    }
}
