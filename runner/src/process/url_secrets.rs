//! The secret parts of URLs: users and passwords, and the values of parameters. They are masked in any text, as a whole
//! or as it is written, and removed from URLs.
//!
//! Escapes are decoded before a secret is searched for ([`escapes`]), so that a URL is found in JSON, in HTML and in the
//! query of another URL.
//!
//! A secret in another parameter, in the path or in the text around a URL is not recognized. In doubt it masks too much
//! of a URL: tools repeat URLs that are not valid, such as those with a password that is not escaped.

mod escapes;

use std::io::{self, Write};
use std::ops::Range;

use url::Url;

use crate::process::url_secrets::escapes::{Decoded, MAX_ESCAPE};

/// Names in lower case, with `_` between words.
const NAMES: [&str; 16] = [
    "apikey",
    "api_key",
    "auth",
    "aws_access_key_secret",
    "awsaccesskeysecret",
    "passwd",
    "password",
    "sas",
    "secret",
    "secret_access_key",
    "secret_key",
    "secretkey",
    "sig",
    "signature",
    "sshkey",
    "token",
];

/// Ends of names, also in camel case: `deploy_token`, `privateToken`, `x-api-key`.
const ENDS: [&str; 6] = ["api_key", "apikey", "password", "secret", "signature", "token"];

/// Signatures of a URL as a whole, beside which its other parameters change from URL to URL.
const SIGNATURES: [&str; 6] = [
    "sig",
    "signature",
    "x-amz-signature",
    "x-goog-signature",
    "x-ms-signature",
    "x-oss-signature",
];

/// No name is longer, even with escapes.
const MAX_NAME: usize = 128;
const MASK: &[u8] = b"***";
/// Users and passwords that are longer than this are not recognized.
const MAX_USER: usize = 4 << 10;
/// Of a longer line, what comes first is masked before the rest is known.
const MAX_LINE: usize = 32 << 10;
/// Deeper quotes within quotes are not recognized.
const MAX_QUOTES: usize = 16;
/// What is masked may depend on this many bytes after it: on a user, on the word after its `@`, and on the name of a
/// parameter.
const LOOK_AHEAD: usize = 2 * MAX_USER + 2 * MAX_NAME + MAX_ESCAPE;
/// The same for bytes before it: on backslashes, and on the character before a URL without a scheme.
const LOOK_BEHIND: usize = MAX_QUOTES + MAX_ESCAPE;

/// Whether the value of a parameter is a secret.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '.', '+', ':', '$'], "_");
    // Lists and fields: `token[]`, `token[0]`, `auth[token]`.
    name.split(['[', ']', '(', ')']).any(|part| {
        let part = part.trim_matches('_');
        NAMES.contains(&part) || ENDS.iter().any(|end| part.ends_with(end))
    })
}

/// The name of the first parameter of a URL whose value is a secret.
pub(crate) fn secret_parameter(url: &str) -> Option<String> {
    let text = Decoded::new(b"", url.as_bytes());
    let context = Context { in_url: true, ..Context::default() };
    let parameter = (0..text.len()).find_map(|at| context.masked_parameter(&text, at))?;
    Some(String::from_utf8_lossy(&text.bytes()[parameter.name]).into_owned())
}

/// Whether a parameter signs its URL.
pub(crate) fn is_signature(name: &str) -> bool {
    SIGNATURES.contains(&&*name.to_ascii_lowercase())
}

/// The URL without user, password, query and fragment.
pub(crate) fn without_secrets(url: &Url) -> Url {
    let mut url = url.clone();
    // A URL that cannot have a user has none.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// The parameters whose values are masked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Parameters {
    /// Those with the well-known names of secrets.
    #[default]
    Secret,
    /// Of a URL that begins with a scheme, all.
    All,
}

