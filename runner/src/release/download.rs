//! Downloads over HTTP: credentials, retries, progress.

pub(crate) mod github_app;
pub(crate) mod http;
pub(crate) mod http_error;
pub(crate) mod progress;
