//! Workflow commands of GitHub Actions. GitHub runs lines of a job's output that begin with `::`, and text of others must
//! not be such a line.
//!
//! What is shown on stdout is between `::stop-commands::TOKEN` and `::TOKEN::`, with a random token.
//! GitHub reads stderr as well, and in no fixed order with stdout: the runner's own lines there are changed where they
//! could be a command ([`defused`]). A runner that is killed leaves commands stopped until its step ends.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// How long the end waits for a slow reader of stdout. Without it, commands stay stopped.
const UNREAD: Duration = Duration::from_secs(2);

/// What stdout has of the commands.
#[derive(Debug)]
enum State {
    /// Not in a job of GitHub, or stdout goes to a file.
    Unused,
    /// Nothing was shown yet.
    Ready { token: String },
    /// Commands are stopped.
    Stopped { token: String, ends_line: bool },
    /// Nothing is shown any more.
    Ended,
}

static STATE: Mutex<State> = Mutex::new(State::Unused);
/// Whether the state is in use, and has ended. The state itself is locked as long as a reader of stdout does not read.
static USED: AtomicBool = AtomicBool::new(false);
static ENDED: AtomicBool = AtomicBool::new(false);

/// From now on commands are stopped before anything is shown. Call it in a job of GitHub only.
pub(crate) fn stop_commands() -> io::Result<()> {
    // A file has no reader that runs commands.
    if is_file() {
        return Ok(());
    }
    *state() = State::Ready { token: token()? };
    USED.store(true, Ordering::Release);
    Ok(())
}

/// Whether stdout is in a job of GitHub. Then everything is shown there, because only one stream has an order.
pub(crate) fn is_used() -> bool {
    USED.load(Ordering::Acquire)
}

/// Writes a piece of output to stdout.
pub(crate) fn show(piece: &[u8]) -> io::Result<()> {
    let mut state = state();
    let mut stdout = io::stdout().lock();
    state.show(piece, &mut stdout)?;
    stdout.flush()
}

/// Ends the output, and lets GitHub run commands again: first the one in `command`. A thread that still shows output
/// shows no more of it.
pub(crate) fn end(command: Option<String>) {
    if !is_used() || ENDED.swap(true, Ordering::AcqRel) {
        return;
    }
    let (sender, receiver) = mpsc::channel();
    // Stdout may block forever.
    let started = thread::Builder::new().spawn(move || {
        let mut state = state();
        let mut stdout = io::stdout().lock();
        let ended = state.end(command.as_deref(), &mut stdout).and_then(|()| stdout.flush());
        drop(sender.send(ended));
    });
    if started.is_ok() {
        // An error means that the reader is gone.
        let _ended = receiver.recv_timeout(UNREAD).is_ok();
    }
}

impl State {
    fn show(&mut self, piece: &[u8], stdout: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Unused => {}
            Self::Ready { token } => {
                // What came before may have ended without a newline.
                stdout.write_all(format!("\n::stop-commands::{token}\n").as_bytes())?;
                let token = std::mem::take(token);
                *self = Self::Stopped { token, ends_line: piece.ends_with(b"\n") };
            }
            Self::Stopped { ends_line, .. } => *ends_line = piece.ends_with(b"\n"),
            Self::Ended => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        stdout.write_all(piece)
    }

