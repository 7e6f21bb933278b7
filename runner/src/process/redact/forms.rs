//! The forms in which a secret may be written: as it is, line by line, escaped as in JSON, HCL and URLs, and in base64.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::process::redact::patterns::{MIN_LEN, Pattern};

/// After how many characters programs break lines of base64: `base64` of coreutils, and PEM.
const WRAPPED: [usize; 2] = [76, 64];

/// All forms of a value, each with at least [`MIN_LEN`] bytes; none of a value that has less.
pub(super) fn of(value: &[u8]) -> Vec<Pattern> {
    let value = value.trim_ascii();
    let (mut forms, mut base64) = (BTreeSet::new(), BTreeSet::new());
    if value.len() < MIN_LEN {
        return Vec::new();
    }
    // A value of several lines may be in one, with `\n` between them.
    let joined = memchr::memmem::find(value, b"\\n").map(|_| unescaped(value));
    let lines = value.split(|byte| *byte == b'\n');
    let lines = lines.chain(joined.iter().flat_map(|joined| joined.split(|byte| *byte == b'\n')));
    let lines = lines.map(<[u8]>::trim_ascii);
    let lines = lines.filter(|line| !is_border(line)).collect::<Vec<_>>();
    // As a whole it contains what is too short on a line of its own.
    if lines.iter().any(|line| (1..MIN_LEN).contains(&line.len())) {
        forms.insert(value.to_vec());
    }
    for text in lines.into_iter().filter(|line| line.len() >= MIN_LEN) {
        forms.insert(text.to_vec());
        add_encoded(text, &mut forms);
        add_base64(text, &mut forms, &mut base64);
    }
    if value.contains(&b'\n') {
        add_encoded(value, &mut forms);
        add_base64(value, &mut forms, &mut base64);
    }
    let forms = forms.into_iter().map(|form| (form, false));
    let forms = forms.chain(base64.into_iter().map(|form| (form, true)));
    let forms = forms.filter(|(form, _)| form.len() >= MIN_LEN);
    forms.map(|(form, wraps)| Pattern { bytes: form.into(), wraps }).collect()
}

/// The value with line breaks instead of `\n`.
fn unescaped(value: &[u8]) -> Vec<u8> {
    let (mut out, mut from) = (Vec::with_capacity(value.len()), 0);
    for at in memchr::memmem::find_iter(value, b"\\n") {
        out.extend_from_slice(&value[from..at]);
        out.push(b'\n');
        from = at + 2;
    }
    out.extend_from_slice(&value[from..]);
    out
}

/// Whether a line is the first or the last of a PEM block, which is no secret.
fn is_border(line: &[u8]) -> bool {
    let is_one = |start: &[u8]| line.starts_with(start) && !line.contains(&b'\\');
    (is_one(b"-----BEGIN ") || is_one(b"-----END ")) && line.ends_with(b"-----")
}

fn add_encoded(text: &[u8], forms: &mut BTreeSet<Vec<u8>>) {
    add_urls(text, forms);
    if let Ok(text) = std::str::from_utf8(text) {
        const STYLES: [Json; 4] = [Json::Plain, Json::Html, Json::Ascii, Json::Slashes];
        for inner in STYLES {
            let once = json(text, inner);
            for outer in STYLES {
                let twice = json(&once, outer);
                // A document in a document, as a plan shows it.
                forms.insert(json(&twice, outer).into_bytes());
                forms.insert(twice.into_bytes());
            }
            forms.insert(once.into_bytes());
        }
        let template = text.replace("${", "$${").replace("%{", "%%{");
        forms.insert(hcl(&template).into_bytes());
        // In a heredoc nothing else is escaped.
        if !template.contains('\n') {
            forms.insert(template.into_bytes());
        }
    }
}

/// The characters that the text determines, wherever it begins within what was encoded. Programs break them into lines.
fn add_base64(text: &[u8], lines: &mut BTreeSet<Vec<u8>>, forms: &mut BTreeSet<Vec<u8>>) {
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(text);
        // A character has six bits. Of the first and the last one other bytes may determine some.
        let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        for encoded in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            let known = &encoded.as_bytes()[first..last];
            forms.insert(known.to_vec());
            // A line may end within the beginning, by which a form is found.
            forms.insert(known[MIN_LEN.min(known.len())..].to_vec());
            if known.iter().any(|byte| matches!(byte, b'+' | b'/')) {
                add_urls(known, lines);
            }
            for width in WRAPPED.into_iter().filter(|width| before == 0 && known.len() > *width) {
                // There may be other text beside the lines.
                lines.extend(known.chunks(width).map(<[u8]>::to_vec));
            }
        }
    }
}

/// The text as in URLs. What is escaped, and how, differs between programs.
fn add_urls(text: &[u8], forms: &mut BTreeSet<Vec<u8>>) {
    // Of RFC 3986; Python's `quote`; JavaScript's `encodeURIComponent`; Go's path; Go's user and password.
    for unescaped in ["", "/", "!*'()", "$&+:=@", "$&+,;="] {
        for space in ["%20", "+"] {
            for upper in [true, false] {
                let mut form = Vec::with_capacity(text.len());
                for byte in text {
                    match byte {
                        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                            form.push(*byte);
                        }
                        b' ' => form.extend_from_slice(space.as_bytes()),
                        _ if unescaped.as_bytes().contains(byte) => form.push(*byte),
                        _ if upper => form.extend_from_slice(format!("%{byte:02X}").as_bytes()),
                        _ => form.extend_from_slice(format!("%{byte:02x}").as_bytes()),
                    }
                }
                forms.insert(form);
            }
        }
    }
}

/// How a program writes JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Json {
    Plain,
    /// As Go does, for HTML: `\u003c`.
    Html,
    /// Nothing but ASCII.
    Ascii,
    /// With `\/`.
    Slashes,
}

/// The contents of a text in JSON.
fn json(text: &str, style: Json) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let escaped = match c {
            '"' | '\\' => Some(c),
            '/' if style == Json::Slashes => Some('/'),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            // Go has `\u0008` and `\u000c`.
            '\x08' if style != Json::Html => Some('b'),
            '\x0c' if style != Json::Html => Some('f'),
            _ => None,
        };
        let is_unicode = match style {
            Json::Html => matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}'),
            Json::Ascii => !c.is_ascii(),
            Json::Plain | Json::Slashes => false,
        };
        if let Some(escaped) = escaped {
            out.extend(['\\', escaped]);
        } else if is_unicode || c < ' ' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // A `String` is always writable.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// The contents of a text in HCL, whose templates are escaped already.
fn hcl(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out
}
