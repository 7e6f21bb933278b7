//! Text with its escapes decoded: a URL has the same parts, whether a document of JSON or HTML, or another URL contains
//! it. It knows escapes only, not what they are part of.
//!
//! Quotes, backslashes and white space are not decoded: they end a URL only where they are not escaped.

use std::ops::Index;

/// Escapes of escapes that are deeper are not decoded.
const MAX_DEPTH: usize = 16;
/// No escape is longer, in bytes.
pub(super) const MAX_ESCAPE: usize = 64;

/// Text, character by character.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    bytes: Vec<u8>,
    /// How often each byte is escaped for a URL that contains it: twice for `%252F`. Documents escape the URL as a whole,
    /// which does not count.
    levels: Vec<u8>,
    /// Where each byte starts in the text. Empty if nothing is escaped, so that both positions are the same.
    starts: Vec<usize>,
    /// The length of the text that was decoded.
    source_len: usize,
}

impl Decoded {
    /// Decodes two parts of a text. An escape does not continue from the first to the second.
    pub(super) fn new(first: &[u8], second: &[u8]) -> Self {
        let mut decoded = Self { source_len: first.len() + second.len(), ..Self::default() };
        if [first, second].iter().all(|part| memchr::memchr3(b'%', b'\\', b'&', part).is_none()) {
            decoded.bytes = [first, second].concat();
            return decoded;
        }
        decoded.bytes.reserve(decoded.source_len);
        decoded.levels.reserve(decoded.source_len);
        decoded.starts.reserve(decoded.source_len);
        decoded.add(first, 0);
        decoded.add(second, first.len());
        decoded
    }

    fn add(&mut self, text: &[u8], offset: usize) {
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            let escaped = match byte {
                b'%' => percent(&text[at..]),
                b'\\' => backslash(&text[at..]),
                b'&' => entity(&text[at..]),
                _ => None,
            };
            let Escaped { byte, len, level } =
                escaped.unwrap_or(Escaped { byte, len: 1, level: 0 });
            self.bytes.push(byte);
            self.levels.push(level);
            self.starts.push(offset + at);
            at += len;
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How often the byte at `at` is escaped.
    pub(super) fn level(&self, at: usize) -> u8 {
        self.levels.get(at).copied().unwrap_or_default()
    }

    /// Where the byte at `at` starts in the text, or where the text ends.
    pub(super) fn start(&self, at: usize) -> usize {
        if self.levels.is_empty() {
            return at;
        }
        self.starts.get(at).copied().unwrap_or(self.source_len)
    }

    /// The first byte that starts at this offset of the text, or after it.
    pub(super) fn at(&self, offset: usize) -> usize {
        if self.levels.is_empty() {
            return offset.min(self.bytes.len());
        }
        self.starts.partition_point(|start| *start < offset)
    }
}

impl Index<usize> for Decoded {
    type Output = u8;

