//! Reports panics: a line of the log, or of standard error where there is no log. A library's message may contain what it
//! was called with, so only names of errors are shown of it; of our own messages, quoted texts and URLs are not. A location
//! shows no path of the machine that built the program.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::io::{Write as _, stderr};
use std::panic::{PanicHookInfo, set_hook};
use std::thread;

use datastore_api::panics::{describe, without_build_path};

thread_local! {
    /// Whether a panic of this thread becomes an error, which is reported elsewhere.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    /// The last of those panics.
    static CAUGHT: RefCell<CaughtPanic> = const { RefCell::new(CaughtPanic::new()) };
}

/// A panic that became an error.
#[derive(Clone, Debug)]
pub(crate) struct CaughtPanic {
    /// Where it was; empty if panics are not reported.
    pub(crate) location: String,
    /// What is safe to show of its message; may be empty.
    pub(crate) message: String,
}

impl CaughtPanic {
    const fn new() -> Self {
        Self { location: String::new(), message: String::new() }
    }
}

/// Reports panics from now on. Without a log, those that become an error are not reported twice.
pub fn report_panics(has_log: bool) {
    set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let location = without_build_path(&location);
        if IS_CAUGHT.get() {
            let message = safe_message(panic.payload());
            if has_log {
                tracing::warn!(location, text = message, "a library panicked: its call failed");
            }
            CAUGHT.set(CaughtPanic { location: location.to_owned(), message });
        } else {
            report(has_log, location, &describe(panic.payload()));
        }
    }));
}

/// Reports a panic of our own. The backtrace is empty unless `RUST_BACKTRACE` demands one.
fn report(has_log: bool, location: &str, text: &str) {
    let current = thread::current();
    let thread = current.name().unwrap_or("unnamed");
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => Some(backtrace.to_string()),
        _ => None,
    };
    if has_log {
        tracing::error!(location, thread, text, backtrace, "panicked: please report this");
        return;
    }
    let backtrace = backtrace.unwrap_or_default();
    // Without standard error nothing is left to report it.
    let _printed = write!(
        stderr(),
        "error: thread {thread} panicked at {location}: {text}\nhint: please report this\n{backtrace}"
    );
}

/// Runs `work`, whose panic the caller turns into an error.
pub(crate) fn catching<T>(work: impl FnOnce() -> T) -> T {
    let _reset = Reset(IS_CAUGHT.replace(true));
    work()
}

/// The last panic within [`catching`] of this thread.
pub(crate) fn last_caught() -> CaughtPanic {
    CAUGHT.replace(CaughtPanic::new())
}

/// The message of a library's panic as far as it cannot contain a secret: a literal, or the names of the errors that an
/// `unwrap` or `expect` has shown.
fn safe_message(panic: &(dyn Any + Send)) -> String {
    if let Some(literal) = panic.downcast_ref::<&'static str>() {
        return (*literal).to_owned();
    }
    let text = describe(panic);
    let shown = text.split_once(": ").map(|(_, shown)| shown).unwrap_or_default();
    let is_separator = |c: char| c.is_whitespace() || "(){}[],".contains(c);
    let is_error = |word: &&str| {
        (word.starts_with("Invalid") || word.ends_with("Error"))
            && word.bytes().all(|c| c.is_ascii_alphabetic() || c == b':')
    };
    let errors = shown.split(is_separator).filter(is_error).collect::<Vec<_>>();
    if errors.is_empty() {
        return "its message is not shown, because it may contain a secret".to_owned();
    }
    errors.join(" ")
}

struct Reset(bool);

impl Drop for Reset {
    fn drop(&mut self) {
        IS_CAUGHT.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn of_a_message_of_a_library_only_names_of_errors_are_shown() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "only shown")]
        struct InvalidToken {
            text: &'static str,
            bytes: Vec<u8>,
        }
        let of = |work: fn()| safe_message(&*catch_unwind(work).unwrap_err());
        let error = of(|| {
            let token = || InvalidToken { text: "Hush", bytes: b"hush".to_vec() };
            let parsed: Result<(), _> = std::hint::black_box(Err(token()));
            parsed.unwrap();
        });
        assert_eq!(error, "InvalidToken");
        let header = of(|| drop(axum::http::HeaderValue::from_str("hush\n").unwrap()));
        assert_eq!(header, "InvalidHeaderValue");
        assert_eq!(of(|| panic!("a literal")), "a literal");
        let unknown = of(|| panic!("no {}", "hush".to_owned()));
        assert_eq!(unknown, "its message is not shown, because it may contain a secret");
    }
}
