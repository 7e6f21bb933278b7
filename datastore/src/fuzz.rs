//! Entry points of the fuzz targets in `tests/fuzz`: they parse what callers send, and check what must hold for any
//! input. Not part of a released program.

use datastore_api::{RunKey, Sha256};

use crate::api::handlers::{
    applied, approvals, artifacts, bundles, changes, documents, layer_metrics, layers, plans, runs,
};
use crate::api::params::{FromOpenParams as _, FromParams, Params};
use crate::api::query::RawQuery;
use crate::api::transfer;
use crate::auth::Access;
use crate::store::{ApprovalKey, ApprovalPart, Key, LayerKey};

/// Parses a query as every route does. An accepted query has one key, which is converted to a path and back. The key is
/// in the namespace for which the permission of the caller is checked.
///
/// # Panics
///
/// If one of this does not hold.
pub fn query(text: &str) {
    let query = RawQuery::parse(text);
    let params = Params::of(&query);
    drop(plans::Get::from_params(&params));
    drop(plans::Put::from_params(&params));
    drop(artifacts::Get::from_params(&params));
    drop(runs::Page::from_params(&params));
    drop(RunKey::from_params(&params));
    if let Ok(put) = artifacts::Put::from_params(&params) {
        place(&put.key(), put.access());
    }
    if let Ok(get) = bundles::Get::from_params(&params) {
        place(&Key::Bundle(get.0.clone()), get.access());
    }
    drop(runs::ClaimAttempt::from_params(&params));
    drop(documents::Page::from_params(&params));
    drop(layer_metrics::Get::from_params(&params));
    drop(changes::Get::from_params(&params));
    drop(layers::LayerPage::from_params(&params));
    drop(layers::NamespacePage::from_params(&params));
    drop(approvals::MakeOffer::from_params(&params));
    drop(approvals::List::from_params(&params));
    if let Ok(put) = documents::Put::from_params(&params) {
        own_place(&Key::Document(put.0.clone()), put.access());
    }
    if let Ok(claim) = approvals::UseApproval::from_params(&params) {
        let LayerKey { namespace, layer } = claim.layer.clone();
        let key = ApprovalKey { namespace, layer, set: claim.set, generation: 7 };
        own_place(&Key::Approval(key, ApprovalPart::Used), claim.access());
    }
    if let Ok(put) = applied::Put::from_params(&params) {
        own_place(&Key::Applied(put.0.clone()), put.access());
    }
}

/// As [`place`], below `.plancha/`.
fn own_place(key: &Key, access: Access) {
    if let Some(path) = key.to_path() {
        assert!(path.len() <= 947);
        assert_eq!(path.split('/').nth(2), Some(access.namespace.as_ref()));
        assert_eq!(Key::from_path(&path).as_ref(), Some(key));
    }
}

fn place(key: &Key, access: Access) {
    if let Some(path) = key.to_path() {
        assert!(path.len() <= 947);
        assert_eq!(path.split('/').nth(1), Some(access.namespace.as_ref()));
        assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path}");
        assert_eq!(Key::from_path(&path).as_ref(), Some(key));
    }
}

/// Headers, one a line: `Range`, a list of tags, `Repr-Digest`.
///
/// # Panics
///
/// If a range is not within the object, a tag is found where it is not, or a digest does not read back.
pub fn headers(text: &str, size: u64) {
    let mut lines = text.lines();
    let mut line = || lines.next().unwrap_or_default();
    if let Some(range) = transfer::parse_range(line(), size) {
        assert!(range.start <= range.end && range.end <= size, "{range:?} of {size}");
    }
    let tags = line();
    let named = transfer::etag_matches(tags, "\"sha256-00\"", transfer::Compare::Weak);
    assert!(!named || tags.contains('*') || tags.contains("\"sha256-00\""), "{tags}");
    if let Ok(Some(sha256)) = Sha256::from_repr_digest(line()) {
        assert_eq!(Sha256::from_repr_digest(&sha256.to_repr_digest()), Ok(Some(sha256)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_holds() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus");
        let texts = |name: &str| {
            let entries = std::fs::read_dir(corpus.join(name)).unwrap();
            let texts = entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
            texts.map(|text| String::from_utf8_lossy(&text).into_owned()).collect::<Vec<_>>()
        };
        let (queries, all_headers) = (texts("query"), texts("headers"));
        assert!(!queries.is_empty() && !all_headers.is_empty());
        for text in queries {
            query(&text);
        }
        for text in all_headers {
            for size in [0, 1, 10, u64::MAX] {
                headers(&text, size);
            }
        }
    }
}
