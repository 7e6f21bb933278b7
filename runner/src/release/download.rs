//! Downloads over HTTP: credentials, retries, progress.

pub(super) mod body;
pub(super) mod cause;
pub(super) mod github_app;
pub(super) mod http;
pub(super) mod http_error;
pub(super) mod limits;
pub(super) mod local;
pub(super) mod progress;
pub(super) mod url;
