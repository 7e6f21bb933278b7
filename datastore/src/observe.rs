//! What the service records: log lines, audit lines and metrics.

mod access_log;
pub(crate) mod context;
pub(crate) mod counters;
pub mod log;
pub(crate) mod metrics;
pub(crate) mod refusal;
pub(crate) mod request;
