//! The output of programs: a private file that a program writes, and the log of the run.
//!
//! A program does not write to a pipe of the runner: if the runner were killed, SIGPIPE would end the tool before it has
//! saved its state. It appends to a private file instead. Two threads follow that file: one copies it to the log, the
//! other to the runner's stdout. Tools ignore a full disk, so disk space is reserved ahead of the output, and output
//! that may be lost is an error. The log has no escape codes. Neither the log nor what is shown has secrets: those of URLs, and
//! those that are known by their value ([`redact`](crate::process::redact)).

mod plain;

use std::cell::RefCell;
use std::fs::{File, TryLockError};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use fs_err as fs;
use nix::errno::Errno;
use tokio::sync::oneshot;

use crate::process::github;
use crate::process::label;
use crate::process::log::plain::Plain;
use crate::process::redact::{Redaction, Stream};
use crate::process::url_secrets::{self, Masking, Parameters};

/// The disk space that is reserved ahead of a program's output, in bytes.
const RESERVE: u64 = 1 << 20;
/// The interval between reads of a file that grows, and of one that does not. Output is shown within 100 ms.
const BUSY: Duration = Duration::from_millis(10);
const IDLE: Duration = Duration::from_millis(60);

/// The log of a run: a file with mode 0600 and without escape codes.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    path: PathBuf,
    /// Held by the thread that shows a program's output, so that outputs are shown one after the other.
    showing: Arc<Mutex<()>>,
    redaction: Redaction,
    /// How many secrets were known at first.
    known: usize,
}

/// Where a program's output is shown, in addition to the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum Screen {
    Stdout,
    Stderr,
    Nowhere,
}

impl Log {
    /// Creates an empty log, in which these secrets are masked.
    pub(crate) fn create(path: PathBuf, redaction: &Redaction) -> io::Result<Self> {
        drop(private_file(&path)?);
        let (redaction, known) = (redaction.clone(), redaction.count());
        Ok(Self { path, showing: Arc::default(), redaction, known })
    }

    /// Masks the secrets that only became known while the log was written.
    pub(crate) fn mask_again(&self) -> io::Result<()> {
        if self.redaction.count() == self.known {
            return Ok(());
        }
        self.redaction.mask_in_place(&self.path).inspect_err(|error| {
            if let Err(second) = mark_incomplete(&self.path, error) {
                tracing::warn!("the log cannot be marked as incomplete: {second}");
            }
        })
    }

    /// Its file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file beside a log that the programs of the run write to. It is locked while one runs, even if the runner was
    /// killed.
    pub(crate) fn output_of(log: &Path) -> PathBuf {
        log.with_extension("output")
    }

    /// Removes the output of the last program, which stays if the program failed.
    pub(crate) fn remove_output(&self) {
        match fs::remove_file(Self::output_of(&self.path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => tracing::debug!("{error}"),
            _ => {}
        }
    }

    /// Adds a line of the runner.
    pub(crate) fn line(&self, text: &str) -> io::Result<()> {
        let text = url_secrets::masked(&self.redaction.text(text), Parameters::Secret);
        let written =
            self.append().and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()));
        written.map_err(|error| named(&self.path, &error))
    }

    /// The text after the first `offset` bytes; only its end, if it has more than 64 KiB.
    pub(crate) fn since(&self, offset: u64) -> io::Result<String> {
        let file = fs::File::open(&self.path)?;
        let len = file.metadata()?.len();
        let start = offset.max(len.saturating_sub(64 << 10)).min(len);
        let mut bytes = vec![0; usize::try_from(len - start).unwrap_or_default()];
        file.file().read_exact_at(&mut bytes, start)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A reader of everything after the first `offset` bytes.
    pub(crate) fn reader(&self, offset: u64) -> io::Result<impl io::BufRead + use<>> {
        let mut file = fs::File::open(&self.path)?;
        file.seek(io::SeekFrom::Start(offset))?;
        Ok(io::BufReader::new(file))
    }

    fn append(&self) -> io::Result<File> {
        Ok(fs::OpenOptions::new().append(true).open(&self.path)?.into())
    }

    /// Starts to follow a program's output.
    pub(super) fn follow(&self, output: &OutputFile, screen: Screen) -> io::Result<Following> {
        let shared = Arc::new(Shared::default());
        let copy = Copy { log: self.clone(), room: output.room, source: output.source(&shared)? };
        let (kept, keep) = spawn(move || copy.run())?;
        let mut following = Following { shared, threads: vec![keep], kept, shown: None };
        if !matches!(screen, Screen::Nowhere) {
            let source = output.source(&following.shared)?;
            let (showing, secrets) = (Arc::clone(&self.showing), self.redaction.stream());
            let screen = Labelled { screen, lines: label::Lines::of_current(), out: Vec::new() };
            let (shown, show) = spawn(move || {
                let _turn = showing.lock().unwrap_or_else(PoisonError::into_inner);
                show_all(source, secrets, screen);
            })?;
            following.threads.push(show);
            following.shown = Some(shown);
        }
        Ok(following)
    }
}

