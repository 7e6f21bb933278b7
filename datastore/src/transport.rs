//! Bytes in and out: connections, TLS, limits and the memory that transfers share. It knows no artifact.

pub(crate) mod admission;
pub(crate) mod body_guard;
pub(crate) mod connections;
pub mod limits;
pub(crate) mod memory;
pub mod open_files;
pub(crate) mod server;
pub(crate) mod socket;
pub mod tls;
pub(crate) mod upload_body;
