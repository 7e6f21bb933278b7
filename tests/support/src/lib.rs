//! What integration tests share.

pub mod cluster;
pub mod datastore;
pub mod double;
pub mod fault;
pub mod kube;
pub mod mirror;
pub mod sandbox;
pub mod schema;
pub mod served;
pub mod tls;

pub use crate::cluster::FakeCluster;
pub use crate::datastore::TestDatastore;
pub use crate::double::{CloudFault, Dialect, Double, Pace};
pub use crate::fault::{Fault, FaultyDatastore};
pub use crate::kube::{FakeKube, KubeFault};
pub use crate::mirror::{MirrorFault, MirroredTool, ReleaseMirror};
pub use crate::sandbox::{Ended, Sandbox, Started, eventually};
pub use crate::schema::Schemas;
pub use crate::tls::{Proxy, Resetting, TlsFront};
