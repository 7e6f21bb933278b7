//! Connections, TLS, limits, and the memory that all transfers share. It does not know artifacts.

pub(crate) mod admission;
pub(crate) mod body_guard;
pub(crate) mod connections;
pub mod limits;
pub(crate) mod memory;
pub(crate) mod open_files;
pub(crate) mod server;
pub(crate) mod socket;
pub mod tls;
pub(crate) mod upload_body;
