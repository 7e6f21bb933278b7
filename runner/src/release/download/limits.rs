//! How long a download may take, and how often it is retried.

use std::time::Duration;

pub(in crate::release) const MAX_REDIRECTS: usize = 10;
/// How long the first answer may take where something at hand will do.
pub(in crate::release) const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// Tries after the first, with waits of about 0.2, 0.4 and 0.8 s between them.
pub(in crate::release) const RETRIES: usize = 3;
/// No server's wish to be left alone is heeded longer.
pub(in crate::release) const MAX_WAIT: Duration = Duration::from_secs(20);

/// How long anything may take.
#[derive(Clone, Copy, Debug)]
pub(in crate::release) struct Limits {
    pub(in crate::release) connect: Duration,
    /// The longest silence in the middle of an answer.
    pub(in crate::release) silence: Duration,
    /// A whole small file, in one try.
    pub(in crate::release) small: Duration,
    /// A whole archive, in one try.
    pub(in crate::release) archive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            silence: Duration::from_secs(30),
            small: Duration::from_mins(2),
            archive: Duration::from_mins(30),
        }
    }
}
