//! What keeps a plan from being applied as the rest of a reviewed one.

use std::fmt;

/// A message names at most this many differences.
const MAX_DIFFERENCES: usize = 20;

/// A new plan that is no remainder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    named: Vec<String>,
    more: usize,
}

impl Differences {
    pub(super) fn add(&mut self, what: &str, difference: &str) {
        if self.named.len() < MAX_DIFFERENCES {
            self.named.push(format!("{what} {difference}"));
        } else {
            self.more += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named.join("; "))?;
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
