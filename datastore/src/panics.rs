//! Reports panics: a line of the log, or of standard error where there is no log. A library's message may contain what it
//! was called with, so it is not shown; of our own messages, quoted texts and URLs are not.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::io::{Write as _, stderr};
use std::panic::{PanicHookInfo, set_hook};
use std::thread;

/// The most characters of a message.
const MAX_MESSAGE: usize = 300;

thread_local! {
    /// Whether a panic of this thread becomes an error, which is reported elsewhere.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    /// Where the last of those panics was.
    static LOCATION: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Reports panics from now on. Without a log, those that become an error are not reported twice.
pub fn report_panics(has_log: bool) {
    set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        if IS_CAUGHT.get() {
            if has_log {
                tracing::warn!(location, "a library panicked: its call failed");
            }
            LOCATION.set(location);
        } else {
            report(has_log, &location, &describe(panic.payload()));
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

/// Where the last panic within [`catching`] of this thread was; empty if panics are not reported.
pub(crate) fn caught_location() -> String {
    LOCATION.take()
}

struct Reset(bool);

impl Drop for Reset {
    fn drop(&mut self) {
        IS_CAUGHT.set(self.0);
    }
}

/// The message of a panic without quoted texts and URLs.
fn describe(panic: &(dyn Any + Send)) -> String {
    if let Some(literal) = panic.downcast_ref::<&'static str>() {
        return (*literal).to_owned();
    }
    let Some(text) = panic.downcast_ref::<String>() else { return "unknown".to_owned() };
    let mut shown = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        shown.push(character);
        if character == '"' {
            while let Some(hidden) = characters.next().filter(|hidden| *hidden != '"') {
                if hidden == '\\' {
                    characters.next();
                }
            }
            shown.push_str("...\"");
        }
    }
    let words = shown.split_whitespace();
    let words = words.map(|word| if word.contains("://") { "<URL>" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_message_shows_neither_quoted_texts_nor_urls() {
        let of = |work: fn()| describe(&*catch_unwind(work).unwrap_err());
        assert_eq!(of(|| panic!("a \"literal\"")), "a \"literal\"");
        let secret = of(|| {
            let failed = "x".parse::<u8>().map_err(|_| ("hu\"sh\n", 'x'));
            failed.unwrap();
        });
        assert_eq!(secret, "called `Result::unwrap()` on an `Err` value: (\"...\", 'x')");
        let url = of(|| panic!("no {} with {}", "s3://user:hush@host".to_owned(), 7));
        assert_eq!(url, "no <URL> with 7");
        let long = of(|| panic!("{}", "x".repeat(1000)));
        assert_eq!(long.len(), MAX_MESSAGE);
    }
}
