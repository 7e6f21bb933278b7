//! Releases of the tools: resolving a request to a version, and installing it.
//!
//! The request itself comes from [`mod@crate::version`].

mod cache_file;
mod commands;
mod download;
mod error;
mod install;
mod mirror;
mod releases;
mod resolved;
mod select;
mod tools;
mod verify;
mod versions;

pub(crate) use commands::{COMMAND_LINE, install, mirror, print, resolve};
pub(crate) use error::{CommandError, ErrorKind, ReleaseError};
pub(crate) use releases::Releases;
pub(crate) use resolved::Installed;
pub(crate) use tools::tools;

/// What fuzz targets call.
#[cfg(fuzzing)]
pub(crate) mod fuzz {
    use std::io::Write as _;

    use crate::release::install::unpack::unpack;
    use crate::release::versions::formats;
    use crate::release::versions::layout::ListFormat;

    /// Parses a list of versions in every format.
    pub fn list(bytes: &[u8]) {
        for format in [
            ListFormat::Index,
            ListFormat::Api,
            ListFormat::GitHub,
            ListFormat::Html,
            ListFormat::HtmlText,
        ] {
            drop(formats::parse(format, bytes));
        }
    }

    /// Unpacks an archive, which must not write more than the tool's binary.
    pub fn archive(bytes: &[u8]) {
        let (Ok(mut archive), Ok(mut out)) = (tempfile::tempfile(), tempfile::tempfile()) else {
            return;
        };
        if archive.write_all(bytes).is_ok() {
            drop(unpack(&archive, "terraform", &mut out));
        }
    }
}
