//! What integration tests share.

pub mod crd_schemas;
pub mod datastore;
pub mod fake_cloud;
pub mod fake_cluster;
pub mod fake_token_reviews;
pub mod faulty_datastore;
pub mod issuer;
pub mod release_mirror;
pub mod sandbox;
pub mod served;
pub mod tls;

use std::path::{Path, PathBuf};

pub use crate::crd_schemas::CrdSchemas;
pub use crate::datastore::TestDatastore;
pub use crate::fake_cloud::{CloudFault, Dialect, FakeCloud, Pace};
pub use crate::fake_cluster::FakeCluster;
pub use crate::fake_token_reviews::{FakeTokenReviews, TokenReviewFault};
pub use crate::faulty_datastore::{
    CLAIMED, Fault, FaultyDatastore, GATEWAY, HEAD, LATE, LOST, PROBLEM,
};
pub use crate::issuer::{FakeIssuer, IssuerFault, Signature};
pub use crate::release_mirror::{MirrorFault, MirroredTool, ReleaseMirror};
pub use crate::sandbox::{
    Ended, Sandbox, Started, eventually, executable, has_ended, on_path, wait_for,
};
pub use crate::tls::{Proxy, Resetting, TlsFront};

/// A file or folder of `../shared/data`, which holds facts that the project does not ship: real signatures, lists of
/// every published version, Burrito's own resource definitions. `None`: this machine does not have them. With
/// `CI=true` they are required.
#[expect(clippy::disallowed_methods, reason = "a variable says what is required")]
pub fn shared_data(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    let is_required = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(path.exists() || !is_required, "CI=true, but {} is missing", path.display());
    path.exists().then_some(path)
}
