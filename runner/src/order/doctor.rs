//! `runner doctor`: whether this machine, and what it reaches, is ready for a run. It changes nothing.

mod check;
mod cluster;
mod code;
mod machine;
mod remote;

use std::io::{self, Write as _};

use crate::cli::{DoctorArgs, Environment};
use crate::order::doctor::check::Check;

/// Runs all checks and prints them. Returns the exit code of the first one that failed.
pub(crate) async fn doctor(args: &DoctorArgs, environment: &Environment) -> io::Result<u8> {
    let (remote, cluster, code, machine) = tokio::join!(
        remote::checks(args, environment),
        cluster::checks(args, environment),
        code::checks(args, environment),
        machine::checks(args, environment),
    );
    let checks = [remote, cluster, code, machine].concat();
    let text = if args.json {
        let mut json = serde_json::to_string_pretty(&checks).map_err(io::Error::other)?;
        json.push('\n');
        json
    } else {
        checks.iter().map(ToString::to_string).collect()
    };
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // A reader such as `head -1` has all that it wants.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    Ok(checks.iter().find_map(Check::failed).unwrap_or(0))
}
