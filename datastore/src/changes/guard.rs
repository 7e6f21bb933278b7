//! The bytes of a JSON document on their way to its parser, within limits.
//!
//! The parser keeps each string whole before it returns it, and numbers as binary ones. The guard cuts long strings and
//! remembers how long they are, and the text of numbers. The parser takes one byte at a time, so when it returns a string or a
//! number, what the guard has seen last is exactly that.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher as _, DefaultHasher, Hasher as _, RandomState};
use std::io::{self, BufReader, Read};
use std::rc::Rc;

/// The most characters of a string that are shown.
pub(super) const MAX_CHARS: u64 = 4096;
/// How many bytes of a sensitive text are searched for.
pub(super) const MAX_SECRET: usize = 256;
/// The most characters of a string that are kept: a sensitive text that begins in what is shown ends in what is kept. Three levels of
/// JSON make nine characters of one, as in `\\\\u0001`.
pub(super) const KEPT_CHARS: u64 = MAX_CHARS + 9 * MAX_SECRET as u64;
/// The most levels of a document.
pub(super) const MAX_DEPTH: usize = 1000;
/// The most characters of a number.
pub(super) const MAX_NUMBER: usize = 512;
/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;

/// A document on its way to a parser.
pub(crate) struct Guard<R: Read> {
    bytes: io::Bytes<BufReader<R>>,
    seen: Rc<Seen>,
    max_depth: usize,
    /// The most characters of a string.
    max_chars: u64,
    /// The string that is being read.
    string: Option<StringState>,
    in_number: bool,
}

/// What a guard has seen so far.
pub(crate) struct Seen {
    /// Bytes of the document.
    pub(crate) offset: Cell<u64>,
    pub(super) depth: Cell<usize>,
    /// The limit that the document exceeds.
    pub(crate) limit: Cell<Option<Limit>>,
    /// The text of the last number.
    pub(super) number: RefCell<String>,
    /// The last string.
    pub(super) string: Cell<SeenString>,
    /// Digests of different strings are equal only by chance, also if somebody has chosen them. `None` if neither digests nor
    /// numbers are remembered.
    digests: Option<RandomState>,
}

/// A string that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenString {
    /// Its characters.
    pub(super) chars: u64,
    /// A digest of what was cut off, if digests are remembered.
    pub(super) rest: Option<u64>,
}

/// A limit of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Depth,
    Number,
    /// What was cut off is no string.
    Syntax,
}

#[derive(Default)]
struct StringState {
    chars: u64,
    escape: Escape,
    /// The last character was the first half of a surrogate pair.
    is_half: bool,
    is_cut: bool,
    /// Of what is cut off.
    rest: Option<DefaultHasher>,
}

#[derive(Clone, Copy, Default)]
enum Escape {
    #[default]
    None,
    /// After a backslash.
    Start,
    /// After `\u`: digits that are missing, and the number so far.
    Hex(u8, u32),
}

impl<R: Read> Guard<R> {
    pub(super) fn new(document: R) -> Self {
        Self::with(document, (MAX_DEPTH, KEPT_CHARS), Some(RandomState::new()))
    }

    /// One that only cuts long strings and limits the depth, and remembers nothing of strings and numbers.
    pub(crate) fn cutting(document: R, max_depth: usize) -> Self {
        Self::with(document, (max_depth, MAX_CHARS), None)
    }

    fn with(
        document: R,
        (max_depth, max_chars): (usize, u64),
        digests: Option<RandomState>,
    ) -> Self {
        let seen = Seen {
            offset: Cell::new(0),
            depth: Cell::new(0),
            limit: Cell::new(None),
            number: RefCell::default(),
            string: Cell::default(),
            digests,
        };
        let bytes = BufReader::with_capacity(BUFFER, document).bytes();
        Self { bytes, seen: Rc::new(seen), max_depth, max_chars, string: None, in_number: false }
    }