/// The text with `***` instead of the secret parts of URLs.
pub(crate) fn masked(text: &str, parameters: Parameters) -> String {
    let mut bytes = Vec::new();
    for line in text.as_bytes().split_inclusive(|byte| *byte == b'\n') {
        let mut context = Context { parameters, ..Context::default() };
        context.mask(line, 0, line.len(), &mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes text on, with `***` instead of the values of secret parameters and of the users and passwords of URLs.
#[derive(Debug)]
pub(crate) struct Masking<W> {
    to: W,
    /// The end of a line that has not ended.
    held: Vec<u8>,
    /// How much of it is written.
    written: usize,
    context: Context,
}

impl<W: Write> Masking<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, held: Vec::new(), written: 0, context: Context::default() }
    }

    /// Writes `bytes`, masked. A line is held back until it ends, or only its end if it is long.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut masked = Vec::with_capacity(bytes.len());
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.held.is_empty() && part.ends_with(b"\n") && is_plain(part) {
                masked.extend_from_slice(part);
                continue;
            }
            self.held.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.mask_to(self.held.len(), &mut masked);
                self.held.clear();
                self.written = 0;
                self.context = Context::default();
            } else if self.held.len() > MAX_LINE {
                let until = self.held.len() - LOOK_AHEAD;
                // Backslashes belong to the quote after them.
                self.mask_to(until - backslashes(&self.held, until), &mut masked);
                let unneeded = self.written.saturating_sub(LOOK_BEHIND);
                self.held.drain(..unneeded);
                self.written -= unneeded;
            }
        }
        self.to.write_all(&masked)
    }

    /// Writes the beginning of a line that has not ended, if nothing that follows can make a part of it a secret.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        if self.held.iter().any(|byte| b"/:?&%#;\\".contains(byte)) {
            return Ok(());
        }
        let mut masked = Vec::new();
        self.mask_to(self.held.len(), &mut masked);
        self.to.write_all(&masked)
    }

    /// Writes what is held back.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        let mut masked = Vec::new();
        self.mask_to(self.held.len(), &mut masked);
        self.to.write_all(&masked)?;
        Ok(self.to)
    }

    /// Adds what is held back to `masked`, at least up to `until`.
    fn mask_to(&mut self, until: usize, masked: &mut Vec<u8>) {
        self.written = self.context.mask(&self.held, self.written, until, masked);
    }
}

/// Whether it is seen at once that nothing in a line is masked: it has no escapes of URLs, no parameters, and no URL that may
/// have a user.
fn is_plain(line: &[u8]) -> bool {
    let is_escape = |at: usize| matches!(line.get(at + 1), Some(b'/' | b'x' | b'u' | b'U'));
    let has_user = |at: usize| {
        let rest = line.get(at + 1..).and_then(|rest| rest.strip_prefix(b"/"));
        rest.is_some_and(|rest| {
            let mut host = rest.iter().take_while(|byte| !b"/?#".contains(byte));
            memchr::memchr(b'@', rest).is_some() || host.any(|byte| *byte == b':')
        })
    };
    memchr::memchr3(b'%', b'&', b'?', line).is_none()
        && !memchr::memchr_iter(b'\\', line).any(is_escape)
        && !memchr::memchr_iter(b'/', line).any(has_user)
}

/// Where in a line the next byte is.
#[derive(Debug, Default)]
struct Context {
    parameters: Parameters,
    /// The quotes that are open.
    open: Vec<Quote>,
    /// A single quote is open. Apostrophes within words are none.
    single: bool,
    in_url: bool,
    /// In the value of a secret parameter that has this level: what is escaped more often does not end it.
    in_value: Option<u8>,
}

/// A quote with the backslashes before it: the one that closes it has as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quote {
    byte: u8,
    backslashes: usize,
}

/// A parameter whose value is masked.
struct Parameter {
    name: Range<usize>,
    /// Where its value starts.
    value: usize,
    level: u8,
}

