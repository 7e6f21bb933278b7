//! Names of what belongs to an attempt that has not ended: the pieces of a live log, and the ledger of an apply.

use std::fmt;

/// Prefix of live logs and of the ledgers of applies. It is outside of `layers/`, so that an attempt that still works is not the
/// latest one for Burrito.
pub const LIVE: &str = ".plancha/live/";

/// Hex digits of an offset in a name.
const DIGITS: usize = 16;

/// An object of an attempt that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LivePart {
    /// Bytes of the log from this offset. An empty one marks the end of the log: nothing can be appended there.
    Piece(u64),
    /// The bytes between two offsets, made of several pieces.
    Merged(u64, u64),
    /// The ledger of an apply.
    Ledger,
}

impl LivePart {
    /// Parses the last part of a path.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name.split_once('-') {
            _ if name == "ledger.json" => Some(Self::Ledger),
            None => offset(name).map(Self::Piece),
            Some((start, end)) => {
                let (start, end) = (offset(start)?, offset(end)?);
                (start < end).then_some(Self::Merged(start, end))
            }
        }
    }
}

impl fmt::Display for LivePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Piece(start) => write!(f, "{start:0DIGITS$x}"),
            Self::Merged(start, end) => write!(f, "{start:0DIGITS$x}-{end:0DIGITS$x}"),
            Self::Ledger => f.write_str("ledger.json"),
        }
    }
}

/// Hex digits in lower case only: one offset has one name.
fn offset(digits: &str) -> Option<u64> {
    let is_digit = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    let is_offset = digits.len() == DIGITS && digits.bytes().all(is_digit);
    u64::from_str_radix(digits, 16).ok().filter(|_| is_offset)
}
