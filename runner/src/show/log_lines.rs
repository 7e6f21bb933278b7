//! The text of a log. The datastore answers its lines as Burrito does: `{"results": ["line", ...]}`. The answer is decoded as
//! it arrives, so that memory grows neither with the log nor with a line.

use std::mem;

/// Decodes the answer in pieces.
#[derive(Debug, Default)]
pub(super) struct LogLines {
    state: State,
    /// The first half of a character outside of the basic plane.
    high: Option<u16>,
    /// Whether a line came before.
    after_line: bool,
}

#[derive(Debug, Default)]
enum State {
    /// Before the list.
    #[default]
    Start,
    /// In the list, outside of a line.
    List,
    Line,
    /// After a backslash.
    Escape,
    /// The digits of `\uXXXX`, and their number.
    Unicode(u16, u8),
    End,
}

/// The answer is not a list of lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotLines;

impl LogLines {
    /// The next part of the log.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<Vec<u8>, NotLines> {
        let mut out = Vec::with_capacity(piece.len());
        piece.iter().try_for_each(|byte| self.byte(*byte, &mut out))?;
        Ok(out)
    }

    /// Whether the list was complete.
    pub(super) fn finish(&self) -> Result<(), NotLines> {
        if matches!(self.state, State::End) { Ok(()) } else { Err(NotLines) }
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) -> Result<(), NotLines> {
        self.state = match (mem::take(&mut self.state), byte) {
            (State::Start, b'[') => State::List,
            (State::Start, b'{' | b'"' | b':' | b' ' | b'\n' | b'\r' | b'\t') => State::Start,
            (State::Start, letter) if letter.is_ascii_lowercase() => State::Start,
            (State::List, b'"') => {
                // The log was cut at its newlines.
                if mem::replace(&mut self.after_line, true) {
                    out.push(b'\n');
                }
                State::Line
            }
            (State::List, b']') => State::End,
            (State::List, b',' | b' ' | b'\n' | b'\r' | b'\t') => State::List,
            (State::Line, b'\\') => State::Escape,
            (State::Escape, b'u') => State::Unicode(0, 0),
            (State::Line, byte) => {
                self.end_pair(out);
                if byte == b'"' {
                    State::List
                } else {
                    out.push(byte);
                    State::Line
                }
            }
            (State::Escape, byte) => {
                self.end_pair(out);
                out.push(unescaped(byte)?);
                State::Line
            }
            (State::Unicode(value, count), byte) => {
                let digit = char::from(byte).to_digit(16).ok_or(NotLines)?;
                let value = value << 4 | u16::try_from(digit).unwrap_or_default();
                if count < 3 {
                    State::Unicode(value, count + 1)
                } else {
                    self.unit(value, out);
                    State::Line
                }
            }
            (State::End, _) => State::End,
            (State::Start | State::List, _) => return Err(NotLines),
        };
        Ok(())
    }

    /// Adds a UTF-16 code unit.
    fn unit(&mut self, unit: u16, out: &mut Vec<u8>) {
        if let Some(high) = self.high
            && let Some(Ok(c)) = char::decode_utf16([high, unit]).next()
        {
            self.high = None;
            return push(c, out);
        }
        self.end_pair(out);
        match char::decode_utf16([unit]).next() {
            Some(Ok(c)) => push(c, out),
            _ if unit < 0xdc00 => self.high = Some(unit),
            _ => push(char::REPLACEMENT_CHARACTER, out),
        }
    }

    /// Half of a pair without the other one is not a character.
    fn end_pair(&mut self, out: &mut Vec<u8>) {
        if self.high.take().is_some() {
            push(char::REPLACEMENT_CHARACTER, out);
        }
    }
}

fn push(c: char, out: &mut Vec<u8>) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn unescaped(byte: u8) -> Result<u8, NotLines> {
    Ok(match byte {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        b'"' | b'\\' | b'/' => byte,
        _ => return Err(NotLines),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(json: &[u8], cut: usize) -> Result<Vec<u8>, NotLines> {
        let mut lines = LogLines::default();
        let (start, end) = json.split_at(cut.min(json.len()));
        let mut out = lines.push(start)?;
        out.extend(lines.push(end)?);
        lines.finish().map(|()| out)
    }

    #[test]
    fn escapes_are_decoded() {
        let json = br#"{"results": ["\"\\\/\b\f\n\r\t", "\u00e9\ud83c\udf2f", "\ud83cx\udf2f\ud83c\ud83c\udf2f", ""]}"#;
        let expected = "\"\\/\u{8}\u{c}\n\r\t\né🌯\n\u{fffd}x\u{fffd}\u{fffd}🌯\n";
        assert_eq!(String::from_utf8(decoded(json, 0).unwrap()).unwrap(), expected);
        assert_eq!(decoded(br#"{"results":[]}"#, 3).unwrap(), b"");
    }

    #[test]
    fn another_answer_is_refused() {
        for json in [
            "",
            "{}",
            "<html>",
            r#"{"results":["a""#,
            r#"{"results":[1]}"#,
            r#"{"results":["\x"]}"#,
            r#"{"results":["\u00g0"]}"#,
        ] {
            decoded(json.as_bytes(), 0).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_json_however_it_is_cut(
            lines in prop::collection::vec(any::<String>(), 0..5),
            cut in 0..200_usize,
        ) {
            let json = serde_json::json!({"results": lines}).to_string();
            prop_assert_eq!(decoded(json.as_bytes(), cut).unwrap(), lines.join("\n").into_bytes());
        }
    }
}
