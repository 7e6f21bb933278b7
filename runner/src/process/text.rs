//! Text of others, made safe for a terminal: no control character is left but newline and tab.
//!
//! Colours (`ESC [ ... m`) are removed. Any other control character is shown as `^[` or `<U+202E>`: a reader should see
//! that it is there.

use std::fmt::Write as _;

/// No sequence of colours is longer.
const MAX_SEQUENCE: usize = 32;

/// Cleans text that arrives in pieces. Memory does not grow with the text.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    /// The start of a character whose end has not arrived.
    partial: Vec<u8>,
    /// What follows an escape character, while it may be a colour.
    sequence: Option<String>,
    /// Whether the last character was a carriage return.
    after_return: bool,
}

impl Cleaner {
    /// Cleans the next piece. Bytes that are not UTF-8 become replacement characters.
    pub(crate) fn push(&mut self, piece: &[u8], out: &mut String) {
        let mut bytes = std::mem::take(&mut self.partial);
        bytes.extend_from_slice(piece);
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            chunk.valid().chars().for_each(|c| self.add(c, out));
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_partial(invalid) {
                self.partial = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.add(char::REPLACEMENT_CHARACTER, out);
            }
        }
    }

    /// Ends the text.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.add(char::REPLACEMENT_CHARACTER, out);
        }
        self.end_sequence(out);
        self.after_return = false;
    }

    fn add(&mut self, c: char, out: &mut String) {
        if let Some(sequence) = &mut self.sequence {
            let is_first = sequence.is_empty();
            match c {
                'm' if !is_first => {
                    self.sequence = None;
                    return;
                }
                '[' if is_first => return sequence.push(c),
                '0'..='9' | ';' | ':' if !is_first && sequence.len() < MAX_SEQUENCE => {
                    return sequence.push(c);
                }
                _ => self.end_sequence(out),
            }
        }
        let after_return = std::mem::replace(&mut self.after_return, c == '\r');
        match c {
            '\x1b' => self.sequence = Some(String::new()),
            // Lines may end with both. Alone, it would overwrite the line.
            '\n' if after_return => {}
            '\r' | '\n' => out.push('\n'),
            '\t' => out.push('\t'),
            c => push_visible(c, out),
        }
    }

    /// The sequence was not a colour: it is shown.
    fn end_sequence(&mut self, out: &mut String) {
        if let Some(sequence) = self.sequence.take() {
            out.push_str("^[");
            out.push_str(&sequence);
        }
    }
}

/// Whether more bytes could make these a character.
fn is_partial(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Whether a character is shown as it is.
pub(crate) fn is_visible(c: char) -> bool {
    // The characters that are no controls change the direction of the text around them, or end a line.
    !c.is_control()
        && !matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

fn push_visible(c: char, out: &mut String) {
    // A `String` is always writable.
    let _ = match c {
        c if is_visible(c) => out.write_char(c),
        '\x7f' => out.write_str("^?"),
        c if c.is_ascii() => write!(out, "^{}", char::from(c as u8 ^ 0x40)),
        c => write!(out, "<U+{:04X}>", c as u32),
    };
}

/// A whole text, cleaned.
pub(crate) fn clean(text: &str) -> String {
    let (mut cleaner, mut out) = (Cleaner::default(), String::new());
    cleaner.push(text.as_bytes(), &mut out);
    cleaner.finish(&mut out);
    out
}

/// A whole text, cleaned and on one line.
pub(crate) fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// JSON whose texts have no invisible characters: the same document, with escapes for them.
pub(crate) fn json(value: &impl serde::Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(value)?;
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if c == '\n' || is_visible(c) {
            out.push(c);
        } else {
            // Outside of texts JSON has no such character, and those below 32 are escaped already.
            let _ = write!(out, "\\u{:04x}", c as u32);
        }
    }
    out.push('\n');
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn colours_are_removed_and_other_controls_are_shown() {
        for (text, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\x1b[1m\x1b[31mError\x1b[0m: x", "Error: x"),
            ("\x1b[38;5;196mred\x1b[m", "red"),
            ("\x1b]0;title\x07", "^[]0;title^G"),
            ("\x1b]52;c;aGk=\x1b\\", "^[]52;c;aGk=^[\\"),
            ("\x1b[2J\x1b[H", "^[[2J^[[H"),
            ("\x1b\x1b[1m", "^["),
            ("\u{9b}2J", "<U+009B>2J"),
            ("a\x08b\x7f", "a^Hb^?"),
            ("one\r\ntwo\rthree", "one\ntwo\nthree"),
            ("user\u{202e}nimda", "user<U+202E>nimda"),
            ("é 🌯", "é 🌯"),
            ("\x1b[1", "^[[1"),
            ("\x1bm", "^[m"),
        ] {
            assert_eq!(clean(text), shown, "{text:?}");
        }
        let endless = format!("\x1b[{}m", "1".repeat(100));
        assert!(clean(&endless).starts_with("^[[1111"));
        assert_eq!(one_line("a\nb\t c"), "a b c");
    }

    #[test]
    fn invalid_bytes_become_replacement_characters() {
        let (mut cleaner, mut out) = (Cleaner::default(), String::new());
        for piece in [&b"a\xff\xe2"[..], b"\x82", b"\xac|\xe2\x82", b"x\xf0\x9f"] {
            cleaner.push(piece, &mut out);
        }
        cleaner.finish(&mut out);
        assert_eq!(out, "a\u{fffd}€|\u{fffd}x\u{fffd}");
    }

    #[test]
    fn json_without_invisible_characters_is_the_same_document() {
        let value = serde_json::json!({"a\u{9b}": "\u{202e}x\x7f\n\x1b[2J"});
        let text = json(&value).unwrap();
        assert!(text.chars().all(|c| c == '\n' || is_visible(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    proptest! {
        #[test]
        fn no_control_character_is_left_however_the_bytes_are_cut(
            bytes in prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(b"\x1b[]m;0\r\n\xc2\x9b\xe2\x80\xae".to_vec())], 0..200),
            cut in any::<prop::sample::Index>(),
        ) {
            let cut = cut.index(bytes.len() + 1);
            let (mut cleaner, mut cut_up) = (Cleaner::default(), String::new());
            cleaner.push(&bytes[..cut], &mut cut_up);
            cleaner.push(&bytes[cut..], &mut cut_up);
            cleaner.finish(&mut cut_up);
            let (mut cleaner, mut whole) = (Cleaner::default(), String::new());
            cleaner.push(&bytes, &mut whole);
            cleaner.finish(&mut whole);
            prop_assert_eq!(&cut_up, &whole);
            prop_assert!(whole.chars().all(|c| c == '\n' || c == '\t' || is_visible(c)));
        }
    }
}