impl Context {
    /// Adds the part of a line between two positions to `masked`. The end of a user or a name may be later: the position
    /// after it is returned.
    fn mask(&mut self, line: &[u8], from: usize, until: usize, masked: &mut Vec<u8>) -> usize {
        let (before, rest) = line.split_at(from);
        let text = &Decoded::new(before, rest);
        let (mut at, until) = (text.at(from), text.at(until));
        while at < until {
            let start = at;
            if let Some(level) = self.in_value {
                at = self.end(text, at, until, |at| is_at(text, at, b"&#", level));
                self.in_value = Some(level).filter(|_| at == until);
                if at > start {
                    continue;
                }
            }
            if let Some((end, user)) = self.url(text, at) {
                self.in_url = true;
                masked.extend_from_slice(&line[text.start(at)..text.start(end)]);
                at = end;
                if let Some(end) = user {
                    masked.extend_from_slice(MASK);
                    at = end;
                }
            } else if let Some(Parameter { value, level, .. }) = self.masked_parameter(text, at) {
                masked.extend_from_slice(&line[text.start(at)..text.start(value)]);
                masked.extend_from_slice(MASK);
                self.in_value = Some(level);
                at = value;
            } else {
                self.pass(text, at);
                masked.extend_from_slice(&line[text.start(at)..text.start(at + 1)]);
                at += 1;
            }
        }
        text.start(at)
    }

    /// The start of the authority of a URL whose `://` is at `at`, and the end of its user and password. Without a
    /// scheme it is a URL only if it has both.
    fn url(&self, text: &Decoded, at: usize) -> Option<(usize, Option<usize>)> {
        let rest = &text.bytes()[at..];
        if rest.starts_with(b"://") {
            let level = (at..at + 3).map(|at| text.level(at)).max().unwrap_or_default();
            return Some((at + 3, self.user(text, at + 3, level)));
        }
        let before = at.checked_sub(1).map(|before| text[before]);
        let is_within = |byte: u8| byte.is_ascii_alphanumeric() || b":/._-~%\\*".contains(&byte);
        if !rest.starts_with(b"//") || before.is_some_and(is_within) {
            return None;
        }
        let level = text.level(at).max(text.level(at + 1));
        let user = self.user_and_password(text, at + 2, level)?;
        Some((at + 2, Some(user)))
    }

    /// The end of the user and password of a URL whose authority starts at `from`. As they may not be escaped, that is
    /// the last `@` of the word if there is a `:` before it.
    fn user(&self, text: &Decoded, from: usize, level: u8) -> Option<usize> {
        let limit = text.at(text.start(from) + MAX_USER);
        let end = self.end_of_url(text, from, limit, level);
        let word = &text.bytes()[from..end];
        if word.starts_with(b"git@") || starts_with_ipv6(word) {
            return None;
        }
        let first = |bytes, until| (from..until).find(|at| is_at(text, *at, bytes, level));
        let last_at = |until: usize| (from..until).rfind(|at| is_at(text, *at, b"@", level));
        let host = first(b"/?#", end).unwrap_or(end);
        if let Some(last) = last_at(end) {
            return if first(b":", last).is_some() { Some(last) } else { last_at(host) };
        }
        // A password may contain spaces. A port may not, and a quoted URL has ended with its quote.
        let colon = first(b":", host)?;
        let spaced = end == text.len() || is_end_of_word(text, end);
        if is_port(&text.bytes()[colon + 1..end]) || !spaced {
            return None;
        }
        let at = self.end_of_quote(text, end, limit, |at| text[at] == b'@');
        if at < limit && text[at] == b'@' {
            let next = self.end(text, at, text.at(text.start(at) + MAX_USER), |_| false);
            return (at..next).rfind(|at| text[*at] == b'@').or(Some(at));
        }
        (host == end).then_some(end)
    }

    /// The end of `user:password` before the host of a URL without a scheme.
    fn user_and_password(&self, text: &Decoded, from: usize, level: u8) -> Option<usize> {
        let limit = text.at(text.start(from) + MAX_USER);
        let end = self.end_of_url(text, from, limit, level);
        let first = |bytes, until| (from..until).find(|at| is_at(text, *at, bytes, level));
        let host = first(b"/?#", end).unwrap_or(end);
        let last = (from..host).rfind(|at| is_at(text, *at, b"@", level))?;
        let has_host = text.bytes()[last + 1..host].iter().any(u8::is_ascii_alphanumeric);
        (has_host && first(b":", last).is_some()).then_some(last)
    }

