//! The limits of requests and connections.
//!
//! `docs/datastore.md` lists the defaults. The total duration of a transfer is not limited, as long as it makes progress.

use std::fmt;
use std::time::Duration;

use crate::kind::Kind;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = GIB << 10;

/// The default of [`Limits::memory`].
pub(crate) const MEMORY: usize = 256 << 20;
/// The maximum size of the head of a request: its line and headers.
pub(crate) const HEAD: usize = 16 << 10;
/// The minimum rate of a transfer, in bytes a second, measured over [`RATE_WINDOW`].
pub(crate) const MIN_RATE: u64 = 16 * KIB;
/// How long we wait for the other side, in total, before a rate is measured.
pub(crate) const RATE_WINDOW: Duration = Duration::from_mins(1);

/// Open files that are reserved for other purposes than connections within the limit.
const OTHER_FILES: usize = 192;
/// The minimum of [`Limits::connections`].
const MIN_CONNECTIONS: usize = 8;
/// The minimum limit of open files: with less, requests would fail because no file can be opened.
pub(crate) const MIN_OPEN_FILES: u64 = (OTHER_FILES + 2 * MIN_CONNECTIONS) as u64;

/// The limits of requests and connections.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The maximum size of an artifact, by kind.
    pub sizes: Sizes,
    /// How many bytes all transfers together may hold in memory. A transfer that finds none free waits.
    pub memory: usize,
    /// How long it waits before it is rejected.
    pub wait: Duration,
    /// The maximum number of connections. Beyond it, a few more are accepted for probes.
    pub connections: usize,
    /// The maximum time from the first byte of a request's head to its last.
    pub head: Duration,
    /// The maximum time from the end of a response to the next request on its connection.
    pub keep_alive: Duration,
    /// The maximum time without any progress of a transfer.
    pub idle: Duration,
    /// How long after a write the summary of its layer is made: several writes often follow each other.
    pub refresh: Duration,
}

/// The maximum size of an artifact of each kind, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes([u64; Kind::ALL.len()]);

/// A number of bytes, printed with a unit: `512MiB`.
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
            refresh: Duration::from_secs(1),
        }
    }
}

impl Limits {
    /// Lowers the limit of connections so that they fit into this many open files. A connection needs two: its socket and
    /// the file that it reads or writes. Some are reserved for the rest of the process and for probes.
    pub fn fit(&mut self, open_files: u64) {
        let fitting =
            usize::try_from(open_files).unwrap_or(usize::MAX).saturating_sub(OTHER_FILES) / 2;
        let fitting = fitting.max(MIN_CONNECTIONS);
        if fitting < self.connections {
            tracing::warn!(
                open_files,
                connections = fitting,
                "the limit of connections is lowered; raise the limit of open files (RLIMIT_NOFILE)"
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
            Kind::Status => 256 * KIB,
            Kind::Outputs => 16 * MIB,
            Kind::State => 256 * MIB,
            Kind::Lease => 64 * KIB,
            Kind::Bundle | Kind::Artifact | Kind::Workspace => 4 * GIB,
        }))
    }
}

impl Sizes {
    /// The maximum size of an artifact of this kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Sets the maximum size of an artifact of this kind.
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
        let is_number = !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
        let Some(unit) = unit.filter(|_| is_number) else {
            return Err("expected a number with B, KiB, MiB, GiB or TiB, such as 512MiB".to_owned());
        };
        // Digits alone fail to parse only if there are too many.
        let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        bytes.map(Self).ok_or_else(|| "the size is too large".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_printed_as_it_is_parsed() {
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
    fn each_kind_has_its_own_maximum_size() {
        let mut sizes = Sizes::default();
        assert_eq!(
            Kind::ALL.map(|kind| Size(sizes.of(kind)).to_string()).join(" "),
            "512MiB 1GiB 1GiB 1MiB 1GiB 4GiB 4GiB 4GiB 256MiB 64KiB 256KiB 16MiB"
        );
        sizes.set(Kind::Log, 5);
        assert_eq!(
            Kind::ALL.map(|kind| sizes.of(kind) == 5),
            [false, false, false, false, true, false, false, false, false, false, false, false]
        );
    }
}
