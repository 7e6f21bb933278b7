//! The guard: a small second process that stops the tool when the runner is killed.
//!
//! The runner starts its own program a second time under the name [`NAME`]. Through a pipe it sends the process groups
//! of running tools. When the pipe is closed, the runner has ended: the guard sends each group one SIGINT, as the runner
//! would, and exits.
//!
//! A parent-death signal (prctl(2)) is not enough. It cannot be cancelled, so a runner that forwards SIGTERM and is then
//! killed would cause a second SIGINT, after which terraform exits without saving its state. It also reaches only one
//! process, not its group.

use std::io::{self, PipeWriter, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;

/// The guard's `argv[0]`.
pub const NAME: &str = "plancha-guard";

/// The runner's end of its guard.
#[derive(Debug)]
pub(crate) struct Guard {
    /// `None` after the guard was dismissed.
    pipe: Mutex<Option<PipeWriter>>,
    process: Mutex<Child>,
}

impl Guard {
    pub(super) fn start() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // On Linux this is the running program, even if its file was replaced.
        let linux = cfg!(target_os = "linux").then(|| PathBuf::from("/proc/self/exe"));
        let mut command = Command::new(linux.map_or_else(std::env::current_exe, Ok)?);
        command.arg0(NAME).env_clear().current_dir("/").process_group(0);
        // A reader of the runner's output must not wait for the guard.
        command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Mutex::new(command.spawn()?);
        Ok(Self { pipe: Mutex::new(Some(writer)), process })
    }

    /// Adds a group that gets a SIGINT if the runner is killed.
    pub(super) fn watch(&self, group: Pid) {
        self.send(group.as_raw());
    }

    /// Removes a group that has ended or was sent a SIGINT.
    pub(super) fn release(&self, group: Pid) {
        self.send(-group.as_raw());
    }

    /// Ends the guard. It must not watch a group.
    pub(super) fn dismiss(&self) {
        drop(self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn send(&self, message: i32) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = pipe.as_mut()
            && let Err(error) = open.write_all(&message.to_le_bytes())
        {
            tracing::warn!(
                "the guard has ended ({error}): if the runner is killed, the tool keeps running"
            );
            *pipe = None;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.dismiss();
        // It exits at once, and its exit status must be read.
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = process.wait() {
            tracing::debug!("the guard: {error}");
        }
    }
}

/// The guard's program.
pub fn main() -> ExitCode {
    // Signals to the whole session are not for the guard.
    let mut ignored = SigSet::empty();
    ignored.extend([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT]);
    if ignored.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    for group in groups_at_the_end(io::stdin().lock()) {
        for signal in [Signal::SIGINT, Signal::SIGCONT] {
            // A group that has ended meanwhile needs no signal.
            let _ended = killpg(group, signal).is_err();
        }
    }
    ExitCode::SUCCESS
}

/// The groups that are watched when the messages end. A message is the number of a group to add, or the negative number
/// of one to remove.
fn groups_at_the_end(mut messages: impl Read) -> Vec<Pid> {
    let (mut groups, mut message) = (Vec::new(), [0; 4]);
    while messages.read_exact(&mut message).is_ok() {
        let number = i32::from_le_bytes(message);
        groups.retain(|group: &Pid| group.as_raw() != number.saturating_abs());
        // 0 and 1 would mean the guard's own group, or every process.
        if number > 1 {
            groups.push(Pid::from_raw(number));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_that_still_run_are_signalled() {
        let groups = |messages: &[i32], rest: &[u8]| {
            let messages = messages.iter().flat_map(|message| message.to_le_bytes());
            let bytes = messages.chain(rest.iter().copied()).collect::<Vec<_>>();
            let groups = groups_at_the_end(bytes.as_slice());
            groups.into_iter().map(Pid::as_raw).collect::<Vec<_>>()
        };
        assert_eq!(groups(&[], b""), [0; 0]);
        assert_eq!(groups(&[70], b""), [70]);
        assert_eq!(groups(&[70, -70], b""), [0; 0]);
        assert_eq!(groups(&[70, 80, -70, 80], b"\x01"), [80]);
        assert_eq!(groups(&[0, 1, -1, -5, i32::MAX], b""), [i32::MAX]);
    }
}
