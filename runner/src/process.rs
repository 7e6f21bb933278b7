//! Programs: the only module that starts one.
//!
//! Each runs in a process group of its own, with nothing to read, and is asked to stop once: by SIGINT,
//! never SIGTERM (provider processes ignore only SIGINT), never twice (terraform then leaves without
//! saving its state). What the programs do is not known here.

#![expect(clippy::disallowed_types, reason = "this is the room for Command")]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Read as _, Seek as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

/// Variables of the runner's own that hold a secret, or a URL that may: no program that it starts has
/// any use for them.
const WITHHELD: [&str; 20] = [
    "PLANCHA_TOKEN",
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

/// How long output may still come after its program has ended: a daemon that it left behind may hold
/// the pipe open for ever.
const LATE_OUTPUT: Duration = Duration::from_secs(2);

/// How often a program's memory is looked at.
const SAMPLE: Duration = Duration::from_millis(200);

/// The signal that asked the runner to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGINT: a person pressed Ctrl-C.
    Interrupt,
    /// SIGTERM: whatever started the runner wants it gone. SIGHUP: its terminal is gone.
    Terminate,
}

/// Whether the runner was asked to stop. Only the first signal counts.
#[derive(Clone, Debug)]
pub(crate) struct Signals(watch::Receiver<Option<Stop>>);

impl Signals {
    /// From now on SIGINT, SIGTERM and SIGHUP no longer end the runner by themselves. A SIGHUP that is
    /// ignored (nohup) stays so.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(async move {
            let hung_up = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            let stop = tokio::select! {
                biased;
                _ = terminate.recv() => Stop::Terminate,
                _ = hung_up => Stop::Terminate,
                _ = interrupt.recv() => Stop::Interrupt,
            };
            sender.send_replace(Some(stop));
            // Kept, so that later ones go on being swallowed and waiting ones are not told twice.
            std::future::pending::<()>().await;
        });
        Ok(Self(receiver))
    }

    /// The signal that came, if one did.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        *self.0.borrow()
    }

    /// Waits for it.
    pub(crate) async fn wait(&self) -> Stop {
        match self.0.clone().wait_for(Option::is_some).await.as_deref() {
            Ok(Some(stop)) => *stop,
            // The sender never goes away before the runtime does.
            _ => std::future::pending().await,
        }
    }

    /// The future's output, or the signal that came, when it is not there `limit` after that.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        let late = async {
            let stop = self.wait().await;
            tokio::time::sleep(limit).await;
            stop
        };
        tokio::select! {
            biased;
            output = future => Ok(output),
            stop = late => Err(stop),
        }
    }

    /// The future's output, or the signal that came first.
    pub(crate) async fn or<T>(&self, future: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            stop = self.wait() => Err(stop),
            output = future => Ok(output),
        }
    }
}

/// A program to run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Its file.
    pub(crate) path: PathBuf,
    /// Its arguments, as they are.
    pub(crate) args: Vec<OsString>,
    /// Its working directory.
    pub(crate) dir: PathBuf,
    /// Variables on top of the runner's own.
    pub(crate) env: Vec<(String, OsString)>,
    /// Variables of the runner's own that it must not have.
    pub(crate) without: &'static [&'static str],
}