    fn index(&self, at: usize) -> &u8 {
        &self.bytes[at]
    }
}

/// A character that is escaped.
struct Escaped {
    byte: u8,
    /// The length of the escape.
    len: usize,
    level: u8,
}

/// `%2F`, or `%252F`.
fn percent(text: &[u8]) -> Option<Escaped> {
    let mut at = 1;
    for level in 1..=MAX_DEPTH {
        let code = number(text.get(at..at + 2)?, 16)?;
        if code == u32::from(b'%')
            && number(text.get(at + 2..at + 4).unwrap_or_default(), 16).is_some()
        {
            at += 2;
            continue;
        }
        return Some(Escaped {
            byte: decodable(code)?,
            len: at + 2,
            level: u8::try_from(level).ok()?,
        });
    }
    None
}

/// `\/`, `\x2f`, `\u002f`, `\u{2f}` or `\U0000002f`, with a backslash for each document that contains the other.
fn backslash(text: &[u8]) -> Option<Escaped> {
    let count = text.iter().take(MAX_DEPTH + 1).take_while(|byte| **byte == b'\\').count();
    let (byte, len) = match text.get(count)? {
        _ if count > MAX_DEPTH => return None,
        b'/' => (b'/', count + 1),
        b'u' if text.get(count + 1) == Some(&b'{') => {
            let rest = &text[count + 2..];
            let digits = rest.iter().take(8).position(|byte| *byte == b'}')?;
            (decodable(number(&rest[..digits], 16)?)?, count + 2 + digits + 1)
        }
        escape @ (b'x' | b'u' | b'U') => {
            let digits = match escape {
                b'x' => 2,
                b'u' => 4,
                _ => 8,
            };
            let end = count + 1 + digits;
            (decodable(number(text.get(count + 1..end)?, 16)?)?, end)
        }
        _ => return None,
    };
    Some(Escaped { byte, len, level: 0 })
}

/// `&amp;`, `&#38;` or `&#x26;`, or `&amp;amp;`.
fn entity(text: &[u8]) -> Option<Escaped> {
    const AMP: &[u8] = b"amp;";
    let mut at = 1;
    for _ in 0..MAX_DEPTH / 2 {
        if !text[at..].starts_with(AMP) {
            break;
        }
        at += AMP.len();
    }
    let numeric = text[at..].strip_prefix(b"#").and_then(|rest| {
        let end = rest.iter().take(8).position(|byte| *byte == b';')?;
        let code = match rest[..end].split_first() {
            Some((b'x' | b'X', digits)) => number(digits, 16)?,
            _ => number(&rest[..end], 10)?,
        };
        Some((decodable(code)?, at + 1 + end + 1))
    });
    let (byte, len) = numeric.or((at > 1).then_some((b'&', at)))?;
    Some(Escaped { byte, len, level: 0 })
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let digits = str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u32::from_str_radix(digits, radix).ok()
}

/// The character, if it may be a part of a URL.
fn decodable(code: u32) -> Option<u8> {
    let byte = u8::try_from(code).ok()?;
    (byte.is_ascii_graphic() && !b"\"'`<>\\".contains(&byte)).then_some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_urls_and_documents_are_decoded() {
        for (text, expected, level) in [
            ("%2F", "/", 1),
            ("%2f", "/", 1),
            ("%25252F", "/", 3),
            ("%25", "%", 1),
            (r"\/", "/", 0),
            (r"\\\/", "/", 0),
            (r"\u002f", "/", 0),
            (r"\\\\u0026", "&", 0),
            (r"\x3d", "=", 0),
            (r"\\x3D", "=", 0),
            (r"\u{3d}", "=", 0),
            (r"\U0000003d", "=", 0),
            ("&amp;", "&", 0),
            ("&amp;amp;", "&", 0),
            ("&#38;", "&", 0),
            ("&#x2f;", "/", 0),
            ("&amp;#47;", "/", 0),
        ] {
            let decoded = Decoded::new(b"", text.as_bytes());
            assert_eq!(decoded.bytes(), expected.as_bytes(), "{text}");
            assert_eq!(
                (decoded.level(0), decoded.start(0), decoded.start(1)),
                (level, 0, text.len())
            );
        }
    }

    #[test]
    fn other_text_stays() {
        for text in [
            "%",
            "%2",
            "%+1",
            "%22",
            "%20",
            "%0a",
            "%zz",
            "100% sure",
            r"\",
            r"\n",
            r"\u",
            r"\u00",
            r"\u0022",
            r"\u002",
            r"\x",
            r"\x2",
            r"\x+f",
            r"\x22",
            r"\u{}",
            r"\u{2f",
            r"\u{000000000000000002f}",
            r"\U0000002",
            "&",
            "&am",
            "&lt;",
            "&#;",
            "&#34;",
            "&#99999999;",
            "\u{e9}",
            "a=b&c",
        ] {
            assert_eq!(Decoded::new(b"", text.as_bytes()).bytes(), text.as_bytes());
        }
        assert_eq!(Decoded::new(b"%2", b"F").bytes(), b"%2F");
    }
}