    /// What it has seen, now and later.
    pub(crate) fn seen(&self) -> Rc<Seen> {
        Rc::clone(&self.seen)
    }

    fn next(&mut self) -> io::Result<Option<u8>> {
        while let Some(byte) = self.bytes.next().transpose()? {
            self.seen.offset.set(self.seen.offset.get() + 1);
            let is_kept = if self.string.is_none() {
                self.outside(byte)?;
                true
            } else if byte == b'"' && self.ends_string() {
                true
            } else if let Some(string) = &mut self.string {
                let kept = string.take(byte, self.max_chars, self.seen.digests.as_ref());
                kept.map_err(|limit| self.seen.exceeded(limit))?
            } else {
                true
            };
            if is_kept {
                return Ok(Some(byte));
            }
        }
        Ok(None)
    }

    /// A byte outside of strings.
    fn outside(&mut self, byte: u8) -> io::Result<()> {
        let is_number = matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        if is_number && self.seen.digests.is_some() {
            let mut number = self.seen.number.borrow_mut();
            if !self.in_number {
                number.clear();
            }
            self.in_number = true;
            if number.len() == MAX_NUMBER {
                return Err(self.seen.exceeded(Limit::Number));
            }
            number.push(char::from(byte));
            return Ok(());
        }
        self.in_number = false;
        let depth = self.seen.depth.get();
        match byte {
            b'"' => self.string = Some(StringState::default()),
            b'{' | b'[' if depth == self.max_depth => return Err(self.seen.exceeded(Limit::Depth)),
            b'{' | b'[' => self.seen.depth.set(depth + 1),
            b'}' | b']' => self.seen.depth.set(depth.saturating_sub(1)),
            _ => {}
        }
        Ok(())
    }

    /// Ends a string at a quotation mark, unless that is escaped.
    fn ends_string(&mut self) -> bool {
        let ended = self.string.take_if(|string| matches!(string.escape, Escape::None));
        if let Some(StringState { chars, rest, .. }) = &ended {
            let rest = rest.as_ref().map(DefaultHasher::finish);
            self.seen.string.set(SeenString { chars: *chars, rest });
        }
        ended.is_some()
    }
}

impl Seen {
    fn exceeded(&self, limit: Limit) -> io::Error {
        self.limit.set(Some(limit));
        io::Error::other("a limit is exceeded")
    }
}

impl StringState {
    /// Whether the next byte of the string is kept. It is cut only between two characters.
    fn take(
        &mut self,
        byte: u8,
        max_chars: u64,
        digests: Option<&RandomState>,
    ) -> Result<bool, Limit> {
        match self.escape {
            Escape::None => {
                let is_new = !matches!(byte, 0x80..=0xBF);
                let is_second_half = self.is_half && byte == b'\\';
                if is_new && self.chars >= max_chars && !self.is_cut && !is_second_half {
                    self.is_cut = true;
                    self.rest = digests.map(RandomState::build_hasher);
                }
                if byte == b'\\' {
                    self.escape = Escape::Start;
                } else if is_new {
                    (self.chars, self.is_half) = (self.chars + 1, false);
                }
            }
            Escape::Start if byte == b'u' => self.escape = Escape::Hex(4, 0),
            Escape::Start if !b"\"\\/bfnrt".contains(&byte) => return Err(Limit::Syntax),
            Escape::Start => {
                (self.chars, self.is_half, self.escape) = (self.chars + 1, false, Escape::None);
            }
            Escape::Hex(missing, number) => {
                let digit = char::from(byte).to_digit(16).ok_or(Limit::Syntax)?;
                let number = number << 4 | digit;
                self.escape = Escape::Hex(missing - 1, number);
                if missing == 1 {
                    self.end_hex(number);
                }
            }
        }
        if !self.is_cut {
            return Ok(true);
        }
        if byte < 0x20 {
            return Err(Limit::Syntax);
        }
        if let Some(rest) = &mut self.rest {
            rest.write_u8(byte);
        }
        Ok(false)
    }