/// Creates a file with mode 0600, or truncates the existing one.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    use fs_err::os::unix::fs::OpenOptionsExt as _;
    let mut options = fs::OpenOptions::new();
    Ok(options.write(true).create(true).truncate(true).mode(0o600).open(path)?.into())
}

/// The private file that one program writes. It is removed when the value is dropped, unless it is kept.
#[derive(Debug)]
pub(super) struct OutputFile {
    file: File,
    path: PathBuf,
    room: Room,
    is_kept: bool,
}

impl OutputFile {
    /// A new file beside a log, with disk space reserved.
    pub(super) fn create(log: &Log) -> io::Result<Self> {
        use fs_err::os::unix::fs::OpenOptionsExt as _;
        let path = Log::output_of(&log.path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = fs::OpenOptions::new();
        let file = options.create_new(true).read(true).append(true).mode(0o600).open(&path)?;
        let mut output = Self { file: file.into(), path, room: Room::default(), is_kept: false };
        // The program inherits the lock. While it runs, other runners do not remove the directory as abandoned. On a file
        // system without locks, they never remove one.
        if let Err(TryLockError::Error(error)) = output.file.try_lock() {
            tracing::debug!("{}: {error}", output.path.display());
        }
        output.room.extend(&output.file, 0).map_err(|error| named(&output.path, &error))?;
        Ok(output)
    }

    /// Leaves the file where it is: until the next program, or [`Log::remove_output`].
    pub(super) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Whether terraform or tofu has printed at its end that it was interrupted, also below terragrunt.
    pub(super) fn reports_interrupt(&self) -> io::Result<bool> {
        let start = self.file.metadata()?.len().saturating_sub(64 << 10);
        let mut end = vec![0; 64 << 10];
        let read = self.file.read_at(&mut end, start)?;
        let text = String::from_utf8_lossy(&end[..read]);
        let is_report = |line: &str| {
            // With `-json`, where a provisioner's output is of another type.
            if line.starts_with('{') {
                return line.contains("Interrupt received.\\n") && !line.contains("\"provision_");
            }
            let line = anstream::adapter::strip_str(line).to_string();
            let prefix = line.trim_end().strip_suffix("Interrupt received.");
            // What a provisioner prints has a prefix as well.
            prefix.is_some_and(|prefix| {
                prefix.is_empty() || ["terraform: ", "tofu: "].iter().any(|of| prefix.ends_with(of))
            })
        };
        Ok(text.lines().any(is_report))
    }

    /// The file as a program's stdout or stderr.
    pub(super) fn stdio(&self) -> io::Result<Stdio> {
        Ok(self.file.try_clone()?.into())
    }

    fn source(&self, shared: &Arc<Shared>) -> io::Result<Source> {
        let file = self.file.try_clone()?;
        Ok(Source { file, offset: 0, shared: Arc::clone(shared), buffer: vec![0; 64 << 10] })
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!("{error}");
        }
    }
}

/// The disk space that is reserved for a file that grows.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// The space below this offset is reserved.
    until: u64,
    /// The error of the last attempt to reserve more.
    refused: Option<Errno>,
    /// The file system cannot reserve.
    unsupported: bool,
}

impl Room {
    /// Reserves more if the file's length `len` comes close to the end of the reserved space. An error means that output
    /// beyond that end may be lost.
    fn extend(&mut self, file: &File, len: u64) -> io::Result<()> {
        if self.unsupported || len + RESERVE / 2 < self.until {
            return Ok(());
        }
        if let Some(refused) = self.refused.take()
            && len >= self.until
        {
            return Err(refused.into());
        }
        let from = self.until.max(len);
        match reserve(file, from, RESERVE) {
            Ok(()) => self.until = from + RESERVE,
            Err(full @ (Errno::ENOSPC | Errno::EDQUOT)) if len >= self.until => {
                return Err(full.into());
            }
            Err(full @ (Errno::ENOSPC | Errno::EDQUOT)) => self.refused = Some(full),
            Err(Errno::EINTR) => {}
            Err(_) => self.unsupported = true,
        }
        Ok(())
    }
}

/// Reserves disk space for a file without changing its length.
#[cfg(target_os = "linux")]
fn reserve(file: &File, from: u64, len: u64) -> Result<(), Errno> {
    use nix::fcntl::{FallocateFlags, fallocate};
    let (from, len) = (from.cast_signed(), len.cast_signed());
    fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, from, len)
}

#[cfg(not(target_os = "linux"))]
fn reserve(_file: &File, _from: u64, _len: u64) -> Result<(), Errno> {
    Err(Errno::EOPNOTSUPP)
}

/// The state that is shared by the threads that follow one output.
#[derive(Debug, Default)]
struct Shared {
    ended: AtomicBool,
    /// The number of bytes that were shown.
    shown: AtomicU64,
}

/// An output file, read as it grows.
#[derive(Debug)]
struct Source {
    file: File,
    offset: u64,
    shared: Arc<Shared>,
    buffer: Vec<u8>,
}

