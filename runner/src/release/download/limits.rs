//! How long a download may take, and how often it is retried.

use std::time::Duration;

pub(in crate::release) const MAX_REDIRECTS: usize = 10;
/// How long the first response may take if there is an alternative.
pub(in crate::release) const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// Retries after the first try, after about 0.2, 0.4 and 0.8 s.
pub(in crate::release) const RETRIES: usize = 3;
/// The longest `Retry-After` that is honoured.
pub(in crate::release) const MAX_WAIT: Duration = Duration::from_secs(20);

/// Time limits.
#[derive(Clone, Copy, Debug)]
pub(in crate::release) struct Limits {
    pub(in crate::release) connect: Duration,
    /// The longest time without a byte in a response.
    pub(in crate::release) silence: Duration,
    /// For a small file, in one try.
    pub(in crate::release) small: Duration,
    /// For an archive, in one try.
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
