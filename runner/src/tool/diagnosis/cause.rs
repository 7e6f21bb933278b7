//! What the errors of a failed step mean for its run, without the errors themselves.

use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

use crate::process::Killed;
use crate::tool::diagnosis::class::Class;
use crate::tool::diagnosis::existing::ExistingObjects;
use crate::tool::diagnosis::rules;
use crate::tool::diagnosis::verdict::{Block, Verdict};

/// Why a step failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) class: Class,
    /// Whether every error is transient.
    pub(crate) is_retryable: bool,
    /// The first error of the class, on one line, and the rule that knows it.
    pub(crate) error: String,
    pub(crate) rule: Option<String>,
    /// Why the state could not be locked, if that is the failure, and it is not that another process holds the lock.
    pub(crate) lock_reason: Option<Class>,
    /// What exists although it was to be created.
    pub(crate) existing: ExistingObjects,
    /// How long the services ask to wait. Of several the longest.
    pub(crate) wait: Option<Duration>,
    /// Whether a process was killed because memory ran out.
    pub(crate) killed: Killed,
}

impl Cause {
    /// The cause that a verdict shows.
    pub(crate) fn of(verdict: &Verdict<'_>) -> Self {
        let Verdict { class, is_retryable, ref blocks, .. } = *verdict;
        let decides = blocks.iter().find(|block| block.class == class);
        Self {
            class,
            is_retryable,
            error: decides.map(|block| block.error.to_string()).unwrap_or_default(),
            rule: decides.and_then(|block| Some(block.rule?.id.clone())),
            lock_reason: decides.and_then(lock_reason),
            existing: ExistingObjects::of(verdict),
            wait: blocks.iter().filter_map(wait).max(),
            killed: Killed::Unknown,
        }
    }

    /// Says whether a process was killed because memory ran out. Then a provider that does not respond or
    /// cannot be started is a consequence, and would be one again.
    pub(crate) fn killed(&mut self, killed: Killed) {
        self.killed = killed;
        if let Killed::Yes(_) = killed {
            self.is_retryable = false;
            if matches!(self.class, Class::Transient | Class::Config) {
                (self.class, self.rule) = (Class::Unknown, None);
            }
        }
    }

    /// What a message adds if memory ran out.
    pub(crate) fn memory(&self) -> String {
        match self.killed {
            Killed::Yes(memory) => format!("; {memory}"),
            Killed::No | Killed::Unknown => String::new(),
        }
    }
}

/// Why the state could not be locked, if nothing says that another process holds the lock.
fn lock_reason(block: &Block<'_>) -> Option<Class> {
    let is_held = block.others.iter().any(|rule| rule.class == Class::Lock);
    if block.rule?.id != "state-lock" || is_held {
        return None;
    }
    let mut classes = block.others.iter().map(|rule| rule.class);
    classes.find(|class| matches!(class, Class::Auth | Class::Transient))
}

/// What says after which time a request may be repeated: the header `Retry-After`, which has seconds, or words.
static WAIT: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?ix)
        \b retry [\ -]? after ["'\]]? \ ? [:=] [\s\["']* (?<header>\d{1,9}) \b
        | \b (?: retr(?:y|ied) | try | tried | wait ) \b [^.;:]{0,60}? \b (?: in | after | for | least ) \s+
          (?<count>\d{1,9}(?:\.\d{1,9})?) \s* (?<unit> ms | milliseconds | s | secs? | seconds? | m | mins? | minutes? | h | hours? ) \b"#;
    Regex::new(pattern).expect("the pattern is valid")
});

/// How long the service asks to wait. Of several times the longest.
fn wait(block: &Block<'_>) -> Option<Duration> {
    let text = rules::text(&block.error);
    let waits = WAIT.captures_iter(&text).filter_map(|found| {
        if let Some(seconds) = found.name("header") {
            return seconds.as_str().parse().ok().map(Duration::from_secs);
        }
        let seconds = match found["unit"].to_ascii_lowercase().as_str() {
            unit if unit == "ms" || unit.starts_with("mil") => 0.001,
            unit if unit.starts_with('m') => 60.0,
            unit if unit.starts_with('h') => 3600.0,
            _ => 1.0,
        };
        Duration::try_from_secs_f64(found["count"].parse::<f64>().ok()? * seconds).ok()
    });
    waits.max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::diagnosis::rules::Rules;

    fn cause(errors: &[&str]) -> Cause {
        let rules = Rules::load(None).unwrap();
        let output = format!("Error: {}\n", errors.join("\n\n\nError: "));
        Cause::of(&Verdict::read(output.as_bytes(), &rules).unwrap())
    }

    #[test]
    fn the_time_that_a_service_asks_for_is_read() {
        for (text, milliseconds) in [
            ("RetryableError: The call can be retried in 47 seconds.", Some(47_000)),
            ("429 Too Many Requests (Retry-After: 30)", Some(30_000)),
            ("Response headers: map[Retry-After:[17] Date:[x]]", Some(17_000)),
            ("{\"retry_after\": 3}", None),
            ("{\"retry-after\": \"3\"}", Some(3_000)),
            ("Please try again in 1.5s. Contact us", Some(1_500)),
            ("Too many requests; wait at least 2 minutes before the next", Some(120_000)),
            ("please retry after 250ms", Some(250)),
            ("retry your request in 1 hour", Some(3_600_000)),
            ("503: Retry-After: Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("gave up retrying after 5 attempts", None),
            ("the request failed after 2 attempts, please try again later", None),
            ("operation did not finish in 600 seconds", None),
            ("timeout while waiting for state to become 'available' (timeout: 10m0s)", None),
            ("Retry-After: 99999999999", None),
        ] {
            let wait = cause(&[text]).wait.map(|wait| wait.as_millis());
            assert_eq!(wait, milliseconds, "{text}");
        }
    }

    #[test]
    fn of_several_errors_the_one_that_decides_is_named_and_the_longest_wait_counts() {
        let busy =
            ["429 Too Many Requests, try again in 2 seconds", "502 Bad Gateway, try again in 9 s"];
        let found = cause(&busy);
        assert!(found.is_retryable);
        assert_eq!((found.class, found.wait), (Class::Transient, Some(Duration::from_secs(9))));
        assert_eq!(found.rule.as_deref(), Some("too-many-requests"));
        assert!(found.error.starts_with("429 Too Many"), "{found:?}");
        let found = cause(&[busy[0], "reading: 403 Forbidden"]);
        assert_eq!((found.class, found.is_retryable), (Class::Auth, false));
        assert_eq!(found.rule.as_deref(), Some("http-403"));
    }
}