/// Where output goes.
#[derive(Debug)]
pub(crate) enum Sink<'a> {
    /// Both streams, in their order, to our stdout and to the log.
    Shown(&'a Log),
    /// The standard output into this file, the error output to our stderr and to the log.
    Kept(File, &'a Log),
    /// Both streams to the log alone.
    Hidden(&'a Log),
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit status.
    pub(crate) status: ExitStatus,
    /// The signal that was passed on to it while it ran.
    pub(crate) stop: Option<Stop>,
    /// Whether it had to be killed.
    pub(crate) killed: bool,
    /// How long it ran.
    pub(crate) took: Duration,
    /// The most memory that it was seen to hold, in bytes.
    pub(crate) rss_peak: Option<u64>,
}

impl Ended {
    /// The exit code; for a program that a signal ended, 128 and the signal's number, as in a shell.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

/// The log of a run: a file of mode 0600 without escape codes.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    path: PathBuf,
}

impl Log {
    /// Begins a log.
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        drop(private_file(&path)?);
        Ok(Self { path })
    }

    /// Its file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line of the runner's own.
    pub(crate) fn line(&self, text: &str) -> io::Result<()> {
        writeln!(self.append()?, "{text}")
    }

    /// What was added since it had `offset` bytes; the end of it where that is more than 64 KiB.
    pub(crate) fn since(&self, offset: u64) -> io::Result<String> {
        let mut file = fs_err::File::open(&self.path)?;
        let start = offset.max(file.metadata()?.len().saturating_sub(64 << 10));
        file.seek(io::SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn append(&self) -> io::Result<File> {
        Ok(fs_err::OpenOptions::new().append(true).open(&self.path)?.into())
    }
}

/// Makes a file of mode 0600, or empties the one that is there.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    use fs_err::os::unix::fs::OpenOptionsExt as _;
    let mut options = fs_err::OpenOptions::new();
    Ok(options.write(true).create(true).truncate(true).mode(0o600).open(path)?.into())
}

/// No program of ours writes its memory, and the secrets in it, to a core file.
pub(crate) fn forbid_core_dumps() -> io::Result<()> {
    Ok(setrlimit(Resource::RLIMIT_CORE, 0, 0)?)
}

/// Runs a program to its end. A signal to the runner becomes one SIGINT to the program's group; when
/// it has not ended `grace` after that, the group is killed.
pub(crate) async fn run(
    program: &Program,
    sink: Sink<'_>,
    signals: &Signals,
    grace: Duration,
) -> io::Result<Ended> {
    let (reader, writer) = io::pipe()?;
    let (stdout, stderr, shown, log) = match sink {
        Sink::Shown(log) => {
            (Stdio::from(writer.try_clone()?), writer, Shown::Stdout, log.append()?)
        }
        Sink::Kept(file, log) => (file.into(), writer, Shown::Stderr, log.append()?),
        Sink::Hidden(log) => {
            (Stdio::from(writer.try_clone()?), writer, Shown::Nowhere, log.append()?)
        }
    };
    let started = Instant::now();
    let peak_before = children_peak();
    let mut child = start(program, command(program).stdout(stdout).stderr(stderr)).await?;
    let output_ended = tee(reader, shown, log);
    let mut sampled = None;
    let (status, stop, killed) = wait(&mut child, signals, grace, &mut sampled).await?;
    drop(tokio::time::timeout(LATE_OUTPUT, output_ended).await);
    let peak = children_peak();
    Ok(Ended {
        status,
        stop,
        killed,
        took: started.elapsed(),
        rss_peak: if peak > peak_before { peak } else { sampled },
    })
}

async fn wait(
    child: &mut Child,
    signals: &Signals,
    grace: Duration,
    sampled: &mut Option<u64>,
) -> io::Result<(ExitStatus, Option<Stop>, bool)> {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let stop = {
        let mut sample = tokio::time::interval(SAMPLE);
        loop {
            tokio::select! {
                biased;
                status = child.wait() => return Ok((status?, None, false)),
                stop = signals.wait() => break stop,
                _ = sample.tick() => *sampled = (*sampled).max(pid.and_then(resident_peak)),
            }
        }
    };
    signal_group(pid, Signal::SIGINT)?;
    // One that asked the terminal something was stopped for it, and would not hear.
    signal_group(pid, Signal::SIGCONT)?;
    if let Ok(status) = tokio::time::timeout(grace, child.wait()).await {
        return Ok((status?, Some(stop), false));
    }
    signal_group(pid, Signal::SIGKILL)?;
    Ok((child.wait().await?, Some(stop), true))
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

fn command(program: &Program) -> Command {
    let mut command = Command::new(&program.path);
    command
        .args(&program.args)
        .current_dir(&program.dir)
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .process_group(0);
    for name in WITHHELD.iter().chain(program.without) {
        command.env_remove(name);
    }
    command
}

/// Whether SIGHUP is ignored, as nohup leaves it (proc(5), `SigIgn`; the lowest bit is signal 1).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

/// Our stream on which a program's output appears.
#[derive(Clone, Copy, Debug)]
enum Shown {
    Stdout,
    Stderr,
    Nowhere,
}

/// Copies the pipe to our stream as it comes, and to the log without escape codes, until it ends.
///
/// A thread and not a task: the runtime waits for its blocking tasks, and a daemon that the program
/// left behind may never close the pipe.
fn tee(mut pipe: PipeReader, shown: Shown, log: File) -> oneshot::Receiver<()> {
    let (done, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let mut log = anstream::StripStream::new(log);
        let (mut show, mut keep) = (true, true);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let piece = match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => &buffer[..len],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            // A reader of ours that went away, or a full disk, must not end the tool.
            show = show && write_shown(shown, piece).is_ok();
            if keep && let Err(error) = log.write_all(piece) {
                tracing::warn!("the log is cut off here: {error}");
                keep = false;
            }
        }
        drop(done);
    });
    ended
}

fn write_shown(shown: Shown, piece: &[u8]) -> io::Result<()> {
    match shown {
        Shown::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(piece)?;
            stdout.flush()
        }
        Shown::Stderr => io::stderr().lock().write_all(piece),
        Shown::Nowhere => Ok(()),
    }
}

fn signal_group(group: Option<Pid>, signal: Signal) -> io::Result<()> {
    match group.map(|group| killpg(group, signal)) {
        // The program ended just now; its status is waiting.
        None | Some(Ok(()) | Err(nix::errno::Errno::ESRCH)) => Ok(()),
        Some(Err(error)) => Err(error.into()),
    }
}

/// The high-water mark of a living process (proc(5), `VmHWM`), in bytes.
fn resident_peak(pid: Pid) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The largest high-water mark of all children that have ended, in bytes. The kernel keeps only the
/// largest, so it tells a child's own only where it grew.
fn children_peak() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    u64::try_from(usage.max_rss()).ok().map(|kibibytes| kibibytes << 10)
}

/// Runs a short question to its end and returns what it wrote; killed after ten seconds.
pub(crate) async fn output(program: &Program) -> io::Result<Output> {
    let limit = Duration::from_secs(10);
    let mut command = command(program);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = start(program, &mut command).await?;
    match tokio::time::timeout(limit, child.wait_with_output()).await {
        Ok(output) => output,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{} did not answer within 10 s", program.path.display()),
        )),
    }
}
