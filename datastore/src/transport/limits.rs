//! How much of anything a caller may have, and for how long.
//!
//! `docs/datastore.md` lists the defaults. No transfer has a limit on its whole duration: one that keeps moving may
//! take as long as it takes.

use std::fmt;
use std::time::Duration;

use crate::kind::Kind;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = GIB << 10;

/// Bytes that all transfers together may hold, unless somebody says otherwise.
pub(crate) const MEMORY: usize = 256 << 20;
/// Bytes of a request's head: its line and its headers.
pub(crate) const HEAD: usize = 16 << 10;
/// Bytes a second that are too few, if they are all that moves for [`RATE_WINDOW`].
pub(crate) const MIN_RATE: u64 = 16 * KIB;
/// How long a transfer is waited for, all in all, before its rate is measured.
pub(crate) const RATE_WINDOW: Duration = Duration::from_mins(1);

/// Open files that are not for connections within the limit and what they read or write.
const OTHER_FILES: usize = 192;
/// With fewer connections the service is of no use.
const FEWEST_CONNECTIONS: usize = 8;

/// How much of anything a caller may have, and for how long.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of one artifact.
    pub sizes: Sizes,
    /// Bytes that all transfers together may hold in memory. A transfer that needs more waits.
    pub memory: usize,
    /// How long it waits, before it is refused.
    pub wait: Duration,
    /// Connections; more than these wait to be accepted.
    pub connections: usize,
    /// From the first byte of a request's head to its last.
    pub head: Duration,
    /// From the end of an answer to the next request on its connection.
    pub keep_alive: Duration,
    /// In which a transfer does not move at all.
    pub idle: Duration,
}

/// Bytes that one artifact of each kind may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes([u64; Kind::ALL.len()]);

/// A number of bytes, shown as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl Default for Limits {
    fn default() -> Self {
        Self {
            sizes: Sizes::default(),
            memory: MEMORY,
            wait: Duration::from_secs(10),
            connections: 4096,
            head: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            idle: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// Lowers the limit of connections to what fits into so many open files: each may read or write one beside its
    /// socket, and some are left for the rest of the process and for the connections that answer probes.
    pub fn fit(&mut self, open_files: u64) {
        let fitting =
            usize::try_from(open_files).unwrap_or(usize::MAX).saturating_sub(OTHER_FILES) / 2;
        let fitting = fitting.max(FEWEST_CONNECTIONS);
        if fitting < self.connections {
            tracing::warn!(
                open_files,
                connections = fitting,
                "fewer connections than usual: raise the limit of open files (RLIMIT_NOFILE)"
            );
            self.connections = fitting;
        }
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self(Kind::ALL.map(|kind| match kind {
            Kind::Bin => 512 * MIB,
            Kind::Json | Kind::Pretty | Kind::Log => GIB,
            Kind::Short => MIB,
            Kind::Bundle | Kind::Artifact => 4 * GIB,
        }))
    }
}

impl Sizes {
    /// What an artifact of this kind may have.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Sets what an artifact of this kind may have.
    pub fn set(&mut self, kind: Kind, bytes: u64) {
        self.0[kind as usize] = bytes;
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{name}", self.0 / unit);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => Some(1),
            "k" | "kib" => Some(KIB),
            "m" | "mib" => Some(MIB),
            "g" | "gib" => Some(GIB),
            "t" | "tib" => Some(TIB),
            _ => None,
        };
        let number = digits.bytes().all(|c| c.is_ascii_digit()).then(|| digits.parse::<u64>().ok());
        let bytes = unit.zip(number.flatten()).and_then(|(unit, number)| number.checked_mul(unit));
        bytes.map(Self).ok_or_else(|| {
            "is no size: expected a number and B, KiB, MiB, GiB or TiB, like 512MiB".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_shown_as_it_may_be_written() {
        for (text, shown) in [
            ("0", "0B"),
            ("1", "1B"),
            ("1536", "1536B"),
            ("2k", "2KiB"),
            ("1024KiB", "1MiB"),
            ("3G", "3GiB"),
            ("1024GiB", "1TiB"),
            ("2t", "2TiB"),
        ] {
            let size = text.parse::<Size>().unwrap();
            assert_eq!(size.to_string(), shown);
            assert_eq!(shown.parse(), Ok(size));
        }
        for text in ["", "MiB", "-1", "+1", "1.5GiB", "1PiB", "1 MiB", "99999999999GiB"] {
            text.parse::<Size>().unwrap_err();
        }
    }

    #[test]
    fn the_limits_of_a_kind_are_its_own() {
        let mut sizes = Sizes::default();
        assert_eq!(
            Kind::ALL.map(|kind| Size(sizes.of(kind)).to_string()).join(" "),
            "512MiB 1GiB 1GiB 1MiB 1GiB 4GiB 4GiB"
        );
        sizes.set(Kind::Log, 5);
        assert_eq!(
            Kind::ALL.map(|kind| sizes.of(kind) == 5),
            [false, false, false, false, true, false, false]
        );
    }
}