    /// The end of the word of a URL that is escaped `level` times. What follows it in the query of another URL is escaped
    /// less often.
    fn end_of_url(&self, text: &Decoded, from: usize, limit: usize, level: u8) -> usize {
        self.end(text, from, limit, |at| level > 0 && is_at(text, at, b"?&#;", level - 1))
    }

    /// The parameter whose separator is at `at`, if its value is masked.
    fn masked_parameter(&self, text: &Decoded, at: usize) -> Option<Parameter> {
        match text[at] {
            b'?' | b'&' => {}
            b';' | b'#' if self.in_url => {}
            _ => return None,
        }
        let (separator, start) = (text[at], at + 1);
        let limit = text.at(text.start(start) + MAX_NAME);
        let end = (start..limit).find(|at| !is_of_name(text[*at]));
        let end = end.filter(|end| text[*end] == b'=');
        let level = text.level(at);
        if self.parameters == Parameters::All
            && self.in_url
            && b"?&".contains(&separator)
            && level == 0
        {
            // Without a name all of it is the value.
            let value = end.map_or(start, |end| end + 1);
            return Some(Parameter { name: start..value, value, level });
        }
        let end =
            end.filter(|end| is_secret(&String::from_utf8_lossy(&text.bytes()[start..*end])))?;
        Some(Parameter { name: start..end, value: end + 1, level: level.min(text.level(end)) })
    }

    /// Opens and closes quotes, and enters and leaves URLs.
    fn pass(&mut self, text: &Decoded, at: usize) {
        let closes = self.closes(text, at);
        let quote = Quote { byte: text[at], backslashes: backslashes(text.bytes(), at) };
        match text[at] {
            b'?' => self.in_url = true,
            _ if is_end_of_word(text, at) => self.in_url = false,
            b'\'' if closes => self.single = false,
            b'\'' => self.single |= at == 0 || !text[at - 1].is_ascii_alphanumeric(),
            b'"' | b'`' if closes => {
                let before = self.open.iter().position(|open| *open == quote);
                self.open.truncate(before.unwrap_or_default());
            }
            b'>' if closes => self.open.retain(|open| open.byte != b'<'),
            b'"' | b'`' if self.open.len() < MAX_QUOTES => self.open.push(quote),
            b'<' if text.bytes().get(at + 1).is_some_and(u8::is_ascii_alphanumeric)
                && self.open.len() < MAX_QUOTES =>
            {
                self.open.push(quote);
            }
            _ => {}
        }
        if closes {
            self.in_url = false;
        }
    }

    /// Whether the byte at `at` closes an open quote.
    fn closes(&self, text: &Decoded, at: usize) -> bool {
        match text[at] {
            b'\'' => {
                let next = text.bytes().get(at + 1);
                self.single && !next.is_some_and(u8::is_ascii_alphanumeric)
            }
            byte @ (b'"' | b'`') => {
                let backslashes = backslashes(text.bytes(), at);
                self.open.contains(&Quote { byte, backslashes })
            }
            b'>' => self.open.iter().any(|open| open.byte == b'<'),
            _ => false,
        }
    }

    /// The first position from `from` on, and before `limit`, with white space, a quote that closes, or what `ends`
    /// accepts.
    fn end(
        &self,
        text: &Decoded,
        from: usize,
        limit: usize,
        ends: impl Fn(usize) -> bool,
    ) -> usize {
        self.end_of_quote(text, from, limit, |at| is_end_of_word(text, at) || ends(at))
    }

    /// The same, but past white space.
    fn end_of_quote(
        &self,
        text: &Decoded,
        from: usize,
        limit: usize,
        ends: impl Fn(usize) -> bool,
    ) -> usize {
        for at in from..limit {
            if ends(at) {
                return at;
            }
            if self.closes(text, at) {
                return from.max(at - backslashes(text.bytes(), at));
            }
        }
        limit
    }
}

/// Whether one of `bytes` is at `at`, escaped at most `level` times.
fn is_at(text: &Decoded, at: usize, bytes: &[u8], level: u8) -> bool {
    bytes.contains(&text[at]) && text.level(at) <= level
}

