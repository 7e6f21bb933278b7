//! The HTTP API: the routes, their parameters, and their answers.

pub(crate) mod applied;
pub(crate) mod artifacts;
pub(crate) mod bundles;
pub(crate) mod encrypt;
pub(crate) mod error;
pub(crate) mod logs;
pub(crate) mod openapi;
pub(crate) mod params;
pub(crate) mod plans;
pub(crate) mod query;
pub(crate) mod route;
pub(crate) mod router;
pub(crate) mod runs;
pub(crate) mod service;
pub(crate) mod transfer;