    fn end_hex(&mut self, number: u32) {
        self.escape = Escape::None;
        let is_second_half = self.is_half && matches!(number, 0xDC00..=0xDFFF);
        self.chars += u64::from(!is_second_half);
        self.is_half = matches!(number, 0xD800..=0xDBFF);
    }
}

impl<R: Read> Read for Guard<R> {
    /// Reads one byte: what was seen last must not be ahead of the parser.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(first) = buffer.first_mut() else { return Ok(0) };
        let Some(byte) = self.next()? else { return Ok(0) };
        *first = byte;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A string after the guard, and what the guard has seen of it.
    fn guarded(text: &str) -> (String, SeenString) {
        let json = format!(" {text}, 1");
        let mut guard = Guard::new(json.as_bytes());
        let seen = guard.seen();
        let mut kept = Vec::new();
        let mut byte = [0];
        while guard.read(&mut byte).unwrap() == 1 {
            kept.push(byte[0]);
        }
        let kept = String::from_utf8(kept).unwrap();
        let kept = kept.strip_suffix(", 1").unwrap().trim().to_owned();
        (serde_json::from_str(&kept).unwrap(), seen.string.get())
    }

    #[test]
    fn a_long_string_is_cut_between_two_characters_and_its_length_is_known() {
        let most = usize::try_from(KEPT_CHARS).unwrap();
        for unit in ["a", "é", "日", "😀", "\\n", "\\\"", "\\\\", "\\u00e9", "\\ud83d\\ude00"] {
            for more in [0, 1, 2, 5000] {
                let text = format!("\"{}\"", unit.repeat(most + more));
                let whole: String = serde_json::from_str(&text).unwrap();
                let (kept, seen) = guarded(&text);
                let expected = whole.chars().take(most).collect::<String>();
                assert!(kept == expected, "{unit} {more}");
                assert_eq!(seen.chars, (most + more) as u64, "{unit}");
                assert_eq!(seen.rest.is_some(), more > 0, "{unit}");
            }
        }
    }

    #[test]
    fn strings_that_differ_only_in_what_is_cut_off_have_different_digests() {
        let text = |end: &str| format!("{}{end}", "a".repeat(10_000));
        let json = format!("[\"{}\",\"{}\",\"{}\"]", text("x"), text("x"), text("y"));
        let mut guard = Guard::new(json.as_bytes());
        let seen = guard.seen();
        let (mut digests, mut byte) = (Vec::new(), [0]);
        while guard.read(&mut byte).unwrap() == 1 {
            if matches!(byte[0], b',' | b']') {
                digests.push(seen.string.get().rest.unwrap());
            }
        }
        assert_eq!(digests.len(), 3);
        assert!(digests[0] == digests[1] && digests[1] != digests[2]);
    }

    #[test]
    fn depth_and_numbers_have_limits() {
        let limit = |json: &str| {
            let mut guard = Guard::new(json.as_bytes());
            let seen = guard.seen();
            let read = io::copy(&mut guard, &mut io::sink());
            assert_eq!(read.is_err(), seen.limit.get().is_some());
            seen.limit.get()
        };
        assert_eq!(limit(&"[".repeat(MAX_DEPTH)), None);
        assert_eq!(limit(&"[".repeat(MAX_DEPTH + 1)), Some(Limit::Depth));
        assert_eq!(limit(&"{\"[[[\":[]},".repeat(MAX_DEPTH)), None);
        assert_eq!(limit(&format!("{},1", "1".repeat(MAX_NUMBER))), None);
        assert_eq!(limit(&"1".repeat(MAX_NUMBER + 1)), Some(Limit::Number));
        for end in ["\n", "\\x", "\\u12g4", "\\u\"", "\\"] {
            let cut = format!("\"{}{end}\"", "a".repeat(7000));
            assert_eq!(limit(&cut), (end != "\\").then_some(Limit::Syntax), "{end}");
        }
    }
}
