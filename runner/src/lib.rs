//! Runs Terraform and OpenTofu unattended.

pub mod config;
pub mod version;
