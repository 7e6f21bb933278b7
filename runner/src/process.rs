//! Starts programs. No other module does.
//!
//! Each program has its own process group and an empty standard input. It is stopped by one SIGINT: not by SIGTERM,
//! because provider processes ignore only SIGINT, and not by two, because terraform then exits without saving its state.
//! The SIGINT goes to the group, but not if the program is [one that passes it on](Program::forwards).
//! A killed runner does not kill the tool: its output goes to a file ([`log`]), and the [`guard`] sends the SIGINT. What
//! the programs do is not known here.

#![expect(clippy::disallowed_types, reason = "only this module starts programs")]

mod capture;
pub(crate) mod github;
pub mod guard;
pub mod init;
pub(crate) mod label;
pub(crate) mod limits;
mod log;
mod pager;
pub(crate) mod panics;
pub(crate) mod redact;
mod resources;
mod shell;
mod signals;
pub(crate) mod text;
pub(crate) mod url_secrets;
pub(crate) mod worker;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::process::capture::Capture;
use crate::process::guard::{AGAIN, Guard};
use crate::process::limits::{Limits, Reached, Watch};
pub(crate) use crate::process::log::{Log, private_file};
use crate::process::log::{OutputFile, Screen};
pub(crate) use crate::process::pager::Pager;
use crate::process::resources::Meter;
pub(crate) use crate::process::resources::{Killed, Used, has_free_memory};
pub(crate) use crate::process::shell::quoted;
pub(crate) use crate::process::signals::{SHORTLY, Signals, Stop};

/// The runner's variables that contain a secret, lead to one, or contain a URL that may. Programs do not get them.
const WITHHELD: [&str; 21] = [
    "PLANCHA_TOKEN",
    "PLANCHA_TOKEN_FILE",
    "PLANCHA_SOURCE",
    "PLANCHA_TOFU_URL",
    "PLANCHA_TERRAGRUNT_URL",
    "TFENV_REMOTE",
    "TFENV_REMOTE_USER",
    "TFENV_REMOTE_PASSWORD",
    "TFENV_LIST_URL",
    "TOFUENV_REMOTE",
    "TOFUENV_REMOTE_USER",
    "TOFUENV_REMOTE_PASSWORD",
    "TOFUENV_LIST_URL",
    "TOFUENV_URL_TEMPLATE",
    "TG_REMOTE",
    "TG_REMOTE_USER",
    "TG_REMOTE_PASSWORD",
    "TG_LIST_URL",
    "TENV_GITHUB_TOKEN",
    "TOFUENV_GITHUB_TOKEN",
    "TENV_GITHUB_APP_PEM",
];

/// How long the runner waits for a slow reader of its output: after the end of a program, and after a signal.
const UNREAD: Duration = Duration::from_secs(2);
const UNREAD_AFTER_STOP: Duration = Duration::from_millis(500);

/// The time for a program that ends soon.
const BRIEF: Duration = Duration::from_secs(10);

/// A program to run.
// Without `Debug`: variables may be secrets.
#[derive(Clone)]
pub(crate) struct Program {
    /// Its file.
    pub(crate) path: PathBuf,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
    /// Its working directory.
    pub(crate) dir: PathBuf,
    /// Variables in addition to the runner's own.
    pub(crate) env: Vec<(String, OsString)>,
    /// The runner's variables that are removed.
    pub(crate) without: &'static [&'static str],
    /// A locked file without contents as its standard input. The lock lasts as long as a process has it.
    pub(crate) lock: Option<Arc<File>>,
    /// Whether it runs another program and passes a SIGINT on to it. Then the SIGINT is sent to this process alone, and a
    /// second time after 200 ms: terragrunt waits 15 s before it passes a first one on, because a terminal sends one to
    /// the whole group, and passes it on at once when it gets a second one. The program below gets one in each case.
    pub(crate) forwards: bool,
}

