//! A quick search for the parts of a text in which a pattern may begin.

use std::ops::Range;

/// The length of the beginning of a pattern, in bytes. No pattern is shorter.
pub(super) const PREFIX: usize = 8;
/// The length of a word, in bytes.
const WORD: usize = 4;
/// How many words after the first one belong to a part at most.
const MOST: usize = 16;
/// The size of the set, as a power of two of bits: it stays in the processor's cache.
const BITS: u32 = 17;

/// The words that the beginnings of patterns contain: a set that may have others as well, but leaves none out.
///
/// Only every fourth position of a text is looked at: a beginning of eight bytes has a whole word at one of them.
#[derive(Default)]
pub(super) struct Words(Vec<u64>);

impl Words {
    pub(super) fn new(prefixes: &[[u8; PREFIX]]) -> Self {
        let mut words = Self(vec![0; (1 << BITS) / u64::BITS as usize]);
        for word in prefixes.iter().flat_map(|prefix| prefix.windows(WORD).take(WORD)) {
            let (at, bit) = place(word);
            words.0[at] |= bit;
        }
        words
    }

    /// The next part of a text from `from` on that may have the beginning of a pattern. The next but one begins, at the
    /// earliest, `PREFIX - 1` bytes before its end.
    pub(super) fn next_part(&self, text: &[u8], from: usize) -> Option<Range<usize>> {
        let rest = text.get(from..).filter(|rest| rest.len() >= PREFIX)?;
        let mut known = rest.chunks_exact(WORD).map(|word| self.may_have(word));
        let first = from + known.position(|known| known)? * WORD;
        // A longer run of them is searched in several parts, or each would be looked at again for every pattern in it.
        let last = first + known.take(MOST).take_while(|known| *known).count() * WORD;
        Some(first.saturating_sub(WORD - 1).max(from)..text.len().min(last + PREFIX))
    }

    fn may_have(&self, word: &[u8]) -> bool {
        let (at, bit) = place(word);
        self.0[at] & bit != 0
    }
}

/// The bit of a word, and the number that has it.
fn place(word: &[u8]) -> (usize, u64) {
    let word = word.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    let hash = word.wrapping_mul(0x9E37_79B1) >> (u32::BITS - BITS);
    ((hash / u64::BITS) as usize, 1 << (hash % u64::BITS))
}
