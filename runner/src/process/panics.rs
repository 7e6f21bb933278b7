//! Reports panics as errors: an exit code of the runner, and one line of the log, or of standard error before there is one.

use std::io::{Write as _, stderr};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::process::ExitCode;

use crate::process::github;
use datastore_api::panics::{describe, without_build_path};

/// Runs the program. A panic, which is a bug, ends it with the exit code of a failure without a class. What the run leaves is
/// treated like that of a killed one.
pub fn reporting_panics(program: impl FnOnce() -> ExitCode) -> ExitCode {
    set_hook(Box::new(report));
    ending(program)
}

fn ending(program: impl FnOnce() -> ExitCode) -> ExitCode {
    let code = catch_unwind(AssertUnwindSafe(program)).unwrap_or(ExitCode::FAILURE);
    github::end(None);
    code
}

fn report(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let text = line(&location, &describe(panic.payload()));
    if tracing::dispatcher::has_been_set() {
        tracing::error!("{text}");
    } else {
        // Without standard error nothing is left to report it.
        let _printed = writeln!(stderr(), "error: {text}");
    }
}

fn line(location: &str, message: &str) -> String {
    let location = without_build_path(location);
    format!("internal error at {location}: {message}\n  next: please report this line as a bug")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_with_a_line() {
        let code = |program: fn() -> ExitCode| format!("{:?}", ending(program));
        assert_eq!(code(|| panic!("a bug")), format!("{:?}", ExitCode::FAILURE));
        assert_eq!(code(|| ExitCode::from(8)), format!("{:?}", ExitCode::from(8)));
        let line = line("/root/.cargo/registry/src/index-1/tar-0.4.1/src/a.rs:7:9", "no");
        assert!(line.starts_with("internal error at tar-0.4.1/src/a.rs:7:9: no\n"), "{line}");
    }
}