    fn end(&mut self, command: Option<&str>, stdout: &mut impl Write) -> io::Result<()> {
        let before = match std::mem::replace(self, Self::Ended) {
            Self::Unused | Self::Ended => return Ok(()),
            Self::Ready { .. } => "\n".to_owned(),
            Self::Stopped { token, ends_line: true } => format!("::{token}::\n"),
            Self::Stopped { token, ends_line: false } => format!("\n::{token}::\n"),
        };
        match command {
            Some(command) => stdout.write_all(format!("{before}{command}\n").as_bytes()),
            None if before == "\n" => Ok(()),
            None => stdout.write_all(before.as_bytes()),
        }
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_file() -> bool {
    nix::sys::stat::fstat(io::stdout()).is_ok_and(|stat| {
        let kind = nix::sys::stat::SFlag::from_bits_truncate(stat.st_mode);
        kind & nix::sys::stat::SFlag::S_IFMT == nix::sys::stat::SFlag::S_IFREG
    })
}

/// 128 random bits.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("plancha-{:032x}", u128::from_ne_bytes(bytes)))
}

/// The command that shows an error, at a place in a file of the repository if that is known.
pub(crate) fn error(title: &str, place: Option<(&str, Option<u32>)>, text: &str) -> String {
    let mut properties = Vec::new();
    if let Some((file, line)) = place {
        properties.push(format!("file={}", escaped_property(file)));
        properties.extend(line.map(|line| format!("line={line}")));
    }
    properties.push(format!("title={}", escaped_property(title)));
    format!("::error {}::{}", properties.join(","), escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn escaped_property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

/// Lines of which none is a command: neither `::name::` at the start of a line, nor the older `##[name]` anywhere.
pub(crate) fn defused(lines: &str) -> String {
    let mut text = String::with_capacity(lines.len());
    for line in lines.replace("##[", "## [").split_inclusive(['\n', '\r']) {
        let start = line.trim_start_matches(|c: char| c.is_whitespace() || c.is_control());
        match start.strip_prefix("::") {
            Some(rest) => {
                text.push_str(&line[..line.len() - start.len()]);
                text.push_str(": :");
                text.push_str(rest);
            }
            None => text.push_str(line),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> State {
        State::Ready { token: "t".to_owned() }
    }

    #[test]
    fn output_stands_between_stop_and_resume() {
        for (pieces, shown) in [
            (
                &["a\n", "::error::x\n"][..],
                "\n::stop-commands::t\na\n::error::x\n::t::\n::error::y\n",
            ),
            (&["a"], "\n::stop-commands::t\na\n::t::\n::error::y\n"),
            (&[], "\n::error::y\n"),
        ] {
            let (mut state, mut stdout) = (ready(), Vec::new());
            for piece in pieces {
                state.show(piece.as_bytes(), &mut stdout).unwrap();
            }
            state.end(Some("::error::y"), &mut stdout).unwrap();
            state.show(b"::late::\n", &mut stdout).unwrap_err();
            state.end(Some("::error::twice"), &mut stdout).unwrap();
            assert_eq!(String::from_utf8(stdout).unwrap(), shown);
        }
    }

    #[test]
    fn nothing_is_added_without_output_and_error_or_outside_of_github() {
        let (mut state, mut stdout) = (ready(), Vec::new());
        state.end(None, &mut stdout).unwrap();
        assert_eq!(stdout, b"");
        let mut state = State::Unused;
        state.show(b"a", &mut stdout).unwrap();
        state.end(Some("::error::y"), &mut stdout).unwrap();
        assert_eq!(stdout, b"a");
    }

    #[test]
    fn tokens_differ_and_are_long() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert!(one != other && one.len() == 40, "{one} {other}");
    }

    #[test]
    fn an_error_is_one_line_whatever_it_contains() {
        let place = Some(("a,b:c\n.tf", Some(3)));
        assert_eq!(
            error("plan: x", place, "100 %\r\n::set-output name=a::b"),
            "::error file=a%2Cb%3Ac%0A.tf,line=3,title=plan%3A x::100 %25%0D%0A::set-output name=a::b"
        );
        assert_eq!(error("t", None, "x"), "::error title=t::x");
    }

    #[test]
    fn defused_lines_are_no_commands() {
        for (line, expected) in [
            ("ERROR a::b\n", "ERROR a::b\n"),
            ("ERROR a\n  ::error::b\n", "ERROR a\n  : :error::b\n"),
            ("a\r\u{a0}::error::b", "a\r\u{a0}: :error::b"),
            (":::a::\n", ": ::a::\n"),
            ("x ##[error]b\n::a::\n", "x ## [error]b\n: :a::\n"),
            ("{\"message\":\"##[group]\"}\n", "{\"message\":\"## [group]\"}\n"),
        ] {
            assert_eq!(defused(line), expected);
        }
    }
}
