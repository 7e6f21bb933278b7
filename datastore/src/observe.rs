//! What is recorded of a request: its log line, its audit line and the metrics.

mod access_log;
pub(crate) mod context;
pub(crate) mod counters;
pub mod log;
pub(crate) mod metrics;
pub(crate) mod request;
