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
    /// `transient` only if every error is.
    pub(crate) class: Class,
    /// Whether every error is transient, and known completely.
    pub(crate) is_retryable: bool,
    /// The first error of the class, on one line, and the rule that knows it.
    pub(crate) error: String,
    pub(crate) rule: Option<String>,
    /// Whether bytes, a plan or a state do not match. Such errors are of the class `config`, too.
    pub(crate) is_integrity: bool,
    /// Why the state could not be locked, if that is the failure, and it is not that another process holds the lock.
    pub(crate) lock_reason: Option<Class>,
    /// What exists although it was to be created.
    pub(crate) existing: ExistingObjects,
    /// How long the services ask to wait. Of several the longest.
    pub(crate) wait: Option<Duration>,
    /// Whether a process was killed because memory ran out.
    pub(crate) killed: Killed,
    /// How many of the errors are transient, and how many there are.
    pub(crate) transient: (u64, u64),
    /// Whether an error has more text than is kept.
    pub(crate) is_cut: bool,
}

impl Cause {
    /// The cause that a verdict shows.
    pub(crate) fn of(verdict: &Verdict<'_>) -> Self {
        let Verdict { is_retryable, ref blocks, .. } = *verdict;
        let class = verdict.deciding();
        let decides = blocks.iter().find(|block| block.class == class);
        let rule = decides.and_then(|block| block.rule);
        Self {
            class,
            is_retryable,
            error: decides.map(|block| block.error.to_string()).unwrap_or_default(),
            rule: rule.map(|rule| rule.id.clone()),
            is_integrity: rule.is_some_and(|rule| {
                rule.is_builtin("integrity-checksum") || rule.is_builtin("integrity-state")
            }),
            lock_reason: decides.and_then(Block::lock_reason).map(|rule| rule.class),
            existing: ExistingObjects::of(verdict),
            wait: blocks.iter().filter_map(wait).max(),
            killed: Killed::Unknown,
            transient: (verdict.count() - verdict.stopping(), verdict.count()),
            is_cut: verdict.is_cut,
        }
    }

    /// Says whether a process was killed because memory ran out. Then a provider that does not respond or
    /// cannot be started is a consequence, and would be one again.
    pub(crate) fn killed(&mut self, killed: Killed) {
        self.killed = killed;
        if let Killed::Yes(_) = killed {
            self.is_retryable = false;
            if matches!(self.class, Class::Transient | Class::Config) {
                (self.class, self.rule, self.is_integrity) = (Class::Unknown, None, false);
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

impl Cause {
    /// Why the step is not run again although some of its errors, or all of them, are transient.
    pub(crate) fn refusal(&self) -> Option<String> {
        let (transient, count) = self.transient;
        let rule = self.rule.as_deref().unwrap_or("no rule");
        let Self { class, error, .. } = self;
        if transient == 0 || transient == count {
            return (transient > 0 && self.is_cut).then(|| {
                format!(
                    "the text of an error is longer than what is kept, and the rest may be another error: {class} ({rule}): \
                     {error}"
                )
            });
        }
        Some(format!(
            "{transient} of {count} errors are transient, but not this one: {class} ({rule}): {error}"
        ))
    }
}

/// What says after which time a request may be repeated: the header `Retry-After`, which has seconds, or words.
static WAIT: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?ix)
        \b retry [\ -]? after ["'\]]? \ ? [:=] [\s\["']* (?<header>\d{1,9}) \b
        | \b (?: retryDelay ["\s\\]* [:=] [\s\\"]* | rate \ reset \ in \ ) (?<go>(?:\d{1,9}(?:\.\d{1,9})?[hms])+)
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
        if let Some(duration) = found.name("go") {
            return go_duration(duration.as_str());
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

/// A duration as Go writes it: `1h31m21s`.
fn go_duration(text: &str) -> Option<Duration> {
    let parts = text.split_inclusive(|c: char| c.is_ascii_alphabetic());
    let seconds = parts.map(|part| {
        let (number, unit) = part.split_at(part.len() - 1);
        let unit = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            _ => 1.0,
        };
        Some(number.parse::<f64>().ok()? * unit)
    });
    Duration::try_from_secs_f64(seconds.sum::<Option<f64>>()?).ok()
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
            ("403 API rate limit still exceeded. [rate reset in 31m21s]", Some(1_881_000)),
            ("429. [rate reset in 1h0m1.5s]", Some(3_601_500)),
            ("403 rate limit. [rate limit was reset 3s ago]", None),
            ("{\"@type\": \"RetryInfo\", \"retryDelay\": \"86401s\"}", Some(86_401_000)),
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
        assert_eq!(
            found.refusal().unwrap(),
            "1 of 2 errors are transient, but not this one: auth (http-403): reading: 403 Forbidden"
        );
    }

    /// `classify` names the class that comes first in its table. What a run does is another question.
    #[test]
    fn an_unknown_error_beside_a_transient_one_decides() {
        let found = cause(&["503 Service Unavailable", "the frobnicator is out of blue"]);
        assert_eq!((found.class, found.is_retryable), (Class::Unknown, false));
        assert_eq!(found.error, "the frobnicator is out of blue");
        assert!(found.refusal().unwrap().contains("unknown (no rule): the frobnicator"));
        for one in ["503 Service Unavailable", "the frobnicator is out of blue"] {
            assert_eq!(cause(&[one]).refusal(), None);
        }
    }
}
