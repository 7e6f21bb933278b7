//! The limit of open files of this process, connections included.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit if that is possible. Returns the limit that holds then.
pub(crate) fn raise_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let is_raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    Ok(if is_raised { hard } else { soft })
}
