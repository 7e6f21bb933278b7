//! The HTTP API: the routes, their parameters, and their answers.

pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod handlers;
pub(crate) mod openapi;
pub(crate) mod params;
pub(crate) mod query;
pub(crate) mod route;
pub(crate) mod router;
pub(crate) mod service;
mod sign_in;
pub(crate) mod transfer;
