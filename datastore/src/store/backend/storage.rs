//! Which storage is used, and how the kinds of storage differ.

use std::fmt;
use std::path::PathBuf;

use crate::store::backend::cloud::bucket::Cloud;
use crate::store::backend::cloud::provider::Provider;

/// The kind of storage, and how it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A directory, created if it is missing.
    File(PathBuf),
    /// The memory of this process.
    Memory,
    /// A bucket.
    Cloud(Cloud),
}

/// How the kinds of storage differ.
#[derive(Clone, Debug)]
pub(in crate::store) struct Backend {
    /// The directory, if it is one.
    pub(in crate::store) root: Option<PathBuf>,
    /// The cloud, if it is one.
    pub(in crate::store) provider: Option<Provider>,
    /// The prefix of all keys in a bucket: empty, or a path with its `/`.
    pub(in crate::store) prefix: String,
    /// Whether an object can carry its digest as metadata.
    pub(in crate::store) metadata: bool,
    /// The largest body that is stored with a single put.
    pub(in crate::store) single_put_max: usize,
    /// The size of a part of a larger body.
    pub(in crate::store) part_size: usize,
    /// Parts in flight while the next one is filled.
    pub(in crate::store) parallel_parts: usize,
}

pub(in crate::store) const KIB: usize = 1 << 10;

pub(in crate::store) const MIB: usize = 1 << 20;

/// The size of a part in a bucket.
const PART: usize = 5 * MIB;

/// The most parts of one object on S3 and Google Cloud Storage.
const MAX_PARTS: usize = 10_000;

impl Backend {
    pub(in crate::store) fn file(root: PathBuf) -> Self {
        let (single_put_max, part_size, parallel_parts) = (256 * KIB, MIB, 2);
        Self {
            root: Some(root),
            metadata: false,
            single_put_max,
            part_size,
            parallel_parts,
            ..Self::memory()
        }
    }

    pub(in crate::store) fn memory() -> Self {
        let (root, provider, prefix) = (None, None, String::new());
        let (single_put_max, part_size) = (8 * MIB, 8 * MIB);
        Self {
            root,
            provider,
            prefix,
            metadata: true,
            single_put_max,
            part_size,
            parallel_parts: 0,
        }
    }

    /// Parts have the smallest size that every cloud accepts, so that more of them fit in the same memory.
    pub(in crate::store) fn cloud(cloud: &Cloud) -> Self {
        let prefix = &cloud.prefix;
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let (provider, part_size, parallel_parts) = (Some(cloud.provider), PART, 3);
        Self { provider, prefix, part_size, parallel_parts, ..Self::memory() }
    }
}

impl Storage {
    /// The largest object that can be stored: a bucket accepts a limited number of parts.
    pub fn max_object(&self) -> u64 {
        match self {
            // Azure accepts five times as many, which does not justify another limit.
            Self::Cloud(_) => (PART * MAX_PARTS - MIB) as u64,
            Self::File(_) | Self::Memory => u64::MAX,
        }
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(root) => write!(f, "file://{}", root.display()),
            Self::Memory => f.write_str("memory://"),
            Self::Cloud(cloud) => cloud.fmt(f),
        }
    }
}
