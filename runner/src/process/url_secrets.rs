//! The secret parts of URLs: users and passwords, and the values of query parameters with well-known names. It has a
//! writer that masks them in any text.
//!
//! A secret in another parameter, in the path or in the text around a URL is not recognized.

use std::io::{self, Write};

/// Names in lower case.
const NAMES: [&str; 31] = [
    "access_token",
    "api-key",
    "api_key",
    "api_token",
    "apikey",
    "auth",
    "auth_token",
    "aws_access_key_secret",
    "aws_access_token",
    "awsaccesskeysecret",
    "client_secret",
    "id_token",
    "job_token",
    "passwd",
    "password",
    "private_token",
    "refresh_token",
    "sas",
    "secret",
    "secret_key",
    "secretkey",
    "sig",
    "signature",
    "sshkey",
    "token",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-signature",
    "x-ms-signature",
    "x-oss-signature",
    "x-token",
];

/// Signatures of a URL as a whole, beside which its other parameters change from URL to URL.
const SIGNATURES: [&str; 6] = [
    "sig",
    "signature",
    "x-amz-signature",
    "x-goog-signature",
    "x-ms-signature",
    "x-oss-signature",
];

/// No name is longer, with an escape before it.
const MAX_NAME: usize = 40;
const MASK: &[u8] = b"***";
/// What precedes the authority of a URL.
const SEPARATOR: &[u8] = b"://";
/// Users and passwords that are longer than this are not recognized.
const MAX_USER: usize = 4 << 10;

/// Whether the value of a parameter is a secret.
pub(crate) fn is_secret(name: &str) -> bool {
    NAMES.contains(&&*name.to_ascii_lowercase())
}

/// Whether a parameter signs its URL.
pub(crate) fn is_signature(name: &str) -> bool {
    SIGNATURES.contains(&&*name.to_ascii_lowercase())
}

/// Writes text on, with `***` instead of the values of secret parameters and of the users and passwords of URLs.
#[derive(Debug)]
pub(crate) struct Masking<W> {
    to: W,
    state: State,
}

/// Where in the text the next byte is.
#[derive(Debug)]
enum State {
    /// Outside of what may be secret.
    Text,
    /// In the name of a parameter, which begins with these bytes. A longer one is cut off.
    Name(Vec<u8>),
    /// In a secret value.
    Value,
    /// After this many bytes of `://`.
    Separator(usize),
    /// In the authority of a URL. These bytes of it, which may be a user and a password, are not yet written.
    Authority(Vec<u8>),
}

impl<W: Write> Masking<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, state: State::Text }
    }

    /// Writes `bytes`, masked. The beginning of a URL may be held back.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        // The bytes before `start` are written, masked or held back.
        let (mut start, mut at) = (0, 0);
        while at < bytes.len() {
            let rest = &bytes[at..];
            match &mut self.state {
                State::Text => {
                    let Some(before) = rest.iter().position(|byte| b"?&;\\:".contains(byte)) else {
                        break;
                    };
                    let is_colon = rest[before] == b':';
                    self.state =
                        if is_colon { State::Separator(1) } else { State::Name(Vec::new()) };
                    at += before + 1;
                }
                State::Name(name) => {
                    let end = rest.iter().position(|byte| !is_of_name(*byte));
                    let part = &rest[..end.unwrap_or(rest.len())];
                    name.extend(part.iter().take(MAX_NAME).map(u8::to_ascii_lowercase));
                    name.truncate(MAX_NAME);
                    at += part.len();
                    let Some(after) = bytes.get(at) else { break };
                    let is_secret = *after == b'=' && is_secret_name(name);
                    self.state = State::Text;
                    if is_secret {
                        at += 1;
                        self.to.write_all(&bytes[start..at])?;
                        self.to.write_all(MASK)?;
                        start = at;
                        self.state = State::Value;
                    }
                }
                State::Value => {
                    let end = rest.iter().position(|byte| ends_value(*byte));
                    at += end.unwrap_or(rest.len());
                    start = at;
                    if end.is_some() {
                        self.state = State::Text;
                    }
                }
                State::Separator(matched) if rest[0] != SEPARATOR[*matched] => {
                    self.state = State::Text;
                }
                State::Separator(matched) => {
                    *matched += 1;
                    at += 1;
                    if *matched == SEPARATOR.len() {
                        self.to.write_all(&bytes[start..at])?;
                        start = at;
                        self.state = State::Authority(Vec::new());
                    }
                }
                State::Authority(_) => {
                    at += self.authority(rest)?;
                    start = at;
                }
            }
        }
        self.to.write_all(&bytes[start..])
    }

    /// Reads what `bytes` has of the authority of a URL, and returns its length. It is held back until an `@` shows
    /// that it was a user, or its end that it was not.
    fn authority(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let State::Authority(held) = &mut self.state else { return Ok(0) };
        let end = bytes.iter().position(|byte| *byte == b'@' || ends_authority(*byte));
        let part = &bytes[..end.unwrap_or(bytes.len())];
        held.extend_from_slice(part);
        let is_user = end.is_some_and(|end| bytes[end] == b'@');
        if is_user {
            let shown = if held == b"git" { b"git" } else { MASK };
            self.to.write_all(shown)?;
            self.to.write_all(b"@")?;
            held.clear();
            return Ok(part.len() + 1);
        }
        if end.is_some() || held.len() > MAX_USER {
            self.to.write_all(held)?;
            self.state = State::Text;
        }
        Ok(part.len())
    }

    /// Writes what is held back.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        match &self.state {
            State::Authority(held) => self.to.write_all(held),
            State::Text | State::Name(_) | State::Value | State::Separator(_) => Ok(()),
        }
    }
}