/// Whether there is white space at `at`. A carriage return within a line is none: it may be in a secret.
fn is_end_of_word(text: &Decoded, at: usize) -> bool {
    match text[at] {
        b'\r' => text.bytes().get(at + 1).is_none_or(|next| *next == b'\n'),
        byte => byte.is_ascii_whitespace(),
    }
}

/// The number of backslashes before `at`.
fn backslashes(text: &[u8], at: usize) -> usize {
    text[..at].iter().rev().take(MAX_QUOTES).take_while(|byte| **byte == b'\\').count()
}

/// Whether what follows the `:` of a word is, or may be, a port.
fn is_port(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match text.get(digits) {
        None => true,
        Some(byte) if digits == 0 => b"/?#".contains(byte),
        Some(byte) => !byte.is_ascii_alphanumeric(),
    }
}

fn starts_with_ipv6(word: &[u8]) -> bool {
    let Some(rest) = word.strip_prefix(b"[") else { return false };
    let end = rest.iter().position(|byte| !byte.is_ascii_hexdigit() && !b":.%".contains(byte));
    end.is_some_and(|end| rest[end] == b']')
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.%[]()+:$!*,~@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, written in pieces of this size.
    fn written(text: &str, size: usize) -> String {
        let mut bytes = Vec::new();
        let mut writer = Masking::new(&mut bytes);
        for piece in text.as_bytes().chunks(size) {
            writer.write_all(piece).unwrap();
        }
        writer.finish().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_masked_in_a_plain_line(line in "[abux2f/:@?&%;#= \\\\\"]{0,30}") {
            let line = format!("{line}token=hunter2\n");
            if is_plain(line.as_bytes()) {
                assert_eq!(masked(&line, Parameters::Secret), line);
            }
            assert_eq!(written(&line, line.len()), masked(&line, Parameters::Secret));
        }
    }

    #[test]
    fn secret_values_are_masked_wherever_a_write_ends() {
        for (text, expected) in [
            ("GET https://h/s?token=hunter2&x=1: 403\n", "GET https://h/s?token=***&x=1: 403\n"),
            (
                "https://b.s3/k?X-Amz-Date=2&X-Amz-Signature=hunter2\nnext?",
                "https://b.s3/k?X-Amz-Date=2&X-Amz-Signature=***\nnext?",
            ),
            ("\"https://h/c?sv=1&sig=hunter2%2B%3D\" (x)", "\"https://h/c?sv=1&sig=***\" (x)"),
            (
                "git::https://h/m.git?ref=v1&sshkey=hunter2==&depth=1",
                "git::https://h/m.git?ref=v1&sshkey=***&depth=1",
            ),
            ("{\"url\":\"https://h?sig=hunter2\"}", "{\"url\":\"https://h?sig=***\"}"),
            (
                "{\"a\":\"{\\\"url\\\":\\\"https://h?sig=hunter2\\\"}\"}",
                "{\"a\":\"{\\\"url\\\":\\\"https://h?sig=***\\\"}\"}",
            ),
            ("?token=&sig=hunter2", "?token=***&sig=***"),
            ("https://h?a=1\\u0026sig=hunter2\\u0026b=2", "https://h?a=1\\u0026sig=***\\u0026b=2"),
            ("h?a=1&amp;sig=hunter2&amp;b=2", "h?a=1&amp;sig=***&amp;b=2"),
            (
                "Downloading git::https://me:hunter2@h/m.git?ref=v1 for m...",
                "Downloading git::https://***@h/m.git?ref=v1 for m...",
            ),
            ("postgres://me:hunter&er@2@h/db", "postgres://***@h/db"),
            ("https://hunter2@h, ssh://git@h/x, x://", "https://***@h, ssh://git@h/x, x://"),
            ("http://[::1]:80/a@b and https://h:443", "http://[::1]:80/a@b and https://h:443"),
            ("token=x, a?b=c, next_token=y\u{e9}", "token=x, a?b=c, next_token=y\u{e9}"),
            ("is it? token = x", "is it? token = x"),
            ("?tokens=x&token_of=y", ""),
        ] {
            let expected = if expected.is_empty() { text } else { expected };
            for size in [1, 2, 3, 7, text.len()] {
                assert_eq!(written(text, size), expected, "in pieces of {size}");
            }
        }
    }

    #[test]
    fn passwords_and_values_that_are_not_escaped_are_masked() {
        for (text, expected) in [
            (
                "from git::https://me:it's-hunter2@h/x.git?ref=v1",
                "from git::https://***@h/x.git?ref=v1",
            ),
            ("'https://me:it's-hunter2@h/x': no", "'https://***@h/x': no"),
            ("https://h/x.zip?token=h'unter2&archive=zip", "https://h/x.zip?token=***&archive=zip"),
            ("\"https://me:hun/ter2@h/x.zip\"", "\"https://***@h/x.zip\""),
            ("git::https://me:hun#ter2@h/x", "git::https://***@h/x"),
            ("git::https://me:12?hunter@2@h/x", "git::https://***@h/x"),
            ("(\"git::https://me:hunter 2@h/x\" is", "(\"git::https://***@h/x\" is"),
            ("\"git::https://me:hun\\\"ter2@h/x\"", "\"git::https://***@h/x\""),
            ("at git::https://me:hunter2\n", "at git::https://***\n"),
            (r"https:\/\/u:hunter2@h\/x?token=hunter2", r"https:\/\/***@h\/x?token=***"),
            (
                r#"{"url":"https:\/\/u:hunter2@h\/x","@at":1}"#,
                r#"{"url":"https:\/\/***@h\/x","@at":1}"#,
            ),
        ] {
            for size in [1, 3, text.len()] {
                assert_eq!(written(text, size), expected, "in pieces of {size}");
            }
        }
    }

    /// The same URL, as documents and other URLs contain it.
    #[test]
    fn secrets_are_masked_however_their_url_is_escaped() {
        for (text, expected) in [
            (r#""https:\u002f\u002fu:hunter2@h""#, r#""https:\u002f\u002f***@h""#),
            (
                r#""{\"a\":\"https:\\u002f\\u002fu:hunter2@h\"}""#,
                r#""{\"a\":\"https:\\u002f\\u002f***@h\"}""#,
            ),
            (
                r"https\u003a\u002f\u002fu\u003ahunter2\u0040h\u002fx",
                r"https\u003a\u002f\u002f***\u0040h\u002fx",
            ),
            ("https%3A%2F%2Fu%3Ahunter2%40h/x", "https%3A%2F%2F***%40h/x"),
            ("https%3A//u%3Ahunter2%40h/x", "https%3A//***%40h/x"),
            ("https%253A%252F%252Fu%253Ahunter2%2540h", "https%253A%252F%252F***%2540h"),
            (
                "https://h/x?next=https%3A%2F%2Fu%3Ahunter2%40h%2Fx&mail=me@h",
                "https://h/x?next=https%3A%2F%2F***%40h%2Fx&mail=me@h",
            ),
            ("https:&#47;&#x2f;u:hunter2@h", "https:&#47;&#x2f;***@h"),
            ("//u:hunter2@h/x", "//***@h/x"),
            ("\"//u:hunter2@h/x\", (//u:p@h)", "\"//***@h/x\", (//***@h)"),
            (r#"{"url":"\/\/u:hunter2@h\/x"}"#, r#"{"url":"\/\/***@h\/x"}"#),
            ("x?next=%2F%2Fu%3Ahunter2%40h", "x?next=%2F%2F***%40h"),
            ("?a=b%26token=hunter2 x", "?a=b%26token=*** x"),
            ("?a=b%26token%3Dhunter2%26c=d&e=f", "?a=b%26token%3D***%26c=d&e=f"),
            (
                "?next=%2Fx%3Faccess%5Ftoken%3Dhunter2%26b%3D1&c=2",
                "?next=%2Fx%3Faccess%5Ftoken%3D***%26b%3D1&c=2",
            ),
            ("?token=hunter2%26hunter2%23hunter2&a=b", "?token=***&a=b"),
            ("?a=1&amp;amp;sig=hunter2&amp;amp;b=2", "?a=1&amp;amp;sig=***&amp;amp;b=2"),
            ("?a=1&#38;sig=hunter2&#38;b=2", "?a=1&#38;sig=***&#38;b=2"),
            ("https://u:hunt\rer2a5@h/ x", "https://***@h/ x"),
            ("https://h/x?token=hunt\rer2&a=b", "https://h/x?token=***&a=b"),
        ] {
            for size in [1, 2, 3, 7, text.len()] {
                assert_eq!(written(text, size), expected, "in pieces of {size}");
            }
            assert_eq!(masked(text, Parameters::Secret), expected);
        }
    }

    #[test]
    fn secret_parameter_of_a_url_is_found() {
        for (url, name) in [
            ("https://h/x.git?token=S", Some("token")),
            ("https://h/x.git;token=S", Some("token")),
            ("https://h/x.git%3Bdeploy%5Ftoken%3DS", Some("deploy_token")),
            ("https://h/x.git?a=b#sig=S", Some("sig")),
            ("https://h/token=S?ref=token", None),
        ] {
            assert_eq!(secret_parameter(url).as_deref(), name);
        }
    }

    #[test]
    fn all_parameters_of_urls_are_masked_where_that_is_requested() {
        for (text, expected) in [
            (
                "GET \"https://h/s?state=hunter2&x=1#y\" (is it up?) https://h/t?hunter2: 403",
                "GET \"https://h/s?state=***&x=***#y\" (is it up?) https://h/t?*** 403",
            ),
            ("'https://me:hun/ter2@h/x?a=hunter2': no", "'https://***@h/x?a=***': no"),
            (r"https:\/\/h\/x?a=hunter2\u0026b=2, see", r"https:\/\/h\/x?a=***\u0026b=*** see"),
            (
                "https://h/x;a=1#b=2 and a?b=c, x?token=hunter2",
                "https://h/x;a=1#b=2 and a?b=c, x?token=***",
            ),
            (
                "https://h/x?token=***&a=1\r\nhttps://h?1",
                "https://h/x?token=***&a=***\r\nhttps://h?***",
            ),
        ] {
            assert_eq!(masked(text, Parameters::All), expected);
        }
    }

    #[test]
    fn secrets_are_removed_from_urls() {
        for (url, expected) in [
            ("http://user:secret@Host:80/?token=secret#secret", "http://host/"),
            ("https://host:8443/behind/a/proxy/", "https://host:8443/behind/a/proxy/"),
            ("file:///srv/x?secret", "file:///srv/x"),
        ] {
            assert_eq!(without_secrets(&url.parse().unwrap()).as_str(), expected);
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            r"C:\token=x and a;auth=2 and a #token=x",
            "{\"@message\":\"GET https://h:80/x\",\"@module\":\"a\"}",
            "https://h:8443: connection refused, mail me@h",
            "https://h/x: error 403, mail me@h",
            "ssh://git@h:22/x?ref=a@b and oci://h/x@v1",
            "\"http://${host}:${port}\" a@b",
            "nul\0bytes",
            "//comment@x, //a:b/c@d, // x:y@z and //registry/x:tag@sha256",
            "//#region a:b@c, a//b:c@d and file:///x:y",
            "10%\r20%\rhttps://h:80/x\r30% me@h",
            "https://h/x?mail=me%40h:80&a=b and https://h:80/a%40b",
            r"C:\u0026\u00zz &amp; &lt;b&gt; 100%25 a%2Fb",
            r#"regexall("^\\/\\/x:y", a)"#,
        ] {
            for size in [1, 3, text.len()] {
                assert_eq!(written(text, size), text, "in pieces of {size}");
            }
        }
    }

    #[test]
    fn parameters_with_other_names_and_separators_are_masked() {
        for text in [
            "https://h/x?deploy_token=hunter2",
            "https://h/x?private-token=hunter2",
            "https://h/x?privateToken=hunter2&clientSecret=hunter2",
            "https://h/x?a=1&x-api-key=hunter2",
            // As frameworks and Go's url.Values write lists, fields and spaces.
            "https://h/x?token[]=hunter2&token[]=hunter2",
            "https://h/x?token[0]=hunter2&a[b][token]=hunter2",
            "https://h/x?token%5B%5D=hunter2&auth%5btoken%5d=hunter2",
            "https://h/x?a=b%26token%5B%5D%3Dhunter2",
            "https://h/x?a=b%26token%255B%255D%3Dhunter2",
            "https://h/x?oauth.token=hunter2&my+token=hunter2&my%20token=hunter2",
            "https://h/x?$token=hunter2;list(token)=hunter2",
            r"https://h/x?a=1\x26token\x3dhunter2",
            r"https://h/x\x3ftoken\x5b\x5d\x3Dhunter2",
            r"https:\x2f\x2fme:hunter2\x40h/x",
            r"https://h/x?a=1\u{26}token\U0000003dhunter2",
            r"https://h/x?token\u005b\u005d\u003dhunter2",
            "https://h/x?token&#91;&#93;&#61;hunter2",
            "https://h/x?a=1&X%2DAmz%2DSignature=hunter2",
            "https://h/x?a=1&X-Amz-Security-Token=hunter2",
            "https://h/x#access_token=hunter2",
            "https://h/x;token=hunter2",
            "https://h/x?a=1;auth=hunter2",
        ] {
            assert!(!written(text, 5).contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_line_of_any_length_is_masked() {
        let long = format!("\"https://h?token={}\" {}", "S".repeat(300_000), "x ".repeat(100_000));
        let expected = format!("\"https://h?token=***\" {}", "x ".repeat(100_000));
        assert!(written(&long, 5000) == expected);
    }

    #[test]
    fn a_line_that_is_written_in_parts_is_masked_like_a_whole_one() {
        for (text, expected) in [
            (r#""git::https://me:hun\"ter2@h/x" is"#, r#""git::https://***@h/x" is"#),
            (r#""https://h/x?token=hun\"ter2\"&a=1""#, r#""https://h/x?token=***&a=1""#),
            (
                r#"{"a":"{\"url\":\"https://h?sig=hunter2\"}"}"#,
                r#"{"a":"{\"url\":\"https://h?sig=***\"}"}"#,
            ),
            ("from https://me:hun ter2@h/x?a", "from https://***@h/x?a"),
            ("'https://me:it's-hunter2@h/x': no", "'https://***@h/x': no"),
            (
                r"https:\/\/u:hunter2@h\/x\u0026sig=h2\u0026b",
                r"https:\/\/***@h\/x\u0026sig=***\u0026b",
            ),
            ("x&amp;sig=hunter2&amp;b=2;sig=x", "x&amp;sig=***&amp;b=2;sig=x"),
            ("x?a=b%2526token%253Dhunter2%2526c=d", "x?a=b%2526token%253D***%2526c=d"),
            (r"at \u002f\u002fu\u003ahunter2\u0040h", r"at \u002f\u002f***\u0040h"),
        ] {
            for end in [MAX_LINE, MAX_LINE - LOOK_AHEAD] {
                for before in 0..=text.len() {
                    let padding = "x".repeat(end - before) + " ";
                    let after = " y".repeat(LOOK_AHEAD);
                    let line = format!("{padding}{text}{after}");
                    let (first, rest) = line.as_bytes().split_at(MAX_LINE);
                    let mut bytes = Vec::new();
                    let mut writer = Masking::new(&mut bytes);
                    for piece in [first, &rest[..1], &rest[1..]] {
                        writer.write_all(piece).unwrap();
                    }
                    writer.finish().unwrap();
                    let masked = String::from_utf8(bytes).unwrap();
                    let masked = masked.strip_prefix(&padding).unwrap();
                    let masked = masked.strip_suffix(&after).unwrap_or(masked);
                    assert!(masked == expected, "{before} before {end}: {masked:.200}");
                }
            }
        }
    }

    #[test]
    fn every_name_is_recognized_in_any_case() {
        for name in NAMES {
            assert!(is_secret(&name.to_ascii_uppercase()), "{name}");
            let url = format!("https://h/x?a=1&{}=hunter2", name.to_ascii_uppercase());
            assert!(!written(&url, 5).contains("hunter2"), "{url}");
        }
        assert!(SIGNATURES.iter().all(|name| is_secret(name)));
        for name in ["state", "", "[]", "ref", "key", "tokens", "X-Amz-Date", "a[b]"] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
