//! What is recorded of a request: its log line, its audit line and the metrics.

pub(crate) mod audit;
pub(crate) mod log;
pub(crate) mod metrics;
pub mod request;