/// Where a program's output goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Output<'a> {
    /// Both streams, in their order, to the runner's stdout and to the log. The file of a program that failed stays
    /// ([`Log::remove_output`]).
    Tee(&'a Log),
    /// Standard output to this file, with mode 0600; standard error to the runner's stderr and to the log.
    Capture(&'a Path, &'a Log),
    /// The same, but standard error to the log only.
    CaptureQuietly(&'a Path, &'a Log),
    /// Both streams to the log only.
    LogOnly(&'a Log),
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct ExitReport {
    /// Its exit status.
    pub(crate) status: ExitStatus,
    /// The signal that was passed on to it while it ran.
    pub(crate) stop: Option<Stop>,
    /// The limit that it had reached when it was stopped.
    pub(crate) limit: Option<Reached>,
    /// Whether it had to be killed.
    pub(crate) killed: bool,
    /// How long it ran.
    pub(crate) took: Duration,
    /// What it and its processes have used.
    pub(crate) used: Used,
    /// The error that made its recorded output incomplete, if one did.
    pub(crate) incomplete: Option<io::Error>,
}

impl ExitReport {
    /// The exit code; for a program that a signal ended, 128 and the signal's number, as in a shell.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

/// Forbids core dumps, which would contain secrets, for the runner and its programs.
pub(crate) fn forbid_core_dumps() -> io::Result<()> {
    Ok(setrlimit(Resource::RLIMIT_CORE, 0, 0)?)
}

/// Runs a program to its end. A signal to the runner, or a limit, becomes one SIGINT to the program's group. If the program
/// has not ended within `grace` after that, the group is killed.
pub(crate) async fn run(
    program: &Program,
    output: Output<'_>,
    signals: &Signals,
    limits: &Limits<'_>,
    grace: Duration,
) -> io::Result<ExitReport> {
    let (log, screen, to) = match output {
        Output::Tee(log) => (log, Screen::Stdout, None),
        Output::Capture(path, log) => (log, Screen::Stderr, Some(path)),
        Output::CaptureQuietly(path, log) => (log, Screen::Nowhere, Some(path)),
        Output::LogOnly(log) => (log, Screen::Nowhere, None),
    };
    let mut file = OutputFile::create(log)?;
    let mut watch = Watch::new(limits, log, to)?;
    // After an error from here on, no process would stop the program: what can fail comes before its start.
    let to = to.map(|path| Ok::<_, io::Error>((path, private_file(path)?))).transpose()?;
    let following = log.follow(&file, screen)?;
    let started = Instant::now();
    let meter = Meter::new();
    let (mut child, capture) = {
        let mut command = command(program)?;
        command.stderr(file.stdio()?);
        command.stdout(if to.is_some() { Stdio::piped() } else { file.stdio()? });
        let mut child = start(program, &mut command).await?;
        let capture = to.zip(child.stdout.take());
        (child, capture.map(|((path, file), pipe)| Capture::new(pipe, file, path)))
    };
    limits::pulse::beat();
    let group = Group::of(&child, program.forwards, signals);
    meter.follow(group.id);
    let reached = watch.reached(&meter);
    let waited = meter.until(wait((&mut child, &file), &group, signals, reached, grace));
    let (waited, captured) = match capture {
        Some(capture) => capture.until(waited).await,
        None => (waited.await, Ok(())),
    };
    limits::pulse::beat();
    let (status, cause, killed) = waited?;
    let followed = following.finish(if cause.is_none() { UNREAD } else { UNREAD_AFTER_STOP }).await;
    if !status.success() && matches!(output, Output::Tee(_)) {
        file.keep();
    }
    let (stop, limit) = match cause {
        Some(Cause::Signal(stop)) => (Some(stop), None),
        Some(Cause::Limit(limit)) => (None, Some(limit)),
        None => (None, None),
    };
    Ok(ExitReport {
        status,
        stop,
        limit,
        killed,
        took: started.elapsed(),
        used: meter.used(),
        incomplete: captured.and(followed).err(),
    })
}

/// The process group of a running program. The guard watches it until the program is sent a SIGINT.
struct Group {
    id: Option<Pid>,
    /// See [`Program::forwards`].
    forwards: bool,
    guard: Option<Arc<Guard>>,
}

impl Group {
    fn of(child: &Child, forwards: bool, signals: &Signals) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let group = Self { id, forwards, guard: signals.guard.clone() };
        if let (Some(id), Some(guard)) = (group.id, &group.guard) {
            guard.watch(id, forwards);
        }
        group
    }

    /// Sends SIGINT. The guard releases the group first, so that it never sends a second one.
    fn interrupt(&self) -> io::Result<()> {
        self.release();
        if self.forwards {
            self.interrupt_process()?;
        } else {
            self.signal(Signal::SIGINT)?;
        }
        // A program that reads from the terminal in the background is suspended, and does not get the SIGINT until it continues.
        self.signal(Signal::SIGCONT)
    }

    /// Sends SIGINT to the program alone.
    fn interrupt_process(&self) -> io::Result<()> {
        sent(self.id.map(|id| kill(id, Signal::SIGINT)))
    }

    fn release(&self) {
        if let (Some(id), Some(guard)) = (self.id, &self.guard) {
            guard.release(id);
        }
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        sent(self.id.map(|group| killpg(group, signal)))
    }
}

/// The result of sending a signal. A program that has just ended, whose status is still to be read, is no error.
fn sent(result: Option<nix::Result<()>>) -> io::Result<()> {
    match result {
        None | Some(Ok(()) | Err(nix::errno::Errno::ESRCH)) => Ok(()),
        Some(Err(error)) => Err(error.into()),
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // After a panic the program still runs, and the guard ends it.
        if std::thread::panicking() {
            return;
        }
        self.release();
    }
}

/// Why a program was stopped.
enum Cause {
    Signal(Stop),
    Limit(Reached),
}

/// A program that the signal of the runner has reached as well, as if a service manager stops all processes, gets no SIGINT: a
/// second interrupt makes terraform exit without saving its state. It prints within this time that it was interrupted.
const REPORTED: Duration = Duration::from_millis(500);

/// Whether the program reports an interrupt within [`REPORTED`].
async fn reports_interrupt(output: &OutputFile) -> bool {
    let reported = async {
        while !output.reports_interrupt().unwrap_or_default() {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    tokio::time::timeout(REPORTED, reported).await.is_ok()
}

/// Whether a program was ended by a signal that also stops the runner. Both get it if all processes of a run are stopped.
fn ended_by_stop(status: ExitStatus) -> bool {
    let signals = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    signals.iter().any(|signal| status.signal() == Some(*signal as i32))
}

/// The runner's own signal, which may come shortly after the end of the program: within [`REPORTED`].
async fn signal_soon(signals: &Signals) -> Option<Stop> {
    tokio::time::timeout(REPORTED, signals.wait()).await.ok()
}

async fn wait(
    (child, output): (&mut Child, &OutputFile),
    group: &Group,
    signals: &Signals,
    reached: impl Future<Output = Reached>,
    grace: Duration,
) -> io::Result<(ExitStatus, Option<Cause>, bool)> {
    let cause = tokio::select! {
        biased;
        status = child.wait() => {
            group.release();
            let status = status?;
            let stop = if ended_by_stop(status) { signal_soon(signals).await } else { None };
            return Ok((status, stop.map(Cause::Signal), false));
        }
        stop = signals.wait() => Cause::Signal(stop),
        limit = reached => Cause::Limit(limit),
    };
    let until = tokio::time::sleep(grace);
    let is_interrupted = match cause {
        Cause::Limit(_) => false,
        Cause::Signal(_) => tokio::select! {
            biased;
            status = child.wait() => {
                group.release();
                return Ok((status?, Some(cause), false));
            }
            is_interrupted = reports_interrupt(output) => is_interrupted,
        },
    };
    if is_interrupted {
        group.release();
    } else {
        group.interrupt()?;
    }
    let stopping = async {
        if group.forwards && !is_interrupted {
            if let Ok(status) = tokio::time::timeout(AGAIN, child.wait()).await {
                return status;
            }
            group.interrupt_process()?;
        }
        child.wait().await
    };
    tokio::select! {
        biased;
        status = stopping => return Ok((status?, Some(cause), false)),
        () = until => {}
    }
    group.signal(Signal::SIGKILL)?;
    Ok((child.wait().await?, Some(cause), true))
}

/// Starts the program. A binary that was installed a moment ago may still be held open for writing by
/// another thread's fork: ETXTBSY passes.
async fn start(program: &Program, command: &mut Command) -> io::Result<Child> {
    let mut tries = 20;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && tries > 0 => {
                tries -= 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => {
                let text = format!("{} cannot be started: {error}", program.path.display());
                return Err(io::Error::new(error.kind(), text));
            }
            Ok(child) => return Ok(child),
        }
    }
}

fn command(program: &Program) -> io::Result<Command> {
    let mut command = Command::new(&program.path);
    command
        .args(&program.args)
        .current_dir(&program.dir)
        // The runner's own may name the same directory through a link: programs would take that for their path.
        .env("PWD", fs_err::canonicalize(&program.dir)?)
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(match &program.lock {
            Some(lock) => lock.try_clone()?.into(),
            None => Stdio::null(),
        })
        .process_group(0);
    for name in WITHHELD.iter().chain(program.without) {
        command.env_remove(name);
    }
    Ok(command)
}

/// Runs a program that ends soon, and returns its output. Its process group is killed after [`BRIEF`].
pub(crate) async fn output(program: &Program) -> io::Result<std::process::Output> {
    output_within(program, BRIEF).await
}

/// The same for a program that may take longer.
pub(crate) async fn output_within(
    program: &Program,
    limit: Duration,
) -> io::Result<std::process::Output> {
    output_of(program, command(program)?, limit).await
}

/// As [`output`], with the program's own variables alone.
pub(crate) async fn output_without_variables(
    program: &Program,
) -> io::Result<std::process::Output> {
    let mut command = command(program)?;
    command.env_clear().envs(program.env.iter().map(|(name, value)| (name, value)));
    output_of(program, command, BRIEF).await
}

async fn output_of(
    program: &Program,
    mut command: Command,
    limit: Duration,
) -> io::Result<std::process::Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = start(program, &mut command).await?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let mut output = std::pin::pin!(child.wait_with_output());
    // Dropped before the child, whose ID is the group's as long as it is not waited for.
    let mut unfinished = Unfinished(group);
    match tokio::time::timeout(limit, &mut output).await {
        Ok(output) => {
            unfinished.0 = None;
            output
        }
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{} did not end within {} s", program.path.display(), limit.as_secs()),
        )),
    }
}

