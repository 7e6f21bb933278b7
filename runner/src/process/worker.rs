//! The runner's own program as a worker: a second process that answers one question and ends. What could take endless
//! time or memory runs there.
//!
//! The worker limits its own memory; the runner ends it when its time is over. What the question is is not known here.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

/// An answer is not longer.
const MAX_ANSWER: u64 = 16 << 20;
/// More of what a worker says on standard error is not read.
const MAX_SAID: u64 = 8 << 10;

/// Why a worker did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error("the runner's own program cannot be started as a worker")]
    Start(#[source] io::Error),
    #[error("it took longer than {} s", .0.as_secs())]
    Time(Duration),
    #[error("it needed too much memory")]
    Memory,
    #[error("it called itself too often")]
    Depth,
    #[error("its answer is longer than {} MiB", MAX_ANSWER >> 20)]
    Answer,
    #[error("its process ended ({0})")]
    Ended(String),
}

/// Starts the worker of this name, sends it the question, and returns its answer.
pub(crate) fn ask(
    name: &str,
    question: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send,
    limit: Duration,
) -> Result<Vec<u8>, WorkerError> {
    let mut child = start(name).map_err(WorkerError::Start)?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(mut stderr)) = pipes else {
        return Err(WorkerError::Start(io::ErrorKind::BrokenPipe.into()));
    };
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Why a worker stopped reading, its exit status says.
            let _unread = question(&mut stdin);
        });
        scope.spawn(move || {
            let mut answer = Vec::new();
            let read = stdout.take(MAX_ANSWER + 1).read_to_end(&mut answer);
            let _late = sender.send(read.map(|_| answer));
        });
        let said = scope.spawn(move || said(&mut stderr));
        let answer = receiver.recv_timeout(limit);
        if answer.as_ref().map_or(true, |read| read.as_ref().is_ok_and(|read| is_long(read))) {
            let _ended = child.kill();
        }
        let status = child.wait().map_err(WorkerError::Start)?;
        let said = said.join().unwrap_or_default();
        match answer {
            Err(_) => Err(WorkerError::Time(limit)),
            Ok(Ok(answer)) if is_long(&answer) => Err(WorkerError::Answer),
            Ok(Ok(answer)) if status.success() => Ok(answer),
            Ok(_) => Err(why(status, &said, limit)),
        }
    })
}

fn is_long(answer: &[u8]) -> bool {
    answer.len() as u64 > MAX_ANSWER
}

fn start(name: &str) -> io::Result<Child> {
    // On Linux this is the running program, even if its file was replaced.
    let linux = cfg!(target_os = "linux").then(|| PathBuf::from("/proc/self/exe"));
    let mut command = Command::new(linux.map_or_else(std::env::current_exe, Ok)?);
    command.arg0(name).env_clear().current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn()
}

/// The beginning of what a worker says.
fn said(stderr: &mut impl Read) -> String {
    let mut said = Vec::new();
    let read = stderr.take(MAX_SAID).read_to_end(&mut said);
    // It must not wait for a reader.
    let _rest = read.and_then(|_| io::copy(stderr, &mut io::sink()));
    String::from_utf8_lossy(&said).into_owned()
}

fn why(status: ExitStatus, said: &str, limit: Duration) -> WorkerError {
    let signal = status.signal().and_then(|signal| Signal::try_from(signal).ok());
    match signal {
        Some(Signal::SIGABRT) if said.contains("memory allocation of") => WorkerError::Memory,
        Some(Signal::SIGABRT) if said.contains("overflowed its stack") => WorkerError::Depth,
        Some(Signal::SIGXCPU) => WorkerError::Time(limit),
        Some(signal) => WorkerError::Ended(signal.to_string()),
        None => WorkerError::Ended(status.to_string()),
    }
}

/// Called by a worker first: it gets no more memory than this, no more time of the CPU, and leaves no core file.
pub(crate) fn limit_self(memory: u64, time: Duration) -> io::Result<()> {
    // What the program's own file takes is not counted.
    setrlimit(Resource::RLIMIT_DATA, memory, memory)?;
    setrlimit(Resource::RLIMIT_CPU, time.as_secs(), time.as_secs() + 1)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    Ok(())
}
