//! The guard: a small second process that stops the tool when the runner is killed.
//!
//! The runner starts its own program a second time under the name [`NAME`]. Through a pipe it sends the process groups
//! of running tools. When the pipe is closed, the runner has ended: the guard sends each group one SIGINT, as the runner
//! would, and exits. A runner that is killed in the instant between the start of a tool and its message leaves the tool without
//! a signal: it goes on to its end.
//!
//! A parent-death signal (prctl(2)) is not enough. It cannot be cancelled, so a runner that forwards SIGTERM and is then
//! killed would cause a second SIGINT, after which terraform exits without saving its state. It also reaches only one
//! process, not its group.

use std::io::{self, PipeWriter, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::Pid;

/// The guard's `argv[0]`.
pub const NAME: &str = "plancha-guard";

/// When a program that passes a SIGINT on gets it for the second time.
pub(super) const AGAIN: Duration = Duration::from_millis(200);

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

    /// Adds a group that gets a SIGINT if the runner is killed. `forwards`: only its leader gets it, and
    /// again after [`AGAIN`].
    pub(super) fn watch(&self, group: Pid, forwards: bool) {
        self.send(if forwards { Message::Process } else { Message::Group }, group);
    }

    /// Removes a group that has ended or was sent a SIGINT.
    pub(super) fn release(&self, group: Pid) {
        self.send(Message::Release, group);
    }

    /// Ends the guard. It must not watch a group.
    pub(super) fn dismiss(&self) {
        drop(self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn send(&self, message: Message, group: Pid) {
        let [a, b, c, d] = group.as_raw().to_le_bytes();
        let message = [message as u8, a, b, c, d];
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = pipe.as_mut()
            && let Err(error) = open.write_all(&message)
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
    let groups = groups_at_the_end(io::stdin().lock());
    // A group that has ended meanwhile needs no signal.
    for (group, forwards) in &groups {
        let _ended =
            if *forwards { kill(*group, Signal::SIGINT) } else { killpg(*group, Signal::SIGINT) };
        let _ended = killpg(*group, Signal::SIGCONT);
    }
    if groups.iter().any(|(_, forwards)| *forwards) {
        std::thread::sleep(AGAIN);
    }
    for (group, _) in groups.iter().filter(|(_, forwards)| *forwards) {
        let _ended = kill(*group, Signal::SIGINT);
    }
    ExitCode::SUCCESS
}

/// What the runner says about a group. A message is one byte for this and four for the number of the group.
#[derive(Clone, Copy)]
enum Message {
    Release,
    Group,
    Process,
}

/// The groups that are watched when the messages end, and whether only their leaders are.
fn groups_at_the_end(mut messages: impl Read) -> Vec<(Pid, bool)> {
    let (mut groups, mut message) = (Vec::new(), [0; 5]);
    while messages.read_exact(&mut message).is_ok() {
        let [kind, a, b, c, d] = message;
        let number = i32::from_le_bytes([a, b, c, d]);
        groups.retain(|(group, _): &(Pid, bool)| group.as_raw() != number);
        // 0 and 1 would mean the guard's own group, or every process.
        if number > 1 && kind != Message::Release as u8 {
            groups.push((Pid::from_raw(number), kind == Message::Process as u8));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_that_still_run_are_signalled() {
        use Message::{Group, Process, Release};
        let groups = |messages: &[(Message, i32)], rest: &[u8]| {
            let messages = messages
                .iter()
                .flat_map(|(kind, number)| [*kind as u8].into_iter().chain(number.to_le_bytes()));
            let bytes = messages.chain(rest.iter().copied()).collect::<Vec<_>>();
            let groups = groups_at_the_end(bytes.as_slice()).into_iter();
            groups.map(|(group, forwards)| (group.as_raw(), forwards)).collect::<Vec<_>>()
        };
        assert_eq!(groups(&[], b""), []);
        assert_eq!(groups(&[(Group, 70)], b""), [(70, false)]);
        assert_eq!(groups(&[(Group, 70), (Release, 70)], b""), []);
        let all = [(Group, 70), (Process, 80), (Release, 70), (Process, 80)];
        assert_eq!(groups(&all, b"\x01"), [(80, true)]);
        let odd = [0, 1, -1, -5, i32::MAX].map(|number| (Group, number));
        assert_eq!(groups(&odd, b""), [(i32::MAX, false)]);
    }
}