/// A process group that is killed when this is dropped.
struct Unfinished(Option<Pid>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Err(error) = sent(self.0.map(|group| killpg(group, Signal::SIGKILL))) {
            tracing::debug!("a process group cannot be killed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::redact::Redaction;

    /// After a later error no process would stop the program.
    #[tokio::test]
    async fn a_program_starts_only_when_its_output_can_be_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::create(dir.path().join("run.log"), &Redaction::default()).unwrap();
        let program = Program {
            path: "/bin/sh".into(),
            args: vec!["-c".into(), "touch started; sleep 5".into()],
            dir: dir.path().to_owned(),
            env: Vec::new(),
            without: &[],
            lock: None,
            forwards: false,
        };
        let (_sender, signals) = Signals::of_test();
        let to = dir.path().join("missing/output");
        let output = Output::Capture(&to, &log);
        run(&program, output, &signals, &Limits::NONE, Duration::MAX).await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!dir.path().join("started").exists());
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_soon_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        // The end of the last process that has the pipe open for writing.
        nix::unistd::mkfifo(&dir.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let program = Program {
            path: "/bin/sh".into(),
            args: vec!["-c".into(), "(exec sleep 1000) > pipe & wait".into()],
            dir: dir.path().to_owned(),
            env: Vec::new(),
            without: &[],
            lock: None,
            forwards: false,
        };
        let pipe = dir.path().join("pipe");
        let ended = tokio::task::spawn_blocking(move || fs_err::read(pipe));
        let limit = Duration::from_secs(1);
        let error = output_of(&program, command(&program).unwrap(), limit).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(ended.await.unwrap().unwrap(), b"");
    }
}