impl Source {
    /// Passes new output to `piece`, and the file's length to `tick` after each round, until the program has ended and
    /// everything was passed on.
    fn follow(
        &mut self,
        mut piece: impl FnMut(&[u8]) -> io::Result<()>,
        mut tick: impl FnMut(&File, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut pause = BUSY;
        loop {
            // `ended` is read first: the length then includes everything that the program wrote. A daemon of the program
            // may go on writing forever.
            let ended = self.shared.ended.load(Ordering::Acquire);
            let len = self.file.metadata()?.len();
            pause = if self.offset < len { BUSY } else { IDLE.min(pause * 2) };
            while self.offset < len {
                match self.file.read_at(&mut self.buffer, self.offset) {
                    Ok(0) => break,
                    Ok(count) => {
                        self.offset += count as u64;
                        piece(&self.buffer[..count])?;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            tick(&self.file, len)?;
            if ended {
                return Ok(());
            }
            thread::park_timeout(pause);
        }
    }
}

/// Copies an output to the log.
struct Copy {
    log: Log,
    room: Room,
    source: Source,
}

impl Copy {
    fn run(mut self) -> io::Result<()> {
        let mut log = Plain::new(self.log.append()?, self.log.redaction.stream());
        let mut room = self.room;
        let copied = self
            .source
            .follow(|piece| log.write_all(piece), |file, len| room.extend(file, len))
            .and_then(|()| log.finish());
        copied.map_err(|error| {
            let error = named(&self.log.path, &error);
            if let Err(second) = mark_incomplete(&self.log.path, &error) {
                tracing::warn!("the log cannot be marked as incomplete: {second}");
            }
            error
        })
    }
}

/// Marks a log as incomplete at its end. On a full disk nothing can be appended, so the last bytes are overwritten.
fn mark_incomplete(log: &Path, error: &io::Error) -> io::Result<()> {
    let mark = format!("\n[the log is incomplete from here on: {error}]\n");
    let mut file = fs::OpenOptions::new().write(true).open(log)?;
    let len = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(len.saturating_sub(mark.len() as u64)))?;
    file.write_all(mark.as_bytes())
}

/// Shows an output without its secrets. A write that fails, such as to a closed terminal, is no error of the run.
fn show_all(mut source: Source, mut secrets: Stream, screen: Labelled) {
    let shared = Arc::clone(&source.shared);
    let (mut masked, urls) = (Vec::new(), RefCell::new(Masking::new(screen)));
    let show = |piece: &[u8]| {
        masked.clear();
        secrets.push(piece, &mut masked);
        urls.borrow_mut().write_all(&masked)?;
        shared.shown.fetch_add(piece.len() as u64, Ordering::Relaxed);
        Ok(())
    };
    let shown = source.follow(show, |_, _| urls.borrow_mut().release()).and_then(|()| {
        let (mut masked, mut urls) = (Vec::new(), urls.into_inner());
        secrets.finish(&mut masked);
        urls.write_all(&masked)?;
        urls.finish()?.finish()
    });
    if let Err(error) = shown {
        tracing::debug!("the output cannot be shown: {error}");
    }
}

/// A screen whose lines begin with the label of a layer, if there is one.
struct Labelled {
    screen: Screen,
    lines: label::Lines,
    out: Vec<u8>,
}

impl Labelled {
    /// Shows the rest of a line that has not ended.
    fn finish(mut self) -> io::Result<()> {
        let rest = self.lines.finish();
        self.screen.write_all(&rest)
    }
}

impl io::Write for Labelled {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let Self { screen, lines, out } = self;
        screen.write_all(lines.push(piece, out))?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Write for Screen {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout => github::show(piece)?,
            Self::Stderr if github::is_used() => github::show(piece)?,
            Self::Stderr => io::stderr().lock().write_all(piece)?,
            Self::Nowhere => {}
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The threads that follow one output.
#[derive(Debug)]
pub(super) struct Following {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    kept: oneshot::Receiver<io::Result<()>>,
    shown: Option<oneshot::Receiver<()>>,
}

impl Following {
    /// Waits until the log has all of the output, and until it is shown. A reader of stdout that reads nothing for
    /// `unread` is not waited for. An error means that the log is incomplete.
    pub(super) async fn finish(mut self, unread: Duration) -> io::Result<()> {
        self.end();
        let kept = (&mut self.kept).await;
        while let Some(shown) = &mut self.shown {
            let before = self.shared.shown.load(Ordering::Relaxed);
            let shown = tokio::time::timeout(unread, shown).await;
            if shown.is_ok() || self.shared.shown.load(Ordering::Relaxed) == before {
                break;
            }
        }
        kept.unwrap_or_else(|_| Err(io::Error::other("the thread that writes the log ended early")))
    }

    fn end(&self) {
        self.shared.ended.store(true, Ordering::Release);
        self.threads.iter().for_each(Thread::unpark);
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts a thread, not a task: the runtime waits for its blocking tasks when it ends, and stdout may block forever.
fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<(oneshot::Receiver<T>, Thread)> {
    let (sender, receiver) = oneshot::channel();
    let thread = thread::Builder::new().spawn(move || drop(sender.send(work())))?;
    Ok((receiver, thread.thread().clone()))
}

/// The error with the path of its file.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