fn is_secret_name(name: &[u8]) -> bool {
    // JSON may have an escape instead of the `&` before it: `\u0026`. HTML has `&amp;`, which ends with a semicolon.
    let name = name.strip_prefix(b"u0026").unwrap_or(name);
    NAMES.iter().any(|known| known.as_bytes() == name)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

fn ends_url(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte.is_ascii_control() || b"\"'`<>\\".contains(&byte)
}

/// Whether a byte ends the value of a parameter.
fn ends_value(byte: u8) -> bool {
    ends_url(byte) || b"&#".contains(&byte)
}

fn ends_authority(byte: u8) -> bool {
    ends_url(byte) || b"/?#".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, written in pieces of this size.
    fn masked(text: &str, size: usize) -> String {
        let mut written = Vec::new();
        let mut writer = Masking::new(&mut written);
        for piece in text.as_bytes().chunks(size) {
            writer.write_all(piece).unwrap();
        }
        writer.finish().unwrap();
        String::from_utf8(written).unwrap()
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
            ("{\"url\":\"https://h?sig=hunter2\\\"\"}", "{\"url\":\"https://h?sig=***\\\"\"}"),
            ("?token=&sig=hunter2", "?token=***&sig=***"),
            ("https://h?a=1\\u0026sig=hunter2\\u0026b=2", "https://h?a=1\\u0026sig=***\\u0026b=2"),
            ("h?a=1&amp;sig=hunter2&amp;b=2", "h?a=1&amp;sig=***&amp;b=2"),
            (
                "Downloading git::https://me:hunter2@h/m.git?ref=v1 for m...",
                "Downloading git::https://***@h/m.git?ref=v1 for m...",
            ),
            ("postgres://me:hunter&er@2@h/db", "postgres://***@***@h/db"),
            ("https://hunter2@h, ssh://git@h/x, x://", "https://***@h, ssh://git@h/x, x://"),
            ("http://[::1]:80/a@b and https://h:443", "http://[::1]:80/a@b and https://h:443"),
            ("token=x, a?b=c, next_token=y\u{e9}", "token=x, a?b=c, next_token=y\u{e9}"),
            ("is it? token = x", "is it? token = x"),
            ("?tokens=x&my_token_of_a_very_long_name_indeed_token=y", ""),
        ] {
            let expected = if expected.is_empty() { text } else { expected };
            for size in [1, 2, 3, 7, text.len()] {
                assert_eq!(masked(text, size), expected, "in pieces of {size}");
            }
        }
    }

    #[test]
    fn every_name_is_recognized_in_any_case() {
        for name in NAMES {
            assert!(
                name.len() + "u0026".len() < MAX_NAME && is_secret(&name.to_ascii_uppercase()),
                "{name}"
            );
            let url = format!("https://h/x?a=1&{}=hunter2", name.to_ascii_uppercase());
            assert!(!masked(&url, 5).contains("hunter2"), "{url}");
        }
        assert!(SIGNATURES.iter().all(|name| is_secret(name)));
        assert!(!is_secret("state") && !is_secret(""));
    }
}
