//! The program that shows long output page by page. It shares the runner's terminal, so it is in the runner's process
//! group. It is run by a shell, as git does.

use std::ffi::OsStr;
use std::io;
use std::process::{ExitStatus, Stdio};

use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::process::WITHHELD;

/// A running pager.
#[derive(Debug)]
pub(crate) struct Pager {
    child: Child,
    /// While this exists, Ctrl-C is the pager's and does not end the runner.
    _interrupts: Signal,
}

impl Pager {
    /// Starts a pager; what is written to the pipe is what it shows. `variables` are added to those of the runner.
    pub(crate) fn start(
        command: &OsStr,
        variables: &[(&str, &str)],
    ) -> io::Result<(Self, ChildStdin)> {
        let interrupts = signal(SignalKind::interrupt())?;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(Stdio::piped()).envs(variables.iter().copied());
        for name in WITHHELD {
            shell.env_remove(name);
        }
        let mut child = shell.spawn()?;
        let stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((Self { child, _interrupts: interrupts }, stdin))
    }

    /// Waits until the user has left the pager.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }
}
