//! Buckets: S3, Google Cloud Storage and Azure Blob Storage.

pub(crate) mod abandoned;
pub(crate) mod bucket;
pub(crate) mod check;
pub(crate) mod connector;
pub(crate) mod document;
pub(crate) mod object_answer;
pub(crate) mod provider;
pub(crate) mod variables;
