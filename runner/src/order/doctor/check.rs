//! One check, and how it is shown.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::process::text::one_line;

/// How long a check may take.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warn,
    Fail,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    name: &'static str,
    level: Level,
    text: String,
    hint: Option<String>,
    /// The exit code, if it failed.
    exit: Option<u8>,
}

impl Check {
    pub(super) fn ok(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, level: Level::Ok, text: text.into(), hint: None, exit: None }
    }

    pub(super) fn warn(name: &'static str, text: impl Into<String>, hint: &str) -> Self {
        let hint = Some(hint.to_owned());
        Self { name, level: Level::Warn, text: text.into(), hint, exit: None }
    }

    /// A check that failed: a run would end with this exit code.
    pub(super) fn fail(name: &'static str, exit: u8, text: impl Into<String>, hint: &str) -> Self {
        let hint = Some(hint.to_owned());
        Self { name, level: Level::Fail, text: text.into(), hint, exit: Some(exit) }
    }

    /// The exit code, if it failed.
    pub(super) fn failed(&self) -> Option<u8> {
        self.exit
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        writeln!(f, "{level:<4} {}: {}", self.name, one_line(&self.text))?;
        match &self.hint {
            Some(hint) => writeln!(f, "     next: {}", one_line(hint)),
            None => Ok(()),
        }
    }
}

/// The output of the future, if it does not take too long.
pub(super) async fn limited<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let limited = tokio::time::timeout(LIMIT, future).await;
    limited.map_err(|_| format!("no answer within {} s", LIMIT.as_secs()))
}
